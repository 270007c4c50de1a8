//! The vhost-user protocol: how a driver's process and a device's process find each other and share memory and rings.
//!
//! - [`Frontend`]: the driver's side.
//!
//! Each side has a control thread that speaks the protocol and hands what runs to the engine, and takes it back when the
//! protocol wants it. The engine looks at one word to see whether anything is to be exchanged, and never waits.

mod frontend;
mod handover;

pub use frontend::{DriverPort, Frontend, FrontendConfig, Layout, Negotiated, Placed, QueueLayout, SharedFile};
pub use handover::Bell;

/// Who opens the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// We do, and wait for the other side.
    #[default]
    Server,
    /// The other side does; we connect, again and again.
    Client,
}
