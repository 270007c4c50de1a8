//! Programs in the form in which `tcpdump -ddd` prints them, and in which kernels take them.

use std::fmt;

use super::{End, Flow, Op, Right};
use crate::graph::{ComparisonOperator, Operation, Width};

/// An instruction of the classic BPF machine (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions to skip if the comparison holds.
    pub yes: u8,
    /// Instructions to skip otherwise.
    pub no: u8,
    /// The operand.
    pub operand: u32,
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.code, self.yes, self.no, self.operand)
    }
}

/// A program as `tcpdump -d` prints it: an instruction on each line.
pub fn listing(program: &[Instruction]) -> Vec<String> {
    program.iter().enumerate().map(|(index, instruction)| line(index, *instruction)).collect()
}

/// The instruction at this position. Jumps name the position that they lead to.
fn line(index: usize, instruction: Instruction) -> String {
    let Instruction { code, yes, no, operand } = instruction;
    let after = index + 1;
    let (name, text) = match code & 0x07 {
        LD | LDX => load_text(code, operand),
        ST => ("st", format!("M[{operand}]")),
        STX => ("stx", format!("M[{operand}]")),
        ALU => operation_text(code, operand),
        JMP if code & 0xf0 == 0 => ("ja", (after as u32).wrapping_add(operand).to_string()),
        JMP => {
            let name = match code & 0xf0 {
                0x10 => "jeq",
                0x20 => "jgt",
                0x30 => "jge",
                _ => "jset",
            };
            let right = if code & X != 0 { "x".to_owned() } else { format!("#0x{operand:x}") };
            let (yes, no) = (after + usize::from(yes), after + usize::from(no));
            return format!("({index:03}) {name:<8} {right:<16} jt {yes}\tjf {no}");
        }
        RET => ("ret", format!("#{operand}")),
        _ if code & TXA != 0 => ("txa", String::new()),
        _ => ("tax", String::new()),
    };
    format!("({index:03}) {name:<8} {text}")
}

fn load_text(code: u16, operand: u32) -> (&'static str, String) {
    let is_index = code & 0x07 == LDX;
    let name = match code & 0x18 {
        0x08 => "ldh",
        BYTE => "ldb",
        _ => "ld",
    };
    let word = if is_index { "ldx" } else { "ld" };
    match code & 0xe0 {
        ABS => (name, format!("[{operand}]")),
        IND => (name, format!("[x + {operand}]")),
        MEM => (word, format!("M[{operand}]")),
        LEN => (word, "#pktlen".to_owned()),
        MSH => ("ldxb", format!("4*([{operand}]&0xf)")),
        _ => (word, format!("#0x{operand:x}")),
    }
}

fn operation_text(code: u16, operand: u32) -> (&'static str, String) {
    let (name, is_bits) = match code & 0xf0 {
        0x00 => ("add", false),
        0x10 => ("sub", false),
        0x20 => ("mul", false),
        0x30 => ("div", false),
        0x40 => ("or", true),
        0x50 => ("and", true),
        0x60 => ("lsh", false),
        0x70 => ("rsh", false),
        0x90 => ("mod", false),
        0xa0 => ("xor", true),
        _ => return ("neg", String::new()),
    };
    let right = match code & X != 0 {
        true => "x".to_owned(),
        false if is_bits => format!("#0x{operand:x}"),
        false => format!("#{operand}"),
    };
    (name, right)
}

const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const MISC: u16 = 0x07;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;
const BYTE: u16 = 0x10;
const X: u16 = 0x08;
const NEG: u16 = 0x80;
const TXA: u16 = 0x80;

fn size(width: Width) -> u16 {
    match width {
        Width::Word => 0x00,
        Width::Half => 0x08,
        Width::Byte => BYTE,
    }
}

fn operation_code(operation: Operation) -> u16 {
    match operation {
        Operation::Add => 0x00,
        Operation::Subtract => 0x10,
        Operation::Multiply => 0x20,
        Operation::Divide => 0x30,
        Operation::Or => 0x40,
        Operation::And => 0x50,
        Operation::ShiftLeft => 0x60,
        Operation::ShiftRight => 0x70,
        Operation::Remainder => 0x90,
        Operation::Xor => 0xa0,
    }
}

fn comparison_code(comparison: ComparisonOperator) -> u16 {
    match comparison {
        ComparisonOperator::Equal => 0x10,
        ComparisonOperator::Greater => 0x20,
        ComparisonOperator::GreaterOrEqual => 0x30,
        ComparisonOperator::AnyBit => 0x40,
    }
}

fn encode(op: Op) -> Option<(u16, u32)> {
    Some(match op {
        Op::Nothing => return None,
        Op::Load(width, offset) => (LD | ABS | size(width), offset),
        Op::LoadIndexed(width, offset) => (LD | IND | size(width), offset),
        Op::LoadLength => (LD | LEN, 0),
        Op::LoadConstant(number) => (LD, number),
        Op::LoadMemory(word) => (LD | MEM, word.into()),
        Op::IndexConstant(number) => (LDX, number),
        Op::IndexMemory(word) => (LDX | MEM, word.into()),
        Op::IndexHeaderLength(offset) => (LDX | MSH | BYTE, offset),
        Op::Store(word) => (ST, word.into()),
        Op::StoreIndex(word) => (STX, word.into()),
        Op::Constant(operation, number) => (ALU | operation_code(operation), number),
        Op::Index(operation) => (ALU | X | operation_code(operation), 0),
        Op::Negate => (ALU | NEG, 0),
        Op::ToIndex => (MISC, 0),
        Op::FromIndex => (MISC | TXA, 0),
    })
}

/// The maximum number of instructions that a comparison can skip.
const MAX_SKIP: usize = 255;

/// The instructions of a program. It returns `snap_length` for packets that match, and 0 for others.
pub(crate) fn assemble(flow: &Flow, snap_length: u32) -> Vec<Instruction> {
    let layout = flow.layout();
    let count = |block: usize| flow.blocks[block].ops.iter().filter(|&&op| op != Op::Nothing).count();
    let lengths: Vec<usize> = layout.iter().map(|&block| count(block)).collect();
    // Whether a way out of a block needs a jump of its own, because it leads too far.
    let mut is_far = vec![[false; 2]; layout.len()];
    let mut start = vec![0; flow.blocks.len()];
    loop {
        let mut position = 0;
        for (index, &block) in layout.iter().enumerate() {
            start[block] = position;
            position += lengths[index] + 1 + is_far[index].iter().filter(|&&far| far).count();
        }
        let mut is_settled = true;
        for (index, &block) in layout.iter().enumerate() {
            let End::Test { yes, no, .. } = flow.blocks[block].end else { continue };
            let end = start[block] + lengths[index];
            for (side, next) in [yes, no].into_iter().enumerate() {
                if !is_far[index][side] && start[next] - end - 1 > MAX_SKIP {
                    is_far[index][side] = true;
                    is_settled = false;
                }
            }
        }
        if is_settled {
            break;
        }
    }

    let mut program = Vec::new();
    for (index, &block) in layout.iter().enumerate() {
        let block = &flow.blocks[block];
        let plain = |(code, operand)| Instruction { code, yes: 0, no: 0, operand };
        program.extend(block.ops.iter().copied().filter_map(encode).map(plain));
        let end = program.len();
        let jump = |from: usize, to: usize| plain((JMP, to.wrapping_sub(from + 1) as u32));
        match block.end {
            End::Test { comparison, right, yes, no } => {
                let (source, operand) = match right {
                    Right::Constant(number) => (0, number),
                    Right::Index => (X, 0),
                };
                let mut test = plain((JMP | comparison_code(comparison) | source, operand));
                let mut jumps = Vec::new();
                for (side, next) in [yes, no].into_iter().enumerate() {
                    let skip = if is_far[index][side] {
                        jumps.push(jump(end + 1 + jumps.len(), start[next]));
                        jumps.len() - 1
                    } else {
                        start[next] - end - 1
                    };
                    // At most MAX_SKIP, as settled above.
                    *(if side == 0 { &mut test.yes } else { &mut test.no }) = skip as u8;
                }
                program.push(test);
                program.extend(jumps);
            }
            End::Goto(next) | End::Again(next) => program.push(jump(end, start[next])),
            End::Accept => program.push(plain((RET, snap_length))),
            End::Reject => program.push(plain((RET, 0))),
        }
    }
    program
}
