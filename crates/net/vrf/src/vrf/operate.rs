//! Routes that commands change while packets flow.

use bellows_fib::Route;

use super::{IfExists, VrfChanges, VrfError};
use crate::adjacency::AdjacencyKind;
use crate::command::RouteCommand;
use crate::origin::{Origin, RouteKey};
use crate::route::{Action, IpPrefix, NextHop, RoutePattern, RouteSpec};

/// What a command has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// There is one more route.
    Added,
    /// Another route, or one with more ways, is in the place of one.
    Replaced,
    /// There is one route less.
    Deleted,
}

/// A route before a change, if there was one, and what was overridden.
struct Before {
    key: RouteKey,
    route: Option<(u32, Origin)>,
    overridden: Option<u64>,
}

/// Commands that take effect together, or not at all.
pub struct CommandBatch<'c, 'v> {
    changes: &'c mut VrfChanges<'v>,
    undo: Vec<Before>,
}

impl<'v> VrfChanges<'v> {
    /// Begins commands that take effect together.
    pub fn batch(&mut self) -> CommandBatch<'_, 'v> {
        CommandBatch { changes: self, undo: Vec::new() }
    }

    /// Enters a route that comes from somewhere.
    ///
    /// # Errors
    /// As for [`VrfChanges::add`].
    pub fn add_from(&mut self, route: &RouteSpec, if_exists: IfExists, origin: Origin) -> Result<(), VrfError> {
        let key = (route.prefix, route.metric);
        let exists = self.has(route.prefix, route.metric) && self.origin(key) != Origin::Neighbour;
        if if_exists == IfExists::Refuse && exists {
            return Err(VrfError::Exists(route.prefix, route.metric));
        }
        check_prefix(route.prefix)?;
        let next = self.next(&route.action, route.prefix.family(), self.number(key))?;
        self.enter(route.prefix, Route { metric: route.metric, next }, origin);
        Ok(())
    }

    /// Where a route comes from; for a route that exists.
    pub fn origin(&self, key: RouteKey) -> Origin {
        self.next_hops.origins.get(key).unwrap_or_default()
    }

    /// The number of the route of a key, if there is one.
    pub(super) fn number(&self, (prefix, metric): RouteKey) -> Option<u32> {
        self.routes(prefix).iter().find(|route| route.metric == metric).map(|route| route.next)
    }

    /// Enters a route. Returns the number and the origin of the one in whose place it is.
    pub(super) fn enter(&mut self, prefix: IpPrefix, route: Route, origin: Origin) -> Option<(u32, Origin)> {
        let key = (prefix, route.metric);
        let before = self.origin(key);
        if origin.is_use() {
            *self.next_hops.uses.entry(route.next).or_default() += 1;
        }
        let replaced = self.insert(prefix, route).map(|replaced| (replaced.next, before));
        self.end_use(replaced);
        self.next_hops.origins.set(key, (origin != Origin::Static).then_some(origin));
        replaced
    }

    /// Removes a route. Returns its number and its origin.
    pub(super) fn leave(&mut self, key: RouteKey) -> Option<(u32, Origin)> {
        let before = self.origin(key);
        let removed = self.take(key.0, Some(key.1)).map(|removed| (removed.next, before));
        self.end_use(removed);
        self.next_hops.origins.set(key, None);
        removed
    }

    /// Gives a neighbour that is known its own route again, if a route with this key hid it and is gone.
    pub(super) fn restore_neighbour(&mut self, key: RouteKey) {
        let (Some(address), 0) = (key.0.address_of_host(), key.1) else { return };
        let (Ok(number), None) = (self.link_of(address), self.number(key)) else { return };
        let index = self.next_hops.own((number, address));
        let known = index.and_then(|index| self.vrf.adjacencies.get(index));
        if let (Some(next), Some(adjacency)) = (index, known)
            && adjacency.kind == AdjacencyKind::Complete
        {
            self.enter(key.0, Route { metric: 0, next }, Origin::Neighbour);
        }
    }

    fn end_use(&mut self, ended: Option<(u32, Origin)>) {
        if let Some((next, origin)) = ended
            && origin.is_use()
        {
            self.next_hops.retired.drop_use(next);
        }
    }

    /// Whether what becomes of packets is what an action says.
    fn is_action(&self, next: u32, action: &Action) -> bool {
        let Some(own) = self.action(next) else { return false };
        match (own, action) {
            (Action::Forward(own), Action::Forward(wanted)) => {
                let is_same = |one: &NextHop, other: &NextHop| {
                    one.gateway == other.gateway
                        && (other.interface.is_none() || one.interface == other.interface)
                        && (wanted.len() == 1 || one.weight == other.weight)
                        && (other.mtu.is_none() || one.mtu == other.mtu)
                };
                own.len() == wanted.len() && wanted.iter().all(|hop| own.iter().any(|it| is_same(it, hop)))
            }
            (own, action) => own == *action,
        }
    }
}

/// Refuses prefixes that nothing is forwarded to.
pub(super) fn check_prefix(prefix: IpPrefix) -> Result<(), VrfError> {
    prefix.reserved().map_or(Ok(()), |block| Err(VrfError::Reserved(prefix, block)))
}

impl CommandBatch<'_, '_> {
    /// Carries out a command, which takes effect with the others.
    ///
    /// # Errors
    /// If there is a route already, or none, or its next hop is on no link; then nothing is changed.
    pub fn apply(&mut self, command: &RouteCommand) -> Result<Done, VrfError> {
        match command {
            RouteCommand::Add(route) => {
                let (key, exists) = self.find(route)?;
                if exists {
                    return Err(VrfError::Exists(key.0, key.1));
                }
                self.enter(key, &route.action)
            }
            RouteCommand::Replace(route) => {
                let (key, _) = self.find(route)?;
                self.enter(key, &route.action)
            }
            RouteCommand::Append(route) => {
                let (key, exists) = self.find(route)?;
                if !exists {
                    return self.enter(key, &route.action);
                }
                let known = self.changes.number(key).and_then(|next| self.changes.action(next));
                let (Some(Action::Forward(mut hops)), Action::Forward(more)) = (known, &route.action) else {
                    return Err(VrfError::NotForwarding(key.0));
                };
                hops.extend(more.iter().cloned());
                // It is the route's, not that of a way.
                let mtu = route.action.mtu().or_else(|| hops.iter().find_map(|hop| hop.mtu));
                hops.iter_mut().for_each(|hop| hop.mtu = mtu);
                self.enter(key, &Action::Forward(hops))
            }
            RouteCommand::Delete(pattern) => self.delete(pattern),
        }
    }

    /// Takes back everything.
    pub fn undo(&mut self) {
        while let Some(Before { key, route, overridden }) = self.undo.pop() {
            match route {
                Some((next, origin)) => drop(self.changes.enter(key.0, Route { metric: key.1, next }, origin)),
                None => drop(self.changes.leave(key)),
            }
            self.changes.next_hops.overridden.set(key, overridden);
        }
    }

    /// Takes out all routes that commands entered, and those of the configuration.
    pub fn flush(&mut self, keys: impl IntoIterator<Item = RouteKey>) -> usize {
        let mut count = 0;
        for key in keys {
            if self.changes.origin(key).is_entered() {
                count += usize::from(self.remove(key));
            }
        }
        count
    }

    /// The key of a route, and whether somebody entered one with it.
    fn find(&self, route: &RouteSpec) -> Result<(RouteKey, bool), VrfError> {
        check_prefix(route.prefix)?;
        let key = (route.prefix, route.metric);
        if self.changes.number(key).is_none() {
            return Ok((key, false));
        }
        match self.changes.origin(key) {
            Origin::Connected => Err(VrfError::Connected(key.0, key.1)),
            Origin::Kernel(_) => Err(VrfError::Kernel(key.0, key.1)),
            Origin::Neighbour => Ok((key, false)),
            Origin::Static | Origin::Control => Ok((key, true)),
        }
    }

    fn enter(&mut self, key: RouteKey, action: &Action) -> Result<Done, VrfError> {
        let next = self.changes.next(action, key.0.family(), self.changes.number(key))?;
        let before = self.changes.enter(key.0, Route { metric: key.1, next }, Origin::Control);
        self.note(key, before);
        Ok(match before {
            Some((_, origin)) if origin.is_entered() => Done::Replaced,
            _ => Done::Added,
        })
    }

    fn delete(&mut self, pattern: &RoutePattern) -> Result<Done, VrfError> {
        let RoutePattern { prefix, action, metric, .. } = pattern;
        let is_meant = |route: &&Route| {
            metric.is_none_or(|metric| metric == route.metric)
                && action.as_ref().is_none_or(|action| self.changes.is_action(route.next, action))
        };
        let mut meant = self.changes.routes(*prefix).iter().filter(is_meant).peekable();
        let first = meant.peek().map(|route| route.metric).ok_or(VrfError::NoRoute(*prefix))?;
        let entered = meant.find(|route| self.changes.origin((*prefix, route.metric)).is_entered());
        let owned = match self.changes.origin((*prefix, first)) {
            Origin::Kernel(_) => VrfError::Kernel(*prefix, first),
            _ => VrfError::Connected(*prefix, first),
        };
        let metric = entered.map(|route| route.metric).ok_or(owned)?;
        self.remove((*prefix, metric));
        Ok(Done::Deleted)
    }

    /// Removes a route that somebody entered. A neighbour whose route it hid has its own again.
    fn remove(&mut self, key: RouteKey) -> bool {
        let before = self.changes.leave(key);
        self.note(key, before);
        self.changes.restore_neighbour(key);
        before.is_some()
    }

    /// Notes a change, and that a command has overridden the configuration.
    fn note(&mut self, key: RouteKey, route: Option<(u32, Origin)>) {
        let overridden = self.changes.next_hops.overridden.get(key);
        if let Some((next, Origin::Static)) = route {
            let mark = self.changes.mark(next);
            self.changes.next_hops.overridden.set(key, Some(mark));
        }
        self.undo.push(Before { key, route, overridden });
    }
}
