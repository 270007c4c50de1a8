//! A packed ring that another device left with buffers that it had taken and not used: the used position is behind the
//! available one.

mod model;

use bellows_packet::{Packet, Vector};
use bellows_virtio::Features;
use bellows_virtio::ring::{Position, ReceiveRing, TransmitRing};

use model::flag::{AVAIL, USED, WRITE};
use model::guest::BORDER;
use model::random::Random;
use model::raw::RawRing;

const SIZE: u16 = 8;
const PACKETS: u16 = 3;

/// A ring whose driver is in a new round with descriptors 1 to 3, while the next descriptor to be used is the sixth of
/// the round before.
fn left(flags: u16) -> (RawRing, Position) {
    let features = Features::VERSION_1 | Features::RING_PACKED;
    let mut raw = RawRing::new(features, SIZE, &mut Random::new(7));
    for index in 1..=PACKETS {
        raw.write(index, BORDER - 10_000 + 1_000 * u64::from(index), 72, flags, 0);
    }
    (raw, Position::Packed { avail: 1, avail_wrap: true, used: 6, used_wrap: false })
}

/// The buffers' ids come back at the positions 6, 7 and 0, the last of which is in the new round.
fn check(raw: &mut RawRing, after: Position, flags: u16) {
    for (id, (place, round)) in (1..).zip([(6, 0), (7, 0), (0, AVAIL | USED)]) {
        let at = raw.areas.descriptors + 16 * place;
        assert_eq!((raw.guest.read_u16(at + 12), raw.guest.read_u16(at + 14)), (id, round | flags), "place {place}");
    }
    assert_eq!(after, Position::Packed { avail: 4, avail_wrap: true, used: 1, used_wrap: true });
}

#[test]
fn transmitted_packets_are_used_at_the_other_devices_position() {
    let (mut raw, position) = left(0);
    let mut setup = raw.setup();
    setup.position = position;
    let mut ring = TransmitRing::new(setup).unwrap();
    let mut packets = Vector::new();
    // In two calls: the second begins behind, too.
    assert_eq!((ring.transmit(&mut packets, 2).unwrap(), ring.transmit(&mut packets, 2).unwrap()), (2, 1));
    assert!(packets.as_slice().iter().all(|packet| packet.len() == 60));
    check(&mut raw, ring.position(), 0);
}

#[test]
fn received_packets_are_used_at_the_other_devices_position() {
    let (mut raw, position) = left(WRITE);
    let mut setup = raw.setup();
    setup.position = position;
    let mut ring = ReceiveRing::new(setup).unwrap();
    let packets: Vec<Packet> = (0..PACKETS).map(|_| Packet::from_bytes(&[0x5a; 60]).unwrap()).collect();
    assert_eq!(ring.receive(&packets).unwrap().count, packets.len());
    check(&mut raw, ring.position(), WRITE);
}
