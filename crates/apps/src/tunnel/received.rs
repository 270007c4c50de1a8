//! Packets from a tunnel whose header is not the usual one of their session, read field by field.

use bellows_packet::Packet;
use bellows_wire::udp::UdpDatagram;
use bellows_wire::{EtherType, IpProtocol, Sum};

use super::Protocol;
use super::index::Index;
use super::session::{Checksum, Payload, Session};
use crate::forwarding::ETHERNET;
use crate::headers::{NotWhole, Outer, cut, is_ip, uncover_to};

/// What a header behind that of IP says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The number of the session.
    pub id: Option<u32>,
    /// The options that follow the fixed header of a session, bytes.
    pub options: usize,
    /// What it carries, by the EtherType.
    pub carries: Option<EtherType>,
}

/// Why a packet is not taken out of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Malformed,
    Fragment,
    OtherProtocol,
    BadHeader,
    NoSession,
    BadCookie,
    BadFlags,
    BadChecksum,
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
    if !has_right_checksum(session, packet, payload) {
        return Err(Refusal::BadChecksum);
    }
    let (removed, end) = (outer.start + header.len(), outer.end);
    match shape.payload {
        Payload::Ethernet if payload.len() < header.len() + ETHERNET => return Err(Refusal::Malformed),
        Payload::Ethernet => {
            settle_offload(packet, removed);
            cut(packet, removed, end);
        }
        Payload::Ip { dst_mac, .. } => {
            let kind = seen.carries.filter(|kind| is_ip(*kind)).ok_or(Refusal::BadPayload)?;
            settle_offload(packet, removed);
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
    let differs = |at: usize| shape.options_at != Some(at) && (header[at] ^ shape.expect[at]) & shape.mask[at] != 0;
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

/// Whether a packet's checksum is right, or was left to be made.
fn has_right_checksum(session: &Session, packet: &Packet, payload: &[u8]) -> bool {
    if packet.offload().is_some_and(|offload| offload.flags != 0) {
        return true;
    }
    match session.shape.checksum {
        Checksum::Gre => Sum::new().add_bytes(payload).finish() == 0,
        _ if session.shape.is_udp => {
            let has_none = payload.get(6..8) == Some(&[0, 0]);
            let sum = session.addresses.pseudo_header(IpProtocol::UDP, payload.len());
            has_none || sum.add_bytes(payload).finish() == 0
        }
        _ => true,
    }
}

/// Keeps the offload of what a packet carries, and forgets that of the headers that are removed.
fn settle_offload(packet: &mut Packet, removed: usize) {
    let Some(offload) = packet.offload() else { return };
    let is_inner = offload.needs_checksum() && usize::from(offload.checksum_start) >= removed + ETHERNET;
    if !is_inner || offload.is_gso() {
        packet.clear_offload();
    }
}
