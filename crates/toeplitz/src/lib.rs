//! The Toeplitz hash of receive-side scaling.
//!
//! [`Toeplitz`] is a key, prepared; [`Toeplitz::hash`] hashes a slice of [`Input`]s. The loop is compiled for processors
//! with a carry-less multiplication and for all others; the choice is made once per process.
#![doc = include_str!("../README.md")]

mod product;
mod table;

use std::sync::OnceLock;

use bellows_sys::simd::{Level, Simd};

/// The maximum number of words of an input: two IPv6 addresses and two ports.
pub const MAX_WORDS: usize = 9;

/// The minimum length of a key in bytes: each bit of an input needs 32 bits of the key from its position on.
pub const MIN_KEY: usize = 4 * MAX_WORDS + 4;

/// The key of Microsoft's verification suite, which many drivers use by default.
pub const DEFAULT_KEY: [u8; MIN_KEY] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// The number of words that are hashed without a look at the input's length: two IPv4 addresses and two ports.
const SHORT: usize = 3;

/// What is hashed: words of 32 bits, of which the highest bit is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Input {
    words: [u32; MAX_WORDS],
    /// Whether a word behind the first [`SHORT`] is not 0.
    is_long: bool,
}

impl Input {
    /// An input of these words. A shorter one ends with zeros, which add nothing to the hash.
    #[inline(always)]
    pub fn new(words: [u32; MAX_WORDS]) -> Input {
        Input { words, is_long: words[SHORT..].iter().fold(0, |any, word| any | word) != 0 }
    }

    /// The words that can be other than 0.
    #[inline(always)]
    fn words(&self) -> &[u32] {
        if self.is_long { &self.words } else { &self.words[..SHORT] }
    }
}

/// The ways to hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A carry-less product for each word. There is such a value only if the processor has PCLMULQDQ.
    #[cfg(target_arch = "x86_64")]
    Products,
    /// A table for every four bits.
    Tables,
}

impl Way {
    /// The ways that this processor has, the best first.
    fn available(simd: Simd) -> Vec<Way> {
        let mut ways = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if simd.level() != Level::Baseline && is_x86_feature_detected!("pclmulqdq") {
            ways.push(Way::Products);
        }
        ways.push(Way::Tables);
        ways
    }

    /// The way that this process uses.
    fn chosen() -> Way {
        static CHOSEN: OnceLock<Way> = OnceLock::new();
        *CHOSEN.get_or_init(|| Way::available(Simd::chosen())[0])
    }
}

/// A key, prepared for hashing.
#[derive(Clone, Debug)]
pub struct Toeplitz {
    way: Way,
    /// For each word of an input, the 63 bits of the key that it meets, the first in the lowest bit.
    windows: [u64; MAX_WORDS],
    tables: Box<table::Tables>,
}

impl Default for Toeplitz {
    /// With the [`DEFAULT_KEY`].
    fn default() -> Toeplitz {
        Toeplitz::with(&DEFAULT_KEY, Way::chosen())
    }
}

impl Toeplitz {
    /// Prepares a key; `None` if it has less than [`MIN_KEY`] bytes. Further bytes do not matter.
    pub fn new(key: &[u8]) -> Option<Toeplitz> {
        Some(Toeplitz::with(key.first_chunk()?, Way::chosen()))
    }

    fn with(key: &[u8; MIN_KEY], way: Way) -> Toeplitz {
        Toeplitz { way, windows: product::windows(key), tables: table::tables(key) }
    }

    /// Hashes inputs: each hash is written to the place of its input. Of slices of different lengths only the common
    /// part counts. Hot.
    pub fn hash(&self, inputs: &[Input], hashes: &mut [u32]) {
        match self.way {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the way is among those of the processor, so it has PCLMULQDQ.
            Way::Products => unsafe { product::hash(&self.windows, inputs, hashes) },
            Way::Tables => table::hash(&self.tables, inputs, hashes),
        }
    }
}

/// The hash of an input and a key by definition, bit by bit.
#[cfg(test)]
fn by_definition(key: &[u8], words: &[u32]) -> u32 {
    let key_bit = |at: usize| u32::from(key[at / 8] >> (7 - at % 8) & 1);
    let bits = (0..32 * words.len()).filter(|at| words[at / 32] >> (31 - at % 32) & 1 == 1);
    bits.fold(0, |hash, at| hash ^ (at..at + 32).fold(0, |window, bit| window << 1 | key_bit(bit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    /// Source and destination, the hash of addresses and ports, the hash of addresses alone: Microsoft's verification
    /// suite.
    const SUITE: &[(&str, u16, &str, u16, u32, u32)] = &[
        ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51cc_c178, 0x323e_8fc2),
        ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xc626_b0ea, 0xd718_262a),
        ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5c2b_394a, 0xd2d0_a5de),
        ("38.27.205.30", 48228, "209.142.163.6", 2217, 0xafc7_327f, 0x8298_9176),
        ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x10e8_28a2, 0x5d18_09c5),
        ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x4020_7d3d, 0x2cc1_8cd5),
        ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0xdde5_1bbf, 0x0f0c_461c),
        (
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            "fe80::200:f8ff:fe21:67cf",
            38024,
            0x02d1_feef,
            0x4b61_e985,
        ),
    ];

    fn address_words(address: &str) -> Vec<u32> {
        let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        match address.parse().unwrap() {
            IpAddr::V4(address) => Ipv4Addr::octets(&address).chunks(4).map(word).collect(),
            IpAddr::V6(address) => Ipv6Addr::octets(&address).chunks(4).map(word).collect(),
        }
    }

    fn input(words: &[u32]) -> Input {
        let mut padded = [0; MAX_WORDS];
        padded[..words.len()].copy_from_slice(words);
        Input::new(padded)
    }

    fn ways() -> Vec<Way> {
        Way::available(Simd::available()[0])
    }

    #[test]
    fn the_verification_suite_passes() {
        for &(src, src_port, dst, dst_port, with_ports, without) in SUITE {
            let mut words = [address_words(src), address_words(dst)].concat();
            for (ports, expected) in [(0, without), (u32::from(src_port) << 16 | u32::from(dst_port), with_ports)] {
                words.push(ports);
                for way in ways() {
                    let mut hash = [0];
                    Toeplitz::with(&DEFAULT_KEY, way).hash(&[input(&words)], &mut hash);
                    assert_eq!(hash, [expected], "{src} {src_port} {dst} {dst_port} {way:?}");
                }
                assert_eq!(by_definition(&DEFAULT_KEY, &words), expected);
                words.pop();
            }
        }
    }

    #[test]
    fn the_baseline_uses_tables() {
        let baseline = Simd::available().into_iter().find(|simd| simd.name() == "baseline").unwrap();
        assert_eq!(Way::available(baseline), [Way::Tables]);
        assert!(ways().contains(&Way::chosen()));
    }

    proptest! {
        /// Every way gives the hash of the definition, for any key and inputs of any length.
        #[test]
        fn all_ways_agree(
            key in prop::collection::vec(any::<u8>(), MIN_KEY..=52),
            inputs in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..=MAX_WORDS), 0..20),
        ) {
            let expected: Vec<u32> = inputs.iter().map(|words| by_definition(&key, words)).collect();
            let inputs: Vec<Input> = inputs.iter().map(|words| input(words)).collect();
            for way in ways() {
                let mut hashes = vec![0; inputs.len()];
                Toeplitz { way, ..Toeplitz::new(&key).unwrap() }.hash(&inputs, &mut hashes);
                prop_assert_eq!(&hashes, &expected, "{:?}", way);
            }
        }
    }

    #[test]
    fn a_short_key_is_refused() {
        assert!(Toeplitz::new(&[1; MIN_KEY - 1]).is_none());
    }
}
