//! `bench apps`: the cost per packet of every app in the catalogue, with packets from each level of the memory
//! hierarchy.

use std::fmt::Write;

use bellows_config::{BenchFiles, BenchRow, BenchSetup, Registry};
use bellows_engine::Schedule;
use bellows_stats::Median;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::appbench::{
    self, AppbenchCell, AppbenchError, AppbenchOptions as AppOptions, ChainRow, Job, Subject, Summary,
};
use super::engine::Capture;
use crate::audience::Observer;
use crate::bench::{
    Benchmark, Common, Conditions, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, packets, whole,
};
use crate::beside::Beside;
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::processes::Answers;
use crate::report::{BenchError, Measurement, Report};
use crate::residence::{Residence, Resident};
use crate::traffic::Traffic;
use crate::workers::ProcessError;

/// Measure the cost per packet of every app, from each level of the caches
///
/// Each figure is the difference that `bellows appbench` measures: from source to sink through the app, minus from
/// source to sink without it, with packets of 60 bytes, all of one flow, or with those that the row names: ipv4 and
/// ipv6 are 1024 flows of UDP in packets of 64 bytes. Apps that need keys get typical values.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    conditions: Conditions,
    /// Only apps whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Cache levels that packets come from
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',', default_value = "l1,l2,l3,dram")]
    resident: Vec<Resident>,
    /// Packets per run and process
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = packets)]
    packets: u64,
    /// Fresh processes per figure; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = whole(1..=1000))]
    processes: usize,
    /// Packets per breath
    #[arg(long, value_name = "PACKETS", default_value_t = 128, value_parser = whole(1..=1024))]
    burst: usize,
}

/// Packets in the capture that apps read.
const CAPTURED: usize = 20_000;

/// One row of the table.
#[derive(Clone, Debug, PartialEq)]
struct TableRow {
    name: String,
    row: ChainRow,
    /// The packets; `None` for the default.
    traffic: Option<Traffic>,
}

/// The rows of the table, as the apps declare them, and a sentence for each app that is not measured.
fn subjects(registry: &Registry, filter: &str, files: &BenchFiles) -> (Vec<TableRow>, Vec<String>) {
    let (mut subjects, mut notes) = (Vec::new(), Vec::new());
    for entry in registry.entries().filter(|entry| entry.name().contains(filter)) {
        let app = entry.name();
        let rows = match entry.bench(files) {
            BenchSetup::Rows(rows) => rows,
            BenchSetup::Unmeasured(why) => {
                notes.push(format!("`{app}` is not measured: {why}"));
                continue;
            }
        };
        subjects.extend(rows.into_iter().map(|row| {
            let apps = row.app(app);
            let BenchRow { label, inputs, outputs, traffic, objects, before, .. } = row;
            let name = if label.is_empty() { app.to_owned() } else { format!("{app}, {label}") };
            let [inputs, outputs] = [inputs, outputs].map(|ports| ports.iter().map(|&port| port.to_owned()).collect());
            // A test parses every row's.
            let traffic = traffic.parse().ok();
            let row = ChainRow { apps, against: String::new(), inputs, outputs, objects, before };
            TableRow { name, row, traffic }
        }));
    }
    (subjects, notes)
}

/// The report and the columns of the table.
#[derive(Clone, Debug)]
struct Outcome {
    report: Report,
    residents: Vec<Resident>,
    /// The width of the longest name.
    width: usize,
}

/// Reports the progress of some of the processes as a part of all.
struct PartialProgress<'a> {
    observer: &'a mut dyn Observer,
    before: usize,
    all: usize,
}

impl Observer for PartialProgress<'_> {
    fn progress(&mut self, done: usize, _: usize) {
        self.observer.progress(self.before + done, self.all);
    }

    fn show(&mut self, text: &str) {
        self.observer.show(text);
    }

    fn worker_stderr(&mut self, text: &str) {
        self.observer.worker_stderr(text);
    }

    fn should_stop(&self) -> bool {
        self.observer.should_stop()
    }
}

/// Runs the benchmark. Its workers are those of `appbench`.
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let report = measure(options, &lab.worker(Arguments::NAME), lab.registry, lab.observer)?;
    Ok(Finished::new(report, Report::sentences_below))
}

fn measure(
    options: &Arguments,
    arguments: &[&str],
    registry: &Registry,
    observer: &mut dyn Observer,
) -> Result<Report, AppbenchError> {
    let unwritten = |error: BenchError| AppbenchError::Refused(error.to_string());
    let capture = Capture::make(CAPTURED).map_err(unwritten)?;
    let written = TempFile(capture.path.with_extension("written.pcap"));
    let (all, mut notes) = subjects(registry, &options.case, &BenchFiles::new(&capture.path, &written.0));
    if all.is_empty() {
        if !notes.is_empty() {
            return Err(AppbenchError::Refused(notes.join("\n")));
        }
        let names: Vec<&str> = registry.entries().map(|entry| entry.name()).collect();
        let none = BenchError::NoCase(options.case.clone(), names.join(", "));
        return Err(AppbenchError::Refused(none.to_string()));
    }
    let levels = appbench::levels(&options.of(&all[0]), arguments, observer)?;
    let (there, missing): (Vec<Resident>, Vec<Resident>) =
        options.resident.iter().partition(|level| levels.residence(**level).is_ok());
    notes.extend(missing.into_iter().filter_map(|level| levels.residence(level).err()).map(|error| error.to_string()));
    let residences: Vec<Residence> = there.iter().filter_map(|level| levels.residence(*level).ok()).collect();
    let jobs: Vec<(&TableRow, Vec<Job>)> =
        all.iter().map(|subject| (subject, options.jobs(subject, &residences, registry))).collect();
    let width = jobs.iter().map(|(subject, _)| subject.name.len()).max().unwrap_or(0).max(3);
    let count = jobs.iter().map(|(_, jobs)| jobs.len() * options.processes).sum();
    let mut outcome: Option<Outcome> = None;
    let (mut done, mut panicked) = (0, false);
    for (subject, jobs) in &jobs {
        let mut part = PartialProgress { observer: &mut *observer, before: done, all: count };
        done += jobs.len() * options.processes;
        let tried =
            appbench::check(&jobs[0], registry).and_then(|()| appbench::dry_run(&jobs[0], arguments, &mut part));
        let machine = match tried {
            Ok(machine) => machine,
            Err(AppbenchError::Process(ProcessError::Interrupted)) if outcome.is_some() => {
                outcome.iter_mut().for_each(|outcome| outcome.report.interrupted = true);
                break;
            }
            Err(error) if error.is_interrupted() => return Err(error),
            Err(why) => {
                panicked |= !why.is_mistake();
                let why = why.to_string();
                let why = why.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
                notes.push(format!("`{}` is not measured: {why}", subject.name));
                continue;
            }
        };
        let found = match appbench::take_turns(jobs, options.processes, arguments, &mut part) {
            Err(error) if error.is_interrupted() && outcome.is_some() => {
                Answers { answers: Vec::new(), machine: machine.clone(), interrupted: true }
            }
            found => found?,
        };
        let is_first = outcome.is_none();
        let outcome = outcome.get_or_insert_with(|| {
            let report = Report::new(Arguments::NAME, machine, options.processes, Vec::new());
            Outcome { report, residents: there.clone(), width }
        });
        let answered = jobs.iter().zip(found.answers).filter(|(_, answers)| !answers.is_empty());
        let summaries: Vec<Summary> = answered.map(|(job, answers)| Summary::of(job.cell, answers)).collect();
        if let Some(lost) = summaries.iter().find(|summary| summary.loses_all()) {
            // A cost of packets that do not pass would be that of another path.
            notes.push(format!("`{}` is not measured: {}", subject.name, appbench::packet_fates(lost)));
            outcome.report.failed = true;
            continue;
        }
        let results: Vec<Measurement> =
            summaries.iter().filter_map(|summary| figure(subject, options, summary)).collect();
        if is_first {
            observer.show(&outcome.head());
        }
        if !results.is_empty() {
            observer.show(&outcome.row(&subject.name, &results));
        }
        outcome.report.results.extend(results);
        outcome.report.interrupted |= found.interrupted;
        if outcome.report.interrupted {
            break;
        }
    }
    observer.progress(count, count);
    let Some(mut outcome) = outcome else {
        let why = notes.join("\n");
        return Err(if panicked { AppbenchError::Panicked(why) } else { AppbenchError::Refused(why) });
    };
    outcome.report.notes = notes;
    outcome.report.failed |= panicked;
    Ok(outcome.report)
}

impl Arguments {
    fn schedule(&self) -> Schedule {
        self.conditions.schedule.unwrap_or_default()
    }

    fn of(&self, subject: &TableRow) -> AppOptions {
        AppOptions {
            packets: Some(self.packets),
            processes: self.processes,
            burst: Some(self.burst),
            schedule: Some(self.schedule()),
            cpu: self.common.cpu,
            traffic: subject.traffic.clone(),
            ..AppOptions::new(Subject::Row(subject.row.clone()))
        }
    }

    /// The jobs for one row of the table. An app that makes its own packets has only one cell.
    fn jobs(&self, subject: &TableRow, residences: &[Residence], registry: &Registry) -> Vec<Job> {
        let job = |residence| Job { options: self.of(subject), cell: AppbenchCell { residence, prefetch: None } };
        if appbench::brings_packets(&job(None), registry) {
            return vec![job(None)];
        }
        residences.iter().map(|&residence| job(Some(residence))).collect()
    }
}

/// A cell of the table.
fn figure(subject: &TableRow, options: &Arguments, summary: &Summary) -> Option<Measurement> {
    let found: Median = summary.clocks()?.difference?;
    let resident = summary.cell().residence.map_or(json!(OWN), |residence| json!(residence.level));
    let mut labels: Vec<(&str, Value)> = vec![
        ("name", json!(subject.name)),
        ("resident", resident),
        ("apps", json!(subject.row.apps)),
        ("schedule", json!(options.schedule())),
        ("burst", options.burst.into()),
    ];
    labels.extend(subject.traffic.as_ref().map(|traffic| ("traffic", json!(traffic))));
    Some(Measurement::with("app", "clocks/packet", found, labels))
}

/// The label, in place of a level, of an app that makes its own packets.
const OWN: &str = "own";

/// A file that an app writes, removed on drop.
struct TempFile(std::path::PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Outcome {
    /// The heading of the table.
    fn head(&self) -> String {
        let Outcome { report, residents, width, .. } = self;
        let mut text = report.heading();
        let _ = writeln!(text, "clocks per packet, minus those from source to sink, with {}\n", report.interval());
        let _ = write!(text, "{:<width$}", "app");
        for resident in residents {
            let _ = write!(text, "  {:>24}", resident.name());
        }
        text.push('\n');
        text
    }

    /// The row of one app.
    fn row(&self, name: &str, results: &[Measurement]) -> String {
        let Outcome { residents, width, .. } = self;
        let written = |result: &Measurement| format!("{:.2} ({:.2} – {:.2})", result.median, result.low, result.high);
        let at = |resident: Value| results.iter().find(|result| result.labels["resident"] == resident).map(written);
        let mut text = format!("{name:<width$}");
        match at(json!(OWN)) {
            Some(own) => {
                let _ = write!(text, "  {own:>24}  makes its own packets; cost minus the baseline's source");
            }
            None => {
                for resident in residents {
                    let _ = write!(text, "  {:>24}", at(json!(resident)).unwrap_or_else(|| "–".to_owned()));
                }
            }
        }
        text.push('\n');
        text
    }
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[
        "An app that needs keys has typical ones. The apps of a router have a routing domain, and packets that the apps in \
         front of them have passed on.",
    ],
    every: &["name", "apps", "resident", "schedule", "burst"],
    rows: &[CaseRow::of(&["app"], "clocks/packet", "from source to sink through an app, minus the same without")
        .sometimes(&["traffic"])],
    labels: &[
        label("name", LabelKind::Text, "the app, and which of its rows"),
        label("apps", LabelKind::Text, "the app with its keys, as for `appbench`"),
        label(
            "resident",
            LabelKind::Word(&["l1", "l2", "l3", "dram", "own"]),
            "where packets come from: a cache (`l1`, `l2`, `l3`) or memory (`dram`); `own` for an app that brings its packets \
             itself",
        ),
        label("traffic", LabelKind::Text, "the packets, as for `appbench`, if the row has packets of its own"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "apps";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --packets 2000 --resident l1 --case tee";
    const MORE: &'static [&'static str] = &["--processes 1 --packets 2000 --resident l1 --case ip4-lookup"];
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "nonsense"], "no case has `nonsense` in its name"),
        (&["--resident", "l5"], "`l5` is not a level of the memory hierarchy"),
        (&["--packets", "none"], "give a number of packets"),
    ];
    /// The workers are those of `appbench`.
    const WORK: RunWorker = appbench::Arguments::WORK;
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }

    fn beside(&self) -> Option<Beside> {
        self.conditions.beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::parsed;
    use crate::residence::Levels;

    #[test]
    fn every_app_of_the_catalogue_can_be_linked_as_it_is_measured() {
        let registry = bellows_apps::registry();
        let capture = Capture::make(10).unwrap();
        let files = BenchFiles::new(&capture.path, capture.path.with_extension("written.pcap"));
        let (all, unmeasured) = subjects(&registry, "", &files);
        let app = |subject: &TableRow| subject.name.split(',').next().map(str::to_owned);
        let measured =
            registry.entries().filter(|entry| all.iter().any(|row| app(row).as_deref() == Some(entry.name())));
        assert_eq!(measured.count() + unmeasured.len(), registry.entries().len());
        for entry in registry.entries() {
            let BenchSetup::Rows(rows) = entry.bench(&files) else { continue };
            let traffics = rows.into_iter().map(|row| row.traffic).filter(|traffic| !traffic.is_empty());
            traffics.for_each(|traffic| assert!(traffic.parse::<Traffic>().is_ok(), "{}: {traffic}", entry.name()));
        }
        for subject in &all {
            let levels = Levels::simulated();
            let residences = [levels.residence(Resident::L1).unwrap(), levels.residence(Resident::Dram).unwrap()];
            let jobs = parsed::<Arguments>(&[]).jobs(subject, &residences, &registry);
            let app = app(subject).and_then(|app| registry.get(&app)).unwrap();
            let is_own = app.info().inputs.is_none();
            assert_eq!(jobs.len(), if is_own { 1 } else { 2 }, "{}", subject.name);
            appbench::check(&jobs[0], &registry).unwrap_or_else(|error| panic!("{}: {error}", subject.name));
        }
        let (tees, _) = subjects(&registry, "tee", &files);
        assert_eq!(tees.iter().map(|subject| subject.name.as_str()).collect::<Vec<_>>(), ["tee", "tee, 2 outputs"]);
        let (hashes, _) = subjects(&registry, "rss", &files);
        let names = ["rss, ipv4", "rss, ipv6", "rss, toeplitz, ipv4", "rss, toeplitz, ipv6"];
        assert_eq!(hashes.iter().map(|subject| subject.name.as_str()).collect::<Vec<_>>(), names);
        assert!(hashes.iter().all(|row| row.traffic.as_ref().is_some_and(|it| row.name.ends_with(&it.to_string()))));
        assert_eq!(subjects(&registry, "nothing", &files), (Vec::new(), Vec::new()));
    }
}
