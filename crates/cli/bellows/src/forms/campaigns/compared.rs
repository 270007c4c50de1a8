//! The forms of comparisons of two versions.

use super::super::Kind::{Decimal, Flag, Integer, List, Map, Object, Text, Tuple, Word};
use super::super::{Form, Section, key};

pub(super) const COMPARE: Section = Section {
    heading: "`bellows campaign compare --json`",
    commands: &["campaign compare"],
    text: &[],
    whole: Some(Object(&COMPARISON)),
    parts: &[&VERSION, &COMPARED, &EFFECT, &FAILURES, &LOST_PAIR, &UNDISTURBED],
    notes: &[],
};

static COMPARISON: Form = Form {
    title: "Comparison",
    includes: &[],
    keys: &[
        key("name", Text, "the name of the campaign"),
        key("hash", Text, "the hash of the campaign"),
        key("old", Text, "what the old version is called"),
        key("new", Text, "what the new version is called"),
        key(
            "versions",
            Tuple(&[Object(&VERSION), Object(&VERSION)]),
            "the old and the new version; null if the campaign has no `[build]`",
        )
        .or_null(),
        key("is_same", Flag, "whether both have the same contents: an A/A check of the machine"),
        key("confidence", Decimal, "the probability with which all intervals hold together"),
        key("margin", Decimal, "the difference, as a share, below which versions are equal; null without one")
            .or_null(),
        key("runs", Integer, "the number of runs"),
        key("disturbed_runs", Integer, "the number of disturbed runs"),
        key("single_runs", Integer, "the number of runs whose partner is not made yet"),
        key("results", List(&Object(&COMPARED)), "what the pairs of each combination and score say"),
        key(
            "whole",
            List(&Object(&COMPARED)),
            "what all combinations of a score say together, if there are several, and `all scores`",
        ),
    ],
};

static VERSION: Form = Form {
    title: "Compared version",
    includes: &[],
    keys: &[
        key("name", Text, "what it was called: a revision, `working tree`, or a path"),
        key(
            "commit",
            Text,
            "its commit, if it is from git; that of a working tree was made for its contents, and is on no branch",
        )
        .or_absent(),
        key("content", Text, "the hash of its contents"),
    ],
};

const CONCLUSIONS: &[&str] =
    &["faster", "slower", "higher", "lower", "equal", "no-difference", "too-few-pairs", "new-fails", "old-fails"];

static COMPARED: Form = Form {
    title: "Compared pairs",
    includes: &[],
    keys: &[
        key("levels", Map(&Text), "the levels of the other factors; none for all combinations together"),
        key("score", Text, "the score"),
        key("unit", Text, "its unit"),
        key("better", Word(&["higher", "lower"]), "`higher` or `lower`: which scores are better; null if not known")
            .or_null(),
        key(
            "conclusion",
            Word(CONCLUSIONS),
            "of the new version: `faster` (its score is better), `slower`, `higher` or `lower` (it is not known which is \
             better), `equal` (the difference is less than the margin), `no-difference` (these pairs show none), \
             `too-few-pairs`, `new-fails` (it alone has no score, more often than by chance) or `old-fails`",
        ),
        key("effect", Object(&EFFECT), "the difference; null with fewer than two pairs").or_null(),
        key("combinations", Integer, "the number of combinations and scores that are judged together"),
        key("failures", Object(&FAILURES), "how often one version alone has no score"),
        key("pairs", Integer, "the number of pairs with both scores"),
        key("disturbed", Integer, "the number of these of which a run was disturbed"),
        key("lost", List(&Object(&LOST_PAIR)), "the pairs that do not count"),
        key(
            "undisturbed",
            Object(&UNDISTURBED),
            "what the undisturbed pairs say alone; null if that is not something else",
        )
        .or_null(),
    ],
};

static EFFECT: Form = Form {
    title: "Effect",
    includes: &[],
    keys: &[
        key(
            "scale",
            Word(&["share", "unit"]),
            "`share` (differences are shares of the old score; all scores are above 0) or `unit` (they are in the score's \
             unit)",
        ),
        key("old", Decimal, "the mean of the old scores; the geometric mean if the effect is a share"),
        key("new", Decimal, "the same of the new scores"),
        key("difference", Decimal, "new less old"),
        key("low", Decimal, "the lower end of its interval; the intervals of all comparisons hold together"),
        key("high", Decimal, "the upper end; null if it is too large for a number").or_null(),
        key("confidence", Decimal, "the confidence of this interval alone"),
        key("p", Decimal, "the probability of such pairs if there is no difference, by Student's test"),
        key("corrected_p", Decimal, "the same, corrected for all comparisons by Holm's method"),
        key(
            "ranks_p",
            Decimal,
            "the same by the ranks of the differences (Wilcoxon's test), corrected; null for several combinations \
             together, or without scatter",
        )
        .or_null(),
        key(
            "medians",
            Tuple(&[Decimal, Decimal, Decimal]),
            "the ratio of the medians less 1, and the ends of its 95 percent interval; null unless the effect is a share, \
             and for several combinations together or too many pairs",
        )
        .or_null(),
        key(
            "equal_p",
            Decimal,
            "the corrected probability of such pairs if the versions differ by the margin or more; null without a margin",
        )
        .or_null(),
        key(
            "detectable",
            Decimal,
            "the difference that would have been found with a probability of 0.8; null without scatter",
        )
        .or_null(),
        key("error", Decimal, "the standard error of the difference; of its logarithm, if it is a share"),
        key("df", Decimal, "degrees of freedom"),
    ],
};

static FAILURES: Form = Form {
    title: "Failures of one version",
    includes: &[],
    keys: &[
        key("new_alone", Integer, "pairs in which the new version alone has no score"),
        key("old_alone", Integer, "pairs in which the old version alone has none"),
        key("both", Integer, "pairs with both scores"),
        key(
            "corrected_p",
            Decimal,
            "the probability of such numbers if both versions fail equally often (McNemar's exact test), corrected for \
             all comparisons",
        ),
    ],
};

static LOST_PAIR: Form = Form {
    title: "Lost pair",
    includes: &[],
    keys: &[
        key("block", Integer, "its block"),
        key(
            "runs",
            Map(&Text),
            "the reason for each run without a score, by its id; for both if their machines differ",
        ),
        key("is_of_two_machines", Flag, "whether its runs were made on different machines"),
        key("has_old", Flag, "whether the old version has its score"),
        key("has_new", Flag, "whether the new version has its score"),
    ],
};

static UNDISTURBED: Form = Form {
    title: "Undisturbed pairs",
    includes: &[],
    keys: &[
        key(
            "conclusion",
            Word(CONCLUSIONS),
            "`faster`, `slower`, `higher`, `lower`, `equal`, `no-difference`, `too-few-pairs`, `new-fails` or \
             `old-fails`, as above",
        ),
        key("effect", Object(&EFFECT), "the difference; null with fewer than two pairs").or_null(),
        key("pairs", Integer, "their number"),
    ],
};
