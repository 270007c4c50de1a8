//! DXR (Zec, Rizzo, Mikuc 2012), IPv4: the first 18 bits of an address choose a chunk, and a binary search finds the
//! interval within it.
//!
//! In batches, which the paper does not have: the chunks of all keys are read before the intervals of any.

use bellows_fib::NO_ROUTE;
use bellows_sys::cache::prefetch;

use super::intervals::Interval;
use super::{BATCH, LookUp};

/// The bits of an address within a chunk.
const LOW: u32 = 32 - 18;

/// All addresses with the same first bits.
#[derive(Clone, Copy, Default)]
struct Chunk {
    /// Its first interval.
    first: u32,
    /// How many it has.
    count: u32,
}

/// An interval of a chunk.
struct Range {
    /// The bits of its first address within the chunk.
    begin: u16,
    /// The number of its route.
    number: u16,
}

/// In place of [`NO_ROUTE`], which has more bits.
const NONE: u16 = u16::MAX;

/// The table.
pub struct Dxr {
    chunks: Vec<Chunk>,
    ranges: Vec<Range>,
}

impl Dxr {
    /// The table of intervals. `None` if a route's number has more than 16 bits.
    pub fn new(intervals: &[Interval]) -> Option<Dxr> {
        let (mut chunks, mut ranges) = (Vec::new(), Vec::new());
        let mut rest = intervals.iter().map(|&(first, number)| ((first >> 96) as u32, number)).peekable();
        let mut present = NONE;
        for chunk in 0..1 << (32 - LOW) {
            let first = ranges.len() as u32;
            let is_in_chunk = |begin: u32| begin >> LOW == chunk;
            // What goes on from the chunk before, unless another interval begins with this one.
            if rest.peek().is_none_or(|&(begin, _)| begin != chunk << LOW) {
                ranges.push(Range { begin: 0, number: present });
            }
            while let Some((begin, number)) = rest.next_if(|&(begin, _)| is_in_chunk(begin)) {
                present = match number {
                    NO_ROUTE => NONE,
                    number => u16::try_from(number).ok().filter(|&number| number != NONE)?,
                };
                ranges.push(Range { begin: (begin % (1 << LOW)) as u16, number: present });
            }
            chunks.push(Chunk { first, count: ranges.len() as u32 - first });
        }
        ranges.shrink_to_fit();
        Some(Dxr { chunks, ranges })
    }
}

impl LookUp<u32> for Dxr {
    fn look_up(&self, keys: &[u32], next: &mut [u32]) {
        for (keys, next) in keys.chunks(BATCH).zip(next.chunks_mut(BATCH)) {
            let mut chunks = [Chunk::default(); BATCH];
            for (chunk, &key) in chunks.iter_mut().zip(keys) {
                *chunk = self.chunks[(key >> LOW) as usize];
                prefetch((&raw const self.ranges[(chunk.first + chunk.count / 2) as usize]).cast());
            }
            for ((chunk, &key), next) in chunks.iter().zip(keys).zip(next) {
                let low = (key % (1 << LOW)) as u16;
                let ranges = &self.ranges[chunk.first as usize..][..chunk.count as usize];
                // The first range begins with the chunk.
                let place = ranges.partition_point(|range| range.begin <= low) - 1;
                *next = match ranges[place].number {
                    NONE => NO_ROUTE,
                    number => number.into(),
                };
            }
        }
    }
}
