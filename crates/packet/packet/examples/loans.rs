//! What buffers cost that the kernel receives into and sends from, apart from the kernel and its rings: clocks a packet of
//! receiving, sending, taking back and lending, one by one and together, and in another order than they were lent. The ways
//! take turns; a figure is the median of many calls.
//!
//! `cargo run --release -p bellows-packet --example loans`
#![forbid(unsafe_code)]

use bellows_packet::{Loans, Packet, Vector, pool};
use bellows_sys::clock;

/// Packets of a call.
const BATCH: usize = 100;
/// Buffers that wait for frames.
const WAITING: usize = 2_048;
const ROUNDS: usize = 20_000;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    OneByOne,
    Together,
    /// Together as far as possible: of four, the first two are swapped.
    Swapped,
}

/// A queue without a kernel: the positions that it has.
struct Queue {
    loans: Loans,
    waiting: Vec<u64>,
    packets: Vector,
    sent: Vec<u64>,
}

impl Queue {
    fn new() -> Queue {
        let loans = Loans::new(2 * WAITING);
        let (waiting, sent) = (Vec::with_capacity(WAITING), Vec::with_capacity(BATCH));
        let mut queue = Queue { loans, waiting, packets: Vector::new(), sent };
        queue.loans.lend(WAITING, |lent| queue.waiting.extend(lent));
        queue
    }

    /// Clocks of receiving, sending, taking back and lending.
    fn round(&mut self, way: Way) -> [u64; 4] {
        let mut positions: Vec<u64> = self.waiting.drain(..BATCH).collect();
        let lengths = [60; BATCH];
        if way == Way::Swapped {
            positions.as_chunks_mut::<4>().0.iter_mut().for_each(|four| four.swap(0, 1));
        }
        let start = clock::ticks();
        let mut done = 0;
        while done < BATCH {
            let taken = match way {
                Way::OneByOne => 0,
                _ => self.loans.receive_all(&positions[done..], &lengths[done..], &mut self.packets),
            };
            done += taken;
            if taken == 0 {
                assert!(self.loans.receive(positions[done], 60, &mut self.packets));
                done += 1;
            }
        }
        let received = clock::ticks();
        self.sent.clear();
        if way == Way::OneByOne {
            for packet in self.packets.drain(BATCH) {
                self.sent.push(self.loans.position(&packet));
                self.loans.send(packet, 1);
            }
        } else {
            let sent = &mut self.sent;
            assert!(self.loans.send_first(&mut self.packets, BATCH, |loans, packets: &[Packet]| {
                sent.extend(packets.iter().map(|packet| loans.position(packet)));
            }));
        }
        let sent = clock::ticks();
        let mut rest = &self.sent[..];
        while let [first, others @ ..] = rest {
            let done = if way == Way::OneByOne { 0 } else { self.loans.end_all(rest) };
            rest = &rest[done..];
            if done == 0 {
                assert!(self.loans.end(*first));
                rest = others;
            }
        }
        let ended = clock::ticks();
        self.loans.lend(BATCH, |lent| self.waiting.extend(lent));
        [received - start, sent - received, ended - sent, clock::ticks() - ended]
    }
}

fn main() -> Result<(), pool::Error> {
    pool::ensure()?;
    let mut ways =
        [Way::OneByOne, Way::Together, Way::Swapped].map(|way| (way, Queue::new(), [const { Vec::new() }; 4]));
    for _ in 0..ROUNDS {
        for (way, queue, clocks) in &mut ways {
            for (all, one) in clocks.iter_mut().zip(queue.round(*way)) {
                all.push(one);
            }
        }
    }
    println!("clocks a packet      receive   send    end   lend");
    for ((_, _, mut clocks), name) in ways.into_iter().zip(["one by one", "together", "pairs swapped"]) {
        let medians = clocks.each_mut().map(|all| {
            all.sort_unstable();
            all[ROUNDS / 2] as f64 / BATCH as f64
        });
        println!("{name:<20} {:>7.1} {:>6.1} {:>6.1} {:>6.1}", medians[0], medians[1], medians[2], medians[3]);
    }
    Ok(())
}
