//! The room for neighbours, which interfaces share: who gives way to whom.
//!
//! Strangers fill the room in two ways. A station announces many addresses as its own; and packets to many
//! addresses have the router ask for them. The first takes the room of the station's interface, the second that of the
//! interface that the packets came from. Who has less than the share of an interface displaces those of one that has
//! more. On one interface, those whom a packet wanted displace those that have only announced themselves, and
//! these give way by stations, the one with the most addresses first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use bellows_wire::MacAddr;

use super::NeighbourKey;

/// Neighbours that are looked at for one that may be displaced: some may be next hops of routes.
const LOOKS: usize = 16;

/// Whose room a neighbour takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It is asked for because of packets from this interface (0 for the router's own), and has not answered.
    Asked { origin: u16 },
    /// The same, and it is the next hop of a route: it stays.
    AskedHop,
    /// It has announced itself, and no packet was sent to it.
    Told(MacAddr),
    /// A packet wanted to know where it is.
    Wanted,
    /// It stays.
    Fixed,
}

/// Who needs room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newcomer {
    /// A station that announces itself.
    Told(MacAddr),
    /// A packet wants to know.
    Wanted,
}

/// The neighbours on the link of an interface.
#[derive(Debug, Default)]
struct InterfaceLink {
    count: usize,
    /// Those that have announced themselves, by their stations, in the order in which they came.
    told: HashMap<MacAddr, BTreeMap<u64, IpAddr>>,
    /// The stations by the numbers of these.
    by_size: BTreeSet<(usize, MacAddr)>,
    wanted: BTreeMap<u64, IpAddr>,
    /// Until when there is nobody to displace, as far as known.
    stuck_until: u64,
}

impl InterfaceLink {
    /// Changes the addresses that a station has announced.
    fn change_told(&mut self, mac: MacAddr, change: impl FnOnce(&mut BTreeMap<u64, IpAddr>)) {
        let told = self.told.entry(mac).or_default();
        let before = told.len();
        change(told);
        let after = told.len();
        if after == 0 {
            self.told.remove(&mac);
        }
        self.by_size.remove(&(before, mac));
        if after > 0 {
            self.by_size.insert((after, mac));
        }
    }
}

/// The room that is taken.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// All neighbours that are not watched, and those of them that have not answered.
    pub(super) all: usize,
    pub(super) incomplete: usize,
    /// By the number of the interface.
    links: Vec<InterfaceLink>,
    /// Those that are asked for, by the interface that the packets came from, in the order in which they came.
    asked: Vec<BTreeMap<u64, NeighbourKey>>,
}

/// The place of an interface in a list, which grows for it.
fn place<T: Default>(list: &mut Vec<T>, interface: u16) -> &mut T {
    let at = usize::from(interface);
    if list.len() <= at {
        list.resize_with(at + 1, T::default);
    }
    &mut list[at]
}

impl Room {
    /// A neighbour takes room. Its number says when it came.
    pub(super) fn enter(&mut self, (interface, address): NeighbourKey, class: Class, number: u64) {
        self.all += 1;
        self.incomplete += usize::from(matches!(class, Class::Asked { .. } | Class::AskedHop));
        let link = place(&mut self.links, interface);
        link.count += 1;
        // Perhaps it may be displaced.
        link.stuck_until = 0;
        match class {
            Class::Asked { origin } => _ = place(&mut self.asked, origin).insert(number, (interface, address)),
            Class::Told(mac) => link.change_told(mac, |told| _ = told.insert(number, address)),
            Class::Wanted => _ = link.wanted.insert(number, address),
            Class::AskedHop | Class::Fixed => {}
        }
    }

    /// It gives it back.
    pub(super) fn leave(&mut self, (interface, _): NeighbourKey, class: Class, number: u64) {
        self.all -= 1;
        self.incomplete -= usize::from(matches!(class, Class::Asked { .. } | Class::AskedHop));
        let link = place(&mut self.links, interface);
        link.count -= 1;
        match class {
            Class::Asked { origin } => _ = place(&mut self.asked, origin).remove(&number),
            Class::Told(mac) => link.change_told(mac, |told| _ = told.remove(&number)),
            Class::Wanted => _ = link.wanted.remove(&number),
            Class::AskedHop | Class::Fixed => {}
        }
    }

    /// The number of neighbours on an interface's link.
    pub(super) fn on_link(&self, interface: u16) -> usize {
        self.links.get(usize::from(interface)).map_or(0, |link| link.count)
    }

    /// The number of those that are asked for because of packets from an interface.
    #[inline]
    pub(super) fn asked_from(&self, origin: u16) -> usize {
        self.asked.get(usize::from(origin)).map_or(0, BTreeMap::len)
    }

    /// Whether a search on an interface has just found nobody to displace.
    #[inline]
    pub(super) fn is_stuck(&self, interface: u16, now: u64) -> bool {
        self.links.get(usize::from(interface)).is_some_and(|link| now < link.stuck_until)
    }

    /// Nobody is searched on an interface until then.
    pub(super) fn set_stuck(&mut self, interface: u16, until: u64) {
        place(&mut self.links, interface).stuck_until = until;
    }

    /// The oldest one that is asked for because of packets from the interface that has the most, if that is another one
    /// than `origin`, and the interface.
    pub(super) fn oldest_asked(&self, origin: u16) -> Option<(NeighbourKey, u16)> {
        let (most, all) = (0..).zip(&self.asked).max_by_key(|(_, all)| all.len())?;
        let (_, &oldest) = all.first_key_value().filter(|_| most != origin)?;
        Some((oldest, most))
    }

    /// Who gives way to a new neighbour on an interface, of which each may have `share`. `may_go` tells who may; it gets
    /// whether the other one must have been there for some time.
    pub(super) fn gives_way(
        &self,
        interface: u16,
        share: usize,
        newcomer: Newcomer,
        may_go: impl Fn(NeighbourKey, bool) -> bool,
    ) -> Option<NeighbourKey> {
        let most = || (0..).zip(&self.links).max_by_key(|(_, link)| link.count).filter(|(_, link)| link.count > share);
        let other = if self.on_link(interface) < share { most().filter(|(most, _)| *most != interface) } else { None };
        let (number, link) = match other {
            Some(other) => other,
            None => (interface, self.links.get(usize::from(interface))?),
        };
        let is_own = number == interface;
        let first = |all: &BTreeMap<u64, IpAddr>, stays_for_a_time: bool| {
            let keys = all.values().take(LOOKS).map(|&address| (number, address));
            keys.into_iter().find(|&key| may_go(key, stays_for_a_time))
        };
        let (size, station) = link.by_size.last().copied().unwrap_or_default();
        let own_size = match newcomer {
            Newcomer::Told(mac) if is_own => link.told.get(&mac).map_or(0, BTreeMap::len) + 1,
            _ => 0,
        };
        let told = link.told.get(&station).filter(|_| size > own_size).and_then(|told| first(told, false));
        let displaces_wanted = newcomer == Newcomer::Wanted || !is_own;
        told.or_else(|| if displaces_wanted { first(&link.wanted, is_own) } else { None })
    }
}
