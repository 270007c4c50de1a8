//! The ring compared with a queue, one call after the other, and between two threads.
#![cfg(not(feature = "loom"))]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{mem, thread};

use bellows_ring::{Bell, Receiver, Sender, ring};
use proptest::prelude::*;

struct Silent;

impl Bell for Silent {
    fn ring(&self) {}
}

/// Exchanges a value for what the receiver left, if there is room.
fn send<T, B: Bell>(sender: &mut Sender<T, B>, value: &mut T) -> bool {
    sender.send(|place| mem::swap(place, value)).is_some()
}

/// Exchanges a value for the next one, if there is one.
fn receive<T, B: Bell>(receiver: &mut Receiver<T, B>, value: &mut T) -> bool {
    receiver.receive(|place| mem::swap(place, value)).is_some()
}

#[derive(Default)]
struct Counted(AtomicU32);

impl Bell for Counted {
    fn ring(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

proptest! {
    /// Whatever the two ends do, values come in order, and what the receiver leaves returns in order.
    #[test]
    fn the_ring_is_a_queue_whose_places_return(calls in prop::collection::vec(any::<bool>(), 0..200), bits in 0u32..4) {
        let places = 1usize << bits;
        let (mut sender, mut receiver) = ring::<u32, _>(places, [Silent, Silent]);
        let (mut queue, mut left) = (VecDeque::new(), VecDeque::from(vec![0; places]));
        for (number, sends) in (1..).zip(calls) {
            let mut value = number;
            if sends {
                let has_room = queue.len() < places;
                prop_assert_eq!(sender.has_room(), has_room);
                prop_assert_eq!(send(&mut sender, &mut value), has_room);
                prop_assert_eq!(value, if has_room { left.pop_front().unwrap() } else { number });
                queue.extend(has_room.then_some(number));
            } else {
                let next = queue.pop_front();
                prop_assert_eq!(receiver.peek(|value| *value), next);
                prop_assert_eq!(receive(&mut receiver, &mut value), next.is_some());
                prop_assert_eq!(value, next.unwrap_or(number));
                left.extend(next.map(|_| number));
            }
        }
    }
}

#[test]
fn a_bell_is_rung_only_while_its_side_is_armed() {
    let (mut sender, mut receiver) = ring::<u32, Counted>(2, Default::default());
    let shared = sender.ring().clone();
    let rung = || [shared.sender(), shared.receiver()].map(|side| side.bell().0.load(Relaxed));
    assert!(send(&mut sender, &mut 1) && rung() == [0, 0]);
    shared.receiver().arm();
    assert!(send(&mut sender, &mut 2) && rung() == [0, 1]);
    shared.sender().arm();
    shared.receiver().disarm();
    assert!(receive(&mut receiver, &mut 0) && receive(&mut receiver, &mut 0) && rung() == [2, 1]);
    assert!(!receive(&mut receiver, &mut 0) && rung() == [2, 1], "nothing changed");
}

#[test]
fn two_threads_exchange_boxes_without_loss() {
    const COUNT: u64 = 200_000;
    let (mut sender, mut receiver) = ring::<Option<Box<u64>>, _>(8, [Silent, Silent]);
    let sending = thread::spawn(move || {
        let mut returned = 0;
        for number in 0..COUNT {
            let mut value = Some(Box::new(number));
            while !send(&mut sender, &mut value) {
                thread::yield_now();
            }
            returned += u64::from(value.is_some());
        }
        returned
    });
    let (mut value, mut before) = (None, 0);
    for number in 0..COUNT {
        while !receive(&mut receiver, &mut value) {
            thread::yield_now();
        }
        assert_eq!(value.as_deref(), Some(&number));
        before += u64::from(number > 0);
    }
    let returned = sending.join().unwrap();
    assert!(returned <= before && before - returned <= 8, "{returned} of {before} boxes returned");
}
