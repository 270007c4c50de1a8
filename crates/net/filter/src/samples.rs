//! Whether two programs decide the same, tried on packets.
#![forbid(unsafe_code)]

use fastrand::Rng;

use crate::classic::{Flow, lower, program};
use crate::interpret::{PacketView, matches};

/// Number of packets of each kind.
const PACKETS: u64 = 24;

/// The link types: where a header names the network protocol, how (for IPv4, IPv6, and ARP), and where the network
/// header begins.
const LINKS: &[(usize, [&[u8]; 3], usize)] = &[
    (12, ETHERTYPES, 14),
    (14, ETHERTYPES, 16),
    (0, ETHERTYPES, 20),
    (0, [&[2, 0, 0, 0], &[24, 0, 0, 0], &[0; 4]], 4),
    (0, [&[0, 0, 0, 2], &[0, 0, 0, 24], &[0; 4]], 4),
    (0, [&[]; 3], 0),
];
const ETHERTYPES: [&[u8]; 3] = [&[0x08, 0x00], &[0x86, 0xdd], &[0x08, 0x06]];

/// Whether there is a packet among the samples that one program accepts and the other does not. The samples are IPv4,
/// IPv6, ARP and others behind the headers of all link types, and filled with zeros, with ones, and with anything.
pub(crate) fn differ(one: &Flow, other: &Flow) -> bool {
    if program::assemble(one, 1) == program::assemble(other, 1) {
        return false;
    }
    let [one, other] = [one, other].map(lower::lower);
    let mut random = Rng::with_seed(0);
    let mut bytes = Vec::new();
    (0..PACKETS).any(|number| {
        LINKS.iter().any(|&(place, names, network)| {
            (0..4).any(|protocol| {
                bytes.resize(random.usize(64..256), 0);
                match number {
                    0 => bytes.fill(0),
                    1 => bytes.fill(u8::MAX),
                    _ => random.fill(&mut bytes),
                }
                if let Some(name) = names.get(protocol) {
                    bytes[place..][..name.len()].copy_from_slice(name);
                }
                let upper = [6, 17, 1, 58, 132][random.usize(..5)];
                match protocol {
                    // Without a fragment's offset, so that there are ports.
                    0 => {
                        bytes[network] = 0x45;
                        bytes[network + 6..][..2].fill(0);
                        bytes[network + 9] = upper;
                    }
                    1 => (bytes[network], bytes[network + 6]) = (0x60, upper),
                    _ => {}
                }
                let packet = PacketView::whole(&bytes);
                matches(&one, packet) != matches(&other, packet)
            })
        })
    })
}
