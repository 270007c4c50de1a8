//! The forms of hypotheses, and of how many runs show a difference.

use super::super::Kind::{Decimal, Flag, Integer, List, Map, Object, Text, Tuple, Word};
use super::super::{Form, Section, key};

pub(super) const REGISTER: Section = Section {
    heading: "`bellows campaign register --json`",
    commands: &["campaign register"],
    text: &["A list of objects, in the order of the campaign file: the record of each hypothesis."],
    whole: Some(List(&Object(&RECORD))),
    parts: &[&HYPOTHESIS],
    notes: &[],
};

pub(super) const TEST: Section = Section {
    heading: "`bellows campaign test --json`",
    commands: &["campaign test"],
    text: &[
        "A list of objects: the hypotheses of the campaign file, and after them those that are only in the register.",
    ],
    whole: Some(List(&Object(&VERDICT))),
    parts: &[&RUN_COUNTS, &ESTIMATE],
    notes: &[],
};

pub(super) const POWER: Section = Section {
    heading: "`bellows campaign power --json`",
    commands: &["campaign power"],
    text: &[],
    whole: Some(Object(&NEEDED)),
    parts: &[],
    notes: &[],
};

static RECORD: Form = Form {
    title: "Registered hypothesis",
    includes: &[],
    keys: &[
        key("hypothesis", Object(&HYPOTHESIS), "the hypothesis"),
        key("text", Text, "the hash of what it states"),
        key("campaign", Text, "the hash of the campaign"),
        key("time", Text, "when it was registered, by the clock of `host` (RFC 3339, UTC)"),
        key("host", Text, "the name of the machine on which it was registered"),
        key("repeats", Integer, "the number of blocks after which it is tested"),
        key("rows", Integer, "the number of rows that were recorded before"),
        key("journal", Text, "the hash of these rows"),
        key("previous", Text, "the hash of the record before; null for the first").or_null(),
        key("hash", Text, "the hash of all of this"),
    ],
};

static HYPOTHESIS: Form = Form {
    title: "Hypothesis",
    includes: &[],
    keys: &[
        key("name", Text, "its name"),
        key("score", Text, "the score that it is about"),
        key("term", List(&Text), "the factors whose means are compared; several for the cells of an interaction"),
        key(
            "compare",
            Tuple(&[List(&Text), List(&Text)]),
            "the means that are compared, the first minus the second: a level of each factor of `term`",
        ),
        key("where", Map(&List(&Text)), "the only runs that count: factors, each with the levels that are taken"),
        key(
            "direction",
            Word(&["greater", "less", "different", "equal"]),
            "`greater` (the first mean is), `less`, `different` or `equal` (they differ by less than the margin)",
        ),
        key("margin", Decimal, "by how much the difference exceeds 0, in the score's unit"),
        key(
            "level",
            Decimal,
            "the probability of confirming it by chance, for all hypotheses of the campaign together",
        ),
        key("explored", Integer, "the number of first blocks that were looked at to find it"),
        key("repeats", Integer, "the number of blocks after which it is tested, if the file says so").or_absent(),
    ],
};

pub(super) static VERDICT: Form = Form {
    title: "Verdict",
    includes: &[],
    keys: &[
        key("hypothesis", Object(&HYPOTHESIS), "the hypothesis"),
        key("stated", Flag, "whether the file has it; others are only in the register"),
        key("registered", Text, "when it was registered as it is stated now; null if it is not").or_null(),
        key("repeats", Integer, "the number of blocks after which it is tested; null if it is not registered")
            .or_null(),
        key(
            "conclusion",
            Word(&["confirmed", "not-confirmed", "refused"]),
            "`confirmed`, `not-confirmed`, or `refused` (no runs can confirm it, or not all that were planned are made)",
        ),
        key("refused", Text, "why it is refused, and the way out; null if it is not").or_null(),
        key("runs", Object(&RUN_COUNTS), "the runs that it is about"),
        key(
            "confirmation",
            Object(&ESTIMATE),
            "what the runs say that can confirm it; null with too few of them, or while some are missing",
        )
        .or_null(),
        key("exploration", Object(&ESTIMATE), "what all other runs say; null with too few of them").or_null(),
        key("warnings", List(&Text), "sentences about what the test assumes and does not hold"),
    ],
};

static RUN_COUNTS: Form = Form {
    title: "Runs of a hypothesis",
    includes: &[],
    keys: &[
        key("confirming", Integer, "those that can confirm it"),
        key("made_before", Integer, "those made before it was registered; all, if it is not"),
        key("explored", Integer, "those looked at to find it"),
        key("beyond_plan", Integer, "those of more blocks than were planned"),
        key("without_score", Integer, "those without the score, which count nowhere else"),
        key("missing", Integer, "those that were planned and are not made yet"),
    ],
};

static ESTIMATE: Form = Form {
    title: "Estimate",
    includes: &[],
    keys: &[
        key("difference", Decimal, "the first mean minus the second, in the score's unit"),
        key("low", Decimal, "the lower end of its interval"),
        key("high", Decimal, "the upper end"),
        key("confidence", Decimal, "the confidence of the interval"),
        key(
            "p",
            Decimal,
            "the probability of data that speak as much for the hypothesis, or in exploration for a difference, if it is \
             not so",
        ),
        key("corrected_p", Decimal, "the same, corrected for all registered hypotheses; null in exploration").or_null(),
        key("df", Decimal, "degrees of freedom"),
        key("means", Integer, "the number of means of the term"),
        key("runs", Tuple(&[Integer, Integer]), "the runs of the two means"),
        key(
            "machines",
            Integer,
            "the number of machines whose differences were taken out; 1 if one made all runs, or if they are part of the \
             scatter",
        ),
        key(
            "detectable",
            Decimal,
            "the difference, margin included, that the runs would have confirmed with a probability of 0.8; null for \
             `equal`, without scatter and in exploration",
        )
        .or_null(),
    ],
};

static NEEDED: Form = Form {
    title: "Needed runs",
    includes: &[],
    keys: &[
        key("runs", Integer, "the runs of each level"),
        key(
            "repeats",
            Integer,
            "the blocks that have these runs; null if levels have different numbers of combinations",
        )
        .or_null(),
        key("effect", Decimal, "the difference that is to be found, in the score's unit"),
        key("unit", Text, "the unit of the score"),
        key("mean", Decimal, "the mean of all scores"),
        key("deviation", Decimal, "the standard deviation of runs of the same combination, in the score's unit"),
        key("from_runs", Integer, "the number of runs from which the deviation is known"),
        key("pairs", Integer, "the number of pairs of levels, for which the level is corrected"),
        key(
            "shown_so_far",
            Decimal,
            "the difference that the runs so far show with this probability; null if they are too few",
        )
        .or_null(),
    ],
};
