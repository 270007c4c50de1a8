//! Named events of networks: their declarations, how they are logged, and the files that keep them.
//!
//! An event is a record of the log that has a name. Code that notices one fills the event's type and logs it:
//!
//! ```
//! use bellows_events::LinkDown;
//!
//! LinkDown { app: "left", port: "eth0" }.log("eth0: the interface has no carrier");
//! ```
//!
//! The record goes to the log like any other. The process that runs a network also keeps it in the network's
//! [files](Writer), from which a [`Follower`] reads.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod content;
mod declared;
mod follower;
mod record;
mod writer;

pub use content::{Content, ContentFile};
pub use declared::*;
pub use follower::{Follower, Item, Missing};
pub use record::{Draft, Event, Id, Level, MAX_LINE, clean};
pub use writer::{FILE_SIZE, MAX_FILE, Writer};
