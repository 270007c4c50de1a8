//! A router and two hosts with Linux on one link, a switch:
//!
//! ```text
//!  client lan ──┐
//!  gateway lan ─┼─ switch ─ cable ─ left [ router ]
//! ```
//!
//! The switch forwards frames of a multicast group only to its listeners. The router tells the client that the gateway
//! is the better first hop to what is behind it.

use std::time::{Duration, Instant};

use bellows_testkit::eventually;
use bellows_testkit::netns::traffic;
use bellows_testkit::netns::{self, CableEnd, Host, Lab, connect};

use crate::bridge::{app, counted, is_missing};
use crate::support::{Running, Sandbox, Signal};

/// The router's addresses; those of the gateway on the link, and behind it.
const ROUTER: [&str; 2] = ["192.0.2.1", "2001:db8:1::1"];
const ROUTER_LINK_LOCAL: &str = "fe80::ff:fe00:1";
const GATEWAY: [&str; 2] = ["192.0.2.9", "fe80::200:5eff:fe00:5309"];
const BEHIND: [&str; 2] = ["203.0.113.5", "2001:db8:3::5"];

const NETWORK: &str = r#"
links = ["left.output -> router.left", "router.left -> left.input"]

[apps.router]
app = "router"
routes = ["203.0.113.0/24 via 192.0.2.9", "2001:db8:3::/48 via fe80::200:5eff:fe00:5309 dev left"]

[apps.router.interfaces.left]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24", "2001:db8:1::1/64"]

[apps.left]
app = "raw-socket"
interface = "left"
promiscuous = true
"#;

struct Switched {
    switch: Host,
    client: Host,
    sandbox: Sandbox,
    _gateway: Host,
    _lab: Lab,
}

impl Switched {
    /// The hosts, and a switch with these keys of `ip link set type bridge`.
    fn new(keys: &str) -> Switched {
        let mut lab = Lab::new();
        let middle = lab.silent_host("middle");
        let [switch, client, gateway] = ["switch", "client", "gateway"].map(|name| lab.host(name));
        switch.sh(&format!("ip link add name br0 type bridge\nip link set br0 type bridge {keys}\nip link set br0 up"));
        let at_client =
            CableEnd::new(&client, "lan", "00:00:5e:00:53:02").address("192.0.2.2/24").address("2001:db8:1::2/64");
        let at_gateway =
            CableEnd::new(&gateway, "lan", "00:00:5e:00:53:09").address("192.0.2.9/24").address("2001:db8:1::9/64");
        let at_router = CableEnd::new(&middle, "left", "00:00:5e:00:53:11");
        for (number, end) in [at_client, at_gateway, at_router].into_iter().enumerate() {
            let port = CableEnd::new(&switch, &format!("port{number}"), &format!("00:00:5e:00:53:2{number}"));
            connect([&end, &port], 1500);
            switch.run(&format!("ip link set port{number} master br0"));
        }
        let places = "for place in all lan; do
                          echo 1 >/proc/sys/net/ipv4/conf/$place/accept_redirects
                          echo 1 >/proc/sys/net/ipv6/conf/$place/accept_redirects
                      done";
        client.sh(&format!(
            "{places}
             ip route add default via {}
             ip -6 route add default via {ROUTER_LINK_LOCAL} dev lan",
            ROUTER[0]
        ));
        gateway.sh(&format!("ip address add {}/32 dev lo\nip address add {}/128 dev lo nodad", BEHIND[0], BEHIND[1]));
        let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace(), "env"]);
        Switched { switch, client, sandbox, _gateway: gateway, _lab: lab }
    }

    fn start(&self) -> Running<'_> {
        let file = self.sandbox.write("network.toml", NETWORK);
        self.sandbox.start(&[file.as_str(), "--json"])
    }

    /// Whether the switch knows that a group has a listener at the router's port.
    fn has_listener(&self, group: &str) -> bool {
        let groups = self.switch.run("bridge mdb show dev br0");
        groups.lines().any(|line| line.contains(" port port2 ") && line.contains(&format!(" grp {group} ")))
    }

    #[track_caller]
    fn stop(running: Running<'_>) {
        running.signal(Signal::INT);
        running.wait().success();
    }
}

/// A switch that asks for listeners every two seconds, and forgets those that do not answer, with a version of MLD.
fn snooping(version: u8) -> String {
    format!(
        "mcast_snooping 1 mcast_mld_version {version} mcast_query_interval 200 mcast_query_response_interval 100 \
         mcast_startup_query_interval 100 mcast_membership_interval 500 mcast_querier 1"
    )
}

#[test]
fn a_switch_that_forwards_groups_to_listeners_lets_solicitations_through() {
    let test = "switched::a_switch_that_forwards_groups_to_listeners_lets_solicitations_through";
    if is_missing(test, &["bridge"]) {
        return;
    }
    for version in [1, 2] {
        let switched = Switched::new(&snooping(version));
        let mut running = switched.start();
        let (group, routers) = ("ff02::1:ff00:1", "ff02::2");
        eventually("a listener to the group of the router's address", || switched.has_listener(group));
        eventually("an answer to a query", || {
            counted(&running.counters(), "router/nd", "listener_queries_received") > 1
        });
        // Longer than the switch remembers who does not answer.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(7) {
            assert!(running.is_alive() && switched.has_listener(group) && switched.has_listener(routers), "{version}");
            std::thread::sleep(Duration::from_millis(200));
        }
        let received = || counted(&running.counters(), "router/nd", "solicitations_received");
        // The switch keeps what nobody listens to from the router. Now and then one solicitation passes all the same.
        let strange = || app(&running.counters(), "router/nd")["drops"]["l3_dst_address_not_local"].clone();
        eventually("solicitations that the switch keeps", || {
            let before = strange();
            let silent = netns::run(switched.client.namespace(), "ping -n -q -c 1 -W 2 2001:db8:1::77");
            assert!(silent.is_err());
            strange() == before
        });
        let before = received();
        switched.client.run("ip -6 neigh flush dev lan");
        traffic::wait_for_answer(&switched.client, ROUTER[1]);
        assert!(received() > before, "version {version}");
        Switched::stop(running);
        eventually("no listener after the end", || !switched.has_listener(group));
    }
}

#[test]
fn hosts_are_told_the_better_router_on_their_link() {
    if is_missing("switched::hosts_are_told_the_better_router_on_their_link", &[]) {
        return;
    }
    let switched = Switched::new("mcast_snooping 0");
    let running = switched.start();
    let client = &switched.client;
    ROUTER.into_iter().for_each(|router| traffic::wait_for_answer(client, router));
    for (at, app) in ["router/ip4-icmp-error", "router/ip6-icmp-error"].into_iter().enumerate() {
        let way = || client.run(&format!("ip route get {}", BEHIND[at]));
        let gateway = format!(" via {} ", GATEWAY[at]);
        assert!(!way().contains(&gateway), "{}", way());
        eventually("a redirect", || {
            // The first packets wait for the gateway's address.
            let _ = netns::run(client.namespace(), &format!("ping -n -q -c 2 -i 0.2 -W 1 {}", BEHIND[at]));
            way().contains(&gateway)
        });
        assert!(counted(&running.counters(), app, "redirects_sent") > 0);
    }
    Switched::stop(running);
    // Without the router, what it has told still helps.
    for address in BEHIND {
        client.run(&format!("ping -n -q -c 1 -W 5 {address}"));
    }
}
