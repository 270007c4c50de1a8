//! The breath as straight-line machine code.
//!
//! Assembled for one configuration: every pull with its slots, every push with the words that say what its links hold,
//! each call straight to the function made for the app's type. Two bodies lie one after the other: the *plain* one takes
//! breath after breath until something is to be seen to; the *instrumented* one takes one, and books the clocks of every
//! call.
//!
//! A push is reached in two steps: the words of up to eight links are tested at once, and only if one is not 0 each app's
//! own words are. So an idle breath costs a few instructions for eight links, and a busy one no more than a test and a
//! direct call for each app. The code of a pull that has slots lies behind the body, so that an idle breath falls through.
//!
//! ```text
//! register  holds
//!   r14     the core
//!   rbx     the words that say how many packets each link holds
//!   rbp     the slots
//!   r13     the word in which other threads ask for attention
//!   r15     how many breaths are left to take
//!   r12d    whether an app was called in this breath
//! ```

use std::mem::{offset_of, transmute};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use bellows_codemem::{Code, Draft, Symbol};
use iced_x86::code_asm::*;
use iced_x86::{BlockEncoderOptions, Decoder, DecoderOptions, Formatter, IcedError, Mnemonic, NasmFormatter};

use crate::app::{Metered, metered_pull, metered_push};
use crate::io::Core;
use crate::listing::Line;
use crate::place::Place;
use crate::schedule::Step;
use crate::slots::Slot;
use crate::world::{Fabric, GROUP, Layout};

/// Takes breaths; returns how many of `breaths` are left.
///
/// Safety: the core, the words, the slots and the places that the code was assembled for are there, and the apps in those
/// places are of the types that it was assembled for. `breaths` is not 0.
type Body = unsafe extern "sysv64" fn(
    core: *const Core,
    words: *const std::cell::Cell<u32>,
    slots: *const Slot,
    attention: *const AtomicU32,
    breaths: u64,
) -> u64;

/// What the instrumented body calls.
const METERED: [(Metered, &str); 2] = [(metered_pull, "metered_pull"), (metered_push, "metered_push")];

/// Where a stretch of the code begins, and what it serves.
struct Mark {
    offset: usize,
    label: String,
}

/// The code of one configuration.
pub(crate) struct Native {
    code: Code,
    /// Where the instrumented body begins.
    metered: usize,
    marks: Vec<Mark>,
    assembling: Duration,
}

impl Native {
    /// Assembles the breath. The error is the sentence that tells why it cannot be.
    pub(crate) fn assemble(layout: &Layout<'_>, pulls: &[Step], pushes: &[Step]) -> Result<Native, String> {
        let start = Instant::now();
        let reached = pulls.iter().chain(pushes).map(|step| step.call as usize);
        let reached = reached.chain(METERED.map(|(function, _)| function as usize));
        let (low, high) = reached.fold((usize::MAX, 0), |(low, high), address| (low.min(address), high.max(address)));
        // No stretch is longer than these.
        let slots: usize = pulls.iter().map(|step| step.count).sum();
        let words: usize = pushes.iter().map(|step| step.count).sum();
        let capacity = 2 * (512 + 64 * (pulls.len() + pushes.len()) + 32 * slots + 24 * words);
        let draft = Draft::near(low..=high, capacity).map_err(|refused| refused.to_string())?;
        let writer = Writer::write(layout, pulls, pushes, draft.address()).and_then(Writer::encode);
        let encoded = writer.map_err(|error| format!("the breath cannot be assembled: {error}"))?;
        let code = draft.seal(&encoded.bytes).map_err(|refused| refused.to_string())?;
        Ok(Native { code, metered: encoded.metered, marks: encoded.marks, assembling: start.elapsed() })
    }

    /// Takes up to `most` breaths, as [`Breath::take`](crate::schedule::Breath::take) does.
    ///
    /// The caller runs the world of the layout that this was assembled from, seated on this core.
    #[inline]
    pub(crate) fn take(&self, core: &Core, fabric: &Fabric, attention: &AtomicU32, most: u64) -> u64 {
        let most = most.max(1);
        // SAFETY: the plain body lies at the code's start; the caller's promise.
        unsafe {
            let body: Body = transmute(self.code.address());
            most - body(core, fabric.waiting.as_ptr(), fabric.slots.as_ptr(), attention, most)
        }
    }

    /// Takes one breath and books the clocks of every call.
    pub(crate) fn take_metered(&self, core: &Core, fabric: &Fabric) {
        let attention = AtomicU32::new(0);
        // SAFETY: the instrumented body lies there; the caller's promise.
        unsafe {
            let body: Body = transmute(self.code.address() + self.metered);
            body(core, fabric.waiting.as_ptr(), fabric.slots.as_ptr(), &raw const attention, 1);
        }
    }

    /// How long assembling took.
    pub(crate) fn assembling(&self) -> Duration {
        self.assembling
    }

    /// The stretches of the code, for `perf`.
    pub(crate) fn symbols(&self) -> Vec<Symbol> {
        let ends = self.marks.iter().skip(1).map(|mark| mark.offset).chain([self.code.bytes().len()]);
        let symbol = |(mark, end): (&Mark, usize)| Symbol {
            start: self.code.address() + mark.offset,
            size: end - mark.offset,
            name: format!("breath: {}", mark.label),
        };
        self.marks.iter().zip(ends).map(symbol).filter(|symbol| symbol.size > 0).collect()
    }

    /// The code, instruction by instruction. `name` knows the functions of apps that it calls.
    pub(crate) fn listing(&self, name: impl Fn(usize) -> Option<String>) -> Vec<Line> {
        let mut decoder = Decoder::with_ip(64, self.code.bytes(), self.code.address() as u64, DecoderOptions::NONE);
        let mut formatter = NasmFormatter::new();
        formatter.options_mut().set_space_after_operand_separator(true);
        formatter.options_mut().set_rip_relative_addresses(true);
        let mut marks = self.marks.iter().peekable();
        let mut lines = Vec::new();
        let filling = self.marks.last().map_or(0, |mark| mark.offset);
        while decoder.can_decode() {
            let offset = decoder.position();
            let instruction = decoder.decode();
            if instruction.code() == iced_x86::Code::Int3 && offset > filling {
                break;
            }
            let mut label = None;
            while let Some(mark) = marks.next_if(|mark| mark.offset <= offset) {
                label = Some(mark.label.clone());
            }
            let mut text = String::new();
            formatter.format(&instruction, &mut text);
            if instruction.mnemonic() == Mnemonic::Call {
                let target = instruction.near_branch_target() as usize;
                let metered = METERED.into_iter().find(|(function, _)| *function as usize == target);
                if let Some(name) = metered.map(|(_, name)| name.to_owned()).or_else(|| name(target)) {
                    text = format!("call {name}");
                }
            }
            let bytes = &self.code.bytes()[offset..offset + instruction.len()];
            lines.push(Line {
                address: instruction.ip(),
                bytes: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                text,
                label,
            });
        }
        lines
    }
}

/// The code, not yet placed.
struct Writer<'a> {
    assembler: CodeAssembler,
    layout: &'a Layout<'a>,
    /// Where the code will lie.
    address: usize,
    /// For each mark the instruction that it stands before.
    marks: Vec<(usize, String)>,
    /// The instruction with which the instrumented body begins.
    metered: usize,
}

struct Encoded {
    bytes: Vec<u8>,
    metered: usize,
    marks: Vec<Mark>,
}

/// A field of the core.
macro_rules! core {
    ($field:ident) => {
        r14 + offset_of!(Core, $field)
    };
}

/// A field of a slot.
macro_rules! slot {
    ($slot:expr, $field:ident) => {
        rbp + ($slot * size_of::<Slot>() + offset_of!(Slot, $field))
    };
}

/// Loops begin here, so that the processor fetches them without a break.
const ALIGNMENT: usize = 64;

impl<'a> Writer<'a> {
    fn write(layout: &'a Layout<'a>, pulls: &[Step], pushes: &[Step], address: usize) -> Result<Writer<'a>, IcedError> {
        let assembler = CodeAssembler::new(64)?;
        let mut writer = Writer { assembler, layout, address, marks: Vec::new(), metered: 0 };
        writer.body("", pulls, pushes, None)?;
        writer.metered = writer.assembler.instructions().len();
        writer.body("instrumented ", pulls, pushes, Some(METERED.map(|(function, _)| function)))?;
        writer.mark("end");
        writer.assembler.int3()?;
        Ok(writer)
    }

    fn encode(mut self) -> Result<Encoded, IcedError> {
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let result = self.assembler.assemble_options(self.address as u64, options)?.inner;
        let offset = |instruction: usize| {
            // u32::MAX marks an instruction that had to be rewritten; none of ours is, or the marks after it do for it.
            let offsets = result.new_instruction_offsets.iter().skip(instruction);
            offsets.copied().find(|&offset| offset != u32::MAX).unwrap_or(0) as usize
        };
        let marks = self.marks.into_iter().map(|(instruction, label)| Mark { offset: offset(instruction), label });
        let marks = marks.collect();
        Ok(Encoded { marks, metered: offset(self.metered), bytes: result.code_buffer })
    }

    /// What comes next serves this.
    fn mark(&mut self, label: impl Into<String>) {
        self.marks.push((self.assembler.instructions().len(), label.into()));
    }

    fn body(
        &mut self,
        kind: &str,
        pulls: &[Step],
        pushes: &[Step],
        metered: Option<[Metered; 2]>,
    ) -> Result<(), IcedError> {
        let [metered_pull, metered_push] = metered.map_or([None, None], |functions| functions.map(Some));
        let [mut head, mut busy, mut leave, mut halfway] = std::array::from_fn(|_| self.assembler.create_label());
        self.mark(format!("{kind}entry"));
        self.enter()?;
        self.mark(format!("{kind}head"));
        self.assembler.set_label(&mut head)?;
        let mut behind = Vec::new();
        for step in pulls {
            self.mark(format!("{kind}pull {}", self.name(step)));
            if step.count == 0 {
                self.assembler.mov(r12d, 1)?;
                self.call(step, metered_pull)?;
                continue;
            }
            let [out, mut back] = std::array::from_fn(|_| self.assembler.create_label());
            for index in step.first..step.first + step.count {
                self.test_slot(index, out)?;
            }
            self.assembler.set_label(&mut back)?;
            self.assembler.zero_bytes()?;
            behind.push((step, out, back));
        }
        if !pulls.is_empty() {
            self.mark(format!("{kind}pulls done"));
            self.assembler.cmp(dword_ptr(core!(failures)), 0)?;
            self.assembler.jne(halfway)?;
        }
        for group in pushes.chunk_by(|one, next| one.first / GROUP == next.first / GROUP) {
            self.group(kind, group, metered_push)?;
        }
        self.mark(format!("{kind}tail"));
        self.tail(head, busy, leave)?;
        self.mark(format!("{kind}tail of a breath with calls"));
        self.assembler.set_label(&mut busy)?;
        self.end_breath(head)?;
        self.mark(format!("{kind}leave"));
        self.assembler.set_label(&mut leave)?;
        self.leave()?;
        if !pulls.is_empty() {
            self.mark(format!("{kind}a pull panicked"));
            self.assembler.set_label(&mut halfway)?;
            self.assembler.mov(byte_ptr(core!(halfway)), 1)?;
            self.assembler.dec(r15)?;
            self.assembler.jmp(leave)?;
        }
        for (step, mut out, back) in behind {
            self.mark(format!("{kind}call pull {}", self.name(step)));
            self.assembler.set_label(&mut out)?;
            self.assembler.mov(r12d, 1)?;
            self.call(step, metered_pull)?;
            self.assembler.jmp(back)?;
        }
        Ok(())
    }

    /// Saves what the caller's registers hold, takes the arguments, and goes on at a multiple of [`ALIGNMENT`].
    fn enter(&mut self) -> Result<(), IcedError> {
        let a = &mut self.assembler;
        for register in [rbx, rbp, r12, r13, r14, r15] {
            a.push(register)?;
        }
        // Six registers and the return address: the stack is aligned for calls with 8 bytes more.
        a.sub(rsp, 8)?;
        a.mov(r14, rdi)?;
        a.mov(rbx, rsi)?;
        a.mov(rbp, rdx)?;
        a.mov(r13, rcx)?;
        a.mov(r15, r8)?;
        a.xor(r12d, r12d)?;
        // At its place: elsewhere calls are out of reach, and longer.
        let length = a.assemble(self.address as u64)?.len();
        a.nops_with_size(length.next_multiple_of(ALIGNMENT) - length)
    }

    fn leave(&mut self) -> Result<(), IcedError> {
        let a = &mut self.assembler;
        a.mov(rax, r15)?;
        a.add(rsp, 8)?;
        for register in [r15, r14, r13, r12, rbp, rbx] {
            a.pop(register)?;
        }
        a.ret()
    }

    /// To `ready` if the slot says that there is something to pull.
    fn test_slot(&mut self, index: usize, ready: CodeLabel) -> Result<(), IcedError> {
        let a = &mut self.assembler;
        a.mov(rax, qword_ptr(slot!(index, pointer)))?;
        a.mov(eax, dword_ptr(rax))?;
        a.and(eax, dword_ptr(slot!(index, mask)))?;
        a.cmp(eax, dword_ptr(slot!(index, value)))?;
        a.jne(ready)
    }

    /// The pushes of apps whose links have numbers in one group, or of one app with more.
    fn group(&mut self, kind: &str, steps: &[Step], metered: Option<Metered>) -> Result<(), IcedError> {
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return Ok(()) };
        let mut past = self.assembler.create_label();
        if steps.len() > 1 {
            self.mark(format!("{kind}test links into {} to {}", self.name(first), self.name(last)));
            self.test_together(first.first / GROUP * GROUP..last.first + last.count, past)?;
        }
        for step in steps {
            self.mark(format!("{kind}push {} [{}]", self.name(step), self.layout.links(step).join(", ")));
            let mut next = self.assembler.create_label();
            self.test_words(step, next)?;
            self.assembler.mov(r12d, 1)?;
            self.call(step, metered)?;
            self.assembler.set_label(&mut next)?;
            self.assembler.zero_bytes()?;
        }
        self.assembler.set_label(&mut past)?;
        self.assembler.zero_bytes()
    }

    /// To `none` if all of these words are 0: two at a time.
    fn test_together(&mut self, words: std::ops::Range<usize>, none: CodeLabel) -> Result<(), IcedError> {
        for (index, word) in words.step_by(2).enumerate() {
            let pair = qword_ptr(rbx + word * 4);
            match index {
                0 => self.assembler.mov(rax, pair)?,
                _ => self.assembler.or(rax, pair)?,
            }
        }
        self.assembler.test(rax, rax)?;
        self.assembler.je(none)
    }

    /// To `none` if no link of the app holds packets: one word at a time, because it may just have been written.
    fn test_words(&mut self, step: &Step, none: CodeLabel) -> Result<(), IcedError> {
        let a = &mut self.assembler;
        if step.count == 1 {
            a.cmp(dword_ptr(rbx + step.first * 4), 0)?;
            return a.je(none);
        }
        a.mov(eax, dword_ptr(rbx + step.first * 4))?;
        for word in step.first + 1..step.first + step.count {
            a.or(eax, dword_ptr(rbx + word * 4))?;
        }
        a.test(eax, eax)?;
        a.je(none)
    }

    fn call(&mut self, step: &Step, metered: Option<Metered>) -> Result<(), IcedError> {
        let place: *const Place = &raw const self.layout.places[step.app];
        self.assembler.mov(rdi, place as u64)?;
        match metered {
            None => self.assembler.call(step.call as usize as u64),
            Some(function) => {
                self.assembler.mov(rsi, step.call as usize as u64)?;
                self.assembler.call(function as usize as u64)
            }
        }
    }

    /// The end of a breath: the next one begins unless none is left or other threads want something.
    fn tail(&mut self, head: CodeLabel, busy: CodeLabel, leave: CodeLabel) -> Result<(), IcedError> {
        let a = &mut self.assembler;
        a.test(r12d, r12d)?;
        a.jne(busy)?;
        a.dec(r15)?;
        a.je(leave)?;
        a.cmp(dword_ptr(r13), 0)?;
        a.je(head)?;
        a.jmp(leave)
    }

    /// [`Core::end_breath`], then as [`Writer::tail`], but also a call may have asked for an interruption.
    fn end_breath(&mut self, head: CodeLabel) -> Result<(), IcedError> {
        let a = &mut self.assembler;
        let mut last = a.create_label();
        a.movzx(eax, byte_ptr(core!(progress)))?;
        a.xor(r12d, r12d)?;
        a.add(qword_ptr(core!(moved)), rax)?;
        a.mov(byte_ptr(core!(progress)), r12b)?;
        a.mov(qword_ptr(core!(now)), r12)?;
        a.dec(r15)?;
        a.je(last)?;
        a.mov(eax, dword_ptr(core!(interrupt)))?;
        a.or(eax, dword_ptr(r13))?;
        a.je(head)?;
        a.set_label(&mut last)?;
        a.zero_bytes()
    }

    fn name(&self, step: &Step) -> String {
        self.layout.outline.apps[step.app].name.clone()
    }
}
