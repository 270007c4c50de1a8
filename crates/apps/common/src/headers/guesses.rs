//! Which of many patterns a packet can have: a table that is asked before a pattern is compared.

use bellows_wire::IpPair;

use super::{ETHERNET, HEADERS_V4, HEADERS_V6};

/// The parts of a header that distinguish patterns: the source and the destination, or what distinguishes most, and
/// other fields as one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The source.
    pub src: u64,
    /// The destination.
    pub dst: u64,
    /// The other fields.
    pub number: u64,
}

impl Ends {
    /// Of packets with these addresses.
    pub fn of(addresses: IpPair, number: u64) -> Ends {
        let (src, dst) = match addresses {
            IpPair::V4 { src, dst } => (word(&src.octets()), word(&dst.octets())),
            IpPair::V6 { src, dst } => (word(&src.octets()[8..]), word(&dst.octets()[8..])),
        };
        Ends { src, dst, number }
    }

    /// Of a packet behind an Ethernet header, without options. Bytes behind its end are 0. Hot.
    #[inline(always)]
    pub fn read(frame: &[u8], is_v6: bool, number: u64) -> Ends {
        match is_v6 {
            true => Ends { src: load(frame, ETHERNET + 16, 8), dst: load(frame, ETHERNET + 32, 8), number },
            false => Ends { src: load(frame, ETHERNET + 12, 4), dst: load(frame, ETHERNET + 16, 4), number },
        }
    }

    /// Four bytes behind the IP header as a number. Hot.
    #[inline(always)]
    pub fn number(frame: &[u8], is_v6: bool, at: usize) -> u64 {
        load(frame, if is_v6 { HEADERS_V6 } else { HEADERS_V4 } + at, 4)
    }
}

/// Whether a packet behind an Ethernet header is one of IPv6. Hot.
#[inline(always)]
pub fn is_v6(frame: &[u8]) -> bool {
    frame.get(ETHERNET).is_some_and(|first| first >> 4 == 6)
}

/// `length` bytes as a number; 0 if the frame ends before. Hot.
#[inline(always)]
fn load(frame: &[u8], at: usize, length: usize) -> u64 {
    frame.get(at..at + length).map_or(0, word)
}

/// Up to 8 bytes as a number.
#[inline(always)]
pub fn word(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<8>(), bytes.first_chunk::<4>()) {
        (Some(eight), _) => u64::from_be_bytes(*eight),
        (None, Some(four)) => u64::from(u32::from_be_bytes(*four)),
        _ => 0,
    }
}

/// For each place of a table, the one entry whose parts lead there.
///
/// A guess may be wrong, so the entry's pattern is compared with the packet; but no packet that matches an entry is
/// guessed to be another's. Entries whose parts lead to the same place are not guessed: the guess is [`Guesses::OPEN`].
pub struct Guesses {
    /// A power of two of places.
    places: Vec<u16>,
    key: u64,
}

/// No entry leads here.
const NONE: u16 = u16::MAX;

/// Several entries lead here.
const SEVERAL: u16 = u16::MAX - 1;

/// Seeds that are tried, to have no two entries at one place.
const TRIES: u32 = 64;

impl Guesses {
    /// The guess for a packet that can belong to any of several entries: no entry's number.
    pub const OPEN: usize = SEVERAL as usize;

    /// A table of entries: each with its number and parts.
    pub fn new(entries: &[(u16, Ends)]) -> Guesses {
        let size = (4 * entries.len()).next_power_of_two();
        let fill = |seed: u32| {
            let mut guesses = Guesses { places: vec![NONE; size], key: KEYS[0].rotate_left(seed) | 1 };
            let mut doubles = 0;
            for &(entry, ends) in entries {
                let place = guesses.place(ends);
                let is_taken = guesses.places[place] != NONE;
                doubles += usize::from(is_taken);
                guesses.places[place] = if is_taken { SEVERAL } else { entry };
            }
            (doubles, guesses)
        };
        let mut best = fill(0);
        for seed in 1..TRIES {
            if best.0 == 0 {
                break;
            }
            let other = fill(seed);
            if other.0 < best.0 {
                best = other;
            }
        }
        best.1
    }

    /// The entry that a packet can belong to; a number that no entry has if there is none, or several. Hot.
    #[inline(always)]
    pub fn guess(&self, ends: Ends) -> usize {
        usize::from(self.places[self.place(ends)])
    }

    /// A place. Hot.
    #[inline(always)]
    fn place(&self, ends: Ends) -> usize {
        let src = (ends.src ^ self.key).wrapping_mul(KEYS[1]);
        let mixed = src ^ ends.dst.wrapping_mul(KEYS[2]) ^ ends.number.rotate_left(29);
        let product = u128::from(mixed) * u128::from(self.key);
        (product >> 64) as usize & (self.places.len() - 1)
    }
}

/// Odd numbers with about as many ones as zeros: fractions of the square roots of 11, 13 and 17.
const KEYS: [u64; 3] = [0x510e_527f_ade6_82d1, 0x9b05_688c_2b3e_6c1f, 0x1f83_d9ab_fb41_bd6b];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_guess_is_the_entry_itself_or_open(parts in prop::collection::hash_set((0u64..9, any::<u64>(), 0u64..3), 1..200)) {
            let entries = parts.iter().zip(0u16..).map(|(&(src, dst, number), at)| (at, Ends { src, dst, number }));
            let entries: Vec<_> = entries.collect();
            let guesses = Guesses::new(&entries);
            let found = entries.iter().filter(|(_, ends)| guesses.guess(*ends) != Guesses::OPEN).count();
            for &(at, ends) in &entries {
                prop_assert!([usize::from(at), Guesses::OPEN].contains(&guesses.guess(ends)));
            }
            prop_assert!(2 * found >= entries.len(), "{} of {}", found, entries.len());
        }

        #[test]
        fn two_entries_are_told_apart(src: u64, dst: u64, number in 0u64..1 << 24, bit in 0u32..24) {
            let entries = [number, number ^ 1 << bit].map(|number| Ends { src, dst, number });
            let guesses = Guesses::new(&[(0, entries[0]), (1, entries[1])]);
            prop_assert_eq!(entries.map(|ends| guesses.guess(ends)), [0, 1]);
        }
    }
}
