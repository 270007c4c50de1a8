//! Buffers that are lent to drivers inside the process, which take free buffers and give them back on any thread.
//!
//! Apart from [`Lent`](crate::Lent), which one thread has and which records the order of loans: here a byte for each buffer
//! says whether it is lent, because a driver shares its free buffers with all its queues. The counts are those of packets,
//! as there.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::pool::{self, Pool};
use crate::thread::{free_uncounted, tally, with_free_buffers};

/// The ordinary buffers that drivers have, by their numbers from 0.
///
/// Dropping this takes back all that are lent, so the drivers must have ended.
pub struct SharedLent {
    pool: &'static Pool,
    is_lent: Box<[AtomicBool]>,
}

/// Buffers that are freed together.
const BLOCK: usize = 64;

impl Default for SharedLent {
    fn default() -> SharedLent {
        SharedLent::new()
    }
}

impl SharedLent {
    /// Without buffers.
    pub fn new() -> SharedLent {
        let pool = pool::get();
        SharedLent { pool, is_lent: (0..pool.small.count).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Number of ordinary buffers of the pool, lent or not.
    pub fn buffers(&self) -> usize {
        self.is_lent.len()
    }

    /// Number of those that are lent. Reads all of them.
    pub fn count(&self) -> usize {
        self.is_lent.iter().filter(|is_lent| is_lent.load(Relaxed)).count()
    }

    /// The address of a new packet's data in the buffer with this number.
    #[inline(always)]
    pub fn data(&self, number: usize) -> usize {
        self.pool.small.first + number * self.pool.small.stride + crate::DATA_OFFSET
    }

    /// The number of the ordinary buffer that contains an address of data, or ends there.
    #[inline(always)]
    pub fn number(&self, data: usize) -> usize {
        self.pool.small.number(data)
    }

    fn note(&self, more: usize, less: usize) {
        self.pool.lent.fetch_add((more as u64).wrapping_sub(less as u64), Relaxed);
    }

    /// Lends up to `count` free buffers, as many as the pool has, and passes their numbers to `give`. Returns how many.
    #[inline]
    pub fn lend_free(&self, count: usize, mut give: impl FnMut(usize)) -> usize {
        let lent = with_free_buffers(count, |buffers, _| {
            for &data in buffers {
                let number = self.pool.small.number(data);
                self.is_lent[number].store(true, Relaxed);
                give(number);
            }
        });
        // They were counted as taken, but hold no packets.
        tally(self.pool, |tally| &tally.taken, (lent as u64).wrapping_neg());
        self.note(lent, 0);
        lent
    }

    /// Lends the ordinary buffers of packets, which end with this, by their numbers.
    ///
    /// # Safety
    /// As for [`free`](crate::free), of each.
    #[inline]
    pub unsafe fn lend_all(&self, numbers: impl Iterator<Item = usize>) {
        let mut lent = 0;
        for number in numbers {
            self.is_lent[number].store(true, Relaxed);
            lent += 1;
        }
        tally(self.pool, |tally| &tally.freed, lent as u64);
        self.note(lent, 0);
    }

    /// Takes back buffers that hold frames: passes each that is lent to `take`, with what comes with its number. From then
    /// on the caller owns it, as one that it has taken. Returns how many were lent, and how many were not.
    ///
    /// # Safety
    /// The driver has given up these buffers: it says so on this thread alone, and once.
    #[inline]
    pub unsafe fn take_all<T>(
        &self,
        buffers: impl Iterator<Item = (usize, T)>,
        mut take: impl FnMut(usize, T),
    ) -> (usize, usize) {
        let (mut taken, mut foreign) = (0, 0);
        for (number, with) in buffers {
            if self.clear(number) {
                taken += 1;
                take(self.data(number), with);
            } else {
                foreign += 1;
            }
        }
        tally(self.pool, |tally| &tally.taken, taken as u64);
        self.note(0, taken);
        (taken, foreign)
    }

    /// Takes back buffers that hold nothing: those that are lent are free again. Returns how many were not.
    ///
    /// # Safety
    /// As for [`take_all`](SharedLent::take_all).
    #[inline]
    pub unsafe fn end_all(&self, numbers: impl Iterator<Item = usize>) -> usize {
        let (mut block, mut waiting, mut ended, mut foreign) = ([0; BLOCK], 0, 0, 0);
        for number in numbers {
            if !self.clear(number) {
                foreign += 1;
                continue;
            }
            block[waiting] = self.data(number);
            waiting += 1;
            ended += 1;
            if waiting == BLOCK {
                self.free(&block);
                waiting = 0;
            }
        }
        self.free(&block[..waiting]);
        self.note(0, ended);
        foreign
    }

    /// Takes back all buffers that are lent. Returns how many.
    ///
    /// # Safety
    /// No driver uses a buffer any more, nor will.
    pub unsafe fn end_everything(&self) -> usize {
        let lent = || (0..self.buffers()).filter(|&number| self.is_lent[number].load(Relaxed));
        let count = lent().count();
        // SAFETY: the caller says that they are nobody's, and nobody else ends or takes one.
        unsafe { self.end_all(lent()) };
        count
    }

    /// Whether the buffer was lent, which it is no longer.
    ///
    /// Not one exchange, which would cost more than all else here: two threads never ask for the same buffer at once, as
    /// the callers promise.
    #[inline(always)]
    fn clear(&self, number: usize) -> bool {
        let Some(is_lent) = self.is_lent.get(number) else { return false };
        let was_lent = is_lent.load(Relaxed);
        is_lent.store(false, Relaxed);
        was_lent
    }

    /// Puts buffers back into the pool without counting packets as freed.
    #[inline]
    fn free(&self, data: &[usize]) {
        let left = free_uncounted(data);
        for &data in &data[data.len() - left..] {
            self.pool.give_small(data);
        }
    }
}

impl Drop for SharedLent {
    fn drop(&mut self) {
        // SAFETY: the drivers have ended, as the documentation of the type demands.
        unsafe { self.end_everything() };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{BufferUse, Buffers, buffer_use, free, usage};

    #[derive(Clone, Copy, Debug)]
    enum Step {
        LendFree(usize),
        LendPackets(usize),
        Take(usize, usize),
        End(usize, usize),
        Foreign(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0usize..100).prop_map(Step::LendFree),
            (0usize..9).prop_map(Step::LendPackets),
            (any::<usize>(), 0usize..20).prop_map(|(which, count)| Step::Take(which, count)),
            (any::<usize>(), 0usize..150).prop_map(|(which, count)| Step::End(which, count)),
            any::<usize>().prop_map(Step::Foreign),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Against a set of numbers: each lent buffer comes back once, others never do, the counts are those of packets, and
        /// at the end everything is free again.
        #[test]
        fn buffers_come_back_once(steps in proptest::collection::vec(step(), 1..60)) {
            let _alone = crate::lock::lock(&crate::lent::ALONE);
            crate::ensure().unwrap();
            let before = usage();
            let lent = SharedLent::new();
            let mut model: BTreeMap<usize, usize> = BTreeMap::new();
            let mut owned = Vec::new();
            let mut serial = 0;
            for step in steps {
                let start = buffer_use();
                let mut expected = BufferUse::default();
                let some = |model: &BTreeMap<usize, usize>, which: usize, count: usize| -> Vec<usize> {
                    let from = which.checked_rem(model.len()).unwrap_or(0);
                    model.keys().copied().skip(from).take(count).collect()
                };
                match step {
                    Step::LendFree(count) => {
                        let given = lent.lend_free(count, |number| {
                            serial += 1;
                            assert!(model.insert(number, serial).is_none(), "lent twice");
                        });
                        prop_assert_eq!(given, count);
                    }
                    Step::LendPackets(count) => {
                        let taken: Vec<usize> = (0..count).filter_map(|_| Buffers::new(1).take()).collect();
                        let numbers: Vec<usize> = taken.iter().map(|&data| lent.number(data)).collect();
                        prop_assert_eq!(numbers.iter().map(|&number| lent.data(number)).collect::<Vec<_>>(), taken);
                        // SAFETY: just taken, and nothing else refers to them.
                        unsafe { lent.lend_all(numbers.iter().copied()) };
                        for number in numbers {
                            prop_assert!(model.insert(number, 0).is_none());
                        }
                        expected = BufferUse { taken: count as u64, freed: count as u64 };
                    }
                    Step::Take(which, count) => {
                        let numbers = some(&model, which, count);
                        let mut taken = Vec::new();
                        let with = numbers.iter().map(|&number| (number, number));
                        // SAFETY: the model is the driver, and gives them up.
                        let counts = unsafe { lent.take_all(with, |data, number| taken.push((data, number))) };
                        prop_assert_eq!(counts, (numbers.len(), 0));
                        for (&number, &(data, with)) in numbers.iter().zip(&taken) {
                            prop_assert_eq!((data, with), (lent.data(number), number));
                            model.remove(&number);
                            owned.push(data);
                        }
                        // SAFETY: they are not lent, so nothing happens.
                        let again = unsafe { lent.end_all(numbers.iter().copied()) };
                        prop_assert_eq!(again, numbers.len(), "twice");
                        expected = BufferUse { taken: numbers.len() as u64, freed: 0 };
                    }
                    Step::End(which, count) => {
                        let numbers = some(&model, which, count);
                        // SAFETY: the model is the driver, and gives them up.
                        let foreign = unsafe { lent.end_all(numbers.iter().copied()) };
                        prop_assert_eq!(foreign, 0);
                        for number in numbers {
                            model.remove(&number);
                        }
                    }
                    Step::Foreign(number) => {
                        let number = lent.buffers() + number % 1_000;
                        // SAFETY: there is no such buffer, so nothing happens.
                        let foreign = unsafe { lent.end_all([number].into_iter()) };
                        prop_assert_eq!(foreign, 1);
                    }
                }
                prop_assert_eq!(buffer_use().since(start), expected, "{:?}", step);
                prop_assert_eq!(lent.count(), model.len());
                prop_assert_eq!(usage().lent, before.lent + model.len());
            }
            drop(lent);
            for data in owned {
                // SAFETY: taken back above, so this test owns the buffer.
                unsafe { free(data, false) };
            }
            prop_assert_eq!(usage(), before);
        }
    }
}
