//! Sleeping until something happens: an event from another thread, a descriptor, or a deadline.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// The offset that means the present position: the only one that an `eventfd` has.
const HERE: u64 = u64::MAX;

/// An event that one thread raises and another sleeps on (an `eventfd`).
///
/// Raising and clearing it do not wait, not even when another process that shares the `eventfd` takes `O_NONBLOCK` away from
/// it: that flag is the open file's, not the descriptor's. (Almost: see [`raise`](Event::raise).)
pub struct Event {
    descriptor: OwnedFd,
    /// Another process holds the other end.
    foreign: bool,
}

impl Event {
    /// # Errors
    /// `EMFILE` or `ENFILE` when the process or the system has no descriptor left.
    pub fn new() -> io::Result<Event> {
        Ok(Event { descriptor: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?, foreign: false })
    }

    /// Raises the event: wakes the sleeper, or the next one.
    ///
    /// There is no write to an `eventfd` that takes no notice of its flags. So an event of another process is asked first
    /// whether its counter has room; a process that fills the counter between question and write, and has taken the flag away,
    /// can still make us wait. It would have to do that within a microsecond that it cannot see, and gains what any process
    /// gains that spoils its own connection.
    pub fn raise(&self) {
        // No room: it is raised already.
        if self.foreign && !ready(self.as_fd(), PollFlags::OUT) {
            return;
        }
        // The only failure is EAGAIN at 2^64 - 2 unread events, when the event is raised already.
        let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
    }

    /// Lowers the event again.
    pub fn clear(&self) {
        let mut counter = [0u8; 8];
        let told = preadv2(&self.descriptor, &mut [IoSliceMut::new(&mut counter)], HERE, ReadWriteFlags::NOWAIT);
        match told {
            // EAGAIN: it was not raised.
            Ok(_) | Err(Errno::AGAIN) => {}
            // EOPNOTSUPP of a kernel before 5.8. Only the other process can lower the counter in between, and has nothing of it.
            Err(_) if ready(self.as_fd(), PollFlags::IN) => {
                let _ = rustix::io::read(&self.descriptor, &mut counter);
            }
            Err(_) => {}
        }
    }
}

/// Whether a descriptor can be read or written at this moment.
fn ready(descriptor: BorrowedFd<'_>, what: PollFlags) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, what)];
    matches!(poll(&mut polled, Some(&timespec(Duration::ZERO))), Ok(1)) && polled[0].revents().contains(what)
}

/// An event that is shared with another process: an `eventfd`. It is told not to let anybody wait who raises or clears it, and
/// not relied on to keep to that.
impl From<OwnedFd> for Event {
    fn from(descriptor: OwnedFd) -> Event {
        // A descriptor for which this fails would fail in raise() and clear() too, which do not mind.
        if let Ok(flags) = fcntl_getfl(&descriptor) {
            let _ = fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK);
        }
        Event { descriptor, foreign: true }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Sleeps until one of the descriptors is readable (or failed), or `timeout` has passed; `None` waits without end. Returns
/// for each whether it is.
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

/// Sleeps until a descriptor is writable (or failed), one of some others readable, or `timeout` has passed. Returns whether
/// the first one is.
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
        let event = Arc::new(Event::new().unwrap());
        let raiser = Arc::clone(&event);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            raiser.raise();
        });
        let start = Instant::now();
        let other = Event::new().unwrap();
        let readable = sleep_until_readable(&[other.as_fd(), event.as_fd()], Some(Duration::from_secs(10))).unwrap();
        assert_eq!(readable, [false, true]);
        assert!(start.elapsed() < Duration::from_secs(5));
        event.clear();
        let start = Instant::now();
        sleep_until_readable(&[event.as_fd()], Some(Duration::from_millis(10))).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(10), "a cleared event must not end the sleep");
        thread.join().unwrap();
    }

    /// Another process shares the open file, and its flags.
    #[test]
    fn an_event_of_a_process_that_takes_the_flag_away_lets_nobody_wait() {
        let theirs = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let event = Event::from(theirs.try_clone().unwrap());
        let flags = fcntl_getfl(&theirs).unwrap();
        assert!(flags.contains(OFlags::NONBLOCK));
        fcntl_setfl(&theirs, flags - OFlags::NONBLOCK).unwrap();
        // A thread that waits for ever ends with the test's process; the test fails before.
        let (done, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            event.clear();
            event.raise();
            event.clear();
            event.clear();
            rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
            event.raise();
            done.send(ready(event.as_fd(), PollFlags::IN)).unwrap();
            event.clear();
            done.send(ready(event.as_fd(), PollFlags::IN)).unwrap();
        });
        let limit = Duration::from_secs(30);
        assert_eq!(end.recv_timeout(limit), Ok(true), "a full event stays raised");
        assert_eq!(end.recv_timeout(limit), Ok(false));
    }
}
