//! Tests every kind of blitter against a model that copies byte by byte.

use super::*;
use crate::plan::{Impossible, Move, Plan};
use bellows_sys::simd::Simd;
use proptest::prelude::*;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// The value of bytes that no copy writes.
const GUARD: u8 = 0xee;

/// Blitters of every kind that the processor can run.
fn blitters() -> impl Iterator<Item = (&'static str, Blitter)> {
    let at_once = Simd::available().into_iter().map(|simd| (simd.name(), Blitter::with(simd)));
    at_once.chain([("memcpy", Blitter::how(How::Memcpy)), ("deferring", Blitter::deferring())])
}

/// Bytes that all differ from the guard.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8 % 200).collect()
}

/// The model of copies within one piece of memory: one after the other, byte by byte.
fn model(memory: &[u8], copies: &[(usize, usize, usize)]) -> Vec<u8> {
    let mut memory = memory.to_vec();
    for &(to, from, length) in copies {
        let bytes: Vec<u8> = (0..length).map(|at| memory[from + at]).collect();
        for (at, byte) in bytes.into_iter().enumerate() {
            memory[to + at] = byte;
        }
    }
    memory
}

/// The same with a blitter, with a barrier at the end and after every `batch`.
fn blitted(blitter: &mut Blitter, memory: &[u8], copies: &[(usize, usize, usize)], batch: usize) -> Vec<u8> {
    let mut memory = memory.to_vec();
    let start = memory.as_mut_ptr();
    for batch in copies.chunks(batch) {
        for &(to, from, length) in batch {
            assert!(to + length <= memory.len() && from + length <= memory.len());
            // SAFETY: both ranges are in the vector, which lives until the barrier.
            unsafe { blitter.copy(start.add(to), start.add(from), length) };
        }
        blitter.barrier();
    }
    memory
}

/// Under valgrind or a sanitizer, some of the alignments are enough.
fn step() -> usize {
    if std::env::var("PROPTEST_CASES").is_ok() { 7 } else { 1 }
}

#[test]
fn every_short_length_at_every_alignment() {
    let source = pattern(64 + 300);
    let mut destination = vec![GUARD; 64 + 300 + 64];
    for length in 0..=300 {
        for (name, mut blitter) in blitters() {
            for from in (0..64).step_by(step()) {
                let to = (from * 29 + length) % 64;
                // SAFETY: both vectors have room, and live until the barrier.
                unsafe { blitter.copy(destination.as_mut_ptr().add(to), source.as_ptr().add(from), length) };
                blitter.barrier();
                let (before, rest) = destination.split_at(to);
                let (copied, after) = rest.split_at(length);
                assert_eq!(copied, &source[from..from + length], "{length} bytes by {name}");
                assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "{length} bytes by {name}");
                destination[to..to + length].fill(GUARD);
            }
        }
    }
}

/// All lengths at which the method changes, alone and after another copy.
#[test]
fn long_copies_and_those_around_each_bound() {
    let around = [32, 64, 128, 192, 256, 512, 576, 1_500, 2_048, 4_096, 9_000, 65_535, 65_536, 100_000];
    let room = 100_200;
    let memory = [pattern(room), vec![GUARD; room]].concat();
    for length in around.into_iter().flat_map(|bound| [bound - 1, bound, bound + 1]) {
        for (name, mut blitter) in blitters() {
            let (to, from) = (room + length % 64 + 1, (length * 5) % 64);
            let copies = [(to, from, length)];
            let expected = model(&memory, &copies);
            assert!(blitted(&mut blitter, &memory, &copies, 1) == expected, "{length} bytes by {name}");
            let twice = [(room, room + 1, 1), copies[0]];
            assert!(blitted(&mut blitter, &memory, &twice, 2) == expected, "{length} bytes by {name}");
        }
    }
}

#[test]
fn every_short_length_may_overlap_itself() {
    let memory = pattern(2_000);
    for length in 0..=300 {
        let copies = [(0, 1_000, length), (500, 510, length), (910, 900, length)];
        let expected = model(&memory, &copies);
        for (name, mut blitter) in blitters() {
            assert!(blitted(&mut blitter, &memory, &copies, 1) == expected, "{length} bytes by {name}");
        }
    }
}

/// Lengths of packets, and some of any kind.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(60usize), 2 => Just(576), 1 => Just(1_500), 3 => 0..130usize, 2 => 0..2_200usize]
}

/// Room for each copy, at the start of memory for sources and after it for destinations.
const ROOM: usize = 2_400;

proptest! {
    /// Batches of copies into separate places: in any order, the result is as if they were done one after the other,
    /// also if the queue is full in between.
    #[test]
    fn batches_are_as_one_copy_after_the_other(
        lengths in proptest::collection::vec((length(), 0..64usize, 0..64usize), 1..300),
        batch in prop_oneof![1..40usize, Just(300)],
    ) {
        let count = lengths.len();
        let memory = [pattern(count * ROOM), vec![GUARD; count * ROOM]].concat();
        let copies: Vec<(usize, usize, usize)> = lengths.iter().enumerate().map(|(index, &(length, to, from))| {
            ((count + index) * ROOM + to, index * ROOM + from, length)
        }).collect();
        let expected = model(&memory, &copies);
        for (name, mut blitter) in blitters() {
            prop_assert!(blitted(&mut blitter, &memory, &copies, batch) == expected, "{}", name);
        }
    }

    /// Source and destination of a copy may overlap, whatever other copies are in the batch.
    #[test]
    fn a_copy_may_overlap_itself(
        copies in proptest::collection::vec((length(), 0..200usize, 0..200usize), 1..40),
        batch in 1..40usize,
    ) {
        let copies: Vec<(usize, usize, usize)> = copies.iter().enumerate().map(|(index, &(length, to, from))| {
            (index * ROOM + to, index * ROOM + from, length)
        }).collect();
        let memory = pattern(copies.len() * ROOM);
        let expected = model(&memory, &copies);
        for (name, mut blitter) in blitters() {
            prop_assert!(blitted(&mut blitter, &memory, &copies, batch) == expected, "{}", name);
        }
    }

    /// If copies of a batch overlap one another, no byte comes from elsewhere and none is written outside.
    #[test]
    fn copies_that_overlap_one_another_stay_within_their_bounds(
        copies in proptest::collection::vec((0..400usize, 0..500usize, 0..500usize), 1..40),
    ) {
        let copies: Vec<(usize, usize, usize)> = copies.iter().map(|&(length, to, from)| (100 + to, 1_200 + from, length)).collect();
        let memory = [vec![GUARD; 1_200], pattern(1_000)].concat();
        let expected = model(&memory, &copies);
        for (name, mut blitter) in blitters() {
            let found = blitted(&mut blitter, &memory, &copies, 40);
            for (at, (&byte, &expected)) in found.iter().zip(&expected).enumerate() {
                prop_assert_eq!(byte == GUARD, expected == GUARD, "byte {} by {}", at, name);
            }
        }
    }
}

/// Pages between two inaccessible ones.
struct Fenced(*mut u8);

const PAGE: usize = 4_096;

/// Number of accessible pages.
const PAGES: usize = 3;

impl Fenced {
    fn new() -> Fenced {
        // SAFETY: new mappings that nobody else knows; the fences around the middle are inside.
        unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let all = mmap_anonymous(ptr::null_mut(), (PAGES + 2) * PAGE, access, MapFlags::PRIVATE).unwrap();
            mprotect(all, PAGE, MprotectFlags::empty()).unwrap();
            mprotect(all.byte_add((PAGES + 1) * PAGE), PAGE, MprotectFlags::empty()).unwrap();
            Fenced(all.cast())
        }
    }

    /// A slice of accessible bytes, from the start or up to the end.
    fn bytes(&mut self, length: usize, last: bool) -> &mut [u8] {
        let at = if last { PAGES * PAGE - length } else { 0 };
        // SAFETY: within the accessible part, which is zeroed at first.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(PAGE + at), length) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping was made for this value alone.
        unsafe { munmap(self.0.cast(), (PAGES + 2) * PAGE).unwrap() };
    }
}

/// Nothing is read or written beyond either end, where there is an inaccessible page.
#[test]
fn nothing_beyond_the_ends_is_touched() {
    let (mut source, mut destination) = (Fenced::new(), Fenced::new());
    let lengths = (0..=300).chain([511, 512, 576, 577, 1_500, 2_048, 2_049, 4_096, 9_000]);
    for length in lengths.step_by(step()) {
        for (name, mut blitter) in blitters() {
            for [from_last, to_last] in [[true, true], [true, false], [false, true], [false, false]] {
                let from = source.bytes(length, from_last);
                from.copy_from_slice(&pattern(length));
                let to = destination.bytes(length, to_last);
                to.fill(GUARD);
                // Alone, and among others of another length.
                for others in [0, 3] {
                    // SAFETY: both ranges live on, and the other copies copy nothing.
                    unsafe {
                        for _ in 0..others {
                            blitter.copy(to.as_mut_ptr(), from.as_ptr(), 0);
                        }
                        blitter.copy(to.as_mut_ptr(), from.as_ptr(), length);
                    }
                    blitter.barrier();
                    assert!(*to == pattern(length), "{length} bytes by {name}");
                    to.fill(GUARD);
                }
            }
        }
    }
}

#[test]
fn deferred_copies_are_visible_and_done_only_at_the_barrier() {
    let source = pattern(CAPACITY + 1);
    let mut destination = vec![GUARD; CAPACITY + 1];
    let mut blitter = Blitter::deferring();
    let (to, from) = (destination.as_mut_ptr(), source.as_ptr());
    for index in 0..CAPACITY {
        // SAFETY: within the vectors, which live until the last barrier.
        unsafe { blitter.copy(to.add(index), from.add(index), 1) };
    }
    assert_eq!(blitter.queued().len(), CAPACITY);
    assert_eq!(blitter.queued()[2], Copy { destination: to.wrapping_add(2), source: from.wrapping_add(2), length: 1 });
    assert!(destination.iter().all(|&byte| byte == GUARD));
    // SAFETY: as above. This one finds the queue full.
    unsafe { blitter.copy(to.add(CAPACITY), from.add(CAPACITY), 1) };
    assert_eq!(blitter.queued().len(), 1);
    assert!(destination[..CAPACITY] == source[..CAPACITY] && destination[CAPACITY] == GUARD);
    blitter.clear();
    blitter.barrier();
    assert!(blitter.queued().is_empty() && destination[CAPACITY] == GUARD);
}

/// Lengths that go each way, and others.
#[test]
fn no_length_is_queued_or_discarded_unless_it_is_to_be() {
    let (source, mut destination) = (pattern(300), vec![GUARD; 300]);
    for length in 1..=300 {
        for (how, copied) in [(How::Blitter, true), (How::Memcpy, true), (How::Nothing, false)] {
            let mut blitter = Blitter::how(how);
            // SAFETY: within both vectors, which live until the barrier.
            unsafe { blitter.copy(destination.as_mut_ptr(), source.as_ptr(), length) };
            assert!(blitter.queued().is_empty(), "{length} bytes, {how:?}");
            blitter.barrier();
            assert_eq!(destination[..length] == source[..length], copied, "{length} bytes, {how:?}");
            destination.fill(GUARD);
        }
    }
}

#[test]
fn a_blitter_works_on_another_thread() {
    let mut blitter = Blitter::new();
    let copied = std::thread::spawn(move || blitted(&mut blitter, &[1, 2, 0, 0], &[(2, 0, 2)], 1)).join().unwrap();
    assert_eq!(copied, [1, 2, 1, 2]);
}

#[test]
fn a_plan_makes_the_same_copies_both_ways() {
    let moves: Vec<Move> = (0..50).map(|at| Move { from: at * 100, to: (50 + at) * 100 + at % 7, room: 90 }).collect();
    let copied = |work: &dyn Fn(&mut Plan)| {
        let mut memory = [pattern(5_000), vec![GUARD; 5_000]].concat();
        let mut plan = Plan::new(&mut memory, &moves).unwrap();
        plan.set_lengths((0..50).map(|at| 2 * at));
        work(&mut plan);
        assert_eq!(plan.ranges(10..12).map(<[u8]>::len).collect::<Vec<_>>(), [20, 20, 22, 22]);
        assert_eq!(plan.moves(), 50);
        memory
    };
    let expected = copied(&|plan| plan.memcpy(5..50));
    for make in [Blitter::new, Blitter::deferring] {
        assert!(copied(&|plan| plan.blit(&mut make(), 5..50, 7)) == expected);
        assert!(copied(&|plan| plan.blit_singly(&mut make(), 5..50)) == expected);
    }
    assert!(expected[5_000..5_500].iter().all(|&byte| byte == GUARD), "the first five are left out");
}

#[test]
fn an_impossible_move_is_named() {
    for (from, to, room) in [(0, 10, 11), (95, 0, 6), (0, 95, 6), (usize::MAX, 0, 2), (3, 3, 1)] {
        let one = Move { from, to, room };
        assert_eq!(Plan::new(&mut [0; 100], &[one]).err(), Some(Impossible(one)));
    }
}
