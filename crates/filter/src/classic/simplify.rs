//! Simplifies a program as libpcap's optimiser does, so that the same loads remain in the same order.
//!
//! A load outside the captured bytes rejects a packet at once. Whoever removes a load, or moves one before another,
//! therefore changes the verdicts on packets that are cut off. The changes here are those that McCanne and Jacobson
//! describe for the BSD packet filter, and libpcap's additions, in libpcap's order:
//!
//! - Values are numbered through the graph, so that equal ones are known.
//! - A way into a test whose result is known on this way leads past the test.
//! - Of several tests of a chain (all of an "or", or of an "and"), one of a value that is loaded anyway moves up.
//! - Constants are folded, loads that nobody needs are removed, and tests of constants are decided.
//!
//! The first three are repeated until nothing changes, then the last. Dominators are trees with jump pointers here, not
//! bit sets, so that a pass takes time in proportion to the program.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;

use super::ops::Ops;
use super::{Block, BlockId, End, Flow, MEMORY_WORDS, Op, Right};
use crate::graph::{Comparison, Operation, Width};

/// A constant operation that has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConstantError {
    DivisionByZero,
    RemainderByZero,
    LongShift,
}

/// The maximum number of blocks that the passes of a phase look at together. A phase that would look at more stops, for
/// the time of libpcap's passes grows with the third power of an expression's length: it takes minutes for 1,000 ports.
/// What is left out decides packets that are cut off within their headers, and only those.
const MAX_VISITS: usize = 250_000;

/// Number of steps along a chain that take as long as a look at a block.
const STEPS_A_VISIT: usize = 16;

/// Passes in a row that only move branches, after which a phase ends: it may go in circles.
const MAX_MOVES: usize = 100;

/// Registers: the accumulator, the index, then the words of memory, which few programs use.
const REGISTERS: usize = MEMORY_WORDS + 2;
const ACCUMULATOR: usize = 0;
const INDEX: usize = 1;

/// The register of a word of memory.
fn memory(word: u8) -> usize {
    INDEX + 1 + usize::from(word)
}

/// A set of registers.
type Registers = u32;

const fn mask(register: usize) -> Registers {
    1 << register
}

/// The number of a value. Equal numbers are equal values, except for this one:
type ValueId = u32;

/// A value that is not known.
const UNKNOWN: ValueId = 0;

/// A way from a block to the next: twice its index, plus 1 if the test fails.
type Way = usize;

const NONE: u32 = u32::MAX;

/// Simplifies a program.
pub(crate) fn simplify(flow: Flow) -> Result<Flow, ConstantError> {
    let mut pass = Passes::new(flow);
    pass.run(false)?;
    pass.run(true)?;
    pass.merge_equal_blocks();
    Ok(pass.finish())
}

/// The registers that an instruction reads.
fn reads(op: Op) -> Registers {
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
fn sets(op: Op) -> Option<usize> {
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
fn test_reads(end: End) -> Registers {
    match end {
        End::Test { right: Right::Constant(_), .. } => mask(ACCUMULATOR),
        End::Test { right: Right::Index, .. } => mask(ACCUMULATOR) | mask(INDEX),
        _ => 0,
    }
}

/// A fast hasher for small keys of integers.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

/// How a value comes about.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Origin {
    Constant(u32),
    Length,
    Load(Width, u32),
    LoadIndexed(Width, u32, ValueId),
    HeaderLength(u32),
    Negated(ValueId),
    /// An operation, whether its right operand is in the instruction, and both operands.
    Operation(Operation, bool, ValueId, ValueId),
}

/// The values of a pass.
#[derive(Default)]
struct Values {
    known: Map<Origin, ValueId>,
    constants: Vec<Option<u32>>,
}

impl Values {
    fn clear(&mut self) {
        self.known.clear();
        self.constants.clear();
        self.constants.push(None);
    }

    fn number(&mut self, origin: Origin) -> ValueId {
        *self.known.entry(origin).or_insert_with(|| {
            self.constants.push(match origin {
                Origin::Constant(number) => Some(number),
                _ => None,
            });
            (self.constants.len() - 1) as ValueId
        })
    }

    fn constant(&mut self, number: u32) -> ValueId {
        self.number(Origin::Constant(number))
    }

    fn is_constant(&self, value: ValueId) -> Option<u32> {
        self.constants[value as usize]
    }
}

/// The result of an operation on constants.
fn fold(operation: Operation, left: u32, right: u32) -> Result<u32, ConstantError> {
    Ok(match operation {
        Operation::Add => left.wrapping_add(right),
        Operation::Subtract => left.wrapping_sub(right),
        Operation::Multiply => left.wrapping_mul(right),
        Operation::Divide => left.checked_div(right).ok_or(ConstantError::DivisionByZero)?,
        Operation::Remainder => left.checked_rem(right).ok_or(ConstantError::RemainderByZero)?,
        Operation::And => left & right,
        Operation::Or => left | right,
        Operation::Xor => left ^ right,
        Operation::ShiftLeft => left.checked_shl(right).unwrap_or(0),
        Operation::ShiftRight => left.checked_shr(right).unwrap_or(0),
    })
}

/// A forest in which ancestors are found in logarithmic time. A parent is added before its children.
struct Ancestry {
    parent: Vec<u32>,
    jump: Vec<u32>,
    depth: Vec<u32>,
}

impl Ancestry {
    /// A forest with one root, the node `root`, of this many nodes.
    fn new(nodes: usize, root: usize) -> Ancestry {
        let mut ancestry = Ancestry { parent: vec![NONE; nodes], jump: vec![NONE; nodes], depth: vec![0; nodes] };
        ancestry.parent[root] = root as u32;
        ancestry.jump[root] = root as u32;
        ancestry
    }

    fn add(&mut self, node: usize, parent: u32) {
        let jump = self.jump[parent as usize];
        let above = self.jump[jump as usize];
        let depth = |node: u32| self.depth[node as usize];
        let is_even = depth(parent) - depth(jump) == depth(jump) - depth(above);
        self.jump[node] = if is_even { above } else { parent };
        self.parent[node] = parent;
        self.depth[node] = self.depth[parent as usize] + 1;
    }

    fn climb(&self, mut node: u32, depth: u32) -> u32 {
        while self.depth[node as usize] > depth {
            let jump = self.jump[node as usize];
            node = if self.depth[jump as usize] >= depth { jump } else { self.parent[node as usize] };
        }
        node
    }

    /// The last common ancestor.
    fn common(&self, one: u32, other: u32) -> u32 {
        let depth = self.depth[one as usize].min(self.depth[other as usize]);
        let (mut one, mut other) = (self.climb(one, depth), self.climb(other, depth));
        while one != other {
            let (jump, other_jump) = (self.jump[one as usize], self.jump[other as usize]);
            if jump == other_jump {
                (one, other) = (self.parent[one as usize], self.parent[other as usize]);
            } else {
                (one, other) = (jump, other_jump);
            }
        }
        one
    }
}

/// A kind of test: comparison, and whether it is with a constant.
type TestKind = (Comparison, bool);

/// A way in the list of those that follow equal tests.
#[derive(Clone, Copy)]
struct Known {
    /// In the order of a walk through the tree of ways, the first position that is not below it.
    leave: u32,
    /// The next one above it in the same list, one further above, and how many there are above.
    above: u32,
    jump: u32,
    depth: u32,
    /// Of itself and those above: the first block, and the value that it compares with.
    first: (u32, ValueId),
    /// The same among those that compare with another value.
    second: (u32, ValueId),
}

/// Lists of ways, each in the order of a walk, all in one vector.
#[derive(Default)]
struct KnownWays {
    ways: Vec<Known>,
    /// The position of each, side by side because they are searched.
    enters: Vec<u32>,
    /// For each list, its first and its last way, and the one that is above the next one to be added.
    lists: Vec<(u32, u32, u32)>,
}

impl KnownWays {
    /// Lists with room for as many ways.
    fn with_room(counts: &[u32]) -> KnownWays {
        let mut end = 0;
        let lists = counts.iter().map(|count| {
            let start = end;
            end += count;
            (start, start, NONE)
        });
        let lists = lists.collect();
        let nothing = (NONE, UNKNOWN);
        let unused = Known { leave: NONE, above: NONE, jump: NONE, depth: 0, first: nothing, second: nothing };
        KnownWays { ways: vec![unused; end as usize], enters: vec![NONE; end as usize], lists }
    }

    fn add(&mut self, list: usize, enter: u32, leave: u32, block: u32, right: ValueId) {
        let (_, end, top) = &mut self.lists[list];
        while *top != NONE && self.ways[*top as usize].leave <= enter {
            *top = self.ways[*top as usize].above;
        }
        let own = (block, right);
        let (mut first, mut second) = (own, (NONE, UNKNOWN));
        if let Some(above) = self.ways.get(*top as usize) {
            for other in [above.first, above.second] {
                if other.0 == NONE {
                    continue;
                }
                if other.0 < first.0 {
                    if other.1 != first.1 {
                        second = first;
                    }
                    first = other;
                } else if other.1 != first.1 && other.0 < second.0 {
                    second = other;
                }
            }
        }
        // Jumps are as those of an ancestry.
        let depth_of = |way: u32| self.ways.get(way as usize).map_or(0, |known| known.depth + 1);
        let jump_of = |way: u32| self.ways.get(way as usize).map_or(NONE, |known| known.jump);
        let (jump, depth) = (jump_of(*top), depth_of(*top));
        let above_jump = jump_of(jump);
        let is_even = *top != NONE && depth - depth_of(jump) == depth_of(jump) - depth_of(above_jump);
        let jump = if is_even { above_jump } else { *top };
        self.ways[*end as usize] = Known { leave, above: *top, jump, depth, first, second };
        self.enters[*end as usize] = enter;
        *top = *end;
        *end += 1;
    }

    /// The last one of a list that is above or at this position.
    fn above(&self, list: usize, enter: u32) -> Option<&Known> {
        let (start, end, _) = self.lists[list];
        let range = start as usize..end as usize;
        let last = self.enters[range.clone()].partition_point(|&known| known <= enter).checked_sub(1)?;
        let mut known = &self.ways[range.start + last];
        while known.leave <= enter {
            known = match self.ways.get(known.jump as usize) {
                Some(far) if far.leave <= enter => far,
                _ => self.ways.get(known.above as usize)?,
            };
        }
        Some(known)
    }
}

/// What is tested: kind, left and right value.
type SameTest = (TestKind, ValueId, ValueId);

/// The state of the passes.
struct Passes {
    /// The blocks. During the passes, `targets` says what follows them.
    blocks: Vec<Block>,
    /// Where each way leads; `NONE` for those of blocks that do not test.
    targets: Vec<u32>,
    root: BlockId,
    is_done: bool,
    /// Whether a pass did more than move branches.
    is_progress: bool,
    /// Number of blocks that this phase has looked at.
    visits: usize,
    values: Values,
    /// Number of registers, up to the last one that the program uses.
    registers: usize,
    /// Values at the end of each block, one for each register.
    exit: Vec<ValueId>,
    /// The value with which the test of each block compares.
    right: Vec<ValueId>,
    /// Registers that are needed at the end of each block.
    needed: Vec<Registers>,
    /// The reachable blocks, those with a longer way to an end first.
    order: Vec<u32>,
    /// Number of blocks at the start of `order` that are not ends.
    tests: usize,
    levels: Vec<u32>,
    /// The last way into each block, and the one before each.
    last_in: Vec<u32>,
    before_in: Vec<u32>,
}

impl Passes {
    fn new(flow: Flow) -> Passes {
        // Numbers are those of a walk that takes successful tests first.
        let mut number = vec![usize::MAX; flow.blocks.len()];
        let mut walk = Vec::new();
        let mut stack = vec![flow.root];
        while let Some(block) = stack.pop() {
            if number[block] == usize::MAX {
                number[block] = walk.len();
                walk.push(block);
                stack.extend(flow.blocks[block].next().into_iter().rev().flatten());
            }
        }
        let mut old = flow.blocks;
        let blocks: Vec<Block> = walk
            .iter()
            .map(|&index| {
                let Block { ops, end, part } = &mut old[index];
                let mut end = *end;
                if let End::Test { yes, no, .. } = &mut end {
                    (*yes, *no) = (number[*yes], number[*no]);
                }
                Block { ops: mem::take(ops), end, part: part.clone() }
            })
            .collect();
        let count = blocks.len();
        let targets = blocks.iter().flat_map(|block| match block.end {
            End::Test { yes, no, .. } => [yes as u32, no as u32],
            _ => [NONE; 2],
        });
        let targets = targets.collect();
        let used = blocks
            .iter()
            .flat_map(|block| block.ops.iter())
            .fold(0, |used, &op| used | reads(op) | sets(op).map_or(0, mask));
        let registers = (INDEX + 1).max((Registers::BITS - used.leading_zeros()) as usize);
        Passes {
            blocks,
            targets,
            root: 0,
            is_done: false,
            is_progress: false,
            visits: 0,
            values: Values::default(),
            registers,
            exit: vec![UNKNOWN; registers * count],
            right: vec![UNKNOWN; count],
            needed: vec![0; count],
            order: Vec::new(),
            tests: 0,
            levels: vec![0; count],
            last_in: vec![NONE; count],
            before_in: vec![NONE; 2 * count],
        }
    }

    fn finish(mut self) -> Flow {
        // Tests at the start that decide nothing are left out, but not the instructions of the first.
        let mut first = mem::take(&mut self.blocks[self.root].ops);
        let start = self.root;
        while let End::Test { yes, no, .. } = self.blocks[self.root].end
            && yes == no
        {
            self.root = yes;
        }
        if self.root != start {
            first.extend(self.blocks[self.root].ops.iter().copied());
        }
        self.blocks[self.root].ops = first;
        if matches!(self.blocks[self.root].end, End::Accept | End::Reject) {
            self.blocks[self.root].ops.clear();
        }
        Flow { blocks: self.blocks, root: self.root }
    }

    /// Repeats passes until nothing changes: first those that move branches, then those that change instructions.
    fn run(&mut self, changes_ops: bool) -> Result<(), ConstantError> {
        let mut moves = 0;
        self.visits = 0;
        loop {
            self.is_done = true;
            self.is_progress = false;
            self.find_order();
            self.find_needed();
            self.visits += self.order.len();
            self.values.clear();
            self.find_ways_in();
            // From before any test is decided, as all that follows from the order of blocks.
            let orders = (!changes_ops).then(|| (self.find_dominators(), self.find_walk()));
            for index in 0..self.order.len() {
                self.visit(self.order[index] as usize, changes_ops)?;
            }
            if let Some((dominators, walk)) = orders {
                self.move_branches(&dominators, &walk);
            }
            if self.is_done || self.visits + self.order.len() > MAX_VISITS {
                return Ok(());
            }
            moves = if self.is_progress { 0 } else { moves + 1 };
            if moves >= MAX_MOVES {
                return Ok(());
            }
        }
    }

    fn ways(&self, block: BlockId) -> Option<(BlockId, BlockId)> {
        let (yes, no) = (self.targets[2 * block], self.targets[2 * block + 1]);
        (yes != NONE).then_some((yes as BlockId, no as BlockId))
    }

    fn target(&self, way: Way) -> BlockId {
        self.targets[way] as BlockId
    }

    fn set_target(&mut self, way: Way, target: BlockId) {
        self.targets[way] = target as u32;
    }

    /// The value of a register at the end of a block.
    fn exit(&self, block: BlockId, register: usize) -> ValueId {
        self.exit[block * self.registers + register]
    }

    fn exits(&self, block: BlockId) -> &[ValueId] {
        &self.exit[block * self.registers..][..self.registers]
    }

    /// Sorts the reachable blocks by the longest way from them to an end.
    fn find_order(&mut self) {
        let count = self.blocks.len();
        let mut is_seen = vec![false; count];
        let mut finished: Vec<u32> = Vec::with_capacity(count);
        let mut stack = vec![(self.root, false)];
        let mut top = 0;
        while let Some((block, is_finished)) = stack.pop() {
            if is_finished {
                let level = match self.ways(block) {
                    Some((yes, no)) => self.levels[yes].max(self.levels[no]) + 1,
                    None => 0,
                };
                self.levels[block] = level;
                top = top.max(level);
                finished.push(block as u32);
            } else if !mem::replace(&mut is_seen[block], true) {
                stack.push((block, true));
                if let Some((yes, no)) = self.ways(block) {
                    stack.push((no, false));
                    stack.push((yes, false));
                }
            }
        }
        // Highest level first; within a level, those that were finished last first.
        let mut ends = vec![0usize; top as usize + 2];
        for &block in &finished {
            ends[(top - self.levels[block as usize]) as usize + 1] += 1;
        }
        for level in 1..ends.len() {
            ends[level] += ends[level - 1];
        }
        self.tests = ends[top as usize];
        self.order.clear();
        self.order.resize(finished.len(), 0);
        for &block in finished.iter().rev() {
            let end = &mut ends[(top - self.levels[block as usize]) as usize];
            self.order[*end] = block;
            *end += 1;
        }
    }

    /// The blocks that are not ends, those with shorter ways to an end first, and otherwise in the order of `order`.
    fn tests_upwards(&self) -> Vec<u32> {
        let mut upwards = Vec::with_capacity(self.tests);
        let mut end = self.tests;
        while end > 0 {
            let level = self.levels[self.order[end - 1] as usize];
            let mut start = end - 1;
            while start > 0 && self.levels[self.order[start - 1] as usize] == level {
                start -= 1;
            }
            upwards.extend_from_slice(&self.order[start..end]);
            end = start;
        }
        upwards
    }

    /// Finds the registers that are needed at the end of each block.
    fn find_needed(&mut self) {
        let mut entry = vec![0; self.blocks.len()];
        // From the ends upwards, so that those that follow are known. The order within a level does not matter.
        for index in (0..self.order.len()).rev() {
            let block = self.order[index] as usize;
            let (mut set, mut used, mut killed) = (0, 0, 0);
            for &op in self.blocks[block].ops.iter() {
                used |= reads(op) & !set;
                if let Some(register) = sets(op) {
                    killed |= mask(register) & !used;
                    set |= mask(register);
                }
            }
            used |= test_reads(self.blocks[block].end) & !set;
            self.needed[block] = match self.ways(block) {
                Some((yes, no)) => entry[yes] | entry[no],
                None => 0,
            };
            entry[block] = used | (self.needed[block] & !killed);
        }
    }

    fn find_ways_in(&mut self) {
        self.last_in.fill(NONE);
        for &block in &self.order[..self.tests] {
            for way in [2 * block as usize, 2 * block as usize + 1] {
                let target = self.target(way);
                self.before_in[way] = mem::replace(&mut self.last_in[target], way as u32);
            }
        }
    }

    /// The ways into a block, as they were when they were last looked for, the last one first.
    fn ways_in(&self, block: BlockId) -> impl Iterator<Item = Way> + '_ {
        let mut way = self.last_in[block];
        std::iter::from_fn(move || {
            let this = (way != NONE).then_some(way as usize)?;
            way = self.before_in[this];
            Some(this)
        })
    }

    /// Numbers the values of a block, and simplifies it if `changes_ops`.
    fn visit(&mut self, block: BlockId, changes_ops: bool) -> Result<(), ConstantError> {
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

    fn note_progress(&mut self) {
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
        let End::Test { comparison: Comparison::Equal, right: Right::Constant(number), .. } = self.blocks[block].end
        else {
            return;
        };
        if self.needed[block] & mask(ACCUMULATOR) != 0 {
            return;
        }
        let (new_comparison, new_right) = match *last {
            Op::Index(Operation::Subtract) => match self.values.is_constant(self.exit(block, INDEX)) {
                Some(index) => (Comparison::Equal, Right::Constant(number.wrapping_add(index))),
                None if number == 0 => (Comparison::Equal, Right::Index),
                None => return,
            },
            Op::Constant(Operation::Subtract, less) => (Comparison::Equal, Right::Constant(number.wrapping_add(less))),
            Op::Constant(Operation::And, bits) if number == 0 => {
                self.targets.swap(2 * block, 2 * block + 1);
                (Comparison::AnyBit, Right::Constant(bits))
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
        if let (Comparison::AnyBit, Right::Constant(bits)) = (comparison, right) {
            if bits == 0 {
                self.targets[2 * block] = self.targets[2 * block + 1];
            }
            if bits == u32::MAX {
                self.targets[2 * block + 1] = self.targets[2 * block];
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
                Comparison::Equal => left == right,
                Comparison::Greater => left > right,
                Comparison::GreaterOrEqual => left >= right,
                Comparison::AnyBit => left & right != 0,
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
                // The value at the exit stays as it was, although the register does not have it then. In libpcap 1.10 it
                // does, and a few expressions that use two indices in one packet are therefore wrong there, and here.
                self.note_progress();
            }
        }
    }

    /// Whether a way from the end of `from` into `to` would miss values that are needed after `to`.
    fn misses_values(&self, from: BlockId, to: BlockId) -> bool {
        let mut needed = self.needed[to];
        while needed != 0 {
            let register = needed.trailing_zeros() as usize;
            if self.exit(from, register) != self.exit(to, register) {
                return true;
            }
            needed &= needed - 1;
        }
        false
    }

    /// Leads ways past tests whose results are known, and moves tests up in their chains.
    fn move_branches(&mut self, dominators: &Walk, walk: &Walk) {
        let upwards = self.tests_upwards();
        let known = self.find_known(walk);
        for &block in &upwards {
            self.shortcut(2 * block as usize, &known, walk);
            self.shortcut(2 * block as usize + 1, &known, walk);
        }
        self.find_ways_in();
        for &block in &upwards {
            self.pull_up(block as usize, 0, dominators);
            self.pull_up(block as usize, 1, dominators);
        }
    }

    /// The blocks through which every way to a block goes.
    fn find_dominators(&self) -> Walk {
        let mut dominators = Ancestry::new(self.blocks.len(), self.root);
        // The last common dominator of the ways that are known already.
        let mut common = vec![NONE; self.blocks.len()];
        for &block in &self.order {
            if block as usize != self.root {
                dominators.add(block as usize, common[block as usize]);
            }
            for next in self.ways(block as usize).into_iter().flat_map(|(yes, no)| [yes, no]) {
                common[next] = match common[next] {
                    NONE => block,
                    other => dominators.common(other, block),
                };
            }
        }
        Walk::new(&self.order[1..], &dominators.parent)
    }

    /// The ways through which every way to a way goes, as a tree.
    fn find_walk(&self) -> Walk {
        let count = self.blocks.len();
        let top = 2 * count;
        let mut ways = Ancestry::new(top + 1, top);
        let mut common = vec![NONE; count];
        common[self.root] = top as u32;
        let mut added = Vec::with_capacity(2 * self.tests);
        for &block in &self.order[..self.tests] {
            let above = common[block as usize];
            for way in [2 * block, 2 * block + 1] {
                ways.add(way as usize, above);
                added.push(way);
                let next = self.target(way as usize);
                if self.ways(next).is_some() {
                    common[next] = match common[next] {
                        NONE => way,
                        other => ways.common(other, way),
                    };
                }
            }
        }
        Walk::new(&added, &ways.parent)
    }

    /// What is known on each way, from the ways through which it must have come.
    fn find_known(&self, walk: &Walk) -> KnownTests {
        let Walk { nodes: ways, enter, leave } = walk;
        // The number of each test, and how many blocks have it. One that only one block has tells nothing.
        let mut numbers: Map<SameTest, u32> = Map::default();
        let mut of_block = vec![NONE; self.blocks.len()];
        let mut counts: Vec<u32> = Vec::new();
        let mut equal_counts = vec![0; self.values.constants.len()];
        for &block in &self.order[..self.tests] {
            let Some(kind) = self.test_kind(block as usize) else { continue };
            let (left, right) = (self.exit(block as usize, ACCUMULATOR), self.right[block as usize]);
            let number = *numbers.entry((kind, left, right)).or_insert_with(|| {
                counts.push(0);
                (counts.len() - 1) as u32
            });
            of_block[block as usize] = number;
            counts[number as usize] += 1;
            if kind == (Comparison::Equal, true) {
                equal_counts[left as usize] += 1;
            }
        }
        let both_ways: Vec<u32> =
            counts.iter().flat_map(|&count| if count > 1 { [count; 2] } else { [0; 2] }).collect();
        for count in &mut equal_counts {
            *count = if *count > 1 { *count } else { 0 };
        }
        let mut same = KnownWays::with_room(&both_ways);
        let mut equal = KnownWays::with_room(&equal_counts);
        for &way in ways {
            let (block, side) = (way / 2, way as usize % 2);
            let number = of_block[block as usize];
            if number == NONE {
                continue;
            }
            let (left, right) = (self.exit(block as usize, ACCUMULATOR), self.right[block as usize]);
            let (enter, leave) = (enter[way as usize], leave[way as usize]);
            if counts[number as usize] > 1 {
                same.add(2 * number as usize + side, enter, leave, block, right);
            }
            if side == 0
                && equal_counts[left as usize] > 0
                && self.test_kind(block as usize) == Some((Comparison::Equal, true))
            {
                equal.add(left as usize, enter, leave, block, right);
            }
        }
        KnownTests { same, equal, of_block }
    }

    fn test_kind(&self, block: BlockId) -> Option<TestKind> {
        match self.blocks[block].end {
            End::Test { comparison, right, .. } => Some((comparison, matches!(right, Right::Constant(_)))),
            _ => None,
        }
    }

    /// Leads a way past tests whose results are known on it.
    fn shortcut(&mut self, way: Way, known: &KnownTests, walk: &Walk) {
        let from = way / 2;
        let Some((yes, no)) = self.ways(self.target(way)) else { return };
        if yes == no && !self.misses_values(from, yes) {
            self.note_progress();
            self.set_target(way, yes);
        }
        loop {
            let block = self.target(way);
            let Some((yes, no)) = self.ways(block) else { return };
            let Some(kind) = self.test_kind(block) else { return };
            let (left, right) = (self.exit(block, ACCUMULATOR), self.right[block]);
            let enter = walk.enter[way];
            let find = |side| Some(known.same.above(2 * known.of_block[block] as usize + side, enter)?.first.0);
            let mut found: Option<(u32, BlockId)> = None;
            if let Some(block) = find(0)
                && !self.misses_values(from, yes)
            {
                found = Some((block, yes));
            }
            // After a successful comparison with another constant, this one fails.
            if kind == (Comparison::Equal, true)
                && let Some(ways) = known.equal.above(left as usize, enter)
            {
                let (block, value) = ways.first;
                let block = if value == right { ways.second.0 } else { block };
                if block != NONE && found.is_none_or(|(other, _)| block < other) && !self.misses_values(from, no) {
                    found = Some((block, no));
                }
            }
            if found.is_none()
                && let Some(block) = find(1)
                && !self.misses_values(from, no)
            {
                found = Some((block, no));
            }
            let Some((_, target)) = found else { return };
            self.is_done = false;
            self.set_target(way, target);
            self.visits += 1;
            if self.visits > MAX_VISITS {
                return;
            }
        }
    }

    /// Moves a test up in a chain of tests that have one way out in common (those of an "or" on success, side 0; those
    /// of an "and" on failure, side 1), if it tests the value that was loaded last before the chain.
    fn pull_up(&mut self, block: BlockId, side: usize, dominators: &Walk) {
        let Some(first) = self.ways_in(block).next() else { return };
        let value = self.exit(first / 2, ACCUMULATOR);
        if self.ways_in(block).any(|way| self.exit(way / 2, ACCUMULATOR) != value) {
            return;
        }
        let along = 1 - side;
        let shared = self.target(2 * block + side);
        let is_in_chain = |passes: &Passes, member: BlockId| {
            passes.ways(member).is_some()
                && passes.target(2 * member + side) == shared
                && dominators.is_ancestor(block, member)
        };
        // The first one that tests another value.
        let other_side = 2 * (first / 2) + usize::from(self.target(2 * (first / 2)) != block);
        let mut different = other_side;
        let mut is_at_top = true;
        let mut steps = 0;
        loop {
            let member = self.target(different);
            steps += 1;
            if !is_in_chain(self, member) || self.visits + steps / STEPS_A_VISIT > MAX_VISITS {
                self.visits += steps / STEPS_A_VISIT;
                return;
            }
            if self.exit(member, ACCUMULATOR) != value {
                break;
            }
            different = 2 * member + along;
            is_at_top = false;
        }
        // The next one after it that tests the same value.
        let mut same = 2 * self.target(different) + along;
        loop {
            let member = self.target(same);
            steps += 1;
            if !is_in_chain(self, member) || self.visits + steps / STEPS_A_VISIT > MAX_VISITS {
                self.visits += steps / STEPS_A_VISIT;
                return;
            }
            if self.exit(member, ACCUMULATOR) == value {
                break;
            }
            same = 2 * member + along;
        }
        self.visits += steps / STEPS_A_VISIT;
        let pulled = self.target(same);
        self.set_target(same, self.target(2 * pulled + along));
        self.set_target(2 * pulled + along, self.target(different));
        if is_at_top {
            let ways: Vec<Way> = self.ways_in(block).collect();
            for way in ways {
                let from = way / 2;
                let side = usize::from(self.target(2 * from) != block);
                self.set_target(2 * from + side, pulled);
            }
        } else {
            self.set_target(different, pulled);
        }
        self.is_done = false;
    }

    /// Merges blocks that do the same.
    fn merge_equal_blocks(&mut self) {
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

/// What earlier tests tell about later ones.
struct KnownTests {
    /// The ways that follow the same test: for each test, those of success, then those of failure.
    same: KnownWays,
    /// The ways that follow a successful comparison of a value with a constant, for each value.
    equal: KnownWays,
    /// The number of the test of each block.
    of_block: Vec<u32>,
}

/// A walk through a tree, parents before their children.
struct Walk {
    /// The nodes in its order, without the root.
    nodes: Vec<u32>,
    /// The position of each node in this order, and the first position that is not below it.
    enter: Vec<u32>,
    leave: Vec<u32>,
}

impl Walk {
    /// Walks through the nodes other than the root, which are listed with parents before their children.
    fn new(nodes: &[u32], parent: &[u32]) -> Walk {
        let mut size = vec![1u32; parent.len()];
        for &node in nodes.iter().rev() {
            size[parent[node as usize] as usize] += size[node as usize];
        }
        let mut enter = vec![0; parent.len()];
        let mut leave = vec![0; parent.len()];
        // The position of the next child.
        let mut next = vec![0; parent.len()];
        let mut order = vec![0; nodes.len()];
        for &node in nodes {
            let position = &mut next[parent[node as usize] as usize];
            enter[node as usize] = *position;
            leave[node as usize] = *position + size[node as usize];
            *position += size[node as usize];
            order[enter[node as usize] as usize] = node;
            next[node as usize] = enter[node as usize] + 1;
        }
        Walk { nodes: order, enter, leave }
    }

    /// Whether `node` is `other` or one of its ancestors; neither is the root.
    fn is_ancestor(&self, node: usize, other: usize) -> bool {
        (self.enter[node]..self.leave[node]).contains(&self.enter[other])
    }
}
