//! What measures: benchmarks, the statistics that make their figures honest, and the report in which they appear.
//!
//! | module | what it holds |
//! |---|---|
//! | [`report`] | results as data: one shape for every benchmark, as text and as JSON |
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
//! | [`engine`] | `bench engine`: what the engine costs a packet, and a breath in which nothing moves |
//! | [`appbench`] | `appbench`: what one app costs a packet, and why |
//! | [`apps`] | `bench apps`: what every app costs a packet |
//! | [`blit`] | `bench blit`: how fast copies are made, against `memcpy` |
//! | [`breathsim`] | `breathsim`: what a breath costs, idle and busy, under each schedule |
//! | [`history`] | `bench history`: whether that depends on what the engine met before |
//! | [`neighbours`] | `bench neighbours`: what a guest notices of another one that attacks the engine |
//! | [`notify`] | `bench notify`: what it costs to notify another process, and to touch its memory first |
//! | [`reload`] | `bench reload`: how long a network that is swapped in keeps packets waiting |
//! | [`vring`] | `bench vring`: what a ring of a virtio-net device costs a packet, with every combination of options |
//! | `networks`, `timing` | what the benchmarks run, and how they take the time |
#![forbid(unsafe_code)]

pub mod appbench;
pub mod apps;
pub mod audience;
pub mod beside;
pub mod blit;
pub mod breathsim;
pub mod callgrind;
pub mod engine;
pub mod histogram;
pub mod history;
pub mod machine;
pub mod neighbours;
mod networks;
pub mod notify;
pub mod processes;
pub mod reload;
pub mod report;
pub mod residence;
pub mod slices;
pub mod supply;
mod timing;
pub mod traffic;
pub mod turns;
pub mod vring;
pub mod workers;
