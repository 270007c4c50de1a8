//! The figures of a network as JSON. What other reports of Bellows have as well is computed by the same code, in
//! `inspect`.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use bellows_graph::{Edge, Node, Overview, View};
use bellows_inspect::accounting::{Accounts, Cost, CostRow};
use bellows_inspect::baseline::Since;
use bellows_inspect::networks::{Change, Rate, Sample, State};
use bellows_inspect::picture::Picture;
use bellows_inspect::reports::{self, AppCost, Costs, Latency, Shown, Subject};
use bellows_inspect::timeline::{Report, Span};
use bellows_inspect::times::{self, Times};
use bellows_observe::{AppCounts, LinkCounts, RuntimeDir};
use serde_json::{Value, json};

use crate::answers::{
    AppDetail, Counted, Drawn, Durations, LinkDetail, Listed, Live, LiveApp, LiveLink, LiveWorker, NetworkRates,
    RecentTimes,
};
use crate::history::{AppHistory, rounded};
use crate::monitor::{Networks, Watched};

/// The maximum number of slow breaths to list.
pub const MAX_SLOWEST: usize = 12;

/// The text that reserves the room for a link's rates.
const LABEL: &str = "88.8 Mpps 88.8 Gb/s";

/// The text that reserves the room for a link's drops.
const DROPS: &str = "88.8 Mpps";

/// The text that reserves the room for an app's cost.
const NOTE: &str = "8,888 clocks/pkt";

impl Watched {
    /// One word for its state: that of its health, or `ended`.
    fn health(&self) -> &'static str {
        match (self.state, &self.checkup) {
            (None, _) => "ended",
            (Some(_), Some(checkup)) => checkup.health.name(),
            (Some(_), None) => "running",
        }
    }

    /// The reasons for its health, in sentences.
    fn reasons(&self) -> Vec<&str> {
        let of_health = self.checkup.iter().flat_map(|checkup| &checkup.reasons);
        of_health.chain(&self.problem).map(String::as_str).collect()
    }

    /// The change that awaits its confirmation, in a sentence.
    fn unconfirmed(&self) -> Option<String> {
        Some(self.checkup.as_ref()?.confirmation.as_ref()?.sentence(&self.name))
    }

    /// For the reports that commands print as well.
    pub fn subject(&self) -> Subject {
        // An ended network has no state any more: it no longer runs.
        Subject { name: self.name.clone(), user: self.user.clone(), state: self.state.unwrap_or(State::Crashed) }
    }

    fn listed(&self) -> Listed<'_> {
        let counters = self.sample.as_ref().map(|sample| &sample.counters);
        let running = self.sample.as_ref().filter(|_| self.state.is_some_and(State::is_alive));
        Listed {
            name: &self.name,
            user: &self.user,
            foreign: self.is_foreign(),
            state: self.state,
            health: self.health(),
            reasons: self.reasons(),
            confirmation: self.unconfirmed(),
            pid: self.pid,
            uptime_seconds: running.map(|sample| sample.uptime().as_secs_f64()),
            packets_per_second: self.change.as_ref().map(|change| rounded(change.busiest_link().packets)),
            drops_per_second: self.change.as_ref().map(|change| rounded(reports::drops_per_second(change))),
            network: counters.map(|counters| counters.source.as_str()),
            schedule: counters.map(|counters| counters.schedule.as_str()),
        }
    }
}

/// The list of networks.
pub fn list(networks: &Networks) -> Value {
    networks.values().map(|network| json!(network.listed())).collect()
}

/// The network of this name.
pub fn find<'n>(networks: &'n Networks, name: &str) -> Option<&'n Watched> {
    networks.values().find(|network| network.name == name)
}

/// The figures of a network that change all the time.
pub fn live(network: &Watched) -> Value {
    let change = network.change.as_ref();
    let sample = network.sample.as_ref();
    json!(Live {
        listed: network.listed(),
        structure: structure(network.structure),
        events: &network.events,
        kept: &network.kept,
        history: network.history.of_network(),
        counted: sample.map(|sample| counted(network, sample, change)),
        rates: sample.and(change).map(rates),
    })
}

fn structure(number: u64) -> String {
    format!("{number:016x}")
}

fn counted<'n>(network: &'n Watched, sample: &'n Sample, change: Option<&Change>) -> Counted<'n> {
    let counters = &sample.counters;
    Counted {
        at_ms: sample.at / 1_000_000,
        version: &counters.version,
        reloads: counters.engine("reloads"),
        dropped: counters.dropped(),
        buffers: counters.engine("buffers"),
        buffers_in_use: counters.engine("buffers_in_use"),
        buffers_lent: counters.engine("buffers_lent"),
        apps: apps(network, sample, change),
        links: links(sample, change),
    }
}

fn rates(change: &Change) -> NetworkRates<'_> {
    let workers = change.workers().map(|worker| LiveWorker {
        name: worker.name,
        apps: worker.apps.len(),
        breaths: rounded(worker.breaths),
        idle_breaths: worker.idle_breaths.map(rounded),
        asleep: rounded(worker.asleep),
        node: worker.node,
    });
    let [latency, breath] = ["latency", "breath"].map(|name| {
        let histogram = change.histogram(name);
        let [p50_ns, p99_ns] = [0.5, 0.99].map(|part| histogram.quantile(part));
        RecentTimes { p50_ns, p99_ns, maximum_ns: times::longest(&histogram) }
    });
    NetworkRates {
        bits_per_second: rounded(change.busiest_link().bits),
        breaths_per_second: rounded(change.engine("breaths")),
        idle_breaths: change.idle_breaths().map(rounded),
        asleep: rounded(change.asleep()),
        workers: workers.collect(),
        latency,
        breath,
    }
}

/// The apps, in the network's order. Rates are `None` if nothing moves any more.
fn apps<'n>(network: &Watched, sample: &'n Sample, change: Option<&Change>) -> Vec<LiveApp<'n>> {
    let before: Vec<Option<&AppCounts>> = match change {
        Some(change) => change.apps().map(|(before, _)| before).collect(),
        None => vec![None; sample.counters.apps.len()],
    };
    let each = sample.counters.apps.iter().zip(before).enumerate();
    each.map(|(index, (app, before))| {
        let rate =
            |of: fn(&AppCounts) -> u64| change.map(|change| rounded(change.per_second(before.map_or(0, of), of(app))));
        let Cost { share, clocks_per_packet, packets_per_call } = network.costs.get(index).copied().unwrap_or_default();
        LiveApp {
            name: &app.name,
            kind: &app.kind,
            worker: &app.worker,
            state: &app.state,
            received: rate(|app| app.in_packets),
            sent: rate(|app| app.out_packets),
            dropped: rate(AppCounts::dropped),
            // Drops at full links are those of the links.
            dropped_inside: rate(dropped_inside),
            dropped_packets: app.dropped(),
            clocks: clocks_per_packet.map(rounded),
            share: share.map(rounded),
            packets_per_call: packets_per_call.map(rounded),
        }
    })
    .collect()
}

/// Packets that an app has dropped for its own reasons.
fn dropped_inside(app: &AppCounts) -> u64 {
    app.dropped().saturating_sub(app.drops.get("txdrop").copied().unwrap_or(0))
}

/// The links, in the network's order.
fn links<'n>(sample: &'n Sample, change: Option<&Change>) -> Vec<LiveLink<'n>> {
    let rates: Vec<Option<Rate>> = match change {
        Some(change) => change.links().map(|(_, rate)| Some(rate)).collect(),
        None => vec![None; sample.counters.links.len()],
    };
    let each = sample.counters.links.iter().zip(rates);
    each.map(|(link, rate)| LiveLink {
        from: &link.from,
        to: &link.to,
        packets: rate.map(|rate| rounded(rate.packets)),
        bits: rate.map(|rate| rounded(rate.bits)),
        dropped: rate.map(|rate| rounded(rate.dropped)),
        dropped_packets: link.txdrop,
        waiting: link.waiting,
    })
    .collect()
}

/// A picture of a network that is not drawn yet.
pub struct Draft {
    structure: u64,
    picture: Option<Picture>,
    /// The positions of the picture's links in the network.
    links: Vec<Option<usize>>,
}

impl Draft {
    pub fn of(network: &Watched) -> Draft {
        let structure = network.structure;
        let Some(sample) = &network.sample else { return Draft { structure, picture: None, links: Vec::new() } };
        let mut picture = Picture::of_counters(&sample.counters, false);
        for Node { note, .. } in &mut picture.graph.apps {
            *note = Some(NOTE.to_owned());
        }
        for Edge { label, drops, .. } in &mut picture.graph.links {
            (*label, *drops) = (Some(LABEL.to_owned()), Some(DROPS.to_owned()));
        }
        let links = sample.counters.links.iter().enumerate();
        let positions: HashMap<_, _> = links.map(|(index, link)| ((&*link.from, &*link.to), index)).collect();
        let position = |[from, to]: &[(String, String); 2]| {
            let (from, to) = (format!("{}.{}", from.0, from.1), format!("{}.{}", to.0, to.1));
            positions.get(&(&*from, &*to)).copied()
        };
        Draft { structure, links: picture.ends.iter().map(position).collect(), picture: Some(picture) }
    }

    /// The picture, with room for live figures; `svg` is `null` if it is too large to be drawn.
    pub fn picture(&self, view: View) -> Value {
        let overview = match &self.picture {
            Some(picture) if view == View::Full => picture.graph.clone().into(),
            Some(picture) => picture.graph.without_joins(),
            None => Overview::default(),
        };
        json!(Drawn {
            structure: structure(self.structure),
            svg: self.picture.as_ref().and_then(|_| bellows_graph::live(&overview.graph, view)),
            links: overview.links.iter().map(|&link| self.links[link]).collect(),
            apps: overview.apps,
        })
    }
}

/// The counters of a network, from which figures are computed while others look at the network.
pub struct LiveView {
    subject: Subject,
    sample: Arc<Sample>,
}

impl LiveView {
    pub fn of(network: &Watched) -> Option<LiveView> {
        Some(LiveView { subject: network.subject(), sample: Arc::clone(network.sample.as_ref()?) })
    }

    /// The growth of the counters since the counts count, and whether that is the time of a `clear`.
    fn change(&self, runtime_dir: Option<&RuntimeDir>) -> (Change, bool) {
        let beginning = || Since::Start(self.sample.beginning());
        let since = runtime_dir.map_or_else(beginning, |runtime_dir| Since::read(runtime_dir, &self.sample));
        (Change::between(since.sample().clone(), Sample::clone(&self.sample)), since.is_clear())
    }
}

/// An app of such a network.
pub struct AppView {
    view: LiveView,
    index: usize,
    history: AppHistory,
}

impl AppView {
    pub fn of(network: &Watched, name: &str) -> Option<AppView> {
        let view = LiveView::of(network)?;
        let index = view.sample.counters.apps.iter().position(|app| app.name == name)?;
        Some(AppView { view, index, history: network.history.of_app(index) })
    }
}

/// All about an app: its counters, as in `show --json`, its costs, as in `show run --json`, and its last minutes.
/// `help` describes a counter of a type of app.
pub fn app(view: AppView, runtime_dir: Option<&RuntimeDir>, help: &dyn Fn(&str, &str) -> Option<String>) -> Value {
    let AppView { view, index, history } = view;
    let counters = &view.sample.counters;
    let app = &counters.apps[index];
    let (change, is_clear) = view.change(runtime_dir);
    let accounts = Accounts::of(&change);
    let rows = accounts.rows.iter().filter(|row| row.app == app.name && row.is_used());
    let of_link = |end: &str| end.rsplit_once('.').map_or(end, |(app, _)| app) == app.name;
    let links = counters.links.iter().enumerate();
    let links = links.filter(|(_, link)| of_link(&link.from) || of_link(&link.to)).map(|(index, _)| index);
    let counters = app.drops.keys().chain(app.counters.keys());
    let helps = counters.filter_map(|counter| {
        let loss = app.loss_helps.get(counter).cloned();
        Some((counter.as_str(), help(&app.kind, counter).or(loss)?))
    });
    json!(AppDetail {
        app,
        index,
        helps: helps.collect(),
        rows: rows.map(AppCost::of).collect(),
        cleared: is_clear,
        seconds: change.seconds(),
        links: links.collect(),
        history,
    })
}

/// All about a link: its counters, as in `show --json`, and its last minutes.
pub fn link(network: &Watched, name: &str) -> Option<Value> {
    let sample = network.sample.as_ref()?;
    let is_meant = |link: &LinkCounts| format!("{} -> {}", link.from, link.to) == name;
    let index = sample.counters.links.iter().position(is_meant)?;
    let (link, history) = (&sample.counters.links[index], network.history.of_link(index));
    Some(json!(LinkDetail { link, index, history }))
}

/// All counters: `show --json`.
pub fn counters(view: &LiveView, config: &str) -> Value {
    json!(Shown::of(&view.subject, &view.sample, config))
}

/// The costs of all apps: `show run --json`.
pub fn costs(view: &LiveView, runtime_dir: Option<&RuntimeDir>) -> Value {
    let (change, is_clear) = view.change(runtime_dir);
    let accounts = Accounts::of(&change);
    let mut rows: Vec<&CostRow> = accounts.rows.iter().filter(|row| row.is_used()).collect();
    let share = |row: &CostRow| row.share.unwrap_or(-1.0);
    rows.sort_by(|one, other| share(other).partial_cmp(&share(one)).unwrap_or(Ordering::Equal));
    json!(Costs::of(&view.subject, is_clear, &change, &accounts, &rows))
}

/// The durations of an app's calls, as far as they were recorded.
pub fn durations(report: &Report, app: &str) -> Value {
    let nanos = report.span().map_or(0, Span::nanos);
    json!(Durations { app, seconds: nanos as f64 / 1e9, durations: Times::of(&report.durations(app)) })
}

/// Latencies and durations of breaths: `show latency --json`.
pub fn latency(view: &LiveView, runtime_dir: Option<&RuntimeDir>) -> Value {
    let (change, is_clear) = view.change(runtime_dir);
    json!(Latency::of(&view.subject, is_clear, &change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::tests::{sample, watched};

    fn running() -> Watched {
        let mut network = watched();
        (1..4).for_each(|second| network.take_for_test(sample(second, 1_000 * second)));
        network
    }

    #[test]
    fn figures_are_those_of_the_counters() {
        let network = running();
        let live = live(&network);
        assert_eq!((&live["health"], &live["apps"][1]["received"]), (&json!("running"), &json!(1_000.0)));
        assert_eq!((&live["apps"][1]["clocks"], &live["links"][0]["bits"]), (&json!(20.0), &json!(480_000.0)));
        let view = |name: &str| AppView::of(&network, name);
        let app = app(view("b").unwrap(), None, &|kind, counter| Some(format!("{kind} {counter}")));
        assert_eq!((&app["app"]["in_packets"], &app["index"]), (&json!(3_000), &json!(1)));
        assert_eq!((&app["rows"][0]["clocks_per_packet"], &app["links"]), (&json!(20.0), &json!([0])));
        let link = link(&network, "a.output -> b.input").unwrap();
        assert_eq!((&link["link"]["packets"], &link["history"]["packets"][1]), (&json!(3_000), &json!(1_000.0)));
        assert!(view("c").is_none() && super::link(&network, "a -> b").is_none());
        let counters = counters(&LiveView::of(&network).unwrap(), "");
        assert_eq!(counters["links"][0]["packets"], json!(3_000));
    }

    #[test]
    fn the_rates_of_a_new_app_are_those_of_its_history() {
        let mut network = running();
        let mut reloaded = sample(4, 4_000);
        let mut added = reloaded.counters.apps[1].clone();
        (added.name, added.in_packets) = ("new".to_owned(), 70);
        added.drops.insert("full".to_owned(), 30);
        reloaded.counters.apps.push(added);
        network.take_for_test(reloaded);
        let app = &live(&network)["apps"][2];
        assert_eq!((&app["received"], &app["dropped"]), (&json!(70.0), &json!(30.0)));
        assert_eq!(network.history.of_app(2).received, [Some(70.0)]);
    }

    #[test]
    fn the_picture_has_room_for_figures() {
        let picture = Draft::of(&running()).picture(View::Full);
        let svg = picture["svg"].as_str().unwrap();
        for part in ["data-app=\"0\"", "data-app=\"1\"", "<g class=\"link\" data-link=\"0\"", "88.8 Gb/s", "clocks/pkt"]
        {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        assert!(!svg.contains("<style") && !svg.contains("<title"), "{svg}");
        assert_eq!(picture["links"], json!([0]));
    }

    #[test]
    fn a_network_without_counters_is_listed() {
        let mut network = watched();
        network.problem = Some("its counters cannot be read".to_owned());
        let live = live(&network);
        assert_eq!((&live["reasons"][0], &live["pid"]), (&json!("its counters cannot be read"), &json!(7)));
        assert_eq!(Draft::of(&network).picture(View::Full)["svg"], Value::Null);
    }
}
