//! `appbench`: the cost per packet of one app, and its causes.
//!
//! The method is that of Snabb PR 615: packets go from a source to a sink (the *baseline*), then from a source through
//! the app to a sink (*with the app*), and the difference is the cost of the app. The report also shows what the
//! engine's live accounting records for the same app, which is what that document wanted to know.
//!
//! | module | what it holds |
//! |---|---|
//! | `arguments` | the options of the command |
//! | `options` | what to measure, and how |
//! | `plan` | the apps as they are read, and the two networks that are made of them |
//! | [`wiring`] | turns apps in a row into a network |
//! | `testbed` | a measured network, and its packet counts |
//! | `rounds` | the measurement of one process: alternating rounds |
//! | `surroundings` | what apps need besides their keys |
//! | `figures` | combines the answers of all processes |
//! | [`signature`] | the signature of a missing prefetch |
//! | `text` | the text report |
//! | `error` | why there are no figures |
//!
//! # Sources of variation
//!
//! A process runs the baseline and the network with the app in turn, in rounds of about a millisecond, and takes the
//! difference of neighbouring rounds: anything that slows both (a change of frequency, a neighbour on the same core)
//! cancels out. Only the quieter half of the rounds counts, chosen by the time that both networks took together, so
//! that the choice favours neither.
//!
//! The rest varies from process to process, because each has its memory elsewhere. Within a process, too, the two
//! networks lie in different memory: the one that is laid out first is some thousandths of a clock slower or faster for
//! the same work. So every other process lays out the network with the app first.
//!
//! A process yields one figure. The report prints the median over the processes and its 95 percent interval by order
//! statistics ([`bellows_stats`]), which covers this variation. A difference whose interval contains zero is within
//! noise.
//!
//! Clocks are those of the time-stamp counter. They change with the processor's frequency, by some percent from run to
//! run. Where the processor does not count its cycles, these are estimated from the clocks and from a loop of known
//! length that runs between the rounds; compare figures of different hours by cycles.
//!
//! The interval does not cover code placement: all processes run the same program, with the code at the same place. A
//! rebuilt program can differ for that reason alone.

mod arguments;
mod error;
mod figures;
mod options;
mod plan;
mod rounds;
pub mod signature;
mod surroundings;
mod testbed;
mod text;
pub mod wiring;

use bellows_config::Registry;
use bellows_engine::Settings;
use serde::{Deserialize, Serialize};

use crate::audience::Observer;
use crate::bench::Finished;
use crate::callgrind::{self, Counts};
use crate::machine::Machine;
use crate::processes::{Answers, ask, take_turns_with};
use crate::report::Report;
use crate::residence::Levels;
use crate::workers::{catch, panicked, settle};
pub use arguments::Arguments;
pub use error::AppbenchError;
use error::TaskError;
pub(crate) use figures::Summary;
pub use options::{AppbenchCell, AppbenchOptions, ChainRow, Counters, InPlace, Subject};
use plan::AppbenchPlan;
use rounds::TestbedFactory;
pub use rounds::{Comparison, Tally};
use testbed::Testbed;
pub use testbed::{Account, Recording};
pub(crate) use text::packet_fates;

/// The two networks that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Run {
    /// Without the app.
    Baseline,
    /// With the app.
    WithApp,
}

/// The task of one worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppbenchTask {
    options: AppbenchOptions,
    cell: AppbenchCell,
    what: Work,
}

/// The kind of work in a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Work {
    /// Measure the levels of the memory hierarchy.
    MeasureLevels,
    /// Check whether packets pass.
    DryRun,
    /// Measure both networks, laid out in the given order.
    Measure { with_app_first: bool },
    /// Run one network under callgrind.
    Count(Run),
}

/// The answer of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    outcome: Result<Comparison, TaskError>,
    levels: Option<Levels>,
}

/// Runs the measurement. `arguments` make this program call [`measure`] in a fresh process.
///
/// # Errors
/// See [`AppbenchError`].
pub fn run(
    options: &AppbenchOptions,
    arguments: &[&str],
    registry: &Registry,
    observer: &mut dyn Observer,
) -> Result<Finished, AppbenchError> {
    let plan =
        catch(|| AppbenchPlan::of(options, registry)).unwrap_or_else(|panic| Err(AppbenchError::Panicked(panic)))?;
    if let (Some(app), false) = (&plan.wiring.own_source, options.is_plain()) {
        return Err(AppbenchError::OwnPackets(app.clone()));
    }
    let levels = if options.residents.is_empty() { None } else { Some(levels(options, arguments, observer)?) };
    let cells = options.cells(levels.as_ref())?;
    let jobs: Vec<Job> = cells.into_iter().map(|cell| Job { options: options.clone(), cell }).collect();
    let machine = dry_run(&jobs[0], arguments, observer)?;
    let title = text::Title::of(options, &plan);
    let (answers, interrupted) = match options.counters {
        Counters::Processor => {
            let found = take_turns(&jobs, options.processes, arguments, observer)?;
            (found.answers, found.interrupted)
        }
        Counters::Valgrind => (count(&jobs, &plan, arguments, observer)?, false),
    };
    let answered = jobs.iter().zip(answers).filter(|(_, answers)| !answers.is_empty());
    let mut summaries: Vec<Summary> = answered.map(|(job, answers)| Summary::of(job.cell, answers)).collect();
    if plan.is_comparison() {
        // The account covers the measured apps only, but the difference is between two sets of apps.
        summaries.iter_mut().for_each(|summary| summary.gap = None);
    }
    let processes = if options.counters == Counters::Valgrind { 1 } else { options.processes };
    let results = summaries.iter().flat_map(|summary| summary.results(&title)).collect();
    let mut report = Report::new("appbench", machine, processes, results);
    report.notes = figures::notes(options, &plan, &summaries);
    report.interrupted = interrupted;
    Ok(Finished::new(report, move |report| text::render(report, &summaries, &title)))
}

/// A measurement under one combination of conditions.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) options: AppbenchOptions,
    pub(crate) cell: AppbenchCell,
}

impl Job {
    fn task(&self, what: Work) -> AppbenchTask {
        AppbenchTask { options: self.options.clone(), cell: self.cell, what }
    }
}

/// The levels of the memory hierarchy: this machine's, measured in a fresh process, or callgrind's.
pub(crate) fn levels(
    options: &AppbenchOptions,
    arguments: &[&str],
    observer: &mut dyn Observer,
) -> Result<Levels, AppbenchError> {
    if options.counters == Counters::Valgrind {
        return Ok(Levels::simulated());
    }
    let cell = AppbenchCell { residence: None, prefetch: None };
    let task = AppbenchTask { options: options.clone(), cell, what: Work::MeasureLevels };
    let (Answer { outcome, levels }, _) = ask(arguments, &task, observer)?;
    outcome?;
    levels.ok_or_else(|| unreachable!("the task finds levels or fails"))
}

/// Checks that the apps can be linked.
pub(crate) fn check(job: &Job, registry: &Registry) -> Result<(), AppbenchError> {
    let planned = catch(|| AppbenchPlan::of(&job.options, registry).map(drop));
    planned.unwrap_or_else(|panic| Err(AppbenchError::Panicked(panic)))
}

/// Whether the first app makes its own packets.
pub(crate) fn brings_packets(job: &Job, registry: &Registry) -> bool {
    catch(|| AppbenchPlan::of(&job.options, registry).is_ok_and(|plan| plan.wiring.own_source.is_some()))
        .unwrap_or(false)
}

/// Checks in a fresh process that the apps can be measured.
pub(crate) fn dry_run(job: &Job, arguments: &[&str], observer: &mut dyn Observer) -> Result<Machine, AppbenchError> {
    let (Answer { outcome, .. }, machine) = ask(arguments, &job.task(Work::DryRun), observer)?;
    outcome?;
    Ok(machine)
}

/// Measures some jobs in turn, each in `processes` fresh processes.
pub(crate) fn take_turns(
    jobs: &[Job],
    processes: usize,
    arguments: &[&str],
    observer: &mut dyn Observer,
) -> Result<Answers<Comparison>, AppbenchError> {
    let task = |job: usize, round| jobs[job].task(Work::Measure { with_app_first: round % 2 == 1 });
    let Answers { answers, machine, interrupted }: Answers<Answer> =
        take_turns_with(arguments, jobs.len(), processes, task, observer)?;
    let outcomes = |answers: Vec<Answer>| answers.into_iter().map(|answer| answer.outcome).collect();
    Ok(Answers { answers: answers.into_iter().map(outcomes).collect::<Result<_, TaskError>>()?, machine, interrupted })
}

/// Runs both networks of each job under callgrind.
fn count(
    jobs: &[Job],
    plan: &AppbenchPlan<'_>,
    arguments: &[&str],
    observer: &mut dyn Observer,
) -> Result<Vec<Vec<Comparison>>, AppbenchError> {
    let runs: &[Run] = if plan.has_baseline { &[Run::Baseline, Run::WithApp] } else { &[Run::WithApp] };
    let mut counted = Vec::new();
    for (done, job) in jobs.iter().enumerate() {
        let mut whole = Comparison::default();
        for (index, &run) in runs.iter().enumerate() {
            observer.progress(done * runs.len() + index, jobs.len() * runs.len());
            let (counts, answer): (Counts, Answer) =
                callgrind::count(arguments, &job.task(Work::Count(run)), observer)?;
            let comparison = answer.outcome?;
            whole = whole.joined(comparison.counted(run, &counts));
        }
        counted.push(vec![whole]);
    }
    Ok(counted)
}

/// Does one task, in a fresh process.
pub fn measure(task: AppbenchTask, registry: &Registry) -> Answer {
    let AppbenchTask { options, cell, what } = task;
    settle(options.cpu);
    if what == Work::MeasureLevels {
        let (outcome, levels) = match Levels::measure() {
            Ok(levels) => (Ok(Comparison::default()), Some(levels)),
            Err(error) => (Err(error.to_string()), None),
        };
        return Answer { outcome: outcome.map_err(TaskError::Refused), levels };
    }
    let outcome = TaskError::unless_panicked(work(&options, cell, what, registry), panicked());
    Answer { outcome, levels: None }
}

fn work(options: &AppbenchOptions, cell: AppbenchCell, what: Work, registry: &Registry) -> Result<Comparison, String> {
    let plan = AppbenchPlan::of(options, registry).map_err(|error| error.to_string())?;
    let testbeds = CellTestbeds { plan: &plan, options, cell, registry };
    match what {
        Work::MeasureLevels => Ok(Comparison::default()),
        Work::DryRun => rounds::dry_run(&mut testbeds.make(Run::WithApp, false)?),
        Work::Measure { with_app_first } => rounds::compare(options, &testbeds, with_app_first),
        Work::Count(run) => rounds::count(options.packets(), plan.settings.burst, run, testbeds.make(run, false)?),
    }
}

/// Makes the networks of one cell.
struct CellTestbeds<'b> {
    plan: &'b AppbenchPlan<'b>,
    options: &'b AppbenchOptions,
    cell: AppbenchCell,
    registry: &'b Registry,
}

impl TestbedFactory for CellTestbeds<'_> {
    fn has_baseline(&self) -> bool {
        self.plan.has_baseline
    }

    fn make(&self, run: Run, sampling: bool) -> Result<Testbed, String> {
        let settings = Settings { sampling, ..self.plan.settings.clone() };
        let supply_config =
            self.options.supply_config(self.cell, self.plan.wiring.fed.len()).map_err(|error| error.to_string())?;
        self.plan.testbed(run, settings, self.cell, supply_config, self.registry)
    }
}
