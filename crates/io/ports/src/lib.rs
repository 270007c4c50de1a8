//! What ports to the outside have in common, whether on the other side is a virtual machine, another process or the
//! kernel.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod offload;
mod queue;
mod queue_set;

pub use offload::Accepted;
pub use queue::{QueueBell, Rejection, SendQueue, Taken};
pub use queue_set::QueueSet;
