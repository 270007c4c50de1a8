//! Drivers that feed arbitrary bytes to the code, shared by property tests and fuzz targets. Not part of any program
//! that users run.
//!
//! The functions panic if the code that they exercise breaks a promise: the test fails, or the fuzzer has found a bug.
#![forbid(unsafe_code)]

pub mod backend;
pub mod filter;
pub mod frames;
pub mod netlink;
#[cfg(feature = "packets")]
pub mod packets;
#[cfg(feature = "networks")]
pub mod router;
pub mod tunnel_examples;
#[cfg(feature = "networks")]
pub mod tunnels;
#[cfg(feature = "networks")]
pub mod vpn;
pub mod wire;
