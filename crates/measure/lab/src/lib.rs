//! The benchmarks, their measurement methods, and their report.
//!
//! A crate of its own because `bellows` can be built without it (feature `measure`), and because it is large: a change
//! of a command does not compile the benchmarks again.
//!
//! | module | what it holds |
//! |---|---|
//! | [`report`] | the results of every benchmark, as text and as JSON |
//! | [`mod@bench`] | the trait of a benchmark, its common options, and how it is run |
//! | [`benchmarks`] | the benchmarks, one file or folder each |
//! | [`cases`] | what the figures of each benchmark are |
//! | [`audience`] | receives progress and partial reports from a benchmark |
//! | [`machine`] | the machine of a measurement |
//! | [`workers`] | fresh processes that measure, and their protocol |
//! | [`slices`] | the timed slices of a turn |
//! | [`processes`] | runs the same measurement in many fresh processes, in alternation |
//! | [`turns`] | compares processes that live at the same time and take turns |
//! | [`beside`] | a program that disturbs a measurement, to check the figures |
//! | [`callgrind`] | counts events with valgrind, for machines without performance counters |
//! | [`residence`] | measures the levels of the memory hierarchy by load latency |
//! | [`traffic`] | the packets that a measurement sends |
//! | [`supply`] | a source whose packets lie in a chosen level of the memory hierarchy |
//! | `targets` | bounds for figures, and whether these hold |
//! | `programs` | other programs that take turns |
//! | `networks`, `timing` | the networks that benchmarks run, and timing helpers |
#![forbid(unsafe_code)]

pub mod audience;
pub mod bench;
pub mod benchmarks;
pub mod beside;
pub mod callgrind;
pub mod cases;
pub mod machine;
mod named;
mod networks;
pub mod processes;
mod programs;
pub mod report;
pub mod residence;
pub mod slices;
mod steal;
pub mod supply;
mod targets;
mod timing;
pub mod traffic;
pub mod turns;
pub mod workers;
