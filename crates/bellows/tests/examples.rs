//! The networks in `examples/`: the commands at their tops, and their results.

mod support;

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use support::{Sandbox, root};

/// The packets of `examples/captures/quickstart.pcap`.
const PACKETS: u64 = 2_972;

/// A folder with the folder `examples` in it, as in a checkout.
fn checkout() -> Sandbox {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("examples/captures")).unwrap();
    let capture = "examples/captures/quickstart.pcap";
    fs::copy(root().join(capture), sandbox.path(capture)).unwrap();
    for file in networks() {
        fs::copy(&file, sandbox.path("examples").join(file.file_name().unwrap())).unwrap();
    }
    sandbox
}

fn networks() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
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
    for file in networks() {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("#     "));
        for line in lines.filter(|line| line.contains("bellows run examples/")) {
            let command = line.split('#').next().unwrap();
            // A second of each, whatever its duration.
            let command = command.split(" --duration ").collect::<Vec<_>>();
            let behind = command.get(1).and_then(|rest| rest.trim().split_once(' ')).map_or("", |(_, rest)| rest);
            let words = command[0].split_whitespace().skip_while(|word| *word != "bellows").skip(1);
            let words: Vec<&str> = words.chain(behind.split_whitespace()).collect();
            let mut run = sandbox.command(&[&words[..], &["--duration", "1s", "--json"]].concat());
            let said: support::Said =
                run.env("CAPTURE", sandbox.path("examples/captures/quickstart.pcap")).output().unwrap().into();
            // An impaired line fails the run on purpose.
            assert!(said.code == Some(0) || line.contains("impairment.toml"), "{line}: {said:#?}");
            assert!(said.json()["links"].is_array(), "{line}");
            seen += 1;
        }
    }
    assert!(seen >= 15, "{seen}");
}

#[test]
fn every_network_is_in_the_list() {
    let list = fs::read_to_string(root().join("examples/README.md")).unwrap();
    for file in networks() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(list.contains(&format!("\n| `{name}` | ")), "{name} is not in examples/README.md");
    }
}

#[test]
fn a_capture_of_the_internet_mix_has_its_sizes() {
    let sandbox = checkout();
    let report = sandbox.bellows(&["run", "examples/imix-to-pcap.toml", "--json"]).fine().json();
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
fn a_shaper_delays_packets_that_a_policer_drops() {
    let sandbox = checkout();
    let report = sandbox.bellows(&["run", "examples/shaping.toml", "--json"]).fine().json();
    let policed = app(&report, "police")["drops"]["over_rate"].as_u64().unwrap();
    assert!(policed > 50, "{report:#}");
    assert_eq!(link(&report, "end.input")["packets"], json!(PACKETS - policed));
    assert_eq!(app(&report, "shape")["drops"]["queue_full"], json!(0));
    assert_eq!(link(&report, "out.input")["packets"], json!(PACKETS));
    let short = ["run", "examples/shaping.toml", "--json", "--set", "apps.shape.queue=100"];
    let report = sandbox.bellows(&short).fine().json();
    assert!(app(&report, "shape")["drops"]["queue_full"].as_u64().unwrap() > 0, "{report:#}");
}
