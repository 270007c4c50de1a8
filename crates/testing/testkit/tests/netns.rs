//! Hosts and cables for tests, with a bridge of the kernel's between two hosts.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bellows_testkit::netns::capture::Capture;
use bellows_testkit::netns::interface::differences;
use bellows_testkit::netns::traffic::{self, Servers, StreamDirection};
use bellows_testkit::netns::{self, CableEnd, Host, Lab, connect, disconnect};
use bellows_testkit::skips::is_skipped;
use bellows_testkit::{eventually, frames, scratch};

const SECOND: Duration = Duration::from_secs(1);

/// Two hosts at a bridge, with an MTU of 9,000.
struct Bridged {
    client: Host,
    server: Host,
    ends: [CableEnd; 4],
    _lab: Lab,
}

fn bridged() -> Bridged {
    let mut lab = Lab::new();
    let [client, server] = ["client", "server"].map(|name| lab.host(name));
    let middle = lab.silent_host("middle");
    let near = CableEnd::new(&client, "lan", "00:00:5e:00:53:01").address("192.0.2.1/24").address("2001:db8::1/64");
    let far = CableEnd::new(&server, "lan", "00:00:5e:00:53:02").address("192.0.2.2/24").address("2001:db8::2/64");
    let left = CableEnd::new(&middle, "left", "00:00:5e:00:53:11").queues(1, 2);
    let right = CableEnd::new(&middle, "right", "00:00:5e:00:53:12");
    connect([&near, &left], 9_000);
    connect([&far, &right], 9_000);
    middle.run("ip link add bridge type bridge mcast_snooping 0 stp_state 0 forward_delay 0");
    for port in ["left", "right", "bridge"] {
        let master = if port == "bridge" { "" } else { " master bridge" };
        middle.run(&format!("ip link set {port}{master} up"));
    }
    Bridged { client, server, ends: [near, left, right, far], _lab: lab }
}

#[test]
fn traffic_passes_a_bridge_of_the_kernels() {
    let programs = [traffic::PROGRAMS, &["tcpdump"]].concat();
    if is_skipped("traffic_passes_a_bridge_of_the_kernels", netns::missing(&programs)) {
        return;
    }
    let Bridged { client, server, ends, _lab } = bridged();
    let folder = scratch();
    let site = folder.path();
    fs::write(site.join("file"), vec![7; 1 << 20]).unwrap();
    let _servers = Servers::start(&server, site);
    client.disable_offloads("lan");
    let before = ends[0].interface().counters();
    let captured = [&ends[0], &ends[3]].map(|end| {
        let path = site.join(format!("{}.pcap", end.host.namespace()));
        let capture = Capture::start(end.host.namespace(), &end.name, "icmp", &path).unwrap();
        (capture, path)
    });
    for address in ["192.0.2.2", "2001:db8::2"] {
        traffic::wait_for_answer(&client, address);
        traffic::ping(&client, address, 9_000);
        traffic::fetch(&client, address, site, "file");
    }
    assert!(!traffic::is_answered_at(&client, "192.0.2.2", 9_001));
    let [near, far] = captured.map(|(mut capture, path)| {
        capture.stop().unwrap();
        frames::read(&path)
    });
    assert!(near.len() >= 32, "{}", near.len());
    frames::assert_same("the other side", &far, &near);
    let rate = traffic::tcp(&client, "192.0.2.2", SECOND, StreamDirection::There);
    let back = traffic::tcp(&client, "2001:db8::2", SECOND, StreamDirection::Back);
    let udp = traffic::udp(&client, "192.0.2.2", SECOND, 10, 1_400);
    println!("TCP {rate:.3e} and {back:.3e} bits/s, UDP {udp:?}");
    assert!(udp.sent > 100 && udp.lost < udp.sent, "{udp:?}");
    assert_eq!([&client, &server].map(traffic::checksum_errors), [0, 0]);
    let counted = ends[0].interface().counters().since(&before);
    assert!(counted.tx_packets > 1_000 && counted.rx_bytes > 2 << 20, "{counted:?}");
}

#[test]
fn changes_of_an_interface_are_seen() {
    if is_skipped("changes_of_an_interface_are_seen", netns::missing(&[])) {
        return;
    }
    let Bridged { client, ends, _lab, .. } = bridged();
    let [near, left, ..] = &ends;
    let before = left.interface().settings();
    assert!(before.contains_key("link.mtu") && before.keys().any(|name| name.starts_with("features.")), "{before:#?}");
    left.host.run("ethtool -K left sg off");
    left.host.run("ethtool -L left rx 2");
    left.host.run("ip link set left promisc on mtu 1400");
    let changed = differences(&before, &left.interface().settings());
    for name in [
        "features.Features for left.scatter-gather: on, now off",
        "channels.Current hardware settings.RX: 1, now 2",
        "link.mtu: 9000, now 1400",
        "PROMISC",
    ] {
        assert!(changed.contains(name), "{name} is not in\n{changed}");
    }
    assert_eq!(left.interface().promiscuity(), 2, "the bridge's and this");
    left.host.run("ethtool -K left sg on");
    left.host.run("ethtool -L left rx 1");
    left.host.run("ip link set left promisc off mtu 9000");
    assert_eq!(differences(&before, &left.interface().settings()), "");
    assert_eq!(left.interface().xdp_programs(), [0u64; 0]);
    disconnect(left);
    assert!(!near.interface().exists() && !left.interface().exists());
    connect([near, left], 9_000);
    left.host.run("ip link set left master bridge");
    traffic::wait_for_answer(&client, "2001:db8::2");
}

#[test]
fn a_test_that_fails_leaves_no_host_behind() {
    if is_skipped("a_test_that_fails_leaves_no_host_behind", netns::missing(&[])) {
        return;
    }
    let mut paths = Vec::new();
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let mut lab = Lab::new();
        let host = lab.host("short");
        let sleep = host.start("sleep 1000");
        paths.extend([host.path(), format!("/proc/{}", sleep.pid()).into()]);
        host.run("false");
    }));
    let said = failed.unwrap_err().downcast::<String>().unwrap();
    assert!(said.contains("\"false\": exit status: 1"), "{said}");
    eventually("nothing left", || paths.iter().all(|path| !path.exists()));
    // A name that a test has left when it was killed.
    let mut orphan = std::process::Command::new("true").spawn().unwrap();
    orphan.wait().unwrap();
    let name = format!("bellows-test-{}-0-left", orphan.id());
    assert!(std::process::Command::new("ip").args(["netns", "add", &name]).status().unwrap().success());
    drop(Lab::new());
    assert!(!std::path::Path::new("/run/netns").join(name).exists());
}
