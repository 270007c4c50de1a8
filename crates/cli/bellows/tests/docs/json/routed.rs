//! Routes, neighbours, associations and addresses.

use bellows::json_reference::{Chapter, Found};
use bellows_testkit::eventually;
use serde_json::Value;

use crate::json::assert_met;
use crate::support::Sandbox;

/// A router, a pair of associations, and two bridges.
const NETWORK: &str = r#"
links = [
  "in.output -> router.left", "router.left -> back.input", "router.right -> out.input",
  "clear.output -> near.site", "near.ip6 -> end.input",
  "one.output -> lan.one", "lan.one -> seen.a", "lan.two -> small.left", "small.right -> seen.b", "seen.output -> last.input",
]
[apps]
in = { app = "source", headers = "ipv4", rate = "1kpps", size = 60, dst_mac = "02:00:00:00:00:01", dst = "203.0.113.1" }
back = { app = "sink" }
out = { app = "sink" }
clear = { app = "source", headers = "ipv4", rate = "1kpps", size = 200 }
end = { app = "sink" }
one = { app = "source", headers = "ipv4", rate = "1kpps", size = 60, src_mac = "02:00:00:00:00:08" }
seen = { app = "join" }
last = { app = "sink" }
lan = { app = "bridge", table = "macs", ports.one = { access = 5 }, ports.two = { trunk = "5" } }
small = { app = "bridge" }
[apps.router]
app = "router"
routes = ["203.0.113.0/24 via 198.51.100.2", "198.18.0.0/15 via 198.51.100.3"]
interfaces.left = { mac = "02:00:00:00:00:01", addresses = ["192.0.2.1/24"] }
[apps.router.interfaces.right]
mac = "02:00:00:00:00:02"
addresses = ["198.51.100.1/24", "2001:db8::1/64"]
neighbours = { "198.51.100.2" = "04:00:00:00:00:02" }
[apps.near]
app = "esp"
local = "2001:db8::1"
[apps.near.associations.site]
remote = "2001:db8::2"
udp = {}
inbound = { spi = 0x1002, algorithm = "aes-128-gcm", key = "71a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3" }
[apps.near.associations.site.outbound]
spi = 0x1001
algorithm = "aes-128-gcm"
key = "70a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3"
hard = { packets = 1_000_000_000, bytes = 1_000_000_000_000, seconds = 86_400 }
[objects.macs]
object = "mac-table"
static = { "02:00:00:00:00:02 vlan 5" = "two" }
"#;

/// No command prints it, because commands say on standard error which line is wrong.
const IN_UNIT_TESTS: [&str; 1] = ["Wrong line"];

/// Of a pair that receives what is not authentic, which the tests of `esp` print.
const UNAUTHENTIC: (&str, &str) = ("Association", "likely_cause");

#[test]
fn routes_neighbours_associations_and_addresses() {
    let sandbox = Sandbox::new();
    let mut found = Found::new();
    let mut print = |words: &str| -> Value {
        let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
        sandbox.bellows_noting(&words, &mut found).success().json()
    };
    let path = sandbox.write("network.toml", NETWORK);
    let running = sandbox.start(&[&path]);
    eventually("addresses and packets", || {
        let tables = print("show mac")["tables"].clone();
        let all = tables.as_array().unwrap().iter().map(|table| table["addresses"].as_array().unwrap().len());
        all.collect::<Vec<_>>() == [2, 1]
    });
    print("clear mac network --port one");

    print("route add 10.9.0.0/16 via 198.51.100.2 --save");
    print("route add 10.8.0.0/16 via 192.0.2.77 dev right onlink mtu 1400");
    print("route add 10.7.0.0/16 nexthop via 192.0.2.77 dev right onlink nexthop via 198.51.100.2");
    print("show saved");
    for change in [
        "add 10.0.0.0/8 via 198.51.100.2",
        "append 10.0.0.0/8 via 198.51.100.3",
        "add 10.1.0.0/16 via inet6 2001:db8::9",
        "append 10.1.0.0/16 via 198.51.100.3",
        "add 10.2.0.0/16 via inet6 2001:db8::9",
        "add blackhole 10.3.0.0/16",
        "replace 198.18.0.0/15 dev left",
        "del 198.18.0.0/15",
    ] {
        print(&format!("route {change}"));
    }
    assert!(print("route show --limit 1")["next"].is_array());
    print("route show proto all");
    for address in ["10.1.2.3 from 192.0.2.9", "203.0.113.1", "10.3.0.1", "100.64.0.1"] {
        print(&format!("route lookup {address}"));
    }
    print("show fib");
    sandbox.write("routes.txt", "11.0.0.0/8 via 198.51.100.2\n192.0.2.0/24 dev left proto connected\n");
    print("route add -f routes.txt");
    print("route replace-all -f routes.txt");
    print("route flush via 198.51.100.2");

    print("neighbour add 198.51.100.9 lladdr 04:00:00:00:00:09");
    sandbox.write("neighbours.txt", "198.51.100.9 lladdr 04:00:00:00:00:0a dev right\n");
    print("neighbour replace -f neighbours.txt");
    print("neighbour show dev right");
    print("show neighbours");
    print("neighbour flush dev right");

    print("esp show site");
    let key = sandbox.write_secret("new.key", "72a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3\n");
    print(&format!("esp rekey site --inbound 0x2002 aes-128-gcm {key} --save"));
    print("show saved");
    print("esp show site");
    print("esp forget site");
    drop(running);

    assert_met(Chapter::Routed, &found, &IN_UNIT_TESTS, &[UNAUTHENTIC]);
}
