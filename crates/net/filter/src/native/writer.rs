//! Writes the code of a plan.
//!
//! ```text
//! register            holds
//!   rdi               the handle of the packet
//!   rdx, ecx          its first byte, and the number of bytes that were captured
//!   rbx               where the next verdicts go
//!   r9                verdicts: of up to 64 packets, the top bit last; of a group, the lowest bit last;
//!                     or of this packet
//!   r10, r12, r13     values that several tests use
//!   r14               how far ahead packets are prefetched, in bytes of handles: 0 for the last packets
//!   r15, rbp          outcomes of tests that are combined without a branch
//!   rax, r8, r11, rsi scratch
//! ```
//!
//! A load has no bounds check of its own: the plan tests the room before. The last tests of a path, if they are few,
//! are combined without a branch, so that a mix of packets that match and of others costs no mispredicted branches.
//! Headers are prefetched some packets ahead, since a vector is rarely in the first-level cache when it arrives.

use std::error::Error;

use bellows_arena::Fixed;
use bellows_codemem::assembler::{Assembled, Assembler, Instruction, Label, Mark, Written, memory};
use iced_x86::Register::{EAX, ECX, R8D, R9, R9D, R9W, R14, R14D, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP};
use iced_x86::{Code as Op, MemoryOperand, Register};

use super::groups::{Groups, Lane};
use super::machine::{Flags, immediate, indexed};
use super::tables::{Tables, TupleTable};
use super::values::Cached;
use super::{HANDLE_LENGTH_MASK, HANDLE_SIZE, HANDLE_WORD};
use crate::graph::MAX_ROUNDS;
use crate::plan::values::{FastMap, ValueId};
use crate::plan::{DecisionMode, ExpressionPart, NO_MATCH, Plan, Step, To};

/// What a part of the code is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// Loads the arguments, and the packet's place and length.
    Entry,
    /// Decides a part of an expression.
    Test(ExpressionPart),
    /// Stores the verdict, and goes on with the next packet.
    Verdict,
}

/// The code of a plan.
pub(super) struct Function {
    pub bytes: Vec<u8>,
    pub marks: Vec<Mark<Section>>,
    /// The tables that it reads, which must not move.
    pub tables: Fixed<[u32]>,
}

/// How many packets ahead the code prefetches headers.
pub(super) const PREFETCH: usize = 16;

/// The callee-saved registers.
const CALLEE_SAVED: [Register; 6] = [RBX, RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// Tests that are combined without a branch, at most.
pub(super) const MAX_FLAT: usize = 5;

/// Copies of the code behind a verdict, at most.
const MAX_TAILS: usize = 8;

/// Temporary values, at most: a value is made of at most 48.
pub(super) const MAX_TEMPORARIES: usize = 64;

/// Variables, at most.
const MAX_VARIABLES: usize = 256;

/// The error for a plan that is left to the interpreter.
pub(super) fn too_large(what: &str) -> Box<dyn Error> {
    format!("the filter has too many {what} for machine code: split it into several").into()
}

/// The code for one packet.
#[derive(Default)]
pub(super) struct Body {
    /// The starts of steps.
    pub(super) labels: Vec<Label>,
    pub(super) is_needed: Vec<bool>,
    /// The cached values that are in their registers at the start of each step: a bit for each.
    pub(super) available: Vec<u8>,
    pub verdicts: Vec<(u32, Label)>,
    /// The packet's place in its group; `None` in the loop over single packets.
    pub lane: Option<Lane>,
}

impl Body {
    pub fn new(steps: usize, lane: Option<Lane>) -> Body {
        Body {
            labels: (0..steps).map(|_| Label::default()).collect(),
            is_needed: vec![false; steps],
            available: vec![u8::MAX; steps],
            verdicts: Vec::new(),
            lane,
        }
    }
}

pub(super) struct Writer<'a> {
    pub(super) plan: &'a Plan,
    pub(super) code: Assembler<Section>,
    pub(super) tables: Tables,
    pub(super) cached: FastMap<ValueId, Cached>,
    /// The cached values that are in their registers here: a bit for each.
    pub(super) now: u8,
    /// Cached values that depend on variables.
    pub(super) volatile: u8,
    /// What is being written.
    pub(super) body: Body,
    /// The loop over groups of packets, if there is one.
    pub(super) groups: Option<Groups>,
    pub(super) join: Label,
    /// The start of the code for a single packet, and its end behind the last one.
    pub(super) head: Label,
    pub(super) finish: Label,
    /// Where 64 verdicts are stored.
    pub(super) full: Label,
    pub(super) tails: usize,
    /// Places of variables in the stack frame.
    pub(super) variables: FastMap<u32, usize>,
    /// Places of counters of rounds, by filter.
    pub(super) rounds: FastMap<u32, usize>,
    /// Places in the stack frame, before those of temporary values.
    pub(super) slots: usize,
    /// Where the address of a table stands in the code, and its offset from the start of all tables.
    pub(super) addresses: Vec<(usize, usize)>,
    pub(super) tries: FastMap<u32, super::tables::Trie>,
    pub(super) bitmaps: FastMap<(u32, u32), usize>,
    pub(super) short_lists: FastMap<u32, usize>,
    pub(super) tuple_tables: FastMap<u32, TupleTable>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(plan: &'a Plan) -> Writer<'a> {
        let count = plan.steps.len();
        let mut writer = Writer {
            plan,
            // The code can be anywhere: it calls nothing.
            code: Assembler::with_room(0, 2 * count),
            tables: Tables::default(),
            cached: FastMap::default(),
            now: 0,
            volatile: 0,
            body: Body::new(count, None),
            groups: None,
            join: Label::default(),
            head: Label::default(),
            finish: Label::default(),
            full: Label::default(),
            tails: 0,
            variables: FastMap::default(),
            rounds: FastMap::default(),
            slots: 5,
            addresses: Vec::new(),
            tries: FastMap::default(),
            bitmaps: FastMap::default(),
            short_lists: FastMap::default(),
            tuple_tables: FastMap::default(),
        };
        writer.choose_cached();
        for step in &plan.steps {
            match step {
                Step::Assign { moves, .. } => {
                    for (variable, _) in moves {
                        let slots = &mut writer.slots;
                        writer.variables.entry(*variable).or_insert_with(|| {
                            *slots += 1;
                            *slots - 1
                        });
                    }
                }
                Step::Again { filter, next, .. } => {
                    if let To::Step(next) = next {
                        writer.body.is_needed[*next as usize] = true;
                        writer.body.available[*next as usize] = 0;
                    }
                    let slots = &mut writer.slots;
                    writer.rounds.entry(*filter).or_insert_with(|| {
                        *slots += 1;
                        *slots - 1
                    });
                }
                _ => {}
            }
        }
        writer.groups = Groups::of(plan);
        writer
    }

    pub(super) fn code(&mut self) -> &mut Assembler<Section> {
        &mut self.code
    }

    /// Writes everything. Returns the code, and the tables.
    pub(super) fn write(mut self) -> Result<Function, Box<dyn Error>> {
        if self.variables.len() > MAX_VARIABLES {
            return Err(too_large("variables"));
        }
        self.code.mark(Section::Entry);
        self.enter()?;
        if self.groups.is_some() {
            self.write_groups()?;
        }
        self.code.mark(Section::Entry);
        self.code.align(64)?;
        self.code.place(&mut self.head);
        self.begin_packet()?;
        match self.plan.entry {
            To::Step(entry) => {
                self.body.is_needed[entry as usize] = true;
                self.body.available[entry as usize] = 0;
                if entry != 0 {
                    self.goto(self.plan.entry, usize::MAX)?;
                }
            }
            To::End(_) => self.goto(self.plan.entry, usize::MAX)?,
        }
        for step in 0..self.plan.steps.len() {
            if self.body.is_needed[step] {
                self.place_step(step);
                self.now = self.body.available[step];
                self.step(step)?;
            }
        }
        self.code.mark(Section::Verdict);
        self.end_packet()?;
        let Assembled { mut bytes, marks } = self.code.finish()?;
        let tables = self.tables.into_words();
        for (position, offset) in self.addresses {
            let address = tables.as_ptr().addr() + offset;
            bytes[position..position + size_of::<u64>()].copy_from_slice(&(address as u64).to_le_bytes());
        }
        Ok(Function { bytes, marks, tables })
    }

    /// Marks the start of a step.
    pub(super) fn place_step(&mut self, step: usize) {
        self.code.mark(Section::Test(self.plan.parts[step].clone()));
        let label = &mut self.body.labels[step];
        self.code.place(label);
    }

    /// Sets which cached values are in registers at the start of a step: none where paths meet.
    pub(super) fn start_step(&mut self, step: usize, is_join: bool) {
        self.now = if is_join { 0 } else { self.body.available[step] };
    }

    pub(super) fn slot(&self, slot: usize) -> MemoryOperand {
        memory(RSP, slot * 8)
    }

    pub(super) const END: usize = 0;
    const WIRE_POINTER: usize = 1;
    pub(super) const WIRE_LENGTH: usize = 2;
    pub(super) const LAST_END: usize = 3;
    pub(super) const GROUPS_END: usize = 4;

    fn frame(&self) -> u32 {
        ((self.slots + MAX_TEMPORARIES) * 8) as u32
    }

    fn enter(&mut self) -> Written {
        for register in CALLEE_SAVED {
            self.code.register(Op::Push_r64, register)?;
        }
        self.code.put(immediate(Op::Sub_rm64_imm32, RSP, self.frame())?)?;
        self.code.registers(Op::Mov_r64_rm64, RBX, RDX)?;
        self.code.put(Instruction::with2(Op::Shl_rm64_imm8, RSI, HANDLE_SIZE.trailing_zeros())?)?;
        self.code.registers(Op::Add_r64_rm64, RSI, RDI)?;
        self.code.store(Op::Mov_rm64_r64, self.slot(Self::LAST_END), RSI)?;
        if self.groups.is_some() {
            return Ok(());
        }
        // The loop stops where there is nothing left to prefetch, and goes on without.
        let distance = PREFETCH * HANDLE_SIZE;
        self.code.load(Op::Lea_r64_m, RAX, MemoryOperand::with_base_displ(RSI, -(distance as i64)))?;
        self.code.put(immediate(Op::Mov_r32_imm32, R14D, distance as u32)?)?;
        self.code.registers(Op::Xor_r32_rm32, R8D, R8D)?;
        self.code.registers(Op::Cmp_r64_rm64, RAX, RDI)?;
        self.code.registers(Op::Cmovbe_r64_rm64, RAX, RSI)?;
        self.code.registers(Op::Cmovbe_r32_rm32, R14D, R8D)?;
        self.code.store(Op::Mov_rm64_r64, self.slot(Self::END), RAX)?;
        self.code.store(Op::Mov_rm64_r64, self.slot(Self::WIRE_POINTER), RCX)?;
        self.reset_bits()
    }

    /// No verdict yet: a bit that falls out after 64 verdicts.
    pub(super) fn reset_bits(&mut self) -> Written {
        self.code.put(Instruction::with2(Op::Mov_r64_imm64, R9, 1u64 << 63)?)
    }

    /// Leaves only the verdicts in `r9`: up to 63, the first one in the lowest bit. `rcx` changes.
    fn align_bits(&mut self) -> Written {
        self.code.registers(Op::Bsf_r64_rm64, RCX, R9)?;
        self.code.put(Instruction::with2(Op::Shr_rm64_CL, R9, Register::CL)?)?;
        self.code.put(Instruction::with2(Op::Shr_rm64_1, R9, 1)?)
    }

    pub(super) fn is_bits(&self) -> bool {
        self.plan.mode == DecisionMode::First && self.plan.filters == 1
    }

    fn begin_packet(&mut self) -> Written {
        self.code.load(Op::Mov_r64_rm64, RDX, memory(RDI, 0))?;
        self.code.load(Op::Mov_r32_rm32, ECX, memory(RDI, HANDLE_WORD))?;
        self.code.load(Op::Mov_r64_rm64, RAX, indexed(RDI, R14, 1, 0))?;
        self.code.put(immediate(Op::And_rm32_imm32, ECX, HANDLE_LENGTH_MASK)?)?;
        self.code.put(Instruction::with1(Op::Prefetcht0_m8, memory(RAX, 0))?)?;
        if self.plan.reads_wire_length {
            self.code.load(Op::Mov_r64_rm64, RAX, self.slot(Self::WIRE_POINTER))?;
            self.code.immediate(Op::Add_rm64_imm8, self.slot(Self::WIRE_POINTER), 4)?;
            self.code.load(Op::Mov_r32_rm32, EAX, memory(RAX, 0))?;
            self.code.store(Op::Mov_rm32_r32, self.slot(Self::WIRE_LENGTH), EAX)?;
        }
        // Without loops, each variable is set before it is read.
        let has_loop = !self.rounds.is_empty();
        let places: Vec<usize> =
            self.variables.values().filter(|_| has_loop).chain(self.rounds.values()).copied().collect();
        for place in places {
            self.code.immediate(Op::Mov_rm64_imm32, self.slot(place), 0)?;
        }
        if self.plan.mode == DecisionMode::All {
            self.code.registers(Op::Xor_r32_rm32, R9D, R9D)?;
        }
        Ok(())
    }

    /// Stores the verdict, and starts with the next packet; falls through behind the last one.
    fn tail(&mut self, mut next: Option<&mut Label>) -> Written {
        if self.is_bits() {
            self.code.put(Instruction::with2(Op::Rcr_rm64_1, R9, 1)?)?;
            if self.groups.is_none() {
                self.code.jump(Op::Jb_rel32_64, &mut self.full)?;
            }
            if let Some(next) = &mut next {
                self.code.place(next);
            }
        } else {
            let (op, from, size) = match self.plan.mode {
                DecisionMode::First => (Op::Mov_rm16_r16, R9W, 2),
                DecisionMode::All => (Op::Mov_rm64_r64, R9, 8),
            };
            self.code.store(op, memory(RBX, 0), from)?;
            self.code.put(Instruction::with2(Op::Add_rm64_imm8, RBX, size)?)?;
        }
        self.code.put(Instruction::with2(Op::Add_rm64_imm8, RDI, HANDLE_SIZE as i32)?)?;
        self.code.load(Op::Cmp_r64_rm64, RDI, self.slot(Self::END))?;
        self.code.jump(Op::Jne_rel32_64, &mut self.head)
    }

    /// Goes on with the next packet: with a copy of the tail, which saves a jump, if there are few.
    pub(super) fn end_path(&mut self) -> Written {
        if self.body.lane.is_some() {
            return self.end_lane();
        }
        if self.tails == MAX_TAILS {
            return self.code.jump(Op::Jmp_rel32_64, &mut self.join);
        }
        self.tails += 1;
        self.tail(None)?;
        self.code.jump(Op::Jmp_rel32_64, &mut self.finish)
    }

    fn end_packet(&mut self) -> Written {
        self.write_verdicts()?;
        let mut next = Label::default();
        self.code.place(&mut self.join);
        self.tail(Some(&mut next))?;
        self.code.place(&mut self.finish);
        if self.groups.is_some() {
            self.align_bits()?;
            self.end_singles()?;
        } else {
            self.code.load(Op::Mov_r64_rm64, RAX, self.slot(Self::LAST_END))?;
            self.code.store(Op::Mov_rm64_r64, self.slot(Self::END), RAX)?;
            self.code.registers(Op::Xor_r32_rm32, R14D, R14D)?;
            self.code.registers(Op::Cmp_r64_rm64, RDI, RAX)?;
            self.code.jump(Op::Jne_rel32_64, &mut self.head)?;
            if self.is_bits() {
                self.align_bits()?;
                self.code.store(Op::Mov_rm64_r64, memory(RBX, 0), R9)?;
            }
        }
        self.code.put(immediate(Op::Add_rm64_imm32, RSP, self.frame())?)?;
        for register in CALLEE_SAVED.into_iter().rev() {
            self.code.register(Op::Pop_r64, register)?;
        }
        self.code.put(Instruction::with(Op::Retnq))?;
        if self.is_bits() && self.groups.is_none() {
            self.code.place(&mut self.full);
            self.code.store(Op::Mov_rm64_r64, memory(RBX, 0), R9)?;
            self.code.put(Instruction::with2(Op::Add_rm64_imm8, RBX, 8)?)?;
            self.reset_bits()?;
            self.code.jump(Op::Jmp_rel32_64, &mut next)?;
        }
        Ok(())
    }

    /// Writes the ends of paths that jumps lead to.
    pub(super) fn write_verdicts(&mut self) -> Written {
        for (verdict, mut label) in std::mem::take(&mut self.body.verdicts) {
            self.code.place(&mut label);
            self.end_with(verdict)?;
        }
        Ok(())
    }

    /// Ends a path with a verdict that is known.
    pub(super) fn end_with(&mut self, verdict: u32) -> Written {
        if self.is_bits() {
            self.code.put(Instruction::with(if verdict == NO_MATCH { Op::Clc } else { Op::Stc }))?;
        } else if self.plan.mode == DecisionMode::First {
            let number = self.number_of(verdict);
            self.code.put(immediate(Op::Mov_r32_imm32, R9D, number)?)?;
        }
        self.end_path()
    }

    /// The number that stands for a verdict of [`DecisionMode::First`].
    pub(super) fn number_of(&self, verdict: u32) -> u32 {
        if verdict == NO_MATCH { self.plan.filters as u32 } else { verdict }
    }

    /// Notes that code leads there from here, and with which values in registers.
    fn reach(&mut self, to: To) {
        let to = self.resolve(to);
        if let To::Step(step) = to {
            self.body.is_needed[step as usize] = true;
            self.body.available[step as usize] &= self.now;
        }
    }

    pub(super) fn jump(&mut self, op: Op, to: To) -> Written {
        let to = self.resolve(to);
        self.reach(to);
        match to {
            To::Step(step) => {
                if let Some(lane) = &mut self.body.lane {
                    lane.later.push(step as usize);
                }
                self.code.jump(op, &mut self.body.labels[step as usize])
            }
            To::End(verdict) => {
                let at = self.body.verdicts.iter().position(|(known, _)| *known == verdict).unwrap_or_else(|| {
                    self.body.verdicts.push((verdict, Label::default()));
                    self.body.verdicts.len() - 1
                });
                self.code.jump(op, &mut self.body.verdicts[at].1)
            }
        }
    }

    /// Whether this step is written right behind the current one.
    fn is_next(&self, to: To, current: usize) -> bool {
        let first = current.wrapping_add(1);
        let next = (first..self.plan.steps.len()).find(|&step| self.body.is_needed[step]);
        matches!(to, To::Step(step) if Some(step as usize) == next)
    }

    pub(super) fn goto(&mut self, to: To, current: usize) -> Written {
        let to = self.resolve(to);
        self.reach(to);
        if self.body.lane.is_some() {
            return self.go_on(to);
        }
        if self.is_next(to, current) { Ok(()) } else { self.jump(Op::Jmp_rel32_64, to) }
    }

    fn branch(&mut self, flags: Flags, yes: To, no: To, current: usize) -> Written {
        self.reach(yes);
        self.reach(no);
        if self.body.lane.is_some() {
            let (flags, to, through) =
                if self.prefers_yes(current) { (flags.negated(), no, yes) } else { (flags, yes, no) };
            self.jump(flags.jump(), to)?;
            return self.goto(through, current);
        }
        if self.is_next(yes, current) {
            self.jump(flags.negated().jump(), no)
        } else {
            self.jump(flags.jump(), yes)?;
            self.goto(no, current)
        }
    }

    pub(super) fn step(&mut self, current: usize) -> Written {
        let plan = self.plan;
        if self.body.lane.is_some() {
            if let Some(yes) = self.room_step(current) {
                self.require_room(current)?;
                return self.goto(yes, current);
            }
            if let Some(chain) = self.chain(current) {
                return self.write_chain(&chain);
            }
        } else if let Some(elements) = self.flat(current) {
            return self.flat_code(&elements);
        }
        if let Some((offset, mask, number, yes, no)) = self.masked(current) {
            self.code.load(Op::Mov_r32_rm32, EAX, MemoryOperand::with_base_displ(RDX, i64::from(offset)))?;
            self.code.put(immediate(Op::And_rm32_imm32, EAX, mask)?)?;
            self.compare_number(EAX, number)?;
            return self.branch(Flags::Equal, yes, no, current);
        }
        match &plan.steps[current] {
            Step::Member { yes, no, .. } => {
                if let (Some(note), true) = (self.note(*yes, *no), plan.mode == DecisionMode::All) {
                    let flags = self.condition(current)?;
                    self.set(flags, EAX)?;
                    self.code.put(Instruction::with2(Op::Shl_rm64_imm8, RAX, note)?)?;
                    self.code.registers(Op::Or_r64_rm64, R9, RAX)?;
                    return self.goto(*no, current);
                }
                let flags = self.condition(current)?;
                self.branch(flags, *yes, *no, current)
            }
            Step::Compare { yes, no, .. } => {
                let flags = self.condition(current)?;
                self.branch(flags, *yes, *no, current)
            }
            Step::Tuple { tuples, yes, no } => self.tuples(*tuples, *yes, *no, current),
            Step::Assign { moves, next } => {
                let first = self.slots;
                for (position, (_, value)) in moves.iter().enumerate() {
                    if position >= MAX_TEMPORARIES / 2 {
                        return Err(too_large("variables"));
                    }
                    let register = self.operand(*value, position)?;
                    self.code.store(Op::Mov_rm32_r32, self.slot(first + position), register)?;
                }
                for (position, (variable, _)) in moves.iter().enumerate() {
                    self.code.load(Op::Mov_r32_rm32, EAX, self.slot(first + position))?;
                    self.code.store(Op::Mov_rm32_r32, self.slot(self.variables[variable]), EAX)?;
                }
                self.now &= !self.volatile;
                self.goto(*next, current)
            }
            Step::Again { filter, next, exhausted } => {
                let count = self.slot(self.rounds[filter]);
                self.code.immediate(Op::Add_rm32_imm8, count, 1)?;
                self.code.immediate(Op::Cmp_rm32_imm32, count, MAX_ROUNDS.cast_signed())?;
                self.now = 0;
                self.jump(Op::Ja_rel32_64, *exhausted)?;
                self.goto(*next, current)
            }
            Step::Note { filter, next } => {
                self.code.put(Instruction::with2(Op::Bts_rm64_imm8, R9, *filter)?)?;
                self.goto(*next, current)
            }
        }
    }

    /// The filter that is noted if a test holds, if all goes on in the same way.
    fn note(&self, yes: To, no: To) -> Option<u32> {
        let To::Step(step) = yes else { return None };
        match &self.plan.steps[step as usize] {
            Step::Note { filter, next } if *next == no => Some(*filter),
            _ => None,
        }
    }
}
