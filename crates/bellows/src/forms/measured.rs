//! The forms of what benchmarks and campaigns report.

use super::Kind::{Any, Decimal, Flag, Integer, List, Map, Object, Text, Tuple, Word};
use super::tables::key;
use super::{Form, Section};

pub(super) const BENCHMARK_SECTION: Section = Section {
    heading: "Reports of benchmarks",
    text: &[
        "`bellows bench engine --json` and all other benchmarks, `bellows appbench --json` and `bellows breathsim --json` print \
         an object. The cases and labels of each are described further down.",
    ],
    whole: Some(Object(&BENCHMARK)),
    parts: &[&MACHINE, &FIGURE, &RATIO, &OVERHEAD],
    notes: &[],
};

pub(super) const CAMPAIGN_RUN_SECTION: Section = Section {
    heading: "`bellows campaign run --json`",
    text: &[
        "An object for each run when it is recorded, one a line: the row of `results.jsonl`. `bellows campaign worker --json` \
         prints the same.",
    ],
    whole: Some(Object(&CAMPAIGN_RUN)),
    parts: &[&SCORE, &FAILURE, &CAMPAIGN_MACHINE],
    notes: &[],
};

pub(super) const CAMPAIGN_STATUS_SECTION: Section = Section {
    heading: "`bellows campaign status --json`",
    text: &[],
    whole: Some(Object(&CAMPAIGN_STATUS)),
    parts: &[&PLANNED],
    notes: &[],
};

static BENCHMARK: Form = Form {
    title: "Benchmark",
    includes: &[],
    keys: &[
        key("bench", Text, "name of the benchmark"),
        key("version", Text, "version of Bellows"),
        key("machine", Object(&MACHINE), "the machine"),
        key(
            "processes",
            Integer,
            "number of fresh processes per figure; with `--against`, pairs of runs",
        ),
        key(
            "lost",
            Decimal,
            "the share of the measured time, from 0 to 1, that the host and other programs took. No figure includes it. Only \
             for benchmarks whose processes take turns (`engine`, `filter`, `history`, `l2vpn`, `vring`, `breathsim`), and \
             for `workers` and `scrape`",
        )
        .or_absent(),
        key(
            "interrupted",
            Flag,
            "true if the benchmark was interrupted: figures are missing, or are from fewer processes. The exit code is 130",
        )
        .or_absent(),
        key(
            "failed",
            Flag,
            "true if a guarantee was violated (`neighbours`), or an app panicked (`apps`): the notes have details. The exit \
             code is 1",
        )
        .or_absent(),
        key("results", List(&Object(&FIGURE)), "the figures"),
        key("notes", List(&Text), "conclusions, in sentences").or_absent(),
    ],
};

static MACHINE: Form = Form {
    title: "Machine",
    includes: &[],
    keys: &[
        key("cpu", Text, "the processor's name"),
        key("tsc_hz", Integer, "frequency of the time-stamp counter, the unit of clocks"),
        key(
            "memory",
            Word(&["hugetlb", "thp", "4k"]),
            "pages of the packet pool: `hugetlb` or `thp`: 2 MiB pages; `4k`",
        ),
        key(
            "simd",
            Word(&["avx512", "avx2", "baseline"]),
            "instructions of the vector loops: `avx512`, `avx2` or `baseline`",
        ),
        key("stride", Integer, "bytes from one packet buffer to the next"),
    ],
};

static FIGURE: Form = Form {
    title: "Figure",
    includes: &[],
    keys: &[
        key("case", Text, "the case"),
        key(
            "unit",
            Text,
            "`clocks/packet`, `clocks/call`, `clocks/page`, `clocks/breath`, of the time-stamp counter; `ns/breath`, `Mpps`, \
             `Gb/s`, `ns`, `µs`, `ratio` and others",
        ),
        key("median", Decimal, "the median over all processes (of `scrape` the geometric mean); null if undecided").or_null(),
        key(
            "low",
            Decimal,
            "the lower end of the median's 95 percent confidence interval; with fewer than six processes the minimum",
        ),
        key("high", Decimal, "the upper end; with fewer than six processes the maximum"),
        key(
            "undecided",
            Flag,
            "true if the machine was too disturbed: the interval is wider than 3 percent to each side of a ratio (of \
             `scrape`: 1), or 10 percent of another figure (and half a unit). The exit code is 3",
        )
        .or_absent(),
        key("reference", Decimal, "the same work without Bellows, where applicable").or_absent(),
        key("p99", Decimal, "the 99th percentile of all samples of all processes, if single samples matter").or_absent(),
        key("maximum", Decimal, "their maximum").or_absent(),
        key(
            "of_reference",
            Object(&RATIO),
            "the figure over the reference, turn by turn, if it is measured in the same turns",
        )
        .or_absent(),
        key(
            "overhead",
            Object(&OVERHEAD),
            "what the engine adds, if the reference is a bare loop, the same work without the engine: the figure minus that \
             of the loop, turn by turn, in the figure's unit",
        )
        .or_absent(),
        key(
            "histogram",
            List(&Tuple(&[Integer, Integer])),
            "of all samples: a class's upper bound (inclusive, in nanoseconds) and its number of samples; the classes are \
             contiguous",
        )
        .or_absent(),
        key("labels", Map(&Any), "the conditions"),
    ],
};

static RATIO: Form = Form {
    title: "Ratio",
    includes: &[],
    keys: &[
        key("median", Decimal, "the median; null if undecided").or_null(),
        key("low", Decimal, "the lower end of its 95 percent confidence interval"),
        key("high", Decimal, "the upper end"),
    ],
};

static OVERHEAD: Form = Form {
    title: "Overhead",
    includes: &[],
    keys: &[
        key("median", Decimal, "the median"),
        key("low", Decimal, "the lower end of its 95 percent confidence interval"),
        key("high", Decimal, "the upper end"),
    ],
};

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
