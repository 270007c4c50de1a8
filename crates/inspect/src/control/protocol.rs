//! What goes over the control socket.

use std::io;
use std::path::PathBuf;

use bellows_engine::listing::Listing;
use bellows_engine::{AppStatus, Hop, Reloaded};
use serde::{Deserialize, Serialize};

/// The longest line that either side accepts, in bytes.
pub const MAX_REQUEST: usize = 64 << 10;

/// What a client may ask for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Who is there?
    Status,
    /// End the run as a signal would.
    Stop,
    /// How are the breaths taken?
    Breath,
    /// What do the apps tell of themselves?
    Apps,
    /// Read the network again, or another one in its place.
    Reload {
        /// The other network's file: an absolute path.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<PathBuf>,
        /// Apps that are to be started again though they have not changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        restart: Vec<String>,
    },
    /// Follow packets through the network: lines of [`TraceLine`]s come behind the reply.
    Trace {
        /// How many packets, from 1 to [`MAX_TRACED`](bellows_engine::MAX_TRACED).
        count: usize,
        /// The app from which they are followed on; else those that any app brings in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        app: Option<String>,
        /// For how long at most.
        seconds: f64,
    },
    /// Copy the packets that pass a link: [frames](super::frame) come behind the reply.
    Tap {
        /// The link, as written in the network file.
        link: String,
        /// The most bytes to copy of a packet.
        snap: usize,
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
    /// To [`Request::Apps`].
    Apps {
        /// Those that tell anything.
        apps: Vec<AppStatus>,
    },
    /// To [`Request::Reload`].
    Reloaded(ReloadReport),
    /// To [`Request::Trace`]: from now on, packets are followed.
    Tracing,
    /// To [`Request::Tap`]: from now on, packets are copied.
    Tapping,
    /// It could not be done.
    Refused {
        /// Whether the caller made a mistake; else something failed.
        mistake: bool,
        /// What is wrong; may have several lines.
        message: String,
    },
}

/// What comes while packets are followed, a line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum TraceLine {
    /// A packet made a step.
    Hop {
        /// Which, where and when.
        #[serde(flatten)]
        hop: Hop,
        /// The input that the output leads to, if it was sent on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    /// Nothing more will come.
    End {
        /// Because of this.
        why: TraceEnd,
    },
}

/// Why a trace has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceEnd {
    /// All packets have ended.
    Complete,
    /// The time is over.
    Time,
    /// The client wished it.
    Wished,
    /// There were more steps than anybody will read.
    Steps,
    /// The app that was to begin is no longer there.
    Gone,
    /// The run is over.
    Over,
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

/// A value as a line of JSON.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn line_of(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}
