//! All operations on bytes that may be a packet.

use std::net::Ipv4Addr;

use bellows_wire::flow::{self, Directions, Flow};
use bellows_wire::offload::{Checksums, GsoKind, GsoPacket, Transport, finish_checksum};
use bellows_wire::summary::{LinkLayer, summarize};
use bellows_wire::*;

/// Makes every view that the bytes allow, reads through all accessors that compute a range, corrupts the fields that
/// determine the range, and reads again.
pub fn touch_all(bytes: Vec<u8>, value: u32) {
    let [high, .., low] = value.to_be_bytes();
    let short = value as u16;
    let _ = verify_checksums(&bytes);
    let _ = verify_ip_checksums(&bytes);
    for link in [0, 1, 101, 113, 276].into_iter().filter_map(LinkLayer::from_number) {
        for length in [bytes.len(), short.into(), value as usize] {
            assert!(!summarize(link, &bytes, length).contains(char::is_control));
        }
    }
    cut(&bytes, short);
    find_flows(&bytes);
    let addresses = IpPair::V4 { src: Ipv4Addr::from(value), dst: Ipv4Addr::BROADCAST };
    if let Ok(mut view) = EthernetFrame::new_checked(bytes.clone()) {
        assert_eq!(view.payload().len() + 14, bytes.len());
        view.set_ether_type(EtherType(short));
        view.payload_mut().fill(low);
        assert_eq!(view.into_inner().len(), bytes.len());
    }
    if let Ok(view) = VlanTag::new_checked(&bytes) {
        assert_eq!(view.payload().len() + 4, bytes.len());
    }
    if let Ok(view) = ArpPacket::new_checked(&bytes) {
        assert_eq!(bytes[24..28], view.target_ip().octets());
    }
    if let Ok(mut view) = Ipv4Packet::new_checked(bytes.clone()) {
        assert_eq!(view.header().len() + view.payload().len(), usize::from(view.total_len()));
        view.fill_checksum();
        view.set_version_ihl(high);
        view.set_total_len(short);
        view.fill_checksum();
        view.payload_mut().fill(low);
        assert!(view.payload().len() <= bytes.len());
    }
    if let Ok(mut view) = Ipv6Packet::new_checked(bytes.clone()) {
        assert_eq!(view.payload().len(), usize::from(view.payload_len()));
        let _ = view.upper_layer();
        view.set_payload_len(short);
        view.set_next_header(IpProtocol(low));
        view.payload_mut().fill(high);
        let _ = view.upper_layer();
    }
    if let Ok(mut view) = UdpDatagram::new_checked(bytes.clone()) {
        assert_eq!(view.payload().len() + 8, view.datagram().len());
        view.set_datagram_len(short);
        view.fill_checksum(&addresses);
        assert!(view.payload().len() <= view.datagram().len());
    }
    if let Ok(mut view) = TcpSegment::new_checked(bytes.clone()) {
        view.set_data_offset(low);
        view.fill_checksum(&addresses);
        view.payload_mut().fill(low);
    }
    if let Ok(mut view) = IcmpMessage::new_checked(bytes.clone()) {
        view.fill_checksum(&addresses);
        assert_eq!(Sum::new().add_bytes(&view.into_inner()).finish(), 0);
    }
}

/// Reads the flow of bytes that may be a frame, or a frame with a tunnel.
pub fn find_flows(bytes: &[u8]) {
    let (flow, inner) = (Flow::of(bytes), Flow::of_inner(bytes));
    assert!(flow.is_some() == (bytes.len() >= 14) && inner.is_some() == flow.is_some());
    for directions in [Directions::Apart, Directions::Together] {
        let (mut one, mut other) = ([0; flow::MAX_BYTES], [0; flow::MAX_BYTES]);
        assert_eq!(flow::hash(bytes, directions), flow.map(|flow| flow.hash(directions)));
        let lengths = [flow::write(bytes, directions, &mut one), flow.map(|flow| flow.write(directions, &mut other))];
        assert!(lengths[0] == lengths[1] && one == other);
    }
}

/// Segments bytes that may be a GSO packet, and checks the first segments and the last.
pub fn cut(frame: &[u8], size: u16) {
    for kind in [GsoKind::Tcp4, GsoKind::Tcp6] {
        let Ok(whole) = GsoPacket::new(frame, kind, size) else { continue };
        let mut length = 0;
        for (index, segment) in whole.segments(Checksums::Partial).enumerate() {
            length += segment.payload().len();
            if index > 3 && index + 1 < whole.count() {
                continue;
            }
            let mut bytes = vec![0; segment.len()];
            segment.write(&mut bytes);
            finish_checksum(&mut bytes, whole.tcp_start(), 16).expect("the header lies in the frame");
            assert_eq!(verify_checksums(&bytes).map(|verified| verified.upper), Ok(Some(Layer::Tcp)));
        }
        assert!(whole.header_len() + length <= frame.len());
        assert_eq!(whole.segments(Checksums::Whole).count(), whole.count());
    }
    let _ = finish_checksum(&mut frame.to_vec(), size.into(), usize::from(size) >> 4);
    if let Ok(found) = Transport::find(frame) {
        assert!(found.start() + found.checksum_offset() + 2 <= found.end() && found.end() <= frame.len());
        found.finish(&mut frame.to_vec()).expect("the header lies in the frame");
    }
}
