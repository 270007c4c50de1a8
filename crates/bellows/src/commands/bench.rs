//! `bellows bench`: the benchmarks of the lab.

use std::process::ExitCode;

use bellows_lab::benchmarks::{self, Bench};
use clap::Args;

use crate::command_error::CommandError;
use crate::measuring::measure;
use crate::subcommand::{Execute, Program};

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
