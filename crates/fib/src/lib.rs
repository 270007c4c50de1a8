#![doc = include_str!("../README.md")]
//!
//! | module | contents |
//! |---|---|
//! | `prefix` | addresses and prefixes of both families |
//! | `rib` | all routes |
//! | `fib` | a table that is read while it changes |
//! | `tables` | what is compiled from routes, and look-ups |
//! | `family`, `ipv4`, `ipv6` | the layouts of compiled tables |
//! | `sweep`, `builder` | from routes to nodes |
//! | `cells`, `nodes` | the memory of tables |

mod builder;
mod cells;
mod family;
mod fib;
mod ipv4;
mod ipv6;
mod nodes;
mod prefix;
mod rib;
mod search;
mod sweep;
mod tables;

pub use family::Family;
pub use fib::{Changes, Fib, MAX_NEXT, NextError, Size};
pub use prefix::{Address, Prefix, PrefixError};
pub use rib::{Rib, Route};
pub use tables::Tables;

/// The result of looking up an address that no route is for.
pub const NO_ROUTE: u32 = u32::MAX;
