//! Claims of headers: a driver claims anything of any packet, apps change packets on their way, and a driver that has
//! negotiated any features receives them. No header is untrue, and only checksums are changed.

mod model;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellows_ipc::notify::Notifiers;
use bellows_packet::{Offload, Packet, Vector, pool};
use bellows_testkit::wait::meanwhile;
use bellows_virtio::driver::{Chains, Driver, DriverConfig};
use bellows_virtio::ring::{Position, ReceiveRing, Setup, Stop, TransmitRing};
use bellows_virtio::vhost::Placed;
use bellows_virtio::{Features, Memory, RegionSpec};

use model::chains::{Rules, header_length};
use model::features::{OFFLOADS, RING_OPTIONS};
use model::frames::{finished, frame, truth};
use model::guest::{BORDER, Guest};
use model::random::Random;
use model::raw::RawRing;
use model::{driver, flag};

const SIZE: u16 = 64;

/// Random options of the ring, and offloads of both directions.
fn some_features(random: &mut Random) -> Features {
    let ring = RING_OPTIONS.into_iter().filter(|_| random.one_in(2)).fold(Features::NONE, |set, option| set | option);
    // Most cases have offloads.
    let set = OFFLOADS.into_iter().filter(|_| !random.one_in(5)).fold(ring, |set, option| set | option);
    set.coherent()
}

/// A packet and its sender's claim: mostly true, or nearly.
fn some_claim(random: &mut Random) -> (Vec<u8>, Offload) {
    let is_tcp = !random.one_in(3);
    let length = match random.between(0, 9) {
        0..=5 => random.between(1, 300),
        6..=8 => random.between(1, 3_000),
        _ => random.between(3_000, 20_000),
    };
    let is_ipv6 = random.one_in(2);
    let mut it = frame(random, length, is_tcp, is_ipv6);
    let mut claim = match is_tcp && random.one_in(2) {
        true => it.gso(random.of(&[0, 1, 8, 30, 47, 48, 64, 536, 1_448, 9_000, 65_535])),
        false => it.checksum(),
    };
    match random.between(0, 9) {
        0..=3 => {}
        4 | 5 => {
            for _ in 0..random.between(1, 3) {
                let at = random.between(0, it.payload.min(it.bytes.len() - 1));
                it.bytes[at] = random.of(&[0, 1, 2, 17, 44, 51, 0x60, 0xff, it.bytes[at] ^ 1]);
            }
        }
        6 => it.bytes.truncate(random.between(1, it.bytes.len())),
        7 => it.bytes.extend(random.bytes(5)),
        8 => {
            let word = random.of(&[0, 1, 14, 16, 34, 60, it.bytes.len() as u16, 0xfffe, 0xffff]);
            match random.between(0, 4) {
                0 => claim.checksum_start = claim.checksum_start.wrapping_add(random.of(&[1, 2, 0xffff, 0xfffe])),
                1 => claim.checksum_start = word,
                2 => claim.checksum_offset = word,
                3 => claim.gso_type = random.of(&[0, 1, 2, 3, 4, 5, 0x80, 0x81, 0x84, 0xff]),
                _ => claim.flags = random.of(&[0, 1, 2, 3, 0xff]),
            }
        }
        _ => it.bytes = random.bytes(length),
    }
    claim.header_length = random.word();
    (it.bytes, claim)
}

fn header(claim: Offload, length: usize) -> Vec<u8> {
    let mut bytes = vec![claim.flags, claim.gso_type];
    let words = [claim.header_length, claim.segment_size, claim.checksum_start, claim.checksum_offset];
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes.resize(length, 0);
    bytes
}

fn decode(header: &[u8]) -> Offload {
    let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    Offload {
        flags: header[0],
        gso_type: header[1],
        header_length: word(2),
        segment_size: word(4),
        checksum_start: word(6),
        checksum_offset: word(8),
    }
}

/// Whether a receiver with these features accepts such a packet: `by` gives the features for checksums, and for TCP
/// over IPv4 and IPv6.
fn takes(features: Features, gso_type: u8, by: [Features; 3]) -> bool {
    match gso_type {
        0 => features.has(by[0]),
        1 => features.has(by[1]),
        4 => features.has(by[2]),
        _ => false,
    }
}

const DEVICE: [Features; 3] = [Features::CSUM, Features::HOST_TSO4, Features::HOST_TSO6];
const DRIVER: [Features; 3] = [Features::GUEST_CSUM, Features::GUEST_TSO4, Features::GUEST_TSO6];

/// The model's result for a packet from a driver or a device: its bytes and its offload, or nothing if it is dropped.
fn admitted(bytes: &[u8], claim: Offload, features: Features, by: [Features; 3]) -> Option<(Vec<u8>, Option<Offload>)> {
    let claim = Offload { flags: claim.flags & 1, ..claim };
    let asks = claim.flags == 1 || claim.gso_type != 0;
    if !asks || by.iter().all(|one| !features.has(*one)) {
        return Some((bytes.to_vec(), None));
    }
    if !takes(features, claim.gso_type & !0x80, by) {
        return None;
    }
    match truth(bytes, claim) {
        Some(offload) => Some((bytes.to_vec(), Some(offload))),
        None if claim.gso_type == 0 => finished(bytes, claim).map(|bytes| (bytes, None)),
        None => None,
    }
}

/// A ring of a guest with these features, and the device's side of it. The driver has made chains available that
/// contain these bytes, or have this much room.
struct Side<'a> {
    guest: &'a mut Guest,
    setup: Setup,
    chains: HashMap<u16, model::chains::Chain>,
    order: Vec<u16>,
    driver: Box<dyn model::Driver>,
}

fn side<'a>(
    guest: &'a mut Guest,
    features: Features,
    random: &mut Random,
    contents: &[Vec<u8>],
    receive: bool,
) -> Side<'a> {
    guest.reset();
    let mut driver = driver(guest, features, SIZE, random);
    let rules = Rules::new(features, SIZE, receive);
    let (mut chains, mut order) = (HashMap::new(), Vec::new());
    for bytes in contents {
        let most = driver.free();
        // Some layouts take more descriptors than there are, or more memory.
        let Some(chain) = (0..9).find_map(|_| rules.chain(guest, bytes.len(), most, random)) else { break };
        if !receive {
            chain.scatter(bytes, |address, bytes| guest.write(address, bytes));
        }
        let id = driver.add(guest, &chain);
        order.push(id);
        chains.insert(id, chain);
        if driver.free() == 0 {
            break;
        }
    }
    driver.publish(guest);
    let memory = Arc::clone(&guest.memory);
    let (areas, position) = (driver.areas(), driver.position());
    let setup = Setup { memory, features, size: SIZE, areas, position, call: None, kick: None };
    Side { guest, setup, chains, order, driver }
}

/// A driver sends packets with claims. Returns the packets that enter the first link, compared with the model.
fn enter(guest: &mut Guest, random: &mut Random) -> Vector {
    let features = some_features(random);
    let length = header_length(features);
    let claims: Vec<_> = (0..8).map(|_| some_claim(random)).collect();
    let contents: Vec<_> =
        claims.iter().map(|(bytes, claim)| [header(*claim, length), bytes.clone()].concat()).collect();
    let side = side(guest, features, random, &contents, false);
    let mut ring = TransmitRing::new(side.setup).unwrap();
    let mut packets = Vector::new();
    let used = ring.transmit(&mut packets, 1_024).unwrap();
    assert_eq!(used, side.order.len());
    let model: Vec<_> =
        claims[..used].iter().filter_map(|(bytes, claim)| admitted(bytes, *claim, features, DEVICE)).collect();
    let bad = ring.counters().bad_header;
    assert_eq!((packets.len(), bad), (model.len(), (used - model.len()) as u64), "{features}: {claims:?}");
    for (packet, (bytes, offload)) in packets.as_slice().iter().zip(model) {
        assert_eq!((packet.bytes(), packet.offload()), (&bytes[..], offload), "{features}");
    }
    packets
}

/// Changes a packet as apps do.
fn change(packet: &mut Packet, random: &mut Random) {
    match random.between(0, 9) {
        0 => packet.truncate(random.between(1, packet.len())),
        1 => {
            let count = random.between(1, 40).min(packet.tailroom());
            packet.append(&random.bytes(count));
        }
        2 => {
            let at = random.between(0, 80).min(packet.len() - 1);
            packet.bytes_mut()[at] = random.next() as u8;
        }
        3 if packet.headroom() >= 4 && packet.len() >= 12 => {
            // Adds a VLAN tag.
            let bytes = packet.prepend(4);
            bytes.copy_within(4..16, 0);
            bytes[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
        }
        4 if packet.len() > 18 => {
            // Removes the four bytes after the addresses, whether they are a tag or not.
            packet.bytes_mut().copy_within(0..12, 4);
            packet.trim_front(4);
        }
        5 => packet.trim_front(random.between(0, 60).min(packet.len() - 1)),
        6 => {
            let (_, claim) = some_claim(random);
            packet.set_offload(claim);
        }
        _ => {}
    }
}

/// Sends packets to a driver, one by one, and checks what it gets: a true header in front of the same bytes. A packet
/// that is not taken must be one that the driver must not get like this.
fn leave(guest: &mut Guest, random: &mut Random, packets: &[Packet]) -> [usize; 3] {
    let features = some_features(random);
    let length = header_length(features);
    let room = vec![vec![0; length + 21_000]; 4];
    let Side { guest, setup, chains, order, mut driver } = side(guest, features, random, &room, true);
    let mut ring = ReceiveRing::new(setup).unwrap();
    let (mut told, mut plain, mut refused) = (0, 0, 0);
    let mut next = 0;
    for packet in packets {
        if next == order.len() {
            break;
        }
        let claim = packet.offload().unwrap_or_default();
        let asks = claim.flags & 1 == 1 || claim.gso_type != 0;
        let flags = claim.flags & 1;
        let true_one = truth(packet.bytes(), Offload { flags, ..claim });
        let taken = ring.receive(std::slice::from_ref(packet)).unwrap();
        if taken.count == 0 {
            assert_eq!(taken.stop, Stop::Offload);
            let negotiated = DRIVER.iter().any(|one| features.has(*one));
            let needless = takes(features, claim.gso_type, DRIVER) && true_one.is_some() || negotiated && !asks;
            assert!(!needless, "{features}: {claim:?}");
            refused += 1;
            continue;
        }
        assert_eq!(driver.reap(guest).used.len(), 1, "all fits into one chain");
        let chain = &chains[&order[next]];
        next += 1;
        let mut there = Vec::new();
        for (address, length) in chain.places(length + packet.len()) {
            there.extend(guest.read(address, length));
        }
        let (said, bytes) = there.split_at(length);
        assert_eq!(bytes, packet.bytes(), "the bytes of the packet");
        let said = decode(said);
        if said == Offload::default() {
            assert!(!asks, "{features}: {claim:?} was forgotten");
            plain += 1;
        } else {
            assert_eq!(Some(said), true_one, "{features}: {claim:?}");
            assert!(takes(features, said.gso_type, DRIVER), "{features}: {said:?}");
            told += 1;
        }
    }
    [told, plain, refused]
}

#[test]
fn headers_are_true_of_packets_after_any_claim_and_change() {
    pool::ensure().unwrap();
    let mut random = Random::new(11);
    let mut guest = Guest::new(&mut random);
    let mut sums = [0; 3];
    for _ in 0..6_000 {
        let mut packets = enter(&mut guest, &mut random);
        for packet in packets.as_mut_slice() {
            for _ in 0..random.of(&[0, 0, 1, 2]) {
                change(packet, &mut random);
            }
        }
        let counts = leave(&mut guest, &mut random, packets.as_slice());
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(sums.iter().all(|sum| *sum > 1_000), "with a header that says something, without, refused: {sums:?}");
}

/// A driver that changes a packet and its header while the device takes them only gets packets through whose header is
/// true.
#[test]
fn packets_that_a_driver_changes_meanwhile_are_checked_as_taken() {
    for (number, features) in [Features::NONE, Features::RING_PACKED, Features::INDIRECT_DESC].into_iter().enumerate() {
        let features = features | Features::VERSION_1 | Features::CSUM | Features::HOST_TSO4;
        let mut random = Random::new(5);
        let mut raw = RawRing::new(features, SIZE, &mut random);
        let buffer = BORDER - 20_000;
        let it = frame(&mut random, 1_200, true, false);
        let other = it.bytes.iter().map(|byte| !byte).collect::<Vec<_>>();
        let claims = [it.gso(536), it.checksum()];
        let memory: Arc<Memory> = Arc::clone(&raw.guest.memory);
        let mut came = [0; 2];
        let mut changes = Random::new(6);
        // Every byte separately, so that every mixture occurs.
        let change = || {
            let place = memory.translate(buffer, 12 + 1_200).unwrap().as_ptr();
            let bytes = if changes.one_in(2) { &it.bytes } else { &other };
            let contents = [header(changes.of(&claims), 12), bytes[..60].to_vec()].concat();
            for (at, byte) in contents.into_iter().enumerate() {
                // SAFETY: inside the translated range; the device reads it through volatile accesses and copies.
                unsafe { place.add(at).write_volatile(byte) };
            }
        };
        meanwhile(change, || {
            let start = Instant::now();
            let mut rounds = 0;
            // The system decides how often the other thread runs.
            while rounds < 20_000 || came.iter().any(|count| *count < 100) && start.elapsed() < Duration::from_secs(60)
            {
                rounds += 1;
                let length = (12 + it.bytes.len()) as u32;
                if features.has(Features::INDIRECT_DESC) {
                    // Header and packet in three buffers.
                    let table = BORDER - 4_000;
                    raw.write_entry(table, 0, buffer, 5, flag::NEXT, 1);
                    raw.write_entry(table, 1, buffer + 5, 60, flag::NEXT, 2);
                    raw.write_entry(table, 2, buffer + 65, length - 65, 0, 0);
                    raw.write(0, table, 48, flag::INDIRECT, 0);
                } else {
                    raw.write(0, buffer, length, 0, 0);
                }
                raw.write_head(0, 0);
                raw.write_index(1);
                let mut ring = TransmitRing::new(raw.setup()).unwrap();
                let mut packets = Vector::new();
                assert_eq!(ring.transmit(&mut packets, 1), Ok(1));
                for packet in packets.as_slice() {
                    let offload = packet.offload();
                    let is_true = offload.is_none_or(|offload| truth(packet.bytes(), offload) == Some(offload));
                    assert!(is_true, "{offload:?} of {:02x?}", &packet.bytes()[..60]);
                    came[usize::from(offload.is_some())] += 1;
                }
            }
        });
        assert!(came.iter().all(|count| *count >= 100), "case {number}: {came:?} without and with an offload");
    }
}

/// A device is untrusted, too: its claims about packets are checked, and so are the driver's claims to it.
#[test]
fn a_driver_believes_a_device_no_more_than_a_device_does_a_driver() {
    pool::ensure().unwrap();
    let mut random = Random::new(12);
    let (mut admitted_packets, mut dropped, mut told) = (0, 0, 0);
    for round in 0..400 {
        let features = some_features(&mut random);
        let chains = random.of(&[Chains::Single, Chains::Chained, Chains::Indirect]);
        let Placed { mut driver, mut memory, queues } =
            Driver::place(DriverConfig { features, pairs: 1, ring_size: SIZE, chains }, &Notifiers::new(2, 0).unwrap())
                .unwrap();
        let shared = memory.remove(0);
        let (guest, length, file) = (shared.address, shared.length, shared.file);
        let spec = RegionSpec { guest, length, user: guest, offset: shared.offset, file };
        let memory = Arc::new(Memory::map(vec![spec]).unwrap());
        let header_length = header_length(features);
        let mut setups = queues.into_iter().map(|queue| Setup {
            memory: Arc::clone(&memory),
            // A device of this crate would write true headers. One without offloads writes none, and the test writes
            // others.
            features: features.without(DRIVER[0] | DRIVER[1] | DRIVER[2]),
            size: queue.size,
            areas: queue.areas,
            position: Position::start(features),
            call: None,
            kick: None,
        });
        let mut down = ReceiveRing::new(setups.next().unwrap()).unwrap();
        let mut up = TransmitRing::new(Setup { features, ..setups.next().unwrap() }).unwrap();
        let queues = &mut driver.pairs[0];

        // The claims overwrite the headers that the device has written into the driver's buffers.
        let claims: Vec<_> = (0..8)
            .map(|_| some_claim(&mut random))
            .filter(|(bytes, _)| bytes.len() >= 20)
            .filter(|(bytes, _)| bytes.len() <= 2_000 || features.has(Features::MRG_RXBUF))
            .collect();
        let packets: Vec<Packet> = claims.iter().map(|(bytes, _)| Packet::from_bytes(bytes).unwrap()).collect();
        let taken = down.receive(&packets).unwrap().count;
        let all = memory.translate(guest, length).unwrap();
        // SAFETY: all of it is mapped, and nobody else accesses it now.
        let all = unsafe { std::slice::from_raw_parts_mut(all.as_ptr(), length as usize) };
        let mut kept = Vec::new();
        for (bytes, claim) in &claims[..taken] {
            // The start of a packet is in one place only, with its header before it.
            let start = &bytes[..bytes.len().min(40)];
            let at = all.windows(start.len()).position(|window| window == start).unwrap();
            all[at - header_length..at - header_length + 10].copy_from_slice(&header(*claim, 10));
            kept.extend(admitted(bytes, *claim, features, DRIVER));
        }
        let mut received = Vector::new();
        queues.receive.receive(&mut received, 1_024).unwrap();
        let counters = queues.receive.counters();
        assert_eq!(counters.bad_header as usize, taken - kept.len(), "round {round}: {features}, {claims:?}");
        assert_eq!(received.len(), kept.len());
        for (packet, (bytes, offload)) in received.as_slice().iter().zip(&kept) {
            assert_eq!((packet.bytes(), packet.offload()), (&bytes[..], *offload), "{features}");
        }
        admitted_packets += kept.len();
        dropped += taken - kept.len();

        // Then the packets go to the device, changed or not, and it has nothing to reject.
        for packet in received.as_mut_slice() {
            change(packet, &mut random);
            let claim = packet.offload().unwrap_or_default();
            let taken = queues.transmit.transmit(std::slice::from_ref(packet)).unwrap();
            let true_one = truth(packet.bytes(), Offload { flags: claim.flags & 1, ..claim });
            let asks = claim.flags & 1 == 1 || claim.gso_type != 0;
            let expected = !asks || takes(features, claim.gso_type, DEVICE) && true_one.is_some();
            assert_eq!(taken.count == 1, expected, "{features}: {claim:?}, {:?}", taken.stop);
            let mut came = Vector::new();
            up.transmit(&mut came, 1).unwrap();
            if taken.count == 1 {
                let came = &came.as_slice()[0];
                assert_eq!((came.bytes(), came.offload()), (packet.bytes(), true_one), "{features}");
                told += usize::from(true_one.is_some());
            }
        }
    }
    let counts = [admitted_packets, dropped, told];
    assert!(counts.iter().all(|count| *count > 100), "admitted, dropped, told to the device: {counts:?}");
}
