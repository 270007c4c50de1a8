//! Neighbours that the kernel has for good, in the routing domain.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Bound;

use bellows_netif::route::KernelNeighbour;
use bellows_vrf::{Origin, VrfError};
use bellows_wire::MacAddr;

use crate::vrf::RoutingDomain;

/// A device of the kernel, and an address on its link.
type KernelNeighbourKey = (u32, IpAddr);

/// What the routing domain has from the kernel, and what it has refused.
#[derive(Default)]
pub(super) struct Neighbours {
    known: HashMap<KernelNeighbourKey, Known>,
    /// Those that cannot be entered, or for which there was no room.
    refused: BTreeMap<KernelNeighbourKey, MacAddr>,
    /// The number of the present reading.
    generation: u32,
    /// Behind which of those that were refused to go on trying.
    behind: Option<KernelNeighbourKey>,
}

/// A neighbour that the routing domain has.
struct Known {
    interface: u16,
    mac: MacAddr,
    /// The reading that last had it.
    generation: u32,
}

impl Neighbours {
    /// The number of those that the routing domain has.
    pub(super) fn followed(&self) -> usize {
        self.known.len()
    }

    /// The number of those that it has refused.
    pub(super) fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Begins a reading of all neighbours. What was read before, also by a predecessor, is older.
    pub(super) fn begin_reading(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Ends a reading that had these. Returns those that are gone.
    pub(super) fn end_reading(&mut self, read: &[KernelNeighbour]) -> Vec<KernelNeighbour> {
        let there: HashSet<KernelNeighbourKey> =
            read.iter().map(|neighbour| (neighbour.device, neighbour.address)).collect();
        self.refused.retain(|key, _| there.contains(key));
        let is_gone = |(_, known): &(&KernelNeighbourKey, &Known)| known.generation != self.generation;
        let gone = |(&(device, address), _)| KernelNeighbour { device, address, mac: None };
        self.known.iter().filter(is_gone).map(gone).collect()
    }

    /// Up to `count` of those that were refused and may be entered now: others, until all had their turn.
    pub(super) fn waiting(&mut self, count: usize) -> Vec<KernelNeighbour> {
        let start = self.behind.map_or(Bound::Unbounded, Bound::Excluded);
        let refused = self.refused.range((start, Bound::Unbounded)).filter(|(_, mac)| mac.is_station());
        let neighbour = |(&(device, address), &mac)| KernelNeighbour { device, address, mac: Some(mac) };
        let waiting: Vec<KernelNeighbour> = refused.take(count).map(neighbour).collect();
        let last = waiting.last().map(|neighbour| (neighbour.device, neighbour.address));
        self.behind = last.filter(|_| waiting.len() == count);
        waiting
    }

    /// Makes the routing domain have a neighbour as the kernel has it, on the interface of its device, if there is one.
    ///
    /// # Errors
    /// If the tables cannot be compiled.
    pub(super) fn set(
        &mut self,
        domain: &RoutingDomain,
        neighbour: &KernelNeighbour,
        interface: Option<u16>,
    ) -> Result<(), VrfError> {
        let key = (neighbour.device, neighbour.address);
        let generation = self.generation;
        let wanted = neighbour.mac.zip(interface);
        self.refused.remove(&key);
        if let (Some((mac, interface)), Some(known)) = (wanted, self.known.get_mut(&key))
            && (known.mac, known.interface) == (mac, interface)
        {
            known.generation = generation;
            return Ok(());
        }
        let before = self.known.remove(&key);
        if before.is_none() && wanted.is_none() {
            return Ok(());
        }
        let mut changes = domain.tables().lock();
        // One on another interface stays for nobody.
        let gone = before.map(|known| known.interface).filter(|&known| wanted.is_none_or(|(_, now)| now != known));
        if let Some(interface) = gone {
            let key = (interface, neighbour.address);
            domain.forgotten().forget([key]);
            changes.remove_neighbour(key, Origin::Kernel(0));
        }
        if let Some((mac, interface)) = wanted {
            let own = (interface, neighbour.address);
            if mac.is_station() && changes.enter_neighbour(own, mac, Origin::Kernel(0)).is_ok() {
                self.known.insert(key, Known { interface, mac, generation });
            } else {
                changes.remove_neighbour(own, Origin::Kernel(0));
                self.refused.insert(key, mac);
            }
        }
        changes.commit()
    }

    /// Removes all from the routing domain.
    pub(super) fn retract(self, domain: &RoutingDomain) {
        let mut changes = domain.tables().lock();
        let keys: Vec<_> = self.known.iter().map(|(&(_, address), known)| (known.interface, address)).collect();
        // What was heard of them meanwhile has not reached the tables.
        domain.forgotten().forget(keys.iter().copied());
        for key in keys {
            changes.remove_neighbour(key, Origin::Kernel(0));
        }
        // Without memory the next commit tries again.
        let _ = changes.commit();
    }
}
