//! The intervals of PlanB (NSDI 2026): those of the upper 64 bits of addresses, in a tree of eight keys a cache line, through
//! which a batch of keys goes level by level.

use bellows_sys::cache::prefetch;
use bellows_sys::simd::{Loop, Simd};

use super::intervals::{Interval, begin};
use super::{BATCH, Known, LookUp};

const KEYS: usize = 8;

/// Keys in a cache line. Behind the last one are ones.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Node([u64; KEYS]);

impl Node {
    /// How many keys are not above an address. Hot.
    #[inline(always)]
    fn rank(&self, upper: u64) -> usize {
        self.0.iter().map(|&key| usize::from(key <= upper)).sum()
    }
}

/// In place of a number: the interval has prefixes of more than 64 bits.
const DEEP: u32 = u32::MAX - 1;

/// The table.
pub struct PlanB {
    /// The levels, from the one node at the top on. Those of the last one hold where intervals begin, those above it where
    /// the nodes of the next level begin, without the first of each nine.
    levels: Vec<Vec<Node>>,
    /// The number of each interval.
    numbers: Vec<u32>,
    /// The intervals of all 128 bits where 64 are not enough.
    deep: Vec<Interval>,
}

impl PlanB {
    /// The table of intervals.
    pub fn new(intervals: &[Interval]) -> PlanB {
        let (upper, deep) = split(intervals);
        let mut below: Vec<u64> = upper.iter().map(|&(begin, _)| (begin >> 64) as u64).collect();
        let mut levels = vec![nodes(&below)];
        below = below.into_iter().step_by(KEYS).collect();
        while below.len() > 1 {
            let separators = |nodes: &[u64]| node(&nodes[1..]);
            levels.push(below.chunks(KEYS + 1).map(separators).collect());
            below = below.into_iter().step_by(KEYS + 1).collect();
        }
        levels.reverse();
        PlanB { levels, numbers: upper.iter().map(|&(_, number)| number).collect(), deep }
    }

    fn number_in_deep(&self, address: u128) -> u32 {
        // Each interval that is deep begins with one of these.
        self.deep[self.deep.partition_point(|&(begin, _)| begin <= address) - 1].1
    }
}

/// The intervals of the upper 64 bits, and those of all bits where prefixes are longer.
fn split(intervals: &[Interval]) -> (Vec<Interval>, Vec<Interval>) {
    let (mut upper, mut deep) = (Vec::new(), Vec::new());
    for (at, &(first, number)) in intervals.iter().enumerate() {
        let cell = first >> 64 << 64;
        if first == cell {
            begin(&mut upper, first, number);
            continue;
        }
        // What goes on behind the cell of an interval before may not: another one begins in it.
        upper.pop_if(|(begin, _)| *begin > cell);
        if upper.last() != Some(&(cell, DEEP)) {
            deep.push((cell, intervals[at - 1].1));
            begin(&mut upper, cell, DEEP);
        }
        deep.push((first, number));
        if let Some(behind) = cell.checked_add(1 << 64) {
            upper.push((behind, number));
        }
    }
    (upper, deep)
}

fn nodes(keys: &[u64]) -> Vec<Node> {
    keys.chunks(KEYS).map(node).collect()
}

fn node(keys: &[u64]) -> Node {
    let mut node = Node([u64::MAX; KEYS]);
    node.0[..keys.len()].copy_from_slice(keys);
    node
}

impl<A: Known> LookUp<A> for PlanB {
    fn look_up(&self, keys: &[A], next: &mut [u32]) {
        for (keys, next) in keys.chunks(BATCH).zip(next.chunks_mut(BATCH)) {
            Simd::chosen().run(Batch { table: self, keys, next });
        }
    }
}

struct Batch<'b, A> {
    table: &'b PlanB,
    keys: &'b [A],
    next: &'b mut [u32],
}

impl<A: Known> Loop for Batch<'_, A> {
    type Result = ();

    #[inline(always)]
    fn run(self) {
        let Batch { table, keys, next } = self;
        let mut places = [0; BATCH];
        let mut upper = [0; BATCH];
        for (upper, key) in upper.iter_mut().zip(keys) {
            *upper = (key.widened() >> 64) as u64;
        }
        for pair in table.levels.windows(2) {
            for (place, &upper) in places.iter_mut().zip(&upper[..keys.len()]) {
                // The ones behind the last key are equal to the highest address.
                *place = (*place * (KEYS + 1) + pair[0][*place].rank(upper)).min(pair[1].len() - 1);
                prefetch((&raw const pair[1][*place]).cast());
            }
        }
        let Some(last) = table.levels.last() else { return };
        for (place, &upper) in places.iter_mut().zip(&upper[..keys.len()]) {
            // The first key of a node is not above the addresses that come to it.
            *place = (*place * KEYS + last[*place].rank(upper) - 1).min(table.numbers.len() - 1);
            prefetch((&raw const table.numbers[*place]).cast());
        }
        for ((&place, key), next) in places.iter().zip(keys).zip(next) {
            *next = match table.numbers[place] {
                DEEP => table.number_in_deep(key.widened()),
                number => number,
            };
        }
    }
}
