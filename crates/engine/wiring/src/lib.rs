//! How links join the apps of a network: ports, links, wiring errors, and the order of a breath.
//!
//! This crate needs no app instances, so a network file can be checked and drawn before any app is created.
//!
//! | module | what it holds |
//! |---|---|
//! | `port` | the ports of an app |
//! | `link` | links, and their text form |
//! | `errors` | wiring errors |
//! | `order` | the order in which a breath calls the apps, and the links that close a loop |
//! | `numbering` | the links of each app by port, and their numbers in a thread's table |

#![forbid(unsafe_code)]

mod errors;
mod link;
mod numbering;
mod order;
mod port;

pub use errors::{WiredApp, WiringError, wiring_errors};
pub use link::{LinkEnd, LinkSpec, LinkSyntaxError, Side};
pub use numbering::{GROUP, OPEN, links_by_port, number_links};
pub use order::{closing_links, push_order};
pub use port::{Port, Ports};
