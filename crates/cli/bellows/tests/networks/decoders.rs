//! What Bellows sends, judged by tcpdump and tshark: both decode all of it and find every checksum right, and tshark sees
//! inside of each tunnel what went into it. It also opens ESP, with the keys.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::support::Sandbox;
use bellows_exercise::tunnel_examples::{SessionExample, TUNNELS};
use bellows_testkit::programs;
use bellows_testkit::skips::is_skipped;

/// Packets of each source.
const COUNT: usize = 30;

/// What goes into the tunnels: frames with IPv4, and with IPv6. Those in transport mode have the same ends.
const SOURCES: [(&str, &str); 2] = [
    ("v4", "headers = \"ipv4\", src = \"192.0.2.1\", dst = \"192.0.2.2\""),
    ("v6", "headers = \"ipv6\", src = \"2001:db8::1\", dst = \"2001:db8::2\""),
];

const V4: &str = "local = \"192.0.2.1\"\nremote = \"192.0.2.2\"\n";
const V6: &str = "local = \"2001:db8::1\"\nremote = \"2001:db8::2\"\n";

/// An app, and what both programs should see of what it sends.
#[derive(Default)]
struct Case {
    name: String,
    app: &'static str,
    keys: String,
    /// Where packets go in, and where they come out.
    ports: [&'static str; 2],
    /// The sources of what it sends.
    sources: Vec<&'static str>,
    /// Options of tshark.
    options: Vec<String>,
    /// What tcpdump says of each packet.
    said: String,
    /// The protocols of each packet, up to the innermost header of IP, as tshark names them.
    protocols: String,
    /// The SPI of its packets, and whether their ICV can be verified.
    esp: Option<(u32, bool)>,
}

impl Case {
    /// A session of a tunnel.
    fn tunnel(app: &'static str, is_v6: bool, keys: &str, said: &str, protocols: &str) -> Case {
        let name = format!("{app}-{}", said.replace(|one: char| !one.is_ascii_alphanumeric(), ""));
        let (family, ends) = if is_v6 { ("ip6", V6) } else { ("ip4", V4) };
        Case {
            name,
            app,
            keys: format!("sessions.it = {{ {} }}", format!("{ends}{keys}").replace('\n', ", ")),
            ports: ["it", family],
            sources: vec!["v4", "v6"],
            said: said.to_owned(),
            protocols: format!("eth:ethertype:{}:{protocols}", if is_v6 { "ipv6" } else { "ip" }),
            ..Case::default()
        }
    }

    fn options(self, options: &[&str]) -> Case {
        Case { options: options.iter().map(|option| (*option).to_owned()).collect(), ..self }
    }
}

/// All tunnels, and VLANs.
fn tunnels() -> Vec<Case> {
    let vlans = |keys: &str, said: &str, protocols: &str| Case {
        name: format!("vlan{}", said.len()),
        app: "vlan-tag",
        keys: keys.to_owned(),
        ports: ["input", "output"],
        sources: vec!["v4", "v6"],
        said: said.to_owned(),
        protocols: protocols.to_owned(),
        ..Case::default()
    };
    let examples = TUNNELS.iter().flat_map(|tunnel| tunnel.sessions.iter().map(|session| (tunnel.app, session)));
    let shown = examples.filter(|(_, session)| !session.tcpdump.is_empty());
    let tunnel = |(app, session): (&'static str, &SessionExample)| {
        let keys = session.keys.join("\n");
        Case::tunnel(app, session.is_v6, &keys, session.tcpdump, session.tshark).options(session.tshark_options)
    };
    let vlans = [
        vlans("vlan = 100\npriority = 5", "vlan 100, p 5", "eth:ethertype:vlan:ethertype"),
        vlans(
            "vlan = 100\nservice_vlan = 200",
            "ethertype 802.1Q-QinQ (0x88a8), length",
            "eth:ethertype:ieee8021ad:ethertype:vlan:ethertype",
        ),
    ];
    shown.map(tunnel).chain(vlans).collect()
}

/// ESP in each mode, with each cipher, over both families, with and without ESN and UDP.
fn ciphers() -> Vec<Case> {
    let mut cases = Vec::new();
    for (algorithm, length) in [("aes-128-gcm", 20), ("aes-256-gcm", 36), ("chacha20-poly1305", 36)] {
        for number in 0..16u32 {
            let [is_v6, esn, udp, is_transport] = [1, 2, 4, 8].map(|bit| number & bit != 0);
            let spi = 0x1000 + 2 * cases.len() as u32;
            let key = |spi: u32| format!("{spi:08x}{}", "5a".repeat(length - 4));
            let direction = |spi: u32| {
                format!("{{ spi = {spi}, algorithm = \"{algorithm}\", esn = {esn}, key = \"{}\" }}", key(spi))
            };
            let (family, name, ends) = if is_v6 { ("ip6", "IPv6", V6) } else { ("ip4", "IPv4", V4) };
            let mode = if is_transport { "transport" } else { "tunnel" };
            let mut keys = format!("[apps.esp{spi}.associations.it]\n{ends}mode = \"{mode}\"\n");
            let _ = writeln!(keys, "outbound = {}\ninbound = {}", direction(spi), direction(spi + 1));
            if udp {
                keys.push_str("udp = {}\n");
            }
            let mut addresses = ends.split('"').skip(1).step_by(2);
            let [src, dst] = [addresses.next().unwrap(), addresses.next().unwrap()];
            // Its releases up to 4.0 have neither ChaCha20-Poly1305 for ESP, nor the upper half of sequence numbers.
            let is_open = algorithm != "chacha20-poly1305";
            let association = format!(
                "uat:esp_sa:\"{name}\",\"{src}\",\"{dst}\",\"{spi:#010x}\",\"AES-GCM with 16 octet ICV [RFC4106]\",\
                 \"0x{}\",\"NULL\",\"\"",
                key(spi)
            );
            let outer = if is_v6 { "ipv6" } else { "ip" };
            cases.push(Case {
                name: format!("esp{spi}"),
                app: "esp",
                keys,
                ports: ["it", family],
                sources: match (is_transport, is_v6) {
                    (false, _) => vec!["v4", "v6"],
                    (true, false) => vec!["v4"],
                    (true, true) => vec!["v6"],
                },
                options: if is_open { vec!["-o".to_owned(), association] } else { Vec::new() },
                said: format!("{}ESP(spi={spi:#010x},seq=", if udp { "UDP-encap: " } else { "" }),
                protocols: format!("eth:ethertype:{outer}{}:esp", if udp { ":udp:udpencap" } else { "" }),
                esp: Some((spi, is_open && !esn)),
            });
        }
    }
    cases
}

/// The network: each app has the packets of its sources, and captures get what was sent, all in one or each its own.
fn network(cases: &[Case], is_one: bool) -> String {
    let (mut links, mut apps) = (Vec::new(), String::new());
    for (name, keys) in SOURCES {
        links.push(format!("{name}.output -> {name}-copies.input"));
        links.push(format!("{name}-copies.clear -> {name}-clear.input"));
        let _ = writeln!(
            apps,
            "apps.{name} = {{ app = \"source\", {keys}, payload = \"random\", sizes = [90, 570, 1400], count = {COUNT}, \
             src_port = 40000 }}\napps.{name}-copies.app = \"tee\"\n\
             apps.{name}-clear = {{ app = \"pcap-writer\", path = \"{name}.pcap\" }}"
        );
    }
    let mut writers = Vec::new();
    for Case { name, app, keys, ports: [input, output], sources, .. } in cases {
        let writer = if is_one { "all" } else { name };
        writers.push(writer);
        links.extend(sources.iter().map(|source| format!("{source}-copies.{name} -> {name}-in.{source}")));
        links.push(format!("{name}-in.output -> {name}.{input}"));
        links.push(format!("{name}.{output} -> {writer}-sent.{name}"));
        let _ = writeln!(apps, "[apps.{name}-in]\napp = \"join\"\n[apps.{name}]\napp = \"{app}\"\n{keys}");
    }
    writers.dedup();
    for name in writers {
        links.push(format!("{name}-sent.output -> {name}-capture.input"));
        let _ = writeln!(apps, "[apps.{name}-sent]\napp = \"join\"");
        let _ = writeln!(apps, "[apps.{name}-capture]\napp = \"pcap-writer\"\npath = \"{name}.pcap\"");
    }
    format!("links = {links:#?}\n{apps}[engine]\nlossless = true\n")
}

/// A packet as tshark sees it.
#[derive(Debug)]
struct Seen {
    protocols: String,
    spi: Option<u32>,
    is_icv_good: bool,
    /// The payload of the innermost UDP datagram.
    payload: String,
    /// What is wrong with it, if anything: that it is malformed, or what tshark warns of.
    wrong: Option<String>,
}

/// The severity of warnings; what is worse is above.
const WARNING: u64 = 0x60_0000;

/// What tshark sees in a capture.
fn tshark(path: &Path, options: &[String]) -> Vec<Seen> {
    let mut command = Command::new(programs::find_program("tshark").unwrap());
    command.args(["-n", "-r"]).arg(path).args(options);
    for option in ["ip.check_checksum", "udp.check_checksum", "esp.enable_encryption_decode"] {
        command.arg("-o").arg(format!("{option}:TRUE"));
    }
    command.args(["-o", "esp.enable_authentication_check:TRUE", "-T", "fields", "-E", "separator=;"]);
    for field in ["frame.protocols", "esp.spi", "esp.icv_good", "udp.payload", "_ws.malformed", "_ws.expert.severity"] {
        command.args(["-e", field]);
    }
    let said = programs::run(command.args(["-e", "_ws.expert.message"])).unwrap_or_else(|error| panic!("{error}"));
    let packet = |line: &str| {
        let fields: Vec<&str> = line.splitn(7, ';').collect();
        let [protocols, spi, icv, payload, malformed, severities, messages] = fields[..] else { panic!("{line}") };
        let is_severe = |text: &str| !text.is_empty() && text.parse::<u64>().unwrap() >= WARNING;
        let is_wrong = !malformed.is_empty() || severities.split(',').any(is_severe);
        Seen {
            protocols: protocols.to_owned(),
            spi: u32::from_str_radix(spi.trim_start_matches("0x"), 16).ok(),
            is_icv_good: icv == "1",
            payload: payload.rsplit(',').next().unwrap().to_owned(),
            wrong: is_wrong.then(|| format!("{malformed} {messages}")),
        }
    };
    said.lines().map(packet).collect()
}

/// What tcpdump prints of a capture.
fn tcpdump(path: &Path) -> String {
    let mut command = Command::new(programs::find_program("tcpdump").unwrap());
    programs::run(command.args(["-nevvr"]).arg(path)).unwrap_or_else(|error| panic!("{error}"))
}

/// Words with which tcpdump says that something is wrong.
const COMPLAINTS: [&str; 6] = ["bad ", "invalid", "[|", "truncated", "incorrect", "illegal"];

/// Runs a network, and has both programs judge what each app has sent.
fn judge(cases: &[Case], is_one: bool) {
    let sandbox = Sandbox::new();
    let path = sandbox.write("network.toml", &network(cases, is_one));
    sandbox.bellows(&["run", &path]).success();
    let capture = |name: &str| sandbox.path(&format!("{name}.pcap"));
    let clear = |name: &str| tshark(&capture(name), &[]).into_iter().map(|seen| seen.payload).collect::<Vec<_>>();
    let clear = SOURCES.map(|(name, _)| (name, clear(name)));
    let look = |name: &str, options: &[String]| (tshark(&capture(name), options), tcpdump(&capture(name)));
    let all = is_one.then(|| look("all", &cases.iter().flat_map(|case| case.options.clone()).collect::<Vec<_>>()));
    for case in cases {
        let own = all.is_none().then(|| look(&case.name, &case.options));
        let (packets, said) = own.as_ref().or(all.as_ref()).unwrap();
        let is_own = |seen: &&Seen| case.esp.is_none_or(|(spi, _)| seen.spi == Some(spi));
        let packets: Vec<&Seen> = packets.iter().filter(is_own).collect();
        let Case { name, sources, protocols, .. } = case;
        assert_eq!(packets.len(), COUNT * sources.len(), "{name}");
        assert_eq!(said.matches(&case.said).count(), packets.len(), "{name}: {said}");
        for complaint in COMPLAINTS {
            assert!(!said.contains(complaint), "{name}: {complaint} in {said}");
        }
        let is_open = case.esp.is_none() || !case.options.is_empty();
        for seen in &packets {
            assert_eq!(seen.wrong, None, "{name}: {seen:?}");
            let inner = seen.protocols.strip_prefix(protocols.as_str()).unwrap_or_else(|| panic!("{name}: {seen:?}"));
            match is_open {
                true if name.starts_with("esp") && sources.len() == 1 => assert_eq!(inner, ":udp:data", "{name}"),
                true => assert!([":ip:udp:data", ":ipv6:udp:data"].contains(&inner), "{name}: {seen:?}"),
                false => assert_eq!(inner, "", "{name}"),
            }
            assert_eq!(seen.is_icv_good, case.esp.is_some_and(|(_, is_verified)| is_verified), "{name}: {seen:?}");
        }
        if is_open {
            let mut found: Vec<&String> = packets.iter().map(|seen| &seen.payload).collect();
            let into_it = clear.iter().filter(|(name, _)| sources.contains(name));
            let mut expected: Vec<&String> = into_it.flat_map(|(_, payloads)| payloads).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{name}");
        }
    }
}

/// Whether a test is skipped, because one of both is missing.
fn is_missing(test: &str) -> bool {
    is_skipped(test, programs::missing(&["tcpdump", "tshark"]))
}

#[test]
fn tunnels_and_vlans_are_decoded() {
    if !is_missing("decoders::tunnels_and_vlans_are_decoded") {
        judge(&tunnels(), false);
    }
}

#[test]
fn esp_is_opened_with_the_keys() {
    if !is_missing("decoders::esp_is_opened_with_the_keys") {
        judge(&ciphers(), true);
    }
}

#[test]
fn decoders_see_what_is_wrong() {
    if is_missing("decoders::decoders_see_what_is_wrong") {
        return;
    }
    let sandbox = Sandbox::new();
    let case = Case::tunnel("vxlan", true, "vni = 6\nchecksum = true", "udp sum ok", "udp");
    let text = network(&[case], true)
        .replace("[apps.all-sent]\napp = \"join\"", "[apps.all-sent]\napp = \"impair\"\ncorrupt = 1");
    let text = text.replace("all-sent.vxlan-udpsumok", "all-sent.input");
    let path = sandbox.write("network.toml", &text);
    sandbox.bellows(&["run", &path]).success();
    let wrong = tshark(&sandbox.path("all.pcap"), &[]).iter().filter(|seen| seen.wrong.is_some()).count();
    // A bit of an Ethernet address harms nobody.
    assert!(wrong > COUNT, "{wrong}");
    assert!(tcpdump(&sandbox.path("all.pcap")).contains("bad udp cksum"));
}
