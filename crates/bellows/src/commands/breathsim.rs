//! `bellows breathsim`.

use std::process::ExitCode;

use bellows_engine::Schedule;
use bellows_lab::breathsim::{self, BreathsimError, BusyAfter, MOST_APPS, MOST_WORK, Model, NoBreaths, Options};
use bellows_lab::audience::Audience;
use bellows_lab::workers::{self, ProcessError};
use clap::Args;

use crate::failure::Failure;
use crate::measuring::{print, watched};
use crate::subcommand::{Execute, Program};

/// Measure what a breath costs under each schedule, idle and busy
///
/// The experiment of "The case for unrolling the main push/pull loops" (Snabb issue 1414), run by the engine itself: some
/// pseudo-apps, each with code of its own, that have nothing to do or that each add to a counter 100 times a breath. The
/// figures are nanoseconds of processor time a breath. A network that is never busy shows what the engine costs when
/// nothing moves; one that is busy from the start, what it adds to the work; one that is busy after 1,000 idle breaths,
/// whether an engine that was idle first is slower for good.
///
/// Without options the whole table is measured (about two minutes): each schedule, never busy, busy after 1,000 breaths and
/// from the start, with the document's 5 apps and with 30, with 100 increments and with 1 (which lets the engine's own
/// cost show), beside the document's own figures. Each of the options --schedule, --busy-after, --apps and --work
/// restricts it to what is given, with the document's 5 apps and 100 increments where nothing is said. The reference is
/// the same increments in a loop without an engine.
///
/// All schedules and beginnings of one network are measured together, in fresh processes that live at the same time and take
/// turns of a millisecond; a figure is the median over several such groups, with the median's 95 percent confidence
/// interval, or `undecided` where the machine was too disturbed (exit code 3). Each run counts the increments that were made:
/// the time of a run in which one is missing is never shown. The table of a network appears when it is finished; Ctrl-C
/// ends the measurement with a report of what there is, and exit code 130.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Only this schedule
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<Schedule>,
    /// Idle breaths before the apps become busy, or `never`
    ///
    /// 0 means busy from the start.
    #[arg(long, value_name = "never|BREATHS")]
    busy_after: Option<BusyAfter>,
    /// Number of pseudo-apps
    #[arg(long, value_name = "N", value_parser = in_range(1, MOST_APPS as u64))]
    apps: Option<u64>,
    /// Increments of a busy app per breath
    #[arg(long, value_name = "INCREMENTS", value_parser = in_range(1, MOST_WORK))]
    work: Option<u64>,
    /// Breaths per run, idle ones included [default: 4e6 for 5 idle apps, else fewer]
    #[arg(long, value_name = "BREATHS", value_parser = breaths)]
    iterations: Option<u64>,
    /// Fresh processes per figure [default: 15, or 6 for a single figure]
    ///
    /// A confidence interval needs at least 6.
    #[arg(long, value_name = "N", value_parser = in_range(1, 1000))]
    processes: Option<u64>,
    /// Processor to measure on [default: last allowed]
    #[arg(long, value_name = "N", value_parser = crate::arguments::processor)]
    cpu: Option<usize>,
    /// A program with the same experiment that takes turns with the engine (see bench/peers/breathsim.lua)
    #[arg(long, value_name = "NAME/LOOPS=PROGRAM ARGUMENT …", hide = true)]
    model: Vec<Model>,
    /// Do one task from standard input and write its result (how fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

fn in_range(least: u64, most: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(least..=most)
}

fn breaths(text: &str) -> Result<u64, NoBreaths> {
    breathsim::breaths(text)
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, Failure> {
        if self.measure {
            workers::take_part(breathsim::lay_out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = Options {
            schedule: self.schedule,
            busy_after: self.busy_after,
            apps: self.apps.map(|apps| apps as usize),
            work: self.work,
            iterations: self.iterations,
            processes: self.processes.map(|processes| processes as usize),
            cpu: self.cpu,
            models: self.model.clone(),
        };
        let run = |audience: &mut dyn Audience| breathsim::run(&options, &["breathsim", "--measure"], audience);
        let outcome = watched(self.json, run).map_err(|error| match error {
            BreathsimError::Process(ProcessError::Interrupted) => Failure::Interrupted(error.to_string()),
            BreathsimError::Process(ref process) if !process.is_mistake() => Failure::Failed(error.to_string()),
            error => Failure::Mistake(error.to_string()),
        })?;
        print(&outcome.report, self.json, |_| outcome.text_after_tables())
    }

    fn only_reports(&self) -> bool {
        true
    }
}
