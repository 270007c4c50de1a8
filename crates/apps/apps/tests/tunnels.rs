//! Tunnels of every kind deliver the packets that they carry, or count them, whatever arrives.

use bellows_exercise::packets::{back, ip, mark, pair, too_big};
use bellows_exercise::tunnels::Tunnels;
use bellows_wire::IpProtocol;
use proptest::prelude::*;

proptest! {
    #[test]
    fn tunnels_of_every_kind_deliver_or_count(packets in prop::collection::vec(
        (prop::sample::select(vec![115u8, 47, 17, 60, 50]), any::<bool>(), prop::collection::vec(any::<u8>(), 0..60), any::<bool>(), any::<bool>(), 0u8..4), 1..20,
    )) {
        let mut tunnels = Tunnels::new();
        for (protocol, is_v6, mut behind, is_known, is_error, ecn) in packets {
            if is_known {
                if ecn > 1 {
                    // One with a mark outside and a packet that can have one.
                    behind = ip(pair(behind.len() & 1 == 0), IpProtocol::UDP, &behind);
                    mark(&mut behind, 0, 2);
                }
                // A header that the tunnels know.
                let header: &[u8] = match protocol {
                    115 if is_v6 => &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
                    115 => &[0, 0, 0, 1],
                    47 => &[0, 0, 0x65, 0x58],
                    50 => &[0, 0, 0x10, if is_v6 { 3 } else { 1 }],
                    _ => &[0, 9, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0],
                };
                behind.splice(0..0, header.iter().copied());
                if protocol == 17 {
                    let length = behind.len() as u16;
                    behind[4..6].copy_from_slice(&length.to_be_bytes());
                }
            }
            if is_error {
                // A packet of this end was too long.
                let was_carried = tunnels.check(&too_big(&ip(pair(is_v6), IpProtocol(protocol), &behind), 1_280));
                prop_assert!(!was_carried);
                continue;
            }
            let mut packet = ip(back(pair(is_v6)), IpProtocol(protocol), &behind);
            mark(&mut packet, 0, ecn);
            let was_carried = tunnels.check(&packet);
            prop_assert!(!was_carried || is_known || behind.len() >= 18);
        }
    }
}
