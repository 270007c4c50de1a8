//! `ip4-rewrite`: sends IPv4 packets to their next hops.

use crate::forwarding::family::V4;
use crate::rewrite::Rewrite;

/// Sends IPv4 packets to their next hops.
pub type Ip4Rewrite = Rewrite<V4>;
