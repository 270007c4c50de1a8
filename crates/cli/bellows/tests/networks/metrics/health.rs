//! The health of networks over HTTP and as metrics.

use bellows_testkit::eventually;
use serde_json::{Value, json};

use crate::metrics::exposition::samples;
use crate::support::metrics::{Answer, Server};
use crate::support::{ENDLESS, IDLE, Sandbox, Signal};

fn of(answer: &Answer) -> (u16, Value) {
    (answer.status, answer.json()["health"].clone())
}

#[test]
fn an_app_is_degraded_while_its_problem_lasts() {
    const FULL: &str = r#"
links = ["source.output -> copy.input", "copy.a -> file.input", "copy.b -> end.input"]
[apps.source]
app = "source"
size = 60
rate = "1kpps"
[apps.copy]
app = "tee"
[apps.file]
app = "pcap-writer"
path = "/dev/full"
[apps.end]
app = "sink"
"#;
    let sandbox = Sandbox::new();
    let network = sandbox.write("full.toml", FULL);
    let running = sandbox.start(&[&network]);
    let degraded = || samples(&sandbox.bellows(&["metrics"]).success().stdout);
    let of = |app: &str, kind: &str| format!("bellows_app_degraded{{network=\"full\",app=\"{app}\",type=\"{kind}\"}}");
    eventually("the full disk", || degraded()[&of("file", "pcap-writer")] == 1.0);
    let found = degraded();
    assert_eq!((found[&of("copy", "tee")], found[&of("end", "sink")]), (0.0, 0.0));
    assert_eq!(found["bellows_network_health{network=\"full\",state=\"degraded\"}"], 1.0);
    let mended = FULL.replace("pcap-writer", "sink").replace("path = \"/dev/full\"", "");
    sandbox.write("full.toml", &mended);
    sandbox.bellows(&["reload", "full"]).success();
    eventually("running", || degraded()["bellows_network_health{network=\"full\",state=\"running\"}"] == 1.0);
    assert_eq!(degraded()[&of("file", "sink")], 0.0);
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
fn networks_are_running_stalled_or_crashed() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &[]);
    assert_eq!(of(&server.get("/health", "")), (503, Value::Null));
    assert_eq!(server.get("/health?network=endless", "").status, 404);
    assert_eq!(server.get("/health?net=endless", "").status, 400);
    let network = sandbox.write("endless.toml", ENDLESS);
    let endless = sandbox.start(&[&network]);
    let idle = sandbox.start(&[&sandbox.write("idle.toml", IDLE)]);
    let answer = server.get("/health", "");
    assert_eq!(of(&answer), (200, json!("running")));
    let networks = answer.json()["networks"].clone();
    assert_eq!(networks.as_array().unwrap().len(), 2);
    assert_eq!((&networks[0]["name"], &networks[0]["reasons"]), (&json!("endless"), &json!([])));

    endless.signal(Signal::STOP);
    eventually("the stop", || server.get("/health", "").status == 503);
    let answer = server.get("/health?network=endless", "");
    assert_eq!(of(&answer), (503, json!("stalled")));
    let reason = answer.json()["networks"][0]["reasons"][0].as_str().unwrap().to_owned();
    assert!(reason.contains("stopped") && reason.contains(&format!("kill -CONT {}", endless.pid())), "{reason}");
    assert_eq!(of(&server.get("/health?network=idle", "")), (200, json!("running")));
    endless.signal(Signal::CONT);
    eventually("the continuation", || server.get("/health", "").status == 200);

    endless.signal(Signal::KILL);
    let pid = endless.pid();
    assert_eq!(endless.wait().code, None);
    let answer = server.get("/health?network=endless", "");
    assert_eq!(of(&answer), (503, json!("crashed")));
    assert!(answer.body.contains(&format!("the process {pid} has ended")), "{answer:?}");
    let text = server.get("/metrics", "").body;
    let found = samples(&text);
    assert_eq!(found["bellows_network_up{network=\"endless\"}"], 0.0);
    assert_eq!(found["bellows_network_health{network=\"endless\",state=\"crashed\"}"], 1.0);
    assert_eq!(found["bellows_network_up{network=\"idle\"}"], 1.0);
    assert!(!text.contains("bellows_link_packets_total{network=\"endless\""), "its counters are history");

    // Another run of the same name is another network for a server that has seen the first.
    let again = sandbox.start(&[&network]);
    assert_eq!(of(&server.get("/health", "")), (200, json!("running")));
    let scraped = || {
        let found = samples(&server.get("/metrics", "").body);
        found["bellows_link_packets_total{network=\"endless\",link=\"source.output -> end.input\"}"]
    };
    let shown = again.counters()["links"][0]["packets"].as_f64().unwrap();
    assert!(scraped() >= shown);
    again.signal(Signal::TERM);
    assert_eq!(again.wait().code, Some(0));
    assert_eq!(server.get("/health?network=endless", "").status, 404);
    drop(idle);
    assert_eq!(server.end(), Some(0));
}
