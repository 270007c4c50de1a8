//! The cases of benchmarks, with their units, and the labels of their figures.
//!
//! Tests compare the tables with the reports of all benchmarks, in both directions.

mod tables;
#[cfg(all(test, feature = "measure"))]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Map, Value};

use super::{Found, Key, Kind, differences, key, paragraph};
use tables::BENCHMARKS;

/// What a benchmark reports.
struct Benchmark {
    /// The `bench` of its reports.
    name: &'static str,
    /// Paragraphs before the tables.
    text: &'static [&'static str],
    /// The labels of all figures.
    every: &'static [&'static str],
    rows: &'static [Row],
    /// The labels that [`COMMON`] does not explain.
    labels: &'static [Key],
}

/// Cases that have a unit in common.
struct Row {
    cases: Cases,
    unit: &'static str,
    meaning: &'static str,
    /// The labels of all its figures.
    labels: &'static [&'static str],
    /// The labels of some of its figures.
    sometimes: &'static [&'static str],
}

enum Cases {
    /// These.
    Named(&'static [&'static str]),
    /// One for each thing of a kind.
    Each(&'static str),
}

impl Row {
    const fn of(cases: &'static [&'static str], unit: &'static str, meaning: &'static str) -> Row {
        Row { cases: Cases::Named(cases), unit, meaning, labels: &[], sometimes: &[] }
    }

    const fn each(kind: &'static str, unit: &'static str, meaning: &'static str) -> Row {
        Row { cases: Cases::Each(kind), unit, meaning, labels: &[], sometimes: &[] }
    }

    const fn with(self, labels: &'static [&'static str]) -> Row {
        Row { labels, ..self }
    }

    const fn sometimes(self, sometimes: &'static [&'static str]) -> Row {
        Row { sometimes, ..self }
    }

    /// The names of its cases, or their kind.
    fn names(&self) -> &[&'static str] {
        match &self.cases {
            Cases::Named(names) => names,
            Cases::Each(kind) => std::slice::from_ref(kind),
        }
    }
}

/// Labels that several benchmarks have.
static COMMON: [Key; 9] = [
    key("schedule", Kind::Word(&["nested", "flat", "native"]), "the schedule: `nested`, `flat` or `native`"),
    key("burst", Kind::Integer, "packets per breath"),
    key("size", Kind::Integer, "bytes of a packet"),
    key("routes", Kind::Integer, "routes in the table"),
    key("in_flight", Kind::Integer, "different packets that take turns, so that they stay in a cache or do not"),
    key("workers", Kind::Integer, "the number of `--workers`, if there are several"),
    key("of", Kind::Text, "what is divided by what"),
    key("target", Kind::Text, "what the figure should be, such as `at most 2` or `0.97–1.03`"),
    key(
        "verdict",
        Kind::Word(&["holds", "fails", "undecided"]),
        "`holds` or `fails` if the whole interval is on one side of the target, else `undecided`, as with fewer than six \
         processes",
    ),
];

/// A case (or kind of cases) with its unit, or one of its labels: benchmark, case, unit, label.
pub type FoundCases = BTreeSet<[&'static str; 4]>;

/// Compares the figures of a report with the table of their benchmark. Notes what they have, and returns the differences.
///
/// Reports of `cargo xtask peers` are not compared.
pub fn case_differences(report: &Value, found: &mut FoundCases) -> Vec<String> {
    let name = report["bench"].as_str().unwrap_or_default();
    if name.starts_with("peers ") {
        return Vec::new();
    }
    let Some(benchmark) = BENCHMARKS.iter().find(|benchmark| benchmark.name == name) else {
        return vec![format!("there is no benchmark `{name}`")];
    };
    let figures = report["results"].as_array().into_iter().flatten();
    figures.flat_map(|figure| benchmark.compare(figure, found)).collect()
}

/// Cases and labels of which no figure was found.
pub fn unmet_cases(found: &FoundCases) -> Vec<[&'static str; 4]> {
    BENCHMARKS.iter().flat_map(Benchmark::all).filter(|one| !found.contains(one)).collect()
}

impl Benchmark {
    /// The cases with their units, and the labels of each row.
    fn all(&self) -> Vec<[&'static str; 4]> {
        let of_row = |row: &Row| {
            let cases = row.names().iter().map(|case| [self.name, case, row.unit, ""]);
            let labels = [self.every, row.labels, row.sometimes].concat();
            let labels = labels.into_iter().map(|label| [self.name, row.names()[0], row.unit, label]);
            cases.chain(labels).collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(of_row).collect()
    }

    /// The explanation of a label.
    fn label(&self, name: &str) -> Option<&'static Key> {
        self.labels.iter().chain(&COMMON).find(|label| label.name == name)
    }

    /// The row of a case in one of these units, and the case's name or kind.
    fn row(&self, case: &str, fits: impl Fn(&Row) -> bool) -> Option<(&'static Row, &'static str)> {
        let named = |row: &'static Row| match row.cases {
            Cases::Named(names) => names.iter().find(|name| **name == case).copied(),
            Cases::Each(_) => None,
        };
        let kind = |row: &'static Row| match row.cases {
            Cases::Named(_) => None,
            Cases::Each(kind) => Some(kind),
        };
        let is_named = self.rows.iter().any(|row| named(row).is_some());
        let mut found = self.rows.iter().filter_map(|row| Some((row, if is_named { named(row) } else { kind(row) }?)));
        found.find(|(row, _)| fits(row))
    }

    fn compare(&self, figure: &Value, found: &mut FoundCases) -> Vec<String> {
        let [case, unit] = ["case", "unit"].map(|key| figure[key].as_str().unwrap_or_default());
        let Some(labels) = figure["labels"].as_object() else {
            return vec![format!("{case}: there are no labels")];
        };
        let place = |what: &str| format!("`{case}` of `{}` in `{unit}`: {what}", self.name);
        let differences = match self.row(case, |row| row.unit == unit) {
            None => vec!["there is no such case".to_owned()],
            Some((row, name)) => {
                found.insert([self.name, name, row.unit, ""]);
                let required = [self.every, row.labels].concat();
                let mut differences = missing(&required, labels);
                for (label, value) in labels {
                    let known = required.iter().chain(row.sometimes).find(|known| *known == label);
                    let explained = known.and_then(|label| self.label(label));
                    differences.extend(wrong(explained, label, value));
                    found.extend(known.map(|label| [self.name, row.names()[0], row.unit, label]));
                }
                differences
            }
        };
        differences.iter().map(|what| place(what)).collect()
    }
}

/// The labels that are not there.
fn missing(required: &[&str], labels: &Map<String, Value>) -> Vec<String> {
    let absent = required.iter().filter(|label| !labels.contains_key(**label));
    absent.map(|label| format!("the label `{label}` is missing")).collect()
}

/// What is wrong with the value of a label.
fn wrong(explained: Option<&Key>, label: &str, value: &Value) -> Vec<String> {
    let Some(key) = explained else { return vec![format!("the label `{label}` is not explained")] };
    if key.is_nullable && value.is_null() {
        return Vec::new();
    }
    let found = differences(key.kind, value, &mut Found::new());
    found.into_iter().map(|difference| format!("label `{label}`{difference}")).collect()
}

/// Where the cases are in the reference.
pub(super) const HEADING: &str = "Cases of benchmarks";

/// The tables of all benchmarks, in Markdown.
pub(super) fn markdown() -> String {
    let mut page = format!("### {HEADING}\n\n");
    page += &paragraph(
        "The cases of each benchmark, the units of its figures, and their labels. These labels have the same meaning \
         in all tables that do not explain them:",
    );
    label_table(&mut page, &COMMON);
    BENCHMARKS.iter().for_each(|benchmark| benchmark.print(&mut page));
    page
}

fn label_table(page: &mut String, labels: &[Key]) {
    page.push_str("| label | type | meaning |\n|---|---|---|\n");
    for label in labels {
        let kind = label.kind.written() + if label.is_nullable { ", or null" } else { "" };
        let _ = writeln!(page, "| `{}` | {kind} | {} |", label.name, label.meaning);
    }
    page.push('\n');
}

/// Names as code.
fn code(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Benchmark {
    fn print(&self, page: &mut String) {
        let Benchmark { name, text, every, rows, labels } = self;
        let words = if ["appbench", "breathsim"].contains(name) { "" } else { "bench " };
        let _ = write!(page, "#### `bellows {words}{name} --json`\n\n");
        text.iter().for_each(|text| *page += &paragraph(text));
        let has_more = rows.iter().any(|row| !row.labels.is_empty() || !row.sometimes.is_empty());
        page.push_str("| case | unit | meaning |");
        page.push_str(if has_more { " labels |\n|---|---|---|---|\n" } else { "\n|---|---|---|\n" });
        let mut kinds = BTreeSet::new();
        for row in *rows {
            let cases = match row.cases {
                Cases::Named(names) => code(names),
                Cases::Each(kind) if kinds.insert(kind) => kind.to_owned(),
                Cases::Each(_) => "the same".to_owned(),
            };
            let _ = write!(page, "| {cases} | `{}` | {} |", row.unit, row.meaning);
            if has_more {
                let always = Some(code(row.labels)).filter(|labels| !labels.is_empty());
                let sometimes = Some(code(row.sometimes)).filter(|labels| !labels.is_empty());
                let sometimes = sometimes.map(|labels| format!("sometimes {labels}"));
                let cell = always.into_iter().chain(sometimes).collect::<Vec<_>>().join("; ");
                page.push_str(&if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") });
            }
            page.push('\n');
        }
        page.push('\n');
        if !every.is_empty() {
            let also = if has_more { "also " } else { "" };
            let s = if every.len() == 1 { "" } else { "s" };
            *page += &paragraph(&format!("All figures {also}have the label{s} {}.", code(every)));
        } else if !has_more {
            *page += &paragraph("The figures have no labels.");
        }
        if !labels.is_empty() {
            label_table(page, labels);
        }
    }
}
