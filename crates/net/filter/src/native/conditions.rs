//! Conditions of steps, as flags of the processor.

use std::error::Error;

use bellows_codemem::assembler::{Instruction, Written, memory};
use iced_x86::Register::{self, AL, EAX, ECX, R8, R8D, R11, R11D, RCX, RDI};
use iced_x86::{Code as Op, MemoryOperand};

use super::machine::{Flags, compare_memory, immediate, indexed, load_raw, raw, whole};
use super::short_lists::MAX_INTERVALS;
use super::values::Cached;
use super::writer::{Writer, too_large};
use super::{HANDLE_LENGTH_MASK, HANDLE_WORD};
use crate::graph::{ComparisonOperator, Operation, Width};
use crate::plan::Step;
use crate::plan::values::{Interval, Value, ValueId};

impl Writer<'_> {
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
                    ComparisonOperator::AnyBit => {
                        self.code.store(Op::Test_rm32_r32, self.slot(temporary), register)?;
                        Flags::NotEqual
                    }
                    other => {
                        self.code.load(Op::Cmp_r32_rm32, register, self.slot(temporary))?;
                        match other {
                            ComparisonOperator::Equal => Flags::Equal,
                            ComparisonOperator::Greater => Flags::Above,
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

    pub(super) fn compare_number(&mut self, register: Register, number: u32) -> Written {
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
    pub(super) fn length(&mut self) -> Written {
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

    pub(super) fn table(&mut self, register: Register, offset: usize) -> Written {
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
}
