//! `bellows route` and `bellows neighbour` on a running router that needs no privileges: a source before it, a sink
//! behind it.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::support::{Running, Said, Sandbox, Signal, assert_books};
use bellows_testkit::wait::within;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// A router whose traffic to 203.0.113.1 leaves by `right`, through one of two neighbours.
fn network(routes: &str, more: &str) -> String {
    format!(
        r#"
links = ["in.output -> router.left", "router.left -> back.input", "router.right -> out.input"]
[apps.in]
app = "source"
headers = "ipv4"
rate = "20kpps"
size = 60
dst_mac = "02:00:00:00:00:01"
src = "192.0.2.7"
dst = "203.0.113.1"
[apps.back]
app = "sink"
[apps.out]
app = "sink"
[apps.router]
app = "router"
routes = {routes}
{more}
[apps.router.interfaces.left]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
[apps.router.interfaces.right]
mac = "02:00:00:00:00:02"
addresses = ["198.51.100.1/24", "2001:db8::1/64"]
neighbours = {{ "198.51.100.2" = "04:00:00:00:00:02", "198.51.100.3" = "04:00:00:00:00:03" }}
"#
    )
}

/// The route of the traffic, and another one.
const ROUTES: &str = r#"["203.0.113.0/24 via 198.51.100.2", "198.18.0.0/15 via 198.51.100.3"]"#;

struct Router<'s> {
    sandbox: &'s Sandbox,
    running: Running<'s>,
}

impl<'s> Router<'s> {
    fn start(sandbox: &'s Sandbox, text: &str) -> Router<'s> {
        let path = sandbox.write("network.toml", text);
        Router { sandbox, running: sandbox.start(&[&path, "--json"]) }
    }

    fn route(&self, words: &str) -> Said {
        let words: Vec<&str> = ["route"].into_iter().chain(words.split_whitespace()).collect();
        self.sandbox.bellows(&words)
    }

    fn neighbour(&self, words: &str) -> Said {
        let words: Vec<&str> = ["neighbour"].into_iter().chain(words.split_whitespace()).collect();
        self.sandbox.bellows(&words)
    }

    /// The lines of `route show`.
    fn show(&self, words: &str) -> Vec<String> {
        self.route(&format!("show {words}")).success().stdout.lines().map(str::to_owned).collect()
    }

    fn count(&self, app: &str, key: &str) -> u64 {
        let counters = self.running.counters();
        let apps = counters["apps"].as_array().unwrap();
        let app = apps.iter().find(|known| known["name"] == app).unwrap_or_else(|| panic!("no {app}"));
        app.pointer(&format!("/{key}")).and_then(Value::as_u64).unwrap_or_default()
    }

    /// Waits until many more packets have arrived.
    fn flows(&self) {
        let before = self.count("out", "in_packets");
        within(PATIENCE, "packets", || self.count("out", "in_packets") > before + 500);
    }

    fn stop(self) -> Value {
        self.sandbox.bellows(&["stop"]).success();
        let report = self.running.wait().success().json();
        assert_books(&report);
        report
    }
}

#[test]
fn routes_are_added_shown_looked_up_and_removed() {
    let sandbox = Sandbox::new();
    let router = Router::start(&sandbox, &network(ROUTES, ""));
    router.flows();
    router.route("add 10.0.0.0/8 via 198.51.100.2 metric 5").success();
    router.route("append 10.0.0.0/8 via 198.51.100.3 metric 5").success();
    router.route("add 2001:db8:7::/48 via 2001:db8::9").success();
    router.route("replace 198.18.0.0/15 dev left").success();
    let all = [
        "10.0.0.0/8 nexthop via 198.51.100.2 dev right weight 1 nexthop via 198.51.100.3 dev right weight 1 metric 5 \
         proto control",
        "198.18.0.0/15 dev left proto control",
        "203.0.113.0/24 via 198.51.100.2 dev right proto static",
        "2001:db8:7::/48 via 2001:db8::9 dev right proto control",
    ];
    assert_eq!(router.show(""), all);
    assert_eq!(router.show("proto static"), all[2..3]);
    assert_eq!(router.show("match 203.0.113.7"), all[2..3]);
    assert_eq!(router.show("root 198.0.0.0/7"), all[1..2]);
    assert_eq!(router.show("exact 10.0.0.0/8"), all[..1]);
    assert_eq!(router.show("via 198.51.100.3"), all[..1]);
    assert_eq!(router.show("dev left"), all[1..2]);
    assert_eq!(router.show("-6"), all[3..]);
    assert_eq!(router.show("--limit 1 --after 10.0.0.0/8"), all[1..2]);
    assert_eq!(router.route("show --count").success().stdout, "4 routes\n");
    assert!(router.show("proto connected").contains(&"local 192.0.2.1/32 proto connected".to_owned()));
    let routes = router.route("show -j").success().json();
    assert_eq!(routes["routes"].as_array().map(Vec::len), Some(4));
    assert_eq!(routes["routes"][2]["gateway"], "198.51.100.2");
    assert_eq!(routes["routes"][0]["nexthops"][1]["dev"], "right");
    assert_eq!((&routes["vrf"], &routes["next"]), (&json!("router/vrf"), &Value::Null));

    let found = router.route("lookup 203.0.113.1 from 192.0.2.7 --json").success().json();
    assert_eq!((&found["route"]["dst"], &found["ways"][0]["state"]), (&json!("203.0.113.0/24"), &json!("permanent")));
    assert_eq!(found["from"]["route"]["dst"], "192.0.2.0/24");
    let text = router.route("get 203.0.113.1").success().stdout;
    assert!(text.contains("neighbour 198.51.100.2 dev right lladdr 04:00:00:00:00:02 permanent"), "{text}");
    assert!(text.contains("compiled to cell"), "{text}");
    assert_eq!(router.route("lookup 9.9.9.9").success().stdout, "9.9.9.9: no route\n");

    router.route("del 10.0.0.0/8").success();
    let flushed = router.route("flush root 198.0.0.0/7 -j").success().json();
    assert_eq!(flushed["deleted"], 1);
    assert_eq!(router.show(""), all[2..]);
    // Without its route, traffic is dropped by name, and the way back is the router's.
    router.route("del 203.0.113.0/24 via 198.51.100.2").success();
    within(PATIENCE, "packets without a route", || router.count("router/ip4-icmp-error", "in_packets") > 100);
    router.route("add 203.0.113.0/24 via 198.51.100.3").success();
    router.flows();
    router.route("flush all").success();
    assert_eq!(router.show(""), [""; 0]);
    router.stop();
}

#[test]
fn a_next_hop_is_on_a_link_or_said_to_be() {
    let sandbox = Sandbox::new();
    let wrong = sandbox.write("wrong.toml", &network(r#"["203.0.113.0/24 via 192.0.2.2 dev right"]"#, ""));
    let said = sandbox.bellows(&["check", &wrong]);
    let is_told = said.stderr.contains("192.0.2.2 is not on a link of `right`") && said.stderr.contains("`onlink`");
    assert!(said.code == Some(2) && is_told, "{said:#?}");
    // A route to the link may stand behind those that need it.
    let routes =
        r#"["203.0.113.0/24 via 10.1.1.1 dev right onlink", "10.0.0.0/8 via 10.2.2.2", "10.2.2.2/32 dev right"]"#;
    let router = Router::start(&sandbox, &network(routes, ""));
    router.route("add 2001:db8:7::/48 via 2001:db8:9::9 dev right onlink").success();
    let shown = router.show("");
    assert_eq!(shown[0], "10.0.0.0/8 via 10.2.2.2 dev right onlink proto static");
    assert_eq!(shown[3], "2001:db8:7::/48 via 2001:db8:9::9 dev right onlink proto control");
    let routes = router.route("show -j").success().json()["routes"].take();
    assert_eq!((&routes[2]["flags"], &routes[1]["flags"]), (&json!(["onlink"]), &Value::Null));
    let found = router.route("get 203.0.113.1").success().stdout;
    assert!(found.contains("203.0.113.0/24 via 10.1.1.1 dev right onlink"), "{found}");
    // What is shown is read again.
    sandbox.write("shown.txt", &shown.join("\n"));
    router.route("replace-all -f shown.txt").success();
    assert_eq!(router.show("").len(), 4);
    router.stop();
}

#[test]
fn wrong_commands_are_told_with_their_place() {
    let sandbox = Sandbox::new();
    let router = Router::start(&sandbox, &network(ROUTES, ""));
    sandbox.write("empty.txt", "# nothing\n198.51.100.0/24 dev right proto connected\n");
    for (words, said) in [
        ("add 10.0.0.0/33 via 198.51.100.2", "expected a number of bits from 0 to 32"),
        ("add 10.0.0.0/33 via 198.51.100.2", "  | add 10.0.0.0/33 via 198.51.100.2\n  |     ^^^^^^^^^^^\n"),
        ("add", "a route is missing"),
        ("add 10.0.0.0/8", "the route has no next hop"),
        ("add 10.0.0.0/8 via 10.1.1.1", "no interface has 10.1.1.1 on its link"),
        ("add 10.0.0.0/8 via 10.1.1.1 dev right", "10.1.1.1 is not on a link of `right`"),
        ("add 10.0.0.0/8 via 10.1.1.1 dev right", "or add `onlink` if it answers there"),
        ("add 10.0.0.0/8 via 192.0.2.2 dev right", "192.0.2.2 is not on a link of `right`"),
        ("add 10.0.0.0/8 via 224.0.0.5", "no neighbour can have the multicast address 224.0.0.5"),
        ("add 10.0.0.0/8 via 255.255.255.255 dev right onlink", "the broadcast address 255.255.255.255"),
        ("add 10.0.0.0/8 via 198.51.100.1 dev right onlink", "is an address of this router, on `right`"),
        ("add 10.0.0.0/8 dev middle", "there is no interface `middle`"),
        ("add 10.0.0.0/8 dev rihgt", "  |                    ^^^^^\n  |\n  = help: did you mean `right`?\n"),
        ("add 10.0.0.0/8 via 10.1.1.1", "  | add 10.0.0.0/8 via 10.1.1.1\n  |                    ^^^^^^^^"),
        ("add 10.0.0.0/8 via 198.51.100.2 table 7", "each routing domain has one table"),
        ("show table main", "`table` is not a condition of routes here: each routing domain has one table"),
        ("add 203.0.113.0/24 via 198.51.100.3", "there is a route to 203.0.113.0/24 with metric 0 already"),
        ("add 192.0.2.0/24 via 198.51.100.3", "that of an interface"),
        ("del 10.0.0.0/8", "there is no such route to 10.0.0.0/8"),
        ("remove 10.0.0.0/8", "`remove` is not an action"),
        ("replace-al", "did you mean `replace-all`?"),
        ("replace-all", "give a file with `-f FILE`"),
        (
            "replace-all -f empty.txt",
            "`empty.txt` has no routes, so that none would be left; `bellows route flush all`",
        ),
        ("add 127.0.0.0/24 via 198.51.100.2", "127.0.0.0/24 is within 127.0.0.0/8 (loopback addresses)"),
        ("add fe80:1::/32 via 192.0.2.2 dev left", "`192.0.2.2` is not an address of the route's family"),
        ("add 10.0.0.0/8 via 198.51.100.1", "198.51.100.1 is an address of this router, on `right`"),
        ("add 10.0.0.0/8 via 198.51.100.255", "198.51.100.255 is the address of a whole link of `right`"),
        ("add 10.0.0.0/8 via inet6 fe80::9 dev left", "`left` has no IPv6 address with which to find fe80::9"),
        ("show broot 10.0.0.0/8", "`broot` is not a condition of routes; did you mean `root`?"),
        ("show root 10.0.0.0/8 vai 10.0.0.1", "`vai` is not a condition of routes; did you mean `via`?"),
        ("show root", "`root` needs a prefix"),
        ("show root ten", "`ten`"),
        ("show dev", "`dev` needs a value"),
        ("show dev middle", "there is no interface `middle`; there are `left`, `right`"),
        ("show via here", "`here` is not the address of a router"),
        ("show proto magic", "there is no origin `magic` of routes"),
        ("show vrf green", "there is no object of type `vrf` named `green`"),
        ("lookup", "write `lookup ADDRESS`"),
        ("lookup here", "`here` is not an IP address; write, for example, `lookup 198.51.100.7`"),
        ("lookup 10.0.0.1 from ::1", "not of the same family"),
        ("flush", "`flush` needs to know which routes"),
        ("flush proto connected", "they cannot be flushed"),
        ("show -f routes.txt", "`--file` is for add"),
        ("add 10.0.0.0/8 -f routes.txt", "the route is in the file"),
        ("add -f missing.txt", "cannot read `missing.txt`: it does not exist"),
    ] {
        let answer = router.route(words);
        assert_eq!((answer.code, answer.stderr.contains(said)), (Some(2), true), "{words}: {answer:#?}");
    }
    for (words, said) in [
        ("add 198.51.100.9", "the neighbour's Ethernet address is missing"),
        ("add 198.51.100.9 lladdr 01:00:00:00:00:01", "is not the Ethernet address of a station"),
        ("add 198.51.100.9 lladdr 00:00:00:00:00:00", "is not the Ethernet address of a station"),
        ("add 198.51.100.1 lladdr 04:00:00:00:00:09", "198.51.100.1 is an address of this router"),
        ("add 224.0.0.5 lladdr 04:00:00:00:00:09", "no neighbour can have the multicast address 224.0.0.5"),
        ("add 10.0.0.9 lladdr 04:00:00:00:00:09", "no interface has 10.0.0.9 on its link"),
        ("add 198.51.100.9 lladdr 04:00:00:00:00:09 dev left", "198.51.100.9 is not on a link of `left`"),
        ("del 198.51.100.9", "there is no neighbour 198.51.100.9 on `right`"),
        ("del 198.51.100.2", "is in the network file: remove it there"),
        ("discard 198.51.100.2", "`discard` is not an action"),
        ("flush", "`flush` needs to know which neighbours"),
    ] {
        let answer = router.neighbour(words);
        assert_eq!((answer.code, answer.stderr.contains(said)), (Some(2), true), "{words}: {answer:#?}");
    }
    assert_eq!(router.show("").len(), 2, "nothing has been changed");
    router.stop();
    for words in [&["route"][..], &["neighbour"], &["show", "fib"], &["show", "neighbours"]] {
        assert!(sandbox.bellows(words).stderr.contains("no network is running"), "{words:?}");
    }
    let other = sandbox.write("other.toml", crate::support::IDLE);
    let running = sandbox.start(&[&other]);
    for words in [&["route"][..], &["neighbour"], &["show", "fib"], &["show", "neighbours"]] {
        let answer = sandbox.bellows(words);
        assert!(answer.code == Some(2) && answer.stderr.contains("vrf"), "{answer:#?}");
    }
    drop(running);
}

#[test]
fn a_network_may_be_named_behind_the_action() {
    let sandbox = Sandbox::new();
    let router = Router::start(&sandbox, &network(ROUTES, ""));
    let name = router.running.name.clone();
    router.route(&format!("add {name} 10.0.0.0/8 via 198.51.100.2")).success();
    assert_eq!(router.show(&format!("{name} exact 10.0.0.0/8")).len(), 1);
    assert_eq!(router.show(&name), router.show(""));
    router.route(&format!("lookup {name} 10.1.1.1")).success();
    router.route(&format!("del {name} 10.0.0.0/8")).success();
    assert_eq!(router.show("exact 10.0.0.0/8"), Vec::<String>::new());
    let shown = router.neighbour(&format!("show {name} dev right")).success().stdout;
    assert!(shown.contains("198.51.100.3"), "{shown}");
    let said = router.route("show nobody");
    assert_eq!((said.code, said.stderr.contains("`nobody`")), (Some(2), true), "{said:#?}");
    router.stop();
}

#[test]
fn a_file_is_carried_out_in_batches_that_are_whole_or_not_at_all() {
    let sandbox = Sandbox::new();
    let router = Router::start(&sandbox, &network(ROUTES, ""));
    let before = router.show("");
    let route = |number: usize| {
        let [_, a, b, c] = (number as u32 * 4).to_be_bytes();
        format!("10.{a}.{b}.{c}/30 via 198.51.100.{}", 2 + number % 2)
    };
    let mut text = String::from("# routes\n\n");
    for number in 0..10_000 {
        writeln!(text, "{}{}", if number % 3 == 0 { "add " } else { "" }, route(number)).unwrap();
    }
    sandbox.write("routes.txt", &text);
    let added = router.route("-f routes.txt -j").success().json();
    assert_eq!((&added["added"], &added["failed"], &added["vrf"]), (&json!(10_000), &json!(0), &json!("router/vrf")));
    let shown = router.show("");
    assert_eq!(shown.len(), before.len() + 10_000);

    // What is shown can be read again, also what follows from interfaces: that is left out.
    router.route("flush all").success();
    sandbox.write("shown.txt", &format!("{}\n192.0.2.0/24 dev left proto connected\n", shown.join("\n")));
    let read = router.route("add -f shown.txt").success();
    assert!(read.stdout.starts_with("10,002 routes added, 1 left out in "), "{read:#?}");
    let same = |line: &String| line.replace("proto static", "proto control");
    assert_eq!(router.show(""), shown.iter().map(same).collect::<Vec<_>>());

    // The line with an error is in the second batch.
    let wrong = format!("{}del 9.9.9.9/32\n", text.replace(" via", " metric 7 via"));
    sandbox.write("wrong.txt", &wrong);
    let said = router.route("add -f wrong.txt");
    assert_eq!(said.code, Some(2), "{said:#?}");
    for part in ["wrong.txt:10003: there is no such route to 9.9.9.9/32", "8,192 commands before line 8195 took effect"]
    {
        assert!(said.stderr.contains(part), "{said:#?}");
    }
    assert_eq!(router.route("show --count").success().stdout, "18,194 routes\n");
    let forced = router.route("replace -f wrong.txt --force -j");
    assert_eq!(forced.code, Some(2));
    let counts = forced.json();
    // Those that say `add` are there already, as far as they were in the first two batches.
    let again = (0..8_192).filter(|number| number % 3 == 0).count();
    assert_eq!(counts["failed"], again + 1, "{counts}");
    assert_eq!(router.route("show --count").success().stdout, "20,002 routes\n");
    let deletions: String = (0..10_000).map(|number| format!("del {} metric 7\n", route(number))).collect();
    sandbox.write("del.txt", &deletions);
    let deleted = router.route("-f del.txt -j").success().json();
    assert_eq!(deleted["deleted"], 10_000);
    sandbox.write("bytes.txt", "10.200.0.0/16 dev left\n\u{0}\n");
    assert!(router.route("add -f bytes.txt").stderr.contains("bytes.txt:2: "));
    router.stop();
}

/// The number of routes that are replaced.
fn size() -> usize {
    bellows_testkit::soak::routes() as usize
}

/// So many routes through a neighbour, and that of the traffic.
fn table(count: usize, neighbour: u8) -> String {
    let mut text = format!("203.0.113.0/24 via 198.51.100.{neighbour}\n");
    for number in 0..count {
        let [a, b, c, d] = (0x1400_0000 + number as u32 * 8).to_be_bytes();
        writeln!(text, "{a}.{b}.{c}.{d}/29 via 198.51.100.{neighbour}").unwrap();
    }
    text
}

/// The bytes as a gzip file (RFC 1952), in blocks that are not compressed (RFC 1951, section 3.2.4).
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut blocks = bytes.chunks(0xffff).peekable();
    while let Some(block) = blocks.next() {
        let length = block.len() as u16;
        file.push(u8::from(blocks.peek().is_none()));
        file.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
        file.extend(block);
    }
    let sum = bytes.iter().fold(!0_u32, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
    });
    file.extend([(!sum).to_le_bytes(), (bytes.len() as u32).to_le_bytes()].concat());
    file
}

#[test]
fn compressed_files_are_read_and_long_lists_are_whole() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("static.gz"), gzip(b"100.64.0.0/10 via 198.51.100.3\n")).unwrap();
    let router = Router::start(&sandbox, &network("[]", "file = \"static.gz\""));
    assert_eq!(router.show(""), ["100.64.0.0/10 via 198.51.100.3 dev right proto static"]);
    // More than a page of text has, with several next hops, metrics and kinds.
    let route = |number: u32| {
        let prefix = format!("20.{}.{}.0/24", number / 256, number % 256);
        match number % 4 {
            0 => format!("blackhole {prefix}"),
            1 => format!("{prefix} via 198.51.100.2 dev right metric {number}"),
            2 => format!(
                "{prefix} nexthop via 198.51.100.2 dev right weight 1 nexthop via 198.51.100.3 dev right weight 2"
            ),
            _ => format!("{prefix} dev right"),
        }
    };
    let routes: Vec<String> = (0..17_000).map(route).collect();
    std::fs::write(sandbox.path("routes.gz"), gzip(routes.join("\n").as_bytes())).unwrap();
    router.route("add -f routes.gz").success();
    let listed: Vec<String> = routes.iter().map(|route| format!("{route} proto control")).collect();
    assert_eq!(router.show("proto control"), listed);
    let json = router.route("show proto control --json").success().json();
    let shown: Vec<&str> = json["routes"].as_array().unwrap().iter().filter_map(|it| it["route"].as_str()).collect();
    assert_eq!(shown, routes);
    assert_eq!(
        json["routes"][2],
        json!({
            "route": routes[2], "dst": "20.0.2.0/24",
            "nexthops": [
                { "gateway": "198.51.100.2", "dev": "right", "weight": 1 },
                { "gateway": "198.51.100.3", "dev": "right", "weight": 2 },
            ],
            "protocol": "control", "origin": "control", "metric": 0,
        })
    );
    let damaged = &gzip(routes.join("\n").as_bytes())[..5_000];
    std::fs::write(sandbox.path("damaged.gz"), damaged).unwrap();
    let answer = router.route("replace-all -f damaged.gz");
    assert!(answer.stderr.contains("its gzip data is damaged or not whole"), "{answer:#?}");
    assert_eq!(router.show("--count"), ["17,001 routes"]);
    router.stop();
}

#[test]
fn all_routes_are_replaced_under_traffic_and_no_packet_is_lost() {
    let sandbox = Sandbox::new();
    let router = Router::start(&sandbox, &network(ROUTES, ""));
    sandbox.write("two.txt", &table(size(), 2));
    sandbox.write("three.txt", &table(size(), 3));
    router.flows();
    for (file, before) in [("two.txt", 2), ("three.txt", size() + 1), ("two.txt", size() + 1)] {
        let swapped = router.route(&format!("replace-all -f {file} -j")).success().json();
        let expected = (json!(before), json!(size() + 1), json!(0));
        assert_eq!((swapped["before"].clone(), swapped["after"].clone(), swapped["repeated"].clone()), expected);
        router.flows();
    }
    let fib = sandbox.bellows(&["show", "fib", "--json"]).success().json()["vrfs"][0].clone();
    assert_eq!(fib["ipv4"]["lengths"]["29"], size());
    assert_eq!(fib["ipv4"]["origins"]["control"], size() + 1);
    assert!(fib["ipv4"]["bytes"].as_u64().unwrap() > 0);
    let text = sandbox.bellows(&["show", "fib"]).success().stdout;
    assert!(text.contains("via 198.51.100.2 dev right"), "{text}");

    // An error in any line changes nothing, and neither does a client that goes away in the middle.
    sandbox.write("wrong.txt", &format!("{}bad line\n", table(5_000, 3)));
    let said = router.route("replace-all -f wrong.txt");
    assert!(said.code == Some(2) && said.stderr.contains("wrong.txt:5002: "), "{said:#?}");
    assert!(said.stderr.contains("no route has been changed"), "{said:#?}");
    assert_eq!(
        router.route("show proto control --count").success().stdout,
        format!("{} routes\n", thousands(size() + 1))
    );
    let report = router.stop();
    let lost: Vec<&Value> = report["apps"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|app| app["drops"].as_object().is_some_and(|drops| drops.values().any(|count| *count != json!(0))))
        .collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

#[test]
fn what_commands_did_outlives_reloads() {
    let sandbox = Sandbox::new();
    let router = Router::start(&sandbox, &network(ROUTES, ""));
    router.route("add 10.0.0.0/8 via 198.51.100.3").success();
    router.route("del 198.18.0.0/15").success();
    router.neighbour("add 198.51.100.9 lladdr 04:00:00:00:00:09").success();
    let control = "10.0.0.0/8 via 198.51.100.3 dev right proto control";
    let kept = [control, "203.0.113.0/24 via 198.51.100.2 dev right proto static"];
    assert_eq!(router.show(""), kept);
    sandbox.bellows(&["reload"]).success();
    assert_eq!(router.show(""), kept, "the network file is the same");

    // Other routes: the apps run on.
    let other = r#"["203.0.113.0/24 via 198.51.100.3", "198.18.0.0/15 via 198.51.100.3", "20.0.0.0/8 dev left"]"#;
    sandbox.write("network.toml", &network(other, ""));
    let reload = sandbox.bellows(&["reload", "--json"]).success().json();
    assert_eq!(reload["replaced"], json!([]), "{reload}");
    let changed =
        [control, "20.0.0.0/8 dev left proto static", "203.0.113.0/24 via 198.51.100.3 dev right proto static"];
    assert_eq!(router.show(""), changed);
    router.flows();

    // A file of routes, and the same again with another content.
    sandbox.write("table.txt", &table(2_000, 2));
    sandbox.write("network.toml", &network("[]", "file = \"table.txt\""));
    sandbox.bellows(&["reload"]).success();
    assert_eq!(router.show("proto static").len(), 2_001);
    sandbox.write("table.txt", &table(1_000, 3));
    let reload = sandbox.bellows(&["reload", "--json"]).success().json();
    assert_eq!((&reload["replaced"], router.show("proto static").len()), (&json!([]), 1_001));
    sandbox.write("network.toml", &network("[\"1.0.0.0/8 via 9.9.9.9\"]", ""));
    assert_eq!(sandbox.bellows(&["reload"]).code, Some(2), "the running network goes on");
    assert_eq!(router.show("proto static").len(), 1_001);

    // Another interface: another domain, which takes over what it can.
    let wide =
        network(other, "").replace("addresses = [\"192.0.2.1/24\"]", "addresses = [\"192.0.2.1/24\", \"10.9.0.1/24\"]");
    sandbox.write("network.toml", &wide);
    let reload = sandbox.bellows(&["reload", "--json"]).success().json();
    assert!(reload["replaced"].as_array().unwrap().len() > 5, "{reload}");
    let after = router.show("");
    assert!(after.contains(&control.to_owned()) && after.len() == 4, "{after:?}");
    let neighbours = router.neighbour("show 198.51.100.9 -j").success().json();
    assert_eq!(neighbours["vrfs"][0]["neighbours"][0]["mac"], "04:00:00:00:00:09");
    router.flows();
    router.stop();
}

#[test]
fn neighbours_are_entered_shown_and_removed() {
    let sandbox = Sandbox::new();
    let router = Router::start(&sandbox, &network(ROUTES, ""));
    router.neighbour("add 198.51.100.9 lladdr 04:00:00:00:00:09").success();
    assert!(router.neighbour("add 198.51.100.9 lladdr 04:00:00:00:00:0a").stderr.contains("replace it"));
    router.neighbour("replace 198.51.100.9 lladdr 04:00:00:00:00:0a dev right").success();
    router.route("replace 203.0.113.0/24 via 198.51.100.9").success();
    router.flows();
    let text = router.neighbour("show dev right").success().stdout;
    assert!(text.contains("198.51.100.9 dev right lladdr 04:00:00:00:00:0a PERMANENT proto control\n"), "{text}");
    let table = sandbox.bellows(&["show", "neighbours"]).success().stdout;
    assert!(table.contains("198.51.100.9  04:00:00:00:00:0a  right      permanent"), "{table}");
    // What is shown can be read.
    sandbox.write("shown.txt", &format!("{text}198.51.100.77 dev right INCOMPLETE\n"));
    assert_eq!(
        router.neighbour("replace -f shown.txt").success().stdout,
        "0 neighbours added, 3 replaced, 1 left out\n"
    );
    // The neighbours of the network file are there again when those of commands in their place are gone.
    let of_file = "198.51.100.2 dev right lladdr 04:00:00:00:00:02 PERMANENT";
    router.neighbour("replace 198.51.100.2 lladdr 04:00:00:00:00:22").success();
    assert!(router.neighbour("show").success().stdout.contains("lladdr 04:00:00:00:00:22 PERMANENT proto control"));
    router.neighbour("del 198.51.100.2").success();
    assert_eq!(router.neighbour("show 198.51.100.2").success().stdout, format!("{of_file} proto static\n"));
    router.neighbour("del 198.51.100.3").success();
    assert!(router.neighbour("del 198.51.100.2").stderr.contains("is in the network file"));
    let shown = sandbox.bellows(&["show", "neighbours", "--json"]).success().json();
    let of = |address: &str| {
        let all = shown["vrfs"][0]["neighbours"].as_array().unwrap();
        all.iter().find(|one| one["address"] == address).cloned().unwrap_or_else(|| panic!("{shown:#}"))
    };
    assert_eq!(
        (&of("198.51.100.9")["protocol"], &of("198.51.100.2")["protocol"]),
        (&json!("control"), &json!("static"))
    );
    sandbox.write("neighbours.txt", "198.51.100.10 lladdr 04:00:00:00:00:10 dev right PERMANENT\ndel 198.51.100.9\n");
    let said = router.neighbour("-f neighbours.txt").success();
    assert_eq!(said.stdout, "1 neighbour added, 1 deleted\n");
    // It is asked now, and packets wait for it or are dropped by name.
    within(PATIENCE, "a question", || router.count("router/arp", "counters/requests_sent") > 2);
    assert_eq!(router.neighbour("flush dev right -j").success().json()["deleted"], 1);
    router.route("replace 203.0.113.0/24 via 198.51.100.2").success();
    router.flows();
    let interfaces = sandbox.bellows(&["show", "interfaces", "--json"]).success().json();
    let right =
        interfaces["routers"].as_array().unwrap().iter().find(|one| one["interface"] == "right").unwrap().clone();
    assert_eq!((&right["mtu"], &right["mac"]), (&json!(1500), &json!("02:00:00:00:00:02")));
    assert!(right["tx_packets"].as_u64() > Some(500), "{right}");
    let text = sandbox.bellows(&["show", "interfaces"]).success().stdout;
    assert!(text.contains("ROUTER INTERFACE") && text.contains("198.51.100.1/24"), "{text}");
    router.stop();
}

#[test]
fn errors_in_the_routes_of_a_router_are_where_they_are_written() {
    let sandbox = Sandbox::new();
    let text = network(r#"["203.0.113.0/24 via 198.51.100.2", "198.18.0.0/15 vai 198.51.100.3"]"#, "");
    let said = sandbox.bellows(&["check", &sandbox.write("wrong.toml", &text)]);
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(said.stderr.contains("`vai` is not part of a route"), "{said:#?}");
    assert!(said.stderr.contains("^^^") && !said.stderr.contains("has errors"), "{said:#?}");
    let line = said.stderr.lines().find(|line| line.contains("^")).unwrap();
    let written = said.stderr.lines().find(|line| line.contains("routes = ")).unwrap();
    let at = line.find('^').unwrap();
    assert_eq!(&written[at..at + 3], "vai", "{said:#?}");
    assert_eq!(said.stderr.matches("error: ").count(), 1, "{said:#?}");
    // What follows from an error in an interface is no further error.
    let text = network(ROUTES, "").replacen("mac = \"02:00:00:00:00:01\"\naddresses", "mac = \"02:00\"\naddresses", 1);
    let said = sandbox.bellows(&["check", &sandbox.write("mac.toml", &text)]);
    assert!(said.stderr.contains("give a unicast address"), "{said:#?}");
    assert_eq!(said.stderr.matches("error: ").count(), 1, "{said:#?}");
}

/// The commands of `show saved`.
fn saved(sandbox: &Sandbox) -> Vec<String> {
    let report = sandbox.bellows(&["show", "saved", "--json"]).success().json();
    let entries = report["entries"].as_array().unwrap();
    let line = |entry: &Value| {
        let word = |key: &str| entry[key].as_str().unwrap();
        format!("{} {}", word("what"), word("command"))
    };
    entries.iter().map(line).collect()
}

#[test]
fn what_commands_save_is_there_again_after_a_crash() {
    let sandbox = Sandbox::new();
    let text = network(ROUTES, "");
    let router = Router::start(&sandbox, &text);
    router.route("add 10.0.0.0/8 via 198.51.100.3 --save").success();
    router.route("add 10.1.0.0/16 via 198.51.100.3").success();
    router.route("append 10.0.0.0/8 via 198.51.100.2 --save").success();
    router.route("add 10.2.0.0/16 via 198.51.100.3 metric 7 --save").success();
    router.route("add 10.3.0.0/16 via 198.51.100.3 --save").success();
    router.route("del 10.3.0.0/16 --save").success();
    router.route("del 198.18.0.0/15 --save").success();
    assert_eq!(router.route("del 198.18.0.0/15 --save").code, Some(2), "it stays deleted");
    router.neighbour("add 198.51.100.9 lladdr 04:00:00:00:00:09 --save").success();
    router.neighbour("add 198.51.100.8 lladdr 04:00:00:00:00:08").success();
    let file = sandbox.path("state/saved/network");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let entries = saved(&sandbox);
    assert_eq!(entries.len(), 4, "{entries:?}");
    assert!(entries.contains(&"route del 198.18.0.0/15 via 198.51.100.3 dev right".to_owned()), "{entries:?}");
    let neighbour = "neighbour replace 198.51.100.9 lladdr 04:00:00:00:00:09 dev right".to_owned();
    assert!(entries.contains(&neighbour), "{entries:?}");
    let wanted = |routes: Vec<String>| {
        let has = |text: &str| routes.iter().any(|route| route.starts_with(text));
        assert!(has("10.0.0.0/8") && has("10.2.0.0/16") && has("203.0.113.0/24"), "{routes:?}");
        assert!(!has("10.1.") && !has("10.3.") && !has("198.18."), "{routes:?}");
        let both = routes.iter().find(|route| route.starts_with("10.0.0.0/8")).unwrap();
        assert!(both.contains("via 198.51.100.3") && both.contains("via 198.51.100.2"), "{routes:?}");
    };
    router.running.signal(Signal::KILL);
    router.running.wait();

    let router = Router::start(&sandbox, &text);
    wanted(router.show(""));
    let neighbours = router.neighbour("show").success().stdout;
    assert!(neighbours.contains("198.51.100.9 dev right lladdr 04:00:00:00:00:09"), "{neighbours}");
    assert!(!neighbours.contains("198.51.100.8"), "{neighbours}");
    sandbox.bellows(&["reload"]).success();
    wanted(router.show(""));
    // Nobody takes a change without the option for a saved one.
    router.route("del 10.2.0.0/16").success();
    router.neighbour("del 198.51.100.9").success();
    assert_eq!(saved(&sandbox), entries);
    router.neighbour("del 198.51.100.9 --save").success();
    assert!(!saved(&sandbox).contains(&neighbour));
    router.stop();

    // A line that is not right, and routes whose interface is gone, are left out; the network starts.
    let mut lines = fs::read_to_string(&file).unwrap();
    lines.push_str("router door open\n");
    fs::write(&file, &lines).unwrap();
    let moved = network("[]", "").replace("right", "east");
    let router = Router::start(&sandbox, &moved);
    let events = sandbox.bellows(&["events", "network", "--json"]).success().stdout;
    let left_out: Vec<&str> = events.lines().filter(|line| line.contains("saved-left-out")).collect();
    assert_eq!(left_out.len(), 4, "{events}");
    assert!(left_out[0].contains("saved/network:") && left_out[0].contains("`router door open`"), "{events}");
    assert!(left_out[1].contains("--save` removes it"), "{events}");
    let shown = sandbox.bellows(&["show", "saved"]).success().stdout;
    assert!(shown.contains("left out: `replace 10.2.0.0/16"), "{shown}");
    assert_eq!(router.show(""), Vec::<String>::new());
    router.route("del 10.2.0.0/16 --save").success();
    router.route("add 10.9.0.0/16 via 198.51.100.2 --save").success();
    assert_eq!(saved(&sandbox).len(), 3);
    assert!(fs::read_to_string(&file).unwrap().ends_with("router door open\n"), "it stays until somebody corrects it");
    router.stop();
}

#[test]
fn what_cannot_be_saved_changes_nothing() {
    let sandbox = Sandbox::new();
    let router = Router::start(&sandbox, &network(ROUTES, ""));
    let before = router.show("");
    fs::write(sandbox.path("state"), "a file").unwrap();
    let said = router.route("add 10.0.0.0/8 via 198.51.100.3 --save");
    assert!(said.code == Some(1) && said.stderr.contains("nothing was changed: `"), "{said:#?}");
    fs::remove_file(sandbox.path("state")).unwrap();
    for words in ["flush all --save", "show --save", "replace-all -f routes.txt --save"] {
        let said = router.route(words);
        assert!(said.code == Some(2) && said.stderr.contains("`--save` is for add"), "{words}: {said:#?}");
    }
    let said = router.route("add 10.0.0.0/8 via 9.9.9.9 --save");
    assert!(said.code == Some(2) && saved(&sandbox).is_empty(), "{said:#?}");
    assert_eq!(router.show(""), before);
    router.stop();

    // A file that others can read is not believed, and stays as it is.
    let file = sandbox.path("state/saved/network");
    fs::write(&file, "router route replace 10.0.0.0/8 via 198.51.100.3 dev right\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let router = Router::start(&sandbox, &network(ROUTES, ""));
    assert_eq!(router.show(""), before);
    let said = router.route("add 10.1.0.0/16 via 198.51.100.3 --save");
    assert!(said.code == Some(1) && said.stderr.contains("chmod 600"), "{said:#?}");
    assert_eq!((router.show(""), fs::read_to_string(&file).unwrap().lines().count()), (before, 1));
    router.stop();
}
