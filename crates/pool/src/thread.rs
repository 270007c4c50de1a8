//! Each thread's cache of free buffers.
//!
//! Free buffers travel in *magazines* of 256. A thread frees into its current magazine. To take packets, it takes that
//! whole magazine as [`Buffers`] and puts the rest of it back at the end: so both loops work on a plain array in
//! registers, whatever is freed or taken in between. Full and empty magazines are traded with the pool's depot, with
//! one lock for 256 packets.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bellows_arena::Fixed;

use crate::accounts::AccountNumber;
use crate::magazine::{BufferUse, Magazine, Tally};
use crate::pool::{self, Pool};

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
    current: Fixed<Magazine>,
    /// Full or partly full magazines, the most recently used last.
    loaded: Vec<Fixed<Magazine>>,
    empty: Vec<Fixed<Magazine>>,
    tally: Arc<Tally>,
    pool: &'static Pool,
}

/// Maximum number of loaded magazines that a thread keeps beside the current one; it gives more to the depot.
const KEPT: usize = 4;

impl Cache {
    fn new(pool: &'static Pool) -> Cache {
        let tally = Arc::new(Tally::default());
        pool.enrol(Arc::clone(&tally));
        Cache { current: Magazine::empty(), loaded: Vec::new(), empty: Vec::new(), tally, pool }
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

    /// Stores a full current magazine and starts an empty one.
    #[cold]
    fn change_current(&mut self) {
        let empty = self.empty.pop().unwrap_or_else(Magazine::empty);
        let full = mem::replace(&mut self.current, empty);
        self.store(full);
    }

    fn store(&mut self, magazine: Fixed<Magazine>) {
        self.loaded.push(magazine);
        if self.loaded.len() > KEPT {
            let coldest = self.loaded.remove(0);
            self.pool.give(coldest);
        }
    }

    /// A magazine with at least one buffer, or an empty one if the pool has none left.
    #[inline]
    fn take(&mut self) -> Fixed<Magazine> {
        if self.current.length > 0 {
            let empty = self.empty.pop().unwrap_or_else(Magazine::empty);
            return mem::replace(&mut self.current, empty);
        }
        self.take_elsewhere()
    }

    #[cold]
    fn take_elsewhere(&mut self) -> Fixed<Magazine> {
        if let Some(magazine) = self.loaded.pop().or_else(|| self.pool.receive()) {
            return magazine;
        }
        let mut magazine = self.empty.pop().unwrap_or_else(Magazine::empty);
        for buffer in self.pool.small.untouched(Magazine::SIZE as u32) {
            magazine.push(self.pool.small.data(buffer));
        }
        magazine
    }

    /// Sorts the free buffers, so that those with the lowest addresses are taken first.
    ///
    /// The sort makes use of sorted runs: buffers that were sorted recently still have them.
    #[cold]
    fn sort(&mut self) {
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
    fn put_back(&mut self, mut magazine: Fixed<Magazine>) {
        if self.current.length == 0 {
            mem::swap(&mut self.current, &mut magazine);
        } else if magazine.length > 0 {
            self.merge(&mut magazine);
        }
        if magazine.length > 0 {
            self.store(magazine);
        } else if self.empty.len() < KEPT {
            self.empty.push(magazine);
        }
    }

    #[cold]
    fn merge(&mut self, magazine: &mut Fixed<Magazine>) {
        if magazine.length > self.current.length {
            mem::swap(&mut self.current, magazine);
        }
        self.current.absorb(magazine);
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let current = mem::replace(&mut self.current, Magazine::empty());
        for magazine in self.loaded.drain(..).chain([current]) {
            if magazine.length > 0 {
                self.pool.give(magazine);
            }
        }
        self.pool.settle(&self.tally);
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
        TALLY.set(Arc::as_ptr(&cache.tally));
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
        drop(unsafe { Box::from_raw(self.0) });
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
    magazine: ManuallyDrop<Fixed<Magazine>>,
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
        let magazine = with_cache(Cache::take).unwrap_or_else(Magazine::empty);
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
fn trade(mut spent: Fixed<Magazine>) -> Fixed<Magazine> {
    spent.length = 0;
    let mut spent = Some(spent);
    let next = with_cache(|cache| {
        let next = cache.take();
        if let Some(spent) = spent.take() {
            cache.put_back(spent);
        }
        next
    });
    next.or(spent).unwrap_or_else(Magazine::empty)
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
    if with_cache(|cache| Tally::add(cell(&cache.tally), count)).is_none() {
        let none = Tally::default();
        Tally::add(cell(&none), count);
        pool.took_uncached(none.outstanding());
    }
}

/// Puts the remaining `left` buffers of a magazine back, and records `used` as taken.
///
/// Not inlined, with arguments by value, so that a [`Buffers`] can live in registers.
#[inline(never)]
fn put_back(mut magazine: Fixed<Magazine>, left: usize, used: usize) {
    magazine.length = left;
    let mut magazine = Some(magazine);
    with_cache(|cache| {
        Tally::add(&cache.tally.taken, used as u64);
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
fn put_back_uncached(magazine: Fixed<Magazine>, used: usize) {
    let pool = pool::get();
    pool.took_uncached(used as u64);
    // An empty magazine would mean that the pool is empty.
    if magazine.length > 0 {
        pool.give(magazine);
    }
}

/// Takes one large buffer from a quota: the address of a new packet's data.
pub fn take_large(owner: AccountNumber) -> Option<usize> {
    let pool = pool::get();
    let data = pool.take_large(owner)?;
    if with_cache(|cache| Tally::add(&cache.tally.taken, 1)).is_none() {
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
        Tally::add(&cache.tally.freed, 1);
    });
    if cached.is_none() {
        pool.free_uncached(start, false);
    }
}

#[cold]
fn free_large(data: usize) {
    let pool = pool::get();
    let start = pool.large.reset(data);
    if with_cache(|cache| Tally::add(&cache.tally.freed, 1)).is_some() {
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
            Tally::add(&cache.tally.freed, now.len() as u64);
            rest = later;
        }
        0
    });
    freed.unwrap_or(packets.len())
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
            Tally::add(&cache.tally.taken, now as u64);
            cache.put_back(magazine);
        });
        if now == 0 {
            break;
        }
        done += now;
    }
    done
}
