//! IPv6 packets and their extension headers (RFC 8200).

use std::net::Ipv6Addr;
use std::ops::Range;

use crate::view::{Error, Field, expect, len_u16, need, view};
use crate::{IpPair, IpProtocol};

view! {
    /// An IPv6 packet, without bytes after its payload length (Ethernet's padding). Jumbograms (RFC 2675) look empty.
    Ipv6Packet: "IPv6", 40 bytes, ranges in field, checked by check, payload at payload {
        /// Version (6), traffic class and flow label.
        version_class_flow, set_version_class_flow: u32 = VERSION_CLASS_FLOW 0..4;
        /// Length of everything after this header, including extension headers, in bytes.
        payload_len, set_payload_len: u16 = PAYLOAD_LEN 4..6;
        /// The next header: an extension header or the upper layer.
        next_header, set_next_header: IpProtocol = NEXT_HEADER 6..7;
        /// Hop limit.
        hop_limit, set_hop_limit: u8 = HOP_LIMIT 7..8;
        /// The source address.
        src, set_src: Ipv6Addr = SRC 8..24;
        /// The next destination address.
        dst, set_dst: Ipv6Addr = DST 24..40;
    }
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    let version = bytes[0] >> 4;
    expect(version == 6, "IPv6", "version", version, "6")?;
    need("IPv6", bytes, payload(bytes).end)
}

fn payload(bytes: &[u8]) -> Range<usize> {
    field::HEADER_LEN..field::HEADER_LEN + usize::from(Ipv6Packet(bytes).payload_len())
}

/// The maximum number of extension headers that [`Ipv6Packet::upper_layer`] skips; a packet with more is rejected.
pub const MAX_EXTENSION_HEADERS: usize = 16;

/// The payload of an IPv6 packet after its extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpperLayer<'a> {
    /// The first protocol that is not an extension header that can be skipped.
    pub protocol: IpProtocol,
    /// Its bytes; those of one fragment if the packet is one.
    pub payload: &'a [u8],
    /// From the fragment header, if there is one. After a fragment header that is not the first fragment's, no further
    /// header is searched.
    pub fragment: Option<Fragment>,
    /// The address that checksums cover: the last of a source route (routing types 0, 2 and 4) that is not complete
    /// yet, else the packet's destination. `None` if a routing header of another type hides it.
    pub final_dst: Option<Ipv6Addr>,
    /// Whether an authentication header, which covers the rest of the packet, was skipped.
    pub authenticated: bool,
}

/// The position of a fragment in its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// The offset in the fragmentable part of the packet, in bytes.
    pub offset: u16,
    /// Whether fragments follow this one.
    pub more: bool,
}

impl<T: AsRef<[u8]>> Ipv6Packet<T> {
    /// Differentiated services and congestion notification.
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_flow() >> 20) as u8
    }

    /// The flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        self.version_class_flow() & 0x000f_ffff
    }

    /// Source and destination.
    pub fn addresses(&self) -> IpPair {
        IpPair::V6 { src: self.src(), dst: self.dst() }
    }

    /// Walks the extension headers: hop-by-hop options, routing, fragment, authentication, destination options.
    ///
    /// # Errors
    /// If an extension header extends past the payload, or there are more than [`MAX_EXTENSION_HEADERS`].
    pub fn upper_layer(&self) -> Result<UpperLayer<'_>, Error> {
        let mut upper = UpperLayer {
            protocol: self.next_header(),
            payload: self.payload(),
            fragment: None,
            final_dst: Some(self.dst()),
            authenticated: false,
        };
        for _ in 0..=MAX_EXTENSION_HEADERS {
            let bytes = upper.payload;
            let len_of = |unit: usize, base: usize| bytes.get(1).map_or(0, |len| base + unit * usize::from(*len));
            let (header, len) = match upper.protocol {
                IpProtocol::IPV6_HOP_BY_HOP => ("IPv6 hop-by-hop options", len_of(8, 8)),
                IpProtocol::IPV6_DESTINATION => ("IPv6 destination options", len_of(8, 8)),
                IpProtocol::IPV6_ROUTE => ("IPv6 routing header", len_of(8, 8)),
                IpProtocol::IPV6_FRAGMENT => ("IPv6 fragment header", 8),
                IpProtocol::AH => ("IPv6 authentication header", len_of(4, 8)),
                _ => return Ok(upper),
            };
            need(header, bytes, len.max(8))?;
            let (extension, rest) = bytes.split_at(len);
            match upper.protocol {
                IpProtocol::IPV6_ROUTE => upper.final_dst = final_dst(extension, upper.final_dst),
                IpProtocol::IPV6_FRAGMENT => {
                    let word = u16::from_be_bytes([extension[2], extension[3]]);
                    upper.fragment = Some(Fragment { offset: word & 0xfff8, more: word & 1 != 0 });
                }
                IpProtocol::AH => upper.authenticated = true,
                _ => {}
            }
            upper.protocol = IpProtocol(extension[0]);
            upper.payload = rest;
            if upper.fragment.is_some_and(|fragment| fragment.offset != 0) {
                return Ok(upper);
            }
        }
        let found = MAX_EXTENSION_HEADERS + 1;
        Err(Error::Malformed {
            header: "IPv6",
            field: "the number of extension headers",
            value: found,
            must: "16 at most",
        })
    }
}

/// The final destination of a routing header of at least 8 bytes; `dst` is the destination in the packet's header.
fn final_dst(routing: &[u8], dst: Option<Ipv6Addr>) -> Option<Ipv6Addr> {
    let (route_type, segments_left) = (routing[2], routing[3]);
    if segments_left == 0 {
        return dst;
    }
    let last = match route_type {
        // RFC 2460, section 4.4, and RFC 6275, section 6.4: the next addresses in order.
        0 | 2 => routing.len().checked_sub(16).filter(|start| *start >= 8)?,
        // RFC 8754, section 2: the segment list is in reverse order.
        4 => 8,
        _ => return None,
    };
    routing.get(last..last + 16).map(Ipv6Addr::read)
}

/// The fields of an IPv6 header, to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Header {
    /// The source address.
    pub src: Ipv6Addr,
    /// The destination address.
    pub dst: Ipv6Addr,
    /// The next header.
    pub next_header: IpProtocol,
    /// Hop limit.
    pub hop_limit: u8,
    /// Differentiated services and congestion notification.
    pub traffic_class: u8,
    /// The flow label (low 20 bits).
    pub flow_label: u32,
}

impl Ipv6Header {
    /// Writes the header's 40 bytes to the start of the packet. The other bytes become the payload.
    ///
    /// # Errors
    /// If the packet is shorter than the header or its payload longer than 65,535 bytes.
    pub fn emit(&self, packet: &mut [u8]) -> Result<(), Error> {
        need("IPv6", packet, field::HEADER_LEN)?;
        let payload_len = len_u16("IPv6", "payload length", packet.len() - field::HEADER_LEN)?;
        let mut view = Ipv6Packet(packet);
        view.set_version_class_flow(6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff);
        view.set_payload_len(payload_len);
        view.set_next_header(self.next_header);
        view.set_hop_limit(self.hop_limit);
        view.set_src(self.src);
        view.set_dst(self.dst);
        Ok(())
    }
}
