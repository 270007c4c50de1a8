//! `bellows stop`.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use bellows_engine::Home;
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

/// How long a process that hangs up may take to be gone.
const MOMENT: Duration = Duration::from_secs(1);

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let home = observe::pick(arguments.name.as_deref())?;
    let was_running = home.process().is_some();
    match ask(&home, &Request::Stop) {
        Ok(_) if has_ended(&home, PATIENCE) => Ok(ExitCode::SUCCESS),
        Ok(_) => Err(Failure::Failed(format!("`{}` was told to stop but has not ended yet", home.name()))),
        // It ended before it could answer, by the request or by itself: what was asked for is so.
        Err(_) if was_running && has_ended(&home, MOMENT) => Ok(ExitCode::SUCCESS),
        Err(failure) => Err(failure),
    }
}

/// Waits for a run's end.
fn has_ended(home: &Home, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while home.process().is_some() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}
