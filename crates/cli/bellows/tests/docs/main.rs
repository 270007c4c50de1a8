//! The documentation: its commands are run, its references are those of the program, its tables are right.

mod book;
mod command_lines;
mod first_steps;
mod generated;
mod json;
mod layers;

#[path = "../support/mod.rs"]
mod support;
