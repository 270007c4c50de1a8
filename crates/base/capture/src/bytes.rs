//! Numbers in either byte order.

use crate::format::Endianness;

impl Endianness {
    // A slice of constant length becomes one load; into an array of known size, without a bounds check.
    #[inline(always)]
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let value = u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap_or_default());
        if self == Endianness::Big { value.swap_bytes() } else { value }
    }

    #[inline(always)]
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let value = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        if self == Endianness::Big { value.swap_bytes() } else { value }
    }

    #[inline(always)]
    pub(crate) fn put_u16(self, value: u16) -> [u8; 2] {
        if self == Endianness::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    #[inline(always)]
    pub(crate) fn put_u32(self, value: u32) -> [u8; 4] {
        if self == Endianness::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
}
