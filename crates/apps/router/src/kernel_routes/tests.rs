use std::collections::BTreeMap;
use std::net::IpAddr;

use bellows_netif::route::{Insertion, KernelNeighbour, KernelRoute, RouteKind, Special, Way};
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::route::IpPrefix;
use bellows_vrf::{IfExists, Interface, RouteSpec, Vrf};
use bellows_wire::MacAddr;
use proptest::prelude::*;

use super::install::{Devices, install, retract};
use super::neighbours::Neighbours;
use super::set::{Deed, KernelRouteKey, RouteSet, Standing};

/// A kernel's table in the plainest way: the routes of each prefix and metric in their order.
#[derive(Default)]
struct Kernel {
    routes: BTreeMap<KernelRouteKey, Vec<KernelRoute>>,
}

/// A step of an administrator.
#[derive(Clone, Debug)]
enum Step {
    /// Adds a route to a prefix with a metric: its ways, or nothing for a black hole.
    Add { prefix: u8, metric: u32, ways: Vec<u8>, insertion: Insertion },
    /// Removes the first route, or the last one.
    Remove { prefix: u8, metric: u32, last: bool },
    /// Removes a way of a route of IPv6.
    RemoveWay { prefix: u8, metric: u32 },
    /// Whether events are lost from here on.
    Deaf(bool),
    /// Reads the table.
    Read,
}

/// The kernel's messages.
#[derive(Clone, Debug)]
enum Event {
    Added(KernelRoute, Insertion),
    Removed(KernelRoute),
}

fn is_v6(prefix: u8) -> bool {
    prefix >= 4
}

fn destination(prefix: u8) -> (IpAddr, u8) {
    if is_v6(prefix) { (format!("2001:db8:{prefix}::").parse().unwrap(), 48) } else { ([20, prefix, 0, 0].into(), 16) }
}

fn route(prefix: u8, metric: u32, ways: &[u8]) -> KernelRoute {
    let (destination, length) = destination(prefix);
    let gateway = |number: u8| -> IpAddr {
        if is_v6(prefix) { format!("fe80::{number}").parse().unwrap() } else { [10, 0, 1, number].into() }
    };
    let way = |&number: &u8| Way { device: 7, gateway: Some(gateway(number)), weight: 1, is_dead: false };
    let mut ways: Vec<Way> = ways.iter().map(way).collect();
    ways.sort_unstable();
    ways.dedup();
    let kind = if ways.is_empty() { RouteKind::Blackhole } else { RouteKind::Unicast };
    KernelRoute {
        table: 254,
        destination,
        length,
        metric,
        kind,
        ways,
        special: None,
        protocol: 4,
        mtu: 0,
        object: None,
    }
}

fn key(prefix: u8, metric: u32) -> KernelRouteKey {
    let (destination, length) = destination(prefix);
    (IpPrefix::of(destination, length).unwrap(), metric)
}

impl Kernel {
    fn step(&mut self, step: &Step) -> Vec<Event> {
        match step {
            Step::Add { prefix, metric, ways, insertion } => {
                let new = route(*prefix, *metric, ways);
                let known = self.routes.entry(key(*prefix, *metric)).or_default();
                if is_v6(*prefix) {
                    // Ways of all routes that forward become those of one route, whose whole is told.
                    if *insertion == Insertion::Replace {
                        known.clear();
                    }
                    let is_same_kind = |it: &&mut KernelRoute| it.kind == new.kind;
                    if let Some(existing) = known.iter_mut().find(is_same_kind) {
                        existing.ways.extend(&new.ways);
                        existing.ways.sort_unstable();
                        existing.ways.dedup();
                        return vec![Event::Added(existing.clone(), *insertion)];
                    }
                    if !known.is_empty() {
                        return Vec::new();
                    }
                    known.push(new.clone());
                    return vec![Event::Added(new, *insertion)];
                }
                if known.contains(&new) {
                    return Vec::new();
                }
                match insertion {
                    Insertion::First => known.insert(0, new.clone()),
                    Insertion::Last => known.push(new.clone()),
                    Insertion::Replace => {
                        known.drain(..known.len().min(1));
                        known.insert(0, new.clone());
                    }
                }
                vec![Event::Added(new, *insertion)]
            }
            Step::Remove { prefix, metric, last } => {
                let Some(known) = self.routes.get_mut(&key(*prefix, *metric)).filter(|known| !known.is_empty()) else {
                    return Vec::new();
                };
                let gone = known.remove(if *last { known.len() - 1 } else { 0 });
                vec![Event::Removed(gone)]
            }
            Step::RemoveWay { prefix, metric } => {
                let known = self.routes.get_mut(&key(*prefix, *metric)).and_then(|known| known.first_mut());
                let Some(known) = known.filter(|known| is_v6(*prefix) && known.ways.len() > 1) else {
                    return Vec::new();
                };
                let gone = known.ways.remove(0);
                vec![Event::Removed(KernelRoute { ways: vec![gone], ..known.clone() })]
            }
            Step::Deaf(_) | Step::Read => Vec::new(),
        }
    }

    /// What the kernel does with packets.
    fn deeds(&self) -> BTreeMap<KernelRouteKey, (RouteKind, Vec<Way>)> {
        let used = |(key, routes): (&KernelRouteKey, &Vec<KernelRoute>)| {
            let first = routes.first()?;
            Some((*key, (first.kind, first.ways.clone())))
        };
        self.routes.iter().filter_map(used).collect()
    }
}

/// A set that follows, and the keys that have ever been used.
struct Following {
    set: RouteSet,
    keys: Vec<KernelRouteKey>,
}

impl Following {
    fn hear(&mut self, event: Event) -> bool {
        let heard = match event {
            Event::Added(route, insertion) => self.set.added(route, insertion),
            Event::Removed(route) => self.set.removed(route),
        };
        self.keys.extend(heard.map(|(key, _)| key));
        heard.is_none_or(|(_, is_sure)| is_sure)
    }

    fn read(&mut self, kernel: &Kernel) {
        self.set.begin_reading();
        for route in kernel.routes.values().flatten() {
            self.keys.extend(self.set.read(route.clone()));
        }
        let gone = self.set.end_reading();
        self.keys.extend(gone);
    }

    fn deeds(&self) -> BTreeMap<KernelRouteKey, (RouteKind, Vec<Way>)> {
        let deed = |key: &KernelRouteKey| self.set.deed(*key).map(|Deed { kind, ways, .. }| (*key, (kind, ways)));
        self.keys.iter().filter_map(deed).collect()
    }
}

fn step() -> impl Strategy<Value = Step> {
    let insertion = prop_oneof![Just(Insertion::First), Just(Insertion::Last), Just(Insertion::Replace)];
    prop_oneof![
        6 => (0u8..8, 0u32..2, prop::collection::vec(1u8..4, 0..3), insertion)
            .prop_map(|(prefix, metric, ways, insertion)| Step::Add { prefix, metric, ways, insertion }),
        3 => (0u8..8, 0u32..2, any::<bool>()).prop_map(|(prefix, metric, last)| Step::Remove { prefix, metric, last }),
        2 => (4u8..8, 0u32..2).prop_map(|(prefix, metric)| Step::RemoveWay { prefix, metric }),
        1 => any::<bool>().prop_map(Step::Deaf),
        1 => Just(Step::Read),
    ]
}

proptest! {
    #[test]
    fn what_is_heard_is_what_the_kernel_has(steps in prop::collection::vec(step(), 0..80)) {
        let (mut kernel, mut following) = (Kernel::default(), Following { set: RouteSet::new(100), keys: Vec::new() });
        let mut is_deaf = false;
        for step in &steps {
            let events = kernel.step(step);
            match step {
                Step::Deaf(deaf) => {
                    is_deaf = *deaf;
                    if !is_deaf {
                        following.read(&kernel);
                        following.set.catch_up();
                    }
                }
                Step::Read => {
                    following.read(&kernel);
                    following.set.catch_up();
                }
                _ if is_deaf => continue,
                _ => {
                    for event in events {
                        prop_assert!(following.hear(event.clone()), "{event:?}");
                    }
                }
            }
            if !is_deaf {
                prop_assert_eq!(following.deeds(), kernel.deeds(), "{:?}", steps);
            }
        }
    }

    #[test]
    fn events_from_before_a_reading_change_nothing_for_good(steps in prop::collection::vec(step(), 0..60)) {
        let (mut kernel, mut following) = (Kernel::default(), Following { set: RouteSet::new(100), keys: Vec::new() });
        // The events wait while the table is read.
        let events: Vec<Event> = steps.iter().flat_map(|step| kernel.step(step)).collect();
        following.read(&kernel);
        let mut is_sure = true;
        for event in events {
            is_sure &= following.hear(event);
        }
        if !is_sure {
            following.read(&kernel);
        }
        prop_assert_eq!(following.deeds(), kernel.deeds(), "{:?}", steps);
    }
}

fn vrf() -> Vrf {
    let address = |text: &str, length| InterfaceAddress { address: text.parse().unwrap(), length };
    let interface = Interface {
        name: "a".to_owned(),
        port: "a".to_owned(),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: vec![address("10.0.1.254", 24), address("2001:db8:1::1", 64)],
    };
    Vrf::new(vec![interface], 16, 1).unwrap()
}

fn next_hops(vrf: &Vrf, destination: &str) -> Vec<IpAddr> {
    let changes = vrf.lock();
    let Some((_, route)) = changes.look_up(destination.parse().unwrap()) else { return Vec::new() };
    let next_hop = |path: &bellows_fib::Path| vrf.adjacencies().get(path.next).and_then(|it| it.next_hop);
    changes.ways(route.next).iter().filter_map(next_hop).collect()
}

#[test]
fn routes_are_installed_or_ignored_for_a_reason() {
    let (vrf, mut set) = (vrf(), RouteSet::new(100));
    let devices = Devices::from([(7, "a".to_owned())]);
    let before = vrf.adjacencies().used();
    let mut changes = vrf.lock();
    changes.add(&RouteSpec::parse("20.3.0.0/16 via 10.0.1.9").unwrap(), IfExists::Refuse).unwrap();
    changes.commit().unwrap();
    drop(changes);
    let with = |change: &dyn Fn(&mut KernelRoute)| {
        let mut route = route(1, 5, &[8]);
        change(&mut route);
        route
    };
    let cases: [(KernelRoute, Standing); 11] = [
        (route(0, 5, &[1, 2]), Standing::Followed),
        (route(4, 1024, &[3]), Standing::Followed),
        (route(2, 0, &[]), Standing::Followed),
        (route(3, 0, &[1]), Standing::Static),
        (with(&|route| route.ways[0].device = 9), Standing::OtherDevice),
        (with(&|route| (route.metric, route.ways[0].is_dead) = (6, true)), Standing::NoLink),
        (
            with(&|route| (route.metric, route.ways[0].gateway) = (7, Some("fe80::1".parse().unwrap()))),
            Standing::Followed,
        ),
        (
            with(&|route| (route.metric, route.ways[0].gateway) = (10, Some([10, 0, 1, 255].into()))),
            Standing::BadNextHop,
        ),
        (
            KernelRoute { destination: [240, 1, 0, 0].into(), length: 16, metric: 11, ..route(1, 0, &[3]) },
            Standing::Reserved,
        ),
        (with(&|route| (route.metric, route.special) = (8, Some(Special::TypeOfService))), Standing::Unsupported),
        (
            KernelRoute { destination: "fe80::".parse().unwrap(), length: 64, metric: 9, ..route(4, 0, &[3]) },
            Standing::Reserved,
        ),
    ];
    let mut keys = Vec::new();
    for (route, _) in &cases {
        keys.extend(set.added(route.clone(), Insertion::First).map(|(key, _)| key));
    }
    let apply = |set: &mut RouteSet, keys: &[KernelRouteKey]| {
        let mut changes = vrf.lock();
        install(&mut changes, set, &devices, keys);
        changes.commit().unwrap();
    };
    apply(&mut set, &keys);
    for ((route, standing), key) in cases.iter().zip(&keys) {
        assert_eq!(set.standing(*key), Some(*standing), "{route:?}");
    }
    assert_eq!((set.count(Standing::Followed), set.count(Standing::Static)), ([3, 1], [1, 0]));
    assert_eq!(next_hops(&vrf, "20.0.1.1"), ["10.0.1.1", "10.0.1.2"].map(|it| it.parse::<IpAddr>().unwrap()));
    assert_eq!(next_hops(&vrf, "20.3.1.1"), [IpAddr::from([10, 0, 1, 9])], "the route of its own stays");
    assert_eq!(next_hops(&vrf, "2001:db8:4::1"), ["fe80::3".parse::<IpAddr>().unwrap()]);
    let displaced = key(3, 0);
    assert_eq!((set.waiting(None, 9), set.waiting(Some(displaced), 9)), (vec![displaced], Vec::new()));

    // One that is followed becomes one that cannot be.
    let (key, _) = set.added(self::route(0, 5, &[]), Insertion::Replace).unwrap();
    apply(&mut set, &[key]);
    assert_eq!((next_hops(&vrf, "20.0.1.1"), set.standing(key)), (Vec::new(), Some(Standing::Followed)));
    let elsewhere = with(&|route| (route.destination, route.ways[0].device) = ([20, 0, 0, 0].into(), 9));
    let (key, _) = set.added(elsewhere, Insertion::Replace).unwrap();
    apply(&mut set, &[key]);
    assert_eq!(set.count(Standing::OtherDevice), [2, 0]);

    let mut changes = vrf.lock();
    retract(&mut changes, &mut set, &keys);
    changes.remove(IpPrefix::of([20, 3, 0, 0].into(), 16).unwrap(), None);
    changes.commit().unwrap();
    drop(changes);
    assert_eq!(set.count(Standing::Followed), [0, 0]);
    // The engines of other tests in this process are asked, too, whether they have one in hand.
    bellows_testkit::eventually("adjacencies without routes are free", || {
        vrf.lock().commit().unwrap();
        vrf.adjacencies().used() == before
    });
}

#[test]
fn routes_without_room_are_entered_when_there_is_room() {
    let (vrf, mut set) = (vrf(), RouteSet::new(100));
    let devices = Devices::from([(7, "a".to_owned())]);
    let apply = |set: &mut RouteSet, keys: &[KernelRouteKey]| {
        let mut changes = vrf.lock();
        install(&mut changes, set, &devices, keys);
        changes.commit().unwrap();
    };
    let room = vrf.adjacencies().capacity() - vrf.adjacencies().used();
    let keys: Vec<KernelRouteKey> = (0..=room)
        .filter_map(|number| set.added(route(3, number as u32, &[number as u8 + 1]), Insertion::First))
        .map(|(key, _)| key)
        .collect();
    apply(&mut set, &keys);
    assert_eq!((set.count(Standing::Followed), set.count(Standing::NoRoom)), ([room, 0], [1, 0]));
    assert_eq!(set.waiting(None, 9), keys[room..]);
    let (gone, _) = set.removed(route(3, 0, &[1])).unwrap();
    apply(&mut set, &[gone]);
    bellows_testkit::eventually("there is room for another next hop", || {
        apply(&mut set, &keys[room..]);
        set.count(Standing::NoRoom) == [0, 0]
    });
    assert_eq!((set.count(Standing::Followed), set.waiting(None, 9)), ([room, 0], Vec::new()));
}

#[test]
fn neighbours_without_room_are_entered_when_there_is_room() {
    let domain = crate::vrf::RoutingDomain::new(vrf());
    let mut neighbours = Neighbours::default();
    let neighbour = |number: u8, mac: [u8; 6]| KernelNeighbour {
        device: 7,
        address: IpAddr::from([10, 0, 1, number]),
        mac: Some(MacAddr(mac)),
    };
    let host = |number| neighbour(number, [4, 0, 0, 0, 0, number]);
    neighbours.begin_reading();
    let read: Vec<KernelNeighbour> = (1..=98).map(host).chain([neighbour(99, [1, 0, 0, 0, 0, 9])]).collect();
    read.iter().for_each(|neighbour| neighbours.set(&domain, neighbour, Some(1)).unwrap());
    assert_eq!(neighbours.end_reading(&read), []);
    let (room, refused) = (neighbours.followed(), neighbours.refused());
    assert!(room > 0 && refused > 10 && room + refused == 99, "{room} {refused}");
    // All have their turn, but the one that no station can be.
    let mut tried: Vec<IpAddr> = Vec::new();
    for _ in 0..refused {
        tried.extend(neighbours.waiting(3).iter().map(|neighbour| neighbour.address));
        if tried.len() >= refused - 1 {
            break;
        }
    }
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), refused - 1);
    let mut retry = || {
        neighbours.waiting(100).iter().for_each(|neighbour| neighbours.set(&domain, neighbour, Some(1)).unwrap());
        (neighbours.followed(), neighbours.refused())
    };
    // The first call ends the round, the second one begins another.
    retry();
    assert_eq!(retry(), (room, refused), "there is no room yet");
    neighbours.set(&domain, &KernelNeighbour { mac: None, ..host(1) }, Some(1)).unwrap();
    assert_eq!(neighbours.followed(), room - 1);
    bellows_testkit::eventually("there is room for another neighbour", || {
        neighbours.waiting(100).iter().for_each(|neighbour| neighbours.set(&domain, neighbour, Some(1)).unwrap());
        (neighbours.followed(), neighbours.refused()) == (room, refused - 1)
    });
    // Those that the next reading does not have are gone, whether there was room for them or not.
    neighbours.begin_reading();
    neighbours.set(&domain, &host(2), Some(1)).unwrap();
    for gone in neighbours.end_reading(&[host(2)]) {
        neighbours.set(&domain, &gone, Some(1)).unwrap();
    }
    assert_eq!((neighbours.followed(), neighbours.refused()), (1, 0));
}

#[test]
fn routes_beyond_the_limit_are_counted_and_found_when_there_is_room() {
    let mut set = RouteSet::new(2);
    for prefix in 0..4 {
        set.added(route(prefix, 0, &[1]), Insertion::First);
    }
    assert_eq!((set.keys().len(), set.beyond_limit(), set.has_room_again()), (2, 2, false));
    let (key, is_known) = set.removed(route(0, 0, &[1])).unwrap();
    set.set_standing(key, Standing::New);
    assert!(is_known && set.has_room_again() && set.keys().len() == 1);
}

#[test]
fn a_next_hop_object_that_changes_changes_the_routes_to_it() {
    let (mut set, at) = (RouteSet::new(100), key(1, 5));
    let plain = route(1, 5, &[1]);
    let by_object = |way: u8| KernelRoute { object: Some(7), protocol: 188, ..route(1, 5, &[way]) };
    set.added(plain.clone(), Insertion::First);
    set.added(by_object(2), Insertion::Last);
    assert!(set.leads_to(7) && !set.leads_to(8));
    // Linux tells it as a replacement, which is not that of the first route.
    assert_eq!(set.added(by_object(3), Insertion::Replace), Some((at, true)));
    assert_eq!(set.removed(plain), Some((at, true)));
    let deed = set.deed(at).unwrap();
    assert_eq!((deed.ways[0].gateway, deed.protocol), (Some([10, 0, 1, 3].into()), 188));
    assert_eq!(set.removed(by_object(3)), Some((at, true)));
    assert!(set.deed(at).is_none() && !set.leads_to(7));
}

#[test]
fn routes_of_two_daemons_to_one_next_hop_are_two() {
    let (mut set, at) = (RouteSet::new(100), key(1, 5));
    let of = |protocol: u8| KernelRoute { protocol, ..route(1, 5, &[1]) };
    set.added(of(4), Insertion::First);
    set.added(of(186), Insertion::Last);
    assert_eq!(set.removed(of(4)), Some((at, true)));
    assert_eq!(set.deed(at).map(|deed| deed.protocol), Some(186));
    assert_eq!((set.removed(of(4)), set.removed(of(186))), (Some((at, false)), Some((at, true))));
    assert!(set.deed(at).is_none());
}

#[test]
fn routes_of_some_packets_do_not_hide_those_of_all() {
    for (prefix, special) in [(0, Special::TypeOfService), (4, Special::Source)] {
        let (mut set, at) = (RouteSet::new(100), key(prefix, 1024));
        let plain = route(prefix, 1024, &[3]);
        let of_some = KernelRoute { special: Some(special), ..plain.clone() };
        let special_of = |set: &RouteSet| set.deed(at).map(|deed| deed.special);
        for insertion in [Insertion::First, Insertion::Replace] {
            set.added(plain.clone(), Insertion::First);
            set.added(of_some.clone(), insertion);
            assert_eq!(special_of(&set), Some(None));
            assert_eq!(set.removed(of_some.clone()), Some((at, true)));
            assert_eq!(special_of(&set), Some(None));
        }
        set.begin_reading();
        assert_eq!(set.read(of_some.clone()), Some(at));
        assert_eq!(special_of(&set), Some(Some(special)));
        assert_eq!((set.read(plain.clone()), special_of(&set)), (Some(at), Some(None)));
        assert_eq!((set.end_reading(), set.removed(plain)), (Vec::new(), Some((at, true))));
        assert_eq!(special_of(&set), Some(Some(special)));
    }
}
