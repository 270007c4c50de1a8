//! The published state of engines: counters, histograms, timelines, and how to find them.
//!
//! An engine writes into files of its own folder, its [`RuntimeDir`]. Every process that may read the folder can read
//! them, also after a crash, without asking the engine. The engine does not wait for readers: each cell has one writer.
//!
//! | module | what it holds |
//! |---|---|
//! | `counter` | names and descriptions of counters |
//! | `declared` | the counters that a type of app declares |
//! | [`layout`] | the positions of all counters |
//! | `slab` | a generation of counters, in memory or in a file |
//! | `classes`, `histogram` | histograms of times |
//! | `totals` | the counts of apps and links, by position |
//! | `snapshot` | all counters at one time, by name |
//! | [`timeline`] | the engine's recent history, event by event |
//! | [`listing`] | a breath, explained |
//! | `trace` | the data of traces and taps |
//! | [`look_ahead`] | trials of look-ahead: which apps wait for the data of their packets |
//! | `succession` | the transfer of counters from one configuration to the next |
//! | `report` | reports of a running engine |
//! | `usual` | the usual duration of calls, and outliers |
//! | `slow` | slow breaths |
//! | `watchdog` | detects slow breaths, and names the app |
//! | `runtime_dir` | the folders of engines, running and crashed |
//! | `cells` | memory with one writer and many readers |

mod cells;
mod classes;
mod counter;
mod declared;
mod histogram;
pub mod layout;
pub mod listing;
pub mod look_ahead;
mod report;
mod runtime_dir;
mod slab;
mod slow;
mod snapshot;
mod succession;
pub mod timeline;
mod totals;
mod trace;
mod usual;
mod watchdog;

pub use counter::{Counter, PROGRESS, PROGRESS_TOTAL};
#[doc(hidden)]
pub use declared::joined_counters;
pub use declared::{Count, CountTable, Counters, DropReason, Gauge};
pub use histogram::{Histogram, record};
pub use layout::Activity;
pub use report::{AppStatus, ObjectStatus, Reloaded};
pub use runtime_dir::{EventFiles, EventStamp, NameLock, POST_MORTEMS, RuntimeDir, RuntimeDirError, SearchPath};
pub use slab::{
    AppDescription, AppEntry, CROSSING, CROSSING_SIDES, CounterCells, CounterEntry, CrossingEntry, CurrentCall,
    Directory, LinkDescription, LinkEntry, Liveness, ReadError, Slab, TypeEntry, WorkerEntry, counter_help, drop_help,
};
pub use slow::{SlowBreath, SlowBreaths};
pub use snapshot::{AppCounts, Gone, Imbalance, LinkCounts, Observer, Reading, Snapshot, WorkerCounts};
pub use succession::Succession;
pub use totals::{AppTotals, Figure, LinkTotals, Totals, engine_count, sampled_events};
pub use trace::{Hop, HopKind, MAX_TRACED, TapRecord, TraceOrder};
pub use usual::{TimedCall, Usual};
pub use watchdog::{Pace, Watchdog};
