//! Fields of headers, loaded and stored as words.

/// Bytes of an Ethernet header, which is in front of the IP header between the apps of a router.
pub(crate) const ETHERNET: usize = 14;

/// The first byte in the lowest bits. Hot.
#[inline(always)]
pub(crate) fn load_u64<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| header[at + index]))
}

/// The first byte in the lowest bits. Hot.
#[inline(always)]
pub(crate) fn load_u32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| header[at + index]))
}

/// Stores a word whose first byte is in the lowest bits. Hot.
#[inline(always)]
pub(crate) fn store<const N: usize, const W: usize>(header: &mut [u8; N], at: usize, word: [u8; W]) {
    for (index, byte) in word.into_iter().enumerate() {
        header[at + index] = byte;
    }
}
