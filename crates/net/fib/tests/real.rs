//! The prefixes of the Internet, as they nest in reality.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use bellows_fib::{AddressFamily, Fib, NO_ROUTE, Prefix, Rib, Route};
use bellows_shared::{Breath, Readers};
use fastrand::Rng;
use flate2::read::GzDecoder;

struct Call;

// SAFETY: the threads of these tests pass only between look-ups.
unsafe impl Breath for Call {}

/// An address of the table.
trait Real: AddressFamily {
    /// A random address.
    fn random(random: &mut Rng, within: RangeInclusive<Self>) -> Self;

    /// The addresses before and behind a range.
    fn beside(range: RangeInclusive<Self>) -> [Self; 2];
}

macro_rules! real {
    ($number:ident) => {
        impl Real for $number {
            fn random(random: &mut Rng, within: RangeInclusive<$number>) -> $number {
                random.$number(within)
            }

            fn beside(range: RangeInclusive<$number>) -> [$number; 2] {
                [range.start().wrapping_sub(1), range.end().wrapping_add(1)]
            }
        }
    };
}

real!(u32);
real!(u128);

/// The prefixes of one family, or `None` if there is no table beside the checkout.
fn prefixes<A: Real>(test: &str) -> Option<Vec<Prefix<A>>>
where
    Prefix<A>: FromStr<Err: Debug>,
{
    let file = File::open(bellows_testkit::rib::real(test)?).unwrap();
    let lines = BufReader::new(GzDecoder::new(file)).lines().map(Result::unwrap);
    let is_of_family = |line: &String| line.contains(':') == (A::BITS == 128);
    Some(lines.filter(is_of_family).map(|line| line.parse().unwrap()).collect())
}

type Model<A> = BTreeMap<Prefix<A>, u32>;

/// The prefixes of a model that an address is within, the longest first.
fn around<A: Real>(model: &Model<A>, address: A) -> impl Iterator<Item = (Prefix<A>, u32)> {
    (0..=A::BITS)
        .rev()
        .filter_map(move |length| model.get_key_value(&Prefix::of(address, length)?))
        .map(|(prefix, number)| (*prefix, *number))
}

/// Addresses in and beside prefixes.
fn near<A: Real>(prefixes: impl Iterator<Item = Prefix<A>>, random: &mut Rng) -> Vec<A> {
    let near = |prefix: Prefix<A>| {
        let all = prefix.address()..=prefix.last();
        let [before, behind] = A::beside(all.clone());
        [*all.start(), *all.end(), before, behind, A::random(random, all)]
    };
    prefixes.flat_map(near).collect()
}

fn check<A: Real>(fib: &Fib<A>, model: &Model<A>, keys: &[A]) {
    let mut found = vec![0; keys.len()];
    fib.tables(&Call).look_up(keys, &mut found);
    for (&key, &found) in keys.iter().zip(&found) {
        let expected = around(model, key).next().map_or(NO_ROUTE, |(_, number)| number);
        assert_eq!(found, expected, "{}", key.shown());
    }
}

/// A table of the prefixes, with random numbers.
fn filled<A: Real>(readers: &Arc<Readers>, prefixes: &[Prefix<A>], random: &mut Rng) -> (Fib<A>, Model<A>) {
    let fib = Fib::<A>::with_readers(Arc::clone(readers)).unwrap();
    let model: Model<A> = prefixes.iter().map(|&prefix| (prefix, random.u32(..1_000))).collect();
    let mut rib = Rib::default();
    for (&prefix, &next) in &model {
        rib.insert(prefix, Route { metric: 0, next });
    }
    let mut changes = fib.lock();
    changes.replace(rib);
    changes.commit().unwrap();
    drop(changes);
    (fib, model)
}

/// Looks up addresses near all of some prefixes, and then, after each round of random changes, those near what changed.
fn as_a_search_by_length<A: Real>(prefixes: &[Prefix<A>], checked: usize) {
    let mut random = Rng::with_seed(3);
    let readers = Arc::new(Readers::new());
    let reader = readers.register(|| ());
    let (fib, mut model) = filled(&readers, prefixes, &mut random);
    let keys = near(prefixes.iter().copied().step_by(prefixes.len() / checked), &mut random);
    check(&fib, &model, &keys);
    for _ in 0..20 {
        let mut changes = fib.lock();
        let mut changed = Vec::new();
        for _ in 0..checked / 20 {
            let known = prefixes[random.usize(..prefixes.len())];
            // Others are those that come with more or fewer bits than they are announced with.
            let length = if random.bool() { known.length() } else { random.u8(1..=A::BITS) };
            let prefix = Prefix::of(A::random(&mut random, known.address()..=known.last()), length).unwrap();
            if random.u8(..3) == 0 {
                assert_eq!(changes.remove(prefix, None).map(|route| route.next), model.remove(&prefix));
            } else {
                let route = Route { metric: 0, next: random.u32(..1_000) };
                let replaced = changes.insert(prefix, route).unwrap();
                assert_eq!(replaced.map(|route| route.next), model.insert(prefix, route.next));
            }
            changed.push(prefix);
        }
        changes.commit().unwrap();
        drop(changes);
        check(&fib, &model, &near(changed.into_iter(), &mut random));
        reader.quiescent();
    }
    check(&fib, &model, &keys);
}

/// Stops the readers, also if the writer panics.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A reader looks up addresses while random prefixes lose their routes, or get one of two. What it finds for an address is a
/// number of one of the prefixes around it.
fn while_routes_change<A: Real>(prefixes: &[Prefix<A>]) {
    let mut random = Rng::with_seed(4);
    let readers = Arc::new(Readers::new());
    let reader = readers.register(|| ());
    let (fib, model) = filled(&readers, prefixes, &mut random);
    let some = prefixes.iter().copied().step_by(prefixes.len() / 1_000);
    let keys = near(some, &mut random);
    let allowed: Vec<Vec<u32>> = keys
        .iter()
        .map(|&key| around(&model, key).flat_map(|(_, number)| [number, number + 1_000]).collect())
        .collect();
    // Changes reach the keys often.
    let reached: Vec<Prefix<A>> = keys.iter().flat_map(|&key| around(&model, key)).map(|(prefix, _)| prefix).collect();
    let (stop, passes) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        let looking_up = scope.spawn(|| {
            let reader = reader;
            let mut next = vec![0; keys.len()];
            while !stop.load(Ordering::Relaxed) {
                fib.tables(&Call).look_up(&keys, &mut next);
                for ((next, allowed), key) in next.iter().zip(&allowed).zip(&keys) {
                    assert!(*next == NO_ROUTE || allowed.contains(next), "{} has {next}", key.shown());
                }
                reader.quiescent();
                passes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut round = 0;
        while (round < 2_000 || passes.load(Ordering::Relaxed) < 100) && !looking_up.is_finished() {
            let mut changes = fib.lock();
            for _ in 0..10 {
                let prefix = reached[random.usize(..reached.len())];
                if random.u8(..4) == 0 {
                    changes.remove(prefix, None);
                } else {
                    let next = model[&prefix] + if random.bool() { 1_000 } else { 0 };
                    changes.insert(prefix, Route { metric: 0, next }).unwrap();
                }
            }
            changes.commit().unwrap();
            round += 1;
        }
    });
}

#[test]
fn ipv4_as_a_search_by_length() {
    let Some(prefixes) = prefixes::<u32>("ipv4_as_a_search_by_length") else { return };
    as_a_search_by_length(&prefixes, 20_000);
}

#[test]
fn ipv6_as_a_search_by_length() {
    let Some(prefixes) = prefixes::<u128>("ipv6_as_a_search_by_length") else { return };
    as_a_search_by_length(&prefixes, 8_000);
}

#[test]
fn ipv4_while_routes_change() {
    let Some(prefixes) = prefixes::<u32>("ipv4_while_routes_change") else { return };
    while_routes_change(&prefixes);
}

#[test]
fn ipv6_while_routes_change() {
    let Some(prefixes) = prefixes::<u128>("ipv6_while_routes_change") else { return };
    while_routes_change(&prefixes);
}
