//! Campaigns that come with Bellows, so briefly that their figures mean nothing: a block of some of their runs.

use std::fs;
use std::path::PathBuf;
use std::sync::PoisonError;

use crate::support::{Sandbox, root};
use bellows_testkit::skips::{is_left_out, is_skipped, skip_here};
use bellows_testkit::{netns, programs};
use serde_json::Value;

/// Makes a block of a campaign, each of whose factors named here has only these levels. Returns the rows. No other
/// measurement runs beside it.
fn block(name: &str, levels: &[(&str, &str)]) -> Vec<Value> {
    let _alone = crate::CACHES.write().unwrap_or_else(PoisonError::into_inner);
    let sandbox = Sandbox::new();
    let folder = root().join("bench/campaigns");
    let text = fs::read_to_string(folder.join(name)).unwrap();
    let mut lines: Vec<String> = Vec::new();
    let mut is_list = false;
    for line in text.lines() {
        if is_list {
            is_list = line != "]";
            continue;
        }
        let (key, value) = line.split_once(" = ").unwrap_or((line, ""));
        match levels.iter().find(|(factor, _)| *factor == key) {
            Some((factor, levels)) => {
                lines.push(format!("{factor} = {levels}"));
                is_list = value == "[";
            }
            // Hugepages may not be reserved everywhere.
            None => lines.push(line.replace("MEMORY = \"hugepages\"", "MEMORY = \"plain\"")),
        }
    }
    let text = format!("folder = {:?}\n{}\n", folder.display().to_string(), lines.join("\n"));
    let file = sandbox.write(name, &text);
    let words = ["campaign", "run", &file, "--repeats", "1", "--json"];
    let mut command = sandbox.command(&words);
    let program = PathBuf::from(env!("CARGO_BIN_EXE_bellows"));
    let path = [program.parent().unwrap().display().to_string(), programs::search_path().into_string().unwrap()];
    command.env("PATH", path.join(":")).env("SECONDS_OF_TRAFFIC", "1").env("ANY_WINDOW", "1");
    let said = programs::run(&mut command).unwrap_or_else(|why| panic!("{why}"));
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The units of a run's scores, all of which have a value.
fn units(row: &Value) -> Vec<&str> {
    let scores = row["scores"].as_array().unwrap();
    assert!(scores.iter().all(|score| score["value"].as_f64().is_some_and(|value| value > 0.0)), "{row:#}");
    scores.iter().map(|score| score["unit"].as_str().unwrap()).collect()
}

/// Whether the programs that are measured cannot have a processor each.
fn lacks_processors(test: &str) -> bool {
    let is_one = std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2);
    if is_one {
        skip_here(test, "polling programs need two processors");
    }
    is_one
}

#[test]
fn the_kernels_bridge_is_measured() {
    const TEST: &str = "the_kernels_bridge_is_measured";
    let programs = ["setpriv", "unshare", "chrt", "setsid", "taskset", "awk", "iperf3", "cargo"];
    if is_skipped(TEST, netns::missing(&programs)) || lacks_processors(TEST) {
        return;
    }
    let levels = [("port", "[\"packet\"]"), ("traffic", "[\"flood\", \"paced\", \"tcp\"]"), ("bridge", "[\"bridge\"]")];
    let rows = block("interfaces-bridge.toml", &[&levels[..], &[("exclude", "[]")]].concat());
    assert_eq!(rows.len(), 6, "{rows:#?}");
    for row in rows {
        let unit = if row["levels"]["traffic"] == "tcp" { "Gb/s" } else { "Mpps" };
        assert_eq!(units(&row), [unit], "{row:#}");
    }
}

#[test]
fn back_ends_are_measured_before_dpdks_driver() {
    const TEST: &str = "back_ends_are_measured_before_dpdks_driver";
    let missing = programs::missing(&["dpdk-testpmd", "stdbuf", "setpriv", "chrt", "setsid", "awk"]);
    if is_left_out(TEST) || is_skipped(TEST, missing) || lacks_processors(TEST) {
        return;
    }
    let packed = "[{ label = \"packed\", driver = \"packed_vq=1,mrg_rxbuf=1,in_order=0\" }]";
    let rows = block("virtio-net.toml", &[("size", "[64]"), ("options", packed)]);
    assert_eq!(rows.len(), 2 * 3, "{rows:#?}");
    for row in rows {
        assert_eq!(units(&row), ["Mpps", "clocks/packet", "clocks/packet"], "{row:#}");
    }
}
