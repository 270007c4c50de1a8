//! Where the headers are, and tests of bytes in them.

use super::Generator;
use super::fragment::Fragment;
use crate::classic::ops::Ops;
use crate::classic::{Op, Right};
use crate::graph::{ComparisonOperator, Operation, Width};
use crate::link::LinkType;

/// What the current link header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkHeader {
    Outer(LinkType),
    /// PPP within PPPoE.
    Ppp,
    /// Perhaps an Ethernet header within Geneve: only at run time it is known whether there is one.
    Geneve,
}

/// A position in the packet: a constant, plus a word of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) constant: u32,
    pub(super) word: Option<u8>,
}

impl Position {
    pub(super) fn at(constant: u32) -> Position {
        Position { constant, word: None }
    }
}

/// Where the headers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeaderLayout {
    pub(super) link: LinkHeader,
    pub(super) link_header: Position,
    /// The field that says what follows. `None` if there is none: what follows is IP.
    pub(super) link_type: Option<Position>,
    pub(super) payload: Position,
    /// The network header, from the start of the payload; and the same after an LLC header without SNAP.
    pub(super) network: u32,
    pub(super) network_after_llc: u32,
    pub(super) mpls_labels: u32,
}

impl HeaderLayout {
    pub(super) fn new(link: LinkType) -> HeaderLayout {
        let (link_type, payload, network_after_llc) = match link {
            LinkType::Ethernet => (Some(12), 14, 3),
            LinkType::Raw | LinkType::Ipv4 | LinkType::Ipv6 => (None, 0, 0),
            LinkType::Cooked => (Some(14), 16, 0),
            LinkType::Cooked2 => (Some(0), 20, 0),
            LinkType::Null | LinkType::Loop => (Some(0), 4, 0),
        };
        HeaderLayout {
            link: LinkHeader::Outer(link),
            link_header: Position::at(0),
            link_type: link_type.map(Position::at),
            payload: Position::at(payload),
            network: 0,
            network_after_llc,
            mpls_labels: 0,
        }
    }

    pub(super) fn is_ethernet(&self) -> bool {
        matches!(self.link, LinkHeader::Outer(LinkType::Ethernet) | LinkHeader::Geneve)
    }
}

/// What an offset counts from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Base {
    LinkHeader,
    LinkType,
    /// The LLC header.
    Llc,
    Network,
    NetworkAfterLlc,
    /// The first byte of the IP header that [`Reading`] lays out for access lists, over IPv4 or IPv6.
    Ip,
    /// What is behind the last test of a label or session: MPLS or PPPoE.
    Shim,
    /// The MPLS label before that.
    Label,
    /// The transport header after an IPv4 header, or after an IPv6 header without extensions.
    Transport4,
    Transport6,
}

impl Generator<'_> {
    fn load_from(&self, position: Position, offset: u32, width: Width) -> Ops {
        let offset = position.constant.wrapping_add(offset);
        match position.word {
            Some(word) => Ops::of(&[Op::IndexMemory(word), Op::LoadIndexed(width, offset)]),
            None => Ops::of(&[Op::Load(width, offset)]),
        }
    }

    /// Loads the length of the IPv4 header, and the variable part of its position, into the index register.
    pub(super) fn index_transport4(&self) -> Ops {
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

    pub(super) fn load(&self, base: Base, offset: u32, width: Width) -> Ops {
        if let Some(places) = self.reading.places() {
            let labels = 4 * self.layout.mpls_labels;
            return Ops::of(&[Op::Load(width, places.of(base, labels).wrapping_add(offset))]);
        }
        let layout = &self.layout;
        let (position, more) = match base {
            Base::LinkHeader => (layout.link_header, 0),
            Base::LinkType => (layout.link_type.unwrap_or(Position::at(u32::MAX)), 0),
            Base::Llc => (layout.payload, 0),
            Base::Network | Base::Ip | Base::Shim => (layout.payload, layout.network),
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

    pub(super) fn compare(
        &mut self,
        base: Base,
        offset: u32,
        width: Width,
        comparison: ComparisonOperator,
        number: u32,
    ) -> Fragment {
        let ops = self.load(base, offset, width);
        self.test(ops, comparison, Right::Constant(number))
    }

    pub(super) fn equal(&mut self, base: Base, offset: u32, width: Width, number: u32) -> Fragment {
        self.compare(base, offset, width, ComparisonOperator::Equal, number)
    }

    pub(super) fn masked(&mut self, base: Base, offset: u32, width: Width, number: u32, mask: u32) -> Fragment {
        let mut ops = self.load(base, offset, width);
        if mask != u32::MAX {
            ops.push(Op::Constant(Operation::And, mask));
        }
        self.test(ops, ComparisonOperator::Equal, Right::Constant(number))
    }

    /// Compares bytes, the last ones first.
    pub(super) fn bytes(&mut self, base: Base, offset: u32, bytes: &[u8]) -> Fragment {
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

    /// Whether a number of two bytes is in one of these intervals. It is loaded once.
    pub(super) fn among(&mut self, base: Base, offset: u32, intervals: &[(u32, u32)]) -> Fragment {
        let mut ops = self.load(base, offset, Width::Half);
        let mut all: Option<Fragment> = None;
        for &(low, high) in intervals {
            let test = if low == high {
                self.test(std::mem::take(&mut ops), ComparisonOperator::Equal, Right::Constant(low))
            } else {
                let least =
                    self.test(std::mem::take(&mut ops), ComparisonOperator::GreaterOrEqual, Right::Constant(low));
                let most = self.test(Ops::default(), ComparisonOperator::Greater, Right::Constant(high)).negated();
                self.and(least, most)
            };
            all = Some(match all {
                Some(before) => self.or(before, test),
                None => test,
            });
        }
        all.unwrap_or_else(|| self.constant(false))
    }
}
