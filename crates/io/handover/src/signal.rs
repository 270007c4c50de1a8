//! The signal that wakes a control thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use bellows_sys::wake::WakeEvent;

/// An event for a control thread, and whether the thread must end.
pub struct Signal {
    event: WakeEvent,
    ended: AtomicBool,
}

impl Signal {
    /// # Errors
    /// Those of `eventfd(2)`.
    pub fn new() -> io::Result<Signal> {
        Ok(Signal { event: WakeEvent::new()?, ended: AtomicBool::new(false) })
    }

    /// Wakes the thread, because there is something to check.
    pub fn raise(&self) {
        self.event.raise();
    }

    /// Tells the thread to end. The event stays raised.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.event.raise();
    }

    /// Whether the thread must end.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Clears the event, before the thread checks everything.
    pub fn clear(&self) {
        self.event.clear();
        if self.has_ended() {
            self.event.raise();
        }
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
