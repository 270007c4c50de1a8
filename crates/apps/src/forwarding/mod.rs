//! The hot loops of a router's apps. Each goes over the packets of a vector, does what is usual, and numbers the packets
//! by their outputs; unusual ones get the number [`UNUSUAL`], and the app looks at them one by one.
//!
//! | module | loop |
//! |---|---|
//! | `sort` | frames of an interface by their protocols |
//! | `check4`, `check6` | headers |
//! | `look` | destinations before a look-up, and adjacencies after it |
//! | `rewrite` | hops and link-layer headers |
//! | `family`, `header` | what differs between IPv4 and IPv6; fields of headers |

pub(crate) mod check4;
pub(crate) mod check6;
pub(crate) mod family;
pub(crate) mod header;
pub(crate) mod look;
pub(crate) mod rewrite;
pub(crate) mod sort;
#[cfg(test)]
mod tests;

pub(crate) use header::ETHERNET;

/// The number of a packet that goes the usual way: to the first output.
pub(crate) const USUAL: u16 = 0;

/// The number of a packet that must be looked at more closely.
pub(crate) const UNUSUAL: u16 = 1 << 15;

/// Packets whose headers are checked together.
pub(crate) const BATCH: usize = 64;
