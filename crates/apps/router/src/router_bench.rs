//! How the apps of a router are measured: a routing domain, and the apps in front of the measured one.
//!
//! The flows that `bellows appbench` sends are between the networks for benchmarks (RFC 2544, RFC 5180). The router has a
//! route for each of their IPv4 destinations, one for the network of their IPv6 destinations, and knows the next hops.

use std::net::Ipv6Addr;

use bellows_config::{BenchRow, BenchStep};

/// The key of the apps that names the routing domain.
const VRF: &str = "vrf = \"router\"";

/// The interface that the frames come from, and the one that they are routed to. Both are ports.
pub(crate) const IN: &str = "in";
pub(crate) const OUT: &str = "out";

/// Next hops of routes.
const NEXT_HOPS: u16 = 16;

/// What packets have passed when they come to an app, by the number of apps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Nothing: they are frames of the interface [`IN`].
    Wire = 0,
    /// `ethernet-input`.
    EthernetInput = 1,
    /// And `ip4-input` or `ip6-input`.
    IpInput = 2,
    /// And the look-up, which has found their way.
    LookUp = 3,
}

/// How to measure an app of a router with packets of a family, `ip4` or `ip6`.
pub(crate) fn row(family: &str, behind: Behind) -> BenchRow {
    let mut steps = steps(family, "output");
    steps.truncate(behind as usize);
    let traffic = if family == "ip4" { "ipv4" } else { "ipv6" };
    BenchRow { keys: VRF.to_owned(), traffic, objects: domain(&forwarding()), before: steps, ..BenchRow::default() }
}

/// How to measure an app that takes the packets for a router itself: echo requests to its addresses, of both families.
pub(crate) fn local_row(family: &str) -> BenchRow {
    BenchRow {
        keys: VRF.to_owned(),
        traffic: "icmp",
        objects: domain(&addressed()),
        before: steps(family, "local"),
        ..BenchRow::default()
    }
}

/// The apps from the wire to the look-up, and the output of the last one.
fn steps(family: &str, output: &str) -> Vec<BenchStep> {
    vec![
        BenchStep::new("ethernet-input", VRF, IN, family),
        BenchStep::new(&format!("{family}-input"), "", "input", "output"),
        BenchStep::new(&format!("{family}-lookup"), VRF, "input", output),
    ]
}

/// The table of a routing domain, whose interface [`IN`] is the first hop of the flows' sources. `rest` are the lines
/// below its first one.
fn domain(rest: &str) -> String {
    format!(
        r#"[objects.router]
object = "vrf"
{rest}
[objects.router.interfaces.{IN}]
mac = "02:00:00:00:00:02"
addresses = ["198.18.255.254/16", "2001:2::ffff/64"]
reverse_path = "strict"
"#
    )
}

/// Routes to the flows' destinations, and the interface that they lead to.
fn forwarding() -> String {
    let next_hop = |number: u16| 2 + number % NEXT_HOPS;
    let v4 = (0..256).map(|number| format!("\"198.19.{number}.0/24 via 192.0.2.{}\"", next_hop(number)));
    let v6 = ["\"2001:2:0:1::/64 via 2001:db8::2\"".to_owned()];
    let routes: Vec<String> = v4.chain(v6).collect();
    let known = (0..NEXT_HOPS).map(next_hop).flat_map(|host| {
        let mac = format!("02:00:00:00:01:{host:02x}");
        [format!("\"192.0.2.{host}\" = \"{mac}\""), format!("\"2001:db8::{host:x}\" = \"{mac}\"")]
    });
    let known: Vec<String> = known.collect();
    format!(
        r#"routes = [{}]
[objects.router.interfaces.{OUT}]
mac = "02:00:00:00:00:03"
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
neighbours = {{ {} }}"#,
        routes.join(", "),
        known.join(", ")
    )
}

/// An interface that has the destinations of some flows of several protocols as its addresses; the others are dropped on
/// the way to the measured app. Of four flows, three are over IPv4.
fn addressed() -> String {
    let v4 = [0, 1, 2, 4].map(|number| format!("\"198.19.{number}.1/24\""));
    let v6 = [3, 7, 11, 15].map(|number| format!("\"{}/64\"", Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, number + 1)));
    format!(
        r#"[objects.router.interfaces.{OUT}]
mac = "02:00:00:00:00:03"
addresses = [{}]"#,
        [v4, v6].concat().join(", ")
    )
}
