use super::*;
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::neighbours::Heard;
use bellows_vrf::{IfExists, RouteSpec, Vrf};

const SECOND: u64 = 1_000_000_000;
const MAC: MacAddr = MacAddr([4, 0, 0, 0, 0, 9]);

/// An interface with 10.0.1.1/24, and a route.
fn domain(route: &str) -> Arc<RoutingDomain> {
    let address = InterfaceAddress { address: IpAddr::from([10, 0, 1, 1]), length: 24 };
    let interface = Interface {
        name: "a".to_owned(),
        port: "a".to_owned(),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: vec![address],
    };
    let vrf = Vrf::new(vec![interface], 16, 1).unwrap();
    let mut changes = vrf.lock();
    changes.add(&RouteSpec::parse(route).unwrap(), IfExists::Refuse).unwrap();
    changes.commit().unwrap();
    drop(changes);
    Arc::new(RoutingDomain::new(vrf))
}

fn resolver(domain: &Arc<RoutingDomain>) -> Resolver {
    Resolver::new(Arc::clone(domain), IpFamily::V4, NeighbourLimits::default())
}

fn key(number: u8) -> NeighbourKey {
    (1, IpAddr::from([10, 0, 1, number]))
}

#[test]
fn a_neighbour_that_was_forgotten_and_is_known_again_survives_a_reload() {
    let domain = domain("20.0.0.0/8 via 10.0.1.9");
    let mut old = resolver(&domain);
    domain.forgotten().forget([key(7)]);
    old.forget(0);
    assert_eq!(old.neighbours.hear(key(7), MAC, Heard::Question, 0), Learned::Changed);
    // This one has not answered yet.
    assert_eq!(old.neighbours.hear_solicitation(key(8), MAC, clock::now()), Learned::Changed);
    let mut new = resolver(&domain);
    new.succeed(&old);
    new.forget(0);
    assert_eq!(new.neighbours.state(key(8)), Some((NeighbourState::Delay, Some(MAC))));
    assert_eq!(new.neighbours.state(key(7)).and_then(|(_, known)| known), Some(MAC));
}

#[test]
fn next_hops_that_have_failed_are_out_of_use_after_a_reload() {
    let route = "20.0.0.0/8 nexthop via 10.0.1.8 nexthop via 10.0.1.9";
    let mut old = resolver(&domain(route));
    old.neighbours.watch(&[key(8), key(9)], None, None, 0);
    old.neighbours.hear(key(8), MAC, Heard::Answer, 0);
    for second in 1..5 {
        while old.due(second * SECOND).is_some() {}
    }
    assert_eq!(old.failed(), 1);
    // Other interfaces would make another domain, whose tables know nothing of its neighbours.
    let domain = domain(route);
    let mut new = resolver(&domain);
    new.succeed(&old);
    assert!(new.publish(&mut 0));
    let changes = domain.tables().lock();
    assert_eq!((new.failed(), changes.groups()), (1, (1, 2, 1)));
}

#[test]
fn a_next_hop_that_is_to_be_forgotten_is_asked_anew() {
    let domain = domain("20.0.0.0/8 nexthop via 10.0.1.8 nexthop via 10.0.1.9");
    let mut resolver = resolver(&domain);
    resolver.neighbours.watch(&[key(8), key(9)], None, None, 0);
    resolver.neighbours.hear(key(8), MAC, Heard::Answer, 0);
    domain.forgotten().forget([key(8)]);
    resolver.forget(SECOND);
    assert_eq!(resolver.neighbours.state(key(8)), Some((NeighbourState::Incomplete, None)));
    let asked =
        std::iter::from_fn(|| resolver.due(2 * SECOND)).filter(|(due, _)| *due == Due::Ask(key(8), None)).count();
    assert_eq!(asked, 1);
}
