//! The vhost-user protocol: how a driver's process and a device's process find each other and share memory and rings.
//!
//! - [`Backend`]: the device's side. [`Port`]: what the engine has of it.
//! - [`Frontend`]: the driver's side. [`DriverPort`]: what the engine has of it.
//!
//! Each side has a control thread that speaks the protocol and hands what runs to the engine, and takes it back when the
//! protocol wants it. The engine looks at one word to see whether anything is to be exchanged, and never waits.
//!
//! | file | what it holds |
//! |---|---|
//! | `message.rs`, `channel.rs` | messages, and how they come and go over a socket |
//! | `endpoint.rs`, `policy.rs` | where connections come from, and who may connect |
//! | `control.rs`, `closer.rs`, `bucket.rs` | how a thread is confined and ends, who closes descriptors, how much is logged |
//! | `handover/`, `port.rs` | handing rings over |
//! | `backend.rs`, `device/`, `queue.rs`, `regions.rs` | the device's side |
//! | `frontend.rs`, `negotiate.rs` | the driver's side |
//! | `error.rs`, `status.rs` | what can go wrong, and what can be said |

mod backend;
mod bucket;
mod channel;
mod closer;
mod control;
mod device;
mod endpoint;
mod error;
mod frontend;
mod handover;
mod message;
mod negotiate;
mod policy;
mod port;
mod queue;
mod regions;
mod signal;
mod status;
#[cfg(test)]
mod tests;

pub use backend::{Backend, BackendConfig, MAX_PAIRS};
pub use control::Confinement;
pub use error::ProtocolError;
pub use frontend::{DriverPort, Frontend, FrontendConfig, Layout, Negotiated, Placed, QueueLayout, SharedFile};
pub use handover::Bell;
pub use message::ProtocolFeatures;
pub use policy::PeerPolicy;
pub use port::Port;
pub use status::{
    BackendStatus, DeviceSide, DriverSide, FrontendStatus, QueueState, QueueStatus, SideStatus, Snapshot,
};

/// Who opens the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// We do, and wait for the other side.
    #[default]
    Server,
    /// The other side does; we connect, again and again.
    Client,
}
