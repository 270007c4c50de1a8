//! Reading the headers of fragments.

use std::net::IpAddr;

use bellows_common::headers::ETHERNET;
use bellows_common::ip_frame::{IpFrame, Version};
use bellows_common::ipv4_options::is_checksum_right;
use bellows_packet::Packet;
use bellows_vrf::{IcmpError, Reason};
use bellows_wire::ipv6::{self, Ipv6Packet};
use bellows_wire::{EtherType, IpProtocol, ipv4};

use crate::forwarding::{TYPE_IP4, TYPE_IP6, loaded};

/// The longest IP packet: of IPv4 with its header, of IPv6 without.
pub(super) const MAX_LENGTH: u32 = 65_535;

/// The flag for more fragments behind this one, of IPv4.
const MORE_FRAGMENTS: u16 = 0x2000;

/// Bytes of an IPv6 fragment header.
pub(super) const FRAGMENT_HEADER: usize = 8;

/// Bytes of a TCP header without options, and of a UDP or ICMP header.
const TCP_HEADER: usize = 20;
const SHORT_HEADER: usize = 8;

/// What the fragments of a datagram have in common: addresses, protocol (IPv4), identification, and VLANs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatagramKey {
    V4([u64; 2]),
    V6([u64; 5]),
}

impl DatagramKey {
    /// The family, as an index.
    pub(super) fn family(&self) -> usize {
        match self {
            DatagramKey::V4(_) => V4,
            DatagramKey::V6(_) => V6,
        }
    }

    /// The source.
    pub(super) fn source(&self) -> IpAddr {
        match self {
            DatagramKey::V4([addresses, _]) => IpAddr::from(((addresses >> 32) as u32).to_be_bytes()),
            DatagramKey::V6([high, low, ..]) => {
                IpAddr::from((u128::from(*high) << 64 | u128::from(*low)).to_be_bytes())
            }
        }
    }
}

/// The families, as indices.
pub(super) const V4: usize = 0;
pub(super) const V6: usize = 1;

/// A fragment in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) key: DatagramKey,
    /// Where the data begins in the frame, and where it ends.
    pub(super) data: u32,
    pub(super) end: u32,
    /// Bytes of the headers that count for the datagram's length: the header of IPv4, extension headers of IPv6.
    pub(super) counted: u32,
    /// The offset of the data in that of the datagram, bytes.
    pub(super) offset: u32,
    pub(super) more: bool,
    /// The codepoint of explicit congestion notification (RFC 3168): 0 for not capable, 3 for congestion experienced.
    pub(super) ecn: u8,
}

impl Piece {
    /// Bytes of its data.
    pub(super) fn length(&self) -> u32 {
        self.end - self.data
    }

    /// The codepoint of congestion notification as a bit.
    pub(super) fn congestion(&self) -> u8 {
        1 << self.ecn
    }

    /// Whether another piece is the one behind this.
    fn is_before(&self, next: &Piece) -> bool {
        next.offset == self.offset + self.length() && next.key == self.key
    }
}

/// The first frames, if they are all fragments of one datagram in order. Hot.
#[inline]
pub(super) fn in_order(found: &[FrameKind], most: usize) -> Option<&[FrameKind]> {
    let mut last = found.first()?.piece().filter(|piece| piece.offset == 0)?;
    for (index, next) in found.iter().enumerate().take(most).skip(1) {
        let next = next.piece().filter(|next| last.more && last.is_before(next))?;
        if !next.more {
            return Some(&found[..=index]);
        }
        last = next;
    }
    None
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// No fragment: it passes.
    Whole,
    /// An IPv6 fragment that is all of its datagram (RFC 6946).
    Atomic(Piece),
    Fragment(Piece),
    /// The error that an IPv6 source gets (RFC 8200, section 4.5).
    Malformed(Option<IcmpError>),
    BadChecksum,
    /// See [`FrameKind::Malformed`].
    TooLong(Option<IcmpError>),
}

impl FrameKind {
    /// The fragment that it is.
    pub(super) fn piece(&self) -> Option<&Piece> {
        match self {
            FrameKind::Fragment(piece) => Some(piece),
            _ => None,
        }
    }
}

/// The EtherTypes of tags, as they are loaded.
const TYPE_VLAN: u32 = loaded(EtherType::VLAN);
const TYPE_SERVICE_VLAN: u32 = loaded(EtherType::SERVICE_VLAN);

/// Whether a frame is certainly not a fragment: there is no tag, and no extension header. Hot.
#[inline(always)]
pub(super) fn is_whole(packet: &Packet) -> bool {
    let Some(header) = packet.bytes().first_chunk::<{ ETHERNET + 8 }>() else { return false };
    match u32::from(u16::from_le_bytes([header[12], header[13]])) {
        // The offset, and the flag for more fragments.
        TYPE_IP4 => (header[ETHERNET + 6] & 0x3f) | header[ETHERNET + 7] == 0,
        TYPE_IP6 => !is_extension(IpProtocol(header[ETHERNET + 6])),
        TYPE_VLAN | TYPE_SERVICE_VLAN => false,
        _ => true,
    }
}

/// Whether a fragment header may be behind an IPv6 header of this type.
#[inline(always)]
fn is_extension(kind: IpProtocol) -> bool {
    matches!(
        kind,
        IpProtocol::IPV6_HOP_BY_HOP | IpProtocol::IPV6_DESTINATION | IpProtocol::IPV6_ROUTE | IpProtocol::IPV6_FRAGMENT
    )
}

/// Finds out what a packet is.
#[inline]
pub(super) fn find_in(packet: &Packet) -> FrameKind {
    if is_whole(packet) {
        return FrameKind::Whole;
    }
    match find(packet.bytes()) {
        // The checksum of a fragment covers others, too.
        FrameKind::Fragment(_) if packet.offload().is_some_and(|it| it.needs_checksum() || it.is_gso()) => {
            FrameKind::Malformed(None)
        }
        found => found,
    }
}

/// Finds out what a frame is.
pub(super) fn find(frame: &[u8]) -> FrameKind {
    match IpFrame::find(frame) {
        Some(ip) if ip.version == Version::V4 => find_v4(frame, ip),
        Some(ip) => find_v6(frame, ip),
        None => FrameKind::Whole,
    }
}

fn find_v4(frame: &[u8], ip: IpFrame) -> FrameKind {
    let bytes = &frame[ip.at..];
    if bytes.get(6..8).is_none_or(|field| field[0] & 0x3f | field[1] == 0) {
        return FrameKind::Whole;
    }
    let Some(fixed) = bytes.first_chunk::<{ ipv4::field::HEADER_LEN }>() else { return FrameKind::Malformed(None) };
    // As `Ipv4Packet::new_checked`, with all places known to the compiler.
    let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let (length, total, field) = (usize::from(fixed[0] & 0x0f) * 4, usize::from(word(2)), word(6));
    let is_right = fixed[0] >> 4 == 4 && length >= fixed.len() && total >= length;
    let Some(header) = bytes.get(..total).filter(|_| is_right).and_then(|packet| packet.get(..length)) else {
        return FrameKind::Malformed(None);
    };
    if !is_checksum_right(header) {
        return FrameKind::BadChecksum;
    }
    let addresses = u64::from_be_bytes(std::array::from_fn(|at| fixed[12 + at]));
    let rest = u64::from(word(4)) << 40 | u64::from(fixed[9]) << 32 | u64::from(ip.vlans);
    let piece = Piece {
        key: DatagramKey::V4([addresses, rest]),
        data: (ip.at + length) as u32,
        end: (ip.at + total) as u32,
        counted: length as u32,
        offset: (field << 3).into(),
        more: field & MORE_FRAGMENTS != 0,
        ecn: fixed[1] & 3,
    };
    check(piece, [None; 2])
}

fn find_v6(frame: &[u8], ip: IpFrame) -> FrameKind {
    let bytes = &frame[ip.at..];
    let Ok(view) = Ipv6Packet::new_checked(bytes) else { return FrameKind::Whole };
    let bytes = &bytes[..ipv6::field::HEADER_LEN + view.payload().len()];
    let Some(at) = fragment_header(bytes) else { return FrameKind::Whole };
    let Some(header) = bytes.get(at.header..).and_then(<[u8]>::first_chunk::<FRAGMENT_HEADER>) else {
        return FrameKind::Malformed(None);
    };
    let word = u16::from_be_bytes([header[2], header[3]]);
    let identification = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let mut key = [0; 5];
    let (words, _) = bytes[ipv6::field::SRC.start..ipv6::field::DST.end].as_chunks::<8>();
    key.iter_mut().zip(words).for_each(|(to, word)| *to = u64::from_be_bytes(*word));
    key[4] = u64::from(identification) << 32 | u64::from(ip.vlans);
    let piece = Piece {
        key: DatagramKey::V6(key),
        data: (ip.at + at.header + FRAGMENT_HEADER) as u32,
        end: (ip.at + bytes.len()) as u32,
        counted: (at.header - ipv6::field::HEADER_LEN) as u32,
        offset: (word & 0xfff8).into(),
        more: word & 1 == 1,
        ecn: view.traffic_class() & 3,
    };
    // RFC 7112: what is behind the first fragment may not hide what kind of packet this is.
    if piece.offset == 0 && piece.more && !has_whole_chain(&view) {
        return FrameKind::Malformed(Some(IcmpError::of(Reason::IncompleteHeaders)));
    }
    if piece.offset == 0 && !piece.more {
        return FrameKind::Atomic(piece);
    }
    check(piece, [ipv6::field::PAYLOAD_LEN.start, at.header + 2].map(|at| Some(at as u16)))
}

/// Whether the upper-layer header of a first fragment is in it.
fn has_whole_chain<T: AsRef<[u8]>>(view: &Ipv6Packet<T>) -> bool {
    view.upper_layer().is_ok_and(|upper| {
        let needed = match upper.protocol {
            IpProtocol::TCP => TCP_HEADER,
            IpProtocol::UDP | IpProtocol::ICMPV6 => SHORT_HEADER,
            _ => 0,
        };
        upper.payload.len() >= needed
    })
}

/// Where the fragment header of an IPv6 packet is, and the byte that names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FragmentAt {
    pub(super) header: usize,
    pub(super) named_at: usize,
}

/// Finds the fragment header of an IPv6 packet. `None` if it has none.
pub(super) fn fragment_header(ip: &[u8]) -> Option<FragmentAt> {
    let (mut named_at, mut header) = (ipv6::field::NEXT_HEADER.start, ipv6::field::HEADER_LEN);
    loop {
        match IpProtocol(*ip.get(named_at)?) {
            IpProtocol::IPV6_FRAGMENT => return Some(FragmentAt { header, named_at }),
            other if is_extension(other) => {
                named_at = header;
                header += 8 + 8 * usize::from(*ip.get(header + 1)?);
            }
            _ => return None,
        }
    }
}

/// Checks the length of a fragment. `fields` are those that a source is told about, if the length is wrong or the
/// datagram too long.
fn check(piece: Piece, fields: [Option<u16>; 2]) -> FrameKind {
    let [bad_length, bad_offset] =
        fields.map(|field| field.map(|value| IcmpError { reason: Reason::ParameterProblem, value }));
    // RFC 8200, section 4.5: all but the last have a multiple of 8.
    if piece.length() == 0 || piece.more && !piece.length().is_multiple_of(8) {
        return FrameKind::Malformed(bad_length);
    }
    if piece.counted + piece.offset + piece.length() > MAX_LENGTH {
        return FrameKind::TooLong(bad_offset);
    }
    FrameKind::Fragment(piece)
}
