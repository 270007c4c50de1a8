//! Follows all paths with what is known on them: tests whose outcome is known are left out.

use std::hash::{Hash, Hasher};

use super::lower::{Lowered, Next, PlanNode};
use super::values::{Condition, FastMap, Interval, Mix, Value, ValueId};

/// Numbers that a value is known not to be are remembered up to this count.
const MAX_HOLES: usize = 6;

/// Values about which something is remembered, at most.
const MAX_FACTS: usize = 12;

/// From this number of states of one node on, less is remembered.
const MANY_STATES: u32 = 6;

/// From this number of states of one node on, nothing is remembered.
const MAX_STATES: u32 = 16;

/// From this number of items on beyond the first few of their nodes, nodes have few states.
const MANY_ITEMS: u32 = 10_000;

/// From this number of nodes on, most have several states.
const MANY_NODES: usize = 1_000;

/// From this number of states of one node on, nothing is remembered in long filters.
const FEW_STATES: u32 = 4;

/// Nodes that are passed before a state is remembered at one.
const MAX_STRIDE: usize = 32;

/// What is known of a value.
#[derive(Clone, Copy)]
struct Fact {
    value: ValueId,
    low: u32,
    high: u32,
    holes: [u32; MAX_HOLES],
    hole_count: u8,
    /// Up to this node, all holes matter.
    until: u32,
    /// Its number, or [`NONE`] if it has none yet.
    number: u32,
}

impl Eq for Fact {}

impl Hash for Fact {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(u64::from(self.value) << 32 | u64::from(self.low));
        hasher.write_u64(u64::from(self.high) << 32 | u64::from(self.hole_count));
        self.holes().iter().for_each(|&hole| hasher.write_u32(hole));
    }
}

impl PartialEq for Fact {
    fn eq(&self, other: &Fact) -> bool {
        (self.value, self.low, self.high, self.holes()) == (other.value, other.low, other.high, other.holes())
    }
}

/// What is known on a path, sorted by value.
type PathState = [Fact];

/// No item.
const NONE: u32 = u32::MAX;

/// Where an edge leads: an item, or an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Item(u32),
    End(u32),
}

/// A node in a state.
pub(crate) struct Item {
    pub node: u32,
    pub action: Action,
}

/// What is left to do.
pub(crate) enum Action {
    /// The test was known.
    Skip(Target),
    Test {
        condition: Condition,
        yes: Target,
        no: Target,
    },
    Assign {
        moves: Box<[(u32, ValueId)]>,
        next: Target,
    },
    Again {
        filter: u32,
        next: Target,
        exhausted: Target,
    },
    Note {
        filter: u32,
        next: Target,
    },
}

/// All nodes in all their states. Edges lead to later items' nodes, except those of loops.
pub(crate) struct Explored {
    pub items: Vec<Item>,
    /// The items in the order of their nodes.
    pub order: Vec<u32>,
    pub entry: Target,
    /// Whether an item is the start of a loop.
    pub loop_starts: Vec<bool>,
}

impl Fact {
    fn unknown(value: ValueId, max: u32) -> Fact {
        Fact { value, low: 0, high: max, holes: [0; MAX_HOLES], hole_count: 0, until: u32::MAX, number: NONE }
    }

    fn holes(&self) -> &[u32] {
        &self.holes[..usize::from(self.hole_count)]
    }

    /// Removes numbers at the ends that it is known not to be.
    fn shrink(&mut self) {
        while self.low < self.high && self.holes().contains(&self.low) {
            self.low += 1;
        }
        while self.low < self.high && self.holes().contains(&self.high) {
            self.high -= 1;
        }
        let (mut kept, mut count) = ([0; MAX_HOLES], 0);
        for &hole in self.holes() {
            if (self.low..=self.high).contains(&hole) {
                kept[count] = hole;
                count += 1;
            }
        }
        (self.holes, self.hole_count) = (kept, count as u8);
    }

    /// Whether it is in the interval, if that is known. Its own ends are no holes.
    fn is_within(&self, (low, high): Interval) -> Option<bool> {
        if high < self.low || self.high < low {
            Some(false)
        } else if low <= self.low && self.high <= high {
            Some(true)
        } else if low == high && self.holes().contains(&low) {
            Some(false)
        } else {
            None
        }
    }

    /// Whether it is in the set, if that is known.
    fn is_in(&self, set: &[Interval]) -> Option<bool> {
        let first = set.partition_point(|&(_, high)| high < self.low);
        let within: &[Interval] = &set[first..];
        let within = &within[..within.iter().take(4).take_while(|&&(low, _)| low <= self.high).count()];
        if within.iter().all(|&(low, high)| low == high && self.holes().contains(&low)) {
            // At most three: there could be more intervals behind the fourth.
            return (within.len() < 4).then_some(false);
        }
        let &(low, high) = within.first()?;
        if low <= self.low && self.high <= high {
            return Some(true);
        }
        // All but numbers that it is not.
        let mut from = self.low;
        for &(low, high) in within {
            if low > from && !(low - from == 1 && self.holes().contains(&from)) {
                return None;
            }
            if high >= self.high {
                return Some(true);
            }
            from = high + 1;
        }
        (from == self.high && self.holes().contains(&from)).then_some(true)
    }

    /// Learns that it is in the set, or that it is not.
    fn learn(&mut self, set: &[Interval], is_in: bool) {
        let (&[(low, high)], true) = (set, !set.is_empty()) else {
            if let (true, [(low, _), .., (_, high)]) = (is_in, set) {
                self.low = self.low.max(*low);
                self.high = self.high.min(*high);
                self.shrink();
            }
            return;
        };
        if is_in {
            self.low = self.low.max(low);
            self.high = self.high.min(high);
        } else if low <= self.low {
            self.low = self.low.max(high.saturating_add(1));
        } else if high >= self.high {
            self.high = self.high.min(low - 1);
        } else if low == high && !self.holes().contains(&low) {
            // The last one takes the place of the first if there are too many.
            let from = usize::from(usize::from(self.hole_count) == MAX_HOLES);
            let mut holes = [0; MAX_HOLES];
            let count = self.holes().len() - from;
            holes[..count].copy_from_slice(&self.holes()[from..]);
            holes[count] = low;
            holes[..=count].sort_unstable();
            (self.holes, self.hole_count) = (holes, count as u8 + 1);
        }
        self.shrink();
    }
}

/// The usual test, of a value and one interval. Of other tests the value is [`NONE`].
#[derive(Clone, Copy)]
struct UsualTest {
    value: ValueId,
    interval: Interval,
}

struct Explorer<'a> {
    lowered: &'a Lowered,
    /// The test of each node, side by side because they are asked again and again.
    tests: Vec<UsualTest>,
    /// The last node that tests each value.
    last_test: Vec<u32>,
    /// The last node that tests whether a value is this number.
    last_point: FastMap<(ValueId, u32), u32>,
    /// Values about which nothing is remembered, because tests of addresses of several words must keep their shape.
    is_forgotten: Vec<bool>,
    items: Vec<Item>,
    states: Vec<StateOfItem>,
    /// All facts, and the number of each.
    facts: Vec<Fact>,
    numbers: FastMap<Fact, u32>,
    /// The facts of all items, by their numbers.
    known: Vec<u32>,
    /// The items of each node.
    of_node: Vec<ItemsOfNode>,
    is_loop_start: Vec<bool>,
    /// Number of items that are not one of the first few of their nodes.
    further: u32,
}

/// The state of an item.
struct StateOfItem {
    /// Its first fact, and how many it has.
    start: u32,
    count: u32,
    hash: u64,
    /// The item of the same node before it.
    before: u32,
}

/// The items of a node.
#[derive(Clone, Copy)]
struct ItemsOfNode {
    last: u32,
    count: u32,
}

fn hash_of(facts: &[u32]) -> u64 {
    let mut hash = Mix::default();
    facts.iter().for_each(|&fact| hash.write_u32(fact));
    hash.finish()
}

/// Follows all paths.
pub(crate) fn explore(lowered: &Lowered) -> Explored {
    let count = lowered.nodes.len();
    let usual_test = |node: &PlanNode| match *node {
        PlanNode::Test { condition: Condition::Member(value, set), .. } => {
            lowered.sets.single(set).map(|interval| UsualTest { value, interval })
        }
        _ => None,
    };
    let other = UsualTest { value: NONE, interval: (0, 0) };
    // Memory that is not used is not touched.
    let room = count * if count < MANY_NODES { 1 } else { FEW_STATES as usize };
    let mut explorer = Explorer {
        lowered,
        tests: lowered.nodes.iter().map(|node| usual_test(node).unwrap_or(other)).collect(),
        last_test: vec![0; lowered.values.len()],
        last_point: FastMap::default(),
        is_forgotten: forgotten(lowered),
        items: Vec::with_capacity(room),
        states: Vec::with_capacity(room),
        facts: Vec::new(),
        numbers: FastMap::default(),
        known: Vec::with_capacity(room * 4),
        of_node: vec![ItemsOfNode { last: NONE, count: 0 }; count],
        is_loop_start: vec![false; count],
        further: 0,
    };
    for (index, node) in lowered.nodes.iter().enumerate() {
        match node {
            PlanNode::Test { condition: Condition::Member(value, set), .. } => {
                explorer.last_test[*value as usize] = index as u32;
                if let Some((low, high)) = lowered.sets.single(*set)
                    && low == high
                {
                    explorer.last_point.insert((*value, low), index as u32);
                }
            }
            PlanNode::Again { next: Next::Node(start), .. } => explorer.is_loop_start[*start as usize] = true,
            _ => {}
        }
    }
    for start in 0..count {
        if explorer.is_loop_start[start] {
            explorer.register(start as u32, explorer.known.len());
        }
    }
    let entry = explorer.enter(lowered.entry, &[]);
    let mut order = Vec::with_capacity(room);
    let mut state = Vec::new();
    for node in 0..count {
        let start = order.len();
        let mut item = explorer.of_node[node].last;
        while item != NONE {
            order.push(item);
            item = explorer.states[item as usize].before;
        }
        order[start..].reverse();
        for &item in &order[start..] {
            explorer.visit(item, &mut state);
        }
    }
    let loop_starts = explorer.items.iter().map(|item| explorer.is_loop_start[item.node as usize]).collect();
    Explored { items: explorer.items, order, entry, loop_starts }
}

/// Words of a long list of addresses, each of several words.
fn forgotten(lowered: &Lowered) -> Vec<bool> {
    const MANY_TESTS: usize = 8;
    let mut tests: FastMap<ValueId, usize> = FastMap::default();
    for node in &lowered.nodes {
        if let PlanNode::Test { condition: Condition::Member(value, _), .. } = node {
            *tests.entry(*value).or_default() += 1;
        }
    }
    let place = |value| match lowered.values.get(value) {
        Value::Load { width: crate::graph::Width::Word, base, offset } => Some((base, offset)),
        _ => None,
    };
    let tested: FastMap<(Option<ValueId>, u32), usize> =
        tests.iter().filter_map(|(&value, &count)| Some((place(value)?, count))).collect();
    let is_neighbour = |base, offset: Option<u32>| {
        offset.is_some_and(|offset| tested.get(&(base, offset)).is_some_and(|&count| count >= 2))
    };
    let is_forgotten = |value| match place(value) {
        Some((base, offset)) => {
            tests.get(&value).is_some_and(|&count| count >= MANY_TESTS)
                && (is_neighbour(base, offset.checked_add(4)) || is_neighbour(base, offset.checked_sub(4)))
        }
        None => false,
    };
    (0..lowered.values.len() as ValueId).map(is_forgotten).collect()
}

impl Explorer<'_> {
    /// The item of a node in the state whose facts are the last ones, from `start` on.
    fn register(&mut self, node: u32, start: usize) -> u32 {
        let facts = &self.known[start..];
        let hash = hash_of(facts);
        let ItemsOfNode { last, count } = self.of_node[node as usize];
        let mut known = last;
        while known != NONE {
            let of_item = &self.states[known as usize];
            if of_item.hash == hash && self.facts_of(known) == facts {
                self.known.truncate(start);
                return known;
            }
            known = of_item.before;
        }
        let item = self.items.len() as u32;
        self.items.push(Item { node, action: Action::Skip(Target::End(0)) });
        self.states.push(StateOfItem { start: start as u32, count: facts.len() as u32, hash, before: last });
        self.further += u32::from(count >= FEW_STATES);
        self.of_node[node as usize] = ItemsOfNode { last: item, count: count + 1 };
        item
    }

    fn facts_of(&self, item: u32) -> &[u32] {
        let StateOfItem { start, count, .. } = self.states[item as usize];
        &self.known[start as usize..][..count as usize]
    }

    /// The number of a fact that has none yet.
    fn number(&mut self, mut fact: Fact) -> u32 {
        let facts = &mut self.facts;
        *self.numbers.entry(fact).or_insert_with(|| {
            fact.number = facts.len() as u32;
            facts.push(fact);
            fact.number
        })
    }

    fn last_point(&self, value: ValueId, number: u32) -> u32 {
        self.last_point.get(&(value, number)).copied().unwrap_or(0)
    }

    /// Adds to the facts what of this matters at a node.
    fn keep_relevant(&mut self, node: u32, state: &PathState, forget_numbers: bool) {
        for fact in state {
            if self.last_test[fact.value as usize] < node
                || (forget_numbers && fact.low == fact.high && self.last_point(fact.value, fact.low) < node)
            {
                continue;
            }
            let without;
            let fact = if fact.until < node {
                without = self.without_holes(*fact, node);
                &without
            } else {
                fact
            };
            let is_unknown = fact.hole_count == 0 && fact.low == 0 && fact.high == self.lowered.values.max(fact.value);
            if !is_unknown {
                let number = if fact.number == NONE { self.number(*fact) } else { fact.number };
                self.known.push(number);
            }
        }
    }

    /// A fact without the holes that do not matter from a node on.
    fn without_holes(&self, mut fact: Fact, node: u32) -> Fact {
        let (mut holes, mut count, mut until) = ([0; MAX_HOLES], 0, u32::MAX);
        for &hole in fact.holes() {
            let last = self.last_point(fact.value, hole);
            if last >= node {
                holes[count] = hole;
                count += 1;
                until = until.min(last);
            }
        }
        (fact.holes, fact.hole_count, fact.until, fact.number) = (holes, count as u8, until, NONE);
        fact
    }

    /// The outcome of the test of a node, if it is known.
    fn decide(&self, node: u32, condition: Condition, state: &PathState) -> Option<bool> {
        let UsualTest { value, interval } = self.tests[node as usize];
        let fact = |value: ValueId| state.iter().find(|fact| fact.value == value);
        if value != NONE {
            return fact(value)?.is_within(interval);
        }
        let Condition::Member(value, set) = condition else { return None };
        fact(value)?.is_in(self.lowered.sets.simple(set)?)
    }

    /// Where an edge leads after the test of a node with this outcome.
    fn enter_after(&mut self, condition: Condition, holds: bool, next: Next, state: &mut Vec<Fact>) -> Target {
        let Condition::Member(value, set) = condition else { return self.enter(next, state) };
        let lowered = self.lowered;
        let Some(set) = lowered.sets.simple(set) else { return self.enter(next, state) };
        if self.is_forgotten[value as usize] {
            return self.enter(next, state);
        }
        let learn = |fact: &mut Fact| {
            fact.learn(set, holds);
            fact.number = NONE;
            if let (&[(low, high)], false) = (set, holds)
                && low == high
            {
                fact.until = fact.until.min(self.last_point(value, low));
            }
        };
        // The state is put right afterwards, because most of it stays.
        match state.binary_search_by_key(&value, |fact| fact.value) {
            Ok(at) => {
                let before = state[at];
                learn(&mut state[at]);
                let target = self.enter(next, state);
                state[at] = before;
                target
            }
            Err(_) if state.len() == MAX_FACTS => self.enter(next, state),
            Err(at) => {
                let mut fact = Fact::unknown(value, lowered.values.max(value));
                learn(&mut fact);
                state.insert(at, fact);
                let target = self.enter(next, state);
                state.remove(at);
                target
            }
        }
    }

    /// Where an edge leads in a state, past all tests that are known.
    fn enter(&mut self, next: Next, state: &PathState) -> Target {
        let mut next = next;
        for stride in 0.. {
            let node = match next {
                Next::Node(node) => node,
                Next::End(verdict) => return Target::End(verdict),
                Next::Block(_) | Next::Accept | Next::Reject | Next::Fail => {
                    unreachable!("edges are set when graphs are lowered")
                }
            };
            if self.is_loop_start[node as usize] {
                return Target::Item(self.register(node, self.known.len()));
            }
            if stride < MAX_STRIDE
                && let PlanNode::Test { condition, yes, no } = &self.lowered.nodes[node as usize]
                && let Some(holds) = self.decide(node, *condition, state)
            {
                next = if holds { *yes } else { *no };
                continue;
            }
            let states = self.of_node[node as usize].count;
            let max = if self.further < MANY_ITEMS { MAX_STATES } else { FEW_STATES };
            let start = self.known.len();
            if states < max {
                self.keep_relevant(node, state, states >= MANY_STATES);
            }
            return Target::Item(self.register(node, start));
        }
        unreachable!("the loop ends only by returning")
    }

    fn visit(&mut self, item: u32, state: &mut Vec<Fact>) {
        let Item { node, .. } = self.items[item as usize];
        state.clear();
        state.extend(self.facts_of(item).iter().map(|&fact| self.facts[fact as usize]));
        let lowered = self.lowered;
        let action = match &lowered.nodes[node as usize] {
            PlanNode::Test { condition, yes, no } => match self.decide(node, *condition, state) {
                Some(holds) => Action::Skip(self.enter(if holds { *yes } else { *no }, state)),
                None => {
                    let yes = self.enter_after(*condition, true, *yes, state);
                    let no = self.enter_after(*condition, false, *no, state);
                    Action::Test { condition: *condition, yes, no }
                }
            },
            PlanNode::Assign { moves, next } => {
                let next = self.enter(*next, state);
                Action::Assign { moves: moves.clone(), next }
            }
            PlanNode::Again { filter, next, exhausted } => {
                let (next, exhausted) = (self.enter(*next, &[]), self.enter(*exhausted, &[]));
                Action::Again { filter: *filter, next, exhausted }
            }
            PlanNode::Note { filter, next } => Action::Note { filter: *filter, next: self.enter(*next, state) },
        };
        self.items[item as usize].action = action;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is said to be known is true, and what is learnt is true.
        #[test]
        fn facts_hold(
            steps in proptest::collection::vec((proptest::collection::vec((0u32..24, 0u32..6), 1..4), any::<bool>()), 1..8),
        ) {
            let mut fact = Fact::unknown(0, 31);
            let mut left: Vec<u32> = (0..32).collect();
            for (intervals, is_in) in steps {
                let mut set: Vec<Interval> = intervals.iter().map(|&(low, length)| (low, low + length)).collect();
                set.sort_unstable();
                set.dedup_by(|next, last| next.0 <= last.1 + 1 && { last.1 = last.1.max(next.1); true });
                if let [interval] = set[..] {
                    prop_assert_eq!(fact.is_within(interval), fact.is_in(&set));
                }
                let contains = |number: &u32| set.iter().any(|(low, high)| (low..=high).contains(&number));
                match fact.is_in(&set) {
                    Some(known) => prop_assert!(left.iter().all(|number| contains(number) == known)),
                    None => {
                        left.retain(|number| contains(number) == is_in);
                        if left.is_empty() {
                            break;
                        }
                        fact.learn(&set, is_in);
                    }
                }
                let still = |number: &u32| (fact.low..=fact.high).contains(number) && !fact.holes().contains(number);
                prop_assert!(left.iter().all(still));
            }
        }
    }
}
