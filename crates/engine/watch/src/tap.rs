//! Copies of the packets that pass a link.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use bellows_observe::TapRecord;
use bellows_packet::Packet;

use crate::listener::{Listener, until};
use crate::network::{Network, link_type};

/// The capacity of a tap's queue in bytes. Packets that do not fit are missed.
const MAX_QUEUE: usize = 32 << 20;

/// The overhead of a batch in the queue, and of each packet.
const BATCH_OVERHEAD: usize = 128;
const RECORD_OVERHEAD: usize = size_of::<PacketLengths>();

/// An open tap. Dropping it closes it.
pub struct Tap {
    batches: Receiver<Batch>,
    backlog: Arc<Backlog>,
    _listener: Listener,
}

impl Tap {
    /// The next packets; `None` at the deadline, or earlier if the link is gone or the run is over: see
    /// [`Tap::is_over`].
    pub fn next(&mut self, deadline: Instant) -> Option<Vec<TapRecord>> {
        let Batch { at, bytes, shapes } = self.batches.recv_timeout(until(deadline)).ok()?;
        self.backlog.bytes.fetch_sub(BATCH_OVERHEAD + RECORD_OVERHEAD * shapes.len() + bytes.len(), Relaxed);
        let mut rest = &bytes[..];
        let record = |PacketLengths { length, kept, link_type }| {
            let (bytes, others) = rest.split_at(kept as usize);
            rest = others;
            TapRecord { at, length, link_type, bytes: bytes.to_vec() }
        };
        Some(shapes.into_iter().map(record).collect())
    }

    /// Whether the tap has ended.
    pub fn is_over(&self) -> bool {
        self.backlog.over.load(Relaxed)
    }

    /// The number of packets that were not copied because the queue was full.
    pub fn missed(&self) -> u64 {
        self.backlog.missed.load(Relaxed)
    }
}

/// The packets of one call.
struct Batch {
    at: u64,
    bytes: Vec<u8>,
    shapes: Vec<PacketLengths>,
}

/// A packet's length, its number of copied bytes, and its link type.
struct PacketLengths {
    length: u32,
    kept: u32,
    link_type: u32,
}

/// A tap's queue, and the count of missed packets.
#[derive(Default)]
struct Backlog {
    bytes: AtomicUsize,
    missed: AtomicU64,
    over: AtomicBool,
}

/// The engine's side of a tap.
pub struct TapWatch {
    /// The link, as written in a network file.
    link: String,
    snap: usize,
    batches: Sender<Batch>,
    backlog: Arc<Backlog>,
    over: Arc<AtomicBool>,
    /// The link's number, if it exists.
    number: Option<u32>,
}

impl Drop for TapWatch {
    fn drop(&mut self) {
        self.backlog.over.store(true, Relaxed);
    }
}

impl TapWatch {
    /// A tap of a link, `a.output -> b.input`, that copies the first `snap` bytes of each packet, and its receiving
    /// end. `wake` makes the engine check its traces and taps.
    pub fn new(link: String, snap: usize, wake: impl Fn() + Send + Sync + 'static) -> (TapWatch, Tap) {
        let (sender, batches) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let listener = Listener::new(&over, Box::new(wake));
        let backlog = Arc::new(Backlog::default());
        let tap = Tap { batches, backlog: Arc::clone(&backlog), _listener: listener };
        (TapWatch { link, snap, batches: sender, backlog, over, number: None }, tap)
    }

    /// Finds the link in the current network. Returns false if it does not exist, or the receiver is gone.
    pub(crate) fn find(&mut self, network: &impl Network) -> bool {
        self.number = network.link(&self.link);
        self.number.is_some() && !self.over.load(Relaxed)
    }

    pub(crate) fn is_of(&self, link: u32) -> bool {
        self.number == Some(link)
    }

    pub(crate) fn copy(&self, packets: &[Packet], at: u64) {
        let kept = |packet: &Packet| packet.len().min(self.snap);
        let size: usize = packets.iter().map(kept).sum();
        let taken = BATCH_OVERHEAD + RECORD_OVERHEAD * packets.len() + size;
        if self.backlog.bytes.load(Relaxed) + taken > MAX_QUEUE {
            self.backlog.missed.fetch_add(packets.len() as u64, Relaxed);
            return;
        }
        let mut bytes = Vec::with_capacity(size);
        packets.iter().for_each(|packet| bytes.extend_from_slice(&packet.bytes()[..kept(packet)]));
        let shape = |packet: &Packet| {
            let (length, kept) = (packet.len() as u32, kept(packet) as u32);
            PacketLengths { length, kept, link_type: link_type(packet) }
        };
        let shapes = packets.iter().map(shape).collect();
        self.backlog.bytes.fetch_add(taken, Relaxed);
        // The receiver is gone, and the tap is about to be closed.
        let _ = self.batches.send(Batch { at, bytes, shapes });
    }
}
