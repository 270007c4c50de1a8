//! `bellows bench`: a benchmark of the lab each, in a file of its own.

mod apps;
mod beside;
mod blit;
mod engine;
mod history;
mod neighbours;
mod notify;
mod reload;
mod vring;

use std::process::ExitCode;

use bellows_config::Registry;
use bellows_engine::Schedule;
use bellows_lab::beside::{Beside, Disturbance};
use bellows_lab::processes::Audience;
use bellows_lab::report::{BenchError, Report};
use clap::{Args, Subcommand};

use super::watching::watched;
use crate::failure::{Failure, INTERRUPTED, UNDECIDED};
use crate::terminal;

/// Run a benchmark of the engine, the apps or the virtio rings
///
/// Figures that are compared come from processes that live at the same time and take turns of about a millisecond, so
/// that whatever disturbs the machine disturbs all of them. Where it was too disturbed to tell, the report says
/// `undecided` in place of the figure, and the exit code is 3. Rows appear as they are finished. Ctrl-C ends a benchmark
/// with a report of what has been measured, and exit code 130; a second one ends it at once.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Apps(apps::Arguments),
    #[command(hide = true)]
    Beside(beside::Arguments),
    Blit(blit::Arguments),
    Engine(engine::Arguments),
    History(history::Arguments),
    Neighbours(neighbours::Arguments),
    Notify(notify::Arguments),
    Reload(reload::Arguments),
    Vring(vring::Arguments),
}

/// What every benchmark takes.
#[derive(Debug, Args)]
struct Common {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Only this schedule
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<Schedule>,
    /// Processor to measure on [default: last allowed]
    #[arg(long, value_name = "N", value_parser = crate::cli::processor)]
    cpu: Option<usize>,
    /// Disturb the measurement: thrash or bursts
    ///
    /// To see whether the figures hold, a process on another processor writes to twice as much memory as the last-level
    /// cache holds, all the time (thrash) or now and then (bursts).
    #[arg(long, value_name = "HOW")]
    beside: Option<Beside>,
    /// Do one task from standard input and write its result (how fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

pub fn execute(arguments: &Arguments, registry: &Registry) -> Result<ExitCode, Failure> {
    match &arguments.bench {
        Bench::Apps(arguments) => apps::execute(arguments, registry),
        Bench::Beside(arguments) => beside::execute(arguments),
        Bench::Blit(arguments) => blit::execute(arguments),
        Bench::Engine(arguments) => engine::execute(arguments),
        Bench::History(arguments) => history::execute(arguments),
        Bench::Neighbours(arguments) => neighbours::execute(arguments),
        Bench::Notify(arguments) => notify::execute(arguments),
        Bench::Reload(arguments) => reload::execute(arguments),
        Bench::Vring(arguments) => vring::execute(arguments),
    }
}

impl Common {
    fn schedules(&self) -> Vec<Schedule> {
        self.schedule.map_or(Schedule::ALL.to_vec(), |schedule| vec![schedule])
    }

    /// Starts what is to disturb the measurement, if anything is.
    fn disturbance(&self) -> Result<Option<Disturbance>, Failure> {
        let start = |beside: Beside| Disturbance::start(self.cpu, &["bench", "beside", beside.name()]);
        self.beside.map(start).transpose().map_err(|error| Failure::Mistake(error.to_string()))
    }

    /// Runs a benchmark, and prints its report.
    fn report(&self, run: impl FnOnce(&mut dyn Audience) -> Result<Report, BenchError>) -> Result<ExitCode, Failure> {
        self.finish(run, Report::text_after_rows)
    }

    /// The same of a benchmark that shows none of its rows before the end.
    fn whole_report(
        &self,
        run: impl FnOnce(&mut dyn Audience) -> Result<Report, BenchError>,
    ) -> Result<ExitCode, Failure> {
        self.finish(run, Report::text)
    }

    fn finish(
        &self,
        run: impl FnOnce(&mut dyn Audience) -> Result<Report, BenchError>,
        text: impl FnOnce(&Report) -> String,
    ) -> Result<ExitCode, Failure> {
        let disturbance = self.disturbance()?;
        let mut report = watched(self.json, run).map_err(failure)?;
        if let (Some(beside), Some(disturbance)) = (self.beside, disturbance) {
            let (how, processor) = (beside.name(), disturbance.processor);
            report.notes.push(format!("beside `{how}` on processor {processor}"));
        }
        print(&report, self.json, text)
    }
}

/// What a benchmark that has no report ends the command with.
pub fn failure(error: BenchError) -> Failure {
    match error {
        error if error.is_interrupted() => Failure::Interrupted(error.to_string()),
        error if error.is_mistake() => Failure::Mistake(error.to_string()),
        error => Failure::Failed(error.to_string()),
    }
}

/// Prints a report, as JSON or the text of it that has not been shown.
///
/// # Errors
/// Those of writing.
pub fn print(report: &Report, json: bool, text: impl FnOnce(&Report) -> String) -> Result<ExitCode, Failure> {
    let text = if json { format!("{:#}\n", serde_json::json!(report)) } else { text(report) };
    terminal::print(&text)?;
    Ok(code(report))
}

/// What a command ends with that has printed its report.
pub fn code(report: &Report) -> ExitCode {
    match report {
        report if report.interrupted => ExitCode::from(INTERRUPTED),
        report if report.failed => ExitCode::FAILURE,
        report if report.is_undecided() => ExitCode::from(UNDECIDED),
        _ => ExitCode::SUCCESS,
    }
}
