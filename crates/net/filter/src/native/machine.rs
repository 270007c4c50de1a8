//! Parts of instructions: flags, operands and registers.

use bellows_codemem::assembler::Instruction;
use iced_x86::Register::{AL, AX, EAX, EBP, R8, R8D, R10D, R11, R11D, R12D, R13D, R15D, RAX};
use iced_x86::{Code as Op, IcedError, MemoryOperand, Register};

use crate::graph::Width;

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

    pub(super) fn set(self) -> Op {
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

pub(super) fn immediate(op: Op, register: Register, value: u32) -> Result<Instruction, IcedError> {
    let is_short = i8::try_from(value.cast_signed()).is_ok();
    let op = match op {
        Op::Add_rm32_imm32 if is_short => Op::Add_rm32_imm8,
        Op::And_rm32_imm32 if is_short => Op::And_rm32_imm8,
        Op::Or_rm32_imm32 if is_short => Op::Or_rm32_imm8,
        Op::Xor_rm32_imm32 if is_short => Op::Xor_rm32_imm8,
        Op::Cmp_rm32_imm32 if is_short => Op::Cmp_rm32_imm8,
        _ => op,
    };
    Instruction::with2(op, register, value.cast_signed())
}

pub(super) fn indexed(base: Register, index: Register, scale: u32, displacement: i64) -> MemoryOperand {
    MemoryOperand::with_base_index_scale_displ_size(base, index, scale, displacement, 1)
}

pub(super) fn whole(register: Register) -> Register {
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

pub(super) fn low_byte(register: Register) -> Register {
    match register {
        EBP => Register::BPL,
        R15D => Register::R15L,
        _ => AL,
    }
}

pub(super) fn low_half(register: Register) -> Register {
    match register {
        R10D => Register::R10W,
        R12D => Register::R12W,
        R13D => Register::R13W,
        _ => AX,
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

pub(super) fn compare_memory(width: Width, number: u32) -> (Op, i32) {
    let number = raw(width, number);
    match width {
        Width::Byte => (Op::Cmp_rm8_imm8, i32::from(number as i8)),
        Width::Half => (Op::Cmp_rm16_imm16, i32::from(number as i16)),
        Width::Word => (Op::Cmp_rm32_imm32, number.cast_signed()),
    }
}
