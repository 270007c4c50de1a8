//! A word in which threads make requests of one thread, which may sleep.
//!
//! The thread tests the word now and then. To sleep, it waits for its bell without a look at the word: whoever makes a
//! request stores it before the bell rings, and the thread silences the bell after it has woken and before it looks at
//! the word again. So a request that comes at any time is seen, or its bell still rings. A bell that
//! rings for a request which was served already spoils one sleep.

use std::marker::PhantomData;

use crate::Bell;
use crate::atomics::{AtomicU32, Ordering};

/// What makes requests correct. Tests break one rule at a time and see that the model checker finds it.
pub trait RequestRules {
    /// The order of the operation that stores a request.
    const PUBLISH: Ordering;
    /// Whether the bell rings after the request is stored.
    const RINGS_AFTER: bool;
}

/// The rules of correct requests.
pub struct Sound;

impl RequestRules for Sound {
    const PUBLISH: Ordering = Ordering::Release;
    const RINGS_AFTER: bool = true;
}

/// The requests to one thread, as bits.
pub struct Requests<B, R = Sound> {
    word: AtomicU32,
    bell: B,
    _rules: PhantomData<R>,
}

impl<B: Bell, R: RequestRules> Requests<B, R> {
    /// No requests to a thread that this bell wakes.
    pub fn new(bell: B) -> Requests<B, R> {
        Requests { word: AtomicU32::new(0), bell, _rules: PhantomData }
    }

    /// The word: 0 while nobody has made a request.
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// What wakes the thread.
    pub fn bell(&self) -> &B {
        &self.bell
    }

    /// Makes a request and wakes the thread if it sleeps. The thread sees what the caller has done before.
    pub fn raise(&self, request: u32) {
        if R::RINGS_AFTER {
            self.raise_quietly(request);
            self.bell.ring();
        } else {
            self.bell.ring();
            self.raise_quietly(request);
        }
    }

    /// Makes a request that a sleeping thread has already served, or need not serve.
    pub fn raise_quietly(&self, request: u32) {
        self.word.fetch_or(request, R::PUBLISH);
    }

    /// Whether there are requests.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// Takes the requests.
    pub fn take(&self) -> u32 {
        self.word.swap(0, Ordering::Acquire)
    }
}
