//! What filters become before they become machine code: tests of values, each load and each check once, and sets that
//! are decided as a whole.
//!
//! | module | contents |
//! |---|---|
//! | `values` | the numbers that a filter computes, each once; sets of numbers and of tuples |
//! | `lower` | registers become values; loads outside the packet and divisions by zero become tests |
//! | `explore` | follows all paths with what is known on them, and leaves out what is known |
//! | `build` | joins equal parts, and chains of tests of one value |
//! | `possible` | the verdict on a packet of which parts are unknown |
//!
//! A test has no effect but its outcome, since loading outside the packet is a test as well. So tests can change
//! places, as long as a load stays behind the test of its room.

mod build;
mod explore;
mod lower;
pub(crate) mod possible;
pub(crate) mod values;

use self::build::{Built, Goal};
pub(crate) use self::lower::NO_MATCH;
pub use self::lower::{DecisionMode, ExpressionPart};
use self::values::{Condition, FastMap, Interval, Value, ValueId, Values};
use crate::graph::{Graph, MAX_ROUNDS};
use crate::interpret::{Invalid, PacketView, load};

/// Where to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum To {
    /// A step; a later one, except from [`Step::Again`].
    Step(u32),
    /// The end with this verdict.
    End(u32),
}

/// A step of a plan.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Tests whether a value is in a set.
    Member { value: ValueId, set: u32, yes: To, no: To },
    /// Compares two values.
    Compare { comparison: crate::graph::ComparisonOperator, left: ValueId, right: ValueId, yes: To, no: To },
    /// Tests whether words are in a set of tuples.
    Tuple { tuples: u32, yes: To, no: To },
    /// Sets variables, all at once.
    Assign { moves: Box<[(u32, ValueId)]>, next: To },
    /// A further round of a loop of this filter; not more than [`MAX_ROUNDS`].
    Again { filter: u32, next: To, exhausted: To },
    /// A filter matches.
    Note { filter: u32, next: To },
}

/// A set of tuples.
pub(crate) struct Tuples {
    /// The words, and the bits of each that matter.
    pub signature: Box<[(ValueId, u32)]>,
    /// The tuples, sorted.
    pub words: Vec<Box<[u32]>>,
}

/// Filters, ready to be run.
pub struct Plan {
    pub(crate) values: Values,
    pub(crate) sets: Vec<Vec<Interval>>,
    pub(crate) tuples: Vec<Tuples>,
    pub(crate) steps: Vec<Step>,
    pub(crate) parts: Vec<ExpressionPart>,
    pub(crate) entry: To,
    pub(crate) variables: usize,
    pub(crate) mode: DecisionMode,
    pub(crate) filters: usize,
    /// Whether a step reads the length on the wire.
    pub(crate) reads_wire_length: bool,
}

/// The maximum number of filters in one plan.
pub const MAX_FILTERS: usize = 64;

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A graph breaks a rule.
    #[error("filter {filter}: {invalid}")]
    Invalid {
        /// The position of the filter.
        filter: usize,
        /// The rule.
        #[source]
        invalid: Invalid,
    },
    /// There are too many filters.
    #[error("{0} filters do not fit into one pass, which decides up to {MAX_FILTERS}: use several")]
    TooMany(usize),
}

/// The verdicts on one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The first filter that matches, by its position. Not known in [`DecisionMode::All`].
    pub first: Option<u32>,
    /// A bit for each filter that matches. In [`DecisionMode::First`] only that of the first one.
    pub all: u64,
}

impl Plan {
    /// A plan for one filter.
    ///
    /// # Errors
    /// The graph is not [valid](Graph::check).
    pub fn new(graph: &Graph) -> Result<Plan, PlanError> {
        Plan::of(&[graph], DecisionMode::First)
    }

    /// A plan for several filters.
    ///
    /// # Errors
    /// A graph is not [valid](Graph::check), or there are more than [`MAX_FILTERS`].
    pub fn of(graphs: &[&Graph], mode: DecisionMode) -> Result<Plan, PlanError> {
        Plan::new_with(graphs, mode, false)
    }

    /// The plan for the first filter that matches, behind a guard: the first graph, which has no verdict of its own. No
    /// filter matches a packet that the guard rejects, and none matches one of which a test needs bytes that it does not
    /// have, or divides by zero, before one has matched.
    ///
    /// # Errors
    /// As [`Plan::of`].
    pub(crate) fn guarded(graphs: &[&Graph]) -> Result<Plan, PlanError> {
        Plan::new_with(graphs, DecisionMode::First, true)
    }

    fn new_with(graphs: &[&Graph], mode: DecisionMode, is_guarded: bool) -> Result<Plan, PlanError> {
        if graphs.len() > MAX_FILTERS {
            return Err(PlanError::TooMany(graphs.len()));
        }
        for (filter, graph) in graphs.iter().enumerate() {
            graph.check().map_err(|invalid| PlanError::Invalid { filter, invalid })?;
        }
        let mut lowered = lower::lower(graphs, mode, is_guarded);
        let explored = explore::explore(&lowered);
        let outcome = build::build(&mut lowered, &explored);
        Ok(Collector::new(lowered, outcome).collect(mode, graphs.len()))
    }

    /// Whether a filter asks for the length on the wire.
    pub fn reads_wire_length(&self) -> bool {
        self.reads_wire_length
    }

    /// The verdict if it is the same for every packet.
    pub fn constant(&self) -> Option<Verdict> {
        match self.entry {
            To::End(verdict) => Some(Plan::verdict(verdict, 0)),
            To::Step(_) => None,
        }
    }

    fn verdict(end: u32, noted: u64) -> Verdict {
        let first = (end != NO_MATCH).then_some(end);
        Verdict { first, all: noted | first.map_or(0, |first| 1 << first) }
    }

    /// Runs the filters on a packet.
    pub fn run(&self, packet: PacketView<'_>) -> Verdict {
        let mut run = PlanRun { plan: self, packet, variables: vec![0; self.variables] };
        let (mut noted, mut rounds, mut to) = (0, [0; MAX_FILTERS], self.entry);
        loop {
            let step = match to {
                To::Step(step) => &self.steps[step as usize],
                To::End(verdict) => return Plan::verdict(verdict, noted),
            };
            to = match step {
                Step::Member { value, set, yes, no } => {
                    if contains(&self.sets[*set as usize], run.value(*value)) {
                        *yes
                    } else {
                        *no
                    }
                }
                Step::Compare { comparison, left, right, yes, no } => {
                    if comparison.holds(run.value(*left), run.value(*right)) { *yes } else { *no }
                }
                Step::Tuple { tuples, yes, no } => {
                    if run.is_among(&self.tuples[*tuples as usize]) {
                        *yes
                    } else {
                        *no
                    }
                }
                Step::Assign { moves, next } => {
                    let values: Vec<u32> = moves.iter().map(|(_, value)| run.value(*value)).collect();
                    for ((variable, _), value) in moves.iter().zip(values) {
                        run.variables[*variable as usize] = value;
                    }
                    *next
                }
                Step::Again { filter, next, exhausted } => {
                    let rounds = &mut rounds[*filter as usize];
                    *rounds += 1;
                    if *rounds > MAX_ROUNDS { *exhausted } else { *next }
                }
                Step::Note { filter, next } => {
                    noted |= 1 << filter;
                    *next
                }
            };
        }
    }
}

fn contains(set: &[Interval], number: u32) -> bool {
    let at = set.partition_point(|&(_, high)| high < number);
    set.get(at).is_some_and(|&(low, _)| low <= number)
}

struct PlanRun<'a> {
    plan: &'a Plan,
    packet: PacketView<'a>,
    variables: Vec<u32>,
}

impl PlanRun<'_> {
    fn value(&self, value: ValueId) -> u32 {
        match self.plan.values.get(value) {
            Value::Constant(number) => number,
            Value::Load { width, base, offset } => {
                let base = base.map_or(0, |base| self.value(base));
                // A test of the room came before.
                load(self.packet.bytes, width, u64::from(base) + u64::from(offset)).unwrap_or(0)
            }
            Value::WireLength => self.packet.wire_length,
            Value::Room(base) => {
                let base = base.map_or(0, |base| self.value(base));
                let room = self.packet.bytes.len().saturating_sub(base as usize);
                u32::try_from(room).unwrap_or(u32::MAX)
            }
            Value::Binary { operation, left, right } => {
                operation.apply(self.value(left), self.value(right)).unwrap_or(0)
            }
            Value::Variable(variable) => self.variables[variable as usize],
        }
    }

    fn is_among(&self, tuples: &Tuples) -> bool {
        let words: Box<[u32]> = tuples.signature.iter().map(|&(value, mask)| self.value(value) & mask).collect();
        tuples.words.binary_search(&words).is_ok()
    }
}

/// Keeps what the plan needs.
struct Collector {
    lowered: lower::Lowered,
    outcome: build::Outcome,
    /// The new number of each step; `u32::MAX` if it is not reached.
    numbers: Vec<u32>,
    sets: Vec<Vec<Interval>>,
    set_numbers: FastMap<u32, u32>,
    tuples: Vec<Tuples>,
    tuple_numbers: FastMap<u32, u32>,
}

impl Collector {
    fn new(lowered: lower::Lowered, outcome: build::Outcome) -> Collector {
        let numbers = vec![u32::MAX; outcome.steps.len()];
        Collector {
            lowered,
            outcome,
            numbers,
            sets: Vec::new(),
            set_numbers: FastMap::default(),
            tuples: Vec::new(),
            tuple_numbers: FastMap::default(),
        }
    }

    fn collect(mut self, mode: DecisionMode, filters: usize) -> Plan {
        let mut todo = vec![self.outcome.entry];
        let mut is_reached = vec![false; self.outcome.steps.len()];
        while let Some(goal) = todo.pop() {
            let step = match goal {
                Goal::Step(step) => step as usize,
                Goal::Loop(item) => {
                    // A loop that only leads to itself never ends but by its rounds.
                    todo.extend(self.outcome.loops.get(&item).filter(|&&start| start != goal));
                    continue;
                }
                Goal::End(_) => continue,
            };
            if std::mem::replace(&mut is_reached[step], true) {
                continue;
            }
            match &self.outcome.steps[step] {
                Built::Test { yes, no, .. } => todo.extend([*yes, *no]),
                Built::Again { next, exhausted, .. } => todo.extend([*next, *exhausted]),
                Built::Assign { next, .. } | Built::Note { next, .. } => todo.push(*next),
            }
        }
        // What was built last comes first.
        let order: Vec<usize> = (0..is_reached.len()).rev().filter(|&step| is_reached[step]).collect();
        for (number, &step) in order.iter().enumerate() {
            self.numbers[step] = number as u32;
        }
        let steps: Vec<Step> = order.iter().map(|&step| self.step(step)).collect();
        let parts = order.iter().map(|&step| self.outcome.parts[step].clone()).collect();
        let entry = self.to(self.outcome.entry);
        let lower::Lowered { values, variables, .. } = self.lowered;
        let mut plan = Plan {
            values,
            sets: self.sets,
            tuples: self.tuples,
            steps,
            parts,
            entry,
            variables: variables as usize,
            mode,
            filters,
            reads_wire_length: false,
        };
        plan.reads_wire_length = plan.steps.iter().any(|step| plan.reads_length(step));
        plan
    }

    fn to(&self, goal: Goal) -> To {
        match goal {
            Goal::Step(step) => To::Step(self.numbers[step as usize]),
            Goal::Loop(item) => match self.outcome.loops.get(&item) {
                Some(&start) if start != goal => self.to(start),
                _ => To::End(NO_MATCH),
            },
            Goal::End(verdict) => To::End(verdict),
        }
    }

    fn step(&mut self, step: usize) -> Step {
        match self.outcome.steps[step].clone() {
            Built::Test { condition, yes, no } => {
                let (yes, no) = (self.to(yes), self.to(no));
                match condition {
                    Condition::Member(value, set) => {
                        let (sets, all) = (&mut self.sets, &self.lowered.sets);
                        let set = *self.set_numbers.entry(set.0).or_insert_with(|| {
                            sets.push(all.all(set));
                            sets.len() as u32 - 1
                        });
                        Step::Member { value, set, yes, no }
                    }
                    Condition::Compare(comparison, left, right) => Step::Compare { comparison, left, right, yes, no },
                    Condition::Tuple(tuple) => {
                        let (tuples, all) = (&mut self.tuples, &self.lowered.sets);
                        let tuples = *self.tuple_numbers.entry(tuple.0).or_insert_with(|| {
                            tuples
                                .push(Tuples { signature: all.signature(tuple).into(), words: all.all_tuples(tuple) });
                            tuples.len() as u32 - 1
                        });
                        Step::Tuple { tuples, yes, no }
                    }
                }
            }
            Built::Assign { moves, next } => Step::Assign { moves, next: self.to(next) },
            Built::Again { filter, next, exhausted } => {
                Step::Again { filter, next: self.to(next), exhausted: self.to(exhausted) }
            }
            Built::Note { filter, next } => Step::Note { filter, next: self.to(next) },
        }
    }
}

impl Plan {
    fn reads_length(&self, step: &Step) -> bool {
        match step {
            Step::Member { value, .. } => self.value_reads_length(*value),
            Step::Compare { left, right, .. } => self.value_reads_length(*left) || self.value_reads_length(*right),
            Step::Tuple { tuples, .. } => {
                self.tuples[*tuples as usize].signature.iter().any(|(value, _)| self.value_reads_length(*value))
            }
            Step::Assign { moves, .. } => moves.iter().any(|(_, value)| self.value_reads_length(*value)),
            Step::Again { .. } | Step::Note { .. } => false,
        }
    }

    fn value_reads_length(&self, value: ValueId) -> bool {
        match self.values.get(value) {
            Value::WireLength => true,
            Value::Load { base, .. } | Value::Room(base) => base.is_some_and(|base| self.value_reads_length(base)),
            Value::Binary { left, right, .. } => self.value_reads_length(left) || self.value_reads_length(right),
            Value::Constant(_) | Value::Variable(_) => false,
        }
    }
}
