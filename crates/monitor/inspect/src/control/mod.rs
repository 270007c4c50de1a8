//! The client's side of a running engine's control socket, and its protocol. Each request and each reply is one line of
//! JSON; `docs/json.md` describes them. Some replies are followed by a stream.

mod client;
pub mod frame;
mod protocol;

pub use client::{
    Connection, DeadlineStream, Hangup, OBSTACLE_TIMEOUT, RELOAD_TIMEOUT, REPLY_TIMEOUT, ask, ask_within,
};
pub use protocol::{
    Confirmation, MAX_REQUEST, ReloadReport, Reply, Request, SavedChanges, SavedEntry, SavedKey, TraceEnd, TraceLine,
    TrialEnd, TrialLine, line_of,
};
