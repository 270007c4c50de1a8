//! Sources and sinks that are switched while their network runs.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellows_engine::{App, Io, Port, Ports};
use bellows_packet::Packet;

/// What a source sends: copies of its packets.
#[derive(Default)]
pub(super) struct Stock {
    pub(super) packets: Vec<Packet>,
    next: usize,
    /// Packets in a breath.
    pub(super) per_breath: usize,
    /// Whether it begins anew after the last one.
    goes_round: bool,
}

impl Stock {
    /// A stock that never ends.
    pub(super) fn round(packets: Vec<Packet>, per_breath: usize) -> Stock {
        Stock { packets, next: 0, per_breath, goes_round: true }
    }

    /// A stock that ends.
    pub(super) fn once(packets: Vec<Packet>, per_breath: usize) -> Stock {
        Stock { goes_round: false, ..Stock::round(packets, per_breath) }
    }

    /// Hands out the packets of a breath, in one or more parts.
    fn hand_out(&mut self, mut send: impl FnMut(&[Packet])) {
        let mut left = self.per_breath;
        while left > 0 {
            if self.goes_round && self.next == self.packets.len() {
                self.next = 0;
            }
            let rest = &self.packets[self.next..];
            let part = rest.len().min(left);
            if part == 0 {
                break;
            }
            send(&rest[..part]);
            self.next += part;
            left -= part;
        }
    }
}

/// A source with a stock.
#[derive(Default)]
pub(super) struct Feed(pub(super) Arc<Mutex<Stock>>);

impl App for Feed {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets")]);

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        locked(&self.0).hand_out(|packets| output.push_copies(packets));
    }
}

/// What a sink has kept.
#[derive(Default)]
pub(super) struct Kept {
    /// Whether it keeps packets.
    pub(super) keeps: bool,
    pub(super) packets: Vec<Packet>,
}

/// A sink that frees packets, or keeps them.
#[derive(Default)]
pub(super) struct TrafficTap(pub(super) Arc<Mutex<Kept>>);

impl App for TrafficTap {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);

    fn push(&mut self, io: &Io<Self>) {
        locked(&self.0).take(io);
    }
}

impl Kept {
    /// Keeps the packets of the first input, or frees them.
    fn take<A: App>(&mut self, io: &Io<A>) {
        if !self.keeps {
            io.input(0).discard();
            return;
        }
        let before = self.packets.len();
        self.packets.extend(&mut io.input(0));
        io.handed_off(self.packets.len() - before);
    }
}

/// A place in a link at which packets pass until it is shut; then it is a sink for what comes, and a source for what goes on.
#[derive(Clone, Default)]
pub(super) struct Valve {
    pub(super) is_shut: Arc<AtomicBool>,
    pub(super) stock: Arc<Mutex<Stock>>,
    pub(super) kept: Arc<Mutex<Kept>>,
}

impl App for Valve {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets")]);
    const PULLS: bool = true;

    fn pull(&mut self, io: &Io<Self>) {
        if self.is_shut.load(Relaxed) {
            let mut output = io.output(0);
            locked(&self.stock).hand_out(|packets| output.push_copies(packets));
        }
    }

    fn push(&mut self, io: &Io<Self>) {
        if self.is_shut.load(Relaxed) {
            locked(&self.kept).take(io);
        } else {
            io.forward(0, 0);
        }
    }
}

/// Locks what one thread has.
pub(super) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_goes_round_or_ends() {
        let packets = || (0..5).map(|byte| Packet::from_bytes(&[byte; 60]).unwrap()).collect();
        let breath = |stock: &mut Stock| {
            let mut sent = Vec::new();
            stock.hand_out(|packets| sent.extend(packets.iter().map(|packet| packet.bytes()[0])));
            sent
        };
        let mut stock = Stock::round(packets(), 3);
        assert_eq!([breath(&mut stock), breath(&mut stock), breath(&mut stock)], [[0, 1, 2], [3, 4, 0], [1, 2, 3]]);
        let mut once = Stock::once(packets(), 3);
        assert_eq!([breath(&mut once), breath(&mut once), breath(&mut once)], [vec![0, 1, 2], vec![3, 4], vec![]]);
        assert!(breath(&mut Stock::default()).is_empty());
        assert!(breath(&mut Stock::round(Vec::new(), 3)).is_empty(), "an empty stock ends");
    }
}
