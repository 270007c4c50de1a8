//! Commands on a routing domain against a model, the replacement of all routes, and what remains when a configuration
//! changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bellows_vrf::command::{RouteCommand, Verb};
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::route::IpPrefix;
use bellows_vrf::{
    Done, IfExists, Interface, Listed, Match, Origin, RouteFilter, RouteSpec, RouteTarget, Staged, Vrf, VrfChanges,
    VrfError,
};
use bellows_wire::MacAddr;
use proptest::prelude::*;

fn interface(name: &str, number: u8) -> Interface {
    Interface {
        name: name.to_owned(),
        port: name.to_owned(),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: vec![InterfaceAddress { address: IpAddr::from([10, 0, number, 1]), length: 24 }],
    }
}

fn vrf_of(interfaces: &[(&str, u8)], routes: &[&str]) -> Vrf {
    let interfaces = interfaces.iter().map(|(name, number)| interface(name, *number)).collect();
    let vrf = Vrf::new(interfaces, 100, 7).unwrap();
    let mut changes = vrf.lock();
    for route in routes {
        changes.add(&RouteSpec::parse(route).unwrap(), IfExists::Refuse).unwrap();
    }
    changes.commit().unwrap();
    drop(changes);
    vrf
}

fn vrf(routes: &[&str]) -> Vrf {
    vrf_of(&[("a", 1), ("b", 2)], routes)
}

fn apply(vrf: &Vrf, commands: &[&str]) -> Result<Vec<Done>, VrfError> {
    let mut changes = vrf.lock();
    let mut batch = changes.batch();
    let mut done = Ok(Vec::new());
    for command in commands {
        match (batch.apply(&RouteCommand::parse(command, Verb::Add).unwrap()), &mut done) {
            (Ok(one), Ok(done)) => done.push(one),
            (Ok(_), Err(_)) => {}
            (Err(error), _) => {
                batch.undo();
                done = Err(error);
                break;
            }
        }
    }
    changes.commit().unwrap();
    assert!(changes.give_back(usize::MAX));
    done
}

/// The routes of some origins, as text with these.
fn routes(vrf: &Vrf, origins: &[Origin]) -> Vec<String> {
    let changes = vrf.lock();
    let filter = RouteFilter { origins: origins.to_vec(), ..RouteFilter::default() };
    let (listed, rest) = changes.list(&filter, None, usize::MAX, usize::MAX);
    assert!(rest.is_none());
    let text = |route: &Listed| {
        let action = changes.action(route.next).unwrap();
        let spec = RouteSpec { prefix: route.prefix, action, metric: route.metric };
        format!("{spec} {}", route.origin.name())
    };
    listed.iter().map(text).collect()
}

fn entered(vrf: &Vrf) -> Vec<String> {
    routes(vrf, &[Origin::Static, Origin::Control])
}

#[test]
fn commands_change_routes_and_a_batch_with_an_error_none() {
    use Done::{Added, Deleted, Replaced};
    let vrf = vrf(&["20.0.0.0/8 via 10.0.1.9", "30.0.0.0/8 via 10.0.1.9"]);
    let used = vrf.adjacencies().used();
    let commands = [
        "add 40.0.0.0/8 via 10.0.2.9",
        "replace 20.0.0.0/8 via 10.0.2.9",
        "append 40.0.0.0/8 via 10.0.2.8",
        "append 50.0.0.0/8 dev b",
        "del 30.0.0.0/8 via 10.0.1.9 dev a",
        "add blackhole 60.0.0.0/8 metric 7",
    ];
    assert_eq!(apply(&vrf, &commands).unwrap(), [Added, Replaced, Replaced, Added, Deleted, Added]);
    let expected = [
        "20.0.0.0/8 via 10.0.2.9 dev b control",
        "40.0.0.0/8 nexthop via 10.0.2.8 dev b weight 1 nexthop via 10.0.2.9 dev b weight 1 control",
        "50.0.0.0/8 dev b control",
        "blackhole 60.0.0.0/8 metric 7 control",
    ];
    assert_eq!(entered(&vrf), expected);
    assert_eq!(vrf.adjacencies().used(), used + 1, "10.0.1.9 is gone, 10.0.2.8 and 10.0.2.9 are new");
    for (wrong, message) in [
        ("add 20.0.0.0/8 via 10.0.1.7", "there is a route to 20.0.0.0/8 with metric 0 already"),
        ("add 10.0.1.0/24 via 10.0.2.9", "the route to 10.0.1.0/24 with metric 0 is that of an interface"),
        ("replace 10.0.1.1/32 via 10.0.2.9", "that of an interface"),
        ("del 10.0.1.0/24", "that of an interface"),
        ("del 99.0.0.0/8", "there is no such route to 99.0.0.0/8"),
        ("del 20.0.0.0/8 metric 1", "there is no such route to 20.0.0.0/8"),
        ("del 20.0.0.0/8 via 10.0.1.9", "there is no such route to 20.0.0.0/8"),
        ("append 60.0.0.0/8 via 10.0.2.9 metric 7", "forwards nothing"),
        ("append 20.0.0.0/8 via 10.0.2.9", "two paths lead to"),
        ("add 99.0.0.0/8 nexthop via 10.0.1.55 nexthop via 10.9.9.9", "no interface has 10.9.9.9 on its link"),
        ("add 99.0.0.0/8 dev c", "there is no interface `c`"),
    ] {
        let commands = ["del 40.0.0.0/8", "add 70.0.0.0/8 via 10.0.1.66", "replace 50.0.0.0/8 dev a", wrong];
        let error = apply(&vrf, &commands).unwrap_err().to_string();
        assert!(error.contains(message), "{wrong}: {error}");
        assert_eq!(
            (entered(&vrf), vrf.adjacencies().used()),
            (expected.map(str::to_owned).to_vec(), used + 1),
            "{wrong}"
        );
    }
}

#[test]
fn a_route_to_a_neighbour_hides_its_own_until_it_is_removed() {
    let vrf = vrf(&[]);
    let mut changes = vrf.lock();
    changes.resolve(1, IpAddr::from([10, 0, 1, 5]), MacAddr([4, 0, 0, 0, 0, 5])).unwrap();
    changes.commit().unwrap();
    drop(changes);
    assert_eq!(routes(&vrf, &[Origin::Neighbour]), ["10.0.1.5/32 via 10.0.1.5 dev a neighbour"]);
    apply(&vrf, &["add 10.0.1.5/32 via 10.0.2.9"]).unwrap();
    assert_eq!(routes(&vrf, &[Origin::Neighbour]), [""; 0]);
    apply(&vrf, &["del 10.0.1.5/32"]).unwrap();
    assert_eq!(routes(&vrf, &[Origin::Neighbour]), ["10.0.1.5/32 via 10.0.1.5 dev a neighbour"]);
    apply(&vrf, &["add 10.0.1.5/32 via 10.0.2.9"]).unwrap();
    let mut changes = vrf.lock();
    changes.swap(Staged::default());
    changes.commit().unwrap();
    assert_eq!(changes.look_up(IpAddr::from([10, 0, 1, 5])).unwrap().0, IpPrefix::host(IpAddr::from([10, 0, 1, 5])));
    drop(changes);
    assert_eq!(routes(&vrf, &[Origin::Neighbour]), ["10.0.1.5/32 via 10.0.1.5 dev a neighbour"]);
}

#[test]
fn a_route_to_a_neighbour_that_a_command_removed_does_not_come_back() {
    let file = ["10.0.1.5/32 via 10.0.2.9"];
    let live = vrf(&file);
    let mut changes = live.lock();
    changes.resolve(1, IpAddr::from([10, 0, 1, 5]), MacAddr([4, 0, 0, 0, 0, 5])).unwrap();
    changes.commit().unwrap();
    drop(changes);
    apply(&live, &["del 10.0.1.5/32"]).unwrap();
    assert_eq!(routes(&live, &[Origin::Neighbour]), ["10.0.1.5/32 via 10.0.1.5 dev a neighbour"]);
    live.follow(&vrf(&file)).unwrap();
    assert_eq!(entered(&live), [""; 0]);
    // One that the configuration has no more gives way to the neighbour's own.
    apply(&live, &["add 10.0.1.5/32 via 10.0.2.9"]).unwrap();
    live.follow(&vrf(&["10.0.1.5/32 via 10.0.2.8"])).unwrap();
    assert_eq!(entered(&live), ["10.0.1.5/32 via 10.0.2.8 dev b static"]);
    live.follow(&vrf(&[])).unwrap();
    assert_eq!(routes(&live, &[Origin::Neighbour]), ["10.0.1.5/32 via 10.0.1.5 dev a neighbour"]);
}

#[test]
fn neighbours_of_commands_stay_what_they_are() {
    let vrf = vrf(&[]);
    let key = (1, IpAddr::from([10, 0, 1, 5]));
    let (own, other) = (MacAddr([4, 0, 0, 0, 0, 5]), MacAddr([6, 0, 0, 0, 0, 5]));
    let mut changes = vrf.lock();
    changes.enter_neighbour(key, own, Origin::Control).unwrap();
    changes.resolve(key.0, key.1, other).unwrap();
    changes.unresolve(key.0, key.1);
    let header = |changes: &VrfChanges<'_>| {
        let next = changes.look_up(key.1).unwrap().1.next;
        vrf.adjacencies().get(next).unwrap().header[..6].to_vec()
    };
    assert_eq!(header(&changes), own.0);
    assert!(changes.remove_neighbour(key, Origin::Control) && !changes.remove_neighbour(key, Origin::Control));
    assert_eq!(changes.permanent().count(), 0);
    changes.resolve(key.0, key.1, other).unwrap();
    assert_eq!(header(&changes), other.0);
    let error = changes.enter_neighbour((1, IpAddr::from([10, 0, 2, 5])), own, Origin::Control).unwrap_err();
    assert_eq!(error.to_string(), "10.0.2.5 is not on a link of `a`");
    assert_eq!(changes.link_of(IpAddr::from([10, 0, 2, 5])).unwrap(), 2);
    for (address, error) in [("10.9.9.9", "no interface has 10.9.9.9 on its link"), ("fe80::7", "may be on any link")] {
        let said = changes.link_of(address.parse().unwrap()).unwrap_err().to_string();
        assert!(said.contains(error), "{said}");
    }
}

#[test]
fn lists_have_pages_and_conditions() {
    let file = ["20.0.0.0/8 via 10.0.1.9", "20.1.0.0/16 dev b", "20.1.1.0/24 via 10.0.2.9", "30.0.0.0/8 via 10.0.1.9"];
    let vrf = vrf(&file);
    apply(&vrf, &["add 20.1.0.0/16 via 10.0.1.9 metric 5", "add 2001:db8::/32 via fe80::1 dev a"]).unwrap();
    let changes = vrf.lock();
    let listed = |filter: &RouteFilter| -> Vec<String> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = changes.list(filter, after, 1, 2);
            all.extend(page.iter().map(|route| format!("{} {}", route.prefix, route.metric)));
            after = next;
            if after.is_none() {
                return all;
            }
        }
    };
    let entered = RouteFilter { origins: vec![Origin::Static, Origin::Control], ..RouteFilter::default() };
    let with = |how, text: &str| {
        let prefix: IpPrefix = text.parse().unwrap();
        RouteFilter { prefix: Some((how, prefix)), ..entered.clone() }
    };
    let all = ["20.0.0.0/8 0", "20.1.0.0/16 0", "20.1.0.0/16 5", "20.1.1.0/24 0", "30.0.0.0/8 0", "2001:db8::/32 0"];
    assert_eq!(listed(&entered), all);
    assert_eq!(listed(&with(Match::Exact, "20.1.0.0/16")), all[1..3]);
    assert_eq!(listed(&with(Match::Root, "20.1.0.0/16")), all[1..4]);
    assert_eq!(listed(&with(Match::Match, "20.1.0.0/16")), all[..3]);
    assert_eq!(listed(&with(Match::Root, "::/0")), all[5..]);
    assert_eq!(listed(&RouteFilter { interface: Some(2), ..entered.clone() }), [all[1], all[3]]);
    let via = RouteFilter { via: Some(IpAddr::from([10, 0, 1, 9])), ..entered.clone() };
    assert_eq!(listed(&via), [all[0], all[2], all[4]]);
    let statistics = changes.statistics(bellows_vrf::IpFamily::V4);
    // Also 0/8, 127/8 and 169.254/16, which every router has.
    assert_eq!((statistics.lengths[8], statistics.lengths[16], statistics.several), (4, 3, 1));
    assert_eq!((statistics.origins[Origin::Static.index()], statistics.origins[Origin::Control.index()]), (4, 1));
}

#[test]
fn all_routes_are_replaced_at_once() {
    let vrf = vrf(&["20.0.0.0/8 via 10.0.1.9", "30.0.0.0/8 via 10.0.1.8"]);
    apply(&vrf, &["add 40.0.0.0/8 via 10.0.2.9"]).unwrap();
    let used = vrf.adjacencies().used();
    let stage = |routes: &[&str]| {
        let mut staged = Staged::default();
        let mut changes = vrf.lock();
        let result = routes.iter().try_for_each(|route| changes.stage(&mut staged, &RouteSpec::parse(route).unwrap()));
        (staged, result)
    };
    let (staged, result) = stage(&["20.0.0.0/8 via 10.0.2.7", "10.0.1.0/24 via 10.0.2.9"]);
    assert!(matches!(result, Err(VrfError::Connected(..))));
    vrf.lock().discard(staged);
    let before = ["20.0.0.0/8 via 10.0.1.9 dev a static", "30.0.0.0/8 via 10.0.1.8 dev a static"];
    assert_eq!(routes(&vrf, &[Origin::Static]), before);
    let new = ["30.0.0.0/8 via 10.0.1.8", "50.0.0.0/8 via 10.0.2.6", "50.0.0.0/8 via 10.0.2.7", "10.0.1.77/32 dev b"];
    let (staged, result) = stage(&new);
    result.unwrap();
    let mut changes = vrf.lock();
    let swapped = changes.swap(staged);
    assert_eq!((swapped.before, swapped.after, swapped.repeated), (3, 3, 1));
    changes.commit().unwrap();
    assert!(changes.give_back(usize::MAX));
    let leads = |address: [u8; 4]| match changes.look_up(IpAddr::from(address)) {
        Some((_, route)) => changes.target(route.next),
        None => RouteTarget::NoRoute,
    };
    assert_eq!(leads([20, 1, 1, 1]), RouteTarget::NoRoute);
    assert_eq!(leads([10, 0, 1, 1]), RouteTarget::Local, "what follows from interfaces is still there");
    drop(changes);
    let expected = [
        "10.0.1.77/32 dev b control",
        "30.0.0.0/8 via 10.0.1.8 dev a control",
        "50.0.0.0/8 via 10.0.2.7 dev b control",
    ];
    assert_eq!(entered(&vrf), expected);
    assert_eq!(vrf.adjacencies().used(), used - 1, "10.0.1.8 and 10.0.2.7 are in use, 10.0.1.9 and 10.0.2.9 are not");
}

#[test]
fn what_commands_did_outlives_a_change_of_the_configuration() {
    let file = [20, 30, 40, 50].map(|net| format!("{net}.0.0.0/8 via 10.0.1.9"));
    let file = file.each_ref().map(String::as_str);
    let commands =
        ["del 20.0.0.0/8", "replace 30.0.0.0/8 via 10.0.2.9", "add 60.0.0.0/8 via 10.0.2.9", "del 50.0.0.0/8"];
    // 40/8 and 50/8 lead elsewhere, 70/8 is new.
    let changed = [file[0], file[1], "40.0.0.0/8 via 10.0.1.7", "50.0.0.0/8 via 10.0.1.7", "70.0.0.0/8 via 10.0.1.9"];
    let expected = [
        "30.0.0.0/8 via 10.0.2.9 dev b control",
        "40.0.0.0/8 via 10.0.1.7 dev a static",
        "50.0.0.0/8 via 10.0.1.7 dev a static",
        "60.0.0.0/8 via 10.0.2.9 dev b control",
        "70.0.0.0/8 via 10.0.1.9 dev a static",
    ];
    let live = vrf(&file);
    apply(&live, &commands).unwrap();
    let done = live.follow(&vrf(&changed)).unwrap();
    assert_eq!((entered(&live), done.changed), (expected.map(str::to_owned).to_vec(), 3));
    assert_eq!(live.follow(&vrf(&changed)).unwrap(), Default::default(), "nothing else has changed");
    let used = live.adjacencies().used();
    for _ in 0..2 {
        live.follow(&vrf(&changed[..2])).unwrap();
        assert!(live.lock().give_back(usize::MAX));
        assert_eq!(live.adjacencies().used(), used - 2, "10.0.1.9 and 10.0.1.7 are of no use");
    }
    live.follow(&vrf(&changed)).unwrap();
    // Routes that the configuration has no more are gone, and with them what was to be left out.
    live.follow(&vrf(&[])).unwrap();
    assert_eq!(entered(&live), [expected[0], expected[3]]);
    live.follow(&vrf(&file[..1])).unwrap();
    assert_eq!(entered(&live), ["20.0.0.0/8 via 10.0.1.9 dev a static", expected[0], expected[3]]);

    // With other interfaces it is another domain.
    let old = vrf(&file);
    apply(&old, &commands).unwrap();
    apply(&old, &["add 80.0.0.0/8 via 10.0.2.9"]).unwrap();
    let neighbour = IpAddr::from([10, 0, 2, 9]);
    old.lock().enter_neighbour((2, neighbour), MacAddr([4; 6]), Origin::Control).unwrap();
    let new = vrf_of(&[("b", 2), ("a", 1), ("c", 3)], &changed);
    assert_eq!(new.inherit(&old).unwrap().lost, 0);
    let mut with_80 = expected.to_vec();
    with_80.push("80.0.0.0/8 via 10.0.2.9 dev b control");
    assert_eq!(entered(&new), with_80);
    assert_eq!(new.lock().permanent().map(|(key, ..)| key).collect::<Vec<_>>(), [(1, neighbour)]);
    let without = vrf_of(&[("a", 1)], &file[2..3]);
    assert_eq!(without.inherit(&old).unwrap().lost, 4, "three routes and a neighbour on the link of b");
    assert_eq!(entered(&without), ["40.0.0.0/8 via 10.0.1.9 dev a static"]);
}

/// An interface whose address is another one: 10.0.7.1.
fn renumbered() -> Vrf {
    let moved = Interface { name: "a".to_owned(), port: "a".to_owned(), ..interface("", 7) };
    Vrf::new(vec![moved, interface("b", 2)], 100, 7).unwrap()
}

#[test]
fn next_hops_are_on_a_link_when_they_are_entered_and_stay_when_its_addresses_change() {
    let old = vrf(&[]);
    apply(&old, &["add 20.0.0.0/8 via 10.0.1.9", "add 21.0.0.0/8 nexthop via 10.0.1.9 nexthop via 10.0.2.9"]).unwrap();
    apply(&old, &["add 22.0.0.0/8 via 10.0.7.9 dev a onlink"]).unwrap();
    let new = renumbered();
    assert_eq!(new.inherit(&old).unwrap().lost, 0);
    let shown = [
        "20.0.0.0/8 via 10.0.1.9 dev a onlink control",
        "21.0.0.0/8 nexthop via 10.0.1.9 dev a onlink weight 1 nexthop via 10.0.2.9 dev b weight 1 control",
        "22.0.0.0/8 via 10.0.7.9 dev a control",
    ];
    assert_eq!(entered(&new), shown);
    apply(&new, &["append 20.0.0.0/8 via 10.0.7.9", "del 21.0.0.0/8 nexthop via 10.0.1.9 dev a nexthop via 10.0.2.9"])
        .unwrap();
    // What is shown can be entered again, also where the addresses were others.
    for route in entered(&new) {
        apply(&vrf(&[]), &[&format!("add {}", route.replace("control", "proto static"))]).unwrap_err();
        apply(&renumbered(), &[&format!("add {}", route.replace("control", "proto static"))]).unwrap();
    }
}

#[test]
fn an_mtu_is_that_of_a_route_and_not_of_its_ways() {
    let vrf = vrf(&[]);
    let used = vrf.adjacencies().used();
    apply(&vrf, &["add 20.0.0.0/8 via 10.0.1.9 mtu 1400", "append 20.0.0.0/8 via 10.0.2.9"]).unwrap();
    let with = |mtu: u16| {
        format!("20.0.0.0/8 nexthop via 10.0.1.9 dev a weight 1 nexthop via 10.0.2.9 dev b weight 1 mtu {mtu} control")
    };
    assert_eq!(entered(&vrf), [with(1400)]);
    apply(&vrf, &["append 20.0.0.0/8 via 10.0.2.8 mtu 1300"]).unwrap();
    assert!(entered(&vrf)[0].ends_with("via 10.0.2.9 dev b weight 1 mtu 1300 control"), "{:?}", entered(&vrf));
    apply(&vrf, &["replace 20.0.0.0/8 via 10.0.1.9 mtu 1400"]).unwrap();
    // A reload with other interfaces keeps it.
    let new = renumbered();
    new.inherit(&vrf).unwrap();
    assert_eq!(entered(&new), ["20.0.0.0/8 via 10.0.1.9 dev a onlink mtu 1400 control"]);
    apply(&vrf, &["del 20.0.0.0/8 via 10.0.1.9 mtu 1300"]).unwrap_err();
    apply(&vrf, &["del 20.0.0.0/8 via 10.0.1.9 mtu 1400"]).unwrap();
    assert_eq!(vrf.adjacencies().used(), used);
}

#[test]
fn a_staged_route_to_a_link_says_which_next_hops_are_there() {
    let vrf = vrf(&[]);
    let mut changes = vrf.lock();
    let mut staged = Staged::default();
    let stage = |changes: &mut VrfChanges<'_>, staged: &mut Staged, route: &str| {
        changes.stage(staged, &RouteSpec::parse(route).unwrap()).map_err(|error| error.to_string())
    };
    let error = stage(&mut changes, &mut staged, "20.0.0.0/8 via 30.0.0.9 dev b").unwrap_err();
    assert!(error.starts_with("30.0.0.9 is not on a link of `b`"), "{error}");
    stage(&mut changes, &mut staged, "30.0.0.0/24 dev b").unwrap();
    stage(&mut changes, &mut staged, "20.0.0.0/8 via 30.0.0.9 dev b").unwrap();
    stage(&mut changes, &mut staged, "21.0.0.0/8 nexthop via 30.0.0.9 nexthop via 10.0.1.9").unwrap();
    stage(&mut changes, &mut staged, "22.0.0.0/8 via 30.0.0.9 dev a").unwrap_err();
    changes.swap(staged);
    changes.commit().unwrap();
    drop(changes);
    assert_eq!(entered(&vrf).len(), 3);
}

proptest! {
    #[test]
    fn commands_do_what_a_list_does(
        batches in prop::collection::vec(prop::collection::vec((0u8..5, 0u8..4, 0u32..2, 1u8..3, 5u8..8), 1..8), 0..12)
    ) {
        let vrf = vrf(&[]);
        let used = vrf.adjacencies().used();
        let mut model: BTreeMap<(u8, u32), String> = BTreeMap::new();
        for batch in batches {
            let (mut next, mut is_right, mut commands) = (model.clone(), true, Vec::new());
            for (verb, prefix, metric, link, host) in batch {
                let way = format!("via 10.0.{link}.{host} dev {}", if link == 1 { "a" } else { "b" });
                let route = format!("2{prefix}.0.0.0/8 {way} metric {metric}");
                let key = (prefix, metric);
                let (command, right) = match verb {
                    0 => (format!("add {route}"), next.insert(key, way).is_none()),
                    1 => {
                        next.insert(key, way);
                        (format!("replace {route}"), true)
                    }
                    2 => (format!("del {route}"), next.remove(&key) == Some(way)),
                    3 => {
                        let best = next.keys().find(|(known, _)| *known == prefix).copied();
                        (format!("del 2{prefix}.0.0.0/8"), best.is_some_and(|best| next.remove(&best).is_some()))
                    }
                    _ => (format!("del 2{prefix}.0.0.0/8 metric {metric}"), next.remove(&key).is_some()),
                };
                commands.push(command);
                is_right &= right;
                if !is_right {
                    break;
                }
            }
            let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
            prop_assert_eq!(apply(&vrf, &commands).is_ok(), is_right, "{:?}", commands);
            if is_right {
                model = next;
            }
            let line = |((prefix, metric), way): (&(u8, u32), &String)| {
                let metric = if *metric == 0 { String::new() } else { format!(" metric {metric}") };
                format!("2{prefix}.0.0.0/8 {way}{metric} control")
            };
            prop_assert_eq!(entered(&vrf), model.iter().map(line).collect::<Vec<_>>());
            let ways: BTreeSet<&String> = model.values().collect();
            prop_assert_eq!(vrf.adjacencies().used(), used + ways.len());
        }
    }
}
