//! Counts events of the processor and the kernel: cycles, instructions, branch and cache misses, page faults.
//!
//! A [`Group`] counts some [`Event`]s for the calling thread. Readings are cheap enough to be taken around a function
//! call: with the instruction RDPMC if the kernel allows it, else with one system call for four events.
//!
//! ```
//! use bellows_pmu::{Event, Group};
//!
//! let group = Group::open(&[Event::PageFaults, Event::TaskClock])?;
//! let before = group.reading();
//! std::hint::black_box(vec![1u8; 1 << 20]);
//! let spent = group.reading().since(&before);
//! println!("{:?} page faults in {:?} ns", spent.get(0), spent.get(1));
//! # Ok::<(), bellows_pmu::OpenError>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `event` | [`Event`]: the names and meanings of events |
//! | `table` | the processors' numbers of events for which the kernel has no name |
//! | `probe` | [`Pmu`]: whether there are counters, or why not ([`NoPmu`]) |
//! | `group` | [`Group`], [`Reading`], [`Counts`] |
//! | `thread` | [`ThreadEvents`]: counting on any thread that asks |
//! | `sampler`, `record` | [`Sampler`]: samples of a thread's execution, also in another process |
//!
//! # Are there any counters?
//!
//! [`Pmu::probe`] checks in this order, and stops at the first no: does the kernel list the processor's counters in
//! `/sys/bus/event_source/devices`? Does `perf_event_open` open one? Does its page allow RDPMC? Only then is that
//! instruction used: without permission it kills the process. Most virtual machines have no counters; the kernel's own
//! events, such as page faults, can be counted anyway, with the same types.
//!
//! # More events than counters
//!
//! A processor has four to eight counters for each thread. For more events, the kernel lets groups of four take turns,
//! and [`Counts::get`] extrapolates from the time in which an event was counted. An interval shorter than such a turn
//! (some milliseconds) was counted either completely or not at all: add up the [`Counts`] of many intervals before you
//! use them.
//!
//! # Sources
//!
//! `perf_event_open(2)`; for the numbers see `table`.

#![forbid(unsafe_code)]

mod event;
mod group;
mod probe;
mod record;
mod sampler;
mod table;
mod thread;

pub use bellows_sys::perf::CounterSample;
pub use event::{Event, UnknownEvent};
pub use group::{Counts, Group, MAX_EVENTS, OpenError, Reading};
pub use probe::{NoPmu, Pmu};
pub use record::{Moment, Stack};
pub use sampler::{SampleError, Sampler};
pub use thread::ThreadEvents;
