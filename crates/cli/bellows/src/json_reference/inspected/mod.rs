//! What an engine does from moment to moment, of packets, filters and apps.

#[cfg(test)]
mod tests;

use bellows_config::{EngineManualReport, ManualReport};
use bellows_inspect::hot::Report as HotReport;
use bellows_inspect::journey::TraceReport;
use bellows_inspect::timeline::ReportJson;
use bellows_observe::listing::Listing;

use super::Kind::Either;
use super::{Section, schema_of};
use crate::commands::filter::view::Explained;
use crate::commands::place::view::{PlacementComparison, Proposal};
use crate::commands::tap::TappedPacket;

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    Section {
        heading: "`bellows timeline --json`",
        commands: &["timeline"],
        text: &["What the workers have recorded of the reported period. Durations are in nanoseconds."],
        whole: Some(schema_of::<ReportJson<'static>>()),
        parts: &[],
        notes: &[
            "The calls, drops, departures and arrivals of a breath come before it in `events`. A departure is a vector of \
             packets that a recorded breath hands to another worker, and the arrival with the same `mark` is where that \
             worker takes it in; no other vector of the run has this mark. The times of all workers are by one clock. An \
             arrival is missing if a reload came between, or if its worker's ring of events has overwritten it.",
            "`bellows timeline --export FILE` writes the Trace Event format: breaths, calls and sleeps as complete events, \
             calls with their entry as category, with a thread for each worker; reloads, panics, late breaths and drops as \
             instant events, drops also as a counter; and an arrow (flow events named `crossing`, whose `id` is the mark) \
             from each departure to its arrival, if both are recorded. Times are microseconds since `first_event_unix_ns` in \
             `otherData`.",
        ],
    },
    Section {
        heading: "`bellows show breath --json`",
        commands: &["show breath"],
        text: &["The breaths of a running network."],
        whole: Some(schema_of::<Listing>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows show hot --json`",
        commands: &["show hot"],
        text: &["The code locations in which the engine spends its time, from samples."],
        whole: Some(schema_of::<HotReport>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows trace --json`",
        commands: &["trace"],
        text: &[],
        whole: Some(schema_of::<TraceReport<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows tap --json`",
        commands: &["tap"],
        text: &["One object per line for each packet that passes the link."],
        whole: Some(schema_of::<TappedPacket>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows place --json`",
        commands: &["place"],
        text: &[],
        whole: Some(schema_of::<Proposal<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows place --check --json`",
        commands: &["place --check"],
        text: &[],
        whole: Some(schema_of::<PlacementComparison>()),
        parts: &[],
        notes: &[
            "The expected placement is kept in the file `placement` in the engine's folder, as `{\"pid\": …, \"started\": …, \
             \"plan\": …}`, until the run ends.",
        ],
    },
    Section {
        heading: "`bellows apps --json`",
        commands: &["apps"],
        text: &[
            "A list of the manuals of all apps and compound apps; with a name one manual, which may be that of a type of \
             shared objects.",
        ],
        whole: Some(Either(&[schema_of::<Vec<ManualReport>>(), schema_of::<ManualReport>()])),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows apps engine --json`",
        commands: &["apps engine"],
        text: &[],
        whole: Some(schema_of::<EngineManualReport>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows filter --json`",
        commands: &["filter"],
        text: &[],
        whole: Some(schema_of::<Explained<'static>>()),
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows clear`",
        commands: &[],
        text: &[
            "`bellows clear` prints nothing to standard output. It writes the current counters to the file `baseline` in the \
             engine's folder, as `{\"at_ns\": nanoseconds since the Unix epoch, \"counters\": …}`. A reader must check that \
             `pid` and the engine's counter `started` are those of the run.",
        ],
        whole: None,
        parts: &[],
        notes: &[],
    },
    Section {
        heading: "`bellows schema`",
        commands: &[],
        text: &[
            "The JSON Schema (draft 2020-12) of a network file as read from TOML. `$defs` has `engine` and, for each app \
             type, `app.TYPE`. A string that is a variable, such as `\"${SIZE:-60}\"`, is valid for every key.",
        ],
        whole: None,
        parts: &[],
        notes: &[],
    },
];
