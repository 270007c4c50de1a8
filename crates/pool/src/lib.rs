//! The pool of buffers that packets lie in.
//!
//! The crate `bellows-packet` makes packets of these buffers; nobody else takes or gives them.
//!
//! | module | what it holds |
//! |---|---|
//! | `accounts` | who may have how many of the large buffers |
//! | `magazine` | stacks of free buffers, which threads trade with the pool |
//! | `pool` | the process's one reservation of buffers, and its depot |
//! | `share` | a port's share of the large buffers |
//! | `thread` | each thread's cache of free buffers |

mod accounts;
mod magazine;
mod pool;
mod share;
mod thread;

pub use accounts::{ANYONE, AccountNumber};
pub use bellows_sys::cache::LINE;
pub use magazine::BufferUse;
pub use pool::{Config, Error, Usage, config, ensure, init, owner_of, pages, start_of, usage};
pub use share::LargeShare;
pub use thread::{Buffers, buffer_use, free, free_many, sort_free_buffers, take_large, with_free_buffers};

/// Bytes in front of a new packet's data, for headers that are put on later.
pub const HEADROOM: usize = 128;

/// Bytes of data that fit into every ordinary buffer.
pub const DATA_ROOM: usize = 2_048;

/// Bytes of data that fit into a large buffer: the longest packet there can be.
pub const LARGE_DATA_ROOM: usize = LARGE_STRIDE - DATA_OFFSET;

/// Distance from one large buffer to the next: an odd number of lines.
const LARGE_STRIDE: usize = 1_153 * LINE;

/// From the start of a buffer to the data of a new packet: one line of metadata and the headroom.
pub const DATA_OFFSET: usize = LINE + HEADROOM;
