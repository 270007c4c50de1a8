//! Compiles a tree for the classic machine, test by test in the order of the text.
//!
//! Which bytes a test looks at depends on the tests before it: `vlan`, `mpls`, `pppoes` and `geneve` shift what comes
//! after them. [`HeaderLayout`] is where the headers are; the order of loads and comparisons is libpcap's.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | trees |
//! | `fragment.rs` | control flow |
//! | `layout.rs` | where the headers are, and tests of bytes |
//! | `link_layer.rs`, `protocols.rs`, `addresses.rs`, `ports.rs`, `arithmetic.rs`, `tunnels.rs` | the kinds of tests |
//! | `names.rs`, `numbers.rs` | names that are looked up, and numbers |
//! | `access.rs` | tests of access lists |
#![forbid(unsafe_code)]

mod access;
mod addresses;
mod arithmetic;
mod fragment;
mod layout;
mod link_layer;
mod names;
mod numbers;
mod ports;
mod protocols;
mod tunnels;

use std::ops::Range;

pub(crate) use self::arithmetic::{division_by_zero, long_shift, remainder_by_zero};
pub(crate) use self::tunnels::is_shift;

use self::fragment::Fragment;
use self::layout::{Base, HeaderLayout, LinkHeader};
use self::names::Lookups;
use self::numbers::ethertype;
use crate::classic::ops::Ops;
use crate::classic::simplify::simplify;
use crate::classic::{Block, End, Flow, MEMORY_WORDS, Op, Right};
use crate::graph::{ComparisonOperator, Width};
use crate::link::LinkType;
use crate::mistake::{Mistake, Warning, WarningKind};
use crate::options::{Options, Reading, Scope};
use crate::port_list::PortLists;
use crate::syntax::{Connective, Node, Primitive};

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
pub(crate) fn generate(tree: &Node, options: &Options<'_>, reading: Reading) -> Result<Generated, Mistake> {
    let mut generator = Generator::new(options, reading);
    generator.probes = if primitives(tree) <= MAX_PROBED && reading == Reading::Libpcap { 2 * MAX_PROBED } else { 0 };
    let fragment = generator.node(tree)?;
    generator.finish(fragment)
}

/// Compiles the test that a packet is usual, in the sense of [`Reading::Usual`].
pub(crate) fn usual(options: &Options<'_>) -> Result<Generated, Mistake> {
    let mut generator = Generator::new(options, Reading::Usual);
    let fragment = generator.usual();
    generator.finish(fragment)
}

struct Generator<'o> {
    options: &'o Options<'o>,
    reading: Reading,
    /// The version of IP whose upper layer bytes are loaded from, for an access list.
    is_over_ipv6: bool,
    blocks: Vec<Block>,
    /// The next way of the same list behind each.
    next_exit: Vec<usize>,
    layout: HeaderLayout,
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

impl<'o> Generator<'o> {
    fn new(options: &'o Options<'o>, reading: Reading) -> Generator<'o> {
        Generator {
            options,
            reading,
            is_over_ipv6: false,
            blocks: Vec::new(),
            next_exit: Vec::new(),
            layout: HeaderLayout::new(options.link_type),
            used_words: [false; MEMORY_WORDS],
            next_word: 0,
            is_fixed: false,
            place: 0..0,
            lookups: Lookups::default(),
            warnings: Vec::new(),
            probes: 0,
        }
    }

    /// A mistake at the current test.
    fn mistake<T>(&self, message: impl Into<String>, help: impl Into<String>) -> Made<T> {
        Err(Mistake::new(self.place.clone(), message, help))
    }

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
    fn probe(&mut self, layout: &HeaderLayout, first: &Node, rest: &[(Connective, Node)]) {
        if self.probes == 0 || rest.is_empty() && matches!(first, Node::Chain { .. }) {
            // The operands of an inner chain are looked at on their own.
            return;
        }
        self.probes -= 1;
        let mut part = Generator::new(self.options, self.reading);
        part.layout = layout.clone();
        (part.used_words, part.next_word) = (self.used_words, self.next_word);
        part.place = self.place.clone();
        part.lookups = std::mem::take(&mut self.lookups);
        let fragment = part.chain(first, rest);
        self.lookups = std::mem::take(&mut part.lookups);
        let Ok(fragment) = fragment else { return };
        let end = rest.last().map_or(first.range().end, |(_, node)| node.range().end);
        let range = first.range().start..end;
        if let Ok(generated) = part.finish(fragment)
            && !generated.is_fixed
            && let Ok(simplified) = simplify(generated.flow, self.options.scope == Scope::LibpcapFaults)
            && let Some(kind) = simplified.flow.constant()
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

    fn primitive(&mut self, primitive: &Primitive) -> Made<Fragment> {
        if self.reading.is_of_access_list()
            && self.layout.link == LinkHeader::Geneve
            && !matches!(primitive, Primitive::Less(_) | Primitive::Greater(_))
        {
            return self.mistake(
                "an access list does not look behind `geneve`, where other headers may hide what is asked for",
                "take the packets out of the tunnel with the app `geneve`, and decide about them behind it",
            );
        }
        match primitive {
            Primitive::Address { qualifiers, id } => self.address(qualifiers, id),
            Primitive::Protocol(protocol) => self.protocol(*protocol),
            Primitive::Relation { left, relation, right } => self.relation(left, *relation, right),
            Primitive::Broadcast(protocol) => self.broadcast(*protocol),
            Primitive::Multicast(protocol) => self.multicast(*protocol),
            Primitive::Less(length) => Ok(self
                .test(Ops::of(&[Op::LoadLength]), ComparisonOperator::Greater, Right::Constant(*length))
                .negated()),
            Primitive::Greater(length) => {
                Ok(self.test(Ops::of(&[Op::LoadLength]), ComparisonOperator::GreaterOrEqual, Right::Constant(*length)))
            }
            Primitive::Byte { offset, operation, value } => Ok(self.byte(*offset, *operation, *value)),
            Primitive::Inbound => self.outbound(false),
            Primitive::Outbound => self.outbound(true),
            Primitive::IfIndex(index) => match self.layout.link {
                LinkHeader::Outer(LinkType::Cooked2) => Ok(self.equal(Base::LinkHeader, 4, Width::Word, *index)),
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
}
