//! x
#![forbid(unsafe_code)]
#![allow(missing_docs, dead_code)]

mod analysis;
mod axis;
mod build;
mod confirm;
mod course;
mod distributions;
mod draw;
mod findings;
mod matrix;
mod model;
mod page;
mod pictures;
mod source;
mod table;
mod text;
mod words;
pub use build::Options;
pub use pictures::Picture;
pub use source::{ReportError, Source};
pub use model::*;
