//! Neighbours whose Ethernet addresses somebody entered. What is heard from them changes nothing.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{PoisonError, RwLockReadGuard, TryLockError};

use bellows_wire::MacAddr;

use super::{Vrf, VrfChanges, VrfError, is_link_local};
use crate::neighbours::NeighbourKey;
use crate::origin::Origin;

/// How often a worker looks again for a neighbour while another one is being entered.
const LOOKS: usize = 64;

impl Vrf {
    /// A neighbour's Ethernet address that somebody entered. For workers, which do not wait: rarely, while another one
    /// is being entered, none is found.
    pub fn permanent_mac(&self, key: NeighbourKey) -> Option<MacAddr> {
        let mac = |all: &HashMap<_, (MacAddr, Origin)>| all.get(&key).map(|&(mac, _)| mac);
        for _ in 0..LOOKS {
            match self.permanent.try_read() {
                Ok(all) => return mac(&all),
                Err(TryLockError::Poisoned(poisoned)) => return mac(&poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// Those that somebody entered, for threads that have the right to change them.
    fn entered(&self) -> RwLockReadGuard<'_, HashMap<NeighbourKey, (MacAddr, Origin)>> {
        self.permanent.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody entered a neighbour's Ethernet address.
    pub(super) fn is_permanent(&self, key: NeighbourKey) -> bool {
        self.entered().contains_key(&key)
    }
}

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
        self.vrf.permanent.write().unwrap_or_else(PoisonError::into_inner).insert(key, (mac, origin));
        self.complete(index, key, mac);
        Ok(())
    }

    /// Forgets an address that somebody entered. Returns whether there was one.
    pub fn remove_neighbour(&mut self, key: NeighbourKey) -> bool {
        let was_entered = self.vrf.permanent.write().unwrap_or_else(PoisonError::into_inner).remove(&key).is_some();
        if was_entered {
            self.unresolve(key.0, key.1);
        }
        was_entered
    }

    /// The neighbours whose addresses somebody entered.
    pub fn permanent(&self) -> impl Iterator<Item = (NeighbourKey, MacAddr, Origin)> + use<> {
        let all: Vec<_> = self.vrf.entered().iter().map(|(&key, &(mac, origin))| (key, mac, origin)).collect();
        all.into_iter()
    }

    /// A neighbour's address that somebody entered, and who.
    pub fn permanent_of(&self, key: NeighbourKey) -> Option<(MacAddr, Origin)> {
        self.vrf.entered().get(&key).copied()
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
