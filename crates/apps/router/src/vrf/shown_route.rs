//! Routes as clients are shown them: as `ip -j route` writes them, and as lines of `ip route`.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use bellows_netif::route::protocol_name;
use bellows_vrf::route::{Action, IpPrefix, NextHop};
use bellows_vrf::{IpFamily, Listed, Origin, RouteTarget, VrfChanges};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// Where routes lead, by number: many routes share few.
pub(super) struct Destinations(HashMap<u32, Destination>);

struct Destination {
    /// The word in front of the prefix, for routes that forward nothing.
    word: Option<&'static str>,
    /// The next hops in the order of the tables.
    ways: Vec<NextHop>,
    /// As a route of the configuration says it, if one can.
    action: Option<Action>,
}

impl Destinations {
    /// Those of a list.
    pub(super) fn of(changes: &VrfChanges<'_>, listed: &[Listed]) -> Destinations {
        let mut all = HashMap::new();
        for &Listed { next, .. } in listed {
            all.entry(next).or_insert_with(|| {
                let target = changes.target(next);
                let word = target.word();
                let ways = match target {
                    RouteTarget::Forward(ways) => ways,
                    _ => Vec::new(),
                };
                Destination {
                    word,
                    ways: ways.iter().map(|way| changes.hop(way)).collect(),
                    action: changes.action(next),
                }
            });
        }
        Destinations(all)
    }

    /// A route of the list.
    pub(super) fn show<'d>(&'d self, listed: &Listed) -> ShownRoute<'d> {
        static NONE: Destination = Destination { word: None, ways: Vec::new(), action: None };
        let destination = self.0.get(&listed.next).unwrap_or(&NONE);
        let family = listed.prefix.family();
        let hop = |way: &'d NextHop| ShownHop {
            gateway: way.gateway.filter(|gateway| IpFamily::of(*gateway) == family),
            via: way.gateway.filter(|gateway| IpFamily::of(*gateway) != family).map(Via::from),
            dev: way.interface.as_deref().unwrap_or_default(),
            flags: way.onlink.then_some(["onlink"]),
        };
        let (single, nexthops) = match &destination.ways[..] {
            [] => (None, None),
            [only] => (Some(hop(only)), None),
            ways => (None, Some(ways.iter().map(|way| WeighedHop { hop: hop(way), weight: way.weight }).collect())),
        };
        ShownRoute {
            route: RouteText {
                prefix: listed.prefix,
                metric: listed.metric,
                action: destination.action.as_ref(),
                word: destination.word,
            },
            kind: destination.word,
            dst: listed.prefix,
            single,
            nexthops,
            metrics: destination.action.as_ref().and_then(Action::mtu).map(|mtu| [Metrics { mtu }]),
            protocol: protocol_of(listed.origin),
            origin: listed.origin,
            metric: listed.metric,
        }
    }
}

/// Who entered a route, as `ip route` names it: for one of Linux, its daemon.
fn protocol_of(origin: Origin) -> &'static str {
    match origin {
        Origin::Kernel(protocol) => protocol_name(protocol),
        origin => origin.name(),
    }
}

/// A route as `ip -j route` writes it, and as text.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Route")]
pub struct ShownRoute<'d> {
    /// The route in the language of `ip route`.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    route: RouteText<'d>,
    /// `blackhole`, `unreachable`, `prohibit`, `local`, `multicast` or `martian`; absent if it forwards packets.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["blackhole", "unreachable", "prohibit", "local", "multicast", "martian"]))]
    kind: Option<&'static str>,
    /// The prefix.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    dst: IpPrefix,
    #[serde(flatten)]
    single: Option<ShownHop<'d>>,
    /// The ways, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    nexthops: Option<Vec<WeighedHop<'d>>>,
    /// The route's MTU, if it is less than that of the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Metrics>>")]
    metrics: Option<[Metrics; 1]>,
    /// Who entered it: the origin, but for a route of Linux its protocol there, such as `bgp`, `ospf` or `static`, or the
    /// number of one without a name.
    protocol: &'static str,
    /// `static` (the network file), `control` (a command), `kernel` (a table of Linux that is followed), `connected` (an
    /// interface) or `neighbour`.
    #[serde(serialize_with = "as_name")]
    #[schemars(with = "String", extend("enum" = ["static", "control", "kernel", "connected", "neighbour"]))]
    origin: Origin,
    /// The metric.
    metric: u32,
}

impl ShownRoute<'_> {
    /// The length of its text, about.
    pub(super) fn size(&self) -> usize {
        40 + 64 * self.nexthops.as_ref().map_or(1, Vec::len)
    }
}

/// A line that `add` understands, with the route's origin.
impl fmt::Display for ShownRoute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} proto {}", self.route, self.protocol)?;
        if self.origin.is_kernel() { f.write_str(" origin kernel") } else { Ok(()) }
    }
}

/// Where a route leads. Of a route with one way, these are keys of the route.
#[derive(JsonSchema, Serialize)]
struct ShownHop<'d> {
    /// The next router; absent on the link itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    gateway: Option<IpAddr>,
    /// The next router, if its address is of the other family.
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<Via>,
    /// The interface.
    dev: &'d str,
    /// `onlink` if the next router is on no link of the interface by its addresses; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    flags: Option<[&'static str; 1]>,
}

/// One of several ways of a route.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Next hop of a route")]
struct WeighedHop<'d> {
    #[serde(flatten)]
    hop: ShownHop<'d>,
    /// Its weight.
    weight: u16,
}

/// What packets must not exceed.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Metrics of a route")]
struct Metrics {
    /// The longest packet that takes the route, bytes.
    mtu: u16,
}

/// A router of the other family.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Router of the other family")]
struct Via {
    /// `inet` (IPv4) or `inet6` (IPv6).
    #[schemars(extend("enum" = ["inet", "inet6"]))]
    family: &'static str,
    /// Its address.
    #[schemars(with = "String")]
    host: IpAddr,
}

impl From<IpAddr> for Via {
    fn from(host: IpAddr) -> Via {
        Via { family: if host.is_ipv6() { "inet6" } else { "inet" }, host }
    }
}

/// A route in the language of `ip route`.
struct RouteText<'d> {
    prefix: IpPrefix,
    metric: u32,
    action: Option<&'d Action>,
    word: Option<&'static str>,
}

impl fmt::Display for RouteText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Some(action) => action.write(self.prefix, self.metric, f),
            None => write!(f, "{} {}", self.word.unwrap_or_default(), self.prefix),
        }
    }
}

fn as_text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn as_name<S: Serializer>(origin: &Origin, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(origin.name())
}
