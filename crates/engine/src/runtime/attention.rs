//! The word through which other threads make requests of an engine's thread.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use bellows_sys::wake::Event;

/// The requests, as bits.
pub(crate) mod request {
    pub(crate) const STOP: u32 = 1;
    pub(crate) const COMMIT: u32 = 2;
    pub(crate) const GAUGES: u32 = 4;
    pub(crate) const WATCH: u32 = 8;
    pub(crate) const LATE_COUNTS: u32 = 16;
    pub(crate) const WATCHDOG: u32 = 32;
}

/// The requests to one thread, tested by each of its breaths, and the event that wakes it.
pub(crate) struct Attention {
    /// Pending requests.
    pub(crate) word: AtomicU32,
    /// The event that the thread sleeps on.
    pub(crate) event: Event,
}

impl Attention {
    pub(crate) fn new() -> io::Result<Attention> {
        Ok(Attention { word: AtomicU32::new(0), event: Event::new()? })
    }

    /// Makes a request and wakes the thread if it sleeps.
    pub(crate) fn raise(&self, request: u32) {
        self.raise_quietly(request);
        self.event.raise();
    }

    /// Makes a request that a sleeping thread has already served, or need not serve.
    pub(crate) fn raise_quietly(&self, request: u32) {
        self.word.fetch_or(request, Release);
    }

    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.word.load(Relaxed) != 0
    }

    /// Takes the pending requests.
    pub(crate) fn take(&self) -> u32 {
        self.word.swap(0, Acquire)
    }
}
