//! The word by which other threads ask an engine's thread for something.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use bellows_sys::wake::Event;

/// What can be asked for, as bits.
pub(crate) mod request {
    pub(crate) const STOP: u32 = 1;
    pub(crate) const COMMIT: u32 = 2;
    pub(crate) const GAUGES: u32 = 4;
    pub(crate) const WATCH: u32 = 8;
    pub(crate) const LATE_COUNTS: u32 = 16;
    pub(crate) const SIGN: u32 = 32;
}

/// The requests to one thread, which each of its breaths tests, and what wakes it.
pub(crate) struct Attention {
    /// The requests that it has not taken yet.
    pub(crate) word: AtomicU32,
    /// What it sleeps on.
    pub(crate) event: Event,
}

impl Attention {
    pub(crate) fn new() -> io::Result<Attention> {
        Ok(Attention { word: AtomicU32::new(0), event: Event::new()? })
    }

    /// Asks for something, and wakes the thread if it sleeps.
    pub(crate) fn ask(&self, request: u32) {
        self.ask_quietly(request);
        self.event.raise();
    }

    /// Asks for something that a thread which sleeps has done, or need not do.
    pub(crate) fn ask_quietly(&self, request: u32) {
        self.word.fetch_or(request, Release);
    }

    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.word.load(Relaxed) != 0
    }

    /// Takes the requests.
    pub(crate) fn take(&self) -> u32 {
        self.word.swap(0, Acquire)
    }
}
