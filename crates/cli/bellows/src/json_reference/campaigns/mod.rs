//! What campaigns report.

#[cfg(test)]
mod tests;

use bellows_campaign::{Comparison, HypothesisRecord, NeededRuns, Row, Status, Verdict};
use bellows_report::Report;

use super::{Section, schema_of};
use crate::commands::campaign::status::QueuedStatus;

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    Section {
        heading: "`bellows campaign run --json`",
        commands: &["campaign run", "campaign worker"],
        text: &[
            "An object for each run when it is recorded, one a line: the row of `results.jsonl`. `bellows campaign \
             worker --json` prints the same.",
        ],
        whole: Some(schema_of::<Row>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows campaign status --json`",
        commands: &["campaign status"],
        text: &[],
        whole: Some(schema_of::<Status>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows campaign status --queue URL --json`",
        commands: &["campaign status --queue"],
        text: &[],
        whole: Some(schema_of::<QueuedStatus>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows campaign register --json`",
        commands: &["campaign register"],
        text: &["A list of objects, in the order of the campaign file: the record of each hypothesis."],
        whole: Some(schema_of::<Vec<HypothesisRecord>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows campaign test --json`",
        commands: &["campaign test"],
        text: &[
            "A list of objects: the hypotheses of the campaign file, and after them those that are only in the register.",
        ],
        whole: Some(schema_of::<Vec<Verdict>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows campaign report --json`",
        commands: &["campaign report"],
        text: &[
            "Numbers of scores are in the unit of the score, and indices count from 0. What is drawn is in `overlay`, \
             `splits`, `matrix` and `course` of a section.",
        ],
        whole: Some(schema_of::<Report>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows campaign compare --json`",
        commands: &["campaign compare"],
        text: &[],
        whole: Some(schema_of::<Comparison>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows campaign power --json`",
        commands: &["campaign power"],
        text: &[],
        whole: Some(schema_of::<NeededRuns>()),
        parts: &[],
        notes: &[],
    },
];
