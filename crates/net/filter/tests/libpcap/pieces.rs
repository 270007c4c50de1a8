//! Random expressions of pieces in any order.

use fastrand::Rng;

/// Pieces that have a meaning somewhere.
const PIECES: &[&str] = &[
    "ip",
    "ip6",
    "tcp",
    "udp",
    "ether",
    "arp",
    "iso",
    "decnet",
    "host",
    "net",
    "port",
    "portrange",
    "proto",
    "protochain",
    "src",
    "dst",
    "and",
    "or",
    "not",
    "!",
    "(",
    ")",
    "[",
    "]",
    ":",
    "=",
    "<",
    ">",
    "!=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "|",
    "^",
    "<<",
    "5",
    "80",
    "0x10",
    "010",
    "09",
    "4294967296",
    "10.0.0.1",
    "10.0",
    "1.2.3",
    "::1",
    "fe80::",
    "1:2:3:4:5:6",
    "1:2:",
    "00-11-22-33-44-55",
    "0011.2233.4455",
    "001122334455",
    "80-90",
    "a-",
    "_",
    "$a1",
    "\\tcp",
    "\\",
    "len",
    "less",
    "greater",
    "byte",
    "broadcast",
    "multicast",
    "vlan",
    "mpls",
    "pppoed",
    "pppoes",
    "geneve",
    "llc",
    "rnr",
    "i",
    "u",
    "inbound",
    "ifindex",
    "mask",
    "gateway",
    "type",
    "lane",
    "vpi",
    "fisu",
    "on",
    "tcpflags",
    "tcp-syn",
    "icmptype",
    "src or dst",
    "dst and src",
    "1.2.3.4.5",
    "::ffff:1.2.3.4",
    "1::2::3",
    "12345::",
    "0:1:2:3:4:5:6:7:8",
    "#",
    "\u{e9}",
    ".",
    "addr1",
];

/// Pieces in any order, or a written expression with one of its words changed.
pub fn pieces(random: &mut Rng, written: &[String]) -> String {
    let piece = |random: &mut Rng| PIECES[random.usize(..PIECES.len())];
    if random.bool() {
        let count = random.usize(1..9);
        let separator = if random.u8(..8) == 0 { "" } else { " " };
        return (0..count).map(|_| piece(random)).collect::<Vec<_>>().join(separator);
    }
    let mut words: Vec<&str> = written[random.usize(..written.len())].split(' ').collect();
    let at = random.usize(..words.len());
    match random.u8(..3) {
        0 => words[at] = piece(random),
        1 => words.insert(at, piece(random)),
        _ => {
            words.remove(at);
        }
    }
    words.join(" ")
}
