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
    /// The paths in the order of their numbers.
    order: Vec<usize>,
    /// The buckets of each path.
    held: Vec<Vec<usize>>,
    /// The buckets of each path that it does not spare for others.
    kept: Vec<usize>,
    /// The number of all buckets.
    count: i64,
    /// The sum of the weights.
    total: i64,
}

impl<'p> Assignment<'p> {
    /// Paths that have none of the `count` buckets yet.
    fn new(paths: &'p [Path], count: usize) -> Assignment<'p> {
        let mut order: Vec<usize> = (0..paths.len()).collect();
        order.sort_unstable_by_key(|&path| paths[path].next);
        let total = paths.iter().map(|path| i64::from(path.weight)).sum();
        let held = vec![Vec::new(); paths.len()];
        Assignment { paths, order, held, kept: vec![1; paths.len()], count: count as i64, total }
    }

    /// The path that leads to a number.
    fn path_to(&self, next: u32) -> Option<usize> {
        self.order.binary_search_by_key(&next, |&path| self.paths[path].next).ok().map(|place| self.order[place])
    }

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
        let can_spare = |path: &usize| self.held[*path].len() > self.kept[*path];
        (0..self.paths.len()).filter(can_spare).min_by_key(|&path| self.deficit(path))
    }

    /// The paths that get the next `count` buckets: each time the one that lacks the most.
    fn takers(&self, count: usize) -> Vec<usize> {
        let mut heap: BinaryHeap<_> = (0..self.paths.len()).map(|path| (self.deficit(path), Reverse(path))).collect();
        let mut next = || {
            let (deficit, Reverse(path)) = heap.pop()?;
            heap.push((deficit - self.total, Reverse(path)));
            Some(path)
        };
        (0..count).map_while(|_| next()).collect()
    }

    /// Gives each of these buckets to a path.
    fn give(&mut self, buckets: Vec<usize>, takers: Vec<usize>) {
        buckets.into_iter().zip(takers).for_each(|(bucket, path)| self.held[path].push(bucket));
    }

    /// Moves a bucket from one path to another.
    fn pass(&mut self, from: usize, to: usize) {
        let bucket = self.held[from].pop().expect("it can spare a bucket");
        self.held[to].push(bucket);
    }

    /// Has each path get the whole buckets of its share from paths that have more, and one bucket in any case.
    fn take(&mut self) {
        for path in 0..self.paths.len() {
            while self.held[path].len() < self.at_least(path) {
                let Some(richest) = self.richest() else { return };
                if !self.held[path].is_empty() && self.deficit(richest) >= 0 {
                    break;
                }
                self.pass(richest, path);
            }
        }
    }

    /// Has a path get buckets from others that have more than their share, as long as that evens out.
    fn even_out(&mut self, path: usize) {
        while let Some(richest) = self.richest() {
            if self.deficit(richest) >= 0 || self.deficit(path) - self.deficit(richest) <= self.total {
                return;
            }
            self.pass(richest, path);
        }
    }

    /// Writes the path of each bucket.
    fn write(&self, buckets: &mut [u32]) {
        for (path, held) in self.paths.iter().zip(&self.held) {
            held.iter().for_each(|&bucket| buckets[bucket] = path.next);
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
    let mut assignment = Assignment::new(paths, buckets.len());
    let mut free = Vec::new();
    for (bucket, &next) in buckets.iter().enumerate() {
        match assignment.path_to(next) {
            Some(path) => assignment.held[path].push(bucket),
            None => free.push(bucket),
        }
    }
    if !is_only_loss {
        for path in 0..paths.len() {
            let most = assignment.rounded_up(path).min(assignment.held[path].len());
            free.extend(assignment.held[path].drain(most..));
        }
    }
    let takers = assignment.takers(free.len());
    assignment.give(free, takers);
    if !is_only_loss {
        assignment.take();
    }
    assignment.write(buckets);
}

/// The same paths in an order in which each comes at equal distances.
fn spread(mut takers: Vec<usize>, paths: usize) -> Vec<usize> {
    let mut counts = vec![0_u64; paths];
    takers.iter().for_each(|&path| counts[path] += 1);
    let mut seen = vec![0_u64; paths];
    takers.sort_by_cached_key(|&path| {
        seen[path] += 1;
        ((2 * seen[path] - 1) << 32) / counts[path]
    });
    takers
}

/// Has others take the place of paths that are out of use. `homes` are the buckets as they are assigned to all paths,
/// `buckets` those that readers have now, which are changed.
///
/// A bucket whose home is in use is at home. Others stay where they are, if that is in use. So the loss of a path moves
/// its own flows alone, and a path that returns gets its own back, and its share of those whose homes are still out of
/// use. If no path is in use, all buckets are at home.
pub(super) fn divert(homes: &[u32], buckets: &mut [u32], paths: &[Path], is_out: impl Fn(u32) -> bool) {
    let in_use: Vec<Path> = paths.iter().copied().filter(|path| !is_out(path.next)).collect();
    if in_use.is_empty() || in_use.len() == paths.len() {
        buckets.copy_from_slice(homes);
        return;
    }
    let mut assignment = Assignment::new(&in_use, buckets.len());
    let (mut has_returned, mut homeless) = (vec![false; in_use.len()], Vec::new());
    for (bucket, (&home, &now)) in homes.iter().zip(&*buckets).enumerate() {
        match assignment.path_to(home) {
            Some(path) => {
                assignment.held[path].push(bucket);
                has_returned[path] |= now != home;
            }
            None => homeless.push(bucket),
        }
    }
    assignment.kept = assignment.held.iter().map(Vec::len).collect();
    let mut free = Vec::new();
    for bucket in homeless {
        match assignment.path_to(buckets[bucket]) {
            Some(path) => assignment.held[path].push(bucket),
            None => free.push(bucket),
        }
    }
    for path in (0..in_use.len()).filter(|&path| has_returned[path]) {
        assignment.even_out(path);
    }
    // The buckets of each lost path are spread over all others, so that its return takes as much from each.
    free.sort_by_key(|&bucket| homes[bucket]);
    let takers = spread(assignment.takers(free.len()), in_use.len());
    assignment.give(free, takers);
    assignment.write(buckets);
}
