//! A hash with a secret key, for tables whose keys strangers choose.
//!
//! Who does not know the secret cannot find keys that share a place in the table, even if it can tell which of the keys
//! that it has tried do. Keys have two or five words, such as the addresses and ports of IPv4 and IPv6, or one.
//!
//! On processors with instructions for AES the hash is CBC-MAC with AES-128, and round keys of their own for each of the
//! lengths: a pseudorandom function for inputs of one length (Bellare, Kilian and Rogaway, "The Security of the
//! Cipher Block Chaining Message Authentication Code", 2000). Ten rounds take as long as a dozen other instructions, and
//! those of several keys overlap. On other processors it is SipHash-1-3, that of the standard library.
//!
//! Keys of one word are Ethernet addresses, two of each frame, so their cipher has six rounds. The best attacks on six
//! need 2^32 chosen blocks and all bits of their ciphers (Ferguson et al., "Improved Cryptanalysis of Rijndael", 2000);
//! who fills a table sees none of them.

use std::hash::{BuildHasher, RandomState};

/// Rounds of AES-128, and keys of rounds (FIPS 197, section 5).
const ROUNDS: usize = 10;

/// Rounds for keys of one word.
const SHORT_ROUNDS: usize = 6;

/// The keys of all rounds, in the byte order of the machine's words.
type RoundKeys = [[u64; 2]; ROUNDS + 1];

/// A key of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyWords<'w> {
    /// A key of one word.
    One(&'w [u64; 1]),
    /// A key of two words.
    Two(&'w [u64; 2]),
    /// A key of five words.
    Five(&'w [u64; 5]),
}

/// A hash with a secret key.
///
/// ```
/// use bellows_sys::keyed_hash::{KeyWords, KeyedHash};
///
/// let (one, other) = (KeyedHash::new(), KeyedHash::new());
/// let hash = |by: &KeyedHash, words: [u64; 2]| by.hash(KeyWords::Two(&words));
/// assert_eq!(hash(&one, [1, 2]), hash(&one, [1, 2]));
/// assert_ne!(hash(&one, [1, 2]), hash(&other, [1, 2]), "each has its own secret");
/// ```
pub struct KeyedHash {
    one: RoundKeys,
    two: RoundKeys,
    five: RoundKeys,
    siphash: RandomState,
    has_aes: bool,
}

impl Default for KeyedHash {
    fn default() -> KeyedHash {
        KeyedHash::new()
    }
}

impl KeyedHash {
    /// A hash with a random secret.
    pub fn new() -> KeyedHash {
        let siphash = RandomState::new();
        // Pseudorandom, since nobody knows the key of the standard library's hash.
        let word = |length: u64, round: usize, half: u64| siphash.hash_one((length, round, half));
        let keys = |length| std::array::from_fn(|round| [0, 1].map(|half| word(length, round, half)));
        let (one, two, five) = (keys(1), keys(2), keys(5));
        KeyedHash { one, two, five, siphash, has_aes: has_aes() }
    }

    /// The hash of a key.
    pub fn hash(&self, words: KeyWords<'_>) -> u64 {
        let mut hash = 0;
        self.each(std::iter::once(words), |found| hash = found);
        hash
    }

    /// Hashes keys, and calls `found` with each hash in their order. Many at a time cost less each. Hot.
    #[inline(always)]
    pub fn each<'w>(&self, keys: impl Iterator<Item = KeyWords<'w>>, found: impl FnMut(u64)) {
        #[cfg(target_arch = "x86_64")]
        if self.has_aes {
            // SAFETY: the processor has AES and SSE 4.1.
            return unsafe { self.each_by_aes(keys, found) };
        }
        self.each_by_siphash(keys, found);
    }

    /// Hashes pairs of keys of one word, and calls `found` with each pair's hashes in their order. Hot.
    #[inline(always)]
    pub fn each_pair(&self, pairs: impl Iterator<Item = [u64; 2]>, mut found: impl FnMut([u64; 2])) {
        #[cfg(target_arch = "x86_64")]
        if self.has_aes {
            // SAFETY: the processor has AES and SSE 4.1.
            return unsafe { self.each_pair_by_aes(pairs, found) };
        }
        pairs.for_each(|pair| found(pair.map(|word| self.siphash.hash_one([word]))));
    }

    #[inline(always)]
    fn each_by_siphash<'w>(&self, keys: impl Iterator<Item = KeyWords<'w>>, found: impl FnMut(u64)) {
        let hash = |words| match words {
            KeyWords::One(words) => self.siphash.hash_one(words),
            KeyWords::Two(words) => self.siphash.hash_one(words),
            KeyWords::Five(words) => self.siphash.hash_one(words),
        };
        keys.map(hash).for_each(found);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,sse4.1")]
    fn each_by_aes<'w>(&self, keys: impl Iterator<Item = KeyWords<'w>>, mut found: impl FnMut(u64)) {
        use std::arch::x86_64::{_mm_cvtsi128_si64, _mm_xor_si128};

        let (one, two, five) = (aes::load(&self.one), aes::load(&self.two), aes::load(&self.five));
        for words in keys {
            let tag = match *words_of(&words) {
                [a] => aes::encrypt::<SHORT_ROUNDS>(&one, aes::vector(a, 0)),
                [a, b] => aes::encrypt::<ROUNDS>(&two, aes::vector(a, b)),
                [a, b, c, d, e] => {
                    let first = aes::encrypt::<ROUNDS>(&five, aes::vector(a, b));
                    let second = aes::encrypt::<ROUNDS>(&five, _mm_xor_si128(first, aes::vector(c, d)));
                    aes::encrypt::<ROUNDS>(&five, _mm_xor_si128(second, aes::vector(e, 0)))
                }
                _ => continue,
            };
            found(_mm_cvtsi128_si64(tag).cast_unsigned());
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,sse4.1")]
    fn each_pair_by_aes(&self, pairs: impl Iterator<Item = [u64; 2]>, mut found: impl FnMut([u64; 2])) {
        use std::arch::x86_64::_mm_cvtsi128_si64;

        let keys = aes::load(&self.one);
        let hash = |word| _mm_cvtsi128_si64(aes::encrypt::<SHORT_ROUNDS>(&keys, aes::vector(word, 0))).cast_unsigned();
        pairs.for_each(|pair| found(pair.map(hash)));
    }
}

/// The cipher.
#[cfg(target_arch = "x86_64")]
mod aes {
    use std::arch::x86_64::{__m128i, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_set_epi64x, _mm_xor_si128};

    use super::{ROUNDS, RoundKeys};

    #[inline]
    #[target_feature(enable = "aes,sse4.1")]
    pub(super) fn vector(low: u64, high: u64) -> __m128i {
        _mm_set_epi64x(high.cast_signed(), low.cast_signed())
    }

    #[inline]
    #[target_feature(enable = "aes,sse4.1")]
    pub(super) fn load(keys: &RoundKeys) -> [__m128i; ROUNDS + 1] {
        keys.map(|[low, high]| vector(low, high))
    }

    /// A block after `COUNT` rounds.
    #[inline]
    #[target_feature(enable = "aes,sse4.1")]
    pub(super) fn encrypt<const COUNT: usize>(keys: &[__m128i; ROUNDS + 1], block: __m128i) -> __m128i {
        let mut state = _mm_xor_si128(block, keys[0]);
        for key in &keys[1..COUNT] {
            state = _mm_aesenc_si128(state, *key);
        }
        _mm_aesenclast_si128(state, keys[COUNT])
    }
}

#[inline(always)]
fn words_of<'w>(words: &KeyWords<'w>) -> &'w [u64] {
    match words {
        KeyWords::One(words) => *words,
        KeyWords::Two(words) => *words,
        KeyWords::Five(words) => *words,
    }
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("aes") && is_x86_feature_detected!("sse4.1")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// AES-128 as FIPS 197 writes it, one byte at a time.
    mod naive {
        /// The product in the field of section 4.2.
        fn product(mut one: u8, mut other: u8) -> u8 {
            let mut sum = 0;
            while other != 0 {
                if other & 1 == 1 {
                    sum ^= one;
                }
                one = one << 1 ^ if one & 0x80 == 0 { 0 } else { 0x1b };
                other >>= 1;
            }
            sum
        }

        fn substitute(byte: u8) -> u8 {
            let inverse = (0..=255).find(|&other| product(byte, other) == 1).unwrap_or(0);
            (0..5).fold(0x63, |sum, bits| sum ^ inverse.rotate_left(bits))
        }

        pub fn encrypt(keys: &[[u8; 16]], block: [u8; 16]) -> [u8; 16] {
            let add = |state: [u8; 16], key: &[u8; 16]| std::array::from_fn(|at| state[at] ^ key[at]);
            let mut state: [u8; 16] = add(block, &keys[0]);
            for (round, key) in keys.iter().enumerate().skip(1) {
                let state_before = state.map(substitute);
                state = std::array::from_fn(|at| state_before[(at + 4 * (at % 4)) % 16]);
                if round + 1 < keys.len() {
                    let before = state;
                    state = std::array::from_fn(|at| {
                        let column = |row: usize| before[at / 4 * 4 + (at + row) % 4];
                        product(2, column(0)) ^ product(3, column(1)) ^ column(2) ^ column(3)
                    });
                }
                state = add(state, key);
            }
            state
        }

        /// The keys of all rounds (section 5.2).
        pub fn expand(key: [u8; 16]) -> [[u8; 16]; 11] {
            let mut keys = [key; 11];
            let mut constant = 1;
            for round in 1..11 {
                let last = keys[round - 1];
                let mut word = [last[13], last[14], last[15], last[12]].map(substitute);
                word[0] ^= constant;
                constant = product(constant, 2);
                for at in 0..16 {
                    let before = if at < 4 { word[at] } else { keys[round][at - 4] };
                    keys[round][at] = last[at] ^ before;
                }
            }
            keys
        }
    }

    fn bytes([low, high]: [u64; 2]) -> [u8; 16] {
        std::array::from_fn(|at| if at < 8 { low.to_le_bytes()[at] } else { high.to_le_bytes()[at - 8] })
    }

    fn words(bytes: [u8; 16]) -> [u64; 2] {
        let half = |start: usize| u64::from_le_bytes(std::array::from_fn(|at| bytes[start + at]));
        [half(0), half(8)]
    }

    /// As FIPS 197, appendix C.1.
    #[test]
    fn two_words_are_one_block_of_aes() {
        let key = std::array::from_fn(|at| at as u8);
        let plain = std::array::from_fn(|at| at as u8 * 0x11);
        let keys = naive::expand(key);
        let cipher = naive::encrypt(&keys, plain);
        assert_eq!(cipher[..8], [0x69, 0xc4, 0xe0, 0xd8, 0x6a, 0x7b, 0x04, 0x30]);
        let hash = KeyedHash { two: keys.map(words), ..KeyedHash::new() };
        if hash.has_aes {
            assert_eq!(hash.hash(KeyWords::Two(&words(plain))), words(cipher)[0]);
        }
    }

    proptest! {
        #[test]
        fn the_hash_is_that_of_the_naive_cipher(keys in prop::collection::vec(any::<([u64; 5], u8)>(), 0..6)) {
            let hash = KeyedHash::new();
            let all = keys.iter().map(|(words, kind)| match kind % 4 {
                0 => KeyWords::One(words.first_chunk().unwrap()),
                1 => KeyWords::Two(words.first_chunk().unwrap()),
                2 => KeyWords::Two(words.last_chunk().unwrap()),
                _ => KeyWords::Five(words),
            });
            let mut found = Vec::new();
            hash.each(all.clone(), |hash| found.push(hash));
            let [one, two, five] = [&hash.one, &hash.two, &hash.five].map(|keys| keys.map(bytes));
            let xor = |one: [u64; 2], other: [u64; 2]| [one[0] ^ other[0], one[1] ^ other[1]];
            let encrypt = |keys: &[[u8; 16]], block| words(naive::encrypt(keys, bytes(block)));
            let expected = all.map(|key| match key {
                _ if !hash.has_aes => hash.siphash.hash_one(words_of(&key)),
                KeyWords::One(&[word]) => encrypt(&one[..=SHORT_ROUNDS], [word, 0])[0],
                KeyWords::Two(words) => encrypt(&two, *words)[0],
                KeyWords::Five(&[a, b, c, d, e]) => {
                    let first = encrypt(&five, [a, b]);
                    encrypt(&five, xor(encrypt(&five, xor(first, [c, d])), [e, 0]))[0]
                }
            });
            if hash.has_aes {
                prop_assert_eq!(found, expected.collect::<Vec<_>>());
            } else {
                prop_assert_eq!(found.len(), keys.len());
            }
        }
    }

    proptest! {
        #[test]
        fn pairs_have_the_hashes_of_their_words(pairs in prop::collection::vec([0u64..3, 0u64..3], 0..20)) {
            for has_aes in [false, has_aes()] {
                let hash = KeyedHash { has_aes, ..KeyedHash::new() };
                let mut found = Vec::new();
                hash.each_pair(pairs.iter().copied(), |hashes| found.push(hashes));
                let of = |pair: &[u64; 2]| pair.map(|word| hash.hash(KeyWords::One(&[word])));
                let expected: Vec<_> = pairs.iter().map(of).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    /// Both ways of hashing spread keys that differ in a few bits.
    #[test]
    fn similar_keys_are_spread_evenly() {
        let hash = KeyedHash::new();
        for has_aes in [false, hash.has_aes] {
            let hash = KeyedHash { has_aes, ..KeyedHash::new() };
            let mut counts: HashMap<u64, u32> = HashMap::new();
            for number in 0..64_000u64 {
                *counts.entry(hash.hash(KeyWords::One(&[number << 24])) % 1_000).or_default() += 1;
                *counts.entry(hash.hash(KeyWords::Two(&[number, 0])) % 1_000).or_default() += 1;
                *counts.entry(hash.hash(KeyWords::Five(&[0, 0, 0, 0, number << 40])) % 1_000).or_default() += 1;
            }
            let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
            assert!(counts.len() == 1_000 && *least > 120 && *most < 270, "{least} to {most} of 192");
        }
    }
}
