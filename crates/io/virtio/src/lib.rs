//! virtio-net: rings between packets and a guest's memory, and the vhost-user protocol that connects the two sides.
//!
//! - [`Features`]: the options that a driver and a device negotiate.
//! - [`Memory`]: the memory that the driver's side shares, by guest address.
//! - [`driver`]: the driver's side of a device: rings and buffers in its own memory.
//! - [`ring`]: the device's side of one ring; a separate compiled loop for each combination of options.
//! - [`vhost`]: the vhost-user protocol, on its own thread.
//! - [`log`]: the pages that the device has written; [`inflight`]: its position when its process ended.
//!
//! Directions are the driver's, as in the specification: *receive* queues (0, 2, …) bring packets to the driver,
//! *transmit* queues (1, 3, …) take them from it. "Specification" means virtio 1.2 (OASIS, 2022) throughout.

pub mod driver;
mod features;
pub mod inflight;
pub mod log;
mod memory;
mod named;
mod ports;
mod position;
pub mod ring;
pub mod vhost;

pub use features::{Conflict, Features};
pub use memory::{MapError, Memory, Region, RegionSpec};
