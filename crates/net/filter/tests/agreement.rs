//! The interpreter of graphs, that of plans, and machine code say the same, on bytes that end at a page that cannot be
//! read.

use bellows_exercise::filter::{agree, agree_on};
use bellows_filter::interpret::{PacketView, matches};
use bellows_filter::{Expression, LinkType, Options};
use bellows_testkit::{skip, soak};
use proptest::collection::vec;
use proptest::prelude::*;

#[path = "support/cbpf.rs"]
mod cbpf;

fn config() -> ProptestConfig {
    ProptestConfig { cases: soak::cases(2_000), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_graphs(filters in vec(vec(any::<u8>(), 0..400), 1..4), packet in vec(any::<u8>(), 0..160)) {
        let filters: Vec<&[u8]> = filters.iter().map(|filter| &filter[..]).collect();
        agree_on(&filters, &packet);
    }
}

/// An Ethernet frame with a header of IP version 4 or 6, and one of TCP, UDP or another protocol.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let ethertype = prop_oneof![Just(0x0800u16), Just(0x86dd), Just(0x0806), Just(0x8100), any::<u16>()];
    let protocol = prop_oneof![Just(6u8), Just(17), Just(132), Just(0), Just(44), Just(58), any::<u8>()];
    let port = || prop_oneof![Just(80u16), Just(81), Just(443), Just(1037), Just(8080), 0u16..7_000, any::<u16>()];
    let address =
        || prop_oneof![Just(0x0102_0304u32), (0u32..6).prop_map(|low| 0x0a00_0000 | low << 8 | 7), any::<u32>()];
    let options = prop_oneof![Just(5u8), 4u8..16];
    (ethertype, protocol, [port(), port()], [address(), address()], options, 0usize..110).prop_map(
        |(ethertype, protocol, ports, addresses, options, length)| {
            let mut frame = vec![0; 128];
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            frame[14] = 0x40 | options;
            frame[20] = protocol;
            let transport = if ethertype == 0x86dd {
                frame[22..26].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
                frame[38..42].copy_from_slice(&addresses[0].to_be_bytes());
                54
            } else {
                frame[20] = 0;
                frame[23] = protocol;
                frame[26..30].copy_from_slice(&addresses[0].to_be_bytes());
                frame[30..34].copy_from_slice(&addresses[1].to_be_bytes());
                14 + 4 * usize::from(options)
            };
            for (port, at) in ports.into_iter().zip([transport, transport + 2]) {
                frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
            }
            frame.truncate(length);
            frame
        },
    )
}

/// The length of an authentication header is the position of the next header, as in libpcap, so a chain can go in a
/// circle.
#[test]
fn a_chain_in_a_circle_ends() {
    let expression = Expression::parse("ip protochain 17", &Options::default()).unwrap();
    let (authentication, udp) = (51, 17);
    for next in [authentication, udp] {
        let mut frame = vec![0; 64];
        frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        frame[23] = authentication;
        // (3 + 2) × 4 is the position of this header.
        frame[34..36].copy_from_slice(&[next, 3]);
        assert_eq!(matches(expression.graph(), PacketView::whole(&frame)), next == udp);
        agree(&[expression.graph().clone()], &frame);
    }
}

/// Alternatives are a product of differences: one that wraps around to 0 must not match.
#[test]
fn products_do_not_wrap() {
    let words = ["ether[0:4] = 0 or ether[4:4] = 0", "ether[8:4] = 0 or ether[12:4] = 0"];
    for text in [words[0].to_owned(), words.join(" or "), format!("not ({})", words.join(" or "))] {
        let expression = Expression::parse(&text, &Options::default()).unwrap();
        // Each difference is 2^31 in the order of the packet's bytes, and one is 0 in the other packet.
        for last in [[0, 0, 0, 0x80], [0; 4]] {
            let frame = [[0, 0, 0, 0x80], [0, 0, 0, 0x80], [0, 0, 0, 0x80], last].concat();
            agree(&[expression.graph().clone()], &frame);
        }
    }
}

/// Neighbouring bytes are one test only if both must be equal to numbers: not with an alternative.
#[test]
fn alternatives_are_not_joined_to_what_is_before_them() {
    for text in [
        "ether[0] = 1 and (ether[2:4] = 2 or ether[6:4] = 3)",
        "ether[0] = 1 and ether[1] = 1 and (ether[2:2] = 2 or ether[4] = 1 and ether[5] = 3)",
        "not (ether[0] = 1 and (ether[2:2] = 2 or ether[4:2] = 3))",
        "ether[0] = 1 or ether[1] = 1 and (ether[2] = 0 or ether[3] = 2)",
    ] {
        let expression = Expression::parse(text, &Options::default()).unwrap();
        for bits in 0..1 << 6 {
            let byte = |at: u32, number: u8| number * u8::from(bits >> at & 1 == 1);
            let [one, other] = [byte(0, 1), byte(1, 1)];
            let frame = [one, other, 0, byte(2, 2), byte(3, 1), byte(4, 2) | byte(5, 3), 0, 0, 0, byte(5, 3)];
            agree(&[expression.graph().clone()], &frame);
        }
    }
}

/// Tests of the same byte that want different numbers are not one test of the bits of both.
#[test]
fn tests_that_contradict_each_other_are_not_joined() {
    const BYTES: [u8; 3] = [0xfe, 0x82, 0x04];
    for text in [
        "ether[0:2] = 0xfefe and ether[0] = 0x82",
        "ether[0:2] = 0x04fe and ether[1:2] = 0x82fe and ether[3] != 4",
        "ether[0] & 0xf0 = 0xf0 and ether[0:2] = 0x04fe",
        "ether[0:2] = 0x82fe and ether[1:2] = 0xfe04",
        "not (ether[0:2] = 0xfefe and ether[1] = 0x82)",
    ] {
        let expression = Expression::parse(text, &Options::default()).unwrap();
        for choice in 0..3_usize.pow(4) {
            let frame: [u8; 4] = std::array::from_fn(|at| BYTES[choice / 3_usize.pow(at as u32) % 3]);
            agree(&[expression.graph().clone()], &frame);
        }
    }
    // In cooked captures, `esis` wants two values of one byte. Long expressions test the bytes of a word first.
    let options = Options { link_type: LinkType::Cooked, ..Options::default() };
    let expression = Expression::parse("esis and not (aarp or outbound)", &options).unwrap();
    for byte in [0xfe, 0x82] {
        let mut frame = [0; 30];
        frame[14..18].copy_from_slice(&[0, 4, byte, 0xfe]);
        agree(&[expression.graph().clone()], &frame);
    }
}

fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(" or ")
}

/// What tcpdump compiles, on frames that it is about.
#[test]
fn programs_of_tcpdump() {
    let long = [
        format!("port {}", list(60, |index| format!("{}", 1_000 + index * 37))),
        list(60, |index| format!("host 10.0.{index}.7")),
        list(60, |index| format!("net 10.{index}.0.0/{}", 16 + index % 16)),
        list(12, |index| format!("host 2001:db8:{index:x}::1")),
        list(12, |index| format!("net 2001:db8:{index:x}::/{}", 48 + index)),
    ];
    let short = [
        "",
        "tcp port 80",
        "portrange 0-6000",
        "src net 10.0.0.0/8",
        "host 1.2.3.4",
        "port 80 or 81 or 443",
        "tcp",
        "not tcp",
        "src host 1.2.3.4 or 10.0.2.7 or 9.9.9.9",
        "host 10.0.0.7 or 1.2.3.4 or 10.0.4.7 or 255.255.255.255 or 0.0.0.0",
        "not (src net 10.0.1.0/24 or net 128.0.0.0/1 or host 10.0.3.7 or host 10.0.5.7)",
        "ip6 protochain 6",
        "ip protochain 17",
        "len > 60 and udp",
        "less 60",
        "tcp[tcpflags] & tcp-syn != 0",
        "ip[0] & 0xf != 5",
        "vlan 5 and ip",
        "ether[0] & 1 = 0 and ip[2:2] / 3 > 10",
        "src port 80 and dst port 443",
        "tcp port 80 and host 1.2.3.4 and not port 443",
        "icmp or arp",
        "ip[ip[0] & 0xf] % (ip[1] + 1) = 0",
        "ip[9] = 6 and ip[6:2] & 0x3fff = 0 and ether[0] = 0",
        "ether[0] = 0 and ether[1] = 0 and ether[2] & 1 = 0 and udp",
        "ether[12] = 8 or ether[14] & 0xf = 5 or ether[14] & 0xf = 6",
    ];
    let expressions: Vec<&str> = short.into_iter().chain(long.iter().map(String::as_str)).collect();
    let graphs: Vec<_> = expressions.iter().map_while(|expression| cbpf::compiled(expression)).collect();
    if graphs.is_empty() {
        return skip("programs_of_tcpdump", "tcpdump is missing: install tcpdump");
    }
    assert_eq!(graphs.len(), expressions.len(), "tcpdump refused one");
    let graph = 0..graphs.len();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: soak::cases(400), ..config() });
    let cases = (vec(graph, 1..4), frame());
    let run = |(picks, frame): (Vec<usize>, Vec<u8>)| {
        let picked: Vec<_> = picks.iter().map(|&pick| graphs[pick].clone()).collect();
        agree(&picked, &frame);
        Ok(())
    };
    runner.run(&cases, run).unwrap();
}
