//! `bellows esp` on a running network that needs no privileges: two ends of a tunnel under traffic.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::support::{Said, Sandbox, assert_books, tunnel};
use bellows_capture::Reader;
use bellows_testkit::wait::within;
use bellows_testkit::{memory, skip};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

const KEYS: [&str; 4] = [
    tunnel::KEYS[0],
    tunnel::KEYS[1],
    "72a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c372a1b2c3d4e5f60718293a4b5c6d7e8f",
    "73a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3",
];

/// Two ends, of which one has its keys in the network's file and the other one in files of their own.
fn network() -> String {
    let links = r#"
links = ["in.output -> near.site", "near.ip6 -> far.ip6", "far.site -> out.input"]
apps.in = { app = "source", headers = "ipv4", rate = "20kpps", size = 200 }
apps.out.app = "sink"
"#;
    let [there, back] = tunnel::GIVEN;
    let limited = format!("{there}, hard = {{ packets = 1000000000 }}");
    [links, &tunnel::near("near", [&limited, back]), &tunnel::far("far", tunnel::FILES)].concat()
}

/// Fails if a text has a part of a key.
fn assert_hidden(text: &str) {
    assert!(!text.contains("b2c3d4e5") && !text.contains("293a4b5c"), "{text}");
}

#[test]
fn pairs_are_shown_and_get_new_keys_under_traffic() {
    let sandbox = Sandbox::new();
    for (name, key) in ["there.key", "back.key", "new.key", "short.key"].iter().zip(KEYS) {
        sandbox.write_secret(name, &format!("{key}\n"));
    }
    let path = sandbox.write("network.toml", &network());
    let running = sandbox.start(&[&path, "--json"]);
    let show = |words: &[&str]| {
        let said = sandbox.bellows(&[&["esp", "show", "--json"], words].concat()).success();
        assert_hidden(&said.stdout);
        said.json()
    };
    let received = || show(&["--app", "far"])["pairs"][0]["inbound"].clone();
    within(PATIENCE, "packets", || received()["packets"].as_u64() > Some(500));
    let pairs = show(&["site"]);
    assert_eq!(pairs["pairs"].as_array().map(Vec::len), Some(2));
    assert!(pairs["instructions"].is_string());
    let near = pairs["pairs"].as_array().unwrap().iter().find(|pair| pair["app"] == "near").unwrap();
    assert_eq!(
        (&near["outbound"]["spi"], &near["outbound"]["hard"]["packets"]),
        (&json!(0x1001), &json!(1_000_000_000))
    );
    let table = sandbox.bellows(&["esp"]).success().stdout;
    assert!(table.contains("0x00001001") && table.contains("aes-128-gcm"), "{table}");

    let [key, short] = ["new.key", "short.key"].map(|name| sandbox.path(name).display().to_string());
    let rekey = |app: &str, way: &str, words: [&str; 3]| {
        sandbox.bellows(&[&["esp", "rekey", "site", "--app", app, way], &words[..]].concat())
    };
    rekey("far", "--inbound", ["0x2001", "aes-256-gcm", &key]).success();
    rekey("near", "--outbound", ["0x2001", "aes-256-gcm", &key]).success();
    within(PATIENCE, "packets with the new key", || {
        let inbound = received();
        inbound["spi"] == 0x2001 && inbound["packets"].as_u64() > Some(500)
    });
    assert_eq!(show(&["--app", "far"])["pairs"][0]["old"], 1);
    for (way, words, said) in [
        ("--inbound", ["0x2001", "aes-128-gcm", &short], "new keys need a new SPI"),
        ("--inbound", ["7", "aes-128-gcm", &short], "SPI 7 is reserved"),
        ("--inbound", ["0x3001", "aes-256-gcm", &short], "aes-256-gcm needs 36 bytes"),
        ("--inbound", ["0x3001", "aes-192-gcm", &short], "`algorithm` is no cipher"),
        ("--inbound", ["x", "aes-128-gcm", &short], "`x` is no SPI"),
        ("--inbound", ["0x3001", "aes-128-gcm", "nothing"], "cannot read `nothing`: it does not exist"),
        ("--outbound", ["0x3001", "aes-256-gcm", &key], "in use"),
    ] {
        let refused = rekey("far", way, words);
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
        assert_hidden(&refused.stderr);
    }
    // What happened to the keys is reported beside them: of both ends, of one, and in text.
    let changes = |words: &[&str]| -> Vec<Value> {
        let events = show(words)["events"].as_array().unwrap().clone();
        events
            .into_iter()
            .filter(|event| event["event"] == "key-changed")
            .map(|event| event["fields"].clone())
            .collect()
    };
    let field =
        |events: &[Value], name: &str| -> Vec<Value> { events.iter().map(|event| event[name].clone()).collect() };
    within(PATIENCE, "both changes", || changes(&["site"]).len() == 2);
    let (both, far) = (changes(&["site"]), changes(&["site", "--app", "far"]));
    assert_eq!(field(&both, "app"), [json!("far"), json!("near")]);
    assert_eq!(far, both[..1]);
    assert_eq!((&far[0]["old_spi"], &far[0]["by"]), (&json!(0x1001), &json!("command")));
    let text = sandbox.bellows(&["esp", "show", "site", "--app", "far"]).success().stdout;
    let told = text.lines().filter(|line| line.contains(" key-changed: far: ")).count();
    assert!(told == 1 && text.starts_with("APP ") && !text.contains("near: "), "{text}");
    let events = sandbox.bellows(&["events", "--app", "near", "--json"]).success().stdout;
    assert!(events.lines().count() > 0 && events.lines().all(|line| line.contains("\"app\":\"near\"")), "{events}");
    assert!(sandbox.bellows(&["events", "--app", "nea"]).success().stdout.is_empty());
    let refused = sandbox.bellows(&["esp", "rekey", "site", "--inbound", "0x3001", "aes-128-gcm", &short]);
    assert!(refused.stderr.contains("several apps have a pair `site`"), "{}", refused.stderr);
    for words in [&["show", "config"][..], &["show", "config", "--json"], &["show", "status"], &["show", "--json"]] {
        assert_hidden(&sandbox.bellows(words).success().stdout);
    }

    sandbox.bellows(&["stop"]).success();
    let report = running.wait().success();
    assert_hidden(&report.stdout);
    assert_hidden(&report.stderr);
    let report = report.json();
    assert_books(&report);
    let drops = |app: &Value| app["drops"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    let ends = report["apps"].as_array().unwrap().iter().filter(|app| app["name"] == "near" || app["name"] == "far");
    assert_eq!(ends.map(drops).collect::<Vec<_>>(), [0, 0], "{report:#}");
}

#[test]
fn an_end_without_esn_is_named_as_the_likely_cause_of_failures() {
    let sandbox = Sandbox::new();
    for (name, key) in ["there.key", "back.key"].iter().zip(KEYS) {
        sandbox.write_secret(name, &format!("{key}\n"));
    }
    let path = sandbox.write("network.toml", &network().replacen("hard = {", "esn = false, hard = {", 1));
    let running = sandbox.start(&[&path, "--json"]);
    let show = |words: &[&str]| sandbox.bellows(words).success().stdout;
    within(PATIENCE, "failures", || show(&["esp"]).contains("none authentic"));
    let line = "site of far: ";
    let told = show(&["esp"]).lines().find(|told| told.starts_with(line)).unwrap().to_owned();
    assert!(told.contains("bad_icv") && told.contains("here `esn = true`"), "{told}");
    assert!(!show(&["esp"]).contains("site of near: "));
    let pairs = sandbox.bellows(&["esp", "show", "--json"]).success().json()["pairs"].clone();
    let far = pairs.as_array().unwrap().iter().find(|pair| pair["app"] == "far").unwrap();
    assert!(far["inbound"]["likely_cause"].as_str().unwrap().contains("esn"), "{pairs}");
    within(PATIENCE, "a degraded network", || show(&["show"]).contains("degraded: app-degraded of the app `far`"));
    for words in [&["show"][..], &["show", "errors"], &["show", "counters"]] {
        let shown = show(words);
        let named = shown.lines().find(|line| line.contains("bad_icv") && line.contains("do not agree on `esn`"));
        assert!(named.is_some(), "{words:?}: {shown}");
    }
    let errors = sandbox.bellows(&["show", "errors", "--json"]).success().json();
    assert!(errors["errors"][0]["help"].as_str().unwrap().contains("`esn`"), "{errors}");
    sandbox.bellows(&["stop"]).success();
    let report = running.wait().success().json();
    assert!(report["warnings"][0].as_str().unwrap().contains("`esn`"), "{report:#}");
}

/// A run that seals packets into a capture, and one that opens those of a capture, with keys of the same pair.
fn halves(source: &str, capture: &str) -> [String; 2] {
    [
        format!(
            "links = [\"in.output -> esp.site\", \"esp.ip6 -> out.input\"]\n\
             apps.in = {{ app = \"source\", headers = \"ipv4\", size = 100, {source} }}\n\
             apps.out = {{ app = \"pcap-writer\", path = \"{capture}\" }}\n{}",
            tunnel::near("esp", tunnel::GIVEN)
        ),
        format!(
            "links = [\"in.output -> esp.ip6\", \"esp.site -> out.input\"]\n\
             apps.in = {{ app = \"pcap-reader\", path = \"{capture}\" }}\napps.out.app = \"sink\"\n{}",
            tunnel::far("esp", tunnel::GIVEN)
        ),
    ]
}

/// The sequence numbers and IVs of packets of ESP over IPv6 in a capture.
fn numbers(sandbox: &Sandbox, capture: &str) -> Vec<(u32, u64)> {
    let mut reader = Reader::new(File::open(sandbox.path(capture)).unwrap(), capture).unwrap();
    let mut numbers = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        let data = record.data;
        let number = u32::from_be_bytes(*data[58..].first_chunk().unwrap());
        numbers.push((number, u64::from_be_bytes(*data[62..].first_chunk().unwrap())));
    }
    numbers
}

#[test]
fn a_run_goes_on_where_the_one_before_has_ended_however_that_was() {
    let sandbox = Sandbox::new();
    let mut ivs = BTreeSet::new();
    let mut last = 0;
    for run in 0..4 {
        let capture = format!("wire-{run}.pcap");
        let [sealing, opening] = halves("count = 100", &capture);
        let opening = sandbox.write("opening.toml", &opening);
        let sealing = sandbox.write("sealing.toml", &sealing);
        sandbox.bellows(&["run", &sealing]).success();
        let wire = numbers(&sandbox, &capture);
        assert_eq!(wire.len(), 100);
        for (number, iv) in wire {
            assert!(number > last, "run {run}: number {number} after {last}");
            assert!(ivs.insert(iv), "run {run}: an IV was used again");
            last = number;
        }
        // The other end opens each packet once: also in another run of it, from another file.
        for (expected, name) in [(100, "opening.toml"), (0, "opening.toml"), (0, "renamed.toml")] {
            let path = sandbox.write(name, &std::fs::read_to_string(&opening).unwrap());
            let report = sandbox.bellows(&["run", &path, "--json"]).success().json();
            let apps = report["apps"].as_array().unwrap();
            let esp = apps.iter().find(|app| app["name"] == "esp").unwrap();
            let refused =
                esp["drops"]["replayed"].as_u64().unwrap_or(0) + esp["drops"]["bad_icv"].as_u64().unwrap_or(0);
            assert_eq!(refused, 100 - expected, "run {run}, {name}: {esp:#}");
        }
        // One that is killed under traffic, beside the files of the capture.
        let [endless, _] = halves("rate = \"20kpps\"", "rest.pcap");
        let endless = sandbox.write("sealing.toml", &endless);
        let running = sandbox.start(&[&endless]);
        let sent = || {
            let shown = sandbox.bellows(&["esp", "show", "--json"]).success().json();
            shown["pairs"][0]["outbound"]["sequence"].as_u64().unwrap() as u32
        };
        within(PATIENCE, "packets", || sent() > last + 50);
        last = sent();
        drop(running);
    }
}

#[test]
fn a_key_that_has_received_does_not_seal() {
    let sandbox = Sandbox::new();
    let [sealing, opening] = halves("count = 100", "wire.pcap");
    let path = sandbox.write("sealing.toml", &sealing);
    sandbox.bellows(&["run", &path]).success();
    let path = sandbox.write("end.toml", &opening);
    sandbox.bellows(&["run", &path]).success();
    // The same network with its keys the other way round, as if a restart made it another end.
    let path = sandbox.write("end.toml", &sealing);
    let refused = sandbox.bellows(&["run", &path]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let said = "the key of `outbound` of the pair `site` has received packets";
    assert!(refused.stderr.contains(said), "{}", refused.stderr);
    // Two runs do not share what they count.
    let [endless, _] = halves("rate = \"1kpps\"", "one.pcap");
    let other = endless.replace("one.pcap", "other.pcap");
    let (one, other) = (sandbox.write("one.toml", &endless), sandbox.write("other.toml", &other));
    let _running = sandbox.start(&[&one]);
    let refused = sandbox.bellows(&["run", &other]);
    assert!(refused.stderr.contains("in use by the running network `one`"), "{}", refused.stderr);
}

/// A random key for a cipher: its digits.
fn random_key(algorithm: &str) -> String {
    let mut bytes = vec![0; if algorithm == "aes-128-gcm" { 20 } else { 36 }];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Pieces of the digits of a key, which must not be in memory once it was read.
fn text_of(key: &str) -> Vec<Vec<u8>> {
    let cut = |text: String| text.as_bytes().chunks_exact(16).map(<[u8]>::to_vec).collect::<Vec<_>>();
    [cut(key.to_owned()), cut(key.to_uppercase())].concat()
}

/// Pieces of its bytes, which must not be in memory once it is gone.
fn bytes_of(key: &str) -> Vec<Vec<u8>> {
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = key.as_bytes().chunks_exact(2).map(byte).collect();
    bytes.chunks_exact(8).map(<[u8]>::to_vec).collect()
}

/// What of these keys is in the memory of a process.
fn found(pid: u32, of: fn(&str) -> Vec<Vec<u8>>, keys: &[String]) -> Vec<(usize, String)> {
    memory::find(pid, &keys.iter().flat_map(|key| of(key)).collect::<Vec<_>>()).unwrap()
}

/// Two ends in one network with keys in files: from the first to the second, and back.
fn network_of_files(first_spi: u32, algorithm: &str) -> String {
    let direction =
        |spi: u32, file: &str| format!("{{ spi = {spi}, algorithm = \"{algorithm}\", key_file = \"{file}\" }}");
    let (there, back) = (direction(first_spi, "there.key"), direction(first_spi + 1, "back.key"));
    format!(
        r#"
links = ["in.output -> near.site", "near.ip6 -> far.ip6", "far.site -> out.input",
         "in-back.output -> far.site", "far.ip6 -> near.ip6", "near.site -> out-back.input"]
engine.pool = 4096
apps.in = {{ app = "source", headers = "ipv4", rate = "2kpps", size = 200 }}
apps.in-back = {{ app = "source", headers = "ipv4", rate = "2kpps", size = 200 }}
apps.out.app = "sink"
apps.out-back.app = "sink"
[apps.near]
app = "esp"
local = "2001:db8::1"
grace_seconds = 0
associations.site = {{ remote = "2001:db8::2", outbound = {there}, inbound = {back} }}
[apps.far]
app = "esp"
local = "2001:db8::2"
grace_seconds = 0
associations.site = {{ remote = "2001:db8::1", inbound = {there}, outbound = {back} }}
"#
    )
}

#[test]
fn a_key_that_was_replaced_is_nowhere_in_memory() {
    let sandbox = Sandbox::new();
    let write = |algorithm: &str| -> [String; 2] {
        ["there.key", "back.key"].map(|name| {
            let key = random_key(algorithm);
            sandbox.write_secret(name, &format!("{key}\n"));
            key
        })
    };
    let mut keys = write("aes-128-gcm");
    let path = sandbox.write("network.toml", &network_of_files(0x1001, "aes-128-gcm"));
    let running = sandbox.start(&[&path, "--json"]);
    let pid = running.pid();
    if let Err(error) = memory::find(pid, &[b"any".to_vec()]) {
        return skip("a_key_that_was_replaced_is_nowhere_in_memory", format!("no access to /proc/PID/mem: {error}"));
    }
    let in_use = |spi: u32| {
        let state = sandbox.bellows(&["esp", "show", "--json"]).success().json();
        state["pairs"].as_array().unwrap().iter().all(|pair| {
            let received = &pair["inbound"];
            let spis = [&received["spi"], &pair["outbound"]["spi"]].map(|spi| spi.as_u64().unwrap_or(0) as u32);
            spis.iter().all(|other| [spi, spi + 1].contains(other)) && pair["old"] == 0 && received["packets"] != 0
        })
    };
    within(PATIENCE, "packets", || in_use(0x1001));
    // The search finds what is there: the keys in use.
    assert!(!found(pid, bytes_of, &keys).is_empty());
    let ciphers = ["aes-256-gcm", "chacha20-poly1305", "aes-128-gcm", "aes-128-gcm"];
    for (round, algorithm) in ciphers.into_iter().enumerate() {
        let old = std::mem::replace(&mut keys, write(algorithm));
        let spi = 0x2001 + 0x1000 * round as u32;
        if round % 2 == 0 {
            sandbox.write("network.toml", &network_of_files(spi, algorithm));
            sandbox.bellows(&["reload"]).success();
        } else {
            let files = ["there.key", "back.key"].map(|name| sandbox.path(name).display().to_string());
            let [there, back] = [spi, spi + 1].map(|spi| format!("{spi:#x}"));
            for (app, ways) in [("far", ["--inbound", "--outbound"]), ("near", ["--outbound", "--inbound"])] {
                let words =
                    ["esp", "rekey", "site", "--app", app, ways[0], &there, algorithm, &files[0], ways[1], &back];
                let said = sandbox.bellows(&[&words[..], &[algorithm, &files[1]]].concat()).success().stdout;
                let expected = ["site: receives with SPI 0x000", "site: sends with SPI 0x000", algorithm, "is gone"];
                assert!(expected.iter().all(|words| said.contains(words)), "{said}");
            }
        }
        within(PATIENCE, "packets with the new keys", || in_use(spi));
        // The thread that has computed with the old keys overwrites its stack in its next tick.
        within(PATIENCE, "no bytes of the old keys", || found(pid, bytes_of, &old).is_empty());
        for keys in [&old, &keys] {
            assert_eq!(found(pid, text_of, keys), [], "{algorithm}");
        }
    }
    // And all of it was reported.
    let events = sandbox.bellows(&["events", "--since", "1h"]).success().stdout;
    let count = |name: &str| events.lines().filter(|line| line.contains(&format!(" {name}: "))).count();
    assert_eq!([count("key-changed"), count("key-retired")], [16, 8], "{events}");
    assert!(events.contains("has a new key by reload") && events.contains("has a new key by command"), "{events}");
    sandbox.bellows(&["stop"]).success();
    running.wait().success();
}

#[test]
fn files_with_keys_that_others_can_read_are_refused_and_networks_with_keys_warned_of() {
    let sandbox = Sandbox::new();
    let key = random_key("aes-128-gcm");
    for name in ["there.key", "back.key"] {
        sandbox.write_secret(name, &random_key("aes-128-gcm"));
    }
    let path = sandbox.write("network.toml", &network_of_files(0x1001, "aes-128-gcm"));
    let close = |name: &str, mode| fs::set_permissions(sandbox.path(name), Permissions::from_mode(mode)).unwrap();
    for mode in [0o644, 0o640, 0o604] {
        close("there.key", mode);
        for words in [&["check", &path][..], &["run", &path, "--duration", "1s"]] {
            let said = sandbox.bellows(words);
            let (mode, help) = (format!("mode {mode:04o}"), "close it with `chmod 600 ");
            assert!(said.code == Some(2) && said.stderr.contains(&mode) && said.stderr.contains(help), "{said:?}");
            assert!(said.stderr.contains("there.key") && said.stderr.contains("key_file"), "{said:?}");
        }
    }
    close("there.key", 0o600);
    let running = sandbox.start(&[&path]);
    within(PATIENCE, "pairs", || {
        sandbox.bellows(&["esp", "show", "near"]).code == Some(0) || {
            sandbox.bellows(&["esp"]).success().stdout.contains("0x00001001")
        }
    });
    // A reload and a command refuse it as well, and the network runs on.
    close("there.key", 0o644);
    assert!(sandbox.bellows(&["reload"]).stderr.contains("mode 0644"));
    let new = sandbox.write("new.key", &key);
    let rekey = ["esp", "rekey", "site", "--app", "near", "--outbound", "0x2001", "aes-128-gcm", &new];
    let said = sandbox.bellows(&rekey);
    assert!(said.code == Some(2) && said.stderr.contains("new.key") && said.stderr.contains("chmod 600"), "{said:?}");
    close("new.key", 0o600);
    sandbox.bellows(&rekey).success();
    drop(running);

    // A key in the network's file.
    let text = network();
    sandbox.write_secret("there.key", KEYS[0]);
    sandbox.write_secret("back.key", KEYS[1]);
    let path = sandbox.write("inline.toml", &text);
    let warned = |words: &[&str]| {
        let said = sandbox.bellows(&[&["check"], words].concat());
        assert_hidden(&format!("{}{}", said.stdout, said.stderr));
        let is_warned = said.stderr.contains("2 keys are in a file that is open to others than its owner (mode 0644)");
        assert!(said.code == Some(0) && (!is_warned || said.stderr.contains("chmod 600 ")), "{said:?}");
        is_warned
    };
    close("inline.toml", 0o644);
    assert!(warned(&[&path]));
    close("inline.toml", 0o600);
    assert!(!warned(&[&path]));
    // A variable has the key, and not the file; a setting is seen by everyone.
    let path = sandbox.write("variable.toml", &text.replace(KEYS[0], "${THERE}").replace(KEYS[1], "${BACK}"));
    let mut command = sandbox.command(&["check", &path]);
    let said: Said = command.env("THERE", KEYS[0]).env("BACK", KEYS[1]).output().unwrap().into();
    assert!(said.code == Some(0) && !said.stderr.contains("is open to others"), "{said:?}");
    let setting = format!("apps.near.associations.site.outbound.key={}", KEYS[0]);
    close("inline.toml", 0o600);
    let said = sandbox.bellows(&["check", &sandbox.path("inline.toml").display().to_string(), "--set", &setting]);
    assert!(said.stderr.contains("a key is on the command line"), "{said:?}");
}

/// The state of a direction of the pair of an app.
fn direction(sandbox: &Sandbox, app: &str, way: &str) -> Value {
    sandbox.bellows(&["esp", "show", "--app", app, "--json"]).success().json()["pairs"][0][way].clone()
}

/// What `show saved` says of keys, without the times.
fn saved_keys(sandbox: &Sandbox) -> Vec<Value> {
    let said = sandbox.bellows(&["show", "saved", "--json"]).success();
    let mut keys = said.json()["keys"].as_array().unwrap().clone();
    for key in &mut keys {
        assert!(key.as_object_mut().unwrap().remove("saved_unix_ns").unwrap().as_u64() > Some(1 << 60));
    }
    keys
}

#[test]
fn keys_that_a_command_has_saved_are_in_use_after_a_restart_and_go_on_with_their_numbers() {
    let sandbox = Sandbox::new();
    let new: [String; 2] = [(); 2].map(|()| random_key("aes-256-gcm"));
    for (name, key) in ["there.key", "back.key"].iter().zip(KEYS) {
        sandbox.write_secret(name, key);
    }
    let files: [String; 2] =
        std::array::from_fn(|index| sandbox.write_secret(&format!("new-{index}.key"), &format!(" {}\n", new[index])));
    let path = sandbox.write("network.toml", &network_of_files(0x1001, "aes-128-gcm"));
    let start = || {
        let running = sandbox.start(&[&path]);
        within(PATIENCE, "packets", || direction(&sandbox, "far", "inbound")["packets"].as_u64() > Some(50));
        running
    };
    let running = start();
    let rekey = |app: &str, words: &[&str]| sandbox.bellows(&[&["esp", "rekey", "site", "--app", app], words].concat());
    let there = ["0x2001", "aes-256-gcm", &files[0]];
    rekey("far", &[&["--inbound"], &there[..], &["--save"]].concat()).success();
    let both = [&["--outbound"], &there[..], &["--inbound", "0x2002", "aes-256-gcm", &files[1], "--save"]].concat();
    rekey("near", &both).success();
    rekey("far", &["--outbound", "0x2002", "aes-256-gcm", &files[1], "--save"]).success();
    let key = |app: &str, direction: &str, spi: u32, problem: Value| {
        json!({
            "app": app, "pair": "site", "direction": direction, "spi": spi, "algorithm": "aes-256-gcm",
            "problem": problem,
        })
    };
    let all = |problem: &Value| {
        let of = |app, inbound, outbound| {
            [key(app, "inbound", inbound, problem.clone()), key(app, "outbound", outbound, problem.clone())]
        };
        [of("far", 0x2001, 0x2002), of("near", 0x2002, 0x2001)].concat()
    };
    assert_eq!(saved_keys(&sandbox), all(&Value::Null));
    // One that is refused is not saved, and neither changes anything.
    let refused = rekey("near", &["--inbound", "0x2002", "aes-256-gcm", &files[0], "--save"]);
    assert_eq!((refused.code, saved_keys(&sandbox)), (Some(2), all(&Value::Null)), "{refused:?}");
    // The file alone has the keys, and nobody else can read it.
    let file = sandbox.path("state/saved-keys/network");
    let text = fs::read_to_string(&file).unwrap();
    assert!(new.iter().all(|key| text.matches(&**key).count() == 2), "{}", text.lines().count());
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let hidden = |text: &str| assert!(!new.iter().any(|key| text.contains(&key[8..24])), "{text}");
    for words in [&["show", "saved"][..], &["show", "saved", "--json"], &["esp"], &["events"], &["show", "status"]] {
        hidden(&sandbox.bellows(words).success().stdout);
    }
    let shown = sandbox.bellows(&["show", "saved"]).success().stdout;
    assert!(shown.contains("near  site  inbound    0x00002002  aes-256-gcm"), "{shown}");
    if memory::find(running.pid(), &[b"any".to_vec()]).is_ok() {
        assert_eq!(found(running.pid(), text_of, &new), []);
    }
    within(PATIENCE, "packets with the new keys", || {
        direction(&sandbox, "near", "inbound")["packets"].as_u64() > Some(50)
            && direction(&sandbox, "far", "inbound")["packets"].as_u64() > Some(50)
    });

    // However the run ends, the next one uses the keys again, behind their last numbers.
    let mut last = direction(&sandbox, "near", "outbound")["sequence"].as_u64().unwrap();
    for (round, running) in [Some(running), None].into_iter().enumerate() {
        let running = running.unwrap_or_else(start);
        match round {
            0 => drop(running),
            _ => {
                sandbox.bellows(&["stop"]).success();
                hidden(&running.wait().success().stderr);
            }
        }
        let running = start();
        let outbound = direction(&sandbox, "near", "outbound");
        assert_eq!((&outbound["spi"], &outbound["by"]), (&json!(0x2001), &json!("saved")), "{outbound}");
        within(PATIENCE, "packets", || direction(&sandbox, "far", "inbound")["packets"].as_u64() > Some(200));
        let sequence = direction(&sandbox, "near", "outbound")["sequence"].as_u64().unwrap();
        assert!(sequence > last, "{sequence} after {last}");
        last = sequence;
        let errors = sandbox.bellows(&["show", "errors", "--json"]).success().json();
        assert!(!errors.to_string().contains("replayed"), "{errors}");
        assert_eq!(saved_keys(&sandbox), all(&Value::Null));
        if memory::find(running.pid(), &[b"any".to_vec()]).is_ok() {
            assert_eq!(found(running.pid(), text_of, &new), []);
        }
        sandbox.bellows(&["stop"]).success();
        running.wait().success();
    }

    // Without the record of how far they were used, they are not used again; not by the run after that, either.
    fs::remove_dir_all(sandbox.path("state/esp-keys")).unwrap();
    for _ in 0..2 {
        let running = start();
        assert_eq!(direction(&sandbox, "near", "outbound")["spi"], 0x1001);
        let problems: Vec<Value> = saved_keys(&sandbox).iter().map(|key| key["problem"].clone()).collect();
        let is_lost = |problem: &Value| problem.as_str().is_some_and(|why| why.contains("is not known any more"));
        assert!(problems.len() == 4 && problems.iter().all(is_lost), "{problems:?}");
        let events = sandbox.bellows(&["events", "network", "--json"]).success().stdout;
        hidden(&events);
        let told = "of `near` is left out: how far it was used is not known any more";
        let remedy = "`bellows esp forget site --app near` removes it";
        let left_out = events.lines().filter(|line| line.contains("saved-left-out"));
        assert!(left_out.clone().any(|line| line.contains(told) && line.contains(remedy)), "{events}");
        sandbox.bellows(&["stop"]).success();
        running.wait().success();
    }
}

#[test]
fn saved_keys_that_do_not_fit_any_more_are_left_out_and_can_be_forgotten() {
    let sandbox = Sandbox::new();
    for (name, key) in ["there.key", "back.key"].iter().zip(KEYS) {
        sandbox.write_secret(name, key);
    }
    let file = sandbox.write_secret("new.key", &random_key("aes-256-gcm"));
    let text = network_of_files(0x1001, "aes-128-gcm");
    let path = sandbox.write("network.toml", &text);
    let restart = |running: Option<crate::support::Running>, text: &str| {
        if let Some(running) = running {
            sandbox.bellows(&["stop"]).success();
            running.wait().success();
        }
        sandbox.write("network.toml", text);
        sandbox.start(&[&path])
    };
    let save = |app: &str, way: &str| {
        let words = ["esp", "rekey", "site", "--app", app, way, "0x2001", "aes-256-gcm", &file, "--save"];
        sandbox.bellows(&words)
    };
    let problem = || saved_keys(&sandbox)[0]["problem"].as_str().map(str::to_owned);
    let running = restart(None, &text);
    save("far", "--inbound").success();
    // The key is in the network file now.
    let moved = text.replace(
        "spi = 4097, algorithm = \"aes-128-gcm\", key_file = \"there.key\"",
        "spi = 0x2001, \
                              algorithm = \"aes-256-gcm\", key_file = \"new.key\"",
    );
    assert_ne!(moved, text);
    let running = restart(Some(running), &moved);
    assert_eq!((problem(), &direction(&sandbox, "far", "inbound")["spi"]), (None, &json!(0x2001)));
    // Another one is there: it is younger.
    sandbox.write_secret("younger.key", &random_key("aes-256-gcm"));
    let younger = moved.replace("0x2001", "0x3001").replace("new.key", "younger.key");
    let running = restart(Some(running), &younger);
    assert!(problem().unwrap().contains("another key of the pair `site` since it was saved"), "{:?}", problem());
    assert_eq!(direction(&sandbox, "far", "inbound")["spi"], 0x3001);
    // A pair, or an app, that has another name.
    let renamed = [text.replace("site", "office"), text.replace("far", "there")];
    let running = restart(Some(running), &renamed[0]);
    assert!(problem().unwrap().contains("there is no pair `site`; there are `office`"), "{:?}", problem());
    let running = restart(Some(running), &renamed[1]);
    assert!(problem().unwrap().contains("`far`"), "{:?}", problem());
    // It is there again with the name, until it is forgotten.
    let running = restart(Some(running), &text);
    assert_eq!((problem(), &direction(&sandbox, "far", "inbound")["spi"]), (None, &json!(0x2001)));
    let said = sandbox.bellows(&["esp", "forget", "office"]);
    assert!(said.code == Some(2) && said.stderr.contains("no key is saved of the pair `office`"), "{said:?}");
    assert_eq!(sandbox.bellows(&["esp", "forget", "site"]).success().stdout, "site: 1 saved key removed\n");
    assert_eq!(saved_keys(&sandbox), [] as [Value; 0]);
    assert_eq!(direction(&sandbox, "far", "inbound")["spi"], 0x2001, "what is in use stays");
    let running = restart(Some(running), &text);
    assert_eq!(direction(&sandbox, "far", "inbound")["spi"], 0x1001);

    // What cannot be saved changes nothing: a folder or a file that is open to others, and a line that is not right.
    let saved = sandbox.path("state/saved-keys/network");
    let open = |path: &std::path::Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for (path, closed, mode) in [(saved.parent().unwrap(), 0o700, 0o755), (&saved, 0o600, 0o644)] {
        open(path, mode);
        let said = save("near", "--outbound");
        let is_refused =
            said.code == Some(1) && said.stderr.contains("nothing was changed") && said.stderr.contains("chmod");
        assert!(is_refused, "{said:?}");
        assert_eq!(direction(&sandbox, "near", "outbound")["spi"], 0x1001);
        open(path, closed);
    }
    fs::write(&saved, "{\"key\": \"00112233445566778899\"}\n").unwrap();
    let running = restart(Some(running), &text);
    let events = sandbox.bellows(&["events", "network"]).success().stdout;
    assert!(events.contains("saved-keys/network:1: this is no saved key") && !events.contains("0011"), "{events}");
    save("near", "--outbound").success();
    assert!(
        fs::read_to_string(&saved).unwrap().contains("00112233445566778899"),
        "it stays until somebody corrects it"
    );
    for words in [&["esp", "show", "--save"][..], &["esp", "forget"], &["esp", "rekey", "site", "--save"]] {
        assert_eq!(sandbox.bellows(words).code, Some(2), "{words:?}");
    }
    drop(running);
}
