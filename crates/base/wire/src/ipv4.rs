//! IPv4 packets (RFC 791).

use std::net::Ipv4Addr;
use std::ops::Range;

use crate::view::{Error, expect, len_u16, need, view};
use crate::{IpPair, IpProtocol, Sum};

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

view! {
    /// An IPv4 packet, without bytes after its total length (Ethernet's padding).
    Ipv4Packet: "IPv4", 20 bytes, ranges in field, checked by check, payload at payload {
        /// Version (4) and header length in units of 4 bytes.
        version_ihl, set_version_ihl: u8 = VERSION_IHL 0..1;
        /// Differentiated services (RFC 2474) and congestion notification (RFC 3168).
        traffic_class, set_traffic_class: u8 = TRAFFIC_CLASS 1..2;
        /// Length of header and payload, bytes.
        total_len, set_total_len: u16 = TOTAL_LEN 2..4;
        /// Identification, the same in all fragments of a packet.
        identification, set_identification: u16 = IDENTIFICATION 4..6;
        /// Three flags, and the fragment's offset in units of 8 bytes.
        flags_fragment, set_flags_fragment: u16 = FLAGS_FRAGMENT 6..8;
        /// Time to live.
        ttl, set_ttl: u8 = TTL 8..9;
        /// The protocol of the payload.
        protocol, set_protocol: IpProtocol = PROTOCOL 9..10;
        /// The header's checksum.
        checksum, set_checksum: u16 = CHECKSUM 10..12;
        /// The source address.
        src, set_src: Ipv4Addr = SRC 12..16;
        /// The destination address.
        dst, set_dst: Ipv4Addr = DST 16..20;
    }
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    let (version, Range { start: header_len, end: total_len }) = (bytes[0] >> 4, payload(bytes));
    expect(version == 4, "IPv4", "version", version, "4")?;
    expect(header_len >= field::HEADER_LEN, "IPv4", "header length", header_len, "20 bytes at least")?;
    expect(total_len >= header_len, "IPv4", "total length", total_len, "the header's length at least")?;
    need("IPv4", bytes, total_len)
}

fn payload(bytes: &[u8]) -> Range<usize> {
    let view = Ipv4Packet(bytes);
    usize::from(view.version_ihl() & 0x0f) * 4..view.total_len().into()
}

impl<T: AsRef<[u8]>> Ipv4Packet<T> {
    /// The header with its options, in bytes.
    pub fn header(&self) -> &[u8] {
        let bytes = self.bytes();
        bytes.get(..payload(bytes).start).unwrap_or_default()
    }

    /// Whether routers must not fragment it.
    pub fn dont_fragment(&self) -> bool {
        self.flags_fragment() & DONT_FRAGMENT != 0
    }

    /// Whether fragments follow this one.
    pub fn more_fragments(&self) -> bool {
        self.flags_fragment() & MORE_FRAGMENTS != 0
    }

    /// The offset of this fragment's payload in the original packet's payload, in bytes.
    pub fn fragment_offset(&self) -> u16 {
        self.flags_fragment() << 3
    }

    /// Source and destination.
    pub fn addresses(&self) -> IpPair {
        IpPair::V4 { src: self.src(), dst: self.dst() }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4Packet<T> {
    /// Computes and writes the header's checksum.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let checksum = Sum::new().add_bytes(self.header()).finish();
        self.set_checksum(checksum);
    }
}

/// The fields of an IPv4 header without options, to write it for a packet that is not a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Header {
    /// The source address.
    pub src: Ipv4Addr,
    /// The destination address.
    pub dst: Ipv4Addr,
    /// The protocol of the payload.
    pub protocol: IpProtocol,
    /// Time to live.
    pub ttl: u8,
    /// Differentiated services and congestion notification.
    pub traffic_class: u8,
    /// Identification, the same in all fragments of a packet.
    pub identification: u16,
    /// Whether routers must not fragment it.
    pub dont_fragment: bool,
}

impl Ipv4Header {
    /// Writes the header's 20 bytes to the start of the packet, whose length becomes the total length.
    ///
    /// # Errors
    /// If the packet is shorter than the header or longer than 65,535 bytes.
    pub fn emit(&self, packet: &mut [u8]) -> Result<(), Error> {
        need("IPv4", packet, field::HEADER_LEN)?;
        let total_len = len_u16("IPv4", "total length", packet.len())?;
        let mut view = Ipv4Packet(packet);
        view.set_version_ihl(0x45);
        view.set_traffic_class(self.traffic_class);
        view.set_total_len(total_len);
        view.set_identification(self.identification);
        view.set_flags_fragment(if self.dont_fragment { DONT_FRAGMENT } else { 0 });
        view.set_ttl(self.ttl);
        view.set_protocol(self.protocol);
        view.set_src(self.src);
        view.set_dst(self.dst);
        view.fill_checksum();
        Ok(())
    }
}
