//! The checks of usual IPv6 headers.

use bellows_packet::Packet;

use super::header::{ETHERNET, load_u64};
use super::{UNUSUAL, USUAL};

/// Bytes of an Ethernet and an IPv6 header.
const HEADERS: usize = ETHERNET + 40;

/// The next header of hop-by-hop options (RFC 8200, section 4.3).
pub const HOP_BY_HOP: u8 = 0;

/// Numbers packets by whether their headers are usual and right. Hot.
#[inline(never)]
pub fn check(packets: &[Packet], ahead: usize, numbers: &mut [u16]) {
    packets.iter().take(ahead).for_each(Packet::prefetch);
    for (index, (packet, number)) in packets.iter().zip(numbers).enumerate() {
        if ahead > 0
            && let Some(packet) = packets.get(index + ahead)
        {
            packet.prefetch();
        }
        *number = match packet.bytes().first_chunk::<HEADERS>() {
            Some(header) if is_right(header, packet.len()) => USUAL,
            _ => UNUSUAL,
        };
    }
}

/// Whether a header without hop-by-hop options is right. Hot.
#[inline(always)]
pub fn is_right(header: &[u8; HEADERS], length: usize) -> bool {
    let first = load_u64(header, ETHERNET);
    let payload_length = usize::from(((first >> 32) as u16).swap_bytes());
    let (next_header, hop_limit) = ((first >> 48) as u8, (first >> 56) as u8);
    // Multicast addresses begin with ff, the loopback address with zeros.
    let source = load_u64(header, ETHERNET + 8);
    (first as u8 & 0xf0 == 0x60)
        & (payload_length <= length - HEADERS)
        & (next_header != HOP_BY_HOP)
        & (hop_limit != 0)
        & (source as u8 != 0xff)
        & (source != 0)
}
