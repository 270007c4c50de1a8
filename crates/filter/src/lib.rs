//! pcap-filter expressions as machine code.

pub mod graph;
pub mod interpret;
pub mod plan;
#[doc(hidden)]
pub mod random;
