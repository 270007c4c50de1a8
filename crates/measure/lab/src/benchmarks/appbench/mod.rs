//! `appbench`: the cost per packet of one app, and its causes.
//!
//! The method is that of Snabb PR 615: packets go from a source to a sink (the *baseline*), then from a source through
//! the app to a sink (*with the app*), and the difference is the cost of the app. The report also shows what the
//! engine's live accounting records for the same app, which is what that document wanted to know.
//!
//! | module | what it holds |
//! |---|---|
//! | `arguments` | the options of the command |
//! | [`wiring`] | turns apps in a row into a network |
//! | `testbed` | a measured network, and its packet counts |
//! | `rounds` | the measurement of one process: alternating rounds |
//! | `surroundings` | what apps need besides their keys |
//! | `figures` | combines the answers of all processes |
//! | [`signature`] | the signature of a missing prefetch |
//! | `text` | the text report |
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
mod figures;
mod rounds;
pub mod signature;
mod surroundings;
mod testbed;
mod text;
pub mod wiring;

use std::path::{Path, PathBuf};

use bellows_config::{BenchStep, Diagnostics, Loaded, Overrides, Registry, load, load_chain};
use bellows_engine::{AppSpec, Network, Schedule, Settings};
use bellows_packet::pool;
use serde::{Deserialize, Serialize};

use crate::audience::Observer;
use crate::bench::Finished;
use crate::callgrind::{self, CallgrindError, Counts};
use crate::machine::Machine;
use crate::processes::{Answers, ask, take_turns_with};
use crate::report::{BenchError, Report};
use crate::residence::{Levels, NotFound, Residence, Resident};
use crate::supply::SupplyConfig;
use crate::traffic::{Traffic, TrafficError};
use crate::workers::{ProcessError, catch, panicked, settle};
pub use arguments::Arguments;
pub(crate) use figures::Summary;
use rounds::TestbedFactory;
pub use rounds::{Comparison, Tally};
pub use testbed::{Account, Recording};
use testbed::{Links, Supplies, Testbed};
pub(crate) use text::packet_fates;
use wiring::{Wiring, WiringError};

/// The name of the command line's apps in error messages.
const APP: &str = "APP";

/// The apps to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Subject {
    /// Apps in a row, between a source and a sink.
    Row(ChainRow),
    /// An app in its place in a network.
    InPlace(InPlace),
}

/// Apps in a row, as [`load_chain`] reads them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChainRow {
    /// The apps.
    pub apps: String,
    /// The apps of the baseline; if empty, the baseline has no apps in their place.
    pub against: String,
    /// Inputs of the first app that get packets; all if empty.
    pub inputs: Vec<String>,
    /// Outputs of the last app that lead to a sink; all if empty.
    pub outputs: Vec<String>,
    /// The tables of shared objects that the apps name.
    pub objects: String,
    /// The apps that packets have passed when they come to the first one.
    pub before: Vec<BenchStep>,
}

/// An app of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InPlace {
    /// The network file.
    pub file: PathBuf,
    /// Settings of the command line.
    pub set: Vec<String>,
    /// The app's name in it.
    pub app: String,
}

/// The source of event counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counters {
    /// The processor's performance counters, if it has any.
    #[default]
    Processor,
    /// Callgrind's simulated processor.
    Valgrind,
}

/// The options of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppbenchOptions {
    /// The apps to measure.
    pub subject: Subject,
    /// Packets that each process sends through each of the two networks. Default: 10 million, or 1 million if packets
    /// are prepared for each round.
    pub packets: Option<u64>,
    /// The number of fresh processes.
    pub processes: usize,
    /// Packets per breath. Default: 128, or the network's burst.
    pub burst: Option<usize>,
    /// The schedule. Default: the engine's default, or the network's schedule.
    pub schedule: Option<Schedule>,
    /// The processor to measure on. Default: the last one that the process may use.
    pub cpu: Option<usize>,
    /// The cache levels that packets come from, each in turn. Default: fresh from the source.
    pub residents: Vec<Resident>,
    /// The packets. Default: 60 bytes.
    pub traffic: Option<Traffic>,
    /// Offered packets per second. Default: as fast as possible.
    pub offered: Option<f64>,
    /// Prefetch distances, each in turn. Default: the app's own.
    pub prefetch: Vec<usize>,
    /// The source of event counts.
    pub counters: Counters,
}

impl AppbenchOptions {
    /// The default options for a subject.
    pub fn new(subject: Subject) -> AppbenchOptions {
        AppbenchOptions {
            subject,
            packets: None,
            processes: 15,
            burst: None,
            schedule: None,
            cpu: None,
            residents: Vec::new(),
            traffic: None,
            offered: None,
            prefetch: Vec::new(),
            counters: Counters::default(),
        }
    }

    fn packets(&self) -> u64 {
        self.packets.unwrap_or(if self.residents.is_empty() { 10_000_000 } else { 1_000_000 })
    }

    fn cells(&self, levels: Option<&Levels>) -> Result<Vec<AppbenchCell>, NotFound> {
        let residence = |&level: &Resident| levels.map(|levels| levels.residence(level)).transpose();
        let residences: Vec<Option<Residence>> = match self.residents.as_slice() {
            [] => vec![None],
            levels => levels.iter().map(residence).collect::<Result<_, _>>()?,
        };
        let distances: Vec<Option<usize>> = match self.prefetch.as_slice() {
            [] => vec![None],
            distances => distances.iter().copied().map(Some).collect(),
        };
        let cells = |&residence: &Option<Residence>| {
            distances.iter().map(move |&prefetch| AppbenchCell { residence, prefetch })
        };
        Ok(residences.iter().flat_map(cells).collect())
    }

    /// What the measurement's sources send.
    fn supply_config(&self, cell: AppbenchCell, supplies: usize) -> Result<SupplyConfig, TrafficError> {
        let traffic = self.traffic.clone().map_or_else(|| SMALL.parse(), Ok)?;
        let offered = self.offered.map(|all| all / supplies.max(1) as f64);
        Ok(SupplyConfig { traffic, residence: cell.residence, offered, supplies })
    }

    /// Whether all options about packets have their defaults.
    fn is_plain(&self) -> bool {
        self.residents.is_empty() && self.traffic.is_none() && self.offered.is_none()
    }

    /// The settings with these options in place of the network's.
    fn over(&self, settings: Settings) -> Settings {
        let (burst, schedule) = (self.burst.unwrap_or(settings.burst), self.schedule.unwrap_or(settings.schedule));
        Settings { burst, schedule, ..settings }
    }
}

/// The default traffic: the smallest Ethernet frames.
const SMALL: &str = "60";

/// One combination of varied conditions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppbenchCell {
    /// The cache level that packets come from. Default: fresh from the source.
    pub residence: Option<Residence>,
    /// The prefetch distance. Default: the app's own.
    pub prefetch: Option<usize>,
}

/// The two networks that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Run {
    /// Without the app.
    Baseline,
    /// With the app.
    WithApp,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum AppbenchError {
    /// The apps or the network cannot be read.
    #[error("{}", .0.render(false))]
    Diagnosed(Diagnostics),
    /// The apps cannot be linked.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// The network has no app of that name.
    #[error("the network has no app `{name}`; it has {known}")]
    NoApp {
        /// The name.
        name: String,
        /// The apps of the network.
        known: String,
    },
    /// The app makes its own packets.
    #[error(
        "`{0}` makes its own packets, so their contents, cache level and rate cannot be chosen; leave out --traffic, \
         --resident and --offered"
    )]
    OwnPackets(String),
    /// A level of the memory hierarchy was not found on this machine.
    #[error(transparent)]
    NoLevel(#[from] NotFound),
    /// The traffic is invalid.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The apps cannot be measured.
    #[error("{0}")]
    Refused(String),
    /// An app panicked.
    #[error("{0}")]
    Panicked(String),
    /// A measuring process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Callgrind did not count.
    #[error(transparent)]
    Callgrind(#[from] CallgrindError),
}

impl AppbenchError {
    /// Whether the error is the caller's mistake, not an internal failure.
    pub fn is_mistake(&self) -> bool {
        match self {
            AppbenchError::Panicked(_) => false,
            AppbenchError::Process(error) => error.is_mistake(),
            AppbenchError::Callgrind(CallgrindError::Process(error)) => error.is_mistake(),
            _ => true,
        }
    }

    /// Whether the measurement was interrupted before there was anything to report.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, AppbenchError::Process(ProcessError::Interrupted))
    }
}

impl From<AppbenchError> for BenchError {
    fn from(error: AppbenchError) -> BenchError {
        match error {
            AppbenchError::Diagnosed(mistakes) => BenchError::Diagnosed(mistakes),
            AppbenchError::Process(error) | AppbenchError::Callgrind(CallgrindError::Process(error)) => {
                BenchError::Process(error)
            }
            error if error.is_mistake() => BenchError::Refused(error.to_string()),
            error => BenchError::Failed(error.to_string()),
        }
    }
}

/// Why a worker has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum TaskError {
    /// The apps cannot be measured.
    Refused(String),
    /// An app panicked.
    Panicked(String),
}

impl From<TaskError> for AppbenchError {
    fn from(error: TaskError) -> AppbenchError {
        match error {
            TaskError::Refused(why) => AppbenchError::Refused(why),
            TaskError::Panicked(what) => AppbenchError::Panicked(what),
        }
    }
}

impl TaskError {
    /// The outcome of a worker, or an error if an app panicked. `last` is the message of the last panic.
    fn unless_panicked<T>(outcome: Result<T, String>, last: Option<String>) -> Result<T, TaskError> {
        match (outcome, last) {
            (outcome, None) => outcome.map_err(TaskError::Refused),
            (Ok(_), Some(panic)) => Err(TaskError::Panicked(format!("an app panicked: {panic}"))),
            (Err(why), Some(panic)) if why.contains(&panic) => Err(TaskError::Panicked(why)),
            (Err(why), Some(panic)) => Err(TaskError::Panicked(format!("{why}: {panic}"))),
        }
    }
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

/// The analysed subject.
pub(crate) struct AppbenchPlan<'s> {
    subject: &'s Subject,
    settings: Settings,
    wiring: Wiring,
    /// The baseline's apps, in the place of the measured ones.
    against: Wiring,
    has_baseline: bool,
    /// The names of the apps of both networks.
    names: Vec<String>,
    /// The name of the subject, and its own prefetch distance.
    subject_name: String,
    own_distance: usize,
    /// Sentences for the report.
    remarks: Vec<String>,
}

impl<'s> AppbenchPlan<'s> {
    /// Whether the baseline contains other apps.
    fn is_comparison(&self) -> bool {
        matches!(self.subject, Subject::Row(row) if !row.against.is_empty())
    }

    fn of(options: &'s AppbenchOptions, registry: &Registry) -> Result<AppbenchPlan<'s>, AppbenchError> {
        let AppbenchOptions { subject, .. } = options;
        match subject {
            Subject::Row(row) => {
                let wire = |apps: &[AppSpec]| Wiring::of(apps, &row.inputs, &row.outputs);
                let (apps, others) = (row.read(&row.apps, registry)?, row.read(&row.against, registry)?);
                let (wiring, against) = (wire(&apps)?, wire(&others)?);
                let names = apps.iter().chain(&others).map(|app| app.name.clone()).collect();
                let remarks = row.remark().into_iter().chain(wiring.remarks()).collect();
                let settings = options.over(Settings::default());
                let own_distance = apps.iter().map(|app| app.info().prefetch).max().unwrap_or(0);
                let subject_name = apps.iter().map(|app| app.name.as_str()).collect::<Vec<_>>().join(" | ");
                Ok(AppbenchPlan {
                    subject,
                    settings,
                    wiring,
                    against,
                    has_baseline: true,
                    names,
                    subject_name,
                    own_distance,
                    remarks,
                })
            }
            Subject::InPlace(place) => {
                let Loaded { network, engine, .. } = place.load(registry)?;
                let Some(app) = network.apps.iter().find(|app| app.name == place.app) else {
                    let known: Vec<String> = network.apps.iter().map(|app| app.name.clone()).collect();
                    return Err(AppbenchError::NoApp { name: place.app.clone(), known: wiring::names(&known) });
                };
                let own_distance = app.info().prefetch;
                let bypass = Bypass::of(&network, &place.app);
                let remarks = bypass.remarks(&place.app);
                let has_baseline = matches!(bypass, Bypass::Possible);
                let (wiring, against) = Default::default();
                let settings = options.over(engine.settings());
                let subject_name = place.app.clone();
                Ok(AppbenchPlan {
                    subject,
                    settings,
                    wiring,
                    against,
                    has_baseline,
                    names: Vec::new(),
                    subject_name,
                    own_distance,
                    remarks,
                })
            }
        }
    }

    /// Makes one of the two networks.
    fn testbed(
        &self,
        run: Run,
        settings: Settings,
        cell: AppbenchCell,
        supply_config: SupplyConfig,
        registry: &Registry,
    ) -> Result<Testbed, String> {
        let to_text = |error: AppbenchError| error.to_string();
        match self.subject {
            Subject::Row(row) => {
                let (apps, wiring) = match run {
                    Run::WithApp => (&row.apps, &self.wiring),
                    Run::Baseline => (&row.against, &self.against),
                };
                let (apps, before) = row.read_behind(apps, registry).map_err(to_text)?;
                let apps = fetching(apps, cell.prefetch);
                let frames = surroundings::passed(&supply_config, &row.before, before, settings.burst)?;
                let supplies = Supplies { frames, config: supply_config };
                Testbed::of_row(apps, wiring, self.wiring.fed.len(), &self.names, supplies, settings)
            }
            Subject::InPlace(place) => {
                let Loaded { mut network, engine, .. } = place.load(registry).map_err(to_text)?;
                // The first network of a process fixes the packet pool.
                let _ = pool::init(engine.pool_config());
                let mut links = Links::into(&network, &place.app);
                if run == Run::Baseline {
                    links = Bypass::take(&mut network, &place.app, links);
                } else if let Some(index) = network.apps.iter().position(|app| app.name == place.app) {
                    let rest = network.apps.split_off(index + 1);
                    let app = network.apps.pop().into_iter().collect();
                    network.apps.append(&mut fetching(app, cell.prefetch));
                    network.apps.extend(rest);
                }
                Testbed::in_place(network, &place.app, links, settings)
            }
        }
    }
}

/// Sets the prefetch distance of apps.
fn fetching(apps: Vec<AppSpec>, prefetch: Option<usize>) -> Vec<AppSpec> {
    match prefetch {
        Some(distance) => apps.into_iter().map(|app| app.prefetching(distance)).collect(),
        None => apps,
    }
}

impl ChainRow {
    fn read(&self, apps: &str, registry: &Registry) -> Result<Vec<AppSpec>, AppbenchError> {
        if apps.is_empty() {
            return Ok(Vec::new());
        }
        load_chain(apps, &self.objects, APP, Path::new(""), registry).map_err(AppbenchError::Diagnosed)
    }

    /// Apps of the row, and those in front of them, which share their objects.
    fn read_behind(&self, apps: &str, registry: &Registry) -> Result<(Vec<AppSpec>, Vec<AppSpec>), AppbenchError> {
        let steps = self.before.iter().map(BenchStep::to_string);
        let all: Vec<String> = Some(apps.to_owned()).filter(|apps| !apps.is_empty()).into_iter().chain(steps).collect();
        // Those in front come last, because an app's name depends on the ones before it.
        let mut apps = self.read(&all.join(" | "), registry)?;
        let before = apps.split_off(apps.len() - self.before.len());
        Ok((apps, before))
    }
}

impl InPlace {
    fn load(&self, registry: &Registry) -> Result<Loaded, AppbenchError> {
        load(&self.file, registry, &Overrides::new(&self.set)).map_err(AppbenchError::Diagnosed)
    }
}

/// Whether a network can run without one of its apps.
enum Bypass {
    /// The app's input link can lead to the app's receiver.
    Possible,
    /// The app has this many inputs and outputs linked.
    Impossible { inputs: usize, outputs: usize },
}

/// A count with its noun.
fn plural(count: usize, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

impl Bypass {
    fn of(network: &Network, app: &str) -> Bypass {
        let inputs = network.links.iter().filter(|link| link.to.app == app).count();
        let outputs = network.links.iter().filter(|link| link.from.app == app).count();
        if (inputs, outputs) == (1, 1) { Bypass::Possible } else { Bypass::Impossible { inputs, outputs } }
    }

    /// Removes the app from the network, and joins the links on both sides of it.
    fn take(network: &mut Network, app: &str, links: Links) -> Links {
        network.apps.retain(|spec| spec.name != app);
        let Some(from) = network.links.iter().position(|link| link.from.app == app) else { return links };
        let from = network.links.remove(from);
        for link in &mut network.links {
            if link.to.app == app {
                link.to = from.to.clone();
            }
        }
        Links::from(network, &from.to)
    }

    fn remarks(&self, app: &str) -> Vec<String> {
        match self {
            Bypass::Possible => vec![format!(
                "the baseline is the network without `{app}`, with the links on both sides joined; packets that \
                 `{app}` drops, copies or changes pass unchanged there, which is part of the difference"
            )],
            Bypass::Impossible { inputs, outputs } => vec![format!(
                "`{app}` has {} and {} linked, so the network cannot run without it: there is no baseline and no \
                 difference, only the live accounting",
                plural(*inputs, "input"),
                plural(*outputs, "output"),
            )],
        }
    }
}
