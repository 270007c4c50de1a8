//! `ps`, `show`, `top`, `reload`, `stop`: running networks, and one that crashed, from outside.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use crate::support::{ENDLESS, IDLE, Sandbox, Signal};
use bellows_testkit::eventually;
use serde_json::json;

/// [`ENDLESS`] with a counter between.
const LONGER: &str = r#"
links = ["source.output -> count.input", "count.output -> end.input"]
[apps.source]
app = "source"
size = 60
rate = "100kpps"
[apps.count]
app = "counter"
[apps.end]
app = "sink"
"#;

#[test]
fn a_running_network_can_be_seen() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&[&network]);
    let engines = sandbox.bellows(&["ps", "--json"]).success().json();
    assert_eq!(engines.as_array().unwrap().len(), 1);
    assert_eq!((&engines[0]["name"], &engines[0]["state"]), (&json!("endless"), &json!("running")));
    assert_eq!(engines[0]["pid"], json!(running.pid()));
    assert!(engines[0]["packets_per_second"].as_f64().unwrap() > 0.0, "{engines:#}");
    let list = sandbox.bellows(&["ps"]).success().stdout;
    assert!(list.contains("running") && list.contains("kpps"), "{list}");

    for words in [&["show"][..], &["show", "endless"], &["show", "links"], &["show", "links", "endless"]] {
        let said = sandbox.bellows(words).success();
        assert!(said.stdout.contains("source.output -> end.input"), "{words:?}: {said:?}");
    }
    assert!(sandbox.bellows(&["show", "apps"]).success().stdout.contains("sink"));
    assert!(sandbox.bellows(&["show", "errors"]).success().stdout.contains("nothing was dropped"));
    assert!(sandbox.bellows(&["show", "config"]).success().stdout.contains("rate = \"100kpps\""));
    assert!(running.counters()["config"].as_str().unwrap().contains("[apps.source]"));

    let top = sandbox.bellows(&["top", "endless", "--once", "--interval", "300ms"]).success();
    assert!(
        top.stdout.contains("kpps")
            && top.stdout.contains("buffers in use")
            && top.stdout.contains("source.output -> end.input"),
        "{top:?}"
    );

    for words in [&["show", "endles"][..], &["show", "colours", "endless"], &["top", "nobody"], &["reload", "nobody"]] {
        let said = sandbox.bellows(words);
        assert_eq!(said.code, Some(2), "{words:?}: {said:?}");
    }
    assert!(sandbox.bellows(&["stop", "nobody"]).stderr.contains("run/bellows"), "the folder is named");
    assert!(sandbox.bellows(&["show", "endles"]).stderr.contains("did you mean `endless`?"));

    sandbox.bellows(&["stop"]).success();
    assert!(running.wait().success().stdout.contains("stopped on request"));
    assert_eq!(sandbox.bellows(&["ps", "--json"]).success().json(), json!([]));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_breath_is_listed_with_its_code_and_named_for_perf() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&[&network, "--perf-map"]);
    let listing = sandbox.bellows(&["show", "breath", "endless"]).success().stdout;
    for part in [
        "schedule native",
        "pull source  when its slot says so",
        "push end  when packets wait in source.output -> end.input",
        "; push end [source.output -> end.input]",
        "call bellows_basic::sink::Sink::push",
        "; sampled push end",
    ] {
        assert!(listing.contains(part), "{part} is not in\n{listing}");
    }
    let map_file = format!("/tmp/perf-{}.map", running.pid());
    let map = || fs::read_to_string(&map_file).unwrap();
    let json = sandbox.bellows(&["show", "breath", "--json"]).success().json();
    let first = json["code"][0]["address"].as_u64().unwrap();
    assert!(map().starts_with(&format!("{first:x} ")), "the map is of other code than {first:x}:\n{}", map());
    assert!(map().contains(" breath: push end [source.output -> end.input]"), "{}", map());
    let mappings = fs::read_to_string(format!("/proc/{}/maps", running.pid())).unwrap();
    let code = mappings.lines().find(|line| line.starts_with(&format!("{first:x}-"))).unwrap();
    assert!(code.contains(" r-xp ") && code.split_whitespace().count() == 5, "perf asks no map for a file: {code}");

    sandbox.write("endless.toml", LONGER);
    sandbox.bellows(&["reload", "endless"]).success();
    assert!(sandbox.bellows(&["show", "breath"]).success().stdout.contains("push count"));
    assert!(map().contains("push count"), "the map follows the reload:\n{}", map());
    sandbox.bellows(&["stop"]).success();
    running.wait().success();
    fs::remove_file(map_file).unwrap();

    let nested = sandbox.start(&[&network, "--schedule", "nested"]);
    let listing = sandbox.bellows(&["show", "breath"]).success().stdout;
    assert!(listing.starts_with("schedule nested") && !listing.contains("machine code"), "{listing}");
    drop(nested);
}

#[test]
fn an_idle_network_is_seen_asleep() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("idle.toml", IDLE);
    let _running = sandbox.start(&[&network]);
    thread::sleep(Duration::from_millis(1200));
    let top = sandbox.bellows(&["top", "--once", "--interval", "200ms"]).success();
    assert!(top.stdout.contains("asleep 100.0 %"), "{top:?}");
}

#[test]
fn names_do_not_clash() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let _first = sandbox.start(&[&network]);
    let second = sandbox.start(&[&network]);
    assert_eq!(second.name, "endless-2");
    let said = sandbox.bellows(&["run", &network, "--name", "endless"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("is running already"), "{said:?}");
    let said = sandbox.bellows(&["show"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("endless, endless-2"), "{said:?}");
}

#[test]
fn the_remains_of_a_killed_network_can_be_read_and_removed() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&[&network]);
    let pid = running.pid();
    eventually("some packets", || running.counters()["links"][0]["packets"].as_u64() > Some(100));
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code, None);

    let engines = sandbox.bellows(&["ps", "--json"]).success().json();
    assert_eq!((&engines[0]["state"], &engines[0]["pid"]), (&json!("crashed"), &json!(pid)));
    let counters = sandbox.bellows(&["show", "--json"]).success().json();
    assert_eq!(counters["state"], json!("crashed"));
    assert!(counters["links"][0]["packets"].as_u64() > Some(100));
    let said = sandbox.bellows(&["show", "apps"]).success();
    assert!(said.stderr.contains("has crashed"), "{said:?}");
    let top = sandbox.bellows(&["top", "--once"]).success().stdout;
    assert!(top.contains("crashed, so its rates are not known") && top.contains('–'), "{top}");
    assert!(!top.contains("pps") && !top.contains("asleep"), "{top}");
    let drawn = sandbox.bellows(&["graph", "--name", "endless"]).success();
    assert!(drawn.stdout.contains("endless (crashed)") && !drawn.stdout.contains("pps"), "{drawn:?}");
    assert!(drawn.stderr.contains("its rates are not known"), "{drawn:?}");
    let said = sandbox.bellows(&["stop"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("ps --clean"), "{said:?}");

    // The name is free again for a run, and the remains can be removed.
    let again = sandbox.start(&[&network]);
    assert_eq!(again.name, "endless");
    again.signal(Signal::KILL);
    again.wait();
    assert!(sandbox.bellows(&["ps", "--clean"]).success().stderr.contains("removed"));
    assert_eq!(sandbox.bellows(&["ps", "--json"]).success().json(), json!([]));
}

#[test]
fn where_nothing_runs_the_folder_is_named() {
    let sandbox = Sandbox::new();
    for words in [&["ps"][..], &["show"], &["top"], &["stop"], &["reload", "it"]] {
        let said = sandbox.bellows(words);
        assert!(said.stderr.contains(&*sandbox.path("run/bellows").to_string_lossy()), "{words:?}: {said:?}");
        assert!(said.stderr.contains("BELLOWS_RUNTIME_DIR"), "{words:?}: {said:?}");
    }
}

#[test]
fn a_run_that_ends_before_it_answers_is_stopped() {
    let sandbox = Sandbox::new();
    for folder in ["run/bellows", "run/bellows/fleeting"] {
        fs::DirBuilder::new().mode(0o700).create(sandbox.path(folder)).unwrap();
    }
    let folder = sandbox.path("run/bellows/fleeting");
    // This process is the engine's.
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let start = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    fs::write(folder.join("identity"), format!("{} {start}\n", std::process::id())).unwrap();
    let listener = UnixListener::bind(folder.join("control")).unwrap();
    let engine = thread::spawn(move || {
        for ends in [false, true] {
            let (mut client, _) = listener.accept().unwrap();
            assert!(client.read(&mut [0; 100]).unwrap() > 0);
            if ends {
                fs::remove_dir_all(&folder).unwrap();
            }
        }
    });
    let said = sandbox.bellows(&["stop"]);
    assert!(said.code == Some(1) && said.stderr.contains("does not answer"), "it hung up and runs on: {said:?}");
    sandbox.bellows(&["stop"]).success();
    engine.join().unwrap();
}

#[test]
fn a_reload_keeps_unchanged_apps_and_rejects_errors() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", ENDLESS);
    let running = sandbox.start(&[&network]);
    eventually("some packets", || running.counters()["links"][0]["packets"].as_u64() > Some(100));

    sandbox.write("network.toml", LONGER);
    let report = sandbox.bellows(&["reload", "network", "--json"]).success().json();
    assert_eq!((&report["kept"], &report["added"]), (&json!(["source", "end"]), &json!(["count"])));
    assert_eq!((&report["removed"], &report["replaced"]), (&json!([]), &json!([])));
    assert_eq!(report["links_removed"], json!(["source.output -> end.input"]));
    eventually("packets on the new way", || running.counters()["apps"][1]["in_packets"].as_u64() > Some(100));

    sandbox.write("network.toml", "links = [\"a.b -> c.d\"]\n[apps.a]\napp = \"sauce\"\n");
    let said = sandbox.bellows(&["reload", "network"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("network.toml:3") && said.stderr.contains("source"), "{said:?}");
    let before = running.counters();
    assert_eq!(before["apps"].as_array().unwrap().len(), 3, "the old one runs on");
    let sent = |counters: &serde_json::Value| counters["links"][0]["packets"].as_u64();
    eventually("more packets", || sent(&running.counters()) > sent(&before));

    // Another file in its place, by a path relative to the caller.
    sandbox.write("other.toml", ENDLESS);
    let said = sandbox.bellows(&["reload", "network", "other.toml"]).success();
    assert!(said.stdout.contains("kept: source, end") && said.stdout.contains("removed: count"), "{said:?}");
    running.signal(Signal::INT);
    let said = running.wait().success();
    assert!(said.stdout.contains("2 reloads"), "{said:?}");
}

#[test]
fn a_hangup_and_a_changed_file_reload() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", ENDLESS);
    let mut running = sandbox.start(&[&network, "--watch"]);
    running.signal(Signal::HUP);
    running.wait_for_log("kept: source, end");
    sandbox.write("network.toml", LONGER);
    running.wait_for_log("added: count");
    sandbox.write("network.toml", "links = nonsense");
    running.wait_for_log("not reloaded");
    sandbox.write("network.toml", ENDLESS);
    running.wait_for_log("removed: count");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code, Some(0));
}

#[test]
fn the_control_socket_is_private_and_survives_anything() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&[&network]);
    let socket = running.folder().join("control");
    eventually("mode 0700", || fs::metadata(&socket).unwrap().permissions().mode() & 0o777 == 0o700);
    for garbage in [&b"{\"command\":\"reload\",\"network\":7}\n"[..], b"\0\xff\n", &[b'{'; 200_000]] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut reply = String::new();
        let _ = stream.read_to_string(&mut reply);
        assert!(reply.is_empty() || reply.contains("\"refused\""), "{reply}");
    }
    let _silent: Vec<UnixStream> = (0..10).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"{\"command\":\"status\"}\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
    assert_eq!((&reply["reply"], &reply["pid"]), (&json!("status"), &json!(running.pid())));
    sandbox.bellows(&["stop", "endless"]).success();
    running.wait().success();
}

#[test]
fn a_running_network_is_drawn_with_its_rates() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let _running = sandbox.start(&[&network]);
    let dot = sandbox.bellows(&["graph", "--name", "endless", "--format", "dot"]).success().stdout;
    assert!(dot.contains("digraph") && dot.contains("kpps"), "{dot}");
    sandbox.bellows(&["graph", &network, "--name", "endless", "-o", "picture.svg"]).success();
    let svg = fs::read_to_string(sandbox.path("picture.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("kpps"), "{svg}");
    let text = sandbox.bellows(&["graph", &network]).success().stdout;
    assert!(text.contains("source") && !text.contains("pps"), "{text}");
    assert_eq!(sandbox.bellows(&["graph"]).code, Some(2));
    let said = sandbox.bellows(&["graph", &network, "-o", "nowhere/picture.svg"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("nowhere/picture.svg") && said.stderr.contains("create the folder"), "{said:?}");
}
