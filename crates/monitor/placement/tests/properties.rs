//! Placements of random networks, compared with all placements or with simple ones.

use bellows_placement::{App, Cost, Link, MAX_EXACT_APPS, Placement, Problem, TOLERANCE, place};
use proptest::prelude::*;

/// A network of some apps: chains, trees and loops, with some links that carry nothing.
fn problem(apps: std::ops::Range<usize>) -> impl Strategy<Value = Problem> {
    (apps, 1..5_usize).prop_flat_map(|(count, workers)| {
        let clocks = prop_oneof![1 => Just(0), 4 => 0..1_000_u64, 1 => 1_000..10_000_u64];
        let fixed = prop_oneof![5 => Just(None), 1 => (0..workers).prop_map(Some)];
        let app = (clocks, fixed).prop_map(|(clocks, fixed)| App { clocks, fixed });
        let packets = prop_oneof![1 => Just(0), 5 => 1..200_u64];
        let link = (0..count, 0..count, packets).prop_map(|(from, to, packets)| Link {
            from,
            to,
            packets,
            send_clocks: 2 * packets,
            receive_clocks: packets,
        });
        let links = proptest::collection::vec(link, 0..=count + 2);
        (proptest::collection::vec(app, count), links).prop_map(move |(apps, links)| Problem { apps, links, workers })
    })
}

/// Every placement that respects the fixed apps.
fn all(problem: &Problem) -> Vec<Vec<usize>> {
    let mut found = vec![Vec::new()];
    for app in &problem.apps {
        let choices = || (0..problem.workers).filter(|&worker| app.fixed.is_none_or(|fixed| fixed == worker));
        found = found.iter().flat_map(|start| choices().map(|worker| [&start[..], &[worker]].concat())).collect();
    }
    found
}

/// The best cost by the documented objective.
fn best(problem: &Problem) -> Cost {
    let costs: Vec<Cost> = all(problem).iter().map(|workers| problem.cost(workers)).collect();
    let minimum = costs.iter().map(|cost| cost.load).min().unwrap();
    let equal = costs.into_iter().filter(|cost| cost.load <= minimum + minimum / TOLERANCE);
    equal.min_by_key(|cost| (cost.crossing, cost.load)).unwrap()
}

/// The same network without idle apps, which are not balanced.
fn busy(mut problem: Problem) -> Problem {
    problem.links.retain(|link| link.from != link.to && link.packets > 0);
    let is_linked = |app: usize| problem.links.iter().any(|link| link.from == app || link.to == app);
    for app in 0..problem.apps.len() {
        if !is_linked(app) {
            problem.apps[app].clocks += 1;
        }
    }
    problem
}

fn check(problem: &Problem, found: &Placement) {
    assert_eq!(found.workers.len(), problem.apps.len());
    assert_eq!(found.cost, problem.cost(&found.workers));
    let is_kept = |(app, worker): (&App, &usize)| *worker < problem.workers && app.fixed.is_none_or(|it| it == *worker);
    assert!(problem.apps.iter().zip(&found.workers).all(is_kept), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn small_networks_are_placed_as_well_as_any_search_can(problem in problem(1..8)) {
        let problem = busy(problem);
        let found = place(&problem, None);
        check(&problem, &found);
        prop_assert!(found.is_exact);
        prop_assert_eq!(found.cost, best(&problem));
    }

    /// The bound of the heuristic alone: chains of seventeen apps and more have no exact search.
    #[test]
    fn large_networks_are_placed_better_than_trivially(problem in problem(MAX_EXACT_APPS + 1..40)) {
        let problem = busy(problem);
        let found = place(&problem, None);
        check(&problem, &found);
        let is_free = problem.apps.iter().all(|app| app.fixed.is_none());
        let all: u64 = problem.apps.iter().map(|app| app.clocks).sum();
        if is_free {
            prop_assert!(found.cost.load <= all, "worse than one worker");
        }
        let round: Vec<usize> =
            problem.apps.iter().enumerate().map(|(at, app)| app.fixed.unwrap_or(at % problem.workers)).collect();
        let given = problem.cost(&round);
        let limit = |load: u64| load + load / TOLERANCE + 1;
        prop_assert!(place(&problem, Some(&round)).cost.load <= limit(given.load), "worse than the given one");
    }

    #[test]
    fn idle_apps_are_beside_a_neighbour(problem in problem(1..12)) {
        let found = place(&problem, None);
        check(&problem, &found);
        let links = |app: usize| problem.links.iter().filter(move |link| link.from == app || link.to == app);
        for app in 0..problem.apps.len() {
            let is_idle = problem.apps[app].fixed.is_none() && links(app).all(|link| link.packets == 0);
            let mut neighbours = links(app).filter(|link| link.from != link.to).peekable();
            if is_idle && neighbours.peek().is_some() {
                let beside = |link: &Link| found.workers[link.from] == found.workers[link.to];
                let is_placed = |end: usize| problem.apps[end].fixed.is_some() || links(end).any(|it| it.packets > 0);
                let both = |link: &Link| [link.from, link.to].iter().all(|&end| end == app || is_placed(end));
                let known: Vec<&Link> = neighbours.filter(|link| both(link)).collect();
                prop_assert!(known.is_empty() || known.iter().any(|link| beside(link)), "{app} in {found:?}");
            }
        }
    }
}

fn app(clocks: u64) -> App {
    App { clocks, fixed: None }
}

fn chain(first: usize, length: usize) -> impl Iterator<Item = Link> {
    (first..first + length - 1).map(|from| Link {
        from,
        to: from + 1,
        packets: 100,
        send_clocks: 50,
        receive_clocks: 50,
    })
}

#[test]
fn chains_stay_whole() {
    let apps = vec![app(1_000); 12];
    let links = (0..4).flat_map(|number| chain(3 * number, 3)).collect();
    let found = place(&Problem { apps, links, workers: 4 }, None);
    assert_eq!((found.cost, found.is_exact), (Cost { load: 3_000, crossing: 0 }, true));
}

#[test]
fn a_long_chain_is_cut_into_pieces() {
    let problem = Problem { apps: vec![app(1_000); 400], links: chain(0, 400).collect(), workers: 4 };
    let found = place(&problem, None);
    assert_eq!(found.cost.crossing, 300);
    assert!(found.cost.load <= 100_100, "{:?}", found.cost);
}

#[test]
fn a_crossing_that_costs_more_than_it_saves_is_avoided() {
    let link = Link { from: 0, to: 1, packets: 1, send_clocks: 60, receive_clocks: 60 };
    let problem = Problem { apps: vec![app(50), app(50)], links: vec![link], workers: 2 };
    assert_eq!(place(&problem, None).cost, Cost { load: 100, crossing: 0 });
}

#[test]
fn one_percent_of_load_is_given_for_fewer_crossings() {
    let link = |from, to| Link { from, to, packets: 10, send_clocks: 0, receive_clocks: 0 };
    let apps = vec![app(1_000), app(5), app(1_005)];
    let problem = Problem { apps, links: vec![link(0, 1), link(1, 2)], workers: 2 };
    assert_eq!(place(&problem, None).cost, Cost { load: 1_005, crossing: 10 });
    let apps = vec![app(1_000), app(3), app(1_000)];
    let problem = Problem { apps, links: vec![link(0, 1), Link { packets: 1, ..link(1, 2) }], workers: 2 };
    assert_eq!(place(&problem, None).cost, Cost { load: 1_003, crossing: 1 });
}
