//! Clocks of look-ups in the table of a file with a prefix in each line (`.gz`): `fib_clocks FILE [NEXT-HOPS]`.

use std::arch::x86_64::_rdtsc;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::Instant;

use bellows_fib::{Family, Fib, Prefix, Rib, Route};
use bellows_shared::{Breath, Readers};

struct Call;
unsafe impl Breath for Call {}

trait Random: Family {
    fn random() -> Self;
    fn join(network: Self, mask_length: u8, host: Self) -> Self;
}
impl Random for u32 {
    fn random() -> u32 {
        fastrand::u32(..)
    }
    fn join(network: u32, length: u8, host: u32) -> u32 {
        network | host & 0_u32.last_(length)
    }
}
impl Random for u128 {
    fn random() -> u128 {
        (1 << 125) | fastrand::u128(..) >> 3
    }
    fn join(network: u128, length: u8, host: u128) -> u128 {
        network | host & 0_u128.last_(length)
    }
}
trait Last {
    fn last_(self, length: u8) -> Self;
}
impl<A: bellows_fib::Address> Last for A {
    fn last_(self, length: u8) -> A {
        self.last(length)
    }
}

fn measure<A: Random>(prefixes: &[Prefix<A>], hops: u32, name: &str) {
    let start = Instant::now();
    let mut rib = Rib::default();
    for &prefix in prefixes {
        rib.insert(prefix, Route { metric: 0, next: fastrand::u32(..hops) });
    }
    let inserted = start.elapsed();
    let fib = Fib::<A>::with_readers(Arc::new(Readers::new())).unwrap();
    let mut changes = fib.lock();
    let start = Instant::now();
    changes.replace(rib);
    changes.commit().unwrap();
    println!("{name}: {} prefixes, rib {inserted:?}, compiled {:?}, {:?}", prefixes.len(), start.elapsed(), changes.size());
    let start = Instant::now();
    for _ in 0..100_000 {
        let prefix = prefixes[fastrand::usize(..prefixes.len())];
        changes.insert(prefix, Route { metric: 0, next: fastrand::u32(..hops) }).unwrap();
        changes.commit().unwrap();
    }
    println!("  changes one by one: {:.0} a second", 1e5 / start.elapsed().as_secs_f64());
    let start = Instant::now();
    for _ in 0..1000 {
        for _ in 0..100 {
            let prefix = prefixes[fastrand::usize(..prefixes.len())];
            changes.insert(prefix, Route { metric: 0, next: fastrand::u32(..hops) }).unwrap();
        }
        changes.commit().unwrap();
    }
    println!("  changes by 100: {:.0} a second", 1e5 / start.elapsed().as_secs_f64());
    drop(changes);
    let uniform: Vec<A> = (0..1 << 20).map(|_| A::random()).collect();
    let by_prefix: Vec<A> = (0..1 << 20)
        .map(|_| {
            let prefix = prefixes[fastrand::usize(..prefixes.len())];
            A::join(prefix.address(), prefix.length(), A::random())
        })
        .collect();
    let few: Vec<Prefix<A>> = (0..2000).map(|_| prefixes[fastrand::usize(..prefixes.len())]).collect();
    let hot: Vec<A> = (0..1 << 20)
        .map(|_| {
            let prefix = few[fastrand::usize(..few.len())];
            A::join(prefix.address(), prefix.length(), A::random())
        })
        .collect();
    for (kind, keys) in [("uniform", uniform), ("by prefix", by_prefix), ("2,000 prefixes", hot)] {
        let mut out = vec![0; keys.len()];
        let mut best = u64::MAX;
        let mut seconds = f64::MAX;
        for _ in 0..9 {
            let begin = Instant::now();
            let from = unsafe { _rdtsc() };
            for (keys, out) in keys.chunks(128).zip(out.chunks_mut(128)) {
                fib.tables(&Call).look_up(keys, out);
            }
            best = best.min(unsafe { _rdtsc() } - from);
            seconds = seconds.min(begin.elapsed().as_secs_f64());
        }
        println!(
            "  {kind}: {:.2} clocks, {:.0} M/s, {:.0} % without a route",
            best as f64 / keys.len() as f64,
            keys.len() as f64 / seconds / 1e6,
            out.iter().filter(|&&next| next == bellows_fib::NO_ROUTE).count() as f64 * 100.0 / keys.len() as f64
        );
    }
}

fn main() {
    let file = std::env::args().nth(1).expect("a file");
    let hops = std::env::args().nth(2).map_or(256, |hops| hops.parse().expect("a number"));
    fastrand::seed(1);
    let file = flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap());
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for line in BufReader::new(file).lines() {
        let line = line.unwrap();
        if line.contains(':') {
            v6.push(line.parse::<Prefix<u128>>().unwrap());
        } else {
            v4.push(line.parse::<Prefix<u32>>().unwrap());
        }
    }
    measure(&v4, hops, "IPv4");
    measure(&v6, hops, "IPv6");
}
