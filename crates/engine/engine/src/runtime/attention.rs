//! The word through which other threads make requests of an engine's thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::AcqRel;
use std::sync::atomic::{AtomicBool, AtomicU32};

use bellows_ring::Bell;
use bellows_ring::requests::Requests;
use bellows_ring::verdicts::{Announced, Published, Verdict};
use bellows_sys::wake::WakeEvent;

/// The requests, as bits.
pub(crate) mod request {
    pub(crate) const STOP: u32 = 1;
    pub(crate) const COMMIT: u32 = 2;
    pub(crate) const GAUGES: u32 = 4;
    pub(crate) const WATCH: u32 = 8;
    pub(crate) const LATE_COUNTS: u32 = 16;
    pub(crate) const WATCHDOG: u32 = 32;
    /// To a worker other than the first: stop, until it is sent back to work.
    pub(crate) const PAUSE: u32 = 64;
    /// To the first worker: another one has nothing left to do, or apps of it have panicked.
    pub(crate) const LOOK: u32 = 128;
    /// Note that a breath has ended: a shared value was replaced.
    pub(crate) const PASS: u32 = 256;
}

/// The event that the thread sleeps on.
struct Wake(WakeEvent);

impl Bell for Wake {
    fn ring(&self) {
        self.0.raise();
    }
}

/// The requests to one thread, tested by each of its breaths, and the event that wakes it.
pub(crate) struct Attention {
    requests: Requests<Wake>,
    /// The thread's verdict about itself.
    published: Published,
    /// Of the first worker: whether all have nothing left to do as far as it knows.
    announced: Announced,
    /// Whether apps have panicked.
    has_failures: AtomicBool,
}

impl Attention {
    pub(crate) fn new() -> io::Result<Attention> {
        Ok(Attention {
            requests: Requests::new(Wake(WakeEvent::new()?)),
            published: Published::default(),
            announced: Announced::default(),
            has_failures: AtomicBool::new(false),
        })
    }

    /// Publishes the thread's verdict, whether packets have moved since the last one, and whether apps have panicked.
    /// Tells the first worker if it must know.
    pub(crate) fn judge(&self, verdict: Verdict, has_moved: bool, has_failures: bool, first: &Attention) {
        let may_end = self.published.publish(verdict, has_moved, &first.announced);
        if has_failures && !self.has_failures.swap(true, AcqRel) || may_end {
            first.raise(request::LOOK);
        }
    }

    /// The thread's last verdict.
    pub(crate) fn published(&self) -> &Published {
        &self.published
    }

    /// Of the first worker: whether all have nothing left to do as far as it knows.
    pub(crate) fn announced(&self) -> &Announced {
        &self.announced
    }

    /// Takes the news that apps have panicked.
    pub(crate) fn take_failures(&self) -> bool {
        self.has_failures.swap(false, AcqRel)
    }

    /// Makes a request and wakes the thread if it sleeps.
    pub(crate) fn raise(&self, request: u32) {
        self.requests.raise(request);
    }

    /// Makes a request that a sleeping thread has already served, or need not serve.
    pub(crate) fn raise_quietly(&self, request: u32) {
        self.requests.raise_quietly(request);
    }

    /// Pending requests, which breaths test.
    pub(crate) fn word(&self) -> &AtomicU32 {
        self.requests.word()
    }

    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.requests.is_pending()
    }

    /// Takes the pending requests.
    pub(crate) fn take(&self) -> u32 {
        self.requests.take()
    }

    /// What becomes readable when the thread must wake.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.requests.bell().0.as_fd()
    }

    /// The thread has woken. Requests are checked next.
    pub(crate) fn wake(&self) {
        self.requests.bell().0.clear();
    }
}
