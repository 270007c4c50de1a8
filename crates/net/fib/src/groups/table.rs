//! What readers see of groups.
//!
//! A group has a word with the place of its buckets and their number. Buckets change one by one, in place: a reader finds
//! the old path or the new one. Behind the buckets are as many homes: the paths that the buckets have while all paths are
//! in use.

use std::io;

use super::buckets::MIN_BUCKETS;
use crate::cells::Cells;
use crate::{FIRST_GROUP, NO_ROUTE};

/// The most groups.
pub(super) const MAX_GROUPS: u32 = 1 << 16;

/// The buckets in a unit, in which their places are measured.
pub(super) const UNIT: usize = MIN_BUCKETS;

/// The low bits of a group's word, with the logarithm of the number of its buckets. 0 if there is no such group.
const LOGARITHM_BITS: u32 = 5;

/// Numbers that are looked up together.
const BATCH: usize = 128;

/// Groups, as readers see them in a breath.
pub struct GroupTable {
    /// The words of groups, then buckets.
    cells: Cells,
    seed: u32,
}

impl GroupTable {
    /// A table with room for `units` units of buckets.
    pub(super) fn new(units: u32, seed: u32) -> io::Result<GroupTable> {
        Ok(GroupTable { cells: Cells::new(first_bucket(units))?, seed })
    }

    /// A copy of this table with room for `units` units of buckets.
    pub(super) fn grown(&self, units: u32) -> io::Result<GroupTable> {
        let grown = GroupTable::new(units, self.seed)?;
        (0..self.cells.length()).for_each(|at| grown.cells.store(at, self.cells.load(at)));
        Ok(grown)
    }

    /// The units that there is room for.
    pub(super) fn units(&self) -> u32 {
        ((self.cells.length() - MAX_GROUPS as usize) / UNIT) as u32
    }

    /// Writes buckets.
    pub(super) fn set_buckets(&self, unit: u32, buckets: &[u32]) {
        for (at, &next) in (first_bucket(unit)..).zip(buckets) {
            self.cells.store(at, next);
        }
    }

    /// Writes the homes of as many buckets.
    pub(super) fn set_homes(&self, unit: u32, homes: &[u32]) {
        for (at, &next) in (first_bucket(unit) + homes.len()..).zip(homes) {
            self.cells.store(at, next);
        }
    }

    /// The buckets of a group of `count`.
    pub(super) fn buckets(&self, unit: u32, count: usize) -> Vec<u32> {
        (first_bucket(unit)..).take(count).map(|at| self.cells.load(at)).collect()
    }

    /// The homes of a group of `count` buckets.
    pub(super) fn homes(&self, unit: u32, count: usize) -> Vec<u32> {
        (first_bucket(unit) + count..).take(count).map(|at| self.cells.load(at)).collect()
    }

    /// Has a group begin to use these buckets, or end if there are none.
    pub(super) fn set_group(&self, group: u32, unit: u32, count: usize) {
        let word = if count == 0 { 0 } else { unit << LOGARITHM_BITS | count.ilog2() };
        self.cells.store(group as usize, word);
    }

    /// Replaces each number of a group by that of a path, or by [`NO_ROUTE`] if the group has no paths or does not exist;
    /// other numbers stay. `hash` returns the flow hash of the packet at a place; it is called only for groups. Hot.
    ///
    /// All packets of a flow have the same hash. No bit of it needs to be better than another, and it may have been used
    /// to choose a queue.
    #[inline]
    pub fn resolve(&self, next: &mut [u32], mut hash: impl FnMut(usize) -> u32) {
        for (batch, next) in next.chunks_mut(BATCH).enumerate() {
            // No branch for each number, as long as there are no groups.
            if next.iter().fold(false, |any, &number| any | is_group(number)) {
                self.resolve_batch(next, |place| hash(batch * BATCH + place));
            }
        }
    }

    /// Whether a path of a group meets a condition, be it in use or not; false for numbers that are not those of groups.
    pub fn has_path(&self, number: u32, mut is: impl FnMut(u32) -> bool) -> bool {
        let group = number.wrapping_sub(FIRST_GROUP);
        if group >= MAX_GROUPS {
            return false;
        }
        let word = self.cells.load(group as usize);
        let logarithm = word & ((1 << LOGARITHM_BITS) - 1);
        let count = 1 << logarithm;
        let first = first_bucket(word >> LOGARITHM_BITS) + count;
        logarithm != 0 && (first..first + count).any(|bucket| is(self.cells.load(bucket)))
    }

    #[inline]
    fn resolve_batch(&self, next: &mut [u32], mut hash: impl FnMut(usize) -> u32) {
        // The group of a number that is none has no buckets.
        let mut buckets = [0_usize; BATCH];
        for ((place, &number), bucket) in next.iter().enumerate().zip(&mut buckets) {
            let group = number.wrapping_sub(FIRST_GROUP);
            if group < MAX_GROUPS {
                let word = self.cells.load(group as usize);
                let logarithm = word & ((1 << LOGARITHM_BITS) - 1);
                if logarithm != 0 {
                    let choice = mixed(hash(place) ^ self.seed) >> (u32::BITS - logarithm);
                    *bucket = first_bucket(word >> LOGARITHM_BITS) + choice as usize;
                    self.cells.prefetch(*bucket);
                }
            }
        }
        for (next, &bucket) in next.iter_mut().zip(&buckets) {
            if is_group(*next) {
                *next = if bucket == 0 { NO_ROUTE } else { self.cells.load(bucket) };
            }
        }
    }
}

#[inline(always)]
fn is_group(number: u32) -> bool {
    number.wrapping_sub(FIRST_GROUP) < NO_ROUTE - FIRST_GROUP
}

#[inline(always)]
fn first_bucket(unit: u32) -> usize {
    MAX_GROUPS as usize + unit as usize * UNIT
}

/// A number whose high bits depend on all bits of the hash (Fibonacci hashing, twice, so that hashes with equal halves
/// differ in many bits).
#[inline(always)]
fn mixed(hash: u32) -> u32 {
    let once = hash.wrapping_mul(0x9e37_79b1);
    (once ^ once >> 15).wrapping_mul(0x85eb_ca77)
}
