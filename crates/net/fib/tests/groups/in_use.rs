//! Paths of groups that are out of use for a time: who has which flows meanwhile, and that nobody else's flows move.

use std::collections::BTreeSet;

use bellows_fib::{Groups, NO_ROUTE, Path};
use proptest::prelude::*;

use super::{Call, groups, numbered, weights};

/// More than groups of a few paths have buckets.
const FLOWS: u32 = 4_000;

/// The path of each flow.
fn paths_of_flows(groups: &Groups, number: u32) -> Vec<u32> {
    super::paths_of_flows(groups, number, FLOWS)
}

/// Paths that change whether they are in use, some at once.
fn events() -> impl Strategy<Value = Vec<Vec<usize>>> {
    let one_by_one = proptest::collection::vec(proptest::collection::vec(any::<usize>(), 1..=1), 1..25);
    let at_once = proptest::collection::vec(proptest::collection::vec(any::<usize>(), 1..6), 1..12);
    prop_oneof![one_by_one, at_once]
}

/// A group, and what is known of it.
struct Model {
    paths: Vec<Path>,
    out: BTreeSet<u32>,
    /// The path that each flow has while all are in use.
    homes: Vec<u32>,
    /// The path that each flow has now.
    now: Vec<u32>,
}

impl Model {
    fn in_use(&self) -> Vec<Path> {
        self.paths.iter().copied().filter(|path| !self.out.contains(&path.next)).collect()
    }

    /// Checks where flows are after some paths went out of use, or returned.
    fn check(&mut self, changed: &BTreeSet<u32>, now: Vec<u32>) {
        let in_use: BTreeSet<u32> = self.in_use().iter().map(|path| path.next).collect();
        let had_none = self.now == self.homes && changed.len() >= self.paths.len() - self.out.len();
        for (flow, (&home, (&before, &after))) in self.homes.iter().zip(self.now.iter().zip(&now)).enumerate() {
            if in_use.is_empty() {
                assert_eq!(after, home, "flow {flow}: nobody can take it");
                continue;
            }
            assert!(in_use.contains(&after), "flow {flow} is on {after}, which is out of use");
            if in_use.contains(&home) {
                assert_eq!(after, home, "flow {flow} is not at home");
            }
            let may_move = !in_use.contains(&before) || changed.contains(&after) || had_none;
            assert!(before == after || may_move, "flow {flow} moved from {before} to {after}, of which none changed");
        }
        self.now = now;
    }

    /// Checks that the paths in use share all flows by their weights.
    fn check_shares(&self, groups: &Groups, number: u32) {
        let in_use = if self.in_use().is_empty() { self.paths.clone() } else { self.in_use() };
        let total: f64 = in_use.iter().map(|path| f64::from(path.weight)).sum();
        let of_all: f64 = self.paths.iter().map(|path| f64::from(path.weight)).sum();
        let lowest = self.paths.iter().map(|path| f64::from(path.weight)).fold(f64::MAX, f64::min);
        let buckets = (64.0 * of_all / lowest).clamp(64.0, 16_384.0);
        for path in &self.paths {
            let share = groups.lock().share(number, path.next).unwrap();
            if !in_use.contains(path) {
                assert_eq!(share, 0.0, "{path:?} is out of use");
                continue;
            }
            let wanted = f64::from(path.weight) / total;
            // What rounding makes of it, a quarter, and a hundredth of all: no path gives up flows because another one is
            // lost, even if the losses so far have left it more than its share.
            let tolerance = (3.0 + self.paths.len() as f64) / buckets + 0.25 * wanted + 0.01;
            assert!((share - wanted).abs() <= tolerance, "{path:?} of {in_use:?}: {share}, {wanted}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn paths_fail_and_return_and_no_flow_of_another_moves(weights in weights(), events in events()) {
        let groups = groups();
        let paths = numbered(&weights, 100);
        let number = groups.lock().add(&paths).unwrap();
        let homes = paths_of_flows(&groups, number);
        let mut model = Model { paths, out: BTreeSet::new(), now: homes.clone(), homes };
        for event in events {
            let changed: BTreeSet<u32> = event.iter().map(|path| model.paths[path % model.paths.len()].next).collect();
            let mut changes = groups.lock();
            for &next in &changed {
                if !model.out.remove(&next) {
                    model.out.insert(next);
                }
                changes.set_out_of_use(next, model.out.contains(&next));
                prop_assert_eq!(changes.is_out_of_use(next), model.out.contains(&next));
            }
            prop_assert!(!changes.is_settled());
            prop_assert!(changes.settle(usize::MAX) && changes.is_settled());
            drop(changes);
            model.check(&changed, paths_of_flows(&groups, number));
            model.check_shares(&groups, number);
        }
        let mut changes = groups.lock();
        model.paths.iter().for_each(|path| changes.set_out_of_use(path.next, false));
        changes.settle(usize::MAX);
        drop(changes);
        prop_assert_eq!(paths_of_flows(&groups, number), model.homes, "all are at home");
    }

    #[test]
    fn groups_change_while_paths_are_out_of_use(
        weights in weights(), others in weights(), first in 100..110_u32, out in proptest::collection::vec(100..125_u32, 1..6)
    ) {
        let groups = groups();
        let mut changes = groups.lock();
        out.iter().for_each(|&next| changes.set_out_of_use(next, true));
        let one = numbered(&weights, 100);
        let number = changes.add(&one).unwrap();
        let check = |paths: &[Path]| {
            let has_one_in_use = paths.iter().any(|path| !out.contains(&path.next));
            for next in paths_of_flows(&groups, number) {
                assert!(paths.iter().any(|path| path.next == next), "{next} is no path of the group");
                assert!(!has_one_in_use || !out.contains(&next), "{next} is out of use");
            }
        };
        check(&one);
        let other = numbered(&others, first);
        changes.set(number, &other).unwrap();
        check(&other);
        prop_assert!(changes.is_settled(), "a group follows the paths in use from the beginning");
        changes.lose(first).unwrap();
        if other.len() > 1 {
            check(&other[1..]);
        }
        changes.remove(number);
        out.iter().for_each(|&next| changes.set_out_of_use(next, false));
        prop_assert!(changes.is_settled(), "no group has them any more");
        drop(changes);
        prop_assert!(paths_of_flows(&groups, number).iter().all(|&next| next == NO_ROUTE));
    }
}

#[test]
fn a_path_that_is_out_of_use_is_still_one_of_its_group() {
    let groups = groups();
    let mut changes = groups.lock();
    let number = changes.add(&numbered(&[1, 1, 1], 100)).unwrap();
    changes.set_out_of_use(101, true);
    assert!(changes.settle(1));
    assert_eq!((changes.share(number, 101), changes.share(number, 99)), (Some(0.0), Some(0.0)));
    let has = |next| groups.table(&Call).has_path(number, |path| path == next);
    assert_eq!([99, 100, 101, 102, 103].map(has), [false, true, true, true, false]);
}

#[test]
fn many_groups_follow_in_steps() {
    let groups = groups();
    let mut changes = groups.lock();
    // 128 buckets each.
    let numbers: Vec<u32> = (0..100).map(|other| changes.add(&numbered(&[1, 1], 100 + other)).unwrap()).collect();
    changes.set_out_of_use(150, true);
    assert!(changes.settle(256), "two of them have it");
    let share = |changes: &bellows_fib::GroupChanges<'_>, number| changes.share(number, 150).unwrap();
    assert_eq!([49, 50].map(|place: usize| share(&changes, numbers[place])), [0.0; 2]);
    let same: Vec<u32> = (0..100)
        .map(|weight| changes.add(&[Path { next: 7, weight: 1 }, Path { next: 8, weight: 1 + weight % 2 }]).unwrap())
        .collect();
    changes.set_out_of_use(7, true);
    let steps = (1..).find(|_| changes.settle(1)).unwrap();
    assert_eq!(steps, 100, "one group in each step, however small it is");
    assert!(same.iter().all(|&number| changes.share(number, 7) == Some(0.0)));
}
