//! Bursts: several packets allocated together.

use bellows_pool::{Buffers, DATA_ROOM};

use super::{Packet, pointer};

/// New empty packets, each in its own buffer; made by [`Packet::allocate_burst`].
///
/// Ends early when the pool runs out: [`Burst::missing`] then returns the number of packets that could not be
/// allocated. Dropping the burst returns unused buffers to the pool.
pub struct Burst {
    buffers: Buffers,
}

impl Burst {
    #[inline]
    pub(super) fn new(wanted: usize) -> Burst {
        Burst { buffers: Buffers::new(wanted) }
    }

    /// The number of packets not delivered yet. At the end, the number that the pool did not have.
    #[inline]
    pub fn missing(&self) -> usize {
        self.buffers.missing()
    }

    /// The next packet, with this length. Its bytes hold whatever the buffer held before. `None` also if the length
    /// exceeds an ordinary buffer.
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
