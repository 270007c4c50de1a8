//! The states of apps and shared objects.

use bellows::json_reference::{Chapter, Found};
use bellows_testkit::eventually;
use bellows_testkit::netns::{self, CableEnd, Lab, connect};
use bellows_testkit::skips::is_skipped;
use serde_json::{Value, json};

use crate::json::{assert_keys_met, assert_met};
use crate::support::examples::checkout;
use crate::support::vhost::Network;
use crate::support::{Sandbox, tunnel};

/// All apps and shared objects with a status that need no privileges, but for ports. Both routers have one address.
const STATES: &str = r#"
links = [
  "source.output -> admits.input", "admits.match -> rules.input", "rules.output -> lan.a", "lan.b -> share.input",
  "share.one -> whole.input", "whole.output -> kept.a", "kept.b -> taken.input",
  "capture.output -> read.input",
  "left.output -> near.circuit", "near.tunnel -> far.tunnel", "far.circuit -> out.input",
  "right.output -> far.circuit", "far.tunnel -> near.tunnel", "near.circuit -> back.input",
  "near.control -> far.control", "far.control -> near.control",
  "clear.output -> here.site", "here.ip6 -> end.input",
  "asks.output -> first.in", "first.in -> nobody.input", "first.lan -> second.lan", "second.lan -> first.lan",
]
[objects.flows]
object = "state-table"
[objects.macs]
object = "mac-table"
[apps]
source = { app = "source", headers = "ipv4", size = 60, rate = "1kpps" }
admits = { app = "pcap-filter", filter = "udp", state_table = "flows" }
rules = { app = "access-list", rules = ["permit udp"] }
lan = { app = "bridge" }
share = { app = "rss" }
whole = { app = "reassemble" }
kept = { app = "bridge", table = "macs" }
taken = { app = "sink" }
capture = { app = "pcap-reader", path = "examples/captures/quickstart.pcap", filter = "udp" }
read = { app = "sink" }
left = { app = "source", size = 60, rate = "100pps" }
right = { app = "source", size = 60, rate = "100pps" }
near = { app = "control-channel", mtu = 1500, heartbeat = "1s" }
far = { app = "control-channel", mtu = 1500, heartbeat = "1s" }
out = { app = "sink" }
back = { app = "sink" }
clear = { app = "source", headers = "ipv4", size = 200, rate = "100pps" }
end = { app = "sink" }
asks = { app = "source", headers = "ipv4", size = 60, rate = "100pps", dst_mac = "02:00:00:00:00:01", dst = "192.0.2.2" }
nobody = { app = "sink" }
[apps.first]
app = "router"
routes = ["kernel:7777"]
interfaces.in = { mac = "02:00:00:00:00:01", addresses = ["198.51.100.1/24"] }
interfaces.lan = { mac = "02:00:00:00:00:02", addresses = ["192.0.2.1/24", "2001:db8::1/64"] }
[apps.second]
app = "router"
interfaces.lan = { mac = "02:00:00:00:00:03", addresses = ["192.0.2.2/24", "2001:db8::1/64"] }
"#;

/// A device with its driver, and both ends of a socket.
const SOCKETS: &str = r#"
links = [
  "there.output -> driver.input", "driver.output -> arrived.input",
  "back.output -> device.input", "device.output -> end.input",
  "server.output -> client.input", "client.output -> server.input",
]
[apps]
there = { app = "source", size = 60, rate = "1kpps" }
back = { app = "source", size = 60, rate = "1kpps" }
driver = { app = "virtio-user", socket = "port.sock" }
device = { app = "vhost-user", socket = "port.sock" }
arrived = { app = "sink" }
end = { app = "sink" }
server = { app = "unix-socket", socket = "stream.sock", mode = "server" }
client = { app = "unix-socket", socket = "stream.sock", mode = "client" }
"#;

/// The ports at the kernel's interfaces: name, type and keys.
const PORTS: [(&str, &str, &str); 3] = [
    ("fast", "af-xdp", "interface = \"fast\"\n"),
    ("raw", "raw-socket", "interface = \"raw\"\nqueues = 2\n"),
    ("tap", "tap", "interface = \"tap7\"\n"),
];

/// Forms whose keys ports at the kernel's interfaces have, which are in a test of their own.
const OF_THE_KERNEL: [&str; 2] = ["Details of a port", "Interface of the kernel"];

/// Only ports of a router whose addresses the kernel has, too, have it.
const ANSWERED: (&str, &str) = ("Details of a port", "kernel_answers_for");

/// Only ports at the kernel's interfaces have it.
const LINK: (&str, &str) = ("Status of `af-xdp`, `dpdk`, `raw-socket`, `tap` and `unix-socket`", "link");

/// The status of an app or shared object.
fn status<'a>(shown: &'a Value, name: &str) -> &'a Value {
    let all = ["apps", "objects"].iter().flat_map(|list| shown[*list].as_array().unwrap());
    let mut found = all.filter(|one| one["app"] == name || one["object"] == name);
    &found.next().unwrap_or_else(|| panic!("no `{name}` in {shown:#}"))["status"]
}

#[test]
fn the_states_of_apps_and_shared_objects() {
    let sandbox = checkout(Sandbox::new());
    let mut found = Found::new();
    let mut print = |words: &[&str]| sandbox.bellows_noting(words, &mut found).success().json();
    let text = STATES.to_owned() + &tunnel::near("here", tunnel::GIVEN);
    let running = sandbox.start(&[&sandbox.write("states.toml", &text)]);
    let has_some = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    eventually("what neighbours and peers say", || {
        let shown = print(&["show", "status", "--json"]);
        let duplicates = ["first/vrf", "second/vrf"].map(|vrf| &status(&shown, vrf)["duplicate_addresses"]);
        has_some(&status(&shown, "first/arp")["neighbours"])
            && duplicates.into_iter().any(has_some)
            && status(&shown, "near")["peer"].is_object()
    });
    drop(running);

    let running = sandbox.start(&[&sandbox.write("sockets.toml", SOCKETS)]);
    eventually("all ports with their other sides", || {
        let shown = print(&["show", "status", "--json"]);
        let rings = &status(&shown, "driver")["rings"];
        has_some(rings) && ["server", "client"].iter().all(|app| has_some(&status(&shown, app)["queues"]))
    });
    print(&["show", "vhost", "--json"]);
    print(&["show", "interfaces", "--json"]);
    drop(running);

    assert_met(Chapter::States, &found, &OF_THE_KERNEL, &[LINK]);
}

#[test]
fn the_states_of_ports_at_interfaces_of_the_kernel() {
    let test = "states::the_states_of_ports_at_interfaces_of_the_kernel";
    if is_skipped(test, netns::missing(&[])) {
        return;
    }
    let mut lab = Lab::new();
    let [middle, other] = ["middle", "other"].map(|name| lab.silent_host(name));
    for (number, name) in ["fast", "raw"].into_iter().enumerate() {
        let ends = [&middle, &other].map(|host| CableEnd::new(host, name, &format!("00:00:5e:00:53:2{number}")));
        connect([&ends[0], &ends[1]], 1_500);
    }
    let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace()]);
    let network = PORTS.iter().fold(Network::default(), |network, (name, app, keys)| network.app(name, app, keys));
    let sockets = ["server", "client"].iter().fold(network, |network, mode| {
        network.app(mode, "unix-socket", &format!("socket = \"stream.sock\"\nmode = \"{mode}\"\n"))
    });
    let names = ["fast", "raw", "tap", "server", "client"];
    let pairs = names.iter().zip(names.iter().cycle().skip(1));
    let network = pairs.fold(sockets, |network, (from, to)| network.link(&format!("{from}.output -> {to}.input")));
    let running = sandbox.start(&[&sandbox.write("ports.toml", &network.text())]);
    let mut found = Found::new();
    eventually("ports that are up", || {
        let shown = sandbox.bellows_noting(&["show", "status", "--json"], &mut found).success().json();
        names.iter().all(|name| status(&shown, name)["state"] == json!("up"))
    });
    drop(running);
    let forms = Chapter::States.forms().into_iter().filter(|form| OF_THE_KERNEL.contains(&form.title));
    assert_keys_met(&forms.collect::<Vec<_>>(), &found, &[ANSWERED]);
    assert!(found.contains(&LINK), "no port has a link");
}
