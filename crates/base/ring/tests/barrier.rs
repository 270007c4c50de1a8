//! Interleavings of a change of configuration: two workers and the thread that calls both back, exchanges what they have,
//! and sends them to work again, with up to two switches between threads that could go on:
//! `cargo test -p bellows-ring --features loom`.
#![cfg(feature = "loom")]

mod support;

use std::sync::Arc;

use bellows_ring::requests::{Requests, Sound};
use bellows_ring::{Bell, Receiver, Sender, ring};
use loom::cell::UnsafeCell;
use loom::sync::mpsc;
use loom::thread;
use support::Event;

/// The ends of the link need no bell: what wakes a worker here is that it is called back.
struct NoBell;

impl Bell for NoBell {
    fn ring(&self) {}
}

/// The end of the link between the workers.
enum End {
    Sends(Sender<u32, NoBell>),
    Receives(Receiver<u32, NoBell>),
}

/// A worker, which belongs to the thread that has it.
struct Worker {
    number: usize,
    end: End,
}

struct Shared {
    requests: [Requests<Event, Sound>; 2],
    /// The number of each worker's configuration, which the thread that has the worker may use.
    configurations: [UnsafeCell<u32>; 2],
}

// SAFETY: `loom` looks at each access to the cells; a race ends the test.
unsafe impl Sync for Shared {}

impl Shared {
    fn configuration<T>(&self, worker: usize, work: impl FnOnce(&mut u32) -> T) -> T {
        self.configurations[worker].with_mut(|configuration| {
            // SAFETY: loom panics before this if another thread may use the cell.
            work(unsafe { &mut *configuration })
        })
    }
}

impl Worker {
    /// Breathes and sleeps until it is called back. Whatever arrives was sent in the configuration in which it is
    /// received.
    fn serve(&mut self, shared: &Shared) {
        let requests = &shared.requests[self.number];
        loop {
            shared.configuration(self.number, |configuration| match &mut self.end {
                End::Sends(sender) => drop(sender.send(|place| *place = *configuration)),
                End::Receives(receiver) => {
                    let received = receiver.receive(|place| *place);
                    assert!(received.is_none_or(|received| received == *configuration), "an old packet");
                }
            });
            if requests.is_pending() && requests.take() != 0 {
                return;
            }
            requests.bell().wait();
            requests.bell().clear();
        }
    }
}

/// What the thread that changes the configuration leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Omission {
    Nothing,
    /// It calls the second worker back, and does not wait for it.
    Waiting,
    /// It does not empty the link.
    Emptying,
}

fn change(omission: Omission) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let requests = [(); 2].map(|()| Requests::new(Event::default()));
        let configurations = [(); 2].map(|()| UnsafeCell::new(1));
        let shared = Arc::new(Shared { requests, configurations });
        let (sender, receiver) = ring(1, [NoBell, NoBell]);
        let workers = [End::Sends(sender), End::Receives(receiver)];
        let mut ways = Vec::new();
        for (number, end) in workers.into_iter().enumerate() {
            let (shifts, next) = mpsc::channel::<Worker>();
            let (give_back, returned) = mpsc::channel::<Worker>();
            let own = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                // One shift in each configuration.
                for _ in 0..2 {
                    let Ok(mut worker) = next.recv() else { return };
                    worker.serve(&own);
                    let _ = give_back.send(worker);
                }
            });
            let _ = shifts.send(Worker { number, end });
            ways.push((shifts, returned, thread));
        }
        let pause = |count: usize| {
            shared.requests.iter().for_each(|requests| requests.raise(1));
            ways[..count].iter().map(|(_, returned, _)| returned.recv().unwrap()).collect::<Vec<Worker>>()
        };
        let mut workers = pause(if omission == Omission::Waiting { 1 } else { 2 });
        for worker in 0..2 {
            shared.configuration(worker, |configuration| *configuration = 2);
        }
        for worker in &mut workers {
            if let End::Receives(receiver) = &mut worker.end
                && omission != Omission::Emptying
            {
                while receiver.receive(|_| ()).is_some() {}
            }
        }
        for (worker, (shifts, ..)) in workers.into_iter().zip(&ways) {
            let _ = shifts.send(worker);
        }
        pause(2);
        for (shifts, _, thread) in ways {
            drop(shifts);
            thread.join().unwrap();
        }
    });
}

#[test]
fn nobody_works_while_the_configuration_changes() {
    change(Omission::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_worker_that_is_not_waited_for_is_found() {
    change(Omission::Waiting);
}

#[test]
#[should_panic(expected = "an old packet")]
fn a_link_that_is_not_emptied_is_found() {
    change(Omission::Emptying);
}
