//! The word through which other threads make requests of an engine's thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};

use bellows_ring::Bell;
use bellows_ring::requests::Requests;
use bellows_sys::wake::Event;

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

/// What a worker last found out about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Verdict {
    /// It has work, or may have some later.
    Works,
    /// It has nothing left to do, unless another worker sends it packets.
    Rests,
    /// Its apps in which packets end take no more.
    Closed,
}

/// The event that the thread sleeps on.
struct Wake(Event);

impl Bell for Wake {
    fn ring(&self) {
        self.0.raise();
    }
}

/// The requests to one thread, tested by each of its breaths, and the event that wakes it.
pub(crate) struct Attention {
    requests: Requests<Wake>,
    /// The last [`Verdict`], the number of changes of it, and whether apps have panicked.
    verdict: AtomicU32,
    changes: AtomicU32,
    has_failures: AtomicBool,
    /// Of the first worker: whether all rest as far as it knows.
    is_ending: AtomicBool,
}

impl Attention {
    pub(crate) fn new() -> io::Result<Attention> {
        Ok(Attention {
            requests: Requests::new(Wake(Event::new()?)),
            verdict: AtomicU32::new(Verdict::Works as u32),
            changes: AtomicU32::new(0),
            has_failures: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
        })
    }

    /// Publishes the thread's verdict, whether packets have moved since the last one, and whether apps have panicked.
    /// Tells the first worker if it must know.
    pub(crate) fn judge(&self, verdict: Verdict, has_moved: bool, has_failures: bool, first: &Attention) {
        if self.verdict.load(Relaxed) == verdict as u32 && !has_moved && !has_failures {
            // Idle workers look here all the time: nobody's cache line is taken away.
            return;
        }
        let has_changed = self.verdict.swap(verdict as u32, SeqCst) != verdict as u32;
        if has_changed || has_moved {
            self.changes.fetch_add(1, SeqCst);
        }
        let may_end = verdict != Verdict::Works && (has_changed || has_moved && first.is_ending.load(SeqCst));
        if has_failures && !self.has_failures.swap(true, AcqRel) || may_end {
            first.raise(request::LOOK);
        }
    }

    /// To the first worker: whether all workers rest as far as it knows, so that it must learn of each that has moved
    /// packets since. Look at the verdicts after that.
    pub(crate) fn set_ending(&self, is_ending: bool) {
        // The same again is the same for workers, and takes no cache line away from them.
        if self.is_ending.load(Relaxed) != is_ending {
            self.is_ending.store(is_ending, SeqCst);
        }
    }

    /// The thread's last verdict.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.verdict.load(SeqCst) {
            word if word == Verdict::Rests as u32 => Verdict::Rests,
            word if word == Verdict::Closed as u32 => Verdict::Closed,
            _ => Verdict::Works,
        }
    }

    /// How often the verdict has changed, or been the same after packets moved.
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(SeqCst)
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
