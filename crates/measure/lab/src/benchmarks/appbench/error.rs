//! Why there are no figures.

use bellows_config::Diagnostics;
use serde::{Deserialize, Serialize};

use super::wiring::WiringError;
use crate::callgrind::CallgrindError;
use crate::report::BenchError;
use crate::residence::NotFound;
use crate::traffic::TrafficError;
use crate::workers::ProcessError;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum AppbenchError {
    /// The apps or the network cannot be read.
    #[error("{}", .0.render(false))]
    Diagnosed(Diagnostics),
    /// The apps cannot be linked.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// The network has no app of that name.
    #[error("the network has no app `{name}`; it has {known}")]
    NoApp {
        /// The name.
        name: String,
        /// The apps of the network.
        known: String,
    },
    /// The app makes its own packets.
    #[error(
        "`{0}` makes its own packets, so their contents, cache level and rate cannot be chosen; leave out --traffic, \
         --resident and --offered"
    )]
    OwnPackets(String),
    /// A level of the memory hierarchy was not found on this machine.
    #[error(transparent)]
    NoLevel(#[from] NotFound),
    /// The traffic is invalid.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The apps cannot be measured.
    #[error("{0}")]
    Refused(String),
    /// An app panicked.
    #[error("{0}")]
    Panicked(String),
    /// A measuring process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Callgrind did not count.
    #[error(transparent)]
    Callgrind(#[from] CallgrindError),
}

impl AppbenchError {
    /// Whether the error is the caller's mistake, not an internal failure.
    pub fn is_mistake(&self) -> bool {
        match self {
            AppbenchError::Panicked(_) => false,
            AppbenchError::Process(error) => error.is_mistake(),
            AppbenchError::Callgrind(CallgrindError::Process(error)) => error.is_mistake(),
            _ => true,
        }
    }

    /// Whether the measurement was interrupted before there was anything to report.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, AppbenchError::Process(ProcessError::Interrupted))
    }
}

impl From<AppbenchError> for BenchError {
    fn from(error: AppbenchError) -> BenchError {
        match error {
            AppbenchError::Diagnosed(mistakes) => BenchError::Diagnosed(mistakes),
            AppbenchError::Process(error) | AppbenchError::Callgrind(CallgrindError::Process(error)) => {
                BenchError::Process(error)
            }
            error if error.is_mistake() => BenchError::Refused(error.to_string()),
            error => BenchError::Failed(error.to_string()),
        }
    }
}

/// Why a worker has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TaskError {
    /// The apps cannot be measured.
    Refused(String),
    /// An app panicked.
    Panicked(String),
}

impl From<TaskError> for AppbenchError {
    fn from(error: TaskError) -> AppbenchError {
        match error {
            TaskError::Refused(why) => AppbenchError::Refused(why),
            TaskError::Panicked(what) => AppbenchError::Panicked(what),
        }
    }
}

impl TaskError {
    /// The outcome of a worker, or an error if an app panicked. `last` is the message of the last panic.
    pub(super) fn unless_panicked<T>(outcome: Result<T, String>, last: Option<String>) -> Result<T, TaskError> {
        match (outcome, last) {
            (outcome, None) => outcome.map_err(TaskError::Refused),
            (Ok(_), Some(panic)) => Err(TaskError::Panicked(format!("an app panicked: {panic}"))),
            (Err(why), Some(panic)) if why.contains(&panic) => Err(TaskError::Panicked(why)),
            (Err(why), Some(panic)) => Err(TaskError::Panicked(format!("{why}: {panic}"))),
        }
    }
}
