//! The processes that measure: a router between an app that feeds it and one that takes what leaves it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bellows_engine::{App, AppSpec, Engine, Io, Port, Ports, Settings};
use bellows_packet::{Packet, Vector, pool};
use bellows_sys::clock;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::frames::{Flood, HOPS, NETWORK};
use crate::networks::loaded;
use crate::slices::{Sliced, Turn};
use crate::workers::{Contender, fail, settle};

/// Packets in a vector.
const VECTOR: usize = 128;

/// The time before anything is measured: that of the detection of duplicate addresses, and more.
const SETTLE: Duration = Duration::from_secs(3);

/// Packets to forward, and different frames of a flood.
const FORWARDING: usize = 512;
const FLOODING: usize = 4_096;

/// Vectors in a slice, and slices of each kind in a turn.
const SLICE: u64 = 64;
const SLICES: usize = 12;

/// The figures of a turn: clocks of a packet in a vector without and with the flood, and the share of packets lost.
pub(super) const FORWARDED: usize = 0;
pub(super) const MIXED: usize = 1;
pub(super) const LOST: usize = 2;

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FloodsTask {
    pub(super) flood: Flood,
    pub(super) cpu: Option<usize>,
}

/// Lays out the work of one process.
///
/// # Errors
/// None: a failure ends the process.
pub(super) fn lay_out(task: FloodsTask) -> Result<Box<dyn Contender>, String> {
    settle(task.cpu);
    pool::init(pool::Config { packets: 65_536, ..pool::Config::default() }).unwrap_or_else(|error| fail(&error));
    let stock = Arc::new(Mutex::new(Stock::of(task.flood)));
    let mut network = loaded(NETWORK);
    let mut replace = |name: &str, app: AppSpec| match network.apps.iter_mut().find(|other| other.name == name) {
        Some(place) => *place = app,
        None => fail(&format!("the network has no app `{name}`")),
    };
    replace("feed", AppSpec::new("feed", "feed", "", Feed(Arc::clone(&stock))));
    for name in ["left", "right"] {
        replace(name, AppSpec::new(name, "take", "", Take { stock: Arc::clone(&stock), is_v6: task.flood.is_v6() }));
    }
    let settings = Settings { burst: VECTOR, sampling: false, ..Settings::default() };
    let engine = Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error));
    let mut side = Flooding { engine, stock };
    // The router begins to use its IPv6 addresses, and the flood uses up all limits.
    let start = Instant::now();
    while start.elapsed() < SETTLE {
        side.run(true, SLICE);
    }
    Ok(Box::new(side))
}

/// What the apps at the ends share.
struct Stock {
    /// Packets to forward.
    packets: Vec<Packet>,
    /// A frame to forward, in place of a packet that was lost.
    spare: Vec<u8>,
    /// The frames of the flood, and the place of the next one.
    frames: Vec<Vec<u8>>,
    next: usize,
    /// Whether every other packet is one of the flood.
    is_mixed: bool,
    /// Packets to forward that were sent and came back.
    sent: u64,
    returned: u64,
    /// The clocks that the apps at the ends have taken.
    apart: u64,
}

impl Stock {
    fn of(flood: Flood) -> Stock {
        let mut random = Rng::with_seed(11);
        let packet =
            |frame: Vec<u8>| Packet::from_bytes(&frame).unwrap_or_else(|| fail(&"there is no buffer for a packet"));
        let packets = (0..FORWARDING).map(|_| packet(flood.forwarded(&mut random))).collect();
        let frames = (0..FLOODING).map(|_| flood.frame(&mut random)).collect();
        let spare = flood.forwarded(&mut random);
        Stock { packets, spare, frames, next: 0, is_mixed: false, sent: 0, returned: 0, apart: 0 }
    }

    fn forwarding(&mut self) -> Option<Packet> {
        self.packets.pop().or_else(|| Packet::from_bytes(&self.spare))
    }

    fn flooding(&mut self) -> Option<Packet> {
        self.next = (self.next + 1) % self.frames.len();
        Packet::from_bytes(&self.frames[self.next])
    }
}

/// One thread has both apps, so nobody waits.
fn lock(stock: &Mutex<Stock>) -> MutexGuard<'_, Stock> {
    stock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a part of the work that does not count.
fn apart(stock: &Mutex<Stock>, work: impl FnOnce(&mut Stock)) {
    let start = clock::ticks();
    let mut stock = lock(stock);
    work(&mut stock);
    // The second reading of the clock is not in the difference, but in the slice.
    stock.apart += clock::ticks() - start;
}

/// Sends the packets.
struct Feed(Arc<Mutex<Stock>>);

impl App for Feed {
    const INPUTS: Ports = Ports::NONE;
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets to forward, and those of a flood")]);
    const PULLS: bool = true;
    const MAX_FAN_OUT: usize = 0;
    const ENDS: bool = true;

    fn pull(&mut self, io: &Io<Self>) {
        apart(&self.0, |stock| {
            let mut vector = Vector::new();
            for at in 0..VECTOR {
                let is_flood = stock.is_mixed && at % 2 == 1;
                let packet = if is_flood { stock.flooding() } else { stock.forwarding() };
                stock.sent += u64::from(packet.is_some() && !is_flood);
                // A vector has room for a burst.
                packet.into_iter().for_each(|packet| drop(vector.push(packet)));
            }
            io.output(0).send_from(&mut vector);
        });
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// Takes what leaves the router, and restores what was forwarded.
struct Take {
    stock: Arc<Mutex<Stock>>,
    is_v6: bool,
}

impl App for Take {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "what leaves the router")]);
    const OUTPUTS: Ports = Ports::NONE;
    const ENDS: bool = true;

    fn push(&mut self, io: &Io<Self>) {
        apart(&self.stock, |stock| {
            for mut packet in &mut io.input(0) {
                if self.restore(packet.bytes_mut()) {
                    stock.packets.push(packet);
                    stock.returned += 1;
                }
            }
        });
    }
}

impl Take {
    /// Makes a forwarded frame as it was. False if it is another one.
    fn restore(&self, frame: &mut [u8]) -> bool {
        let hops = if self.is_v6 { 21 } else { 22 };
        let is_forwarded = frame.len() < 80 && frame.get(hops) == Some(&(HOPS - 1));
        if is_forwarded {
            frame[hops] = HOPS;
            frame[..6].copy_from_slice(&super::frames::MAC);
            if !self.is_v6 {
                let sum = u16::from_be_bytes([frame[24], frame[25]]);
                // What the router has added (RFC 1141).
                let (less, borrowed) = sum.overflowing_sub(0x100);
                frame[24..26].copy_from_slice(&(less - u16::from(borrowed)).to_be_bytes());
            }
        }
        is_forwarded
    }
}

/// A router under a flood.
struct Flooding {
    engine: Engine,
    stock: Arc<Mutex<Stock>>,
}

impl Flooding {
    /// Runs some vectors. Returns the clocks that the router took.
    fn run(&mut self, is_mixed: bool, vectors: u64) -> u64 {
        lock(&self.stock).is_mixed = is_mixed;
        let before = lock(&self.stock).apart;
        let start = clock::ticks();
        self.engine.breathe_times(vectors);
        (clock::ticks() - start).saturating_sub(lock(&self.stock).apart - before)
    }
}

impl Contender for Flooding {
    fn turn(&mut self) -> Turn {
        let (mut plain, mut mixed) = (Vec::new(), Vec::new());
        let (sent, returned) = {
            let stock = lock(&self.stock);
            (stock.sent, stock.returned)
        };
        for slice in 0..=SLICES {
            let times = [false, true].map(|is_mixed| self.run(is_mixed, SLICE));
            // The first one warms the caches.
            if slice > 0 {
                plain.push((SLICE * VECTOR as u64, times[0] as f64));
                mixed.push((SLICE * VECTOR as u64, times[1] as f64));
            }
        }
        let stock = lock(&self.stock);
        let (sent, returned) = (stock.sent - sent, stock.returned - returned);
        let (plain, mixed) = (Sliced::of(&plain), Sliced::of(&mixed));
        let lost = 1.0 - returned as f64 / sent as f64;
        Turn::of(vec![plain.clocks, mixed.clocks, lost], &[plain, mixed])
    }
}
