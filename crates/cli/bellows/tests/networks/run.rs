//! `bellows run`: real packets through real networks, reports, exit codes, signals.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::examples::WITH_INTERFACES;
use crate::support::{ENDLESS, IDLE, Sandbox, Signal, root};
use bellows_testkit::eventually;
use bellows_testkit::programs::has_program;
use serde_json::{Value, json};

/// The packets of `examples/captures/quickstart.pcap`.
const PACKETS: u64 = 2_972;

/// The examples, as in a new checkout.
fn copy_examples(sandbox: &Sandbox) {
    fs::create_dir(sandbox.path("captures")).unwrap();
    let capture = "captures/quickstart.pcap";
    fs::copy(root().join("examples").join(capture), sandbox.path(capture)).unwrap();
    fs::create_dir(sandbox.path("parts")).unwrap();
    fs::copy(root().join("examples/parts/line.toml"), sandbox.path("parts/line.toml")).unwrap();
    for file in example_files() {
        fs::copy(&file, sandbox.path(&file.file_name().unwrap().to_string_lossy())).unwrap();
    }
}

fn example_files() -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    files
}

fn link<'a>(report: &'a Value, to: &str) -> &'a Value {
    report["links"].as_array().unwrap().iter().find(|link| link["to"] == to).unwrap()
}

#[test]
fn the_quickstart_says_where_every_packet_went() {
    let sandbox = Sandbox::new();
    copy_examples(&sandbox);
    let said = sandbox.bellows(&["run", "quickstart.toml"]).success();
    for expected in ["capture.output -> protocols.input    2,972", "not_sampled", "icmpv6", "all done", "2,972"] {
        assert!(said.stdout.contains(expected), "{expected} is not in\n{}", said.stdout);
    }
    assert!(!said.stdout.contains('\x1b'), "colours go to terminals only");
    assert!(!sandbox.path("run/bellows/quickstart").exists(), "a run that ends well leaves nothing");
}

#[test]
fn tcpdump_reads_the_quickstarts_output() {
    if !has_program("tcpdump_reads_the_quickstarts_output", "tcpdump") {
        return;
    }
    let sandbox = Sandbox::new();
    copy_examples(&sandbox);
    sandbox.bellows(&["run", "quickstart.toml"]).success();
    let read = |file: &str| {
        let output = Command::new("tcpdump").args(["-ttnexxr", file]).current_dir(sandbox.path("")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let written = read("quickstart-out.pcap");
    // Each packet is a line that starts with its time; its bytes are in lines that start with a tab.
    assert_eq!(written.lines().filter(|line| !line.starts_with('\t')).count() as u64, PACKETS);
    assert_eq!(written, read("captures/quickstart.pcap"));
}

#[test]
fn the_json_report_has_everything_in_the_text() {
    let sandbox = Sandbox::new();
    copy_examples(&sandbox);
    let report = sandbox.bellows(&["run", "quickstart.toml", "--json", "--name", "mine"]).success().json();
    let part = |key: &str| report[key].clone();
    assert_eq!((part("name"), part("end"), part("stopped_by")), (json!("mine"), json!("done"), Value::Null));
    assert_eq!((part("panicked"), part("unfinished"), part("warnings")), (json!([]), json!([]), json!([])));
    assert!(["hugetlb", "thp", "4k"].contains(&report["memory"]["pages"].as_str().unwrap()));
    assert!(report["elapsed_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(link(&report, "file.input")["packets"], json!(PACKETS));
    let passed = link(&report, "end.input")["packets"].as_u64().unwrap();
    let dropped = report["apps"][4]["drops"]["not_sampled"].as_u64().unwrap();
    assert_eq!((passed, passed + dropped), (PACKETS.div_ceil(10), PACKETS));
    assert_eq!(report["memory"]["buffers_in_use"], json!(0), "no packet is left behind");
}

#[test]
fn every_example_is_right_and_runs() {
    let sandbox = Sandbox::new();
    copy_examples(&sandbox);
    for file in example_files() {
        let name = file.file_name().unwrap().to_string_lossy();
        let checked = sandbox.bellows(&["check", &name]).success();
        assert!(checked.stdout.contains("fine"), "{checked:?}");
        if WITH_INTERFACES.contains(&&*name) {
            continue;
        }
        let said = sandbox.bellows(&["run", &name, "--duration", "2s", "--json"]);
        let report = said.json();
        // Machines that do not exist send nothing.
        let moves = report["links"][0]["packets"].as_u64().unwrap() > 0;
        assert_eq!(moves, !["switch.toml", "two-machines.toml"].contains(&&*name), "{name}");
        // The network that impairs its packets compares them and fails the run on purpose.
        assert_eq!(said.code, Some(i32::from(name == "impairment.toml")), "{name}: {report:#}");
    }
}

#[test]
fn all_schedules_do_the_same() {
    let sandbox = Sandbox::new();
    copy_examples(&sandbox);
    let counts = |schedule: &str| {
        let mut report = sandbox.bellows(&["run", "loop.toml", "--json", "--schedule", schedule]).success().json();
        if cfg!(target_arch = "x86_64") {
            assert_eq!(report["schedule"], json!(schedule));
        }
        for app in report["apps"].as_array_mut().unwrap() {
            // Breaths are sampled at random.
            app["account"].take();
        }
        (report["links"].clone(), report["apps"].clone())
    };
    let nested = counts("nested");
    assert_eq!(counts("flat"), nested);
    assert_eq!(counts("native"), nested);
}

#[test]
fn a_network_that_forks_and_joins_loses_nothing() {
    let sandbox = Sandbox::new();
    copy_examples(&sandbox);
    let report =
        sandbox.bellows(&["run", "replay.toml", "--json", "--set", "apps.capture.factor=200"]).success().json();
    assert_eq!(link(&report, "sink.input")["packets"], json!(PACKETS), "{report:#}");
}

#[test]
fn mistakes_are_reported_all_at_once_and_nothing_is_touched() {
    let sandbox = Sandbox::new();
    sandbox.write("out.pcap", "keep me");
    let network = sandbox.write(
        "wrong.toml",
        "links = [\"capture.output -> out.inptu\", \"capture.output -> nobody.input\"]\n\
         [apps.capture]\napp = \"pcap-raeder\"\npath = \"x.pcap\"\n\
         [apps.out]\napp = \"pcap-writer\"\npath = \"out.pcap\"\nsnaplen = \"long\"\n",
    );
    for command in ["run", "check"] {
        let said = sandbox.bellows(&[command, &network]);
        assert_eq!(said.code, Some(2));
        assert_eq!(said.stdout, "");
        for expected in ["pcap-reader", "nobody", "inptu", "snaplen", "wrong.toml:3", "wrong.toml:8"] {
            assert!(said.stderr.contains(expected), "{expected} is not in\n{}", said.stderr);
        }
    }
    assert_eq!(fs::read_to_string(sandbox.path("out.pcap")).unwrap(), "keep me");
    assert!(!sandbox.path("run/bellows").exists(), "nothing was started");
}

#[test]
fn an_output_that_cannot_be_created_is_an_error_too() {
    let sandbox = Sandbox::new();
    copy_examples(&sandbox);
    let said = sandbox.bellows(&["run", "quickstart.toml", "--set", "apps.file.path=nowhere/out.pcap"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("nowhere"), "{said:?}");
}

#[test]
fn wrong_words_are_mistakes() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let wrong: [&[&str]; 7] = [
        &["run"],
        &["run", "missing.toml"],
        &["run", &network, "--schedule", "lunar"],
        &["run", &network, "--duration", "soon"],
        &["run", &network, "--cpu", "100000"],
        &["run", &network, "--name", "../up"],
        &["run", &network, "--set", "apps.source.colour=red"],
    ];
    for words in wrong {
        let said = sandbox.bellows(words);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{words:?}: {said:?}");
        assert!(!said.stderr.is_empty());
    }
    let said = sandbox.bellows(&["run", &network, "--duration", "-1s"]);
    assert!(said.code == Some(2) && said.stderr.contains("`-1s` is not a duration"), "{said:?}");
}

#[test]
fn a_damaged_capture_fails_the_run_after_all_whole_packets() {
    let sandbox = Sandbox::new();
    copy_examples(&sandbox);
    let whole = fs::read(sandbox.path("captures/quickstart.pcap")).unwrap();
    fs::write(sandbox.path("captures/quickstart.pcap"), &whole[..whole.len() - 10]).unwrap();
    let said = sandbox.bellows(&["run", "quickstart.toml", "--json"]);
    assert_eq!(said.code, Some(1));
    let report = said.json();
    assert_eq!(link(&report, "file.input")["packets"], json!(PACKETS - 1));
    assert_eq!(report["unfinished"][0]["app"], json!("capture"));
    assert!(report["unfinished"][0]["reason"].as_str().unwrap().contains("quickstart.pcap"), "{report:#}");
    assert!(report["warnings"][0].as_str().unwrap().contains("could not finish"), "{report:#}");
    let in_text = sandbox.bellows(&["run", "quickstart.toml"]);
    for text in [&said.stderr, &in_text.stderr, &in_text.stdout] {
        assert!(text.contains("error: app `capture` could not finish"), "{text}");
    }
    assert!(!in_text.stdout.contains("warning:"), "{in_text:?}");
}

#[test]
fn a_folder_that_cannot_be_used_is_named_with_the_remedy() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    // Nobody can make a folder in /proc.
    let output = sandbox.command(&["run", &network]).env("BELLOWS_RUNTIME_DIR", "/proc/bellows").output().unwrap();
    let said = crate::support::Said::from(output);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("/proc/bellows") && said.stderr.contains("set BELLOWS_RUNTIME_DIR"), "{said:?}");
}

#[test]
fn a_pool_that_runs_dry_is_a_counted_drop() {
    let sandbox = Sandbox::new();
    copy_examples(&sandbox);
    let said = sandbox.bellows(&["run", "quickstart.toml", "--json", "--set", "engine.pool=100"]).success();
    let report = said.json();
    let copies = link(&report, "file.input")["packets"].as_u64().unwrap();
    let missed = report["apps"][2]["drops"]["no_buffer"].as_u64().unwrap();
    assert_eq!(copies + missed, PACKETS, "{report:#}");
    assert_eq!(report["warnings"].as_array().unwrap().len(), usize::from(missed > 0));
}

#[test]
fn long_packets_have_the_configured_number_of_buffers() {
    let sandbox = Sandbox::new();
    let network = "links = [\"source -> end\"]\n[apps.source]\napp = \"source\"\nsize = 9000\ncount = 1000\n\
                   [apps.end]\napp = \"sink\"\n[engine]\nlarge_packets = 40\n";
    let network = sandbox.write("jumbo.toml", network);
    let run = |set: &str, limit: &[&str]| {
        let report = sandbox.bellows(&[&["run", &network, "--json", "--set", set], limit].concat()).success().json();
        let [buffers, sent] = [&report["memory"]["buffers"], &link(&report, "end.input")["packets"]];
        let waits = report["apps"][0]["counters"]["buffer_waits"].as_u64().unwrap();
        assert_eq!(report["apps"][0]["drops"]["no_buffer"], 0, "what was never made is not dropped: {report:#}");
        assert_eq!(report["warnings"].to_string().contains("`large_packets`"), waits > 0, "{report:#}");
        (buffers.as_u64().unwrap(), sent.as_u64().unwrap(), waits > 0)
    };
    assert_eq!(run("engine.pool=1000", &[]), (1_040, 1_000, true), "they come back, but are fewer than a burst");
    assert_eq!(run("engine.large_packets=128", &[]), (65_664, 1_000, false));
    assert_eq!(run("engine.large_packets=0", &["--duration", "100ms"]), (65_536, 0, true));
    let said = sandbox.bellows(&["run", &network, "--set", "engine.large_packets=1000000"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("`large_packets` must be an integer 0 to 232,814"), "{said:?}");
}

#[test]
fn a_run_ends_when_its_time_is_over() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let started = Instant::now();
    let report = sandbox.bellows(&["run", &network, "--duration", "300ms", "--json"]).success().json();
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert_eq!((&report["end"], &report["stopped_by"]), (&json!("stopped"), &json!("duration")));
    assert!(report["elapsed_seconds"].as_f64().unwrap() >= 0.3, "starting does not count: {report:#}");
    assert!(link(&report, "end.input")["packets"].as_u64().unwrap() > 1_000);
    let text = sandbox.bellows(&["run", &network, "--duration", "100ms"]).success().stdout;
    assert!(text.contains("kpps, ") && text.contains("Mb/s on average over the run\n"), "{text}");
}

#[test]
fn signals_end_a_run_as_a_normal_end_does() {
    for signal in [Signal::INT, Signal::TERM] {
        let sandbox = Sandbox::new();
        let file = "links = [\"source.output -> out.input\"]\n[apps.source]\napp = \"source\"\nrate = \"1kpps\"\n\
                    [apps.out]\napp = \"pcap-writer\"\npath = \"out.pcap\"\n";
        let network = sandbox.write("network.toml", file);
        let running = sandbox.start(&[&network, "--json"]);
        eventually("some packets", || running.counters()["links"][0]["packets"].as_u64() > Some(10));
        running.signal(signal);
        let said = running.wait().success();
        let report = said.json();
        assert_eq!(report["stopped_by"], json!("signal"));
        // 24 bytes of file header; each record has 16 bytes before its 60.
        let packets = report["apps"][1]["in_packets"].as_u64().unwrap();
        assert_eq!(fs::metadata(sandbox.path("out.pcap")).unwrap().len(), 24 + packets * 76);
    }
}

#[test]
fn idling_costs_next_to_nothing() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("idle.toml", IDLE);
    let running = sandbox.start(&[&network]);
    thread::sleep(Duration::from_millis(300));
    let ticks = || {
        let stat = fs::read_to_string(Path::new("/proc").join(running.pid().to_string()).join("stat")).unwrap();
        let fields: Vec<u64> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse().unwrap())
            .collect();
        fields[0] + fields[1]
    };
    let before = ticks();
    thread::sleep(Duration::from_secs(2));
    // A tick is 10 ms: 2 are 1 percent of a core, and one more for rounding.
    assert!(ticks() - before <= 3, "{} ticks in 2 s", ticks() - before);
}

#[test]
fn the_log_can_be_json_lines_or_silent() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let run = |words: &[&str]| sandbox.bellows(&[&["run", &network, "--duration", "10ms"], words].concat()).success();
    let said = run(&["--log-format", "json"]);
    for line in said.stderr.lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(entry["level"].is_string() && entry["message"].is_string(), "{line}");
    }
    assert!(said.stderr.contains("INFO"));
    assert_eq!(run(&["--log-level", "warn"]).stderr, "");
}

#[test]
fn packets_left_in_apps_and_links_are_reported() {
    let sandbox = Sandbox::new();
    let network = sandbox.write(
        "network.toml",
        "links = [\"source.output -> delay.input\", \"delay.output -> end.input\"]\n[apps.source]\napp = \"source\"\n\
         rate = \"10kpps\"\n[apps.delay]\napp = \"delay\"\ntime = \"1h\"\n[apps.end]\napp = \"sink\"\n",
    );
    let report = sandbox.bellows(&["run", &network, "--duration", "300ms", "--json"]).success().json();
    let [source, delay] = [0, 1].map(|app| report["apps"][app].clone());
    assert!(delay["held"].as_u64() > Some(1_000), "{delay:#}");
    assert_eq!((&delay["held"], &source["made"]), (&delay["in_packets"], &source["out_packets"]));
    let text = sandbox.bellows(&["run", &network, "--duration", "300ms"]).success().stdout;
    assert!(
        text.contains("HELD") && text.contains("left at the end: ") && text.contains(" in apps (`delay` "),
        "{text}"
    );
}

#[test]
fn unintended_losses_end_a_report() {
    let sandbox = Sandbox::new();
    // One frame as long as BIG TCP makes them, and one that fits.
    let mut capture = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 1 << 18, 1].map(u32::to_ne_bytes).concat();
    for length in [80_000u32, 60] {
        capture.extend([1, 0, length, length].map(u32::to_ne_bytes).concat());
        capture.extend(vec![0; length as usize]);
    }
    fs::write(sandbox.path("big.pcap"), capture).unwrap();
    let network = sandbox.write(
        "network.toml",
        "links = [\"reader.output -> sample.input\", \"sample.output -> end.input\"]\n[apps.reader]\n\
         app = \"pcap-reader\"\npath = \"big.pcap\"\n[apps.sample]\napp = \"sample\"\nevery = 2\n[apps.end]\napp = \"sink\"\n",
    );
    let said = sandbox.bellows(&["run", &network]).success();
    let last = said.stdout.lines().last().unwrap();
    assert_eq!(last, "warning: 1 packet lost in the app `reader`, too_long: packets longer than the largest buffer");
    let report = sandbox.bellows(&["run", &network, "--json"]).success().json();
    let losses = report["losses"].as_array().unwrap();
    assert_eq!((losses.len(), &losses[0]["reason"], &losses[0]["packets"]), (1, &json!("too_long"), &json!(1)));
}

#[test]
fn drops_of_reloads_are_reported_by_app_and_reason() {
    let sandbox = Sandbox::new();
    let ends = "[apps.source]\napp = \"source\"\nrate = \"10kpps\"\n[apps.end]\napp = \"sink\"\n";
    let with = format!(
        "links = [\"source.output -> delay.input\", \"delay.output -> sample.input\", \"sample.output -> end.input\"]\n{ends}\
         [apps.delay]\napp = \"delay\"\ntime = \"50ms\"\n[apps.sample]\napp = \"sample\"\nevery = 2\n"
    );
    let network = sandbox.write("network.toml", &with);
    let running = sandbox.start(&[&network, "--json"]);
    eventually("some are sampled", || running.counters()["apps"][3]["drops"]["not_sampled"].as_u64() > Some(10));
    sandbox.write("network.toml", &format!("links = [\"source.output -> end.input\"]\n{ends}"));
    let shown = {
        let dropped = sandbox.bellows(&["reload", "network", "--json"]).success().json()["dropped"].as_u64().unwrap();
        let shown = running.counters();
        let removed: u64 =
            ["delay", "sample"].iter().map(|name| gone(&shown, name)["drops"]["removed"].as_u64().unwrap()).sum();
        let links = shown["gone"]["links"].as_array().unwrap();
        let waiting: u64 = links.iter().map(|link| link["removed"].as_u64().unwrap()).sum();
        assert!(dropped > 100 && removed + waiting == dropped, "{shown:#}");
        shown
    };
    assert!(gone(&shown, "sample")["drops"]["not_sampled"].as_u64() > Some(10));
    let text = sandbox.bellows(&["show", "errors"]).success().stdout;
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let has = |app: &str, reason: &str| {
        rows.iter().any(|row| row.len() == 4 && (row[0], row[1], row[2]) == (app, "(removed)", reason))
    };
    assert!(has("delay", "removed") && has("sample", "not_sampled"), "{text}");
    running.signal(Signal::INT);
    let said = running.wait().success();
    let report = said.json();
    assert_eq!(gone(&report, "sample")["drops"], gone(&shown, "sample")["drops"]);
}

fn gone(counters: &Value, name: &str) -> Value {
    let apps = counters["gone"]["apps"].as_array().unwrap();
    apps.iter().find(|app| app["name"] == json!(name)).unwrap_or_else(|| panic!("{counters:#}")).clone()
}
