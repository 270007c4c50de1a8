#![doc = include_str!("../README.md")]
//!
//! | module | contents |
//! |---|---|
//! | `vrf` | a routing domain: interfaces, routes, neighbours, and how they are changed, listed and inherited |
//! | `command` | changes of routes as people write them |
//! | `interface` | interfaces |
//! | `origin` | where routes come from |
//! | `route` | routes as people write them |
//! | `discovery` | what IPv6 neighbours say |
//! | `forgotten` | neighbours to be asked anew |
//! | `neighbours`, `neighbour_filter` | the states of neighbours, and hashes of those who are known |
//! | `adjacency` | what it takes to send packets to a neighbour, and the tags that lead packets to it |
//! | `family` | the families of the Internet Protocol |
//! | `reserved` | destinations that no router forwards to |
//! | `icmp_error` | the errors that packets carry from app to app |
#![forbid(unsafe_code)]

pub mod adjacency;
pub mod command;
pub mod discovery;
pub mod interface;
pub mod neighbours;
pub mod route;

mod family;
mod forgotten;
mod icmp_error;
mod neighbour_filter;
mod origin;
mod reserved;
mod vrf;

pub use adjacency::{Adjacencies, Tag};
pub use family::IpFamily;
pub use forgotten::Forgotten;
pub use icmp_error::{IcmpError, IcmpType, Reason, Sent, Word};
pub use interface::Interface;
pub use origin::{Origin, RouteKey};
pub use reserved::Reserved;
pub use route::RouteSpec;
pub use vrf::{
    CommandBatch, Done, IfExists, Inherited, Listed, Match, RouteFilter, RouteTarget, Staged, Statistics, Swapped, Vrf,
    VrfChanges, VrfError, Way,
};
