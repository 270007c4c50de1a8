//! `ip4-icmp-error`: tells the senders of IPv4 packets why they are not forwarded.

use crate::icmp_error::{IcmpErrors, V4};

/// Tells the senders of IPv4 packets why they are not forwarded.
pub type Ip4IcmpError = IcmpErrors<V4>;
