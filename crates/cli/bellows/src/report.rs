//! The reports of runs and reloads, for people and for programs.

use std::collections::HashSet;
use std::time::Duration;

use bellows_engine::{End, Outcome, PROGRESS, PROGRESS_TOTAL};
use bellows_inspect::accounting::Accounts;
use bellows_inspect::control::ReloadReport;
use bellows_inspect::networks;
use bellows_inspect::text::sanitize;
use bellows_inspect::times::{self, PERCENTILES, TIMES};
use bellows_observe::{AppCounts, Imbalance, LinkCounts, Snapshot};
use schemars::JsonSchema;
use serde::Serialize;

use crate::text::{Align, Table, bit_rate, count, figure, known, nanos, packet_rate, plural, span};

/// A reason is explained beside all counters if it makes an app lose at least one in this many of its received packets.
const NOTABLE: u64 = 10;

/// The reason for which a run was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoppedBy {
    /// `--duration` was over.
    Duration,
    /// SIGINT or SIGTERM.
    Signal,
    /// `bellows stop`.
    Request,
}

impl StoppedBy {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            StoppedBy::Duration => "duration",
            StoppedBy::Signal => "signal",
            StoppedBy::Request => "request",
        }
    }
}

/// The pool's memory.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Memory")]
pub struct PoolMemory {
    /// `hugetlb` or `thp`: 2 MiB pages; `4k`.
    #[schemars(extend("enum" = ["hugetlb", "thp", "4k"]))]
    pub pages: String,
    /// Packet buffers in the pool.
    pub buffers: u64,
    /// Those that hold packets: 0, unless an app leaked buffers.
    pub buffers_in_use: u64,
}

impl PoolMemory {
    /// The kind of this process's pages.
    pub fn of_this_process() -> PoolMemory {
        let usage = bellows_packet::pool::usage();
        PoolMemory {
            pages: bellows_packet::pool::pages().to_string(),
            buffers: (usage.packets + usage.large_packets) as u64,
            buffers_in_use: usage.in_use as u64,
        }
    }
}

/// An app with an error that kept it from finishing.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Unfinished app")]
pub struct Unfinished {
    /// The app.
    pub app: String,
    /// Why it could not finish.
    pub reason: String,
}

/// Unintended drops: packets lost although the configuration does not ask for it.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Loss")]
pub struct Loss {
    /// The app.
    pub app: String,
    /// The drop reason.
    pub reason: String,
    /// The meaning of that reason.
    pub help: String,
    /// The number of packets.
    pub packets: u64,
}

/// What is done about a pool that runs out of buffers.
const MORE_BUFFERS: &str =
    "a larger `pool` in [engine] avoids that (`large_packets` for packets longer than 2,048 bytes)";

impl Loss {
    fn of(app: &AppCounts) -> impl Iterator<Item = Loss> {
        app.lost.iter().map(|(reason, &packets)| Loss {
            app: app.name.clone(),
            reason: reason.clone(),
            help: loss_help(app, reason).unwrap_or_default(),
            packets,
        })
    }

    fn sentence(&self) -> String {
        let Loss { app, reason, help, packets } = self;
        format!("{} lost in the app `{app}`, {reason}: {help}", plural(*packets, "packet"))
    }
}

/// All such losses, including those of apps that reloads have removed.
pub fn losses(counters: &Snapshot) -> Vec<Loss> {
    counters.apps.iter().chain(&counters.gone.apps).flat_map(Loss::of).collect()
}

/// What a reason means for which an app loses packets, with the way out; none if it is the purpose of the app.
pub fn loss_help(app: &AppCounts, reason: &str) -> Option<String> {
    match reason {
        "txdrop" => Some("a link that leads out of it was full; `lossless = true` in [engine] avoids that".to_owned()),
        "no_buffer" => Some(format!("the pool ran out of buffers; {MORE_BUFFERS}")),
        reason => app.loss_helps.get(reason).cloned(),
    }
}

/// What the reasons of losses mean, with their likely causes: of those of which an app loses at least one packet for
/// each `share` that it receives.
pub fn causes(snapshot: &Snapshot, share: u64) -> String {
    let is_much = |app: &AppCounts, loss: &Loss| loss.packets.saturating_mul(share) >= app.in_packets;
    let of_app = |app: &AppCounts| {
        let losses = Loss::of(app).filter(|loss| loss.packets > 0 && !loss.help.is_empty() && is_much(app, loss));
        losses.map(|loss| sanitize(&loss.sentence()) + "\n").collect::<String>()
    };
    snapshot.apps.iter().map(of_app).collect()
}

/// The outcome of a run. `docs/json.md` describes its JSON form.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Report of a run", extend("includes" = ["Counters"]))]
pub struct RunReport {
    /// The name of the run.
    pub name: String,
    /// `done` (all sources are finished and no packets are left), `stopped`, `closed` (no app in which packets end can
    /// take more: the reader of standard output has ended), or `stalled` (packets wait that no app will ever take).
    #[schemars(extend("enum" = ["done", "stopped", "closed", "stalled"]))]
    pub end: &'static str,
    /// What stopped it; null unless `end` is `stopped`.
    pub stopped_by: Option<StoppedBy>,
    /// Duration of the run.
    pub elapsed_seconds: f64,
    /// The link with the most packets in the whole run, across reloads; null without links.
    pub busiest_link: Option<String>,
    /// Through that link, averaged over the whole run.
    pub packets_per_second: f64,
    /// Through that link, averaged over the whole run.
    pub bits_per_second: f64,
    /// Links in which packets wait, if `end` is `stalled`.
    pub stalled: Vec<String>,
    /// Names of the apps that panicked.
    pub panicked: Vec<String>,
    /// Apps that could not finish their work.
    pub unfinished: Vec<Unfinished>,
    /// Apps whose books do not balance. Each is a bug in the app and makes the run fail.
    pub imbalances: Vec<Imbalance>,
    /// Drops that nobody asked for.
    pub losses: Vec<Loss>,
    /// Log lines that could not be written to standard error: its disk was full, or its reader had ended or was too
    /// slow.
    pub log_lines_lost: u64,
    /// Sentences; the causes of a failed run come first.
    pub warnings: Vec<String>,
    /// How many of these are failures.
    #[serde(skip)]
    failures: usize,
    /// The packet pool.
    pub memory: PoolMemory,
    /// All counters.
    #[serde(flatten)]
    pub counters: Snapshot,
}

impl RunReport {
    /// The notes on a run.
    pub fn new(name: String, outcome: Outcome, stopped_by: Option<StoppedBy>, log_lines_lost: u64) -> RunReport {
        let Outcome { end, panicked, unfinished, snapshot, elapsed } = outcome;
        let memory = PoolMemory::of_this_process();
        let mut panicked = panicked;
        let mut known = HashSet::new();
        panicked.retain(|app| known.insert(app.clone()));
        let mut warnings: Vec<String> = panicked.iter().map(|app| panic(app, &snapshot)).collect();
        let imbalances = snapshot.imbalances();
        warnings.extend(imbalances.iter().map(Imbalance::to_string));
        warnings.extend(unfinished.iter().map(|(app, reason)| format!("app `{app}` could not finish: {reason}")));
        let (end, stalled) = match end {
            End::Done => ("done", Vec::new()),
            End::Stopped => ("stopped", Vec::new()),
            End::Closed => ("closed", Vec::new()),
            End::Stalled(links) => ("stalled", links),
        };
        if !stalled.is_empty() || end == "stalled" {
            let links = stalled.iter().map(|link| format!("`{link}`")).collect::<Vec<_>>().join(", ");
            warnings.push(format!("the run stalled: no app will ever take the packets in {links}"));
        }
        let failures = warnings.len();
        if !snapshot.fallback_reason.is_empty() {
            warnings.push(format!(
                "the schedule was {}, not native as requested: {}",
                snapshot.schedule, snapshot.fallback_reason
            ));
        }
        let losses = losses(&snapshot);
        // The drops of a failed app are reported with its failure.
        warnings.extend(losses.iter().filter(|loss| loss.reason != "app_failed").map(Loss::sentence));
        for app in &snapshot.apps {
            if let Some(&waits) = app.counters.get("buffer_waits").filter(|waits| **waits > 0) {
                let times = plural(waits, "time");
                warnings.push(format!("the app `{}` waited {times} for a buffer: {MORE_BUFFERS}", app.name));
            }
        }
        if log_lines_lost > 0 {
            warnings.push(format!(
                "{} of the log could not be written to standard error; check that its disk has room and its reader keeps up, \
                 or log less (`--log-level warn`)",
                plural(log_lines_lost, "line")
            ));
        }
        let per_second = |total: u64| if elapsed.is_zero() { 0.0 } else { total as f64 / elapsed.as_secs_f64() };
        let busiest = busiest(&snapshot);
        RunReport {
            name,
            end,
            stopped_by: stopped_by.filter(|_| end == "stopped"),
            elapsed_seconds: elapsed.as_secs_f64(),
            packets_per_second: busiest.as_ref().map_or(0.0, |link| per_second(link.packets)),
            bits_per_second: busiest.as_ref().map_or(0.0, |link| per_second(link.bytes.saturating_mul(8))),
            busiest_link: busiest.map(|link| link_name(&link)),
            imbalances,
            losses,
            log_lines_lost,
            stalled,
            panicked,
            unfinished: unfinished.into_iter().map(|(app, reason)| Unfinished { app, reason }).collect(),
            warnings,
            failures,
            memory,
            counters: snapshot,
        }
    }

    /// Whether the run succeeded.
    pub fn is_fine(&self) -> bool {
        self.failures == 0
    }

    /// The failures of the run, one on each line, coloured if `rich`.
    pub fn errors(&self, rich: bool) -> Vec<String> {
        labelled("error:", "31", &self.warnings[..self.failures], rich)
    }

    /// The report for people, with bold headings if `rich`.
    pub fn render(&self, rich: bool) -> String {
        let mut text = counters(&self.counters, rich);
        let end = match (self.end, self.stopped_by) {
            (_, Some(StoppedBy::Duration)) => "its time was over",
            (_, Some(StoppedBy::Signal)) => "stopped by a signal",
            (_, Some(StoppedBy::Request)) => "stopped on request",
            ("done", None) => "all done",
            ("closed", None) => "ended because no app can take packets any more",
            (end, None) => end,
        };
        text += &format!(
            "\n{}: {end} after {}; busiest link {}, {} on average over the run\n",
            self.name,
            span(Duration::from_secs_f64(self.elapsed_seconds)),
            packet_rate(self.packets_per_second),
            bit_rate(self.bits_per_second),
        );
        text += &left(&self.counters);
        let pages = match self.memory.pages.as_str() {
            "hugetlb" => "2 MiB pages (hugetlb)",
            "thp" => "2 MiB pages (transparent)",
            _ => "4 KiB pages",
        };
        text += &format!("schedule {}, {} buffers on {pages}", self.counters.schedule, count(self.memory.buffers));
        let reloads = self.counters.engine("reloads");
        if reloads > 0 {
            text += &format!(", {}", plural(reloads, "reload"));
        }
        if let Some(slow) = networks::slow(&self.counters) {
            text += &format!(", {slow}");
        }
        text.push('\n');
        let times = TIMES.iter().filter_map(|(name, _)| {
            let histogram = self.counters.histograms.get(*name)?;
            let longest = times::longest(histogram)?;
            Some(format!("{}, maximum {}", times::brief(name, histogram, PERCENTILES.len())?, nanos(longest)))
        });
        let times: Vec<String> = times.collect();
        if !times.is_empty() {
            text += &format!("{}\n", times.join("; "));
        }
        let warnings = labelled("warning:", "33", &self.warnings[self.failures..], rich);
        text + &self.errors(rich).concat() + &warnings.concat()
    }
}

/// The note on an app that has panicked.
fn panic(app: &str, counters: &Snapshot) -> String {
    let rows = || counters.apps.iter().chain(&counters.gone.apps).filter(|row| row.name == app);
    let dropped: u64 = rows().filter_map(|row| row.drops.get("app_failed")).sum();
    let times = match rows().map(|row| row.panics).sum() {
        0 | 1 => String::new(),
        times => format!(" {times} times"),
    };
    let since = match rows().any(|row| row.state == "failed") {
        true => "and received since",
        false => "and received until it was started again",
    };
    format!("app `{app}` panicked{times}; what it held {since} was dropped: {}", plural(dropped, "packet"))
}

fn link_name(link: &LinkCounts) -> String {
    format!("{} -> {}", link.from, link.to)
}

/// The link with the most packets. A link that reloads removed and brought back counts as one.
fn busiest(counters: &Snapshot) -> Option<LinkCounts> {
    let mut links: Vec<LinkCounts> = counters.links.clone();
    for gone in &counters.gone.links {
        match links.iter_mut().find(|link| (&link.from, &link.to) == (&gone.from, &gone.to)) {
            Some(link) => {
                link.packets = link.packets.saturating_add(gone.packets);
                link.bytes = link.bytes.saturating_add(gone.bytes);
            }
            None => links.push(gone.clone()),
        }
    }
    links.into_iter().max_by_key(|link| link.packets)
}

/// The places of packets at the end of the run; empty if there were none.
fn left(counters: &Snapshot) -> String {
    let list = |rows: Vec<(String, u64)>| {
        let all: u64 = rows.iter().map(|(_, packets)| packets).fold(0, |all, packets| all.saturating_add(*packets));
        let rows: Vec<String> = rows.iter().map(|(name, packets)| format!("`{name}` {}", count(*packets))).collect();
        (all, rows.join(", "))
    };
    let held = counters.apps.iter().filter(|app| app.held > 0);
    let (held, apps) = list(held.map(|app| (app.name.clone(), app.held)).collect());
    let waiting = counters.links.iter().filter(|link| link.waiting > 0);
    let (waiting, links) = list(waiting.map(|link| (link_name(link), link.waiting)).collect());
    let mut parts = Vec::new();
    if held > 0 {
        parts.push(format!("{} in apps ({apps})", plural(held, "packet")));
    }
    if waiting > 0 {
        parts.push(format!("{} waiting in links ({links})", plural(waiting, "packet")));
    }
    if parts.is_empty() { String::new() } else { format!("left at the end: {}\n", parts.join(", ")) }
}

/// Sentences as lines behind a label, coloured if `rich`.
fn labelled(label: &str, colour: &str, sentences: &[String], rich: bool) -> Vec<String> {
    let label = if rich { format!("\x1b[1;{colour}m{label}\x1b[0m") } else { label.to_owned() };
    sentences.iter().map(|sentence| format!("{label} {sentence}\n")).collect()
}

/// All counters of an engine: apps, links, drops, and the apps' own counters.
pub fn counters(snapshot: &Snapshot, rich: bool) -> String {
    let mut sections = vec![apps(snapshot).render(rich), links(snapshot).render(rich)];
    let drops = drops(snapshot);
    if !drops.is_empty() {
        sections.push(drops.render(rich) + &causes(snapshot, NOTABLE));
    }
    let counters = app_counters(snapshot);
    if !counters.is_empty() {
        sections.push(counters.render(rich));
    }
    sections.join("\n")
}

/// A table of the apps.
pub fn apps(snapshot: &Snapshot) -> Table {
    let mut table = Table::new(&[
        ("APP", Align::Left),
        ("TYPE", Align::Left),
        ("PACKETS IN", Align::Right),
        ("BYTES IN", Align::Right),
        ("PACKETS OUT", Align::Right),
        ("BYTES OUT", Align::Right),
        ("DROPPED", Align::Right),
    ]);
    let accounts = Accounts::of_run(snapshot);
    let clocks: Vec<Option<f64>> = snapshot.apps.iter().map(|app| accounts.app(&app.name).clocks_per_packet).collect();
    let are_known = clocks.iter().any(Option::is_some);
    if are_known {
        table.column("CLOCKS/PKT", Align::Right);
    }
    let some_hold = snapshot.apps.iter().any(|app| app.held > 0);
    if some_hold {
        table.column("HELD", Align::Right);
    }
    let gone = snapshot.gone.apps.iter().map(|app| (format!("{} (removed)", app.name), app, None));
    let rows = snapshot.apps.iter().zip(clocks).map(|(app, clocks)| (app.name.clone(), app, clocks));
    for (name, app, clocks) in rows.chain(gone) {
        let numbers = [app.in_packets, app.in_bytes, app.out_packets, app.out_bytes, app.dropped()].map(count);
        let clocks = are_known.then(|| known(clocks, figure));
        let held = some_hold.then(|| count(app.held));
        table.row([name, app.kind.clone()].into_iter().chain(numbers).chain(clocks).chain(held));
    }
    table
}

/// A table of the links.
pub fn links(snapshot: &Snapshot) -> Table {
    let mut table = Table::new(&[
        ("LINK", Align::Left),
        ("PACKETS", Align::Right),
        ("BYTES", Align::Right),
        ("WAITING", Align::Right),
        ("DROPPED", Align::Right),
    ]);
    let gone = snapshot.gone.links.iter().map(|link| (format!("{} (removed)", link_name(link)), link));
    for (name, link) in snapshot.links.iter().map(|link| (link_name(link), link)).chain(gone) {
        let dropped = link.txdrop.saturating_add(link.removed);
        let [packets, bytes, waiting, dropped] = [link.packets, link.bytes, link.waiting, dropped].map(count);
        table.row([name, packets, bytes, waiting, dropped]);
    }
    table
}

/// A table of drops and their reasons, without rows if there were none.
pub fn drops(snapshot: &Snapshot) -> Table {
    let mut table = Table::new(&[("DROPPED BY", Align::Left), ("REASON", Align::Left), ("PACKETS", Align::Right)]);
    let gone = snapshot.gone.apps.iter().map(|app| (format!("{} (removed)", app.name), app));
    for (name, app) in snapshot.apps.iter().map(|app| (app.name.clone(), app)).chain(gone) {
        for (reason, packets) in app.drops.iter().filter(|(_, packets)| **packets > 0) {
            table.row([name.clone(), reason.clone(), count(*packets)]);
        }
    }
    for link in snapshot.gone.links.iter().filter(|link| link.removed > 0) {
        table.row([format!("{} (removed)", link_name(link)), "removed".to_owned(), count(link.removed)]);
    }
    let forgotten = snapshot.engine("forgotten_drops");
    if forgotten > 0 {
        table.row(["(removed long ago)".to_owned(), "all reasons".to_owned(), count(forgotten)]);
    }
    table
}

/// A table of the apps' own counters, without rows if all are 0.
fn app_counters(snapshot: &Snapshot) -> Table {
    let mut table = Table::new(&[("COUNTED BY", Align::Left), ("WHAT", Align::Left), ("VALUE", Align::Right)]);
    for app in &snapshot.apps {
        let counted = app.counters.iter().filter(|(name, value)| **value > 0 && !is_progress(name));
        for (name, value) in counted {
            table.row([app.name.clone(), name.clone(), count(*value)]);
        }
    }
    table
}

fn is_progress(counter: &str) -> bool {
    counter == PROGRESS || counter == PROGRESS_TOTAL
}

/// The progress of apps whose total is known: done and total.
pub fn progress(snapshot: &Snapshot) -> Option<(u64, u64)> {
    let of = |app: &AppCounts, name: &str| app.counters.get(name).copied().unwrap_or(0);
    let add = |(done, total): (u64, u64), app: &AppCounts| {
        let all = of(app, PROGRESS_TOTAL);
        (done.saturating_add(of(app, PROGRESS).min(all)), total.saturating_add(all))
    };
    Some(snapshot.apps.iter().fold((0, 0), add)).filter(|(_, total)| *total > 0)
}

/// The changes that a reload made, one on each line.
pub fn reload(report: &ReloadReport) -> String {
    let lists = [
        ("kept", &report.reloaded.kept),
        ("replaced", &report.reloaded.replaced),
        ("started again", &report.reloaded.revived),
        ("added", &report.reloaded.added),
        ("removed", &report.reloaded.removed),
        ("links added", &report.reloaded.links_added),
        ("links removed", &report.reloaded.links_removed),
    ];
    let mut text = String::new();
    for (what, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
        text += &format!("{what}: {}\n", names.join(", "));
    }
    let pause = span(Duration::from_nanos(report.reloaded.pause_ns));
    text += &format!("dropped: {}; pause: {pause}\n", plural(report.reloaded.dropped, "packet"));
    for warning in &report.warnings {
        text += &format!("warning: {warning}\n");
    }
    if let Some(confirm_ns) = report.confirm_ns {
        let time = span(Duration::from_nanos(confirm_ns));
        text +=
            &format!("unconfirmed: the former network is put back in {time} unless `bellows confirm` keeps this one\n");
    }
    text
}
