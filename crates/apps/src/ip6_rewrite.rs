//! `ip6-rewrite`: sends IPv6 packets to their next hops.

use crate::forwarding::family::V6;
use crate::rewrite::Rewrite;

/// Sends IPv6 packets to their next hops.
pub type Ip6Rewrite = Rewrite<V6>;
