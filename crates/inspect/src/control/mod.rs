//! The client's side of a running engine's control socket, and what goes over it. One request a line, one reply a line,
//! both JSON; `docs/json.md` describes them. Behind some replies there comes a stream.

mod client;
pub mod frame;
mod protocol;

pub use client::{
    Connection, DeadlineStream, Hangup, OBSTACLE_PATIENCE, RELOAD_PATIENCE, REPLY_PATIENCE, ask, ask_within,
};
pub use protocol::{MAX_REQUEST, ReloadReport, Reply, Request, TraceEnd, TraceLine, line_of};
