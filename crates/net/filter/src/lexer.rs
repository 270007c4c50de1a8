//! Cuts an expression into words, numbers, addresses and signs.
//!
//! The longest piece wins, as in libpcap: `5-3` is one word, a range of ports, not a difference.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::mistake::Mistake;
use crate::syntax::Protocol;

/// A piece of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Keyword(Keyword),
    Number(u32),
    /// A name, or a range of ports.
    Name(String),
    /// Two to four numbers with dots.
    Ipv4(String),
    Ipv6(String),
    Mac(String),
    /// An ARCnet address.
    Arcnet,
    Sign(Sign),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Plus,
    Minus,
    Times,
    Slash,
    Percent,
    Colon,
    OpenBracket,
    CloseBracket,
    Open,
    Close,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    Equal,
    NotEqual,
    Ampersand,
    Bar,
    Caret,
    ShiftLeft,
    ShiftRight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyword {
    Source,
    Destination,
    Protocol(Protocol),
    Host,
    Net,
    Mask,
    Port,
    PortRange,
    Proto,
    ProtoChain,
    Gateway,
    Less,
    Greater,
    Byte,
    Broadcast,
    Multicast,
    And,
    Or,
    Not,
    Length,
    Inbound,
    Outbound,
    IfIndex,
    Vlan,
    Mpls,
    PppoeDiscovery,
    PppoeSession,
    Geneve,
    Llc,
    /// `rnr`: a kind of LLC frames, and a word of filters for logs of pf.
    Rnr,
    /// A word that makes sense on another medium only.
    Foreign(&'static str),
}

const KEYWORDS: &[(&str, Keyword)] = &[
    ("dst", Keyword::Destination),
    ("src", Keyword::Source),
    ("host", Keyword::Host),
    ("net", Keyword::Net),
    ("mask", Keyword::Mask),
    ("port", Keyword::Port),
    ("portrange", Keyword::PortRange),
    ("proto", Keyword::Proto),
    ("protochain", Keyword::ProtoChain),
    ("gateway", Keyword::Gateway),
    ("less", Keyword::Less),
    ("greater", Keyword::Greater),
    ("byte", Keyword::Byte),
    ("broadcast", Keyword::Broadcast),
    ("multicast", Keyword::Multicast),
    ("and", Keyword::And),
    ("or", Keyword::Or),
    ("not", Keyword::Not),
    ("len", Keyword::Length),
    ("length", Keyword::Length),
    ("inbound", Keyword::Inbound),
    ("outbound", Keyword::Outbound),
    ("ifindex", Keyword::IfIndex),
    ("vlan", Keyword::Vlan),
    ("mpls", Keyword::Mpls),
    ("pppoed", Keyword::PppoeDiscovery),
    ("pppoes", Keyword::PppoeSession),
    ("geneve", Keyword::Geneve),
    ("llc", Keyword::Llc),
    ("rnr", Keyword::Rnr),
    ("rulenum", Keyword::Rnr),
];

const WIRELESS: &str = "802.11";
const ATM: &str = "raw ATM";
const SS7: &str = "SS7";
const PF: &str = "logs of pf";

/// Words for other media.
const FOREIGN: &[(&str, &[&str])] = &[
    (
        WIRELESS,
        &[
            "type",
            "subtype",
            "direction",
            "dir",
            "address1",
            "addr1",
            "address2",
            "addr2",
            "address3",
            "addr3",
            "address4",
            "addr4",
            "ra",
            "ta",
        ],
    ),
    (
        ATM,
        &[
            "lane",
            "metac",
            "bcc",
            "oam",
            "oamf4",
            "oamf4ec",
            "oamf4sc",
            "sc",
            "ilmic",
            "vpi",
            "vci",
            "connectmsg",
            "metaconnect",
        ],
    ),
    (PF, &["on", "ifname", "rset", "ruleset", "srnr", "subrulenum", "reason", "action"]),
    (
        SS7,
        &[
            "fisu", "lssu", "lsu", "msu", "hfisu", "hlssu", "hmsu", "sio", "opc", "dpc", "sls", "hsio", "hopc", "hdpc",
            "hsls",
        ],
    ),
];

/// Names of offsets and values.
const NUMBERS: &[(&str, u32)] = &[
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-multicastlistenerquery", 130),
    ("icmp6-multicastlistenerreportv1", 131),
    ("icmp6-multicastlistenerdone", 132),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
    ("icmp6-redirect", 137),
    ("icmp6-routerrenum", 138),
    ("icmp6-nodeinformationquery", 139),
    ("icmp6-nodeinformationresponse", 140),
    ("icmp6-ineighbordiscoverysolicit", 141),
    ("icmp6-ineighbordiscoveryadvert", 142),
    ("icmp6-multicastlistenerreportv2", 143),
    ("icmp6-homeagentdiscoveryrequest", 144),
    ("icmp6-homeagentdiscoveryreply", 145),
    ("icmp6-mobileprefixsolicit", 146),
    ("icmp6-mobileprefixadvert", 147),
    ("icmp6-certpathsolicit", 148),
    ("icmp6-certpathadvert", 149),
    ("icmp6-multicastrouteradvert", 151),
    ("icmp6-multicastroutersolicit", 152),
    ("icmp6-multicastrouterterm", 153),
    ("tcpflags", 13),
    ("tcp-fin", 0x01),
    ("tcp-syn", 0x02),
    ("tcp-rst", 0x04),
    ("tcp-push", 0x08),
    ("tcp-ack", 0x10),
    ("tcp-urg", 0x20),
    ("tcp-ece", 0x40),
    ("tcp-cwr", 0x80),
];

/// Whether a word has a meaning, so that a name that is spelt like it needs a backslash.
pub(crate) fn is_reserved(word: &str) -> bool {
    keyword(word).is_some() || NUMBERS.iter().any(|(name, _)| *name == word)
}

fn keyword(word: &str) -> Option<Keyword> {
    if let Some((_, keyword)) = KEYWORDS.iter().find(|(name, _)| *name == word) {
        return Some(*keyword);
    }
    if let Some(protocol) = Protocol::from_name(word) {
        return Some(Keyword::Protocol(protocol));
    }
    let (medium, _) = FOREIGN.iter().find(|(_, words)| words.contains(&word))?;
    Some(Keyword::Foreign(medium))
}

/// A piece and its place.
pub(crate) type Piece = (Token, Range<usize>);

/// Cuts an expression into its pieces.
pub(crate) fn cut(text: &str) -> Result<Vec<Piece>, Mistake> {
    let bytes = text.as_bytes();
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if matches!(bytes[at], b' ' | b'\r' | b'\n' | b'\t') {
            at += 1;
            continue;
        }
        let (token, length) = next(text, at)?;
        pieces.push((token, at..at + length));
        at += length;
    }
    Ok(pieces)
}

/// The candidates for a piece, by their length. The first of the longest wins.
#[derive(Clone, Copy, PartialEq)]
enum TokenCandidates {
    Sign(Sign),
    And,
    Or,
    Not,
    Arcnet,
    Mac,
    Number,
    Ipv4,
    Ipv6,
    BrokenMac,
    Word,
    Escaped,
}

fn next(text: &str, at: usize) -> Result<Piece2, Mistake> {
    let rest = &text.as_bytes()[at..];
    let mut best: Option<(TokenCandidates, usize)> = None;
    let mut offer = |kind, length: Option<usize>| {
        if let Some(length) = length
            && length > 0
            && best.is_none_or(|(_, longest)| length > longest)
        {
            best = Some((kind, length));
        }
    };
    let (sign, length) = sign(rest);
    offer(sign, length);
    offer(TokenCandidates::Arcnet, arcnet(rest));
    offer(TokenCandidates::Mac, mac(rest));
    offer(TokenCandidates::Number, number(rest));
    offer(TokenCandidates::Ipv4, ipv4(rest));
    offer(TokenCandidates::Ipv6, ipv6(rest));
    offer(TokenCandidates::BrokenMac, broken_mac(rest));
    offer(TokenCandidates::Word, word(rest));
    offer(TokenCandidates::Escaped, escaped(rest));
    let Some((kind, length)) = best else {
        let character = text[at..].chars().next().unwrap_or_default();
        return Err(Mistake::new(
            at..at + character.len_utf8(),
            format!("`{}` has no meaning here", character.escape_debug()),
            "expressions have words, numbers, addresses and the signs + - * / % & | ^ ! < > = ( ) [ ] :",
        ));
    };
    let piece = &text[at..at + length];
    let range = at..at + length;
    let token = match kind {
        TokenCandidates::Sign(sign) => Token::Sign(sign),
        TokenCandidates::And => Token::Keyword(Keyword::And),
        TokenCandidates::Or => Token::Keyword(Keyword::Or),
        TokenCandidates::Not => Token::Keyword(Keyword::Not),
        TokenCandidates::Arcnet => Token::Arcnet,
        TokenCandidates::Mac => Token::Mac(piece.to_owned()),
        TokenCandidates::Number => Token::Number(number_value(piece, range)?),
        TokenCandidates::Ipv4 => Token::Ipv4(piece.to_owned()),
        TokenCandidates::Ipv6 => Token::Ipv6(piece.to_owned()),
        TokenCandidates::BrokenMac => {
            return Err(Mistake::new(
                range,
                format!("`{piece}` is not an Ethernet address"),
                "it has six bytes: 00:1b:21:0a:0b:0c; an IPv6 address has eight groups, or `::`",
            ));
        }
        TokenCandidates::Word => match keyword(piece) {
            Some(keyword) => Token::Keyword(keyword),
            None => match NUMBERS.iter().find(|(name, _)| *name == piece) {
                Some(&(_, number)) => Token::Number(number),
                None => Token::Name(piece.to_owned()),
            },
        },
        TokenCandidates::Escaped => Token::Name(piece[1..].to_owned()),
    };
    Ok((token, length))
}

/// A piece and its length.
type Piece2 = (Token, usize);

fn sign(rest: &[u8]) -> (TokenCandidates, Option<usize>) {
    let two = match rest.get(..2) {
        Some(b"&&") => Some(TokenCandidates::And),
        Some(b"||") => Some(TokenCandidates::Or),
        Some(b">=") => Some(TokenCandidates::Sign(Sign::GreaterOrEqual)),
        Some(b"<=") => Some(TokenCandidates::Sign(Sign::LessOrEqual)),
        Some(b"!=") => Some(TokenCandidates::Sign(Sign::NotEqual)),
        Some(b"==") => Some(TokenCandidates::Sign(Sign::Equal)),
        Some(b"<<") => Some(TokenCandidates::Sign(Sign::ShiftLeft)),
        Some(b">>") => Some(TokenCandidates::Sign(Sign::ShiftRight)),
        _ => None,
    };
    if let Some(kind) = two {
        return (kind, Some(2));
    }
    let sign = match rest.first() {
        Some(b'+') => Sign::Plus,
        Some(b'-') => Sign::Minus,
        Some(b'*') => Sign::Times,
        Some(b'/') => Sign::Slash,
        Some(b'%') => Sign::Percent,
        Some(b':') => Sign::Colon,
        Some(b'[') => Sign::OpenBracket,
        Some(b']') => Sign::CloseBracket,
        Some(b'!') => return (TokenCandidates::Not, Some(1)),
        Some(b'<') => Sign::Less,
        Some(b'>') => Sign::Greater,
        Some(b'(') => Sign::Open,
        Some(b')') => Sign::Close,
        Some(b'&') => Sign::Ampersand,
        Some(b'|') => Sign::Bar,
        Some(b'^') => Sign::Caret,
        Some(b'=') => Sign::Equal,
        _ => return (TokenCandidates::Word, None),
    };
    (TokenCandidates::Sign(sign), Some(1))
}

/// Number of hexadecimal digits at the start.
fn hex_digits(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count()
}

fn decimal_digits(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn arcnet(rest: &[u8]) -> Option<usize> {
    let digits = hex_digits(rest.strip_prefix(b"$")?);
    (digits > 0).then_some(1 + digits.min(2))
}

fn mac(rest: &[u8]) -> Option<usize> {
    let groups = |count: usize, least: usize, most: usize, separator: u8| {
        let mut at = 0;
        for group in 0..count {
            let digits = hex_digits(&rest[at..]);
            let is_last = group == count - 1;
            if digits < least || (digits > most && !is_last) {
                return None;
            }
            at += digits.min(most);
            if !is_last {
                if rest.get(at) != Some(&separator) {
                    return None;
                }
                at += 1;
            }
        }
        Some(at)
    };
    let pairs = [b':', b'-', b'.'].map(|separator| groups(6, 1, 2, separator));
    let words = groups(3, 4, 4, b'.');
    let plain = (hex_digits(rest) >= 12).then_some(12);
    pairs.into_iter().chain([words, plain]).flatten().max()
}

fn number(rest: &[u8]) -> Option<usize> {
    if rest.len() > 2 && rest[0] == b'0' && matches!(rest[1], b'x' | b'X') {
        let digits = hex_digits(&rest[2..]);
        if digits > 0 {
            return Some(2 + digits);
        }
    }
    let digits = decimal_digits(rest);
    (digits > 0).then_some(digits)
}

/// Two to four numbers with dots.
fn ipv4(rest: &[u8]) -> Option<usize> {
    let mut at = number(rest)?;
    let mut numbers = 1;
    while numbers < 4
        && rest.get(at) == Some(&b'.')
        && let Some(digits) = number(&rest[at + 1..])
    {
        at += 1 + digits;
        numbers += 1;
    }
    (numbers > 1).then_some(at)
}

/// The longest piece that looks like an IPv6 address.
fn ipv6(rest: &[u8]) -> Option<usize> {
    let mut longest = None;
    let mut at = 0;
    let mut groups = 0;
    let mut has_gap = false;
    loop {
        // A gap, before the first group or after a colon that has been read.
        if !has_gap && rest[at..].starts_with(b"::") && groups <= 7 {
            has_gap = true;
            at += 2;
            longest = Some(at);
        } else if groups > 0 {
            if rest.get(at) != Some(&b':') {
                return longest;
            }
            at += 1;
        }
        // An IPv4 address at the end takes the place of two groups.
        if let Some(digits) = dotted(&rest[at..])
            && (groups == 6 && !has_gap || groups <= 5 && has_gap)
        {
            longest = longest.max(Some(at + digits));
        }
        let digits = hex_digits(&rest[at..]);
        if digits == 0 || groups == if has_gap { 7 } else { 8 } {
            return longest;
        }
        groups += 1;
        if has_gap || groups == 8 {
            longest = longest.max(Some(at + digits.min(4)));
        }
        if digits > 4 {
            return longest;
        }
        at += digits;
    }
}

/// Four numbers with dots.
fn dotted(rest: &[u8]) -> Option<usize> {
    let mut at = number(rest)?;
    for _ in 0..3 {
        if rest.get(at) != Some(&b'.') {
            return None;
        }
        at += 1;
        at += number(&rest[at..])?;
    }
    Some(at)
}

/// Pairs of digits with colons, which are no address.
fn broken_mac(rest: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut groups = 0;
    loop {
        let digits = hex_digits(&rest[at..]);
        if digits == 0 || digits > 2 || rest.get(at + digits) != Some(&b':') {
            break;
        }
        at += digits;
        at += rest[at..].iter().take_while(|&&byte| byte == b':').count();
        groups += 1;
    }
    (groups >= 2).then_some(at)
}

fn word(rest: &[u8]) -> Option<usize> {
    if !rest.first()?.is_ascii_alphanumeric() {
        return None;
    }
    let is_inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let length = rest.iter().take_while(|byte| is_inside(byte)).count();
    // It does not end with a hyphen or an underscore.
    let end = rest[..length].iter().rposition(|&byte| byte.is_ascii_alphanumeric() || byte == b'.');
    Some(end.map_or(1, |end| end + 1))
}

fn escaped(rest: &[u8]) -> Option<usize> {
    let rest = rest.strip_prefix(b"\\")?;
    let length = rest.iter().take_while(|byte| !matches!(byte, b' ' | b'!' | b'(' | b')' | b'\n' | b'\t')).count();
    (length > 0).then_some(1 + length)
}

fn number_value(text: &str, range: Range<usize>) -> Result<u32, Mistake> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    if radix == 8
        && let Some(digit) = digits.find(['8', '9'])
    {
        let place = range.start + digit;
        return Err(Mistake::new(
            place..place + 1,
            format!("`{text}` is octal because it starts with 0, and has no digit {}", &digits[digit..=digit]),
            "leave out the 0",
        ));
    }
    u32::from_str_radix(digits, radix)
        .map_err(|_| Mistake::new(range, format!("`{text}` does not fit in 32 bits"), "the largest is 4294967295"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        cut(text).unwrap().into_iter().map(|(token, _)| token).collect()
    }

    #[test]
    fn the_longest_piece_wins() {
        let name = |text: &str| Token::Name(text.to_owned());
        let mac = |text: &str| Token::Mac(text.to_owned());
        let six = |text: &str| Token::Ipv6(text.to_owned());
        let four = |text: &str| Token::Ipv4(text.to_owned());
        for (text, expected) in [
            ("5-3", name("5-3")),
            ("http-alt", name("http-alt")),
            ("tcp-syn", Token::Number(2)),
            ("tcp-synx", name("tcp-synx")),
            ("0x10", Token::Number(16)),
            ("010", Token::Number(8)),
            ("1.2", four("1.2")),
            ("1.2.3.4", four("1.2.3.4")),
            ("1.2.3.4.5", name("1.2.3.4.5")),
            ("1.2.3.4.5.6", mac("1.2.3.4.5.6")),
            ("00:1b:21:0a:0b:0c", mac("00:1b:21:0a:0b:0c")),
            ("001b.210a.0b0c", mac("001b.210a.0b0c")),
            ("001b210a0b0c", mac("001b210a0b0c")),
            ("::", six("::")),
            ("::1", six("::1")),
            ("fe80::", six("fe80::")),
            ("2001:db8::1:2", six("2001:db8::1:2")),
            ("1:2:3:4:5:6:7:8", six("1:2:3:4:5:6:7:8")),
            ("::ffff:10.0.0.1", six("::ffff:10.0.0.1")),
            ("1:2:3:4:5:6:10.0.0.1", six("1:2:3:4:5:6:10.0.0.1")),
            ("1:2:3:4:5:6:7::", six("1:2:3:4:5:6:7::")),
            ("\\tcp", name("tcp")),
            ("&&", Token::Keyword(Keyword::And)),
        ] {
            assert_eq!(tokens(text), [expected], "{text}");
        }
        assert_eq!(tokens("ip[0:2]").len(), 6);
        assert_eq!(tokens("a-"), [name("a"), Token::Sign(Sign::Minus)]);
    }

    #[test]
    fn mistakes_have_places() {
        for (text, range) in
            [("ip ? tcp", 3..4), ("port 089", 6..7), ("len > 4294967296", 6..16), ("ether 1:2:3", 6..10)]
        {
            assert_eq!(cut(text).unwrap_err().range, range, "{text}");
        }
        assert!(cut("host é").unwrap_err().message.contains('é'));
    }
}
