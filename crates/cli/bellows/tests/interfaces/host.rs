//! A router with a host behind it, which has the router's addresses on TAP devices: its servers and routing daemons.
//!
//! ```text
//!  client                 middle                 server
//!  lan ─ cable ─ left [ router ] right ─ cable ─ lan
//!                   lan0, wan0
//!                     router
//! ```

use bellows_testkit::eventually;
use bellows_testkit::netns::traffic::{self, Servers};
use bellows_testkit::netns::{self, CableEnd, Host, Lab, connect};
use bellows_testkit::wait::within;
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
            let near = CableEnd::new(&hosts[index], "lan", &format!("00:00:5e:00:53:0{number}"));
            let near = HOSTS[index]
                .iter()
                .zip([24, 64])
                .fold(near, |near, (own, bits)| near.address(&format!("{own}/{bits}")));
            let far = CableEnd::new(&middle, port, &format!("00:00:5e:00:53:1{number}"));
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
                "[apps.router.interfaces.{port}]\nmac = \"02:00:00:00:00:0{number}\"\n\
                 addresses = [\"{v4}/24\", \"{v6}/64\"]\n\
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
        running.wait().success();
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
    let running = hosted.start(
        "[apps.router.parts.ip4-local]\npunt_echo = true\n[apps.router.parts.ip6-local]\npunt_echo = true",
        [""; 2],
    );
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

/// The status of an app.
fn status_of(hosted: &Hosted, name: &str) -> Value {
    let status = hosted.sandbox.bellows(&["show", "status", "--json"]).success().json();
    let apps = status["apps"].as_array().unwrap();
    apps.iter().find(|app| app["app"] == name).unwrap_or_else(|| panic!("no {name} in {status:#}"))["status"].clone()
}

/// The status of the app that follows the kernel's routes.
fn followed(hosted: &Hosted) -> Value {
    status_of(hosted, "router/kernel-routes")
}

#[test]
fn the_kernels_routes_are_followed() {
    if is_missing("host::the_kernels_routes_are_followed", &[]) {
        return;
    }
    let hosted = Hosted::new();
    let [client, server] = &hosted.hosts;
    let keys = "routes = [\"kernel:4711\", \"203.0.113.64/26 via 198.51.100.2\"]";
    let running = hosted.start(keys, [""; 2]);
    // Addresses behind the server, to which the kernel's table alone has routes.
    for address in ["203.0.113.5/32", "203.0.113.65/32", "203.0.113.193/32", "2001:db8:9::5/128"] {
        server.run(&format!("ip address add {address} dev lo"));
    }
    let reaches = |address: &str, wanted: bool| {
        eventually(&format!("{address} reached: {wanted}"), || is_answered(client, address) == wanted);
    };
    let route = |words: &str| hosted.router.run(&format!("ip route {words} table 4711"));
    reaches("203.0.113.65", true);
    assert!(!is_answered(client, "203.0.113.5"));
    route("add 203.0.113.0/24 via 198.51.100.2 metric 20");
    reaches("203.0.113.5", true);
    route("add blackhole 203.0.113.0/24 metric 10");
    reaches("203.0.113.5", false);
    route("replace 203.0.113.0/24 via 198.51.100.2 metric 10");
    reaches("203.0.113.5", true);
    // The first of two routes with one metric counts, and the second one when that is gone.
    route("append unreachable 203.0.113.0/24 metric 10");
    route("del 203.0.113.0/24 via 198.51.100.2 metric 20");
    reaches("203.0.113.5", true);
    route("del 203.0.113.0/24 via 198.51.100.2 metric 10");
    reaches("203.0.113.5", false);
    assert!(netns::run(client.namespace(), "ping -n -c 1 -W 5 203.0.113.5").unwrap_err().contains("Host Unreachable"));
    let ways = "nexthop via 198.51.100.2 weight 3 nexthop via 198.51.100.2 dev wan0";
    hosted.router.run(&format!("ip route replace 203.0.113.0/24 table 4711 metric 10 {ways}"));
    reaches("203.0.113.5", true);
    hosted.router.run("ip -6 route add 2001:db8:9::/48 via 2001:db8:2::2 table 4711");
    reaches("2001:db8:9::5", true);
    // What cannot be followed is counted.
    route("add 203.0.113.128/26 dev lo");
    route("add 240.1.0.0/16 via 198.51.100.2");
    route("add 203.0.113.64/26 via 198.51.100.2");
    eventually("routes that are ignored for their reasons", || {
        let ignored = &followed(&hosted)["ignored"];
        ["other_device", "reserved", "static_route"].iter().all(|reason| ignored[reason] == 1)
    });
    // An IPv4 route to an IPv6 next hop, which answers by neighbour discovery (RFC 8950).
    let found = server.run("ip -6 -o address show dev lan scope link");
    let link_local = found.split_whitespace().find(|word| word.starts_with("fe80:")).unwrap();
    let link_local = link_local.split('/').next().unwrap();
    route("add blackhole 203.0.113.192/26 metric 5");
    reaches("203.0.113.193", false);
    route(&format!("add 203.0.113.192/26 via inet6 {link_local} dev wan0"));
    reaches("203.0.113.193", true);
    let bellows = |words: &str| hosted.sandbox.bellows(&words.split_whitespace().collect::<Vec<_>>());
    let shown = bellows("route show 203.0.113.192/26 proto kernel -j").success().json();
    let via = serde_json::json!({ "family": "inet6", "host": link_local });
    assert_eq!((&shown["routes"][0]["via"], &shown["routes"][0]["dev"]), (&via, &Value::from("right")), "{shown:#}");
    let found = bellows("route lookup 203.0.113.193 -j").success().json();
    assert_eq!((&found["ways"][0]["neighbour"], &found["ways"][0]["kind"]), (&link_local.into(), &"complete".into()));
    route(&format!("del 203.0.113.192/26 via inet6 {link_local} dev wan0"));
    reaches("203.0.113.193", false);
    route("del blackhole 203.0.113.192/26 metric 5");
    bellows(&format!("route add 203.0.113.192/27 via inet6 {link_local} dev right")).success();
    reaches("203.0.113.193", true);
    // A sender gets an error if such a next hop does not answer.
    bellows("route replace 203.0.113.192/27 via inet6 fe80::dead dev right").success();
    let said = netns::run(client.namespace(), "ping -n -c 1 -W 8 203.0.113.193").unwrap_err();
    assert!(said.contains("Destination Host Unreachable"), "{said}");
    // Neighbours that Linux has for good are permanent here, too.
    let neighbour = |words: &str| hosted.router.run(&format!("ip neighbour {words} dev wan0"));
    neighbour("add 198.51.100.77 lladdr 04:00:00:00:00:77 nud permanent");
    neighbour("add 198.51.100.78 lladdr 01:00:00:00:00:78 nud permanent");
    let line = "198.51.100.77 dev right lladdr 04:00:00:00:00:77 PERMANENT proto kernel\n";
    eventually("a neighbour of Linux", || bellows("neighbour show 198.51.100.77").success().stdout == line);
    eventually("one that no station can be", || followed(&hosted)["ignored"]["neighbours"] == 1);
    assert!(bellows("neighbour del 198.51.100.77").stderr.contains("comes from Linux: remove it there"));
    neighbour("del 198.51.100.77");
    eventually("no such neighbour", || bellows("neighbour show 198.51.100.77").success().stdout.is_empty());
    // The kernel removes the routes of a device that is down, and says so of some.
    hosted.router.run("ip link set wan0 down");
    eventually("no routes", || followed(&hosted)["followed"] == serde_json::json!({ "ipv4": 0, "ipv6": 0 }));
    hosted.router.run("ip link set wan0 up");
    hosted.stop(running);
}

#[test]
fn routes_by_next_hop_objects_are_followed_and_show_their_protocols() {
    if is_missing("host::routes_by_next_hop_objects_are_followed_and_show_their_protocols", &[]) {
        return;
    }
    let hosted = Hosted::new();
    let [client, server] = &hosted.hosts;
    let running = hosted.start("routes = \"kernel:4711\"", [""; 2]);
    for address in ["203.0.113.5/32", "2001:db8:9::5/128"] {
        server.run(&format!("ip address add {address} dev lo"));
    }
    let ip = |words: &str| hosted.router.run(&format!("ip {words}"));
    let bellows = |words: &str| hosted.sandbox.bellows(&words.split_whitespace().collect::<Vec<_>>()).success();
    let shows = |wanted: &str| eventually(wanted, || bellows("route").stdout == wanted);
    let nothing = bellows("route");
    assert!(nothing.stderr.contains("`bellows route show proto all` prints the"), "{nothing:#?}");
    ip("nexthop add id 1 via 198.51.100.2 dev wan0");
    ip("route add 203.0.113.0/24 nhid 1 table 4711 proto ospf");
    shows("203.0.113.0/24 via 198.51.100.2 dev right proto ospf origin kernel\n");
    eventually("an answer", || is_answered(client, "203.0.113.5"));
    let route = bellows("route show proto ospf -j").json()["routes"][0].take();
    assert_eq!((&route["protocol"], &route["origin"]), (&"ospf".into(), &"kernel".into()), "{route:#}");
    assert_eq!(bellows("route show proto bgp").stdout, "");
    assert!(bellows("route get 203.0.113.5").stdout.contains("dev right proto ospf origin kernel\n"));
    // Linux tells what an object that changes does to the routes, and not that those of one that is deleted are gone.
    ip("nexthop replace id 1 via 198.51.100.77 dev wan0");
    shows("203.0.113.0/24 via 198.51.100.77 dev right proto ospf origin kernel\n");
    ip("nexthop del id 1");
    shows("");
    // Nor what becomes of the routes to a group that loses a member.
    ip("nexthop add id 1 via 198.51.100.77 dev wan0");
    ip("nexthop add id 2 via 198.51.100.2 dev wan0");
    ip("nexthop add id 3 group 1/2,2");
    ip("route add 203.0.113.0/24 nhid 3 table 4711 proto 251");
    shows(
        "203.0.113.0/24 nexthop via 198.51.100.2 dev right weight 2 nexthop via 198.51.100.77 dev right weight 1 \
         proto 251 origin kernel\n",
    );
    ip("nexthop del id 1");
    shows("203.0.113.0/24 via 198.51.100.2 dev right proto 251 origin kernel\n");
    eventually("an answer again", || is_answered(client, "203.0.113.5"));
    ip("nexthop replace id 3 group 2");
    ip("nexthop del id 2");
    shows("");
    ip("nexthop add id 6 via 2001:db8:2::2 dev wan0");
    ip("-6 route add 2001:db8:9::/48 nhid 6 table 4711 proto bgp");
    shows("2001:db8:9::/48 via 2001:db8:2::2 dev right metric 1024 proto bgp origin kernel\n");
    eventually("an answer by IPv6", || is_answered(client, "2001:db8:9::5"));
    ip("nexthop del id 6");
    shows("");
    // Objects that no route leads to have nothing read.
    let readings = || followed(&hosted)["readings"].as_u64().unwrap();
    let before = readings();
    ip("nexthop add id 8 via 198.51.100.2 dev wan0");
    ip("nexthop del id 8");
    ip("route add blackhole 203.0.113.0/24 table 4711");
    shows("blackhole 203.0.113.0/24 proto boot origin kernel\n");
    assert_eq!(readings(), before);
    hosted.stop(running);
}

/// What a ping without fragmentation says of an MTU on its way, after the sender has forgotten what it knew.
fn told_mtu(client: &Host, address: &str, size: usize) -> String {
    client.run("ip route flush cache");
    client.run("ip -6 route flush cache");
    let headers = if address.contains(':') { 48 } else { 28 };
    let ping = format!("ping -n -c 1 -W 2 -M do -s {} {address}", size - headers);
    netns::run(client.namespace(), &ping).map_or_else(|said| said, |_| "an answer".to_owned())
}

#[test]
fn the_mtu_of_a_route_is_kept_to_as_linux_does() {
    if is_missing("host::the_mtu_of_a_route_is_kept_to_as_linux_does", &[]) {
        return;
    }
    let hosted = Hosted::new();
    let [client, server] = &hosted.hosts;
    let running = hosted.start("routes = [\"kernel:4711\", \"203.0.113.64/26 via 198.51.100.2 mtu 1350\"]", [""; 2]);
    for address in ["203.0.113.5/32", "203.0.113.65/32", "2001:db8:9::5/128"] {
        server.run(&format!("ip address add {address} dev lo"));
    }
    let ip = |words: &str| hosted.router.run(&format!("ip {words} table 4711"));
    let tells = |address: &str, size: usize, wanted: &str| {
        eventually(&format!("{wanted} of {size} bytes to {address}"), || {
            told_mtu(client, address, size).contains(wanted)
        });
    };
    ip("route add 203.0.113.0/26 via 198.51.100.2 mtu 1400");
    tells("203.0.113.5", 1401, "Frag needed and DF set (mtu = 1400)");
    tells("203.0.113.5", 1400, "an answer");
    let bellows = |words: &str| hosted.sandbox.bellows(&words.split_whitespace().collect::<Vec<_>>()).success();
    let shown = bellows("route show exact 203.0.113.0/26");
    assert_eq!(shown.stdout, "203.0.113.0/26 via 198.51.100.2 dev right mtu 1400 proto boot origin kernel\n");
    let route = bellows("route show exact 203.0.113.0/26 -j").json()["routes"][0].take();
    assert_eq!(route["metrics"], serde_json::json!([{ "mtu": 1400 }]), "{route:#}");
    // Packets that may be are fragmented.
    let before = count(&running.counters(), "router/ip4-fragment", "frag_oks");
    client.run("ping -n -c 1 -W 5 -M dont -s 1472 203.0.113.5");
    assert_eq!(count(&running.counters(), "router/ip4-fragment", "frag_oks"), before + 1);
    ip("route replace 203.0.113.0/26 via 198.51.100.2 mtu lock 1300");
    tells("203.0.113.5", 1400, "Frag needed and DF set (mtu = 1300)");
    ip("route replace 203.0.113.0/26 via 198.51.100.2");
    tells("203.0.113.5", 1500, "an answer");
    tells("203.0.113.65", 1400, "Frag needed and DF set (mtu = 1350)");
    bellows("route replace 203.0.113.64/26 via 198.51.100.2");
    tells("203.0.113.65", 1500, "an answer");
    ip("-6 route add 2001:db8:9::/48 via 2001:db8:2::2 mtu 1400");
    tells("2001:db8:9::5", 1401, "Packet too big: mtu=1400");
    tells("2001:db8:9::5", 1400, "an answer");
    // No link of IPv6 has less than 1,280 bytes.
    ip("-6 route replace 2001:db8:9::/48 via 2001:db8:2::2 mtu 1000");
    tells("2001:db8:9::5", 1400, "Packet too big: mtu=1280");
    hosted.stop(running);
}

#[test]
fn a_flood_of_routes_is_followed_while_packets_flow() {
    if is_missing("host::a_flood_of_routes_is_followed_while_packets_flow", &[]) {
        return;
    }
    let routes = bellows_testkit::soak::routes();
    let hosted = Hosted::new();
    let running = hosted.start("routes = \"kernel:4711\"", [""; 2]);
    let prefix = |number: u32| format!("{}.{}.{}.0/24", 20 + (number >> 16), number >> 8 & 0xff, number & 0xff);
    let batch = |word: &str, numbers: std::ops::Range<u32>| {
        let lines: String =
            numbers.map(|number| format!("route {word} {} via 198.51.100.2 table 4711\n", prefix(number))).collect();
        let file = hosted.sandbox.write("batch", &lines);
        hosted.router.run(&format!("ip -batch {file}"));
    };
    let count = || followed(&hosted)["followed"]["ipv4"].as_u64().unwrap();
    let client = &hosted.hosts[0];
    traffic::wait_for_answer(client, HOSTS[1][0]);
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| client.run(&format!("ping -n -q -i 0.01 -c 300 {}", HOSTS[1][0])));
        batch("add", 0..routes);
        within(crate::routes::PATIENCE, "all routes", || count() == u64::from(routes));
        batch("del", 100..routes);
        within(crate::routes::PATIENCE, "the routes that are left", || count() == 100);
        let said = pings.join().unwrap();
        assert!(said.contains(" 0% packet loss"), "{said}");
    });
    let status = followed(&hosted);
    assert_eq!((&status["error"], &status["ignored"]), (&Value::Null, &serde_json::json!({})), "{status:#}");
    hosted.stop(running);
}

#[test]
fn a_reload_keeps_the_kernels_routes() {
    if is_missing("host::a_reload_keeps_the_kernels_routes", &[]) {
        return;
    }
    let hosted = Hosted::new();
    let running = hosted.start("routes = \"kernel:4711\"", [""; 2]);
    let [client, server] = &hosted.hosts;
    server.run("ip address add 203.0.113.5/32 dev lo");
    hosted.router.run("ip route add 203.0.113.0/24 via 198.51.100.2 table 4711");
    eventually("an answer", || is_answered(client, "203.0.113.5"));
    let readings = || followed(&hosted)["readings"].as_u64().unwrap();
    let before = readings();
    // One that changes another app, and one that changes the routing domain.
    let more = "[apps.router.interfaces.more]\nmac = \"02:00:00:00:00:09\"\nport = \"left\"\nvlan = 9";
    for (keys, again) in [("[apps.router.parts.punt]\nrate = 5000", false), (more, true)] {
        hosted.write(&format!("routes = \"kernel:4711\"\n{keys}"), [""; 2]);
        hosted.sandbox.bellows(&["reload"]).success();
        assert!(again || readings() == before, "the thread stays");
        eventually("an answer after the reload", || is_answered(client, "203.0.113.5"));
    }
    hosted.stop(running);
}

#[test]
fn spoofed_sources_are_dropped() {
    if is_missing("host::spoofed_sources_are_dropped", &[]) {
        return;
    }
    let hosted = Hosted::new();
    let [client, _] = &hosted.hosts;
    // The second source has a route through the other interface, the third one none.
    client.sh("for address in 203.0.113.77 10.9.9.9; do ip address add $address/32 dev lo; done");
    let keys = "routes = [\"203.0.113.0/24 via 198.51.100.2\"]";
    for (mode, counter, dropped) in [("strict", "rpf_strict", 2), ("loose", "rpf_loose", 1)] {
        let running = hosted.start(keys, [&format!("reverse_path = \"{mode}\""), ""]);
        let server = HOSTS[1][0];
        assert!(is_answered(client, server), "the client's own address has a route");
        let before = count(&running.counters(), "router/ip4-reverse-path", counter);
        for source in ["203.0.113.77", "10.9.9.9"] {
            assert!(!is_answered(client, &format!("-I {source} {server}")));
        }
        let counters = running.counters();
        assert_eq!(count(&counters, "router/ip4-reverse-path", counter) - before, dropped, "{mode}: {counters:#}");
        assert!(is_answered(client, HOSTS[1][1]), "the other family");
        hosted.stop(running);
    }
}

#[test]
fn an_access_list_permits_denies_and_rejects() {
    if is_missing("host::an_access_list_permits_denies_and_rejects", &[]) {
        return;
    }
    let hosted = Hosted::new();
    let access_in = r#"access_in = [
        "reject icmp and dst host 198.51.100.2", "permit icmp or icmp6", "permit tcp dst port 5201"]"#;
    let running = hosted.start("", [access_in, "access_out = [\"deny icmp6\", \"permit\"]"]);
    let [client, server] = &hosted.hosts;
    let said = netns::run(client.namespace(), &format!("ping -n -c 1 -W 5 {}", HOSTS[1][0])).unwrap_err();
    assert!(said.contains("Packet filtered"), "{said}");
    // Its IPv6 address is in use when nobody else has claimed it.
    ROUTER[0].into_iter().for_each(|router| traffic::wait_for_answer(client, router));
    assert!(!is_answered(client, HOSTS[1][1]), "denied on its way out");
    let servers = Servers::start(server, &hosted.sandbox.path(""));
    traffic::tcp(client, HOSTS[1][0], std::time::Duration::from_secs(1), traffic::StreamDirection::There);
    let fetched = netns::run(client.namespace(), &format!("curl -s -m 1 {}", traffic::url(HOSTS[1][0], FILE)));
    assert!(fetched.is_err(), "another port");
    drop(servers);
    let rules = &status_of(&hosted, "router/ip4-access-in")["lists"][0]["rules"];
    let packets = |rule: usize| rules[rule]["packets"].as_u64().unwrap();
    assert!(packets(1) == 1 && packets(3) > 10 && packets(4) >= 1, "{rules:#}");
    hosted.stop(running);
}

/// A configuration of bird that advertises the host as a router on an interface.
fn advertising(number: u8, interface: &str) -> String {
    let radv = format!("protocol radv {{ interface \"{interface}\" {{ max ra interval 4; min ra interval 3; }}; }}\n");
    bird(number, &radv)
}

#[test]
fn routers_beyond_the_router_and_its_host_hear_each_other() {
    if is_missing("host::routers_beyond_the_router_and_its_host_hear_each_other", &["bird"]) {
        return;
    }
    let hosted = Hosted::new();
    let [client, _] = &hosted.hosts;
    let running = hosted.start("", [""; 2]);
    let setting = |name: &str| hosted.router.run(&format!("cat /proc/sys/net/ipv6/conf/lan0/{name}")).trim().to_owned();
    assert_eq!((setting("accept_ra"), setting("forwarding")), ("0".to_owned(), "0".to_owned()));
    // Advertisements and solicitations of a neighbour reach the host's programs, and its kernel does nothing by them.
    let heard = |kind: u8, host: &Host, interface: &str| {
        let filter = format!("icmp6 and ip6[40] == {kind}");
        let command = format!("timeout 30 tcpdump -i {interface} -Q in -n -c 1 --immediate-mode '{filter}'");
        host.sh(&command)
    };
    let configured = hosted.router.run("ip -6 address show dev lan0 scope global");
    let start = |host: &Host, name: &str, text: &str| {
        let file = hosted.sandbox.write(&format!("{name}.conf"), text);
        host.start(&format!("bird -f -c {file} -s {}", hosted.sandbox.path(&format!("{name}.ctl")).display()))
    };
    let near = start(client, "near", &advertising(2, "lan"));
    heard(134, &hosted.router, "lan0");
    let solicit =
        "echo 1 >/proc/sys/net/ipv6/conf/lan/accept_ra; echo 9 >/proc/sys/net/ipv6/conf/lan/router_solicitations
         ip link set lan down; ip link set lan up";
    client.sh(solicit);
    heard(133, &hosted.router, "lan0");
    assert_eq!(hosted.router.run("ip -6 route show proto ra"), "");
    assert_eq!(hosted.router.run("ip -6 address show dev lan0 scope global"), configured);
    drop(near);
    // Those of the host reach the neighbour, which obeys them.
    let far = start(&hosted.router, "far", &advertising(1, "lan0"));
    let route = || client.run("ip -6 route show default proto ra");
    eventually("a default route", || route().contains("via fe80::ff:fe00:1 dev lan"));
    drop(far);
    hosted.stop(running);
}

/// A configuration of bird: who it is, and further protocols.
fn bird(number: u8, more: &str) -> String {
    format!("router id 192.0.2.{number};\nprotocol device {{ scan time 1; }}\n{more}")
}

/// A family as bird and a test of it name it: the channel, the prefix of the announced route, and an address in it.
struct Announced {
    family: usize,
    channel: &'static str,
    prefix: &'static str,
    address: &'static str,
}

/// Has the router's host learn a route from the server by BGP over a family, lose it, and learn it again.
fn learn_by_bgp(announced: &Announced) {
    let &Announced { family, channel, prefix, address } = announced;
    let hosted = Hosted::new();
    let running = hosted.start("routes = \"kernel:main\"", [""; 2]);
    let [client, server] = &hosted.hosts;
    server.run(&format!("ip address add {address} dev lo"));
    // The server's daemon announces what is behind it, and the router's puts that into the kernel's table.
    let bgp = |local: u32, neighbour: &str, remote: u32, filters: &str| {
        format!(
            "protocol bgp {{ local as {local}; neighbor {neighbour} as {remote}; hold time 9; connect delay time 1; \
             connect retry time 1; error wait time 1, 2; {channel} {{ {filters} }}; }}\n"
        )
    };
    let of_router = bgp(64500, HOSTS[1][family], 64501, "import all; export none;")
        + &format!("protocol kernel {{ {channel} {{ import none; export where source = RTS_BGP; }}; }}\n");
    let route = format!("protocol static {{ {channel}; route {prefix} unreachable; }}\n");
    let of_server = bgp(64501, ROUTER[1][family], 64500, "import none; export where source = RTS_STATIC;");
    let start = |host: &Host, name: &str, text: &str| {
        let file = hosted.sandbox.write(&format!("{name}.conf"), text);
        let socket = hosted.sandbox.path(&format!("{name}.ctl"));
        host.start(&format!("bird -f -c {file} -s {}", socket.display()))
    };
    let _router = start(&hosted.router, "router", &bird(1, &of_router));
    let peer = start(server, "peer", &bird(2, &format!("{of_server}{route}")));
    let ip = ["ip -4", "ip -6"][family];
    let has_route = || hosted.router.run(&format!("{ip} route show {prefix}")).contains("proto bird");
    let reaches = |what: &str, wanted: bool| {
        eventually(what, || has_route() == wanted && is_answered(client, address) == wanted);
    };
    reaches("a route by BGP", true);
    // The peer withdraws the route.
    hosted.sandbox.write("peer.conf", &bird(2, &of_server));
    let socket = hosted.sandbox.path("peer.ctl");
    server.run(&format!("birdc -s {} configure", socket.display()));
    reaches("a withdrawn route", false);
    // The peer restarts.
    drop(peer);
    let _peer = start(server, "peer", &bird(2, &format!("{of_server}{route}")));
    reaches("a route after a restart", true);
    hosted.stop(running);
}

#[test]
fn a_routing_daemon_speaks_bgp_through_the_router() {
    if is_missing("host::a_routing_daemon_speaks_bgp_through_the_router", &["bird", "birdc"]) {
        return;
    }
    learn_by_bgp(&Announced { family: 0, channel: "ipv4", prefix: "203.0.113.0/24", address: "203.0.113.5" });
}

#[test]
fn a_routing_daemon_speaks_bgp_over_ipv6_through_the_router() {
    if is_missing("host::a_routing_daemon_speaks_bgp_over_ipv6_through_the_router", &["bird", "birdc"]) {
        return;
    }
    learn_by_bgp(&Announced { family: 1, channel: "ipv6", prefix: "2001:db8:9::/48", address: "2001:db8:9::5" });
}
