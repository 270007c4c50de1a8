//! Tunnels of every kind deliver the packets that they carry, or count them, whatever arrives.

use bellows_exercise::packets::{back, ip, mark, pair, too_big};
use bellows_exercise::tunnel_examples::TUNNELS;
use bellows_exercise::tunnels::{Tunnels, protocols};
use bellows_wire::IpProtocol;
use proptest::prelude::*;

/// Headers that the tunnels know, with their protocols and whether they are behind IPv6.
fn known_headers() -> Vec<(u8, bool, Vec<u8>)> {
    let examples = TUNNELS.iter().flat_map(|tunnel| tunnel.sessions.iter().map(move |session| (tunnel, session)));
    let headers = examples.map(|(tunnel, session)| (tunnel.protocol, session.is_v6, session.header.to_vec()));
    headers.chain([(50, true, vec![0, 0, 0x10, 3]), (50, false, vec![0, 0, 0x10, 1])]).collect()
}

proptest! {
    #[test]
    fn tunnels_of_every_kind_deliver_or_count(packets in prop::collection::vec((
        (prop::sample::select(protocols()), any::<bool>(), Just(Vec::new())),
        prop::option::of(prop::sample::select(known_headers())),
        prop::collection::vec(any::<u8>(), 0..60),
        any::<bool>(),
        0u8..4,
    ), 1..20)) {
        let mut tunnels = Tunnels::new();
        for (unknown, known, mut behind, is_error, ecn) in packets {
            let is_known = known.is_some();
            let (protocol, is_v6, header) = known.unwrap_or(unknown);
            if is_known {
                if ecn > 1 {
                    // One with a mark outside and a packet that can have one.
                    behind = ip(pair(behind.len() & 1 == 0), IpProtocol::UDP, &behind);
                    mark(&mut behind, 0, 2);
                }
                behind.splice(0..0, header);
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
