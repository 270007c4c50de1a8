//! The tables that the examples compare with this crate's: those of other crates, and structures of papers.
//!
//! Each table is made from all routes at once. Those of other crates, which recommend that for many routes, look up key by
//! key, because they have no batches.

mod dxr;
mod intervals;
mod planb;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use bellows_fib::{AddressFamily, NO_ROUTE, Prefix};
use bellows_sys::cache;
use dxr::Dxr;
use planb::PlanB;
use poptrie::Poptrie;
use prefix_trie::PrefixMap;

/// Keys that are looked up together.
const BATCH: usize = 128;

/// The names of the tables. `poptrie` is a Poptrie (Asai and Ohara 2015) in Rust; `prefix-trie` is a map of prefixes; `dxr`,
/// which IPv6 has not, and `planb` are structures of papers.
pub const NAMES: [&str; 4] = ["poptrie", "prefix-trie", "dxr", "planb"];

/// An address that all of these crates know.
pub trait Known: AddressFamily + poptrie::Address {
    /// A prefix map of `prefix_trie`, whose trait for addresses cannot be named without another crate.
    type Map: LookUp<Self> + FromIterator<((Self, u8), u32)> + 'static;

    /// The address as the first bits of 128.
    fn widened(self) -> u128;

    /// The table of DXR, if the family has one and the numbers of routes fit.
    fn dxr(routes: &[(Prefix<Self>, u32)]) -> Option<Box<dyn LookUp<Self>>>;
}

impl Known for u32 {
    type Map = PrefixMap<(u32, u8), u32>;

    fn widened(self) -> u128 {
        u128::from(self) << 96
    }

    fn dxr(routes: &[(Prefix<u32>, u32)]) -> Option<Box<dyn LookUp<u32>>> {
        Some(Box::new(Dxr::new(&intervals::of(routes))?))
    }
}

impl Known for u128 {
    type Map = PrefixMap<(u128, u8), u32>;

    fn widened(self) -> u128 {
        self
    }

    fn dxr(_: &[(Prefix<u128>, u32)]) -> Option<Box<dyn LookUp<u128>>> {
        None
    }
}

/// A table that looks up batches.
pub trait LookUp<A> {
    /// Writes the number of each key's route, or [`NO_ROUTE`], to its place.
    fn look_up(&self, keys: &[A], next: &mut [u32]);
}

impl<A: Known> LookUp<A> for Poptrie<(A, u8), u32> {
    fn look_up(&self, keys: &[A], next: &mut [u32]) {
        for (&key, next) in keys.iter().zip(next) {
            *next = self.lookup(key).copied().unwrap_or(NO_ROUTE);
        }
    }
}

impl LookUp<u32> for PrefixMap<(u32, u8), u32> {
    fn look_up(&self, keys: &[u32], next: &mut [u32]) {
        for (&key, next) in keys.iter().zip(next) {
            *next = self.get_lpm(&(key, 32)).map_or(NO_ROUTE, |(_, &number)| number);
        }
    }
}

impl LookUp<u128> for PrefixMap<(u128, u8), u32> {
    fn look_up(&self, keys: &[u128], next: &mut [u32]) {
        for (&key, next) in keys.iter().zip(next) {
            *next = self.get_lpm(&(key, 128)).map_or(NO_ROUTE, |(_, &number)| number);
        }
    }
}

/// Looks up all keys in batches. The keys of the next batch are requested before, as an app has those of its packets at
/// hand.
pub fn pass<A>(table: &dyn LookUp<A>, keys: &[A]) {
    let mut next = [0; BATCH];
    for (batch, keys_of_batch) in keys.chunks(BATCH).enumerate() {
        for line in keys.iter().skip((batch + 1) * BATCH).take(BATCH).step_by(cache::LINE / size_of::<A>()) {
            cache::prefetch(ptr::from_ref(line).cast());
        }
        table.look_up(keys_of_batch, &mut next);
        black_box(&next);
    }
}

/// The table with this name, filled. `None` if there is no such table, or none for this family.
pub fn table<A: Known>(name: &str, routes: &[(Prefix<A>, u32)]) -> Option<Box<dyn LookUp<A>>> {
    let entries = routes.iter().map(|&(prefix, number)| ((prefix.address(), prefix.length()), number));
    match name {
        "poptrie" => Some(Box::new(entries.collect::<Poptrie<(A, u8), u32>>())),
        "prefix-trie" => Some(Box::new(entries.collect::<A::Map>())),
        "dxr" => A::dxr(routes),
        "planb" => Some(Box::new(PlanB::new(&intervals::of(routes)))),
        _ => None,
    }
}

/// The bytes that the process has allocated.
pub fn allocated() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

/// The system's allocator, and how much it has given out: not every table can tell its size.
struct Counting;

// SAFETY: as the system's allocator, which does all of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATED.fetch_add(size, Ordering::Relaxed);
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }
}
