//! The verdict on a packet of which parts are unknown: that which it has whatever they are.

use super::values::{Interval, Value, ValueId};
use super::{NO_MATCH, Plan, Step, To};
use crate::graph::{ComparisonOperator, Operation, Width};

/// A number of which some bits are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    /// The known bits; the others are 0.
    pub(crate) value: u32,
    /// Which are known.
    pub(crate) known: u32,
}

impl Bits {
    pub(crate) const UNKNOWN: Bits = Bits { value: 0, known: 0 };

    pub(crate) fn of(value: u32) -> Bits {
        Bits { value, known: u32::MAX }
    }

    fn number(self) -> Option<u32> {
        (self.known == u32::MAX).then_some(self.value)
    }

    /// Its least and its greatest number.
    fn range(self) -> (u32, u32) {
        (self.value, self.value | !self.known)
    }

    /// Whether it is in a set, if that is known.
    fn is_in(self, set: &[Interval]) -> Option<bool> {
        let (least, most) = self.range();
        let first = set.partition_point(|&(_, high)| high < least);
        let reached: &[Interval] = &set[first..];
        let reached = &reached[..reached.partition_point(|&(low, _)| low <= most)];
        match reached {
            [(low, high)] if *low <= least && most <= *high => Some(true),
            _ if reached.iter().all(|&(low, high)| low == high && (low ^ self.value) & self.known != 0) => Some(false),
            _ => None,
        }
    }

    fn operation(operation: Operation, left: Bits, right: Bits) -> Bits {
        if let (Some(left), Some(right)) = (left.number(), right.number()) {
            return operation.apply(left, right).map_or(Bits::UNKNOWN, Bits::of);
        }
        let set = |bits: Bits| bits.known & bits.value;
        let clear = |bits: Bits| bits.known & !bits.value;
        let of = |set: u32, clear: u32| Bits { value: set, known: set | clear };
        match (operation, right.number()) {
            (Operation::And, _) => of(set(left) & set(right), clear(left) | clear(right)),
            (Operation::Or, _) => of(set(left) | set(right), clear(left) & clear(right)),
            (Operation::Xor, _) => {
                let known = left.known & right.known;
                Bits { value: (left.value ^ right.value) & known, known }
            }
            (Operation::ShiftLeft, Some(by @ 0..32)) => {
                Bits { value: left.value << by, known: left.known << by | !(u32::MAX << by) }
            }
            (Operation::ShiftRight, Some(by @ 0..32)) => {
                Bits { value: left.value >> by, known: left.known >> by | !(u32::MAX >> by) }
            }
            _ => Bits::UNKNOWN,
        }
    }

    fn compare(comparison: ComparisonOperator, left: Bits, right: Bits) -> Option<bool> {
        if let (Some(left), Some(right)) = (left.number(), right.number()) {
            return Some(comparison.holds(left, right));
        }
        let ((left_least, left_most), (right_least, right_most)) = (left.range(), right.range());
        match comparison {
            ComparisonOperator::Equal => ((left.value ^ right.value) & left.known & right.known != 0).then_some(false),
            ComparisonOperator::AnyBit if left.value & right.value != 0 => Some(true),
            ComparisonOperator::AnyBit => (left_most & right_most == 0).then_some(false),
            ComparisonOperator::Greater if left_least > right_most => Some(true),
            ComparisonOperator::Greater => (left_most <= right_least).then_some(false),
            ComparisonOperator::GreaterOrEqual if left_least >= right_most => Some(true),
            ComparisonOperator::GreaterOrEqual => (left_most < right_least).then_some(false),
        }
    }
}

/// A packet of which parts are unknown.
pub(crate) trait Presented {
    /// A byte, if it is known.
    fn byte(&self, at: u32) -> Option<u8>;

    /// The length on the wire.
    fn wire_length(&self) -> u32;
}

/// Memory for decisions.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Where to go on, each with its variables behind those of the one before.
    todo: Vec<To>,
    saved: Vec<Bits>,
    variables: Vec<Bits>,
    moved: Vec<Bits>,
}

/// How many steps a decision takes at most.
const MAX_STEPS: usize = 1 << 14;

impl Plan {
    /// The verdict of a [guarded](Plan::guarded) plan, if it is the same whatever the unknown parts are. Every place has
    /// bytes, so that none is missing.
    pub(crate) fn only_possible(&self, packet: &impl Presented, scratch: &mut Scratch) -> Option<u32> {
        let Scratch { todo, saved, variables, .. } = scratch;
        todo.clear();
        saved.clear();
        variables.clear();
        variables.resize(self.variables, Bits::UNKNOWN);
        let (mut to, mut found) = (self.entry, None);
        for _ in 0..MAX_STEPS {
            let step = match to {
                To::Step(step) => &self.steps[step as usize],
                To::End(NO_MATCH) => return None,
                To::End(verdict) => {
                    if *found.get_or_insert(verdict) != verdict {
                        return None;
                    }
                    let Some(next) = scratch.todo.pop() else { return found };
                    to = next;
                    let rest = scratch.saved.len() - self.variables;
                    scratch.variables.clear();
                    scratch.variables.extend(scratch.saved.drain(rest..));
                    continue;
                }
            };
            let value = |value| self.bits(value, packet, &scratch.variables);
            let (outcome, yes, no) = match step {
                Step::Member { value: of, set, yes, no } => (value(*of).is_in(&self.sets[*set as usize]), *yes, *no),
                Step::Compare { comparison, left, right, yes, no } => {
                    (Bits::compare(*comparison, value(*left), value(*right)), *yes, *no)
                }
                Step::Tuple { tuples, yes, no } => {
                    let tuples = &self.tuples[*tuples as usize];
                    let is_known = tuples.signature.iter().all(|&(of, mask)| value(of).known & mask == mask);
                    let fits = |words: &[u32]| {
                        let mut both = tuples.signature.iter().zip(words);
                        both.all(|(&(of, mask), word)| {
                            let Bits { value, known } = value(of);
                            (value ^ word) & mask & known == 0
                        })
                    };
                    let is_possible = tuples.words.iter().any(|words| fits(words));
                    ((is_known || !is_possible).then_some(is_possible), *yes, *no)
                }
                Step::Assign { moves, next } => {
                    scratch.moved.clear();
                    let Scratch { moved, variables, .. } = &mut *scratch;
                    moved.extend(moves.iter().map(|(_, of)| self.bits(*of, packet, variables)));
                    for ((variable, _), bits) in moves.iter().zip(&*moved) {
                        variables[*variable as usize] = *bits;
                    }
                    to = *next;
                    continue;
                }
                // Expressions of access lists have no loops, and one verdict.
                Step::Again { .. } | Step::Note { .. } => return None,
            };
            to = match outcome {
                Some(true) => yes,
                Some(false) => no,
                None => {
                    scratch.todo.push(no);
                    scratch.saved.extend_from_slice(&scratch.variables);
                    yes
                }
            };
        }
        None
    }

    /// The verdicts that some packet may have.
    pub(crate) fn ends(&self) -> impl Iterator<Item = u32> {
        let ends = |step: &Step| match step {
            Step::Member { yes, no, .. } | Step::Compare { yes, no, .. } | Step::Tuple { yes, no, .. } => [*yes, *no],
            Step::Again { next, exhausted, .. } => [*next, *exhausted],
            Step::Assign { next, .. } | Step::Note { next, .. } => [*next; 2],
        };
        let all = self.steps.iter().flat_map(ends).chain([self.entry]);
        all.filter_map(|to| if let To::End(verdict) = to { Some(verdict) } else { None })
    }

    fn bits(&self, value: ValueId, packet: &impl Presented, variables: &[Bits]) -> Bits {
        let of = |value| self.bits(value, packet, variables);
        match self.values.get(value) {
            Value::Constant(number) => Bits::of(number),
            Value::Load { width, base, offset } => {
                let base = base.map_or(Some(0), |base| of(base).number());
                base.and_then(|base| base.checked_add(offset)).map_or(Bits::UNKNOWN, |at| load(packet, width, at))
            }
            Value::WireLength => Bits::of(packet.wire_length()),
            Value::Room(_) => Bits::of(u32::MAX),
            Value::Binary { operation, left, right } => Bits::operation(operation, of(left), of(right)),
            Value::Variable(variable) => variables[variable as usize],
        }
    }
}

fn load(packet: &impl Presented, width: Width, at: u32) -> Bits {
    (0..width.bytes()).fold(
        Bits { value: 0, known: !u32::MAX.checked_shr(32 - 8 * width.bytes()).unwrap_or(0) },
        |bits, index| {
            let byte = at.checked_add(index).and_then(|at| packet.byte(at));
            // What is above the bytes is 0.
            let (value, known) = byte.map_or((0, 0), |byte| (u32::from(byte), 0xff));
            let place = 8 * (width.bytes() - 1 - index);
            Bits { value: bits.value | value << place, known: bits.known | known << place }
        },
    )
}
