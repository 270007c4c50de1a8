//! Reports of a campaign's results: pages and pictures that people look at, text for the terminal, and JSON.
//!
//! A [`ResultSource`] is what a campaign file, a results folder or a table in CSV holds. [`Report::of`] makes all tests
//! and all that is drawn, as one value, which can be serialized. [`Report::html`], [`Report::pictures`] and
//! [`Report::text`] only show it.
//!
//! A crate of its own because it brings a template engine, which campaigns run without, and because `bellows` can be
//! built without it (feature `measure`).
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use bellows_report::{Report, ReportOptions, ResultSource};
//! use std::path::Path;
//!
//! let source = ResultSource::open(Path::new("checksums.toml"), None)?;
//! let report = Report::of(&source, &ReportOptions::default())?;
//! std::fs::write("checksums.html", report.html()?)?;
//! println!("{}", report.text(80));
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `source` | results, and what is known about their runs |
//! | `tally` | counts of runs, and names of machines and programs |
//! | `table` | the runs of one score and unit, in the order of time |
//! | `analysis` | the analysis of variance, and differences of means |
//! | `distributions`, `matrix`, `course` | what the pictures show |
//! | `findings`, `confirm` | sentences that follow from the tests, for exploration and for confirmation |
//! | `build` | makes a report of these |
//! | `model` | the contents of a report |
//! | `draw` | draws them as SVG |
//! | `pictures`, `page`, `text` | a report as pictures, as a page, and as text |
//! | `versions` | a comparison of two versions as a picture |
//! | `axis`, `words` | axes with round numbers; numbers and labels as text |
#![forbid(unsafe_code)]

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
mod tally;
mod text;
mod versions;
mod words;

pub use axis::{Axis, Mark};
pub use build::ReportOptions;
pub use model::{
    Analysis, Confirmation, Contrast, Contrasts, Course, Distributions, FactorSummary, Form, LevelScores, LevelSummary,
    Matrix, MatrixRow, ModelCell, NameTally, Panel, Reason, Report, Sample, Section, Series, Setup, Split, Term,
    Tested,
};
pub use pictures::Picture;
pub use source::{ReportError, ResultSource};
