//! `bench day`: what a network costs whose tables do not fit into the cache, and whether that is explained.
//!
//! A match has a process for the whole network, one for each part of it behind the same feed, one for the feed alone, and
//! two more for the whole: with tables on plain pages, and with few flows. They take turns.

mod contender;
mod flows;

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bench::{Benchmark, Common, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::report::{BenchError, Measurement};
use crate::targets::{Target, conclusions};
use crate::turns::{self, Match};
use crate::workers;
use contender::{DayPart, DayTask, FLOWS, SHOWN, WHOLE, lay_out};
use flows::Shape;

/// Measure a network whose tables exceed the caches
///
/// The network is a bridge with 65,536 stations, a filter with 1,048,576 connections, and a router with as many routes of
/// each length as the Internet has, in both families, and 4,096 next hops. Each packet is one of a random connection. The
/// figures are clocks a packet. `show run`: what sampled breaths record for a part in the whole network. `alone`: the
/// part alone between the ends of the feed, with its full table and the same packets, less the feed. `plain pages`:
/// `show run` with tables on plain pages. `few flows`: `show run` if all packets are of 256 connections. The case
/// `whole` has the cost of all by the clock, and ratios to it: `explained`, the sum of `show run`; `model`, the feed and
/// the sum of `alone`; and what `plain pages` and `few flows` cost. The processes take turns. The default run takes about
/// ten minutes.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Fresh processes per figure; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = whole(1..=1000))]
    processes: usize,
    /// Turns per process, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole(1..=10_000))]
    rounds: usize,
    /// Connections; with fewer there are as many fewer stations and generated routes
    #[arg(long, value_name = "N", default_value_t = FLOWS as usize, value_parser = whole(4_096..=1_048_576))]
    flows: usize,
    /// A file with prefixes of both families as the first words of its lines, in place of the generated table
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// A capture whose packets' lengths and protocols the connections have, in place of a built-in mix
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
}

/// The connections that packets are of with `few flows`.
const FEW: u32 = 256;

/// The share of the whole that the accounts and the model should have.
const EXPLAINED: Target = Target::AtLeast(0.95);
const MODEL: Target = Target::Within(0.95, 1.05);

/// The sides of a match behind the whole: the parts in their order, then the whole with plain pages and with few flows.
const ALONE: usize = 1;
const PLAIN: usize = ALONE + DayPart::ALL.len();
const FEW_FLOWS: usize = PLAIN + 1;
const SIDES: usize = FEW_FLOWS + 1;

impl Arguments {
    /// The tasks of a match.
    fn tasks(&self, shapes: &[Shape]) -> Vec<DayTask> {
        let whole = DayTask {
            parts: DayPart::ALL.to_vec(),
            flows: self.flows as u32,
            drawn: self.flows as u32,
            is_plain: false,
            shapes: shapes.to_vec(),
            routes: self.routes.clone(),
            cpu: self.common.cpu,
        };
        let alone = DayPart::ALL.map(|part| DayTask { parts: vec![part], ..whole.clone() });
        let others = [DayTask { is_plain: true, ..whole.clone() }, DayTask { drawn: FEW, ..whole.clone() }];
        [whole].into_iter().chain(alone).chain(others).collect()
    }
}

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let shapes = options.capture.as_deref().map_or(Ok(Shape::usual()), Shape::read).map_err(BenchError::Refused)?;
    let tasks = options.tasks(&shapes);
    let mut series = lab.series(options, SIDES, options.processes);
    let matches = series.group(&[options.rounds], &[], |_| tasks.clone(), figures)?;
    let mut refused: Vec<String> =
        matches.into_iter().flat_map(|found| found.sides).filter_map(|side| side.refused).collect();
    refused.dedup();
    let mut report = series.report_without(refused)?;
    report.notes.extend(conclusions(&report.results));
    Ok(Finished::after_rows(report))
}

/// The figures of all matches.
fn figures(matches: &[Match]) -> Vec<Measurement> {
    let each = |of: &dyn Fn(&Match) -> Option<f64>| -> Vec<f64> { matches.iter().filter_map(of).collect() };
    let labels = |figure: &str| -> Vec<(&'static str, Value)> { vec![("figure", json!(figure))] };
    let shown = |found: &Match, side: usize, part: DayPart| found.figure(side, 0, SHOWN + part as usize);
    let alone = |found: &Match, part: DayPart| {
        let clocks = found.figure(ALONE + part as usize, 0, WHOLE)?;
        let feed = if part == DayPart::Feed { 0.0 } else { found.figure(ALONE, 0, WHOLE)? };
        Some(clocks - feed)
    };
    let mut results = Vec::new();
    for part in DayPart::ALL {
        let mut add = |figure: &str, of: &dyn Fn(&Match) -> Option<f64>| {
            results.extend(Measurement::of(part.name(), "clocks/packet", &each(of), labels(figure)));
        };
        add("show run", &|found| shown(found, 0, part));
        add("alone", &|found| alone(found, part));
        add("plain pages", &|found| shown(found, PLAIN, part));
        add("few flows", &|found| shown(found, FEW_FLOWS, part));
    }
    for (figure, side) in [("clock", 0), ("plain pages", PLAIN), ("few flows", FEW_FLOWS)] {
        let clocks = each(&|found| found.figure(side, 0, WHOLE));
        results.extend(Measurement::of("whole", "clocks/packet", &clocks, labels(figure)));
    }
    let part_of = |found: &Match, of: &dyn Fn(DayPart) -> Option<f64>| {
        Some(DayPart::ALL.into_iter().map(of).sum::<Option<f64>>()? / found.figure(0, 0, WHOLE)?)
    };
    let mut ratio = |figure: &str, target: Option<Target>, ratios: &[f64]| {
        let found = Measurement::compared("whole", "ratio", ratios, labels(figure));
        results.extend(found.map(|found| target.map_or(found.clone(), |target| target.judge(found, ratios.len()))));
    };
    ratio("explained", Some(EXPLAINED), &each(&|found| part_of(found, &|part| shown(found, 0, part))));
    ratio("model", Some(MODEL), &each(&|found| part_of(found, &|part| alone(found, part))));
    ratio("plain pages", None, &turns::ratios(matches, (PLAIN, WHOLE), (0, WHOLE)));
    ratio("few flows", None, &turns::ratios(matches, (FEW_FLOWS, WHOLE), (0, WHOLE)));
    results
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &["The `notes` sum up the verdicts."],
    every: &["figure"],
    rows: &[
        CaseRow::of(&["feed", "bridge", "filter", "router"], "clocks/packet", "a part of the network"),
        CaseRow::of(&["whole"], "clocks/packet", "the whole network by the clock"),
        CaseRow::of(
            &["whole"],
            "ratio",
            "the sum of the parts, or the whole under other conditions, relative to the whole",
        )
        .sometimes(&["target", "verdict"]),
    ],
    labels: &[label(
        "figure",
        LabelKind::Word(&["show run", "alone", "plain pages", "few flows", "clock", "explained", "model"]),
        "`show run`: the accounts of sampled breaths; `alone`: the part between the ends of the feed, less the feed; \
         `plain pages`: with tables on plain pages; `few flows`: with packets of 256 connections; `clock`: by the clock; \
         `explained`: the sum of `show run`; `model`: the sum of `alone`",
    )],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "day";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 1 --flows 4096";
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--capture", "/nonexistent"], "No such file or directory"),
        (&["--flows", "1"], "1 is not in 4096..=1048576"),
    ];
    const WORK: RunWorker = |_| workers::take_part(lay_out);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::Turn;
    use crate::turns::Record;

    #[test]
    fn sums_are_compared_with_the_whole() {
        let side = |whole: f64, shown: f64| {
            let figures = [vec![whole], vec![shown; DayPart::ALL.len()]].concat();
            Record::of(vec![vec![Turn { figures, took: 1.0, lost: 0.0 }; 2]])
        };
        let mut sides = vec![side(100.0, 24.0), side(10.0, 10.0)];
        sides.extend((0..3).map(|_| side(40.0, 30.0)));
        sides.extend([side(130.0, 31.0), side(50.0, 12.0)]);
        assert_eq!(sides.len(), SIDES);
        let found: Vec<Match> = (0..6).map(|_| Match::of(sides.clone(), 1)).collect();
        let results = figures(&found);
        let ratio = |figure: &str| {
            let is_it = |result: &&Measurement| result.unit == "ratio" && result.labels["figure"] == json!(figure);
            results.iter().find(is_it).unwrap()
        };
        let found = ["explained", "model", "plain pages", "few flows"].map(|figure| ratio(figure).median);
        assert_eq!(found.map(|ratio| (ratio * 100.0).round()), [96.0, 100.0, 130.0, 50.0]);
        assert!(["explained", "model"].iter().all(|figure| ratio(figure).labels["verdict"] == json!("holds")));
    }
}
