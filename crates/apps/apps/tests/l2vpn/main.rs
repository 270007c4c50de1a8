//! `l2vpn`: what its keys become, which are refused, and two ends that carry frames to one another.

mod bridges;
mod ends;
mod ipsec;
mod keys;
mod paths;
mod reloads;
