//! `bellows bench`: the benchmarks of the lab.

use std::process::ExitCode;

use bellows_lab::benchmarks::{self, BenchCommand};
use clap::Args;

use crate::command_error::CommandError;
use crate::measuring::measure;
use crate::subcommand::{Execute, Program};

/// Run a benchmark of the engine, the apps or the virtio rings
///
/// Figures that are compared come from processes that run at the same time and take turns of about a millisecond, so
/// that a disturbance of the machine affects all of them. If the machine was too noisy for a result, the report says
/// `undecided` in place of the figure, and the exit code is 3. Rows appear as they are finished. Ctrl-C ends a
/// benchmark with a report of what has been measured, and exit code 130; a second Ctrl-C ends it at once.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    bench: BenchCommand,
}

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        match self.bench.benchmark() {
            Ok(benchmark) => measure(benchmark, &program.registry),
            Err(name) => {
                benchmarks::work(name, &program.registry)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    fn only_reports(&self) -> bool {
        true
    }
}
