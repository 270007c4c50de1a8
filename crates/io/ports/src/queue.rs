//! Queues that take packets to the other side, and the bells of queues.

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;

use bellows_packet::{Packet, Vector};

/// The reason why a queue did not take a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The other side has not given back enough buffers yet.
    Full,
    /// The queue never takes a packet of this length.
    TooLong,
    /// The packet has an offload that the other side does not accept.
    Offload,
}

/// The result of a call that sends packets to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken<S = Option<Rejection>> {
    /// Number of packets taken.
    pub count: usize,
    /// Why it took no more.
    pub stop: S,
}

/// A queue that takes packets to the other side.
pub trait SendQueue {
    /// An error that stops the queue.
    type Error;

    /// Whether the queue owns a packet that it has taken until the packet is sent. If not, it has copied the packet.
    const KEEPS: bool = false;

    /// Takes packets, in order, as many as it can.
    ///
    /// The caller passes each of the packets taken to [`keep`](SendQueue::keep) or [`keep_first`](SendQueue::keep_first)
    /// before the next call, in order.
    ///
    /// # Errors
    /// The error that has stopped the queue. No packet was taken.
    fn send(&mut self, packets: &[Packet]) -> Result<Taken, Self::Error>;

    /// Gets a packet that was taken.
    #[inline(always)]
    fn keep(&mut self, packet: Packet) {
        drop(packet);
    }

    /// Gets the first `count` packets of a vector, which were taken. The default passes each to
    /// [`keep`](SendQueue::keep).
    #[inline]
    fn keep_first(&mut self, packets: &mut Vector, count: usize) {
        packets.drain(count).for_each(|packet| self.keep(packet));
    }

    /// The part of a burst that the last call of [`send`](SendQueue::send) has spent, in packets.
    #[inline(always)]
    fn spent(&self) -> usize {
        0
    }
}

/// The bell of a queue: how the engine sees that the queue has work.
pub trait QueueBell: Send + Sync + 'static {
    /// A word that the other side writes. Without one the queue is asked in every breath while the engine is awake.
    fn word(&self) -> Option<&AtomicU32>;
    /// The bits of the word that count.
    fn mask(&self) -> u32;
    /// The value of these bits while there is nothing new.
    fn quiet(&self) -> u32;
    /// A descriptor that becomes readable while the engine sleeps.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Called when the engine is about to sleep.
    fn arm(&self) {}
    /// Called when it is awake.
    fn disarm(&self) {}
}
