//! Vectors of packets: the contents of links, and what apps work on.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

use bellows_arena as arena;

use bellows_sys::cache::{LINE, lines, prefetch, prefetch_to_write};

use crate::packet::Packet;

mod whole;

pub use whole::{Template, free_all, push_copies, push_filled};

/// Maximum number of packets in a vector, and so in a link.
pub const CAPACITY: usize = 1_024;

/// Slots behind the last that a prefetch may read: they hold old handles or zeros.
const SLACK: usize = 64;

/// The number of packets that [`Vector::scatter`] moves together if they go to one vector: packets of a flow often come
/// in a row, and each store of a vector's end would wait for the one before.
const RUN: usize = 4;

/// The number of vectors whose ends [`Vector::scatter`] keeps on the stack. With more, it takes longer to copy these than to
/// push packet by packet.
const MAX_LANES: usize = 32;

/// From this number on, [`Vector::scatter`] writes to different lines of empty vectors: their blocks begin at pages, so that
/// the first lines of all share a cache set, of 8 or 12 lines.
const MANY: usize = 8;

/// How many lines further the packets of each vector begin than those of the one before, and the number of lines after which
/// they begin in front again.
const LINES_APART: usize = 7;
const LINES: usize = 32;

/// Packets that are being added to a vector.
#[derive(Clone, Copy)]
struct Lane {
    /// The next free slot.
    slot: *mut Packet,
    /// The sum of the added packets' lengths.
    bytes: u64,
}

impl Lane {
    /// Copies handles to the end.
    ///
    /// # Safety
    /// `from` points at as many packets, which nobody owns afterwards but the vector; it has room for them.
    #[inline(always)]
    unsafe fn write<const COUNT: usize>(&mut self, from: *const Packet) {
        // SAFETY: the caller's promise.
        unsafe {
            from.copy_to_nonoverlapping(self.slot, COUNT);
            self.slot = self.slot.add(COUNT);
            self.bytes += (0..COUNT).map(|index| (*from.add(index)).len() as u64).sum::<u64>();
        }
    }
}

/// The lane with a number.
///
/// # Safety
/// There is such a lane, and it has been written.
#[inline(always)]
unsafe fn lane(lanes: &mut [MaybeUninit<Lane>; MAX_LANES], number: u16) -> &mut Lane {
    // SAFETY: the caller's promise.
    unsafe { lanes.get_unchecked_mut(usize::from(number)).assume_init_mut() }
}

/// Bytes of a vector's block. The block begins at a page; magazines of free buffers lie in the second half of theirs.
const SIZE: usize = (CAPACITY + SLACK) * size_of::<Packet>();

/// An array of up to [`CAPACITY`] packets, and the sum of their lengths.
///
/// Packets are added at the end and taken from the front. A vector can also have [no memory](Vector::none): it then
/// holds no packets and accepts none.
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

// SAFETY: as for the vector that it came from.
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

    /// Turns an empty vector into its memory: one word, cheaper to store than a vector. `None` for a vector without
    /// memory, or for one that holds packets, which are then freed.
    #[inline(always)]
    pub fn into_memory(self) -> Option<VectorMemory> {
        if self.is_none() || !self.is_empty() {
            return None;
        }
        let memory = VectorMemory(self.slots);
        mem::forget(self);
        Some(memory)
    }

    /// The number of packets.
    #[inline(always)]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether the vector holds no packets.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The sum of the packets' lengths.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of packets that can be pushed before [`Vector::compact`].
    #[inline(always)]
    pub fn room(&self) -> usize {
        CAPACITY - self.end as usize
    }

    /// Moves the packets to the front of the memory, so that all free slots are behind them.
    #[inline(always)]
    pub fn compact(&mut self) {
        if self.start != 0 && !self.is_none() {
            self.move_to_front();
        }
    }

    #[cold]
    fn move_to_front(&mut self) {
        // SAFETY: both ranges lie in the slots; copy_to() allows overlap. The handles left behind are outside
        // start..end and so are not owned twice.
        unsafe { self.slots.add(self.start as usize).copy_to(self.slots, self.len()) };
        self.end -= self.start;
        self.start = 0;
    }

    /// The packets, oldest first.
    #[inline(always)]
    pub fn as_slice(&self) -> &[Packet] {
        // SAFETY: start..end hold packets. Without memory the range is empty and the pointer dangling but aligned;
        // front() does not add to it.
        unsafe { std::slice::from_raw_parts(self.front(), self.len()) }
    }

    /// The packets, mutable.
    ///
    /// Call [`Vector::recount`] if their lengths change.
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
        // SAFETY: start <= CAPACITY, so this is inside the slots or the slack behind them.
        unsafe { self.slots.as_ptr().add(self.start as usize) }
    }

    /// Adds a packet at the end. Hot.
    ///
    /// # Errors
    /// The packet itself, if [`Vector::room`] is 0.
    #[inline(always)]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.end == CAPACITY as u32 {
            return Err(packet);
        }
        self.bytes += packet.len() as u64;
        // SAFETY: end < CAPACITY, which is never true without memory; the slot holds no packet.
        unsafe { self.slots.add(self.end as usize).write(packet) };
        self.end += 1;
        Ok(())
    }

    /// Takes up to `max` packets from the front. Packets that the iterator does not yield stay in the vector.
    #[inline(always)]
    pub fn drain(&mut self, max: usize) -> Drain<'_> {
        let next = self.front();
        let count = self.len().min(max);
        // SAFETY: count <= len, so the end is inside the slots or just behind the last of them.
        let end = unsafe { next.add(count) };
        // Until the iterator is dropped the vector owns none of the packets: forgetting the iterator leaks them.
        self.start = self.end;
        Drain { next, end, vector: self, ahead: 0, _packets: PhantomData }
    }

    /// Moves up to `max` packets from the front of `other` to the end of this vector, as many as fit.
    ///
    /// Returns the number of packets moved. Swaps the memory of the two vectors where possible.
    #[inline]
    pub fn append(&mut self, other: &mut Vector, max: usize) -> usize {
        let all = other.len();
        if self.is_empty() && max >= all && !self.is_none() && !other.is_none() {
            self.start = 0;
            self.end = 0;
            mem::swap(self, other);
            return all;
        }
        self.append_copied(other, max)
    }

    /// As [`append`](Vector::append), but each vector keeps its memory: copies the handles.
    pub fn append_copied(&mut self, other: &mut Vector, max: usize) -> usize {
        self.compact();
        let count = other.len().min(max).min(self.room());
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
            // All slots are free again.
            other.forget_all();
        }
        count
    }

    /// Moves packets from the front to the ends of other vectors: the first to the vector with the first of these
    /// numbers, and so on, as many as there are numbers. Returns the number of packets moved: fewer if the vector of a
    /// packet is full. Hot.
    ///
    /// # Panics
    /// If there is no vector with one of the numbers.
    #[inline]
    pub fn scatter(&mut self, numbers: &[u16], vectors: &mut [Vector]) -> usize {
        let count = numbers.len().min(self.len());
        if count == 0 {
            return 0;
        }
        let numbers = &numbers[..count];
        let most = numbers.iter().fold(0, |most, &number| most.max(number));
        assert!(usize::from(most) < vectors.len(), "there is no vector {most}");
        let (first, different) = (numbers[0], different(numbers));
        if different == 0 {
            return vectors[usize::from(first)].append(self, count);
        }
        let are_spread = vectors.len() >= MANY && count <= CAPACITY / 2;
        if are_spread {
            for (index, vector) in vectors.iter_mut().enumerate() {
                vector.begin_at(index * LINES_APART % LINES * (LINE / size_of::<Packet>()));
            }
        }
        // SAFETY: there are no more numbers than packets, and a vector for each, as asserted.
        let moved = unsafe { self.scatter_to(vectors, numbers, [first, first ^ different]) };
        if are_spread {
            vectors.iter_mut().for_each(|vector| vector.begin_at(0));
        }
        moved
    }

    /// Sets the first slot that an empty vector uses.
    #[inline(always)]
    fn begin_at(&mut self, slot: usize) {
        if self.is_empty() && !self.is_none() {
            (self.start, self.end) = (slot as u32, slot as u32);
        }
    }

    /// As [`Vector::scatter`]. If the numbers are but two, they are `two`.
    ///
    /// # Safety
    /// There are no more numbers than packets, and there is a vector for each.
    #[inline(always)]
    unsafe fn scatter_to(&mut self, vectors: &mut [Vector], numbers: &[u16], two: [u16; 2]) -> usize {
        let count = numbers.len();
        if vectors.len() > MAX_LANES || vectors.iter().any(|vector| vector.room() < count) {
            return self.scatter_some(numbers, vectors);
        }
        if are_two(numbers, two)
            && let Ok([first, second]) = vectors.get_disjoint_mut(two.map(usize::from))
        {
            // SAFETY: both have room for all packets.
            unsafe { self.scatter_to_two(numbers, two[0], [first, second]) };
            return count;
        }
        let mut lanes = [const { MaybeUninit::<Lane>::uninit() }; MAX_LANES];
        for (lane, vector) in lanes.iter_mut().zip(vectors.iter_mut()) {
            lane.write(Lane { slot: vector.free_slots(), bytes: 0 });
        }
        let mut next: *const Packet = self.front();
        let (groups, rest) = numbers.as_chunks::<RUN>();
        // SAFETY: `next` walks over `count` packets of this vector, which no longer owns them afterwards. Each number is
        // that of a vector, as the caller promises, and so of a lane that has been written. Each vector has room for all
        // packets, so it has memory, which it shares with no other.
        unsafe {
            for group in groups {
                if group.iter().rev().fold(0, |word, &number| word << 16 | u64::from(number))
                    == u64::from(group[0]) * 0x0001_0001_0001_0001
                {
                    lane(&mut lanes, group[0]).write::<RUN>(next);
                } else {
                    for (index, &number) in group.iter().enumerate() {
                        lane(&mut lanes, number).write::<1>(next.add(index));
                    }
                }
                next = next.add(RUN);
            }
            for (index, &number) in rest.iter().enumerate() {
                lane(&mut lanes, number).write::<1>(next.add(index));
            }
            for (lane, vector) in lanes.iter().zip(vectors) {
                let Lane { slot, bytes } = lane.assume_init();
                let count = slot.offset_from_unsigned(vector.free_slots());
                vector.pushed(count, bytes);
            }
        }
        self.moved_out(count);
        count
    }

    /// As [`Vector::scatter`], to two vectors: packets with the number `to_first` go to the first one, all others to the
    /// second one. Each handle is written to both, and remains in one. There is nothing to predict, and no end to load
    /// that has just been stored.
    ///
    /// # Safety
    /// There are no more numbers than packets, and both vectors have room for all of them.
    #[inline(always)]
    unsafe fn scatter_to_two(&mut self, numbers: &[u16], to_first: u16, vectors: [&mut Vector; 2]) {
        let mut next: *const Packet = self.front();
        let [mut first, mut second] = [0usize, 0];
        let [mut all_bytes, mut second_bytes] = [0u64, 0];
        let slots = [vectors[0].free_slots(), vectors[1].free_slots()];
        // SAFETY: `next` walks over as many packets of this vector as there are numbers, which it no longer owns
        // afterwards. `first` and `second` count the packets before, so they are less than the room.
        unsafe {
            for &number in numbers {
                let length = (*next).len() as u64;
                next.copy_to_nonoverlapping(slots[0].add(first), 1);
                next.copy_to_nonoverlapping(slots[1].add(second), 1);
                let is_second = usize::from(number != to_first);
                first += 1 - is_second;
                second += is_second;
                all_bytes += length;
                second_bytes += length & (is_second as u64).wrapping_neg();
                next = next.add(1);
            }
            let [to_first, to_second] = vectors;
            to_first.pushed(first, all_bytes - second_bytes);
            to_second.pushed(second, second_bytes);
        }
        self.moved_out(numbers.len());
    }

    /// Gives up packets at the front, which other vectors own now.
    #[inline(always)]
    pub(crate) fn moved_out(&mut self, count: usize) {
        self.start += count as u32;
        if self.start == self.end {
            self.forget_all();
        } else {
            recount(self);
        }
    }

    /// As [`Vector::scatter`], packet by packet, up to the first whose vector is full.
    #[inline(never)]
    fn scatter_some(&mut self, numbers: &[u16], vectors: &mut [Vector]) -> usize {
        let mut numbers = numbers.iter().map(|&number| usize::from(number));
        let mut moved = 0;
        let mut packets = self.drain(usize::MAX);
        while let Some(number) = numbers.next().filter(|&number| vectors[number].room() > 0) {
            let Some(packet) = packets.next() else { break };
            // There is room.
            let _ = vectors[number].push(packet);
            moved += 1;
        }
        moved
    }

    /// The free slots behind the last packet; their number is [`Vector::room`].
    #[inline(always)]
    pub(crate) fn free_slots(&mut self) -> *mut Packet {
        // SAFETY: end <= CAPACITY. Without memory there is no room, and the callers do not call this.
        unsafe { self.slots.as_ptr().add(self.end as usize) }
    }

    /// Adds packets that were written into the free slots.
    ///
    /// # Safety
    /// The first `count` free slots hold packets that nothing else owns, of `bytes` bytes in total.
    #[inline(always)]
    pub(crate) unsafe fn pushed(&mut self, count: usize, bytes: u64) {
        self.end += count as u32;
        self.bytes += bytes;
    }

    /// Prefetches the packet handles, which another thread has written.
    #[inline(always)]
    pub fn prefetch_handles(&self) {
        lines(self.front().cast(), self.len() * size_of::<Packet>()).for_each(prefetch);
    }

    /// Prefetches the slots of this many packets in an empty vector, which another thread has used, for writing: a
    /// processor commits stores in order, so that the lines would arrive one after the other.
    #[inline(always)]
    pub fn prefetch_slots(&self, packets: usize) {
        if !self.is_none() {
            lines(self.slots.as_ptr().cast(), packets * size_of::<Packet>()).for_each(prefetch_to_write);
        }
    }

    /// Empties the vector without freeing: the buffers have been returned to the pool.
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

/// Frees the packets and the memory of a vector that is dropped.
///
/// By value, so that a vector dropped while a loop unwinds can live in registers until then.
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

/// Iterator over packets taken from the front of a vector; made by [`Vector::drain`].
pub struct Drain<'a> {
    next: *mut Packet,
    end: *mut Packet,
    vector: &'a mut Vector,
    ahead: usize,
    _packets: PhantomData<Packet>,
}

impl Drain<'_> {
    /// Prefetches the data of the packet `distance` places ahead (at most 64) each time a packet is yielded; 0 turns
    /// this off.
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
        // SAFETY: next < end <= slots + CAPACITY, checked here, and ahead <= SLACK: next + ahead lies inside the slots
        // and their slack, memory that the arena zeroed. A vector without memory has next == end.
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
        // SAFETY: next < end, so the slot holds a packet that nothing else owns; advancing `next` gives up the slot.
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
        // SAFETY: both pointers lie in the slots, and next is not before the first slot.
        self.vector.start = unsafe { self.next.offset_from_unsigned(self.vector.slots.as_ptr()) } as u32;
        if self.vector.is_empty() {
            self.vector.forget_all();
        } else {
            recount(self.vector);
        }
    }
}

/// The bits in which numbers differ from the first one.
#[inline(always)]
fn different(numbers: &[u16]) -> u16 {
    numbers.iter().fold(0, |different, &number| different | (number ^ numbers[0]))
}

/// Whether a list has only these two numbers.
#[inline(always)]
fn are_two(numbers: &[u16], [first, second]: [u16; 2]) -> bool {
    numbers.iter().fold(true, |all, &number| all & ((number == first) | (number == second)))
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
        Drain {
            max: usize,
            taken: usize,
        },
        Append {
            to_second: bool,
            max: usize,
        },
        Compact,
        FreeAll,
        Truncate(usize),
        /// To this number of vectors, of which the second one is the test's.
        Scatter(usize, Vec<u16>),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => any::<u8>().prop_map(Step::Push),
            3 => (0usize..50, 0usize..50).prop_map(|(max, taken)| Step::Drain { max, taken }),
            2 => (any::<bool>(), 0usize..60).prop_map(|(to_second, max)| Step::Append { to_second, max }),
            1 => Just(Step::Append { to_second: true, max: usize::MAX }),
            1 => Just(Step::Compact),
            1 => Just(Step::FreeAll),
            1 => (0usize..40).prop_map(Step::Truncate),
            3 => scatter(2),
            3 => scatter(3),
        ]
    }

    fn scatter(vectors: usize) -> impl Strategy<Value = Step> {
        let some = proptest::collection::vec(prop_oneof![3 => Just(1u16), 1 => 0..vectors as u16], 0..60);
        let of_two = ([0..vectors as u16, 0..vectors as u16], proptest::collection::vec(0..2usize, 0..60));
        let two = of_two.prop_map(|(two, which)| which.into_iter().map(|at| two[at]).collect::<Vec<u16>>());
        prop_oneof![some, two].prop_map(move |numbers| Step::Scatter(vectors, numbers))
    }

    fn lengths(vector: &Vector) -> VecDeque<usize> {
        vector.as_slice().iter().map(Packet::len).collect()
    }

    proptest! {
        /// Two vectors behave like two queues of packet lengths, and their byte totals are right.
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
                    Step::Drain { max, taken } => {
                        let expected: Vec<usize> = model.drain(..taken.min(max).min(model.len())).collect();
                        let drained: Vec<usize> =
                            first.drain(max).prefetching(max % 9).take(taken).map(|packet| packet.len()).collect();
                        prop_assert_eq!(drained, expected);
                    }
                    Step::Append { to_second, max } => {
                        let (from, to, from_model, to_model) = match to_second {
                            true => (&mut first, &mut second, &mut model, &mut second_model),
                            false => (&mut second, &mut first, &mut second_model, &mut model),
                        };
                        let room = CAPACITY - to.len();
                        let moved = to.append(from, max);
                        prop_assert_eq!(moved, from_model.len().min(max).min(room));
                        to_model.extend(from_model.drain(..moved));
                    }
                    Step::Scatter(count, numbers) => {
                        let mut vectors = [Vector::new(), Vector::new(), Vector::new()];
                        mem::swap(&mut vectors[1], &mut second);
                        vectors[1].compact();
                        let (mut rooms, mut models) = ([CAPACITY, CAPACITY - second_model.len(), CAPACITY], [(); 3].map(|()| VecDeque::new()));
                        mem::swap(&mut models[1], &mut second_model);
                        let mut expected = 0;
                        for &number in &numbers {
                            let number = usize::from(number);
                            if rooms[number] == 0 { break }
                            let Some(length) = model.pop_front() else { break };
                            rooms[number] -= 1;
                            models[number].push_back(length);
                            expected += 1;
                        }
                        prop_assert_eq!(first.scatter(&numbers, &mut vectors[..count]), expected);
                        for (vector, model) in vectors.iter().zip(&models) {
                            prop_assert_eq!(&lengths(vector), model);
                            prop_assert_eq!(vector.bytes(), model.iter().sum::<usize>() as u64);
                        }
                        [_, second, _] = vectors;
                        [_, second_model, _] = models;
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

    proptest! {
        /// Packets find their vectors, in order, whatever the number of vectors.
        #[test]
        fn packets_are_scattered_to_any_number_of_vectors(
            (count, numbers) in (1usize..70).prop_flat_map(|count| {
                (Just(count), proptest::collection::vec(0..count as u16, 0..200))
            }),
        ) {
            let mut vector = Vector::new();
            for index in 0..numbers.len() {
                vector.push(Packet::from_bytes(&vec![0; index + 1]).unwrap()).unwrap();
            }
            let mut vectors: Vec<Vector> = (0..count).map(|_| Vector::new()).collect();
            prop_assert_eq!(vector.scatter(&numbers, &mut vectors), numbers.len());
            prop_assert_eq!((vector.len(), vector.bytes()), (0, 0));
            for (number, vector) in (0..).zip(&vectors) {
                let indexes = (0..numbers.len()).filter(|&index| numbers[index] == number);
                let expected: Vec<usize> = indexes.map(|index| index + 1).collect();
                prop_assert_eq!(vector.bytes(), expected.iter().sum::<usize>() as u64);
                prop_assert_eq!(lengths(vector), expected);
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
    #[should_panic(expected = "there is no vector 2")]
    fn packets_are_not_scattered_to_missing_vectors() {
        let mut vector = Vector::new();
        vector.push(Packet::from_bytes(b"x").unwrap()).unwrap();
        vector.scatter(&[2], &mut [Vector::new(), Vector::new()]);
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
