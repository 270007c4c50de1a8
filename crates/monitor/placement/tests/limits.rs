//! Time limits: the largest networks, and those that are hardest to search.

use std::time::{Duration, Instant};

use bellows_placement::{App, Link, MAX_EXACT_APPS, Problem, place};

fn network(apps: usize, workers: usize) -> Problem {
    let link = |from, to, packets| Link { from, to, packets, send_clocks: 7 * packets, receive_clocks: 3 * packets };
    let clocks = |app: usize| 1_000 + (app * 7_919) as u64 % 997;
    let chain = (1..apps).map(|to| link(to - 1, to, 10 + to as u64 % 7));
    let across = (0..apps / 3).map(|from| link(from, (from * 31 + 17) % apps, 1 + from as u64 % 5));
    Problem {
        apps: (0..apps).map(|app| App { clocks: clocks(app), fixed: None }).collect(),
        links: chain.chain(across).filter(|link| link.from != link.to).collect(),
        workers,
    }
}

#[test]
fn any_network_is_placed_within_seconds() {
    for (apps, workers) in [(MAX_EXACT_APPS, 4), (MAX_EXACT_APPS, 16), (200, 8), (2_000, 8), (10_000, 4), (300, 64)] {
        let problem = network(apps, workers);
        let start = Instant::now();
        let found = place(&problem, None);
        let took = start.elapsed();
        println!("{apps} apps, {workers} workers: {took:?}, {:?}, exact: {}", found.cost, found.is_exact);
        assert!(took < Duration::from_secs(60), "{apps} apps on {workers} workers took {took:?}");
        let all: u64 = problem.apps.iter().map(|app| app.clocks).sum();
        assert!(found.cost.load < all / workers as u64 * 3 / 2, "{apps} apps on {workers} workers: {:?}", found.cost);
    }
}

/// Every app is linked to every other one.
#[test]
fn a_mesh_is_placed_within_seconds() {
    let link = |from, to: usize| Link { from, to, packets: 10, send_clocks: 9, receive_clocks: 4 };
    let links = (0..MAX_EXACT_APPS).flat_map(|to| (0..to).map(move |from| link(from, to))).collect();
    let apps = (0..MAX_EXACT_APPS).map(|app| App { clocks: 10 + app as u64, fixed: None }).collect();
    let problem = Problem { apps, links, workers: 16 };
    let start = Instant::now();
    let found = place(&problem, None);
    println!("{:?}, {:?}, exact: {}", start.elapsed(), found.cost, found.is_exact);
    assert!(start.elapsed() < Duration::from_secs(60));
    let all: u64 = problem.apps.iter().map(|app| app.clocks).sum();
    assert!(found.cost.load <= all, "worse than one worker");
}
