//! The forms of what campaigns report.

mod compared;
mod queues;
mod reported;
mod tested;
#[cfg(all(test, feature = "measure"))]
mod tests;

use super::Kind::{Decimal, Flag, Integer, List, Map, Object, Text, Tuple, Word};
use super::{Form, Section, key};

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    Section {
        heading: "`bellows campaign run --json`",
        commands: &["campaign run", "campaign worker"],
        text: &[
            "An object for each run when it is recorded, one a line: the row of `results.jsonl`. `bellows campaign worker --json` \
         prints the same.",
        ],
        whole: Some(Object(&CAMPAIGN_RUN)),
        parts: &[&SCORE, &FAILURE, &CAMPAIGN_MACHINE],
        notes: &[],
    },
    Section {
        heading: "`bellows campaign status --json`",
        commands: &["campaign status"],
        text: &[],
        whole: Some(Object(&CAMPAIGN_STATUS)),
        parts: &[&PLANNED],
        notes: &[],
    },
    queues::STATUS_OF_QUEUE,
    tested::REGISTER,
    tested::TEST,
    reported::REPORT,
    compared::COMPARE,
    tested::POWER,
];

static CAMPAIGN_RUN: Form = Form {
    title: "Run of a campaign",
    includes: &[],
    keys: &[
        key("run", Text, "its id: block and combination"),
        key("campaign", Text, "the hash of the campaign"),
        key("levels", Map(&Text), "the level of each factor"),
        key("scores", List(&Object(&SCORE)), "the scores"),
        key("failure", Object(&FAILURE), "why the run failed as a whole").or_absent(),
        key("disturbed", List(&Text), "sentences about what disturbed it").or_absent(),
        key("start", Text, "when it started (RFC 3339, UTC)"),
        key("seconds", Decimal, "how long it took"),
        key("machine", Object(&CAMPAIGN_MACHINE), "the machine and what it did"),
        key("versions", Map(&Text), "versions of programs").or_absent(),
        key(
            "registered",
            Text,
            "the hash of the newest record of the register of hypotheses when the run was recorded",
        )
        .or_absent(),
        key("known", Text, "the same when the run started").or_absent(),
    ],
};

static SCORE: Form = Form {
    title: "Score",
    includes: &[],
    keys: &[
        key("name", Text, "its name"),
        key("unit", Text, "its unit"),
        key("value", Decimal, "the number; null if the run failed").or_null(),
        key("failure", Object(&FAILURE), "why there is no such number, if the run as a whole did not fail").or_absent(),
    ],
};

static FAILURE: Form = Form {
    title: "Failure",
    includes: &[],
    keys: &[
        key(
            "kind",
            Word(&["exit-code", "signal", "time-limit", "not-started", "prepare", "no-score", "not-finite"]),
            "`exit-code` (the command ended with another one than 0), `signal` (it was ended by one), `time-limit` (it took \
             too long), `not-started` (it could not be), `prepare` (a command that prepares the run failed), `no-score` (the \
             output has no such number) or `not-finite` (the number is not, or is undecided)",
        ),
        key("why", Text, "what happened"),
        key("stderr", Text, "the end of what the command wrote to standard error").or_absent(),
    ],
};

static CAMPAIGN_MACHINE: Form = Form {
    title: "Machine of a run",
    includes: &[],
    keys: &[
        key("host", Text, "its name"),
        key("cpu", Text, "the processor's name"),
        key("cpus", Text, "the processors that the command could run on"),
        key("os", Text, "the kernel's name and version"),
        key("load", Decimal, "the mean number of runnable threads in the minute before the run"),
        key("steal", Decimal, "seconds that the host took during the run; null if unknown").or_null(),
        key("yardstick_before", Decimal, "the processor's speed before the run: nanoseconds a step"),
        key("yardstick_after", Decimal, "the same after the run"),
    ],
};

static CAMPAIGN_STATUS: Form = Form {
    title: "Status of a campaign",
    includes: &[],
    keys: &[
        key("name", Text, "the name of the campaign"),
        key("hash", Text, "its hash"),
        key("running", Flag, "whether a runner uses the folder"),
        key("rows", Integer, "recorded runs"),
        key("planned", Object(&PLANNED), "what is planned"),
        key("blocks", Map(&Integer), "recorded runs of each block"),
        key("failed", Map(&Integer), "runs without a score, by the kind of failure"),
        key("disturbed", Integer, "disturbed runs"),
        key("span", Tuple(&[Text, Text]), "the first and the last start; null without runs").or_null(),
        key("machines", Map(&Integer), "runs of each machine"),
    ],
};

static PLANNED: Form = Form {
    title: "Planned runs",
    includes: &[],
    keys: &[
        key("block", Integer, "runs of a block; null if results were imported").or_null(),
        key("blocks", Integer, "blocks; null if not known").or_null(),
        key("runs", Integer, "runs in all; null if not known").or_null(),
    ],
};
