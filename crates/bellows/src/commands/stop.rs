//! `bellows stop`.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::control::{Request, ask};
use crate::failure::Failure;
use crate::observe;

/// Stop a running network: it flushes its files, reports and ends
#[derive(Debug, Args)]
pub struct Arguments {
    /// The network's name; needed if several run
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// How long a run may take to flush and end before it is reported as stuck.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let home = observe::pick(arguments.name.as_deref())?;
    ask(&home, &Request::Stop)?;
    let deadline = Instant::now() + PATIENCE;
    while home.process().is_some() {
        if Instant::now() > deadline {
            let name = home.name();
            return Err(Failure::Failed(format!("`{name}` was told to stop but has not ended yet")));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(ExitCode::SUCCESS)
}
