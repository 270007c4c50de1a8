//! `ip4-local`: takes the IPv4 packets that are for the router itself.

use crate::local::{Local, V4};

/// Takes the IPv4 packets that are for the router itself.
pub type Ip4Local = Local<V4>;
