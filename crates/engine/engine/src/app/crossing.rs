//! The engine's own apps at the two ends of a link between workers.
//!
//! The link has a vector on each worker, and between them a ring that moves whole vectors. On the worker that sends,
//! [`Outbound`] is pushed when the link's vector holds packets, and moves it into the ring. On the other one, [`Inbound`]
//! has a slot that watches the ring, and moves vectors out of it. Emptied vectors return through the same places.
//!
//! The ring is on the memory node of the worker that receives. If the other one is on another node, its vectors do not
//! cross: it copies the packets' handles into vectors on the receiver's node.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::{io, mem};

use bellows_packet::{Packet, Vector};
use bellows_ring::{Bell, Receiver, Ring, Sender, WakeSide, ring};
use bellows_sys::clock;
use bellows_sys::wake::WakeEvent;
use bellows_wiring::{Port, Ports};

use super::App;
use super::io::Io;
use crate::runtime::sampling::VectorMark;
use crate::runtime::slots::Watched;

/// Vectors between two workers, besides the one at either end.
const PLACES: usize = 8;

/// How long a link is closed that is to be emptied, in nanoseconds: longer than the interval of attempts.
const CLOSED_NS: u64 = 20_000_000;

/// Wakes a worker.
pub(crate) struct Alarm {
    event: WakeEvent,
    /// Whether the event has been raised and not cleared.
    raised: AtomicBool,
}

impl Alarm {
    fn new() -> io::Result<Alarm> {
        Ok(Alarm { event: WakeEvent::new()?, raised: AtomicBool::new(false) })
    }

    /// Clears the event. Look at the ring after that.
    #[inline]
    fn clear(&self) {
        if self.raised.load(Relaxed) {
            self.event.clear();
            self.raised.store(false, SeqCst);
        }
    }
}

impl Bell for Alarm {
    #[cold]
    fn ring(&self) {
        if !self.raised.swap(true, SeqCst) {
            self.event.raise();
        }
    }
}

/// A place of the ring: a vector, or one packet alone, and the mark of either. All is where the receiver looks, so that
/// it touches nothing else, and a packet that comes alone takes no cache line besides.
#[derive(Default)]
struct CrossingPlace {
    vector: Vector,
    alone: Option<Packet>,
    mark: VectorMark,
}

impl CrossingPlace {
    /// The number of packets. Prefetches what the receiver reads next.
    #[inline(always)]
    fn look(&self) -> (usize, VectorMark) {
        if let Some(packet) = &self.alone {
            packet.prefetch();
            return (1, self.mark);
        }
        self.vector.prefetch_handles();
        (self.vector.len(), self.mark)
    }

    /// Puts packets in, and leaves an empty vector in exchange, whose memory the receiver has used. If the receiver is on
    /// another memory node, each side keeps its vectors.
    #[inline(always)]
    fn put(&mut self, vector: &mut Vector, mark: VectorMark, far: Option<usize>) {
        self.mark = mark;
        let count = vector.len();
        if count == 1 {
            self.alone = vector.drain(1).next();
        } else if far.is_some() {
            self.put_copied(vector, far);
        } else {
            mem::swap(&mut self.vector, vector);
            vector.prefetch_slots(count);
        }
    }

    #[inline(never)]
    fn put_copied(&mut self, vector: &mut Vector, far: Option<usize>) {
        if self.vector.is_none() {
            self.vector = bellows_arena::on_node(far, Vector::new);
        }
        self.vector.append_copied(vector, usize::MAX);
    }

    /// Takes the packets out into an empty vector.
    #[inline(always)]
    fn take(&mut self, vector: &mut Vector) {
        match self.alone.take() {
            Some(packet) => {
                if vector.is_none() {
                    *vector = Vector::new();
                }
                // There is room.
                let _ = vector.push(packet);
            }
            None => mem::swap(&mut self.vector, vector),
        }
    }
}

type Vectors = Ring<CrossingPlace, Alarm>;

/// What one end watches while it sleeps.
struct Watch {
    ring: Arc<Vectors>,
    /// The side of this end.
    side: fn(&Vectors) -> &WakeSide<Alarm>,
    /// The word that the other end changes.
    word: fn(&Vectors) -> &AtomicU32,
}

impl Watch {
    fn side(&self) -> &WakeSide<Alarm> {
        (self.side)(&self.ring)
    }
}

impl Watched for Watch {
    fn word(&self) -> Option<&AtomicU32> {
        Some((self.word)(&self.ring))
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.side().bell().event.as_fd()]
    }

    fn arm(&self) {
        self.side().arm();
    }

    fn disarm(&self) {
        self.side().disarm();
    }
}

/// The two ends of a link between workers on these memory nodes, given the position of its name in the timeline.
pub(crate) fn crossing(name: u32, [from, to]: [Option<usize>; 2]) -> io::Result<(Outbound, Inbound)> {
    let bells = [Alarm::new()?, Alarm::new()?];
    let changes_node = from.zip(to).is_some_and(|(from, to)| from != to);
    let (sender, receiver) = bellows_arena::on_node(to, || ring(PLACES, bells));
    let outbound = Outbound { sender, far: to.filter(|_| changes_node), is_full: false, closed_until: 0, name };
    Ok((outbound, Inbound { receiver, watches: false, name, changes_node }))
}

/// Moves vectors of packets from a link into the ring.
pub(crate) struct Outbound {
    sender: Sender<CrossingPlace, Alarm>,
    /// The receiver's memory node, if that is another one.
    far: Option<usize>,
    /// Whether a vector waits for a place in the ring.
    is_full: bool,
    /// Nothing is sent until then, in nanoseconds of the clock.
    closed_until: u64,
    /// The position of the link's name in the timeline.
    name: u32,
}

impl Outbound {
    /// Puts a vector into the ring while no worker runs; gives it back if there is no place for it.
    pub(crate) fn preload(&mut self, mut vector: Vector) -> Result<(), Vector> {
        if self.exchange(&mut vector) { Ok(()) } else { Err(vector) }
    }

    /// Exchanges a vector without a mark for an empty one, if there is room.
    #[inline]
    pub(crate) fn exchange(&mut self, vector: &mut Vector) -> bool {
        let far = self.far;
        self.sender.send(|place| place.put(vector, VectorMark::NONE, far)).is_some()
    }

    /// The number of vectors received so far; wraps.
    #[inline]
    pub(crate) fn received(&self) -> u32 {
        self.sender.ring().received().load(Relaxed)
    }

    /// Whether there is room in the ring.
    pub(crate) fn has_room(&mut self) -> bool {
        self.sender.has_room()
    }

    /// Sends nothing for a while, as if the ring were full.
    pub(crate) fn close_for_a_while(&mut self) {
        self.closed_until = clock::now() + CLOSED_NS;
    }

    #[inline(always)]
    fn cross(&mut self, io: &Io<'_, Outbound>) {
        if self.closed_until > 0 {
            if clock::now() < self.closed_until {
                return;
            }
            self.closed_until = 0;
        }
        // A worker that is behind gets its packets in bursts all the same, so that fewer are on their way.
        let mut is_full = false;
        while !is_full && io.give_vector(|vector| self.send(io, vector), &mut is_full) {}
        if is_full || self.is_full {
            self.wait(io, is_full);
        }
    }

    /// Exchanges a vector for an empty one, if there is room.
    #[inline(always)]
    fn send(&mut self, io: &Io<'_, Outbound>, vector: &mut Vector) -> bool {
        if !self.sender.has_room() {
            return false;
        }
        let mark = io.mark_departure(self.name, vector.len());
        let far = self.far;
        self.sender.send(|place| place.put(vector, mark, far)).is_some()
    }

    /// Watches the receiver's end while the ring is full.
    #[cold]
    fn wait(&mut self, io: &Io<'_, Outbound>, is_full: bool) {
        let slot = io.slot(0);
        if !is_full {
            slot.never();
        } else if mem::replace(&mut self.is_full, true) {
            slot.expect(self.sender.seen());
        } else {
            let watch = Watch { ring: Arc::clone(self.sender.ring()), side: Ring::sender, word: Ring::received };
            slot.watch(Arc::new(watch), u32::MAX, self.sender.seen());
        }
        self.is_full = is_full;
    }
}

impl App for Outbound {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets for another worker")]);

    fn slots(&self) -> usize {
        1
    }

    /// Only a sleeping worker calls it, which has been woken.
    fn pull(&mut self, io: &Io<Self>) {
        self.sender.ring().sender().bell().clear();
        self.cross(io);
    }

    fn push(&mut self, io: &Io<Self>) {
        self.cross(io);
    }

    /// While a vector waits, a sleeping worker must be woken when there is room.
    fn is_finished(&self) -> bool {
        !self.is_full
    }
}

/// Moves vectors of packets from the ring into a link.
pub(crate) struct Inbound {
    receiver: Receiver<CrossingPlace, Alarm>,
    /// Whether the slot watches the ring.
    watches: bool,
    /// The position of the link's name in the timeline.
    name: u32,
    /// Whether the packets come from a worker on another memory node.
    changes_node: bool,
}

impl Inbound {
    /// Takes the vectors out of the ring while no worker runs, oldest first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Vector> {
        std::iter::from_fn(|| {
            let mut vector = Vector::none();
            self.receiver.receive(|place| place.take(&mut vector)).map(|()| vector)
        })
    }

    /// Whether there are vectors in the ring.
    pub(crate) fn is_waiting(&mut self) -> bool {
        !self.receiver.is_empty()
    }

    /// Exchanges an empty vector for the oldest one, if there is any.
    #[inline]
    pub(crate) fn exchange(&mut self, vector: &mut Vector) -> bool {
        self.receiver.peek(CrossingPlace::look).is_some() && self.receiver.receive(|place| place.take(vector)).is_some()
    }
}

impl App for Inbound {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets from another worker")]);

    fn slots(&self) -> usize {
        1
    }

    fn pull(&mut self, io: &Io<Self>) {
        let slot = io.slot(0);
        if !self.watches {
            self.watches = true;
            let watch = Watch { ring: Arc::clone(self.receiver.ring()), side: Ring::receiver, word: Ring::next_turn };
            slot.watch(Arc::new(watch), u32::MAX, self.receiver.seen());
        }
        self.receiver.ring().receiver().bell().clear();
        while let Some((count, mark)) = self.receiver.peek(CrossingPlace::look) {
            if !io.has_room_for(count) || !mark.is_none() && !io.arrive(self.name, mark, count) {
                break;
            }
            if self.changes_node {
                io.count_from_other_node(count);
            }
            io.take_vector(count, |vector| _ = self.receiver.receive(|place| place.take(vector)));
        }
        slot.moved(self.receiver.seen());
    }

    fn is_finished(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The page in which a vector begins, which distinguishes vectors.
    fn page(vector: &Vector) -> usize {
        vector.as_slice().as_ptr().addr() / 4_096
    }

    #[test]
    fn vectors_stay_on_their_memory_node() {
        let (mut outbound, mut inbound) = crossing(0, [Some(0), Some(1)]).unwrap();
        let mut sent = Vector::new();
        let (own, mut received) = (page(&sent), HashSet::new());
        let mut next = Vector::none();
        for number in 1..5 * PLACES {
            for length in [60, number] {
                assert!(sent.push(Packet::from_bytes(&vec![0; length]).unwrap()).is_ok());
            }
            let far = outbound.far;
            assert!(outbound.sender.send(|place| place.put(&mut sent, VectorMark::NONE, far)).is_some());
            assert!(sent.is_empty() && page(&sent) == own);
            // Now and then the receiver has no vector to leave for the one that it takes.
            if number % 3 == 0 {
                next = Vector::none();
            }
            next.drain(usize::MAX).for_each(drop);
            assert!(inbound.receiver.receive(|place| place.take(&mut next)).is_some());
            assert_eq!(next.as_slice().iter().map(Packet::len).collect::<Vec<_>>(), [60, number]);
            received.insert(page(&next));
        }
        assert!(received.len() > 1 && !received.contains(&own));
    }

    #[test]
    fn a_packet_alone_and_several_come_out_as_they_went_in() {
        let (mut outbound, mut inbound) = crossing(0, [None; 2]).unwrap();
        let (mut sent, mut received) = (Vector::new(), Vector::none());
        for count in [1, 3, 1, 1, 2, 0, 1] {
            for length in 1..=count {
                assert!(sent.push(Packet::from_bytes(&vec![0; length]).unwrap()).is_ok());
            }
            assert!(outbound.sender.send(|place| place.put(&mut sent, VectorMark::NONE, None)).is_some());
            assert!(sent.is_empty());
            assert_eq!(inbound.receiver.peek(|place| place.look().0), Some(count));
            assert!(inbound.receiver.receive(|place| place.take(&mut received)).is_some());
            assert_eq!(
                received.drain(usize::MAX).map(|packet| packet.len()).collect::<Vec<_>>(),
                Vec::from_iter(1..=count)
            );
            if sent.is_none() {
                sent = Vector::new();
            }
        }
    }
}
