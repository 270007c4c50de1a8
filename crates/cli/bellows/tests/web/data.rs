//! The server's answers: the figures are those of `show --json`, requests are limited, and nothing is read while no
//! page is open.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use bellows_testkit::eventually;
use bellows_testkit::programs::has_program;
use bellows_testkit::wait::Watchdog;
use serde_json::{Value, json};

use crate::support::site::Site;
use crate::support::strace::{assert_reads_only, traced};
use crate::support::{ENDLESS, IDLE, Sandbox, Signal};

/// A network that has passed on all its packets, some of which it dropped, and lives on.
pub const DONE: &str = r#"
links = ["source.output -> limit.input", "limit.output -> end.input", "later.output -> rest.input"]
[apps.source]
app = "source"
size = 60
count = 5000
[apps.limit]
app = "rate-limiter"
rate = "1pps"
burst_packets = 100
[apps.end]
app = "sink"
[apps.later]
app = "source"
size = 60
rate = 0.0003
[apps.rest]
app = "sink"
"#;

/// The counters of a network that has come to rest: two times the same.
pub fn at_rest(sandbox: &Sandbox, name: &str) -> Value {
    let show = || sandbox.bellows(&["show", name, "--json"]).success().json();
    let mut shown = show();
    eventually("the network is at rest", || {
        thread::sleep(Duration::from_millis(200));
        let before = std::mem::replace(&mut shown, show());
        shown["apps"] == before["apps"] && shown["links"] == before["links"] && shown["apps"][0]["out_packets"] != 0
    });
    shown
}

#[test]
fn figures_are_those_of_the_commands() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("done.toml", DONE);
    let running = sandbox.start(&[&file, "--name", "done"]);
    let site = Site::start(&sandbox, &[]);
    // The first request begins to read; the next reading is a second later at most.
    site.get("/api/networks").json();
    let shown = at_rest(&sandbox, "done");
    thread::sleep(Duration::from_millis(1_200));
    let counters = site.get("/api/counters?network=done").json();
    for key in ["apps", "links", "config", "source", "version", "failed", "name", "user", "state"] {
        assert_eq!(counters[key], shown[key], "{key}");
    }
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&counters), keys(&shown));
    for (index, app) in shown["apps"].as_array().unwrap().iter().enumerate() {
        let name = app["name"].as_str().unwrap();
        let answer = site.get(&format!("/api/app?network=done&app={name}")).json();
        assert_eq!((&answer["app"], &answer["index"]), (app, &json!(index)));
    }
    let limit = site.get("/api/app?network=done&app=limit").json();
    assert_eq!(limit["helps"]["over_rate"], "packets above the rate, without a queue", "{limit:#}");
    let run = sandbox.bellows(&["show", "run", "done", "--json"]).success().json();
    let costs = site.get("/api/costs?network=done").json();
    assert_eq!(keys(&costs), keys(&run));
    let of = |value: &Value, key: &str| -> Vec<Value> {
        value["rows"].as_array().unwrap().iter().map(|row| row[key].clone()).collect()
    };
    assert_eq!((of(&costs, "app"), of(&costs, "packets")), (of(&run, "app"), of(&run, "packets")));
    let latency = sandbox.bellows(&["show", "latency", "done", "--json"]).success().json();
    assert_eq!(site.get("/api/latency?network=done").json()["latency"], latency["latency"]);
    let link = site.get("/api/link?network=done&link=source.output%20-%3E%20limit.input").json();
    assert_eq!(link["link"], shown["links"][0]);
    let status = sandbox.bellows(&["show", "status", "done", "--json"]).success().json();
    assert_eq!(keys(&site.get("/api/status?network=done").json()), keys(&status));
    let timeline = site.get("/api/timeline?network=done").json();
    assert_eq!(keys(&timeline), keys(&sandbox.bellows(&["timeline", "done", "--json"]).success().json()));
    let recorded = sandbox.bellows(&["timeline", "done", "--all", "--json"]).success().json();
    let recorded = recorded["events"].as_array().unwrap();
    let is_counted = |event: &&Value| event["app"] == "limit" && event["what"] == "call" && event["packets"] != 0;
    // Without those of breaths that were recorded because they were slow.
    let durations = site.get("/api/durations?network=done&app=limit").json();
    let samples = durations["durations"]["samples"].as_u64().unwrap();
    assert!(samples <= recorded.iter().filter(is_counted).count() as u64, "{durations:#}");
    let listed = site.get("/api/networks").json();
    let ps = sandbox.bellows(&["ps", "--json"]).success().json();
    for key in ["name", "user", "state", "pid", "network", "schedule"] {
        assert_eq!(listed["networks"][0][key], ps[0][key], "{key}");
    }
    drop(running);
}

#[test]
fn the_picture_is_that_of_graph() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("done.toml", DONE);
    let _running = sandbox.start(&[&file, "--name", "done"]);
    let site = Site::start(&sandbox, &[]);
    site.get("/api/networks").json();
    let picture = site.get("/api/picture?network=done").json();
    let drawn = sandbox.bellows(&["graph", "--name", "done", "--format", "svg"]).success().stdout;
    let live = picture["svg"].as_str().unwrap();
    // Boxes and links are in the same order; they are further apart, to have room for figures.
    let parts = |svg: &str, what: &str| svg.matches(what).count();
    for what in ["<g class=\"app", "<g class=\"link", "class=\"tip\"", "class=\"name middle\"", "class=\"port"] {
        assert_eq!(parts(live, what), parts(&drawn, what), "{what}");
    }
    let names = |svg: &str| -> Vec<String> {
        let names = svg.split("class=\"name middle\"").skip(1);
        names.map(|rest| rest.split(['>', '<']).nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(names(live), names(&drawn));
    assert_eq!(picture["structure"], site.get("/api/live?network=done").json()["structure"]);
}

#[test]
fn traces_and_captures_are_made_on_request() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("endless.toml", ENDLESS);
    let _running = sandbox.start(&[&file, "--name", "endless"]);
    let site = Site::start(&sandbox, &[]);
    let trace = site.post("/api/trace", &json!({ "network": "endless", "count": 3, "seconds": 5 })).json();
    assert_eq!((trace["packets"].as_array().unwrap().len(), &trace["end"]), (3, &json!("complete")), "{trace:#}");
    assert_eq!(trace["packets"][0]["steps"][0]["to"], "end.input");
    let tap = |link: &str, count: u64, seconds: f64, filter: Option<&str>| {
        let mut order = json!({ "network": "endless", "link": link, "count": count, "seconds": seconds });
        order["filter"] = json!(filter);
        order
    };
    let link = "source.output -> end.input";
    let captured = site.post("/api/tap", &tap(link, 40, 10.0, None));
    assert_eq!((captured.status, captured.header("bellows-packets")), (200, Some("40")), "{}", captured.head);
    // A file header of 24 bytes, and for each packet one of 16.
    assert_eq!(captured.body.len(), 24 + 40 * (16 + 60));
    assert_eq!(captured.body[..4], [0x4d, 0x3c, 0xb2, 0xa1]);
    assert!(captured.header("content-disposition").unwrap().starts_with("attachment"));
    // The time ends a capture that gets no packets.
    let none = site.post("/api/tap", &tap(link, 9, 0.2, Some("tcp port 80")));
    assert_eq!((none.status, none.body.len(), none.header("bellows-end")), (200, 24, Some("time")));
    for (path, body, reason) in [
        ("/api/tap", tap("a -> b", 1, 1.0, None), "a -> b"),
        ("/api/tap", tap(link, 1, 1e9, None), "give a number from 0.1 to 60"),
        ("/api/tap", tap(link, 1, 1.0, Some("tcp prot")), "`tcp prot` is wrong"),
        (
            "/api/trace",
            json!({ "network": "endless", "count": 1, "seconds": 1, "app": "nobody" }),
            "there is no app `nobody`",
        ),
        (
            "/api/trace",
            json!({ "network": "endless", "count": 1_000_000, "seconds": 1 }),
            "give a number from 1 to 100",
        ),
        ("/api/trace", json!({ "network": "nothing", "count": 1, "seconds": 1 }), "no network named `nothing`"),
        ("/api/trace", json!({ "network": "endless" }), "missing field"),
    ] {
        let refused = site.post(path, &body);
        assert!(
            (400..600).contains(&refused.status) && refused.text().contains(reason),
            "{}: {}",
            refused.status,
            refused.text()
        );
        assert!(!refused.text().contains("error: "), "{}", refused.text());
    }
}

#[test]
fn captures_end_with_their_client() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("done.toml", DONE);
    let _running = sandbox.start(&[&file, "--name", "done"]);
    let site = Site::start(&sandbox, &[]);
    // Links where hardly a packet comes: these would go on for a minute.
    let tap = json!({ "network": "done", "link": "later.output -> rest.input", "count": 9, "seconds": 60 });
    let trace = json!({ "network": "done", "app": "later", "count": 9, "seconds": 60 });
    let streams: Vec<_> = [("/api/tap", &tap), ("/api/tap", &tap), ("/api/trace", &trace)]
        .map(|(path, body)| site.ask(path, body))
        .into();
    let probe = json!({ "network": "done", "link": "later.output -> rest.input", "count": 1, "seconds": 0.1 });
    let status = || site.post("/api/tap", &probe).status;
    thread::sleep(Duration::from_millis(500));
    eventually("all places are taken", || status() == 503);
    drop(streams);
    eventually("places are free again", || status() == 200);
}

#[test]
fn changes_are_made_only_if_they_are_allowed() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("idle.toml", IDLE);
    let mut running = sandbox.start(&[&file, "--name", "idle"]);
    let (reload, clear) =
        (json!({ "change": "reload", "network": "idle" }), json!({ "change": "clear", "network": "idle" }));
    {
        let site = Site::start(&sandbox, &[]);
        let refused = site.post("/api/change", &reload);
        assert!(refused.status == 403 && refused.text().contains("--allow-changes"), "{}", refused.text());
        assert_eq!(site.get("/api/networks").json()["allow_changes"], false);
    }
    assert_eq!(running.counters()["engine"]["reloads"], 0);
    let site = Site::start(&sandbox, &["--allow-changes"]);
    assert_eq!(site.get("/api/networks").json()["allow_changes"], true);
    fs::write(&file, IDLE.replace("size = 60", "size = 70")).unwrap();
    let reloaded = site.post("/api/change", &reload).json();
    assert_eq!(reloaded["reloaded"]["replaced"], json!(["source"]), "{reloaded:#}");
    assert_eq!(running.counters()["engine"]["reloads"], 1);
    assert_eq!(site.post("/api/change", &clear).json()["cleared"], true);
    assert_eq!(sandbox.bellows(&["show", "run", "idle", "--json"]).success().json()["cleared"], true);
    fs::write(&file, "links = [").unwrap();
    let refused = site.post("/api/change", &reload);
    assert!(refused.status == 400 && refused.text().contains("idle.toml"), "{} {}", refused.status, refused.text());
    assert!(running.is_alive());
}

#[test]
fn strangers_are_refused() {
    let sandbox = Sandbox::new();
    let site = Site::start(&sandbox, &[]);
    let host = format!("Host: {}\r\n", site.host);
    let token = site.url.split("token=").nth(1).unwrap().to_owned();
    let known = format!("{host}Authorization: Bearer {token}\r\n");
    for (what, method, path, head, status) in [
        ("no token", "GET", "/api/networks", host.clone(), 401),
        ("a token in the address", "GET", &format!("/api/networks?token={token}"), host.clone(), 401),
        ("a token in a cookie", "GET", "/api/networks", format!("{host}Cookie: bellows-9480={token}\r\n"), 401),
        ("no such path, without a token", "GET", "/etc/passwd", host.clone(), 401),
        ("another token", "GET", "/api/networks", format!("{host}Authorization: Bearer 0123456789abcdef\r\n"), 401),
        ("another host", "GET", "/", known.replace(&site.host, "evil.example"), 421),
        ("another site", "POST", "/api/trace", known.clone() + "Origin: http://evil.example\r\n", 403),
        ("another site's fetch", "GET", "/api/networks", known.clone() + "Sec-Fetch-Site: cross-site\r\n", 403),
        ("another method", "POST", "/api/networks", known.clone(), 405),
        ("no such path", "GET", "/etc/passwd", known.clone(), 404),
        ("a path upwards", "GET", "/../etc/passwd", known.clone(), 400),
        ("a network that is a path", "GET", "/api/live?network=..%2F..%2Fetc", known.clone(), 404),
    ] {
        let answer = site.send(method, path, &head, b"");
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
    }
    let page = site.send("GET", "/", &host, b"");
    assert!(page.status == 200 && page.header("set-cookie").is_none(), "{}", page.head);
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let large = site.send("POST", "/api/trace", &known, &vec![b' '; 1 << 20]);
    assert_eq!(large.status, 413);
    let page: usize = ["/", "/page.js", "/page.css", "/graph.css", "/icon.svg"]
        .map(|path| site.send("GET", path, &host, b"").body.len())
        .iter()
        .sum();
    assert!((20_000..=300 << 10).contains(&page), "{page} bytes");
}

#[test]
fn clients_without_the_token_do_not_keep_the_owner_away() {
    let sandbox = Sandbox::new();
    let site = Site::start(&sandbox, &[]);
    for bytes in ["", "GET /api/networks HTTP/1.1\r\nHost: ", "GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let hold = |_| {
            let mut stream = TcpStream::connect(&site.host).unwrap();
            stream.write_all(bytes.as_bytes()).unwrap();
            stream
        };
        let _held: Vec<TcpStream> = (0..400).map(hold).collect();
        for _ in 0..5 {
            site.get("/api/networks").json();
        }
    }
}

#[test]
fn arguments_that_would_open_the_page_are_refused() {
    let sandbox = Sandbox::new();
    let refused = sandbox.bellows(&["web", "--listen", "0.0.0.0:0", "--no-token"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("leave out --no-token"), "{refused:#?}");
    let token = sandbox.write("token", "too short");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let folder = sandbox.path("").display().to_string();
    for (path, why) in [(&token, "there is no token in "), (&folder, "is not a regular file")] {
        let refused = sandbox.bellows(&["web", "--token-file", path]);
        let names_it = refused.stderr.contains(path) && refused.stderr.contains(why);
        assert!(refused.code == Some(2) && names_it && !refused.stderr.contains("chmod"), "{refused:#?}");
    }
    let refused = sandbox.bellows(&["web", "--listen", "nowhere"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("nowhere"), "{refused:#?}");
    let refused = sandbox.bellows(&["web", "--no-token", "--allow-changes"]);
    assert_eq!(refused.code, Some(2));
}

/// The files that a process has mapped or opened, of those below a folder.
fn files_of(pid: u32, folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mapped = maps.lines().filter(|line| line.contains(folder)).map(str::to_owned);
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    let open = open.map(|path| path.display().to_string()).filter(|path| path.contains(folder));
    mapped.chain(open).collect()
}

#[test]
fn a_token_of_a_file_is_not_printed() {
    let sandbox = Sandbox::new();
    let secret = "0123456789abcdef0123456789abcdef";
    let token = sandbox.write("token", secret);
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    for (listen, told) in [("127.0.0.1:0", ""), ("0.0.0.0:0", "0.0.0.0 stands for all interfaces"), ("[::]:0", ":: st")]
    {
        let mut command = sandbox.command(&["web", "--listen", listen, "--token-file", &token]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _watchdog = Watchdog::new(&child);
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        crate::support::signal(&child, Signal::TERM);
        let said = child.wait_with_output().unwrap();
        let notes = String::from_utf8(said.stderr).unwrap();
        assert!(url.starts_with("http://") && url.ends_with("/\n") && !url.contains(secret), "{url}");
        assert!(notes.contains(&token) && notes.contains(told) && !notes.contains(secret), "{notes}");
        assert_eq!(notes.contains("all interfaces"), !told.is_empty(), "{notes}");
    }
    let site = Site::start(&sandbox, &[]);
    assert!(site.url.contains("/#token="), "a random one must be: {}", site.url);
}

#[test]
fn the_page_asks_no_engine_by_itself() {
    if !has_program("the_page_asks_no_engine_by_itself", "strace") {
        return;
    }
    let sandbox = Sandbox::new();
    let _running = sandbox.start(&[&sandbox.write("endless.toml", ENDLESS), "--name", "endless"]);
    let log = sandbox.path("calls");
    let command = sandbox.command(&["web", "--listen", "127.0.0.1:0"]);
    let site = Site::of(traced(&command, &log, &sandbox.path("")), true);
    let runtime = sandbox.path("run").display().to_string();
    let calls = || fs::read_to_string(&log).unwrap();
    assert!(!calls().contains("/counters\""), "nothing is read before the first page: {}", calls());
    for path in ["networks", "live", "app", "link", "counters", "costs", "latency", "picture", "timeline", "live"] {
        let query = "network=endless&app=source&link=source.output%20-%3E%20end.input";
        site.get(&format!("/api/{path}?{query}")).json();
    }
    thread::sleep(Duration::from_millis(1_200));
    let read = calls();
    assert!(assert_reads_only(&read, &runtime) > 0, "{read}");
    // The state of an app is a request.
    site.get("/api/status?network=endless").json();
    let asked = calls();
    let connects = |log: &str| log.lines().filter(|line| line.contains("connect(") && line.contains(&runtime)).count();
    assert!(connects(&asked) > 0 && connects(&read) == 0, "{asked}");
}

#[test]
fn counters_are_mapped_read_only_and_only_for_a_page() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&[&file, "--name", "endless"]);
    let site = Site::start(&sandbox, &[]);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(files_of(site.pid(), &running.folder()), Vec::<String>::new(), "before the first page");
    site.get("/api/live?network=endless").json();
    let files = files_of(site.pid(), &running.folder());
    assert!(files.iter().any(|line| line.contains("counters")), "{files:?}");
    assert!(files.iter().filter(|line| line.contains("counters")).all(|line| line.contains(" r--")), "{files:?}");
}

#[test]
fn networks_that_end_are_shown_as_they_were() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("endless.toml", ENDLESS);
    let ends = sandbox.start(&[&file, "--name", "ends"]);
    let crashes = sandbox.start(&[&file, "--name", "crashes"]);
    let site = Site::start(&sandbox, &[]);
    let live = |name: &str| site.get(&format!("/api/live?network={name}")).json();
    eventually("rates", || live("ends")["packets_per_second"].as_f64().is_some_and(|rate| rate > 1_000.0));
    crashes.signal(Signal::KILL);
    ends.signal(Signal::TERM);
    ends.wait();
    eventually("ends", || live("ends")["health"] == "ended");
    eventually("crashes", || live("crashes")["health"] == "crashed");
    let (ended, crashed) = (live("ends"), live("crashes"));
    assert_eq!((&ended["state"], &ended["packets_per_second"]), (&Value::Null, &Value::Null));
    assert_eq!((&crashed["state"], &crashed["apps"][0]["received"]), (&json!("crashed"), &Value::Null));
    let last = |value: &Value| value["events"].as_array().unwrap().last().unwrap()["what"].clone();
    assert_eq!((last(&ended), last(&crashed)), (json!("ended"), json!("crashed")));
    let shown = sandbox.bellows(&["show", "crashes", "--json"]).success().json();
    assert_eq!(site.get("/api/counters?network=crashes").json()["links"], shown["links"]);
    // Another run of the name is a new one.
    let again = sandbox.start(&[&file, "--name", "ends"]);
    eventually("restarted", || live("ends")["pid"] == again.pid() && last(&live("ends")) == "restarted");
}

#[test]
fn events_from_before_the_page_was_opened_are_there() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("endless.toml", ENDLESS);
    let earlier = sandbox.start(&[&file, "--name", "edge"]);
    earlier.signal(Signal::TERM);
    earlier.wait();
    let running = sandbox.start(&[&file, "--name", "edge"]);
    sandbox.write("endless.toml", &ENDLESS.replace("100kpps", "90kpps"));
    sandbox.bellows(&["reload", "edge"]).success();
    let kept_by = |command: &[&str]| -> Vec<(String, String)> {
        let said = sandbox.bellows(command).success();
        let events = said.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.map(|event| (text_of(&event["event"]), text_of(&event["message"]))).collect()
    };
    let before = kept_by(&["events", "edge", "--json"]);
    let names: Vec<&str> = before.iter().map(|(name, _)| &**name).filter(|name| !is_of_machine(name)).collect();
    assert_eq!(names, ["started", "stopping", "stopped", "started", "reloaded"]);
    let site = Site::start(&sandbox, &[]);
    let shown = || -> Vec<(String, String)> {
        let live = site.get("/api/live?network=edge").json();
        let kept = live["kept"].as_array().unwrap();
        kept.iter().map(|event| (text_of(&event["what"]), text_of(&event["text"]))).collect()
    };
    let first = shown();
    assert!(first.starts_with(&before), "{first:#?}");
    // And what happens later follows.
    running.signal(Signal::TERM);
    running.wait();
    eventually("the end", || shown().last().is_some_and(|(name, _)| name == "stopped"));
    eventually("all events", || shown() == kept_by(&["events", "edge", "--json"]));
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Whether an event is one that a busy machine causes.
fn is_of_machine(event: &str) -> bool {
    ["slow-breath", "worker-stalled", "worker-recovered"].contains(&event)
}

#[test]
fn a_unix_socket_needs_no_token() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("web.sock");
    let mut command = sandbox.command(&["web", "--listen", &format!("unix:{}", path.display())]);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let _watchdog = bellows_testkit::wait::Watchdog::new(&child);
    eventually("the socket", || path.exists());
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /api/networks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"networks\":[]"), "{answer}");
    crate::support::signal(&child, Signal::TERM);
    assert!(child.wait().unwrap().success());
}
