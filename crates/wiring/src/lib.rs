//! How the apps of a network are joined: ports, links, what can be wrong with them, and the order of a breath.
//!
//! Nothing here knows what apps do, or has any of them: a network file can be checked, and drawn, before an app is made.
//!
//! | module | what it holds |
//! |---|---|
//! | `port` | the ports of an app |
//! | `link` | links, as they are written |
//! | `faults` | everything that is wrong with the way links join apps |
//! | `order` | the order in which a breath calls the apps, and the links that close a loop |
//! | `numbering` | the links of each app by port, and the numbers by which a breath tests them |

#![forbid(unsafe_code)]

mod errors;
mod link;
mod numbering;
mod order;
mod port;

pub use errors::{WiredApp, WiringError, wiring_errors};
pub use link::{End, LinkSpec, LinkSyntaxError, Side};
pub use numbering::{GROUP, OPEN, links_by_port, number_links};
pub use order::{closing_links, push_order};
pub use port::{Port, Ports};
