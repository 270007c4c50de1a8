//! Captures that come and go through pipes, networks from standard input, failing starts and full disks.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::{ENDLESS, Said, Sandbox, root};
use bellows_testkit::eventually;
use bellows_testkit::programs::has_program;
use bellows_testkit::wait::PATIENCE;
use serde_json::json;

/// The packets of `examples/captures/quickstart.pcap`.
const PACKETS: u64 = 2_972;

fn capture() -> Vec<u8> {
    fs::read(root().join("examples/captures/quickstart.pcap")).unwrap()
}

fn copy(from: &str, to: &str) -> String {
    format!(
        "links = [\"in.output -> out.input\"]\n[apps.in]\napp = \"pcap-reader\"\npath = \"{from}\"\n\
         [apps.out]\napp = \"pcap-writer\"\npath = \"{to}\"\n"
    )
}

#[test]
fn files_and_pipes_send_the_packets_that_match() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("quickstart.pcap"), capture()).unwrap();
    let filter = ["--set", "apps.in.filter=\"tcp port 80 or 443\"", "--json"];
    for (path, bytes) in [("quickstart.pcap", Vec::new()), ("-", capture())] {
        sandbox.write("copy.toml", &copy(path, "out.pcap"));
        let report = with_input(&sandbox, &[&["run", "copy.toml"], &filter[..]].concat(), &bytes).success().json();
        // As `tcpdump --count` counts them: see the tests of `bellows filter`.
        let sent = report["links"][0]["packets"].as_u64().unwrap();
        assert_eq!((sent, &report["apps"][0]["drops"]["not_matched"]), (1_552, &json!(PACKETS - 1_552)), "{report:#}");
    }
}

/// Runs the command with these bytes on standard input.
fn with_input(sandbox: &Sandbox, words: &[&str], bytes: &[u8]) -> Said {
    let mut command = sandbox.command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = thread::spawn(move || {
        let _ = stdin.write_all(&bytes);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.into()
}

#[test]
fn a_capture_comes_through_standard_input_in_any_format() {
    let sandbox = Sandbox::new();
    sandbox.write("copy.toml", &copy("-", "out.pcap"));
    sandbox.write("in.pcap", "");
    fs::write(sandbox.path("in.pcap"), capture()).unwrap();
    let gzip = Command::new("gzip").arg("-c").arg(sandbox.path("in.pcap")).output().unwrap().stdout;
    sandbox.write("ng.toml", &copy("in.pcap", "ng.pcapng"));
    sandbox.bellows(&["run", "ng.toml"]).success();
    let pcapng = fs::read(sandbox.path("ng.pcapng")).unwrap();
    let mut copies = Vec::new();
    for bytes in [capture(), gzip, pcapng] {
        let report = with_input(&sandbox, &["run", "copy.toml", "--json"], &bytes).success().json();
        assert_eq!((&report["links"][0]["packets"], &report["end"]), (&json!(PACKETS), &json!("done")));
        copies.push(fs::read(sandbox.path("out.pcap")).unwrap());
    }
    assert!(copies.iter().all(|copy| *copy == copies[0] && copy.len() > 100_000));
}

#[test]
fn a_pipe_is_read_as_packets_come_and_checked_without_being_touched() {
    let sandbox = Sandbox::new();
    let made = Command::new("mkfifo").arg(sandbox.path("pipe")).status().unwrap();
    assert!(made.success());
    sandbox.write("copy.toml", &copy("pipe", "out.pcap"));
    // Nobody writes to it, and the command does not wait.
    sandbox.bellows(&["check", "copy.toml"]).success();
    let running = sandbox.start(&["copy.toml"]);
    let packets = || running.counters()["links"][0]["packets"].as_u64().unwrap();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(packets(), 0);
    let bytes = capture();
    let mut pipe = fs::File::options().write(true).open(sandbox.path("pipe")).unwrap();
    pipe.write_all(&bytes[..bytes.len() / 2]).unwrap();
    eventually("the packets that have come", || packets() > 1_000);
    let half = packets();
    assert!(half < PACKETS);
    // The engine sleeps while nothing comes.
    let breaths = || running.counters()["engine"]["breaths"].as_u64().unwrap_or(0);
    let before = breaths();
    thread::sleep(Duration::from_millis(300));
    assert!(breaths() - before < 3_000, "{before}, {}", breaths());
    pipe.write_all(&bytes[bytes.len() / 2..]).unwrap();
    drop(pipe);
    let said = running.wait().success();
    assert!(said.stdout.contains("all done"), "{said:?}");
}

#[test]
fn a_writer_that_dies_leaves_a_damaged_capture() {
    let sandbox = Sandbox::new();
    sandbox.write("copy.toml", &copy("/dev/stdin", "out.pcap"));
    let bytes = capture();
    let said = with_input(&sandbox, &["run", "copy.toml"], &bytes[..bytes.len() - 1]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.stderr.contains("app `in` could not finish: standard input: the file ends inside record 2972"),
        "{said:?}"
    );
    let said = with_input(&sandbox, &["run", "copy.toml"], b"");
    assert!(said.code == Some(1) && said.stderr.contains("standard input: the file is empty"), "{said:?}");
}

#[test]
fn meaningless_options_for_a_pipe_are_errors() {
    let sandbox = Sandbox::new();
    sandbox.write("repeat.toml", &(copy("-", "out.pcap").replace("path = \"-\"", "path = \"-\"\nrepeat = 2")));
    let said = with_input(&sandbox, &["run", "repeat.toml"], &capture());
    assert!(said.code == Some(2) && said.stderr.contains("can be sent only once"), "{said:?}");
    let two = copy("-", "a.pcap").replace("links = [", "links = [\"in2.output -> out2.input\", ")
        + "[apps.in2]\napp = \"pcap-reader\"\npath = \"/dev/stdin\"\n[apps.out2]\napp = \"sink\"\n";
    sandbox.write("two.toml", &two);
    let said = with_input(&sandbox, &["run", "two.toml"], &capture());
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("read the same stream"), "{said:?}");
    assert!(!sandbox.path("a.pcap").exists());
    let said = with_input(&sandbox, &["run", "-"], copy("-", "a.pcap").as_bytes());
    assert!(said.code == Some(2) && said.stderr.contains("the network itself comes from standard input"), "{said:?}");
}

#[test]
fn a_network_comes_from_standard_input() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("in.pcap"), capture()).unwrap();
    let network = copy("in.pcap", "out.pcap");
    let report = with_input(&sandbox, &["run", "-", "--json"], network.as_bytes()).success().json();
    assert_eq!((&report["links"][0]["packets"], &report["name"]), (&json!(PACKETS), &json!("stdin")));
    let said = with_input(&sandbox, &["check", "-"], network.as_bytes()).success();
    assert!(said.stdout.contains("<stdin>: fine"), "{said:?}");
    let said = with_input(&sandbox, &["check", "-"], b"links = [3]\n");
    assert!(said.code == Some(2) && said.stderr.contains("<stdin>:1:"), "{said:?}");
    let said = with_input(&sandbox, &["run", "-", "--watch"], network.as_bytes());
    assert!(said.code == Some(2) && said.stderr.contains("cannot be watched"), "{said:?}");
}

#[test]
fn a_capture_goes_to_standard_output_and_the_report_does_not() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("in.pcap"), capture()).unwrap();
    sandbox.write("to-file.toml", &copy("in.pcap", "out.pcap"));
    sandbox.write("to-stdout.toml", &copy("in.pcap", "-"));
    sandbox.bellows(&["run", "to-file.toml"]).success();
    let output = sandbox.command(&["run", "to-stdout.toml"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout == fs::read(sandbox.path("out.pcap")).unwrap());
    assert!(String::from_utf8(output.stderr).unwrap().contains("all done"));
}

/// Starts a run whose standard output is a pipe, reads a little of it and closes the pipe.
fn with_reader_that_goes(sandbox: &Sandbox, words: &[&str]) -> std::process::Child {
    let mut child = sandbox.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    child
}

/// Waits for the end of a run with a timeout.
fn end_of(mut child: std::process::Child) -> Said {
    let deadline = std::time::Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if std::time::Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it goes on: {:#?}", Said::from(child.wait_with_output().unwrap()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_run_ends_when_nobody_reads_its_capture_any_more() {
    let sandbox = Sandbox::new();
    let endless = ENDLESS.replace("end.input", "out.input").replace("[apps.end]\napp = \"sink\"", "");
    let endless = endless + "[apps.out]\napp = \"pcap-writer\"\npath = \"-\"\n";
    sandbox.write("endless.toml", &endless);
    let said = end_of(with_reader_that_goes(&sandbox, &["run", "endless.toml", "--json"]));
    assert_eq!(said.code, Some(1), "{said:#?}");
    let json = said.stderr.lines().skip_while(|line| *line != "{").collect::<Vec<_>>().join("\n");
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    crate::support::assert_books(&report);
    assert_eq!((&report["end"], &report["stopped_by"]), (&json!("closed"), &json!(null)));
    assert_eq!(report["unfinished"][0]["app"], json!("out"));
    assert!(said.stderr.contains("standard output") && said.stderr.contains("Broken pipe"), "{said:#?}");
}

#[test]
fn a_run_with_another_way_out_goes_on_without_the_reader_of_its_capture() {
    let sandbox = Sandbox::new();
    let two = ENDLESS.replace(
        "links = [\"source.output -> end.input\"]",
        "links = [\"source -> copy\", \"copy -> out\", \"copy -> end\"]",
    );
    let two = two + "[apps.copy]\napp = \"tee\"\n[apps.out]\napp = \"pcap-writer\"\npath = \"-\"\n";
    sandbox.write("two.toml", &two);
    let mut child = with_reader_that_goes(&sandbox, &["run", "two.toml"]);
    let lost = || sandbox.bellows(&["show", "errors", "--json"]).json()["errors"].as_array().map_or(0, Vec::len);
    eventually("packets are lost", || lost() > 0);
    thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none());
    sandbox.bellows(&["stop"]).success();
    let said = end_of(child);
    assert!(said.code == Some(1) && said.stderr.contains("stopped on request"), "{said:#?}");
}

#[test]
fn final_losses_of_a_writer_are_in_the_books() {
    let sandbox = Sandbox::new();
    let slow = ENDLESS.replace("100kpps", "1kpps");
    let with_writer = |path: &str| {
        slow.replace(
            "links = [\"source.output -> end.input\"]",
            "links = [\"source -> copy\", \"copy -> out\", \"copy -> end\"]",
        ) + &format!("[apps.copy]\napp = \"tee\"\n[apps.out]\napp = \"pcap-writer\"\npath = \"{path}\"\n")
    };
    // The writer is removed, or replaced by another.
    for after in [slow.clone(), with_writer("out.pcap")] {
        sandbox.write("network.toml", &with_writer("/dev/full"));
        let running = sandbox.start(&["network.toml"]);
        let taken = |counters: &serde_json::Value| {
            counters["apps"].as_array().unwrap().iter().find(|app| app["name"] == "out").unwrap()["in_packets"].as_u64()
        };
        eventually("packets", || taken(&running.counters()).unwrap() > 50);
        sandbox.write("network.toml", &after);
        let said = sandbox.bellows(&["reload"]).success();
        assert!(said.stdout.contains("could not") || said.stderr.contains("could not"), "{said:#?}");
        let mut command = sandbox.command(&["stop"]);
        assert!(command.status().unwrap().success());
        let report = running.wait().stdout;
        let line = report.lines().find(|line| line.contains("write_failed:")).unwrap_or_else(|| panic!("{report}"));
        let lost: u64 = line.split(' ').find_map(|word| word.replace(',', "").parse().ok()).unwrap();
        assert!(lost > 50, "{line}");
    }
}

#[test]
fn a_failed_start_and_a_rejected_reload_change_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("out.pcap", "old");
    fs::create_dir(sandbox.path("socket")).unwrap();
    let network = ENDLESS.replace("links = [", "links = [\"port.output -> out.input\", ")
        + "[apps.out]\napp = \"pcap-writer\"\npath = \"out.pcap\"\n[apps.port]\napp = \"vhost-user\"\nsocket = \"socket\"\n";
    sandbox.write("network.toml", &network);
    let untouched = || {
        assert_eq!(fs::read(sandbox.path("out.pcap")).unwrap(), b"old");
        let mut names = fs::read_dir(sandbox.path("")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.all(|name| !name.to_string_lossy().contains("bellows-new")));
    };
    let said = sandbox.bellows(&["run", "network.toml"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    untouched();
    sandbox.write("fine.toml", ENDLESS);
    let running = sandbox.start(&["fine.toml"]);
    let said = sandbox.bellows(&["reload", &running.name, "network.toml"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    untouched();
}

#[test]
fn the_limit_of_a_files_length_is_an_error_and_no_signal() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("in.pcap"), capture()).unwrap();
    sandbox.write("copy.toml", &copy("in.pcap", "out.pcap"));
    let program = env!("CARGO_BIN_EXE_bellows");
    let mut shell = Command::new("bash");
    shell.args(["-c", "ulimit -f 64; exec \"$0\" run copy.toml --json", program]).current_dir(sandbox.path(""));
    let said = Said::from(shell.env("BELLOWS_RUNTIME_DIR", sandbox.path("run/bellows")).output().unwrap());
    if said.code == Some(2) {
        // The counters' file itself may be larger than the limit.
        assert!(said.stderr.contains("ulimit -f") || said.stderr.contains("File too large"), "{said:?}");
        return;
    }
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("File too large"), "{said:?}");
}

#[test]
fn a_tap_prints_the_same_as_tcpdump() {
    let sandbox = Sandbox::new();
    sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&["endless.toml"]);
    let words = ["tap", running.name.as_str(), "source.output -> end.input", "-c", "20"];
    let said = sandbox.bellows(&words).success();
    assert_eq!(said.stdout.lines().count(), 20, "{said:?}");
    let as_json = sandbox.bellows(&[&words[..], &["--json"]].concat()).success();
    let line: serde_json::Value = serde_json::from_str(as_json.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&line["length"], &line["link_type"]), (&json!(60), &json!(1)));
    if has_program("a_tap_prints_the_same_as_tcpdump", "tcpdump") {
        sandbox.bellows(&[&words[..], &["-w", "tap.pcap"]].concat()).success();
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.args(["-n", "-tttt", "-r", "tap.pcap"]).env("TZ", "UTC").current_dir(sandbox.path(""));
        let theirs = Said::from(tcpdump.output().unwrap());
        let shape = |line: &str| (line[..11].to_owned(), line[26..].trim_end().to_owned());
        let (ours, theirs) = (said.stdout.lines().next().unwrap(), theirs.stdout.lines().next().unwrap());
        assert_eq!(shape(ours), shape(theirs));
    }
    let mut head = sandbox.command(&words[..3]);
    let mut child = head.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success(), "a reader that goes away ends it");
}

#[test]
fn a_trace_from_a_final_app_names_the_app_to_follow() {
    let sandbox = Sandbox::new();
    sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&["endless.toml"]);
    let said = sandbox.bellows(&["trace", &running.name, "--app", "end"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("sends no packets") && said.stderr.contains("`--app source`"), "{said:?}");
}
