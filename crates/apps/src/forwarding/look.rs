//! The steps before and after a look-up.

use bellows_fib::{FIRST_GROUP, NO_ROUTE};
use bellows_packet::{Contents, Packet};
use bellows_sys::simd::{Loop, Simd};
use bellows_vrf::Tag;
use bellows_vrf::adjacency::special;

use super::family::{Family, Headers};
use super::{LookAhead, STEP, UNUSUAL, USUAL};

/// The number of packets for the router itself.
pub const LOCAL: u16 = 1;

/// Reads the destinations of packets. Returns whether all have one. Hot.
#[inline(never)]
pub fn read<F: Family>(packets: &[Packet], ahead: usize, destinations: &mut [F::Address]) -> bool {
    let mut look_ahead = LookAhead::begin(packets, ahead, Packet::prefetch);
    let mut all = true;
    for (packets, destinations) in packets.chunks(STEP).zip(destinations.chunks_mut(STEP)) {
        look_ahead.step(Packet::prefetch);
        for (packet, destination) in packets.iter().zip(destinations) {
            match F::Headers::of(packet.bytes()) {
                Some(headers) => *destination = F::destination(headers),
                None => all = false,
            }
        }
    }
    all
}

/// Whether any look-up has found a group of paths. Hot.
pub fn has_groups(adjacencies: &[u32]) -> bool {
    Simd::chosen().run(HasGroups(adjacencies))
}

struct HasGroups<'a>(&'a [u32]);

impl Loop for HasGroups<'_> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        self.0.iter().fold(false, |any, &number| any | (number.wrapping_sub(FIRST_GROUP) < NO_ROUTE - FIRST_GROUP))
    }
}

/// Tags packets with their adjacencies, and numbers them by their outputs. Hot.
#[inline(never)]
pub fn tag(packets: &mut Contents<'_>, adjacencies: &mut [u32], numbers: &mut [u16], has_local: bool) {
    Simd::chosen().run(Classify { adjacencies, numbers, local: if has_local { LOCAL } else { UNUSUAL } });
    packets.set_tags_with(adjacencies, |tag, adjacency| Tag(tag).with(adjacency).0);
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
