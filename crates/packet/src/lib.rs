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
mod mark;
mod offload;
mod packet;
mod vector;

pub use bellows_pool::{
    BufferUse, DATA_ROOM, HEADROOM, LARGE_DATA_ROOM, LINE, LargeShare, buffer_use, sort_free_buffers,
};
pub use mark::{Mark, MarkedEvent, MarkedEventKind, attribute_drops, marked_events, take_marked_events};
pub use offload::Offload;
pub use packet::{Burst, Meta, Packet, prefetch, prefetch_to_write};
pub use vector::{CAPACITY, Drain, Template, Vector, VectorMemory, free_all, push_copies, push_filled};

/// The process's pool of packet buffers.
pub mod pool {
    pub use bellows_pool::{Config, Error, Usage, config, ensure, init, pages, usage};
}

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
