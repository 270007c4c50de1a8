use std::cell::Cell;
use std::os::fd::AsFd;

use bellows_testkit::skip;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::assembler::{Assembler, Operation, R0, Register};
use super::filter::tests::any_match;
use super::program::{XDP_PASS, assemble};
use super::*;
use crate::xdp;

const XDP_DROP: u32 = 1;
const XDP_REDIRECT: u32 = 4;

/// An empty map, unless the test is skipped because the user may not make one.
fn map(test: &str) -> Option<SocketMap> {
    match SocketMap::new(4) {
        Ok(map) => Some(map),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
            skip(test, "needs CAP_BPF and CAP_NET_ADMIN");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The fields of a frame, as the filter's documentation defines them.
#[derive(Debug, Default)]
struct Fields {
    destination: Option<[u8; 6]>,
    ethertype: Option<u16>,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Reads a frame in the most simple way. Stops at the first header that is cut off.
fn fields(frame: &[u8]) -> Fields {
    let mut fields = Fields::default();
    let _ = read(frame, &mut fields);
    fields
}

fn read(frame: &[u8], fields: &mut Fields) -> Option<()> {
    let mut ethertype = half(frame, 12)?;
    fields.destination = frame[..6].try_into().ok();
    let mut rest = &frame[14..];
    for _ in 0..2 {
        if ethertype == 0x8100 || ethertype == 0x88a8 {
            ethertype = half(rest, 2)?;
            rest = &rest[4..];
        }
    }
    fields.ethertype = Some(ethertype);
    let (protocol, payload) = match ethertype {
        0x0800 => {
            fields.protocol = Some(rest.get(..20)?[9]);
            let length = usize::from(rest[0] & 15) * 4;
            let first = half(rest, 6)? & 0x1fff == 0;
            (rest[9], (first && length >= 20).then(|| rest.get(length..)).flatten()?)
        }
        0x86dd => {
            let mut next = rest.get(..40)?[6];
            fields.protocol = Some(next);
            rest = &rest[40..];
            for _ in 0..4 {
                let skipped = match next {
                    0 | 43 | 60 | 135 => 8 * (usize::from(rest.get(..8)?[1]) + 1),
                    44 => 8,
                    51 => 4 * (usize::from(rest.get(..8)?[1]) + 2),
                    _ => break,
                };
                let later = next == 44 && half(rest.get(..8)?, 2)? & 0xfff8 != 0;
                next = rest[0];
                fields.protocol = Some(next);
                if later {
                    return None;
                }
                rest = rest.get(skipped..).unwrap_or_default();
            }
            (next, rest)
        }
        _ => return None,
    };
    if matches!(protocol, 6 | 17 | 132) {
        fields.ports = Some((half(payload, 0)?, half(payload, 2)?));
    }
    Some(())
}

fn holds(wanted: &Match, fields: &Fields) -> bool {
    match wanted {
        Match::All => true,
        Match::EtherType(number) => fields.ethertype == Some(*number),
        Match::Destination(address) => fields.destination == Some(*address),
        Match::Protocol { version, number } => {
            let ethertype = version.map(|version| if version == IpVersion::V4 { 0x0800 } else { 0x86dd });
            fields.protocol == Some(*number) && (ethertype.is_none() || ethertype == fields.ethertype)
        }
        Match::Port { protocol, direction, ports } => {
            let number = protocol.map(|protocol| match protocol {
                PortProtocol::Tcp => 6,
                PortProtocol::Udp => 17,
                PortProtocol::Sctp => 132,
            });
            let Some((source, destination)) = fields.ports else { return false };
            let found = match direction {
                Some(PortDirection::Source) => ports.contains(&source),
                Some(PortDirection::Destination) => ports.contains(&destination),
                None => ports.contains(&source) || ports.contains(&destination),
            };
            found && (number.is_none() || number == fields.protocol)
        }
    }
}

fn goes_to_socket(filter: &Filter, frame: &[u8]) -> bool {
    let fields = fields(frame);
    let any = |list: &[Match]| list.iter().any(|wanted| holds(wanted, &fields));
    any(&filter.redirect) && !any(&filter.pass)
}

/// A port, often one that matches have.
fn port() -> impl Strategy<Value = [u8; 2]> {
    prop_oneof![0u16..8, any::<u16>()].prop_map(u16::to_be_bytes)
}

/// A protocol above IP: ones with ports, extension headers, and others.
fn protocol() -> impl Strategy<Value = u8> {
    prop_oneof![6 => prop::sample::select(vec![1, 6, 17, 58, 132]), 4 => prop::sample::select(vec![0, 43, 44, 51, 60, 135]),
        1 => any::<u8>()]
}

fn ports() -> impl Strategy<Value = Vec<u8>> {
    (port(), port()).prop_map(|(source, destination)| [source, destination].concat())
}

/// A number with one bit set: one of the flags or a bit of the offset of a fragment.
fn single_bit() -> impl Strategy<Value = u16> {
    (0..16).prop_map(|bit| 1u16 << bit)
}

fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let words = prop_oneof![4 => Just(5u8), 1 => 0u8..16];
    let fragment = prop_oneof![3 => Just(0), 3 => single_bit(), 1 => any::<u16>()];
    let header = (words, fragment, protocol());
    header.prop_flat_map(|(words, fragment, protocol)| {
        let mut packet = vec![0; 20.max(usize::from(words) * 4)];
        packet[0] = 0x40 | words;
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[9] = protocol;
        ports().prop_map(move |ports| [packet.as_slice(), &ports].concat())
    })
}

fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    let extension = (protocol(), prop_oneof![4 => 0u8..3, 1 => any::<u8>()], prop::bool::weighted(0.6), single_bit());
    (protocol(), prop::collection::vec(extension, 6), ports()).prop_map(|(first, extensions, ports)| {
        let mut packet = vec![0; 40];
        packet[6] = first;
        let mut next = first;
        for (following, length, is_first, offset) in extensions {
            let bytes = match next {
                0 | 43 | 60 | 135 => 8 * (usize::from(length) + 1),
                44 => 8,
                51 => 4 * (usize::from(length) + 2),
                _ => break,
            };
            let mut header = vec![0; bytes.max(8)];
            header[0] = following;
            header[1] = length;
            if next == 44 && !is_first {
                header[2..4].copy_from_slice(&offset.to_be_bytes());
            }
            packet.extend_from_slice(&header[..bytes.max(8)]);
            next = following;
        }
        packet.extend_from_slice(&ports);
        packet
    })
}

/// A frame with the headers that matches read, sometimes cut off. The kernel accepts no test frame below 14 bytes.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop::collection::vec(prop::sample::select(vec![0x8100_u16, 0x88a8]), 0..4);
    let destination = prop_oneof![Just([2, 0, 0, 0, 0, 1]), any::<[u8; 6]>()];
    let payload = prop_oneof![
        3 => ipv4().prop_map(|packet| (0x0800, packet)),
        3 => ipv6().prop_map(|packet| (0x86dd, packet)),
        1 => (any::<u16>(), prop::collection::vec(any::<u8>(), 0..80)),
    ];
    let cut = prop_oneof![3 => Just(usize::MAX), 1 => 14usize..120];
    (destination, tags, payload, cut).prop_map(|(destination, tags, (ethertype, payload), cut)| {
        let mut frame = [&destination[..], &[2, 0, 0, 0, 0, 2]].concat();
        tags.iter().for_each(|tag| frame.extend([(tag >> 8) as u8, *tag as u8, 0, 1]));
        frame.extend(u16::to_be_bytes(ethertype));
        frame.extend(payload);
        // A test frame is one buffer of a page, less the room before and behind it.
        frame.truncate(cut.min(3000));
        frame
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    let list = |max| prop::collection::vec(any_match(), 0..max);
    (list(6), list(4)).prop_map(|(redirect, pass)| Filter { redirect, pass })
}

/// A program whose frames for sockets are dropped, which a test can tell from those for the kernel.
fn dropping(filter: &Filter) -> Program {
    let drop = |assembler: &mut Assembler, _: Register| {
        assembler.compute(Operation::Move, R0, XDP_DROP.cast_signed());
        assembler.exit();
    };
    Program::load_instructions(&assemble(filter, drop).unwrap(), true).unwrap()
}

fn verdict(program: &Program, frame: &[u8]) -> bool {
    match program.run(frame).unwrap() {
        XDP_DROP => true,
        result => {
            assert_eq!(result, u32::from(XDP_PASS));
            false
        }
    }
}

#[test]
fn the_program_decides_as_the_simplest_matcher_does() {
    if map("the_program_decides_as_the_simplest_matcher_does").is_none() {
        return;
    }
    let config = Config { cases: bellows_testkit::soak::cases(200), failure_persistence: None, ..Config::default() };
    let cases = (filter(), prop::collection::vec(frame(), 50));
    let counts = [const { Cell::new(0) }; 2];
    let result = TestRunner::new(config).run(&cases, |(filter, frames)| {
        let program = dropping(&filter);
        for frame in frames {
            let expected = goes_to_socket(&filter, &frame);
            counts[usize::from(expected)].update(|count: u32| count + 1);
            prop_assert_eq!(verdict(&program, &frame), expected, "{:02x?} {:?}", frame, fields(&frame));
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(counts.iter().all(|count| count.get() > 500), "{counts:?} kept and redirected");
}

/// The longest path through the headers, and as many matches as anybody writes.
#[test]
fn the_verifier_accepts_long_filters() {
    if map("the_verifier_accepts_long_filters").is_none() {
        return;
    }
    let ports = |first: u16| format!("port {first}-{}", first + 1).parse().unwrap();
    let filter = Filter { redirect: (0..200).map(|n| ports(n * 10)).collect(), pass: (0..200).map(ports).collect() };
    dropping(&filter);
    let filter = Filter { redirect: vec!["port 1".parse().unwrap(); 20_000], pass: Vec::new() };
    let error = assemble(&filter, |assembler, _| assembler.exit());
    assert_eq!(error, Err(super::assembler::JumpTooFar));
}

#[test]
fn the_program_for_all_frames_is_minimal() {
    let count = |redirect: &[&str], pass: &[&str]| {
        let parse = |words: &[&str]| words.iter().map(|words| words.parse().unwrap()).collect();
        let filter = Filter { redirect: parse(redirect), pass: parse(pass) };
        assemble(&filter, program::redirect_to(3)).unwrap().len()
    };
    assert_eq!(count(&["all"], &[]), 6);
    assert_eq!(count(&["arp", "all", "tcp port 80"], &[]), 6);
    assert_eq!(count(&[], &["arp"]), 2);
    assert_eq!(count(&["arp"], &["arp", "all"]), 2);
    assert!(count(&["all"], &["arp"]) < 48);
}

/// A test run reports the redirection, but does not execute it.
#[test]
fn frames_go_to_the_socket_of_their_queue() {
    let Some(map) = map("frames_go_to_the_socket_of_their_queue") else { return };
    assert_eq!(map.queues(), 4);
    let filter = Filter { redirect: vec!["arp".parse().unwrap()], pass: Vec::new() };
    let programs = [Filter::all(), filter].map(|filter| Program::load(&filter, &map, true).unwrap());
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[8, 6], &[0; 28]].concat();
    let results = || programs.each_ref().map(|program| program.run(&arp).unwrap());
    let kept = [u32::from(XDP_PASS); 2];
    assert_eq!(results(), kept, "without a socket the kernel keeps the frame");
    let (socket, rings) = xdp::Socket::new(xdp::RingSizes::default()).unwrap();
    map.insert(0, socket.as_fd()).unwrap();
    assert_eq!(results(), [XDP_REDIRECT; 2]);
    map.remove(0).unwrap();
    assert_eq!(results(), kept);
    map.insert(0, socket.as_fd()).unwrap();
    map.insert(3, socket.as_fd()).unwrap();
    assert_eq!(map.insert(4, socket.as_fd()).unwrap_err().raw_os_error(), Some(libc::E2BIG));
    let file = bellows_ipc::memfd::create(1).unwrap();
    assert!(map.insert(0, file.as_fd()).is_err());
    drop((socket, rings));
    bellows_testkit::eventually("a closed socket leaves the map", || results() == kept);
}

#[test]
fn a_rejected_program_has_the_verifiers_reason() {
    if map("a_rejected_program_has_the_verifiers_reason").is_none() {
        return;
    }
    let mut assembler = Assembler::default();
    assembler.exit();
    let error = Program::load_instructions(&assembler.finish().unwrap(), false).unwrap_err();
    assert!(matches!(error, LoadError::Rejected { .. }), "{error}");
    assert!(error.to_string().contains("R0 !read_ok"), "{error}");
}

#[test]
fn an_unknown_program_number_is_an_error() {
    if map("an_unknown_program_number_is_an_error").is_none() {
        return;
    }
    let error = program_info(u32::MAX - 1).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn an_interface_that_does_not_exist_is_an_error() {
    let Some(map) = map("an_interface_that_does_not_exist_is_an_error") else { return };
    let program = Program::load(&Filter::all(), &map, true).unwrap();
    let error = program.attach(i32::MAX.cast_unsigned(), Mode::Generic).unwrap_err();
    assert!(matches!(error, AttachError::Other(_)), "{error}");
}
