//! Neighbours whose Ethernet addresses somebody entered. What is heard from them changes nothing.

use std::net::IpAddr;

use bellows_wire::MacAddr;

use super::{VrfChanges, VrfError, is_link_local};
use crate::neighbours::NeighbourKey;
use crate::origin::Origin;

impl VrfChanges<'_> {
    /// Enters a neighbour's Ethernet address for good, in place of what was known of it.
    ///
    /// # Errors
    /// If its address is on none of the interface's links, or there is no room.
    pub fn enter_neighbour(&mut self, key: NeighbourKey, mac: MacAddr, origin: Origin) -> Result<(), VrfError> {
        let (number, address) = key;
        let link = self.vrf.interface(number).ok_or_else(|| VrfError::NoInterface(number.to_string()))?;
        if !is_link_local(address) && !link.has_on_link(address) && origin == Origin::Control {
            return Err(VrfError::NotOnLink(address, link.name.clone()));
        }
        let index = self.neighbour(number, address)?;
        self.next_hops.permanent.insert(key, (mac, origin));
        self.complete(index, key, mac);
        Ok(())
    }

    /// Forgets an address that somebody entered. Returns whether there was one.
    pub fn remove_neighbour(&mut self, key: NeighbourKey) -> bool {
        let was_entered = self.next_hops.permanent.remove(&key).is_some();
        if was_entered {
            self.unresolve(key.0, key.1);
        }
        was_entered
    }

    /// The neighbours whose addresses somebody entered.
    pub fn permanent(&self) -> impl Iterator<Item = (NeighbourKey, MacAddr, Origin)> {
        self.next_hops.permanent.iter().map(|(&key, &(mac, origin))| (key, mac, origin))
    }

    /// A neighbour's address that somebody entered, and who.
    pub fn permanent_of(&self, key: NeighbourKey) -> Option<(MacAddr, Origin)> {
        self.next_hops.permanent.get(&key).copied()
    }

    /// Who entered a neighbour's address.
    pub fn permanent_origin(&self, key: NeighbourKey) -> Option<Origin> {
        self.permanent_of(key).map(|(_, origin)| origin)
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
