//! Apps, links, and the engine that breathes packets through them.
//!
//! You join *apps* with *links* into a [`Network`]; an [`Engine`] *breathes*: it pulls packets in and pushes them
//! through, some hundred at a time. The engine knows no protocol and does no input or output; apps do.
//!
//! | module | what it holds |
//! |---|---|
//! | `panics` | calls of apps that may panic |
//! | `settings` | how an engine runs |
//! | `runtime` | what a thread's calls of apps work on: nodes, links, slots, the state that all share |
//! | `app` | the trait that authors write, [`App`], what it works with, [`Io`], and the face of it that the engine holds |
//! | `network` | the description of a network, and what identifies it |
//! | `dispatch` | the ways to take a breath: nested, flat, and as machine code |
//! | `configuration` | one configuration laid out for running, and what moves from one to the next |
//! | `worker` | what one engine thread owns: the loop over breaths, and its sleep |
//! | `control` | the other threads' side of it: stop, reload, read |
//! | `engine` | the process' side: the start, reloads between breaths, the end |
//!
//! Each module uses only those above it in this table.
//!
//! What an engine leaves for others to read (counters, histograms, the timeline, where they are found) is the crate
//! `bellows-observe`, which readers use alone.
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
mod dispatch;
mod engine;
mod network;
mod panics;
mod runtime;
mod settings;
mod worker;

pub use app::io::{Input, Io, Output};
pub use app::{App, AppError, AppInfo, Status};
pub use bellows_observe::{AppStatus, Hop, HopKind, MAX_TRACED, Reloaded, TapRecord, TraceOrder, listing};
pub use bellows_observe::{
    Count, CountTable, Counter, Counters, DropReason, Gauge, PROGRESS, PROGRESS_TOTAL, counters,
};
pub use bellows_watch::{Tap, Trace, WatchError};
pub use bellows_wiring::{
    End as LinkEnd, LinkSpec, LinkSyntaxError, Port, Ports, Side, WiredApp, WiringError, closing_links, wiring_errors,
};
pub use control::{Control, ReloadError, app_at_work};
pub use engine::{End, Engine, Outcome, StartError};
pub use network::{AppSpec, Network};
pub use runtime::slots::{SlotHandle, Watched};
pub use settings::{Schedule, Settings, UnknownSchedule};
