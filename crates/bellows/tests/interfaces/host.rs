//! A router with a host behind it, which has the router's addresses on TAP devices: its servers and routing daemons.
//!
//! ```text
//!  client                 middle                 server
//!  lan ─ cable ─ left [ router ] right ─ cable ─ lan
//!                   lan0, wan0
//!                     router
//! ```

use bellows_testkit::netns::traffic::{self, Servers};
use bellows_testkit::netns::{self, End, Host, Lab, connect};
use serde_json::Value;

use crate::bridge::{FILE, app, is_missing, write_random};
use crate::support::{Running, Sandbox, Signal};

/// The addresses of the two hosts, and of the router on their links.
pub const HOSTS: [[&str; 2]; 2] = [["192.0.2.2", "2001:db8:1::2"], ["198.51.100.2", "2001:db8:2::2"]];
pub const ROUTER: [[&str; 2]; 2] = [["192.0.2.1", "2001:db8:1::1"], ["198.51.100.1", "2001:db8:2::1"]];

/// The names of the router's interfaces.
const PORTS: [&str; 2] = ["left", "right"];

/// The host's devices.
pub const DEVICES: [&str; 2] = ["lan0", "wan0"];

/// Two hosts with a router between them, and the host behind it.
pub struct Hosted {
    pub hosts: [Host; 2],
    pub router: Host,
    pub sandbox: Sandbox,
    _lab: Lab,
}

impl Hosted {
    pub fn new() -> Hosted {
        let mut lab = Lab::new();
        let middle = lab.silent_host("middle");
        let [router, client, server] = ["router", "client", "server"].map(|name| lab.host(name));
        let hosts = [client, server];
        for (index, port) in PORTS.into_iter().enumerate() {
            let number = index + 1;
            let near = End::new(&hosts[index], "lan", &format!("00:00:5e:00:53:0{number}"));
            let near = HOSTS[index].iter().zip([24, 64]).fold(near, |near, (own, bits)| near.address(&format!("{own}/{bits}")));
            let far = End::new(&middle, port, &format!("00:00:5e:00:53:1{number}"));
            connect([&near, &far], 1500);
            let [v4, v6] = ROUTER[index];
            hosts[index].sh(&format!("ip route add default via {v4}; ip -6 route add default via {v6}"));
        }
        let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace()]);
        Hosted { hosts, router, sandbox, _lab: lab }
    }

    /// Writes a network with further keys of the router, and of its two interfaces.
    pub fn write(&self, keys: &str, of_interfaces: [&str; 2]) -> String {
        let mut text = "links = [\n".to_owned();
        for port in PORTS {
            text += &format!("  \"{port}.output -> router.{port}\", \"router.{port} -> {port}.input\",\n");
        }
        let namespace = self.router.namespace();
        text += &format!("]\n[apps.router]\napp = \"router\"\nhost_namespace = \"{namespace}\"\n{keys}\n");
        for (index, port) in PORTS.into_iter().enumerate() {
            let ([v4, v6], device, more) = (ROUTER[index], DEVICES[index], of_interfaces[index]);
            let number = index + 1;
            let neighbour = HOSTS[index][1];
            text += &format!(
                "[apps.router.interfaces.{port}]\nmac = \"02:00:00:00:00:0{number}\"\naddresses = [\"{v4}/24\", \"{v6}/64\"]\n\
                 neighbours = {{ \"{neighbour}\" = \"00:00:5e:00:53:0{number}\" }}\nhost = \"{device}\"\n{more}\n\
                 [apps.{port}]\napp = \"raw-socket\"\ninterface = \"{port}\"\npromiscuous = true\n"
            );
        }
        self.sandbox.write("host.toml", &text)
    }

    pub fn start(&self, keys: &str, of_interfaces: [&str; 2]) -> Running<'_> {
        let running = self.sandbox.start(&[&self.write(keys, of_interfaces), "--json"]);
        self.router.wait_for_addresses();
        traffic::wait_for_answer(&self.hosts[0], ROUTER[0][0]);
        running
    }

    #[track_caller]
    pub fn stop(&self, running: Running<'_>) {
        running.signal(Signal::INT);
        running.wait().fine();
    }
}

/// Whether one packet is answered.
pub fn is_answered(host: &Host, words: &str) -> bool {
    netns::run(host.namespace(), &format!("ping -n -c 1 -W 1 {words}")).is_ok()
}

/// A counter of an app, or 0 if it has not counted.
pub fn count(counters: &Value, name: &str, counter: &str) -> u64 {
    let app = app(counters, name);
    ["drops", "counters"].iter().find_map(|kind| app[kind][counter].as_u64()).unwrap_or(0)
}

#[test]
fn the_host_behind_a_router_serves_its_neighbours_and_reaches_them() {
    if is_missing("host::the_host_behind_a_router_serves_its_neighbours_and_reaches_them", &[]) {
        return;
    }
    let hosted = Hosted::new();
    let running = hosted.start("", [""; 2]);
    let [client, server] = &hosted.hosts;
    write_random(&hosted.sandbox, 1 << 20);
    let folder = hosted.sandbox.path("");
    let servers = Servers::start(&hosted.router, &folder);
    for address in ROUTER[0] {
        traffic::fetch(client, address, &folder, FILE);
        traffic::ping(client, address, 1500);
    }
    // The router's addresses on its other interface are the host's, too.
    traffic::fetch(client, ROUTER[1][0], &folder, FILE);
    drop(servers);
    for (host, addresses) in [(client, HOSTS[0]), (server, HOSTS[1])] {
        for address in addresses {
            traffic::ping(&hosted.router, address, 1500);
            assert!(is_answered(host, address));
        }
    }
    assert!(!is_answered(&hosted.router, "192.0.2.77"), "there is no such neighbour");
    let counters = running.counters();
    assert!(count(&counters, "router/punt", "punted") > 100, "{counters:#}");
    assert_eq!(count(&counters, "router/punt", "rate_limited"), 0, "{counters:#}");
    assert!(count(&counters, "router/ip4-local", "echo_replies_sent") >= 4, "the router itself answers: {counters:#}");
    hosted.stop(running);
    let left = hosted.router.run("ip -o link show");
    assert!(!left.contains(DEVICES[0]), "the devices are gone with the router: {left}");
}

#[test]
fn the_host_answers_pings_if_asked_and_hears_what_is_sent_to_many() {
    if is_missing("host::the_host_answers_pings_if_asked_and_hears_what_is_sent_to_many", &[]) {
        return;
    }
    let hosted = Hosted::new();
    let running = hosted.start("[apps.router.parts.ip4-local]\npunt_echo = true\n[apps.router.parts.ip6-local]\npunt_echo = true", [""; 2]);
    let received = || -> u64 {
        let text = hosted.router.run("cat /sys/class/net/lan0/statistics/rx_packets");
        text.trim().parse().unwrap()
    };
    let client = &hosted.hosts[0];
    for address in ROUTER[0] {
        traffic::ping(client, address, 1500);
    }
    let counters = running.counters();
    for local in ["router/ip4-local", "router/ip6-local"] {
        assert_eq!(count(&counters, local, "echo_replies_sent"), 0, "{counters:#}");
    }
    let before = received();
    // To all routers that speak OSPF.
    client.sh("ping -n -c 10 -i 0.01 -W 1 -I lan 224.0.0.5 || ping -n -c 10 -i 0.01 -W 1 ff02::5%lan || true");
    assert!(received() >= before + 20);
    hosted.stop(running);
}

#[test]
fn a_flood_to_the_host_is_limited() {
    if is_missing("host::a_flood_to_the_host_is_limited", &[]) {
        return;
    }
    let hosted = Hosted::new();
    let keys = "[apps.router.parts.punt]\nrate = 1\nburst = 10\n[apps.router.parts.ip4-local]\npunt_echo = true";
    let running = hosted.start(keys, [""; 2]);
    let [client, _] = &hosted.hosts;
    client.sh(&format!("ping -q -n -f -c 300 -W 1 {} || true", ROUTER[0][0]));
    let counters = running.counters();
    assert!(count(&counters, "router/punt", "rate_limited") > 200, "{counters:#}");
    // What is forwarded does not wait for it.
    traffic::ping(client, HOSTS[1][0], 1500);
    hosted.stop(running);
}
