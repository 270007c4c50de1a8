//! The requests that a routing domain answers: a client sends them to the object by its name, as JSON.

use bellows_netif::route::protocol_number;
use bellows_vrf::command::Verb;
use bellows_vrf::neighbours::NeighbourState;
pub use bellows_vrf::route::in_place_of;
use bellows_vrf::{Match, Origin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The maximum number of lines of a request.
pub const MAX_LINES: usize = 4_096;

/// The maximum number of routes of an answer.
pub const MAX_ROUTES: usize = 4_096;

/// The maximum number of routes of an answer that is text.
pub const MAX_ROUTES_OF_TEXT: usize = 16_384;

/// A request.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "Request to a routing domain")]
pub enum Request {
    /// Changes routes ([answer](#changes)).
    Change(Change),
    /// Lists routes, page by page ([answer](#answer-with-routes)).
    Routes(Page),
    /// Removes the routes of a page ([answer](#answer-to-a-flush)).
    Flush(Page),
    /// The route of an address ([answer](#answer-to-a-look-up)).
    LookUp(LookUp),
    /// Adds to the routes that `swap` enters, and that have no effect before ([answer](#answer-to-stage)).
    Stage(RoutesToStage),
    /// Replaces all static routes and those of commands by the staged ones ([answer](#answer-to-swap)).
    Swap(SwapOfRoutes),
    /// `{}`: figures of the tables ([answer](#answer-with-tables)).
    Fib {},
    /// Lists neighbours, page by page ([answer](#answer-with-neighbours)).
    Neighbours(NeighbourPage),
    /// Changes neighbours ([answer](#changes)).
    ChangeNeighbours(NeighbourLines),
    /// Forgets neighbours: those of commands, and those that were learned, which are asked anew
    /// ([answer](#answer-to-a-flush-of-neighbours)).
    FlushNeighbours(NeighbourSelection),
}

/// Routes to stage.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Routes to stage")]
pub struct RoutesToStage {
    /// Routes in the language of `ip route`.
    pub routes: Vec<String>,
}

/// A swap of routes.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Swap of routes")]
pub struct SwapOfRoutes {
    /// How many routes are staged: a reload may have ended what was staged.
    pub routes: usize,
}

/// Changes of neighbours, all or none.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Change of neighbours")]
pub struct NeighbourLines {
    /// Lines in the language of `ip neighbour`: `add 192.0.2.7 lladdr 02:00:00:00:00:07 dev lan`.
    pub commands: Vec<String>,
    /// What lines without a verb mean: `add` (without this key), `append`, `replace` or `delete`.
    #[serde(default = "add")]
    pub bare: BareVerb,
}

/// What a line without a verb means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BareVerb {
    /// Enter it.
    Add,
    /// Add its ways.
    Append,
    /// Enter it in place of another one.
    Replace,
    /// Remove it.
    Delete,
}

fn add() -> BareVerb {
    BareVerb::Add
}

impl From<BareVerb> for Verb {
    fn from(verb: BareVerb) -> Verb {
        match verb {
            BareVerb::Add => Verb::Add,
            BareVerb::Append => Verb::Append,
            BareVerb::Replace => Verb::Replace,
            BareVerb::Delete => Verb::Delete,
        }
    }
}

/// Changes of routes.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Change of routes")]
pub struct Change {
    /// Lines in the language of `ip -batch`: `add 198.51.100.0/24 via 192.0.2.1`.
    pub commands: Vec<String>,
    /// What lines without a verb mean: `add` (without this key), `append`, `replace` or `delete`.
    #[serde(default = "add")]
    pub bare: BareVerb,
    /// Whether wrong lines are left out and the others carried out; otherwise one wrong line prevents all.
    #[serde(default)]
    pub force: bool,
}

/// Which routes are meant. All conditions must be met.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Selection of routes")]
pub struct Selection {
    /// `exact`, `root` (it and all within it) or `match` (it and all that it is within), and a prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<(PrefixMatch, String)>,
    /// 4 or 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<u8>,
    /// Through this interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// Through the router of this address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub via: Option<std::net::IpAddr>,
    /// Of these origins, as in `origin` of a [route](#route), or with these protocols in Linux; without it, static and
    /// control routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
}

/// How prefixes are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrefixMatch {
    /// That one.
    Exact,
    /// That one and all within it.
    Root,
    /// That one and all that it is within.
    Match,
}

impl From<PrefixMatch> for Match {
    fn from(how: PrefixMatch) -> Match {
        match how {
            PrefixMatch::Exact => Match::Exact,
            PrefixMatch::Root => Match::Root,
            PrefixMatch::Match => Match::Match,
        }
    }
}

/// A page of routes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Page of routes")]
pub struct Page {
    /// Which routes; without it, all static and control ones.
    pub select: Selection,
    /// `next` of the page before: a prefix and a metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<(String, u32)>,
    /// Of `routes`: the maximum number of routes, up to 4,096, or up to 16,384 with `text`; without it, as many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Of `routes`: whether the answer has the number of routes in their place.
    pub only_count: bool,
    /// Of `routes`: the answer has a text of lines, which is much faster for long lists: those of `bellows route show`
    /// (`plain`), or each a [route](#route) as JSON (`json`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<RouteLines>,
}

/// What is on the lines of a list of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteLines {
    /// Routes in the language of `ip route`, with their origins.
    Plain,
    /// Routes as `ip -j route` writes them.
    Json,
}

/// A look-up.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Request for a look-up")]
pub struct LookUp {
    /// The destination.
    #[schemars(with = "String")]
    pub address: std::net::IpAddr,
    /// The source, whose way back is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub from: Option<std::net::IpAddr>,
}

/// Which neighbours are meant.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Selection of neighbours")]
pub struct NeighbourSelection {
    /// On the link of this interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// With this IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub address: Option<std::net::IpAddr>,
}

/// A page of neighbours.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Page of neighbours")]
pub struct NeighbourPage {
    /// Which neighbours; without it, all.
    pub select: NeighbourSelection,
    /// Whether to give the next ones of the same list, as the neighbours were when it began.
    pub goes_on: bool,
}

/// The state of a neighbour, as reports name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ReportedNeighbourState {
    /// It was asked, and has not answered yet.
    Incomplete,
    /// It has answered.
    Reachable,
    /// Its Ethernet address is known, but not whether it receives what is sent there: it is asked soon.
    Delay,
    /// It is asked again.
    Probe,
    /// A next hop of a route with several ways that does not answer.
    Failed,
    /// Somebody has entered it.
    Permanent,
}

impl From<NeighbourState> for ReportedNeighbourState {
    fn from(state: NeighbourState) -> ReportedNeighbourState {
        match state {
            NeighbourState::Incomplete => ReportedNeighbourState::Incomplete,
            NeighbourState::Reachable => ReportedNeighbourState::Reachable,
            NeighbourState::Delay => ReportedNeighbourState::Delay,
            NeighbourState::Probe => ReportedNeighbourState::Probe,
            NeighbourState::Failed => ReportedNeighbourState::Failed,
            NeighbourState::Permanent => ReportedNeighbourState::Permanent,
        }
    }
}

/// A line that is not right.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[schemars(title = "Wrong line")]
pub struct LineError {
    /// Its position in the request, from 0 on.
    pub index: usize,
    /// What is wrong.
    pub message: String,
    /// How to fix it; may be empty.
    pub help: String,
    /// The bytes of the line that are wrong: the first one, and the one after the last.
    pub range: (usize, usize),
}

/// What became of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[schemars(title = "Changes")]
pub struct Changed {
    /// The number of routes or neighbours that are new.
    pub added: usize,
    /// The number of those that are in the place of others.
    pub replaced: usize,
    /// The number of those that are gone.
    pub deleted: usize,
    /// Lines that are wrong: none in the output of a command; those of a [request to a routing
    /// domain](#requests-to-a-routing-domain).
    ///
    /// With any, nothing has been changed, unless that was wanted.
    pub errors: Vec<LineError>,
}

/// The names of all origins.
pub fn all_origins() -> Vec<String> {
    Origin::ALL.map(|origin| origin.name().to_owned()).to_vec()
}

/// The origins and the protocols of Linux that names mean, or the origins that somebody entered.
pub(super) fn origins(names: &[String]) -> Result<(Vec<Origin>, Vec<u8>), String> {
    let (mut origins, mut protocols) = (Vec::new(), Vec::new());
    if names.is_empty() {
        origins.extend(Origin::ALL.into_iter().filter(|origin| origin.is_entered()));
    }
    for name in names {
        match (Origin::named(name), protocol_number(name)) {
            (Some(origin), _) => origins.push(origin),
            (None, Some(protocol)) => protocols.push(protocol),
            (None, None) => {
                let known = Origin::ALL.map(Origin::name).join("`, `");
                return Err(format!(
                    "there is no origin `{name}` of routes; there are `{known}`, and the protocols of Linux' routes such \
                     as `bgp`"
                ));
            }
        }
    }
    Ok((origins, protocols))
}
