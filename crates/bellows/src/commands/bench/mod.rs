//! `bellows bench`: a benchmark of the lab each, in a file of its own.

use std::process::ExitCode;

use bellows_engine::Schedule;
use bellows_lab::beside::{Beside, Disturbance};
use bellows_lab::audience::Audience;
use bellows_lab::report::{BenchError, Report};
use clap::Args;

use crate::failure::Failure;
use crate::measuring::{failure, print, watched};
use crate::subcommand::{Execute, Program, subcommands};

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

subcommands! {
    enum Bench {
        Apps(apps),
        Beside(beside),
        Blit(blit),
        Engine(engine),
        History(history),
        Neighbours(neighbours),
        Notify(notify),
        Reload(reload),
        Vring(vring),
    }
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
    #[arg(long, value_name = "N", value_parser = crate::arguments::processor)]
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

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, Failure> {
        self.bench.execute(program)
    }

    fn only_reports(&self) -> bool {
        true
    }
}

impl Common {
    fn schedules(&self) -> Vec<Schedule> {
        self.schedule.map_or(Schedule::ALL.to_vec(), |schedule| vec![schedule])
    }

    /// Starts what is to disturb the measurement, if anything is.
    fn disturbance(&self) -> Result<Option<Disturbance>, Failure> {
        let start = |beside: Beside| Disturbance::start(beside, self.cpu, &["bench", "beside"], &());
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
