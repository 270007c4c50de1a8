//! Each thread's cache of free buffers.
//!
//! Free buffers travel in *magazines* of 256. A thread frees into its current magazine. To take packets, it takes that
//! whole magazine as [`Buffers`] and puts the rest of it back at the end: so both loops work on a plain array in
//! registers, whatever is freed or taken in between. Full and empty magazines are traded with the pool's depot, by one
//! exchange of a word for 256 packets.
//!
//! A thread that finds no buffers notes that, and the threads that have free ones [share](share_free_buffers) them.
//!
//! If the pool has several parts, a thread keeps the buffers of the part on its own memory node, and sends others back
//! to theirs before it would take packets in them. It borrows them if its own part has none left.

mod parts;
mod shares;

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::accounts::AccountNumber;
use crate::magazine::{BufferUse, Held, Magazine, Member, Tally};
use crate::pool::{self, Pool};

pub use shares::{return_free_buffers, return_free_buffers_to_sleep, share_free_buffers};

/// Number of packets that this thread has made and freed. Always exact, for a few loads: the difference before and
/// after some work is exactly the number of packets that the work made and freed.
#[inline(always)]
pub fn buffer_use() -> BufferUse {
    // SAFETY: a non-null TALLY points into the tally of the thread's cache, which clears it before it ends. All of a
    // tally is atomics, so it may be read whoever else refers to it.
    match unsafe { TALLY.get().as_ref() } {
        Some(tally) => BufferUse { taken: tally.taken.load(Relaxed), freed: tally.freed.load(Relaxed) },
        None => BufferUse::default(),
    }
}

pub(crate) struct Cache {
    current: Held,
    /// Full or partly full magazines, the most recently used last.
    loaded: Vec<Held>,
    empty: Vec<Held>,
    /// What other threads see of this one.
    member: Arc<Member>,
    pool: &'static Pool,
    /// The part of the pool on the thread's memory node.
    home: usize,
    /// Whether the pool has other parts: then their buffers are sent back to them.
    sorts: bool,
    /// Number of the lowest buffers in the current magazine that are known to be of that part.
    sorted: usize,
    /// Whether the last magazine taken was one of another part.
    is_borrowed: bool,
    /// Buffers on their way to other parts, by part, once there were any.
    outgoing: Vec<Option<Held>>,
    /// The pool's count of shortages when this thread last gave its buffers back.
    shortages: u32,
    /// Whether the thread found no buffers when it last looked outside.
    is_short: bool,
    /// Whether it had nothing to share when it last should: then it shares before it takes packets, not only now and
    /// then, when it may always have put the last free buffer to use just before.
    must_share: bool,
    /// Whether to take packets is no more than to take the current magazine: it neither sorts nor must share.
    is_plain: bool,
}

/// Maximum number of loaded magazines that a thread keeps beside the current one; it gives more to the depot.
const KEPT: usize = 4;

impl Cache {
    fn new(pool: &'static Pool) -> Cache {
        Cache::at(pool, pool.part_of_thread())
    }

    /// The cache of a thread whose own part of the pool is this one.
    fn at(pool: &'static Pool, home: usize) -> Cache {
        let member = Arc::new(Member::new());
        pool.enrol(Arc::clone(&member));
        Cache {
            current: pool.parts[home].empty(),
            loaded: Vec::new(),
            empty: Vec::new(),
            member,
            pool,
            home,
            sorts: pool.parts.len() > 1,
            sorted: 0,
            is_borrowed: false,
            outgoing: Vec::new(),
            shortages: pool.shortages.count(),
            is_short: false,
            must_share: false,
            is_plain: pool.parts.len() == 1,
        }
    }

    #[inline(always)]
    pub(crate) fn free(&mut self, data: usize) {
        if !self.current.push(data) {
            self.free_to_next(data);
        }
    }

    #[cold]
    fn free_to_next(&mut self, data: usize) {
        self.change_current();
        self.current.push(data);
    }

    #[inline(always)]
    fn empty(&mut self) -> Held {
        match self.empty.pop() {
            Some(magazine) => magazine,
            None => self.empty_elsewhere(),
        }
    }

    #[cold]
    #[inline(never)]
    fn empty_elsewhere(&mut self) -> Held {
        self.pool.parts[self.home].empty()
    }

    /// Makes room in the current magazine, which is full: stores it and starts an empty one.
    #[cold]
    fn change_current(&mut self) {
        if self.sorts {
            self.sort_out();
            if self.current.room() > 0 {
                return;
            }
        }
        let empty = self.empty();
        let full = mem::replace(&mut self.current, empty);
        self.sorted = 0;
        self.store(full);
    }

    fn store(&mut self, magazine: Held) {
        self.loaded.push(magazine);
        if self.loaded.len() > KEPT {
            let coldest = self.loaded.remove(0);
            self.give(coldest);
        }
    }

    /// Gives everything back when the thread ends.
    fn end(mut self) {
        self.give_all();
        let Cache { current, empty, member, pool, home, .. } = self;
        empty.into_iter().chain([current]).for_each(|magazine| pool.parts[home].give(magazine));
        pool.settle(&member);
        // SAFETY: as in share().
        let unfetched = member.mailbox.close().map(|number| unsafe { Held::from_number(number) });
        unfetched.into_iter().for_each(|magazine| pool.give_uncached(magazine));
    }

    /// A magazine with at least one buffer, or an empty one if the pool has none left.
    #[inline]
    fn take(&mut self) -> Held {
        if self.current.length > 0 && self.is_plain {
            let empty = self.empty();
            return mem::replace(&mut self.current, empty);
        }
        self.take_elsewhere()
    }

    #[cold]
    fn take_elsewhere(&mut self) -> Held {
        if self.must_share {
            self.share();
        }
        if self.current.length > 0 {
            if self.sorts {
                self.sort_out();
            }
            if self.current.length > 0 {
                let empty = self.empty();
                self.sorted = 0;
                return mem::replace(&mut self.current, empty);
            }
        }
        if let Some(magazine) = self.loaded.pop().or_else(|| self.pool.receive(self.home)) {
            self.is_short = false;
            return magazine;
        }
        let magazine = self.borrow().or_else(|| self.fetch());
        self.is_short = magazine.is_none();
        magazine.unwrap_or_else(|| {
            self.member.mailbox.ask();
            self.pool.shortages.note();
            self.empty()
        })
    }

    /// Sorts the free buffers, so that those with the lowest addresses are taken first.
    ///
    /// The sort makes use of sorted runs: buffers that were sorted recently still have them.
    #[cold]
    fn sort(&mut self) {
        if self.sorts {
            self.sort_out();
        }
        let magazines = || self.loaded.iter().chain([&self.current]);
        let mut addresses: Vec<usize> = Vec::with_capacity(magazines().map(|magazine| magazine.length).sum());
        for magazine in magazines() {
            addresses.extend(&magazine.addresses[..magazine.length]);
        }
        addresses.sort_by(|one, other| other.cmp(one));
        let mut rest = &addresses[..];
        for magazine in self.loaded.iter_mut().chain([&mut self.current]) {
            let (now, later) = rest.split_at(magazine.length);
            magazine.addresses[..now.len()].copy_from_slice(now);
            rest = later;
        }
    }

    /// Takes back the buffers that [`Buffers`] did not use.
    #[inline]
    fn put_back(&mut self, mut magazine: Held) {
        if self.sorts {
            self.note_sorted(&mut magazine);
        }
        if self.current.length == 0 {
            mem::swap(&mut self.current, &mut magazine);
        } else if magazine.length > 0 {
            self.merge(&mut magazine);
        }
        if magazine.length > 0 {
            self.store(magazine);
        } else if self.empty.len() < KEPT {
            self.empty.push(magazine);
        } else {
            self.put_back_empty(magazine);
        }
    }

    #[cold]
    #[inline(never)]
    fn put_back_empty(&mut self, magazine: Held) {
        self.pool.parts[self.home].give(magazine);
    }

    #[cold]
    fn merge(&mut self, magazine: &mut Held) {
        if magazine.length > self.current.length {
            mem::swap(&mut self.current, magazine);
        }
        self.current.absorb(magazine, Magazine::SIZE);
        self.sorted = 0;
    }
}

thread_local! {
    /// The thread's cache once it has one; null before, and again when the thread ends.
    static CACHE: Cell<*mut Cache> = const { Cell::new(std::ptr::null_mut()) };
    /// The tally of that cache: null whenever CACHE is.
    static TALLY: Cell<*const Tally> = const { Cell::new(std::ptr::null()) };
    /// Owns what CACHE points to.
    static OWNER: Owner = Owner::new();
}

struct Owner(*mut Cache);

impl Owner {
    fn new() -> Owner {
        let cache = Box::new(Cache::new(pool::get()));
        TALLY.set(&raw const cache.member.tally);
        let cache = Box::into_raw(cache);
        CACHE.set(cache);
        Owner(cache)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        CACHE.set(std::ptr::null_mut());
        TALLY.set(std::ptr::null());
        // SAFETY: the pointer came from Box::into_raw in new(), nothing else frees it, and with CACHE cleared
        // nothing can reach it any more.
        unsafe { Box::from_raw(self.0) }.end();
    }
}

/// Runs `work` on the thread's cache; `None` if the thread is ending and has none any more.
///
/// `work` must not call back into this function: it only runs code of this crate and the argument of [`free_many`].
#[inline(always)]
pub(crate) fn with_cache<T>(work: impl FnOnce(&mut Cache) -> T) -> Option<T> {
    let mut cache = CACHE.get();
    if cache.is_null() {
        cache = make_cache();
        if cache.is_null() {
            return None;
        }
    }
    // SAFETY: a non-null CACHE points into the OWNER of this thread, whose Drop clears it first. No other reference to
    // it exists: only this function makes one, and `work` does not call back into it: it is code of this crate, or the
    // argument of free_many(), whose caller promises that.
    Some(work(unsafe { &mut *cache }))
}

#[cold]
fn make_cache() -> *mut Cache {
    let _ = OWNER.try_with(|_| ());
    CACHE.get()
}

/// Ordinary buffers from the pool, as the addresses of new packets' data.
///
/// Dropping it puts the unused buffers back.
pub struct Buffers {
    magazine: ManuallyDrop<Held>,
    /// The magazine's length, kept in this struct so that it stays in a register.
    top: usize,
    wanted: usize,
    /// Buffers used from earlier magazines.
    used_before: usize,
    /// The initial length of this magazine.
    full: usize,
    /// Belongs to the thread's cache.
    _not_send: PhantomData<*mut ()>,
}

impl Buffers {
    /// Takes up to `count` buffers, as many as the pool has.
    #[inline]
    pub fn new(wanted: usize) -> Buffers {
        let magazine = with_cache(Cache::take).unwrap_or_else(|| pool::get().parts[0].empty());
        let top = magazine.length;
        let magazine = ManuallyDrop::new(magazine);
        Buffers { magazine, top, wanted, used_before: 0, full: top, _not_send: PhantomData }
    }

    /// Number of requested buffers that have not been taken; after the end, those that the pool did not have.
    #[inline]
    pub fn missing(&self) -> usize {
        self.wanted
    }

    /// The next buffer, which the caller then owns; `None` after the last one, or if the pool has no more.
    #[inline(always)]
    pub fn take(&mut self) -> Option<usize> {
        if self.wanted == 0 {
            return None;
        }
        if self.top == 0 {
            return self.take_elsewhere();
        }
        self.wanted -= 1;
        self.top -= 1;
        // SAFETY: top started as the magazine's length, which never exceeds its size, and only decreases.
        Some(unsafe { *self.magazine.addresses.get_unchecked(self.top) })
    }

    #[inline(always)]
    fn take_elsewhere(&mut self) -> Option<usize> {
        self.used_before += self.full;
        // SAFETY: the field is replaced at once. (By value, so that the struct need not be in memory.)
        let spent = unsafe { ManuallyDrop::take(&mut self.magazine) };
        self.magazine = ManuallyDrop::new(trade(spent));
        self.full = self.magazine.length;
        self.top = self.full.checked_sub(1)?;
        self.wanted -= 1;
        Some(self.magazine.addresses[self.top])
    }
}

/// Trades a spent magazine for a loaded one, if the pool has any left.
#[cold]
fn trade(mut spent: Held) -> Held {
    spent.length = 0;
    let mut spent = Some(spent);
    let next = with_cache(|cache| {
        let next = cache.take();
        if let Some(spent) = spent.take() {
            cache.put_back(spent);
        }
        next
    });
    next.or(spent).unwrap_or_else(|| pool::get().parts[0].empty())
}

impl Drop for Buffers {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the field is not used after this, the only other place that takes it.
        let magazine = unsafe { ManuallyDrop::take(&mut self.magazine) };
        put_back(magazine, self.top, self.used_before + self.full - self.top);
    }
}

/// Adds to one of the thread's counts; on a thread that is ending, to the pool's.
#[inline(always)]
pub(crate) fn tally(pool: &Pool, cell: fn(&Tally) -> &AtomicU64, count: u64) {
    if with_cache(|cache| Tally::add(cell(&cache.member.tally), count)).is_none() {
        let none = Tally::default();
        Tally::add(cell(&none), count);
        pool.took_uncached(none.outstanding());
    }
}

/// Puts the remaining `left` buffers of a magazine back, and records `used` as taken.
///
/// Not inlined, with arguments by value, so that a [`Buffers`] can live in registers.
#[inline(never)]
fn put_back(mut magazine: Held, left: usize, used: usize) {
    magazine.length = left;
    let mut magazine = Some(magazine);
    with_cache(|cache| {
        Tally::add(&cache.member.tally.taken, used as u64);
        if let Some(magazine) = magazine.take() {
            cache.put_back(magazine);
        }
    });
    if let Some(magazine) = magazine {
        put_back_uncached(magazine, used);
    }
}

/// As [`put_back`], on a thread that is ending.
#[cold]
fn put_back_uncached(magazine: Held, used: usize) {
    let pool = pool::get();
    pool.took_uncached(used as u64);
    pool.give_uncached(magazine);
}

/// Takes one large buffer from a quota: the address of a new packet's data.
pub fn take_large(owner: AccountNumber) -> Option<usize> {
    let pool = pool::get();
    let data = pool.take_large(owner, with_cache(|cache| cache.home).unwrap_or_default())?;
    if with_cache(|cache| Tally::add(&cache.member.tally.taken, 1)).is_none() {
        pool.took_uncached(1);
    }
    Some(data)
}

/// Frees one packet's buffer, wherever in it the data begins.
///
/// # Safety
/// The address is in a buffer that was taken from the pool, of this class, and nothing refers to the buffer any more.
#[inline(always)]
pub unsafe fn free(data: usize, large: bool) {
    if large {
        return free_large(data);
    }
    let pool = pool::get();
    let start = pool.small.reset(data);
    let cached = with_cache(|cache| {
        cache.free(start);
        Tally::add(&cache.member.tally.freed, 1);
    });
    if cached.is_none() {
        pool.free_uncached(start, false);
    }
}

#[cold]
fn free_large(data: usize) {
    let pool = pool::get();
    let start = pool.large.reset(data);
    if with_cache(|cache| Tally::add(&cache.member.tally.freed, 1)).is_some() {
        pool.give_large(start);
    } else {
        pool.free_uncached(start, true);
    }
}

/// Sorts this thread's free buffers, so that packets are adjacent again as they were at first.
///
/// A burst larger than usual leaves buffers from all over the pool on top. They spread less evenly over the cache sets
/// than adjacent ones, which costs some percent permanently: the history of the process. Takes a few microseconds if
/// little is out of order, and some tens of microseconds if much is.
pub fn sort_free_buffers() {
    with_cache(Cache::sort);
}

/// Frees the ordinary buffers of many packets. `gather` writes the initial data address of each packet, or returns
/// false if it cannot. Returns how many packets are left if it could not.
///
/// # Safety
/// If `gather` returns true, it has written an address for each packet, of an ordinary buffer that was taken from the
/// pool and that nothing refers to when this returns. It does not call back into this crate.
#[inline(always)]
pub unsafe fn free_many<T>(packets: &[T], gather: impl Fn(&[T], &mut [usize]) -> bool) -> usize {
    let freed = with_cache(|cache| {
        let mut rest = packets;
        while !rest.is_empty() {
            if cache.current.room() == 0 {
                cache.change_current();
            }
            let (now, later) = rest.split_at(rest.len().min(cache.current.room()));
            let magazine = &mut *cache.current;
            let addresses = &mut magazine.addresses[magazine.length..][..now.len()];
            if !gather(now, addresses) {
                return rest.len();
            }
            magazine.length += now.len();
            Tally::add(&cache.member.tally.freed, now.len() as u64);
            rest = later;
        }
        0
    });
    freed.unwrap_or(packets.len())
}

/// Puts ordinary buffers back that contain these addresses, without counting them as freed. Returns how many are left if
/// the thread is ending.
///
/// The caller owns the buffers and gives them up.
pub(crate) fn free_uncounted(addresses: &[usize]) -> usize {
    let freed = with_cache(|cache| {
        let mut rest = addresses;
        while !rest.is_empty() {
            if cache.current.room() == 0 {
                cache.change_current();
            }
            let (now, later) = rest.split_at(rest.len().min(cache.current.room()));
            let (magazine, small) = (&mut *cache.current, &cache.pool.small);
            for (free, &address) in magazine.addresses[magazine.length..].iter_mut().zip(now) {
                *free = small.reset(address);
            }
            magazine.length += now.len();
            rest = later;
        }
    });
    if freed.is_some() { 0 } else { addresses.len() }
}

/// Passes `count` free buffers, as many as the pool has, to `work`: some at a time, with the number of those before.
/// `work` makes packets in them. Returns how many.
#[inline(always)]
pub fn with_free_buffers(count: usize, mut work: impl FnMut(&[usize], usize)) -> usize {
    let mut done = 0;
    while done < count {
        let Some(mut magazine) = with_cache(Cache::take) else { break };
        let now = magazine.length.min(count - done);
        let rest = magazine.length - now;
        if now > 0 {
            work(&magazine.addresses[rest..][..now], done);
            magazine.length = rest;
        }
        with_cache(|cache| {
            Tally::add(&cache.member.tally.taken, now as u64);
            cache.put_back(magazine);
        });
        if now == 0 {
            break;
        }
        done += now;
    }
    done
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::Config;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Takes packets on one of two threads.
        Take(usize, usize),
        /// Frees some of all packets there, wherever they were taken.
        Free(usize, usize),
        /// Gives the free buffers back.
        Share(usize),
        Sort(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0usize..2, 1usize..300).prop_map(|(thread, count)| Step::Take(thread, count)),
            6 => (0usize..2, 1usize..300).prop_map(|(thread, count)| Step::Free(thread, count)),
            1 => (0usize..2).prop_map(Step::Share),
            1 => (0usize..2).prop_map(Step::Sort),
        ]
    }

    /// Takes up to `count` buffers as packets do: a magazine at a time.
    fn take(cache: &mut Cache, count: usize) -> Vec<usize> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let mut magazine = cache.take();
            let now = magazine.length.min(count - taken.len());
            let rest = magazine.length - now;
            taken.extend(&magazine.addresses[rest..][..now]);
            magazine.length = rest;
            cache.put_back(magazine);
            if now == 0 {
                break;
            }
        }
        taken
    }

    fn pool(packets: usize, nodes: &[usize]) -> &'static Pool {
        let config = Config { packets, large_packets: 0, ..Config::default() };
        Box::leak(Box::new(Pool::on_nodes(config, nodes).ok().unwrap()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// With a part for each of two threads: every buffer has one owner, a thread takes no buffer of the other's part
        /// while its own has untouched ones, and none is lost.
        #[test]
        fn threads_keep_to_their_parts(steps in proptest::collection::vec(step(), 1..120)) {
            const PACKETS: usize = 3_000;
            let pool = pool(PACKETS, &[0, 1]);
            let mut caches = [0, 1].map(|part| Cache::at(pool, part));
            let mut taken = BTreeSet::new();
            let mut most = [0; 2];
            for step in steps {
                match step {
                    Step::Take(thread, count) => {
                        let own = &pool.parts[thread].addresses;
                        let new = take(&mut caches[thread], count);
                        let of_own = taken.iter().filter(|data| own.contains(data)).count();
                        most[thread] = most[thread].max(of_own + count);
                        for &data in &new {
                            prop_assert!(taken.insert(data), "{data} has two owners");
                        }
                        // Of its free buffers, some may be in the other thread's cache.
                        if most[thread] < 500 {
                            prop_assert!(new.iter().all(|data| own.contains(data)));
                        }
                        // The other thread's cache has at most a current and four loaded magazines, and one that is outgoing.
                        prop_assert!(new.len() == count || taken.len() + 6 * 256 >= PACKETS);
                    }
                    Step::Free(thread, count) => {
                        for _ in 0..count {
                            let Some(data) = taken.pop_first() else { break };
                            caches[thread].free(data);
                        }
                    }
                    Step::Share(thread) => caches[thread].give_all(),
                    Step::Sort(thread) => caches[thread].sort(),
                }
            }
            let [mut first, second] = caches;
            second.end();
            first.give_all();
            let rest = take(&mut first, PACKETS);
            prop_assert_eq!(rest.len() + taken.len(), PACKETS);
            taken.extend(rest);
            prop_assert_eq!(taken.len(), PACKETS);
            first.end();
        }
    }

    #[test]
    fn large_buffers_are_of_the_threads_part_while_it_has_any() {
        let config = Config { packets: 64, large_packets: 20, ..Config::default() };
        let pool = Pool::on_nodes(config, &[0, 1]).ok().unwrap();
        let take = |home| pool.take_large(crate::ANYONE, home);
        let [second, first] = [1, 0].map(|home| (0..8).map(|_| take(home).unwrap()).collect::<BTreeSet<_>>());
        assert!(first.last() < second.first());
        // The other part has some when this one has none left.
        assert_eq!((0..9).filter_map(|_| take(1)).count(), 4);
        pool.give_large(*second.first().unwrap());
        pool.give_large(*first.first().unwrap());
        assert_eq!([take(0), take(1), take(1)], [first.first().copied(), second.first().copied(), None]);
    }

    /// What one of several threads does in a breath.
    #[derive(Clone, Copy, Debug)]
    enum Breath {
        /// Takes as many packets as there are, or up to this many, and frees all but those that it keeps.
        Make { burst: usize, kept: usize },
        /// Frees what it keeps.
        Free,
        /// Passes what it keeps to the next thread, which frees it.
        Pass,
        /// Gives its free buffers back, and sleeps for this number of rounds.
        Sleep(u32),
    }

    /// Maximum number of packets that one thread keeps between two breaths.
    const MAX_KEPT: usize = 40;

    fn breath() -> impl Strategy<Value = Breath> {
        let burst = prop_oneof![1usize..20, Just(1_000)];
        prop_oneof![
            6 => (burst, 0..=MAX_KEPT).prop_map(|(burst, kept)| Breath::Make { burst, kept }),
            1 => Just(Breath::Free),
            2 => Just(Breath::Pass),
            1 => (1u32..9).prop_map(Breath::Sleep),
        ]
    }

    /// Threads that take turns on one processor, with a cache each.
    struct Turns {
        caches: Vec<Cache>,
        kept: Vec<Vec<usize>>,
        asleep: Vec<u32>,
    }

    impl Turns {
        fn new(pool: &'static Pool, threads: usize) -> Turns {
            let part = |thread| thread % pool.parts.len();
            let caches = (0..threads).map(|thread| Cache::at(pool, part(thread))).collect();
            Turns { caches, kept: vec![Vec::new(); threads], asleep: vec![0; threads] }
        }

        /// A thread's turn: it shares, as between two breaths, and takes a breath before any other thread runs.
        fn turn(&mut self, thread: usize, breath: Breath) {
            self.asleep[thread] = self.asleep[thread].saturating_sub(1);
            if self.asleep[thread] > 0 {
                return;
            }
            let next = (thread + 1) % self.caches.len();
            let cache = &mut self.caches[thread];
            if cache.shortages != cache.pool.shortages.count() {
                cache.share();
            }
            match breath {
                Breath::Make { burst, kept } => {
                    let mut made = take(cache, burst);
                    made.append(&mut self.kept[thread]);
                    let freed = made.len().saturating_sub(kept);
                    made.drain(..freed).for_each(|data| cache.free(data));
                    self.kept[thread] = made;
                }
                Breath::Free => self.kept[thread].drain(..).for_each(|data| cache.free(data)),
                Breath::Pass => {
                    let passed = mem::take(&mut self.kept[thread]);
                    passed.into_iter().for_each(|data| self.caches[next].free(data));
                }
                Breath::Sleep(rounds) => {
                    cache.give_all();
                    self.asleep[thread] = rounds;
                }
            }
        }

        fn end(self) {
            let Turns { mut caches, kept, .. } = self;
            kept.into_iter().flatten().for_each(|data| caches[0].free(data));
            caches.into_iter().for_each(Cache::end);
        }
    }

    /// Turns of each other thread after which one that has found no buffers finds some.
    const PATIENCE: usize = 24;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]

        /// A thread finds a buffer again and again, whatever the others do, although no moment between their sharing and
        /// their next allocation is ever its own: not even if they take all buffers in each breath.
        #[test]
        fn no_pattern_starves_a_thread(
            size in prop_oneof![Just(0), Just(6), Just(37), Just(108), Just(500)],
            nodes in 0usize..3,
            rounds in proptest::collection::vec(proptest::collection::vec(breath(), 3), 1..12),
            interval in 1usize..8,
            sleeps in any::<bool>(),
        ) {
            const THREADS: usize = 4;
            let packets = 64 * THREADS + size;
            let pool = pool(packets, &[0, 1, 2][..nodes]);
            let mut turns = Turns::new(pool, THREADS);
            let mut failed = 0;
            for (round, breaths) in rounds.iter().cycle().take(200).enumerate() {
                for (thread, breath) in breaths.iter().enumerate() {
                    turns.turn(thread + 1, *breath);
                }
                if round % interval == 0 {
                    turns.turn(0, Breath::Make { burst: 1, kept: 1 });
                    failed = if turns.kept[0].is_empty() { failed + interval } else { 0 };
                    prop_assert!(failed < PATIENCE, "no buffer for {failed} rounds");
                    turns.turn(0, if sleeps { Breath::Sleep(0) } else { Breath::Free });
                    turns.turn(0, Breath::Pass);
                }
            }
            turns.end();
            let mut cache = Cache::at(pool, 0);
            let rest = take(&mut cache, packets + 1);
            prop_assert_eq!(rest.len(), packets);
            cache.end();
        }
    }

    /// A thread that takes all buffers in each breath and frees them before the next leaves nothing in the depot.
    #[test]
    fn a_thread_that_always_takes_all_leaves_some_to_one_that_asks() {
        let pool = pool(128, &[]);
        let mut turns = Turns::new(pool, 2);
        let greedy = Breath::Make { burst: 1_000, kept: 0 };
        turns.turn(1, greedy);
        let counts: Vec<usize> = (0..6)
            .map(|_| {
                turns.turn(0, Breath::Make { burst: 1, kept: 1 });
                let count = turns.kept[0].len();
                turns.turn(0, Breath::Pass);
                turns.turn(1, greedy);
                count
            })
            .collect();
        assert_eq!(counts, [0, 1, 1, 1, 1, 1]);
        turns.end();
    }

    /// A thread that has put its last free buffer to use whenever it should share, and takes what it frees before the next
    /// time.
    #[test]
    fn a_thread_that_has_nothing_when_it_should_share_must_share_later() {
        let pool = pool(128, &[]);
        let mut turns = Turns::new(pool, 2);
        turns.turn(1, Breath::Make { burst: 128, kept: 128 });
        turns.turn(0, Breath::Make { burst: 1, kept: 1 });
        assert!(turns.kept[0].is_empty());
        let cache = &mut turns.caches[1];
        cache.share();
        turns.kept[1].drain(..).for_each(|data| cache.free(data));
        turns.kept[1] = take(cache, 128);
        turns.turn(0, Breath::Make { burst: 1, kept: 1 });
        assert_eq!((turns.kept[0].len(), turns.kept[1].len()), (1, 64));
        turns.end();
    }

    /// One that has asked and sleeps keeps its part, but not from another one that finds no other.
    #[test]
    fn a_part_that_is_not_fetched_is_shared_again() {
        let pool = pool(90, &[]);
        let mut turns = Turns::new(pool, 3);
        let (all, one) = (Breath::Make { burst: 90, kept: 90 }, Breath::Make { burst: 1, kept: 1 });
        turns.turn(1, all);
        turns.turn(0, one);
        turns.turn(1, Breath::Free);
        // It shares: 45 for the first one, 45 for the depot, which it takes itself.
        turns.turn(1, Breath::Make { burst: 45, kept: 45 });
        assert!(pool.parts[0].receive().is_none());
        turns.turn(2, one);
        turns.turn(0, one);
        assert_eq!(turns.kept.iter().map(Vec::len).collect::<Vec<_>>(), [1, 45, 1]);
        turns.end();
    }

    /// Traffic in both directions between two nodes: each thread frees what the other one has made, and makes as much.
    #[test]
    fn buffers_return_to_their_parts_under_traffic_both_ways() {
        let pool = pool(4_096, &[0, 1]);
        let mut caches = [0, 1].map(|part| Cache::at(pool, part));
        for _ in 0..1_000 {
            let made = [0, 1].map(|thread| take(&mut caches[thread], 100));
            for (thread, made) in made.iter().enumerate() {
                assert!(made.len() == 100 && made.iter().all(|&data| pool.part_of(data) == thread));
                made.iter().for_each(|&data| caches[1 - thread].free(data));
            }
        }
    }

    #[test]
    fn a_thread_borrows_from_the_other_part_when_its_own_is_exhausted_and_notes_when_all_is() {
        let pool = pool(1_000, &[0, 1]);
        let mut cache = Cache::at(pool, 1);
        let mut taken = take(&mut cache, 1_000);
        assert_eq!((taken.len(), pool.shortages.count()), (1_000, 0));
        assert_eq!(take(&mut cache, 1), []);
        assert_eq!(pool.shortages.count(), 1);
        taken.drain(..).for_each(|data| cache.free(data));
        let own = take(&mut cache, 300);
        assert!(own.iter().all(|&data| pool.part_of(data) == 1));
    }

    #[test]
    fn magazines_are_used_again() {
        let pool = pool(1_000, &[]);
        let mut pages = BTreeSet::new();
        for _ in 0..100 {
            let mut cache = Cache::at(pool, 0);
            for data in take(&mut cache, 1_000) {
                cache.free(data);
            }
            cache.give_all();
            cache.end();
            let mut magazines: Vec<Held> = std::iter::from_fn(|| pool.parts[0].receive()).collect();
            let all: Vec<u64> = magazines
                .drain(..)
                .map(|magazine| {
                    let number = &raw const *magazine;
                    pool.parts[0].give(magazine);
                    number.addr() as u64
                })
                .collect();
            pages.extend(all);
        }
        assert!(pages.len() < 16, "{} pages", pages.len());
    }
}
