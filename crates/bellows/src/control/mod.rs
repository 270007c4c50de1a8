//! The control socket: a Unix socket beside a running engine's counters, over which other processes ask it for
//! what only it can do. One request a line, one reply a line, both JSON; `docs/json.md` describes them.

mod client;
mod protocol;
mod server;

pub use client::ask;
pub use protocol::{ReloadReport, Reply, Request};
pub use server::{Engine, serve};
