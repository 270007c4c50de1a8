//! A routing domain: interfaces, the routes through them, and the adjacencies of their neighbours.

mod describe;
mod inherit;
mod list;
mod operate;
mod permanent;
mod retired;
mod stage;

pub use describe::{Target, Way};
pub use inherit::Inherited;
pub use list::{Listed, Match, RouteFilter, Statistics};
pub use operate::{Batch, Done};
pub use stage::{Staged, Swapped};

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use bellows_fib::{Changes, FIRST_GROUP, Fib, GroupChanges, GroupError, Groups, Path, Route, Size};
use bellows_shared::Breath;
use bellows_wire::MacAddr;

use self::retired::Retired;
use crate::adjacency::{Adjacencies, Exhausted, Kind, special};
use crate::interface::{Interface, MAX_INTERFACES, broadcast, subnet_router};
use crate::neighbours::NeighbourKey;
use crate::origin::{ByRoute, Origin};
use crate::route::{IpPrefix, NextHop, RouteSpec};

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
    next_hops: Mutex<NextHops>,
    /// Neighbours whose Ethernet addresses somebody entered, and who.
    permanent: RwLock<HashMap<NeighbourKey, (MacAddr, Origin)>>,
}

/// The adjacencies by what they are for.
#[derive(Default)]
struct NextHops {
    neighbours: HashMap<(u16, IpAddr), u32>,
    gleans: Vec<u32>,
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
}

/// The maximum number of next hops that a commit gives back.
const MAX_GIVEN_BACK: usize = 256;

/// Why a route or a neighbour cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum VrfError {
    /// Too many interfaces.
    #[error("{0} interfaces are too many: give at most {MAX_INTERFACES}")]
    Interfaces(usize),
    /// There is no interface of this name.
    #[error("there is no interface `{0}`")]
    NoInterface(String),
    /// No interface has the next hop on its link.
    #[error("no interface has {0} on its link: name the interface with `dev`")]
    Gateway(IpAddr),
    /// A link-local next hop without an interface.
    #[error("{0} may be on any link: name the interface with `dev`")]
    LinkLocal(IpAddr),
    /// There is no room for another adjacency.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// There is no memory for tables.
    #[error("no memory for the forwarding table: {0}")]
    Memory(#[from] io::Error),
    /// There is a route to the prefix with the same metric.
    #[error("there is a route to {0} with metric {1} already: replace it, or give another metric")]
    Exists(IpPrefix, u32),
    /// The route is that of an interface or a neighbour.
    #[error("the route to {0} with metric {1} is that of an interface: give another metric")]
    Connected(IpPrefix, u32),
    /// The route is that of Linux.
    #[error("the route to {0} with metric {1} comes from Linux: change it there, or give another metric")]
    Kernel(IpPrefix, u32),
    /// There is no route to remove.
    #[error("there is no such route to {0}")]
    NoRoute(IpPrefix),
    /// The routes to be joined are not both to neighbours.
    #[error("the route to {0} forwards nothing, so that it can have no further ways")]
    NotForwarding(IpPrefix),
    /// A neighbour is not on the link.
    #[error("{0} is not on a link of `{1}`")]
    NotOnLink(IpAddr, String),
    /// The ways of a route do not make a group.
    #[error(transparent)]
    Group(#[from] GroupError),
}

impl Vrf {
    /// A domain with these interfaces, which have the numbers from 1 on, with the routes to their addresses and links, and
    /// with room for so many neighbours. Flows choose among several paths by `seed`, which should be another one for each
    /// router.
    ///
    /// # Errors
    /// If there are too many interfaces, or no memory.
    pub fn new(interfaces: Vec<Interface>, neighbours: usize, seed: u32) -> Result<Vrf, VrfError> {
        if interfaces.len() > MAX_INTERFACES {
            return Err(VrfError::Interfaces(interfaces.len()));
        }
        let adjacencies = Adjacencies::new(neighbours + interfaces.len());
        let vrf = Vrf {
            adjacencies,
            v4: Fib::new()?,
            v6: Fib::new()?,
            groups: Groups::new(seed)?,
            next_hops: Mutex::default(),
            permanent: RwLock::default(),
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

    /// Replaces groups of paths by the adjacency of the flow's path. `hash` tells the flow hash of a packet by its place; it
    /// is called for groups alone. Hot.
    #[inline]
    pub fn choose_paths(&self, breath: &impl Breath, adjacencies: &mut [u32], hash: impl FnMut(usize) -> u32) {
        self.groups.table(breath).resolve(adjacencies, hash);
    }

    /// Whether a group of paths has one through an interface; false for a single adjacency.
    #[inline]
    pub fn is_group_through(&self, breath: &impl Breath, next: u32, interface: u16) -> bool {
        let is_through = |path| self.adjacencies.shape(path).interface() == interface;
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

    /// Counts that so many routes or groups lead to an adjacency or a group no more.
    fn release(&mut self, next: u32, ended: usize) {
        let Some(uses) = self.next_hops.uses.get_mut(&next) else { return };
        *uses = uses.saturating_sub(ended);
        if *uses > 0 {
            return;
        }
        self.next_hops.uses.remove(&next);
        if let Some(paths) = self.groups.paths(next).map(<[Path]>::to_vec) {
            self.groups.remove(next);
            self.next_hops.groups.remove(&paths);
            paths.iter().for_each(|path| self.release(path.next, 1));
        } else if let Some(adjacency) = self.vrf.adjacencies.get(next)
            && adjacency.kind == Kind::Incomplete
            && let Some(next_hop) = adjacency.next_hop
        {
            self.next_hops.neighbours.remove(&(adjacency.interface, next_hop));
            self.vrf.adjacencies.remove(next);
        }
    }

    /// Enters a neighbour's Ethernet address, and a route to it alone if its address is on the link.
    ///
    /// # Errors
    /// If there is no room for its adjacency, or no interface of this number.
    pub fn resolve(&mut self, interface: u16, address: IpAddr, mac: MacAddr) -> Result<u32, VrfError> {
        let index = self.neighbour(interface, address)?;
        if self.vrf.is_permanent((interface, address)) {
            return Ok(index);
        }
        self.complete(index, (interface, address), mac);
        Ok(index)
    }

    /// Completes a neighbour's adjacency, and enters the route to it alone.
    fn complete(&mut self, index: u32, (interface, address): NeighbourKey, mac: MacAddr) {
        if let Some(link) = self.vrf.interface(interface) {
            self.vrf.adjacencies.set(index, &link.neighbour(interface, address, Some(mac)));
        }
        let is_on_link = self.vrf.interface(interface).is_some_and(|link| link.has_on_link(address));
        let host = IpPrefix::host(address);
        // A route that somebody entered is preferred.
        if is_on_link && !is_link_local(address) && !self.has(host, 0) {
            self.enter(host, Route { metric: 0, next: index }, Origin::Neighbour);
        }
    }

    /// Forgets a neighbour's Ethernet address. Routes through it stay, and their packets wait for it to be resolved.
    pub fn unresolve(&mut self, interface: u16, address: IpAddr) {
        if self.vrf.is_permanent((interface, address)) {
            return;
        }
        let Some(&index) = self.next_hops.neighbours.get(&(interface, address)) else { return };
        let (host, route) = (IpPrefix::host(address), Route { metric: 0, next: index });
        if self.routes(host).contains(&route) && self.origin((host, 0)) == Origin::Neighbour {
            self.leave((host, 0));
        }
        if self.next_hops.uses.get(&index).is_none_or(|uses| *uses == 0) {
            self.next_hops.neighbours.remove(&(interface, address));
            self.vrf.adjacencies.remove(index);
        } else if let Some(link) = self.vrf.interface(interface) {
            self.vrf.adjacencies.set(index, &link.neighbour(interface, address, None));
        }
    }

    /// Makes the changes of routes take effect.
    ///
    /// # Errors
    /// If there is no memory; the next commit tries again.
    pub fn commit(&mut self) -> Result<(), VrfError> {
        self.v4.commit()?;
        self.v6.commit()?;
        self.next_hops.retired.commit();
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

    /// The group of several next hops. Routes with the same ways have one group.
    fn group(&mut self, hops: &[NextHop]) -> Result<u32, VrfError> {
        let mut paths: Vec<Path> = Vec::with_capacity(hops.len());
        for hop in hops {
            match self.adjacency(hop) {
                Ok(next) => paths.push(Path { next, weight: hop.weight }),
                Err(error) => {
                    self.leave_unused(&paths);
                    return Err(error);
                }
            }
        }
        paths.sort_unstable_by_key(|path| path.next);
        if let Some(&number) = self.next_hops.groups.get(&paths) {
            return Ok(number);
        }
        let number = match self.groups.add(&paths) {
            Ok(number) => number,
            Err(error) => {
                self.leave_unused(&paths);
                return Err(error.into());
            }
        };
        for path in &paths {
            *self.next_hops.uses.entry(path.next).or_default() += 1;
        }
        self.next_hops.groups.insert(paths, number);
        Ok(number)
    }

    /// Gives back those of these next hops that nothing leads to, such as those of a group that could not be made.
    fn leave_unused(&mut self, paths: &[Path]) {
        for path in paths {
            *self.next_hops.uses.entry(path.next).or_default() += 1;
            self.next_hops.retired.drop_use(path.next);
        }
    }

    /// The adjacency of a next hop.
    fn adjacency(&mut self, hop: &NextHop) -> Result<u32, VrfError> {
        let named = match &hop.interface {
            Some(name) => Some(self.vrf.number(name).ok_or_else(|| VrfError::NoInterface(name.clone()))?),
            None => None,
        };
        match (hop.gateway, named) {
            (Some(gateway), Some(number)) => self.neighbour(number, gateway),
            (Some(gateway), None) => {
                if is_link_local(gateway) {
                    return Err(VrfError::LinkLocal(gateway));
                }
                let index = self
                    .vrf
                    .interfaces
                    .iter()
                    .position(|interface| interface.has_on_link(gateway))
                    .ok_or(VrfError::Gateway(gateway))?;
                self.neighbour(index as u16 + 1, gateway)
            }
            (None, Some(number)) => Ok(self.next_hops.gleans[usize::from(number) - 1]),
            (None, None) => Err(VrfError::NoInterface(String::new())),
        }
    }

    /// The adjacency of a neighbour, which is made if there is none.
    fn neighbour(&mut self, number: u16, address: IpAddr) -> Result<u32, VrfError> {
        if let Some(&index) = self.next_hops.neighbours.get(&(number, address)) {
            return Ok(index);
        }
        let interface = self.vrf.interface(number).ok_or_else(|| VrfError::NoInterface(number.to_string()))?;
        let index = self.vrf.adjacencies.add(&interface.neighbour(number, address, None))?;
        self.next_hops.neighbours.insert((number, address), index);
        Ok(index)
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
            // RFC 4291, sections 2.5.2, 2.5.3, 2.5.6 and 2.7.
            ("::/128", special::MARTIAN),
            ("::1/128", special::MARTIAN),
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

    use super::*;
    use crate::adjacency::Adjacency;
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
        let removed = changes.remove(IpPrefix::V4(prefix.parse().unwrap()), None);
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
        assert_eq!((glean.kind, glean.interface), (Kind::Glean, 2));
        assert_eq!(look(&vrf, "2001:db8:2::77").1.unwrap().kind, Kind::Glean);
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
            ("20.0.0.0/8 via 10.0.9.9", "no interface has 10.0.9.9 on its link: name the interface with `dev`"),
            ("20.0.0.0/8 dev c", "there is no interface `c`"),
            ("2001:db8:9::/48 via fe80::9", "fe80::9 may be on any link: name the interface with `dev`"),
        ] {
            assert_eq!(add(&vrf, route, IfExists::Refuse), Err(error.to_owned()));
        }
        assert_eq!(add(&vrf, "20.0.0.0/8 via 10.0.9.9 dev a", IfExists::Refuse), Ok(()));
        assert_eq!(add(&vrf, "30.0.0.0/8 dev b", IfExists::Refuse), Ok(()));
        assert_eq!(look(&vrf, "30.1.1.1").1.unwrap().kind, Kind::Glean);
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
            assert_eq!((adjacency.kind, &adjacency.header[..6]), (Kind::Complete, &MAC.0[..]), "{destination}");
        }
        assert_eq!(look(&vrf, "fe80::5").0, special::LOCAL, "link-local addresses have no routes");
        for address in ["10.0.1.9", "10.0.1.5", "2001:db8:1::5", "fe80::5"] {
            change(&|changes| changes.unresolve(1, address.parse().unwrap()));
        }
        assert_eq!(look(&vrf, "20.1.2.3").1.unwrap().kind, Kind::Incomplete);
        assert_eq!(look(&vrf, "10.0.1.9").1.unwrap().kind, Kind::Glean);
        assert_eq!(vrf.adjacencies().used(), before + 1);
        assert!(vrf.try_lock().is_some());
    }
}
