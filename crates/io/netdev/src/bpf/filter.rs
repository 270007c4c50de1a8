//! Which frames an XDP program gives to sockets: a list of matches in words like those of `tcpdump`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// EtherTypes with words of their own (IANA, "IEEE 802 Numbers").
pub(super) mod ethertype {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const IPV6: u16 = 0x86dd;
}

/// Protocols above IP with words of their own (IANA, "Protocol Numbers").
pub(super) mod protocol {
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ICMP6: u8 = 58;
    pub const SCTP: u8 = 132;
}

/// The frames that go to sockets; the kernel keeps all others.
///
/// A frame goes to a socket if one of `redirect` matches and none of `pass` does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The frames for sockets.
    pub redirect: Vec<Match>,
    /// The frames among them that the kernel keeps.
    pub pass: Vec<Match>,
}

impl Filter {
    /// All frames go to sockets.
    pub fn all() -> Filter {
        Filter { redirect: vec![Match::All], pass: Vec::new() }
    }
}

/// A property of a frame.
///
/// Up to two VLAN tags (EtherType 0x8100 or 0x88a8) are skipped first. A tag that the kernel has taken out of the frame
/// is not seen. A header that is cut off has no fields, so no match but [`Match::All`] on them holds.
///
/// In text: `all`; `arp`, `ip`, `ip6`; `ether proto 0x88cc`, `ether dst 02:00:00:00:00:01`; `icmp`, `icmp6`, `tcp`, `udp`,
/// `sctp`, `ip proto 47`, `ip6 proto 47`, `proto 47`; `port 53`, `src port 53`, `udp dst port 4789`, `tcp port 1000-2000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Every frame.
    All,
    /// The EtherType, after VLAN tags.
    EtherType(u16),
    /// The destination address.
    Destination([u8; 6]),
    /// The protocol above IP: for IPv6, after the extension headers (at most [`MAX_EXTENSIONS`]). A fragment after the
    /// first has that of its fragment header.
    Protocol {
        /// The version of IP; `None` for both.
        version: Option<IpVersion>,
        /// The number of the protocol.
        number: u8,
    },
    /// The port of TCP, UDP or SCTP, over IPv4 or IPv6. Fragments after the first have none.
    Port {
        /// The protocol; `None` for all three.
        protocol: Option<PortProtocol>,
        /// Which of the two ports; `None` for either.
        direction: Option<PortDirection>,
        /// The ports.
        ports: RangeInclusive<u16>,
    },
}

/// Maximum number of IPv6 extension headers before the protocol.
pub const MAX_EXTENSIONS: usize = 4;

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// Its EtherType.
    pub(super) fn ethertype(self) -> u16 {
        match self {
            IpVersion::V4 => ethertype::IPV4,
            IpVersion::V6 => ethertype::IPV6,
        }
    }

    fn word(self) -> &'static str {
        match self {
            IpVersion::V4 => "ip",
            IpVersion::V6 => "ip6",
        }
    }
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl PortProtocol {
    /// All of them.
    pub(super) const ALL: [PortProtocol; 3] = [PortProtocol::Tcp, PortProtocol::Udp, PortProtocol::Sctp];

    /// Its number above IP.
    pub(super) fn number(self) -> u8 {
        match self {
            PortProtocol::Tcp => protocol::TCP,
            PortProtocol::Udp => protocol::UDP,
            PortProtocol::Sctp => protocol::SCTP,
        }
    }

    fn word(self) -> &'static str {
        match self {
            PortProtocol::Tcp => "tcp",
            PortProtocol::Udp => "udp",
            PortProtocol::Sctp => "sctp",
        }
    }
}

/// Which port of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortDirection {
    /// The port that it comes from.
    Source,
    /// The port that it goes to.
    Destination,
}

impl PortDirection {
    fn word(self) -> &'static str {
        match self {
            PortDirection::Source => "src",
            PortDirection::Destination => "dst",
        }
    }
}

/// The words for matches without parameters.
const WORDS: [(&str, Match); 9] = [
    ("all", Match::All),
    ("arp", Match::EtherType(ethertype::ARP)),
    ("ip", Match::EtherType(ethertype::IPV4)),
    ("ip6", Match::EtherType(ethertype::IPV6)),
    ("icmp", Match::Protocol { version: Some(IpVersion::V4), number: protocol::ICMP }),
    ("icmp6", Match::Protocol { version: Some(IpVersion::V6), number: protocol::ICMP6 }),
    ("tcp", Match::Protocol { version: None, number: protocol::TCP }),
    ("udp", Match::Protocol { version: None, number: protocol::UDP }),
    ("sctp", Match::Protocol { version: None, number: protocol::SCTP }),
];

impl fmt::Display for Match {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((word, _)) = WORDS.iter().find(|(_, meaning)| meaning == self) {
            return formatter.write_str(word);
        }
        match self {
            Match::All => formatter.write_str("all"),
            Match::EtherType(number) => write!(formatter, "ether proto {number:#06x}"),
            Match::Destination([a, b, c, d, e, f]) => {
                write!(formatter, "ether dst {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
            }
            Match::Protocol { version: None, number } => write!(formatter, "proto {number}"),
            Match::Protocol { version: Some(version), number } => {
                write!(formatter, "{} proto {number}", version.word())
            }
            Match::Port { protocol, direction, ports } => {
                for word in [protocol.map(PortProtocol::word), direction.map(PortDirection::word)].into_iter().flatten()
                {
                    write!(formatter, "{word} ")?;
                }
                match ports.start() == ports.end() {
                    true => write!(formatter, "port {}", ports.start()),
                    false => write!(formatter, "port {}-{}", ports.start(), ports.end()),
                }
            }
        }
    }
}

/// The text is no match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no match of frames{problem}; write `all`, `arp`, `ip`, `ip6`, `icmp`, `icmp6`, `tcp`, `udp`, `sctp`, \
     `ether proto 0x88cc`, `ether dst 02:00:00:00:00:01`, `ip proto 47`, `ip6 proto 47`, `proto 47`, or \
     `[tcp|udp|sctp] [src|dst] port 80` (a range: `port 1000-2000`)"
)]
pub struct MatchError {
    text: String,
    problem: String,
}

impl FromStr for Match {
    type Err = MatchError;

    fn from_str(text: &str) -> Result<Match, MatchError> {
        parse(text).map_err(|problem| {
            let problem = if problem.is_empty() { problem } else { format!(": {problem}") };
            MatchError { text: text.to_owned(), problem }
        })
    }
}

/// Parses a match, or names the problem; an empty text if none of the forms is near.
fn parse(text: &str) -> Result<Match, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    match words[..] {
        [word] => {
            let found = WORDS.iter().find(|(known, _)| *known == word);
            found.map(|(_, meaning)| meaning.clone()).ok_or_else(String::new)
        }
        ["ether", "proto", number] => Ok(Match::EtherType(parse_number(number, "an EtherType", u16::MAX)?)),
        ["ether", "dst", address] => Ok(Match::Destination(parse_address(address)?)),
        ["proto", number] => Ok(Match::Protocol { version: None, number: parse_protocol(number)? }),
        ["ip", "proto", number] => {
            Ok(Match::Protocol { version: Some(IpVersion::V4), number: parse_protocol(number)? })
        }
        ["ip6", "proto", number] => {
            Ok(Match::Protocol { version: Some(IpVersion::V6), number: parse_protocol(number)? })
        }
        [ref before @ .., "port" | "portrange", ports] => parse_port(before, ports),
        _ => Err(String::new()),
    }
}

fn parse_port(mut before: &[&str], ports: &str) -> Result<Match, String> {
    let mut protocol = None;
    let mut direction = None;
    if let [word, rest @ ..] = before {
        protocol = PortProtocol::ALL.into_iter().find(|protocol| protocol.word() == *word);
        before = if protocol.is_some() { rest } else { before };
    }
    if let [word, rest @ ..] = before {
        direction = [PortDirection::Source, PortDirection::Destination].into_iter().find(|one| one.word() == *word);
        before = if direction.is_some() { rest } else { before };
    }
    if let [unknown, ..] = before {
        return Err(format!(
            "`{unknown}` before `port` is not one of `tcp`, `udp`, `sctp`, `src`, `dst`, in this order"
        ));
    }
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let [first, last] = [first, last].map(|port| parse_number(port, "a port", u16::MAX));
    let ports = first?..=last?;
    match ports.is_empty() {
        true => Err(format!("the range ends at port {} before it begins at {}", ports.end(), ports.start())),
        false => Ok(Match::Port { protocol, direction, ports }),
    }
}

fn parse_protocol(text: &str) -> Result<u8, String> {
    Ok(parse_number(text, "a protocol", u8::MAX.into())? as u8)
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
fn parse_number(text: &str, what: &str, max: u16) -> Result<u16, String> {
    // The standard library also accepts a sign.
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = match text.strip_prefix("0x").unwrap_or(text) {
        number if !digits(number) => None,
        number if number.len() < text.len() => u16::from_str_radix(number, 16).ok(),
        number => number.parse().ok(),
    };
    number.filter(|number| *number <= max).ok_or_else(|| format!("`{text}` is not {what} from 0 to {max}"))
}

fn parse_address(text: &str) -> Result<[u8; 6], String> {
    let problem = || format!("`{text}` is not an Ethernet address of six hexadecimal bytes with colons");
    let bytes = text.split(':').map(|byte| match byte.len() {
        1 | 2 if byte.bytes().all(|digit| digit.is_ascii_hexdigit()) => u8::from_str_radix(byte, 16).ok(),
        _ => None,
    });
    let bytes: Option<Vec<u8>> = bytes.collect();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(problem)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any match, mostly of numbers that frames have.
    pub fn any_match() -> impl Strategy<Value = Match> {
        let ethertype = prop_oneof![Just(ethertype::IPV4), Just(ethertype::ARP), Just(ethertype::IPV6), any::<u16>()];
        let number = prop_oneof![
            prop::sample::select(vec![protocol::ICMP, protocol::TCP, protocol::UDP, protocol::ICMP6, protocol::SCTP]),
            any::<u8>()
        ];
        let version = prop::option::of(prop::sample::select(vec![IpVersion::V4, IpVersion::V6]));
        let port_protocol = prop::option::of(prop::sample::select(PortProtocol::ALL.to_vec()));
        let directions = vec![PortDirection::Source, PortDirection::Destination];
        let direction = prop::option::of(prop::sample::select(directions));
        let port = || prop_oneof![0u16..8, any::<u16>(), Just(u16::MAX)];
        prop_oneof![
            1 => Just(Match::All),
            2 => ethertype.prop_map(Match::EtherType),
            2 => prop_oneof![Just([2, 0, 0, 0, 0, 1]), any::<[u8; 6]>()].prop_map(Match::Destination),
            4 => (version, number).prop_map(|(version, number)| Match::Protocol { version, number }),
            6 => (port_protocol, direction, port(), port()).prop_map(|(protocol, direction, one, other)| {
                Match::Port { protocol, direction, ports: one.min(other)..=one.max(other) }
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_match_is_read_back_from_its_text(expected in any_match()) {
            let text = expected.to_string();
            prop_assert_eq!(text.parse::<Match>(), Ok(expected), "{}", text);
        }

        #[test]
        fn any_text_is_a_match_or_an_error(text in "\\PC*", words in "(tcp |src |port |ether |proto |ip |0x|-|:|1|99999)*") {
            let _ = text.parse::<Match>();
            let _ = words.parse::<Match>();
        }
    }

    #[test]
    fn the_words_of_tcpdump_are_understood() {
        let port = |protocol, direction, ports| Match::Port { protocol, direction, ports };
        let v4 = Some(IpVersion::V4);
        for (text, expected) in [
            ("all", Match::All),
            ("  arp ", Match::EtherType(0x0806)),
            ("icmp6", Match::Protocol { version: Some(IpVersion::V6), number: 58 }),
            ("ether proto 0x88cc", Match::EtherType(0x88cc)),
            ("ether proto 2054", Match::EtherType(0x0806)),
            ("ether dst 2:0:0:0:0:ff", Match::Destination([2, 0, 0, 0, 0, 255])),
            ("ip proto 47", Match::Protocol { version: v4, number: 47 }),
            ("tcp port 80", port(Some(PortProtocol::Tcp), None, 80..=80)),
            ("udp dst port 4789", port(Some(PortProtocol::Udp), Some(PortDirection::Destination), 4789..=4789)),
            ("src port 53", port(None, Some(PortDirection::Source), 53..=53)),
            ("port 1000-2000", port(None, None, 1000..=2000)),
            ("sctp portrange 0-65535", port(Some(PortProtocol::Sctp), None, 0..=65535)),
        ] {
            assert_eq!(text.parse::<Match>(), Ok(expected), "{text}");
        }
        assert_eq!("ether proto 2054".parse::<Match>().unwrap().to_string(), "arp");
    }

    #[test]
    fn an_error_names_the_problem_and_the_forms() {
        for (text, problem) in [
            ("", ""),
            ("everything", ""),
            ("tcp prot 80", ""),
            ("icmp port 80", "`icmp` before `port`"),
            ("dst tcp port 80", "`tcp` before `port`"),
            ("port 65536", "`65536` is not a port from 0 to 65535"),
            ("port +1", "`+1` is not a port"),
            ("port 1-2-3", "`2-3` is not a port"),
            ("port 2-1", "ends at port 1 before it begins at 2"),
            ("ip proto 256", "`256` is not a protocol from 0 to 255"),
            ("ether proto 0x", "`0x` is not an EtherType"),
            ("ether dst 02:00:00:00:00", "six hexadecimal bytes"),
            ("ether dst 02:00:00:00:00:+1", "six hexadecimal bytes"),
        ] {
            let error = text.parse::<Match>().unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("[tcp|udp|sctp] [src|dst] port 80"), "{error}");
        }
    }
}
