//! An access list beside nftables: random packets with tags, options, extension headers and fragments go through both,
//! with the same rules. The kernel decides where frames come in, at its default settings.

use std::collections::BTreeSet;

use bellows_testkit::eventually;
use bellows_testkit::frames::{self, Frames};
use bellows_testkit::netns::Lab;
use bellows_testkit::netns::capture::Capture;
use bellows_testkit::netns::interface::HostInterface;

use crate::bridge::is_missing;
use crate::support::Sandbox;
use crate::support::vhost::Network;

/// Packets, fewer than any queue on the way has room for.
const COUNT: usize = 1_000;

/// Rules, and what they are to nftables.
const RULES: [(&str, &str); 9] = [
    ("deny tcp dst port 22", "tcp dport 22 drop"),
    ("deny udp dst portrange 50-60", "udp dport 50-60 drop"),
    ("deny proto 47", "meta l4proto 47 drop"),
    ("deny ip6 proto 43", "exthdr rt exists drop"),
    ("deny tcp[tcpflags] & tcp-syn != 0 and tcp dst port 80", "tcp flags & syn != 0 tcp dport 80 drop"),
    ("deny ip src host 10.0.0.3 and udp", "ip saddr 10.0.0.3 meta l4proto udp drop"),
    ("deny icmp6[0] = 128", "icmpv6 type 128 drop"),
    ("permit src port 7", "th sport 7 fwd to \"out\""),
    ("permit", "fwd to \"out\""),
];

/// A packet, and whether nftables may pass it although it is to be refused: it does not look behind two tags and
/// authentication headers, and passes fragments without the ports or flags that a rule asks for.
struct Made {
    frame: Vec<u8>,
    is_hidden: bool,
}

fn make(random: &mut fastrand::Rng, number: usize) -> Made {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0];
    frame.extend((number as u16).to_be_bytes());
    let tags = [0, 0, 0, 1, 1, 2][random.usize(..6)];
    frame.extend([0x81, 0, 0x20, 7, 0x81, 0, 0, 8].iter().take(4 * tags));
    let protocol = [6, 6, 6, 17, 17, 47, 58, 132][random.usize(..8)];
    let upper = upper(random, protocol);
    // How much is in the fragment at hand, and from where.
    let (is_later, more) = match random.u8(..6) {
        0 => (false, true),
        1 => (true, random.bool()),
        _ => (false, false),
    };
    let upper = match (is_later, more) {
        (true, _) => &upper[8..],
        // Of which some are too short for what a rule asks for.
        (false, true) => &upper[..[8, 16, 24][random.usize(..3)].min(upper.len())],
        (false, false) => &upper[..],
    };
    let mut is_authenticated = false;
    if random.bool() {
        let options = [0, 0, 4, 40][random.usize(..4)];
        let fragment = u16::from(more) << 13 | u16::from(is_later);
        frame.extend([8, 0, 0x45 + options as u8 / 4, 0]);
        frame.extend(((20 + options + upper.len()) as u16).to_be_bytes());
        frame.extend([0, 1]);
        frame.extend(fragment.to_be_bytes());
        // ICMPv6 has no meaning here.
        let protocol = if protocol == 58 { 1 } else { protocol };
        frame.extend([64, protocol, 0, 0, 10, 0, 0, random.u8(1..5), 10, 0, 0, 9]);
        frame.extend(vec![1; options]);
    } else {
        let mut chain: Vec<(u8, Vec<u8>)> = Vec::new();
        for _ in 0..random.usize(..4) {
            let words = random.u8(..3);
            let rest = vec![1, 4].into_iter().chain(vec![0; 4 + 8 * usize::from(words)]);
            chain.push(match random.u8(..6) {
                0 => (0, [words].into_iter().chain(rest).collect()),
                1 | 2 => (60, [words].into_iter().chain(rest).collect()),
                3 => (43, [2, 4, 0].into_iter().chain(vec![0xee; 20]).collect()),
                4 => (51, [4].into_iter().chain(vec![0xaa; 22]).collect()),
                _ => (44, vec![0, 0, 0, 1, 2, 3, 4]),
            });
        }
        if is_later || more {
            // A fragment header, behind which is all that the first fragment has.
            let fragment = (44, vec![0, 0, (u8::from(is_later) * 8) | u8::from(more), 1, 2, 3, 4]);
            chain = if is_later { vec![fragment] } else { [vec![fragment], chain].concat() };
        }
        is_authenticated = chain.iter().any(|(number, _)| *number == 51);
        let numbers: Vec<u8> = chain.iter().map(|(number, _)| *number).chain([protocol]).collect();
        let length = chain.iter().map(|(_, rest)| 1 + rest.len()).sum::<usize>() + upper.len();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((length as u16).to_be_bytes());
        frame.extend([numbers[0], 64]);
        for host in [random.u8(1..5), 9] {
            frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        for ((_, rest), next) in chain.iter().zip(&numbers[1..]) {
            frame.push(*next);
            frame.extend(rest);
        }
    }
    frame.extend(upper);
    Made { frame, is_hidden: tags == 2 || is_later || more || is_authenticated }
}

fn upper(random: &mut fastrand::Rng, protocol: u8) -> Vec<u8> {
    let source = [7u16, 5000][random.usize(..2)].to_be_bytes();
    let destination = [22u16, 23, 55, 80][random.usize(..4)].to_be_bytes();
    let ports = [source, destination].concat();
    let flags = random.u8(..32);
    let header = match protocol {
        6 => [&ports[..], &[0; 8], &[0x50, flags, 0, 0, 0, 0, 0, 0]].concat(),
        58 => vec![128 + random.u8(..3), 0, 0, 0, 0, 0, 0, 0],
        _ => [&ports[..], &[0, 40, 0, 0]].concat(),
    };
    [&header[..], &[9; 24]].concat()
}

/// The numbers of packets.
fn numbers(frames: &Frames) -> BTreeSet<usize> {
    frames.iter().map(|frame| usize::from(u16::from_be_bytes([frame[10], frame[11]]))).collect()
}

#[test]
fn what_is_decided_is_decided_as_by_nftables() {
    if is_missing("access::what_is_decided_is_decided_as_by_nftables", &["nft", "tcpdump"]) {
        return;
    }
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let made: Vec<Made> = (0..COUNT).map(|number| make(&mut random, number)).collect();
    let sent: Frames = made.iter().map(|made| made.frame.clone()).collect();

    let mut lab = Lab::new();
    let host = lab.silent_host("filter");
    host.sh("for pair in 'way in' 'out end'; do
                 set -- $pair
                 ip link add $1 type veth peer name $2
                 for device in $1 $2; do
                     ip link set $device up
                     echo 1 >/proc/sys/net/ipv6/conf/$device/disable_ipv6
                 done
             done");
    let rules: Vec<String> = RULES.iter().map(|(_, rule)| format!("    {rule}\n")).collect();
    let table = format!(
        "table netdev access {{\n  chain decide {{\n    type filter hook ingress device \"in\" priority 0; policy accept;\n\
         {}  }}\n}}\n",
        rules.concat()
    );
    let sandbox = Sandbox::new();
    let file = sandbox.write("rules.nft", &table);
    host.run(&format!("nft -f {}", sandbox.path(&file).display()));

    frames::write(&sandbox.path("sent.pcap"), &sent);
    let path = sandbox.path("kernel.pcap");
    let mut capture =
        Capture::of_frames_up_to(512, host.namespace(), "end", "ether dst 02:00:00:00:00:01", &path).unwrap();
    let sender = sandbox.launched_by(&["ip", "netns", "exec", host.namespace()]);
    let network = Network::default()
        .app("file", "pcap-reader", "path = \"sent.pcap\"\nrate = \"20kpps\"\n")
        .app("way", "raw-socket", "interface = \"way\"\n")
        .app("end", "sink", "")
        .link("file.output -> way.input")
        .link("way.output -> end.input");
    sender.write("sender.toml", &network.text());
    let sending = sender.start(&["sender.toml"]);
    let arrived = HostInterface::new(&host, "in");
    eventually("all frames", || arrived.counters().rx_packets >= COUNT as u64);
    drop(sending);
    capture.stop().unwrap();
    let kernel = numbers(&frames::read(&path));

    let own = Sandbox::new();
    frames::write(&own.path("sent.pcap"), &sent);
    let rules: Vec<&str> = RULES.iter().map(|(rule, _)| *rule).collect();
    let network = Network::default()
        .app("file", "pcap-reader", "path = \"sent.pcap\"\n")
        .app("list", "access-list", &format!("rules = {rules:?}\n"))
        .app("end", "pcap-writer", "path = \"passed.pcap\"\n")
        .link("file.output -> list.input")
        .link("list.output -> end.input");
    own.write("network.toml", &network.text());
    own.bellows(&["run", "network.toml"]).success();
    let passed = numbers(&frames::read(&own.path("passed.pcap")));

    let said = |numbers: &mut dyn Iterator<Item = &usize>| -> Vec<String> {
        numbers.map(|&number| format!("{number}: {:02x?}", made[number].frame)).collect()
    };
    let more = said(&mut passed.difference(&kernel));
    assert!(more.is_empty(), "nftables refuses what passes here: {more:#?}");
    let (hidden, fewer): (Vec<usize>, Vec<usize>) =
        kernel.difference(&passed).partition(|&&number| made[number].is_hidden);
    let fewer = said(&mut fewer.iter());
    assert!(fewer.is_empty(), "refused here, although it can be decided: {fewer:#?}");
    let refused = COUNT - kernel.len();
    assert!(passed.len() > COUNT / 4 && refused > COUNT / 8 && hidden.len() > COUNT / 50, "{}", kernel.len());
}
