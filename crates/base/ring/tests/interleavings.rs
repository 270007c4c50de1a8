//! All interleavings of the two ends: `cargo test -p bellows-ring --features loom`.
#![cfg(feature = "loom")]

use std::mem;
use std::sync::Arc;

use bellows_ring::{Bell, Receiver, Sender, ring};
use loom::sync::Notify;
use loom::thread;

struct Ringing(Arc<Notify>);

impl Bell for Ringing {
    fn ring(&self) {
        self.0.notify();
    }
}

fn bells() -> ([Ringing; 2], [Arc<Notify>; 2]) {
    let notify = [(); 2].map(|()| Arc::new(Notify::new()));
    (notify.clone().map(Ringing), notify)
}

fn send(sender: &mut Sender<u32, Ringing>, value: &mut u32) -> bool {
    sender.send(|place| mem::swap(place, value)).is_some()
}

fn receive(receiver: &mut Receiver<u32, Ringing>, value: &mut u32) -> bool {
    receiver.receive(|place| mem::swap(place, value)).is_some()
}

/// Receives a value, and sleeps until there is one.
fn wait(receiver: &mut Receiver<u32, Ringing>, bell: &Notify) -> u32 {
    let ring = Arc::clone(receiver.ring());
    let mut value = 0;
    loop {
        if receive(receiver, &mut value) {
            return value;
        }
        ring.receiver().arm();
        if receiver.is_empty() {
            bell.wait();
        }
        ring.receiver().disarm();
    }
}

#[test]
fn values_come_in_order_and_places_return() {
    loom::model(|| {
        let (bells, _) = bells();
        let (mut sender, mut receiver) = ring::<u32, _>(2, bells);
        let sending = thread::spawn(move || {
            let mut next = 1;
            for _ in 0..4 {
                let mut value = next;
                if send(&mut sender, &mut value) {
                    // What the receiver left, or the value of a new place.
                    assert!(value == 0 || value == 100 + next - 2, "{value} for {next}");
                    next += 1;
                }
            }
            next
        });
        let mut received = 0;
        for _ in 0..3 {
            let mut value = 100 + received + 1;
            if receive(&mut receiver, &mut value) {
                received += 1;
                assert_eq!(value, received);
            }
        }
        let sent = sending.join().unwrap() - 1;
        while receive(&mut receiver, &mut 0) {
            received += 1;
        }
        assert_eq!(sent, received);
    });
}

#[test]
fn a_sleeping_receiver_is_woken() {
    loom::model(|| {
        let (bells, [_, bell]) = bells();
        let (mut sender, mut receiver) = ring::<u32, _>(2, bells);
        let sending = thread::spawn(move || assert!(send(&mut sender, &mut 1) && send(&mut sender, &mut 2)));
        assert_eq!([(); 2].map(|()| wait(&mut receiver, &bell)), [1, 2]);
        sending.join().unwrap();
    });
}

#[test]
fn a_sender_that_sleeps_for_room_is_woken() {
    loom::model(|| {
        let (bells, [bell, _]) = bells();
        let (mut sender, mut receiver) = ring::<u32, _>(1, bells);
        assert!(send(&mut sender, &mut 1));
        let receiving = thread::spawn(move || assert!(receive(&mut receiver, &mut 0)));
        let ring = Arc::clone(sender.ring());
        let mut value = 2;
        while !send(&mut sender, &mut value) {
            ring.sender().arm();
            if !sender.has_room() {
                bell.wait();
            }
            ring.sender().disarm();
        }
        receiving.join().unwrap();
    });
}
