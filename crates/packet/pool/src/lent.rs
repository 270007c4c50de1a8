//! Buffers that are lent outside the process: to the kernel, which receives into them and sends from them.
//!
//! Apart from `Loans` of `bellows-packet`, because it counts and frees buffers, and this crate knows no packets.
//!
//! A lent buffer is neither free nor a packet's. A free buffer that is lent and comes back with a frame counts as taken
//! at that moment, because that is when a packet is made; a packet's buffer that is lent counts as freed, because that
//! is when the packet ends. So the counts of [`buffer_use`](crate::buffer_use) are those of packets.

use std::sync::atomic::Ordering::Relaxed;

use crate::DATA_OFFSET;
use crate::class::Class;
use crate::pool::{self, Pool};
use crate::thread::{Buffers, tally, with_cache};

/// The buffers that one borrower has.
///
/// The caller stops the borrower before it drops this: then the buffers are free again.
pub struct Lent {
    pool: &'static Pool,
    /// A bit for each ordinary buffer.
    small: Box<[u64]>,
    /// For each large buffer the number of times that it must [come back](Lent::end).
    large: Box<[u8]>,
    count: usize,
    /// The part of the count that the pool's [usage](crate::usage) includes.
    noted: usize,
}

/// A buffer by its class and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Buffer {
    Small(usize),
    Large(usize),
}

impl Class {
    /// The number of the buffer that contains an address, if one does.
    fn find(&self, address: usize) -> Option<usize> {
        let end = self.first + self.count as usize * self.stride;
        (self.first < address && address <= end).then(|| self.number(address))
    }
}

impl Lent {
    /// A borrower that has no buffers yet.
    pub fn new() -> Lent {
        let pool = pool::get();
        let words = (pool.small.count as usize).div_ceil(64);
        let large = vec![0; pool.large.count as usize].into_boxed_slice();
        Lent { pool, small: vec![0; words].into_boxed_slice(), large, count: 0, noted: 0 }
    }

    /// Number of buffers that the borrower has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Lends up to `count` free ordinary buffers, as many as the pool has, and passes the address of each one's data to
    /// `give`. Returns the number.
    pub fn lend_free(&mut self, count: usize, mut give: impl FnMut(usize)) -> usize {
        let mut lent = 0;
        let mut buffers = Buffers::new(count);
        while let Some(data) = buffers.take() {
            self.set(self.pool.small.number(data));
            give(data);
            lent += 1;
        }
        drop(buffers);
        // They were counted as taken, but hold no packets.
        tally(self.pool, |tally| &tally.taken, (lent as u64).wrapping_neg());
        self.count += lent;
        lent
    }

    /// Lends the buffer of a packet, which ends with this. A large buffer comes back `pieces` times.
    ///
    /// # Safety
    /// As for [`free`](crate::free), and `pieces` is at least 1.
    #[inline]
    pub unsafe fn lend(&mut self, data: usize, large: bool, pieces: u8) {
        if large {
            self.large[self.pool.large.number(data)] = pieces;
        } else {
            self.set(self.pool.small.number(data));
        }
        tally(self.pool, |tally| &tally.freed, 1);
        self.count += 1;
    }

    /// Takes back an ordinary buffer that holds a frame: from now on the caller owns it, as one that it has taken.
    /// Returns the address of a new packet's data in it. `None` if the buffer that contains the address is not lent.
    #[inline]
    pub fn take(&mut self, address: usize) -> Option<usize> {
        let number = self.pool.small.find(address)?;
        if !self.clear(number) {
            return None;
        }
        tally(self.pool, |tally| &tally.taken, 1);
        self.count -= 1;
        Some(self.pool.small.data(number as u32))
    }

    /// Takes back a buffer that holds nothing. False if the buffer that contains the address is not lent.
    #[inline]
    pub fn end(&mut self, address: usize) -> bool {
        if let Some(number) = self.pool.small.find(address) {
            let is_lent = self.clear(number);
            if is_lent {
                self.free(Buffer::Small(number));
                self.count -= 1;
            }
            return is_lent;
        }
        self.end_large(address)
    }

    #[cold]
    fn end_large(&mut self, address: usize) -> bool {
        let Some(number) = self.pool.large.find(address) else { return false };
        let pieces = &mut self.large[number];
        if *pieces == 0 {
            return false;
        }
        *pieces -= 1;
        if *pieces == 0 {
            self.free(Buffer::Large(number));
            self.count -= 1;
        }
        true
    }

    /// Puts a buffer back into the pool without counting a packet as freed.
    #[inline(always)]
    fn free(&self, buffer: Buffer) {
        match buffer {
            Buffer::Small(number) => {
                let data = self.pool.small.data(number as u32);
                if with_cache(|cache| cache.free(data)).is_none() {
                    self.pool.give_small(data);
                }
            }
            Buffer::Large(number) => self.pool.give_large(self.pool.large.data(number as u32)),
        }
    }

    #[inline]
    fn set(&mut self, number: usize) {
        self.small[number / 64] |= 1 << (number % 64);
    }

    /// Whether the bit was set.
    #[inline]
    fn clear(&mut self, number: usize) -> bool {
        let (word, bit) = (&mut self.small[number / 64], 1 << (number % 64));
        let was_set = *word & bit != 0;
        *word &= !bit;
        was_set
    }

    /// Updates the pool's [usage](crate::usage). Meant to be called after a batch.
    #[inline]
    pub fn note(&mut self) {
        if self.noted != self.count {
            self.pool.lent.fetch_add(self.count.wrapping_sub(self.noted) as u64, Relaxed);
            self.noted = self.count;
        }
    }
}

impl Default for Lent {
    fn default() -> Lent {
        Lent::new()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for (index, word) in std::mem::take(&mut self.small).iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                self.free(Buffer::Small(index * 64 + word.trailing_zeros() as usize));
                word &= word - 1;
            }
        }
        for number in 0..self.large.len() {
            if self.large[number] != 0 {
                self.free(Buffer::Large(number));
            }
        }
        self.count = 0;
        self.note();
    }
}

const _: () = assert!(DATA_OFFSET > 0, "data never starts where its buffer does, as Class::number requires");

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{ANYONE, BufferUse, DATA_ROOM, LARGE_DATA_ROOM, buffer_use, free, take_large, usage};

    #[derive(Clone, Copy, Debug)]
    enum Step {
        LendFree(usize),
        LendPacket { large: bool, pieces: u8 },
        Take(usize, usize),
        End(usize, usize),
        Foreign(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0usize..40).prop_map(Step::LendFree),
            (any::<bool>(), 1u8..5).prop_map(|(large, pieces)| Step::LendPacket { large, pieces }),
            (any::<usize>(), 0..=DATA_ROOM).prop_map(|(which, at)| Step::Take(which, at)),
            (any::<usize>(), 0..=DATA_ROOM).prop_map(|(which, at)| Step::End(which, at)),
            any::<usize>().prop_map(Step::Foreign),
        ]
    }

    fn packet_buffer(large: bool) -> Option<usize> {
        if large { take_large(ANYONE) } else { Buffers::new(1).take() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Against a map of addresses: each lent buffer comes back as often as it must, others never do, the counts are
        /// those of packets, and at the end everything is free again.
        #[test]
        fn buffers_come_back_once(steps in proptest::collection::vec(step(), 1..60)) {
            let _alone = crate::lock::lock(&ALONE);
            crate::ensure().unwrap();
            let before = usage();
            let mut lent = Lent::new();
            // By the address of the data: pieces, and whether it is large.
            let mut model: BTreeMap<usize, (u8, bool)> = BTreeMap::new();
            let mut owned = Vec::new();
            for step in steps {
                let start = buffer_use();
                let mut expected = BufferUse::default();
                let nth = |model: &BTreeMap<usize, (u8, bool)>, which: usize| {
                    let at = which.checked_rem(model.len())?;
                    model.iter().nth(at).map(|(&data, &(pieces, large))| (data, pieces, large))
                };
                match step {
                    Step::LendFree(count) => {
                        let given = lent.lend_free(count, |data| {
                            assert!(model.insert(data, (1, false)).is_none(), "lent twice");
                        });
                        prop_assert_eq!(given, count);
                    }
                    Step::LendPacket { large, pieces } => {
                        let Some(data) = packet_buffer(large) else { continue };
                        // SAFETY: just taken, and nothing else refers to it.
                        unsafe { lent.lend(data, large, pieces) };
                        let pieces = if large { pieces } else { 1 };
                        prop_assert!(model.insert(data, (pieces, large)).is_none());
                        expected = BufferUse { taken: 1, freed: 1 };
                    }
                    Step::Take(which, at) => {
                        let Some((data, _, large)) = nth(&model, which) else { continue };
                        let taken = lent.take(data + at);
                        prop_assert_eq!(taken, (!large).then_some(data));
                        if !large {
                            model.remove(&data);
                            owned.push(data);
                            prop_assert_eq!(lent.take(data + at), None, "twice");
                            expected = BufferUse { taken: 1, freed: 0 };
                        }
                    }
                    Step::End(which, at) => {
                        let Some((data, pieces, large)) = nth(&model, which) else { continue };
                        let scale = if large { LARGE_DATA_ROOM / DATA_ROOM } else { 1 };
                        prop_assert!(lent.end(data + at * scale));
                        if pieces == 1 {
                            model.remove(&data);
                            prop_assert!(!lent.end(data + at), "twice");
                        } else {
                            model.insert(data, (pieces - 1, large));
                        }
                    }
                    Step::Foreign(address) => {
                        let area = crate::area();
                        let outside = if address % 2 == 0 { address % area.start } else { area.start + area.length + 1 };
                        prop_assert!(!lent.end(outside) && lent.take(outside).is_none());
                    }
                }
                prop_assert_eq!(buffer_use().since(start), expected, "{:?}", step);
                prop_assert_eq!(lent.count(), model.len());
            }
            drop(lent);
            for data in owned {
                // SAFETY: taken back above, so this test owns the buffer.
                unsafe { free(data, false) };
            }
            prop_assert_eq!(usage(), before);
        }
    }

    /// The tests here compare the use of the whole pool.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn a_borrower_that_ends_gives_everything_back() {
        let _alone = crate::lock::lock(&ALONE);
        crate::ensure().unwrap();
        let before = usage();
        let mut lent = Lent::new();
        lent.lend_free(1_000, |_| {});
        assert_eq!(usage().lent, before.lent);
        let large = take_large(ANYONE).unwrap();
        // SAFETY: just taken.
        unsafe { lent.lend(large, true, 3) };
        lent.note();
        assert_eq!((usage().lent, usage().in_use), (before.lent + 1_001, before.in_use));
        assert_eq!(usage().large_in_use, before.large_in_use + 1);
        drop(lent);
        assert_eq!(usage(), before);
    }
}
