//! Packets over shared memory (memif): between two networks, and with DPDK in both roles. Frames come back byte by byte,
//! everything is counted, and either side may die and return.

use std::path::Path;

use crate::support::vhost::{Network, carried, socket};
use crate::support::{Running, Sandbox, Signal};
use bellows_testkit::frames::{self, assert_same};
use bellows_testkit::skips::{is_left_out, is_skipped};
use bellows_testkit::testpmd::Launch;
use bellows_testkit::{eventually, programs};

/// The keys of a port.
fn keys(socket: &str, role: &str, more: &str) -> String {
    format!("socket = \"{socket}\"\nrole = \"{role}\"\n{more}")
}

/// A network that sends back what comes.
fn mirror(sandbox: &Sandbox, file: &str, keys: &str) -> String {
    let network = Network::default().app("port", "memif", keys).app("back", "counter", "");
    sandbox.write(file, &network.link("port.output -> back.input").link("back.output -> port.input").text())
}

/// A network that replays a capture, and records what comes back.
fn replay(sandbox: &Sandbox, keys: &str) -> String {
    let file = |name: &str| format!("path = \"{}\"", sandbox.path(name).display());
    let network = Network::default().app("reader", "pcap-reader", &file("sent.pcap")).app("port", "memif", keys).app(
        "writer",
        "pcap-writer",
        &file("returned.pcap"),
    );
    sandbox
        .write("replay.toml", &network.link("reader.output -> port.input").link("port.output -> writer.input").text())
}

fn is_up(sandbox: &Sandbox, running: &Running<'_>) -> bool {
    let shown = sandbox.bellows(&["show", "interfaces", &running.name, "--json"]).success().json();
    shown["interfaces"].as_array().unwrap().iter().all(|port| port["state"] == "up" && port["kind"] == "memif")
}

/// Frames of many lengths there and back, whichever side is the client, with rings and buffers of several sizes.
#[test]
fn two_networks_exchange_frames_byte_by_byte() {
    for (number, (server, client, more, abstract_name)) in [
        ("", "", "", false),
        ("interrupts = false\n", "interrupts = false\n", "queues = 3\n", true),
        ("", "ring_size = 64\nbuffer_size = 256\n", "id = 7\nsecret_file = \"secret\"\n", false),
    ]
    .into_iter()
    .enumerate()
    {
        let sandbox = Sandbox::new();
        sandbox.write_secret("secret", "mellon\n");
        let path = socket(&sandbox, "memif").display().to_string();
        let name = if abstract_name { format!("@bellows-test-{}", std::process::id()) } else { path };
        let sent = frames::random(3_000, |number| 60 + number * 7_919 % 9_000, number as u64);
        frames::write(&sandbox.path("sent.pcap"), &sent);
        let far = mirror(&sandbox, "mirror.toml", &keys(&name, "server", &format!("{server}{more}")));
        let near = replay(&sandbox, &keys(&name, "client", &format!("{client}{more}")));
        let far = sandbox.start(&[&far, "--json"]);
        // As many as fit wait in the rings, the others in the link: nothing is dropped.
        let near = sandbox.start(&[&near, "--json"]);
        eventually("all frames are back", || carried(&near, "writer.input") == sent.len() as u64);
        assert!(is_up(&sandbox, &near) && is_up(&sandbox, &far));
        for running in [near, far] {
            running.signal(Signal::INT);
            running.wait().success();
        }
        let mut got = frames::read(&sandbox.path("returned.pcap"));
        let mut sent = sent;
        if more.contains("queues") {
            // Flows are distributed over rings, whose order among each other is not kept.
            got.sort();
            sent.sort();
        }
        assert_same(more, &got, &sent);
        assert!(!socket(&sandbox, "memif").exists(), "the server's socket is removed");
    }
}

/// Either side is killed and returns, while packets flow.
#[test]
fn either_side_dies_and_returns() {
    let sandbox = Sandbox::new();
    let path = socket(&sandbox, "memif").display().to_string();
    for (near_role, far_role) in [("client", "server"), ("server", "client")] {
        let far = mirror(&sandbox, "mirror.toml", &keys(&path, far_role, ""));
        let source = "rate = \"20kpps\"\nsize = 200\n";
        let network = Network::default()
            .app("source", "source", source)
            .app("port", "memif", &keys(&path, near_role, ""))
            .app("sink", "sink", "");
        let network = network.link("source.output -> port.input").link("port.output -> sink.input");
        let near = sandbox.write("near.toml", &network.text());
        let mut first = sandbox.start(&[&near, "--json"]);
        let mut second = sandbox.start(&[&far, "--json"]);
        let flows = |running: &Running<'_>| {
            let before = carried(running, "sink.input");
            eventually("packets that come back", || carried(running, "sink.input") > before + 1_000);
        };
        flows(&first);
        second.signal(Signal::KILL);
        assert_eq!(second.wait().code, None);
        eventually("the end of the connection", || !is_up(&sandbox, &first));
        second = sandbox.start(&[&far, "--json"]);
        flows(&first);
        first.signal(Signal::KILL);
        assert_eq!(first.wait().code, None);
        eventually("the end of the connection", || !is_up(&sandbox, &second));
        first = sandbox.start(&[&near, "--json"]);
        flows(&first);
        for running in [first, second] {
            running.signal(Signal::INT);
            running.wait().success();
        }
    }
}

fn launch(socket: &Path, role: &str, files: &str) -> Launch {
    let processors = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = processors.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let memif = format!("net_memif0,role={role},id=5,socket={},socket-abstract=no,secret=mellon", socket.display());
    Launch {
        cpus: list.trim().to_owned(),
        hugepages: false,
        megabytes: 256,
        devices: vec![memif, format!("net_pcap0,{files}")],
        environment: Vec::new(),
        // The frames to replay must wait for the start.
        options: ["--total-num-mbufs=32768", "--no-flush-rx"].map(String::from).into(),
    }
}

/// Frames of DPDK within one of its buffers, because 22.11 leaves flags of longer ones behind.
#[test]
fn dpdk_exchanges_frames_in_both_roles() {
    let test = "dpdk_exchanges_frames_in_both_roles";
    if is_left_out(test) || is_skipped(test, programs::missing(&["dpdk-testpmd", "stdbuf"])) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write_secret("secret", "mellon");
    let path = socket(&sandbox, "memif");
    for (ours, theirs) in [("server", "client"), ("client", "server")] {
        let sent = frames::random(5_000, |number| 60 + number * 7_919 % 1_455, 3);
        frames::write(&sandbox.path("sent.pcap"), &sent);
        let keys = keys(&path.display().to_string(), ours, "id = 5\nsecret_file = \"secret\"\n");
        let running = sandbox.start(&[&mirror(&sandbox, "mirror.toml", &keys), "--json"]);
        let [from, to] = ["sent.pcap", "returned.pcap"].map(|name| sandbox.path(name).display().to_string());
        for attempt in 0..2 {
            let mut testpmd = launch(&path, theirs, &format!("rx_pcap={from},tx_pcap={to}")).start().unwrap();
            eventually("a connection", || is_up(&sandbox, &running));
            testpmd.commands(&["set fwd io retry", "set burst tx delay 100 retry 10000", "start"]).unwrap();
            eventually("all frames are back", || testpmd.forwarded().unwrap().port(1).1 == sent.len() as u64);
            if attempt == 0 {
                // The next one finds us again.
                testpmd.kill();
                eventually("the end of the connection", || !is_up(&sandbox, &running));
                // DPDK does not replace an abandoned socket.
                let _ = (theirs == "server").then(|| std::fs::remove_file(&path));
                continue;
            }
            testpmd.command("stop").unwrap();
            testpmd.quit().unwrap();
            assert_same(theirs, &frames::read(&sandbox.path("returned.pcap")), &sent);
        }
        assert_eq!(carried(&running, "back.input"), 2 * sent.len() as u64);
        running.signal(Signal::INT);
        running.wait().success();
    }
}
