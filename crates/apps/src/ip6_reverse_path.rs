//! `ip6-reverse-path`: checks the sources of IPv6 packets.

use crate::forwarding::family::V6;
use crate::reverse_path::ReversePathCheck;

/// Checks the sources of IPv6 packets.
pub type Ip6ReversePath = ReversePathCheck<V6>;
