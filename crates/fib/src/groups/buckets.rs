//! The buckets of a group: which path has which part of the flows.
//!
//! Each flow falls into a bucket by its hash, and stays with the path of this bucket until the bucket gets another one. So
//! a change of paths moves the flows of few buckets, unlike a division of the hash by the number of paths (RFC 2992,
//! section 3, compares both). Linux' resilient next-hop groups work this way, too.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Path;
use crate::NO_ROUTE;

/// The fewest buckets of a group.
pub(super) const MIN_BUCKETS: usize = 64;

/// The most buckets of a group.
pub(super) const MAX_BUCKETS: usize = 16_384;

/// Buckets for a path of the lowest weight, as long as there are enough.
const BUCKETS_OF_LOWEST: u64 = 64;

/// The number of buckets that paths of these weights need: a power of two.
pub(super) fn count(paths: &[Path]) -> usize {
    let total: u64 = paths.iter().map(|path| u64::from(path.weight)).sum();
    let lowest = paths.iter().map(|path| u64::from(path.weight)).min().unwrap_or(1).max(1);
    let wanted = (BUCKETS_OF_LOWEST * total).div_ceil(lowest);
    wanted.clamp(MIN_BUCKETS as u64, MAX_BUCKETS as u64).next_power_of_two() as usize
}

/// The paths of a group while its buckets are assigned.
struct Assignment<'p> {
    paths: &'p [Path],
    /// The buckets of each path.
    held: Vec<Vec<usize>>,
    /// The number of all buckets.
    count: i64,
    /// The sum of the weights.
    total: i64,
}

impl Assignment<'_> {
    /// What a path lacks of its share, negative if it has more: buckets, times the sum of the weights.
    fn deficit(&self, path: usize) -> i64 {
        i64::from(self.paths[path].weight) * self.count - self.held[path].len() as i64 * self.total
    }

    /// The share of a path in buckets, rounded up.
    fn rounded_up(&self, path: usize) -> usize {
        (i64::from(self.paths[path].weight) * self.count + self.total - 1).div_euclid(self.total) as usize
    }

    /// The share of a path in buckets, rounded down, but one bucket at least.
    fn at_least(&self, path: usize) -> usize {
        (i64::from(self.paths[path].weight) * self.count / self.total).max(1) as usize
    }

    /// The path that is furthest above its share and can spare a bucket.
    fn richest(&self) -> Option<usize> {
        (0..self.paths.len()).filter(|&path| self.held[path].len() > 1).min_by_key(|&path| self.deficit(path))
    }

    /// Gives each of these buckets to the path that lacks the most.
    fn give(&mut self, buckets: Vec<usize>) {
        let mut heap: BinaryHeap<_> = (0..self.paths.len()).map(|path| (self.deficit(path), Reverse(path))).collect();
        for bucket in buckets {
            let Some((deficit, Reverse(path))) = heap.pop() else { return };
            self.held[path].push(bucket);
            heap.push((deficit - self.total, Reverse(path)));
        }
    }

    /// Has each path get the whole buckets of its share from paths that have more, and one bucket in any case.
    fn take(&mut self) {
        for path in 0..self.paths.len() {
            while self.held[path].len() < self.at_least(path) {
                let Some(richest) = self.richest() else { return };
                if !self.held[path].is_empty() && self.deficit(richest) >= 0 {
                    break;
                }
                let bucket = self.held[richest].pop().expect("it can spare a bucket");
                self.held[path].push(bucket);
            }
        }
    }
}

/// Assigns the buckets to paths by their weights, and moves as few as that takes. A bucket has the number of a path, or
/// [`NO_ROUTE`].
///
/// If paths are only lost, no bucket of the others moves.
pub(super) fn assign(buckets: &mut [u32], paths: &[Path], is_only_loss: bool) {
    if paths.is_empty() {
        buckets.fill(NO_ROUTE);
        return;
    }
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_unstable_by_key(|&path| paths[path].next);
    let mut assignment = Assignment {
        paths,
        held: vec![Vec::new(); paths.len()],
        count: buckets.len() as i64,
        total: paths.iter().map(|path| i64::from(path.weight)).sum(),
    };
    let mut free = Vec::new();
    for (bucket, next) in buckets.iter().enumerate() {
        match order.binary_search_by_key(next, |&path| paths[path].next) {
            Ok(place) => assignment.held[order[place]].push(bucket),
            Err(_) => free.push(bucket),
        }
    }
    if !is_only_loss {
        for path in 0..paths.len() {
            let most = assignment.rounded_up(path).min(assignment.held[path].len());
            free.extend(assignment.held[path].drain(most..));
        }
    }
    assignment.give(free);
    if !is_only_loss {
        assignment.take();
    }
    for (path, held) in paths.iter().zip(&assignment.held) {
        held.iter().for_each(|&bucket| buckets[bucket] = path.next);
    }
}
