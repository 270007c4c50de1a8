//! The source of a measurement: packets that lie in a wanted level of the memory hierarchy when an app gets them.
//!
//! A [`Supply`] sends packets that its [`Handle`] has made ready outside the timed part. [`Handle::rest`] makes all of them
//! anew from the frames of some [`Traffic`], whatever became of those of the round before, and then moves their data:
//!
//! - `l1`: there are few of them, and nothing is done but look at them once more;
//! - `l2`, `l3`: they take half of that level at most, and so much else is read that they leave the level before;
//! - `dram`: they are evicted from all caches.
//!
//! A round sends each of them once. So an app may change, drop, copy or hold packets as it likes: what it gets is always
//! what the frames say, and never lies nearer than it should. The sink is any: freed buffers become packets again.
//!
//! The timed part touches no data of a packet before the app does. It moves handles, because links hold handles: an app
//! finds these in the first level, as it does when a driver has just written them. Beyond the first level buffers come in
//! random order, so that no prefetcher guesses the next.
//!
//! Without a level to lie in, packets are written when they are sent, as the app `source` does. They are then in the first
//! level, and the writing is timed.
//!
//! ```
//! use bellows_apps::sink::Sink;
//! use bellows_engine::{Engine, Network, Settings};
//! use bellows_lab::residence::{Levels, Resident};
//! use bellows_lab::supply::{Order, pair};
//! use bellows_sys::clock;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let residence = Levels::simulated().residence(Resident::L2)?;
//! let order = Order { residence: Some(residence), ..Order::new("imix".parse()?) };
//! let settings = Settings::default();
//! let (supply, mut handle) = pair(&order, settings.burst)?;
//! let network = Network::new().app("supply", supply).app("sink", Sink).link("supply.output -> sink.input")?;
//! let mut engine = Engine::new(network, settings, None)?;
//! let (mut clocks, mut packets) = (0, 0);
//! for _ in 0..10 {
//!     handle.rest()?;
//!     // Brings back what the engine itself keeps in the caches.
//!     engine.breathe();
//!     let (start, ready) = (clock::ticks(), handle.left());
//!     while handle.left() > 0 {
//!         engine.breathe();
//!     }
//!     clocks += clock::ticks() - start;
//!     packets += ready;
//! }
//! println!("{} clocks a packet", clocks as f64 / packets as f64);
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

use crate::residence::{Residence, WayOut, bytes};
use crate::traffic::{Traffic, TrafficError};

/// The most packets that are ready at a time.
const MOST: usize = 8_192;

/// The most of them in large buffers, of which a pool by default has twice as many.
const MAX_LARGE: usize = 256;

/// Bytes that a packet takes beside its data: its handle in this round and in the next, its place in the list of free
/// buffers, and what the others leave unused.
const BOOKS: usize = 64;

/// Bursts that are ready at least: one to bring the engine's own data back, and one that is timed.
const MIN_BURSTS: usize = 2;

/// Packets that wait when more are offered than are taken, as many as a network interface usually keeps. Later ones are
/// missed.
const BACKLOG: u64 = 1_024;

/// What is asked of a supply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// What the packets hold.
    pub traffic: Traffic,
    /// Where they lie when they are sent; if nothing is said, they are written then.
    pub residence: Option<Residence>,
    /// Packets a second; as many as are taken if nothing is said.
    pub offered: Option<f64>,
    /// How many supplies the network has, which share the level.
    pub supplies: usize,
}

impl Order {
    /// Such traffic, as fast as it is taken, written when it is sent, by one supply.
    pub fn new(traffic: Traffic) -> Order {
        Order { traffic, residence: None, offered: None, supplies: 1 }
    }
}

/// Why there are no packets.
#[derive(Debug, thiserror::Error)]
pub enum SupplyError {
    /// The frames cannot be had.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The rate is none.
    #[error("{0} packets a second cannot be offered; give a rate above 0")]
    Rate(f64),
    /// The pool has too few buffers.
    #[error(
        "the pool gives {got} of {wanted} packets that are to be ready; ask for a smaller burst, or see that the \
         measured apps do not keep so many"
    )]
    Pool {
        /// Packets to be ready.
        wanted: usize,
        /// Buffers that there were.
        got: usize,
    },
    /// There is no memory to read in their place.
    #[error("no memory to displace packets with ({}): {source}; see that limits allow it", bytes(*.length))]
    Memory {
        /// Bytes that were asked for.
        length: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Sends the packets that its [`Handle`] has made ready.
pub struct Supply {
    stock: Stock,
    pace: Option<Pace>,
    /// Rounds that have begun.
    round: u64,
    shared: Arc<Shared>,
}

/// What a supply sends.
enum Stock {
    /// Packets that are ready, the next one last.
    Ready(Vec<Packet>),
    /// Packets that are written when they are sent: all alike.
    Alike(Template),
    /// The same, in turn.
    InTurn { frames: Vec<Vec<u8>>, next: usize },
}

/// What a supply and its handle share.
struct Shared {
    /// Rounds that have been made ready.
    round: AtomicU64,
    /// Packets of this round that have not been sent.
    left: AtomicUsize,
    missed: AtomicU64,
    /// What the next round sends; once that has begun, what is left of the one before.
    next: Mutex<Vec<Packet>>,
}

impl Shared {
    fn next(&self) -> MutexGuard<'_, Vec<Packet>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes packets ready for a [`Supply`], on the thread of the engine and between its breaths.
pub struct Handle {
    /// `None` if packets are written when they are sent.
    reservoir: Option<Reservoir>,
    shared: Arc<Shared>,
}

struct Reservoir {
    frames: Vec<Vec<u8>>,
    /// The frame that comes next.
    next: usize,
    /// How many packets a round has.
    packets: usize,
    residence: Residence,
    /// Memory to read when packets are to leave a level.
    wash: Option<Words>,
    random: Rng,
    reach: Reach,
}

/// Over how much memory the packets of a round are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Packets of a round.
    pub packets: usize,
    /// Lines that their data takes, in bytes.
    pub bytes: usize,
    /// Pages that their data lies on: what the translation buffers must reach. 0 before the first round.
    pub pages: usize,
    /// Bytes of such a page.
    pub page_size: usize,
    /// Whether the data takes no more than three quarters of the level. If it takes more, an app may find there no more
    /// than the first line of each packet.
    pub fits: bool,
}

/// A supply as it was ordered, and the handle that makes packets ready for it. `burst` is the engine's.
///
/// # Errors
/// See [`SupplyError`].
pub fn pair(order: &Order, burst: usize) -> Result<(Supply, Handle), SupplyError> {
    let frames = order.traffic.frames()?;
    let pace = order.offered.map(Pace::new).transpose()?;
    let shared = Arc::new(Shared {
        round: AtomicU64::new(0),
        left: AtomicUsize::new(if order.residence.is_none() { usize::MAX } else { 0 }),
        missed: AtomicU64::new(0),
        next: Mutex::default(),
    });
    let (stock, reservoir) = match order.residence {
        Some(residence) => {
            let reservoir = Reservoir::new(frames, residence, order.supplies.max(1), burst.clamp(1, CAPACITY))?;
            (Stock::Ready(Vec::new()), Some(reservoir))
        }
        None => (Stock::of(frames), None),
    };
    let supply = Supply { stock, pace, round: 0, shared: Arc::clone(&shared) };
    Ok((supply, Handle { reservoir, shared }))
}

impl Handle {
    /// Makes the packets of a round ready. Those of the round before that have not been sent never are.
    ///
    /// # Errors
    /// [`SupplyError::Pool`]: the pool has too few buffers.
    pub fn rest(&mut self) -> Result<(), SupplyError> {
        if let Some(reservoir) = &mut self.reservoir {
            let mut next = self.shared.next();
            reservoir.fill(&mut next)?;
            self.shared.left.store(reservoir.packets, Relaxed);
        }
        self.shared.round.fetch_add(1, Relaxed);
        Ok(())
    }

    /// How many packets of this round have not been sent; without a level to lie in there is no end of them.
    pub fn left(&self) -> usize {
        self.shared.left.load(Relaxed)
    }

    /// Packets that were to be offered and were not, because those before them had not been taken.
    pub fn missed(&self) -> u64 {
        self.shared.missed.load(Relaxed)
    }

    /// Over how much memory the packets of a round are spread, the pages as of the first one; `None` if they are written
    /// when they are sent.
    pub fn reach(&self) -> Option<Reach> {
        self.reservoir.as_ref().map(|reservoir| reservoir.reach)
    }
}

impl Reservoir {
    fn new(
        frames: Vec<Vec<u8>>,
        residence: Residence,
        supplies: usize,
        burst: usize,
    ) -> Result<Reservoir, SupplyError> {
        let wash = match residence.way_out {
            WayOut::Wash(length) => {
                let mut words =
                    Words::new(length / size_of::<u64>()).map_err(|source| SupplyError::Memory { length, source })?;
                // Pages that nobody has written to are all the same one.
                words.fill(1);
                Some(words)
            }
            WayOut::Stay | WayOut::Evict => None,
        };
        let hold = residence.hold / supplies;
        let packets = ready(&frames, hold, burst);
        let (next, random) = (0, Rng::with_seed(7));
        let mut reservoir = Reservoir { frames, next, packets, residence, wash, random, reach: Reach::default() };
        let bytes = reservoir.frames.iter().cycle().take(packets).map(|frame| lines(frame)).sum();
        reservoir.reach = Reach { packets, bytes, fits: bytes / 3 <= hold / 2, ..Reach::default() };
        Ok(reservoir)
    }

    /// Makes the packets of a round, the first of them last.
    fn fill(&mut self, packets: &mut Vec<Packet>) -> Result<(), SupplyError> {
        packets.clear();
        let mut buffers = self.buffers()?;
        for place in 0..self.packets {
            let frame = &self.frames[(self.next + place) % self.frames.len()];
            let buffer = if frame.len() <= DATA_ROOM { buffers.pop() } else { Packet::with_room(frame.len()) };
            let Some(mut packet) = buffer else { return Err(self.empty(place)) };
            packet.append(frame);
            packets.push(packet);
        }
        packets.reverse();
        self.next = (self.next + self.packets) % self.frames.len();
        if self.reach.pages == 0 {
            self.survey(packets);
        }
        self.displace(packets);
        Ok(())
    }

    /// Buffers for the ordinary packets of a round.
    fn buffers(&mut self) -> Result<Vec<Packet>, SupplyError> {
        let frames = self.frames.iter().cycle().skip(self.next).take(self.packets);
        let count = frames.filter(|frame| frame.len() <= DATA_ROOM).count();
        let mut buffers: Vec<Packet> = Packet::allocate_burst(count).collect();
        if buffers.len() < count {
            return Err(self.empty(buffers.len()));
        }
        match self.residence.way_out {
            // Neighbours spread evenly over the sets of the cache.
            WayOut::Stay => buffers.sort_unstable_by_key(|packet| packet.bytes().as_ptr().addr()),
            WayOut::Wash(_) | WayOut::Evict => self.random.shuffle(&mut buffers),
        }
        Ok(buffers)
    }

    fn empty(&self, got: usize) -> SupplyError {
        SupplyError::Pool { wanted: self.packets, got }
    }

    /// Moves the packets, which have just been written, to where they are to be.
    fn displace(&self, packets: &[Packet]) {
        match self.residence.way_out {
            // Of long packets the first line may have left; it is what every app looks at.
            WayOut::Stay => packets.iter().for_each(|packet| {
                black_box(packet.bytes().first().copied());
            }),
            WayOut::Wash(_) => {
                let words = self.wash.iter().flat_map(|words| words.iter());
                black_box(words.step_by(LINE / size_of::<u64>()).fold(0u64, |sum, word| sum.wrapping_add(*word)));
            }
            WayOut::Evict => {
                cache::evict(packets.iter().map(Packet::buffer));
            }
        }
        // The handles come back: they are not what is to be far away.
        black_box(packets.iter().map(Packet::len).sum::<usize>());
    }

    /// Sees on how many pages the packets lie.
    fn survey(&mut self, packets: &[Packet]) {
        let page_size = if pool::pages() == Pages::Plain { 4096 } else { HUGE_PAGE };
        let pages = |packet: &Packet| {
            let range = packet.bytes().as_ptr_range();
            range.start.addr() / page_size..range.end.addr().div_ceil(page_size)
        };
        let pages: HashSet<usize> = packets.iter().flat_map(pages).collect();
        self.reach = Reach { pages: pages.len(), page_size, ..self.reach };
    }
}

/// How many packets of these frames are ready at a time: whole bursts of them.
fn ready(frames: &[Vec<u8>], hold: usize, burst: usize) -> usize {
    let each = frames.iter().map(|frame| lines(frame) + BOOKS).sum::<usize>().div_ceil(frames.len());
    let large = frames.iter().filter(|frame| frame.len() > DATA_ROOM).count();
    let most = (MAX_LARGE * frames.len()).checked_div(large).unwrap_or(MOST).min(MOST);
    let bursts = (hold / each).min(most) / burst;
    bursts.max(MIN_BURSTS) * burst
}

/// Bytes of the lines that a frame takes.
fn lines(frame: &[u8]) -> usize {
    frame.len().next_multiple_of(LINE)
}

impl Stock {
    /// Packets that are written when they are sent.
    fn of(frames: Vec<Vec<u8>>) -> Stock {
        match &frames[..] {
            [frame] if let Some(template) = Template::new(frame) => Stock::Alike(template),
            _ => Stock::InTurn { frames, next: 0 },
        }
    }

    /// Sends so many packets, or fewer. Hot.
    #[inline(always)]
    fn send(&mut self, wanted: usize, output: &mut Output<'_>) -> usize {
        match self {
            Stock::Ready(packets) => {
                let rest = packets.len().saturating_sub(wanted);
                let sent = packets.len() - rest;
                packets.drain(rest..).rev().for_each(|packet| output.push(packet));
                sent
            }
            Stock::Alike(template) => output.fill(wanted, template),
            Stock::InTurn { frames, next } => send_in_turn(frames, next, wanted, output),
        }
    }
}

fn send_in_turn(frames: &[Vec<u8>], next: &mut usize, wanted: usize, output: &mut Output<'_>) -> usize {
    let mut burst = Packet::allocate_burst(wanted);
    for sent in 0..wanted {
        let frame = &frames[*next];
        let packet = if frame.len() <= DATA_ROOM { burst.next() } else { Packet::with_room(frame.len()) };
        let Some(mut packet) = packet else { return sent };
        packet.append(frame);
        output.push(packet);
        *next = if *next + 1 == frames.len() { 0 } else { *next + 1 };
    }
    wanted
}

/// Packets that come at a rate.
struct Pace {
    per_nano: f64,
    /// When the first of this round came, in nanoseconds of the engine's clock.
    start: Option<u64>,
    /// Packets since then that were sent or missed.
    done: u64,
}

impl Pace {
    fn new(per_second: f64) -> Result<Pace, SupplyError> {
        if per_second.is_finite() && per_second > 0.0 {
            Ok(Pace { per_nano: per_second / 1e9, start: None, done: 0 })
        } else {
            Err(SupplyError::Rate(per_second))
        }
    }

    /// Begins anew with the next packet.
    fn restart(&mut self) {
        self.start = None;
        self.done = 0;
    }

    /// How many packets wait, and how many more are missed for want of room.
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
    count MISSED = "missed", "packets that were offered while too many others waited to be sent";
}

impl App for Supply {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the packets")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    /// Sends what is due, a burst at most. Hot.
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
        let sent = self.stock.send(wanted, &mut output);
        if sent < wanted {
            io.count_no_buffer(wanted - sent);
        }
        if let Some(pace) = &mut self.pace {
            pace.done += sent as u64;
        }
        if let Stock::Ready(packets) = &self.stock {
            // The handle made them, between two breaths.
            io.brought_in(sent);
            self.shared.left.store(packets.len(), Relaxed);
        }
    }
}

impl Supply {
    #[cold]
    fn begin_round(&mut self) {
        self.round = self.shared.round.load(Relaxed);
        if let Stock::Ready(packets) = &mut self.stock {
            mem::swap(packets, &mut *self.shared.next());
        }
        self.pace.iter_mut().for_each(Pace::restart);
    }
}
