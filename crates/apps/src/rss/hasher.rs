//! The hashes of many packets.

use bellows_packet::Packet;
use bellows_toeplitz::{Input, Toeplitz};
use bellows_wire::flow::{self, Directions, Flow};

/// How many inputs are read before they are hashed.
const CHUNK: usize = 64;

/// What a configuration says about the hash of a packet. Two equal ones give each packet the same hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hashing {
    /// The key of the Toeplitz hash; `None` selects the fast hash.
    pub(super) toeplitz_key: Option<Vec<u8>>,
    pub(super) symmetric: bool,
    pub(super) inner: bool,
}

/// Hashes packets. A packet that is too short for an Ethernet frame has the hash 0.
pub(super) struct Hasher {
    pub(super) hashing: Hashing,
    /// The prepared key, and inputs on their way.
    toeplitz: Option<(Toeplitz, Box<[Input; CHUNK]>)>,
}

impl Hasher {
    /// `None` if the key is too short.
    pub(super) fn new(hashing: Hashing) -> Option<Hasher> {
        let toeplitz = match &hashing.toeplitz_key {
            Some(key) => Some((Toeplitz::new(key)?, Box::new([Input::default(); CHUNK]))),
            None => None,
        };
        Some(Hasher { hashing, toeplitz })
    }

    /// Hashes packets, each to its place, prefetching their data this far ahead. Hot.
    pub(super) fn hash(&mut self, packets: &[Packet], prefetch: usize, hashes: &mut [u32]) {
        let directions = if self.hashing.symmetric { Directions::Together } else { Directions::Apart };
        match (&mut self.toeplitz, self.hashing.inner) {
            (None, false) => read(packets, prefetch, hashes, |frame| flow::hash(frame, directions).unwrap_or(0) as u32),
            (None, true) => {
                let hash = |flow: Flow| flow.hash(directions) as u32;
                read(packets, prefetch, hashes, |frame| Flow::of_inner(frame).map_or(0, hash));
            }
            (Some((toeplitz, inputs)), inner) => {
                for (at, hashes) in (0..).step_by(CHUNK).zip(hashes[..packets.len()].chunks_mut(CHUNK)) {
                    let (chunk, inputs) = (&packets[at..], &mut inputs[..hashes.len()]);
                    if inner {
                        let words = |flow: Flow| Input::new(flow.words(directions));
                        read(chunk, prefetch, inputs, |frame| Flow::of_inner(frame).map(words).unwrap_or_default());
                    } else {
                        let words = |frame: &[u8]| flow::words(frame, directions);
                        read(chunk, prefetch, inputs, |frame| words(frame).map(Input::new).unwrap_or_default());
                    }
                    toeplitz.hash(inputs, hashes);
                }
            }
        }
    }

    /// The hash of one packet.
    pub(super) fn hash_one(&mut self, packet: &Packet) -> u32 {
        let mut hash = [0];
        self.hash(std::slice::from_ref(packet), 0, &mut hash);
        hash[0]
    }
}

/// Reads something from each of the first packets, as many as there are places for it, and prefetches those behind them.
/// There is one call of `read`, so that it is inlined.
#[inline(always)]
fn read<T>(packets: &[Packet], prefetch: usize, places: &mut [T], read: impl Fn(&[u8]) -> T) {
    let last = packets.len().saturating_sub(1);
    for (index, (packet, place)) in packets.iter().zip(places).enumerate() {
        packets[last.min(index + prefetch)].prefetch();
        *place = read(packet.bytes());
    }
}
