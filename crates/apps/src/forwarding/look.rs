//! The steps before and after a look-up.

use bellows_fib::NO_ROUTE;
use bellows_packet::Packet;
use bellows_sys::simd::{Loop, Simd};
use bellows_vrf::Tag;
use bellows_vrf::adjacency::special;

use super::family::{Family, Headers};
use super::{UNUSUAL, USUAL};

/// The number of packets for the router itself.
pub const LOCAL: u16 = 1;

/// Reads the destinations of packets. Returns whether all have one. Hot.
#[inline(never)]
pub fn read<F: Family>(packets: &[Packet], ahead: usize, destinations: &mut [F::Address]) -> bool {
    packets.iter().take(ahead).for_each(Packet::prefetch);
    let mut all = true;
    for (index, (packet, destination)) in packets.iter().zip(destinations).enumerate() {
        if ahead > 0
            && let Some(packet) = packets.get(index + ahead)
        {
            packet.prefetch();
        }
        match F::Headers::of(packet.bytes()) {
            Some(headers) => *destination = F::destination(headers),
            None => all = false,
        }
    }
    all
}

/// Tags packets with their adjacencies, and numbers them by their outputs. Hot.
#[inline(never)]
pub fn tag(packets: &mut [Packet], adjacencies: &mut [u32], numbers: &mut [u16], has_local: bool) {
    Simd::chosen().run(Classify { adjacencies, numbers, local: if has_local { LOCAL } else { UNUSUAL } });
    for (packet, &adjacency) in packets.iter_mut().zip(&*adjacencies) {
        packet.set_tag(Tag(packet.tag()).with(adjacency).0);
    }
}

/// Numbers adjacencies by outputs.
struct Classify<'a> {
    adjacencies: &'a mut [u32],
    numbers: &'a mut [u16],
    local: u16,
}

impl Loop for Classify<'_> {
    type Result = ();

    #[inline(always)]
    fn run(self) {
        for (adjacency, number) in self.adjacencies.iter_mut().zip(self.numbers) {
            // No route is the highest number. It becomes the special one of the same meaning.
            *adjacency = if *adjacency == NO_ROUTE { special::NO_ROUTE } else { *adjacency };
            let other = if *adjacency == special::LOCAL { self.local } else { UNUSUAL };
            *number = if *adjacency >= special::FIRST { USUAL } else { other };
        }
    }
}
