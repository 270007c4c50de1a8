//! What goes over the control socket.

use std::path::PathBuf;

use bellows_engine::Reloaded;
use bellows_engine::listing::Listing;
use serde::{Deserialize, Serialize};

/// The longest line that either side accepts, in bytes.
pub const LONGEST_REQUEST: usize = 64 << 10;

/// What a client may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Who is there?
    Status,
    /// End the run as a signal would.
    Stop,
    /// How are the breaths taken?
    Breath,
    /// Read the network again, or another one in its place.
    Reload {
        /// The other network's file: an absolute path.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<PathBuf>,
    },
}

/// What the engine's process answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "lowercase")]
pub enum Reply {
    /// To [`Request::Status`].
    Status {
        /// The name of the run.
        name: String,
        /// The process.
        pid: u32,
        /// The network's file.
        network: String,
        /// How long it has been running.
        uptime_seconds: f64,
    },
    /// To [`Request::Stop`]: the run is about to end.
    Stopping,
    /// To [`Request::Breath`].
    Breath(Listing),
    /// To [`Request::Reload`].
    Reloaded(ReloadReport),
    /// It could not be done.
    Refused {
        /// Whether the caller made a mistake; else something failed.
        mistake: bool,
        /// What is wrong; may have several lines.
        message: String,
    },
}

/// What a reload did, and what is to be said of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// What the engine says.
    #[serde(flatten)]
    pub reloaded: Reloaded,
    /// What could not be done as asked, in sentences.
    pub warnings: Vec<String>,
}

impl From<Reloaded> for ReloadReport {
    fn from(mut reloaded: Reloaded) -> ReloadReport {
        let unfinished = std::mem::take(&mut reloaded.unfinished).into_iter();
        let warnings = unfinished.map(|(app, reason)| format!("app `{app}` could not finish: {reason}")).collect();
        ReloadReport { reloaded, warnings }
    }
}
