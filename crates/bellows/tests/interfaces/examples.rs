//! The examples with interfaces: the commands at their tops run in a network namespace that has interfaces with the
//! names of the examples.

use std::fs;
use std::time::Duration;

use bellows_testkit::netns::interface::Interface;
use bellows_testkit::netns::traffic::{self, Direction, Servers};
use bellows_testkit::netns::{End, Host, Lab, connect};
use bellows_testkit::{eventually, frames};

use crate::bridge::{app, is_missing};
use crate::support::examples::{CommandLine, checkout, command_lines};
use crate::support::{Running, Sandbox, Signal};

/// The addresses of the hosts behind the interfaces.
const FIRST: &str = "192.0.2.1";
const SECOND: &str = "192.0.2.2";

/// Hosts of a test, with cables from `eth0` and `eth1` of the one in the middle to the two others.
struct Hosts {
    middle: Host,
    others: [Host; 2],
    lab: Lab,
}

impl Hosts {
    fn new() -> Hosts {
        let mut lab = Lab::new();
        let middle = lab.silent_host("middle");
        let others = [("eth0", FIRST), ("eth1", SECOND)].map(|(name, address)| {
            let (host, number) = (lab.host(name), &name[3..]);
            let near = End::new(&host, "lan", &format!("00:00:5e:00:53:0{number}")).address(&format!("{address}/24"));
            let far = End::new(&middle, name, &format!("00:00:5e:00:53:1{number}"));
            connect([&near, &far], 1_500);
            // As behind a real cable.
            host.disable_offloads("lan");
            host
        });
        Hosts { middle, others, lab }
    }

    /// A checkout in which a command line runs on the host in the middle.
    fn checkout(&self, line: &CommandLine, variables: &[String]) -> Sandbox {
        let launcher = ["ip", "netns", "exec", self.middle.namespace(), "env"].into_iter();
        let variables = line.variables.iter().chain(variables).map(String::as_str);
        let words: Vec<&str> = launcher.chain(variables).collect();
        checkout(Sandbox::new().launched_by(&words))
    }
}

fn start<'a>(sandbox: &'a Sandbox, line: &CommandLine) -> Running<'a> {
    let words = line.words();
    assert_eq!(words[0], "run", "{line:?}");
    sandbox.start(&[&words[1..], &["--json"]].concat())
}

fn stop(running: Running<'_>) {
    running.signal(Signal::INT);
    running.wait().fine();
}

#[test]
fn an_interface_is_mirrored_into_rotating_captures() {
    /// Queries, their payload, and the length of their frames: more than 1 MB together.
    const QUERIES: usize = 800;
    const PAYLOAD: usize = 1_400;
    const LENGTH: usize = 14 + 20 + 8 + PAYLOAD;
    /// The type of an ICMP message in a frame, and that of a query.
    const TYPE: usize = 14 + 20;
    const ECHO: u8 = 8;
    const HOST: &str = "192.0.2.9";

    if is_missing("an_interface_is_mirrored_into_rotating_captures", &[]) {
        return;
    }
    let lines = command_lines("mirror.toml");
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in &lines {
        let hosts = Hosts::new();
        let number = usize::from(line.variables == ["INTERFACE=eth1"]);
        hosts.middle.run(&format!("ip address add {HOST}/24 dev eth{number}"));
        let sandbox = hosts.checkout(line, &[]);
        let running = start(&sandbox, line);
        // The host answers as before.
        let queries = format!("ping -n -q -f -c {QUERIES} -W 10 -s {PAYLOAD} {HOST}");
        let said = hosts.others[number].run(&queries);
        assert!(said.contains(" 0% packet loss"), "{said}");
        let written = || app(&running.counters(), "capture")["in_packets"].as_u64().unwrap();
        eventually("all frames in the captures", || written() >= QUERIES as u64);
        stop(running);

        let files = fs::read_dir(sandbox.path("examples")).unwrap().map(|entry| entry.unwrap().path());
        let is_capture = |name: &str| name.starts_with("mirror-out") && name.ends_with(".pcap");
        let captures = files.filter(|file| is_capture(&file.file_name().unwrap().to_string_lossy()));
        let captures: Vec<_> = captures.map(|file| frames::read(&file)).collect();
        assert_eq!(captures.len(), if line.has("apps.capture.rotate=1MB") { 2 } else { 1 }, "{line:?}");
        let recorded = captures.iter().flatten().filter(|frame| frame.len() == LENGTH);
        assert!(recorded.clone().all(|frame| frame[TYPE] == ECHO), "an answer of the host's own");
        assert_eq!(recorded.count(), QUERIES, "{line:?}");
    }
}

#[test]
fn a_bridge_limits_both_directions() {
    /// The limit by default and that of a command, in bits per second, and the share that a burst may add.
    const LIMIT: f64 = 100e6;
    const LOWER_LIMIT: f64 = 20e6;
    const TOLERANCE: f64 = 1.25;
    const TIME: Duration = Duration::from_secs(2);

    if is_missing("a_bridge_limits_both_directions", &[]) {
        return;
    }
    let lines = command_lines("bridge.toml");
    assert_eq!(lines.len(), 4, "{lines:?}");
    for line in &lines {
        let hosts = Hosts::new();
        let sandbox = hosts.checkout(line, &[]);
        let running = start(&sandbox, line);
        let [first, second] = &hosts.others;
        traffic::wait_for_answer(first, SECOND);
        traffic::ping(first, SECOND, 1_500);
        let _servers = Servers::start(second, &sandbox.path(""));
        let limit = if line.has("apps.there.rate=20Mb/s") { LOWER_LIMIT } else { LIMIT };
        for (direction, limit) in [(Direction::There, limit), (Direction::Back, LIMIT)] {
            let rate = traffic::tcp(first, SECOND, TIME, direction);
            eprintln!("{line:?}: {:.1} Mbit/s {direction:?}", rate / 1e6);
            assert!(rate < TOLERANCE * limit, "{line:?}: {rate} bit/s {direction:?}");
        }
        stop(running);
    }
}

#[test]
fn two_threads_connect_two_interfaces() {
    if is_missing("two_threads_connect_two_interfaces", &[]) {
        return;
    }
    let lines = command_lines("shared-port.toml");
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in &lines {
        let hosts = Hosts::new();
        let sandbox = hosts.checkout(line, &[]);
        let running = start(&sandbox, line);
        let [first, second] = &hosts.others;
        traffic::wait_for_answer(first, SECOND);
        let _servers = Servers::start(second, &sandbox.path(""));
        // Each stream is another flow.
        let carried = |name: &str| app(&running.counters(), name)["out_packets"].as_u64().unwrap();
        eventually("traffic of both apps", || {
            traffic::tcp(first, SECOND, Duration::from_secs(1), Direction::There);
            ["left-0", "left-1"].iter().all(|name| carried(name) > 20)
        });
        stop(running);
    }
}

#[test]
fn a_container_gets_an_interface() {
    if is_missing("a_container_gets_an_interface", &[]) {
        return;
    }
    let lines = command_lines("container.toml");
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in &lines {
        let mut hosts = Hosts::new();
        let container = hosts.lab.host("container");
        let sandbox = hosts.checkout(line, &[format!("CONTAINER={}", container.namespace())]);
        let running = start(&sandbox, line);
        if line.has("apps.wire.app=tap") {
            hosts.middle.run(&format!("ip address add {FIRST}/24 dev box0"));
        }
        traffic::wait_for_answer(&container, FIRST);
        traffic::ping(&container, FIRST, 1_500);
        stop(running);
        let interface = Interface::new(&container, "eth0");
        eventually("the end of the container's interface", || !interface.exists());
    }
}
