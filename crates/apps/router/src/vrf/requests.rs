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
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Changes routes, all or none.
    Change(Change),
    /// Takes the routes of a page out.
    Flush(Page),
    /// Lists routes.
    Routes(Page),
    /// Looks up an address.
    LookUp(LookUp),
    /// Adds routes to those that [`Request::Swap`] enters. They have no effect before, and none if the client goes
    /// away.
    Stage {
        /// Routes in the language of `ip route`.
        routes: Vec<String>,
    },
    /// Replaces all routes that somebody entered by the staged ones.
    Swap {
        /// How many they are: a reload in between may have ended what was staged.
        routes: usize,
    },
    /// Figures of the tables.
    Fib {},
    /// Lists the neighbours, page by page.
    Neighbours(NeighbourPage),
    /// Changes neighbours, all or none.
    ChangeNeighbours {
        /// Commands in the language of `ip neighbour`: `add 192.0.2.7 lladdr 02:00:00:00:00:07 dev lan`.
        commands: Vec<String>,
        /// What lines without a verb mean.
        #[serde(default = "add")]
        bare: BareVerb,
    },
    /// Forgets neighbours: those of commands, and those that were learned, which are asked anew.
    FlushNeighbours(NeighbourSelection),
}

/// What a line without a verb means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Commands in the language of `ip -batch`: `add 198.51.100.0/24 via 192.0.2.1`.
    pub commands: Vec<String>,
    /// What lines without a verb mean.
    #[serde(default = "add")]
    pub bare: BareVerb,
    /// Leave out the commands that cannot be carried out, and carry out the others.
    #[serde(default)]
    pub force: bool,
}

/// Which routes are meant. All conditions must be met.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// By a prefix: `exact`, `root` (it and all within it) or `match` (it and all that it is within).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<(PrefixMatch, String)>,
    /// 4 or 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<u8>,
    /// Through this interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// Through this router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<std::net::IpAddr>,
    /// By their origins: `static`, `control`, `kernel`, `connected`, `neighbour`, or by who entered them in Linux, such as
    /// `bgp`. Static and control ones, if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
}

/// How prefixes are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Page {
    /// Which routes.
    pub select: Selection,
    /// `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<(String, u32)>,
    /// The maximum number of routes, up to [`MAX_ROUTES`], or [`MAX_ROUTES_OF_TEXT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Give the number of routes alone.
    pub only_count: bool,
    /// Give the routes as a text of lines, which is much faster for long lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<RouteLines>,
}

/// What is on the lines of a list of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteLines {
    /// Routes in the language of `ip route`, with their origins.
    Plain,
    /// Routes as `ip -j route` writes them.
    Json,
}

/// A look-up.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LookUp {
    /// The destination.
    pub address: std::net::IpAddr,
    /// The source, whose way back is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<std::net::IpAddr>,
}

/// Which neighbours are meant.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NeighbourSelection {
    /// On this interface's links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// With this address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::IpAddr>,
}

/// A page of neighbours.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NeighbourPage {
    /// Which neighbours.
    pub select: NeighbourSelection,
    /// Whether this is the next page of the list that the client has begun, as the neighbours were then.
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
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LineError {
    /// Its position in the request, from 0 on.
    pub index: usize,
    /// What is wrong.
    pub message: String,
    /// How to fix it; may be empty.
    pub help: String,
    /// The bytes of the line that are wrong.
    pub range: (usize, usize),
}

/// What became of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Changed {
    /// Routes or neighbours that are new.
    pub added: usize,
    /// Those that are in the place of others.
    pub replaced: usize,
    /// Those that are gone.
    pub deleted: usize,
    /// Lines that are not right. With any, nothing has been changed, unless that was wanted.
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
