//! The control socket: a Unix socket beside a running engine's counters, over which other processes ask it for
//! what only it can do. One request a line, one reply a line, both JSON; `docs/json.md` describes them. Behind some
//! replies there comes a stream.

mod client;
pub mod frame;
mod protocol;
mod server;
mod stream;

pub use client::{Connection, Hangup, OBSTACLE_PATIENCE, REPLY_PATIENCE, ask, ask_within};
pub use protocol::{ReloadReport, Reply, Request, TraceEnd, TraceLine};
pub use server::{Answer, Engine, serve};
pub use stream::{tap, trace};
