//! The replacement of all routes at once.

use std::collections::BTreeMap;

use bellows_fib::{Address, Prefix, Rib, Route};

use super::operate::check_prefix;
use super::{VrfChanges, VrfError};
use crate::origin::{Origin, RouteKey};
use crate::route::{Action, IpPrefix, RouteSpec};

/// Routes that are to take the place of all that somebody entered. They have no effect until then.
#[derive(Default)]
pub struct Staged {
    v4: Vec<(Prefix<u32>, Route)>,
    v6: Vec<(Prefix<u128>, Route)>,
    /// Those of them that lead to the link of an interface alone.
    links: Vec<(IpPrefix, String)>,
}

/// What the replacement of all routes has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swapped {
    /// Routes before.
    pub before: usize,
    /// Routes now.
    pub after: usize,
    /// Staged routes in whose place later ones with the same prefix and metric are.
    pub repeated: usize,
}

impl Staged {
    /// The number of routes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a route does if its routers are on links that staged routes lead to; `None` if there are no such routes.
    fn on_links(&self, action: &Action) -> Option<Action> {
        let Action::Forward(hops) = action else { return None };
        let mut hops = hops.clone();
        let mut has_found = false;
        for hop in &mut hops {
            let Some(gateway) = hop.gateway else { continue };
            let is_link = |(prefix, interface): &&(IpPrefix, String)| {
                prefix.contains(gateway) && hop.interface.as_ref().is_none_or(|named| named == interface)
            };
            if let Some((_, interface)) = self.links.iter().rev().find(is_link) {
                (hop.interface, hop.onlink, has_found) = (Some(interface.clone()), true, true);
            }
        }
        has_found.then_some(Action::Forward(hops))
    }
}

impl VrfChanges<'_> {
    /// Adds a route to those that are to be entered.
    ///
    /// # Errors
    /// If its next hop is on no link, there is no room for its adjacency, or it would hide that of an interface.
    pub fn stage(&mut self, staged: &mut Staged, route: &RouteSpec) -> Result<(), VrfError> {
        let key = (route.prefix, route.metric);
        if self.number(key).is_some() {
            match self.origin(key) {
                Origin::Connected => return Err(VrfError::Connected(key.0, key.1)),
                Origin::Kernel(_) => return Err(VrfError::Kernel(key.0, key.1)),
                _ => {}
            }
        }
        check_prefix(route.prefix)?;
        let next = match self.next(&route.action, route.prefix.family(), self.number(key)) {
            Err(error @ (VrfError::Gateway(_) | VrfError::OffLink(..))) => {
                let action = staged.on_links(&route.action).ok_or(error)?;
                self.next(&action, route.prefix.family(), self.number(key))?
            }
            next => next?,
        };
        if let Action::Forward(hops) = &route.action {
            let links = hops.iter().filter(|hop| hop.gateway.is_none()).filter_map(|hop| hop.interface.clone());
            staged.links.extend(links.map(|interface| (route.prefix, interface)));
        }
        *self.next_hops.uses.entry(next).or_default() += 1;
        let entry = Route { metric: route.metric, next };
        match route.prefix {
            IpPrefix::V4(prefix) => staged.v4.push((prefix, entry)),
            IpPrefix::V6(prefix) => staged.v6.push((prefix, entry)),
        }
        Ok(())
    }

    /// Gives up staged routes.
    pub fn discard(&mut self, staged: Staged) {
        let v4 = staged.v4.into_iter().map(|(_, route)| route);
        v4.chain(staged.v6.into_iter().map(|(_, route)| route)).for_each(|route| {
            self.next_hops.retired.drop_use(route.next);
        });
    }

    /// Replaces all routes that somebody entered by the staged ones. Readers see the tables of a family change at once,
    /// with the [commit](VrfChanges::commit).
    pub fn swap(&mut self, staged: Staged) -> Swapped {
        let mut swapped = Swapped::default();
        let v4 = self.swapped(self.v4.rib(), staged.v4, IpPrefix::V4, &mut swapped);
        let v6 = self.swapped(self.v6.rib(), staged.v6, IpPrefix::V6, &mut swapped);
        let mut marks: BTreeMap<u32, u64> = BTreeMap::new();
        for (key, next, was) in v4.ended.iter().chain(&v6.ended).copied() {
            if was == Some(Origin::Static) {
                let mark = *marks.entry(next).or_insert_with(|| self.mark(next));
                self.next_hops.overridden.set(key, Some(mark));
            }
            if was.is_some() {
                self.next_hops.origins.set(key, None);
            }
            self.next_hops.retired.drop_use(next);
        }
        for key in v4.entered.iter().chain(&v6.entered) {
            self.next_hops.origins.set(*key, Some(Origin::Control));
        }
        self.v4.replace(v4.rib);
        self.v6.replace(v6.rib);
        v4.ended.iter().chain(&v6.ended).for_each(|(key, ..)| self.restore_neighbour(*key));
        swapped
    }

    /// All routes of a family, with the staged ones in place of those that somebody entered.
    fn swapped<A: Address>(
        &self,
        rib: &Rib<A>,
        mut staged: Vec<(Prefix<A>, Route)>,
        prefix_of: fn(Prefix<A>) -> IpPrefix,
        swapped: &mut Swapped,
    ) -> Swap<A> {
        let mut swap = Swap { rib: Rib::default(), ended: Vec::new(), entered: Vec::with_capacity(staged.len()) };
        for (prefix, route) in rib.iter() {
            let key = (prefix_of(prefix), route.metric);
            let origin = self.origin(key);
            if origin.is_entered() {
                swapped.before += 1;
                swap.ended.push((key, route.next, Some(origin)));
            } else {
                swap.rib.insert(prefix, route);
            }
        }
        // The sort is stable: of routes with the same key, the last one stays the last.
        staged.sort_by_key(|(prefix, route)| (*prefix, route.metric));
        for (prefix, route) in staged {
            let key = (prefix_of(prefix), route.metric);
            let is_repeated = swap.entered.last() == Some(&key);
            if is_repeated {
                swapped.repeated += 1;
            } else {
                swapped.after += 1;
                swap.entered.push(key);
            }
            // The route of a neighbour is no use of its next hop, but a staged one in its place is.
            if let Some(replaced) = swap.rib.insert(prefix, route)
                && (is_repeated || self.origin(key) != Origin::Neighbour)
            {
                swap.ended.push((key, replaced.next, None));
            }
        }
        swap
    }
}

struct Swap<A> {
    rib: Rib<A>,
    /// Uses of next hops that end: those of former routes with their origins, those of staged ones without.
    ended: Vec<(RouteKey, u32, Option<Origin>)>,
    entered: Vec<RouteKey>,
}
