//! Errors of inspecting a network.

/// An error of inspecting a network. Each message is one sentence without a full stop and names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// The request cannot be carried out: for example, there is no such network, or several.
    #[error("{0}")]
    Request(String),
    /// A network found errors in the files that it was told to read: its report, several lines.
    #[error("{0}")]
    Diagnosed(String),
    /// An unexpected failure: for example, a network does not answer, or its counters cannot be read.
    #[error("{0}")]
    Failed(String),
}
