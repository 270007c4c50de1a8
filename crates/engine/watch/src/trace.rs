//! Traces of packets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Instant;

use bellows_observe::{Hop, HopKind, TraceOrder};
use bellows_packet::{Mark, MarkedEvent, MarkedEventKind, Packet};

use crate::listener::{Listener, until};
use crate::network::{Call, Network, link_type};

/// The number of bytes of a packet in a hop.
const SNAP_LENGTH: usize = 256;

/// Limit on the hops of a trace: a thousand, and this many for each packet. A packet in a loop, or one that is copied
/// without end, does not fill the memory.
const HOPS_PER_PACKET: usize = 64;

/// The number of the next packet to follow, for all engines of the process.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Whether to follow a packet.
pub type Selector = Box<dyn FnMut(&Packet) -> bool + Send>;

/// A trace in progress. Dropping it ends it.
pub struct Trace {
    hops: Receiver<Hop>,
    is_over: bool,
    _listener: Listener,
}

impl Trace {
    /// The next hop; `None` at the deadline, or earlier if the trace has ended: see [`Trace::is_over`].
    pub fn next(&mut self, deadline: Instant) -> Option<Hop> {
        let hop = self.hops.recv_timeout(until(deadline));
        self.is_over |= hop == Err(RecvTimeoutError::Disconnected);
        hop.ok()
    }

    /// Whether the trace has ended: all packets have ended, the run is over, a reload removed links or apps with
    /// packets, or the limit on hops was reached.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

/// The engine's side of a trace.
pub struct TraceWatch {
    order: TraceOrder,
    /// Which packets to follow; all if there is none.
    selector: Option<Selector>,
    /// Where the hops go; none once the trace is complete.
    hops: Option<Sender<Hop>>,
    over: Arc<AtomicBool>,
    /// The app's position, if one was named and exists.
    app: Option<usize>,
    /// The numbers of the packets, by position, and the number of copies of each.
    numbers: HashMap<u32, usize>,
    alive: Vec<u64>,
    /// The number of packets that have not ended, and of hops left.
    living: usize,
    hops_left: usize,
}

impl TraceWatch {
    /// A trace of the packets that an order and a selector select, and its receiving end. `wake` makes the engine check
    /// its traces and taps.
    pub fn new(
        order: TraceOrder,
        selector: Option<Selector>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (TraceWatch, Trace) {
        let (sender, hops) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let listener = Listener::new(&over, Box::new(wake));
        let hops_left = 1_000 + HOPS_PER_PACKET * order.count;
        let (numbers, alive) = (HashMap::new(), Vec::new());
        let watch =
            TraceWatch { order, selector, hops: Some(sender), over, app: None, numbers, alive, living: 0, hops_left };
        (watch, Trace { hops, is_over: false, _listener: listener })
    }

    /// Finds the app in the current network. Returns false if the named app does not exist, or the receiver is gone.
    pub(crate) fn find(&mut self, network: &impl Network) -> bool {
        self.app = self.order.app.as_ref().and_then(|app| network.app(app));
        self.app.is_some() == self.order.app.is_some() && !self.over.load(Relaxed)
    }

    /// Lives as long as this and its [`Trace`] do.
    pub fn lifetime(&self) -> Weak<AtomicBool> {
        Arc::downgrade(&self.over)
    }

    /// The packet's position among the followed ones.
    fn position(&self, mark: Mark) -> Option<usize> {
        self.numbers.get(&mark.id).copied()
    }

    /// Whether packets that this call sends are to be followed from here on.
    fn begins_at(&self, call: &Call<'_>) -> bool {
        self.app.map_or(call.brings_in, |app| app == call.app)
    }

    fn is_selected(&mut self, packet: &Packet) -> bool {
        self.selector.as_mut().is_none_or(|selects| selects(packet))
    }

    fn send(&mut self, position: usize, at: u64, app: &str, what: HopKind) {
        self.hops_left = self.hops_left.saturating_sub(1);
        if let Some(hops) = &self.hops {
            // The receiver is gone, and the trace is about to be ended.
            let _ = hops.send(Hop { packet: position as u32 + 1, at_ns: at, app: app.to_owned(), what });
        }
    }

    /// Processes packets that an app has sent to an output.
    pub(crate) fn follow(
        &mut self,
        packets: &mut [Packet],
        network: &impl Network,
        call: &Call<'_>,
        link: u32,
        (start, at): (u64, u64),
    ) {
        let begins = self.begins_at(call);
        for packet in packets {
            let mut position = packet.marked().and_then(|mark| self.position(mark));
            if position.is_none() && begins && self.alive.len() < self.order.count && self.is_selected(packet) {
                let created = packet.marked().map_or(start, |mark| mark.created);
                // After four billion packets, numbers begin again; 0 means none.
                let id = NEXT.fetch_add(1, Relaxed).max(1);
                packet.mark(Mark { created, id });
                position = Some(self.alive.len());
                self.numbers.insert(id, self.alive.len());
                self.alive.push(1);
                self.living += 1;
            }
            let Some(position) = position else { continue };
            let bytes = packet.bytes();
            let sent = HopKind::Sent {
                port: network.output_name(link).to_owned(),
                length: bytes.len() as u32,
                bytes: bytes[..bytes.len().min(SNAP_LENGTH)].to_vec(),
                tag: packet.tag(),
                link_type: link_type(packet),
            };
            self.send(position, at, network.app_name(call.app), sent);
        }
    }

    /// Processes the ends of packets in a call. An app that frees a packet after it has copied it has not ended it.
    pub(crate) fn note(&mut self, network: &impl Network, app: usize, at: u64, marked_events: &[MarkedEvent]) {
        let name = network.app_name(app);
        let mut copies: Vec<usize> = Vec::new();
        for event in marked_events {
            let Some(position) = self.position(event.mark) else { continue };
            if event.kind == MarkedEventKind::Copied {
                self.alive[position] += 1;
                copies.push(position);
                continue;
            }
            self.end_one(position);
            match event.kind {
                MarkedEventKind::Dropped(reason) => {
                    let reason = network.drop_reason(app, reason).to_owned();
                    self.send(position, at, name, HopKind::Dropped { reason });
                }
                _ => match copies.iter().position(|&copy| copy == position) {
                    Some(copy) => drop(copies.swap_remove(copy)),
                    None => self.send(position, at, name, HopKind::Ended),
                },
            }
        }
    }

    /// Processes the ends of packets outside of the calls of apps.
    pub(crate) fn note_elsewhere(&mut self, marked_events: &[MarkedEvent]) {
        for event in marked_events {
            let Some(position) = self.position(event.mark) else { continue };
            match event.kind {
                MarkedEventKind::Copied => self.alive[position] += 1,
                _ => self.end_one(position),
            }
        }
    }

    /// Counts the end of one copy of a packet.
    fn end_one(&mut self, position: usize) {
        let alive = &mut self.alive[position];
        if *alive == 1 {
            self.living -= 1;
        }
        *alive = alive.saturating_sub(1);
    }

    /// Whether all packets have ended. If so, the receiver learns of it at once, whether or not other workers still
    /// have the trace.
    pub(crate) fn is_complete(&mut self) -> bool {
        let is_complete = self.hops_left == 0 || self.living == 0 && self.alive.len() >= self.order.count;
        if is_complete {
            self.hops = None;
        }
        is_complete
    }
}
