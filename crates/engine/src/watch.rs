//! Watching single packets: traces, which follow some through the network, and taps, which copy all that pass a link.
//!
//! While somebody watches, every breath is instrumented: before each call the engine notes how many packets the links
//! behind the app have been sent, and looks after it at those that came. While nobody does, nothing of this costs anything.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Instant;

use bellows_observe::layout::{account, link};
use bellows_packet::{Fate, Mark, Packet, Passage};
use bellows_sys::clock;
use serde::{Deserialize, Serialize};

use crate::control::Control;
use crate::network::LinkSpec;
use crate::place::{OPEN, Place};
use crate::world::World;

/// Bytes of a packet that a hop shows.
const SHOWN: usize = 256;

/// Bytes that may wait in a tap's queue; what comes then is missed.
const LONGEST_QUEUE: usize = 32 << 20;

/// The most packets that one trace follows.
pub const MOST_TRACED: usize = 10_000;

/// Hops that a trace tells at most: a thousand, and so many for each packet. One in a loop, or one that is copied without
/// end, does not fill the memory.
const MOST_HOPS: usize = 64;

/// What a batch of a tap takes in the queue beside the packets' bytes, and what each packet takes.
const BATCH: usize = 128;
const RECORD: usize = size_of::<Shape>();

/// The number of the next packet that is followed, by any engine of the process.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// A packet dropped because a link was full; other reasons are numbered as the app's drop counters.
pub(crate) const TXDROP: u32 = u32::MAX;

/// Which packets to follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceOrder {
    /// How many.
    pub count: usize,
    /// From where on: the next ones that this app sends; by default those that any app brings in.
    pub app: Option<String>,
}

/// What happened to a packet at an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum HopKind {
    /// The app sent it on.
    Sent {
        /// Through this output.
        port: String,
        /// Its length in bytes.
        length: u32,
        /// Its first 256 bytes.
        bytes: Vec<u8>,
        /// Its tag.
        tag: u32,
        /// Link type of its outermost header, as numbered by pcap.
        link_type: u32,
    },
    /// The app dropped it.
    Dropped {
        /// The counter that counted it.
        reason: String,
    },
    /// It came to its end in the app.
    Ended,
}

/// One step on the way of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The packet's number, from 1. Copies keep it.
    pub packet: u32,
    /// When: nanoseconds since the Unix epoch.
    pub at: u64,
    /// The app.
    pub app: String,
    /// What it did.
    #[serde(flatten)]
    pub what: HopKind,
}

/// A packet that passed a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapRecord {
    /// When: nanoseconds since the Unix epoch.
    pub at: u64,
    /// Its length in bytes.
    pub length: u32,
    /// Link type of its outermost header, as numbered by pcap.
    pub link_type: u32,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// Why packets cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// Packets end at the app, so none can be followed from there.
    #[error("app `{app}` sends no packets: they end there{}", .before.first().map_or_else(String::new, |first| {
        format!("; follow those that {} to it: `--app {first}`", match &before[..] {
            [one] => format!("`{one}` sends"),
            all => format!("one of {} sends", all.iter().map(|app| format!("`{app}`")).collect::<Vec<_>>().join(", ")),
        })
    }))]
    SendsNothing {
        /// The app.
        app: String,
        /// Those that send packets to it.
        before: Vec<String>,
    },
    /// There is no such app.
    #[error("there is no app `{0}` in the running network")]
    NoApp(String),
    /// There is no such link.
    #[error("there is no link `{0}` in the running network")]
    NoLink(String),
    /// One trace at a time.
    #[error("another trace is going on; wait for its end")]
    Busy,
    /// A trace of too many packets.
    #[error("{0} packets are too many for a trace; follow at most {MOST_TRACED}")]
    TooMany(usize),
    /// There is nothing to watch any more.
    #[error("the run is over")]
    Over,
}

/// Tells the engine that nobody listens any more.
struct Ear {
    over: Arc<AtomicBool>,
    control: Control,
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        self.control.look_at_watchers();
    }
}

fn before(deadline: Instant) -> std::time::Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// A trace that is going on. Dropping it ends it.
pub struct Trace {
    hops: Receiver<Hop>,
    is_over: bool,
    _ear: Ear,
}

impl Trace {
    /// The next hop; `None` at the deadline, or before if nothing more will come: see [`Trace::is_over`].
    pub fn next(&mut self, deadline: Instant) -> Option<Hop> {
        let hop = self.hops.recv_timeout(before(deadline));
        self.is_over |= hop == Err(RecvTimeoutError::Disconnected);
        hop.ok()
    }

    /// Whether nothing more will come: all packets have ended; or the run has, a reload removed what packets were in, or
    /// there were more hops than a trace tells.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

/// A tap that is open. Dropping it closes it.
pub struct Tap {
    batches: Receiver<Batch>,
    backlog: Arc<Backlog>,
    _ear: Ear,
}

impl Tap {
    /// Packets that passed; `None` at the deadline, or before if the link is gone or the run is over: see [`Tap::is_over`].
    pub fn next(&mut self, deadline: Instant) -> Option<Vec<TapRecord>> {
        let Batch { at, bytes, shapes } = self.batches.recv_timeout(before(deadline)).ok()?;
        self.backlog.bytes.fetch_sub(BATCH + RECORD * shapes.len() + bytes.len(), Relaxed);
        let mut rest = &bytes[..];
        let record = |Shape { length, kept, link_type }| {
            let (bytes, others) = rest.split_at(kept as usize);
            rest = others;
            TapRecord { at, length, link_type, bytes: bytes.to_vec() }
        };
        Some(shapes.into_iter().map(record).collect())
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        self.backlog.over.load(Relaxed)
    }

    /// How many packets passed that were not copied because too many waited here.
    pub fn missed(&self) -> u64 {
        self.backlog.missed.load(Relaxed)
    }
}

/// The packets of one call.
struct Batch {
    at: u64,
    bytes: Vec<u8>,
    shapes: Vec<Shape>,
}

/// A packet's length, how many of its bytes are here, and its link type.
struct Shape {
    length: u32,
    kept: u32,
    link_type: u32,
}

/// The link type of a packet that does not say what it is: Ethernet.
const ETHERNET: u32 = 1;

fn link_type(packet: &Packet) -> u32 {
    packet.meta().map_or(ETHERNET, |meta| meta.link_type)
}

/// What waits in a tap's queue, and what never came there.
#[derive(Default)]
struct Backlog {
    bytes: AtomicUsize,
    missed: AtomicU64,
    over: AtomicBool,
}

/// What somebody wants to see, on its way to the engine.
pub(crate) enum Order {
    Trace(TraceWatch),
    Tap(TapWatch),
}

/// The engine's side of a trace.
pub(crate) struct TraceWatch {
    order: TraceOrder,
    hops: Sender<Hop>,
    over: Arc<AtomicBool>,
    /// The app's position, if one was named and is there.
    app: Option<usize>,
    /// The numbers of the packets, by position, and for each how many copies of it there are.
    numbers: HashMap<u32, usize>,
    alive: Vec<u64>,
    /// How many packets have not ended, and how many hops may still be told.
    living: usize,
    hops_left: usize,
}

/// The engine's side of a tap.
pub(crate) struct TapWatch {
    link: LinkSpec,
    snap: usize,
    batches: Sender<Batch>,
    backlog: Arc<Backlog>,
    over: Arc<AtomicBool>,
    /// The link's number.
    number: u32,
}

impl Drop for TapWatch {
    fn drop(&mut self) {
        self.backlog.over.store(true, Relaxed);
    }
}

pub(crate) fn new_trace(order: TraceOrder, control: Control) -> (TraceWatch, Trace) {
    let (sender, hops) = channel();
    let over = Arc::new(AtomicBool::new(false));
    let ear = Ear { over: Arc::clone(&over), control };
    let hops_left = 1_000 + MOST_HOPS * order.count;
    let (numbers, alive) = (HashMap::new(), Vec::new());
    let watch = TraceWatch { order, hops: sender, over, app: None, numbers, alive, living: 0, hops_left };
    (watch, Trace { hops, is_over: false, _ear: ear })
}

pub(crate) fn new_tap(link: LinkSpec, snap: usize, control: Control) -> (TapWatch, Tap) {
    let (sender, batches) = channel();
    let over = Arc::new(AtomicBool::new(false));
    let ear = Ear { over: Arc::clone(&over), control };
    let backlog = Arc::new(Backlog::default());
    let tap = Tap { batches, backlog: Arc::clone(&backlog), _ear: ear };
    (TapWatch { link, snap, batches: sender, backlog, over, number: OPEN }, tap)
}

/// All that is watched.
pub(crate) struct Watch {
    trace: Option<TraceWatch>,
    taps: Vec<TapWatch>,
    /// For each output of the app that is being called, how many packets it had been sent before.
    sent: Vec<u64>,
    /// A moment by the clock, and in nanoseconds since the Unix epoch.
    origin: (u64, u64),
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { trace: None, taps: Vec::new(), sent: Vec::new(), origin: (clock::ticks(), clock::unix_nanos()) }
    }
}

impl Watch {
    /// Takes orders in, and drops what nobody waits for any more. True if there is anything left to watch.
    pub(crate) fn take(&mut self, orders: Vec<Order>, world: &World) -> bool {
        for order in orders {
            match order {
                Order::Trace(trace) => self.trace = Some(trace),
                Order::Tap(tap) => self.taps.push(tap),
            }
        }
        self.find(world);
        self.trace.is_some() || !self.taps.is_empty()
    }

    /// Finds what is watched in the network that runs now; what is not there is no longer watched.
    pub(crate) fn find(&mut self, world: &World) {
        let outline = &world.outline;
        let position = |name: &String| outline.apps.iter().position(|app| app.name == *name);
        self.trace = self.trace.take().filter(|trace| !trace.over.load(Relaxed)).and_then(|mut trace| {
            trace.app = trace.order.app.as_ref().and_then(position);
            (trace.app.is_some() == trace.order.app.is_some()).then_some(trace)
        });
        self.taps.retain_mut(|tap| {
            let link = outline.links.iter().position(|link| *link == tap.link);
            tap.number = link.map_or(OPEN, |link| world.numbers[link] as u32);
            link.is_some() && !tap.over.load(Relaxed)
        });
    }

    /// Packets were in what a reload has removed: whether they were followed nobody will know.
    pub(crate) fn end_trace(&mut self) {
        self.trace = None;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.trace.is_none() && self.taps.is_empty()
    }

    /// Notes what the outputs of an app have been sent before it is called, and that packets were freed outside of calls.
    pub(crate) fn before(&mut self, place: &Place, passages: &[Passage]) {
        if let Some(trace) = &mut self.trace {
            trace.note_elsewhere(passages);
        }
        self.sent.clear();
        self.sent.extend(place.outputs.iter().map(|&link| sent(place, link)));
    }

    /// Looks at what an app has done.
    pub(crate) fn after(&mut self, place: &Place, entry: usize, start: u64, end: u64, passages: &[Passage]) {
        let at = self.moment(end);
        let Watch { trace, taps, sent: before, .. } = self;
        for (&link, &before) in place.outputs.iter().zip(&*before) {
            let new = sent(place, link).wrapping_sub(before) as usize;
            if new == 0 {
                continue;
            }
            place.fabric().with_vector(link, |packets| {
                let new = packets.len().saturating_sub(new);
                let packets = &mut packets[new..];
                for tap in taps.iter().filter(|tap| tap.number == link) {
                    tap.copy(packets, at);
                }
                if let Some(trace) = trace {
                    trace.follow(packets, place, link, entry, (start, at));
                }
            });
        }
        self.note(place, at, passages);
    }

    /// Looks at what became of the packets in an app that has been buried.
    pub(crate) fn buried(&mut self, place: &Place, passages: &[Passage]) {
        self.note(place, self.moment(clock::ticks()), passages);
    }

    fn note(&mut self, place: &Place, at: u64, passages: &[Passage]) {
        if let Some(trace) = &mut self.trace {
            trace.note(place, at, passages);
            if trace.is_complete() {
                self.trace = None;
            }
        }
    }

    /// Nanoseconds since the Unix epoch.
    fn moment(&self, ticks: u64) -> u64 {
        self.origin.1 + clock::ticks_to_nanos(ticks.saturating_sub(self.origin.0))
    }
}

/// How many packets a link has been sent.
fn sent(place: &Place, number: u32) -> u64 {
    let fabric = place.fabric();
    fabric.links.get(number as usize).map_or(0, |to| fabric.slab.get(to.cell + link::PACKETS))
}

impl TapWatch {
    fn copy(&self, packets: &[Packet], at: u64) {
        let kept = |packet: &Packet| packet.len().min(self.snap);
        let size: usize = packets.iter().map(kept).sum();
        let taken = BATCH + RECORD * packets.len() + size;
        if self.backlog.bytes.load(Relaxed) + taken > LONGEST_QUEUE {
            self.backlog.missed.fetch_add(packets.len() as u64, Relaxed);
            return;
        }
        let mut bytes = Vec::with_capacity(size);
        packets.iter().for_each(|packet| bytes.extend_from_slice(&packet.bytes()[..kept(packet)]));
        let shape = |packet: &Packet| {
            let (length, kept) = (packet.len() as u32, kept(packet) as u32);
            Shape { length, kept, link_type: link_type(packet) }
        };
        let shapes = packets.iter().map(shape).collect();
        self.backlog.bytes.fetch_add(taken, Relaxed);
        // Nobody to send it to: the tap is about to be closed.
        let _ = self.batches.send(Batch { at, bytes, shapes });
    }
}

impl TraceWatch {
    /// Lives as long as this and its [`Trace`] do.
    pub(crate) fn lifetime(&self) -> Weak<AtomicBool> {
        Arc::downgrade(&self.over)
    }

    /// The packet's position among those that are followed.
    fn position(&self, mark: Mark) -> Option<usize> {
        self.numbers.get(&mark.id).copied()
    }

    /// Whether packets that this call sends are to be followed from here on.
    fn begins_at(&self, place: &Place, entry: usize) -> bool {
        match self.app {
            Some(app) => app == place.index,
            None => entry == account::PULL || place.inputs.is_empty(),
        }
    }

    fn send(&mut self, position: usize, at: u64, place: &Place, what: HopKind) {
        let app = place.fabric().slab.directory.apps[place.index].name.clone();
        self.hops_left = self.hops_left.saturating_sub(1);
        // Nobody to send it to: the trace is about to be ended.
        let _ = self.hops.send(Hop { packet: position as u32 + 1, at, app, what });
    }

    /// Looks at packets that an app has sent to an output.
    fn follow(&mut self, packets: &mut [Packet], place: &Place, link: u32, entry: usize, (start, at): (u64, u64)) {
        let begins = self.begins_at(place, entry);
        for packet in packets {
            let mut position = packet.marked().and_then(|mark| self.position(mark));
            if position.is_none() && begins && self.alive.len() < self.order.count {
                let born = packet.marked().map_or(start, |mark| mark.born);
                // After four billion packets, numbers begin again; 0 is none.
                let id = NEXT.fetch_add(1, Relaxed).max(1);
                packet.mark(Mark { born, id });
                position = Some(self.alive.len());
                self.numbers.insert(id, self.alive.len());
                self.alive.push(1);
                self.living += 1;
            }
            let Some(position) = position else { continue };
            let bytes = packet.bytes();
            let sent = HopKind::Sent {
                port: place.output_name(link),
                length: bytes.len() as u32,
                bytes: bytes[..bytes.len().min(SHOWN)].to_vec(),
                tag: packet.tag(),
                link_type: link_type(packet),
            };
            self.send(position, at, place, sent);
        }
    }

    /// Takes in what became of packets in a call. An app that frees a packet after it has copied it has not ended it.
    fn note(&mut self, place: &Place, at: u64, passages: &[Passage]) {
        let mut copies: Vec<usize> = Vec::new();
        for passage in passages {
            let Some(position) = self.position(passage.mark) else { continue };
            if passage.fate == Fate::Copied {
                self.alive[position] += 1;
                copies.push(position);
                continue;
            }
            self.bury(position);
            match passage.fate {
                Fate::Dropped(reason) => {
                    let reason = place.drop_reason(reason);
                    self.send(position, at, place, HopKind::Dropped { reason });
                }
                _ => match copies.iter().position(|&copy| copy == position) {
                    Some(copy) => drop(copies.swap_remove(copy)),
                    None => self.send(position, at, place, HopKind::Ended),
                },
            }
        }
    }

    /// Takes in what became of packets outside of the calls of apps.
    fn note_elsewhere(&mut self, passages: &[Passage]) {
        for passage in passages {
            let Some(position) = self.position(passage.mark) else { continue };
            match passage.fate {
                Fate::Copied => self.alive[position] += 1,
                _ => self.bury(position),
            }
        }
    }

    fn bury(&mut self, position: usize) {
        let alive = &mut self.alive[position];
        if *alive == 1 {
            self.living -= 1;
        }
        *alive = alive.saturating_sub(1);
    }

    fn is_complete(&self) -> bool {
        self.hops_left == 0 || self.living == 0 && self.alive.len() >= self.order.count
    }
}
