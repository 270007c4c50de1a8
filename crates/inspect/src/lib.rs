//! Networks seen from outside: models for watching running networks and explaining crashed ones.
//!
//! Everything here is a model and its computation. Nothing prints, reads arguments or depends on a terminal, so the
//! command, a measurement program or a web page can all use it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`networks`] | which networks there are, how they stand, samples of their counters and what changed between two |
//! | [`accounting`] | what each app costs |
//! | [`timeline`] | what an engine recorded of its last breaths; the slow ones and what made them slow |
//! | [`journey`] | the ways of packets, put together from a trace |
//! | [`hot`] | in which function and for which app an engine spends its time |
//! | [`slow_log`] | which slow breaths deserve a line in a log |
//! | [`times`] | percentiles of latency and of breaths |
//! | [`control`] | asking a running engine over its control socket |
//! | [`text`] | numbers in words |
//! | [`InspectError`] | why a network cannot be inspected |
//!
//! ```no_run
//! use bellows_inspect::accounting::Accounts;
//! use bellows_inspect::networks::{self, Change, Sample};
//!
//! let mut observer = networks::open(networks::pick(Some("router"))?)?;
//! let before = Sample::take(&mut observer);
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! let change = Change::between(before, Sample::take(&mut observer));
//! for row in Accounts::of(&change).rows {
//!     println!("{} {}: {:?} of all clocks", row.app, row.entry, row.share);
//! }
//! # Ok::<(), bellows_inspect::InspectError>(())
//! ```
#![forbid(unsafe_code)]

pub mod accounting;
pub mod control;
mod error;
pub mod hot;
pub mod journey;
pub mod networks;
pub mod slow_log;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod timeline;
pub mod times;

pub use error::InspectError;
