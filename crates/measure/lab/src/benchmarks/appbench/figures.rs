//! Combines the answers of many processes.

use std::collections::BTreeMap;

use bellows_observe::look_ahead::MIN_SAVED;
use bellows_stats::{ENOUGH, Median, median};
use serde_json::{Value, json};

use super::rounds::{CLOCKS, CYCLES, Comparison, Tally};
use super::signature::{self, Point};
use super::text::Title;
use super::{Account, AppbenchCell, AppbenchOptions, AppbenchPlan, Counters};
use crate::report::Measurement;
use crate::supply::Footprint;

/// The figures of one event.
#[derive(Clone, Debug)]
pub(crate) struct EventRow {
    pub(super) event: String,
    pub(super) baseline: Option<Median>,
    pub(super) with_app: Median,
    pub(crate) difference: Option<Median>,
}

/// The live accounting of one app, per packet that enters the measured apps.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) app: String,
    pub(super) baseline: Option<Median>,
    pub(super) with_app: Option<Median>,
    /// Packets per call in the network with the app.
    pub(super) vector: Option<Median>,
}

/// The figures under one combination of conditions.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(super) cell: AppbenchCell,
    pub(super) processes: usize,
    /// Packets of each network in all processes.
    pub(super) packets: u64,
    pub(super) lines: Vec<EventRow>,
    pub(super) recorded: Vec<Recorded>,
    /// The live accounting of the measured apps, and the difference minus that.
    pub(super) accounted: Option<Median>,
    pub(super) gap: Option<Median>,
    /// Percentage of the incoming packets that left, and that were dropped for each reason.
    pub(super) left: f64,
    pub(super) drops: BTreeMap<String, f64>,
    /// Percentage of the breaths of the network with the app in which a packet moved.
    pub(super) busy: f64,
    /// Percentage of the offered packets that were not accepted in time.
    pub(super) missed: f64,
    pub(super) footprint: Option<Footprint>,
    pub(super) measured: Vec<String>,
    pub(super) no_pmu: Option<String>,
    /// The share of its clocks that the measured app waits for data of packets, as trials of look-ahead found it.
    pub(super) waits: Option<Median>,
}

/// If fewer percent of the breaths than this move a packet, the clocks per packet are mostly waiting.
const BUSY: f64 = 95.0;

/// The order of events in a table: common events first, then by name.
fn rank(event: &str) -> (usize, &str) {
    const FIRST: [&str; 5] = [CLOCKS, "cycles", "ref_cycles", CYCLES, "instructions"];
    (FIRST.iter().position(|first| *first == event).unwrap_or(FIRST.len()), event)
}

impl Summary {
    pub(crate) fn of(cell: AppbenchCell, answers: Vec<Comparison>) -> Summary {
        let with_apps: Vec<&Tally> = answers.iter().filter_map(|answer| answer.with_app.as_ref()).collect();
        let mut events: Vec<String> =
            with_apps.first().map_or_else(Vec::new, |tally| tally.costs.keys().cloned().collect());
        events.sort_by(|one, other| rank(one).cmp(&rank(other)));
        let busy = median(&answers.iter().map(|answer| 100.0 * answer.busy).collect::<Vec<f64>>());
        let busy = busy.map_or(100.0, |busy| busy.value);
        events.retain(|_| busy >= BUSY);
        let lines: Vec<EventRow> = events.into_iter().filter_map(|event| EventRow::of(event, &answers)).collect();
        let total = |of: fn(&Tally) -> u64| with_apps.iter().map(|tally| of(tally)).sum::<u64>();
        let entered = total(|tally| tally.entered).max(1) as f64;
        let mut dropped: BTreeMap<&String, u64> = BTreeMap::new();
        for (reason, count) in with_apps.iter().flat_map(|tally| &tally.drops) {
            *dropped.entry(reason).or_default() += count;
        }
        let drops =
            dropped.into_iter().map(|(reason, count)| (reason.clone(), 100.0 * count as f64 / entered)).collect();
        let figures = |of: &dyn Fn(&Comparison) -> Option<f64>| -> Option<Median> {
            let all: Option<Vec<f64>> = answers.iter().map(of).collect();
            median(&all?)
        };
        let trials = answers.iter().flat_map(|answer| &answer.trials).filter(|trial| trial.is_known());
        let waits: Vec<f64> = trials.map(|trial| trial.saved).collect();
        Summary {
            cell,
            processes: answers.len(),
            packets: total(|tally| tally.packets),
            recorded: recorded(&answers),
            accounted: figures(&Comparison::accounted),
            gap: figures(&|answer| Some(answer.difference(CLOCKS)? - answer.accounted()?))
                .filter(|_| !lines.is_empty()),
            lines,
            busy,
            missed: 100.0 * total(|tally| tally.missed) as f64 / (entered + total(|tally| tally.missed) as f64),
            footprint: answers.iter().find_map(|answer| answer.footprint),
            measured: answers.first().map(|answer| answer.measured.clone()).unwrap_or_default(),
            left: 100.0 * total(|tally| tally.left) as f64 / entered,
            drops,
            no_pmu: answers.iter().find_map(|answer| answer.no_pmu.clone()),
            waits: median(&waits),
        }
    }

    /// The conditions.
    pub(crate) fn cell(&self) -> AppbenchCell {
        self.cell
    }

    /// Whether no packet left, because all were dropped.
    pub(crate) fn loses_all(&self) -> bool {
        self.left == 0.0 && !self.drops.is_empty()
    }

    /// The clocks.
    pub(crate) fn clocks(&self) -> Option<&EventRow> {
        self.lines.iter().find(|line| line.event == CLOCKS)
    }

    /// The app's cost as a point for [`signature::find`].
    fn point(&self, own: usize) -> Option<Point> {
        let of = |app: &&Recorded| self.measured.contains(&app.app);
        let neighbours = self.recorded.iter().filter(|app| !of(app)).filter_map(|app| Some(app.with_app?.value));
        // Packets queue up only under a fixed load.
        let loaded = self.lines.is_empty();
        Some(Point {
            resident: self.cell.residence.map(|residence| residence.level),
            distance: self.cell.prefetch.unwrap_or(own),
            cost: if loaded { self.accounted? } else { self.clocks()?.difference? },
            vector: self.recorded.iter().find(of).and_then(|app| Some(app.vector?.value)).filter(|_| loaded),
            neighbours: loaded.then(|| neighbours.sum()),
        })
    }

    /// The cache level and the prefetch distance, in words.
    pub(super) fn conditions(&self) -> String {
        let resident = self.cell.residence.map(|residence| residence.level.to_string());
        let prefetch = self.cell.prefetch.map(|distance| format!("prefetch {distance}"));
        resident.into_iter().chain(prefetch).collect::<Vec<_>>().join(", ")
    }

    /// Whether there are enough processes for an interval.
    pub(super) fn is_certain(&self) -> bool {
        self.processes >= ENOUGH
    }

    /// The figures of a report.
    pub(super) fn results(&self, title: &Title) -> Vec<Measurement> {
        let figure = |case: &str, unit: &str, figure: Median, labels: Vec<(&str, Value)>| {
            let labels = [title.labels(), self.cell.labels(), labels].concat();
            Measurement::with(case, unit, figure, labels)
        };
        let mut results = Vec::new();
        for line in &self.lines {
            let unit = if line.event == CLOCKS { "clocks/packet" } else { "events/packet" };
            let runs =
                [("baseline", line.baseline), ("with-app", Some(line.with_app)), ("difference", line.difference)];
            let known = runs.into_iter().filter_map(|(run, found)| Some((run, found?)));
            results.extend(known.map(|(run, found)| {
                figure(&line.event, unit, found, vec![("run", run.into()), ("packets", self.packets.into())])
            }));
        }
        for (case, found) in [("account", self.accounted), ("gap", self.gap)] {
            results.extend(found.map(|found| figure(case, "clocks/packet", found, Vec::new())));
        }
        for app in &self.recorded {
            for (run, found) in [("baseline", app.baseline), ("with-app", app.with_app)] {
                let labels = vec![("run", run.into()), ("recorded", json!(app.app))];
                results.extend(found.map(|found| figure("account", "clocks/packet", found, labels)));
            }
            let labels = vec![("run", "with-app".into()), ("recorded", json!(app.app))];
            results.extend(app.vector.map(|found| figure("vector", "packets/call", found, labels)));
        }
        results
    }
}

impl AppbenchCell {
    fn labels(self) -> Vec<(&'static str, Value)> {
        let resident = self.residence.map(|residence| ("resident", json!(residence.level)));
        resident.into_iter().chain(self.prefetch.map(|distance| ("prefetch", distance.into()))).collect()
    }
}

impl EventRow {
    fn of(event: String, answers: &[Comparison]) -> Option<EventRow> {
        let all = |of: &dyn Fn(&Comparison) -> Option<f64>| -> Option<Median> {
            median(&answers.iter().filter_map(of).collect::<Vec<f64>>())
        };
        let cost = |tally: Option<&Tally>| tally.and_then(|tally| tally.costs.get(&event).copied());
        Some(EventRow {
            baseline: all(&|answer| cost(answer.baseline.as_ref())),
            with_app: all(&|answer| cost(answer.with_app.as_ref()))?,
            difference: all(&|answer| answer.difference(&event)),
            event,
        })
    }
}

impl Comparison {
    /// The difference of one event between the two networks.
    fn difference(&self, event: &str) -> Option<f64> {
        let cost = |tally: &Option<Tally>| tally.as_ref()?.costs.get(event).copied();
        Some(cost(&self.with_app)? - cost(&self.baseline)?)
    }

    /// Clocks per packet of the measured apps by the live accounting.
    fn accounted(&self) -> Option<f64> {
        let with_app = self.with_app.as_ref()?;
        let measured = with_app.recorded.accounts.iter().filter(|account| self.measured.contains(&account.app));
        with_app.per_packet(measured.map(|account| account.clocks).sum())
    }
}

impl Tally {
    /// Recorded clocks per packet that entered the measured apps.
    fn per_packet(&self, clocks: u64) -> Option<f64> {
        (self.recorded.packets > 0).then_some(clocks as f64 / self.recorded.packets as f64)
    }

    fn account(&self, app: &str) -> Option<&Account> {
        self.recorded.accounts.iter().find(|account| account.app == app)
    }
}

fn recorded(answers: &[Comparison]) -> Vec<Recorded> {
    let first = answers.first().and_then(|answer| answer.with_app.as_ref());
    let names = first.into_iter().flat_map(|tally| &tally.recorded.accounts).map(|account| account.app.clone());
    let lines = names.map(|app| {
        let all = |of: &dyn Fn(&Comparison) -> Option<f64>| -> Option<Median> {
            median(&answers.iter().filter_map(of).collect::<Vec<f64>>())
        };
        let clocks = |tally: Option<&Tally>| {
            let tally = tally?;
            tally.per_packet(tally.account(&app)?.clocks)
        };
        let vector = |tally: Option<&Tally>| {
            let account = tally?.account(&app)?;
            (account.calls > 0).then_some(account.packets as f64 / account.calls as f64)
        };
        Recorded {
            baseline: all(&|answer| clocks(answer.baseline.as_ref())),
            with_app: all(&|answer| clocks(answer.with_app.as_ref())),
            vector: all(&|answer| vector(answer.with_app.as_ref())),
            app: app.clone(),
        }
    });
    lines.filter(|line| line.with_app.is_some()).collect()
}

/// Whether a difference is within noise.
pub(super) fn is_within_noise(difference: &Median) -> bool {
    (difference.low..=difference.high).contains(&0.0)
}

/// The notes of the report.
pub(super) fn notes(options: &AppbenchOptions, plan: &AppbenchPlan<'_>, summaries: &[Summary]) -> Vec<String> {
    let mut notes = Vec::new();
    let idle = summaries.iter().filter(|summary| summary.busy < BUSY).map(|summary| summary.busy);
    if let Some(busy) = idle.min_by(f64::total_cmp) {
        notes.push(format!(
            "a packet moved in only {busy:.0} of 100 breaths: the clocks per packet are mostly waiting, so there is no \
             difference, only the live accounting; let the source send as fast as possible"
        ));
    }
    notes.extend(options.offered.map(|_| {
        "the fixed load also fixes the clocks per packet: the cost of the app is what the live accounting records"
            .to_owned()
    }));
    for summary in summaries {
        let conditions = summary.conditions();
        let place = if summaries.len() > 1 { format!("{conditions}: ") } else { String::new() };
        if summary.missed > 0.0 {
            notes.push(format!("{place}{:.1} % of the offered packets were not accepted in time", summary.missed));
        }
        let Some(difference) = summary.clocks().and_then(|line| line.difference) else { continue };
        if summary.is_certain() && is_within_noise(&difference) {
            notes.push(format!("{place}the difference in clocks is within noise: its interval contains zero"));
        }
    }
    if let Some(summary) =
        summaries.first().filter(|summary| !summary.is_certain() && options.counters == Counters::Processor)
    {
        notes.push(format!(
            "with fewer than {ENOUGH} processes ({}) no interval reaches 95 percent: a difference may be noise",
            summary.processes
        ));
    }
    let points: Vec<Point> = summaries.iter().filter_map(|summary| summary.point(plan.own_distance)).collect();
    if let Some(finding) = signature::find(&points, plan.own_distance)
        && summaries.iter().all(Summary::is_certain)
    {
        notes.push(finding.in_words(&plan.subject_name));
    }
    notes.extend(summaries.iter().filter_map(|summary| summary.waiting(&plan.subject_name)));
    notes.extend(plan.remarks.iter().cloned());
    notes.extend(summaries.iter().filter_map(Summary::spread));
    if let Some(why) = summaries.iter().find_map(|summary| summary.no_pmu.clone())
        && options.counters == Counters::Processor
    {
        notes.push(why);
        if summaries.iter().any(|summary| summary.lines.iter().any(|line| line.event == CYCLES)) {
            notes.push(format!(
                "{CYCLES} are derived from the clocks and the speed of a chain of multiplications between the rounds: \
                 unlike clocks, they do not change with the processor's frequency"
            ));
        }
    }
    if options.counters == Counters::Valgrind {
        notes.push(format!("counted by valgrind's callgrind on a simulated processor; {}", crate::callgrind::CACHES));
    }
    notes.dedup();
    notes
}

impl Summary {
    /// A sentence about an app that waits for the data of its packets.
    fn waiting(&self, app: &str) -> Option<String> {
        let level = self.cell.residence?.level;
        let waits = self.waits.filter(|waits| self.is_certain() && waits.low >= MIN_SAVED)?;
        Some(format!(
            "{level}: `{app}` waits for the data of its packets: it saves {:.0} % ({:.0} – {:.0}) of its clocks if the \
             engine prefetches them first, those of the prefetches included; find its distance with --prefetch",
            100.0 * waits.value,
            100.0 * waits.low,
            100.0 * waits.high
        ))
    }

    /// A sentence about the memory footprint of a round's packets.
    fn spread(&self) -> Option<String> {
        let Footprint { packets, bytes, pages, page_size, fits } = self.footprint?;
        let level = self.cell.residence?.level;
        let page =
            if page_size > 1 << 20 { format!("{} MiB", page_size >> 20) } else { format!("{} KiB", page_size >> 10) };
        let rest = if fits { "" } else { "; only the first line of each is sure to fit there" };
        Some(format!(
            "{level}: rounds of {packets} packets, {} KiB of data on {pages} pages of {page}{rest}",
            bytes >> 10
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmarks::appbench::{Account, ChainRow, Recording, Subject};

    const CELL: AppbenchCell = AppbenchCell { residence: None, prefetch: None };

    fn tally(costs: &[(&str, f64)], clocks: u64) -> Tally {
        let account = |app: &str, clocks, calls| Account { app: app.to_owned(), clocks, packets: 100 * calls, calls };
        Tally {
            costs: costs.iter().map(|(event, cost)| ((*event).to_owned(), *cost)).collect(),
            packets: 1_000,
            entered: 1_000,
            left: 900,
            drops: [("txdrop".to_owned(), 100)].into(),
            missed: 0,
            recorded: Recording { accounts: vec![account("tee", clocks, 10), account("sink", 500, 10)], packets: 500 },
        }
    }

    fn answer(baseline: f64, with_app: f64) -> Comparison {
        Comparison {
            baseline: Some(tally(&[(CLOCKS, baseline), ("instructions", 10.0)], 0)),
            with_app: Some(tally(&[(CLOCKS, with_app), ("instructions", 13.0)], 1_000)),
            measured: vec!["tee".to_owned()],
            busy: 1.0,
            ..Comparison::default()
        }
    }

    #[test]
    fn the_difference_is_taken_within_each_process() {
        // The processes differ by more than the app costs.
        let answers = (0..15).map(|index| answer(10.0 * f64::from(index), 10.0 * f64::from(index) + 2.0)).collect();
        let summary = Summary::of(CELL, answers);
        let clocks = summary.clocks().unwrap();
        let difference = clocks.difference.unwrap();
        assert_eq!((difference.low, difference.value, difference.high), (2.0, 2.0, 2.0));
        assert!(!is_within_noise(&difference) && summary.is_certain());
        assert_eq!((clocks.with_app.low, clocks.with_app.high), (32.0, 112.0));
        // 1,000 clocks for 500 packets; the difference is 2.
        assert_eq!((summary.accounted.unwrap().value, summary.gap.unwrap().value), (2.0, 0.0));
        let tee = &summary.recorded[0];
        assert_eq!((tee.app.as_str(), tee.vector.unwrap().value), ("tee", 100.0));
        assert_eq!((summary.left, summary.drops["txdrop"], summary.packets), (90.0, 10.0, 15_000));
        assert!(!summary.loses_all());
    }

    #[test]
    fn an_app_that_drops_all_packets_is_told_from_one_that_ends_them() {
        let mut answer = answer(10.0, 12.0);
        let tally = answer.with_app.as_mut().unwrap();
        (tally.left, tally.drops) = (0, [("unknown_port".to_owned(), 1_000)].into());
        assert!(Summary::of(CELL, vec![answer.clone()]).loses_all());
        answer.with_app.as_mut().unwrap().drops.clear();
        assert!(!Summary::of(CELL, vec![answer]).loses_all());
    }

    #[test]
    fn common_events_come_first_and_the_rest_by_name() {
        let mut events = ["l3_misses", "instructions", "branch_misses", "ref_cycles", "clocks", CYCLES, "cycles"];
        events.sort_by(|one, other| rank(one).cmp(&rank(other)));
        assert_eq!(events, ["clocks", "cycles", "ref_cycles", CYCLES, "instructions", "branch_misses", "l3_misses"]);
    }

    #[test]
    fn a_difference_within_noise_is_noted() {
        let options = AppbenchOptions::new(Subject::Row(ChainRow { apps: "tee".to_owned(), ..ChainRow::default() }));
        let registry = bellows_apps::registry();
        let plan = AppbenchPlan::of(&options, &registry).unwrap();
        let said = |answers: Vec<Comparison>| notes(&options, &plan, &[Summary::of(CELL, answers)]).join("\n");
        let even = |count: u32| (0..count).map(|index| answer(10.0, 9.0 + f64::from(index % 3))).collect();
        assert!(said(even(15)).contains("the difference in clocks is within noise"));
        assert!(said(even(5)).contains("with fewer than 6 processes (5) no interval reaches 95 percent"));
        let clear = (0..15).map(|index| answer(10.0, 12.0 + f64::from(index % 3))).collect();
        assert_eq!(said(clear), "");
    }

    #[test]
    fn a_network_that_waits_for_packets_has_no_difference() {
        let idle = |_| Comparison { busy: 0.5, ..answer(100.0, 100.0) };
        let summary = Summary::of(CELL, (0..15).map(idle).collect());
        assert!(summary.lines.is_empty() && summary.gap.is_none() && summary.accounted.is_some());
    }
}
