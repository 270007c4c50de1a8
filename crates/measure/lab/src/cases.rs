//! What the figures of a benchmark are: its cases, their units, and the labels. Each benchmark declares them beside itself;
//! the reference of the JSON is made from them, and the reports of tests are compared with them.

use serde_json::Value;

/// What a benchmark reports.
#[derive(Clone, Copy, Debug)]
pub struct Cases {
    /// Paragraphs before the tables.
    pub text: &'static [&'static str],
    /// The labels of all figures.
    pub every: &'static [&'static str],
    /// The cases.
    pub rows: &'static [CaseRow],
    /// The labels that [`COMMON`] does not explain.
    pub labels: &'static [FigureLabel],
}

/// Cases that have a unit in common.
#[derive(Clone, Copy, Debug)]
pub struct CaseRow {
    /// Their names.
    pub names: CaseNames,
    /// Their unit.
    pub unit: &'static str,
    /// What is measured.
    pub meaning: &'static str,
    /// The labels of all its figures.
    pub labels: &'static [&'static str],
    /// The labels of some of its figures.
    pub sometimes: &'static [&'static str],
}

/// The names of cases.
#[derive(Clone, Copy, Debug)]
pub enum CaseNames {
    /// These.
    Named(&'static [&'static str]),
    /// One for each thing of a kind.
    Each(&'static str),
}

impl CaseRow {
    pub(crate) const fn of(names: &'static [&'static str], unit: &'static str, meaning: &'static str) -> CaseRow {
        CaseRow { names: CaseNames::Named(names), unit, meaning, labels: &[], sometimes: &[] }
    }

    pub(crate) const fn each(kind: &'static str, unit: &'static str, meaning: &'static str) -> CaseRow {
        CaseRow { names: CaseNames::Each(kind), unit, meaning, labels: &[], sometimes: &[] }
    }

    pub(crate) const fn with(self, labels: &'static [&'static str]) -> CaseRow {
        CaseRow { labels, ..self }
    }

    pub(crate) const fn sometimes(self, sometimes: &'static [&'static str]) -> CaseRow {
        CaseRow { sometimes, ..self }
    }

    /// The names of its cases, or their kind.
    pub fn names(&self) -> &[&'static str] {
        match &self.names {
            CaseNames::Named(names) => names,
            CaseNames::Each(kind) => std::slice::from_ref(kind),
        }
    }
}

/// A label of figures.
#[derive(Clone, Copy, Debug)]
pub struct FigureLabel {
    /// Its name.
    pub name: &'static str,
    /// The type of its values.
    pub kind: LabelKind,
    /// Its meaning.
    pub meaning: &'static str,
    /// Whether its value may be null.
    pub is_nullable: bool,
}

/// A label whose value is never null.
pub(crate) const fn label(name: &'static str, kind: LabelKind, meaning: &'static str) -> FigureLabel {
    FigureLabel { name, kind, meaning, is_nullable: false }
}

impl FigureLabel {
    /// The same; the value may be null.
    pub(crate) const fn or_null(self) -> FigureLabel {
        FigureLabel { is_nullable: true, ..self }
    }

    /// Whether a value is one of the label.
    pub fn fits(&self, value: &Value) -> bool {
        self.is_nullable && value.is_null() || self.kind.fits(value)
    }
}

/// The type of a label's values.
#[derive(Clone, Copy, Debug)]
pub enum LabelKind {
    /// Any text.
    Text,
    /// One of these words, which the meaning explains.
    Word(&'static [&'static str]),
    /// A whole number.
    Integer,
    /// A number that may have a fraction.
    Decimal,
    /// True or false.
    Flag,
    /// A value of one of these types.
    Either(&'static [LabelKind]),
}

impl LabelKind {
    fn fits(&self, value: &Value) -> bool {
        match self {
            LabelKind::Text => value.is_string(),
            LabelKind::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            LabelKind::Integer => value.is_u64() || value.is_i64(),
            LabelKind::Decimal => value.is_number(),
            LabelKind::Flag => value.is_boolean(),
            LabelKind::Either(kinds) => kinds.iter().any(|kind| kind.fits(value)),
        }
    }

    /// The type in words.
    pub fn written(&self) -> String {
        match self {
            LabelKind::Text | LabelKind::Word(_) => "text".to_owned(),
            LabelKind::Integer => "integer".to_owned(),
            LabelKind::Decimal => "decimal".to_owned(),
            LabelKind::Flag => "true or false".to_owned(),
            LabelKind::Either(kinds) => kinds.iter().map(LabelKind::written).collect::<Vec<_>>().join(" or "),
        }
    }
}

/// Labels that several benchmarks have.
pub const COMMON: [FigureLabel; 9] = [
    label("schedule", LabelKind::Word(&["nested", "flat", "native"]), "the schedule: `nested`, `flat` or `native`"),
    label("burst", LabelKind::Integer, "packets per breath"),
    label("size", LabelKind::Integer, "bytes of a packet"),
    label("routes", LabelKind::Integer, "routes in the table"),
    label("in_flight", LabelKind::Integer, "different packets that take turns, so that they stay in a cache or do not"),
    label("workers", LabelKind::Integer, "the number of `--workers`, if there are several"),
    label("of", LabelKind::Text, "what is divided by what"),
    label("target", LabelKind::Text, "what the figure should be, such as `at most 2` or `0.97–1.03`"),
    label(
        "verdict",
        LabelKind::Word(&["holds", "fails", "undecided"]),
        "`holds` or `fails` if the whole interval is on one side of the target, else `undecided`, as with fewer than six \
         processes",
    ),
];
