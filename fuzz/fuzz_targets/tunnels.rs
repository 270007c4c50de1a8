//! Arbitrary packets to tunnels of every kind: what comes out was in the packet, and each is delivered or counted.

#![no_main]

use bellows_exercise::tunnels::{Tunnels, protocols};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|packets: Vec<(u8, bool, Vec<u8>)>| {
    let mut tunnels = Tunnels::new();
    for (kind, is_v6, behind) in packets {
        // Most packets with other headers end at the first check.
        tunnels.check(&headed(kind, is_v6, &behind));
    }
});

/// Bytes behind headers of Ethernet and IP between the ends of the tunnels; for every other kind, any bytes.
fn headed(kind: u8, is_v6: bool, behind: &[u8]) -> Vec<u8> {
    let Some(&protocol) = protocols().get(usize::from(kind)) else { return behind.to_vec() };
    let mut packet = vec![0; 12];
    let length = behind.len() as u16;
    if is_v6 {
        packet.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        packet.extend(length.to_be_bytes());
        packet.extend([protocol, 64]);
        for end in [2, 1] {
            packet.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
        }
    } else {
        packet.extend([8, 0, 0x45, 0]);
        packet.extend(length.wrapping_add(20).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1]);
    }
    packet.extend(behind);
    packet
}
