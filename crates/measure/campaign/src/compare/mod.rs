//! Compares two versions of a thing by pairs of runs.
//!
//! A campaign has a factor of two levels whose runs are made in pairs, one directly after the other, in random order.
//! Its levels are stated in the file (`paired`), or they are two builds: revisions of git, the working tree, or finished
//! programs. [`build_versions`] makes these, and [`Comparison`] is what the pairs say.
//!
//! | module | what it holds |
//! |---|---|
//! | `build` | finds out what the two versions are, and makes them |
//! | `git` | revisions, and the contents of a working tree |
//! | `store` | the folder of builds: one for each content and command |
//! | `contents` | hashes and copies of files and folders |
//! | `error` | why there is no build |
//! | `pairs` | pairs of scores from rows |
//! | `failures` | how often one version alone has no score |
//! | `judge` | what the pairs say, of all comparisons as one family |
//! | `whole` | what all combinations say together |
//! | `compared`, `comparison` | the result |
//! | `text` | what each result says, as a sentence |
//! | `summary` | the whole comparison in words |
//! | `names` | short names of figures |

mod build;
mod compared;
mod comparison;
mod contents;
mod error;
mod failures;
mod git;
mod judge;
mod names;
mod pairs;
#[cfg(test)]
mod planted;
mod store;
mod summary;
mod text;
mod whole;

pub use build::{Folders, build_versions};
pub use compared::{Compared, Undisturbed};
pub use comparison::{Comparison, ComparisonOptions, parse_margin};
pub use error::CompareError;
pub use failures::Failures;
pub use judge::{Conclusion, Effect, Scale};
pub use pairs::LostPair;
