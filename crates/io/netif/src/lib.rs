//! The kernel's network interfaces, and sockets to other processes, as queues of packets.
//!
//! A port has a control thread ([`Keeper`]) that opens its queues, watches what they depend on, and opens them anew when
//! they are gone. The engine borrows the queues and never waits.
#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod advertisements;
pub mod arp_guard;
mod finder;
pub mod interface;
mod joint;
mod keeper;
pub mod memif;
pub mod netdev;
mod netlink;
mod queue;
pub mod raw;
mod release;
pub mod route;
pub mod status;
pub mod tap;
pub mod unix;
mod virtio_header;
pub mod xdp;

pub use finder::InterfaceName;
pub use keeper::{Keeper, OpenError, PortSource, Queues, Start, Started};
pub use queue::{Queue, QueueCounts, QueueError};
