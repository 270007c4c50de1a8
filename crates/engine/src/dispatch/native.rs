//! The breath as straight-line machine code.
//!
//! Assembled for one configuration: every pull with its slots, every push with the words that say what its links hold,
//! each call straight to the function made for the app's type. Two bodies lie one after the other: the *plain* one takes
//! breath after breath until something is to be seen to; the *sampled* one takes one, and records the clocks of every
//! call.
//!
//! A push is reached in two steps: the words of up to eight links are tested at once, and only if one is not 0 each app's
//! own words are. So an idle breath costs a few instructions for eight links, and a busy one no more than a test and a
//! direct call for each app. The code of a pull that has slots lies behind the body, so that an idle breath falls through.
//!
//! ```text
//! register  holds
//!   r14     the thread's state
//!   rbx     the words that say how many packets each link holds
//!   rbp     the slots
//!   r13     the word in which other threads ask for attention
//!   r15     how many breaths are left to take
//!   r12d    whether an app was called in this breath
//! ```

use std::error::Error;
use std::mem::{offset_of, transmute};
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use bellows_codemem::assembler::{self, Assembled, Assembler, Label, Mark, Written, memory};
use bellows_codemem::{Code, Draft, Symbol};
use bellows_observe::listing::CodeLine;
use bellows_wiring::GROUP;
use iced_x86::Register::{EAX, R12, R12D, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP};
use iced_x86::{Code as Op, Instruction, Register};

use super::sampled::{SampledCall, sampled_pull, sampled_push};
use super::{CodeSection, Layout, Step};
use crate::runtime::links::LinkTable;
use crate::runtime::node::Node;
use crate::runtime::slots::Slot;
use crate::runtime::state::ThreadState;

/// Takes breaths; returns how many of `breaths` are left.
///
/// Safety: the state, the words, the slots and the nodes that the code was assembled for are there, and the apps of those
/// nodes are of the types that it was assembled for. `breaths` is not 0.
type Body = unsafe extern "sysv64" fn(
    state: *const ThreadState,
    words: *const std::cell::Cell<u32>,
    slots: *const Slot,
    attention: *const AtomicU32,
    breaths: u64,
) -> u64;

/// What the sampled body calls.
const SAMPLED: [(SampledCall, &str); 2] = [(sampled_pull, "sampled_pull"), (sampled_push, "sampled_push")];

/// What a part of the code serves, and in which body it is.
#[derive(Clone, Copy)]
struct Part {
    stretch: CodeSection,
    is_sampled: bool,
}

impl Part {
    fn label(&self, name: impl Fn(CodeSection) -> String) -> String {
        let kind = if self.is_sampled { "sampled " } else { "" };
        format!("{kind}{}", name(self.stretch))
    }
}

/// The code of one configuration.
pub(crate) struct Native {
    code: Code,
    /// Where the sampled body begins.
    sampled: usize,
    marks: Vec<Mark<Part>>,
    assembling: Duration,
}

impl Native {
    /// Assembles the breath, if `for_perf` in memory for which `perf` asks its map. The error is the sentence that tells why it cannot be.
    pub(crate) fn assemble(
        layout: &Layout<'_>,
        pulls: &[Step],
        pushes: &[Step],
        for_perf: bool,
    ) -> Result<Native, String> {
        let start = Instant::now();
        let reached = pulls.iter().chain(pushes).map(|step| step.call as usize);
        let reached = reached.chain(SAMPLED.map(|(function, _)| function as usize));
        let (low, high) = reached.fold((usize::MAX, 0), |(low, high), address| (low.min(address), high.max(address)));
        // No stretch is longer than these.
        let slots: usize = pulls.iter().map(|step| step.count).sum();
        let words: usize = pushes.iter().map(|step| step.count).sum();
        let capacity = 2 * (512 + 96 * (pulls.len() + pushes.len()) + 32 * slots + 24 * words);
        let draft = Draft::near(low..=high, capacity).map_err(|refused| refused.to_string())?;
        let cannot = |error: Box<dyn Error>| format!("the breath cannot be assembled: {error}");
        let mut writer = Writer::new(draft.address(), layout.nodes);
        writer.body(pulls, pushes, None).map_err(cannot)?;
        let sampled = writer.code.position();
        writer.body(pulls, pushes, Some(SAMPLED.map(|(function, _)| function))).map_err(cannot)?;
        let Assembled { bytes, marks } = writer.code.finish().map_err(cannot)?;
        let seal = if for_perf { Draft::seal_for_perf } else { Draft::seal };
        let code = seal(draft, &bytes).map_err(|refused| refused.to_string())?;
        Ok(Native { code, sampled, marks, assembling: start.elapsed() })
    }

    /// Takes up to `most` breaths, as [`Breath::take`](super::Breath::take) does.
    ///
    /// # Safety
    /// This was assembled for the apps of the nodes that are attached to this state and this table of links.
    #[inline]
    pub(crate) unsafe fn take(&self, state: &ThreadState, table: &LinkTable, attention: &AtomicU32, most: u64) -> u64 {
        let most = most.max(1);
        // SAFETY: the plain body lies at the code's start; the caller's promise.
        unsafe {
            let body: Body = transmute(self.code.address());
            most - body(state, table.waiting.as_ptr(), table.slots.as_ptr(), attention, most)
        }
    }

    /// Takes one breath and records the clocks of every call.
    ///
    /// # Safety
    /// As for [`Native::take`].
    pub(crate) unsafe fn take_sampled(&self, state: &ThreadState, table: &LinkTable) {
        let attention = AtomicU32::new(0);
        // SAFETY: the sampled body lies there; the caller's promise.
        unsafe {
            let body: Body = transmute(self.code.address() + self.sampled);
            body(state, table.waiting.as_ptr(), table.slots.as_ptr(), &raw const attention, 1);
        }
    }

    /// How long assembling took.
    pub(crate) fn assembling(&self) -> Duration {
        self.assembling
    }

    /// The stretches of the code, for `perf`, under the names that `name` gives them.
    pub(crate) fn symbols(&self, name: impl Fn(CodeSection) -> String) -> Vec<Symbol> {
        let ends = self.marks.iter().skip(1).map(|mark| mark.offset).chain([self.code.bytes().len()]);
        let symbol = |(mark, end): (&Mark<Part>, usize)| Symbol {
            start: self.code.address() + mark.offset,
            size: end - mark.offset,
            name: format!("breath: {}", mark.part.label(&name)),
        };
        self.marks.iter().zip(ends).map(symbol).filter(|symbol| symbol.size > 0).collect()
    }

    /// The code, instruction by instruction. `name` names stretches, `function` the functions of apps by address.
    pub(crate) fn listing(
        &self,
        name: impl Fn(CodeSection) -> String,
        function: impl Fn(usize) -> Option<String>,
    ) -> Vec<CodeLine> {
        let sampled = |target| SAMPLED.into_iter().find(|(function, _)| *function as usize == target);
        let called = |target| sampled(target).map(|(_, name)| name.to_owned()).or_else(|| function(target));
        let address = self.code.address();
        let lines = assembler::listing(self.code.bytes(), address, &self.marks, |part| part.label(&name), called);
        let line = |line: assembler::CodeLine| CodeLine {
            address: line.address as u64,
            bytes: line.bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            text: line.text,
            label: line.label,
        };
        lines.into_iter().map(line).collect()
    }
}

/// Writes the bodies, one after the other.
struct Writer<'a> {
    code: Assembler<Part>,
    nodes: &'a [Node],
    is_sampled: bool,
}

/// A field of the thread's state, in memory.
macro_rules! state {
    ($field:ident) => {
        memory(R14, offset_of!(ThreadState, $field))
    };
}

/// A field of a slot, in memory.
macro_rules! slot {
    ($slot:expr, $field:ident) => {
        memory(RBP, $slot * size_of::<Slot>() + offset_of!(Slot, $field))
    };
}

/// The loop over breaths begins at a multiple of this, so that the processor fetches it without a break.
const LOOP: usize = 64;

/// What a breath goes on with after links that hold nothing begins at a multiple of this, for the same reason. More gains
/// nothing.
const LANDING: usize = 32;

/// What the caller expects to find unchanged.
const SAVED: [Register; 6] = [RBX, RBP, R12, R13, R14, R15];

impl<'a> Writer<'a> {
    fn new(address: usize, nodes: &'a [Node]) -> Writer<'a> {
        Writer { code: Assembler::new(address), nodes, is_sampled: false }
    }

    fn mark(&mut self, stretch: CodeSection) {
        self.code.mark(Part { stretch, is_sampled: self.is_sampled });
    }

    fn body(&mut self, pulls: &[Step], pushes: &[Step], sampled: Option<[SampledCall; 2]>) -> Written {
        self.is_sampled = sampled.is_some();
        let [sampled_pull, sampled_push] = sampled.map_or([None, None], |functions| functions.map(Some));
        let [mut head, mut leave, mut halfway] = [Label::default(), Label::default(), Label::default()];
        self.mark(CodeSection::Entry);
        self.enter()?;
        self.code.place(&mut head);
        let mut behind = Vec::new();
        for (index, step) in pulls.iter().enumerate() {
            self.mark(CodeSection::Pull(index));
            if step.count == 0 {
                self.call(step, sampled_pull)?;
                continue;
            }
            let mut out = Label::default();
            for slot in step.first..step.first + step.count {
                self.test_slot(slot, &mut out)?;
            }
            let back = self.code.here();
            behind.push((index, step, out, back));
        }
        if !pulls.is_empty() {
            self.mark(CodeSection::PullsDone);
            self.code.immediate(Op::Cmp_rm32_imm8, state!(failures), 0)?;
            self.code.jump(Op::Jne_rel32_64, &mut halfway)?;
        }
        let mut first = 0;
        for group in pushes.chunk_by(|one, next| one.first / GROUP == next.first / GROUP) {
            self.group(first, group, sampled_push)?;
            first += group.len();
        }
        self.tail(&mut head, &mut leave)?;
        self.mark(CodeSection::Leave);
        self.code.place(&mut leave);
        self.leave()?;
        if !pulls.is_empty() {
            self.mark(CodeSection::Halfway);
            self.code.place(&mut halfway);
            self.code.immediate(Op::Mov_rm8_imm8, state!(halfway), 1)?;
            self.code.register(Op::Dec_rm64, R15)?;
            self.code.jump(Op::Jmp_rel32_64, &mut leave)?;
        }
        for (index, step, mut out, mut back) in behind {
            self.mark(CodeSection::CallPull(index));
            self.code.place(&mut out);
            self.call(step, sampled_pull)?;
            self.code.jump(Op::Jmp_rel32_64, &mut back)?;
        }
        Ok(())
    }

    /// Saves what the caller's registers hold, takes the arguments, and goes on at a multiple of [`LOOP`].
    fn enter(&mut self) -> Written {
        for register in SAVED {
            self.code.register(Op::Push_r64, register)?;
        }
        // Six registers and the return address: the stack is aligned for calls with 8 bytes more.
        self.code.put(Instruction::with2(Op::Sub_rm64_imm8, RSP, 8)?)?;
        for (to, argument) in [(R14, RDI), (RBX, RSI), (RBP, RDX), (R13, RCX), (R15, Register::R8)] {
            self.code.registers(Op::Mov_r64_rm64, to, argument)?;
        }
        self.code.registers(Op::Xor_r32_rm32, R12D, R12D)?;
        self.code.align(LOOP)
    }

    fn leave(&mut self) -> Written {
        self.code.registers(Op::Mov_r64_rm64, RAX, R15)?;
        self.code.put(Instruction::with2(Op::Add_rm64_imm8, RSP, 8)?)?;
        for register in SAVED.into_iter().rev() {
            self.code.register(Op::Pop_r64, register)?;
        }
        self.code.put(Instruction::with(Op::Retnq))
    }

    /// To `ready` if the slot says that there is something to pull.
    fn test_slot(&mut self, index: usize, ready: &mut Label) -> Written {
        self.code.load(Op::Mov_r64_rm64, RAX, slot!(index, pointer))?;
        self.code.load(Op::Mov_r32_rm32, EAX, memory(RAX, 0))?;
        self.code.load(Op::And_r32_rm32, EAX, slot!(index, mask))?;
        self.code.load(Op::Cmp_r32_rm32, EAX, slot!(index, value))?;
        self.code.jump(Op::Jne_rel32_64, ready)
    }

    /// The pushes of apps whose links have numbers in one group, or of one app with more. `first` is the position of the
    /// first among all pushes.
    fn group(&mut self, first: usize, steps: &[Step], sampled: Option<SampledCall>) -> Written {
        let mut past = Label::default();
        if let [one, .., last] = steps {
            self.mark(CodeSection::Links(first, first + steps.len() - 1));
            self.test_together(one.first / GROUP * GROUP..last.first + last.count, &mut past)?;
        }
        for (index, step) in steps.iter().enumerate() {
            self.mark(CodeSection::Push(first + index));
            let mut next = Label::default();
            self.test_words(step, &mut next)?;
            self.call(step, sampled)?;
            self.code.place(&mut next);
        }
        if steps.len() > 1 {
            // An idle breath jumps here.
            self.code.align(LANDING)?;
            self.code.place(&mut past);
        }
        Ok(())
    }

    /// To `none` if all of these words are 0: two at a time.
    fn test_together(&mut self, words: Range<usize>, none: &mut Label) -> Written {
        let mut op = Op::Mov_r64_rm64;
        for word in words.step_by(2) {
            self.code.load(op, RAX, memory(RBX, word * 4))?;
            op = Op::Or_r64_rm64;
        }
        self.code.registers(Op::Test_rm64_r64, RAX, RAX)?;
        self.code.jump(Op::Je_rel32_64, none)
    }

    /// To `none` if no link of the app holds packets: one word at a time, because it may just have been written.
    fn test_words(&mut self, step: &Step, none: &mut Label) -> Written {
        if step.count == 1 {
            self.code.immediate(Op::Cmp_rm32_imm8, memory(RBX, step.first * 4), 0)?;
            return self.code.jump(Op::Je_rel8_64, none);
        }
        let mut op = Op::Mov_r32_rm32;
        for word in step.first..step.first + step.count {
            self.code.load(op, EAX, memory(RBX, word * 4))?;
            op = Op::Or_r32_rm32;
        }
        self.code.registers(Op::Test_rm32_r32, EAX, EAX)?;
        self.code.jump(Op::Je_rel8_64, none)
    }

    /// Calls an app, and notes that one was called.
    fn call(&mut self, step: &Step, sampled: Option<SampledCall>) -> Written {
        let node: *const Node = &raw const self.nodes[step.app];
        self.code.put(Instruction::with2(Op::Mov_r32_imm32, R12D, 1)?)?;
        self.code.put(Instruction::with2(Op::Mov_r64_imm64, RDI, node as u64)?)?;
        let mut function = step.call as usize;
        if let Some(sampled) = sampled {
            self.code.put(Instruction::with2(Op::Mov_r64_imm64, RSI, function as u64)?)?;
            function = sampled as usize;
        }
        self.code.call(function)
    }

    /// The end of a breath: the next one begins unless none is left, or other threads want something, or a call has asked
    /// for an interruption. After calls, [`ThreadState::end_breath`].
    fn tail(&mut self, head: &mut Label, leave: &mut Label) -> Written {
        let mut busy = Label::default();
        self.mark(CodeSection::Tail);
        self.code.registers(Op::Test_rm32_r32, R12D, R12D)?;
        self.code.jump(Op::Jne_rel8_64, &mut busy)?;
        self.code.register(Op::Dec_rm64, R15)?;
        self.code.jump(Op::Je_rel8_64, leave)?;
        self.code.immediate(Op::Cmp_rm32_imm8, memory(R13, 0), 0)?;
        self.code.jump(Op::Je_rel32_64, head)?;
        self.code.jump(Op::Jmp_rel8_64, leave)?;
        self.mark(CodeSection::BusyTail);
        self.code.place(&mut busy);
        self.code.load(Op::Movzx_r32_rm8, EAX, state!(progress))?;
        self.code.registers(Op::Xor_r32_rm32, R12D, R12D)?;
        self.code.store(Op::Add_rm64_r64, state!(moved), RAX)?;
        self.code.store(Op::Mov_rm8_r8, state!(progress), Register::R12L)?;
        self.code.store(Op::Mov_rm64_r64, state!(now), R12)?;
        self.code.register(Op::Dec_rm64, R15)?;
        self.code.jump(Op::Je_rel8_64, leave)?;
        self.code.load(Op::Mov_r32_rm32, EAX, state!(interrupt))?;
        self.code.load(Op::Or_r32_rm32, EAX, memory(R13, 0))?;
        self.code.jump(Op::Je_rel32_64, head)
    }
}
