//! What pairs learn of their paths, and what becomes of packets that are too long for them.

use bellows_common::too_big::TooBig;
use bellows_exercise::packets::too_big;
use proptest::prelude::*;

use super::*;
use crate::tunnel::path_tests::{count, inner as inner_of, reassembled};

const SECOND: u64 = 1_000_000_000;

/// Clear and sealed packets of two ends that reassemble what they get.
struct Ends {
    near: Rig,
    far: Rig,
    is_v6: bool,
    mtu: usize,
}

impl Ends {
    fn carry(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        self.near.send("a", [packet]);
        self.near.settle();
        let wire = self.near.received(transport(self.is_v6));
        assert!(wire.iter().all(|packet| packet.len() <= ETHERNET + self.mtu));
        self.far.send(transport(self.is_v6), reassembled(&wire));
        self.far.settle();
        reassembled(&self.far.received("a"))
    }
}

proptest! {
    /// A packet arrives, as a whole or in fragments, or its sender is told the MTU of one that arrives; or, where neither is
    /// possible, it is counted.
    #[test]
    fn packets_arrive_or_their_senders_learn_how_long_they_may_be(
        (is_v6, inner_is_v6, may_fragment, is_tunnel, has_udp) in any::<(bool, bool, bool, bool, bool)>(),
        df in prop::sample::select(vec!["copy", "set", "clear"]),
        mtu in 1_280u16..1_500,
        // Those in between have no room for ESP in their buffer.
        length in prop_oneof![60usize..2_000, 2_040usize..3_000],
    ) {
        let inner_is_v6 = if is_tunnel { inner_is_v6 } else { is_v6 };
        let mut more = json!({"mode": if is_tunnel { "tunnel" } else { "transport" }, "df": df});
        if has_udp {
            more["udp"] = json!({});
        }
        let [mut one, two] = ends(is_v6, "aes-128-gcm", &more);
        one["mtu"] = json!(mtu);
        let mut ends = Ends { near: rig(&one), far: rig(&two), is_v6, mtu: mtu.into() };
        ends.near.set_time(5 * SECOND);
        let packet = inner_of(inner_is_v6, may_fragment, length);
        let arrived = ends.carry(&packet);
        if let [error] = &ends.near.received("a")[..] {
            prop_assert_eq!(&arrived, &Vec::<Vec<u8>>::new());
            prop_assert!(is_tunnel && inner_is_v6 || !inner_is_v6 && !may_fragment);
            let told = TooBig::read(error).unwrap().mtu as usize;
            prop_assert!(told < length);
            let shorter = inner_of(inner_is_v6, false, told);
            prop_assert_eq!(ends.carry(&shorter), [shorter]);
            // It is not told less than is possible.
            let longer = inner_of(inner_is_v6, false, told + 1);
            prop_assert_eq!(ends.carry(&longer), Vec::<Vec<u8>>::new());
        } else if arrived.is_empty() {
            // IPv6 over IPv4, where no address is that an error could come from, or which must not be fragmented.
            prop_assert!(inner_is_v6 && !is_v6 && is_tunnel);
            prop_assert!(length > 1_280 || df == "set");
            prop_assert_eq!((count(&ends.near, "too_big"), count(&ends.near, "too_big_sent")), (1, 0));
        } else {
            prop_assert_eq!(arrived, [packet]);
        }
    }
}

#[test]
fn pairs_learn_from_errors_about_their_own_packets_for_ten_minutes() {
    for (is_v6, has_udp) in [(false, false), (false, true), (true, false), (true, true)] {
        let more = if has_udp { json!({"udp": {"keepalive_seconds": 0}}) } else { json!({}) };
        let [one, _] = ends(is_v6, "aes-128-gcm", &more);
        let mut near = rig(&one);
        near.set_time(5 * SECOND);
        let port = transport(is_v6);
        let clear = inner_of(is_v6, false, 1_400);
        let send = |near: &mut Rig| {
            near.send("a", [&clear]);
            near.settle();
            near.received(port)
        };
        let sent = send(&mut near).remove(0);
        // Addresses, ports and SPI must all be right.
        let start = ETHERNET + if is_v6 { 40 } else { 20 };
        let addresses = start - if is_v6 { 32 } else { 8 }..start;
        let behind = if has_udp { [start..start + 4, start + 8..start + 12] } else { [start..start + 4, 0..0] };
        let telling: Vec<usize> = addresses.chain(behind.into_iter().flatten()).collect();
        let errors = telling.iter().map(|&at| {
            let mut forged = sent.clone();
            forged[at] ^= 0x10;
            too_big(&forged, 1_300)
        });
        near.send(port, errors);
        near.settle();
        assert_eq!(count(&near, "bad_icmp_error"), telling.len() as u64);
        assert_eq!(send(&mut near).len(), 1);
        near.send(port, [too_big(&sent, 1_300)]);
        near.settle();
        assert_eq!(count(&near, "told_path_mtu"), 1);
        // A reload keeps it.
        near.replace(configure(&one).unwrap()).unwrap();
        for (seconds, packets) in [(1, 0), (599, 0), (601, 1)] {
            near.set_time((5 + seconds) * SECOND);
            near.settle();
            assert_eq!((send(&mut near).len(), near.received("a").len()), (packets, 1 - packets));
        }
    }
}
