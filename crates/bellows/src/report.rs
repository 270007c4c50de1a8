//! What a run did, for people and for programs.

use std::time::Duration;

use bellows_engine::{AppCounts, End, Outcome, PROGRESS, PROGRESS_TOTAL, Snapshot};
use serde::Serialize;

use crate::accounting::Accounts;
use crate::text::{Align, Table, bit_rate, count, figure, known, nanos, packet_rate, plural, span};
use crate::times::{self, PERCENTILES, TIMES};

/// Why a run that was told to stop was told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoppedBy {
    /// The time of `--duration` was over.
    Duration,
    /// SIGINT or SIGTERM.
    Signal,
    /// `bellows stop`.
    Request,
}

/// The pool's memory.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// `hugetlb`, `thp` or `4k`.
    pub pages: String,
    /// Packet buffers in the pool.
    pub buffers: u64,
    /// Packet buffers that packets held at the end.
    pub buffers_in_use: u64,
}

impl Memory {
    /// That of this process.
    pub fn of_this_process() -> Memory {
        let usage = bellows_packet::pool::usage();
        Memory {
            pages: bellows_packet::pool::pages().to_string(),
            buffers: (usage.packets + usage.large_packets) as u64,
            buffers_in_use: usage.in_use as u64,
        }
    }
}

/// An app that could not finish.
#[derive(Clone, Debug, Serialize)]
pub struct Unfinished {
    /// The app's name.
    pub app: String,
    /// What it said.
    pub reason: String,
}

/// A run that is over. Its JSON form is described in `docs/json.md`.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The name under which it was found.
    pub name: String,
    /// `done`, `stopped` or `stalled`.
    pub end: &'static str,
    /// Why it stopped, if it was told to.
    pub stopped_by: Option<StoppedBy>,
    /// How long it took.
    pub elapsed_seconds: f64,
    /// Packets a second on the busiest link.
    pub packets_per_second: f64,
    /// Bits a second on the busiest link.
    pub bits_per_second: f64,
    /// The links in which packets waited that nothing would ever have moved.
    pub stalled: Vec<String>,
    /// The apps that panicked.
    pub panicked: Vec<String>,
    /// The apps that could not finish.
    pub unfinished: Vec<Unfinished>,
    /// All that is odd about the run, in sentences; what makes it a failure comes first.
    pub warnings: Vec<String>,
    /// How many of them make it a failure.
    #[serde(skip)]
    failures: usize,
    /// The pool's memory.
    pub memory: Memory,
    /// All counters.
    #[serde(flatten)]
    pub counters: Snapshot,
}

impl RunReport {
    /// What to say of a run.
    pub fn new(name: String, outcome: Outcome, stopped_by: Option<StoppedBy>) -> RunReport {
        let Outcome { end, panicked, unfinished, snapshot, elapsed } = outcome;
        let memory = Memory::of_this_process();
        let mut warnings: Vec<String> =
            panicked.iter().map(|app| format!("app `{app}` panicked; what came to it since was dropped")).collect();
        warnings.extend(unfinished.iter().map(|(app, reason)| format!("app `{app}` could not finish: {reason}")));
        let (end, stalled) = match end {
            End::Done => ("done", Vec::new()),
            End::Stopped => ("stopped", Vec::new()),
            End::Stalled(links) => ("stalled", links),
        };
        if !stalled.is_empty() || end == "stalled" {
            let links = stalled.iter().map(|link| format!("`{link}`")).collect::<Vec<_>>().join(", ");
            warnings.push(format!("the run stalled: packets wait that no app will ever take, in {links}"));
        }
        let failures = warnings.len();
        if !snapshot.refusal.is_empty() {
            warnings
                .push(format!("the schedule was {}, not native as asked for: {}", snapshot.schedule, snapshot.refusal));
        }
        let starved: u64 = snapshot.apps.iter().filter_map(|app| app.drops.get("no_buffer")).sum();
        if starved > 0 {
            warnings.push(format!(
                "the pool ran out of buffers: {} dropped; a larger `packets` in [engine] avoids that",
                plural(starved, "packet")
            ));
        }
        let per_second = |total: u64| if elapsed.is_zero() { 0.0 } else { total as f64 / elapsed.as_secs_f64() };
        let busiest = snapshot.links.iter().max_by_key(|link| link.packets);
        RunReport {
            name,
            end,
            stopped_by: stopped_by.filter(|_| end == "stopped"),
            elapsed_seconds: elapsed.as_secs_f64(),
            packets_per_second: busiest.map_or(0.0, |link| per_second(link.packets)),
            bits_per_second: busiest.map_or(0.0, |link| per_second(link.bytes * 8)),
            stalled,
            panicked,
            unfinished: unfinished.into_iter().map(|(app, reason)| Unfinished { app, reason }).collect(),
            warnings,
            failures,
            memory,
            counters: snapshot,
        }
    }

    /// Whether all went as it should.
    pub fn is_fine(&self) -> bool {
        self.failures == 0
    }

    /// What makes the run a failure, a line for each, coloured if `rich`.
    pub fn errors(&self, rich: bool) -> String {
        labelled("error:", "31", &self.warnings[..self.failures], rich)
    }

    /// The report for people, its headings bold if `rich`.
    pub fn render(&self, rich: bool) -> String {
        let mut text = counters(&self.counters, rich);
        let end = match (self.end, self.stopped_by) {
            (_, Some(StoppedBy::Duration)) => "its time was over",
            (_, Some(StoppedBy::Signal)) => "stopped by a signal",
            (_, Some(StoppedBy::Request)) => "stopped on request",
            ("done", None) => "all done",
            (end, None) => end,
        };
        text += &format!(
            "\n{}: {end} after {}; busiest link {}, {}\n",
            self.name,
            span(Duration::from_secs_f64(self.elapsed_seconds)),
            packet_rate(self.packets_per_second),
            bit_rate(self.bits_per_second),
        );
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
        text + &self.errors(rich) + &labelled("warning:", "33", &self.warnings[self.failures..], rich)
    }
}

/// Sentences as lines behind a label, which has a colour if `rich`.
fn labelled(label: &str, colour: &str, sentences: &[String], rich: bool) -> String {
    let label = if rich { format!("\x1b[1;{colour}m{label}\x1b[0m") } else { label.to_owned() };
    sentences.iter().map(|sentence| format!("{label} {sentence}\n")).collect()
}

/// All counters of an engine: apps, links, drops, and what the apps count.
pub fn counters(snapshot: &Snapshot, rich: bool) -> String {
    let mut sections = vec![apps(snapshot).render(rich), links(snapshot).render(rich)];
    let drops = drops(snapshot);
    if !drops.is_empty() {
        sections.push(drops.render(rich));
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
    for (app, clocks) in snapshot.apps.iter().zip(clocks) {
        let numbers = [app.in_packets, app.in_bytes, app.out_packets, app.out_bytes, app.dropped()].map(count);
        let clocks = are_known.then(|| known(clocks, figure));
        table.row([app.name.clone(), app.kind.clone()].into_iter().chain(numbers).chain(clocks));
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
    for link in &snapshot.links {
        let [packets, bytes, waiting, dropped] = [link.packets, link.bytes, link.waiting, link.txdrop].map(count);
        table.row([format!("{} -> {}", link.from, link.to), packets, bytes, waiting, dropped]);
    }
    table
}

/// A table of what was dropped and why; without rows if nothing was.
pub fn drops(snapshot: &Snapshot) -> Table {
    let mut table = Table::new(&[("DROPPED BY", Align::Left), ("REASON", Align::Left), ("PACKETS", Align::Right)]);
    for app in &snapshot.apps {
        for (reason, packets) in app.drops.iter().filter(|(_, packets)| **packets > 0) {
            table.row([app.name.clone(), reason.clone(), count(*packets)]);
        }
    }
    for reason in ["reload", "retired"] {
        if snapshot.engine(reason) > 0 {
            table.row(["(reloads)".to_owned(), reason.to_owned(), count(snapshot.engine(reason))]);
        }
    }
    table
}

/// A table of what the apps have counted; without rows if nothing.
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

/// How far the apps have come through work whose end they know: done and total.
pub fn progress(snapshot: &Snapshot) -> Option<(u64, u64)> {
    let of = |app: &AppCounts, name: &str| app.counters.get(name).copied().unwrap_or(0);
    let add = |(done, total): (u64, u64), app: &AppCounts| {
        let all = of(app, PROGRESS_TOTAL);
        (done.saturating_add(of(app, PROGRESS).min(all)), total.saturating_add(all))
    };
    Some(snapshot.apps.iter().fold((0, 0), add)).filter(|(_, total)| *total > 0)
}
