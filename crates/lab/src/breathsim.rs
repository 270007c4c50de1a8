//! `breathsim`: what a breath costs, idle and busy, under each schedule.
//!
//! The experiment of Snabb issue 1414 with the engine itself in place of a model of it: pseudo-apps that have nothing to
//! do, or that add to a counter of their own over and over. Each is an app of a type and of machine code of its own, so
//! that an engine that treats unlike apps badly shows it. A packet waits at each busy app, which never takes it: the app
//! is busy in every breath, and no packet is moved whose cost would hide the engine's.

mod pseudo;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::str::FromStr;

use bellows_engine::{Schedule, Settings};
use bellows_sys::cpu;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::processes::{ProcessError, fail, settle, take_turns};
use crate::report::{Machine, Measurement, Report};
use crate::stats::median;
use pseudo::{Bare, Simulation};

pub use pseudo::MOST_APPS;

/// The most increments in a push.
pub const MOST_WORK: u64 = 10_000;

/// The most breaths of a run.
pub const MOST_BREATHS: u64 = 1_000_000_000_000;

/// What the document has: five apps, each of which counts to 100 when it is busy.
const APPS: usize = 5;
const WORK: u64 = 100;

/// Apps in the document's network in production.
const PRODUCTION: usize = 30;

/// Processes for each figure of a table, and for a single one.
const PROCESSES: (usize, usize) = (15, 6);

/// When the apps become busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BusyAfter {
    /// Not at all.
    Never,
    /// After so many idle breaths.
    Breaths(u64),
}

impl BusyAfter {
    /// What the document tries: never, after 1,000 breaths, from the start.
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

/// A text is no number of breaths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no number of breaths; write a whole number such as 1000000 or 1e6, up to 1e12")]
pub struct NoBreaths(String);

/// A number of breaths, at least one, in digits or as in `1e8`.
///
/// # Errors
/// When it is none.
pub fn breaths(text: &str) -> Result<u64, NoBreaths> {
    let number: f64 = text.parse().map_err(|_| NoBreaths(text.to_owned()))?;
    let whole = number.fract() == 0.0 && (1.0..=MOST_BREATHS as f64).contains(&number);
    if whole { Ok(number as u64) } else { Err(NoBreaths(text.to_owned())) }
}

/// What is to be measured. What is left open is measured in every way, or as the document has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Only this schedule; all of them if none is given.
    pub schedule: Option<Schedule>,
    /// When the apps become busy; never, after 1,000 breaths and from the start if nothing is given.
    pub busy_after: Option<BusyAfter>,
    /// How many pseudo-apps, 1 to [`MOST_APPS`].
    pub apps: Option<usize>,
    /// Increments in each push.
    pub work: Option<u64>,
    /// Breaths of each run, the idle ones at its start included.
    pub iterations: Option<u64>,
    /// Fresh processes for each figure.
    pub processes: Option<usize>,
    /// The processor to measure on; the last that the process may use if none is given.
    pub cpu: Option<usize>,
}

impl Options {
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
                    // Apps that are never busy do not care what they would do.
                    continue;
                }
                let (idle, timed) = self.lengths(apps, work, busy_after)?;
                cells.extend(schedules.iter().map(|&schedule| Cell { schedule, apps, work, busy_after, idle, timed }));
            }
        }
        Ok(cells)
    }

    /// How many breaths come before the time is taken, and in how many it is.
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

/// So many that a run takes about a second: as many as the document has where an idle breath is all there is to time.
fn default_breaths(apps: usize, work: u64, busy_after: BusyAfter) -> u64 {
    let all = if apps > 2 * APPS { 10_000_000 } else { 100_000_000 };
    match busy_after {
        BusyAfter::Never => all,
        BusyAfter::Breaths(_) => 4 * all / work.clamp(10, 1_000),
    }
}

/// One figure to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Cell {
    schedule: Schedule,
    apps: usize,
    work: u64,
    busy_after: BusyAfter,
    /// Idle breaths before the apps become busy. They are too many to count in a run as short as these, and therefore
    /// no part of the time.
    idle: u64,
    /// The breaths whose time is taken.
    timed: u64,
}

impl Cell {
    /// What the document measured for it, in ns a breath, and with which of its loops.
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

/// The document's seconds for so many breaths of five apps: with its standard loop and with its flattened one.
const DOCUMENT: [(BusyAfter, f64, f64); 3] = [
    (BusyAfter::Never, 7.638000843, 0.281710828),
    (BusyAfter::Breaths(1_000), 62.653934395, 52.961463354),
    (BusyAfter::Breaths(0), 52.692324165, 52.60125439),
];

const DOCUMENT_BREATHS: f64 = 1e8;

/// One figure for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    cell: Cell,
    cpu: Option<usize>,
}

/// What one process measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Or why the engine does not run under the schedule here.
    outcome: Result<Times, String>,
    machine: Machine,
}

/// Nanoseconds that a breath takes, and the same work without an engine.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Times {
    breath: f64,
    bare: Option<f64>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BreathsimError {
    /// A measuring process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The run would be over before the apps are busy.
    #[error(
        "the apps would be busy after {idle} breaths, but the run has only {iterations}; give --iterations more of them"
    )]
    NeverBusy {
        /// Breaths before the apps are busy.
        idle: u64,
        /// Breaths in all.
        iterations: u64,
    },
    /// The only schedule that was asked for cannot be had here.
    #[error("the schedule {0} cannot be measured here: {1}; choose another by --schedule")]
    Refused(String, String),
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As data.
    pub report: Report,
    figures: Vec<Figure>,
}

/// A figure over all its processes.
#[derive(Clone, Debug)]
struct Figure {
    cell: Cell,
    measured: Measurement,
}

/// Runs the experiment. `arguments` make this program call [`measure`] in a fresh process; `progress` is told how many
/// of how many processes are done.
///
/// # Errors
/// See [`BreathsimError`].
pub fn run(
    options: &Options,
    arguments: &[&str],
    progress: impl FnMut(usize, usize),
) -> Result<Outcome, BreathsimError> {
    let cells = options.cells()?;
    let processes = options.processes.unwrap_or(if cells.len() > 1 { PROCESSES.0 } else { PROCESSES.1 });
    let tasks: Vec<Task> = cells.iter().map(|&cell| Task { cell, cpu: options.cpu }).collect();
    let answers: Vec<Vec<Answer>> = take_turns(arguments, &tasks, processes, progress)?;
    let refusals: BTreeMap<String, String> = cells
        .iter()
        .zip(&answers)
        .filter_map(|(cell, answers)| {
            Some((cell.schedule.to_string(), answers.iter().find_map(|answer| answer.outcome.clone().err())?))
        })
        .collect();
    let figures: Vec<Figure> =
        cells.iter().zip(&answers).filter_map(|(&cell, answers)| Figure::of(cell, answers)).collect();
    if figures.is_empty()
        && let Some((schedule, why)) = refusals.first_key_value()
    {
        return Err(BreathsimError::Refused(schedule.clone(), why.clone()));
    }
    let machine = answers.iter().flatten().next().map_or_else(Machine::here, |answer| answer.machine.clone());
    let mut outcome = Outcome::new(machine, processes, figures);
    let refused = |(schedule, why)| format!("The schedule {schedule} cannot be measured here: {why}.");
    outcome.report.notes.extend(refusals.into_iter().map(refused));
    Ok(outcome)
}

/// Measures one figure, in a process that has done nothing else.
pub fn measure(task: Task) -> Answer {
    let Task { cell, cpu } = task;
    settle(cpu);
    let settings = Settings { schedule: cell.schedule, busywait: true, ..Settings::default() };
    let outcome = Simulation::new(cell.apps, cell.work, settings).map(|simulation| time(cell, simulation));
    Answer { outcome, machine: Machine::here() }
}

fn time(cell: Cell, mut simulation: Simulation) -> Times {
    simulation.breathe(cell.idle);
    if cell.is_busy() {
        simulation.get_busy();
    }
    // A processor does not run at one speed all the time: the two times that are to be compared are taken in turns.
    let mut bare = Bare::new(cell.apps, cell.work);
    let (mut with, mut without) = (0, 0);
    for turn in 0..TURNS {
        let breaths = cell.timed * (turn + 1) / TURNS - cell.timed * turn / TURNS;
        with += nanos(|| simulation.breathe(breaths));
        if cell.is_busy() {
            without += nanos(|| bare.breathe(breaths));
        }
    }
    simulation.finish(if cell.is_busy() { cell.timed } else { 0 }).unwrap_or_else(|wrong| fail(&wrong));
    let each = |nanos: u64| nanos as f64 / cell.timed as f64;
    Times { breath: each(with), bare: cell.is_busy().then(|| each(without)) }
}

/// In so many turns the time of a run is taken.
const TURNS: u64 = 10;

/// The processor time that work takes. Runs are long enough to be interrupted, and the time of others does not count.
fn nanos(work: impl FnOnce()) -> u64 {
    let start = cpu::thread_time();
    work();
    cpu::thread_time() - start
}

impl Figure {
    fn of(cell: Cell, answers: &[Answer]) -> Option<Figure> {
        let times: Vec<Times> = answers.iter().filter_map(|answer| answer.outcome.as_ref().ok().copied()).collect();
        let breath: Vec<f64> = times.iter().map(|times| times.breath).collect();
        let bare: Vec<f64> = times.iter().filter_map(|times| times.bare).collect();
        let reference = median(&bare).map(|median| median.value);
        let measured = Measurement::of("breath", "ns/breath", &breath, cell.labels())?;
        Some(Figure { cell, measured: Measurement { reference, ..measured } })
    }

    /// How many times as long as that of another it is.
    fn over(&self, other: &Figure) -> f64 {
        self.measured.median / other.measured.median
    }

    fn write_row(&self, text: &mut String, table: &[Figure]) {
        let Figure { cell, measured } = self;
        let of_nested = find(table, Schedule::Nested, cell.busy_after).map(|nested| self.over(nested));
        let _ = writeln!(
            text,
            "  {:>10}  {:8}  {:>9.2}  {:>19}  {:>9}  {:>8}  {:>7}  {}",
            cell.busy_after.to_string(),
            cell.schedule.to_string(),
            measured.median,
            format!("{:.2} – {:.2}", measured.low, measured.high),
            or_dash(of_nested),
            or_dash(measured.reference),
            format!("{:e}", cell.timed as f64),
            cell.document().map_or("–".to_owned(), |(nanos, name)| format!("{nanos:.1} ({name} loop)")),
        );
    }
}

impl Outcome {
    fn new(machine: Machine, processes: usize, figures: Vec<Figure>) -> Outcome {
        let results = figures.iter().map(|figure| figure.measured.clone()).collect();
        let mut report = Report::new("breathsim", machine, processes, results);
        report.notes = tables(&figures).filter_map(history).collect();
        Outcome { report, figures }
    }

    /// As tables, one for each network, beside what the document has.
    pub fn text(&self) -> String {
        let mut text = self.report.heading();
        for table in tables(&self.figures) {
            let _ = writeln!(text, "{}", network(table[0].cell));
            let _ = writeln!(
                text,
                "  busy after  schedule  ns/breath  {:>19}  of nested      bare  breaths  document",
                self.report.interval()
            );
            table.iter().for_each(|figure| figure.write_row(&mut text, table));
            text.push('\n');
        }
        for note in &self.report.notes {
            let _ = writeln!(text, "{note}");
        }
        text.push_str(EXPLANATION);
        text
    }
}

/// The figures of one network after the other's.
fn tables(figures: &[Figure]) -> impl Iterator<Item = &[Figure]> {
    figures.chunk_by(|one, other| (one.cell.apps, one.cell.work) == (other.cell.apps, other.cell.work))
}

fn network(Cell { apps, work, .. }: Cell) -> String {
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    format!("{apps} app{}, {work} increment{} in each push of a busy one", plural(apps as u64), plural(work))
}

/// What being idle first costs for good, in one network: a ratio of 1 if nothing.
fn history(table: &[Figure]) -> Option<String> {
    let document = |figure: &Figure| figure.cell.document().map(|(nanos, _)| nanos);
    let ratios = table.iter().filter(|figure| figure.cell.idle > 0).filter_map(|figure| {
        let from_the_start = find(table, figure.cell.schedule, BusyAfter::Breaths(0))?;
        let theirs = document(figure).zip(document(from_the_start)).map(|(after, before)| after / before);
        let theirs = theirs.map_or(String::new(), |ratio| format!(" (document {ratio:.3})"));
        Some(format!("{} {:.3}{theirs}", figure.cell.schedule, figure.over(from_the_start)))
    });
    let ratios = ratios.collect::<Vec<_>>().join(", ");
    let Cell { apps, work, .. } = table.first()?.cell;
    (!ratios.is_empty())
        .then(|| format!("Busy after idle breaths over busy from the start, apps {apps}, work {work}: {ratios}."))
}

/// The figure of one network for these conditions.
fn find(table: &[Figure], schedule: Schedule, busy_after: BusyAfter) -> Option<&Figure> {
    table.iter().find(|figure| (figure.cell.schedule, figure.cell.busy_after) == (schedule, busy_after))
}

fn or_dash(number: Option<f64>) -> String {
    number.map_or("–".to_owned(), |number| format!("{number:.2}"))
}

const EXPLANATION: &str = "\
Processor time over so many `breaths`, fewer where apps are busy than the document's 1e8, and without the idle breaths
before them. `bare` is the same work in a loop without an engine, measured in the same processes. `document`: Snabb issue
1414, LuaJIT on another machine, its seconds divided by its 1e8 breaths.
";

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
        let cells = Options::default().cells().unwrap();
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
        let figure = |schedule, busy_after, breath: f64| {
            let answer = |breath| Answer { outcome: Ok(Times { breath, bare: Some(200.0) }), machine: Machine::here() };
            Figure::of(cell(schedule, busy_after), &[breath - 1.0, breath, breath + 1.0].map(answer)).unwrap()
        };
        let figures = vec![
            figure(Schedule::Nested, BusyAfter::Breaths(1_000), 300.0),
            figure(Schedule::Flat, BusyAfter::Breaths(1_000), 270.0),
            figure(Schedule::Nested, BusyAfter::Breaths(0), 250.0),
        ];
        let text = Outcome::new(Machine::here(), 15, figures).text();
        let flat = text.lines().find(|line| line.contains("flat  ")).unwrap();
        for part in ["1000", "270.00", "269.00 – 271.00", "0.90", "200.00", "1e6", "529.6 (flattened loop)"] {
            assert!(flat.contains(part), "{part} is not in {flat}");
        }
        assert!(text.contains("from the start, apps 5, work 100: nested 1.200 (document 1.189).\n"), "{text}");
    }

    #[test]
    fn what_is_chosen_is_measured_and_the_rest_in_every_way() {
        let options = Options { apps: Some(7), iterations: Some(5_000), ..Options::default() };
        let cells = options.cells().unwrap();
        assert_eq!(cells.len(), 3 * Schedule::ALL.len());
        for cell in &cells {
            assert_eq!((cell.apps, cell.work, cell.idle + cell.timed), (7, WORK, 5_000));
        }
        let options = Options { schedule: Some(Schedule::Flat), busy_after: Some(BusyAfter::Never), ..options };
        assert_eq!(options.cells().unwrap().len(), 1);
    }

    #[test]
    fn a_run_that_ends_before_the_apps_are_busy_is_a_mistake() {
        let options = Options { iterations: Some(1_000), ..Options::default() };
        assert!(matches!(options.cells(), Err(BreathsimError::NeverBusy { idle: 1_000, iterations: 1_000 })));
    }

    #[test]
    fn every_breath_of_a_busy_app_is_counted() {
        for schedule in Schedule::ALL {
            let settings = Settings { schedule, ..Settings::default() };
            // Where a schedule cannot be had there is nothing to count.
            let Ok(mut simulation) = Simulation::new(MOST_APPS, 3, settings.clone()) else { continue };
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
