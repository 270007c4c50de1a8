//! What Bellows sends, judged by tcpdump and tshark: both decode all of it, find every checksum right, and see inside of
//! each tunnel what went into it. With the keys, tshark also opens ESP.

mod support;

use std::path::Path;
use std::process::Command;

use bellows_testkit::programs::{self, has_program};
use support::Sandbox;

/// Packets of each source.
const COUNT: usize = 30;

/// What goes into the tunnels, by the name of its source: frames with IPv4, and with IPv6.
const SOURCES: [(&str, &str); 2] = [("v4", "ipv4"), ("v6", "ipv6")];

/// The key of a pair's direction. No two are the same.
const KEYS: [&str; 6] = [
    "a0b1c2d3e4f5061728394a5b6c7d8e9f01020304",
    "a1b1c2d3e4f5061728394a5b6c7d8e9f01020304",
    "a2b1c2d3e4f5061728394a5b6c7d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9f01020304",
    "a3b1c2d3e4f5061728394a5b6c7d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9f01020304",
    "a4b1c2d3e4f5061728394a5b6c7d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9f01020304",
    "a5b1c2d3e4f5061728394a5b6c7d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9f01020304",
];

const V4: &str = "local = \"192.0.2.1\"\nremote = \"192.0.2.2\"\n";
const V6: &str = "local = \"2001:db8::1\"\nremote = \"2001:db8::2\"\n";

/// One capture: an app with a session or pair named `it`, and what the two programs should see of it.
struct Case {
    name: &'static str,
    app: &'static str,
    /// The table of the app's session, and the session's keys.
    table: &'static str,
    is_v6: bool,
    keys: String,
    /// Options of tshark.
    options: Vec<String>,
    /// What tcpdump says of each packet.
    said: &'static str,
    /// The protocols in each packet, up to the headers of what is inside, as tshark has them.
    protocols: &'static str,
    /// Whether tshark sees what is inside.
    is_open: bool,
}

impl Case {
    fn new(name: &'static str, app: &'static str, is_v6: bool, keys: &str, said: &'static str) -> Case {
        let table = if app == "esp" { "associations" } else { "sessions" };
        let (keys, options) = (keys.to_owned(), Vec::new());
        Case { name, app, table, is_v6, keys, options, said, protocols: "", is_open: true }
    }

    fn protocols(self, protocols: &'static str) -> Case {
        Case { protocols, ..self }
    }

    fn options(self, options: &[&str]) -> Case {
        Case { options: options.iter().map(|option| (*option).to_owned()).collect(), ..self }
    }
}

/// All tunnels.
fn tunnels() -> Vec<Case> {
    let cookie = "send_session = 7\nsend_cookie = \"0102030405060708\"\nexpect_cookie = \"1112131415161718\"";
    let l2tp = |cookie: &str, sublayer: &str| {
        [format!("l2tp.cookie_size:{cookie}"), format!("l2tp.l2_specific:{sublayer}")]
    };
    let [cookie8, no_sublayer] = l2tp("8 Byte Cookie", "None");
    let [no_cookie, sublayer] = l2tp("None", "Default L2-Specific");
    vec![
        Case::new("l2tp6", "keyed-tunnel", true, cookie, "unknown").protocols("l2tp").options(&[&cookie8, &no_sublayer]),
        Case::new("l2tp4", "keyed-tunnel", false, "send_session = 8\nsublayer = \"default\"", "unknown")
            .protocols("l2tp")
            .options(&[&no_cookie, &sublayer]),
        Case::new("gre4", "gre", false, "key = 7", "GREv0, Flags [key present], key=0x7").protocols("gre:eth"),
        Case::new("gre6", "gre", true, "checksum = true", "GREv0, Flags [checksum present]").protocols("gre:eth"),
        Case::new("gre4ip", "gre", false, "payload = \"ip\"\nkey = 9", "GREv0, Flags [key present], key=0x9").protocols("gre"),
        Case::new("gre6ip", "gre", true, "payload = \"ip\"", "GREv0, Flags [none]").protocols("gre"),
        Case::new("vxlan4", "vxlan", false, "vni = 5", "VXLAN, flags [I] (0x08), vni 5").protocols("udp:vxlan:eth"),
        Case::new("vxlan6", "vxlan", true, "vni = 6\nchecksum = true", "VXLAN, flags [I] (0x08), vni 6").protocols("udp:vxlan:eth"),
        Case::new("geneve4", "geneve", false, "vni = 7", "Geneve, Flags [none], vni 0x7").protocols("udp:geneve:eth"),
        Case::new("geneve6", "geneve", true, "vni = 8\nchecksum = true", "Geneve, Flags [none], vni 0x8").protocols("udp:geneve:eth"),
    ]
}

/// The network: each case's app has the packets of a source on its session, and a capture on its wire.
fn network(cases: &[Case]) -> String {
    let (mut links, mut apps) = (Vec::new(), String::new());
    for (source, headers) in SOURCES {
        links.push(format!("{source}.output -> {source}-copies.input"));
        links.push(format!("{source}-copies.clear -> {source}-clear.input"));
        apps += &format!("apps.{source} = {{ app = \"source\", headers = \"{headers}\", payload = \"random\", sizes = [90, 570, 1400], count = {COUNT} }}\n");
        apps += &format!("apps.{source}-copies.app = \"tee\"\n");
        apps += &format!("apps.{source}-clear = {{ app = \"pcap-writer\", path = \"{source}.pcap\" }}\n");
    }
    for Case { name, app, table, is_v6, keys, .. } in cases {
        apps += &format!("[apps.{name}-in]\napp = \"join\"\n[apps.{name}-out]\napp = \"pcap-writer\"\npath = \"{name}.pcap\"\n");
        for (source, _) in SOURCES {
            links.push(format!("{source}-copies.{name} -> {name}-in.{source}"));
        }
        links.push(format!("{name}-in.output -> {name}.it"));
        links.push(format!("{name}.{} -> {name}-out.input", if *is_v6 { "ip6" } else { "ip4" }));
        apps += &format!("[apps.{name}]\napp = \"{app}\"\n[apps.{name}.{table}.it]\n{}{keys}\n", if *is_v6 { V6 } else { V4 });
    }
    format!("links = {links:#?}\n{apps}")
}

/// A packet as tshark sees it.
#[derive(Debug)]
struct Seen {
    protocols: String,
    /// The payload of the innermost UDP datagram.
    payload: String,
    /// What is wrong with the packet: that it is malformed, or what tshark warns of.
    wrong: Vec<String>,
}

/// Severities of tshark, from which on something is wrong: that of warnings.
const WARNING: u64 = 0x60_0000;

/// What tshark sees in a capture.
fn tshark(path: &Path, options: &[String]) -> Vec<Seen> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(path);
    for option in ["ip.check_checksum", "udp.check_checksum", "tcp.check_checksum"] {
        command.arg("-o").arg(format!("{option}:TRUE"));
    }
    for option in options {
        command.arg(if option.contains("==") { "-d" } else { "-o" }).arg(option);
    }
    command.args(["-T", "fields", "-E", "separator=;", "-E", "occurrence=a"]);
    for field in ["frame.protocols", "udp.payload", "_ws.malformed", "_ws.expert.severity", "_ws.expert.message"] {
        command.args(["-e", field]);
    }
    let said = programs::run(&mut command).unwrap_or_else(|error| panic!("{error}"));
    let packet = |line: &str| {
        let fields: Vec<&str> = line.splitn(5, ';').collect();
        let [protocols, payload, malformed, severities, messages] = fields[..] else { panic!("{line}") };
        let severe = |text: &str| text.parse().map_or(true, |severity: u64| severity >= WARNING);
        let is_wrong = !malformed.is_empty() || severities.split(',').any(|text| !text.is_empty() && severe(text));
        Seen {
            protocols: protocols.to_owned(),
            payload: payload.rsplit(',').next().unwrap_or_default().to_owned(),
            wrong: if is_wrong { vec![format!("{malformed} {severities} {messages}")] } else { Vec::new() },
        }
    };
    said.lines().map(packet).collect()
}

#[test]
fn explore() {
    if !has_program("judges", "tshark") || !has_program("judges", "tcpdump") {
        return;
    }
    let sandbox = Sandbox::new();
    let cases = tunnels();
    let path = sandbox.write("network.toml", &network(&cases));
    sandbox.bellows(&["run", &path, "--json"]).fine();
    for case in &cases {
        for seen in tshark(&sandbox.path(&format!("{}.pcap", case.name)), &case.options).iter().take(2) {
            println!("{} {} {:?} {}", case.name, seen.protocols, seen.wrong, &seen.payload[..seen.payload.len().min(20)]);
        }
        let dump = programs::run(Command::new("tcpdump").args(["-nevvr"]).arg(sandbox.path(&format!("{}.pcap", case.name)))).unwrap();
        println!("{}", dump.lines().take(4).collect::<Vec<_>>().join("\n"));
    }
}
