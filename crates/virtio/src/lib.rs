//! virtio-net: rings between packets and a guest's memory, and the vhost-user socket by which the two sides find each other.
//!
//! - [`Features`]: the options that a driver and a device negotiate.
//! - [`Memory`]: the memory that the driver's side shares, by its own addresses.
//! - [`driver`]: the driver's side of a device: rings and buffers in memory of its own.
//! - [`ring`]: the device's side of one ring; a loop of machine code of its own for each combination of options.
//! - [`vhost`]: the protocol by which both sides find each other, on a thread of its own.
//! - [`log`]: which pages the device has written; [`inflight`]: where it was when its process ended.
//!
//! Directions are the driver's, as in the specification: *receive* queues (0, 2, …) bring packets to the driver, *transmit*
//! queues (1, 3, …) take them from it. "Specification" is virtio 1.2 (OASIS, 2022) throughout.

pub mod driver;
mod features;
pub mod inflight;
pub mod log;
mod memory;
mod named;
mod offload;
mod position;
pub mod ring;
pub mod vhost;

pub use features::{Conflict, Features};
pub use memory::{MapError, Memory, Region, RegionSpec};
