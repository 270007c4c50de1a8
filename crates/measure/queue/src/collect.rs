//! Puts the results of a block together.
//!
//! A block's runs belong to one machine, so that a difference between machines is one between blocks. A worker that
//! gets a block makes a claim of it, and delivers the runs one by one. The block counts when a claim has delivered all
//! of its runs. If a worker died before, the runs that it delivered are of an abandoned claim: they are kept apart, and
//! the block is made again as a whole.

use std::collections::{HashMap, HashSet};

use crate::messages::Delivery;

/// What becomes of a result.
#[derive(Debug, PartialEq)]
pub(crate) enum Collected {
    /// Others of its claim are missing.
    Waiting,
    /// It came before.
    Repeated,
    /// Its claim is complete: its results in the order in which they came. The first complete claim of a block is the
    /// one that counts.
    Complete {
        results: Vec<Delivery>,
        is_first: bool,
        /// The results so far of other claims, which are abandoned.
        abandoned: Vec<Delivery>,
    },
    /// Another claim was complete before.
    Abandoned(Box<Delivery>),
}

/// The results of blocks that are not complete yet, and the claims that were.
#[derive(Default)]
pub(crate) struct Blocks {
    open: HashMap<u32, HashMap<String, Claimed>>,
    complete: HashMap<u32, HashSet<String>>,
    /// Abandoned results of blocks that are complete.
    abandoned: HashSet<(String, u32)>,
}

#[derive(Default)]
struct Claimed {
    results: Vec<Delivery>,
    combinations: HashSet<u32>,
}

impl Blocks {
    pub(crate) fn add(&mut self, delivery: Delivery) -> Collected {
        let (block, combination) = (delivery.row.run.block, delivery.row.run.combination);
        if self.complete.get(&block).is_some_and(|claims| claims.contains(&delivery.claim)) {
            return Collected::Repeated;
        }
        let claims = self.open.entry(block).or_default();
        let claim = delivery.claim.clone();
        let claimed = claims.entry(claim.clone()).or_default();
        if !claimed.combinations.insert(combination) {
            return Collected::Repeated;
        }
        let of = delivery.of as usize;
        let is_known = self.complete.contains_key(&block);
        claimed.results.push(delivery.clone());
        if claimed.results.len() < of {
            if !is_known {
                return Collected::Waiting;
            }
            self.abandoned.insert((claim, combination));
            return Collected::Abandoned(Box::new(delivery));
        }
        let results = claims.remove(&claim).unwrap_or_default().results;
        self.complete.entry(block).or_default().insert(claim);
        let others = claims.values().flat_map(|claimed| &claimed.results).cloned();
        let abandoned: Vec<Delivery> =
            others.filter(|it| self.abandoned.insert((it.claim.clone(), it.row.run.combination))).collect();
        Collected::Complete { results, is_first: !is_known, abandoned }
    }
}

#[cfg(test)]
mod tests {
    use bellows_campaign::RunId;

    use super::*;
    use crate::test_rows::delivery;

    fn add(blocks: &mut Blocks, claim: &str, of: u32, combination: u32) -> Collected {
        blocks.add(delivery(claim, of, RunId { block: 1, combination }))
    }

    #[test]
    fn a_block_counts_when_one_claim_has_all_of_it() {
        let mut blocks = Blocks::default();
        assert_eq!(add(&mut blocks, "a", 3, 1), Collected::Waiting);
        assert_eq!(add(&mut blocks, "b", 3, 2), Collected::Waiting);
        assert_eq!(add(&mut blocks, "a", 3, 1), Collected::Repeated);
        assert_eq!(add(&mut blocks, "b", 3, 1), Collected::Waiting);
        // Two claims have three runs together, which are not one machine's.
        assert_eq!(add(&mut blocks, "a", 3, 3), Collected::Waiting);
        let Collected::Complete { results, is_first, abandoned } = add(&mut blocks, "b", 3, 3) else { panic!() };
        let runs = |results: &[Delivery]| results.iter().map(|it| it.row.run.combination).collect::<Vec<_>>();
        assert_eq!((runs(&results), is_first, runs(&abandoned)), (vec![2, 1, 3], true, vec![1, 3]));
        assert!(results.iter().all(|it| it.claim == "b") && abandoned.iter().all(|it| it.claim == "a"));
        // Whatever comes later counts no more.
        assert_eq!(add(&mut blocks, "b", 3, 3), Collected::Repeated);
        assert!(matches!(add(&mut blocks, "c", 3, 3), Collected::Abandoned(_)));
        let last = add(&mut blocks, "a", 3, 2);
        assert!(matches!(last, Collected::Complete { is_first: false, abandoned, .. } if abandoned.is_empty()));
        assert_eq!(add(&mut blocks, "a", 3, 1), Collected::Repeated);
    }
}
