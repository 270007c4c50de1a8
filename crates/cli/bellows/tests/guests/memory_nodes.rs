//! Workers in a guest with three memory nodes: two with a processor each, and one that has only memory.

use std::collections::HashMap;
use std::path::Path;

use crate::support::Sandbox;
use crate::support::guest::{json, start};
use crate::support::vhost::Network;
use bellows_testkit::guest::{self, Guest, Setup};
use bellows_testkit::skips::{is_left_out, is_skipped};
use serde_json::Value;

/// Memory nodes of the guest.
const NODES: usize = 3;

/// The packets that go from one worker to the other.
const COUNT: u64 = 100_000;

/// A network with two workers and a link between them, that goes on after the last packet. `main` and `far` are the keys
/// of the workers.
fn network(main: &str, far: &str, [from, to]: [&str; 2]) -> String {
    // Of 100 packets one needs a large buffer.
    let source = format!("sizes = [60, 9000]\nweights = [99, 1]\ncount = {COUNT}\nworker = \"{from}\"\n");
    let network = Network::default()
        .app("source", "source", &source)
        .app("end", "sink", &format!("worker = \"{to}\"\n"))
        .app("idle", "source", &format!("rate = 0.0003\nworker = \"{from}\"\n"))
        .app("nowhere", "sink", &format!("worker = \"{from}\"\n"))
        .link("source.output -> end.input")
        .link("idle.output -> nowhere.input");
    format!("{}[engine]\n{main}\n[workers.far]\n{far}\n", network.text())
}

/// The memory of a running network that has been touched: of the pool and of the arena, whether there are pages on each
/// memory node. All are where the process has asked for.
fn memory(guest: &mut Guest) -> [[bool; NODES]; 2] {
    // The process asks for huge pages for these two alone, and only core dumps of the pool are left out.
    let kinds = guest.run("grep -E '^[0-9a-f]+-|^VmFlags' /proc/$(pidof bellows)/smaps");
    let lines: Vec<&str> = kinds.lines().collect();
    let kind = |lines: &[&str]| {
        let has = |flag| lines[1].split(' ').any(|known| known == flag);
        has("hg").then(|| (lines[0].split('-').next().unwrap().to_owned(), usize::from(!has("dd"))))
    };
    let kinds: HashMap<String, usize> = lines.chunks(2).filter_map(kind).collect();
    let mut touched = [[false; NODES]; 2];
    let places = guest.run("cat /proc/$(pidof bellows)/numa_maps");
    for line in places.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let Some(&kind) = kinds.get(words[0]) else { continue };
        for (node, _) in words.iter().filter_map(|word| word.strip_prefix('N')?.split_once('=')) {
            assert_eq!(words[1], format!("prefer:{node}"), "{line}");
            touched[kind][node.parse::<usize>().unwrap()] = true;
        }
    }
    touched
}

/// Runs a network until all packets have gone from the one worker to the other. Returns the packets that each has got
/// from other nodes.
fn run(guest: &mut Guest, name: &str) -> [u64; 2] {
    start(guest, name);
    guest.eventually(&format!("bellows show --json | grep -q '\"ended\": *{COUNT}\\b'"));
    let counters = json(guest, "show");
    let crossed = counters["crossings"].as_array().unwrap().iter().map(|side| side["out_packets"].as_u64().unwrap());
    assert_eq!(crossed.sum::<u64>(), COUNT, "{counters:#}");
    let from_other_nodes = |worker: usize| {
        let worker = &counters["workers"][worker];
        worker["counters"]["from_other_nodes"].as_u64().unwrap()
    };
    let counts = [0, 1].map(from_other_nodes);
    assert_eq!(counters["engine"]["from_other_nodes"], counts[0] + counts[1]);
    counts
}

/// The memory nodes of the workers.
fn nodes(guest: &mut Guest) -> Vec<Value> {
    json(guest, "show")["workers"].as_array().unwrap().iter().map(|worker| worker["node"].clone()).collect()
}

fn stop(guest: &mut Guest) {
    guest.run("killall -INT bellows");
    guest.eventually("! pidof bellows");
}

/// The processors on which a thread of this name may run.
fn processors(guest: &mut Guest, thread: &str) -> String {
    let tasks = "/proc/$(pidof bellows)/task";
    let said = guest.run(&format!("grep Cpus_allowed_list $(dirname $(grep -l '^{thread}$' {tasks}/*/comm))/status"));
    said.split_once(':').unwrap().1.trim().to_owned()
}

#[test]
fn workers_have_their_memory_on_their_nodes() {
    let test = "workers_have_their_memory_on_their_nodes";
    if is_left_out(test) || is_skipped(test, guest::missing()) {
        return;
    }
    let sandbox = Sandbox::new();
    let folder = sandbox.path("");
    let mut guest = Setup::without_cards(&folder)
        .nodes(NODES)
        .program(Path::new(env!("CARGO_BIN_EXE_bellows")))
        .file("there.toml", network("cpu = 0", "cpu = 1", ["main", "far"]))
        .file("back.toml", network("numa = 0", "numa = 1", ["far", "main"]))
        .file("beside.toml", network("cpu = 0", "numa = 0", ["main", "far"]))
        .file("apart.toml", network("cpu = 0", "cpu = 1\nnuma = 0", ["main", "far"]))
        .file("nowhere.toml", network("numa = 0", "numa = 2", ["main", "far"]))
        .boot();
    // Pages on a wanted node stay there; others would move to the processors that use them while this test looks.
    guest.run("echo 0 >/proc/sys/kernel/numa_balancing");

    // The worker that makes the packets uses buffers of its own node alone.
    let (first, second, both) = ([true, false, false], [false, true, false], [true, true, false]);
    assert_eq!(run(&mut guest, "there.toml"), [0, COUNT]);
    assert_eq!(memory(&mut guest), [first, both]);
    let shown = guest.run("bellows show run");
    assert!(shown.contains(", memory node 0, ") && shown.contains(", memory node 1, "), "{shown}");

    // A reload moves the worker, and so the memory that it will use.
    guest.run("cp /beside.toml /there.toml && bellows reload");
    assert_eq!(nodes(&mut guest), [0, 0]);
    assert_eq!(processors(&mut guest, "worker far"), "0");
    stop(&mut guest);

    assert_eq!(run(&mut guest, "back.toml"), [COUNT, 0]);
    assert_eq!(memory(&mut guest), [second, both]);
    assert_eq!(["engine", "worker far"].map(|thread| processors(&mut guest, thread)), ["0", "1"]);
    stop(&mut guest);

    assert_eq!(run(&mut guest, "beside.toml"), [0, 0]);
    assert_eq!(memory(&mut guest), [first, first]);
    stop(&mut guest);

    let (status, said) = guest.try_run("NO_COLOR=1 bellows check /apart.toml");
    assert!(status == "0" && said.contains("warning: processor 1 is on memory node 1, not on node 0"), "{said}");
    let (status, said) = guest.try_run("NO_COLOR=1 bellows check /nowhere.toml");
    let wanted = ["error: there is no memory node 2 for this process", "it may use 0, 1; nodes without processors"];
    assert!(status == "2" && wanted.iter().all(|wanted| said.contains(wanted)), "{said}");
}
