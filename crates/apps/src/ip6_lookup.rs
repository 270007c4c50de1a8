//! `ip6-lookup`: finds the adjacencies of IPv6 packets.

use crate::forwarding::family::V6;
use crate::lookup::LookUp;

/// Finds the adjacencies of IPv6 packets.
pub type Ip6LookUp = LookUp<V6>;
