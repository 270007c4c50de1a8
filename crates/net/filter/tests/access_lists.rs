//! Access lists beside a naive model: random rules on random packets with tags, extension headers, options and fragments,
//! also cut off. The model knows how a packet was made, so it does not read headers.

use bellows_filter::access::{AccessList, Decision, Expressed, RULES_IN_ONE_PASS, Unknown};
use bellows_filter::interpret::PacketView;
use bellows_filter::{SystemNames, program};
use bellows_packet::Packet;
use proptest::prelude::*;

/// An extension header.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extension {
    HopByHop(u8),
    Routing,
    Destination(u8),
    Authentication,
    /// A fragment header that says that the packet is whole.
    Atomic,
    /// A header that hides what is behind it.
    Shim6,
}

impl Extension {
    fn number(self) -> u8 {
        match self {
            Extension::HopByHop(_) => 0,
            Extension::Routing => 43,
            Extension::Destination(_) => 60,
            Extension::Authentication => 51,
            Extension::Atomic => 44,
            Extension::Shim6 => 140,
        }
    }

    fn bytes(self, next: u8) -> Vec<u8> {
        let sized = |words: u8| [&[next, words, 1, 4][..], &vec![0; 4 + 8 * usize::from(words)]].concat();
        match self {
            Extension::HopByHop(words) | Extension::Destination(words) => sized(words),
            Extension::Routing => [&[next, 2, 4, 0][..], &[0xee; 20]].concat(),
            Extension::Authentication => [&[next, 4][..], &[0xaa; 22]].concat(),
            Extension::Atomic => vec![next, 0, 0, 0, 1, 2, 3, 4],
            Extension::Shim6 => sized(0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Whole,
    First,
    /// Behind the first.
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Network {
    V4 { options: u8 },
    V6,
    Arp,
}

#[derive(Clone, Debug)]
struct Made {
    tags: Vec<(u16, u16)>,
    /// LLC and SNAP in front of the EtherType.
    snap: bool,
    network: Network,
    extensions: Vec<Extension>,
    part: Part,
    protocol: u8,
    source: u8,
    ports: [u16; 2],
    flags: u8,
    payload: u8,
    /// How many bytes are left of the frame, if some are cut off: even, so that a type is there or not.
    cut: Option<usize>,
    /// How many bytes of the upper layer its length leaves.
    short: Option<usize>,
}

/// A packet, and what is known of it.
#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    /// Where the type, the source, and the headers in front of the upper layer end.
    type_end: usize,
    source_end: usize,
    chain_end: usize,
    /// Where the upper layer would begin, and the bytes that the packet has of it.
    upper: usize,
    upper_bytes: usize,
    /// Extension headers, each with its end.
    headers: Vec<(u8, usize)>,
    is_understood: bool,
}

impl Made {
    fn upper(&self) -> Vec<u8> {
        let ports = [self.ports[0].to_be_bytes(), self.ports[1].to_be_bytes()].concat();
        let rest = match self.protocol {
            6 => [&[0; 8][..], &[0x50, self.flags, 0, 0, 0, 0, 0, 0]].concat(),
            17 => vec![0; 4],
            _ => vec![0; 8],
        };
        [&ports[..], &rest, &vec![9; self.payload.into()]].concat()
    }

    fn frame(&self) -> Frame {
        let mut bytes = vec![2; 12];
        for (kind, id) in &self.tags {
            bytes.extend(kind.to_be_bytes());
            bytes.extend(id.to_be_bytes());
        }
        if self.snap {
            bytes.extend([0, 90, 0xaa, 0xaa, 3, 0, 0, 0]);
        }
        let kind: u16 = match self.network {
            Network::V4 { .. } => 0x0800,
            Network::V6 => 0x86dd,
            Network::Arp => 0x0806,
        };
        bytes.extend(kind.to_be_bytes());
        let type_end = bytes.len();
        let upper = match self.part {
            Part::Later => vec![0x16; 24],
            _ => self.upper(),
        };
        let upper = &upper[..self.short.unwrap_or(upper.len()).min(upper.len())];
        let mut headers = Vec::new();
        let mut is_understood = true;
        let (source_end, chain_end);
        match self.network {
            Network::Arp => {
                bytes.extend([0; 28]);
                (source_end, chain_end) = (bytes.len(), bytes.len());
            }
            Network::V4 { options } => {
                let options = usize::from(options) * 4;
                let total = (20 + options + upper.len()) as u16;
                let flags: u16 = match self.part {
                    Part::Whole => 0x4000,
                    Part::First => 0x2000,
                    Part::Later => 0x2003,
                };
                bytes.extend([0x45 + (options / 4) as u8, 0]);
                bytes.extend(total.to_be_bytes());
                bytes.extend([0, 1]);
                bytes.extend(flags.to_be_bytes());
                bytes.extend([64, self.protocol, 0, 0, 10, 0, 0, self.source]);
                source_end = bytes.len();
                bytes.extend([10, 0, 0, 200]);
                bytes.extend(vec![1; options]);
                chain_end = bytes.len();
            }
            Network::V6 => {
                let fragment = match self.part {
                    Part::Whole => None,
                    Part::First => Some([0, 1]),
                    Part::Later => Some([0, 24 | 1]),
                };
                // Only what is in front of the fragment header is in a later fragment.
                let extensions: &[Extension] = if self.part == Part::Later { &[] } else { &self.extensions };
                let numbers = extensions.iter().map(|extension| extension.number()).chain([self.protocol]);
                let first = if fragment.is_some() { 44 } else { 0 };
                let mut numbers: Vec<u8> = numbers.collect();
                if first == 44 {
                    numbers.insert(0, 44);
                }
                let mut chain = Vec::new();
                let at = bytes.len() + 40;
                if let Some([high, low]) = fragment {
                    chain.extend([numbers[1], 0, high, low, 1, 2, 3, 4]);
                    headers.push((44, at + 1));
                }
                let skipped = usize::from(first == 44);
                for (index, extension) in extensions.iter().enumerate() {
                    if *extension == Extension::Shim6 {
                        is_understood = false;
                    }
                    if is_understood {
                        headers.push((extension.number(), at + chain.len() + 1));
                    }
                    chain.extend(extension.bytes(numbers[skipped + index + 1]));
                }
                bytes.extend([0x60, 0, 0, 0]);
                bytes.extend(((chain.len() + upper.len()) as u16).to_be_bytes());
                bytes.extend([numbers[0], 64]);
                bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, self.source]);
                source_end = bytes.len();
                bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200]);
                bytes.extend(chain);
                chain_end = bytes.len();
            }
        }
        let at = bytes.len();
        let upper_bytes = if self.network == Network::Arp { 0 } else { upper.len() };
        if self.network != Network::Arp {
            bytes.extend(upper);
            // Padding is no part of the packet.
            bytes.resize(bytes.len().max(60), 0x50);
        }
        if let Some(cut) = self.cut {
            bytes.truncate(cut);
        }
        Frame { bytes, type_end, source_end, chain_end, upper: at, upper_bytes, headers, is_understood }
    }
}

/// A test, and how it is written.
#[derive(Clone, Debug)]
enum Test {
    Network(Network),
    Source(u8),
    Protocol(Option<bool>, u8),
    Port { protocol: Option<u8>, source: bool, low: u16, high: u16 },
    Flag(u8),
    Byte(u8, u8),
    Vlan(Option<u16>),
    Not(Box<Test>),
    And(Box<Test>, Box<Test>),
    Or(Box<Test>, Box<Test>),
}

fn name(protocol: u8) -> &'static str {
    match protocol {
        6 => "tcp",
        17 => "udp",
        _ => "sctp",
    }
}

impl Test {
    fn text(&self) -> String {
        match self {
            Test::Network(Network::Arp) => "arp".to_owned(),
            Test::Network(Network::V6) => "ip6".to_owned(),
            Test::Network(_) => "ip".to_owned(),
            Test::Source(host) if host % 2 == 0 => format!("ip src host 10.0.0.{host}"),
            Test::Source(host) => format!("src host 2001:db8::{host:x}"),
            Test::Protocol(None, number) => format!("proto {number}"),
            Test::Protocol(Some(false), number) => format!("ip proto {number}"),
            Test::Protocol(Some(true), number) => format!("ip6 proto {number}"),
            Test::Port { protocol, source, low, high } => {
                let protocol = protocol.map_or("", name);
                let way = if *source { "src" } else { "dst" };
                match low == high {
                    true => format!("{protocol} {way} port {low}"),
                    false => format!("{protocol} {way} portrange {low}-{high}"),
                }
            }
            Test::Flag(bit) => format!("tcp[tcpflags] & {bit} != 0"),
            Test::Byte(at, value) => format!("udp[{at}] = {value}"),
            Test::Vlan(None) => "vlan".to_owned(),
            Test::Vlan(Some(id)) => format!("vlan {id}"),
            Test::Not(inner) => format!("not ({})", inner.text()),
            Test::And(one, other) => format!("({}) and ({})", one.text(), other.text()),
            Test::Or(one, other) => format!("({}) or ({})", one.text(), other.text()),
        }
    }

    /// Whether it holds, if that is known.
    fn holds(&self, made: &Made, frame: &Frame) -> Option<bool> {
        let has = |end: usize| frame.bytes.len() >= end;
        let of_type = |is_it: bool| has(frame.type_end).then_some(is_it);
        let is_ip = made.network != Network::Arp;
        let is_v6 = made.network == Network::V6;
        // The protocol of the upper layer.
        let protocol = has(frame.chain_end).then_some(made.protocol).filter(|_| frame.is_understood);
        // What asks for bytes of the upper layer.
        let upper = |number: u8, bytes: usize, test: &dyn Fn() -> bool| match (of_type(is_ip), protocol) {
            (Some(true), Some(protocol)) if protocol != number => Some(false),
            (Some(true), Some(_)) => {
                let is_there = made.part != Part::Later && bytes <= frame.upper_bytes && has(frame.upper + bytes);
                is_there.then(test)
            }
            (known, _) => known.filter(|is_ip| !is_ip),
        };
        match self {
            Test::Network(network) => of_type(matches!(
                (network, made.network),
                (Network::V4 { .. }, Network::V4 { .. }) | (Network::V6, Network::V6) | (Network::Arp, Network::Arp)
            )),
            Test::Source(host) => {
                let is_asked = host % 2 == 0 && is_ip && !is_v6 || host % 2 == 1 && is_v6;
                match of_type(is_asked)? {
                    false => Some(false),
                    true => has(frame.source_end).then_some(made.source == *host),
                }
            }
            Test::Protocol(version, number) => {
                let is_asked = is_ip && version.is_none_or(|version| version == is_v6);
                if !of_type(is_asked)? {
                    return Some(false);
                }
                if !is_v6 || ![0, 43, 44, 51, 60].contains(number) {
                    // That of IPv4 can be a number of these.
                    return protocol.map(|protocol| protocol == *number);
                }
                let is_one = frame.headers.iter().any(|(header, end)| header == number && has(*end - 1));
                if is_one { Some(true) } else { protocol.map(|_| false) }
            }
            Test::Port { protocol: of, source, low, high } => {
                let of: Vec<u8> = of.map_or(vec![6, 17, 132], |of| vec![of]);
                let port = made.ports[usize::from(!source)];
                let end = if *source { 2 } else { 4 };
                let each = of.into_iter().map(|of| upper(of, end, &|| (low..=high).contains(&&port)));
                each.fold(Some(false), or)
            }
            Test::Flag(bit) => upper(6, 14, &|| made.flags & bit != 0),
            Test::Byte(at, value) => {
                let at = usize::from(*at);
                // A whole packet without this byte does not have it, but for the header, which it must have.
                let ends_before = frame.upper_bytes <= at && at >= 8 && made.part == Part::Whole;
                match upper(17, 0, &|| true) {
                    Some(true) if ends_before && has(frame.chain_end) => Some(false),
                    Some(true) => upper(17, at + 1, &|| made.upper()[at] == *value),
                    other => other,
                }
            }
            Test::Vlan(id) => match made.tags.first() {
                None => (frame.bytes.len() >= 14).then_some(false),
                Some(_) if frame.bytes.len() < 14 => None,
                Some((_, found)) => match id {
                    None => Some(true),
                    Some(id) => (frame.bytes.len() >= 16).then_some(found == id),
                },
            },
            Test::Not(inner) => inner.holds(made, frame).map(|holds| !holds),
            Test::And(one, other) => and(one.holds(made, frame), other.holds(made, frame)),
            Test::Or(one, other) => or(one.holds(made, frame), other.holds(made, frame)),
        }
    }
}

fn and(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    and(one.map(|one| !one), other.map(|other| !other)).map(|neither| !neither)
}

/// The first rule that holds, and none from the first one on that is not known.
fn model(rules: &[Test], made: &Made, frame: &Frame) -> Option<usize> {
    for (number, rule) in rules.iter().enumerate() {
        if rule.holds(made, frame)? {
            return Some(number);
        }
    }
    Some(rules.len())
}

fn any_network() -> impl Strategy<Value = Network> {
    prop_oneof![
        2 => (0u8..4).prop_map(|options| Network::V4 { options: options.saturating_sub(1) }),
        4 => Just(Network::V6),
        1 => Just(Network::Arp),
    ]
}

fn any_extension() -> impl Strategy<Value = Extension> {
    prop_oneof![
        3 => (0u8..3).prop_map(Extension::HopByHop),
        2 => Just(Extension::Routing),
        4 => (0u8..3).prop_map(Extension::Destination),
        2 => Just(Extension::Authentication),
        2 => Just(Extension::Atomic),
        1 => Just(Extension::Shim6),
    ]
}

fn any_made() -> impl Strategy<Value = Made> {
    let tag = (prop::sample::select(vec![0x8100u16, 0x88a8]), 1u16..4);
    let tags = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(tag, 0..3)];
    let extensions = prop_oneof![1 => Just(Vec::new()), 2 => prop::collection::vec(any_extension(), 0..4)];
    let part = prop_oneof![4 => Just(Part::Whole), 1 => Just(Part::First), 1 => Just(Part::Later)];
    let protocol = prop_oneof![4 => Just(6u8), 2 => Just(17), 1 => Just(132), 1 => Just(50), 1 => Just(47)];
    let cut = prop_oneof![4 => Just(None), 1 => (0usize..65).prop_map(|half| Some(2 * half))];
    let short = prop_oneof![5 => Just(None), 1 => (0usize..20).prop_map(Some)];
    let numbers = (0u8..5, [20u16..24, 20u16..24], 0u8..32, 0u8..6);
    (tags, 0u8..8, any_network(), extensions, (part, protocol), numbers, cut, short).prop_map(
        |(tags, snap, network, extensions, (part, protocol), (source, ports, flags, payload), cut, short)| Made {
            tags,
            snap: snap == 0,
            network,
            extensions,
            part,
            protocol,
            source,
            ports,
            flags,
            payload,
            cut,
            short,
        },
    )
}

/// Tests of one field each, so that those of a rule do not exclude or imply each other.
fn any_test() -> impl Strategy<Value = Test> {
    let network = any_network().prop_map(Test::Network);
    let source = (0u8..5).prop_map(Test::Source);
    let number = prop::sample::select(vec![6u8, 17, 132, 50, 0, 43, 44, 51, 60]);
    let protocol = (any::<Option<bool>>(), number).prop_map(|(version, number)| Test::Protocol(version, number));
    let transport = prop::option::of(prop::sample::select(vec![6u8, 17, 132]));
    let port = (transport, any::<bool>(), 20u16..24, 0u16..3).prop_map(|(protocol, source, low, more)| Test::Port {
        protocol,
        source,
        low,
        high: low + more,
    });
    let flag = (0u32..5).prop_map(|bit| Test::Flag(1 << bit));
    let byte = (6u8..14, 8u8..10).prop_map(|(at, value)| Test::Byte(at, value));
    let vlan = prop::option::of(1u16..4).prop_map(Test::Vlan);
    let one = prop_oneof![network, source.clone(), protocol, port.clone(), port, flag, byte, vlan.clone()].boxed();
    let negated = (one, any::<bool>()).prop_map(|(test, is_negated)| match is_negated {
        true => Test::Not(Box::new(test)),
        false => test,
    });
    (negated, prop_oneof![vlan, source], 0u8..5).prop_map(|(one, other, joined)| match joined {
        // A second tag, and a test and its opposite, are other questions.
        0 | 1 if !one.text().contains("vlan") && !one.text().contains("host") => {
            let both = (Box::new(one), Box::new(other));
            if joined == 0 { Test::And(both.0, both.1) } else { Test::Or(both.0, both.1) }
        }
        _ => one,
    })
}

fn compile(rules: &[String]) -> AccessList {
    let parse = |text: &String| Expressed::parse(text, &SystemNames).unwrap_or_else(|error| panic!("{text}: {error}"));
    let rules: Vec<Expressed> = rules.iter().map(parse).collect();
    AccessList::compile(&rules, program::ProgramOptions::default()).unwrap()
}

/// The decision of a vector, and that of a close look, on each packet.
fn decide(list: &mut AccessList, frames: &[Vec<u8>]) -> Vec<[u16; 2]> {
    bellows_packet::pool::ensure().unwrap();
    let packets: Vec<Packet> = frames.iter().map(|frame| Packet::from_bytes(frame).unwrap()).collect();
    let mut numbers = vec![0; packets.len()];
    list.decide(&packets, &mut numbers);
    let close = frames.iter().map(|frame| list.decide_closely(PacketView::whole(frame)));
    let close: Vec<Decision> = close.collect();
    numbers.into_iter().zip(close).map(|(number, close)| [number, list.number(close)]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(bellows_testkit::soak::cases(600)))]

    #[test]
    fn rules_decide_as_the_model(
        rules in prop::collection::vec(any_test(), 1..6),
        made in prop::collection::vec(any_made(), 1..20),
        padding in 0usize..70,
    ) {
        // So that rules are also in the second program.
        let never = vec!["proto 200".to_owned(); if padding > RULES_IN_ONE_PASS { padding } else { 0 }];
        let texts: Vec<String> = never.iter().cloned().chain(rules.iter().map(Test::text)).collect();
        let mut list = compile(&texts);
        let frames: Vec<Frame> = made.iter().map(Made::frame).collect();
        let bytes: Vec<Vec<u8>> = frames.iter().map(|frame| frame.bytes.clone()).collect();
        for (index, [number, close]) in decide(&mut list, &bytes).into_iter().enumerate() {
            let (made, frame) = (&made[index], &frames[index]);
            let is_unknown = made.network != Network::Arp
                && (frame.bytes.len() < frame.chain_end || !frame.is_understood)
                || frame.bytes.len() < frame.type_end;
            let expected = match model(&rules, made, frame) {
                // The rule in front asks for the protocol.
                _ if is_unknown && !never.is_empty() => None,
                Some(rule) => Some(never.len() + rule),
                None => None,
            };
            let is_joined = |rule: &Test| matches!(rule, Test::And(..) | Test::Or(..));
            if frame.bytes.len() < frame.type_end && rules.iter().any(is_joined) {
                // Tests that exclude each other whatever the type is are decided.
                continue;
            }
            let found = |number: u16| Some(usize::from(number)).filter(|&rule| rule <= texts.len());
            prop_assert_eq!([found(number), found(close)], [expected; 2], "{:?}\n{:?}\n{:02x?}", rules, made, frame.bytes);
        }
    }

    #[test]
    fn any_bytes_are_decided_alike_in_a_vector_and_alone(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 1..20),
        kind in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100, 0x8847, 0x8864, 0x0806, 60]),
        next in prop::sample::select(vec![0u8, 6, 17, 43, 44, 51, 58, 60]),
    ) {
        let rules = ["tcp dst port 22", "icmp6[0] > 5", "udp[8:4] = 1", "vlan 5", "mpls 3", "pppoes 7", "ip6 proto 60", "stp"];
        let rules = rules.map(str::to_owned);
        let mut list = compile(&rules);
        let patch = |mut frame: Vec<u8>| {
            for (at, byte) in [12, 13].into_iter().zip(kind.to_be_bytes()) {
                frame.get_mut(at).into_iter().for_each(|place| *place = byte);
            }
            for at in [14, 20, 23] {
                let value = match (at, kind) {
                    (14, 0x0800) => 0x45,
                    (14, _) => 0x60,
                    _ => next,
                };
                frame.get_mut(at).into_iter().for_each(|place| *place = value);
            }
            frame
        };
        let frames: Vec<Vec<u8>> = frames.into_iter().map(patch).collect();
        for (frame, [number, close]) in frames.iter().zip(decide(&mut list, &frames)) {
            prop_assert_eq!(number, close, "{:02x?}", frame);
        }
    }
}

/// The numbers of the rules that a packet is decided by; the reason if it is undecided.
fn said(rules: &[&str], made: &Made) -> Result<usize, Unknown> {
    let rules: Vec<String> = rules.iter().map(|&rule| rule.to_owned()).collect();
    let mut list = compile(&rules);
    let [number, close] = decide(&mut list, &[made.frame().bytes])[0];
    assert_eq!(number, close);
    let number = usize::from(number);
    if number <= rules.len() { Ok(number) } else { Err(Unknown::ALL[number - rules.len() - 1]) }
}

fn syn(network: Network) -> Made {
    Made {
        tags: Vec::new(),
        snap: false,
        network,
        extensions: Vec::new(),
        part: Part::Whole,
        protocol: 6,
        source: 1,
        ports: [5000, 22],
        flags: 2,
        payload: 0,
        cut: None,
        short: None,
    }
}

#[test]
fn the_upper_layer_is_found_wherever_it_is() {
    let rules = ["tcp dst port 22", "tcp[tcpflags] & tcp-syn != 0"];
    let (v4, v6) = (syn(Network::V4 { options: 0 }), syn(Network::V6));
    let with = |extensions: &[Extension]| Made { extensions: extensions.to_vec(), ..v6.clone() };
    let deep = vec![Extension::Destination(1); 16];
    for made in [
        v4.clone(),
        v6.clone(),
        syn(Network::V4 { options: 5 }),
        with(&[Extension::Destination(0)]),
        with(&[Extension::HopByHop(2), Extension::Routing, Extension::Atomic, Extension::Authentication]),
        with(&deep),
        Made { tags: vec![(0x88a8, 5), (0x8100, 6), (0x8100, 0)], ..v6.clone() },
        Made { snap: true, tags: vec![(0x8100, 0)], ..v4.clone() },
        Made { part: Part::First, ..v6.clone() },
    ] {
        assert_eq!(said(&rules, &made), Ok(0), "{made:?}");
        assert_eq!(said(&rules[1..], &made), Ok(0), "{made:?}");
    }
    let deeper = with(&[&deep[..], &deep[..1]].concat());
    assert_eq!(said(&rules, &deeper), Err(Unknown::Headers));
    assert_eq!(said(&rules, &with(&[Extension::Shim6])), Err(Unknown::Headers));
    let cut = Made { cut: Some(56), ..v6.clone() };
    assert_eq!(said(&rules, &cut), Err(Unknown::Missing));
    let tiny = Made { part: Part::First, short: Some(8), ..v4.clone() };
    assert_eq!((said(&rules, &tiny), said(&rules[1..], &tiny)), (Ok(0), Err(Unknown::Fragment)));
    let later = |protocol| Made { part: Part::Later, protocol, ..v6.clone() };
    assert_eq!((said(&rules, &later(6)), said(&rules, &later(17))), (Err(Unknown::Fragment), Ok(2)));
    assert_eq!(said(&["not tcp dst port 22"], &later(6)), Err(Unknown::Fragment));
    // A rule that is decided counts before others that are not.
    assert_eq!(said(&["ip6", rules[0]], &later(6)), Ok(0));
    assert_eq!(said(&["ip6 proto 60", "ip6"], &with(&[Extension::HopByHop(0), Extension::Destination(0)])), Ok(0));
    // Bytes by their offsets are those of the packet itself.
    let options = with(&[Extension::HopByHop(0)]);
    assert_eq!(said(&["ip6[6] != 0", "ip6[40] = 6"], &options), Ok(1));
    assert_eq!(said(&["ip[0] != 0x45"], &syn(Network::V4 { options: 1 })), Ok(0));
    assert_eq!(said(&["vlan 6", "vlan 5 and vlan 6"], &Made { tags: vec![(0x8100, 5), (0x8100, 6)], ..v4 }), Ok(1));
}

#[test]
fn tunnels_between_ethernet_and_ip_are_looked_through() {
    let bytes = syn(Network::V6).frame().bytes;
    let with = |kind: u16, header: &[u8]| [&bytes[..12], &kind.to_be_bytes(), header, &bytes[14..]].concat();
    let mut list = compile(&["tcp dst port 22", "mpls 5 and mpls 6", "pppoes 7", "stp"].map(str::to_owned));
    let mut said = |frame: Vec<u8>| {
        let [number, close] = decide(&mut list, &[frame])[0];
        assert_eq!(number, close);
        number
    };
    assert_eq!(said(with(0x8864, &[0x11, 0, 0, 7, 0, 76, 0, 0x57])), 0);
    assert_eq!(said(with(0x8864, &[0x11, 0, 0, 7, 0, 75, 0x57])), 0);
    assert_eq!(said(with(0x8864, &[0x11, 0, 0, 7, 0, 76, 0xc0, 0x21])), 2, "of a control protocol");
    assert_eq!(said(with(0x8847, &[0, 0, 0x50, 1, 0, 0, 0x61, 1])), 0);
    assert_eq!(said(with(0x8847, &[0, 0, 0x50, 1, 0, 0, 0x60, 1])), 4 + 1 + Unknown::Headers as u16);
    let mut bpdu = vec![1; 12];
    bpdu.extend([0, 38, 0x42, 0x42, 3]);
    bpdu.extend([0; 43]);
    assert_eq!(said(bpdu), 3);
}
