//! `bench reload`: how long a reload under traffic takes, and how long packets wait for it.
//!
//! The engine runs on one thread at full speed; another thread swaps its network for one in which half of the apps
//! differ, and back, again and again. Each swap is timed by itself, because the worst matters as much as the median.
//!
//! With several workers, all of them stop for the change. The engine's own figure, the pause, lasts from when the last
//! of them has stopped until the new network is in place. An app on each worker finds how long the worker takes no
//! breath: it is replaced in each reload, and takes the time of its predecessor's last call over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bellows_engine::{App, AppError, AppSpec, Control, Engine, Io, MAIN, Network, Outcome, Schedule, Settings};
use bellows_sys::{clock, cpu};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bench::{Benchmark, Common, Conditions, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::beside::Beside;
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::networks::{Text, loaded};
use crate::report::{BenchError, Measurement, Report};
use crate::timing::median_or_nan;
use crate::workers::{self, fail, settle};

/// Measure how long a reload takes, and how long packets wait for it
///
/// An engine runs at full speed while another thread swaps its network for one in which half of the apps differ, and
/// back. Cases, in nanoseconds: swap (from the parsed network until it runs), pause (the change itself, while no worker
/// runs), gap (from the start of a worker's last breath before the change to that of its first one after it, of the
/// worker for which this takes longest), parse (the text of the network file). The median is over the processes'
/// medians; p99, maximum and histogram are over all swaps. At the end every packet must be accounted for, or the
/// benchmark fails.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    conditions: Conditions,
    /// Apps in the network, in rows of eight
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = whole(1..=2000))]
    apps: usize,
    /// Workers that the apps are spread over: each row has one half on a worker and the other half on the next
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=64))]
    workers: usize,
    /// Reloads per process
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = whole(1..=1_000_000))]
    reloads: usize,
    /// Fresh processes per schedule; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = whole(1..=1000))]
    processes: usize,
}

/// One schedule for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ReloadTask {
    schedule: Schedule,
    options: Arguments,
}

/// The results of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ReloadAnswer {
    times: Times,
    counts: PacketCounts,
    /// The share of the time in which the engine's thread ran on its processor.
    share: f64,
}

/// The times of all swaps, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Times {
    /// Parsing the network's text.
    parses: Vec<u64>,
    /// From the parsed network until it runs.
    swaps: Vec<u64>,
    /// The change itself, while no worker runs.
    pauses: Vec<u64>,
    /// The time between two breaths of the worker that waited longest.
    gaps: Vec<u64>,
}

/// The packet counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PacketCounts {
    /// Packets and copies that were made.
    made: u64,
    /// Packets that arrived at a sink.
    arrived: u64,
    /// Packets that apps and links dropped, as they do without reloads.
    dropped: u64,
    /// Packets in apps and links that a reload removed.
    reload: u64,
    /// Packets still in the network at the end.
    left: u64,
}

/// Runs the benchmark. Its workers call [`measure`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let most = lines(options.apps) + 1;
    if options.workers > most {
        let Arguments { apps, workers, .. } = options;
        return Err(BenchError::Refused(format!(
            "{apps} apps are enough for {most} workers, not for {workers}; give more --apps or fewer --workers"
        )));
    }
    let schedules = options.conditions.schedules();
    let task = |&schedule: &Schedule| ReloadTask { schedule, options: options.clone() };
    let tasks: Vec<ReloadTask> = schedules.iter().map(task).collect();
    let report = lab.report(options, &tasks, options.processes, |answers| summarise(options, &schedules, answers))?;
    Ok(Finished::new(report, Report::text))
}

/// The figures and the notes of all schedules.
fn summarise(
    options: &Arguments,
    schedules: &[Schedule],
    answers: &[Vec<ReloadAnswer>],
) -> (Vec<Measurement>, Vec<String>) {
    let (apps, links) = (lines(options.apps) * APPS, lines(options.apps) * LINKS);
    let mut results = Vec::new();
    let mut notes = Vec::new();
    for (schedule, answers) in schedules.iter().zip(answers) {
        let labels = || {
            let mut labels = vec![("schedule", json!(schedule)), ("apps", apps.into()), ("links", links.into())];
            if options.workers > 1 {
                labels.push(("workers", options.workers.into()));
            }
            labels
        };
        for (case, times) in [
            ("swap", (|times| &times.swaps) as fn(&Times) -> &Vec<u64>),
            ("pause", |times| &times.pauses),
            ("gap", |times| &times.gaps),
            ("parse", |times| &times.parses),
        ] {
            let processes: Vec<&[u64]> = answers.iter().map(|answer| times(&answer.times).as_slice()).collect();
            results.extend(Measurement::of_times(case, &processes, labels()));
        }
        notes.push(balance(*schedule, options.reloads, answers));
        notes.extend(disturbance(*schedule, answers));
    }
    notes.extend(shortage(options.workers, cpu::allowed().len()));
    (results, notes)
}

/// A sentence with the packet counts of all processes. The workers have checked that they balance.
fn balance(schedule: Schedule, reloads: usize, answers: &[ReloadAnswer]) -> String {
    let sum = |part: fn(&PacketCounts) -> u64| answers.iter().map(|answer| part(&answer.counts)).sum::<u64>();
    let reloads = (reloads + 1) * answers.len();
    format!(
        "{schedule}: {reloads} reloads; of {} packets, {} arrived, {} were dropped as without reloads, {} were in apps \
         and links that a reload removed, {} were in the network at the end: none is missing",
        sum(|counts| counts.made),
        sum(|counts| counts.arrived),
        sum(|counts| counts.dropped),
        sum(|counts| counts.reload),
        sum(|counts| counts.left),
    )
}

/// An engine with less than this share of its processor was disturbed.
const MIN_SHARE: f64 = 0.92;

/// A warning if other programs ran on the engine's processor, because swaps wait for the engine.
fn disturbance(schedule: Schedule, answers: &[ReloadAnswer]) -> Option<String> {
    let shares: Vec<f64> = answers.iter().map(|answer| answer.share).collect();
    let share = median_or_nan(&shares);
    (share < MIN_SHARE).then(|| {
        let percent = 100.0 * share;
        format!(
            "{schedule}: the engine had {percent:.0} percent of its processor; on a quiet machine swaps are shorter"
        )
    })
}

/// A warning if there are fewer processors than threads.
fn shortage(workers: usize, processors: usize) -> Option<String> {
    let threads = workers + 1;
    (processors < threads).then(|| {
        format!(
            "{threads} threads, of the workers and the one that reloads, have {processors} processors: with one for \
             each, swaps and gaps are shorter"
        )
    })
}

/// Does one task, in a fresh process.
fn measure(task: ReloadTask) -> ReloadAnswer {
    let ReloadTask { schedule, options } = task;
    let all = cpu::allowed();
    settle(options.common.cpu);
    // The other workers and then the reloading thread have processors of their own, as far as there are any.
    let busy = cpu::allowed();
    let mut free = all.iter().copied().filter(|cpu| !busy.contains(cpu));
    let further: Vec<Option<usize>> = (1..options.workers).map(|_| free.next()).collect();
    let other = free.next().or_else(|| all.into_iter().find(|cpu| !busy.contains(cpu)));
    let texts = [false, true].map(|differs| network(options.apps, differs, options.workers));
    let crew = Crew::new(further);
    let settings = Settings { schedule, ..Settings::default() };
    let first = crew.join(loaded(&texts[0]), 0);
    let mut engine = Engine::new(first, settings, None).unwrap_or_else(|error| fail(&error));
    let control = engine.control();
    let (times, outcome, share) = std::thread::scope(|scope| {
        let times = scope.spawn(|| {
            other.map(cpu::pin_to);
            let times = swap_repeatedly(&control, &texts, &crew, options.reloads);
            control.stop();
            times
        });
        let (start, worked) = (Instant::now(), cpu::thread_time());
        let end = engine.run();
        let share = (cpu::thread_time() - worked) as f64 / start.elapsed().as_nanos() as f64;
        let outcome = engine.finish(end);
        (times.join().unwrap_or_else(|_| fail(&"the thread that reloads panicked")), outcome, share)
    });
    let counts = PacketCounts::of(&outcome);
    if let Err(why) = counts.check() {
        fail(&why);
    }
    ReloadAnswer { times, counts, share }
}

/// Swaps the networks `reloads` times after an untimed first swap, which waits for the run to start.
fn swap_repeatedly(control: &Control, texts: &[String; 2], crew: &Crew, reloads: usize) -> Times {
    let mut times = Times::default();
    for round in 1..=reloads + 1 {
        let start = Instant::now();
        let network = loaded(&texts[round % 2]);
        let parse = start.elapsed();
        let reloaded = control.reload(crew.join(network, round)).unwrap_or_else(|error| fail(&error));
        let gap = crew.longest_gap();
        if round > 1 {
            times.parses.push(parse.as_nanos() as u64);
            times.swaps.push(reloaded.swap_ns);
            times.pauses.push(reloaded.pause_ns);
            times.gaps.push(gap);
        }
    }
    times
}

/// How long a worker may take to its first breath after a reload.
const MAX_GAP: Duration = Duration::from_secs(20);

/// The workers, and the apps that find how long they take no breath.
struct Crew {
    /// The processors of the workers other than the first. A file cannot name them, because this thread has only one.
    further: Vec<Option<usize>>,
    /// For each worker the clocks from its last breath to the first one after a reload; 0 before that.
    gaps: Vec<Arc<AtomicU64>>,
}

impl Crew {
    fn new(further: Vec<Option<usize>>) -> Crew {
        Crew { gaps: (0..=further.len()).map(|_| Arc::default()).collect(), further }
    }

    /// Gives the workers of a network their processors, and an app each, which the next reload replaces.
    fn join(&self, mut network: Network, round: usize) -> Network {
        for (worker, &cpu) in network.workers.iter_mut().filter(|worker| worker.name != MAIN).zip(&self.further) {
            worker.cpu = cpu;
        }
        let pulse = |(worker, gap): (usize, &Arc<AtomicU64>)| {
            let app = Pulse { last: 0, before: 0, gap: Arc::clone(gap) };
            let (name, fingerprint) = (format!("pulse-{worker}"), round.to_string());
            AppSpec::new(&name, "pulse", &fingerprint, app).on_worker(&worker_name(worker))
        };
        network.apps.extend(self.gaps.iter().enumerate().map(pulse));
        network
    }

    /// The longest time in nanoseconds between two breaths of a worker, once all of them have taken one since the
    /// reload.
    fn longest_gap(&self) -> u64 {
        let end = Instant::now() + MAX_GAP;
        let gap = |gap: &Arc<AtomicU64>| loop {
            match gap.swap(0, Relaxed) {
                0 if Instant::now() > end => fail(&"a worker took no breath within 20 s of a reload"),
                0 => std::thread::sleep(Duration::from_micros(20)),
                clocks => break clock::ticks_to_ns(clocks),
            }
        };
        self.gaps.iter().map(gap).max().unwrap_or_default()
    }
}

/// Reads the clock in each breath of its worker.
struct Pulse {
    /// The time of the last call; 0 before the first.
    last: u64,
    /// The time of the last call of the app that this one has replaced, until the first call.
    before: u64,
    gap: Arc<AtomicU64>,
}

impl App for Pulse {
    fn pull(&mut self, _: &Io<Self>) {
        let now = clock::ticks();
        let before = std::mem::take(&mut self.before);
        if before != 0 {
            self.gap.store(now.saturating_sub(before).max(1), Relaxed);
        }
        self.last = now;
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        // The first reload may come before the first breath.
        self.before = old.map_or(0, |old| if old.last == 0 { clock::ticks() } else { old.last });
        Ok(())
    }
}

impl PacketCounts {
    /// The counts of a whole run. The sources, tees and sinks are in both networks, so they count from the start.
    fn of(outcome: &Outcome) -> PacketCounts {
        let snapshot = &outcome.snapshot;
        let mut counts = PacketCounts { reload: snapshot.removed(), ..PacketCounts::default() };
        for app in &snapshot.apps {
            match app.kind.as_str() {
                "source" => counts.made += app.out_packets,
                // A copy of each packet. A copy without a buffer counts as made and dropped.
                "tee" => counts.made += app.in_packets,
                "sink" => counts.arrived += app.in_packets,
                _ => {}
            }
        }
        counts.dropped = snapshot.dropped() - counts.reload;
        // Gauges are written at the end. The buffers in use are those in links and in apps.
        counts.left = snapshot.engine("buffers_in_use");
        counts
    }

    /// Whether every packet is accounted for.
    fn check(&self) -> Result<(), String> {
        let PacketCounts { made, arrived, dropped, reload, left } = *self;
        if made == 0 {
            return Err("no packet moved while networks were swapped".to_owned());
        }
        if arrived + dropped + reload + left != made {
            return Err(format!(
                "the books do not balance: {made} packets were made, but {arrived} arrived, {dropped} were dropped, \
                 {reload} were removed by reloads, and {left} are left"
            ));
        }
        Ok(())
    }
}

/// Apps and links of a line.
const APPS: usize = 8;
const LINKS: usize = 8;

/// The number of lines in a network of about `apps` apps.
fn lines(apps: usize) -> usize {
    apps.div_ceil(APPS)
}

/// The name of a worker.
fn worker_name(worker: usize) -> String {
    if worker == 0 { MAIN.to_owned() } else { format!("worker-{worker}") }
}

/// The text of a network with lines of eight apps. Frames are copied; one copy is truncated and sampled, the other
/// limited and delayed, and both end in one sink. If it `differs`, the four apps between have other names in every
/// other line, so that they are added and removed, and other settings in the rest. The first four apps of a line are on
/// a worker and the last four on the next.
fn network(apps: usize, differs: bool, workers: usize) -> String {
    let mut text = Text::default();
    for worker in 1..workers {
        text.worker(&worker_name(worker));
    }
    for line in 0..lines(apps) {
        let on = |half: usize| format!("worker = \"{}\"", worker_name((line + half) % workers));
        let [one, other] = [0, 1].map(on);
        let renamed = differs && line % 2 == 0;
        let (length, every, rate, time) = match differs && !renamed {
            false => (512, 2, "10Gb/s", "20us"),
            true => (256, 3, "5Gb/s", "10us"),
        };
        let name = |app: &str| if renamed { format!("{app}-new-{line}") } else { format!("{app}-{line}") };
        let [cut, thin, limit, delay] = ["cut", "thin", "limit", "delay"].map(name);
        text.app(&format!("source-{line}"), "source", &format!("size = 590\n{one}"));
        text.app(&format!("copy-{line}"), "tee", &one);
        text.app(&cut, "truncate", &format!("length = {length}\n{one}"));
        text.app(&thin, "sample", &format!("every = {every}\n{one}"));
        text.app(&limit, "rate-limiter", &format!("rate = \"{rate}\"\nqueue = 100\n{other}"));
        text.app(&delay, "delay", &format!("time = \"{time}\"\n{other}"));
        text.app(&format!("join-{line}"), "join", &other);
        text.app(&format!("sink-{line}"), "sink", &other);
        text.link(&format!("source-{line}.output"), &format!("copy-{line}.input"));
        text.link(&format!("copy-{line}.one"), &format!("{cut}.input"));
        text.link(&format!("{cut}.output"), &format!("{thin}.input"));
        text.link(&format!("{thin}.output"), &format!("join-{line}.one"));
        text.link(&format!("copy-{line}.other"), &format!("{limit}.input"));
        text.link(&format!("{limit}.output"), &format!("{delay}.input"));
        text.link(&format!("{delay}.output"), &format!("join-{line}.other"));
        text.link(&format!("join-{line}.output"), &format!("sink-{line}.input"));
    }
    text.finish()
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &["`p99`, `maximum` and `histogram` are over all reloads."],
    every: &["schedule", "apps", "links"],
    rows: &[
        CaseRow::of(&["swap"], "ns", "from the request until the network runs").sometimes(&["workers"]),
        CaseRow::of(&["pause"], "ns", "the change itself, while no worker runs").sometimes(&["workers"]),
        CaseRow::of(
            &["gap"],
            "ns",
            "from the start of the last breath before the change to that of the first after it, on the worker for which this \
             takes longest",
        )
        .sometimes(&["workers"]),
        CaseRow::of(&["parse"], "ns", "from the network file's text to the network").sometimes(&["workers"]),
    ],
    labels: &[
        label("apps", LabelKind::Integer, "apps of the network"),
        label("links", LabelKind::Integer, "its links"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "reload";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --apps 8 --reloads 2 --schedule flat";
    const MORE: &'static [&'static str] = &["--processes 1 --apps 8 --reloads 2 --schedule flat --workers 2"];
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--apps", "0"], "0 is not in 1..=2000"),
        (&["--workers", "3", "--apps", "8"], "8 apps are enough for 2 workers, not for 3"),
    ];
    const WORK: RunWorker = |_| workers::answer(measure);
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

    #[test]
    fn half_of_the_apps_differ() {
        let [one, other] = [false, true].map(|differs| loaded(&network(64, differs, 1)));
        assert_eq!((one.apps.len(), one.links.len()), (64, 64));
        let kept = one.apps.iter().filter(|app| {
            other.apps.iter().any(|other| (&other.name, &other.fingerprint) == (&app.name, &app.fingerprint))
        });
        assert_eq!(kept.count(), 32);
    }

    #[test]
    fn all_workers_have_halves_of_lines() {
        let network = loaded(&network(64, false, 3));
        for worker in 0..3 {
            let apps = network.apps.iter().filter(|app| app.worker == worker_name(worker)).count();
            assert!(apps >= 20, "{apps} apps on {}", worker_name(worker));
        }
        let worker = |app: &str| &network.apps.iter().find(|known| known.name == app).unwrap().worker;
        let crossing = network.links.iter().filter(|link| worker(&link.from.app) != worker(&link.to.app));
        assert_eq!(crossing.count(), 2 * 8);
    }

    #[test]
    fn too_few_processors_are_told() {
        assert_eq!(shortage(1, 2), None);
        assert!(shortage(2, 2).unwrap().starts_with("3 threads, of the workers"));
    }

    #[test]
    fn a_missing_packet_is_found() {
        let counts = PacketCounts { made: 10, arrived: 5, dropped: 2, reload: 2, left: 1 };
        assert_eq!(counts.check(), Ok(()));
        let lost = PacketCounts { left: 0, ..counts }.check().unwrap_err();
        assert!(lost.starts_with("the books do not balance: 10 packets were made, but 5 arrived"), "{lost}");
        assert!(PacketCounts::default().check().is_err());
    }
}
