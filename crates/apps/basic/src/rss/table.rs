//! The indirection table: which output each entry belongs to.

/// The most entries that one rebalancing moves: packets of each are held for a while.
pub(super) const MAX_MOVES: usize = 64;

/// How much more than its share an output must get before entries are moved away: one part in this many.
const TOLERANCE: u64 = 20;

/// The number of entries that each output should have: proportional to its weight, the largest remainders rounded up.
/// If all weights are 0, they are equal.
fn quotas(size: usize, weights: &[u32]) -> Vec<usize> {
    let weights = effective(weights);
    let total: u64 = weights.iter().sum();
    let share = |weight: u64| size as u64 * weight;
    let mut quotas: Vec<usize> = weights.iter().map(|&weight| (share(weight) / total) as usize).collect();
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|&output| std::cmp::Reverse(share(weights[output]) % total));
    let missing = size - quotas.iter().sum::<usize>();
    by_remainder[..missing].iter().for_each(|&output| quotas[output] += 1);
    quotas
}

/// The weights; equal ones if all are 0.
fn effective(weights: &[u32]) -> Vec<u64> {
    let all_zero = weights.iter().all(|&weight| weight == 0);
    weights.iter().map(|&weight| if all_zero { 1 } else { weight.into() }).collect()
}

/// The first table: outputs in turn, those with more weight more often. With equal weights entry i belongs to output
/// i modulo their number, as in a network interface.
pub(super) fn initial(size: usize, weights: &[u32]) -> Vec<u16> {
    let quotas = quotas(size, weights);
    let mut counts = vec![0; quotas.len()];
    let mut owner = |entry: usize| {
        // The output that is furthest behind what it should have had by now.
        let behind =
            |output: usize| ((entry + 1) * quotas[output]).cast_signed() - (counts[output] * size).cast_signed();
        let open = (0..quotas.len()).filter(|&output| counts[output] < quotas[output]);
        let next = open.rev().max_by_key(|&output| behind(output)).unwrap_or_default();
        counts[next] += 1;
        next as u16
    };
    (0..size).map(&mut owner).collect()
}

/// Gives each output its quota, moving as few entries as possible. `None` stands for an output that is gone.
pub(super) fn reassigned(owners: &[Option<u16>], weights: &[u32]) -> Vec<u16> {
    let quotas = quotas(owners.len(), weights);
    let mut counts = vec![0; quotas.len()];
    let mut keep = |owner: Option<u16>| {
        let owner = owner.filter(|&owner| counts[usize::from(owner)] < quotas[usize::from(owner)])?;
        counts[usize::from(owner)] += 1;
        Some(owner)
    };
    let kept: Vec<Option<u16>> = owners.iter().map(|&owner| keep(owner)).collect();
    let mut next = 0;
    let mut take = || {
        // In turn, so that neighbouring entries go to different outputs.
        let open = (next..quotas.len()).chain(0..next).find(|&output| counts[output] < quotas[output]);
        let output = open.unwrap_or_default();
        counts[output] += 1;
        next = (output + 1) % quotas.len();
        output as u16
    };
    kept.into_iter().map(|owner| owner.unwrap_or_else(&mut take)).collect()
}

/// Moves entries from outputs that got more than their share of the packets to others, as far as that evens the loads.
/// `loads` counts the packets of each entry. Entries that may not move are `fixed`. Returns those that moved.
pub(super) fn rebalance(
    owners: &mut [u16],
    loads: &[u32],
    weights: &[u32],
    fixed: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let weights = effective(weights);
    let total_weight: u64 = weights.iter().sum();
    let mut sums = vec![0u64; weights.len()];
    for (&owner, &load) in owners.iter().zip(loads) {
        sums[usize::from(owner)] += u64::from(load);
    }
    let total: u64 = sums.iter().sum();
    // Which of two outputs has more packets for its weight.
    let compare = |sums: &[u64], one: usize, other: usize| {
        (u128::from(sums[one]) * u128::from(weights[other])).cmp(&(u128::from(sums[other]) * u128::from(weights[one])))
    };
    let mut moved = Vec::new();
    while moved.len() < MAX_MOVES {
        let weighty = || (0..weights.len()).filter(|&output| weights[output] > 0);
        let Some(busiest) = weighty().max_by(|&one, &other| compare(&sums, one, other)) else { break };
        let Some(idlest) = weighty().min_by(|&one, &other| compare(&sums, one, other)) else { break };
        let share = (u128::from(total) * u128::from(weights[busiest]) / u128::from(total_weight)) as u64;
        if sums[busiest] <= share + share / TOLERANCE {
            break;
        }
        // The largest entry that leaves the receiver no busier than the giver is then.
        let fits = |load: u64| {
            let (giver, receiver) = (sums[busiest] - load, sums[idlest] + load);
            u128::from(receiver) * u128::from(weights[busiest]) <= u128::from(giver) * u128::from(weights[idlest])
        };
        let candidates = (0..owners.len()).filter(|&entry| usize::from(owners[entry]) == busiest && !fixed(entry));
        // Entries that would hardly make a difference stay.
        let least = ((sums[busiest] - share) / owners.len() as u64).max(1);
        let fitting = candidates.filter(|&entry| u64::from(loads[entry]) >= least && fits(loads[entry].into()));
        let Some(entry) = fitting.max_by_key(|&entry| loads[entry]) else { break };
        sums[busiest] -= u64::from(loads[entry]);
        sums[idlest] += u64::from(loads[entry]);
        owners[entry] = idlest as u16;
        moved.push(entry);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(owners: &[u16], outputs: usize) -> Vec<usize> {
        (0..outputs).map(|output| owners.iter().filter(|&&owner| usize::from(owner) == output).count()).collect()
    }

    #[test]
    fn equal_outputs_take_turns() {
        assert_eq!(initial(8, &[1, 1, 1]), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(initial(8, &[0, 0]), [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(initial(8, &[3, 1]), [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(initial(4, &[1, 0]), [0, 0, 0, 0]);
    }

    fn weights() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(prop_oneof![Just(1u32), 0..10u32, any::<u32>()], 1..10)
    }

    proptest! {
        /// Every table has the outputs in proportion to their weights, less than one entry away.
        #[test]
        fn outputs_have_their_shares(bits in 6u32..10, weights in weights(), old in prop::collection::vec(any::<u16>(), 512)) {
            let size = 1 << bits;
            let total = weights.iter().map(|&weight| f64::from(weight)).sum::<f64>();
            let old: Vec<Option<u16>> =
                old[..size].iter().map(|owner| Some(owner % 12).filter(|owner| usize::from(*owner) < weights.len())).collect();
            for table in [initial(size, &weights), reassigned(&old, &weights)] {
                prop_assert_eq!(table.len(), size);
                for (count, &weight) in counts(&table, weights.len()).into_iter().zip(&weights) {
                    let share = if total == 0.0 { 1.0 / weights.len() as f64 } else { f64::from(weight) / total };
                    prop_assert!((count as f64 - share * size as f64).abs() < 1.000_1, "{} {}", count, share);
                }
            }
        }

        /// An entry stays where it is unless its output is gone or has too many.
        #[test]
        fn no_entry_moves_in_vain(weights in weights(), old in prop::collection::vec(0u16..12, 128)) {
            let old: Vec<Option<u16>> =
                old.into_iter().map(|owner| Some(owner).filter(|owner| usize::from(*owner) < weights.len())).collect();
            let new = reassigned(&old, &weights);
            let kept = old.iter().zip(&new).filter(|(old, new)| **old == Some(**new)).count();
            let had = |output: usize| old.iter().filter(|owner| **owner == Some(output as u16)).count();
            let most: usize = counts(&new, weights.len()).into_iter().enumerate().map(|(output, has)| has.min(had(output))).sum();
            prop_assert_eq!(kept, most);
            let again: Vec<Option<u16>> = new.iter().copied().map(Some).collect();
            prop_assert_eq!(reassigned(&again, &weights), new);
        }

        /// Rebalancing never makes the busiest output busier, and moves nothing that is fixed.
        #[test]
        fn rebalancing_evens_the_loads(loads in prop::collection::vec(prop_oneof![4 => 0..100u32, 1 => any::<u32>()], 64), weights in weights()) {
            let mut owners = initial(64, &weights);
            let before = owners.clone();
            let busiest = |owners: &[u16]| {
                let sum = |output: usize| owners.iter().zip(&loads).filter(|(owner, _)| usize::from(**owner) == output).map(|(_, load)| f64::from(*load)).sum::<f64>();
                let all_zero = weights.iter().all(|weight| *weight == 0);
                (0..weights.len()).filter(|output| all_zero || weights[*output] > 0).map(|output| sum(output) / f64::from(weights[output].max(1))).fold(0.0, f64::max)
            };
            let moved = rebalance(&mut owners, &loads, &weights, |entry| entry % 3 == 0);
            prop_assert!(moved.len() <= MAX_MOVES && moved.iter().all(|entry| entry % 3 != 0));
            prop_assert!((0..64).all(|entry| owners[entry] == before[entry] || moved.contains(&entry)));
            prop_assert!(busiest(&owners) <= busiest(&before) * 1.000_001);
        }
    }

    #[test]
    fn a_busy_output_gives_entries_away() {
        let mut owners = initial(64, &[1, 1]);
        // Everything that is not in entry 0 belongs to output 0, too.
        let loads: Vec<u32> = (0..64).map(|entry| if entry % 2 == 0 { 100 } else { 0 }).collect();
        let moved = rebalance(&mut owners, &loads, &[1, 1], |_| false);
        assert_eq!(moved.len(), 16);
        // One entry that is busier than all others stays, and those that do not matter stay with it.
        let mut owners = initial(64, &[1, 1]);
        let loads: Vec<u32> = (0..64).map(|entry| if entry == 0 { 100_000 } else { 1 }).collect();
        assert!(rebalance(&mut owners, &loads, &[1, 1], |_| false).is_empty());
        // If they do matter, they leave.
        let loads: Vec<u32> = (0..64).map(|entry| if entry == 0 { 100_000 } else { 3_000 }).collect();
        assert_eq!(rebalance(&mut owners, &loads, &[1, 1], |_| false).len(), 14);
    }
}
