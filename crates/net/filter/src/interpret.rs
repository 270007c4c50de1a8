//! Runs a graph step by step: slow, portable and obvious, so that faster code is compared with it.

use crate::graph::{
    BlockEnd, BlockIndex, ComparisonOperator, Graph, MAX_ROUNDS, Operand, Operation, Register, Step, Value, Width,
};

/// The bytes of a packet that were captured, and its length on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketView<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Number of bytes on the wire; not fewer than were captured, unless the capture is odd.
    pub wire_length: u32,
}

impl<'a> PacketView<'a> {
    /// A packet that was captured in full.
    pub fn whole(bytes: &'a [u8]) -> PacketView<'a> {
        PacketView { bytes, wire_length: u32::try_from(bytes.len()).unwrap_or(u32::MAX) }
    }
}

/// Whether the packet matches the filter. A graph that is not [valid](Graph::check) matches nothing where it leads
/// nowhere.
pub fn matches(graph: &Graph, packet: PacketView<'_>) -> bool {
    run(graph, packet).unwrap_or(false)
}

/// `None` if the packet is rejected at once.
pub(crate) fn run(graph: &Graph, packet: PacketView<'_>) -> Option<bool> {
    let mut registers = vec![0; graph.registers];
    let mut rounds = 0;
    let mut next = 0;
    loop {
        let block = graph.blocks.get(next)?;
        for Step { target, value } in &block.steps {
            let value = evaluate(*value, &registers, packet)?;
            *registers.get_mut(usize::from(target.0))? = value;
        }
        match block.end {
            BlockEnd::Branch { comparison, left, right, yes, no } => {
                let holds = comparison.holds(operand(left, &registers)?, operand(right, &registers)?);
                next = if holds { yes } else { no };
            }
            BlockEnd::Goto(block) => next = block,
            BlockEnd::Again(block) => {
                rounds += 1;
                if rounds > MAX_ROUNDS {
                    return None;
                }
                next = block;
            }
            BlockEnd::Accept => return Some(true),
            BlockEnd::Reject => return Some(false),
        }
    }
}

fn evaluate(value: Value, registers: &[u32], packet: PacketView<'_>) -> Option<u32> {
    match value {
        Value::Copy(from) => operand(from, registers),
        Value::Load { width, base, offset } => {
            let base = base.map_or(Some(0), |base| register(base, registers))?;
            load(packet.bytes, width, u64::from(base) + u64::from(offset))
        }
        Value::Length => Some(packet.wire_length),
        Value::Binary { operation, left, right } => {
            operation.apply(operand(left, registers)?, operand(right, registers)?)
        }
    }
}

fn operand(operand: Operand, registers: &[u32]) -> Option<u32> {
    match operand {
        Operand::Constant(number) => Some(number),
        Operand::Register(from) => register(from, registers),
    }
}

fn register(register: Register, registers: &[u32]) -> Option<u32> {
    registers.get(usize::from(register.0)).copied()
}

/// The number at this place; `None` if a byte of it was not captured.
pub(crate) fn load(bytes: &[u8], width: Width, at: u64) -> Option<u32> {
    let bytes = bytes.get(usize::try_from(at).ok()?..)?.get(..width.bytes() as usize)?;
    Some(bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
}

impl Width {
    /// Number of bytes: 1, 2 or 4.
    pub fn bytes(self) -> u32 {
        match self {
            Width::Byte => 1,
            Width::Half => 2,
            Width::Word => 4,
        }
    }
}

impl Operation {
    /// The result; `None` for a division by zero.
    pub fn apply(self, left: u32, right: u32) -> Option<u32> {
        Some(match self {
            Operation::Add => left.wrapping_add(right),
            Operation::Subtract => left.wrapping_sub(right),
            Operation::Multiply => left.wrapping_mul(right),
            Operation::Divide => left.checked_div(right)?,
            Operation::Remainder => left.checked_rem(right)?,
            Operation::And => left & right,
            Operation::Or => left | right,
            Operation::Xor => left ^ right,
            Operation::ShiftLeft => left.checked_shl(right).unwrap_or(0),
            Operation::ShiftRight => left.checked_shr(right).unwrap_or(0),
        })
    }
}

impl ComparisonOperator {
    /// Whether it holds.
    pub fn holds(self, left: u32, right: u32) -> bool {
        match self {
            ComparisonOperator::Equal => left == right,
            ComparisonOperator::Greater => left > right,
            ComparisonOperator::GreaterOrEqual => left >= right,
            ComparisonOperator::AnyBit => left & right != 0,
        }
    }
}

/// A rule that a graph breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// There is no first block.
    #[error("the graph has no block: give it at least one that accepts or rejects")]
    Empty,
    /// An edge leads out of the graph, or in the wrong direction.
    #[error("block {from} leads to block {to}: only a loop leads back, and only to a block that exists")]
    Edge {
        /// The block.
        from: BlockIndex,
        /// Where it leads.
        to: BlockIndex,
    },
    /// A register outside the graph's registers.
    #[error("block {block} uses register {}, but the graph has {registers}: raise their number", register.0)]
    Register {
        /// The block.
        block: BlockIndex,
        /// The register.
        register: Register,
        /// Number of registers.
        registers: usize,
    },
}

impl Graph {
    /// Checks that edges and registers exist and that only loops lead back.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.blocks.is_empty() {
            return Err(Invalid::Empty);
        }
        for (from, block) in self.blocks.iter().enumerate() {
            let forward = |to: BlockIndex| {
                if to > from && to < self.blocks.len() { Ok(()) } else { Err(Invalid::Edge { from, to }) }
            };
            let exists = |register: Register| {
                if usize::from(register.0) < self.registers {
                    return Ok(());
                }
                Err(Invalid::Register { block: from, register, registers: self.registers })
            };
            let known = |operand: Operand| match operand {
                Operand::Constant(_) => Ok(()),
                Operand::Register(register) => exists(register),
            };
            for Step { target, value } in &block.steps {
                exists(*target)?;
                match *value {
                    Value::Copy(from) => known(from)?,
                    Value::Load { base, .. } => base.map_or(Ok(()), exists)?,
                    Value::Length => {}
                    Value::Binary { left, right, .. } => known(left).and_then(|()| known(right))?,
                }
            }
            match block.end {
                BlockEnd::Branch { left, right, yes, no, .. } => {
                    known(left).and_then(|()| known(right))?;
                    forward(yes).and_then(|()| forward(no))?;
                }
                BlockEnd::Goto(to) => forward(to)?,
                BlockEnd::Again(to) if to > from => return Err(Invalid::Edge { from, to }),
                BlockEnd::Again(_) | BlockEnd::Accept | BlockEnd::Reject => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Block;

    fn block(steps: Vec<Step>, end: BlockEnd) -> Block {
        Block { steps, end, part: 0..0 }
    }

    fn graph(blocks: Vec<Block>) -> Graph {
        let graph = Graph { blocks, registers: 2 };
        assert_eq!(graph.check(), Ok(()));
        graph
    }

    fn step(target: u16, value: Value) -> Step {
        Step { target: Register(target), value }
    }

    const A: Operand = Operand::Register(Register(0));

    #[test]
    fn a_load_outside_rejects_also_where_the_rest_accepts() {
        let load = |base, offset| step(0, Value::Load { width: Width::Half, base, offset });
        let accepts = |steps| graph(vec![block(steps, BlockEnd::Accept)]);
        let packet = PacketView::whole(&[1, 2, 3]);
        assert!(matches(&accepts(vec![load(None, 1)]), packet));
        assert!(!matches(&accepts(vec![load(None, 2)]), packet));
        let wraps = vec![step(1, Value::Copy(Operand::Constant(u32::MAX))), load(Some(Register(1)), 1)];
        assert!(!matches(&accepts(wraps), packet));
    }

    #[test]
    fn a_division_by_zero_rejects() {
        for operation in [Operation::Divide, Operation::Remainder] {
            let by = |right| step(0, Value::Binary { operation, left: A, right: Operand::Constant(right) });
            assert!(matches(&graph(vec![block(vec![by(1)], BlockEnd::Accept)]), PacketView::whole(&[])));
            assert!(!matches(&graph(vec![block(vec![by(0)], BlockEnd::Accept)]), PacketView::whole(&[])));
        }
        assert_eq!(Operation::ShiftLeft.apply(1, 32), Some(0));
        assert_eq!(Operation::ShiftRight.apply(u32::MAX, 32), Some(0));
    }

    #[test]
    fn a_loop_ends() {
        let add = step(0, Value::Binary { operation: Operation::Add, left: A, right: Operand::Constant(1) });
        let until = |rounds| {
            let branch = BlockEnd::Branch {
                comparison: ComparisonOperator::GreaterOrEqual,
                left: A,
                right: Operand::Constant(rounds),
                yes: 2,
                no: 1,
            };
            graph(vec![
                block(vec![add.clone()], branch),
                block(vec![], BlockEnd::Again(0)),
                block(vec![], BlockEnd::Accept),
            ])
        };
        assert!(matches(&until(MAX_ROUNDS + 1), PacketView::whole(&[])));
        assert!(!matches(&until(MAX_ROUNDS + 2), PacketView::whole(&[])));
    }

    #[test]
    fn the_length_is_that_on_the_wire() {
        let longer = BlockEnd::Branch {
            comparison: ComparisonOperator::Greater,
            left: A,
            right: Operand::Constant(99),
            yes: 1,
            no: 2,
        };
        let graph = graph(vec![
            block(vec![step(0, Value::Length)], longer),
            block(vec![], BlockEnd::Accept),
            block(vec![], BlockEnd::Reject),
        ]);
        assert!(matches(&graph, PacketView { bytes: &[0; 4], wire_length: 100 }));
        assert!(!matches(&graph, PacketView { bytes: &[0; 4], wire_length: 99 }));
    }
}
