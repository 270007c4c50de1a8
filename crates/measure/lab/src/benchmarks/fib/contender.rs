//! The workers: one table that looks up keys, changes of both tables, replacing all their routes, or loading both.

use std::path::PathBuf;
use std::sync::Arc;

use bellows_fib::{Fib, Prefix, RouteFile};
use bellows_shared::Readers;
use bellows_sys::clock;
use serde::{Deserialize, Serialize};

use super::changing::Changing;
use super::replacing::Replacing;
use super::routes::Prefixes;
use super::tables::{Dir24, Intervals, KEY_SETS, Keys, LookUp, Own, keys, pass, routes};
use super::{BATCH, PASSES};
use crate::slices::{Sliced, Turn, sliced};
use crate::workers::{Contender, settle};

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum KeyFamily {
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
pub(super) enum ReaderLookUps {
    /// There is no such thread.
    Nothing,
    /// The tables that change.
    Changing,
    /// Tables like them. So the other thread has the same traffic with memory, but changes nothing that is read.
    Others,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FibWork {
    LookUp {
        kind: KeyFamily,
        structure: Structure,
    },
    /// So many changes in a commit, and what another thread looks up meanwhile.
    Change {
        commit: usize,
        reader: ReaderLookUps,
    },
    /// All routes of both tables, while another thread looks up.
    Replace,
    Load,
}

/// The task of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FibTask {
    pub(super) work: FibWork,
    pub(super) next_hops: u32,
    pub(super) routes: Option<PathBuf>,
    /// Only one in this many of the generated prefixes.
    pub(super) divisor: usize,
    pub(super) cpu: Option<usize>,
}

/// The prefixes of a task.
pub(super) fn prefixes(routes: Option<&PathBuf>, divisor: usize) -> Result<Prefixes, String> {
    routes.map_or_else(|| Ok(Prefixes::generated(divisor)), |path| Prefixes::read(path))
}

/// Begins a task.
pub(super) fn lay_out(task: FibTask) -> Result<Box<dyn Contender>, String> {
    settle(task.cpu);
    let prefixes = prefixes(task.routes.as_ref(), task.divisor)?;
    let no_memory = |error: std::io::Error| format!("no table: {error}");
    let side: Box<dyn Contender> = match task.work {
        FibWork::LookUp { kind: KeyFamily::Ipv4, structure: Structure::Dir24 } => {
            let routes = routes(&prefixes.ipv4, task.next_hops);
            Box::new(LookingUp::new(Box::new(Dir24::of(&routes)), &prefixes.ipv4, routes))
        }
        FibWork::LookUp { kind: KeyFamily::Ipv4, structure } => {
            looking_up::<u32>(structure, &prefixes, task.next_hops)?
        }
        FibWork::LookUp { kind: KeyFamily::Ipv6, structure } => {
            looking_up::<u128>(structure, &prefixes, task.next_hops)?
        }
        FibWork::Change { commit, reader } => {
            Box::new(Changing::new(prefixes, task.next_hops, commit, reader).map_err(no_memory)?)
        }
        FibWork::Replace => Box::new(Replacing::new(&prefixes, task.next_hops).map_err(no_memory)?),
        FibWork::Load => Box::new(Loading::new(&prefixes, task.next_hops)),
    };
    Ok(side)
}

fn looking_up<A: Keys>(
    structure: Structure,
    prefixes: &Prefixes,
    next_hops: u32,
) -> Result<Box<dyn Contender>, String> {
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

impl<A: Keys> Contender for LookingUp<A> {
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

impl Contender for Loading {
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
            (FibWork::LookUp { kind: KeyFamily::Ipv4, structure: Structure::Own }, KEY_SETS.len() + 1),
            (FibWork::LookUp { kind: KeyFamily::Ipv6, structure: Structure::BinarySearch }, KEY_SETS.len() + 1),
            (FibWork::Change { commit: 100, reader: ReaderLookUps::Nothing }, 1),
            (FibWork::Change { commit: 100, reader: ReaderLookUps::Changing }, 2),
            (FibWork::Change { commit: 1, reader: ReaderLookUps::Others }, 2),
            (FibWork::Replace, 3),
            (FibWork::Load, 2),
        ] {
            let mut side = lay_out(FibTask { work, next_hops: 9, routes: None, divisor: 100, cpu: None }).unwrap();
            let turn = side.turn();
            assert_eq!(turn.figures.len(), figures, "{work:?}");
            assert!(turn.figures.iter().all(|&figure| figure >= 0.0), "{turn:?}");
            assert_eq!(side.finish(), Ok(()), "{work:?}");
        }
        let wrong = FibWork::LookUp { kind: KeyFamily::Ipv6, structure: Structure::Dir24 };
        assert!(lay_out(FibTask { work: wrong, next_hops: 9, routes: None, divisor: 100, cpu: None }).is_err());
    }
}
