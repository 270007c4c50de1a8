//! The engine's side of the control socket: a Unix socket beside a running engine's counters, over which other processes
//! ask it for what only it can do. What goes over it, and the side that asks, are in `bellows-inspect`.

mod server;
mod stream;

pub use server::{Answer, Engine, serve};
pub use stream::{tap, trace};
