//! Fragments of IPv4 packets (RFC 791, section 2.3; RFC 815; RFC 1812, section 4.2.2.7).

use bellows_packet::{Burst, Packet, Vector};
use bellows_wire::Sum;
use bellows_wire::ipv4::Ipv4Packet;

use super::{Fragmentation, NotFragmented, copy_front};
use crate::ip_frame::Version;
use crate::ipv4_options::{FIXED_HEADER, fill_checksum, is_checksum_right, options};
use crate::segmentation::{NoBuffer, copy_metadata, next_packet};

/// The longest header, bytes.
const MAX_HEADER: usize = 60;

/// The flag for more fragments behind this one, and the flag against fragments.
const MORE: u16 = 0x2000;
const DONT: u16 = 0x4000;

/// The flag of options that all fragments have.
const COPIED: u8 = 0x80;

/// The bits of the offset, and the flag bits that stay as they are.
const OFFSET: u16 = 0x1fff;
const RESERVED: u16 = 0x8000;

/// The header of fragments behind the first.
struct Header {
    bytes: [u8; MAX_HEADER],
    length: usize,
}

/// How a packet whose IPv4 header is at a place of the frame becomes fragments of at most `mtu` bytes.
///
/// # Errors
/// Why it does not.
pub(super) fn plan(frame: &[u8], at: usize, mtu: usize) -> Result<Fragmentation, NotFragmented> {
    let ip = &frame[at..];
    let view = Ipv4Packet::new_checked(ip).map_err(|_| NotFragmented::Malformed)?;
    let (header, total, flags) = (view.header(), usize::from(view.total_len()), view.flags_fragment());
    if !is_checksum_right(header) {
        return Err(NotFragmented::BadChecksum);
    }
    if total <= mtu {
        return Err(NotFragmented::Fits);
    }
    if flags & DONT != 0 {
        return Err(NotFragmented::DontFragment);
    }
    let data = total - header.len();
    // A last byte behind the longest packet.
    if usize::from(flags & OFFSET) * 8 + data > usize::from(u16::MAX) - header.len() {
        return Err(NotFragmented::Malformed);
    }
    let later = match header.len() {
        FIXED_HEADER => FIXED_HEADER,
        _ => later_header(header).ok_or(NotFragmented::Malformed)?.length,
    };
    let chunk = |header: usize| mtu.saturating_sub(header) & !7;
    let (first, others) = (chunk(header.len()), chunk(later));
    if first == 0 || others == 0 {
        return Err(NotFragmented::Malformed);
    }
    let [at, data, end, first, others] = [at, at + header.len(), at + total, first, others].map(|place| place as u32);
    Ok(Fragmentation { version: Version::V4, at, data, end, first, others })
}

/// The header of fragments behind the first: with the options whose copied flag is set, padded to whole words.
fn later_header(header: &[u8]) -> Option<Header> {
    let mut bytes = [0; MAX_HEADER];
    bytes[..FIXED_HEADER].copy_from_slice(&header[..FIXED_HEADER]);
    let mut length = FIXED_HEADER;
    for option in options(header) {
        let option = option.ok()?;
        if option.kind & COPIED != 0 {
            bytes[length..length + option.length].copy_from_slice(&header[option.range()]);
            length += option.length;
        }
    }
    length = length.next_multiple_of(4);
    bytes[0] = 0x40 | (length / 4) as u8;
    Some(Header { bytes, length })
}

/// Adds the fragments behind the first to `others`, and makes the packet the first one. Hot.
///
/// # Errors
/// If the pool is empty. The packet is unchanged then.
pub(super) fn split(
    packet: &mut Packet,
    plan: &Fragmentation,
    buffers: &mut Burst,
    others: &mut Vector,
) -> Result<(), NoBuffer> {
    let (at, data) = plan.places();
    let (frame, header) = (packet.bytes(), data.start - at);
    let Some(fixed) = frame[at..].first_chunk::<FIXED_HEADER>() else { return Ok(()) };
    let base = Lengths::of(fixed, header > FIXED_HEADER);
    // Without options, what is in front of the data is the same in all fragments.
    let with_options;
    let (front, length) = match base.has_options {
        false => (frame, data.start),
        true => {
            let Some(later) = later_header(&frame[at..data.start]) else { return Ok(()) };
            with_options = [&frame[..at], &later.bytes[..later.length]].concat();
            (&with_options[..], with_options.len())
        }
    };
    for part in plan.later_parts() {
        let mut fragment = next_packet(buffers, length + part.len())?;
        let bytes = fragment.extend(length + part.len());
        copy_front(front, length, bytes);
        bytes[length..].copy_from_slice(&frame[data.start + part.start..data.start + part.end]);
        // The last one has more behind it if the packet is itself a fragment that has.
        let more = if part.end < data.len() { MORE } else { base.field & MORE };
        let position = (base.field & OFFSET) + (part.start / 8) as u16;
        base.finish(&mut bytes[at..], length - at, base.field & RESERVED | more | position);
        copy_metadata(packet, &mut fragment);
        others.push(fragment).map_err(|_| NoBuffer)?;
    }
    packet.truncate(data.start + plan.first as usize);
    packet.clear_offload();
    base.finish(&mut packet.bytes_mut()[at..], header, base.field | MORE);
    Ok(())
}

/// What the headers of fragments have from that of their packet, whose checksum is right.
struct Lengths {
    /// The field of flags and offset.
    field: u16,
    /// The sum of all other fields, but the total length.
    sum: Sum,
    /// Whether the fragments' headers differ in other fields, too.
    has_options: bool,
}

impl Lengths {
    fn of(header: &[u8; FIXED_HEADER], has_options: bool) -> Lengths {
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let field = word(6);
        let changed = Sum::new().add_u16(word(2)).add_u16(field);
        Lengths { field, sum: Sum::new().add_u16(!word(10)).subtract(changed), has_options }
    }

    /// Writes the length, the field of flags and offset, and the checksum.
    fn finish(&self, ip: &mut [u8], header: usize, field: u16) {
        let total = ip.len() as u16;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip[6..8].copy_from_slice(&field.to_be_bytes());
        if self.has_options {
            return fill_checksum(&mut ip[..header]);
        }
        let checksum = self.sum.add_u16(total).add_u16(field).finish();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}
