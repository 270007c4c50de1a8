//! The assignment of the apps of a network to workers, and of workers to processors.
//!
//! [`place`] minimises, in this order:
//!
//! 1. the load of the busiest worker: the clocks of its apps, and those of the crossings on its side. Loads that exceed
//!    the minimum by at most one in [`TOLERANCE`] count as equal, because measurements are not more precise;
//! 2. the packets that cross from worker to worker;
//! 3. the exact load of the busiest worker.
//!
//! Apps whose links carry no packets are not balanced: they go to the worker of their neighbours.
//!
//! Small networks are searched exhaustively by branch and bound, with a limit on the visited nodes. Larger ones, and
//! those that exceed the limit, are placed by several greedy starts, each refined by moves in the style of Fiduccia and
//! Mattheyses. The result is never worse than the placement with all apps on one worker, or than the given one, if
//! these respect the fixed apps.
//!
//! [`processors`] assigns the workers to processors.
//!
//! ```
//! use bellows_placement::{App, Link, Problem, place};
//!
//! let app = |clocks| App { clocks, fixed: None };
//! let link = |from, to| Link { from, to, packets: 10, send_clocks: 40, receive_clocks: 40 };
//! // Two chains, of which one is heavier.
//! let apps = vec![app(100), app(100), app(70), app(70)];
//! let problem = Problem { apps, links: vec![link(0, 1), link(2, 3)], workers: 2 };
//! let found = place(&problem, None);
//! assert_eq!((found.cost.load, found.cost.crossing), (200, 0));
//! assert!(found.is_exact);
//! ```
#![forbid(unsafe_code)]

mod exact;
mod heuristic;
mod problem;
pub mod processors;

pub use problem::{App, Cost, Link, Problem, TOLERANCE};

/// The maximum number of apps with packets for which all placements are searched.
pub const MAX_EXACT_APPS: usize = 16;

/// A placement, and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The worker of each app.
    pub workers: Vec<usize>,
    /// Its cost.
    pub cost: Cost,
    /// Whether no placement of the apps with packets is better.
    pub is_exact: bool,
}

/// Finds a placement. A given placement, such as the present one, is a further start for large networks.
///
/// # Panics
/// If a link or a fixed app names an app or a worker that does not exist, or there are no workers.
pub fn place(problem: &Problem, given: Option<&[usize]>) -> Placement {
    problem.check();
    let (busy, apps) = problem.without_idle();
    let given = given.map(|given| apps.iter().map(|&app| given[app]).collect::<Vec<_>>());
    let start = heuristic::place(&busy, given.as_deref());
    let (found, is_exact) = match busy.apps.len() {
        0..=MAX_EXACT_APPS => exact::place(&busy, start),
        _ => (start, false),
    };
    let workers = problem.with_idle(&apps, &found);
    Placement { cost: problem.cost(&workers), workers, is_exact }
}
