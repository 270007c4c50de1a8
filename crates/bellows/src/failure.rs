//! How a command ends.

use std::fmt;
use std::process::ExitCode;

/// The section of `--help` that documents the exit codes.
pub const EXIT_CODES: &str = "Exit codes:
  0  all went well
  1  the run failed: an app panicked or could not finish (a damaged capture, a full disk), or packets got stuck
  2  a mistake in the command, the network file or what it names; nothing was started";

/// Why a command did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// What was asked for cannot be done: exit code 2. The message is one sentence without a full stop.
    Mistake(String),
    /// The mistakes in a network file, ready to be printed: exit code 2.
    Diagnosed(String),
    /// Something failed that should not have: exit code 1. The message is one sentence without a full stop.
    Failed(String),
}

impl Failure {
    /// The code that the process ends with.
    pub fn code(&self) -> ExitCode {
        match self {
            Failure::Mistake(_) | Failure::Diagnosed(_) => ExitCode::from(2),
            Failure::Failed(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Mistake(message) | Failure::Failed(message) => write!(formatter, "error: {message}"),
            Failure::Diagnosed(text) => formatter.write_str(text.trim_end()),
        }
    }
}

impl From<std::io::Error> for Failure {
    /// A failure to write the command's output.
    fn from(error: std::io::Error) -> Failure {
        Failure::Failed(format!("cannot write the output: {error}"))
    }
}
