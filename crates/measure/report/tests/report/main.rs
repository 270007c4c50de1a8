//! Reports of whole tables and folders.

mod browser;
mod data;
mod folder;
mod forms;
mod machines;
mod unbalanced;
mod versions;
