//! The packets of a measurement, which its networks use in turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellows_engine::{App, Io, Port, Ports};
use bellows_packet::{Packet, Vector};
use bellows_sys::{cache, clock};
use bellows_vrf::Tag;

use crate::benchmarks::router::circulation::VECTOR;
use crate::benchmarks::router::traffic::Family;

/// Packets that wait for their next way through a router: the one that has waited longest is the first.
///
/// All networks of a process share one pool of packets, so that their packets have the same places in memory and in the caches.
pub(super) struct PacketPool {
    waiting: VecDeque<Vector>,
    spare: Vec<Vector>,
    /// Calls in which packets were sent since [`PacketPool::take_counts`], and these packets.
    sends: u64,
    sent: u64,
    pace: Option<Pace>,
    /// Whether packets that come back are evicted from all caches.
    evicts: bool,
}

/// Packets that are due at a rate.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Clocks from one packet to the next.
    interval: f64,
    /// When the next packet is due, in clocks.
    next: f64,
    /// Packets that came too late, because the router did not take them in time.
    missed: u64,
}

/// The maximum number of packets that are sent in one call at a rate, as many as in a vector of VPP.
const MAX_BURST: usize = 256;

/// The maximum number of packets that wait to be sent at a rate: the queue of a network card.
const MAX_BACKLOG: f64 = 1024.0;

impl Pace {
    /// The number of packets to send now.
    fn due(&mut self, now: f64) -> usize {
        let due = ((now - self.next) / self.interval).max(0.0);
        let missed = (due - MAX_BACKLOG).max(0.0).floor();
        self.missed += missed as u64;
        self.next += missed * self.interval;
        ((due - missed) as usize).min(MAX_BURST)
    }
}

/// What a pool of packets counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StockCounts {
    pub(super) sends: u64,
    pub(super) sent: u64,
    pub(super) missed: u64,
}

impl PacketPool {
    /// A pool of these packets, in random order: those of a busy network are not in the order of their addresses.
    pub(super) fn new(mut packets: Vec<Packet>, evicts: bool) -> Arc<Mutex<PacketPool>> {
        fastrand::Rng::with_seed(11).shuffle(&mut packets);
        let mut waiting = VecDeque::new();
        let mut packets = packets.into_iter().peekable();
        while packets.peek().is_some() {
            let mut vector = Vector::new();
            packets.by_ref().take(VECTOR).for_each(|packet| drop(vector.push(packet)));
            waiting.push_back(vector);
        }
        Arc::new(Mutex::new(PacketPool { waiting, spare: Vec::new(), sends: 0, sent: 0, pace: None, evicts }))
    }

    /// From now on packets are due at a rate, given by the clocks from one to the next; with `None` always.
    pub(super) fn set_interval(&mut self, interval: Option<f64>) {
        self.pace = interval.map(|interval| Pace { interval, next: clock::ticks() as f64, missed: 0 });
    }

    /// The counts since they were taken last.
    pub(super) fn take_counts(&mut self) -> StockCounts {
        let missed = self.pace.as_mut().map_or(0, |pace| std::mem::take(&mut pace.missed));
        StockCounts { sends: std::mem::take(&mut self.sends), sent: std::mem::take(&mut self.sent), missed }
    }

    /// The addresses of the first bytes of some packets that wait, at different places in vectors.
    pub(super) fn some_addresses(&self, count: usize) -> Vec<usize> {
        let address = |number: usize| {
            let vector = self.waiting.get(number * self.waiting.len() / count)?;
            let place = (number * VECTOR / count + number).checked_rem(vector.len())?;
            Some(vector.as_slice()[place].bytes().as_ptr().addr())
        };
        (0..count).filter_map(address).collect()
    }

    /// Packets that wait.
    fn len(&self) -> usize {
        self.waiting.iter().map(Vector::len).sum()
    }

    /// Hands out a vector: the oldest one, or as many packets as are due.
    fn hand_out(&mut self, mut send: impl FnMut(&mut Vector)) {
        let mut left = match &mut self.pace {
            Some(pace) => pace.due(clock::ticks() as f64),
            None => usize::MAX,
        };
        let before = self.sent;
        while left > 0
            && let Some(mut oldest) = self.waiting.pop_front()
        {
            let packets = oldest.len().min(left);
            if packets < oldest.len() {
                let mut part = self.spare.pop().unwrap_or_default();
                part.append(&mut oldest, packets);
                self.waiting.push_front(oldest);
                oldest = part;
            }
            self.sent += packets as u64;
            send(&mut oldest);
            self.spare.push(oldest);
            match &mut self.pace {
                Some(pace) => {
                    pace.next += packets as f64 * pace.interval;
                    left -= packets;
                }
                None => break,
            }
        }
        self.sends += u64::from(self.sent > before);
    }

    /// Takes packets back, in vectors that are full.
    fn take_back(&mut self, mut vector: Vector) {
        if let Some(last) = self.waiting.back_mut()
            && last.len() < VECTOR
        {
            let room = VECTOR - last.len();
            last.append(&mut vector, room);
        }
        if vector.is_empty() {
            self.spare.push(vector);
        } else {
            self.waiting.push_back(vector);
        }
    }
}

/// Sends the packets of a pool, and restores those that come back.
pub(super) struct Circulator {
    pub(super) packet_pool: Arc<Mutex<PacketPool>>,
    pub(super) family: Family,
}

/// Locks a pool of packets. The networks of a process run one after the other, so nobody waits.
pub(super) fn lock(packet_pool: &Mutex<PacketPool>) -> MutexGuard<'_, PacketPool> {
    packet_pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl App for Circulator {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets that come back")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets")]);
    const PULLS: bool = true;
    const MAX_FAN_OUT: usize = 0;
    const ENDS: bool = true;

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        lock(&self.packet_pool).hand_out(|vector| output.send_from(vector));
    }

    fn push(&mut self, io: &Io<Self>) {
        let mut packet_pool = lock(&self.packet_pool);
        let mut input = io.input(0);
        while !input.is_empty() {
            let mut vector = packet_pool.spare.pop().unwrap_or_default();
            input.take_into(&mut vector);
            for packet in vector.as_mut_slice() {
                self.family.rejuvenate(packet.bytes_mut());
                packet.set_tag(Tag::received_on(1).0);
            }
            if packet_pool.evicts {
                cache::evict(vector.as_slice().iter().map(Packet::bytes));
            }
            packet_pool.take_back(vector);
        }
    }

    fn held(&self) -> usize {
        lock(&self.packet_pool).len()
    }

    fn is_finished(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_due_at_the_rate_and_a_long_queue_is_missed() {
        let mut pace = Pace { interval: 10.0, next: 100.0, missed: 0 };
        assert_eq!((pace.due(90.0), pace.due(109.0), pace.due(150.0)), (0, 0, 5));
        assert_eq!((pace.due(5_000.0), pace.missed), (MAX_BURST, 0));
        assert_eq!((pace.due(20_100.0), pace.missed), (MAX_BURST, 2_000 - 1_024));
        assert_eq!(pace.due(20_100.0), MAX_BURST, "what was missed is not missed again");
        assert_eq!(pace.missed, 2_000 - 1_024);
    }

    #[test]
    fn a_stock_hands_out_each_packet_in_turn() {
        let packets = (0..300u32).map(|number| Packet::from_bytes(&number.to_ne_bytes()).unwrap()).collect();
        let packet_pool = PacketPool::new(packets, true);
        let mut packet_pool = lock(&packet_pool);
        let mut order: Vec<[u8; 4]> = Vec::new();
        for round in 0..20 {
            // Some rounds at a rate at which a few packets are due, others without one.
            packet_pool.set_interval((round % 2 == 1).then_some(1e9));
            if let Some(pace) = &mut packet_pool.pace {
                pace.next -= 1e9 * f64::from(round);
            }
            let mut back = Vec::new();
            packet_pool.hand_out(|vector| {
                let mut taken = Vector::new();
                taken.append(vector, usize::MAX);
                taken.as_slice().iter().for_each(|packet| order.push(packet.bytes()[..4].try_into().unwrap()));
                back.push(taken);
            });
            back.into_iter().for_each(|vector| packet_pool.take_back(vector));
            assert_eq!(packet_pool.len(), 300);
        }
        let first: std::collections::BTreeSet<_> = order[..300].iter().collect();
        assert_eq!(first.len(), 300, "each is sent once before any is sent again");
        assert!(order.iter().skip(300).eq(&order[..order.len() - 300]), "packets keep their order");
        assert_eq!(packet_pool.take_counts().sent, order.len() as u64);
    }
}
