//! What the processor and the kernel count: cycles, instructions, branch and cache misses, page faults.
//!
//! A [`Group`] counts some [`Event`]s for the calling thread. Readings are cheap enough to be taken around a function's
//! call: with the instruction RDPMC where the kernel allows it, else with one system call for four events.
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
//! | module | what it does |
//! |---|---|
//! | `event` | [`Event`]: names, and what each counts |
//! | `table` | the numbers of events that no kernel has a name for, by processor |
//! | `probe` | [`Pmu`]: whether there are counters, or why not ([`NoPmu`]) |
//! | `group` | [`Group`], [`Reading`], [`Counts`] |
//! | `thread` | [`ThreadEvents`]: counting on whatever thread asks |
//! | `sampler`, `record` | [`Sampler`]: what a thread executes, also one of another process |
//!
//! # Is there anything to count with?
//!
//! [`Pmu::probe`] asks in this order, and goes on only after a yes: does the kernel list the processor's counters in
//! `/sys/bus/event_source/devices`? Does `perf_event_open` give one? Does its page say that RDPMC is allowed? Only then is
//! that instruction used: without permission it ends the process. Most virtual machines have no counters; the kernel's own
//! events, such as page faults, can be counted all the same, with the same types.
//!
//! # More events than counters
//!
//! A processor has four to eight counters for each thread. If more is wanted, the kernel lets groups of four take turns, and
//! [`Counts::get`] extrapolates from the time in which an event was counted. What lasts less than such a turn (some
//! milliseconds) was counted either in full or not at all: add up the [`Counts`] of many intervals before you look at them.
//!
//! # Sources
//!
//! `perf_event_open(2)`; those of the numbers are in `table`.

#![forbid(unsafe_code)]

mod event;
mod group;
mod probe;
mod record;
mod sampler;
mod table;
mod thread;

pub use bellows_sys::perf::Sample;
pub use event::{Event, UnknownEvent};
pub use group::{Counts, Group, MAX_EVENTS, OpenError, Reading};
pub use probe::{NoPmu, Pmu};
pub use record::{Moment, Stack};
pub use sampler::{SampleError, Sampler};
pub use thread::ThreadEvents;
