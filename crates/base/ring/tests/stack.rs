//! All interleavings of threads that share a stack: `cargo test -p bellows-ring --features loom`.
#![cfg(feature = "loom")]

use std::sync::Arc;

use bellows_ring::stack::{Links, NUMBER_BITS, Sound, Stack, StackRules};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

const ELEMENTS: usize = 3;

/// Elements 1, 2 and 3: their links, and contents that belong to the owner of the element.
struct Elements {
    links: [AtomicU64; ELEMENTS],
    contents: [UnsafeCell<u32>; ELEMENTS],
}

impl Links for Elements {
    fn link(&self, element: u64) -> &AtomicU64 {
        &self.links[element as usize - 1]
    }
}

impl Elements {
    /// Writes into an element that the caller owns. The model checker reports a second owner.
    fn write(&self, element: u64) {
        self.contents[element as usize - 1].with_mut(|content| {
            // SAFETY: loom panics before this if another thread may use the cell.
            unsafe { *content += 1 }
        });
    }
}

struct Shared<R> {
    stack: Stack<R>,
    elements: Elements,
}

impl<R: StackRules> Shared<R> {
    /// A stack of these elements, the last on top.
    fn with(elements: &[u64]) -> Arc<Shared<R>> {
        let shared = Shared {
            stack: Stack::new(),
            elements: Elements {
                links: [(); ELEMENTS].map(|()| AtomicU64::new(0)),
                contents: [(); ELEMENTS].map(|()| UnsafeCell::new(0)),
            },
        };
        elements.iter().for_each(|&element| shared.push(element));
        Arc::new(shared)
    }

    fn push(&self, element: u64) {
        self.elements.write(element);
        self.stack.push(element, &self.elements);
    }

    fn pop(&self) -> Option<u64> {
        let element = self.stack.pop(&self.elements)?;
        self.elements.write(element);
        Some(element)
    }
}

/// Two threads trade the elements of a stack; each element has one owner at every time, and none is lost.
fn trade<R: StackRules + 'static>() {
    loom::model(|| {
        let shared = Shared::<R>::with(&[3, 2, 1]);
        let other = Arc::clone(&shared);
        let trading = thread::spawn(move || {
            let (first, second) = (other.pop(), other.pop());
            // The first returns to the top, over another one than before.
            first.into_iter().for_each(|element| other.push(element));
            second
        });
        let mut owned: Vec<u64> = shared.pop().into_iter().collect();
        owned.extend(trading.join().unwrap());
        owned.extend(std::iter::from_fn(|| shared.pop()));
        owned.sort_unstable();
        assert_eq!(owned, [1, 2, 3]);
    });
}

/// One thread pushes what another one pops.
fn pass<R: StackRules + 'static>() {
    loom::model(|| {
        let shared = Shared::<R>::with(&[]);
        let other = Arc::clone(&shared);
        let popping = thread::spawn(move || other.pop().into_iter().chain(other.pop()).count());
        shared.push(1);
        shared.push(2);
        let popped = popping.join().unwrap();
        assert_eq!(popped + std::iter::from_fn(|| shared.pop()).count(), 2);
    });
}

#[test]
fn every_element_has_one_owner() {
    trade::<Sound>();
}

#[test]
fn contents_are_visible_to_the_next_owner() {
    pass::<Sound>();
}

/// As before, without the tag.
struct NoTag;

impl StackRules for NoTag {
    const TAG_STEP: u64 = 0;
    const PUBLISH: Ordering = Ordering::Release;
}

#[test]
#[should_panic]
fn an_element_that_returns_in_between_is_found_without_the_tag() {
    trade::<NoTag>();
}

/// As before, without the order between the contents of an element and its push.
struct NoOrder;

impl StackRules for NoOrder {
    const TAG_STEP: u64 = 1 << NUMBER_BITS;
    const PUBLISH: Ordering = Ordering::Relaxed;
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_push_that_publishes_nothing_is_found() {
    pass::<NoOrder>();
}
