//! Counts of the known neighbours by hash: one load rejects most addresses that are not among them, as in a flood of
//! packets about strangers.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// A neighbour: the number of the interface whose link it is on, and its address.
pub type NeighbourKey = (u16, IpAddr);

/// A hash of few bits of each neighbour, so that floods of packets about strangers cost a look at two bytes each.
#[derive(Debug)]
pub(crate) struct NeighbourFilter {
    /// Nobody may know which addresses have the same hash.
    secret: u64,
    counts: Box<[HashCounts]>,
}

/// The neighbours with a hash, up to a number that stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HashCounts {
    pub(crate) all: u8,
    /// Those of them for whom as many packets wait as there may be.
    pub(crate) awaited: u8,
}

/// Adds one to a count, or takes one away, unless it is the number that stays.
fn change(count: &mut u8, is_more: bool) {
    if *count < u8::MAX {
        *count = if is_more { *count + 1 } else { *count - 1 };
    }
}

/// Bits of a neighbour's hash.
const FILTER_BITS: u32 = 16;

impl NeighbourFilter {
    pub(crate) fn new() -> NeighbourFilter {
        NeighbourFilter {
            secret: RandomState::new().hash_one(0) | 1,
            counts: vec![HashCounts::default(); 1 << FILTER_BITS].into(),
        }
    }

    #[inline]
    pub(crate) fn place(&self, (interface, address): NeighbourKey) -> usize {
        let word = match address {
            IpAddr::V4(address) => u32::from(address).into(),
            IpAddr::V6(address) => {
                let bits = u128::from(address);
                ((bits >> 64) as u64).rotate_left(23) ^ bits as u64
            }
        };
        // Multiply-shift, of which two keys seldom have the same hash.
        ((word ^ u64::from(interface) << 48).wrapping_mul(self.secret) >> (64 - FILTER_BITS)) as usize
    }

    #[inline]
    pub(crate) fn counts(&self, key: NeighbourKey) -> HashCounts {
        self.counts[self.place(key)]
    }

    #[cfg(test)]
    pub(crate) fn all_counts(&self) -> &[HashCounts] {
        &self.counts
    }

    pub(crate) fn add(&mut self, key: NeighbourKey) {
        change(&mut self.counts[self.place(key)].all, true);
    }

    pub(crate) fn remove(&mut self, key: NeighbourKey, was_awaited: bool) {
        change(&mut self.counts[self.place(key)].all, false);
        if was_awaited {
            self.set_awaited(key, false);
        }
    }

    pub(crate) fn set_awaited(&mut self, key: NeighbourKey, is_awaited: bool) {
        change(&mut self.counts[self.place(key)].awaited, is_awaited);
    }
}
