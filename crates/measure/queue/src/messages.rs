//! The messages of a queue, as JSON.

use bellows_campaign::{Hash, Row, RunId, WorkerState};
use serde::{Deserialize, Serialize};

use crate::error::QueueError;

/// The version of the messages.
pub(crate) const VERSION: u32 = 1;

/// The campaign of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CampaignRecord {
    pub(crate) version: u32,
    pub(crate) name: String,
    /// The hash of the campaign.
    pub(crate) hash: Hash,
    /// The campaign file's name, for errors in it.
    pub(crate) file: String,
    /// The campaign file.
    pub(crate) text: String,
}

/// A block to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) campaign: Hash,
    pub(crate) block: u32,
    /// The combinations that are made, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) only: Option<Vec<u32>>,
}

/// Who was given a block last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) claim: String,
    pub(crate) worker: String,
    pub(crate) host: String,
    pub(crate) block: u32,
    /// How often the block was given out, this time included.
    pub(crate) attempt: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delivery {
    pub(crate) claim: String,
    pub(crate) worker: String,
    pub(crate) attempt: u64,
    /// The number of runs of the claim.
    pub(crate) of: u32,
    /// The worker's clock less that of the server, in nanoseconds.
    pub(crate) clock_ns: i64,
    pub(crate) row: Row,
}

/// A worker as it says itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkerReport {
    pub(crate) worker: String,
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) state: WorkerState,
    pub(crate) block: Option<u32>,
    pub(crate) attempt: u64,
    pub(crate) run: Option<RunId>,
    /// How long this run has taken so far, in seconds.
    pub(crate) run_seconds: f64,
    /// The numbers of runs and blocks that it has delivered.
    pub(crate) runs: u64,
    pub(crate) blocks: u64,
    /// Its clock less that of the server, in nanoseconds.
    pub(crate) clock_ns: i64,
}

/// The coordinator as it says itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CoordinatorReport {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) folder: String,
    pub(crate) has_ended: bool,
}

/// The newest record of the register of hypotheses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RegisterReport {
    pub(crate) head: Option<Hash>,
}

/// A message as bytes.
pub(crate) fn bytes(message: &impl Serialize) -> Vec<u8> {
    // Writing into memory does not fail, and no message has a map with keys other than text.
    serde_json::to_vec(message).unwrap_or_default()
}

/// A message of bytes.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(what: &'static str, bytes: &[u8]) -> Result<T, QueueError> {
    serde_json::from_slice(bytes).map_err(|error| QueueError::Message { what, why: error.to_string() })
}
