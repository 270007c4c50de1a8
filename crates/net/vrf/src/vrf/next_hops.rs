//! The adjacencies of next hops: when they are made, completed, and given back.

use std::net::{IpAddr, Ipv4Addr};

use bellows_fib::{Path, Route};
use bellows_wire::MacAddr;

use super::{NextHops, VrfChanges, VrfError, is_link_local};
use crate::adjacency::{Adjacency, AdjacencyKind, special};
use crate::family::IpFamily;
use crate::interface::{Interface, broadcast, subnet_router};
use crate::neighbours::NeighbourKey;
use crate::origin::Origin;
use crate::route::{Action, IpPrefix, NextHop, least_mtu};

/// What sets the adjacencies of a neighbour apart: the family of the packets that are sent to it, and the longest of
/// these, or 0 for that of the interface. IPv4 packets may have an IPv6 next hop (RFC 8950).
pub(super) type Variant = (IpFamily, u16);

impl NextHops {
    /// The adjacency of a neighbour for packets of its own family and of any length, which lasts while it is known.
    pub(super) fn own(&self, key: NeighbourKey) -> Option<u32> {
        self.neighbours.get(&key).copied()
    }

    /// The adjacency of a neighbour for some packets.
    fn of(&self, key: NeighbourKey, variant: Variant) -> Option<u32> {
        if variant == (IpFamily::of(key.1), 0) {
            return self.own(key);
        }
        self.variants.get(&key)?.iter().find(|(known, _)| *known == variant).map(|(_, index)| *index)
    }

    /// All adjacencies of a neighbour.
    pub(super) fn all(&self, key: NeighbourKey) -> impl Iterator<Item = (Variant, u32)> {
        let own = self.own(key).map(|index| ((IpFamily::of(key.1), 0), index));
        own.into_iter().chain(self.variants.get(&key).into_iter().flatten().copied())
    }

    fn set(&mut self, key: NeighbourKey, variant: Variant, index: u32) {
        if variant == (IpFamily::of(key.1), 0) {
            self.neighbours.insert(key, index);
        } else {
            self.variants.entry(key).or_default().push((variant, index));
        }
    }

    /// Forgets an adjacency of a neighbour.
    fn forget(&mut self, key: NeighbourKey, index: u32) {
        if self.own(key) == Some(index) {
            self.neighbours.remove(&key);
        } else if let Some(variants) = self.variants.get_mut(&key) {
            variants.retain(|(_, known)| *known != index);
            if variants.is_empty() {
                self.variants.remove(&key);
            }
        }
    }
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

    /// Counts that `ended` routes or groups no longer lead to an adjacency or a group.
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
        } else if let Some(adjacency) = self.vrf.adjacencies.get(next) {
            let is_of_interface = self.next_hops.gleans.contains(&next);
            // A known neighbour keeps its own, to which a route of its own leads.
            let is_kept = adjacency.next_hop.map_or(is_of_interface, |next_hop| {
                adjacency.kind == AdjacencyKind::Complete
                    && self.next_hops.own((adjacency.interface, next_hop)) == Some(next)
            });
            if !is_kept {
                match adjacency.next_hop {
                    Some(next_hop) => self.next_hops.forget((adjacency.interface, next_hop), next),
                    None => self.next_hops.short_gleans.retain(|_, known| *known != next),
                }
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
        let known = self.next_hops.own(key);
        // Neighbours that send to the router, or that senders ask for, must not take what routes need.
        if known.is_none() && self.vrf.adjacencies.used() >= self.vrf.room_for_learned() {
            self.complete_other(key, mac);
            return Err(VrfError::Learned);
        }
        let index = match known {
            Some(index) => index,
            None => self.neighbour(key, (IpFamily::of(address), 0))?,
        };
        if !self.vrf.is_permanent(key) {
            self.complete(index, key, mac);
        }
        Ok(index)
    }

    /// Completes a neighbour's adjacencies, and enters the route to it alone.
    pub(super) fn complete(&mut self, index: u32, key: NeighbourKey, mac: MacAddr) {
        let (interface, address) = key;
        self.set_mac(key, (IpFamily::of(address), 0), index, Some(mac));
        self.complete_other(key, mac);
        let is_on_link = self.vrf.interface(interface).is_some_and(|link| link.has_on_link(address));
        let host = IpPrefix::host(address);
        // A route that somebody entered is preferred.
        if is_on_link && !is_link_local(address) && !self.has(host, 0) {
            self.enter(host, Route { metric: 0, next: index }, Origin::Neighbour);
        }
    }

    /// Completes a neighbour's adjacencies for packets of another family or length, if routes need some.
    fn complete_other(&mut self, key: NeighbourKey, mac: MacAddr) {
        let own = self.next_hops.own(key);
        for (variant, index) in self.next_hops.all(key).filter(|(_, index)| Some(*index) != own) {
            self.set_mac(key, variant, index, Some(mac));
        }
    }

    /// Enters a neighbour's Ethernet address in an adjacency, or that it is not known.
    fn set_mac(&self, key: NeighbourKey, variant: Variant, index: u32, mac: Option<MacAddr>) {
        if let Some(link) = self.vrf.interface(key.0) {
            self.vrf.adjacencies.set(index, &adjacency(link, key, variant, mac));
        }
    }

    /// Forgets a neighbour's Ethernet address. Routes through it stay, and their packets wait for it to be resolved. With
    /// the next commit packets cease to find its adjacency, which is given back later.
    pub fn unresolve(&mut self, interface: u16, address: IpAddr) {
        if self.vrf.is_permanent((interface, address)) {
            return;
        }
        let key = (interface, address);
        let all: Vec<(Variant, u32)> = self.next_hops.all(key).collect();
        for (variant, index) in all {
            let (host, route) = (IpPrefix::host(address), Route { metric: 0, next: index });
            if self.routes(host).contains(&route) && self.origin((host, 0)) == Origin::Neighbour {
                self.leave((host, 0));
            }
            self.set_mac(key, variant, index, None);
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
            return self.glean(number, self.mtu(number, hop, packets));
        };
        if (packets, IpFamily::of(gateway)) == (IpFamily::V6, IpFamily::V4) {
            return Err(VrfError::Family(gateway));
        }
        let number = match named {
            Some(number) => number,
            None => match self.link_of(gateway) {
                Err(VrfError::NoLink(_)) => self.device_route(gateway, None).ok_or(VrfError::Gateway(gateway))?,
                found => found?,
            },
        };
        self.check_station((number, gateway))?;
        let link = self.vrf.interface(number).ok_or_else(|| VrfError::NoInterface(number.to_string()))?;
        if packets != IpFamily::of(gateway) && link.address(IpFamily::V6).is_none() {
            return Err(VrfError::NoIpv6(gateway, link.name.clone()));
        }
        // As Linux does when a route is added; what becomes of the link later does not matter.
        let is_there = hop.onlink || self.vrf.has_near(number, gateway);
        if !is_there && self.device_route(gateway, Some(number)).is_none() {
            return Err(VrfError::OffLink(gateway, link.name.clone()));
        }
        self.neighbour((number, gateway), (packets, self.mtu(number, hop, packets)))
    }

    /// The longest packet that takes a way, or 0 if that is the interface's affair.
    fn mtu(&self, number: u16, hop: &NextHop, packets: IpFamily) -> u16 {
        let of_link = self.vrf.interface(number).map_or(0, |link| link.mtu);
        let mtu = hop.mtu.map(|mtu| mtu.max(least_mtu(packets)));
        mtu.filter(|mtu| *mtu < of_link).unwrap_or(0)
    }

    /// The adjacency of all neighbours on an interface's link for packets up to a length, which is made if there is none.
    fn glean(&mut self, number: u16, mtu: u16) -> Result<u32, VrfError> {
        if mtu == 0 {
            return Ok(self.next_hops.gleans[usize::from(number) - 1]);
        }
        if let Some(&index) = self.next_hops.short_gleans.get(&(number, mtu)) {
            return Ok(index);
        }
        let interface = self.vrf.interface(number).ok_or_else(|| VrfError::NoInterface(number.to_string()))?;
        let index = self.vrf.adjacencies.add(&Adjacency { mtu, ..interface.glean(number) })?;
        self.next_hops.short_gleans.insert((number, mtu), index);
        Ok(index)
    }

    /// The interface to whose link a route leads that an address is within: any, or one of this number.
    fn device_route(&self, address: IpAddr, wanted: Option<u16>) -> Option<u16> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let leads_to = |path: Path| {
            let adjacency = self.vrf.adjacencies.get(path.next).filter(|it| it.kind == AdjacencyKind::Glean)?;
            wanted.is_none_or(|wanted| wanted == adjacency.interface).then_some(adjacency.interface)
        };
        let prefixes = (0..=bits).rev().filter_map(|length| IpPrefix::of(address, length));
        let mut nexts = prefixes.flat_map(|prefix| self.routes(prefix)).map(|route| route.next);
        nexts.find_map(|next| self.ways(next).into_iter().find_map(leads_to))
    }

    /// Whether an address can be that of another station on an interface's links; of any, for the number 0.
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
    pub(super) fn neighbour(&mut self, key: NeighbourKey, variant: Variant) -> Result<u32, VrfError> {
        if let Some(index) = self.next_hops.of(key, variant) {
            return Ok(index);
        }
        let number = key.0;
        let interface = self.vrf.interface(number).ok_or_else(|| VrfError::NoInterface(number.to_string()))?;
        // Somebody may know its Ethernet address already.
        let own = self.next_hops.own(key);
        let known = own.and_then(|own| self.vrf.adjacencies.get(own)).filter(|own| own.kind == AdjacencyKind::Complete);
        let mac = known.and_then(|known| known.header.first_chunk::<6>().map(|mac| MacAddr(*mac)));
        let index = self.vrf.adjacencies.add(&adjacency(interface, key, variant, mac))?;
        self.next_hops.set(key, variant, index);
        Ok(index)
    }
}

/// An adjacency of a neighbour.
fn adjacency(
    link: &Interface,
    (number, address): NeighbourKey,
    (packets, mtu): Variant,
    mac: Option<MacAddr>,
) -> Adjacency {
    let usual = link.neighbour(number, address, mac, packets);
    if mtu == 0 { usual } else { Adjacency { mtu, ..usual } }
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
