//! The trait of a benchmark, its common options, and how it is run.
//!
//! To add a benchmark, add a file in `benchmarks/` with a type `Arguments` that implements [`clap::Args`] and
//! [`Benchmark`], and to `benchmarks/mod.rs` its `mod` line and a line of the list. Its command, help, completions,
//! manual page, JSON, workers and the tests of all benchmarks follow from these.

use bellows_config::Registry;
use bellows_engine::Schedule;
use bellows_sys::cpu;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::audience::Observer;
use crate::beside::{Beside, Disturbance};
use crate::cases::Cases;
use crate::processes::{Answers, take_turns_with};
use crate::report::{BenchError, Measurement, Report};
use crate::turns::{MatchSession, Series};
use crate::workers::ProcessError;

/// A benchmark: its options, and what it does with them.
pub trait Benchmark: Args {
    /// Its name in reports, and that of its workers.
    const NAME: &'static str;

    /// Its cases, with their units and labels.
    const CASES: Cases;

    /// Options for a short run, for tests, with spaces between them.
    const QUICK: &'static str;

    /// Options for further short runs, for the cases and labels that [`QUICK`](Benchmark::QUICK) does not report. In
    /// their folder are `routes.txt` (two prefixes) and `network.toml` (with an app `counter`).
    const MORE: &'static [&'static str] = &[];

    /// Cases that some machines cannot report, so that no test expects them.
    const RARE: &'static [&'static str] = &[];

    /// Options that the benchmark refuses.
    const REFUSED: &'static [RefusedOptions];

    /// Measures.
    const RUN: RunBenchmark<Self>;

    /// The work of a worker.
    const WORK: RunWorker;

    /// The options that all benchmarks have.
    fn common(&self) -> Common;

    /// The disturbance to run beside the measurement, if any.
    fn beside(&self) -> Option<Beside> {
        None
    }
}

/// Options that a benchmark refuses, and a part of the error message.
pub type RefusedOptions = (&'static [&'static str], &'static str);

/// Runs a benchmark with its options. Fails with the reason why there is no report.
pub type RunBenchmark<B> = fn(&B, &mut Lab<'_>) -> Result<Finished, BenchError>;

/// Runs a worker: [`answer`](crate::workers::answer) or [`take_part`](crate::workers::take_part). Fails when the task
/// cannot be read or an answer cannot be written.
pub type RunWorker = fn(&Registry) -> Result<(), std::io::Error>;

/// A benchmark of any kind that a command line requests.
pub trait Requested {
    /// The options that all benchmarks have.
    fn common(&self) -> Common;

    /// Runs the benchmark, together with its disturbance.
    ///
    /// # Errors
    /// Why there is no report.
    fn run(&self, lab: &mut Lab<'_>) -> Result<Finished, BenchError>;
}

impl<B: Benchmark> Requested for B {
    fn common(&self) -> Common {
        Benchmark::common(self)
    }

    fn run(&self, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
        let cpu = Benchmark::common(self).cpu;
        let start =
            |beside| Disturbance::start(beside, cpu, &lab.worker("beside"), lab.observer).map(|it| (beside, it));
        let disturbance = self.beside().map(start).transpose()?;
        let mut finished = B::RUN(self, lab)?;
        if let Some((beside, disturbance)) = disturbance {
            let (how, processor) = (beside.name(), disturbance.processor);
            finished.report.notes.push(format!("beside `{how}` on processor {processor}"));
        }
        Ok(finished)
    }
}

/// The environment of a benchmark.
pub struct Lab<'a> {
    /// The arguments that, followed by a benchmark's name, make this program a worker of that benchmark.
    pub worker: &'a [&'a str],
    /// The catalogue of apps.
    pub registry: &'a Registry,
    /// Receives progress and partial reports.
    pub observer: &'a mut dyn Observer,
}

impl<'a> Lab<'a> {
    /// The arguments that make this program a worker of a benchmark.
    pub(crate) fn worker<'n>(&self, name: &'n str) -> Vec<&'n str>
    where
        'a: 'n,
    {
        self.worker.iter().copied().chain([name]).collect()
    }

    /// The report of a benchmark whose workers do each task in `processes` fresh processes: all tasks once, then all once
    /// more, and so on. `summarise` gets the answers to each task, and returns the figures and the notes.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub(crate) fn report<B: Benchmark, T: Serialize, A: DeserializeOwned>(
        &mut self,
        _: &B,
        tasks: &[T],
        processes: usize,
        summarise: impl FnOnce(&[Vec<A>]) -> (Vec<Measurement>, Vec<String>),
    ) -> Result<Report, ProcessError> {
        let task = |task: usize, _| &tasks[task];
        let Answers { answers, machine, interrupted } =
            take_turns_with(&self.worker(B::NAME), tasks.len(), processes, task, self.observer)?;
        let (results, notes) = summarise(&answers);
        Ok(Report { interrupted, notes, ..Report::new(B::NAME, machine, processes, results) })
    }

    /// A session of a benchmark whose processes take turns, with `all` processes in total.
    pub(crate) fn session<B: Benchmark>(&mut self, benchmark: &B, all: usize) -> MatchSession<'_> {
        MatchSession::new(self.worker(B::NAME), Benchmark::common(benchmark).cpu, all, &mut *self.observer)
    }

    /// The same, with rows of one table as figures: `contenders` in all groups together, each in this number of
    /// processes.
    pub(crate) fn series<B: Benchmark>(&mut self, benchmark: &B, contenders: usize, processes: usize) -> Series<'_> {
        Series::new(B::NAME, processes, self.session(benchmark, contenders * processes))
    }
}

/// A report, and a function that renders the part of it that has not been shown yet.
pub struct Finished {
    /// The figures.
    pub report: Report,
    rest: Box<dyn FnOnce(&Report) -> String>,
}

impl Finished {
    pub(crate) fn new(report: Report, rest: impl FnOnce(&Report) -> String + 'static) -> Finished {
        Finished { report, rest: Box::new(rest) }
    }

    /// A report whose rows have been shown.
    pub(crate) fn after_rows(report: Report) -> Finished {
        Finished::new(report, Report::text_after_rows)
    }

    /// The part of the text that has not been shown yet.
    pub fn text(self) -> String {
        (self.rest)(&self.report)
    }
}

/// The options that every benchmark has.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
pub struct Common {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Processor to measure on [default: last allowed]
    #[arg(long, value_name = "N", value_parser = cpu::parse)]
    pub cpu: Option<usize>,
}

impl Common {
    /// The processor to measure on.
    pub(crate) fn processor(&self) -> usize {
        self.cpu.or_else(|| cpu::allowed().last().copied()).unwrap_or_default()
    }
}

/// The conditions of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
pub struct Conditions {
    /// Only this schedule
    #[arg(long, value_name = "SCHEDULE")]
    pub schedule: Option<Schedule>,
    /// Disturb the measurement: thrash or bursts
    ///
    /// To check the figures, a process on another processor writes to twice as much memory as the last-level cache
    /// holds, all the time (thrash) or now and then (bursts).
    #[arg(long, value_name = "HOW")]
    pub beside: Option<Beside>,
}

impl Conditions {
    /// The schedules to measure.
    pub fn schedules(&self) -> Vec<Schedule> {
        self.schedule.map_or(Schedule::ALL.to_vec(), |schedule| vec![schedule])
    }
}

/// Which figures to take, and from how many processes.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
pub struct Figures {
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub case: String,
    /// Fresh processes per figure; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = whole(1..=1000))]
    pub processes: usize,
}

/// A whole number within bounds.
pub(crate) fn whole(range: std::ops::RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(range)
}

/// Parses a number of packets.
///
/// # Errors
/// When the text is not such a number.
pub(crate) fn packets(text: &str) -> Result<u64, String> {
    const HOW: &str = "give a number of packets from 1 to 1e12, such as 10000000 or 1e7";
    let number: f64 = text.replace(['_', ','], "").parse().map_err(|_| HOW)?;
    if (1.0..=1e12).contains(&number) { Ok(number as u64) } else { Err(HOW.to_owned()) }
}

/// Declares the command line of the benchmarks from their list.
///
/// `Name(module)` is the benchmark `name` in the module beside the list, whose type `Arguments` is a [`Benchmark`].
/// Benchmarks after `apart` have their own commands; the others are subcommands of `bench`. The help lists them in this order.
macro_rules! benchmarks {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident { $($variant:ident($module:ident),)* }
        apart { $($apart_variant:ident($apart:ident),)* }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, clap::Subcommand)]
        $visibility enum $name {
            $(#[doc(hidden)] $variant(Box<$module::Arguments>),)*
            #[doc(hidden)]
            #[command(hide = true)]
            Worker(WorkerArguments),
        }

        impl $name {
            /// The requested benchmark with its options.
            ///
            /// # Errors
            /// The benchmark's name, if this process is a worker.
            $visibility fn benchmark(&self) -> Result<&dyn $crate::bench::Requested, &str> {
                match self {
                    $($name::$variant(arguments) => Ok(&**arguments),)*
                    $name::Worker(worker) => Err(&worker.name),
                }
            }
        }

        /// Every benchmark, in the order of the help.
        $visibility const ALL: &[BenchmarkEntry] = &[
            $(BenchmarkEntry::of::<$module::Arguments>(false),)*
            $(BenchmarkEntry::of::<$apart::Arguments>(true),)*
        ];
    };
}

pub(crate) use benchmarks;

/// Parses a command line.
#[cfg(test)]
pub(crate) fn parsed<B: Args>(words: &[&str]) -> B {
    let command = B::augment_args(clap::Command::new("bench").no_binary_name(true));
    B::from_arg_matches(&command.get_matches_from(words)).unwrap()
}
