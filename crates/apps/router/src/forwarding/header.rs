//! Fields of headers, loaded and stored as words.

pub(crate) use bellows_common::headers::ETHERNET;

/// Eight bytes, the first one in the lowest bits; 0 if they are not in the header. Hot.
#[inline(always)]
pub fn load_u64<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    header.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Four bytes, as [`load_u64`]. Hot.
#[inline(always)]
pub fn load_u32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    header.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Four words of four bytes, as [`load_u32`]. Hot.
#[inline(always)]
pub fn load_words<const N: usize>(header: &[u8; N], at: usize) -> [u32; 4] {
    let bytes = header.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; 16]);
    std::array::from_fn(|word| load_u32(&bytes, 4 * word))
}

/// Stores a word, unless it does not fit into the header. Hot.
#[inline(always)]
pub fn store<const N: usize, const W: usize>(header: &mut [u8; N], at: usize, word: [u8; W]) {
    if let Some(bytes) = header.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *bytes = word;
    }
}
