//! The memory of a router that strangers flood: what the first flood takes is all that floods take.

use std::fs;
use std::time::Duration;

use bellows_testkit::frames::{self, Frames};
use bellows_testkit::wait::within;
use bellows_wire::Sum;

use crate::bridge::is_missing;
use crate::host::{HOSTS, Hosted};
use crate::support::vhost::Network;
use crate::support::{Running, Sandbox};

/// Frames of each kind in a flood.
const COUNT: u32 = 10_000;

/// The limit of neighbours, which a flood reaches many times.
const NEIGHBOURS: u32 = 1_000;

/// The same of datagrams in fragments.
const DATAGRAMS: u32 = 1_000;

/// How much more memory may be resident after the second flood than after the first, in bytes: the kernel accounts it
/// coarsely, and the heap's pieces are not the same.
const GROWTH: u64 = 8 << 20;

const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn resident(running: &Running<'_>) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn ethernet(to: [u8; 6], from: u32, ether_type: u16, content: &[u8]) -> Vec<u8> {
    let [a, b, c, d] = from.to_be_bytes();
    [&to[..], &[2, 0x11, a, b, c, d], &ether_type.to_be_bytes(), content].concat()
}

/// A datagram or a fragment to an address.
fn ip4(from: u32, [src, dst]: [[u8; 4]; 2], [ttl, protocol]: [u8; 2], fragment: u16, content: &[u8]) -> Vec<u8> {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&(20 + content.len() as u16).to_be_bytes());
    header[4..6].copy_from_slice(&(from as u16).to_be_bytes());
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    [header[8], header[9]] = [ttl, protocol];
    header[12..16].copy_from_slice(&src);
    header[16..20].copy_from_slice(&dst);
    let sum = Sum::new().add_bytes(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    ethernet(ROUTER, from, 0x0800, &[&header[..], content].concat())
}

/// One frame of each kind: packets to neighbours that do not exist, from any source, without a route, whose time is over,
/// the first fragment of a datagram, questions for the router's addresses from stations without number, and echo requests.
fn kinds(number: u32) -> [Vec<u8>; 8] {
    let [_, a, b, c] = number.to_be_bytes();
    let (udp, own) = ([3, 232, 7, 208, 0, 12, 0, 0, 1, 2, 3, 4], [192, 0, 2, 7]);
    let mut echo = [8, 0, 0, 0, 0, 1, b, c];
    let sum = Sum::new().add_bytes(&echo).finish();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    let station = number | 1 << 24;
    let [_, x, y, z] = station.to_be_bytes();
    let mac = [&[2, 0x11][..], &station.to_be_bytes()].concat();
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &mac, &[10, x | 1, y, z], &[0; 6], &[10, 255, 255, 254]].concat();
    let (src, dst) = (
        [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 1, a, b, c, 1],
        [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    );
    let mut solicitation = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &dst, &[1, 1], &mac].concat();
    let length = solicitation.len() as u8;
    let pseudo = [&src[..], &dst, &[0, 0, 0, length, 0, 0, 0, 58], &solicitation].concat();
    let sum = Sum::new().add_bytes(&pseudo).finish();
    solicitation[2..4].copy_from_slice(&sum.to_be_bytes());
    let ip6 = [&[0x60, 0, 0, 0, 0, length, 58, 255][..], &src, &dst, &solicitation].concat();
    [
        ip4(1, [own, [10, a | 2, b, c]], [64, 17], 0, &udp),
        ip4(1, [[11, a, b, c], [198, 51, 100, 2]], [64, 17], 0, &udp),
        ip4(1, [own, [200, a, b, c]], [64, 17], 0, &udp),
        ip4(1, [own, [198, 51, 100, 2]], [1, 17], 0, &udp),
        ip4(number, [[12, a, b, c], [192, 0, 2, 1]], [64, 17], 0x2000, &[0; 1_200]),
        ethernet([0xff; 6], station, 0x0806, &arp),
        ethernet(ROUTER, station, 0x86dd, &ip6),
        ip4(1, [own, [192, 0, 2, 1]], [64, 1], 0, &echo),
    ]
}

#[test]
fn a_second_flood_takes_no_more_memory_than_the_first() {
    if is_missing("floods::a_second_flood_takes_no_more_memory_than_the_first", &[]) {
        return;
    }
    let hosted = Hosted::new();
    let mut network = "links = [\"left.output -> router.left\", \"router.left -> left.input\",\n\
                       \"right.output -> router.right\", \"router.right -> right.input\"]\n\
                       [apps.router]\napp = \"router\"\n"
        .to_owned();
    // Each table is full after the first flood.
    network += &format!("neighbours = {NEIGHBOURS}\n[apps.router.parts.ip4-reassemble]\ncapacity = {DATAGRAMS}\n");
    for (number, port, addresses) in [
        (1, "left", "\"192.0.2.1/24\", \"10.255.255.254/8\", \"2001:db8:1::1/64\""),
        (2, "right", "\"198.51.100.1/24\", \"2001:db8:2::1/64\""),
    ] {
        network += &format!(
            "[apps.router.interfaces.{port}]\nmac = \"02:00:00:00:00:0{number}\"\naddresses = [{addresses}]\n\
             [apps.{port}]\napp = \"raw-socket\"\ninterface = \"{port}\"\npromiscuous = true\n"
        );
    }
    let running = hosted.sandbox.start(&[&hosted.sandbox.write("flooded.toml", &network), "--json"]);
    let [client, _] = &hosted.hosts;
    let sender = Sandbox::new().launched_by(&["ip", "netns", "exec", client.namespace()]);
    let network = Network::default()
        .app("file", "pcap-reader", "path = \"flood.pcap\"")
        .app("lan", "raw-socket", "interface = \"lan\"")
        .link("file.output -> lan.input");
    sender.write("sender.toml", &network.text());
    let flood = |first: u32| {
        let flood: Frames = (first..first + COUNT).flat_map(kinds).collect();
        frames::write(&sender.path("flood.pcap"), &flood);
        sender.bellows(&["run", "sender.toml"]).success();
        // All is seen by now, and the router has time for others.
        within(Duration::from_secs(60), "a host is answered", || {
            client.command().args(["ping", "-c", "1", "-W", "1", HOSTS[1][0]]).output().unwrap().status.success()
        });
        resident(&running)
    };
    // Ports, code and buffers are used for the first time in the first one.
    let first = flood(0);
    for round in 1..3 {
        let memory = flood(round * COUNT);
        assert!(memory <= first + GROWTH, "{memory} bytes after {first} in flood {round}");
    }
    hosted.stop(running);
}
