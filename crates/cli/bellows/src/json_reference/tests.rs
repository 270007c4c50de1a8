//! The forms fit together, and fit what is rarely printed.

use std::collections::BTreeMap;
use std::time::Duration;

use bellows_engine::{End as RunEnd, Outcome};
use bellows_inspect::histogram::Histogram as Classes;
use bellows_inspect::networks::Hang;
use bellows_lab::machine::Machine;
use bellows_lab::report::{Measurement, Overhead, Ratio, Report};
use bellows_observe::layout::engine;
use bellows_observe::look_ahead::{LookAhead, TrialResult};
use bellows_observe::{Activity, AppCounts, CurrentCall, Gone, Histogram, LinkCounts, Snapshot, WorkerCounts};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::*;
use crate::report::{RunReport, StoppedBy};

/// What has a name.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Common")]
struct Common {
    /// Its name.
    name: String,
}

#[derive(JsonSchema, Serialize)]
#[schemars(title = "Part")]
struct Part {
    /// Its size.
    size: u64,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is read")]
enum End {
    Done,
    Stopped,
}

#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is read")]
enum Limit {
    Number(u64),
    Part(Part),
}

#[derive(JsonSchema, Serialize)]
#[schemars(title = "Whole", extend("includes" = ["Common"]))]
struct Whole {
    #[serde(flatten)]
    common: Common,
    /// How it ended.
    end: Option<End>,
    /// Its parts.
    parts: Vec<Part>,
    /// Rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<BTreeMap<String, Option<f64>>>,
    /// Pairs.
    pairs: Vec<(u64, bool)>,
    /// A limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Limit>,
}

fn found_in(value: &Value) -> (Vec<String>, Found) {
    let mut found = Found::new();
    assert!(schema_of::<Common>().form().is_some());
    (differences(schema_of::<Whole>(), value, &mut found), found)
}

#[test]
fn a_value_of_its_form_has_no_differences() {
    let value =
        json!({ "name": "n", "end": null, "parts": [{ "size": 3 }], "pairs": [[1, true]], "limit": { "size": 3 } });
    let (differences, found) = found_in(&value);
    assert_eq!(differences, Vec::<String>::new());
    let of_whole = ["end", "limit", "pairs", "parts"].map(|name| ("Whole", name));
    let expected = [("Common", "name"), ("Part", "size")].into_iter().chain(of_whole);
    assert_eq!(found, expected.collect());
}

#[test]
fn each_difference_is_told_with_its_place() {
    let value = json!({
        "end": "lost", "parts": [{ "size": 3.5 }], "rates": { "a": 1, "b": "2", "c": null }, "pairs": [[1]], "limit": "no", "more": 1,
    });
    let (differences, _) = found_in(&value);
    let expected = [
        ".name is missing",
        ".end: \"lost\" is not text",
        ".parts[].size: 3.5 is not integer",
        ".rates.*: \"2\" is not decimal",
        ".pairs[]: [1] is not [integer, true or false]",
        ".limit: \"no\" is not integer or [Part](#part)",
        ".more is not in the form `Whole`",
    ];
    assert_eq!(differences, expected);
}

/// The forms that a form links to.
fn linked(form: &'static Form) -> Vec<&'static Form> {
    let parts = form.keys.iter().filter_map(|key| key.kind.form());
    parts.chain(form.included()).collect()
}

#[test]
fn every_form_is_in_the_reference_once_where_links_find_it() {
    let page = markdown();
    let headings: Vec<String> =
        page.lines().filter_map(|line| Some(anchor(line.strip_prefix('#')?.trim_start_matches('#').trim()))).collect();
    let unique: BTreeSet<&String> = headings.iter().collect();
    assert_eq!(unique.len(), headings.len(), "{headings:#?}");
    for form in all_forms() {
        for part in linked(form) {
            assert!(unique.contains(&anchor(part.heading())), "{} links to {}", form.title, part.title);
        }
    }
    let titles: Vec<&str> = all_forms().iter().map(|form| form.title).collect();
    assert_eq!(titles.iter().collect::<BTreeSet<_>>().len(), titles.len(), "{titles:#?}");
    assert!(titles.len() > 30, "{titles:#?}");
}

#[test]
fn keys_are_explained_once_and_so_are_their_words() {
    for form in all_forms() {
        let mut names = BTreeSet::new();
        for (_, key) in form.all_keys() {
            assert!(names.insert(key.name), "{}: {} twice", form.title, key.name);
            assert!(!key.meaning.is_empty() && !key.meaning.ends_with('.'), "{}: {}", form.title, key.name);
            if let Kind::Word(words) = key.kind {
                for word in words {
                    assert!(key.meaning.contains(&format!("`{word}`")), "{}: {}: {word}", form.title, key.name);
                }
            }
        }
    }
}

#[test]
fn the_section_of_a_command_is_that_of_most_of_its_words() {
    let heading = |words: &[&str]| section(words).map(|section| section.heading);
    assert_eq!(heading(&["show", "--json"]), Some("`bellows show --json`"));
    assert_eq!(heading(&["show", "run", "name", "--json"]), Some("`bellows show run --json`"));
    assert_eq!(heading(&["ps", "--json", "--probe", "name"]), Some("`bellows ps --probe --json`"));
    assert_eq!(heading(&["bench", "engine", "--json"]), Some("Reports of benchmarks"));
    assert_eq!(heading(&["stop", "--json"]), None);
}

#[test]
fn paragraphs_are_as_wide_as_pages() {
    let text = "word ".repeat(60);
    let lines = paragraph(text.trim());
    assert!(lines.lines().all(|line| line.len() <= WIDTH) && lines.lines().count() == 4, "{lines}");
}

fn counts(value: u64) -> BTreeMap<String, u64> {
    [("some".to_owned(), value)].into()
}

/// Every list has something in it, so that a key that is added to any of these structures is met.
fn snapshot() -> Snapshot {
    let app = AppCounts {
        name: "app".to_owned(),
        state: "polling".to_owned(),
        leaked: -1,
        lost: counts(3),
        drops: counts(3),
        calls: counts(1),
        ..AppCounts::default()
    };
    let doing = Some(CurrentCall { app: "app".to_owned(), activity: Activity::Question });
    let worker = WorkerCounts { doing: doing.clone(), node: Some(1), counters: counts(2), ..WorkerCounts::default() };
    let histogram = Histogram { classes: vec![(100, 2)], maximum: 90 };
    let names = engine::COUNTERS.iter().map(|counter| counter.name).filter(|name| *name != engine::DOING_NAME);
    Snapshot {
        schedule: "native".to_owned(),
        doing,
        engine: names.map(|name| (name.to_owned(), 1)).collect(),
        workers: vec![worker],
        apps: vec![app.clone()],
        links: vec![LinkCounts::default()],
        crossings: vec![app.clone()],
        gone: Gone { apps: vec![app], links: vec![LinkCounts::default()] },
        histograms: [("breath".to_owned(), histogram)].into(),
        ..Snapshot::default()
    }
}

#[test]
fn a_report_of_a_run_in_which_everything_went_wrong_has_its_form() {
    let outcome = Outcome {
        end: RunEnd::Stopped,
        panicked: vec!["app".to_owned()],
        unfinished: vec![("app".to_owned(), "its disk is full".to_owned())],
        snapshot: snapshot(),
        elapsed: Duration::from_secs(1),
    };
    let report = json!(RunReport::new("name".to_owned(), outcome, Some(StoppedBy::Duration), 1));
    assert_eq!(lacking("Report of a run", &report), Vec::<String>::new());
    let parts = [
        ("Loss", &report["losses"][0]),
        ("Imbalance", &report["imbalances"][0]),
        ("Unfinished app", &report["unfinished"][0]),
        ("App", &report["gone"]["apps"][0]),
        ("Link", &report["gone"]["links"][0]),
        ("Worker", &report["workers"][0]),
        ("Call", &report["workers"][0]["doing"]),
        ("Engine", &report["engine"]),
        ("Histogram", &report["histograms"]["breath"]),
    ];
    for (title, part) in parts {
        assert_eq!(lacking(title, part), Vec::<String>::new(), "{title}: {part}");
    }
}

#[test]
fn a_hang_and_a_trial_have_their_forms() {
    let hang = Hang {
        worker: Some("main".to_owned()),
        app: Some("app".to_owned()),
        activity: Some(Activity::Call),
        seconds: 2.5,
    };
    assert_eq!(lacking("Hang", &json!(hang)), Vec::<String>::new());
    let trial = TrialResult {
        app: "app".to_owned(),
        calls: [50, 51],
        packets_per_call: 60.0,
        clocks: 12.5,
        fetch: 2.0,
        clocks_after: 6.0,
        saved: 0.36,
        p: 0.001,
        verdict: LookAhead::Missing,
    };
    assert_eq!(lacking("Trial of an app", &json!(trial)), Vec::<String>::new());
}

#[test]
fn a_benchmark_with_and_without_all_it_may_have_has_its_form() {
    let ratio = Ratio { median: f64::NAN, low: 0.9, high: 1.1 };
    let figure = Measurement {
        case: "case".to_owned(),
        unit: "ns".to_owned(),
        median: f64::NAN,
        low: 1.0,
        high: 3.0,
        undecided: true,
        reference: Some(1.0),
        p99: Some(2.0),
        maximum: Some(3.0),
        of_reference: Some(ratio),
        overhead: Some(Overhead { median: 1.0, low: 0.5, high: 1.5 }),
        histogram: Some(Classes(vec![(100, 1)])),
        labels: [("burst".to_owned(), json!(32))].into(),
    };
    let machine = Machine {
        cpu: "cpu".to_owned(),
        tsc_hz: 2_000_000_000,
        memory: "thp".to_owned(),
        simd: "avx2".to_owned(),
        stride: 2_368,
    };
    let brief = Report::new("engine", machine, 6, Vec::new());
    let report = Report {
        lost: Some(0.01),
        interrupted: true,
        failed: true,
        results: vec![figure],
        notes: vec!["a note".to_owned()],
        ..brief.clone()
    };
    let whole = json!(report);
    let parts = [
        ("Benchmark", &whole),
        ("Figure", &whole["results"][0]),
        ("Machine", &whole["machine"]),
        ("Ratio", &whole["results"][0]["of_reference"]),
        ("Overhead", &whole["results"][0]["overhead"]),
    ];
    for (title, part) in parts {
        assert_eq!(lacking(title, part), Vec::<String>::new(), "{title}: {part}");
    }
    let absent: Vec<String> =
        ["lost", "interrupted", "failed", "notes"].iter().map(|name| format!("it has no `{name}`")).collect();
    assert_eq!(lacking("Benchmark", &json!(brief)), absent);
}
