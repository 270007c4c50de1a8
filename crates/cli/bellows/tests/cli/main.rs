//! What the command prints and rejects: files, options, help, completions, captures, campaigns and logs.
//!
//! `cargo xtask test --fast` runs this program and none of the others.

mod campaigns;
mod captures;
mod check;
mod filter;
mod logs;
mod manuals;
mod naming;
mod terminal;

#[path = "../support/mod.rs"]
mod support;
