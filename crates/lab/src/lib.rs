//! The benchmarks, their measurement methods, and their report.
//!
//! | module | what it holds |
//! |---|---|
//! | [`report`] | the results of every benchmark, as text and as JSON |
//! | [`against`] | compares two builds of the program, pair by pair |
//! | [`mod@bench`] | the trait of a benchmark, its common options, and how it is run |
//! | [`benchmarks`] | the benchmarks, one file or folder each |
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
//! | [`histogram`] | histograms of times |
//! | `targets` | bounds for figures, and whether these hold |
//! | `programs` | other programs that take turns |
//! | `networks`, `timing` | the networks that benchmarks run, and timing helpers |
//!
//! # The benchmarks
//!
//! | command | what it measures |
//! |---|---|
//! | `bellows bench apps` | the cost per packet of every app, from each level of the caches |
//! | `bellows bench blit` | the speed of batched packet copies, compared with memcpy |
//! | `bellows bench crossing` | the cost of passing packets from one thread to another |
//! | `bellows bench engine` | the engine's cost per packet |
//! | `bellows bench esp` | what the app esp costs beside its cipher alone |
//! | `bellows bench fib` | look-ups of next hops, and changes of routes |
//! | `bellows bench filter` | what a filter costs a packet, and what compiling it costs |
//! | `bellows bench floods` | what a router pays for packets beyond its limits |
//! | `bellows bench history` | whether the engine's speed depends on earlier traffic |
//! | `bellows bench l2vpn` | whether the cost of an L2 VPN depends on earlier traffic |
//! | `bellows bench neighbours` | the effect on a guest of another guest that attacks the engine |
//! | `bellows bench notify` | the cost of notifying a virtual machine, and of faults in its memory |
//! | `bellows bench prefetch` | what look-ahead is worth to the nodes of a router |
//! | `bellows bench reload` | how long a reload takes, and how long packets wait for it |
//! | `bellows bench router` | what the nodes of a router cost a packet |
//! | `bellows bench scrape` | whether scraped counters slow the engine |
//! | `bellows bench vring` | the cost per packet of a virtio-net ring, by its options |
//! | `bellows bench workers` | what two workers carry, compared with two processes |
//! | `bellows appbench` | an app's cost per packet, and its causes |
//! | `bellows breathsim` | the cost of a breath under each schedule, idle and busy |
#![forbid(unsafe_code)]

pub mod against;
pub mod audience;
pub mod bench;
pub mod benchmarks;
pub mod beside;
pub mod callgrind;
pub mod histogram;
pub mod machine;
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
