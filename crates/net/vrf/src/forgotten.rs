//! Neighbours that are to be asked anew: control threads list them for the apps that keep the states of neighbours.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::neighbours::NeighbourKey;

/// The most neighbours that are kept in mind: older ones are forgotten by themselves.
const MAX_FORGOTTEN: usize = 1 << 20;

/// Neighbours to forget, for any number of readers that never wait.
#[derive(Debug, Default)]
pub struct Forgotten {
    /// The number of neighbours that were ever to be forgotten.
    count: AtomicU64,
    keys: Mutex<VecDeque<NeighbourKey>>,
}

impl Forgotten {
    /// Tells all readers to forget these.
    pub fn forget(&self, keys: impl IntoIterator<Item = NeighbourKey>) {
        let mut list = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let before = list.len();
        list.extend(keys);
        let added = (list.len() - before) as u64;
        let excess = list.len().saturating_sub(MAX_FORGOTTEN);
        list.drain(..excess);
        self.count.fetch_add(added, Ordering::Release);
    }

    /// Those to forget beyond the first `seen`, which the reader has had. Nothing if another thread is adding some: ask
    /// again.
    #[inline]
    pub fn since(&self, seen: &mut u64) -> Vec<NeighbourKey> {
        if self.count.load(Ordering::Acquire) == *seen { Vec::new() } else { self.take(seen) }
    }

    #[cold]
    fn take(&self, seen: &mut u64) -> Vec<NeighbourKey> {
        let Ok(list) = self.keys.try_lock() else { return Vec::new() };
        let count = self.count.load(Ordering::Acquire);
        let new = (count.saturating_sub(*seen) as usize).min(list.len());
        *seen = count;
        list.range(list.len() - new..).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn key(number: u16) -> NeighbourKey {
        (number, IpAddr::from([10, 0, 0, 1]))
    }

    #[test]
    fn each_reader_is_told_once() {
        let forgotten = Forgotten::default();
        let (mut one, mut other) = (0, 0);
        assert_eq!(forgotten.since(&mut one), []);
        forgotten.forget([key(1), key(2)]);
        assert_eq!(forgotten.since(&mut one), [key(1), key(2)]);
        assert_eq!(forgotten.since(&mut one), []);
        forgotten.forget([key(3)]);
        assert_eq!(forgotten.since(&mut one), [key(3)]);
        assert_eq!(forgotten.since(&mut other), [key(1), key(2), key(3)]);
    }

    #[test]
    fn the_list_is_bounded() {
        let forgotten = Forgotten::default();
        let mut seen = 0;
        forgotten.forget((0..MAX_FORGOTTEN).map(|_| key(1)));
        forgotten.forget([key(2)]);
        let told = forgotten.since(&mut seen);
        assert_eq!((told.len(), told.last()), (MAX_FORGOTTEN, Some(&key(2))));
        assert_eq!(forgotten.since(&mut seen), []);
    }
}
