//! Sleeping until something happens: an event from another thread, a descriptor, or a deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// An event that one thread raises and another sleeps on (an `eventfd`).
pub struct Event {
    descriptor: OwnedFd,
}

impl Event {
    /// # Errors
    /// `EMFILE` or `ENFILE` when the process or the system has no descriptor left.
    pub fn new() -> io::Result<Event> {
        Ok(Event { descriptor: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Raises the event: wakes the sleeper, or the next one.
    pub fn raise(&self) {
        // The only failure is EAGAIN at 2^64 - 2 unread events, when the event is raised already.
        let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
    }

    /// Lowers the event again.
    pub fn clear(&self) {
        // EAGAIN: it was not raised.
        let _ = rustix::io::read(&self.descriptor, &mut [0u8; 8]);
    }
}

/// An event that another process made: an `eventfd`. It is told not to let anybody wait who raises or clears it.
impl From<OwnedFd> for Event {
    fn from(descriptor: OwnedFd) -> Event {
        // A descriptor for which this fails would fail in raise() and clear() too, which do not mind.
        if let Ok(flags) = fcntl_getfl(&descriptor) {
            let _ = fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK);
        }
        Event { descriptor }
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
}
