//! The processes that measure: two ends of a tunnel, and the cipher alone by each library.

use std::sync::Arc;

use bellows_engine::{Engine, Network, Settings};
use bellows_esp::{Algorithm, trailer_length};
use bellows_packet::{Packet, pool};
use bellows_sys::clock;
use bellows_vpn::esp::{self, Esp};
use bellows_wire::{IpProtocol, Ipv4Header};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::bare::{self, BareCipher};
use crate::benchmarks::router::circulation::{Circulator, Restore, Stamp, Times, VECTOR};
use crate::networks::{configured, linked};
use crate::slices::{Sliced, Turn, sliced};
use crate::workers::{Contender, fail, settle};

/// The figures of a turn: two of the app, then two of each library's cipher. To seal comes first, to open second.
pub(super) const DIRECTIONS: [&str; 2] = ["seal", "open"];

/// Packets that go round, and those of the bare ciphers.
const IN_FLIGHT: usize = 2 * VECTOR;

/// Packets in a slice, and slices in a turn.
const SLICE: usize = 4_096;
const SLICES: usize = 4;

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct EspTask {
    pub(super) algorithm: String,
    /// Bytes of the packets that are sealed.
    pub(super) length: usize,
    pub(super) cpu: Option<usize>,
}

/// Lays out the work of one process.
///
/// # Errors
/// If there is no such cipher.
pub(super) fn lay_out(task: EspTask) -> Result<Box<dyn Contender>, String> {
    settle(task.cpu);
    pool::init(pool::Config::default()).unwrap_or_else(|error| fail(&error));
    let algorithm: Algorithm = task.algorithm.parse().map_err(|error| format!("{error}"))?;
    let times = Arc::new(Times::default());
    let engine = engine(algorithm, task.length, &times);
    let mut measured = Measured { engine, times, bare: BareCiphers::new(algorithm, task.length) };
    measured.circulate();
    measured.times.take();
    Ok(Box::new(measured))
}

/// The key of one direction.
fn key(algorithm: Algorithm, byte: u8) -> String {
    format!("{byte:02x}").repeat(algorithm.material_length())
}

/// A packet to seal.
fn packet(length: usize) -> Packet {
    let mut frame = vec![0; ETHERNET + length];
    frame[ETHERNET - 2..ETHERNET].copy_from_slice(&[8, 0]);
    let header = Ipv4Header {
        src: [192, 0, 2, 1].into(),
        dst: [192, 0, 2, 2].into(),
        protocol: IpProtocol::UDP,
        ttl: 64,
        traffic_class: 0,
        identification: 0,
        dont_fragment: true,
    };
    header.emit(&mut frame[ETHERNET..]).unwrap_or_else(|error| fail(&error));
    Packet::from_bytes(&frame).unwrap_or_else(|| fail(&"no buffer"))
}

/// What was opened is what was sealed.
struct Unchanged;

impl Restore for Unchanged {
    fn restore(&self, _: &mut Packet) {}
}

/// A network of two ends whose packets go round.
fn engine(algorithm: Algorithm, length: usize, times: &Arc<Times>) -> Engine {
    let end = |local: &str, remote: &str, [inbound, outbound]: [u8; 2]| {
        let direction = |byte: u8| json!({"spi": 0x1000 + u32::from(byte), "algorithm": algorithm.name(), "key": key(algorithm, byte)});
        let pair = json!({"remote": remote, "inbound": direction(inbound), "outbound": direction(outbound)});
        let config: esp::Config = serde_json::from_value(json!({"local": local, "associations": {"site": pair}}))
            .unwrap_or_else(|error| fail(&error));
        configured::<Esp>(config)
    };
    let packets = (0..IN_FLIGHT).map(|_| packet(length)).collect();
    let mut network = Network::new()
        .app("circulator", Circulator::new(packets, Unchanged))
        .app("near", end("2001:db8::1", "2001:db8::2", [1, 2]))
        .app("far", end("2001:db8::2", "2001:db8::1", [2, 1]));
    for place in 0..4 {
        network = network.app(&format!("stamp{place}"), Stamp { times: Arc::clone(times), place });
    }
    let network = linked(
        network,
        [
            "circulator.output -> stamp0.input",
            "stamp0.output -> stamp1.input",
            "stamp1.output -> near.site",
            "near.ip6 -> stamp2.input",
            "stamp2.output -> far.ip6",
            "far.site -> stamp3.input",
            "stamp3.output -> circulator.input",
        ],
    );
    let settings = Settings { burst: VECTOR, sampling: false, ..Settings::default() };
    Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error))
}

/// The cipher alone by each library, over the same packets, which are none of the app's.
struct BareCiphers {
    ciphers: Vec<Box<dyn BareCipher>>,
    packets: Vec<Packet>,
    number: u64,
}

impl BareCiphers {
    fn new(algorithm: Algorithm, length: usize) -> BareCiphers {
        // As much as the app encrypts, and the ICV.
        let sealed = |mut packet: Packet| {
            packet.extend(trailer_length(length));
            packet
        };
        let packets = (0..IN_FLIGHT).map(|_| sealed(packet(length))).collect();
        let ciphers = bare::ciphers(algorithm).into_iter().map(|(_, cipher)| cipher).collect();
        BareCiphers { ciphers, packets, number: 0 }
    }

    /// Times each cipher in both directions, clocks a packet.
    fn times(&mut self) -> Vec<Sliced> {
        let cost = clock::cost();
        let mut times = Vec::new();
        for cipher in &self.ciphers {
            let mut slices = [Vec::new(), Vec::new()];
            for slice in 0..=2 * SLICES {
                let mut clocks = [0, 0];
                for _ in 0..SLICE / IN_FLIGHT {
                    let start = clock::ticks();
                    cipher.seal(self.number, &mut self.packets);
                    let middle = clock::ticks();
                    let is_authentic = cipher.open(self.number, &mut self.packets);
                    let end = clock::ticks();
                    if !is_authentic {
                        fail(&"the cipher does not open what it has sealed");
                    }
                    clocks[0] += (middle - start).saturating_sub(cost);
                    clocks[1] += (end - middle).saturating_sub(cost);
                    self.number += self.packets.len() as u64;
                }
                // The first one warms the caches.
                if slice > 0 {
                    slices.iter_mut().zip(clocks).for_each(|(all, clocks)| all.push((SLICE as u64, clocks as f64)));
                }
            }
            times.extend(slices.map(|slices| Sliced::of(&slices)));
        }
        times
    }
}

/// The worker's side.
struct Measured {
    engine: Engine,
    times: Arc<Times>,
    bare: BareCiphers,
}

impl Measured {
    /// Has packets go round. Returns how often one went.
    fn circulate(&mut self) -> usize {
        self.engine.breathe_times((SLICE / VECTOR) as u64);
        SLICE
    }
}

impl Contender for Measured {
    fn turn(&mut self) -> Turn {
        self.circulate();
        self.times.take();
        let mut packets = 0;
        let engine = sliced(SLICES, || packets += self.circulate());
        let [_, stamp, seal, open, ..] = self.times.take();
        let each = |clocks: u64| (clocks as f64 - stamp as f64) / packets as f64;
        let bare = self.bare.times();
        let figures = [each(seal), each(open)].into_iter().chain(bare.iter().map(|sliced| sliced.clocks));
        Turn::of(figures.collect(), &[&[engine][..], &bare].concat())
    }
}
