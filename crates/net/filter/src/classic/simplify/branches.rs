//! Branches: a way leads past tests whose results are known on it, and tests of a chain move up.

use super::operations::sets;
use super::tree::Walk;
use super::values::Map;
use super::{ACCUMULATOR, MAX_VISITS, NONE, Passes, Registers, STEPS_A_VISIT, UNKNOWN, ValueId, Way, mask};
use crate::classic::{BlockId, End, Right};
use crate::graph::ComparisonOperator;

/// A kind of test: comparison, and whether it is with a constant.
type TestKind = (ComparisonOperator, bool);

/// A way in the list of those that follow equal tests.
#[derive(Clone, Copy)]
struct KnownBranch {
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
    ways: Vec<KnownBranch>,
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
        let unused = KnownBranch { leave: NONE, above: NONE, jump: NONE, depth: 0, first: nothing, second: nothing };
        KnownWays { ways: vec![unused; end as usize], enters: vec![NONE; end as usize], lists }
    }

    pub(super) fn add(&mut self, list: usize, enter: u32, leave: u32, block: u32, right: ValueId) {
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
        self.ways[*end as usize] = KnownBranch { leave, above: *top, jump, depth, first, second };
        self.enters[*end as usize] = enter;
        *top = *end;
        *end += 1;
    }

    /// The last one of a list that is above or at this position.
    pub(super) fn above(&self, list: usize, enter: u32) -> Option<&KnownBranch> {
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

/// What earlier tests imply about later ones.
struct KnownTests {
    /// The ways that follow the same test: for each test, those of success, then those of failure.
    same: KnownWays,
    /// The ways that follow a successful comparison of a value with a constant, for each value.
    equal: KnownWays,
    /// The number of the test of each block.
    of_block: Vec<u32>,
}

impl Passes {
    /// Whether a way from the end of `from` into `to`, instead of into `past`, would miss values that are needed.
    fn misses_values(&mut self, from: BlockId, past: BlockId, to: BlockId) -> bool {
        if self.differ(self.needed[to], from, to) {
            return true;
        }
        let set = self.blocks[past].ops.iter().filter_map(|&op| sets(op)).fold(0, |set, register| set | mask(register));
        let needed = self.needed_before[to] & set;
        let is_unknown = |register| self.exit(past, register) == UNKNOWN;
        if !self.differ(needed, from, past) && !(0..self.registers).any(|r| needed & mask(r) != 0 && is_unknown(r)) {
            return false;
        }
        self.meets_faults = true;
        !self.has_faults
    }

    /// Whether one of these registers has another number at the end of one block than at that of the other.
    fn differ(&self, mut registers: Registers, one: BlockId, other: BlockId) -> bool {
        while registers != 0 {
            let register = registers.trailing_zeros() as usize;
            if self.exit(one, register) != self.exit(other, register) {
                return true;
            }
            registers &= registers - 1;
        }
        false
    }

    /// Leads ways past tests whose results are known, and moves tests up in their chains.
    pub(super) fn move_branches(&mut self, dominators: &Walk, walk: &Walk) {
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

    /// What is known on each way, from the ways through which it must have come.
    fn find_known(&self, walk: &Walk) -> KnownTests {
        let Walk { nodes: ways, enter, leave } = walk;
        // The number of each test, and how many blocks have it. One that only one block has implies nothing.
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
            if kind == (ComparisonOperator::Equal, true) {
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
                && self.test_kind(block as usize) == Some((ComparisonOperator::Equal, true))
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
        if yes == no && !self.misses_values(from, self.target(way), yes) {
            self.note_progress();
            self.set_target(way, yes);
        }
        loop {
            let past = self.target(way);
            let Some((yes, no)) = self.ways(past) else { return };
            let Some(kind) = self.test_kind(past) else { return };
            let (left, right) = (self.exit(past, ACCUMULATOR), self.right[past]);
            let enter = walk.enter[way];
            let find = |side| Some(known.same.above(2 * known.of_block[past] as usize + side, enter)?.first.0);
            let mut found: Option<(u32, BlockId)> = None;
            if let Some(block) = find(0)
                && !self.misses_values(from, past, yes)
            {
                found = Some((block, yes));
            }
            // After a successful comparison with another constant, this one fails.
            if kind == (ComparisonOperator::Equal, true)
                && let Some(ways) = known.equal.above(left as usize, enter)
            {
                let (block, value) = ways.first;
                let block = if value == right { ways.second.0 } else { block };
                if block != NONE && found.is_none_or(|(other, _)| block < other) && !self.misses_values(from, past, no)
                {
                    found = Some((block, no));
                }
            }
            if found.is_none()
                && let Some(block) = find(1)
                && !self.misses_values(from, past, no)
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
}
