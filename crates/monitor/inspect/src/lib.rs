//! Networks seen from outside: models for watching running networks and explaining crashed ones.
//!
//! Everything here is a model and its computation. Nothing prints, reads arguments or depends on a terminal, so the
//! command, a measurement program or a web page can all use it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`networks`] | running and crashed networks, their states, samples of their counters and the change between two |
//! | [`foreign`] | the limit for networks of other users |
//! | [`health`] | whether a network runs, in one word with its reasons |
//! | [`events`] | what happened to networks: the events that they keep in files |
//! | [`accounting`] | the cost of each app |
//! | [`baseline`] | the counters at `bellows clear`, which later readers subtract |
//! | [`compounds`] | the cost of compound apps: the sums of their parts |
//! | [`picture`] | networks as graphs to draw |
//! | [`reports`] | counters, costs and latencies as JSON |
//! | [`placing`] | proposals for the workers of apps, from their costs |
//! | [`crossings`] | the cost of links between workers |
//! | [`processors`] | the machine's processors, and those that handle interrupts of interfaces |
//! | [`timeline`] | the recording of an engine's last breaths; slow breaths and their causes |
//! | [`journey`] | the paths of packets, assembled from a trace |
//! | [`histogram`] | histograms of times, for people |
//! | [`hot`] | the functions in which an engine spends its time, by app |
//! | [`slow_log`] | log lines about slow breaths, with a rate limit |
//! | [`tap`] | the packets of a link, into a capture file or another sink |
//! | [`times`] | percentiles of latency and of breaths |
//! | [`control`] | the client and the protocol of the control socket |
//! | [`service`] | the user of the machine's services |
//! | [`text`] | formatting of numbers, and texts of other processes |
//! | [`InspectError`] | the error of all these |
//!
//! ```no_run
//! use bellows_inspect::accounting::Accounts;
//! use bellows_inspect::networks::{self, Access, Change, Sample};
//!
//! let mut observer = networks::open(networks::pick(Some("router"), Access::Read)?)?;
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
pub mod baseline;
pub mod compounds;
pub mod confirmation;
pub mod control;
pub mod crossings;
mod error;
pub mod events;
pub mod foreign;
pub mod health;
pub mod histogram;
pub mod hot;
pub mod journey;
pub mod networks;
pub mod picture;
pub mod placing;
pub mod processors;
pub mod reports;
pub mod service;
pub mod slow_log;
pub mod tap;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod timeline;
pub mod times;

pub use error::InspectError;
