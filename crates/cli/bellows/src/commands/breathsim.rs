//! `bellows breathsim`.

use std::process::ExitCode;

pub use bellows_lab::benchmarks::breathsim::Arguments;

use crate::command_error::CommandError;
use crate::measuring::measure;
use crate::subcommand::{Execute, Program};

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        measure(&self, &program.registry)
    }

    fn only_reports(&self) -> bool {
        true
    }
}
