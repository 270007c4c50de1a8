//! The keys: the apps and links that they become, and the mistakes that are refused.

use std::path::Path;

use bellows_apps::registry;
use bellows_config::{Diagnostics, Loaded, Overrides, load_str};

/// An end with an uplink, a port and a trunk: one VPN between three sites, and one between two.
const VPN: &str = r#"
[apps.vpn]
app = "l2vpn"
routes = ["default via 192.0.2.1", "default via 2001:db8::1"]
[apps.vpn.interfaces]
uplink = { mac = "02:00:00:00:00:02", mtu = 1600, addresses = ["192.0.2.2/24", "2001:db8::2/64"] }
office = { mtu = 1500 }
customers = { mtu = 1504, trunk = {} }
[apps.vpn.peers]
here = { local = true, endpoints = { v4 = "192.0.2.2", v6 = "2001:db8::2" } }
basel = { endpoints = { v6 = "2001:db8:b::1" } }
zurich = { endpoints = { v4 = "198.51.100.1", v6 = "2001:db8:5::1" } }
[apps.vpn.transports]
basel = { local = "here.v6", remote = "basel.v6" }
zurich4 = { local = "here.v4", remote = "zurich.v4" }
zurich6 = { local = "here.v6", remote = "zurich.v6" }
[apps.vpn.vpls.lan]
circuits = ["office", "customers.7"]
[apps.vpn.vpls.lan.pseudowires.basel]
transport = "basel"
tunnel = "l2tpv3"
send_cookie = "0011223344556677"
expect_cookie = "8899aabbccddeeff"
control_channel = { heartbeat = "2s" }
[apps.vpn.vpls.lan.pseudowires.zurich]
transport = "zurich6"
tunnel = "gre"
vc_id = 5
control_channel = {}
[apps.vpn.vpls.line]
circuits = ["customers.8"]
[apps.vpn.vpls.line.pseudowires.zurich]
transport = "zurich4"
tunnel = "gre"
vc_id = 5
"#;

/// The VPN's end between sources and sinks.
fn network(vpn: &str) -> String {
    let ports = ["uplink", "office", "customers"];
    let links: Vec<String> =
        ports.iter().map(|port| format!("\"from-{port} -> vpn.{port}\", \"vpn.{port} -> to-{port}\"")).collect();
    let apps: String = ports
        .iter()
        .map(|port| format!("[apps.from-{port}]\napp = \"source\"\n[apps.to-{port}]\napp = \"sink\"\n"))
        .collect();
    format!("links = [{}]\n{apps}{vpn}", links.join(", "))
}

fn load(text: &str) -> Result<Loaded, Diagnostics> {
    load_str(text, "net.toml", Path::new("."), &registry(), &Overrides::default())
}

fn parts(loaded: &Loaded) -> Vec<(String, String)> {
    let parts = loaded.network.apps.iter().filter_map(|app| {
        let name = app.name.strip_prefix("vpn/")?;
        (!name.starts_with("router/")).then(|| (name.to_owned(), app.kind.to_string()))
    });
    parts.collect()
}

#[test]
fn an_end_becomes_a_router_tunnels_bridges_and_control_channels() {
    let loaded = load(&network(VPN)).unwrap_or_else(|wrong| panic!("{}", wrong.render(false)));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings.render(false));
    let expected = [
        ("l2tpv3-basel", "keyed-tunnel"),
        ("gre-zurich4", "gre"),
        ("gre-zurich6", "gre"),
        ("trunk-customers", "vlan-mux"),
        ("control-channel-lan.basel", "control-channel"),
        ("control-channel-lan.zurich", "control-channel"),
        ("bridge-lan", "bridge"),
    ];
    assert_eq!(parts(&loaded), expected.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
    let links: Vec<String> = loaded.network.links.iter().map(ToString::to_string).collect();
    for both in [
        "vpn/l2tpv3-basel.ip6 - vpn/router/ip6-lookup.service-l2tpv3-basel",
        "vpn/l2tpv3-basel.lan:basel - vpn/control-channel-lan.basel.tunnel",
        "vpn/l2tpv3-basel.lan:basel:control - vpn/control-channel-lan.basel.control",
        "vpn/control-channel-lan.zurich.circuit - vpn/bridge-lan.zurich",
        "vpn/trunk-customers.vlan7 - vpn/bridge-lan.customers:7",
        "vpn/trunk-customers.vlan8 - vpn/gre-zurich4.line:zurich",
        "from-office.output - vpn/bridge-lan.office",
    ] {
        let (one, other) = both.split_once(" - ").unwrap();
        let link = format!("{one} -> {other}");
        assert!(links.contains(&link), "{link} is not in {links:#?}");
    }
    for back in [
        "vpn/router/ip4-dispatch.gre-zurich4 -> vpn/gre-zurich4.ip4",
        "vpn/trunk-customers.trunk -> to-customers.input",
        "vpn/gre-zurich4.line:zurich -> vpn/trunk-customers.vlan8",
        "vpn/control-channel-lan.basel.control -> vpn/l2tpv3-basel.lan:basel:control",
    ] {
        assert!(links.iter().any(|link| link == back), "{back} is not in {links:#?}");
    }
    let config = |name: &str| {
        let app = loaded.network.apps.iter().find(|app| app.name == format!("vpn/{name}")).unwrap();
        app.fingerprint.to_string()
    };
    let bridge = config("bridge-lan");
    assert!(bridge.contains(r#""groups":[["basel","zurich"]]"#), "{bridge}");
    let control = config("control-channel-lan.basel");
    assert!(control.contains(r#""mtu":1500,"vc_id":0,"description":"lan.basel","heartbeat":"2s""#), "{control}");
    let tunnel = config("l2tpv3-basel");
    assert!(tunnel.contains(r#""expect_session":4294967294"#), "{tunnel}");
    let tunnel = config("gre-zurich6");
    assert!(tunnel.contains(r#""key":5"#) && tunnel.contains(r#""key":32773"#), "{tunnel}");
}

#[test]
fn frames_of_a_trunk_without_a_vlan_are_a_circuit_too() {
    let text = VPN.replace("circuits = [\"customers.8\"]", "circuits = [\"customers\"]\nmtu = 1504");
    let loaded = load(&network(&text)).unwrap_or_else(|wrong| panic!("{}", wrong.render(false)));
    let links: Vec<String> = loaded.network.links.iter().map(ToString::to_string).collect();
    assert!(links.contains(&"vpn/trunk-customers.native -> vpn/gre-zurich4.line:zurich".to_owned()), "{links:#?}");
}

/// The first error, its place in the text, and the advice.
fn mistake(text: &str) -> [String; 3] {
    let Err(wrong) = load(text) else { return Default::default() };
    let json = wrong.to_json();
    let first = &json[0];
    let line = text.lines().nth(first["line"].as_u64().unwrap() as usize - 1).unwrap();
    let at: String = line.chars().skip(first["column"].as_u64().unwrap() as usize - 1).collect();
    [first["message"].as_str().unwrap().to_owned(), at, first["help"].to_string().replace("\\\"", "\"")]
}

/// What is replaced by what, the message, the text at its place, and a part of the advice.
type Case = [&'static str; 5];

const MISTAKES: [Case; 39] = [
    ["office = {", "\"of.fice\" = {", "`of.fice` is not a name here", "{ mtu = 1500 }", "letters, digits"],
    [
        "mac = \"02:00:00:00:00:02\", ",
        "",
        "`addresses` is for uplinks, and this interface is none: it has no `mac`",
        "[\"192.0.2.2/24\"",
        "add `mac`",
    ],
    ["mtu = 1600", "mtu = 1600, trunk = {}", "an uplink has no circuits", "{}", "leave out `mac`"],
    [
        "mac = \"02:00:00:00:00:02\", mtu = 1600, addresses = [\"192.0.2.2/24\", \"2001:db8::2/64\"]",
        "",
        "no interface is an uplink",
        "",
        "give `mac`",
    ],
    ["local = true, ", "", "no peer is this end", "", "`local = true`"],
    [
        "basel = { endpoints",
        "basel = { local = true, endpoints",
        "both `basel` and `here` are this end",
        "true",
        "to one alone",
    ],
    ["remote = \"basel.v6\"", "remote = \"basel\"", "`basel` is no endpoint", "\"basel\"", "PEER.ENDPOINT"],
    [
        "remote = \"basel.v6\"",
        "remote = \"bsael.v6\"",
        "there is no peer `bsael`",
        "\"bsael.v6\"",
        "did you mean `basel`?",
    ],
    [
        "remote = \"zurich.v6\"",
        "remote = \"zurich.w6\"",
        "the peer `zurich` has no endpoint `w6`",
        "\"zurich.w6\"",
        "did you mean `v6`?",
    ],
    [
        "remote = \"basel.v6\"",
        "remote = \"here.v6\"",
        "`here.v6` is an endpoint of this end",
        "\"here.v6\"",
        "another peer",
    ],
    [
        "local = \"here.v6\", remote = \"basel.v6\"",
        "local = \"zurich.v6\", remote = \"basel.v6\"",
        "`zurich.v6` is an endpoint of another end",
        "\"zurich.v6\"",
        "one of `here`",
    ],
    [
        "local = \"here.v4\"",
        "local = \"here.v6\"",
        "`2001:db8::2` and `198.51.100.1` are addresses of two families",
        "{ local = \"here.v6\", remote = \"zurich.v4\" }",
        "one family",
    ],
    [
        "v4 = \"192.0.2.2\"",
        "v4 = \"192.0.2.3\"",
        "no uplink has the address `192.0.2.3`",
        "\"here.v4\"",
        "\"192.0.2.3/32\"",
    ],
    ["v4 = \"198.51.100.1\"", "v4 = \"198.51.100\"", "`198.51.100` is no IP address", "\"198.51.100\"", "write it as"],
    [
        "remote = \"zurich.v6\"",
        "remote = \"basel.v6\"",
        "`zurich6` has the ends of `basel`",
        "{ local = \"here.v6\", remote = \"basel.v6\" }",
        "one transport for both",
    ],
    ["circuits = [\"customers.8\"]", "circuits = []", "a VPLS without circuits carries nothing", "[]", "name one"],
    [
        "[apps.vpn.vpls.line.pseudowires.zurich]\ntransport = \"zurich4\"\ntunnel = \"gre\"\nvc_id = 5\n",
        "",
        "a VPLS with one circuit and no pseudowire carries nothing",
        "",
        "pseudowires.NAME",
    ],
    [
        "[apps.vpn.vpls.lan.pseudowires.zurich]",
        "[apps.vpn.vpls.lan.pseudowires.office]",
        "the bridge has a circuit `office` as well",
        "",
        "another name",
    ],
    ["\"office\", ", "\"ofice\", ", "there is no interface `ofice`", "\"ofice\"", "did you mean `office`?"],
    [
        "\"office\", ",
        "\"uplink\", ",
        "`uplink` is an uplink",
        "\"uplink\"",
        "the ports of circuits are `customers`, `office`",
    ],
    ["\"office\", ", "\"office.5\", ", "`office` is no trunk, and has no VLANs", "\"office.5\"", "add `trunk = {}`"],
    ["\"customers.7\"", "\"customers.4095\"", "there is no VLAN `4095`", "\"customers.4095\"", "`customers.100`"],
    [
        "\"customers.7\"",
        "\"customers\"",
        "the MTU of the circuit `customers` is 1504, that of its VPLS 1500",
        "\"customers\"",
        "set `mtu = 1500` of the interface `customers`",
    ],
    [
        "mtu = 1504",
        "mtu = 1500",
        "the MTU of the circuit `customers.7` is 1500 less 4 for the tag of its VLAN, that of its VPLS 1500",
        "\"customers.7\"",
        "set `mtu = 1504`",
    ],
    [
        "\"customers.8\"",
        "\"customers.7\"",
        "the VPLS `lan` has the circuit `customers.7` already",
        "\"customers.7\"",
        "from one of them",
    ],
    [
        "transport = \"zurich4\"",
        "transport = \"zürich4\"",
        "there is no transport `zürich4`",
        "\"zürich4\"",
        "did you mean `zurich4`?",
    ],
    [
        "transport = \"zurich4\"\ntunnel = \"gre\"\nvc_id = 5",
        "transport = \"zurich4\"\ntunnel = \"l2tpv3\"",
        "L2TPv3 goes over IPv6, and the transport `zurich4` is of IPv4",
        "\"l2tpv3\"",
        "`tunnel = \"gre\"`",
    ],
    [
        "tunnel = \"l2tpv3\"",
        "tunnel = \"l2tpv3\"\nin_order = true",
        "an end with a control channel sends no sequence numbers",
        "true",
        "leave it out",
    ],
    [
        "control_channel = { heartbeat = \"2s\" }",
        "in_order = true",
        "L2TPv3 has no sequence numbers here",
        "true",
        "`tunnel = \"gre\"`",
    ],
    ["tunnel = \"l2tpv3\"", "tunnel = \"l2tpv3\"\nvc_id = 9", "the VC ID of L2TPv3 is 0", "9", "leave it out"],
    ["vc_id = 5\ncontrol", "control", "GRE has no VC ID 0", "", "1 to 32767"],
    [
        "send_cookie = \"0011223344556677\"",
        "send_cookie = \"001122\"",
        "`001122` is no cookie",
        "\"001122\"",
        "hexadecimal",
    ],
    [
        "vc_id = 5\ncontrol",
        "vc_id = 5\nexpect_cookie = \"00112233\"\ncontrol",
        "GRE has no cookies",
        "\"00112233\"",
        "l2tpv3",
    ],
    [
        "transport = \"zurich4\"",
        "transport = \"zurich6\"",
        "the pseudowire `zurich` of `lan` has the same transport and VC ID",
        "",
        "another `vc_id`",
    ],
    [
        "transport = \"zurich6\"\ntunnel = \"gre\"\nvc_id = 5",
        "transport = \"basel\"\ntunnel = \"gre\"\nvc_id = 5",
        "no pseudowire uses the transport `zurich6`",
        "{ local",
        "remove it",
    ],
    ["\"office\", ", "", "no VPLS has a circuit of the interface `office`", "{ mtu = 1500 }", "`circuits`"],
    [
        "heartbeat = \"2s\"",
        "heartbeat = \"1ms\"",
        "`vpn/control-channel-lan.basel`: no message can tell a heartbeat of 1ms",
        "\"1ms\"",
        "whole seconds",
    ],
    [
        "mac = \"02:00:00:00:00:02\"",
        "mac = \"03:00:00:00:00:02\"",
        "`vpn/router/vrf`: 03:00:00:00:00:02 is a multicast address",
        "\"03:00",
        "unicast",
    ],
    [
        "remote = \"basel.v6\"",
        "remote = \"basel.v6\", ipsec = { inbound = { spi = 256, algorithm = \"aes-128-gcm\", key = \"000102030405060708090a0b0c0d0e0f10111213\" }, outbound = { spi = 256, algorithm = \"aes-128-gcm\", key = \"101112131415161718191a1b1c1d1e1f20212223\" } }",
        "the keys of a transport are in files",
        "\"",
        "`key_file`",
    ],
];

#[test]
fn mistakes_are_told_where_they_are_with_a_remedy() {
    for [from, to, message, place, help] in MISTAKES {
        assert!(VPN.contains(from), "{from}");
        let [said, at, advice] = mistake(&network(&VPN.replacen(from, to, 1)));
        let said = said.strip_prefix("`vpn`: ").unwrap_or(&said);
        assert_eq!(said, message);
        assert!(at.starts_with(place) && advice.contains(help), "{message}: at {at:?}, with the advice {advice:?}");
    }
}

#[test]
fn ecn_and_order_are_those_of_the_tunnels() {
    let marked = VPN.replacen("remote = \"zurich.v4\"", "remote = \"zurich.v4\", copy_ecn = true", 1);
    let text = marked.replacen(
        "[apps.vpn.vpls.line.pseudowires.zurich]",
        "[apps.vpn.vpls.line.pseudowires.zurich]\nin_order = true",
        1,
    );
    let loaded = load(&network(&text)).unwrap_or_else(|wrong| panic!("{}", wrong.render(false)));
    for (part, expected) in [("vpn/gre-zurich4", true), ("vpn/gre-zurich6", false), ("vpn/l2tpv3-basel", false)] {
        let app = loaded.network.apps.iter().find(|app| app.name == part).unwrap();
        let has = |key: &str| app.fingerprint.contains(&format!("\"{key}\":true"));
        assert_eq!([has("copy_ecn"), has("in_order")], [expected; 2], "{}", app.fingerprint);
    }
}
