//! The end of apps and runs: the last counts of an app are in the books, even if a reload removes it; a run ends when
//! no app can take packets any more; system errors come with a remedy.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use bellows_engine::{
    App, AppSpec, Control, Counters, End, Engine, Io, Network, Outcome, Port, Ports, ReloadError, Settings, StartError,
    counters,
};
use bellows_observe::{AppCounts, ReadError, Snapshot};
use bellows_packet::Packet;
use bellows_testkit::eventually;

const INPUT: Ports = Ports::Named(&[Port::required("input", "packets")]);
const OUTPUT: Ports = Ports::Named(&[Port::required("output", "packets")]);

/// Makes packets forever, slowly enough that none are dropped.
struct Source;

impl App for Source {
    const OUTPUTS: Ports = OUTPUT;

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        if output.room() > 900 {
            Packet::allocate_burst(2).for_each(|packet| output.push(packet));
        }
    }
}

/// Takes packets and holds some; finds out at its end that it lost `loses` of them.
#[derive(Default)]
struct Writer {
    loses: u64,
    holds: usize,
    held: Vec<Packet>,
    taken: u64,
    panics: bool,
}

counters! { Writer;
    drop LOST = "lost", "packets that could not be written";
    gauge TAKEN = "taken", "packets that came, known at the end";
}

impl App for Writer {
    const INPUTS: Ports = INPUT;
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        for packet in &mut io.input(0) {
            self.taken += 1;
            if self.held.len() < self.holds {
                self.held.push(packet);
            }
        }
    }

    fn held(&self) -> usize {
        self.held.len()
    }

    fn end(&mut self, io: &Io<Self>) {
        io.lost(self.loses, Self::LOST);
        io.set(Self::TAKEN, self.taken);
        assert!(!self.panics, "an app of this test fails on purpose");
        self.held.drain(..).for_each(|packet| io.drop(packet, Self::LOST));
    }
}

/// A source and a writer for each name, fingerprint and app.
fn network(writers: impl IntoIterator<Item = (&'static str, &'static str, Writer)>) -> Network {
    let mut network = Network::new();
    for (name, fingerprint, writer) in writers {
        network.apps.push(AppSpec::new(&format!("to-{name}"), "source", "", Source));
        network.apps.push(AppSpec::new(name, "writer", fingerprint, writer));
        network = network.link(&format!("to-{name}.output -> {name}.input")).unwrap();
    }
    network
}

/// Runs a network on a thread of its own, and `beside` on this one, which must stop it.
fn run(network: Network, beside: impl FnOnce(&Control)) -> Outcome {
    let (sender, controls) = channel();
    let engine = thread::spawn(move || {
        let mut engine = Engine::new(network, Settings::default(), None).unwrap();
        sender.send(engine.control()).unwrap();
        let end = engine.run();
        engine.finish(end)
    });
    beside(&controls.recv().unwrap());
    engine.join().unwrap()
}

/// Waits until an app has received packets.
fn wait_for_packets(control: &Control, app: &str) {
    let got = |snapshot: Snapshot| snapshot.apps.iter().any(|row| row.name == app && row.in_packets > 100);
    eventually("packets at an app", || {
        control.refresh();
        got(control.snapshot())
    });
}

fn gone<'a>(snapshot: &'a Snapshot, app: &str) -> &'a AppCounts {
    snapshot.gone.apps.iter().find(|row| row.name == app).unwrap()
}

fn assert_balance(row: &AppCounts) {
    let drops: u64 = row.drops.values().sum();
    assert_eq!(row.in_packets + row.made, row.out_packets + drops + row.ended + row.held, "{row:#?}");
}

#[test]
fn what_an_app_loses_when_a_reload_removes_it_is_in_the_books() {
    let writer = || Writer { loses: 7, ..Writer::default() };
    let outcome = run(network([("a", "", writer()), ("b", "", Writer::default())]), |control| {
        wait_for_packets(control, "a");
        let removed = control.reload(network([("b", "", Writer::default())])).unwrap();
        assert_eq!(removed.removed, ["to-a", "a"]);
        // Further reloads do not count the loss again.
        for _ in 0..3 {
            control.reload(network([("b", "", Writer::default())])).unwrap();
        }
        control.stop();
    });
    let snapshot = outcome.snapshot;
    let row = gone(&snapshot, "a");
    assert_eq!((row.drops["lost"], row.lost["lost"]), (7, 7), "{row:#?}");
    assert!(row.counters["taken"] > 100 && row.counters["taken"] == row.in_packets, "{row:#?}");
    assert_balance(row);
    assert_eq!(snapshot.imbalances(), []);
}

#[test]
fn what_an_app_loses_when_another_takes_its_place_is_in_their_row() {
    let outcome = run(network([("a", "one", Writer { loses: 7, ..Writer::default() })]), |control| {
        wait_for_packets(control, "a");
        control.reload(network([("a", "two", Writer { loses: 5, ..Writer::default() })])).unwrap();
        control.stop();
    });
    let row = &outcome.snapshot.apps[1];
    assert_eq!(row.drops["lost"], 12, "{row:#?}");
    assert_balance(row);
    assert_eq!(outcome.snapshot.imbalances(), []);
}

#[test]
fn what_an_app_holds_when_it_ends_has_one_reason() {
    let holds = || Writer { holds: 20, loses: 3, ..Writer::default() };
    let panics = || Writer { panics: true, ..holds() };
    let keep = || ("c", "", Writer::default());
    let outcome = run(network([("a", "", holds()), ("b", "", panics()), keep()]), |control| {
        wait_for_packets(control, "a");
        wait_for_packets(control, "b");
        control.reload(network([keep()])).unwrap();
        control.stop();
    });
    let (a, b) = (gone(&outcome.snapshot, "a"), gone(&outcome.snapshot, "b"));
    assert_eq!((a.drops["lost"], a.drops["removed"]), (23, 0), "{a:#?}");
    // It panicked before it could drop them.
    assert_eq!((b.drops["lost"], b.drops["removed"]), (3, 20), "{b:#?}");
    assert_balance(a);
    assert_balance(b);
    assert_eq!(outcome.snapshot.imbalances(), []);
}

#[test]
fn removed_apps_that_are_not_listed_are_in_the_sum() {
    // More apps are removed than are listed; each lost one packet.
    const APPS: usize = 140;
    let names: Vec<&'static str> = (0..APPS).map(|index| &*format!("app{index}").leak()).collect();
    let writers = names.iter().map(|name| (*name, "", Writer { loses: 1, ..Writer::default() }));
    let keep = || network([("keep", "", Writer::default())]);
    let all = network(writers.chain([("keep", "", Writer::default())]));
    let outcome = run(all, |control| {
        control.reload(keep()).unwrap();
        control.stop();
    });
    let listed: u64 = outcome.snapshot.gone.apps.iter().filter_map(|row| row.drops.get("lost")).sum();
    assert!(listed < APPS as u64, "{listed}");
    assert_eq!(listed + outcome.snapshot.engine("forgotten_drops"), APPS as u64);
}

/// Takes this many packets, and then no more.
struct Closing(u64);

impl App for Closing {
    const INPUTS: Ports = INPUT;

    fn push(&mut self, io: &Io<Self>) {
        let taken = (&mut io.input(0)).into_iter().count() as u64;
        self.0 = self.0.saturating_sub(taken);
        if self.0 == 0 {
            io.close();
        }
    }
}

fn closing(packets: &[u64]) -> Network {
    let mut network = Network::new();
    for (index, &packets) in packets.iter().enumerate() {
        network.apps.push(AppSpec::new(&format!("source{index}"), "source", "", Source));
        network.apps.push(AppSpec::new(&format!("end{index}"), "closing", "", Closing(packets)));
        network = network.link(&format!("source{index}.output -> end{index}.input")).unwrap();
    }
    network
}

#[test]
fn a_run_ends_when_no_app_takes_packets_any_more() {
    let outcome = run(closing(&[1_000, 50_000]), |_| ());
    assert_eq!(outcome.end, End::Closed);
    let received: Vec<u64> = outcome.snapshot.links.iter().map(|link| link.packets).collect();
    assert!(received[0] >= 1_000 && received[1] >= 50_000, "{received:?}");
    let outcome = run(closing(&[1_000, u64::MAX]), |control| {
        wait_for_packets(control, "end0");
        thread::sleep(Duration::from_millis(200));
        control.stop();
    });
    assert_eq!(outcome.end, End::Stopped, "one still takes them");
}

#[test]
fn system_errors_come_with_a_remedy() {
    let no_descriptor = || io::Error::from_raw_os_error(24);
    let errors = [
        StartError::Counters(no_descriptor()).to_string(),
        StartError::PerfMap(no_descriptor()).to_string(),
        ReloadError::Counters(no_descriptor()).to_string(),
        ReloadError::Unpublished(no_descriptor()).to_string(),
        ReadError::Unreadable(PathBuf::from("counters"), no_descriptor()).to_string(),
    ];
    for error in errors {
        assert!(error.contains("raise its limit with `ulimit -n`"), "{error}");
    }
    let unknown = StartError::PerfMap(io::Error::other("something else")).to_string();
    assert!(unknown.ends_with("something else; make /tmp writable"), "{unknown}");
}

/// Sends a packet when the run is stopped.
struct Leaver;

impl App for Leaver {
    const OUTPUTS: Ports = OUTPUT;
    const PULLS: bool = false;
    const LEAVES: bool = true;

    fn tick(&mut self, io: &Io<Self>) {
        if io.is_leaving() {
            Packet::allocate_burst(1).for_each(|packet| io.output(0).push(packet));
        }
    }

    fn is_finished(&self) -> bool {
        false
    }
}

#[test]
fn what_apps_send_when_a_run_is_stopped_arrives() {
    for workers in [false, true] {
        let mut network = Network::new().app("leaver", Leaver).app("writer", Writer::default());
        if workers {
            network = network.on_worker("other");
        }
        let network = network.link("leaver.output -> writer.input").unwrap();
        let mut engine = Engine::new(network, Settings::default(), None).unwrap();
        let control = engine.control();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                control.stop();
            });
            assert_eq!(engine.run(), End::Stopped);
        });
        let outcome = engine.finish(End::Stopped);
        let taken = |app: &AppCounts| app.counters.get("taken").copied();
        assert_eq!(outcome.snapshot.apps.iter().find_map(taken), Some(1), "workers: {workers}");
    }
}
