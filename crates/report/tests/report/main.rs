//! Reports of whole tables and folders.

mod data;
mod folder;
mod forms;
