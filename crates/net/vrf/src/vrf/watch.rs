//! The next hops of groups: one whose neighbour does not answer is out of use while another one of its group does.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use bellows_fib::Path;

use super::{Vrf, VrfChanges};
use crate::family::IpFamily;
use crate::neighbours::NeighbourKey;

/// The next hops of groups that have an address, by its family.
#[derive(Default)]
pub(super) struct Watched {
    v4: BTreeMap<NeighbourKey, Watch>,
    v6: BTreeMap<NeighbourKey, Watch>,
}

/// A next hop of groups.
#[derive(Default)]
struct Watch {
    /// The paths of groups that lead to it.
    paths: usize,
    has_failed: bool,
}

impl Watched {
    fn of(&self, family: IpFamily) -> &BTreeMap<NeighbourKey, Watch> {
        match family {
            IpFamily::V4 => &self.v4,
            IpFamily::V6 => &self.v6,
        }
    }

    fn of_mut(&mut self, family: IpFamily) -> &mut BTreeMap<NeighbourKey, Watch> {
        match family {
            IpFamily::V4 => &mut self.v4,
            IpFamily::V6 => &mut self.v6,
        }
    }
}

impl Vrf {
    /// A number that changes when other next hops are to be [watched](VrfChanges::watched).
    pub fn watch_version(&self) -> u64 {
        self.watch_version.load(Ordering::Acquire)
    }

    /// Has the watchers of next hops look which ones they are.
    pub(super) fn change_watched(&self) {
        self.watch_version.fetch_add(1, Ordering::Release);
    }
}

impl VrfChanges<'_> {
    /// Up to `limit` next hops of groups behind `after`, in order, whose neighbours are to be found without packets to
    /// them, and asked from time to time; without those whose Ethernet addresses somebody entered, which do not fail.
    /// Also returns the last one that was looked at, if there may be more.
    pub fn watched(
        &self,
        family: IpFamily,
        after: Option<NeighbourKey>,
        limit: usize,
    ) -> (Vec<NeighbourKey>, Option<NeighbourKey>) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page: Vec<NeighbourKey> = self
            .next_hops
            .watched
            .of(family)
            .range((start, Bound::Unbounded))
            .take(limit)
            .map(|(&key, _)| key)
            .collect();
        let last = page.last().copied().filter(|_| page.len() == limit);
        (page.into_iter().filter(|&key| !self.vrf.is_permanent(key)).collect(), last)
    }

    /// Forgets the Ethernet address of a neighbour that has ceased to answer. Groups do not use it, as far as they have
    /// other next hops, until it is [resolved](VrfChanges::resolve). That takes effect with commits, until all groups
    /// [have followed](VrfChanges::have_groups_followed).
    pub fn fail(&mut self, interface: u16, address: IpAddr) {
        let key = (interface, address);
        if self.vrf.is_permanent(key) {
            return;
        }
        self.unresolve(interface, address);
        if let Some(watch) = self.next_hops.watched.of_mut(IpFamily::of(address)).get_mut(&key) {
            watch.has_failed = true;
            self.set_out_of_use(key, true);
        }
    }

    /// Whether all groups use the next hops that they should. If not, it takes further commits.
    pub fn have_groups_followed(&self) -> bool {
        self.groups.is_settled()
    }

    /// The share of flows that a way of a route has now, from 0 to 1.
    pub fn share(&self, next: u32, way: u32) -> f64 {
        self.groups.share(next, way).unwrap_or(1.0)
    }

    /// A neighbour answers, or its Ethernet address is entered: groups use it again.
    pub(super) fn revive(&mut self, key: NeighbourKey) {
        let watch = self.next_hops.watched.of_mut(IpFamily::of(key.1)).get_mut(&key);
        if let Some(watch) = watch.filter(|watch| watch.has_failed) {
            watch.has_failed = false;
            self.set_out_of_use(key, false);
        }
    }

    /// The paths of a new group are to be watched.
    pub(super) fn watch(&mut self, paths: &[Path]) {
        for path in paths {
            let Some(key) = self.neighbour_of(path.next) else { continue };
            let watch = self.next_hops.watched.of_mut(IpFamily::of(key.1)).entry(key).or_default();
            watch.paths += 1;
            if watch.has_failed {
                self.groups.set_out_of_use(path.next, true);
            }
            if watch.paths == 1 {
                self.vrf.change_watched();
            }
        }
    }

    /// A group with these paths has ended.
    pub(super) fn unwatch(&mut self, paths: &[Path]) {
        for path in paths {
            let Some(key) = self.neighbour_of(path.next) else { continue };
            let watched = self.next_hops.watched.of_mut(IpFamily::of(key.1));
            let Some(watch) = watched.get_mut(&key) else { continue };
            watch.paths -= 1;
            if watch.paths == 0 {
                watched.remove(&key);
                self.set_out_of_use(key, false);
                self.vrf.change_watched();
            }
        }
    }

    /// The neighbour of an adjacency, if it is that of one.
    fn neighbour_of(&self, next: u32) -> Option<NeighbourKey> {
        let adjacency = self.vrf.adjacencies.get(next)?;
        adjacency.next_hop.map(|next_hop| (adjacency.interface, next_hop))
    }

    fn set_out_of_use(&mut self, key: NeighbourKey, is_out: bool) {
        for (_, next) in self.next_hops.all(key) {
            self.groups.set_out_of_use(next, is_out);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bellows_shared::Readers;
    use bellows_wire::MacAddr;

    use super::*;
    use crate::adjacency::Adjacencies;
    use crate::interface::{Interface, InterfaceAddress};
    use crate::route::RouteSpec;
    use crate::vrf::IfExists;

    #[test]
    fn a_number_that_was_out_of_use_is_in_use_for_another_neighbour() {
        let interface = Interface {
            name: "a".to_owned(),
            port: "a".to_owned(),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: ["10.0.1.1", "fe80::1"]
                .map(|address| InterfaceAddress { address: address.parse().unwrap(), length: 24 })
                .to_vec(),
        };
        // Numbers are used again at once.
        let adjacencies = Adjacencies::with_rest(5, 0, 0);
        let vrf = Vrf::with(vec![interface], 5, 7, adjacencies, Arc::new(Readers::new())).unwrap();
        let mut changes = vrf.lock();
        let add = |changes: &mut VrfChanges<'_>, route: &str| {
            changes.add(&RouteSpec::parse(route).unwrap(), IfExists::Refuse).unwrap();
            changes.commit().unwrap();
            assert!(changes.give_back(usize::MAX));
        };
        add(&mut changes, "2001:db8:1::/48 nexthop via fe80::10 dev a nexthop via fe80::11 dev a");
        add(&mut changes, "20.1.0.0/16 nexthop via inet6 fe80::10 dev a nexthop via 10.0.1.10");
        changes.fail(1, "fe80::10".parse().unwrap());
        // Of the two adjacencies of the neighbour, that for IPv4 packets goes, and its number is another one's.
        assert!(changes.remove("20.1.0.0/16".parse().unwrap(), None));
        changes.commit().unwrap();
        assert!(changes.give_back(usize::MAX));
        add(&mut changes, "20.1.0.0/16 nexthop via 10.0.1.11 nexthop via 10.0.1.12");
        assert_eq!((vrf.adjacencies().used(), changes.groups()), (5, (2, 4, 1)));
    }
}
