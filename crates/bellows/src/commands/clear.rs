//! `bellows clear`.

use std::process::ExitCode;

use bellows_inspect::networks::{self, Sample, State};
use clap::Args;

use crate::baseline;
use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Restart the counts of `show run`, `show latency` and `top`
///
/// The counters themselves go on: `show`, the report of the run and all other readers are not affected. The counters of
/// a crashed network are evidence and are not cleared. Root cannot clear the networks of other users.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The network's name, if several run
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let runtime_dir = networks::pick(self.name.as_deref())?;
        networks::refuse_foreign(&runtime_dir, "clear", "only its user may restart its counts")?;
        let name = runtime_dir.name();
        if networks::state(&runtime_dir) == State::Crashed {
            return Err(CommandError::Usage(format!(
                "`{name}` has crashed: its counters are evidence and are not cleared; \
                 `bellows show run {name}` shows them, `bellows ps --clean` removes them"
            )));
        }
        let mut observer = networks::open(runtime_dir)?;
        let sample = Sample::settled(&mut observer);
        baseline::write(observer.runtime_dir(), &sample)?;
        terminal::notice(&format!("`show run`, `show latency` and `top` of `{name}` count from now on\n"));
        Ok(ExitCode::SUCCESS)
    }
}
