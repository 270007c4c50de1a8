//! How a command ends.

use std::fmt;
use std::process::ExitCode;

use bellows_inspect::InspectError;

/// The section of `--help` that documents the exit codes.
pub const EXIT_CODES: &str = "Exit codes:
  0  all went well
  1  the run failed: an app panicked, lost count of its packets or could not finish (a damaged capture, a full disk), or
     packets got stuck. Packets that were dropped are no failure; the report's last lines name those that nobody asked to
     drop
  2  a mistake in the command, the network file or what it names; nothing was started
  3  a benchmark is undecided about some figure: the machine was too disturbed
130  a benchmark was interrupted; what it had measured is in its report";

/// The code of a benchmark that is undecided about some figure.
pub const UNDECIDED: u8 = 3;

/// The code of a benchmark that was interrupted: that of a process that SIGINT ends, as shells see it.
pub const INTERRUPTED: u8 = 130;

/// Why a command did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// What was asked for cannot be done: exit code 2. The message is one sentence without a full stop.
    Usage(String),
    /// The mistakes in a network file, ready to be printed: exit code 2.
    Diagnosed(String),
    /// Something failed that should not have: exit code 1. The message is one sentence without a full stop.
    Failed(String),
    /// It was interrupted before there was anything to show: exit code 130.
    Interrupted(String),
}

impl CommandError {
    /// The code that the process ends with.
    pub fn code(&self) -> ExitCode {
        match self {
            CommandError::Usage(_) | CommandError::Diagnosed(_) => ExitCode::from(2),
            CommandError::Failed(_) => ExitCode::from(1),
            CommandError::Interrupted(_) => ExitCode::from(INTERRUPTED),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Usage(message) | CommandError::Failed(message) | CommandError::Interrupted(message) => {
                write!(formatter, "error: {message}")
            }
            CommandError::Diagnosed(text) => formatter.write_str(text.trim_end()),
        }
    }
}

impl From<std::io::Error> for CommandError {
    /// A failure to write the command's output.
    fn from(error: std::io::Error) -> CommandError {
        CommandError::Failed(format!("cannot write the output: {error}"))
    }
}

impl From<InspectError> for CommandError {
    fn from(error: InspectError) -> CommandError {
        match error {
            InspectError::Request(message) => CommandError::Usage(message),
            InspectError::Diagnosed(report) => CommandError::Diagnosed(report),
            InspectError::Failed(message) => CommandError::Failed(message),
        }
    }
}
