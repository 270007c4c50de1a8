//! What reaches the tables, and which next hops are watched.

use std::sync::Arc;

use bellows_engine::{App, Io};
use bellows_wire::MacAddr;

use super::{MAX_DUE, Resolver};
use crate::vrf::requests::ReportedNeighbourState;
use crate::vrf::resolved::ShownNeighbour;

/// What the tables are to know of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NeighbourChange {
    /// Its Ethernet address.
    Known(MacAddr),
    /// That this is not known.
    Gone,
    /// That it does not answer.
    Failed,
}

/// The time after which changes that found the tables locked are tried again.
const RETRY_NS: u64 = 1_000_000;

/// The time after which an idle app looks whether there are next hops to watch.
const LOOK_NS: u64 = 1_000_000_000;

impl Resolver {
    /// Puts changes into the tables, unless another thread is changing them, and shows the neighbours. Wakes the app
    /// when something is due. Returns the number of neighbours that found no room in the tables.
    pub(crate) fn upkeep<A: App>(&mut self, io: &Io<A>) -> u64 {
        self.forget(io.now());
        let mut refused = 0;
        if (!self.changes.is_empty() || self.is_moving_flows) && !self.publish(&mut refused) {
            io.wake_at(io.now() + RETRY_NS);
        }
        if !self.follow_watched(io.now()) {
            io.wake_at(io.now() + RETRY_NS);
        }
        if let Some(deadline) = self.neighbours.next_deadline() {
            io.wake_at(deadline);
        }
        io.wake_each(LOOK_NS);
        self.show(io);
        refused
    }

    /// Returns whether the tables have all changes, and groups of next hops have followed.
    pub(super) fn publish(&mut self, refused: &mut u64) -> bool {
        let domain = Arc::clone(&self.domain);
        let Some(mut tables) = domain.tables().try_lock() else { return false };
        let changes = std::mem::take(&mut self.changes);
        // Those that are gone make room for those that are new.
        for (&(interface, address), change) in &changes {
            match change {
                NeighbourChange::Known(_) => {}
                NeighbourChange::Gone => tables.unresolve(interface, address),
                NeighbourChange::Failed => tables.fail(interface, address),
            }
        }
        for ((interface, address), change) in changes {
            // Without room for an adjacency, packets go on to come here.
            let NeighbourChange::Known(mac) = change else { continue };
            *refused += u64::from(tables.resolve(interface, address, mac).is_err());
        }
        let is_committed = tables.commit().is_ok();
        self.is_moving_flows = !tables.have_groups_followed();
        is_committed && !self.is_moving_flows
    }

    /// Follows the list of next hops that are to be watched, a page at a time. Returns whether nothing is left to do.
    fn follow_watched(&mut self, now: u64) -> bool {
        let domain = Arc::clone(&self.domain);
        let is_begun = self.watched_up_to.is_some();
        if now < self.watches_from || (!is_begun && self.watch_version == Some(domain.tables().watch_version())) {
            return true;
        }
        let Some(tables) = domain.tables().try_lock() else { return false };
        if !is_begun {
            self.watch_version = Some(domain.tables().watch_version());
        }
        let after = self.watched_up_to;
        let (keys, last) = tables.watched(self.family, after, MAX_DUE);
        drop(tables);
        self.unshown.extend(self.neighbours.watch(&keys, after, last, now));
        self.watched_up_to = last;
        last.is_none()
    }

    /// Shows the neighbours that have changed, unless another thread is reading.
    fn show<A: App>(&mut self, io: &Io<A>) {
        if self.unshown.is_empty() {
            return;
        }
        let Ok(mut shown) = self.shown.0.try_lock() else { return io.wake_at(io.now() + RETRY_NS) };
        for key in self.unshown.drain() {
            let Some((state, mac)) = self.neighbours.state(key) else {
                shown.remove(&key);
                continue;
            };
            let (number, address) = key;
            let interface = self.domain.tables().interface(number).map_or_else(String::new, |it| it.name.clone());
            let (state, waiting) = (ReportedNeighbourState::from(state), self.waiting.get(&key).map_or(0, Vec::len));
            let same = shown.get(&key).filter(|before| before.state == state && before.mac == mac);
            let since = same.map_or(io.now(), |same| same.since);
            shown.insert(key, ShownNeighbour { interface, address, state, mac, since, waiting });
        }
    }
}
