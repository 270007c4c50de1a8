//! A router for IPv6 between two hosts with Linux: neighbour discovery, router advertisements, duplicate addresses.

use std::time::{Duration, Instant};

use bellows_testkit::eventually;
use bellows_testkit::netns::traffic::{self, Servers, StreamDirection};
use bellows_testkit::netns::{self, CableEnd, Host, Lab, connect};
use bellows_testkit::wait::within;

use crate::bridge::{FILE, app, counted, is_missing, write_random};
use crate::support::{Running, Sandbox, Signal};

/// The hosts' own addresses, and those of the router on their links.
const HOSTS: [&str; 2] = ["2001:db8:1::2", "2001:db8:2::2"];
const ROUTER: [&str; 2] = ["2001:db8:1::1", "2001:db8:2::1"];

/// The router's link-local addresses, which its Ethernet addresses stand for.
const LINK_LOCAL: [&str; 2] = ["fe80::ff:fe00:1", "fe80::ff:fe00:2"];

const NETWORK: &str = r#"
links = [
  "left.output -> router.left", "router.left -> left.input",
  "right.output -> router.right", "router.right -> right.input",
]

[apps.router]
app = "router"
routes = ["2001:db8:3::/48 via 2001:db8:2::2"]

[apps.router.interfaces.left]
mac = "02:00:00:00:00:01"
addresses = ["2001:db8:1::1/64"]

[apps.router.interfaces.right]
mac = "02:00:00:00:00:02"
addresses = ["2001:db8:2::1/64"]
advertise = { interval = "4s" }

[apps.left]
app = "raw-socket"
interface = "left"
promiscuous = true

[apps.right]
app = "raw-socket"
interface = "right"
promiscuous = true
"#;

struct Routed {
    hosts: [Host; 2],
    sandbox: Sandbox,
    _lab: Lab,
}

impl Routed {
    /// Hosts with addresses, unless the second one has to find its own.
    fn new(second: &[&str]) -> Routed {
        let mut lab = Lab::new();
        let middle = lab.silent_host("middle");
        let hosts = ["client", "server"].map(|name| lab.host(name));
        for (index, port) in ["left", "right"].into_iter().enumerate() {
            let number = index + 1;
            let mut near = CableEnd::new(&hosts[index], "lan", &format!("00:00:5e:00:53:0{number}"));
            let addresses = if index == 0 { &["2001:db8:1::2/64"][..] } else { second };
            for address in addresses {
                near = near.address(address);
            }
            let far = CableEnd::new(&middle, port, &format!("00:00:5e:00:53:1{number}"));
            connect([&near, &far], 1500);
        }
        hosts[0].run(&format!("ip route add default via {}", ROUTER[0]));
        if !second.is_empty() {
            hosts[1].run(&format!("ip route add default via {} dev lan", LINK_LOCAL[1]));
        }
        let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace(), "env"]);
        Routed { hosts, sandbox, _lab: lab }
    }

    fn with_addresses() -> Routed {
        let routed = Routed::new(&["2001:db8:2::2/64"]);
        routed.hosts[1].run("ip address add 2001:db8:3::5/128 dev lo nodad");
        routed
    }

    fn start(&self, more: &[&str]) -> Running<'_> {
        let file = self.sandbox.write("network.toml", NETWORK);
        let running = self.sandbox.start(&[&[file.as_str(), "--json"], more].concat());
        traffic::wait_for_answer(&self.hosts[0], ROUTER[0]);
        running
    }

    /// What a ping of the client says, whether or not it succeeds.
    fn ping(&self, words: &str) -> String {
        match netns::run(self.hosts[0].namespace(), &format!("ping -n -c 1 -W 5 {words}")) {
            Ok(said) | Err(said) => said,
        }
    }

    #[track_caller]
    fn stop(&self, running: Running<'_>) {
        running.signal(Signal::INT);
        running.wait().success();
    }
}

#[test]
fn hosts_behind_a_router_reach_one_another() {
    if is_missing("router6::hosts_behind_a_router_reach_one_another", &[]) {
        return;
    }
    let routed = Routed::with_addresses();
    let running = routed.start(&[]);
    let client = &routed.hosts[0];
    traffic::wait_for_answer(client, HOSTS[1]);
    let link_local = format!("{}%lan", LINK_LOCAL[0]);
    for address in [HOSTS[1], "2001:db8:3::5", ROUTER[0], ROUTER[1], &link_local] {
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
    let lost = app(&counters, "router/ip6-rewrite")["lost"].as_object().map(serde_json::Map::len);
    assert_eq!(lost, Some(0), "{counters:#}");
    routed.stop(running);
}

#[test]
fn senders_are_told_why_packets_do_not_arrive() {
    if is_missing("router6::senders_are_told_why_packets_do_not_arrive", &[]) {
        return;
    }
    let routed = Routed::with_addresses();
    let running = routed.start(&["--set", "apps.router.interfaces.right.mtu=1400"]);
    traffic::wait_for_answer(&routed.hosts[0], HOSTS[1]);
    for (words, answer) in [
        (format!("-t 1 {}", HOSTS[1]), "Time exceeded: Hop limit"),
        ("2001:db8:99::9".to_owned(), "Destination unreachable: No route"),
        ("2001:db8:2::77".to_owned(), "Destination unreachable: Address unreachable"),
        (format!("-M do -s 1400 {}", HOSTS[1]), "Packet too big: mtu=1400"),
    ] {
        let said = routed.ping(&words);
        assert!(said.contains(&format!("From {} ", ROUTER[0])) && said.contains(answer), "ping {words}: {said}");
    }
    // The host has learned the path's MTU, and takes it into account.
    assert!(routed.ping(&format!("-M do -s 1352 {}", HOSTS[1])).contains(" 0% packet loss"));
    let servers = Servers::start(&routed.hosts[1], &routed.sandbox.path(""));
    traffic::tcp(&routed.hosts[0], HOSTS[1], Duration::from_secs(1), StreamDirection::There);
    drop(servers);
    let hop = |limit: u8| routed.ping(&format!("-t {limit} 2001:db8:3::5"));
    assert!(hop(1).contains(&format!("From {} ", ROUTER[0])) && hop(2).contains(" 0% packet loss"), "each hop shows");
    // What comes from a link-local address stays on its link.
    let own = routed.hosts[0].run("ip -6 -o address show dev lan scope link");
    let own = own.split_whitespace().nth(3).and_then(|own| own.split('/').next()).unwrap().to_owned();
    let said = routed.ping(&format!("-I {own}%lan {}", HOSTS[1]));
    let from = format!("From {}", LINK_LOCAL[0]);
    assert!(said.contains(&from) && said.contains("Destination unreachable: Beyond scope of source address"), "{said}");
    // But the router itself answers there, also at its other addresses.
    assert!(routed.ping(&format!("-I {own}%lan {}", ROUTER[0])).contains(" 0% packet loss"));
    routed.stop(running);
}

#[test]
fn a_neighbour_that_vanishes_and_returns_with_another_address_is_found_again() {
    if is_missing("router6::a_neighbour_that_vanishes_and_returns_with_another_address_is_found_again", &[]) {
        return;
    }
    let routed = Routed::with_addresses();
    let running = routed.start(&["--set", "apps.router.parts.nd.reachable=1s"]);
    let server = &routed.hosts[1];
    traffic::wait_for_answer(&routed.hosts[0], HOSTS[1]);
    server.run("ip link set lan down");
    eventually("an error for a neighbour that is gone", || {
        routed.ping(HOSTS[1]).contains("Destination unreachable: Address unreachable")
    });
    server.sh(&format!(
        "ip link set lan address 00:00:5e:00:53:0f
         ip link set lan up
         ip address replace {}/64 dev lan nodad
         ip route replace default via {} dev lan",
        HOSTS[1], LINK_LOCAL[1]
    ));
    traffic::wait_for_answer(&routed.hosts[0], HOSTS[1]);
    routed.stop(running);
}

/// The address that the second host gives itself, by its Ethernet address.
const CONFIGURED: &str = "2001:db8:2:0:200:5eff:fe00:5302";

/// Has a host configure itself, and waits until it has.
fn configure_itself(host: &Host) {
    host.sh("echo 1 >/proc/sys/net/ipv6/conf/lan/accept_ra
             echo 1 >/proc/sys/net/ipv6/conf/lan/autoconf
             echo 3 >/proc/sys/net/ipv6/conf/lan/router_solicitations
             ip link set lan down
             ip link set lan up");
    eventually("an address of the advertised prefix", || {
        host.run("ip -6 address show dev lan scope global").contains(CONFIGURED)
    });
}

#[test]
fn a_host_configures_itself_and_loses_its_router() {
    if is_missing("router6::a_host_configures_itself_and_loses_its_router", &[]) {
        return;
    }
    let routed = Routed::new(&[]);
    let running = routed.start(&[]);
    let host = &routed.hosts[1];
    configure_itself(host);
    let address = CONFIGURED;
    let default = || host.run("ip -6 route show default");
    let route = default();
    assert!(route.contains(&format!("via {} dev lan proto ra", LINK_LOCAL[1])), "{route}");
    traffic::wait_for_answer(&routed.hosts[0], address);
    traffic::ping(&routed.hosts[0], address, 1500);
    assert!(counted(&running.counters(), "router/nd", "router_advertisements_sent") > 0);
    routed.stop(running);
    eventually("no default route", || default().is_empty());
    assert!(host.run("ip -6 address show dev lan scope global").contains(address), "its address holds on");
}

#[test]
fn a_host_gives_up_a_router_that_was_killed_after_its_lifetime() {
    if is_missing("router6::a_host_gives_up_a_router_that_was_killed_after_its_lifetime", &[]) {
        return;
    }
    /// Seconds: longer than the interval of the advertisements, and much shorter than what follows from it.
    const LIFETIME: u64 = 5;
    let routed = Routed::new(&[]);
    let running = routed.start(&["--set", &format!("apps.router.interfaces.right.advertise.lifetime={LIFETIME}s")]);
    let host = &routed.hosts[1];
    configure_itself(host);
    traffic::wait_for_answer(&routed.hosts[0], CONFIGURED);
    let has_router = || netns::run(host.namespace(), &format!("ip -6 route get {}", HOSTS[0])).is_ok();
    // Each advertisement renews the lifetime.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2 * LIFETIME) {
        assert!(has_router(), "after {:?}", start.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    running.signal(Signal::KILL);
    running.wait();
    assert!(has_router(), "nobody has told it");
    within(Duration::from_secs(2 * LIFETIME), "no default router", || !has_router());
    assert!(host.run("ip -6 address show dev lan scope global").contains(CONFIGURED), "its address holds on");
}

#[test]
fn duplicate_addresses_are_found_on_both_sides() {
    if is_missing("router6::duplicate_addresses_are_found_on_both_sides", &[]) {
        return;
    }
    // The second host has the router's address already.
    let routed = Routed::new(&["2001:db8:2::1/64"]);
    let mut running = routed.start(&[]);
    running.wait_for_log("has the address 2001:db8:2::1 of the interface `right`");
    assert_eq!(counted(&running.counters(), "router/nd", "duplicate_addresses"), 1);
    let status = routed.sandbox.bellows(&["show", "status", &running.name, "--json"]).success().stdout;
    assert!(status.contains(r#""duplicate_addresses""#) && status.contains("2001:db8:2::1"), "{status}");
    // The address is the host's: packets go there.
    traffic::wait_for_answer(&routed.hosts[0], ROUTER[1]);
    // The first host wants the router's address on its own link.
    let host = &routed.hosts[0];
    host.sh(&format!(
        "echo 1 >/proc/sys/net/ipv6/conf/all/accept_dad
         echo 1 >/proc/sys/net/ipv6/conf/lan/accept_dad
         echo 1 >/proc/sys/net/ipv6/conf/lan/dad_transmits
         ip address add {}/64 dev lan",
        ROUTER[0]
    ));
    eventually("a duplicate that the host has found", || {
        host.run("ip -6 address show dev lan dadfailed").contains(ROUTER[0])
    });
    routed.stop(running);
}
