//! Tests whether words of a packet are in a set of tuples.

use bellows_codemem::assembler::{Instruction, Label, Written, memory};
use iced_x86::Register::{self, EAX, R8, R8D, R11, R11D, RDX, RSI};
use iced_x86::{Code as Op, MemoryOperand};

use super::machine::{immediate, indexed};
use super::tables::SECOND_PLACE;
use super::writer::{Writer, too_large};
use crate::plan::To;
use crate::plan::values::Value;

/// The hash of a tuple: the checksum CRC-32C of its bytes, as the processor computes it.
pub(super) fn hash(seed: u32, words: &[u32]) -> u32 {
    words.iter().fold(seed, |hash, word| {
        (0..32).fold(hash ^ word, |hash, _| hash >> 1 ^ if hash & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

impl Writer<'_> {
    /// A test whether words are in a set of tuples.
    pub(super) fn tuples(&mut self, number: u32, yes: To, no: To, current: usize) -> Written {
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
