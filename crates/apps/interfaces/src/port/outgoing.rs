//! Packets on their way to the other side.

use std::sync::Arc;

use bellows_engine::{App, DropReason, Input, Io};
use bellows_packet::{Vector, pool};
use bellows_ports::{Accepted, QueueBell, Rejection, SendQueue};

use super::bell::watch;
use super::finish::Finisher;

/// The drop reasons of an app that sends packets to the other side.
pub(crate) trait Sender: App {
    /// No buffer of the other side is large enough.
    const TOO_LONG: DropReason<Self>;
    /// Their offload is not true of them.
    const BAD_OFFLOAD: DropReason<Self>;
    /// The other side took none while they held too much of the pool.
    const POOL_LOW: DropReason<Self>;
}

/// What a queue's unsent packets wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// There are no packets.
    Nothing,
    /// The other side has no free buffer.
    Buffers,
    /// The next breath: this one's budget is spent.
    Turn,
}

/// Packets that may wait for the other side even if the pool is low.
const MAY_WAIT: usize = 64;

/// The packets to send through one queue.
pub struct Outgoing {
    /// Packets for this queue that were taken from the link, before those still in the link.
    pub(crate) waiting: Vector,
    /// Packets on the way from the link to a queue that keeps them. Empty between calls.
    taken: Vector,
    /// Packets that the other side does not accept as they are, before the waiting ones.
    pub(crate) finisher: Finisher,
    /// The state of the queue's slot.
    pub(crate) awaits: Awaits,
}

/// Drops packets that come while nobody is on the other side. Packets that waited before are dropped little by little:
/// freeing a thousand packets that are no longer in any cache would take too long for one breath.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Void {
    /// Packets that were in the link before this breath.
    before: usize,
}

impl Void {
    /// Lets packets wait, because the other side may be there soon.
    pub(crate) fn spare<A: App>(&mut self, input: &Input<'_, A>) {
        self.before = input.len();
    }

    /// Drops packets of these queues and of the link: a burst, plus as many as have come.
    pub(crate) fn swallow<A: App>(
        &mut self,
        io: &Io<A>,
        queues: &mut [Outgoing],
        input: &mut Input<'_, A>,
        reason: DropReason<A>,
    ) {
        let mut most = io.burst() + input.len().saturating_sub(self.before);
        for queue in queues {
            most = most.saturating_sub(queue.drop_some(io, most, reason));
        }
        io.drop_first(input, most, reason);
        self.before = input.len();
    }
}

impl Outgoing {
    /// Creates an empty one.
    pub(crate) fn new() -> Outgoing {
        Outgoing { waiting: Vector::new(), taken: Vector::none(), finisher: Finisher::new(), awaits: Awaits::Nothing }
    }

    /// Number of packets it holds.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.waiting.len() + self.finisher.held()
    }

    /// Drops at most `most` of its packets; returns how many.
    pub(crate) fn drop_some<A: App>(&mut self, io: &Io<A>, most: usize, reason: DropReason<A>) -> usize {
        let (mut ready, rest) = self.finisher.empty();
        let mut dropped = 0;
        for packet in rest.into_iter().chain(ready.drain(usize::MAX)).chain(self.waiting.drain(most)) {
            io.drop(packet, reason);
            dropped += 1;
        }
        dropped
    }

    /// Sends a queue's waiting packets, and those in the link if it is the only queue. Hot.
    #[inline]
    pub(crate) fn push<A: Sender, Q: SendQueue>(
        &mut self,
        io: &Io<A>,
        queue: &mut Q,
        able: Accepted,
        input: &mut Input<'_, A>,
        only: bool,
    ) -> Result<Awaits, Q::Error> {
        let mut awaits = Awaits::Nothing;
        // The packets that are there may all be sent in one call, and a burst in any case.
        let mut left = io.burst().max(self.held() + input.packets().len());
        loop {
            if !self.finisher.go_on(io, able) {
                awaits = Awaits::Turn;
                break;
            }
            // The packets being finished came before the waiting ones, and these before those in the link.
            let finished = !self.finisher.packets().is_empty();
            let inside = !self.waiting.is_empty();
            let packets = if finished {
                self.finisher.packets()
            } else if inside {
                self.waiting.as_slice()
            } else if only {
                input.packets()
            } else {
                &[]
            };
            if packets.is_empty() {
                break;
            }
            if left == 0 {
                awaits = Awaits::Turn;
                break;
            }
            let taken = queue.send(packets)?;
            left = left.saturating_sub(queue.spent());
            if finished {
                self.finisher.take(taken.count).for_each(|packet| queue.keep(packet));
            } else if inside {
                queue.keep_first(&mut self.waiting, taken.count);
            } else if Q::KEEPS {
                if self.taken.is_none() {
                    self.taken = Vector::new();
                }
                let moved = input.take_first_into(taken.count, &mut self.taken);
                queue.keep_first(&mut self.taken, moved);
            } else {
                input.discard_first(taken.count);
            }
            let next = match taken.stop {
                None => continue,
                Some(Rejection::Full) => {
                    awaits = Awaits::Buffers;
                    break;
                }
                Some(Rejection::Offload) if self.finisher.is_spent() => {
                    awaits = Awaits::Turn;
                    break;
                }
                Some(_) if finished => self.finisher.take(1).next(),
                Some(_) if inside => self.waiting.drain(1).next(),
                Some(_) => input.into_iter().next(),
            };
            let Some(packet) = next else { break };
            if taken.stop == Some(Rejection::TooLong) {
                io.drop(packet, A::TOO_LONG);
            } else {
                self.finisher.begin(io, packet, A::BAD_OFFLOAD);
            }
        }
        if awaits == Awaits::Buffers {
            self.drop_excess(io, only.then_some(input));
        }
        Ok(awaits)
    }

    /// Sets the queue's slot to what its packets wait for now.
    #[inline]
    pub(crate) fn tell<A: App, B: QueueBell>(
        &mut self,
        io: &Io<A>,
        slot: usize,
        bell: Option<&Arc<B>>,
        awaits: Awaits,
    ) {
        let before = std::mem::replace(&mut self.awaits, awaits);
        match (bell, awaits) {
            (Some(bell), Awaits::Buffers) if before == awaits => io.slot(slot).moved(bell.quiet()),
            _ if before == awaits => {}
            (bell, Awaits::Buffers) => watch(io, slot, bell),
            (_, Awaits::Turn) => io.slot(slot).always(),
            (_, Awaits::Nothing) => io.slot(slot).never(),
        }
    }

    /// Drops the oldest packets that wait for another side which takes none, if they hold more of the pool than is
    /// left: no port can starve the others. (Switches limit queues in a shared buffer the same way: A. K. Choudhury and
    /// E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998.)
    fn drop_excess<A: Sender>(&mut self, io: &Io<A>, input: Option<&mut Input<'_, A>>) {
        let parked = self.waiting.len() + input.as_ref().map_or(0, |input| input.packets().len());
        if parked <= MAY_WAIT || io.is_lossless() {
            return;
        }
        let usage = pool::usage();
        let left = usage.packets.saturating_sub(usage.in_use + usage.lent);
        let excess = parked.saturating_sub(left.max(MAY_WAIT));
        let inside = self.waiting.drain(excess).map(|packet| io.drop(packet, A::POOL_LOW)).count();
        if let Some(input) = input {
            input.into_iter().take(excess - inside).for_each(|packet| io.drop(packet, A::POOL_LOW));
        }
    }
}
