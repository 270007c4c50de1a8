//! A live page about the networks of a machine: the data that it shows, and the page itself.
//!
//! [`Site`] answers requests and knows no HTTP server: the caller gives it a method, a path, a query and a body, and
//! passes on the [`Answer`]. While a page is open, one thread reads the counters' files of all networks once a second
//! and keeps the figures of the last minutes; without a page nothing is read. Engines are asked over their control
//! sockets only for what a person asks for: the states of apps, a trace, a tap and, if they are allowed, changes.
//!
//! A crate of its own because `bellows` can be built without it (feature `http`), and because it is tested without a
//! server.
//!
//! | module | what it holds |
//! |---|---|
//! | `site` | the paths, and the answer to each request |
//! | `requests` | what the site asks of engines: states of apps, traces, taps, changes |
//! | [`Client`] | whether the client of a request still waits |
//! | `monitor` | the networks and what happens to them, read while a page is open |
//! | `live` | the figures of a network |
//! | `history` | the figures of the last minutes |
//! | [`answers`] | what it answers |
//! | [`assets`] | the page |
#![forbid(unsafe_code)]

pub mod answers;
pub mod assets;
mod client;
mod history;
mod live;
mod monitor;
mod requests;
mod site;

pub use client::{Client, Waiting};
pub use monitor::{Happening, Kept};
pub use site::{Answer, Help, Method, Parameters, Route, Site, SiteOptions, WatchPlace};
