//! Each thread's cache of free buffers.
//!
//! Free buffers travel in *magazines* of 256. A thread frees into its current magazine and, when it needs
//! packets, takes that whole magazine as a [`Fresh`] iterator and puts the rest of it back at the end: so both
//! ways work on a plain array in registers, whatever is freed or taken in between. Full and empty magazines
//! are traded with the pool's depot, one lock for 256 packets.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bellows_arena::Fixed;

use crate::bulk::kernels;
use crate::mark::{Passage, end_marks};
use crate::packet::{LARGE, MARKED, META, OFFLOAD, Packet};
use crate::pool::{self, Pool};
use crate::share::AccountNumber;
use crate::vector::Vector;
use crate::{LINE, ROOM};

/// A stack of free buffers, each as the address of a new packet's data.
///
/// It takes a page, of which the addresses fill the second half. Vectors begin at the start of a page, so that
/// the loops that go over a vector and a magazine together touch different halves of a page: a load that lies at
/// the same place in its page as a recent store waits for it, and whether it does must not depend on where the
/// allocator happened to put the two.
#[repr(C, align(4096))]
pub(crate) struct Magazine {
    _first_half: [u64; 255],
    length: usize,
    addresses: [usize; Magazine::SIZE],
}

impl Magazine {
    const SIZE: usize = 256;

    fn empty() -> Fixed<Magazine> {
        // SAFETY: a magazine is made of integers, and 0 is the length of an empty one.
        unsafe { Fixed::zeroed() }
    }

    /// A magazine that holds one buffer.
    pub(crate) fn of(data: usize) -> Fixed<Magazine> {
        let mut magazine = Magazine::empty();
        magazine.push(data);
        magazine
    }

    fn room(&self) -> usize {
        Magazine::SIZE - self.length
    }

    /// Adds a buffer if there is room.
    #[inline(always)]
    fn push(&mut self, data: usize) -> bool {
        let Some(slot) = self.addresses.get_mut(self.length) else { return false };
        *slot = data;
        self.length += 1;
        true
    }

    /// Moves as much of `other` into this one as fits.
    fn absorb(&mut self, other: &mut Magazine) {
        let moved = self.room().min(other.length);
        let rest = other.length - moved;
        self.addresses[self.length..][..moved].copy_from_slice(&other.addresses[rest..][..moved]);
        self.length += moved;
        other.length = rest;
    }
}

/// What one thread took from and gave back to the pool. Written by that thread alone.
#[derive(Default)]
pub(crate) struct Tally {
    taken: AtomicU64,
    freed: AtomicU64,
}

impl Tally {
    pub(crate) fn outstanding(&self) -> u64 {
        self.taken.load(Relaxed).wrapping_sub(self.freed.load(Relaxed))
    }

    #[inline(always)]
    fn add(cell: &AtomicU64, count: u64) {
        cell.store(cell.load(Relaxed).wrapping_add(count), Relaxed);
    }
}

/// What a thread has taken from and given back to the pool since its first packet: see [`buffer_use`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferUse {
    /// Buffers taken: packets made.
    pub taken: u64,
    /// Buffers given back: packets freed.
    pub freed: u64,
}

impl BufferUse {
    /// What was taken and freed from an earlier moment on.
    #[inline(always)]
    pub fn since(self, earlier: BufferUse) -> BufferUse {
        BufferUse { taken: self.taken.wrapping_sub(earlier.taken), freed: self.freed.wrapping_sub(earlier.freed) }
    }
}

/// How many packets this thread has made and freed. Exact at any moment, for a few loads: whoever reads it before and after
/// some work knows how many packets the work made and freed, whatever it says of itself.
#[inline(always)]
pub fn buffer_use() -> BufferUse {
    // SAFETY: a non-null TALLY points into the tally that the thread's cache owns, whose end clears it first. All of a tally
    // is atomics, so it may be read whoever else refers to it.
    match unsafe { TALLY.get().as_ref() } {
        Some(tally) => BufferUse { taken: tally.taken.load(Relaxed), freed: tally.freed.load(Relaxed) },
        None => BufferUse::default(),
    }
}

struct Cache {
    current: Fixed<Magazine>,
    /// Full or partly full magazines, the most recently used last.
    loaded: Vec<Fixed<Magazine>>,
    empty: Vec<Fixed<Magazine>>,
    tally: Arc<Tally>,
    pool: &'static Pool,
    home: fn(&[Packet], &mut [usize]) -> bool,
    /// What became of marked packets.
    passages: Vec<Passage>,
}

/// How many loaded magazines a thread keeps beside the current one before it gives them to the depot.
const KEPT: usize = 4;

impl Cache {
    fn new(pool: &'static Pool) -> Cache {
        let tally = Arc::new(Tally::default());
        pool.enrol(Arc::clone(&tally));
        let (current, home) = (Magazine::empty(), kernels().home);
        Cache { current, loaded: Vec::new(), empty: Vec::new(), tally, pool, home, passages: Vec::new() }
    }

    #[inline(always)]
    fn free(&mut self, data: usize) {
        if !self.current.push(data) {
            self.free_to_next(data);
        }
    }

    #[cold]
    fn free_to_next(&mut self, data: usize) {
        self.change_current();
        self.current.push(data);
    }

    /// Puts a full current magazine away and starts an empty one.
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

    /// A magazine with at least one buffer, or an empty one when the pool has none left.
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

    /// Puts the free buffers in order, so that those with the lowest addresses are taken first.
    ///
    /// The sort is the one that makes use of runs that are in order: what was tidy not long ago still has them.
    #[cold]
    fn tidy(&mut self) {
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

    /// Takes back what a [`Fresh`] did not use.
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

/// Runs `work` on the thread's cache; `None` when the thread is ending and has none any more.
///
/// `work` must not run code from outside this module, so that it cannot come back here.
#[inline(always)]
fn with_cache<T>(work: impl FnOnce(&mut Cache) -> T) -> Option<T> {
    let mut cache = CACHE.get();
    if cache.is_null() {
        cache = make_cache();
        if cache.is_null() {
            return None;
        }
    }
    // SAFETY: a non-null CACHE points into the OWNER of this thread, whose Drop clears it first. No other
    // reference to it exists: only this function makes one, and `work` (private to this module) does not call
    // back into it.
    Some(work(unsafe { &mut *cache }))
}

#[cold]
fn make_cache() -> *mut Cache {
    let _ = OWNER.try_with(|_| ());
    CACHE.get()
}

/// Runs `work` on the thread's log of marked packets; not at all if the thread is ending.
///
/// `work` must not make or free packets.
pub(crate) fn with_passages<T: Default>(work: impl FnOnce(&mut Vec<Passage>) -> T) -> T {
    with_cache(|cache| work(&mut cache.passages)).unwrap_or_default()
}

/// New packets, empty, each in a buffer of its own; made by [`Packet::fresh`].
///
/// Ends early when the pool runs out: [`Fresh::missing`] tells how many were not to be had.
/// Dropping it puts the buffers that were not used back.
pub struct Fresh {
    magazine: ManuallyDrop<Fixed<Magazine>>,
    /// The magazine's length, kept here because here it stays in a register.
    top: usize,
    wanted: usize,
    /// Taken from magazines before this one.
    used_before: usize,
    /// The length that this magazine had at first.
    full: usize,
    /// Belongs to the thread's cache.
    _not_send: PhantomData<*mut ()>,
}

impl Fresh {
    #[inline]
    pub(crate) fn new(wanted: usize) -> Fresh {
        let magazine = with_cache(Cache::take).unwrap_or_else(Magazine::empty);
        let top = magazine.length;
        let magazine = ManuallyDrop::new(magazine);
        Fresh { magazine, top, wanted, used_before: 0, full: top, _not_send: PhantomData }
    }

    /// How many of the packets asked for have not been delivered: after the end, those that the pool did not have.
    #[inline]
    pub fn missing(&self) -> usize {
        self.wanted
    }

    #[inline(always)]
    fn next_address(&mut self) -> Option<usize> {
        if self.wanted == 0 {
            return None;
        }
        if self.top == 0 {
            return self.next_address_elsewhere();
        }
        self.wanted -= 1;
        self.top -= 1;
        // SAFETY: top started as the magazine's length, which never exceeds its size, and only falls.
        Some(unsafe { *self.magazine.addresses.get_unchecked(self.top) })
    }

    /// The next packet, of this length; its bytes are whatever the buffer held before. `None` also if no ordinary buffer is so large.
    #[inline(always)]
    pub fn next_of(&mut self, length: usize) -> Option<Packet> {
        if length > ROOM {
            return None;
        }
        let address = self.next_address()?;
        Some(Packet::from_free_buffer(pool::pointer(address), length as u64))
    }

    #[inline(always)]
    fn next_address_elsewhere(&mut self) -> Option<usize> {
        self.used_before += self.full;
        // SAFETY: the field is given a new value right away. (By value, so that the struct need not lie in memory.)
        let spent = unsafe { ManuallyDrop::take(&mut self.magazine) };
        self.magazine = ManuallyDrop::new(trade(spent));
        self.full = self.magazine.length;
        self.top = self.full.checked_sub(1)?;
        self.wanted -= 1;
        Some(self.magazine.addresses[self.top])
    }
}

/// Gives a spent magazine for one that is loaded, if the pool has any left.
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

impl Iterator for Fresh {
    type Item = Packet;

    #[inline(always)]
    fn next(&mut self) -> Option<Packet> {
        let address = self.next_address()?;
        Some(Packet::from_free_buffer(pool::pointer(address), 0))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.wanted))
    }
}

impl Drop for Fresh {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the field is not used after this, the only other place that takes it.
        let magazine = unsafe { ManuallyDrop::take(&mut self.magazine) };
        put_back(magazine, self.top, self.used_before + self.full - self.top);
    }
}

/// Puts the `left` buffers of a magazine that are still in it back, and books `used` as taken.
///
/// Not inlined, with arguments by value, so that a [`Fresh`] can live in registers.
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
    // Who receives an empty magazine takes the pool for empty.
    if magazine.length > 0 {
        pool.give(magazine);
    }
}

/// What many packets begin as: up to a whole ordinary buffer of bytes, stored in whole cache lines.
#[derive(Clone, Debug)]
pub struct Template {
    lines: Vec<[u8; LINE]>,
    word: u64,
    fill: unsafe fn(&[usize], &[[u8; LINE]], u64, *mut Packet),
}

impl Template {
    /// A template of these bytes; `None` if they are more than every ordinary buffer holds, [`ROOM`].
    pub fn new(bytes: &[u8]) -> Option<Template> {
        if bytes.len() > ROOM {
            return None;
        }
        let mut lines = vec![[0; LINE]; bytes.len().div_ceil(LINE)];
        lines.as_flattened_mut()[..bytes.len()].copy_from_slice(bytes);
        Some(Template { lines, word: bytes.len() as u64, fill: kernels().fill })
    }

    /// Length in bytes of the packets made from it.
    #[expect(clippy::len_without_is_empty, reason = "as for packets")]
    pub fn len(&self) -> usize {
        self.word as usize
    }
}

/// Takes one buffer of the large class, on somebody's account.
pub(crate) fn take_large(owner: AccountNumber) -> Option<Packet> {
    let pool = pool::get();
    let data = pool.take_large(owner)?;
    if with_cache(|cache| Tally::add(&cache.tally.taken, 1)).is_none() {
        pool.took_uncached(1);
    }
    Some(Packet::from_free_buffer(pool::pointer(data), LARGE))
}

/// Gives one packet's buffer back.
#[inline(always)]
pub(crate) fn free(data: usize, large: bool) {
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

/// Puts this thread's free buffers in order, so that packets lie side by side again as they did at first.
///
/// A burst larger than usual leaves buffers from all over the pool on top. They spread less evenly over the sets of the
/// caches than neighbours do, which costs some percent for good: the history of the process. This takes a few microseconds
/// when little is out of order, and some tens when much is.
pub fn tidy() {
    with_cache(Cache::tidy);
}

/// Frees all packets of a vector: the fast way out for sinks.
///
/// Hot: one pass over the handles, no look at the data.
#[inline]
pub fn free_all(vector: &mut Vector) {
    match free_plain(vector.as_slice()) {
        0 => vector.forget_all(),
        left => free_special(vector, left),
    }
}

/// Frees packets up to the first ones that are special. Returns how many are left.
#[inline(always)]
fn free_plain(packets: &[Packet]) -> usize {
    let freed = with_cache(|cache| {
        let mut rest = packets;
        while !rest.is_empty() {
            if cache.current.room() == 0 {
                cache.change_current();
            }
            let (now, later) = rest.split_at(rest.len().min(cache.current.room()));
            let magazine = &mut *cache.current;
            let addresses = &mut magazine.addresses[magazine.length..][..now.len()];
            if !(cache.home)(now, addresses) {
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

/// Frees the last `left` packets of a vector, of which some are special; those before them have been freed.
#[cold]
fn free_special(vector: &mut Vector, mut left: usize) {
    let length = vector.len();
    if end_marks(&mut vector.as_mut_slice()[length - left..]) {
        left = free_plain(&vector.as_slice()[length - left..]);
    }
    free_one_by_one(vector, left);
}

/// Frees the last `left` packets of a vector one after the other; those before them have been freed.
fn free_one_by_one(vector: &mut Vector, left: usize) {
    let done = vector.len() - left;
    let mut drain = vector.drain(usize::MAX);
    drain.by_ref().take(done).for_each(mem::forget);
    drain.for_each(drop);
}

/// Adds up to `count` packets made from a template to the end of a vector, as many as it and the pool have room for.
///
/// Returns how many. Hot.
#[inline]
pub fn push_filled(vector: &mut Vector, count: usize, template: &Template) -> usize {
    with_free_buffers(count.min(vector.room()), |buffers, _| {
        // SAFETY: the buffers are free ordinary ones, which have room for the template's lines (Template::new
        // checked); the vector has room for all packets asked for behind its end.
        unsafe {
            (template.fill)(buffers, &template.lines, template.word, vector.free_slots());
            vector.pushed(buffers.len(), (buffers.len() * template.len()) as u64);
        }
    })
}

/// Adds a copy of each packet to the end of a vector, until it or the pool has no more room.
///
/// Returns how many. Hot.
#[inline]
pub fn push_copies(vector: &mut Vector, packets: &[Packet]) -> usize {
    let packets = &packets[..packets.len().min(vector.room())];
    let words = packets.iter().fold(0, |words, packet| words | packet.word());
    if words & (LARGE | META | MARKED | OFFLOAD) != 0 || packets.iter().any(|packet| packet.len() > ROOM) {
        return packets.iter().map_while(Packet::copy).map_while(|copy| vector.push(copy).ok()).count();
    }
    let copy = kernels().copy;
    with_free_buffers(packets.len(), |buffers, done| {
        let packets = &packets[done..][..buffers.len()];
        let bytes = packets.iter().map(|packet| packet.len() as u64).sum();
        // SAFETY: the buffers are free ordinary ones, into which the packets fit, and none of these carries
        // metadata or an offload, as checked above; the vector has room for all packets behind its end.
        unsafe {
            copy(packets, buffers, vector.free_slots());
            vector.pushed(buffers.len(), bytes);
        }
    })
}

/// Hands `count` free buffers, as far as the pool has them, to `work`: some at a time, with how many went before.
/// `work` makes packets in them. Returns how many.
#[inline(always)]
fn with_free_buffers(count: usize, mut work: impl FnMut(&[usize], usize)) -> usize {
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
