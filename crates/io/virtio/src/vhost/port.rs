//! The engine's end of a back end: the rings that run.

use std::sync::Arc;

use crate::inflight::Inflight;
use crate::log::Log;
use crate::ring::{Counters, Direction, Position, ReceiveRing, RingError, TransmitRing};

use super::{BackendStatus, Bell};
use bellows_handover::{Borrower, Held};

/// A ring of either direction.
pub(super) enum Ring {
    Receive(ReceiveRing),
    Transmit(TransmitRing),
}

impl Ring {
    pub(super) fn position(&self) -> Position {
        match self {
            Ring::Receive(ring) => ring.position(),
            Ring::Transmit(ring) => ring.position(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        match self {
            Ring::Receive(ring) => ring.counters(),
            Ring::Transmit(ring) => ring.counters(),
        }
    }

    pub(super) fn instance(&self) -> String {
        match self {
            Ring::Receive(ring) => ring.instance(),
            Ring::Transmit(ring) => ring.instance(),
        }
    }

    /// Sets the log of its writes and the record of its position.
    pub(super) fn note_in(&mut self, log: Option<Arc<Log>>, logged: Option<u64>, inflight: Option<Inflight>) {
        match self {
            Ring::Receive(ring) => {
                ring.set_log(log, logged);
                ring.set_inflight(inflight);
            }
            Ring::Transmit(ring) => {
                ring.set_log(log, logged);
                ring.set_inflight(inflight);
            }
        }
    }

    fn is_interrupted(&self) -> bool {
        match self {
            Ring::Receive(ring) => ring.is_interrupted(),
            Ring::Transmit(ring) => ring.is_interrupted(),
        }
    }

    fn error(&self) -> Option<RingError> {
        match self {
            Ring::Receive(ring) => ring.error(),
            Ring::Transmit(ring) => ring.error(),
        }
    }
}

/// A ring that is exchanged with the engine.
pub(super) struct LentRing {
    pub(super) ring: Ring,
    /// The error for which the engine gave it up.
    failed: Option<RingError>,
}

impl LentRing {
    pub(super) fn new(ring: Ring) -> LentRing {
        LentRing { ring, failed: None }
    }

    /// The error that has stopped it.
    pub(super) fn error(&self) -> Option<RingError> {
        self.failed.or_else(|| self.ring.error())
    }
}

/// The queue of a ring with this direction and pair.
fn queue(direction: Direction, pair: usize) -> usize {
    2 * pair + usize::from(direction == Direction::Transmit)
}

/// The rings by direction and pair.
struct Rings {
    receive: Vec<Option<ReceiveRing>>,
    transmit: Vec<Option<TransmitRing>>,
}

impl Held<LentRing> for Rings {
    fn take(&mut self, queue: usize, lent: LentRing) {
        match lent.ring {
            Ring::Receive(ring) => self.receive[queue / 2] = Some(ring),
            Ring::Transmit(ring) => self.transmit[queue / 2] = Some(ring),
        }
    }

    fn give(&mut self, queue: usize) -> Option<LentRing> {
        let ring = match queue % 2 {
            0 => self.receive[queue / 2].take().map(Ring::Receive),
            _ => self.transmit[queue / 2].take().map(Ring::Transmit),
        };
        ring.map(LentRing::new)
    }
}

/// The engine's end: the rings that run, of all or some of a device's pairs of queues, which it counts from 0. Never
/// blocks, and makes no system call while nothing changes.
///
/// Dropping it gives all rings back for good.
pub struct Port {
    borrower: Borrower<LentRing>,
    rings: Rings,
    status: Arc<BackendStatus>,
}

impl Port {
    pub(super) fn new(borrower: Borrower<LentRing>, status: Arc<BackendStatus>) -> Port {
        let pairs = status.pairs().len();
        let receive = (0..pairs).map(|_| None).collect();
        let transmit = (0..pairs).map(|_| None).collect();
        Port { borrower, rings: Rings { receive, transmit }, status }
    }

    /// Takes over its pairs from a port that has them. Waits at most until that or the control thread has moved some
    /// values.
    pub fn begin(&self) {
        self.borrower.claim();
    }

    /// The bell that asks the engine to [`sync`](Port::sync).
    pub fn doorbell(&self) -> Arc<Bell> {
        self.borrower.bell()
    }

    /// The value of the bell's word while there is nothing to exchange.
    #[inline]
    pub fn expected(&self) -> u32 {
        self.borrower.expected()
    }

    /// Exchanges rings with the control thread: takes new ones, gives back those that it wants. True if something
    /// changed. Costs a few instructions if there is nothing to exchange.
    ///
    /// While the control thread is changing something, nothing is exchanged, and the bell's word stays different from
    /// [`expected`](Port::expected): try again in the next breath.
    #[inline]
    pub fn sync(&mut self) -> bool {
        self.borrower.sync(&mut self.rings)
    }

    /// The rings that take packets from the driver, by pair.
    #[inline]
    pub fn transmit(&mut self) -> &mut [Option<TransmitRing>] {
        &mut self.rings.transmit
    }

    /// The rings that send packets to the driver, by pair.
    #[inline]
    pub fn receive(&mut self) -> &mut [Option<ReceiveRing>] {
        &mut self.rings.receive
    }

    /// Gives up a ring that has met an error. The status shows the error, and the driver's process is notified if it
    /// wants that. Other rings may be exchanged, too, as in [`sync`](Port::sync).
    pub fn fail(&mut self, direction: Direction, pair: usize, error: RingError) {
        let queue = queue(direction, pair);
        if let Some(mut lent) = self.rings.give(queue) {
            lent.failed = Some(error);
            self.borrower.give_up(queue, lent, &mut self.rings);
        }
    }

    /// Copies the rings' counters to the status. Meant to be called now and then.
    pub fn note(&mut self) {
        let receive = self.rings.receive.iter().enumerate();
        let receive =
            receive.filter_map(|(pair, ring)| Some((queue(Direction::Receive, pair), ring.as_ref()?.counters())));
        let transmit = self.rings.transmit.iter().enumerate();
        let transmit =
            transmit.filter_map(|(pair, ring)| Some((queue(Direction::Transmit, pair), ring.as_ref()?.counters())));
        self.status.note(receive.chain(transmit));
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // After a panic of the app the control thread makes the ring anew; the others may go to the next app.
        for queue in 0..2 * self.rings.receive.len() {
            let Some(lent) = self.rings.give(queue) else { continue };
            if lent.ring.is_interrupted() {
                self.borrower.give_up(queue, lent, &mut self.rings);
            } else {
                self.rings.take(queue, lent);
            }
        }
        self.borrower.end(&mut self.rings);
    }
}
