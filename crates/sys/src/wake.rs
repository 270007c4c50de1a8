//! Sleeping until something happens: an event from another thread, a descriptor, or a deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

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

/// An event that another process made.
impl From<OwnedFd> for Event {
    fn from(descriptor: OwnedFd) -> Event {
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
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.iter().map(|polled| !polled.revents().is_empty()).collect()),
        Err(rustix::io::Errno::INTR) => Ok(vec![false; descriptors.len()]),
        Err(error) => Err(error.into()),
    }
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
