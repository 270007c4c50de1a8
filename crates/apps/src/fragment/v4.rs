//! Fragments of IPv4 packets (RFC 791, section 2.3; RFC 815; RFC 1812, section 4.2.2.7).

use bellows_packet::{Packet, Vector};
use bellows_wire::Sum;
use bellows_wire::ipv4::Ipv4Packet;

use super::{Plan, Refused};
use crate::ipv4_options::{FIXED_HEADER, fill_checksum, options};
use crate::segmentation::{NoBuffer, copy_metadata, new_packet};

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
pub(super) struct Header {
    bytes: [u8; MAX_HEADER],
    length: usize,
}

/// How a packet whose IPv4 header is at a place of the frame becomes fragments of at most `mtu` bytes.
///
/// # Errors
/// Why it does not.
pub(super) fn plan(frame: &[u8], at: usize, mtu: usize) -> Result<Plan, Refused> {
    let ip = &frame[at..];
    let view = Ipv4Packet::new_checked(ip).map_err(|_| Refused::Malformed)?;
    let (header, total, flags) = (view.header(), usize::from(view.total_len()), view.flags_fragment());
    if Sum::new().add_bytes(header).finish() != 0 {
        return Err(Refused::BadChecksum);
    }
    if total <= mtu {
        return Err(Refused::Fits);
    }
    if flags & DONT != 0 {
        return Err(Refused::DontFragment);
    }
    let data = total - header.len();
    // A last byte behind the longest packet.
    if usize::from(flags & OFFSET) * 8 + data > usize::from(u16::MAX) - header.len() {
        return Err(Refused::Malformed);
    }
    let later = later_header(header).ok_or(Refused::Malformed)?;
    let chunk = |header: usize| mtu.saturating_sub(header) & !7;
    let (first, others) = (chunk(header.len()), chunk(later.length));
    if first == 0 || others == 0 {
        return Err(Refused::Malformed);
    }
    Ok(Plan { at, data: at + header.len(), end: at + total, first, others, later: Some(later) })
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

/// Adds the fragments behind the first to `others`, and makes the packet the first one.
///
/// # Errors
/// If the pool is empty. The packet is unchanged then.
pub(super) fn split(packet: &mut Packet, plan: &Plan, others: &mut Vector) -> Result<(), NoBuffer> {
    let Some(later) = &plan.later else { return Ok(()) };
    let frame = packet.bytes();
    let field = u16::from_be_bytes([frame[plan.at + 6], frame[plan.at + 7]]);
    let (link, data) = (&frame[..plan.at], &frame[plan.data..plan.end]);
    let mut offset = plan.first;
    while offset < data.len() {
        let end = data.len().min(offset + plan.others);
        let mut fragment = new_packet(plan.at + later.length + end - offset)?;
        fragment.append(link);
        fragment.append(&later.bytes[..later.length]);
        fragment.append(&data[offset..end]);
        // The last one has more behind it if the packet is itself a fragment that has.
        let more = if end < data.len() { MORE } else { field & MORE };
        let position = (field & OFFSET) + (offset / 8) as u16;
        finish_header(&mut fragment.bytes_mut()[plan.at..], later.length, field & RESERVED | more | position);
        copy_metadata(packet, &mut fragment);
        others.push(fragment).map_err(|_| NoBuffer)?;
        offset = end;
    }
    packet.truncate(plan.data + plan.first);
    packet.clear_offload();
    finish_header(&mut packet.bytes_mut()[plan.at..], plan.data - plan.at, field | MORE);
    Ok(())
}

/// Writes the length, the field of flags and offset, and the checksum.
fn finish_header(ip: &mut [u8], header: usize, field: u16) {
    let total = ip.len() as u16;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[6..8].copy_from_slice(&field.to_be_bytes());
    fill_checksum(&mut ip[..header]);
}
