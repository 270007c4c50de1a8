use std::net::IpAddr;

use bellows_exercise::packets::{ip, too_big};
use bellows_rig::Rig;
use bellows_wire::{IpPair, IpProtocol};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const OUTPUTS: [&str; 4] = ["a", "b", "c", "other"];

fn configure(rules: serde_json::Value) -> Result<Dispatch, SettingError> {
    Dispatch::configure(serde_json::from_value(json!({ "rules": rules })).unwrap(), &Context::default())
}

/// A few addresses of each family.
fn address(is_v6: bool, station: u8) -> IpAddr {
    match is_v6 {
        true => format!("2001:db8::{station}").parse().unwrap(),
        false => format!("192.0.2.{station}").parse().unwrap(),
    }
}

/// A rule of any fields, with few values.
fn rule() -> impl Strategy<Value = Rule> {
    let protocol = prop::sample::select(vec![None, Some("udp"), Some("tcp"), Some("gre")]);
    (0usize..3, any::<bool>(), prop::option::of(0u8..3), prop::option::of(0u8..3), protocol, prop::option::of(0u16..3))
        .prop_map(|(to, is_v6, source, destination, protocol, port)| Rule {
            to: OUTPUTS[to].to_owned(),
            source: source.map(|station| address(is_v6, station + 1).to_string()),
            destination: destination.map(|station| address(is_v6, station + 1).to_string()),
            protocol: protocol.map(|name| rules::Protocol::Name(name.to_owned())),
            port: port.filter(|_| matches!(protocol, Some("udp" | "tcp"))),
        })
}

/// A packet: whether it is of IPv6, its stations, its protocol, its port, and whether it has options.
type Sent = (bool, u8, u8, u8, u16, bool);

fn packets() -> impl Strategy<Value = Vec<Sent>> {
    let protocol = prop::sample::select(vec![17u8, 6, 47, 1]);
    prop::collection::vec((any::<bool>(), 0u8..4, 0u8..4, protocol, 0u16..4, any::<bool>()), 1..40)
}

fn frame((is_v6, source, destination, protocol, port, has_options): Sent) -> Vec<u8> {
    let ends = IpPair::new(address(is_v6, source + 1), address(is_v6, destination + 1)).unwrap();
    let behind = [&[9, 9], &port.to_be_bytes()[..], &[0; 16]].concat();
    match (is_v6, has_options) {
        (_, false) => ip(ends, IpProtocol(protocol), &behind),
        (true, true) => {
            let options = [&[protocol, 0, 1, 4, 0, 0, 0, 0][..], &behind].concat();
            ip(ends, IpProtocol::IPV6_DESTINATION, &options)
        }
        (false, true) => {
            let mut frame = ip(ends, IpProtocol(protocol), &[&[1, 1, 1, 0][..], &behind].concat());
            frame[14] = 0x46;
            frame
        }
    }
}

/// The output of the first rule that a packet matches, tried one by one.
fn model(rules: &[Rule], (is_v6, source, destination, protocol, port, _): Sent) -> &str {
    let is = |text: &Option<String>, station: u8| {
        text.as_ref().is_none_or(|it| *it == address(is_v6, station + 1).to_string())
    };
    let number = |name: &str| match name {
        "udp" => 17,
        "tcp" => 6,
        _ => 47,
    };
    let matches = |rule: &&Rule| {
        let is_of_protocol = match &rule.protocol {
            Some(rules::Protocol::Name(name)) => number(name) == protocol,
            _ => true,
        };
        is(&rule.source, source)
            && is(&rule.destination, destination)
            && is_of_protocol
            && rule.port.is_none_or(|wanted| wanted == port)
    };
    rules.iter().find(matches).map_or("other", |rule| &rule.to)
}

proptest! {
    #[test]
    fn packets_go_where_the_first_rule_leads(rules in prop::collection::vec(rule(), 1..20), sent in packets()) {
        let mut different: Vec<Rule> = Vec::new();
        for rule in rules {
            if different.iter().all(|other| Rule { to: rule.to.clone(), ..other.clone() } != rule) {
                different.push(rule);
            }
        }
        let app = configure(serde_json::to_value(&different).unwrap());
        let mut rig = Rig::new(app.unwrap(), &["input"], &OUTPUTS);
        // One by one, so that each is found where it went; and all together.
        for &packet in &sent {
            rig.send("input", [frame(packet)]);
            rig.settle();
            for output in OUTPUTS {
                let expected = usize::from(output == model(&different, packet));
                prop_assert_eq!(rig.received(output).len(), expected, "{:?}", packet);
            }
        }
        rig.send("input", sent.iter().map(|&packet| frame(packet)));
        rig.settle();
        for output in OUTPUTS {
            let expected: Vec<_> = sent.iter().filter(|&&packet| model(&different, packet) == output).map(|&it| frame(it)).collect();
            let unlinked = rig.counts().dropped();
            prop_assert_eq!(rig.received(output), expected);
            prop_assert_eq!(unlinked, 0);
        }
    }

    #[test]
    fn any_bytes_go_somewhere(bytes in prop::collection::vec(any::<u8>(), 0..100), first in prop::sample::select(vec![0x45u8, 0x46, 0x60, 0])) {
        let mut bytes = bytes;
        if let Some(place) = bytes.get_mut(14) {
            *place = first;
        }
        let app = configure(json!([{"to": "a", "protocol": "udp", "port": 7}, {"to": "b", "destination": "::1"}])).unwrap();
        let mut rig = Rig::new(app, &["input"], &OUTPUTS);
        rig.send("input", [bytes]);
        rig.settle();
        prop_assert_eq!(OUTPUTS.iter().map(|output| rig.received(output).len()).sum::<usize>(), 1);
    }
}

#[test]
fn addresses_with_the_same_end_go_before_later_rules() {
    let sources = ["2001:db8:1::1", "2001:db8:2::1"];
    let rules = json!([
        {"to": "a", "source": sources[0], "protocol": "udp", "port": 0},
        {"to": "b", "source": sources[1], "protocol": "udp", "port": 0},
        {"to": "c"},
    ]);
    let mut rig = Rig::new(configure(rules).unwrap(), &["input"], &OUTPUTS);
    for source in [sources[0], sources[1], "2001:db8:3::1"] {
        let ends = IpPair::new(source.parse().unwrap(), address(true, 1)).unwrap();
        rig.send("input", [ip(ends, IpProtocol::UDP, &[0; 20])]);
    }
    rig.settle();
    assert_eq!(OUTPUTS.map(|output| rig.received(output).len()), [1, 1, 1, 0]);
}

#[test]
fn fragments_have_no_port() {
    let app = configure(json!([{"to": "a", "protocol": "udp", "port": 7}, {"to": "b", "protocol": 17}])).unwrap();
    let mut rig = Rig::new(app, &["input"], &OUTPUTS);
    let mut fragment = frame((false, 0, 0, 17, 7, false));
    rig.send("input", [&fragment]);
    fragment[20] = 0x20;
    rig.send("input", [&fragment]);
    rig.settle();
    assert_eq!(OUTPUTS.map(|output| rig.received(output).len()), [1, 1, 0, 0]);
}

#[test]
fn packets_without_an_output_are_counted() {
    let app = configure(json!([{"to": "a", "protocol": "udp"}, {"to": "b", "protocol": "tcp"}])).unwrap();
    let mut rig = Rig::new(app, &["input"], &["a"]);
    rig.send("input", [17, 6, 47].map(|protocol| frame((true, 0, 0, protocol, 7, false))));
    rig.settle();
    let counts = rig.counts();
    assert_eq!((counts.drops["no_output"], counts.drops["no_match"]), (1, 1));
    let app = configure(json!([{"to": "a", "protocol": "udp"}, {"to": "b", "protocol": "tcp"}])).unwrap();
    let mut rig = Rig::new(app, &["input"], &["a", "other"]);
    rig.send("input", [17, 6, 47].map(|protocol| frame((true, 0, 0, protocol, 7, false))));
    rig.settle();
    assert_eq!((rig.received("a").len(), rig.received("other").len()), (1, 2));
}

#[test]
fn mistakes_in_rules_name_the_place() {
    let cases = [
        (json!([]), "there is no rule", None),
        (json!([{"to": "a"}, {"to": "b", "source": "1.2"}]), "`1.2` is no IP address", Some("1")),
        (
            json!([{"to": "a", "source": "::1", "destination": "1.2.3.4"}]),
            "`::1` and `1.2.3.4` are addresses of two families",
            Some("0"),
        ),
        (json!([{"to": "other"}]), "a rule cannot lead to `other`, which is for all other packets", Some("0")),
        (json!([{"to": "a", "port": 7}]), "a port needs a protocol that has ports", Some("0")),
        (
            json!([{"to": "a", "protocol": "gre"}, {"to": "b", "protocol": 47}]),
            "an earlier rule has the same fields",
            Some("1"),
        ),
    ];
    for (rules, message, item) in cases {
        let error = configure(rules).err().unwrap();
        assert_eq!((error.message.as_str(), error.part.steps.first().map(String::as_str)), (message, item));
    }
}

#[test]
fn errors_that_a_packet_was_too_long_go_to_who_has_sent_it() {
    let rules = json!([
        {"to": "a", "protocol": "gre"},
        {"to": "b", "protocol": "udp", "port": 4789, "source": "192.0.2.2"},
        {"to": "c", "protocol": "udp", "port": 4500},
    ]);
    let mut rig = Rig::new(configure(rules).unwrap(), &["input"], &OUTPUTS);
    let sent = |is_v6: bool, to: u8, protocol: u8, ports: [u16; 2]| {
        let behind = [&ports[0].to_be_bytes()[..], &ports[1].to_be_bytes(), &[0; 40]].concat();
        ip(IpPair::new(address(is_v6, 1), address(is_v6, to)).unwrap(), IpProtocol(protocol), &behind)
    };
    let mut damaged = too_big(&sent(false, 2, 47, [0, 0]), 576);
    *damaged.last_mut().unwrap() ^= 1;
    for (packet, expected) in [
        (too_big(&sent(false, 2, 47, [0, 0]), 576), "a"),
        (too_big(&sent(true, 2, 47, [0, 0]), 1_280), "a"),
        (too_big(&sent(false, 2, 17, [50_000, 4_789]), 576), "b"),
        (too_big(&sent(false, 3, 17, [50_000, 4_789]), 576), "other"),
        (too_big(&sent(true, 3, 17, [4_500, 50_000]), 1_280), "c"),
        (too_big(&sent(true, 3, 6, [4_500, 4_500]), 1_280), "other"),
        (damaged, "other"),
    ] {
        rig.send("input", [&packet]);
        rig.settle();
        let arrived = OUTPUTS.map(|output| rig.received(output).len());
        assert_eq!(arrived, OUTPUTS.map(|output| usize::from(output == expected)), "{packet:02x?}");
    }
}
