//! The control socket: requests, replies and streams.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bellows::json_reference::{Chapter, Form, Found, Kind, differences};
use bellows_testkit::eventually;
use serde_json::{Value, json};

use crate::json::assert_met;
use crate::support::{Running, Sandbox, tunnel};

/// A router, a bridge and its table, two ends of a tunnel, and packets of which a copy is dropped.
const NETWORK: &str = r#"
links = [
    "in.output -> router.left", "router.left -> back.input", "router.right -> out.input",
    "one.output -> lan.one", "lan.two -> lan-end.input",
    "clear.output -> near.site", "near.ip6 -> far.ip6", "far.site -> site-end.input",
    "fast.output -> copies.input", "copies.one -> fast-end.input",
    "copies.other -> limit.input", "limit.output -> late-end.input",
]
apps.back.app = "sink"
apps.out.app = "sink"
apps.lan-end.app = "sink"
apps.site-end.app = "sink"
apps.fast-end.app = "sink"
apps.late-end.app = "sink"
apps.fast = { app = "source", headers = "ipv4", size = 60, rate = "500kpps" }
apps.copies.app = "tee"
apps.limit = { app = "rate-limiter", rate = "1pps" }
[apps.in]
app = "source"
headers = "ipv4"
rate = "1kpps"
dst_mac = "02:00:00:00:00:01"
src = "192.0.2.7"
dst = "203.0.113.1"
[apps.router]
app = "router"
routes = ["203.0.113.0/24 via 198.51.100.2"]
[apps.router.interfaces.left]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
[apps.router.interfaces.right]
mac = "02:00:00:00:00:02"
addresses = ["198.51.100.1/24", "2001:db8::1/64"]
neighbours = { "198.51.100.2" = "04:00:00:00:00:02" }
[apps.one]
app = "source"
headers = "ipv4"
rate = "1kpps"
src_mac = "02:00:00:00:00:03"
[apps.lan]
app = "bridge"
table = "macs"
[objects.macs]
object = "mac-table"
static = { "02:00:00:00:00:05" = "two" }
[apps.clear]
app = "source"
headers = "ipv4"
rate = "1kpps"
"#;

const PATIENCE: Duration = Duration::from_secs(60);

/// Forms of requests, by the command.
const REQUESTS: [(&str, &str); 12] = [
    ("status", "Plain request"),
    ("stop", "Plain request"),
    ("breath", "Plain request"),
    ("apps", "Plain request"),
    ("saved", "Plain request"),
    ("confirm", "Plain request"),
    ("undo", "Plain request"),
    ("reload", "Request to reload"),
    ("trace", "Request for a trace"),
    ("tap", "Request for a tap"),
    ("look-ahead", "Request for a trial of look-ahead"),
    ("object", "Request to an app or shared object"),
];

/// Forms of replies, by their word.
const REPLIES: [(&str, &str); 12] = [
    ("stopping", "Plain reply"),
    ("tracing", "Plain reply"),
    ("tapping", "Plain reply"),
    ("trying", "Plain reply"),
    ("status", "Reply with the run"),
    ("breath", "Reply with breaths"),
    ("apps", "Reply with states"),
    ("reloaded", "Reply to a reload"),
    ("saved", "Reply with what is saved"),
    ("confirmed", "Reply to a confirmation"),
    ("answer", "Answer"),
    ("refused", "Refusal"),
];

/// The type of an app or shared object, its requests, and the forms of its answers by the key of the request.
struct Addressee {
    kind: &'static str,
    request: &'static str,
    answers: &'static [(&'static str, &'static str)],
}

const VRF: Addressee = Addressee {
    kind: "vrf",
    request: "Request to a routing domain",
    answers: &[
        ("change", "Changes"),
        ("routes", "Answer with routes"),
        ("flush", "Answer to a flush"),
        ("look-up", "Answer to a look-up"),
        ("stage", "Answer to `stage`"),
        ("swap", "Answer to `swap`"),
        ("fib", "Answer with tables"),
        ("neighbours", "Answer with neighbours"),
        ("change-neighbours", "Changes"),
        ("flush-neighbours", "Answer to a flush of neighbours"),
    ],
};

const MAC_TABLE: Addressee = Addressee {
    kind: "mac-table",
    request: "Request to a table of MAC addresses",
    answers: &[("addresses", "Answer with MAC addresses"), ("flush", "Answer to a flush of MAC addresses")],
};

const ESP: Addressee = Addressee { kind: "esp", request: "Request to `esp`", answers: &[("rekey", "Rekeyed pair")] };

fn form(title: &str) -> &'static Form {
    let forms = Chapter::ALL.iter().flat_map(|chapter| chapter.forms());
    forms.into_iter().find(|form| form.title == title).unwrap_or_else(|| panic!("there is no form {title}"))
}

/// The form for a word. Fails the test if there is none.
fn of(word: &str, forms: &[(&str, &'static str)]) -> &'static str {
    let found = forms.iter().find(|(known, _)| *known == word);
    found.unwrap_or_else(|| panic!("no form is for `{word}`")).1
}

/// Fails the test if a value differs from its form. Notes its keys.
fn compare(title: &str, value: &Value, found: &mut Found) {
    let differences = differences(Kind::Object(form(title)), value, found);
    assert!(differences.is_empty(), "{title}, in crates/cli/bellows/src/json_reference: {differences:#?} in {value:#}");
}

/// A connection to the control socket.
struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    fn of(running: &Running) -> Client {
        let stream = UnixStream::connect(running.folder().join("control")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    /// Sends a request, which need not be right, and returns the reply.
    fn send(&mut self, request: &Value) -> Value {
        self.stream.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
        self.line()
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in `{line}`"))
    }

    /// Sends a request that must be accepted, and compares it and the reply with their forms.
    fn ask(&mut self, request: &Value, found: &mut Found) -> Value {
        let reply = self.send(request);
        let word = reply["reply"].as_str().unwrap();
        assert_ne!(word, "refused", "{request} got {reply:#}");
        compare(of(request["command"].as_str().unwrap(), &REQUESTS), request, found);
        compare(of(word, &REPLIES), &reply, found);
        reply
    }

    /// The same with an app or a shared object. Returns its answer.
    fn ask_object(&mut self, addressee: &Addressee, name: &str, request: Value, found: &mut Found) -> Value {
        compare(addressee.request, &request, found);
        let (key, _) = request.as_object().unwrap().iter().next().unwrap();
        let title = of(key, addressee.answers);
        let whole = json!({ "command": "object", "name": name, "kind": addressee.kind, "request": request });
        let answer = self.ask(&whole, found)["answer"].take();
        compare(title, &answer, found);
        answer
    }

    /// Ends the stream, and returns what comes until its end.
    fn end(mut self) -> Vec<u8> {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        rest
    }
}

/// A running network, and its folder.
fn start(sandbox: &Sandbox) -> (Running<'_>, PathBuf) {
    let ends = [tunnel::near("near", tunnel::GIVEN), tunnel::far("far", tunnel::GIVEN)].concat();
    let network = sandbox.write("network.toml", &(NETWORK.to_owned() + &ends));
    (sandbox.start(&[&network]), network.into())
}

#[test]
fn requests_are_accepted_and_replies_have_their_forms() {
    let sandbox = Sandbox::new();
    let (running, network) = start(&sandbox);
    let mut found = Found::new();
    let found = &mut found;

    let mut client = Client::of(&running);
    for command in ["status", "breath", "apps"] {
        client.ask(&json!({ "command": command }), found);
    }
    client.ask(&json!({ "command": "reload", "network": network, "restart": ["out"] }), found);
    for end in ["undo", "confirm"] {
        client.ask(&json!({ "command": "reload", "confirm_ns": 3_600_000_000_000u64 }), found);
        client.ask(&json!({ "command": end }), found);
    }
    let refusal = client.send(&json!({ "command": "reload", "network": "/no/such/network.toml" }));
    compare("Refusal", &refusal, found);
    talk_with_the_routing_domain(&mut client, found);
    let add = json!({ "change": { "commands": ["add 10.9.0.0/16 via 198.51.100.2"] } });
    client.ask(&json!({ "command": "object", "kind": "vrf", "request": add, "save": true }), found);
    client.ask(&json!({ "command": "saved" }), found);
    talk_with_the_table(&mut client, found);
    talk_with_esp(&mut client, found);

    follow_packets(&running, found);
    tap_a_link(&running, found);
    try_look_ahead(&running, found);

    client.ask(&json!({ "command": "stop" }), found);
    running.wait().success();
    assert_met(Chapter::Control, found, &[], &[]);
}

fn talk_with_the_routing_domain(client: &mut Client, found: &mut Found) {
    let mut ask = |request: Value| client.ask_object(&VRF, "router", request, found);
    let commands = json!(["add 198.51.100.128/25 via 198.51.100.2", "10.0.0.0/8 via 198.51.100.2"]);
    let changed = ask(json!({ "change": { "commands": commands, "bare": "append" } }));
    assert_eq!(changed["added"], 2, "{changed:#}");
    let changed = ask(json!({ "change": { "commands": ["add 10.1.0.0/16 via 192.0.2"], "force": true } }));
    assert_eq!(changed["errors"][0]["index"], 0, "{changed:#}");

    let select = json!({ "prefix": ["root", "0.0.0.0/0"], "family": 4, "dev": "right", "via": "198.51.100.2",
        "origins": ["static", "control"] });
    let page = ask(json!({ "routes": { "select": select, "limit": 1 } }));
    assert!(page["next"].is_array(), "{page:#}");
    let page = ask(json!({ "routes": { "select": select, "after": page["next"], "limit": 10 } }));
    assert_eq!((page["routes"].as_array().map(Vec::len), &page["next"]), (Some(2), &Value::Null), "{page:#}");
    assert_eq!(ask(json!({ "routes": { "only_count": true } }))["count"], 3);
    for text in ["plain", "json"] {
        assert_eq!(ask(json!({ "routes": { "text": text } }))["count"], 3);
    }
    ask(json!({ "look-up": { "address": "203.0.113.1", "from": "192.0.2.7" } }));
    ask(json!({ "fib": {} }));
    let exact = json!({ "prefix": ["exact", "10.0.0.0/8"] });
    assert_eq!(ask(json!({ "flush": { "select": exact } }))["deleted"], 1);

    let staged = ask(json!({ "stage": { "routes": ["203.0.113.0/24 via 198.51.100.2", "10.0.0.0/8 via nobody"] } }));
    assert_eq!(staged["errors"][0]["index"], 1, "{staged:#}");
    assert_eq!(ask(json!({ "stage": { "routes": ["203.0.113.0/24 via 198.51.100.2"] } }))["staged"], 1);
    assert_eq!(ask(json!({ "swap": { "routes": 1 } }))["after"], 1);

    let commands = json!(["198.51.100.7 lladdr 04:00:00:00:00:07 dev right"]);
    ask(json!({ "change-neighbours": { "commands": commands, "bare": "replace" } }));
    let right = json!({ "dev": "right", "address": "198.51.100.7" });
    let listed = ask(json!({ "neighbours": { "select": right, "goes_on": false } }));
    assert_eq!((&listed["neighbours"][0]["protocol"], &listed["more"]), (&json!("control"), &json!(false)));
    assert_eq!(ask(json!({ "flush-neighbours": right }))["deleted"], 1);
}

fn talk_with_the_table(client: &mut Client, found: &mut Found) {
    let mut ask = |request: Value| client.ask_object(&MAC_TABLE, "macs", request, found);
    let learned = json!({ "mac": "02:00:00:00:00:03", "port": "one", "vlan": 0 });
    eventually("a learned address", || {
        let listed = ask(json!({ "addresses": { "select": learned, "goes_on": false } }));
        listed["addresses"][0]["state"] == "learned"
    });
    assert_eq!(ask(json!({ "flush": learned }))["deleted"], 1);
}

fn talk_with_esp(client: &mut Client, found: &mut Found) {
    let keys = |spi: u32| json!({ "spi": spi, "algorithm": "aes-128-gcm", "key": format!("{spi:040x}") });
    let request = json!({ "rekey": { "pair": "site", "inbound": keys(0x2001), "outbound": keys(0x2002) } });
    let answer = client.ask_object(&ESP, "near", request, found);
    assert_eq!(answer["inbound"], 0x2001);
    let saved = |request: &Value| json!({ "command": "object", "name": "near", "kind": "esp", "request": request, "save": true });
    let request = json!({ "rekey": { "pair": "site", "inbound": keys(0x2003) } });
    let answer = client.ask(&saved(&request), found)["answer"].take();
    compare("Rekeyed pair", &answer, found);
    let request = json!({ "forget": { "pair": "site" } });
    compare(ESP.request, &request, found);
    let answer = client.ask(&saved(&request), found)["answer"].take();
    compare("Forgotten keys", &answer, found);
}

fn follow_packets(running: &Running, found: &mut Found) {
    let mut client = Client::of(running);
    let count = 500;
    client.ask(
        &json!({ "command": "trace", "count": count, "app": "fast", "filter": "udp", "seconds": PATIENCE.as_secs() }),
        found,
    );
    let mut acts = BTreeSet::new();
    loop {
        let line = client.line();
        if line["event"] == "end" {
            compare("End of a trace", &line, found);
            assert_eq!(line["why"], "complete");
            break;
        }
        compare("Hop", &line, found);
        acts.insert(line["what"].as_str().unwrap().to_owned());
    }
    assert_eq!(acts, ["dropped", "ended", "sent"].map(str::to_owned).into());
    assert!(client.end().is_empty(), "the connection ends with the stream");

    let mut client = Client::of(running);
    client.ask(&json!({ "command": "trace", "count": 10_000, "app": "in", "seconds": PATIENCE.as_secs() }), found);
    let rest = String::from_utf8(client.end()).unwrap();
    let end: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(end, json!({ "event": "end", "why": "requested" }));
}

/// The frames of a tap: a packet, and the end.
fn tap_a_link(running: &Running, found: &mut Found) {
    let mut client = Client::of(running);
    client.ask(&json!({ "command": "tap", "link": "fast.output -> copies.input", "snap": 20 }), found);
    let mut packet = [0; 1 + 8 + 4 + 4 + 4 + 20];
    client.stream.read_exact(&mut packet).unwrap();
    let number = |at: usize| u32::from_le_bytes(packet[at..][..4].try_into().unwrap());
    assert_eq!((packet[0], number(9), number(13), number(17)), (1, 60, 1, 20), "{packet:?}");
    let rest = client.end();
    assert!(rest.ends_with(&[3, 0]), "{:?}", &rest[rest.len().saturating_sub(50)..]);
}

fn try_look_ahead(running: &Running, found: &mut Found) {
    let mut client = Client::of(running);
    client.ask(&json!({ "command": "look-ahead", "seconds": 0.1 }), found);
    loop {
        let line = client.line();
        if line["event"] == "end" {
            compare("End of a trial", &line, found);
            break;
        }
        compare("Progress of a trial", &line, found);
    }
}

/// What a refusal lists, between these quotes and behind this word, as what would have been right.
fn listed(refusal: &Value, word: &str, quote: char) -> BTreeSet<String> {
    let message = refusal["message"].as_str().unwrap_or_else(|| panic!("{refusal:#}"));
    let (_, list) = message.split_once(word).unwrap_or_else(|| panic!("no list in `{message}`"));
    list.split(quote).skip(1).step_by(2).map(str::to_owned).collect()
}

fn expected(refusal: &Value) -> BTreeSet<String> {
    listed(refusal, "expected", '`')
}

fn keys(title: &str) -> BTreeSet<String> {
    form(title).all_keys().into_iter().map(|(_, key)| key.name.to_owned()).collect()
}

#[test]
fn no_request_takes_other_keys_than_its_form_has() {
    let sandbox = Sandbox::new();
    let (running, _) = start(&sandbox);
    let mut client = Client::of(&running);
    let commands = expected(&client.send(&json!({ "command": "?" })));
    assert_eq!(commands, REQUESTS.map(|(command, _)| command.to_owned()).into());
    for (command, title) in REQUESTS.iter().filter(|(_, title)| *title != "Plain request") {
        let mut keys = keys(title);
        keys.remove("command");
        assert_eq!(expected(&client.send(&json!({ "command": command, "?": 0 }))), keys, "{title}");
    }

    let mut of_object = |kind: &str, request: Value| {
        expected(&client.send(&json!({ "command": "object", "kind": kind, "request": request })))
    };
    let odd = json!({ "?": 0 });
    for (kind, key, title) in [
        ("vrf", "change", "Change of routes"),
        ("vrf", "routes", "Page of routes"),
        ("vrf", "flush", "Page of routes"),
        ("vrf", "look-up", "Request for a look-up"),
        ("vrf", "stage", "Routes to stage"),
        ("vrf", "swap", "Swap of routes"),
        ("vrf", "neighbours", "Page of neighbours"),
        ("vrf", "change-neighbours", "Change of neighbours"),
        ("vrf", "flush-neighbours", "Selection of neighbours"),
        ("mac-table", "addresses", "Page of MAC addresses"),
        ("mac-table", "flush", "Selection of MAC addresses"),
    ] {
        assert_eq!(of_object(kind, json!({ key: odd })), keys(title), "{title}");
    }
    for (kind, key, title) in [
        ("vrf", "routes", "Selection of routes"),
        ("vrf", "neighbours", "Selection of neighbours"),
        ("mac-table", "addresses", "Selection of MAC addresses"),
    ] {
        assert_eq!(of_object(kind, json!({ key: { "select": odd } })), keys(title), "{title}");
    }
    for addressee in [VRF, MAC_TABLE] {
        let known = of_object(addressee.kind, odd.clone());
        assert_eq!(known, keys(addressee.request), "{}", addressee.request);
        let answered = addressee.answers.iter().map(|(key, _)| (*key).to_owned());
        assert_eq!(known, answered.collect(), "{}", addressee.request);
    }

    // An `esp` shows nothing of a request that it refuses, because it could be a key; but always the form of all requests.
    for request in [odd, json!({ "rekey": { "pair": "site", "inbound": {}, "?": 0 } })] {
        let refusal = client.send(&json!({ "command": "object", "name": "near", "kind": "esp", "request": request }));
        let both = &keys(ESP.request) | &keys("New keys");
        assert_eq!(listed(&refusal, "it answers", '"'), both, "{}", ESP.request);
    }
}
