//! Stations that claim an address of the router.

use std::collections::HashMap;
use std::net::IpAddr;

use bellows_events::DuplicateAddress;
use bellows_wire::MacAddr;

/// The shortest time between two events about one address.
pub(crate) const PAUSE: u64 = 600_000_000_000;

/// Tells of stations that claim an address of the router, but not again and again.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    /// The app's name.
    app: String,
    /// When each address was last reported, by the number of its interface. No more than the router has.
    told: HashMap<(u16, IpAddr), u64>,
}

/// A station that claims an address of the router's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    /// The number and the name of the interface that has the address.
    pub(crate) interface: (u16, &'a str),
    pub(crate) address: IpAddr,
    pub(crate) station: MacAddr,
    /// What the router does about it.
    pub(crate) outcome: &'a str,
}

impl Conflicts {
    /// For an app.
    pub(crate) fn of(app: &str) -> Conflicts {
        Conflicts { app: app.to_owned(), told: HashMap::new() }
    }

    /// Logs a claim, unless one of the same address was logged lately.
    #[cold]
    pub(crate) fn tell(&mut self, claim: Claim<'_>, now: u64) {
        let Claim { interface: (number, interface), address, station, outcome } = claim;
        if !self.is_due((number, address), now) {
            return;
        }
        let (text, station) = (address.to_string(), station.to_string());
        let event = DuplicateAddress { app: &self.app, interface, address: &text, station: &station };
        event.log(format_args!(
            "the station {station} has the address {address} of the interface `{interface}`: {outcome}; give one of them \
             another address"
        ));
    }

    /// Whether to report an address, which counts as reported from then on.
    fn is_due(&mut self, key: (u16, IpAddr), now: u64) -> bool {
        let is_due = self.told.get(&key).is_none_or(|&last| now >= last + PAUSE);
        if is_due {
            self.told.insert(key, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_told_once_in_a_while() {
        let mut conflicts = Conflicts::of("arp");
        let keys =
            [(1, IpAddr::from([10, 0, 0, 1])), (2, IpAddr::from([10, 0, 0, 1])), (1, IpAddr::from([10, 0, 0, 2]))];
        for (now, expected) in [(5, true), (5, false), (PAUSE + 4, false), (PAUSE + 5, true), (PAUSE + 6, false)] {
            assert_eq!(keys.map(|key| conflicts.is_due(key, now)), [expected; 3], "{now}");
        }
    }
}
