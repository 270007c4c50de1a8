//! From graphs to tests: registers become values, and everything that can fail becomes a test.

use std::ops::Range;

use super::values::{Condition, FastMap, Loaded, Sets, Test, Value, ValueId, Values};
use crate::graph::{Block, BlockEnd, BlockIndex, Graph, Operand, Operation, Step};

/// Where to go: a node, or an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Next {
    Node(u32),
    /// The end with this verdict.
    End(u32),
    /// The start of a block of the graph at hand.
    Block(u32),
    /// The graph at hand accepts.
    Accept,
    /// The graph at hand rejects.
    Reject,
    /// The graph at hand needs what the packet does not have.
    Fail,
}

/// The verdict where no filter matches, and the only one where all filters are asked.
pub(crate) const NO_MATCH: u32 = u32::MAX;

/// A part of an expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExpressionPart {
    /// The filter, by its position.
    pub filter: usize,
    /// Bytes of its text.
    pub text: Range<usize>,
}

/// A step of all filters together.
#[derive(Clone, Debug)]
pub(crate) enum PlanNode {
    Test {
        condition: Condition,
        yes: Next,
        no: Next,
    },
    /// Sets variables, all at once.
    Assign {
        moves: Box<[(u32, ValueId)]>,
        next: Next,
    },
    /// A further round of a loop of this filter, which rejects if there were too many.
    Again {
        filter: u32,
        next: Next,
        exhausted: Next,
    },
    /// A filter matches, where all are asked.
    Note {
        filter: u32,
        next: Next,
    },
}

/// All filters, as tests.
pub(crate) struct Lowered {
    pub values: Values,
    pub sets: Sets,
    /// Edges lead to later nodes, except those of [`Node::Again`].
    pub nodes: Vec<PlanNode>,
    /// The part of each node.
    pub parts: Vec<ExpressionPart>,
    pub entry: Next,
    pub variables: u32,
}

/// What several filters decide together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecisionMode {
    /// The first filter that matches.
    #[default]
    First,
    /// All filters that match.
    All,
}

/// A value made of more values than this is kept in a variable.
const MAX_SIZE: u32 = 48;

/// Lowers graphs, which must be [valid](Graph::check). With a guard, which is the first graph, see
/// [`Plan::guarded`](super::Plan::guarded).
pub(crate) fn lower(graphs: &[&Graph], mode: DecisionMode, is_guarded: bool) -> Lowered {
    let (values, sets) = (Values::default(), Sets::default());
    // Memory that is not used is not touched.
    let room = graphs.iter().map(|graph| 4 * graph.blocks.len()).sum();
    let (nodes, parts) = (Vec::with_capacity(room), Vec::with_capacity(room));
    let mut lowered = Lowered { values, sets, nodes, parts, entry: Next::End(NO_MATCH), variables: 0 };
    let mut lowered_graphs = Vec::with_capacity(graphs.len());
    for (filter, graph) in graphs.iter().enumerate() {
        let start = lowered.nodes.len();
        // The place of a test in front of the graph, which is left out if it gains nothing.
        let gate = PlanNode::Note { filter: filter as u32, next: Next::Reject };
        lowered.push(gate, ExpressionPart { filter, text: 0..0 });
        let entry = Lowering::new(&mut lowered, graph, filter).run();
        if !is_guarded {
            strengthen(&mut lowered, start);
        }
        let entry = test_all_room(&mut lowered, start, entry);
        let accept = match mode {
            DecisionMode::First => Next::End(filter as u32),
            DecisionMode::All => {
                let note = PlanNode::Note { filter: filter as u32, next: Next::Reject };
                Next::Node(lowered.push(note, ExpressionPart { filter, text: 0..0 }))
            }
        };
        lowered_graphs.push((start..lowered.nodes.len(), entry, accept));
    }
    // A filter that rejects goes on with the next one, a guard that accepts.
    for (filter, (range, entry, accept)) in lowered_graphs.into_iter().enumerate().rev() {
        let (accept, reject) = match is_guarded && filter == 0 {
            true => (lowered.entry, Next::End(NO_MATCH)),
            false => (accept, lowered.entry),
        };
        let fail = if is_guarded { Next::End(NO_MATCH) } else { reject };
        let resolve = |next| match next {
            Next::Accept => accept,
            Next::Reject => reject,
            Next::Fail => fail,
            next => next,
        };
        for edge in lowered.nodes[range].iter_mut().flat_map(|node| node.edges().into_iter().flatten()) {
            *edge = resolve(*edge);
        }
        lowered.entry = resolve(entry);
    }
    lowered
}

impl PlanNode {
    fn edges(&mut self) -> [Option<&mut Next>; 2] {
        match self {
            PlanNode::Test { yes, no, .. } => [Some(yes), Some(no)],
            PlanNode::Again { next, exhausted, .. } => [Some(next), Some(exhausted)],
            PlanNode::Assign { next, .. } | PlanNode::Note { next, .. } => [Some(next), None],
        }
    }
}

impl Lowered {
    fn push(&mut self, node: PlanNode, part: ExpressionPart) -> u32 {
        self.nodes.push(node);
        self.parts.push(part);
        self.nodes.len() as u32 - 1
    }
}

/// The place of an edge that is not yet set.
#[derive(Clone, Copy)]
enum Cursor {
    /// The start of the block.
    Start,
    Yes(u32),
    No(u32),
}

/// The values of registers at a place. A register without a value is not read there, or is 0.
#[derive(Default)]
struct Current(Vec<Option<ValueId>>);

impl Current {
    fn get(&self, register: u16) -> Option<ValueId> {
        self.0.get(usize::from(register)).copied().flatten()
    }

    fn set(&mut self, register: u16, value: ValueId) {
        if let Some(place) = self.0.get_mut(usize::from(register)) {
            *place = Some(value);
        }
    }
}

struct Lowering<'a> {
    lowered: &'a mut Lowered,
    graph: &'a Graph,
    filter: usize,
    alive: Alive,
    /// The values of these registers at the start of each block, and whether the block is reached.
    values: Vec<ValueId>,
    is_reached: Vec<bool>,
    /// Registers that are variables at the start of a block.
    variables: FastMap<(usize, u16), u32>,
    /// Variables that hold the results of steps, by block and step, because they are made of many values.
    large: FastMap<(usize, usize), u32>,
    has_loop: bool,
    /// Blocks to which only loops lead.
    entered_from_behind: Vec<usize>,
    /// Where each block starts.
    starts: Vec<Next>,
}

fn reads(value: &crate::graph::Value) -> [Option<u16>; 2] {
    use crate::graph::Value as Graphed;
    let register = |operand: &Operand| match operand {
        Operand::Register(register) => Some(register.0),
        Operand::Constant(_) => None,
    };
    match value {
        Graphed::Copy(from) => [register(from), None],
        Graphed::Load { base, .. } => [base.map(|base| base.0), None],
        Graphed::Length => [None, None],
        Graphed::Binary { left, right, .. } => [register(left), register(right)],
    }
}

fn successors(end: &BlockEnd) -> [Option<BlockIndex>; 2] {
    match end {
        BlockEnd::Branch { yes, no, .. } => [Some(*yes), Some(*no)],
        BlockEnd::Goto(next) | BlockEnd::Again(next) => [Some(*next), None],
        BlockEnd::Accept | BlockEnd::Reject => [None, None],
    }
}

/// For each block the registers that are read in it or later before they are set, sorted.
#[derive(Default)]
struct Alive {
    registers: Vec<u16>,
    /// Where those of each block are.
    ranges: Vec<(u32, u32)>,
}

impl Alive {
    fn of(graph: &Graph) -> Alive {
        let has_loop = graph.blocks.iter().any(|block| matches!(block.end, BlockEnd::Again(_)));
        let mut alive = Alive { registers: Vec::new(), ranges: vec![(0, 0); graph.blocks.len()] };
        let mut now = Vec::new();
        loop {
            let mut has_changed = false;
            for (index, block) in graph.blocks.iter().enumerate().rev() {
                now.clear();
                alive.before(block, &mut now);
                if now != alive.at(index) {
                    let start = alive.registers.len() as u32;
                    alive.registers.extend_from_slice(&now);
                    alive.ranges[index] = (start, alive.registers.len() as u32);
                    has_changed = true;
                }
            }
            if !has_changed || !has_loop {
                return alive;
            }
        }
    }

    fn at(&self, block: usize) -> &[u16] {
        &self.registers[self.range(block)]
    }

    /// Where the registers of a block are among all.
    fn range(&self, block: usize) -> Range<usize> {
        let (start, end) = self.ranges[block];
        start as usize..end as usize
    }

    /// Adds those of a block to `now`, which is empty.
    fn before(&self, block: &Block, now: &mut Vec<u16>) {
        for next in successors(&block.end).into_iter().flatten() {
            now.extend_from_slice(self.at(next));
        }
        if let BlockEnd::Branch { left, right, .. } = &block.end {
            for operand in [left, right] {
                if let Operand::Register(register) = operand {
                    now.push(register.0);
                }
            }
        }
        for Step { target, value } in block.steps.iter().rev() {
            now.retain(|register| *register != target.0);
            now.extend(reads(value).into_iter().flatten());
        }
        now.sort_unstable();
        now.dedup();
    }
}

impl<'a> Lowering<'a> {
    fn new(lowered: &'a mut Lowered, graph: &'a Graph, filter: usize) -> Lowering<'a> {
        let count = graph.blocks.len();
        Lowering {
            lowered,
            graph,
            filter,
            alive: Alive::of(graph),
            values: Vec::new(),
            is_reached: Vec::new(),
            variables: FastMap::default(),
            large: FastMap::default(),
            has_loop: graph.blocks.iter().any(|block| matches!(block.end, BlockEnd::Again(_))),
            entered_from_behind: Vec::new(),
            starts: vec![Next::Reject; count],
        }
    }

    /// Lowers the graph, and returns where it starts.
    fn run(mut self) -> Next {
        while self.evaluate() {}
        let first_node = self.lowered.nodes.len();
        let mut registers = Current::default();
        for index in 0..self.graph.blocks.len() {
            self.block(index, &mut registers);
        }
        // A block without a node starts where its goto leads.
        for index in (0..self.starts.len()).rev() {
            if let Next::Block(next) = self.starts[index] {
                self.starts[index] = self.starts[next as usize];
            }
        }
        for node in &mut self.lowered.nodes[first_node..] {
            for edge in node.edges().into_iter().flatten() {
                if let Next::Block(block) = *edge {
                    *edge = self.starts[block as usize];
                }
            }
        }
        self.starts[0]
    }

    /// Computes the values of all registers at the start of each block. True if it has found new variables, so that it
    /// must be done again.
    fn evaluate(&mut self) -> bool {
        let graph = self.graph;
        let zero = self.lowered.values.constant(0);
        self.values = vec![zero; self.alive.registers.len()];
        self.is_reached = vec![false; graph.blocks.len()];
        self.is_reached[0] = true;
        for block in self.entered_from_behind.clone() {
            self.is_reached[block] = true;
            self.enter_variables(block);
        }
        // The first block can be the start of a loop.
        self.enter_variables(0);
        let mut is_new = false;
        let mut registers = Current::default();
        for (index, block) in graph.blocks.iter().enumerate() {
            if !self.enter_block(index, &mut registers) || !self.steps(index, &mut registers, None) {
                continue;
            }
            for next in successors(&block.end).into_iter().flatten() {
                if next <= index && !self.is_reached[next] {
                    self.enter_from_behind(next);
                    is_new = true;
                }
                let is_new_here = self.merge(next, &registers);
                is_new |= is_new_here && next <= index;
            }
        }
        is_new
    }

    /// Only a loop leads to this block, and what it computes is not known when the block is reached.
    fn enter_from_behind(&mut self, block: usize) {
        self.entered_from_behind.push(block);
        for register in self.alive.at(block) {
            self.variables.insert((block, *register), self.lowered.variables);
            self.lowered.variables += 1;
        }
    }

    fn enter_variables(&mut self, block: usize) {
        if self.variables.is_empty() || !self.is_reached[block] {
            return;
        }
        for (value, register) in self.values[self.alive.range(block)].iter_mut().zip(self.alive.at(block)) {
            if let Some(&variable) = self.variables.get(&(block, *register)) {
                *value = self.lowered.values.intern(Value::Variable(variable));
            }
        }
    }

    /// The values at the start of a block. False if it is never reached.
    fn enter_block(&self, block: usize, registers: &mut Current) -> bool {
        registers.0.clear();
        registers.0.resize(self.graph.registers, None);
        let values = &self.values[self.alive.range(block)];
        self.alive.at(block).iter().zip(values).for_each(|(&register, &value)| registers.set(register, value));
        self.is_reached[block]
    }

    /// True if a register became a variable.
    fn merge(&mut self, block: usize, registers: &Current) -> bool {
        let zero = self.lowered.values.constant(0);
        let value = |register: &u16| registers.get(*register).unwrap_or(zero);
        let state = &mut self.values[self.alive.range(block)];
        if !std::mem::replace(&mut self.is_reached[block], true) {
            state.iter_mut().zip(self.alive.at(block)).for_each(|(old, register)| *old = value(register));
            self.enter_variables(block);
            return false;
        }
        let mut is_new = false;
        let values = &mut self.lowered.values;
        for (old, register) in state.iter_mut().zip(self.alive.at(block)) {
            let new = value(register);
            if *old == new {
                continue;
            }
            // Without loops, all that leads to a block is known before the block is evaluated.
            let max = if self.has_loop { u32::MAX } else { values.max(*old).max(values.max(new)) };
            if self.variables.contains_key(&(block, *register)) {
                values.set_max(*old, max);
                continue;
            }
            let variable = self.lowered.variables;
            self.lowered.variables += 1;
            self.variables.insert((block, *register), variable);
            *old = values.intern(Value::Variable(variable));
            values.set_max(*old, max);
            is_new = true;
        }
        is_new
    }

    /// Takes the steps, and writes their tests at the cursor if there is one. False if a step always fails.
    fn steps(&mut self, block: usize, registers: &mut Current, mut cursor: Option<&mut Cursor>) -> bool {
        let graph = self.graph;
        for (index, step) in graph.blocks[block].steps.iter().enumerate() {
            let Some((mut value, test)) = self.step(step, registers) else { return false };
            if let Some(cursor) = &mut cursor {
                self.require(block, cursor, test);
            }
            if self.lowered.values.size(value) > MAX_SIZE {
                let variables = &mut self.lowered.variables;
                let variable = *self.large.entry((block, index)).or_insert_with(|| {
                    *variables += 1;
                    *variables - 1
                });
                if let Some(cursor) = &mut cursor {
                    let assign = PlanNode::Assign { moves: Box::new([(variable, value)]), next: Next::Reject };
                    let part = self.part(block);
                    let node = self.lowered.push(assign, part);
                    self.set(block, **cursor, Next::Node(node));
                    **cursor = Cursor::Yes(node);
                }
                value = self.lowered.values.intern(Value::Variable(variable));
            }
            registers.set(step.target.0, value);
        }
        true
    }

    /// The value of the step, and what must hold before; `None` if it never does.
    fn step(&mut self, step: &Step, registers: &Current) -> Option<(ValueId, Test)> {
        use crate::graph::Value as Graphed;
        Some(match step.value {
            Graphed::Copy(from) => (self.operand(from, registers), Test::Always(true)),
            Graphed::Length => (self.lowered.values.intern(Value::WireLength), Test::Always(true)),
            Graphed::Load { width, base, offset } => {
                let base = base.map(|base| self.operand(Operand::Register(base), registers));
                let lowered = &mut *self.lowered;
                match lowered.values.load(width, base, offset) {
                    Loaded::Never => return None,
                    Loaded::Value { value, room, need } => {
                        (value, lowered.values.between(&mut lowered.sets, room, need, u32::MAX))
                    }
                }
            }
            Graphed::Binary { operation, left, right } => {
                let (left, right) = (self.operand(left, registers), self.operand(right, registers));
                let lowered = &mut *self.lowered;
                let test = match operation {
                    Operation::Divide | Operation::Remainder => {
                        lowered.values.between(&mut lowered.sets, right, 1, u32::MAX)
                    }
                    _ => Test::Always(true),
                };
                if test == Test::Always(false) {
                    return None;
                }
                (lowered.values.binary(operation, left, right), test)
            }
        })
    }

    fn operand(&mut self, operand: Operand, registers: &Current) -> ValueId {
        let number = match operand {
            Operand::Constant(number) => number,
            Operand::Register(register) => match registers.get(register.0) {
                Some(value) => return value,
                None => 0,
            },
        };
        self.lowered.values.constant(number)
    }

    fn part(&self, block: usize) -> ExpressionPart {
        ExpressionPart { filter: self.filter, text: self.graph.blocks[block].part.clone() }
    }

    fn set(&mut self, block: usize, cursor: Cursor, to: Next) {
        match cursor {
            Cursor::Start => self.starts[block] = to,
            Cursor::Yes(node) => {
                if let [Some(yes), _] = self.lowered.nodes[node as usize].edges() {
                    *yes = to;
                }
            }
            Cursor::No(node) => {
                if let [_, Some(no)] = self.lowered.nodes[node as usize].edges() {
                    *no = to;
                }
            }
        }
    }

    /// Writes a test that must hold, and goes on where it does.
    fn require(&mut self, block: usize, cursor: &mut Cursor, test: Test) {
        let Test::If { condition, expected } = test else { return };
        let node = self.test_node(block, *cursor, condition);
        let [held, failed] =
            if expected { [Cursor::Yes(node), Cursor::No(node)] } else { [Cursor::No(node), Cursor::Yes(node)] };
        self.set(block, failed, Next::Fail);
        *cursor = held;
    }

    fn test_node(&mut self, block: usize, cursor: Cursor, condition: Condition) -> u32 {
        let part = self.part(block);
        let node = self.lowered.push(PlanNode::Test { condition, yes: Next::Reject, no: Next::Reject }, part);
        self.set(block, cursor, Next::Node(node));
        node
    }

    fn block(&mut self, index: usize, registers: &mut Current) {
        let graph = self.graph;
        let block = &graph.blocks[index];
        if !self.enter_block(index, registers) {
            return;
        }
        let mut cursor = Cursor::Start;
        if !self.steps(index, registers, Some(&mut cursor)) {
            return self.set(index, cursor, Next::Fail);
        }
        match block.end {
            BlockEnd::Accept => self.set(index, cursor, Next::Accept),
            BlockEnd::Reject => self.set(index, cursor, Next::Reject),
            BlockEnd::Goto(next) => {
                let next = self.edge(index, next, registers);
                self.set(index, cursor, next);
            }
            BlockEnd::Again(next) => {
                let part = self.part(index);
                let node = self.again_node(Next::Reject, part);
                self.set(index, cursor, Next::Node(node));
                // The variables are set before the next round: the order of nodes is that of their edges.
                let next = self.edge(index, next, registers);
                self.set(index, Cursor::Yes(node), next);
                self.swap_loop(node);
            }
            BlockEnd::Branch { comparison, left, right, yes, no } => {
                let (left, right) = (self.operand(left, registers), self.operand(right, registers));
                let lowered = &mut *self.lowered;
                match lowered.values.compare(&mut lowered.sets, comparison, left, right) {
                    Test::Always(holds) => {
                        let next = self.edge(index, if holds { yes } else { no }, registers);
                        self.set(index, cursor, next);
                    }
                    Test::If { condition, expected } => {
                        let node = self.test_node(index, cursor, condition);
                        let [yes, no] = [yes, no].map(|next| self.edge(index, next, registers));
                        let (yes, no) = if expected { (yes, no) } else { (no, yes) };
                        self.set(index, Cursor::Yes(node), yes);
                        self.set(index, Cursor::No(node), no);
                    }
                }
            }
        }
    }

    fn again_node(&mut self, next: Next, part: ExpressionPart) -> u32 {
        self.lowered.push(PlanNode::Again { filter: self.filter as u32, next, exhausted: Next::Reject }, part)
    }

    /// Only the last node before the start of a loop leads back: first the variables are set, then the round counts.
    fn swap_loop(&mut self, again: u32) {
        let nodes = &mut self.lowered.nodes;
        let PlanNode::Again { next: Next::Node(assign), .. } = nodes[again as usize] else { return };
        if let PlanNode::Assign { moves, next } = &nodes[assign as usize]
            && assign == again + 1
        {
            let (moves, start) = (moves.clone(), *next);
            nodes[again as usize] = PlanNode::Assign { moves, next: Next::Node(assign) };
            nodes[assign as usize] =
                PlanNode::Again { filter: self.filter as u32, next: start, exhausted: Next::Reject };
        }
    }

    /// An edge to a block, which sets its variables.
    fn edge(&mut self, from: usize, to: usize, registers: &Current) -> Next {
        let next = Next::Block(to as u32);
        if self.variables.is_empty() {
            return next;
        }
        let mut moves = Vec::new();
        for register in self.alive.at(to) {
            let Some(&variable) = self.variables.get(&(to, *register)) else { continue };
            let value = registers.get(*register);
            let value = value.unwrap_or_else(|| self.lowered.values.constant(0));
            if self.lowered.values.get(value) != Value::Variable(variable) {
                moves.push((variable, value));
            }
        }
        if moves.is_empty() {
            return next;
        }
        let part = self.part(from);
        Next::Node(self.lowered.push(PlanNode::Assign { moves: moves.into(), next }, part))
    }
}

/// Maximum number of rooms that are followed.
const MAX_ROOMS: usize = 8;

/// Rooms that every path to acceptance needs, and how much of each.
#[derive(Clone, Copy, Default)]
struct Needs {
    rooms: [(ValueId, u32); MAX_ROOMS],
    count: u8,
}

impl Needs {
    fn rooms(&self) -> &[(ValueId, u32)] {
        &self.rooms[..usize::from(self.count)]
    }

    /// Adds a room, if there is a place for it.
    fn push(&mut self, room: (ValueId, u32)) {
        if let Some(place) = self.rooms.get_mut(usize::from(self.count)) {
            *place = room;
            self.count += 1;
        }
    }

    /// What is needed of a room in addition: the more is needed.
    fn require(&mut self, room: ValueId, asked: u32) -> u32 {
        let known = self.rooms[..usize::from(self.count)].iter_mut().find(|(known, _)| *known == room);
        match known {
            Some((_, need)) => {
                *need = asked.max(*need);
                *need
            }
            None => {
                self.push((room, asked));
                asked
            }
        }
    }

    /// What both need.
    fn common(&self, other: &Needs) -> Needs {
        let mut common = Needs::default();
        for &(room, need) in self.rooms() {
            if let Some((_, other)) = other.rooms().iter().find(|(known, _)| *known == room) {
                common.push((room, need.min(*other)));
            }
        }
        common
    }
}

/// Tests as early as possible for all the room that acceptance needs: a packet without is rejected here or later.
fn strengthen(lowered: &mut Lowered, start: usize) {
    // `None` if no path accepts.
    let mut needs: Vec<Option<Needs>> = vec![Some(Needs::default()); lowered.nodes.len() - start];
    for index in (start..lowered.nodes.len()).rev() {
        let at = |next: Next| match next {
            Next::Node(node) if node as usize > index => needs[node as usize - start],
            Next::Reject | Next::Fail => None,
            _ => Some(Needs::default()),
        };
        let need = match &lowered.nodes[index] {
            PlanNode::Test { condition, yes, no } => {
                let asked = room_asked(lowered, *condition);
                let mut need = match (at(*yes), at(*no)) {
                    (None, other) | (other, None) => other,
                    (Some(one), Some(other)) => Some(one.common(&other)),
                };
                if let (Some((room, asked)), Some(need)) = (asked, &mut need)
                    && let PlanNode::Test { no: Next::Fail, condition, .. } = &mut lowered.nodes[index]
                {
                    let all = need.require(room, asked);
                    if all > asked {
                        *condition = Condition::Member(room, lowered.sets.interval(all, u32::MAX));
                    }
                }
                need
            }
            PlanNode::Assign { next, .. } | PlanNode::Note { next, .. } => at(*next).map(|need| {
                let mut fixed = Needs::default();
                let is_fixed = |room: ValueId| lowered.values.get(room) == Value::Room(None);
                need.rooms().iter().filter(|(room, _)| is_fixed(*room)).for_each(|&room| fixed.push(room));
                fixed
            }),
            PlanNode::Again { .. } => Some(Needs::default()),
        };
        needs[index - start] = need;
    }
}

/// From this number of tests on, packets that are long enough for all of them have tests of their own.
const MANY_TESTS: usize = 64;

/// Tests once in front of a long graph whether there is room for all its loads from fixed places. Both outcomes lead
/// to the same tests: those that the first one decides vanish, so that lists of loads from different places are not
/// interrupted. Returns the start.
fn test_all_room(lowered: &mut Lowered, gate: usize, entry: Next) -> Next {
    let nodes = &lowered.nodes[gate + 1..];
    let need = |node: &PlanNode| match node {
        PlanNode::Test { condition, .. } => match room_asked(lowered, *condition)? {
            (room, need) if lowered.values.get(room) == Value::Room(None) => Some(need),
            _ => None,
        },
        _ => None,
    };
    let (least, most) = (nodes.iter().filter_map(need).min(), nodes.iter().filter_map(need).max());
    let (Some(least), Some(most), true) = (least, most, nodes.len() > MANY_TESTS) else { return entry };
    if least == most {
        return entry;
    }
    let room = lowered.values.intern(Value::Room(None));
    let condition = Condition::Member(room, lowered.sets.interval(most, u32::MAX));
    lowered.nodes[gate] = PlanNode::Test { condition, yes: entry, no: entry };
    Next::Node(gate as u32)
}

/// The room that a test asks for, and how much.
fn room_asked(lowered: &Lowered, condition: Condition) -> Option<(ValueId, u32)> {
    let Condition::Member(value, set) = condition else { return None };
    let Value::Room(_) = lowered.values.get(value) else { return None };
    match lowered.sets.single(set)? {
        (need, u32::MAX) => Some((value, need)),
        _ => None,
    }
}
