//! What virtio-net headers say of packets, checked against the packets.
//!
//! A header is a claim of its sender: that a checksum is partial and where it lies, that a packet is to be cut into
//! segments. A claim is checked twice. [`admit`] checks it where a packet comes in, against bytes that the sender can
//! no longer change. [`header_for`] checks it again where the packet goes out, because an app may have changed the
//! packet meanwhile: what a header says to the other side is true of the packet behind it.
//!
//! Only packets that carry a claim are looked at.

use bellows_packet::{Offload, Packet};
use bellows_wire::offload::{GsoPacket, Kind, Transport, finish_checksum};

use crate::features::Features;

/// Whoever gets packets, and so may be asked to finish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    Driver,
    Device,
}

impl Receiver {
    /// Whether it has agreed to finish a checksum, or to cut packets of this type.
    fn takes(self, features: Features, gso_type: u8) -> bool {
        let [checksum, tso4, tso6] = match self {
            Receiver::Driver => [Features::GUEST_CSUM, Features::GUEST_TSO4, Features::GUEST_TSO6],
            Receiver::Device => [Features::CSUM, Features::HOST_TSO4, Features::HOST_TSO6],
        };
        match gso_type {
            Offload::GSO_NONE => features.has(checksum),
            Offload::GSO_TCP4 => features.has(checksum | tso4),
            Offload::GSO_TCP6 => features.has(checksum | tso6),
            _ => false,
        }
    }
}

/// Gives a packet that has come in what its header asks for, if that is true of the packet and the receiver takes it.
///
/// A partial checksum that lies elsewhere than in the TCP or UDP header, such as one inside of a tunnel, is finished
/// at once: so far it is only the sender who has seen the packet, and whoever comes later knows of no other place.
/// False if the packet must be dropped; it may then have been changed.
#[inline(never)]
pub(crate) fn admit(packet: &mut Packet, header: Offload, receiver: Receiver, features: Features) -> bool {
    packet.clear_offload();
    // What else the field says is not for this direction.
    let claim = Offload { flags: header.flags & Offload::NEEDS_CHECKSUM, ..header };
    if !receiver.takes(features, claim.gso_type & !Offload::GSO_ECN) {
        return false;
    }
    match verified(packet.bytes(), claim) {
        Some(offload) => {
            packet.set_offload(offload);
            true
        }
        None => !claim.is_gso() && finish(packet.bytes_mut(), claim),
    }
}

/// The header for a packet that goes out. `None` if the receiver does not take the packet with what is left to do to
/// it, or if that is no longer true of the packet.
#[inline(never)]
pub(crate) fn header_for(packet: &Packet, receiver: Receiver, features: Features) -> Option<Offload> {
    let claim = packet.offload().unwrap_or_default();
    if !claim.needs_checksum() && !claim.is_gso() {
        // That a checksum has been found right is not passed on: an app may have changed the packet since.
        return Some(Offload::default());
    }
    // Nobody has negotiated that congestion marks survive segmentation, so a type with such a mark is not taken.
    if receiver.takes(features, claim.gso_type) { verified(packet.bytes(), claim) } else { None }
}

/// What is left to do to a frame, with the frame's own lengths and nothing else, if the claim is true of the frame.
///
/// A checksum lies in the TCP or UDP header, and covers all from there to the frame's end. A frame that is to be cut
/// is one that [`GsoPacket`] cuts. Padding behind an IP packet makes both untrue, because who does the work takes
/// all that it gets for payload.
fn verified(frame: &[u8], claim: Offload) -> Option<Offload> {
    let (start, offset) = (usize::from(claim.checksum_start), usize::from(claim.checksum_offset));
    if !claim.needs_checksum() {
        return None;
    }
    let found = Transport::find(frame).ok()?;
    if (found.start(), found.checksum_offset(), found.end()) != (start, offset, frame.len()) {
        return None;
    }
    let offload = Offload { header_length: 0, segment_size: 0, ..claim };
    let kind = match claim.gso_type & !Offload::GSO_ECN {
        Offload::GSO_TCP4 => Kind::Tcp4,
        Offload::GSO_TCP6 => Kind::Tcp6,
        _ => return (!claim.is_gso()).then_some(offload),
    };
    let whole = GsoPacket::new(frame, kind, claim.segment_size).ok()?;
    // Headers that are cut are short.
    Some(Offload { header_length: whole.header_len() as u16, segment_size: claim.segment_size, ..offload })
}

/// Finishes a checksum wherever the claim says that it lies. False if that is not in the packet.
#[cold]
fn finish(frame: &mut [u8], claim: Offload) -> bool {
    let (start, offset) = (usize::from(claim.checksum_start), usize::from(claim.checksum_offset));
    match Transport::find(frame) {
        // It is the right one, but something follows that it does not cover.
        Ok(found) if (found.start(), found.checksum_offset()) == (start, offset) => found.finish(frame).is_ok(),
        _ => finish_checksum(frame, start, offset).is_ok(),
    }
}
