//! Handles truncation of a mapped file: the kernel sends SIGBUS to the thread that accesses the missing part.
//!
//! A table contains the ranges of all guarded mappings. The handler looks up the faulting address, maps zeros over the
//! hole and everything after it, marks the range as broken and lets the thread continue. Any other SIGBUS goes to the
//! previous handler, and kills the process if there is none.
//!
//! The handler takes no lock, allocates nothing, and makes only one system call, so it may interrupt anything.

use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};
use std::sync::{Mutex, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use bellows_sys::signal::HandlerChain;

/// Maximum number of mappings that can be guarded at the same time.
const CAPACITY: usize = 4096;

static TABLE: [RangeEntry; CAPACITY] = [const { RangeEntry::new() }; CAPACITY];

/// Number of entries that have ever been used: the handler searches no further.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Number of holes that have been filled.
static HOLES: AtomicU32 = AtomicU32::new(0);

/// Serialises changes of the table.
static WRITERS: Mutex<()> = Mutex::new(());

// SAFETY: the handler reads and writes atomics of the table, makes raw system calls, and passes the signal on.
static HANDLER: HandlerChain = unsafe { HandlerChain::new(libc::SIGBUS, on_sigbus) };

/// One range. It changes only while `version` is odd. A reader that sees an odd version, or a different one afterwards,
/// has read a range that is being added or removed, which cannot be the one that its own thread accesses.
struct RangeEntry {
    version: AtomicU32,
    broken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    page: AtomicUsize,
}

impl RangeEntry {
    const fn new() -> RangeEntry {
        RangeEntry {
            version: AtomicU32::new(0),
            broken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            page: AtomicUsize::new(0),
        }
    }

    fn is_free(&self) -> bool {
        self.end.load(Relaxed) == 0
    }

    /// Writers only.
    fn set(&self, start: usize, end: usize, page: usize) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        fence(Release);
        self.broken.store(false, Relaxed);
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
        self.page.store(page, Relaxed);
        self.version.store(version.wrapping_add(2), Release);
    }

    /// The page size and the end of the range, if the address is in it.
    fn find(&self, address: usize) -> Option<(usize, usize)> {
        let before = self.version.load(Acquire);
        let (page, end) = (self.page.load(Relaxed), self.end.load(Relaxed));
        let inside = (self.start.load(Relaxed)..end).contains(&address);
        fence(Acquire);
        let same = before.is_multiple_of(2) && self.version.load(Relaxed) == before;
        (inside && same).then_some((page, end))
    }
}

/// An entry of the table, kept as long as the mapping exists.
#[derive(Debug)]
pub(super) struct Guard(&'static RangeEntry);

impl std::fmt::Debug for RangeEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start.load(Relaxed), self.end.load(Relaxed))
    }
}

/// See [`super::holes`].
#[inline]
pub(super) fn holes() -> u32 {
    HOLES.load(Acquire)
}

impl Guard {
    /// Guards a mapping with this page size.
    pub(super) fn new(start: usize, length: usize, page: usize) -> io::Result<Guard> {
        let _writer = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        HANDLER.install()?;
        let index = TABLE.iter().position(RangeEntry::is_free);
        let index =
            index.ok_or_else(|| io::Error::other(format!("there are {CAPACITY} mappings, which is the maximum")))?;
        TABLE[index].set(start, start + length, page);
        USED.fetch_max(index + 1, Release);
        Ok(Guard(&TABLE[index]))
    }

    /// Removes the mapping from the table, before it is unmapped. Called once, at the end.
    pub(super) fn release(&self) {
        let _writer = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.set(0, 0, 0);
    }

    /// Whether a part of the mapping was missing when it was accessed.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        self.0.broken.load(Relaxed)
    }
}

/// See [`super::prepare`].
pub(super) fn prepare() -> io::Result<()> {
    HANDLER.install()
}

extern "C" fn on_sigbus(_signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid siginfo; for BUS_ADRERR it contains an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == libc::BUS_ADRERR && fill(address) {
        return;
    }
    // SAFETY: the kernel's arguments. A signal that a process sent, whose code is not positive, does not recur.
    unsafe { HANDLER.pass_on(code > 0, info, context) };
}

/// Maps zeros over the hole of a guarded mapping. False if the address belongs to none, or there is no memory for the
/// zeros.
///
/// Everything from there to the mapping's end is replaced at once, because truncation removes the end of a file. So a
/// mapping never splits into more than two parts, however many of its pages are accessed in any order; the number of
/// mappings of a process is limited (`vm.max_map_count`). If the system does not grant that much memory, only one page
/// is replaced.
fn fill(address: usize) -> bool {
    let used = USED.load(Acquire);
    for entry in &TABLE[..used] {
        let Some((page, end)) = entry.find(address) else { continue };
        entry.broken.store(true, Relaxed);
        HOLES.fetch_add(1, Release);
        let start = address & !(page - 1);
        return put_zeros(start, end - start) || put_zeros(start, page);
    }
    false
}

fn put_zeros(start: usize, length: usize) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: fill() passes a part of a mapping that its owner keeps, because this thread is accessing it. It is
    // replaced by another readable and writable one; other threads find zeros as they would in the hole. A raw system
    // call, which does not change errno.
    unsafe { mmap_anonymous(start as *mut libc::c_void, length, access, flags) }.is_ok()
}
