//! New packets.

use bellows_pool::{Buffers, DATA_ROOM};

use super::{Packet, pointer};

/// New packets, empty, each in a buffer of its own; made by [`Packet::allocate_burst`].
///
/// Ends early when the pool runs out: [`Burst::missing`] tells how many were not to be had.
/// Dropping it puts the buffers that were not used back.
pub struct Burst {
    buffers: Buffers,
}

impl Burst {
    #[inline]
    pub(super) fn new(wanted: usize) -> Burst {
        Burst { buffers: Buffers::new(wanted) }
    }

    /// How many of the packets asked for have not been delivered: after the end, those that the pool did not have.
    #[inline]
    pub fn missing(&self) -> usize {
        self.buffers.missing()
    }

    /// The next packet, of this length; its bytes are whatever the buffer held before. `None` also if no ordinary buffer is so large.
    #[inline(always)]
    pub fn next_of(&mut self, length: usize) -> Option<Packet> {
        if length > DATA_ROOM {
            return None;
        }
        let address = self.buffers.take()?;
        Some(Packet::from_free_buffer(pointer(address), length as u64))
    }
}

impl Iterator for Burst {
    type Item = Packet;

    #[inline(always)]
    fn next(&mut self) -> Option<Packet> {
        let address = self.buffers.take()?;
        Some(Packet::from_free_buffer(pointer(address), 0))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.missing()))
    }
}
