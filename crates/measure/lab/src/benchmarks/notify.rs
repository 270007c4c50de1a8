//! `bench notify`: the cost to the engine's thread of notifying another process, and of first touching its memory.
//!
//! One process measures everything. Its own threads play the peer, on another processor: each has an eventfd and sleeps
//! on it as a driver does, in `poll`, in `epoll` or in `read`. One eventfd has no sleeper. Every notification is timed
//! by itself, some time after the previous one was seen, so that the sleeper and the helper thread are asleep again. In
//! each round all methods take turns in a new random order, because the caches depend on the previous method.
//!
//! The reference is a bare `write(2)` to the same eventfd in the same process: the minimum cost of any method that
//! enters the kernel. An engine cannot use it, because the peer can block it for any time.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bellows_ipc::mapping::SharedMapping;
use bellows_ipc::memfd;
use bellows_ipc::notify::{Notifier, Notifiers, check_io_uring};
use bellows_sys::memory::HUGE_PAGE;
use bellows_sys::{clock, cpu};
use fastrand::Rng;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bench::{Benchmark, Common, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::named::named;
use crate::report::{BenchError, Measurement, Ratio, Report, chosen};
use crate::slices::sliced_units;
use crate::timing::median_or_nan;
use crate::workers::{self, fail, settle_beside_others};

/// The pause before a notification, in nanoseconds, so that the sleeper is asleep.
const PAUSE: u64 = 50_000;

/// The maximum time to wait for a notification.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The memory to touch: the number of 4 KiB pages, the number of them in a timed slice, and the number of 2 MiB pages.
const SMALL_PAGES: usize = 4_096;
const SLICE: usize = 64;
const HUGE_PAGES: usize = 8;

named! {
    /// The cases.
    enum NotifyCase {
        /// A bare `write(2)`.
        Write = "write",
        /// `poll(2)` for room, then `write(2)`.
        PollWrite = "poll-write",
        /// The device's method, through io_uring.
        Direct = "direct",
        /// The device's method without io_uring: a helper thread writes.
        Helper = "helper",
        /// The first store to a page of 4 KiB.
        Fault4k = "fault-4k",
        /// The first store to a page of 2 MiB.
        Fault2m = "fault-2m",
    }
}

impl NotifyCase {
    /// The cases that notify.
    const NOTIFY: [NotifyCase; 4] = [NotifyCase::Write, NotifyCase::PollWrite, NotifyCase::Direct, NotifyCase::Helper];
    /// The cases that touch memory.
    const FAULTS: [NotifyCase; 2] = [NotifyCase::Fault4k, NotifyCase::Fault2m];

    /// The unit of the figure.
    fn unit(self) -> &'static str {
        if NotifyCase::NOTIFY.contains(&self) { "clocks/call" } else { "clocks/page" }
    }
}

/// The conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Condition {
    /// Nobody waits for the event.
    Idle,
    /// The peer sleeps in `poll(2)`.
    Poll,
    /// The peer sleeps in `epoll_wait(2)`.
    Epoll,
    /// The peer sleeps in `read(2)`.
    Read,
    /// Nobody has touched the page.
    Untouched,
    /// The peer has touched the page.
    Touched,
}

impl Condition {
    /// The conditions of a notification.
    const PEERS: [Condition; 4] = [Condition::Idle, Condition::Poll, Condition::Epoll, Condition::Read];
    /// The conditions of a page.
    const PAGES: [Condition; 2] = [Condition::Untouched, Condition::Touched];

    fn name(self) -> &'static str {
        match self {
            Condition::Idle => "idle",
            Condition::Poll => "poll",
            Condition::Epoll => "epoll",
            Condition::Read => "read",
            Condition::Untouched => "untouched",
            Condition::Touched => "touched",
        }
    }
}

/// Measure the cost of notifying a virtual machine, and of faults in its memory
///
/// Cases: clocks per call of the notifying thread, for four methods. write: write(2) to the eventfd, the reference; the
/// peer can block it for any time. poll-write: poll(2) for room, then write(2). direct: the method of the app
/// vhost-user, through io_uring. helper: the app's method without io_uring, where another thread writes. The peer
/// sleeps on another processor in poll, epoll or read; or nobody waits (idle). The report also shows the ratio to write
/// in the same process, and the time from the start of the call until the peer runs.
///
/// fault-4k and fault-2m: clocks of the first store to a page of the peer's memory, of 4 KiB and of 2 MiB (hugetlbfs).
/// Nobody has touched the page (untouched), or the peer has (touched). Cases that this machine cannot measure are named
/// below the table, with the reason.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figures: Figures,
    /// Notifications of each kind per process, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = whole(1..=60_000))]
    rounds: usize,
}

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct NotifyTask {
    cases: Vec<NotifyCase>,
    options: Arguments,
}

/// One figure of one process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct NotifyFigure {
    case: NotifyCase,
    condition: Condition,
    /// Clocks of the notifying or touching thread per call or page.
    clocks: f64,
    /// Nanoseconds from the start of the call until the peer runs, if there is a peer.
    seen: Option<f64>,
}

/// The figures of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct NotifyAnswer {
    figures: Vec<NotifyFigure>,
    /// Cases and conditions that are unavailable, and why.
    missing: Vec<String>,
}

impl NotifyAnswer {
    fn find(&self, case: NotifyCase, condition: Condition) -> Option<NotifyFigure> {
        self.figures.iter().find(|figure| (figure.case, figure.condition) == (case, condition)).copied()
    }
}

/// Runs the benchmark. Its workers call [`measure`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cases = chosen(NotifyCase::ALL, NotifyCase::name, &options.figures.case)?;
    let tasks = [NotifyTask { cases: cases.clone(), options: options.clone() }];
    let report = lab.report(options, &tasks, options.figures.processes, |answers: &[Vec<NotifyAnswer>]| {
        let answers = answers.concat();
        let notes = beside_poll_write(&cases, &answers).into_iter().chain(missing(&answers)).collect();
        (results(&cases, &answers), notes)
    })?;
    Ok(Finished::new(report, text))
}

/// The medians over the processes.
fn results(cases: &[NotifyCase], answers: &[NotifyAnswer]) -> Vec<Measurement> {
    let notify = Condition::PEERS.into_iter().flat_map(|peer| NotifyCase::NOTIFY.map(|case| (case, peer)));
    let faults = NotifyCase::FAULTS.into_iter().flat_map(|case| Condition::PAGES.map(|page| (case, page)));
    let rows = notify.chain(faults).filter(|(case, _)| cases.contains(case));
    rows.flat_map(|(case, condition)| row(case, condition, answers)).collect()
}

/// The clocks of one method under one condition, their ratio to those of `write` in the same process, and when the peer
/// runs.
fn row(case: NotifyCase, condition: Condition, answers: &[NotifyAnswer]) -> Vec<Measurement> {
    let figures: Vec<(NotifyFigure, Option<NotifyFigure>)> = answers
        .iter()
        .filter_map(|answer| Some((answer.find(case, condition)?, answer.find(NotifyCase::Write, condition))))
        .collect();
    let clocks: Vec<f64> = figures.iter().map(|(figure, _)| figure.clocks).collect();
    let writes: Vec<f64> = figures.iter().filter_map(|(_, write)| Some(write.as_ref()?.clocks)).collect();
    let ratios: Vec<f64> = clocks.iter().zip(&writes).map(|(clocks, write)| clocks / write).collect();
    let seen: Vec<f64> = figures.iter().filter_map(|(figure, _)| figure.seen).collect();
    let is_reference = case == NotifyCase::Write || writes.is_empty();
    let key = if case.unit() == "clocks/call" { "peer" } else { "page" };
    let labels = || vec![(key, json!(condition.name()))];
    let clocks = Measurement::of(case.name(), case.unit(), &clocks, labels()).map(|clocks| Measurement {
        reference: (!is_reference).then(|| median_or_nan(&writes)),
        of_reference: if is_reference { None } else { Ratio::of(&ratios) },
        ..clocks
    });
    let seen = Measurement::of(case.name(), "ns", &seen, labels());
    clocks.into_iter().chain(seen).collect()
}

/// The device's method over the closest one without io_uring.
fn beside_poll_write(cases: &[NotifyCase], answers: &[NotifyAnswer]) -> Option<String> {
    let ratio = |peer: Condition| {
        let ratio = |answer: &NotifyAnswer| {
            Some(answer.find(NotifyCase::Direct, peer)?.clocks / answer.find(NotifyCase::PollWrite, peer)?.clocks)
        };
        let ratio = Ratio::of(&answers.iter().filter_map(ratio).collect::<Vec<f64>>())?;
        Some(format!("{} {}", peer.name(), ratio.written()))
    };
    let ratios: Vec<String> = Condition::PEERS.into_iter().filter_map(ratio).collect();
    let is_asked = cases.contains(&NotifyCase::Direct) && !ratios.is_empty();
    is_asked.then(|| format!("direct over poll-write: {}", ratios.join(", ")))
}

/// The unavailable cases: each reason once, with the number of processes if not all.
fn missing(answers: &[NotifyAnswer]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in answers.iter().flat_map(|answer| &answer.missing) {
        *counts.entry(reason).or_default() += 1;
    }
    let line = |(reason, count): (&str, usize)| match answers.len() {
        all if all == count => reason.to_owned(),
        all => format!("{reason} (in {count} of {all} processes)"),
    };
    counts.into_iter().map(line).collect()
}

/// The text report.
fn text(report: &Report) -> String {
    let interval = report.interval();
    let mut text = report.heading();
    let _ = writeln!(
        text,
        "{:10}  {:9}  {:>8}  {interval:>19}  {:13}{:>29}  {:>23}",
        "case", "peer/page", "clocks", "unit", "× write", "seen after"
    );
    for result in report.results.iter().filter(|result| result.unit != "ns") {
        let Measurement { case, unit, median, low, high, labels, .. } = result;
        let condition = labels.values().find_map(|value| value.as_str()).unwrap_or_default();
        let clocks = format!("{low:.0} – {high:.0}");
        let ratio = result.of_reference.map_or("–".to_owned(), |ratio| ratio.written());
        let of_this = |other: &&Measurement| other.unit == "ns" && other.case == *case && other.labels == *labels;
        let seen = report.results.iter().find(of_this).map_or("–".to_owned(), |seen| {
            let [median, low, high] = [seen.median, seen.low, seen.high].map(|nanos| nanos / 1e3);
            format!("{median:.1} µs ({low:.1} – {high:.1})")
        });
        let _ =
            writeln!(text, "{case:10}  {condition:9}  {median:>8.0}  {clocks:>19}  {unit:13}{ratio:>29}  {seen:>23}");
    }
    text + &report.sentences_below()
}

/// Does the task, in a fresh process.
fn measure(task: NotifyTask) -> NotifyAnswer {
    let NotifyTask { cases, options } = task;
    let other = settle_beside_others(options.common.cpu).first().copied();
    let (mut figures, mut missing) = (Vec::new(), Vec::new());
    if cases.iter().any(|case| NotifyCase::NOTIFY.contains(case)) {
        if other.is_none() {
            let own = cpu::ranges(&cpu::allowed());
            missing.push(format!("helper, poll, epoll, read: not available: only processor {own} may be used"));
        }
        let (channels, kernel) = channels(other, &mut missing).unwrap_or_else(|error| fail(&error));
        figures = notifications(&channels, options.rounds);
        if kernel.demoted() > 0 {
            figures.retain(|figure| figure.case != NotifyCase::Direct);
            missing.push("direct: not measured: it was too slow, so the helper took over".to_owned());
        }
    }
    for case in NotifyCase::FAULTS.into_iter().filter(|case| cases.contains(case)) {
        match faults(case) {
            Ok(found) => figures.extend(found),
            Err(why) => missing.push(format!("{}: not available: {why}", case.name())),
        }
    }
    NotifyAnswer { figures, missing }
}

/// An eventfd with its sleeper and its notifiers.
struct Channel {
    condition: Condition,
    event: Arc<OwnedFd>,
    sleeper: Option<Sleeper>,
    direct: Option<Notifier>,
    helper: Option<Notifier>,
}

/// A channel for each condition, with the methods that the system allows; and the notifiers through io_uring. All their
/// threads run on the other processor.
fn channels(other: Option<usize>, missing: &mut Vec<String>) -> io::Result<(Vec<Channel>, Notifiers)> {
    let conditions = if other.is_some() { &Condition::PEERS[..] } else { &[Condition::Idle] };
    let count = conditions.len();
    // The notifiers' threads inherit the processor of the thread that creates them.
    let make = || {
        other.map_or(Ok(()), cpu::pin_to)?;
        let helpers = other.map(|_| Notifiers::by_thread(count)).transpose()?;
        Ok((Notifiers::new(count, 0)?, check_io_uring(), helpers))
    };
    let made: io::Result<_> = thread::scope(|scope| scope.spawn(make).join().expect("nothing in it panics"));
    let (kernel, uring, helpers) = made?;
    if let Err(why) = &uring {
        missing.push(format!(
            "direct: not available: no io_uring: {why}; see `sysctl kernel.io_uring_disabled`, or the system calls \
             that the container allows"
        ));
    }
    let channel = |(index, condition): (usize, Condition)| {
        // Only read(2) needs a blocking eventfd.
        let flags = if condition == Condition::Read { EventfdFlags::empty() } else { EventfdFlags::NONBLOCK };
        let event = Arc::new(eventfd(0, flags | EventfdFlags::CLOEXEC)?);
        let set = |notifier: Notifier| notifier.set(Some(event.try_clone()?)).map(|()| notifier);
        let direct = uring.is_ok().then(|| set(kernel.get(index))).transpose()?;
        let helper = helpers.as_ref().map(|helpers| set(helpers.get(index))).transpose()?;
        let sleeps = other.filter(|_| condition != Condition::Idle);
        let sleeper = sleeps.map(|cpu| Sleeper::start(Arc::clone(&event), condition, cpu)).transpose()?;
        Ok(Channel { condition, event, sleeper, direct, helper })
    };
    let channels: io::Result<Vec<Channel>> = conditions.iter().copied().enumerate().map(channel).collect();
    Ok((channels?, kernel))
}

/// The medians of each method under each condition.
fn notifications(channels: &[Channel], rounds: usize) -> Vec<NotifyFigure> {
    let of_channel = |channel| {
        NotifyCase::NOTIFY.into_iter().map(move |case| Samples { channel, case, clocks: Vec::new(), seen: Vec::new() })
    };
    let mut all: Vec<Samples<'_>> =
        channels.iter().flat_map(of_channel).filter(|samples| samples.channel.has(samples.case)).collect();
    let (mut order, mut random): (Vec<usize>, Rng) = ((0..all.len()).collect(), Rng::new());
    for _ in 0..rounds.max(1) {
        random.shuffle(&mut order);
        for &index in &order {
            let samples = &mut all[index];
            let (clocks, seen) = samples.channel.notify(samples.case);
            samples.clocks.push(clocks);
            samples.seen.extend(seen);
        }
    }
    let figure = |samples: &Samples<'_>| NotifyFigure {
        case: samples.case,
        condition: samples.channel.condition,
        clocks: median_or_nan(&samples.clocks),
        seen: (!samples.seen.is_empty()).then(|| median_or_nan(&samples.seen)),
    };
    all.iter().map(figure).collect()
}

/// The samples of one method under one condition.
struct Samples<'a> {
    channel: &'a Channel,
    case: NotifyCase,
    clocks: Vec<f64>,
    seen: Vec<f64>,
}

impl Channel {
    fn has(&self, case: NotifyCase) -> bool {
        match case {
            NotifyCase::Direct => self.direct.is_some(),
            NotifyCase::Helper => self.helper.is_some(),
            _ => true,
        }
    }

    /// Clocks of one notification, and the nanoseconds from its start until the sleeper runs.
    fn notify(&self, case: NotifyCase) -> (f64, Option<f64>) {
        let turn = self.sleeper.as_ref().map(|sleeper| sleeper.state.turn.load(Acquire));
        let asleep = clock::now() + PAUSE;
        while clock::now() < asleep {
            std::hint::spin_loop();
        }
        let start = clock::ticks();
        match (case, &self.direct, &self.helper) {
            (NotifyCase::Direct, Some(direct), _) => direct.notify(),
            (NotifyCase::Helper, _, Some(helper)) => helper.notify(),
            (NotifyCase::PollWrite, ..) => self.write_if_room(),
            _ => self.write(),
        }
        let clocks = clock::ticks().saturating_sub(start).saturating_sub(clock::cost()) as f64;
        match (&self.sleeper, turn) {
            (Some(sleeper), Some(turn)) => {
                let woken = sleeper.woken_after(turn);
                (clocks, Some(clock::ticks_to_ns(woken.saturating_sub(start)) as f64))
            }
            _ => {
                spin_until(|| take(&self.event).is_ok());
                (clocks, None)
            }
        }
    }

    fn write(&self) {
        rustix::io::write(&self.event, &1_u64.to_ne_bytes()).unwrap_or_else(|error| fail(&error));
    }

    fn write_if_room(&self) {
        let mut polled = [PollFd::from_borrowed_fd(self.event.as_fd(), PollFlags::OUT)];
        if poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1) {
            self.write();
        }
    }
}

fn take(event: &OwnedFd) -> rustix::io::Result<usize> {
    rustix::io::read(event, &mut [0; 8])
}

/// Spins until a condition holds.
fn spin_until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > TIMEOUT {
            fail(&format!("a notification was not seen within {} seconds", TIMEOUT.as_secs()));
        }
        std::hint::spin_loop();
    }
}

/// A thread that sleeps on its eventfd again and again, as a driver does.
struct Sleeper {
    state: Arc<SleeperState>,
    thread: Option<JoinHandle<()>>,
}

struct SleeperState {
    event: Arc<OwnedFd>,
    /// How often the thread has gone to sleep.
    turn: AtomicU64,
    /// When the thread was last woken, in ticks of the clock.
    woken: AtomicU64,
    ended: AtomicBool,
}

impl Sleeper {
    /// Starts a sleeper on a processor.
    fn start(event: Arc<OwnedFd>, how: Condition, cpu: usize) -> io::Result<Sleeper> {
        let [turn, woken] = [0, 0].map(AtomicU64::new);
        let state = Arc::new(SleeperState { event, turn, woken, ended: AtomicBool::new(false) });
        let theirs = Arc::clone(&state);
        let sleep = move || match cpu::pin_to(cpu).and_then(|()| Ok(theirs.run(how)?)) {
            Ok(()) => {}
            Err(error) => fail(&format!("the peer on processor {cpu}: {error}")),
        };
        let thread = Some(thread::Builder::new().name("peer".into()).spawn(sleep)?);
        let sleeper = Sleeper { state, thread };
        sleeper.woken_after(0);
        Ok(sleeper)
    }

    /// Waits until the thread sleeps again. Returns when it was woken.
    fn woken_after(&self, turn: u64) -> u64 {
        spin_until(|| self.state.turn.load(Acquire) != turn);
        self.state.woken.load(Relaxed)
    }
}

impl SleeperState {
    fn run(&self, how: Condition) -> rustix::io::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &self.event, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        while !self.ended.load(Acquire) {
            self.turn.fetch_add(1, Release);
            match how {
                Condition::Read => take(&self.event).map(drop)?,
                Condition::Epoll => epoll::wait(&epoll, &mut events[..], None).map(drop)?,
                _ => poll(&mut [PollFd::from_borrowed_fd(self.event.as_fd(), PollFlags::IN)], None).map(drop)?,
            }
            self.woken.store(clock::ticks(), Relaxed);
            if how != Condition::Read {
                take(&self.event)?;
            }
        }
        Ok(())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.state.ended.store(true, Release);
        // Wake the thread.
        let _ = rustix::io::write(&self.state.event, &1_u64.to_ne_bytes());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Touches pages of a memory file that nobody has touched, and pages that its owner has touched.
fn faults(case: NotifyCase) -> Result<[NotifyFigure; 2], String> {
    let small = case == NotifyCase::Fault4k;
    let (page, pages, slices) =
        if small { (4 << 10, SMALL_PAGES, SMALL_PAGES / SLICE) } else { (HUGE_PAGE, HUGE_PAGES, HUGE_PAGES) };
    let length = (page * pages) as u64;
    let none = |error: io::Error| match small {
        true => error.to_string(),
        false => format!("{pages} pages of 2 MiB: {error}; `sysctl vm.nr_hugepages={pages}` reserves them"),
    };
    let file: File = if small { memfd::create(length) } else { memfd::huge(length) }.map_err(none)?;
    let touch = |condition| {
        let mapping = SharedMapping::new(&file, 0, length).map_err(none)?;
        let (before, mut next) = (cpu::thread_faults().minor, 0);
        let found = sliced_units(pages as u64, slices, |count| {
            for _ in 0..count {
                mapping.touch(next * page);
                next += 1;
            }
        });
        let faults = cpu::thread_faults().minor - before;
        if faults < pages as u64 {
            return Err(format!("the kernel mapped {pages} pages of {page} bytes in only {faults} page faults"));
        }
        Ok((NotifyFigure { case, condition, clocks: found.clocks, seen: None }, mapping))
    };
    // The first mapping plays the peer's from now on.
    let (untouched, _theirs) = touch(Condition::Untouched)?;
    let (touched, _) = touch(Condition::Touched)?;
    Ok([untouched, touched])
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[],
    every: &[],
    rows: &[
        CaseRow::of(
            &["write", "poll-write", "direct", "helper"],
            "clocks/call",
            "notifying a peer, on the thread that does it; `reference` and `of_reference` are those of `write` in the same \
             processes",
        )
        .with(&["peer"]),
        CaseRow::of(
            &["write", "poll-write", "direct", "helper"],
            "ns",
            "from the start of the call until the peer runs; absent if nobody waits",
        )
        .with(&["peer"]),
        CaseRow::of(&["fault-4k", "fault-2m"], "clocks/page", "the first store to a page of a peer's memory").with(&["page"]),
    ],
    labels: &[
        label(
            "peer",
            LabelKind::Word(&["idle", "poll", "epoll", "read"]),
            "how the peer sleeps: in `poll`, `epoll` or `read`; `idle` if nobody waits",
        ),
        label(
            "page",
            LabelKind::Word(&["untouched", "touched"]),
            "`untouched` (never accessed) or `touched` (accessed by the peer)",
        ),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "notify";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 2";
    // Of machines with io_uring, and with free pages of 2 MiB.
    const RARE: &'static [&'static str] = &["direct", "fault-2m"];
    const REFUSED: &'static [RefusedOptions] =
        &[(&["--case", "ring"], "no case has `ring` in its name; there are write, poll-write, direct, helper")];
    const WORK: RunWorker = |_| workers::answer(measure);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::parsed;
    use crate::machine::Machine;

    fn task() -> NotifyTask {
        NotifyTask { cases: NotifyCase::ALL.to_vec(), options: parsed(&["--rounds", "4"]) }
    }

    /// A sleeping peer needs a second processor.
    #[test]
    fn every_method_is_measured_or_reported_as_missing() {
        let all = cpu::allowed();
        for processors in [&all[..1], &all[..]] {
            let measured = || {
                cpu::allow(processors).unwrap();
                measure(task())
            };
            let NotifyAnswer { figures, missing, .. } = thread::scope(|scope| scope.spawn(measured).join().unwrap());
            let is_missing =
                |name: &str| missing.iter().any(|line| line.split(": not ").next().unwrap().contains(name));
            let answer = NotifyAnswer { figures, missing: missing.clone() };
            let found = |condition, case| answer.find(case, condition);
            for case in NotifyCase::NOTIFY {
                for condition in Condition::PEERS {
                    let Some(figure) = found(condition, case) else {
                        assert!(
                            is_missing(case.name()) || is_missing(condition.name()),
                            "{condition:?} {case:?}: {missing:?}"
                        );
                        continue;
                    };
                    assert!(figure.clocks > 0.0 && !is_missing(condition.name()), "{figure:?} {missing:?}");
                    let seen_later = figure.seen.is_some_and(|seen| seen > 0.0);
                    assert_eq!(seen_later, condition != Condition::Idle, "{figure:?}");
                }
            }
            assert_eq!(is_missing("poll"), processors.len() == 1, "{missing:?}");
            for case in NotifyCase::FAULTS {
                let [untouched, touched] = Condition::PAGES.map(|how| found(how, case));
                assert_eq!(
                    (untouched.is_none(), touched.is_none()),
                    (is_missing(case.name()), is_missing(case.name()))
                );
                assert!(untouched.is_none_or(|figure| figure.clocks > 100.0), "{untouched:?}");
            }
        }
    }

    #[test]
    fn a_ratio_is_of_figures_of_the_same_process() {
        let figure = |case, condition, clocks| NotifyFigure { case, condition, clocks, seen: None };
        let answer = |write: f64, direct: f64| {
            let seen = Some(3_000.0);
            let figures = vec![
                NotifyFigure { seen, ..figure(NotifyCase::Write, Condition::Poll, write) },
                NotifyFigure { seen, ..figure(NotifyCase::Direct, Condition::Poll, direct) },
                figure(NotifyCase::Write, Condition::Idle, 1.0),
                figure(NotifyCase::Fault4k, Condition::Touched, 7.0),
            ];
            NotifyAnswer { figures, missing: vec!["fault-2m: not available: none".to_owned()] }
        };
        let mut answers = [answer(100.0, 150.0), answer(1_000.0, 1_500.0), answer(200.0, 300.0)];
        let found = results(&[NotifyCase::Direct, NotifyCase::Fault4k], &answers);
        let rows: Vec<(&str, &str, f64)> =
            found.iter().map(|row| (row.case.as_str(), row.unit.as_str(), row.median)).collect();
        let expected = [("direct", "clocks/call", 300.0), ("direct", "ns", 3_000.0), ("fault-4k", "clocks/page", 7.0)];
        assert_eq!(rows, expected);
        assert_eq!((found[0].reference, &found[0].labels["peer"]), (Some(200.0), &json!("poll")));
        assert_eq!(found[0].of_reference, Some(Ratio { median: 1.5, low: 1.5, high: 1.5 }));
        assert_eq!((found[2].reference, &found[2].labels["page"]), (None, &json!("touched")));
        assert_eq!(missing(&answers), ["fault-2m: not available: none"]);
        assert_eq!(beside_poll_write(&NotifyCase::ALL, &answers), None);
        for answer in &mut answers {
            answer.figures.push(figure(NotifyCase::PollWrite, Condition::Poll, 2.0 * answer.figures[1].clocks));
        }
        let note = beside_poll_write(&[NotifyCase::Direct], &answers);
        assert_eq!(note.as_deref(), Some("direct over poll-write: poll 0.500 (0.500 – 0.500)"));
        assert_eq!(beside_poll_write(&[NotifyCase::Write], &answers), None);
        answers[0].missing.clear();
        assert_eq!(missing(&answers), ["fault-2m: not available: none (in 2 of 3 processes)"]);

        let report = Report { notes: missing(&answers), ..Report::new("notify", Machine::here(), 3, found) };
        let text = text(&report);
        let row = text.lines().find(|line| line.starts_with("direct")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[..7], ["direct", "poll", "300", "150", "–", "1500", "clocks/call"], "{text}");
        assert!(row.contains("1.500 (1.500 – 1.500)") && row.contains("3.0 µs (3.0 – 3.0)"), "{text}");
        assert!(text.ends_with("\nfault-2m: not available: none (in 2 of 3 processes)\n"), "{text}");
    }
}
