//! What the site answers, as JSON. Rates have five significant digits.

use std::collections::{BTreeMap, VecDeque};

use bellows_inspect::control::{ReloadReport, TraceEnd};
use bellows_inspect::journey::TraceReport;
use bellows_inspect::networks::State;
use bellows_inspect::reports::{AppCost, Subject};
use bellows_inspect::times::Times;
use bellows_observe::{AppCounts, AppStatus, LinkCounts, ObjectStatus};
use schemars::JsonSchema;
use serde::Serialize;

use crate::history::{AppHistory, LinkHistory, NetworkHistory};
use crate::monitor::{Happening, Kept};

/// Why a request cannot be answered.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Error")]
pub struct Refused<'a> {
    /// A sentence.
    pub error: &'a str,
}

/// The networks, and what the page may do.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Networks of the page")]
pub struct Networks<'a> {
    /// Version of Bellows.
    pub version: &'a str,
    /// Whether `POST /api/change` is allowed.
    pub allow_changes: bool,
    /// The networks, those of this user first.
    #[schemars(with = "Vec<Listed<'static>>")]
    pub networks: serde_json::Value,
}

/// A network in a line.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Network of the page")]
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its owner.
    pub user: &'a str,
    /// Whether it is another user's.
    pub foreign: bool,
    /// The state of its process: `running`, `stopped` (by a signal or a debugger) or `crashed`; null if the run has
    /// ended.
    pub state: Option<State>,
    /// `running`, `degraded`, `stalled` or `crashed`; [the meanings](operating.md#health); or `ended`.
    #[schemars(extend("enum" = ["running", "degraded", "stalled", "crashed", "ended"]))]
    pub health: &'static str,
    /// Why it is no better, in sentences.
    pub reasons: Vec<&'a str>,
    /// A sentence about a change that [awaits its confirmation](operating.md#changes-that-undo-themselves); null if there
    /// is none.
    pub confirmation: Option<String>,
    /// Its process; null if it is not known.
    pub pid: Option<u32>,
    /// The time that it has been running; null if it no longer runs.
    pub uptime_seconds: Option<f64>,
    /// Through the busiest link.
    pub packets_per_second: Option<f64>,
    /// Packets dropped.
    pub drops_per_second: Option<f64>,
    /// Its file; null if its counters cannot be read.
    pub network: Option<&'a str>,
    /// The schedule in use; null if its counters cannot be read.
    pub schedule: Option<&'a str>,
}

/// A network with its figures.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Live figures", extend("includes" = ["Network of the page"]))]
pub struct Live<'a> {
    /// The network.
    #[serde(flatten)]
    pub listed: Listed<'a>,
    /// A text that changes with its apps and links.
    pub structure: String,
    /// What the server has seen happen while a page was open; the last 100.
    pub events: &'a VecDeque<Happening>,
    /// The last 100 [events](operating.md#events) that the network has kept, also from before and from earlier runs of
    /// its name.
    pub kept: &'a VecDeque<Kept>,
    /// Its last minutes.
    pub history: NetworkHistory,
    /// Its counters.
    #[serde(flatten)]
    pub counted: Option<Counted<'a>>,
    /// Its rates.
    #[serde(flatten)]
    pub rates: Option<NetworkRates<'a>>,
}

/// The counters of a network that can be read.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Counted<'a> {
    /// When its counters were read: milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The version of Bellows that it runs.
    pub version: &'a str,
    /// Configurations swapped in while running.
    pub reloads: u64,
    /// Packets dropped in all.
    pub dropped: u64,
    /// Packet buffers in the pool.
    pub buffers: u64,
    /// Packet buffers that hold packets.
    pub buffers_in_use: u64,
    /// Packet buffers that ports have lent to the kernel.
    pub buffers_lent: u64,
    /// The apps, in the order of the network file.
    pub apps: Vec<LiveApp<'a>>,
    /// The links, in the order of the network file.
    pub links: Vec<LiveLink<'a>>,
}

/// The rates of a network that runs, since the reading before.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct NetworkRates<'a> {
    /// Through the busiest link.
    pub bits_per_second: f64,
    /// Breaths of all workers.
    pub breaths_per_second: f64,
    /// The share of breaths in which no packet moved; null without breaths.
    #[schemars(extend("nullable" = true))]
    pub idle_breaths: Option<f64>,
    /// The share of the time that the engine slept.
    pub asleep: f64,
    /// The workers.
    pub workers: Vec<LiveWorker<'a>>,
    /// The times from a packet's source to its end.
    pub latency: RecentTimes,
    /// The durations of breaths in which packets move.
    pub breath: RecentTimes,
}

/// A worker and what it did in the last second.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Worker with its figures")]
pub struct LiveWorker<'a> {
    /// Its name in the network.
    pub name: &'a str,
    /// The number of its apps.
    pub apps: usize,
    /// Breaths a second.
    pub breaths: f64,
    /// The share of these in which no packet moved; null without breaths.
    pub idle_breaths: Option<f64>,
    /// The share of the time that it slept.
    pub asleep: f64,
    /// Its memory node; null on a machine with one, or if it may run on several.
    pub node: Option<usize>,
}

/// The times of the last second.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
#[schemars(title = "Times of the last second")]
pub struct RecentTimes {
    /// The median; null without times.
    pub p50_ns: Option<u64>,
    /// The 99th percentile; null without times.
    pub p99_ns: Option<u64>,
    /// The longest; null without times.
    pub maximum_ns: Option<u64>,
}

/// An app with its rates.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "App with its figures")]
pub struct LiveApp<'a> {
    /// Its name in the network.
    pub name: &'a str,
    /// Its type.
    pub kind: &'a str,
    /// Its worker.
    pub worker: &'a str,
    /// Its state, as in [App](#app).
    pub state: &'a str,
    /// Packets received a second.
    pub received: Option<f64>,
    /// Packets sent a second.
    pub sent: Option<f64>,
    /// Packets dropped a second.
    pub dropped: Option<f64>,
    /// Those of `dropped` that were not dropped at full links.
    pub dropped_inside: Option<f64>,
    /// Packets dropped in all.
    pub dropped_packets: u64,
    /// Clocks a packet in the last seconds; null if too few calls were sampled.
    pub clocks: Option<f64>,
    /// Its share of all clocks in the last seconds; null without samples.
    pub share: Option<f64>,
    /// Packets a call in the last seconds; null without calls.
    pub packets_per_call: Option<f64>,
}

/// A link with its rates.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Link with its figures")]
pub struct LiveLink<'a> {
    /// `app.output`.
    pub from: &'a str,
    /// `app.input`.
    pub to: &'a str,
    /// Packets a second.
    pub packets: Option<f64>,
    /// Bits a second.
    pub bits: Option<f64>,
    /// Packets dropped a second because it was full.
    pub dropped: Option<f64>,
    /// Packets dropped in all because it was full.
    pub dropped_packets: u64,
    /// Packets sent and not yet received.
    pub waiting: u64,
}

/// All about an app.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "App of the page")]
pub struct AppDetail<'a> {
    /// Its counters.
    pub app: &'a AppCounts,
    /// Its index in the network's apps, from 0.
    pub index: usize,
    /// The meanings of its drop reasons and counters.
    pub helps: BTreeMap<&'a str, String>,
    /// Its costs, as in `show run --json`.
    pub rows: Vec<AppCost<'a>>,
    /// Whether these count since a `clear`, and not since the start of the run.
    pub cleared: bool,
    /// The time to which they belong.
    pub seconds: f64,
    /// The indices of its links in the network's.
    pub links: Vec<usize>,
    /// Its last minutes.
    pub history: AppHistory,
}

/// All about a link.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Link of the page")]
pub struct LinkDetail<'a> {
    /// Its counters.
    pub link: &'a LinkCounts,
    /// Its index in the network's links, from 0.
    pub index: usize,
    /// Its last minutes.
    pub history: LinkHistory,
}

/// A network drawn, with room for live figures.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Picture of a network")]
pub struct Drawn {
    /// That of `GET /api/live`.
    pub structure: String,
    /// The picture; null if the network is too large, or its counters cannot be read.
    pub svg: Option<String>,
    /// For each app of the picture its index in the network's apps. Overviews leave out the joins in compound apps.
    pub apps: Vec<usize>,
    /// For each link of the picture its index in the network's links; null if it is not one of these.
    pub links: Vec<Option<usize>>,
}

/// How long the calls of an app take.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Durations of calls")]
pub struct Durations<'a> {
    /// The app.
    pub app: &'a str,
    /// The time in which they were recorded.
    pub seconds: f64,
    /// Its recorded calls that moved packets, of breaths chosen at random.
    pub durations: Times,
}

/// What the apps and shared objects of a network say of themselves.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Statuses of the page", extend("includes" = ["Network"]))]
pub struct Statuses {
    /// The network.
    #[serde(flatten)]
    pub subject: Subject,
    /// The apps that have a status.
    pub apps: Vec<AppStatus>,
    /// The shared objects of the network.
    pub objects: Vec<ObjectStatus>,
}

/// The paths of packets, and why there are no more.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Trace of the page", extend("includes" = ["Trace"]))]
pub struct Traced<'a> {
    /// The paths.
    #[serde(flatten)]
    pub trace: TraceReport<'a>,
    /// Why it ended.
    pub end: TraceEnd,
    /// Why nothing more came; null if nothing was in the way.
    pub obstacle: Option<&'a str>,
}

/// What a change has done.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Change of a network")]
pub struct Changed {
    /// The name of the network.
    pub name: String,
    /// True, for `clear`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleared: Option<bool>,
    /// The report, for `reload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reloaded: Option<ReloadReport>,
}
