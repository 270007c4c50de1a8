//! pcap-filter expressions as machine code.

#![deny(unsafe_code)]

pub mod graph;
pub mod interpret;
#[cfg(target_arch = "x86_64")]
mod native;
pub mod plan;
pub mod program;

pub use program::{Matches, Program};
