//! The process's pool of packet buffers.
//!
//! One reservation of address space, made once and never unmapped, contains both classes of buffers. The kernel commits
//! memory when buffers are first used. On a machine with several memory nodes, each has an equal part of the buffers of
//! either class. [`init`] sets the size of the pool; the first packet without it uses [`Config::default`].

use std::iter;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};

use bellows_sys::memory::{HUGE_PAGE, Pages, Reservation};
use bellows_sys::numa;

use crate::accounts::{AccountNumber, Quotas};
use crate::class::Class;
use crate::lock::lock;
use crate::magazine::{Held, Magazine, Member};
use crate::parts::{LargePart, Part, divide};
use crate::{DATA_OFFSET, DATA_ROOM, LARGE_STRIDE, LINE};

/// Minimum number of ordinary buffers, for each worker that shares the pool.
pub const MIN_PACKETS: usize = 64;

/// Bytes in front of the first buffer: see [`Area`].
const FRONT: usize = 4_096;

/// The size of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Buffers for ordinary packets (2,048 bytes of data each).
    pub packets: usize,
    /// Buffers for GSO packets (73,600 bytes of data each).
    pub large_packets: usize,
    /// Distance in bytes from one ordinary buffer to the next: an odd multiple of 64, or any multiple of 64 to
    /// experiment with, at least 2,240.
    pub stride: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { packets: 65_536, large_packets: 512, stride: DATA_OFFSET + DATA_ROOM }
    }
}

/// The reason why a pool cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A number is out of range.
    #[error("{what} is {value}; it must be between {least} and {most}")]
    OutOfRange {
        /// The name of the number.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The minimum.
        least: usize,
        /// The maximum.
        most: usize,
    },
    /// The stride is not a whole number of cache lines.
    #[error("the stride {0} is not a multiple of {LINE}; use {next}", next = .0.next_multiple_of(LINE))]
    UnevenStride(usize),
    /// The pool exists already, with other sizes.
    #[error(
        "the pool already exists, with {0} packets; its size is fixed when the process starts: restart to change it"
    )]
    Exists(usize),
    /// The system has no memory for it.
    #[error("no memory for a pool of {packets} packets ({mebibytes} MiB): {source}; ask for a smaller pool")]
    Memory {
        /// Number of ordinary packets requested.
        packets: usize,
        /// Size of the whole reservation.
        mebibytes: usize,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The current use of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Buffers of the ordinary class.
    pub packets: usize,
    /// Buffers of the large class.
    pub large_packets: usize,
    /// Buffers of both classes that packets currently own.
    pub in_use: usize,
    /// Buffers of both classes that are [lent](crate::Lent) outside the process.
    pub lent: usize,
    /// Buffers of the large class that are not free: packets own them, or they are lent.
    pub large_in_use: usize,
}

/// How often a thread has found that the pool has no ordinary buffers left; wraps. On cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Shortages(AtomicU32);

impl Shortages {
    /// Asks the other threads for free buffers.
    #[cold]
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

pub(crate) struct Pool {
    pub(crate) small: Class,
    pub(crate) large: Class,
    /// The ordinary buffers by memory node. At least one.
    pub(crate) parts: Box<[Part]>,
    /// The large buffers by memory node: as many parts.
    large_parts: Box<[LargePart]>,
    pub(crate) shortages: Shortages,
    pub(crate) large_accounts: Mutex<Quotas>,
    /// The threads that have caches.
    members: Mutex<Vec<Arc<Member>>>,
    /// Buffers taken minus buffers given back by threads that have ended; may be negative, in two's complement.
    settled: AtomicU64,
    /// Number of lent buffers.
    pub(crate) lent: AtomicU64,
    memory: Reservation,
    config: Config,
}

static POOL: OnceLock<Pool> = OnceLock::new();
static SIZING: Mutex<()> = Mutex::new(());

/// Creates the process's pool. A second call with the same config is no error.
///
/// # Errors
/// See [`Error`]. After one, the pool can still be made with other numbers.
pub fn init(config: Config) -> Result<(), Error> {
    let _one_at_a_time = lock(&SIZING);
    if let Some(pool) = POOL.get() {
        return if pool.config == config { Ok(()) } else { Err(Error::Exists(pool.config.packets)) };
    }
    let _ = POOL.set(Pool::new(config)?);
    Ok(())
}

/// Creates the default pool if there is none.
///
/// # Errors
/// See [`Error`].
pub fn ensure() -> Result<(), Error> {
    if POOL.get().is_some() { Ok(()) } else { init(Config::default()) }
}

/// The pool; creates the default one if there is none.
///
/// # Panics
/// If the default pool cannot be created. A program that must not panic calls [`init`] or [`ensure`] first.
#[inline(always)]
pub(crate) fn get() -> &'static Pool {
    match POOL.get() {
        Some(pool) => pool,
        None => make_default(),
    }
}

#[cold]
fn make_default() -> &'static Pool {
    if let Err(error) = init(Config::default()) {
        assert!(POOL.get().is_some(), "{error}");
    }
    POOL.get().expect("the pool was just created")
}

/// Address of a new packet's data in the buffer of a packet whose data now begins at `data`.
#[inline(always)]
pub fn start_of(data: usize, large: bool) -> usize {
    get().class(large).reset(data)
}

/// Replaces each address by [`start_of`] of it. All are in ordinary buffers.
#[inline(always)]
pub fn starts_of(addresses: &mut [usize]) {
    let small = &get().small;
    for address in addresses {
        *address = small.reset(*address);
    }
}

/// The quota that a large buffer was charged to.
pub fn owner_of(data: usize) -> AccountNumber {
    let pool = get();
    lock(&pool.large_accounts).owner(pool.large.number(data))
}

/// The current use of the pool. Exact if no other thread takes or frees packets meanwhile.
pub fn usage() -> Usage {
    let pool = get();
    // A thread that ends moves its counts from one to the other under this lock.
    let members = lock(&pool.members);
    let settled = pool.settled.load(Relaxed);
    let in_use = members.iter().fold(settled, |sum, member| sum.wrapping_add(member.tally.outstanding()));
    drop(members);
    Usage {
        packets: pool.config.packets,
        large_packets: pool.config.large_packets,
        // Temporarily negative while a packet moves from thread to thread.
        in_use: usize::try_from(in_use as i64).unwrap_or(0),
        lent: pool.lent.load(Relaxed) as usize,
        large_in_use: lock(&pool.large_accounts).taken() as usize,
    }
}

/// The memory of the pool, from a page boundary: all buffers, a page in front of them, and with several memory nodes a
/// gap in front of the large ones.
///
/// AF_XDP places a frame 256 bytes behind the address that it is given, so that address may be in front of the first
/// buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The first byte.
    pub start: usize,
    /// Length in bytes.
    pub length: usize,
}

/// The memory of the pool.
pub fn area() -> Area {
    let pool = get();
    let start = pool.memory.start().as_ptr().expose_provenance();
    Area { start, length: pool.large.first - start + pool.config.large_packets * LARGE_STRIDE }
}

/// The kind of pages of the pool's memory.
pub fn pages() -> Pages {
    get().memory.pages()
}

/// The config of the pool.
pub fn config() -> Config {
    get().config
}

impl Pool {
    fn new(config: Config) -> Result<Pool, Error> {
        let nodes: Vec<usize> = numa::nodes().iter().map(|node| node.number).collect();
        Pool::on_nodes(config, &nodes)
    }

    /// A pool with a part on each of these memory nodes.
    pub(crate) fn on_nodes(config: Config, nodes: &[usize]) -> Result<Pool, Error> {
        let within = |what, value, least, most| {
            if (least..=most).contains(&value) { Ok(()) } else { Err(Error::OutOfRange { what, value, least, most }) }
        };
        within("the stride", config.stride, DATA_OFFSET + DATA_ROOM, 1 << 18)?;
        if !config.stride.is_multiple_of(LINE) {
            return Err(Error::UnevenStride(config.stride));
        }
        within("the number of packets", config.packets, MIN_PACKETS, Class::max_buffers(config.stride))?;
        within("the number of large packets", config.large_packets, 0, Class::max_buffers(LARGE_STRIDE))?;
        let small_bytes = config.packets * config.stride;
        // On several nodes the large buffers begin at a huge page, whose node need not be that of the last small ones.
        let large_at = (FRONT + small_bytes).next_multiple_of(if nodes.len() > 1 { HUGE_PAGE } else { 1 });
        let bytes = large_at + config.large_packets * LARGE_STRIDE;
        let memory = Reservation::for_packets(bytes).map_err(|source| Error::Memory {
            packets: config.packets,
            mebibytes: bytes >> 20,
            source,
        })?;
        // Like the memory of virtual machines: packets are other people's. The arena, which contains the engine's own
        // tables, is included.
        memory.leave_out_of_core_dumps();
        let start = memory.start().as_ptr().expose_provenance();
        let small = Class::new(start + FRONT, config.stride, config.packets);
        let large = Class::new(start + large_at, LARGE_STRIDE, config.large_packets);
        let page = memory.page();
        let [mut shares, large_shares] = [&small, &large].map(|class| divide(class, nodes, page));
        // The page in front belongs to the first buffers, which would otherwise get no huge page.
        shares[0].area.start = start;
        for share in shares.iter().chain(&large_shares) {
            if let Some(node) = share.node {
                let [from, to] = [share.area.start, share.area.end].map(|address| address.next_multiple_of(page));
                // Memory elsewhere is slower, but it works.
                let _ = memory.prefer_node(from - start..to - start, node);
            }
        }
        Ok(Pool {
            parts: shares.iter().map(|share| Part::new(&small, share)).collect(),
            large_parts: large_shares.iter().map(|share| LargePart::new(&large, share)).collect(),
            small,
            large,
            shortages: Shortages::default(),
            large_accounts: Mutex::new(Quotas::new(config.large_packets)),
            members: Mutex::default(),
            settled: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            memory,
            config,
        })
    }

    /// The class of a buffer, by the large flag of its packet.
    #[inline(always)]
    fn class(&self, large: bool) -> &Class {
        if large { &self.large } else { &self.small }
    }

    /// The part that a buffer is in, by the address of a new packet's data.
    pub(crate) fn part_of(&self, data: usize) -> usize {
        self.parts.iter().position(|part| data < part.addresses.end).unwrap_or_default()
    }

    /// The part on the thread's memory node, or else on that of the processor that it runs on.
    pub(crate) fn part_of_thread(&self) -> usize {
        if self.parts.len() == 1 {
            return 0;
        }
        let node = bellows_arena::node().or_else(numa::current);
        self.parts.iter().position(|part| part.node == node).unwrap_or_default()
    }

    /// A magazine with buffers of a part that nobody has. `None` if packets and the caches of threads have all.
    pub(crate) fn receive(&self, part: usize) -> Option<Held> {
        let part = &self.parts[part];
        part.receive().or_else(|| {
            let untouched = part.untouched.take(Magazine::SIZE as u32);
            if untouched.is_empty() {
                return None;
            }
            let mut magazine = part.empty();
            for buffer in untouched {
                magazine.push(self.small.data(buffer));
            }
            Some(magazine)
        })
    }

    /// Takes a large buffer: of this part, or else of another one.
    pub(crate) fn take_large(&self, owner: AccountNumber, home: usize) -> Option<usize> {
        let mut accounts = lock(&self.large_accounts);
        if !accounts.allows(owner) {
            return None;
        }
        let mut parts = iter::once(&self.large_parts[home]).chain(&self.large_parts);
        let data = parts.find_map(|part| part.take(&self.large))?;
        accounts.took(self.large.number(data), owner);
        Some(data)
    }

    /// Puts a magazine back for a thread without a cache.
    pub(crate) fn give_uncached(&self, magazine: Held) {
        let mut magazine = magazine;
        if self.parts.len() > 1 {
            magazine.addresses[..magazine.length].iter().for_each(|&data| self.give_small(data));
            magazine.length = 0;
        }
        self.parts[0].give(magazine);
    }

    /// Puts an ordinary buffer back for a thread without a cache.
    pub(crate) fn give_small(&self, data: usize) {
        let part = &self.parts[self.part_of(data)];
        part.give(Held::of(data, part.empty()));
    }

    pub(crate) fn give_large(&self, data: usize) {
        lock(&self.large_accounts).gave_back(self.large.number(data));
        let part = self.large_parts.iter().find(|part| data < part.addresses.end);
        part.unwrap_or(&self.large_parts[0]).give(data);
    }

    pub(crate) fn enrol(&self, member: Arc<Member>) {
        lock(&self.members).push(member);
    }

    /// The threads that have caches, unless another thread looks at them just now. While this exists, nobody puts
    /// anything into a mailbox, and no thread leaves.
    pub(crate) fn try_members(&self) -> Option<MutexGuard<'_, Vec<Arc<Member>>>> {
        match self.members.try_lock() {
            Ok(members) => Some(members),
            Err(TryLockError::Poisoned(members)) => Some(members.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Adds the counts of a thread that ends to the totals. From now on nobody puts anything into its mailbox.
    pub(crate) fn settle(&self, member: &Arc<Member>) {
        let mut members = lock(&self.members);
        members.retain(|other| !Arc::ptr_eq(other, member));
        self.settled.fetch_add(member.tally.outstanding(), Relaxed);
    }

    /// Takes buffers for a thread without a cache (it is ending).
    pub(crate) fn took_uncached(&self, count: u64) {
        self.settled.fetch_add(count, Relaxed);
    }

    /// Frees a buffer for a thread without a cache (it is ending).
    pub(crate) fn free_uncached(&self, data: usize, large: bool) {
        if large {
            self.give_large(data);
        } else {
            self.give_small(data);
        }
        self.settled.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn sizes_out_of_range_are_refused_by_name() {
        let refused = |config| Pool::new(config).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused(Config { packets: 3, ..Config::default() }).contains("the number of packets is 3"));
        assert!(refused(Config { packets: usize::MAX, ..Config::default() }).contains("between 64 and"));
        assert!(refused(Config { stride: 2_241, ..Config::default() }).contains("not a multiple of 64"));
        assert!(refused(Config { stride: 64, ..Config::default() }).contains("the stride is 64"));
        assert!(refused(Config { large_packets: 1 << 40, ..Config::default() }).contains("large packets"));
    }
}
