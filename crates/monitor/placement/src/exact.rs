//! The best placement, by branch and bound.
//!
//! The first search finds the minimum load of the busiest worker, the second one the fewest packets that cross among
//! placements whose load counts as equal. Workers without fixed apps are interchangeable, so of those that are still
//! empty only the first is tried.

use crate::problem::{Cost, Link, Problem, limit};

/// The maximum number of visited nodes in each search: a fraction of a second.
const MAX_NODES: u64 = 3_000_000;

/// What a search minimises.
#[derive(Clone, Copy)]
enum Goal {
    Load,
    /// The crossings, and then the load, which is at most this.
    Crossing(u64),
}

impl Goal {
    /// A cost, or a bound of it, as this goal orders them; `None` if it is excluded.
    fn order(self, cost: Cost) -> Option<(u64, u64)> {
        match self {
            Goal::Load => Some((cost.load, cost.crossing)),
            Goal::Crossing(limit) => (cost.load <= limit).then_some((cost.crossing, cost.load)),
        }
    }
}

struct Search<'p> {
    problem: &'p Problem,
    links: Vec<Vec<Link>>,
    /// Whether a worker has a fixed app.
    is_special: Vec<bool>,
    /// The apps, fixed ones first, then by descending load.
    order: Vec<usize>,
    /// The clocks of the apps from each position of the order on.
    remaining: Vec<u64>,
    goal: Goal,
    placed: Vec<Option<usize>>,
    loads: Vec<u64>,
    apps_on: Vec<usize>,
    crossing: u64,
    best: Vec<usize>,
    best_cost: Option<(u64, u64)>,
    nodes: u64,
    max_nodes: u64,
}

/// The best placement, starting from a good one; and whether the search was complete.
pub(crate) fn place(problem: &Problem, start: Vec<usize>) -> (Vec<usize>, bool) {
    place_within(problem, start, MAX_NODES)
}

fn place_within(problem: &Problem, start: Vec<usize>, max_nodes: u64) -> (Vec<usize>, bool) {
    let (lightest, is_first_complete) = Search::run(problem, Goal::Load, start.clone(), max_nodes);
    let minimum = problem.cost(&lightest).load;
    let goal = Goal::Crossing(limit(minimum));
    let order = |workers: &[usize]| goal.order(problem.cost(workers));
    let better = match (order(&start), order(&lightest)) {
        (Some(one), Some(other)) if one < other => start,
        _ => lightest,
    };
    let (found, is_complete) = Search::run(problem, goal, better, max_nodes);
    (found, is_first_complete && is_complete)
}

impl Search<'_> {
    fn run(problem: &Problem, goal: Goal, start: Vec<usize>, max_nodes: u64) -> (Vec<usize>, bool) {
        let mut is_special = vec![false; problem.workers];
        problem.apps.iter().filter_map(|app| app.fixed).for_each(|worker| is_special[worker] = true);
        let links = problem.links_of_apps();
        let weight = |app: usize| {
            let crossings = links[app].iter().map(|link| link.clocks(app).0).fold(0, u64::saturating_add);
            problem.apps[app].clocks.saturating_add(crossings)
        };
        let mut order: Vec<usize> = (0..problem.apps.len()).collect();
        order.sort_by_key(|&app| (problem.apps[app].fixed.is_none(), std::cmp::Reverse(weight(app))));
        let mut remaining = vec![0_u64; order.len() + 1];
        for (at, &app) in order.iter().enumerate().rev() {
            remaining[at] = remaining[at + 1].saturating_add(problem.apps[app].clocks);
        }
        let mut search = Search {
            problem,
            links,
            is_special,
            order,
            remaining,
            goal,
            placed: vec![None; problem.apps.len()],
            loads: vec![0; problem.workers],
            apps_on: vec![0; problem.workers],
            crossing: 0,
            best_cost: goal.order(problem.cost(&start)),
            best: start,
            nodes: 0,
            max_nodes,
        };
        search.descend(0);
        (search.best, search.nodes < max_nodes)
    }

    fn descend(&mut self, at: usize) {
        self.nodes += 1;
        let bound = self.goal.order(self.bound(at));
        if self.nodes >= self.max_nodes || bound.is_none() || (self.best_cost.is_some() && bound >= self.best_cost) {
            return;
        }
        let Some(&app) = self.order.get(at) else {
            self.best = self.placed.iter().copied().flatten().collect();
            self.best_cost = bound;
            return;
        };
        let mut has_tried_empty = false;
        for worker in 0..self.problem.workers {
            if self.problem.apps[app].fixed.is_some_and(|fixed| fixed != worker) {
                continue;
            }
            let is_empty = self.apps_on[worker] == 0 && !self.is_special[worker];
            if is_empty && std::mem::replace(&mut has_tried_empty, true) {
                continue;
            }
            let (loads, crossing) = (self.loads.clone(), self.crossing);
            self.put(app, worker);
            self.descend(at + 1);
            (self.loads, self.crossing) = (loads, crossing);
            self.placed[app] = None;
            self.apps_on[worker] -= 1;
        }
    }

    fn put(&mut self, app: usize, worker: usize) {
        self.placed[app] = Some(worker);
        self.apps_on[worker] += 1;
        let mut add = |worker: usize, clocks| self.loads[worker] = self.loads[worker].saturating_add(clocks);
        add(worker, self.problem.apps[app].clocks);
        for link in &self.links[app] {
            let Some(other) = self.placed[link.other(app)].filter(|&other| other != worker) else { continue };
            let (own, others) = link.clocks(app);
            add(worker, own);
            add(other, others);
            self.crossing = self.crossing.saturating_add(link.packets);
        }
    }

    /// The least cost of all placements with the apps placed so far: their load only grows, and the remaining clocks
    /// are at best spread evenly.
    fn bound(&self, at: usize) -> Cost {
        let placed = self.loads.iter().copied().fold(0, u64::saturating_add);
        let mean = placed.saturating_add(self.remaining[at]).div_ceil(self.problem.workers as u64);
        let highest = self.loads.iter().copied().max().unwrap_or(0);
        // A saturated sum is no bound.
        let mean = if placed.saturating_add(self.remaining[at]) == u64::MAX { 0 } else { mean };
        Cost { load: highest.max(mean), crossing: self.crossing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::App;

    #[test]
    fn a_search_beyond_the_limit_keeps_what_it_has() {
        let apps = [7, 5, 4, 3, 3].map(|clocks| App { clocks, fixed: None }).to_vec();
        let problem = Problem { apps, links: Vec::new(), workers: 2 };
        let start = vec![0; 5];
        assert_eq!(place_within(&problem, start.clone(), 2), (start.clone(), false));
        let (found, is_complete) = place(&problem, start);
        assert_eq!((problem.cost(&found).load, is_complete), (11, true));
    }
}
