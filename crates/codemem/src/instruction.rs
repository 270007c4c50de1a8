//! Machine instructions as bytes.
//!
//! The instructions that generated code consists of are encoded by a short table, because the general encoder of
//! `iced-x86` builds a table of all instructions when it is used first: a millisecond in each process, much more than
//! the code of a filter takes. It encodes the others.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2.

mod vex;

use std::error::Error;
use std::ops::RangeInclusive;

use iced_x86::{Code as Op, Encoder, MemoryOperand, Register};

use self::Class::{Byte, Double, Half, Quad, Vector, WideVector};
use self::Fields::{
    InOpcode, InOpcodeNumber, Plain, RegReg, RegRm, RegRmNumber, RegVvvvRm, Relative, Rm, RmFixed, RmNumber, RmReg,
};
use self::Number::{AnyByte, AnyDouble, AnyHalf, AnyQuad, SignedByte, SignedDouble};
use self::vex::Vex;

/// The maximum length of an instruction in bytes.
const MAX_LENGTH: usize = 15;

/// An encoded instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    bytes: [u8; MAX_LENGTH],
    length: u8,
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// A register.
    Register(Register),
    /// Bytes of memory.
    Memory(MemoryOperand),
    /// An immediate number.
    Number(i128),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Operand {
        Operand::Register(register)
    }
}

impl From<MemoryOperand> for Operand {
    fn from(memory: MemoryOperand) -> Operand {
        Operand::Memory(memory)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Operand {
        Operand::Number(number.into())
    }
}

impl From<u32> for Operand {
    fn from(number: u32) -> Operand {
        Operand::Number(number.into())
    }
}

impl From<u64> for Operand {
    fn from(number: u64) -> Operand {
        Operand::Number(number.into())
    }
}

/// An instruction, or why it cannot be encoded.
pub type Encoded = Result<Instruction, Box<dyn Error>>;

impl Instruction {
    /// An instruction without operands.
    ///
    /// # Errors
    /// It needs operands.
    pub fn with(op: Op) -> Encoded {
        Instruction::of(op, &[])
    }

    /// An instruction with an operand.
    ///
    /// # Errors
    /// It has no such operand.
    pub fn with1(op: Op, operand: impl Into<Operand>) -> Encoded {
        Instruction::of(op, &[operand.into()])
    }

    /// An instruction with two operands, the destination first.
    ///
    /// # Errors
    /// It has no such operands.
    pub fn with2(op: Op, first: impl Into<Operand>, second: impl Into<Operand>) -> Encoded {
        Instruction::of(op, &[first.into(), second.into()])
    }

    /// An instruction with three operands, the destination first.
    ///
    /// # Errors
    /// It has no such operands.
    pub fn with3(op: Op, first: impl Into<Operand>, second: impl Into<Operand>, third: impl Into<Operand>) -> Encoded {
        Instruction::of(op, &[first.into(), second.into(), third.into()])
    }

    /// Whether the table has an instruction, so that encoding it is cheap from the first time on.
    #[doc(hidden)]
    pub fn is_in_table(op: Op) -> bool {
        form(op).is_some()
    }

    /// A jump or a call with a displacement of 0, and the bytes of the displacement, which are the last ones.
    pub(crate) fn branch(op: Op) -> Result<(Instruction, usize), Box<dyn Error>> {
        let Some(Form { fields: Relative(size), opcode, .. }) = form(op) else {
            return Err(format!("the instruction {} is no relative branch of the table", op as usize).into());
        };
        let mut instruction = Instruction::default();
        instruction.opcode(opcode);
        (0..size).for_each(|_| instruction.push(0));
        Ok((instruction, size))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }

    fn of(op: Op, operands: &[Operand]) -> Encoded {
        match form(op) {
            Some(form) => by_table(form, operands).ok_or_else(|| {
                format!("the instruction {} does not have the operands {operands:?}", op as usize).into()
            }),
            None => by_iced(op, operands),
        }
    }

    fn push(&mut self, byte: u8) {
        self.bytes[usize::from(self.length)] = byte;
        self.length += 1;
    }

    /// Appends an opcode with the bytes that select its table.
    fn opcode(&mut self, opcode: u32) {
        let [_, first, second, last] = opcode.to_be_bytes();
        for byte in [first, second].into_iter().skip_while(|&byte| byte == 0) {
            self.push(byte);
        }
        self.push(last);
    }

    fn number(&mut self, number: i128, size: usize) {
        number.to_le_bytes()[..size].iter().for_each(|&byte| self.push(byte));
    }
}

/// The size of a register, or of what is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Byte,
    Half,
    Double,
    Quad,
    Vector,
    /// Of 256 bits.
    WideVector,
    /// Only memory, of any size.
    Memory,
}

/// The range of an immediate number, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// Extended by its sign.
    SignedByte,
    AnyByte,
    AnyHalf,
    AnyDouble,
    /// Extended by its sign.
    SignedDouble,
    AnyQuad,
}

impl Number {
    fn size(self) -> usize {
        match self {
            SignedByte | AnyByte => 1,
            AnyHalf => 2,
            AnyDouble | SignedDouble => 4,
            AnyQuad => 8,
        }
    }

    fn range(self) -> RangeInclusive<i128> {
        match self {
            SignedByte => i8::MIN.into()..=i8::MAX.into(),
            AnyByte => i8::MIN.into()..=u8::MAX.into(),
            AnyHalf => i16::MIN.into()..=u16::MAX.into(),
            AnyDouble => i32::MIN.into()..=u32::MAX.into(),
            SignedDouble => i32::MIN.into()..=i32::MAX.into(),
            AnyQuad => i64::MIN.into()..=u64::MAX.into(),
        }
    }
}

/// Where operands are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fields {
    Plain,
    /// A register in the low bits of the opcode.
    InOpcode(Class),
    InOpcodeNumber(Class, Number),
    /// A register or memory; the field for a register belongs to the opcode.
    Rm(Class, u8),
    RmNumber(Class, u8, Number),
    /// The second operand is part of the opcode: the register CL, or the number 1.
    RmFixed(Class, u8),
    /// A register, then a register or memory.
    RegRm(Class, Class),
    RegRmNumber(Class, Class, Number),
    RmReg(Class, Class),
    /// Two registers, encoded as a register and a register or memory.
    RegReg(Class, Class),
    /// A register, one in the VEX prefix, then a register or memory.
    RegVvvvRm(Class),
    /// A displacement of so many bytes.
    Relative(usize),
}

/// How an instruction is encoded.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// 0 for none.
    prefix: u8,
    /// With the bytes in front that select its table.
    opcode: u32,
    /// With a VEX prefix, `prefix` and those bytes are in it.
    vex: Option<Vex>,
    fields: Fields,
    /// Whether it has operands of 64 bits by default.
    is_wide_by_default: bool,
}

impl Form {
    fn new(opcode: u32, fields: Fields) -> Form {
        Form { prefix: 0, opcode, vex: None, fields, is_wide_by_default: false }
    }

    fn prefixed(prefix: u8, opcode: u32, fields: Fields) -> Form {
        Form { prefix, ..Form::new(opcode, fields) }
    }

    /// The class that decides about the size of the operation.
    fn class(self) -> Option<Class> {
        match self.fields {
            Plain | Relative(_) => None,
            InOpcode(class)
            | InOpcodeNumber(class, _)
            | Rm(class, _)
            | RmNumber(class, ..)
            | RmFixed(class, _)
            | RegRm(class, _)
            | RegRmNumber(class, ..)
            | RmReg(class, _)
            | RegReg(class, _)
            | RegVvvvRm(class) => Some(class),
        }
    }
}

/// The form of an instruction in the table.
#[rustfmt::skip]
fn form(op: Op) -> Option<Form> {
    let form = Form::new;
    let prefixed = Form::prefixed;
    Some(match op {
        // Moves.
        Op::Mov_r32_rm32 => form(0x8b, RegRm(Double, Double)),
        Op::Mov_r64_rm64 => form(0x8b, RegRm(Quad, Quad)),
        Op::Mov_rm8_r8 => form(0x88, RmReg(Byte, Byte)),
        Op::Mov_rm16_r16 => form(0x89, RmReg(Half, Half)),
        Op::Mov_rm32_r32 => form(0x89, RmReg(Double, Double)),
        Op::Mov_rm64_r64 => form(0x89, RmReg(Quad, Quad)),
        Op::Mov_rm8_imm8 => form(0xc6, RmNumber(Byte, 0, AnyByte)),
        Op::Mov_rm64_imm32 => form(0xc7, RmNumber(Quad, 0, SignedDouble)),
        Op::Mov_r32_imm32 => form(0xb8, InOpcodeNumber(Double, AnyDouble)),
        Op::Mov_r64_imm64 => form(0xb8, InOpcodeNumber(Quad, AnyQuad)),
        Op::Movzx_r32_rm8 => form(0x0fb6, RegRm(Double, Byte)),
        Op::Movzx_r32_rm16 => form(0x0fb7, RegRm(Double, Half)),
        Op::Lea_r32_m => form(0x8d, RegRm(Double, Class::Memory)),
        Op::Lea_r64_m => form(0x8d, RegRm(Quad, Class::Memory)),
        Op::Push_r64 => Form { is_wide_by_default: true, ..form(0x50, InOpcode(Quad)) },
        Op::Pop_r64 => Form { is_wide_by_default: true, ..form(0x58, InOpcode(Quad)) },
        Op::Bswap_r32 => form(0x0fc8, InOpcode(Double)),
        Op::Prefetcht0_m8 => form(0x0f18, Rm(Class::Memory, 1)),

        // Arithmetic.
        Op::Add_r32_rm32 => form(0x03, RegRm(Double, Double)),
        Op::Add_r64_rm64 => form(0x03, RegRm(Quad, Quad)),
        Op::Adc_r64_rm64 => form(0x13, RegRm(Quad, Quad)),
        Op::Add_rm64_r64 => form(0x01, RmReg(Quad, Quad)),
        Op::Or_r32_rm32 => form(0x0b, RegRm(Double, Double)),
        Op::Or_r64_rm64 => form(0x0b, RegRm(Quad, Quad)),
        Op::Sbb_r32_rm32 => form(0x1b, RegRm(Double, Double)),
        Op::And_r32_rm32 => form(0x23, RegRm(Double, Double)),
        Op::Sub_r32_rm32 => form(0x2b, RegRm(Double, Double)),
        Op::Sub_r64_rm64 => form(0x2b, RegRm(Quad, Quad)),
        Op::Xor_r32_rm32 => form(0x33, RegRm(Double, Double)),
        Op::Cmp_r32_rm32 => form(0x3b, RegRm(Double, Double)),
        Op::Cmp_r64_rm64 => form(0x3b, RegRm(Quad, Quad)),
        Op::Add_rm32_imm8 => form(0x83, RmNumber(Double, 0, SignedByte)),
        Op::Add_rm64_imm8 => form(0x83, RmNumber(Quad, 0, SignedByte)),
        Op::Or_rm32_imm8 => form(0x83, RmNumber(Double, 1, SignedByte)),
        Op::Adc_rm32_imm8 => form(0x83, RmNumber(Double, 2, SignedByte)),
        Op::And_rm32_imm8 => form(0x83, RmNumber(Double, 4, SignedByte)),
        Op::Sub_rm64_imm8 => form(0x83, RmNumber(Quad, 5, SignedByte)),
        Op::Xor_rm32_imm8 => form(0x83, RmNumber(Double, 6, SignedByte)),
        Op::Cmp_rm32_imm8 => form(0x83, RmNumber(Double, 7, SignedByte)),
        Op::Cmp_rm64_imm8 => form(0x83, RmNumber(Quad, 7, SignedByte)),
        Op::Cmp_rm8_imm8 => form(0x80, RmNumber(Byte, 7, AnyByte)),
        Op::Add_rm32_imm32 => form(0x81, RmNumber(Double, 0, AnyDouble)),
        Op::Add_rm64_imm32 => form(0x81, RmNumber(Quad, 0, SignedDouble)),
        Op::Or_rm32_imm32 => form(0x81, RmNumber(Double, 1, AnyDouble)),
        Op::And_rm32_imm32 => form(0x81, RmNumber(Double, 4, AnyDouble)),
        Op::And_rm64_imm32 => form(0x81, RmNumber(Quad, 4, SignedDouble)),
        Op::Sub_rm64_imm32 => form(0x81, RmNumber(Quad, 5, SignedDouble)),
        Op::Xor_rm32_imm32 => form(0x81, RmNumber(Double, 6, AnyDouble)),
        Op::Cmp_rm16_imm16 => form(0x81, RmNumber(Half, 7, AnyHalf)),
        Op::Cmp_rm32_imm32 => form(0x81, RmNumber(Double, 7, AnyDouble)),
        Op::Cmp_rm64_imm32 => form(0x81, RmNumber(Quad, 7, SignedDouble)),
        Op::Test_rm32_r32 => form(0x85, RmReg(Double, Double)),
        Op::Test_rm64_r64 => form(0x85, RmReg(Quad, Quad)),
        Op::Test_rm8_imm8 => form(0xf6, RmNumber(Byte, 0, AnyByte)),
        Op::Test_rm16_imm16 => form(0xf7, RmNumber(Half, 0, AnyHalf)),
        Op::Test_rm32_imm32 => form(0xf7, RmNumber(Double, 0, AnyDouble)),
        Op::Not_rm32 => form(0xf7, Rm(Double, 2)),
        Op::Neg_rm32 => form(0xf7, Rm(Double, 3)),
        Op::Neg_rm64 => form(0xf7, Rm(Quad, 3)),
        Op::Div_rm32 => form(0xf7, Rm(Double, 6)),
        Op::Inc_rm32 => form(0xff, Rm(Double, 0)),
        Op::Inc_rm64 => form(0xff, Rm(Quad, 0)),
        Op::Dec_rm64 => form(0xff, Rm(Quad, 1)),
        Op::Imul_r32_rm32 => form(0x0faf, RegRm(Double, Double)),
        Op::Imul_r64_rm64 => form(0x0faf, RegRm(Quad, Quad)),
        Op::Crc32_r32_rm32 => prefixed(0xf2, 0x0f_38f1, RegRm(Double, Double)),

        // Bits.
        Op::Rol_rm16_imm8 => form(0xc1, RmNumber(Half, 0, AnyByte)),
        Op::Shl_rm32_imm8 => form(0xc1, RmNumber(Double, 4, AnyByte)),
        Op::Shl_rm64_imm8 => form(0xc1, RmNumber(Quad, 4, AnyByte)),
        Op::Shr_rm32_imm8 => form(0xc1, RmNumber(Double, 5, AnyByte)),
        Op::Shr_rm64_imm8 => form(0xc1, RmNumber(Quad, 5, AnyByte)),
        Op::Rcr_rm64_1 => form(0xd1, RmFixed(Quad, 3)),
        Op::Shr_rm64_1 => form(0xd1, RmFixed(Quad, 5)),
        Op::Shl_rm32_CL => form(0xd3, RmFixed(Double, 4)),
        Op::Shr_rm32_CL => form(0xd3, RmFixed(Double, 5)),
        Op::Shr_rm64_CL => form(0xd3, RmFixed(Quad, 5)),
        Op::Bt_rm32_r32 => form(0x0fa3, RmReg(Double, Double)),
        Op::Bts_rm64_imm8 => form(0x0fba, RmNumber(Quad, 5, AnyByte)),
        Op::Bsf_r64_rm64 => form(0x0fbc, RegRm(Quad, Quad)),

        // Flags.
        Op::Cmc => form(0xf5, Plain),
        Op::Clc => form(0xf8, Plain),
        Op::Stc => form(0xf9, Plain),
        Op::Setb_rm8 => form(0x0f92, Rm(Byte, 0)),
        Op::Setae_rm8 => form(0x0f93, Rm(Byte, 0)),
        Op::Sete_rm8 => form(0x0f94, Rm(Byte, 0)),
        Op::Setne_rm8 => form(0x0f95, Rm(Byte, 0)),
        Op::Setbe_rm8 => form(0x0f96, Rm(Byte, 0)),
        Op::Seta_rm8 => form(0x0f97, Rm(Byte, 0)),
        Op::Cmovb_r32_rm32 => form(0x0f42, RegRm(Double, Double)),
        Op::Cmovae_r32_rm32 => form(0x0f43, RegRm(Double, Double)),
        Op::Cmove_r32_rm32 => form(0x0f44, RegRm(Double, Double)),
        Op::Cmovne_r32_rm32 => form(0x0f45, RegRm(Double, Double)),
        Op::Cmovbe_r32_rm32 => form(0x0f46, RegRm(Double, Double)),
        Op::Cmova_r32_rm32 => form(0x0f47, RegRm(Double, Double)),
        Op::Cmovbe_r64_rm64 => form(0x0f46, RegRm(Quad, Quad)),

        // Branches.
        Op::Retnq => form(0xc3, Plain),
        Op::Call_rel32_64 => form(0xe8, Relative(4)),
        Op::Jmp_rel8_64 => form(0xeb, Relative(1)),
        Op::Jmp_rel32_64 => form(0xe9, Relative(4)),
        Op::Je_rel8_64 => form(0x74, Relative(1)),
        Op::Jne_rel8_64 => form(0x75, Relative(1)),
        Op::Jb_rel32_64 => form(0x0f82, Relative(4)),
        Op::Jae_rel32_64 => form(0x0f83, Relative(4)),
        Op::Je_rel32_64 => form(0x0f84, Relative(4)),
        Op::Jne_rel32_64 => form(0x0f85, Relative(4)),
        Op::Jbe_rel32_64 => form(0x0f86, Relative(4)),
        Op::Ja_rel32_64 => form(0x0f87, Relative(4)),
        Op::Jge_rel32_64 => form(0x0f8d, Relative(4)),

        // Vectors.
        Op::Movd_xmm_rm32 => prefixed(0x66, 0x0f6e, RegRm(Vector, Double)),
        Op::Movdqa_xmm_xmmm128 => prefixed(0x66, 0x0f6f, RegRm(Vector, Vector)),
        Op::Movdqu_xmm_xmmm128 => prefixed(0xf3, 0x0f6f, RegRm(Vector, Vector)),
        Op::Pshufd_xmm_xmmm128_imm8 => prefixed(0x66, 0x0f70, RegRmNumber(Vector, Vector, AnyByte)),
        Op::Pcmpeqd_xmm_xmmm128 => prefixed(0x66, 0x0f76, RegRm(Vector, Vector)),
        Op::Por_xmm_xmmm128 => prefixed(0x66, 0x0feb, RegRm(Vector, Vector)),
        Op::Psubd_xmm_xmmm128 => prefixed(0x66, 0x0ffa, RegRm(Vector, Vector)),
        Op::Ptest_xmm_xmmm128 => prefixed(0x66, 0x0f_3817, RegRm(Vector, Vector)),
        Op::Pminud_xmm_xmmm128 => prefixed(0x66, 0x0f_383b, RegRm(Vector, Vector)),
        _ => return vex::form(op),
    })
}

/// What a register needs to be told from another one with its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Need {
    #[default]
    Nothing,
    /// A REX prefix.
    Rex,
    /// No REX prefix.
    NoRex,
}

/// The number of a register of a class, and what tells it from another one.
fn number(register: Register, class: Class) -> Option<(u8, Need)> {
    let within = |first: Register| {
        let number = (register as usize).checked_sub(first as usize)?;
        (number < 16).then_some((number as u8, Need::Nothing))
    };
    match class {
        // AH to BH have the numbers 4 to 7 without the prefix, SPL to DIL with it.
        Byte => match (register as usize).checked_sub(Register::AL as usize)? {
            number @ 0..4 => Some((number as u8, Need::Nothing)),
            number @ 4..8 => Some((number as u8, Need::NoRex)),
            number @ 8..12 => Some((number as u8 - 4, Need::Rex)),
            number @ 12..20 => Some((number as u8 - 4, Need::Nothing)),
            _ => None,
        },
        Half => within(Register::AX),
        Double => within(Register::EAX),
        Quad => within(Register::RAX),
        Vector => within(Register::XMM0),
        WideVector => within(Register::YMM0),
        Class::Memory => None,
    }
}

/// Encodes an instruction of the table. `None` if it has no such operands.
fn by_table(form: Form, operands: &[Operand]) -> Option<Instruction> {
    use Operand::{Memory, Number, Register};
    match (form.fields, operands) {
        (Plain, []) => encode(form, None, None, None),
        (InOpcode(class), &[Register(register)]) => encode(form, Some(number(register, class)?), None, None),
        (InOpcodeNumber(class, size), &[Register(register), Number(value)]) => {
            encode(form, Some(number(register, class)?), None, Some((value, size)))
        }
        (Rm(class, digit), &[rm @ (Register(_) | Memory(_))]) => {
            encode(form, Some((digit, Need::Nothing)), Some((rm, class)), None)
        }
        (RmNumber(class, digit, size), &[rm @ (Register(_) | Memory(_)), Number(value)]) => {
            encode(form, Some((digit, Need::Nothing)), Some((rm, class)), Some((value, size)))
        }
        (RmFixed(class, digit), &[rm @ (Register(_) | Memory(_)), second]) => {
            let is_count = form.opcode == 0xd3;
            let is_it = match second {
                Register(register) => is_count && register == iced_x86::Register::CL,
                Number(number) => !is_count && number == 1,
                Memory(_) => false,
            };
            if is_it { encode(form, Some((digit, Need::Nothing)), Some((rm, class)), None) } else { None }
        }
        (RegRm(to, from), &[Register(register), rm @ (Register(_) | Memory(_))])
        | (RmReg(from, to), &[rm @ (Register(_) | Memory(_)), Register(register)]) => {
            encode(form, Some(number(register, to)?), Some((rm, from)), None)
        }
        (RegRmNumber(to, from, size), &[Register(register), rm @ (Register(_) | Memory(_)), Number(value)]) => {
            encode(form, Some(number(register, to)?), Some((rm, from)), Some((value, size)))
        }
        (RegReg(to, from), &[Register(register), rm @ Register(_)]) => {
            encode(form, Some(number(register, to)?), Some((rm, from)), None)
        }
        (RegVvvvRm(class), &[Register(register), Register(source), rm @ (Register(_) | Memory(_))]) => {
            let (vvvv, _) = number(source, class)?;
            let form = Form { vex: form.vex.map(|vex| Vex { vvvv, ..vex }), ..form };
            encode(form, Some(number(register, class)?), Some((rm, class)), None)
        }
        _ => None,
    }
}

/// The bits of a REX prefix.
const REX: u8 = 0x40;
const REX_W: u8 = 8;
const REX_R: u8 = 4;
const REX_X: u8 = 2;
const REX_B: u8 = 1;

/// Encodes an instruction by the contents of its fields. Without `rm` the register is in the opcode.
fn encode(
    form: Form,
    reg: Option<(u8, Need)>,
    rm: Option<(Operand, Class)>,
    value: Option<(i128, Number)>,
) -> Option<Instruction> {
    let mut rex = if form.class() == Some(Quad) && !form.is_wide_by_default { REX | REX_W } else { 0 };
    let (reg, need) = reg.unwrap_or_default();
    let mut needs = [need, Need::Nothing];
    if reg >= 8 {
        rex |= REX | if rm.is_some() { REX_R } else { REX_B };
    }
    // The bytes behind the opcode, before the number.
    let mut address = Instruction::default();
    match rm {
        Some((Operand::Register(register), class)) => {
            let (rm, need) = number(register, class)?;
            needs[1] = need;
            rex |= if rm >= 8 { REX | REX_B } else { 0 };
            address.push(0xc0 | (reg & 7) << 3 | rm & 7);
        }
        Some((Operand::Memory(memory), _)) => rex |= memory_fields(&mut address, reg & 7, memory)?,
        _ => {}
    }
    rex |= if needs.contains(&Need::Rex) { REX } else { 0 };
    if rex != 0 && needs.contains(&Need::NoRex) {
        return None;
    }
    let mut instruction = Instruction::default();
    if let Some(vex) = form.vex {
        vex.put(&mut instruction, form, rex);
    } else {
        if form.prefix != 0 {
            instruction.push(form.prefix);
        } else if form.class() == Some(Half) {
            instruction.push(0x66);
        }
        if rex != 0 {
            instruction.push(rex);
        }
        instruction.opcode(form.opcode | if rm.is_none() { u32::from(reg & 7) } else { 0 });
    }
    address.bytes().iter().for_each(|&byte| instruction.push(byte));
    if let Some((value, size)) = value {
        if !size.range().contains(&value) {
            return None;
        }
        instruction.number(value, size.size());
    }
    Some(instruction)
}

/// Appends the fields for memory. Returns the bits of the REX prefix.
fn memory_fields(fields: &mut Instruction, reg: u8, memory: MemoryOperand) -> Option<u8> {
    let (base, _) = number(memory.base, Quad)?;
    let displacement = i32::try_from(memory.displacement).ok()?;
    // Without a displacement, the number of RBP and R13 stands for no base.
    let (mode, size) = match displacement {
        0 if base & 7 != 5 => (0x00, 0),
        -128..128 => (0x40, 1),
        _ => (0x80, 4),
    };
    let mut rex = if base >= 8 { REX | REX_B } else { 0 };
    if memory.index == Register::None {
        fields.push(mode | reg << 3 | base & 7);
        // The number of RSP and R12 stands for an index.
        if base & 7 == 4 {
            fields.push(4 << 3 | base & 7);
        }
    } else {
        // RSP is no index.
        let (index, _) = number(memory.index, Quad).filter(|&(index, _)| index != 4)?;
        if !matches!(memory.scale, 1 | 2 | 4 | 8) {
            return None;
        }
        rex |= if index >= 8 { REX | REX_X } else { 0 };
        fields.push(mode | reg << 3 | 4);
        fields.push((memory.scale.trailing_zeros() as u8) << 6 | (index & 7) << 3 | base & 7);
    }
    fields.number(displacement.into(), size);
    (memory.segment_prefix == Register::None && !memory.is_broadcast).then_some(rex)
}

/// Encodes any instruction, at some cost the first time in a process.
#[cold]
fn by_iced(op: Op, operands: &[Operand]) -> Encoded {
    use Operand::{Memory, Number, Register};
    use iced_x86::Instruction as Iced;
    let instruction = match *operands {
        [] => Iced::with(op),
        [Register(first)] => Iced::with1(op, first)?,
        [Memory(first)] => Iced::with1(op, first)?,
        [Register(first), Register(second)] => Iced::with2(op, first, second)?,
        [Register(first), Memory(second)] => Iced::with2(op, first, second)?,
        [Memory(first), Register(second)] => Iced::with2(op, first, second)?,
        [Register(first), Number(second)] => Iced::with2(op, first, second as i64)?,
        [Memory(first), Number(second)] => Iced::with2(op, first, i32::try_from(second)?)?,
        [Register(first), Register(second), Register(third)] => Iced::with3(op, first, second, third)?,
        [Register(first), Register(second), Memory(third)] => Iced::with3(op, first, second, third)?,
        [Register(first), Register(second), Number(third)] => Iced::with3(op, first, second, i32::try_from(third)?)?,
        [Register(first), Memory(second), Number(third)] => Iced::with3(op, first, second, i32::try_from(third)?)?,
        _ => return Err(format!("no instruction has the operands {operands:?}").into()),
    };
    let mut encoder = Encoder::new(64);
    let length = encoder.encode(&instruction, 0)?;
    let mut encoded = Instruction { length: length as u8, ..Instruction::default() };
    encoded.bytes[..length].copy_from_slice(&encoder.take_buffer());
    Ok(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The registers of a class.
    fn registers(class: Class) -> Vec<Register> {
        let first = match class {
            Byte => Register::AL,
            Half => Register::AX,
            Double => Register::EAX,
            Quad => Register::RAX,
            Vector => Register::XMM0,
            WideVector => Register::YMM0,
            Class::Memory => return Vec::new(),
        };
        let count = if class == Byte { 20 } else { 16 };
        Register::values().skip(first as usize).take(count).collect()
    }

    /// Whether it is one of the registers that exclude a REX prefix.
    fn is_high(operand: &Operand) -> bool {
        use Register::{AH, BH, CH, DH};
        matches!(operand, Operand::Register(AH | BH | CH | DH))
    }

    /// Memory in all forms that have different encodings.
    fn memories() -> Vec<MemoryOperand> {
        let mut memories = Vec::new();
        for base in registers(Quad) {
            for displacement in [0, 1, -1, 127, -128, 128, -129, i32::MAX, i32::MIN] {
                let size = u32::from(displacement != 0);
                memories.push(MemoryOperand::with_base_displ_size(base, displacement.into(), size));
                for index in registers(Quad).into_iter().filter(|&index| index != Register::RSP) {
                    let scale = 1 << (displacement & 3);
                    let memory = |size| {
                        let displacement = displacement.into();
                        MemoryOperand::with_base_index_scale_displ_size(base, index, scale, displacement, size)
                    };
                    memories.push(memory(size));
                }
            }
        }
        memories
    }

    fn numbers(number: Number) -> Vec<Operand> {
        let (low, high) = number.range().into_inner();
        // Greater ones have two spellings.
        let high = if number == AnyQuad { i64::MAX.into() } else { high.min(i32::MAX.into()) };
        [low, -1, 0, 1, 5, high].map(Operand::Number).into()
    }

    fn places(class: Class) -> Vec<Operand> {
        let registers = registers(class).into_iter().map(Operand::Register);
        registers.chain(memories().into_iter().map(Operand::Memory)).collect()
    }

    /// All operands of an instruction, with each place and each register, but not with each pair of them.
    fn operands(form: Form) -> Vec<Vec<Operand>> {
        let of = |class| registers(class).into_iter().map(Operand::Register).collect::<Vec<_>>();
        let pairs = |first: Vec<Operand>, second: Vec<Operand>| {
            let count = first.len().max(second.len()) * 16;
            (0..count).map(|at| vec![first[at % first.len()], second[(at / 16 + at) % second.len()]]).collect()
        };
        let with_number = |pairs: Vec<Vec<Operand>>, number| {
            let all = pairs.into_iter().zip(numbers(number).into_iter().cycle());
            all.map(|(mut operands, number)| {
                operands.push(number);
                operands
            })
        };
        let single = |operands: Vec<Operand>| operands.into_iter().map(|operand| vec![operand]).collect::<Vec<_>>();
        match form.fields {
            Plain => vec![Vec::new()],
            InOpcode(class) => single(of(class)),
            InOpcodeNumber(class, number) => pairs(of(class), numbers(number)),
            Rm(class, _) => single(places(class)),
            RmNumber(class, _, number) => pairs(places(class), numbers(number)),
            RmFixed(class, _) => {
                let second = if form.opcode == 0xd3 { Register::CL.into() } else { Operand::Number(1) };
                pairs(places(class), vec![second])
            }
            RegRm(to, from) => pairs(of(to), places(from)),
            RmReg(to, from) => pairs(places(to), of(from)),
            RegRmNumber(to, from, number) => with_number(pairs(of(to), places(from)), number).collect(),
            RegReg(to, from) => pairs(of(to), of(from)),
            RegVvvvRm(class) => {
                let with_source = |(at, mut operands): (usize, Vec<Operand>)| {
                    operands.insert(1, of(class)[at / 16 % 16]);
                    operands
                };
                pairs(of(class), places(class)).into_iter().enumerate().map(with_source).collect()
            }
            Relative(_) => Vec::new(),
        }
    }

    #[test]
    fn the_table_encodes_as_the_general_encoder() {
        let (mut ops, mut compared) = (0, 0);
        for op in Op::values() {
            let Some(form) = form(op) else { continue };
            ops += 1;
            for operands in operands(form) {
                let expected = by_iced(op, &operands).ok();
                assert!(expected.is_some() || operands.iter().any(is_high), "{op:?} {operands:x?}");
                assert_eq!(by_table(form, &operands), expected, "{op:?} {operands:x?}");
                compared += usize::from(expected.is_some());
            }
            if let Relative(size) = form.fields {
                let iced = iced_x86::Instruction::with_branch(op, 0).unwrap();
                let mut encoder = Encoder::new(64);
                let length = encoder.encode(&iced, 0).unwrap();
                let (found, displacement) = Instruction::branch(op).unwrap();
                assert_eq!((found.bytes().len(), displacement), (length, size), "{op:?}");
                let opcode = length - size;
                assert_eq!(found.bytes()[..opcode], encoder.take_buffer()[..opcode], "{op:?}");
            }
        }
        assert!(ops > 120 && compared > 1_000_000, "{ops} instructions, {compared} with operands");
    }

    #[test]
    fn operands_that_do_not_fit_are_errors() {
        use Register::{AH, CL, EAX, ECX, R8D, RAX, RSP, SPL, XMM0, YMM0, YMM16};
        let memory = |base, index| MemoryOperand::with_base_index_scale_displ_size(base, index, 1, 0, 0);
        for instruction in [
            Instruction::with1(Op::Cmc, EAX),
            Instruction::with(Op::Neg_rm32),
            Instruction::with2(Op::Mov_r32_rm32, EAX, RAX),
            Instruction::with2(Op::Mov_r64_rm64, EAX, RAX),
            Instruction::with2(Op::Movzx_r32_rm8, R8D, AH),
            Instruction::with2(Op::Mov_rm8_r8, AH, SPL),
            Instruction::with2(Op::Mov_rm8_r8, EAX, AH),
            Instruction::with2(Op::Add_rm32_imm8, EAX, 128),
            Instruction::with2(Op::Add_rm64_imm32, RAX, u32::MAX),
            Instruction::with2(Op::Cmp_rm16_imm16, Register::AX, 65_536),
            Instruction::with2(Op::Shr_rm64_1, RAX, 2),
            Instruction::with2(Op::Shr_rm64_1, RAX, CL),
            Instruction::with2(Op::Shr_rm64_CL, RAX, ECX),
            Instruction::with2(Op::Lea_r64_m, RAX, RAX),
            Instruction::with2(Op::Lea_r64_m, RAX, memory(RAX, RSP)),
            Instruction::with2(Op::Lea_r64_m, RAX, memory(EAX, RAX)),
            Instruction::with2(Op::Lea_r64_m, RAX, MemoryOperand::with_base_displ(RAX, 1 << 31)),
            Instruction::with1(Op::Jmp_rel32_64, 5),
            Instruction::with2(Op::VEX_Vmovd_xmm_rm32, YMM0, EAX),
            Instruction::with2(Op::VEX_Vptest_ymm_ymmm256, YMM0, XMM0),
            Instruction::with2(Op::VEX_Vpmovmskb_r32_ymm, EAX, memory(RAX, RAX)),
            Instruction::with2(Op::VEX_Vpor_ymm_ymm_ymmm256, YMM0, YMM0),
            Instruction::with3(Op::VEX_Vpor_ymm_ymm_ymmm256, YMM0, XMM0, YMM0),
            Instruction::with3(Op::VEX_Vpor_ymm_ymm_ymmm256, YMM0, YMM0, YMM16),
        ] {
            assert!(instruction.is_err(), "{instruction:?}");
        }
        assert!(Instruction::branch(Op::Mov_r32_rm32).is_err());
    }

    #[test]
    fn other_instructions_are_encoded_too() {
        let instruction =
            Instruction::with3(Op::VEX_Vpaddd_ymm_ymm_ymmm256, Register::YMM1, Register::YMM2, Register::YMM3);
        assert_eq!(instruction.unwrap().bytes(), [0xc5, 0xed, 0xfe, 0xcb]);
    }
}
