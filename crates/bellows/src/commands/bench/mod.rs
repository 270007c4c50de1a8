//! `bellows bench`: a benchmark of the lab each, in a file of its own.

mod apps;
mod blit;
mod engine;
mod history;
mod reload;
mod vring;

use std::process::ExitCode;

use bellows_config::Registry;
use bellows_engine::Schedule;
use bellows_lab::report::{BenchError, Report};
use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::terminal;

/// Measure what Bellows costs on this machine
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Apps(apps::Arguments),
    Blit(blit::Arguments),
    Engine(engine::Arguments),
    History(history::Arguments),
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
    /// The processor to measure on; by default the last that may be used
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Take a task from standard input, do it, and write what was measured (how the fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

pub fn execute(arguments: &Arguments, registry: &Registry) -> Result<ExitCode, Failure> {
    match &arguments.bench {
        Bench::Apps(arguments) => apps::execute(arguments, registry),
        Bench::Blit(arguments) => blit::execute(arguments),
        Bench::Engine(arguments) => engine::execute(arguments),
        Bench::History(arguments) => history::execute(arguments),
        Bench::Reload(arguments) => reload::execute(arguments),
        Bench::Vring(arguments) => vring::execute(arguments),
    }
}

impl Common {
    fn schedules(&self) -> Vec<Schedule> {
        self.schedule.map_or(Schedule::ALL.to_vec(), |schedule| vec![schedule])
    }

    /// Runs a benchmark, which is handed a function to tell its progress, and prints its report.
    fn report(
        &self,
        run: impl FnOnce(&mut dyn FnMut(usize, usize)) -> Result<Report, BenchError>,
    ) -> Result<ExitCode, Failure> {
        let report = told(run).map_err(|error| Failure::Mistake(error.to_string()))?;
        let text = match self.json {
            true => format!("{:#}\n", serde_json::json!(report)),
            false => report.text(),
        };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs what tells its progress, which is shown if a person is looking.
pub fn told<T>(run: impl FnOnce(&mut dyn FnMut(usize, usize)) -> T) -> T {
    let rich = terminal::stderr_is_rich();
    let result = run(&mut |done, all| {
        if rich {
            terminal::show_status(&format!("measuring: {done} of {all} processes"));
        }
    });
    terminal::clear_status();
    result
}
