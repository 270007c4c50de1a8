//! Packets from a tunnel whose header is not the usual one of their session, read field by field.

use bellows_common::headers::ecn::Marked;
use bellows_common::headers::{ETHERNET, NotWhole, Outer, cut, is_ip, uncover_to};
use bellows_packet::Packet;
use bellows_wire::EtherType;
use bellows_wire::udp::UdpDatagram;

use super::Protocol;
use super::index::Index;
use super::session::{Payload, Session};

/// What a header behind that of IP says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The number of the session.
    pub id: Option<u32>,
    /// The options that follow the fixed header of a session, bytes.
    pub options: usize,
    /// Its sequence number.
    pub sequence: Option<u32>,
    /// What it carries, by the EtherType.
    pub carries: Option<EtherType>,
}

/// Why a packet is not taken out of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its header is not whole, or says that the packet is longer than it is.
    Malformed,
    /// It is a fragment.
    Fragment,
    /// It is of another protocol, or to another port.
    OtherProtocol,
    /// Its header has a version, flags or options that this end does not know.
    BadHeader,
    /// It belongs to no session.
    NoSession,
    /// It has another cookie than its session expects.
    BadCookie,
    /// It has other flags than its session expects.
    BadFlags,
    /// Its sequence number is not behind that of the packet before.
    OutOfOrder,
    /// Its checksum is wrong.
    BadChecksum,
    /// It met congestion, and carries a packet whose sender cannot learn of it (RFC 6040).
    BadEcn,
    /// It carries another protocol than its session does.
    BadPayload,
}

/// Takes a packet out of its tunnel. Returns its session.
///
/// # Errors
/// If it belongs to none, or is not as its session expects it.
pub(super) fn take_out<P: Protocol>(
    sessions: &[Session],
    index: &Index,
    packet: &mut Packet,
) -> Result<usize, Refusal> {
    let frame = packet.bytes();
    let outer = Outer::read(frame).map_err(|error| match error {
        NotWhole::Malformed => Refusal::Malformed,
        NotWhole::Fragment => Refusal::Fragment,
    })?;
    if outer.protocol != P::PROTOCOL {
        return Err(Refusal::OtherProtocol);
    }
    let payload = &frame[outer.start..outer.end];
    let seen = P::read(payload)?;
    let place = index.find(outer.addresses, seen.id).ok_or(Refusal::NoSession)?;
    let session = &sessions[place];
    let shape = &session.shape;
    let length = shape.expect.len();
    let header = payload.get(..length + seen.options).ok_or(Refusal::Malformed)?;
    check(session, header, payload)?;
    if shape.in_order && seen.sequence.is_none() {
        return Err(Refusal::BadFlags);
    }
    // One of an offload is left to be made.
    let is_left = packet.offload().is_some_and(|offload| offload.flags != 0);
    if !is_left && !session.expected.has_right_checksum(payload) {
        return Err(Refusal::BadChecksum);
    }
    let (removed, end) = (outer.start + header.len(), outer.end);
    let (carried, uncovered) = match shape.payload {
        Payload::Ethernet if payload.len() < header.len() + ETHERNET => return Err(Refusal::Malformed),
        Payload::Ethernet => (Marked::find(frame, removed), None),
        Payload::Ip { dst_mac, .. } => {
            let kind = seen.carries.filter(|kind| is_ip(*kind)).ok_or(Refusal::BadPayload)?;
            (Marked::read(frame, removed, kind), Some((dst_mac, kind)))
        }
    };
    if !session.is_in_order(seen.sequence) {
        return Err(Refusal::OutOfOrder);
    }
    // What is behind the packet is none of it.
    let carried = carried.filter(|carried| carried.end() <= end);
    if carried.is_some_and(|carried| !carried.take_out(packet.bytes_mut(), outer.traffic_class)) {
        return Err(Refusal::BadEcn);
    }
    settle_offload(packet, removed);
    match uncovered {
        None => cut(packet, removed, end),
        Some((dst_mac, kind)) => {
            cut(packet, removed - ETHERNET, end);
            uncover_to(dst_mac, packet, kind);
        }
    }
    Ok(place)
}

/// Compares a header with what its session expects.
fn check(session: &Session, header: &[u8], payload: &[u8]) -> Result<(), Refusal> {
    let shape = &session.shape;
    // The protocol has read the length of options already.
    let of_options = |at: usize| shape.options.filter(|(place, _)| *place == at).map_or(0, |(_, bits)| bits);
    let differs = |at: usize| (header[at] ^ shape.expect[at]) & shape.mask[at] & !of_options(at) != 0;
    if let Some(at) = (0..shape.expect.len()).find(|&at| differs(at)) {
        return Err(match shape.payload {
            _ if shape.cookie.contains(&at) => Refusal::BadCookie,
            // Ports are behind this.
            _ if shape.is_udp && at < 8 => Refusal::OtherProtocol,
            _ => Refusal::BadFlags,
        });
    }
    let is_whole =
        !shape.is_udp || UdpDatagram::new_checked(payload).is_ok_and(|udp| udp.datagram().len() == payload.len());
    if is_whole { Ok(()) } else { Err(Refusal::Malformed) }
}

/// Keeps the offload of what a packet carries, and forgets that of the headers that are removed.
fn settle_offload(packet: &mut Packet, removed: usize) {
    let Some(offload) = packet.offload() else { return };
    let is_inner = offload.needs_checksum() && usize::from(offload.checksum_start) >= removed + ETHERNET;
    if !is_inner || offload.is_gso() {
        packet.clear_offload();
    }
}
