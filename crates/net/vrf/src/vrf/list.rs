//! Lists and figures of routes, for reports.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};

use bellows_fib::{Address, Path, Prefix, Rib, Route, Size};

use super::{RouteTarget, VrfChanges};
use crate::family::IpFamily;
use crate::origin::{Origin, RouteKey};
use crate::route::IpPrefix;

/// Which prefixes are meant by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// That one.
    Exact,
    /// That one and all within it.
    Root,
    /// That one and all that it is within.
    Match,
}

/// The routes that are listed.
#[derive(Clone, Debug, Default)]
pub struct RouteFilter {
    /// By their prefixes.
    pub prefix: Option<(Match, IpPrefix)>,
    /// By their family.
    pub family: Option<IpFamily>,
    /// With a way through the interface of this number.
    pub interface: Option<u16>,
    /// With a way through this router.
    pub via: Option<IpAddr>,
    /// By their origins; all if there are neither these nor protocols. Protocols of Linux do not count here.
    pub origins: Vec<Origin>,
    /// By who entered them in Linux.
    pub protocols: Vec<u8>,
}

impl RouteFilter {
    fn has_origin(&self, origin: Origin) -> bool {
        let is_all = self.origins.is_empty() && self.protocols.is_empty();
        let is_entered_by = matches!(origin, Origin::Kernel(protocol) if self.protocols.contains(&protocol));
        is_all || is_entered_by || self.origins.iter().any(|one| one.index() == origin.index())
    }
}

/// A route of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The destinations.
    pub prefix: IpPrefix,
    /// The metric.
    pub metric: u32,
    /// Where it leads: an adjacency or a group.
    pub next: u32,
    /// Where it comes from.
    pub origin: Origin,
}

/// What can be counted of the routes of a family.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// The sizes of the tables.
    pub size: Option<Size>,
    /// Routes by the length of their prefix.
    pub lengths: Vec<usize>,
    /// Routes by their origin, as in [`Origin::ALL`].
    pub origins: [usize; Origin::ALL.len()],
    /// Routes by the adjacency or group that they lead to.
    pub next_hops: HashMap<u32, usize>,
    /// Prefixes with several routes.
    pub several: usize,
}

impl VrfChanges<'_> {
    /// The routes behind `after` that are meant, in the order of families, prefixes and metrics: up to `limit` of up to
    /// `looks` routes. Also returns the last one that was looked at, if there may be more.
    pub fn list(
        &self,
        filter: &RouteFilter,
        after: Option<RouteKey>,
        limit: usize,
        looks: usize,
    ) -> (Vec<Listed>, Option<RouteKey>) {
        let is_within = |key: &(IpPrefix, Route)| match filter.prefix {
            Some((Match::Exact, prefix)) => key.0 == prefix,
            Some((Match::Root, prefix)) => prefix.covers(key.0),
            Some((Match::Match, prefix)) => key.0.covers(prefix),
            None => true,
        };
        let mut known: HashMap<u32, bool> = HashMap::new();
        let mut has_way = |next: u32| {
            *known.entry(next).or_insert_with(|| match (filter.interface, filter.via) {
                (None, None) => true,
                (interface, via) => match self.target(next) {
                    RouteTarget::Forward(ways) => ways.iter().any(|way| {
                        interface.is_none_or(|number| number == way.interface)
                            && via.is_none_or(|via| way.gateway == Some(via))
                    }),
                    _ => false,
                },
            })
        };
        let (mut listed, mut last, mut looked) = (Vec::new(), None, 0);
        for (prefix, route) in self.all_from(filter, after) {
            if looked == looks || listed.len() == limit {
                return (listed, last);
            }
            looked += 1;
            let key = (prefix, route.metric);
            last = Some(key);
            let origin = self.origin(key);
            let is_meant = filter.has_origin(origin);
            if is_meant && is_within(&(prefix, route)) && has_way(route.next) {
                listed.push(Listed { prefix, metric: route.metric, next: route.next, origin });
            }
        }
        (listed, None)
    }

    /// All routes behind one, as far as the filter's families and prefixes may be among them.
    fn all_from(
        &self,
        filter: &RouteFilter,
        after: Option<RouteKey>,
    ) -> Box<dyn Iterator<Item = (IpPrefix, Route)> + '_> {
        let family = filter.prefix.map(|(_, prefix)| prefix.family()).or(filter.family);
        let within = filter.prefix.filter(|(how, _)| *how != Match::Match).map(|(_, prefix)| prefix);
        let v4_after = after.map(|(prefix, metric)| match prefix {
            IpPrefix::V4(prefix) => Some((prefix, metric)),
            IpPrefix::V6(_) => None,
        });
        let v6_after = after.and_then(|(prefix, metric)| match prefix {
            IpPrefix::V6(prefix) => Some((prefix, metric)),
            IpPrefix::V4(_) => None,
        });
        let has_v4 = family != Some(IpFamily::V6) && v4_after != Some(None);
        let has_v6 = family != Some(IpFamily::V4);
        let (v4_within, v6_within) = match within {
            Some(IpPrefix::V4(prefix)) => (Some(prefix), None),
            Some(IpPrefix::V6(prefix)) => (None, Some(prefix)),
            None => (None, None),
        };
        let v4 = has_v4.then(|| behind(self.v4.rib(), v4_within, v4_after.flatten())).into_iter().flatten();
        let v6 = has_v6.then(|| behind(self.v6.rib(), v6_within, v6_after)).into_iter().flatten();
        let v4 = v4.map(|(prefix, route)| (IpPrefix::V4(prefix), route));
        Box::new(v4.chain(v6.map(|(prefix, route)| (IpPrefix::V6(prefix), route))))
    }

    /// What can be counted of a family's routes. Goes through all of them.
    pub fn statistics(&self, family: IpFamily) -> Statistics {
        let (v4, v6) = self.sizes();
        match family {
            IpFamily::V4 => self.count(self.v4.rib(), IpPrefix::V4, v4),
            IpFamily::V6 => self.count(self.v6.rib(), IpPrefix::V6, v6),
        }
    }

    fn count<A: Address>(&self, rib: &Rib<A>, prefix_of: fn(Prefix<A>) -> IpPrefix, size: Size) -> Statistics {
        let lengths = vec![0; usize::from(A::BITS) + 1];
        let mut statistics = Statistics { size: Some(size), lengths, ..Statistics::default() };
        let mut before = None;
        for (prefix, route) in rib.iter() {
            statistics.several += usize::from(before == Some((prefix, 1)));
            before = match before {
                Some((same, count)) if same == prefix => Some((prefix, count + 1)),
                _ => Some((prefix, 1)),
            };
            statistics.lengths[usize::from(prefix.length())] += 1;
            let origin = self.origin((prefix_of(prefix), route.metric));
            statistics.origins[origin.index()] += 1;
            *statistics.next_hops.entry(route.next).or_default() += 1;
        }
        statistics
    }

    /// Where a prefix is compiled to, as [`Changes::place`](bellows_fib::Changes::place) tells it.
    pub fn place(&self, prefix: IpPrefix) -> (Range<u8>, RangeInclusive<usize>) {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.place(prefix),
            IpPrefix::V6(prefix) => self.v6.place(prefix),
        }
    }

    /// The number of groups, of their ways together, and of those that are out of use.
    pub fn groups(&self) -> (usize, usize, usize) {
        let out = |paths: &[Path]| paths.iter().filter(|path| self.groups.is_out_of_use(path.next)).count();
        let all = self.groups.iter();
        all.fold((0, 0, 0), |(groups, ways, failed), (_, paths)| (groups + 1, ways + paths.len(), failed + out(paths)))
    }
}

/// The routes behind one in order, those within a prefix if there is one.
fn behind<A: Address>(
    rib: &Rib<A>,
    within: Option<Prefix<A>>,
    after: Option<(Prefix<A>, u32)>,
) -> impl Iterator<Item = (Prefix<A>, Route)> {
    let first = after.map(|(prefix, _)| prefix).max(within).unwrap_or(Prefix::ALL);
    rib.iter_from(first)
        .take_while(move |(prefix, _)| within.is_none_or(|within| within.covers(*prefix)))
        .filter(move |(prefix, route)| after.is_none_or(|after| (*prefix, route.metric) > after))
}
