//! `bellows clear`.

use std::process::ExitCode;

use clap::Args;

use crate::baseline;
use crate::failure::Failure;
use crate::observe::{self, Sample};
use crate::terminal;

/// Let `show run`, `show latency` and `top` count from now on
///
/// The counters themselves go on: `show`, the report of the run, and whoever else reads them do not notice.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The network's name; needed if several run
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let home = observe::pick(arguments.name.as_deref())?;
    let name = home.name();
    let mut observer = observe::open(home)?;
    let sample = Sample::settled(&mut observer);
    baseline::write(observer.home(), &sample)?;
    terminal::complain(&format!("`show run`, `show latency` and `top` count from now on what `{name}` does\n"));
    Ok(ExitCode::SUCCESS)
}
