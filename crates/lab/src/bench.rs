//! What a benchmark is: its options, how it is run and what comes of it.
//!
//! A benchmark is a file in `benchmarks/`, with a type `Arguments` that implements [`clap::Args`] and [`Benchmark`], and a
//! line in the list of `benchmarks/mod.rs`. Its command, help, completions and manual page, its JSON, its workers and the
//! tests of all benchmarks follow from these.

use std::path::PathBuf;

use bellows_config::Registry;
use bellows_engine::Schedule;
use bellows_sys::cpu;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::{Deserialize, Serialize};

use crate::audience::Audience;
use crate::beside::{Beside, Disturbance};
use crate::report::{BenchError, Report};

/// The options of a benchmark, which can be measured.
pub trait Benchmark {
    /// What all benchmarks take.
    fn common(&self) -> Common;

    /// What disturbs the measurement on purpose.
    fn beside(&self) -> Option<Beside> {
        None
    }

    /// Labels of its figures that were measured too, such as the clocks behind a ratio. All other labels are conditions.
    fn measured_labels(&self) -> &'static [&'static str] {
        &[]
    }

    /// Measures.
    ///
    /// # Errors
    /// Why there is no report.
    fn run(&self, lab: &mut Lab<'_>) -> Result<Finished, BenchError>;
}

/// What is known of a benchmark without its options.
pub trait Listed: Benchmark + Args {
    /// Options with which it measures a little and soon, for tests.
    const QUICK: &'static [&'static str];

    /// Options that it refuses, each with a part of the reason.
    const REFUSED: &'static [(&'static [&'static str], &'static str)];

    /// Does the work of one worker: [`answer`](crate::workers::answer) or [`take_part`](crate::workers::take_part).
    ///
    /// # Errors
    /// When the task cannot be read or an answer not be written.
    fn work(registry: &Registry) -> Result<(), std::io::Error>;
}

/// What a benchmark is run with.
pub struct Lab<'a> {
    /// The arguments that, followed by a name, make this program a worker of the benchmark of that name.
    pub worker: &'a [&'a str],
    /// The catalogue of apps.
    pub registry: &'a Registry,
    /// Who waits.
    pub audience: &'a mut dyn Audience,
}

impl<'a> Lab<'a> {
    /// The arguments that make this program a worker of a benchmark.
    pub(crate) fn worker<'n>(&self, name: &'n str) -> Vec<&'n str>
    where
        'a: 'n,
    {
        self.worker.iter().copied().chain([name]).collect()
    }
}

/// A report, and how what people have not yet seen of it is written.
pub struct Finished {
    /// The figures.
    pub report: Report,
    rest: Box<dyn FnOnce(&Report) -> String>,
}

impl Finished {
    pub(crate) fn new(report: Report, rest: impl FnOnce(&Report) -> String + 'static) -> Finished {
        Finished { report, rest: Box::new(rest) }
    }

    /// The part of the text that has not been shown.
    pub fn text(self) -> String {
        (self.rest)(&self.report)
    }
}

/// Runs a benchmark, beside what is to disturb it.
///
/// # Errors
/// Why there is no report.
pub fn run(benchmark: &dyn Benchmark, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cpu = benchmark.common().cpu;
    let start = |beside| Disturbance::start(beside, cpu, &lab.worker("beside"), lab.audience).map(|it| (beside, it));
    let disturbance = benchmark.beside().map(start).transpose()?;
    let mut finished = benchmark.run(lab)?;
    if let Some((beside, disturbance)) = disturbance {
        let (how, processor) = (beside.name(), disturbance.processor);
        finished.report.notes.push(format!("beside `{how}` on processor {processor}"));
    }
    Ok(finished)
}

/// What every benchmark takes.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
pub struct Common {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Processor to measure on [default: last allowed]
    #[arg(long, value_name = "N", value_parser = cpu::parse)]
    pub cpu: Option<usize>,
    /// With what the benchmark is compared in place of being run.
    #[command(flatten)]
    pub rival: Rival,
}

/// With what a benchmark is compared.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
pub struct Rival {
    /// Compare with another build of this program
    ///
    /// Runs the benchmark by this program and by the other one, pair by pair, each pair in random order, and reports
    /// this program's figures over the other's.
    #[arg(long, value_name = "PROGRAM", hide_short_help = true)]
    pub against: Option<PathBuf>,
    /// Pairs of runs with --against; at least 6 for a confidence interval
    #[arg(
        long,
        value_name = "N",
        requires = "against",
        default_value_t = 15,
        value_parser = whole(1..=1000),
        hide_short_help = true
    )]
    pub pairs: usize,
}

/// Under which conditions networks are measured.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
pub struct Conditions {
    /// Only this schedule
    #[arg(long, value_name = "SCHEDULE")]
    pub schedule: Option<Schedule>,
    /// Disturb the measurement: thrash or bursts
    ///
    /// To see whether the figures hold, a process on another processor writes to twice as much memory as the last-level
    /// cache holds, all the time (thrash) or now and then (bursts).
    #[arg(long, value_name = "HOW")]
    pub beside: Option<Beside>,
}

impl Conditions {
    /// The schedules to measure.
    pub fn schedules(&self) -> Vec<Schedule> {
        self.schedule.map_or(Schedule::ALL.to_vec(), |schedule| vec![schedule])
    }
}

/// A whole number within bounds.
pub(crate) fn whole(range: std::ops::RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(range)
}

/// A number of packets.
///
/// # Errors
/// When it is none.
pub(crate) fn packets(text: &str) -> Result<u64, String> {
    const HOW: &str = "give a number of packets from 1 to 1e12, such as 10000000 or 1e7";
    let number: f64 = text.replace(['_', ','], "").parse().map_err(|_| HOW)?;
    if (1.0..=1e12).contains(&number) { Ok(number as u64) } else { Err(HOW.to_owned()) }
}

/// Declares the modules of benchmarks and the command line that they have together, from one list.
///
/// `Name(module)` is the benchmark `name` in the file `module.rs`, whose type `Arguments` is [`Listed`]. Those behind
/// `apart` have commands of their own; the others are subcommands of `bench`. The help lists them in this order.
macro_rules! benchmarks {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident { $($variant:ident($module:ident),)* }
        apart { $($apart_variant:ident($apart:ident),)* }
    ) => {
        $($visibility mod $module;)*
        $($visibility mod $apart;)*

        $(#[$attribute])*
        #[derive(Debug, clap::Subcommand)]
        $visibility enum $name {
            $(#[doc(hidden)] $variant(Box<$module::Arguments>),)*
            #[doc(hidden)]
            #[command(hide = true)]
            Worker(WorkerArguments),
        }

        impl $name {
            /// The benchmark that was asked for with its options, or the name of the one to work for.
            ///
            /// # Errors
            /// The name, if this is to be a worker.
            $visibility fn benchmark(&self) -> Result<&dyn $crate::bench::Benchmark, &str> {
                match self {
                    $($name::$variant(arguments) => Ok(&**arguments),)*
                    $name::Worker(worker) => Err(&worker.name),
                }
            }
        }

        /// Every benchmark, in the order of the help.
        $visibility const ALL: &[Entry] = &[
            $(Entry::of::<$module::Arguments>(stringify!($module), false),)*
            $(Entry::of::<$apart::Arguments>(stringify!($apart), true),)*
        ];
    };
}

pub(crate) use benchmarks;

/// The options that a command line stands for.
#[cfg(test)]
pub(crate) fn parsed<B: Args>(words: &[&str]) -> B {
    let command = B::augment_args(clap::Command::new("bench").no_binary_name(true));
    B::from_arg_matches(&command.get_matches_from(words)).unwrap()
}
