//! Data about single packets: the hops of traced packets, and the packets that pass a tapped link.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The maximum number of packets that one trace follows.
pub const MAX_TRACED: usize = 10_000;

/// The packets to follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceOrder {
    /// The number of packets.
    pub count: usize,
    /// The app whose next sent packets are followed; by default the packets that any app brings in.
    pub app: Option<String>,
}

/// An app's action on a packet.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum HopKind {
    /// The app sent it on.
    Sent {
        /// Of `sent`: the output.
        port: String,
        /// Of `sent`: the packet's length in bytes.
        length: u32,
        /// Of `sent`: its first 256 bytes.
        bytes: Vec<u8>,
        /// Of `sent`: its tag.
        tag: u32,
        /// Of `sent`: the link type of its outermost header, as numbered by pcap.
        link_type: u32,
    },
    /// The app dropped it.
    Dropped {
        /// Of `dropped`: the drop reason.
        reason: String,
    },
    /// It ended in the app.
    Ended,
}

/// One step on the path of a packet.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Hop {
    /// The packet's number, from 1; copies have the number of their original.
    pub packet: u32,
    /// When it was: nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// The app.
    pub app: String,
    /// The app's action.
    #[serde(flatten)]
    pub what: HopKind,
}

/// A packet that passed a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapRecord {
    /// The time, in nanoseconds since the Unix epoch.
    pub at: u64,
    /// Its length in bytes.
    pub length: u32,
    /// Link type of its outermost header, as numbered by pcap.
    pub link_type: u32,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}
