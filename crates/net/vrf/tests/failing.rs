//! Next hops whose neighbours fail and return, against a naive model: who gets which flows, and that no flow of a neighbour
//! that lives moves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bellows_shared::Breath;
use bellows_vrf::command::{RouteCommand, Verb};
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::neighbours::NeighbourKey;
use bellows_vrf::route::IpPrefix;
use bellows_vrf::{Interface, IpFamily, Origin, RouteTarget, Vrf};
use bellows_wire::MacAddr;
use proptest::prelude::*;

struct Call;

// SAFETY: no other thread changes the tables while one of these tests looks something up.
unsafe impl Breath for Call {}

const MAC: MacAddr = MacAddr([4, 0, 0, 0, 0, 1]);
const FLOWS: usize = 400;

/// The neighbours: the number of the interface, its name, and the address.
const NEIGHBOURS: [(u16, &str, &str); 8] = [
    (1, "a", "10.0.1.10"),
    (1, "a", "10.0.1.11"),
    (2, "b", "10.0.2.10"),
    (2, "b", "10.0.2.11"),
    (1, "a", "fe80::10"),
    (1, "a", "fe80::11"),
    (2, "b", "fe80::10"),
    (2, "b", "fe80::11"),
];

fn key(neighbour: usize) -> NeighbourKey {
    let (interface, _, address) = NEIGHBOURS[neighbour];
    (interface, address.parse().unwrap())
}

fn vrf() -> Vrf {
    let interface = |name: &str, number: u8| Interface {
        name: name.to_owned(),
        port: name.to_owned(),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: [(format!("10.0.{number}.1"), 24), ("fe80::1".to_owned(), 64)]
            .map(|(address, length)| InterfaceAddress { address: address.parse().unwrap(), length })
            .to_vec(),
    };
    Vrf::new(vec![interface("a", 1), interface("b", 2)], 100, 7).unwrap()
}

/// A route that forwards: whether it is one of IPv6, and its next hops with their weights.
#[derive(Clone, Debug)]
struct ModelRoute {
    is_v6: bool,
    hops: BTreeMap<usize, u16>,
}

impl ModelRoute {
    fn prefix(&self, number: usize) -> String {
        if self.is_v6 { format!("2001:db8:{number}::/48") } else { format!("20.{number}.0.0/16") }
    }

    fn text(&self, number: usize) -> String {
        let hop = |(&neighbour, weight): (&usize, &u16)| {
            let (_, device, address) = NEIGHBOURS[neighbour];
            let family = if !self.is_v6 && address.contains(':') { "inet6 " } else { "" };
            format!("nexthop via {family}{address} dev {device} weight {weight}")
        };
        let hops: Vec<String> = self.hops.iter().map(hop).collect();
        format!("replace {} {}", self.prefix(number), hops.join(" "))
    }

    /// The neighbour of each flow.
    fn flows(&self, vrf: &Vrf, number: usize) -> Vec<usize> {
        let mut found = [0; FLOWS];
        if self.is_v6 {
            let address: std::net::Ipv6Addr = format!("2001:db8:{number}::7").parse().unwrap();
            vrf.look_up_v6(&Call, &[address.into(); FLOWS], &mut found);
        } else {
            let address = std::net::Ipv4Addr::new(20, number as u8, 1, 1);
            vrf.look_up_v4(&Call, &[address.into(); FLOWS], &mut found);
        }
        vrf.choose_paths(&Call, &mut found, |flow| (flow as u32).wrapping_mul(0x9e37_79b9));
        let neighbour = |next: u32| {
            let adjacency = vrf.adjacencies().get(next).unwrap();
            assert_eq!(adjacency.packets() == IpFamily::V6, self.is_v6);
            let found = (adjacency.interface, adjacency.next_hop.unwrap());
            (0..NEIGHBOURS.len()).find(|&neighbour| key(neighbour) == found).unwrap()
        };
        found.map(neighbour).to_vec()
    }
}

#[derive(Clone, Debug)]
enum Event {
    Enter(usize, ModelRoute),
    Leave(usize),
    Fail(usize),
    Answer(usize),
    Forget(usize),
    /// Somebody enters its Ethernet address, or takes that back.
    Permanent(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let neighbour = 0..NEIGHBOURS.len();
    let hops = |range: std::ops::Range<usize>| proptest::collection::btree_map(range, 1..4_u16, 1..5);
    let route = prop_oneof![
        hops(0..8).prop_map(|hops| ModelRoute { is_v6: false, hops }),
        hops(4..8).prop_map(|hops| ModelRoute { is_v6: true, hops }),
    ];
    let event = prop_oneof![
        3 => (1..5_usize, route).prop_map(|(number, route)| Event::Enter(number, route)),
        1 => (1..5_usize).prop_map(Event::Leave),
        6 => neighbour.clone().prop_map(Event::Fail),
        4 => neighbour.clone().prop_map(Event::Answer),
        1 => neighbour.clone().prop_map(Event::Forget),
        1 => neighbour.prop_map(Event::Permanent),
    ];
    proptest::collection::vec(event, 1..60)
}

#[derive(Default)]
struct Model {
    routes: BTreeMap<usize, ModelRoute>,
    failed: BTreeSet<usize>,
    permanent: BTreeSet<usize>,
    flows: BTreeMap<usize, Vec<usize>>,
}

impl Model {
    /// The next hops of routes with several ways.
    fn watched(&self) -> BTreeSet<usize> {
        let several = self.routes.values().filter(|route| route.hops.len() > 1);
        several.flat_map(|route| route.hops.keys().copied()).collect()
    }

    /// Makes a change. Returns the route that it is about.
    fn apply(&mut self, vrf: &Vrf, event: &Event) -> Option<usize> {
        let mut changes = vrf.lock();
        let route = |changes: &mut bellows_vrf::VrfChanges<'_>, text: &str| {
            changes.batch().apply(&RouteCommand::parse(text, Verb::Add).unwrap()).unwrap();
        };
        let mut about = None;
        match *event {
            Event::Enter(number, ref entered) => {
                if let Some(other) = self.routes.get(&number).filter(|other| other.is_v6 != entered.is_v6) {
                    route(&mut changes, &format!("del {}", other.prefix(number)));
                }
                route(&mut changes, &entered.text(number));
                self.routes.insert(number, entered.clone());
                about = Some(number);
            }
            Event::Leave(number) => {
                if let Some(gone) = self.routes.remove(&number) {
                    route(&mut changes, &format!("del {}", gone.prefix(number)));
                }
                about = Some(number);
            }
            Event::Fail(neighbour) => {
                changes.fail(key(neighbour).0, key(neighbour).1);
                if self.watched().contains(&neighbour) && !self.permanent.contains(&neighbour) {
                    self.failed.insert(neighbour);
                }
            }
            Event::Answer(neighbour) => {
                changes.resolve(key(neighbour).0, key(neighbour).1, MAC).unwrap();
                self.failed.remove(&neighbour);
            }
            Event::Forget(neighbour) => changes.unresolve(key(neighbour).0, key(neighbour).1),
            Event::Permanent(neighbour) => {
                if self.permanent.remove(&neighbour) {
                    assert!(changes.remove_neighbour(key(neighbour), Origin::Control));
                } else {
                    changes.enter_neighbour(key(neighbour), MAC, Origin::Control).unwrap();
                    self.permanent.insert(neighbour);
                    self.failed.remove(&neighbour);
                }
            }
        }
        changes.commit().unwrap();
        assert!(changes.have_groups_followed() && changes.give_back(usize::MAX));
        let watched = self.watched();
        self.failed.retain(|neighbour| watched.contains(neighbour));
        about
    }

    fn check_watched(&self, vrf: &Vrf) {
        let changes = vrf.lock();
        for family in [IpFamily::V4, IpFamily::V6] {
            let (mut found, mut after) = (BTreeSet::new(), None);
            loop {
                let (page, last) = changes.watched(family, after, 2);
                found.extend(page);
                after = last;
                if last.is_none() {
                    break;
                }
            }
            let expected: BTreeSet<NeighbourKey> = self
                .watched()
                .difference(&self.permanent)
                .map(|&it| key(it))
                .filter(|key| IpFamily::of(key.1) == family)
                .collect();
            assert_eq!(found, expected);
        }
    }

    /// Checks who has which flows after a change of one route, or of the neighbours that had failed `before`.
    fn check_flows(&mut self, vrf: &Vrf, before: &BTreeSet<usize>, about: Option<usize>) {
        for (&number, route) in &self.routes {
            let flows = route.flows(vrf, number);
            let living = |failed: &BTreeSet<usize>| -> BTreeSet<usize> {
                route.hops.keys().copied().filter(|hop| !failed.contains(hop)).collect()
            };
            let (lived, lives) = (living(before), living(&self.failed));
            let users: BTreeSet<usize> = flows.iter().copied().collect();
            let expected = if lives.is_empty() { route.hops.keys().copied().collect() } else { lives.clone() };
            assert_eq!(users, expected, "route {number}: {route:?}, of which {:?} have failed", self.failed);
            let ways = ways_in_use(vrf, &route.prefix(number));
            assert_eq!(ways, expected.iter().map(|&hop| key(hop)).collect());
            if about == Some(number) {
                continue;
            }
            let Some(known) = self.flows.get(&number) else { continue };
            for (flow, (&was, &is)) in known.iter().zip(&flows).enumerate() {
                let may_move = !lives.contains(&was) || !lived.contains(&is);
                assert!(was == is || may_move, "flow {flow} of {number} moved from {was} to {is}");
            }
        }
        self.flows = self.routes.iter().map(|(&number, route)| (number, route.flows(vrf, number))).collect();
    }
}

/// The next hops of a route that are in use, as it is shown.
fn ways_in_use(vrf: &Vrf, prefix: &str) -> BTreeSet<NeighbourKey> {
    let changes = vrf.lock();
    let prefix: IpPrefix = prefix.parse().unwrap();
    let address = match prefix {
        IpPrefix::V4(_) => prefix.to_string().replace(".0.0/16", ".1.1").parse::<IpAddr>().unwrap(),
        IpPrefix::V6(_) => prefix.to_string().replace("::/48", "::7").parse::<IpAddr>().unwrap(),
    };
    let (found, route) = changes.look_up(address).unwrap();
    assert_eq!(found, prefix);
    let RouteTarget::Forward(ways) = changes.target(route.next) else { panic!("{prefix} forwards") };
    let shares: f64 = ways.iter().map(|way| changes.share(route.next, way.adjacency)).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    for way in &ways {
        assert_eq!(way.is_in_use, changes.share(route.next, way.adjacency) > 0.0, "{way:?}");
    }
    ways.iter().filter(|way| way.is_in_use).map(|way| (way.interface, way.gateway.unwrap())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn flows_avoid_neighbours_that_have_failed_and_others_stay(events in events()) {
        let (vrf, mut model) = (vrf(), Model::default());
        for event in events {
            let before = model.failed.clone();
            let about = model.apply(&vrf, &event);
            model.check_watched(&vrf);
            model.check_flows(&vrf, &before, about);
        }
    }
}

fn change(vrf: &Vrf, text: &str) {
    let mut changes = vrf.lock();
    changes.batch().apply(&RouteCommand::parse(text, Verb::Add).unwrap()).unwrap();
    changes.commit().unwrap();
    assert!(changes.give_back(usize::MAX));
}

#[test]
fn flows_stay_with_the_next_hops_that_a_replaced_route_keeps() {
    let vrf = vrf();
    let route = |hops: &[usize]| ModelRoute { is_v6: false, hops: hops.iter().map(|&hop| (hop, 1)).collect() };
    let (three, two) = (route(&[0, 1, 2]), route(&[0, 2]));
    // Both routes have one group.
    change(&vrf, &three.text(1));
    change(&vrf, &three.text(2));
    let before = three.flows(&vrf, 1);
    change(&vrf, &two.text(1));
    let after = two.flows(&vrf, 1);
    assert!(before.contains(&1) && !after.contains(&1));
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == 1));
    assert_eq!(three.flows(&vrf, 2), before, "the other route stays as it is");
    change(&vrf, &two.text(2));
    assert_eq!(two.flows(&vrf, 2), after, "routes with the same ways have one group");
}

#[test]
fn a_group_that_is_made_while_a_neighbour_has_failed_avoids_it() {
    let vrf = vrf();
    let change = |text: &str| change(&vrf, text);
    let of_both = "20.1.0.0/16 nexthop via inet6 fe80::10 dev a nexthop via 10.0.1.10";
    change("add 2001:db8:1::/48 nexthop via fe80::10 dev a nexthop via fe80::11 dev a");
    vrf.lock().fail(key(4).0, key(4).1);
    change(&format!("add {of_both}"));
    assert_eq!(vrf.lock().groups(), (2, 4, 2));
    assert_eq!(ways_in_use(&vrf, "20.1.0.0/16"), [key(0)].into());
    change("del 20.1.0.0/16");
    change("del 2001:db8:1::/48");
    change(&format!("add {of_both}"));
    assert_eq!(vrf.lock().groups(), (1, 2, 0), "nobody has watched it in between");
}
