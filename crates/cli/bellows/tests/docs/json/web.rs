//! The servers of the live page and of metrics.

use std::fs;

use bellows::json_reference::{Chapter, Found};
use bellows_testkit::eventually;
use serde_json::{Value, json};

use crate::json::assert_met;
use crate::support::metrics::Server;
use crate::support::site::{Answer, Site};
use crate::support::{Sandbox, json_reference};

/// Two workers, packets that are dropped, and a status of an app and of a shared object.
const NETWORK: &str = r#"
links = ["source.output -> limit.input", "limit.output -> filter.input", "filter.match -> end.input"]
[workers.other]
[objects.flows]
object = "state-table"
capacity = 100
[apps.source]
app = "source"
headers = "ipv4"
rate = "50kpps"
worker = "main"
[apps.limit]
app = "rate-limiter"
rate = "20kpps"
worker = "main"
[apps.filter]
app = "pcap-filter"
filter = "ip"
state_table = "flows"
worker = "main"
[apps.end]
app = "sink"
worker = "other"
"#;

#[test]
fn what_the_page_is_answered() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", NETWORK);
    let running = sandbox.start(&[&network, "--name", "net"]);
    let site = Site::start(&sandbox, &["--allow-changes"]);
    let mut found = Found::new();
    let mut note = |request: &str, answer: Answer| -> Value {
        json_reference::compare_answer(request, answer.status, &answer.body, &mut found);
        serde_json::from_slice(&answer.body).unwrap()
    };
    note("GET /api/live", site.get("/api/live?network=nothing"));
    note("GET /api/networks", site.get("/api/networks"));
    let live = || site.get("/api/live?network=net");
    eventually("rates", || live().json()["links"][2]["packets"].as_f64() > Some(0.0));
    for request in [
        "live?network=net",
        "app?network=net&app=limit",
        "link?network=net&link=source.output%20-%3E%20limit.input",
        "picture?network=net",
        "durations?network=net&app=limit",
        "status?network=net",
    ] {
        let request = format!("/api/{request}");
        note(&format!("GET {request}"), site.get(&request));
    }
    let trace = json!({ "network": "net", "count": 2, "seconds": 5 });
    note("POST /api/trace", site.post("/api/trace", &trace));
    for change in ["clear", "reload"] {
        fs::write(&network, NETWORK.replace("20kpps", "30kpps")).unwrap();
        let change = json!({ "change": change, "network": "net" });
        note("POST /api/change", site.post("/api/change", &change));
    }
    let server = Server::start(&sandbox, &[]);
    let health = server.get("/health", "");
    json_reference::compare_answer("GET /health", health.status, health.body.as_bytes(), &mut found);
    drop(running);
    assert_met(Chapter::Web, &found, &[], &[]);
}
