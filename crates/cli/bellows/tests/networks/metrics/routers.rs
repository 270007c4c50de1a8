//! The gauges of a router are what its reports show.

use std::time::Duration;

use bellows_testkit::wait::within;
use serde_json::Value;

use crate::metrics::exposition::samples;
use crate::support::Sandbox;

const PATIENCE: Duration = Duration::from_secs(60);

/// A router that needs no privileges. Its traffic goes to a neighbour that never answers.
const ROUTER: &str = r#"
links = ["in.output -> router.left", "router.left -> back.input", "router.right -> out.input"]
[apps.in]
app = "source"
headers = "ipv4"
rate = "1kpps"
size = 60
dst_mac = "02:00:00:00:00:01"
src = "192.0.2.7"
dst = "203.0.113.1"
[apps.back]
app = "sink"
[apps.out]
app = "sink"
[apps.router]
app = "router"
routes = ["203.0.113.0/24 via 198.51.100.9"]
[apps.router.interfaces.left]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
[apps.router.interfaces.right]
mac = "02:00:00:00:00:02"
addresses = ["198.51.100.1/24", "2001:db8::1/64"]
neighbours = { "198.51.100.2" = "04:00:00:00:00:02", "198.51.100.3" = "04:00:00:00:00:03" }
"#;

#[test]
fn the_gauges_of_a_router_are_what_its_reports_show() {
    let sandbox = Sandbox::new();
    let running = sandbox.start(&[&sandbox.write("edge.toml", ROUTER)]);
    let fib = || sandbox.bellows(&["show", "fib", "--json"]).success().json()["vrfs"][0].clone();
    let before = fib();
    for words in [
        "route add 10.0.0.0/8 via 198.51.100.2",
        "route add 2001:db8:7::/48 via 2001:db8::9",
        "route add 2001:db8:8::/48 via 2001:db8::9",
        "neighbour add 2001:db8::9 lladdr 04:00:00:00:00:09",
    ] {
        sandbox.bellows(&words.split(' ').collect::<Vec<_>>()).success();
    }
    let after = fib();
    let added = |family: &str| after[family]["routes"].as_u64().unwrap() - before[family]["routes"].as_u64().unwrap();
    // The neighbour has a route as well.
    assert_eq!((added("ipv4"), added("ipv6")), (1, 3));
    // The neighbours by family and state.
    let neighbours = || {
        let shown = sandbox.bellows(&["show", "neighbours", "--json"]).success().json();
        let all = shown["vrfs"][0]["neighbours"].as_array().unwrap().clone();
        let is_of = |one: &Value, is_v6: bool, state: &str| {
            one["address"].as_str().unwrap().contains(':') == is_v6 && one["state"] == state
        };
        move |is_v6: bool, state: &str| all.iter().filter(|one| is_of(one, is_v6, state)).count() as f64
    };
    within(PATIENCE, "the gauges of the reports", || {
        // The memory of tables changes when those that were replaced are let go.
        let (samples, shown, fib) = (samples(&sandbox.bellows(&["metrics"]).success().stdout), neighbours(), fib());
        let gauge = |app: &str, name: &str| {
            samples[&format!("bellows_{app}_{name}{{network=\"edge\",app=\"router/{app}\",type=\"{app}\"}}")]
        };
        let is_same = |(app, family): (&str, &str)| {
            let sizes = ["routes", "bytes"].map(|key| fib[family][key].as_f64().unwrap());
            let states = ["incomplete", "reachable", "delay", "probe", "permanent"];
            [gauge(app, "routes"), gauge(app, "fib_bytes")] == sizes
                && states.iter().all(|state| gauge(app, &format!("neighbours_{state}")) == shown(app == "nd", state))
        };
        let counts = [("arp", "incomplete"), ("arp", "permanent"), ("nd", "permanent")];
        [("arp", "ipv4"), ("nd", "ipv6")].into_iter().all(is_same)
            && counts.map(|(app, state)| gauge(app, &format!("neighbours_{state}"))) == [1.0, 2.0, 1.0]
    });
    drop(running);
}
