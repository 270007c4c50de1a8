//! What is behind an IP packet in its frame.

use bellows_packet::Packet;

use super::ETHERNET;

/// Where the IP packet behind an Ethernet header ends, as its header says.
#[inline]
pub fn end_of_ip(frame: &[u8]) -> Option<usize> {
    let ip = frame.get(ETHERNET..)?.first_chunk::<20>()?;
    let length = |at: usize| usize::from(u16::from_be_bytes([ip[at], ip[at + 1]]));
    match ip[0] >> 4 {
        4 => Some(ETHERNET + length(2)).filter(|&end| end >= ETHERNET + ip.len()),
        6 => Some(ETHERNET + 40 + length(4)),
        _ => None,
    }
}

/// Removes what is behind an IP packet in its frame: padding, and trailers of the link.
#[inline]
pub fn cut_trailer(packet: &mut Packet) {
    if let Some(end) = end_of_ip(packet.bytes()) {
        packet.truncate(end);
    }
}
