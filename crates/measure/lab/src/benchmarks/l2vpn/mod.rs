//! `bench l2vpn`: whether a VPN's end costs the same whatever traffic came before.
//!
//! In a match, one process goes through all phases of traffic in a random order. Beside it live as many others, each of
//! which has had one phase alone from its start. In each phase the first process takes turns with the one of that phase;
//! the others wait. Each match has fresh processes and another order.
//!
//! | module | what it holds |
//! |---|---|
//! | `ends` | the end that is measured, and the other ends |
//! | `traffic` | sources and sinks that are switched while their network runs |
//! | `phases` | the phases of traffic, and their orders |
//! | `contender` | the processes that measure; among them an end with a history of phases |
//! | `part` | the cost of one app of the end by itself |
//! | `whole` | the cost of the whole beside the sum of its apps' |
//! | `picture` | the cost by phase in the order of time, as SVG |

mod contender;
mod ends;
mod part;
mod phases;
mod picture;
mod traffic;
mod whole;

use std::path::PathBuf;

use bellows_engine::Schedule;
use serde_json::{Value, json};

use crate::bench::{
    Benchmark, Common, Conditions, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole as whole_number,
};
use crate::beside::Beside;
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::named::named;
use crate::report::{BenchError, Measurement, Report, ReportTable, chosen};
use crate::targets::{conclusion_within, conclusions};
use crate::timing::median_or_nan;
use crate::turns::{self, Match, Stage};
use crate::workers;
use contender::{L2vpnWork, PhaseTask, lay_out};

/// Ratios within these bounds count as no difference.
const BOUNDS: std::ops::RangeInclusive<f64> = 0.97..=1.03;

/// Measure whether the cost of an L2 VPN depends on earlier traffic
///
/// The network is the end of examples/l2vpn.toml with two encrypted transports, and sources and sinks in place of its
/// ports. The phases differ in the direction of most packets (7 of 8), the family and encryption of their tunnel, the
/// sizes of frames, fragments, and the stations behind the bridge. Case `phases`: a process goes through all phases in
/// a random order, and is compared in each with one that has had this phase alone; in the first one, where nothing came
/// before, this is the case `first`. Case `after-idle`: a process that was idle before a phase, over one that was not.
/// Processes take turns as those of `bench history`; ratios are medians over fresh processes, one for each order, and
/// `clocks` the cost of a packet without a history. Case `apps`: the cost of the whole over the sum of its apps', each
/// measured alone as by `bellows appbench`. The default run takes about ten minutes.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    conditions: Conditions,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Only phases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    phase: String,
    /// Random orders of the phases, each with fresh processes; at least 6 for a confidence interval
    #[arg(long, alias = "processes", value_name = "N", default_value_t = 30, value_parser = whole_number(1..=1000))]
    orders: usize,
    /// Seed of the orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Turns of about 1 ms per process and phase, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = whole_number(2..=60_000))]
    rounds: usize,
    /// Seconds without traffic in the case `after-idle`
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = super::history::seconds)]
    idle_seconds: f64,
    /// Draw the clocks of the first order in this SVG file
    ///
    /// In the order of time, with the schedules beside one another.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

named! {
    /// What is compared.
    enum L2vpnCase {
        Phases = "phases",
        AfterIdle = "after-idle",
        Apps = "apps",
    }
}

/// The case of a process in its first phase.
const FIRST: &str = "first";

/// The name of a phase.
fn name(place: usize) -> String {
    phases::ALL[place].name()
}

impl Arguments {
    /// The engine's own schedule, and the baseline.
    fn schedules(&self) -> Vec<Schedule> {
        self.conditions.schedule.map_or(vec![Schedule::default(), Schedule::Nested], |schedule| vec![schedule])
    }

    /// The chosen phases, as places in [`phases::ALL`].
    fn phases(&self) -> Result<Vec<usize>, BenchError> {
        let found: Vec<usize> = (0..phases::ALL.len()).filter(|&place| name(place).contains(&self.phase)).collect();
        match found.is_empty() {
            false => Ok(found),
            true => {
                let all = (0..phases::ALL.len()).map(name).collect::<Vec<_>>().join(", ");
                let message = format!("no phase has `{}` in its name; there are {all}", self.phase);
                Err(BenchError::Refused(message))
            }
        }
    }

    fn task(&self, schedule: Schedule, phases: Vec<usize>, idle_seconds: f64) -> L2vpnWork {
        L2vpnWork::Visit(PhaseTask { phases, idle_seconds, schedule, cpu: self.common.cpu })
    }

    /// The processes and stages of an order: first the one that goes through all phases.
    fn visit(&self, schedule: Schedule, order: &[usize]) -> (Vec<L2vpnWork>, Vec<Stage>) {
        let alone = order.iter().map(|&phase| self.task(schedule, vec![phase], 0.0));
        let tasks = [self.task(schedule, order.to_vec(), 0.0)].into_iter().chain(alone).collect();
        let stage = |place: usize| Stage { turns: self.rounds, sides: Some(vec![0, place + 1]) };
        (tasks, (0..order.len()).map(stage).collect())
    }
}

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cases = chosen(L2vpnCase::ALL, L2vpnCase::name, &options.case)?;
    if options.picture.is_some() && !cases.contains(&L2vpnCase::Phases) {
        return Err(BenchError::Refused("--picture draws the case `phases`, which --case leaves out".to_owned()));
    }
    let phases = options.phases()?;
    let orders = phases::orders(options.seed, options.orders, &phases);
    let has = |case| usize::from(cases.contains(&case));
    let each = has(L2vpnCase::Phases) * (phases.len() + 1) + has(L2vpnCase::AfterIdle) * 2;
    let all = options.schedules().len() * options.orders * each;
    let mut session = lab.session(options, all);
    let (mut table, mut results, mut notes) = (ReportTable::default(), Vec::new(), Vec::new());
    let mut courses = Vec::new();
    for schedule in options.schedules() {
        let mut found = Vec::new();
        if cases.contains(&L2vpnCase::Phases) {
            let matches = session.staged(options.orders, &[], |number| options.visit(schedule, &orders[number]))?;
            found.extend(visited(schedule, &phases, &orders, &matches));
            courses.extend(matches.first().map(|found| picture::Course::of(schedule, orders[0].len(), found)));
        }
        if cases.contains(&L2vpnCase::AfterIdle) {
            let tasks = |number: usize| {
                let phase = phases[number % phases.len()];
                [0.0, options.idle_seconds].map(|idle| options.task(schedule, vec![phase], idle)).into()
            };
            let matches = session.matches(options.orders, &[options.rounds], &[], tasks)?;
            found.extend(after_idle(schedule, &matches));
        }
        session.show(&table.part(Arguments::NAME, session.machine(), options.orders, &found));
        results.extend(found);
    }
    let mut info = session.info();
    let ratios = results.len();
    if cases.contains(&L2vpnCase::Apps) && !info.interrupted {
        let found = whole::measure(options, &phases, lab)?;
        lab.observer.show(&table.part(Arguments::NAME, info.machine.clone(), options.orders, &found.results));
        info.interrupted |= found.interrupted;
        results.extend(found.results);
        notes.extend(found.notes);
    }
    if ratios > 0 {
        notes.insert(0, conclusion_within(&results[..ratios], BOUNDS, named));
        notes.push(format!("the order of phases is that of `--seed {}`", options.seed));
    }
    notes.extend(conclusions(&results[ratios..]));
    if let (Some(file), Some(order)) = (&options.picture, orders.first()) {
        let names: Vec<String> = order.iter().map(|&phase| name(phase)).collect();
        let svg = picture::svg("Clocks a packet of an L2 VPN's end, phase after phase", &names, &courses);
        std::fs::write(file, svg)
            .map_err(|error| BenchError::Refused(format!("cannot write {}: {error}", file.display())))?;
    }
    let report = Report::of_turns(Arguments::NAME, info, options.orders, results);
    Ok(Finished::after_rows(Report { notes, ..report }))
}

/// How the conclusion names a ratio.
fn named(result: &Measurement) -> String {
    let label = |name: &str| result.labels.get(name).and_then(Value::as_str).unwrap_or_default();
    let phase = match label("phase") {
        "" => String::new(),
        phase => format!(" {phase}"),
    };
    format!("{}{phase} under {}", result.case, label("schedule"))
}

fn labels(schedule: Schedule, clocks: &[f64]) -> Vec<(&'static str, Value)> {
    let clocks = (median_or_nan(clocks) * 10.0).round() / 10.0;
    vec![("schedule", json!(schedule)), ("clocks", json!(clocks))]
}

/// The ratios of each phase after others, and of all phases before others.
fn visited(schedule: Schedule, phases: &[usize], orders: &[Vec<usize>], matches: &[Match]) -> Vec<Measurement> {
    // The ratio and the clocks without a history.
    let pair = |found: &Match, place: usize| {
        Some((found.ratio((0, 0), (place + 1, 0), place)?, found.figure(place + 1, place, 0)?))
    };
    let measured = |case: &str, phase: Option<usize>, pairs: Vec<(f64, f64)>| {
        let (ratios, clocks): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let mut labels = labels(schedule, &clocks);
        labels.extend(phase.map(|phase| ("phase", json!(name(phase)))));
        Measurement::compared(case, "ratio", &ratios, labels)
    };
    let each = |&phase: &usize| {
        let after_others = orders.iter().zip(matches).filter_map(|(order, found)| {
            let place = order.iter().position(|&other| other == phase).filter(|&place| place > 0)?;
            pair(found, place)
        });
        measured(L2vpnCase::Phases.name(), Some(phase), after_others.collect())
    };
    let first = measured(FIRST, None, matches.iter().filter_map(|found| pair(found, 0)).collect());
    phases.iter().filter_map(each).chain(first).collect()
}

/// The ratio of an end that was idle first, over all phases.
fn after_idle(schedule: Schedule, matches: &[Match]) -> Option<Measurement> {
    let ratios = turns::ratios(matches, (1, 0), (0, 0));
    let clocks = turns::figures(matches, 0, 0);
    Measurement::compared(L2vpnCase::AfterIdle.name(), "ratio", &ratios, labels(schedule, &clocks))
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &["The `notes` sum up the verdicts."],
    every: &["schedule", "clocks"],
    rows: &[
        CaseRow::of(
            &["phases"],
            "ratio",
            "a packet's cost in a phase after others, relative to a process that had this phase alone",
        )
        .with(&["phase"]),
        CaseRow::of(&["first"], "ratio", "the same in a process's first phase, over all phases"),
        CaseRow::of(
            &["after-idle"],
            "ratio",
            "a packet's cost after idle seconds relative to that from the start, over all phases",
        ),
        CaseRow::of(
            &["apps"],
            "ratio",
            "the cost of the whole relative to the sum of its apps, each measured alone with the packets that it gets in the \
             whole",
        )
        .with(&["phase", "sum", "apps", "target", "verdict"]),
    ],
    labels: &[
        label("phase", LabelKind::Text, "name of the phase"),
        label("clocks", LabelKind::Decimal, "the cost of a packet without a history; of `apps`, that of the whole"),
        label("sum", LabelKind::Decimal, "the sum of the apps"),
        label("apps", LabelKind::Integer, "how many apps"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "l2vpn";
    const CASES: Cases = CASES;
    const QUICK: &'static str =
        "--orders 1 --rounds 2 --idle-seconds 0.01 --schedule flat --case phases --phase decap-ip4";
    const MORE: &'static [&'static str] =
        &["--orders 1 --rounds 2 --idle-seconds 0.01 --schedule flat --phase decap-ip4-64"];
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "nonsense"], "no case has `nonsense` in its name; there are phases, after-idle and apps"),
        (&["--phase", "ip5"], "no phase has `ip5` in its name; there are encap-ip6-64, "),
        (&["--case", "idle", "--picture", "x.svg"], "--picture draws the case `phases`, which --case leaves out"),
        (&["--idle-seconds", "3601"], "give from 0 to 3600 seconds"),
    ];
    const WORK: RunWorker = |_| workers::take_part(lay_out);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }

    fn beside(&self) -> Option<Beside> {
        self.conditions.beside
    }
}
