//! The router of the examples between two hosts with Linux, which have its addresses as their gateways.

use std::net::Ipv4Addr;
use std::time::Duration;

use bellows_testkit::eventually;
use bellows_testkit::netns::traffic::{self, Servers, StreamDirection};
use bellows_testkit::netns::{self, CableEnd, Host, Lab, connect};
use bellows_testkit::skips::is_skipped;

use crate::bridge::{FILE, app, is_missing, write_random};
use crate::support::{Running, Sandbox, Signal, root};

/// The hosts' own addresses, and those of the router on their links.
const HOSTS: [&str; 2] = ["192.0.2.2", "198.51.100.2"];
const ROUTER: [&str; 2] = ["192.0.2.1", "198.51.100.1"];

/// An address behind the second host, to which the example has a route.
const BEHIND: &str = "203.0.113.5";

pub struct Routed {
    pub hosts: [Host; 2],
    pub sandbox: Sandbox,
    _lab: Lab,
}

impl Routed {
    pub fn new() -> Routed {
        let mut lab = Lab::new();
        let middle = lab.silent_host("middle");
        let hosts = ["client", "server"].map(|name| lab.host(name));
        for (index, port) in ["left", "right"].into_iter().enumerate() {
            let number = index + 1;
            let near = CableEnd::new(&hosts[index], "lan", &format!("00:00:5e:00:53:0{number}"));
            let near = near.address(&format!("{}/24", HOSTS[index]));
            let far = CableEnd::new(&middle, port, &format!("00:00:5e:00:53:1{number}"));
            connect([&near, &far], 1500);
            hosts[index].run(&format!("ip route add default via {}", ROUTER[index]));
        }
        hosts[1].run(&format!("ip address add {BEHIND}/32 dev lo"));
        let sandbox =
            Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace(), "env", "LEFT=left", "RIGHT=right"]);
        Routed { hosts, sandbox, _lab: lab }
    }

    pub fn start(&self, more: &[&str]) -> Running<'_> {
        self.start_example("router.toml", more)
    }

    fn start_example(&self, name: &str, more: &[&str]) -> Running<'_> {
        let example = root().join("examples").join(name);
        let running = self.sandbox.start(&[&[example.to_str().unwrap(), "--json"], more].concat());
        traffic::wait_for_answer(&self.hosts[0], HOSTS[1]);
        running
    }

    /// What a command of the client says, whether or not it succeeds.
    fn says(&self, words: &str) -> String {
        match netns::run(self.hosts[0].namespace(), words) {
            Ok(said) | Err(said) => said,
        }
    }

    #[track_caller]
    pub fn stop(&self, running: Running<'_>) {
        running.signal(Signal::INT);
        running.wait().success();
    }
}

#[test]
fn hosts_behind_a_router_reach_one_another() {
    let test = "router::hosts_behind_a_router_reach_one_another";
    if is_missing(test, &[]) {
        return;
    }
    let routed = Routed::new();
    let running = routed.start(&[]);
    let client = &routed.hosts[0];
    for address in [HOSTS[1], BEHIND, ROUTER[0], ROUTER[1]] {
        traffic::ping(client, address, 1500);
    }
    write_random(&routed.sandbox, 5 << 20);
    let servers = Servers::start(&routed.hosts[1], &routed.sandbox.path(""));
    traffic::fetch(client, HOSTS[1], &routed.sandbox.path(""), FILE);
    for direction in [StreamDirection::There, StreamDirection::Back] {
        traffic::tcp(client, HOSTS[1], Duration::from_secs(1), direction);
    }
    let udp = traffic::udp(client, HOSTS[1], Duration::from_secs(1), 20, 1000);
    assert!(udp.sent > 1000 && udp.lost * 10 < udp.sent, "{udp:?}");
    drop(servers);
    assert_eq!(routed.hosts.each_ref().map(traffic::checksum_errors), [0, 0]);
    let counters = running.counters();
    for part in ["router/ip4-forward", "router/ip4-rewrite"] {
        let lost = app(&counters, part)["lost"].as_object().map(serde_json::Map::len);
        assert_eq!(lost, Some(0), "{part}: {counters:#}");
    }
    assert!(app(&counters, "router/ip4-forward")["in_packets"].as_u64() > Some(1000), "{counters:#}");
    routed.stop(running);
}

/// The example with single apps: the loop that the loader puts in front of them forwards nearly all packets.
#[test]
fn a_router_of_single_apps_forwards_in_one_loop() {
    if is_missing("router::a_router_of_single_apps_forwards_in_one_loop", &[]) {
        return;
    }
    let routed = Routed::new();
    let running = routed.start_example("router-stages.toml", &[]);
    let client = &routed.hosts[0];
    for address in [HOSTS[1], BEHIND, ROUTER[0], ROUTER[1]] {
        traffic::ping(client, address, 1500);
    }
    let servers = Servers::start(&routed.hosts[1], &routed.sandbox.path(""));
    for direction in [StreamDirection::There, StreamDirection::Back] {
        traffic::tcp(client, HOSTS[1], Duration::from_secs(1), direction);
    }
    // What Linux sends in segments goes through the stages, and datagrams through the loop alone.
    let passed = || {
        let counters = running.counters();
        ["ip4-forward", "ip4-input"].map(|name| app(&counters, name)["in_packets"].as_u64().unwrap_or_default())
    };
    let before = passed();
    let udp = traffic::udp(client, HOSTS[1], Duration::from_secs(1), 20, 1000);
    let after = passed();
    let (fused, apart) = (after[0] - before[0], after[1] - before[1]);
    assert!(fused > 1_000 && fused * 10 > udp.sent * 9 && apart < 100, "{udp:?}: {fused} in the loop, {apart} apart");
    drop(servers);
    assert_eq!(routed.hosts.each_ref().map(traffic::checksum_errors), [0, 0]);
    for (words, answer) in [
        (format!("-t 1 {}", HOSTS[1]), "Time to live exceeded"),
        ("9.9.9.9".to_owned(), "Destination Net Unreachable"),
        ("198.51.100.77".to_owned(), "Destination Host Unreachable"),
    ] {
        let said = routed.says(&format!("ping -n -c 1 -W 5 {words}"));
        assert!(said.contains(&format!("From {} ", ROUTER[0])) && said.contains(answer), "ping {words}: {said}");
    }
    // A source that belongs to the other side.
    client.run("ip address add 198.51.100.99/32 dev lo");
    let said = routed.says(&format!("ping -n -c 2 -i 0.1 -W 1 -I 198.51.100.99 {}", HOSTS[1]));
    assert!(said.contains("100% packet loss"), "{said}");
    let counters = running.counters();
    assert!(app(&counters, "sources")["drops"]["rpf_strict"].as_u64() >= Some(2), "{counters:#}");
    assert_eq!(app(&counters, "ip4-forward")["lost"].as_object().map(serde_json::Map::len), Some(0), "{counters:#}");
    routed.stop(running);
}

/// Linux asks who has a neighbour's address with the address that it sends from, of whichever interface that is.
#[test]
fn who_asks_from_a_loopback_is_answered() {
    if is_missing("router::who_asks_from_a_loopback_is_answered", &[]) {
        return;
    }
    const LOOPBACK: &str = "10.255.0.9";
    let routed = Routed::new();
    let running = routed.start(&[]);
    routed.sandbox.bellows(&["route", "add", LOOPBACK, "via", HOSTS[0]]).success();
    let client = &routed.hosts[0];
    client.sh(&format!(
        "ip address add {LOOPBACK}/32 dev lo
         ip neighbour flush dev lan"
    ));
    let said = routed.says(&format!("ping -n -c 1 -W 5 -I {LOOPBACK} {}", ROUTER[0]));
    assert!(said.contains(" 0% packet loss"), "{said}");
    let counters = running.counters();
    assert!(app(&counters, "router/arp")["counters"]["off_link"].as_u64() >= Some(1), "{counters:#}");
    routed.stop(running);
}

#[test]
fn senders_are_told_why_packets_do_not_arrive() {
    if is_missing("router::senders_are_told_why_packets_do_not_arrive", &[]) {
        return;
    }
    let routed = Routed::new();
    let running = routed.start(&["--set", "apps.router.interfaces.right.mtu=1400"]);
    let ping = |words: &str| routed.says(&format!("ping -n -c 1 -W 5 {words}"));
    for (words, router, answer) in [
        (format!("-t 1 {}", HOSTS[1]), ROUTER[0], "Time to live exceeded"),
        ("9.9.9.9".to_owned(), ROUTER[0], "Destination Net Unreachable"),
        ("198.51.100.77".to_owned(), ROUTER[0], "Destination Host Unreachable"),
        (format!("-M do -s 1400 {}", HOSTS[1]), ROUTER[0], "Frag needed and DF set (mtu = 1400)"),
    ] {
        let said = ping(&words);
        assert!(said.contains(&format!("From {router} ")) && said.contains(answer), "ping {words}: {said}");
    }
    // The host has learned the path's MTU, and takes it into account.
    assert!(ping(&format!("-M do -s 1372 {}", HOSTS[1])).contains(" 0% packet loss"));
    let servers = Servers::start(&routed.hosts[1], &routed.sandbox.path(""));
    traffic::tcp(&routed.hosts[0], HOSTS[1], Duration::from_secs(1), StreamDirection::There);
    drop(servers);
    let hop = |ttl: u8| ping(&format!("-t {ttl} {BEHIND}"));
    assert!(hop(1).contains(&format!("From {} ", ROUTER[0])) && hop(2).contains(" 0% packet loss"), "each hop shows");
    let silent = ping("-W 1 198.18.5.5");
    assert!(silent.contains("100% packet loss") && !silent.contains("From"), "a black hole says nothing: {silent}");
    let dropped = app(&running.counters(), "router/ip4-lookup")["drops"]["blackhole"].as_u64();
    assert_eq!(dropped, Some(1));
    routed.stop(running);
}

/// The addresses that a ping lists behind a word, `RR:` or `TS:`, and the number behind each, if there is one.
fn listed(said: &str, word: &str) -> Vec<(String, Option<i64>)> {
    let Some((_, list)) = said.split_once(word) else { panic!("no {word} in {said}") };
    let fields = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let entries = fields.take_while(|fields| fields.first().is_some_and(|first| first.parse::<Ipv4Addr>().is_ok()));
    entries.map(|fields| (fields[0].to_owned(), fields.get(1).and_then(|number| number.parse().ok()))).collect()
}

#[test]
fn pings_record_their_route_and_its_times() {
    let test = "router::pings_record_their_route_and_its_times";
    if is_skipped(test, netns::missing(&["ping"])) {
        return;
    }
    let routed = Routed::new();
    let running = routed.start(&[]);
    let ping = |words: &str| routed.says(&format!("ping -n -c 1 -W 5 {words}"));
    let of_router = |list: &[(String, Option<i64>)]| -> Vec<String> {
        list.iter().map(|(address, _)| address.clone()).filter(|address| ROUTER.contains(&&**address)).collect()
    };
    // Each way by the interface that the packet leaves by.
    let said = ping(&format!("-R {}", HOSTS[1]));
    let route = listed(&said, "RR:");
    assert_eq!(of_router(&route), [ROUTER[1], ROUTER[0]], "{said}");
    let position = |address: &str| route.iter().position(|(other, _)| other == address);
    assert!(position(HOSTS[0]) < position(ROUTER[1]) && position(ROUTER[1]) < position(HOSTS[1]), "{said}");
    // The router itself answers with the address that was asked.
    for address in ROUTER {
        let said = ping(&format!("-R {address}"));
        assert_eq!(of_router(&listed(&said, "RR:")), [address], "{said}");
    }
    // The first time is that of day, the others what has passed since the one before.
    let said = ping(&format!("-T tsandaddr {}", HOSTS[1]));
    let times = listed(&said, "TS:");
    assert_eq!(of_router(&times)[0], ROUTER[1], "{said}");
    let passed = times.iter().skip(1).map(|(_, time)| time.unwrap_or(i64::MAX));
    assert!(times.len() > 2 && passed.into_iter().all(|time| (0..5_000).contains(&time)), "{said}");
    let said = ping(&format!("-T tsonly {}", HOSTS[1]));
    assert!(said.contains(" 0% packet loss") && said.contains("TS:"), "{said}");
    let filled_in = app(&running.counters(), "router/ip4-options")["counters"]["filled_in"].as_u64();
    assert!(filled_in.is_some_and(|count| count >= 6), "{filled_in:?}");
    routed.stop(running);
}

#[test]
fn a_neighbour_that_vanishes_and_returns_with_another_address_is_found_again() {
    if is_missing("router::a_neighbour_that_vanishes_and_returns_with_another_address_is_found_again", &[]) {
        return;
    }
    let routed = Routed::new();
    let running = routed.start(&["--set", "apps.router.parts.arp.reachable=1s"]);
    let server = &routed.hosts[1];
    server.run("ip link set lan down");
    bellows_testkit::eventually("an error for a neighbour that is gone", || {
        routed.says(&format!("ping -n -c 1 -W 5 {}", HOSTS[1])).contains("Destination Host Unreachable")
    });
    server.sh("ip link set lan address 00:00:5e:00:53:0f
               ip link set lan up
               ip route add default via 198.51.100.1");
    traffic::wait_for_answer(&routed.hosts[0], HOSTS[1]);
    routed.stop(running);
}

/// A router on two workers, with two queues of each port: the second worker has the second ones.
const ON_TWO_WORKERS: &str = r#"
links = [
    "left-0.output -> router.left", "router.left -> left-0.input",
    "left-1.output -> router.left-two", "router.left-two -> left-1.input",
    "right-0.output -> router.right", "router.right -> right-0.input",
    "right-1.output -> router.right-two", "router.right-two -> right-1.input",
]

[workers.two]

[apps]
left-0 = { app = "raw-socket", interface = "left", queues = [0], promiscuous = true }
left-1 = { app = "raw-socket", interface = "left", queues = [1], promiscuous = true, worker = "two" }
right-0 = { app = "raw-socket", interface = "right", queues = [0], promiscuous = true }
right-1 = { app = "raw-socket", interface = "right", queues = [1], promiscuous = true, worker = "two" }

[apps.router]
app = "router"
workers = ["two"]
routes = ["203.0.113.0/24 via 198.51.100.2"]

[apps.router.interfaces.left]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
reverse_path = "strict"
access_in = ["deny udp dst port 9", "permit"]

[apps.router.interfaces.right]
mac = "02:00:00:00:00:02"
addresses = ["198.51.100.1/24"]
"#;

/// Each worker forwards its part of the flows; both have one router's neighbours, answers and ICMP errors.
#[test]
fn a_router_forwards_on_two_workers() {
    forward_on_two_workers("router::a_router_forwards_on_two_workers", ON_TWO_WORKERS, ["ip4-rewrite", "ip4-input"]);
}

/// The same without lists and checks, so that packets pass one loop on each worker.
#[test]
fn a_router_forwards_in_a_loop_on_each_worker() {
    let is_check = |line: &&str| line.starts_with("reverse_path") || line.starts_with("access_in");
    let text = ON_TWO_WORKERS.lines().filter(|line| !is_check(line)).collect::<Vec<_>>().join("\n");
    forward_on_two_workers("router::a_router_forwards_in_a_loop_on_each_worker", &text, ["ip4-forward"; 2]);
}

/// Sends all kinds of packets through a router on two workers. `parts` are the parts that see forwarded packets, and
/// those whose time runs out.
fn forward_on_two_workers(test: &str, text: &str, parts: [&str; 2]) {
    if is_missing(test, &["traceroute"]) {
        return;
    }
    let routed = Routed::new();
    routed.sandbox.write("workers.toml", text);
    let running = routed.sandbox.start(&["workers.toml", "--json"]);
    let client = &routed.hosts[0];
    traffic::wait_for_answer(client, HOSTS[1]);
    for address in [HOSTS[1], BEHIND, ROUTER[0], ROUTER[1]] {
        traffic::ping(client, address, 1500);
    }
    write_random(&routed.sandbox, 5 << 20);
    let servers = Servers::start(&routed.hosts[1], &routed.sandbox.path(""));
    let packets = |name: &str| app(&running.counters(), name)["in_packets"].as_u64().unwrap_or_default();
    // Each connection is another flow.
    eventually("packets on both workers", || {
        traffic::fetch(client, HOSTS[1], &routed.sandbox.path(""), FILE);
        ["", "two-"].iter().all(|worker| packets(&format!("router/{worker}{}", parts[0])) > 100)
    });
    for direction in [StreamDirection::There, StreamDirection::Back] {
        traffic::tcp(client, HOSTS[1], Duration::from_secs(1), direction);
    }
    drop(servers);
    // Datagrams of many ports, whose lives end at the router, on whichever worker they come in.
    eventually("ICMP errors about packets of both workers", || {
        let traced = routed.says(&format!("traceroute -n -q 3 -N 16 -m 2 {BEHIND}"));
        assert!(traced.contains(ROUTER[0]), "{traced}");
        packets(&format!("router/two-{}", parts[1])) > 0 && packets("router/ip4-icmp-error") >= 3
    });
    // What is too long for a packet is fragmented by the client, and reassembled by the router for itself.
    let said = client.run(&format!("ping -n -q -c 20 -i 0.01 -W 10 -s 4000 {}", ROUTER[1]));
    assert!(said.contains("20 received"), "{said}");
    let counters = running.counters();
    for part in ["arp", "ip4-local", "ip4-icmp-error"] {
        let names: Vec<&str> =
            counters["apps"].as_array().unwrap().iter().filter_map(|app| app["name"].as_str()).collect();
        let of_part = |name: &&&str| name.strip_prefix("router/").is_some_and(|name| name.ends_with(part));
        assert_eq!(names.iter().filter(of_part).count(), 1, "one for all workers: {names:?}");
    }
    routed.stop(running);
}
