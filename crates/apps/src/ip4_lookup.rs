//! `ip4-lookup`: finds the adjacencies of IPv4 packets.

use crate::forwarding::family::V4;
use crate::lookup::LookUp;

/// Finds the adjacencies of IPv4 packets.
pub type Ip4LookUp = LookUp<V4>;
