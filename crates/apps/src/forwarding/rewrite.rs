//! The rewriting of usual packets.

use bellows_packet::Packet;
use bellows_vrf::{Adjacencies, Tag};

use super::UNUSUAL;
use super::family::{Family, Headers};
use super::header::ETHERNET;

/// Rewrites packets to complete adjacencies without VLAN tags, and numbers them by their outputs. Hot.
#[inline(never)]
pub fn rewrite<F: Family>(
    packets: &mut [Packet],
    ahead: usize,
    adjacencies: &Adjacencies,
    outputs: &[u16],
    numbers: &mut [u16],
) {
    let prefetch = |packet: &Packet| {
        packet.prefetch();
        adjacencies.prefetch(Tag(packet.tag()).number());
    };
    packets.iter().take(ahead).for_each(prefetch);
    for (index, number) in numbers.iter_mut().enumerate().take(packets.len()) {
        if ahead > 0
            && let Some(packet) = packets.get(index + ahead)
        {
            prefetch(packet);
        }
        *number = rewrite_usual::<F>(&mut packets[index], adjacencies, outputs);
    }
}

/// Rewrites a packet, if it is usual. Returns its output.
#[inline(always)]
fn rewrite_usual<F: Family>(packet: &mut Packet, adjacencies: &Adjacencies, outputs: &[u16]) -> u16 {
    let tag = Tag(packet.tag());
    let (words, shape) = adjacencies.header(tag.number());
    let fits = packet.len() <= ETHERNET + usize::from(shape.mtu());
    // That of an interface which does not exist is not in the list.
    let output = outputs.get(usize::from(shape.interface())).copied().unwrap_or(UNUSUAL);
    let is_usual = shape.is_usual() & fits & (tag.interface() != 0) & (output != UNUSUAL);
    match F::Headers::of_mut(packet.bytes_mut()) {
        Some(headers) if is_usual => {
            if !F::age(headers) {
                return UNUSUAL;
            }
            headers.set_ethernet(words);
            output
        }
        _ => UNUSUAL,
    }
}
