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
    toeplitz: Option<Box<HashBatch>>,
}

/// A prepared key, and inputs and hashes on their way.
struct HashBatch {
    toeplitz: Toeplitz,
    inputs: [Input; CHUNK],
    hashes: [u32; CHUNK],
}

impl Hasher {
    /// `None` if the key is too short.
    pub(super) fn new(hashing: Hashing) -> Option<Hasher> {
        let batch = |toeplitz| Box::new(HashBatch { toeplitz, inputs: [Input::default(); CHUNK], hashes: [0; CHUNK] });
        let toeplitz = match &hashing.toeplitz_key {
            Some(key) => Some(batch(Toeplitz::new(key)?)),
            None => None,
        };
        Some(Hasher { hashing, toeplitz })
    }

    /// Hashes packets, and looks up a number for each hash. `prefetch` is how far ahead to prefetch their data. Hot.
    #[inline(always)]
    pub(super) fn look_up(
        &mut self,
        packets: &[Packet],
        prefetch: usize,
        numbers: &mut [u16],
        mut number: impl FnMut(u32) -> u16,
    ) {
        let Hashing { symmetric, inner, .. } = self.hashing;
        let directions = if symmetric { Directions::Together } else { Directions::Apart };
        match (&mut self.toeplitz, inner) {
            (None, false) => look_up_fast(packets, prefetch, numbers, directions, number),
            (None, true) => {
                let hash = |flow: Flow| flow.hash(directions);
                each(packets, prefetch, numbers, |frame, place| *place = number(Flow::of_inner(frame).map_or(0, hash)));
            }
            (Some(batch), inner) => {
                let HashBatch { toeplitz, inputs, hashes } = &mut **batch;
                for (packets, numbers) in packets.chunks(CHUNK).zip(numbers.chunks_mut(CHUNK)) {
                    let (inputs, hashes) = (&mut inputs[..packets.len()], &mut hashes[..packets.len()]);
                    read_inputs(packets, prefetch, inputs, directions, inner);
                    toeplitz.hash(inputs, hashes);
                    hashes.iter().zip(numbers).for_each(|(&hash, place)| *place = number(hash));
                }
            }
        }
    }

    /// The hash of one packet.
    pub(super) fn hash(&mut self, packet: &Packet) -> u32 {
        let mut hash = 0;
        let note = |found| {
            hash = found;
            0
        };
        self.look_up(std::slice::from_ref(packet), 0, &mut [0], note);
        hash
    }
}

/// As [`Hasher::look_up`], by the fast hash of the outer headers: a function of its own, which needs fewer registers. Hot.
#[inline(never)]
fn look_up_fast(
    packets: &[Packet],
    prefetch: usize,
    numbers: &mut [u16],
    directions: Directions,
    mut number: impl FnMut(u32) -> u16,
) {
    each(packets, prefetch, numbers, |frame, place| {
        *place = number(flow::hash(frame, directions).unwrap_or(0));
    });
}

/// Reads the inputs of the Toeplitz hash. Hot.
#[inline(never)]
fn read_inputs(packets: &[Packet], prefetch: usize, inputs: &mut [Input], directions: Directions, inner: bool) {
    if inner {
        each(packets, prefetch, inputs, |frame, input| {
            input.rewrite(|bytes| Flow::of_inner(frame).map_or(0, |flow| flow.write(directions, bytes)));
        });
    } else {
        each(packets, prefetch, inputs, |frame, input| {
            input.rewrite(|bytes| flow::write(frame, directions, bytes).unwrap_or(0));
        });
    }
}

/// Calls a function with each packet's data and its place, and prefetches the data of a packet ahead.
#[inline(always)]
fn each<T>(packets: &[Packet], prefetch: usize, places: &mut [T], mut work: impl FnMut(&[u8], &mut T)) {
    packets.iter().take(prefetch).for_each(Packet::prefetch);
    for (index, (packet, place)) in packets.iter().zip(places).enumerate() {
        if let Some(ahead) = packets.get(index + prefetch) {
            ahead.prefetch();
        }
        work(packet.bytes(), place);
    }
}
