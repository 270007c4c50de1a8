//! The examples with interfaces: the commands at their tops run in a network namespace that has interfaces with the
//! names of the examples.

use std::fs;
use std::time::Duration;

use bellows_testkit::guest::{self, Setup};
use bellows_testkit::netns::interface::HostInterface;
use bellows_testkit::netns::traffic::{self, Servers, StreamDirection};
use bellows_testkit::netns::{CableEnd, Host, Lab, connect};
use bellows_testkit::skips::{is_left_out, is_skipped};
use bellows_testkit::{eventually, frames, programs, scratch};

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
            let near =
                CableEnd::new(&host, "lan", &format!("00:00:5e:00:53:0{number}")).address(&format!("{address}/24"));
            let far = CableEnd::new(&middle, name, &format!("00:00:5e:00:53:1{number}"));
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
    running.wait().success();
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
        for (direction, limit) in [(StreamDirection::There, limit), (StreamDirection::Back, LIMIT)] {
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
            traffic::tcp(first, SECOND, Duration::from_secs(1), StreamDirection::There);
            ["left-0", "left-1"].iter().all(|name| carried(name) > 20)
        });
        stop(running);
    }
}

/// Three hosts for `router-host.toml`: the router's, whose kernel has its default settings and interfaces with names of
/// the example, and the neighbours at two of these.
struct Neighbours {
    router: Host,
    others: [Host; 2],
    ports: [String; 2],
    sandbox: Sandbox,
    _lab: Lab,
}

impl Neighbours {
    fn new(line: &CommandLine) -> Neighbours {
        let mut lab = Lab::new();
        let router = lab.host("router");
        let variable = |name: &str| line.variables.iter().find_map(|word| word.strip_prefix(name)).map(str::to_owned);
        let ports = [("LEFT=", "eth0"), ("RIGHT=", "eth1")]
            .map(|(name, usual)| variable(name).unwrap_or_else(|| usual.to_owned()));
        let links = [("192.0.2", "2001:db8:1:"), ("198.51.100", "2001:db8:2:")];
        let others = [0, 1].map(|index| {
            let (host, (v4, v6)) = (lab.host(["left", "right"][index]), links[index]);
            let near = CableEnd::new(&host, "lan", &format!("00:00:5e:00:53:0{index}"));
            let near = near.address(&format!("{v4}.2/24")).address(&format!("{v6}:2/64"));
            let far = CableEnd::new(&router, &ports[index], &format!("00:00:5e:00:53:1{index}"));
            connect([&near, &far], 1_500);
            host.sh(&format!("ip route add default via {v4}.1; ip -6 route add default via {v6}:1"));
            host
        });
        let words = ["ip", "netns", "exec", router.namespace(), "env"].map(str::to_owned);
        let words: Vec<String> = words.into_iter().chain(line.variables.iter().cloned()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let sandbox = checkout(Sandbox::new().launched_by(&words));
        Neighbours { router, others, ports, sandbox, _lab: lab }
    }

    fn arp_ignore(&self) -> Vec<String> {
        self.ports.iter().map(|port| self.arp_ignore_of(port)).collect()
    }

    fn arp_ignore_of(&self, device: &str) -> String {
        self.router.run(&format!("sysctl -n net.ipv4.conf.{device}.arp_ignore")).trim().to_owned()
    }
}

/// The host's devices have the router's addresses in the namespace of the ports.
#[test]
fn a_router_with_its_host_in_the_same_namespace_forwards() {
    if is_missing("examples::a_router_with_its_host_in_the_same_namespace_forwards", &["sysctl"]) {
        return;
    }
    let lines = command_lines("router-host.toml");
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in &lines {
        let hosts = Neighbours::new(line);
        let [left, right] = &hosts.others;
        right.run("ip address add 203.0.113.5/32 dev lo");
        let running = start(&hosts.sandbox, line);
        hosts.router.wait_for_addresses();
        assert_eq!(hosts.arp_ignore(), ["1", "1"]);
        for address in ["192.0.2.1", "2001:db8:1::1", "198.51.100.2", "2001:db8:2::2"] {
            if address.contains(':') {
                // The router looks for duplicates of its IPv6 addresses first.
                traffic::wait_for_answer(left, address);
            }
            let said = left.run(&format!("ping -n -q -c 10 -i 0.05 -W 5 {address}"));
            assert!(said.contains("10 received"), "{address}: {said}");
        }
        let known = left.run("ip neighbour show 192.0.2.1");
        assert!(known.contains("02:00:00:00:00:01"), "the router answers, and not the kernel: {known}");
        // Routes of the kernel are those of the router.
        hosts.router.run("ip route add 203.0.113.0/24 via 198.51.100.2");
        traffic::wait_for_answer(left, "203.0.113.5");
        // The host reaches its neighbours.
        for address in ["192.0.2.2", "2001:db8:2::2"] {
            traffic::ping(&hosts.router, address, 1_500);
        }
        let listed = hosts.sandbox.bellows(&["show", "interfaces"]).success().stdout;
        assert!(!listed.contains("the kernel answers"), "{listed}");
        stop(running);
        assert_eq!(hosts.arp_ignore(), ["0", "0"], "the settings are given back");
    }
}

/// A MACVLAN of a port's interface, as a VLAN, and a bridge that has it hear the port's frames, too.
#[test]
fn devices_above_a_port_do_not_answer_for_the_router() {
    if is_missing("examples::devices_above_a_port_do_not_answer_for_the_router", &["sysctl"]) {
        return;
    }
    let line = &command_lines("router-host.toml")[0];
    let hosts = Neighbours::new(line);
    let devices = ["upper0", "br0"];
    hosts.router.sh("ip link add link eth0 name upper0 up type macvlan; ip link add br0 up type bridge");
    hosts.router.run("ip link set eth1 master br0");
    let set = || devices.map(|device| hosts.arp_ignore_of(device));
    let running = start(&hosts.sandbox, line);
    hosts.router.wait_for_addresses();
    eventually("silent devices", || set() == ["1", "1"]);
    for (left, address) in [(0, "192.0.2.1"), (1, "198.51.100.1")] {
        let neighbour = &hosts.others[left];
        assert!(neighbour.run(&format!("ping -n -q -c 5 -i 0.05 -W 5 {address}")).contains("5 received"));
        let known = neighbour.run(&format!("ip neighbour show {address}"));
        assert!(known.contains(&format!("02:00:00:00:00:0{}", left + 1)), "the router answers: {known}");
    }
    // What hears the port no longer gets its setting back, what begins to hear it is silenced.
    hosts.router.sh("ip link set eth1 nomaster; ip link add link eth1 name upper1 up type macvlan");
    eventually("other devices", || set() == ["1", "0"] && hosts.arp_ignore_of("upper1") == "1");
    hosts.router.run("ip address add 198.51.100.1/24 dev upper1");
    eventually("a word about an address of such a device", || {
        let listed = hosts.sandbox.bellows(&["show", "interfaces"]).success().stdout;
        listed.contains("the kernel answers ARP for 198.51.100.1")
    });
    stop(running);
    assert_eq!(set(), ["0", "0"]);
    assert_eq!(hosts.arp_ignore_of("upper1"), "0");
}

/// What cannot be mended is reported: the address is left on the port's own interface.
#[test]
fn a_kernel_that_answers_for_the_router_is_told() {
    if is_missing("examples::a_kernel_that_answers_for_the_router_is_told", &["sysctl"]) {
        return;
    }
    const ANSWERS: &str = "the kernel answers ARP on eth0 for 192.0.2.1";
    let line = &command_lines("router-host.toml")[0];
    let hosts = Neighbours::new(line);
    let check = || hosts.sandbox.bellows(&["check", "examples/router-host.toml"]).success().stderr;
    assert!(!check().contains("the kernel answers"), "{}", check());
    hosts.router.run("ip address add 192.0.2.1/24 dev eth0");
    let told = check();
    assert!(told.contains(ANSWERS) && told.contains("ip address delete"), "{told}");
    hosts.router.run("ip address delete 192.0.2.1/24 dev eth0");
    let running = start(&hosts.sandbox, line);
    // Somebody gives the address to the port while the network runs.
    hosts.router.run("ip address add 192.0.2.1/24 dev eth0");
    let answers = || -> Vec<String> {
        let listed = hosts.sandbox.bellows(&["show", "interfaces"]).success().stdout;
        listed.lines().filter(|line| line.contains("the kernel answers ARP for")).map(str::to_owned).collect()
    };
    eventually("a port whose kernel answers", || !answers().is_empty());
    assert!(answers()[0].contains("left") && answers()[0].ends_with("192.0.2.1"), "{:?}", answers());
    hosts.router.run("ip address delete 192.0.2.1/24 dev eth0");
    eventually("a port whose kernel is silent", || answers().is_empty());
    stop(running);
}

/// The trunk is a card of a guest with VLAN devices; behind the first VLAN is the guest's other card, in a namespace of its
/// own, and behind the second one a host of this machine.
#[test]
fn the_vlans_of_a_trunk_have_interfaces_of_their_own() {
    let test = "examples::the_vlans_of_a_trunk_have_interfaces_of_their_own";
    if is_left_out(test) || is_skipped(test, guest::missing()) || is_missing(test, &[]) {
        return;
    }
    let lines = command_lines("vlan.toml");
    assert_eq!(lines.len(), 3, "{lines:?}");
    let mut lab = Lab::new();
    let (middle, host) = (lab.silent_host("middle"), lab.host("seven"));
    let near = CableEnd::new(&host, "lan", "00:00:5e:00:53:01").address("10.0.7.2/24");
    // The host of one VLAN has an address of the other one's network: nobody may find it there.
    let near = near.address("10.0.5.3/24");
    connect([&near, &CableEnd::new(&middle, "third", "00:00:5e:00:53:11")], 1_500);
    host.disable_offloads("lan");
    let interfaces = ["first", "second", "third"];
    let backend = |tap: &str| {
        let options = "script=no,downscript=no,vhost=off,vnet_hdr=off";
        vec![
            "-netdev".to_owned(),
            format!("tap,id={},ifname={tap},{options}", if tap == "first" { "net0" } else { "net1" }),
        ]
    };
    let folder = scratch();
    let setup = Setup::new(folder.path(), [backend("first"), backend("second")], ["", ""]).on(&middle);
    let mut guest = setup.program(&programs::find_program("ip").unwrap()).boot();
    guest.load_vlans();
    guest.run("near=$(near_card) far=$(far_card)");
    guest.run("ip link set $far netns $FAR && far ip link set $far up && far ip addr add 10.0.5.2/24 dev $far");
    guest.run("ip link set $near mtu 1504 up");
    for line in &lines {
        let names = [("TRUNK=", "eth0"), ("FIVE=", "eth1"), ("SEVEN=", "eth2")].map(|(name, usual)| {
            let given = line.variables.iter().find_map(|word| word.strip_prefix(name));
            given.unwrap_or(usual)
        });
        let rename =
            |from: &str, to: &str| middle.sh(&format!("ip link set {from} down\nip link set {from} name {to} up"));
        interfaces.iter().zip(names).for_each(|(interface, name)| drop(rename(interface, name)));
        middle.run(&format!("ip link set {} mtu 1504", names[0]));
        let words = ["ip", "netns", "exec", middle.namespace(), "env"].into_iter();
        let words: Vec<&str> = words.chain(line.variables.iter().map(String::as_str)).collect();
        let sandbox = checkout(Sandbox::new().launched_by(&words));
        let running = start(&sandbox, line);
        let protocol = if line.has("apps.mux.tpid=802.1ad") { "802.1ad" } else { "802.1q" };
        for vlan in [5, 7] {
            guest.run(&format!("ip link add link $near name vlan{vlan} type vlan proto {protocol} id {vlan}"));
            guest.run(&format!("ip link set vlan{vlan} mtu 1500 up && ip addr add 10.0.{vlan}.1/24 dev vlan{vlan}"));
            guest.eventually(&format!("ping -c 1 -W 1 10.0.{vlan}.2"));
            guest.run(&format!("ping -c 3 -W 30 -s 1472 10.0.{vlan}.2"));
        }
        guest.run("exchange 1 10.0.5.1 10.0.5.2");
        traffic::ping(&host, "10.0.7.1", 1_500);
        guest.run("! ping -c 2 -W 1 10.0.5.3");
        stop(running);
        guest.run("for vlan in 5 7; do ip link del vlan$vlan; done");
        interfaces.iter().zip(names).for_each(|(interface, name)| drop(rename(name, interface)));
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
        let interface = HostInterface::new(&container, "eth0");
        eventually("the end of the container's interface", || !interface.exists());
    }
}
