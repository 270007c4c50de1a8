//! A rig for testing one app by itself, or a network: the test supplies the packets, takes the packets and sets the
//! time.
//!
//! ```
//! use bellows_engine::{App, Io, Port, Ports};
//! use bellows_rig::Rig;
//!
//! struct Pass;
//!
//! impl App for Pass {
//!     const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
//!     const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets")]);
//!
//!     fn push(&mut self, io: &Io<Self>) {
//!         io.forward(0, 0);
//!     }
//! }
//!
//! let mut rig = Rig::new(Pass, &["input"], &["output"]);
//! rig.send("input", [b"one".as_slice(), b"two"]);
//! rig.breathe();
//! assert_eq!(rig.received("output"), [b"one".to_vec(), b"two".to_vec()]);
//! ```

#![forbid(unsafe_code)]

mod event_log;

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bellows_engine::{App, AppSpec, End, Engine, Io, Network, Outcome, Port, Ports, Settings};
use bellows_observe::{AppCounts, Imbalance, Snapshot};
use bellows_packet::Packet;

pub use event_log::EventLog;

type Queue = Arc<Mutex<VecDeque<Packet>>>;

fn with_queue<T>(queue: &Queue, work: impl FnOnce(&mut VecDeque<Packet>) -> T) -> T {
    work(&mut queue.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Sends the packets that a test puts into its queue.
struct Feed(Queue);

impl App for Feed {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets of the test")]);

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        let room = output.room();
        with_queue(&self.0, |queue| {
            let count = queue.len().min(room);
            io.brought_in(count);
            queue.drain(..count).for_each(|packet| output.push(packet));
        });
    }

    fn is_finished(&self) -> bool {
        with_queue(&self.0, |queue| queue.is_empty())
    }
}

/// Keeps the packets that it receives for the test.
struct Collect(Queue);

impl App for Collect {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets for the test")]);

    fn push(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        io.handed_off(input.len());
        with_queue(&self.0, |queue| queue.extend(&mut input));
    }
}

/// A network around an app, with a queue of packets at each port.
fn around<A: App>(app: A, inputs: &[(String, Queue)], outputs: &[(String, Queue)]) -> Network {
    let mut network = Network::new().app("app", app);
    for (port, queue) in inputs {
        network = network.app(&format!("feed-{port}"), Feed(Arc::clone(queue)));
        network = network.link(&format!("feed-{port}.output -> app.{port}")).expect("a link");
    }
    for (port, queue) in outputs {
        network = network.app(&format!("collect-{port}"), Collect(Arc::clone(queue)));
        network = network.link(&format!("app.{port} -> collect-{port}.input")).expect("a link");
    }
    network
}

/// One app in a network of its own, or a network.
///
/// At its end it checks the books of the apps: every packet that came in or was made has been sent, dropped for a reason, or
/// is held.
pub struct Rig {
    /// `None` once it is finished.
    engine: Option<Engine>,
    inputs: Vec<(String, Queue)>,
    outputs: Vec<(String, Queue)>,
}

impl Rig {
    /// Links these ports of an app, and starts it. The time is 1 second.
    ///
    /// # Panics
    /// If the ports cannot be linked, or the app cannot start.
    pub fn new<A: App>(app: A, inputs: &[&str], outputs: &[&str]) -> Rig {
        Rig::with_settings(app, inputs, outputs, Settings::default())
    }

    /// Like [`Rig::new`], with other settings of the engine.
    ///
    /// # Panics
    /// As [`Rig::new`].
    pub fn with_settings<A: App>(app: A, inputs: &[&str], outputs: &[&str], settings: Settings) -> Rig {
        let queues = |ports: &[&str]| -> Vec<(String, Queue)> {
            ports.iter().map(|&port| (port.to_owned(), Queue::default())).collect()
        };
        let (inputs, outputs) = (queues(inputs), queues(outputs));
        Rig::run(around(app, &inputs, &outputs), settings, inputs, outputs)
    }

    /// Replaces the app in a reload, as a change of its keys does.
    ///
    /// # Errors
    /// If it cannot start. Then the old one goes on.
    ///
    /// # Panics
    /// If the rig is around a network.
    pub fn replace<A: App>(&mut self, app: A) -> Result<(), String> {
        let network = around(app, &self.inputs, &self.outputs);
        let engine = self.engine.as_mut().expect("the engine is there until the rig is finished");
        let control = engine.control();
        let reload = move || control.reload_restarting(network, &["app".to_owned()]).map_err(|error| error.to_string());
        let reloading = thread::spawn(reload);
        while !reloading.is_finished() {
            engine.handle_requests();
            thread::yield_now();
        }
        reloading.join().expect("a reload that does not panic").map(drop)
    }

    /// A rig around a network, whose sources and sinks of these names give way to the test: each source has an output
    /// `output`, each sink an input `input`. The time is 1 second.
    ///
    /// # Panics
    /// If the network has no such apps, or cannot start.
    pub fn around(mut network: Network, sources: &[&str], sinks: &[&str], settings: Settings) -> Rig {
        let mut replace = |name: &str, app: AppSpec| {
            let place = network.apps.iter_mut().find(|other| other.name == name);
            *place.unwrap_or_else(|| panic!("the network has no app `{name}`")) = app;
        };
        let mut queues = |names: &[&str], is_source: bool| -> Vec<(String, Queue)> {
            let queue_of = |&name: &&str| {
                let queue = Queue::default();
                replace(
                    name,
                    match is_source {
                        true => AppSpec::new(name, "feed", "", Feed(Arc::clone(&queue))),
                        false => AppSpec::new(name, "collect", "", Collect(Arc::clone(&queue))),
                    },
                );
                (name.to_owned(), queue)
            };
            names.iter().map(queue_of).collect()
        };
        let (inputs, outputs) = (queues(sources, true), queues(sinks, false));
        Rig::run(network, settings, inputs, outputs)
    }

    fn run(network: Network, settings: Settings, inputs: Vec<(String, Queue)>, outputs: Vec<(String, Queue)>) -> Rig {
        let engine = Engine::new(network, settings, None).unwrap_or_else(|error| panic!("{error}"));
        engine.set_time(1_000_000_000);
        Rig { engine: Some(engine), inputs, outputs }
    }

    fn queue<'a>(queues: &'a [(String, Queue)], port: &str) -> &'a Queue {
        &queues.iter().find(|(name, _)| name == port).unwrap_or_else(|| panic!("port `{port}` is not linked")).1
    }

    /// Queues packets for an input.
    ///
    /// # Panics
    /// If the input is not linked, or the pool is empty.
    pub fn send<B: AsRef<[u8]>>(&mut self, input: &str, packets: impl IntoIterator<Item = B>) {
        let packets = packets.into_iter().map(|bytes| Packet::from_bytes(bytes.as_ref()).expect("a buffer"));
        self.send_packets(input, packets);
    }

    /// Queues packets for an input, with all their metadata.
    ///
    /// # Panics
    /// If the input is not linked.
    pub fn send_packets(&mut self, input: &str, packets: impl IntoIterator<Item = Packet>) {
        with_queue(Rig::queue(&self.inputs, input), |queue| queue.extend(packets));
    }

    /// Sets the time, in nanoseconds.
    pub fn set_time(&mut self, nanos: u64) {
        self.engine().set_time(nanos);
    }

    /// Takes one breath. False if no packet moved in it.
    pub fn breathe(&mut self) -> bool {
        self.engine.as_mut().is_some_and(|engine| {
            engine.handle_requests();
            engine.breathe()
        })
    }

    /// Breathes until no packet moves, at most a million times.
    ///
    /// # Panics
    /// If packets still move after that.
    pub fn settle(&mut self) {
        assert!((0..1_000_000).any(|_| !self.breathe()), "packets move without end");
    }

    /// Takes the bytes of the packets that an output sent since the last call.
    ///
    /// # Panics
    /// If the output is not linked.
    pub fn received(&mut self, output: &str) -> Vec<Vec<u8>> {
        self.received_packets(output).iter().map(|packet| packet.bytes().to_vec()).collect()
    }

    /// Takes the packets that an output sent since the last call.
    ///
    /// # Panics
    /// If the output is not linked.
    pub fn received_packets(&mut self, output: &str) -> Vec<Packet> {
        with_queue(Rig::queue(&self.outputs, output), mem::take).into()
    }

    /// All counters.
    pub fn snapshot(&self) -> Snapshot {
        self.engine().snapshot()
    }

    /// The counters of the app, or of the first one of a network.
    pub fn counts(&self) -> AppCounts {
        self.snapshot().apps.swap_remove(0)
    }

    /// The state that the app reports, if it does.
    pub fn status(&self) -> Option<serde_json::Value> {
        self.engine().control().statuses().into_iter().find(|status| status.app == "app").map(|status| status.status)
    }

    /// Whether the app is finished and holds no packets.
    pub fn is_done(&self) -> bool {
        self.engine().is_done()
    }

    /// Ends the run and returns the imbalances of the books, for an app that miscounts its packets on purpose.
    pub fn imbalances(mut self) -> Vec<Imbalance> {
        let engine = self.engine.take().expect("the engine is there until here");
        engine.finish(End::Done).snapshot.imbalances()
    }

    /// Ends the run: stops the app.
    ///
    /// # Panics
    /// If the app's books do not balance.
    pub fn finish(mut self) -> Outcome {
        let engine = self.engine.take().expect("the engine is there until here");
        let outcome = engine.finish(End::Done);
        assert_eq!(outcome.snapshot.imbalances(), []);
        outcome
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the engine is there until the rig is finished")
    }
}

impl Drop for Rig {
    /// Fails the test if the app's books do not balance.
    fn drop(&mut self) {
        if let Some(engine) = &self.engine
            && !std::thread::panicking()
        {
            assert_eq!(engine.snapshot().imbalances(), []);
        }
    }
}
