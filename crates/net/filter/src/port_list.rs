//! Long lists of ports: alternatives that differ only in their numbers, and are decided as a whole.
//!
//! Whether a packet with whole headers matches does not depend on that. A packet that was cut between its ports may
//! match a list whose tests one after the other would have rejected it.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::syntax::{AddressKind, Connective, Direction, Id, Node, Primitive, Protocol};

/// From this number of ports on they are a list. It is beyond the number up to which
/// [`simplify`](crate::classic::simplify) makes all the changes that libpcap makes.
pub(crate) const MANY_PORTS: usize = 1_024;

/// Ports with the same qualifiers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PortList {
    pub protocol: Option<Protocol>,
    pub direction: Direction,
    /// From the first to the second port, both included; sorted, with gaps between.
    pub ports: Vec<(u32, u32)>,
    /// Whether a packet must have none of them.
    pub is_negated: bool,
    /// Number of operands of the chain.
    pub operands: usize,
    pub range: Range<usize>,
}

/// Finds the lists of a chain.
pub(crate) struct PortLists<'t> {
    first: &'t Node,
    rest: &'t [(Connective, Node)],
    /// The operand from which on nobody has looked.
    unseen: usize,
}

/// The qualifiers and the ports of a node.
type QualifiedPorts = (Option<Protocol>, Direction, (u32, u32));

impl<'t> PortLists<'t> {
    pub(crate) fn new(first: &'t Node, rest: &'t [(Connective, Node)]) -> PortLists<'t> {
        PortLists { first, rest, unseen: 0 }
    }

    /// The list that starts with this operand, if one does. Meant to be called for one operand after the other.
    pub(crate) fn at(&mut self, start: usize) -> Option<PortList> {
        if start < self.unseen || self.rest.len() + 1 - start < MANY_PORTS {
            return None;
        }
        // The operands in front of the first one count as one, which both connectives join alike.
        let connective = self.rest[start.saturating_sub(1)].0;
        let is_negated = connective == Connective::And;
        let (protocol, direction, _) = ports(self.operand(start), is_negated)?;
        let mut found = Vec::new();
        for operand in start..=self.rest.len() {
            if operand > start && self.rest[operand - 1].0 != connective {
                break;
            }
            match ports(self.operand(operand), is_negated) {
                Some((own_protocol, own_direction, ports))
                    if (own_protocol, own_direction) == (protocol, direction) =>
                {
                    found.push(ports);
                }
                _ => break,
            }
        }
        let operands = found.len();
        self.unseen = start + operands;
        let range = self.operand(start).range().start..self.operand(self.unseen - 1).range().end;
        (operands >= MANY_PORTS).then(|| PortList {
            protocol,
            direction,
            ports: joined(found),
            is_negated,
            operands,
            range,
        })
    }

    fn operand(&self, index: usize) -> &'t Node {
        match index.checked_sub(1) {
            None => self.first,
            Some(index) => &self.rest[index].1,
        }
    }
}

/// The ports of a test that can be in a list, or of what is negated.
fn ports(node: &Node, is_negated: bool) -> Option<QualifiedPorts> {
    let primitive = match node {
        Node::Not(inner, _) if is_negated => match &**inner {
            Node::Primitive(primitive, _) => primitive,
            _ => return None,
        },
        Node::Primitive(primitive, _) if !is_negated => primitive,
        _ => return None,
    };
    let Primitive::Address { qualifiers, id } = primitive else { return None };
    let number = |text: &str| text.parse::<u32>().ok();
    let (first, last) = match (qualifiers.kind, id) {
        (AddressKind::Port | AddressKind::PortRange, &Id::Number(number)) => (number, number),
        (AddressKind::PortRange, Id::Name(text)) => {
            let (first, last) = text.split_once('-')?;
            let (first, last) = (number(first)?, number(last)?);
            (first.min(last), first.max(last))
        }
        _ => return None,
    };
    let has_ports = matches!(qualifiers.protocol, None | Some(Protocol::Tcp | Protocol::Udp | Protocol::Sctp));
    // Both ports of a packet being in a list does not mean that they are equal.
    let is_of_one = qualifiers.direction != Direction::Both;
    (has_ports && is_of_one && last <= u16::MAX.into()).then_some((
        qualifiers.protocol,
        qualifiers.direction,
        (first, last),
    ))
}

/// The same numbers, sorted, with gaps between.
fn joined(mut ports: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ports.sort_unstable();
    ports.dedup_by(|next, last| {
        let is_next = next.0 <= last.1 + 1;
        if is_next {
            last.1 = last.1.max(next.1);
        }
        is_next
    });
    ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret::{PacketView, matches};
    use crate::parser;
    use crate::{Expression, Options};

    /// A list: its first operand, number of operands, and ports.
    type Found = (usize, usize, Vec<(u32, u32)>);

    /// The lists of an expression.
    fn lists(text: &str) -> Vec<Found> {
        let tree = parser::parse(text).unwrap().unwrap();
        let Node::Chain { first, rest, .. } = &tree else { panic!("no chain") };
        let mut lists = PortLists::new(first, rest);
        let mut found = Vec::new();
        let mut operand = 0;
        while operand <= rest.len() {
            match lists.at(operand) {
                Some(list) => {
                    found.push((operand, list.operands, list.ports));
                    operand += list.operands;
                }
                None => operand += 1,
            }
        }
        found
    }

    fn text(count: u32, separator: &str, item: impl Fn(u32) -> String) -> String {
        (0..count).map(item).collect::<Vec<_>>().join(separator)
    }

    #[test]
    fn alternatives_that_differ_in_their_ports_are_a_list() {
        let many = MANY_PORTS as u32;
        let odd = |number: u32| format!("port {}", 2 * number + 1);
        assert_eq!(lists(&text(many - 1, " or ", odd)), []);
        let ports: Vec<(u32, u32)> = (0..many).map(|number| (2 * number + 1, 2 * number + 1)).collect();
        assert_eq!(lists(&text(many, " or ", odd)), [(0, MANY_PORTS, ports.clone())]);
        let long = format!("udp or arp or {} or icmp", text(many, " or ", odd));
        assert_eq!(lists(&long), [(2, MANY_PORTS, ports.clone())]);
        let none = text(many, " and ", |number| format!("not {}", odd(number)));
        assert_eq!(lists(&none), [(0, MANY_PORTS, ports)]);
        let range = |number: u32| format!("tcp dst portrange {}-{}", 10 * number + 9, 10 * number);
        assert_eq!(lists(&text(many, " or ", range)), [(0, MANY_PORTS, vec![(0, 10_239)])]);
    }

    #[test]
    fn other_alternatives_are_none() {
        let many = MANY_PORTS as u32;
        for (separator, item) in
            [(" or ", "src and dst port"), (" and ", "port"), (" or ", "not port"), (" or ", "host 10.0.0.1 and port")]
        {
            assert_eq!(lists(&text(many, separator, |number| format!("{item} {number}"))), [], "{item}");
        }
        let mixed = text(many, " or ", |number| format!("{} port {number}", ["tcp", "udp"][number as usize % 2]));
        assert_eq!(lists(&mixed), []);
        let mistake = format!("{} or port 65536", text(many, " or ", |number| format!("port {number}")));
        let error = Expression::parse(&mistake, &Options::default()).unwrap_err();
        assert_eq!(&mistake[error.range], "port 65536");
    }

    /// A packet with these ports; of IPv4 behind the first fragment if `is_later`.
    fn packet(is_ipv6: bool, protocol: u8, [source, destination]: [u16; 2], is_later: bool) -> Vec<u8> {
        let mut packet = vec![0; 12];
        if is_ipv6 {
            packet.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, protocol, 64]);
            packet.extend([0; 32]);
        } else {
            packet.extend([0x08, 0x00, 0x46, 0, 0, 48, 0, 0, u8::from(is_later), 0, 64, protocol]);
            packet.extend([0; 14]);
        }
        packet.extend(source.to_be_bytes());
        packet.extend(destination.to_be_bytes());
        packet.resize(80, 0);
        packet
    }

    /// A list says of each packet what its ports and qualifiers say.
    #[test]
    fn a_list_matches_packets_with_one_of_its_ports() {
        let mut random = fastrand::Rng::with_seed(7);
        for protocol in ["", "tcp ", "udp ", "sctp "] {
            for direction in ["", "src ", "dst ", "src or dst "] {
                for is_negated in [false, true] {
                    let ports: Vec<u16> = (0..MANY_PORTS).map(|_| random.u16(..3_000)).collect();
                    let (not, separator) = if is_negated { ("not ", " and ") } else { ("", " or ") };
                    let item = |index: u32| format!("{not}{protocol}{direction}port {}", ports[index as usize]);
                    let expression = text(ports.len() as u32, separator, item);
                    assert_eq!(lists(&expression).len(), 1, "{protocol}{direction}{is_negated}");
                    let expression = Expression::parse(&expression, &Options::default()).unwrap();
                    for _ in 0..300 {
                        let (is_ipv6, is_later) = (random.bool(), random.u8(..8) == 0);
                        let number = *random.choice(&[6, 17, 132, 1]).unwrap();
                        let both = [random.u16(..4_000), random.u16(..4_000)];
                        let of_protocol = match protocol {
                            "tcp " => number == 6,
                            "udp " => number == 17,
                            "sctp " => number == 132,
                            _ => number != 1,
                        };
                        let [is_source, is_destination] = both.map(|port| ports.contains(&port));
                        let has_port = match direction {
                            "src " => is_source,
                            "dst " => is_destination,
                            _ => is_source || is_destination,
                        };
                        let expected = (of_protocol && has_port && (is_ipv6 || !is_later)) != is_negated;
                        let packet = packet(is_ipv6, number, both, is_later);
                        let found = matches(expression.graph(), PacketView::whole(&packet));
                        assert_eq!(found, expected, "{protocol}{direction}{both:?} {number} {is_ipv6} {is_later}");
                    }
                }
            }
        }
    }
}
