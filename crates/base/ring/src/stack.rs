//! A stack of numbered elements that threads push to and pop from without a lock (Treiber's).
//!
//! The head is one word: the number of the first element, and beside it a tag that each pop increments. A thread that
//! has read the head and then the first element's link replaces the head only if both number and tag are unchanged, so
//! it is not misled by an element that was popped and pushed again in between (ABA). It may read the link of an element
//! that another thread has popped meanwhile; so links must stay readable forever.

use std::marker::PhantomData;

use crate::atomics::{AtomicU64, Ordering};

/// Bits of an element's number: the pages of a 48-bit address space.
pub const NUMBER_BITS: u32 = 36;
const NUMBERS: u64 = (1 << NUMBER_BITS) - 1;

/// Where the elements keep the number of the next one.
pub trait Links {
    /// The link of an element. Valid forever.
    fn link(&self, element: u64) -> &AtomicU64;
}

/// What makes a stack correct. Tests break one rule at a time and see that the model checker finds it.
pub trait StackRules {
    /// Added to the tag by each pop.
    const TAG_STEP: u64;
    /// The order of the exchange that makes an element visible.
    const PUBLISH: Ordering;
}

/// The rules of a correct stack.
pub struct Sound;

impl StackRules for Sound {
    const TAG_STEP: u64 = 1 << NUMBER_BITS;
    const PUBLISH: Ordering = Ordering::Release;
}

/// A stack on cache lines of its own.
#[repr(align(128))]
pub struct Stack<R = Sound> {
    head: AtomicU64,
    _rules: PhantomData<R>,
}

impl<R: StackRules> Stack<R> {
    /// An empty stack.
    #[expect(clippy::new_without_default, reason = "it must not be derived for the rules")]
    pub fn new() -> Stack<R> {
        Stack { head: AtomicU64::new(0), _rules: PhantomData }
    }

    /// Adds an element, which belongs to the stack from now on. Its number is not 0, and below 2 to the power of
    /// [`NUMBER_BITS`].
    pub fn push(&self, element: u64, links: &impl Links) {
        debug_assert!((1..=NUMBERS).contains(&element));
        let link = links.link(element);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link.store(head & NUMBERS, Ordering::Relaxed);
            let next = head & !NUMBERS | element;
            // Release: whoever pops the element sees its link and its contents. Later exchanges by others keep that,
            // because they are read-modify-write operations on the same word.
            match self.head.compare_exchange_weak(head, next, R::PUBLISH, Ordering::Relaxed) {
                Ok(_) => return,
                Err(changed) => head = changed,
            }
        }
    }

    /// Removes the element that was pushed last, which belongs to the caller from now on.
    pub fn pop(&self, links: &impl Links) -> Option<u64> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let element = head & NUMBERS;
            if element == 0 {
                return None;
            }
            // If another thread has the element by now, this may be any value, and the exchange fails.
            let next = links.link(element).load(Ordering::Relaxed) & NUMBERS;
            let next = (head & !NUMBERS).wrapping_add(R::TAG_STEP) | next;
            match self.head.compare_exchange_weak(head, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(element),
                Err(changed) => head = changed,
            }
        }
    }
}
