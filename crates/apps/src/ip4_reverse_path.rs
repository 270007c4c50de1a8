//! `ip4-reverse-path`: checks the sources of IPv4 packets.

use crate::forwarding::family::V4;
use crate::reverse_path::ReversePathCheck;

/// Checks the sources of IPv4 packets.
pub type Ip4ReversePath = ReversePathCheck<V4>;
