//! Headers of received packets as a whole, for apps that distinguish packets by several fields at once.
//!
//! | file | contents |
//! |---|---|
//! | `whole.rs` | templates of headers to send, and patterns that received ones are compared with |
//! | `fields.rs` | fields of Ethernet and IP that tunnels write and read |
//! | `guesses.rs` | which of many patterns a packet can have |
//! | `ecn.rs` | marks of congestion in tunnels |
//! | `outer.rs` | the outermost IP header, read field by field |
//! | `trailer.rs` | where an IP packet ends in its frame |

pub mod ecn;
mod fields;
mod guesses;
mod outer;
mod trailer;
mod whole;

// Between the apps of a router, an Ethernet header is in front of that of IP.
pub use bellows_vrf::interface::ETHERNET;
pub use fields::{cut, ether_type, headers, ip_length, ip_mask, is_ip, read, reversed, uncover, uncover_to, write};
pub use guesses::{Ends, Guesses, is_v6};
pub use outer::{NotWhole, Outer};
pub use trailer::{cut_trailer, end_of_ip};
pub use whole::{Differences, LONG, MAX, MIN, Pattern, Template};

/// Bytes of the headers of Ethernet and IPv4.
pub const HEADERS_V4: usize = ETHERNET + 20;

/// Bytes of the headers of Ethernet and IPv6.
pub const HEADERS_V6: usize = ETHERNET + 40;
