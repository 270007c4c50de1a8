//! Interleavings of a thread that sleeps and those that make requests of it, with up to three switches between threads
//! that could go on: `cargo test -p bellows-ring --features loom`.
#![cfg(feature = "loom")]

mod support;

use std::sync::Arc;

use bellows_ring::requests::{RequestRules, Requests, Sound};
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering;
use loom::thread;
use support::Event;

struct Shared<R> {
    requests: Requests<Event, R>,
    /// What each request is about.
    contents: [UnsafeCell<u32>; 2],
}

/// Two threads make a request each, which a third one serves that sleeps in between: a lost one would be a deadlock,
/// which the model checker reports. With `silences_late`, the thread silences its bell after it has looked at the word.
fn serve<R: RequestRules + 'static>(silences_late: bool) {
    let mut model = loom::model::Builder::new();
    // All interleavings take half a minute.
    model.preemption_bound = Some(3);
    model.check(move || {
        let contents = [(); 2].map(|()| UnsafeCell::new(0));
        let shared = Arc::new(Shared::<R> { requests: Requests::new(Event::default()), contents });
        let asking = [0, 1].map(|index| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.contents[index].with_mut(|content| {
                    // SAFETY: loom panics before this if another thread may use the cell.
                    unsafe { *content = 1 }
                });
                shared.requests.raise(1 << index);
            })
        });
        let mut served = 0;
        let mut look = || {
            let requests = if shared.requests.is_pending() { shared.requests.take() } else { 0 };
            for index in (0..2).filter(|index| requests & 1 << index != 0) {
                shared.contents[index].with(|content| {
                    // SAFETY: as above.
                    assert_eq!(unsafe { *content }, 1);
                });
            }
            served |= requests;
            served == 3
        };
        if !look() {
            loop {
                shared.requests.bell().wait();
                if silences_late && look() {
                    break;
                }
                shared.requests.bell().clear();
                if !silences_late && look() {
                    break;
                }
            }
        }
        asking.into_iter().for_each(|asking| asking.join().unwrap());
    });
}

#[test]
fn a_request_is_served_once_and_wakes_a_thread_that_sleeps() {
    serve::<Sound>(false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_bell_that_is_silenced_after_the_look_is_found() {
    serve::<Sound>(true);
}

/// As before, but the bell rings before the request is stored.
struct EarlyBell;

impl RequestRules for EarlyBell {
    const PUBLISH: Ordering = Ordering::Release;
    const RINGS_AFTER: bool = false;
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_bell_that_rings_too_early_is_found() {
    serve::<EarlyBell>(false);
}

/// As before, without the order between what a request is about and the request.
struct NoOrder;

impl RequestRules for NoOrder {
    const PUBLISH: Ordering = Ordering::Relaxed;
    const RINGS_AFTER: bool = true;
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_request_that_publishes_nothing_is_found() {
    serve::<NoOrder>(false);
}
