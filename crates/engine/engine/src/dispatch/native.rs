//! The native schedule: a breath as straight-line machine code.
//!
//! The code is assembled for one configuration: every pull with its slots, every push with the packet counts of its
//! links, each call directly to the function made for the app's type. There are two bodies, one after the other: the
//! *plain* body takes breaths until something needs attention; the *sampled* body takes one breath and records the
//! clocks of every call.
//!
//! A push is tested in two steps: the words of up to eight links at once, and only if one is not 0 the words of each
//! app. So an idle breath costs a few instructions for eight links, and a busy one no more than a test and a direct
//! call for each app. The code of a pull with slots lies out of line, so that an idle breath falls through.
//!
//! ```text
//! register  holds
//!   r14     the thread's state
//!   rbx     the words with the packet count of each link
//!   rbp     the slots
//!   r13     the word with the requests of other threads
//!   r15     the number of breaths left to take
//!   r12d    whether an app was called in this breath
//! ```

use std::error::Error;
use std::mem::{offset_of, transmute};
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use bellows_codemem::assembler::{self, Assembled, Assembler, Instruction, Label, Mark, Written, memory};
use bellows_codemem::{Code, Draft, Symbol};
use bellows_observe::listing::CodeLine;
use bellows_wiring::GROUP;
use iced_x86::Register::{EAX, R12, R12D, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP};
use iced_x86::{Code as Op, Register};

use super::sampled::{SampledCall, sampled_pull, sampled_push};
use super::{CodeSection, Layout, Step};
use crate::runtime::links::LinkTable;
use crate::runtime::node::Node;
use crate::runtime::slots::BreathSlot;
use crate::runtime::state::ThreadState;

/// Takes breaths; returns how many of `breaths` are left.
///
/// Safety: the state, the words, the slots and the nodes that the code was assembled for exist, and the apps of the
/// nodes have the types that it was assembled for. `breaths` is not 0.
type BreathFn = unsafe extern "sysv64" fn(
    state: *const ThreadState,
    words: *const std::cell::Cell<u32>,
    slots: *const BreathSlot,
    attention: *const AtomicU32,
    breaths: u64,
) -> u64;

/// The functions that the sampled body calls.
const SAMPLED: [(SampledCall, &str); 2] = [(sampled_pull, "sampled_pull"), (sampled_push, "sampled_push")];

/// A section of the code, and the body that it belongs to.
#[derive(Clone, Copy)]
struct CodePart {
    section: CodeSection,
    is_sampled: bool,
}

impl CodePart {
    fn label(&self, name: impl Fn(CodeSection) -> String) -> String {
        let kind = if self.is_sampled { "sampled " } else { "" };
        format!("{kind}{}", name(self.section))
    }
}

/// The code of one configuration.
pub(crate) struct Native {
    code: Code,
    /// Offset of the sampled body.
    sampled: usize,
    marks: Vec<Mark<CodePart>>,
    assembling: Duration,
}

impl Native {
    /// Assembles the breath; with `for_perf` in memory for which `perf` uses the map. The error is the fallback reason.
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
        // Upper bounds for the length of each section.
        let slots: usize = pulls.iter().map(|step| step.count).sum();
        let words: usize = pushes.iter().map(|step| step.count).sum();
        let capacity = 2 * (512 + 96 * (pulls.len() + pushes.len()) + 32 * slots + 24 * words);
        let draft = Draft::near(low..=high, capacity).map_err(|refused| refused.to_string())?;
        let cannot = |error: Box<dyn Error>| format!("the breath cannot be assembled: {error}");
        let mut writer = BodyWriter::new(draft.address(), layout.nodes);
        writer.body(pulls, pushes, None).map_err(cannot)?;
        let sampled = writer.code.position();
        writer.body(pulls, pushes, Some(SAMPLED.map(|(function, _)| function))).map_err(cannot)?;
        let Assembled { bytes, marks } = writer.code.finish().map_err(cannot)?;
        let seal = if for_perf { Draft::seal_for_perf } else { Draft::seal };
        let code = seal(draft, &bytes).map_err(|refused| refused.to_string())?;
        Ok(Native { code, sampled, marks, assembling: start.elapsed() })
    }

    /// Takes up to `max_breaths` breaths, as [`Breath::take`](super::Breath::take) does.
    ///
    /// # Safety
    /// This was assembled for the apps of the nodes that are attached to this state and this link table.
    #[inline]
    pub(crate) unsafe fn take(
        &self,
        state: &ThreadState,
        table: &LinkTable,
        attention: &AtomicU32,
        max_breaths: u64,
    ) -> u64 {
        let max_breaths = max_breaths.max(1);
        // SAFETY: the plain body is at the start of the code; the rest is the caller's promise.
        unsafe {
            let body: BreathFn = transmute(self.code.address());
            max_breaths - body(state, table.waiting.as_ptr(), table.slots.as_ptr(), attention, max_breaths)
        }
    }

    /// Takes one breath and records the clocks of every call.
    ///
    /// # Safety
    /// As for [`Native::take`].
    pub(crate) unsafe fn take_sampled(&self, state: &ThreadState, table: &LinkTable) {
        let attention = AtomicU32::new(0);
        // SAFETY: the sampled body is at this offset; the rest is the caller's promise.
        unsafe {
            let body: BreathFn = transmute(self.code.address() + self.sampled);
            body(state, table.waiting.as_ptr(), table.slots.as_ptr(), &raw const attention, 1);
        }
    }

    /// How long assembling took.
    pub(crate) fn assembling(&self) -> Duration {
        self.assembling
    }

    /// The sections of the code, for `perf`, with names from `name`.
    pub(crate) fn symbols(&self, name: impl Fn(CodeSection) -> String) -> Vec<Symbol> {
        let ends = self.marks.iter().skip(1).map(|mark| mark.offset).chain([self.code.bytes().len()]);
        let symbol = |(mark, end): (&Mark<CodePart>, usize)| Symbol {
            start: self.code.address() + mark.offset,
            size: end - mark.offset,
            name: format!("breath: {}", mark.part.label(&name)),
        };
        self.marks.iter().zip(ends).map(symbol).filter(|symbol| symbol.size > 0).collect()
    }

    /// The code, instruction by instruction. `name` names sections, `function` names the functions of apps by address.
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

/// Writes the two bodies.
struct BodyWriter<'a> {
    code: Assembler<CodePart>,
    nodes: &'a [Node],
    is_sampled: bool,
}

/// Memory operand: a field of the thread's state.
macro_rules! state {
    ($field:ident) => {
        memory(R14, offset_of!(ThreadState, $field))
    };
}

/// Memory operand: a field of a slot.
macro_rules! slot {
    ($slot:expr, $field:ident) => {
        memory(RBP, $slot * size_of::<BreathSlot>() + offset_of!(BreathSlot, $field))
    };
}

/// Alignment of the loop over breaths, so that the processor fetches it without a break.
const LOOP_ALIGN: usize = 64;

/// Alignment of the jump target behind a group of empty links, for the same reason. A larger alignment gains nothing.
const JUMP_ALIGN: usize = 32;

/// The callee-saved registers.
const CALLEE_SAVED: [Register; 6] = [RBX, RBP, R12, R13, R14, R15];

impl<'a> BodyWriter<'a> {
    fn new(address: usize, nodes: &'a [Node]) -> BodyWriter<'a> {
        BodyWriter { code: Assembler::new(address), nodes, is_sampled: false }
    }

    fn mark(&mut self, section: CodeSection) {
        self.code.mark(CodePart { section, is_sampled: self.is_sampled });
    }

    fn body(&mut self, pulls: &[Step], pushes: &[Step], sampled: Option<[SampledCall; 2]>) -> Written {
        self.is_sampled = sampled.is_some();
        let [sampled_pull, sampled_push] = sampled.map_or([None, None], |functions| functions.map(Some));
        let [mut head, mut leave, mut pull_panicked] = [Label::default(), Label::default(), Label::default()];
        self.mark(CodeSection::Entry);
        self.enter()?;
        self.code.place(&mut head);
        let mut out_of_line = Vec::new();
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
            out_of_line.push((index, step, out, back));
        }
        if !pulls.is_empty() {
            self.mark(CodeSection::PullsDone);
            self.code.immediate(Op::Cmp_rm32_imm8, state!(failures), 0)?;
            self.code.jump(Op::Jne_rel32_64, &mut pull_panicked)?;
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
            self.mark(CodeSection::PullPanicked);
            self.code.place(&mut pull_panicked);
            self.code.immediate(Op::Mov_rm8_imm8, state!(pushes_pending), 1)?;
            self.code.register(Op::Dec_rm64, R15)?;
            self.code.jump(Op::Jmp_rel32_64, &mut leave)?;
        }
        for (index, step, mut out, mut back) in out_of_line {
            self.mark(CodeSection::CallPull(index));
            self.code.place(&mut out);
            self.call(step, sampled_pull)?;
            self.code.jump(Op::Jmp_rel32_64, &mut back)?;
        }
        Ok(())
    }

    /// Saves the callee-saved registers, loads the arguments, and aligns to [`LOOP_ALIGN`].
    fn enter(&mut self) -> Written {
        for register in CALLEE_SAVED {
            self.code.register(Op::Push_r64, register)?;
        }
        // Six registers and the return address: 8 more bytes align the stack for calls.
        self.code.put(Instruction::with2(Op::Sub_rm64_imm8, RSP, 8)?)?;
        for (to, argument) in [(R14, RDI), (RBX, RSI), (RBP, RDX), (R13, RCX), (R15, Register::R8)] {
            self.code.registers(Op::Mov_r64_rm64, to, argument)?;
        }
        self.code.registers(Op::Xor_r32_rm32, R12D, R12D)?;
        self.code.align(LOOP_ALIGN)
    }

    fn leave(&mut self) -> Written {
        self.code.registers(Op::Mov_r64_rm64, RAX, R15)?;
        self.code.put(Instruction::with2(Op::Add_rm64_imm8, RSP, 8)?)?;
        for register in CALLEE_SAVED.into_iter().rev() {
            self.code.register(Op::Pop_r64, register)?;
        }
        self.code.put(Instruction::with(Op::Retnq))
    }

    /// Jumps to `ready` if the slot is ready.
    fn test_slot(&mut self, index: usize, ready: &mut Label) -> Written {
        self.code.load(Op::Mov_r64_rm64, RAX, slot!(index, pointer))?;
        self.code.load(Op::Mov_r32_rm32, EAX, memory(RAX, 0))?;
        self.code.load(Op::And_r32_rm32, EAX, slot!(index, mask))?;
        self.code.load(Op::Cmp_r32_rm32, EAX, slot!(index, value))?;
        self.code.jump(Op::Jne_rel32_64, ready)
    }

    /// The pushes of apps whose links have numbers in one group, or of one app with more links. `first` is the position
    /// of the first push among all pushes.
    fn group(&mut self, first: usize, steps: &[Step], sampled: Option<SampledCall>) -> Written {
        let mut group_end = Label::default();
        if let [one, .., last] = steps {
            self.mark(CodeSection::Links(first, first + steps.len() - 1));
            self.test_together(one.first / GROUP * GROUP..last.first + last.count, &mut group_end)?;
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
            self.code.align(JUMP_ALIGN)?;
            self.code.place(&mut group_end);
        }
        Ok(())
    }

    /// Jumps to `none` if all of these words are 0: tests two at a time.
    fn test_together(&mut self, words: Range<usize>, none: &mut Label) -> Written {
        let mut op = Op::Mov_r64_rm64;
        for word in words.step_by(2) {
            self.code.load(op, RAX, memory(RBX, word * 4))?;
            op = Op::Or_r64_rm64;
        }
        self.code.registers(Op::Test_rm64_r64, RAX, RAX)?;
        self.code.jump(Op::Je_rel32_64, none)
    }

    /// Jumps to `none` if no link of the app holds packets: tests one word at a time, because it may just have been
    /// written.
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

    /// Calls an app, and sets the flag that an app was called.
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

    /// The end of a breath: the next one begins unless none is left, another thread made a request, or a call
    /// interrupted the breaths. After calls it does the work of [`ThreadState::end_breath`].
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
