//! The pool of packet buffers.
//!
//! The crate `bellows-packet` makes packets of these buffers; no other crate takes or frees them.
//!
//! A crate of its own because its `unsafe` code then relies on private fields of its own only, and is tested alone:
//! with many threads, also under a race detector.
//!
//! | module | contents |
//! |---|---|
//! | `accounts` | quotas that limit the use of large buffers |
//! | `class` | buffers of one size |
//! | `lent` | buffers that the kernel receives into and sends from |
//! | `magazine` | stacks of free buffers, which threads trade with the pool |
//! | `parts` | the parts of the pool on the memory nodes, each with its depot |
//! | `pool` | the process's one reservation of buffers |
//! | `shared_lent` | buffers that drivers in the process have |
//! | `share` | a port's share of the large buffers |
//! | `thread` | each thread's cache of free buffers |

mod accounts;
mod class;
mod lent;
mod lock;
mod magazine;
mod parts;
mod pool;
mod share;
mod shared_lent;
mod thread;

pub use accounts::{ANYONE, AccountNumber};
pub use bellows_sys::cache::LINE;
pub use lent::Lent;
pub use magazine::BufferUse;
pub use pool::{
    Area, Config, Error, MIN_PACKETS, Usage, area, config, ensure, init, owner_of, pages, start_of, starts_of, usage,
};
pub use share::LargeShare;
pub use shared_lent::SharedLent;
pub use thread::{
    Buffers, buffer_use, free, free_many, return_free_buffers, return_free_buffers_to_sleep, share_free_buffers,
    sort_free_buffers, take_large, with_free_buffers,
};

/// Bytes in front of a new packet's data, for headers that are added later.
pub const HEADROOM: usize = 128;

/// Bytes of data in every ordinary buffer.
pub const DATA_ROOM: usize = 2_048;

/// Bytes of data in a large buffer: the maximum packet length.
pub const LARGE_DATA_ROOM: usize = LARGE_STRIDE - DATA_OFFSET;

/// Distance from one large buffer to the next: an odd number of lines.
const LARGE_STRIDE: usize = 1_153 * LINE;

/// Offset of a new packet's data in its buffer: one line of metadata and the headroom.
pub const DATA_OFFSET: usize = LINE + HEADROOM;
