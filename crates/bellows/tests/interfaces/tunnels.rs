//! Tunnels between a guest with Linux and a bridge of Bellows, one of each kind. At the other port of the bridge, the guest
//! has its second card, in another namespace.
//!
//! ```text
//!  guest                 router (services)   tunnels     bridge          guest, far
//!  tunnel over card ─ near ─────────────────── sessions ─ far ─────────── card
//! ```

use bellows_testkit::guest::{self, Card, Setup};
use bellows_testkit::programs;
use bellows_testkit::skips::{is_left_out, is_skipped};

use crate::bridge::{NETWORK, app};
use crate::support::vhost::{Network, socket};
use crate::support::{Sandbox, Signal};

/// The router's interface, and what it hands to the tunnels.
const ROUTER: &str = r#"
services = [
    { to = "l2tp", protocol = "l2tp" },
    { to = "gre", protocol = "gre" },
    { to = "vxlan", protocol = "udp", port = 4789 },
    { to = "geneve", protocol = "udp", port = 6081 },
]

[apps.router.interfaces.near]
mac = "02:00:00:00:00:01"
mtu = 1600
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
"#;

/// A tunnel: the app, its session, and what makes the device `wire` in the guest.
struct Kind {
    app: &'static str,
    session: &'static str,
    keys: &'static str,
    device: &'static str,
}

const V4: &str = "remote = \"192.0.2.2\"\nlocal = \"192.0.2.1\"";
const V6: &str = "remote = \"2001:db8::2\"\nlocal = \"2001:db8::1\"";

/// One session of each app over each family.
const KINDS: [Kind; 9] = [
    Kind {
        app: "l2tp",
        session: "l2tp6",
        keys: "expect_session = 11\nsend_session = 12\nexpect_cookie = \"0102030405060708\"\nsend_cookie = \"1112131415161718\"",
        device: "ip l2tp add tunnel tunnel_id 1 peer_tunnel_id 2 encap ip local 2001:db8::2 remote 2001:db8::1 && \
            ip l2tp add session name wire tunnel_id 1 session_id 12 peer_session_id 11 l2spec_type none \
            cookie 0102030405060708 peer_cookie 1112131415161718",
    },
    Kind {
        app: "l2tp",
        session: "l2tp4",
        keys: "expect_session = 21\nsend_session = 22\nsublayer = \"default\"",
        device: "ip l2tp add tunnel tunnel_id 3 peer_tunnel_id 4 encap ip local 192.0.2.2 remote 192.0.2.1 && \
            ip l2tp add session name wire tunnel_id 3 session_id 22 peer_session_id 21",
    },
    Kind {
        app: "gre",
        session: "gre4",
        keys: "key = 7",
        device: "ip link add wire type gretap local 192.0.2.2 remote 192.0.2.1 key 7",
    },
    Kind {
        app: "gre",
        session: "gre4sum",
        keys: "checksum = true",
        device: "ip link add wire type gretap local 192.0.2.2 remote 192.0.2.1 csum",
    },
    Kind {
        app: "gre",
        session: "gre6",
        keys: "key = 9",
        device: "ip link add wire type ip6gretap local 2001:db8::2 remote 2001:db8::1 key 9",
    },
    Kind {
        app: "vxlan",
        session: "vxlan4",
        keys: "vni = 1",
        device: "ip link add wire type vxlan id 1 local 192.0.2.2 remote 192.0.2.1 dstport 4789",
    },
    Kind {
        app: "vxlan",
        session: "vxlan6",
        keys: "vni = 2\nchecksum = true",
        device: "ip link add wire type vxlan id 2 local 2001:db8::2 remote 2001:db8::1 dstport 4789",
    },
    Kind {
        app: "geneve",
        session: "geneve4",
        keys: "vni = 3",
        device: "ip link add wire type geneve id 3 remote 192.0.2.1",
    },
    Kind {
        app: "geneve",
        session: "geneve6",
        keys: "vni = 4\nchecksum = true",
        device: "ip link add wire type geneve id 4 remote 2001:db8::1",
    },
];

/// The apps of tunnels, and their types.
const APPS: [[&str; 2]; 4] = [["l2tp", "keyed-tunnel"], ["gre", "gre"], ["vxlan", "vxlan"], ["geneve", "geneve"]];

/// The network: all tunnels at one bridge, in one group, so that nothing goes round.
fn network(sandbox: &Sandbox) -> String {
    let sessions: Vec<&str> = KINDS.iter().map(|kind| kind.session).collect();
    let mut network = Network::default()
        .app("router", "router", ROUTER)
        .app("bridge", "bridge", &format!("groups = [{sessions:?}]"))
        .port("near", &socket(sandbox, "near"), "")
        .port("far", &socket(sandbox, "far"), "");
    for port in [
        "near.output -> router.near",
        "router.near -> near.input",
        "far.output -> bridge.far",
        "bridge.far -> far.input",
    ] {
        network = network.link(port);
    }
    for [name, kind] in APPS {
        let mut keys = String::new();
        for Kind { session, keys: more, .. } in KINDS.iter().filter(|kind| kind.app == name) {
            let ends = if session.contains('6') { V6 } else { V4 };
            keys += &format!("[apps.{name}.sessions.{session}]\n{ends}\n{more}\n");
            network = network
                .link(&format!("{name}.{session} -> bridge.{session}"))
                .link(&format!("bridge.{session} -> {name}.{session}"));
        }
        network = network.app(name, kind, &keys);
        for ip in ["ip4", "ip6"] {
            network = network
                .link(&format!("router.{ip}-{name} -> {name}.{ip}"))
                .link(&format!("{name}.{ip} -> router.{ip}-{name}"));
        }
    }
    network.text()
}

#[test]
fn each_tunnel_is_that_of_linux() {
    let test = "tunnels::each_tunnel_is_that_of_linux";
    if is_left_out(test) || is_skipped(test, guest::missing()) || is_skipped(test, programs::missing(&["ip"])) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write(NETWORK, &network(&sandbox));
    let running = sandbox.start(&[NETWORK, "--json"]);
    let [near, far] = ["near", "far"].map(|port| socket(&sandbox, port));
    let card = |socket| Card { socket, server: false, queues: 1, properties: "" };
    let folder = sandbox.path("");
    let setup = Setup::with_cards(&folder, [card(&near), card(&far)]);
    // That of busybox has no tunnels.
    let mut guest = setup.program(&programs::find_program("ip").unwrap()).boot();
    guest.load_tunnels();
    guest.run("near=$(near_card) far=$(far_card)");
    guest.run("ip link set $far netns $FAR && far ip link set $far up && far ip addr add 10.0.0.2/24 dev $far");
    guest.run("ip link set $near mtu 1600 up && ip addr add 192.0.2.2/24 dev $near");
    guest.run("ip addr add 2001:db8::2/64 dev $near nodad");
    guest.eventually("ping -c 1 -W 1 192.0.2.1 && ping -6 -c 1 -W 1 2001:db8::1");
    for Kind { session, device, .. } in &KINDS {
        guest.run(device);
        guest.run("ip link set dev wire mtu 1500 up && ip addr add 10.0.0.1/24 dev wire");
        guest.eventually("ping -c 1 -W 1 10.0.0.2");
        for size in [0, 1000, 1472, 3000] {
            guest.run(&format!("ping -c 2 -W 30 -s {size} 10.0.0.2"));
        }
        guest.run("exchange 1");
        eprintln!("{test}: {session}");
        // The devices of L2TP are those of sessions.
        guest.run(
            "for session in '1 session_id 12' '3 session_id 22'; do ip l2tp del session tunnel_id $session; done; true",
        );
        guest.run("for tunnel in 1 3; do ip l2tp del tunnel tunnel_id $tunnel; done; true");
        guest.run("ip link show dev wire >/dev/null 2>&1 && ip link del dev wire; far ip neigh flush all; true");
    }
    let counters = running.counters();
    for [name, _] in APPS {
        let lost = app(&counters, name)["lost"].as_object().map(serde_json::Map::len);
        assert_eq!(lost, Some(0), "{name}: {counters:#}");
    }
    drop(guest);
    running.signal(Signal::INT);
    running.wait().fine();
}
