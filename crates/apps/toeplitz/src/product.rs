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
    use crate::Input;

    /// 16 bytes of an input, from a place on.
    #[target_feature(enable = "avx2")]
    fn load(input: &Input, at: usize) -> __m128i {
        let bytes = &input.bytes[at..at + 16];
        // SAFETY: these are 16 readable bytes.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    /// A window for each half of a register.
    #[target_feature(enable = "avx2")]
    fn register([low, high]: [u64; 2]) -> __m128i {
        _mm_set_epi64x(high.cast_signed(), low.cast_signed())
    }

    /// The sum of the products of two words, each in its half of a register, with their windows.
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn products(words: __m128i, windows: __m128i) -> __m128i {
        _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(words, windows), _mm_clmulepi64_si128::<0x11>(words, windows))
    }

    /// Hot.
    #[target_feature(enable = "avx2,pclmulqdq")]
    pub(crate) fn hash(windows: &Windows, inputs: &[Input], hashes: &mut [u32]) {
        // Each takes two words out of four, the first byte of a word to its highest, with zeros above.
        let first = _mm_setr_epi8(3, 2, 1, 0, -1, -1, -1, -1, 7, 6, 5, 4, -1, -1, -1, -1);
        let second = _mm_setr_epi8(11, 10, 9, 8, -1, -1, -1, -1, 15, 14, 13, 12, -1, -1, -1, -1);
        // Only the last word.
        let last = _mm_setr_epi8(15, 14, 13, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
        let [one, two, three, four, five] = windows.map(|pair| register(pair));
        for (input, hash) in inputs.iter().zip(hashes) {
            let start = load(input, 0);
            let (head, tail) = (_mm_shuffle_epi8(start, first), _mm_shuffle_epi8(start, second));
            // Of a short input the third word is the last.
            let mut sum = _mm_xor_si128(products(head, one), _mm_clmulepi64_si128::<0x00>(tail, two));
            if input.is_long {
                let middle = load(input, 16);
                let third = products(_mm_shuffle_epi8(middle, first), three);
                let fourth = products(_mm_shuffle_epi8(middle, second), four);
                let fifth = _mm_clmulepi64_si128::<0x00>(_mm_shuffle_epi8(load(input, 20), last), five);
                let more = _mm_xor_si128(_mm_clmulepi64_si128::<0x11>(tail, two), _mm_xor_si128(third, fourth));
                sum = _mm_xor_si128(sum, _mm_xor_si128(more, fifth));
            }
            *hash = ((_mm_cvtsi128_si64(sum).cast_unsigned() >> 31) as u32).reverse_bits();
        }
    }
}
