//! Offloads: partial checksums, and TCP GSO packets to be segmented.
//!
//! A guest with these features leaves the checksum of a TCP or UDP packet partial, and sends up to 64 KiB of a TCP
//! stream as one frame. For a receiver without the features, this module does the rest: [`Transport::finish`], or
//! [`GsoPacket`], which segments like Linux's software segmentation. Every frame from outside is validated completely;
//! errors name the malformed field.
//!
//! A sender's offload metadata is untrusted, so forwarders derive it from the frame itself: [`Transport::find`] returns
//! the position of the checksum and the bytes that it covers, [`GsoPacket::new`] checks that the frame can be
//! segmented, within [limits](MAX_SEGMENTS) that keep one frame from costing as much as thousands.
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
//! let gso_packet = GsoPacket::new(&frame, GsoKind::Tcp4, 1_448)?;
//! for segment in gso_packet.segments(Checksums::Whole) {
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
use crate::{
    EtherType, IpPair, IpProtocol, Ipv4Packet, Ipv6Packet, Sum, TcpSegment, UdpDatagram, ethernet, ipv4, ipv6, tcp, udp,
};

/// Finishes a partial checksum: the field at `start + offset` holds the sum of the pseudo-header, to which the bytes
/// from `start` to the packet's end are added.
///
/// Never writes 0, which UDP takes for "no checksum"; 0xffff is equivalent for all other protocols.
///
/// # Errors
/// If the field lies outside the packet, which stays unchanged.
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
    need("partial checksum", packet, field.saturating_add(2))?;
    // At an odd distance from the start, the field's bytes would swap places in the sum.
    expect(offset.is_multiple_of(2), "partial checksum", "offset", offset, "even")?;
    let checksum = Sum::new().add_bytes(&packet[start..]).finish_udp();
    packet[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// The TCP or UDP header of an Ethernet frame, and the range of its checksum.
///
/// It is the first one after the IP header: tunnels are not entered. No checksum is read or verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    /// [`IpProtocol::TCP`] or [`IpProtocol::UDP`].
    protocol: IpProtocol,
    start: usize,
    end: usize,
}

impl Transport {
    /// Finds the header after VLAN tags and IPv4 with options, or IPv6 with extension headers.
    ///
    /// # Errors
    /// If the frame has no such header, or is truncated or malformed. Fragments are rejected, because their checksum
    /// covers other fragments, too. So are packets with an authentication header, because bytes after it cannot be
    /// changed.
    ///
    /// ```
    /// # use bellows_wire::{*, offload::Transport};
    /// # let address = |last: u8| std::net::IpAddr::from([192, 0, 2, last]);
    /// # let (src_mac, dst_mac) = (MacAddr::BROADCAST, MacAddr::BROADCAST);
    /// # let (src, dst, src_port, dst_port) = (address(1), address(2), 1, 2);
    /// # let headers = UdpFrame { src_mac, dst_mac, vlan: None, src, dst, src_port, dst_port, ttl: 9 };
    /// // Ethernet, IPv4 and UDP: 14, 20 and 8 bytes of headers, and 18 of payload.
    /// let frame = headers.build(60, |_| ())?;
    /// let udp = Transport::find(&frame)?;
    /// assert_eq!((udp.start(), udp.checksum_offset(), udp.end()), (34, 6, 60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find(frame: &[u8]) -> Result<Self, Error> {
        let (ether_type, packet) = ethernet::skip_vlan_tags(frame)?;
        let ip_at = frame.len() - packet.len();
        let carried = match ether_type {
            EtherType::IPV4 => Carried::by_ipv4(packet)?,
            EtherType::IPV6 => Carried::by_ipv6(packet)?,
            EtherType(other) => return Err(refused("Ethernet", "type", other, "0x0800 (IPv4) or 0x86dd (IPv6)")),
        };
        let (start, end) = (ip_at + carried.segment.start, ip_at + carried.segment.end);
        let bytes = &frame[start..end];
        let len = match carried.protocol {
            IpProtocol::TCP => TcpSegment::new_checked(bytes)?.into_inner().len(),
            IpProtocol::UDP => UdpDatagram::new_checked(bytes)?.datagram().len(),
            IpProtocol(other) => return Err(refused("IP", "protocol", other, "6 (TCP) or 17 (UDP)")),
        };
        Ok(Transport { protocol: carried.protocol, start, end: start + len })
    }

    /// Finds the header of a frame whose checksum is partial, by all appearances: the field equals the sum of the
    /// pseudo-header, as Linux leaves it for a device to finish. For frames from interfaces that do not say whether a
    /// checksum is partial. Hot: reads only headers, and of most frames only a few fields.
    ///
    /// A complete and correct checksum may have this value, too, for one frame in 65,536. Finishing it changes nothing,
    /// because the result is the same. An IPv6 source route is not followed, and a UDP datagram that is shorter than its
    /// packet is not found.
    pub fn find_partial(frame: &[u8]) -> Option<Transport> {
        let (ether_type, packet) = ethernet::skip_vlan_tags(frame).ok()?;
        let (addresses, protocol, start) = match ether_type {
            EtherType::IPV4 => {
                let header: &[u8; ipv4::field::HEADER_LEN] = packet.first_chunk()?;
                (
                    &header[ipv4::field::SRC.start..],
                    header[ipv4::field::PROTOCOL.start],
                    usize::from(header[0] & 0xf) * 4,
                )
            }
            EtherType::IPV6 => {
                let header: &[u8; ipv6::field::HEADER_LEN] = packet.first_chunk()?;
                (&header[ipv6::field::SRC.start..], header[ipv6::field::NEXT_HEADER.start], ipv6::field::HEADER_LEN)
            }
            _ => return None,
        };
        let field = match IpProtocol(protocol) {
            IpProtocol::TCP => tcp::field::CHECKSUM,
            IpProtocol::UDP => udp::field::CHECKSUM,
            // Perhaps behind extension headers.
            _ if ether_type == EtherType::IPV6 => return Transport::find_partial_slowly(frame, addresses),
            _ => return None,
        };
        let field = packet.get(start + field.start..start + field.end)?;
        let ip_length = match ether_type {
            EtherType::IPV4 => usize::from(u16::from_be_bytes([packet[2], packet[3]])).checked_sub(start)?,
            _ => u16::from_be_bytes([packet[4], packet[5]]).into(),
        };
        let sum = partial_checksum(addresses, protocol, ip_length);
        if field != sum.to_be_bytes() {
            return None;
        }
        // The sum of a datagram that is shorter than its packet has another length in it, so this one was chance.
        Transport::find(frame).ok().filter(|found| found.end - found.start == ip_length)
    }

    #[cold]
    fn find_partial_slowly(frame: &[u8], addresses: &[u8]) -> Option<Transport> {
        let found = Transport::find(frame).ok()?;
        let field = found.start + found.checksum_offset();
        let sum = partial_checksum(addresses, found.protocol.0, found.end - found.start);
        (frame[field..field + 2] == sum.to_be_bytes()).then_some(found)
    }

    /// The offset of the header in the frame, where the checksummed bytes begin (besides the pseudo-header).
    pub fn start(&self) -> usize {
        self.start
    }

    /// The offset of the checksum from [`Transport::start`]: 16 for TCP, 6 for UDP.
    pub fn checksum_offset(&self) -> usize {
        if self.protocol == IpProtocol::TCP { tcp::field::CHECKSUM.start } else { udp::field::CHECKSUM.start }
    }

    /// The end of the checksummed bytes in the frame. Padding may follow.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Finishes the checksum of the frame in which this header was found, like [`finish_checksum`], without the
    /// padding.
    ///
    /// # Errors
    /// If the frame is shorter than the one in which the header was found. It stays unchanged.
    pub fn finish(&self, frame: &mut [u8]) -> Result<(), Error> {
        need("partial checksum", frame, self.end)?;
        finish_checksum(&mut frame[..self.end], self.start, self.checksum_offset())
    }
}

/// The sum of a pseudo-header, which is in the checksum field until the checksum is finished.
fn partial_checksum(addresses: &[u8], protocol: u8, length: usize) -> u16 {
    !Sum::new().add_bytes(addresses).add_u16(protocol.into()).add_u16(length as u16).finish()
}

/// The smallest maximum segment size, with TCP's options, in bytes: the lowest value to which Linux lets a peer or a
/// path reduce its own (`TCP_MIN_SND_MSS` in its `include/net/tcp.h`). A sender subtracts its options from this size,
/// so 8 bytes of payload are left with the maximum of 40 bytes of options.
pub const MIN_SEGMENT_SIZE: usize = 48;

/// The maximum length of the headers of a GSO packet, in bytes: Ethernet (14), two VLAN tags (8), IPv6 (40), TCP with
/// all its options (60) make 122; the rest is room for extension headers, such as a segment routing header of seven
/// addresses.
pub const MAX_HEADER_LEN: usize = 256;

/// The maximum number of segments of one packet: 64 KiB in segments of 64 bytes.
pub const MAX_SEGMENTS: usize = 1_024;

/// The declared type of a GSO packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
}

/// The form of the TCP checksums of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    /// Complete.
    Whole,
    /// Partial: the sum of the pseudo-header, for a receiver that does the rest like [`finish_checksum`].
    Partial,
}

/// A validated Ethernet frame with more of a TCP stream than fits into one segment.
#[derive(Debug, Clone, Copy)]
pub struct GsoPacket<'a> {
    /// All headers: Ethernet with VLAN tags, IP with options or extension headers, TCP with options.
    headers: &'a [u8],
    /// The bytes of the stream.
    payload: &'a [u8],
    kind: GsoKind,
    ip_at: usize,
    tcp_at: usize,
    segment_size: usize,
    /// The sums over the common bytes of the segments' IPv4 headers, and of their TCP checksums.
    ip_sum: Sum,
    tcp_sum: Sum,
    /// The sum of the pseudo-header without the length.
    pseudo_header: Sum,
}

impl<'a> GsoPacket<'a> {
    /// Reads a GSO packet that is to be segmented into `segment_size` bytes of the stream each.
    ///
    /// Padding after the IP packet is not sent on. A frame with at most one segment's bytes becomes one segment.
    ///
    /// # Errors
    /// If the frame is not TCP of this type, or is truncated or malformed; if its headers are longer than
    /// [`MAX_HEADER_LEN`], or its segments smaller than [`MIN_SEGMENT_SIZE`] or more than [`MAX_SEGMENTS`]. Fragments,
    /// and packets whose segments would each need an authentication header, cannot be segmented.
    pub fn new(frame: &'a [u8], kind: GsoKind, segment_size: u16) -> Result<Self, Error> {
        let (ether_type, packet) = ethernet::skip_vlan_tags(frame)?;
        let ip_at = frame.len() - packet.len();
        let (wanted, must) = match kind {
            GsoKind::Tcp4 => (EtherType::IPV4, "0x0800 (IPv4), as the offload says"),
            GsoKind::Tcp6 => (EtherType::IPV6, "0x86dd (IPv6), as the offload says"),
        };
        expect(ether_type == wanted, "Ethernet", "type", ether_type.0, must)?;
        let carried = match kind {
            GsoKind::Tcp4 => Carried::by_ipv4(packet)?,
            GsoKind::Tcp6 => Carried::by_ipv6(packet)?,
        };
        let protocol = carried.protocol;
        expect(protocol == IpProtocol::TCP, "IP", "protocol", protocol.0, "6 (TCP), for only TCP is cut")?;
        let tcp_at = ip_at + carried.segment.start;
        let segment = &frame[tcp_at..ip_at + carried.segment.end];
        let header_len = segment.len() - TcpSegment::new_checked(segment)?.payload().len();
        let (header, payload) = segment.split_at(header_len);
        let headers = &frame[..tcp_at + header_len];
        let segment_size = usize::from(segment_size);
        let with_options = segment_size + header_len - tcp::field::HEADER_LEN;
        let size_must = "48 bytes at least, with TCP's options";
        expect(
            segment_size > 0 && with_options >= MIN_SEGMENT_SIZE,
            "GSO packet",
            "segment size",
            segment_size,
            size_must,
        )?;
        expect(headers.len() <= MAX_HEADER_LEN, "GSO packet", "header length", headers.len(), "256 bytes at most")?;
        let count = payload.len().div_ceil(segment_size);
        expect(count <= MAX_SEGMENTS, "GSO packet", "the number of segments", count, "1,024 at most")?;
        let hidden = refused(
            "IPv6 routing header",
            "the number of those that hide the destination",
            1_u8,
            "0: give them a type that is known (0, 2 or 4)",
        );
        let pseudo_header = carried.addresses.ok_or(hidden)?.pseudo_header(IpProtocol::TCP, 0);
        Ok(GsoPacket {
            headers,
            payload,
            kind,
            ip_at,
            tcp_at,
            segment_size,
            ip_sum: carried.header_sum,
            tcp_sum: sum_of_pieces(pseudo_header, header, TCP_CONSTANT),
            pseudo_header,
        })
    }

    /// Length of the headers of each segment, in bytes.
    pub fn header_len(&self) -> usize {
        self.headers.len()
    }

    /// The offset of the TCP header: the start of the bytes of a partial checksum.
    pub fn tcp_start(&self) -> usize {
        self.tcp_at
    }

    /// Length of the frame without padding, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a frame has headers")]
    pub fn len(&self) -> usize {
        self.headers.len() + self.payload.len()
    }

    /// Length of the longest segment, the first one, in bytes. A packet may have less than it says that segments have.
    pub fn longest_segment(&self) -> usize {
        self.headers.len() + self.segment_size.min(self.payload.len())
    }

    /// The number of segments: 1 to [`MAX_SEGMENTS`].
    pub fn count(&self) -> usize {
        self.payload.len().div_ceil(self.segment_size).max(1)
    }

    /// Segments the packet.
    pub fn segments(&self, checksums: Checksums) -> Segments<'_> {
        Segments { whole: self, checksums, next: 0 }
    }
}

/// The ranges of an IPv4 header that are the same in all segments: all but length, identification and checksum.
const IPV4_CONSTANT: [(usize, usize); 3] = [(0, 2), (6, 10), (12, usize::MAX)];

/// The ranges of a TCP header that are the same: all but sequence number, flags and checksum.
const TCP_CONSTANT: [(usize, usize); 4] = [(0, 4), (8, 12), (14, 16), (18, usize::MAX)];

fn sum_of_pieces<const N: usize>(sum: Sum, header: &[u8], pieces: [(usize, usize); N]) -> Sum {
    pieces.iter().fold(sum, |sum, &(start, end)| sum.add_bytes(&header[start..end.min(header.len())]))
}

/// The payload of an IP packet.
struct Carried {
    protocol: IpProtocol,
    /// Its position in the packet.
    segment: Range<usize>,
    /// The addresses that its checksum covers; `None` if a routing header hides one.
    addresses: Option<IpPair>,
    /// The sum over the common bytes of the segments' IPv4 headers.
    header_sum: Sum,
}

impl Carried {
    fn by_ipv4(packet: &[u8]) -> Result<Self, Error> {
        let view = Ipv4Packet::new_checked(packet)?;
        let is_whole = !view.more_fragments() && view.fragment_offset() == 0;
        expect(is_whole, "IPv4", "fragment field", view.flags_fragment(), "that of a whole packet")?;
        Ok(Carried {
            protocol: view.protocol(),
            segment: view.header().len()..view.total_len().into(),
            addresses: Some(view.addresses()),
            header_sum: sum_of_pieces(Sum::new(), view.header(), IPV4_CONSTANT),
        })
    }

    fn by_ipv6(packet: &[u8]) -> Result<Self, Error> {
        let view = Ipv6Packet::new_checked(packet)?;
        let upper = view.upper_layer()?;
        expect(upper.fragment.is_none(), "IPv6", "the number of fragment headers", 1_u8, "0")?;
        expect(!upper.authenticated, "IPv6", "the number of authentication headers", 1_u8, "0")?;
        let end = ipv6::field::HEADER_LEN + view.payload().len();
        Ok(Carried {
            protocol: upper.protocol,
            segment: end - upper.payload.len()..end,
            addresses: upper.final_dst.map(|dst| IpPair::V6 { src: view.src(), dst }),
            header_sum: Sum::new(),
        })
    }
}

fn refused(header: &'static str, field: &'static str, value: impl Into<usize>, must: &'static str) -> Error {
    Error::Malformed { header, field, value: value.into(), must }
}

/// The segments of a [`GsoPacket`], in order.
#[derive(Debug, Clone)]
pub struct Segments<'a> {
    whole: &'a GsoPacket<'a>,
    checksums: Checksums,
    next: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        let (whole, index) = (self.whole, self.next);
        if index >= whole.count() {
            return None;
        }
        let start = index * whole.segment_size;
        let end = whole.payload.len().min(start + whole.segment_size);
        self.next += 1;
        let payload = &whole.payload[start..end];
        Some(Segment { whole, checksums: self.checksums, index, start, payload })
    }

    /// Skips `count` segments in one step.
    fn nth(&mut self, count: usize) -> Option<Segment<'a>> {
        self.next = self.whole.count().min(self.next.saturating_add(count));
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.whole.count() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Segments<'_> {}

/// One segment to be written.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    whole: &'a GsoPacket<'a>,
    checksums: Checksums,
    index: usize,
    /// The offset of its payload in the whole payload.
    start: usize,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Length of the frame, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a frame has headers")]
    pub fn len(&self) -> usize {
        self.whole.headers.len() + self.payload.len()
    }

    /// The bytes of the stream in it, after [`GsoPacket::header_len`] bytes of headers.
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

    /// Writes the headers alone, including checksums, for callers that add the payload themselves. Hot.
    ///
    /// # Panics
    /// If `headers` is not [`GsoPacket::header_len`] bytes long.
    pub fn write_headers(&self, headers: &mut [u8]) {
        let whole = self.whole;
        headers.copy_from_slice(whole.headers);
        let (link_and_ip, tcp) = headers.split_at_mut(whole.tcp_at);
        self.patch_tcp(tcp);
        let ip = &mut link_and_ip[whole.ip_at..];
        // No segment is longer than the whole packet, whose length fits into such a field. IPv6 does not include its
        // own header in it, so with the header the packet can be longer than 65,535 bytes.
        let ip_len = self.len() - whole.ip_at;
        match whole.kind {
            GsoKind::Tcp4 => self.patch_ipv4(ip, ip_len as u16),
            GsoKind::Tcp6 => put(ip, ipv6::field::PAYLOAD_LEN, (ip_len - ipv6::field::HEADER_LEN) as u16),
        }
    }

    /// Numbers the packets consecutively, as if their sender had sent them one by one.
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

    /// The flags that this segment must not have: those of the first or the last segment alone, if it is another one.
    fn flags_of_others(&self) -> u8 {
        let is_last = self.start + self.payload.len() == self.whole.payload.len();
        (if self.index > 0 { CWR } else { 0 }) | if is_last { 0 } else { FIN | PSH }
    }
}

/// Writes a 16-bit field.
fn put(header: &mut [u8], field: Range<usize>, value: u16) {
    header[field].copy_from_slice(&value.to_be_bytes());
}
