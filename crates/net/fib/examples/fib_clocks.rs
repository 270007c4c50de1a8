//! What look-ups and changes cost in a table of the prefixes of a file, one in a line, compressed by gzip; and look-ups of
//! the same keys in other tables, those of two crates and of two papers, in turns in the same process.
//!
//! `fib_clocks FILE [NUMBERS]`: each prefix has one of `NUMBERS` numbers (256 if not given) at random.

mod contest;

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::Instant;

use bellows_fib::{Fib, Prefix, Rib, Route};
use bellows_shared::{Breath, Readers};
use bellows_sys::clock;
use bellows_sys::memory::Words;
use contest::{Known, LookUp, allocated};
use flate2::read::GzDecoder;

const KEYS: usize = 1 << 20;
const ROUNDS: usize = 9;
const CHANGES: usize = 100_000;

struct Call;

// SAFETY: no reader is registered, so none passes.
unsafe impl Breath for Call {}

trait Random: Known {
    /// An address of those that are in use anywhere.
    fn anywhere() -> Self;

    /// An address in the prefix.
    fn within(prefix: Prefix<Self>) -> Self;
}

impl Random for u32 {
    fn anywhere() -> u32 {
        fastrand::u32(..)
    }

    fn within(prefix: Prefix<u32>) -> u32 {
        fastrand::u32(prefix.address()..=prefix.last())
    }
}

impl Random for u128 {
    fn anywhere() -> u128 {
        fastrand::u128(0x2000 << 112..0x4000 << 112)
    }

    fn within(prefix: Prefix<u128>) -> u128 {
        fastrand::u128(prefix.address()..=prefix.last())
    }
}

fn measure<A: Random>(family: &str, prefixes: &[Prefix<A>], numbers: u32) -> Result<(), Box<dyn Error>> {
    if prefixes.is_empty() {
        return Ok(());
    }
    let any = || prefixes[fastrand::usize(..prefixes.len())];
    let route = || Route { metric: 0, next: fastrand::u32(..numbers) };
    let routes: Vec<(Prefix<A>, Route)> = prefixes.iter().map(|&prefix| (prefix, route())).collect();
    let start = Instant::now();
    let mut rib = Rib::default();
    for &(prefix, route) in &routes {
        rib.insert(prefix, route);
    }
    let collected = start.elapsed();
    let fib = Fib::<A>::with_readers(Arc::new(Readers::new()))?;
    let mut changes = fib.lock();
    let start = Instant::now();
    changes.replace(rib);
    changes.commit()?;
    println!("{family}: collected in {collected:.1?}, compiled in {:.1?}, {:?}", start.elapsed(), changes.size());
    drop(changes);
    let routes: Vec<(Prefix<A>, u32)> = routes.into_iter().map(|(prefix, route)| (prefix, route.next)).collect();
    let mut tables: Vec<(&str, Box<dyn LookUp<A> + '_>)> = vec![("bellows", Box::new(Own(&fib)))];
    for name in contest::NAMES {
        let (start, before) = (Instant::now(), allocated());
        let Some(table) = contest::table(name, &routes) else {
            println!("  {name}: not for {family}");
            continue;
        };
        let mebibytes = (allocated() - before) as f64 / f64::from(1 << 20);
        println!("  {name}: made of all routes in {:.1?}, {mebibytes:.1} MiB", start.elapsed());
        tables.push((name, table));
    }
    look_ups(&tables, prefixes);
    let mut changes = fib.lock();
    for commit in [1, 100] {
        let start = Instant::now();
        for change in 0..CHANGES {
            changes.insert(any(), route())?;
            if change % commit == commit - 1 {
                changes.commit()?;
            }
        }
        println!("  {:.0} changes a second, committed by {commit}", CHANGES as f64 / start.elapsed().as_secs_f64());
    }
    drop(changes);
    println!("  then:");
    look_ups(&tables[..1], prefixes);
    Ok(())
}

/// This crate's table.
struct Own<'f, A: Known>(&'f Fib<A>);

impl<A: Known> LookUp<A> for Own<'_, A> {
    fn look_up(&self, keys: &[A], next: &mut [u32]) {
        self.0.tables(&Call).look_up(keys, next);
    }
}

/// Measures look-ups of different sets of keys: the best of some passes, in which the tables take turns.
fn look_ups<A: Random>(tables: &[(&str, Box<dyn LookUp<A> + '_>)], prefixes: &[Prefix<A>]) {
    let any = || prefixes[fastrand::usize(..prefixes.len())];
    let anywhere: Vec<A> = (0..KEYS).map(|_| A::anywhere()).collect();
    let by_prefix = |count: usize| (0..count).map(|_| A::within(any())).collect::<Vec<A>>();
    let sets = [
        ("anywhere", anywhere),
        ("by prefix", by_prefix(KEYS)),
        ("32,768 keys", by_prefix(32_768)),
        ("256 keys", by_prefix(256)),
    ];
    for (kind, keys) in sets {
        // On huge pages, as the tables.
        let mut memory = Words::new(keys.len() * size_of::<A>() / 8).expect("there is memory for keys");
        // SAFETY: addresses are integers, of which every value is one.
        let (_, huge, _) = unsafe { memory.bytes_mut().align_to_mut::<A>() };
        let huge = &mut huge[..keys.len()];
        huge.copy_from_slice(&keys);
        let keys = &*huge;
        let found = tables.iter().map(|(_, table)| {
            let mut next = vec![0; keys.len()];
            table.look_up(keys, &mut next);
            next
        });
        let found: Vec<Vec<u32>> = found.collect();
        assert!(found.iter().all(|next| *next == found[0]), "all tables find the same");
        let mut clocks = vec![u64::MAX; tables.len()];
        for _ in 0..ROUNDS {
            for ((_, table), clocks) in tables.iter().zip(&mut clocks) {
                let pass = || contest::pass(&**table, keys);
                // Untimed, to reload what the other tables evicted from the caches.
                pass();
                let start = clock::ticks();
                (0..KEYS / keys.len()).for_each(|_| pass());
                *clocks = (*clocks).min(clock::ticks() - start);
            }
        }
        let clocks = clocks.iter().map(|&clocks| clocks as f64 / KEYS as f64);
        let each: Vec<String> =
            tables.iter().zip(clocks).map(|((name, _), clocks)| format!("{name} {clocks:.2}")).collect();
        println!("  {kind}: {} clocks", each.join(", "));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("name a file")?;
    let numbers = arguments.next().map_or(Ok(256), |numbers| numbers.parse())?;
    fastrand::seed(1);
    let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
    for line in BufReader::new(GzDecoder::new(File::open(file)?)).lines() {
        let line = line?;
        if line.contains(':') { ipv6.push(line.parse()?) } else { ipv4.push(line.parse()?) }
    }
    measure::<u32>("IPv4", &ipv4, numbers)?;
    measure::<u128>("IPv6", &ipv6, numbers)
}
