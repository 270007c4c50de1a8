//! The loop over groups of packets: a filter for each packet of a group, one behind the other.
//!
//! One test says that all packets of a group are as long as the filter's usual path needs, so the paths test no length
//! again. A group with a shorter packet goes to the loop over single packets, and so does one with a packet that has
//! too few bytes for another path.
//!
//! The usual path of each packet runs straight into that of the next one. All other paths are behind the loop, and jump
//! back.

use bellows_codemem::assembler::{Instruction, Label, Written, memory};
use iced_x86::Register::{EAX, R9, R9L, R14, R14D, RAX, RBX, RDI, RDX, RSI, XMM4, XMM5, YMM0, YMM1, YMM4, YMM5};
use iced_x86::{Code as Op, MemoryOperand};

use super::machine::{immediate, indexed};
use super::writer::{Body, PREFETCH, Section, Writer};
use super::{HANDLE_LENGTH_MASK, HANDLE_SIZE};
use crate::plan::values::Value;
use crate::plan::{DecisionMode, Plan, Step, To};

/// Packets in a group: their verdicts are a byte.
const GROUP: usize = 8;

/// Steps of a plan, at most: there is a copy of them for each packet of a group.
const MAX_STEPS: usize = 32;

/// The usual path's bytes that are tested for all packets of a group, at most: ARP and UDP over IPv4 without data have
/// as many.
const MAX_ROOM: u32 = 42;

/// The EtherType of IPv6.
const IPV6: u32 = 0x86dd;

/// The loop over groups of packets.
pub(super) struct Groups {
    /// The first bytes that each packet of a group has.
    pub room: u32,
    /// Steps to which several paths lead.
    is_join: Vec<bool>,
    /// Goes on with the next group, or with single packets.
    pub resume: Label,
    /// Behind the last packet.
    pub end: Label,
    /// The start of a group.
    head: Label,
    /// Decides a group packet by packet.
    single: Label,
    /// Decides the last packets, which are no group, up to `rax`.
    rest: Label,
}

/// A packet of a group.
#[derive(Default)]
pub(super) struct Lane {
    /// Where its handle is, from that of the group's first packet.
    pub handle: usize,
    is_written: Vec<bool>,
    /// Steps that jumps lead to, which may be written already.
    pub later: Vec<usize>,
    /// The step that follows without a jump.
    through: Option<usize>,
    /// Whether the code for the next packet follows at the end of the path.
    is_usual: bool,
    next: Label,
}

impl Groups {
    /// A loop over groups, if the plan is short enough, and if a packet needs no state but its verdict.
    pub(super) fn of(plan: &Plan) -> Option<Groups> {
        let is_bits = plan.mode == DecisionMode::First && plan.filters == 1;
        let has_loop = plan.steps.iter().any(|step| matches!(step, Step::Again { .. } | Step::Note { .. }));
        let is_short = plan.steps.len() <= MAX_STEPS;
        if !is_bits || has_loop || !is_short || plan.reads_wire_length || !std::is_x86_feature_detected!("avx2") {
            return None;
        }
        let mut room = 0;
        let mut to = plan.entry;
        while let To::Step(step) = to {
            if let Some((need, _)) = fixed_room(plan, to) {
                room = if need <= MAX_ROOM { room.max(need) } else { room };
            }
            to = match &plan.steps[step as usize] {
                Step::Member { yes, .. } | Step::Compare { yes, .. } | Step::Tuple { yes, .. }
                    if prefers_yes(plan, step as usize) =>
                {
                    *yes
                }
                Step::Member { no, .. } | Step::Compare { no, .. } | Step::Tuple { no, .. } => *no,
                Step::Assign { next, .. } | Step::Again { next, .. } | Step::Note { next, .. } => *next,
            };
        }
        let mut groups = Groups {
            room,
            is_join: Vec::new(),
            resume: Label::default(),
            end: Label::default(),
            head: Label::default(),
            single: Label::default(),
            rest: Label::default(),
        };
        let mut paths = vec![0; plan.steps.len()];
        for step in 0..plan.steps.len() {
            if groups.known(plan, To::Step(step as u32)).is_some() {
                continue;
            }
            let (first, second) = match &plan.steps[step] {
                Step::Member { yes, no, .. } | Step::Compare { yes, no, .. } | Step::Tuple { yes, no, .. } => {
                    (*yes, Some(*no))
                }
                Step::Assign { next, .. } | Step::Again { next, .. } | Step::Note { next, .. } => (*next, None),
            };
            for to in [Some(first), second].into_iter().flatten() {
                if let To::Step(to) = groups.resolve(plan, to) {
                    paths[to as usize] += 1;
                }
            }
        }
        groups.is_join = paths.into_iter().map(|paths| paths > 1).collect();
        Some(groups)
    }

    /// Where a test leads whose outcome is known, because each packet of a group has the bytes.
    fn known(&self, plan: &Plan, to: To) -> Option<To> {
        fixed_room(plan, to).filter(|&(need, _)| need <= self.room).map(|(_, yes)| yes)
    }

    /// The first step whose outcome is not known.
    fn resolve(&self, plan: &Plan, mut to: To) -> To {
        while let Some(next) = self.known(plan, to) {
            to = next;
        }
        to
    }
}

/// If a step tests how many bytes the packet has: how many it needs, and where it leads then.
fn fixed_room(plan: &Plan, to: To) -> Option<(u32, To)> {
    let To::Step(step) = to else { return None };
    match &plan.steps[step as usize] {
        Step::Member { value, set, yes, .. } => match (plan.values.get(*value), &plan.sets[*set as usize][..]) {
            (Value::Room(None), &[(need, u32::MAX)]) => Some((need, *yes)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the path goes on, on most packets, where a test holds: it does not for that of IPv6.
fn prefers_yes(plan: &Plan, step: usize) -> bool {
    match &plan.steps[step] {
        Step::Member { set, yes, no, .. } => {
            let is_ipv6 = plan.sets[*set as usize][..] == [(IPV6, IPV6)];
            matches!(yes, To::Step(_)) && !(is_ipv6 && matches!(no, To::Step(_))) || matches!(no, To::End(_))
        }
        Step::Compare { yes, no, .. } | Step::Tuple { yes, no, .. } => {
            matches!(yes, To::Step(_)) || matches!(no, To::End(_))
        }
        Step::Assign { .. } | Step::Again { .. } | Step::Note { .. } => true,
    }
}

impl Writer<'_> {
    /// The first step from here on whose outcome is not known.
    pub(super) fn resolve(&self, to: To) -> To {
        match &self.groups {
            Some(groups) if self.body.lane.is_some() => groups.resolve(self.plan, to),
            _ => to,
        }
    }

    pub(super) fn prefers_yes(&self, step: usize) -> bool {
        prefers_yes(self.plan, step)
    }

    /// Where a test of the room leads if it holds.
    pub(super) fn room_step(&self, step: usize) -> Option<To> {
        match &self.plan.steps[step] {
            Step::Member { value, yes, .. } if matches!(self.plan.values.get(*value), Value::Room(_)) => Some(*yes),
            _ => None,
        }
    }

    /// Leaves a group with a packet that has too few bytes to the loop over single packets.
    pub(super) fn require_room(&mut self, step: usize) -> Written {
        let flags = self.condition(step)?;
        let Some(groups) = &mut self.groups else { return Ok(()) };
        self.code.jump(flags.negated().jump(), &mut groups.single)
    }

    /// Goes on with a step, or ends the path.
    pub(super) fn go_on(&mut self, to: To) -> Written {
        let Some(lane) = &mut self.body.lane else { return Ok(()) };
        match to {
            To::Step(step) if !lane.is_written[step as usize] => {
                lane.through = Some(step as usize);
                Ok(())
            }
            To::Step(_) => self.jump(Op::Jmp_rel32_64, to),
            To::End(verdict) => self.end_with(verdict),
        }
    }

    /// Goes on with the next packet.
    pub(super) fn end_lane(&mut self) -> Written {
        self.code.registers(Op::Adc_r64_rm64, R9, R9)?;
        match &mut self.body.lane {
            Some(lane) if !lane.is_usual => self.code.jump(Op::Jmp_rel32_64, &mut lane.next),
            _ => Ok(()),
        }
    }

    /// Writes the loop over groups, before that over single packets.
    pub(super) fn write_groups(&mut self) -> Written {
        let Some(mut groups) = self.groups.take() else { return Ok(()) };
        // The last word of verdicts may be less than full.
        self.code.load(Op::Lea_r64_m, RAX, MemoryOperand::with_base_displ(RSI, -1))?;
        self.code.registers(Op::Sub_r64_rm64, RAX, RDI)?;
        self.code.put(Instruction::with2(Op::Shr_rm64_imm8, RAX, (64 * HANDLE_SIZE).trailing_zeros())?)?;
        self.code.immediate(Op::Mov_rm64_imm32, indexed(RBX, RAX, 8, 0), 0)?;
        if groups.room > 0 {
            for (vector, whole, number) in [(XMM4, YMM4, HANDLE_LENGTH_MASK), (XMM5, YMM5, groups.room)] {
                self.code.put(immediate(Op::Mov_r32_imm32, EAX, number)?)?;
                self.code.registers(Op::VEX_Vmovd_xmm_rm32, vector, EAX)?;
                self.code.registers(Op::VEX_Vpbroadcastq_ymm_xmmm64, whole, vector)?;
            }
        }
        self.next_groups(&mut groups)?;
        self.code.align(64)?;
        self.code.place(&mut groups.head);
        self.group_room(&mut groups)?;
        let entry = self.plan.entry;
        self.groups = Some(groups);
        let single = std::mem::take(&mut self.body);
        let mut bodies = Vec::with_capacity(GROUP);
        // The first packet comes last, so that its verdict is in the lowest bit.
        for lane in (0..GROUP).rev() {
            let steps = self.plan.steps.len();
            let lane =
                Lane { handle: lane * HANDLE_SIZE, is_written: vec![false; steps], is_usual: true, ..Lane::default() };
            self.body = Body::new(steps, Some(lane));
            self.begin_lane()?;
            self.now = 0;
            self.goto(entry, usize::MAX)?;
            self.write_path()?;
            let mut body = std::mem::take(&mut self.body);
            if let Some(lane) = &mut body.lane {
                self.code.place(&mut lane.next);
                lane.is_usual = false;
            }
            bodies.push(body);
        }
        self.code.mark(Section::Verdict);
        if let Some(mut groups) = self.groups.take() {
            self.end_group(&mut groups)?;
            self.groups = Some(groups);
        }
        for body in bodies {
            self.body = body;
            self.write_other_paths()?;
        }
        self.body = single;
        self.code.mark(Section::Verdict);
        if let Some(mut groups) = self.groups.take() {
            self.single_group(&mut groups)?;
            self.groups = Some(groups);
        }
        Ok(())
    }

    /// Finds out what comes next: groups with packets to prefetch, the last ones without, or single packets.
    fn next_groups(&mut self, groups: &mut Groups) -> Written {
        const BYTES: i32 = (GROUP * HANDLE_SIZE) as i32;
        const AHEAD: i32 = (PREFETCH * HANDLE_SIZE) as i32;
        let (mut with_prefetch, mut has_groups) = (Label::default(), Label::default());
        self.code.place(&mut groups.resume);
        self.code.load(Op::Mov_r64_rm64, RAX, self.slot(Self::LAST_END))?;
        self.code.registers(Op::Sub_r64_rm64, RAX, RDI)?;
        self.code.jump(Op::Je_rel32_64, &mut groups.end)?;
        self.code.put(immediate(Op::Mov_r32_imm32, R14D, AHEAD as u32)?)?;
        self.code.put(Instruction::with2(Op::Sub_rm64_imm32, RAX, AHEAD)?)?;
        self.code.put(Instruction::with2(Op::Cmp_rm64_imm32, RAX, BYTES)?)?;
        self.code.jump(Op::Jge_rel32_64, &mut with_prefetch)?;
        self.code.registers(Op::Xor_r32_rm32, R14D, R14D)?;
        self.code.put(Instruction::with2(Op::Add_rm64_imm32, RAX, AHEAD)?)?;
        self.code.put(Instruction::with2(Op::Cmp_rm64_imm32, RAX, BYTES)?)?;
        self.code.jump(Op::Jge_rel32_64, &mut has_groups)?;
        self.code.registers(Op::Add_r64_rm64, RAX, RDI)?;
        self.code.jump(Op::Jmp_rel32_64, &mut groups.rest)?;
        self.code.place(&mut with_prefetch);
        self.code.place(&mut has_groups);
        self.code.put(Instruction::with2(Op::And_rm64_imm32, RAX, -BYTES)?)?;
        self.code.registers(Op::Add_r64_rm64, RAX, RDI)?;
        self.code.store(Op::Mov_rm64_r64, self.slot(Self::GROUPS_END), RAX)
    }

    /// Tests whether all packets of a group have the bytes that the usual path needs.
    fn group_room(&mut self, groups: &mut Groups) -> Written {
        if groups.room == 0 {
            return Ok(());
        }
        // The words with the lengths, then these alone.
        for (vector, first) in [(YMM0, 0), (YMM1, 4)] {
            self.code.load(Op::VEX_Vmovdqu_ymm_ymmm256, vector, memory(RDI, first * HANDLE_SIZE))?;
            let others = memory(RDI, (first + 2) * HANDLE_SIZE);
            self.code.put(Instruction::with3(Op::VEX_Vpunpckhqdq_ymm_ymm_ymmm256, vector, vector, others)?)?;
            self.code.put(Instruction::with3(Op::VEX_Vpand_ymm_ymm_ymmm256, vector, vector, YMM4)?)?;
        }
        self.code.put(Instruction::with3(Op::VEX_Vpminud_ymm_ymm_ymmm256, YMM0, YMM0, YMM1)?)?;
        self.code.put(Instruction::with3(Op::VEX_Vpcmpgtd_ymm_ymm_ymmm256, YMM0, YMM5, YMM0)?)?;
        self.code.registers(Op::VEX_Vpmovmskb_r32_ymm, EAX, YMM0)?;
        self.code.registers(Op::Test_rm32_r32, EAX, EAX)?;
        self.code.jump(Op::Jne_rel32_64, &mut groups.single)
    }

    fn begin_lane(&mut self) -> Written {
        let handle = self.body.lane.as_ref().map_or(0, |lane| lane.handle);
        self.code.mark(Section::Entry);
        self.code.load(Op::Mov_r64_rm64, RDX, memory(RDI, handle))?;
        self.code.load(Op::Mov_r64_rm64, RAX, indexed(RDI, R14, 1, handle as i64))?;
        self.code.put(Instruction::with1(Op::Prefetcht0_m8, memory(RAX, 0))?)
    }

    /// Writes the steps from the one that follows to the end of the path.
    fn write_path(&mut self) -> Written {
        while let Some(step) = self.body.lane.as_mut().and_then(|lane| lane.through.take()) {
            if let Some(lane) = &mut self.body.lane {
                lane.is_written[step] = true;
            }
            let is_join = self.groups.as_ref().is_none_or(|groups| groups.is_join[step]);
            self.start_step(step, is_join);
            self.place_step(step);
            self.step(step)?;
        }
        Ok(())
    }

    /// Writes the paths of a packet that jumps lead to.
    fn write_other_paths(&mut self) -> Written {
        while let Some(lane) = &mut self.body.lane
            && let Some(step) = lane.later.pop()
        {
            if !lane.is_written[step] {
                lane.through = Some(step);
                self.write_path()?;
            }
        }
        self.code.mark(Section::Verdict);
        self.write_verdicts()
    }

    /// Goes on with the next group.
    fn end_group(&mut self, groups: &mut Groups) -> Written {
        self.code.store(Op::Mov_rm8_r8, memory(RBX, 0), R9L)?;
        self.code.register(Op::Inc_rm64, RBX)?;
        self.code.put(Instruction::with2(Op::Add_rm64_imm32, RDI, (GROUP * HANDLE_SIZE) as i32)?)?;
        self.code.load(Op::Cmp_r64_rm64, RDI, self.slot(Self::GROUPS_END))?;
        self.code.jump(Op::Jne_rel32_64, &mut groups.head)?;
        self.code.jump(Op::Jmp_rel32_64, &mut groups.resume)
    }

    /// Decides a group, or what is less than one, packet by packet.
    fn single_group(&mut self, groups: &mut Groups) -> Written {
        self.code.place(&mut groups.single);
        self.code.load(Op::Lea_r64_m, RAX, memory(RDI, GROUP * HANDLE_SIZE))?;
        self.code.place(&mut groups.rest);
        self.code.store(Op::Mov_rm64_r64, self.slot(Self::END), RAX)?;
        self.reset_bits()?;
        self.code.jump(Op::Jmp_rel32_64, &mut self.head)
    }

    /// Stores the verdicts of single packets.
    pub(super) fn end_singles(&mut self) -> Written {
        self.code.store(Op::Mov_rm8_r8, memory(RBX, 0), R9L)?;
        self.code.register(Op::Inc_rm64, RBX)?;
        let Some(groups) = &mut self.groups else { return Ok(()) };
        self.code.jump(Op::Jmp_rel32_64, &mut groups.resume)?;
        self.code.place(&mut groups.end);
        self.code.put(Instruction::with(Op::VEX_Vzeroupper))
    }
}
