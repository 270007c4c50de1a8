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
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
#[schemars(title = "Plain request")]
pub enum Request {
    /// Tell which run it is; [reply](#reply-with-the-run).
    Status,
    /// End the run as a signal would; [reply](#plain-reply).
    Stop,
    /// Explain its breaths: their calls and machine code; [reply](#reply-with-breaths).
    Breath,
    /// Tell the states of its apps and shared objects; [reply](#reply-with-states).
    Apps,
    /// Read the network again, or another one in its place; [reply](#reply-to-a-reload).
    #[schemars(title = "Request to reload")]
    Reload {
        /// An absolute path: another network file in place of that of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<PathBuf>,
        /// Apps to restart even if they have not changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        restart: Vec<String>,
        /// The time after which the former network is put back unless a request `confirm` comes: 1 s to 24 h.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_ns: Option<u64>,
    },
    /// List what commands have saved; [reply](#reply-with-what-is-saved).
    Saved,
    /// Keep the change that awaits its confirmation; [reply](#reply-to-a-confirmation).
    Confirm,
    /// Put the network before it back; [reply](#reply-to-a-reload).
    Undo,
    /// Follow packets; [reply](#plain-reply) and [stream](#the-stream-of-a-trace).
    ///
    /// Lines of [`TraceLine`]s come after the reply.
    #[schemars(title = "Request for a trace")]
    Trace {
        /// How many packets to follow, from 1 to 10,000.
        count: usize,
        /// Follow the packets that this app sends; without it, those that any app brings in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        app: Option<String>,
        /// Follow only packets that match this [expression](filtering.md).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filter: Option<String>,
        /// After this time the trace ends.
        seconds: f64,
    },
    /// Copy the packets that pass a link; [reply](#plain-reply) and [stream](#the-stream-of-a-tap).
    ///
    /// [Frames](super::frame) come after the reply.
    #[schemars(title = "Request for a tap")]
    Tap {
        /// The link, as written in the file: `a.output -> b.input`.
        link: String,
        /// Copy at most this number of bytes of each packet.
        snap: usize,
    },
    /// Have an app or shared object answer a request; [reply](#answer).
    ///
    /// What it has prepared for further requests of the connection ends with the connection.
    #[schemars(title = "Request to an app or shared object")]
    Object {
        /// The name of the app or shared object; may be absent if there is only one of the type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Its type; may be absent if there is a name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        /// The request, which depends on the type: a [routing domain](#requests-to-a-routing-domain), a [table of MAC
        /// addresses](#requests-to-a-table-of-mac-addresses), [`esp`](#requests-to-esp), or a type [of your
        /// own](writing-an-app.md#requests).
        request: serde_json::Value,
        /// Whether changes of routes and neighbours, and new keys, are there again when a network of the name starts.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        save: bool,
        /// What it does there. Only its sender knows.
        #[serde(skip)]
        access: Access,
    },
    /// Find apps that wait for the data of their packets; [reply](#plain-reply) and
    /// [stream](#the-stream-of-a-trial-of-look-ahead).
    ///
    /// Lines of [`TrialLine`]s come after the reply.
    #[serde(rename = "look-ahead")]
    #[schemars(title = "Request for a trial of look-ahead")]
    LookAhead {
        /// After this time the trial ends; at most 600.
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
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "lowercase")]
#[schemars(title = "Plain reply")]
pub enum Reply {
    /// To `status`.
    #[schemars(title = "Reply with the run")]
    Status {
        /// The name of the run.
        name: String,
        /// Its process.
        pid: u32,
        /// The network file as named on the command line.
        network: String,
        /// The time since it began.
        uptime_seconds: f64,
    },
    /// To `stop`: the run is about to end.
    Stopping,
    /// To `breath`.
    #[schemars(title = "Reply with breaths", extend("includes" = ["Breath"]))]
    Breath(Listing),
    /// To `apps`.
    #[schemars(title = "Reply with states")]
    Apps {
        /// The apps that have a status, in the order of the network file.
        apps: Vec<AppStatus>,
        /// The shared objects.
        #[serde(default)]
        objects: Vec<ObjectStatus>,
    },
    /// To `saved`.
    #[schemars(title = "Reply with what is saved", extend("includes" = ["Saved changes"]))]
    Saved(SavedChanges),
    /// To `reload` and `undo`.
    #[schemars(title = "Reply to a reload", extend("includes" = ["Reload"]))]
    Reloaded(ReloadReport),
    /// To `confirm`.
    #[schemars(title = "Reply to a confirmation", extend("includes" = ["Confirmed change"]))]
    Confirmed(Confirmation),
    /// To `trace`: packets are being followed.
    Tracing,
    /// To `tap`: packets are being copied.
    Tapping,
    /// To `object`.
    #[schemars(title = "Answer")]
    Answer {
        /// The name of the app or shared object.
        name: String,
        /// Its answer, which depends on the request.
        answer: serde_json::Value,
    },
    /// To `look-ahead`: the trial has begun.
    Trying,
    /// Any request may be.
    #[schemars(title = "Refusal")]
    Refused {
        /// Whether the caller can fix it.
        mistake: bool,
        /// What is wrong; perhaps several lines.
        message: String,
    },
}

/// A change that stays.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Confirmed change")]
pub struct Confirmation {
    /// The network file that stays.
    pub network: String,
    /// The time that was left, rounded up.
    pub seconds_left: u64,
}

/// What commands have saved.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Saved changes")]
pub struct SavedChanges {
    /// The file; null if there is no state folder.
    pub file: Option<String>,
    /// What is in there.
    pub entries: Vec<SavedEntry>,
    /// The file with keys of IPsec; null if there is no state folder.
    #[serde(default)]
    pub keys_file: Option<String>,
    /// What is said of the keys in there: all but the keys.
    #[serde(default)]
    pub keys: Vec<SavedKey>,
}

/// A route or a neighbour that is saved.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Saved entry")]
pub struct SavedEntry {
    /// The routing domain.
    pub vrf: String,
    /// `route` or `neighbour`.
    #[schemars(extend("enum" = ["route", "neighbour"]))]
    pub what: String,
    /// The command that enters it when the network starts.
    pub command: String,
    /// Why that was not possible; null if it was.
    pub problem: Option<String>,
}

/// A key of IPsec that is saved: all but the key.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Saved key")]
pub struct SavedKey {
    /// The app.
    pub app: String,
    /// Its pair of associations.
    pub pair: String,
    /// What the key is for: `inbound` or `outbound`.
    #[schemars(extend("enum" = ["inbound", "outbound"]))]
    pub direction: String,
    /// Its SPI.
    pub spi: u32,
    /// Its cipher.
    pub algorithm: String,
    /// When it was saved, in nanoseconds since 1970.
    pub saved_unix_ns: u64,
    /// Why it could not be used when the network started; null if it could.
    pub problem: Option<String>,
}

/// The stream of a trace, one on each line.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum TraceLine {
    /// A step of a packet.
    #[schemars(title = "Hop")]
    Hop {
        /// The packet, the app and the time.
        #[serde(flatten)]
        hop: Hop,
        /// Of `sent`: the linked input (`app.input`), if the link is there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    /// The end of the stream.
    #[schemars(title = "End of a trace")]
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
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum TrialLine {
    /// The trial goes on.
    #[schemars(title = "Progress of a trial")]
    Progress {
        /// The number of calls so far.
        calls: usize,
    },
    /// The end of the stream.
    #[schemars(title = "End of a trial")]
    End {
        /// The reason.
        why: TrialEnd,
        /// Each app that had calls with at least 8 packets in the trial.
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
            Reply::Saved(SavedChanges { entries, keys, .. }) => {
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
