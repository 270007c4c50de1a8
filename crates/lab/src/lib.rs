//! What measures: benchmarks, the statistics that make their figures honest, and the report in which they appear.
//!
//! | module | what it holds |
//! |---|---|
//! | [`report`] | results as data: one shape for every benchmark, as text and as JSON |
//! | [`against`] | a benchmark by two builds of the program, pair by pair |
//! | [`mod@bench`] | what a benchmark is: its options, how it is run and what comes of it |
//! | [`benchmarks`] | the benchmarks, a file or folder each |
//! | [`audience`] | who waits for a benchmark |
//! | [`machine`] | on what a measurement was made |
//! | [`workers`] | fresh processes that measure, and the protocol between them and a benchmark |
//! | [`slices`] | what a turn times |
//! | [`processes`] | the same measurement in many fresh processes, in alternation |
//! | [`turns`] | processes that are compared: they live at the same time and take turns |
//! | [`beside`] | a program that disturbs a measurement, to see whether it holds |
//! | [`callgrind`] | what a part of the program does, counted by valgrind: for machines without a performance counter |
//! | [`residence`] | the levels of the memory hierarchy, told by how long a load takes |
//! | [`traffic`] | what packets a measurement sends |
//! | [`supply`] | packets that lie in a wanted level of the memory hierarchy when an app gets them |
//! | [`histogram`] | how times are spread |
//! | `networks`, `timing` | what the benchmarks run, and how they take the time |
//!
//! # The benchmarks
//!
//! | command | what it measures |
//! |---|---|
//! | `bellows bench apps` | what every app costs per packet, from each level of the caches |
//! | `bellows bench blit` | how fast batched packet copies are, against memcpy |
//! | `bellows bench engine` | what the engine costs per packet |
//! | `bellows bench history` | whether the engine's speed depends on earlier traffic |
//! | `bellows bench neighbours` | what a guest notices of another one that attacks the engine |
//! | `bellows bench notify` | what notifying a virtual machine costs, and touching its memory first |
//! | `bellows bench reload` | how long a reload takes, and how long packets wait for it |
//! | `bellows bench vring` | what a virtio-net ring costs per packet, for each of its options |
//! | `bellows appbench` | what an app costs per packet, and why |
//! | `bellows breathsim` | what a breath costs under each schedule, idle and busy |
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
pub mod report;
pub mod residence;
pub mod slices;
mod steal;
pub mod supply;
mod timing;
pub mod traffic;
pub mod turns;
pub mod workers;
