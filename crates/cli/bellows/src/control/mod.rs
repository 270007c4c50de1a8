//! The engine's side of the control socket: a Unix socket beside a running engine's counters. Other processes send it
//! requests that only the engine can answer. The protocol and the client are in `bellows-inspect`.

mod conversations;
mod server;
mod stream;
mod trial;

pub use conversations::Conversations;
pub use server::{ControlAnswer, Engine, serve};
pub use stream::{tap, trace};
pub use trial::try_look_ahead;
