//! Routes, the compiled tables that follow them, and look-ups in these.

use std::io;
use std::marker::PhantomData;
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bellows_shared::{Breath, Published, Readers, Writer};
use bellows_sys::simd::{Level, Simd};

use crate::cells::Cells;
use crate::codes::Codes;
use crate::entry::BATCH;
use crate::layout::{Builder, Reach};
use crate::nodes::Nodes;
use crate::reader::TableReader;
use crate::search::{self, Search};
use crate::short::Short;
use crate::{AddressFamily, NO_ROUTE, Prefix, Rib, Route};

/// The highest number that a route may have.
pub const MAX_NEXT: u32 = (1 << 30) - 2;

/// A forwarding table that many threads read while one at a time changes it.
pub struct Fib<A: AddressFamily> {
    tables: Published<Tables<A>>,
    readers: Arc<Readers>,
    state: Mutex<FibState<A>>,
}

struct FibState<A: AddressFamily> {
    rib: Rib<A>,
    /// Follows the routes at each change.
    short: Short<A>,
    nodes: Nodes,
    codes: Codes,
    /// All routes were replaced since the tables were compiled.
    is_replaced: bool,
    /// Prefixes whose best route is another one than when the tables were compiled.
    dirty: Vec<Prefix<A>>,
    /// Room for the routes in a part of a table, which changes need all the time.
    leaves: Vec<(Prefix<A>, u32)>,
}

/// Why a route was not added.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the number {0} of a route is above {MAX_NEXT}")]
pub struct NextError(u32);

/// The sizes of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Routes, including those that others are preferred to.
    pub routes: usize,
    /// Bytes of the compiled tables that are in use, the whole root included.
    pub bytes: usize,
    /// Bytes of the compiled tables with what is free for further nodes.
    pub reserved: usize,
}

impl<A: AddressFamily> Fib<A> {
    /// An empty table that the workers of this process read.
    ///
    /// # Errors
    /// `ENOMEM` if there is no memory.
    pub fn new() -> io::Result<Fib<A>> {
        Fib::with_readers(Arc::clone(Readers::of_process()))
    }

    /// An empty table with readers of its own.
    ///
    /// # Errors
    /// As for [`Fib::new`].
    pub fn with_readers(readers: Arc<Readers>) -> io::Result<Fib<A>> {
        let tables = Published::with_readers(Tables::of(empty::<A>()?), Arc::clone(&readers));
        let state = FibState {
            rib: Rib::default(),
            short: Short::of(&Rib::default()),
            nodes: Nodes::new(A::FIRST),
            codes: Codes::default(),
            is_replaced: false,
            dirty: Vec::new(),
            leaves: Vec::new(),
        };
        Ok(Fib { tables, readers, state: Mutex::new(state) })
    }

    /// The compiled tables, for this breath. Hot.
    #[inline(always)]
    pub fn tables<'b>(&'b self, breath: &'b impl Breath) -> &'b Tables<A> {
        self.tables.read(breath)
    }

    /// Access to the compiled tables for a thread that has no breaths.
    pub fn reader(&self) -> TableReader<'_, Tables<A>> {
        TableReader::new(&self.tables, self.readers.register(|| ()))
    }

    /// The right to change routes, which waits for whoever has it.
    pub fn lock(&self) -> Changes<'_, A> {
        Changes { fib: self, state: self.state.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// Changes of a table. They take effect for readers with [`Changes::commit`].
pub struct Changes<'f, A: AddressFamily> {
    fib: &'f Fib<A>,
    state: MutexGuard<'f, FibState<A>>,
}

impl<A: AddressFamily> Changes<'_, A> {
    /// The routes, with all changes so far.
    pub fn rib(&self) -> &Rib<A> {
        &self.state.rib
    }

    /// Adds a route, in place of one with the same metric, which is returned.
    ///
    /// # Errors
    /// If its number is above [`MAX_NEXT`].
    pub fn insert(&mut self, prefix: Prefix<A>, route: Route) -> Result<Option<Route>, NextError> {
        if route.next > MAX_NEXT {
            return Err(NextError(route.next));
        }
        Ok(self.state.change(prefix, |rib| rib.insert_noting(prefix, route)))
    }

    /// Removes the route with this metric, or the best one if no metric is given.
    pub fn remove(&mut self, prefix: Prefix<A>, metric: Option<u32>) -> Option<Route> {
        self.state.change(prefix, |rib| rib.remove_noting(prefix, metric))
    }

    /// Replaces all routes.
    pub fn replace(&mut self, rib: Rib<A>) {
        self.state.rib = rib;
        self.state.is_replaced = true;
    }

    /// Compiles what has changed. Readers see each cell of a table change at once, the cells one after the other; all routes
    /// that were [replaced](Changes::replace) they see change at once.
    ///
    /// Memory that readers may still have references to is freed in a later commit, also if nothing has changed.
    ///
    /// # Errors
    /// `ENOMEM` if there is no memory. Then the routes are not all compiled; the next commit tries again.
    pub fn commit(&mut self) -> io::Result<()> {
        let state = &mut *self.state;
        let mut tables = self.fib.tables.lock();
        tables.reclaim();
        if state.is_replaced || A::is_worn(&state.codes, state.rib.len()) {
            return state.compile_all(&mut tables);
        }
        let FibState { rib, short, nodes, codes, dirty, leaves, .. } = state;
        nodes.reclaim();
        if dirty.is_empty() {
            return Ok(());
        }
        // In order, each prefix is behind those that cover it.
        dirty.sort_unstable();
        let mut builder = Builder::new(&tables.get().cells, nodes, codes);
        let mut done: Option<Prefix<A>> = None;
        let mut result = Ok(());
        for prefix in &*dirty {
            let (prefix, reach) = builder.reach(*prefix);
            if done.is_some_and(|done| done.covers(prefix)) {
                continue;
            }
            result = build(&mut builder, (rib, short), prefix, reach, leaves);
            if result.is_err() {
                break;
            }
            done = Some(prefix);
        }
        if let Some(grown) = builder.into_grown() {
            tables.replace(Tables::of(grown));
        }
        if nodes.has_dropped() {
            nodes.retire(self.fib.readers.start_grace_period());
        }
        if result.is_ok() {
            dirty.clear();
        }
        result
    }

    /// Where a prefix is compiled to: the bits of addresses that choose among the smallest cells that it reaches, and
    /// these cells, by their positions in the table.
    pub fn place(&self, prefix: Prefix<A>) -> (Range<u8>, RangeInclusive<usize>) {
        let tables = self.fib.tables.lock();
        let (window, cell) = A::reach(&tables.get().cells, prefix);
        let shortened = prefix.shortened(window.end());
        let (first, last) = (shortened.address().bits(window), shortened.last().bits(window));
        (window.offset..window.end(), cell + first as usize..=cell + last as usize)
    }

    /// The sizes of the table.
    pub fn size(&self) -> Size {
        let words = A::place(0) + self.state.nodes.used() * A::UNIT;
        let reserved = self.fib.tables.lock().get().cells.length();
        let [bytes, reserved] = [words, reserved].map(|words| words * size_of::<u32>());
        Size { routes: self.state.rib.len(), bytes, reserved }
    }
}

impl<A: AddressFamily> FibState<A> {
    /// Compiles all routes into tables of their own, and publishes these.
    fn compile_all(&mut self, tables: &mut Writer<'_, Tables<A>>) -> io::Result<()> {
        let cells = empty::<A>()?;
        let (mut nodes, mut codes) = (Nodes::new(A::FIRST), Codes::default());
        let mut builder = Builder::new(&cells, &mut nodes, &mut codes);
        let (prefix, reach) = builder.reach(Prefix::ALL);
        self.short = Short::of(&self.rib);
        build(&mut builder, (&self.rib, &self.short), prefix, reach, &mut Vec::new())?;
        let grown = builder.into_grown();
        tables.replace(Tables::of(grown.unwrap_or(cells)));
        (self.nodes, self.codes) = (nodes, codes);
        self.is_replaced = false;
        self.dirty.clear();
        Ok(())
    }

    /// Makes a change, which also tells whether the best route to the prefix has another number now.
    fn change<T>(&mut self, prefix: Prefix<A>, change: impl FnOnce(&mut Rib<A>) -> (T, bool)) -> T {
        let (result, is_other) = change(&mut self.rib);
        if is_other {
            self.short.update(&self.rib, prefix);
            self.dirty.push(prefix);
        }
        result
    }
}

/// The memory of a table without routes.
fn empty<A: AddressFamily>() -> io::Result<Cells> {
    let cells = Cells::new(A::place(A::FIRST))?;
    A::prepare(&cells);
    Ok(cells)
}

/// Compiles the cells that a prefix reaches. `leaves` is room for the routes in it.
fn build<A: AddressFamily>(
    builder: &mut Builder<'_, A>,
    (rib, short): (&Rib<A>, &Short<A>),
    prefix: Prefix<A>,
    reach: Reach,
    leaves: &mut Vec<(Prefix<A>, u32)>,
) -> io::Result<()> {
    leaves.clear();
    leaves.extend(rib.within(prefix).map(|(prefix, route)| (prefix, route.next + 1)));
    let covering = || rib.covering(prefix).map_or(0, |(_, route)| route.next + 1);
    let default = short.covering(prefix).unwrap_or_else(covering);
    builder.build(leaves, reach, default)
}

/// What is compiled from the routes of a family.
pub struct Tables<A> {
    /// The root, then the nodes.
    pub(crate) cells: Cells,
    family: PhantomData<A>,
}

impl<A: AddressFamily> Tables<A> {
    /// Tables in this memory, which has been [prepared](crate::layout::Layout::prepare).
    pub(crate) fn of(cells: Cells) -> Tables<A> {
        assert!(cells.length() >= A::place(A::FIRST), "what look-ups read without a check is there");
        Tables { cells, family: PhantomData }
    }

    /// Looks up addresses: writes the number of the longest prefix's best route, or [`NO_ROUTE`], to the place of each. Of
    /// slices of different lengths only the common part counts. Hot.
    pub fn look_up(&self, keys: &[A], next: &mut [u32]) {
        match SearchWay::chosen() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the way is chosen only if the processor has these instructions.
            SearchWay::Avx512 => unsafe { look_up_avx512(self, keys, next) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            SearchWay::Avx2 => unsafe { look_up_avx2(self, keys, next) },
            SearchWay::Baseline => look_up::<A, search::Baseline>(self, keys, next),
        }
    }
}

/// The instructions that look-ups are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchWay {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Baseline,
}

impl SearchWay {
    /// The way that this process uses.
    #[inline(always)]
    fn chosen() -> SearchWay {
        static CHOSEN: OnceLock<SearchWay> = OnceLock::new();
        *CHOSEN.get_or_init(|| SearchWay::best(Simd::chosen().level()))
    }

    #[cfg(target_arch = "x86_64")]
    fn best(level: Level) -> SearchWay {
        let has_bits = is_x86_feature_detected!("bmi2") && is_x86_feature_detected!("popcnt");
        match level {
            Level::Avx512 if has_bits => SearchWay::Avx512,
            Level::Avx2 if has_bits => SearchWay::Avx2,
            _ => SearchWay::Baseline,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn best(_: Level) -> SearchWay {
        SearchWay::Baseline
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx2,bmi2,popcnt")]
fn look_up_avx512<A: AddressFamily>(tables: &Tables<A>, keys: &[A], next: &mut [u32]) {
    look_up::<A, search::Avx512>(tables, keys, next);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2,popcnt")]
fn look_up_avx2<A: AddressFamily>(tables: &Tables<A>, keys: &[A], next: &mut [u32]) {
    look_up::<A, search::Avx2>(tables, keys, next);
}

#[inline(always)]
fn look_up<A: AddressFamily, S: Search>(tables: &Tables<A>, keys: &[A], next: &mut [u32]) {
    for (keys, next) in keys.chunks(BATCH).zip(next.chunks_mut(BATCH)) {
        let count = keys.len().min(next.len());
        let (keys, next) = (&keys[..count], &mut next[..count]);
        A::look_up::<S>(&tables.cells, keys, next);
    }
}

// An entry without a route becomes this number.
const _: () = assert!(NO_ROUTE == 0_u32.wrapping_sub(1));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Baseline;

    struct Call;

    // SAFETY: no reader is registered, so none passes.
    unsafe impl Breath for Call {}

    fn find<A: AddressFamily, S: Search>(tables: &Tables<A>, keys: &[A]) -> Vec<u32> {
        let mut next = vec![0; keys.len()];
        look_up::<A, S>(tables, keys, &mut next);
        next
    }

    /// Looks up addresses in and beside prefixes by the instructions of this processor, and by those of all others.
    fn check<A: AddressFamily>(prefixes: &[Prefix<A>], beside: impl Fn(A) -> [A; 3]) {
        let fib = Fib::<A>::with_readers(Arc::new(Readers::new())).unwrap();
        let mut changes = fib.lock();
        for (next, &prefix) in prefixes.iter().enumerate() {
            changes.insert(prefix, Route { metric: 0, next: next as u32 }).unwrap();
        }
        changes.commit().unwrap();
        let tables = fib.tables(&Call);
        let ends = prefixes.iter().flat_map(|prefix| [prefix.address(), prefix.last()]);
        let keys: Vec<A> = ends.flat_map(beside).collect();
        let mut chosen = vec![0; keys.len()];
        tables.look_up(&keys, &mut chosen);
        assert_eq!(chosen, find::<A, Baseline>(tables, &keys));
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
            assert_eq!(chosen, find::<A, crate::search::Avx2>(tables, &keys));
        }
    }

    #[test]
    fn all_processors_find_the_same() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut ipv4 = || Prefix::of(random.u32(..) & 0x0f0f_ffff, random.u8(8..=32)).unwrap();
        let prefixes: Vec<Prefix<u32>> = (0..5_000).map(|_| ipv4()).collect();
        check(&prefixes, |key| [key, key.wrapping_add(1), key.wrapping_sub(1)]);
        let mut ipv6 = || {
            let length = if random.u8(..10) == 0 { random.u8(16..=128) } else { 48 };
            Prefix::of(0x2a00 << 112 | random.u128(..) & 0x1f_ffff_0000_0f00 << 64, length).unwrap()
        };
        let prefixes: Vec<Prefix<u128>> = (0..5_000).map(|_| ipv6()).collect();
        check(&prefixes, |key| [key, key.wrapping_add(1), key.wrapping_sub(1)]);
    }
}
