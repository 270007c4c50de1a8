//! Compares a benchmark between two builds of the program, pair by pair.
//!
//! Each pair is a whole run of the benchmark by this program and one by the other, in random order and with one process
//! for each figure. Only the reports are compared, so the workers of the other build may speak another protocol. The
//! result is the ratio of the medians over all pairs, this program over the other, with an interval by bootstrap over
//! the pairs: a disturbance of both runs of a pair is in both.
//!
//! A pair counts unless the host took the measured processor away for more than a hundredth of one of its runs
//! (`steal` in `/proc/stat`); such a pair is measured once more.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use bellows_stats::{is_ratio_undecided, median, ratio_of_medians};
use bellows_sys::cpu;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::audience::Observer;
use crate::bench::Finished;
use crate::report::{BenchError, Measurement, Report};
use crate::steal;
use crate::workers::{ProcessError, run_program, this_program};

/// The options of a comparison.
pub struct Comparison<'a> {
    /// The other program.
    pub other: &'a Path,
    /// The number of valid pairs of runs to collect.
    pub pairs: usize,
    /// The arguments with which both programs run the benchmark.
    pub words: &'a [OsString],
    /// The processor to measure on. By default the last one that the process may use.
    pub cpu: Option<usize>,
    /// Labels whose values are figures too, with their units.
    pub measured: &'a [(&'a str, &'a str)],
}

/// The maximum share of a run for which the host may take the processor away.
const MAX_STOLEN: f64 = 0.01;

/// The maximum number of pairs to measure, for each valid pair to collect.
const MAX_TRIES: usize = 2;

/// Identifies a figure in a report: its case, unit and conditions.
type Key = (String, String, String);

/// The figures of one pair: of this program, and of the other.
type Pair = [BTreeMap<Key, f64>; 2];

impl Comparison<'_> {
    /// Runs both programs in turn.
    ///
    /// # Errors
    /// When one of them cannot be run, or prints something other than a report.
    pub fn run(&self, observer: &mut dyn Observer) -> Result<Finished, BenchError> {
        let programs = [this_program()?, self.other_program()?];
        let mut random = Rng::new();
        let (mut pairs, mut excluded): (Vec<Pair>, usize) = (Vec::new(), 0);
        let mut first: Option<Report> = None;
        let mut interrupted = false;
        'pairs: while pairs.len() < self.pairs && pairs.len() + excluded < MAX_TRIES * self.pairs {
            observer.progress(2 * pairs.len(), 2 * self.pairs);
            let mut pair = Pair::default();
            let mut worst = 0.0f64;
            let begins = usize::from(random.bool());
            for number in 0..2 {
                let side = (begins + number) % 2;
                let (report, stolen) = match self.report(&programs[side], observer) {
                    Err(BenchError::Process(ProcessError::Interrupted)) if !pairs.is_empty() => {
                        interrupted = true;
                        break 'pairs;
                    }
                    report => report?,
                };
                worst = worst.max(stolen);
                pair[side] = self.figures(&report);
                if side == 0 {
                    first.get_or_insert(report);
                }
                observer.progress(2 * pairs.len() + number + 1, 2 * self.pairs);
            }
            // At the end a disturbed pair is better than none.
            if worst <= MAX_STOLEN || pairs.len() + excluded + 1 == MAX_TRIES * self.pairs && pairs.is_empty() {
                pairs.push(pair);
            } else {
                excluded += 1;
            }
        }
        let Some(first) = first else { return Err(ProcessError::Interrupted.into()) };
        let results = ratios(&pairs);
        if results.is_empty() {
            return Err(BenchError::Failed(format!(
                "{} and this program have no figure in common: use the same options, and versions with the same names \
                 for cases and conditions",
                self.other.display()
            )));
        }
        let mut report = Report::new(&first.bench, first.machine, pairs.len(), results);
        report.interrupted = interrupted;
        report.notes = self.notes(&pairs, excluded);
        Ok(Finished::new(report, Report::text))
    }

    /// The other program, as a file.
    fn other_program(&self) -> Result<PathBuf, BenchError> {
        let missing = || {
            let other = self.other.display();
            BenchError::Refused(format!("--against: there is no program {other}; give the path of another build"))
        };
        let path = self.other.canonicalize().map_err(|_| missing())?;
        if path.is_file() { Ok(path) } else { Err(missing()) }
    }

    /// One run of a program: its report, and the share of the time for which the host took the processor away.
    fn report(&self, program: &Path, observer: &mut dyn Observer) -> Result<(Report, f64), BenchError> {
        let processor = self.cpu.or_else(|| cpu::allowed().last().copied()).unwrap_or_default();
        let (start, before) = (Instant::now(), steal::stolen(processor));
        let mut command = Command::new(program);
        command.args(self.words).args(["--processes", "1", "--json"]);
        let output = run_program(&mut command, observer)?;
        let stolen =
            steal::stolen(processor).zip(before).map_or(0.0, |(after, before)| after.saturating_sub(before) as f64);
        let share = stolen / steal::TICKS_PER_SECOND / start.elapsed().as_secs_f64().max(1e-3);
        let report = serde_json::from_str(&output.stdout).map_err(|error| {
            let program = program.display();
            let said = output.stderr.lines().next().map_or_else(String::new, |said| format!(": {said}"));
            let why = match output.stdout.is_empty() {
                true => format!("{program} did not run the benchmark ({}){said}", output.status),
                false => format!("{program} did not print a report of this version ({error})"),
            };
            BenchError::Refused(format!(
                "{why}; --against needs a build of this program that knows the same benchmark and options"
            ))
        })?;
        Ok((report, share))
    }

    /// The figures of a report, including those in labels.
    fn figures(&self, report: &Report) -> BTreeMap<Key, f64> {
        let mut figures = BTreeMap::new();
        for Measurement { case, unit, median, low, high, labels, .. } in &report.results {
            let unit_of = |label: &str| self.measured.iter().find(|(name, _)| *name == label).map(|(_, unit)| *unit);
            let conditions: BTreeMap<&String, &Value> =
                labels.iter().filter(|(name, _)| unit_of(name).is_none()).collect();
            let conditions = json!(conditions).to_string();
            // An undecided figure still has an interval.
            let value = if median.is_nan() { (low + high) / 2.0 } else { *median };
            figures.insert((case.clone(), unit.clone(), conditions.clone()), value);
            for (name, value) in labels {
                if let (Some(unit), Some(value)) = (unit_of(name), value.as_f64()) {
                    figures.insert((format!("{case}: {name}"), unit.to_owned(), conditions.clone()), value);
                }
            }
        }
        figures
    }

    /// The notes of the report.
    fn notes(&self, pairs: &[Pair], excluded: usize) -> Vec<String> {
        let of = |side: usize| pairs.iter().flat_map(move |pair| pair[side].keys()).collect::<Vec<&Key>>();
        let only = |side: usize| {
            let others = of(1 - side);
            let mut only: Vec<&str> =
                of(side).into_iter().filter(|key| !others.contains(key)).map(|key| key.0.as_str()).collect();
            only.sort_unstable();
            only.dedup();
            only.join(", ")
        };
        let mut notes = vec![
            format!(
                "this program over {}: the ratio of medians, with its interval by bootstrap over {} pairs of runs in \
                 random order; a ratio below 1 means that this program is faster, or slower for rates (Mpps)",
                self.other.display(),
                pairs.len()
            ),
            format!(
                "{excluded} pairs left out: the host took the processor away for more than {:.0} percent of a run",
                100.0 * MAX_STOLEN
            ),
        ];
        for (side, which) in [(0, "this program"), (1, "the other")] {
            let only = only(side);
            if !only.is_empty() {
                notes.push(format!("only {which} has some of the figures of: {only}"));
            }
        }
        notes
    }
}

/// This program's figures over the other's, for the figures that both programs report.
fn ratios(pairs: &[Pair]) -> Vec<Measurement> {
    let Some([first, _]) = pairs.first() else { return Vec::new() };
    let ratio = |key: &Key| {
        let both: Vec<(f64, f64)> =
            pairs.iter().filter_map(|[one, other]| Some((*one.get(key)?, *other.get(key)?))).collect();
        let found = ratio_of_medians(&both)?;
        let (case, unit, conditions) = key;
        let undecided = is_ratio_undecided(both.len(), &found);
        let middle = |side: fn(&(f64, f64)) -> f64| median(&both.iter().map(side).collect::<Vec<f64>>());
        let mut labels: BTreeMap<String, Value> = serde_json::from_str(conditions).unwrap_or_default();
        // A ratio itself says what is divided by what.
        if let Some(own) = labels.insert("of".to_owned(), json!(unit)) {
            labels.insert("ratio".to_owned(), own);
        }
        for (name, side) in [("this", (|pair| pair.0) as fn(&(f64, f64)) -> f64), ("other", |pair| pair.1)] {
            let rounded = middle(side).map(|middle| (middle.value * 1_000.0).round() / 1_000.0);
            labels.extend([(name.to_owned(), json!(rounded))]);
        }
        let shown = bellows_stats::Median { value: if undecided { f64::NAN } else { found.value }, ..found };
        Some(Measurement { undecided, labels, ..Measurement::with(case, "ratio", shown, Vec::new()) })
    };
    first.keys().filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(case: &str) -> Key {
        (case.to_owned(), "clocks/packet".to_owned(), r#"{"schedule":"flat"}"#.to_owned())
    }

    fn pair(this: f64, other: f64) -> Pair {
        [BTreeMap::from([(key("both"), this), (key("new"), 1.0)]), BTreeMap::from([(key("both"), other)])]
    }

    #[test]
    fn figures_that_both_have_are_compared_under_the_same_conditions() {
        // A machine that changes its speed from pair to pair by much more than the programs differ.
        let pairs: Vec<Pair> = (0..15).map(|pair| 10.0 + f64::from(pair % 5)).map(|at| pair(0.9 * at, at)).collect();
        let results = ratios(&pairs);
        let [result] = results.as_slice() else { panic!("{results:?}") };
        assert!((result.median - 0.9).abs() < 1e-9 && result.high - result.low < 1e-9, "{result:?}");
        assert_eq!((result.case.as_str(), result.unit.as_str()), ("both", "ratio"));
        assert_eq!(
            json!(result.labels),
            json!({ "schedule": "flat", "of": "clocks/packet", "this": 10.8, "other": 12.0 })
        );
    }

    #[test]
    fn ratios_of_different_things_stay_apart() {
        let key = |of: &str| ("ipv4".to_owned(), "ratio".to_owned(), json!({ "of": of }).to_string());
        let both = [key("one to ours"), key("two to ours")];
        let side: BTreeMap<Key, f64> = both.iter().map(|key| (key.clone(), 2.0)).collect();
        let results = ratios(&vec![[side.clone(), side]; 15]);
        let labels: Vec<[&Value; 2]> =
            results.iter().map(|result| ["of", "ratio"].map(|key| &result.labels[key])).collect();
        assert_eq!(json!(labels), json!([["ratio", "one to ours"], ["ratio", "two to ours"]]));
    }

    #[test]
    fn a_label_that_was_measured_is_a_figure_and_no_condition() {
        let labels = vec![("clocks", json!(31.5)), ("tees", json!(3))];
        let result = Measurement::of("idle-first", "ratio", &[1.0], labels).unwrap();
        let report = Report::new("history", crate::machine::Machine::here(), 1, vec![result]);
        let comparison = Comparison {
            other: Path::new("other"),
            pairs: 1,
            words: &[],
            cpu: None,
            measured: &[("clocks", "clocks")],
        };
        let figures = comparison.figures(&report);
        let conditions = r#"{"tees":3}"#.to_owned();
        let expected = [
            (("idle-first".to_owned(), "ratio".to_owned(), conditions.clone()), 1.0),
            (("idle-first: clocks".to_owned(), "clocks".to_owned(), conditions), 31.5),
        ];
        assert_eq!(figures, BTreeMap::from(expected));
        assert!(matches!(comparison.run(&mut ()), Err(BenchError::Refused(why)) if why.contains("no program other")));
    }

    #[test]
    fn what_only_one_program_has_is_named() {
        let comparison = Comparison { other: Path::new("other"), pairs: 1, words: &[], cpu: None, measured: &[] };
        let notes = comparison.notes(&[pair(1.0, 1.0)], 2);
        assert!(notes[1].starts_with("2 pairs left out"), "{notes:?}");
        assert_eq!(notes[2..], ["only this program has some of the figures of: new"]);
    }
}
