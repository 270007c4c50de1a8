//! The source of a measurement: its packets are in a chosen level of the memory hierarchy when an app gets them.
//!
//! A [`Supply`] sends packets that its [`Handle`] has prepared outside the timed part. [`Handle::prepare`] makes all of
//! them anew from the frames of some [`Traffic`], whatever the apps did to the previous round's, and then moves their
//! data:
//!
//! - `l1`: there are few packets, and they are read once more;
//! - `l2`, `l3`: they take at most half of that level, and enough other data is read to push them out of the nearer
//!   level;
//! - `dram`: they are evicted from all caches.
//!
//! A round sends each packet once. So an app may change, drop, copy or hold packets: it always gets the bytes of the
//! frames, and never from a nearer level. Any sink will do: freed buffers become packets again.
//!
//! The timed part touches no packet data before the app does. It moves handles, because links hold handles: an app
//! finds these in the first level, as if a driver had just written them. Beyond the first level buffers come in random
//! order, so that no prefetcher guesses the next.
//!
//! If no level is chosen, packets are written when they are sent, like those of the app `source`. They are then in the
//! first level, and writing them is timed.
//!
//! ```
//! use bellows_basic::sink::Sink;
//! use bellows_engine::{Engine, Network, Settings};
//! use bellows_lab::residence::{Levels, Resident};
//! use bellows_lab::supply::{SupplyConfig, pair};
//! use bellows_sys::clock;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let residence = Levels::simulated().residence(Resident::L2)?;
//! let config = SupplyConfig { residence: Some(residence), ..SupplyConfig::new("imix".parse()?) };
//! let settings = Settings::default();
//! let (supply, mut handle) = pair(&config, settings.burst)?;
//! let network = Network::new().app("supply", supply).app("sink", Sink).link("supply.output -> sink.input")?;
//! let mut engine = Engine::new(network, settings, None)?;
//! let (mut clocks, mut packets) = (0, 0);
//! for _ in 0..10 {
//!     handle.prepare()?;
//!     // Reloads the engine's own data into the caches.
//!     engine.breathe();
//!     let (start, ready) = (clock::ticks(), handle.left());
//!     while handle.left() > 0 {
//!         engine.breathe();
//!     }
//!     clocks += clock::ticks() - start;
//!     packets += ready;
//! }
//! println!("{} clocks per packet", clocks as f64 / packets as f64);
//! # Ok(())
//! # }
//! ```

use std::collections::HashSet;
use std::hint::black_box;
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellows_engine::{App, Counters, Io, Output, Port, Ports, counters};
use bellows_packet::{CAPACITY, DATA_ROOM, LINE, Packet, Template, pool};
use bellows_sys::cache;
use bellows_sys::memory::{HUGE_PAGE, Pages, Words};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::residence::{Displacement, Residence, bytes};
use crate::traffic::{Traffic, TrafficError};

/// The maximum number of prepared packets.
const MAX_READY: usize = 8_192;

/// The maximum number of prepared packets in large buffers. The default packet pool has twice as many.
const MAX_LARGE: usize = 256;

/// Bytes that a packet takes besides its data: its handle in this round and in the next, its place in the list of free
/// buffers, and some slack.
const PACKET_OVERHEAD: usize = 64;

/// The minimum number of prepared bursts: one to reload the engine's own data, and one that is timed.
const MIN_BURSTS: usize = 2;

/// The maximum number of offered packets that wait, like the queue of a network interface. Further packets are missed.
const BACKLOG: u64 = 1_024;

/// The options of a supply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SupplyConfig {
    /// The contents of the packets.
    pub traffic: Traffic,
    /// The level that packets are in when they are sent. If `None`, they are written when they are sent.
    pub residence: Option<Residence>,
    /// Offered packets per second. If `None`, as many as the network takes.
    pub offered: Option<f64>,
    /// The number of supplies in the network, which share the level.
    pub supplies: usize,
}

impl SupplyConfig {
    /// A single supply of this traffic at the maximum rate, with packets written when they are sent.
    pub fn new(traffic: Traffic) -> SupplyConfig {
        SupplyConfig { traffic, residence: None, offered: None, supplies: 1 }
    }
}

/// Why there are no packets.
#[derive(Debug, thiserror::Error)]
pub enum SupplyError {
    /// The traffic is invalid.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The rate is invalid.
    #[error("{0} packets per second cannot be offered; give a rate above 0")]
    Rate(f64),
    /// The packet pool has too few buffers.
    #[error(
        "the packet pool has only {got} buffers for {wanted} packets to prepare; use a smaller burst, or make sure that \
         the measured apps keep fewer packets"
    )]
    Pool {
        /// The number of packets to prepare.
        wanted: usize,
        /// The number of available buffers.
        got: usize,
    },
    /// There is no memory for the data that displaces packets.
    #[error("no memory to displace packets ({}): {source}; check the memory limits", bytes(*.length))]
    Memory {
        /// The requested bytes.
        length: usize,
        /// The system's error.
        source: std::io::Error,
    },
}

/// What a packet is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The packet's tag.
    pub tag: u32,
}

impl Frame {
    /// A packet of this frame, in a buffer that has room for it.
    #[inline(always)]
    fn fill(&self, packet: &mut Packet) {
        packet.append(&self.bytes);
        packet.set_tag(self.tag);
    }

    fn is_large(&self) -> bool {
        self.bytes.len() > DATA_ROOM
    }

    /// The bytes of its cache lines.
    fn lines(&self) -> usize {
        self.bytes.len().next_multiple_of(LINE)
    }
}

/// Sends the packets that its [`Handle`] has prepared.
pub struct Supply {
    content: Content,
    pace: Option<SupplyPace>,
    /// The number of rounds that have begun.
    round: u64,
    shared: Arc<SupplyShared>,
}

/// The packets that a supply sends.
enum Content {
    /// Prepared packets, the next one last.
    Ready(Vec<Packet>),
    /// Packets written when they are sent, all from one frame.
    Alike(Template),
    /// Packets written when they are sent, from several frames in turn.
    InTurn { frames: Vec<Frame>, next: usize },
}

/// State shared by a supply and its handle.
struct SupplyShared {
    /// The number of prepared rounds.
    round: AtomicU64,
    /// Packets of this round that have not been sent.
    left: AtomicUsize,
    missed: AtomicU64,
    /// The packets of the next round; after it has begun, the rest of the previous one.
    next: Mutex<Vec<Packet>>,
}

impl SupplyShared {
    fn next(&self) -> MutexGuard<'_, Vec<Packet>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prepares packets for a [`Supply`], on the engine's thread and between its breaths.
pub struct Handle {
    /// `None` if packets are written when they are sent.
    reservoir: Option<Reservoir>,
    shared: Arc<SupplyShared>,
}

struct Reservoir {
    frames: Vec<Frame>,
    /// The index of the next frame.
    next: usize,
    /// The number of packets in a round.
    packets: usize,
    residence: Residence,
    /// Memory to read to push packets out of a level.
    displacing: Option<Words>,
    random: Rng,
    footprint: Footprint,
}

/// The memory footprint of a round's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// The number of packets in a round.
    pub packets: usize,
    /// The bytes of the cache lines of their data.
    pub bytes: usize,
    /// The number of pages of their data, which the TLBs must cover. 0 before the first round.
    pub pages: usize,
    /// The bytes of such a page.
    pub page_size: usize,
    /// Whether the data takes at most three quarters of the level. Otherwise only the first line of each packet is sure
    /// to be there.
    pub fits: bool,
}

/// Makes a supply, and the handle that prepares its packets. `burst` is the engine's.
///
/// # Errors
/// See [`SupplyError`].
pub fn pair(config: &SupplyConfig, burst: usize) -> Result<(Supply, Handle), SupplyError> {
    let frames = config.traffic.frames()?.into_iter().map(|bytes| Frame { bytes, tag: 0 });
    pair_of(frames.collect(), config, burst)
}

/// As [`pair`], with these frames in place of the traffic's.
///
/// # Errors
/// See [`SupplyError`].
pub fn pair_of(frames: Vec<Frame>, config: &SupplyConfig, burst: usize) -> Result<(Supply, Handle), SupplyError> {
    let pace = config.offered.map(SupplyPace::new).transpose()?;
    let shared = Arc::new(SupplyShared {
        round: AtomicU64::new(0),
        left: AtomicUsize::new(if config.residence.is_none() { usize::MAX } else { 0 }),
        missed: AtomicU64::new(0),
        next: Mutex::default(),
    });
    let (content, reservoir) = match config.residence {
        Some(residence) => {
            let reservoir = Reservoir::new(frames, residence, config.supplies.max(1), burst.clamp(1, CAPACITY))?;
            (Content::Ready(Vec::new()), Some(reservoir))
        }
        None => (Content::of(frames), None),
    };
    let supply = Supply { content, pace, round: 0, shared: Arc::clone(&shared) };
    Ok((supply, Handle { reservoir, shared }))
}

impl Handle {
    /// Prepares the packets of a round. Unsent packets of the previous round are discarded.
    ///
    /// # Errors
    /// [`SupplyError::Pool`]: the packet pool has too few buffers.
    pub fn prepare(&mut self) -> Result<(), SupplyError> {
        if let Some(reservoir) = &mut self.reservoir {
            let mut next = self.shared.next();
            reservoir.fill(&mut next)?;
            self.shared.left.store(reservoir.packets, Relaxed);
        }
        self.shared.round.fetch_add(1, Relaxed);
        Ok(())
    }

    /// The number of packets of this round that have not been sent; `usize::MAX` if no level was chosen.
    pub fn left(&self) -> usize {
        self.shared.left.load(Relaxed)
    }

    /// Offered packets that were dropped because the backlog was full.
    pub fn missed(&self) -> u64 {
        self.shared.missed.load(Relaxed)
    }

    /// The memory footprint of a round's packets, with the pages of the first round; `None` if packets are written when
    /// they are sent.
    pub fn footprint(&self) -> Option<Footprint> {
        self.reservoir.as_ref().map(|reservoir| reservoir.footprint)
    }
}

impl Reservoir {
    fn new(frames: Vec<Frame>, residence: Residence, supplies: usize, burst: usize) -> Result<Reservoir, SupplyError> {
        let displacing = match residence.displacement {
            Displacement::Read(length) => {
                let mut words =
                    Words::new(length / size_of::<u64>()).map_err(|source| SupplyError::Memory { length, source })?;
                // Unwritten pages would all map to the zero page.
                words.fill(1);
                Some(words)
            }
            Displacement::None | Displacement::Evict => None,
        };
        let hold = residence.hold / supplies;
        let packets = ready(&frames, hold, burst);
        let (next, random) = (0, Rng::with_seed(7));
        let mut reservoir =
            Reservoir { frames, next, packets, residence, displacing, random, footprint: Footprint::default() };
        let bytes = reservoir.frames.iter().cycle().take(packets).map(Frame::lines).sum();
        reservoir.footprint = Footprint { packets, bytes, fits: bytes / 3 <= hold / 2, ..Footprint::default() };
        Ok(reservoir)
    }

    /// Makes the packets of a round in reverse order.
    fn fill(&mut self, packets: &mut Vec<Packet>) -> Result<(), SupplyError> {
        packets.clear();
        let mut buffers = self.buffers()?;
        for place in 0..self.packets {
            let frame = &self.frames[(self.next + place) % self.frames.len()];
            let buffer = if frame.is_large() { Packet::with_room(frame.bytes.len()) } else { buffers.pop() };
            let Some(mut packet) = buffer else { return Err(self.empty(place)) };
            frame.fill(&mut packet);
            packets.push(packet);
        }
        packets.reverse();
        self.next = (self.next + self.packets) % self.frames.len();
        if self.footprint.pages == 0 {
            self.count_pages(packets);
        }
        self.displace(packets);
        Ok(())
    }

    /// Buffers for the ordinary packets of a round.
    fn buffers(&mut self) -> Result<Vec<Packet>, SupplyError> {
        let frames = self.frames.iter().cycle().skip(self.next).take(self.packets);
        let count = frames.filter(|frame| !frame.is_large()).count();
        let mut buffers: Vec<Packet> = Packet::allocate_burst(count).collect();
        if buffers.len() < count {
            return Err(self.empty(buffers.len()));
        }
        match self.residence.displacement {
            // Adjacent buffers spread evenly over the cache sets.
            Displacement::None => buffers.sort_unstable_by_key(|packet| packet.bytes().as_ptr().addr()),
            Displacement::Read(_) | Displacement::Evict => self.random.shuffle(&mut buffers),
        }
        Ok(buffers)
    }

    fn empty(&self, got: usize) -> SupplyError {
        SupplyError::Pool { wanted: self.packets, got }
    }

    /// Moves the packets, which have just been written, to their level.
    fn displace(&self, packets: &[Packet]) {
        match self.residence.displacement {
            // The first line of long packets may have been evicted; it is what every app reads.
            Displacement::None => packets.iter().for_each(|packet| {
                black_box(packet.bytes().first().copied());
            }),
            Displacement::Read(_) => {
                let words = self.displacing.iter().flat_map(|words| words.iter());
                black_box(words.step_by(LINE / size_of::<u64>()).fold(0u64, |sum, word| sum.wrapping_add(*word)));
            }
            Displacement::Evict => {
                cache::evict(packets.iter().map(Packet::buffer));
            }
        }
        // Reload the handles, which should be in the first level.
        black_box(packets.iter().map(Packet::len).sum::<usize>());
    }

    /// Counts the pages of the packets.
    fn count_pages(&mut self, packets: &[Packet]) {
        let page_size = if pool::pages() == Pages::Plain { 4096 } else { HUGE_PAGE };
        let pages = |packet: &Packet| {
            let range = packet.bytes().as_ptr_range();
            range.start.addr() / page_size..range.end.addr().div_ceil(page_size)
        };
        let pages: HashSet<usize> = packets.iter().flat_map(pages).collect();
        self.footprint = Footprint { pages: pages.len(), page_size, ..self.footprint };
    }
}

/// The number of packets to prepare: whole bursts.
fn ready(frames: &[Frame], hold: usize, burst: usize) -> usize {
    let each = frames.iter().map(|frame| frame.lines() + PACKET_OVERHEAD).sum::<usize>().div_ceil(frames.len());
    let large = frames.iter().filter(|frame| frame.is_large()).count();
    let most = (MAX_LARGE * frames.len()).checked_div(large).unwrap_or(MAX_READY).min(MAX_READY);
    let bursts = (hold / each).min(most) / burst;
    bursts.max(MIN_BURSTS) * burst
}

impl Content {
    /// Packets that are written when they are sent.
    fn of(frames: Vec<Frame>) -> Content {
        match &frames[..] {
            [Frame { bytes, tag: 0 }] if let Some(template) = Template::new(bytes) => Content::Alike(template),
            _ => Content::InTurn { frames, next: 0 },
        }
    }

    /// Sends up to `wanted` packets. Hot.
    #[inline(always)]
    fn send(&mut self, wanted: usize, output: &mut Output<'_>) -> usize {
        match self {
            Content::Ready(packets) => {
                let rest = packets.len().saturating_sub(wanted);
                let sent = packets.len() - rest;
                packets.drain(rest..).rev().for_each(|packet| output.push(packet));
                sent
            }
            Content::Alike(template) => output.fill(wanted, template),
            Content::InTurn { frames, next } => send_in_turn(frames, next, wanted, output),
        }
    }
}

fn send_in_turn(frames: &[Frame], next: &mut usize, wanted: usize, output: &mut Output<'_>) -> usize {
    let mut burst = Packet::allocate_burst(wanted);
    for sent in 0..wanted {
        let frame = &frames[*next];
        let packet = if frame.is_large() { Packet::with_room(frame.bytes.len()) } else { burst.next() };
        let Some(mut packet) = packet else { return sent };
        frame.fill(&mut packet);
        output.push(packet);
        *next = if *next + 1 == frames.len() { 0 } else { *next + 1 };
    }
    wanted
}

/// Offers packets at a rate.
struct SupplyPace {
    per_nano: f64,
    /// When the first packet of this round was due, in nanoseconds of the engine's clock.
    start: Option<u64>,
    /// Packets since then that were sent or missed.
    done: u64,
}

impl SupplyPace {
    fn new(per_second: f64) -> Result<SupplyPace, SupplyError> {
        if per_second.is_finite() && per_second > 0.0 {
            Ok(SupplyPace { per_nano: per_second / 1e9, start: None, done: 0 })
        } else {
            Err(SupplyError::Rate(per_second))
        }
    }

    /// Restarts with the next packet.
    fn restart(&mut self) {
        self.start = None;
        self.done = 0;
    }

    /// The number of packets that are due, and of those missed because the backlog is full.
    fn due(&mut self, now: u64) -> (u64, u64) {
        let start = *self.start.get_or_insert(now);
        let all = (now.saturating_sub(start) as f64 * self.per_nano) as u64 + 1;
        let due = all.saturating_sub(self.done);
        let missed = due.saturating_sub(BACKLOG);
        self.done += missed;
        (due - missed, missed)
    }
}

counters! { Supply;
    count BUFFER_WAITS = "buffer_waits", "attempts that the pool had too few buffers for: the packets are sent later", in "attempts";
    count MISSED = "missed", "packets that were offered while the backlog was full";
}

impl App for Supply {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the packets")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    /// Sends the packets that are due, at most a burst. Hot.
    fn pull(&mut self, io: &Io<Self>) {
        if self.shared.round.load(Relaxed) != self.round {
            self.begin_round();
        }
        let left = self.shared.left.load(Relaxed);
        if left == 0 {
            return;
        }
        let mut output = io.output(0);
        let mut wanted = io.burst().min(output.room()).min(left);
        if let Some(pace) = &mut self.pace {
            let (due, missed) = pace.due(io.now());
            wanted = wanted.min(due as usize);
            if missed > 0 {
                self.shared.missed.fetch_add(missed, Relaxed);
                io.count(Supply::MISSED, missed);
            }
        }
        let sent = self.content.send(wanted, &mut output);
        io.count(Supply::BUFFER_WAITS, (sent < wanted).into());
        if let Some(pace) = &mut self.pace {
            pace.done += sent as u64;
        }
        if let Content::Ready(packets) = &self.content {
            // The handle made these packets between two breaths.
            io.brought_in(sent);
            self.shared.left.store(packets.len(), Relaxed);
        }
    }
}

impl Supply {
    #[cold]
    fn begin_round(&mut self) {
        self.round = self.shared.round.load(Relaxed);
        if let Content::Ready(packets) = &mut self.content {
            mem::swap(packets, &mut *self.shared.next());
        }
        self.pace.iter_mut().for_each(SupplyPace::restart);
    }
}
