//! The log: a blocked log costs no packet, and its formats.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{ENDLESS, Said, Sandbox, Signal};
use bellows_testkit::eventually;
use serde_json::Value;

/// A network of 2,000 packets that ends by itself.
const SHORT: &str = r#"
links = ["source.output -> end.input"]
[apps.source]
app = "source"
size = 60
count = 2000
[apps.end]
app = "sink"
"#;

fn lines_as_json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn a_full_disk_under_the_log_costs_no_packet() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("short.toml", SHORT);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let said: Said = sandbox.command(&["run", &network, "--json"]).stderr(full).output().unwrap().into();
    assert_eq!(said.success().json()["links"][0]["packets"], 2000);
}

#[test]
fn a_reader_of_the_log_that_dies_costs_no_packet() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("short.toml", SHORT);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let said: Said = sandbox.command(&["run", &network, "--json"]).stderr(writer).output().unwrap().into();
    assert_eq!(said.success().json()["links"][0]["packets"], 2000);
}

#[test]
fn a_reader_of_the_log_that_stands_still_holds_up_nothing() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    // A full pipe with a reader that does not read.
    let (reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut filler = OpenOptions::new().write(true).custom_flags(nonblocking).open(path).unwrap();
    while filler.write(&[b'x'; 4096]).is_ok() {}
    drop(filler);
    let started = Instant::now();
    let said: Said =
        sandbox.command(&["run", &network, "--json", "--duration", "200ms"]).stderr(writer).output().unwrap().into();
    let report = said.success().json();
    assert!(report["links"][0]["packets"].as_u64().unwrap() > 0);
    // They wait in the queue when the run ends, and are never written.
    assert!(report["log_lines_lost"].as_u64().unwrap() > 0, "{report:#}");
    assert!(started.elapsed() < Duration::from_secs(30));
    drop(reader);
}

#[test]
fn unwritable_standard_output_is_an_error_not_a_panic() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("short.toml", SHORT);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let said: Said = sandbox.command(&["run", &network]).stdout(full).output().unwrap().into();
    assert_eq!(said.code, Some(1), "{said:#?}");
    assert!(said.stderr.contains("cannot write the output"), "{said:#?}");
}

#[test]
fn mistakes_are_json_lines_where_the_log_is() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("wrong.toml", &SHORT.replace("count", "cuont"));
    let wrong_commands: [&[&str]; 4] = [
        &["run", &network, "--log-format", "json"],
        &["check", &network, "--log-format=json"],
        &["stop", "nobody", "--log-format", "json"],
        &["run", "--no-such-option", "--log-format", "json"],
    ];
    for words in wrong_commands {
        let said = sandbox.bellows(words);
        assert_eq!(said.code, Some(2), "{said:#?}");
        let records = lines_as_json(&said.stderr);
        let last = records.last().unwrap();
        assert_eq!(last["level"], "ERROR", "{said:#?}");
        assert!(last["message"].as_str().is_some_and(|message| !message.is_empty()), "{said:#?}");
        assert!(last["timestamp"].is_string() && !said.stderr.contains("\\u001b"), "{said:#?}");
    }
}

#[test]
fn every_failure_is_a_json_record_of_an_error() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let runs = ["a", "b"].map(|name| sandbox.start(&[&network, "--name", name]));
    runs.iter().for_each(|run| run.signal(Signal::STOP));
    let said = sandbox.bellows(&["stop", "a", "b", "--timeout", "1s", "--log-format", "json"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{said:#?}");
    let records = lines_as_json(&said.stderr);
    assert_eq!(records.len(), 2, "{said:#?}");
    for (record, name) in records.iter().zip(["b", "a"]) {
        assert_eq!(record["level"], "ERROR", "{said:#?}");
        assert!(record["message"].as_str().unwrap().starts_with(&format!("`{name}` (process ")), "{said:#?}");
    }
    // Killed processes did not end normally.
    let said = sandbox.bellows(&["stop", "a", "b", "--timeout", "1s", "--kill", "--log-format", "json"]).success();
    let records = lines_as_json(&said.stderr);
    assert_eq!(records.len(), 2, "{said:#?}");
    assert!(records.iter().all(|record| record["level"] == "WARN"), "{said:#?}");
}

#[test]
fn several_failures_of_a_run_are_records_of_their_own() {
    let sandbox = Sandbox::new();
    let two = "links = [\"a.output -> one.input\", \"b.output -> two.input\"]\n\
               [apps.a]\napp = \"pcap-reader\"\npath = \"one.pcap\"\n[apps.b]\napp = \"pcap-reader\"\npath = \"two.pcap\"\n\
               [apps.one]\napp = \"sink\"\n[apps.two]\napp = \"sink\"\n";
    let capture = std::fs::read(crate::support::root().join("examples/captures/quickstart.pcap")).unwrap();
    for name in ["one.pcap", "two.pcap"] {
        std::fs::write(sandbox.path(name), &capture[..capture.len() - 1]).unwrap();
    }
    let network = sandbox.write("two.toml", two);
    let said = sandbox.bellows(&["run", &network, "--json", "--log-format", "json"]);
    assert_eq!(said.code, Some(1), "{said:#?}");
    let records = lines_as_json(&said.stderr);
    let errors: Vec<&Value> = records.iter().filter(|record| record["level"] == "ERROR").collect();
    assert_eq!(errors.len(), 2, "{said:#?}");
    for (error, app) in errors.iter().zip(["a", "b"]) {
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("app `{app}` could not finish")) && !message.contains('\n'), "{said:#?}");
    }
}

#[test]
fn lines_of_the_log_that_were_lost_are_in_the_report() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("short.toml", SHORT);
    let run = |words: &[&str], stderr: Stdio| -> Said {
        Said::from(sandbox.command(words).stderr(stderr).output().unwrap()).success()
    };
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let report = run(&["run", &network, "--json"], full()).json();
    let lost = report["log_lines_lost"].as_u64().unwrap();
    assert!(lost > 0, "{report:#}");
    let warnings = report["warnings"].as_array().unwrap();
    let named = |warning: &&Value| warning.as_str().unwrap().contains("of the log");
    let warning = warnings.iter().find(named).unwrap_or_else(|| panic!("{report:#}")).as_str().unwrap();
    assert!(warning.starts_with(&format!("{lost} line")) && warning.contains("standard error"), "{warning}");
    let text = run(&["run", &network], full()).stdout;
    assert!(text.lines().last().unwrap().contains("of the log"), "{text}");
    // A reader that does not read loses the lines that do not fit.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert!(run(&["run", &network, "--json"], writer.into()).json()["log_lines_lost"].as_u64().unwrap() > 0);
    let report = run(&["run", &network, "--json"], Stdio::piped()).json();
    assert_eq!((&report["log_lines_lost"], &report["warnings"]), (&Value::from(0), &Value::from(Vec::<u64>::new())));
}

#[test]
fn a_refused_reload_is_one_line_of_the_log_whoever_asked() {
    for json in [false, true] {
        let sandbox = Sandbox::new();
        let network = sandbox.write("endless.toml", ENDLESS);
        let format = if json { "json" } else { "text" };
        let mut running = sandbox.start(&[&network, "--log-format", format]);
        sandbox.write("endless.toml", &ENDLESS.replace("size", "sizzle").replace("rate", "rat"));
        assert_eq!(sandbox.bellows(&["reload"]).code, Some(2));
        running.wait_for_log("not reloaded on request, the old network runs on");
        running.signal(Signal::HUP);
        running.wait_for_log("not reloaded, the old network runs on");
        // What is left is the rest of that record.
        running.signal(Signal::TERM);
        let said = running.wait().success();
        let (rest, later) = said.stderr.split_once('\n').unwrap();
        assert!(rest.contains("sizzle") && rest.contains("did you mean `rate`?"), "{said:#?}");
        if json {
            lines_as_json(later);
        } else {
            assert!(later.lines().all(|line| line.starts_with(|c: char| c.is_ascii_digit())), "{said:#?}");
        }
    }
}

#[test]
fn a_failure_is_printed_once_where_both_outputs_are_one() {
    let sandbox = Sandbox::new();
    let mut capture = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0].to_vec();
    capture.extend([0; 8]);
    capture.extend([0xff, 0xff, 0, 0, 1, 0, 0, 0, 9]);
    std::fs::write(sandbox.path("damaged.pcap"), capture).unwrap();
    let text =
        SHORT.replace("app = \"source\"\nsize = 60\ncount = 2000", "app = \"pcap-reader\"\npath = \"damaged.pcap\"");
    let network = sandbox.write("short.toml", &text);
    let apart = sandbox.bellows(&["run", &network]);
    assert_eq!(apart.code, Some(1), "{apart:?}");
    let failure = apart.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(apart.stdout.contains(failure), "{apart:?}");
    let path = sandbox.path("both.txt");
    let file = std::fs::File::create(&path).unwrap();
    let other = file.try_clone().unwrap();
    let status = sandbox.command(&["run", &network]).stdout(file).stderr(other).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let both = std::fs::read_to_string(path).unwrap();
    assert_eq!(both.matches(failure).count(), 1, "{both}");
}

#[test]
fn too_little_address_space_is_an_error_and_no_signal() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("short.toml", SHORT);
    for kibibytes in [100_000, 200_000, 215_000, 250_000, 300_000, 500_000, 800_000, 4_000_000] {
        let run = format!("ulimit -v {kibibytes}; exec \"$0\" run {network}");
        let output = Command::new("sh")
            .args(["-c", &run, env!("CARGO_BIN_EXE_bellows")])
            .env("BELLOWS_RUNTIME_DIR", sandbox.path("run/bellows"))
            .env("BELLOWS_STATE_DIR", sandbox.path("state"))
            .output();
        let said: Said = output.unwrap().into();
        match said.code {
            Some(0) => assert!(kibibytes > 500_000, "{said:#?}"),
            Some(2) => assert!(kibibytes < 4_000_000 && said.stderr.contains("ulimit -v"), "{said:#?}"),
            _ => panic!("with {kibibytes} KiB: {said:#?}"),
        }
    }
}

#[test]
fn a_terminal_that_goes_away_ends_the_run_in_order() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let report = sandbox.path("report.json");
    // `script` gives the run a terminal of its own, which goes away with it. `nohup` around the tests has no effect.
    let inner = format!("exec {} run {network} --json >{}", env!("CARGO_BIN_EXE_bellows"), report.display());
    let mut script = Command::new("env")
        .args(["--default-signal=HUP", "script", "-qc", &inner, "/dev/null"])
        .env("BELLOWS_RUNTIME_DIR", sandbox.path("run/bellows"))
        .env("BELLOWS_STATE_DIR", sandbox.path("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the network", || sandbox.path("run/bellows/endless/control").exists());
    script.kill().unwrap();
    script.wait().unwrap();
    eventually("the end", || !sandbox.path("run/bellows/endless").exists());
    let report: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!(report["stopped_by"], "signal");
}
