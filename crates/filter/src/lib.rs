//! pcap-filter expressions as machine code.

pub mod graph;
pub mod interpret;
