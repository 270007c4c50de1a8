//! The hash by carry-less multiplication.
//!
//! Let bit i of an input word count from its highest bit, and bit t of the key from the position of the word. The hash
//! is a sum over all i of the input's bit i times the key's bits i to i + 31: bit j of the hash, counted from its
//! highest, is the sum of input bit i times key bit i + j. In the word, bit i is the coefficient of x^(31 - i); in the
//! window, bit t of the key that of x^t. In their product, input bit i and key bit i + j meet at x^(31 + j). So the
//! hash lies in bits 31 to 62 of the product, the highest bit first.

use crate::{MAX_WORDS, MIN_KEY};

/// For each word of an input, the 63 bits of the key from the word's position on, the first in the lowest bit.
pub(crate) fn windows(key: &[u8; MIN_KEY]) -> [u64; MAX_WORDS] {
    let mut windows = [0; MAX_WORDS];
    for (window, bytes) in windows.iter_mut().zip(key.windows(8).step_by(4)) {
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

    use crate::{Input, MAX_WORDS, SHORT};

    /// The sum of the products of the words with their windows: the low halves.
    #[target_feature(enable = "pclmulqdq")]
    fn products(words: &[u32], windows: &[u64]) -> u64 {
        let mut sum = _mm_setzero_si128();
        for (&word, &window) in words.iter().zip(windows) {
            let factors = (_mm_cvtsi64_si128(i64::from(word)), _mm_cvtsi64_si128(window.cast_signed()));
            sum = _mm_xor_si128(sum, _mm_clmulepi64_si128::<0>(factors.0, factors.1));
        }
        _mm_cvtsi128_si64(sum).cast_unsigned()
    }

    /// Hot.
    #[target_feature(enable = "pclmulqdq")]
    pub(crate) fn hash(windows: &[u64; MAX_WORDS], inputs: &[Input], hashes: &mut [u32]) {
        for (input, hash) in inputs.iter().zip(hashes) {
            let mut sum = products(&input.words[..SHORT], &windows[..SHORT]);
            if input.is_long {
                sum ^= products(&input.words[SHORT..], &windows[SHORT..]);
            }
            *hash = ((sum >> 31) as u32).reverse_bits();
        }
    }
}
