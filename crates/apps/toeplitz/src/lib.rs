//! The Toeplitz hash of receive-side scaling.
//!
//! [`Toeplitz`] is a key, prepared; [`Toeplitz::hash`] hashes a slice of [`Input`]s. The loop is compiled for processors
//! with a carry-less multiplication and for all others; the choice is made once per process.
//!
//! A crate of its own because it needs `unsafe` code for the multiplications, and `basic`, whose app `rss` uses it,
//! forbids `unsafe`.
#![doc = include_str!("../README.md")]

mod product;
mod table;

use std::sync::OnceLock;

use bellows_sys::simd::{Level, Simd};

/// The length of an input in bytes: two IPv6 addresses and two ports.
pub const MAX_INPUT: usize = 36;

/// The minimum length of a key in bytes: each bit of an input needs 32 bits of the key from its position on.
pub const MIN_KEY: usize = MAX_INPUT + 4;

/// The words of an input. A word is four bytes, of which the first is the highest.
const WORDS: usize = MAX_INPUT / 4;

/// The key of Microsoft's verification suite, which many drivers use by default.
pub const DEFAULT_KEY: [u8; MIN_KEY] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// The length of a short input: two IPv4 addresses and two ports.
const SHORT: usize = 12;

/// What is hashed.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    bytes: [u8; MAX_INPUT],
    /// Whether all bytes count. Otherwise the first [`SHORT`] do.
    is_long: bool,
}

impl Input {
    /// An input of these bytes. A shorter one ends with zeros, which add nothing to the hash.
    pub fn new(bytes: [u8; MAX_INPUT]) -> Input {
        Input { bytes, is_long: true }
    }

    /// Writes another input into the place of this one: `write` writes its bytes and returns their number. Hot.
    #[inline(always)]
    pub fn rewrite(&mut self, write: impl FnOnce(&mut [u8; MAX_INPUT]) -> usize) {
        let length = write(&mut self.bytes);
        self.is_long = length > SHORT;
        if length != SHORT && length < MAX_INPUT {
            self.pad(length);
        }
    }

    #[cold]
    fn pad(&mut self, length: usize) {
        self.bytes[length..].fill(0);
    }
}

impl Default for Input {
    fn default() -> Input {
        Input::new([0; MAX_INPUT])
    }
}

/// The ways to hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HashWay {
    /// A carry-less product for each word. There is such a value only if the processor has PCLMULQDQ and AVX2.
    #[cfg(target_arch = "x86_64")]
    Products,
    /// A table for every four bits.
    Tables,
}

impl HashWay {
    /// The ways that this processor has, the best first.
    fn available(simd: Simd) -> Vec<HashWay> {
        let mut ways = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if simd.level() != Level::Baseline && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("pclmulqdq")
        {
            ways.push(HashWay::Products);
        }
        ways.push(HashWay::Tables);
        ways
    }

    /// The way that this process uses.
    fn chosen() -> HashWay {
        static CHOSEN: OnceLock<HashWay> = OnceLock::new();
        *CHOSEN.get_or_init(|| HashWay::available(Simd::chosen())[0])
    }
}

/// A key, prepared for hashing.
#[derive(Clone, Debug)]
pub struct Toeplitz {
    way: HashWay,
    windows: product::Windows,
    tables: Box<table::Tables>,
}

impl Default for Toeplitz {
    /// With the [`DEFAULT_KEY`].
    fn default() -> Toeplitz {
        Toeplitz::with(&DEFAULT_KEY, HashWay::chosen())
    }
}

impl Toeplitz {
    /// Prepares a key; `None` if it has less than [`MIN_KEY`] bytes. Further bytes do not matter.
    pub fn new(key: &[u8]) -> Option<Toeplitz> {
        Some(Toeplitz::with(key.first_chunk()?, HashWay::chosen()))
    }

    fn with(key: &[u8; MIN_KEY], way: HashWay) -> Toeplitz {
        Toeplitz { way, windows: product::windows(key), tables: table::tables(key) }
    }

    /// Hashes inputs: each hash is written to the place of its input. Of slices of different lengths only the common
    /// part counts. Hot.
    pub fn hash(&self, inputs: &[Input], hashes: &mut [u32]) {
        match self.way {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the way is among those of the processor, so it has PCLMULQDQ and AVX2.
            HashWay::Products => unsafe { product::hash(&self.windows, inputs, hashes) },
            HashWay::Tables => table::hash(&self.tables, inputs, hashes),
        }
    }
}

/// The hash of an input and a key by definition, bit by bit.
#[cfg(test)]
fn by_definition(key: &[u8], bytes: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| u32::from(bytes[at / 8] >> (7 - at % 8) & 1);
    let ones = (0..8 * bytes.len()).filter(|&at| bit(bytes, at) == 1);
    ones.fold(0, |hash, at| hash ^ (at..at + 32).fold(0, |window, at| window << 1 | bit(key, at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::net::IpAddr;

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
        ("3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, "fe80::200:f8ff:fe21:67cf", 38024, 0x02d1_feef, 0x4b61_e985),
    ];

    fn address(text: &str) -> Vec<u8> {
        match text.parse().unwrap() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        }
    }

    /// An input in a place where a longer one has been.
    fn input(bytes: &[u8]) -> Input {
        let mut input = Input::new([0xa5; MAX_INPUT]);
        input.rewrite(|place| {
            place[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        });
        input
    }

    fn ways() -> Vec<HashWay> {
        HashWay::available(Simd::available()[0])
    }

    #[test]
    fn the_verification_suite_passes() {
        for &(src, src_port, dst, dst_port, with_ports, without) in SUITE {
            let addresses = [address(src), address(dst)].concat();
            let ports = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
            for (bytes, expected) in [([&addresses[..], &ports].concat(), with_ports), (addresses, without)] {
                for way in ways() {
                    let mut hash = [0];
                    Toeplitz::with(&DEFAULT_KEY, way).hash(&[input(&bytes)], &mut hash);
                    assert_eq!(hash, [expected], "{src} {src_port} {dst} {dst_port} {way:?}");
                }
                assert_eq!(by_definition(&DEFAULT_KEY, &bytes), expected);
            }
        }
    }

    #[test]
    fn the_baseline_uses_tables() {
        let baseline = Simd::available().into_iter().find(|simd| simd.name() == "baseline").unwrap();
        assert_eq!(HashWay::available(baseline), [HashWay::Tables]);
        assert!(ways().contains(&HashWay::chosen()));
    }

    proptest! {
        /// Every way gives the hash of the definition, for any key and inputs of any length.
        #[test]
        fn all_ways_agree(
            key in vec(any::<u8>(), MIN_KEY..=52),
            inputs in vec(prop_oneof![vec(any::<u8>(), 0..=MAX_INPUT), vec(any::<u8>(), SHORT)], 0..20),
        ) {
            let expected: Vec<u32> = inputs.iter().map(|bytes| by_definition(&key, bytes)).collect();
            let inputs: Vec<Input> = inputs.iter().map(|bytes| input(bytes)).collect();
            for way in ways() {
                let mut hashes: Vec<u32> = inputs.iter().map(|_| 0).collect();
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
