//! `bellows check` finds everything that keeps a network from starting, and `run` rejects it with the same words.

use std::fs;

use crate::support::{IDLE, Sandbox};
use serde_json::json;

/// Two writers on one file, a reader of a file that is being written, impossible sockets, and a missing processor.
const IN_EACH_OTHERS_WAY: &str = r#"
links = [
  "gen -> copy",
  "copy -> one",
  "copy -> two",
  "copy.three -> guest.input",
  "copy.four -> other.input",
]
[engine]
cpu = 4095
[apps.gen]
app = "source"
count = 10
rate = "10gb/s"
[apps.copy]
app = "tee"
[apps.one]
app = "pcap-writer"
path = "old.pcap"
rotate = "1MB"
[apps.two]
app = "pcap-writer"
path = "./old.pcap"
[apps.guest]
app = "vhost-user"
socket = "no/such/folder/socket"
mac = "02:00"
[apps.other]
app = "vhost-user"
socket = "old.pcap"
"#;

#[test]
fn run_refuses_with_the_words_of_check_and_touches_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("old.pcap", "precious");
    let network = sandbox.write("net.toml", IN_EACH_OTHERS_WAY);
    let checked = sandbox.bellows(&["check", &network]);
    let run = sandbox.bellows(&["run", &network]);
    assert_eq!((checked.code, run.code), (Some(2), Some(2)), "{checked:?}");
    assert_eq!((checked.stdout.as_str(), run.stdout.as_str()), ("", ""));
    assert_eq!(checked.stderr, run.stderr);
    for expected in [
        "there is no processor 4095 for this process",
        "`10gb/s` is not a rate",
        "did you mean `10Gb/s`?",
        "`two`: `one` and `two` write the same file",
        "there is no folder",
        "`02:00` is not an Ethernet address",
        "exists and is not a socket",
    ] {
        assert!(checked.stderr.contains(expected), "no {expected:?} in\n{}", checked.stderr);
    }
    assert_eq!(checked.stderr.matches("02:00:00:00:00:01").count(), 1, "{}", checked.stderr);
    assert_eq!(fs::read_to_string(sandbox.path("old.pcap")).unwrap(), "precious");
    assert!(!sandbox.path("run/bellows").exists(), "nothing was started");
}

/// A router with a mistake in each of several places, and a file of routes with many.
const ROUTER: &str = r#"
links = ["in.output -> router.lan", "router.lan -> out.input"]
[apps.in]
app = "source"
count = 10
[apps.out]
app = "sink"
[apps.router]
app = "router"
file = "routes.txt"
[apps.router.interfaces.lan]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24", "198.51.100.1/24"]
neighbours = { "192.0.2.7" = "04:00:00:00:00:07" }
access_in = ["permit"]
"#;

#[test]
fn mistakes_in_a_routers_keys_and_files_are_shown_where_they_are() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("net.toml", ROUTER);
    let check = |text: &str, routes: &str| {
        sandbox.write("net.toml", text);
        sandbox.write("routes.txt", routes);
        sandbox.bellows(&["check", &network])
    };
    let fine = check(ROUTER, "# none\n203.0.113.0/24 via 192.0.2.9\n");
    assert_eq!(fine.code, Some(0), "{fine:?}");
    for (wrong, right, line, marked) in [
        ("\"198.51.100.1/33\"", "\"198.51.100.1/24\"", 13, "^^^^^^^^^^^^^^^^^"),
        ("\"192.0.3.7\" = ", "\"192.0.2.7\" = ", 14, "is not on the link of `lan`"),
        ("\"permit tcp prot 7\"", "\"permit\"", 15, "^^^^"),
        ("\"02:00:00\"", "\"02:00:00:00:00:01\"", 12, "^^^^^^^^^^"),
    ] {
        let said = check(&ROUTER.replace(right, wrong), "").stderr;
        assert!(said.contains(&format!("net.toml:{line}:")) && said.contains(marked), "{wrong}:\n{said}");
    }
    let lines = ["10.0.0.0/8 via 192.0.2.9", "10.0.0.0/33 via 192.0.2.9", "", "  11.0.0.0/8 dev lam"];
    let routes = [&lines.join("\n"), "\n", &"nonsense\n".repeat(30)].concat();
    let said = check(ROUTER, &routes);
    assert_eq!(said.code, Some(2), "{said:?}");
    for expected in [
        "routes.txt:2:1",
        "2 | 10.0.0.0/33 via 192.0.2.9\n",
        "routes.txt:4:18",
        "did you mean `lan`?",
        "`router/vrf` reads it",
        "has 12 more",
    ] {
        assert!(said.stderr.contains(expected), "no {expected:?} in\n{}", said.stderr);
    }
    assert_eq!(said.stderr.matches("error: ").count(), 21, "{}", said.stderr);
}

#[test]
fn rules_that_a_user_would_misread_are_told() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("net.toml", "");
    let check = |rules: &str| {
        sandbox.write("routes.txt", "");
        sandbox.write("net.toml", &ROUTER.replace("[\"permit\"]", &format!("[{rules}]")));
        let said = sandbox.bellows(&["check", &network]);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stderr
    };
    for fine in [
        "\"permit\"",
        "\"deny tcp dst port 22\", \"permit icmp or icmp6\", \"permit\"",
        "\"permit tcp src or dst port 179\", \"permit ip6[6] = 44 and ip6[42:2] & 0xfff8 != 0\"",
    ] {
        assert_eq!(check(fine), "", "{fine}");
    }
    for (rules, marked, message) in [
        ("\"permit tcp port 22\"", "tcp port 22", "also permits packets from this port"),
        ("\"permit port 53\"", "port 53", "of TCP, UDP and SCTP"),
        ("\"deny tcp dst port 22\"", "tcp dst port 22", "no rule permits anything"),
        ("\"permit\", \"deny udp\"", "udp", "no packet comes to this rule"),
        ("\"permit tcp\", \"deny tcp dst port 22\"", "tcp dst port 22", "no packet comes to this rule"),
        ("\"deny ip and ip6\", \"permit\"", "ip and ip6", "matches no packet"),
        ("\"deny tcp or udp and dst port 53\", \"permit\"", "tcp or udp and dst port 53", "from left to right"),
        ("\"deny icmp\", \"permit\"", "icmp", "IPv4 alone"),
        ("\"deny ip proto 6\", \"permit\"", "ip proto 6", "IPv6"),
        ("\"deny ip6[6] = 6\", \"permit\"", "ip6[6]", "need not be the upper layer"),
        ("\"deny tcp[tcpflags] = tcp-syn\", \"permit\"", "tcp[tcpflags] = tcp-syn", "ECN"),
        ("\"deny ip[20:2] = 22\", \"permit\"", "ip[20:2]", "options"),
        ("\"deny vlan 5\", \"permit\"", "vlan 5", "without VLAN tags"),
        ("\"deny arp\", \"permit\"", "arp", "only IP packets"),
        ("\"permit tcp and dst 22\"", "dst 22", "not a port"),
        ("\"permit src host 10.1\"", "src host 10.1", "stands for a network"),
    ] {
        let said = check(rules);
        assert!(said.contains(message) && said.contains("net.toml:15:"), "{rules}: {message}:\n{said}");
        assert!(said.contains(&"^".repeat(marked.len())), "{rules}: {marked}:\n{said}");
    }
    let text = "links = [\"in.output -> list.input\", \"list.output -> out.input\"]\n[apps.in]\napp = \"source\"\ncount = 1\n\
                [apps.out]\napp = \"sink\"\n[apps.list]\napp = \"access-list\"\nrules = [RULES]\n";
    for (rules, message) in [
        ("\"deny host 10.0.0.1\", \"permit\"", "also refuses ARP"),
        ("\"permit not tcp dst port 22\"", "such as ARP"),
        ("\"deny ether[12:2] = 0x0800\", \"permit\"", "VLAN tags may be here"),
    ] {
        sandbox.write("list.toml", &text.replace("RULES", rules));
        let said = sandbox.bellows(&["check", "list.toml"]).stderr;
        assert!(said.contains(message) && said.contains("list.toml:9:"), "{rules}: {message}:\n{said}");
    }
}

#[test]
fn several_networks_are_checked_at_once() {
    let sandbox = Sandbox::new();
    sandbox.write("good.toml", IDLE);
    sandbox.write("bad.toml", &IDLE.replace("size = 60", "size = 0"));
    let said = sandbox.bellows(&["check", "good.toml", "bad.toml", "missing.toml", "good.toml"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert_eq!(said.stdout, "good.toml: fine (2 apps, 1 link)\n".repeat(2));
    assert!(said.stderr.contains("bad.toml:5") && said.stderr.contains("cannot read `missing.toml`"), "{said:?}");
    assert_eq!(sandbox.bellows(&["check", "good.toml", "good.toml"]).success().stderr, "");
    let said = sandbox.bellows(&["check", "--json", "good.toml", "bad.toml"]);
    let oks: Vec<_> = said.json().as_array().unwrap().iter().map(|result| result["ok"].clone()).collect();
    assert_eq!((said.code, oks), (Some(2), vec![json!(true), json!(false)]));
    assert_eq!(sandbox.bellows(&["check", "--json", "good.toml"]).success().json()["ok"], true);
}

#[test]
fn a_path_that_is_set_is_relative_to_the_shell() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("nets")).unwrap();
    let text = "links = [\"gen -> out\"]\n[apps.gen]\napp = \"source\"\ncount = 3\n\
                [apps.out]\napp = \"pcap-writer\"\npath = \"out.pcap\"\n";
    sandbox.write("nets/net.toml", text);
    sandbox.bellows(&["run", "nets/net.toml"]).success();
    sandbox.bellows(&["run", "nets/net.toml", "--set", "apps.out.path=mine.pcap"]).success();
    let there = |name: &str| sandbox.path(name).exists();
    assert!(there("nets/out.pcap") && there("mine.pcap") && !there("nets/mine.pcap"));
}

#[test]
fn a_key_of_the_file_is_taken_out_from_the_command_line() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("limited.toml", &IDLE.replace("rate = 0.0003", "rate = 0.0003\ncount = 5"));
    let words = ["run", &network, "--json", "--set", "apps.source.rate="];
    let report = sandbox.bellows(&words).success().json();
    assert_eq!(report["links"][0]["packets"], json!(5), "without its rate it is done at once");
    let help = sandbox.bellows(&["run", "--help"]).success().stdout;
    assert!(help.contains("KEY="), "{help}");
    let said = sandbox.bellows(&["check", &network, "--set", "apps.source.raet="]).success();
    assert!(said.stderr.contains("did you mean `rate`?"), "{said:#?}");
}

#[test]
fn a_missing_processor_is_an_error_that_lists_the_available_ones() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("idle.toml", &IDLE.replace("[apps.source]", "[engine]\ncpu = 4095\n[apps.source]"));
    for words in [&["run", &network, "--cpu", "4095"][..], &["bench", "vring", "--cpu", "4095"]] {
        let said = sandbox.bellows(words);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains("there is no processor 4095 for this process; it may use 0"), "{said:?}");
    }
    // The command line overrides the file.
    sandbox.bellows(&["run", &network, "--cpu", "0", "--duration", "50ms"]).success();
}

#[test]
fn the_schema_is_printed_whole() {
    let sandbox = Sandbox::new();
    let schema = sandbox.bellows(&["schema"]).success().json();
    assert_eq!(schema["$defs"]["app.source"]["properties"]["app"]["const"], "source");
    let help = sandbox.bellows(&["schema", "--help"]).success().stdout;
    assert!(help.contains("#:schema ./bellows.schema.json"), "{help}");
}

/// Each wrong value of these networks, with what is said of it. Nothing else is said.
const ALL_AT_ONCE: &[(&str, &[&str])] = &[
    (
        r#"
links = ["in.output -> list.input", "list.output -> out.input"]
[apps.in]
app = "source"
count = 1
[apps.out]
app = "sink"
[apps.list]
app = "access-list"
rules = ["allow tcp", "permit icmp", "deny tcp prot 7", "permit src host nowhere", "permit"]
"#,
        &["`allow tcp`: ", "`deny tcp prot 7`: ", "`permit src host nowhere`: "],
    ),
    (
        r#"
links = ["in.output -> router.lan", "router.lan -> out.input"]
[apps.in]
app = "source"
count = 1
[apps.out]
app = "sink"
[apps.router]
app = "router"
routes = ["kernal:main", "10.0.0.0/8 via 192.0.2.9", "11.0.0.0/8 dev b", "12.0.0.0/33 via 192.0.2.9", "13.0.0.0/8 via 224.0.0.5 dev lan"]
[apps.router.interfaces.lan]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
"#,
        &["did you mean `kernel:main`?", "the interfaces are `lan`", "12.0.0.0/33", "the multicast address 224.0.0.5"],
    ),
    (
        r#"
links = ["in.output -> router.lan", "router.lan -> out.input"]
[apps.in]
app = "source"
count = 1
[apps.out]
app = "sink"
[apps.router]
app = "router"
[apps.router.interfaces.lan]
mac = "02:00:00:00:00:01"
addresses = ["224.0.0.1/24", "192.0.2.1/24", "nonsense", "127.0.0.1/8"]
[apps.router.interfaces.wan]
mac = "03:00:00:00:00:01"
addresses = ["198.51.100.1/24"]
"#,
        &[
            "`224.0.0.1/24` is a multicast address",
            "`nonsense` is not an interface's address",
            "`127.0.0.1/8` is a loopback address",
            "03:00:00:00:00:01 is a multicast address",
            "`router.wan` is not linked",
        ],
    ),
    (
        r#"
links = ["in.output -> router.lan", "router.lan -> out.input"]
[apps.in]
app = "source"
count = 1
[apps.out]
app = "sink"
[apps.router]
app = "router"
services = [{ to = "bgp", protocol = "tpc", port = 179 }, { to = "esp", protocol = "epsilon" }]
[apps.router.interfaces.lan]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
"#,
        &["`tpc` is no protocol", "`epsilon` is no protocol"],
    ),
    ("links = []\n[apps.e\napp = \"sink\"\n", &["close the table's name with `]`"]),
];

#[test]
fn all_errors_are_told_at_once_and_each_once() {
    let sandbox = Sandbox::new();
    for (text, expected) in ALL_AT_ONCE {
        let network = sandbox.write("net.toml", text);
        let said = sandbox.bellows(&["check", &network]);
        assert_eq!(said.code, Some(2), "{said:?}");
        for part in *expected {
            assert!(said.stderr.contains(part), "no {part:?} in\n{}", said.stderr);
        }
        assert_eq!(said.stderr.matches("error: ").count(), expected.len(), "{}", said.stderr);
        assert!(!said.stderr.contains("bellows show"), "no network runs:\n{}", said.stderr);
    }
}

#[test]
fn exit_codes_have_one_table() {
    let sandbox = Sandbox::new();
    let help = |words: &[&str]| -> Vec<(String, String)> {
        let text = sandbox.bellows(words).success().stdout;
        let (_, table) = text.split_once("Exit codes:\n").expect("a table");
        let mut codes: Vec<(String, String)> = Vec::new();
        for line in table.lines().take_while(|line| !line.is_empty()) {
            assert!(line.chars().count() <= 80, "{line}");
            match (line.split_at_checked(5), codes.last_mut()) {
                (Some((code, meaning)), _) if !code.trim().is_empty() => {
                    codes.push((code.trim().to_owned(), meaning.to_owned()));
                }
                (Some((_, more)), Some((_, meaning))) => *meaning += &format!(" {more}"),
                _ => {}
            }
        }
        codes
    };
    let codes = help(&["--help"]);
    assert_eq!(codes, help(&["run", "--help"]));
    assert_eq!(codes, help(&["ps", "--help"]));
    let page = fs::read_to_string(crate::support::root().join("docs/operating.md")).unwrap();
    let (_, section) = page.split_once("## Exit codes\n").unwrap();
    let rows = section.split("\n## ").next().unwrap().lines().filter_map(|line| {
        let (code, meaning) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        code.parse::<u8>().is_ok().then(|| (code.to_owned(), meaning.to_owned()))
    });
    assert_eq!(codes, rows.collect::<Vec<_>>());
    // What happens is in the table.
    let network = sandbox.write("net.toml", IDLE);
    let broken = sandbox.write(
        "broken.toml",
        "links = [\"r -> s\"]\n[apps.r]\napp = \"pcap-reader\"\npath = \"b.pcap\"\n[apps.s]\napp = \"sink\"\n",
    );
    let mut capture = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0].to_vec();
    capture.extend([0; 12]);
    capture[16..20].copy_from_slice(&65_535u32.to_le_bytes());
    capture.extend([1, 0, 0, 0, 9]);
    fs::write(sandbox.path("b.pcap"), capture).unwrap();
    let running = sandbox.start(&[&network]);
    for (words, code) in [
        (&["check", &network][..], 0),
        (&["run", &broken], 1),
        (&["run", "none.toml"], 2),
        (&["rnu"], 2),
        (&["show", "nobody"], 2),
        (&["ps", "--probe"], 0),
        (&["ps", "--probe", "nobody"], 2),
    ] {
        let said = sandbox.bellows(words);
        assert_eq!(said.code, Some(code), "{words:?}: {said:?}");
        assert!(codes.iter().any(|(known, _)| *known == code.to_string()), "{code}");
        assert!(words != ["rnu"] || said.stderr.contains("'run'"), "{said:?}");
    }
    running.signal(crate::support::Signal::KILL);
    running.wait();
    assert_eq!(sandbox.bellows(&["ps", "--probe"]).code, Some(12));
}

#[test]
fn a_missing_interface_names_the_key_that_waits_for_it() {
    if !rustix::process::geteuid().is_root() {
        return bellows_testkit::skip("a_missing_interface_names_the_key_that_waits_for_it", "not root");
    }
    let sandbox = Sandbox::new();
    let text = "links = [\"port.output -> end.input\"]\n[apps.port]\napp = \"raw-socket\"\ninterface = \"none0\"\n\
                [apps.end]\napp = \"sink\"\n";
    let said = sandbox.bellows(&["run", &sandbox.write("net.toml", text)]);
    assert_eq!(said.stderr.matches("`wait = true` starts without it").count(), 1, "{said:?}");
}

#[test]
fn files_that_are_not_there_are_told_in_one_sentence_everywhere() {
    let sandbox = Sandbox::new();
    let app = |keys: &str| {
        format!(
            "links = [\"a.output -> b.input\"]\napps.a.app = \"source\"\napps.b.app = \"sink\"\napps.c = {{ {keys} }}\n"
        )
    };
    let (key, more) = ("algorithm = \"aes-128-gcm\", key_file = \"none.it\"", "local = \"192.0.2.1\"");
    let networks = [
        "include = [\"none.it\"]\n".to_owned(),
        app("network = \"none.it\""),
        app("app = \"pcap-reader\", path = \"none.it\""),
        app("app = \"pcap-filter\", file = \"none.it\""),
        app("app = \"router\", interfaces.x.mac = \"02:00:00:00:00:01\", file = \"none.it\""),
        app("app = \"rss\"") + "[objects.v]\nobject = \"vrf\"\ninterfaces = {}\nfile = \"none.it\"\n",
        app(&format!(
            "app = \"esp\", {more}, associations.x = {{ remote = \"192.0.2.2\", inbound = {{ spi = 300, {key} }}, \
             outbound = {{ spi = 301, {key} }} }}"
        )),
    ];
    for text in networks {
        let path = sandbox.write("net.toml", &text);
        let said = sandbox.bellows(&["check", &path]);
        let wanted = "none.it`: it does not exist\n";
        assert!(said.stderr.contains("cannot read `") && said.stderr.contains(wanted), "{text}{}", said.stderr);
        assert!(said.stderr.contains("= help: check the path, or create the file"), "{}", said.stderr);
    }
    let commands: [&[&str]; 12] = [
        &["run", "none.it"],
        &["check", "none.it"],
        &["graph", "none.it"],
        &["filter", "ip", "-r", "none.it"],
        &["campaign", "run", "none.it"],
        &["campaign", "report", "none.it"],
        &["campaign", "import", "none.it", "out"],
        &["metrics", "--listen", "127.0.0.1:0", "--token-file", "none.it"],
        &["web", "--listen", "127.0.0.1:0", "--token-file", "none.it"],
        &["appbench", "sink", "--traffic", "./none.it"],
        &["appbench", "--network", "none.it", "--app", "a"],
        &["campaign", "compare", "none.it"],
    ];
    for words in commands {
        let said = sandbox.bellows(words);
        assert_eq!(said.code, Some(2), "{words:?}: {said:?}");
        let wanted = "none.it`: it does not exist";
        assert!(said.stderr.contains("cannot read `") && said.stderr.contains(wanted), "{words:?}: {}", said.stderr);
        assert!(said.stderr.contains("check the path, or create the file"), "{words:?}: {}", said.stderr);
    }
    let network = sandbox.write("net.toml", IDLE);
    let writer = app("app = \"pcap-writer\", path = \"no/x.svg\"");
    let writer = sandbox.write("writer.toml", &writer);
    for words in [&["graph", &network, "-o", "no/x.svg"][..], &["metrics", "--file", "no/x.svg"], &["check", &writer]] {
        let said = sandbox.bellows(words);
        // A file that a network names is in the network's folder.
        let is_told = said.stderr.contains("cannot write `") && said.stderr.contains("no/x.svg`: there is no folder `");
        assert!(said.code != Some(0) && is_told, "{words:?}: {}", said.stderr);
        assert!(said.stderr.contains("check the path, or create the folder"), "{words:?}: {}", said.stderr);
    }
}

/// Mistakes of different kinds in one app: none hides another.
#[test]
fn a_value_of_a_wrong_type_hides_no_other_mistake_of_its_table() {
    let sandbox = Sandbox::new();
    let domain = |keys: &str| {
        let text = format!(
            "links = [\"in.output -> r.lan\", \"r.lan -> out.input\"]\napps.in.app = \"source\"\napps.out.app = \"sink\"\n\
             [apps.r]\napp = \"router\"\n{keys}"
        );
        sandbox.write("net.toml", &text)
    };
    let lan = "[apps.r.interfaces.lan]\nmac = \"02:00:00:00:00:01\"\naddresses = [\"192.0.2.1/24\"]\n";
    let cases: [(String, &[&str]); 6] = [
        // A list with one item of a wrong type.
        (
            format!("routes = [\"198.51.100.0/33 via 192.0.2.9\", 7, \"default via 192.0.2\"]\n{lan}"),
            &["198.51.100.0/33", "`routes[1]` must be text", "192.0.2`"],
        ),
        // An unknown key, a wrong value, a wrong address and a wrong route.
        (
            format!("colour = 1\nneighbours = 3\nroutes = [\"default via x\"]\n{lan}access_in = [\"permt tcp\"]\n"),
            &["has no key `colour`", "`neighbours` must be", "`x`", "permt"],
        ),
        // Mistakes in several tables inside: of the schema in one, and of the app in others.
        (
            format!(
                "{lan}mtu = \"long\"\n[apps.r.interfaces.wan]\nmac = \"02:00\"\nadresses = []\n[apps.r.interfaces.dmz]\n\
                 mac = \"02:00:00:00:00:03\"\naddresses = [\"203.0.113.1/40\"]\n"
            ),
            &[
                "interfaces.lan.mtu` must be",
                "has no key `interfaces.wan.adresses`",
                "\"02:00\" is not",
                "203.0.113.1/40",
            ],
        ),
        // A rule that lacks a key, and one with an unknown one.
        (
            format!("services = [{{ port = 3 }}, {{ to = \"a\", prot = \"udp\" }}]\n{lan}"),
            &["needs the key `services[0].to`", "has no key `services[1].prot`"],
        ),
        // Rules of which one is wrong by the schema, and others by what they say; and keys of parts.
        (
            format!(
                "services = [{{ port = 3 }}, {{ to = \"a\", protocol = \"udpp\" }}, {{ to = \"b\", port = 4 }}]\n\
                 routes = [\"kernal:main\"]\nparts.arp.colour = 1\nparts.ip4-dispatch.rules = 3\n{lan}"
            ),
            &[
                "needs the key `services[0].to`",
                "udpp",
                "a port needs a protocol",
                "kernal",
                "has no key `colour`",
                "`rules` must be",
            ],
        ),
        // An interface that is left out is needed by others.
        (
            format!(
                "routes = [\"198.51.100.0/24 via 203.0.113.9\"]\n{lan}[apps.r.interfaces.wan]\nmac = 7\naddresses = [\"203.0.113.1/24\"]\n"
            ),
            &["`interfaces.wan.mac` must be"],
        ),
    ];
    for (keys, wanted) in cases {
        let said = sandbox.bellows(&["check", &domain(&keys)]);
        assert_eq!(said.code, Some(2), "{keys}{said:?}");
        for wanted in wanted {
            assert!(said.stderr.contains(wanted), "no {wanted:?} in\n{}", said.stderr);
        }
        let errors = said.stderr.lines().filter(|line| line.starts_with("error")).count();
        assert_eq!(errors, wanted.len(), "errors that follow from others:\n{}", said.stderr);
    }
}

#[test]
fn a_link_that_is_wrong_brings_no_errors_of_the_apps_that_it_means() {
    let sandbox = Sandbox::new();
    let apps = "[apps]\nin.app = \"source\"\nd = { app = \"dispatch\", rules = [{ to = \"dns\", protocol = \"udp\", port = 53 }] }\n\
                out.app = \"sink\"\nrest.app = \"sink\"\n";
    let right = ["\"in.output -> d.input\"", "\"d.other -> rest.input\"", "\"d.dns -> out.input\""];
    for wrong in 0..right.len() {
        for arrow in [" => ", " > ", " - > ", "=>", "->->", " "] {
            let links =
                right.map(|link| if link == right[wrong] { link.replace(" -> ", arrow) } else { link.to_owned() });
            let path = sandbox.write("net.toml", &format!("links = [{}]\n{apps}", links.join(", ")));
            let said = sandbox.bellows(&["check", &path]);
            assert_eq!(said.code, Some(2), "{links:?}{said:?}");
            let errors: Vec<&str> = said.stderr.lines().filter(|line| line.starts_with(['e', 'w'])).collect();
            assert!(errors.len() == 1 && errors[0].ends_with("is not a link"), "{links:?}: {errors:#?}");
        }
    }
    // An item that is no text, and an app that no link means.
    let text = format!("links = [[\"in.output\", \"d.input\"], {{ from = \"d.dns\", to = \"out\" }}]\n{apps}");
    let said = sandbox.bellows(&["check", &sandbox.write("net.toml", &text)]);
    let errors = said.stderr.lines().filter(|line| line.starts_with("error"));
    let expected =
        ["error: a link must be text", "error: a link must be text", "error: the input `rest.input` is not linked"];
    assert_eq!(errors.collect::<Vec<_>>(), expected, "{}", said.stderr);
}
