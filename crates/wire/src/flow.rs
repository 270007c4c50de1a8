//! The flow of a frame.
//!
//! A flow has two IP addresses, a protocol, and for TCP and UDP two ports; for fragments, addresses and protocol only.
//! Frames without IP are classified by Ethernet addresses and EtherType. VLAN tags are ignored.

use crate::{EtherType, EthernetFrame, IpProtocol, Ipv4Packet, Ipv6Packet, ethernet};

/// Maps a hash to one of `count` places. Hot.
#[inline]
pub fn share(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> 64) as usize
}

/// A number that is the same for all packets of a flow in both directions; `None` if it is not an Ethernet frame. Hot.
pub fn hash(frame: &[u8]) -> Option<u64> {
    let (ether_type, payload) = ethernet::skip_vlan_tags(frame).ok()?;
    let of_ip = match ether_type {
        EtherType::IPV4 => ipv4_hash(payload),
        EtherType::IPV6 => ipv6_hash(payload),
        _ => None,
    };
    of_ip.or_else(|| {
        let ethernet = EthernetFrame::new_checked(frame).ok()?;
        let number = |mac: [u8; 6]| mac.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Some(symmetric(number(ethernet.src().0), number(ethernet.dst().0), u64::from(ether_type.0)))
    })
}

fn ipv4_hash(bytes: &[u8]) -> Option<u64> {
    let packet = Ipv4Packet::new_checked(bytes).ok()?;
    let fragment = packet.more_fragments() || packet.fragment_offset() > 0;
    let (src_port, dst_port) = ports(packet.protocol(), packet.payload(), fragment);
    let end = |address: std::net::Ipv4Addr, port: u16| u64::from(address.to_bits()) << 16 | u64::from(port);
    let (src, dst) = (end(packet.src(), src_port), end(packet.dst(), dst_port));
    Some(symmetric(src, dst, u64::from(packet.protocol().0)))
}

fn ipv6_hash(bytes: &[u8]) -> Option<u64> {
    let packet = Ipv6Packet::new_checked(bytes).ok()?;
    let (protocol, (src_port, dst_port)) = match packet.upper_layer() {
        Ok(upper) => (upper.protocol, ports(upper.protocol, upper.payload, upper.fragment.is_some())),
        Err(_) => (packet.next_header(), (0, 0)),
    };
    let end = |address: std::net::Ipv6Addr, port: u16| {
        let bits = address.to_bits();
        mix(mix(bits as u64) ^ (bits >> 64) as u64) ^ u64::from(port)
    };
    let (src, dst) = (end(packet.src(), src_port), end(packet.dst(), dst_port));
    Some(symmetric(src, dst, u64::from(protocol.0)))
}

/// The ports of TCP and UDP; zeros for other protocols.
fn ports(protocol: IpProtocol, bytes: &[u8], fragment: bool) -> (u16, u16) {
    match *bytes {
        [a, b, c, d, ..] if !fragment && matches!(protocol, IpProtocol::TCP | IpProtocol::UDP) => {
            (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        }
        _ => (0, 0),
    }
}

fn symmetric(one: u64, other: u64, kind: u64) -> u64 {
    mix(mix(mix(one.min(other)) ^ one.max(other)) ^ kind)
}

/// Spreads every bit over the whole word (the finalizer of SplitMix64).
#[inline]
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
