//! Groups of paths: shares by weight, and which flows move when paths change.

mod in_use;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bellows_fib::{FIRST_GROUP, GroupError, Groups, MAX_PATHS, NO_ROUTE, Path};
use bellows_shared::{Breath, Readers};
use proptest::prelude::*;

struct Call;

// SAFETY: the threads of these tests pass only between look-ups.
unsafe impl Breath for Call {}

/// Stops the readers, also if the writer panics.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// More than there are buckets, so that each bucket is seen.
const FLOWS: u32 = 200_000;

fn groups() -> Groups {
    Groups::with_readers(Arc::new(Readers::new()), 7).unwrap()
}

/// The path of each of `flows` flows.
fn paths_of_flows(groups: &Groups, number: u32, flows: u32) -> Vec<u32> {
    let mut next = vec![number; flows as usize];
    groups.table(&Call).resolve(&mut next, |flow| (flow as u32).wrapping_mul(0x9e37_79b9));
    next
}

fn weights() -> impl Strategy<Value = Vec<u16>> {
    prop_oneof![
        proptest::collection::vec(1..5_u16, 1..20),
        proptest::collection::vec(1..=255_u16, 1..40),
        proptest::collection::vec(any::<u16>().prop_map(|weight| weight.max(1)), 1..9),
    ]
}

fn numbered(weights: &[u16], first: u32) -> Vec<Path> {
    weights.iter().zip(first..).map(|(&weight, next)| Path { next, weight }).collect()
}

/// Checks that flows are shared out by weight: each path has its part of the buckets, give or take one, and so of flows.
fn check_shares(groups: &Groups, number: u32, paths: &[Path]) {
    let total: f64 = paths.iter().map(|path| f64::from(path.weight)).sum();
    let lowest = paths.iter().map(|path| f64::from(path.weight)).fold(f64::MAX, f64::min);
    // As documented: 64 for the lowest weight, 16,384 at most.
    let buckets = (64.0 * total / lowest).clamp(64.0, 16_384.0);
    let flows = paths_of_flows(groups, number, FLOWS);
    for path in paths {
        let wanted = f64::from(path.weight) / total;
        let share = groups.lock().share(number, path.next).unwrap();
        // A path that would have less than a bucket has one at the cost of others.
        let spared = if wanted * buckets < 300.0 { 1.0 } else { paths.len() as f64 };
        assert!((share - wanted).abs() <= (1.0 + spared) / buckets, "{path:?} of {total}: {share}, {wanted}");
        assert!(share > 0.0, "{path:?} of {total}");
        let flows = flows.iter().filter(|&&next| next == path.next).count() as f64 / f64::from(FLOWS);
        // Five standard deviations of as many random flows.
        let deviation = 5.0 * (share * (1.0 - share) / f64::from(FLOWS)).sqrt() + 1e-4;
        assert!((flows - share).abs() <= deviation, "{path:?}: {flows} of the flows, {share} of the buckets");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn flows_are_shared_by_weight(weights in weights()) {
        let groups = groups();
        let paths = numbered(&weights, 100);
        let number = groups.lock().add(&paths).unwrap();
        check_shares(&groups, number, &paths);
    }

    #[test]
    fn only_flows_of_a_lost_path_move(weights in weights(), losses in proptest::collection::vec(any::<usize>(), 1..4)) {
        let groups = groups();
        let mut paths = numbered(&weights, 100);
        let number = groups.lock().add(&paths).unwrap();
        for loss in losses {
            if paths.is_empty() {
                break;
            }
            let lost = paths.remove(loss % paths.len()).next;
            let before = paths_of_flows(&groups, number, FLOWS);
            prop_assert_eq!(groups.lock().lose(lost).unwrap(), [number]);
            for (flow, (&before, after)) in before.iter().zip(paths_of_flows(&groups, number, FLOWS)).enumerate() {
                prop_assert_ne!(after, lost, "flow {}", flow);
                prop_assert!(before == lost || before == after, "flow {} moved from {} to {}", flow, before, after);
                prop_assert_eq!(after == NO_ROUTE, paths.is_empty());
            }
        }
    }

    #[test]
    fn a_path_that_returns_gets_its_share_and_hardly_more_moves(weights in weights(), which: usize) {
        let groups = groups();
        let paths = numbered(&weights, 100);
        let number = groups.lock().add(&paths).unwrap();
        let returning = paths[which % paths.len()].next;
        groups.lock().lose(returning).unwrap();
        let before = paths_of_flows(&groups, number, FLOWS);
        groups.lock().set(number, &paths).unwrap();
        check_shares(&groups, number, &paths);
        let after = paths_of_flows(&groups, number, FLOWS);
        let others = before.iter().zip(&after).filter(|&(before, &after)| *before != after && after != returning).count();
        // Buckets that even out what was rounded: fewer than there are paths, of 64 or more to a path.
        prop_assert!(others as f64 <= 0.02 * f64::from(FLOWS), "{} flows moved between other paths", others);
    }

    #[test]
    fn a_group_like_another_is_as_that_one_would_be(weights in weights(), others in weights(), out: Vec<bool>) {
        let (set, added) = (groups(), groups());
        let (paths, others) = (numbered(&weights, 100), numbered(&others, 100));
        let numbers = [&set, &added].map(|groups| {
            let mut changes = groups.lock();
            let number = changes.add(&paths).unwrap();
            paths.iter().zip(&out).for_each(|(path, is_out)| changes.set_out_of_use(path.next, *is_out));
            changes.settle(usize::MAX);
            number
        });
        let before = paths_of_flows(&added, numbers[1], FLOWS);
        set.lock().set(numbers[0], &others).unwrap();
        let like = added.lock().add_like(numbers[1], &others).unwrap();
        prop_assert_eq!(paths_of_flows(&added, like, FLOWS), paths_of_flows(&set, numbers[0], FLOWS));
        prop_assert_eq!(paths_of_flows(&added, numbers[1], FLOWS), before, "the other group stays");
    }

    #[test]
    fn any_changes_as_a_list(changes in proptest::collection::vec((0..6_usize, weights(), 0..4_u8), 1..40)) {
        let groups = groups();
        let mut model: BTreeMap<u32, Vec<Path>> = BTreeMap::new();
        for (which, weights, kind) in changes {
            let some = model.keys().nth(which).copied();
            match (some, kind) {
                (Some(number), 0) => {
                    prop_assert!(groups.lock().remove(number));
                    model.remove(&number);
                }
                (Some(number), 1 | 2) => {
                    groups.lock().set(number, &numbered(&weights, 100)).unwrap();
                    model.insert(number, numbered(&weights, 100));
                }
                _ => {
                    let number = groups.lock().add(&numbered(&weights, 100)).unwrap();
                    prop_assert!(model.insert(number, numbered(&weights, 100)).is_none());
                }
            }
            let listed: Vec<_> = groups.lock().iter().map(|(number, paths)| (number, paths.to_vec())).collect();
            prop_assert!(listed.into_iter().eq(model.clone()));
            // A number of each group, one that was never given, and those of next hops.
            let numbers: Vec<u32> = model.keys().copied().chain([FIRST_GROUP + 60_000, 0, 99, NO_ROUTE]).collect();
            let mut next: Vec<u32> = numbers.iter().flat_map(|&number| [number; 100]).collect();
            groups.table(&Call).resolve(&mut next, |place| (place as u32).wrapping_mul(0x0101_6b55));
            for (place, next) in next.into_iter().enumerate() {
                let number = numbers[place / 100];
                match model.get(&number) {
                    Some(paths) => prop_assert!(paths.iter().any(|path| path.next == next)),
                    None if number >= FIRST_GROUP => prop_assert_eq!(next, NO_ROUTE),
                    None => prop_assert_eq!(next, number),
                }
            }
        }
    }
}

#[test]
fn what_is_no_group_of_paths() {
    let groups = groups();
    let mut changes = groups.lock();
    let path = |next, weight| Path { next, weight };
    assert!(matches!(changes.add(&[path(1, 1), path(2, 0)]), Err(GroupError::Weight(2))));
    assert!(matches!(changes.add(&[path(1, 1), path(1, 2)]), Err(GroupError::Twice(1))));
    assert!(matches!(changes.add(&[path(FIRST_GROUP, 1)]), Err(GroupError::Path(FIRST_GROUP))));
    let many: Vec<Path> = (0..=MAX_PATHS as u32).map(|next| path(next, 1)).collect();
    assert!(matches!(changes.add(&many), Err(GroupError::Paths(257))));
    assert!(matches!(changes.set(FIRST_GROUP, &[]), Err(GroupError::Unknown(FIRST_GROUP))));
    assert!(!changes.remove(FIRST_GROUP) && !changes.remove(3));
    let number = changes.add(&many[1..]).unwrap();
    assert_eq!((number, changes.paths(number).unwrap().len()), (FIRST_GROUP, MAX_PATHS));
}

#[test]
fn numbers_are_limited_and_come_back() {
    let groups = groups();
    let mut changes = groups.lock();
    let path = [Path { next: 1, weight: 1 }];
    let numbers: Vec<u32> = std::iter::from_fn(|| changes.add(&path).ok()).collect();
    assert_eq!(numbers.len(), 65_536);
    assert!(matches!(changes.add(&path), Err(GroupError::Groups)));
    assert!(changes.remove(numbers[500]));
    drop(changes);
    assert_eq!(groups.lock().add(&path).unwrap(), numbers[500]);
}

#[test]
fn a_reader_finds_only_paths_of_its_group() {
    let readers = Arc::new(Readers::new());
    let groups = Groups::with_readers(Arc::clone(&readers), 0).unwrap();
    // A path identifies the group that has it, or had it: these numbers are never used for another one.
    let paths = |owner: u32, count: u32| -> Vec<Path> {
        (0..count).map(|path| Path { next: owner * 32 + path, weight: 1 + (path as u16 % 3) }).collect()
    };
    let stop = AtomicBool::new(false);
    // The owner of each number; readers take it along with the number, as they do with routes.
    let current = std::sync::Mutex::new(Vec::<(u32, u32)>::new());
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..2 {
            let reader = readers.register(|| ());
            scope.spawn(|| {
                let reader = reader;
                let mut found = 0;
                while !stop.load(Ordering::Relaxed) || found == 0 {
                    let known = current.lock().unwrap().clone();
                    for _ in 0..50 {
                        for chunk in known.chunks(128) {
                            let mut next: Vec<u32> = chunk.iter().map(|&(number, _)| number).collect();
                            groups.table(&Call).resolve(&mut next, |_| fastrand::u32(..));
                            for (&(_, owner), next) in chunk.iter().zip(next) {
                                assert!(next == NO_ROUTE || next / 32 == owner, "{next} is not of {owner}");
                                found += 1;
                            }
                        }
                    }
                    reader.quiescent();
                }
            });
        }
        let mut random = fastrand::Rng::with_seed(3);
        let mut owners = 0..(FIRST_GROUP / 32);
        for _ in 0..4_000 {
            let mut changes = groups.lock();
            let mut known = current.lock().unwrap().clone();
            if known.len() < 40 || random.u8(..4) == 0 {
                let owner = owners.next().unwrap();
                known.push((changes.add(&paths(owner, random.u32(1..30))).unwrap(), owner));
            }
            let (number, owner) = known[random.usize(..known.len())];
            if random.bool() {
                changes.set(number, &paths(owner, random.u32(0..30))).unwrap();
            } else {
                known.retain(|&(other, _)| other != number);
                *current.lock().unwrap() = known.clone();
                changes.remove(number);
            }
            *current.lock().unwrap() = known;
        }
    });
}
