//! What happens when a file is cut short under its mapping: the kernel sends SIGBUS to the thread that touches what is gone.
//!
//! A table holds the ranges of all guarded mappings. The handler looks the faulting address up in it, puts zeros where the hole
//! is and behind it, marks the range as broken and lets the thread go on. Any other SIGBUS goes to whoever handled the signal
//! before, and kills the process if nobody did.
//!
//! The handler takes no lock, allocates nothing, and makes one system call, so it may interrupt anything.

use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};
use std::sync::{Mutex, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::signal::Chain;

/// How many mappings can be guarded at the same time.
const CAPACITY: usize = 4096;

static TABLE: [Entry; CAPACITY] = [const { Entry::new() }; CAPACITY];

/// How many entries have ever been in use: the handler looks no further.
static USED: AtomicUsize = AtomicUsize::new(0);

/// How many holes have been filled.
static HOLES: AtomicU32 = AtomicU32::new(0);

/// Those who change the table.
static WRITERS: Mutex<()> = Mutex::new(());

// SAFETY: the handler reads and writes atomics of the table, makes raw system calls, and passes the signal on.
static HANDLER: Chain = unsafe { Chain::new(libc::SIGBUS, on_sigbus) };

/// One range. It changes only while `version` is odd; a reader that sees an odd version, or another one afterwards than
/// before, looks at a range that comes or goes, which cannot be the one that its own thread is touching.
struct Entry {
    version: AtomicU32,
    broken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    page: AtomicUsize,
}

impl Entry {
    const fn new() -> Entry {
        Entry {
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

    /// The size of the pages and the end of the range, if the address lies in it.
    fn find(&self, address: usize) -> Option<(usize, usize)> {
        let before = self.version.load(Acquire);
        let (page, end) = (self.page.load(Relaxed), self.end.load(Relaxed));
        let inside = (self.start.load(Relaxed)..end).contains(&address);
        fence(Acquire);
        let same = before.is_multiple_of(2) && self.version.load(Relaxed) == before;
        (inside && same).then_some((page, end))
    }
}

/// A place in the table, held as long as the mapping exists.
#[derive(Debug)]
pub(super) struct Guard(&'static Entry);

impl std::fmt::Debug for Entry {
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
    /// Guards a mapping that lies on pages of this size.
    pub(super) fn new(start: usize, length: usize, page: usize) -> io::Result<Guard> {
        let _writer = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        HANDLER.install()?;
        let index = TABLE.iter().position(Entry::is_free);
        let index = index.ok_or_else(|| io::Error::other(format!("{CAPACITY} mappings exist, which is the most")))?;
        TABLE[index].set(start, start + length, page);
        USED.fetch_max(index + 1, Release);
        Ok(Guard(&TABLE[index]))
    }

    /// Takes the mapping out of the table, before it is unmapped. Called once, at the end.
    pub(super) fn release(&self) {
        let _writer = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.set(0, 0, 0);
    }

    /// Whether a part of the mapping was gone when it was touched.
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
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid siginfo; for BUS_ADRERR it holds an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == libc::BUS_ADRERR && fill(address) {
        return;
    }
    // SAFETY: the kernel's arguments. A signal that a process sent, whose code is not positive, does not recur.
    unsafe { HANDLER.pass_on(code > 0, info, context) };
}

/// Puts zeros where a guarded mapping has a hole. False if the address is nobody's, or there is no memory for them.
///
/// All from there to the mapping's end is replaced at once, since who cuts a file short takes its end away: a mapping never
/// falls into more than two parts, however many pages of it are touched in whatever order, and a process can have only so many
/// (`vm.max_map_count`). Where the system does not promise that much memory, it is one page.
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
    // SAFETY: fill() gives a part of a mapping that its owner keeps, since this thread is just touching it. It becomes another
    // one that is readable and writable too; other threads find zeros as they would in the hole. A raw system call, which
    // leaves errno alone.
    unsafe { mmap_anonymous(start as *mut libc::c_void, length, access, flags) }.is_ok()
}
