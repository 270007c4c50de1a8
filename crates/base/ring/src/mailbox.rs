//! A box in which one thread asks for a numbered element and other threads put one, without a lock.

use std::marker::PhantomData;

use crate::atomics::{AtomicU64, Ordering};

/// Nobody has asked.
const CLOSED: u64 = 0;
/// The owner asks for an element.
const ASKED: u64 = u64::MAX;

/// What makes a mailbox correct. Tests break the rule and see that the model checker finds it.
pub trait MailboxRules {
    /// The order of the exchange that makes an element visible.
    const PUBLISH: Ordering;
}

/// The rules of a correct mailbox.
pub struct Sound;

impl MailboxRules for Sound {
    const PUBLISH: Ordering = Ordering::Release;
}

/// The mailbox of one thread, its owner. An element in it belongs to whoever takes it out.
pub struct Mailbox<R = Sound> {
    word: AtomicU64,
    _rules: PhantomData<R>,
}

impl<R: MailboxRules> Mailbox<R> {
    /// A mailbox whose owner has asked for nothing.
    #[expect(clippy::new_without_default, reason = "it must not be derived for the rules")]
    pub fn new() -> Mailbox<R> {
        Mailbox { word: AtomicU64::new(CLOSED), _rules: PhantomData }
    }

    /// The owner takes what has come, and asks for nothing from now on.
    pub fn close(&self) -> Option<u64> {
        element(self.word.swap(CLOSED, Ordering::Acquire))
    }

    /// The owner, which has closed the mailbox, asks for an element.
    pub fn ask(&self) {
        self.word.store(ASKED, Ordering::Relaxed);
    }

    /// Whether the owner asks for an element and none has come yet.
    pub fn is_asked(&self) -> bool {
        self.word.load(Ordering::Relaxed) == ASKED
    }

    /// Puts an element in, whose number is neither 0 nor the maximum, if the owner asks for one. Returns whether it did;
    /// otherwise the element remains the caller's.
    pub fn fill(&self, element: u64) -> bool {
        debug_assert!(element != CLOSED && element != ASKED);
        // Release: whoever takes the element out sees its contents.
        self.word.compare_exchange(ASKED, element, R::PUBLISH, Ordering::Relaxed).is_ok()
    }

    /// Takes back an element that the owner has not fetched and still asks for.
    pub fn recall(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Relaxed);
        let present = element(word)?;
        // Acquire: another thread may have put it in.
        self.word.compare_exchange(word, ASKED, Ordering::Acquire, Ordering::Relaxed).is_ok().then_some(present)
    }
}

fn element(word: u64) -> Option<u64> {
    (word != CLOSED && word != ASKED).then_some(word)
}
