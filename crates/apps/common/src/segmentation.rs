//! Packets in place of one that is too long to be sent: the segments of GSO packets, and parts of any packet.

use bellows_packet::{Burst, CAPACITY, DATA_ROOM, Offload, Packet, Vector};
use bellows_wire::offload::{Checksums, GsoKind, GsoPacket, MAX_HEADER_LEN, finish_checksum};

/// There is no free buffer, or no room for that number of packets.
#[derive(Debug)]
pub struct NoBuffer;

/// How a GSO packet is segmented, if this is known.
#[inline]
pub fn kind_of(offload: Offload) -> Option<GsoKind> {
    match offload.gso_type & !Offload::GSO_ECN {
        Offload::GSO_TCP4 => Some(GsoKind::Tcp4),
        Offload::GSO_TCP6 => Some(GsoKind::Tcp6),
        _ => None,
    }
}

/// How a packet is segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Its protocols.
    pub kind: GsoKind,
    /// Bytes of data in each segment but the last.
    pub size: u16,
}

/// The checksum or the segmentation that was left to the app cannot be done.
#[derive(Debug)]
pub struct BadOffload;

/// Makes a checksum that was left to be made. A GSO packet stays as it is, to be segmented.
#[inline]
pub fn finish(packet: &mut Packet) -> Result<Option<Gso>, BadOffload> {
    let Some(offload) = packet.offload() else { return Ok(None) };
    if offload.is_gso() {
        return gso(packet, offload).map(Some).ok_or(BadOffload);
    }
    let (start, offset) = (offload.checksum_start.into(), offload.checksum_offset.into());
    if offload.needs_checksum() && finish_checksum(packet.bytes_mut(), start, offset).is_err() {
        return Err(BadOffload);
    }
    packet.clear_offload();
    Ok(None)
}

/// How a GSO packet is segmented, if it is one and its segments are not too many.
fn gso(packet: &Packet, offload: Offload) -> Option<Gso> {
    let (kind, size) = (kind_of(offload)?, offload.segment_size);
    let count = GsoPacket::new(packet.bytes(), kind, size).ok()?.count();
    (count < CAPACITY).then_some(Gso { kind, size })
}

/// Adds the segments behind the first to `others`, and makes the packet the first one.
pub fn segment(packet: &mut Packet, kind: GsoKind, size: u16, others: &mut Vector) -> Result<(), NoBuffer> {
    let mut first = [0; MAX_HEADER_LEN];
    let gso = GsoPacket::new(packet.bytes(), kind, size).map_err(|_| NoBuffer)?;
    let (header, mut length) = (gso.header_len(), gso.len());
    for (index, segment) in gso.segments(Checksums::Whole).enumerate() {
        if index == 0 {
            segment.write_headers(&mut first[..header]);
            length = segment.len();
            continue;
        }
        let mut made = new_packet(segment.len())?;
        segment.write(made.extend(segment.len()));
        copy_metadata(packet, &mut made);
        others.push(made).map_err(|_| NoBuffer)?;
    }
    packet.truncate(length);
    packet.clear_offload();
    packet.bytes_mut()[..header].copy_from_slice(&first[..header]);
    Ok(())
}

/// An empty packet with room for `length` bytes.
#[inline]
pub fn new_packet(length: usize) -> Result<Packet, NoBuffer> {
    Packet::with_room(length).ok_or(NoBuffer)
}

/// As [`new_packet`], in a buffer of a burst if it has one that is long enough. Hot.
#[inline]
pub fn next_packet(buffers: &mut Burst, length: usize) -> Result<Packet, NoBuffer> {
    let taken = if length <= DATA_ROOM { buffers.next() } else { None };
    taken.map_or_else(|| new_packet(length), Ok)
}

/// Gives a part of a packet the packet's tag, time and interface.
#[inline]
pub fn copy_metadata(from: &Packet, to: &mut Packet) {
    to.set_tag(from.tag());
    if let Some(mut meta) = from.meta() {
        meta.original_length = to.len() as u32;
        to.set_meta(meta);
    }
}
