//! Fields of the headers of Ethernet and IP that tunnels write and read.

use bellows_packet::Packet;
use bellows_wire::ipv4::Ipv4Header;
use bellows_wire::ipv6::Ipv6Header;
use bellows_wire::{EtherType, IpPair, IpProtocol, MacAddr};

use super::{ETHERNET, HEADERS_V4, HEADERS_V6};

/// The addresses of packets in the other direction.
#[inline]
pub fn reversed(addresses: IpPair) -> IpPair {
    match addresses {
        IpPair::V4 { src, dst } => IpPair::V4 { src: dst, dst: src },
        IpPair::V6 { src, dst } => IpPair::V6 { src: dst, dst: src },
    }
}

/// The bits of a received IP header that say whom it belongs to: version and length, that it is no fragment, protocol
/// and addresses.
pub fn ip_mask(addresses: &IpPair) -> Vec<u8> {
    let mut mask = vec![0; ip_length(addresses)];
    match addresses {
        IpPair::V4 { .. } => {
            mask[0] = 0xff;
            // Neither "more fragments" nor an offset.
            mask[6..8].copy_from_slice(&[0x3f, 0xff]);
            mask[9] = 0xff;
            mask[12..].fill(0xff);
        }
        IpPair::V6 { .. } => {
            mask[0] = 0xf0;
            mask[6] = 0xff;
            mask[8..].fill(0xff);
        }
    }
    mask
}

/// Removes the headers of a tunnel, and what is behind the packet that it carries. Hot.
#[inline(always)]
pub fn cut(packet: &mut Packet, removed: usize, end: usize) {
    packet.narrow(removed..end);
    packet.set_tag(0);
}

/// Makes the first bytes of a packet an Ethernet header of IP, from no address to none. Hot.
#[inline(always)]
pub fn uncover(packet: &mut Packet, kind: EtherType) {
    uncover_to(MacAddr::default(), packet, kind);
}

/// Makes the first bytes of a packet an Ethernet header of IP, from no address to this one. Hot.
#[inline(always)]
pub fn uncover_to(dst_mac: MacAddr, packet: &mut Packet, kind: EtherType) {
    if let Some(header) = packet.bytes_mut().first_chunk_mut::<ETHERNET>() {
        *header = [0; ETHERNET];
        header[..6].copy_from_slice(&dst_mac.0);
        header[ETHERNET - 2..].copy_from_slice(&kind.0.to_be_bytes());
    }
}

/// The headers of Ethernet and IP in front of that of a tunnel, with lengths and checksum of 0.
pub fn headers(addresses: IpPair, protocol: IpProtocol, hop_limit: u8, traffic_class: u8, behind: &[u8]) -> Vec<u8> {
    let ip = ip_length(&addresses);
    let mut headers = vec![0; ETHERNET + ip];
    let (ethernet, header) = headers.split_at_mut(ETHERNET);
    let (kind, result) = match addresses {
        IpPair::V4 { src, dst } => {
            let fields = Ipv4Header {
                src,
                dst,
                protocol,
                ttl: hop_limit,
                traffic_class,
                identification: 0,
                dont_fragment: true,
            };
            (EtherType::IPV4, fields.emit(header))
        }
        IpPair::V6 { src, dst } => {
            let fields = Ipv6Header { src, dst, next_header: protocol, hop_limit, traffic_class, flow_label: 0 };
            (EtherType::IPV6, fields.emit(header))
        }
    };
    debug_assert!(result.is_ok(), "a header and nothing else fits");
    ethernet[ETHERNET - 2..].copy_from_slice(&kind.0.to_be_bytes());
    if matches!(addresses, IpPair::V4 { .. }) {
        header[2..4].fill(0);
        header[10..12].fill(0);
    }
    headers.extend_from_slice(behind);
    headers
}

/// Bytes of the IP header of packets with these addresses, without options.
#[inline]
pub fn ip_length(addresses: &IpPair) -> usize {
    match addresses {
        IpPair::V4 { .. } => HEADERS_V4 - ETHERNET,
        IpPair::V6 { .. } => HEADERS_V6 - ETHERNET,
    }
}

/// The EtherType of an IP packet behind an Ethernet header without tags. Hot.
#[inline(always)]
pub fn ether_type(frame: &[u8]) -> Option<EtherType> {
    let header = frame.first_chunk::<ETHERNET>()?;
    let kind = EtherType(u16::from_be_bytes([header[ETHERNET - 2], header[ETHERNET - 1]]));
    is_ip(kind).then_some(kind)
}

/// Whether an EtherType is that of IPv4 or IPv6.
#[inline(always)]
pub fn is_ip(kind: EtherType) -> bool {
    kind == EtherType::IPV4 || kind == EtherType::IPV6
}

/// A number of two bytes; 0 behind the end. Hot.
#[inline(always)]
pub fn read(frame: &[u8], at: usize) -> u16 {
    frame.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

/// Writes a number of two bytes, unless it is behind the end. Hot.
#[inline(always)]
pub fn write(frame: &mut [u8], at: usize, number: u16) {
    if let Some(bytes) = frame.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *bytes = number.to_be_bytes();
    }
}
