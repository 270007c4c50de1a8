//! Packets that a router must not forward, and packets that would break a careless one: each rule of RFC 1812, 4291, 8200
//! and others by itself, the captures, and random damage.

use bellows_capture::{LinkType, Reader};
use bellows_exercise::router::{ALL_KEYS, MACS, PLAIN, Router, seal};
use bellows_testkit::captures;
use bellows_wire::checksum::Sum;
use proptest::prelude::*;

/// A UDP packet of IPv4 from behind the left interface to behind the right one: the header begins at byte 14.
fn v4() -> Vec<u8> {
    v4_with(&[], 17, &[0x30, 0x39, 0, 9, 0, 18, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
}

/// A packet of IPv4 with options and contents.
fn v4_with(options: &[u8], protocol: u8, contents: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let total = (header + contents.len()) as u16;
    let [high, low] = total.to_be_bytes();
    let mut frame = [&MACS[0], &[4, 0, 0, 0, 0, 1][..], &[8, 0]].concat();
    frame.extend([0x40 | (header / 4) as u8, 0, high, low, 0x12, 0x34, 0, 0, 64, protocol, 0, 0]);
    frame.extend([192, 0, 2, 77, 8, 8, 8, 8]);
    frame.extend(options);
    frame.extend(contents);
    sealed(frame)
}

/// With the right checksum for the header's length.
fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let end = (14 + usize::from(frame[14] & 15) * 4).min(frame.len());
    let sum = Sum::new().add_bytes(&frame[14..end]).finish();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// A UDP packet of IPv6: the header begins at byte 14.
fn v6() -> Vec<u8> {
    v6_with(17, &[0x30, 0x39, 0, 9, 0, 16, 0x12, 0x34, 1, 2, 3, 4, 5, 6, 7, 8])
}

fn v6_with(next: u8, contents: &[u8]) -> Vec<u8> {
    let [high, low] = (contents.len() as u16).to_be_bytes();
    let mut frame = [&MACS[0], &[4, 0, 0, 0, 0, 1][..], &[0x86, 0xdd]].concat();
    frame.extend([0x60, 0, 0, 0, high, low, next, 64]);
    frame.extend([0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77]);
    frame.extend([0x26, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
    frame.extend(contents);
    frame
}

/// A frame with other bytes from `at` on.
fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// The same with IPv4's checksum made right again.
fn set(frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    sealed(with(frame, at, bytes))
}

/// What no router may forward.
fn forbidden() -> Vec<(String, Vec<u8>)> {
    let mut list: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |name: String, frame: Vec<u8>| list.push((name, frame));
    // The link layer: RFC 1812, 3.3 and 5.3.4.
    for (name, mac) in
        [("another station", [2, 0, 0, 0, 0, 9]), ("all stations", [255; 6]), ("a group", [1, 0, 94, 0, 0, 1])]
    {
        add(format!("IPv4 in a frame to {name}"), with(v4(), 0, &mac));
        add(format!("IPv6 in a frame to {name}"), with(v6(), 0, &mac));
    }
    add("IPv6 that says it is IPv4".into(), with(v6(), 12, &[8, 0]));
    add("IPv4 that says it is IPv6".into(), with(v4(), 12, &[0x86, 0xdd]));
    add("an IEEE 802.3 length".into(), with(v4(), 12, &[0, 46]));
    for tag in [[0x81, 0, 0, 5], [0x88, 0xa8, 0, 5], [0x91, 0, 0, 0]] {
        let mut frame = v4();
        frame.splice(12..12, tag);
        add(format!("an unknown tag {tag:02x?}"), frame);
    }
    add("a tag without an end".into(), [&v4()[..12], &[0x81, 0]].concat());
    // Frames that end too early, in each header.
    for length in 1..v4().len() {
        add(format!("the first {length} bytes of IPv4"), v4()[..length].to_vec());
    }
    for length in 1..v6().len() {
        add(format!("the first {length} bytes of IPv6"), v6()[..length].to_vec());
    }
    // IPv4's fields: RFC 1812, 5.2.2.
    for version in (0..16).filter(|&version| version != 4) {
        add(format!("IPv4 of version {version}"), set(v4(), 14, &[version << 4 | 5]));
    }
    for words in (0..16).filter(|&words| words != 5) {
        // Longer ones reach into the contents, which are no options, and some beyond the packet.
        let frame = set(v4(), 14, &[0x40 | words]);
        let is_too_long = usize::from(words) * 4 > frame.len() - 14;
        if words < 5 || is_too_long {
            add(
                format!("a header of {words} words"),
                if is_too_long { with(v4(), 14, &[0x40 | words]) } else { frame },
            );
        }
    }
    for total in [0u16, 1, 19, 39, 65_535] {
        add(format!("a total length of {total}"), set(v4(), 16, &total.to_be_bytes()));
    }
    for bit in 0..160 {
        let (at, mask) = (14 + bit / 8, 1 << (bit % 8));
        let value = v4()[at] ^ mask;
        add(format!("bit {bit} of the header is wrong"), with(v4(), at, &[value]));
    }
    for ttl in [0, 1] {
        add(format!("a time to live of {ttl}"), set(v4(), 22, &[ttl]));
    }
    add("a fragment inside of a TCP header".into(), set(v4_with(&[], 6, &[0; 40]), 20, &[0, 1]));
    for address in [
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [127, 0, 0, 1],
        [224, 0, 0, 5],
        [239, 1, 1, 1],
        [240, 0, 0, 1],
        [255; 4],
        [169, 254, 1, 1],
    ] {
        add(format!("from {address:?}"), set(v4(), 26, &address));
        add(format!("to {address:?}"), set(v4(), 30, &address));
    }
    for address in [[192, 0, 2, 255], [198, 51, 100, 255]] {
        add(format!("to all stations of a link, {address:?}"), set(v4(), 30, &address));
    }
    // IPv6's fields: RFC 8200, section 3, and RFC 4291, section 2.5.
    for version in (0..16).filter(|&version| version != 6) {
        add(format!("IPv6 of version {version}"), with(v6(), 14, &[version << 4]));
    }
    for length in [17u16, 1_000, 65_535] {
        add(format!("a payload length of {length}"), with(v6(), 18, &length.to_be_bytes()));
    }
    for limit in [0, 1] {
        add(format!("a hop limit of {limit}"), with(v6(), 21, &[limit]));
    }
    let mut one = [0; 16];
    one[15] = 1;
    let [mut link, mut group, mut wide] = [[0; 16]; 3];
    link[..2].copy_from_slice(&[0xfe, 0x80]);
    link[15] = 9;
    group[..2].copy_from_slice(&[0xff, 2]);
    group[15] = 1;
    wide[..2].copy_from_slice(&[0xff, 0x0e]);
    for (name, address) in
        [("no one", [0; 16]), ("itself", one), ("one link", link), ("a group", group), ("a group everywhere", wide)]
    {
        add(format!("from {name}"), with(v6(), 22, &address));
        add(format!("to {name}"), with(v6(), 38, &address));
    }
    list
}

/// What may be forwarded, or answered, or dropped, but is dangerous to read.
fn dangerous() -> Vec<(String, Vec<u8>)> {
    let mut list: Vec<(String, Vec<u8>)> = Vec::new();
    let contents = [0; 16];
    // RFC 791, 3.1: each option by itself, with each length, also behind others.
    for kind in [0, 1, 2, 7, 68, 82, 131, 136, 137, 148, 149, 255] {
        for length in [0, 1, 2, 3, 4, 7, 8, 9, 255] {
            for pointer in [0, 3, 4, 5, 8, 9, 255] {
                let options = [kind, length, pointer, 0, 192, 0, 2, 1];
                list.push((format!("option {options:?}"), v4_with(&options, 17, &contents)));
            }
        }
        list.push((format!("option {kind} without its length"), v4_with(&[1, 1, 1, kind], 17, &contents)));
    }
    // To the router itself, too: fragments, and ICMP messages that end too early or say anything.
    for own in [[192, 0, 2, 1], [198, 51, 100, 1]] {
        for (offset, more) in [(0, true), (1, false), (8_191, true), (8_191, false)] {
            let field: u16 = offset | if more { 0x2000 } else { 0 };
            let frame = set(set(v4(), 20, &field.to_be_bytes()), 30, &own);
            list.push((format!("a fragment at {offset} to {own:?}"), frame));
        }
        for kind in 0..=255 {
            for length in [0, 1, 4, 7, 8, 28, 36] {
                let mut message = vec![0x45; length];
                message.iter_mut().zip([kind, 0, 0, 0]).for_each(|(byte, value)| *byte = value);
                let sum = Sum::new().add_bytes(&message).finish().to_be_bytes();
                message.iter_mut().skip(2).zip(sum).for_each(|(byte, value)| *byte = value);
                list.push((
                    format!("ICMP {kind} of {length} bytes to {own:?}"),
                    set(v4_with(&[], 1, &message), 30, &own),
                ));
            }
        }
    }
    let own = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    // RFC 8200, section 4: each extension header, of each length, once and in a row.
    for next in [0, 43, 44, 50, 51, 58, 59, 60, 135, 139, 140, 253] {
        for length in [0, 1, 2, 255] {
            for option in [[0, 0], [1, 4], [1, 255], [5, 2], [0xc2, 4], [0x3e, 1], [0x7e, 1], [0xbe, 1], [0xfe, 1]] {
                let header = [next, length, option[0], option[1], 0, 0, 0, 0];
                let contents = [header, header, header].concat();
                for first in [0, 43, 44, 60] {
                    let frame = v6_with(first, &contents);
                    list.push((format!("IPv6 {first} with {header:?} to itself"), with(frame.clone(), 38, &own)));
                    list.push((format!("IPv6 {first} with {header:?}"), frame));
                }
            }
        }
    }
    for kind in 0..=255 {
        list.push((format!("ICMPv6 {kind} with a wrong checksum"), with(v6_with(58, &[kind; 24]), 38, &own)));
    }
    // With right checksums: each message of RFC 4443, 4861, 2710 and 3810, and some of none.
    let station = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77];
    let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1];
    for kind in [1, 2, 3, 4, 100, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 143, 200, 255] {
        for (length, hops) in
            [0, 1, 4, 8, 20, 24, 26, 32, 48].into_iter().flat_map(|length| [(length, 64), (length, 255)])
        {
            for (source, destination) in
                [(station, own), (station, group), ([0; 16], own), ([0; 16], group), (own, own)]
            {
                // An option without a length, one that is longer than the message, and one of 8 bytes.
                for option in [[1, 0], [1, 200], [2, 1]] {
                    let mut message = vec![0; length];
                    message.iter_mut().skip(8).zip(own).for_each(|(byte, value)| *byte = value);
                    message.iter_mut().skip(24).zip(option).for_each(|(byte, value)| *byte = value);
                    message.iter_mut().take(1).for_each(|byte| *byte = kind);
                    let mut frame = with(with(v6_with(58, &message), 22, &source), 38, &destination);
                    frame[21] = hops;
                    seal(&mut frame);
                    let name = format!(
                        "ICMPv6 {kind} of {length} bytes with {option:?}, {hops} hops, {source:?} to {destination:?}"
                    );
                    list.push((name, frame));
                }
            }
        }
    }
    // RFC 826: each field with other values, and each length.
    let arp = |bytes: &[u8]| [&[255; 6], &[4, 0, 0, 0, 0, 1][..], &[8, 6], bytes].concat();
    let request =
        [&[0, 1, 8, 0, 6, 4, 0, 1, 4, 0, 0, 0, 0, 1, 192, 0, 2, 77, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1][..]].concat();
    for length in 0..request.len() {
        list.push((format!("{length} bytes of ARP"), arp(&request[..length])));
    }
    for at in 0..request.len() {
        for value in [0, 1, 2, 127, 255] {
            list.push((format!("ARP with {value} at {at}"), arp(&with(request.clone(), at, &[value]))));
        }
    }
    list
}

#[test]
fn usual_packets_are_forwarded() {
    let mut router = Router::new();
    for (name, frame) in
        [("IPv4", v4()), ("IPv6", v6()), ("a record of the route", v4_with(&[7, 7, 4, 0, 0, 0, 0, 0], 17, &[9; 9]))]
    {
        assert_eq!(PLAIN.may_forward(0, &frame), Ok(()), "{name}");
        assert!(router.check(0, &frame), "{name}");
        // Padding behind the end is fine.
        assert!(router.check(0, &[&frame[..], &[0; 20]].concat()), "{name} with padding");
    }
}

#[test]
fn nothing_is_forwarded_that_a_router_must_drop() {
    let mut router = Router::new();
    let list = forbidden();
    assert!(list.len() > 350, "{}", list.len());
    for (name, frame) in list {
        assert!(PLAIN.may_forward(0, &frame).is_err(), "the rules allow {name}");
        assert!(!router.check(0, &frame), "{name} was forwarded");
    }
    assert!(router.check(0, &v4()) && router.check(0, &v6()), "it still works");
}

#[test]
fn nothing_breaks_a_router() {
    for mut router in [Router::new(), Router::of(&ALL_KEYS)] {
        for (name, frame) in dangerous() {
            // The name shows if the check panics.
            println!("{name}");
            router.check(0, &frame);
        }
        assert!(router.check(0, &v4()) && router.check(0, &v6()), "it still works");
    }
}

/// The frame with tags.
fn tagged(frame: &[u8], tags: &[u8]) -> Vec<u8> {
    [&frame[..12], tags, &frame[12..]].concat()
}

#[test]
fn the_keys_of_a_router_decide_what_it_forwards() {
    let mut router = Router::of(&ALL_KEYS);
    let five = |frame: Vec<u8>| tagged(&with(frame, 0, &[2, 0, 0, 0, 0, 3]), &[0x81, 0, 0, 5]);
    let to_port = |port: u16| sealed(with(v4(), 36, &port.to_be_bytes()));
    for (name, frame, is_forwarded) in [
        ("a usual packet", v4(), true),
        ("one of IPv6", v6(), true),
        ("a record of the route", v4_with(&[7, 7, 4, 0, 0, 0, 0, 0], 17, &[9; 9]), true),
        ("one to a port that is rejected", to_port(7), false),
        ("one to a next hop of IPv6", set(v4(), 30, &[100, 64, 0, 1]), true),
        ("one into the black hole", set(v4(), 30, &[198, 18, 0, 1]), false),
        ("one of a VLAN that nobody has", tagged(&v4(), &[0x81, 0, 0, 6]), false),
        ("one of another link on a VLAN", five(v4()), false),
        ("one of its own link on a VLAN", five(set(v4(), 26, &[10, 5, 0, 7])), true),
    ] {
        assert_eq!(router.check(0, &frame), is_forwarded, "{name}");
        let options = v4_with(&[7, 7, 4, 0, 0, 0, 0, 0], 6, &[0x30, 0x39, 0, 23, 0, 0, 0, 0]);
        assert!(!router.check(0, &options), "rules hold for packets with options as well");
    }
}

#[test]
fn packets_of_captures_are_forwarded_or_dropped_rightly() {
    let Some(real) = captures::real("packets_of_captures_are_forwarded_or_dropped_rightly") else { return };
    /// Packets of each file: damaged ones are in small files.
    const PER_FILE: usize = 60;
    let mut router = Router::new();
    let (mut forwarded, mut seen) = (0, 0);
    for path in captures::own().into_iter().chain(real) {
        let Ok(mut reader) = Reader::open(&path) else { continue };
        for _ in 0..PER_FILE {
            let Ok(Some(record)) = reader.next_record() else { break };
            let (interface, mut frame) = (record.interface as usize, record.data.to_vec());
            if reader.interfaces()[interface].link_type != LinkType::ETHERNET || frame.len() < 14 {
                continue;
            }
            frame[..6].copy_from_slice(&MACS[0]);
            seen += 1;
            forwarded += usize::from(router.check(0, &frame));
        }
    }
    assert!(seen > 0 && forwarded > 0, "{forwarded} of {seen}");
}

#[test]
fn senders_are_told_what_is_wrong_where() {
    // From neighbours that the router knows.
    let from_v4 = |frame| set(frame, 26, &[192, 0, 2, 2]);
    let near = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let own = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let to_itself = |next, contents: &[u8]| with(with(v6_with(next, contents), 22, &near), 38, &own);
    let wrong = [7, 7, 5, 0, 0, 0, 0, 0];
    let mut looped = v4_with(&wrong, 1, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    looped[30..34].copy_from_slice(&[192, 0, 2, 1]);
    let (padding, datagram) = ([1, 4, 0, 0, 0, 0], [0x30, 0x39, 0, 9, 0, 8, 0, 0]);
    let misplaced = [&[0, 0][..], &padding, &[17, 0], &padding, &datagram].concat();
    for (name, frame, expected) in [
        ("a recorded route", from_v4(v4_with(&wrong, 17, &[9; 16])), [12, 0, 22, 0, 0, 0]),
        ("the same to the router", from_v4(sealed(looped)), [12, 0, 22, 0, 0, 0]),
        ("a list that ends in an option", from_v4(v4_with(&[1, 1, 1, 7], 17, &[9; 16])), [12, 0, 23, 0, 0, 0]),
        ("a source route", from_v4(v4_with(&[131, 7, 4, 8, 8, 8, 8, 0], 17, &[9; 16])), [3, 5, 0, 0, 0, 0]),
        ("hop-by-hop options in second place", to_itself(60, &misplaced), [4, 1, 0, 0, 0, 40]),
        ("a first fragment", to_itself(44, &[60, 0, 0, 1, 0, 0, 0, 9, 17, 9, 1, 4, 0, 0, 0, 0]), [4, 3, 0, 0, 0, 0]),
    ] {
        let mut router = Router::new();
        let answers = router.carry(0, &frame);
        let header = if frame[12] == 8 { 34 } else { 54 };
        let told = answers
            .iter()
            .map(|(port, answer)| (*port, [&answer[header..header + 2], &answer[header + 4..header + 8]].concat()));
        assert_eq!(told.collect::<Vec<_>>(), [(0, expected.to_vec())], "{name}");
        assert!(!router.check(0, &frame), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damage_and_noise_do_no_harm(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        damage in prop::collection::vec((any::<u16>(), any::<u8>()), 0..4),
        kind in 0usize..4,
        is_sealed in any::<bool>(),
        port in 0usize..2,
        has_all_keys in any::<bool>(),
    ) {
        let mut frame = match kind {
            0 => noise,
            1 => [&v4()[..34], &noise].concat(),
            2 => [&v6()[..54], &noise].concat(),
            _ => v4_with(&noise[..noise.len().min(40) & !3], 1, &noise),
        };
        for (at, value) in damage {
            let at = usize::from(at) % frame.len().max(1);
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        if frame.len() >= 34 && is_sealed {
            frame[..6].copy_from_slice(&MACS[port]);
            if frame[12..14] == [8, 0] {
                frame = sealed(frame);
            }
        }
        let mut router = if has_all_keys { Router::of(&ALL_KEYS) } else { Router::new() };
        router.check(port, &frame);
        prop_assert!(router.check(0, &v4()), "it still works");
    }
}
