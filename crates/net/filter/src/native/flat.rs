//! Tests of one packet at once, in the loop over single packets: like `chains`, with tests of the room in between.

use bellows_codemem::assembler::{Instruction, Label, Written};
use iced_x86::Code as Op;
use iced_x86::Register::{self, EAX, EBP, R8, R8D, R9D, R15D, RBP};

use super::HANDLE_LENGTH_MASK;
use super::machine::{Flags, immediate, load_raw, low_byte, raw};
use super::writer::{MAX_FLAT, Writer};
use crate::graph::{Operation, Width};
use crate::plan::values::{Value, ValueId};
use crate::plan::{DecisionMode, NO_MATCH, Step, To};

/// A test whose outcome is combined with others.
#[derive(Clone, Copy)]
pub(super) struct Element {
    step: usize,
    /// Whether the test must be negated.
    is_negated: bool,
    kind: ElementKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ElementKind {
    /// All that follows is only asked if it holds.
    And,
    /// It is enough.
    Or,
    /// A test of the room, which is a branch.
    Room,
    /// The last one.
    Last,
}

/// What a test compares bytes at a fixed place with: their offset and width, the bits that matter, what these must be.
type PartOfWord = (u32, Width, u32, u32);

/// Whether two tests want different values of a bit, so that no packet passes both.
fn contradict(one: &PartOfWord, other: &PartOfWord) -> bool {
    let start = one.0.min(other.0);
    let placed = |at: u32, width: Width, bits: u32| u64::from(raw(width, bits)) << (8 * (at - start));
    let [(mask, number), (other_mask, other_number)] =
        [one, other].map(|&(at, width, mask, number)| (placed(at, width, mask), placed(at, width, number)));
    mask & other_mask & (number ^ other_number) != 0
}

impl Writer<'_> {
    /// Two or more tests from this step on that compare bytes of one word of the packet with numbers, as one test: the
    /// word's offset, its bits that matter and what they must be, in the order of the packet's bytes; and where to go.
    pub(super) fn masked(&self, current: usize) -> Option<(u32, u32, u32, To, To)> {
        let (mut first, mut parts) = (None, Vec::new());
        let mut step = current;
        let (mut start, mut end) = (u32::MAX, 0u32);
        let (yes, no) = loop {
            let Some(&Step::Member { value, set, yes, no }) = self.plan.steps.get(step) else { return None };
            let part = self.part_of_word(value, set).filter(|_| *first.get_or_insert(no) == no);
            let (offset, width, mask, number) = part?;
            (start, end) = (start.min(offset), end.max(offset + width.bytes()));
            parts.push((offset, width, mask, number));
            let To::Step(next) = self.resolve(yes) else { break (yes, no) };
            // Nothing else leads there, now or later: jumps go to later steps.
            let is_joined = !self.body.is_needed[next as usize]
                && matches!(self.plan.steps[next as usize], Step::Member { value, set, no: other, .. } if other == no
                && self.part_of_word(value, set).is_some_and(|part @ (offset, width, ..)| {
                    end.max(offset + width.bytes()) - start.min(offset) <= 4
                        && !parts.iter().any(|before| contradict(before, &part))
                }));
            if !is_joined {
                break (yes, no);
            }
            step = next as usize;
        };
        // The word ends with the last of the bytes, since none behind them need be there.
        let offset = end.checked_sub(4).filter(|_| parts.len() > 1)?;
        let in_word = |at: u32, width: Width, bits: u32| raw(width, bits) << (8 * (at - offset));
        let join = |joined, number| joined | number;
        let mask = parts.iter().map(|&(at, width, mask, _)| in_word(at, width, mask)).fold(0, join);
        let number = parts.iter().map(|&(at, width, _, number)| in_word(at, width, number)).fold(0, join);
        Some((offset, mask, number, yes, no))
    }

    /// What a test compares bytes at a fixed place with, if they are in no register: their place, the bits that matter and
    /// what these must be.
    fn part_of_word(&self, value: ValueId, set: u32) -> Option<PartOfWord> {
        let [(number, high)] = self.plan.sets[set as usize][..] else { return None };
        let (load, mask) = match self.plan.values.get(value) {
            Value::Binary { operation: Operation::And, left, right } => (left, self.plan.values.number(right)?),
            _ => (value, u32::MAX),
        };
        let Value::Load { width, base: None, offset } = self.plan.values.get(load) else { return None };
        let mask = mask & self.plan.values.max(load);
        let is_point = number == high.min(mask) && number & !mask == 0 && offset < HANDLE_LENGTH_MASK;
        (is_point && ![value, load].iter().any(|value| self.cached.contains_key(value)))
            .then_some((offset, width, mask, number))
    }

    /// The tests from a step on, if each has an outcome that ends the path, and if they are few.
    pub(super) fn flat(&self, first: usize) -> Option<Vec<Element>> {
        if self.plan.mode == DecisionMode::All {
            return None;
        }
        let mut chain: Vec<(usize, To, To, bool)> = Vec::new();
        let mut step = first;
        loop {
            let (yes, no, is_room) = match &self.plan.steps[step] {
                Step::Member { value, yes, no, .. } => {
                    (*yes, *no, matches!(self.plan.values.get(*value), Value::Room(_)))
                }
                Step::Compare { yes, no, .. } => (*yes, *no, false),
                _ => return None,
            };
            let count = chain.iter().filter(|&&(_, _, _, is_room)| !is_room).count();
            if count + usize::from(!is_room) > MAX_FLAT || (chain.is_empty() && is_room) {
                return None;
            }
            chain.push((step, yes, no, is_room));
            match (yes, no) {
                (To::End(_), To::End(_)) => break,
                (To::Step(next), To::End(_)) | (To::End(_), To::Step(next)) => step = next as usize,
                _ => return None,
            }
        }
        let &(_, matching, other, is_room) = chain.last()?;
        if is_room {
            return None;
        }
        let mut has_or = false;
        let last = chain.len() - 1;
        let element = |(position, &(step, yes, no, is_room)): (usize, &(usize, To, To, bool))| {
            let (kind, is_negated) = if position == last {
                (ElementKind::Last, false)
            } else if no == other && is_room {
                (ElementKind::Room, false)
            } else if is_room {
                return None;
            } else if no == other {
                (ElementKind::And, false)
            } else if yes == other {
                (ElementKind::And, true)
            } else if yes == matching {
                (ElementKind::Or, false)
            } else if no == matching {
                (ElementKind::Or, true)
            } else {
                return None;
            };
            has_or |= kind == ElementKind::Or;
            Some(Element { step, is_negated, kind })
        };
        chain.iter().enumerate().map(element).collect()
    }

    /// Computes the outcomes of all these tests, and combines them.
    pub(super) fn flat_code(&mut self, elements: &[Element]) -> Written {
        let Some(&Element { step: last, .. }) = elements.last() else { return Ok(()) };
        let (Step::Member { yes, no, .. } | Step::Compare { yes, no, .. }) = self.plan.steps[last] else {
            return Ok(());
        };
        let is_product = self.is_product(elements);
        let (mut has_and, mut has_or) = (false, false);
        // Where the outcome is that of the alternatives before: the room for the next one is missing.
        let mut short = Label::default();
        for &Element { step, is_negated, kind } in elements {
            if is_product && kind != ElementKind::Room {
                self.difference(step, kind == ElementKind::Last)?;
                if kind == ElementKind::Last {
                    self.code.put(Instruction::with2(Op::Cmp_rm64_imm8, RBP, 1)?)?;
                    self.verdict(Flags::Below, false, false, yes, no)?;
                }
                has_or = true;
                continue;
            }
            let flags = self.condition(step)?;
            let flags = if is_negated { flags.negated() } else { flags };
            match kind {
                ElementKind::Room if has_or => self.code.jump(flags.negated().jump(), &mut short)?,
                ElementKind::Room => self.jump(flags.negated().jump(), no)?,
                ElementKind::And if !has_and => {
                    self.set_any(flags, R15D)?;
                    has_and = true;
                }
                ElementKind::And => {
                    self.set_any(flags, EAX)?;
                    self.code.registers(Op::And_r32_rm32, R15D, EAX)?;
                }
                ElementKind::Or if !has_or && !has_and => {
                    self.set_any(flags, EBP)?;
                    has_or = true;
                }
                ElementKind::Or => {
                    self.set_any(flags, EAX)?;
                    if has_and {
                        self.code.registers(Op::And_r32_rm32, EAX, R15D)?;
                    }
                    self.code.registers(if has_or { Op::Or_r32_rm32 } else { Op::Mov_r32_rm32 }, EBP, EAX)?;
                    has_or = true;
                }
                ElementKind::Last => self.verdict(flags, has_and, has_or, yes, no)?,
            }
        }
        if elements.iter().skip_while(|element| element.kind != ElementKind::Or).any(|e| e.kind == ElementKind::Room) {
            self.code.place(&mut short);
            self.code.put(Instruction::with2(Op::Cmp_rm64_imm8, RBP, 1)?)?;
            let flags = if is_product { Flags::Below } else { Flags::NotBelow };
            self.verdict(flags, false, false, yes, no)?;
        }
        Ok(())
    }

    /// Whether the tests are two alternatives that each compare bytes of the packet with a number. One holds if the
    /// product of the differences is 0, which needs neither flags nor branches.
    fn is_product(&self, elements: &[Element]) -> bool {
        let tests: Vec<&Element> = elements.iter().filter(|element| element.kind != ElementKind::Room).collect();
        let is_point = |element: &Element| match &self.plan.steps[element.step] {
            Step::Member { value, set, .. } => {
                matches!(self.plan.values.get(*value), Value::Load { .. })
                    && matches!(self.plan.sets[*set as usize][..], [(low, high)] if low == high)
                    && !element.is_negated
            }
            _ => false,
        };
        matches!(tests[..], [first, second] if first.kind == ElementKind::Or && is_point(first) && is_point(second))
    }

    /// Computes the bits in which a value and the only number of its set differ, into `rbp`; or multiplies `rbp` by them.
    fn difference(&mut self, step: usize, is_second: bool) -> Written {
        let plan = self.plan;
        let Step::Member { value, set, .. } = plan.steps[step] else { return Ok(()) };
        let (Value::Load { width, base, offset }, [(number, _)]) =
            (plan.values.get(value), &plan.sets[set as usize][..])
        else {
            return Ok(());
        };
        let to = if is_second { R8D } else { EBP };
        let is_raw = self.cached.get(&value).is_none_or(|cached| cached.is_raw);
        if self.cached.contains_key(&value) {
            let register = self.operand(value, 0)?;
            self.code.registers(Op::Mov_r32_rm32, to, register)?;
        } else {
            let from = self.place(base, offset, 0)?;
            self.code.load(load_raw(width), to, from)?;
        }
        let number = if is_raw { raw(width, *number) } else { *number };
        self.code.put(immediate(Op::Xor_rm32_imm32, to, number)?)?;
        if is_second { self.code.registers(Op::Imul_r64_rm64, RBP, R8) } else { Ok(()) }
    }

    /// Sets a register to 1 or to -1 if the condition holds, and otherwise to 0.
    fn set_any(&mut self, flags: Flags, register: Register) -> Written {
        match flags {
            Flags::Below => self.code.registers(Op::Sbb_r32_rm32, register, register),
            _ => self.set(flags, register),
        }
    }

    /// Sets a register to 1 if the condition holds, and otherwise to 0. All of it, so that it does not depend on what it
    /// held.
    pub(super) fn set(&mut self, flags: Flags, register: Register) -> Written {
        // Unlike `xor`, this leaves the flags.
        self.code.put(immediate(Op::Mov_r32_imm32, register, 0)?)?;
        self.code.register(flags.set(), low_byte(register))
    }

    pub(super) fn verdict(&mut self, flags: Flags, has_and: bool, has_or: bool, yes: To, no: To) -> Written {
        let flags = if has_and || has_or {
            self.set_any(flags, EAX)?;
            if has_and {
                self.code.registers(Op::And_r32_rm32, EAX, R15D)?;
            }
            if has_or {
                self.code.registers(Op::Or_r32_rm32, EAX, EBP)?;
            }
            if yes == To::End(NO_MATCH) {
                self.code.put(immediate(Op::Cmp_rm32_imm32, EAX, 1)?)?;
                Flags::NotBelow
            } else {
                self.code.register(Op::Neg_rm32, EAX)?;
                Flags::Below
            }
        } else {
            flags
        };
        let (To::End(yes), To::End(no)) = (yes, no) else { return Ok(()) };
        if self.is_bits() {
            // The bit is carried into the verdicts.
            match if yes == NO_MATCH { flags.negated() } else { flags } {
                Flags::Below => {}
                Flags::NotBelow => self.code.put(Instruction::with(Op::Cmc))?,
                flags => {
                    self.set(flags, EAX)?;
                    self.code.register(Op::Neg_rm32, EAX)?;
                }
            }
        } else {
            let (yes, no) = (self.number_of(yes), self.number_of(no));
            self.code.put(immediate(Op::Mov_r32_imm32, R9D, no)?)?;
            self.code.put(immediate(Op::Mov_r32_imm32, R8D, yes)?)?;
            let op = match flags {
                Flags::Equal => Op::Cmove_r32_rm32,
                Flags::NotEqual => Op::Cmovne_r32_rm32,
                Flags::Below => Op::Cmovb_r32_rm32,
                Flags::NotBelow => Op::Cmovae_r32_rm32,
                Flags::Above => Op::Cmova_r32_rm32,
                Flags::NotAbove => Op::Cmovbe_r32_rm32,
            };
            self.code.registers(op, R9D, R8D)?;
        }
        self.end_path()
    }
}
