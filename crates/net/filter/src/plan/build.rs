//! Builds the plan from its ends to its start: equal parts once, and chains of tests as one test.

use std::hash::{Hash, Hasher};

use super::explore::{Action, Explored, Target};
use super::lower::{ExpressionPart, Lowered};
use super::values::{
    Condition, FastMap, Interval, Mix, SetId, Sets, TupleId, Value, ValueId, Values, complement, intersection,
};
use crate::graph::Width;

/// Where to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Goal {
    /// A step of the plan.
    Step(u32),
    /// The start of a loop, by its item.
    Loop(u32),
    /// The end with this verdict.
    End(u32),
}

/// A step of the plan under construction: earlier steps come later in the plan.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Built {
    Test { condition: Condition, yes: Goal, no: Goal },
    Assign { moves: Box<[(u32, ValueId)]>, next: Goal },
    Again { filter: u32, next: Goal, exhausted: Goal },
    Note { filter: u32, next: Goal },
}

/// Chains are searched this far for a test of the same value.
const MAX_CHAIN: usize = 6;

/// Sets of up to this many intervals are compared with each other.
const FEW: usize = 4;

/// Rules are applied to their own results this often.
const MAX_DEPTH: usize = 8;

pub(crate) struct Builder<'a> {
    values: &'a mut Values,
    sets: &'a mut Sets,
    parts: &'a [ExpressionPart],
    pub steps: Vec<Built>,
    /// The part of each step: a number of `parts`.
    pub step_parts: Vec<ExpressionPart>,
    index: StepIndex,
}

/// The steps by what they do: a table of their numbers, at most half full, with open addresses.
struct StepIndex(Vec<u32>);

impl StepIndex {
    const NONE: u32 = u32::MAX;

    fn with_room(steps: usize) -> StepIndex {
        StepIndex(vec![Self::NONE; (2 * steps).next_power_of_two().max(64)])
    }

    fn start(&self, built: &Built) -> usize {
        let mut hash = Mix::default();
        built.hash(&mut hash);
        hash.finish() as usize & (self.0.len() - 1)
    }

    /// The number of an equal step.
    ///
    /// # Errors
    /// There is none; its place in the table.
    fn find(&self, built: &Built, steps: &[Built]) -> Result<u32, usize> {
        let mut place = self.start(built);
        loop {
            match self.0[place] {
                Self::NONE => return Err(place),
                step if steps[step as usize] == *built => return Ok(step),
                _ => place = (place + 1) & (self.0.len() - 1),
            }
        }
    }

    /// Sets the place of the last step.
    fn set_last(&mut self, place: usize, steps: &[Built]) {
        self.0[place] = steps.len() as u32 - 1;
        if 2 * steps.len() <= self.0.len() {
            return;
        }
        let mut larger = StepIndex::with_room(2 * steps.len());
        for (step, built) in steps.iter().enumerate() {
            if let Err(place) = larger.find(built, &steps[..step]) {
                larger.0[place] = step as u32;
            }
        }
        *self = larger;
    }
}

/// The result.
pub(crate) struct Outcome {
    pub steps: Vec<Built>,
    pub parts: Vec<ExpressionPart>,
    pub entry: Goal,
    /// Where each loop starts, by its item.
    pub loops: FastMap<u32, Goal>,
}

/// Builds the plan.
pub(crate) fn build(lowered: &mut Lowered, explored: &Explored) -> Outcome {
    let Lowered { values, sets, parts, .. } = lowered;
    // Memory that is not used is not touched.
    let room = explored.items.len();
    let mut builder = Builder {
        values,
        sets,
        parts,
        steps: Vec::with_capacity(room),
        step_parts: Vec::with_capacity(room),
        index: StepIndex::with_room(room),
    };
    let mut goals = vec![Goal::End(0); explored.items.len()];
    let mut loops = FastMap::default();
    for &item in explored.order.iter().rev() {
        let goal = |target: Target| match target {
            Target::Item(item) if explored.loop_starts[item as usize] => Goal::Loop(item),
            Target::Item(item) => goals[item as usize],
            Target::End(verdict) => Goal::End(verdict),
        };
        let node = explored.items[item as usize].node as usize;
        let part = builder.parts[node].clone();
        let built = match &explored.items[item as usize].action {
            Action::Skip(next) => goal(*next),
            Action::Test { condition, yes, no } => builder.test(*condition, goal(*yes), goal(*no), &part, 0),
            Action::Assign { moves, next } => {
                let next = goal(*next);
                builder.add(Built::Assign { moves: moves.clone(), next }, &part)
            }
            Action::Again { filter, next, exhausted } => {
                let (next, exhausted) = (goal(*next), goal(*exhausted));
                builder.add(Built::Again { filter: *filter, next, exhausted }, &part)
            }
            Action::Note { filter, next } => {
                let next = goal(*next);
                builder.add(Built::Note { filter: *filter, next }, &part)
            }
        };
        goals[item as usize] = built;
        if explored.loop_starts[item as usize] {
            loops.insert(item, built);
        }
    }
    let entry = match explored.entry {
        Target::Item(item) if explored.loop_starts[item as usize] => Goal::Loop(item),
        Target::Item(item) => goals[item as usize],
        Target::End(verdict) => Goal::End(verdict),
    };
    Outcome { steps: builder.steps, parts: builder.step_parts, entry, loops }
}

impl Builder<'_> {
    fn add(&mut self, built: Built, part: &ExpressionPart) -> Goal {
        let place = match self.index.find(&built, &self.steps) {
            Ok(step) => return Goal::Step(step),
            Err(place) => place,
        };
        self.steps.push(built);
        self.step_parts.push(part.clone());
        self.index.set_last(place, &self.steps);
        Goal::Step(self.steps.len() as u32 - 1)
    }

    fn test_at(&self, goal: Goal) -> Option<(Condition, Goal, Goal)> {
        let Goal::Step(step) = goal else { return None };
        match self.steps[step as usize] {
            Built::Test { condition, yes, no } => Some((condition, yes, no)),
            _ => None,
        }
    }

    fn part_of(&self, goal: Goal, part: &ExpressionPart) -> ExpressionPart {
        match goal {
            Goal::Step(step) => joined(part, &self.step_parts[step as usize]),
            _ => part.clone(),
        }
    }

    fn few(&self, set: SetId) -> Option<&[Interval]> {
        self.sets.simple(set).filter(|intervals| intervals.len() <= FEW)
    }

    /// A test, made simpler with the steps that follow it.
    fn test(&mut self, condition: Condition, yes: Goal, no: Goal, part: &ExpressionPart, depth: usize) -> Goal {
        let (yes, no) = (self.passed(condition, true, yes), self.passed(condition, false, no));
        if yes == no {
            return yes;
        }
        if depth < MAX_DEPTH
            && let Some(goal) = self.joined_with_same(condition, yes, no, part, depth)
        {
            return goal;
        }
        if depth < MAX_DEPTH
            && let Some(goal) = self.hoisted_room(condition, yes, no, part, depth)
        {
            return goal;
        }
        if let Some((tuple, yes)) = self.tuple(condition, yes, no) {
            let part = self.part_of(yes.1, part);
            return self.chained(Condition::Tuple(tuple), yes.0, no, &part);
        }
        self.chained(condition, yes, no, part)
    }

    /// The goal after this condition had this outcome, past tests that ask the same.
    fn passed(&self, condition: Condition, holds: bool, goal: Goal) -> Goal {
        let mut goal = goal;
        while let Some((next, yes, no)) = self.test_at(goal) {
            let known = if next == condition { Some(holds) } else { self.implied(condition, holds, next) };
            match known {
                Some(true) => goal = yes,
                Some(false) => goal = no,
                None => break,
            }
        }
        goal
    }

    fn implied(&self, condition: Condition, holds: bool, next: Condition) -> Option<bool> {
        let (Condition::Member(value, set), Condition::Member(same, other)) = (condition, next) else { return None };
        if value != same {
            return None;
        }
        let (set, other) = (self.few(set)?, self.few(other)?);
        let within: Vec<Interval> = if holds { set.to_vec() } else { complement(set) };
        let common = intersection(&within, other);
        if common.is_empty() {
            Some(false)
        } else if common == within {
            Some(true)
        } else {
            None
        }
    }

    /// A test of a value before another test of the same value: one test, if that is enough.
    fn joined_with_same(
        &mut self,
        condition: Condition,
        yes: Goal,
        no: Goal,
        part: &ExpressionPart,
        depth: usize,
    ) -> Option<Goal> {
        let Condition::Member(value, set) = condition else { return None };
        if let Some((Condition::Member(same, inner), inner_yes, inner_no)) = self.test_at(yes)
            && same == value
            && let (Some(outer), Some(inside)) = (self.few(set), self.few(inner))
        {
            let part = self.part_of(yes, part);
            if inner_no == no {
                let both = intersection(outer, inside);
                let both = self.sets.intervals(both);
                return Some(self.test(Condition::Member(value, both), inner_yes, no, &part, depth + 1));
            }
            if inner_yes == no {
                let rest = intersection(outer, &complement(inside));
                if rest.len() <= 2 {
                    let rest = self.sets.intervals(rest);
                    return Some(self.test(Condition::Member(value, rest), inner_no, no, &part, depth + 1));
                }
            }
            // Rooms: the greater one first.
            if let (Value::Room(_), &[(less, u32::MAX)], &[(more, u32::MAX)]) = (self.values.get(value), outer, inside)
                && more > less
            {
                let less = self.test(condition, inner_no, no, &part, depth + 1);
                return Some(self.test(Condition::Member(value, inner), inner_yes, less, &part, depth + 1));
            }
        }
        if let Some((Condition::Member(same, inner), inner_yes, inner_no)) = self.test_at(no)
            && same == value
            && inner_no == yes
            && let (Some(outer), Some(inside)) = (self.few(set), self.few(inner))
        {
            let rest = intersection(inside, &complement(outer));
            if rest.len() <= 2 {
                let part = self.part_of(no, part);
                let rest = self.sets.intervals(rest);
                return Some(self.test(Condition::Member(value, rest), inner_yes, yes, &part, depth + 1));
            }
        }
        None
    }

    /// A test of a load that is followed, if it does not hold, by a test of more room behind the same base: the room
    /// first, so that all tests behind it are in one chain.
    fn hoisted_room(
        &mut self,
        condition: Condition,
        yes: Goal,
        no: Goal,
        part: &ExpressionPart,
        depth: usize,
    ) -> Option<Goal> {
        let Condition::Member(value, _) = condition else { return None };
        let Value::Load { base: Some(base), .. } = self.values.get(value) else { return None };
        let (room, enough, too_little) = self.test_at(no)?;
        let Condition::Member(measured, _) = room else { return None };
        if self.values.get(measured) != Value::Room(Some(base)) {
            return None;
        }
        let room_part = self.part_of(no, part);
        let enough = self.test(condition, yes, enough, part, depth + 1);
        let too_little = self.test(condition, yes, too_little, part, depth + 1);
        Some(self.test(room, enough, too_little, &room_part, depth + 1))
    }

    /// Tests of one word after the other: one test of all words. Returns its set, and the goals if it holds, and of
    /// the test that it replaces.
    fn tuple(&mut self, condition: Condition, yes: Goal, no: Goal) -> Option<(TupleId, (Goal, Goal))> {
        let (value, mask, word) = self.masked(condition)?;
        let (base, offset) = self.word(value)?;
        let (next, inner_yes, inner_no) = self.test_at(yes)?;
        if inner_no != no && self.past_other_words(value, mask, word, no) != inner_no {
            return None;
        }
        let follows = |builder: &Self, next: ValueId| {
            offset.checked_add(4).is_some_and(|offset| builder.word(next) == Some((base, offset)))
        };
        let mut signature = vec![(value, mask)];
        let mut words = vec![word];
        match next {
            Condition::Tuple(tuple) => {
                let rest = self.sets.signature(tuple);
                if rest.len() >= 4 || !follows(self, rest[0].0) {
                    return None;
                }
                signature.extend_from_slice(rest);
                words.extend_from_slice(self.sets.one_tuple(tuple)?);
            }
            _ => {
                let (next, mask, word) = self.masked(next)?;
                if !follows(self, next) {
                    return None;
                }
                signature.push((next, mask));
                words.push(word);
            }
        }
        Some((self.sets.tuple(signature.into(), words.into()), (inner_yes, yes)))
    }

    /// Where a chain of tests leads if the value is this number, past tests of other numbers: who wrote the tests knew
    /// it, and left them out there.
    fn past_other_words(&self, value: ValueId, mask: u32, word: u32, goal: Goal) -> Goal {
        let mut goal = goal;
        while let Some((condition, _, no)) = self.test_at(goal) {
            let is_other = mask == u32::MAX
                && match condition {
                    Condition::Member(same, set) => {
                        same == value
                            && self
                                .few(set)
                                .is_some_and(|set| set.iter().all(|&(low, high)| !(low..=high).contains(&word)))
                    }
                    Condition::Tuple(tuple) => {
                        let (same, mask) = self.sets.signature(tuple)[0];
                        same == value && self.sets.lacks_first_word(tuple, word & mask)
                    }
                    Condition::Compare(..) => false,
                };
            if !is_other {
                break;
            }
            goal = no;
        }
        goal
    }

    fn word(&self, value: ValueId) -> Option<(Option<ValueId>, u32)> {
        match self.values.get(value) {
            Value::Load { width: Width::Word, base, offset } => Some((base, offset)),
            _ => None,
        }
    }

    /// A test whether some leading bits of a value are equal to these.
    fn masked(&self, condition: Condition) -> Option<(ValueId, u32, u32)> {
        let Condition::Member(value, set) = condition else { return None };
        let (low, high) = self.sets.single(set)?;
        let free = low ^ high;
        (free & free.wrapping_add(1) == 0 && low & free == 0).then_some((value, !free, low))
    }

    /// A test in front of a chain of tests that lead to the same goal if they hold: joined with the one of the same
    /// value, if there is one. The order of such tests does not matter.
    fn chained(&mut self, condition: Condition, yes: Goal, no: Goal, part: &ExpressionPart) -> Goal {
        let mut passed = Vec::new();
        let mut at = no;
        while passed.len() < MAX_CHAIN
            && let Some((next, next_yes, next_no)) = self.test_at(at)
            && next_yes == yes
        {
            let union = match (condition, next) {
                (Condition::Member(value, set), Condition::Member(same, other)) if value == same => {
                    Some(Condition::Member(value, self.sets.union(other, set)))
                }
                (Condition::Tuple(one), Condition::Tuple(other)) => {
                    self.sets.union_of_tuples(other, one).map(Condition::Tuple)
                }
                _ => None,
            };
            let Some(union) = union else {
                passed.push((next, at));
                at = next_no;
                continue;
            };
            let part = self.part_of(at, part);
            let mut rest = next_no;
            for (condition, step) in passed.into_iter().rev() {
                let part = self.part_of(step, &part);
                rest = self.add(Built::Test { condition, yes, no: rest }, &part);
            }
            if rest == yes {
                return yes;
            }
            return self.add(Built::Test { condition: union, yes, no: rest }, &part);
        }
        self.add(Built::Test { condition, yes, no }, part)
    }
}

/// The part from the start of one to the end of the other, if they are of one filter.
fn joined(one: &ExpressionPart, other: &ExpressionPart) -> ExpressionPart {
    if one.filter != other.filter {
        return one.clone();
    }
    ExpressionPart { filter: one.filter, text: one.text.start.min(other.text.start)..one.text.end.max(other.text.end) }
}
