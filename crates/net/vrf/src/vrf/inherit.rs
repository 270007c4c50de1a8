//! What remains of a domain when its configuration has changed: what commands did, and what neighbours said.

use std::collections::HashMap;

use bellows_fib::{Path, Route};

use super::{IfExists, Vrf, VrfChanges, VrfError};
use crate::family::IpFamily;
use crate::neighbours::NeighbourKey;
use crate::origin::{Origin, RouteKey};
use crate::route::{Action, IpPrefix, RouteSpec};

/// What became of the routes and neighbours of a former domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// Routes that are new, or lead elsewhere.
    pub changed: usize,
    /// Routes that are gone.
    pub removed: usize,
    /// Routes of commands that could not be kept, because their next hops are on no link any more.
    pub lost: usize,
}

/// All routes of a domain, with where they lead and where they come from.
fn all(changes: &VrfChanges<'_>) -> Vec<(RouteKey, u32, Origin)> {
    let v4 = changes.v4.rib().iter().map(|(prefix, route)| (IpPrefix::V4(prefix), route));
    let v6 = changes.v6.rib().iter().map(|(prefix, route)| (IpPrefix::V6(prefix), route));
    let route = |(prefix, Route { metric, next }): (IpPrefix, Route)| {
        let key = (prefix, metric);
        (key, next, changes.origin(key))
    };
    v4.chain(v6).map(route).filter(|(.., origin)| origin.is_entered()).collect()
}

/// The next hops of one domain in another one with interfaces of the same names.
struct Translation<'o, 'n, 'v> {
    from: &'o VrfChanges<'o>,
    to: &'n mut VrfChanges<'v>,
    known: HashMap<u32, (Option<u32>, u64)>,
}

impl Translation<'_, '_, '_> {
    /// The number of a next hop in the other domain, if its interface is still there, and its mark.
    fn of(&mut self, next: u32, packets: IpFamily) -> (Option<u32>, u64) {
        if let Some(&known) = self.known.get(&next) {
            return known;
        }
        let number = self.from.action(next).and_then(|action| self.to.next(&action, packets, None).ok());
        let translated = (number, self.from.mark(next));
        self.known.insert(next, translated);
        translated
    }
}

impl VrfChanges<'_> {
    /// Changes the configuration's neighbours to those of a domain with the same interfaces.
    fn follow_neighbours(&mut self, new: &VrfChanges<'_>) {
        let (wanted, known) = (new.configured(), self.configured());
        for key in known.keys().filter(|key| !wanted.contains_key(key)) {
            self.remove_neighbour(*key, Origin::Static);
        }
        for (&key, &mac) in &wanted {
            if known.get(&key) != Some(&mac) {
                // Its interface is there, and without room for an adjacency the neighbour is asked.
                let _ = self.enter_neighbour(key, mac, Origin::Static);
            }
        }
    }
}

impl Vrf {
    /// The key that a neighbour has in another domain, if it is still on the link of the interface of that name.
    pub fn same_neighbour(&self, (number, address): NeighbourKey, other: &Vrf) -> Option<NeighbourKey> {
        let before = self.interface(number)?;
        let number = other.number(&before.name)?;
        let now = other.interface(number)?;
        let is_same = (&now.port, &now.tags, now.mac) == (&before.port, &before.tags, before.mac);
        (is_same && (now.has_on_link(address) || super::is_link_local(address))).then_some((number, address))
    }

    /// Changes the configuration's routes to those of another domain with the same interfaces. What commands did stays:
    /// a route that one entered, and the absence of one that it removed, unless the configuration's own route has
    /// changed.
    ///
    /// # Errors
    /// If there is no memory, or no room for an adjacency.
    pub fn follow(&self, new: &Vrf) -> Result<Inherited, VrfError> {
        let (mut live, new) = (self.lock(), new.lock());
        let mut inherited = Inherited::default();
        let wanted = all(&new);
        let keys: std::collections::HashSet<RouteKey> = wanted.iter().map(|(key, ..)| *key).collect();
        for (key, _, origin) in all(&live) {
            if origin == Origin::Static && !keys.contains(&key) {
                live.leave(key);
                live.restore_neighbour(key);
                inherited.removed += 1;
            }
        }
        let gone: Vec<RouteKey> =
            live.next_hops.overridden.iter().map(|(key, _)| key).filter(|key| !keys.contains(key)).collect();
        for key in gone {
            live.next_hops.overridden.set(key, None);
        }
        drop(keys);
        let mut translation = Translation { from: &new, to: &mut live, known: HashMap::new() };
        for (key, next, _) in wanted {
            let (number, mark) = translation.of(next, key.0.family());
            let live = &mut *translation.to;
            let Some(number) = number else {
                inherited.lost += 1;
                continue;
            };
            let current = live.number(key).map(|next| (next, live.origin(key)));
            match current {
                Some((same, Origin::Static)) if same == number => continue,
                Some((_, Origin::Connected)) => continue,
                // A command came first, and the configuration has not changed since. A neighbour's own route, or one of
                // Linux, may be in the place of a route that it removed.
                _ if live.next_hops.overridden.get(key) == Some(mark) => continue,
                Some((_, Origin::Control)) if live.next_hops.overridden.get(key).is_none() => {
                    live.next_hops.overridden.set(key, Some(mark));
                    continue;
                }
                _ => {}
            }
            live.next_hops.overridden.set(key, None);
            live.enter(key.0, Route { metric: key.1, next: number }, Origin::Static);
            inherited.changed += 1;
        }
        // Nothing may lead to the next hops of routes that commands have replaced or removed.
        let numbers = translation.known.into_values().filter_map(|(number, _)| number);
        let numbers: Vec<Path> = numbers.map(|next| Path { next, weight: 1 }).collect();
        live.leave_unused(&numbers);
        live.follow_neighbours(&new);
        drop(new);
        live.commit()?;
        Ok(inherited)
    }

    /// Takes over from a domain with other interfaces what commands did, and the neighbours on links that are still
    /// there.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn inherit(&self, old: &Vrf) -> Result<Inherited, VrfError> {
        let (mut own, old) = (self.lock(), old.lock());
        let mut inherited = Inherited::default();
        for (key, mark) in old.next_hops.overridden.iter() {
            if let Some(next) = own.number(key)
                && own.origin(key) == Origin::Static
                && own.mark(next) == mark
            {
                own.leave(key);
                own.next_hops.overridden.set(key, Some(mark));
                inherited.removed += 1;
            }
        }
        for ((prefix, metric), next, _) in all(&old).into_iter().filter(|(.., origin)| *origin == Origin::Control) {
            let key = (prefix, metric);
            // The configuration has changed since the command.
            if own.number(key).is_some() && old.next_hops.overridden.get(key).is_some() {
                continue;
            }
            let kept = old.action(next).is_some_and(|mut action| {
                // The interface may have other addresses now; Linux keeps such routes as well.
                if let Action::Forward(hops) = &mut action {
                    hops.iter_mut().for_each(|hop| hop.onlink = true);
                }
                let route = RouteSpec { prefix, action, metric };
                own.number(key).is_none() && own.add_from(&route, IfExists::Refuse, Origin::Control).is_ok()
            });
            inherited.changed += usize::from(kept);
            inherited.lost += usize::from(!kept);
        }
        for (key, mac, _) in old.permanent().filter(|(.., origin)| *origin == Origin::Control) {
            let key = old.vrf.same_neighbour(key, self);
            let kept = key.is_some_and(|key| own.enter_neighbour(key, mac, Origin::Control).is_ok());
            inherited.lost += usize::from(!kept);
        }
        drop(old);
        own.commit()?;
        Ok(inherited)
    }
}
