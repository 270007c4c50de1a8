//! `cargo xtask peers interfaces` works: so briefly that its figures mean nothing, and with the kernel's bridge alone.

use std::process::Command;

use bellows_testkit::skips::{is_skipped, skip_here};
use bellows_testkit::{netns, programs};
use serde_json::Value;

#[test]
fn the_kernels_bridge_is_measured() {
    const TEST: &str = "the_kernels_bridge_is_measured";
    if is_skipped(TEST, netns::missing(&["setpriv", "unshare", "chrt", "taskset", "iperf3"])) {
        return;
    }
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        return skip_here(TEST, "the generator and the forwarder need two processors");
    }
    let words = "peers interfaces --brief --seconds 1 --json --case flood,paced,tcp --forwarders kernel-bridge";
    let report = programs::run(Command::new(env!("CARGO_BIN_EXE_xtask")).args(words.split(' ')));
    let report = report.unwrap_or_else(|why| panic!("{why}"));
    let report: Value = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error} in {report}"));
    let windows = report["windows"].as_array().unwrap();
    let traffic: Vec<&Value> = windows.iter().map(|window| &window["traffic"]).collect();
    assert_eq!(traffic, ["flood", "paced", "tcp"]);
    for window in windows {
        let figure = |name: &str| window[name].as_f64().unwrap_or_else(|| panic!("no {name} in {window:#}"));
        assert_eq!(window["forwarder"], "kernel-bridge");
        assert!(figure("seconds") > 0.9 && figure("forwarded") > 0.0 && figure("offered") > 0.0, "{window:#}");
    }
    assert!(windows[2]["bits_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{:#}", windows[2]);
}
