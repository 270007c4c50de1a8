//! Operations of a block: constants are folded, what nobody needs is removed, and tests of constants are decided.

use std::hash::BuildHasherDefault;
use std::mem;

use super::values::{Map, Origin, fold};
use super::{ACCUMULATOR, ConstantError, INDEX, NONE, Passes, REGISTERS, Registers, UNKNOWN, ValueId, mask, memory};
use crate::classic::ops::Ops;
use crate::classic::{BlockId, End, Op, Right};
use crate::graph::{ComparisonOperator, Operation};

/// The registers that an instruction reads.
pub(super) fn reads(op: Op) -> Registers {
    match op {
        Op::LoadIndexed(..) | Op::StoreIndex(_) | Op::FromIndex => mask(INDEX),
        Op::LoadMemory(word) | Op::IndexMemory(word) => mask(memory(word)),
        Op::Store(_) | Op::Constant(..) | Op::Negate | Op::ToIndex => mask(ACCUMULATOR),
        Op::Index(_) => mask(ACCUMULATOR) | mask(INDEX),
        Op::Nothing
        | Op::Load(..)
        | Op::LoadLength
        | Op::LoadConstant(_)
        | Op::IndexConstant(_)
        | Op::IndexHeaderLength(_) => 0,
    }
}

/// The register that an instruction sets.
pub(super) fn sets(op: Op) -> Option<usize> {
    match op {
        Op::Nothing => None,
        Op::Load(..)
        | Op::LoadIndexed(..)
        | Op::LoadLength
        | Op::LoadConstant(_)
        | Op::LoadMemory(_)
        | Op::Constant(..)
        | Op::Index(_)
        | Op::Negate
        | Op::FromIndex => Some(ACCUMULATOR),
        Op::IndexConstant(_) | Op::IndexMemory(_) | Op::IndexHeaderLength(_) | Op::ToIndex => Some(INDEX),
        Op::Store(word) | Op::StoreIndex(word) => Some(memory(word)),
    }
}

/// The registers that a test reads.
pub(super) fn test_reads(end: End) -> Registers {
    match end {
        End::Test { right: Right::Constant(_), .. } => mask(ACCUMULATOR),
        End::Test { right: Right::Index, .. } => mask(ACCUMULATOR) | mask(INDEX),
        _ => 0,
    }
}

impl Passes {
    /// Numbers the values of a block, and simplifies it if `changes_ops`.
    pub(super) fn visit(&mut self, block: BlockId, changes_ops: bool) -> Result<(), ConstantError> {
        let mut values = self.values_before(block);
        let before = (values[ACCUMULATOR], values[INDEX]);
        let mut ops = mem::take(&mut self.blocks[block].ops);
        for op in ops.iter_mut() {
            self.visit_op(op, &mut values, changes_ops)?;
        }
        let registers = self.registers;
        self.exit[block * registers..][..registers].copy_from_slice(&values[..registers]);
        let is_test = self.ways(block).is_some();
        let keeps_values = self.needed[block] == 0
            && before.0 != UNKNOWN
            && before.1 != UNKNOWN
            && before == (values[ACCUMULATOR], values[INDEX]);
        if changes_ops && (keeps_values || !is_test) {
            if !ops.is_empty() {
                ops.clear();
                self.note_progress();
            }
        } else {
            self.shorten(block, &mut ops);
            self.remove_dead(block, &mut ops);
        }
        self.blocks[block].ops = ops;
        self.right[block] = match self.blocks[block].end {
            End::Test { right: Right::Constant(number), .. } => self.values.constant(number),
            End::Test { right: Right::Index, .. } => self.exit(block, INDEX),
            _ => UNKNOWN,
        };
        Ok(())
    }

    /// The values with which a block is entered on all ways.
    fn values_before(&self, block: BlockId) -> [ValueId; REGISTERS] {
        let mut values = [UNKNOWN; REGISTERS];
        let mut ways = self.ways_in(block);
        let Some(first) = ways.next() else { return values };
        values[..self.registers].copy_from_slice(self.exits(first / 2));
        for way in ways {
            for (value, other) in values.iter_mut().zip(self.exits(way / 2)) {
                if value != other {
                    *value = UNKNOWN;
                }
            }
        }
        values
    }

    pub(super) fn note_progress(&mut self) {
        self.is_done = false;
        self.is_progress = true;
    }

    /// Numbers the value of an instruction, and simplifies the instruction if `changes_ops`.
    fn visit_op(
        &mut self,
        op: &mut Op,
        values: &mut [ValueId; REGISTERS],
        changes_ops: bool,
    ) -> Result<(), ConstantError> {
        let (register, value) = match *op {
            Op::Nothing => return Ok(()),
            Op::Load(width, offset) => (ACCUMULATOR, self.values.number(Origin::Load(width, offset))),
            Op::LoadIndexed(width, offset) => {
                let index = values[INDEX];
                let value = match self.values.is_constant(index) {
                    Some(number) if changes_ops => {
                        let offset = offset.wrapping_add(number);
                        *op = Op::Load(width, offset);
                        self.note_progress();
                        self.values.number(Origin::Load(width, offset))
                    }
                    _ => self.values.number(Origin::LoadIndexed(width, offset, index)),
                };
                (ACCUMULATOR, value)
            }
            Op::LoadLength => (ACCUMULATOR, self.values.number(Origin::Length)),
            Op::LoadConstant(number) => (ACCUMULATOR, self.values.constant(number)),
            Op::IndexConstant(number) => (INDEX, self.values.constant(number)),
            Op::IndexHeaderLength(offset) => (INDEX, self.values.number(Origin::HeaderLength(offset))),
            Op::LoadMemory(word) | Op::IndexMemory(word) => {
                let value = values[memory(word)];
                let register = if matches!(op, Op::LoadMemory(_)) { ACCUMULATOR } else { INDEX };
                if changes_ops && let Some(number) = self.values.is_constant(value) {
                    *op = if register == ACCUMULATOR { Op::LoadConstant(number) } else { Op::IndexConstant(number) };
                    self.note_progress();
                }
                (register, value)
            }
            Op::FromIndex => (ACCUMULATOR, values[INDEX]),
            Op::ToIndex => (INDEX, values[ACCUMULATOR]),
            Op::Store(word) => (memory(word), values[ACCUMULATOR]),
            Op::StoreIndex(word) => (memory(word), values[INDEX]),
            Op::Negate => {
                let operand = values[ACCUMULATOR];
                values[ACCUMULATOR] = match self.values.is_constant(operand) {
                    Some(number) if changes_ops => {
                        *op = Op::LoadConstant(number.wrapping_neg());
                        self.values.constant(number.wrapping_neg())
                    }
                    _ => self.values.number(Origin::Negated(operand)),
                };
                return Ok(());
            }
            Op::Constant(operation, number) => {
                if let Some(new) = self.visit_constant_operation(operation, number, values, changes_ops)? {
                    *op = new;
                }
                return Ok(());
            }
            Op::Index(operation) => {
                let Some(zero_or_index) = self.visit_index_operation(op, operation, values, changes_ops)? else {
                    return Ok(());
                };
                (ACCUMULATOR, zero_or_index)
            }
        };
        if changes_ops && value != UNKNOWN && values[register] == value {
            *op = Op::Nothing;
        } else {
            values[register] = value;
        }
        Ok(())
    }

    /// Handles an operation with a constant. Returns the instruction that replaces it, if any.
    fn visit_constant_operation(
        &mut self,
        operation: Operation,
        number: u32,
        values: &mut [ValueId; REGISTERS],
        changes_ops: bool,
    ) -> Result<Option<Op>, ConstantError> {
        let left = values[ACCUMULATOR];
        if changes_ops && number == 0 {
            match operation {
                Operation::Add | Operation::ShiftLeft | Operation::ShiftRight | Operation::Or | Operation::Xor => {
                    return Ok(Some(Op::Nothing));
                }
                Operation::Multiply | Operation::And => {
                    values[ACCUMULATOR] = self.values.constant(0);
                    return Ok(Some(Op::LoadConstant(0)));
                }
                Operation::Divide => return Err(ConstantError::DivisionByZero),
                Operation::Remainder => return Err(ConstantError::RemainderByZero),
                // It may still merge with the test.
                Operation::Subtract => {}
            }
        }
        if changes_ops && let Some(left) = self.values.is_constant(left) {
            let result = fold(operation, left, number)?;
            self.note_progress();
            values[ACCUMULATOR] = self.values.constant(result);
            return Ok(Some(Op::LoadConstant(result)));
        }
        let right = self.values.constant(number);
        values[ACCUMULATOR] = self.values.number(Origin::Operation(operation, true, left, right));
        Ok(None)
    }

    /// Handles an operation with the index register. Returns the value of the accumulator if the instruction became one
    /// that may be left out when the accumulator has this value already.
    fn visit_index_operation(
        &mut self,
        op: &mut Op,
        operation: Operation,
        values: &mut [ValueId; REGISTERS],
        changes_ops: bool,
    ) -> Result<Option<ValueId>, ConstantError> {
        let (left, right) = (values[ACCUMULATOR], values[INDEX]);
        let (left_constant, right_constant) = (self.values.is_constant(left), self.values.is_constant(right));
        if changes_ops && let Some(right) = right_constant {
            if let Some(left) = left_constant {
                let result = fold(operation, left, right)?;
                *op = Op::LoadConstant(result);
                values[ACCUMULATOR] = self.values.constant(result);
            } else {
                if matches!(operation, Operation::ShiftLeft | Operation::ShiftRight) && right > 31 {
                    return Err(ConstantError::LongShift);
                }
                *op = Op::Constant(operation, right);
                let right = self.values.constant(right);
                values[ACCUMULATOR] = self.values.number(Origin::Operation(operation, true, left, right));
            }
            self.note_progress();
            return Ok(None);
        }
        if changes_ops && left_constant == Some(0) {
            match operation {
                Operation::Add | Operation::Or | Operation::Xor => {
                    *op = Op::FromIndex;
                    return Ok(Some(right));
                }
                Operation::Subtract => {}
                _ => {
                    *op = Op::LoadConstant(0);
                    return Ok(Some(self.values.constant(0)));
                }
            }
        }
        values[ACCUMULATOR] = self.values.number(Origin::Operation(operation, false, left, right));
        Ok(None)
    }

    /// Replaces short sequences by shorter ones, and decides tests of constants.
    fn shorten(&mut self, block: BlockId, ops: &mut [Op]) {
        if ops.is_empty() {
            return;
        }
        let next_op = |ops: &[Op], from: usize| (from..ops.len()).find(|&index| ops[index] != Op::Nothing);
        let needed = self.needed[block];
        let mut last = 0;
        let mut start = next_op(ops, 0);
        while let Some(first) = start
            && let Some(second) = next_op(ops, first + 1)
        {
            last = second;
            start = Some(second);
            if let (Op::Store(word), Op::IndexMemory(other)) = (ops[first], ops[second])
                && word == other
            {
                ops[second] = Op::ToIndex;
                self.note_progress();
            }
            let Op::LoadConstant(number) = ops[first] else { continue };
            if ops[second] == Op::ToIndex {
                ops[first] = Op::IndexConstant(number);
                ops[second] = Op::FromIndex;
                self.note_progress();
                continue;
            }
            // A constant, plus a header's length, as an index: the constant belongs to the load's offset.
            if needed & mask(INDEX) != 0 {
                continue;
            }
            let sum =
                if matches!(ops[second], Op::IndexHeaderLength(_)) { next_op(ops, second + 1) } else { Some(second) };
            if let Some(sum) = sum
                && ops[sum] == Op::Index(Operation::Add)
                && let Some(transfer) = next_op(ops, sum + 1)
                && ops[transfer] == Op::ToIndex
                && let Some(load) = next_op(ops, transfer + 1)
                && let Op::LoadIndexed(width, offset) = ops[load]
            {
                ops[load] = Op::LoadIndexed(width, offset.wrapping_add(number));
                ops[first] = Op::Nothing;
                ops[sum] = Op::Nothing;
                ops[transfer] = Op::Nothing;
                self.note_progress();
            }
        }
        self.merge_with_test(block, &mut ops[last]);
        self.decide(block);
    }

    /// Merges the last instruction of a block with its test.
    fn merge_with_test(&mut self, block: BlockId, last: &mut Op) {
        let End::Test { comparison: ComparisonOperator::Equal, right: Right::Constant(number), .. } =
            self.blocks[block].end
        else {
            return;
        };
        if self.needed[block] & mask(ACCUMULATOR) != 0 {
            return;
        }
        let (new_comparison, new_right) = match *last {
            Op::Index(Operation::Subtract) => match self.values.is_constant(self.exit(block, INDEX)) {
                Some(index) => (ComparisonOperator::Equal, Right::Constant(number.wrapping_add(index))),
                None if number == 0 => (ComparisonOperator::Equal, Right::Index),
                None => return,
            },
            Op::Constant(Operation::Subtract, less) => {
                (ComparisonOperator::Equal, Right::Constant(number.wrapping_add(less)))
            }
            Op::Constant(Operation::And, bits) if number == 0 => {
                self.targets.swap(2 * block, 2 * block + 1);
                (ComparisonOperator::AnyBit, Right::Constant(bits))
            }
            _ => return,
        };
        if let End::Test { comparison, right, .. } = &mut self.blocks[block].end {
            (*comparison, *right) = (new_comparison, new_right);
        }
        *last = Op::Nothing;
        self.note_progress();
    }

    /// Decides a test whose result is known.
    fn decide(&mut self, block: BlockId) {
        let End::Test { comparison, mut right, .. } = self.blocks[block].end else { return };
        if let (ComparisonOperator::AnyBit, Right::Constant(bits)) = (comparison, right) {
            if bits == 0 {
                self.targets[2 * block] = self.targets[2 * block + 1];
            }
            if bits == u32::MAX && self.targets[2 * block] != self.targets[2 * block + 1] {
                self.meets_faults = true;
                if self.has_faults {
                    self.targets[2 * block + 1] = self.targets[2 * block];
                }
            }
        }
        if right == Right::Index
            && let Some(number) = self.values.is_constant(self.exit(block, INDEX))
        {
            right = Right::Constant(number);
            if let End::Test { right: old, .. } = &mut self.blocks[block].end {
                *old = right;
            }
        }
        if let Right::Constant(right) = right
            && let Some(left) = self.values.is_constant(self.exit(block, ACCUMULATOR))
        {
            let holds = match comparison {
                ComparisonOperator::Equal => left == right,
                ComparisonOperator::Greater => left > right,
                ComparisonOperator::GreaterOrEqual => left >= right,
                ComparisonOperator::AnyBit => left & right != 0,
            };
            let [yes, no] = [self.targets[2 * block], self.targets[2 * block + 1]];
            self.targets[2 * block..][..2].fill(if holds { yes } else { no });
            if yes != no {
                self.note_progress();
            }
        }
    }

    /// Removes instructions whose results are not needed.
    fn remove_dead(&mut self, block: BlockId, ops: &mut [Op]) {
        let mut last = [NONE; REGISTERS];
        let forget = |last: &mut [u32; REGISTERS], mut registers: Registers| {
            while registers != 0 {
                last[registers.trailing_zeros() as usize] = NONE;
                registers &= registers - 1;
            }
        };
        for index in 0..ops.len() {
            forget(&mut last, reads(ops[index]));
            if let Some(register) = sets(ops[index]) {
                let before = mem::replace(&mut last[register], index as u32);
                if before != NONE {
                    ops[before as usize] = Op::Nothing;
                    self.note_progress();
                }
            }
        }
        forget(&mut last, test_reads(self.blocks[block].end));
        for register in 0..self.registers {
            if last[register] != NONE && self.needed[block] & mask(register) == 0 {
                ops[last[register] as usize] = Op::Nothing;
                self.meets_faults = true;
                if !self.has_faults {
                    self.exit[block * self.registers + register] = UNKNOWN;
                }
                self.note_progress();
            }
        }
    }

    /// Merges blocks that do the same.
    pub(super) fn merge_equal_blocks(&mut self) {
        self.find_order();
        let mut ops: Vec<Ops> = self.blocks.iter_mut().map(|block| mem::take(&mut block.ops)).collect();
        ops.iter_mut().for_each(Ops::compact);
        let mut known: Map<(&[Op], End), BlockId> =
            Map::with_capacity_and_hasher(self.order.len(), BuildHasherDefault::default());
        let mut merged = vec![0; self.blocks.len()];
        // From the ends upwards, so that what follows is merged already.
        for &block in self.order.iter().rev() {
            let block = block as usize;
            let ways = self.ways(block);
            let end = &mut self.blocks[block].end;
            if let (End::Test { yes, no, .. }, Some(ways)) = (&mut *end, ways) {
                (*yes, *no) = (merged[ways.0], merged[ways.1]);
            }
            merged[block] = *known.entry((&ops[block], *end)).or_insert(block);
        }
        drop(known);
        for (block, ops) in self.blocks.iter_mut().zip(ops) {
            block.ops = ops;
        }
    }
}
