//! Work that a sender has left to others: unfinished checksums, and TCP super-frames to be cut into segments.
//!
//! A guest that may leaves the checksum of a TCP or UDP packet unfinished, and hands over up to 64 KiB of a TCP stream as one
//! frame. Whoever sends such a packet to somebody who does not take it so does the rest here: [`finish_checksum`], or
//! [`SuperFrame`], which cuts as Linux's software segmentation does. Every frame that comes from elsewhere is checked in
//! full; what is not well formed is an error that names the field.
//!
//! ```
//! # use bellows_wire::{*, offload::*};
//! # let mut frame = vec![0; 54 + 3000];
//! # frame[54..].fill(7);
//! # let addresses = IpPair::V4 { src: [192, 0, 2, 1].into(), dst: [192, 0, 2, 2].into() };
//! # TcpHeader { src_port: 1, dst_port: 2, sequence: 10, acknowledgment: 0, flags: 0x18, window: 9 }.emit(&mut frame[34..], &addresses)?;
//! # Ipv4Header { src: [192, 0, 2, 1].into(), dst: [192, 0, 2, 2].into(), protocol: IpProtocol::TCP, ttl: 64, traffic_class: 0, identification: 1, dont_fragment: true }.emit(&mut frame[14..])?;
//! # EthernetHeader { dst: MacAddr::BROADCAST, src: MacAddr::BROADCAST, ether_type: EtherType::IPV4 }.emit(&mut frame)?;
//! // 3,000 bytes of a stream behind 54 bytes of headers.
//! let super_frame = SuperFrame::new(&frame, Kind::Tcp4, 1_448)?;
//! for segment in super_frame.segments(Checksums::Whole) {
//!     let mut buffer = vec![0; segment.len()];
//!     segment.write(&mut buffer);
//!     assert!(buffer.len() <= 54 + 1_448);
//!     verify_checksums(&buffer)?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;

use crate::tcp::flags::{CWR, FIN, PSH};
use crate::view::{Error, expect, need};
use crate::{EtherType, IpPair, IpProtocol, Ipv4Packet, Ipv6Packet, Sum, TcpSegment, ethernet, ipv4, ipv6, tcp};

/// Finishes a checksum: the field at `start + offset` holds the sum of the pseudo-header, to which the bytes from `start` to the
/// packet's end are added.
///
/// Never writes 0, which UDP takes for "no checksum"; 0xffff is the same number to all other protocols.
///
/// # Errors
/// The field lies outside the packet, which stays as it is.
///
/// ```
/// # use bellows_wire::offload::finish_checksum;
/// let mut packet = [0x45, 0x00, /* from here: */ 0x12, 0x34, /* the field: */ 0x00, 0x01, 0x00];
/// finish_checksum(&mut packet, 2, 2)?;
/// assert_eq!(packet[4..6], (!0x1235_u16).to_be_bytes());
/// # Ok::<(), bellows_wire::Error>(())
/// ```
pub fn finish_checksum(packet: &mut [u8], start: usize, offset: usize) -> Result<(), Error> {
    let field = start.saturating_add(offset);
    need("unfinished checksum", packet, field.saturating_add(2))?;
    // At an odd distance from the start the field's bytes would change places in the sum.
    expect(offset.is_multiple_of(2), "unfinished checksum", "offset", offset, "even")?;
    let checksum = Sum::new().add_bytes(&packet[start..]).finish_udp();
    packet[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// What a super-frame is said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
}

/// What the TCP checksums of segments are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    /// Right.
    Whole,
    /// Unfinished: the sum of the pseudo-header, for somebody who does what [`finish_checksum`] does.
    Partial,
}

/// An Ethernet frame with more of a TCP stream than goes into one segment, found well formed.
#[derive(Debug, Clone, Copy)]
pub struct SuperFrame<'a> {
    /// All headers: Ethernet with VLAN tags, IP with options or extension headers, TCP with options.
    headers: &'a [u8],
    /// The bytes of the stream.
    payload: &'a [u8],
    kind: Kind,
    ip_at: usize,
    tcp_at: usize,
    segment_size: usize,
    /// The sum of what the segments' IPv4 headers have in common, and of what their TCP checksums cover in common.
    ip_sum: Sum,
    tcp_sum: Sum,
    /// The sum of the pseudo-header but for the length.
    pseudo_header: Sum,
}

impl<'a> SuperFrame<'a> {
    /// Reads a super-frame that is to be cut into segments of `segment_size` bytes of the stream each.
    ///
    /// Padding behind the IP packet is not sent on. A frame that has no more than one segment's bytes becomes that one. The
    /// smaller the segments the more there are, see [`SuperFrame::count`]: look before they are made room for.
    ///
    /// # Errors
    /// The size is 0, or the frame is not TCP of this kind, or is cut short or malformed. Fragments, and packets whose
    /// segments would need an authentication header of their own, cannot be cut.
    pub fn new(frame: &'a [u8], kind: Kind, segment_size: u16) -> Result<Self, Error> {
        expect(segment_size > 0, "super-frame", "segment size", segment_size, "1 byte at least")?;
        let (ether_type, packet) = ethernet::skip_vlan_tags(frame)?;
        let ip_at = frame.len() - packet.len();
        let packet = match kind {
            Kind::Tcp4 => Carried::by_ipv4(ether_type, packet)?,
            Kind::Tcp6 => Carried::by_ipv6(ether_type, packet)?,
        };
        let tcp_at = ip_at + packet.segment.start;
        let segment = &frame[tcp_at..ip_at + packet.segment.end];
        let header_len = segment.len() - TcpSegment::new_checked(segment)?.payload().len();
        let (header, payload) = segment.split_at(header_len);
        let pseudo_header = packet.addresses.pseudo_header(IpProtocol::TCP, 0);
        Ok(SuperFrame {
            headers: &frame[..tcp_at + header_len],
            payload,
            kind,
            ip_at,
            tcp_at,
            segment_size: segment_size.into(),
            ip_sum: packet.header_sum,
            tcp_sum: sum_of_pieces(pseudo_header, header, TCP_CONSTANT),
            pseudo_header,
        })
    }

    /// Length of the headers that each segment begins with, bytes.
    pub fn header_len(&self) -> usize {
        self.headers.len()
    }

    /// Where the TCP header begins: what a checksum that is to be finished starts from.
    pub fn tcp_start(&self) -> usize {
        self.tcp_at
    }

    /// How many segments it makes.
    pub fn count(&self) -> usize {
        self.payload.len().div_ceil(self.segment_size).max(1)
    }

    /// Cuts the frame.
    pub fn segments(&self, checksums: Checksums) -> Segments<'_> {
        Segments { whole: self, checksums, next: 0 }
    }
}

/// The pieces of an IPv4 header that are the same in all segments: all but length, identification and checksum.
const IPV4_CONSTANT: [(usize, usize); 3] = [(0, 2), (6, 10), (12, usize::MAX)];

/// The pieces of a TCP header that are the same: all but sequence number, flags and checksum.
const TCP_CONSTANT: [(usize, usize); 4] = [(0, 4), (8, 12), (14, 16), (18, usize::MAX)];

fn sum_of_pieces<const N: usize>(sum: Sum, header: &[u8], pieces: [(usize, usize); N]) -> Sum {
    pieces.iter().fold(sum, |sum, &(start, end)| sum.add_bytes(&header[start..end.min(header.len())]))
}

/// What an IP packet says of the TCP segment in it.
struct Carried {
    /// Where it lies in the packet.
    segment: Range<usize>,
    /// The addresses that its checksum covers.
    addresses: IpPair,
    header_sum: Sum,
}

impl Carried {
    fn by_ipv4(ether_type: EtherType, packet: &[u8]) -> Result<Self, Error> {
        expect(ether_type == EtherType::IPV4, "Ethernet", "type", ether_type.0, "0x0800 (IPv4), as the offload says")?;
        let view = Ipv4Packet::new_checked(packet)?;
        let protocol = view.protocol();
        expect(protocol == IpProtocol::TCP, "IPv4", "protocol", protocol.0, "6 (TCP), for only TCP is cut")?;
        let is_whole = !view.more_fragments() && view.fragment_offset() == 0;
        expect(is_whole, "IPv4", "fragment field", view.flags_fragment(), "that of a whole packet")?;
        Ok(Carried {
            segment: view.header().len()..view.total_len().into(),
            addresses: view.addresses(),
            header_sum: sum_of_pieces(Sum::new(), view.header(), IPV4_CONSTANT),
        })
    }

    fn by_ipv6(ether_type: EtherType, packet: &[u8]) -> Result<Self, Error> {
        expect(ether_type == EtherType::IPV6, "Ethernet", "type", ether_type.0, "0x86dd (IPv6), as the offload says")?;
        let view = Ipv6Packet::new_checked(packet)?;
        let upper = view.upper_layer()?;
        let protocol = upper.protocol;
        expect(protocol == IpProtocol::TCP, "IPv6", "upper protocol", protocol.0, "6 (TCP), for only TCP is cut")?;
        expect(upper.fragment.is_none(), "IPv6", "the number of fragment headers", 1_u8, "0")?;
        expect(!upper.authenticated, "IPv6", "the number of authentication headers", 1_u8, "0")?;
        let hidden = Error::Malformed {
            header: "IPv6 routing header",
            field: "the number of those that hide the destination",
            value: 1,
            must: "0: give them a type that is known (0, 2 or 4)",
        };
        let dst = upper.final_dst.ok_or(hidden)?;
        let end = ipv6::field::HEADER_LEN + view.payload().len();
        let addresses = IpPair::V6 { src: view.src(), dst };
        Ok(Carried { segment: end - upper.payload.len()..end, addresses, header_sum: Sum::new() })
    }
}

/// The segments of a [`SuperFrame`], in order.
#[derive(Debug, Clone)]
pub struct Segments<'a> {
    whole: &'a SuperFrame<'a>,
    checksums: Checksums,
    next: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        let (whole, index) = (self.whole, self.next);
        let start = index * whole.segment_size;
        let end = whole.payload.len().min(start + whole.segment_size);
        if index > 0 && start >= whole.payload.len() {
            return None;
        }
        self.next += 1;
        let payload = &whole.payload[start..end];
        Some(Segment { whole, checksums: self.checksums, index, start, payload })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.whole.count() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Segments<'_> {}

/// One frame to be written.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    whole: &'a SuperFrame<'a>,
    checksums: Checksums,
    index: usize,
    /// Where its payload begins in the whole payload.
    start: usize,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Length of the frame, bytes.
    #[expect(clippy::len_without_is_empty, reason = "a frame has headers")]
    pub fn len(&self) -> usize {
        self.whole.headers.len() + self.payload.len()
    }

    /// The bytes of the stream that it carries, behind [`SuperFrame::header_len`] bytes of headers.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Writes the frame. Hot.
    ///
    /// # Panics
    /// If `frame` is not [`Segment::len`] bytes long.
    pub fn write(&self, frame: &mut [u8]) {
        let (headers, payload) = frame.split_at_mut(self.whole.headers.len());
        payload.copy_from_slice(self.payload);
        self.write_headers(headers);
    }

    /// Writes the headers alone, checksums included, for callers that bring the payload behind them by other means. Hot.
    ///
    /// # Panics
    /// If `headers` is not [`SuperFrame::header_len`] bytes long.
    pub fn write_headers(&self, headers: &mut [u8]) {
        let whole = self.whole;
        headers.copy_from_slice(whole.headers);
        let (link_and_ip, tcp) = headers.split_at_mut(whole.tcp_at);
        self.patch_tcp(tcp);
        let ip = &mut link_and_ip[whole.ip_at..];
        let ip_len = (self.len() - whole.ip_at) as u16;
        match whole.kind {
            Kind::Tcp4 => self.patch_ipv4(ip, ip_len),
            Kind::Tcp6 => put(ip, ipv6::field::PAYLOAD_LEN, ip_len - ipv6::field::HEADER_LEN as u16),
        }
    }

    /// Numbers the packets one after the other, as their sender would have if it had sent them one by one.
    fn patch_ipv4(&self, header: &mut [u8], total_len: u16) {
        let first = u16::from_be_bytes([header[4], header[5]]);
        let identification = first.wrapping_add(self.index as u16);
        put(header, ipv4::field::TOTAL_LEN, total_len);
        put(header, ipv4::field::IDENTIFICATION, identification);
        put(header, ipv4::field::CHECKSUM, self.whole.ip_sum.add_u16(total_len).add_u16(identification).finish());
    }

    fn patch_tcp(&self, header: &mut [u8]) {
        let whole = self.whole;
        let first = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let sequence = first.wrapping_add(self.start as u32);
        let offset_and_flags = u16::from_be_bytes([header[12], header[13]]) & !u16::from(self.flags_of_others());
        header[tcp::field::SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
        put(header, tcp::field::DATA_OFFSET.start..tcp::field::FLAGS.end, offset_and_flags);
        let length = (header.len() + self.payload.len()) as u16;
        let checksum = match self.checksums {
            Checksums::Partial => !whole.pseudo_header.add_u16(length).finish(),
            Checksums::Whole => {
                let sum = whole.tcp_sum.add_u16(length).add_u64(sequence.into()).add_u16(offset_and_flags);
                sum.add_bytes(self.payload).finish()
            }
        };
        put(header, tcp::field::CHECKSUM, checksum);
    }

    /// The flags that belong to the first segment or to the last one alone, and this is not it.
    fn flags_of_others(&self) -> u8 {
        let is_last = self.start + self.payload.len() == self.whole.payload.len();
        (if self.index > 0 { CWR } else { 0 }) | if is_last { 0 } else { FIN | PSH }
    }
}

/// Writes a 16-bit field.
fn put(header: &mut [u8], field: Range<usize>, value: u16) {
    header[field].copy_from_slice(&value.to_be_bytes());
}
