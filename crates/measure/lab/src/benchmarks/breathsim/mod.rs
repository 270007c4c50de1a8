//! `breathsim`: the cost of a breath, idle and busy, under each schedule.
//!
//! This is the experiment of Snabb issue 1414, run by the engine instead of a model of it: pseudo-apps that are idle,
//! or that add to a counter again and again. Each is an app of its own type with its own machine code, so that an
//! engine that handles different apps badly shows it. A packet waits at each busy app, which never takes it: the app is
//! busy in every breath, and no cost of moving packets hides the engine's.
//!
//! All schedules and histories of one network live at the same time and take turns ([`turns`]).

mod pseudo;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::str::FromStr;

use bellows_engine::{Schedule, Settings};
use bellows_sys::clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::{Benchmark, Common, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::machine::Machine;
use crate::report::{BenchError, Measurement, Ratio, Report, SessionInfo, interval};
use crate::slices::{Sliced, Turn, sliced_units};
use crate::turns::{self, Match, Peer, beside_bare_loop};
use crate::workers::{self, Contender, ProcessError, settle};
use pseudo::{Bare, MAX_APPS, Simulation};

/// The maximum number of increments in a push.
const MAX_WORK: u64 = 10_000;

/// The maximum number of breaths in a run.
const MAX_BREATHS: u64 = 1_000_000_000_000;

/// The document's experiment: five apps with 100 increments each.
const APPS: usize = 5;
const WORK: u64 = 100;

/// The number of apps in the document's production network.
const PRODUCTION: usize = 30;

/// The default number of processes for each figure of a table, and for a single figure.
const PROCESSES: (usize, usize) = (15, 6);

/// When the apps become busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BusyAfter {
    /// Never.
    Never,
    /// After this number of idle breaths.
    Breaths(u64),
}

impl BusyAfter {
    /// The document's cases: never, after 1,000 breaths, from the start.
    const ALL: [BusyAfter; 3] = [BusyAfter::Never, BusyAfter::Breaths(1_000), BusyAfter::Breaths(0)];

    fn label(self) -> Value {
        match self {
            BusyAfter::Never => "never".into(),
            BusyAfter::Breaths(breaths) => breaths.into(),
        }
    }
}

impl fmt::Display for BusyAfter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BusyAfter::Never => formatter.write_str("never"),
            BusyAfter::Breaths(breaths) => breaths.fmt(formatter),
        }
    }
}

impl FromStr for BusyAfter {
    type Err = NoBreaths;

    fn from_str(text: &str) -> Result<BusyAfter, NoBreaths> {
        match text {
            "never" => Ok(BusyAfter::Never),
            "0" => Ok(BusyAfter::Breaths(0)),
            text => breaths(text).map(BusyAfter::Breaths),
        }
    }
}

/// A text is not a number of breaths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of breaths; write a whole number such as 1000000 or 1e6, up to 1e12")]
pub struct NoBreaths(String);

/// Parses a number of breaths, at least one, in digits or as in `1e8`.
///
/// # Errors
/// When the text is not such a number.
fn breaths(text: &str) -> Result<u64, NoBreaths> {
    let number: f64 = text.parse().map_err(|_| NoBreaths(text.to_owned()))?;
    let whole = number.fract() == 0.0 && (1.0..=MAX_BREATHS as f64).contains(&number);
    if whole { Ok(number as u64) } else { Err(NoBreaths(text.to_owned())) }
}

/// Measure the cost of a breath under each schedule, idle and busy
///
/// The experiment of "The case for unrolling the main push/pull loops" (Snabb issue 1414), run by the engine itself:
/// pseudo-apps with their own code that are idle, or that each add to a counter 100 times per breath. The figures are
/// nanoseconds of processor time per breath. A network that is never busy shows the engine's cost when nothing moves.
/// One that is busy from the start shows what the engine adds to the work. One that is busy after 1,000 idle breaths
/// shows whether an engine that was idle first stays slower.
///
/// Without options the whole table is measured (about two minutes): each schedule, never busy, busy after 1,000 breaths
/// and from the start, with the document's 5 apps and with 30, with 100 increments and with 1 (which lets the engine's
/// own cost show), beside the document's own figures. Each of the options --schedule, --busy-after, --apps and --work
/// restricts the table; the defaults are then the document's 5 apps and 100 increments. The reference is the same
/// increments in a loop without an engine.
///
/// All schedules and histories of one network are measured together, in fresh processes that live at the same time and
/// take turns of a millisecond. A figure is the median over several such groups, with the median's 95 percent
/// confidence interval, or `undecided` if the machine was too disturbed (exit code 3). Each run checks the number of
/// increments; a run with a missing increment is never shown. The table of a network appears when it is finished;
/// Ctrl-C ends the measurement with a report of the finished figures, and exit code 130.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only this schedule
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<Schedule>,
    /// Idle breaths before the apps become busy, or `never`
    ///
    /// 0 means busy from the start.
    #[arg(long, value_name = "never|BREATHS")]
    busy_after: Option<BusyAfter>,
    /// Number of pseudo-apps
    #[arg(long, value_name = "N", value_parser = whole(1..=MAX_APPS as u64))]
    apps: Option<usize>,
    /// Increments of a busy app per breath
    #[arg(long, value_name = "INCREMENTS", value_parser = clap::value_parser!(u64).range(1..=MAX_WORK))]
    work: Option<u64>,
    /// Breaths per run, idle ones included [default: 4e6 for 5 idle apps, else fewer]
    #[arg(long, value_name = "BREATHS", value_parser = breaths)]
    iterations: Option<u64>,
    /// Fresh processes per figure [default: 15, or 6 for a single figure]
    ///
    /// A confidence interval needs at least 6.
    #[arg(long, value_name = "N", value_parser = whole(1..=1000))]
    processes: Option<usize>,
    /// A program with the same experiment, which takes turns with the engine (see bench/peers/breathsim.lua)
    #[arg(long, value_name = "NAME/LOOPS=PROGRAM ARGUMENT …", hide = true)]
    model: Vec<Model>,
}

/// Another program with the same experiment, which takes turns with the engine by the [protocol](crate::workers) of
/// workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The name in labels: the program and its kind of loop.
    name: [String; 2],
    /// The program and its arguments. Appended: when the apps become busy, breaths per turn, apps and increments.
    command: Vec<String>,
}

impl FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Model, String> {
        let parts = text.split_once('=').and_then(|(name, command)| Some((name.split_once('/')?, command)));
        let ((program, loops), command) = parts.ok_or("give NAME/LOOPS=PROGRAM ARGUMENT …")?;
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        match command.is_empty() {
            true => Err("give NAME/LOOPS=PROGRAM ARGUMENT …".to_owned()),
            false => Ok(Model { name: [program.to_owned(), loops.to_owned()], command }),
        }
    }
}

impl Model {
    /// The program for a cell.
    fn peer(&self, cell: Cell, turns: u64) -> Peer {
        let arguments = self.command[1..].iter().cloned().chain([
            cell.busy_after.to_string(),
            (cell.timed / turns).to_string(),
            cell.apps.to_string(),
            cell.work.to_string(),
        ]);
        Peer { program: self.command[0].clone(), arguments: arguments.collect() }
    }
}

impl Arguments {
    fn cells(&self) -> Result<Vec<Cell>, BreathsimError> {
        let chosen = (self.busy_after, self.apps, self.work) != (None, None, None) || self.schedule.is_some();
        let groups = match chosen {
            true => vec![(self.apps.unwrap_or(APPS), self.work.unwrap_or(WORK))],
            false => vec![(APPS, WORK), (APPS, 1), (PRODUCTION, WORK), (PRODUCTION, 1)],
        };
        let schedules = self.schedule.map_or(Schedule::ALL.to_vec(), |schedule| vec![schedule]);
        let busy_after = self.busy_after.map_or(BusyAfter::ALL.to_vec(), |busy_after| vec![busy_after]);
        let mut cells = Vec::new();
        for (apps, work) in groups {
            for &busy_after in &busy_after {
                if !chosen && busy_after == BusyAfter::Never && work != WORK {
                    // The work does not matter if apps are never busy.
                    continue;
                }
                let (idle, timed) = self.lengths(apps, work, busy_after)?;
                cells.extend(schedules.iter().map(|&schedule| Cell { schedule, apps, work, busy_after, idle, timed }));
            }
        }
        Ok(cells)
    }

    /// The number of untimed idle breaths, and of timed breaths.
    fn lengths(&self, apps: usize, work: u64, busy_after: BusyAfter) -> Result<(u64, u64), BreathsimError> {
        let default = default_breaths(apps, work, busy_after);
        match (busy_after, self.iterations) {
            (BusyAfter::Never, iterations) => Ok((0, iterations.unwrap_or(default))),
            (BusyAfter::Breaths(idle), None) => Ok((idle, default)),
            (BusyAfter::Breaths(idle), Some(iterations)) if idle < iterations => Ok((idle, iterations - idle)),
            (BusyAfter::Breaths(idle), Some(iterations)) => Err(BreathsimError::NeverBusy { idle, iterations }),
        }
    }
}

/// The default number of breaths: a turn takes about a millisecond.
fn default_breaths(apps: usize, work: u64, busy_after: BusyAfter) -> u64 {
    let all = if apps > 2 * APPS { 500_000 } else { 4_000_000 };
    match busy_after {
        BusyAfter::Never => all,
        BusyAfter::Breaths(_) => 4 * all / work.clamp(10, 1_000),
    }
}

/// One figure to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Cell {
    schedule: Schedule,
    apps: usize,
    work: u64,
    busy_after: BusyAfter,
    /// Idle breaths before the apps become busy. They are not timed, because they would dominate a run this short.
    idle: u64,
    /// Timed breaths.
    timed: u64,
}

/// The number of turns of a run.
const TURNS: u64 = 50;

/// Timed slices of a turn, and untimed breaths before them.
const SLICES: usize = 20;
const WARM_UP: u64 = 100;

impl Cell {
    /// The document's figure in ns per breath, and the name of its loop.
    fn document(self) -> Option<(f64, &'static str)> {
        let &(_, standard, flattened) = DOCUMENT.iter().find(|row| row.0 == self.busy_after)?;
        let (seconds, name) = match self.schedule.to_string().as_str() {
            "nested" => (standard, "standard"),
            "flat" => (flattened, "flattened"),
            _ => return None,
        };
        ((self.apps, self.work) == (APPS, WORK)).then_some((seconds / DOCUMENT_BREATHS * 1e9, name))
    }

    fn is_busy(self) -> bool {
        self.busy_after != BusyAfter::Never
    }

    /// The breaths of one turn of `turns`.
    fn breaths_of(self, turn: u64, turns: u64) -> u64 {
        self.timed * (turn + 1) / turns - self.timed * turn / turns
    }

    fn labels(self) -> Vec<(&'static str, Value)> {
        vec![
            ("schedule", json!(self.schedule)),
            ("apps", self.apps.into()),
            ("busy_after", self.busy_after.label()),
            ("work", self.work.into()),
            ("breaths", self.timed.into()),
        ]
    }
}

/// The document's seconds for [`DOCUMENT_BREATHS`] breaths of five apps, with its standard and its flattened loop.
const DOCUMENT: [(BusyAfter, f64, f64); 3] = [
    (BusyAfter::Never, 7.638000843, 0.281710828),
    (BusyAfter::Breaths(1_000), 62.653934395, 52.961463354),
    (BusyAfter::Breaths(0), 52.692324165, 52.60125439),
];

const DOCUMENT_BREATHS: f64 = 1e8;

/// One figure for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct BreathsimTask {
    cell: Cell,
    /// The number of turns.
    turns: u64,
    cpu: Option<usize>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
enum BreathsimError {
    /// A measuring process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The run would end before the apps become busy.
    #[error(
        "the apps would be busy after {idle} breaths, but the run has only {iterations}; give --iterations more of them"
    )]
    NeverBusy {
        /// Breaths before the apps are busy.
        idle: u64,
        /// Breaths in all.
        iterations: u64,
    },
    /// The only requested schedule is unavailable.
    #[error("the schedule {0} cannot be measured here: {1}; choose another by --schedule")]
    Refused(String, String),
}

impl From<BreathsimError> for BenchError {
    fn from(error: BreathsimError) -> BenchError {
        match error {
            BreathsimError::Process(error) => BenchError::Process(error),
            error => BenchError::Refused(error.to_string()),
        }
    }
}

/// A figure over all processes.
#[derive(Clone, Debug)]
struct Figure {
    cell: Cell,
    /// The name and loop of a model; `None` for the engine.
    model: Option<[String; 2]>,
    measured: Measurement,
    /// The figure over that of the schedule `nested`, and over that of the same program busy from the start, turn by
    /// turn.
    of_nested: Option<Ratio>,
    of_the_start: Option<Ratio>,
}

/// Runs the experiment. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    Ok(Finished::new(measure(options, lab)?, text_after_tables))
}

fn measure(options: &Arguments, lab: &mut Lab<'_>) -> Result<Report, BreathsimError> {
    let cells = options.cells()?;
    let processes = options.processes.unwrap_or(if cells.len() > 1 { PROCESSES.0 } else { PROCESSES.1 });
    let networks: Vec<&[Cell]> =
        cells.chunk_by(|one, other| (one.apps, one.work) == (other.apps, other.work)).collect();
    let models = |cells: &[Cell]| -> Vec<(Cell, &Model)> {
        // A model has no schedules, so it runs once.
        let mut rows: Vec<Cell> = Vec::new();
        rows.extend(cells.iter().filter(|cell| cell.schedule == cells[0].schedule));
        rows.into_iter().flat_map(|cell| options.model.iter().map(move |model| (cell, model))).collect()
    };
    let all = networks.iter().map(|cells| cells.len() + models(cells).len()).sum::<usize>() * processes;
    let mut session = lab.session(options, all);
    let (mut figures, mut refusals, mut beside) = (Vec::new(), BTreeMap::new(), Vec::new());
    for cells in networks {
        let models = models(cells);
        // All sides of a comparison take the same number of turns.
        let turns = cells.iter().map(|cell| cell.timed).min().unwrap_or(1).clamp(1, TURNS);
        let peers: Vec<Peer> = models.iter().map(|(cell, model)| model.peer(*cell, turns)).collect();
        let task = |&cell: &Cell| BreathsimTask { cell, turns, cpu: options.common.cpu };
        let matches = session.matches(processes, &[turns as usize], &peers, |_| cells.iter().map(task).collect())?;
        for side in matches.iter().flat_map(|found| found.sides.iter().zip(cells)) {
            let (side, cell) = side;
            refusals.extend(side.refused.clone().map(|why| (cell.schedule.to_string(), why)));
        }
        let sides: Vec<(Cell, Option<&Model>)> = cells
            .iter()
            .map(|&cell| (cell, None))
            .chain(models.iter().map(|&(cell, model)| (cell, Some(model))))
            .collect();
        let found: Vec<Figure> = (0..sides.len()).filter_map(|side| Figure::of(&sides, side, &matches)).collect();
        beside.extend(beside_models(&sides, &matches));
        if !found.is_empty() {
            let head = if figures.is_empty() { heading(&session.machine(), processes) } else { String::new() };
            session.show(&(head + &table(&found, processes)));
        }
        figures.extend(found);
    }
    if figures.is_empty() {
        return Err(match refusals.pop_first() {
            Some((schedule, why)) => BreathsimError::Refused(schedule, why),
            None => ProcessError::Interrupted.into(),
        });
    }
    let mut report = report(session.info(), processes, &figures);
    if !options.model.is_empty() {
        report.bench = "peers breathsim".to_owned();
    }
    report.notes.extend(beside);
    let refused = |(schedule, why)| format!("The schedule {schedule} cannot be measured here: {why}.");
    report.notes.extend(refusals.into_iter().map(refused));
    Ok(report)
}

/// The engine's cost over each model's, turn by turn.
fn beside_models(sides: &[(Cell, Option<&Model>)], matches: &[Match]) -> Vec<String> {
    let models = sides.iter().enumerate().filter_map(|(side, (cell, model))| Some((side, cell, (*model)?)));
    let line = |(other, cell, model): (usize, &Cell, &Model)| {
        let engine =
            sides.iter().enumerate().filter(|(_, (one, model))| model.is_none() && one.busy_after == cell.busy_after);
        let ratio = |(side, (one, _)): (usize, &(Cell, Option<&Model>))| {
            let ratios = turns::ratios(matches, (side, 0), (other, 0));
            Some(format!("{} {}", one.schedule, Ratio::of(&ratios)?.written()))
        };
        let ratios = engine.filter_map(ratio).collect::<Vec<_>>().join(", ");
        let [program, loops] = &model.name;
        (!ratios.is_empty()).then(|| format!("Busy after {}, over {program} {loops}: {ratios}.", cell.busy_after))
    };
    models.filter_map(line).collect()
}

/// Lays out the apps of one figure in a fresh process.
///
/// # Errors
/// Why the engine does not run under the schedule here.
fn lay_out(task: BreathsimTask) -> Result<Box<dyn Contender>, String> {
    let BreathsimTask { cell, turns, cpu } = task;
    settle(cpu);
    let settings = Settings { schedule: cell.schedule, busywait: true, ..Settings::default() };
    let mut simulation = Simulation::new(cell.apps, cell.work, settings)?;
    simulation.breathe(cell.idle);
    if cell.is_busy() {
        simulation.get_busy();
    }
    Ok(Box::new(Breathing { cell, simulation, bare: Bare::new(cell.apps, cell.work), turns, turn: 0, breaths: 0 }))
}

/// The worker's side: an engine with pseudo-apps, and the same work without an engine.
struct Breathing {
    cell: Cell,
    simulation: Simulation,
    bare: Bare,
    turns: u64,
    /// Turns so far.
    turn: u64,
    /// Breaths since the apps became busy.
    breaths: u64,
}

impl Contender for Breathing {
    fn turn(&mut self) -> Turn {
        let Breathing { cell, simulation, bare, turns, turn, breaths } = self;
        let timed = cell.breaths_of(*turn % *turns, *turns);
        *turn += 1;
        // Untimed breaths reload the data that other processes evicted from the caches.
        let warm_up = timed.min(WARM_UP);
        simulation.breathe(warm_up);
        let with = sliced_units(timed, SLICES, |breaths| simulation.breathe(breaths));
        *breaths += warm_up + timed;
        let nanos = |time: Sliced| time.clocks * 1e9 / clock::ticks_per_second() as f64;
        if !cell.is_busy() {
            return Turn::of(vec![nanos(with)], &[with]);
        }
        bare.breathe(warm_up);
        let without = sliced_units(timed, SLICES, |breaths| bare.breathe(breaths));
        Turn::of(vec![nanos(with), nanos(without)], &[with, without])
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        let busy = if self.cell.is_busy() { self.breaths } else { 0 };
        self.simulation.finish(busy)
    }
}

impl Figure {
    /// The figure of one side over some matches.
    fn of(sides: &[(Cell, Option<&Model>)], side: usize, matches: &[Match]) -> Option<Figure> {
        let (cell, model) = sides[side];
        let each = |figure| turns::figures(matches, side, figure);
        let breath = each(0);
        let over = |other: Option<usize>| {
            let ratio = |found: &Match| found.ratio((side, 0), (other?, 0), 0);
            Ratio::of(&matches.iter().filter_map(ratio).collect::<Vec<f64>>())
        };
        let position = |schedule, busy_after| {
            let is_it = |(cell, other): &(Cell, Option<&Model>)| {
                (cell.schedule, cell.busy_after, *other) == (schedule, busy_after, model)
            };
            sides.iter().position(is_it)
        };
        let of_nested = if model.is_none() { over(position(Schedule::Nested, cell.busy_after)) } else { None };
        let of_the_start = if cell.idle > 0 { over(position(cell.schedule, BusyAfter::Breaths(0))) } else { None };
        let mut labels = cell.labels();
        let model = model.map(|model| model.name.clone());
        match &model {
            Some([program, loops]) => labels.extend([("program", json!(program)), ("schedule", json!(loops))]),
            None if sides.iter().any(|(_, model)| model.is_some()) => labels.push(("program", json!("bellows"))),
            None => {}
        }
        let measured = Measurement::compared("breath", "ns/breath", &breath, labels)?;
        let measured = beside_bare_loop(measured, matches, side, 0, 1);
        Some(Figure { cell, model, measured, of_nested, of_the_start })
    }

    fn name(&self) -> String {
        match &self.model {
            None => self.cell.schedule.to_string(),
            Some([program, loops]) => format!("{program} {loops}"),
        }
    }

    fn write_row(&self, text: &mut String) {
        let Figure { cell, measured, of_nested, .. } = self;
        let [median, interval] = measured.median_and_interval(|figure| format!("{figure:.2}"));
        let reference = measured.reference.map_or("–".to_owned(), |number| format!("{number:.2}"));
        let overhead = measured.overhead.map_or("–".to_owned(), |overhead| format!("{:.2}", overhead.median));
        let document = if self.model.is_none() { cell.document() } else { None };
        let _ = writeln!(
            text,
            "  {:>10}  {:8}  {median:>9}  {interval:>19}  {:>9}  {reference:>8}  {overhead:>8}  {:>7}  {}",
            cell.busy_after.to_string(),
            self.name(),
            written_ratio(*of_nested, 2),
            format!("{:e}", cell.timed as f64),
            document.map_or("–".to_owned(), |(nanos, name)| format!("{nanos:.1} ({name} loop)")),
        );
    }
}

fn written_ratio(ratio: Option<Ratio>, decimals: usize) -> String {
    match ratio {
        None => "–".to_owned(),
        Some(ratio) if ratio.median.is_nan() => "undecided".to_owned(),
        Some(ratio) => format!("{:.decimals$}", ratio.median),
    }
}

/// The report.
fn report(info: SessionInfo, processes: usize, figures: &[Figure]) -> Report {
    let results = figures.iter().map(|figure| figure.measured.clone()).collect();
    let mut report = Report::of_turns("breathsim", info, processes, results);
    report.notes = tables(figures).filter_map(history).collect();
    report
}

/// The text below the tables.
fn text_after_tables(report: &Report) -> String {
    report.sentences() + EXPLANATION
}

fn heading(machine: &Machine, processes: usize) -> String {
    Report::new("breathsim", machine.clone(), processes, Vec::new()).heading()
}

/// The table of one network.
fn table(figures: &[Figure], processes: usize) -> String {
    let mut text = format!("{}\n", network(figures[0].cell));
    let _ = writeln!(
        text,
        "  busy after  schedule  ns/breath  {:>19}  of nested      bare  overhead  breaths  document",
        interval(processes)
    );
    figures.iter().for_each(|figure| figure.write_row(&mut text));
    text.push('\n');
    text
}

/// Groups the figures by network.
fn tables(figures: &[Figure]) -> impl Iterator<Item = &[Figure]> {
    figures.chunk_by(|one, other| (one.cell.apps, one.cell.work) == (other.cell.apps, other.cell.work))
}

fn network(Cell { apps, work, .. }: Cell) -> String {
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    format!("{apps} app{}, {work} increment{} per push of a busy app", plural(apps as u64), plural(work))
}

/// The lasting cost of idle breaths at the start, in one network: a ratio of 1 means none.
fn history(table: &[Figure]) -> Option<String> {
    let theirs = |figure: &Figure| {
        let from_the_start = Cell { busy_after: BusyAfter::Breaths(0), ..figure.cell };
        let ratio = figure.cell.document()?.0 / from_the_start.document()?.0;
        figure.model.is_none().then_some(ratio)
    };
    let ratios = table.iter().filter_map(|figure| {
        let ratio = figure.of_the_start?;
        let theirs = theirs(figure).map_or(String::new(), |ratio| format!(" (document {ratio:.3})"));
        Some(format!("{} {}{theirs}", figure.name(), ratio.written()))
    });
    let ratios = ratios.collect::<Vec<_>>().join(", ");
    let Cell { apps, work, .. } = table.first()?.cell;
    (!ratios.is_empty())
        .then(|| format!("Busy after idle breaths over busy from the start, apps {apps}, work {work}: {ratios}."))
}

const EXPLANATION: &str = "\
The figure is the median time of a breath over slices of the timed `breaths`, without the idle breaths before them and
without time that other programs took. `bare` is the same work in a loop without an engine, measured in the same turns;
`overhead` is what the engine adds to it. `document` is Snabb issue 1414: LuaJIT on another machine, its seconds divided
by its 1e8 breaths.
";

/// What its figures are.
const CASES: Cases = Cases {
    text: &[
        "`reference` is the same increments without an engine, to which `overhead` refers; an idle network has neither. `notes` \
         state the lasting cost of having been idle first, and the schedules that are unavailable on this machine.",
    ],
    every: &["schedule", "apps", "busy_after", "work", "breaths"],
    rows: &[CaseRow::of(&["breath"], "ns/breath", "a breath: the median slice of its turns")],
    labels: &[
        label("apps", LabelKind::Integer, "number of pseudo-apps"),
        label(
            "busy_after",
            LabelKind::Either(&[LabelKind::Integer, LabelKind::Word(&["never"])]),
            "number of idle breaths before the apps become busy, 0 for busy from the start; or `never`",
        ),
        label("work", LabelKind::Integer, "increments that a busy app makes in a breath"),
        label("breaths", LabelKind::Integer, "number of timed breaths"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "breathsim";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --iterations 1500 --schedule flat";
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--schedule", "warp"], "there is no schedule `warp`"),
        (&["--busy-after", "soon"], "`soon` is not a number of breaths; write a whole number such as 1000000 or 1e6"),
        (&["--iterations", "0"], "`0` is not a number of breaths"),
        (&["--iterations", "1e3"], "busy after 1000 breaths, but the run has only 1000; give --iterations more"),
        (&["--apps", "65"], "65 is not in 1..=64"),
        (&["--work", "0"], "0 is not in 1..=10000"),
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

    /// A cell of the document's network.
    fn cell(schedule: Schedule, busy_after: BusyAfter) -> Cell {
        let idle = if let BusyAfter::Breaths(idle) = busy_after { idle } else { 0 };
        Cell { schedule, apps: APPS, work: WORK, busy_after, idle, timed: 1_000_000 }
    }

    #[test]
    fn numbers_of_breaths_are_written_out_or_with_an_exponent() {
        assert_eq!(breaths("1e8"), Ok(100_000_000));
        assert_eq!(breaths("1000"), Ok(1_000));
        assert_eq!(breaths("2.5e3"), Ok(2_500));
        for text in ["", "0", "-1", "1.5", "1e13", "inf", "nan", "many"] {
            assert_eq!(breaths(text), Err(NoBreaths(text.to_owned())));
        }
        assert_eq!("never".parse(), Ok(BusyAfter::Never));
        assert_eq!("0".parse(), Ok(BusyAfter::Breaths(0)));
        assert_eq!("1e3".parse(), Ok(BusyAfter::Breaths(1_000)));
        assert!("always".parse::<BusyAfter>().is_err());
    }

    #[test]
    fn the_table_has_the_documents_six_cells_under_every_schedule() {
        let cells = Arguments::default().cells().unwrap();
        let documented = cells.iter().filter(|cell| cell.document().is_some()).count();
        assert_eq!(documented, 6);
        assert_eq!(cells.len(), 10 * Schedule::ALL.len());
    }

    #[test]
    fn the_documents_figures_are_its_seconds_by_1e8_breaths() {
        for (schedule, expected) in [(Schedule::Nested, ("76.38", "standard")), (Schedule::Flat, ("2.82", "flattened"))]
        {
            let (nanos, name) = cell(schedule, BusyAfter::Never).document().unwrap();
            assert_eq!((format!("{nanos:.2}").as_str(), name), expected);
        }
    }

    #[test]
    fn the_text_shows_each_figure_beside_nested_the_bare_work_and_the_document() {
        let figure = |schedule, busy_after, breath: f64, of_nested: f64, of_the_start: Option<f64>| {
            let cell = cell(schedule, busy_after);
            let values = [breath - 1.0, breath, breath + 1.0];
            let measured = Measurement::compared("breath", "ns/breath", &values, cell.labels()).unwrap();
            let measured = Measurement { reference: Some(200.0), ..measured };
            let ratio = |ratio: f64| Ratio::of(&[ratio - 0.01, ratio, ratio + 0.01]).unwrap();
            let (of_nested, of_the_start) = (Some(ratio(of_nested)), of_the_start.map(ratio));
            Figure { cell, model: None, measured, of_nested, of_the_start }
        };
        let figures = vec![
            figure(Schedule::Nested, BusyAfter::Breaths(1_000), 300.0, 1.0, Some(1.2)),
            figure(Schedule::Flat, BusyAfter::Breaths(1_000), 270.0, 0.9, None),
            figure(Schedule::Nested, BusyAfter::Breaths(0), 250.0, 1.0, None),
        ];
        let info = SessionInfo { machine: Machine::here(), lost: 0.0, interrupted: false };
        let text = table(&figures, 15) + &text_after_tables(&report(info, 15, &figures));
        let flat = text.lines().find(|line| line.contains("flat  ")).unwrap();
        for part in ["1000", "270.00", "269.00 – 271.00", "0.90", "200.00", "1e6", "529.6 (flattened loop)"] {
            assert!(flat.contains(part), "{part} is not in {flat}");
        }
        let history = "from the start, apps 5, work 100: nested 1.200 (1.190 – 1.210) (document 1.189).\n";
        assert!(text.contains(history), "{text}");
    }

    #[test]
    fn the_breaths_of_all_turns_are_all_breaths() {
        for (timed, turns) in [(500, 50), (1_500, 50), (1_001, 7), (3, 3)] {
            let cell = Cell { timed, ..cell(Schedule::Flat, BusyAfter::Never) };
            assert_eq!((0..turns).map(|turn| cell.breaths_of(turn, turns)).sum::<u64>(), timed);
        }
    }

    #[test]
    fn a_model_is_a_program_with_a_name_and_loops() {
        let model: Model = "luajit/nested=luajit bench/peers/breathsim.lua nested".parse().unwrap();
        let peer = model.peer(cell(Schedule::Flat, BusyAfter::Breaths(10)), 50);
        assert_eq!(peer.program, "luajit");
        assert_eq!(peer.arguments, ["bench/peers/breathsim.lua", "nested", "10", "20000", "5", "100"]);
        for text in ["luajit", "luajit=x", "luajit/nested=", "luajit/nested= "] {
            assert!(text.parse::<Model>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_chosen_is_measured_and_the_rest_in_every_way() {
        let options = Arguments { apps: Some(7), iterations: Some(5_000), ..Arguments::default() };
        let cells = options.cells().unwrap();
        assert_eq!(cells.len(), 3 * Schedule::ALL.len());
        for cell in &cells {
            assert_eq!((cell.apps, cell.work, cell.idle + cell.timed), (7, WORK, 5_000));
        }
        let options = Arguments { schedule: Some(Schedule::Flat), busy_after: Some(BusyAfter::Never), ..options };
        assert_eq!(options.cells().unwrap().len(), 1);
    }

    #[test]
    fn a_run_that_ends_before_the_apps_are_busy_is_a_mistake() {
        let options = Arguments { iterations: Some(1_000), ..Arguments::default() };
        assert!(matches!(options.cells(), Err(BreathsimError::NeverBusy { idle: 1_000, iterations: 1_000 })));
    }

    #[test]
    fn every_breath_of_a_busy_app_is_counted() {
        for schedule in Schedule::ALL {
            let settings = Settings { schedule, ..Settings::default() };
            // An unavailable schedule has nothing to count.
            let Ok(mut simulation) = Simulation::new(MAX_APPS, 3, settings.clone()) else { continue };
            simulation.breathe(10);
            simulation.get_busy();
            simulation.breathe(7);
            assert_eq!(simulation.finish(7), Ok(()), "{schedule}");
            let Ok(mut simulation) = Simulation::new(2, 3, settings) else { continue };
            simulation.get_busy();
            simulation.breathe(7);
            let wrong = simulation.finish(8).unwrap_err();
            assert!(wrong.contains("app1 counted to 21 instead of 24"), "{wrong}");
        }
    }
}
