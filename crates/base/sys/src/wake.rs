//! Sleeping until an event from another thread, a readable descriptor, or a deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

/// An event that one thread raises and another sleeps on (an `eventfd`). It belongs to this process: an event that
/// another process has is raised by a `Notifier` of `bellows-ipc` and slept on as a [`PeerEvent`].
pub struct WakeEvent {
    descriptor: OwnedFd,
}

impl WakeEvent {
    /// # Errors
    /// `EMFILE` or `ENFILE` if the process or the system has no free descriptor.
    pub fn new() -> io::Result<WakeEvent> {
        Ok(WakeEvent { descriptor: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Raises the event: wakes the sleeper, or the next one.
    pub fn raise(&self) {
        // The only failure is EAGAIN at 2^64 - 2 unread events, when the event is raised already.
        let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
    }

    /// Clears the event.
    pub fn clear(&self) {
        // EAGAIN: it was not raised.
        let _ = rustix::io::read(&self.descriptor, &mut [0u8; 8]);
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// An event that the kernel raises after a time (a `timerfd`): one thread sets it, and another sleeps on it.
pub struct Alarm {
    descriptor: OwnedFd,
}

impl Alarm {
    /// # Errors
    /// `EMFILE` or `ENFILE` if the process or the system has no free descriptor.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm { descriptor: timerfd_create(TimerfdClockId::Monotonic, flags)? })
    }

    /// Raises the event after this time, instead of one that was set before.
    pub fn set(&self, after: Duration) {
        // A time of zero would take the alarm back.
        let it_value = timespec(after.max(Duration::from_nanos(1)));
        let time = Itimerspec { it_interval: timespec(Duration::ZERO), it_value };
        // The only failures are an invalid descriptor and an invalid time.
        let _ = timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &time);
    }

    /// Clears the event.
    pub fn clear(&self) {
        // EAGAIN: it was not raised.
        let _ = rustix::io::read(&self.descriptor, &mut [0u8; 8]);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// An event that another process raises for this one to sleep on: an `eventfd` that both have.
///
/// It is never read: `read(2)` blocks if the other process has cleared `O_NONBLOCK` and empties the counter first, and
/// it wakes all waiters that the other process has put on the event's queue. Instead an `epoll` of this process records
/// that the event was raised since it was last cleared, and waits for nobody.
pub struct PeerEvent {
    epoll: OwnedFd,
    /// Kept open, because an `epoll` forgets a closed descriptor.
    _event: OwnedFd,
}

impl PeerEvent {
    /// # Errors
    /// `EMFILE` or `ENFILE` if the process or the system has no free descriptor, `ENOSPC` beyond
    /// `/proc/sys/fs/epoll/max_user_watches`.
    pub fn new(event: OwnedFd) -> io::Result<PeerEvent> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(0), flags)?;
        Ok(PeerEvent { epoll, _event: event })
    }

    /// Clears the descriptor until the event is raised again.
    pub fn clear(&self) {
        let mut event = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        // Not raised, or a signal: the descriptor stays readable, and is cleared the next time.
        let _ = epoll::wait(&self.epoll, &mut event[..], Some(&timespec(Duration::ZERO)));
    }
}

/// Readable if the event was raised.
impl AsFd for PeerEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Sleeps until one of the descriptors is readable (or failed), or `timeout` has passed; `None` means no timeout.
/// Returns for each whether it is readable.
///
/// Returns early, and without an error, when a signal arrives. The kernel adds its timer slack (50 µs by
/// default, `prctl(PR_SET_TIMERSLACK)`) to the timeout.
///
/// # Errors
/// `EINVAL` or `ENOMEM` of `ppoll(2)`; not expected in practice.
pub fn sleep_until_readable(descriptors: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = timeout.map(timespec);
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.iter().map(|polled| !polled.revents().is_empty()).collect()),
        Err(rustix::io::Errno::INTR) => Ok(vec![false; descriptors.len()]),
        Err(error) => Err(error.into()),
    }
}

/// Sleeps until a descriptor is writable (or failed), one of some others readable, or `timeout` has passed. Returns
/// whether the first one is writable.
///
/// # Errors
/// As for [`sleep_until_readable`].
pub fn sleep_until_writable(
    descriptor: BorrowedFd<'_>,
    others: &[BorrowedFd<'_>],
    timeout: Duration,
) -> io::Result<bool> {
    let mut polled = vec![PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)];
    polled.extend(others.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
    match poll(&mut polled, Some(&timespec(timeout))) {
        Ok(_) => Ok(!polled[0].revents().is_empty()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().min(i64::MAX as u64) as i64, tv_nsec: time.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn an_event_raised_on_another_thread_ends_the_sleep() {
        let event = Arc::new(WakeEvent::new().unwrap());
        let raiser = Arc::clone(&event);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            raiser.raise();
        });
        let start = Instant::now();
        let other = WakeEvent::new().unwrap();
        let readable = sleep_until_readable(&[other.as_fd(), event.as_fd()], Some(Duration::from_secs(10))).unwrap();
        assert_eq!(readable, [false, true]);
        assert!(start.elapsed() < Duration::from_secs(5));
        event.clear();
        let start = Instant::now();
        sleep_until_readable(&[event.as_fd()], Some(Duration::from_millis(10))).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(10), "a cleared event must not end the sleep");
        thread.join().unwrap();
    }

    fn is_raised(event: impl AsFd) -> bool {
        sleep_until_readable(&[event.as_fd()], Some(Duration::ZERO)).unwrap()[0]
    }

    #[test]
    fn an_alarm_is_raised_after_its_time_and_can_be_set_anew() {
        let alarm = Alarm::new().unwrap();
        assert!(!is_raised(&alarm));
        alarm.set(Duration::from_secs(3_600));
        assert!(!is_raised(&alarm));
        for time in [Duration::from_millis(5), Duration::ZERO] {
            let start = Instant::now();
            alarm.set(time);
            sleep_until_readable(&[alarm.as_fd()], Some(Duration::from_secs(20))).unwrap();
            assert!(is_raised(&alarm) && start.elapsed() >= time, "{time:?}");
            alarm.clear();
            assert!(!is_raised(&alarm));
        }
    }

    #[test]
    fn an_event_of_another_process_wakes_once_for_each_time_that_it_was_raised() {
        let theirs = WakeEvent::new().unwrap();
        let event = PeerEvent::new(theirs.descriptor.try_clone().unwrap()).unwrap();
        event.clear();
        assert!(!is_raised(&event));
        for _ in 0..3 {
            theirs.raise();
            assert!(is_raised(&event) && is_raised(&event));
            event.clear();
            assert!(!is_raised(&event), "although nobody has read it");
            event.clear();
        }
        assert!(is_raised(&theirs));
        theirs.raise();
        let late = PeerEvent::new(theirs.descriptor.try_clone().unwrap()).unwrap();
        assert!(is_raised(&late), "what was raised before");
    }

    /// Another process shares the open file, and its flags.
    #[test]
    fn a_process_that_clears_the_flag_never_blocks_the_notifier() {
        let theirs = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let event = PeerEvent::new(theirs.try_clone().unwrap()).unwrap();
        // A thread that waits forever ends with the test's process; the test fails before.
        let (done, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            event.clear();
            rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes()).unwrap();
            event.clear();
            event.clear();
            done.send(is_raised(&event)).unwrap();
        });
        assert_eq!(end.recv_timeout(Duration::from_secs(30)), Ok(false));
    }
}
