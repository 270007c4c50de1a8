#![doc = include_str!("../README.md")]
//!
//! | module | contents |
//! |---|---|
//! | `prefix` | addresses and prefixes of both families |
//! | `parse` | files of routes |
//! | `rib` | all routes |
//! | `fib` | a table that is read while it changes |
//! | `groups` | groups of paths: routes to several next hops |
//! | `reader` | reading on threads that are no workers |
//! | `short` | the numbers of short prefixes |
//! | `ipv4`, `ipv6` | the layouts of compiled tables |
//! | `layout`, `sweep`, `search`, `codes`, `entry` | what they have in common |
//! | `cells`, `nodes` | the memory of tables |

mod cells;
mod codes;
mod entry;
mod fib;
mod groups;
mod ipv4;
mod ipv6;
mod layout;
mod nodes;
mod parse;
mod prefix;
mod reader;
mod rib;
mod search;
mod short;
mod sweep;

pub use fib::{Changes, Fib, MAX_NEXT, NextError, Size, Tables};
pub use groups::{FIRST_GROUP, GroupChanges, GroupError, GroupTable, Groups, MAX_PATHS, Path};
pub use layout::AddressFamily;
pub use parse::{LineError, RouteFile, RouteFileError};
pub use prefix::{Address, Prefix, PrefixError};
pub use reader::TableReader;
pub use rib::{Rib, Route};

/// The result of looking up an address that no route is for.
pub const NO_ROUTE: u32 = u32::MAX;
