//! Routes of a benchmark: those of a file, or like those of the Internet.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use bellows_fib::{AddressFamily, Prefix};
use fastrand::Rng;

/// Prefixes of both families, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::benchmarks) struct Prefixes {
    pub(in crate::benchmarks) ipv4: Vec<Prefix<u32>>,
    pub(in crate::benchmarks) ipv6: Vec<Prefix<u128>>,
}

/// How many prefixes of each length the Internet's table of IPv4 had in 2023, from /8 on, and that of IPv6 from /19 on.
const IPV4_LENGTHS: [usize; 25] = [
    16, 13, 38, 103, 299, 581, 1_203, 2_100, 13_490, 8_235, 13_798, 24_870, 42_611, 50_750, 108_623, 96_510, 537_698,
    20, 3, 11, 18, 17, 3, 3, 886,
];
const IPV6_LENGTHS: [usize; 30] = [
    1, 16, 3, 7, 8, 30, 8, 15, 20, 193, 4_371, 650, 284, 22_548, 2_926, 2_603, 1_043, 5_996, 880, 1_617, 1_377, 13_418,
    903, 2_301, 1_001, 14_365, 1_553, 3_046, 3_153, 75_488,
];

/// The networks that longer prefixes are within: their number, and their bits.
const IPV4_NETWORKS: (usize, u8) = (25_000, 16);
const IPV6_NETWORKS: (usize, u8) = (11_000, 32);

/// The addresses in use begin with these.
const IPV4_IN_USE: std::ops::Range<u32> = 1 << 24..224 << 24;
const IPV6_IN_USE: std::ops::Range<u128> = 0x2000 << 112..0x4000 << 112;

/// A larger block of addresses that networks of IPv6 are given from, in bits, and how many of these there are.
const IPV6_BLOCKS: (usize, u8) = (600, 20);

impl Prefixes {
    /// The first word of each line of a file, as far as there is one that does not begin with `#`.
    pub(in crate::benchmarks) fn read(path: &Path) -> Result<Prefixes, String> {
        let place = path.display();
        let mut text = String::new();
        let read = bellows_config::open_text(path).and_then(|mut file| file.read_to_string(&mut text));
        read.map_err(|error| format!("{place}: {error}"))?;
        let mut prefixes = Prefixes::default();
        for (line, text) in (1..).zip(text.lines()) {
            let Some(word) = text.split_whitespace().next().filter(|word| !word.starts_with('#')) else { continue };
            let parsed = if word.contains(':') {
                word.parse().map(|prefix| prefixes.ipv6.push(prefix))
            } else {
                word.parse().map(|prefix| prefixes.ipv4.push(prefix))
            };
            parsed.map_err(|error| format!("{place}, line {line}: `{word}` is no prefix: {error}"))?;
        }
        if prefixes.ipv4.is_empty() || prefixes.ipv6.is_empty() {
            return Err(format!("{place} must have prefixes of both families"));
        }
        prefixes.sort();
        Ok(prefixes)
    }

    /// A table with as many prefixes of each length as the Internet's had, a part of `1 / divisor` of them.
    pub(in crate::benchmarks) fn generated(divisor: usize) -> Prefixes {
        let mut random = Rng::with_seed(1);
        let networks: Vec<u32> = (0..IPV4_NETWORKS.0 / divisor + 1).map(|_| random.u32(IPV4_IN_USE)).collect();
        let blocks: Vec<u128> = (0..IPV6_BLOCKS.0).map(|_| random.u128(IPV6_IN_USE)).collect();
        let networks6: Vec<u128> = (0..IPV6_NETWORKS.0 / divisor + 1)
            .map(|_| replaced(blocks[random.usize(..blocks.len())], IPV6_BLOCKS.1, random.u128(..)))
            .collect();
        let mut ipv4 = BTreeSet::new();
        for (length, count) in (8..).zip(IPV4_LENGTHS) {
            add(&mut ipv4, length, count / divisor, || match length > IPV4_NETWORKS.1 {
                true => replaced(networks[random.usize(..networks.len())], IPV4_NETWORKS.1, random.u32(..)),
                false => random.u32(IPV4_IN_USE),
            });
        }
        let mut ipv6 = BTreeSet::new();
        for (length, count) in (19..).zip(IPV6_LENGTHS) {
            add(&mut ipv6, length, count / divisor, || match length {
                ..=20 => random.u128(IPV6_IN_USE),
                21..=32 => replaced(blocks[random.usize(..blocks.len())], IPV6_BLOCKS.1, random.u128(..)),
                _ => replaced(networks6[random.usize(..networks6.len())], IPV6_NETWORKS.1, random.u128(..)),
            });
        }
        Prefixes { ipv4: ipv4.into_iter().collect(), ipv6: ipv6.into_iter().collect() }
    }

    fn sort(&mut self) {
        self.ipv4.sort_unstable();
        self.ipv4.dedup();
        self.ipv6.sort_unstable();
        self.ipv6.dedup();
    }
}

/// Adds prefixes of a length, as many as there is room for.
fn add<A: AddressFamily>(to: &mut BTreeSet<Prefix<A>>, length: u8, count: usize, mut address: impl FnMut() -> A) {
    let wanted = to.len() + count;
    for _ in 0..20 * count {
        if to.len() >= wanted {
            break;
        }
        to.extend(Prefix::of(address(), length));
    }
}

/// An address with its first bits, then others.
fn replaced<A: AddressFamily + std::ops::BitXor<Output = A>>(address: A, bits: u8, rest: A) -> A {
    address.network(bits) ^ rest ^ rest.network(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_tables_have_the_lengths_of_the_internets() {
        let prefixes = Prefixes::generated(10);
        let count = |length| prefixes.ipv4.iter().filter(|prefix| prefix.length() == length).count();
        assert_eq!((count(24), count(22), count(16)), (53_769, 10_862, 1_349));
        assert_eq!(prefixes.ipv6.iter().filter(|prefix| prefix.length() == 48).count(), 7_548);
        assert!(prefixes.ipv4.is_sorted() && prefixes.ipv6.is_sorted());
        assert_eq!(prefixes, Prefixes::generated(10));
    }

    #[test]
    fn files_are_read_or_the_line_is_named() {
        let path = std::env::temp_dir().join(format!("bellows-fib-routes-{}", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Prefixes::read(&path)
        };
        let prefixes = read("# both\r\n192.0.2.0/24 7\r\n2001:db8::/32\r\n10.0.0.0/8\n").unwrap();
        assert_eq!((prefixes.ipv4.len(), prefixes.ipv6.len()), (2, 1));
        assert!(prefixes.ipv4.is_sorted());
        assert!(read("10.0.0.0/8\n10.0.0.0/40\n").unwrap_err().contains("line 2: `10.0.0.0/40` is no prefix"));
        assert!(read("10.0.0.0/8\n").unwrap_err().contains("both families"));
        std::fs::remove_file(&path).unwrap();
        assert!(Prefixes::read(&path).is_err());
    }
}
