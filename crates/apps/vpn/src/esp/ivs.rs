//! The IVs with which a key has sealed.
//!
//! No key may seal two packets with the same IV: two give away what both carry (RFC 4106, section 3). Each run seals
//! with consecutive IVs from a random one on. If it knows those of earlier runs, it keeps away from them. If it does
//! not, because a file was lost, or an old one was restored, it meets them by accident alone: two runs that seal 2^32
//! packets each do once in 2^31 cases.

use std::hash::{BuildHasher, RandomState};

use serde::{Deserialize, Deserializer, Serialize};

/// The most ranges that are kept. Where there are more, the closest two become one. Each such step gives up a part of
/// 1 / `MAX_RANGES`^2 of all IVs.
const MAX_RANGES: usize = 256;

/// How many IVs are free behind the first one of a run.
const ROOM: u64 = 1 << 52;

/// Sets of IVs: ranges in order that do not touch, each with its first and last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Ivs(Vec<[u64; 2]>);

impl Ivs {
    /// Adds consecutive IVs. After the last number comes 0.
    pub(super) fn add(&mut self, first: u64, last: u64) {
        if first > last {
            self.add(first, u64::MAX);
            return self.add(0, last);
        }
        let from = self.0.partition_point(|range| range[1] < first.saturating_sub(1));
        let to = self.0.partition_point(|range| range[0] <= last.saturating_add(1));
        let merged =
            self.0[from..to].iter().fold([first, last], |sum, range| [sum[0].min(range[0]), sum[1].max(range[1])]);
        self.0.splice(from..to, [merged]);
        if self.0.len() > MAX_RANGES {
            let gap = |at: &usize| self.0[at + 1][0] - self.0[*at][1];
            if let Some(at) = (0..self.0.len() - 1).min_by_key(gap) {
                self.0[at][1] = self.0.remove(at + 1)[1];
            }
        }
    }

    pub(super) fn add_all(&mut self, other: &Ivs) {
        other.0.iter().for_each(|range| self.add(range[0], range[1]));
    }

    /// The first IV of another run: random, and far from all that come next.
    pub(super) fn new_start(&self) -> u64 {
        let random = || RandomState::new().hash_one(0);
        let start = (0..10_000).map(|_| random()).find(|start| self.is_free(*start, ROOM));
        // Hardly any is free: the largest gap.
        start.unwrap_or_else(|| {
            let ends = self.0.iter().map(|range| range[1].wrapping_add(1));
            let starts = self.0.iter().cycle().skip(1).map(|range| range[0]);
            let gap = ends.zip(starts).max_by_key(|(end, start)| start.wrapping_sub(*end));
            gap.map_or_else(random, |(end, _)| end)
        })
    }

    /// Whether this IV and those behind it were not used.
    fn is_free(&self, first: u64, count: u64) -> bool {
        let Some(last) = first.checked_add(count) else { return false };
        self.0.iter().all(|range| range[1] < first || range[0] > last)
    }

    #[cfg(test)]
    pub(super) fn contains(&self, iv: u64) -> bool {
        !self.is_free(iv, 0)
    }
}

impl<'de> Deserialize<'de> for Ivs {
    /// Ranges in any order.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ivs, D::Error> {
        let mut ivs = Ivs::default();
        Vec::<[u64; 2]>::deserialize(deserializer)?.into_iter().for_each(|[first, last]| ivs.add(first, last));
        Ok(ivs)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_are_as_a_set_of_numbers(ranges in prop::collection::vec((0..60_u64, 0..12_u64), 0..20)) {
            let mut ivs = Ivs::default();
            let mut model = BTreeSet::new();
            for (first, length) in ranges {
                ivs.add(first, first + length);
                model.extend(first..=first + length);
            }
            for iv in 0..80 {
                prop_assert_eq!(ivs.contains(iv), model.contains(&iv), "{}", iv);
            }
            prop_assert!(ivs.0.windows(2).all(|pair| pair[0][1] + 1 < pair[1][0]), "{:?}", ivs);
            let text = serde_json::to_string(&ivs).unwrap();
            prop_assert_eq!(serde_json::from_str::<Ivs>(&text).unwrap(), ivs);
        }
    }

    #[test]
    fn many_runs_never_meet() {
        let mut ivs = Ivs::default();
        for run in 0..3_000 {
            let start = ivs.new_start();
            let last = start.wrapping_add(1 << 20);
            assert!(!ivs.contains(start) && !ivs.contains(last), "run {run}");
            ivs.add(start, last);
            assert!(ivs.0.len() <= MAX_RANGES);
        }
    }

    #[test]
    fn the_ends_of_all_numbers_meet() {
        let mut ivs = Ivs::default();
        ivs.add(u64::MAX - 1, 1);
        assert_eq!([u64::MAX - 2, u64::MAX, 0, 1, 2].map(|iv| ivs.contains(iv)), [false, true, true, true, false]);
        ivs.add(2, u64::MAX - 5);
        assert!(!ivs.contains(ivs.new_start()), "the only gap");
    }
}
