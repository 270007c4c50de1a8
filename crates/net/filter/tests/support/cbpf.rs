//! Programs of the BSD packet filter, as `tcpdump -ddd` prints them, as graphs.

use std::process::Command;

use bellows_filter::graph::{
    Block, BlockEnd, ComparisonOperator, Graph, Operand, Operation, Register, Step, Value, Width,
};

const A: Register = Register(0);
const X: Register = Register(1);

/// Number of registers: A, X and the memory.
const REGISTERS: usize = 18;

#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u32,
    yes: usize,
    no: usize,
    number: u32,
}

/// The program that libpcap makes of an expression for Ethernet; `None` if there is no tcpdump or it refuses.
pub fn compiled(expression: &str) -> Option<Graph> {
    let arguments = ["-y", "EN10MB", "-s", "262144", "-ddd", expression];
    let output = Command::new("tcpdump").args(arguments).output().ok()?;
    output.status.success().then(|| graph(&String::from_utf8_lossy(&output.stdout)))
}

/// The graph of a program.
pub fn graph(text: &str) -> Graph {
    let mut lines = text.lines();
    let count: usize = lines.next().and_then(|line| line.trim().parse().ok()).expect("a number of instructions");
    let program: Vec<Instruction> = lines.map(instruction).collect();
    assert_eq!(program.len(), count);
    // The instructions at which blocks start: the first, targets, and those behind jumps.
    let mut starts = vec![false; count + 1];
    starts[0] = true;
    for (at, instruction) in program.iter().enumerate() {
        match instruction.code & 7 {
            5 => {
                targets(at, instruction).for_each(|target| starts[target] = true);
                starts[at + 1] = true;
            }
            6 => starts[at + 1] = true,
            _ => {}
        }
    }
    let index_of: Vec<usize> = starts
        .iter()
        .scan(0, |index, &is_start| {
            *index += usize::from(is_start);
            Some(*index - 1)
        })
        .collect();
    let (accept, reject) = (index_of[count], index_of[count] + 1);
    let mut blocks: Vec<Block> = Vec::new();
    let mut steps = Vec::new();
    let mut first = 0;
    for (at, instruction) in program.iter().enumerate() {
        let end = match instruction.code & 7 {
            5 | 6 => Some(end(at, instruction, &index_of, accept, reject)),
            _ => {
                steps.extend(steps_of(instruction));
                starts[at + 1].then(|| BlockEnd::Goto(index_of[at + 1]))
            }
        };
        if let Some(end) = end {
            blocks.push(Block { steps: std::mem::take(&mut steps), end, part: first..at + 1 });
            first = at + 1;
        }
    }
    for end in [BlockEnd::Accept, BlockEnd::Reject] {
        blocks.push(Block { steps: Vec::new(), end, part: count..count });
    }
    Graph { blocks, registers: REGISTERS }
}

fn instruction(line: &str) -> Instruction {
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    let [code, yes, no, number] = numbers[..] else { panic!("not an instruction: {line}") };
    Instruction { code: code as u32, yes: yes as usize, no: no as usize, number: number as u32 }
}

fn targets(at: usize, instruction: &Instruction) -> impl Iterator<Item = usize> + use<> {
    let both = if instruction.code == 5 {
        let target = (at as i64 + 1 + i64::from(instruction.number.cast_signed())) as usize;
        [target, target]
    } else {
        [at + 1 + instruction.yes, at + 1 + instruction.no]
    };
    both.into_iter()
}

fn source(code: u32, number: u32) -> Operand {
    if code & 8 == 0 { Operand::Constant(number) } else { Operand::Register(X) }
}

fn end(at: usize, instruction: &Instruction, index_of: &[usize], accept: usize, reject: usize) -> BlockEnd {
    let Instruction { code, number, .. } = *instruction;
    if code & 7 == 6 {
        let is_zero = |left| BlockEnd::Branch {
            comparison: ComparisonOperator::Equal,
            left,
            right: Operand::Constant(0),
            yes: reject,
            no: accept,
        };
        return match code & 0x18 {
            0x10 => is_zero(Operand::Register(A)),
            _ if number == 0 => BlockEnd::Goto(reject),
            _ => BlockEnd::Goto(accept),
        };
    }
    let [yes, no] = [0, 1].map(|which| targets(at, instruction).nth(which).map_or(reject, |target| index_of[target]));
    if code == 5 {
        return if yes <= index_of[at] { BlockEnd::Again(yes) } else { BlockEnd::Goto(yes) };
    }
    let comparison = match code & 0xf0 {
        0x10 => ComparisonOperator::Equal,
        0x20 => ComparisonOperator::Greater,
        0x30 => ComparisonOperator::GreaterOrEqual,
        0x40 => ComparisonOperator::AnyBit,
        other => panic!("unknown jump {other:#x}"),
    };
    BlockEnd::Branch { comparison, left: Operand::Register(A), right: source(code, number), yes, no }
}

fn steps_of(instruction: &Instruction) -> Vec<Step> {
    let Instruction { code, number, .. } = *instruction;
    let memory = Register(2 + (number & 15) as u16);
    let step = |target, value| Step { target, value };
    let binary = |target, operation, left, right| {
        step(target, Value::Binary { operation, left: Operand::Register(left), right })
    };
    let width = match code & 0x18 {
        0 => Width::Word,
        8 => Width::Half,
        _ => Width::Byte,
    };
    match code & 7 {
        class @ (0 | 1) => {
            let target = if class == 0 { A } else { X };
            match code & 0xe0 {
                0 => vec![step(target, Value::Copy(Operand::Constant(number)))],
                0x20 => vec![step(target, Value::Load { width, base: None, offset: number })],
                0x40 => vec![step(target, Value::Load { width, base: Some(X), offset: number })],
                0x60 => vec![step(target, Value::Copy(Operand::Register(memory)))],
                0x80 => vec![step(target, Value::Length)],
                _ => vec![
                    step(target, Value::Load { width: Width::Byte, base: None, offset: number }),
                    binary(target, Operation::And, target, Operand::Constant(15)),
                    binary(target, Operation::Multiply, target, Operand::Constant(4)),
                ],
            }
        }
        2 => vec![step(memory, Value::Copy(Operand::Register(A)))],
        3 => vec![step(memory, Value::Copy(Operand::Register(X)))],
        4 => {
            let operation = match code & 0xf0 {
                0x00 => Operation::Add,
                0x10 => Operation::Subtract,
                0x20 => Operation::Multiply,
                0x30 => Operation::Divide,
                0x40 => Operation::Or,
                0x50 => Operation::And,
                0x60 => Operation::ShiftLeft,
                0x70 => Operation::ShiftRight,
                0x90 => Operation::Remainder,
                0xa0 => Operation::Xor,
                _ => {
                    let value = Value::Binary {
                        operation: Operation::Subtract,
                        left: Operand::Constant(0),
                        right: Operand::Register(A),
                    };
                    return vec![step(A, value)];
                }
            };
            vec![binary(A, operation, A, source(code, number))]
        }
        _ if code & 0xf8 == 0x80 => vec![step(A, Value::Copy(Operand::Register(X)))],
        _ => vec![step(X, Value::Copy(Operand::Register(A)))],
    }
}
