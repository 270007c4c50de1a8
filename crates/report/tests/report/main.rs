//! Reports of whole tables and folders.

mod data;
mod forms;
