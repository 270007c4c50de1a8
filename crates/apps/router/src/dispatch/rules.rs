//! Rules, compiled into runs of equal fields.

use std::collections::HashMap;
use std::net::IpAddr;

use bellows_common::headers::{ETHERNET, Ends, Guesses, HEADERS_V4, HEADERS_V6, Outer, Pattern, is_v6, read, reversed};
use bellows_common::too_big::TooBig;
use bellows_config::{SettingError, nearest};
use bellows_wire::{IpPair, IpProtocol};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rule: the fields of packets that go to an output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The output to which packets of this rule go.
    pub to: String,

    /// The source address. Without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,

    /// The destination address. Without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,

    /// The protocol: a number from 0 to 255, or `"tcp"`, `"udp"`, `"sctp"`, `"icmp"`, `"icmpv6"`, `"gre"`, `"esp"`,
    /// `"l2tp"`. Without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,

    /// The destination port, of protocols that have ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// A protocol by its number or name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Protocol {
    /// Its number.
    Number(u8),
    /// Its name.
    Name(String),
}

impl Protocol {
    fn number(&self) -> Result<u8, SettingError> {
        let name = match self {
            Protocol::Number(number) => return Ok(*number),
            Protocol::Name(name) => name.as_str(),
        };
        let known = [
            ("tcp", IpProtocol::TCP.0),
            ("udp", IpProtocol::UDP.0),
            ("sctp", IpProtocol::SCTP.0),
            ("icmp", IpProtocol::ICMP.0),
            ("icmpv6", IpProtocol::ICMPV6.0),
            ("gre", IpProtocol::GRE.0),
            ("esp", 50),
            ("l2tp", 115),
        ];
        let found = known.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, number)| number).ok_or_else(|| {
            let help = match nearest(name, known.map(|(known, _)| known)) {
                Some(near) => format!("did you mean `{near}`? others have numbers"),
                None => "give its number".to_owned(),
            };
            SettingError::at("rules", format!("`{name}` is no protocol that has a name here"), help)
        })
    }
}

/// The fields of a rule or of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Fields {
    is_v6: bool,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    protocol: Option<u8>,
    port: Option<u16>,
}

/// Which fields rules have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RuleFields {
    is_v6: bool,
    source: bool,
    destination: bool,
    protocol: bool,
    port: bool,
}

impl Fields {
    fn shape(&self) -> RuleFields {
        RuleFields {
            is_v6: self.is_v6,
            source: self.source.is_some(),
            destination: self.destination.is_some(),
            protocol: self.protocol.is_some(),
            port: self.port.is_some(),
        }
    }

    /// The fields that rules of a shape have.
    fn of(self, shape: RuleFields) -> Fields {
        Fields {
            is_v6: self.is_v6,
            source: self.source.filter(|_| shape.source),
            destination: self.destination.filter(|_| shape.destination),
            protocol: self.protocol.filter(|_| shape.protocol),
            port: self.port.filter(|_| shape.port),
        }
    }

    /// Of a packet, as its headers have them; `None` if it is no whole packet.
    fn read(frame: &[u8]) -> Option<Fields> {
        let outer = Outer::read(frame);
        let (addresses, protocol, port) = match outer {
            Ok(outer) => {
                let bytes = frame.get(outer.start..outer.end)?;
                let has_ports = has_ports(outer.protocol.0);
                let port = bytes.get(2..4).filter(|_| has_ports).map(|port| u16::from_be_bytes([port[0], port[1]]));
                (outer.addresses, Some(outer.protocol.0), port)
            }
            Err(_) => fragment(frame)?,
        };
        Some(Fields::between(addresses, protocol, port))
    }

    /// Of an answer to the packet that an error quotes, to the port that is `port_at` bytes behind its IP header.
    fn of_answer(error: &TooBig<'_>, port_at: usize) -> Fields {
        let port = has_ports(error.protocol.0).then(|| read(error.payload, port_at));
        Fields::between(reversed(error.addresses), Some(error.protocol.0), port)
    }

    fn between(addresses: IpPair, protocol: Option<u8>, port: Option<u16>) -> Fields {
        let (is_v6, source, destination) = match addresses {
            IpPair::V4 { src, dst } => (false, IpAddr::V4(src), IpAddr::V4(dst)),
            IpPair::V6 { src, dst } => (true, IpAddr::V6(src), IpAddr::V6(dst)),
        };
        Fields { is_v6, source: Some(source), destination: Some(destination), protocol, port }
    }
}

/// The addresses of a fragment, and its protocol if it is one of IPv4.
fn fragment(frame: &[u8]) -> Option<(IpPair, Option<u8>, Option<u16>)> {
    let ip = frame.get(ETHERNET..)?;
    if is_v6(frame) {
        let packet = bellows_wire::ipv6::Ipv6Packet::new_checked(ip).ok()?;
        return Some((packet.addresses(), None, None));
    }
    let packet = bellows_wire::ipv4::Ipv4Packet::new_checked(ip).ok()?;
    Some((packet.addresses(), Some(packet.protocol().0), None))
}

/// Whether a protocol has ports.
fn has_ports(protocol: u8) -> bool {
    [IpProtocol::TCP, IpProtocol::UDP, IpProtocol::SCTP].contains(&IpProtocol(protocol))
}

/// Whether a next header is an extension header that is skipped. Hot.
#[inline(always)]
fn is_extension(next_header: u8) -> bool {
    const EXTENSIONS: u64 = 1 << IpProtocol::IPV6_HOP_BY_HOP.0
        | 1 << IpProtocol::IPV6_ROUTE.0
        | 1 << IpProtocol::IPV6_FRAGMENT.0
        | 1 << IpProtocol::AH.0
        | 1 << IpProtocol::IPV6_DESTINATION.0;
    next_header < 64 && EXTENSIONS >> next_header & 1 != 0
}

/// Rules in a row with the same fields.
struct Run {
    shape: RuleFields,
    exact: HashMap<Fields, usize>,
    guesses: Guesses,
    patterns: Vec<(Pattern, usize)>,
    /// The bits of addresses that count.
    masks: [u64; 2],
}

/// Rules.
pub(super) struct Rules {
    /// Those of IPv4 and of IPv6.
    runs: [Vec<Run>; 2],
    /// A number that no rule has.
    none: usize,
    /// Whether a rule of IPv6 has a protocol, which may be behind extension headers.
    reads_protocols: bool,
}

/// Rules of an app.
const MAX_RULES: usize = 16_384;

impl Rules {
    /// # Errors
    /// If a value is wrong.
    pub(super) fn new(rules: &[Rule]) -> Result<Rules, SettingError> {
        if rules.is_empty() {
            return Err(SettingError::at("rules", "there is no rule", "add one with `to` and some fields"));
        }
        if rules.len() > MAX_RULES {
            let message = format!("{} rules are too many for one app", rules.len());
            return Err(SettingError::at("rules", message, format!("spread them over several of up to {MAX_RULES}")));
        }
        let mut runs: Vec<Vec<(Fields, usize)>> = Vec::new();
        for (place, rule) in rules.iter().enumerate() {
            for fields in rule.fields().map_err(|error| error.in_item(place))? {
                // Rules of one family do not come in between those of the other.
                let last = runs.iter_mut().rfind(|run| run[0].0.is_v6 == fields.is_v6);
                match last {
                    Some(run) if run[0].0.shape() == fields.shape() => run.push((fields, place)),
                    _ => runs.push(vec![(fields, place)]),
                }
            }
        }
        let (v6, v4): (Vec<Run>, Vec<Run>) =
            runs.into_iter().map(Run::new).collect::<Result<Vec<_>, _>>()?.into_iter().partition(|run| run.shape.is_v6);
        let reads_protocols = v6.iter().any(|run| run.shape.protocol);
        Ok(Rules { runs: [v4, v6], none: rules.len(), reads_protocols })
    }

    /// The rule of a usual packet, if one matches, or a number that no rule has. Hot.
    #[inline(always)]
    pub(super) fn guess(&self, frame: &[u8]) -> usize {
        let is_v6 = is_v6(frame);
        if is_v6 & self.reads_protocols && is_extension(frame.get(ETHERNET + 6).copied().unwrap_or(0)) {
            return self.none;
        }
        for run in &self.runs[usize::from(is_v6)] {
            let guess = run.guess(frame, is_v6);
            match run.patterns.get(guess) {
                Some((pattern, rule)) if pattern.is_start_of(frame) => return *rule,
                // It may match a rule of this run, which goes before those of later runs.
                None if guess == Guesses::OPEN => return self.none,
                _ => {}
            }
        }
        self.none
    }

    /// The first rule that a packet matches. An ICMP error that says that a packet was too long also matches the rules
    /// for answers to that packet, which tell who has sent it.
    pub(super) fn find(&self, frame: &[u8]) -> Option<usize> {
        self.find_fields(Fields::read(frame)?).or_else(|| {
            let error = TooBig::read(frame)?;
            // Ports of tunnels are those of destinations, whoever sends.
            [0, 2].into_iter().find_map(|port_at| self.find_fields(Fields::of_answer(&error, port_at)))
        })
    }

    fn find_fields(&self, fields: Fields) -> Option<usize> {
        let runs = &self.runs[usize::from(fields.is_v6)];
        runs.iter().find_map(|run| run.exact.get(&fields.of(run.shape)).copied())
    }
}

impl Run {
    fn new(rules: Vec<(Fields, usize)>) -> Result<Run, SettingError> {
        let shape = rules[0].0.shape();
        let mut run = Run {
            shape,
            exact: HashMap::new(),
            guesses: Guesses::new(&[]),
            patterns: Vec::new(),
            masks: [shape.source, shape.destination].map(|counts| if counts { u64::MAX } else { 0 }),
        };
        let mut entries = Vec::new();
        for (number, (fields, rule)) in (0u16..).zip(&rules) {
            if run.exact.insert(*fields, *rule).is_some() {
                let message = "an earlier rule has the same fields";
                return Err(SettingError::at("rules", message, "remove one of them").in_item(*rule));
            }
            entries.push((number, run.ends(*fields)));
            run.patterns.push((fields.pattern(), *rule));
        }
        run.guesses = Guesses::new(&entries);
        Ok(run)
    }

    /// The parts that distinguish rules.
    fn ends(&self, fields: Fields) -> Ends {
        let part = |address: Option<IpAddr>| match address {
            Some(IpAddr::V4(v4)) => u64::from(u32::from(v4)),
            Some(IpAddr::V6(v6)) => u128::from(v6) as u64,
            None => 0,
        };
        let number = u64::from(fields.protocol.unwrap_or(0)) << 16 | u64::from(fields.port.unwrap_or(0));
        Ends { src: part(fields.source), dst: part(fields.destination), number }
    }

    /// The place of the only pattern that a packet can match, as [`Guesses::guess`] returns it. Hot.
    #[inline(always)]
    fn guess(&self, frame: &[u8], is_v6: bool) -> usize {
        if self.patterns.len() == 1 {
            return 0;
        }
        let at = if is_v6 { ETHERNET + 6 } else { ETHERNET + 9 };
        let protocol = if self.shape.protocol { frame.get(at).copied().unwrap_or(0) } else { 0 };
        let port = if self.shape.port { Ends::number(frame, is_v6, 0) & 0xffff } else { 0 };
        let mut ends = Ends::read(frame, is_v6, u64::from(protocol) << 16 | port);
        ends.src &= self.masks[0];
        ends.dst &= self.masks[1];
        self.guesses.guess(ends)
    }
}

impl Rule {
    /// Whether packets of a family can match. Addresses that are none are for `Rules::new` to refuse.
    pub fn is_of(&self, is_v6: bool) -> bool {
        let mut addresses = [&self.source, &self.destination].into_iter().flatten();
        addresses.all(|text| text.parse::<IpAddr>().map_or(true, |address| address.is_ipv6() == is_v6))
    }

    /// The fields, for each family that they can be of.
    fn fields(&self) -> Result<Vec<Fields>, SettingError> {
        let wrong = |message: String, help: &str| SettingError::at("rules", message, help);
        let read = |text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => text
                .parse::<IpAddr>()
                .map(Some)
                .map_err(|_| wrong(format!("`{text}` is no IP address"), "write it as 192.0.2.1 or 2001:db8::1")),
        };
        let (source, destination) = (read(&self.source)?, read(&self.destination)?);
        let protocol = match &self.protocol {
            Some(protocol) => Some(protocol.number()?),
            None => None,
        };
        if self.port.is_some() && !protocol.is_some_and(has_ports) {
            let message = "a port needs a protocol that has ports".to_owned();
            return Err(wrong(message, "add `protocol`: tcp, udp or sctp"));
        }
        let family = match (source, destination) {
            (Some(one), Some(other)) if one.is_ipv6() != other.is_ipv6() => {
                let message = format!("`{one}` and `{other}` are addresses of two families");
                return Err(wrong(message, "give two of one family"));
            }
            (Some(address), _) | (_, Some(address)) => Some(address.is_ipv6()),
            (None, None) => None,
        };
        let families = [false, true].into_iter().filter(|is_v6| family.is_none_or(|family| family == *is_v6));
        Ok(families.map(|is_v6| Fields { is_v6, source, destination, protocol, port: self.port }).collect())
    }
}

impl Fields {
    /// The header of usual packets with these fields: without options or extension headers, and no fragments.
    fn pattern(&self) -> Pattern {
        let start = if self.is_v6 { HEADERS_V6 } else { HEADERS_V4 };
        let (mut header, mut mask) = (vec![0; start + 4], vec![0; start + 4]);
        let mut set = |at: usize, bytes: &[u8], bits: &[u8]| {
            header[at..at + bytes.len()].copy_from_slice(bytes);
            mask[at..at + bits.len()].copy_from_slice(bits);
        };
        let [protocol_at, source_at, destination_at] = if self.is_v6 { [6, 8, 24] } else { [9, 12, 16] };
        match self.is_v6 {
            true => set(ETHERNET, &[0x60], &[0xf0]),
            false => {
                set(ETHERNET, &[0x45], &[0xff]);
                set(ETHERNET + 6, &[0, 0], &[0x3f, 0xff]);
            }
        }
        if let Some(protocol) = self.protocol {
            set(ETHERNET + protocol_at, &[protocol], &[0xff]);
        }
        for (address, at) in [(self.source, source_at), (self.destination, destination_at)] {
            match address {
                Some(IpAddr::V4(v4)) => set(ETHERNET + at, &v4.octets(), &[0xff; 4]),
                Some(IpAddr::V6(v6)) => set(ETHERNET + at, &v6.octets(), &[0xff; 16]),
                None => {}
            }
        }
        if let Some(port) = self.port {
            set(start + 2, &port.to_be_bytes(), &[0xff; 2]);
        }
        Pattern::new(&header, &mask)
    }
}
