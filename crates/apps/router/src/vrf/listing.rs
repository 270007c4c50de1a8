//! What control clients get of routes and tables.

use std::fmt::Write as _;
use std::net::IpAddr;

use bellows_engine::RequestError;
use bellows_vrf::adjacency::AdjacencyKind;
use bellows_vrf::{IpFamily, Listed, Origin, RouteFilter, RouteKey, RouteTarget, VrfChanges, Way};

use super::answers::{
    AdjacencyRoom, CompiledRoute, Destination, FamilyNextHop, FamilyTables, FibAnswer, FoundRoute, FoundWay,
    LookUpAnswer, RoutesAnswer, WayGroups, next_page,
};
use super::operator::Operator;
use super::requests::{LookUp, MAX_ROUTES, MAX_ROUTES_OF_TEXT, Page, RouteLines, Selection, origins};
use super::shown_route::Destinations;

/// The most routes that are looked at for one page.
pub(super) const MAX_LOOKS: usize = 65_536;

/// About the most bytes of a page's text: routes may have hundreds of ways, and JSON is several times as long.
const MAX_BYTES: usize = 2 << 20;

/// Behind which route a page begins.
pub(super) fn read_after(page: &Page) -> Result<Option<RouteKey>, RequestError> {
    let Some((text, metric)) = &page.after else { return Ok(None) };
    let prefix = text.parse().map_err(|error| RequestError::mistake(format!("`{text}`: {error}")))?;
    Ok(Some((prefix, *metric)))
}

/// A route that cannot be written.
fn unwritten(error: &dyn std::error::Error) -> RequestError {
    RequestError::failure(format!("a route cannot be written: {error}"))
}

/// The most next hops of a report.
const MAX_NEXT_HOPS: usize = 64;

impl Operator {
    /// Which routes are meant.
    pub(super) fn filter(&self, select: &Selection) -> Result<RouteFilter, RequestError> {
        let prefix = select.prefix.as_ref().map(|(how, text)| {
            let prefix = text.parse().map_err(|error| RequestError::mistake(format!("`{text}`: {error}")))?;
            Ok(((*how).into(), prefix))
        });
        let family = match select.family {
            None => None,
            Some(4) => Some(IpFamily::V4),
            Some(6) => Some(IpFamily::V6),
            Some(other) => return Err(RequestError::mistake(format!("there is no family {other}: give 4 or 6"))),
        };
        let interface = select.dev.as_deref().map(|name| self.interface(name)).transpose()?;
        let (origins, protocols) = origins(&select.origins).map_err(RequestError::mistake)?;
        Ok(RouteFilter { prefix: prefix.transpose()?, family, interface, via: select.via, origins, protocols })
    }

    /// The number of an interface.
    pub(super) fn interface(&self, name: &str) -> Result<u16, RequestError> {
        let tables = self.domain.tables();
        tables.number(name).ok_or_else(|| {
            let names: Vec<&str> = tables.interfaces().iter().map(|interface| &*interface.name).collect();
            RequestError::mistake(format!("there is no interface `{name}`; there are `{}`", names.join("`, `")))
        })
    }

    pub(super) fn routes(&self, page: &Page) -> Result<RoutesAnswer, RequestError> {
        let filter = self.filter(&page.select)?;
        let after = read_after(page)?;
        let max = if page.text.is_some() { MAX_ROUTES_OF_TEXT } else { MAX_ROUTES };
        let limit = page.limit.unwrap_or(max).clamp(1, max);
        let changes = self.domain.tables().lock();
        let (listed, mut next) = changes.list(&filter, after, limit, MAX_LOOKS);
        if page.only_count {
            return Ok(RoutesAnswer { count: Some(listed.len()), next: next_page(next), ..RoutesAnswer::default() });
        }
        let destinations = Destinations::of(&changes, &listed);
        // Others may change the tables while the list is written.
        drop(changes);
        let (mut routes, mut text, mut bytes, mut count) = (Vec::new(), String::new(), 0, 0);
        for one in &listed {
            let route = destinations.show(one);
            bytes += route.size();
            count += 1;
            match page.text {
                Some(RouteLines::Plain) => writeln!(text, "{route}").map_err(|error| unwritten(&error))?,
                Some(RouteLines::Json) => {
                    text += &serde_json::to_string(&route).map_err(|error| unwritten(&error))?;
                    text.push('\n');
                }
                None => routes.push(serde_json::to_value(&route).map_err(|error| unwritten(&error))?),
            }
            if bytes > MAX_BYTES && count < listed.len() {
                next = Some((one.prefix, one.metric));
                break;
            }
        }
        let is_text = page.text.is_some();
        Ok(RoutesAnswer {
            routes: (!is_text).then_some(routes),
            count: is_text.then_some(count),
            text: is_text.then_some(text),
            next: next_page(next),
        })
    }

    fn name(&self, interface: u16) -> String {
        self.domain.tables().interface(interface).map_or_else(String::new, |interface| interface.name.clone())
    }

    /// The best route to an address, where it leads, and where it is compiled to.
    pub(super) fn look_up(&self, look_up: &LookUp) -> Result<LookUpAnswer, RequestError> {
        if look_up.from.is_some_and(|from| from.is_ipv4() != look_up.address.is_ipv4()) {
            return Err(RequestError::mistake("the two addresses are not of the same family"));
        }
        let found = self.found(look_up.address)?;
        let from = look_up.from.map(|from| self.found(from)).transpose()?;
        Ok(LookUpAnswer { found, from })
    }

    fn found(&self, address: IpAddr) -> Result<FoundRoute, RequestError> {
        let known = self.all_neighbours();
        let changes = self.domain.tables().lock();
        let Some((prefix, route)) = changes.look_up(address) else {
            return Ok(FoundRoute { address, route: None, leads: None });
        };
        let key = (prefix, route.metric);
        let origin = changes.origin(key);
        let listed = Listed { prefix, metric: route.metric, next: route.next, origin };
        let way = |way: Way| {
            let neighbour = way.gateway.unwrap_or(address);
            let interface = self.name(way.interface);
            let known = known.iter().find(|known| known.address == neighbour && known.interface == interface);
            FoundWay {
                interface,
                neighbour,
                weight: way.weight,
                share: changes.share(route.next, way.adjacency),
                in_use: way.is_in_use,
                adjacency: way.adjacency,
                kind: match way.kind {
                    AdjacencyKind::Complete => "complete",
                    AdjacencyKind::Incomplete => "incomplete",
                    AdjacencyKind::Glean => "glean",
                    AdjacencyKind::Unused => "unused",
                },
                state: known.map(|known| known.state),
                mac: known.and_then(|known| known.mac.clone()),
            }
        };
        let ways: Vec<FoundWay> = match changes.target(route.next) {
            RouteTarget::Forward(ways) => ways.into_iter().map(way).collect(),
            _ => Vec::new(),
        };
        let (bits, cells) = changes.place(prefix);
        let destinations = Destinations::of(&changes, std::slice::from_ref(&listed));
        let shown = serde_json::to_value(destinations.show(&listed)).map_err(|error| unwritten(&error))?;
        let compiled = CompiledRoute { bits: [bits.start, bits.end], cells: [*cells.start(), *cells.end()] };
        let leads = Destination { next: route.next, ways, compiled };
        Ok(FoundRoute { address, route: Some(shown), leads: Some(leads) })
    }

    /// Figures of the tables.
    pub(super) fn fib(&self) -> FibAnswer {
        let changes = self.domain.tables().lock();
        let family = |family: IpFamily| {
            let statistics = changes.statistics(family);
            let lengths = statistics.lengths.iter().enumerate().filter(|(_, count)| **count > 0);
            let origins = Origin::ALL.into_iter().zip(statistics.origins);
            let mut next_hops: Vec<(u32, usize)> = statistics.next_hops.into_iter().collect();
            next_hops.sort_unstable_by_key(|&(next, count)| (std::cmp::Reverse(count), next));
            let distinct = next_hops.len();
            next_hops.truncate(MAX_NEXT_HOPS);
            let next_hop = |(next, routes)| FamilyNextHop { next, to: self.to(&changes, next), routes };
            FamilyTables {
                routes: statistics.size.map(|size| size.routes),
                bytes: statistics.size.map(|size| size.bytes),
                prefixes_with_several_routes: statistics.several,
                lengths: lengths.map(|(length, count)| (length.to_string(), *count)).collect(),
                origins: origins.map(|(origin, count)| (origin.name(), count)).collect(),
                distinct_next_hops: distinct,
                next_hops: next_hops.into_iter().map(next_hop).collect(),
            }
        };
        let (count, ways, out_of_use) = changes.groups();
        let adjacencies = self.domain.tables().adjacencies();
        FibAnswer {
            ipv4: family(IpFamily::V4),
            ipv6: family(IpFamily::V6),
            groups: WayGroups { count, ways, out_of_use },
            adjacencies: AdjacencyRoom { used: adjacencies.used(), capacity: adjacencies.capacity() },
        }
    }

    /// Where a number leads, in words.
    fn to(&self, changes: &VrfChanges<'_>, next: u32) -> String {
        let target = changes.target(next);
        let RouteTarget::Forward(ways) = &target else { return target.word().unwrap_or_default().to_owned() };
        let way = |way: &Way| {
            let to = way.gateway.map_or_else(|| "link".to_owned(), |gateway| format!("via {gateway}"));
            let weight = if ways.len() > 1 { format!(" weight {}", way.weight) } else { String::new() };
            let out = if way.is_in_use { "" } else { " (does not answer)" };
            let mtu = way.mtu.map_or_else(String::new, |mtu| format!(" mtu {mtu}"));
            let onlink = if changes.hop(way).onlink { " onlink" } else { "" };
            format!("{to} dev {}{onlink}{weight}{mtu}{out}", self.name(way.interface))
        };
        ways.iter().map(way).collect::<Vec<_>>().join(", ")
    }
}
