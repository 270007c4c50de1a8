//! Packets that go round: what they look like, where they wait, and the clocks between two places of their way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bellows_engine::{App, Io, Port, Ports};
use bellows_packet::{Packet, Vector};
use bellows_sys::clock;
use bellows_vrf::Tag;

/// Packets in a vector.
pub(in crate::benchmarks) const VECTOR: usize = 128;

/// Makes packets as they were before a router had them.
pub(in crate::benchmarks) trait Restore: Send + 'static {
    /// Undoes what the router has done to a packet.
    fn restore(&self, packet: &mut Packet);

    /// Called with all packets of a vector, when they are restored.
    fn finish(&self, _packets: &[Packet]) {}
}

/// Keeps packets in flight: sends the vector that has waited for the longest time, and restores those that come back.
pub(in crate::benchmarks) struct Circulator<R> {
    pub(super) held: VecDeque<Vector>,
    pub(super) restore: R,
    spare: Vec<Vector>,
}

impl<R: Restore> Circulator<R> {
    pub(in crate::benchmarks) fn new(packets: Vec<Packet>, restore: R) -> Circulator<R> {
        let mut held = VecDeque::new();
        let mut packets = packets.into_iter().peekable();
        while packets.peek().is_some() {
            let mut vector = Vector::new();
            packets.by_ref().take(VECTOR).for_each(|packet| drop(vector.push(packet)));
            held.push_back(vector);
        }
        Circulator { held, restore, spare: Vec::new() }
    }
}

impl<R: Restore> App for Circulator<R> {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets that come back")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets")]);
    const PULLS: bool = true;
    const MAX_FAN_OUT: usize = 0;
    const ENDS: bool = true;

    fn pull(&mut self, io: &Io<Self>) {
        if let Some(mut oldest) = self.held.pop_front() {
            io.output(0).send_from(&mut oldest);
            self.spare.push(oldest);
        }
    }

    fn push(&mut self, io: &Io<Self>) {
        let mut vector = self.spare.pop().unwrap_or_default();
        io.input(0).take_into(&mut vector);
        for packet in vector.as_mut_slice() {
            self.restore.restore(packet);
            packet.set_tag(Tag::received_on(1).0);
        }
        self.restore.finish(vector.as_slice());
        self.held.push_back(vector);
    }

    fn held(&self) -> usize {
        self.held.iter().map(Vector::len).sum()
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// The clocks between the places of a way, summed over vectors.
#[derive(Debug, Default)]
pub(in crate::benchmarks) struct Times {
    last: AtomicU64,
    /// Up to each place, from the one before it.
    pub(super) sums: [AtomicU64; 8],
}

impl Times {
    /// The sums since they were taken last.
    pub(in crate::benchmarks) fn take(&self) -> [u64; 8] {
        self.sums.each_ref().map(|sum| sum.swap(0, Relaxed))
    }
}

/// A place of the way: forwards vectors, and notes the clock.
pub(in crate::benchmarks) struct Stamp {
    pub(in crate::benchmarks) times: Arc<Times>,
    pub(in crate::benchmarks) place: usize,
}

impl App for Stamp {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets")]);

    fn push(&mut self, io: &Io<Self>) {
        let Times { last, sums } = &*self.times;
        let now = clock::ticks();
        // One thread has all places.
        sums[self.place].store(sums[self.place].load(Relaxed) + now.wrapping_sub(last.load(Relaxed)), Relaxed);
        io.forward(0, 0);
        last.store(now, Relaxed);
    }
}
