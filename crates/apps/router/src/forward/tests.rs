use std::collections::BTreeMap;
use std::sync::Arc;

use bellows_packet::{Offload, Packet};
use bellows_rig::Rig;
use bellows_vrf::{IcmpError, Reason, Tag};
use bellows_wire::{IpProtocol, ipv4::Ipv4Header};
use proptest::prelude::*;

use super::*;
use crate::forwarding::tests::{Left, PORTS, Router, frames, vrf};
use crate::policy::{Policy, ReversePath};

/// What leaves each end, in an order of its own: unusual packets take a longer way.
fn sorted(mut sent: BTreeMap<&'static str, Left>) -> BTreeMap<&'static str, Left> {
    sent.values_mut().for_each(|left| left.sort());
    sent
}

const MODES: [ReversePath; 3] = [ReversePath::Off, ReversePath::Loose, ReversePath::Strict];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn one_loop_forwards_what_the_stages_forward(
        frames in prop::collection::vec(frames(), 1..300),
        most in prop::sample::select(vec![1usize, 3, 8, 300]),
        modes in prop::option::of(prop::collection::vec(prop::sample::select(&MODES[..]), 4)),
    ) {
        let modes = modes.unwrap_or_default();
        let [mut fused, mut apart] = [true, false].map(|is_fused| Router::checking(is_fused, &modes));
        for port in PORTS {
            let of_port: Vec<&Vec<u8>> = frames.iter().filter(|(at, _)| PORTS[*at] == port).map(|(_, frame)| frame).collect();
            for frames in of_port.chunks(most) {
                let packets = || frames.iter().map(|frame| Packet::from_bytes(frame).unwrap());
                // Tags of forwarded packets say nothing any more.
                let seen = |router: &mut Router| {
                    let mut sent = router.route_packets(port, packets());
                    let forwarded = PORTS.iter().filter_map(|port| sent.remove(port).map(|left| (*port, left)));
                    let forwarded: Vec<_> = forwarded.collect();
                    let bytes = |left: Left| left.into_iter().map(|(frame, _)| (frame, 0)).collect();
                    sent.extend(forwarded.into_iter().map(|(port, left)| (port, bytes(left))));
                    sorted(sent)
                };
                prop_assert_eq!(seen(&mut fused), seen(&mut apart));
            }
        }
    }
}

/// A packet from a network behind the first interface to a host behind the second one, with `payload` bytes of TCP's.
fn packet(number: u16, payload: usize) -> Packet {
    let mut frame = vec![0; 14 + 40 + payload];
    frame[12] = 8;
    let header = Ipv4Header {
        src: [20, 0, 0, 1].into(),
        dst: [10, 1, 0, 1].into(),
        protocol: IpProtocol::TCP,
        ttl: 64,
        traffic_class: 0,
        identification: number,
        dont_fragment: true,
    };
    header.emit(&mut frame[14..]).unwrap();
    frame[46] = 0x50;
    let mut packet = Packet::from_bytes(&frame).unwrap();
    packet.set_tag(Tag::received_on(1).0);
    packet
}

#[test]
fn packets_of_a_flow_stay_in_order_if_some_will_be_segmented() {
    let domain = Arc::new(RoutingDomain::new(vrf()));
    let mut rig = Rig::new(Ip4Forward::new(domain), &["input"], &["a", "b", "unusual"]);
    let packets = (0..200).map(|number| {
        let mut packet = packet(number, if number % 3 == 1 { 4_000 } else { 10 });
        if number % 3 == 1 {
            packet.set_offload(Offload { gso_type: Offload::GSO_TCP4, segment_size: 1_000, ..Offload::default() });
        }
        packet
    });
    rig.send_packets("input", packets);
    rig.settle();
    let sent = rig.received("b");
    let seen = |frame: &Vec<u8>| (u16::from_be_bytes([frame[18], frame[19]]), frame[22]);
    assert_eq!(sent.iter().map(seen).collect::<Vec<_>>(), (0..200).map(|number| (number, 63)).collect::<Vec<_>>());
    assert_eq!(rig.received("unusual").len(), 0);
}

#[test]
fn what_one_loop_does_not_do_leaves_as_it_came() {
    let domain = Arc::new(RoutingDomain::new(vrf()));
    let mut rig = Rig::new(Ip4Forward::new(Arc::clone(&domain)), &["input"], &["a", "b", "unusual"]);
    // Too long and not to be fragmented, with a wrong checksum, of the router itself.
    let mut wrong = packet(7, 10);
    wrong.bytes_mut()[24] ^= 1;
    let mut own = packet(8, 10);
    own.set_tag(Tag::received_on(0).0);
    let packets = [packet(1, 1_400), wrong, own].map(|packet| (packet.bytes().to_vec(), packet));
    let (came, packets): (Vec<_>, Vec<_>) = packets.into_iter().unzip();
    for packet in packets {
        rig.send_packets("input", [packet]);
        rig.settle();
    }
    assert_eq!(rig.received("unusual"), came);
    assert_eq!(rig.received("b").len(), 0);

    let mut rig = Rig::new(Ip4Forward::new(domain), &["input"], &["a", "b"]);
    rig.send_packets("input", [packet(1, 1_400), packet(2, 10)]);
    rig.settle();
    assert_eq!((rig.received("b").len(), rig.counts().drops["unusual"]), (1, 1));
}

#[test]
fn senders_on_the_link_of_the_next_hop_are_redirected() {
    let domain = Arc::new(RoutingDomain::new(vrf()).redirecting(vec![true; 4]));
    let mut rig = Rig::new(Ip4Forward::new(domain), &["input"], &["a", "b", "unusual", "error"]);
    // From a neighbour on the second interface, and back through it.
    let mut turning = packet(1, 10);
    turning.bytes_mut()[26..30].copy_from_slice(&[10, 0, 2, 7]);
    bellows_common::ipv4_options::fill_checksum(&mut turning.bytes_mut()[14..34]);
    turning.set_tag(Tag::received_on(2).0);
    let mut wrong = Packet::from_bytes(turning.bytes()).unwrap();
    wrong.set_tag(turning.tag());
    wrong.bytes_mut()[24] ^= 1;
    let bytes = turning.bytes().to_vec();
    rig.send_packets("input", [turning, wrong]);
    rig.settle();
    let told = rig.received_packets("error");
    let redirect = Tag::received_on(2).with(IcmpError::of(Reason::Redirect).number()).0;
    assert_eq!(told.iter().map(|it| (it.bytes(), it.tag())).collect::<Vec<_>>(), [(&bytes[..], redirect)]);
    assert_eq!((rig.received("b").len(), rig.received("unusual").len()), (1, 1));
}

#[test]
fn sources_are_checked_in_the_loop() {
    let strict = Policy { reverse_path: ReversePath::Strict, ..Policy::default() };
    let domain = Arc::new(RoutingDomain::with_policies(vrf(), vec![strict; 4]));
    let mut rig = Rig::new(Ip4Forward::new(domain), &["input"], &["a", "b", "unusual"]);
    // The route back to 20.0.0.1 leads through the first interface.
    let mut wrong = packet(2, 10);
    wrong.set_tag(Tag::received_on(3).0);
    let came = wrong.bytes().to_vec();
    rig.send_packets("input", [packet(1, 10), wrong, packet(3, 10)]);
    rig.settle();
    assert_eq!(rig.received("unusual"), [came]);
    assert_eq!(rig.received("b").len(), 2);
}
