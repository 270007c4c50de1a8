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

use bellows_codemem::assembler::{Assembled, Assembler, Label, Mark, Written, memory};
use iced_x86::Register::{
    AL, AX, EAX, EBP, ECX, R8, R8D, R9, R9D, R9W, R10D, R11, R11D, R12D, R13D, R14, R14D, R15D, RAX, RBP, RBX, RCX,
    RDI, RDX, RSI, RSP,
};
use iced_x86::{Code as Op, Instruction, MemoryOperand, Register};

use super::groups::{Groups, Lane};
use super::short_lists::MAX_INTERVALS;
use super::tables::{SECOND_PLACE, Tables, TupleTable};
use super::{HANDLE_LENGTH_MASK, HANDLE_SIZE, HANDLE_WORD};
use crate::graph::{Comparison, MAX_ROUNDS, Operation, Width};
use crate::plan::values::{FastMap, Interval, Value, ValueId};
use crate::plan::{Mode, NO_MATCH, Part, Plan, Step, To};

/// What a part of the code is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// Loads the arguments, and the packet's place and length.
    Entry,
    /// Decides a part of an expression.
    Test(Part),
    /// Stores the verdict, and goes on with the next packet.
    Verdict,
}

/// The code of a plan.
pub(super) struct Function {
    pub bytes: Vec<u8>,
    pub marks: Vec<Mark<Section>>,
    /// The tables that it reads, which must not move.
    pub tables: Box<[u32]>,
}

/// Registers for values that several tests use.
const CACHE: [Register; 3] = [R10D, R12D, R13D];

/// How many packets ahead the code prefetches headers.
pub(super) const PREFETCH: usize = 16;

/// The callee-saved registers.
const CALLEE_SAVED: [Register; 6] = [RBX, RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// Tests that are combined without a branch, at most.
pub(super) const MAX_FLAT: usize = 5;

/// Copies of the code behind a verdict, at most.
const MAX_TAILS: usize = 8;

/// Temporary values, at most: a value is made of at most 48.
const MAX_TEMPORARIES: usize = 64;

/// Variables, at most.
const MAX_VARIABLES: usize = 256;

/// The error for a plan that is left to the interpreter.
fn too_large(what: &str) -> Box<dyn Error> {
    format!("the filter has too many {what} for machine code: split it into several").into()
}

/// The flags of the processor, and what they say about a condition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flags {
    Equal,
    NotEqual,
    Below,
    NotBelow,
    Above,
    NotAbove,
}

impl Flags {
    pub fn negated(self) -> Flags {
        match self {
            Flags::Equal => Flags::NotEqual,
            Flags::NotEqual => Flags::Equal,
            Flags::Below => Flags::NotBelow,
            Flags::NotBelow => Flags::Below,
            Flags::Above => Flags::NotAbove,
            Flags::NotAbove => Flags::Above,
        }
    }

    pub fn jump(self) -> Op {
        match self {
            Flags::Equal => Op::Je_rel32_64,
            Flags::NotEqual => Op::Jne_rel32_64,
            Flags::Below => Op::Jb_rel32_64,
            Flags::NotBelow => Op::Jae_rel32_64,
            Flags::Above => Op::Ja_rel32_64,
            Flags::NotAbove => Op::Jbe_rel32_64,
        }
    }

    fn set(self) -> Op {
        match self {
            Flags::Equal => Op::Sete_rm8,
            Flags::NotEqual => Op::Setne_rm8,
            Flags::Below => Op::Setb_rm8,
            Flags::NotBelow => Op::Setae_rm8,
            Flags::Above => Op::Seta_rm8,
            Flags::NotAbove => Op::Setbe_rm8,
        }
    }
}

/// A register for a value.
#[derive(Clone, Copy)]
pub(super) struct Cached {
    position: usize,
    /// It holds the bytes in the order of the packet, because the value is only compared with numbers.
    pub is_raw: bool,
}

/// A test whose outcome is combined with others.
#[derive(Clone, Copy)]
struct Element {
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

/// The code for one packet.
#[derive(Default)]
pub(super) struct Body {
    /// The starts of steps.
    labels: Vec<Label>,
    is_needed: Vec<bool>,
    /// The cached values that are in their registers at the start of each step: a bit for each.
    available: Vec<u8>,
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
    tables: Tables,
    pub(super) cached: FastMap<ValueId, Cached>,
    /// The cached values that are in their registers here: a bit for each.
    pub(super) now: u8,
    /// Cached values that depend on variables.
    volatile: u8,
    /// What is being written.
    pub(super) body: Body,
    /// The loop over groups of packets, if there is one.
    pub(super) groups: Option<Groups>,
    join: Label,
    /// The start of the code for a single packet, and its end behind the last one.
    pub(super) head: Label,
    finish: Label,
    /// Where 64 verdicts are stored.
    full: Label,
    tails: usize,
    /// Places of variables in the stack frame.
    variables: FastMap<u32, usize>,
    /// Places of counters of rounds, by filter.
    rounds: FastMap<u32, usize>,
    /// Places in the stack frame, before those of temporary values.
    slots: usize,
    /// Where the address of a table stands in the code, and its offset from the start of all tables.
    addresses: Vec<(usize, usize)>,
    tries: FastMap<u32, super::tables::Trie>,
    bitmaps: FastMap<(u32, u32), usize>,
    short_lists: FastMap<u32, usize>,
    tuple_tables: FastMap<u32, TupleTable>,
}

pub(super) fn immediate(op: Op, register: Register, value: u32) -> Result<Instruction, Box<dyn Error>> {
    let is_short = i8::try_from(value.cast_signed()).is_ok();
    let op = match op {
        Op::Add_rm32_imm32 if is_short => Op::Add_rm32_imm8,
        Op::And_rm32_imm32 if is_short => Op::And_rm32_imm8,
        Op::Or_rm32_imm32 if is_short => Op::Or_rm32_imm8,
        Op::Xor_rm32_imm32 if is_short => Op::Xor_rm32_imm8,
        Op::Cmp_rm32_imm32 if is_short => Op::Cmp_rm32_imm8,
        _ => op,
    };
    Ok(Instruction::with2(op, register, value.cast_signed())?)
}

pub(super) fn indexed(base: Register, index: Register, scale: u32, displacement: i64) -> MemoryOperand {
    MemoryOperand::with_base_index_scale_displ_size(base, index, scale, displacement, 1)
}

fn whole(register: Register) -> Register {
    match register {
        EAX => RAX,
        R8D => R8,
        R10D => Register::R10,
        R11D => R11,
        R12D => Register::R12,
        R13D => Register::R13,
        other => other,
    }
}

fn low_byte(register: Register) -> Register {
    match register {
        EBP => Register::BPL,
        R15D => Register::R15L,
        _ => AL,
    }
}

fn low_half(register: Register) -> Register {
    match register {
        R10D => Register::R10W,
        R12D => Register::R12W,
        R13D => Register::R13W,
        _ => AX,
    }
}

/// The hash of a tuple: the checksum CRC-32C of its bytes, as the processor computes it.
pub(super) fn hash(seed: u32, words: &[u32]) -> u32 {
    words.iter().fold(seed, |hash, word| {
        (0..32).fold(hash ^ word, |hash, _| hash >> 1 ^ if hash & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

impl<'a> Writer<'a> {
    pub(super) fn new(plan: &'a Plan) -> Writer<'a> {
        let count = plan.steps.len();
        let mut writer = Writer {
            plan,
            // The code can be anywhere: it calls nothing.
            code: Assembler::new(0),
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

    /// Chooses the values that are kept in registers: those that most tests use.
    fn choose_cached(&mut self) {
        let mut uses: FastMap<ValueId, (u32, bool)> = FastMap::default();
        for step in &self.plan.steps {
            match step {
                Step::Member { value, set, .. } => {
                    let is_raw = matches!(self.plan.sets[*set as usize][..], [(low, high)] if low == high)
                        || self.pair(*value, *set).is_some();
                    self.count(*value, is_raw, &mut uses);
                }
                Step::Compare { left, right, .. } => {
                    self.count(*left, false, &mut uses);
                    self.count(*right, false, &mut uses);
                }
                Step::Tuple { tuples, .. } => {
                    for (value, _) in &self.plan.tuples[*tuples as usize].signature {
                        if let Value::Load { base: Some(base), .. } = self.plan.values.get(*value) {
                            self.count(base, false, &mut uses);
                        }
                    }
                }
                Step::Assign { moves, .. } => {
                    moves.iter().for_each(|(_, value)| self.count(*value, false, &mut uses));
                }
                Step::Again { .. } | Step::Note { .. } => {}
            }
        }
        let is_worth_it = |value: ValueId| {
            matches!(self.plan.values.get(value), Value::Load { .. } | Value::Binary { .. } | Value::WireLength)
        };
        let mut most: Vec<(u32, ValueId, bool)> = uses
            .into_iter()
            .filter(|&(value, (count, _))| count >= 2 && is_worth_it(value))
            .map(|(value, (count, is_raw))| (count, value, is_raw))
            .collect();
        most.sort_unstable_by_key(|&(count, value, _)| (std::cmp::Reverse(count), value));
        for (position, (_, value, is_raw)) in most.into_iter().take(CACHE.len()).enumerate() {
            let is_raw = is_raw && matches!(self.plan.values.get(value), Value::Load { .. });
            self.cached.insert(value, Cached { position, is_raw });
            if self.is_volatile(value) {
                self.volatile |= 1 << position;
            }
        }
    }

    /// Counts the uses of a value, and of those that it is made of; and whether all are comparisons with a number.
    fn count(&self, value: ValueId, is_point: bool, uses: &mut FastMap<ValueId, (u32, bool)>) {
        let (count, is_raw) = uses.entry(value).or_insert((0, true));
        *count += 1;
        *is_raw &= is_point;
        if *count > 1 {
            // What it is made of is computed with its first use.
            return;
        }
        match self.plan.values.get(value) {
            Value::Load { base: Some(base), .. } | Value::Room(Some(base)) => self.count(base, false, uses),
            Value::Binary { left, right, .. } => {
                self.count(left, false, uses);
                self.count(right, false, uses);
            }
            _ => {}
        }
    }

    fn is_volatile(&self, value: ValueId) -> bool {
        match self.plan.values.get(value) {
            Value::Variable(_) => true,
            Value::Load { base, .. } | Value::Room(base) => base.is_some_and(|base| self.is_volatile(base)),
            Value::Binary { left, right, .. } => self.is_volatile(left) || self.is_volatile(right),
            Value::Constant(_) | Value::WireLength => false,
        }
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
    const WIRE_LENGTH: usize = 2;
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
        self.plan.mode == Mode::First && self.plan.filters == 1
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
        if self.plan.mode == Mode::All {
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
                Mode::First => (Op::Mov_rm16_r16, R9W, 2),
                Mode::All => (Op::Mov_rm64_r64, R9, 8),
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
        } else if self.plan.mode == Mode::First {
            let number = self.number_of(verdict);
            self.code.put(immediate(Op::Mov_r32_imm32, R9D, number)?)?;
        }
        self.end_path()
    }

    /// The number that stands for a verdict of [`Mode::First`].
    fn number_of(&self, verdict: u32) -> u32 {
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
                if let (Some(note), true) = (self.note(*yes, *no), plan.mode == Mode::All) {
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

    /// Two or more tests from this step on that compare bytes of one word of the packet with numbers, as one test: the
    /// word's offset, its bits that matter and what they must be, in the order of the packet's bytes; and where to go.
    fn masked(&self, current: usize) -> Option<(u32, u32, u32, To, To)> {
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
                && self.part_of_word(value, set).is_some_and(|(offset, width, ..)| {
                    end.max(offset + width.bytes()) - start.min(offset) <= 4
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
    fn part_of_word(&self, value: ValueId, set: u32) -> Option<(u32, Width, u32, u32)> {
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

    /// The filter that is noted if a test holds, if all goes on in the same way.
    fn note(&self, yes: To, no: To) -> Option<u32> {
        let To::Step(step) = yes else { return None };
        match &self.plan.steps[step as usize] {
            Step::Note { filter, next } if *next == no => Some(*filter),
            _ => None,
        }
    }

    /// The tests from a step on, if each has an outcome that ends the path, and if they are few.
    fn flat(&self, first: usize) -> Option<Vec<Element>> {
        if self.plan.mode == Mode::All {
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
    fn flat_code(&mut self, elements: &[Element]) -> Written {
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

    /// Computes the condition of a step. What is returned says whether it holds.
    pub(super) fn condition(&mut self, step: usize) -> Result<Flags, Box<dyn Error>> {
        let plan = self.plan;
        match &plan.steps[step] {
            Step::Member { value, set, .. } => self.member(*value, *set),
            Step::Compare { comparison, left, right, .. } => {
                let temporary = self.slots;
                let register = self.operand(*right, 0)?;
                self.code.store(Op::Mov_rm32_r32, self.slot(temporary), register)?;
                let register = self.operand(*left, 1)?;
                Ok(match comparison {
                    Comparison::AnyBit => {
                        self.code.store(Op::Test_rm32_r32, self.slot(temporary), register)?;
                        Flags::NotEqual
                    }
                    other => {
                        self.code.load(Op::Cmp_r32_rm32, register, self.slot(temporary))?;
                        match other {
                            Comparison::Equal => Flags::Equal,
                            Comparison::Greater => Flags::Above,
                            _ => Flags::NotBelow,
                        }
                    }
                })
            }
            _ => Err("only tests have conditions".into()),
        }
    }

    fn never(&mut self) -> Result<Flags, Box<dyn Error>> {
        self.code.put(Instruction::with(Op::Clc))?;
        Ok(Flags::Below)
    }

    fn compare_number(&mut self, register: Register, number: u32) -> Written {
        if number == 0 {
            return self.code.registers(Op::Test_rm32_r32, register, register);
        }
        self.code.put(immediate(Op::Cmp_rm32_imm32, register, number)?)
    }

    fn member(&mut self, value: ValueId, set: u32) -> Result<Flags, Box<dyn Error>> {
        let plan = self.plan;
        let intervals = &plan.sets[set as usize][..];
        if let Some(numbers) = self.pair(value, set) {
            return self.in_pair(value, numbers);
        }
        match *intervals {
            [] => self.never(),
            [(low, u32::MAX)] if matches!(plan.values.get(value), Value::Room(_)) => self.room(value, low),
            [(low, high)] if low == high.min(plan.values.max(value)) => self.point(value, low),
            [(0, high)] => {
                let register = self.operand(value, 0)?;
                // All numbers are no set to test for.
                self.compare_number(register, high.saturating_add(1))?;
                Ok(Flags::Below)
            }
            [(low, u32::MAX)] => {
                let register = self.operand(value, 0)?;
                self.compare_number(register, low)?;
                Ok(Flags::NotBelow)
            }
            [(low, high)] => {
                let register = self.operand(value, 0)?;
                self.distance(register, low, R8D)?;
                self.compare_number(R8D, high - low + 1)?;
                Ok(Flags::Below)
            }
            [..] if plan.values.max(value) <= 0xffff => self.in_bitmap(value, set),
            [first, second] => {
                let register = self.operand(value, 0)?;
                let in_first = |this: &mut Self, (low, high): Interval, to: Register| -> Written {
                    this.distance(register, low, R8D)?;
                    match (high - low).checked_add(1) {
                        Some(length) => this.code.put(immediate(Op::Cmp_rm32_imm32, R8D, length)?)?,
                        None => this.code.put(Instruction::with(Op::Stc))?,
                    }
                    this.code.registers(Op::Sbb_r32_rm32, to, to)
                };
                in_first(self, first, R11D)?;
                in_first(self, second, R8D)?;
                self.code.registers(Op::Or_r32_rm32, R11D, R8D)?;
                Ok(Flags::NotEqual)
            }
            [..] if intervals.len() <= MAX_INTERVALS => {
                let offset = match self.short_lists.get(&set) {
                    Some(offset) => *offset,
                    None => {
                        let list = self.short_list(intervals);
                        let offset = self.tables.add(list);
                        self.short_lists.insert(set, offset);
                        offset
                    }
                };
                let register = self.operand(value, 0)?;
                self.table(R11, offset)?;
                self.in_short_list(register, intervals.len())?;
                Ok(Flags::NotEqual)
            }
            [..] => self.in_trie(value, set),
        }
    }

    /// `to` = `from` − `number`.
    fn distance(&mut self, from: Register, number: u32, to: Register) -> Written {
        let displacement = i64::from(number.wrapping_neg().cast_signed());
        let from = MemoryOperand::with_base_displ(whole(from), displacement);
        self.code.load(Op::Lea_r32_m, to, from)
    }

    /// Loads the packet's length, which only the loop over single packets always does.
    fn length(&mut self) -> Written {
        let Some(lane) = &self.body.lane else { return Ok(()) };
        self.code.load(Op::Mov_r32_rm32, ECX, memory(RDI, lane.handle + HANDLE_WORD))?;
        self.code.put(immediate(Op::And_rm32_imm32, ECX, HANDLE_LENGTH_MASK)?)
    }

    fn room(&mut self, room: ValueId, need: u32) -> Result<Flags, Box<dyn Error>> {
        if need > HANDLE_LENGTH_MASK {
            return self.never();
        }
        let Value::Room(base) = self.plan.values.get(room) else { return self.never() };
        match base {
            None => {
                self.length()?;
                self.compare_number(ECX, need)?;
            }
            Some(base) => {
                let base = self.operand(base, 0)?;
                self.length()?;
                self.code.load(Op::Lea_r64_m, R8, MemoryOperand::with_base_displ(whole(base), i64::from(need)))?;
                self.code.registers(Op::Cmp_r64_rm64, RCX, R8)?;
            }
        }
        Ok(Flags::NotBelow)
    }

    fn point(&mut self, value: ValueId, number: u32) -> Result<Flags, Box<dyn Error>> {
        let plan = self.plan;
        if self.cached.contains_key(&value) {
            let register = self.operand(value, 0)?;
            self.compare_number(register, self.held(value, number))?;
            return Ok(Flags::Equal);
        }
        match plan.values.get(value) {
            Value::Load { width, base, offset } => {
                let from = self.place(base, offset, 0)?;
                let (op, number) = compare_memory(width, number);
                self.code.immediate(op, from, number)?;
                Ok(Flags::Equal)
            }
            Value::Binary { operation: Operation::And, left, right } if number == 0 => {
                let (Value::Load { width, base, offset }, Some(mask), false) =
                    (plan.values.get(left), plan.values.number(right), self.cached.contains_key(&left))
                else {
                    let register = self.operand(value, 0)?;
                    self.compare_number(register, 0)?;
                    return Ok(Flags::Equal);
                };
                let from = self.place(base, offset, 0)?;
                let mask = raw(width, mask);
                let (op, mask) = match width {
                    Width::Byte => (Op::Test_rm8_imm8, i32::from(mask as i8)),
                    Width::Half => (Op::Test_rm16_imm16, i32::from(mask as i16)),
                    Width::Word => (Op::Test_rm32_imm32, mask.cast_signed()),
                };
                self.code.immediate(op, from, mask)?;
                Ok(Flags::Equal)
            }
            _ => {
                let register = self.operand(value, 0)?;
                self.compare_number(register, number)?;
                Ok(Flags::Equal)
            }
        }
    }

    /// The number as the register of a value holds it.
    fn held(&self, value: ValueId, number: u32) -> u32 {
        match (self.cached.get(&value), self.plan.values.get(value)) {
            (Some(Cached { is_raw: true, .. }), Value::Load { width, .. }) => raw(width, number),
            _ => number,
        }
    }

    /// The numbers of a set of two, if the product of two such numbers fits into a register.
    pub(super) fn pair(&self, value: ValueId, set: u32) -> Option<[u32; 2]> {
        match self.plan.sets[set as usize][..] {
            [(first, first_high), (second, second_high)]
                if first == first_high
                    && second == second_high
                    && second <= self.plan.values.max(value)
                    && self.plan.values.max(value) <= 0xffff =>
            {
                Some([first, second])
            }
            _ => None,
        }
    }

    /// One of two numbers: the product of the differences is 0. Shorter than a bitmap, and without a table.
    fn in_pair(&mut self, value: ValueId, numbers: [u32; 2]) -> Result<Flags, Box<dyn Error>> {
        self.pair_product(value, numbers)?;
        self.code.put(immediate(Op::Cmp_rm32_imm32, EAX, 1)?)?;
        Ok(Flags::Below)
    }

    /// Computes the product of the differences from two numbers into `eax`.
    pub(super) fn pair_product(&mut self, value: ValueId, numbers: [u32; 2]) -> Written {
        let mut held = numbers.map(|number| self.held(value, number));
        match self.plan.values.get(value) {
            // In the order of its bytes.
            Value::Load { width, base, offset } if !self.cached.contains_key(&value) => {
                let from = self.place(base, offset, 0)?;
                self.code.load(load_raw(width), EAX, from)?;
                held = numbers.map(|number| raw(width, number));
            }
            _ => {
                let register = self.operand(value, 0)?;
                if register != EAX {
                    self.code.registers(Op::Mov_r32_rm32, EAX, register)?;
                }
            }
        }
        self.code.registers(Op::Mov_r32_rm32, R8D, EAX)?;
        for (register, number) in [R8D, EAX].into_iter().zip(held) {
            self.code.put(immediate(Op::Xor_rm32_imm32, register, number)?)?;
        }
        self.code.registers(Op::Imul_r32_rm32, EAX, R8D)
    }

    fn table(&mut self, register: Register, offset: usize) -> Written {
        // The address is only known in the end.
        self.code.put(Instruction::with2(Op::Mov_r64_imm64, register, u64::MAX)?)?;
        self.addresses.push((self.code.position() - size_of::<u64>(), offset));
        Ok(())
    }

    fn in_bitmap(&mut self, value: ValueId, set: u32) -> Result<Flags, Box<dyn Error>> {
        let max = self.plan.values.max(value);
        let tables = &mut self.tables;
        let intervals = &self.plan.sets[set as usize];
        let offset = *self.bitmaps.entry((set, max)).or_insert_with(|| tables.bitmap(intervals, max));
        let register = self.operand(value, 0)?;
        self.table(R11, offset)?;
        self.code.registers(Op::Mov_r32_rm32, R8D, register)?;
        self.code.put(Instruction::with2(Op::Shr_rm32_imm8, R8D, 5)?)?;
        self.code.load(Op::Mov_r32_rm32, R8D, indexed(R11, R8, 4, 0))?;
        self.code.registers(Op::Bt_rm32_r32, R8D, register)?;
        Ok(Flags::Below)
    }

    fn in_trie(&mut self, value: ValueId, set: u32) -> Result<Flags, Box<dyn Error>> {
        let trie = match self.tries.get(&set) {
            Some(trie) => *trie,
            None => {
                let trie = self.tables.trie(&self.plan.sets[set as usize]).ok_or_else(|| too_large("addresses"))?;
                self.tries.insert(set, trie);
                trie
            }
        };
        let register = self.operand(value, 0)?;
        if register != EAX {
            self.code.registers(Op::Mov_r32_rm32, EAX, register)?;
        }
        self.table(R11, trie.top)?;
        self.code.registers(Op::Mov_r32_rm32, R8D, EAX)?;
        self.code.put(Instruction::with2(Op::Shr_rm32_imm8, R8D, 16)?)?;
        self.code.load(Op::Movzx_r32_rm16, R8D, indexed(R11, R8, 2, 0))?;
        self.code.put(Instruction::with2(Op::Shl_rm32_imm8, R8D, 8)?)?;
        self.code.registers(Op::Movzx_r32_rm8, Register::ESI, Register::AH)?;
        self.code.registers(Op::Or_r32_rm32, R8D, Register::ESI)?;
        let middle = (trie.middle - trie.top) as i64;
        self.code.load(Op::Movzx_r32_rm16, R8D, indexed(R11, R8, 2, middle))?;
        self.code.put(Instruction::with2(Op::Shl_rm32_imm8, R8D, 3)?)?;
        self.code.registers(Op::Movzx_r32_rm8, Register::ESI, AL)?;
        self.code.put(Instruction::with2(Op::Shr_rm32_imm8, Register::ESI, 5)?)?;
        self.code.registers(Op::Or_r32_rm32, R8D, Register::ESI)?;
        let bottom = (trie.bottom - trie.top) as i64;
        self.code.load(Op::Mov_r32_rm32, R8D, indexed(R11, R8, 4, bottom))?;
        self.code.registers(Op::Bt_rm32_r32, R8D, EAX)?;
        Ok(Flags::Below)
    }

    /// Bytes of the packet. Its base may be in `rax` then.
    pub(super) fn place(
        &mut self,
        base: Option<ValueId>,
        offset: u32,
        depth: usize,
    ) -> Result<MemoryOperand, Box<dyn Error>> {
        // No packet is as long as such an offset, so that its load is never reached.
        let offset = i64::from(offset.min(i32::MAX as u32));
        Ok(match base {
            None => MemoryOperand::with_base_displ(RDX, offset),
            Some(base) => {
                let base = self.operand(base, depth)?;
                indexed(RDX, whole(base), 1, offset)
            }
        })
    }

    /// The register that holds a value: its own one, or `eax`.
    pub(super) fn operand(&mut self, value: ValueId, depth: usize) -> Result<Register, Box<dyn Error>> {
        let Some(&Cached { position, is_raw }) = self.cached.get(&value) else {
            self.compute(value, depth, false, EAX)?;
            return Ok(EAX);
        };
        let register = CACHE[position];
        if self.now >> position & 1 == 0 {
            self.compute(value, depth, is_raw, register)?;
            self.now |= 1 << position;
        }
        Ok(register)
    }

    /// Computes a value into `to`; `eax` may change.
    fn compute(&mut self, value: ValueId, depth: usize, is_raw: bool, to: Register) -> Written {
        if depth >= MAX_TEMPORARIES {
            return Err(too_large("operations"));
        }
        match self.plan.values.get(value) {
            Value::Load { width, base, offset } => {
                let from = self.place(base, offset, depth)?;
                match width {
                    Width::Byte => self.code.load(Op::Movzx_r32_rm8, to, from),
                    Width::Half => {
                        self.code.load(Op::Movzx_r32_rm16, to, from)?;
                        if is_raw {
                            return Ok(());
                        }
                        self.code.put(Instruction::with2(Op::Rol_rm16_imm8, low_half(to), 8)?)
                    }
                    Width::Word => {
                        self.code.load(Op::Mov_r32_rm32, to, from)?;
                        if is_raw { Ok(()) } else { self.code.register(Op::Bswap_r32, to) }
                    }
                }
            }
            Value::Binary { operation, left, right } => self.binary(operation, left, right, depth, to),
            _ => {
                self.compute_other(value, depth)?;
                if to == EAX { Ok(()) } else { self.code.registers(Op::Mov_r32_rm32, to, EAX) }
            }
        }
    }

    /// Computes a value that is no load and no operation into `eax`.
    fn compute_other(&mut self, value: ValueId, depth: usize) -> Written {
        match self.plan.values.get(value) {
            Value::Constant(number) => self.code.put(immediate(Op::Mov_r32_imm32, EAX, number)?),
            Value::WireLength => self.code.load(Op::Mov_r32_rm32, EAX, self.slot(Self::WIRE_LENGTH)),
            Value::Room(base) => {
                let base = base.map(|base| self.operand(base, depth)).transpose()?;
                self.length()?;
                let Some(base) = base else { return self.code.registers(Op::Mov_r32_rm32, EAX, ECX) };
                self.code.registers(Op::Mov_r32_rm32, R8D, base)?;
                self.code.registers(Op::Mov_r32_rm32, EAX, ECX)?;
                self.code.registers(Op::Xor_r32_rm32, R11D, R11D)?;
                self.code.registers(Op::Sub_r32_rm32, EAX, R8D)?;
                self.code.registers(Op::Cmovb_r32_rm32, EAX, R11D)
            }
            Value::Variable(variable) => match self.variables.get(&variable) {
                Some(&slot) => self.code.load(Op::Mov_r32_rm32, EAX, self.slot(slot)),
                None => self.code.registers(Op::Xor_r32_rm32, EAX, EAX),
            },
            Value::Load { .. } | Value::Binary { .. } => Ok(()),
        }
    }

    fn binary(&mut self, operation: Operation, left: ValueId, right: ValueId, depth: usize, to: Register) -> Written {
        if let Some(number) = self.plan.values.number(right) {
            let op = match operation {
                Operation::Add => Some(Op::Add_rm32_imm32),
                Operation::And => Some(Op::And_rm32_imm32),
                Operation::Or => Some(Op::Or_rm32_imm32),
                Operation::Xor => Some(Op::Xor_rm32_imm32),
                _ => None,
            };
            let shift = match operation {
                Operation::ShiftLeft => Some(Op::Shl_rm32_imm8),
                Operation::ShiftRight => Some(Op::Shr_rm32_imm8),
                _ => None,
            };
            let shift = shift.filter(|_| number < 32);
            if op.is_some() || shift.is_some() {
                if self.cached.contains_key(&left) {
                    let register = self.operand(left, depth)?;
                    self.code.registers(Op::Mov_r32_rm32, to, register)?;
                } else {
                    self.compute(left, depth, false, to)?;
                }
            }
            if let Some(op) = op {
                return self.code.put(immediate(op, to, number)?);
            }
            if let Some(shift) = shift {
                return self.code.put(Instruction::with2(shift, to, number)?);
            }
        }
        self.binary_of_two(operation, left, right, depth)?;
        if to == EAX { Ok(()) } else { self.code.registers(Op::Mov_r32_rm32, to, EAX) }
    }

    /// Computes an operation into `eax`.
    fn binary_of_two(&mut self, operation: Operation, left: ValueId, right: ValueId, depth: usize) -> Written {
        let right = self.operand(right, depth)?;
        let temporary = self.slot(self.slots + depth);
        self.code.store(Op::Mov_rm32_r32, temporary, right)?;
        let left = self.operand(left, depth + 1)?;
        if left != EAX {
            self.code.registers(Op::Mov_r32_rm32, EAX, left)?;
        }
        match operation {
            Operation::Add => self.code.load(Op::Add_r32_rm32, EAX, temporary),
            Operation::Subtract => self.code.load(Op::Sub_r32_rm32, EAX, temporary),
            Operation::Multiply => self.code.load(Op::Imul_r32_rm32, EAX, temporary),
            Operation::And => self.code.load(Op::And_r32_rm32, EAX, temporary),
            Operation::Or => self.code.load(Op::Or_r32_rm32, EAX, temporary),
            Operation::Xor => self.code.load(Op::Xor_r32_rm32, EAX, temporary),
            Operation::Divide | Operation::Remainder => {
                // The test that it is not 0 may be combined with others, so that this runs although it does not hold.
                self.code.immediate(Op::Cmp_rm32_imm8, temporary, 1)?;
                self.code.immediate(Op::Adc_rm32_imm8, temporary, 0)?;
                self.code.registers(Op::Mov_r64_rm64, R11, RDX)?;
                self.code.registers(Op::Xor_r32_rm32, Register::EDX, Register::EDX)?;
                self.code.put(Instruction::with1(Op::Div_rm32, temporary)?)?;
                if operation == Operation::Remainder {
                    self.code.registers(Op::Mov_r32_rm32, EAX, Register::EDX)?;
                }
                self.code.registers(Op::Mov_r64_rm64, RDX, R11)
            }
            Operation::ShiftLeft | Operation::ShiftRight => {
                let op = if operation == Operation::ShiftLeft { Op::Shl_rm32_CL } else { Op::Shr_rm32_CL };
                self.code.registers(Op::Mov_r64_rm64, R11, RCX)?;
                self.code.load(Op::Mov_r32_rm32, ECX, temporary)?;
                self.code.put(Instruction::with2(op, EAX, Register::CL)?)?;
                // From 32 on the result is 0.
                self.code.put(Instruction::with2(Op::Cmp_rm32_imm8, ECX, 32)?)?;
                self.code.registers(Op::Sbb_r32_rm32, ECX, ECX)?;
                self.code.registers(Op::And_r32_rm32, EAX, ECX)?;
                self.code.registers(Op::Mov_r64_rm64, RCX, R11)
            }
        }
    }

    /// A test whether words are in a set of tuples.
    fn tuples(&mut self, number: u32, yes: To, no: To, current: usize) -> Written {
        let plan = self.plan;
        let set = &plan.tuples[number as usize];
        // All words have the same base.
        let mut places = Vec::with_capacity(set.signature.len());
        let mut base_register = None;
        for &(value, mask) in &set.signature {
            let Value::Load { base, offset, .. } = plan.values.get(value) else {
                return Err("tuples are made of loads".into());
            };
            if let (Some(base), None) = (base, base_register) {
                let register = self.operand(base, 0)?;
                self.code.registers(Op::Mov_r32_rm32, Register::ESI, register)?;
                base_register = Some(RSI);
            }
            let offset = i64::from(offset.min(i32::MAX as u32));
            let place = match base_register {
                Some(register) => indexed(RDX, register, 1, offset),
                None => MemoryOperand::with_base_displ(RDX, offset),
            };
            places.push((place, mask.swap_bytes()));
        }
        if let [only] = &set.words[..] {
            for (&(place, mask), word) in places.iter().zip(only) {
                self.masked_word(place, mask)?;
                self.compare_number(R11D, word.swap_bytes())?;
                self.jump(Op::Jne_rel32_64, no)?;
            }
            return self.goto(yes, current);
        }
        let table = match self.tuple_tables.get(&number) {
            Some(table) => *table,
            None => {
                let raw = set.words.iter().map(|words| words.iter().map(|word| word.swap_bytes()).collect());
                let raw: Vec<Vec<u32>> = raw.collect();
                let table = self.tables.tuples(&raw, hash).ok_or_else(|| too_large("addresses"))?;
                self.tuple_tables.insert(number, table);
                table
            }
        };
        self.code.put(immediate(Op::Mov_r32_imm32, EAX, table.seed)?)?;
        for &(place, mask) in &places {
            if mask == u32::MAX {
                self.code.load(Op::Crc32_r32_rm32, EAX, place)?;
            } else {
                self.masked_word(place, mask)?;
                self.code.registers(Op::Crc32_r32_rm32, EAX, R11D)?;
            }
        }
        let mut found = Label::default();
        self.table(R11, table.hashes)?;
        self.code.registers(Op::Mov_r32_rm32, R8D, EAX)?;
        self.code.put(immediate(Op::And_rm32_imm32, R8D, table.slots as u32 - 1)?)?;
        self.code.load(Op::Cmp_r32_rm32, EAX, indexed(R11, R8, 4, 0))?;
        self.code.jump(Op::Je_rel32_64, &mut found)?;
        self.code.registers(Op::Mov_r32_rm32, R8D, EAX)?;
        self.code.put(Instruction::with2(Op::Shr_rm32_imm8, R8D, SECOND_PLACE)?)?;
        self.code.put(immediate(Op::And_rm32_imm32, R8D, table.slots as u32 - 1)?)?;
        self.code.load(Op::Cmp_r32_rm32, EAX, indexed(R11, R8, 4, 0))?;
        self.jump(Op::Jne_rel32_64, no)?;
        self.code.place(&mut found);
        self.code.put(Instruction::with2(Op::Shl_rm32_imm8, R8D, 4)?)?;
        self.table(R11, table.tuples)?;
        self.code.registers(Op::Add_r64_rm64, R8, R11)?;
        for (position, &(place, mask)) in places.iter().enumerate() {
            self.masked_word(place, mask)?;
            self.code.load(Op::Cmp_r32_rm32, R11D, memory(R8, position * 4))?;
            self.jump(Op::Jne_rel32_64, no)?;
        }
        self.goto(yes, current)
    }

    fn masked_word(&mut self, place: MemoryOperand, mask: u32) -> Written {
        self.code.load(Op::Mov_r32_rm32, R11D, place)?;
        if mask == u32::MAX { Ok(()) } else { self.code.put(immediate(Op::And_rm32_imm32, R11D, mask)?) }
    }
}

/// Loads bytes of the packet as they are.
pub(super) fn load_raw(width: Width) -> Op {
    match width {
        Width::Byte => Op::Movzx_r32_rm8,
        Width::Half => Op::Movzx_r32_rm16,
        Width::Word => Op::Mov_r32_rm32,
    }
}

/// A number with its bytes in the order of the packet.
pub(super) fn raw(width: Width, number: u32) -> u32 {
    match width {
        Width::Byte => number,
        Width::Half => u32::from((number as u16).swap_bytes()),
        Width::Word => number.swap_bytes(),
    }
}

fn compare_memory(width: Width, number: u32) -> (Op, i32) {
    let number = raw(width, number);
    match width {
        Width::Byte => (Op::Cmp_rm8_imm8, i32::from(number as i8)),
        Width::Half => (Op::Cmp_rm16_imm16, i32::from(number as i16)),
        Width::Word => (Op::Cmp_rm32_imm32, number.cast_signed()),
    }
}
