//! Checks virtio-net headers against the packets.
//!
//! A header is a claim of its sender: that a checksum is partial and where it is, that a packet is to be segmented. A
//! claim is checked twice. [`admit`] checks it where a packet comes in, against bytes that the sender can no longer
//! change. [`header_for`] checks it again where the packet goes out, because an app may have changed the packet: the
//! header for the other side must be true of its packet.
//!
//! Only packets with a claim are parsed.

use bellows_packet::{Offload, Packet};
use bellows_wire::offload::{GsoKind, GsoPacket, Transport, finish_checksum};

/// The offloads that a receiver accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// It finishes checksums.
    pub checksums: bool,
    /// It segments TCP over IPv4.
    pub tcp4: bool,
    /// It segments TCP over IPv6.
    pub tcp6: bool,
}

impl Accepted {
    /// All of them.
    pub const ALL: Accepted = Accepted { checksums: true, tcp4: true, tcp6: true };

    /// Whether it accepts packets of this GSO type. Segments need checksums.
    fn takes(self, gso_type: u8) -> bool {
        match gso_type {
            Offload::GSO_NONE => self.checksums,
            Offload::GSO_TCP4 => self.checksums && self.tcp4,
            Offload::GSO_TCP6 => self.checksums && self.tcp6,
            _ => false,
        }
    }
}

/// Sets the offload of an incoming packet, if the header is true of the packet and the receiver has announced that it
/// accepts it.
///
/// A partial checksum elsewhere than in the TCP or UDP header, such as inside a tunnel, is finished at once: no app has
/// seen the packet yet, and later parts of the code know no other place. Returns false if the packet must be dropped;
/// it may then have been changed.
#[inline(never)]
pub fn admit(packet: &mut Packet, header: Offload, accepted: Accepted) -> bool {
    packet.clear_offload();
    // The other flags are not for this direction.
    let claim = Offload { flags: header.flags & Offload::NEEDS_CHECKSUM, ..header };
    if !accepted.takes(claim.gso_type & !Offload::GSO_ECN) {
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

/// The header of an outgoing packet. `None` if the receiver does not accept the packet's offload, or if the offload is
/// no longer true of the packet.
#[inline(never)]
pub fn header_for(packet: &Packet, accepted: Accepted) -> Option<Offload> {
    let claim = packet.offload().unwrap_or_default();
    if !claim.needs_checksum() && !claim.is_gso() {
        // The flag of a verified checksum is not passed on: an app may have changed the packet since.
        return Some(Offload::default());
    }
    // Nobody has negotiated ECN in segmentation, so a type with the ECN mark is not accepted.
    if accepted.takes(claim.gso_type) { verified(packet.bytes(), claim) } else { None }
}

/// The offload of a frame, with lengths from the frame itself, if the claim is true of the frame.
///
/// The checksum must be in the TCP or UDP header, and cover everything from there to the end of the frame. A frame to
/// segment must be one that [`GsoPacket`] can cut. Padding after an IP packet makes both untrue, because the receiver
/// treats all bytes as payload.
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
        Offload::GSO_TCP4 => GsoKind::Tcp4,
        Offload::GSO_TCP6 => GsoKind::Tcp6,
        _ => return (!claim.is_gso()).then_some(offload),
    };
    let whole = GsoPacket::new(frame, kind, claim.segment_size).ok()?;
    // The headers of a packet that can be cut are short.
    Some(Offload { header_length: whole.header_len() as u16, segment_size: claim.segment_size, ..offload })
}

/// Finishes a checksum at the place that the claim gives. False if that is not in the packet.
#[cold]
fn finish(frame: &mut [u8], claim: Offload) -> bool {
    let (start, offset) = (usize::from(claim.checksum_start), usize::from(claim.checksum_offset));
    match Transport::find(frame) {
        // It is the right place, but the checksum does not cover the bytes that follow.
        Ok(found) if (found.start(), found.checksum_offset()) == (start, offset) => found.finish(frame).is_ok(),
        _ => finish_checksum(frame, start, offset).is_ok(),
    }
}
