//! Next hops of routes with several ways: found without packets, out of use while they do not answer.

use std::collections::BTreeSet;

use bellows_engine::Settings;
use bellows_rig::Rig;
use bellows_testkit::eventually;
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::{IfExists, RouteSpec, RouteTarget, Vrf};

use super::tests::{HOST, OWN, SECOND, arp, parsed};
use super::*;

/// Interfaces `a` with 10.1.0.1/16 and `b` with 10.2.0.1/16, and these routes.
fn domain(routes: &[String]) -> Arc<RoutingDomain> {
    let interface = |name: &str, number: u8| Interface {
        name: name.to_owned(),
        port: name.to_owned(),
        mac: OWN,
        mtu: 1500,
        tags: vec![],
        addresses: vec![InterfaceAddress { address: Ipv4Addr::new(10, number, 0, 1).into(), length: 16 }],
    };
    let vrf = Vrf::new(vec![interface("a", 1), interface("b", 2)], 20_000, 1).unwrap();
    let domain = Arc::new(RoutingDomain::new(vrf));
    add(&domain, routes);
    domain
}

fn add(domain: &RoutingDomain, routes: &[String]) {
    let mut changes = domain.tables().lock();
    for route in routes {
        changes.add(&RouteSpec::parse(route).unwrap(), IfExists::Replace).unwrap();
    }
    changes.commit().unwrap();
}

/// Replaces a route, and waits until no worker can have its former next hops in hand.
fn replace(domain: &RoutingDomain, rig: &mut Rig, route: &str) {
    add(domain, &[route.to_owned()]);
    // The networks of other tests are workers of the process, too.
    eventually("former next hops without workers that have them", || {
        rig.breathe();
        domain.tables().lock().give_back(usize::MAX)
    });
}

fn rig(domain: &Arc<RoutingDomain>) -> Rig {
    let limits = NeighbourLimits { neighbours: 20_000, ..NeighbourLimits::default() };
    let app = Arp::new(Arc::clone(domain), limits);
    Rig::with_settings(app, &["input", "resolve"], &["a", "b"], Settings::default())
}

/// Lets time pass up to `seconds`, in which these answer. Returns whom the router has asked.
fn pass(rig: &mut Rig, from: u64, seconds: u64, answers: impl Fn(Ipv4Addr) -> bool) -> Vec<Ipv4Addr> {
    let mut asked = Vec::new();
    for step in 0..seconds * 20 {
        rig.set_time(from + (step + 1) * SECOND / 20);
        rig.settle();
        for (number, output) in [(1, "a"), (2, "b")] {
            let frames = rig.received(output);
            let questions = frames.iter().map(|frame| parsed(frame, 14)).filter(|it| it.2 != it.4);
            let targets: Vec<Ipv4Addr> = questions.map(|(.., target)| target).collect();
            for &target in targets.iter().filter(|&&target| answers(target)) {
                let own = Ipv4Addr::new(10, number as u8, 0, 1);
                rig.send_packets("input", [arp(number, ArpOperation::REPLY, HOST, target.octets(), own.octets())]);
                rig.settle();
            }
            asked.extend(targets);
        }
    }
    asked
}

/// The next hops that the route to an address uses.
fn in_use(domain: &RoutingDomain, address: &str) -> BTreeSet<String> {
    let changes = domain.tables().lock();
    let (_, route) = changes.look_up(address.parse().unwrap()).unwrap();
    let RouteTarget::Forward(ways) = changes.target(route.next) else { panic!("it forwards") };
    ways.iter().filter(|way| way.is_in_use).map(|way| way.gateway.unwrap().to_string()).collect()
}

fn states(rig: &Rig) -> Vec<String> {
    let shown = rig.status().unwrap();
    let neighbours = shown["neighbours"].as_array().unwrap();
    neighbours
        .iter()
        .map(|it| format!("{} {}", it["address"].as_str().unwrap(), it["state"].as_str().unwrap()))
        .collect()
}

#[test]
fn next_hops_are_found_without_packets_and_used_while_they_answer() {
    let domain = domain(&["20.0.0.0/8 nexthop via 10.1.0.9 nexthop via 10.2.0.9".to_owned()]);
    let [one, other] = [Ipv4Addr::new(10, 1, 0, 9), Ipv4Addr::new(10, 2, 0, 9)];
    let both: BTreeSet<String> = [one, other].map(|it| it.to_string()).into();
    let mut rig = rig(&domain);
    let asked = pass(&mut rig, SECOND, 1, |_| true);
    assert_eq!(asked, [one, other], "each is asked once, and answers");
    assert_eq!(
        (in_use(&domain, "20.1.1.1"), states(&rig)),
        (both.clone(), vec![format!("{one} reachable"), format!("{other} reachable")])
    );
    // One ceases to answer: it is asked three times, at most five seconds after its last answer.
    let asked = pass(&mut rig, 2 * SECOND, 7, |target| target == one);
    assert_eq!(asked.iter().filter(|&&it| it == other).count(), 3, "{asked:?}");
    assert_eq!(asked.iter().filter(|&&it| it == one).count(), 1, "{asked:?}");
    assert_eq!(in_use(&domain, "20.1.1.1"), both);
    pass(&mut rig, 9 * SECOND, 1, |target| target == one);
    assert_eq!(in_use(&domain, "20.1.1.1"), [one.to_string()].into());
    assert_eq!(states(&rig), [format!("{one} reachable"), format!("{other} failed")]);
    assert_eq!(rig.counts().counters["next_hops_failed"], 1);
    // It is asked again every five seconds, and used as soon as it answers.
    let asked = pass(&mut rig, 10 * SECOND, 20, |target| target == one);
    assert_eq!(asked.iter().filter(|&&it| it == other).count(), 4, "{asked:?}");
    pass(&mut rig, 30 * SECOND, 5, |_| true);
    assert_eq!((in_use(&domain, "20.1.1.1"), rig.counts().counters["next_hops_failed"]), (both.clone(), 0));
    // If none answers, all are in use, as if all did.
    pass(&mut rig, 35 * SECOND, 10, |_| false);
    assert_eq!((in_use(&domain, "20.1.1.1"), rig.counts().counters["next_hops_failed"]), (both, 2));
    // Nobody asks for next hops that no such route has, while the others still are.
    replace(&domain, &mut rig, "20.0.0.0/8 nexthop via 10.1.0.9 nexthop via 10.2.0.8");
    let asked: BTreeSet<Ipv4Addr> = pass(&mut rig, 47 * SECOND, 10, |_| false).into_iter().collect();
    assert_eq!(asked, [one, Ipv4Addr::new(10, 2, 0, 8)].into());
    replace(&domain, &mut rig, "20.0.0.0/8 via 10.1.0.9");
    pass(&mut rig, 57 * SECOND, 2, |_| false);
    assert_eq!((pass(&mut rig, 60 * SECOND, 10, |_| false), states(&rig).len()), (vec![], 0));
}

#[test]
fn thousands_of_next_hops_are_asked_in_turns() {
    let hop = |number: u32| format!("nexthop via 10.1.{}.{}", 1 + number / 250, 1 + number % 250);
    let route = |number: u32| {
        let hops: Vec<String> = (4 * number..4 * number + 4).map(hop).collect();
        format!("20.{}.{}.0/24 {}", number / 250, number % 250, hops.join(" "))
    };
    let routes: Vec<String> = (0..1_000).map(route).collect();
    let domain = domain(&routes);
    let mut rig = rig(&domain);
    // Every fourth one does not answer.
    let answers = |target: Ipv4Addr| target.octets()[3] % 4 != 1;
    for second in 1..=20 {
        let asked = pass(&mut rig, second * SECOND, 1, answers);
        assert!(asked.len() <= 2_500, "{} questions in second {second}", asked.len());
    }
    let (failed, changes) = (rig.counts().counters["next_hops_failed"], domain.tables().lock());
    let silent = (0..4_000_u32).filter(|number| (1 + number % 250) % 4 == 1).count();
    assert_eq!((failed as usize, changes.groups()), (silent, (1_000, 4_000, silent)));
    drop(changes);
    // All return, and are found.
    for second in 21..=27 {
        let asked = pass(&mut rig, second * SECOND, 1, |_| true);
        assert!(asked.len() <= 2_500, "{} questions in second {second}", asked.len());
    }
    assert_eq!((rig.counts().counters["next_hops_failed"], domain.tables().lock().groups().2), (0, 0));
}
