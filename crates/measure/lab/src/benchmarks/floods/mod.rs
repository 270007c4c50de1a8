//! `bench floods`: what a router pays for packets beyond its limits.
//!
//! A process has a whole router. In every second vector, half of the packets are those of a flood; the others are
//! forwarded, restored, and come again. So both kinds of vector meet the same caches.

mod contender;
mod frames;

use serde_json::{Value, json};

use crate::bench::{Benchmark, Common, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::report::{BenchError, Measurement, chosen};
use crate::turns::Match;
use crate::workers;
use contender::{FORWARDED, FloodsTask, LOST, MIXED, lay_out};
use frames::Flood;

/// Measure what a router pays for packets beyond its limits
///
/// Half of what a router is offered is a flood of one kind, far beyond the rate that it answers. `forwarded` are the
/// clocks of a packet that is forwarded, in vectors of 128 without a flood; `flood` what a packet of the flood adds in
/// vectors of which it is every other packet; `ratio` the second over the first; `lost` the share of packets to forward
/// that were not. Cases: packets whose time runs out, without a route, too long for their link, and to neighbours that do
/// not answer; echo requests; ARP requests and neighbour solicitations.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figures: Figures,
    /// Turns per process, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = whole(1..=10_000))]
    rounds: usize,
}

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let floods = chosen(Flood::ALL, Flood::name, &options.figures.case)?;
    let mut series = lab.series(options, floods.len(), options.figures.processes);
    for flood in floods {
        let task = FloodsTask { flood, cpu: options.common.cpu };
        series.group(&[options.rounds], &[], |_| vec![task.clone()], |matches| figures(flood, matches))?;
    }
    Ok(Finished::after_rows(series.report()))
}

/// The figures of a flood.
fn figures(flood: Flood, matches: &[Match]) -> Vec<Measurement> {
    let labels = |figure: &str| -> Vec<(&'static str, Value)> { vec![("figure", json!(figure))] };
    let each = |of: &dyn Fn(&Match) -> Option<f64>| -> Vec<f64> { matches.iter().filter_map(of).collect() };
    let forwarded = |found: &Match| found.figure(0, 0, FORWARDED);
    // Half of the packets are forwarded.
    let added = |found: &Match| Some(2.0 * found.figure(0, 0, MIXED)? - found.figure(0, 0, FORWARDED)?);
    let ratio = |found: &Match| Some(2.0 * found.ratio((0, MIXED), (0, FORWARDED), 0)? - 1.0);
    let lost = |found: &Match| found.figure(0, 0, LOST);
    let figure = |unit: &str, name, of: &dyn Fn(&Match) -> Option<f64>| {
        Measurement::of(flood.name(), unit, &each(of), labels(name))
    };
    [
        figure("clocks/packet", "forwarded", &forwarded),
        figure("clocks/packet", "flood", &added),
        figure("ratio", "ratio", &ratio),
        figure("share", "lost", &lost),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const FLOOD: &str = "the kind of flood: `time4`, `no-route6`, `arp-request` and so on";

/// What its figures are.
const CASES: Cases = Cases {
    text: &[],
    every: &["figure"],
    rows: &[
        CaseRow::each(FLOOD, "clocks/packet", "a packet to forward, and a packet of the flood"),
        CaseRow::each(FLOOD, "ratio", "the second over the first"),
        CaseRow::each(FLOOD, "share", "the share of packets to forward that were lost"),
    ],
    labels: &[label(
        "figure",
        LabelKind::Word(&["forwarded", "flood", "ratio", "lost"]),
        "`forwarded`: a packet to forward without a flood; `flood`: what a packet of the flood adds; `ratio`; `lost`",
    )],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "floods";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 1 --case arp";
    const REFUSED: &'static [RefusedOptions] =
        &[(&["--case", "nonsense"], "no case has `nonsense` in its name; there are time4, time6")];
    const WORK: RunWorker = |_| workers::take_part(lay_out);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}
