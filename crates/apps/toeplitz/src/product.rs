//! The hash by carry-less multiplication.
//!
//! Let bit i of an input word count from its highest bit, and bit t of the key from the position of the word. The hash
//! is a sum over all i of the input's bit i times the key's bits i to i + 31: bit j of the hash, counted from its
//! highest, is the sum of input bit i times key bit i + j. In the word, bit i is the coefficient of x^(31 - i); in the
//! window, bit t of the key that of x^t. In their product, input bit i and key bit i + j meet at x^(31 + j). So the
//! hash lies in bits 31 to 62 of the product, the highest bit first.

use crate::{MIN_KEY, WORDS};

/// For each word of an input, the 63 bits of the key from the word's position on, the first in the lowest bit. Two words
/// share a register; the last one is alone.
pub(crate) type Windows = [[u64; 2]; WORDS.div_ceil(2)];

/// The windows of a key.
pub(crate) fn windows(key: &[u8; MIN_KEY]) -> Windows {
    let mut windows = Windows::default();
    for (window, bytes) in windows.as_flattened_mut().iter_mut().zip(key.windows(8).step_by(4)) {
        let bits = bytes.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        *window = bits.reverse_bits() & (u64::MAX >> 1);
    }
    windows
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::hash;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Windows;

    /// A window for each half of a register.
    #[target_feature(enable = "avx2")]
    fn register([low, high]: [u64; 2]) -> __m128i {
        _mm_set_epi64x(high.cast_signed(), low.cast_signed())
    }

    /// Hot.
    #[target_feature(enable = "avx2,pclmulqdq")]
    pub(crate) fn hash<'i, const LEN: usize>(
        windows: &Windows,
        inputs: impl Iterator<Item = &'i [u8; LEN]>,
        hashes: &mut [u32],
    ) {
        // Two words, the first byte of each to its highest, with zeros above.
        let order = _mm_setr_epi8(3, 2, 1, 0, -1, -1, -1, -1, 7, 6, 5, 4, -1, -1, -1, -1);
        let windows = windows.map(|pair| register(pair));
        for (input, hash) in inputs.zip(&mut *hashes) {
            let (pairs, last) = input.as_chunks::<8>();
            let mut sum = _mm_setzero_si128();
            for (pair, &window) in pairs.iter().zip(&windows) {
                let words = _mm_shuffle_epi8(_mm_cvtsi64_si128(i64::from_le_bytes(*pair)), order);
                sum = _mm_xor_si128(sum, _mm_clmulepi64_si128::<0x00>(words, window));
                sum = _mm_xor_si128(sum, _mm_clmulepi64_si128::<0x11>(words, window));
            }
            if let (Some(&last), Some(&window)) = (last.first_chunk(), windows.get(pairs.len())) {
                let word = _mm_shuffle_epi8(_mm_cvtsi32_si128(i32::from_le_bytes(last)), order);
                sum = _mm_xor_si128(sum, _mm_clmulepi64_si128::<0x00>(word, window));
            }
            *hash = (_mm_cvtsi128_si64(sum).cast_unsigned() >> 31) as u32;
        }
        // In a loop of its own, which is compiled to operations on many hashes.
        hashes.iter_mut().for_each(|hash| *hash = hash.reverse_bits());
    }
}
