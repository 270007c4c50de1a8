//! The tables fit together, and what differs from them is reported.

use std::collections::BTreeSet;

use bellows_lab::cases::LabelKind;
use serde_json::json;

use super::*;

fn figure(case: &str, unit: &str, labels: Value) -> Value {
    json!({ "bench": "history", "results": [{ "case": case, "unit": unit, "labels": labels }] })
}

fn differences_of(report: &Value) -> Vec<String> {
    case_differences(report, &mut FoundCases::new())
}

#[test]
fn every_benchmark_has_a_table() {
    let page = markdown();
    for entry in benchmarks::ALL {
        assert!(!entry.cases.rows.is_empty(), "{}", entry.name);
        assert!(page.contains(&format!("\n#### `bellows {} --json`\n", entry.words().join(" "))), "{page}");
    }
}

#[test]
fn every_label_of_a_row_is_explained_once_and_every_explanation_is_used() {
    let mut common = BTreeSet::new();
    for benchmark in benchmarks::ALL {
        let used: BTreeSet<&str> =
            all(benchmark).into_iter().map(|[.., label]| label).filter(|label| !label.is_empty()).collect();
        let own: BTreeSet<&str> = benchmark.cases.labels.iter().map(|label| label.name).collect();
        assert_eq!(own.len(), benchmark.cases.labels.len(), "{}: a label is explained twice", benchmark.name);
        assert!(own.is_subset(&used), "{}: {own:?} of {used:?}", benchmark.name);
        for label in &used {
            assert!(explanation(benchmark, label).is_some(), "{}: {label}", benchmark.name);
        }
        common.extend(used.difference(&own).copied());
    }
    assert_eq!(common, COMMON.iter().map(|label| label.name).collect());
}

#[test]
fn meanings_are_no_sentences_and_explain_every_word() {
    let labels = benchmarks::ALL.iter().flat_map(|benchmark| benchmark.cases.labels).chain(&COMMON);
    for FigureLabel { name, kind, meaning, .. } in labels {
        assert!(!meaning.is_empty() && !meaning.ends_with('.'), "{name}");
        let kinds = if let LabelKind::Either(kinds) = kind { kinds } else { std::slice::from_ref(kind) };
        for kind in kinds {
            let LabelKind::Word(words) = kind else { continue };
            assert!(words.iter().all(|word| meaning.contains(&format!("`{word}`"))), "{name}: {meaning}");
        }
    }
}

#[test]
fn a_figure_of_its_table_has_no_differences() {
    let labels = json!({ "schedule": "flat", "clocks": 3.5, "tees": 3 });
    let mut found = FoundCases::new();
    let report = figure("idle-first", "ratio", labels);
    assert_eq!(case_differences(&report, &mut found), Vec::<String>::new());
    let expected = ["", "schedule", "clocks", "tees"].map(|label| ["history", "idle-first", "ratio", label]);
    assert_eq!(found, expected.into());
    let unmet = unmet_cases(&found);
    assert!(!unmet.contains(&expected[1]) && unmet.contains(&["history", "idle-first", "ratio", "workers"]));
    let met: FoundCases = unmet_cases(&unmet.into_iter().collect()).into_iter().collect();
    assert_eq!(met, found);
}

#[test]
fn each_difference_of_a_figure_is_told() {
    let labels = json!({ "schedule": "odd", "clocks": 3.5, "more": 1 });
    let expected =
        ["the label `tees` is missing", "label `schedule`: \"odd\" is not text", "the label `more` is not explained"];
    let found = differences_of(&figure("idle-first", "ratio", labels.clone()));
    for what in expected {
        assert!(found.contains(&format!("`idle-first` of `history` in `ratio`: {what}")), "{found:#?}");
    }
    assert_eq!(found.len(), expected.len());
    for (case, unit) in [("idle-last", "ratio"), ("idle-first", "clocks")] {
        let found = differences_of(&figure(case, unit, labels.clone()));
        assert_eq!(found, [format!("`{case}` of `history` in `{unit}`: there is no such case")]);
    }
    let nothing = differences_of(&json!({ "bench": "nothing", "results": [] }));
    assert_eq!(nothing, ["there is no benchmark `nothing`"]);
    assert!(differences_of(&json!({ "bench": "peers filter", "results": [{}] })).is_empty());
}
