//! Buffers that are lent outside the process: to the kernel, which receives into them and sends from them.
//!
//! Apart from `Loans` of `bellows-packet`, because it counts and frees buffers, and this crate knows no packets.
//!
//! A lent buffer is neither free nor a packet's. A free buffer that is lent and comes back with a frame counts as taken
//! at that moment, because that is when a packet is made; a packet's buffer that is lent counts as freed, because that
//! is when the packet ends. So the counts of [`buffer_use`](crate::buffer_use) are those of packets.
//!
//! A borrower usually gives buffers back in the order in which it got them. So most are recorded in two queues, one of free
//! buffers and one of packets', and many come back by one comparison with the front of a queue. One that comes back before
//! others is searched for, and those before it are recorded in a table from then on. A buffer is in a queue or in a table.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use crate::DATA_OFFSET;
use crate::class::Class;
use crate::pool::{self, Pool};
use crate::thread::{free_uncounted, tally, with_cache, with_free_buffers};

/// The buffers that one borrower has.
///
/// The caller stops the borrower before it drops this: then the buffers are free again.
pub struct Lent {
    pool: &'static Pool,
    /// The addresses of data in ordinary buffers that were free, in the order in which they were lent.
    free: VecDeque<usize>,
    /// The same of ordinary buffers that were packets': anywhere in the buffer, or just behind.
    sent: VecDeque<usize>,
    /// A bit for each ordinary buffer that is in neither of them.
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
    /// A borrower that has no buffers yet. `capacity`: the number of ordinary buffers of each kind that it will usually
    /// have.
    pub fn new(capacity: usize) -> Lent {
        let pool = pool::get();
        let words = (pool.small.count as usize).div_ceil(64);
        let large = vec![0; pool.large.count as usize].into_boxed_slice();
        let [free, sent] = [0; 2].map(|_| VecDeque::with_capacity(capacity));
        Lent { pool, free, sent, small: vec![0; words].into_boxed_slice(), large, count: 0, noted: 0 }
    }

    /// Number of buffers that the borrower has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Lends up to `count` free ordinary buffers, as many as the pool has, and passes the addresses of their data to
    /// `give`, some at a time. Returns the number.
    #[inline]
    pub fn lend_free(&mut self, count: usize, mut give: impl FnMut(&[usize])) -> usize {
        let free = &mut self.free;
        let lent = with_free_buffers(count, |buffers, _| {
            free.extend(buffers);
            give(buffers);
        });
        // They were counted as taken, but hold no packets.
        tally(self.pool, |tally| &tally.taken, (lent as u64).wrapping_neg());
        self.count += lent;
        lent
    }

    /// The buffers lent by [`lend_free`](Lent::lend_free) that are expected back next: the addresses of their data, of one
    /// or more if there are any.
    #[inline]
    pub fn next_free(&self) -> &[usize] {
        self.free.as_slices().0
    }

    /// Takes the first `count` of [`next_free`](Lent::next_free) back, as [`take`](Lent::take) does.
    #[inline]
    pub fn take_next(&mut self, count: usize) {
        let count = self.free.drain(..count.min(self.free.len())).len();
        tally(self.pool, |tally| &tally.taken, count as u64);
        self.count -= count;
    }

    /// Lends the ordinary buffers of packets, which end with this: these are the addresses of their data.
    ///
    /// # Safety
    /// As for [`free`](crate::free), of each.
    #[inline]
    pub unsafe fn lend_all(&mut self, data: impl Iterator<Item = usize>) {
        let before = self.sent.len();
        self.sent.extend(data);
        let lent = self.sent.len() - before;
        tally(self.pool, |tally| &tally.freed, lent as u64);
        self.count += lent;
    }

    /// The buffers lent by [`lend_all`](Lent::lend_all) that are expected back next: the addresses of their data, of one or
    /// more if there are any.
    #[inline]
    pub fn next_sent(&self) -> &[usize] {
        self.sent.as_slices().0
    }

    /// Takes the first `count` of [`next_sent`](Lent::next_sent) back, as [`end`](Lent::end) does.
    #[inline]
    pub fn end_next(&mut self, count: usize) {
        let next = self.next_sent();
        let next = &next[..count.min(next.len())];
        let left = free_uncounted(next);
        for &data in &next[next.len() - left..] {
            self.pool.give_small(self.pool.small.reset(data));
        }
        let count = next.len();
        self.sent.drain(..count);
        self.count -= count;
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
        if !self.clear(number) && !self.remove(number) {
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
            let is_lent = self.clear(number) || self.remove(number);
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

    /// Removes the ordinary buffer with this number from its queue, and records those before it in the table. False if it is
    /// in none.
    fn remove(&mut self, number: usize) -> bool {
        let Lent { pool, free, sent, small, .. } = self;
        for queue in [free, sent] {
            if let Some(index) = queue.iter().position(|&data| pool.small.number(data) == number) {
                for earlier in queue.drain(..=index).take(index).map(|data| pool.small.number(data)) {
                    small[earlier / 64] |= 1 << (earlier % 64);
                }
                return true;
            }
        }
        false
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

impl Drop for Lent {
    fn drop(&mut self) {
        for queue in [&mut self.free, &mut self.sent].map(std::mem::take) {
            for data in queue {
                self.free(Buffer::Small(self.pool.small.number(data)));
            }
        }
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

/// Tests of loans compare the use of the whole pool.
#[cfg(test)]
pub(crate) static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{ANYONE, BufferUse, Buffers, DATA_ROOM, LARGE_DATA_ROOM, buffer_use, free, take_large, usage};

    #[derive(Clone, Copy, Debug)]
    enum Step {
        LendFree(usize),
        LendPacket { large: bool, pieces: u8 },
        LendPackets(usize),
        TakeNext(usize),
        EndNext(usize),
        Take(usize, usize),
        End(usize, usize),
        Foreign(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0usize..40).prop_map(Step::LendFree),
            (any::<bool>(), 1u8..5).prop_map(|(large, pieces)| Step::LendPacket { large, pieces }),
            (0usize..9).prop_map(Step::LendPackets),
            (0usize..9).prop_map(Step::TakeNext),
            (0usize..9).prop_map(Step::EndNext),
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
            let mut lent = Lent::new(4);
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
                        let given = lent.lend_free(count, |buffers| for &data in buffers {
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
                    Step::LendPackets(count) => {
                        let taken: Vec<usize> = (0..count).filter_map(|_| packet_buffer(false)).collect();
                        // SAFETY: just taken, and nothing else refers to them.
                        unsafe { lent.lend_all(taken.iter().enumerate().map(|(index, data)| data + index % 3 * DATA_ROOM / 2)) };
                        for &data in &taken {
                            prop_assert!(model.insert(data, (1, false)).is_none());
                        }
                        expected = BufferUse { taken: taken.len() as u64, freed: taken.len() as u64 };
                    }
                    Step::TakeNext(count) => {
                        let next = lent.next_free().to_vec();
                        let next = &next[..count.min(next.len())];
                        lent.take_next(next.len());
                        for data in next {
                            prop_assert!(model.remove(data).is_some());
                        }
                        owned.extend(next);
                        expected = BufferUse { taken: next.len() as u64, freed: 0 };
                    }
                    Step::EndNext(count) => {
                        let next = lent.next_sent().to_vec();
                        let next = &next[..count.min(next.len())];
                        lent.end_next(count);
                        for data in next {
                            prop_assert!(model.remove(&lent.pool.small.reset(*data)).is_some());
                        }
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

    #[test]
    fn a_borrower_that_ends_gives_everything_back() {
        let _alone = crate::lock::lock(&ALONE);
        crate::ensure().unwrap();
        let before = usage();
        let mut lent = Lent::new(0);
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
