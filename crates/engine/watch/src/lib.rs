//! Watching single packets: traces, which follow some through the network, and taps, which copy all packets that pass a
//! link.
//!
//! While something is watched, every breath is sampled: before each call the engine records how many packets the app's
//! output links have been sent, and afterwards it reads the new ones. Without a watcher, this costs nothing.
//!
//! A crate of its own because it forbids `unsafe` code, which the engine needs, and uses nothing of the engine.
//!
//! | module | what it holds |
//! |---|---|
//! | `listener` | the receiving end of a trace or tap on another thread |
//! | `network` | the watched network |
//! | `tap` | copies of the packets that pass a link |
//! | `trace` | traces of packets |
//! | `watch` | all traces and taps, on the engine's thread |
#![forbid(unsafe_code)]

mod listener;
mod network;
mod tap;
mod trace;
mod watch;

pub use network::{Call, Network};
pub use tap::{Tap, TapWatch};
pub use trace::{Selector, Trace, TraceWatch};
pub use watch::{Order, Watch, WatchError};
