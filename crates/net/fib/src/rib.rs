//! The routing information base: all routes, also those that others are preferred to.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use crate::{Address, Prefix};

/// A route to a prefix, which has at most one of each metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Of several routes to a prefix, the one with the lowest metric is used.
    pub metric: u32,
    /// Where packets go: an adjacency, or several paths, by the number that the user of the table gave it.
    pub next: u32,
}

/// All routes, ordered by their prefixes.
#[derive(Clone)]
pub struct Rib<A> {
    routes: BTreeMap<Prefix<A>, Routes>,
    count: usize,
}

/// The routes to a prefix: almost always one.
#[derive(Clone, Debug)]
enum Routes {
    One(Route),
    /// Two or more, the best one first.
    Many(Vec<Route>),
}

impl Routes {
    fn all(&self) -> &[Route] {
        match self {
            Routes::One(route) => std::slice::from_ref(route),
            Routes::Many(routes) => routes,
        }
    }

    fn best(&self) -> Route {
        self.all()[0]
    }

    /// Adds a route, in place of one with the same metric, which is returned.
    fn insert(&mut self, route: Route) -> Option<Route> {
        match self {
            Routes::One(only) if only.metric == route.metric => Some(std::mem::replace(only, route)),
            Routes::One(only) => {
                let mut routes = vec![*only, route];
                routes.sort_unstable();
                *self = Routes::Many(routes);
                None
            }
            Routes::Many(routes) => match routes.binary_search_by_key(&route.metric, |route| route.metric) {
                Ok(place) => Some(std::mem::replace(&mut routes[place], route)),
                Err(place) => {
                    routes.insert(place, route);
                    None
                }
            },
        }
    }

    /// Removes one of several routes.
    fn remove(&mut self, place: usize) -> Route {
        let mut routes = self.all().to_vec();
        let removed = routes.remove(place);
        *self = if let [only] = *routes { Routes::One(only) } else { Routes::Many(routes) };
        removed
    }
}

impl<A: Address> Default for Rib<A> {
    fn default() -> Rib<A> {
        Rib { routes: BTreeMap::new(), count: 0 }
    }
}

impl<A: Address> Rib<A> {
    /// Routes of which those to the same prefix have the same metric: the last one of these counts. Sorted ones are quicker.
    pub(crate) fn of(routes: Vec<(Prefix<A>, Route)>) -> Rib<A> {
        let routes: BTreeMap<_, _> = routes.into_iter().map(|(prefix, route)| (prefix, Routes::One(route))).collect();
        Rib { count: routes.len(), routes }
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a route, in place of one with the same metric, which is returned.
    pub fn insert(&mut self, prefix: Prefix<A>, route: Route) -> Option<Route> {
        self.insert_noting(prefix, route).0
    }

    /// As [`Rib::insert`]; also returns whether the best route has another number now.
    pub(crate) fn insert_noting(&mut self, prefix: Prefix<A>, route: Route) -> (Option<Route>, bool) {
        let (replaced, is_other) = match self.routes.entry(prefix) {
            Entry::Vacant(entry) => {
                entry.insert(Routes::One(route));
                (None, true)
            }
            Entry::Occupied(mut entry) => {
                let before = entry.get().best();
                let replaced = entry.get_mut().insert(route);
                (replaced, entry.get().best().next != before.next)
            }
        };
        self.count += usize::from(replaced.is_none());
        (replaced, is_other)
    }

    /// Removes the route with this metric, or the best one if there is no metric given.
    pub fn remove(&mut self, prefix: Prefix<A>, metric: Option<u32>) -> Option<Route> {
        self.remove_noting(prefix, metric).0
    }

    /// As [`Rib::remove`]; also returns whether the best route has another number now, or is gone.
    pub(crate) fn remove_noting(&mut self, prefix: Prefix<A>, metric: Option<u32>) -> (Option<Route>, bool) {
        let Entry::Occupied(mut entry) = self.routes.entry(prefix) else { return (None, false) };
        let before = entry.get().best();
        let routes = entry.get().all();
        let place = metric.map_or(Some(0), |metric| routes.iter().position(|route| route.metric == metric));
        let Some(place) = place else { return (None, false) };
        self.count -= 1;
        if routes.len() == 1 {
            entry.remove();
            return (Some(before), true);
        }
        let removed = entry.get_mut().remove(place);
        (Some(removed), entry.get().best().next != before.next)
    }

    /// The routes to a prefix, the best one first.
    pub fn routes(&self, prefix: Prefix<A>) -> &[Route] {
        self.routes.get(&prefix).map_or(&[], Routes::all)
    }

    /// The best route to a prefix.
    pub fn best(&self, prefix: Prefix<A>) -> Option<Route> {
        self.routes.get(&prefix).map(Routes::best)
    }

    /// The longest prefix that has routes and covers this one, itself included, and its best route.
    pub fn covering(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, Route)> {
        // Whatever covers the prefix covers what is between them in the order, too: each step goes to the longest that
        // may cover it.
        let mut bound = Bound::Included(prefix);
        loop {
            let (&candidate, routes) = self.routes.range((Bound::Unbounded, bound)).next_back()?;
            if candidate.covers(prefix) {
                return Some((candidate, routes.best()));
            }
            let common = candidate.address().common_bits(prefix.address()).min(candidate.length());
            bound = Bound::Included(prefix.shortened(common));
        }
    }

    /// The best routes to the prefix and to those within it, in order.
    pub fn within(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, Route)> {
        let last = Prefix::of(prefix.last(), A::BITS).expect("an address has all of its bits");
        self.routes.range(prefix..=last).map(|(&prefix, routes)| (prefix, routes.best()))
    }

    /// All routes to a prefix and to those behind it, in order.
    pub fn iter_from(&self, first: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, Route)> {
        let routes = self.routes.range(first..);
        routes.flat_map(|(&prefix, routes)| routes.all().iter().map(move |&route| (prefix, route)))
    }

    /// All routes in order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, Route)> {
        self.routes.iter().flat_map(|(&prefix, routes)| routes.all().iter().map(move |&route| (prefix, route)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix<u32> {
        text.parse().unwrap()
    }

    #[test]
    fn the_lowest_metric_is_preferred() {
        let mut rib = Rib::default();
        let to = prefix("10.0.0.0/8");
        assert_eq!(rib.insert(to, Route { metric: 20, next: 1 }), None);
        assert_eq!(rib.insert(to, Route { metric: 10, next: 2 }), None);
        assert_eq!(rib.insert(to, Route { metric: 20, next: 3 }), Some(Route { metric: 20, next: 1 }));
        assert_eq!(rib.best(to), Some(Route { metric: 10, next: 2 }));
        assert_eq!((rib.len(), rib.routes(to).len()), (2, 2));
        assert_eq!(rib.remove(to, Some(15)), None);
        assert_eq!(rib.remove(to, None), Some(Route { metric: 10, next: 2 }));
        assert_eq!(rib.remove(to, Some(20)), Some(Route { metric: 20, next: 3 }));
        assert_eq!((rib.remove(to, None), rib.len()), (None, 0));
    }

    #[test]
    fn covering_prefixes() {
        let mut rib = Rib::default();
        for (next, text) in ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.0.0/24", "10.1.2.0/24"].iter().enumerate()
        {
            rib.insert(prefix(text), Route { metric: 0, next: next as u32 });
        }
        for (text, next) in [
            ("10.1.2.7/32", 4),
            ("10.1.3.0/24", 2),
            ("10.1.0.0/24", 3),
            ("10.1.0.0/20", 2),
            ("10.2.0.0/16", 1),
            ("11.0.0.0/8", 0),
        ] {
            assert_eq!(rib.covering(prefix(text)).unwrap().1.next, next, "{text}");
        }
        rib.remove(prefix("0.0.0.0/0"), None);
        assert_eq!(rib.covering(prefix("11.0.0.0/8")), None);
    }
}
