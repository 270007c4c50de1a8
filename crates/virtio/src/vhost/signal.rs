//! What wakes a control thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use bellows_sys::wake::Event;

/// An event for a control thread, and whether it is to end.
pub(super) struct Signal {
    event: Event,
    ended: AtomicBool,
}

impl Signal {
    pub(super) fn new() -> io::Result<Signal> {
        Ok(Signal { event: Event::new()?, ended: AtomicBool::new(false) })
    }

    /// There is something to look at.
    pub(super) fn raise(&self) {
        self.event.raise();
    }

    /// The thread is to end. The event stays raised.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.event.raise();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Before the thread looks at everything.
    pub(super) fn clear(&self) {
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
