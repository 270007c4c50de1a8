//! Where the system lets no code be made: the same packets, by another schedule, and a report that says so.
//!
//! Alone in its file, because the process gives up its right to make code for good.

mod support;

use std::io::ErrorKind;

use support::{Sandbox, skip};

const NETWORK: &str = r#"
links = ["source.output -> end.input"]
[apps.source]
app = "source"
count = 1000
[apps.end]
app = "sink"
"#;

#[test]
fn a_refused_native_schedule_is_replaced_and_reported() {
    match bellows_sys::code::refuse_new_code() {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            return skip("a_refused_native_schedule_is_replaced_and_reported", "PR_SET_MDWE needs Linux 6.3");
        }
        Err(error) => panic!("{error}"),
    }
    let sandbox = Sandbox::new();
    sandbox.write("network.toml", NETWORK);
    let said = sandbox.bellows(&["run", "network.toml"]).fine();
    for part in
        ["schedule flat", "warning: the schedule was flat, not native as asked for: the kernel lets nothing be made"]
    {
        assert!(said.stdout.contains(part), "{part} is not in\n{}", said.stdout);
    }
    let report = sandbox.bellows(&["run", "network.toml", "--schedule", "native", "--json"]).fine().json();
    assert_eq!(report["schedule"], "flat");
    assert!(report["refusal"].as_str().unwrap().contains("made executable"), "{report:#}");
    assert_eq!(report["links"][0]["packets"], 1_000);
    let flat = sandbox.bellows(&["run", "network.toml", "--schedule", "flat"]).fine();
    assert!(!flat.stdout.contains("warning"), "nothing was refused to\n{}", flat.stdout);
}
