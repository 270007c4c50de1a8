//! What a routing domain answers.

use std::net::IpAddr;

use bellows_config::ByName;
use bellows_vrf::{Origin, RouteKey, Swapped};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::requests::{LineError, ReportedNeighbourState};
use super::resolved::ResolvedNeighbour;
pub use super::shown_route::ShownRoute;

/// The last route of a page: its prefix and its metric.
pub(super) type PageEnd = (String, u32);

/// What to give as `after` for the next page.
pub(super) fn next_page(last: Option<RouteKey>) -> Option<PageEnd> {
    last.map(|(prefix, metric)| (prefix.to_string(), metric))
}

/// A page of routes.
#[derive(Default, JsonSchema, Serialize)]
#[schemars(title = "Answer with routes")]
pub struct RoutesAnswer {
    /// The routes; absent with `only_count` or `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<ShownRoute<'static>>>")]
    pub(super) routes: Option<Vec<Value>>,
    /// With `only_count` or `text`: the number of routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<usize>,
    /// With `text`: the routes, one a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    /// The `after` of the next page; null at the end. A page may be empty and not the last one.
    pub(super) next: Option<PageEnd>,
}

/// What became of a page of routes.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Answer to a flush")]
pub struct FlushAnswer {
    /// The number of removed routes.
    pub(super) deleted: usize,
    /// The `after` of the next page; null at the end.
    pub(super) next: Option<PageEnd>,
}

/// What is staged.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Answer to `stage`")]
pub struct StageAnswer {
    /// The number of all staged routes.
    pub(super) staged: usize,
    /// Wrong lines; with any, nothing is staged any more.
    pub(super) errors: Vec<LineError>,
}

/// What staged routes have replaced.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Answer to `swap`")]
pub struct SwapAnswer {
    /// The number of routes that were replaced.
    before: usize,
    /// The number of routes in their place.
    after: usize,
    /// Lines in whose place later ones are.
    repeated: usize,
}

impl From<Swapped> for SwapAnswer {
    fn from(Swapped { before, after, repeated }: Swapped) -> SwapAnswer {
        SwapAnswer { before, after, repeated }
    }
}

/// The route of an address.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Look-up")]
pub struct FoundRoute {
    /// The address.
    #[schemars(with = "String")]
    pub(super) address: IpAddr,
    /// Its route; null without one, and then the keys below are absent.
    #[schemars(with = "Option<ShownRoute<'static>>")]
    pub(super) route: Option<Value>,
    #[serde(flatten)]
    pub(super) leads: Option<Destination>,
}

/// Where a route leads, and where it is compiled to.
#[derive(JsonSchema, Serialize)]
pub(super) struct Destination {
    /// The number of the adjacency or group.
    pub(super) next: u32,
    /// The ways; none if the route does not forward packets.
    pub(super) ways: Vec<FoundWay>,
    /// Where the prefix is in the tables.
    pub(super) compiled: CompiledRoute,
}

/// A way of a route.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Way")]
pub(super) struct FoundWay {
    /// The interface.
    pub(super) interface: String,
    /// The next router, or the address itself on the link.
    #[schemars(with = "String")]
    pub(super) neighbour: IpAddr,
    /// Its weight.
    pub(super) weight: u16,
    /// Its share of flows now, from 0 to 1.
    pub(super) share: f64,
    /// False if the neighbour does not answer, so that other ways have its flows.
    pub(super) in_use: bool,
    /// The index of the adjacency.
    pub(super) adjacency: u32,
    /// Of the adjacency: `complete` (it has the neighbour's Ethernet address), `incomplete` (it has none yet), `glean` (of a
    /// link, whose stations are asked one by one) or `unused`.
    #[schemars(extend("enum" = ["complete", "incomplete", "glean", "unused"]))]
    pub(super) kind: &'static str,
    /// The state of the [neighbour](#neighbour): `incomplete`, `reachable`, `delay`, `probe`, `failed` or `permanent`; null
    /// if unknown.
    pub(super) state: Option<ReportedNeighbourState>,
    /// Its Ethernet address; null if unknown.
    pub(super) mac: Option<String>,
}

/// The place of a prefix in the tables.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Compiled route")]
pub(super) struct CompiledRoute {
    /// The bits of an address by which the cells of the prefix are chosen: the first one, and the one after the last.
    pub(super) bits: [u8; 2],
    /// The first and the last of these cells.
    pub(super) cells: [usize; 2],
}

/// The routes of one or two addresses.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Answer to a look-up", extend("includes" = ["Look-up"]))]
pub struct LookUpAnswer {
    #[serde(flatten)]
    pub(super) found: FoundRoute,
    /// The same for the source, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<FoundRoute>,
}

/// Figures of the tables.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Answer with tables")]
pub struct FibAnswer {
    /// The tables of IPv4.
    pub(super) ipv4: FamilyTables,
    /// The tables of IPv6.
    pub(super) ipv6: FamilyTables,
    /// The routes with several ways.
    pub(super) groups: WayGroups,
    /// The next hops, each with its Ethernet header.
    pub(super) adjacencies: AdjacencyRoom,
}

/// Figures of the tables of a family.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Tables of a family")]
pub(super) struct FamilyTables {
    /// The number of routes.
    #[schemars(with = "usize")]
    pub(super) routes: Option<usize>,
    /// The size of the compiled tables.
    #[schemars(with = "usize")]
    pub(super) bytes: Option<usize>,
    /// Prefixes with routes of several metrics.
    pub(super) prefixes_with_several_routes: usize,
    /// Routes by the length of their prefix.
    pub(super) lengths: ByName<usize>,
    /// Routes by their `origin`, as in a [route](#route).
    pub(super) origins: ByName<usize>,
    /// Different next hops, a group counting once.
    pub(super) distinct_next_hops: usize,
    /// The 64 of them with the most routes, these first.
    pub(super) next_hops: Vec<FamilyNextHop>,
}

/// Routes that lead to the same place.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Next hop of a family")]
pub(super) struct FamilyNextHop {
    /// The number of the adjacency or group.
    pub(super) next: u32,
    /// Where it leads, in words.
    pub(super) to: String,
    /// Its routes.
    pub(super) routes: usize,
}

/// Routes with several ways.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Groups of ways")]
pub(super) struct WayGroups {
    /// Different groups of ways.
    pub(super) count: usize,
    /// Their ways.
    pub(super) ways: usize,
    /// Those of them that are out of use because they do not answer.
    pub(super) out_of_use: usize,
}

/// The room for adjacencies.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Adjacencies")]
pub(super) struct AdjacencyRoom {
    /// How many are in use.
    pub(super) used: usize,
    /// How many there can be.
    pub(super) capacity: usize,
}

/// A neighbour, which was entered or learned.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Neighbour")]
pub struct ListedNeighbour {
    /// The interface on whose link it is.
    pub(super) interface: String,
    /// The IP address.
    #[schemars(with = "String")]
    pub(super) address: IpAddr,
    /// Its state.
    pub(super) state: ReportedNeighbourState,
    /// The Ethernet address; null if it is not known.
    pub(super) mac: Option<String>,
    /// Seconds since the state or the Ethernet address was another one; null for permanent ones.
    pub(super) age_seconds: Option<u64>,
    /// Packets that wait for it.
    pub(super) waiting: usize,
    /// The origin of permanent ones: `static` (the network file), `control` (a command) or `kernel` (Linux).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["static", "control", "kernel"]))]
    pub(super) protocol: Option<&'static str>,
}

impl ListedNeighbour {
    /// One that somebody entered.
    pub(super) fn entered(interface: String, address: IpAddr, mac: String, origin: Origin) -> ListedNeighbour {
        ListedNeighbour {
            interface,
            address,
            state: ReportedNeighbourState::Permanent,
            mac: Some(mac),
            age_seconds: None,
            waiting: 0,
            protocol: Some(origin.name()),
        }
    }
}

impl From<ResolvedNeighbour> for ListedNeighbour {
    fn from(
        ResolvedNeighbour { interface, address, state, mac, age_seconds, waiting }: ResolvedNeighbour,
    ) -> ListedNeighbour {
        ListedNeighbour { interface, address, state, mac, age_seconds: Some(age_seconds), waiting, protocol: None }
    }
}

/// A page of neighbours.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Answer with neighbours")]
pub struct NeighboursAnswer {
    /// Up to 16,384 neighbours.
    pub(super) neighbours: Vec<ListedNeighbour>,
    /// Whether there are more.
    pub(super) more: bool,
}

/// What became of neighbours.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Answer to a flush of neighbours")]
pub struct NeighbourFlushAnswer {
    /// The number of forgotten neighbours.
    pub(super) deleted: usize,
}
