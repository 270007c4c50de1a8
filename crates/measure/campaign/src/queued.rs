//! What the queue of a campaign has, as its server and its workers say.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{Hash, RunId};

/// What a queue has.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Queue")]
pub struct QueueStatus {
    /// Its name.
    pub queue: String,
    /// The address of the server.
    pub server: String,
    /// The name of the campaign.
    pub name: String,
    /// The hash of the campaign.
    pub hash: Hash,
    /// The SHA-256 of the campaign file.
    pub sha256: String,
    /// Blocks that no worker was given yet, or that were given back.
    pub blocks_waiting: u64,
    /// Blocks that workers have.
    pub blocks_given: u64,
    /// Runs delivered so far, with those of abandoned blocks and those that were delivered twice.
    pub results: u64,
    /// The time without a sign of life after which a worker's block is given to another one.
    pub lease_seconds: f64,
    /// The last coordinator; null if none has reported yet.
    pub coordinator: Option<CoordinatorStatus>,
    /// The workers, the one that was heard of last first.
    pub workers: Vec<WorkerStatus>,
}

/// The coordinator of a queue.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Coordinator")]
pub struct CoordinatorStatus {
    /// The name of its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Its folder of results.
    pub folder: String,
    /// Whether it has ended.
    pub has_ended: bool,
    /// The time since it was last heard of.
    pub last_seen_seconds: f64,
}

/// A worker of a queue.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Worker of a queue")]
pub struct WorkerStatus {
    /// Its name.
    pub worker: String,
    /// The name of its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// What it does.
    pub state: WorkerState,
    /// Whether it was not heard of for longer than the lease: it is dead, stopped, or cannot reach the server.
    pub is_lost: bool,
    /// The block that it makes; null if it makes none.
    pub block: Option<u32>,
    /// How often that block was given out.
    pub attempt: u64,
    /// The id of the run that it makes; null if it makes none.
    pub run: Option<RunId>,
    /// How long that run has taken so far; 0 without a run.
    pub run_seconds: f64,
    /// Runs of the blocks that it has delivered as a whole.
    pub runs: u64,
    /// Blocks that it has delivered as a whole.
    pub blocks: u64,
    /// Its clock less that of the server.
    pub clock_seconds: f64,
    /// The time since it was last heard of.
    pub last_seen_seconds: f64,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerState {
    /// It waits for a block.
    Waiting,
    /// It makes a block.
    Running,
    /// It has ended.
    Ended,
}
