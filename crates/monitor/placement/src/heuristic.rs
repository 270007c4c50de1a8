//! A good placement for networks of any size: several greedy starts, each refined by moves.
//!
//! A refinement is a series of passes in the style of Fiduccia and Mattheyses. In a pass, the best move of an app to
//! another worker is made even if it makes the placement worse, and the app is then locked; the pass ends at the best
//! placement seen. Passes are repeated as long as they improve it.

use std::cmp::Reverse;

use crate::problem::{Link, Problem, limit};

/// The maximum number of moves tried in a pass. It bounds the time for large networks.
const MAX_TRIALS: usize = 2_000_000;

/// The maximum number of passes of a refinement.
const MAX_PASSES: usize = 50;

/// The maximum number of moves in a row that do not lead to a better placement.
const MAX_DETOUR: usize = 64;

/// A placement, and what follows from it.
#[derive(Clone)]
struct PlacementState<'p> {
    problem: &'p Problem,
    links: &'p [Vec<Link>],
    workers: Vec<usize>,
    loads: Vec<u64>,
    crossing: u64,
}

/// The order of placements: the highest load, how uneven the loads are, and the packets that cross; or, below a limit
/// of the load, the packets that cross first.
type Score = (u64, u128, u64);

impl<'p> PlacementState<'p> {
    fn new(problem: &'p Problem, links: &'p [Vec<Link>], workers: Vec<usize>) -> PlacementState<'p> {
        let loads = problem.loads(&workers);
        let crossing = problem.cost(&workers).crossing;
        PlacementState { problem, links, workers, loads, crossing }
    }

    /// The loads of both workers, and the packets that cross, after a move. No other load changes: the side of a
    /// crossing at the other end remains unless that end is on one of these two workers.
    fn after(&self, app: usize, to: usize) -> (u64, u64, u64) {
        let from = self.workers[app];
        let clocks = self.problem.apps[app].clocks;
        let (mut left, mut right) = (self.loads[from].saturating_sub(clocks), self.loads[to].saturating_add(clocks));
        let mut crossing = self.crossing;
        for link in &self.links[app] {
            let (own, others) = link.clocks(app);
            let other = self.workers[link.other(app)];
            if other != from {
                left = left.saturating_sub(own);
            } else {
                left = left.saturating_add(others);
                crossing = crossing.saturating_add(link.packets);
            }
            if other != to {
                right = right.saturating_add(own);
            } else {
                right = right.saturating_sub(others);
                crossing = crossing.saturating_sub(link.packets);
            }
        }
        (left, right, crossing)
    }

    fn score(&self, limit: u64) -> Score {
        score(self.loads.iter().copied(), self.crossing, limit)
    }

    fn score_after(&self, app: usize, to: usize, limit: u64) -> Score {
        let from = self.workers[app];
        let (left, right, crossing) = self.after(app, to);
        let loads = self.loads.iter().enumerate().map(|(worker, &load)| match worker {
            _ if worker == from => left,
            _ if worker == to => right,
            _ => load,
        });
        score(loads, crossing, limit)
    }

    fn take(&mut self, app: usize, to: usize) {
        let (left, right, crossing) = self.after(app, to);
        self.loads[self.workers[app]] = left;
        self.loads[to] = right;
        self.crossing = crossing;
        self.workers[app] = to;
    }

    /// The best move of a free app: its position among these, the app, and its worker.
    fn best_move(&self, free: &[usize], limit: u64) -> Option<(usize, usize, usize)> {
        let elsewhere = |app: usize| (0..self.problem.workers).filter(move |&to| to != self.workers[app]);
        let moves = free.iter().enumerate().flat_map(|(at, &app)| elsewhere(app).map(move |to| (at, app, to)));
        moves.min_by_key(|&(_, app, to)| self.score_after(app, to, limit))
    }

    /// Passes until none improves the placement.
    fn refine(&mut self, limit: u64) {
        for _ in 0..MAX_PASSES {
            let before = self.score(limit);
            self.pass(limit);
            if self.score(limit) >= before {
                return;
            }
        }
    }

    fn pass(&mut self, limit: u64) {
        let mut free: Vec<usize> =
            (0..self.workers.len()).filter(|&app| self.problem.apps[app].fixed.is_none()).collect();
        let mut best = (self.score(limit), self.clone());
        let mut detour = 0;
        let mut trials = 0;
        while !free.is_empty() && detour < MAX_DETOUR && trials < MAX_TRIALS {
            trials += free.len() * self.problem.workers * self.problem.workers;
            let Some((at, app, to)) = self.best_move(&free, limit) else { break };
            self.take(app, to);
            free.swap_remove(at);
            let reached = self.score(limit);
            if reached < best.0 {
                best = (reached, self.clone());
                detour = 0;
            } else {
                detour += 1;
            }
        }
        *self = best.1;
    }
}

fn score(loads: impl Iterator<Item = u64>, crossing: u64, limit: u64) -> Score {
    let (mut highest, mut squares) = (0, 0_u128);
    for load in loads {
        highest = load.max(highest);
        squares = squares.saturating_add(u128::from(load) * u128::from(load));
    }
    match limit {
        0 => (highest, squares, crossing),
        _ => (highest.max(limit), u128::from(crossing), highest),
    }
}

/// A good placement.
pub(crate) fn place(problem: &Problem, given: Option<&[usize]>) -> Vec<usize> {
    let links = problem.links_of_apps();
    let starts = starts(problem, &links).into_iter().chain(given.map(<[usize]>::to_vec));
    let starts: Vec<Vec<usize>> = starts.filter(|start| problem.respects_fixed(start)).collect();
    let refined = |limit: u64, workers: Vec<usize>| {
        let mut state = PlacementState::new(problem, &links, workers);
        state.refine(limit);
        state.workers
    };
    let balanced: Vec<Vec<usize>> = starts.iter().map(|start| refined(0, start.clone())).collect();
    let minimum = balanced.iter().map(|workers| problem.cost(workers).load).min().unwrap_or(0);
    let limit = limit(minimum).max(1);
    // A start may have fewer crossings than a refinement that only balances.
    let joined = balanced.into_iter().chain(starts).map(|workers| refined(limit, workers));
    joined.min_by_key(|workers| problem.cost(workers).below(limit)).unwrap_or_default()
}

fn starts(problem: &Problem, links: &[Vec<Link>]) -> Vec<Vec<usize>> {
    let fix = |mut workers: Vec<usize>| {
        for (worker, app) in workers.iter_mut().zip(&problem.apps) {
            *worker = app.fixed.unwrap_or(*worker);
        }
        workers
    };
    let walk = walk(problem, links);
    let together = (0..problem.workers).map(|worker| vec![worker; problem.apps.len()]);
    // With interchangeable workers, one of these is enough.
    let alone = if problem.apps.iter().all(|app| app.fixed.is_none()) { 1 } else { problem.workers };
    let mut starts: Vec<Vec<usize>> = together.take(alone).map(fix).collect();
    starts.push(greedy(problem, links, &walk));
    starts.push(greedy(problem, links, &by_load(problem)));
    starts.push(fix(cut(problem, &walk)));
    starts
}

/// The apps by descending load.
fn by_load(problem: &Problem) -> Vec<usize> {
    let mut order: Vec<usize> = (0..problem.apps.len()).collect();
    order.sort_by_key(|&app| Reverse(problem.apps[app].clocks));
    order
}

/// The apps in the order of a walk along the links, each link with the most packets first.
fn walk(problem: &Problem, links: &[Vec<Link>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(links.len());
    let mut is_seen = vec![false; links.len()];
    // Apps at an end of a chain come first.
    let mut heads: Vec<usize> = (0..problem.apps.len()).collect();
    heads.sort_by_key(|&app| links[app].len());
    for head in heads {
        let mut open = vec![head];
        while let Some(app) = open.pop() {
            if std::mem::replace(&mut is_seen[app], true) {
                continue;
            }
            order.push(app);
            let mut next = links[app].clone();
            next.sort_by_key(|link| link.packets);
            open.extend(next.iter().map(|link| link.other(app)).filter(|&other| !is_seen[other]));
        }
    }
    order
}

/// Puts each app in turn where the highest load is the least, and fixed ones before.
fn greedy(problem: &Problem, links: &[Vec<Link>], order: &[usize]) -> Vec<usize> {
    let mut placed: Vec<Option<usize>> = problem.apps.iter().map(|app| app.fixed).collect();
    let mut loads = vec![0_u64; problem.workers];
    for app in &problem.apps {
        if let Some(worker) = app.fixed {
            loads[worker] = loads[worker].saturating_add(app.clocks);
        }
    }
    for &app in order.iter().filter(|&&app| problem.apps[app].fixed.is_none()) {
        // The load of a worker with this app, and the packets that cross to placed apps elsewhere.
        let cost = |worker: usize| {
            let elsewhere = links[app].iter().filter(|link| placed[link.other(app)].is_some_and(|at| at != worker));
            let (clocks, packets) = elsewhere.fold((0_u64, 0_u64), |(clocks, packets), link| {
                (clocks.saturating_add(link.clocks(app).0), packets.saturating_add(link.packets))
            });
            (loads[worker].saturating_add(problem.apps[app].clocks).saturating_add(clocks), packets)
        };
        let best = (0..problem.workers).min_by_key(|&worker| cost(worker)).unwrap_or(0);
        loads[best] = cost(best).0;
        placed[app] = Some(best);
    }
    placed.into_iter().map(Option::unwrap_or_default).collect()
}

/// Cuts the walk into one piece for each worker, of about equal loads.
fn cut(problem: &Problem, walk: &[usize]) -> Vec<usize> {
    let all: u128 = problem.apps.iter().map(|app| u128::from(app.clocks)).sum();
    let mut workers = vec![0; problem.apps.len()];
    let mut before = 0_u128;
    for &app in walk {
        let clocks = u128::from(problem.apps[app].clocks);
        // The piece in which the middle of the app lies.
        let piece = (2 * before + clocks) * problem.workers as u128 / (2 * all).max(1);
        workers[app] = (piece as usize).min(problem.workers - 1);
        before += clocks;
    }
    workers
}
