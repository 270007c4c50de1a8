//! The kernel's network interfaces.
//!
//! | module | contents |
//! |---|---|
//! | [`interface`] | interfaces by name or index, their state and statistics; changes; a monitor |
//! | [`netdev`] | what an interface's driver can do for XDP and `AF_XDP` |
#![forbid(unsafe_code)]

pub mod interface;
pub mod netdev;
mod netlink;
