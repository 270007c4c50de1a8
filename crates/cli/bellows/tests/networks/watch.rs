//! `trace` and `tap`: watching packets of a running network.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{ENDLESS, IDLE, Running, Said, Sandbox, Signal, signal};
use bellows_capture::{LinkType, Reader};
use bellows_testkit::eventually;
use bellows_testkit::programs::has_program;
use serde_json::{Value, json};

/// Numbered UDP packets to a tee: one copy is truncated and delayed, the other is lost.
const FORKED: &str = r#"
links = [
  "source.output -> copy.input",
  "copy.long -> cut.input",
  "cut.output -> late.input",
  "late.output -> end.input",
  "copy.lossy -> loss.input",
  "loss.output -> nothing.input",
]
[apps.source]
app = "source"
size = 100
headers = "ipv4"
payload = "sequence"
rate = "1kpps"
[apps.copy]
app = "tee"
[apps.cut]
app = "truncate"
length = 60
[apps.late]
app = "delay"
time = "3ms"
[apps.loss]
app = "impair"
loss = 1
[apps.end]
app = "sink"
[apps.nothing]
app = "sink"
"#;

/// A network whose packets are also recorded by the `pcap-writer`.
const RECORDED: &str = r#"
links = ["source.output -> copy.input", "copy.file -> file.input", "copy.end -> end.input"]
[apps.source]
app = "source"
size = 80
headers = "ipv4"
payload = "sequence"
rate = "2kpps"
[apps.copy]
app = "tee"
[apps.file]
app = "pcap-writer"
path = "all.pcap"
[apps.end]
app = "sink"
"#;

/// The steps of a packet: the app, its action, the destination, and the step before.
fn steps(packet: &Value) -> Vec<(String, String, Option<u64>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let step = |step: &Value| {
        let what = match text(&step["what"]).as_str() {
            "sent" => format!("{} -> {}", text(&step["port"]), text(&step["to"])),
            "dropped" => format!("dropped {}", text(&step["reason"])),
            other => other.to_owned(),
        };
        (text(&step["app"]), what, step["before"].as_u64())
    };
    packet["steps"].as_array().unwrap().iter().map(step).collect()
}

/// A network that ends soon after a test.
fn run<'a>(sandbox: &'a Sandbox, network: &str) -> Running<'a> {
    let network = sandbox.write("network.toml", network);
    sandbox.start(&[&network])
}

#[test]
fn packets_are_followed_through_copies_delays_and_losses() {
    let sandbox = Sandbox::new();
    let _running = run(&sandbox, FORKED);
    let report = sandbox.bellows(&["trace", "network", "--count", "5", "--json"]).success().json();
    assert_eq!((&report["complete"], &report["name"]), (&json!(true), &json!("network")));
    let packets = report["packets"].as_array().unwrap();
    assert_eq!(packets.len(), 5);
    let expected = [
        ("source", "output -> copy.input", None),
        ("copy", "long -> cut.input", Some(0)),
        ("copy", "lossy -> loss.input", Some(0)),
        ("cut", "output -> late.input", Some(1)),
        ("loss", "dropped lost", Some(2)),
        ("late", "output -> end.input", Some(3)),
        ("end", "ended", Some(5)),
    ];
    let expected: Vec<_> = expected.map(|(app, what, before)| (app.to_owned(), what.to_owned(), before)).into();
    let mut last = None;
    for (number, packet) in (1..).zip(packets) {
        assert_eq!((&packet["packet"], &packet["inside"]), (&json!(number), &json!([])), "{packet:#}");
        assert_eq!(steps(packet), expected, "{packet:#}");
        let step = |index: usize| &packet["steps"][index];
        assert_eq!((step(0)["after_ns"].as_u64(), step(0)["length"].as_u64()), (Some(0), Some(100)));
        assert!(step(5)["after_ns"].as_u64() > Some(2_500_000), "the delay takes 3 ms: {packet:#}");
        assert!(step(0)["summary"].as_str().unwrap().ends_with(": UDP, length 58"), "{packet:#}");
        assert!(step(3)["summary"].as_str().unwrap().starts_with("IP truncated-ip - 40 bytes missing! "), "{packet:#}");
        // The packets are numbered after their headers, and consecutive.
        let data = step(0)["data"].as_str().unwrap();
        let sequence = u64::from_str_radix(&data[2 * 42..2 * 50], 16).unwrap();
        assert!(last.is_none_or(|last| sequence == last + 1), "{last:?}, {sequence}");
        last = Some(sequence);
    }

    let text = sandbox.bellows(&["trace", "--count", "2"]).success().stdout;
    assert_eq!(text.matches(": UDP, length 58").count(), 4, "whole and cut, once each:\n{text}");
    for part in ["packet 1, ", "packet 2, ", "+0 ns  source.output -> copy.input\n", "    loss: dropped, lost\n"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let from = sandbox.bellows(&["trace", "--count", "1", "--app", "cut", "--json"]).success().json();
    let apps: Vec<String> = steps(&from["packets"][0]).into_iter().map(|(app, ..)| app).collect();
    assert_eq!(apps, ["cut", "late", "end"]);
}

#[test]
fn packets_that_match_an_expression_are_followed() {
    let sandbox = Sandbox::new();
    let source = |name: &str, size: usize| {
        format!("[apps.{name}]\napp = \"source\"\nsize = {size}\nheaders = \"ipv4\"\nrate = \"1kpps\"\n")
    };
    let network = format!(
        "links = [\"short -> both.short\", \"long -> both.long\", \"both -> end\"]\n{}{}[apps.both]\napp = \"join\"\n\
         [apps.end]\napp = \"sink\"\n",
        source("short", 100),
        source("long", 200)
    );
    let _running = run(&sandbox, &network);
    for app in [&[][..], &["--app", "both"]] {
        let words = [&["trace", "network", "--count", "20", "--filter", "udp and len > 150", "--json"], app].concat();
        let report = sandbox.bellows(&words).success().json();
        let packets = report["packets"].as_array().unwrap();
        assert_eq!((packets.len(), &report["complete"]), (20, &json!(true)), "{report:#}");
        assert!(packets.iter().all(|packet| packet["steps"][0]["length"] == 200), "{report:#}");
    }
    let said = sandbox.bellows(&["trace", "--filter", "tcp", "--for", "100ms"]).success();
    assert!(said.stderr.contains("a packet that comes into the network and matches `tcp`, and none came"), "{said:?}");
    let said = sandbox.bellows(&["trace", "--filter", "tcp prot 80"]);
    assert_eq!(said.code, Some(2));
    let excerpt = " --> expression:1:5\n  |\n1 | tcp prot 80\n  |     ^^^^\n";
    assert!(said.stderr.starts_with("error: expected `and`") && said.stderr.contains(excerpt), "{said:?}");
}

#[test]
fn packets_on_their_way_are_marked() {
    let sandbox = Sandbox::new();
    let _running = run(&sandbox, &FORKED.replace("3ms", "1h"));
    let started = Instant::now();
    let report = sandbox.bellows(&["trace", "--count", "2", "--for", "300ms", "--json"]).success().json();
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert_eq!((&report["complete"], &report["packets"][1]["inside"]), (&json!(false), &json!(["late"])));
    let text = sandbox.bellows(&["trace", "--count", "1", "--for", "300ms"]).success().stdout;
    assert!(text.contains("late: still there, or on the way to it\n"), "{text}");
}

#[test]
fn waiting_in_vain_ends_with_the_reason() {
    let sandbox = Sandbox::new();
    let running = run(&sandbox, IDLE);
    eventually("the hour's packet", || running.counters()["links"][0]["packets"] == 1);
    let said = sandbox.bellows(&["trace", "--for", "100ms"]).success();
    assert_eq!(
        (said.stdout.as_str(), said.stderr.contains("a packet that comes into the network")),
        ("", true),
        "{said:?}"
    );
    let said = sandbox.bellows(&["trace", "--for", "100ms", "--app", "source", "--json"]).success();
    assert!(said.stderr.contains("a packet that app `source` sends, and none came"), "{said:?}");
    assert_eq!(said.json()["packets"], json!([]));

    let said = sandbox.bellows(&["trace", "--app", "sauce"]);
    assert_eq!((said.code, said.stderr.contains("did you mean `source`?")), (Some(2), true), "{said:?}");
    for count in ["0", "10001", "many"] {
        assert_eq!(sandbox.bellows(&["trace", "--count", count]).code, Some(2));
    }
    let first = sandbox.command(&["trace", "--for", "1h"]).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the first trace", || clients(&running) == 1);
    eventually("a trace at a time", || {
        let second = sandbox.bellows(&["trace", "--for", "10ms"]);
        second.code == Some(1) && second.stderr.contains("another trace is going on")
    });
    let said = interrupt(first);
    assert_eq!(said.stderr, "waited for a packet that comes into the network, and none came\n");
    eventually("the next trace", || sandbox.bellows(&["trace", "--for", "10ms"]).code == Some(0));

    let last = sandbox.command(&["trace", "--for", "1h"]).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the last trace", || clients(&running) == 1);
    sandbox.bellows(&["stop"]).success();
    let said = Said::from(last.wait_with_output().unwrap());
    assert!(said.stderr.contains("`network` has ended"), "{said:?}");
    running.wait().success();
}

/// Ends a command like Ctrl-C.
fn interrupt(child: Child) -> Said {
    signal(&child, Signal::INT);
    Said::from(child.wait_with_output().unwrap()).success()
}

/// Starts `tap` and waits until it writes.
fn tap(sandbox: &Sandbox, link: &str, words: &[&str]) -> Child {
    let mut command = sandbox.command(&[&["tap", "network", link], words].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The packets of a capture, and its link type.
fn packets(file: &std::path::Path) -> Vec<Vec<u8>> {
    let mut reader = Reader::open(file).unwrap();
    assert_eq!(reader.interfaces()[0].link_type, LinkType::ETHERNET);
    let mut packets = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        packets.push(record.data.to_vec());
    }
    packets
}

#[test]
fn a_tap_has_all_packets_in_their_order() {
    let sandbox = Sandbox::new();
    let running = run(&sandbox, RECORDED);
    let child = tap(&sandbox, "copy.end -> end.input", &["-w", "tapped.pcap"]);
    eventually("some packets", || fs::metadata(sandbox.path("tapped.pcap")).is_ok_and(|file| file.len() > 50_000));
    let said = interrupt(child);
    let tapped = packets(&sandbox.path("tapped.pcap"));
    assert_eq!(said.stderr, format!("{} packets captured, 0 missed\n", tapped.len()));
    sandbox.bellows(&["stop"]).success();
    running.wait().success();
    let all = packets(&sandbox.path("all.pcap"));
    let first = all.iter().position(|packet| *packet == tapped[0]).expect("the first packet was recorded");
    assert_eq!(all[first..first + tapped.len()], tapped, "these and no others passed the link");
}

#[test]
fn a_count_and_a_length_limit_a_tap() {
    let sandbox = Sandbox::new();
    let _running = run(&sandbox, RECORDED);
    let words = ["tap", "copy.end->end.input", "-w", "few.pcap", "-c", "7", "-s", "20"];
    assert_eq!(sandbox.bellows(&words).success().stderr, "7 packets captured, 0 missed\n");
    let mut reader = Reader::open(sandbox.path("few.pcap")).unwrap();
    let before = bellows_sys::clock::unix_ns();
    while let Some(record) = reader.next_record().unwrap() {
        assert_eq!((record.data.len(), record.original_length), (20, 80));
        assert!(record.timestamp < before && before - record.timestamp < 60_000_000_000, "{record:?}");
    }
    assert_eq!(reader.records(), 7);
}

#[test]
fn an_impossible_tap_is_an_error_and_leaves_no_file() {
    let sandbox = Sandbox::new();
    let _running = run(&sandbox, RECORDED);
    for (link, hint) in [
        ("copy.ent -> end.input", "did you mean `copy.end -> end.input`?"),
        ("copy", "there are source.output -> copy.input, copy.file"),
    ] {
        let said = sandbox.bellows(&["tap", link, "-w", "none.pcap"]);
        assert_eq!((said.code, said.stderr.contains(hint)), (Some(2), true), "{said:?}");
    }
    assert!(!sandbox.path("none.pcap").exists());
    let said = sandbox.bellows(&["tap", "copy.end -> end.input", "-w", "no/folder.pcap"]);
    assert_eq!(
        (said.code, said.stderr.contains("cannot write `no/folder.pcap`: there is no folder `no`")),
        (Some(2), true),
        "{said:?}"
    );
    assert_eq!(sandbox.bellows(&["tap", "nobody", "copy.end -> end.input", "-w", "none.pcap"]).code, Some(2));
}

#[test]
fn a_terminal_is_no_place_for_a_capture() {
    const TEST: &str = "a_terminal_is_no_place_for_a_capture";
    if !has_program(TEST, "script") {
        return;
    }
    let sandbox = Sandbox::new();
    let program = env!("CARGO_BIN_EXE_bellows");
    let line = format!("{program} tap 'a.output -> b.input' -w -");
    let said = Said::from(
        Command::new("script").args(["-qec", &line, "/dev/null"]).current_dir(sandbox.path("")).output().unwrap(),
    );
    assert_eq!((said.code, said.stdout.contains("| tcpdump -n -r -")), (Some(2), true), "{said:?}");
}

#[test]
fn tcpdump_shows_packets_while_they_pass() {
    const TEST: &str = "tcpdump_shows_packets_while_they_pass";
    if !has_program(TEST, "tcpdump") {
        return;
    }
    let sandbox = Sandbox::new();
    let running = run(&sandbox, RECORDED);
    let mut child = tap(&sandbox, "copy.end -> end.input", &["-w", "-"]);
    let capture = child.stdout.take().unwrap();
    let mut reader = Command::new("tcpdump");
    reader.args(["-l", "-n", "-t", "-q", "-r", "-"]).stdin(capture).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut reader = reader.spawn().unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines().map(Result::unwrap);
    let shown: Vec<String> = lines.by_ref().take(60).collect();
    assert!(running.pid() > 0 && child.try_wait().unwrap().is_none(), "it shows them live");
    let said = interrupt(child);
    let rest: Vec<String> = lines.collect();
    reader.wait().unwrap();
    let headers: Vec<&String> = shown.iter().chain(&rest).filter(|line| line.starts_with("IP ")).collect();
    assert!(said.stderr.starts_with(&format!("{} packets captured, 0 missed", headers.len())), "{said:?}");
    assert!(headers.iter().all(|line| line.ends_with(": UDP, length 38")), "{headers:?}");
}

#[test]
fn a_pipe_that_nobody_reads_ends_a_tap_quietly() {
    for network in [RECORDED, IDLE] {
        let sandbox = Sandbox::new();
        let running = run(&sandbox, network);
        let link = if network == IDLE { "source.output -> end.input" } else { "copy.end -> end.input" };
        let mut child = tap(&sandbox, link, &["-w", "-"]);
        if network == IDLE {
            // Without a packet, the file's link type is unknown.
            eventually("a client", || clients(&running) == 1);
        } else {
            child.stdout.as_mut().unwrap().read_exact(&mut [0; 24]).unwrap();
        }
        drop(child.stdout.take());
        let said = Said::from(child.wait_with_output().unwrap());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "it ends by itself: {said:?}");
    }
}

/// The number of clients that a run serves.
fn clients(running: &Running<'_>) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim_end() == "control client").count()
}

#[test]
fn a_client_that_is_killed_is_not_served_any_more() {
    let sandbox = Sandbox::new();
    let running = run(&sandbox, IDLE);
    for words in [&["tap", "source.output -> end.input", "-w", "some.pcap"][..], &["trace", "--for", "1h"]] {
        let mut child = sandbox.command(words).stderr(Stdio::null()).spawn().unwrap();
        eventually("a client", || clients(&running) == 1);
        child.kill().unwrap();
        child.wait().unwrap();
        eventually("no client", || clients(&running) == 0);
    }
    sandbox.bellows(&["stop"]).success();
    running.wait().success();
}

#[test]
fn a_slow_reader_misses_packets_and_holds_nobody_up() {
    let sandbox = Sandbox::new();
    let network = ENDLESS.replace("60", "1500").replace("rate = \"100kpps\"\n", "");
    let running = run(&sandbox, &network);
    let mut child = tap(&sandbox, "source.output -> end.input", &["-w", "-"]);
    let mut capture = child.stdout.take().unwrap();
    capture.read_exact(&mut [0; 24]).unwrap();
    let passed = || running.counters()["links"][0]["packets"].as_u64().unwrap();
    let before = passed();
    // 32 MiB may wait, and the capacity of sockets and pipes.
    eventually("packets that go on", || passed() > before + 100_000);
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        capture.read_to_end(&mut bytes).unwrap();
        bytes.len() as u64
    });
    let said = interrupt(child);
    let words: Vec<u64> = said.stderr.split(' ').filter_map(|word| word.replace(',', "").parse().ok()).collect();
    let [captured, missed] = words[..] else { panic!("{said:?}") };
    assert!(missed > 0, "{said:?}");
    assert_eq!(reader.join().unwrap(), captured * 1_516);
}

#[test]
fn a_reload_ends_a_tap_only_if_it_removes_the_link() {
    let sandbox = Sandbox::new();
    let running = run(&sandbox, RECORDED);
    let child = tap(&sandbox, "copy.end -> end.input", &["-w", "tapped.pcap"]);
    let size = || fs::metadata(sandbox.path("tapped.pcap")).map_or(0, |file| file.len());
    eventually("some packets", || size() > 1_000);
    sandbox.write(
        "network.toml",
        &RECORDED
            .replace(
                "app = \"sink\"",
                "app = \"sink\"\n[apps.more]\napp = \"delay\"\ntime = \"1h\"\nlimit = 10\n[apps.last]\napp = \"sink\"",
            )
            .replace("\"copy.end ->", "\"copy.more -> more.input\", \"more.output -> last.input\", \"copy.end ->"),
    );
    sandbox.bellows(&["reload", "network"]).success();
    let before = size();
    eventually("packets after the reload", || size() > before + 1_000);
    let waiting = sandbox.command(&["trace", "--app", "more", "--for", "1h"]).stderr(Stdio::piped()).spawn().unwrap();
    eventually("a trace and a tap", || clients(&running) == 2);
    sandbox.write("network.toml", &RECORDED.replace("end.input", "other.input").replace("apps.end", "apps.other"));
    sandbox.bellows(&["reload", "network"]).success();
    let said = Said::from(child.wait_with_output().unwrap()).success();
    assert!(said.stderr.starts_with("`copy.end -> end.input` is gone\n"), "{said:?}");
    assert_eq!(Said::from(waiting.wait_with_output().unwrap()).success().stderr, "`more` is gone\n");

    fs::remove_file(sandbox.path("tapped.pcap")).unwrap();
    let child = tap(&sandbox, "copy.end -> other.input", &["-w", "tapped.pcap"]);
    eventually("some packets", || size() > 1_000);
    sandbox.bellows(&["stop"]).success();
    let said = Said::from(child.wait_with_output().unwrap()).success();
    assert!(
        said.stderr.starts_with("`network` has ended\n") && said.stderr.contains(" captured, 0 missed"),
        "{said:?}"
    );
    running.wait().success();
}

#[test]
fn the_streams_are_as_documented() {
    let sandbox = Sandbox::new();
    let running = run(&sandbox, ENDLESS);
    let ask = |request: &Value| {
        let mut stream = UnixStream::connect(running.folder().join("control")).unwrap();
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut reply = String::new();
        stream.read_line(&mut reply).unwrap();
        (serde_json::from_str::<Value>(&reply).unwrap(), stream)
    };
    let (reply, mut stream) = ask(&json!({"command": "tap", "link": "source.output -> end.input", "snap": 16}));
    assert_eq!(reply, json!({"reply": "tapping"}));
    for _ in 0..10 {
        let mut frame = [0; 21 + 16];
        stream.read_exact(&mut frame).unwrap();
        let number = |from: usize| u32::from_le_bytes(frame[from..from + 4].try_into().unwrap());
        assert_eq!((frame[0], number(9), number(13), number(17)), (1, 60, 1, 16));
    }
    stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest[rest.len() - 2..], [3, 0]);

    let (reply, stream) = ask(&json!({"command": "trace", "count": 2, "seconds": 5}));
    assert_eq!(reply, json!({"reply": "tracing"}));
    let lines: Vec<Value> = stream.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let hops = |what: &str| lines.iter().filter(|line| line["event"] == "hop" && line["what"] == what).count();
    assert_eq!((hops("sent"), hops("ended"), lines.len()), (2, 2, 5), "{lines:#?}");
    assert_eq!(lines[4], json!({"event": "end", "why": "complete"}));
    assert_eq!((&lines[0]["app"], &lines[0]["to"]), (&json!("source"), &json!("end.input")));

    for request in
        [json!({"command": "trace", "count": 0, "seconds": 1}), json!({"command": "trace", "count": 1, "seconds": -1})]
    {
        let (reply, _) = ask(&request);
        assert_eq!((&reply["reply"], &reply["mistake"]), (&json!("refused"), &json!(true)), "{reply}");
    }
}
