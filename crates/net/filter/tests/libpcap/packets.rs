//! Random packets: headers on top of each other as they occur, then bytes changed and ends cut off.

use bellows_filter::LinkType;
use fastrand::Rng;

use crate::oracle::Packet;

/// Random packets of a link type.
pub fn random(random: &mut Rng, link_type: LinkType, count: usize) -> Vec<Packet> {
    (0..count).map(|_| packet(random, link_type)).collect()
}

fn packet(random: &mut Rng, link_type: LinkType) -> Packet {
    let mut bytes = Vec::new();
    link(random, link_type, &mut bytes);
    if random.u8(..4) == 0 && !bytes.is_empty() {
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = number(random) as u8;
        }
    }
    let mut wire_length = bytes.len() as u32;
    if random.u8(..8) == 0 {
        wire_length = random.u32(..2000);
    }
    if random.u8(..2) == 0 {
        bytes.truncate(random.usize(..=bytes.len()));
    }
    Packet { bytes, wire_length }
}

/// A number, more often one that means something.
fn number(random: &mut Rng) -> u32 {
    match random.u8(..4) {
        0 => random.u32(..256),
        1 => random.u32(..4),
        2 => *pick(random, &[4, 6, 17, 44, 45, 51, 58, 0x40, 0x45, 0x60, 0x80, 0xff, 132]),
        _ => random.u32(..),
    }
}

fn pick<'a, T>(random: &mut Rng, choices: &'a [T]) -> &'a T {
    &choices[random.usize(..choices.len())]
}

fn mac(random: &mut Rng, bytes: &mut Vec<u8>) {
    let addresses =
        [[0, 0x1b, 0x21, 0xa, 0xb, 0xc], [2, 0, 0, 0, 0, 1], [0xff; 6], [1, 0x80, 0xc2, 0, 0, 0], [0, 1, 2, 3, 4, 5]];
    bytes.extend(pick(random, &addresses));
}

fn half(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend((number as u16).to_be_bytes());
}

fn word(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend(number.to_be_bytes());
}

fn link(random: &mut Rng, link_type: LinkType, bytes: &mut Vec<u8>) {
    match link_type {
        LinkType::Ethernet => ethernet(random, bytes, 0),
        LinkType::Raw | LinkType::Ipv4 | LinkType::Ipv6 => {
            let is_ipv6 = match link_type {
                LinkType::Ipv4 => random.u8(..8) == 0,
                LinkType::Ipv6 => random.u8(..8) != 0,
                _ => random.bool(),
            };
            if is_ipv6 { ipv6(random, bytes, 0) } else { ipv4(random, bytes, 0) }
        }
        LinkType::Cooked => {
            half(bytes, random.u32(..6));
            half(bytes, 1);
            half(bytes, 6);
            mac(random, bytes);
            half(bytes, 0);
            typed_payload(random, bytes, 0, true);
        }
        LinkType::Cooked2 => {
            let mut payload = Vec::new();
            typed_payload(random, &mut payload, 0, true);
            bytes.extend(&payload[..2]);
            half(bytes, 0);
            word(bytes, random.u32(..4));
            half(bytes, 1);
            bytes.extend([random.u8(..6), 6]);
            mac(random, bytes);
            half(bytes, 0);
            bytes.extend(&payload[2..]);
        }
        LinkType::Null | LinkType::Loop => {
            let family = *pick(random, &[2u32, 2, 24, 28, 30, 10, 7]);
            let is_swapped = random.u8(..8) == 0;
            let is_native = (link_type == LinkType::Null) != is_swapped;
            bytes.extend(if is_native { family.to_ne_bytes() } else { family.to_be_bytes() });
            if family == 2 { ipv4(random, bytes, 0) } else { ipv6(random, bytes, 0) }
        }
    }
}

fn ethernet(random: &mut Rng, bytes: &mut Vec<u8>, depth: u32) {
    mac(random, bytes);
    mac(random, bytes);
    typed_payload(random, bytes, depth, false);
}

/// An EtherType or a length, and what it announces.
fn typed_payload(random: &mut Rng, bytes: &mut Vec<u8>, depth: u32, is_cooked: bool) {
    match if depth > 4 { 0 } else { random.u8(..20) } {
        0..6 => {
            half(bytes, 0x0800);
            ipv4(random, bytes, depth + 1);
        }
        6..10 => {
            half(bytes, 0x86dd);
            ipv6(random, bytes, depth + 1);
        }
        10 | 11 => {
            half(bytes, *pick(random, &[0x0806, 0x8035]));
            arp(random, bytes);
        }
        12 | 13 => {
            half(bytes, *pick(random, &[0x8100, 0x8100, 0x88a8, 0x9100]));
            half(bytes, *pick(random, &[5, 6, 100, 0x2005, 0xe064, 0]));
            typed_payload(random, bytes, depth + 1, is_cooked);
        }
        14 => {
            half(bytes, *pick(random, &[0x8847, 0x8848]));
            mpls(random, bytes, depth + 1);
        }
        15 => {
            half(bytes, *pick(random, &[0x8863, 0x8864, 0x8864]));
            bytes.extend([0x11, 0]);
            half(bytes, *pick(random, &[1, 5, 9]));
            half(bytes, 40);
            ppp(random, bytes, depth + 1);
        }
        16..18 => {
            half(bytes, if is_cooked { *pick(random, &[4, 1, 4]) } else { *pick(random, &[38, 100, 1500, 1501]) });
            llc(random, bytes);
        }
        18 => {
            let types = [0x809b, 0x80f3, 0x6001, 0x6002, 0x6003, 0x6004, 0x6007, 0x8137, 0x9000, 0x88cc];
            let kind = *pick(random, &types);
            half(bytes, kind);
            if kind == 0x6003 {
                decnet(random, bytes);
            } else {
                rest(random, bytes);
            }
        }
        _ => {
            half(bytes, random.u32(..65_536));
            rest(random, bytes);
        }
    }
}

fn mpls(random: &mut Rng, bytes: &mut Vec<u8>, depth: u32) {
    loop {
        let is_bottom = random.bool();
        let label = *pick(random, &[100, 200, 1_048_575, 16]);
        word(bytes, label << 12 | u32::from(is_bottom) << 8 | 64);
        if is_bottom || bytes.len() > 200 {
            break;
        }
    }
    if random.bool() { ipv4(random, bytes, depth) } else { ipv6(random, bytes, depth) }
}

fn ppp(random: &mut Rng, bytes: &mut Vec<u8>, depth: u32) {
    match random.u8(..6) {
        0..2 => {
            half(bytes, 0x21);
            ipv4(random, bytes, depth);
        }
        2..4 => {
            half(bytes, 0x57);
            ipv6(random, bytes, depth);
        }
        4 => {
            half(bytes, 0x0281);
            mpls(random, bytes, depth);
        }
        _ => {
            half(bytes, *pick(random, &[0x27, 0x29, 0x25, 0x23, 0x31, 0x2b, 0xc021]));
            rest(random, bytes);
        }
    }
}

fn llc(random: &mut Rng, bytes: &mut Vec<u8>) {
    match random.u8(..6) {
        0 => bytes.extend([0x42, 0x42, 3]),
        1 => {
            bytes.extend([0xfe, 0xfe, 3]);
            let protocol = *pick(random, &[0x81, 0x82, 0x83, 0x83]);
            bytes.extend([protocol, 27, 1, 0, random.u8(14..29)]);
        }
        2 => {
            bytes.extend([0xaa, 0xaa, 3]);
            bytes.extend(pick(random, &[[0, 0, 0], [8, 0, 7]]));
            half(bytes, *pick(random, &[0x809b, 0x80f3, 0x8137, 0x0800]));
        }
        3 => bytes.extend([0xff, 0xff]),
        4 => {
            let sap = *pick(random, &[0xe0, 0xf0, 0x06, 0x42]);
            bytes.extend([sap, sap, random.u8(..)]);
        }
        _ => {
            let control = *pick(random, &[0, 1, 5, 9, 3, 0x63, 0x43, 0xf, 0x6f, 0xe3, 0xaf, 0x87, 0x73]);
            bytes.extend([random.u8(..), random.u8(..), control]);
        }
    }
    rest(random, bytes);
}

fn decnet(random: &mut Rng, bytes: &mut Vec<u8>) {
    half(bytes, 30);
    if random.bool() {
        bytes.push(0x81);
    }
    bytes.push(*pick(random, &[2, 6, 0x26, 0x0a]));
    for _ in 0..8 {
        bytes.extend(pick(random, &[[0x02, 0x04], [0xff, 0xff], [5, 0]]));
    }
    rest(random, bytes);
}

fn arp(random: &mut Rng, bytes: &mut Vec<u8>) {
    bytes.extend([0, 1, 8, 0, 6, 4, 0]);
    bytes.push(random.u8(1..5));
    for _ in 0..2 {
        mac(random, bytes);
        ipv4_address(random, bytes);
    }
}

fn ipv4_address(random: &mut Rng, bytes: &mut Vec<u8>) {
    let addresses = [
        [10, 0, 0, 1],
        [10, 0, 0, 2],
        [10, 0, 0, 3],
        [127, 0, 0, 1],
        [192, 168, 1, 1],
        [224, 0, 0, 1],
        [0, 0, 0, 0],
        [255; 4],
    ];
    bytes.extend(pick(random, &addresses));
}

fn ipv6_address(random: &mut Rng, bytes: &mut Vec<u8>) {
    let mut address = [0; 16];
    match random.u8(..6) {
        0 => address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]),
        1 => address[..2].copy_from_slice(&[0xfe, 0x80]),
        2 => address[..2].copy_from_slice(&[0xff, 0x02]),
        3 => address[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]),
        _ => {}
    }
    address[15] |= random.u8(..2);
    bytes.extend(address);
}

fn ip_protocol(random: &mut Rng) -> u8 {
    *pick(random, &[6, 6, 6, 17, 17, 17, 132, 1, 58, 2, 51, 50, 103, 112, 9, 47, 59, 0])
}

fn next_header(random: &mut Rng) -> u8 {
    let protocol = ip_protocol(random);
    *pick(random, &[protocol, protocol, 44, 0, 43, 60, 51])
}

fn ipv4(random: &mut Rng, bytes: &mut Vec<u8>, depth: u32) {
    let words = *pick(random, &[5, 5, 5, 6, 15, 4]);
    let protocol = ip_protocol(random);
    bytes.extend([0x40 | words, random.u8(..)]);
    half(bytes, *pick(random, &[40, 60, 1500, 20]));
    half(bytes, random.u32(..65_536));
    half(bytes, *pick(random, &[0, 0, 0x4000, 0x2000, 0x1fff, 0x2010]));
    bytes.extend([*pick(random, &[1, 64, 255]), protocol]);
    half(bytes, random.u32(..65_536));
    ipv4_address(random, bytes);
    ipv4_address(random, bytes);
    for _ in 5..words {
        word(bytes, random.u32(..));
    }
    transport(random, bytes, protocol, depth);
}

fn ipv6(random: &mut Rng, bytes: &mut Vec<u8>, depth: u32) {
    let mut next = next_header(random);
    word(bytes, 0x6000_0000 | random.u32(..1 << 20));
    half(bytes, *pick(random, &[20, 40, 1460]));
    bytes.extend([next, 64]);
    ipv6_address(random, bytes);
    ipv6_address(random, bytes);
    for _ in 0..6 {
        let is_extension = matches!(next, 0 | 43 | 44 | 60 | 51);
        if !is_extension {
            break;
        }
        let after = next_header(random);
        let length = random.u8(..2);
        bytes.extend([after, length]);
        let size = if next == 51 { (usize::from(length) + 2) * 4 } else { (usize::from(length) + 1) * 8 };
        for _ in 2..size {
            bytes.push(number(random) as u8);
        }
        next = after;
    }
    transport(random, bytes, next, depth);
}

fn port(random: &mut Rng) -> u32 {
    match random.u8(..4) {
        0 => random.u32(..65_536),
        _ => *pick(random, &[80, 443, 53, 22, 6081, 5555, 0, 65_535, 1024, 8080, 25, 123]),
    }
}

fn transport(random: &mut Rng, bytes: &mut Vec<u8>, protocol: u8, depth: u32) {
    match protocol {
        6 => {
            half(bytes, port(random));
            half(bytes, port(random));
            word(bytes, random.u32(..));
            word(bytes, random.u32(..));
            bytes.extend([random.u8(5..16) << 4, random.u8(..64)]);
            half(bytes, 0xffff);
            word(bytes, 0);
        }
        17 => {
            half(bytes, port(random));
            let port = if depth < 3 && random.bool() { 6081 } else { port(random) };
            half(bytes, port);
            half(bytes, random.u32(8..100));
            half(bytes, 0);
            if port == 6081 {
                geneve(random, bytes, depth);
                return;
            }
        }
        132 => {
            half(bytes, port(random));
            half(bytes, port(random));
            word(bytes, random.u32(..));
        }
        1 => bytes.extend([*pick(random, &[0, 3, 5, 8, 11]), random.u8(..4)]),
        58 => bytes.extend([*pick(random, &[1, 128, 129, 135, 136]), random.u8(..3)]),
        51 => {
            let length = random.u8(..10);
            bytes.extend([*pick(random, &[6, 17, 51, 50, 58]), length]);
        }
        _ => {}
    }
    rest(random, bytes);
}

fn geneve(random: &mut Rng, bytes: &mut Vec<u8>, depth: u32) {
    let options = random.u8(..3);
    let kind = *pick(random, &[0x6558, 0x6558, 0x0800, 0x86dd, 0x8847]);
    bytes.extend([*pick(random, &[0, 0, 0, 0x40]) | options, 0]);
    half(bytes, kind);
    word(bytes, *pick(random, &[5, 6, 0xff_ffff]) << 8);
    for _ in 0..options {
        word(bytes, random.u32(..));
    }
    match kind {
        0x6558 => ethernet(random, bytes, depth + 2),
        0x0800 => ipv4(random, bytes, depth + 2),
        0x86dd => ipv6(random, bytes, depth + 2),
        _ => mpls(random, bytes, depth + 2),
    }
}

fn rest(random: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..random.usize(..40) {
        bytes.push(number(random) as u8);
    }
}
