//! The protocol of the control socket.

use std::io;
use std::path::PathBuf;

use bellows_engine::listing::Listing;
use bellows_engine::{AppStatus, Hop, LinkEnd, ObjectStatus, Reloaded, TrialResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::networks::Access;
use crate::text::foreign_json;

/// The maximum length of a line, in bytes.
pub const MAX_REQUEST: usize = 1 << 20;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Identify the run.
    Status,
    /// End the run as a signal would.
    Stop,
    /// Explain the breath: its calls and their machine code.
    Breath,
    /// Report the states of the apps.
    Apps,
    /// Read the network again, or another one in its place.
    Reload {
        /// The other network's file: an absolute path.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<PathBuf>,
        /// Apps to restart even if they have not changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        restart: Vec<String>,
        /// The time after which the former network is put back unless the change is confirmed, in nanoseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_ns: Option<u64>,
    },
    /// List what is saved.
    Saved,
    /// Keep a change that awaits its confirmation.
    Confirm,
    /// Put back the network before a change that awaits its confirmation.
    Undo,
    /// Follow packets through the network. Lines of [`TraceLine`]s come after the reply.
    Trace {
        /// The number of packets, from 1 to [`MAX_TRACED`](bellows_engine::MAX_TRACED).
        count: usize,
        /// The app whose sent packets are followed; by default packets that any app brings in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        app: Option<String>,
        /// The expression that followed packets match, in the language of pcap-filter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filter: Option<String>,
        /// The maximum duration.
        seconds: f64,
    },
    /// Copy the packets that pass a link: [frames](super::frame) come after the reply.
    Tap {
        /// The link, as written in the network file.
        link: String,
        /// The maximum number of bytes to copy of a packet.
        snap: usize,
    },
    /// Have an app or a shared object answer a request. What it has prepared for further requests of the connection
    /// ends with the connection.
    Object {
        /// Its name. Not needed if only one has the type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Its type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        /// The request, as that type understands it.
        request: serde_json::Value,
        /// Save what it changes, so that it is there again when a network of the name starts.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        save: bool,
        /// What it does there. Only its sender knows.
        #[serde(skip)]
        access: Access,
    },
    /// Find apps that wait for the data of their packets. Lines of [`TrialLine`]s come after the reply.
    #[serde(rename = "look-ahead")]
    LookAhead {
        /// The duration.
        seconds: f64,
    },
}

impl Request {
    /// Whether it changes the network.
    pub fn access(&self) -> Access {
        match self {
            Request::Stop | Request::Reload { .. } | Request::Confirm | Request::Undo => Access::Change,
            Request::Object { access, .. } => *access,
            Request::Status
            | Request::Saved
            | Request::Breath
            | Request::Apps
            | Request::Trace { .. }
            | Request::Tap { .. }
            | Request::LookAhead { .. } => Access::Read,
        }
    }
}

/// A reply of the engine's process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "lowercase")]
pub enum Reply {
    /// To [`Request::Status`].
    Status {
        /// The name of the run.
        name: String,
        /// The process's number.
        pid: u32,
        /// The network's file.
        network: String,
        /// The time since the run began.
        uptime_seconds: f64,
    },
    /// To [`Request::Stop`]: the run is about to end.
    Stopping,
    /// To [`Request::Breath`].
    Breath(Listing),
    /// To [`Request::Apps`].
    Apps {
        /// The apps that report a state.
        apps: Vec<AppStatus>,
        /// The shared objects.
        #[serde(default)]
        objects: Vec<ObjectStatus>,
    },
    /// To [`Request::Saved`].
    Saved {
        /// The file; `None` if there is no state folder.
        file: Option<String>,
        /// What is in there.
        entries: Vec<SavedEntry>,
        /// The file with keys.
        #[serde(default)]
        keys_file: Option<String>,
        /// What is said of the keys in there.
        #[serde(default)]
        keys: Vec<SavedKey>,
    },
    /// To [`Request::Reload`] and [`Request::Undo`].
    Reloaded(ReloadReport),
    /// To [`Request::Confirm`]: the change stays.
    Confirmed {
        /// The network's file.
        network: String,
        /// The time that was left.
        seconds_left: u64,
    },
    /// To [`Request::Trace`]: packets are being followed.
    Tracing,
    /// To [`Request::Tap`]: packets are being copied.
    Tapping,
    /// To [`Request::Object`].
    Answer {
        /// The name of the app or object.
        name: String,
        /// Its answer.
        answer: serde_json::Value,
    },
    /// To [`Request::LookAhead`]: the trial has begun.
    Trying,
    /// The request was rejected or failed.
    Refused {
        /// Whether the request is wrong. Otherwise something else failed.
        mistake: bool,
        /// The error, possibly several lines.
        message: String,
    },
}

/// A route or a neighbour that is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedEntry {
    /// The routing domain.
    pub vrf: String,
    /// `route` or `neighbour`.
    pub what: String,
    /// The command that enters it.
    pub command: String,
    /// Why it could not be entered when the network started.
    pub problem: Option<String>,
}

/// A key of IPsec that is saved: all but the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedKey {
    /// The app.
    pub app: String,
    /// Its pair.
    pub pair: String,
    /// `inbound` or `outbound`.
    pub direction: String,
    /// The security parameters index.
    pub spi: u32,
    /// The cipher.
    pub algorithm: String,
    /// When it was saved, in nanoseconds since 1970.
    pub saved_unix_ns: u64,
    /// Why it could not be used when the network started.
    pub problem: Option<String>,
}

/// The stream of a trace, one on each line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum TraceLine {
    /// A step of a packet.
    Hop {
        /// The packet, the app and the time.
        #[serde(flatten)]
        hop: Hop,
        /// The input that the output leads to, if the packet was sent on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    /// The end of the stream.
    End {
        /// The reason.
        why: TraceEnd,
    },
}

/// The reason for the end of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceEnd {
    /// All packets have ended.
    Complete,
    /// The time is over.
    Time,
    /// The client requested it.
    Requested,
    /// The maximum number of steps was reached.
    Steps,
    /// The app to follow from no longer exists.
    Gone,
    /// The run is over.
    Over,
}

/// The stream of a trial of look-ahead, one on each line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum TrialLine {
    /// The trial goes on.
    Progress {
        /// The number of calls so far.
        calls: usize,
    },
    /// The end of the stream.
    End {
        /// The reason.
        why: TrialEnd,
        /// What was found about each app that was called.
        results: Vec<TrialResult>,
    },
}

/// The reason for the end of a trial of look-ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialEnd {
    /// The time is over.
    Time,
    /// The client requested it.
    Requested,
    /// The network was reloaded, or the run is over.
    Over,
}

/// The result of a reload, with warnings.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Reload")]
pub struct ReloadReport {
    /// The engine's report.
    #[serde(flatten)]
    pub reloaded: Reloaded,
    /// Sentences.
    ///
    /// Parts of the request that could not be carried out, in sentences.
    pub warnings: Vec<String>,
    /// With `--confirm`: the time after which the former network is put back unless this one is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_ns: Option<u64>,
}

impl From<Reloaded> for ReloadReport {
    fn from(mut reloaded: Reloaded) -> ReloadReport {
        let unfinished = std::mem::take(&mut reloaded.unfinished).into_iter();
        let warnings = unfinished.map(|(app, reason)| format!("app `{app}` could not finish: {reason}")).collect();
        ReloadReport { reloaded, warnings, confirm_ns: None }
    }
}

impl Reply {
    /// Whether apps and objects have names that networks can have.
    fn has_names(&self) -> bool {
        match self {
            Reply::Apps { apps, objects } => {
                let apps = apps.iter().map(|app| &app.app);
                apps.chain(objects.iter().map(|object| &object.object)).all(|name| LinkEnd::is_name(name))
            }
            Reply::Answer { name, .. } => LinkEnd::is_name(name),
            Reply::Saved { entries, keys, .. } => {
                let names = keys.iter().flat_map(|key| [&key.app, &key.pair]);
                entries.iter().map(|entry| &entry.vrf).chain(names).all(|name| LinkEnd::is_name(name))
            }
            _ => true,
        }
    }
}

/// The reply in a line, perhaps of another user's process: its names are those that networks can have, and its texts are
/// harmless for a terminal.
///
/// # Errors
/// If it is not a reply.
pub fn reply(line: &[u8]) -> io::Result<Reply> {
    let reply: Reply = foreign_json(line)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "its reply has names that no network can have");
    if reply.has_names() { Ok(reply) } else { Err(wrong()) }
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
