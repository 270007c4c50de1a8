//! Watching single packets: traces, which follow some through the network, and taps, which copy all that pass a link.
//!
//! While somebody watches, every breath is sampled: before each call the engine notes how many packets the links
//! behind the app have been sent, and looks after it at those that came. While nobody does, nothing of this costs anything.
//!
//! | module | what it holds |
//! |---|---|
//! | `listener` | the end of a trace or tap on another thread |
//! | `network` | what is watched |
//! | `tap` | copies of the packets that pass a link |
//! | `trace` | packets that are followed |
//! | `watch` | all that is watched, in the hands of the engine's thread |
#![forbid(unsafe_code)]

mod listener;
mod network;
mod tap;
mod trace;
mod watch;

pub use network::{Call, Network};
pub use tap::{Tap, TapWatch};
pub use trace::{Trace, TraceWatch};
pub use watch::{Order, Watch, WatchError};
