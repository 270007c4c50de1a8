//! The vhost-user protocol: how a driver's process and a device's process connect and share memory and rings.
//!
//! - [`Backend`]: the device's side. [`Port`]: the engine's end of it.
//! - [`Frontend`]: the driver's side. [`Borrowed`]: the engine's end of it.
//!
//! Each side has a control thread that speaks the protocol, gives rings to the engine, and takes them back when the
//! protocol requires it. The engine checks one word to see whether there is anything to exchange, and never waits.
//!
//! | file | contents |
//! |---|---|
//! | `request.rs` | the requests: their numbers, what they need, and what handles them |
//! | `message.rs`, `channel.rs` | the bodies of messages, and their transport over a socket |
//! | `endpoint.rs`, `policy.rs` | the source of connections, and who may connect |
//! | `control.rs`, `closer.rs` | confinement of threads, pauses between connections, closing of descriptors |
//! | `port.rs`, `ports.rs` | an engine's end: the rings that it has borrowed; the ends of a device |
//! | `backend.rs`, `device/`, `queue.rs`, `regions.rs` | the device's side |
//! | `frontend.rs`, `negotiate.rs` | the driver's side |
//! | `error.rs`, `status.rs` | errors and status |

mod backend;
mod channel;
mod closer;
mod control;
mod device;
mod endpoint;
mod error;
mod frontend;
mod message;
mod negotiate;
mod policy;
mod port;
mod ports;
mod queue;
mod regions;
mod request;
mod status;
#[cfg(test)]
mod tests;

pub use backend::{Backend, BackendConfig, MAX_PAIRS};
pub use bellows_handover::{Bell, Borrowed};
pub use control::Confinement;
pub use error::ProtocolError;
pub use frontend::{DriverFactory, Frontend, FrontendConfig, Negotiated, Placed, QueueLayout, SharedFile};
pub use message::ProtocolFeatures;
pub use policy::PeerPolicy;
pub use port::Port;
pub use request::VhostRequest;
pub use status::{
    BackendStatus, DeviceSide, DriverSide, FrontendStatus, QueueState, QueueStatus, SideStatus, Snapshot,
};

/// Who opens the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// We do, and wait for the other side.
    #[default]
    Server,
    /// The other side does; we connect and retry.
    Client,
}
