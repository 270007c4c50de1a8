//! Apps, links, and the engine that breathes packets through them.
//!
//! You join *apps* with *links* into a [`Network`]; an [`Engine`] *breathes*: it pulls packets in and pushes them
//! through, about a hundred at a time. The engine knows no protocols and does no input or output; apps do both.
//!
//! | module | contents |
//! |---|---|
//! | `panics` | catches panics in calls of apps |
//! | `settings` | settings of an engine |
//! | `runtime` | what a thread's calls of apps use: nodes, links, slots, shared state |
//! | `app` | the trait [`App`] that authors write, its interface [`Io`], and the type-erased app |
//! | `network` | the description of a network, and the identity of apps and links across reloads |
//! | `crossing_cost` | what a link between workers costs between two processors, measured |
//! | `dispatch` | the schedules: nested, flat and native |
//! | `configuration` | a network laid out for running, and the step from one to the next |
//! | `worker` | one engine thread: the loop over breaths, and sleep |
//! | `crew` | the threads of further workers |
//! | `control` | the interface for other threads: stop, reload, read counters |
//! | `engine` | start, reloads between breaths, and end of a run |
//!
//! Each module uses only modules above it in this table.
//!
//! The crate `bellows-observe` holds what an engine publishes (counters, histograms, the timeline, and their location).
//! Readers use it alone.
//!
//! # Example
//!
//! ```
//! use bellows_engine::{App, End, Engine, Io, Network, Port, Ports, Settings};
//! use bellows_packet::{Packet, Template};
//!
//! struct Hundred { left: usize }
//!
//! impl App for Hundred {
//!     const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets of four bytes")]);
//!
//!     fn pull(&mut self, io: &Io<Self>) {
//!         let mut output = io.output(0);
//!         for mut packet in Packet::allocate_burst(io.burst().min(self.left)) {
//!             packet.append(b"ping");
//!             output.push(packet);
//!             self.left -= 1;
//!         }
//!     }
//!
//!     fn is_finished(&self) -> bool {
//!         self.left == 0
//!     }
//! }
//!
//! struct Sink;
//!
//! impl App for Sink {
//!     const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
//!
//!     fn push(&mut self, io: &Io<Self>) {
//!         io.input(0).discard();
//!     }
//! }
//!
//! let network = Network::new().app("hundred", Hundred { left: 100 }).app("sink", Sink);
//! let network = network.link("hundred.output -> sink.input").unwrap();
//! let mut engine = Engine::new(network, Settings::default(), None).unwrap();
//! let end = engine.run();
//! let outcome = engine.finish(end);
//! assert_eq!(outcome.end, End::Done);
//! assert_eq!((outcome.snapshot.links[0].packets, outcome.snapshot.links[0].bytes), (100, 400));
//! ```

mod app;
mod configuration;
mod control;
mod crew;
mod crossing_cost;
mod dispatch;
mod engine;
mod network;
mod panics;
mod runtime;
mod settings;
mod worker;

pub use app::conversation::{Conversation, RequestError, Requests};
pub use app::io::{Input, Io, Output};
pub use app::{App, AppError, AppInfo, Status};
pub use bellows_observe::look_ahead::{LookAhead, TrialResult};
pub use bellows_observe::{
    AppStatus, Hop, HopKind, MAX_TRACED, ObjectStatus, Reloaded, TapRecord, TraceOrder, listing,
};
pub use bellows_observe::{
    Count, CountTable, Counter, Counters, DropReason, Gauge, PROGRESS, PROGRESS_TOTAL, counters,
};
pub use bellows_watch::{Selector, Tap, Trace, WatchError};
pub use bellows_wiring::{
    LinkEnd, LinkSpec, LinkSyntaxError, Port, Ports, Side, WiredApp, WiringError, closing_links, wiring_errors,
};
pub use control::{Addressee, Control, LookAheadTrial, ReloadError, TrialError, app_at_work};
pub use crew::WorkerError;
pub use crossing_cost::{CrossingCostError, MeasuredCrossing, measure_crossing};
pub use engine::{End, Engine, Outcome, StartError};
pub use network::{AppSpec, MAIN, Network, ObjectSpec, WorkerSpec};
pub use runtime::slots::{SlotHandle, Watched};
pub use settings::{Schedule, Settings, UnknownSchedule};
