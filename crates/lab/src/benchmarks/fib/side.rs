//! The workers: one table that looks up keys, changes of both tables, or loading both.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use bellows_fib::{Fib, Prefix, Route, RouteFile};
use bellows_shared::Readers;
use bellows_sys::{clock, cpu};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::routes::Prefixes;
use super::tables::{Dir24, Intervals, KEY_SETS, Keys, LookUp, Own, keys, pass, rib, routes};
use super::{BATCH, CHANGES, PASSES};
use crate::slices::{Sliced, Turn, sliced};
use crate::workers::{Side, settle};

/// Look-ups before those that count.
const WARM_UP: u64 = 1 << 17;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    Ipv4,
    Ipv6,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Structure {
    Own,
    Dir24,
    BinarySearch,
}

/// What a thread looks up while another one changes tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reader {
    /// There is no such thread.
    Nothing,
    /// The tables that change.
    Changing,
    /// Tables like them. So the other thread has the same traffic with memory, but changes nothing that is read.
    Others,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Work {
    LookUp {
        kind: Kind,
        structure: Structure,
    },
    /// So many changes in a commit, and what another thread looks up meanwhile.
    Change {
        commit: usize,
        reader: Reader,
    },
    Load,
}

/// The task of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) work: Work,
    pub(super) next_hops: u32,
    pub(super) routes: Option<PathBuf>,
    /// Only one in so many of the generated prefixes.
    pub(super) divisor: usize,
    pub(super) cpu: Option<usize>,
}

/// The prefixes of a task.
pub(super) fn prefixes(routes: Option<&PathBuf>, divisor: usize) -> Result<Prefixes, String> {
    routes.map_or_else(|| Ok(Prefixes::generated(divisor)), |path| Prefixes::read(path))
}

/// Begins a task.
pub(super) fn lay_out(task: Task) -> Result<Box<dyn Side>, String> {
    settle(task.cpu);
    let prefixes = prefixes(task.routes.as_ref(), task.divisor)?;
    let no_memory = |error: std::io::Error| format!("no table: {error}");
    let side: Box<dyn Side> = match task.work {
        Work::LookUp { kind: Kind::Ipv4, structure: Structure::Dir24 } => {
            let routes = routes(&prefixes.ipv4, task.next_hops);
            Box::new(LookingUp::new(Box::new(Dir24::of(&routes)), &prefixes.ipv4, routes))
        }
        Work::LookUp { kind: Kind::Ipv4, structure } => looking_up::<u32>(structure, &prefixes, task.next_hops)?,
        Work::LookUp { kind: Kind::Ipv6, structure } => looking_up::<u128>(structure, &prefixes, task.next_hops)?,
        Work::Change { commit, reader } => {
            Box::new(Changing::new(prefixes, task.next_hops, commit, reader).map_err(no_memory)?)
        }
        Work::Load => Box::new(Loading::new(&prefixes, task.next_hops)),
    };
    Ok(side)
}

fn looking_up<A: Keys>(structure: Structure, prefixes: &Prefixes, next_hops: u32) -> Result<Box<dyn Side>, String> {
    let routes = routes(A::of(prefixes), next_hops);
    let table: Box<dyn LookUp<A>> = match structure {
        Structure::Own => {
            let fib = Fib::<A>::with_readers(Arc::new(Readers::new())).map_err(|error| error.to_string())?;
            // It lasts as long as the process.
            Box::new(Own::fill(Box::leak(Box::new(fib)), &routes).map_err(|error| error.to_string())?)
        }
        Structure::BinarySearch => Box::new(Intervals::of(&routes)),
        Structure::Dir24 => return Err("DIR-24-8 is for IPv4".to_owned()),
    };
    Ok(Box::new(LookingUp::new(table, A::of(prefixes), routes)))
}

/// A table and keys.
struct LookingUp<A: Keys> {
    table: Box<dyn LookUp<A>>,
    sets: Vec<Vec<A>>,
    routes: Vec<(Prefix<A>, u32)>,
}

impl<A: Keys> LookingUp<A> {
    fn new(table: Box<dyn LookUp<A>>, prefixes: &[Prefix<A>], routes: Vec<(Prefix<A>, u32)>) -> LookingUp<A> {
        LookingUp { table, sets: KEY_SETS.iter().map(|&set| keys(set, prefixes)).collect(), routes }
    }
}

impl<A: Keys> Side for LookingUp<A> {
    fn turn(&mut self) -> Turn {
        let (mut figures, mut parts) = (Vec::new(), Vec::new());
        for keys in &self.sets {
            // Untimed, to reload what other processes evicted from the caches.
            pass(&mut *self.table, keys);
            let part = sliced(PASSES, || pass(&mut *self.table, keys));
            figures.push(part.clocks / keys.len() as f64);
            parts.push(part);
        }
        figures.push(self.table.bytes() as f64);
        Turn::of(figures, &parts)
    }

    fn finish(mut self: Box<Self>) -> Result<(), String> {
        let mut plain = Intervals::of(&self.routes);
        for keys in self.sets.iter().flat_map(|keys| keys.chunks(BATCH)) {
            let (mut found, mut expected) = ([0; BATCH], [0; BATCH]);
            self.table.look_up(keys, &mut found);
            plain.look_up(keys, &mut expected);
            if found != expected {
                return Err("a table has found another next hop than a plain search".to_owned());
            }
        }
        Ok(())
    }
}

/// Both tables while their routes change.
struct Changing {
    prefixes: Prefixes,
    next_hops: u32,
    commit: usize,
    random: Rng,
    tables: Arc<Tables>,
    reader: Option<Looking>,
}

struct Tables {
    ipv4: Fib<u32>,
    ipv6: Fib<u128>,
}

impl Tables {
    fn new(prefixes: &Prefixes, next_hops: u32) -> Result<Arc<Tables>, std::io::Error> {
        Ok(Arc::new(Tables { ipv4: filled(&prefixes.ipv4, next_hops)?, ipv6: filled(&prefixes.ipv6, next_hops)? }))
    }
}

fn filled<A: Keys>(prefixes: &[Prefix<A>], next_hops: u32) -> Result<Fib<A>, std::io::Error> {
    let fib = Fib::with_readers(Arc::new(Readers::new()))?;
    let mut changes = fib.lock();
    changes.replace(rib(&routes(prefixes, next_hops)));
    changes.commit()?;
    drop(changes);
    Ok(fib)
}

/// A thread that looks up during turns, and parks between them, when it must not disturb other processes.
struct Looking {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_turn: AtomicBool,
    stop: AtomicBool,
    /// Look-ups so far.
    count: AtomicU64,
}

impl Looking {
    fn at(tables: Arc<Tables>, prefixes: &Prefixes) -> Looking {
        let (ipv4, ipv6) = (keys(KEY_SETS[2], &prefixes.ipv4), keys(KEY_SETS[2], &prefixes.ipv6));
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || look_up_in_turns(&tables, &ipv4, &ipv6, &shared)
        });
        Looking { thread, shared }
    }

    fn set(&self, is_turn: bool) {
        self.shared.is_turn.store(is_turn, Ordering::Relaxed);
        self.thread.thread().unpark();
    }

    fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }

    fn finish(self) -> Result<(), String> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let count = Arc::clone(&self.shared);
        match self.thread.join() {
            Err(_) => Err("the thread that looks up has panicked".to_owned()),
            Ok(()) if count.count.load(Ordering::Relaxed) == 0 => {
                Err("the other thread has looked up nothing".to_owned())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// On another processor than the one that changes routes, if there is one.
fn look_up_in_turns(tables: &Tables, ipv4: &[u32], ipv6: &[u128], shared: &Shared) {
    // If it cannot be moved, both share a processor, and the figure shows it.
    let _ = cpu::pin_to(0);
    let (mut readers, mut next) = ((tables.ipv4.reader(), tables.ipv6.reader()), [0; BATCH]);
    for (ipv4, ipv6) in ipv4.chunks(BATCH).zip(ipv6.chunks(BATCH)).cycle() {
        while !shared.is_turn.load(Ordering::Relaxed) && !shared.stop.load(Ordering::Relaxed) {
            // Nothing is in use meanwhile.
            readers.0.read(|_| ());
            readers.1.read(|_| ());
            thread::park();
        }
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        readers.0.read(|tables| tables.look_up(ipv4, &mut next));
        readers.1.read(|tables| tables.look_up(ipv6, &mut next));
        shared.count.fetch_add(2 * BATCH as u64, Ordering::Relaxed);
    }
}

impl Changing {
    fn new(prefixes: Prefixes, next_hops: u32, commit: usize, reader: Reader) -> Result<Changing, std::io::Error> {
        let tables = Tables::new(&prefixes, next_hops)?;
        let read = match reader {
            Reader::Nothing => None,
            Reader::Changing => Some(Arc::clone(&tables)),
            Reader::Others => Some(Tables::new(&prefixes, next_hops)?),
        };
        let reader = read.map(|tables| Looking::at(tables, &prefixes));
        Ok(Changing { prefixes, next_hops, commit, random: Rng::with_seed(4), tables, reader })
    }
}

impl Side for Changing {
    fn turn(&mut self) -> Turn {
        let Changing { prefixes, next_hops, commit, random, tables, reader } = self;
        let (mut ipv4, mut ipv6) = (tables.ipv4.lock(), tables.ipv6.lock());
        let all = prefixes.ipv4.len() + prefixes.ipv6.len();
        let before = reader.as_ref().map_or(0, |reader| {
            reader.set(true);
            // It has begun, and has its keys in the caches again.
            let begin = reader.count();
            while reader.count() < begin + WARM_UP {
                thread::yield_now();
            }
            reader.count()
        });
        let start = clock::ticks();
        for change in 1..=CHANGES {
            let route = Route { metric: 0, next: random.u32(..*next_hops) };
            let place = random.usize(..all);
            // The numbers are valid.
            let _ = match place.checked_sub(prefixes.ipv4.len()) {
                None => ipv4.insert(prefixes.ipv4[place], route),
                Some(place) => ipv6.insert(prefixes.ipv6[place], route),
            };
            if change % *commit == 0 && (ipv4.commit().is_err() || ipv6.commit().is_err()) {
                crate::workers::fail(&"there is no memory for changes");
            }
        }
        let took = (clock::ticks() - start) as f64;
        let a_second = |count: u64| count as f64 * clock::ticks_per_second() as f64 / took;
        let mut figures = vec![a_second(CHANGES as u64)];
        figures.extend(reader.as_ref().map(|reader| {
            reader.set(false);
            a_second(reader.count() - before)
        }));
        Turn::of(figures, &[Sliced::of(&[(CHANGES as u64, took)])])
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        self.reader.map_or(Ok(()), Looking::finish)
    }
}

/// A text with the routes of both families.
struct Loading {
    text: Vec<u8>,
    /// The memory that the first turn took. Later ones use again what it has freed.
    memory: Option<u64>,
}

impl Loading {
    fn new(prefixes: &Prefixes, next_hops: u32) -> Loading {
        let ipv4 = routes(&prefixes.ipv4, next_hops).into_iter().map(|(prefix, next)| format!("{prefix} {next}\n"));
        let ipv6 = routes(&prefixes.ipv6, next_hops).into_iter().map(|(prefix, next)| format!("{prefix} {next}\n"));
        Loading { text: ipv4.chain(ipv6).collect::<String>().into_bytes(), memory: None }
    }

    /// Both tables from the text.
    fn load(&self) -> Result<(Fib<u32>, Fib<u128>), String> {
        let RouteFile { ipv4, ipv6 } = RouteFile::parse(&self.text).map_err(|error| error.to_string())?;
        let build = || {
            let tables = (Fib::with_readers(Arc::default())?, Fib::with_readers(Arc::default())?);
            let (mut changes, mut changes6) = (tables.0.lock(), tables.1.lock());
            changes.replace(ipv4);
            changes.commit()?;
            changes6.replace(ipv6);
            changes6.commit()?;
            drop((changes, changes6));
            Ok(tables)
        };
        build().map_err(|error: std::io::Error| error.to_string())
    }
}

impl Side for Loading {
    fn turn(&mut self) -> Turn {
        let before = resident();
        let start = clock::ticks();
        let tables = self.load().unwrap_or_else(|error| crate::workers::fail(&error));
        let took = (clock::ticks() - start) as f64;
        let bytes = *self.memory.get_or_insert_with(|| resident().saturating_sub(before));
        drop(tables);
        let milliseconds = took * 1e3 / clock::ticks_per_second() as f64;
        Turn::of(vec![milliseconds, bytes as f64 / f64::from(1 << 20)], &[Sliced::of(&[(1, took)])])
    }
}

/// The bytes of memory that the process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    1024 * number.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_has_its_figures() {
        for (work, figures) in [
            (Work::LookUp { kind: Kind::Ipv4, structure: Structure::Own }, KEY_SETS.len() + 1),
            (Work::LookUp { kind: Kind::Ipv6, structure: Structure::BinarySearch }, KEY_SETS.len() + 1),
            (Work::Change { commit: 100, reader: Reader::Nothing }, 1),
            (Work::Change { commit: 100, reader: Reader::Changing }, 2),
            (Work::Change { commit: 1, reader: Reader::Others }, 2),
            (Work::Load, 2),
        ] {
            let mut side = lay_out(Task { work, next_hops: 9, routes: None, divisor: 100, cpu: None }).unwrap();
            let turn = side.turn();
            assert_eq!(turn.figures.len(), figures, "{work:?}");
            assert!(turn.figures.iter().all(|&figure| figure >= 0.0), "{turn:?}");
            assert_eq!(side.finish(), Ok(()), "{work:?}");
        }
        let wrong = Work::LookUp { kind: Kind::Ipv6, structure: Structure::Dir24 };
        assert!(lay_out(Task { work: wrong, next_hops: 9, routes: None, divisor: 100, cpu: None }).is_err());
    }
}
