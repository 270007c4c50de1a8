//! The network file: TOML to a [`Network`](bellows_engine::Network), with diagnostics that point at the text.
//!
//! A [`Registry`] holds the types of apps that can be named; each implements [`Configure`]. [`load`] reads a file and
//! all that it includes, and gives either a network that can run or [`Diagnostics`]: everything that is wrong, not just
//! the first.
//!
//! | module | what it holds |
//! |---|---|
//! | `configure` | the trait that makes an app type nameable, [`Configure`] |
//! | `bench` | what an app says of how to measure it |
//! | `values` | quantities for configs: [`Duration`], [`Rate`], [`Bytes`], [`BitRate`], [`TrafficRate`], [`Fraction`] |
//! | [`access`] | the mode and the group of files and sockets that apps make |
//! | `registry`, `manual` | the catalogue of app types, and the manuals made from their schemas |
//! | `file_schema` | the JSON Schema of a whole network file |
//! | `engine` | the table `[engine]` |
//! | `common` | the keys that every app's table may have |
//! | `diagnostics` | what is wrong, and how it is shown |
//! | `value` | values that know their places, and serde's way to read them |
//! | `source` | files, includes, variables, and settings from outside, put together |
//! | `chain` | apps in a row, as a command line names them |
//! | `schema` | what a JSON Schema says of values |
//! | `resources` | files and sockets that apps use, and who is in whose way |
//! | `load` | the apps made, the links checked |
//!
//! `source` uses `value` and `diagnostics`, `chain` uses `source`; `load` uses them all.
#![forbid(unsafe_code)]

pub mod access;
mod bench;
mod chain;
mod common;
mod configure;
mod diagnostics;
mod engine;
mod file_schema;
mod load;
mod manual;
mod meant;
mod registry;
mod resources;
mod schema;
mod source;
mod value;
mod values;

pub use bench::{Bench, BenchFiles, BenchRow};
pub use configure::{Configure, Context, SettingError};
pub use diagnostics::{Diagnostics, Severity};
pub use engine::EngineConfig;
pub use load::{Loaded, load, load_chain, load_str};
pub use manual::{EngineManual, Key, engine_manual};
pub use meant::nearest;
pub use registry::{Entry, Registry};
pub use resources::Resource;
pub use source::Overrides;
pub use values::{BitRate, Bytes, Duration, Fraction, Rate, TrafficRate, ValueError, wire_bytes};
