//! All interleavings of the threads at a mailbox: `cargo test -p bellows-ring --features loom`.
#![cfg(feature = "loom")]

use std::sync::Arc;

use bellows_ring::mailbox::{Mailbox, MailboxRules, Sound};
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering;
use loom::thread;

const ELEMENTS: usize = 2;

struct Shared<R> {
    mailbox: Mailbox<R>,
    /// The contents of elements 1 and 2, each of its owner alone.
    contents: [UnsafeCell<u32>; ELEMENTS],
}

impl<R: MailboxRules> Shared<R> {
    /// Writes into an element that the caller owns. The model checker reports a second owner.
    fn write(&self, element: u64) {
        self.contents[element as usize - 1].with_mut(|content| {
            // SAFETY: loom panics before this if another thread may use the cell.
            unsafe { *content += 1 }
        });
    }

    fn fill(&self, element: u64) -> Option<u64> {
        self.write(element);
        (!self.mailbox.fill(element)).then_some(element)
    }
}

/// The owner asks, one thread fills, and another one fills and recalls. Each element has one owner at every time, and
/// none is lost.
fn trade<R: MailboxRules + 'static>() {
    loom::model(|| {
        let contents = [(); ELEMENTS].map(|()| UnsafeCell::new(0));
        let shared = Arc::new(Shared::<R> { mailbox: Mailbox::new(), contents });
        shared.mailbox.ask();
        let (one, two) = (Arc::clone(&shared), Arc::clone(&shared));
        let filling = thread::spawn(move || one.fill(1));
        let sharing = thread::spawn(move || {
            let recalled = two.mailbox.recall();
            recalled.into_iter().for_each(|element| two.write(element));
            recalled.into_iter().chain(two.fill(2)).collect::<Vec<u64>>()
        });
        let first = shared.mailbox.close();
        first.into_iter().for_each(|element| shared.write(element));
        shared.mailbox.ask();
        let mut owned: Vec<u64> = first.into_iter().chain(filling.join().unwrap()).collect();
        owned.extend(sharing.join().unwrap());
        owned.extend(shared.mailbox.close());
        owned.sort_unstable();
        assert_eq!(owned, [1, 2]);
        assert!(!shared.mailbox.is_asked() && shared.fill(1) == Some(1), "a closed mailbox takes nothing");
    });
}

#[test]
fn every_element_has_one_owner() {
    trade::<Sound>();
}

/// As before, without the order between the contents of an element and its arrival.
struct NoOrder;

impl MailboxRules for NoOrder {
    const PUBLISH: Ordering = Ordering::Relaxed;
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_element_that_arrives_before_its_contents_is_found() {
    trade::<NoOrder>();
}
