//! `bellows show interfaces` has the same keys for the ports of all kinds.

use bellows_testkit::eventually;
use bellows_testkit::netns::{CableEnd, Lab, connect};
use serde_json::Value;

use crate::bridge::is_missing;
use crate::support::Sandbox;
use crate::support::vhost::Network;

/// Name, type and keys of the ports. Each sends what it receives to the next one.
const PORTS: [(&str, &str, &str); 7] = [
    ("fast", "af-xdp", "interface = \"fast\"\n"),
    ("raw", "raw-socket", "interface = \"raw\"\n"),
    ("tap", "tap", "interface = \"tap7\"\nmtu = 1400\n"),
    ("unix", "unix-socket", "kind = \"stream\"\nmode = \"server\"\nsocket = \"unix.sock\"\n"),
    ("shared", "memif", "role = \"server\"\nsocket = \"memif.sock\"\n"),
    ("guest", "vhost-user", "socket = \"guest.sock\"\n"),
    ("device", "virtio-user", "socket = \"device.sock\"\n"),
];

/// The kernel's interfaces of the first ports, and their MTU.
const INTERFACES: [(&str, u64); 3] = [("fast", 1_500), ("raw", 1_500), ("tap7", 1_400)];

fn network() -> String {
    let network = PORTS.iter().fold(Network::default(), |network, (name, app, keys)| network.app(name, app, keys));
    let next = PORTS.iter().cycle().skip(1);
    let links = PORTS.iter().zip(next).map(|(from, to)| format!("{}.output -> {}.input", from.0, to.0));
    links.fold(network, |network, link| network.link(&link)).text()
}

#[test]
fn ports_of_all_kinds_are_listed_alike() {
    if is_missing("ports_of_all_kinds_are_listed_alike", &[]) {
        return;
    }
    let mut lab = Lab::new();
    let [middle, other] = ["middle", "other"].map(|name| lab.silent_host(name));
    for (number, name) in ["fast", "raw"].into_iter().enumerate() {
        let ends = [&middle, &other].map(|host| CableEnd::new(host, name, &format!("00:00:5e:00:53:2{number}")));
        connect([&ends[0], &ends[1]], 1_500);
    }
    let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace()]);
    sandbox.write("all.toml", &network());
    let running = sandbox.start(&["all.toml"]);
    let list = || sandbox.bellows(&["show", "interfaces", "--json"]).success().json()["interfaces"].clone();
    eventually("ports that are up", || {
        let listed = list();
        let states = listed.as_array().unwrap().iter().take(3).map(|port| port["state"].clone());
        states.clone().count() == 3 && states.into_iter().all(|state| state == "up")
    });
    let listed = list();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), PORTS.len(), "{listed:#?}");
    let text = sandbox.bellows(&["show", "interfaces"]).success().stdout;
    for ((name, app, _), port) in PORTS.iter().zip(listed) {
        assert_eq!((&port["app"], &port["kind"]), (&Value::from(*name), &Value::from(*app)), "{port:#}");
        assert!(port["state"].is_string() && port["dropped"].is_u64(), "{port:#}");
        assert!(port["rx"]["packets"].is_u64() && port["tx"]["bytes"].is_u64(), "{port:#}");
        let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(app), "{text}");
    }
    for (port, (name, mtu)) in listed.iter().zip(INTERFACES) {
        let link = &port["status"]["link"];
        assert_eq!((&link["name"], &link["mtu"]), (&name.into(), &mtu.into()), "{port:#}");
        assert!(text.contains(name), "{text}");
    }

    middle.run("ip link set raw down");
    eventually("a port whose interface is down", || list()[1]["state"] != "up");
    middle.run("ip link delete fast");
    eventually("a port whose interface is gone", || list()[0]["state"] != "up");
    drop(running);
}
