//! A system that forbids executable memory: the same packets, by another schedule, and a report that says so.

use crate::support::{Said, Sandbox};
use bellows_testkit::skip;

const NETWORK: &str = r#"
links = ["source.output -> end.input"]
[apps.source]
app = "source"
count = 1000
[apps.end]
app = "sink"
"#;

/// Sets the policy for a PID namespace, and runs the command there.
const HARDENED: &str = "echo 2 > /proc/sys/vm/memfd_noexec || exit 77; exec \"$0\" \"$@\"";

#[test]
fn a_rejected_native_schedule_falls_back_and_is_reported() {
    let test = "a_rejected_native_schedule_falls_back_and_is_reported";
    let sandbox = Sandbox::of("unshare".into());
    sandbox.write("network.toml", NETWORK);
    let run = |words: &[&str]| -> Option<Said> {
        let namespace = ["--user", "--map-root-user", "--pid", "--fork", "sh", "-c", HARDENED];
        let command = [env!("CARGO_BIN_EXE_bellows"), "run", "network.toml"];
        let said = sandbox.command(&[&namespace[..], &command, words].concat()).output().map(Said::from);
        // `unshare` itself ends with 1.
        said.ok().filter(|said| said.code != Some(77) && !said.stderr.starts_with("unshare:"))
    };
    let Some(said) = run(&[]) else {
        return skip(test, "no namespace in which vm.memfd_noexec can be set (Linux 6.3, unshare)");
    };
    let said = said.success();
    for part in [
        "schedule flat",
        "warning: the schedule was flat, not native as requested: the kernel allows no executable memory",
    ] {
        assert!(said.stdout.contains(part), "{part} is not in\n{}", said.stdout);
    }
    let report = run(&["--schedule", "native", "--json"]).unwrap().success().json();
    assert_eq!(report["schedule"], "flat");
    assert!(report["fallback_reason"].as_str().unwrap().contains("executable memory"), "{report:#}");
    assert_eq!(report["links"][0]["packets"], 1_000);
    let flat = run(&["--schedule", "flat"]).unwrap().success();
    assert!(!flat.stdout.contains("warning"), "nothing was refused to\n{}", flat.stdout);
}
