//! The names and the numbers of the ports of a table.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bellows_config::ByName;
use schemars::JsonSchema;
use serde::Serialize;

use super::entry::{PORTS, PortNumber};

/// A port that a bridge has, for as long as the bridge has it.
#[derive(Clone, Debug)]
pub(crate) struct BridgePort {
    pub(crate) number: PortNumber,
    limited: Arc<Limited>,
    /// The bridges that have it.
    _users: Arc<()>,
}

impl BridgePort {
    /// Counts what a limit of the port, or of the table, has done.
    #[cold]
    pub(crate) fn count(&self, limit: PortLimit) {
        self.limited.0[limit as usize].fetch_add(1, Relaxed);
    }
}

/// What concerns single ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortLimit {
    TableFull,
    Displaced,
    PortFull,
    StormBroadcast,
    StormMulticast,
    StormUnknown,
}

impl PortLimit {
    /// The number of limits.
    const COUNT: usize = PortLimit::StormUnknown as usize + 1;
}

/// The counts of a port, for as long as the table has the port's name.
#[derive(Debug, Default)]
struct Limited([AtomicU64; PortLimit::COUNT]);

/// What a status says of a port: parts of the bridge's counters of these names.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Frames from a port beyond a limit")]
pub(super) struct LimitedFrames {
    /// Frames whose source the table had no room for.
    table_full: u64,
    /// Addresses of other ports or VLANs that gave way to new ones of this port.
    displaced: u64,
    /// Frames whose source is one more than `max_macs`.
    port_full: u64,
    /// Broadcast frames above the limit, which were dropped.
    storm_broadcast: u64,
    /// The same, multicast.
    storm_multicast: u64,
    /// The same, to unknown addresses.
    storm_unknown: u64,
}

/// A name with a number.
struct Named {
    name: String,
    users: Weak<()>,
    limited: Arc<Limited>,
    /// For how many looks in a row no bridge has had it.
    unused: u32,
}

/// After this number of looks, the addresses at a port that no bridge has are forgotten: in a reload, a bridge may be
/// gone before another one has its ports.
const UNUSED_LOOKS: u32 = 2;

/// The ports of a table. No more than [`PORTS`] at a time.
#[derive(Default)]
pub(super) struct PortList(Mutex<Vec<Named>>);

impl PortList {
    fn lock(&self) -> MutexGuard<'_, Vec<Named>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a port for a bridge that has it. `addresses` returns how many are known at a number. `None` if
    /// there are too many ports.
    pub(super) fn of_bridge(&self, name: &str, addresses: impl Fn(PortNumber) -> u32) -> Option<BridgePort> {
        let mut named = self.lock();
        let place = place(&mut named, name, addresses)?;
        let port = &mut named[place];
        let users = port.users.upgrade().unwrap_or_default();
        port.users = Arc::downgrade(&users);
        port.unused = 0;
        Some(BridgePort { number: place as PortNumber, limited: Arc::clone(&port.limited), _users: users })
    }

    /// The number of a port that a bridge may have later, as for [`PortList::of_bridge`].
    pub(super) fn number(&self, name: &str, addresses: impl Fn(PortNumber) -> u32) -> Option<PortNumber> {
        place(&mut self.lock(), name, addresses).map(|place| place as PortNumber)
    }

    /// The names of the ports by their numbers.
    pub(super) fn names(&self) -> Vec<String> {
        self.lock().iter().map(|port| port.name.clone()).collect()
    }

    /// The counts of each port by names.
    pub(super) fn limited(&self) -> ByName<LimitedFrames> {
        let counts = |port: &Named| {
            let counts = port.limited.0.each_ref().map(|count| count.load(Relaxed));
            let [table_full, displaced, port_full, storm_broadcast, storm_multicast, storm_unknown] = counts;
            LimitedFrames { table_full, displaced, port_full, storm_broadcast, storm_multicast, storm_unknown }
        };
        self.lock().iter().map(|port| (port.name.as_str(), counts(port))).collect()
    }

    /// The number of ports that bridges have.
    pub(super) fn in_use(&self) -> usize {
        self.lock().iter().filter(|port| port.users.strong_count() > 0).count()
    }

    /// Looks which ports no bridge has any more. For each number whether its addresses are to be forgotten.
    pub(super) fn unused(&self) -> Vec<bool> {
        let look = |port: &mut Named| {
            let is_used = port.users.strong_count() > 0;
            port.unused = if is_used { 0 } else { port.unused.saturating_add(1) };
            port.unused >= UNUSED_LOOKS
        };
        self.lock().iter_mut().map(look).collect()
    }
}

/// The place of a name, which may be new.
fn place(named: &mut Vec<Named>, name: &str, addresses: impl Fn(PortNumber) -> u32) -> Option<usize> {
    if let Some(known) = named.iter().position(|port| port.name == name) {
        return Some(known);
    }
    let new = Named { name: name.to_owned(), users: Weak::new(), limited: Arc::default(), unused: 0 };
    // A number whose addresses are all forgotten has another name from now on.
    let is_free = |(number, port): (usize, &Named)| {
        port.unused > UNUSED_LOOKS && port.users.strong_count() == 0 && addresses(number as PortNumber) == 0
    };
    match named.iter().enumerate().position(is_free) {
        Some(free) => {
            named[free] = new;
            Some(free)
        }
        None if named.len() == PORTS => None,
        None => {
            named.push(new);
            Some(named.len() - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_when_nothing_is_known_at_the_port() {
        let ports = PortList::default();
        let addresses = |number| u32::from(number == 7);
        let all: Vec<BridgePort> =
            (0..PORTS).filter_map(|port| ports.of_bridge(&port.to_string(), addresses)).collect();
        assert_eq!((all.len(), ports.number("more", addresses)), (PORTS, None));
        assert_eq!(ports.of_bridge("7", addresses).map(|port| port.number), Some(7));
        drop(all);
        assert!(ports.unused().iter().all(|&unused| !unused), "a reload may go on");
        assert_eq!(ports.number("more", addresses), None);
        assert!(ports.unused().iter().all(|&unused| unused));
        ports.unused();
        let number = |port: usize| ports.number(&format!("new {port}"), addresses);
        let numbers: Vec<PortNumber> = (0..PORTS).filter_map(number).collect();
        assert_eq!((numbers.len(), numbers.contains(&7), &*ports.names()[7]), (PORTS - 1, false, "7"));
    }
}
