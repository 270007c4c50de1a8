//! A routing domain: interfaces, the routes through them, and the adjacencies of their neighbours.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bellows_fib::{Changes, Fib, GroupChanges, GroupError, Groups, Path, Route, Size};
use bellows_shared::Breath;
use bellows_wire::MacAddr;

use crate::adjacency::{Adjacencies, Exhausted, special};
use crate::interface::{Interface, MAX_INTERFACES, broadcast, subnet_router};
use crate::route::{Action, IpPrefix, NextHop, RouteSpec};

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
}

/// The adjacencies by what they are for.
#[derive(Default)]
struct NextHops {
    neighbours: HashMap<(u16, IpAddr), u32>,
    gleans: Vec<u32>,
    /// The groups by their paths, in order.
    groups: HashMap<Vec<Path>, u32>,
}

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

    /// The right to change routes and neighbours, which waits for whoever has it.
    pub fn lock(&self) -> VrfChanges<'_> {
        let next_hops = self.next_hops.lock().unwrap_or_else(PoisonError::into_inner);
        VrfChanges { vrf: self, next_hops, v4: self.v4.lock(), v6: self.v6.lock(), groups: self.groups.lock() }
    }
}

/// Changes of routes and neighbours. Those of routes take effect with [`VrfChanges::commit`], those of neighbours at once.
pub struct VrfChanges<'v> {
    vrf: &'v Vrf,
    next_hops: MutexGuard<'v, NextHops>,
    v4: Changes<'v, u32>,
    v6: Changes<'v, u128>,
    groups: GroupChanges<'v>,
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
        if if_exists == IfExists::Refuse && self.has(route.prefix, route.metric) {
            return Err(VrfError::Exists(route.prefix, route.metric));
        }
        let next = match &route.action {
            Action::Blackhole => special::BLACKHOLE,
            Action::Unreachable => special::UNREACHABLE,
            Action::Prohibit => special::PROHIBIT,
            Action::Forward(hops) => match hops.as_slice() {
                [hop] => self.adjacency(hop)?,
                hops => self.group(hops)?,
            },
        };
        self.insert(route.prefix, Route { metric: route.metric, next });
        Ok(())
    }

    /// Removes the route to a prefix with this metric, or the best one. Returns whether there was one.
    pub fn remove(&mut self, prefix: IpPrefix, metric: Option<u32>) -> bool {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.remove(prefix, metric).is_some(),
            IpPrefix::V6(prefix) => self.v6.remove(prefix, metric).is_some(),
        }
    }

    /// Enters a neighbour's Ethernet address, and a route to it alone if its address is on the link.
    ///
    /// # Errors
    /// If there is no room for its adjacency, or no interface of this number.
    pub fn resolve(&mut self, interface: u16, address: IpAddr, mac: MacAddr) -> Result<u32, VrfError> {
        let index = self.neighbour(interface, address)?;
        if let Some(link) = self.vrf.interface(interface) {
            self.vrf.adjacencies.set(index, &link.neighbour(interface, address, Some(mac)));
        }
        let is_on_link = self.vrf.interface(interface).is_some_and(|link| {
            link.addresses.iter().any(|own| IpPrefix::of(own.address, own.length).is_some_and(|it| it.contains(address)))
        });
        if is_on_link {
            self.insert(IpPrefix::host(address), Route { metric: 0, next: index });
        }
        Ok(index)
    }

    /// Makes the changes of routes take effect.
    ///
    /// # Errors
    /// If there is no memory; the next commit tries again.
    pub fn commit(&mut self) -> Result<(), VrfError> {
        self.v4.commit()?;
        self.v6.commit()?;
        Ok(())
    }

    /// The sizes of the tables: IPv4, IPv6.
    pub fn sizes(&self) -> (Size, Size) {
        (self.v4.size(), self.v6.size())
    }

    fn has(&self, prefix: IpPrefix, metric: u32) -> bool {
        let routes = match prefix {
            IpPrefix::V4(prefix) => self.v4.rib().routes(prefix),
            IpPrefix::V6(prefix) => self.v6.rib().routes(prefix),
        };
        routes.iter().any(|route| route.metric == metric)
    }

    fn insert(&mut self, prefix: IpPrefix, route: Route) {
        // Adjacency indices have 20 bits, fewer than the table has room for.
        match prefix {
            IpPrefix::V4(prefix) => drop(self.v4.insert(prefix, route)),
            IpPrefix::V6(prefix) => drop(self.v6.insert(prefix, route)),
        }
    }

    /// The group of several next hops. Routes with the same ways have one group.
    fn group(&mut self, hops: &[NextHop]) -> Result<u32, VrfError> {
        let mut paths = Vec::with_capacity(hops.len());
        for hop in hops {
            paths.push(Path { next: self.adjacency(hop)?, weight: hop.weight });
        }
        paths.sort_unstable_by_key(|path| path.next);
        if let Some(&number) = self.next_hops.groups.get(&paths) {
            return Ok(number);
        }
        let number = self.groups.add(&paths)?;
        self.next_hops.groups.insert(paths, number);
        Ok(number)
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
                let is_on_link = |interface: &Interface| {
                    let mut prefixes = interface.addresses.iter().filter_map(|own| IpPrefix::of(own.address, own.length));
                    prefixes.any(|prefix| prefix.contains(gateway))
                };
                let index = self.vrf.interfaces.iter().position(is_on_link).ok_or(VrfError::Gateway(gateway))?;
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
                self.insert(link, Route { metric: 0, next: glean });
            }
            let others = broadcast(own).map(IpAddr::V4).into_iter().chain(subnet_router(own).map(IpAddr::V6));
            for address in others.chain([own.address]) {
                self.insert(IpPrefix::host(address), local);
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
            let route = Route { metric: 0, next };
            match prefix.parse() {
                Ok(prefix) => self.insert(IpPrefix::V6(prefix), route),
                Err(_) => self.insert(IpPrefix::V4(prefix.parse().unwrap_or(bellows_fib::Prefix::ALL)), route),
            }
        }
    }
}

/// Whether an address is on every link (RFC 4291, section 2.5.6).
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
