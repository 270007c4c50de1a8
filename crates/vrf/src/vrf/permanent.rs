//! Neighbours whose Ethernet addresses somebody entered. What is heard from them changes nothing.

use std::net::IpAddr;

use bellows_wire::MacAddr;

use super::{VrfChanges, VrfError, is_link_local};
use crate::family::IpFamily;
use crate::neighbours::NeighbourKey;
use crate::origin::Origin;

/// The Ethernet addresses of a neighbour that somebody entered. What is given up lets the next one come forth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entered {
    by_command: Option<MacAddr>,
    configured: Option<MacAddr>,
    of_kernel: Option<MacAddr>,
}

impl Entered {
    /// The place of an origin. Interfaces and neighbours themselves enter none.
    fn place(&mut self, origin: Origin) -> &mut Option<MacAddr> {
        match origin {
            Origin::Static => &mut self.configured,
            Origin::Kernel => &mut self.of_kernel,
            Origin::Control | Origin::Connected | Origin::Neighbour => &mut self.by_command,
        }
    }

    /// The one that counts, and who entered it.
    fn first(&self) -> Option<(MacAddr, Origin)> {
        let Entered { by_command, configured, of_kernel } = *self;
        let all = [(by_command, Origin::Control), (configured, Origin::Static), (of_kernel, Origin::Kernel)];
        all.into_iter().find_map(|(mac, origin)| Some((mac?, origin)))
    }
}

impl VrfChanges<'_> {
    /// Enters a neighbour's Ethernet address for good, in place of what was heard of it. That of a command comes before
    /// that of the configuration, and both before that of Linux.
    ///
    /// # Errors
    /// If its address is on none of the interface's links, or that of no other station, or there is no room.
    pub fn enter_neighbour(&mut self, key: NeighbourKey, mac: MacAddr, origin: Origin) -> Result<(), VrfError> {
        let (number, address) = key;
        let link = self.vrf.interface(number).ok_or_else(|| VrfError::NoInterface(number.to_string()))?;
        if !is_link_local(address) && !link.has_on_link(address) && origin == Origin::Control {
            return Err(VrfError::NotOnLink(address, link.name.clone()));
        }
        self.check_station(key)?;
        let index = self.neighbour(number, address, IpFamily::of(address))?;
        let entered = self.next_hops.entered.entry(key).or_default();
        *entered.place(origin) = Some(mac);
        let mac = entered.first().map_or(mac, |(first, _)| first);
        self.complete(index, key, mac);
        Ok(())
    }

    /// Forgets an address that somebody of this origin entered. Returns whether there was one. The neighbour then has the
    /// address that others have entered, or none.
    pub fn remove_neighbour(&mut self, key: NeighbourKey, origin: Origin) -> bool {
        let Some(entered) = self.next_hops.entered.get_mut(&key) else { return false };
        let was_entered = entered.place(origin).take().is_some();
        let left = entered.first();
        let own = (key.0, key.1, IpFamily::of(key.1));
        match (left, self.next_hops.neighbours.get(&own).copied()) {
            (Some((mac, _)), Some(index)) => self.complete(index, key, mac),
            _ => {
                self.next_hops.entered.remove(&key);
                self.unresolve(key.0, key.1);
            }
        }
        was_entered
    }

    /// The neighbours whose addresses somebody entered.
    pub fn permanent(&self) -> impl Iterator<Item = (NeighbourKey, MacAddr, Origin)> {
        let entered = self.next_hops.entered.iter();
        entered.filter_map(|(&key, entered)| entered.first().map(|(mac, origin)| (key, mac, origin)))
    }

    /// The neighbours whose addresses are configured.
    pub(super) fn configured(&self) -> impl Iterator<Item = (NeighbourKey, MacAddr)> {
        self.next_hops.entered.iter().filter_map(|(&key, entered)| Some((key, entered.configured?)))
    }

    /// A neighbour's address that somebody entered, and who.
    pub fn permanent_of(&self, key: NeighbourKey) -> Option<(MacAddr, Origin)> {
        self.next_hops.entered.get(&key).and_then(Entered::first)
    }

    /// The interface on whose link an address is.
    ///
    /// # Errors
    /// If there is none, or if the address may be on any link.
    pub fn link_of(&self, address: IpAddr) -> Result<u16, VrfError> {
        if is_link_local(address) {
            return Err(VrfError::LinkLocal(address));
        }
        let mut interfaces = (1..).zip(&self.vrf.interfaces);
        let found = interfaces.find(|(_, interface)| interface.has_on_link(address));
        found.map(|(number, _)| number).ok_or(VrfError::Gateway(address))
    }
}
