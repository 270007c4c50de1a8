//! The network simplex method: integers that keep minimum distances and minimise the weighted length.
//!
//! Source: Gansner, Koutsofios, North, Vo, "A Technique for Drawing Directed Graphs", IEEE TSE 19(3), 1993, section
//! 2.3. Subtrees are identified by the interval of their preorder numbers, and the cut values come from one pass over
//! the tree, which is fast enough for the few thousand variables of a drawing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// `at[head] - at[tail] >= distance`, and each unit of that difference costs `weight`.
#[derive(Clone, Copy, Debug)]
pub struct Arc {
    pub tail: usize,
    pub head: usize,
    pub distance: i32,
    pub weight: i32,
}

/// The limit on elementary steps. After it, the solution is still feasible, but perhaps not optimal.
const MAX_STEPS: usize = 60_000_000;

/// Finds `at` for `count` variables that satisfies every arc and minimises the weighted sum of `at[head] - at[tail]`.
/// The arcs must not form a cycle. Each connected part is solved separately, with its smallest value 0.
pub fn solve(count: usize, arcs: &[Arc]) -> Vec<i32> {
    let mut tree = Tree::new(count, arcs);
    tree.span();
    let mut steps = 0;
    while steps < MAX_STEPS
        && let Some(leaving) = tree.leaving()
        && let Some(entering) = tree.entering(leaving)
    {
        tree.exchange(leaving, entering);
        steps += arcs.len() + 4 * count;
    }
    tree.normalised()
}

/// Whether the arcs form no cycle.
pub fn has_no_cycle(count: usize, arcs: &[Arc]) -> bool {
    longest_paths(count, arcs).1 == count
}

struct Tree<'a> {
    arcs: &'a [Arc],
    at: Vec<i32>,
    /// For each variable, its arcs that are in the tree.
    branches: Vec<Vec<usize>>,
    in_tree: Vec<bool>,
    /// The variables in preorder, part by part.
    order: Vec<usize>,
    /// Preorder number, and one past the last number of the subtree.
    first: Vec<usize>,
    last: Vec<usize>,
    /// The tree arc towards the root.
    up: Vec<Option<usize>>,
    /// For each variable, the weights of its outgoing arcs less those of its incoming arcs.
    pull: Vec<i64>,
}

/// The arcs between a growing tree and the variables outside. The tree moves as a whole; the distance is kept here and
/// applied to its variables when the tree is complete. So the order by slack stays valid among the arcs of a direction.
#[derive(Default)]
struct Fringe {
    moved: i32,
    /// Arcs from the tree to the outside, and from the outside to the tree, by the slack before the tree moved.
    out: BinaryHeap<Reverse<(i32, usize)>>,
    into: BinaryHeap<Reverse<(i32, usize)>>,
}

impl Fringe {
    fn actual(&self, slack: i32, leads_out: bool) -> i32 {
        if leads_out { slack - self.moved } else { slack + self.moved }
    }

    fn add(&mut self, slack: i32, arc: usize, leads_out: bool) {
        let arcs = if leads_out { &mut self.out } else { &mut self.into };
        arcs.push(Reverse((slack, arc)));
    }

    /// The least slack and its arc. Arcs inside of the tree are forgotten.
    fn tightest(&mut self, is_inner: impl Fn(usize) -> bool) -> Option<(i32, usize)> {
        for arcs in [&mut self.out, &mut self.into] {
            while arcs.peek().is_some_and(|Reverse((_, arc))| is_inner(*arc)) {
                arcs.pop();
            }
        }
        let least = |arcs: &BinaryHeap<Reverse<(i32, usize)>>, leads_out| {
            arcs.peek().map(|Reverse((slack, arc))| (self.actual(*slack, leads_out), *arc))
        };
        least(&self.out, true).into_iter().chain(least(&self.into, false)).min()
    }
}

impl<'a> Tree<'a> {
    fn new(count: usize, arcs: &'a [Arc]) -> Self {
        let mut pull = vec![0; count];
        for arc in arcs {
            pull[arc.tail] += i64::from(arc.weight);
            pull[arc.head] -= i64::from(arc.weight);
        }
        Tree {
            arcs,
            at: longest_paths(count, arcs).0,
            branches: vec![Vec::new(); count],
            in_tree: vec![false; arcs.len()],
            order: Vec::new(),
            first: vec![0; count],
            last: vec![0; count],
            up: vec![None; count],
            pull,
        }
    }

    fn slack(&self, arc: usize) -> i32 {
        let Arc { tail, head, distance, .. } = self.arcs[arc];
        self.at[head] - self.at[tail] - distance
    }

    fn other_end(&self, arc: usize, end: usize) -> usize {
        self.arcs[arc].tail ^ self.arcs[arc].head ^ end
    }

    /// Makes a tree of tight arcs for each connected part, moving variables that have none yet.
    fn span(&mut self) {
        let count = self.at.len();
        let mut at_variable = vec![Vec::new(); count];
        for (index, arc) in self.arcs.iter().enumerate() {
            at_variable[arc.tail].push(index);
            at_variable[arc.head].push(index);
        }
        let mut inside = vec![false; count];
        for root in 0..count {
            if !inside[root] {
                self.span_part(root, &at_variable, &mut inside);
            }
        }
        self.number();
    }

    /// Makes the tree of the part that contains `root`.
    fn span_part(&mut self, root: usize, at_variable: &[Vec<usize>], inside: &mut [bool]) {
        inside[root] = true;
        let mut members = vec![root];
        let mut grown = 0;
        let mut fringe = Fringe::default();
        loop {
            while grown < members.len() {
                let variable = members[grown];
                grown += 1;
                for &arc in &at_variable[variable] {
                    let other = self.other_end(arc, variable);
                    if inside[other] {
                        continue;
                    }
                    let (slack, leads_out) = (self.slack(arc), self.arcs[arc].tail == variable);
                    if fringe.actual(slack, leads_out) != 0 {
                        fringe.add(slack, arc, leads_out);
                        continue;
                    }
                    inside[other] = true;
                    members.push(other);
                    self.at[other] -= fringe.moved;
                    self.insert(arc);
                }
            }
            let is_inner = |arc: usize| inside[self.arcs[arc].tail] && inside[self.arcs[arc].head];
            let Some((slack, arc)) = fringe.tightest(is_inner) else { break };
            let Arc { tail, head, .. } = self.arcs[arc];
            let (outside, shift) = if inside[tail] { (head, slack) } else { (tail, -slack) };
            fringe.moved += shift;
            inside[outside] = true;
            members.push(outside);
            self.at[outside] -= fringe.moved;
            self.insert(arc);
        }
        members.iter().for_each(|&variable| self.at[variable] += fringe.moved);
    }

    fn insert(&mut self, arc: usize) {
        self.in_tree[arc] = true;
        self.branches[self.arcs[arc].tail].push(arc);
        self.branches[self.arcs[arc].head].push(arc);
    }

    fn remove(&mut self, arc: usize) {
        self.in_tree[arc] = false;
        for end in [self.arcs[arc].tail, self.arcs[arc].head] {
            self.branches[end].retain(|&branch| branch != arc);
        }
    }

    /// Numbers the variables in preorder.
    fn number(&mut self) {
        let count = self.at.len();
        let mut seen = vec![false; count];
        self.order.clear();
        let mut stack = Vec::new();
        for root in 0..count {
            if seen[root] {
                continue;
            }
            self.up[root] = None;
            seen[root] = true;
            stack.push(root);
            while let Some(variable) = stack.pop() {
                self.first[variable] = self.order.len();
                self.order.push(variable);
                for &arc in &self.branches[variable] {
                    let other = self.arcs[arc].tail ^ self.arcs[arc].head ^ variable;
                    if !seen[other] {
                        seen[other] = true;
                        self.up[other] = Some(arc);
                        stack.push(other);
                    }
                }
            }
        }
        for &variable in &self.order {
            self.last[variable] = self.first[variable] + 1;
        }
        for index in (0..count).rev() {
            let variable = self.order[index];
            if let Some(arc) = self.up[variable] {
                let parent = self.other_end(arc, variable);
                self.last[parent] = self.last[parent].max(self.last[variable]);
            }
        }
    }

    /// The variable whose arc towards the root should leave the tree: the one with the most negative cut value.
    fn leaving(&self) -> Option<usize> {
        let mut sum = self.pull.clone();
        let mut worst = (0, None);
        for &variable in self.order.iter().rev() {
            if let Some(arc) = self.up[variable] {
                let parent = self.other_end(arc, variable);
                sum[parent] += sum[variable];
                let cut = if self.arcs[arc].tail == variable { sum[variable] } else { -sum[variable] };
                if cut < worst.0 {
                    worst = (cut, Some(variable));
                }
            }
        }
        worst.1
    }

    fn below(&self, top: usize, variable: usize) -> bool {
        (self.first[top]..self.last[top]).contains(&self.first[variable])
    }

    /// The arc with the least slack that crosses the cut in the opposite direction of the leaving arc.
    fn entering(&self, top: usize) -> Option<usize> {
        let leaving = self.arcs[self.up[top]?];
        let subtree_is_tail = leaving.tail == top;
        (0..self.arcs.len())
            .filter(|&index| {
                let (tail, head) = (self.below(top, self.arcs[index].tail), self.below(top, self.arcs[index].head));
                tail != head && head == subtree_is_tail && !self.in_tree[index]
            })
            .min_by_key(|&index| (self.slack(index), index))
    }

    fn exchange(&mut self, top: usize, entering: usize) {
        let Some(leaving) = self.up[top] else { return };
        let slack = self.slack(entering);
        let shift = if self.below(top, self.arcs[entering].tail) { slack } else { -slack };
        for index in self.first[top]..self.last[top] {
            self.at[self.order[index]] += shift;
        }
        self.remove(leaving);
        self.insert(entering);
        self.number();
    }

    /// The solution, each part moved so that its smallest value is 0.
    fn normalised(mut self) -> Vec<i32> {
        let mut start = 0;
        while start < self.order.len() {
            let end = self.last[self.order[start]];
            let part = &self.order[start..end];
            let least = part.iter().map(|&variable| self.at[variable]).min().unwrap_or(0);
            part.iter().for_each(|&variable| self.at[variable] -= least);
            start = end;
        }
        self.at
    }
}

/// A feasible start: every variable as low as the arcs allow, and the number of variables that are neither in a cycle
/// nor after one.
fn longest_paths(count: usize, arcs: &[Arc]) -> (Vec<i32>, usize) {
    let mut at = vec![0; count];
    let mut waiting = vec![0; count];
    let mut leaving = vec![Vec::new(); count];
    for (index, arc) in arcs.iter().enumerate() {
        waiting[arc.head] += 1;
        leaving[arc.tail].push(index);
    }
    let mut ready: Vec<usize> = (0..count).filter(|&variable| waiting[variable] == 0).collect();
    let mut placed = 0;
    while let Some(variable) = ready.pop() {
        placed += 1;
        for &index in &leaving[variable] {
            let arc = arcs[index];
            at[arc.head] = at[arc.head].max(at[arc.tail] + arc.distance);
            waiting[arc.head] -= 1;
            if waiting[arc.head] == 0 {
                ready.push(arc.head);
            }
        }
    }
    (at, placed)
}
