//! Packets of every kind that summaries distinguish: well formed, odd, and malformed.

use std::ops::RangeInclusive;

/// A packet's subject, and its Ethernet frame.
pub type Made = (&'static str, Vec<u8>);

/// All packets.
pub fn all() -> Vec<Made> {
    [
        ethernet_frames(),
        llc_frames(),
        spanning_trees(),
        arp_packets(),
        ipv4_packets(),
        ipv6_packets(),
        protocols(),
        tcp_segments(),
        udp_datagrams(),
        icmp_messages(),
        icmpv6_messages(),
        igmp_messages(),
        gre_packets(),
    ]
    .concat()
}

/// Numbers in network byte order.
pub fn words(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

/// Pseudorandom bytes, different for each seed.
pub fn noise(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

pub fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &ether_type.to_be_bytes(), payload].concat()
}

fn v4_packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let lengths = words(&[20 + payload.len() as u16, 7, 0x4000]);
    [&[0x45, 0][..], &lengths, &[64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2], payload].concat()
}

pub fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &v4_packet(protocol, payload))
}

fn v6_packet(next: u8, payload: &[u8]) -> Vec<u8> {
    let addresses = words(&[0x2001, 0xdb8, 0, 0, 0, 0, 0, 1, 0x2001, 0xdb8, 1, 0, 0, 0, 0, 2]);
    [&[0x60, 0, 0, 0][..], &words(&[payload.len() as u16]), &[next, 64], &addresses, payload].concat()
}

pub fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(0x86dd, &v6_packet(next, payload))
}

fn tcp(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let offset = (20 + options.len()) as u8 / 4;
    let numbers = words(&[40_001, 40_002, 0x1234, 0x5678, 0x9abc, 0xdef0]);
    [&numbers, &[offset << 4, flags][..], &words(&[512, 0, 9]), options, payload].concat()
}

fn udp(payload: &[u8]) -> Vec<u8> {
    [&words(&[40_001, 40_002, 8 + payload.len() as u16, 0]), payload].concat()
}

fn ethernet_frames() -> Vec<Made> {
    let mut frames = Vec::new();
    let unknown = [0x05dd, 0x0600, 0x1234, 0x6001, 0x6002, 0x6004, 0x6007, 0x7777, 0x893a, 0x9101, 0xffff];
    for ether_type in unknown {
        frames.push(("type", ethernet(ether_type, &noise(1, 40))));
        for tag in [0x8100, 0x88a8, 0x9100, 0x9200] {
            frames.push(("type", ethernet(tag, &[words(&[5, ether_type]), noise(1, 40)].concat())));
            let datagram = v4_packet(17, &udp(b"tagged twice"));
            frames.push(("VLAN", ethernet(tag, &[words(&[5, 0x8100, 6, 0x0800]), datagram].concat())));
        }
    }
    frames
}

fn llc_frames() -> Vec<Made> {
    let mut frames = Vec::new();
    for control in 0..=255 {
        for (dsap, ssap) in
            [(0x10, 0x10), (0x42, 0x43), (0, 0), (0xaa, 0xaa), (6, 7), (0xf0, 0xaa), (4, 0xe1), (1, 0xfe)]
        {
            // The spanning tree and IP are tested separately; the contents of XID frames are not printed.
            if (control != 3 || !matches!(dsap, 6 | 0x42)) && control & 0xef != 0xaf {
                let frame = [vec![dsap, ssap, control], noise(control.into(), 20)].concat();
                frames.push(("LLC", ethernet(frame.len() as u16, &frame)));
                frames.push(("LLC", ethernet(frame.len() as u16 - 4, &frame)));
            }
        }
    }
    let datagram = v4_packet(17, &udp(b"abc"));
    let snap = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &datagram].concat();
    frames.push(("LLC", ethernet(snap.len() as u16, &snap)));
    let plain = [&[6, 6, 3][..], &datagram].concat();
    frames.push(("LLC", ethernet(plain.len() as u16, &plain)));
    frames
}

fn spanning_trees() -> Vec<Made> {
    let mut frames = Vec::new();
    for (kind, version) in [(0, 0), (0, 2), (0x80, 0), (2, 0), (2, 2), (2, 3), (2, 5), (7, 0), (9, 2)] {
        for flags in 0..=255 {
            let mut tree = [vec![0x42, 0x42, 3, 0, 0, version, kind, flags], noise(flags.into(), 110)].concat();
            // After the first version's length of 0, this is the third version's.
            tree[38..41].copy_from_slice(&[0, 0, flags]);
            frames.push(("STP", ethernet(tree.len() as u16, &tree)));
        }
    }
    frames
}

fn arp_packets() -> Vec<Made> {
    let mut frames = Vec::new();
    let types = [(1, 0x800), (99, 0x800), (99, 0x86dd), (1, 0x806), (1, 0x9999), (1, 0x1000)];
    for operation in 0..=12 {
        for (hardware_len, protocol_len) in [(6_u8, 4_u8), (6, 6), (0, 4), (1, 4), (8, 4)] {
            for (hardware, protocol) in types {
                let header = [words(&[hardware, protocol]), vec![hardware_len, protocol_len], words(&[operation])];
                let pair = usize::from(hardware_len + protocol_len);
                let mut packet = [header.concat(), noise(operation.into(), 2 * pair)].concat();
                frames.push(("ARP", ethernet(0x0806, &packet)));
                packet[8 + pair..8 + pair + usize::from(hardware_len)].fill(0);
                frames.push(("ARP", ethernet(0x0806, &packet)));
                frames.push(("ARP", ethernet(0x8035, &packet)));
            }
        }
    }
    frames
}

fn ipv4_packets() -> Vec<Made> {
    let mut frames = Vec::new();
    let lengths = [(5, 28), (5, 100), (5, 19), (5, 20), (4, 28), (6, 28), (6, 24), (15, 28), (0, 28), (5, 27), (5, 0)];
    for fragment in [0_u16, 0x2000, 0x4000, 0x8000, 1, 0x2001, 0x1fff] {
        for (header_len, total_len) in lengths {
            for protocol in [1, 6, 17, 99] {
                let mut frame = v4(protocol, &noise(5, 8));
                frame[14] = 0x40 | header_len;
                frame[16..18].copy_from_slice(&u16::to_be_bytes(total_len));
                frame[20..22].copy_from_slice(&fragment.to_be_bytes());
                frames.push(("IPv4", frame));
            }
        }
    }
    for version in 0..16 {
        let mut frame = v4(17, &udp(b"abc"));
        frame[14] = version << 4 | 5;
        frames.push(("IPv4", frame));
    }
    frames.push(("IPv4", v4(4, &v4_packet(17, &udp(b"in a tunnel")))));
    frames.push(("IPv4", v4(41, &v6_packet(17, &udp(b"in a tunnel")))));
    frames
}

fn ipv6_packets() -> Vec<Made> {
    let mut frames = Vec::new();
    let payload = udp(b"behind");
    for version in 0..16 {
        let mut frame = v6(17, &payload);
        frame[14] = version << 4;
        frames.push(("IPv6", frame));
    }
    for next in [17, 59, 44, 0, 60, 51] {
        for units in 0..=3 {
            let options = [vec![next, units, 1, 8 * units + 4], vec![0; 8 * usize::from(units) + 4]].concat();
            for kind in [0, 60] {
                frames.push(("IPv6", v6(kind, &[&options, &payload[..]].concat())));
            }
            for (kind, reserved) in [(0, 0), (0, 7), (2, 0), (4, 0), (9, 0)] {
                let routing = [vec![next, units, kind, 1, 0, 0, 0, reserved], noise(1, 8 * usize::from(units))];
                frames.push(("IPv6", v6(43, &[routing.concat(), payload.clone()].concat())));
            }
            for reserved in [0, 1] {
                let authentication = [vec![next, units + 1, 0, reserved], noise(2, 8 + 4 * usize::from(units))];
                frames.push(("IPv6", v6(51, &[authentication.concat(), payload.clone()].concat())));
            }
        }
        for option in [[1, 4], [1, 5], [0x30, 4], [0x30, 30], [0, 0x30]] {
            for kind in [0, 60] {
                frames.push(("IPv6", v6(kind, &[&[next, 0], &option[..], &[0; 4], &payload].concat())));
            }
        }
        for fragment in [0, 1, 8, 0xfff9] {
            let header = [vec![next, 0], words(&[fragment, 0, 7])].concat();
            frames.push(("IPv6", v6(44, &[header, payload.clone()].concat())));
        }
    }
    frames.push(("IPv6", v6(143, &v4(17, &payload))));
    frames.push(("IPv6", jumbogram(65_535, &payload)));
    frames.push(("IPv6", jumbogram(65_536, &payload)));
    frames
}

/// A packet with its length in an option.
fn jumbogram(len: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = v6(0, &[&[17, 0, 0xc2, 4][..], &len.to_be_bytes(), payload].concat());
    frame[18..20].fill(0);
    frame
}

/// Packets that tcpdump and these summaries decode in different ways.
fn is_looked_into(protocol: u8, version: u8) -> bool {
    matches!(protocol, 8 | 9 | 33 | 46 | 47 | 55 | 88 | 89 | 103 | 112 | 113 | 132)
        || version == 6 && matches!(protocol, 0 | 43 | 44 | 60 | 62 | 135 | 143)
}

fn protocols() -> Vec<Made> {
    let mut frames = Vec::new();
    for protocol in 0..=255 {
        for len in [0, 4, 8, 12, 30] {
            if !is_looked_into(protocol, 4) {
                frames.push(("protocol", v4(protocol, &noise(protocol.into(), len))));
            }
            if !is_looked_into(protocol, 6) {
                frames.push(("protocol", v6(protocol, &noise(protocol.into(), len))));
            }
        }
    }
    frames
}

fn tcp_segments() -> Vec<Made> {
    let mut frames = Vec::new();
    for flags in 0..=255 {
        frames.push(("TCP", v4(6, &tcp(flags, &[], b""))));
        frames.push(("TCP", v6(6, &tcp(flags, &[], b"abc"))));
    }
    for offset in 0..16 {
        let mut segment = tcp(0x10, &[], b"0123456789");
        segment[12] = offset << 4;
        frames.push(("TCP", v4(6, &segment)));
    }
    for len in 0..20 {
        frames.push(("TCP", v4(6, &tcp(0x10, &[], b"")[..len])));
        frames.push(("TCP", v6(6, &tcp(0x10, &[], b"")[..len])));
    }
    for kind in 0..=255 {
        // Options that summaries print as they are.
        if matches!(kind, 11..=13 | 19 | 20 | 28..=30 | 34 | 254) {
            continue;
        }
        for len in 0..24 {
            let data = noise(u32::from(kind) * 31 + u32::from(len), usize::from(len).saturating_sub(2));
            let mut options = [vec![1, kind, len], data].concat();
            options.resize(options.len().next_multiple_of(4), 1);
            frames.push(("TCP options", v4(6, &tcp(0x10, &options, b"abc"))));
        }
    }
    frames
}

fn udp_datagrams() -> Vec<Made> {
    let mut frames = Vec::new();
    for len in [0, 1, 7, 8, 9, 12, 13, 100] {
        let datagram = [words(&[40_001, 40_002, len, 0]), noise(len.into(), 4)].concat();
        frames.push(("UDP", v4(17, &datagram)));
        frames.push(("UDP", v6(17, &datagram)));
    }
    for len in 0..8 {
        frames.push(("UDP", v4(17, &udp(b"")[..len])));
        frames.push(("UDP", v6(17, &udp(b"")[..len])));
    }
    frames
}

/// Messages of each type and code, once with a quoted packet and once with bodies of some lengths.
fn messages(
    frames: &mut Vec<Made>,
    name: &'static str,
    codes: RangeInclusive<u8>,
    quote: fn(u8, &[u8]) -> Vec<u8>,
    carry: fn(&[u8]) -> Vec<u8>,
) {
    for kind in 0..=255 {
        // For some messages, summaries print only the name or the number.
        if matches!((name, kind), ("ICMP", 9 | 13 | 14 | 18) | ("ICMPv6", 138..=142 | 144..=155 | 200 | 201)) {
            continue;
        }
        for code in codes.clone() {
            let quoted = quote(if code % 3 == 0 { 17 } else { 6 }, &noise(9, 8));
            frames.push((name, carry(&[&[kind, code, 0, 0, 2, 2, 5, 0xdc][..], &quoted].concat())));
            for len in [0, 8, 12, 16, 20, 22] {
                let body = [vec![kind, code, 0, 0, 0, code, 0, 64], noise(code.into(), len)].concat();
                frames.push((name, carry(&body)));
            }
        }
    }
}

fn icmp_messages() -> Vec<Made> {
    let mut frames = Vec::new();
    messages(&mut frames, "ICMP", 0..=17, v4_packet, |message| v4(1, message));
    frames
}

fn icmpv6_messages() -> Vec<Made> {
    let mut frames = Vec::new();
    messages(&mut frames, "ICMPv6", 0..=7, v6_packet, |message| v6(58, message));
    frames
}

fn igmp_messages() -> Vec<Made> {
    let mut frames = Vec::new();
    // DVMRP, PIM version 1 and traces are not decoded.
    for kind in (0..=255).filter(|kind| !matches!(kind, 0x13 | 0x14 | 0x1e | 0x1f)) {
        for time in [0, 1, 10, 99, 100, 127, 128, 200, 255] {
            for len in [8, 9, 10, 12, 14, 16, 20, 24] {
                let mut message = [vec![kind, time, 0, 0], noise(u32::from(time) + len, len as usize - 4)].concat();
                match len {
                    8 | 24 => message[4..8].fill(0),
                    12 => message[10..12].fill(0),
                    16 => message[10..12].copy_from_slice(&[0, 1]),
                    _ => {}
                }
                frames.push(("IGMP", v4(2, &message)));
            }
        }
    }
    frames
}

fn gre_packets() -> Vec<Made> {
    let inner = [v4_packet(17, &udp(b"abc")), v6_packet(6, &tcp(2, &[], b"")), v4(1, &[8, 0, 0, 0, 0, 1, 0, 2])];
    let mut frames = Vec::new();
    // All flags of version 0 except source routes, which nobody uses.
    for flags in (0..=255).filter(|flags| flags & 0x47 == 0) {
        for (ether_type, payload) in [0x0800, 0x86dd, 0x6558].into_iter().zip(&inner) {
            let header = words(&[flags << 8, ether_type]);
            let fields = [0x80, 0x20, 0x10].iter().filter(|flag| flags & *flag != 0).count();
            frames.push(("GRE", v4(47, &[header, noise(flags.into(), 4 * fields), payload.clone()].concat())));
        }
    }
    frames
}
