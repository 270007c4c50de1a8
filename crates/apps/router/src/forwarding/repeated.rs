//! Destinations that many packets have, which are looked up once for a vector.
//!
//! Addresses of the router are among the longest prefixes of a table, so their look-up takes longest, and floods for the
//! router are to few of them. Vectors with few packets for the router are looked up as ever.

use bellows_packet::CAPACITY;
use bellows_shared::Breath;
use bellows_vrf::Vrf;
use bellows_vrf::adjacency::special;

use super::family::Family;

/// Destinations that are kept in mind.
const KEPT: usize = 2;

/// Packets for the router in a vector, from which on their destinations are kept in mind.
const MANY: usize = 16;

/// Vectors of fewer packets change nothing of that: inputs with the router's own packets have few at a time.
const WHOLE: usize = 64;

/// Destinations of the router that many packets of the vector before had.
pub struct Repeated<F: Family> {
    kept: [F::Address; KEPT],
    /// Whether there are any.
    are_kept: bool,
    /// Of the packets with other destinations: their places, these, and what their look-up finds.
    places: Vec<u16>,
    others: Vec<F::Address>,
    found: Vec<u32>,
}

impl<F: Family> Repeated<F> {
    pub fn new() -> Repeated<F> {
        let none = F::Address::default();
        let (others, found) = (vec![none; CAPACITY], vec![0; CAPACITY]);
        Repeated { kept: [none; KEPT], are_kept: false, places: vec![0; CAPACITY], others, found }
    }

    /// Looks up the adjacencies of a vector's destinations, as [`Family::look_up`]. Hot.
    #[inline]
    pub fn look_up(&mut self, vrf: &Vrf, breath: &impl Breath, destinations: &[F::Address], adjacencies: &mut [u32]) {
        if !self.are_kept {
            F::look_up(vrf, breath, destinations, adjacencies);
        } else {
            self.look_up_apart(vrf, breath, destinations, adjacencies);
        }
    }

    /// Looks up the destinations that are kept in mind, and then all others.
    #[inline(never)]
    fn look_up_apart(&mut self, vrf: &Vrf, breath: &impl Breath, destinations: &[F::Address], adjacencies: &mut [u32]) {
        let Repeated { kept, places, others, found, .. } = self;
        let mut of_kept = [0; KEPT];
        F::look_up(vrf, breath, kept, &mut of_kept);
        let mut count = 0;
        for (place, (&destination, adjacency)) in destinations.iter().zip(&mut *adjacencies).enumerate() {
            let (is_first, is_second) = (destination == kept[0], destination == kept[1]);
            *adjacency = if is_first { of_kept[0] } else { of_kept[1] };
            (places[count % CAPACITY], others[count % CAPACITY]) = (place as u16, destination);
            count += usize::from(!(is_first | is_second));
        }
        F::look_up(vrf, breath, &others[..count], &mut found[..count]);
        for (&place, &found) in places.iter().zip(&*found).take(count) {
            adjacencies[usize::from(place)] = found;
        }
    }

    /// Keeps two destinations of packets for the router in mind, if there are many: `local` so many. Hot.
    #[inline]
    pub fn keep(&mut self, destinations: &[F::Address], adjacencies: &[u32], local: usize) {
        if destinations.len() < WHOLE {
            return;
        }
        self.are_kept = local >= MANY;
        if self.are_kept {
            let mut of_router = destinations.iter().zip(adjacencies).filter(|(_, it)| **it == special::LOCAL);
            let first = of_router.next().map(|(&first, _)| first);
            let last = of_router.next_back().map(|(&last, _)| last);
            let first = first.unwrap_or_default();
            self.kept = [first, last.unwrap_or(first)];
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use std::sync::Arc;

    use bellows_packet::Packet;
    use bellows_rig::Rig;
    use bellows_vrf::Tag;
    use proptest::prelude::*;

    use crate::forwarding::family::{V4, V6};
    use crate::forwarding::tests::vrf;
    use crate::lookup::LookUp;
    use crate::vrf::RoutingDomain;

    /// A packet to one of few destinations: addresses of the router, neighbours, others, and none that has a route.
    fn packet(is_v4: bool, number: u8) -> Packet {
        let (high, low) = [(1, 1), (2, 1), (3, 1), (1, 2), (2, 9), (200, 1)][usize::from(number) % 6];
        let (mut frame, at, to) = if is_v4 {
            (vec![0; 60], 30, IpAddr::V4(Ipv4Addr::new(10, 0, high, low)))
        } else {
            let network = if high == 200 { 0x120 } else { u16::from(high) };
            (vec![0; 80], 38, IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, low.into())))
        };
        match to {
            IpAddr::V4(to) => frame[at..at + 4].copy_from_slice(&to.octets()),
            IpAddr::V6(to) => frame[at..at + 16].copy_from_slice(&to.octets()),
        }
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(1).0);
        packet
    }

    /// What leaves each output: frames and tags.
    fn sent(rig: &mut Rig, packets: Vec<Packet>) -> Vec<Vec<(Vec<u8>, u32)>> {
        rig.send_packets("input", packets);
        rig.settle();
        let of = |output| rig.received_packets(output).iter().map(|it| (it.bytes().to_vec(), it.tag())).collect();
        ["output", "local", "error"].map(of).to_vec()
    }

    proptest! {
        #[test]
        fn vectors_are_looked_up_as_their_packets_are_one_by_one(
            is_v4 in any::<bool>(),
            vectors in prop::collection::vec((1u8..7, prop::collection::vec(any::<u8>(), 0..150)), 1..6),
        ) {
            let rig = || {
                let (domain, outputs) = (Arc::new(RoutingDomain::new(vrf())), ["output", "local", "error"]);
                match is_v4 {
                    true => Rig::new(LookUp::<V4>::new(domain), &["input"], &outputs),
                    false => Rig::new(LookUp::<V6>::new(domain), &["input"], &outputs),
                }
            };
            let (mut together, mut apart) = (rig(), rig());
            for (most, numbers) in vectors {
                let numbers: Vec<u8> = numbers.into_iter().map(|number| number % most).collect();
                let packets = numbers.iter().map(|&number| packet(is_v4, number)).collect();
                let mut expected = vec![Vec::new(); 3];
                for &number in &numbers {
                    let one = sent(&mut apart, vec![packet(is_v4, number)]);
                    expected.iter_mut().zip(one).for_each(|(all, one)| all.extend(one));
                }
                prop_assert_eq!(sent(&mut together, packets), expected);
            }
        }
    }
}
