//! Notifies other processes through their eventfds, without ever waiting for them.
//!
//! `write(2)` to an eventfd blocks while its counter is full, unless the open file has `O_NONBLOCK`. That flag is
//! shared by all who have the file, and the other process can clear it at any time. So a [`Notifier`] does not write.
//! It lets the kernel raise the event, which adds to the counter and stops at its limit: an `io_uring` with a
//! registered eventfd raises that for each completion, and completes a no-op during the call that submits it.
//!
//! If the kernel has no `io_uring`, or the caller may not use it (`kernel.io_uring_disabled`, the seccomp filter of a
//! container), a thread writes. The other process can make it wait for as long as it likes, but that only delays its
//! own other events. The thread also replaces the `io_uring` if raising an event repeatedly takes long: the other
//! process may have put thousands of waiters on the event, each of which the kernel wakes during the call. A machine
//! under load may be slow for a while, too, so the `io_uring` gets another chance: one slow notification ends it, and
//! the next one comes after twice the time.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode};
use rustix::time::{ClockId, clock_gettime};

use bellows_sys::clock;

/// A notification that takes longer than this, in nanoseconds, makes the next ones be measured precisely. Several times
/// what it takes to wake a sleeping thread (`bellows bench notify`).
const SLOW: u64 = 30_000;
/// Number of notifications to measure.
const SUSPICIOUS: u32 = 8;
/// After this many that took more than [`SLOW`] of processor time, the thread notifies.
const STRIKES: u32 = 3;

/// After this time, in nanoseconds, `io_uring` gets another chance, and after twice the time whenever it is slow again, up
/// to the second time.
const FORGIVEN_AFTER: u64 = 10_000_000_000;
const FORGIVEN_AT_LAST: u64 = 600_000_000_000;

/// Opcodes of `io_uring_register(2)`.
const REGISTER_EVENTFD: u8 = 4;
const UNREGISTER_EVENTFD: u8 = 5;
const REGISTER_ENABLE_RINGS: u8 = 12;

/// How events are raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// By the kernel, through `io_uring`.
    IoUring,
    /// By a thread that writes to them.
    Thread,
}

impl Means {
    /// `io_uring` or `thread`.
    pub fn name(self) -> &'static str {
        match self {
            Means::IoUring => "io_uring",
            Means::Thread => "thread",
        }
    }
}

/// All notifiers for one other process, and the thread that they share.
///
/// The thread ends when this, its clones and all notifiers are dropped, unless it waits for the other process.
#[derive(Clone)]
pub struct Notifiers(Arc<NotifierShared>);

/// Notifies another process through one eventfd, or not at all while none is [set](Notifier::set).
#[derive(Clone)]
pub struct Notifier {
    shared: Arc<NotifierShared>,
    slot: Arc<Slot>,
}

/// The slots of all notifiers; their number grows.
type Slots = Mutex<Vec<Arc<Slot>>>;

struct NotifierShared {
    slots: Arc<Slots>,
    thread: Thread,
    ended: Arc<AtomicBool>,
}

#[derive(Default)]
struct Slot {
    /// `None` if the thread notifies from the start.
    uring: Option<Mutex<IoUring>>,
    /// Number of notifications still to be measured, and how many of them were slow.
    suspicious: AtomicU32,
    strikes: AtomicU32,
    /// Whether they are not measured.
    is_patient: bool,
    /// When the thread took over, in ticks, and the time for which it notifies, in nanoseconds.
    demoted_at: AtomicU64,
    pause: AtomicU64,
    event: Mutex<Option<Arc<OwnedFd>>>,
    has_event: AtomicBool,
    /// Whether the thread must notify.
    due: AtomicBool,
}

impl Notifiers {
    /// Creates `direct` notifiers for threads that must not wait, and after them `others`, all of which the thread
    /// serves.
    ///
    /// Call this on a thread that may use `io_uring`: later calls only need to register eventfds.
    ///
    /// # Errors
    /// `EAGAIN` if the system has no thread left.
    pub fn new(direct: usize, others: usize) -> io::Result<Notifiers> {
        Notifiers::with(Slot::new(direct, others))
    }

    /// Adds further notifiers at the end, as [`new`](Notifiers::new) makes them, and on such a thread.
    pub fn grow(&self, direct: usize, others: usize) {
        let new: Vec<Arc<Slot>> = Slot::new(direct, others).collect();
        lock(&self.0.slots).extend(new);
    }

    /// Direct notifiers that stay with `io_uring` however long that takes, for what looks at an event right after it was
    /// raised. Another process must not have the events.
    ///
    /// # Errors
    /// As for [`new`](Notifiers::new).
    pub fn patient(direct: usize) -> io::Result<Notifiers> {
        let rings = (0..direct).map(|_| ring().ok().map(Mutex::new));
        Notifiers::with(rings.map(|uring| Arc::new(Slot { uring, is_patient: true, ..Slot::default() })))
    }

    /// The same as on a kernel without `io_uring`.
    ///
    /// # Errors
    /// As for [`new`](Notifiers::new).
    pub fn by_thread(count: usize) -> io::Result<Notifiers> {
        Notifiers::with(Slot::new(0, count))
    }

    fn with(slots: impl Iterator<Item = Arc<Slot>>) -> io::Result<Notifiers> {
        let slots: Arc<Slots> = Arc::new(Mutex::new(slots.collect()));
        let ended = Arc::new(AtomicBool::new(false));
        let (theirs, end) = (Arc::clone(&slots), Arc::clone(&ended));
        let builder = thread::Builder::new().name("notify".into()).stack_size(64 << 10);
        let thread = builder.spawn(move || notify_for_others(&theirs, &end))?.thread().clone();
        Ok(Notifiers(Arc::new(NotifierShared { slots, thread, ended })))
    }

    /// The notifier at `index`.
    ///
    /// # Panics
    /// If there is no such notifier.
    pub fn get(&self, index: usize) -> Notifier {
        let slots = lock(&self.0.slots);
        assert!(index < slots.len(), "there are only {} notifiers", slots.len());
        Notifier { shared: Arc::clone(&self.0), slot: Arc::clone(&slots[index]) }
    }

    /// How the events of the direct notifiers are raised, as long as the kernel is fast.
    pub fn means(&self) -> Means {
        let direct = lock(&self.0.slots).iter().any(|slot| slot.uring.is_some());
        if direct { Means::IoUring } else { Means::Thread }
    }

    /// Number of notifiers that the thread has taken over because notifying repeatedly took long.
    pub fn demoted(&self) -> usize {
        lock(&self.0.slots).iter().filter(|slot| slot.is_demoted()).count()
    }

    /// For how long the thread has notified for the first of these; `None` if there is none.
    pub fn demoted_for(&self) -> Option<Duration> {
        let slots = lock(&self.0.slots);
        let first = slots.iter().filter(|slot| slot.is_demoted()).map(|slot| slot.since_demoted()).max()?;
        Some(Duration::from_nanos(first))
    }
}

/// Checks whether [`Notifiers`] created on this thread notify through `io_uring`.
///
/// # Errors
/// The error of `io_uring_setup(2)` or `io_uring_register(2)` why they do not. `EPERM` if it is not allowed, `ENOSYS`
/// if the kernel has none.
pub fn check_io_uring() -> io::Result<()> {
    ring().map(drop)
}

/// A ring that only allows no-ops, so that it is of no use to an attacker who controls a confined thread.
fn ring() -> io::Result<IoUring> {
    let uring = IoUring::builder().setup_r_disabled().build(1)?;
    let mut allowed = [
        Restriction::sqe_op(opcode::Nop::CODE),
        Restriction::register_op(REGISTER_EVENTFD),
        Restriction::register_op(UNREGISTER_EVENTFD),
        Restriction::register_op(REGISTER_ENABLE_RINGS),
    ];
    uring.submitter().register_restrictions(&mut allowed)?;
    uring.submitter().register_enable_rings()?;
    Ok(uring)
}

impl Drop for NotifierShared {
    fn drop(&mut self) {
        self.ended.store(true, Release);
        self.thread.unpark();
    }
}

/// The body of the thread.
fn notify_for_others(slots: &Slots, ended: &AtomicBool) {
    let mut known: Vec<Arc<Slot>> = Vec::new();
    while !ended.load(Acquire) {
        // Nobody waits for this thread, which may wait for the other process.
        known.extend_from_slice(&lock(slots)[known.len()..]);
        for slot in &known {
            if slot.due.swap(false, AcqRel) {
                let event = lock(&slot.event).clone();
                if let Some(event) = event {
                    // May wait. EAGAIN: the counter is full, so the event is raised already.
                    let _ = rustix::io::write(&event, &1_u64.to_ne_bytes());
                }
            }
        }
        thread::park();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    /// Slots through whose `io_uring` a thread notifies itself, if it can, and others.
    fn new(direct: usize, others: usize) -> impl Iterator<Item = Arc<Slot>> {
        let rings = (0..direct).map(|_| ring().ok().map(Mutex::new)).chain((0..others).map(|_| None));
        rings.map(|uring| Arc::new(Slot { uring, ..Slot::default() }))
    }

    fn is_demoted(&self) -> bool {
        self.uring.is_some() && self.strikes.load(Relaxed) >= STRIKES
    }

    /// Nanoseconds since the thread took over.
    fn since_demoted(&self) -> u64 {
        clock::ticks_to_ns(clock::ticks().wrapping_sub(self.demoted_at.load(Relaxed)))
    }

    /// Whether the thread has notified for long enough. The next slow notification is one too many again.
    #[cold]
    fn is_forgiven(&self) -> bool {
        let is_forgiven = self.since_demoted() >= self.pause.load(Relaxed);
        if is_forgiven {
            self.suspicious.store(SUSPICIOUS, Relaxed);
            self.strikes.store(STRIKES - 1, Relaxed);
        }
        is_forgiven
    }

    /// Counts a slow notification.
    #[cold]
    fn strike(&self) {
        if self.strikes.fetch_add(1, Relaxed) + 1 == STRIKES {
            self.demoted_at.store(clock::ticks(), Relaxed);
            let longer = (2 * self.pause.load(Relaxed)).clamp(FORGIVEN_AFTER, FORGIVEN_AT_LAST);
            self.pause.store(longer, Relaxed);
        }
    }
}

impl Notifier {
    /// Sets the eventfd to raise, or none.
    ///
    /// # Errors
    /// `EINVAL` if it is not an eventfd, as far as `io_uring` detects that; none is set then.
    pub fn set(&self, event: Option<OwnedFd>) -> io::Result<()> {
        let slot = &*self.slot;
        slot.has_event.store(false, Relaxed);
        let mut present = lock(&slot.event);
        let uring = slot.uring.as_ref().map(lock);
        if let Some(uring) = &uring
            && present.take().is_some()
        {
            uring.submitter().unregister_eventfd()?;
        }
        if let (Some(uring), Some(event)) = (&uring, &event) {
            uring.submitter().register_eventfd(event.as_raw_fd())?;
        }
        slot.has_event.store(event.is_some(), Relaxed);
        *present = event.map(Arc::new);
        Ok(())
    }

    /// Whether there is an eventfd to raise.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.slot.has_event.load(Relaxed)
    }

    /// Raises the event. Does not wait, whatever the other process does. Hot.
    pub fn notify(&self) {
        let slot = &*self.slot;
        let is_direct = |_: &&Mutex<IoUring>| !slot.is_demoted() || slot.is_forgiven();
        let Some(uring) = slot.uring.as_ref().filter(is_direct) else {
            return self.hand_over();
        };
        // An event is being set: that one is raised as if it had been set before.
        let Ok(mut uring) = uring.try_lock() else { return self.hand_over() };
        let closely = slot.suspicious.load(Relaxed) > 0;
        let (start, busy) = (clock::ticks(), if closely { busy() } else { 0 });
        if raise(&mut uring).is_err() {
            drop(uring);
            return self.hand_over();
        }
        if closely {
            slot.suspicious.fetch_sub(1, Relaxed);
            // Only processor time of this thread: being descheduled is not the other process's doing.
            if self::busy() - busy > SLOW {
                slot.strike();
            }
        } else if !slot.is_patient && clock::ticks_to_ns(clock::ticks().wrapping_sub(start)) > SLOW {
            slot.suspicious.store(SUSPICIOUS, Relaxed);
            slot.strikes.store(0, Relaxed);
        }
    }

    #[cold]
    fn hand_over(&self) {
        self.slot.due.store(true, Release);
        self.shared.thread.unpark();
    }
}

/// Lets the kernel complete an operation, which raises the registered event.
fn raise(uring: &mut IoUring) -> io::Result<()> {
    // SAFETY: the operation refers to no memory.
    let added = unsafe { uring.submission().push(&opcode::Nop::new().build()) };
    // If there is no room, an earlier operation is still queued because its submission failed.
    let _ = added;
    let submitted = uring.submit();
    uring.completion().for_each(drop);
    submitted.map(drop)
}

/// Processor time of this thread, in nanoseconds.
fn busy() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc;
    use std::time::Instant;

    use bellows_testkit::skip;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn event() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
    }

    /// Whether an event is raised, or will be within `soon`.
    fn is_raised(event: &OwnedFd, soon: Duration) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::try_from(soon).unwrap())).unwrap() == 1
    }

    fn take(event: &OwnedFd) -> Option<u64> {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).ok().map(|_| u64::from_ne_bytes(bytes))
    }

    /// Both means; `io_uring` only if it is available.
    fn all() -> impl Iterator<Item = (Means, Notifiers)> {
        let kernel = Notifiers::new(2, 0).unwrap();
        let kernel = Some(kernel).filter(|kernel| kernel.means() == Means::IoUring);
        let thread = Notifiers::by_thread(2).unwrap();
        kernel.into_iter().map(|all| (Means::IoUring, all)).chain([(Means::Thread, thread)])
    }

    #[test]
    fn an_event_that_is_set_is_raised_and_no_other() {
        for (means, notifiers) in all() {
            let (first, second, other) = (event(), event(), event());
            let (notifier, beside) = (notifiers.get(0), notifiers.get(1));
            beside.set(Some(other.try_clone().unwrap())).unwrap();
            notifier.notify();
            assert!(!notifier.is_set() && beside.is_set());
            notifier.set(Some(first.try_clone().unwrap())).unwrap();
            notifier.notify();
            assert!(is_raised(&first, LIMIT), "{means:?}");
            take(&first);
            notifier.set(Some(second.try_clone().unwrap())).unwrap();
            notifier.notify();
            assert!(is_raised(&second, LIMIT), "{means:?}");
            notifier.set(None).unwrap();
            take(&second);
            notifier.notify();
            let soon = Duration::from_millis(20);
            assert!(![&first, &second, &other].into_iter().any(|event| is_raised(event, soon)), "{means:?}");
        }
    }

    #[test]
    fn nothing_but_an_eventfd_is_taken_where_the_kernel_looks() {
        let notifiers = Notifiers::new(1, 0).unwrap();
        if notifiers.means() == Means::IoUring {
            let (reader, writer) = io::pipe().unwrap();
            for other in [OwnedFd::from(reader), writer.into(), crate::memfd::create(8).unwrap().into()] {
                assert_eq!(notifiers.get(0).set(Some(other)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            }
            notifiers.get(0).set(Some(event())).unwrap();
        }
    }

    /// Another process shares the open file and its flags, and can keep the counter full.
    #[test]
    fn no_state_of_the_event_lets_the_notifier_wait() {
        for (means, notifiers) in all() {
            let theirs = event();
            fcntl_setfl(&theirs, fcntl_getfl(&theirs).unwrap() - OFlags::NONBLOCK).unwrap();
            rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes()).unwrap();
            let notifier = notifiers.get(0);
            notifier.set(Some(theirs.try_clone().unwrap())).unwrap();
            let (done, end) = mpsc::channel();
            thread::spawn(move || {
                (0..1_000).for_each(|_| notifier.notify());
                done.send(()).unwrap();
            });
            assert_eq!(end.recv_timeout(LIMIT), Ok(()), "{means:?}");
            assert!(is_raised(&theirs, Duration::ZERO));
        }
    }

    /// The race that a check before a write leaves open: the counter is emptied and filled again and again.
    #[test]
    fn a_process_that_empties_and_fills_the_event_never_blocks_the_notifier() {
        for (means, notifiers) in all() {
            let theirs = event();
            let notifier = notifiers.get(0);
            notifier.set(Some(theirs.try_clone().unwrap())).unwrap();
            let (done, end) = mpsc::channel();
            let until = Instant::now() + Duration::from_millis(300);
            thread::spawn(move || {
                while Instant::now() < until {
                    notifier.notify();
                }
                done.send(()).unwrap();
            });
            // Empties the counter without waiting, and leaves it full and in a state where a writer would block.
            let flags = fcntl_getfl(&theirs).unwrap();
            while Instant::now() < until {
                fcntl_setfl(&theirs, flags | OFlags::NONBLOCK).unwrap();
                take(&theirs);
                let _ = rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes());
                fcntl_setfl(&theirs, flags - OFlags::NONBLOCK).unwrap();
            }
            assert_eq!(end.recv_timeout(LIMIT), Ok(()), "{means:?}");
        }
    }

    /// The maximum number of waiters that a process can put on an event: the kernel wakes each during the call.
    #[test]
    fn an_event_that_takes_long_to_raise_goes_to_the_thread() {
        const WAITERS: usize = 20_000;
        let notifiers = Notifiers::new(1, 0).unwrap();
        if notifiers.means() == Means::Thread {
            return;
        }
        let theirs = event();
        // One epoll can watch a file several times through several descriptors.
        let copies: Vec<OwnedFd> = (0..100).map(|_| theirs.try_clone().unwrap()).collect();
        let watchers: Vec<OwnedFd> =
            (0..WAITERS / 100).map(|_| epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()).collect();
        for watcher in &watchers {
            for copy in &copies {
                epoll::add(watcher, copy, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
            }
        }
        let notifier = notifiers.get(0);
        notifier.set(Some(theirs.try_clone().unwrap())).unwrap();
        for _ in 0..200 {
            notifier.notify();
            take(&theirs);
        }
        assert_eq!((notifiers.means(), notifiers.demoted()), (Means::IoUring, 1));
        // The thread may lose its processor during one of the series.
        let times = [(); 5].map(|()| {
            let start = Instant::now();
            (0..100).for_each(|_| notifier.notify());
            start.elapsed()
        });
        assert!(times.iter().any(|time| *time < Duration::from_millis(100)), "{times:?}");
        assert!(is_raised(&theirs, LIMIT));
        assert!(notifiers.demoted_for().unwrap() < LIMIT);
        // After the pause, one slow notification is enough for twice the pause.
        let slot = &notifier.slot;
        assert_eq!(slot.pause.load(Relaxed), FORGIVEN_AFTER);
        slot.pause.store(0, Relaxed);
        assert!(!slot.is_demoted() || slot.is_forgiven());
        slot.pause.store(FORGIVEN_AFTER, Relaxed);
        for _ in 0..SUSPICIOUS {
            notifier.notify();
            take(&theirs);
        }
        assert_eq!((notifiers.demoted(), slot.pause.load(Relaxed)), (1, 2 * FORGIVEN_AFTER));
        // When the waiters are gone, the kernel notifies again.
        drop(watchers);
        slot.pause.store(0, Relaxed);
        notifier.notify();
        assert!(take(&theirs).is_some(), "at once");
        // Other programs may make some of them slow.
        bellows_testkit::eventually("notifications by the kernel", || {
            slot.pause.store(0, Relaxed);
            (0..2 * SUSPICIOUS).for_each(|_| notifier.notify());
            (notifiers.demoted(), notifiers.demoted_for()) == (0, None)
        });
    }

    /// What is patient raises an event during the call, however long that takes.
    #[test]
    fn patient_notifiers_are_never_replaced() {
        let notifiers = Notifiers::patient(1).unwrap();
        if notifiers.means() == Means::Thread {
            return;
        }
        let theirs = event();
        let notifier = notifiers.get(0);
        notifier.set(Some(theirs.try_clone().unwrap())).unwrap();
        let copies: Vec<OwnedFd> = (0..100).map(|_| theirs.try_clone().unwrap()).collect();
        let watchers: Vec<OwnedFd> = (0..100).map(|_| epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()).collect();
        for (watcher, copy) in watchers.iter().flat_map(|watcher| copies.iter().map(move |copy| (watcher, copy))) {
            epoll::add(watcher, copy, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
        }
        for _ in 0..50 {
            notifier.notify();
            assert!(take(&theirs).is_some());
        }
        assert_eq!(notifiers.demoted(), 0);
    }

    #[test]
    fn a_missing_io_uring_has_a_reason() {
        let means = Notifiers::new(1, 0).unwrap().means();
        assert_eq!(check_io_uring().is_ok(), means == Means::IoUring, "{:?}", check_io_uring());
        let confined = || {
            // Such a thread may not create a ring.
            crate::confine::confine_without(&[]).map(|_| check_io_uring().map_err(|error| error.kind()))
        };
        match thread::spawn(confined).join().unwrap() {
            Ok(refused) => assert_eq!(refused, Err(io::ErrorKind::PermissionDenied)),
            Err(why) => skip("a_missing_io_uring_has_a_reason", why),
        }
    }

    #[test]
    fn the_thread_ends_with_its_notifiers() {
        let notifiers = Notifiers::by_thread(1).unwrap();
        let notifier = notifiers.get(0);
        let ended = Arc::clone(&notifier.shared.ended);
        drop(notifiers);
        assert!(!ended.load(Relaxed), "a notifier is left");
        drop(notifier);
        let until = Instant::now() + LIMIT;
        while Arc::strong_count(&ended) > 1 {
            assert!(Instant::now() < until, "the thread has not ended");
            thread::yield_now();
        }
    }
}
