//! Networks with several workers, from outside: reloads that move apps and workers, apps that hang or panic on a further
//! worker, and what the commands that observe a network say about workers.

use std::collections::{BTreeMap, HashSet};
use std::fs;

use crate::support::stuck::Nothing;
use crate::support::{Running, Sandbox, Signal};
use bellows::Command;
use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, Io, Port, Ports};
use bellows_testkit::eventually;
use serde_json::{Value, json};

/// Panics at the first packet.
struct Failing;

impl App for Failing {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);

    fn push(&mut self, _: &Io<Self>) {
        panic!("an app of this test fails on purpose");
    }
}

impl Configure for Failing {
    const NAME: &'static str = "failing";
    type Config = Nothing;

    fn configure(_: Nothing, _: &Context) -> Result<Failing, SettingError> {
        Ok(Failing)
    }
}

/// Adds the apps to the command.
pub fn add(command: Command) -> Command {
    command.app::<Failing>()
}

tests! {
    apps_move_between_workers_and_nothing_is_lost,
    a_worker_moves_to_another_processor,
    an_app_that_hangs_is_named_with_its_worker,
    an_app_that_panics_on_a_worker_fails_alone,
    each_worker_is_observed,
    what_crossed_is_joined_even_after_a_crash,
}

/// A lossless network of a source, a counter and a last app of this type, with the workers of the latter two.
fn network(source: &str, counter: &str, last: &str, worker: &str, disk: &str) -> String {
    let table = if [counter, worker].contains(&"disk") { format!("[workers.disk]\n{disk}") } else { String::new() };
    format!(
        r#"
links = ["source.output -> counter.input", "counter.output -> last.input"]
[engine]
lossless = true
{table}
[apps.source]
app = "source"
size = 60
{source}
[apps.counter]
app = "counter"
worker = "{counter}"
[apps.last]
app = "{last}"
worker = "{worker}"
"#
    )
}

/// The app of this name in a report.
fn app<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["apps"].as_array().unwrap().iter().find(|app| app["name"] == json!(name)).unwrap()
}

fn apps_move_between_workers_and_nothing_is_lost() {
    const COUNT: u64 = 1_000_000;
    let sandbox = Sandbox::own();
    let place = |counter: &str, last: &str| {
        let source = format!("rate = \"100kpps\"\ncount = {COUNT}");
        sandbox.write("network.toml", &network(&source, counter, "sink", last, ""))
    };
    let path = place("main", "main");
    let running = sandbox.start(&[&path, "--json"]);
    let placements = [("disk", "main"), ("disk", "disk"), ("main", "disk"), ("main", "main")];
    for (counter, last) in placements.into_iter().cycle().take(12) {
        place(counter, last);
        let report = sandbox.bellows(&["reload", "--json"]).success().json();
        assert_eq!((&report["kept"].as_array().unwrap().len(), &report["dropped"]), (&3, &json!(0)), "{report}");
        let counters = running.counters();
        assert_eq!(
            (&app(&counters, "counter")["worker"], &app(&counters, "last")["worker"]),
            (&json!(counter), &json!(last))
        );
    }
    let moving = app(&running.counters(), "last")["in_packets"].as_u64().unwrap();
    assert!(moving < COUNT, "it was over before the last reload");
    let report = running.wait().success().json();
    assert_eq!((&report["end"], &report["imbalances"]), (&json!("done"), &json!([])));
    assert_eq!(app(&report, "last")["ended"], json!(COUNT), "{report:#}");
    assert_eq!(report["engine"]["reloads"], json!(12));
}

/// The processors that each thread of this name may use; the kernel cuts names.
fn allowed(running: &Running<'_>, thread: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap().flatten();
    let read = |task: &fs::DirEntry, file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
    let named = tasks.filter(|task| read(task, "comm").trim_end() == thread);
    let list = |task: fs::DirEntry| {
        let status = read(&task, "status");
        Some(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned())
    };
    named.filter_map(list).collect()
}

/// The processors in a list such as `0-2,5`.
fn processors(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    };
    list.split(',').flat_map(range).collect()
}

fn a_worker_moves_to_another_processor() {
    let sandbox = Sandbox::own();
    let place = |disk: &str| sandbox.write("network.toml", &network("rate = \"10kpps\"", "main", "sink", "disk", disk));
    let running = sandbox.start(&[&place("")]);
    let [everywhere] = &allowed(&running, "worker disk")[..] else { panic!("there is one thread of the worker") };
    let all = processors(everywhere);
    for cpu in [all[0], *all.last().unwrap()] {
        place(&format!("cpu = {cpu}"));
        sandbox.bellows(&["reload"]).success();
        eventually("the new thread alone", || allowed(&running, "worker disk") == [cpu.to_string()]);
    }
    place("");
    sandbox.bellows(&["reload"]).success();
    eventually("the thread to be free", || allowed(&running, "worker disk") == [everywhere.clone()]);
    let before = app(&running.counters(), "last")["in_packets"].as_u64().unwrap();
    eventually("packets", || app(&running.counters(), "last")["in_packets"].as_u64().unwrap() > before);
    running.signal(Signal::TERM);
    running.wait().success();
}

fn an_app_that_hangs_is_named_with_its_worker() {
    let sandbox = Sandbox::own();
    let path = sandbox.write("network.toml", &network("", "main", "stuck", "disk", ""));
    let mut running = sandbox.start(&[&path]);
    running.wait_for_log("hung: the worker `disk` has been in the app `last` for");
    let hang = &sandbox.bellows(&["ps", "--json"]).json()[0]["hang"];
    assert_eq!((&hang["worker"], &hang["app"]), (&json!("disk"), &json!("last")));
    for words in [&["show"][..], &["top", "--once"]] {
        let text = sandbox.bellows(words).stdout;
        assert!(text.contains("hung: the worker `disk` has been in the app `last` for"), "{text}");
    }
    running.signal(Signal::KILL);
    running.wait();
    let text = sandbox.bellows(&["show"]).stdout;
    assert!(text.contains("when it ended, the worker `disk` was in the app `last`"), "{text}");
}

fn an_app_that_panics_on_a_worker_fails_alone() {
    let sandbox = Sandbox::own();
    let path = sandbox.write("network.toml", &network("rate = \"10kpps\"", "main", "failing", "disk", ""));
    let running = sandbox.start(&[&path, "--json"]);
    eventually("the panic", || app(&running.counters(), "last")["state"] == json!("failed"));
    // The others go on, and the worker drops what comes for the app.
    let passed = || app(&running.counters(), "counter")["out_packets"].as_u64().unwrap();
    let before = passed();
    eventually("packets after the panic", || passed() > before + 1_000);
    let timeline = sandbox.bellows(&["timeline", "--json", "--all", "--last", "1h"]).success().json();
    let panics: Vec<&Value> = of(&timeline, "panic");
    assert_eq!((&panics[0]["worker"], &panics[0]["app"]), (&json!("disk"), &json!("last")));
    running.signal(Signal::TERM);
    let said = running.wait();
    let report = said.json();
    assert_eq!((said.code, &report["panicked"]), (Some(1), &json!(["last"])));
    let last = app(&report, "last");
    assert_eq!((&last["worker"], &last["panics"]), (&json!("disk"), &json!(1)));
    assert_eq!(last["drops"]["app_failed"], last["in_packets"]);
}

/// The events of a kind.
fn of<'a>(timeline: &'a Value, what: &str) -> Vec<&'a Value> {
    timeline["events"].as_array().unwrap().iter().filter(|event| event["what"] == json!(what)).collect()
}

fn each_worker_is_observed() {
    let sandbox = Sandbox::own();
    let path = sandbox.write("network.toml", &network("rate = \"200kpps\"", "main", "sink", "disk", ""));
    let running = sandbox.start(&[&path]);
    let top = sandbox.bellows(&["top", "--once", "--json"]).success().json();
    assert_eq!((&app(&top, "counter")["worker"], &app(&top, "last")["worker"]), (&json!("main"), &json!("disk")));
    let names: Vec<&Value> = top["workers"].as_array().unwrap().iter().map(|worker| &worker["name"]).collect();
    assert_eq!(names, [&json!("main"), &json!("disk")]);
    let text = sandbox.bellows(&["top", "--once"]).success().stdout;
    assert!(text.contains("\nworker disk: 1 app, ") && text.contains(" SHARE  WORKER"), "{text}");
    // A packet's latency ends where the packet does: on another worker than the one that marked it.
    let samples = || sandbox.bellows(&["show", "latency", "--json"]).success().json()["latency"]["samples"].as_u64();
    eventually("packets whose latency is known", || samples().is_some_and(|samples| samples > 0));
    for words in [["graph", "--name", &running.name, "--format", "text"], ["graph", &path, "--format", "text", "--set"]]
    {
        let words = if words[4] == "--set" { &words[..4] } else { &words[..] };
        let text = sandbox.bellows(words).success().stdout;
        assert!(text.contains("@disk") && text.contains("@main"), "{text}");
    }
    let dot = sandbox.bellows(&["graph", "--name", &running.name, "--format", "dot"]).success().stdout;
    assert!(dot.contains("label=<worker disk>") && dot.contains("pps") && dot.contains("style=dashed"), "{dot}");
    // The system may forbid sampling.
    let hot = sandbox.bellows(&["show", "hot", "--for", "500ms", "--json"]);
    if hot.code == Some(0) {
        assert_eq!(hot.json()["threads"], json!(2));
    }
    running.signal(Signal::TERM);
    running.wait().success();
}

/// Marked vectors of a link that may be under way: in each place of the ring, and in the breaths at both ends.
const MAX_UNDER_WAY: usize = 10;

fn what_crossed_is_joined_even_after_a_crash() {
    let sandbox = Sandbox::own();
    let path = sandbox.write("network.toml", &network("rate = \"500kpps\"", "disk", "sink", "main", ""));
    let running = sandbox.start(&[&path]);
    let timeline = || sandbox.bellows(&["timeline", "--json", "--all", "--last", "1h"]).success().json();
    eventually("packets that cross both ways in recorded breaths", || {
        let timeline = timeline();
        let marks = |what: &str| -> HashSet<(String, u64)> {
            let mark = |event: &Value| (event["link"].as_str().unwrap().to_owned(), event["mark"].as_u64().unwrap());
            of(&timeline, what).into_iter().map(mark).collect()
        };
        let joined: HashSet<String> =
            marks("arrival").intersection(&marks("departure")).map(|(link, _)| link.clone()).collect();
        joined.len() == 2
    });
    let folder = running.folder();
    assert!(folder.join("timeline").exists() && folder.join("timeline.disk").exists());
    running.signal(Signal::KILL);
    running.wait();
    let timeline = timeline();
    let [departures, arrivals] = ["departure", "arrival"].map(|what| {
        let ends: BTreeMap<u64, &Value> =
            of(&timeline, what).into_iter().map(|event| (event["mark"].as_u64().unwrap(), event)).collect();
        assert_eq!(ends.len(), of(&timeline, what).len(), "a mark has two ends of one kind");
        ends
    });
    for (mark, arrival) in &arrivals {
        let Some(departure) = departures.get(mark) else { continue };
        assert_eq!((&departure["link"], &departure["packets"]), (&arrival["link"], &arrival["packets"]));
        assert_ne!(departure["worker"], arrival["worker"]);
        assert!(departure["start_ns"].as_u64() <= arrival["start_ns"].as_u64(), "{departure} {arrival}");
    }
    // Only the last of each link may lack their other end: what was between the workers when the process ended, and
    // what left or arrived in a breath that was under way. Both ends of a link see the same order.
    for link in ["source.output -> counter.input", "counter.output -> last.input"] {
        for (ends, others) in [(&departures, &arrivals), (&arrivals, &departures)] {
            let of_link = ends.iter().filter(|(_, event)| event["link"] == json!(link));
            let is_joined: Vec<bool> = of_link.map(|(mark, _)| others.contains_key(mark)).collect();
            let joined = is_joined.iter().filter(|joined| **joined).count();
            assert!(joined > 0 && is_joined.len() - joined <= MAX_UNDER_WAY, "{link}: {is_joined:?}");
            assert!(is_joined[..joined].iter().all(|joined| *joined), "{link}: {is_joined:?}");
        }
    }
    let trace = sandbox.bellows(&["timeline", "--export", "-"]).success().json();
    let events = trace["traceEvents"].as_array().unwrap();
    let threads: Vec<&Value> = events
        .iter()
        .filter(|event| event["name"] == json!("thread_name"))
        .map(|event| &event["args"]["name"])
        .collect();
    assert_eq!(threads, [&json!("main"), &json!("disk")]);
    let ends = |phase: &str| events.iter().filter(|event| event["ph"] == json!(phase)).count();
    assert!(ends("s") > 0 && ends("s") == ends("f"), "{} arrows begin, {} end", ends("s"), ends("f"));
    let text = sandbox.bellows(&["timeline", "--last", "1h", "--all"]).success().stdout;
    assert!(text.contains("\nworker disk: ") && text.contains(" after they left main\n"), "{text}");
    let listed = sandbox.bellows(&["ps", "--clean"]).success();
    assert!(!folder.exists(), "{listed:?}");
}
