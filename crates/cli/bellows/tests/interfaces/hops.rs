//! Two routers in a row, each a process of its own, as `traceroute` sees them.
//!
//! ```text
//!  client          first                     second           server
//!  lan ─ cable ─ left [ router ] right ─ left [ router ] right ─ lan
//! ```

use bellows_testkit::netns::traffic;
use bellows_testkit::netns::{CableEnd, Lab, connect};

use crate::bridge::is_missing;
use crate::support::{Running, Sandbox, Signal};

/// The addresses on the links, from the client to the server: of the left end, and of the right one.
const LINKS: [[[&str; 2]; 2]; 3] = [
    [["192.0.2.2", "2001:db8:1::2"], ["192.0.2.1", "2001:db8:1::1"]],
    [["198.18.0.1", "2001:db8:12::1"], ["198.18.0.2", "2001:db8:12::2"]],
    [["198.51.100.1", "2001:db8:2::1"], ["198.51.100.2", "2001:db8:2::2"]],
];

/// Bits of the prefixes of both families.
const BITS: [u8; 2] = [24, 64];

/// A router between two links, with a route for each family, and its Ethernet addresses.
fn network(left: [&str; 2], right: [&str; 2], routes: &str, number: u8) -> String {
    let interface = |name: &str, [v4, v6]: [&str; 2], place: u8| {
        format!(
            "[apps.router.interfaces.{name}]\nmac = \"02:00:00:00:0{number}:0{place}\"\n\
             addresses = [\"{v4}/{}\", \"{v6}/{}\"]\n\
             [apps.{name}]\napp = \"raw-socket\"\ninterface = \"{name}\"\npromiscuous = true\n",
            BITS[0], BITS[1]
        )
    };
    let links: String = ["left", "right"]
        .map(|name| format!("\"{name}.output -> router.{name}\", \"router.{name} -> {name}.input\", "))
        .concat();
    format!(
        "links = [{links}]\n[apps.router]\napp = \"router\"\nroutes = {routes}\n{}{}",
        interface("left", left, 1),
        interface("right", right, 2)
    )
}

#[test]
fn traceroute_sees_each_router_with_its_address() {
    if is_missing("hops::traceroute_sees_each_router_with_its_address", &["traceroute"]) {
        return;
    }
    let mut lab = Lab::new();
    let [client, server] = ["client", "server"].map(|name| lab.host(name));
    let routers = ["first", "second"].map(|name| lab.silent_host(name));
    let cables = [
        [(&client, "lan"), (&routers[0], "left")],
        [(&routers[0], "right"), (&routers[1], "left")],
        [(&routers[1], "right"), (&server, "lan")],
    ];
    for (number, ends) in cables.into_iter().enumerate() {
        let mut place = 0;
        let [near, far] = ends.map(|(host, name)| {
            place += 1;
            let end = CableEnd::new(host, name, &format!("00:00:5e:00:53:{number}{place}"));
            // The routers have their addresses themselves.
            let own = if name == "lan" { LINKS[number][place - 1].into_iter().zip(BITS).collect() } else { Vec::new() };
            own.into_iter().fold(end, |end, (address, bits)| end.address(&format!("{address}/{bits}")))
        });
        connect([&near, &far], 1500);
    }
    for (host, [v4, v6]) in [(&client, LINKS[0][1]), (&server, LINKS[2][0])] {
        host.sh(&format!("ip route add default via {v4}; ip -6 route add default via {v6}"));
    }
    let sandboxes =
        routers.each_ref().map(|host| Sandbox::new().launched_by(&["ip", "netns", "exec", host.namespace()]));
    let texts = [
        network(
            LINKS[0][1],
            LINKS[1][0],
            "[\"198.51.100.0/24 via 198.18.0.2\", \"2001:db8:2::/64 via 2001:db8:12::2\"]",
            1,
        ),
        network(
            LINKS[1][1],
            LINKS[2][0],
            "[\"192.0.2.0/24 via 198.18.0.1\", \"2001:db8:1::/64 via 2001:db8:12::1\"]",
            2,
        ),
    ];
    let running: Vec<Running<'_>> = sandboxes
        .iter()
        .zip(&texts)
        .map(|(sandbox, text)| sandbox.start(&[&sandbox.write("network.toml", text)]))
        .collect();
    let [near, middle, far] = LINKS.map(|[_, end]| end);
    for ((near, middle), target) in near.into_iter().zip(middle).zip(far) {
        traffic::wait_for_answer(&client, target);
        let hops = [near, middle, target];
        for method in ["", "-I ", "-T "] {
            let said = client.run(&format!("traceroute -n -q 1 -w 10 {method}{target}"));
            let seen: Vec<&str> = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
            assert_eq!(seen, hops, "traceroute {method}{target}: {said}");
        }
    }
    for running in running {
        running.signal(Signal::INT);
        running.wait().success();
    }
}
