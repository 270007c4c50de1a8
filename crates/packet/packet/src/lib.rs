//! Packets, the pool that their buffers come from, and the vectors in which they travel.
//!
//! - [`Packet`] is a 16-byte handle that owns one buffer: start and length of the data, flags, and a tag.
//! - [`pool`] is the packet pool: one reservation of buffers per process. Each thread caches free buffers in
//!   *magazines*, which it trades with other threads through a global depot.
//! - [`Loans`] are buffers that the kernel receives frames in and sends packets from.
//! - [`SharedLoans`] are the same of drivers inside the process.
//! - [`Vector`] is an array of up to 1,024 packets. A link holds one vector.
//!
//! Vectors and magazines lie in the [arena](bellows_arena), at places that are the same in every process that does the
//! same.
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
//! The metadata line holds the [`Meta`], the [`Offload`] and the [`Mark`] of a packet. It is touched only for packets
//! that have one of them. There are two classes of buffers: 2,048 bytes of data for most packets, and 73,600 bytes for
//! jumbo frames and 64 KiB segments. The length of a buffer is an odd number of cache lines, so that packets spread
//! over the sets of every cache.

mod bulk;
mod frames;
mod loans;
mod mark;
mod offload;
mod packet;
mod shared_loans;
mod vector;

pub use bellows_pool::{
    BufferUse, DATA_ROOM, HEADROOM, LARGE_DATA_ROOM, LINE, LargeShare, buffer_use, return_free_buffers,
    return_free_buffers_to_sleep, share_free_buffers, sort_free_buffers,
};
pub use frames::{Contents, Frames, FramesMut, Handles, Start};
pub use loans::{Loans, Positions};
pub use mark::{Mark, MarkedEvent, MarkedEventKind, attribute_drops, marked_events, take_marked_events};
pub use offload::Offload;
pub use packet::{Burst, Meta, Packet, handle, narrow_all, prepend_all, trim_front_all};
pub use shared_loans::{ReceivedFrame, SharedLoans};
pub use vector::{CAPACITY, Drain, Template, Vector, VectorMemory, free_all, push_copies, push_filled};

/// The packet pool of the process.
pub mod pool {
    pub use bellows_pool::{Area, Config, Error, MIN_PACKETS, Usage, area, config, ensure, init, pages, usage};
}

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
