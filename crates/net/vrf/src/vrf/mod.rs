//! A routing domain: interfaces, the routes through them, and the adjacencies of their neighbours.

mod describe;
mod error;
mod inherit;
mod list;
mod next_hops;
mod operate;
mod permanent;
mod retired;
#[cfg(test)]
mod reuse_tests;
mod stage;
mod watch;

pub use describe::{RouteTarget, Way};
pub use error::VrfError;
pub use inherit::Inherited;
pub use list::{Listed, Match, RouteFilter, Statistics};
pub use operate::{CommandBatch, Done};
pub use stage::{Staged, Swapped};

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use bellows_fib::{Changes, FIRST_GROUP, Fib, GroupChanges, Groups, Path, Route, Size};
use bellows_shared::{Breath, Readers};

use self::next_hops::Variant;
use self::permanent::Entered;
use self::retired::Retired;
use self::watch::Watched;
use crate::adjacency::{Adjacencies, special};
use crate::family::IpFamily;
use crate::interface::{Interface, MAX_INTERFACES, broadcast, subnet_router};
use crate::neighbours::NeighbourKey;
use crate::origin::{ByRoute, Origin};
use crate::route::{IpPrefix, RouteSpec};

/// A routing domain (virtual routing and forwarding, RFC 4364): interfaces, the routes through them, and the adjacencies
/// of their neighbours.
///
/// Workers look up addresses and adjacencies and never wait. Control threads change routes and neighbours, one at a time.
pub struct Vrf {
    interfaces: Vec<Interface>,
    adjacencies: Adjacencies,
    v4: Fib<u32>,
    v6: Fib<u128>,
    groups: Groups,
    /// The maximum number of neighbours of a family that are learned.
    neighbours: usize,
    /// The same for all families, and the room for next hops of routes.
    learned: usize,
    room: usize,
    next_hops: Mutex<NextHops>,
    /// Neighbours whose Ethernet addresses somebody entered.
    entered: RwLock<HashMap<NeighbourKey, Entered>>,
    /// The number of these by family.
    entered_by_family: [AtomicUsize; 2],
    /// How often other next hops were to be watched.
    watch_version: AtomicU64,
}

/// The adjacencies by what they are for.
struct NextHops {
    /// By neighbour, for packets of its own family and of any length.
    neighbours: HashMap<NeighbourKey, u32>,
    /// Those for other packets, of which few neighbours have some.
    variants: HashMap<NeighbourKey, Vec<(Variant, u32)>>,
    gleans: Vec<u32>,
    /// Those of interfaces for packets up to a length that is less than the interface's.
    short_gleans: HashMap<(u16, u16), u32>,
    /// The groups by their paths, in order.
    groups: HashMap<Vec<Path>, u32>,
    /// The routes and groups that lead to an adjacency, and the routes that lead to a group. Routes of resolved neighbours
    /// do not count.
    uses: HashMap<u32, usize>,
    /// The origins of routes that are not [`Origin::Static`].
    origins: ByRoute<Origin>,
    /// The configuration's routes that commands have removed or replaced, as hashes of where they lead.
    overridden: ByRoute<u64>,
    retired: Retired,
    watched: Watched,
}

impl NextHops {
    fn new(readers: Arc<Readers>) -> NextHops {
        NextHops {
            neighbours: HashMap::new(),
            variants: HashMap::new(),
            gleans: Vec::new(),
            short_gleans: HashMap::new(),
            groups: HashMap::new(),
            uses: HashMap::new(),
            origins: ByRoute::default(),
            overridden: ByRoute::default(),
            retired: Retired::new(readers),
            watched: Watched::default(),
        }
    }
}

/// The room for next hops of routes that are not learned: a quarter of the neighbours, within these bounds.
const ROOM_FOR_ROUTES: std::ops::RangeInclusive<usize> = 16..=16_384;

/// The most neighbours of all families that are learned.
const MAX_LEARNED: usize = 1_000_000;

/// Adjacencies of neighbours that have made room for others, and are given back when no worker can have one in hand.
const GIVEN_BACK: std::ops::RangeInclusive<usize> = 16..=4_096;

/// How many neighbours of all families are learned. Each that interfaces have addresses of has room of its own, so that
/// neighbours of one do not take what those of the other need.
fn all_learned(interfaces: &[Interface], neighbours: usize) -> usize {
    let has = |family| interfaces.iter().any(|interface| interface.address(family).is_some());
    let families = [IpFamily::V4, IpFamily::V6].into_iter().filter(|&family| has(family)).count();
    let given_back = (neighbours / 16).clamp(*GIVEN_BACK.start(), *GIVEN_BACK.end());
    (families.max(1) * neighbours).min(neighbours.max(MAX_LEARNED)) + given_back
}

fn room_for_routes(neighbours: usize) -> usize {
    (neighbours / 4).clamp(*ROOM_FOR_ROUTES.start(), *ROOM_FOR_ROUTES.end())
}

/// The maximum number of next hops that a commit gives back.
const MAX_GIVEN_BACK: usize = 256;

/// The maximum number of buckets in which a commit moves flows off next hops that have failed, or back: about a tenth of a
/// millisecond.
const MAX_SETTLED: usize = 4_096;

impl Vrf {
    /// A domain with these interfaces, which have the numbers from 1 on, with the routes to their addresses and links, and
    /// with room for `neighbours` learned neighbours of each family, and for a quarter more that routes lead to. Flows
    /// choose among several paths by `seed`, which should be another one for each router.
    ///
    /// # Errors
    /// If there are too many interfaces, or no memory.
    pub fn new(interfaces: Vec<Interface>, neighbours: usize, seed: u32) -> Result<Vrf, VrfError> {
        let room = room_for_routes(neighbours);
        let adjacencies = Adjacencies::new(all_learned(&interfaces, neighbours) + room + interfaces.len());
        Vrf::with(interfaces, neighbours, seed, adjacencies, Arc::clone(Readers::of_process()))
    }

    /// The same with these adjacencies, for these readers.
    fn with(
        interfaces: Vec<Interface>,
        neighbours: usize,
        seed: u32,
        adjacencies: Adjacencies,
        readers: Arc<Readers>,
    ) -> Result<Vrf, VrfError> {
        if interfaces.len() > MAX_INTERFACES {
            return Err(VrfError::Interfaces(interfaces.len()));
        }
        let vrf = Vrf {
            adjacencies,
            v4: Fib::with_readers(Arc::clone(&readers))?,
            v6: Fib::with_readers(Arc::clone(&readers))?,
            groups: Groups::with_readers(Arc::clone(&readers), seed)?,
            neighbours,
            learned: all_learned(&interfaces, neighbours),
            room: room_for_routes(neighbours),
            next_hops: Mutex::new(NextHops::new(readers)),
            entered: RwLock::default(),
            entered_by_family: Default::default(),
            watch_version: AtomicU64::new(0),
            interfaces,
        };
        let mut changes = vrf.lock();
        changes.enter_special();
        for (number, interface) in (1..).zip(&vrf.interfaces) {
            changes.enter_interface(number, interface)?;
        }
        changes.commit()?;
        drop(changes);
        Ok(vrf)
    }

    /// The maximum number of neighbours of a family that are learned.
    pub fn max_neighbours(&self) -> usize {
        self.neighbours
    }

    /// The number of next hops of routes for which there is room besides.
    pub fn room_for_routes(&self) -> usize {
        self.room + self.interfaces.len()
    }

    /// Whether a route that is not the neighbour's own leads to a neighbour. True as well if another thread is changing the
    /// routes. For workers, which do not wait.
    pub fn may_lead_to(&self, key: NeighbourKey) -> bool {
        let next_hops = match self.next_hops.try_lock() {
            Ok(next_hops) => next_hops,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return true,
        };
        next_hops.all(key).any(|(_, index)| next_hops.uses.contains_key(&index))
    }

    /// The number of adjacencies in use from which on no neighbour gets one because it was learned.
    fn room_for_learned(&self) -> usize {
        self.learned + self.interfaces.len()
    }

    /// The interfaces; the first one has the number 1.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The interface of a number.
    pub fn interface(&self, number: u16) -> Option<&Interface> {
        self.interfaces.get(usize::from(number).checked_sub(1)?)
    }

    /// The number of the interface of a name.
    pub fn number(&self, name: &str) -> Option<u16> {
        self.interfaces.iter().position(|interface| interface.name == name).map(|index| index as u16 + 1)
    }

    /// Whether an address is the router's own.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|interface| interface.has_address(address))
    }

    /// Whether an address is on an interface's link as far as its addresses tell.
    fn has_near(&self, number: u16, address: IpAddr) -> bool {
        is_link_local(address) || self.interface(number).is_some_and(|link| link.has_on_link(address))
    }

    /// The adjacencies.
    pub fn adjacencies(&self) -> &Adjacencies {
        &self.adjacencies
    }

    /// Looks up IPv4 destinations: writes the adjacency's index to the place of each. Hot.
    #[inline]
    pub fn look_up_v4(&self, breath: &impl Breath, destinations: &[u32], adjacencies: &mut [u32]) {
        self.v4.tables(breath).look_up(destinations, adjacencies);
    }

    /// Looks up IPv6 destinations, as [`Vrf::look_up_v4`]. Hot.
    #[inline]
    pub fn look_up_v6(&self, breath: &impl Breath, destinations: &[u128], adjacencies: &mut [u32]) {
        self.v6.tables(breath).look_up(destinations, adjacencies);
    }

    /// The index of the adjacency, or the group, for one destination. For packets that are not many: look-ups of several
    /// take less for each.
    pub fn look_up(&self, breath: &impl Breath, destination: IpAddr) -> u32 {
        let mut found = [special::NO_ROUTE];
        match destination {
            IpAddr::V4(destination) => self.look_up_v4(breath, &[destination.into()], &mut found),
            IpAddr::V6(destination) => self.look_up_v6(breath, &[destination.into()], &mut found),
        }
        found[0]
    }

    /// Replaces groups of paths by the adjacency of the flow's path. `hash` returns the flow hash of a packet by its
    /// place; it is called for groups alone. Hot.
    #[inline]
    pub fn choose_paths(&self, breath: &impl Breath, adjacencies: &mut [u32], hash: impl FnMut(usize) -> u32) {
        self.groups.table(breath).resolve(adjacencies, hash);
    }

    /// Whether a group of paths has one through an interface; false for a single adjacency.
    #[inline]
    pub fn is_group_through(&self, breath: &impl Breath, next: u32, interface: u16) -> bool {
        let is_through = |path| self.adjacencies.state(path).interface() == interface;
        next >= FIRST_GROUP && self.groups.table(breath).has_path(next, is_through)
    }

    /// The right to change routes and neighbours, which waits for whoever has it.
    pub fn lock(&self) -> VrfChanges<'_> {
        let next_hops = self.next_hops.lock().unwrap_or_else(PoisonError::into_inner);
        VrfChanges { vrf: self, next_hops, v4: self.v4.lock(), v6: self.v6.lock(), groups: self.groups.lock() }
    }
}

impl Vrf {
    /// The right to change routes and neighbours, unless somebody has it. For workers, which do not wait.
    pub fn try_lock(&self) -> Option<VrfChanges<'_>> {
        let next_hops = match self.next_hops.try_lock() {
            Ok(next_hops) => next_hops,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        // Whoever has the lock of the next hops has all others.
        Some(VrfChanges { vrf: self, next_hops, v4: self.v4.lock(), v6: self.v6.lock(), groups: self.groups.lock() })
    }
}

/// Changes of routes and neighbours. Those of routes take effect with [`VrfChanges::commit`], those of neighbours at once.
pub struct VrfChanges<'v> {
    vrf: &'v Vrf,
    v4: Changes<'v, u32>,
    v6: Changes<'v, u128>,
    groups: GroupChanges<'v>,
    /// Given back last: a worker that gets it gets all others without waiting.
    next_hops: MutexGuard<'v, NextHops>,
}

/// What to do if there is a route to the prefix with the same metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// Refuse the new one.
    Refuse,
    /// Replace it.
    Replace,
}

impl VrfChanges<'_> {
    /// Enters a route.
    ///
    /// # Errors
    /// If its next hop is on no link, if there is no room for its adjacency, or if there is a route to the prefix with the
    /// same metric that is not to be replaced.
    pub fn add(&mut self, route: &RouteSpec, if_exists: IfExists) -> Result<(), VrfError> {
        self.add_from(route, if_exists, Origin::Static)
    }

    /// The route of the longest prefix that an address is within: its prefix, and where it leads.
    pub fn look_up(&self, address: IpAddr) -> Option<(IpPrefix, Route)> {
        match IpPrefix::host(address) {
            IpPrefix::V4(host) => self.v4.rib().covering(host).map(|(prefix, route)| (IpPrefix::V4(prefix), route)),
            IpPrefix::V6(host) => self.v6.rib().covering(host).map(|(prefix, route)| (IpPrefix::V6(prefix), route)),
        }
    }

    /// The adjacencies that a route leads to, and the shares of flows that they get.
    pub fn ways(&self, next: u32) -> Vec<Path> {
        self.groups.paths(next).map_or(vec![Path { next, weight: 1 }], <[Path]>::to_vec)
    }

    /// Removes the route to a prefix with this metric, or the best one. Returns whether there was one.
    pub fn remove(&mut self, prefix: IpPrefix, metric: Option<u32>) -> bool {
        let metric = metric.or_else(|| self.routes(prefix).first().map(|route| route.metric));
        let Some(key) = metric.map(|metric| (prefix, metric)) else { return false };
        let was_there = self.leave(key).is_some();
        self.restore_neighbour(key);
        was_there
    }

    /// Makes the changes of routes take effect, and moves flows of some groups if next hops have failed or returned.
    ///
    /// # Errors
    /// If there is no memory; the next commit tries again.
    pub fn commit(&mut self) -> Result<(), VrfError> {
        self.v4.commit()?;
        self.v6.commit()?;
        self.next_hops.retired.commit();
        self.groups.settle(MAX_SETTLED);
        // Workers commit, too, and have no time for many.
        self.give_back(MAX_GIVEN_BACK);
        Ok(())
    }

    /// Gives back up to `limit` next hops to which no route leads any more. Returns whether none are left.
    pub fn give_back(&mut self, limit: usize) -> bool {
        for _ in 0..limit {
            match self.next_hops.retired.pop() {
                Some((next, uses)) => self.release(next, uses),
                None => break,
            }
        }
        self.next_hops.retired.is_empty()
    }

    /// The sizes of the tables: IPv4, IPv6.
    pub fn sizes(&self) -> (Size, Size) {
        (self.v4.size(), self.v6.size())
    }

    fn routes(&self, prefix: IpPrefix) -> &[Route] {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.rib().routes(prefix),
            IpPrefix::V6(prefix) => self.v6.rib().routes(prefix),
        }
    }

    fn has(&self, prefix: IpPrefix, metric: u32) -> bool {
        self.routes(prefix).iter().any(|route| route.metric == metric)
    }

    fn take(&mut self, prefix: IpPrefix, metric: Option<u32>) -> Option<Route> {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.remove(prefix, metric),
            IpPrefix::V6(prefix) => self.v6.remove(prefix, metric),
        }
    }

    /// Enters a route. Returns the one that it replaces.
    fn insert(&mut self, prefix: IpPrefix, route: Route) -> Option<Route> {
        // Indices of adjacencies and numbers of groups are below the maximum.
        match prefix {
            IpPrefix::V4(prefix) => self.v4.insert(prefix, route).ok().flatten(),
            IpPrefix::V6(prefix) => self.v6.insert(prefix, route).ok().flatten(),
        }
    }

    /// Enters the routes to an interface's addresses and link.
    fn enter_interface(&mut self, number: u16, interface: &Interface) -> Result<(), VrfError> {
        let glean = self.vrf.adjacencies.add(&interface.glean(number))?;
        self.next_hops.gleans.push(glean);
        let local = Route { metric: 0, next: special::LOCAL };
        // Link-local prefixes are on every link, so that no route leads to one.
        for own in interface.addresses.iter().filter(|own| !is_link_local(own.address)) {
            if let Some(link) = IpPrefix::of(own.address, own.length) {
                self.enter(link, Route { metric: 0, next: glean }, Origin::Connected);
            }
            let others = broadcast(own).map(IpAddr::V4).into_iter().chain(subnet_router(own).map(IpAddr::V6));
            for address in others.chain([own.address]) {
                self.enter(IpPrefix::host(address), local, Origin::Connected);
            }
        }
        Ok(())
    }

    /// Enters the routes that every router has.
    fn enter_special(&mut self) {
        let routes = [
            // RFC 1812, section 5.3.7, and RFC 6890.
            ("0.0.0.0/8", special::MARTIAN),
            ("127.0.0.0/8", special::MARTIAN),
            ("224.0.0.0/4", special::MULTICAST),
            ("224.0.0.0/24", special::LOCAL),
            (LINK_LOCAL_V4, special::MARTIAN),
            ("240.0.0.0/4", special::MARTIAN),
            ("255.255.255.255/32", special::LOCAL),
            // RFC 4291, sections 2.5.2, 2.5.3, 2.5.5.2, 2.5.6 and 2.7.
            ("::/128", special::MARTIAN),
            ("::1/128", special::MARTIAN),
            ("::ffff:0:0/96", special::MARTIAN),
            ("fe80::/10", special::LOCAL),
            ("ff00::/8", special::MULTICAST),
            ("ff00::/16", special::MARTIAN),
            ("ff01::/16", special::MARTIAN),
            ("ff02::/16", special::LOCAL),
        ];
        for (prefix, next) in routes {
            // RFC 3927, section 2.7: no way to other links, but an interface may be on one with such addresses.
            let metric = if prefix == LINK_LOCAL_V4 { u32::MAX } else { 0 };
            let route = Route { metric, next };
            let v6 = prefix.parse().map(IpPrefix::V6);
            if let Ok(prefix) = v6.or_else(|_| prefix.parse().map(IpPrefix::V4)) {
                self.enter(prefix, route, Origin::Connected);
            }
        }
    }
}

/// The addresses that are good on one link only (RFC 3927).
const LINK_LOCAL_V4: &str = "169.254.0.0/16";

/// Whether an address is on every link (RFC 4291, section 2.5.6).
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use bellows_wire::MacAddr;

    use super::*;
    use crate::adjacency::{Adjacency, AdjacencyKind};
    use crate::interface::InterfaceAddress;

    const MAC: MacAddr = MacAddr([4, 0, 0, 0, 0, 1]);

    fn vrf() -> Arc<Vrf> {
        let interface = |name: &str, number: u8| Interface {
            name: name.to_owned(),
            port: name.to_owned(),
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: ["10.0.N.1", "2001:db8:N::1", "fe80::1"]
                .map(|address| InterfaceAddress {
                    address: address.replace('N', &number.to_string()).parse().unwrap(),
                    length: if address.contains(':') { 64 } else { 24 },
                })
                .to_vec(),
        };
        Arc::new(Vrf::new(vec![interface("a", 1), interface("b", 2)], 100, 7).unwrap())
    }

    fn add(vrf: &Vrf, route: &str, if_exists: IfExists) -> Result<(), String> {
        let mut changes = vrf.lock();
        changes.add(&RouteSpec::parse(route).unwrap(), if_exists).map_err(|error| error.to_string())?;
        changes.commit().map_err(|error| error.to_string())
    }

    fn remove(vrf: &Vrf, prefix: &str) -> bool {
        let mut changes = vrf.lock();
        let removed = changes.remove(prefix.parse().unwrap(), None);
        changes.commit().unwrap();
        removed
    }

    /// The adjacency for a destination, the first one of several, and that index itself.
    fn look(vrf: &Vrf, destination: &str) -> (u32, Option<Adjacency>) {
        let changes = vrf.lock();
        let next = changes.look_up(destination.parse().unwrap()).map_or(bellows_fib::NO_ROUTE, |(_, route)| route.next);
        let next = changes.ways(next)[0].next;
        (next, vrf.adjacencies().get(next))
    }

    fn next_hop(vrf: &Vrf, destination: &str) -> Option<IpAddr> {
        look(vrf, destination).1?.next_hop
    }

    #[test]
    fn interfaces_have_routes() {
        let vrf = vrf();
        for local in [
            "10.0.1.1",
            "10.0.2.255",
            "255.255.255.255",
            "224.0.0.5",
            "2001:db8:2::1",
            "2001:db8:2::",
            "fe80::7",
            "ff02::1",
        ] {
            assert_eq!(look(&vrf, local).0, special::LOCAL, "{local}");
        }
        for (martian, special) in [
            ("127.0.0.1", special::MARTIAN),
            ("0.1.2.3", special::MARTIAN),
            ("169.254.1.1", special::MARTIAN),
            ("250.1.1.1", special::MARTIAN),
            ("::1", special::MARTIAN),
            ("239.1.1.1", special::MULTICAST),
            ("ff05::1", special::MULTICAST),
            ("8.8.8.8", bellows_fib::NO_ROUTE),
        ] {
            assert_eq!(look(&vrf, martian).0, special, "{martian}");
        }
        let glean = look(&vrf, "10.0.2.77").1.unwrap();
        assert_eq!((glean.kind, glean.interface), (AdjacencyKind::Glean, 2));
        assert_eq!(look(&vrf, "2001:db8:2::77").1.unwrap().kind, AdjacencyKind::Glean);
    }

    #[test]
    fn routes_are_added_replaced_and_removed() {
        let vrf = vrf();
        let before = vrf.adjacencies().used();
        assert_eq!(add(&vrf, "20.0.0.0/8 via 10.0.1.9", IfExists::Refuse), Ok(()));
        assert_eq!(next_hop(&vrf, "20.1.2.3"), Some(Ipv4Addr::new(10, 0, 1, 9).into()));
        let error = add(&vrf, "20.0.0.0/8 via 10.0.2.9", IfExists::Refuse).unwrap_err();
        assert!(error.contains("there is a route to 20.0.0.0/8 with metric 0 already"), "{error}");
        assert_eq!(add(&vrf, "20.0.0.0/8 via 10.0.2.9", IfExists::Replace), Ok(()));
        assert_eq!(next_hop(&vrf, "20.1.2.3"), Some(Ipv4Addr::new(10, 0, 2, 9).into()));
        assert_eq!(vrf.adjacencies().used(), before + 1, "that of the replaced one is free");
        assert_eq!(add(&vrf, "20.0.0.0/8 via 10.0.1.8 metric 5", IfExists::Refuse), Ok(()));
        assert!(remove(&vrf, "20.0.0.0/8"));
        assert_eq!(next_hop(&vrf, "20.1.2.3"), Some(Ipv4Addr::new(10, 0, 1, 8).into()));
        assert!(remove(&vrf, "20.0.0.0/8") && !remove(&vrf, "20.0.0.0/8"));
        assert_eq!((look(&vrf, "20.1.2.3").0, vrf.adjacencies().used()), (bellows_fib::NO_ROUTE, before));
    }

    #[test]
    fn next_hops_must_be_on_a_link() {
        let vrf = vrf();
        for (route, error) in [
            (
                "20.0.0.0/8 via 10.0.9.9",
                "no interface has 10.0.9.9 on its link: give a router that is on one, or the interface that it answers \
                 on (`dev NAME onlink`)",
            ),
            ("20.0.0.0/8 dev c", "there is no interface `c`"),
            ("2001:db8:9::/48 via fe80::9", "fe80::9 may be on any link: name the interface with `dev`"),
        ] {
            assert_eq!(add(&vrf, route, IfExists::Refuse), Err(error.to_owned()));
        }
        for (route, gateway) in [
            ("20.0.0.0/8 via 10.0.9.9 dev a", "10.0.9.9"),
            ("20.0.0.0/8 via 10.0.2.9 dev a", "10.0.2.9"),
            ("20.0.0.0/8 nexthop via 10.0.1.9 nexthop via 10.0.2.9 dev a", "10.0.2.9"),
            ("20.0.0.0/8 via inet6 2001:db8:2::9 dev a", "2001:db8:2::9"),
            ("2001:db8:9::/48 via 2001:db8:2::9 dev a", "2001:db8:2::9"),
        ] {
            let error = add(&vrf, route, IfExists::Refuse).unwrap_err();
            assert!(error.starts_with(&format!("{gateway} is not on a link of `a`")), "{route}: {error}");
            assert!(error.contains("`onlink`"), "{error}");
            let route = route.replace("dev a", "dev a onlink");
            assert_eq!(add(&vrf, &route, IfExists::Refuse), Ok(()), "{route}");
            assert!(remove(&vrf, route.split(' ').next().unwrap()));
        }
        assert_eq!(add(&vrf, "30.0.0.0/8 dev b", IfExists::Refuse), Ok(()));
        assert_eq!(look(&vrf, "30.1.1.1").1.unwrap().kind, AdjacencyKind::Glean);
        // A route to the link says that the next hop is there.
        for route in ["20.0.0.0/8 via 30.0.0.9 dev b", "21.0.0.0/8 via 30.0.0.9", "2001:db8:9::/48 via fe80::9 dev a"] {
            assert_eq!(add(&vrf, route, IfExists::Refuse), Ok(()), "{route}");
        }
        assert_eq!(look(&vrf, "21.1.1.1").1.unwrap().interface, 2);
        let error = add(&vrf, "22.0.0.0/8 via 30.0.0.9 dev a", IfExists::Refuse).unwrap_err();
        assert!(error.starts_with("30.0.0.9 is not on a link of `a`"), "{error}");
    }

    #[test]
    fn routes_have_an_mtu_of_their_own() {
        let vrf = vrf();
        let before = vrf.adjacencies().used();
        let mut prefixes = Vec::new();
        let mut enter = |route: &str| {
            assert_eq!(add(&vrf, route, IfExists::Replace), Ok(()), "{route}");
            prefixes.push(route.split(' ').next().unwrap().to_owned());
        };
        for route in [
            "20.0.0.0/8 via 10.0.1.9",
            "21.0.0.0/8 via 10.0.1.9 mtu 1400",
            "22.0.0.0/8 via 10.0.1.9 mtu 1400",
            "23.0.0.0/8 via 10.0.1.9 mtu 1500",
            "24.0.0.0/8 via 10.0.1.9 mtu 9000",
            "25.0.0.0/8 via inet6 fe80::9 dev a mtu 68",
            "26.0.0.0/8 nexthop via 10.0.1.9 nexthop via 10.0.2.9 mtu 1300",
            "30.0.0.0/8 dev b mtu 1000",
            "30.0.0.0/8 dev b mtu 1200",
            "2001:db8:9::/48 via fe80::9 dev a mtu 1280",
        ] {
            enter(route);
        }
        let mtu = |destination: &str| look(&vrf, destination).1.unwrap().mtu;
        let mtus = ["20.1.1.1", "21.1.1.1", "22.1.1.1", "23.1.1.1", "24.1.1.1", "25.1.1.1", "26.1.1.1"].map(mtu);
        assert_eq!(mtus, [1500, 1400, 1400, 1500, 1500, 68, 1300]);
        assert_eq!((mtu("30.1.1.1"), mtu("10.0.2.77"), mtu("2001:db8:9::1")), (1200, 1500, 1280));
        assert_eq!(look(&vrf, "30.1.1.1").1.unwrap().kind, AdjacencyKind::Glean);
        assert_eq!(look(&vrf, "21.1.1.1").0, look(&vrf, "22.1.1.1").0);
        let change = |change: &dyn Fn(&mut VrfChanges<'_>)| {
            let mut changes = vrf.lock();
            change(&mut changes);
            changes.commit().unwrap();
            assert!(changes.give_back(usize::MAX));
        };
        // All adjacencies of a neighbour follow it.
        let known =
            || ["20.1.1.1", "21.1.1.1", "25.1.1.1", "26.1.1.1", "2001:db8:9::1"].map(|to| look(&vrf, to).1.unwrap());
        for address in ["10.0.1.9", "fe80::9"] {
            change(&|changes| drop(changes.resolve(1, address.parse().unwrap(), MAC)));
        }
        assert_eq!(known().map(|it| (it.kind, it.header[0])), [(AdjacencyKind::Complete, 4); 5]);
        assert_eq!(known().map(|it| it.mtu), [1500, 1400, 68, 1300, 1280]);
        assert_eq!(mtu("10.0.1.9"), 1500, "a neighbour's own route");
        change(&|changes| changes.unresolve(1, "10.0.1.9".parse().unwrap()));
        assert_eq!(known().map(|it| it.kind == AdjacencyKind::Complete), [false, false, true, false, true]);
        assert!(vrf.may_lead_to((1, "10.0.1.9".parse().unwrap())));
        let shown = |destination: &str| {
            let changes = vrf.lock();
            let (prefix, route) = changes.look_up(destination.parse().unwrap()).unwrap();
            RouteSpec { prefix, action: changes.action(route.next).unwrap(), metric: route.metric }.to_string()
        };
        assert_eq!(shown("30.1.1.1"), "30.0.0.0/8 dev b mtu 1200");
        assert_eq!(
            shown("26.1.1.1"),
            "26.0.0.0/8 nexthop via 10.0.1.9 dev a weight 1 nexthop via 10.0.2.9 dev b weight 1 mtu 1300"
        );
        change(&|changes| changes.unresolve(1, "fe80::9".parse().unwrap()));
        for prefix in prefixes {
            remove(&vrf, &prefix);
        }
        change(&|_| {});
        assert_eq!(vrf.adjacencies().used(), before);
    }

    #[test]
    fn flows_choose_among_several_ways() {
        let vrf = vrf();
        let before = vrf.adjacencies().used();
        let route = "20.0.0.0/8 nexthop via 10.0.1.9 nexthop via 10.0.2.9 weight 3";
        assert_eq!(add(&vrf, route, IfExists::Refuse), Ok(()));
        assert_eq!(add(&vrf, &route.replace("20.", "21."), IfExists::Refuse), Ok(()));
        let ways = |destination: &str| -> Vec<(Option<IpAddr>, u16)> {
            let changes = vrf.lock();
            let (_, route) = changes.look_up(destination.parse().unwrap()).unwrap();
            let way = |path: &Path| (vrf.adjacencies().get(path.next).unwrap().next_hop, path.weight);
            changes.ways(route.next).iter().map(way).collect()
        };
        let expected = [(Some(Ipv4Addr::new(10, 0, 1, 9).into()), 1), (Some(Ipv4Addr::new(10, 0, 2, 9).into()), 3)];
        assert_eq!(ways("20.1.2.3"), expected);
        assert_eq!(vrf.adjacencies().used(), before + 2);
        assert!(remove(&vrf, "20.0.0.0/8"));
        assert_eq!((&ways("21.1.2.3")[..], vrf.adjacencies().used()), (&expected[..], before + 2));
        assert!(remove(&vrf, "21.0.0.0/8"));
        assert_eq!(vrf.adjacencies().used(), before);
    }

    #[test]
    fn neighbours_are_resolved_and_forgotten() {
        let vrf = vrf();
        let before = vrf.adjacencies().used();
        add(&vrf, "20.0.0.0/8 via 10.0.1.9", IfExists::Refuse).unwrap();
        let change = |change: &dyn Fn(&mut VrfChanges<'_>)| {
            let mut changes = vrf.lock();
            assert!(vrf.try_lock().is_none());
            change(&mut changes);
            changes.commit().unwrap();
        };
        for address in ["10.0.1.9", "10.0.1.5", "2001:db8:1::5", "fe80::5"] {
            change(&|changes| {
                changes.resolve(1, address.parse().unwrap(), MAC).unwrap();
            });
        }
        assert_eq!(vrf.adjacencies().used(), before + 4);
        for destination in ["20.1.2.3", "10.0.1.9", "10.0.1.5", "2001:db8:1::5"] {
            let adjacency = look(&vrf, destination).1.unwrap();
            assert_eq!(
                (adjacency.kind, &adjacency.header[..6]),
                (AdjacencyKind::Complete, &MAC.0[..]),
                "{destination}"
            );
        }
        assert_eq!(look(&vrf, "fe80::5").0, special::LOCAL, "link-local addresses have no routes");
        for address in ["10.0.1.9", "10.0.1.5", "2001:db8:1::5", "fe80::5"] {
            change(&|changes| changes.unresolve(1, address.parse().unwrap()));
        }
        assert_eq!(look(&vrf, "20.1.2.3").1.unwrap().kind, AdjacencyKind::Incomplete);
        assert_eq!(look(&vrf, "10.0.1.9").1.unwrap().kind, AdjacencyKind::Glean);
        assert_eq!(vrf.adjacencies().used(), before + 1);
        assert!(vrf.try_lock().is_some());
    }

    #[test]
    fn next_hops_must_be_stations() {
        let vrf = vrf();
        for (route, error) in [
            (
                "20.0.0.0/8 via 10.0.1.1",
                "10.0.1.1 is an address of this router, on `a`: give the address of another one",
            ),
            (
                "20.0.0.0/8 via 10.0.2.1 dev a",
                "10.0.2.1 is an address of this router, on `b`: give the address of another one",
            ),
            (
                "20.0.0.0/8 via 10.0.1.255",
                "10.0.1.255 is the address of a whole link of `a`: give that of a router on it",
            ),
            ("20.0.0.0/8 via 10.0.1.0", "10.0.1.0 is the address of a whole link of `a`: give that of a router on it"),
            (
                "20.0.0.0/8 via 224.0.0.5 dev a",
                "no neighbour can have the multicast address 224.0.0.5: give the address of a router on the link",
            ),
            (
                "20.0.0.0/8 via 224.0.0.5",
                "no neighbour can have the multicast address 224.0.0.5: give the address of a router on the link",
            ),
            (
                "2001:db8:9::/48 via ff02::5",
                "no neighbour can have the multicast address ff02::5: give the address of a router on the link",
            ),
            (
                "20.0.0.0/8 via 255.255.255.255",
                "no neighbour can have the broadcast address 255.255.255.255: give the address of a router on the link",
            ),
            (
                "20.0.0.0/8 via 0.0.0.0 dev a onlink",
                "no neighbour can have the unspecified address 0.0.0.0: give the address of a router on the link",
            ),
            (
                "20.0.0.0/8 via 10.0.1.255 dev a onlink",
                "10.0.1.255 is the address of a whole link of `a`: give that of a router on it",
            ),
            (
                "2001:db8:9::/48 via 2001:db8:1::",
                "2001:db8:1:: is the address of a whole link of `a`: give that of a router on it",
            ),
            (
                "2001:db8:9::/48 via fe80::1 dev a",
                "fe80::1 is an address of this router, on `a`: give the address of another one",
            ),
            ("2001:db8:9::/48 via inet 10.0.1.9", "IPv6 packets cannot be sent to the IPv4 next hop 10.0.1.9"),
            (
                "127.1.0.0/16 via 10.0.1.9",
                "127.1.0.0/16 is within 127.0.0.0/8 (loopback addresses), where no router forwards packets to: leave the route out",
            ),
        ] {
            assert_eq!(add(&vrf, route, IfExists::Refuse), Err(error.to_owned()), "{route}");
        }
        assert_eq!(add(&vrf, "0.0.0.0/0 via 10.0.1.9", IfExists::Refuse), Ok(()));
        let key = (1, IpAddr::from([10, 0, 1, 1]));
        assert!(matches!(vrf.lock().enter_neighbour(key, MAC, Origin::Control), Err(VrfError::OwnAddress(..))));
    }

    #[test]
    fn ipv4_routes_have_next_hops_of_ipv6() {
        let vrf = vrf();
        let before = vrf.adjacencies().used();
        assert_eq!(add(&vrf, "20.0.0.0/8 via inet6 fe80::9 dev a", IfExists::Refuse), Ok(()));
        assert_eq!(add(&vrf, "2001:db8:9::/48 via fe80::9 dev a", IfExists::Refuse), Ok(()));
        let kinds = || ["20.1.2.3", "2001:db8:9::1"].map(|destination| look(&vrf, destination).1.unwrap());
        assert_eq!(kinds().map(|adjacency| adjacency.kind), [AdjacencyKind::Incomplete; 2]);
        let key = (1, "fe80::9".parse().unwrap());
        let change = |change: &dyn Fn(&mut VrfChanges<'_>)| {
            let mut changes = vrf.lock();
            change(&mut changes);
            changes.commit().unwrap();
        };
        change(&|changes| drop(changes.resolve(key.0, key.1, MAC)));
        let known = kinds();
        assert_eq!(known.map(|adjacency| (adjacency.kind, adjacency.header[0])), [(AdjacencyKind::Complete, 4); 2]);
        assert_eq!(known.map(|adjacency| [adjacency.header[12], adjacency.header[13]]), [[0x08, 0x00], [0x86, 0xdd]]);
        assert_eq!(known.map(|adjacency| adjacency.next_hop), [Some(key.1); 2]);
        assert_eq!(add(&vrf, "21.0.0.0/8 via inet6 fe80::9 dev a", IfExists::Refuse), Ok(()));
        change(&|changes| changes.unresolve(key.0, key.1));
        assert_eq!(kinds().map(|adjacency| adjacency.kind), [AdjacencyKind::Incomplete; 2]);
        change(&|changes| drop(changes.resolve(key.0, key.1, MAC)));
        assert!(remove(&vrf, "20.0.0.0/8") && remove(&vrf, "21.0.0.0/8"));
        assert_eq!(vrf.adjacencies().used(), before + 1, "that of IPv6 packets stays");
        assert_eq!(add(&vrf, "22.0.0.0/8 via inet6 fe80::9 dev a", IfExists::Refuse), Ok(()));
        assert_eq!(look(&vrf, "22.1.2.3").1.unwrap().kind, AdjacencyKind::Complete, "the neighbour is known");
    }

    #[test]
    fn neighbours_that_were_learned_leave_room_for_routes() {
        let vrf = vrf();
        let mut changes = vrf.lock();
        let learned = (2..=254).filter(|&last| changes.resolve(1, [10, 0, 1, last].into(), MAC).is_ok()).count();
        assert_eq!((learned, vrf.max_neighbours()), (216, 100), "each family has room");
        assert!(matches!(changes.resolve(1, [10, 0, 1, 254].into(), MAC), Err(VrfError::Learned)));
        assert!(changes.resolve(1, [10, 0, 1, 2].into(), MAC).is_ok(), "one that is known");
        drop(changes);
        for number in 2..=26 {
            assert_eq!(add(&vrf, &format!("20.{number}.0.0/16 via 10.0.2.{number}"), IfExists::Refuse), Ok(()));
        }
        let error = add(&vrf, "21.0.0.0/16 via 10.0.2.27", IfExists::Refuse).unwrap_err();
        let known = (1, IpAddr::from([10, 0, 1, 2]));
        assert!(vrf.may_lead_to((2, [10, 0, 2, 2].into())) && !vrf.may_lead_to(known));
        let changes = vrf.lock();
        assert!(vrf.may_lead_to(known), "perhaps, while another thread changes routes");
        drop(changes);
        assert_eq!(error, "all 243 adjacencies are in use");
    }

    #[test]
    fn neighbours_of_the_configuration_return_when_a_command_gives_them_up() {
        let vrf = vrf();
        let (key, mac) = ((1, IpAddr::from([10, 0, 1, 9])), |number| MacAddr([4, 0, 0, 0, 0, number]));
        let known = || look(&vrf, "10.0.1.9").1.unwrap().header[5];
        let mut changes = vrf.lock();
        changes.enter_neighbour(key, mac(1), Origin::Kernel(0)).unwrap();
        changes.enter_neighbour(key, mac(2), Origin::Static).unwrap();
        changes.enter_neighbour(key, mac(3), Origin::Control).unwrap();
        changes.enter_neighbour(key, mac(4), Origin::Kernel(0)).unwrap();
        assert_eq!(changes.permanent_of(key), Some((mac(3), Origin::Control)));
        changes.commit().unwrap();
        drop(changes);
        assert_eq!(known(), 3);
        for (origin, left) in [(Origin::Control, 2), (Origin::Static, 4)] {
            let mut changes = vrf.lock();
            assert!(changes.remove_neighbour(key, origin) && !changes.remove_neighbour(key, origin));
            changes.commit().unwrap();
            drop(changes);
            assert_eq!(known(), left);
            assert_eq!([IpFamily::V4, IpFamily::V6].map(|family| vrf.permanent_of_family(family)), [1, 0]);
        }
        let mut changes = vrf.lock();
        assert!(changes.remove_neighbour(key, Origin::Kernel(0)) && changes.permanent().next().is_none());
        assert_eq!(vrf.permanent_of_family(IpFamily::V4), 0);
        changes.commit().unwrap();
        drop(changes);
        assert_eq!(look(&vrf, "10.0.1.9").1.unwrap().kind, AdjacencyKind::Glean);
    }
}
