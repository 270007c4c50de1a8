//! Making a datagram of its fragments.

use bellows_packet::Packet;
use bellows_wire::ipv4::{self, Ipv4Packet};
use bellows_wire::ipv6;

use super::header::{FRAGMENT_HEADER, MAX_LENGTH, fragment_header};
use super::table::{Complete, Table, Why};
use crate::ip_frame::{IpFrame, Version};

/// Codepoints of explicit congestion notification: not capable, and congestion experienced.
const NOT_CAPABLE: u8 = 1 << 0;
const EXPERIENCED: u8 = 1 << 3;

/// Makes a datagram. `free` gets the fragments: those that are in it, or all of them and why, if it fails.
///
/// # Errors
/// Why the datagram cannot be.
pub(super) fn assemble(
    table: &mut Table,
    complete: Complete,
    mut free: impl FnMut(Packet, Option<Why>),
) -> Result<Packet, Why> {
    let (length, congestion) = table.sum(&complete);
    let room = match room(table, &complete, length, congestion) {
        Ok(room) => room,
        Err(why) => {
            table.finish(complete, |packet, _| free(packet, Some(why)));
            return Err(why);
        }
    };
    let mut whole: Option<Packet> = room;
    table.finish(complete, |packet, data| match &mut whole {
        Some(whole) if whole.len() > 0 => {
            whole.append(&packet.bytes()[data..]);
            free(packet, None);
        }
        Some(whole) => {
            packet.copy_into(whole);
            free(packet, None);
        }
        None => whole = Some(packet),
    });
    let mut whole = whole.ok_or(Why::NoMemory)?;
    whole.clear_offload();
    finish_headers(&mut whole, congestion & EXPERIENCED != 0);
    Ok(whole)
}

/// A packet with room for all of a datagram; `None` if its first fragment has.
fn room(table: &Table, complete: &Complete, length: usize, congestion: u8) -> Result<Option<Packet>, Why> {
    let first = table.first(complete).ok_or(Why::NoMemory)?;
    let data = data_of(first.bytes()).ok_or(Why::NoMemory)?;
    if data.counted + length > MAX_LENGTH {
        return Err(Why::TooLong);
    }
    // RFC 3168, section 5.3.
    if congestion & EXPERIENCED != 0 && congestion & NOT_CAPABLE != 0 {
        return Err(Why::Congestion);
    }
    let missing = (data.at + length).saturating_sub(first.len());
    if first.tailroom() >= missing {
        return Ok(None);
    }
    Packet::with_room(data.at + length).map(Some).ok_or(Why::NoMemory)
}

/// Where the data of a fragment begins, and how many bytes before it count for the datagram's length.
struct Data {
    at: usize,
    counted: usize,
}

fn data_of(frame: &[u8]) -> Option<Data> {
    let ip = IpFrame::find(frame)?;
    let bytes = &frame[ip.at..];
    match ip.version {
        Version::V4 => {
            let header = Ipv4Packet::new_checked(bytes).ok()?.header().len();
            Some(Data { at: ip.at + header, counted: header })
        }
        Version::V6 => {
            let header = fragment_header(bytes)?.header;
            Some(Data { at: ip.at + header + FRAGMENT_HEADER, counted: header - ipv6::field::HEADER_LEN })
        }
    }
}

/// Makes the headers of a first fragment those of its datagram, whose data is there.
pub(super) fn finish_headers(packet: &mut Packet, has_congestion: bool) {
    let Some(ip) = IpFrame::find(packet.bytes()) else { return };
    match ip.version {
        Version::V4 => {
            let bytes = &mut packet.bytes_mut()[ip.at..];
            let total = bytes.len() as u16;
            bytes[ipv4::field::TOTAL_LEN].copy_from_slice(&total.to_be_bytes());
            let Ok(mut view) = Ipv4Packet::new_checked(bytes) else { return };
            view.set_flags_fragment(0);
            if has_congestion {
                view.set_traffic_class(view.traffic_class() | 3);
            }
            view.fill_checksum();
        }
        Version::V6 => {
            let bytes = &mut packet.bytes_mut()[ip.at..];
            let Some(at) = fragment_header(bytes) else { return };
            bytes[at.named_at] = bytes[at.header];
            let length = (bytes.len() - ipv6::field::HEADER_LEN - FRAGMENT_HEADER) as u16;
            bytes[ipv6::field::PAYLOAD_LEN].copy_from_slice(&length.to_be_bytes());
            if has_congestion {
                // The lowest bits of the traffic class.
                bytes[1] |= 3 << 4;
            }
            // What is in front moves over the fragment header.
            let front = ip.at + at.header;
            packet.bytes_mut().copy_within(..front, FRAGMENT_HEADER);
            packet.trim_front(FRAGMENT_HEADER);
        }
    }
}
