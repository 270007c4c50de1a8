//! Network cards and virtual devices of DPDK as queues of packets.
#![doc = include_str!("../README.md")]

mod device;
mod environment;
#[cfg(test)]
mod fake;
mod library;
mod memory;
mod queue;
mod source;
mod table;

pub use library::{MissingLibrary, find_library};
pub use queue::{DpdkBell, DpdkQueue};
pub use source::{DpdkConfig, DpdkSource};
