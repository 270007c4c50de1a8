//! The last tests of a path at once, without a branch: a mix of packets that match and of others then costs no
//! mispredicted branches.
//!
//! Each test becomes a number that is 0 if the test holds: the bits in which bytes differ from what they should be,
//! or the negated outcome of a comparison. If both of two tests must hold, their numbers are joined by "or". If one
//! of them is enough, they are multiplied, as long as the product has room in 64 bits.

use bellows_codemem::assembler::{Instruction, Written};
use iced_x86::Register::{self, EAX, EBP, R11D, RAX, RBP, RDX};
use iced_x86::{Code as Op, MemoryOperand};

use super::HANDLE_LENGTH_MASK;
use super::machine::{immediate, load_raw, raw};
use super::writer::{MAX_FLAT, Writer};
use crate::graph::{Operation, Width};
use crate::plan::values::{Value, ValueId};
use crate::plan::{NO_MATCH, Step, To};

/// Bytes that one difference covers, at most.
const SPAN: usize = 8;

/// The last tests of a path.
pub(super) struct Chain {
    /// Tests of the room, which come first: where one does not hold, the packet is left to other code.
    rooms: Vec<usize>,
    links: Vec<ChainLink>,
    /// The verdict if the tests hold.
    verdict: u32,
}

/// A test, and how it is joined to those behind it.
#[derive(Clone, Copy)]
struct ChainLink {
    step: usize,
    /// Whether the test must not hold.
    is_negated: bool,
    /// Whether it is enough that this test holds, or those behind it.
    is_or: bool,
}

/// Bytes of the packet that are compared with a number, in the order of the packet.
#[derive(Clone, Copy)]
struct Bytes {
    base: Option<ValueId>,
    offset: u32,
    width: Width,
    /// The bits that matter, and what they must be.
    mask: u32,
    number: u32,
}

/// All bits of a width.
fn all(width: Width) -> u32 {
    u32::MAX >> (32 - 8 * width.bytes())
}

impl Writer<'_> {
    /// The tests from a step on, if each has an outcome that ends the path, and if they are few.
    pub(super) fn chain(&self, first: usize) -> Option<Chain> {
        let (mut rooms, mut tests) = (Vec::new(), Vec::new());
        let mut bases: Vec<ValueId> = Vec::new();
        let mut step = first;
        loop {
            let (yes, no) = match &self.plan.steps[step] {
                Step::Member { value, set, yes, no } => {
                    if let Value::Room(base) = self.plan.values.get(*value) {
                        // A base that no test has looked at may be anything: the packet would often be too short.
                        let is_usual = match base {
                            Some(base) => bases.contains(&base),
                            None => self.plan.sets[*set as usize].iter().all(|&(need, _)| need <= 60),
                        };
                        let To::Step(next) = self.resolve(*yes) else { return None };
                        if !is_usual {
                            return None;
                        }
                        rooms.push(step);
                        step = next as usize;
                        continue;
                    }
                    if let Value::Load { base: Some(base), .. } = self.plan.values.get(*value) {
                        bases.push(base);
                    }
                    (self.resolve(*yes), self.resolve(*no))
                }
                Step::Compare { yes, no, .. } => (self.resolve(*yes), self.resolve(*no)),
                _ => return None,
            };
            tests.push((step, yes, no));
            if tests.len() > MAX_FLAT {
                return None;
            }
            match (yes, no) {
                (To::End(_), To::End(_)) if yes != no => break,
                (To::Step(next), To::End(_)) | (To::End(_), To::Step(next)) => step = next as usize,
                _ => return None,
            }
        }
        // Tests that need not be negated can be differences.
        [0, NO_MATCH]
            .into_iter()
            .map(|verdict| links(&tests, verdict))
            .zip([0, NO_MATCH])
            .min_by_key(|(links, _)| {
                links.iter().filter(|link| link.is_negated || !self.is_difference(link.step)).count()
            })
            .map(|(links, verdict)| Chain { rooms, links, verdict })
    }

    /// Writes a chain, and the end of its path.
    pub(super) fn write_chain(&mut self, chain: &Chain) -> Written {
        for &step in &chain.rooms {
            self.require_room(step)?;
        }
        let links = &chain.links[..];
        if let &[only] = links
            && !self.is_difference(only.step)
        {
            let flags = self.condition(only.step)?;
            let flags = if only.is_negated { flags.negated() } else { flags };
            let (yes, no) = if chain.verdict == NO_MATCH { (NO_MATCH, 0) } else { (0, NO_MATCH) };
            return self.verdict(flags, false, false, To::End(yes), To::End(no));
        }
        // From the last one to the first one, each is joined to those behind it.
        let mut end = links.len();
        let mut bits = 0;
        while end > 0 {
            let (start, bytes) = self.joined(links, end);
            let is_last = end == links.len();
            let to = if is_last { EBP } else { EAX };
            let width = match bytes {
                Some(span) => self.span_difference(&span, to)?,
                None => self.link_difference(links[start], to)?,
            };
            if is_last {
                bits = width;
            } else if !links[end - 1].is_or {
                self.code().registers(Op::Or_r64_rm64, RBP, RAX)?;
                bits = bits.max(width);
            } else {
                if bits + width > 64 {
                    // 0 stays 0, and everything else becomes 1.
                    self.code().put(Instruction::with2(Op::Cmp_rm64_imm8, RBP, 1)?)?;
                    self.code().registers(Op::Sbb_r32_rm32, EBP, EBP)?;
                    self.code().register(Op::Inc_rm32, EBP)?;
                    bits = 1;
                }
                self.code().registers(Op::Imul_r64_rm64, RBP, RAX)?;
                bits += width;
            }
            end = start;
        }
        // The carry says whether the packet matches.
        if chain.verdict == NO_MATCH {
            self.code().register(Op::Neg_rm64, RBP)?;
        } else {
            self.code().put(Instruction::with2(Op::Cmp_rm64_imm8, RBP, 1)?)?;
        }
        self.end_path()
    }

    /// Whether a test is one of equality, whose difference needs no flags.
    fn is_difference(&self, step: usize) -> bool {
        let Step::Member { value, set, .. } = self.plan.steps[step] else { return false };
        self.bytes(step).is_some() || self.pair(value, set).is_some()
    }

    /// What a test compares bytes of the packet with.
    fn bytes(&self, step: usize) -> Option<Bytes> {
        let Step::Member { value, set, .. } = self.plan.steps[step] else { return None };
        let [(low, high)] = self.plan.sets[set as usize][..] else { return None };
        let (load, mask) = match self.plan.values.get(value) {
            Value::Binary { operation: Operation::And, left, right } if !self.cached.contains_key(&value) => {
                (left, self.plan.values.number(right)?)
            }
            _ => (value, u32::MAX),
        };
        let Value::Load { width, base, offset } = self.plan.values.get(load) else { return None };
        let max = self.plan.values.max(load);
        // Numbers of which the first bits are the same are those between one with only 0 behind, and one with only 1.
        let unseen = high.min(max & mask).checked_sub(low)?;
        let is_block = unseen & unseen.wrapping_add(1) == 0 && low & unseen == 0;
        if !is_block || unseen != 0 && load != value || low & !mask != 0 {
            return None;
        }
        let is_held = self.cached.get(&load).is_some_and(|cached| !cached.is_raw);
        let is_far = base.is_none() && offset >= HANDLE_LENGTH_MASK;
        let mask = mask & max & !unseen;
        (!is_held && !is_far && mask != 0).then_some(Bytes {
            base,
            offset,
            width,
            mask: raw(width, mask),
            number: raw(width, low),
        })
    }

    /// The links before `end` that are one difference: where they start, and the bytes if there are several.
    fn joined(&self, links: &[ChainLink], end: usize) -> (usize, Option<Span>) {
        let mut start = end - 1;
        // A test that is enough with those behind it is an alternative, which is not part of what is before it.
        if links[start].is_or && end < links.len() {
            return (start, None);
        }
        let Some(mut span) = self.span_of(links[start]) else { return (start, None) };
        while start > 0 && !links[start - 1].is_or {
            let Some(joined) = self.span_of(links[start - 1]).and_then(|other| span.join(&other)) else { break };
            if !joined.is_loadable(self.known_room()) {
                break;
            }
            span = joined;
            start -= 1;
        }
        (start, (end - start > 1).then_some(span))
    }

    fn span_of(&self, link: ChainLink) -> Option<Span> {
        let bytes = self.bytes(link.step).filter(|bytes| bytes.base.is_none() && !link.is_negated)?;
        let is_cached = |value: ValueId| self.cached.contains_key(&value);
        let Step::Member { value, .. } = self.plan.steps[link.step] else { return None };
        let mut span = Span { start: bytes.offset, length: bytes.width.bytes() as usize, ..Span::default() };
        span.masks[..4].copy_from_slice(&bytes.mask.to_le_bytes());
        span.numbers[..4].copy_from_slice(&bytes.number.to_le_bytes());
        (!is_cached(value)).then_some(span)
    }

    /// Computes the difference of bytes that several tests compare.
    fn span_difference(&mut self, span: &Span, to: Register) -> Result<u32, Box<dyn std::error::Error>> {
        let place = |offset: u32| MemoryOperand::with_base_displ(RDX, i64::from(offset));
        let end = span.start + span.length as u32;
        if span.length <= 4 {
            let start = end.saturating_sub(4);
            let (mask, number) = span.word(start, span.start);
            self.code().load(Op::Mov_r32_rm32, to, place(start))?;
            self.keep(to, mask, number)?;
            return Ok(32);
        }
        let (first, last) = (span.start, end - 4);
        let whole = (0..span.length).all(|at| span.masks[at] == u8::MAX);
        let of_all = |number| whole && span.numbers[..span.length].iter().all(|&byte| byte == number);
        self.code().load(Op::Mov_r32_rm32, to, place(first))?;
        if of_all(0) {
            self.code().load(Op::Or_r32_rm32, to, place(last))?;
        } else if of_all(u8::MAX) {
            self.code().load(Op::And_r32_rm32, to, place(last))?;
            self.code().register(Op::Not_rm32, to)?;
        } else {
            let (mask, number) = span.word(first, span.start);
            self.keep(to, mask, number)?;
            let (mask, number) = span.word(last, span.start);
            self.code().load(Op::Mov_r32_rm32, R11D, place(last))?;
            self.keep(R11D, mask, number)?;
            self.code().registers(Op::Or_r32_rm32, to, R11D)?;
        }
        Ok(32)
    }

    /// Leaves the bits in which a register differs from a number, of those in the mask.
    fn keep(&mut self, register: Register, mask: u32, number: u32) -> Written {
        if mask != u32::MAX {
            self.code().put(immediate(Op::And_rm32_imm32, register, mask)?)?;
        }
        if number == u32::MAX {
            return self.code().register(Op::Not_rm32, register);
        }
        if number == 0 { Ok(()) } else { self.code().put(immediate(Op::Xor_rm32_imm32, register, number)?) }
    }

    /// Computes a number that is 0 if a test holds. `rax`, `r8`, `r11` and `rsi` may change. Returns its bits, at most.
    fn link_difference(&mut self, link: ChainLink, to: Register) -> Result<u32, Box<dyn std::error::Error>> {
        let ChainLink { step, is_negated, .. } = link;
        if let (Some(bytes), false) = (self.bytes(step), is_negated) {
            return self.bytes_difference(step, bytes, to);
        }
        if let Step::Member { value, set, .. } = self.plan.steps[step]
            && let (Some(numbers), false) = (self.pair(value, set), is_negated)
        {
            self.pair_product(value, numbers)?;
            if to != EAX {
                self.code().registers(Op::Mov_r32_rm32, to, EAX)?;
            }
            return Ok(32);
        }
        let flags = self.condition(step)?;
        self.set(if is_negated { flags } else { flags.negated() }, to)?;
        Ok(1)
    }

    fn bytes_difference(&mut self, step: usize, bytes: Bytes, to: Register) -> Result<u32, Box<dyn std::error::Error>> {
        let Bytes { base, offset, width, mask, number } = bytes;
        let Step::Member { value, .. } = self.plan.steps[step] else { return Ok(0) };
        let load = match self.plan.values.get(value) {
            Value::Binary { left, .. } => left,
            _ => value,
        };
        let mut whole = all(width);
        if self.cached.contains_key(&load) {
            let register = self.operand(load, 0)?;
            self.code().registers(Op::Mov_r32_rm32, to, register)?;
        } else {
            // The first bytes alone, if no others matter.
            let narrow = [Width::Byte, Width::Half].into_iter().find(|&narrow| mask & !all(narrow) == 0);
            let width = narrow.unwrap_or(width);
            let from = self.place(base, offset, 0)?;
            self.code().load(load_raw(width), to, from)?;
            whole = all(width);
        }
        if mask != whole {
            self.code().put(immediate(Op::And_rm32_imm32, to, mask)?)?;
        }
        if number != 0 {
            self.code().put(immediate(Op::Xor_rm32_imm32, to, number)?)?;
        }
        Ok(32 - whole.leading_zeros())
    }

    fn known_room(&self) -> u32 {
        self.groups.as_ref().map_or(0, |groups| groups.room)
    }
}

/// How tests are joined so that they hold where the path ends with this verdict.
fn links(tests: &[(usize, To, To)], verdict: u32) -> Vec<ChainLink> {
    let link = |&(step, yes, no): &(usize, To, To)| match (yes, no) {
        (To::End(end), To::Step(_)) => ChainLink { step, is_negated: end != verdict, is_or: end == verdict },
        (_, To::End(end)) if yes != To::End(verdict) => {
            ChainLink { step, is_negated: end == verdict, is_or: end == verdict }
        }
        _ => ChainLink { step, is_negated: false, is_or: false },
    };
    tests.iter().map(link).collect()
}

/// Bytes at a fixed place that several tests compare.
#[derive(Clone, Copy, Default)]
struct Span {
    start: u32,
    length: usize,
    masks: [u8; SPAN],
    numbers: [u8; SPAN],
}

impl Span {
    /// The bytes of both, unless they are too far from each other, or both compare one.
    fn join(&self, other: &Span) -> Option<Span> {
        let start = self.start.min(other.start);
        let end = (self.start as usize + self.length).max(other.start as usize + other.length);
        let length = end - start as usize;
        if length > SPAN {
            return None;
        }
        let mut joined = Span { start, length, ..Span::default() };
        for span in [self, other] {
            let at = (span.start - start) as usize;
            for byte in 0..span.length {
                if joined.masks[at + byte] & span.masks[byte] != 0 {
                    return None;
                }
                joined.masks[at + byte] |= span.masks[byte];
                joined.numbers[at + byte] |= span.numbers[byte];
            }
        }
        Some(joined)
    }

    /// Whether the bytes can be loaded as words, without any that the packet need not have.
    fn is_loadable(&self, room: u32) -> bool {
        self.length >= 4 || self.start as usize + self.length >= 4 || room >= 4
    }

    /// The mask and the number of the word at an offset, for bytes from `start` on.
    fn word(&self, offset: u32, start: u32) -> (u32, u32) {
        let byte = |bytes: &[u8; SPAN], at: usize| {
            let index = (offset as usize + at).checked_sub(start as usize);
            index.filter(|&index| index < self.length).map_or(0, |index| bytes[index])
        };
        let word = |bytes| u32::from_le_bytes(std::array::from_fn(|at| byte(bytes, at)));
        (word(&self.masks), word(&self.numbers))
    }
}
