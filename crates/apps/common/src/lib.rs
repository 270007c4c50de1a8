//! What several crates of apps use: packets sorted by output, limits, headers, fragments and ICMP errors.
//!
//! | module | contents |
//! |---|---|
//! | [`nexts`] | packets sorted by output |
//! | [`look_ahead`] | prefetches in loops over packets |
//! | [`limit`] | limits of packets a second |
//! | [`full_table`], [`capacity`] | events about full tables, and a key of shared ones |
//! | [`headers`] | headers as a whole: templates, patterns and fields |
//! | [`ip_frame`] | where the IP packet of a frame is |
//! | [`ipv4_options`] | options of IPv4 headers |
//! | [`segmentation`] | the segments of GSO packets |
//! | [`fragmenter`] | fragments of packets |
//! | [`icmp`], [`too_big`] | ICMP errors to send, and those that say that a packet was too long |
//! | [`addresses`] | addresses that keys give to stations |
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod addresses;
pub mod capacity;
pub mod fragmenter;
pub mod full_table;
pub mod headers;
pub mod icmp;
pub mod ip_frame;
pub mod ipv4_options;
pub mod limit;
pub mod look_ahead;
pub mod nexts;
pub mod segmentation;
pub mod too_big;
