//! Turns a program of the classic machine into a graph.

use super::{End, Flow, MEMORY_WORDS, Op, Right};
use crate::graph::{self, Graph, Operand, Operation, Register, Step, Value, Width};

const ACCUMULATOR: Register = Register(0);
const INDEX: Register = Register(1);
const MEMORY: u16 = 2;

/// The graph of a program. Its registers are the accumulator, the index register, and the words of memory.
pub(crate) fn lower(flow: &Flow) -> Graph {
    let layout = flow.layout();
    let mut index = vec![usize::MAX; flow.blocks.len()];
    for (position, &block) in layout.iter().enumerate() {
        index[block] = position;
    }
    let mut words = 0;
    let mut blocks = Vec::with_capacity(layout.len());
    for &block in &layout {
        let block = &flow.blocks[block];
        let mut steps = Vec::with_capacity(block.ops.len());
        for &op in block.ops.iter() {
            lower_op(op, &mut steps);
            if let Op::LoadMemory(word) | Op::IndexMemory(word) | Op::Store(word) | Op::StoreIndex(word) = op {
                words = words.max(usize::from(word) + 1);
            }
        }
        let end = match block.end {
            End::Test { comparison, right, yes, no } => graph::BlockEnd::Branch {
                comparison,
                left: Operand::Register(ACCUMULATOR),
                right: match right {
                    Right::Constant(number) => Operand::Constant(number),
                    Right::Index => Operand::Register(INDEX),
                },
                yes: index[yes],
                no: index[no],
            },
            End::Goto(next) => graph::BlockEnd::Goto(index[next]),
            End::Again(next) => graph::BlockEnd::Again(index[next]),
            End::Accept => graph::BlockEnd::Accept,
            End::Reject => graph::BlockEnd::Reject,
        };
        blocks.push(graph::Block { steps, end, part: block.part.clone() });
    }
    debug_assert!(words <= MEMORY_WORDS);
    Graph { blocks, registers: usize::from(MEMORY) + words }
}

fn word(index: u8) -> Register {
    Register(MEMORY + u16::from(index))
}

fn lower_op(op: Op, steps: &mut Vec<Step>) {
    let mut set = |target, value| steps.push(Step { target, value });
    let copy = |register| Value::Copy(Operand::Register(register));
    let binary = |operation, left, right| Value::Binary { operation, left: Operand::Register(left), right };
    match op {
        Op::Nothing => {}
        Op::Load(width, offset) => set(ACCUMULATOR, Value::Load { width, base: None, offset }),
        Op::LoadIndexed(width, offset) => set(ACCUMULATOR, Value::Load { width, base: Some(INDEX), offset }),
        Op::LoadLength => set(ACCUMULATOR, Value::Length),
        Op::LoadConstant(number) => set(ACCUMULATOR, Value::Copy(Operand::Constant(number))),
        Op::LoadMemory(index) => set(ACCUMULATOR, copy(word(index))),
        Op::IndexConstant(number) => set(INDEX, Value::Copy(Operand::Constant(number))),
        Op::IndexMemory(index) => set(INDEX, copy(word(index))),
        Op::IndexHeaderLength(offset) => {
            set(INDEX, Value::Load { width: Width::Byte, base: None, offset });
            set(INDEX, binary(Operation::And, INDEX, Operand::Constant(0xf)));
            set(INDEX, binary(Operation::ShiftLeft, INDEX, Operand::Constant(2)));
        }
        Op::Store(index) => set(word(index), copy(ACCUMULATOR)),
        Op::StoreIndex(index) => set(word(index), copy(INDEX)),
        Op::Constant(operation, number) => {
            set(ACCUMULATOR, binary(operation, ACCUMULATOR, Operand::Constant(number)));
        }
        Op::Index(operation) => set(ACCUMULATOR, binary(operation, ACCUMULATOR, Operand::Register(INDEX))),
        Op::Negate => {
            let value = Value::Binary {
                operation: Operation::Subtract,
                left: Operand::Constant(0),
                right: Operand::Register(ACCUMULATOR),
            };
            set(ACCUMULATOR, value);
        }
        Op::ToIndex => set(INDEX, copy(ACCUMULATOR)),
        Op::FromIndex => set(ACCUMULATOR, copy(INDEX)),
    }
}
