//! What a client cannot exceed.

use std::time::Duration;

/// The limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size of a request's head, in bytes; at least 8,192.
    pub head_bytes: usize,
    /// The number of fields of a head.
    pub head_fields: usize,
    /// The length of a target: path and query, in bytes.
    pub target_bytes: usize,
    /// The size of a request's body, in bytes.
    pub body_bytes: usize,
    /// The number of connections at a time of clients that know the token, or without one have sent a whole request.
    /// A further one takes the place of one that is idle; if none is, its request gets the status 503.
    pub connections: usize,
    /// The number of other connections at a time: of clients that are silent or do not know the token. A further one
    /// takes the place of the oldest, which gets the status 503.
    pub strangers: usize,
    /// The time for a whole head, from the connection or from the end of the previous answer. A connection that is idle
    /// for this time is closed.
    pub head_time: Duration,
    /// The time for a whole body.
    pub body_time: Duration,
    /// The time for which a client may take nothing of its answer, or fall behind [`min_rate`](Limits::min_rate).
    pub stall_time: Duration,
    /// The rate at which a client must take its answers while the server waits for it, in bytes a second; at least 1.
    pub min_rate: usize,
    /// The time that answers in progress have when the server ends.
    pub stop_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes: 8_192,
            head_fields: 64,
            target_bytes: 2_048,
            body_bytes: 65_536,
            connections: 64,
            strangers: 256,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(10),
            stall_time: Duration::from_secs(10),
            min_rate: 16_384,
            stop_time: Duration::from_secs(1),
        }
    }
}
