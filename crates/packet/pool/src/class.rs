//! Buffers of one size.

use crate::{DATA_OFFSET, LINE};

/// Buffers of one size, one after the other.
pub(crate) struct Class {
    pub(crate) first: usize,
    pub(crate) stride: usize,
    pub(crate) count: u32,
    /// `buffer = (line * reciprocal) >> 40`. Exact as long as `line * (stride in lines) < 2^40`, because the reciprocal
    /// is too large by less than the stride in lines; no overflow below 2^24 buffers.
    reciprocal: u64,
}

impl Class {
    const SHIFT: u32 = 40;

    /// Maximum number of buffers for which the reciprocal is exact and does not overflow.
    pub(crate) fn max_buffers(stride: usize) -> usize {
        ((1 << 28) / (stride / LINE)).min(1 << 23)
    }

    pub(crate) fn new(first: usize, stride: usize, count: usize) -> Class {
        let lines = (stride / LINE) as u64;
        Class { first, stride, count: count as u32, reciprocal: (1u64 << Class::SHIFT).div_ceil(lines) }
    }

    /// Address of a new packet's data in the buffer that `data` points into, or just behind: the data of a packet that
    /// filled its buffer and lost all its bytes at the front is just behind. (It is never at a buffer's start.)
    #[inline(always)]
    pub(crate) fn reset(&self, data: usize) -> usize {
        self.first + self.number(data) * self.stride + DATA_OFFSET
    }

    /// The number of the buffer that `data` points into, as for [`reset`](Class::reset).
    #[inline(always)]
    pub(crate) fn number(&self, data: usize) -> usize {
        let line = (data - self.first - 1) as u64 / LINE as u64;
        ((line * self.reciprocal) >> Class::SHIFT) as usize
    }

    /// Address of a new packet's data in the buffer with this index.
    pub(crate) fn data(&self, buffer: u32) -> usize {
        self.first + buffer as usize * self.stride + DATA_OFFSET
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The reciprocal finds the same buffer as a division, for every stride and address.
        #[test]
        fn the_reciprocal_divides_exactly(lines in 5usize..4096, at in any::<u64>()) {
            let class = Class::new(1 << 40, lines * LINE, 1);
            let offset = at as usize % (Class::max_buffers(class.stride) * class.stride);
            let expected = offset / class.stride * class.stride + class.first + DATA_OFFSET;
            // Each byte belongs to its buffer if it is the last byte of some data.
            let address = class.first + offset + 1;
            prop_assert_eq!(class.reset(address), expected);
        }
    }
}
