//! Values in registers: those that several tests use stay there.

use std::error::Error;

use bellows_codemem::assembler::{Instruction, Written};
use iced_x86::Register::{self, EAX, ECX, R8D, R10D, R11, R11D, R12D, R13D, RCX, RDX};
use iced_x86::{Code as Op, MemoryOperand};

use super::machine::{immediate, indexed, low_half, whole};
use super::writer::{MAX_TEMPORARIES, Writer, too_large};
use crate::graph::{Operation, Width};
use crate::plan::Step;
use crate::plan::values::{FastMap, Value, ValueId};

/// Registers for values that several tests use.
const CACHE: [Register; 3] = [R10D, R12D, R13D];

/// A register for a value.
#[derive(Clone, Copy)]
pub(super) struct Cached {
    pub position: usize,
    /// It holds the bytes in the order of the packet, because the value is only compared with numbers.
    pub is_raw: bool,
}

impl Writer<'_> {
    /// Chooses the values that are kept in registers: those that most tests use.
    pub(super) fn choose_cached(&mut self) {
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
    pub(super) fn count(&self, value: ValueId, is_point: bool, uses: &mut FastMap<ValueId, (u32, bool)>) {
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
}
