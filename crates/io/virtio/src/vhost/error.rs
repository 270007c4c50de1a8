//! The errors of the protocol.

use std::io;

use crate::MapError;

/// The reason why a request was refused or a connection closed. Each kind is counted under its
/// [name](ProtocolError::name).
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
    /// The other side closed the socket in the middle of a message.
    #[error("the other side closed the socket in the middle of a message")]
    CutOff,
    /// The rest of a message did not come.
    #[error("the other side began a message and did not finish it within {0} seconds")]
    Stalled(u64),
    /// The other side does not read what we send.
    #[error("the other side has not read its replies for {0} seconds")]
    Unread(u64),
    /// The other side does not answer.
    #[error("the other side has not answered {request} within {seconds} seconds")]
    Unanswered {
        /// The request.
        request: &'static str,
        /// The time we waited.
        seconds: u64,
    },
    /// The flags of a message are not those of this version of the protocol.
    #[error("a message has the flags {0:#x}, which are not those of version 1 of the protocol")]
    Version(u32),
    /// A reply came instead of a request, a request instead of a reply, or the reply to another request.
    #[error("an unexpected message of type {0}")]
    Unexpected(u32),
    /// A message is longer than the maximum.
    #[error("a message of type {request} has {size} bytes, but the maximum is {most}")]
    TooLong {
        /// Its type.
        request: u32,
        /// Its size.
        size: u32,
        /// The maximum size.
        most: usize,
    },
    /// A message has the wrong size for its type.
    #[error("{request} has {size} bytes, which is the wrong size")]
    Size {
        /// The request.
        request: &'static str,
        /// Its size.
        size: usize,
    },
    /// A message has too many or too few descriptors.
    #[error("{request} came with {files} descriptors, which is the wrong number")]
    Files {
        /// The request.
        request: &'static str,
        /// Number of descriptors that came.
        files: usize,
    },
    /// Descriptors that came are not closed yet, because closing one of them blocks.
    #[error("{0} descriptors that came from the other side are not closed yet: closing one of them blocks")]
    Unclosed(usize),
    /// The user on the other side is not allowed.
    #[error("user {uid} (process {pid}) is on the other side, but is not in `peer_users`")]
    Peer {
        /// The user.
        uid: u32,
        /// The process.
        pid: u32,
    },
    /// A descriptor is not an event.
    #[error("{request} came with a descriptor that is not an eventfd")]
    NotAnEvent {
        /// The request.
        request: &'static str,
    },
    /// An unknown request.
    #[error("a request of unknown type {0}")]
    Unknown(u32),
    /// A request whose feature was not negotiated.
    #[error("{request} was sent although {feature} was not negotiated")]
    NotNegotiated {
        /// The request.
        request: &'static str,
        /// The feature that it needs.
        feature: &'static str,
    },
    /// Features were accepted that were not offered.
    #[error("the driver accepted the features {0:#x}, which were not offered")]
    NotOffered(u64),
    /// There is no such queue.
    #[error("{request} names ring {queue}, but there are only {queues}, counted from 0, two for each pair of queues")]
    Queue {
        /// The request.
        request: &'static str,
        /// The queue.
        queue: u32,
        /// Number of rings.
        queues: usize,
    },
    /// A value that is not allowed.
    #[error("{request} has the value {value:#x}, which is not allowed")]
    Value {
        /// The request.
        request: &'static str,
        /// The value.
        value: u64,
    },
    /// Memory that cannot be shared.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// A log, or a region of inflight descriptors, that cannot be mapped or is too small; or an unusable event.
    #[error("{request}: {source}")]
    Map {
        /// The request.
        request: &'static str,
        /// The error.
        source: io::Error,
    },
    /// There is no such memory region.
    #[error("the memory region at {guest:#x} cannot be removed, because it does not exist")]
    NoRegion {
        /// Its first address.
        guest: u64,
    },
    /// More memory regions than there are slots.
    #[error("more than {0} memory regions")]
    Regions(usize),
    /// The driver for a device could not be created.
    #[error("cannot place the driver's rings: {0}")]
    Driver(io::Error),
    /// The engine gave a driver up, because of an error of the device.
    #[error("the device violated the virtio specification")]
    DriverFailed,
    /// The other side refused a request.
    #[error("the other side refused {0}")]
    Refused(&'static str),
    /// The other side lacks a feature that we need.
    #[error("the other side does not offer {0}")]
    Lacks(&'static str),
}

impl ProtocolError {
    /// The name under which it is counted.
    pub fn name(&self) -> &'static str {
        match self {
            ProtocolError::Socket(_) => "socket_failed",
            ProtocolError::CutOff => "message_cut_off",
            ProtocolError::Stalled(_) => "message_stalled",
            ProtocolError::Unread(_) => "replies_unread",
            ProtocolError::Unanswered { .. } => "unanswered",
            ProtocolError::Version(_) => "message_version",
            ProtocolError::Unexpected(_) => "message_unexpected",
            ProtocolError::TooLong { .. } => "message_too_long",
            ProtocolError::Size { .. } => "message_size",
            ProtocolError::Files { .. } => "descriptor_count",
            ProtocolError::Unclosed(_) => "descriptors_unclosed",
            ProtocolError::Peer { .. } => "peer_refused",
            ProtocolError::NotAnEvent { .. } => "descriptor_kind",
            ProtocolError::Unknown(_) => "request_unknown",
            ProtocolError::NotNegotiated { .. } => "request_not_negotiated",
            ProtocolError::NotOffered(_) => "features_not_offered",
            ProtocolError::Queue { .. } => "queue_unknown",
            ProtocolError::Value { .. } => "value_not_allowed",
            ProtocolError::Memory(_) => "memory_unusable",
            ProtocolError::Map { .. } => "mapping_unusable",
            ProtocolError::NoRegion { .. } => "memory_unknown",
            ProtocolError::Regions(_) => "memory_slots",
            ProtocolError::Driver(_) => "driver_unusable",
            ProtocolError::DriverFailed => "driver_failed",
            ProtocolError::Refused(_) => "refused",
            ProtocolError::Lacks(_) => "not_offered",
        }
    }

    /// Whether the connection is still usable: a refusal can be sent to the other side, if it wants replies.
    pub(super) fn is_refusal(&self) -> bool {
        use ProtocolError::{
            CutOff, Files, Peer, Size, Socket, Stalled, TooLong, Unanswered, Unclosed, Unexpected, Unread, Version,
        };
        !matches!(
            self,
            Socket(_)
                | CutOff
                | Stalled(_)
                | Unread(_)
                | Unanswered { .. }
                | Version(_)
                | Unexpected(_)
                | TooLong { .. }
                | Size { .. }
                | Files { .. }
                | Unclosed(_)
                | Peer { .. }
        )
    }

    /// Whether it only means that the other side has gone.
    pub(super) fn is_closing(&self) -> bool {
        let ProtocolError::Socket(error) = self else { return false };
        matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
    }
}
