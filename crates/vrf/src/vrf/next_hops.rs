//! The adjacencies of next hops: when they are made, completed, and given back.

use std::net::{IpAddr, Ipv4Addr};

use bellows_fib::{Path, Route};
use bellows_wire::MacAddr;

use super::{VrfChanges, VrfError, is_link_local};
use crate::adjacency::{Kind, special};
use crate::family::IpFamily;
use crate::interface::{Interface, broadcast, subnet_router};
use crate::neighbours::NeighbourKey;
use crate::origin::Origin;
use crate::route::{Action, IpPrefix, NextHop};

/// An adjacency of a neighbour: its interface, its address, and the family of the packets that are sent to it. IPv4
/// packets may have an IPv6 next hop (RFC 8950).
pub(super) type HopKey = (u16, IpAddr, IpFamily);

/// The families of packets that a neighbour may get, its own first.
pub(super) fn families((interface, address): NeighbourKey) -> impl Iterator<Item = HopKey> {
    let own = IpFamily::of(address);
    let other = (own == IpFamily::V6).then_some(IpFamily::V4);
    [Some(own), other].into_iter().flatten().map(move |packets| (interface, address, packets))
}

impl VrfChanges<'_> {
    /// The number for what becomes of packets of a family: an adjacency, or a group. With `before`, the number of the route
    /// that is replaced, flows stay with the next hops that both have.
    pub(super) fn next(&mut self, action: &Action, packets: IpFamily, before: Option<u32>) -> Result<u32, VrfError> {
        match action {
            Action::Blackhole => Ok(special::BLACKHOLE),
            Action::Unreachable => Ok(special::UNREACHABLE),
            Action::Prohibit => Ok(special::PROHIBIT),
            Action::Forward(hops) => match hops.as_slice() {
                [hop] => self.adjacency(hop, packets),
                hops => self.group(hops, packets, before),
            },
        }
    }

    /// Counts that so many routes or groups lead to an adjacency or a group no more.
    pub(super) fn release(&mut self, next: u32, ended: usize) {
        let Some(uses) = self.next_hops.uses.get_mut(&next) else { return };
        *uses = uses.saturating_sub(ended);
        if *uses > 0 {
            return;
        }
        self.next_hops.uses.remove(&next);
        if let Some(paths) = self.groups.paths(next).map(<[Path]>::to_vec) {
            self.groups.remove(next);
            self.next_hops.groups.remove(&paths);
            self.unwatch(&paths);
            paths.iter().for_each(|path| self.release(path.next, 1));
        } else if let Some(adjacency) = self.vrf.adjacencies.get(next)
            && let Some(next_hop) = adjacency.next_hop
        {
            // A known neighbour keeps its own, to which a route of its own leads.
            let packets = adjacency.packets();
            if adjacency.kind == Kind::Incomplete || packets != IpFamily::of(next_hop) {
                self.next_hops.neighbours.remove(&(adjacency.interface, next_hop, packets));
                // Another neighbour gets the number.
                self.groups.set_out_of_use(next, false);
                self.vrf.adjacencies.remove(next);
            }
        }
    }

    /// Enters a neighbour's Ethernet address, and a route to it alone if its address is on the link.
    ///
    /// # Errors
    /// If there is no room for its adjacency, or no interface of this number.
    pub fn resolve(&mut self, interface: u16, address: IpAddr, mac: MacAddr) -> Result<u32, VrfError> {
        let key = (interface, address);
        self.revive(key);
        let known = self.next_hops.neighbours.get(&(interface, address, IpFamily::of(address))).copied();
        // Neighbours that send to the router, or that senders ask for, must not take what routes need.
        if known.is_none() && self.vrf.adjacencies.used() >= self.vrf.room_for_learned() {
            self.complete_other(key, mac);
            return Err(VrfError::Learned);
        }
        let index = match known {
            Some(index) => index,
            None => self.neighbour(interface, address, IpFamily::of(address))?,
        };
        if !self.vrf.is_permanent(key) {
            self.complete(index, key, mac);
        }
        Ok(index)
    }

    /// Completes a neighbour's adjacencies, and enters the route to it alone.
    pub(super) fn complete(&mut self, index: u32, key: NeighbourKey, mac: MacAddr) {
        let (interface, address) = key;
        if let Some(link) = self.vrf.interface(interface) {
            self.vrf.adjacencies.set(index, &link.neighbour(interface, address, Some(mac), IpFamily::of(address)));
        }
        self.complete_other(key, mac);
        let is_on_link = self.vrf.interface(interface).is_some_and(|link| link.has_on_link(address));
        let host = IpPrefix::host(address);
        // A route that somebody entered is preferred.
        if is_on_link && !is_link_local(address) && !self.has(host, 0) {
            self.enter(host, Route { metric: 0, next: index }, Origin::Neighbour);
        }
    }

    /// Completes a neighbour's adjacency for packets of another family, if a route needs one.
    fn complete_other(&mut self, key: NeighbourKey, mac: MacAddr) {
        let (interface, address) = key;
        let Some(link) = self.vrf.interface(interface) else { return };
        for key @ (.., packets) in families(key).skip(1) {
            if let Some(&index) = self.next_hops.neighbours.get(&key) {
                self.vrf.adjacencies.set(index, &link.neighbour(interface, address, Some(mac), packets));
            }
        }
    }

    /// Forgets a neighbour's Ethernet address. Routes through it stay, and their packets wait for it to be resolved. With
    /// the next commit packets cease to find its adjacency, which is given back later.
    pub fn unresolve(&mut self, interface: u16, address: IpAddr) {
        if self.vrf.is_permanent((interface, address)) {
            return;
        }
        for key @ (.., packets) in families((interface, address)) {
            let Some(&index) = self.next_hops.neighbours.get(&key) else { continue };
            let (host, route) = (IpPrefix::host(address), Route { metric: 0, next: index });
            if self.routes(host).contains(&route) && self.origin((host, 0)) == Origin::Neighbour {
                self.leave((host, 0));
            }
            if let Some(link) = self.vrf.interface(interface) {
                self.vrf.adjacencies.set(index, &link.neighbour(interface, address, None, packets));
            }
            self.leave_unused(&[Path { next: index, weight: 1 }]);
        }
    }

    /// Gives back those of these next hops that nothing leads to, such as those of a group that could not be made.
    pub(super) fn leave_unused(&mut self, paths: &[Path]) {
        for path in paths {
            *self.next_hops.uses.entry(path.next).or_default() += 1;
            self.next_hops.retired.drop_use(path.next);
        }
    }

    /// The group of several next hops. Routes with the same ways have one group.
    fn group(&mut self, hops: &[NextHop], packets: IpFamily, before: Option<u32>) -> Result<u32, VrfError> {
        let mut paths: Vec<Path> = Vec::with_capacity(hops.len());
        for hop in hops {
            match self.adjacency(hop, packets) {
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
        let added = match before {
            Some(before) => self.groups.add_like(before, &paths),
            None => self.groups.add(&paths),
        };
        let number = match added {
            Ok(number) => number,
            Err(error) => {
                self.leave_unused(&paths);
                return Err(error.into());
            }
        };
        for path in &paths {
            *self.next_hops.uses.entry(path.next).or_default() += 1;
        }
        self.watch(&paths);
        self.next_hops.groups.insert(paths, number);
        Ok(number)
    }

    /// The adjacency of a next hop.
    fn adjacency(&mut self, hop: &NextHop, packets: IpFamily) -> Result<u32, VrfError> {
        let named = match &hop.interface {
            Some(name) => Some(self.vrf.number(name).ok_or_else(|| VrfError::NoInterface(name.clone()))?),
            None => None,
        };
        let Some(gateway) = hop.gateway else {
            let number = named.ok_or_else(|| VrfError::NoInterface(String::new()))?;
            return Ok(self.next_hops.gleans[usize::from(number) - 1]);
        };
        if (packets, IpFamily::of(gateway)) == (IpFamily::V6, IpFamily::V4) {
            return Err(VrfError::Family(gateway));
        }
        let number = named.map_or_else(|| self.link_of(gateway), Ok)?;
        self.check_station((number, gateway))?;
        let link = self.vrf.interface(number).ok_or_else(|| VrfError::NoInterface(number.to_string()))?;
        if packets != IpFamily::of(gateway) && link.address(IpFamily::V6).is_none() {
            return Err(VrfError::NoIpv6(gateway, link.name.clone()));
        }
        self.neighbour(number, gateway, packets)
    }

    /// Whether an address can be that of another station on an interface's links.
    pub(super) fn check_station(&self, (number, address): NeighbourKey) -> Result<(), VrfError> {
        let is_none = match address {
            IpAddr::V4(v4) => v4.is_multicast() || v4.is_loopback() || v4.octets()[0] == 0 || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_multicast() || v6.is_loopback() || v6.is_unspecified(),
        };
        if is_none {
            return Err(VrfError::NotAStation(address));
        }
        let mut links = (1..).zip(&self.vrf.interfaces);
        // Link-local addresses of other interfaces may be those of stations here.
        let is_own = |(other, link): &(u16, &Interface)| {
            link.has_address(address) && (*other == number || !is_link_local(address))
        };
        if let Some((_, link)) = links.find(is_own) {
            return Err(VrfError::OwnAddress(address, link.name.clone()));
        }
        let link = self.vrf.interface(number).filter(|link| is_link_address(link, address));
        link.map_or(Ok(()), |link| Err(VrfError::LinkAddress(address, link.name.clone())))
    }

    /// The adjacency of a neighbour, which is made if there is none.
    pub(super) fn neighbour(&mut self, number: u16, address: IpAddr, packets: IpFamily) -> Result<u32, VrfError> {
        let key = (number, address, packets);
        if let Some(&index) = self.next_hops.neighbours.get(&key) {
            return Ok(index);
        }
        let interface = self.vrf.interface(number).ok_or_else(|| VrfError::NoInterface(number.to_string()))?;
        // Somebody may know its Ethernet address already.
        let own = self.next_hops.neighbours.get(&(number, address, IpFamily::of(address)));
        let known = own.and_then(|&own| self.vrf.adjacencies.get(own)).filter(|own| own.kind == Kind::Complete);
        let mac = known.and_then(|known| known.header.first_chunk::<6>().map(|mac| MacAddr(*mac)));
        let index = self.vrf.adjacencies.add(&interface.neighbour(number, address, mac, packets))?;
        self.next_hops.neighbours.insert(key, index);
        Ok(index)
    }
}

/// Whether an address is that of a whole link: of its network, of all stations (RFC 919, RFC 1812, section 4.2.2.11), or
/// of all routers (RFC 4291, section 2.6.1).
fn is_link_address(link: &Interface, address: IpAddr) -> bool {
    link.addresses.iter().any(|own| match (address, own.address) {
        (IpAddr::V4(address), IpAddr::V4(own_address)) => {
            // RFC 3021: links of two addresses have neither.
            let network = (own.length < 31).then(|| {
                Ipv4Addr::from(u32::from(own_address) & !(u32::MAX.checked_shr(own.length.into()).unwrap_or(0)))
            });
            network == Some(address) || broadcast(own) == Some(address)
        }
        (IpAddr::V6(address), IpAddr::V6(_)) => subnet_router(own) == Some(address),
        _ => false,
    })
}
