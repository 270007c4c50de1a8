//! Access lists: expressions that decide by the upper layer wherever it is, and refuse what cannot be decided.
//!
//! Expressions are those of pcap-filter(7), with another meaning where that of libpcap depends on where headers are:
//!
//! - Tests of a network protocol, and of what is behind it, look behind VLAN tags, a header of LLC and SNAP, a PPPoE
//!   session and MPLS labels.
//! - Tests of the upper layer look behind IPv4 options, IPv6 extension headers, and authentication headers. So do bytes
//!   of it (`tcp[13]`), over both versions of IP. The number of an extension header matches packets that have one.
//! - `vlan`, `mpls`, `pppoes` and `geneve` shift only what is joined to them by `and` ([`Scope::Lexical`]).
//! - A comparison of bytes that a whole packet does not have does not hold. What is not known of a packet, because it is
//!   a fragment, cut off, or not understood, is undecided, also under `not`.
//!
//! Usual packets are decided by machine code, others by looking at their headers one by one.
//!
//! | module | contents |
//! |---|---|
//! | `laid` | a packet as expressions see it |
//! | `warnings` | rules whose meaning may be another than it seems |

mod laid;
mod warnings;

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;

use bellows_packet::{CAPACITY, Packet};

use self::laid::Laid;
pub use self::laid::Unknown;
pub use self::warnings::{Effect, Site, Surprise, surprises};
use crate::classic::lower;
use crate::expression::Expression;
use crate::generate;
use crate::graph::{Block, BlockEnd, Graph};
use crate::interpret::PacketView;
use crate::link::LinkType;
use crate::mistake::{Mistake, Warning};
use crate::names::{Names, Transport};
use crate::options::{Options, Reading, Scope};
use crate::parser;
use crate::plan::possible::Scratch;
use crate::plan::{MAX_FILTERS, Plan, PlanError};
use crate::program::{self, Program};
use crate::syntax::Node;

/// An expression of an access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expressed {
    tree: Option<Node>,
    usual: Graph,
    laid_out: Graph,
    warnings: Vec<Warning>,
}

impl Expressed {
    /// Compiles an expression. An empty one matches every packet.
    ///
    /// # Errors
    /// The first mistake in the text.
    pub fn parse(text: &str, names: &dyn Names) -> Result<Expressed, Mistake> {
        let names = Once { names, hosts: RefCell::default() };
        let options =
            Options { names: &names, scope: Scope::Lexical, link_type: LinkType::Ethernet, ..Options::default() };
        let warnings = Expression::parse(text, &options)?.warnings().to_vec();
        let tree = parser::parse(text)?;
        let graph = |reading| match &tree {
            None => Ok(always()),
            Some(tree) => generate::generate(tree, &options, reading).map(|generated| lower::lower(&generated.flow)),
        };
        Ok(Expressed { usual: graph(Reading::Usual)?, laid_out: graph(Reading::LaidOut)?, tree, warnings })
    }
}

/// The graph that matches every packet.
fn always() -> Graph {
    Graph { blocks: vec![Block { steps: Vec::new(), end: BlockEnd::Accept, part: 0..0 }], registers: 0 }
}

/// The rules that one program has, besides its guard and one that matches everything.
pub const RULES_IN_ONE_PASS: usize = MAX_FILTERS - 2;

/// What is decided about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The rule of this number is the first that matches; the number of rules if none does.
    Rule(usize),
    /// A rule that none before it decides may match, or not.
    Undecided(Unknown),
}

/// The rules of an access list.
pub struct AccessList {
    /// For each part of the rules, the program for usual packets, and the plan for others.
    parts: Vec<(Program, Plan)>,
    rules: usize,
    scratch: Scratch,
}

impl AccessList {
    /// Compiles rules.
    ///
    /// # Errors
    /// A graph is not valid, which is a fault of this crate.
    pub fn compile(rules: &[Expressed], code: program::ProgramOptions) -> Result<AccessList, PlanError> {
        let usual = generate::usual(&Options::default()).map(|generated| lower::lower(&generated.flow));
        // It has no names, and no mistakes.
        let usual = usual.unwrap_or_else(|_| always());
        let mut parts = Vec::new();
        for rules in rules.chunks(RULES_IN_ONE_PASS) {
            let everything = always();
            let graphs = rules.iter().map(|rule| &rule.usual);
            let graphs: Vec<&Graph> = [&usual].into_iter().chain(graphs).chain([&everything]).collect();
            parts.push((Program::guarded(&graphs, code)?, plan(rules)?));
        }
        Ok(AccessList { parts, rules: rules.len(), scratch: Scratch::default() })
    }

    /// Decides about packets: the number of the rule, the number of rules if none matches, and behind that those of
    /// [`Unknown`] ([`AccessList::number`]). Hot.
    ///
    /// # Panics
    /// If there are more than [`CAPACITY`] packets, or fewer numbers than packets.
    pub fn decide(&mut self, packets: &[Packet], numbers: &mut [u16]) {
        let numbers = &mut numbers[..packets.len()];
        let Some(((first, _), others)) = self.parts.split_first() else { return numbers.fill(0) };
        let mut is_unusual = pass(first, packets, numbers, self.rules.min(RULES_IN_ONE_PASS));
        if !others.is_empty() {
            is_unusual |= decide_more(others, packets, numbers, self.rules);
        }
        if is_unusual {
            self.look_at(packets, numbers);
        }
    }

    /// Decides about packets that are not usual.
    #[cold]
    #[inline(never)]
    fn look_at(&mut self, packets: &[Packet], numbers: &mut [u16]) {
        for (packet, number) in packets.iter().zip(numbers).filter(|(_, number)| **number == UNUSUAL) {
            let bytes = packet.bytes();
            let original = packet.meta().map_or(0, |meta| meta.original_length);
            let decision = self.decide_closely(PacketView { bytes, wire_length: original.max(bytes.len() as u32) });
            *number = self.number(decision);
        }
    }

    /// The number that stands for a decision.
    pub fn number(&self, decision: Decision) -> u16 {
        match decision {
            Decision::Rule(rule) => rule as u16,
            Decision::Undecided(unknown) => self.rules as u16 + 1 + unknown as u16,
        }
    }

    /// Decides about a packet by its headers one by one, as [`AccessList::decide`] does where it is not usual.
    pub fn decide_closely(&mut self, packet: PacketView<'_>) -> Decision {
        let laid = Laid::of(packet);
        let mut before = 0;
        for (_, plan) in &self.parts {
            let count = (self.rules - before).min(RULES_IN_ONE_PASS);
            // The guard is the first filter.
            match plan.only_possible(&laid, &mut self.scratch) {
                Some(end) if (end as usize) <= count => return Decision::Rule(before + end as usize - 1),
                Some(_) => before += count,
                None => return Decision::Undecided(laid.unknown.unwrap_or(Unknown::Missing)),
            }
        }
        Decision::Rule(self.rules)
    }
}

/// The plan of rules for packets that are not usual.
fn plan(rules: &[Expressed]) -> Result<Plan, PlanError> {
    let everything = always();
    let graphs = rules.iter().map(|rule| &rule.laid_out);
    let graphs: Vec<&Graph> = [&everything].into_iter().chain(graphs).chain([&everything]).collect();
    Plan::guarded(&graphs)
}

/// Which rules decide about some packet. What comes before the others decides about all that they match.
fn reached(rules: &[Expressed]) -> Vec<bool> {
    let mut reached = vec![false; rules.len()];
    for (part, reached) in rules.chunks(RULES_IN_ONE_PASS).zip(reached.chunks_mut(RULES_IN_ONE_PASS)) {
        let Ok(plan) = plan(part) else { break };
        let mut goes_on = false;
        for end in plan.ends().filter_map(|end| (end as usize).checked_sub(1)) {
            match reached.get_mut(end) {
                Some(reached) => *reached = true,
                None => goes_on |= end == part.len(),
            }
        }
        if !goes_on {
            break;
        }
    }
    reached
}

/// The number of a packet that a program does not decide about.
const UNUSUAL: u16 = u16::MAX;

/// Numbers packets by the rules of one program, of which there are `rules`. True if there is one that is not usual.
#[inline]
fn pass(program: &Program, packets: &[Packet], numbers: &mut [u16], rules: usize) -> bool {
    program.first(packets, numbers);
    let mut is_unusual = false;
    for number in numbers {
        // The guard is the first filter, and one that matches everything the last.
        let is_one = usize::from(*number) > rules + 1;
        *number = if is_one { UNUSUAL } else { number.wrapping_sub(1) };
        is_unusual |= is_one;
    }
    is_unusual
}

/// Decides about packets that match no rule of the first program by the others.
fn decide_more(parts: &[(Program, Plan)], packets: &[Packet], numbers: &mut [u16], rules: usize) -> bool {
    let mut more = [0; CAPACITY];
    let more = &mut more[..packets.len()];
    let mut is_unusual = false;
    for (index, (program, _)) in parts.iter().enumerate() {
        let before = RULES_IN_ONE_PASS * (index + 1);
        if !numbers.iter().any(|&number| usize::from(number) == before) {
            break;
        }
        is_unusual |= pass(program, packets, more, (rules - before).min(RULES_IN_ONE_PASS));
        for (number, &more) in numbers.iter_mut().zip(&*more) {
            if usize::from(*number) == before {
                *number = if more == UNUSUAL { UNUSUAL } else { before as u16 + more };
            }
        }
    }
    is_unusual
}

/// Looks up hosts once, although an expression is compiled several times.
struct Once<'n> {
    names: &'n dyn Names,
    hosts: RefCell<HashMap<String, Vec<IpAddr>>>,
}

impl Names for Once<'_> {
    fn host(&self, name: &str) -> Vec<IpAddr> {
        self.hosts.borrow_mut().entry(name.to_owned()).or_insert_with(|| self.names.host(name)).clone()
    }

    fn port(&self, name: &str, transport: Transport) -> Option<u16> {
        self.names.port(name, transport)
    }

    fn protocol(&self, name: &str) -> Option<u8> {
        self.names.protocol(name)
    }

    fn network(&self, name: &str) -> Option<u32> {
        self.names.network(name)
    }

    fn ethernet(&self, name: &str) -> Option<[u8; 6]> {
        self.names.ethernet(name)
    }
}
