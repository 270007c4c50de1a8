//! The network file: TOML to a [`Network`](bellows_engine::Network), with diagnostics that point at the text.
//!
//! A [`Registry`] holds the app types that a file can name; each implements [`Configure`]. [`load`] reads a file and
//! its includes, and returns either a network that can run or [`Diagnostics`] with all errors, not only the first.
//!
//! | module | what it holds |
//! |---|---|
//! | `configure` | [`Configure`] and [`SharedObject`], the traits of apps and of what they share |
//! | `objects` | the shared objects of a network, and those that exist |
//! | `bench` | how to measure an app |
//! | `units` | quantities for configs: [`Duration`], [`Rate`], [`Bytes`], [`BitRate`], [`TrafficRate`], [`Fraction`] |
//! | [`access`] | the mode and the group of files and sockets that apps create |
//! | `compound` | [`Compound`], the trait of apps that consist of other apps, and their [`Parts`] |
//! | `registry`, `entry`, `manual`, `manual_report` | the catalogue of app types, one of its types, and the manuals generated from their schemas |
//! | `file_schema` | the JSON Schema of a whole network file |
//! | `engine` | the table `[engine]` |
//! | `app_keys` | the keys that every app's table may have |
//! | `parameters` | the parameters and ports of a network that is part of others |
//! | `path_bases` | texts of a table that are relative to another folder as paths |
//! | `diagnostics` | errors and warnings, and their rendering |
//! | `suggest` | "did you mean …?" |
//! | `spanned` | values with their positions in the text, and their serde deserializer |
//! | `source` | merges files, includes, variables and `--set` |
//! | `chain` | parses a row of apps from a command line |
//! | `schema` | checks values against a JSON Schema, and describes types in words |
//! | `output` | the schemas of what is printed as JSON |
//! | `resources` | files and sockets that apps use, and conflicts between them |
//! | `load` | creates the apps and checks the links |
//! | `text_file` | text files, plain or compressed with gzip |
//! | `texts` | the texts of all files of a network, kept to read it again as it was |
//! | `fusion` | what the loader has to know of an app that does the work of several others |
//! | `text_span` | where in a written string a part of its text is |
//! | `assignment` | writes workers of apps into network files |
//!
//! `source` uses `spanned` and `diagnostics`, `chain` uses `source`; `load` uses them all.
#![forbid(unsafe_code)]

pub mod access;
mod app_keys;
mod assignment;
mod bench;
mod chain;
mod compound;
mod configure;
mod diagnostics;
mod engine;
mod entry;
mod file_schema;
mod fusion;
mod load;
mod manual;
mod manual_report;
mod objects;
mod output;
mod parameters;
mod path_bases;
mod registry;
mod resources;
mod schema;
mod secrets;
mod source;
mod spanned;
mod suggest;
mod text_file;
mod text_span;
mod texts;
mod units;
mod worker;
mod wrong_file;

pub use assignment::{AssignError, Assignment, NetworkFiles};
pub use bench::{BenchFiles, BenchRow, BenchSetup, BenchStep};
pub use compound::{Compound, CompoundEntry, NewObject, NewPart, Parts};
pub use configure::{Configure, Context, Part, SettingError, SharedObject, Succession, SystemAccess};
pub use diagnostics::{DiagnosticEntry, Diagnostics, Position, Severity};
pub use engine::EngineConfig;
pub use entry::{Entry, ObjectEntry};
pub use fusion::Fusion;
pub use load::{Loaded, load, load_chain, load_str};
pub use manual::{EngineManual, engine_manual};
pub use manual_report::{
    AnyPorts, CounterReport, DropReport, EngineManualReport, ManualKey, ManualReport, PortReport, PortsReport,
};
pub use objects::Change;
pub use output::{ByName, OutputSchema};
pub use registry::Registry;
pub use resources::Resource;
pub use source::Overrides;
pub use suggest::nearest;
pub use text_file::{open_text, plain_text};
pub use texts::Texts;
pub use units::{BitRate, Bytes, Duration, Fraction, Rate, TrafficRate, ValueError, wire_bytes};
pub use wrong_file::{TextMistake, TextMistakes, WrongFile};
