//! `bellows appbench`.

use std::process::ExitCode;

pub use bellows_lab::benchmarks::appbench::Arguments;

use crate::failure::Failure;
use crate::measuring::measure;
use crate::subcommand::{Execute, Program};

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, Failure> {
        measure(&self, &program.registry)
    }

    fn only_reports(&self) -> bool {
        true
    }
}
