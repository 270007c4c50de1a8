//! Compiles a tree for the classic machine, test by test in the order of the text.
//!
//! Which bytes a test looks at depends on the tests before it: `vlan`, `mpls`, `pppoes` and `geneve` shift what comes
//! after them. [`Layout`] is where the headers are; the order of loads and comparisons is libpcap's.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::classic::ops::Ops;
use crate::classic::simplify::simplify;
use crate::classic::{Block, BlockId, End, Flow, MEMORY_WORDS, Op, Right};
use crate::graph::{Comparison, Operation, Width};
use crate::link::LinkType;
use crate::mistake::{Mistake, NETMASK_UNKNOWN, Warning, WarningKind};
use crate::names::{self, Transport};
use crate::options::{Options, Scope};
use crate::port_list::{PortList, PortLists};
use crate::syntax::{
    AddressKind, Arithmetic, ByteOperation, Connective, Direction, Element, Id, Llc, Node, Primitive, Protocol,
    Qualifiers, Relation,
};

/// The largest length in the type field of Ethernet; greater values are types.
const MAX_ETHERNET_LENGTH: u32 = 1500;

/// EtherTypes.
mod ethertype {
    pub(super) const IP: u32 = 0x0800;
    pub(super) const ARP: u32 = 0x0806;
    pub(super) const TRANSPARENT_BRIDGING: u32 = 0x6558;
    pub(super) const MOPDL: u32 = 0x6001;
    pub(super) const MOPRC: u32 = 0x6002;
    pub(super) const DECNET: u32 = 0x6003;
    pub(super) const LAT: u32 = 0x6004;
    pub(super) const SCA: u32 = 0x6007;
    pub(super) const RARP: u32 = 0x8035;
    pub(super) const ATALK: u32 = 0x809b;
    pub(super) const AARP: u32 = 0x80f3;
    pub(super) const VLAN: u32 = 0x8100;
    pub(super) const IPX: u32 = 0x8137;
    pub(super) const IP6: u32 = 0x86dd;
    pub(super) const MPLS: u32 = 0x8847;
    pub(super) const PPPOE_DISCOVERY: u32 = 0x8863;
    pub(super) const PPPOE_SESSION: u32 = 0x8864;
    pub(super) const PROVIDER_VLAN: u32 = 0x88a8;
    pub(super) const LOOPBACK: u32 = 0x9000;
    pub(super) const OLD_PROVIDER_VLAN: u32 = 0x9100;
    pub(super) const NS: u32 = 0x0600;
}

/// LLC service access points, which stand for protocols where EtherTypes do.
mod sap {
    pub(super) const IP: u32 = 0x06;
    pub(super) const STP: u32 = 0x42;
    pub(super) const SNAP: u32 = 0xaa;
    pub(super) const IPX: u32 = 0xe0;
    pub(super) const NETBEUI: u32 = 0xf0;
    pub(super) const OSI: u32 = 0xfe;
}

/// IP protocols.
mod ip_protocol {
    pub(super) const ICMP: u32 = 1;
    pub(super) const IGMP: u32 = 2;
    pub(super) const TCP: u32 = 6;
    pub(super) const IGRP: u32 = 9;
    pub(super) const UDP: u32 = 17;
    pub(super) const FRAGMENT: u32 = 44;
    pub(super) const ESP: u32 = 50;
    pub(super) const AH: u32 = 51;
    pub(super) const ICMP6: u32 = 58;
    pub(super) const NONE: u32 = 59;
    pub(super) const PIM: u32 = 103;
    pub(super) const VRRP: u32 = 112;
    pub(super) const SCTP: u32 = 132;
    pub(super) const HOP_OPTIONS: u32 = 0;
    pub(super) const ROUTING: u32 = 43;
    pub(super) const DESTINATION_OPTIONS: u32 = 60;
}

/// OSI protocols, and PDU types of IS-IS.
mod osi {
    pub(super) const CLNP: u32 = 0x81;
    pub(super) const ESIS: u32 = 0x82;
    pub(super) const ISIS: u32 = 0x83;
    pub(super) const L1_HELLO: u32 = 15;
    pub(super) const L2_HELLO: u32 = 16;
    pub(super) const POINT_TO_POINT_HELLO: u32 = 17;
    pub(super) const L1_LSP: u32 = 18;
    pub(super) const L2_LSP: u32 = 20;
    pub(super) const L1_CSNP: u32 = 24;
    pub(super) const L2_CSNP: u32 = 25;
    pub(super) const L1_PSNP: u32 = 26;
    pub(super) const L2_PSNP: u32 = 27;
}

const GENEVE_PORT: u32 = 6081;
/// The type of a Linux cooked header for packets of 802.2, and for Novell's of 802.3.
const COOKED_802_2: u32 = 4;
const COOKED_802_3: u32 = 1;
/// The packet type of a Linux cooked header for sent packets.
const COOKED_OUTGOING: u32 = 4;

/// What the current link header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Outer(LinkType),
    /// PPP within PPPoE.
    Ppp,
    /// Perhaps an Ethernet header within Geneve: only at run time it is known whether there is one.
    Geneve,
}

/// A position in the packet: a constant, plus a word of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    constant: u32,
    word: Option<u8>,
}

impl Position {
    fn at(constant: u32) -> Position {
        Position { constant, word: None }
    }
}

/// Where the headers are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    link: Link,
    link_header: Position,
    /// The field that says what follows. `None` if there is none: what follows is IP.
    link_type: Option<Position>,
    payload: Position,
    /// The network header, from the start of the payload; and the same after an LLC header without SNAP.
    network: u32,
    network_after_llc: u32,
    mpls_labels: u32,
}

impl Layout {
    fn new(link: LinkType) -> Layout {
        let (link_type, payload, network_after_llc) = match link {
            LinkType::Ethernet => (Some(12), 14, 3),
            LinkType::Raw | LinkType::Ipv4 | LinkType::Ipv6 => (None, 0, 0),
            LinkType::Cooked => (Some(14), 16, 0),
            LinkType::Cooked2 => (Some(0), 20, 0),
            LinkType::Null | LinkType::Loop => (Some(0), 4, 0),
        };
        Layout {
            link: Link::Outer(link),
            link_header: Position::at(0),
            link_type: link_type.map(Position::at),
            payload: Position::at(payload),
            network: 0,
            network_after_llc,
            mpls_labels: 0,
        }
    }

    fn is_ethernet(&self) -> bool {
        matches!(self.link, Link::Outer(LinkType::Ethernet) | Link::Geneve)
    }
}

/// What an offset counts from.
#[derive(Clone, Copy, Debug)]
enum Base {
    LinkHeader,
    LinkType,
    /// The LLC header.
    Llc,
    Network,
    NetworkAfterLlc,
    /// The MPLS label before the network header.
    Label,
    /// The transport header after an IPv4 header, or after an IPv6 header without extensions.
    Transport4,
    Transport6,
}

/// Ways out of blocks that lead nowhere yet, as a list: its first and its last one. A way is twice its block, plus 1 if
/// the test fails.
#[derive(Clone, Copy, Debug)]
struct Exits {
    first: usize,
    last: usize,
}

impl Exits {
    fn one(way: usize) -> Exits {
        Exits { first: way, last: way }
    }
}

/// The end of a list of ways.
const NO_EXIT: usize = usize::MAX;

/// Blocks whose ways out lead nowhere yet.
#[derive(Debug)]
struct Fragment {
    head: BlockId,
    yes: Exits,
    no: Exits,
}

impl Fragment {
    fn negated(self) -> Fragment {
        Fragment { head: self.head, yes: self.no, no: self.yes }
    }
}

/// A number that is computed at run time.
struct Computed {
    ops: Ops,
    /// What must match before it can be computed.
    condition: Option<Fragment>,
    word: u8,
}

/// The compiled form of a tree, before it is simplified.
pub(crate) struct Generated {
    pub(crate) flow: Flow,
    /// Whether it must stay as it is, because there is a loop or a jump in it that libpcap's optimiser does not see.
    pub(crate) is_fixed: bool,
    pub(crate) warnings: Vec<Warning>,
}

/// The maximum number of tests in an expression whose parts are looked at for themselves.
const MAX_PROBED: usize = 64;

/// The number of tests in a tree.
fn primitives(node: &Node) -> usize {
    match node {
        Node::Primitive(..) => 1,
        Node::Not(inner, _) => primitives(inner),
        Node::Chain { first, rest, .. } => {
            primitives(first) + rest.iter().map(|(_, node)| primitives(node)).sum::<usize>()
        }
    }
}

/// The warning that an expression, or a part of it, always matches or never.
pub(crate) fn constant_warning(range: Range<usize>, matches: bool, is_part: bool) -> Warning {
    let what = if is_part { "this part" } else { "the expression" };
    let (kind, message) = if matches {
        (WarningKind::MatchesEverything, format!("{what} matches every packet"))
    } else {
        (WarningKind::MatchesNothing, format!("{what} matches no packet: its tests exclude each other"))
    };
    Warning { range, kind, message }
}

/// Compiles a tree.
pub(crate) fn generate(tree: &Node, options: &Options<'_>) -> Result<Generated, Mistake> {
    let mut generator = Generator {
        options,
        blocks: Vec::new(),
        next_exit: Vec::new(),
        layout: Layout::new(options.link_type),
        used_words: [false; MEMORY_WORDS],
        next_word: 0,
        is_fixed: false,
        place: 0..0,
        lookups: Lookups::default(),
        warnings: Vec::new(),
        probes: if primitives(tree) <= MAX_PROBED { 2 * MAX_PROBED } else { 0 },
    };
    let fragment = generator.node(tree)?;
    generator.finish(fragment)
}

/// Names that have been looked up, since one expression can have the same name many times.
#[derive(Default)]
struct Lookups {
    hosts: HashMap<String, Vec<IpAddr>>,
    ports: HashMap<(String, Transport), Option<u16>>,
    protocols: HashMap<String, Option<u8>>,
    networks: HashMap<String, Option<u32>>,
    ethernet: HashMap<String, Option<[u8; 6]>>,
}

struct Generator<'o> {
    options: &'o Options<'o>,
    blocks: Vec<Block>,
    /// The next way of the same list behind each.
    next_exit: Vec<usize>,
    layout: Layout,
    used_words: [bool; MEMORY_WORDS],
    next_word: u8,
    is_fixed: bool,
    /// The place of the test that is compiled.
    place: Range<usize>,
    lookups: Lookups,
    warnings: Vec<Warning>,
    /// How many parts may still be looked at for themselves.
    probes: usize,
}

type Made<T> = Result<T, Mistake>;

impl Generator<'_> {
    /// A mistake at the current test.
    fn mistake<T>(&self, message: impl Into<String>, help: impl Into<String>) -> Made<T> {
        Err(Mistake::new(self.place.clone(), message, help))
    }

    fn link_name(&self) -> String {
        match self.layout.link {
            Link::Outer(link) => link.to_string(),
            Link::Ppp => "PPP".to_owned(),
            Link::Geneve => "Ethernet".to_owned(),
        }
    }

    // Trees.

    fn node(&mut self, node: &Node) -> Made<Fragment> {
        match node {
            Node::Primitive(primitive, range) => {
                self.place = range.clone();
                self.primitive(primitive)
            }
            Node::Not(inner, _) => {
                let layout = self.layout.clone();
                let fragment = self.node(inner)?.negated();
                if self.options.scope == Scope::Lexical {
                    self.layout = layout;
                }
                Ok(fragment)
            }
            Node::Chain { first, rest, .. } => self.chain(first, rest),
        }
    }

    fn chain(&mut self, first: &Node, rest: &[(Connective, Node)]) -> Made<Fragment> {
        // Where the alternatives of an `or` start, in the lexical scope; and where those before have ended.
        let start = self.layout.clone();
        let mut lists = PortLists::new(first, rest);
        let (mut fragment, mut next) = match lists.at(0) {
            Some(list) => (self.port_list(&list)?, list.operands),
            None => (self.node(first)?, 1),
        };
        if !rest.is_empty() {
            self.probe(&start, first, &[]);
        }
        while next <= rest.len() {
            let index = next - 1;
            let (connective, node) = &rest[index];
            let ended = self.layout.clone();
            if *connective == Connective::Or {
                // A conjunction is complete here.
                if index > 0 && rest[index - 1].0 == Connective::And {
                    self.probe(&start, first, &rest[..index]);
                }
                if self.options.scope == Scope::Lexical {
                    self.layout = start.clone();
                }
            }
            let before = self.layout.clone();
            let right = match lists.at(next) {
                Some(list) => {
                    next += list.operands;
                    self.port_list(&list)?
                }
                None => {
                    next += 1;
                    self.node(node)?
                }
            };
            self.probe(&before, node, &[]);
            fragment = match connective {
                Connective::And => self.and(fragment, right),
                Connective::Or => {
                    // What follows is shifted only if both sides are shifted alike.
                    if self.options.scope == Scope::Lexical && self.layout != ended {
                        self.layout = start.clone();
                    }
                    self.or(fragment, right)
                }
            };
        }
        Ok(fragment)
    }

    /// Notes if a part of a chain always matches, or never: the first `count` of its operands, or one of them.
    fn probe(&mut self, layout: &Layout, first: &Node, rest: &[(Connective, Node)]) {
        if self.probes == 0 || rest.is_empty() && matches!(first, Node::Chain { .. }) {
            // The operands of an inner chain are looked at on their own.
            return;
        }
        self.probes -= 1;
        let mut part = Generator {
            options: self.options,
            blocks: Vec::new(),
            next_exit: Vec::new(),
            layout: layout.clone(),
            used_words: self.used_words,
            next_word: self.next_word,
            is_fixed: false,
            place: self.place.clone(),
            lookups: std::mem::take(&mut self.lookups),
            warnings: Vec::new(),
            probes: 0,
        };
        let fragment = part.chain(first, rest);
        self.lookups = std::mem::take(&mut part.lookups);
        let Ok(fragment) = fragment else { return };
        let end = rest.last().map_or(first.range().end, |(_, node)| node.range().end);
        let range = first.range().start..end;
        if let Ok(generated) = part.finish(fragment)
            && !generated.is_fixed
            && let Ok(flow) = simplify(generated.flow)
            && let Some(kind) = flow.constant()
        {
            self.warnings.push(constant_warning(range, kind, true));
        }
    }

    /// Joins the ways out of the last fragment to the ends.
    fn finish(mut self, fragment: Fragment) -> Made<Generated> {
        let accept = self.end_block(End::Accept);
        let reject = self.end_block(End::Reject);
        self.patch(fragment.yes, accept);
        self.patch(fragment.no, reject);
        Ok(Generated {
            flow: Flow { blocks: self.blocks, root: fragment.head },
            is_fixed: self.is_fixed,
            warnings: self.warnings,
        })
    }

    // Blocks and fragments.

    fn end_block(&mut self, end: End) -> BlockId {
        self.blocks.push(Block { ops: Ops::default(), end, part: self.place.clone() });
        self.blocks.len() - 1
    }

    /// A block that ends with a test.
    fn test(&mut self, ops: Ops, comparison: Comparison, right: Right) -> Fragment {
        let block = self.blocks.len();
        let end = End::Test { comparison, right, yes: block, no: block };
        self.blocks.push(Block { ops, end, part: self.place.clone() });
        Fragment { head: block, yes: Exits::one(2 * block), no: Exits::one(2 * block + 1) }
    }

    /// The ways of two lists.
    fn joined(&mut self, first: Exits, second: Exits) -> Exits {
        self.next_exit.resize(2 * self.blocks.len(), NO_EXIT);
        self.next_exit[first.last] = second.first;
        Exits { first: first.first, last: second.last }
    }

    fn patch(&mut self, exits: Exits, target: BlockId) {
        let mut way = exits.first;
        loop {
            match &mut self.blocks[way / 2].end {
                End::Test { yes, no, .. } => *(if way.is_multiple_of(2) { yes } else { no }) = target,
                End::Goto(next) => *next = target,
                End::Again(_) | End::Accept | End::Reject => {}
            }
            if way == exits.last {
                return;
            }
            way = self.next_exit[way];
        }
    }

    fn and(&mut self, first: Fragment, second: Fragment) -> Fragment {
        self.patch(first.yes, second.head);
        Fragment { head: first.head, yes: second.yes, no: self.joined(first.no, second.no) }
    }

    fn or(&mut self, first: Fragment, second: Fragment) -> Fragment {
        self.patch(first.no, second.head);
        Fragment { head: first.head, yes: self.joined(first.yes, second.yes), no: second.no }
    }

    /// All of several tests.
    fn all(&mut self, fragments: impl IntoIterator<Item = Fragment>) -> Option<Fragment> {
        fragments.into_iter().reduce(|first, second| self.and(first, second))
    }

    fn constant(&mut self, holds: bool) -> Fragment {
        self.test(Ops::of(&[Op::LoadConstant(u32::from(!holds))]), Comparison::Equal, Right::Constant(0))
    }

    // Words of memory.

    fn take_word(&mut self) -> Made<u8> {
        for _ in 0..MEMORY_WORDS {
            let word = self.next_word;
            if !std::mem::replace(&mut self.used_words[usize::from(word)], true) {
                return Ok(word);
            }
            self.next_word = (self.next_word + 1) % MEMORY_WORDS as u8;
        }
        self.mistake(
            format!("this needs more than {MEMORY_WORDS} intermediate results"),
            "write shorter arithmetic, or use `geneve` and `protochain` less often",
        )
    }

    fn free_word(&mut self, word: u8) {
        self.used_words[usize::from(word)] = false;
    }

    // Loads.

    fn load_from(&self, position: Position, offset: u32, width: Width) -> Ops {
        let offset = position.constant.wrapping_add(offset);
        match position.word {
            Some(word) => Ops::of(&[Op::IndexMemory(word), Op::LoadIndexed(width, offset)]),
            None => Ops::of(&[Op::Load(width, offset)]),
        }
    }

    /// Loads the length of the IPv4 header, and the variable part of its position, into the index register.
    fn index_transport4(&self) -> Ops {
        let offset = self.layout.payload.constant.wrapping_add(self.layout.network);
        match self.layout.payload.word {
            Some(word) => Ops::of(&[
                Op::IndexMemory(word),
                Op::LoadIndexed(Width::Byte, offset),
                Op::Constant(Operation::And, 0xf),
                Op::Constant(Operation::ShiftLeft, 2),
                Op::Index(Operation::Add),
                Op::ToIndex,
            ]),
            None => Ops::of(&[Op::IndexHeaderLength(offset)]),
        }
    }

    fn load(&self, base: Base, offset: u32, width: Width) -> Ops {
        let layout = &self.layout;
        let (position, more) = match base {
            Base::LinkHeader => (layout.link_header, 0),
            Base::LinkType => (layout.link_type.unwrap_or(Position::at(u32::MAX)), 0),
            Base::Llc => (layout.payload, 0),
            Base::Network => (layout.payload, layout.network),
            Base::NetworkAfterLlc => (layout.payload, layout.network_after_llc),
            Base::Label => (layout.payload, layout.network.wrapping_sub(4)),
            Base::Transport6 => (layout.payload, layout.network.wrapping_add(40)),
            Base::Transport4 => {
                let mut ops = self.index_transport4();
                let offset = layout.payload.constant.wrapping_add(layout.network).wrapping_add(offset);
                ops.push(Op::LoadIndexed(width, offset));
                return ops;
            }
        };
        self.load_from(position, more.wrapping_add(offset), width)
    }

    fn compare(&mut self, base: Base, offset: u32, width: Width, comparison: Comparison, number: u32) -> Fragment {
        let ops = self.load(base, offset, width);
        self.test(ops, comparison, Right::Constant(number))
    }

    fn equal(&mut self, base: Base, offset: u32, width: Width, number: u32) -> Fragment {
        self.compare(base, offset, width, Comparison::Equal, number)
    }

    fn masked(&mut self, base: Base, offset: u32, width: Width, number: u32, mask: u32) -> Fragment {
        let mut ops = self.load(base, offset, width);
        if mask != u32::MAX {
            ops.push(Op::Constant(Operation::And, mask));
        }
        self.test(ops, Comparison::Equal, Right::Constant(number))
    }

    /// Compares bytes, the last ones first.
    fn bytes(&mut self, base: Base, offset: u32, bytes: &[u8]) -> Fragment {
        let mut rest = bytes;
        let mut tests = Vec::new();
        while !rest.is_empty() {
            let (width, length) = match rest.len() {
                4.. => (Width::Word, 4),
                2..4 => (Width::Half, 2),
                _ => (Width::Byte, 1),
            };
            let (before, last) = rest.split_at(rest.len() - length);
            let number = last.iter().fold(0, |number, &byte| number << 8 | u32::from(byte));
            tests.push(self.equal(base, offset + before.len() as u32, width, number));
            rest = before;
        }
        match self.all(tests) {
            Some(fragment) => fragment,
            None => self.constant(true),
        }
    }

    // Link types.

    /// The test that a packet within Geneve has an Ethernet header: then its payload starts elsewhere.
    fn has_inner_ethernet(&mut self) -> Option<Fragment> {
        if self.layout.link != Link::Geneve {
            return None;
        }
        let (header, payload) = (self.layout.link_header.word?, self.layout.payload.word?);
        let ops = Ops::of(&[Op::LoadMemory(header), Op::IndexMemory(payload)]);
        Some(self.test(ops, Comparison::Equal, Right::Index).negated())
    }

    /// Tests what follows the link header: an EtherType, or up to 1500 an LLC service access point.
    fn link_type(&mut self, kind: u32) -> Made<Fragment> {
        if self.layout.mpls_labels > 0 {
            return self.mpls_payload(kind);
        }
        Ok(match self.layout.link {
            Link::Outer(LinkType::Ethernet) | Link::Geneve => self.ethernet_type(kind),
            Link::Outer(LinkType::Cooked) => self.cooked_type(kind),
            Link::Outer(LinkType::Cooked2) => self.equal(Base::LinkType, 0, Width::Half, kind),
            Link::Outer(LinkType::Raw) => match kind {
                ethertype::IP => self.masked(Base::LinkHeader, 0, Width::Byte, 0x40, 0xf0),
                ethertype::IP6 => self.masked(Base::LinkHeader, 0, Width::Byte, 0x60, 0xf0),
                _ => self.constant(false),
            },
            Link::Outer(LinkType::Ipv4) => self.constant(kind == ethertype::IP),
            Link::Outer(LinkType::Ipv6) => self.constant(kind == ethertype::IP6),
            Link::Outer(LinkType::Null | LinkType::Loop) => match kind {
                ethertype::IP => self.address_family(2),
                ethertype::IP6 => {
                    // Of NetBSD and OpenBSD, FreeBSD, and macOS.
                    let first = self.address_family(24);
                    let second = self.address_family(28);
                    let both = self.or(first, second);
                    let third = self.address_family(30);
                    self.or(third, both)
                }
                _ => self.constant(false),
            },
            Link::Ppp => {
                let kind = match kind {
                    ethertype::IP => 0x21,
                    ethertype::IP6 => 0x57,
                    ethertype::DECNET => 0x27,
                    ethertype::ATALK => 0x29,
                    ethertype::NS => 0x25,
                    sap::OSI => 0x23,
                    sap::STP => 0x31,
                    sap::IPX => 0x2b,
                    other => other,
                };
                self.equal(Base::LinkType, 0, Width::Half, kind)
            }
        })
    }

    fn address_family(&mut self, family: u32) -> Fragment {
        let is_host_order = self.layout.link == Link::Outer(LinkType::Null);
        let family = if is_host_order { u32::from_be_bytes(family.to_ne_bytes()) } else { family };
        self.equal(Base::LinkHeader, 0, Width::Word, family)
    }

    fn is_length(&mut self) -> Fragment {
        self.compare(Base::LinkType, 0, Width::Half, Comparison::Greater, MAX_ETHERNET_LENGTH).negated()
    }

    fn ethernet_type(&mut self, kind: u32) -> Fragment {
        match kind {
            sap::OSI | sap::IP | sap::NETBEUI => {
                let length = self.is_length();
                let saps = self.equal(Base::Llc, 0, Width::Half, kind << 8 | kind);
                self.and(length, saps)
            }
            sap::IPX => {
                let sap = self.equal(Base::Llc, 0, Width::Byte, sap::IPX);
                let novell = self.equal(Base::Llc, 0, Width::Half, 0xffff);
                let either = self.or(sap, novell);
                let snap = self.snap(0, ethertype::IPX);
                let any = self.or(snap, either);
                let length = self.is_length();
                let with_length = self.and(length, any);
                let with_type = self.equal(Base::LinkType, 0, Width::Half, ethertype::IPX);
                self.or(with_type, with_length)
            }
            ethertype::ATALK | ethertype::AARP => {
                let length = self.is_length();
                let organisation = if kind == ethertype::ATALK { 0x08_0007 } else { 0 };
                let snap = self.snap(organisation, kind);
                let with_length = self.and(length, snap);
                let with_type = self.equal(Base::LinkType, 0, Width::Half, kind);
                self.or(with_type, with_length)
            }
            _ if kind <= MAX_ETHERNET_LENGTH => {
                let length = self.is_length();
                let sap = self.equal(Base::LinkType, 2, Width::Byte, kind);
                self.and(length, sap)
            }
            _ => self.equal(Base::LinkType, 0, Width::Half, kind),
        }
    }

    fn cooked_type(&mut self, kind: u32) -> Fragment {
        let is_802_2 = |this: &mut Self| this.equal(Base::LinkType, 0, Width::Half, COOKED_802_2);
        match kind {
            sap::OSI | sap::IP | sap::NETBEUI => {
                let llc = is_802_2(self);
                let saps = self.equal(Base::Llc, 0, Width::Half, kind << 8 | kind);
                self.and(llc, saps)
            }
            sap::IPX => {
                let sap = self.equal(Base::Llc, 0, Width::Byte, sap::IPX);
                let snap = self.snap(0, ethertype::IPX);
                let either = self.or(sap, snap);
                let llc = is_802_2(self);
                let with_llc = self.and(llc, either);
                let novell = self.equal(Base::LinkType, 0, Width::Half, COOKED_802_3);
                let any = self.or(novell, with_llc);
                let with_type = self.equal(Base::LinkType, 0, Width::Half, ethertype::IPX);
                self.or(with_type, any)
            }
            ethertype::ATALK | ethertype::AARP => {
                let llc = is_802_2(self);
                let organisation = if kind == ethertype::ATALK { 0x08_0007 } else { 0 };
                let snap = self.snap(organisation, kind);
                let with_llc = self.and(llc, snap);
                let with_type = self.equal(Base::LinkType, 0, Width::Half, kind);
                self.or(with_type, with_llc)
            }
            _ if kind <= MAX_ETHERNET_LENGTH => {
                let llc = is_802_2(self);
                let sap = self.equal(Base::LinkHeader, self.layout.payload.constant, Width::Byte, kind);
                self.and(llc, sap)
            }
            _ => self.equal(Base::LinkType, 0, Width::Half, kind),
        }
    }

    fn snap(&mut self, organisation: u32, kind: u32) -> Fragment {
        let [_, a, b, c] = organisation.to_be_bytes();
        let [_, _, d, e] = kind.to_be_bytes();
        let sap = sap::SNAP as u8;
        self.bytes(Base::Llc, 0, &[sap, sap, 0x03, a, b, c, d, e])
    }

    /// Tests what follows the last MPLS label.
    fn mpls_payload(&mut self, kind: u32) -> Made<Fragment> {
        let version = match kind {
            ethertype::IP => 0x40,
            ethertype::IP6 => 0x60,
            _ => {
                return self
                    .mistake("after `mpls`, only IPv4 and IPv6 can be told apart", "put this test before `mpls`");
            }
        };
        let bottom = self.masked(Base::Network, 2u32.wrapping_neg(), Width::Byte, 0x01, 0x01);
        let version = self.masked(Base::Network, 0, Width::Byte, version, 0xf0);
        Ok(self.and(bottom, version))
    }

    fn link_types_then(&mut self, kind: u32, test: impl FnOnce(&mut Self) -> Fragment) -> Made<Fragment> {
        let link = self.link_type(kind)?;
        let test = test(self);
        Ok(self.and(link, test))
    }

    // Protocols.

    /// Tests the protocol within another.
    fn protocol_in(&mut self, number: u32, outer: Option<Protocol>) -> Made<Fragment> {
        match outer {
            None => {
                let four = self.protocol_in(number, Some(Protocol::Ip))?;
                let six = self.protocol_in(number, Some(Protocol::Ip6))?;
                Ok(self.or(four, six))
            }
            Some(Protocol::Link) => self.link_type(number),
            Some(Protocol::Ip) => {
                self.link_types_then(ethertype::IP, |this| this.equal(Base::Network, 9, Width::Byte, number))
            }
            Some(Protocol::Ip6) => self.link_types_then(ethertype::IP6, |this| {
                let fragment = this.equal(Base::Network, 6, Width::Byte, ip_protocol::FRAGMENT);
                let after = this.equal(Base::Network, 40, Width::Byte, number);
                let fragmented = this.and(fragment, after);
                let whole = this.equal(Base::Network, 6, Width::Byte, number);
                this.or(whole, fragmented)
            }),
            Some(Protocol::Iso) => {
                self.link_types_then(sap::OSI, |this| this.equal(Base::NetworkAfterLlc, 0, Width::Byte, number))
            }
            Some(Protocol::Isis) => {
                let isis = self.protocol_in(osi::ISIS, Some(Protocol::Iso))?;
                let kind = self.equal(Base::NetworkAfterLlc, 4, Width::Byte, number);
                Ok(self.and(isis, kind))
            }
            Some(outer) => self
                .mistake(format!("`{outer}` has no `proto`"), "`proto` is for `ether`, `ip`, `ip6`, `iso` and `isis`"),
        }
    }

    /// One of several PDU types of IS-IS. The first two are tested last.
    fn isis_kinds(&mut self, kinds: &[u32]) -> Made<Fragment> {
        let [first, second, rest @ ..] = kinds else { return self.mistake("no kind of IS-IS", "name one") };
        let first = self.protocol_in(*first, Some(Protocol::Isis))?;
        let second = self.protocol_in(*second, Some(Protocol::Isis))?;
        let mut all = self.or(first, second);
        for &kind in rest {
            let one = self.protocol_in(kind, Some(Protocol::Isis))?;
            all = self.or(one, all);
        }
        Ok(all)
    }

    fn protocol(&mut self, protocol: Protocol) -> Made<Fragment> {
        let within = |number, outer| (number, outer);
        let (number, outer) = match protocol {
            Protocol::Ip => within(ethertype::IP, Some(Protocol::Link)),
            Protocol::Arp => within(ethertype::ARP, Some(Protocol::Link)),
            Protocol::Rarp => within(ethertype::RARP, Some(Protocol::Link)),
            Protocol::Ip6 => within(ethertype::IP6, Some(Protocol::Link)),
            Protocol::Atalk => within(ethertype::ATALK, Some(Protocol::Link)),
            Protocol::Aarp => within(ethertype::AARP, Some(Protocol::Link)),
            Protocol::Decnet => within(ethertype::DECNET, Some(Protocol::Link)),
            Protocol::Lat => within(ethertype::LAT, Some(Protocol::Link)),
            Protocol::Sca => within(ethertype::SCA, Some(Protocol::Link)),
            Protocol::Moprc => within(ethertype::MOPRC, Some(Protocol::Link)),
            Protocol::Mopdl => within(ethertype::MOPDL, Some(Protocol::Link)),
            Protocol::Iso => within(sap::OSI, Some(Protocol::Link)),
            Protocol::Stp => within(sap::STP, Some(Protocol::Link)),
            Protocol::Ipx => within(sap::IPX, Some(Protocol::Link)),
            Protocol::Netbeui => within(sap::NETBEUI, Some(Protocol::Link)),
            Protocol::Sctp => within(ip_protocol::SCTP, None),
            Protocol::Tcp => within(ip_protocol::TCP, None),
            Protocol::Udp => within(ip_protocol::UDP, None),
            Protocol::Pim => within(ip_protocol::PIM, None),
            Protocol::Ah => within(ip_protocol::AH, None),
            Protocol::Esp => within(ip_protocol::ESP, None),
            Protocol::Icmp => within(ip_protocol::ICMP, Some(Protocol::Ip)),
            Protocol::Igmp => within(ip_protocol::IGMP, Some(Protocol::Ip)),
            Protocol::Igrp => within(ip_protocol::IGRP, Some(Protocol::Ip)),
            Protocol::Vrrp | Protocol::Carp => within(ip_protocol::VRRP, Some(Protocol::Ip)),
            Protocol::Icmp6 => within(ip_protocol::ICMP6, Some(Protocol::Ip6)),
            Protocol::Esis => within(osi::ESIS, Some(Protocol::Iso)),
            Protocol::Isis => within(osi::ISIS, Some(Protocol::Iso)),
            Protocol::Clnp => within(osi::CLNP, Some(Protocol::Iso)),
            Protocol::L1 => {
                return self.isis_kinds(&[
                    osi::L1_HELLO,
                    osi::POINT_TO_POINT_HELLO,
                    osi::L1_LSP,
                    osi::L1_CSNP,
                    osi::L1_PSNP,
                ]);
            }
            Protocol::L2 => {
                return self.isis_kinds(&[
                    osi::L2_HELLO,
                    osi::POINT_TO_POINT_HELLO,
                    osi::L2_LSP,
                    osi::L2_CSNP,
                    osi::L2_PSNP,
                ]);
            }
            Protocol::Iih => {
                return self.isis_kinds(&[osi::L1_HELLO, osi::L2_HELLO, osi::POINT_TO_POINT_HELLO]);
            }
            Protocol::Lsp => return self.isis_kinds(&[osi::L1_LSP, osi::L2_LSP]),
            Protocol::Snp => {
                return self.isis_kinds(&[osi::L1_CSNP, osi::L2_CSNP, osi::L1_PSNP, osi::L2_PSNP]);
            }
            Protocol::Csnp => return self.isis_kinds(&[osi::L1_CSNP, osi::L2_CSNP]),
            Protocol::Psnp => return self.isis_kinds(&[osi::L1_PSNP, osi::L2_PSNP]),
            Protocol::Link => {
                return self.mistake(
                    "the link layer alone is no test",
                    "such as `ether host 00:1b:21:0a:0b:0c` or `ether proto 0x0800`",
                );
            }
            Protocol::Radio => {
                return self.mistake("`radio` is for wireless captures only", "there are no filters for them");
            }
        };
        self.protocol_in(number, outer)
    }

    /// Tests for a protocol after any number of headers.
    fn protocol_chain(&mut self, number: u32, outer: Option<Protocol>) -> Made<Fragment> {
        let word = self.take_word()?;
        let outer = match outer {
            None => {
                let four = self.protocol_chain(number, Some(Protocol::Ip))?;
                let six = self.protocol_chain(number, Some(Protocol::Ip6))?;
                // The word stays taken, as in libpcap, which therefore refuses many of these in one expression.
                return Ok(self.or(four, six));
            }
            Some(outer @ (Protocol::Ip | Protocol::Ip6)) => outer,
            Some(outer) => {
                return self.mistake(format!("`{outer}` has no `protochain`"), "`protochain` is for `ip` and `ip6`");
            }
        };
        if self.layout.payload.word.is_some() {
            return self.mistake(
                "`protochain` needs a header at a fixed position, which there is not after `geneve`",
                "put `protochain` before `geneve`, or use `proto`",
            );
        }
        self.is_fixed = true;
        let link = self.link_type(if outer == Protocol::Ip { ethertype::IP } else { ethertype::IP6 })?;
        let chain = self.header_loop(number, outer, word);
        self.free_word(word);
        Ok(self.and(link, chain))
    }

    /// The loop over headers of [`Generator::protocol_chain`]. The accumulator is the protocol of the header at hand,
    /// the index its position.
    fn header_loop(&mut self, number: u32, outer: Protocol, word: u8) -> Fragment {
        let network = self.layout.payload.constant.wrapping_add(self.layout.network);
        let start = if outer == Protocol::Ip {
            Ops::of(&[Op::Load(Width::Byte, network.wrapping_add(9)), Op::IndexHeaderLength(network)])
        } else {
            Ops::of(&[Op::Load(Width::Byte, network.wrapping_add(6)), Op::IndexConstant(40)])
        };
        let place = self.place.clone();
        let mut add = |ops, end| {
            self.blocks.push(Block { ops, end, part: place.clone() });
            self.blocks.len() - 1
        };
        let equal =
            |number, yes, no| End::Test { comparison: Comparison::Equal, right: Right::Constant(number), yes, no };
        // Blocks are pushed in this order, so their indices are known.
        let head = add(start, End::Goto(0));
        let again = head + 1;
        let is_none = again + 1;
        let extensions =
            [ip_protocol::HOP_OPTIONS, ip_protocol::DESTINATION_OPTIONS, ip_protocol::ROUTING, ip_protocol::FRAGMENT];
        let extensions: &[u32] = if outer == Protocol::Ip6 { &extensions } else { &[] };
        let is_authentication = is_none + 1 + extensions.len();
        let authentication = is_authentication + 1;
        let extension = authentication + 1;
        let end = extension + usize::from(!extensions.is_empty());
        add(Ops::default(), equal(number, end, is_none));
        add(Ops::default(), equal(ip_protocol::NONE, end, is_none + 1));
        for (index, &kind) in extensions.iter().enumerate() {
            add(Ops::default(), equal(kind, extension, is_none + 2 + index));
        }
        add(Ops::default(), equal(ip_protocol::AH, authentication, end));
        // The next position is (length + 2) × 4, from the start of the network header, as in libpcap.
        add(
            Ops::of(&[
                Op::FromIndex,
                Op::LoadIndexed(Width::Byte, network),
                Op::Store(word),
                Op::FromIndex,
                Op::Constant(Operation::Add, 1),
                Op::ToIndex,
                Op::LoadIndexed(Width::Byte, network),
                Op::Constant(Operation::Add, 2),
                Op::Constant(Operation::Multiply, 4),
                Op::ToIndex,
                Op::LoadMemory(word),
            ]),
            End::Again(again),
        );
        if !extensions.is_empty() {
            add(
                Ops::of(&[
                    Op::LoadIndexed(Width::Byte, network),
                    Op::Store(word),
                    Op::LoadIndexed(Width::Byte, network.wrapping_add(1)),
                    Op::Constant(Operation::Add, 1),
                    Op::Constant(Operation::Multiply, 8),
                    Op::Index(Operation::Add),
                    Op::ToIndex,
                    Op::LoadMemory(word),
                ]),
                End::Again(again),
            );
        }
        self.blocks[head].end = End::Goto(again);
        let mut last = self.test(Ops::default(), Comparison::Equal, Right::Constant(number));
        debug_assert_eq!(last.head, end);
        last.head = head;
        last
    }

    // Addresses.

    /// One or both of source and destination.
    fn directed(
        &mut self,
        direction: Direction,
        mut test: impl FnMut(&mut Self, bool) -> Made<Fragment>,
    ) -> Made<Fragment> {
        match direction {
            Direction::Source => test(self, true),
            Direction::Destination => test(self, false),
            Direction::Both | Direction::Any | Direction::Either => {
                let source = test(self, true)?;
                let destination = test(self, false)?;
                if direction == Direction::Both {
                    Ok(self.and(source, destination))
                } else {
                    Ok(self.or(source, destination))
                }
            }
        }
    }

    fn ipv4(
        &mut self,
        address: u32,
        mask: u32,
        protocol: Option<Protocol>,
        direction: Direction,
        what: &str,
    ) -> Made<Fragment> {
        let (kind, source, destination) = match protocol {
            None => {
                let ip = self.ipv4(address, mask, Some(Protocol::Ip), direction, what)?;
                if self.layout.mpls_labels > 0 {
                    return Ok(ip);
                }
                let arp = self.ipv4(address, mask, Some(Protocol::Arp), direction, what)?;
                let both = self.or(ip, arp);
                let rarp = self.ipv4(address, mask, Some(Protocol::Rarp), direction, what)?;
                return Ok(self.or(both, rarp));
            }
            Some(Protocol::Ip) => (ethertype::IP, 12, 16),
            Some(Protocol::Arp) => (ethertype::ARP, 14, 24),
            Some(Protocol::Rarp) => (ethertype::RARP, 14, 24),
            Some(Protocol::Decnet) => return self.decnet(address, direction),
            Some(protocol) => {
                return self.mistake(
                    format!("`{protocol}` has no IPv4 {what}"),
                    format!("an IPv4 {what} is of `ip`, `arp` or `rarp`, or of any of them: `{what} …`"),
                );
            }
        };
        self.directed(direction, |this, is_source| {
            this.link_types_then(kind, |this| {
                let offset = if is_source { source } else { destination };
                this.masked(Base::Network, offset, Width::Word, address, mask)
            })
        })
    }

    fn ipv6(
        &mut self,
        address: Ipv6Addr,
        mask: u128,
        protocol: Option<Protocol>,
        direction: Direction,
        what: &str,
    ) -> Made<Fragment> {
        if let Some(protocol) = protocol
            && protocol != Protocol::Ip6
        {
            return self.mistake(
                format!("`{protocol}` has no IPv6 {what}"),
                format!("an IPv6 {what} is of `ip6`: `ip6 {what} …`, or `{what} …`"),
            );
        }
        let word = |number: u128, index: u32| (number >> (96 - 32 * index)) as u32;
        self.directed(direction, |this, is_source| {
            let offset = if is_source { 8 } else { 24 };
            // The last word is compared last, but its test comes first into the graph.
            let mut words: Vec<Fragment> = (0..4)
                .rev()
                .map(|index| {
                    let (number, mask) = (word(address.to_bits(), index), word(mask, index));
                    this.masked(Base::Network, offset + 4 * index, Width::Word, number, mask)
                })
                .collect();
            let link = this.link_type(ethertype::IP6)?;
            words.push(link);
            words.reverse();
            match this.all(words) {
                Some(fragment) => Ok(fragment),
                None => Ok(this.constant(true)),
            }
        })
    }

    fn decnet(&mut self, address: u32, direction: Direction) -> Made<Fragment> {
        // Numbers are little-endian, and a byte of padding may come before the header.
        let swap = |number: u32| u32::from((number as u16).swap_bytes());
        let address = swap(address);
        self.directed(direction, |this, is_source| {
            let (short, long) = if is_source { (3, 15) } else { (1, 7) };
            let link = this.link_type(ethertype::DECNET)?;
            let padded = |this: &mut Self, flags: u32, offset: u32| {
                let header = this.masked(Base::Network, 2, Width::Half, swap(flags << 8 | 0x81), swap(0x07ff));
                let node = this.equal(Base::Network, 3 + offset, Width::Half, address);
                this.and(header, node)
            };
            let plain = |this: &mut Self, flags: u32, offset: u32| {
                let header = this.masked(Base::Network, 2, Width::Byte, flags, 0x07);
                let node = this.equal(Base::Network, 2 + offset, Width::Half, address);
                this.and(header, node)
            };
            let mut all = padded(this, 0x06, long);
            let one = plain(this, 0x06, long);
            all = this.or(one, all);
            let one = padded(this, 0x02, short);
            all = this.or(one, all);
            let one = plain(this, 0x02, short);
            all = this.or(one, all);
            Ok(this.and(link, all))
        })
    }

    fn ethernet_host(&mut self, address: [u8; 6], direction: Direction) -> Made<Fragment> {
        let inner = self.has_inner_ethernet();
        let host = self.directed(direction, |this, is_source| {
            Ok(this.bytes(Base::LinkHeader, if is_source { 6 } else { 0 }, &address))
        })?;
        Ok(self.after(inner, host))
    }

    fn after(&mut self, condition: Option<Fragment>, test: Fragment) -> Fragment {
        match condition {
            Some(condition) => self.and(condition, test),
            None => test,
        }
    }

    // Ports.

    fn is_not_later_fragment(&mut self) -> Fragment {
        self.compare(Base::Network, 6, Width::Half, Comparison::AnyBit, 0x1fff).negated()
    }

    /// A range of ports, or one of which both ends are given.
    fn port_at(&mut self, base: Base, offset: u32, ports: Ports) -> Fragment {
        match ports {
            Ports::One(port) => self.equal(base, offset, Width::Half, port),
            Ports::Range(first, last) => {
                let (first, last) = (first.min(last), first.max(last));
                let least = self.compare(base, offset, Width::Half, Comparison::GreaterOrEqual, first);
                let most = self.compare(base, offset, Width::Half, Comparison::Greater, last).negated();
                self.and(least, most)
            }
        }
    }

    fn ports_of(&mut self, ports: Ports, protocol: u32, direction: Direction, is_ipv6: bool) -> Made<Fragment> {
        let base = if is_ipv6 { Base::Transport6 } else { Base::Transport4 };
        let mut is_protocol = self.equal(Base::Network, if is_ipv6 { 6 } else { 9 }, Width::Byte, protocol);
        if !is_ipv6 {
            let fragment = self.is_not_later_fragment();
            is_protocol = self.and(is_protocol, fragment);
        }
        let port =
            self.directed(direction, |this, is_source| Ok(this.port_at(base, if is_source { 0 } else { 2 }, ports)))?;
        Ok(self.and(is_protocol, port))
    }

    /// Ports of one IP protocol, or of all that have ports, over one version of IP.
    fn ports_over(
        &mut self,
        ports: Ports,
        protocol: Option<u32>,
        direction: Direction,
        is_ipv6: bool,
    ) -> Made<Fragment> {
        let link = self.link_type(if is_ipv6 { ethertype::IP6 } else { ethertype::IP })?;
        let test = match protocol {
            Some(protocol) => self.ports_of(ports, protocol, direction, is_ipv6)?,
            None => {
                let tcp = self.ports_of(ports, ip_protocol::TCP, direction, is_ipv6)?;
                let udp = self.ports_of(ports, ip_protocol::UDP, direction, is_ipv6)?;
                let both = self.or(tcp, udp);
                let sctp = self.ports_of(ports, ip_protocol::SCTP, direction, is_ipv6)?;
                self.or(sctp, both)
            }
        };
        Ok(self.and(link, test))
    }

    fn ports(&mut self, ports: Ports, protocol: Option<u32>, direction: Direction) -> Made<Fragment> {
        let (Ports::One(last) | Ports::Range(_, last)) = ports;
        let (Ports::One(first) | Ports::Range(first, _)) = ports;
        if let Some(port) = [first, last].into_iter().find(|&port| port > 65_535) {
            return self.mistake(format!("{port} is not a port"), "ports are numbers from 0 to 65535");
        }
        let four = self.ports_over(ports, protocol, direction, false)?;
        let six = self.ports_over(ports, protocol, direction, true)?;
        Ok(self.or(six, four))
    }

    /// A long list of ports.
    fn port_list(&mut self, list: &PortList) -> Made<Fragment> {
        self.place = list.range.clone();
        let protocol = self.port_protocol(list.protocol)?;
        let four = self.port_list_over(list, protocol, false)?;
        let six = self.port_list_over(list, protocol, true)?;
        let any = self.or(six, four);
        Ok(if list.is_negated { any.negated() } else { any })
    }

    /// A long list of ports over one version of IP: the protocols first, so that they share the tests of the ports.
    fn port_list_over(&mut self, list: &PortList, protocol: Option<u32>, is_ipv6: bool) -> Made<Fragment> {
        let (base, field) = if is_ipv6 { (Base::Transport6, 6) } else { (Base::Transport4, 9) };
        let mut header = self.link_type(if is_ipv6 { ethertype::IP6 } else { ethertype::IP })?;
        let all = [ip_protocol::TCP, ip_protocol::UDP, ip_protocol::SCTP];
        let protocols = protocol.as_ref().map_or(&all[..], std::slice::from_ref);
        let mut is_protocol = self.equal(Base::Network, field, Width::Byte, protocols[0]);
        for &other in &protocols[1..] {
            let other = self.equal(Base::Network, field, Width::Byte, other);
            is_protocol = self.or(is_protocol, other);
        }
        header = self.and(header, is_protocol);
        if !is_ipv6 {
            let fragment = self.is_not_later_fragment();
            header = self.and(header, fragment);
        }
        let ports = self.directed(list.direction, |this, is_source| {
            Ok(this.among(base, if is_source { 0 } else { 2 }, &list.ports))
        })?;
        Ok(self.and(header, ports))
    }

    /// Whether a number of two bytes is in one of these intervals. It is loaded once.
    fn among(&mut self, base: Base, offset: u32, intervals: &[(u32, u32)]) -> Fragment {
        let mut ops = self.load(base, offset, Width::Half);
        let mut all: Option<Fragment> = None;
        for &(low, high) in intervals {
            let test = if low == high {
                self.test(std::mem::take(&mut ops), Comparison::Equal, Right::Constant(low))
            } else {
                let least = self.test(std::mem::take(&mut ops), Comparison::GreaterOrEqual, Right::Constant(low));
                let most = self.test(Ops::default(), Comparison::Greater, Right::Constant(high)).negated();
                self.and(least, most)
            };
            all = Some(match all {
                Some(before) => self.or(before, test),
                None => test,
            });
        }
        all.unwrap_or_else(|| self.constant(false))
    }

    /// The IP protocol of the qualifiers of a port.
    fn port_protocol(&self, protocol: Option<Protocol>) -> Made<Option<u32>> {
        match protocol {
            None => Ok(None),
            Some(Protocol::Tcp) => Ok(Some(ip_protocol::TCP)),
            Some(Protocol::Udp) => Ok(Some(ip_protocol::UDP)),
            Some(Protocol::Sctp) => Ok(Some(ip_protocol::SCTP)),
            Some(protocol) => self.mistake(
                format!("`{protocol}` has no ports"),
                "ports are of `tcp`, `udp` or `sctp`, or of any of them: `port …`",
            ),
        }
    }

    // Values.

    fn address(&mut self, qualifiers: &Qualifiers, id: &Id) -> Made<Fragment> {
        match id {
            Id::Number(number) => self.number(*number, qualifiers),
            Id::Name(name) => self.name(name, qualifiers),
            Id::Ipv4(text) => self.ipv4_text(text, qualifiers),
            Id::Ipv4Prefix(text, length) => {
                if *length > 32 {
                    return self
                        .mistake(format!("a prefix of {length} bits is too long"), "an IPv4 address has 32 bits");
                }
                let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
                self.network(text, mask, &format!("/{length}"), qualifiers)
            }
            Id::Ipv4Mask(text, mask) => {
                let (number, bits) = self.ipv4_number(mask)?;
                self.network(text, number << (32 - bits), &format!(" mask {mask}"), qualifiers)
            }
            Id::Ipv6(text, length) => self.ipv6_text(text, *length, qualifiers),
            Id::Mac(text) => {
                if qualifiers.protocol != Some(Protocol::Link)
                    || !matches!(qualifiers.kind, AddressKind::Default | AddressKind::Host)
                {
                    return self
                        .mistake(format!("`{text}` is an Ethernet address"), format!("write `ether host {text}`"));
                }
                self.require_ethernet("hosts with Ethernet addresses")?;
                match names::ethernet_address(text) {
                    Some(address) => self.ethernet_host(address, qualifiers.direction),
                    None => self
                        .mistake(format!("`{text}` is not an Ethernet address"), "it has six bytes: 00:1b:21:0a:0b:0c"),
                }
            }
        }
    }

    fn require_ethernet(&self, what: &str) -> Made<()> {
        if self.layout.is_ethernet() {
            Ok(())
        } else {
            self.mistake(
                format!("there are no {what} in {}", self.link_name()),
                "this test is for link type Ethernet only",
            )
        }
    }

    fn ipv4_number(&self, text: &str) -> Made<(u32, u32)> {
        match names::ipv4_prefix(text) {
            Some(number) => Ok(number),
            None => self.mistake(
                format!("`{text}` is not an IPv4 address"),
                "it has up to four numbers from 0 to 255, with dots between them",
            ),
        }
    }

    fn network(&mut self, text: &str, mask: u32, suffix: &str, qualifiers: &Qualifiers) -> Made<Fragment> {
        let (number, bits) = self.ipv4_number(text)?;
        let address = number << (32 - bits);
        if address & !mask != 0 {
            let network = Ipv4Addr::from_bits(address & mask);
            return self
                .mistake(format!("`{text}{suffix}` has bits after its prefix"), format!("write `{network}{suffix}`"));
        }
        if qualifiers.kind != AddressKind::Net {
            return self.mistake(format!("`{text}{suffix}` is a network"), format!("write `net {text}{suffix}`"));
        }
        self.ipv4(address, mask, qualifiers.protocol, qualifiers.direction, "net")
    }

    fn ipv4_text(&mut self, text: &str, qualifiers: &Qualifiers) -> Made<Fragment> {
        let what = match qualifiers.kind {
            AddressKind::Default | AddressKind::Host => "host",
            AddressKind::Net => "net",
            AddressKind::Gateway => return self.gateway(),
            AddressKind::Port | AddressKind::PortRange | AddressKind::Proto | AddressKind::ProtoChain => {
                return self.mistake(format!("`{text}` is an IPv4 address"), format!("write `host {text}`"));
            }
        };
        if qualifiers.protocol == Some(Protocol::Decnet) {
            let Some((area, node)) = decnet_address(text) else {
                return self.mistake(
                    format!("`{text}` is not a DECnet address"),
                    "it is an area and a node: `decnet host 1.23`",
                );
            };
            return self.decnet(area << 10 & 0xfc00 | node & 0x03ff, qualifiers.direction);
        }
        let (number, bits) = self.ipv4_number(text)?;
        if qualifiers.protocol == Some(Protocol::Link) {
            return self.link_layer_address(text);
        }
        let (address, mask) = (number << (32 - bits), u32::MAX << (32 - bits));
        self.ipv4(address, mask, qualifiers.protocol, qualifiers.direction, what)
    }

    fn link_layer_address<T>(&self, text: &str) -> Made<T> {
        self.mistake(format!("`{text}` is not an address of the link layer"), "such as `ether host 00:1b:21:0a:0b:0c`")
    }

    fn gateway<T>(&self) -> Made<T> {
        self.mistake(
            "`gateway` is not supported where IPv6 is, as in libpcap",
            "write `ether host MAC and not host ADDRESS`",
        )
    }

    fn number(&mut self, number: u32, qualifiers: &Qualifiers) -> Made<Fragment> {
        let Qualifiers { protocol, direction, kind } = *qualifiers;
        match kind {
            AddressKind::Default | AddressKind::Host | AddressKind::Net => {
                let what = if kind == AddressKind::Net { "net" } else { "host" };
                match protocol {
                    Some(Protocol::Decnet) => self.decnet(number, direction),
                    Some(Protocol::Link) => self.link_layer_address(&number.to_string()),
                    _ => {
                        let (mut address, mut mask) = (number, u32::MAX);
                        if kind == AddressKind::Net {
                            (address, mask) = left_aligned(address);
                        }
                        self.ipv4(address, mask, protocol, direction, what)
                    }
                }
            }
            AddressKind::Port => {
                let protocol = self.port_protocol(protocol)?;
                self.ports(Ports::One(number), protocol, direction)
            }
            AddressKind::PortRange => {
                let protocol = self.port_protocol(protocol)?;
                self.ports(Ports::Range(number, number), protocol, direction)
            }
            AddressKind::Gateway => self.gateway(),
            AddressKind::Proto => self.protocol_in(number, protocol),
            AddressKind::ProtoChain => self.protocol_chain(number, protocol),
        }
    }

    fn ipv6_text(&mut self, text: &str, length: Option<u32>, qualifiers: &Qualifiers) -> Made<Fragment> {
        let Ok(address) = text.parse::<Ipv6Addr>() else {
            return self.mistake(format!("`{text}` is not an IPv6 address"), "such as 2001:db8::1");
        };
        let bits = length.unwrap_or(128);
        if bits > 128 {
            return self.mistake(format!("a prefix of {bits} bits is too long"), "an IPv6 address has 128 bits");
        }
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        if address.to_bits() & !mask != 0 {
            let network = Ipv6Addr::from_bits(address.to_bits() & mask);
            return self
                .mistake(format!("`{text}/{bits}` has bits after its prefix"), format!("write `{network}/{bits}`"));
        }
        let what = match qualifiers.kind {
            AddressKind::Default | AddressKind::Host if bits != 128 => {
                return self.mistake(format!("`{text}/{bits}` is a network"), format!("write `net {text}/{bits}`"));
            }
            AddressKind::Default | AddressKind::Host => "host",
            AddressKind::Net => "net",
            _ => return self.mistake(format!("`{text}` is an IPv6 address"), format!("write `host {text}`")),
        };
        self.ipv6(address, mask, qualifiers.protocol, qualifiers.direction, what)
    }

    fn name(&mut self, name: &str, qualifiers: &Qualifiers) -> Made<Fragment> {
        let Qualifiers { protocol, direction, kind } = *qualifiers;
        match kind {
            AddressKind::Net => {
                let names = self.options.names;
                let found = *self.lookups.networks.entry(name.to_owned()).or_insert_with(|| names.network(name));
                match found {
                    None | Some(0) => {
                        self.mistake(format!("there is no network `{name}`"), "networks have names in /etc/networks")
                    }
                    Some(number) => {
                        let (address, mask) = left_aligned(number);
                        self.ipv4(address, mask, protocol, direction, "net")
                    }
                }
            }
            AddressKind::Default | AddressKind::Host => match protocol {
                Some(Protocol::Link) => {
                    self.require_ethernet("hosts with Ethernet addresses")?;
                    let names = self.options.names;
                    let found = *self.lookups.ethernet.entry(name.to_owned()).or_insert_with(|| names.ethernet(name));
                    match found {
                        Some(address) => self.ethernet_host(address, direction),
                        None => self.mistake(
                            format!("there is no Ethernet host `{name}`"),
                            "Ethernet hosts have names in /etc/ethers",
                        ),
                    }
                }
                Some(Protocol::Decnet) => {
                    self.mistake("DECnet hosts have no names here", "write an area and a node: `decnet host 1.23`")
                }
                _ => self.host_name(name, protocol, direction),
            },
            AddressKind::Port => {
                let given = self.port_protocol(protocol)?;
                let (port, found) = self.port_name(name)?;
                let protocol = self.agreed(given, found, name)?;
                self.ports(Ports::One(port), protocol, direction)
            }
            AddressKind::PortRange => {
                let given = self.port_protocol(protocol)?;
                let (first, last, found) = self.port_range(name)?;
                let protocol = self.agreed(given, found, name)?;
                self.ports(Ports::Range(first, last), protocol, direction)
            }
            AddressKind::Gateway => self.gateway(),
            AddressKind::Proto => {
                let number = self.protocol_name(name, protocol)?;
                self.protocol_in(number, protocol)
            }
            AddressKind::ProtoChain => {
                let number = self.protocol_name(name, protocol)?;
                self.protocol_chain(number, protocol)
            }
        }
    }

    fn host_name(&mut self, name: &str, protocol: Option<Protocol>, direction: Direction) -> Made<Fragment> {
        let names = self.options.names;
        let addresses = self.lookups.hosts.entry(name.to_owned()).or_insert_with(|| names.host(name)).clone();
        if addresses.is_empty() {
            return self
                .mistake(format!("there is no host `{name}`"), "its name cannot be resolved; write its address");
        }
        // Without a type field, there is no ARP to look into.
        let is_plain = protocol.is_none() && self.layout.link_type.is_none();
        let mut all: Option<Fragment> = None;
        for address in addresses {
            let one = match address {
                IpAddr::V4(_) if protocol == Some(Protocol::Ip6) => continue,
                IpAddr::V6(_) if protocol == Some(Protocol::Ip) => continue,
                IpAddr::V4(address) => {
                    let protocol = if is_plain { Some(Protocol::Ip) } else { protocol };
                    self.ipv4(address.to_bits(), u32::MAX, protocol, direction, "host")?
                }
                IpAddr::V6(address) => {
                    let protocol = if is_plain { Some(Protocol::Ip6) } else { protocol };
                    self.ipv6(address, u128::MAX, protocol, direction, "host")?
                }
            };
            all = Some(match all {
                Some(all) => self.or(all, one),
                None => one,
            });
        }
        match all {
            Some(all) => Ok(all),
            None => self.mistake(
                format!("`{name}` has no address of this family"),
                "leave out `ip` or `ip6`, or write an address",
            ),
        }
    }

    /// The port of a name, and its IP protocol unless it is that of several.
    fn port_name(&mut self, name: &str) -> Made<(u32, Option<u32>)> {
        if let Ok(port) = name.parse::<u32>() {
            return Ok((port, None));
        }
        let names = self.options.names;
        let mut find = |transport| {
            let lookup = self.lookups.ports.entry((name.to_owned(), transport));
            *lookup.or_insert_with(|| names.port(name, transport))
        };
        match (find(Transport::Tcp), find(Transport::Udp)) {
            (Some(tcp), Some(udp)) if tcp == udp => Ok((tcp.into(), None)),
            (Some(tcp), _) => Ok((tcp.into(), Some(ip_protocol::TCP))),
            (None, Some(udp)) => Ok((udp.into(), Some(ip_protocol::UDP))),
            (None, None) => {
                self.mistake(format!("there is no service `{name}`"), "services have names in /etc/services")
            }
        }
    }

    fn port_range(&mut self, text: &str) -> Made<(u32, u32, Option<u32>)> {
        let Some((first, last)) = text.split_once('-') else {
            return self.mistake(format!("`{text}` is not a range of ports"), "such as `portrange 6000-6100`");
        };
        let leading = |text: &str| {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            text[..digits].parse::<u32>().ok()
        };
        // As in libpcap, what follows the second number does not count.
        if let (Ok(first), Some(last)) = (first.parse::<u32>(), leading(last)) {
            return Ok((first, last, None));
        }
        let (first, of_first) = self.port_name(first)?;
        let (last, of_last) = self.port_name(last)?;
        Ok((first, last, if of_first == of_last { of_first } else { None }))
    }

    /// The IP protocol of ports, from the qualifiers and from their names.
    fn agreed(&self, given: Option<u32>, found: Option<u32>, name: &str) -> Made<Option<u32>> {
        match (given, found) {
            (Some(given), Some(found)) if given != found => {
                let protocol = if found == ip_protocol::TCP { "tcp" } else { "udp" };
                self.mistake(
                    format!("`{name}` is a port of {protocol}"),
                    format!("write `{protocol} port {name}`, or its number"),
                )
            }
            (Some(given), _) => Ok(Some(given)),
            (None, found) => Ok(found),
        }
    }

    fn protocol_name(&mut self, name: &str, outer: Option<Protocol>) -> Made<u32> {
        let number = match outer {
            None | Some(Protocol::Ip | Protocol::Ip6) => {
                let names = self.options.names;
                let lookup = self.lookups.protocols.entry(name.to_owned());
                let found = *lookup.or_insert_with(|| names.protocol(name));
                found.map(u32::from)
            }
            Some(Protocol::Link) => match name {
                "aarp" => Some(ethertype::AARP),
                "arp" => Some(ethertype::ARP),
                "atalk" => Some(ethertype::ATALK),
                "decnet" => Some(ethertype::DECNET),
                "ip" => Some(ethertype::IP),
                "ip6" => Some(ethertype::IP6),
                "lat" => Some(ethertype::LAT),
                "loopback" => Some(ethertype::LOOPBACK),
                "mopdl" => Some(ethertype::MOPDL),
                "moprc" => Some(ethertype::MOPRC),
                "rarp" => Some(ethertype::RARP),
                "sca" => Some(ethertype::SCA),
                "iso" => Some(sap::OSI),
                "stp" => Some(sap::STP),
                "ipx" => Some(sap::IPX),
                "netbeui" => Some(sap::NETBEUI),
                _ => None,
            },
            Some(Protocol::Iso) => match name {
                "esis" => Some(osi::ESIS),
                "isis" => Some(osi::ISIS),
                "clnp" => Some(osi::CLNP),
                _ => None,
            },
            Some(_) => None,
        };
        match number {
            Some(number) => Ok(number),
            None => self.mistake(
                format!("there is no protocol `{name}` here"),
                "IP protocols have names in /etc/protocols; a number says the same",
            ),
        }
    }

    // Arithmetic.

    fn arithmetic(&mut self, arithmetic: &Arithmetic) -> Made<Computed> {
        let mut operands: Vec<Computed> = Vec::new();
        let place = self.place.clone();
        for (element, range) in &arithmetic.elements {
            self.place = range.clone();
            let result = match *element {
                Element::Number(number) => {
                    let word = self.take_word()?;
                    Computed { ops: Ops::of(&[Op::LoadConstant(number), Op::Store(word)]), condition: None, word }
                }
                Element::Length => {
                    let word = self.take_word()?;
                    Computed { ops: Ops::of(&[Op::LoadLength, Op::Store(word)]), condition: None, word }
                }
                Element::Load { protocol, size } => {
                    let offset = self.pop(&mut operands)?;
                    self.place = place.clone();
                    self.packet_load(protocol, offset, size.unwrap_or(1), range)?
                }
                Element::Negate => {
                    let mut operand = self.pop(&mut operands)?;
                    operand.ops.extend([Op::LoadMemory(operand.word), Op::Negate, Op::Store(operand.word)]);
                    operand
                }
                Element::Binary(operation) => {
                    let right = self.pop(&mut operands)?;
                    let left = self.pop(&mut operands)?;
                    self.binary(operation, left, right)?
                }
            };
            operands.push(result);
        }
        self.place = place;
        self.pop(&mut operands)
    }

    fn pop(&self, operands: &mut Vec<Computed>) -> Made<Computed> {
        match operands.pop() {
            Some(operand) => Ok(operand),
            None => self.mistake("an operand is missing", "write a number on both sides of each operator"),
        }
    }

    fn binary(&mut self, operation: Operation, left: Computed, right: Computed) -> Made<Computed> {
        // Only the first number of the right operand is looked at, as in libpcap.
        if let Some(&Op::LoadConstant(number)) = right.ops.first() {
            match operation {
                Operation::Divide if number == 0 => return Err(division_by_zero(self.place.clone())),
                Operation::Remainder if number == 0 => return Err(remainder_by_zero(self.place.clone())),
                Operation::ShiftLeft | Operation::ShiftRight if number > 31 => {
                    return Err(long_shift(self.place.clone()));
                }
                _ => {}
            }
        }
        let mut ops = left.ops;
        ops.extend(right.ops.iter().copied());
        ops.extend([Op::IndexMemory(right.word), Op::LoadMemory(left.word), Op::Index(operation)]);
        self.free_word(left.word);
        self.free_word(right.word);
        let word = self.take_word()?;
        ops.push(Op::Store(word));
        // As in libpcap, only what the left operand needs is tested.
        Ok(Computed { ops, condition: left.condition, word })
    }

    fn packet_load(&mut self, protocol: Protocol, offset: Computed, size: u32, place: &Range<usize>) -> Made<Computed> {
        let word = self.take_word()?;
        self.free_word(offset.word);
        let width = match size {
            1 => Width::Byte,
            2 => Width::Half,
            4 => Width::Word,
            _ => {
                return Err(Mistake::new(
                    place.clone(),
                    format!("{size} bytes cannot be loaded at once"),
                    "the number of bytes is 1, 2 or 4",
                ));
            }
        };
        let Computed { mut ops, condition, word: index } = offset;
        let network = self.layout.payload.constant.wrapping_add(self.layout.network);
        // The offset, and a variable part of the position, as an index.
        let indexed = |position: Position| match position.word {
            Some(word) => {
                Ops::of(&[Op::IndexMemory(word), Op::LoadMemory(index), Op::Index(Operation::Add), Op::ToIndex])
            }
            None => Ops::of(&[Op::IndexMemory(index)]),
        };
        let condition = match protocol {
            Protocol::Link => {
                ops.extend(indexed(self.layout.link_header).iter().copied());
                ops.push(Op::LoadIndexed(width, self.layout.link_header.constant));
                condition
            }
            Protocol::Ip
            | Protocol::Arp
            | Protocol::Rarp
            | Protocol::Atalk
            | Protocol::Decnet
            | Protocol::Sca
            | Protocol::Lat
            | Protocol::Moprc
            | Protocol::Mopdl
            | Protocol::Ip6 => {
                ops.extend(indexed(self.layout.payload).iter().copied());
                ops.push(Op::LoadIndexed(width, network));
                let is_protocol = self.protocol(protocol)?;
                Some(self.after(condition, is_protocol))
            }
            Protocol::Sctp
            | Protocol::Tcp
            | Protocol::Udp
            | Protocol::Icmp
            | Protocol::Igmp
            | Protocol::Igrp
            | Protocol::Pim
            | Protocol::Vrrp
            | Protocol::Carp => {
                ops.extend(self.index_transport4().iter().copied());
                ops.extend([Op::LoadMemory(index), Op::Index(Operation::Add), Op::ToIndex]);
                ops.push(Op::LoadIndexed(width, network));
                let is_protocol = self.protocol(protocol)?;
                let fragment = self.is_not_later_fragment();
                let test = self.and(is_protocol, fragment);
                let test = self.after(condition, test);
                let is_ip = self.protocol(Protocol::Ip)?;
                Some(self.and(is_ip, test))
            }
            Protocol::Icmp6 => {
                let is_ip6 = self.protocol(Protocol::Ip6)?;
                let is_ip6 = self.after(condition, is_ip6);
                let is_icmp6 = self.equal(Base::Network, 6, Width::Byte, ip_protocol::ICMP6);
                let test = self.and(is_ip6, is_icmp6);
                ops.extend(indexed(self.layout.payload).iter().copied());
                ops.push(Op::LoadIndexed(width, network.wrapping_add(40)));
                Some(test)
            }
            _ => {
                return Err(Mistake::new(
                    place.clone(),
                    format!("bytes of `{protocol}` cannot be loaded"),
                    "count from the start of the packet, `ether[…]`, or of a header that can: `ip[…]`, `tcp[…]`",
                ));
            }
        };
        ops.push(Op::Store(word));
        Ok(Computed { ops, condition, word })
    }

    fn relation(&mut self, left: &Arithmetic, relation: Relation, right: &Arithmetic) -> Made<Fragment> {
        let left = self.arithmetic(left)?;
        let right = self.arithmetic(right)?;
        let mut ops = left.ops;
        ops.extend(right.ops.iter().copied());
        ops.extend([Op::IndexMemory(right.word), Op::LoadMemory(left.word)]);
        let (comparison, is_negated) = match relation {
            Relation::Equal => (Comparison::Equal, false),
            Relation::NotEqual => (Comparison::Equal, true),
            Relation::Greater => (Comparison::Greater, false),
            Relation::LessOrEqual => (Comparison::Greater, true),
            Relation::GreaterOrEqual => (Comparison::GreaterOrEqual, false),
            Relation::Less => (Comparison::GreaterOrEqual, true),
        };
        let mut test = if comparison == Comparison::Equal {
            ops.push(Op::Index(Operation::Subtract));
            self.test(ops, comparison, Right::Constant(0))
        } else {
            self.test(ops, comparison, Right::Index)
        };
        if is_negated {
            test = test.negated();
        }
        self.free_word(left.word);
        self.free_word(right.word);
        let condition = match (left.condition, right.condition) {
            (Some(left), Some(right)) => Some(self.and(left, right)),
            (left, right) => left.or(right),
        };
        Ok(self.after(condition, test))
    }

    // Tests.

    fn primitive(&mut self, primitive: &Primitive) -> Made<Fragment> {
        match primitive {
            Primitive::Address { qualifiers, id } => self.address(qualifiers, id),
            Primitive::Protocol(protocol) => self.protocol(*protocol),
            Primitive::Relation { left, relation, right } => self.relation(left, *relation, right),
            Primitive::Broadcast(protocol) => self.broadcast(*protocol),
            Primitive::Multicast(protocol) => self.multicast(*protocol),
            Primitive::Less(length) => {
                Ok(self.test(Ops::of(&[Op::LoadLength]), Comparison::Greater, Right::Constant(*length)).negated())
            }
            Primitive::Greater(length) => {
                Ok(self.test(Ops::of(&[Op::LoadLength]), Comparison::GreaterOrEqual, Right::Constant(*length)))
            }
            Primitive::Byte { offset, operation, value } => Ok(self.byte(*offset, *operation, *value)),
            Primitive::Inbound => self.outbound(false),
            Primitive::Outbound => self.outbound(true),
            Primitive::IfIndex(index) => match self.layout.link {
                Link::Outer(LinkType::Cooked2) => Ok(self.equal(Base::LinkHeader, 4, Width::Word, *index)),
                _ => self.mistake(
                    format!("there is no interface index in {}", self.link_name()),
                    "`ifindex` is for link type Linux cooked of version 2 only",
                ),
            },
            Primitive::Vlan(number) => self.vlan(*number),
            Primitive::Mpls(label) => self.mpls(*label),
            Primitive::PppoeDiscovery => self.link_type(ethertype::PPPOE_DISCOVERY),
            Primitive::PppoeSession(session) => self.pppoe_session(*session),
            Primitive::Geneve(network) => self.geneve(*network),
            Primitive::Llc(kind) => self.llc(*kind),
        }
    }

    fn byte(&mut self, offset: u32, operation: ByteOperation, value: u32) -> Fragment {
        let combined = |this: &mut Self, operation| {
            // As in libpcap, which does not load the byte but takes what the accumulator has from before.
            let ops = Ops::of(&[Op::Constant(operation, value)]);
            this.test(ops, Comparison::Equal, Right::Constant(0)).negated()
        };
        match operation {
            ByteOperation::Equal => self.equal(Base::LinkHeader, offset, Width::Byte, value),
            ByteOperation::Less => {
                self.compare(Base::LinkHeader, offset, Width::Byte, Comparison::GreaterOrEqual, value).negated()
            }
            ByteOperation::Greater => self.compare(Base::LinkHeader, offset, Width::Byte, Comparison::Greater, value),
            ByteOperation::And => combined(self, Operation::And),
            ByteOperation::Or => combined(self, Operation::Or),
        }
    }

    fn broadcast(&mut self, protocol: Option<Protocol>) -> Made<Fragment> {
        match protocol {
            None | Some(Protocol::Link) => {
                self.require_ethernet("broadcast addresses")?;
                self.ethernet_host([0xff; 6], Direction::Destination)
            }
            Some(Protocol::Ip) => {
                let Some(mask) = self.options.netmask else {
                    return self
                        .mistake(NETMASK_UNKNOWN, "write the address: `ip dst host 10.0.0.255`, or `ether broadcast`");
                };
                let host = !mask.to_bits();
                self.link_types_then(ethertype::IP, |this| {
                    let zeros = this.masked(Base::Network, 16, Width::Word, 0, host);
                    let ones = this.masked(Base::Network, 16, Width::Word, host, host);
                    this.or(zeros, ones)
                })
            }
            Some(protocol) => {
                self.mistake(format!("`{protocol}` has no broadcast addresses"), "`broadcast` is for `ether` and `ip`")
            }
        }
    }

    fn multicast(&mut self, protocol: Option<Protocol>) -> Made<Fragment> {
        match protocol {
            None | Some(Protocol::Link) => {
                self.require_ethernet("multicast addresses")?;
                let inner = self.has_inner_ethernet();
                let multicast = self.compare(Base::LinkHeader, 0, Width::Byte, Comparison::AnyBit, 1);
                Ok(self.after(inner, multicast))
            }
            Some(Protocol::Ip) => self.link_types_then(ethertype::IP, |this| {
                this.compare(Base::Network, 16, Width::Byte, Comparison::GreaterOrEqual, 224)
            }),
            Some(Protocol::Ip6) => {
                self.link_types_then(ethertype::IP6, |this| this.equal(Base::Network, 24, Width::Byte, 255))
            }
            Some(protocol) => self.mistake(
                format!("`{protocol}` has no multicast addresses"),
                "`multicast` is for `ether`, `ip` and `ip6`",
            ),
        }
    }

    fn outbound(&mut self, is_outbound: bool) -> Made<Fragment> {
        let outgoing = match self.layout.link {
            Link::Outer(LinkType::Cooked) => self.equal(Base::LinkHeader, 0, Width::Half, COOKED_OUTGOING),
            Link::Outer(LinkType::Cooked2) => self.equal(Base::LinkHeader, 10, Width::Byte, COOKED_OUTGOING),
            _ => {
                return self.mistake(
                    format!("there is no direction in {}", self.link_name()),
                    "`inbound` and `outbound` are for link type Linux cooked only",
                );
            }
        };
        Ok(if is_outbound { outgoing } else { outgoing.negated() })
    }

    fn vlan(&mut self, number: Option<u32>) -> Made<Fragment> {
        if self.layout.mpls_labels > 0 {
            return self.mistake("there are no VLAN tags after `mpls`", "put `vlan` before `mpls`");
        }
        self.require_ethernet("VLAN tags")?;
        let c = self.link_type(ethertype::VLAN)?;
        let s = self.link_type(ethertype::PROVIDER_VLAN)?;
        let both = self.or(c, s);
        let old = self.link_type(ethertype::OLD_PROVIDER_VLAN)?;
        let mut tag = self.or(both, old);
        if let Some(number) = number {
            if number > 0xfff {
                return self.mistake(format!("{number} is not a VLAN"), "VLANs are numbers from 0 to 4095");
            }
            let identifier = self.masked(Base::Network, 0, Width::Half, number, 0xfff);
            tag = self.and(tag, identifier);
        }
        self.layout.payload.constant = self.layout.payload.constant.wrapping_add(4);
        if let Some(position) = &mut self.layout.link_type {
            position.constant = position.constant.wrapping_add(4);
        }
        Ok(tag)
    }

    fn mpls(&mut self, label: Option<u32>) -> Made<Fragment> {
        let mut test = if self.layout.mpls_labels > 0 {
            self.masked(Base::Label, 2, Width::Byte, 0, 0x01)
        } else {
            match self.layout.link {
                Link::Outer(LinkType::Ethernet) | Link::Geneve => self.link_type(ethertype::MPLS)?,
                Link::Ppp => self.link_type(0x0281)?,
                Link::Outer(_) => {
                    return self.mistake(
                        format!("there are no MPLS labels in {}", self.link_name()),
                        "`mpls` is for link type Ethernet only",
                    );
                }
            }
        };
        if let Some(label) = label {
            if label > 0xf_ffff {
                return self.mistake(format!("{label} is not an MPLS label"), "labels are numbers from 0 to 1048575");
            }
            let label = self.masked(Base::Network, 0, Width::Word, label << 12, 0xffff_f000);
            test = self.and(test, label);
        }
        self.layout.network = self.layout.network.wrapping_add(4);
        self.layout.network_after_llc = self.layout.network_after_llc.wrapping_add(4);
        self.layout.mpls_labels += 1;
        Ok(test)
    }

    fn pppoe_session(&mut self, session: Option<u32>) -> Made<Fragment> {
        let mut test = self.link_type(ethertype::PPPOE_SESSION)?;
        if let Some(session) = session {
            if session > 0xffff {
                return self
                    .mistake(format!("{session} is not a PPPoE session"), "sessions are numbers from 0 to 65535");
            }
            let session = self.masked(Base::Network, 0, Width::Word, session, 0xffff);
            test = self.and(test, session);
        }
        let layout = &mut self.layout;
        layout.link = Link::Ppp;
        layout.link_header = Position {
            constant: layout.payload.constant.wrapping_add(layout.network).wrapping_add(6),
            word: layout.payload.word,
        };
        layout.link_type = Some(layout.link_header);
        layout.payload.constant = layout.link_header.constant.wrapping_add(2);
        layout.network = 0;
        layout.network_after_llc = 0;
        Ok(test)
    }

    fn geneve(&mut self, network: Option<u32>) -> Made<Fragment> {
        let four = self.geneve_over(network, false)?;
        let six = self.geneve_over(network, true)?;
        let is_geneve = self.or(four, six);
        self.is_fixed = true;

        // The accumulator is the length of the IP header here, and the variable part of its position.
        let udp = self.layout.payload.constant.wrapping_add(self.layout.network).wrapping_add(8);
        let link_type = self.take_word()?;
        let link_header = self.take_word()?;
        let payload = self.take_word()?;
        let ops = Ops::of(&[
            Op::Constant(Operation::Add, udp),
            Op::ToIndex,
            Op::Constant(Operation::Add, 2),
            Op::Store(link_type),
            Op::LoadIndexed(Width::Byte, 0),
            Op::Constant(Operation::And, 0x3f),
            Op::Constant(Operation::Multiply, 4),
            Op::Constant(Operation::Add, 8),
            Op::Index(Operation::Add),
            Op::Store(link_header),
            Op::LoadIndexed(Width::Half, 2),
            Op::IndexMemory(link_header),
        ]);
        let is_bridged = self.test(ops, Comparison::Equal, Right::Constant(ethertype::TRANSPARENT_BRIDGING));
        // With an Ethernet header inside, its type counts, and the payload is behind it.
        let bridged = self.blocks.len();
        self.blocks.push(Block {
            ops: Ops::of(&[
                Op::FromIndex,
                Op::Constant(Operation::Add, 12),
                Op::Store(link_type),
                Op::Constant(Operation::Add, 2),
                Op::ToIndex,
            ]),
            end: End::Goto(bridged),
            part: self.place.clone(),
        });
        let ops = Ops::of(&[Op::StoreIndex(payload), Op::LoadConstant(0)]);
        let last = self.test(ops, Comparison::Equal, Right::Constant(0));
        self.patch(is_bridged.yes, bridged);
        self.patch(is_bridged.no, last.head);
        self.patch(Exits::one(2 * bridged), last.head);
        let offsets = Fragment { head: is_bridged.head, yes: last.yes, no: last.no };

        let variable = |word| Position { constant: 0, word: Some(word) };
        self.layout.link = Link::Geneve;
        self.layout.link_header = variable(link_header);
        self.layout.link_type = Some(variable(link_type));
        self.layout.payload = variable(payload);
        self.layout.network = 0;
        Ok(self.and(is_geneve, offsets))
    }

    /// Tests for Geneve over a version of IP, and leaves the length of the IP header in the accumulator.
    fn geneve_over(&mut self, network: Option<u32>, is_ipv6: bool) -> Made<Fragment> {
        let base = if is_ipv6 { Base::Transport6 } else { Base::Transport4 };
        let ports = Ports::One(GENEVE_PORT);
        let port = self.ports_over(ports, Some(ip_protocol::UDP), Direction::Destination, is_ipv6)?;
        let version = self.masked(base, 8, Width::Byte, 0, 0xc0);
        let mut test = self.and(port, version);
        if let Some(network) = network {
            if network > 0xff_ffff {
                return self.mistake(
                    format!("{network} is not a virtual network of Geneve"),
                    "they are numbers from 0 to 16777215",
                );
            }
            let network = self.masked(base, 12, Width::Word, network << 8, 0xffff_ff00);
            test = self.and(test, network);
        }
        let ops = if !is_ipv6 {
            let mut ops = self.index_transport4();
            ops.push(Op::FromIndex);
            ops
        } else if let Some(word) = self.layout.payload.word {
            Ops::of(&[Op::IndexMemory(word), Op::LoadConstant(40), Op::Index(Operation::Add), Op::ToIndex])
        } else {
            Ops::of(&[Op::LoadConstant(40), Op::ToIndex])
        };
        let always = self.test(ops, Comparison::Equal, Right::Index);
        Ok(self.and(test, always))
    }

    fn llc(&mut self, kind: Llc) -> Made<Fragment> {
        // Within Geneve as on Ethernet.
        self.require_ethernet("LLC headers")?;
        let length = self.is_length();
        let not_novell = self.equal(Base::Llc, 0, Width::Half, 0xffff).negated();
        let is_llc = self.and(length, not_novell);
        let control = match kind {
            Llc::Any => return Ok(is_llc),
            Llc::Information => self.compare(Base::Llc, 2, Width::Byte, Comparison::AnyBit, 0x01).negated(),
            Llc::Supervisory => self.masked(Base::Llc, 2, Width::Byte, 0x01, 0x03),
            Llc::Unnumbered => self.masked(Base::Llc, 2, Width::Byte, 0x03, 0x03),
            Llc::SupervisoryCode(_, code) => self.masked(Base::Llc, 2, Width::Byte, code.into(), 0x0f),
            Llc::UnnumberedCode(_, code) => self.masked(Base::Llc, 2, Width::Byte, code.into(), 0xef),
        };
        Ok(self.and(is_llc, control))
    }
}

/// Ports to compare with.
#[derive(Clone, Copy)]
enum Ports {
    One(u32),
    Range(u32, u32),
}

/// A network number moved to the left, and its mask.
fn left_aligned(mut number: u32) -> (u32, u32) {
    let mut mask = u32::MAX;
    while number != 0 && number & 0xff00_0000 == 0 {
        number <<= 8;
        mask <<= 8;
    }
    (number, mask)
}

fn decnet_address(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether a test shifts what comes after it.
pub(crate) fn is_shift(primitive: &Primitive) -> bool {
    matches!(primitive, Primitive::Vlan(_) | Primitive::Mpls(_) | Primitive::PppoeSession(_) | Primitive::Geneve(_))
}

pub(crate) fn division_by_zero(range: Range<usize>) -> Mistake {
    Mistake::new(range, "division by zero", "a packet would never match; divide by another number")
}

pub(crate) fn remainder_by_zero(range: Range<usize>) -> Mistake {
    Mistake::new(range, "remainder of a division by zero", "a packet would never match; divide by another number")
}

pub(crate) fn long_shift(range: Range<usize>) -> Mistake {
    Mistake::new(range, "shift by more than 31 bits", "numbers have 32 bits; nothing would remain")
}
