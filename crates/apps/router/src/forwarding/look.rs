//! The steps before and after a look-up.

use bellows_fib::{FIRST_GROUP, NO_ROUTE};
use bellows_packet::{Contents, Packet};
use bellows_sys::simd::{Loop, Simd};
use bellows_vrf::adjacency::special;
use bellows_vrf::{IcmpError, Reason, Tag};

use super::family::{Family, Headers};
use super::{LookAhead, STEP, UNUSUAL, USUAL};

/// The number of packets for the router itself.
pub const LOCAL: u16 = 1;

/// The number of packets whose sender is told why they are not forwarded.
pub const ERROR: u16 = 2;

/// Which outputs there are besides the usual one.
#[derive(Clone, Copy)]
pub struct Exits {
    pub has_local: bool,
    pub has_error: bool,
    /// What senders are told whose destination has an `unreachable` route.
    pub unreachable: Reason,
}

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

/// Tags packets with their adjacencies, and numbers them by their outputs; those without a route, or whose route says that
/// their sender is told, are tagged with the error. Returns how many are for the router. Hot.
#[inline(never)]
pub fn tag(packets: &mut Contents<'_>, adjacencies: &mut [u32], numbers: &mut [u16], exits: Exits) -> usize {
    let local = if exits.has_local { LOCAL } else { UNUSUAL };
    let number = |special, reason| if exits.has_error { IcmpError::of(reason).number() } else { special };
    let [no_route, unreachable, prohibited] = [
        (special::NO_ROUTE, Reason::NoRoute),
        (special::UNREACHABLE, exits.unreachable),
        (special::PROHIBIT, Reason::Prohibited),
    ]
    .map(|(special, reason)| number(special, reason));
    let error = if exits.has_error { ERROR } else { UNUSUAL };
    let classify = Classify { adjacencies, numbers, local, error, no_route, unreachable, prohibited };
    let count = Simd::chosen().run(classify);
    packets.set_tags_with(adjacencies, |tag, adjacency| Tag(tag).with(adjacency).0);
    count as usize
}

/// Numbers adjacencies by outputs.
struct Classify<'a> {
    adjacencies: &'a mut [u32],
    numbers: &'a mut [u16],
    local: u16,
    error: u16,
    /// What packets without a route, and others whose sender is told, are tagged with.
    no_route: u32,
    unreachable: u32,
    prohibited: u32,
}

impl Loop for Classify<'_> {
    type Result = u32;

    #[inline(always)]
    fn run(self) -> u32 {
        // Nearly all vectors have packets to send alone.
        let is_sent = |found: u32| found.wrapping_sub(special::FIRST) < NO_ROUTE - special::FIRST;
        if self.adjacencies.iter().fold(true, |all, &found| all & is_sent(found)) {
            self.numbers.fill(USUAL);
            return 0;
        }
        let mut local = 0;
        for (adjacency, number) in self.adjacencies.iter_mut().zip(self.numbers) {
            let found = *adjacency;
            // No route is the highest number, and a special one.
            let has_none = (found == NO_ROUTE) | (found == special::NO_ROUTE);
            let (is_unreachable, is_prohibited) = (found == special::UNREACHABLE, found == special::PROHIBIT);
            let is_told = has_none | is_unreachable | is_prohibited;
            let refused = if is_unreachable { self.unreachable } else { self.prohibited };
            let refused = if has_none { self.no_route } else { refused };
            *adjacency = if is_told { refused } else { found };
            let is_local = found == special::LOCAL;
            local += u32::from(is_local);
            let other = if is_local { self.local } else { UNUSUAL };
            let other = if is_told { self.error } else { other };
            *number = if is_sent(found) { USUAL } else { other };
        }
        local
    }
}
