//! Keys, and tables that look them up: that of the crate, and plain ones.

use std::hint::black_box;
use std::ptr;

use bellows_fib::{AddressFamily, Fib, NO_ROUTE, Prefix, Rib, Route, TableReader, Tables};
use bellows_sys::cache;
use fastrand::Rng;

use super::BATCH;
use super::routes::Prefixes;

/// A family, as far as benchmarks treat both alike.
pub(super) trait Keys: AddressFamily {
    /// Its prefixes.
    fn of(prefixes: &Prefixes) -> &[Prefix<Self>];

    /// An address of those that are in use anywhere.
    fn anywhere(random: &mut Rng) -> Self;

    /// An address in a prefix.
    fn within(random: &mut Rng, prefix: Prefix<Self>) -> Self;

    /// The next address, if there is one.
    fn next(self) -> Option<Self>;

    /// The bytes for other programs.
    fn bytes(self) -> Vec<u8>;
}

impl Keys for u32 {
    fn of(prefixes: &Prefixes) -> &[Prefix<u32>] {
        &prefixes.ipv4
    }

    fn anywhere(random: &mut Rng) -> u32 {
        random.u32(..)
    }

    fn within(random: &mut Rng, prefix: Prefix<u32>) -> u32 {
        random.u32(prefix.address()..=prefix.last())
    }

    fn next(self) -> Option<u32> {
        self.checked_add(1)
    }

    fn bytes(self) -> Vec<u8> {
        self.to_ne_bytes().into()
    }
}

impl Keys for u128 {
    fn of(prefixes: &Prefixes) -> &[Prefix<u128>] {
        &prefixes.ipv6
    }

    fn anywhere(random: &mut Rng) -> u128 {
        random.u128(0x2000 << 112..0x4000 << 112)
    }

    fn within(random: &mut Rng, prefix: Prefix<u128>) -> u128 {
        random.u128(prefix.address()..=prefix.last())
    }

    fn next(self) -> Option<u128> {
        self.checked_add(1)
    }

    fn bytes(self) -> Vec<u8> {
        self.to_be_bytes().into()
    }
}

/// Routes with random numbers below `next_hops`, the same in every process.
pub(super) fn routes<A: Keys>(prefixes: &[Prefix<A>], next_hops: u32) -> Vec<(Prefix<A>, u32)> {
    let mut random = Rng::with_seed(2);
    prefixes.iter().map(|&prefix| (prefix, random.u32(..next_hops))).collect()
}

/// How keys are chosen, and how many different ones there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeySet {
    pub(super) name: &'static str,
    pub(super) count: usize,
}

/// What is measured with each table.
pub(super) const KEY_SETS: [KeySet; 4] = [
    KeySet { name: "uniform", count: 1 << 20 },
    KeySet { name: "by prefix", count: 1 << 20 },
    KeySet { name: "by prefix", count: 32_768 },
    KeySet { name: "by prefix", count: 256 },
];

/// The keys of a set, the same in every process.
pub(super) fn keys<A: Keys>(set: KeySet, prefixes: &[Prefix<A>]) -> Vec<A> {
    let mut random = Rng::with_seed(3);
    let key = |_| match set.name {
        "uniform" => A::anywhere(&mut random),
        _ => {
            let prefix = prefixes[random.usize(..prefixes.len())];
            A::within(&mut random, prefix)
        }
    };
    (0..set.count).map(key).collect()
}

/// A table that looks up batches.
pub(super) trait LookUp<A> {
    /// Looks up keys, as many as there are places for numbers.
    fn look_up(&mut self, keys: &[A], next: &mut [u32]);

    /// Its bytes with those that it has in reserve, without the routes that it was made of.
    fn bytes(&self) -> usize;
}

/// The crate's.
pub(super) struct Own<'f, A: Keys> {
    reader: TableReader<'f, Tables<A>>,
    bytes: usize,
}

impl<'f, A: Keys> Own<'f, A> {
    /// Fills a table.
    pub(super) fn fill(fib: &'f Fib<A>, routes: &[(Prefix<A>, u32)]) -> Result<Own<'f, A>, std::io::Error> {
        let mut changes = fib.lock();
        changes.replace(rib(routes));
        changes.commit()?;
        Ok(Own { bytes: changes.size().reserved, reader: fib.reader() })
    }
}

/// The routes as a RIB.
pub(super) fn rib<A: Keys>(routes: &[(Prefix<A>, u32)]) -> Rib<A> {
    let mut rib = Rib::default();
    for &(prefix, next) in routes {
        rib.insert(prefix, Route { metric: 0, next });
    }
    rib
}

impl<A: Keys> LookUp<A> for Own<'_, A> {
    fn look_up(&mut self, keys: &[A], next: &mut [u32]) {
        self.reader.read(|tables| tables.look_up(keys, next));
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The first addresses of intervals, and their numbers.
pub(super) struct Intervals<A> {
    firsts: Vec<A>,
    numbers: Vec<u32>,
}

impl<A: Keys> Intervals<A> {
    /// Those that the routes, in order, cut all addresses into.
    pub(super) fn of(routes: &[(Prefix<A>, u32)]) -> Intervals<A> {
        let mut intervals = Intervals { firsts: vec![A::ZERO], numbers: vec![NO_ROUTE] };
        // The prefixes around the present one.
        let mut around: Vec<(Prefix<A>, u32)> = Vec::new();
        for &(prefix, number) in routes {
            intervals.leave(&mut around, |outer| !outer.covers(prefix));
            intervals.begin(prefix.address(), number);
            around.push((prefix, number));
        }
        intervals.leave(&mut around, |_| true);
        intervals
    }

    fn leave(&mut self, around: &mut Vec<(Prefix<A>, u32)>, is_left: impl Fn(Prefix<A>) -> bool) {
        while let Some((left, _)) = around.pop_if(|(prefix, _)| is_left(*prefix)) {
            if let Some(first) = left.last().next() {
                self.begin(first, around.last().map_or(NO_ROUTE, |&(_, number)| number));
            }
        }
    }

    fn begin(&mut self, first: A, number: u32) {
        if self.firsts.last() == Some(&first) {
            self.firsts.pop();
            self.numbers.pop();
        }
        self.firsts.push(first);
        self.numbers.push(number);
    }
}

impl<A: Keys> LookUp<A> for Intervals<A> {
    fn look_up(&mut self, keys: &[A], next: &mut [u32]) {
        for (&key, next) in keys.iter().zip(next) {
            *next = self.numbers[self.firsts.partition_point(|&first| first <= key) - 1];
        }
    }

    fn bytes(&self) -> usize {
        self.firsts.len() * (size_of::<A>() + size_of::<u32>())
    }
}

/// The plain DIR-24-8 (Gupta, Lin and McKeown 1998): a number for each value of 24 bits, and where prefixes are longer,
/// the index of numbers for the other 8.
pub(super) struct Dir24 {
    first: Vec<u32>,
    second: Vec<[u32; 256]>,
}

/// Marks an index.
const INDEX: u32 = 1 << 31;

impl Dir24 {
    pub(super) fn of(routes: &[(Prefix<u32>, u32)]) -> Dir24 {
        let mut sorted: Vec<&(Prefix<u32>, u32)> = routes.iter().collect();
        sorted.sort_by_key(|(prefix, _)| prefix.length());
        // Numbers are stored plus 1.
        let (mut first, mut second) = (vec![0; 1 << 24], Vec::new());
        for &&(prefix, number) in &sorted {
            let (low, high) = (prefix.address(), prefix.last());
            if prefix.length() <= 24 {
                first[(low >> 8) as usize..=(high >> 8) as usize].fill(number + 1);
                continue;
            }
            let entry = &mut first[(low >> 8) as usize];
            if *entry & INDEX == 0 {
                second.push([*entry; 256]);
                *entry = INDEX | (second.len() - 1) as u32;
            }
            second[(*entry & !INDEX) as usize][(low & 255) as usize..=(high & 255) as usize].fill(number + 1);
        }
        Dir24 { first, second }
    }
}

impl LookUp<u32> for Dir24 {
    fn look_up(&mut self, keys: &[u32], next: &mut [u32]) {
        for (&key, next) in keys.iter().zip(next) {
            let mut entry = self.first[(key >> 8) as usize];
            if entry & INDEX != 0 {
                entry = self.second[(entry & !INDEX) as usize][(key & 255) as usize];
            }
            *next = entry.wrapping_sub(1);
        }
    }

    fn bytes(&self) -> usize {
        (self.first.len() + 256 * self.second.len()) * size_of::<u32>()
    }
}

/// Looks up all keys in batches. The keys of the next batch are requested before, as an app has those of its packets at
/// hand: or else reading a million IPv6 keys from memory would take most of the time.
pub(super) fn pass<A>(table: &mut dyn LookUp<A>, keys: &[A]) {
    let mut next = [0; BATCH];
    for (batch, keys_of_batch) in keys.chunks(BATCH).enumerate() {
        for line in keys.iter().skip((batch + 1) * BATCH).take(BATCH).step_by(cache::LINE / size_of::<A>()) {
            cache::prefetch(ptr::from_ref(line).cast());
        }
        table.look_up(keys_of_batch, &mut next);
        black_box(&next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<A: Keys>(prefixes: &[Prefix<A>], mut others: Vec<Box<dyn LookUp<A>>>) {
        let routes = routes(prefixes, 300);
        let fib = Fib::<A>::with_readers(std::sync::Arc::default()).unwrap();
        let mut own = Own::fill(&fib, &routes).unwrap();
        others.push(Box::new(Intervals::of(&routes)));
        for set in KEY_SETS.map(|set| KeySet { count: set.count.min(20_000), ..set }) {
            let mut keys = keys(set, prefixes);
            keys.extend(prefixes.iter().take(3_000).flat_map(|prefix| [prefix.address(), prefix.last()]));
            let (mut found, mut expected) = (vec![0; keys.len()], vec![0; keys.len()]);
            own.look_up(&keys, &mut found);
            assert!(own.bytes() > 0);
            for other in &mut others {
                other.look_up(&keys, &mut expected);
                assert!(found == expected && other.bytes() > 0);
            }
        }
    }

    #[test]
    fn all_tables_find_the_same() {
        let prefixes = Prefixes::generated(20);
        check(&prefixes.ipv4, vec![Box::new(Dir24::of(&routes(&prefixes.ipv4, 300)))]);
        check(&prefixes.ipv6, Vec::new());
    }
}
