//! Packets for tests.

use bellows_packet::{Offload, Packet};
use bellows_wire::{EtherType, EthernetHeader, IpPair, IpProtocol, Ipv4Header, MacAddr, TcpHeader};

/// A GSO packet of TCP over IPv4 with `payload` bytes of a stream and a partial checksum, as a guest sends it.
pub(crate) fn gso_packet(payload: usize, segment_size: u16) -> Packet {
    let mut frame = vec![0; 54 + payload];
    frame[54..].iter_mut().enumerate().for_each(|(index, byte)| *byte = (index * 7) as u8);
    let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let addresses = IpPair::V4 { src, dst };
    let tcp = TcpHeader { src_port: 1, dst_port: 2, sequence: 99, acknowledgment: 0, flags: 0x18, window: 9 };
    tcp.emit(&mut frame[34..], &addresses).unwrap();
    let protocol = IpProtocol::TCP;
    let ip = Ipv4Header { src, dst, protocol, ttl: 64, traffic_class: 0, identification: 1, dont_fragment: true };
    ip.emit(&mut frame[14..]).unwrap();
    let ethernet = EthernetHeader { dst: MacAddr::BROADCAST, src: MacAddr([2; 6]), ether_type: EtherType::IPV4 };
    ethernet.emit(&mut frame).unwrap();
    let sum = addresses.pseudo_header(protocol, 20 + payload);
    frame[50..52].copy_from_slice(&(!sum.finish()).to_be_bytes());
    let mut packet = Packet::from_bytes(&frame).unwrap();
    packet.set_offload(Offload {
        flags: Offload::NEEDS_CHECKSUM,
        gso_type: Offload::GSO_TCP4,
        header_length: 54,
        segment_size,
        checksum_start: 34,
        checksum_offset: 16,
    });
    packet
}
