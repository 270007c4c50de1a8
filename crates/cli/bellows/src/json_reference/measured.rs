//! What benchmarks report.

use bellows_lab::report::Report;

use super::{Section, schema_of};

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[Section {
    heading: "Reports of benchmarks",
    commands: &["bench", "appbench", "breathsim"],
    text: &[
        "`bellows bench engine --json` and all other benchmarks, `bellows appbench --json` and `bellows breathsim --json` print \
         an object. The [cases](#cases-of-benchmarks), units and labels of each follow.",
    ],
    whole: Some(schema_of::<Report>()),
    parts: &[],
    notes: &[],
}];
