//! The errors and exit codes of commands.

use std::fmt;
use std::process::ExitCode;

use bellows_inspect::InspectError;

/// The section of `--help` that documents the exit codes.
///
/// Lines have at most 80 columns, so that no terminal wraps them again. docs/operating.md has the same table.
pub const EXIT_CODES: &str = "Exit codes:
  0  success
  1  the run failed, or a command failed on its way
  2  an error in the command or a file, or no such network; nothing changed
  3  a figure of a benchmark is undecided: the machine was too noisy
 10  ps --probe: a network is degraded
 11  ps --probe: a network is stalled
 12  ps --probe: a network has crashed
130  a measurement was interrupted; its report has the results so far

A run has failed if an app panicked, lost track of its packets or could not finish (a damaged capture, a full disk), \
or if packets got stuck; dropped packets are not a failure. A command has failed on its way if a network did not \
answer or the output could not be written.";

/// The exit code of a benchmark with an undecided figure.
#[cfg(feature = "measure")]
pub const UNDECIDED: u8 = 3;

/// The exit code of an interrupted benchmark: 128 + SIGINT, as in shells.
pub const INTERRUPTED: u8 = 130;

/// The reason for which a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The request cannot be carried out: exit code 2. The message is one sentence without a full stop.
    Usage(String),
    /// The errors in a network file, ready to print: exit code 2.
    Diagnosed(String),
    /// An unexpected failure: exit code 1. The message is one sentence without a full stop.
    Failed(String),
    /// The command was interrupted before it had anything to show: exit code 130.
    Interrupted(String),
}

impl CommandError {
    /// The exit code of the process.
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
