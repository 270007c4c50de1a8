//! The forms of reports of campaigns.

use super::super::Kind::{Decimal, Flag, Integer, List, Object, OrNull, Text, Tuple, Word};
use super::super::{Form, Section, key};
use super::tested::VERDICT;

pub(super) const REPORT: Section = Section {
    heading: "`bellows campaign report --json`",
    commands: &["campaign report"],
    text: &[
        "Numbers of scores are in the unit of the score, and indices count from 0. What is drawn is in `overlay`, `splits`, \
         `matrix` and `course` of a section.",
    ],
    whole: Some(Object(&REPORTED)),
    parts: &[
        &SETUP,
        &TALLY,
        &FACTOR,
        &LEVEL,
        &SECTION,
        &LEVEL_SCORES,
        &REASON,
        &ANALYSIS,
        &TERM,
        &DIFFERENCES,
        &DIFFERENCE,
        &DISTRIBUTIONS,
        &PANEL,
        &DISTRIBUTION,
        &AXIS,
        &MARK,
        &SPLIT,
        &MATRIX,
        &MATRIX_ROW,
        &CELL,
        &COURSE,
        &SERIES,
        &CONFIRMATION,
        &TESTED,
    ],
    notes: &[],
};

static REPORTED: Form = Form {
    title: "Report of a campaign",
    includes: &[],
    keys: &[
        key("title", Text, "the name of the campaign, or of the file"),
        key("source", Text, "the file or folder of the results"),
        key("setup", Object(&SETUP), "what was run, on what, and when"),
        key("sections", List(&Object(&SECTION)), "exploration: the analysis of each score and unit"),
        key("confirmation", Object(&CONFIRMATION), "what the runs say of the registered hypotheses"),
    ],
};

static SETUP: Form = Form {
    title: "Setup of a campaign",
    includes: &[],
    keys: &[
        key("runs", Integer, "runs; rows of an imported table"),
        key("failed", Integer, "runs without a score"),
        key("disturbed", Integer, "disturbed runs"),
        key("blocks", Integer, "blocks, or repetitions"),
        key("combinations", Integer, "combinations that were run"),
        key("span", Tuple(&[Text, Text]), "the first and the last start (RFC 3339, UTC); null if not known").or_null(),
        key("command", Text, "the command of a run; null if not known").or_null(),
        key("hash", Text, "the hash of the campaign; null if not known").or_null(),
        key("factors", List(&Object(&FACTOR)), "the factors"),
        key("machines", List(&Object(&TALLY)), "the names of machines"),
        key("processors", List(&Object(&TALLY)), "processors"),
        key("kernels", List(&Object(&TALLY)), "kernels"),
        key("versions", List(&Object(&TALLY)), "programs with their versions"),
        key("notes", List(&Text), "sentences: what is not known, and why"),
    ],
};

static TALLY: Form = Form {
    title: "Tally",
    includes: &[],
    keys: &[key("name", Text, "the name"), key("runs", Integer, "the runs with it")],
};

static FACTOR: Form = Form {
    title: "Factor of a campaign",
    includes: &[],
    keys: &[key("name", Text, "its name"), key("levels", List(&Object(&LEVEL)), "its levels")],
};

static LEVEL: Form = Form {
    title: "Level of a factor",
    includes: &[],
    keys: &[
        key("label", Text, "its label"),
        key("runs", Integer, "its runs"),
        key("values", Text, "what it stands for in commands: `key = value, …`; null if that is its label").or_null(),
    ],
};

static SECTION: Form = Form {
    title: "Section of a report",
    includes: &[],
    keys: &[
        key("id", Text, "a name for links and files: `score-1`"),
        key("score", Text, "the score"),
        key("unit", Text, "its unit; empty if it has none"),
        key("better", Word(&["higher", "lower"]), "`higher` or `lower`: which scores are better; null if not known")
            .or_null(),
        key("runs", Integer, "runs"),
        key("scored", Integer, "runs with a score"),
        key("factor", Text, "the factor of interest; null if no factor varies").or_null(),
        key("factor_reason", Text, "a sentence: why it is that one, or why there is none"),
        key("others", List(&Text), "the other factors that vary"),
        key("held", List(&Tuple(&[Text, Text])), "the factors that do not vary, each with its level"),
        key("levels", List(&Object(&LEVEL_SCORES)), "the levels of the factor of interest, or all runs"),
        key("failures", List(&Object(&REASON)), "why runs have no score"),
        key("findings", List(&Text), "sentences: what follows from the tests"),
        key("warnings", List(&Text), "sentences: assumptions that do not hold, and what could not be analysed"),
        key("analysis", Object(&ANALYSIS), "the analysis of variance; null if there is none").or_null(),
        key(
            "contrasts",
            Object(&DIFFERENCES),
            "the differences between the levels of the factor of interest; null if they cannot be compared",
        )
        .or_null(),
        key("overlay", Object(&DISTRIBUTIONS), "the distribution of all scores, by the factor of interest"),
        key("splits", List(&Object(&SPLIT)), "the same, split by each other factor"),
        key("matrix", Object(&MATRIX), "the median of each combination"),
        key("course", Object(&COURSE), "the scores in the order of time"),
    ],
};

static LEVEL_SCORES: Form = Form {
    title: "Scores of a level",
    includes: &[],
    keys: &[
        key("label", Text, "its label"),
        key("runs", Integer, "runs"),
        key("scored", Integer, "runs with a score"),
        key("mean", Decimal, "the mean; null without a score").or_null(),
        key("deviation", Decimal, "the standard deviation; null with fewer than two scores").or_null(),
        key("median", Decimal, "the median; null without a score").or_null(),
        key("low", Decimal, "the lower end of the median's 95 percent interval; null without a score").or_null(),
        key("high", Decimal, "the upper end; null without a score").or_null(),
    ],
};

static REASON: Form = Form {
    title: "Reason of failures",
    includes: &[],
    keys: &[
        key("reason", Text, "the reason"),
        key("runs", Integer, "the runs that failed for it"),
        key("levels", List(&Integer), "those of each level of the factor of interest"),
    ],
};

static ANALYSIS: Form = Form {
    title: "Analysis of variance",
    includes: &[],
    keys: &[
        key("model", Text, "the terms, joined by `+`"),
        key("terms", List(&Object(&TERM)), "the terms"),
        key("df", Decimal, "degrees of freedom of what the model does not explain"),
        key("deviation", Decimal, "the standard deviation of what the model does not explain"),
        key("is_balanced", Flag, "whether all combinations have the same number of scores"),
        key(
            "machines",
            Integer,
            "the number of machines whose differences were taken out; 1 if one made all runs, or if they are part of the \
             scatter",
        ),
        key("machine_df", Integer, "degrees of freedom of these differences"),
    ],
};

static TERM: Form = Form {
    title: "Term of a model",
    includes: &[],
    keys: &[
        key("label", Text, "its factors, joined by `:`"),
        key("df", Decimal, "degrees of freedom"),
        key("f", Decimal, "the ratio of variances"),
        key("p", Decimal, "the probability of such a ratio without an effect"),
        key("share", Decimal, "the share of all squares that it explains"),
    ],
};

static DIFFERENCES: Form = Form {
    title: "Differences of means",
    includes: &[],
    keys: &[
        key("method", Text, "how intervals and probabilities are corrected: `Tukey–Kramer` or `Bonferroni`"),
        key("means", Integer, "the number of means"),
        key("comparisons", Integer, "the number of comparisons for which they are corrected"),
        key("confidence", Decimal, "the probability with which all intervals hold together"),
        key("half_width", Tuple(&[Decimal, Decimal]), "half of the narrowest interval's width, and of the widest's"),
        key("rows", List(&Object(&DIFFERENCE)), "the differences, in the order of levels"),
    ],
};

static DIFFERENCE: Form = Form {
    title: "Difference of two means",
    includes: &[],
    keys: &[
        key("panel", Integer, "the index of its panel; null if it is not split").or_null(),
        key("levels", Tuple(&[Integer, Integer]), "the indices of the levels: the first minus the second"),
        key("label", Text, "the levels in words: `first − second`"),
        key("combinations", Integer, "the combinations of the other factors that both have, of which it is the mean"),
        key(
            "is_confounded",
            Flag,
            "whether it may be one of machines, because no combination was run on machines of both sides",
        ),
        key("difference", Decimal, "the difference"),
        key("error", Decimal, "its standard error"),
        key("low", Decimal, "the lower end of its interval"),
        key("high", Decimal, "the upper end"),
        key("p", Decimal, "the corrected probability of such a difference if there is none"),
        key("relative", Decimal, "the difference as a share of the second mean; null if that is near 0").or_null(),
        key("welch_p", Decimal, "the probability by Welch's test, corrected by Holm's method; null if not tested")
            .or_null(),
        key(
            "welch",
            Tuple(&[Decimal, Decimal]),
            "the interval of Welch's test, corrected by Bonferroni's method; null if not tested",
        )
        .or_null(),
        key(
            "dunn_p",
            Decimal,
            "the probability by ranks (Dunn's test), corrected by Holm's method; null if not tested",
        )
        .or_null(),
        key(
            "ratio",
            Tuple(&[Decimal, OrNull(&Decimal), OrNull(&Decimal)]),
            "the ratio of the medians, first over second, and the ends of its interval; null unless two levels with \
             medians above 0 are compared",
        )
        .or_null(),
    ],
};

static DISTRIBUTIONS: Form = Form {
    title: "Distributions",
    includes: &[],
    keys: &[
        key(
            "form",
            Word(&["curves", "strips"]),
            "how they are drawn: `curves`, or `strips` with median and quartiles if there are too many levels",
        ),
        key("axis", Object(&AXIS), "the axis of scores, which all panels share"),
        key("top", Decimal, "the largest density"),
        key("levels", List(&Text), "the labels of the levels"),
        key("panels", List(&Object(&PANEL)), "the panels; none if there are too many levels to draw"),
        key("most_per_tick", Integer, "the most runs that a tick stands for"),
    ],
};

static PANEL: Form = Form {
    title: "Panel of distributions",
    includes: &[],
    keys: &[
        key("label", Text, "its label"),
        key("samples", List(&Object(&DISTRIBUTION)), "the distribution of each level"),
    ],
};

static DISTRIBUTION: Form = Form {
    title: "Distribution of scores",
    includes: &[],
    keys: &[
        key("runs", Integer, "the number of scores"),
        key("failed", Integer, "runs without a score"),
        key(
            "density",
            List(&Decimal),
            "the density at equal distances over the axis; empty if too few scores differ, and for strips",
        ),
        key("bandwidth", Decimal, "the standard deviation of its kernel; null without a density").or_null(),
        key(
            "rule",
            Word(&["Sheather–Jones", "nrd0"]),
            "the rule of the bandwidth: `Sheather–Jones` or `nrd0`; null without a density",
        )
        .or_null(),
        key("ticks", List(&Tuple(&[Decimal, Integer])), "scores, each with the number of runs there"),
        key(
            "quartiles",
            Tuple(&[Decimal, Decimal, Decimal]),
            "the lower quartile, the median and the upper quartile; null without a score",
        )
        .or_null(),
    ],
};

static AXIS: Form = Form {
    title: "Axis",
    includes: &[],
    keys: &[
        key("low", Decimal, "its begin"),
        key("high", Decimal, "its end"),
        key("marks", List(&Object(&MARK)), "marks at round numbers"),
    ],
};

static MARK: Form = Form {
    title: "Mark of an axis",
    includes: &[],
    keys: &[key("at", Decimal, "its place"), key("text", Text, "its text")],
};

static SPLIT: Form = Form {
    title: "Split by a factor",
    includes: &[],
    keys: &[
        key("factor", Text, "the factor"),
        key("distributions", Object(&DISTRIBUTIONS), "a panel for each of its levels; null if there are too many")
            .or_null(),
        key("panels", List(&Text), "the labels of its levels"),
        key("contrasts", Object(&DIFFERENCES), "the differences within the panels; null if they cannot be compared")
            .or_null(),
        key("statement", Text, "a sentence: the number of comparisons, and their intervals"),
    ],
};

static MATRIX: Form = Form {
    title: "Matrix of a report",
    includes: &[],
    keys: &[
        key("factors", List(&Text), "the other factors, of whose levels a row is a combination"),
        key("columns", List(&Text), "the levels of the factor of interest"),
        key("rows", List(&Object(&MATRIX_ROW)), "the rows, in the order of levels"),
        key("range", Tuple(&[Decimal, Decimal]), "the least and the largest median; null without a score").or_null(),
        key("drawn", List(&Integer), "the indices of the rows that are drawn"),
    ],
};

static MATRIX_ROW: Form = Form {
    title: "Row of a matrix",
    includes: &[],
    keys: &[
        key("levels", List(&Text), "the level of each of the other factors"),
        key(
            "cells",
            List(&OrNull(&Object(&CELL))),
            "the combination with each level of the factor of interest; null where no run was made",
        ),
        key(
            "marks",
            List(&Word(&["best", "worst", "highest", "lowest", "most failures"])),
            "`best` and `worst` of all rows, or `highest` and `lowest` if it is not known which scores are better; \
             `most failures`",
        ),
    ],
};

static CELL: Form = Form {
    title: "Cell of a matrix",
    includes: &[],
    keys: &[
        key("runs", Integer, "runs"),
        key("failed", Integer, "runs without a score"),
        key("median", Decimal, "the median; null if all failed").or_null(),
    ],
};

static COURSE: Form = Form {
    title: "Course of time",
    includes: &[],
    keys: &[
        key("order", Text, "what the order is: `order of start`, or that of rows in the table"),
        key("runs", Integer, "runs"),
        key(
            "blocks",
            List(&Tuple(&[Integer, Integer])),
            "the place in the order at which each block begins, and the block; empty if there are too many",
        ),
        key("series", List(&Object(&SERIES)), "the scores, and the scores less the median of their combination"),
        key(
            "disturbed",
            List(&Tuple(&[Decimal, Integer])),
            "the places of disturbed runs, or of columns of runs with some, each with its number",
        ),
        key("disturbed_runs", Integer, "disturbed runs"),
        key("failed", List(&Tuple(&[Decimal, Integer])), "the places of failed runs, likewise"),
        key(
            "correlation",
            Decimal,
            "Spearman's rank correlation with time of what the model does not explain; null if too few scores differ",
        )
        .or_null(),
        key("p", Decimal, "the probability of such a correlation without a drift; null if too few scores differ")
            .or_null(),
        key("finding", Text, "a sentence: whether the scores drift"),
    ],
};

static SERIES: Form = Form {
    title: "Series",
    includes: &[],
    keys: &[
        key("label", Text, "its label"),
        key("axis", Object(&AXIS), "the axis of its numbers"),
        key(
            "points",
            List(&Tuple(&[Integer, Decimal, Flag])),
            "the place, the number and whether it was disturbed, of each run; empty if there are too many runs",
        ),
        key(
            "bands",
            List(&Tuple(&[Decimal, Tuple(&[Decimal, Decimal, Decimal, Decimal, Decimal])])),
            "for many runs, columns of them: the place, and the minimum, the quartiles and the maximum; else empty",
        ),
        key("per_band", Integer, "the runs of a column"),
    ],
};

static CONFIRMATION: Form = Form {
    title: "Confirmation",
    includes: &[],
    keys: &[
        key("note", Text, "a sentence: why there are no hypotheses; null if there are").or_null(),
        key("hypotheses", List(&Object(&TESTED)), "the hypotheses"),
    ],
};

static TESTED: Form = Form {
    title: "Tested hypothesis",
    includes: &[],
    keys: &[
        key("statement", Text, "a sentence: what it states"),
        key("findings", List(&Text), "sentences: what follows"),
        key("unit", Text, "the unit of its score"),
        key("verdict", Object(&VERDICT), "what `test` says of it"),
    ],
};
