//! The reports on a network as JSON, as `bellows show … --json` prints them and other readers pass them on.

use std::collections::BTreeMap;

use bellows_observe::{RuntimeDir, Snapshot};
use schemars::JsonSchema;
use serde::Serialize;

use crate::accounting::{Accounts, CostRow};
use crate::compounds::{self, CompoundCost};
use crate::networks::{self, Change, Hang, Sample, State, WorkerChange};
use crate::times::Times;

/// A network, for the keys that all reports have.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Network")]
pub struct Subject {
    /// Its name, as commands accept it.
    pub name: String,
    /// Its owner.
    pub user: String,
    /// The state of its process.
    pub state: State,
}

impl Subject {
    /// The network in a folder, now.
    pub fn of(runtime_dir: &RuntimeDir) -> Subject {
        Subject { name: runtime_dir.name(), user: runtime_dir.user(), state: networks::state(runtime_dir) }
    }
}

/// The time in which something was counted.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Period")]
pub struct Period {
    /// Start of the counts: nanoseconds since the Unix epoch.
    pub since_ns: u64,
    /// Whether `since_ns` is the time of a `bellows clear`.
    pub cleared: bool,
    /// Time since then; for a crashed network, until its last update.
    pub seconds: f64,
}

impl Period {
    fn of(change: &Change, cleared: bool) -> Period {
        Period { since_ns: change.before.at, cleared, seconds: change.seconds() }
    }
}

/// All counters of a network, with its configuration: `show --json`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Shown network", extend("includes" = ["Network", "Counters"]))]
pub struct Shown<'r> {
    /// The network.
    #[serde(flatten)]
    pub subject: &'r Subject,
    /// Its counters.
    #[serde(flatten)]
    pub counters: &'r Snapshot,
    /// Names of the apps that have panicked and are not called any more.
    pub failed: Vec<String>,
    /// Null, unless the engine has been inside apps for 2 seconds.
    pub hang: Option<Hang>,
    /// The text of the network file and all that it includes.
    pub config: &'r str,
}

impl<'r> Shown<'r> {
    /// The network of a sample.
    pub fn of(subject: &'r Subject, sample: &'r Sample, config: &'r str) -> Shown<'r> {
        let counters = &sample.counters;
        let hang = Hang::of(sample).filter(|_| subject.state == State::Running);
        Shown { subject, counters, failed: networks::failed(counters), hang, config }
    }
}

/// What the apps of a network cost: `show run --json`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Costs of apps", extend("includes" = ["Network", "Period"]))]
pub struct Costs<'r> {
    /// The network.
    #[serde(flatten)]
    pub subject: &'r Subject,
    /// The time.
    #[serde(flatten)]
    pub period: Period,
    /// The schedule in use.
    pub schedule: &'r str,
    /// Clocks in a second.
    pub ticks_per_second: u64,
    /// All breaths.
    pub breaths: u64,
    /// Breaths in which no packet moved.
    pub idle_breaths: u64,
    /// Breaths in which calls were recorded.
    pub sampled_breaths: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// The share of the time asleep, from 0 to 1; the mean of all workers.
    pub asleep: f64,
    /// The share of the time in calls of apps, from 0 to 1, estimated; the mean of all workers; null without samples.
    pub in_apps: Option<f64>,
    /// Through the busiest link.
    pub packets_per_second: f64,
    /// Through the busiest link.
    pub bits_per_second: f64,
    /// Packets dropped for any reason.
    pub drops_per_second: f64,
    /// The workers.
    pub workers: Vec<WorkerChange<'r>>,
    /// The compound apps, the sums of their parts.
    pub compounds: Vec<CompoundCost>,
    /// One row for each app and entry that was called (with `--all`, for all), in the order of `--sort`; the two sides
    /// of a link between workers are listed like apps.
    pub rows: Vec<AppCost<'r>>,
}

impl<'r> Costs<'r> {
    /// The costs in these rows of accounts. `cleared` says whether the change is that since `bellows clear`.
    pub fn of(
        subject: &'r Subject,
        cleared: bool,
        change: &'r Change,
        accounts: &Accounts,
        rows: &[&'r CostRow],
    ) -> Costs<'r> {
        let busiest = change.busiest_link();
        Costs {
            subject,
            period: Period::of(change, cleared),
            schedule: &change.after.counters.schedule,
            ticks_per_second: change.after.counters.ticks_per_second,
            breaths: change.engine_total("breaths"),
            idle_breaths: change.engine_total("idle_breaths"),
            sampled_breaths: change.engine_total("sampled_breaths"),
            sleeps: change.engine_total("sleeps"),
            asleep: change.asleep(),
            in_apps: in_apps(change, accounts),
            packets_per_second: busiest.packets,
            bits_per_second: busiest.bits,
            drops_per_second: drops_per_second(change),
            workers: change.workers().collect(),
            compounds: compounds::costs(change, accounts),
            rows: rows.iter().map(|row| AppCost::of(row)).collect(),
        }
    }
}

/// What an app costs at one entry.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Cost of an app")]
pub struct AppCost<'r> {
    /// Its calls.
    #[serde(flatten)]
    pub row: &'r CostRow,
    /// Packets divided by calls; null if the packets are unknown, or without calls.
    pub packets_per_call: Option<f64>,
    /// From the samples; null if fewer than 16 calls were sampled, or no packets.
    pub clocks_per_packet: Option<f64>,
    /// From the samples; null if fewer than 16 calls were sampled.
    pub clocks_per_call: Option<f64>,
    /// From the samples; null if fewer than 16 calls were sampled, or nothing was counted.
    pub instructions_per_cycle: Option<f64>,
    /// Each counted event per packet, such as `instructions`.
    pub events_per_packet: BTreeMap<&'r str, Option<f64>>,
}

impl<'r> AppCost<'r> {
    /// The cost in a row of accounts.
    pub fn of(row: &'r CostRow) -> AppCost<'r> {
        let sampled = &row.sampled;
        AppCost {
            row,
            packets_per_call: row.packets_per_call(),
            clocks_per_packet: sampled.clocks_per_packet(),
            clocks_per_call: sampled.clocks_per_call(),
            instructions_per_cycle: sampled.instructions_per_cycle(),
            events_per_packet: sampled.events.keys().map(|event| (event.as_str(), sampled.per_packet(event))).collect(),
        }
    }
}

/// The latency of packets and the duration of breaths: `show latency --json`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Shown latency", extend("includes" = ["Network", "Period"]))]
pub struct Latency<'r> {
    /// The network.
    #[serde(flatten)]
    pub subject: &'r Subject,
    /// The time.
    #[serde(flatten)]
    pub period: Period,
    /// The time from a packet's source to its end.
    pub latency: Times,
    /// The duration of a breath in which packets moved.
    pub breath: Times,
}

impl<'r> Latency<'r> {
    /// The times in a change. `cleared` says whether it is that since `bellows clear`.
    pub fn of(subject: &'r Subject, cleared: bool, change: &Change) -> Latency<'r> {
        let [latency, breath] = ["latency", "breath"].map(|name| Times::of(&change.histogram(name)));
        Latency { subject, period: Period::of(change, cleared), latency, breath }
    }
}

/// The share of the time spent in apps, from 0 to 1, estimated from the samples; `None` without samples.
pub fn in_apps(change: &Change, accounts: &Accounts) -> Option<f64> {
    let counters = &change.after.counters;
    let workers = counters.workers.len().max(1) as f64;
    let ticks = counters.ticks_per_second as f64 * change.seconds() * workers;
    let is_sampled = change.engine_total("sampled_breaths") > 0;
    (is_sampled && ticks >= 1.0).then(|| (accounts.clocks / ticks).min(1.0))
}

/// Dropped packets a second, for any reason.
pub fn drops_per_second(change: &Change) -> f64 {
    change.per_second(change.before.counters.dropped(), change.after.counters.dropped())
}
