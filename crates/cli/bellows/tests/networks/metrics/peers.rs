//! Other programs read the metrics: promtool, the Python client's parser, Prometheus.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bellows_testkit::programs::{Background, has_program};
use bellows_testkit::skips::{is_left_out, skip};
use bellows_testkit::wait::output;
use bellows_testkit::{eventually, scratch};
use serde_json::Value;

use crate::metrics::exposition::{BUSY, samples, stopped};
use crate::support::metrics::{Server, get};
use crate::support::{Sandbox, root};

/// Runs a command with this text on its standard input.
fn fed(command: &mut Command, text: &str) -> (bool, String) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.success(), said)
}

/// The ends of a network.
const ENDS: &str = "[apps.source]\napp = \"source\"\nsize = 60\nrate = \"20kpps\"\n[apps.end]\napp = \"sink\"\n";

/// A network with as many types of apps as possible, since each has counters of its own: those that need nothing.
fn many_types(sandbox: &Sandbox) -> String {
    let types = [
        ("tee", ""),
        ("counter", ""),
        ("truncate", "length = 40"),
        ("rate-limiter", "rate = \"10kpps\""),
        ("impair", "loss = 0.01"),
        ("delay", "delay = \"1ms\""),
        ("ip4-input", ""),
        ("reassemble", ""),
        ("pcap-filter", "filter = \"ip\""),
    ];
    let mut text = String::new();
    let mut last = "source.output".to_owned();
    let mut links = Vec::new();
    for (index, (kind, keys)) in types.iter().enumerate() {
        let part = format!("[apps.a{index}]\napp = \"{kind}\"\n{keys}\n");
        // A type that cannot be in this place is left out.
        let link = format!("\"{last} -> a{index}\"");
        let tried = [&links[..], &[link.clone(), format!("\"a{index} -> end\"")]].concat();
        let network = format!("links = [{}]\n{ENDS}{text}{part}", tried.join(", "));
        let path = sandbox.write("tried.toml", &network);
        if sandbox.bellows(&["check", &path]).code == Some(0) {
            links.push(link);
            text += &part;
            last = format!("a{index}");
        }
    }
    assert!(links.len() >= 5, "{links:?}");
    links.push(format!("\"{last} -> end\""));
    format!("links = [{}]\n{ENDS}{text}", links.join(", "))
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    const TEST: &str = "promtool_finds_nothing_to_complain_about";
    if !has_program(TEST, "promtool") {
        return;
    }
    let sandbox = Sandbox::new();
    let network = many_types(&sandbox);
    let _running = sandbox.start(&[&sandbox.write("many.toml", &network)]);
    let text = sandbox.bellows(&["metrics"]).success().stdout;
    let (is_fine, said) = fed(Command::new("promtool").args(["check", "metrics"]), &text);
    assert!(is_fine && said.is_empty(), "{said}");
    // The names of all types, each as a sample: promtool checks names.
    let list = sandbox.bellows(&["metrics", "--list"]).success().stdout;
    let rows: Vec<Vec<&str>> = list
        .lines()
        .filter(|line| line.starts_with("| `bellows_"))
        .map(|line| line.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`'])).collect())
        .collect();
    assert!(rows.len() > 150, "{}", rows.len());
    let all: String = rows
        .iter()
        .filter(|row| row[1] != "histogram")
        .map(|row| {
            let kind = if row[1] == "info" { "gauge" } else { row[1] };
            let (name, help) = (row[0], row[4]);
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{app=\"a\"}} 1\n")
        })
        .collect();
    let (is_fine, said) = fed(Command::new("promtool").args(["check", "metrics"]), &all);
    assert!(is_fine && said.is_empty(), "{said}");
}

/// Names come from files that other programs write: no byte of them may break a parser or a terminal.
#[test]
fn a_file_with_control_characters_in_names_is_not_believed() {
    const TEST: &str = "a_file_with_control_characters_in_names_is_not_believed";
    if !has_program(TEST, "promtool") {
        return;
    }
    let sandbox = Sandbox::new();
    let network = "links = [\"source -> fragilenamea\", \"fragilenamea -> fragilenameb\", \"fragilenameb -> end\"]\n";
    let apps = "[apps.fragilenamea]\napp = \"tee\"\n[apps.fragilenameb]\napp = \"tee\"\n";
    let running = sandbox.start(&[&sandbox.write("fragile.toml", &format!("{network}{ENDS}{apps}"))]);
    let path = running.folder().join("counters");
    let content = fs::read(&path).unwrap();
    // Other names of the same length, in the directory, which is JSON. The engine has mapped the same file.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut replaced = 0;
    for (name, other) in [(b"fragilenamea", br"\u0000\u001b"), (b"fragilenameb", br"\u0000\u0007")] {
        for (start, _) in content.windows(name.len()).enumerate().filter(|(_, window)| *window == name) {
            file.write_all_at(other, start as u64).unwrap();
            replaced += 1;
        }
    }
    assert!(replaced >= 6, "{replaced}");
    for format in [&["metrics"][..], &["metrics", "--openmetrics"]] {
        let text = sandbox.bellows(format).success().stdout;
        assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
        let found = samples(&text);
        // Nothing of it but the name of its folder.
        assert_eq!(found["bellows_network_up{network=\"fragile\"}"], 0.0);
        assert!(!found.keys().any(|sample| sample.starts_with("bellows_app_info")), "{text}");
        if format.len() == 1 {
            let (is_fine, said) = fed(Command::new("promtool").args(["check", "metrics"]), &text);
            assert!(is_fine && said.is_empty(), "{said}");
        }
    }
}

/// Prints each sample that the client's parser finds: its name, labels in order, and value.
const PARSER: &str = r#"
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
found = []
for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        found.append([sample.name, sample.labels, sample.value, family.type, family.unit])
json.dump(found, sys.stdout)
"#;

#[test]
fn the_parser_of_the_python_client_reads_openmetrics() {
    const TEST: &str = "the_parser_of_the_python_client_reads_openmetrics";
    if !Path::new("/usr/lib/python3/dist-packages/prometheus_client/__init__.py").exists() {
        return skip(TEST, "python3-prometheus-client is not installed");
    }
    let sandbox = Sandbox::new();
    let network = sandbox.write("busy.toml", BUSY);
    let (_running, _) = stopped(&sandbox, &[&network], 1_000);
    let text = sandbox.bellows(&["metrics", "--openmetrics"]).success().stdout;
    let (is_fine, said) = fed(Command::new("/usr/bin/python3").args(["-c", PARSER]), &text);
    assert!(is_fine, "{said}");
    let parsed: Value = serde_json::from_str(&said).unwrap();
    let parsed = parsed.as_array().unwrap();
    let written = samples(&text);
    assert_eq!(parsed.len(), written.len());
    for sample in parsed {
        let labels = sample[1].as_object().unwrap();
        let name = sample[0].as_str().unwrap();
        let label = |name: &str| labels.get(name).and_then(Value::as_str).unwrap_or("");
        let is_it = |line: &String| {
            let (found, rest) = line.split_once('{').unwrap_or((line, ""));
            let all =
                labels.iter().all(|(name, value)| rest.contains(&format!("{name}=\"{}\"", value.as_str().unwrap())));
            found == name && all
        };
        let value = written.iter().find(|(line, _)| is_it(line)).unwrap_or_else(|| panic!("{sample}")).1;
        assert_eq!(sample[2].as_f64(), Some(*value), "{sample} {}", label("app"));
    }
    let kinds: std::collections::BTreeSet<&str> = parsed.iter().filter_map(|sample| sample[3].as_str()).collect();
    assert_eq!(kinds, ["counter", "gauge", "histogram", "info"].into());
    let units: std::collections::BTreeSet<&str> = parsed.iter().filter_map(|sample| sample[4].as_str()).collect();
    assert!(units.is_superset(&["bytes", "packets", "seconds", "buffers", "clocks"].into()), "{units:?}");
}

#[test]
fn the_rules_and_their_tests_hold() {
    const TEST: &str = "the_rules_and_their_tests_hold";
    if !has_program(TEST, "promtool") {
        return;
    }
    let folder = root().join("examples/monitoring");
    for words in [
        &["check", "rules", "rules.yml"][..],
        &["check", "config", "prometheus.yml"],
        &["test", "rules", "rules-test.yml"],
    ] {
        let said = output(Command::new("promtool").args(words).current_dir(&folder)).unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{words:?}: {text}");
    }
}

/// The rules with another expression for an alert.
fn with_expression(rules: &str, alert: &str, expression: &str) -> String {
    const KEY: &str = "        expr:";
    let start = format!("      - alert: {alert}\n{KEY}");
    let (before, rest) = rules.split_once(&start).unwrap_or_else(|| panic!("{alert} has no expression first"));
    // The expression may have further lines, which are indented more than the next key.
    let after = rest.split_inclusive('\n').skip(1).skip_while(|line| line.starts_with("         "));
    format!("{before}{start} {expression}\n{}", after.collect::<String>())
}

#[test]
fn an_alert_that_never_or_always_fires_fails_its_tests() {
    const TEST: &str = "an_alert_that_never_or_always_fires_fails_its_tests";
    if !has_program(TEST, "promtool") {
        return;
    }
    let folder = root().join("examples/monitoring");
    let [rules, tests] = ["rules.yml", "rules-test.yml"].map(|file| fs::read_to_string(folder.join(file)).unwrap());
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    let broken = scratch();
    fs::write(broken.path().join("rules-test.yml"), tests).unwrap();
    let promtool = |words: &[&str]| {
        let said = output(Command::new("promtool").args(words).current_dir(broken.path())).unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
        (said.status.success(), text)
    };
    for alert in alerts {
        for expression in ["vector(1) > 1", "vector(1)"] {
            fs::write(broken.path().join("rules.yml"), with_expression(&rules, alert, expression)).unwrap();
            let (is_valid, said) = promtool(&["check", "rules", "rules.yml"]);
            assert!(is_valid, "{alert}: {said}");
            let (succeeds, said) = promtool(&["test", "rules", "rules-test.yml"]);
            assert!(!succeeds && said.contains(&format!("alertname: {alert},")), "{alert} as {expression}: {said}");
        }
    }
}

/// The value of a query, if it has one.
fn query(place: &str, expression: &str) -> Option<f64> {
    let encode = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    let expression: String = expression.bytes().map(encode).collect();
    let answer = get(place, &format!("/api/v1/query?query={expression}"), "").json();
    assert_eq!(answer["status"], "success", "{answer}");
    answer["data"]["result"][0]["value"][1].as_str().map(|value| value.parse().unwrap())
}

#[test]
fn prometheus_scrapes_what_a_network_counts() {
    const TEST: &str = "prometheus_scrapes_what_a_network_counts";
    if is_left_out(TEST) || !has_program(TEST, "prometheus") {
        return;
    }
    let sandbox = Sandbox::new();
    let network = sandbox.write("busy.toml", BUSY);
    let (_running, shown) = stopped(&sandbox, &[&network], 1_000);
    let server = Server::start(&sandbox, &[]);
    // The example, with the address of this server.
    let config = fs::read_to_string(root().join("examples/monitoring/prometheus.yml")).unwrap();
    let config = config.replace("127.0.0.1:9400", &server.place).replace("15s", "1s");
    let rules = fs::read_to_string(root().join("examples/monitoring/rules.yml")).unwrap();
    sandbox.write("rules.yml", &rules);
    let config = sandbox.write("prometheus.yml", &config);
    let place = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let data = sandbox.path("data").display().to_string();
    let log = fs::File::create(sandbox.path("prometheus.log")).unwrap();
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={config}")).arg(format!("--storage.tsdb.path={data}"));
    command.arg(format!("--web.listen-address={place}")).stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let mut prometheus = Background::start(&mut command).unwrap();
    eventually("Prometheus", || {
        assert!(!prometheus.has_ended(), "{}", fs::read_to_string(sandbox.path("prometheus.log")).unwrap());
        std::net::TcpStream::connect(&place).is_ok()
    });
    eventually("a scrape", || {
        let (status, _) = (get(&place, "/-/ready", "").status, std::thread::sleep(Duration::from_millis(100)));
        status == 200 && query(&place, "bellows_network_up") == Some(1.0)
    });
    assert_eq!(query(&place, "up{job=\"bellows\"}"), Some(1.0));
    let of = |list: &str, name: &str| {
        let found = shown[list].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone();
        move |key: &str| found[key].as_f64().unwrap()
    };
    let copy = of("apps", "copy");
    for (expression, expected) in [
        ("bellows_app_in_packets_total{app=\"copy\"}", copy("in_packets")),
        ("bellows_app_out_bytes_total{app=\"copy\"}", copy("out_bytes")),
        ("bellows_pool_buffers", shown["engine"]["buffers"].as_f64().unwrap()),
        ("sum(bellows_worker_breaths_total)", shown["engine"]["breaths"].as_f64().unwrap()),
        (
            "sum(bellows_link_packets_total)",
            shown["links"].as_array().unwrap().iter().map(|link| link["packets"].as_f64().unwrap()).sum(),
        ),
        (
            "bellows_app_dropped_packets_total{app=\"shaper\",reason=\"over_rate\"}",
            shown["apps"][2]["drops"]["over_rate"].as_f64().unwrap(),
        ),
        ("bellows_network_info{schedule=\"native\"} or bellows_network_info", 1.0),
        ("count(bellows_breath_seconds_bucket{worker=\"main\"})", 26.0),
    ] {
        assert_eq!(query(&place, expression), Some(expected), "{expression}");
    }
    // Types, units and descriptions come with OpenMetrics.
    let metadata = get(&place, "/api/v1/metadata?metric=bellows_link_bytes_total", "").json();
    let metadata = metadata["data"]["bellows_link_bytes_total"][0].clone();
    let named = if metadata.is_null() {
        get(&place, "/api/v1/metadata?metric=bellows_link_bytes", "").json()["data"]["bellows_link_bytes"][0].clone()
    } else {
        metadata
    };
    assert_eq!((&named["type"], &named["unit"]), (&"counter".into(), &"bytes".into()), "{named}");
    // The alert about a network that is stalled is on its way.
    eventually("the alert", || {
        query(&place, "ALERTS{alertname=\"BellowsNetworkStalled\"}").is_some() || {
            std::thread::sleep(Duration::from_millis(100));
            false
        }
    });
    let rules = get(&place, "/api/v1/rules", "").json();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap().clone();
    assert!(rules.len() >= 10 && rules.iter().all(|rule| rule["health"] != "err"), "{rules:#?}");
}
