//! Equal-cost paths: servers with the same address behind the router, and flows that stay where they are when another path
//! is lost, by a route or because its server is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellows_testkit::netns::traffic::{self, Servers};
use bellows_testkit::netns::{CableEnd, Host, Lab, connect, run};
use bellows_testkit::wait::within;

use crate::bridge::is_missing;
use crate::support::{Running, Sandbox, Signal};

/// The addresses that all servers have, and the prefixes of the routes to them.
const SERVICES: [&str; 2] = ["203.0.113.5", "2001:db8:53::5"];

/// The first port that the client sends from, and the number of flows.
const FIRST: u16 = 20_000;
const FLOWS: u16 = 60;

/// The time for which a next hop that is gone may be in use, and one that has returned not in use, doubled because tests run
/// on busy machines.
const NOTICED: Duration = Duration::from_secs(16);

/// The server that each flow reaches, by the port that it comes from.
type Flows = BTreeMap<u16, String>;

/// A client and servers around a router.
struct Served {
    client: Host,
    middle: Host,
    names: Vec<&'static str>,
    sandbox: Sandbox,
    _servers: Vec<Servers>,
    _lab: Lab,
}

impl Served {
    fn new(names: &[&'static str]) -> Served {
        let mut lab = Lab::new();
        let middle = lab.silent_host("middle");
        let client = lab.host("client");
        let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace()]);
        let mut servers = Vec::new();
        let cable = |number: usize, name: &str, host: &Host| {
            let near = CableEnd::new(host, "lan", &format!("00:00:5e:00:53:0{number}"));
            let near = near.address(&format!("198.51.{number}.2/24")).address(&format!("2001:db8:{number}::2/64"));
            let far = CableEnd::new(&middle, name, &format!("00:00:5e:00:53:1{number}"));
            connect([&near, &far], 1500);
            host.run(&format!("ip route add default via 198.51.{number}.1"));
            host.run(&format!("ip route add default via 2001:db8:{number}::1"));
            // The same ports are used again at once.
            host.run("sysctl -q -w net.ipv4.tcp_max_tw_buckets=0");
        };
        cable(0, "client", &client);
        for (number, &name) in (1..).zip(names) {
            let host = lab.host(name);
            cable(number, name, &host);
            host.run(&format!("ip address add {}/32 dev lo", SERVICES[0]));
            host.run(&format!("ip address add {}/128 dev lo nodad", SERVICES[1]));
            std::fs::create_dir_all(sandbox.path(name)).unwrap();
            std::fs::write(sandbox.path(name).join("who"), name).unwrap();
            servers.push(Servers::start(&host, &sandbox.path(name)));
        }
        Served { client, middle, names: names.to_vec(), sandbox, _servers: servers, _lab: lab }
    }

    /// Starts the router, and waits until it finds its neighbours. Weights are those of the servers.
    fn start(&self, weights: &[u16]) -> Running<'_> {
        let (mut links, mut interfaces, mut ports) = (String::new(), String::new(), String::new());
        for (number, name) in std::iter::once(&"client").chain(&self.names).enumerate() {
            links += &format!("  \"{name}.output -> router.{name}\", \"router.{name} -> {name}.input\",\n");
            interfaces += &format!(
                "interfaces.{name} = {{ mac = \"02:00:00:00:00:0{number}\", \
                 addresses = [\"198.51.{number}.1/24\", \"2001:db8:{number}::1/64\"] }}\n"
            );
            ports += &format!("{name} = {{ app = \"raw-socket\", interface = \"{name}\", promiscuous = true }}\n");
        }
        let [v4, v6] = ["198.51.N.2", "2001:db8:N::2"].map(|pattern| ways(pattern, weights));
        let routes = format!("[\"{} {v4}\", \"{} {v6}\"]", SERVICES[0], SERVICES[1]);
        let text = format!(
            "links = [\n{links}]\n[apps.router]\napp = \"router\"\nroutes = {routes}\n{interfaces}[apps]\n{ports}"
        );
        let running = self.sandbox.start(&[&self.sandbox.write("ecmp.toml", &text)]);
        for number in 1..=self.names.len() {
            traffic::wait_for_answer(&self.client, &format!("198.51.{number}.2"));
            traffic::wait_for_answer(&self.client, &format!("2001:db8:{number}::2"));
        }
        running
    }

    /// The server that each flow to an address reaches.
    fn flows(&self, service: &str) -> Flows {
        let url = traffic::url(service, "who");
        let fetch = |port: u16| {
            let words = format!("curl -q --globoff --silent --show-error --max-time 20 --local-port {port} {url}");
            run(self.client.namespace(), &words).unwrap_or_else(|error| panic!("{error}"))
        };
        (FIRST..FIRST + FLOWS).map(|port| (port, fetch(port))).collect()
    }

    /// Changes a route.
    fn replace(&self, service: &str, ways: &str) {
        let words: Vec<&str> = ["route", "replace", service].into_iter().chain(ways.split(' ')).collect();
        self.sandbox.bellows(&words).success();
    }

    /// The number of ways to a service that are in use.
    fn ways_in_use(&self, service: &str) -> usize {
        let found = self.sandbox.bellows(&["route", "lookup", service, "--json"]).success().json();
        let ways = found["ways"].as_array().unwrap_or_else(|| panic!("no ways in {found:#}"));
        ways.iter().filter(|way| way["in_use"] == true && way["share"].as_f64().unwrap() > 0.0).count()
    }

    fn wait_for_ways(&self, count: usize) {
        within(NOTICED, &format!("{count} ways to each service"), || {
            SERVICES.iter().all(|service| self.ways_in_use(service) == count)
        });
    }
}

/// Next hops with these weights; `N` in the pattern of their addresses stands for their numbers.
fn ways(pattern: &str, weights: &[u16]) -> String {
    let way = |(number, weight): (usize, &u16)| {
        format!("nexthop via {} weight {weight}", pattern.replace('N', &(number + 1).to_string()))
    };
    weights.iter().enumerate().map(way).collect::<Vec<_>>().join(" ")
}

fn of_server(flows: &Flows, server: &str) -> BTreeSet<u16> {
    flows.iter().filter(|(_, name)| *name == server).map(|(port, _)| *port).collect()
}

#[test]
fn flows_are_spread_over_equal_paths_and_stay_when_another_is_lost() {
    if is_missing("ecmp::flows_are_spread_over_equal_paths_and_stay_when_another_is_lost", &[]) {
        return;
    }
    let served = Served::new(&["one", "two"]);
    let running = served.start(&[1, 2]);
    for (service, pattern) in SERVICES.into_iter().zip(["198.51.N.2", "2001:db8:N::2"]) {
        let before = served.flows(service);
        let to_two = of_server(&before, "two").len();
        // Two thirds of the flows, within five standard deviations.
        assert!((22..=58).contains(&to_two), "{to_two} of {FLOWS} flows: {before:?}");
        served.replace(service, &ways(pattern, &[1]));
        let without = served.flows(service);
        assert_eq!(of_server(&without, "one").len(), usize::from(FLOWS), "{without:?}");
        served.replace(service, &ways(pattern, &[1, 2]));
        assert_eq!(served.flows(service), before, "each flow is where it was");
    }
    running.signal(Signal::INT);
    running.wait().success();
}

#[test]
fn flows_of_a_server_whose_link_is_down_go_to_others_and_return() {
    if is_missing("ecmp::flows_of_a_server_whose_link_is_down_go_to_others_and_return", &[]) {
        return;
    }
    let served = Served::new(&["one", "two", "three"]);
    let running = served.start(&[1, 1, 1]);
    served.wait_for_ways(3);
    let before = SERVICES.map(|service| served.flows(service));
    for flows in &before {
        let counts = served.names.iter().map(|name| of_server(flows, name).len());
        // A third of the flows, within five standard deviations.
        assert!(counts.clone().all(|count| (2..=38).contains(&count)), "{flows:?}");
    }
    let fib = || served.sandbox.bellows(&["show", "fib"]).success().stdout;
    assert!(fib().contains("2 groups with 6 ways\n"), "{}", fib());

    served.middle.run("ip link set two down");
    served.wait_for_ways(2);
    let meanwhile = SERVICES.map(|service| served.flows(service));
    for (before, meanwhile) in before.iter().zip(&meanwhile) {
        assert!(of_server(meanwhile, "two").is_empty(), "{meanwhile:?}");
        for name in ["one", "three"] {
            let (stayed, now) = (of_server(before, name), of_server(meanwhile, name));
            assert!(stayed.is_subset(&now), "flows of {name} moved: {before:?} {meanwhile:?}");
            // Each gets a part of the other flows.
            assert!(now.len() > stayed.len(), "{before:?} {meanwhile:?}");
        }
    }
    assert!(fib().contains("2 groups with 6 ways, 2 of them out of use\n"), "{}", fib());
    let said = served.sandbox.bellows(&["route", "lookup", SERVICES[0]]).success().stdout;
    assert!(said.contains("neighbour 198.51.2.2 dev two failed, ") && said.contains("out of use because"), "{said}");
    let neighbours = served.sandbox.bellows(&["neighbour", "show", "dev", "two"]).success().stdout;
    assert!(neighbours.contains("198.51.2.2 dev two FAILED\n"), "{neighbours}");

    served.middle.run("ip link set two up");
    served.wait_for_ways(3);
    assert_eq!(SERVICES.map(|service| served.flows(service)), before, "each flow is where it was");
    running.signal(Signal::INT);
    running.wait().success();
}
