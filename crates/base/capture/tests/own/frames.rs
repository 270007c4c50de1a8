//! The packets of the project's own captures, written by hand and independently of the code under test: naive, with
//! correct checksums, and with the documentation addresses of RFC 5737 and RFC 3849.

/// Numbers in network byte order.
fn words(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

/// Pseudorandom bytes, different for each seed.
fn noise(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(99_991);
    let mut next = || {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        (state >> 16) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// The Internet checksum of these bytes (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let pairs = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = pairs.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// `bytes` with their checksum, which covers a pseudo-header before them, at `at`, where zeros were.
fn with_checksum(mut bytes: Vec<u8>, at: usize, pseudo_header: &[u8]) -> Vec<u8> {
    let sum = checksum(&[pseudo_header, &bytes].concat());
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The addresses, and with them the version of IP.
#[derive(Clone, Copy)]
pub struct Path {
    is_v6: bool,
    is_answer: bool,
}

pub const V4: Path = Path { is_v6: false, is_answer: false };
pub const V4_BACK: Path = Path { is_v6: false, is_answer: true };
pub const V6: Path = Path { is_v6: true, is_answer: false };
pub const V6_BACK: Path = Path { is_v6: true, is_answer: true };

mod protocol {
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const IPV4: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6: u8 = 41;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const GRE: u8 = 47;
    pub const ESP: u8 = 50;
    pub const AUTHENTICATION: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const NONE: u8 = 59;
    pub const DESTINATION: u8 = 60;
    pub const EXPERIMENT: u8 = 253;
}

pub mod flags {
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const PSH: u8 = 8;
    pub const ACK: u8 = 16;
}

/// The fields of a TCP segment other than the ports.
#[derive(Clone, Copy, Default)]
struct Segment<'a> {
    sequence: u32,
    acknowledged: u32,
    flags: u8,
    options: &'a [u8],
    payload: &'a [u8],
}

impl Path {
    fn addresses(self) -> [Vec<u8>; 2] {
        let [client, server] = match self.is_v6 {
            false => [vec![192, 0, 2, 1], vec![198, 51, 100, 2]],
            true => {
                [[0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 1, 0, 0, 0, 0, 2]].map(|words| self::words(&words))
            }
        };
        if self.is_answer { [server, client] } else { [client, server] }
    }

    fn pseudo_header(self, protocol: u8, length: usize) -> Vec<u8> {
        let last = match self.is_v6 {
            false => words(&[protocol.into(), length as u16]),
            true => [&(length as u32).to_be_bytes()[..], &[0, 0, 0, protocol]].concat(),
        };
        [self.addresses().concat(), last].concat()
    }

    /// A packet of this IP version: header and payload.
    pub fn packet(self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        match self.is_v6 {
            false => self.v4_packet(7, 0x4000, &[], protocol, payload),
            true => {
                let header = [&[0x60, 0, 0, 0][..], &words(&[payload.len() as u16]), &[protocol, 64]].concat();
                [header, self.addresses().concat(), payload.to_vec()].concat()
            }
        }
    }

    /// An IPv4 packet with this identification, flags and fragment offset, and options of a whole number of words.
    fn v4_packet(self, id: u16, fragment: u16, options: &[u8], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header_length = 20 + options.len();
        let lengths = words(&[(header_length + payload.len()) as u16, id, fragment]);
        let start = [&[0x40 | (header_length / 4) as u8, 0][..], &lengths, &[64, protocol, 0, 0]].concat();
        let header = [start, self.addresses().concat(), options.to_vec()].concat();
        [with_checksum(header, 10, &[]), payload.to_vec()].concat()
    }

    fn ports(self) -> Vec<u8> {
        words(&if self.is_answer { [40_002, 40_001] } else { [40_001, 40_002] })
    }

    fn tcp(self, segment: Segment<'_>) -> Vec<u8> {
        let Segment { sequence, acknowledged, flags, options, payload } = segment;
        let numbers = [sequence.to_be_bytes(), acknowledged.to_be_bytes()].concat();
        let offset = (20 + options.len()) as u8 / 4;
        let rest = [&[offset << 4, flags][..], &words(&[64_240, 0, 0]), options, payload].concat();
        let segment = [self.ports(), numbers, rest].concat();
        let pseudo_header = self.pseudo_header(protocol::TCP, segment.len());
        self.packet(protocol::TCP, &with_checksum(segment, 16, &pseudo_header))
    }

    fn datagram(self, ports: &[u8], payload: &[u8]) -> Vec<u8> {
        let datagram = [ports, &words(&[8 + payload.len() as u16, 0]), payload].concat();
        let pseudo_header = self.pseudo_header(protocol::UDP, datagram.len());
        with_checksum(datagram, 6, &pseudo_header)
    }

    pub fn udp(self, payload: &[u8]) -> Vec<u8> {
        self.packet(protocol::UDP, &self.datagram(&self.ports(), payload))
    }

    /// An ICMP message of either version: type, code, and the bytes after the checksum.
    fn icmp(self, kind: u8, code: u8, body: &[u8]) -> Vec<u8> {
        let message = [&[kind, code, 0, 0], body].concat();
        match self.is_v6 {
            false => self.packet(protocol::ICMP, &with_checksum(message, 2, &[])),
            true => {
                let pseudo_header = self.pseudo_header(protocol::ICMPV6, message.len());
                self.packet(protocol::ICMPV6, &with_checksum(message, 2, &pseudo_header))
            }
        }
    }

    pub fn echo(self, sequence: u16) -> Vec<u8> {
        let kind = match (self.is_v6, self.is_answer) {
            (false, false) => 8,
            (false, true) => 0,
            (true, false) => 128,
            (true, true) => 129,
        };
        self.icmp(kind, 0, &[words(&[0x1234, sequence]), noise(1, 48)].concat())
    }

    pub fn ether_type(self) -> u16 {
        if self.is_v6 { 0x86dd } else { 0x0800 }
    }

    /// The packet after an Ethernet header.
    fn frame(self, packet: &[u8]) -> Vec<u8> {
        self.ethernet(self.ether_type(), packet)
    }

    fn ethernet(self, ether_type: u16, payload: &[u8]) -> Vec<u8> {
        let (client, server) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let (to, from) = if self.is_answer { (client, server) } else { (server, client) };
        [&to[..], &from, &ether_type.to_be_bytes(), payload].concat()
    }
}

/// A frame with VLAN tags of these protocols and identifiers, the outermost first.
fn tagged(tags: &[(u16, u16)], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let types = tags.iter().map(|(tag, _)| *tag).chain([ether_type]).collect::<Vec<_>>();
    let inner = tags.iter().zip(&types[1..]).flat_map(|((_, id), next)| words(&[*id, *next]));
    V4.ethernet(types[0], &inner.chain(payload.iter().copied()).collect::<Vec<_>>())
}

fn arp_packet(operation: u16) -> Vec<u8> {
    let sender = [2, 0, 0, 0, 0, 1, 192, 0, 2, 1];
    let target = [0, 0, 0, 0, 0, 0, 192, 0, 2, 254];
    let (first, second) = if operation == 1 { (sender, target) } else { ([2, 0, 0, 0, 0, 2, 192, 0, 2, 254], sender) };
    [&words(&[1, 0x0800, 0x0604, operation])[..], &first, &second].concat()
}

fn broadcast(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = V4.ethernet(ether_type, payload);
    frame[..6].fill(0xff);
    frame
}

pub fn arp_and_icmp() -> Vec<Vec<u8>> {
    let quoted = V4.udp(b"nobody listens here");
    let error = |kind, code, rest: u32| {
        V4_BACK.frame(&V4_BACK.icmp(kind, code, &[&rest.to_be_bytes()[..], &quoted[..28]].concat()))
    };
    let mut frames = vec![
        broadcast(0x0806, &arp_packet(1)),
        V4_BACK.ethernet(0x0806, &arp_packet(2)),
        broadcast(0x8035, &arp_packet(3)),
    ];
    for sequence in 1..=4 {
        frames.extend([V4, V4_BACK].map(|path| path.frame(&path.echo(sequence))));
    }
    frames.extend([error(3, 3, 0), error(3, 4, 1_400), error(3, 13, 0), error(11, 0, 0), error(11, 1, 0)]);
    frames.push(error(12, 0, 0x1400_0000));
    frames.push(error(5, 1, 0xc000_02fe));
    frames.push(V4.frame(&V4.icmp(13, 0, &words(&[1, 1, 0, 100, 0, 0, 0, 0]))));
    // Padded to Ethernet's minimum length.
    frames.iter_mut().for_each(|frame| frame.resize(frame.len().max(60), 0));
    frames
}

/// A connection: opened, `segments` full segments and a retransmission, acknowledged, closed; then a connection that is
/// refused.
pub fn tcp_conversation(paths: [Path; 2], segments: u32) -> Vec<Vec<u8>> {
    use flags::*;
    const SIZE: u32 = 1_448;
    let [there, back] = paths;
    let times = |value: u32| [&[1, 1, 8, 10][..], &value.to_be_bytes(), &(value / 2).to_be_bytes()].concat();
    let opening = [&[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7][..]].concat();
    let (client, server) = (0x1000_0000_u32, 0xffff_f000_u32);
    let text = |length: u32| noise(length, length as usize);
    let mut frames = Vec::new();
    let mut say = |path: Path, segment: Segment<'_>| frames.push(path.frame(&path.tcp(segment)));
    say(there, Segment { sequence: client, flags: SYN, options: &opening, ..Segment::default() });
    let accepted = Segment { sequence: server, acknowledged: client + 1, flags: SYN | ACK, ..Segment::default() };
    say(back, Segment { options: &opening, ..accepted });
    let acknowledged = server.wrapping_add(1);
    let plain = Segment { sequence: client + 1, acknowledged, flags: ACK, ..Segment::default() };
    say(there, Segment { options: &times(10), ..plain });
    for number in (0..segments).chain([0]) {
        let sequence = client + 1 + number * SIZE;
        let flags = if number % 2 == 1 { ACK | PSH } else { ACK };
        say(there, Segment { sequence, flags, options: &times(11 + number), payload: &text(SIZE), ..plain });
        let after = Segment { sequence: acknowledged, acknowledged: sequence + SIZE, flags: ACK, ..Segment::default() };
        say(back, Segment { options: &times(12 + number), ..after });
    }
    // The gap, as selective acknowledgments.
    let last = client + 1 + segments * SIZE;
    let edges = [last.to_be_bytes(), (last + SIZE).to_be_bytes()].concat();
    let gap = Segment { sequence: acknowledged, acknowledged: last, flags: ACK, ..Segment::default() };
    say(back, Segment { options: &[&[1, 1, 5, 10][..], &edges].concat(), ..gap });
    say(back, Segment { flags: ACK | PSH, payload: &text(200), ..gap });
    say(there, Segment { sequence: last, acknowledged: acknowledged.wrapping_add(200), flags: FIN | ACK, ..plain });
    let closing = Segment { sequence: acknowledged.wrapping_add(200), acknowledged: last + 1, ..gap };
    say(back, Segment { flags: FIN | ACK, ..closing });
    say(there, Segment { sequence: last + 1, acknowledged: acknowledged.wrapping_add(201), ..plain });
    say(there, Segment { sequence: 5, flags: SYN, ..Segment::default() });
    say(back, Segment { acknowledged: 6, flags: RST | ACK, ..Segment::default() });
    frames
}

pub fn udp_datagrams() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (number, length) in [0, 1, 18, 64, 100, 511, 512, 1_472].into_iter().enumerate() {
        for path in [V4, V4_BACK, V6, V6_BACK] {
            let length = if path.is_v6 { length.min(1_452) } else { length };
            frames.push(path.frame(&path.udp(&noise(number as u32, length))));
        }
    }
    let question = [&words(&[7, 0x0100, 1, 0, 0, 0])[..], b"\x07example\x03com\x00", &words(&[1, 1])].concat();
    frames.push(V4.frame(&V4.packet(protocol::UDP, &V4.datagram(&words(&[40_003, 53]), &question))));
    let answer = [&question[..], &words(&[0xc00c, 1, 1, 0, 60, 4]), &[192, 0, 2, 80]].concat();
    let answer = [&words(&[7, 0x8180, 1, 1])[..], &answer[8..]].concat();
    frames.push(V4_BACK.frame(&V4_BACK.packet(protocol::UDP, &V4_BACK.datagram(&words(&[53, 40_003]), &answer))));
    // No checksum, which IPv4 allows.
    let mut bare = V4.datagram(&V4.ports(), b"without a checksum");
    bare[6..8].fill(0);
    frames.push(V4.frame(&V4.packet(protocol::UDP, &bare)));
    frames
}

pub fn vlans() -> Vec<Vec<u8>> {
    let payloads = [V4, V6].map(|path| (path.ether_type(), path.udp(b"in a VLAN")));
    let mut frames =
        vec![tagged(&[(0x8100, 5)], 0x0806, &arp_packet(1)), tagged(&[(0x8100, 5)], 0x0806, &arp_packet(2))];
    for (ether_type, payload) in &payloads {
        // An identifier, a priority alone, all bits; provider bridges; their predecessors; three tags.
        for tags in [
            &[(0x8100, 5)][..],
            &[(0x8100, 0xa000)],
            &[(0x8100, 0xffff)],
            &[(0x88a8, 100), (0x8100, 5)],
            &[(0x8100, 100), (0x8100, 5)],
            &[(0x9100, 100), (0x8100, 5)],
            &[(0x88a8, 7), (0x8100, 8), (0x8100, 9)],
        ] {
            frames.push(tagged(tags, *ether_type, payload));
        }
    }
    let ping = V4.echo(9);
    frames.push(tagged(&[(0x88a8, 100), (0x8100, 5)], 0x0800, &ping));
    frames
}

pub fn icmpv6() -> Vec<Vec<u8>> {
    let target = words(&[0x2001, 0xdb8, 1, 0, 0, 0, 0, 2]);
    let source_address = [1, 1, 2, 0, 0, 0, 0, 1];
    let target_address = [2, 1, 2, 0, 0, 0, 0, 2];
    let quoted = V6.udp(b"too big, or for nobody");
    let message = |path: Path, kind, code, body: &[u8]| path.frame(&path.icmp(kind, code, body));
    let mut frames = vec![
        message(V6, 135, 0, &[&[0; 4], &target[..], &source_address].concat()),
        message(V6_BACK, 136, 0, &[&[0x60, 0, 0, 0], &target[..], &target_address].concat()),
        message(V6, 133, 0, &[&[0; 4][..], &source_address].concat()),
        message(V6_BACK, 134, 0, &[&[64, 0xc0, 7, 8][..], &[0; 8], &[5, 1, 0, 0, 0, 0, 5, 220]].concat()),
        message(V6_BACK, 1, 4, &[&[0; 4], &quoted[..]].concat()),
        message(V6_BACK, 2, 0, &[&[0, 0, 5, 0], &quoted[..]].concat()),
        message(V6_BACK, 3, 0, &[&[0; 4], &quoted[..]].concat()),
        message(V6_BACK, 4, 1, &[&[0, 0, 0, 6], &quoted[..]].concat()),
    ];
    for sequence in 1..=3 {
        frames.extend([V6, V6_BACK].map(|path| path.frame(&path.echo(sequence))));
    }
    frames
}

pub fn ipv6_extensions() -> Vec<Vec<u8>> {
    let ports = V6.ports();
    let datagram = V6.datagram(&ports, b"behind extension headers");
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let alert = |next: u8| [next, 0, 5, 2, 0, 0, 1, 0];
    let segment = words(&[0x2001, 0xdb8, 1, 0, 0, 0, 0, 3]);
    let routing = |next: u8, kind: u8, left: u8| [&[next, 2, kind, left, 0, 0, 0, 0], &segment[..]].concat();
    let fragment = |next: u8, offset_and_more: u16| [&[next, 0][..], &words(&[offset_and_more, 0, 77])].concat();
    let authentication = [vec![protocol::UDP, 4, 0, 0], words(&[0, 1, 0, 2]), noise(3, 12)].concat();
    let packets = [
        (0, [&options(protocol::UDP)[..], &datagram].concat()),
        (0, [&alert(protocol::UDP)[..], &datagram].concat()),
        (0, [&options(protocol::DESTINATION)[..], &options(protocol::UDP), &datagram].concat()),
        (protocol::DESTINATION, [&options(protocol::UDP)[..], &datagram].concat()),
        (protocol::ROUTING, [&routing(protocol::UDP, 0, 0)[..], &datagram].concat()),
        (protocol::ROUTING, [&routing(protocol::UDP, 0, 1)[..], &datagram].concat()),
        (protocol::FRAGMENT, [&fragment(protocol::UDP, 0)[..], &datagram].concat()),
        (protocol::FRAGMENT, [&fragment(protocol::UDP, 1)[..], &datagram[..16]].concat()),
        (protocol::FRAGMENT, [&fragment(protocol::UDP, 16)[..], &datagram[16..]].concat()),
        (protocol::AUTHENTICATION, [&authentication, &datagram[..]].concat()),
        (0, [&options(protocol::FRAGMENT)[..], &fragment(protocol::UDP, 0), &datagram].concat()),
        (protocol::DESTINATION, options(protocol::NONE).to_vec()),
        (protocol::NONE, Vec::new()),
    ];
    packets.iter().map(|(next, payload)| V6.frame(&V6.packet(*next, payload))).collect()
}

/// Fragmented datagrams: in order, out of order, with a fragment missing, and with overlapping fragments.
pub fn fragments() -> Vec<Vec<u8>> {
    let datagram = V4.datagram(&V4.ports(), &noise(4, 2_000));
    let piece = |id: u16, from: usize, to: usize| {
        let more = if to < datagram.len() { 0x2000 } else { 0 };
        V4.frame(&V4.v4_packet(id, more | (from / 8) as u16, &[], protocol::UDP, &datagram[from..to]))
    };
    let end = datagram.len();
    vec![
        piece(1, 0, 800),
        piece(1, 800, 1_600),
        piece(1, 1_600, end),
        piece(2, 1_600, end),
        piece(2, 0, 800),
        piece(2, 800, 1_600),
        piece(3, 0, 800),
        piece(3, 1_600, end),
        piece(4, 0, 808),
        piece(4, 800, end),
    ]
}

fn vxlan_header(network: u32) -> Vec<u8> {
    [[8, 0, 0, 0], (network << 8).to_be_bytes()].concat()
}

pub fn vxlan() -> Vec<Vec<u8>> {
    let inner = [
        V4.frame(&V4.udp(b"in an overlay")),
        V6.frame(&V6.echo(1)),
        broadcast(0x0806, &arp_packet(1)),
        tagged(&[(0x8100, 5)], 0x0800, &V4.udp(b"tagged in an overlay")),
    ];
    let mut frames = Vec::new();
    for (number, inner) in inner.iter().enumerate() {
        for path in [V4, V6] {
            let payload = [vxlan_header(100 + number as u32), inner.clone()].concat();
            let datagram = path.datagram(&words(&[50_000 + number as u16, 4_789]), &payload);
            frames.push(path.frame(&path.packet(protocol::UDP, &datagram)));
        }
    }
    frames
}

pub fn gre() -> Vec<Vec<u8>> {
    let inner = V4.udp(b"in a tunnel");
    let packed =
        |path: Path, header: &[u8], inner: &[u8]| path.frame(&path.packet(protocol::GRE, &[header, inner].concat()));
    let summed = with_checksum([&words(&[0x8000, 0x0800, 0, 0])[..], &inner].concat(), 4, &[]);
    vec![
        packed(V4, &words(&[0, 0x0800]), &inner),
        packed(V6, &words(&[0, 0x0800]), &inner),
        packed(V4, &words(&[0, 0x86dd]), &V6.udp(b"in a tunnel")),
        packed(V4, &words(&[0x2000, 0x0800, 0, 42]), &inner),
        packed(V4, &words(&[0x1000, 0x0800, 0, 7]), &inner),
        packed(V4, &words(&[0x3000, 0x0800, 0, 42, 0, 8]), &inner),
        packed(V4, &summed[..8], &summed[8..]),
        packed(V4, &words(&[0x2000, 0x6558, 0, 42]), &V4.frame(&inner)),
        packed(V4, &words(&[0, 0x7777]), &noise(5, 20)),
        packed(V6, &words(&[0, 0x7778]), &noise(6, 20)),
    ]
}

pub fn mpls() -> Vec<Vec<u8>> {
    let entry = |label: u32, class: u32, is_last: bool, ttl: u32| {
        (label << 12 | class << 9 | u32::from(is_last) << 8 | ttl).to_be_bytes().to_vec()
    };
    let (v4, v6) = (V4.udp(b"labelled"), V6.udp(b"labelled"));
    vec![
        V4.ethernet(0x8847, &[entry(1_000, 0, true, 64), v4.clone()].concat()),
        V4.ethernet(0x8847, &[entry(1_000, 5, false, 64), entry(2_000, 0, true, 63), v4.clone()].concat()),
        V4.ethernet(
            0x8847,
            &[entry(16, 0, false, 1), entry(17, 0, false, 1), entry(18, 7, true, 255), v4.clone()].concat(),
        ),
        V4.ethernet(0x8847, &[entry(0, 0, true, 64), v4.clone()].concat()),
        V4.ethernet(0x8847, &[entry(2, 0, true, 64), v6].concat()),
        V4.ethernet(0x8848, &[entry(3_000, 0, true, 64), v4.clone()].concat()),
        // A pseudowire: no control word, and one.
        V4.ethernet(0x8847, &[entry(4_000, 0, true, 64), V4.frame(&v4)].concat()),
        V4.ethernet(0x8847, &[entry(4_000, 0, true, 64), vec![0; 4], V4.frame(&v4)].concat()),
        tagged(&[(0x8100, 5)], 0x8847, &[entry(1_000, 0, true, 64), v4].concat()),
    ]
}

pub fn tunnels() -> Vec<Vec<u8>> {
    let (v4, v6) = (V4.udp(b"in a tunnel"), V6.udp(b"in a tunnel"));
    let security = [words(&[0, 0x1001, 0, 9]), noise(7, 64)].concat();
    let authentication = [vec![protocol::UDP, 4, 0, 0], words(&[0, 0x1002, 0, 3]), noise(8, 12)].concat();
    let authentication = [authentication, V4.datagram(&V4.ports(), b"signed")].concat();
    let twice = V4.packet(protocol::IPV4, &v4);
    [
        (V4, protocol::IPV4, v4.clone()),
        (V4, protocol::IPV6, v6.clone()),
        (V6, protocol::IPV4, v4),
        (V6, protocol::IPV6, v6),
        (V4, protocol::IPV4, twice),
        (V4, protocol::ESP, security.clone()),
        (V6, protocol::ESP, security),
        (V4, protocol::AUTHENTICATION, authentication),
        (V4, protocol::EXPERIMENT, noise(9, 30)),
        (V4_BACK, protocol::EXPERIMENT + 1, noise(10, 1)),
        (V4, 200, noise(11, 12)),
    ]
    .map(|(path, protocol, payload)| path.frame(&path.packet(protocol, &payload)))
    .to_vec()
}

pub fn igmp() -> Vec<Vec<u8>> {
    let group = [233, 252, 0, 5];
    let message = |start: [u8; 4], rest: &[u8]| with_checksum([&start[..], rest].concat(), 2, &[]);
    let report = [&[0, 0, 0, 1, 4, 0, 0, 0][..], &group].concat();
    let messages = [
        message([0x11, 100, 0, 0], &[0; 4]),
        message([0x11, 10, 0, 0], &group),
        message([0x11, 100, 0, 0], &[&group[..], &[2, 125, 0, 1, 192, 0, 2, 1]].concat()),
        message([0x12, 0, 0, 0], &group),
        message([0x16, 0, 0, 0], &group),
        message([0x17, 0, 0, 0], &group),
        message([0x22, 0, 0, 0], &report[2..]),
        message([0x22, 0, 0, 0], &report),
    ];
    let alert = [148, 4, 0, 0];
    messages.iter().map(|message| V4.frame(&V4.v4_packet(9, 0, &alert, protocol::IGMP, message))).collect()
}

/// Frames with a length instead of a type, and rare types.
pub fn link_control() -> Vec<Vec<u8>> {
    let bridge = words(&[0x8000, 0x0200, 0, 1]);
    let tree = |version: u8, kind: u8, flags: u8| {
        let times = words(&[0x8001, 0, 20 << 8, 2 << 8, 15 << 8]);
        let start = [&[0x42, 0x42, 3, 0, 0, version, kind, flags][..], &bridge, &[0, 0, 0, 4], &bridge].concat();
        let end = if version == 2 { vec![0] } else { Vec::new() };
        [start, times, end].concat()
    };
    let change = [0x42, 0x42, 3, 0, 0, 0, 0x80].to_vec();
    let snap = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &V4.udp(b"behind SNAP")].concat();
    let llc = [tree(0, 0, 0), tree(0, 0, 1), tree(2, 2, 0x3c), tree(2, 2, 0x0e), change, snap];
    let mut frames: Vec<_> = llc.iter().map(|payload| V4.ethernet(payload.len() as u16, payload)).collect();
    for (control, length) in [(&[0x03][..], 20), (&[0x02, 0x04], 16), (&[0x01, 0x05], 0), (&[0x73], 0)] {
        let payload = [&[0x10, 0x10], control, &noise(12, length)].concat();
        frames.push(V4.ethernet(payload.len() as u16, &payload));
    }
    for ether_type in [0x7777, 0x893a, 0x6001, 0x0600] {
        frames.push(V4.ethernet(ether_type, &noise(ether_type.into(), 46)));
    }
    frames
}

/// Wrong checksums, inconsistent lengths, truncated headers.
pub fn mistakes() -> Vec<Vec<u8>> {
    let right = V4.frame(&V4.udp(b"what could go wrong"));
    let changed = |at: usize, value: u8| {
        let mut frame = right.clone();
        frame[at] = value;
        frame
    };
    // Version, header length, total length, checksums of both headers, length of the datagram.
    let mut frames = vec![changed(14, 0x55), changed(14, 0x44), changed(14, 0x4f), changed(17, 19), changed(17, 200)];
    frames.extend([changed(24, 0), changed(38, 4), changed(39, 200), changed(40, 0)]);
    let segment = V4.tcp(Segment { flags: flags::ACK, payload: b"wrong sum", ..Segment::default() });
    let mut wrong = V4.frame(&segment);
    wrong[50] ^= 1;
    frames.push(wrong);
    let mut offset = V4.frame(&segment);
    offset[46] = 0x40;
    frames.push(offset);
    // Options of all kinds: padding, record route, a timestamp, router alert, an unknown one, one of length 0.
    for options in
        [&[1, 1, 1, 0][..], &[7, 7, 4, 0, 0, 0, 0, 0], &[68, 8, 5, 0, 0, 0, 0, 0], &[148, 4, 0, 0], &[77, 0, 0, 0]]
    {
        let datagram = V4.datagram(&V4.ports(), b"options");
        frames.push(V4.frame(&V4.v4_packet(11, 0, options, protocol::UDP, &datagram)));
    }
    frames
}

/// The first bytes of a frame, of every length.
pub fn runts() -> Vec<Vec<u8>> {
    let whole = V4.frame(&V4.tcp(Segment { flags: flags::ACK, payload: b"abcdef", ..Segment::default() }));
    (0..=whole.len()).map(|length| whole[..length].to_vec()).collect()
}

pub fn jumbo_frames() -> Vec<Vec<u8>> {
    let long = noise(13, 8_952);
    vec![
        V4.frame(&V4.udp(&noise(14, 8_972))),
        V6.frame(&V6.udp(&long)),
        V4.frame(&V4.tcp(Segment { flags: flags::ACK | flags::PSH, payload: &long[..8_900], ..Segment::default() })),
    ]
}

/// One packet of each version and protocol, without a link layer.
pub fn ip_packets() -> Vec<Vec<u8>> {
    [v4_packets(), v6_packets()].concat()
}

pub fn v4_packets() -> Vec<Vec<u8>> {
    let segment = Segment { flags: flags::ACK, payload: b"a segment", ..Segment::default() };
    vec![V4.udp(b"a datagram"), V4_BACK.udp(b"its answer"), V4.tcp(segment), V4.echo(1), V4_BACK.echo(1)]
}

pub fn v6_packets() -> Vec<Vec<u8>> {
    let segment = Segment { flags: flags::ACK, payload: b"a segment", ..Segment::default() };
    vec![V6.udp(b"a datagram"), V6_BACK.udp(b"its answer"), V6.tcp(segment), V6.echo(1), V6_BACK.echo(1)]
}

/// Packets of both versions with a link-layer header.
fn behind(v4: &[u8], v6: &[u8]) -> Vec<Vec<u8>> {
    let headed = |header: &[u8], packets: Vec<Vec<u8>>| {
        packets.into_iter().map(|packet| [header, &packet].concat()).collect::<Vec<_>>()
    };
    [headed(v4, v4_packets()), headed(v6, v6_packets())].concat()
}

/// Linux cooked: packet type, link type, address, protocol.
pub fn cooked() -> Vec<Vec<u8>> {
    let header = |ether_type| words(&[4, 1, 6, 0x0200, 0, 1, 0, ether_type]);
    let mut packets = behind(&header(0x0800), &header(0x86dd));
    packets.push([header(0x0806), arp_packet(1)].concat());
    packets
}

/// Linux cooked, version 2. No machine has an interface with this number.
pub fn cooked_2() -> Vec<Vec<u8>> {
    let header = |ether_type| words(&[ether_type, 0, 0x7fff, 7, 1, 0x0406, 0x0200, 0, 1, 0]);
    let mut packets = behind(&header(0x0800), &header(0x86dd));
    packets.push([header(0x0806), arp_packet(1)].concat());
    packets
}

/// BSD loopback: the address family in the byte order of the capturing machine.
pub fn loopback(family: impl Fn(u32) -> [u8; 4]) -> Vec<Vec<u8>> {
    behind(&family(2), &family(30))
}

/// PPP: address, control, protocol.
pub fn ppp() -> Vec<Vec<u8>> {
    behind(&[0xff, 3, 0, 0x21], &[0xff, 3, 0, 0x57])
}

/// 802.11 data frames of an access point, with LLC and SNAP before the packet.
pub fn wireless() -> Vec<Vec<u8>> {
    let header = |ether_type: u16| {
        let addresses = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 1]].concat();
        [&[8, 2, 0, 0][..], &addresses, &[0x10, 0, 0xaa, 0xaa, 3, 0, 0, 0], &ether_type.to_be_bytes()].concat()
    };
    behind(&header(0x0800), &header(0x86dd))
}

/// Bytes of a user-defined link type.
pub fn private() -> Vec<Vec<u8>> {
    [1, 20, 300].map(|length| noise(15, length)).to_vec()
}

/// Frames of few and of many bytes, as on a busy line.
pub fn mixed_sizes() -> Vec<Vec<u8>> {
    let length = |number: u32| match number % 12 {
        0..7 => 18,
        7..11 => 548,
        _ => 1_472,
    };
    (0..12).map(|number| V4.frame(&V4.udp(&noise(number, length(number))))).collect()
}

/// Frames with a check sequence of 4 bytes at their end.
pub fn with_fcs() -> Vec<Vec<u8>> {
    mixed_sizes().iter().map(|frame| [&frame[..], &super::crc32(frame).to_le_bytes()].concat()).collect()
}
