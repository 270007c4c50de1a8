//! Apps of which most misbehave: two panic, one never returns, one takes no packets, one is
//! late, one is slow; and one that reports a state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::stuck::{Nothing, Stuck};
use crate::support::{Sandbox, Signal};
use bellows::Command;
use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, Io, Port, Ports, Status};
use bellows_sys::clock;
use bellows_testkit::skips::skip_here;
use bellows_testkit::{eventually, skip};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Panics at the packet with a given number.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The number, from 0.
    at: u64,
}

struct Bomb {
    left: u64,
}

impl App for Bomb {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets")]);

    fn push(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for packet in &mut io.input(0) {
            assert!(self.left > 0, "the fuse is \"short\"");
            self.left -= 1;
            output.push(packet);
        }
    }
}

impl Configure for Bomb {
    const NAME: &'static str = "bomb";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<Bomb, SettingError> {
        Ok(Bomb { left: config.at })
    }
}

/// Panics when it is made.
struct Dud;

impl App for Dud {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
}

impl Configure for Dud {
    const NAME: &'static str = "dud";
    type Config = Nothing;

    fn configure(_: Nothing, _: &Context) -> Result<Dud, SettingError> {
        panic!("damp powder");
    }
}

/// Takes no packets.
struct Lazy;

impl App for Lazy {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
}

impl Configure for Lazy {
    const NAME: &'static str = "lazy";
    type Config = Nothing;

    fn configure(_: Nothing, _: &Context) -> Result<Lazy, SettingError> {
        Ok(Lazy)
    }
}

/// Takes a long time for every third vector.
struct Dawdler {
    calls: u64,
}

impl App for Dawdler {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);

    fn push(&mut self, io: &Io<Self>) {
        for packet in &mut io.input(0) {
            drop(packet);
        }
        self.calls += 1;
        let start = Instant::now();
        while self.calls.is_multiple_of(3) && start.elapsed() < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
    }
}

impl Configure for Dawdler {
    const NAME: &'static str = "dawdler";
    type Config = Nothing;

    fn configure(_: Nothing, _: &Context) -> Result<Dawdler, SettingError> {
        Ok(Dawdler { calls: 0 })
    }
}

/// Reports a virtio device's state, and counts its packets.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Socket {
    /// The name of its socket.
    socket: String,
}

struct Device(Arc<Told>);

struct Told {
    socket: String,
    packets: AtomicU64,
}

impl App for Device {
    const INPUTS: Ports = Ports::Named(&[Port::optional("input", "packets")]);

    fn push(&mut self, io: &Io<Self>) {
        let packets = io.input(0).discard();
        self.0.packets.fetch_add(packets as u64, Relaxed);
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        Some(Arc::clone(&self.0) as Arc<dyn Status>)
    }
}

impl Status for Told {
    fn status(&self) -> Value {
        let packets = self.packets.load(Relaxed);
        json!({
            "device": "virtio-net", "kind": "vhost-user", "socket": self.socket, "mode": "server", "state": "connected", "features": ["packed"],
            "rings": [{
                "index": 0, "direction": "receive", "state": "running", "instance": "receive packed", "size": 256,
                "counters": { "packets": packets, "bytes": 60 * packets, "kicks": 0, "errors": {} },
            }],
            "interface": true, "place": self.socket, "connections": 1, "errors": {}, "last_error": null, "waits": null,
            "peer": null, "confinement": { "confined": true, "reason": null, "denied": {} },
            "engine_faults": { "minor": 0, "major": 0 },
        })
    }
}

impl Configure for Device {
    const NAME: &'static str = "device";
    type Config = Socket;

    fn configure(config: Socket, _: &Context) -> Result<Device, SettingError> {
        Ok(Device(Arc::new(Told { socket: config.socket, packets: AtomicU64::new(0) })))
    }
}

/// Forwards its packets after a delay: this many clocks of the time-stamp counter for each packet.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Burden {
    /// Clocks a packet.
    clocks: u64,
}

struct Slow {
    clocks: u64,
}

impl App for Slow {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets")]);

    fn push(&mut self, io: &Io<Self>) {
        let input = io.input(0);
        let end = clock::ticks() + self.clocks * input.len() as u64;
        drop(input);
        while clock::ticks() < end {}
        io.forward(0, 0);
    }
}

impl Configure for Slow {
    const NAME: &'static str = "slow";
    type Config = Burden;

    fn configure(config: Burden, _: &Context) -> Result<Slow, SettingError> {
        Ok(Slow { clocks: config.clocks })
    }
}

/// Takes long.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Effort {
    /// The time for each packet.
    turns: u64,
}

struct Burner {
    turns: u64,
}

impl App for Burner {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets")]);

    fn push(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for packet in &mut io.input(0) {
            burn(self.turns);
            output.push(packet);
        }
    }
}

/// The work of a burner, in a function that it calls and that calls none in its loop, optimised or not.
#[inline(never)]
fn burn(turns: u64) {
    let (mut value, mut turn) = (1u64, 0);
    while turn < turns {
        value = value / 3 + turn;
        turn += 1;
    }
    std::hint::black_box(value);
}

impl Configure for Burner {
    const NAME: &'static str = "burner";
    type Config = Effort;

    fn configure(config: Effort, _: &Context) -> Result<Burner, SettingError> {
        Ok(Burner { turns: config.turns })
    }
}

const BURNING: &str = r#"
links = ["source.output -> light.input", "light.output -> heavy.input", "heavy.output -> sink.input"]
[apps.source]
app = "source"
[apps.light]
app = "burner"
turns = 1
[apps.heavy]
app = "burner"
turns = 2_000
[apps.sink]
app = "sink"
"#;

const EXPLOSIVE: &str = r#"
links = [
  "source.output -> copy.input",
  "copy.a -> bomb.input",
  "bomb.output -> end.a",
  "copy.b -> end.b",
  "end.output -> sink.input",
]
[apps.source]
app = "source"
count = 10_000
[apps.copy]
app = "tee"
[apps.bomb]
app = "bomb"
at = 1_000
[apps.end]
app = "join"
[apps.sink]
app = "sink"
"#;

/// Adds the apps to the command.
pub fn add(command: Command) -> Command {
    let command = command.app::<Bomb>().app::<Stuck>().app::<Lazy>().app::<Dud>().app::<Dawdler>();
    command.app::<Slow>().app::<Burner>().app::<Device>().app::<Sloppy>()
}

tests! {
    an_app_that_panics_is_contained,
    a_second_interrupt_ends_a_run_that_is_stuck,
    an_app_that_hangs_is_named,
    a_network_in_which_an_app_has_panicked_is_degraded_until_a_reload,
    an_app_that_loses_count_is_a_bug_that_the_report_names,
    a_run_in_which_packets_get_stuck_fails,
    a_late_app_is_found_on_the_timeline,
    devices_report_their_states,
    two_clocks_a_packet_are_found,
    activities_other_than_forwarding_are_shown,
    a_panic_in_a_measurement_is_reported_with_its_place,
    #[cfg(target_arch = "x86_64")]
    the_app_that_takes_long_is_hot,
    #[cfg(target_arch = "x86_64")]
    apps_of_one_type_are_distinguished_by_the_native_schedule_alone,
}

fn an_app_that_panics_is_contained() {
    let sandbox = Sandbox::own();
    let network = sandbox.write("network.toml", EXPLOSIVE);
    let said = sandbox.bellows(&["run", &network, "--json"]);
    assert_eq!(said.code, Some(1), "{said:#?}");
    let report = said.json();
    assert_eq!((&report["panicked"], &report["end"]), (&json!(["bomb"]), &json!("done")), "{report:#}");
    assert_eq!(report["links"][3]["packets"], json!(10_000), "the rest runs on");
    let failed = report["apps"][2]["drops"]["app_failed"].as_u64().unwrap();
    assert!(failed >= 8_000, "what comes to it later is dropped and counted: {report:#}");
    let panics: Vec<&str> = said.stderr.lines().filter(|line| line.contains("panicked")).collect();
    assert_eq!(panics.len(), 2, "one line when it happens and one at the end, no backtrace: {}", said.stderr);
    assert!(panics[0].contains("app `bomb` panicked: the fuse is \"short\""), "{}", panics[0]);
    assert!(panics[1].starts_with("error: app `bomb` panicked"), "{}", panics[1]);
}

fn a_second_interrupt_ends_a_run_that_is_stuck() {
    let sandbox = Sandbox::own();
    let network = sandbox.write(
        "network.toml",
        "links = [\"source.output -> stuck.input\"]\n[apps.source]\napp = \"source\"\n[apps.stuck]\napp = \"stuck\"\n",
    );
    let mut running = sandbox.start(&[&network]);
    running.signal(Signal::INT);
    running.wait_for_log("stopping");
    assert!(running.is_alive(), "the engine waits for its app");
    let folder = running.folder();
    running.signal(Signal::INT);
    let said = running.wait();
    assert_eq!((said.code, said.stdout.as_str()), (Some(130), ""), "{said:#?}");
    assert!(!folder.exists());
}

fn an_app_that_hangs_is_named() {
    let sandbox = Sandbox::own();
    let network = sandbox.write(
        "network.toml",
        "links = [\"source.output -> stuck.input\"]\n[apps.source]\napp = \"source\"\n[apps.stuck]\napp = \"stuck\"\n",
    );
    let mut running = sandbox.start(&[&network]);
    let listed = || sandbox.bellows(&["ps", "--json"]).success().json()[0].clone();
    assert_eq!(listed()["hang"], json!(null), "not yet");
    eventually("the hang is seen", || listed()["hang"]["app"] == json!("stuck"));
    let hang = &listed()["hang"];
    assert!(hang["activity"] == json!("call") && hang["seconds"].as_f64().unwrap() >= 2.0, "{hang:#}");
    let told = sandbox.bellows(&["ps"]).success().stdout;
    assert!(
        told.contains(" stalled ") && told.contains("network: the engine has been in the app `stuck` for "),
        "{told}"
    );
    let shown = sandbox.bellows(&["show"]).success().stdout;
    assert!(shown.contains("hung: the engine has been in the app `stuck` for "), "{shown}");
    running.wait_for_log("hung: the engine has been in the app `stuck` for");
    running.signal(Signal::KILL);
    running.wait();
    let left = sandbox.bellows(&["show"]).success().stdout;
    assert!(left.contains("when it ended, the engine was in the app `stuck`"), "{left}");
}

fn a_network_in_which_an_app_has_panicked_is_degraded_until_a_reload() {
    let sandbox = Sandbox::own();
    let network = sandbox.write(
        "network.toml",
        "links = [\"source.output -> bomb.input\", \"bomb.output -> sink.input\"]\n[apps.source]\napp = \"source\"\n\
         rate = \"1kpps\"\n[apps.bomb]\napp = \"bomb\"\nat = 100\n[apps.sink]\napp = \"sink\"\n",
    );
    let mut running = sandbox.start(&[&network]);
    running.wait_for_log("app `bomb` panicked");
    eventually("it is degraded", || {
        sandbox.bellows(&["ps", "--json"]).success().json()[0]["failed"] == json!(["bomb"])
    });
    let told = sandbox.bellows(&["ps"]).success().stdout;
    assert!(
        told.contains(" degraded ") && told.contains("network: the app `bomb` has panicked and is no longer"),
        "{told}"
    );
    assert_eq!(sandbox.bellows(&["ps", "network", "--probe"]).code, Some(10));
    let events = sandbox.bellows(&["events", "network", "--json"]).success().stdout;
    let failed = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let failed = failed.into_iter().find(|event| event["event"] == "app-failed").unwrap_or_else(|| panic!("{events}"));
    assert_eq!(failed["fields"]["app"], "bomb");
    assert!(failed["fields"]["place"].as_str().unwrap().contains("misbehaving.rs:"), "{failed:#}");
    let shown = sandbox.bellows(&["show"]).success().stdout;
    assert!(shown.contains("degraded: the app `bomb` has panicked"), "{shown}");
    let report = sandbox.bellows(&["reload", "network", "--json"]).success().json();
    assert_eq!((&report["revived"], &report["kept"]), (&json!(["bomb"]), &json!(["source", "sink"])));
    eventually("it panics again", || running.counters()["apps"][1]["panics"] == json!(2));
    let said = sandbox.bellows(&["reload", "network", "--restart", "bombe"]);
    assert!(said.code == Some(2) && said.stderr.contains("no app `bombe` to restart"), "{said:?}");
    let said = sandbox.bellows(&["reload", "network", "--restart", "sink"]).success();
    assert!(said.stdout.contains("started again: bomb") && said.stdout.contains("replaced: sink"), "{said:?}");
    running.signal(Signal::INT);
    let said = running.wait();
    assert!(said.code == Some(1) && said.stdout.contains("error: app `bomb` panicked "), "{said:#?}");
}

/// Mistreats its packets: it forgets one, and frees one without counting it.
struct Sloppy(u64);

impl App for Sloppy {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "most of them")]);

    fn push(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for packet in &mut io.input(0) {
            self.0 += 1;
            match self.0 {
                3 => std::mem::forget(packet),
                4 => drop(packet),
                _ => output.push(packet),
            }
        }
    }
}

impl Configure for Sloppy {
    const NAME: &'static str = "sloppy";
    type Config = Nothing;

    fn configure(_: Nothing, _: &Context) -> Result<Sloppy, SettingError> {
        Ok(Sloppy(0))
    }
}

fn an_app_that_loses_count_is_a_bug_that_the_report_names() {
    let sandbox = Sandbox::own();
    let network = sandbox.write(
        "network.toml",
        "links = [\"source.output -> a.input\", \"a.output -> sink.input\"]\n[apps.source]\napp = \"source\"\ncount = 9\n\
         [apps.a]\napp = \"sloppy\"\n[apps.sink]\napp = \"sink\"\n",
    );
    let said = sandbox.bellows(&["run", &network]);
    assert_eq!(said.code, Some(1), "{said:#?}");
    let last = said.stdout.lines().last().unwrap();
    assert!(last.starts_with("error: this is a bug in the app `a`: 1 packet unaccounted for"), "{last}");
    assert!(last.ends_with("1 packet freed without being counted as dropped"), "{last}");
}

fn a_run_in_which_packets_get_stuck_fails() {
    let sandbox = Sandbox::own();
    let network = sandbox.write(
        "network.toml",
        "links = [\"source.output -> lazy.input\"]\n[apps.source]\napp = \"source\"\ncount = 7\n\
         [apps.lazy]\napp = \"lazy\"\n",
    );
    let said = sandbox.bellows(&["run", &network, "--json"]);
    assert_eq!(said.code, Some(1), "{said:#?}");
    let report = said.json();
    assert_eq!(report["stalled"], json!(["source.output -> lazy.input"]), "{report:#}");
    assert_eq!(report["links"][0]["waiting"], json!(7));
    assert!(said.stderr.contains("error: the run stalled"), "{}", said.stderr);
}

fn a_late_app_is_found_on_the_timeline() {
    let sandbox = Sandbox::own();
    let network = sandbox.write(
        "network.toml",
        "links = [\"source.output -> copy.input\", \"copy.a -> end.input\", \"copy.b -> slow.input\"]\n\
         [apps.source]\napp = \"source\"\nrate = \"100kpps\"\n[apps.copy]\napp = \"tee\"\n\
         [apps.end]\napp = \"sink\"\n[apps.slow]\napp = \"dawdler\"\n",
    );
    let running = sandbox.start(&[&network]);
    let slow = |cause: &Value| (&cause["app"], &cause["entry"]) == (&json!("slow"), &json!("push"));
    eventually("the slow app is to blame", || {
        let timeline = sandbox.bellows(&["timeline", "--json", "--last", "1h"]).success().json();
        let slowest = timeline["slowest"].as_array().unwrap();
        // The system may have interrupted one of the others.
        slowest.iter().filter(|breath| slow(&breath["cause"])).count() >= 4 && slow(&timeline["suspects"][0])
    });
    running.signal(Signal::KILL);
    running.wait();
    let told = sandbox.bellows(&["timeline", "network", "--slowest", "5"]).success().stdout;
    assert!(told.contains("the push of `slow` took ") && told.contains("usually "), "{told}");
    let costs = sandbox.bellows(&["show", "run", "--json"]).success().json();
    // Whether slow calls are outliers or usual, they are recorded.
    let recorded = |row: &&Value| {
        let clocks = |key: &str| row["sampled"][key].as_u64().unwrap();
        clocks("clocks") + clocks("outlier_clocks")
    };
    let most = costs["rows"].as_array().unwrap().iter().max_by_key(recorded).unwrap();
    assert_eq!((&most["app"], &most["entry"]), (&json!("slow"), &json!("push")), "{costs:#}");
}

fn devices_report_their_states() {
    let sandbox = Sandbox::own();
    let network = |socket: &str| {
        format!(
            "links = [\"source.output -> copy.input\", \"copy.a -> guest.input\", \"copy.b -> end.input\", \
             \"copy.c -> other.input\"]\n\
             [apps.source]\napp = \"source\"\nrate = \"10kpps\"\n[apps.copy]\napp = \"tee\"\n[apps.end]\napp = \"sink\"\n\
             [apps.guest]\napp = \"device\"\nsocket = \"{socket}\"\n[apps.other]\napp = \"device\"\nsocket = \"/run/o\"\n"
        )
    };
    let file = sandbox.write("network.toml", &network("/run/a"));
    let plain = sandbox.write("plain.toml", crate::support::ENDLESS);
    let said = sandbox.bellows(&["show", "vhost", "guest"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("no network is named `guest`") && said.stderr.contains("no network is running"));

    let running = sandbox.start(&[&file]);
    let packets = || {
        let report = sandbox.bellows(&["show", "vhost", "--json"]).success().json();
        let devices = report["devices"].as_array().unwrap();
        assert_eq!((&devices[0]["app"], &devices[1]["app"]), (&json!("guest"), &json!("other")), "{report:#}");
        devices[0]["rings"][0]["counters"]["packets"].as_u64().unwrap()
    };
    eventually("packets are counted", || packets() > 100);
    let both = sandbox.bellows(&["show", "vhost", "network"]).success().stdout;
    assert!(both.contains("guest (vhost-user): server on /run/a, connected\n  negotiated: packed\n"), "{both}");
    assert!(both.contains("\nother (vhost-user): server on /run/o") && both.contains("receive packed"), "{both}");
    let one = sandbox.bellows(&["show", "vhost", "other"]).success().stdout;
    assert!(one.starts_with("other (") && !one.contains("guest"), "{one}");

    // `show status` prints any state.
    let said = sandbox.bellows(&["show", "status", "other"]).success().stdout;
    assert!(
        said.starts_with("other (device):\n  device: virtio-net\n  kind: vhost-user\n  socket: /run/o\n"),
        "{said}"
    );
    assert!(said.contains("  features: packed\n  rings:\n    - index: 0\n      direction: receive\n"), "{said}");
    let all = sandbox.bellows(&["show", "status", "--json"]).success().json();
    assert_eq!((&all["name"], &all["state"]), (&json!("network"), &json!("running")), "{all:#}");
    let apps = all["apps"].as_array().unwrap();
    assert_eq!(apps.iter().map(|app| &app["app"]).collect::<Vec<_>>(), ["guest", "other"], "{all:#}");
    assert_eq!((&apps[1]["kind"], &apps[1]["status"]["socket"]), (&json!("device"), &json!("/run/o")), "{all:#}");
    let said = sandbox.bellows(&["show", "status", "end"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
    assert!(said.stderr.contains("`end` of `network` is a sink, not an app with a status"), "{said:?}");

    // After a reload the new app answers; the other has been kept.
    sandbox.write("network.toml", &network("/run/b"));
    sandbox.bellows(&["reload", "network"]).success();
    let both = sandbox.bellows(&["show", "vhost"]).success().stdout;
    assert!(both.contains("server on /run/b") && !both.contains("/run/a") && both.contains("/run/o"), "{both}");

    let beside = sandbox.start(&[&plain]);
    for (name, why) in [
        ("end", "is a sink, not a virtio device or driver"),
        ("guets", "did you mean `guest`?"),
        ("plain", "`plain` has no virtio device or driver"),
    ] {
        let said = sandbox.bellows(&["show", "vhost", name]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        assert!(said.stderr.contains(why), "{why} is not in {}", said.stderr);
    }
    let said = sandbox.bellows(&["show", "status", "plain"]).success().stdout;
    assert!(said.starts_with("no app of `plain` has a status"), "{said}");
    assert!(sandbox.bellows(&["show", "vhost", "guest"]).success().stdout.contains("server on /run/b"));
    beside.signal(Signal::INT);
    beside.wait();
    running.signal(Signal::KILL);
    running.wait();
    let said = sandbox.bellows(&["show", "vhost", "network"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("is not running any more"), "{said:?}");
}

/// The interval of the difference in clocks of an app against another, from more processes if it is wider than a clock;
/// `None` if the machine is too disturbed for that.
fn difference(sandbox: &Sandbox, app: &str, against: &str) -> Option<(f64, f64)> {
    ["9", "21", "45"].into_iter().find_map(|processes| {
        let brief = ["appbench", app, "--against", against, "--processes", processes, "--packets", "300000", "--json"];
        let report = sandbox.bellows(&brief).success().json();
        let results = report["results"].as_array().unwrap();
        let is_it = |result: &&Value| result["case"] == "clocks" && result["labels"]["run"] == "difference";
        let found = results.iter().find(is_it).unwrap_or_else(|| panic!("{report:#}"));
        let (low, high) = (found["low"].as_f64().unwrap(), found["high"].as_f64().unwrap());
        (high - low < 1.0).then_some((low, high))
    })
}

fn two_clocks_a_packet_are_found() {
    let test = "two clocks a packet are found";
    let sandbox = Sandbox::own();
    let more = difference(&sandbox, "slow(clocks = 2)", "slow(clocks = 0)");
    let none = difference(&sandbox, "slow(clocks = 0)", "slow(clocks = 0)");
    let (Some(more), Some(none)) = (more, none) else {
        skip_here(test, "the machine is too disturbed to measure a clock");
        return;
    };
    assert!(more.0 > 0.0, "two more clocks: {more:?}");
    assert!(none.0 < 1.0 && none.1 > -1.0, "no more clocks: {none:?}");
}

fn activities_other_than_forwarding_are_shown() {
    let sandbox = Sandbox::own();
    let said = sandbox.bellows(&["appbench", "lazy", "--processes", "1", "--packets", "1000"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
    assert!(said.stderr.contains("`lazy` takes no packets: all 1024 packets wait in its input links"), "{said:?}");
}

fn a_panic_in_a_measurement_is_reported_with_its_place() {
    let sandbox = Sandbox::own();
    let here = format!(" at {}:", file!());
    // At once; in the middle of the measurement; when the app is made.
    for (app, why) in [
        ("bomb(at = 10)", "error: `bomb` panicked: the fuse is \"short\""),
        ("bomb(at = 200000)", "error: `bomb` panicked: the fuse is \"short\""),
        ("dud", "error: an app panicked: damp powder"),
    ] {
        let said = sandbox.bellows(&["appbench", app, "--processes", "1", "--packets", "1000000"]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{app}: {said:?}");
        assert!(said.stderr.contains(&format!("{why}{here}")), "{app}: {said:?}");
    }
    let said = sandbox.bellows(&["bench", "apps", "--case", "dud", "--processes", "1", "--packets", "1000"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains(&format!("`dud` is not measured: an app panicked: damp powder{here}")), "{said:?}");
}

/// The output of `show hot` for the network with two apps of one type, of which one takes nearly all of the time;
/// `None` if sampling is not permitted here.
#[cfg(target_arch = "x86_64")]
fn hot(test: &str, sandbox: &Sandbox, words: &[&str]) -> Option<crate::support::Said> {
    let said = sandbox.bellows(&[&["show", "hot", "--for", "700ms"], words].concat());
    if said.stderr.contains("may not be sampled") || said.stderr.contains("perf_event_open") {
        skip(test, said.stderr.trim_end());
        return None;
    }
    Some(said.success())
}

#[cfg(target_arch = "x86_64")]
fn the_app_that_takes_long_is_hot() {
    let sandbox = Sandbox::own();
    let network = sandbox.write("network.toml", BURNING);
    let _running = sandbox.start(&[&network]);
    let test = "the app that takes long is hot";
    let Some(said) = hot(test, &sandbox, &["--json"]) else { return };
    let report = said.json();
    let functions = report["functions"].as_array().unwrap();
    let first = &functions[0];
    assert_eq!((&first["function"], &first["apps"]), (&json!("misbehaving::burn"), &json!(["heavy"])), "{report:#}");
    assert!(first["share"].as_f64() > Some(0.7), "{report:#}");
    let samples =
        |list: &Value| list.as_array().unwrap().iter().map(|item| item["samples"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(samples(&report["functions"]), report["samples"].as_u64().unwrap(), "{report:#}");
    assert_eq!(samples(&first["instructions"]), first["samples"].as_u64().unwrap(), "{report:#}");

    let text = hot(test, &sandbox, &[]).unwrap().stdout;
    let row = text.lines().find(|line| line.contains("FUNCTION")).and_then(|head| text.split_once(head));
    let row = row.and_then(|(_, rest)| rest.lines().nth(1)).unwrap();
    assert!(row.contains("misbehaving::burn") && row.contains("heavy"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("> ") && line.contains('%')), "{text}");

    let text = hot(test, &sandbox, &["--app", "light"]).unwrap().stdout;
    // Code that both share may be either's; `heavy`'s own is distinct.
    assert!(text.contains("`light` has "), "{text}");
    let report = hot(test, &sandbox, &["--app", "light", "--json"]).unwrap().json();
    let of_light = |function: &Value| function["apps"].as_array().unwrap().contains(&json!("light"));
    assert!(report["functions"].as_array().unwrap().iter().all(of_light), "{report:#}");
    let said = sandbox.bellows(&["show", "hot", "--app", "hevy"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("did you mean `heavy`?"), "{said:?}");
    let said = sandbox.bellows(&["show", "apps", "--top", "2"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("`show hot`"), "{said:?}");
}

#[cfg(target_arch = "x86_64")]
fn apps_of_one_type_are_distinguished_by_the_native_schedule_alone() {
    let sandbox = Sandbox::own();
    let network = sandbox.write("network.toml", BURNING);
    for schedule in ["nested", "flat"] {
        let _running = sandbox.start(&[&network, "--schedule", schedule]);
        let Some(said) = hot("apps of one type", &sandbox, &["--json"]) else { return };
        let report = said.json();
        let first = &report["functions"][0];
        let found = (&report["schedule"], &first["function"], &first["apps"]);
        assert_eq!(found, (&json!(schedule), &json!("misbehaving::burn"), &json!(["heavy", "light"])), "{report:#}");
    }
}
