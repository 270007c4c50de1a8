//! The remains of crashed networks, and the search for networks.

use crate::support::{ENDLESS, Running, Sandbox, Signal};
use bellows_testkit::eventually;
use serde_json::json;

/// Kills a network, like a crash.
fn crash(running: Running<'_>) {
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code, None);
}

#[test]
fn the_counters_of_a_crashed_network_are_not_cleared() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&[&network]);
    eventually("some packets", || running.counters()["links"][0]["packets"].as_u64() > Some(100));
    crash(running);
    let before = sandbox.bellows(&["show", "run", "--json"]).success().json();
    let said = sandbox.bellows(&["clear"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("has crashed") && said.stderr.contains("show run endless"), "{said:?}");
    assert_eq!(sandbox.bellows(&["show", "run", "--json"]).success().json(), before);
    assert_ne!(before["apps"], json!([]));
}

#[test]
fn starting_a_name_again_keeps_what_its_crashes_left() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let mut pids = Vec::new();
    for _ in 0..7 {
        let running = sandbox.start(&[&network]);
        pids.push(running.pid());
        eventually("some packets", || running.counters()["links"][0]["packets"].as_u64() > Some(10));
        crash(running);
    }
    let names = |list: &serde_json::Value| -> Vec<(String, u64)> {
        let line =
            |line: &serde_json::Value| (line["name"].as_str().unwrap().to_owned(), line["pid"].as_u64().unwrap());
        list.as_array().unwrap().iter().map(line).collect()
    };
    let line = |name: &str, run: usize| (name.to_owned(), u64::from(pids[run]));
    assert_eq!(names(&sandbox.bellows(&["ps", "--json"]).success().json()), [line("endless", 6)]);
    // The first crash of the series is there, and the newest.
    let all = sandbox.bellows(&["ps", "-a", "--json"]).success().json();
    let kept =
        [("endless", 6), ("endless@1", 5), ("endless@2", 4), ("endless@3", 3), ("endless@4", 2), ("endless@5", 0)];
    assert_eq!(names(&all), kept.map(|(name, run)| line(name, run)));
    assert_eq!(all[5]["state"], json!("crashed"));

    let shown = sandbox.bellows(&["show", "endless@5", "--json"]).success().json();
    assert_eq!((&shown["pid"], &shown["state"]), (&json!(pids[0]), &json!("crashed")));
    assert!(shown["links"][0]["packets"].as_u64() > Some(10));
    for words in [&["show", "endless@1"][..], &["timeline", "endless@1"], &["timeline", "endless@1", "--export", "-"]] {
        sandbox.bellows(words).success();
    }
    let said = sandbox.bellows(&["clear", "endless@1"]);
    assert!(said.code == Some(2) && said.stderr.contains("has crashed"), "{said:?}");
    assert_eq!(sandbox.bellows(&["stop", "endless@1"]).code, Some(2));
    let said = sandbox.bellows(&["show", "endless@9"]);
    assert!(said.code == Some(2) && said.stderr.contains("endless@"), "{said:?}");

    // A run continues beside them, and its end leaves them.
    let running = sandbox.start(&[&network]);
    assert_eq!(sandbox.bellows(&["show", "--json"]).success().json()["pid"], json!(running.pid()));
    sandbox.bellows(&["stop"]).success();
    running.wait().success();
    let listed = names(&sandbox.bellows(&["ps", "--all", "--json"]).success().json());
    assert_eq!((listed.len(), &listed[0]), (5, &line("endless@1", 6)));
    assert!(sandbox.bellows(&["ps", "--clean"]).success().stderr.contains("endless@5"));
    assert_eq!(sandbox.bellows(&["ps", "--all", "--json"]).success().json(), json!([]));
}

#[test]
fn a_zombie_is_a_crashed_network() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&[&network]);
    // Its parent does not wait for it, so it stays a zombie.
    running.signal(Signal::KILL);
    eventually("crashed", || sandbox.bellows(&["ps", "--json"]).success().json()[0]["state"] == json!("crashed"));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.pid())).unwrap();
    assert!(stat.contains(") Z "), "{stat}");
    assert_eq!(sandbox.bellows(&["ps", "--json"]).success().json()[0]["pid"], json!(running.pid()));
    let again = sandbox.start(&[&network]);
    assert_eq!(again.name, "endless");
}
