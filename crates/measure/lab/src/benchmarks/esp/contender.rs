//! The processes that measure: two ends of a tunnel, and the cipher alone.

use std::sync::Arc;

use bellows_engine::{Engine, Network, Settings};
use bellows_esp::{Algorithm, Cipher, ICV, Keys, trailer_length};
use bellows_packet::{Packet, pool};
use bellows_sys::clock;
use bellows_vpn::esp::{self, Esp};
use bellows_wire::{IpProtocol, Ipv4Header};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::benchmarks::router::circulation::{Circulator, Restore, Stamp, Times, VECTOR};
use crate::networks::{configured, linked};
use crate::slices::{Sliced, Turn, sliced};
use crate::workers::{Contender, fail, settle};

/// The figures of a turn.
pub(super) const FIGURES: [&str; 4] = ["seal", "open", "bare seal", "bare open"];

/// Packets that go round, and those of the bare cipher.
const IN_FLIGHT: usize = 2 * VECTOR;

/// Packets in a slice, and slices in a turn.
const SLICE: usize = 4_096;
const SLICES: usize = 4;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

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
    let mut measured = Measured { engine, times, bare: BareCipher::new(algorithm, task.length) };
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

/// The cipher alone, over packets of its own.
struct BareCipher {
    cipher: Cipher,
    packets: Vec<Packet>,
    number: u64,
}

impl BareCipher {
    fn new(algorithm: Algorithm, length: usize) -> BareCipher {
        let keys = Keys::parse(algorithm, &key(algorithm, 3)).unwrap_or_else(|error| fail(&error));
        // As much as the app encrypts, and the ICV.
        let sealed = |mut packet: Packet| {
            packet.extend(trailer_length(length));
            packet
        };
        let packets = (0..IN_FLIGHT).map(|_| sealed(packet(length))).collect();
        BareCipher { cipher: Cipher::new(&keys), packets, number: 0 }
    }

    fn seal(&mut self) {
        for (number, packet) in (self.number..).zip(&mut self.packets) {
            if let Some((data, icv)) = packet.bytes_mut()[ETHERNET..].split_last_chunk_mut::<ICV>() {
                self.cipher.seal(&number.to_be_bytes(), &[7; 12], data, icv);
            }
        }
    }

    fn open(&mut self) {
        for (number, packet) in (self.number..).zip(&mut self.packets) {
            if let Some((data, icv)) = packet.bytes_mut()[ETHERNET..].split_last_chunk_mut::<ICV>() {
                let opened = self.cipher.open(&number.to_be_bytes(), &[7; 12], data, icv);
                opened.unwrap_or_else(|_| fail(&"the cipher does not open what it has sealed"));
            }
        }
        self.number += self.packets.len() as u64;
    }
}

/// The worker's side.
struct Measured {
    engine: Engine,
    times: Arc<Times>,
    bare: BareCipher,
}

impl Measured {
    /// Has packets go round. Returns how often one went.
    fn circulate(&mut self) -> usize {
        self.engine.breathe_times((SLICE / VECTOR) as u64);
        SLICE
    }

    /// Times the cipher in both directions, clocks a packet.
    fn cipher(&mut self) -> [Sliced; 2] {
        let cost = clock::cost();
        let mut slices = [Vec::new(), Vec::new()];
        for slice in 0..=2 * SLICES {
            let mut clocks = [0, 0];
            for _ in 0..SLICE / IN_FLIGHT {
                let start = clock::ticks();
                self.bare.seal();
                let middle = clock::ticks();
                self.bare.open();
                let end = clock::ticks();
                clocks[0] += (middle - start).saturating_sub(cost);
                clocks[1] += (end - middle).saturating_sub(cost);
            }
            // The first one warms the caches.
            if slice > 0 {
                slices.iter_mut().zip(clocks).for_each(|(all, clocks)| all.push((SLICE as u64, clocks as f64)));
            }
        }
        slices.map(|slices| Sliced::of(&slices))
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
        let [bare_seal, bare_open] = self.cipher();
        Turn::of(vec![each(seal), each(open), bare_seal.clocks, bare_open.clocks], &[engine, bare_seal, bare_open])
    }
}
