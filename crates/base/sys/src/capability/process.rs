//! Giving up capabilities in all threads of the process, as libcap's `libpsx` does for C programs.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::thread::CapabilitySet;

use super::{Set, reduce, retain};
use crate::signal::HandlerChain;

/// How long threads may take to answer. A thread answers as soon as it runs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks at the threads.
const PAUSE: Duration = Duration::from_millis(1);

/// Number of looks in a row that must find nothing to do. The kernel's list can skip a thread while others end.
const CLEAN_LOOKS: u32 = 2;

/// What the handler retains.
static KEEP: AtomicU64 = AtomicU64::new(0);

/// The signal that interrupts the threads.
static SIGNAL: OnceLock<HandlerChain> = OnceLock::new();

/// One call at a time.
static CALLS: Mutex<()> = Mutex::new(());

/// Gives up all other capabilities of every thread of the process, as [`retain`](super::retain) does for one. Returns
/// the number of threads that had more.
///
/// Threads are interrupted by a real-time signal with `SA_RESTART`. As with any signal, calls that wait for a time or
/// for several descriptors (`poll`, `epoll_wait`) return `EINTR`; those of the standard library repeat them. A thread
/// that has no more than these is not interrupted. So a thread that will block signals, or confine its system calls
/// (such as those of `confine` of `bellows-ipc`), first gives up its capabilities by itself.
///
/// # Errors
/// The threads that have not answered in time, by name, for example because they block all signals or because a filter
/// denies `capset(2)`; there is no `/proc`. The threads that have answered keep the reduced sets.
pub fn retain_in_process(keep: Set) -> io::Result<usize> {
    let _only = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let signal = installed()?;
    KEEP.store(keep.0.bits(), SeqCst);
    let own = rustix::thread::gettid().as_raw_pid();
    let mut found = BTreeSet::new();
    let mut interrupted = BTreeSet::from([own]);
    let deadline = Instant::now() + PATIENCE;
    let mut clean = 0;
    while clean < CLEAN_LOOKS {
        let excessive = excessive_threads(keep)?;
        if excessive.is_empty() {
            clean += 1;
            continue;
        }
        clean = 0;
        if Instant::now() > deadline {
            return Err(unanswered(&excessive));
        }
        if excessive.iter().any(|thread| thread.id == own) {
            retain(keep)?;
        }
        for thread in excessive {
            found.insert(thread.id);
            if !interrupted.contains(&thread.id) && interrupt(thread.id, signal)? {
                interrupted.insert(thread.id);
            }
        }
        sleep(PAUSE);
    }
    Ok(found.len())
}

/// The signal, with its handler installed.
fn installed() -> io::Result<&'static HandlerChain> {
    if SIGNAL.get().is_none() {
        // From the end, because programs that use real-time signals themselves begin at SIGRTMIN.
        let free = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(|signal| HandlerChain::is_free(*signal));
        let free = free.ok_or_else(|| {
            io::Error::other("all real-time signals have handlers, and giving up capabilities in all threads takes one")
        })?;
        // SAFETY: the handler reads arguments and atomics, makes direct system calls, and passes the signal on.
        let chain = unsafe { HandlerChain::new(free, on_signal) };
        let _ = SIGNAL.set(chain);
    }
    let signal = SIGNAL.get().ok_or(io::ErrorKind::Other)?;
    signal.install()?;
    Ok(signal)
}

extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's pointer to the signal's information; every signal has a code, and those of tgkill() have a
    // sender; getpid() may be called in a handler.
    let ours = unsafe { (*info).si_code == libc::SI_TKILL && (*info).si_pid() == libc::getpid() };
    if ours {
        // A failure shows in /proc: the thread's sets stay as they are.
        let _ = reduce(CapabilitySet::from_bits_retain(KEEP.load(SeqCst)));
    } else if let Some(chain) = SIGNAL.get() {
        // SAFETY: the kernel's arguments.
        unsafe { chain.pass_on(false, info, context) };
    }
}

/// Sends the signal to a thread; `false` if it has to be tried again.
fn interrupt(thread: i32, signal: &HandlerChain) -> io::Result<bool> {
    let process = rustix::process::getpid().as_raw_pid();
    // SAFETY: sends a signal that has a handler; the arguments are numbers.
    if unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal.signal()) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // It has ended.
        Some(libc::ESRCH) => Ok(true),
        // The user's queue of signals is full.
        Some(libc::EAGAIN) => Ok(false),
        _ => Err(error),
    }
}

/// A thread of this process.
struct Thread {
    id: i32,
    name: String,
}

/// The threads with capabilities outside of the set.
fn excessive_threads(keep: Set) -> io::Result<Vec<Thread>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task").map_err(no_proc)? {
        let path = entry.map_err(no_proc)?.path();
        // A thread may end at any time, and then has no status.
        let Ok(status) = std::fs::read_to_string(path.join("status")) else { continue };
        let id = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let Some(id) = id else { continue };
        if !keep.contains(all_sets(&status)) {
            threads.push(Thread { id, name: field(&status, "Name").unwrap_or_default().to_owned() });
        }
    }
    Ok(threads)
}

fn no_proc(error: io::Error) -> io::Error {
    let message =
        format!("cannot read /proc/self/task, which has the capabilities of each thread: {error}; mount /proc");
    io::Error::new(error.kind(), message)
}

/// The value of a line of `/proc/PID/status`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}

/// All capabilities that a thread has in any set except the bounding set, which gives it none by itself. A set that
/// cannot be read counts as full.
fn all_sets(status: &str) -> Set {
    let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"];
    let set = |name| field(status, name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(u64::MAX);
    sets.into_iter().fold(Set::EMPTY, |all, name| all | Set::from_mask(set(name)))
}

fn unanswered(threads: &[Thread]) -> io::Error {
    let names: Vec<_> = threads.iter().map(|thread| format!("{} ({})", thread.name, thread.id)).collect();
    let message = format!(
        "threads keep capabilities that the process gives up, because they block signals or may not call capset(): {}; \
         such threads must give them up by themselves, before they block signals",
        names.join(", ")
    );
    io::Error::new(io::ErrorKind::TimedOut, message)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Condvar};
    use std::thread::{JoinHandle, spawn, yield_now};

    use bellows_testkit::child;
    use bellows_testkit::wait::Deadline;

    use super::*;
    use crate::capability::{effective, permitted};

    fn is_unprivileged(name: &str) -> bool {
        let needed = Set::NET_RAW | Set::NET_ADMIN | Set::SYS_ADMIN;
        let reason = super::super::missing(needed).map(|missing| missing.to_string());
        bellows_testkit::skips::is_skipped(name, reason)
    }

    #[test]
    fn all_threads_give_up_capabilities() {
        if !is_unprivileged("all_threads_give_up_capabilities") {
            child::run("capability::process::tests::blocked_threads");
        }
    }

    /// Threads that wait in various calls, each of which must go on as if nothing had happened.
    #[test]
    #[ignore = "run in a child process by all_threads_give_up_capabilities"]
    fn blocked_threads() {
        child::abort_later();
        let (sender, receiver) = channel();
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (spinning, sleeping, starting) = (is_over.clone(), is_over.clone(), is_over.clone());
        let signalled = Arc::new((Mutex::new(false), Condvar::new()));
        let waiting = signalled.clone();
        let started = Arc::new(AtomicUsize::new(0));
        let count = started.clone();
        let threads: Vec<JoinHandle<()>> = vec![
            spawn(move || receiver.recv().unwrap()),
            spawn(move || near.read_exact(&mut [0]).unwrap()),
            spawn(move || reader.read_exact(&mut [0]).unwrap()),
            spawn(move || drop(listener.accept().unwrap())),
            spawn(move || {
                while !spinning.load(Relaxed) {
                    std::hint::spin_loop();
                }
            }),
            spawn(move || {
                let start = Instant::now();
                sleep(Duration::from_millis(300));
                assert!(start.elapsed() >= Duration::from_millis(300));
                while !sleeping.load(Relaxed) {
                    sleep(Duration::from_millis(1));
                }
            }),
            spawn(move || {
                let guard = waiting.0.lock().unwrap();
                drop(waiting.1.wait_while(guard, |is_signalled| !*is_signalled).unwrap());
            }),
            // New threads, each with the capabilities of this one at that moment.
            spawn(move || {
                while !starting.load(Relaxed) {
                    count.fetch_add(1, Relaxed);
                    spawn(|| sleep(Duration::from_millis(2))).join().unwrap();
                }
            }),
        ];
        let deadline = Deadline::new("threads start");
        while started.load(Relaxed) < 3 {
            deadline.check();
            yield_now();
        }
        let keep = Set::NET_RAW | Set::NET_ADMIN;
        let changed = retain_in_process(keep).unwrap();
        assert!(changed > threads.len(), "this thread and the others: {changed}");
        assert_eq!(excessive_threads(keep).unwrap().len(), 0);
        assert_eq!((effective(), permitted()), (keep, keep));
        assert_eq!(retain_in_process(keep).unwrap(), 0, "nobody has more");
        // Another call can give up more, and none can give anything back.
        assert!(retain_in_process(Set::NET_RAW).unwrap() > threads.len());
        retain_in_process(keep).unwrap();
        assert_eq!(permitted(), Set::NET_RAW);
        assert_eq!(excessive_threads(Set::NET_RAW).unwrap().len(), 0);

        is_over.store(true, Relaxed);
        *signalled.0.lock().unwrap() = true;
        signalled.1.notify_all();
        sender.send(()).unwrap();
        far.write_all(b"x").unwrap();
        writer.write_all(b"x").unwrap();
        TcpStream::connect(address).unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        child::done();
    }

    #[test]
    fn sets_are_read_from_the_status_of_a_thread() {
        let status = "Name:\ta thread\nCapInh:\t0000000000000001\nCapPrm:\t0000000000003000\nCapEff:\t0000000000001000\n\
                      CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\n";
        assert_eq!(all_sets(status), Set::from_mask(0x3001));
        assert_eq!(field(status, "Name"), Some("a thread"));
        assert_eq!(all_sets(""), Set::from_mask(u64::MAX), "unknown is not harmless");
    }
}
