//! Why a network cannot be inspected.

/// Why a network cannot be inspected. Each message is one sentence without a full stop that names the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// What was asked for cannot be done: there is no such network, or several.
    #[error("{0}")]
    Request(String),
    /// A network found mistakes in the files that it was to read: its report, several lines.
    #[error("{0}")]
    Diagnosed(String),
    /// Something failed that should not have: a network does not answer, its counters cannot be read.
    #[error("{0}")]
    Failed(String),
}
