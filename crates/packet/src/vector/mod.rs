//! A vector of packets: what a link holds, and what apps work on.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;

use bellows_arena as arena;

use crate::packet::{Packet, prefetch};

mod whole;

pub use whole::{Template, free_all, push_copies, push_filled};

/// The most packets that a vector, and so a link, holds.
pub const CAPACITY: usize = 1_024;

/// Slots behind the last that a prefetch may look at: they hold handles of long ago, or zeros.
const SLACK: usize = 64;

/// Bytes of a vector's block, which begins at a page: see the magazines of free buffers, which lie in the second half
/// of theirs.
const SIZE: usize = (CAPACITY + SLACK) * size_of::<Packet>();

/// Up to [`CAPACITY`] packets in a row, and the sum of their lengths.
///
/// Packets are added at the end and taken from the front. A vector can also have [no memory](Vector::none): it
/// then holds nothing and takes nothing.
///
/// Invariants: `start <= end <= CAPACITY`; the slots `start..end` hold packets that the vector owns; `bytes` is
/// the sum of their lengths; without memory, `start == end == CAPACITY`.
pub struct Vector {
    slots: NonNull<Packet>,
    start: u32,
    end: u32,
    bytes: u64,
}

// SAFETY: a vector owns its slots and the packets in them, and packets may be sent.
unsafe impl Send for Vector {}

/// The memory of an empty vector.
pub struct VectorMemory(NonNull<Packet>);

// SAFETY: as for the vector that it was.
unsafe impl Send for VectorMemory {}

impl From<VectorMemory> for Vector {
    #[inline(always)]
    fn from(memory: VectorMemory) -> Vector {
        let slots = memory.0;
        mem::forget(memory);
        Vector { slots, start: 0, end: 0, bytes: 0 }
    }
}

impl Drop for VectorMemory {
    fn drop(&mut self) {
        drop(Vector { slots: self.0, start: 0, end: 0, bytes: 0 });
    }
}

impl Vector {
    /// An empty vector.
    pub fn new() -> Vector {
        Vector { slots: arena::take(SIZE).cast(), start: 0, end: 0, bytes: 0 }
    }

    /// A vector without memory.
    #[inline(always)]
    pub const fn none() -> Vector {
        Vector { slots: NonNull::dangling(), start: CAPACITY as u32, end: CAPACITY as u32, bytes: 0 }
    }

    /// Whether this vector has no memory.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        self.slots == NonNull::dangling()
    }

    /// Takes an empty vector apart, down to its memory: one word, which is quicker to put away than a vector. `None`
    /// for a vector without memory, or one that holds packets, which it then frees.
    #[inline(always)]
    pub fn into_memory(self) -> Option<VectorMemory> {
        if self.is_none() || !self.is_empty() {
            return None;
        }
        let memory = VectorMemory(self.slots);
        mem::forget(self);
        Some(memory)
    }

    /// How many packets it holds.
    #[inline(always)]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it holds no packet.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The sum of the packets' lengths.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many packets can be pushed before [`Vector::compact`].
    #[inline(always)]
    pub fn room(&self) -> usize {
        CAPACITY - self.end as usize
    }

    /// Moves the packets to the front of the memory, so that all room is behind them.
    #[inline(always)]
    pub fn compact(&mut self) {
        if self.start != 0 && !self.is_none() {
            self.move_to_front();
        }
    }

    #[cold]
    fn move_to_front(&mut self) {
        // SAFETY: both ranges lie in the slots; copy() allows that they overlap. The handles left behind are
        // outside start..end and so are not owned twice.
        unsafe { self.slots.add(self.start as usize).copy_to(self.slots, self.len()) };
        self.end -= self.start;
        self.start = 0;
    }

    /// The packets, the oldest first.
    #[inline(always)]
    pub fn as_slice(&self) -> &[Packet] {
        // SAFETY: start..end hold packets (or is empty, with a dangling but aligned pointer; adding to it stays
        // within no allocation, so it is not added to then).
        unsafe { std::slice::from_raw_parts(self.front(), self.len()) }
    }

    /// The packets, to be changed in place.
    ///
    /// Their lengths may change: [`Vector::recount`] afterwards.
    #[inline(always)]
    pub fn as_mut_slice(&mut self) -> &mut [Packet] {
        // SAFETY: as for as_slice, and the vector is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.front(), self.len()) }
    }

    /// Sums the lengths again, after packets were changed in place.
    pub fn recount(&mut self) {
        self.bytes = self.as_slice().iter().map(|packet| packet.len() as u64).sum();
    }

    #[inline(always)]
    fn front(&self) -> *mut Packet {
        if self.is_none() {
            return self.slots.as_ptr();
        }
        // SAFETY: start <= CAPACITY, so this is inside the slots or one of the slack behind them.
        unsafe { self.slots.as_ptr().add(self.start as usize) }
    }

    /// Adds a packet at the end; gives it back if there is no room. Hot.
    ///
    /// # Errors
    /// The packet itself, when [`Vector::room`] is 0.
    #[inline(always)]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.end == CAPACITY as u32 {
            return Err(packet);
        }
        self.bytes += packet.len() as u64;
        // SAFETY: end < CAPACITY, which is never so without memory; the slot holds no packet.
        unsafe { self.slots.add(self.end as usize).write(packet) };
        self.end += 1;
        Ok(())
    }

    /// Takes packets from the front: at most `most` of them. Those that the iterator does not yield stay.
    #[inline(always)]
    pub fn drain(&mut self, most: usize) -> Drain<'_> {
        let next = self.front();
        let count = self.len().min(most);
        // SAFETY: count <= len, so the end is inside the slots or just behind the last of them.
        let end = unsafe { next.add(count) };
        // Until the iterator is dropped the vector owns none of them: forgetting the iterator leaks them.
        self.start = self.end;
        Drain { next, end, vector: self, ahead: 0, _packets: PhantomData }
    }

    /// Moves up to `most` packets from the front of `other` to the end of this one, as many as fit.
    ///
    /// Returns how many. Swaps the memory of the two if that does it.
    #[inline]
    pub fn append(&mut self, other: &mut Vector, most: usize) -> usize {
        let all = other.len();
        if self.is_empty() && most >= all && !self.is_none() && !other.is_none() {
            self.start = 0;
            self.end = 0;
            mem::swap(self, other);
            return all;
        }
        self.append_copied(other, most)
    }

    fn append_copied(&mut self, other: &mut Vector, most: usize) -> usize {
        self.compact();
        let count = other.len().min(most).min(self.room());
        if count == 0 {
            return 0;
        }
        let bytes = match count == other.len() {
            true => other.bytes,
            false => other.as_slice()[..count].iter().map(|packet| packet.len() as u64).sum(),
        };
        // SAFETY: count packets lie at the front of other and count slots are free behind the end of self; two
        // vectors never share memory. The handles left behind are outside other's start..end after this.
        unsafe { other.front().copy_to_nonoverlapping(self.slots.as_ptr().add(self.end as usize), count) };
        self.end += count as u32;
        self.bytes += bytes;
        other.start += count as u32;
        other.bytes -= bytes;
        if other.start == other.end {
            // All room is in front again.
            other.forget_all();
        }
        count
    }

    /// The slots behind the last packet, as many as there is [`Vector::room`].
    #[inline(always)]
    pub(crate) fn free_slots(&mut self) -> *mut Packet {
        // SAFETY: end <= CAPACITY. Without memory there is no room, and nobody asks.
        unsafe { self.slots.as_ptr().add(self.end as usize) }
    }

    /// Takes possession of packets that were written into the free slots.
    ///
    /// # Safety
    /// The first `count` free slots hold packets that nobody else owns, of `bytes` bytes together.
    #[inline(always)]
    pub(crate) unsafe fn pushed(&mut self, count: usize, bytes: u64) {
        self.end += count as u32;
        self.bytes += bytes;
    }

    /// Ends the ownership of all packets: their buffers have been given back.
    #[inline(always)]
    pub(crate) fn forget_all(&mut self) {
        if !self.is_none() {
            self.start = 0;
            self.end = 0;
            self.bytes = 0;
        }
    }
}

impl Default for Vector {
    fn default() -> Vector {
        Vector::new()
    }
}

impl Drop for Vector {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.is_none() {
            let Vector { slots, start, end, bytes } = *self;
            release(ManuallyDrop::new(Vector { slots, start, end, bytes }));
        }
    }
}

/// Frees the packets and the memory of a vector that is being dropped.
///
/// By value, so that a vector that is dropped when a loop unwinds can live in registers until then.
#[cold]
#[inline(never)]
fn release(mut vector: ManuallyDrop<Vector>) {
    free_all(&mut vector);
    // SAFETY: the slots were taken with this size by new(), and the vector is not used again.
    unsafe { arena::give(vector.slots.cast(), SIZE) };
}

impl fmt::Debug for Vector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.as_slice()).finish()
    }
}

/// Packets taken from the front of a vector one by one; made by [`Vector::drain`].
pub struct Drain<'a> {
    next: *mut Packet,
    end: *mut Packet,
    vector: &'a mut Vector,
    ahead: usize,
    _packets: PhantomData<Packet>,
}

impl Drain<'_> {
    /// Fetches the data of the packet `distance` places ahead (at most 64) each time a packet is yielded; 0 does not.
    #[inline(always)]
    pub fn prefetching(mut self, distance: usize) -> Self {
        self.ahead = distance.min(SLACK);
        if self.ahead > 0 {
            for index in 0..self.ahead {
                self.prefetch(index);
            }
        }
        self
    }

    #[inline(always)]
    fn prefetch(&self, ahead: usize) {
        // SAFETY: next < end <= slots + CAPACITY when this is called with ahead > 0 or from prefetching() with a
        // vector of any length: next + ahead lies inside the slots and their slack of 64 (ahead <= 64), memory
        // that the arena zeroed. A vector without memory is excluded by next == end.
        unsafe {
            if self.next < self.end {
                let address = self.next.add(ahead).cast::<*const u8>().read();
                prefetch(address);
            }
        }
    }
}

impl Iterator for Drain<'_> {
    type Item = Packet;

    #[inline(always)]
    fn next(&mut self) -> Option<Packet> {
        if self.next == self.end {
            return None;
        }
        if self.ahead > 0 {
            self.prefetch(self.ahead);
        }
        // SAFETY: next < end, so the slot holds a packet that nobody else owns; advancing gives it up.
        unsafe {
            let packet = self.next.read();
            self.next = self.next.add(1);
            Some(packet)
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        // SAFETY: both pointers lie in one allocation (or are equal), next not behind end.
        let left = unsafe { self.end.offset_from_unsigned(self.next) };
        (left, Some(left))
    }
}

impl ExactSizeIterator for Drain<'_> {}
impl FusedIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.vector.is_none() {
            return;
        }
        // SAFETY: both pointers lie in the slots, next not before the first of them.
        self.vector.start = unsafe { self.next.offset_from_unsigned(self.vector.slots.as_ptr()) } as u32;
        if self.vector.is_empty() {
            self.vector.forget_all();
        } else {
            recount(self.vector);
        }
    }
}

#[cold]
fn recount(vector: &mut Vector) {
    vector.recount();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u8),
        Drain { most: usize, taken: usize },
        Append { to_second: bool, most: usize },
        Compact,
        FreeAll,
        Truncate(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => any::<u8>().prop_map(Step::Push),
            3 => (0usize..50, 0usize..50).prop_map(|(most, taken)| Step::Drain { most, taken }),
            2 => (any::<bool>(), 0usize..60).prop_map(|(to_second, most)| Step::Append { to_second, most }),
            1 => Just(Step::Append { to_second: true, most: usize::MAX }),
            1 => Just(Step::Compact),
            1 => Just(Step::FreeAll),
            1 => (0usize..40).prop_map(Step::Truncate),
        ]
    }

    fn lengths(vector: &Vector) -> VecDeque<usize> {
        vector.as_slice().iter().map(Packet::len).collect()
    }

    proptest! {
        /// Two vectors behave as two queues of packet lengths do, and their byte totals hold.
        #[test]
        fn vectors_behave_as_queues(steps in proptest::collection::vec((step(), 1usize..90), 1..60)) {
            let (mut first, mut second) = (Vector::new(), Vector::new());
            let (mut model, mut second_model) = (VecDeque::<usize>::new(), VecDeque::<usize>::new());
            for (step, repeat) in steps {
                match step {
                    Step::Push(length) => for _ in 0..repeat {
                        let packet = Packet::from_bytes(&vec![length; length.into()]).unwrap();
                        if first.push(packet).is_ok() { model.push_back(length.into()) }
                        else { prop_assert_eq!(first.room(), 0) }
                    },
                    Step::Drain { most, taken } => {
                        let expected: Vec<usize> = model.drain(..taken.min(most).min(model.len())).collect();
                        let drained: Vec<usize> =
                            first.drain(most).prefetching(most % 9).take(taken).map(|packet| packet.len()).collect();
                        prop_assert_eq!(drained, expected);
                    }
                    Step::Append { to_second, most } => {
                        let (from, to, from_model, to_model) = match to_second {
                            true => (&mut first, &mut second, &mut model, &mut second_model),
                            false => (&mut second, &mut first, &mut second_model, &mut model),
                        };
                        let room = CAPACITY - to.len();
                        let moved = to.append(from, most);
                        prop_assert_eq!(moved, from_model.len().min(most).min(room));
                        to_model.extend(from_model.drain(..moved));
                    }
                    Step::Compact => { first.compact(); prop_assert_eq!(first.room(), CAPACITY - model.len()) }
                    Step::FreeAll => { free_all(&mut second); second_model.clear() }
                    Step::Truncate(length) => {
                        for packet in first.as_mut_slice() { packet.truncate(length) }
                        first.recount();
                        for expected in &mut model { *expected = length.min(*expected) }
                    }
                }
                prop_assert_eq!(lengths(&first), model.clone());
                prop_assert_eq!(lengths(&second), second_model.clone());
                prop_assert_eq!(first.bytes(), model.iter().sum::<usize>() as u64);
                prop_assert_eq!(second.bytes(), second_model.iter().sum::<usize>() as u64);
            }
        }
    }

    #[test]
    fn a_vector_without_memory_holds_and_takes_nothing() {
        let mut none = Vector::none();
        assert_eq!((none.len(), none.room(), none.drain(9).count()), (0, 0, 0));
        assert!(none.push(Packet::from_bytes(b"x").unwrap()).is_err());
        none.compact();
        free_all(&mut none);
        assert!(none.is_none() && none.as_slice().is_empty());
        let mut filled = Vector::new();
        filled.push(Packet::from_bytes(b"xy").unwrap()).unwrap();
        assert_eq!(none.append(&mut filled, 9), 0);
        assert_eq!(filled.append(&mut none, 9), 0);
        let mut empty = Vector::new();
        assert_eq!(empty.append(&mut none, 9), 0);
        assert!(!empty.is_none(), "memory must not be swapped away");
        assert_eq!((filled.len(), filled.bytes()), (1, 2));
    }

    #[test]
    fn packets_that_a_drain_does_not_reach_stay_first_in_line() {
        let mut vector = Vector::new();
        for length in 1..=5 {
            vector.push(Packet::from_bytes(&vec![0; length]).unwrap()).unwrap();
        }
        for packet in vector.drain(usize::MAX) {
            if packet.len() == 2 {
                break;
            }
        }
        assert_eq!(lengths(&vector), [3, 4, 5]);
        assert_eq!(vector.bytes(), 12);
    }
}
