//! A router between the ends whose links are narrow.

use bellows_wire::ipv4::Ipv4Header;
use bellows_wire::ipv6::Ipv6Header;
use bellows_wire::{IpPair, IpProtocol, Sum};

use crate::ends::{ALL, ANN, CONTROL, Pair, at, both, frame};

/// The error of a router on the way about a packet of an end.
pub(crate) fn too_big(packet: &[u8], mtu: u16) -> Vec<u8> {
    let is_v6 = packet[12..14] == [0x86, 0xdd];
    let start = if is_v6 { 14 + 40 } else { 14 + 20 };
    let mut error = [&packet[6..12], &packet[..6], &packet[12..14], &vec![0; start - 14]].concat();
    error.extend(if is_v6 { [2, 0, 0, 0, 0, 0] } else { [3, 4, 0, 0, 0, 0] });
    error.extend(mtu.to_be_bytes());
    error.extend(&packet[14..packet.len().min(500)]);
    let address = |at: usize, length: usize| packet[at..at + length].to_vec();
    let (protocol, pseudo) = match is_v6 {
        true => {
            let src = "2001:db8::9".parse().unwrap();
            let dst = <[u8; 16]>::try_from(address(22, 16)).unwrap().into();
            let next_header = IpProtocol::ICMPV6;
            let header = Ipv6Header { src, dst, next_header, hop_limit: 64, traffic_class: 0, flow_label: 0 };
            header.emit(&mut error[14..]).unwrap();
            (next_header, IpPair::V6 { src, dst }.pseudo_header(next_header, error.len() - start))
        }
        false => {
            let src = "192.0.2.9".parse().unwrap();
            let dst = <[u8; 4]>::try_from(address(26, 4)).unwrap().into();
            let (protocol, traffic_class, identification) = (IpProtocol::ICMP, 0, 0);
            let header =
                Ipv4Header { src, dst, protocol, ttl: 64, traffic_class, identification, dont_fragment: false };
            header.emit(&mut error[14..]).unwrap();
            (protocol, Sum::new())
        }
    };
    assert!(matches!(protocol, IpProtocol::ICMP | IpProtocol::ICMPV6));
    let checksum = pseudo.add_bytes(&error[start..]).finish();
    error[start + 2..start + 4].copy_from_slice(&checksum.to_be_bytes());
    error
}

#[test]
fn tunnels_learn_the_mtu_of_a_core_and_fragment_over_ipv6() {
    // Whole packets are too long for the core, or fragments of the router are.
    for uplink in [1_600, 1_500] {
        let mut pair = Pair::up(&both(uplink, [CONTROL; 2]), None);
        pair.core_mtu = 1_280;
        let sent = frame(ALL, ANN, None, 1_514);
        pair.send("west", "office", &sent);
        assert!(pair.received().iter().all(|(place, _)| !place.starts_with("east")));
        assert_eq!(pair.count("west/l2tpv3-six", "told_path_mtu"), 1);
        pair.longest = 0;
        for times in 1..4 {
            pair.send("west", "office", &sent);
            assert!(pair.received().contains(&at("east.office", &sent)));
            assert_eq!(pair.count("west/l2tpv3-six", "fragmented"), times);
        }
        assert_eq!(pair.longest, 1_280);
        // The other end learns by itself, and another tunnel too.
        pair.send("east", "lab", &sent);
        assert_eq!((pair.received(), pair.count("east/gre-six", "told_path_mtu")), (Vec::new(), 1));
        pair.send("east", "lab", &sent);
        assert_eq!(pair.received(), [at("west.lab", &sent)]);
        pair.run(3_000);
        assert_eq!(pair.count("west/control-channel-lan.lan", "down"), 0);
    }
}

#[test]
fn frames_over_ipv4_are_dropped_by_name_or_fragmented_on_the_way() {
    let sent = frame(ALL, ANN, Some(8), 1_518);
    let mut pair = Pair::up(&both(1_600, [CONTROL; 2]), None);
    pair.core_mtu = 1_400;
    for counter in ["told_path_mtu", "too_big"] {
        pair.send("west", "customers", &sent);
        assert_eq!((pair.received(), pair.count("west/gre-four", counter)), (Vec::new(), 1));
    }
    let short = frame(ALL, ANN, Some(8), 1_376);
    pair.send("west", "customers", &short);
    assert_eq!(pair.received(), [at("east.customers", &short)]);

    let clear = |ends: String| ends.replace("remote = \"there.v4\"", "remote = \"there.v4\", df = \"clear\"");
    let mut pair = Pair::up(&clear(both(1_500, [CONTROL; 2])), None);
    // The router of this end is the first on the way.
    pair.send("west", "customers", &sent);
    assert_eq!(pair.received(), [at("east.customers", &sent)]);
    assert_eq!(pair.count("west/router/ip4-fragment", "frag_oks"), 1);
    assert_eq!(pair.count("east/router/ip4-reassemble", "reasm_oks"), 1);
}
