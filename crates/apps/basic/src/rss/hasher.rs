//! The hashes of many packets, in steps over a batch: words of headers are read into columns, a loop over the columns finds
//! the kind of each packet, and packets of a kind are hashed in a loop without branches. Usually all are of one kind.

use bellows_common::look_ahead::{LookAhead, STEP};
use bellows_packet::{Frames, Packet};
use bellows_sys::simd::{Loop, Simd};
use bellows_toeplitz::{MAX_INPUT, Toeplitz};
use bellows_wire::flow::{self, Directions, Flow, IPV4_HEAD, IPV6_HEAD, Ipv4Flow, Ipv6Flow, PlainFlow, StartWords};

/// Packets that are hashed together.
const BATCH: usize = 128;

/// Vectors of up to this number of packets are hashed packet by packet.
const FEW: usize = 8;

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
    function: FlowFunction,
    batch: Box<Batch>,
}

/// The hash of a flow, and the instruction set of the loops before it.
struct FlowFunction {
    simd: Simd,
    /// A prepared key.
    toeplitz: Option<Toeplitz>,
    directions: Directions,
    /// Whether packets inside tunnels are hashed.
    inner: bool,
}

/// What the steps leave for one another. Behind the last packet are old values.
struct Batch {
    columns: FlowColumns,
    /// The places of packets of a kind, and their hashes.
    places: [[u8; BATCH]; 2],
    found: [u32; BATCH],
    inputs: [[u8; MAX_INPUT]; BATCH],
    hashes: [u32; BATCH],
}

/// The columns of a batch.
struct FlowColumns {
    starts: [u32; BATCH],
    rests: [u32; BATCH],
    /// Bytes of the frame.
    lengths: [u32; BATCH],
    kinds: [u32; BATCH],
}

/// Kinds of packets: those with a plain flow, and others.
const IPV4: u32 = 0;
const IPV6: u32 = 1;
const OTHER: u32 = 2;

impl Hasher {
    /// `None` if the key is too short.
    pub(super) fn new(hashing: Hashing) -> Option<Hasher> {
        let toeplitz = match &hashing.toeplitz_key {
            Some(key) => Some(Toeplitz::new(key)?),
            None => None,
        };
        let directions = if hashing.symmetric { Directions::Together } else { Directions::Apart };
        let function = FlowFunction { simd: Simd::chosen(), toeplitz, directions, inner: hashing.inner };
        let none = [0; BATCH];
        let batch = Batch {
            columns: FlowColumns { starts: none, rests: none, lengths: none, kinds: none },
            places: [[0; BATCH]; 2],
            found: none,
            inputs: [[0; MAX_INPUT]; BATCH],
            hashes: none,
        };
        Some(Hasher { hashing, function, batch: Box::new(batch) })
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
        let mut look_ahead = LookAhead::begin(packets, prefetch, Packet::prefetch);
        for (packets, numbers) in packets.chunks(BATCH).zip(numbers.chunks_mut(BATCH)) {
            let hashes = self.batch.hash(&self.function, packets, &mut look_ahead);
            hashes.iter().zip(numbers).for_each(|(&hash, place)| *place = number(hash));
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

impl Batch {
    /// The hashes of packets. Hot.
    #[inline(never)]
    fn hash(&mut self, function: &FlowFunction, packets: &[Packet], look_ahead: &mut LookAhead<'_>) -> &[u32] {
        let Batch { columns, places, found, inputs, hashes } = self;
        let hashes = &mut hashes[..packets.len()];
        let begin = Begin { packets, lengths: &mut columns.lengths };
        let frames = if function.inner || packets.len() <= FEW { None } else { function.simd.run(begin) };
        let Some(frames) = frames else {
            for (packets, hashes) in packets.chunks(STEP).zip(hashes.chunks_mut(STEP)) {
                look_ahead.step(Packet::prefetch);
                function.hash_any(packets.iter().map(Packet::bytes), inputs, hashes);
            }
            return hashes;
        };
        columns.read(&frames, look_ahead);
        let [any, all] = function.simd.run(Classify { columns, count: packets.len() });
        if any == IPV4 {
            function.hash_plain::<Ipv4Flow, _, _>(frames.iter(), inputs, hashes);
        } else if any == IPV6
            && all == IPV6
            && let Some(frames) = Frames::of(packets)
        {
            function.hash_plain::<Ipv6Flow, _, _>(frames.iter(), inputs, hashes);
        } else {
            let kinds = &columns.kinds[..packets.len()];
            let bytes = |&place: &u8| packets[usize::from(place)].bytes();
            let [ipv4, ipv6] = separate(kinds, places);
            function.hash_plain::<Ipv4Flow, _, _>(ipv4.iter().map(|place| head(bytes(place))), inputs, found);
            put(ipv4, found, hashes);
            function.hash_plain::<Ipv6Flow, _, _>(ipv6.iter().map(|place| head(bytes(place))), inputs, found);
            put(ipv6, found, hashes);
            if any & OTHER != 0 {
                let others = others(kinds, &mut places[0]);
                function.hash_any(others.iter().map(bytes), inputs, found);
                put(others, found, hashes);
            }
        }
        hashes
    }
}

/// Looks at the handles of packets. There are no frames if a packet is too short for a plain flow.
struct Begin<'p, 'l> {
    packets: &'p [Packet],
    lengths: &'l mut [u32; BATCH],
}

impl<'p> Loop for Begin<'p, '_> {
    type Result = Option<Frames<'p, [u8; IPV4_HEAD]>>;

    #[inline(always)]
    fn run(self) -> Self::Result {
        Frames::with_lengths(self.packets, self.lengths)
    }
}

impl FlowColumns {
    /// Reads headers. Hot.
    #[inline(always)]
    fn read(&mut self, frames: &Frames<'_, [u8; IPV4_HEAD]>, look_ahead: &mut LookAhead<'_>) {
        let places = self.starts.chunks_mut(STEP).zip(self.rests.chunks_mut(STEP));
        for (frames, (starts, rests)) in frames.chunks(STEP).zip(places) {
            look_ahead.step(Packet::prefetch);
            for (head, (start, rest)) in frames.iter().zip(starts.iter_mut().zip(rests)) {
                StartWords { start: *start, rest: *rest } = StartWords::of(head);
            }
        }
    }
}

/// Finds the kinds of packets. Returns the bits that any of them has, and those that all have.
struct Classify<'c> {
    columns: &'c mut FlowColumns,
    count: usize,
}

impl Loop for Classify<'_> {
    type Result = [u32; 2];

    #[inline(always)]
    fn run(self) -> [u32; 2] {
        let FlowColumns { starts, rests, lengths, kinds } = self.columns;
        let words = starts.iter().zip(&*rests).zip(&*lengths);
        let [mut any, mut all] = [0, u32::MAX];
        for (((&start, &rest), &length), kind) in words.zip(&mut kinds[..self.count]) {
            let words = StartWords { start, rest };
            let is_ipv6 = words.are_plain_ipv6() & (length >= IPV6_HEAD as u32);
            *kind = if words.are_plain_ipv4() { IPV4 } else { OTHER - u32::from(is_ipv6) };
            (any, all) = (any | *kind, all & *kind);
        }
        [any, all]
    }
}

/// The places of packets with plain flows of IPv4, and of IPv6. Each place is written to both lists, and remains in one or
/// none: there is nothing to predict. Hot.
fn separate<'l>(kinds: &[u32], [ipv4, ipv6]: &'l mut [[u8; BATCH]; 2]) -> [&'l [u8]; 2] {
    let [mut ipv4_count, mut ipv6_count] = [0, 0];
    for (&kind, place) in kinds.iter().zip(0..BATCH as u8) {
        (ipv4[ipv4_count % BATCH], ipv6[ipv6_count % BATCH]) = (place, place);
        ipv4_count += usize::from(kind == IPV4);
        ipv6_count += usize::from(kind == IPV6);
    }
    [&ipv4[..ipv4_count], &ipv6[..ipv6_count]]
}

/// The places of other packets.
fn others<'l>(kinds: &[u32], places: &'l mut [u8; BATCH]) -> &'l [u8] {
    let others = kinds.iter().zip(0..BATCH as u8).filter(|&(&kind, _)| kind == OTHER);
    let count = others.zip(&mut *places).map(|((_, other), place)| *place = other).count();
    &places[..count]
}

/// The start of a frame, which has as many bytes.
#[inline(always)]
fn head<const HEAD: usize>(frame: &[u8]) -> &[u8; HEAD] {
    frame.first_chunk().unwrap_or(&[0; HEAD])
}

/// Puts hashes to their places.
#[inline(always)]
fn put(places: &[u8], found: &[u32; BATCH], hashes: &mut [u32]) {
    places.iter().zip(found).for_each(|(&place, &hash)| hashes[usize::from(place)] = hash);
}

impl FlowFunction {
    /// Hashes plain flows. Hot.
    #[inline(always)]
    fn hash_plain<'p, F: PlainFlow<HEAD, INPUT>, const HEAD: usize, const INPUT: usize>(
        &self,
        heads: impl ExactSizeIterator<Item = &'p [u8; HEAD]>,
        inputs: &mut [[u8; MAX_INPUT]; BATCH],
        hashes: &mut [u32],
    ) {
        match (&self.toeplitz, self.directions) {
            (None, directions) => {
                heads.zip(hashes).for_each(|(head, hash)| *hash = F::of_plain(head).hash(directions));
            }
            (Some(toeplitz), Directions::Apart) => toeplitz.hash(heads.map(last::<HEAD, INPUT>), hashes),
            (Some(toeplitz), Directions::Together) => {
                let count = heads.len();
                for (head, input) in heads.zip(&mut *inputs) {
                    *first(input) = F::of_plain(head).input(self.directions);
                }
                toeplitz.hash(inputs[..count].iter_mut().map(|input| &*first::<INPUT>(input)), hashes);
            }
        }
    }

    /// Hashes frames of any kind, which take a short way too if their flows are plain. Hot.
    #[inline(never)]
    fn hash_any<'p>(
        &self,
        frames: impl ExactSizeIterator<Item = &'p [u8]>,
        inputs: &mut [[u8; MAX_INPUT]; BATCH],
        hashes: &mut [u32],
    ) {
        let &FlowFunction { ref toeplitz, directions, inner, .. } = self;
        let Some(toeplitz) = toeplitz else {
            for (frame, hash) in frames.zip(hashes) {
                let found = match inner {
                    true => Flow::of_inner(frame).map(|flow| flow.hash(directions)),
                    false => flow::hash(frame, directions),
                };
                *hash = found.unwrap_or(0);
            }
            return;
        };
        let count = frames.len();
        for (frame, input) in frames.zip(&mut *inputs) {
            let length = match inner {
                true => Flow::of_inner(frame).map(|flow| flow.write(directions, input)),
                false => flow::write(frame, directions, input),
            };
            input[length.unwrap_or(0)..].fill(0);
        }
        toeplitz.hash(inputs[..count].iter(), hashes);
    }
}

/// The last bytes of a start.
#[inline(always)]
fn last<const HEAD: usize, const INPUT: usize>(head: &[u8; HEAD]) -> &[u8; INPUT] {
    head.last_chunk().unwrap_or(&[0; INPUT])
}

/// The first bytes of an input.
#[inline(always)]
fn first<const INPUT: usize>(input: &mut [u8; MAX_INPUT]) -> &mut [u8; INPUT] {
    input.first_chunk_mut().expect("an input is as long")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_toeplitz::DEFAULT_KEY;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Frames that are often plain, except for one byte, and may be cut.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let start = prop::sample::select(vec![
            (vec![(12, 0x08), (13, 0x00), (14, 0x45), (20, 0x40), (21, 0), (23, 6)], 42),
            (vec![(12, 0x86), (13, 0xdd), (14, 0x60), (15, 0), (20, 17)], 62),
        ]);
        let change = prop::option::weighted(0.2, (12usize..24, any::<u8>()));
        let length = prop_oneof![8 => 58usize..70, 1 => 0usize..70];
        (start, any::<[u8; 32]>(), change, length).prop_map(|((fields, least), random, change, length)| {
            let mut bytes: Vec<u8> = random.iter().copied().cycle().take(length.max(least)).collect();
            fields.into_iter().chain(change).for_each(|(at, byte)| bytes[at] = byte);
            bytes.truncate(length);
            bytes
        })
    }

    /// The hash of a frame, packet by packet.
    fn expected(hashing: &Hashing, frame: &[u8]) -> u32 {
        let directions = if hashing.symmetric { Directions::Together } else { Directions::Apart };
        let flow = if hashing.inner { Flow::of_inner(frame) } else { Flow::of(frame) };
        let Some(flow) = flow else { return 0 };
        let Some(key) = &hashing.toeplitz_key else { return flow.hash(directions) };
        let (mut input, mut hash) = ([0; MAX_INPUT], [0]);
        flow.write(directions, &mut input);
        Toeplitz::new(key).unwrap().hash([input].iter(), &mut hash);
        hash[0]
    }

    proptest! {
        /// Batches of any packets, and of one kind, have the hashes of their flows, in every instruction set.
        #[test]
        fn batches_are_hashed_as_single_flows_are(
            frames in prop_oneof![vec(frame(), 0..300), frame().prop_map(|frame| vec![frame; 150])],
            toeplitz: bool, symmetric: bool, inner: bool, prefetch in 0usize..20,
        ) {
            let hashing = Hashing { toeplitz_key: toeplitz.then(|| DEFAULT_KEY.to_vec()), symmetric, inner };
            let packets: Vec<Packet> = frames.iter().map(|frame| Packet::from_bytes(frame).unwrap()).collect();
            let expected: Vec<u32> = frames.iter().map(|frame| expected(&hashing, frame)).collect();
            let mut hasher = Hasher::new(hashing).unwrap();
            for simd in Simd::available() {
                hasher.function.simd = simd;
                let mut found = Vec::new();
                hasher.look_up(&packets, prefetch, &mut vec![0; packets.len()], |hash| {
                    found.push(hash);
                    0
                });
                prop_assert_eq!(&found, &expected, "{}", simd.name());
            }
        }
    }
}
