//! What those see who watch single packets: the hops of traced packets, and the packets that pass a tapped link.

use serde::{Deserialize, Serialize};

/// The most packets that one trace follows.
pub const MAX_TRACED: usize = 10_000;

/// Which packets to follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceOrder {
    /// How many.
    pub count: usize,
    /// From where on: the next ones that this app sends; by default those that any app brings in.
    pub app: Option<String>,
}

/// What happened to a packet at an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum HopKind {
    /// The app sent it on.
    Sent {
        /// Through this output.
        port: String,
        /// Its length in bytes.
        length: u32,
        /// Its first 256 bytes.
        bytes: Vec<u8>,
        /// Its tag.
        tag: u32,
        /// Link type of its outermost header, as numbered by pcap.
        link_type: u32,
    },
    /// The app dropped it.
    Dropped {
        /// The counter that counted it.
        reason: String,
    },
    /// It came to its end in the app.
    Ended,
}

/// One step on the way of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The packet's number, from 1. Copies keep it.
    pub packet: u32,
    /// When: nanoseconds since the Unix epoch.
    pub at: u64,
    /// The app.
    pub app: String,
    /// What it did.
    #[serde(flatten)]
    pub what: HopKind,
}

/// A packet that passed a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapRecord {
    /// When: nanoseconds since the Unix epoch.
    pub at: u64,
    /// Its length in bytes.
    pub length: u32,
    /// Link type of its outermost header, as numbered by pcap.
    pub link_type: u32,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}
