//! The syntax tree of an expression, and how it is printed.
#![forbid(unsafe_code)]

use std::fmt::{self, Write};
use std::ops::Range;

use crate::graph::Operation;

/// A protocol, as a test of its own or as a qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// The link layer: `ether`, and `link`, `ppp`, `slip`, `fddi`, `tr`, `wlan`, which mean the same.
    Link,
    /// IPv4.
    Ip,
    /// ARP.
    Arp,
    /// Reverse ARP.
    Rarp,
    /// SCTP.
    Sctp,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP.
    Icmp,
    /// IGMP.
    Igmp,
    /// IGRP.
    Igrp,
    /// PIM.
    Pim,
    /// VRRP.
    Vrrp,
    /// CARP.
    Carp,
    /// AppleTalk.
    Atalk,
    /// AppleTalk's ARP.
    Aarp,
    /// DECnet.
    Decnet,
    /// LAT.
    Lat,
    /// SCA.
    Sca,
    /// MOP remote console.
    Moprc,
    /// MOP dump and load.
    Mopdl,
    /// IPv6.
    Ip6,
    /// ICMPv6.
    Icmp6,
    /// IPsec's authentication header.
    Ah,
    /// IPsec's encrypted payload.
    Esp,
    /// The protocols of OSI.
    Iso,
    /// ES-IS.
    Esis,
    /// IS-IS.
    Isis,
    /// IS-IS, level 1.
    L1,
    /// IS-IS, level 2.
    L2,
    /// IS-IS hello.
    Iih,
    /// IS-IS link state.
    Lsp,
    /// IS-IS sequence numbers.
    Snp,
    /// IS-IS partial sequence numbers.
    Psnp,
    /// IS-IS complete sequence numbers.
    Csnp,
    /// CLNP.
    Clnp,
    /// Spanning tree.
    Stp,
    /// IPX.
    Ipx,
    /// NetBEUI.
    Netbeui,
    /// Headers of wireless captures.
    Radio,
}

const PROTOCOLS: &[(&str, Protocol)] = &[
    ("ether", Protocol::Link),
    ("link", Protocol::Link),
    ("ppp", Protocol::Link),
    ("slip", Protocol::Link),
    ("fddi", Protocol::Link),
    ("tr", Protocol::Link),
    ("wlan", Protocol::Link),
    ("ip", Protocol::Ip),
    ("arp", Protocol::Arp),
    ("rarp", Protocol::Rarp),
    ("sctp", Protocol::Sctp),
    ("tcp", Protocol::Tcp),
    ("udp", Protocol::Udp),
    ("icmp", Protocol::Icmp),
    ("igmp", Protocol::Igmp),
    ("igrp", Protocol::Igrp),
    ("pim", Protocol::Pim),
    ("vrrp", Protocol::Vrrp),
    ("carp", Protocol::Carp),
    ("atalk", Protocol::Atalk),
    ("aarp", Protocol::Aarp),
    ("decnet", Protocol::Decnet),
    ("lat", Protocol::Lat),
    ("sca", Protocol::Sca),
    ("moprc", Protocol::Moprc),
    ("mopdl", Protocol::Mopdl),
    ("ip6", Protocol::Ip6),
    ("icmp6", Protocol::Icmp6),
    ("ah", Protocol::Ah),
    ("esp", Protocol::Esp),
    ("iso", Protocol::Iso),
    ("esis", Protocol::Esis),
    ("es-is", Protocol::Esis),
    ("isis", Protocol::Isis),
    ("is-is", Protocol::Isis),
    ("l1", Protocol::L1),
    ("l2", Protocol::L2),
    ("iih", Protocol::Iih),
    ("lsp", Protocol::Lsp),
    ("snp", Protocol::Snp),
    ("psnp", Protocol::Psnp),
    ("csnp", Protocol::Csnp),
    ("clnp", Protocol::Clnp),
    ("stp", Protocol::Stp),
    ("ipx", Protocol::Ipx),
    ("netbeui", Protocol::Netbeui),
    ("radio", Protocol::Radio),
];

impl Protocol {
    pub(crate) fn from_name(name: &str) -> Option<Protocol> {
        PROTOCOLS.iter().find(|(word, _)| *word == name).map(|&(_, protocol)| protocol)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = PROTOCOLS.iter().find(|(_, protocol)| protocol == self).ok_or(fmt::Error)?;
        f.write_str(name)
    }
}

/// Which address or port of a packet is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// One of both; nothing was written.
    #[default]
    Any,
    /// The source.
    Source,
    /// The destination.
    Destination,
    /// One of both.
    Either,
    /// Both.
    Both,
}

/// What a value stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// A host; nothing was written.
    #[default]
    Default,
    /// A host.
    Host,
    /// A network.
    Net,
    /// A port.
    Port,
    /// A range of ports.
    PortRange,
    /// A gateway.
    Gateway,
    /// A protocol.
    Proto,
    /// A protocol, after any number of headers.
    ProtoChain,
}

/// The qualifiers of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Qualifiers {
    /// The protocol, if one is written.
    pub protocol: Option<Protocol>,
    /// The direction.
    pub direction: Direction,
    /// What the value stands for.
    pub kind: AddressKind,
}

/// A value after qualifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Id {
    /// A number.
    Number(u32),
    /// A name, or a range of ports.
    Name(String),
    /// An IPv4 address, or the beginning of one.
    Ipv4(String),
    /// An IPv4 network: address and length of the prefix.
    Ipv4Prefix(String, u32),
    /// An IPv4 network: address and mask.
    Ipv4Mask(String, String),
    /// An IPv6 address, with the length of the prefix if one is written.
    Ipv6(String, Option<u32>),
    /// An Ethernet address.
    Mac(String),
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
}

/// The operation of `byte`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOperation {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `>`
    Greater,
    /// `&`
    And,
    /// `|`
    Or,
}

/// An element of an arithmetic expression in postfix order: operands, then what is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// A number.
    Number(u32),
    /// `len`
    Length,
    /// `PROTOCOL[OFFSET:SIZE]`: the offset is the last operand.
    Load {
        /// The protocol.
        protocol: Protocol,
        /// The number of bytes, if it is written.
        size: Option<u32>,
    },
    /// The negative of the last operand.
    Negate,
    /// An operation on the last two operands.
    Binary(Operation),
}

/// An arithmetic expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// Its elements in postfix order, each with its place.
    pub elements: Vec<(Element, Range<usize>)>,
    /// Its place.
    pub range: Range<usize>,
}

/// A kind of LLC frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Llc {
    /// Any.
    Any,
    /// Information frames.
    Information,
    /// Supervisory frames.
    Supervisory,
    /// Unnumbered frames.
    Unnumbered,
    /// Supervisory frames with this code.
    SupervisoryCode(&'static str, u8),
    /// Unnumbered frames with this code.
    UnnumberedCode(&'static str, u8),
}

/// Supervisory codes.
pub(crate) const LLC_SUPERVISORY: &[(&str, u8)] = &[("rr", 0x01), ("rnr", 0x05), ("rej", 0x09)];

/// Unnumbered codes.
pub(crate) const LLC_UNNUMBERED: &[(&str, u8)] = &[
    ("ui", 0x03),
    ("ua", 0x63),
    ("disc", 0x43),
    ("dm", 0x0f),
    ("sabme", 0x6f),
    ("test", 0xe3),
    ("xid", 0xaf),
    ("frmr", 0x87),
];

/// A test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// A value with its qualifiers.
    Address {
        /// The qualifiers, also those that are carried over from earlier values.
        qualifiers: Qualifiers,
        /// The value.
        id: Id,
    },
    /// A protocol.
    Protocol(Protocol),
    /// A comparison of numbers.
    Relation {
        /// The left number.
        left: Arithmetic,
        /// The comparison.
        relation: Relation,
        /// The right number.
        right: Arithmetic,
    },
    /// `broadcast`, of a protocol.
    Broadcast(Option<Protocol>),
    /// `multicast`, of a protocol.
    Multicast(Option<Protocol>),
    /// `less`: the length is at most this.
    Less(u32),
    /// `greater`: the length is at least this.
    Greater(u32),
    /// `byte`: a byte from the start of the link header.
    Byte {
        /// Its offset.
        offset: u32,
        /// The operation.
        operation: ByteOperation,
        /// The operand.
        value: u32,
    },
    /// `inbound`
    Inbound,
    /// `outbound`
    Outbound,
    /// `ifindex`
    IfIndex(u32),
    /// `vlan`, with an identifier.
    Vlan(Option<u32>),
    /// `mpls`, with a label.
    Mpls(Option<u32>),
    /// `pppoed`
    PppoeDiscovery,
    /// `pppoes`, with a session.
    PppoeSession(Option<u32>),
    /// `geneve`, with a network identifier.
    Geneve(Option<u32>),
    /// `llc`, with a kind.
    Llc(Llc),
}

/// `and` or `or`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Connective {
    /// Both match.
    And,
    /// One of both matches.
    Or,
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A test, with its place.
    Primitive(Primitive, Range<usize>),
    /// What does not match the inner node.
    Not(Box<Node>, Range<usize>),
    /// Nodes with `and` and `or` between them. Both bind equally, the left ones first.
    Chain {
        /// The first one.
        first: Box<Node>,
        /// The others, each with what is before it.
        rest: Vec<(Connective, Node)>,
        /// The place.
        range: Range<usize>,
    },
}

impl Node {
    /// Its place: bytes of the text.
    pub fn range(&self) -> Range<usize> {
        match self {
            Node::Primitive(_, range) | Node::Not(_, range) | Node::Chain { range, .. } => range.clone(),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Primitive(primitive, _) => write!(f, "{primitive}"),
            Node::Not(inner, _) => match &**inner {
                Node::Chain { .. } => write!(f, "not ({inner})"),
                _ => write!(f, "not {inner}"),
            },
            Node::Chain { first, rest, .. } => {
                write_operand(f, first)?;
                for (connective, node) in rest {
                    f.write_str(match connective {
                        Connective::And => " and ",
                        Connective::Or => " or ",
                    })?;
                    write_operand(f, node)?;
                }
                Ok(())
            }
        }
    }
}

fn write_operand(f: &mut fmt::Formatter<'_>, node: &Node) -> fmt::Result {
    match node {
        Node::Chain { .. } => write!(f, "({node})"),
        _ => write!(f, "{node}"),
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Primitive::Address { qualifiers, id } => write!(f, "{qualifiers}{id}"),
            Primitive::Protocol(protocol) => write!(f, "{protocol}"),
            Primitive::Relation { left, relation, right } => write!(f, "{left} {relation} {right}"),
            Primitive::Broadcast(None) => f.write_str("ether broadcast"),
            Primitive::Broadcast(Some(protocol)) => write!(f, "{protocol} broadcast"),
            Primitive::Multicast(None) => f.write_str("ether multicast"),
            Primitive::Multicast(Some(protocol)) => write!(f, "{protocol} multicast"),
            Primitive::Less(length) => write!(f, "less {length}"),
            Primitive::Greater(length) => write!(f, "greater {length}"),
            Primitive::Byte { offset, operation, value } => {
                let sign = match operation {
                    ByteOperation::Equal => '=',
                    ByteOperation::Less => '<',
                    ByteOperation::Greater => '>',
                    ByteOperation::And => '&',
                    ByteOperation::Or => '|',
                };
                write!(f, "byte {offset} {sign} {value}")
            }
            Primitive::Inbound => f.write_str("inbound"),
            Primitive::Outbound => f.write_str("outbound"),
            Primitive::IfIndex(index) => write!(f, "ifindex {index}"),
            Primitive::Vlan(number) => write_numbered(f, "vlan", *number),
            Primitive::Mpls(number) => write_numbered(f, "mpls", *number),
            Primitive::PppoeDiscovery => f.write_str("pppoed"),
            Primitive::PppoeSession(number) => write_numbered(f, "pppoes", *number),
            Primitive::Geneve(number) => write_numbered(f, "geneve", *number),
            Primitive::Llc(kind) => match kind {
                Llc::Any => f.write_str("llc"),
                Llc::Information => f.write_str("llc i"),
                Llc::Supervisory => f.write_str("llc s"),
                Llc::Unnumbered => f.write_str("llc u"),
                Llc::SupervisoryCode(name, _) | Llc::UnnumberedCode(name, _) => write!(f, "llc {name}"),
            },
        }
    }
}

fn write_numbered(f: &mut fmt::Formatter<'_>, name: &str, number: Option<u32>) -> fmt::Result {
    match number {
        Some(number) => write!(f, "{name} {number}"),
        None => f.write_str(name),
    }
}

impl fmt::Display for Qualifiers {
    /// The qualifiers, the implied ones too, and a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(protocol) = self.protocol {
            write!(f, "{protocol} ")?;
        }
        let has_direction = !matches!(self.kind, AddressKind::Gateway | AddressKind::Proto | AddressKind::ProtoChain);
        if has_direction {
            f.write_str(match self.direction {
                Direction::Any | Direction::Either => "src or dst ",
                Direction::Source => "src ",
                Direction::Destination => "dst ",
                Direction::Both => "src and dst ",
            })?;
        }
        f.write_str(match self.kind {
            AddressKind::Default | AddressKind::Host => "host ",
            AddressKind::Net => "net ",
            AddressKind::Port => "port ",
            AddressKind::PortRange => "portrange ",
            AddressKind::Gateway => "gateway ",
            AddressKind::Proto => "proto ",
            AddressKind::ProtoChain => "protochain ",
        })
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Relation::Equal => "=",
            Relation::NotEqual => "!=",
            Relation::Greater => ">",
            Relation::GreaterOrEqual => ">=",
            Relation::Less => "<",
            Relation::LessOrEqual => "<=",
        })
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each operand, with the operation that it ends with, if any.
        let mut operands: Vec<(String, Option<Operation>)> = Vec::new();
        let closed = |(text, operation): (String, Option<Operation>)| match operation {
            Some(_) => format!("({text})"),
            None => text,
        };
        for (element, _) in &self.elements {
            let text = match *element {
                Element::Number(number) => (number.to_string(), None),
                Element::Length => ("len".to_owned(), None),
                Element::Load { protocol, size } => {
                    let (offset, _) = operands.pop().ok_or(fmt::Error)?;
                    let mut text = format!("{protocol}[{offset}");
                    match size {
                        Some(size) => write!(text, ":{size}]")?,
                        None => text.push(']'),
                    }
                    (text, None)
                }
                Element::Negate => {
                    let operand = closed(operands.pop().ok_or(fmt::Error)?);
                    // In parentheses, because `%` and `^` would take the operand first.
                    (format!("(- {operand})"), None)
                }
                Element::Binary(operation) => {
                    let right = closed(operands.pop().ok_or(fmt::Error)?);
                    let left = operands.pop().ok_or(fmt::Error)?;
                    // Chains of one operation need no parentheses, except where the right one would be taken first.
                    let is_chain =
                        left.1 == Some(operation) && !matches!(operation, Operation::Remainder | Operation::Xor);
                    let mut text = if is_chain { left.0 } else { closed(left) };
                    write!(text, " {operation} {right}")?;
                    (text, Some(operation))
                }
            };
            operands.push(text);
        }
        let (text, _) = operands.pop().ok_or(fmt::Error)?;
        f.write_str(&text)
    }
}
