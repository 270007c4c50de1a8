//! IP packets for tests.

use bellows_common::icmp::{Family, V4, V6};
use bellows_vrf::{IcmpError, Reason};
use bellows_wire::ipv4::Ipv4Header;
use bellows_wire::ipv6::Ipv6Header;
use bellows_wire::{IpPair, IpProtocol, checksum};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// An IP packet behind an Ethernet header, with the hop limit 64.
pub fn ip(addresses: IpPair, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    match addresses {
        IpPair::V4 { src, dst } => {
            frame.extend([8, 0]);
            frame.resize(ETHERNET + 20, 0);
            frame.extend(payload);
            let header =
                Ipv4Header { src, dst, protocol, ttl: 64, traffic_class: 0, identification: 0, dont_fragment: true };
            header.emit(&mut frame[ETHERNET..]).unwrap();
        }
        IpPair::V6 { src, dst } => {
            frame.extend([0x86, 0xdd]);
            frame.resize(ETHERNET + 40, 0);
            frame.extend(payload);
            let header = Ipv6Header { src, dst, next_header: protocol, hop_limit: 64, traffic_class: 0, flow_label: 0 };
            header.emit(&mut frame[ETHERNET..]).unwrap();
        }
    }
    frame
}

/// Addresses of two ends: 1 and 2 of a network that documents use.
pub fn pair(is_v6: bool) -> IpPair {
    let address = |end: u8| match is_v6 {
        true => format!("2001:db8::{end}").parse().unwrap(),
        false => format!("192.0.2.{end}").parse().unwrap(),
    };
    IpPair::new(address(1), address(2)).unwrap()
}

/// The addresses of packets in the other direction.
pub fn back(addresses: IpPair) -> IpPair {
    match addresses {
        IpPair::V4 { src, dst } => IpPair::V4 { src: dst, dst: src },
        IpPair::V6 { src, dst } => IpPair::V6 { src: dst, dst: src },
    }
}

/// Sets the ECN bits of an IP packet behind an Ethernet header and some tags.
pub fn mark(frame: &mut [u8], tags: usize, ecn: u8) {
    let ip = &mut frame[ETHERNET + 4 * tags..];
    if ip[0] >> 4 == 6 {
        ip[1] = ip[1] & 0xcf | ecn << 4;
        return;
    }
    ip[1] = ip[1] & 0xfc | ecn;
    ip[10..12].fill(0);
    let sum = checksum::Sum::new().add_bytes(&ip[..20]).finish();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The error of a router on the way about an IP packet behind an Ethernet header.
pub fn too_big(packet: &[u8], mtu: u16) -> Vec<u8> {
    let mut frame = vec![0; 2_000];
    let error = IcmpError { reason: Reason::TooBig, value: mtu };
    let (ip, to) = (&packet[ETHERNET..], &mut frame[ETHERNET..]);
    let (length, kind) = match ip[0] >> 4 {
        4 => (V4::write(ip, error, "198.51.100.9".parse().unwrap(), to), V4::ETHER_TYPE),
        _ => (V6::write(ip, error, "2001:db8:f::9".parse().unwrap(), to), V6::ETHER_TYPE),
    };
    frame.truncate(ETHERNET + length.unwrap());
    frame[ETHERNET - 2..ETHERNET].copy_from_slice(&kind.0.to_be_bytes());
    frame
}
