//! Apps, links, and the engine that breathes packets through them.
//!
//! You join *apps* with *links* into a [`Network`]; an [`Engine`] *breathes*: it pulls packets in and pushes them
//! through, some hundred at a time. The engine knows no protocol and does no input or output; apps do.
//!
//! | module | what it holds |
//! |---|---|
//! | `app` | the trait that authors write, [`App`], and the face of it that the engine holds |
//! | `io` | what an app works with while it is called: [`Io`], [`Input`], [`Output`] |
//! | `network` | the description of a network and everything that can be wrong with it |
//! | `order` | the order of a breath |
//! | `world` | one configuration laid out for running |
//! | `place` | how one app sits in the network: what a call of it works on |
//! | `slots` | words by which the engine sees without a call whether an app has something to pull |
//! | `schedule` | the ways to take a breath |
//! | `native` | the breath as straight-line machine code |
//! | [`listing`] | a breath, explained |
//! | `engine` | the run: breathing, sleeping, ending, swapping configurations |
//! | `meter` | instrumented breaths: what they book for each call, each breath and some packets |
//! | `watchdog` | slow breaths: finds them, and says in which app they were |
//! | `watch` | following single packets, and copying those that pass a link |
//! | `control` | the other threads' side of it: stop, reload, read |
//! | [`testing`] | a rig for testing one app by itself |
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
//!         for mut packet in Packet::fresh(io.burst().min(self.left)) {
//!             packet.append(b"ping");
//!             output.push(packet);
//!             self.left -= 1;
//!         }
//!     }
//!
//!     fn exhausted(&self) -> bool {
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
mod control;
mod engine;
mod io;
pub mod listing;
mod meter;
#[cfg(target_arch = "x86_64")]
mod native;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_native.rs"]
mod native;
mod network;
mod order;
mod panics;
mod place;
mod random;
mod retire;
mod schedule;
mod slots;
pub mod testing;
mod watch;
mod watchdog;
mod world;

pub use app::{App, AppError, Port, Ports, Status, Traits};
pub use bellows_observe::{Counter, PROGRESS, PROGRESS_TOTAL};
pub use control::{AppStatus, Control, ReloadError, Reloaded};
pub use engine::{End, Engine, Outcome, Settings, StartError};
pub use io::{Input, Io, Output};
pub use network::{AppSpec, End as LinkEnd, Fault, LinkSpec, LinkSyntaxError, Network, Side, WiredApp, wiring_faults};
pub use order::closing_links;
pub use panics::app_at_work;
pub use schedule::{Schedule, UnknownSchedule};
pub use slots::{SlotHandle, Watched};
pub use watch::{Hop, HopKind, MOST_TRACED, Tap, TapRecord, Trace, TraceOrder, WatchError};
