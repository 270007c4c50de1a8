//! The reports on a network as JSON, as `bellows show … --json` prints them and other readers pass them on. The keys
//! are described in `docs/json.md`.

use serde_json::{Value, json};

use crate::accounting::{Accounts, CostRow};
use crate::compounds;
use crate::networks::{self, Change, Hang, Sample, State};
use crate::times::{self, TIMES};

/// A network, for the keys that all reports have.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// Its name, as commands accept it.
    pub name: String,
    /// Its user.
    pub user: String,
    /// The state of its process.
    pub state: State,
}

/// All counters of a network, with its configuration: `show --json`.
pub fn counters(subject: &Subject, sample: &Sample, config: &str) -> Value {
    let mut value = json!(sample.counters);
    value["config"] = json!(config);
    value["failed"] = json!(networks::failed(&sample.counters));
    value["hang"] = json!(Hang::of(sample).filter(|_| subject.state == State::Running));
    value["name"] = json!(subject.name);
    value["user"] = json!(subject.user);
    value["state"] = json!(subject.state);
    value
}

/// What each app costs, in these rows of its accounts: `show run --json`. `cleared` says whether the change is that
/// since `bellows clear`.
pub fn costs(subject: &Subject, cleared: bool, change: &Change, accounts: &Accounts, rows: &[&CostRow]) -> Value {
    let busiest = change.busiest_link();
    json!({
        "name": subject.name,
        "user": subject.user,
        "state": subject.state,
        "schedule": change.after.counters.schedule,
        "since": change.before.at,
        "cleared": cleared,
        "seconds": change.seconds(),
        "ticks_per_second": change.after.counters.ticks_per_second,
        "breaths": change.engine_total("breaths"),
        "idle_breaths": change.engine_total("idle_breaths"),
        "sampled_breaths": change.engine_total("sampled_breaths"),
        "sleeps": change.engine_total("sleeps"),
        "asleep": change.asleep(),
        "in_apps": in_apps(change, accounts),
        "packets_per_second": busiest.packets,
        "bits_per_second": busiest.bits,
        "drops_per_second": drops_per_second(change),
        "workers": change.workers().collect::<Vec<_>>(),
        "compounds": compounds::costs(change, accounts),
        "rows": rows.iter().map(|row| cost(row)).collect::<Vec<_>>(),
    })
}

/// A row of [`costs`].
pub fn cost(row: &CostRow) -> Value {
    let mut value = json!(row);
    value["clocks_per_packet"] = json!(row.sampled.clocks_per_packet());
    value["clocks_per_call"] = json!(row.sampled.clocks_per_call());
    value["packets_per_call"] = json!(row.packets_per_call());
    value["instructions_per_cycle"] = json!(row.sampled.instructions_per_cycle());
    let events = row.sampled.events.keys().map(|event| (event.clone(), json!(row.sampled.per_packet(event))));
    value["events_per_packet"] = Value::Object(events.collect());
    value
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

/// The latency of packets and the duration of breaths: `show latency --json`.
pub fn latency(subject: &Subject, cleared: bool, change: &Change) -> Value {
    let mut value = json!({ "name": subject.name, "user": subject.user, "state": subject.state });
    value["since"] = json!(change.before.at);
    value["cleared"] = json!(cleared);
    value["seconds"] = json!(change.seconds());
    for (name, _) in TIMES {
        value[name] = times::json(&change.histogram(name));
    }
    value
}
