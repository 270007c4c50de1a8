//! The counters of all networks of this machine, for monitoring systems.
//!
//! The counters are read from the files that engines publish: nothing is asked of an engine, so reading costs it
//! nothing, and works for one that hangs or has crashed.
//!
//! A crate of its own because it knows no HTTP server, and `bellows` can be built without it (feature `http`).
//!
//! | module | what it holds |
//! |---|---|
//! | [`Collector`] | reads all networks, and writes what they count |
//! | [`Format`] | the two text formats, and the choice between them |
//! | `exposition` | writes families of metrics in a format |
//! | `family` | families of metrics, and their names from declarations of counters |
//! | `declared` | the families of every network |
//! | `network` | one network: its labels, its counters at one time |
//! | [`health`] | whether networks run as they should |
//! | [`reference`](mod@reference) | the list of all families, for documentation |
//!
//! ```no_run
//! use bellows_metrics::{Build, Collector, Format};
//!
//! let build = Build { version: "1.0.0", revision: "0123456789ab, 2026-01-01", features: "http" };
//! let mut collector = Collector::new(build, |kind| kind == "tap");
//! print!("{}", String::from_utf8_lossy(&collector.scrape(Format::Text)));
//! ```
#![forbid(unsafe_code)]

mod collector;
mod declared;
mod exposition;
mod family;
mod format;
pub mod health;
mod network;
pub mod reference;

pub use collector::{Build, Collector};
pub use format::Format;
pub use health::MachineHealth;
