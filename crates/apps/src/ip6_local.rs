//! `ip6-local`: takes the IPv6 packets that are for the router itself.

use crate::local::{Local, V6};

/// Takes the IPv6 packets that are for the router itself.
pub type Ip6Local = Local<V6>;
