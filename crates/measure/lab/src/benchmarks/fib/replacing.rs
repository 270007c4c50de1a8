//! Replacing all routes, and what a thread that looks up meanwhile pays for it.
//!
//! The thread times each of its batches: 128 keys of each family. It sees by the tables' addresses which batch is the first
//! in new ones, and compares the batches around it with the median of those before. So the figures have what the swap
//! itself costs a reader, and that the new tables are not in its caches yet, but not that compiling the routes takes
//! bandwidth of the memory, which slows the batches before as well.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use bellows_fib::{Fib, Prefix};
use bellows_sys::clock;

use super::reading::{BatchWatch, Looking, Tables};
use super::routes::Prefixes;
use super::tables::{Keys, rib, routes};
use crate::slices::{Sliced, Turn};
use crate::timing::median_or_nan;
use crate::workers::Contender;

/// Batches before the first one in new tables, and from there on: in each the thread looks up all of its keys.
const BEFORE: usize = 256;
const AFTER: usize = 256;

/// Batches on either side of the swap of which the longest counts. Among more, some would be long because of an interrupt.
const NEAR: usize = 16;

/// The most time in which these batches are looked up, unless something is broken.
const DEADLINE: Duration = Duration::from_secs(60);

/// What a reader paid for a swap, in clocks beyond the median of the batches before.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Swap {
    /// The longest of the batches next to the swap.
    longest: f64,
    /// The first batch in the new tables.
    first: f64,
    /// All batches from there on, together.
    all: f64,
}

impl Swap {
    fn of(before: &[f64], after: &[f64]) -> Swap {
        let median = median_or_nan(before);
        let near = before.iter().rev().take(NEAR).chain(after.iter().take(NEAR));
        let longest = near.fold(0.0, |longest: f64, &clocks| longest.max(clocks));
        let all = after.iter().sum::<f64>() - median * after.len() as f64;
        Swap { longest: longest - median, first: after.first().map_or(f64::NAN, |first| first - median), all }
    }
}

/// The times of a reader's last batches.
struct WatchedReader {
    swaps: Sender<Swap>,
    clocks: [f64; BEFORE + AFTER],
    /// Batches so far.
    count: usize,
    tables: [usize; 2],
    /// Batches to go until a swap is judged, or 0.
    left: usize,
}

impl WatchedReader {
    fn new(swaps: Sender<Swap>) -> WatchedReader {
        WatchedReader { swaps, clocks: [0.0; BEFORE + AFTER], count: 0, tables: [0; 2], left: 0 }
    }

    fn record(&mut self, clocks: f64, tables: [usize; 2]) {
        self.clocks[self.count % (BEFORE + AFTER)] = clocks;
        self.count += 1;
        if tables != self.tables && self.count > BEFORE {
            self.left = AFTER;
        }
        self.tables = tables;
        if self.left > 0 {
            self.left -= 1;
            if self.left == 0 {
                let oldest = self.count % (BEFORE + AFTER);
                self.clocks.rotate_left(oldest);
                let (before, after) = self.clocks.split_at(BEFORE);
                // Nobody waits for it any more once the benchmark ends.
                let _ = self.swaps.send(Swap::of(before, after));
                self.clocks.rotate_right(oldest);
            }
        }
    }
}

impl BatchWatch for WatchedReader {
    fn batch(&mut self, look_up: impl FnOnce() -> [usize; 2]) {
        let start = clock::ticks();
        let tables = look_up();
        self.record((clock::ticks() - start) as f64, tables);
    }
}

/// Both tables, whose routes are all replaced in each turn.
pub(super) struct Replacing {
    ipv4: Vec<(Prefix<u32>, u32)>,
    ipv6: Vec<(Prefix<u128>, u32)>,
    tables: Arc<Tables>,
    reader: Looking,
    swaps: Receiver<Swap>,
}

impl Replacing {
    pub(super) fn new(prefixes: &Prefixes, next_hops: u32) -> Result<Replacing, std::io::Error> {
        let tables = Tables::new(prefixes, next_hops)?;
        let (sender, swaps) = mpsc::channel();
        let reader = Looking::at(Arc::clone(&tables), prefixes, WatchedReader::new(sender));
        let (ipv4, ipv6) = (routes(&prefixes.ipv4, next_hops), routes(&prefixes.ipv6, next_hops));
        Ok(Replacing { ipv4, ipv6, tables, reader, swaps })
    }

    fn replace<A: Keys>(&self, fib: &Fib<A>, routes: &[(Prefix<A>, u32)]) -> Swap {
        let mut changes = fib.lock();
        changes.replace(rib(routes));
        if changes.commit().is_err() {
            crate::workers::fail(&"there is no memory for new tables");
        }
        let swap = self.swaps.recv_timeout(DEADLINE);
        swap.unwrap_or_else(|_| crate::workers::fail(&"the thread that looks up does not see the new tables"))
    }
}

impl Contender for Replacing {
    fn turn(&mut self) -> Turn {
        self.reader.begin();
        let start = clock::ticks();
        let swaps = [self.replace(&self.tables.ipv4, &self.ipv4), self.replace(&self.tables.ipv6, &self.ipv6)];
        let took = (clock::ticks() - start) as f64;
        self.reader.end();
        // A worker that reads both tables pays for the dearer swap.
        let figure = |of: fn(&Swap) -> f64| {
            let dearer = swaps.iter().map(of).fold(f64::MIN, f64::max).max(0.0);
            dearer * 1e6 / clock::ticks_per_second() as f64
        };
        let figures = vec![figure(|swap| swap.longest), figure(|swap| swap.first), figure(|swap| swap.all)];
        Turn::of(figures, &[Sliced::of(&[(1, took)])])
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        self.reader.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_is_compared_with_the_batches_before() {
        let (sender, swaps) = mpsc::channel();
        let mut watched = WatchedReader::new(sender);
        // The place of the window's oldest batch is not the first one of the memory.
        for _ in 0..BEFORE + AFTER + 100 {
            watched.record(1_000.0, [1, 2]);
        }
        assert!(swaps.try_recv().is_err(), "the first tables are no new ones");
        watched.record(1_500.0, [1, 3]);
        watched.record(1_700.0, [1, 3]);
        for at in 2..AFTER {
            assert!(swaps.try_recv().is_err(), "not all batches are there");
            // The last one is too far from the swap to be its longest.
            watched.record(if at == AFTER - 1 { 9_000.0 } else { 1_000.0 }, [1, 3]);
        }
        assert_eq!(swaps.try_recv(), Ok(Swap { longest: 700.0, first: 500.0, all: 9_200.0 }));
        for _ in 0..AFTER {
            watched.record(9_000.0, [1, 3]);
        }
        assert!(swaps.try_recv().is_err(), "nothing was swapped");
    }
}
