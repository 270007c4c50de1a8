//! Relations between numbers that are computed from bytes of the packet.

use std::ops::Range;

use super::fragment::Fragment;
use super::layout::{Base, Position};
use super::numbers::ip_protocol;
use super::{Generator, Made};
use crate::classic::ops::Ops;
use crate::classic::{Op, Right};
use crate::graph::{ComparisonOperator, Operation, Width};
use crate::mistake::Mistake;
use crate::options::Reading;
use crate::syntax::{Arithmetic, ByteOperation, Element, Protocol, Relation};

/// A number that is computed at run time.
pub(super) struct Computed {
    pub(super) ops: Ops,
    /// What must match before it can be computed.
    pub(super) condition: Option<Fragment>,
    pub(super) word: u8,
}

impl Generator<'_> {
    pub(super) fn arithmetic(&mut self, arithmetic: &Arithmetic) -> Made<Computed> {
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
        let condition = match (left.condition, right.condition) {
            (Some(left), Some(right)) if self.reading.is_of_access_list() => Some(self.and(left, right)),
            (None, right) if self.reading.is_of_access_list() => right,
            // As in libpcap, only what the left operand needs is tested.
            (left, _) => left,
        };
        Ok(Computed { ops, condition, word })
    }

    fn packet_load(&mut self, protocol: Protocol, offset: Computed, size: u32, place: &Range<usize>) -> Made<Computed> {
        if let Some(places) = self.reading.places() {
            return self.access_load(&places, protocol, offset, size, place);
        }
        let word = self.take_word()?;
        self.free_word(offset.word);
        let width = load_width(size, place)?;
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
            _ => return Err(no_loads(protocol, place)),
        };
        ops.push(Op::Store(word));
        Ok(Computed { ops, condition, word })
    }

    pub(super) fn relation(&mut self, left: &Arithmetic, relation: Relation, right: &Arithmetic) -> Made<Fragment> {
        if self.reading.is_of_access_list()
            && (super::access::loads_of_both(left) || super::access::loads_of_both(right))
        {
            let four = self.relation_of(left, relation, right)?;
            self.is_over_ipv6 = true;
            let six = self.relation_of(left, relation, right);
            self.is_over_ipv6 = false;
            let six = six?;
            return Ok(self.or(four, six));
        }
        self.relation_of(left, relation, right)
    }

    fn relation_of(&mut self, left: &Arithmetic, relation: Relation, right: &Arithmetic) -> Made<Fragment> {
        let left = self.arithmetic(left)?;
        let right = self.arithmetic(right)?;
        let mut ops = left.ops;
        ops.extend(right.ops.iter().copied());
        ops.extend([Op::IndexMemory(right.word), Op::LoadMemory(left.word)]);
        let (comparison, is_negated) = match relation {
            Relation::Equal => (ComparisonOperator::Equal, false),
            Relation::NotEqual => (ComparisonOperator::Equal, true),
            Relation::Greater => (ComparisonOperator::Greater, false),
            Relation::LessOrEqual => (ComparisonOperator::Greater, true),
            Relation::GreaterOrEqual => (ComparisonOperator::GreaterOrEqual, false),
            Relation::Less => (ComparisonOperator::GreaterOrEqual, true),
        };
        let mut test = if comparison == ComparisonOperator::Equal {
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

    pub(super) fn byte(&mut self, offset: u32, operation: ByteOperation, value: u32) -> Fragment {
        let combined = |this: &mut Self, operation| {
            // As in libpcap, which does not load the byte but takes what the accumulator has from before.
            let mut ops = match this.reading {
                Reading::Libpcap => Ops::default(),
                Reading::Usual | Reading::LaidOut => this.load(Base::LinkHeader, offset, Width::Byte),
            };
            ops.push(Op::Constant(operation, value));
            this.test(ops, ComparisonOperator::Equal, Right::Constant(0)).negated()
        };
        match operation {
            ByteOperation::Equal => self.equal(Base::LinkHeader, offset, Width::Byte, value),
            ByteOperation::Less => {
                self.compare(Base::LinkHeader, offset, Width::Byte, ComparisonOperator::GreaterOrEqual, value).negated()
            }
            ByteOperation::Greater => {
                self.compare(Base::LinkHeader, offset, Width::Byte, ComparisonOperator::Greater, value)
            }
            ByteOperation::And => combined(self, Operation::And),
            ByteOperation::Or => combined(self, Operation::Or),
        }
    }
}

/// How many bytes a load of this size has.
pub(super) fn load_width(size: u32, place: &Range<usize>) -> Made<Width> {
    match size {
        1 => Ok(Width::Byte),
        2 => Ok(Width::Half),
        4 => Ok(Width::Word),
        _ => Err(Mistake::new(
            place.clone(),
            format!("{size} bytes cannot be loaded at once"),
            "the number of bytes is 1, 2 or 4",
        )),
    }
}

pub(super) fn no_loads(protocol: Protocol, place: &Range<usize>) -> Mistake {
    Mistake::new(
        place.clone(),
        format!("bytes of `{protocol}` cannot be loaded"),
        "count from the start of the packet, `ether[…]`, or of a header that can: `ip[…]`, `tcp[…]`",
    )
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
