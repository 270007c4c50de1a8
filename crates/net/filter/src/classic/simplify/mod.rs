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
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the passes |
//! | `values.rs` | numbers of values |
//! | `tree.rs` | dominators |
//! | `operations.rs`, `branches.rs` | the changes |

mod branches;
mod operations;
mod tree;
mod values;

use std::mem;

use self::operations::{reads, sets, test_reads};
use self::values::Values;
use crate::classic::{Block, BlockId, End, Flow, MEMORY_WORDS};

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

/// The number of a value. Equal numbers mean equal values; [`UNKNOWN`] equals nothing, not even itself.
type ValueId = u32;

/// A value that is not known.
const UNKNOWN: ValueId = 0;

/// A way from a block to the next: twice its index, plus 1 if the test fails.
type Way = usize;

const NONE: u32 = u32::MAX;

/// A simplified program.
pub(crate) struct Simplified {
    pub(crate) flow: Flow,
    /// Whether libpcap's faults may have made another program of it.
    pub(crate) meets_faults: bool,
}

/// Simplifies a program, with these faults of libpcap 1.10 or without:
///
/// - A test for any of all 32 bits is taken for one that always succeeds.
/// - A way is led past a block although the next one needs what the block puts into a register.
/// - A register is taken for one that has the value of an instruction that was removed.
pub(crate) fn simplify(flow: Flow, has_faults: bool) -> Result<Simplified, ConstantError> {
    let mut pass = Passes::new(flow, has_faults);
    pass.run(false)?;
    pass.run(true)?;
    pass.merge_equal_blocks();
    let meets_faults = pass.meets_faults;
    Ok(Simplified { flow: pass.finish(), meets_faults })
}

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
    /// Whether libpcap's faults are reproduced, and whether that makes a difference to a pass.
    has_faults: bool,
    meets_faults: bool,
    /// Number of blocks that this phase has looked at.
    visits: usize,
    values: Values,
    /// Number of registers, up to the last one that the program uses.
    registers: usize,
    /// Values at the end of each block, one for each register.
    exit: Vec<ValueId>,
    /// The value with which the test of each block compares.
    right: Vec<ValueId>,
    /// Registers that are needed at the end of each block, and at its start.
    needed: Vec<Registers>,
    needed_before: Vec<Registers>,
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
    fn new(flow: Flow, has_faults: bool) -> Passes {
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
            has_faults,
            meets_faults: false,
            visits: 0,
            values: Values::default(),
            registers,
            exit: vec![UNKNOWN; registers * count],
            right: vec![UNKNOWN; count],
            needed: vec![0; count],
            needed_before: vec![0; count],
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

    /// Finds the registers that are needed at both ends of each block.
    fn find_needed(&mut self) {
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
                Some((yes, no)) => self.needed_before[yes] | self.needed_before[no],
                None => 0,
            };
            self.needed_before[block] = used | (self.needed[block] & !killed);
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
}
