//! The figures of each case.

use serde_json::{Value, json};

use super::FibCase;
use super::contender::{FibWork, ReaderLookUps};
use super::tables::KEY_SETS;
use crate::report::Measurement;
use crate::targets::Target;
use crate::turns::{self, Match, Record};

/// The sides of a comparison and what they have found.
pub(super) struct Sides<'a> {
    pub(super) case: FibCase,
    pub(super) next_hops: usize,
    pub(super) matches: &'a [Match],
    /// Those of the works, then those of other programs.
    pub(super) names: Vec<&'a str>,
    pub(super) works: &'a [(FibWork, &'a str)],
}

impl Sides<'_> {
    /// Why sides could not take part.
    pub(super) fn refused(&self) -> Vec<String> {
        let sides = self.matches.first().map(|found| &found.sides[..]).unwrap_or_default();
        let why = |(side, name): (&Record, &&str)| {
            Some(format!("{} by {name}: {}", self.case.name(), side.refused.as_ref()?))
        };
        sides.iter().zip(&self.names).filter_map(why).collect()
    }

    fn each(&self, side: usize, figure: usize) -> Vec<f64> {
        turns::figures(self.matches, side, figure)
    }

    fn measured(
        &self,
        unit: &str,
        values: &[f64],
        target: Option<Target>,
        labels: Vec<(&'static str, Value)>,
    ) -> Option<Measurement> {
        let found = Measurement::compared(self.case.name(), unit, values, labels)?;
        Some(match target {
            Some(target) => target.judge(found, self.matches.len()),
            None => found,
        })
    }

    /// The figures of the case.
    pub(super) fn results(&self) -> Vec<Measurement> {
        match self.case {
            FibCase::Ipv4 | FibCase::Ipv6 => self.look_ups(),
            FibCase::Changes => self.changes(),
            FibCase::Replace => {
                let figures = ["longest batch", "first batch in new tables", "all batches until the caches are full"];
                let target = |figure| (figure == 0).then_some(Target::AtMost(50.0));
                let each = figures.into_iter().enumerate();
                each.filter_map(|(figure, what)| {
                    self.measured("µs", &self.each(0, figure), target(figure), vec![("what", json!(what))])
                })
                .collect()
            }
            FibCase::Load => {
                let labels = |what: &str| vec![("what", json!(what))];
                let time = self.measured("ms", &self.each(0, 0), Some(Target::AtMost(1_500.0)), labels("time"));
                let memory = self.measured("MiB", &self.each(0, 1), Some(Target::AtMost(400.0)), labels("memory"));
                time.into_iter().chain(memory).collect()
            }
        }
    }

    fn changes(&self) -> Vec<Measurement> {
        let mut found = Vec::new();
        for (side, (work, _)) in self.works.iter().enumerate() {
            let FibWork::Change { commit, reader } = *work else { continue };
            let labels = |more: &[(&'static str, Value)]| {
                [("commit", json!(commit))].into_iter().chain(more.iter().cloned()).collect::<Vec<_>>()
            };
            if reader != ReaderLookUps::Others {
                let is_beside = reader == ReaderLookUps::Changing;
                let target = is_beside.then_some(Target::AtLeast(300_000.0));
                let labels = labels(&[("beside_reader", json!(is_beside))]);
                found.extend(self.measured("changes/s", &self.each(side, 0), target, labels));
                continue;
            }
            // The side before has the reader of the tables that change.
            for (side, tables) in [(side - 1, "changing"), (side, "unchanged")] {
                let labels = labels(&[("tables", json!(tables))]);
                found.extend(self.measured("look-ups/s", &self.each(side, 1), None, labels));
            }
            let ratio = |found: &Match| found.ratio((side - 1, 1), (side, 1), 0);
            let ratios: Vec<f64> = self.matches.iter().filter_map(ratio).collect();
            let labels = labels(&[("of", json!("look-ups/s, changing to unchanged"))]);
            found.extend(self.measured("ratio", &ratios, Some(Target::AtLeast(0.95)), labels));
        }
        found
    }

    /// Clocks and bytes of each side, then what others take in relation to the first one.
    fn look_ups(&self) -> Vec<Measurement> {
        let mut found = Vec::new();
        let conditions = |set: usize, more: (&'static str, Value)| {
            let set = KEY_SETS[set];
            vec![("next_hops", self.next_hops.into()), ("keys", json!(set.name)), ("count", set.count.into()), more]
        };
        for (side, name) in self.names.iter().enumerate() {
            for set in 0..KEY_SETS.len() {
                let labels = conditions(set, ("table", json!(name)));
                found.extend(self.measured("clocks/look-up", &self.each(side, set), None, labels));
            }
            let bytes: Vec<f64> =
                self.each(side, KEY_SETS.len()).iter().map(|bytes| bytes / f64::from(1 << 20)).collect();
            let labels = vec![("next_hops", self.next_hops.into()), ("table", json!(name))];
            found.extend(self.measured("MiB", &bytes, None, labels));
        }
        for (side, name) in self.names.iter().enumerate().skip(1) {
            for set in 0..KEY_SETS.len() {
                let labels = conditions(set, ("of", json!(format!("{name} to bellows"))));
                found.extend(self.measured("ratio", &self.least_ratios(&[side], set), None, labels));
            }
        }
        found.extend(self.judged(conditions));
        found
    }

    /// The quicker, and the smaller, of DPDK's tables in relation to Bellows'.
    fn judged(
        &self,
        conditions: impl Fn(usize, (&'static str, Value)) -> Vec<(&'static str, Value)>,
    ) -> Vec<Measurement> {
        let dpdk: Vec<usize> = (1..self.names.len()).filter(|&side| self.names[side].starts_with("rte_")).collect();
        let names = dpdk.iter().map(|&side| self.names[side]).collect::<Vec<&str>>().join(" and ");
        let times = Target::AtLeast(if self.case == FibCase::Ipv4 { 1.5 } else { 2.0 });
        let mut found = Vec::new();
        // With as many keys as do not fit into caches.
        for set in (0..KEY_SETS.len()).filter(|&set| KEY_SETS[set].count == KEY_SETS[0].count) {
            let labels = conditions(set, ("of", json!(format!("the quicker of {names} to bellows"))));
            found.extend(self.measured("ratio", &self.least_ratios(&dpdk, set), Some(times), labels));
        }
        let memory = self.least_ratios(&dpdk, KEY_SETS.len());
        let of = json!(format!("memory of the smaller of {names} to bellows"));
        let labels = vec![("next_hops", self.next_hops.into()), ("of", of)];
        found.extend(self.measured("ratio", &memory, Some(Target::AtLeast(1.0)), labels));
        found
    }

    /// For each match the least of the ratios of a figure between one of these sides and Bellows.
    fn least_ratios(&self, sides: &[usize], figure: usize) -> Vec<f64> {
        let least = |found: &Match| {
            let ratios = sides.iter().filter_map(|&side| found.ratio((side, figure), (0, figure), 0));
            ratios.reduce(f64::min)
        };
        self.matches.iter().filter_map(least).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::Turn;

    /// A match in which each side has these clocks in all sets of keys, and these bytes.
    fn found(sides: &[(f64, f64)]) -> Match {
        let turn = |&(clocks, bytes): &(f64, f64)| {
            let figures = [[clocks; KEY_SETS.len()].as_slice(), &[bytes]].concat();
            vec![Turn { figures, took: clocks, lost: 0.0 }; 2]
        };
        Match::of(sides.iter().map(|side| Record::of(vec![turn(side)])).collect(), 1)
    }

    #[test]
    fn the_quicker_and_the_smaller_of_the_two_are_judged() {
        // The third one is quicker than the second in one match only.
        let matches: Vec<Match> = (0..7)
            .map(|at| found(&[(5.0, 10.0), (10.0, 40.0), (if at == 3 { 6.0 } else { 20.0 }, 30.0), (1.0, 1.0)]))
            .collect();
        let names = vec!["bellows", "rte_fib", "rte_lpm", "poptrie"];
        let sides = Sides { case: FibCase::Ipv4, next_hops: 9, matches: &matches, names, works: &[] };
        let judged: Vec<Measurement> =
            sides.results().into_iter().filter(|result| result.labels.contains_key("verdict")).collect();
        let of: Vec<(&str, f64)> =
            judged.iter().map(|result| (result.labels["of"].as_str().unwrap(), result.high)).collect();
        let quicker = "the quicker of rte_fib and rte_lpm to bellows";
        let smaller = "memory of the smaller of rte_fib and rte_lpm to bellows";
        assert_eq!(of, [(quicker, 2.0), (quicker, 2.0), (smaller, 3.0)]);
        assert_eq!(sides.least_ratios(&[1, 2], 0)[3], 1.2);
    }
}
