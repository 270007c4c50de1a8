//! A session: the headers that it sends and expects.

use std::cell::Cell;

use bellows_common::headers::ecn::{ECN, Marked};
use bellows_common::headers::{
    ETHERNET, HEADERS_V4, HEADERS_V6, Pattern, Template, cut, cut_trailer, end_of_ip, ether_type, headers, ip_length,
    is_ip, read, reversed, uncover_to, write,
};
use bellows_packet::{Handles, Offload, Packet, prepend_all};
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
pub(super) struct Note {
    kind: u16,
    port: u16,
    /// The ECN bits to copy.
    ecn: u8,
    /// That of an IPv4 packet which may be fragmented.
    identification: u16,
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

/// A session.
pub(super) struct Session {
    /// Of packets that are sent, and of received ones.
    pub(super) addresses: IpPair,
    pub(super) received: IpPair,
    pub(super) shape: TunnelHeaders,
    template: Template,
    /// The sum of the words of the IPv4 header in the template, without length and checksum.
    header_sum: u32,
    pub(super) pattern: Pattern,
    /// The last sequence number that was received, if packets must be in order.
    pub(super) last_sequence: Cell<Option<u32>>,
    /// The place of the path to its other end.
    pub(super) path: usize,
    /// The longest frame that is sent.
    longest: usize,
    /// Whether packets of IPv4 may be fragmented on the way.
    clears_df: bool,
    /// Whether packets have the ECN bits of what they carry.
    copies_ecn: bool,
    /// Bytes of headers, with that of Ethernet, that go in front of a packet, and come off.
    pub(super) added: usize,
    removed: usize,
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
        let (template, pattern) = (Template::new(&sent), Pattern::new(&expected, &mask));
        let longest = ETHERNET + usize::from(common.mtu);
        Session {
            addresses,
            received,
            shape,
            template,
            header_sum,
            pattern,
            last_sequence: Cell::new(None),
            path: 0,
            longest,
            clears_df,
            copies_ecn: common.copy_ecn,
            added,
            removed,
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
        self.clears_df || self.is_v6()
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
        payload == Payload::Ethernet && checksum == Checksum::None && !is_udp && !in_order && !self.copies_ecn
    }

    /// What the headers of a packet say about it: the EtherType and the port of its flow, if they are in the headers.
    /// Hot.
    #[inline(always)]
    fn note(&self, packet: &Packet, identification: u16) -> Note {
        let kind = match self.shape.payload {
            Payload::Ip { .. } => ether_type(packet.bytes()).unwrap_or(EtherType::IPV4),
            Payload::Ethernet => EtherType(0),
        };
        let port = if self.shape.is_udp { flow_port(packet.bytes()) } else { 0 };
        let ecn = match self.copies_ecn {
            true => Marked::find(packet.bytes(), 0).map_or(0, |carried| carried.traffic_class & ECN),
            false => 0,
        };
        Note { kind: kind.0, port, ecn, identification }
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
        let note = self.note(packet, identification);
        packet.prepend(self.added);
        let tail = tail.map(|tail| Tail { start: tail.start + self.added, ..tail });
        self.cover::<false>(packet, note, tail);
    }

    /// Puts packets into the tunnel, if it takes all of them: false if not, and none has changed. `notes` is room for as
    /// many. Hot: to be called in a [loop for the processor](bellows_sys::simd::Loop).
    #[inline(always)]
    pub(super) fn put_in_all(
        &self,
        packets: &mut [Packet],
        ahead: usize,
        notes: &mut [Note],
        identification: u16,
    ) -> bool {
        let handles = Handles::of(packets);
        if handles.shortest < ETHERNET || self.added + handles.longest > self.longest {
            return false;
        }
        if self.is_plain() {
            if !prepend_all(packets, self.added) {
                return false;
            }
            packets.iter().take(ahead).for_each(Packet::prefetch);
            for at in 0..packets.len() {
                if let Some(packet) = packets.get(at + ahead) {
                    packet.prefetch();
                }
                let note = Note { identification: identification.wrapping_add(at as u16), ..Note::default() };
                // Nothing in front of the frame has been read.
                [0, LINE].iter().filter_map(|&line| packets[at].bytes().get(line)).for_each(touch);
                self.cover::<true>(&mut packets[at], note, None);
            }
            return true;
        }
        packets.iter().take(ahead).for_each(Packet::prefetch);
        let mut are_carried = true;
        for (at, note) in notes.iter_mut().enumerate().take(packets.len()) {
            if let Some(packet) = packets.get(at + ahead) {
                packet.prefetch();
            }
            are_carried &= self.carries(&packets[at]) && self.has_no_trailer(&packets[at]);
            *note = self.note(&packets[at], identification.wrapping_add(at as u16));
        }
        if !are_carried || !prepend_all(packets, self.added) {
            return false;
        }
        packets.iter_mut().zip(notes).for_each(|(packet, note)| self.cover::<false>(packet, *note, None));
        true
    }

    /// Writes the headers of a packet with room for them. Hot.
    #[inline(always)]
    fn cover<const IS_PLAIN: bool>(&self, packet: &mut Packet, note: Note, tail: Option<Tail>) {
        packet.set_tag(0);
        let frame = packet.bytes_mut();
        self.template.write(frame);
        self.set_lengths(frame, note);
        if IS_PLAIN {
            return;
        }
        let start = self.start();
        if let Payload::Ip { ether_type_at, .. } = self.shape.payload {
            write(frame, start + ether_type_at, note.kind);
        }
        if self.shape.is_udp {
            let length = frame.len() - start;
            write(frame, start, note.port);
            write(frame, start + UDP_LENGTH, length as u16);
        }
        if self.shape.checksum != Checksum::None {
            self.set_checksum(frame, tail);
        }
    }

    /// Writes the lengths of IP, the copied ECN bits, and the checksum of IPv4. Hot.
    #[inline(always)]
    fn set_lengths(&self, frame: &mut [u8], Note { ecn, identification, .. }: Note) {
        let length = (frame.len() - ETHERNET) as u16;
        match self.addresses {
            IpPair::V4 { .. } => {
                write(frame, ETHERNET + 2, length);
                let mut sum = self.header_sum + u32::from(length);
                if self.clears_df {
                    write(frame, ETHERNET + 4, identification);
                    sum += u32::from(identification);
                }
                if self.copies_ecn {
                    frame[ETHERNET + 1] |= ecn;
                    sum += u32::from(ecn);
                }
                let sum = (sum & 0xffff) + (sum >> 16);
                write(frame, ETHERNET + 10, !((sum + (sum >> 16)) as u16));
            }
            IpPair::V6 { .. } => {
                write(frame, ETHERNET + 4, length - 40);
                if self.copies_ecn {
                    frame[ETHERNET + 1] |= ecn << 4;
                }
            }
        }
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

    /// Whether the checksum of a received packet, of which these are the bytes behind the header of IP, is right; of UDP,
    /// there may be none.
    pub(super) fn has_right_checksum(&self, payload: &[u8]) -> bool {
        let sum = match self.shape.checksum {
            _ if self.shape.is_udp && read(payload, UDP_CHECKSUM) == 0 => return true,
            _ if self.shape.is_udp => self.addresses.pseudo_header(IpProtocol::UDP, payload.len()),
            Checksum::None => return true,
            Checksum::Gre | Checksum::Udp => Sum::new(),
        };
        sum.add_bytes(payload).finish() == 0
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

    /// Takes a packet whose header is the expected one out of the tunnel. False if its lengths or its checksum are not
    /// right, or if it takes a closer look: for an offload, or because a sequence number is missing. Hot.
    #[inline(always)]
    pub(super) fn take_out<const ARE_PLAIN: bool>(&self, packet: &mut Packet) -> bool {
        let frame = packet.bytes();
        let length = match self.addresses {
            IpPair::V4 { .. } => usize::from(read(frame, ETHERNET + 2)),
            IpPair::V6 { .. } => 40 + usize::from(read(frame, ETHERNET + 4)),
        };
        let end = ETHERNET + length;
        let least = self.removed + ETHERNET;
        if (end > frame.len()) | (end < least) | packet.has_offload() {
            return false;
        }
        if ARE_PLAIN {
            cut(packet, self.removed, end);
            return true;
        }
        if self.shape.in_order {
            return false;
        }
        let payload = &frame[self.start()..end];
        // Every UDP datagram of a tunnel ends where its packet does.
        let is_whole = !self.shape.is_udp || usize::from(read(payload, UDP_LENGTH)) == payload.len();
        if !is_whole || !self.has_right_checksum(payload) {
            return false;
        }
        let header = match self.shape.payload {
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

/// The source port of a flow. Hot.
#[inline(always)]
fn flow_port(frame: &[u8]) -> u16 {
    let hash = bellows_wire::flow::hash(frame, bellows_wire::flow::Directions::Apart).unwrap_or(0);
    FLOW_PORTS | (hash ^ (hash >> 16)) as u16
}
