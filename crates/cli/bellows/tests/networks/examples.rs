//! The networks in `examples/`: the commands at their tops, and their results.

use std::fs;

use crate::support::examples::{CAPTURE, WITH_INTERFACES, command_lines, networks};
use crate::support::{Sandbox, root};
use serde_json::{Value, json};

/// The packets of `examples/captures/quickstart.pcap`.
const PACKETS: u64 = 2_972;

/// A folder with the folder `examples` in it.
fn checkout() -> Sandbox {
    crate::support::examples::checkout(Sandbox::new())
}

/// The file names of all networks.
fn names() -> Vec<String> {
    networks().iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

fn link<'a>(report: &'a Value, to: &str) -> &'a Value {
    report["links"].as_array().unwrap().iter().find(|link| link["to"] == to).unwrap()
}

fn app<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["apps"].as_array().unwrap().iter().find(|app| app["name"] == name).unwrap()
}

#[test]
fn the_commands_at_the_top_of_the_networks_run() {
    let sandbox = checkout();
    let mut seen = 0;
    for name in names().iter().filter(|name| !WITH_INTERFACES.contains(&name.as_str())) {
        for line in command_lines(name) {
            // A second of each, whatever its duration.
            let mut words = line.words();
            if let Some(duration) = words.iter().position(|word| *word == "--duration") {
                words.drain(duration..duration + 2);
            }
            let mut run = sandbox.command(&[&words[..], &["--duration", "1s", "--json"]].concat());
            let said: crate::support::Said = run.env("CAPTURE", sandbox.path(CAPTURE)).output().unwrap().into();
            // An impaired line fails the run on purpose.
            assert!(said.code == Some(0) || name == "impairment.toml", "{line:?}: {said:#?}");
            assert!(said.json()["links"].is_array(), "{line:?}");
            seen += 1;
        }
    }
    assert!(seen >= 15, "{seen}");
}

#[test]
fn networks_with_interfaces_are_correct() {
    let sandbox = checkout();
    for name in WITH_INTERFACES {
        sandbox.bellows(&["check", &format!("examples/{name}")]).success();
    }
}

#[test]
fn every_network_is_in_the_list() {
    let list = fs::read_to_string(root().join("examples/README.md")).unwrap();
    for name in names() {
        assert!(list.contains(&format!("\n| `{name}` | ")), "{name} is not in examples/README.md");
    }
}

#[test]
fn a_capture_of_the_internet_mix_has_its_sizes() {
    let sandbox = checkout();
    let report = sandbox.bellows(&["run", "examples/imix-to-pcap.toml", "--json"]).success().json();
    assert_eq!(link(&report, "capture.input")["packets"], json!(20_000));
    assert!(report["elapsed_seconds"].as_f64().unwrap() > 0.95, "{report:#}");
    let capture = fs::read(sandbox.path("examples/imix-out.pcap")).unwrap();
    let mut counts = [0u64; 3];
    let mut rest = &capture[24..];
    while let Some((head, behind)) = rest.split_first_chunk::<16>() {
        let length = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
        let size = [60, 590, 1514].iter().position(|size| *size == length).expect("one of three sizes");
        counts[size] += 1;
        rest = &behind[length..];
    }
    // 7 to 4 to 1, in any order.
    let near = |count: u64, share: u64| count.abs_diff(20_000 * share / 12) < 400;
    assert!(near(counts[0], 7) && near(counts[1], 4) && near(counts[2], 1), "{counts:?}");
}

#[test]
fn two_workers_write_what_one_writes() {
    let sandbox = checkout();
    let captures = [&[][..], &["--set", "apps.capture.worker=main"]].map(|set| {
        let report = sandbox.bellows(&[&["run", "examples/workers.toml", "--json"], set].concat()).success().json();
        assert_eq!(report["end"], json!("done"));
        assert_eq!(report["crossings"].as_array().unwrap().is_empty(), !set.is_empty(), "{report:#}");
        // Without the times of the packets.
        let capture = fs::read(sandbox.path("examples/workers-out.pcap")).unwrap();
        let (mut rest, mut packets) = (&capture[24..], Vec::new());
        while let Some((head, behind)) = rest.split_first_chunk::<16>() {
            let length = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
            packets.push(behind[..length].to_vec());
            rest = &behind[length..];
        }
        packets
    });
    assert!(captures[0].len() == 100_000 && captures[0] == captures[1]);
}

#[test]
fn a_shaper_delays_packets_that_a_policer_drops() {
    let sandbox = checkout();
    let report = sandbox.bellows(&["run", "examples/shaping.toml", "--json"]).success().json();
    let policed = app(&report, "police")["drops"]["over_rate"].as_u64().unwrap();
    assert!(policed > 50, "{report:#}");
    assert_eq!(link(&report, "end.input")["packets"], json!(PACKETS - policed));
    assert_eq!(app(&report, "shape")["drops"]["queue_full"], json!(0));
    assert_eq!(link(&report, "out.input")["packets"], json!(PACKETS));
    let short = ["run", "examples/shaping.toml", "--json", "--set", "apps.shape.queue=100"];
    let report = sandbox.bellows(&short).success().json();
    assert!(app(&report, "shape")["drops"]["queue_full"].as_u64().unwrap() > 0, "{report:#}");
}

#[test]
fn a_firewall_lets_answers_in_and_nothing_else() {
    let sandbox = checkout();
    let report = sandbox.bellows(&["run", "examples/firewall.toml", "--json"]).success().json();
    let counter = |name: &str, counter: &str| app(&report, name)["counters"][counter].as_u64().unwrap();
    assert!(counter("out", "states_entered") > 100, "{report:#}");
    assert_eq!(counter("back", "matched"), counter("back", "passed_by_state"));
    // Web and names in both directions; pings, neighbours and their fragments stay out.
    let web_and_names = 769 + 783 + 508 + 48 + 60;
    let passed = link(&report, "file.input")["packets"].as_u64().unwrap();
    assert!((web_and_names - 60..=web_and_names + 15).contains(&passed), "{passed}");
    assert_eq!(passed + app(&report, "end")["in_packets"].as_u64().unwrap(), PACKETS);
}

#[test]
fn two_lines_are_one_part_with_other_parameters() {
    let sandbox = checkout();
    let report = sandbox.bellows(&["run", "examples/lines.toml", "--json"]).success().json();
    let over = |line: &str| app(&report, &format!("{line}/limit"))["drops"]["over_rate"].as_u64().unwrap_or(0);
    assert!(over("alice") > 50 && over("bob") == 0, "only bob's line has a queue: {report:#}");
    assert_eq!(link(&report, "sink.input")["packets"], json!(PACKETS - over("alice")));
    let bounded = ["run", "examples/lines.toml", "--json", "--set", "apps.bob.parts.limit.queue=2"];
    let report = sandbox.bellows(&[&bounded[..], &["--set", "apps.bob.with.rate=1Mb/s"]].concat()).success().json();
    assert!(app(&report, "bob/limit")["drops"]["queue_full"].as_u64() > Some(10), "{report:#}");
    let collapsed = sandbox.bellows(&["graph", "examples/lines.toml", "--collapse"]).success().stdout;
    assert!(collapsed.contains("4 parts") && !collapsed.contains("alice/limit"), "{collapsed}");
    let dot = sandbox.bellows(&["graph", "examples/lines.toml", "--format", "dot"]).success().stdout;
    assert!(dot.contains("subgraph cluster_0 {\n    label=<alice>"), "{dot}");
}
