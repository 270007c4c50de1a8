#![doc = include_str!("../README.md")]
//!
//! | module | contents |
//! |---|---|
//! | `vrf` | a routing domain: interfaces, routes, neighbours |
//! | `interface` | interfaces |
//! | `route` | routes as people write them |
//! | `discovery` | what IPv6 neighbours say |
//! | `neighbours` | the states of neighbours |
//! | `adjacency` | what it takes to send packets to a neighbour |
//! | `family` | the families of the Internet Protocol |
//! | `tag`, `icmp_error` | what packets carry from app to app |
#![forbid(unsafe_code)]

pub mod adjacency;
pub mod discovery;
pub mod interface;
pub mod neighbours;
pub mod route;

mod family;
mod icmp_error;
mod tag;
mod vrf;

pub use adjacency::Adjacencies;
pub use family::IpFamily;
pub use icmp_error::{IcmpError, Reason};
pub use interface::Interface;
pub use route::RouteSpec;
pub use tag::Tag;
pub use vrf::{IfExists, Vrf, VrfChanges, VrfError};
