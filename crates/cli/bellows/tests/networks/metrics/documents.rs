//! The documentation lists all metrics, and the examples use no others.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::{Sandbox, root};

/// The names of all metrics, with those of the parts of histograms.
fn names() -> BTreeSet<String> {
    let printed = Sandbox::new().bellows(&["metrics", "--list"]).success().stdout;
    let rows = printed.lines().filter_map(|line| line.strip_prefix("| `bellows_"));
    let mut names = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.split(" | ").collect();
        let name = format!("bellows_{}", cells[0].trim_end_matches('`'));
        if cells[1] == "histogram" {
            names.extend(["bucket", "count", "sum"].map(|part| format!("{name}_{part}")));
        }
        names.insert(name);
    }
    names
}

/// The words of a text that are names of metrics, and not those of recording rules.
fn used(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = text.split(|letter: char| !is_part(letter)).filter(|word| word.starts_with("bellows_"));
    words.filter(|word| !word.contains(':')).map(str::to_owned).collect()
}

#[test]
fn examples_and_pages_name_metrics_that_there_are() {
    let names = names();
    let mut all = BTreeSet::new();
    for file in
        ["examples/monitoring/rules.yml", "examples/monitoring/rules-test.yml", "examples/monitoring/dashboard.json"]
    {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let used = used(&text);
        let unknown: Vec<&String> = used.difference(&names).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
        all.extend(used);
    }
    assert!(all.len() > 25, "{all:?}");
    let page = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let unknown: Vec<String> = used(&page).difference(&names).filter(|name| *name != "bellows_").cloned().collect();
    assert!(unknown.is_empty(), "docs/metrics.md names {unknown:?}");
}

#[test]
fn the_dashboard_is_whole() {
    let text = fs::read_to_string(root().join("examples/monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel:#}");
        assert!(!panel["title"].as_str().unwrap().is_empty());
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{panel:#}");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "panels overlap: {panel:#}");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel:#}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            assert!(expression.contains("bellows_") && expression.contains("$network"), "{expression}");
            // Machines may have networks of the same name.
            for group in expression.split("by (").skip(1) {
                assert!(group.starts_with("instance, "), "{expression}");
            }
            let legend = target["legendFormat"].as_str().unwrap();
            assert_eq!(legend.contains("{{network}}"), legend.contains("{{instance}}"), "{legend}");
            let balance =
                |open: char, close: char| expression.matches(open).count() == expression.matches(close).count();
            assert!(balance('(', ')') && balance('{', '}') && balance('[', ']'), "{expression}");
        }
    }
    assert!(panels.len() > 20);
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["source", "instance", "network"]);
}

#[test]
fn prometheus_reads_every_expression_of_the_dashboard() {
    const TEST: &str = "prometheus_reads_every_expression_of_the_dashboard";
    if !bellows_testkit::programs::has_program(TEST, "promtool") {
        return;
    }
    let text = fs::read_to_string(root().join("examples/monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().filter_map(|panel| panel["targets"].as_array());
    let expressions = targets.flatten().map(|target| target["expr"].as_str().unwrap().to_owned());
    let expressions = expressions.map(|expression| {
        let whole = expression.replace("$__rate_interval", "1m").replace("$__range", "1h").replace("$__interval", "1m");
        whole.replace("$instance", ".*").replace("$network", ".*")
    });
    // As rules, which promtool parses.
    let rules: Vec<Value> = expressions
        .enumerate()
        .map(|(index, expression)| serde_json::json!({ "record": format!("panel:{index}"), "expr": expression }))
        .collect();
    let count = rules.len();
    let file = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    let sandbox = Sandbox::new();
    // JSON is YAML.
    let path = sandbox.write("rules.yml", &file.to_string());
    let mut command = std::process::Command::new("promtool");
    let said = bellows_testkit::wait::output(command.args(["check", "rules", &path])).unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert!(said.contains(&format!("SUCCESS: {count} rules found")), "{said}");
}
