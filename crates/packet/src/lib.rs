//! Packets, the pool their buffers come from, and the vectors in which they travel.
//!
//! - [`Packet`] is a 16-byte handle that owns one buffer: where the data starts, how long it is, flags, a tag.
//! - [`pool`] is the process's one reservation of buffers; each thread keeps a cache of free ones, in
//!   *magazines* that it trades with the others through a global depot.
//! - [`Vector`] is an array of up to 1,024 packets: what a link holds.
//!
//! Vectors and magazines lie in the [arena](bellows_arena), at places that are the same in each process that does the same.
//!
//! # A buffer
//!
//! ```text
//!  0          64                 192                                     2,240
//!  ┌──────────┬──────────────────┬────────────────────────────────────────┐
//!  │ metadata │ headroom         │ data                                   │
//!  └──────────┴──────────────────┴────────────────────────────────────────┘
//! ```
//!
//! The metadata line ([`Meta`], the [`Offload`], and the [`Mark`] of a packet that somebody follows) is touched only for packets
//! that carry some. Two classes of buffers exist:
//! 2,048 bytes of data, and 73,600 for jumbo frames and 64 KiB segments. The length of a buffer is an odd
//! number of cache lines, so that packets spread over the sets of every cache by themselves.

mod bulk;
mod cache;
mod evict;
mod mark;
mod offload;
mod packet;
pub mod pool;
mod share;
mod vector;

pub use bellows_sys::cache::LINE;
pub use bulk::instruction_set;
pub use cache::{BufferUse, Fresh, Template, buffer_use, free_all, push_copies, push_filled, tidy};
pub use evict::evict;
pub use mark::{Fate, Mark, Passage, passages, settle_passages, take_passages};
pub use offload::Offload;
pub use packet::{Meta, Packet, prefetch, prefetch_to_write};
pub use share::LargeShare;
pub use vector::{CAPACITY, Drain, Memory, Vector};

/// Bytes in front of a new packet's data, for headers that are put on later.
pub const HEADROOM: usize = 128;

/// Bytes of data that fit into every ordinary buffer.
pub const ROOM: usize = 2_048;

/// Bytes of data that fit into a large buffer: the longest packet there can be.
pub const LARGEST_ROOM: usize = LARGE_STRIDE - DATA_OFFSET;

/// Distance from one large buffer to the next: an odd number of lines.
pub(crate) const LARGE_STRIDE: usize = 1_153 * LINE;

/// From the start of a buffer to the data of a new packet: one line of metadata and the headroom.
pub(crate) const DATA_OFFSET: usize = LINE + HEADROOM;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
