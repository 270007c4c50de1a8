//! The cases of benchmarks, with their units, and the labels of their figures.
//!
//! Tests compare the tables with the reports of all benchmarks, in both directions.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write;

use bellows_lab::benchmarks::{self, BenchmarkEntry};
use bellows_lab::cases::{COMMON, CaseNames, CaseRow, Cases, FigureLabel};
use serde_json::{Map, Value};

use super::paragraph;

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
    let Some(benchmark) = benchmarks::ALL.iter().find(|benchmark| benchmark.name == name) else {
        return vec![format!("there is no benchmark `{name}`")];
    };
    let figures = report["results"].as_array().into_iter().flatten();
    figures.flat_map(|figure| compare(benchmark, figure, found)).collect()
}

/// Cases and labels of which no figure was found.
pub fn unmet_cases(found: &FoundCases) -> Vec<[&'static str; 4]> {
    benchmarks::ALL.iter().flat_map(all).filter(|one| !found.contains(one)).collect()
}

/// The cases with their units, and the labels of each row.
fn all(benchmark: &BenchmarkEntry) -> Vec<[&'static str; 4]> {
    let of_row = |row: &'static CaseRow| {
        let cases = row.names().iter().map(|case| [benchmark.name, case, row.unit, ""]);
        let labels = [benchmark.cases.every, row.labels, row.sometimes].concat();
        let labels = labels.into_iter().map(|label| [benchmark.name, row.names()[0], row.unit, label]);
        cases.chain(labels).collect::<Vec<_>>()
    };
    benchmark.cases.rows.iter().flat_map(of_row).collect()
}

/// The explanation of a label.
fn explanation(benchmark: &BenchmarkEntry, name: &str) -> Option<&'static FigureLabel> {
    benchmark.cases.labels.iter().chain(&COMMON).find(|label| label.name == name)
}

/// The row of a case in one of these units, and the case's name or kind.
fn row(
    benchmark: &BenchmarkEntry,
    case: &str,
    fits: impl Fn(&CaseRow) -> bool,
) -> Option<(&'static CaseRow, &'static str)> {
    let named = |row: &'static CaseRow| match row.names {
        CaseNames::Named(names) => names.iter().find(|name| **name == case).copied(),
        CaseNames::Each(_) => None,
    };
    let kind = |row: &'static CaseRow| match row.names {
        CaseNames::Named(_) => None,
        CaseNames::Each(kind) => Some(kind),
    };
    let rows = benchmark.cases.rows;
    let is_named = rows.iter().any(|row| named(row).is_some());
    let mut found = rows.iter().filter_map(|row| Some((row, if is_named { named(row) } else { kind(row) }?)));
    found.find(|(row, _)| fits(row))
}

fn compare(benchmark: &BenchmarkEntry, figure: &Value, found: &mut FoundCases) -> Vec<String> {
    let [case, unit] = ["case", "unit"].map(|key| figure[key].as_str().unwrap_or_default());
    let Some(labels) = figure["labels"].as_object() else {
        return vec![format!("{case}: there are no labels")];
    };
    let place = |what: &str| format!("`{case}` of `{}` in `{unit}`: {what}", benchmark.name);
    let differences = match row(benchmark, case, |row| row.unit == unit) {
        None => vec!["there is no such case".to_owned()],
        Some((row, name)) => {
            found.insert([benchmark.name, name, row.unit, ""]);
            let required = [benchmark.cases.every, row.labels].concat();
            let mut differences = missing(&required, labels);
            for (label, value) in labels {
                let known = required.iter().chain(row.sometimes).find(|known| *known == label);
                let explained = known.and_then(|label| explanation(benchmark, label));
                differences.extend(wrong(explained, label, value));
                found.extend(known.map(|label| [benchmark.name, row.names()[0], row.unit, label]));
            }
            differences
        }
    };
    differences.iter().map(|what| place(what)).collect()
}

/// The labels that are not there.
fn missing(required: &[&str], labels: &Map<String, Value>) -> Vec<String> {
    let absent = required.iter().filter(|label| !labels.contains_key(**label));
    absent.map(|label| format!("the label `{label}` is missing")).collect()
}

/// What is wrong with the value of a label.
fn wrong(explained: Option<&FigureLabel>, name: &str, value: &Value) -> Option<String> {
    match explained {
        None => Some(format!("the label `{name}` is not explained")),
        Some(label) if !label.fits(value) => Some(format!("label `{name}`: {value} is not {}", label.kind.written())),
        Some(_) => None,
    }
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
    benchmarks::ALL.iter().for_each(|benchmark| print(&mut page, benchmark));
    page
}

fn label_table(page: &mut String, labels: &[FigureLabel]) {
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

fn print(page: &mut String, benchmark: &BenchmarkEntry) {
    let Cases { text, every, rows, labels } = benchmark.cases;
    let _ = write!(page, "#### `bellows {} --json`\n\n", benchmark.words().join(" "));
    text.iter().for_each(|text| *page += &paragraph(text));
    let has_more = rows.iter().any(|row| !row.labels.is_empty() || !row.sometimes.is_empty());
    page.push_str("| case | unit | meaning |");
    page.push_str(if has_more { " labels |\n|---|---|---|---|\n" } else { "\n|---|---|---|\n" });
    let mut kinds = BTreeSet::new();
    for row in rows {
        let cases = match row.names {
            CaseNames::Named(names) => code(names),
            CaseNames::Each(kind) if kinds.insert(kind) => kind.to_owned(),
            CaseNames::Each(_) => "the same".to_owned(),
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
