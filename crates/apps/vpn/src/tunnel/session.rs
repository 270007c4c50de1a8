//! A session: the headers that it sends and expects.

use std::cell::Cell;

use bellows_common::headers::ecn::{ECN, Marked};
use bellows_common::headers::{
    Differences, ETHERNET, HEADERS_V4, HEADERS_V6, LONG, MAX, MIN, Pattern, Template, cut, cut_trailer, end_of_ip,
    ether_type, headers, ip_length, is_ip, read, reversed, uncover_to, write,
};
use bellows_packet::{CAPACITY, Frames, Handles, Offload, Packet, narrow_all, prepend_all};
use bellows_sys::cache::{LINE, touch};
use bellows_wire::{EtherType, IpPair, IpProtocol, MacAddr, Sum};

use super::{Config, DontFragment};

/// What a session carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Frames.
    Ethernet,
    /// IP packets.
    Ip {
        /// Where the header has their EtherType, in bytes behind that of IP.
        ether_type_at: usize,
        /// The Ethernet address to which they come out.
        dst_mac: MacAddr,
    },
}

/// The checksum of a session's packets, which covers all behind the header of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// There is none; for UDP, 0 is sent.
    None,
    /// In the header of GRE (RFC 2784).
    Gre,
    /// In the header of UDP.
    Udp,
}

/// The headers of a session behind that of IP.
#[derive(Clone, Debug)]
pub struct TunnelHeaders {
    /// The number by which received packets name the session, if there is one.
    pub id: Option<u32>,
    /// Where its 4 bytes are.
    pub id_at: Option<usize>,
    /// What is sent.
    pub send: Vec<u8>,
    /// What is expected.
    pub expect: Vec<u8>,
    /// The bits of it that matter.
    pub mask: Vec<u8>,
    /// The byte that says how long options are, which usual packets do not have, and its bits that do.
    pub options: Option<(usize, u8)>,
    /// Whether packets must have sequence numbers, and those that were overtaken are dropped.
    pub in_order: bool,
    /// The bytes of a cookie in what is expected.
    pub cookie: std::ops::Range<usize>,
    /// What the session carries.
    pub payload: Payload,
    /// The checksum of its packets.
    pub checksum: Checksum,
    /// Whether the first header is that of UDP, whose source port distinguishes flows.
    pub is_udp: bool,
}

impl TunnelHeaders {
    /// Whether packets that are sent differ in a byte behind the header of IP.
    pub(super) fn varies_at(&self, at: usize) -> bool {
        let is_of_udp = self.is_udp && matches!(at, 0 | 1 | UDP_LENGTH..8);
        let is_checksum = self.checksum == Checksum::Gre && (GRE_CHECKSUM..GRE_CHECKSUM + 2).contains(&at);
        let is_kind = match self.payload {
            Payload::Ip { ether_type_at, .. } => (ether_type_at..ether_type_at + 2).contains(&at),
            Payload::Ethernet => false,
        };
        is_of_udp || is_checksum || is_kind
    }
}

/// What is read in a packet, for its headers.
#[derive(Clone, Copy, Debug, Default)]
struct Note {
    kind: u16,
    port: u16,
    /// The ECN bits to copy.
    ecn: u8,
}

/// Fields of IP, in network order but for the identification.
#[derive(Clone, Copy)]
struct OuterFields {
    length: [u8; 2],
    /// The checksum of IPv4.
    sum: [u8; 2],
    /// That of an IPv4 packet which may be fragmented.
    identification: u16,
}

/// Room for what loops know about each packet of a vector.
pub(super) struct TunnelColumns {
    /// Those of [`Note`].
    kinds: Vec<u16>,
    ports: Vec<u16>,
    ecns: Vec<u8>,
    /// Those of [`OuterFields`].
    lengths: Vec<[u8; 2]>,
    sums: Vec<[u8; 2]>,
    /// Where packets of IP end.
    ends: Vec<u32>,
}

impl TunnelColumns {
    pub(super) fn new() -> TunnelColumns {
        TunnelColumns {
            kinds: vec![0; CAPACITY],
            ports: vec![0; CAPACITY],
            ecns: vec![0; CAPACITY],
            lengths: vec![[0; 2]; CAPACITY],
            sums: vec![[0; 2]; CAPACITY],
            ends: vec![0; CAPACITY],
        }
    }
}

/// The end of a packet, whose sum is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    start: usize,
    sum: u16,
}

impl Tail {
    /// That of a packet whose checksum is still to be made. Once it is, all that it covers has the complement of what stands
    /// in its place now as its sum.
    pub(super) fn of(packet: &Packet) -> Option<Tail> {
        let offload = packet.offload().filter(Offload::needs_checksum)?;
        let start = usize::from(offload.checksum_start);
        Some(Tail { start, sum: !read(packet.bytes(), start + usize::from(offload.checksum_offset)) })
    }
}

/// What is in the headers that a session sends. The loops copy it: what they read again after each store into a packet, they
/// would load again.
#[derive(Clone, Copy)]
struct Sent {
    template: Template,
    /// The sum of the words of the IPv4 header in the template, without length and checksum.
    header_sum: u32,
    is_v6: bool,
    /// Whether packets of IPv4 may be fragmented on the way.
    clears_df: bool,
    /// Whether packets have the ECN bits of what they carry.
    copies_ecn: bool,
    /// Where the EtherType of what is carried is, if packets differ in it.
    kind_at: Option<usize>,
    /// Whether a header of UDP follows.
    udp: bool,
}

/// What the headers that a session receives must be, copied by loops as well.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    pattern: Pattern,
    /// The addresses of packets that are sent.
    addresses: IpPair,
    payload: Payload,
    checksum: Checksum,
    is_udp: bool,
    in_order: bool,
    /// Bytes that come off in front of a packet.
    removed: usize,
}

/// A session.
pub(super) struct Session {
    /// Of packets that are sent, and of received ones.
    pub(super) addresses: IpPair,
    pub(super) received: IpPair,
    pub(super) shape: TunnelHeaders,
    sent: Sent,
    pub(super) expected: Expected,
    /// The last sequence number that was received, if packets must be in order.
    pub(super) last_sequence: Cell<Option<u32>>,
    /// The place of the path to its other end.
    pub(super) path: usize,
    /// The longest frame that is sent.
    longest: usize,
    /// Bytes of headers, with that of Ethernet, that go in front of a packet.
    pub(super) added: usize,
}

/// Ports of UDP that distinguish flows (RFC 7348, section 5).
const FLOW_PORTS: u16 = 0xc000;

/// Where the fields of UDP are.
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;
/// Where that of GRE is.
const GRE_CHECKSUM: usize = 4;

impl Session {
    /// A session between these ends.
    pub(super) fn new<S>(addresses: IpPair, protocol: IpProtocol, common: &Config<S>, shape: TunnelHeaders) -> Session {
        let traffic_class = if common.copy_ecn { common.traffic_class & !ECN } else { common.traffic_class };
        let mut sent = headers(addresses, protocol, common.hop_limit, traffic_class, &shape.send);
        let clears_df = common.df == DontFragment::Clear && matches!(addresses, IpPair::V4 { .. });
        if clears_df {
            sent[ETHERNET + 6] = 0;
        }
        let received = reversed(addresses);
        let expected = headers(received, protocol, 0, 0, &shape.expect);
        let mut mask = vec![0; expected.len()];
        let ip = ip_length(&addresses);
        let (ip_mask, shape_mask) = mask[ETHERNET..].split_at_mut(ip);
        shape_mask.copy_from_slice(&shape.mask);
        ip_mask.copy_from_slice(&bellows_common::headers::ip_mask(&addresses));
        // CE and ECT(1) can change what is carried, which takes a closer look. The other two cannot.
        ip_mask[1] |= if matches!(addresses, IpPair::V6 { .. }) { 1 << 4 } else { 1 };
        let (added, removed) = match shape.payload {
            Payload::Ethernet => (sent.len(), expected.len()),
            // The Ethernet header of what they carry is of no use.
            Payload::Ip { .. } => (sent.len() - ETHERNET, expected.len() - ETHERNET),
        };
        let header = &sent[ETHERNET..ETHERNET + ip];
        let words = header.as_chunks::<2>().0.iter().enumerate().filter(|(at, _)| !matches!(at, 1 | 5));
        let header_sum = words.map(|(_, word)| u32::from(u16::from_be_bytes(*word))).sum();
        let start = sent.len() - shape.send.len();
        let kind_at = match shape.payload {
            Payload::Ethernet => None,
            Payload::Ip { ether_type_at, .. } => Some(start + ether_type_at),
        };
        Session {
            addresses,
            received,
            sent: Sent {
                template: Template::new(&sent),
                header_sum,
                is_v6: matches!(addresses, IpPair::V6 { .. }),
                clears_df,
                copies_ecn: common.copy_ecn,
                kind_at,
                udp: shape.is_udp,
            },
            expected: Expected {
                pattern: Pattern::new(&expected, &mask),
                addresses,
                payload: shape.payload,
                checksum: shape.checksum,
                is_udp: shape.is_udp,
                in_order: shape.in_order,
                removed,
            },
            shape,
            last_sequence: Cell::new(None),
            path: 0,
            longest: ETHERNET + usize::from(common.mtu),
            added,
        }
    }

    /// Sets the longest packet that is sent.
    pub(super) fn set_mtu(&mut self, mtu: u16) {
        self.longest = ETHERNET + usize::from(mtu);
    }

    /// The longest packet that is sent.
    pub(super) fn mtu(&self) -> u16 {
        (self.longest - ETHERNET) as u16
    }

    /// Whether the packets around what it carries may be fragmented.
    pub(super) fn may_fragment(&self) -> bool {
        self.sent.clears_df || self.is_v6()
    }

    /// Whether it is over IPv6.
    pub(super) fn is_v6(&self) -> bool {
        matches!(self.addresses, IpPair::V6 { .. })
    }

    /// Bytes of the headers of Ethernet and IP.
    #[inline(always)]
    pub(super) fn start(&self) -> usize {
        match self.addresses {
            IpPair::V4 { .. } => HEADERS_V4,
            IpPair::V6 { .. } => HEADERS_V6,
        }
    }

    /// Whether a packet can be put into the tunnel as it is. Hot.
    #[inline(always)]
    pub(super) fn takes(&self, packet: &Packet) -> bool {
        self.carries(packet) & self.fits(packet) && !packet.has_offload() && packet.headroom() >= self.added
    }

    /// Whether a packet is of the kind that the session carries. Hot.
    #[inline(always)]
    pub(super) fn carries(&self, packet: &Packet) -> bool {
        match self.shape.payload {
            Payload::Ethernet => packet.len() >= ETHERNET,
            Payload::Ip { .. } => ether_type(packet.bytes()).is_some(),
        }
    }

    /// Whether a packet with the headers is no longer than the path's MTU. Hot.
    #[inline(always)]
    pub(super) fn fits(&self, packet: &Packet) -> bool {
        packet.len() + self.added <= self.longest
    }

    /// Whether a packet with the headers is no longer than one of IP can be.
    pub(super) fn fits_ip(&self, packet: &Packet) -> bool {
        packet.len() + self.added <= ETHERNET + usize::from(u16::MAX)
    }

    /// Whether packets carry frames behind headers that are all the same but for their length. Then none of their bytes is
    /// read, and no checksum is made.
    pub(super) fn is_plain(&self) -> bool {
        let TunnelHeaders { payload, checksum, is_udp, in_order, .. } = self.shape;
        payload == Payload::Ethernet && checksum == Checksum::None && !is_udp && !in_order && !self.sent.copies_ecn
    }

    /// What the headers of a packet say about it: the EtherType and the port of its flow, if they are in the headers.
    /// Hot.
    #[inline(always)]
    fn note(&self, packet: &Packet) -> Note {
        let kind = match self.sent.kind_at {
            Some(_) => ether_type(packet.bytes()).unwrap_or(EtherType::IPV4),
            None => EtherType(0),
        };
        let port = if self.sent.udp { flow_port(packet.bytes()) } else { 0 };
        let ecn = if self.sent.copies_ecn { ecn_of(packet.bytes()) } else { 0 };
        Note { kind: kind.0, port, ecn }
    }

    /// Whether nothing is behind a packet of IP that the session carries. Hot.
    #[inline(always)]
    fn has_no_trailer(&self, packet: &Packet) -> bool {
        matches!(self.shape.payload, Payload::Ethernet)
            || end_of_ip(packet.bytes()).is_none_or(|end| end >= packet.len())
    }

    /// Puts a packet into the tunnel, if it [takes](Session::takes) it: false if not. Hot.
    #[inline(always)]
    pub(super) fn put_in(&self, packet: &mut Packet, identification: u16, tail: Option<Tail>) -> bool {
        if !self.has_no_trailer(packet) {
            cut_trailer(packet);
        }
        let takes = self.takes(packet);
        if takes {
            self.wrap(packet, identification, tail);
        }
        takes
    }

    /// Puts a packet into the tunnel that has room for the headers, and is no longer than one of IP can be. Hot.
    #[inline(always)]
    pub(super) fn wrap(&self, packet: &mut Packet, identification: u16, tail: Option<Tail>) {
        let note = self.note(packet);
        packet.prepend(self.added);
        self.sent.cover(packet, note, identification);
        self.set_checksum(packet.bytes_mut(), tail.map(|tail| Tail { start: tail.start + self.added, ..tail }));
    }

    /// Puts packets into the tunnel, if it takes all of them: false if not, and none has changed. Hot: to be called in a
    /// [loop for the processor](bellows_sys::simd::Loop).
    #[inline(always)]
    pub(super) fn put_in_all(
        &self,
        packets: &mut [Packet],
        ahead: usize,
        columns: &mut TunnelColumns,
        identification: u16,
    ) -> bool {
        let handles = Handles::of(packets);
        if handles.shortest < ETHERNET || self.added + handles.longest > self.longest {
            return false;
        }
        let is_plain = self.is_plain();
        if !(is_plain || self.note_all(packets, ahead, columns)) || !prepend_all(packets, self.added) {
            return false;
        }
        // Otherwise, all frames have been read.
        let ahead = if is_plain { ahead } else { CAPACITY };
        match (self.sent.is_v6, self.sent.template.is_long()) {
            (false, false) => self.sent.cover_all::<false, LONG>(packets, ahead, columns, identification),
            (false, true) => self.sent.cover_all::<false, MAX>(packets, ahead, columns, identification),
            (true, false) => self.sent.cover_all::<true, LONG>(packets, ahead, columns, identification),
            (true, true) => self.sent.cover_all::<true, MAX>(packets, ahead, columns, identification),
        }
        if self.shape.checksum != Checksum::None {
            packets.iter_mut().for_each(|packet| self.set_checksum(packet.bytes_mut(), None));
        }
        true
    }

    /// Writes what the headers of packets say. False if the session does not carry all of them. Hot.
    #[inline(always)]
    fn note_all(&self, packets: &[Packet], ahead: usize, columns: &mut TunnelColumns) -> bool {
        let TunnelColumns { kinds, ports, ecns, .. } = columns;
        packets.iter().take(ahead).for_each(Packet::prefetch);
        let look_ahead = |at: usize| {
            if let Some(packet) = packets.get(at + ahead) {
                packet.prefetch();
            }
        };
        let mut are_carried = true;
        if self.sent.udp {
            for (at, (packet, port)) in packets.iter().zip(ports).enumerate() {
                look_ahead(at);
                *port = flow_port(packet.bytes());
            }
        }
        if self.sent.kind_at.is_some() {
            for (at, (packet, kind)) in packets.iter().zip(kinds).enumerate() {
                look_ahead(at);
                let frame = packet.bytes();
                let found = ether_type(frame);
                are_carried &= found.is_some() & end_of_ip(frame).is_none_or(|end| end >= frame.len());
                *kind = found.map_or(0, |kind| kind.0);
            }
        }
        if self.sent.copies_ecn {
            for (at, (packet, ecn)) in packets.iter().zip(ecns).enumerate() {
                look_ahead(at);
                *ecn = ecn_of(packet.bytes());
            }
        }
        are_carried
    }

    /// Writes the checksum of a packet whose other fields are set, and of which the sum of a part may be known.
    fn set_checksum(&self, frame: &mut [u8], tail: Option<Tail>) {
        let start = self.start();
        let (payload, behind) = (&frame[start..], start + self.shape.send.len());
        // At an odd distance, the bytes of the sum would be swapped.
        let tail =
            tail.filter(|tail| (behind..=frame.len()).contains(&tail.start) && (tail.start - start).is_multiple_of(2));
        let add = |sum: Sum| match tail {
            Some(tail) => sum.add_bytes(&frame[start..tail.start]).add_u16(tail.sum),
            None => sum.add_bytes(payload),
        };
        let (at, checksum) = match self.shape.checksum {
            Checksum::None => return,
            Checksum::Gre => (GRE_CHECKSUM, add(Sum::new()).finish()),
            Checksum::Udp => {
                (UDP_CHECKSUM, add(self.addresses.pseudo_header(IpProtocol::UDP, payload.len())).finish_udp())
            }
        };
        write(frame, start + at, checksum);
    }

    /// Whether a packet is later than those before it, if it must be (RFC 2890, section 2.2).
    pub(super) fn is_in_order(&self, sequence: Option<u32>) -> bool {
        let (true, Some(sequence)) = (self.shape.in_order, sequence) else { return true };
        let is_later = self.last_sequence.get().is_none_or(|last| (1..=1 << 31).contains(&sequence.wrapping_sub(last)));
        if is_later {
            self.last_sequence.set(Some(sequence));
        }
        is_later
    }
}

impl Sent {
    /// Writes the headers of packets, of at most `N` bytes, but for a checksum behind that of IP. Hot.
    #[inline(always)]
    fn cover_all<const V6: bool, const N: usize>(
        self,
        packets: &mut [Packet],
        ahead: usize,
        columns: &mut TunnelColumns,
        identification: u16,
    ) {
        let count = packets.len();
        let (lengths, sums) = (&mut columns.lengths[..count], &mut columns.sums[..count]);
        let (kinds, ports, ecns) = (&columns.kinds[..count], &columns.ports[..count], &columns.ecns[..count]);
        for (packet, length) in packets.iter().zip(&mut *lengths) {
            *length = length_of::<V6>(packet.len()).to_be_bytes();
        }
        let note = |at: usize| Note { kind: kinds[at], port: ports[at], ecn: ecns[at] };
        let identifications = |at: usize| if self.clears_df { identification.wrapping_add(at as u16) } else { 0 };
        if !V6 && self.copies_ecn {
            for (at, ((sum, length), ecn)) in sums.iter_mut().zip(&*lengths).zip(ecns).enumerate() {
                *sum = self.sum(*length, identifications(at), *ecn);
            }
        } else if !V6 {
            for (at, (sum, length)) in sums.iter_mut().zip(&*lengths).enumerate() {
                *sum = self.sum(*length, identifications(at), 0);
            }
        }
        packets.iter().take(ahead).for_each(Packet::prefetch);
        let is_bare = !(self.udp || self.copies_ecn || self.clears_df || self.kind_at.is_some());
        for at in 0..count {
            if let Some(packet) = packets.get(at + ahead) {
                packet.prefetch();
            }
            let packet = &mut packets[at];
            packet.set_tag(0);
            let fields = OuterFields { length: lengths[at], sum: sums[at], identification: identifications(at) };
            let frame = packet.bytes_mut();
            if let Some(start) = frame.first_chunk_mut::<N>() {
                // Nothing in front of the frame has been read.
                touch(&start[0]);
                touch(&start[LINE.min(N - 1)]);
                self.template.write_start(start);
                self.write::<V6>(start, fields);
                if !is_bare {
                    self.write_noted::<V6>(start, fields, note(at));
                }
            } else {
                self.write_short::<V6>(frame, fields, note(at));
            }
        }
    }

    /// As [`Sent::cover_all`], one packet.
    fn cover(&self, packet: &mut Packet, note: Note, identification: u16) {
        packet.set_tag(0);
        let length = match self.is_v6 {
            true => length_of::<true>(packet.len()),
            false => length_of::<false>(packet.len()),
        };
        let length = length.to_be_bytes();
        let identification = if self.clears_df { identification } else { 0 };
        let fields = OuterFields { length, sum: self.sum(length, identification, note.ecn), identification };
        match self.is_v6 {
            true => self.write_short::<true>(packet.bytes_mut(), fields, note),
            false => self.write_short::<false>(packet.bytes_mut(), fields, note),
        }
    }

    /// The checksum of an IPv4 header. Hot.
    #[inline(always)]
    fn sum(&self, length: [u8; 2], identification: u16, ecn: u8) -> [u8; 2] {
        let length = u16::from_be_bytes(length);
        let sum = self.header_sum + u32::from(length) + u32::from(identification) + u32::from(ecn);
        let sum = (sum & 0xffff) + (sum >> 16);
        (!((sum + (sum >> 16)) as u16)).to_be_bytes()
    }

    /// Writes the fields of IP that each packet has. Hot.
    #[inline(always)]
    fn write<const V6: bool>(&self, start: &mut [u8], fields: OuterFields) {
        if V6 {
            start[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&fields.length);
        } else {
            start[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&fields.length);
            start[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&fields.sum);
        }
    }

    /// Writes the fields that only some sessions have. Hot.
    #[inline(always)]
    fn write_noted<const V6: bool>(&self, start: &mut [u8], fields: OuterFields, Note { kind, port, ecn }: Note) {
        let (behind, of_length) = if V6 { (HEADERS_V6, 0) } else { (HEADERS_V4, HEADERS_V4 - ETHERNET) };
        if self.udp {
            write(start, behind, port);
            write(start, behind + UDP_LENGTH, u16::from_be_bytes(fields.length) - of_length as u16);
        }
        if let Some(at) = self.kind_at {
            write(start, at, kind);
        }
        if self.clears_df {
            write(start, ETHERNET + 4, fields.identification);
        }
        if self.copies_ecn {
            start[ETHERNET + 1] |= if V6 { ecn << 4 } else { ecn };
        }
    }

    /// Writes all to a frame that may be shorter than a header can be.
    #[inline(never)]
    fn write_short<const V6: bool>(&self, frame: &mut [u8], fields: OuterFields, note: Note) {
        self.template.write(frame);
        self.write::<V6>(frame, fields);
        self.write_noted::<V6>(frame, fields, note);
    }
}

/// The field of the length in the header of IP, of a frame with all headers. Hot.
#[inline(always)]
fn length_of<const V6: bool>(frame: usize) -> u16 {
    (frame - if V6 { HEADERS_V6 } else { ETHERNET }) as u16
}

impl Expected {
    /// Whether a frame begins with the header. Hot.
    #[inline(always)]
    pub(super) fn is_start_of(&self, frame: &[u8]) -> bool {
        self.pattern.is_start_of(frame)
    }

    /// Bytes of the headers of Ethernet and IP.
    #[inline(always)]
    fn start(&self) -> usize {
        match self.addresses {
            IpPair::V4 { .. } => HEADERS_V4,
            IpPair::V6 { .. } => HEADERS_V6,
        }
    }

    /// Whether the checksum of a received packet, of which these are the bytes behind the header of IP, is right; of UDP,
    /// there may be none.
    pub(super) fn has_right_checksum(&self, payload: &[u8]) -> bool {
        let sum = match self.checksum {
            _ if self.is_udp && read(payload, UDP_CHECKSUM) == 0 => return true,
            _ if self.is_udp => self.addresses.pseudo_header(IpProtocol::UDP, payload.len()),
            Checksum::None => return true,
            Checksum::Gre | Checksum::Udp => Sum::new(),
        };
        sum.add_bytes(payload).finish() == 0
    }

    /// Takes packets out of the tunnel if all have the expected header and are usual in every respect: false if not, and
    /// none has changed. Hot: to be called in a [loop for the processor](bellows_sys::simd::Loop).
    #[inline(always)]
    pub(super) fn take_out_all(self, packets: &mut [Packet], ahead: usize, columns: &mut TunnelColumns) -> bool {
        let TunnelColumns { ends, kinds, .. } = columns;
        let ends = &mut ends[..packets.len()];
        let are_expected = match (matches!(self.addresses, IpPair::V6 { .. }), self.pattern.is_long()) {
            (false, false) => self.find_ends::<false, LONG>(packets, ahead, ends),
            (false, true) => self.find_ends::<false, MAX>(packets, ahead, ends),
            (true, false) => self.find_ends::<true, LONG>(packets, ahead, ends),
            (true, true) => self.find_ends::<true, MAX>(packets, ahead, ends),
        };
        if !are_expected || self.in_order || !self.are_whole(packets, ends) || !self.note_kinds(packets, kinds) {
            return false;
        }
        if !narrow_all(packets, self.removed, ends) {
            return false;
        }
        match self.payload {
            Payload::Ethernet => {
                for packet in packets {
                    packet.set_tag(0);
                }
            }
            Payload::Ip { dst_mac, .. } => {
                for (packet, kind) in packets.iter_mut().zip(kinds) {
                    packet.set_tag(0);
                    uncover_to(dst_mac, packet, EtherType(*kind));
                }
            }
        }
        true
    }

    /// Writes where packets end which have the expected header in their first `N` bytes, and what they carry. False if one
    /// is not usual, or may end behind its frame. Hot.
    #[inline(always)]
    fn find_ends<const V6: bool, const N: usize>(&self, packets: &[Packet], ahead: usize, ends: &mut [u32]) -> bool {
        let Some(frames) = Frames::<[u8; N]>::of(packets) else { return false };
        packets.iter().take(ahead).for_each(Packet::prefetch);
        let (mut differences, mut shortest) = (Differences::none(), u32::MAX);
        let (length_at, fixed) = if V6 { (ETHERNET + 4, HEADERS_V6) } else { (ETHERNET + 2, ETHERNET) };
        for (at, (frame, end)) in frames.iter().zip(ends).enumerate() {
            if let Some(packet) = packets.get(at + ahead) {
                packet.prefetch();
            }
            differences.add(&self.pattern, frame);
            *end = u32::from(u16::from_be_bytes([frame[length_at], frame[length_at + 1]])) + fixed as u32;
            shortest = shortest.min(*end);
        }
        differences.are_none() & (shortest as usize >= self.removed + ETHERNET)
    }

    /// Whether the lengths and checksums behind the headers of IP of packets are right, given where these end. Hot.
    #[inline(always)]
    fn are_whole(&self, packets: &[Packet], ends: &[u32]) -> bool {
        let start = self.start();
        if self.is_udp {
            let (mut differences, mut any) = (0, 0);
            for (packet, &end) in packets.iter().zip(ends) {
                let header =
                    packet.bytes().get(start..).and_then(<[u8]>::first_chunk).map_or(0, |it| u64::from_be_bytes(*it));
                differences |= (header >> 16) as u16 ^ (end - start as u32) as u16;
                any |= header as u16;
            }
            if differences != 0 || any == 0 {
                return differences == 0;
            }
        } else if self.checksum == Checksum::None {
            return true;
        }
        packets.iter().zip(ends).all(|(packet, &end)| {
            packet.bytes().get(start..end as usize).is_some_and(|payload| self.has_right_checksum(payload))
        })
    }

    /// Writes what packets carry. False if one carries another protocol than the session. Hot.
    #[inline(always)]
    fn note_kinds(&self, packets: &[Packet], kinds: &mut [u16]) -> bool {
        let Payload::Ip { ether_type_at, .. } = self.payload else { return true };
        let at = self.start() + ether_type_at;
        let mut are_ip = true;
        for (packet, kind) in packets.iter().zip(kinds) {
            *kind = read(packet.bytes(), at);
            are_ip &= is_ip(EtherType(*kind));
        }
        are_ip
    }

    /// Takes a packet whose header is the expected one out of the tunnel. False if its lengths or its checksum are not
    /// right, or if it takes a closer look: for an offload, or because a sequence number is missing. Hot.
    #[inline(always)]
    pub(super) fn take_out<const ARE_PLAIN: bool>(&self, packet: &mut Packet) -> bool {
        let frame = packet.bytes();
        let Some(first) = frame.first_chunk::<MIN>() else { return false };
        let end = match self.addresses {
            IpPair::V4 { .. } => ETHERNET + usize::from(read(first, ETHERNET + 2)),
            IpPair::V6 { .. } => ETHERNET + 40 + usize::from(read(first, ETHERNET + 4)),
        };
        if (end > frame.len()) | (end < self.removed + ETHERNET) | packet.has_offload() {
            return false;
        }
        if ARE_PLAIN {
            cut(packet, self.removed, end);
            return true;
        }
        if self.in_order {
            return false;
        }
        let payload = &frame[self.start()..end];
        // Every UDP datagram of a tunnel ends where its packet does.
        let is_whole = !self.is_udp || usize::from(read(payload, UDP_LENGTH)) == payload.len();
        if !is_whole || !self.has_right_checksum(payload) {
            return false;
        }
        let header = match self.payload {
            Payload::Ethernet => None,
            Payload::Ip { ether_type_at, dst_mac } => {
                Some((dst_mac, EtherType(read(frame, self.start() + ether_type_at))))
            }
        };
        if header.is_some_and(|(_, kind)| !is_ip(kind)) {
            return false;
        }
        cut(packet, self.removed, end);
        if let Some((dst_mac, kind)) = header {
            uncover_to(dst_mac, packet, kind);
        }
        true
    }
}

/// The ECN bits of what a frame carries.
#[inline(always)]
fn ecn_of(frame: &[u8]) -> u8 {
    Marked::find(frame, 0).map_or(0, |carried| carried.traffic_class & ECN)
}

/// The source port of a flow. Hot.
#[inline(always)]
fn flow_port(frame: &[u8]) -> u16 {
    let hash = bellows_wire::flow::hash(frame, bellows_wire::flow::Directions::Apart).unwrap_or(0);
    FLOW_PORTS | (hash ^ (hash >> 16)) as u16
}
