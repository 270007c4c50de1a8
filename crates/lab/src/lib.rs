//! What measures: benchmarks, the statistics that make their figures honest, and the report in which they appear.
//!
//! | module | what it holds |
//! |---|---|
//! | [`stats`] | medians with confidence intervals that assume nothing about the distribution |
//! | [`report`] | results as data: one shape for every benchmark, as text and as JSON |
//! | [`processes`] | the same measurement in many fresh processes, in alternation |
//! | [`engine`] | `bench engine`: what the engine costs a packet |
//! | [`breathsim`] | `breathsim`: what a breath costs, idle and busy, under each schedule |
#![forbid(unsafe_code)]

pub mod breathsim;
pub mod engine;
pub mod processes;
pub mod report;
pub mod stats;
