//! Next hops of routes with several ways, also of IPv4 routes: out of use while they do not answer.

use std::collections::BTreeSet;

use bellows_rig::Rig;
use bellows_vrf::{IfExists, RouteSpec, RouteTarget};
use bellows_wire::ndp::{flag, message_type};

use super::tests::{HOST, SECOND, Sent, advertisement, app, counter, domain, ip, received};
use super::*;

/// The next hops, and the interfaces on whose links they are.
const HOPS: [(u16, &str); 2] = [(1, "fe80::8"), (2, "2001:db8:2::9")];

/// Whom a frame solicits, if it does.
fn solicited(frame: &[u8]) -> Option<Ipv6Addr> {
    let message = if frame[12] == 0x81 { 58 } else { 54 };
    let target = frame.get(message + 8..message + 24)?.first_chunk::<16>()?;
    (frame[message] == message_type::NEIGHBOUR_SOLICITATION).then(|| Ipv6Addr::from(*target))
}

/// Lets a second pass, in which these answer. Returns how many messages have solicited each of the next hops.
fn pass(rig: &mut Rig, second: u64, answers: [bool; 2]) -> [usize; 2] {
    let mut counts = [0; 2];
    for step in 0..20 {
        rig.set_time(second * SECOND + step * SECOND / 20);
        rig.settle();
        let frames = [received(rig, "a"), received(rig, "b")].concat();
        for target in frames.iter().filter_map(|frame| solicited(frame)) {
            let Some(place) = HOPS.iter().position(|(_, hop)| ip(hop) == target) else { continue };
            counts[place] += 1;
            if answers[place] {
                let (number, hop) = HOPS[place];
                let said = advertisement(hop, flag::SOLICITED | flag::OVERRIDE, Some(HOST));
                rig.send_packets("input", [Sent::new(number, hop, "fe80::1", &said).packet()]);
                rig.settle();
            }
        }
    }
    counts
}

#[test]
fn ipv4_and_ipv6_flows_avoid_a_next_hop_that_does_not_answer() {
    let domain = domain();
    let ways = |family: &str| format!("nexthop via {family}{} dev a nexthop via {family}{}", HOPS[0].1, HOPS[1].1);
    let mut changes = domain.tables().lock();
    for route in [format!("20.0.0.0/8 {}", ways("inet6 ")), format!("2001:db8:30::/48 {}", ways(""))] {
        changes.add(&RouteSpec::parse(&route).unwrap(), IfExists::Refuse).unwrap();
    }
    changes.commit().unwrap();
    drop(changes);
    let in_use = |destination: &str| -> BTreeSet<IpAddr> {
        let changes = domain.tables().lock();
        let (_, route) = changes.look_up(destination.parse().unwrap()).unwrap();
        let RouteTarget::Forward(ways) = changes.target(route.next) else { panic!("it forwards") };
        ways.iter().filter(|way| way.is_in_use).filter_map(|way| way.gateway).collect()
    };
    let both: BTreeSet<IpAddr> = HOPS.map(|(_, hop)| ip(hop).into()).into();
    let one: BTreeSet<IpAddr> = [ip(HOPS[1].1).into()].into();
    let is_used_by_all = |hops: &BTreeSet<IpAddr>| ["20.1.1.1", "2001:db8:30::1"].iter().all(|it| in_use(it) == *hops);

    // The router's addresses are not its own before nobody else has claimed them: it asks nobody with them.
    let mut rig = Rig::new(app(&domain, true), &["input", "resolve"], &["a", "b", "error", "error4"]);
    let asked: Vec<[usize; 2]> = (1..5).map(|second| pass(&mut rig, second, [true; 2])).collect();
    assert_eq!(asked.iter().fold([0; 2], |sum, it| [sum[0] + it[0], sum[1] + it[1]]), [1, 1], "{asked:?}");
    assert!(is_used_by_all(&both) && counter(&rig, "next_hops_failed") == 0);
    (5..14).for_each(|second| _ = pass(&mut rig, second, [false, true]));
    assert!(is_used_by_all(&one) && counter(&rig, "next_hops_failed") == 1, "{:#}", rig.status().unwrap());
    let asked: usize = (14..24).map(|second| pass(&mut rig, second, [false, true])[0]).sum();
    assert_eq!(asked, 2, "it is asked every five seconds");
    (24..30).for_each(|second| _ = pass(&mut rig, second, [true; 2]));
    assert!(is_used_by_all(&both) && counter(&rig, "next_hops_failed") == 0);
}
