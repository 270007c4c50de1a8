//! Equal-cost paths: two servers with the same address behind the router, and flows that stay where they are when another
//! path is lost.

use std::collections::BTreeMap;

use bellows_testkit::netns::traffic::{self, Servers};
use bellows_testkit::netns::{End, Host, Lab, connect, run};

use crate::bridge::is_missing;
use crate::support::{Sandbox, Signal};

/// The address that both servers have.
const SERVICE: &str = "203.0.113.5";

/// The first port that the client sends from, and the number of flows.
const FIRST: u16 = 20_000;
const FLOWS: u16 = 60;

const NETWORK: &str = r#"
links = [
  "client.output -> router.client",
  "router.client -> client.input",
  "one.output -> router.one",
  "router.one -> one.input",
  "two.output -> router.two",
  "router.two -> two.input",
]

[apps.router]
app = "router"
routes = ["203.0.113.5 nexthop via 198.51.100.2 nexthop via 198.51.101.2 weight 2"]
interfaces.client = { mac = "02:00:00:00:00:01", addresses = ["192.0.2.1/24"] }
interfaces.one = { mac = "02:00:00:00:00:02", addresses = ["198.51.100.1/24"] }
interfaces.two = { mac = "02:00:00:00:00:03", addresses = ["198.51.101.1/24"] }

[apps]
client = { app = "raw-socket", interface = "client", promiscuous = true }
one = { app = "raw-socket", interface = "one", promiscuous = true }
two = { app = "raw-socket", interface = "two", promiscuous = true }
"#;

/// The server that each flow reaches, by the port that it comes from.
fn servers_of_flows(client: &Host) -> BTreeMap<u16, String> {
    let url = traffic::url(SERVICE, "who");
    let fetch = |port: u16| {
        let words = format!("curl -q --silent --show-error --max-time 20 --local-port {port} {url}");
        run(client.namespace(), &words).unwrap_or_else(|error| panic!("{error}"))
    };
    (FIRST..FIRST + FLOWS).map(|port| (port, fetch(port))).collect()
}

#[test]
fn flows_are_spread_over_equal_paths_and_stay_when_another_is_lost() {
    if is_missing("ecmp::flows_are_spread_over_equal_paths_and_stay_when_another_is_lost", &[]) {
        return;
    }
    let mut lab = Lab::new();
    let middle = lab.silent_host("middle");
    let [client, one, two] = ["client", "one", "two"].map(|name| lab.host(name));
    let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace()]);
    let mut running_servers = Vec::new();
    for (number, host, own, router) in [
        (1, &client, "192.0.2.2/24", "192.0.2.1"),
        (2, &one, "198.51.100.2/24", "198.51.100.1"),
        (3, &two, "198.51.101.2/24", "198.51.101.1"),
    ] {
        let name = ["client", "one", "two"][number - 1];
        let near = End::new(host, "lan", &format!("00:00:5e:00:53:0{number}")).address(own);
        let far = End::new(&middle, name, &format!("00:00:5e:00:53:1{number}"));
        connect([&near, &far], 1500);
        host.run(&format!("ip route add default via {router}"));
        // The same ports are used again at once.
        host.run("sysctl -q -w net.ipv4.tcp_max_tw_buckets=0");
        if number > 1 {
            host.run(&format!("ip address add {SERVICE}/32 dev lo"));
            std::fs::create_dir_all(sandbox.path(name)).unwrap();
            std::fs::write(sandbox.path(name).join("who"), name).unwrap();
            running_servers.push(Servers::start(host, &sandbox.path(name)));
        }
    }
    let network = sandbox.write("ecmp.toml", NETWORK);
    let running = sandbox.start(&[&network]);
    traffic::wait_for_answer(&client, "198.51.100.2");
    traffic::wait_for_answer(&client, "198.51.101.2");

    let before = servers_of_flows(&client);
    let to_two = before.values().filter(|server| *server == "two").count();
    // Two thirds of the flows, within five standard deviations.
    assert!((22..=58).contains(&to_two), "{to_two} of {FLOWS} flows: {before:?}");

    let change = |route: &str| {
        let said =
            sandbox.bellows(&[&["route", "replace", SERVICE][..], &route.split(' ').collect::<Vec<_>>()].concat());
        said.fine();
    };
    change("nexthop via 198.51.100.2");
    let without: Vec<String> = servers_of_flows(&client).into_values().collect();
    assert!(without.iter().all(|server| server == "one"), "{without:?}");

    change("nexthop via 198.51.100.2 nexthop via 198.51.101.2 weight 2");
    assert_eq!(servers_of_flows(&client), before, "each flow is where it was");
    drop(running_servers);
    running.signal(Signal::INT);
    running.wait().fine();
}
