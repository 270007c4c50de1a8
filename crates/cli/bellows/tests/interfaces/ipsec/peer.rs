//! The two ends: the network of Bellows, and what makes the guest with Linux its peer.

use bellows_testkit::guest::Guest;

use crate::support::Sandbox;
use crate::support::vhost::{Network, socket};

/// A pair of associations: two of tunnels, and two in transport mode that protect GRE.
pub struct Pair {
    pub name: &'static str,
    /// The number of its network, and of its `reqid` in the guest.
    pub number: u32,
    /// Whether it is over IPv6.
    pub is_v6: bool,
    pub is_tunnel: bool,
}

pub const PAIRS: [Pair; 4] = [
    Pair { name: "tunnel4", number: 1, is_v6: false, is_tunnel: true },
    Pair { name: "tunnel6", number: 2, is_v6: true, is_tunnel: true },
    Pair { name: "gre4", number: 3, is_v6: false, is_tunnel: false },
    Pair { name: "gre6", number: 4, is_v6: true, is_tunnel: false },
];

/// The addresses of Bellows and of the guest.
const V4: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const V6: [&str; 2] = ["2001:db8::1", "2001:db8::2"];

impl Pair {
    fn ends(&self) -> [&'static str; 2] {
        if self.is_v6 { V6 } else { V4 }
    }

    fn mode(&self) -> &'static str {
        if self.is_tunnel { "tunnel" } else { "transport" }
    }

    /// Addresses in the guest between which packets pass through it: of the near namespace, and of the far one.
    pub fn stations(&self) -> Vec<[String; 2]> {
        let number = self.number;
        match self.is_tunnel {
            true => vec![
                [format!("10.1.{number}.1"), "10.0.0.2".to_owned()],
                [format!("fd01:{number}::1"), "fd00::2".to_owned()],
            ],
            false => vec![[format!("10.2.{number}.1"), format!("10.2.{number}.2")]],
        }
    }
}

/// The direction of an association.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToGuest,
    FromGuest,
}

/// The keys of all pairs. Those of each round differ from all others.
#[derive(Clone, Copy)]
pub struct Keys {
    pub round: u32,
    pub algorithm: &'static str,
    pub esn: bool,
    pub udp: bool,
}

impl Keys {
    pub fn spi(&self, pair: &Pair, way: Way) -> u32 {
        0x1000 + 16 * self.round + 2 * pair.number + way as u32
    }

    /// The key and the salt, in hexadecimal digits.
    pub fn key(&self, pair: &Pair, way: Way) -> String {
        let length = if self.algorithm == "aes-128-gcm" { 20 } else { 36 };
        let spi = self.spi(pair, way);
        (0..length).map(|at| format!("{:02x}", (spi.rotate_left(8 * at) ^ (0x3d * at)) as u8)).collect()
    }

    fn direction(&self, pair: &Pair, way: Way) -> String {
        let Keys { algorithm, esn, .. } = self;
        let (spi, key) = (self.spi(pair, way), self.key(pair, way));
        format!("{{ spi = {spi}, algorithm = \"{algorithm}\", esn = {esn}, key = \"{key}\" }}")
    }

    /// The name of the cipher in Linux.
    fn aead(&self) -> &'static str {
        if self.algorithm == "chacha20-poly1305" { "rfc7539esp(chacha20,poly1305)" } else { "rfc4106(gcm(aes))" }
    }

    /// The line that adds an association to the guest, with further words.
    pub fn state(&self, pair: &Pair, way: Way, more: &str) -> String {
        let (id, mut line) = (self.id(pair, way), String::new());
        let (aead, key) = (self.aead(), self.key(pair, way));
        let (number, mode) = (pair.number, pair.mode());
        line += &format!("ip xfrm state add {id} reqid {number} mode {mode} aead '{aead}' 0x{key} 128 {more}");
        line += " replay-window 1024";
        // A tunnel carries packets of both families.
        match (pair.is_tunnel, self.esn) {
            (true, true) => line += " flag esn af-unspec",
            (true, false) => line += " flag af-unspec",
            (false, true) => line += " flag esn",
            (false, false) => {}
        }
        if self.udp {
            line += &format!(" encap espinudp 4500 4500 {}", if pair.is_v6 { "::" } else { "0.0.0.0" });
        }
        line
    }

    /// The words that name an association in the guest.
    pub fn id(&self, pair: &Pair, way: Way) -> String {
        let [bellows, guest] = pair.ends();
        let (src, dst) = if way == Way::ToGuest { (bellows, guest) } else { (guest, bellows) };
        format!("src {src} dst {dst} proto esp spi {:#x}", self.spi(pair, way))
    }
}

/// What is between the guest's card and the router.
#[derive(Clone, Copy)]
pub enum Line {
    /// Nothing.
    Plain,
    /// What the guest sends is recorded in this file and goes no further.
    Held(&'static str),
    /// Frames of a file come as if the guest had sent them.
    Injected(&'static str),
    /// Packets of the guest are changed by `impair`, with these keys.
    Impaired(&'static str),
}

/// The outer router's interface, and what it hands to ESP.
const ROUTER: &str = r#"
services = [{ to = "ipsec", protocol = "esp" }, { to = "ipsec", protocol = "udp", port = 4500 }]

[apps.router.interfaces.near]
mac = "02:00:00:00:00:01"
mtu = 1700
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
neighbours = { "192.0.2.2" = "52:54:00:00:00:00", "2001:db8::2" = "52:54:00:00:00:00" }
"#;

/// The router behind the tunnels. Each is one of its interfaces.
const INSIDE: &str = r#"
[apps.inside.interfaces.lan]
mac = "02:00:00:00:01:00"
addresses = ["10.0.0.254/24", "fd00::fe/64"]
"#;

/// The sessions behind the pairs in transport mode.
const GRE: &str = r#"
sessions.wire4 = { local = "192.0.2.1", remote = "192.0.2.2", key = 4 }
sessions.wire6 = { local = "2001:db8::1", remote = "2001:db8::2", key = 6 }
"#;

/// The text of the network.
pub fn network(sandbox: &Sandbox, keys: &Keys, line: Line) -> String {
    let (mut inside, mut pairs) = (INSIDE.to_owned(), String::new());
    for pair in &PAIRS {
        let Pair { name, number, .. } = pair;
        let [local, remote] = pair.ends();
        pairs += &format!("[apps.ipsec.associations.{name}]\nlocal = \"{local}\"\nremote = \"{remote}\"\n");
        pairs += &format!("mode = \"{}\"\n", pair.mode());
        pairs += &format!("inbound = {}\n", keys.direction(pair, Way::FromGuest));
        pairs += &format!("outbound = {}\n", keys.direction(pair, Way::ToGuest));
        if keys.udp {
            pairs += "udp = {}\n";
        }
        if pair.is_tunnel {
            pairs += "local_networks = [\"10.0.0.0/24\", \"fd00::/64\"]\n";
            pairs += &format!("remote_networks = [\"10.1.{number}.0/24\", \"fd01:{number}::/64\"]\n");
            pairs += &format!("dst_mac = \"02:00:00:00:01:0{number}\"\n");
            inside += &format!("[apps.inside.interfaces.{name}]\nmac = \"02:00:00:00:01:0{number}\"\n");
            inside += &format!("addresses = [\"10.1.{number}.254/24\", \"fd01:{number}::fe/64\"]\n");
            // Where they are does not matter: ESP has no Ethernet.
            let neighbour = format!("\"02:00:00:00:02:0{number}\"");
            inside +=
                &format!("neighbours = {{ \"10.1.{number}.1\" = {neighbour}, \"fd01:{number}::1\" = {neighbour} }}\n");
        }
    }
    let mut network = Network::default()
        .app("router", "router", ROUTER)
        .app("ipsec", "esp", &pairs)
        .app("inside", "router", &inside)
        .app("gre", "gre", GRE)
        .app("bridge", "bridge", "groups = [[\"wire4\", \"wire6\"]]")
        .port("near", &socket(sandbox, "near"), "")
        .port("far", &socket(sandbox, "far"), "")
        .link("router.near -> near.input");
    for (one, other) in [
        ("router.ip4-ipsec", "ipsec.ip4"),
        ("router.ip6-ipsec", "ipsec.ip6"),
        ("ipsec.tunnel4", "inside.tunnel4"),
        ("ipsec.tunnel6", "inside.tunnel6"),
        ("ipsec.gre4", "gre.ip4"),
        ("ipsec.gre6", "gre.ip6"),
        ("gre.wire4", "bridge.wire4"),
        ("gre.wire6", "bridge.wire6"),
        ("inside.lan", "bridge.lan"),
    ] {
        network = network.link(&format!("{one} -> {other}")).link(&format!("{other} -> {one}"));
    }
    network = network.link("far.output -> bridge.far").link("bridge.far -> far.input");
    match line {
        Line::Plain => network.link("near.output -> router.near"),
        Line::Held(path) => network
            .app("copies", "tee", "")
            .app("capture", "pcap-writer", &format!("path = \"{path}\""))
            .app("line", "impair", "loss = 1")
            .link("near.output -> copies.input")
            .link("copies.capture -> capture.input")
            .link("copies.line -> line.input")
            .link("line.output -> router.near"),
        Line::Injected(path) => network
            .app("injected", "pcap-reader", &format!("path = \"{path}\""))
            .app("both", "join", "")
            .link("near.output -> both.near")
            .link("injected.output -> both.injected")
            .link("both.output -> router.near"),
        Line::Impaired(keys) => {
            network.app("line", "impair", keys).link("near.output -> line.input").link("line.output -> router.near")
        }
    }
    .text()
}

/// Gives the guest its addresses, devices and policies.
pub fn set_up(guest: &mut Guest) {
    guest.load_tunnels();
    guest.load_ipsec();
    guest.run("near=$(near_card) far=$(far_card)");
    guest.run("ip link set $far netns $FAR && far ip link set $far up && far ip addr add 10.0.0.2/24 dev $far");
    guest.run("far /bin/ip addr add fd00::2/64 dev $far nodad && ip link set $near mtu 1700 up");
    guest.run("far ip route add 10.1.0.0/16 via 10.0.0.254 && far /bin/ip route add fd01::/16 via fd00::fe");
    guest.run("ip addr add 192.0.2.2/24 dev $near && ip addr add 2001:db8::2/64 dev $near nodad");
    // Nobody has to ask for others while the line between them is bad.
    for address in ["192.0.2.1", "2001:db8::1"] {
        guest.run(&format!("ip neigh add {address} lladdr 02:00:00:00:00:01 dev $near nud permanent"));
    }
    guest.run("ip link add wire4 type gretap local 192.0.2.2 remote 192.0.2.1 key 4");
    guest.run("ip link add wire6 type ip6gretap local 2001:db8::2 remote 2001:db8::1 key 6");
    for pair in &PAIRS {
        for [near, far] in pair.stations() {
            if pair.is_tunnel {
                guest.run(&format!("ip addr add {near} dev lo"));
                route(guest, &near);
                policies(guest, pair, &format!("src {near} dst {far}"), &format!("src {far} dst {near}"));
            } else {
                let wire = pair.name.replace("gre", "wire");
                guest.run(&format!("echo 1 >/proc/sys/net/ipv6/conf/{wire}/disable_ipv6"));
                guest.run(&format!("ip link set {wire} mtu 1500 up && ip addr add {near}/24 dev {wire}"));
                guest.run(&format!("far ip addr add {far}/24 dev $far"));
                guest.run(&format!("ip neigh add {far} lladdr 52:54:00:00:00:01 dev {wire} nud permanent"));
            }
        }
        if !pair.is_tunnel {
            let [bellows, here] = pair.ends();
            let (out, back) = (format!("src {here} dst {bellows}"), format!("src {bellows} dst {here}"));
            policies(guest, pair, &format!("{out} proto gre"), &format!("{back} proto gre"));
        }
    }
    // ESP in UDP comes to a socket that has asked for it: UDP_ENCAP with UDP_ENCAP_ESPINUDP.
    guest.run(
        "perl -e 'socket(S,2,2,17) && setsockopt(S,17,100,pack(\"i\",2)) && bind(S,pack(\"Snx12\",2,4500)) || die; \
         socket(T,10,2,17) && setsockopt(T,41,26,pack(\"i\",1)) && setsockopt(T,17,100,pack(\"i\",2)) && \
         bind(T,pack(\"Snx24\",10,4500)) || die; open(F,\">/tmp/ready\"); close(F); sleep' >/tmp/encap 2>&1 &",
    );
    guest.eventually("test -e /tmp/ready || { cat /tmp/encap; false; }");
    guest.run("reach() { for size in 0 1000 3000; do \"$@\" -c 1 -W 100 -q -s $size || return; done; }");
}

/// Has the guest use this source address for what goes through tunnels, unless a program has another.
pub fn route(guest: &mut Guest, source: &str) {
    let way = if source.contains(':') { "fd00::/64 via 2001:db8::1" } else { "10.0.0.0/24 via 192.0.2.1" };
    guest.run(&format!("ip route replace {way} mtu 1500 src {source}"));
}

/// The policies of a pair, for packets with these selectors to and from Bellows.
fn policies(guest: &mut Guest, pair: &Pair, out: &str, back: &str) {
    let [bellows, here] = pair.ends();
    let (number, mode) = (pair.number, pair.mode());
    for (way, selector, src, dst) in [("out", out, here, bellows), ("in", back, bellows, here)] {
        let ends = if pair.is_tunnel { format!("src {src} dst {dst} ") } else { String::new() };
        guest.run(&format!("ip xfrm policy add dir {way} {selector} tmpl {ends}proto esp reqid {number} mode {mode}"));
    }
}
