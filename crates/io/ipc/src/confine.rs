//! A thread that restricts itself to the system calls that its work needs (seccomp).
//!
//! Code that parses untrusted messages may have a hole. [`control_thread`] limits its thread to the system calls of the
//! protocol: the thread opens no file, runs no program, makes no memory executable and starts no thread. Any other call
//! fails with EPERM and is counted by name. The other threads of the process are not affected.
//!
//! A denied call raises SIGSYS, whose handler counts it. The C library blocks all signals while it starts a thread or a
//! process, and the kernel kills a process for which it cannot raise the signal; so these calls fail with EPERM without
//! a signal, and are not counted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use bellows_sys::capability;
use bellows_sys::signal::HandlerChain;

/// Number of system call numbers that are distinguished. All of Linux's are below.
const NUMBERS: usize = 512;

/// The calls denied to one thread. Other threads may read it at any time.
pub struct Denials {
    by_number: [AtomicU64; NUMBERS],
    /// Calls with greater numbers: those of another ABI.
    other: AtomicU64,
}

impl Denials {
    const fn new() -> Denials {
        Denials { by_number: [const { AtomicU64::new(0) }; NUMBERS], other: AtomicU64::new(0) }
    }

    /// Called in a signal handler.
    fn count(&self, number: i64) {
        let counter = usize::try_from(number).ok().and_then(|number| self.by_number.get(number));
        counter.unwrap_or(&self.other).fetch_add(1, Relaxed);
    }

    /// Number of denied calls.
    pub fn total(&self) -> u64 {
        self.by_number.iter().chain([&self.other]).map(|count| count.load(Relaxed)).sum()
    }

    /// The number of denials of each call, by name (`syscall 123` if the name is not known here).
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let counts =
            self.by_number.iter().enumerate().map(|(number, count)| (name(number as i64), count.load(Relaxed)));
        let other = ("of another ABI".to_owned(), self.other.load(Relaxed));
        counts.chain([other]).filter(|(_, count)| *count > 0).collect()
    }
}

impl std::fmt::Debug for Denials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_map().entries(self.by_name()).finish()
    }
}

macro_rules! named {
    ($($call:ident)*) => { &[$((stringify!($call), libc::$call)),*] };
}

/// Calls that a thread could make by mistake, or that an attacker who controls it would try.
const NAMED: &[(&str, i64)] = named! {
    SYS_openat SYS_openat2 SYS_read SYS_write SYS_close SYS_lseek SYS_pread64 SYS_pwrite64 SYS_ioctl SYS_fcntl
    SYS_dup SYS_dup3 SYS_pipe2 SYS_socket SYS_socketpair SYS_bind SYS_listen SYS_accept SYS_connect SYS_sendto
    SYS_recvfrom SYS_getsockname SYS_setsockopt SYS_getsockopt SYS_shutdown SYS_execve SYS_execveat SYS_wait4
    SYS_waitid SYS_kill SYS_tkill SYS_tgkill SYS_ptrace SYS_mmap SYS_mprotect SYS_pkey_mprotect SYS_mremap
    SYS_remap_file_pages SYS_memfd_create SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs
    SYS_getdents64 SYS_readlinkat SYS_faccessat SYS_faccessat2 SYS_unlinkat SYS_renameat2 SYS_mkdirat
    SYS_mknodat SYS_linkat SYS_symlinkat SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_ftruncate SYS_fsync
    SYS_chdir SYS_chroot SYS_mount SYS_umount2 SYS_unshare SYS_setns SYS_prctl SYS_seccomp SYS_bpf
    SYS_perf_event_open SYS_userfaultfd SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_open
    SYS_pidfd_getfd SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_io_setup SYS_io_submit
    SYS_epoll_create1 SYS_epoll_ctl SYS_timerfd_create SYS_signalfd4 SYS_eventfd2 SYS_inotify_init1
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_setuid SYS_setgid SYS_setgroups SYS_setresuid SYS_setresgid
    SYS_capset SYS_prlimit64 SYS_getrusage SYS_uname SYS_sysinfo SYS_getuid SYS_geteuid SYS_getgid SYS_getegid
    SYS_sched_setaffinity SYS_sched_getaffinity SYS_mbind SYS_set_mempolicy SYS_move_pages SYS_exit_group SYS_getcwd SYS_preadv2 SYS_pwritev2
    SYS_close_range
};

/// The older interfaces that exist only on x86-64.
#[cfg(target_arch = "x86_64")]
const NAMED_HERE: &[(&str, i64)] = named! {
    SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_readlink SYS_unlink SYS_rename SYS_mkdir SYS_rmdir
    SYS_pipe SYS_dup2 SYS_chmod SYS_chown SYS_lchown SYS_link SYS_symlink SYS_mknod SYS_getdents SYS_poll
    SYS_select SYS_arch_prctl SYS_epoll_create SYS_eventfd SYS_signalfd SYS_inotify_init SYS_alarm SYS_time
};
#[cfg(not(target_arch = "x86_64"))]
const NAMED_HERE: &[(&str, i64)] = &[];

fn name(number: i64) -> String {
    let known = NAMED.iter().chain(NAMED_HERE).find(|(_, known)| *known == number);
    known.map_or_else(|| format!("syscall {number}"), |(name, _)| name.trim_start_matches("SYS_").to_owned())
}

/// The condition under which a call is allowed.
#[derive(Clone, Copy)]
enum Allowed {
    Always,
    /// If this argument is one of these values.
    OneOf(u8, &'static [u64]),
    /// If this argument has none of these bits.
    Without(u8, u64),
}

/// For mmap and mprotect: readable and writable memory is never executable.
const NO_CODE: Allowed = Allowed::Without(2, libc::PROT_EXEC as u64);

/// The system calls of a control thread, by purpose.
const CONTROL_THREAD: &[(i64, Allowed)] = &[
    // The socket: connections, messages, and the identity of the peer.
    (libc::SYS_socket, Allowed::OneOf(0, &[libc::AF_UNIX as u64])),
    (libc::SYS_connect, Allowed::Always),
    (libc::SYS_accept4, Allowed::Always),
    (libc::SYS_getsockopt, Allowed::OneOf(2, &[libc::SO_PEERCRED as u64])),
    (libc::SYS_recvmsg, Allowed::Always),
    (libc::SYS_sendmsg, Allowed::Always),
    (libc::SYS_shutdown, Allowed::Always),
    // Received descriptors: their kind, and what they may be used for.
    (
        libc::SYS_fcntl,
        Allowed::OneOf(
            1,
            &[
                libc::F_GET_SEALS as u64,
                libc::F_ADD_SEALS as u64,
                libc::F_GETFD as u64,
                libc::F_GETFL as u64,
                libc::F_SETFL as u64,
                libc::F_DUPFD_CLOEXEC as u64,
            ],
        ),
    ),
    (libc::SYS_readlinkat, Allowed::Always),
    (libc::SYS_fstat, Allowed::Always),
    (libc::SYS_fstatfs, Allowed::Always),
    (libc::SYS_close, Allowed::Always),
    // Memory: of the peer, of shared files, and of the allocator.
    (libc::SYS_memfd_create, Allowed::Always),
    (libc::SYS_ftruncate, Allowed::Always),
    (libc::SYS_mmap, NO_CODE),
    (libc::SYS_mprotect, NO_CODE),
    (libc::SYS_munmap, Allowed::Always),
    (libc::SYS_mremap, Allowed::Always),
    (libc::SYS_madvise, Allowed::Always),
    (libc::SYS_mincore, Allowed::Always),
    (libc::SYS_brk, Allowed::Always),
    (libc::SYS_prctl, Allowed::OneOf(0, &[PR_SET_VMA])),
    (libc::SYS_getrandom, Allowed::Always),
    (libc::SYS_sched_getaffinity, Allowed::Always),
    // The memory node of its free buffers.
    (libc::SYS_getcpu, Allowed::Always),
    // Events: create, raise, clear and poll. The rings that raise others' events can do nothing else, and are not
    // created here.
    (libc::SYS_eventfd2, Allowed::Always),
    (libc::SYS_read, Allowed::Always),
    (libc::SYS_io_uring_enter, Allowed::Always),
    (libc::SYS_epoll_create1, Allowed::Always),
    (libc::SYS_epoll_ctl, Allowed::Always),
    (libc::SYS_epoll_pwait, Allowed::Always),
    (libc::SYS_epoll_pwait2, Allowed::Always),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, Allowed::Always),
    (libc::SYS_io_uring_register, Allowed::OneOf(1, &[IORING_REGISTER_EVENTFD, IORING_UNREGISTER_EVENTFD])),
    // The log, unless a background thread writes it.
    (libc::SYS_write, Allowed::Always),
    (libc::SYS_writev, Allowed::Always),
    // Waiting, and the time.
    (libc::SYS_ppoll, Allowed::Always),
    (libc::SYS_futex, Allowed::Always),
    (libc::SYS_clock_gettime, Allowed::Always),
    (libc::SYS_clock_nanosleep, Allowed::Always),
    (libc::SYS_nanosleep, Allowed::Always),
    (libc::SYS_sched_yield, Allowed::Always),
    (libc::SYS_restart_syscall, Allowed::Always),
    // Signals whose handlers return, the name of a thread that panics, and its end.
    (libc::SYS_rt_sigreturn, Allowed::Always),
    (libc::SYS_rt_sigprocmask, Allowed::Always),
    (libc::SYS_sigaltstack, Allowed::Always),
    (libc::SYS_gettid, Allowed::Always),
    (libc::SYS_getpid, Allowed::Always),
    (libc::SYS_exit, Allowed::Always),
];

/// Calls that fail without being counted.
#[cfg(target_arch = "x86_64")]
const UNCOUNTED: &[i64] = &[libc::SYS_clone, libc::SYS_clone3, libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const UNCOUNTED: &[i64] = &[libc::SYS_clone, libc::SYS_clone3];

/// Names for memory, which newer C libraries set.
const PR_SET_VMA: u64 = 0x5356_4d41;
const IORING_REGISTER_EVENTFD: u64 = 4;
const IORING_UNREGISTER_EVENTFD: u64 = 5;

/// Confines this thread permanently to what the control thread of a device needs: Unix sockets, shared memory, events,
/// the log. Returns the count of denied calls.
///
/// From now on other threads handle signals sent to the process, because this thread may be denied what their handlers
/// do.
///
/// # Errors
/// A text that says why the thread is not confined: the kernel has no seccomp, or a policy forbids it. The thread then
/// continues as before.
pub fn control_thread() -> Result<Arc<Denials>, String> {
    // Nobody can make the thread do that later.
    capability::retain(capability::Set::EMPTY)
        .map_err(|error| format!("its capabilities cannot be dropped: {error}"))?;
    confine(CONTROL_THREAD)
}

/// As [`control_thread`], without some calls.
#[cfg(test)]
pub(crate) fn confine_without(calls: &[i64]) -> Result<Arc<Denials>, String> {
    let left: Vec<_> = CONTROL_THREAD.iter().copied().filter(|(call, _)| !calls.contains(call)).collect();
    confine(&left)
}

fn confine(allowed: &[(i64, Allowed)]) -> Result<Arc<Denials>, String> {
    let programs = compile(allowed).map_err(|error| format!("the system call filter cannot be created: {error}"))?;
    HANDLER.install().map_err(|error| format!("the handler of SIGSYS cannot be installed: {error}"))?;
    let denials = Arc::new(Denials::new());
    let before = set_signals(Signals::OnlyOwn);
    DENIALS.set(Arc::as_ptr(&denials));
    match programs.iter().try_for_each(|program| seccompiler::apply_filter(program)) {
        Ok(()) => {
            KEPT.with_borrow_mut(|kept| kept.0 = Some(Arc::clone(&denials)));
            Ok(denials)
        }
        Err(error) => {
            DENIALS.set(null());
            set_signals(Signals::As(before));
            let why = match &error {
                seccompiler::Error::Seccomp(system)
                    if matches!(system.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) =>
                {
                    "the kernel has no seccomp filters".to_owned()
                }
                error => error.to_string(),
            };
            Err(why)
        }
    }
}

/// Two filters, of which the stricter result applies: one for calls that fail without a signal, one for all others.
fn compile(allowed: &[(i64, Allowed)]) -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let condition = |place, operation, value| {
        SeccompRule::new(vec![SeccompCondition::new(place, SeccompCmpArgLen::Dword, operation, value)?])
    };
    let uncounted: BTreeMap<_, _> = UNCOUNTED.iter().map(|call| (*call, Vec::new())).collect();
    let mut rules = uncounted.clone();
    for (call, allowed) in allowed {
        let conditions = match *allowed {
            Allowed::Always => Vec::new(),
            Allowed::OneOf(place, values) => {
                values.iter().map(|value| condition(place, SeccompCmpOp::Eq, *value)).collect::<Result<Vec<_>, _>>()?
            }
            Allowed::Without(place, bits) => vec![condition(place, SeccompCmpOp::MaskedEq(bits), 0)?],
        };
        rules.insert(*call, conditions);
    }
    let architecture = std::env::consts::ARCH.try_into()?;
    let quiet = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    Ok([
        SeccompFilter::new(uncounted, SeccompAction::Allow, quiet, architecture)?.try_into()?,
        SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, architecture)?.try_into()?,
    ])
}

/// The signals that reach this thread.
enum Signals {
    /// Only those that the thread itself causes.
    OnlyOwn,
    As(libc::sigset_t),
}

/// Returns the previous mask.
fn set_signals(signals: Signals) -> libc::sigset_t {
    const OWN: [libc::c_int; 7] =
        [libc::SIGSYS, libc::SIGBUS, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT];
    let mut before = MaybeUninit::zeroed();
    let mut blocked = MaybeUninit::zeroed();
    // SAFETY: the sets are filled before they are read: by sigfillset() or by the caller, and by pthread_sigmask(),
    // which cannot fail with SIG_SETMASK; it zeroes nothing that the other calls need.
    unsafe {
        match signals {
            Signals::OnlyOwn => {
                libc::sigfillset(blocked.as_mut_ptr());
                for signal in OWN {
                    libc::sigdelset(blocked.as_mut_ptr(), signal);
                }
            }
            Signals::As(set) => {
                blocked.write(set);
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

thread_local! {
    /// The handler's counters: null in a thread that is not confined.
    static DENIALS: Cell<*const Denials> = const { Cell::new(null()) };
    /// Keeps them alive.
    static KEPT: RefCell<KeptDenials> = const { RefCell::new(KeptDenials(None)) };
}

/// Calls denied to threads that are about to end.
static LAST: Denials = Denials::new();

struct KeptDenials(Option<Arc<Denials>>);

impl Drop for KeptDenials {
    fn drop(&mut self) {
        if self.0.is_some() {
            let _ = DENIALS.try_with(|denials| denials.set(&raw const LAST));
        }
    }
}

// SAFETY: the handler changes registers of its own thread, adds to a number, and passes the signal on.
static HANDLER: HandlerChain = unsafe { HandlerChain::new(libc::SIGSYS, on_sigsys) };

/// The signal's code: the kernel sends it because of a filter.
const SYS_SECCOMP: libc::c_int = 1;

extern "C" fn on_sigsys(_signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let denials = DENIALS.get();
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid siginfo.
    let by_filter = unsafe { (*info).si_code } == SYS_SECCOMP;
    if by_filter && !denials.is_null() {
        // SAFETY: the kernel gives a handler with SA_SIGINFO the thread's registers, which no one else touches until
        // it returns.
        let number = unsafe { answer(&mut *context.cast(), -i64::from(libc::EPERM)) };
        // SAFETY: the pointer is that of a value which KEPT keeps, or of a static one.
        unsafe { (*denials).count(number) };
        return;
    }
    // SAFETY: the kernel's arguments. The call is not made again when the handler returns.
    unsafe { HANDLER.pass_on(false, info, context) };
}

/// Sets the result of the denied call. Returns its number.
#[cfg(target_arch = "x86_64")]
fn answer(context: &mut libc::ucontext_t, value: i64) -> i64 {
    let register = &mut context.uc_mcontext.gregs[libc::REG_RAX as usize];
    std::mem::replace(register, value)
}

/// Sets the result of the denied call. Returns its number.
#[cfg(target_arch = "aarch64")]
fn answer(context: &mut libc::ucontext_t, value: i64) -> i64 {
    let registers = &mut context.uc_mcontext.regs;
    registers[0] = value as u64;
    registers[8] as i64
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::ptr::null_mut;
    use std::sync::mpsc::channel;

    use bellows_sys::capability::{Set, missing, retain_in_process};
    use bellows_testkit::{child, skip};

    use super::*;

    #[test]
    fn confined_threads_have_to_give_up_capabilities_by_themselves() {
        let name = "confined_threads_have_to_give_up_capabilities_by_themselves";
        let reason = missing(Set::NET_RAW | Set::NET_ADMIN | Set::SYS_ADMIN).map(|missing| missing.to_string());
        if !bellows_testkit::skips::is_skipped(name, reason) {
            child::run("confine::tests::confined_threads");
        }
    }

    #[test]
    #[ignore = "run in a child process by confined_threads_have_to_give_up_capabilities_by_themselves"]
    fn confined_threads() {
        child::abort_later();
        // Starts a confined thread that ends when the sender is dropped.
        let start = |name: &str, confine: fn() -> Result<Arc<Denials>, String>| {
            let (stop, stopped) = channel::<()>();
            let (ready, is_ready) = channel();
            let work = move || {
                ready.send(confine().unwrap()).unwrap();
                let _ = stopped.recv();
            };
            let thread = std::thread::Builder::new().name(name.into()).spawn(work).unwrap();
            (stop, is_ready.recv().unwrap(), thread)
        };
        let (stop, denials, thread) = start("reduced", control_thread);
        assert!(retain_in_process(Set::NET_ADMIN).unwrap() >= 1);
        assert_eq!(denials.total(), 0, "it was not interrupted");
        drop(stop);
        thread.join().unwrap();
        let (stop, _, thread) = start("stubborn", || confine_without(&[]));
        let error = retain_in_process(Set::EMPTY).unwrap_err();
        assert!(error.to_string().contains("stubborn ("), "{error}");
        assert!(!error.to_string().contains("reduced"), "{error}");
        drop(stop);
        thread.join().unwrap();
        child::done();
    }

    /// Runs a function in a new confined thread. `None`, and the test is skipped, if there is no seccomp.
    fn confined<T: Send>(test: &str, work: impl FnOnce(&Denials) -> T + Send) -> Option<T> {
        let run = || match control_thread() {
            Ok(denials) => Some(work(&denials)),
            Err(why) => {
                skip(test, why);
                None
            }
        };
        std::thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    #[test]
    fn a_call_that_is_not_allowed_fails_and_is_counted_by_its_name() {
        let counted = confined("a_call_that_is_not_allowed_fails_and_is_counted_by_its_name", |denials| {
            for _ in 0..3 {
                assert_eq!(File::open("/dev/null").unwrap_err().raw_os_error(), Some(libc::EPERM));
            }
            let domain = rustix::net::AddressFamily::INET;
            let internet = rustix::net::socket(domain, rustix::net::SocketType::STREAM, None);
            assert_eq!(internet.unwrap_err(), rustix::io::Errno::PERM);
            let thread = std::thread::Builder::new().spawn(|| ()).map(drop);
            assert_eq!(thread.unwrap_err().raw_os_error(), Some(libc::EPERM));
            assert!(Command::new("true").status().is_err());
            // SAFETY: a call of a number that no call has.
            assert_eq!(unsafe { libc::syscall(511) }, -1);
            denials.by_name()
        });
        let Some(counted) = counted else { return };
        let expected = [("openat", 3), ("socket", 1), ("syscall 511", 1)];
        assert_eq!(counted, expected.map(|(name, count)| (name.to_owned(), count)).into());
    }

    #[test]
    fn memory_never_becomes_executable() {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
        let count = confined("memory_never_becomes_executable", |denials| {
            let (plain, code) = (ProtFlags::READ | ProtFlags::WRITE, ProtFlags::READ | ProtFlags::EXEC);
            // SAFETY: new mappings of which nobody else knows.
            unsafe {
                assert!(mmap_anonymous(null_mut(), 4096, code, MapFlags::PRIVATE).is_err());
                let memory = mmap_anonymous(null_mut(), 4096, plain, MapFlags::PRIVATE).unwrap();
                let all = MprotectFlags::READ | MprotectFlags::WRITE | MprotectFlags::EXEC;
                assert!(mprotect(memory, 4096, all).is_err());
                mprotect(memory, 4096, MprotectFlags::READ).unwrap();
                munmap(memory, 4096).unwrap();
            }
            denials.total()
        });
        assert!(count.is_none_or(|count| count == 2), "{count:?}");
    }

    /// The usual work of a control thread: none of it is denied.
    #[test]
    fn the_protocols_calls_are_allowed() {
        use std::os::fd::AsFd;
        use std::time::Duration;
        crate::mapping::prepare().unwrap();
        crate::socket::prepare().unwrap();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let denied = confined("the_protocols_calls_are_allowed", |denials| {
            let file = crate::memfd::sealed(8192).unwrap();
            let mapping = crate::mapping::SharedMapping::new(&file, 0, 8192).unwrap();
            let event = bellows_sys::wake::WakeEvent::new().unwrap();
            event.raise();
            event.clear();
            let copy = event.as_fd().try_clone_to_owned().unwrap();
            assert!(crate::socket::is_event(copy.as_fd()).unwrap());
            crate::socket::send(&near, b"x", &[file.as_fd()]).unwrap();
            assert_eq!(crate::socket::receive(&far, &mut [0; 8]).unwrap().files.len(), 1);
            assert!(crate::socket::connect(std::path::Path::new("/nobody/there")).is_err());
            assert_eq!(crate::socket::peer(&near).unwrap().pid, std::process::id());
            bellows_sys::wake::sleep_until_readable(&[event.as_fd()], Some(Duration::from_millis(1))).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            drop((mapping, vec![1_u8; 64 << 20]));
            assert!(std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new("told in the log"))).is_err());
            denials.by_name()
        });
        assert_eq!(denied.unwrap_or_default(), BTreeMap::new());
    }

    #[test]
    fn other_threads_are_not_confined() {
        let (done, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let confined = control_thread().map(drop);
            done.send(()).unwrap();
            std::thread::park_timeout(std::time::Duration::from_secs(1));
            confined
        });
        end.recv().unwrap();
        assert!(File::open("/dev/null").is_ok());
        std::thread::spawn(|| File::open("/dev/null").unwrap()).join().unwrap();
    }

    #[test]
    fn other_signals_of_this_kind_still_kill() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "confine::tests::dies_of_an_unexpected_signal", "--ignored"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        assert_eq!(command.status().unwrap().signal(), Some(libc::SIGSYS));
    }

    #[test]
    #[ignore = "dies on purpose; run by other_signals_of_this_kind_still_kill"]
    fn dies_of_an_unexpected_signal() {
        HANDLER.install().unwrap();
        // SAFETY: raise() sends a signal to this thread.
        unsafe { libc::raise(libc::SIGSYS) };
    }
}
