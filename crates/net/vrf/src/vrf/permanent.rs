//! Neighbours whose Ethernet addresses somebody entered. What is heard from them changes nothing.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use bellows_wire::MacAddr;

use super::{Vrf, VrfChanges, VrfError, is_link_local};
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
            Origin::Kernel(_) => &mut self.of_kernel,
            Origin::Control | Origin::Connected | Origin::Neighbour => &mut self.by_command,
        }
    }

    /// The one that counts, and who entered it.
    fn first(&self) -> Option<(MacAddr, Origin)> {
        let Entered { by_command, configured, of_kernel } = *self;
        let all = [(by_command, Origin::Control), (configured, Origin::Static), (of_kernel, Origin::Kernel(0))];
        all.into_iter().find_map(|(mac, origin)| Some((mac?, origin)))
    }
}

/// How often a worker looks again for a neighbour while another one is being entered.
const LOOKS: usize = 64;

impl Vrf {
    /// A neighbour's Ethernet address that somebody entered. For workers, which do not wait: rarely, while another one
    /// is being entered, none is found.
    pub fn permanent_mac(&self, key: NeighbourKey) -> Option<MacAddr> {
        let mac = |all: &HashMap<_, Entered>| all.get(&key).and_then(Entered::first).map(|(mac, _)| mac);
        for _ in 0..LOOKS {
            match self.entered.try_read() {
                Ok(all) => return mac(&all),
                Err(TryLockError::Poisoned(poisoned)) => return mac(&poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// The number of neighbours with addresses of a family that somebody entered. For workers, which do not wait.
    pub fn permanent_of_family(&self, family: IpFamily) -> usize {
        self.entered_by_family[family as usize].load(Relaxed)
    }

    /// Those that somebody entered, for threads that have the right to change them.
    fn entered(&self) -> RwLockReadGuard<'_, HashMap<NeighbourKey, Entered>> {
        self.entered.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same to be changed, for a moment: workers look at them.
    fn entered_mut(&self) -> RwLockWriteGuard<'_, HashMap<NeighbourKey, Entered>> {
        self.entered.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody entered a neighbour's Ethernet address.
    pub(super) fn is_permanent(&self, key: NeighbourKey) -> bool {
        self.entered().contains_key(&key)
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
        let index = self.neighbour(key, (IpFamily::of(address), 0))?;
        let first = {
            let mut all = self.vrf.entered_mut();
            let entered = all.entry(key).or_default();
            if entered.first().is_none() {
                self.vrf.entered_by_family[IpFamily::of(address) as usize].fetch_add(1, Relaxed);
            }
            *entered.place(origin) = Some(mac);
            entered.first()
        };
        let mac = first.map_or(mac, |(first, _)| first);
        self.revive(key);
        self.vrf.change_watched();
        self.complete(index, key, mac);
        Ok(())
    }

    /// Forgets an address that somebody of this origin entered. Returns whether there was one. The neighbour then has the
    /// address that others have entered, or none.
    pub fn remove_neighbour(&mut self, key: NeighbourKey, origin: Origin) -> bool {
        let (was_entered, left) = {
            let mut all = self.vrf.entered_mut();
            let Some(entered) = all.get_mut(&key) else { return false };
            let was_entered = entered.place(origin).take().is_some();
            let left = entered.first();
            if left.is_none() {
                all.remove(&key);
                self.vrf.entered_by_family[IpFamily::of(key.1) as usize].fetch_sub(1, Relaxed);
            }
            (was_entered, left)
        };
        match (left, self.next_hops.own(key)) {
            (Some((mac, _)), Some(index)) => self.complete(index, key, mac),
            _ => self.unresolve(key.0, key.1),
        }
        self.vrf.change_watched();
        was_entered
    }

    /// The neighbours whose addresses somebody entered.
    pub fn permanent(&self) -> impl Iterator<Item = (NeighbourKey, MacAddr, Origin)> + use<> {
        let first =
            |(&key, entered): (&NeighbourKey, &Entered)| entered.first().map(|(mac, origin)| (key, mac, origin));
        let all: Vec<_> = self.vrf.entered().iter().filter_map(first).collect();
        all.into_iter()
    }

    /// The neighbours whose addresses are configured.
    pub(super) fn configured(&self) -> HashMap<NeighbourKey, MacAddr> {
        self.vrf.entered().iter().filter_map(|(&key, entered)| Some((key, entered.configured?))).collect()
    }

    /// A neighbour's address that somebody entered, and who.
    pub fn permanent_of(&self, key: NeighbourKey) -> Option<(MacAddr, Origin)> {
        self.vrf.entered().get(&key).and_then(Entered::first)
    }

    /// The interface on whose link an address is.
    ///
    /// # Errors
    /// If there is none, if the address may be on any link, or if no station can have it.
    pub fn link_of(&self, address: IpAddr) -> Result<u16, VrfError> {
        self.check_station((0, address))?;
        if is_link_local(address) {
            return Err(VrfError::LinkLocal(address));
        }
        let mut interfaces = (1..).zip(&self.vrf.interfaces);
        let found = interfaces.find(|(_, interface)| interface.has_on_link(address));
        found.map(|(number, _)| number).ok_or(VrfError::NoLink(address))
    }
}
