//! Look-ups beside a list of all routes, while routes change.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellows_fib::{Address, AddressFamily, Fib, NO_ROUTE, Prefix, Route};
use bellows_shared::{Breath, Readers};
use proptest::prelude::*;

struct Call;

// SAFETY: in these tests the thread passes only while it has no reference to a table.
unsafe impl Breath for Call {}

/// A change of a route.
#[derive(Clone, Debug)]
enum Change<A: AddressFamily> {
    Insert(Prefix<A>, Route),
    Remove(Prefix<A>, Option<u32>),
}

/// Addresses that are near to one another, so that prefixes nest.
trait Near: AddressFamily {
    fn near(seed: u64) -> Self;
    fn length(seed: u64) -> u8;
}

impl Near for u32 {
    fn near(seed: u64) -> u32 {
        // Few values of each byte.
        (seed as u32) & 0x8103_0c83
    }

    fn length(seed: u64) -> u8 {
        (seed % 33) as u8
    }
}

impl Near for u128 {
    fn near(seed: u64) -> u128 {
        let parts =
            [0x2001_u128 << 112, 1 << 109, 1 << 107, 1 << 106, 1 << 90, 3 << 75, 1 << 74, 1 << 64, 1 << 40, 7 << 20, 1];
        parts.iter().enumerate().filter(|(bit, _)| seed >> bit & 1 != 0).map(|(_, part)| part).sum()
    }

    fn length(seed: u64) -> u8 {
        (seed % 129) as u8
    }
}

fn prefixes<A: Near>() -> impl Strategy<Value = Prefix<A>> {
    (any::<u64>(), any::<u64>()).prop_map(|(address, length)| {
        Prefix::of(A::near(address), A::length(length)).expect("the length is at most that of an address")
    })
}

fn changes<A: Near>() -> impl Strategy<Value = Vec<Vec<Change<A>>>> {
    let insert = (prefixes(), 0..3_u32, 0..5_u32)
        .prop_map(|(prefix, metric, next)| Change::Insert(prefix, Route { metric, next }));
    let remove =
        (prefixes(), proptest::option::of(0..3_u32)).prop_map(|(prefix, metric)| Change::Remove(prefix, metric));
    let change = prop_oneof![3 => insert, 1 => remove];
    proptest::collection::vec(proptest::collection::vec(change, 1..20), 1..8)
}

/// The routes by prefix and metric.
type Model<A> = BTreeMap<(Prefix<A>, u32), u32>;

fn expected<A: AddressFamily>(model: &Model<A>, key: A) -> u32 {
    let covering = model.iter().filter(|((prefix, _), _)| prefix.contains(key));
    covering
        .max_by_key(|((prefix, metric), _)| (prefix.length(), u32::MAX - metric))
        .map_or(NO_ROUTE, |(_, &next)| next)
}

fn check<A: Near>(rounds: &[Vec<Change<A>>], seeds: &[u64]) {
    let readers = Arc::new(Readers::new());
    let reader = readers.register(|| ());
    let fib = Fib::<A>::with_readers(readers).unwrap();
    let mut model = Model::new();
    for round in rounds {
        let mut changes = fib.lock();
        for change in round {
            match *change {
                Change::Insert(prefix, route) => {
                    let replaced = changes.insert(prefix, route).unwrap();
                    assert_eq!(replaced.map(|route| route.next), model.insert((prefix, route.metric), route.next));
                }
                Change::Remove(prefix, metric) => {
                    let best = model.range((prefix, 0)..=(prefix, u32::MAX)).next().map(|(&(_, metric), _)| metric);
                    let removed = metric.or(best).and_then(|metric| model.remove(&(prefix, metric)));
                    assert_eq!(changes.remove(prefix, metric).map(|route| route.next), removed);
                }
            }
        }
        changes.commit().unwrap();
        assert_eq!(changes.rib().len(), model.len());
        drop(changes);
        // The ends of all prefixes, what is beside them, and other addresses.
        let ends = model.keys().flat_map(|(prefix, _)| [prefix.address(), prefix.last()]);
        let keys: Vec<A> = ends.chain(seeds.iter().map(|&seed| A::near(seed))).collect();
        let mut found = vec![0; keys.len()];
        fib.tables(&Call).look_up(&keys, &mut found);
        for (&key, &found) in keys.iter().zip(&found) {
            assert_eq!(found, expected(&model, key), "{}", key.shown());
        }
        reader.quiescent();
    }
}

proptest! {
    #[test]
    fn ipv4_as_the_list(rounds in changes::<u32>(), seeds in proptest::collection::vec(any::<u64>(), 200)) {
        check(&rounds, &seeds);
    }

    #[test]
    fn ipv6_as_the_list(rounds in changes::<u128>(), seeds in proptest::collection::vec(any::<u64>(), 200)) {
        check(&rounds, &seeds);
    }
}

/// The number of the longest prefix for an address, by one search for each length.
fn longest(model: &BTreeMap<Prefix<u128>, u32>, key: u128) -> u32 {
    let lengths = (0..=128).rev();
    let found = lengths.filter_map(|length| model.get(&Prefix::of(key, length).unwrap())).next();
    found.copied().unwrap_or(NO_ROUTE)
}

/// Prefixes in networks of 32 bits, from a few to thousands each, with lengths as they are common, and some much longer.
fn nested(random: &mut fastrand::Rng) -> Prefix<u128> {
    let mut few = |most: u32| {
        let bits = random.u32(..=most);
        random.u128(..1 << bits)
    };
    let address = 0x2a00_u128 << 112 | few(5) << 96 | few(16) << 80 | few(79);
    let length = match random.u32(..20) {
        0 => random.u8(..=128),
        1 => 64 + random.u8(..=64),
        2..6 => 33 + random.u8(..15),
        6 => 17 + random.u8(..16),
        _ => 48,
    };
    Prefix::of(address, length).unwrap()
}

#[test]
fn many_ipv6_prefixes_as_a_search_by_length() {
    let readers = Arc::new(Readers::new());
    let reader = readers.register(|| ());
    let fib = Fib::<u128>::with_readers(readers).unwrap();
    let mut random = fastrand::Rng::with_seed(8);
    let mut model = BTreeMap::new();
    for round in 0..60 {
        let mut changes = fib.lock();
        // Grows to some ten thousand prefixes, then shrinks to few.
        for _ in 0..if round < 40 { 400 } else { 0 } {
            let (prefix, next) = (nested(&mut random), random.u32(..300) << (random.u32(..9) / 8 * 20));
            changes.insert(prefix, Route { metric: 0, next }).unwrap();
            model.insert(prefix, next);
        }
        let present: Vec<Prefix<u128>> = model.keys().copied().collect();
        for _ in 0..if round < 40 { 20 } else { present.len() / 3 } {
            let prefix = present[random.usize(..present.len())];
            changes.remove(prefix, None);
            model.remove(&prefix);
        }
        changes.commit().unwrap();
        drop(changes);
        let mut keys = Vec::new();
        for &prefix in present.iter().skip(round % 8).step_by(8) {
            let (first, last) = (prefix.address(), prefix.last());
            keys.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1), random.u128(first..=last)]);
        }
        let mut found = vec![0; keys.len()];
        fib.tables(&Call).look_up(&keys, &mut found);
        for (&key, &found) in keys.iter().zip(&found) {
            assert_eq!(found, longest(&model, key), "{} in round {round}", key.shown());
        }
        reader.quiescent();
    }
}

/// Looks up the ends of all prefixes.
fn check_ends(fib: &Fib<u32>, model: &Model<u32>) {
    let keys: Vec<u32> = model.keys().flat_map(|(prefix, _)| [prefix.address(), prefix.last()]).collect();
    let mut found = vec![0; keys.len()];
    fib.tables(&Call).look_up(&keys, &mut found);
    // The prefixes of these tests do not overlap.
    let expected = model.values().flat_map(|&next| [next, next]);
    assert!(found.into_iter().eq(expected));
}

#[test]
fn more_numbers_than_there_are_codes() {
    let readers = Arc::new(Readers::new());
    let reader = readers.register(|| ());
    let fib = Fib::<u32>::with_readers(readers).unwrap();
    let mut model = Model::new();
    let mut changes = fib.lock();
    for place in 0..150_000_u32 {
        let prefix = Prefix::of(place << 8, if place % 1_000 == 0 { 32 } else { 24 }).unwrap();
        changes.insert(prefix, Route { metric: 0, next: place }).unwrap();
        model.insert((prefix, 0), place);
    }
    changes.commit().unwrap();
    check_ends(&fib, &model);
    // Few numbers have codes again at last: the table is compiled anew.
    let prefixes: Vec<Prefix<u32>> = model.keys().map(|&(prefix, _)| prefix).collect();
    for round in 0..8_u32 {
        for (at, &prefix) in prefixes.iter().enumerate() {
            let next = at as u32 % 7 + (1 << 20) * (round % 2);
            changes.insert(prefix, Route { metric: 0, next }).unwrap();
            model.insert((prefix, 0), next);
        }
        changes.commit().unwrap();
        check_ends(&fib, &model);
        reader.quiescent();
    }
}

#[test]
fn replaced_routes_are_seen_at_once_and_change_further() {
    let readers = Arc::new(Readers::new());
    let reader = readers.register(|| ());
    let fib = Fib::<u32>::with_readers(readers).unwrap();
    for round in 0..5_u32 {
        let (mut rib, mut model) = (bellows_fib::Rib::default(), Model::new());
        for place in 0..2_000_u32 {
            let prefix = Prefix::of(place << 12 | round << 28, 20 + (place % 13) as u8).unwrap();
            rib.insert(prefix, Route { metric: 0, next: place + round });
            model.insert((prefix, 0), place + round);
        }
        let mut changes = fib.lock();
        let before: Vec<u32> = changes.rib().iter().map(|(prefix, _)| prefix.last()).collect();
        changes.replace(rib);
        let mut found = vec![0; before.len()];
        fib.tables(&Call).look_up(&before, &mut found);
        assert!(!found.contains(&NO_ROUTE), "nothing changes before the commit");
        changes.commit().unwrap();
        check_ends(&fib, &model);
        let (prefix, route) = (Prefix::of(round << 28, 20).unwrap(), Route { metric: 0, next: 77 });
        changes.insert(prefix, route).unwrap();
        changes.commit().unwrap();
        model.insert((prefix, 0), 77);
        check_ends(&fib, &model);
        reader.quiescent();
    }
}

/// Hosts on few links, of which each has enough for cells of its own, as an access router has them.
#[test]
fn hosts_on_links_as_a_search_by_length() {
    let readers = Arc::new(Readers::new());
    let reader = readers.register(|| ());
    let fib = Fib::<u128>::with_readers(readers).unwrap();
    let mut random = fastrand::Rng::with_seed(9);
    let mut model = BTreeMap::new();
    let links = [0_u128, 1, 1 << 15, 1 << 31].map(|link| 0xfd00_u128 << 112 | link << 64);
    for round in 0..40 {
        // One link after the other gets hosts, and loses most of them later.
        let link = links[round % 8 / 2];
        let mut changes = fib.lock();
        if round % 2 == 0 {
            let host = |_| (link | u128::from(random.u32(..1 << (8 + round % 12))), 128);
            let mut prefixes: Vec<_> = (0..400).map(host).collect();
            prefixes.extend([(link, 64), (link, 48 + (round % 60) as u8)]);
            for (address, length) in prefixes {
                let (prefix, next) = (Prefix::of(address, length).unwrap(), random.u32(..300));
                changes.insert(prefix, Route { metric: 0, next }).unwrap();
                model.insert(prefix, next);
            }
        } else {
            let gone: Vec<_> = model.keys().copied().filter(|_| random.u8(..4) > 0).collect();
            for prefix in gone.into_iter().filter(|prefix| prefix.address() >> 64 == link >> 64) {
                changes.remove(prefix, None);
                model.remove(&prefix);
            }
        }
        changes.commit().unwrap();
        drop(changes);
        let near = model.keys().flat_map(|prefix| {
            let bit = 1_u128 << random.u32(..112);
            [prefix.address(), prefix.address() ^ bit, prefix.last()]
        });
        let keys: Vec<u128> = near.collect();
        let mut found = vec![0; keys.len()];
        fib.tables(&Call).look_up(&keys, &mut found);
        for (&key, &found) in keys.iter().zip(&found) {
            assert_eq!(found, longest(&model, key), "{} in round {round}", key.shown());
        }
        reader.quiescent();
    }
}

/// Networks that are spread evenly in larger blocks, with few prefixes each: their ways lead through cells behind cells.
#[test]
fn spread_networks_as_a_search_by_length() {
    let fib = Fib::<u128>::with_readers(Arc::new(Readers::new())).unwrap();
    let mut random = fastrand::Rng::with_seed(10);
    let mut model = BTreeMap::new();
    let mut changes = fib.lock();
    for block in 0..12_u128 {
        for _ in 0..20 {
            let network =
                0x2a00_u128 << 112 | block << 112 | random.u128(..1 << 12) << 96 | random.u128(..1 << 16) << 80;
            for _ in 0..random.u32(4..30) {
                let address = network ^ random.u128(..1 << 96);
                let length = if random.u8(..10) == 0 { random.u8(49..=128) } else { random.u8(33..=48) };
                let (prefix, next) = (Prefix::of(address, length).unwrap(), random.u32(..300));
                changes.insert(prefix, Route { metric: 0, next }).unwrap();
                model.insert(prefix, next);
            }
        }
    }
    changes.commit().unwrap();
    drop(changes);
    let mut keys: Vec<u128> = model
        .keys()
        .flat_map(|prefix| {
            let (first, last) = (prefix.address(), prefix.last());
            [first, last, random.u128(first..=last), random.u128(first..=last) ^ 1 << random.u32(64..112)]
        })
        .collect();
    random.shuffle(&mut keys);
    let mut found = vec![0; keys.len()];
    fib.tables(&Call).look_up(&keys, &mut found);
    for (&key, &found) in keys.iter().zip(&found) {
        assert_eq!(found, longest(&model, key), "{}", key.shown());
    }
}
