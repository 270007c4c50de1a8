//! Look-ups while another thread changes routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bellows_fib::{AddressFamily, Fib, NO_ROUTE, Prefix, Rib, Route};
use bellows_shared::{Breath, Readers};

struct Call;

// SAFETY: the threads of these tests pass only between look-ups.
unsafe impl Breath for Call {}

/// Stops the readers, also if the writer panics.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two readers look up addresses, of which each has its own set of possible results, while one writer changes routes. Rooms
/// of nodes are reused all the time: a reader that saw one of them too late would find another address' result.
fn look_up_while_changing<A: AddressFamily>(prefixes: &[Prefix<A>]) {
    let readers = Arc::new(Readers::new());
    let fib = Fib::<A>::with_readers(Arc::clone(&readers)).unwrap();
    let keys: Vec<A> = prefixes.iter().map(|prefix| prefix.last()).collect();
    let stop = AtomicBool::new(false);
    // The number encodes the prefix and one of two routes.
    let route = |place: usize, which: usize| Route { metric: 0, next: (2 * place + which) as u32 };
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..2 {
            let reader = readers.register(|| ());
            scope.spawn(|| {
                let reader = reader;
                let mut next = vec![0; keys.len()];
                while !stop.load(Ordering::Relaxed) {
                    fib.tables(&Call).look_up(&keys, &mut next);
                    for (place, &next) in next.iter().enumerate() {
                        assert!(next == NO_ROUTE || next as usize / 2 == place, "{} has {next}", keys[place].shown());
                    }
                    reader.quiescent();
                }
            });
        }
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..3_000 {
            let mut changes = fib.lock();
            if round % 500 == 499 {
                let mut rib = Rib::default();
                for (place, &prefix) in prefixes.iter().enumerate().filter(|_| random.bool()) {
                    rib.insert(prefix, route(place, 1));
                }
                changes.replace(rib);
            }
            for _ in 0..10 {
                let place = random.usize(..prefixes.len());
                if random.bool() {
                    changes.insert(prefixes[place], route(place, random.usize(..2))).unwrap();
                } else {
                    changes.remove(prefixes[place], None);
                }
            }
            changes.commit().unwrap();
        }
    });
}

#[test]
fn ipv4() {
    let prefix = |place: u32| Prefix::of(0x0a00_0000 + place * 0x39c, 30 - (place % 5) as u8).unwrap();
    look_up_while_changing(&distinct((0..500).map(prefix).collect()));
}

#[test]
fn ipv6() {
    let prefix = |place: u128| {
        let address = 0x2001_0db8 << 96 | (place * 0x39c) << 77 | (place % 3) << 50;
        Prefix::of(address, [48, 56, 80, 128][place as usize % 4]).unwrap()
    };
    look_up_while_changing(&distinct((0..500).map(prefix).collect()));
}

/// Those prefixes of which none is within another.
fn distinct<A: AddressFamily>(mut prefixes: Vec<Prefix<A>>) -> Vec<Prefix<A>> {
    prefixes.sort_unstable();
    prefixes.dedup_by(|later, earlier| earlier.covers(*later));
    prefixes
}
