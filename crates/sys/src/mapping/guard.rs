//! What happens when a file is cut short under its mapping: the kernel sends SIGBUS to the thread that touches what is gone.
//!
//! A table holds the ranges of all guarded mappings. The handler looks the faulting address up in it, puts zeros where the hole
//! is and behind it, marks the range as broken and lets the thread go on. Any other SIGBUS goes to whoever handled the signal
//! before, and kills the process if nobody did.
//!
//! The handler takes no lock, allocates nothing, and makes one system call, so it may interrupt anything.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// How many mappings can be guarded at the same time.
const CAPACITY: usize = 4096;

static TABLE: [Entry; CAPACITY] = [const { Entry::new() }; CAPACITY];

/// How many entries have ever been in use: the handler looks no further.
static USED: AtomicUsize = AtomicUsize::new(0);

/// How many holes have been filled.
static HOLES: AtomicU32 = AtomicU32::new(0);

/// Those who change the table, and what handled the signal before.
static WRITERS: Mutex<()> = Mutex::new(());
static PREVIOUS: OnceLock<Previous> = OnceLock::new();

struct Previous(libc::sigaction);

// SAFETY: the structure is plain data; the function that it names is a signal handler, which any thread may run.
unsafe impl Send for Previous {}
// SAFETY: as above, and it is never changed.
unsafe impl Sync for Previous {}

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
        install()?;
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
    let _writer = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    install()
}

/// Installs the handler, once in the life of the process. Writers only.
fn install() -> io::Result<()> {
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    let mut previous = MaybeUninit::uninit();
    // SAFETY: asks for the present handler only, and writes it into a structure of the right type.
    if unsafe { libc::sigaction(libc::SIGBUS, null(), previous.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: sigaction() has filled it.
    let _ = PREVIOUS.set(Previous(unsafe { previous.assume_init() }));
    // SAFETY: all zero is a valid sigaction: no flags, an empty mask, the default handler.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_sigbus as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for and does only what a signal handler may.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid siginfo; for BUS_ADRERR it holds an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == libc::BUS_ADRERR && fill(address) {
        return;
    }
    pass_on(signal, code, info, context);
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

/// Does what would have been done without us.
fn pass_on(signal: libc::c_int, code: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get().map(|previous| &previous.0);
    match previous {
        Some(action) if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN => {
            // SAFETY: the process had installed this function as the handler of this signal, with this signature.
            unsafe {
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                        std::mem::transmute(action.sa_sigaction);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(libc::c_int) = std::mem::transmute(action.sa_sigaction);
                    handler(signal);
                }
            }
        }
        Some(action) if action.sa_sigaction == libc::SIG_IGN && code <= 0 => return,
        // SAFETY: sets the default, which is to end the process; the kernel does that when the instruction is tried again.
        _ => unsafe {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        },
    }
    // A signal that a process sent is not sent again by trying an instruction again; what the previous handler left to
    // the default has to be raised. It arrives when this handler returns.
    if code <= 0 && is_default() {
        // SAFETY: raise() may be called in a handler.
        unsafe { libc::raise(signal) };
    }
}

fn is_default() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: asks for the present handler only; the structure is read if the call has filled it.
    unsafe {
        libc::sigaction(libc::SIGBUS, null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_DFL
    }
}
