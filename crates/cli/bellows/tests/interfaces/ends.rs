//! Networks that only send into an interface: they end with their sources, and do not receive.

use bellows_testkit::eventually;
use bellows_testkit::netns::{CableEnd, Host, Lab, connect};
use serde_json::Value;

use crate::bridge::{app, is_missing};
use crate::support::{Running, Sandbox, Signal};

/// Packets that are sent.
const PACKETS: u64 = 500;

/// A host with a port, and one that talks to it all the time.
struct Cable {
    talker: Host,
    middle: Host,
    sandbox: Sandbox,
    _lab: Lab,
}

impl Cable {
    fn new() -> Cable {
        let mut lab = Lab::new();
        let [talker, middle] = ["talker", "middle"].map(|name| lab.silent_host(name));
        let near = CableEnd::new(&talker, "lan", "00:00:5e:00:53:01").address("192.0.2.1/24");
        connect([&near, &CableEnd::new(&middle, "eth0", "00:00:5e:00:53:11")], 1_500);
        let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace()]);
        Cable { talker, middle, sandbox, _lab: lab }
    }

    fn received(&self) -> u64 {
        self.talker.run("cat /sys/class/net/lan/statistics/rx_packets").trim().parse().unwrap()
    }
}

fn source(port: &str) -> String {
    format!(
        "links = [\"source.output -> port.input\"]\n[apps.source]\napp = \"source\"\nheaders = \"ethernet\"\n\
         count = {PACKETS}\nrate = \"2kpps\"\n[apps.port]\n{port}\n"
    )
}

#[test]
fn a_network_that_sends_into_an_interface_ends_with_its_source() {
    if is_missing("ends::a_network_that_sends_into_an_interface_ends_with_its_source", &["ping"]) {
        return;
    }
    for port in [
        "app = \"raw-socket\"\ninterface = \"eth0\"",
        "app = \"raw-socket\"\ninterface = \"eth0\"\nqueues = 2",
        "app = \"af-xdp\"\ninterface = \"eth0\"",
    ] {
        let cable = Cable::new();
        // What the port hears is nothing that it was asked for.
        cable.talker.run("ip neighbour add 192.0.2.9 lladdr 00:00:5e:00:53:99 dev lan");
        let _talk = cable.talker.start("ping -n -q -i 0.002 -W 1 192.0.2.9");
        let before = cable.received();
        let network = cable.sandbox.write("replay.toml", &source(port));
        let report = cable.sandbox.bellows(&["run", &network, "--json"]).success().json();
        assert_eq!(report["end"], "done", "{port}: {report:#}");
        for name in ["source", "port"] {
            let drops = app(&report, name)["drops"].as_object().unwrap().clone();
            assert!(drops.values().all(|count| count == 0), "{port}: {drops:?}");
        }
        eventually("all packets at the other end", || cable.received() >= before + PACKETS);
    }
}

#[test]
fn a_network_that_sends_into_a_tap_ends_with_its_source() {
    if is_missing("ends::a_network_that_sends_into_a_tap_ends_with_its_source", &[]) {
        return;
    }
    let cable = Cable::new();
    cable.middle.run("ip tuntap add dev host0 mode tap");
    let network = cable.sandbox.write("tap.toml", &source("app = \"tap\"\ninterface = \"host0\""));
    let report = cable.sandbox.bellows(&["run", &network, "--json"]).success().json();
    assert_eq!(report["end"], "done", "{report:#}");
    let received = cable.middle.run("cat /sys/class/net/host0/statistics/rx_packets");
    assert_eq!(received.trim(), PACKETS.to_string());
}

/// A reload may link the output of a port that did not receive.
#[test]
fn a_port_receives_as_soon_as_its_output_is_linked() {
    if is_missing("ends::a_port_receives_as_soon_as_its_output_is_linked", &["ping"]) {
        return;
    }
    let cable = Cable::new();
    let apps = "[apps.source]\napp = \"source\"\nrate = \"10pps\"\n[apps.port]\napp = \"raw-socket\"\n\
                interface = \"eth0\"\n";
    let unlinked = format!("links = [\"source.output -> port.input\"]\n{apps}");
    let linked = format!(
        "links = [\"source.output -> port.input\", \"port.output -> end.input\"]\n{apps}[apps.end]\napp = \"sink\"\n"
    );
    let path = cable.sandbox.write("port.toml", &unlinked);
    let running = cable.sandbox.start(&[&path, "--json"]);
    cable.talker.run("ip neighbour add 192.0.2.9 lladdr 00:00:5e:00:53:99 dev lan");
    let _talk = cable.talker.start("ping -n -q -i 0.002 -W 1 192.0.2.9");
    let got = |running: &Running<'_>| app(&running.counters(), "port")["out_packets"].as_u64().unwrap();
    cable.sandbox.write("port.toml", &linked);
    cable.sandbox.bellows(&["reload"]).success();
    eventually("packets of a port that is linked", || got(&running) > 20);
    assert_eq!(app(&running.counters(), "port")["drops"]["unlinked"], 0);
    running.signal(Signal::INT);
    running.wait().success();
}

/// What the kernel drops before the port is a drop of the port.
#[test]
fn packets_that_the_kernel_drops_are_drops_of_the_port() {
    if is_missing("ends::packets_that_the_kernel_drops_are_drops_of_the_port", &["ping"]) {
        return;
    }
    let cable = Cable::new();
    let network = "links = [\"port.output -> end.input\"]\n[apps.end]\napp = \"sink\"\n[apps.port]\n\
                   app = \"raw-socket\"\ninterface = \"eth0\"\nring_size = 16\n";
    let network = cable.sandbox.write("port.toml", network);
    let running = cable.sandbox.start(&[&network, "--json"]);
    cable.talker.run("ip neighbour add 192.0.2.9 lladdr 00:00:5e:00:53:99 dev lan");
    running.signal(Signal::STOP);
    cable.talker.sh("ping -n -q -f -c 300 -W 1 192.0.2.9 || true");
    running.signal(Signal::CONT);
    let port = || -> Value {
        let shown = cable.sandbox.bellows(&["show", "interfaces", "--json"]).success().json();
        let all = shown["interfaces"].as_array().unwrap().clone();
        all.into_iter().find(|interface| interface["app"] == "port").unwrap()
    };
    eventually("drops of the kernel", || port()["drops"]["kernel_dropped"].as_u64().unwrap() > 50);
    let shown = port();
    assert_eq!(shown["dropped"], shown["drops"]["kernel_dropped"], "{shown:#}");
    running.signal(Signal::INT);
    let report = running.wait().success().json();
    crate::support::assert_books(&report);
    assert_eq!(app(&report, "port")["drops"]["kernel_dropped"], shown["drops"]["kernel_dropped"], "{report:#}");
}
