use std::net::IpAddr;

use bellows_rig::Rig;
use bellows_vrf::Vrf;
use bellows_vrf::interface::InterfaceAddress;
use bellows_wire::MacAddr;
use proptest::prelude::*;

use super::*;
use crate::policy::Policy;

/// A packet of UDP from a source to a port.
fn udp(source: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&46u16.to_be_bytes());
    (frame[22], frame[23]) = (64, 17);
    frame[26..30].copy_from_slice(&source);
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}

fn list(rules: &[&str]) -> AccessList {
    let rules = rules.iter().map(|&rule| rule.to_owned()).collect();
    AccessList::configure(Config { rules, ..Config::default() }, &Context::default()).unwrap()
}

/// The packets of each rule.
fn packets(rig: &Rig) -> Vec<u64> {
    let status = rig.status().unwrap();
    let lists = status["lists"].as_array().unwrap();
    let rules = lists.iter().flat_map(|list| list["rules"].as_array().unwrap());
    rules.map(|rule| rule["packets"].as_u64().unwrap()).collect()
}

#[test]
fn the_first_rule_that_matches_counts() {
    let rules = ["deny src host 10.0.0.1", "reject udp port 7", "permit udp portrange 1-9"];
    let mut rig = Rig::new(list(&rules), &["input"], &["output", "error"]);
    let frames = [([10, 0, 0, 1], 7), ([10, 0, 0, 2], 7), ([10, 0, 0, 2], 8), ([10, 0, 0, 2], 8), ([10, 0, 0, 2], 10)];
    rig.send("input", frames.map(|(source, port)| udp(source, port)));
    rig.settle();
    assert_eq!((rig.received("output").len(), packets(&rig)), (2, vec![1, 1, 2, 1]));
    let told = rig.received_packets("error");
    let error = IcmpError::from_number(Tag(told[0].tag()).number());
    assert_eq!((told.len(), error), (1, IcmpError::of(Reason::Prohibited)));
    let counts = rig.counts();
    assert_eq!((counts.drops["denied"], counts.counters["permitted"], counts.counters["rejected"]), (2, 2, 1));
}

#[test]
fn rules_that_cannot_be_are_refused_by_key() {
    let refused = |rules: &[&str], vrf: Option<&str>| {
        let rules = rules.iter().map(|&rule| rule.to_owned()).collect();
        let config = Config { rules, vrf: vrf.map(str::to_owned), ..Config::default() };
        AccessList::configure(config, &Context::default()).map(drop).unwrap_err()
    };
    for (error, said) in [
        (refused(&[], None), "without rules"),
        (refused(&["permit"], Some("vrf")), "exclude each other"),
        (refused(&["permit", "allow tcp"], None), "`allow tcp`: "),
        (refused(&["permit tcp prot 7"], None), "`permit tcp prot 7`: "),
    ] {
        assert!(error.key == Some("rules") && error.message.contains(said), "{error:?}");
    }
}

/// A SYN to a port over IPv6, behind these headers.
fn syn(first: u8, headers: &[u8], port: u16) -> Vec<u8> {
    let mut frame = vec![0; 14 + 40];
    (frame[12], frame[13], frame[14], frame[20], frame[21]) = (0x86, 0xdd, 0x60, first, 64);
    frame[19] = headers.len() as u8 + 20;
    frame.extend(headers);
    frame.extend([[0, 99], port.to_be_bytes()].concat());
    frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
    frame
}

#[test]
fn a_packet_that_cannot_be_decided_is_refused_and_counted() {
    const OPTIONS: [u8; 8] = [6, 0, 1, 4, 0, 0, 0, 0];
    let frames = |port| {
        let later = [6, 0, 0, 8, 0, 0, 0, 1];
        let mut cut = syn(60, &OPTIONS, port);
        cut.truncate(64);
        let many = [&[60, 0, 1, 4, 0, 0, 0, 0].repeat(16)[..], &OPTIONS].concat();
        [syn(6, &[], port), syn(60, &OPTIONS, port), syn(44, &later, port), cut, syn(60, &many, port)]
    };
    for (port, passing, denied) in [(22, 0, 2), (23, 2, 0)] {
        let mut rig = Rig::new(list(&["deny tcp dst port 22", "permit"]), &["input"], &["output", "error"]);
        rig.send("input", frames(port));
        rig.settle();
        assert_eq!(rig.received("output").len(), passing, "{port}");
        let drops = rig.counts().drops;
        let of = |reason| drops.get(reason).copied().unwrap_or_default();
        assert_eq!(["denied", "undecided_fragment", "undecided_short", "undecided_headers"].map(of), [denied, 1, 1, 1]);
        assert_eq!(packets(&rig), [denied, passing as u64, 0]);
    }
}

fn domain(access_in: &[&str], access_out: &[&str]) -> Arc<RoutingDomain> {
    let interface = |number: u8| Interface {
        name: format!("i{number}"),
        port: format!("i{number}"),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: vec![
            InterfaceAddress { address: IpAddr::from([10, 0, number, 1]), length: 24 },
            InterfaceAddress { address: format!("2001:db8:{number}::1").parse().unwrap(), length: 64 },
        ],
    };
    let read = |rules: &[&str]| rules.iter().map(|rule| Rule::parse(rule).unwrap()).collect();
    let vrf = Vrf::new(vec![interface(1), interface(2)], 16, 1).unwrap();
    let policy = Policy { access_in: read(access_in), access_out: read(access_out), ..Policy::default() };
    Arc::new(RoutingDomain::with_policies(vrf, vec![Policy::default(), policy]))
}

fn of_domain(domain: &Arc<RoutingDomain>, direction: Direction) -> Rig {
    let (lists, by_interface) = AccessList::of_interfaces(domain, direction, &Context::default()).unwrap();
    let shown = Arc::new(Shown(lists.iter().map(List::counts).collect()));
    let (next_vectors, verdicts) = (NextVectors::new(), vec![Fate::By(RuleAction::Deny); CAPACITY]);
    let domain = Some(Arc::clone(domain));
    let list = AccessList { domain, direction, lists, by_interface, shown, next_vectors, verdicts };
    Rig::new(list, &["input"], &["output"])
}

#[test]
fn an_interface_has_its_own_rules() {
    let domain = domain(&["permit udp port 8"], &["permit udp port 9"]);
    let adjacency = |host: [u8; 4]| {
        let changes = domain.tables().lock();
        changes.look_up(IpAddr::from(host)).unwrap().1.next
    };
    for (direction, port) in [(Direction::In, 8), (Direction::Out, 9)] {
        let mut rig = of_domain(&domain, direction);
        let packet = |received_on: u16, to: [u8; 4], port: u16| {
            let mut packet = Packet::from_bytes(&udp([1, 2, 3, 4], port)).unwrap();
            packet.set_tag(Tag::received_on(received_on).with(adjacency(to)).0);
            packet
        };
        let (there, back) = ((1, [10, 0, 2, 9]), (2, [10, 0, 1, 9]));
        let (ruled, free) = if direction == Direction::In { (back, there) } else { (there, back) };
        let packets_of = [(ruled, port), (ruled, 7), (free, 7), (ruled, port)];
        rig.send_packets("input", packets_of.map(|((on, to), port)| packet(on, to, port)));
        rig.settle();
        // The first rule for what comes in is that of neighbour discovery.
        let counts = if direction == Direction::In { vec![0, 2, 1] } else { vec![2, 1] };
        assert_eq!((rig.received("output").len(), packets(&rig)), (3, counts), "{direction:?}");
    }
}

#[test]
fn neighbour_discovery_on_the_link_passes_any_rules() {
    let domain = domain(&["deny"], &[]);
    let discovery = |kind: u8, limit: u8, destination: &str| {
        let mut frame = vec![0; 14 + 40 + 24];
        (frame[12], frame[13], frame[14]) = (0x86, 0xdd, 0x60);
        (frame[19], frame[20], frame[21]) = (24, 58, limit);
        frame[38..54].copy_from_slice(&destination.parse::<std::net::Ipv6Addr>().unwrap().octets());
        frame[54] = kind;
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(2).0);
        packet
    };
    let mut rig = of_domain(&domain, Direction::In);
    let passing = [(133, 255, "ff02::2"), (135, 255, "2001:db8:2::1"), (136, 255, "fe80::1")];
    let denied = [(135, 254, "ff02::1"), (128, 255, "ff02::1"), (135, 255, "2001:db8:1::1"), (136, 255, "2001:db8::9")];
    let messages = passing.into_iter().chain(denied);
    rig.send_packets("input", messages.map(|(kind, limit, destination)| discovery(kind, limit, destination)));
    rig.settle();
    assert_eq!((rig.received("output").len(), rig.counts().drops["denied"]), (3, 4));
    // Queries and reports of multicast groups are behind a router alert.
    let listeners = |kind: u8, limit: u8, destination: &str| {
        let mut packet = discovery(0, limit, destination);
        let frame = packet.bytes_mut();
        frame[20] = 0;
        frame[54..62].copy_from_slice(&bellows_wire::mld::ROUTER_ALERT);
        frame[62] = kind;
        packet
    };
    let passing = [(130, 1, "ff02::1"), (131, 1, "ff02::1:ff00:1"), (132, 1, "ff02::2"), (143, 1, "ff02::16")];
    let denied = [(130, 2, "ff02::1"), (128, 1, "ff02::1"), (130, 1, "2001:db8::9")];
    let messages = passing.into_iter().chain(denied);
    rig.send_packets("input", messages.map(|(kind, limit, destination)| listeners(kind, limit, destination)));
    rig.settle();
    assert_eq!((rig.received("output").len(), rig.counts().drops["denied"]), (4, 7));
}

proptest! {
    #[test]
    fn long_lists_are_decided_as_one_rule_after_the_other(
        rules in prop::collection::vec((0u8..3, 0u16..40), 1..200),
        ports in prop::collection::vec(0u16..50, 1..100),
    ) {
        let words = ["permit", "deny", "reject"];
        let texts: Vec<String> =
            rules.iter().map(|(action, port)| format!("{} udp dst port {port}", words[usize::from(*action)])).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut rig = Rig::new(list(&texts), &["input"], &["output", "error"]);
        rig.send("input", ports.iter().map(|&port| udp([10, 0, 0, 1], port)));
        rig.settle();
        let rule = |port: u16| rules.iter().position(|(_, of)| *of == port);
        let of = |action: u8| ports.iter().filter(|&&port| rule(port).is_some_and(|at| rules[at].0 == action)).count();
        prop_assert_eq!((rig.received("output").len(), rig.received("error").len()), (of(0), of(2)));
        let mut expected = vec![0; rules.len() + 1];
        ports.iter().for_each(|&port| expected[rule(port).unwrap_or(rules.len())] += 1);
        prop_assert_eq!(packets(&rig), expected);
    }
}
