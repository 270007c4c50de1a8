//! `ip6-icmp-error`: tells the senders of IPv6 packets why they are not forwarded.

use crate::icmp_error::{IcmpErrors, V6};

/// Tells the senders of IPv6 packets why they are not forwarded.
pub type Ip6IcmpError = IcmpErrors<V6>;
