//! The health of networks in `bellows ps`, and as the exit code of a probe.

use bellows_testkit::eventually;
use serde_json::json;

use crate::support::{ENDLESS, Sandbox, Signal};

/// A capture that cannot be written.
const FULL: &str = r#"
links = ["source.output -> out.input"]
[apps.source]
app = "source"
size = 60
rate = "10kpps"
[apps.out]
app = "pcap-writer"
path = "/dev/full"
"#;

#[test]
fn a_probe_has_a_code_for_each_health() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", ENDLESS);
    let probe = |words: &[&str]| sandbox.bellows(&[&["ps", "--probe"], words].concat());
    let said = probe(&[]);
    assert!(said.code == Some(2) && said.stderr.contains("no network is running"), "{said:#?}");
    let running = sandbox.start(&[&network, "--name", "edge"]);
    let said = probe(&["edge"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "edge: running\n"), "{said:#?}");
    let said = probe(&["egde"]);
    assert!(said.code == Some(2) && said.stderr.contains("did you mean `edge`?"), "{said:#?}");

    running.signal(Signal::STOP);
    eventually("stopped", || probe(&["edge"]).code == Some(11));
    let said = probe(&["--json"]);
    assert_eq!(said.code, Some(11));
    let found = &said.json()[0];
    assert_eq!((&found["name"], &found["health"]), (&json!("edge"), &json!("stalled")), "{found:#}");
    assert!(found["reasons"][0].as_str().unwrap().contains("`kill -CONT "), "{found:#}");
    running.signal(Signal::CONT);
    eventually("running again", || probe(&["edge"]).code == Some(0));

    // The worst of several.
    let other = sandbox.start(&[&network, "--name", "core"]);
    running.signal(Signal::KILL);
    eventually("crashed", || probe(&["edge"]).code == Some(12));
    assert_eq!((probe(&[]).code, probe(&["core"]).code), (Some(12), Some(0)));
    let listed = sandbox.bellows(&["ps", "--json"]).success().json();
    let health = |index: usize| (listed[index]["name"].clone(), listed[index]["health"].clone());
    assert_eq!([health(0), health(1)], [(json!("core"), json!("running")), (json!("edge"), json!("crashed"))]);
    let text = sandbox.bellows(&["ps", "edge"]).success().stdout;
    assert!(text.contains("crashed") && !text.contains("core"), "{text}");
    drop(other);
}

#[test]
fn an_app_with_an_error_that_lasts_makes_its_network_degraded() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", FULL);
    let mut running = sandbox.start(&[&network]);
    running.wait_for_log("/dev/full");
    let probe = || sandbox.bellows(&["ps", "network", "--probe"]);
    eventually("degraded", || probe().code == Some(10));
    let said = probe();
    assert!(said.stdout.starts_with("network: degraded: app-degraded of the app `out`: "), "{said:#?}");
    let listed = sandbox.bellows(&["ps"]).success().stdout;
    assert!(listed.contains(" degraded ") && listed.contains("/dev/full"), "{listed}");
    // Other reports say the same.
    let reason = said.stdout.strip_prefix("network: ").unwrap();
    for words in [&["show"][..], &["top", "--once"]] {
        let shown = sandbox.bellows(words).success().stdout;
        assert!(shown.contains(&format!("\n{reason}")), "{reason} is not in {shown}");
    }
    // An app that goes on with the file has the error, too.
    sandbox.write("network.toml", &format!("{FULL}timestamps = \"now\"\n"));
    sandbox.bellows(&["reload", "network"]).success();
    let degraded = || sandbox.bellows(&["events", "network"]).success().stdout.matches(" app-degraded: ").count();
    eventually("told again", || degraded() == 2);
    assert_eq!(probe().code, Some(10));
    // Another app takes the place of that which has the error.
    sandbox.write("network.toml", &FULL.replace("pcap-writer", "sink").replace("path = \"/dev/full\"", ""));
    sandbox.bellows(&["reload", "network"]).success();
    eventually("running", || probe().code == Some(0));
}
