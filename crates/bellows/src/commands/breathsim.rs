//! `bellows breathsim`.

use std::process::ExitCode;

use bellows_engine::Schedule;
use bellows_lab::breathsim::{self, BusyAfter, MOST_APPS, MOST_WORK, NoBreaths, Options};
use bellows_lab::processes;
use clap::Args;

use crate::failure::Failure;
use crate::terminal;

/// Measure what a breath costs under each schedule, idle and busy
///
/// The experiment of "The case for unrolling the main push/pull loops" (Snabb issue 1414), run by the engine itself: some
/// pseudo-apps, each with code of its own, that have nothing to do or that each add to a counter 100 times a breath. The
/// figures are nanoseconds of processor time a breath. A network that is never busy shows what the engine costs when
/// nothing moves; one that is busy from the start, what it adds to the work; one that is busy after 1,000 idle breaths,
/// whether an engine that was idle first is slower for good.
///
/// Without options the whole table is measured (some minutes): each schedule, never busy, busy after 1,000 breaths and
/// from the start, with the document's 5 apps and with 30, with 100 increments and with 1 (which lets the engine's own
/// cost show), beside the document's own figures. Each of the options --schedule, --busy-after, --apps and --work
/// restricts it to what is given, with the document's 5 apps and 100 increments where nothing is said. The reference is
/// the same increments in a loop without an engine.
///
/// Each figure is measured in several fresh processes, which take turns; it is the median over them, with the median's
/// 95 percent confidence interval. Each run counts the increments that were made: the time of a run in which one is
/// missing is never shown.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Only this schedule
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<Schedule>,
    /// The idle breaths before the apps become busy: `never`, or a number; 0 for busy from the start
    #[arg(long, value_name = "never|BREATHS")]
    busy_after: Option<BusyAfter>,
    /// How many pseudo-apps
    #[arg(long, value_name = "N", value_parser = in_range(1, MOST_APPS as u64))]
    apps: Option<u64>,
    /// Increments that a busy app makes in a breath
    #[arg(long, value_name = "INCREMENTS", value_parser = in_range(1, MOST_WORK))]
    work: Option<u64>,
    /// Breaths of each run, the idle ones at its start included, such as 1e8; by default 1e8 of 5 idle apps, and fewer
    /// where a breath does more
    #[arg(long, value_name = "BREATHS", value_parser = breaths)]
    iterations: Option<u64>,
    /// Fresh processes for each figure; by default 15, and 6 for a single figure. An interval needs six
    #[arg(long, value_name = "N", value_parser = in_range(1, 1000))]
    processes: Option<u64>,
    /// The processor to measure on; by default the last that may be used
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Take a task from standard input, do it, and write what was measured (how the fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

fn in_range(least: u64, most: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(least..=most)
}

fn breaths(text: &str) -> Result<u64, NoBreaths> {
    breathsim::breaths(text)
}

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.measure {
        processes::answer(breathsim::measure)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        schedule: arguments.schedule,
        busy_after: arguments.busy_after,
        apps: arguments.apps.map(|apps| apps as usize),
        work: arguments.work,
        iterations: arguments.iterations,
        processes: arguments.processes.map(|processes| processes as usize),
        cpu: arguments.cpu,
    };
    let rich = terminal::stderr_is_rich();
    let outcome = breathsim::run(&options, &["breathsim", "--measure"], |done, all| {
        if rich {
            terminal::show_status(&format!("measuring: {done} of {all} processes"));
        }
    });
    terminal::clear_status();
    let outcome = outcome.map_err(|error| Failure::Mistake(error.to_string()))?;
    let text = match arguments.json {
        true => format!("{:#}\n", serde_json::json!(outcome.report)),
        false => outcome.text(),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
