//! The forms of what benchmarks report.

use super::Kind::{Any, Decimal, Flag, Integer, List, Map, Object, Text, Tuple, Word};
use super::{Form, Section, key};

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[Section {
    heading: "Reports of benchmarks",
    commands: &["bench", "appbench", "breathsim"],
    text: &[
        "`bellows bench engine --json` and all other benchmarks, `bellows appbench --json` and `bellows breathsim --json` print \
         an object. The [cases](#cases-of-benchmarks), units and labels of each follow.",
    ],
    whole: Some(Object(&BENCHMARK)),
    parts: &[&MACHINE, &FIGURE, &RATIO, &OVERHEAD],
    notes: &[],
}];

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
            "number of fresh processes per figure",
        ),
        key(
            "lost",
            Decimal,
            "the share of the measured time, from 0 to 1, that the host and other programs took. No figure includes it. Absent \
             for benchmarks whose processes do not take turns (`appbench`, `apps`, `blit`, `crossing`, `neighbours`, `notify`, \
             `reload`)",
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
            "true if a guarantee was violated (`neighbours`), an app panicked or let no packet pass (`apps`), or a verdict is \
             wrong (`prefetch`): the notes have details. The exit code is 1",
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
            "the unit; clocks are those of the time-stamp counter",
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
        key("labels", Map(&Any), "the conditions, and numbers behind the figure"),
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
