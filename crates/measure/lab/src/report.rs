//! The report of every benchmark, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use bellows_config::Diagnostics;
use bellows_inspect::histogram::{Histogram, span};
use bellows_stats::{ENOUGH, Median, is_ratio_undecided, median, quantile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::beside::BesideError;
use crate::machine::Machine;
use crate::residence::MeasureError;
use crate::workers::ProcessError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A worker failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The capture to read could not be written.
    #[error("cannot write a capture to read: {0}; set TMPDIR to a folder with 50 MB free")]
    Capture(bellows_capture::Error),
    /// The folder for sockets could not be created.
    #[error("cannot create {0} for sockets: {1}; set TMPDIR to a writable folder")]
    Folder(PathBuf, std::io::Error),
    /// There was no memory to measure the levels of the memory hierarchy.
    #[error(transparent)]
    Levels(MeasureError),
    /// No case has this in its name.
    #[error("no case has `{0}` in its name; there are {1}")]
    NoCase(String, String),
    /// The disturbance cannot run.
    #[error(transparent)]
    Beside(#[from] BesideError),
    /// The options exclude every ring.
    #[error("none of these chains fits into a ring with these options")]
    NoRing,
    /// The network or the apps to measure cannot be read.
    #[error("{}", .0.render(false))]
    Diagnosed(Diagnostics),
    /// The request cannot be measured.
    #[error("{0}")]
    Refused(String),
    /// An internal failure.
    #[error("{0}")]
    Failed(String),
}

impl BenchError {
    /// Whether the error is the caller's mistake, not an internal failure.
    pub fn is_mistake(&self) -> bool {
        match self {
            BenchError::Process(error) => error.is_mistake(),
            BenchError::Failed(_) => false,
            _ => true,
        }
    }

    /// Whether the benchmark was interrupted before there was anything to report.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, BenchError::Process(ProcessError::Interrupted))
    }
}

/// The cases with `filter` in their name.
///
/// # Errors
/// When there is none.
pub(crate) fn chosen<C: Copy>(
    all: impl IntoIterator<Item = C>,
    name: impl Fn(C) -> &'static str,
    filter: &str,
) -> Result<Vec<C>, BenchError> {
    let (chosen, others): (Vec<C>, Vec<C>) = all.into_iter().partition(|&case| name(case).contains(filter));
    if chosen.is_empty() {
        let mut names: Vec<&str> = others.into_iter().map(name).collect();
        names.dedup();
        let last = names.pop().unwrap_or_default();
        return Err(BenchError::NoCase(filter.to_owned(), format!("{} and {last}", names.join(", "))));
    }
    Ok(chosen)
}

/// A ratio of neighbouring turns, with its 95 percent confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Ratio")]
pub struct Ratio {
    /// The median; null if undecided.
    #[serde(deserialize_with = "number_or_null")]
    #[schemars(with = "Option<f64>")]
    pub median: f64,
    /// The lower end of its 95 percent confidence interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Ratio {
    /// The median over the figures of all matches; `None` without any.
    pub fn of(values: &[f64]) -> Option<Ratio> {
        let found = median(values)?;
        let median = if is_ratio_undecided(values.len(), &found) { f64::NAN } else { found.value };
        Some(Ratio { median, low: found.low, high: found.high })
    }

    /// The ratio and its interval as text.
    pub(crate) fn written(&self) -> String {
        let Ratio { median, low, high } = self;
        match median.is_nan() {
            true => format!("undecided (half-width {:.3})", (high - low) / 2.0),
            false => format!("{median:.3} ({low:.3} – {high:.3})"),
        }
    }
}

/// What the engine adds to a bare loop: the figure minus the loop's, of neighbouring turns, with its 95 percent
/// confidence interval, in the figure's unit.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Overhead")]
pub struct Overhead {
    /// The median.
    pub median: f64,
    /// The lower end of its 95 percent confidence interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Overhead {
    /// The median over the figures of all matches; `None` without any.
    pub(crate) fn of(values: &[f64]) -> Option<Overhead> {
        let Median { value, low, high } = median(values)?;
        Some(Overhead { median: value, low, high })
    }
}

/// Reads NaN, which JSON writes as null.
fn number_or_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The maximum half-width of an interval, as a share of the median, for figures that are not ratios; and the half-width
/// that is always fine, in units, because a cost near zero has a wide relative interval but is known well enough.
const MAX_HALF_WIDTH: f64 = 0.1;
const FINE_HALF_WIDTH: f64 = 0.5;

/// Whether an interval is too wide for a figure. Too few processes have no interval.
fn is_too_wide(unit: &str, processes: usize, found: &Median) -> bool {
    match unit {
        "ratio" => is_ratio_undecided(processes, found),
        _ => processes >= ENOUGH && found.half_width() > (MAX_HALF_WIDTH * found.value).max(FINE_HALF_WIDTH),
    }
}

/// One figure.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Figure")]
pub struct Measurement {
    /// The case.
    pub case: String,
    /// The unit; clocks are those of the time-stamp counter.
    ///
    /// The unit: `clocks/packet` (of the time-stamp counter), `ns/breath`, `Mpps`, `Gb/s`, `ns`, `ratio`.
    pub unit: String,
    /// The median over all processes (of `scrape` the geometric mean); null if undecided.
    #[serde(deserialize_with = "number_or_null")]
    #[schemars(with = "Option<f64>")]
    pub median: f64,
    /// The lower end of the median's 95 percent confidence interval; with fewer than six processes the minimum.
    pub low: f64,
    /// The upper end; with fewer than six processes the maximum.
    pub high: f64,
    /// True if the machine was too disturbed: the interval is wider than 3 percent to each side of a ratio (of
    /// `scrape`: 1), or 10 percent of another figure (and half a unit). The exit code is 3.
    #[serde(skip_serializing_if = "is_false", default)]
    pub undecided: bool,
    /// The same work without Bellows, where applicable.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<f64>,
    /// The 99th percentile of all samples of all processes, if single samples matter.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<f64>,
    /// Their maximum.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub maximum: Option<f64>,
    /// The figure over the reference, turn by turn, if it is measured in the same turns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of_reference: Option<Ratio>,
    /// What the engine adds, if the reference is a bare loop, the same work without the engine: the figure minus that
    /// of the loop, turn by turn, in the figure's unit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub overhead: Option<Overhead>,
    /// Of all samples: a class's upper bound (inclusive, in nanoseconds) and its number of samples; the classes are
    /// contiguous.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub histogram: Option<Histogram>,
    /// The conditions, and numbers behind the figure.
    pub labels: BTreeMap<String, Value>,
}

impl Measurement {
    /// The median over the figures of all processes; `None` without any.
    pub fn of(case: &str, unit: &str, values: &[f64], labels: Vec<(&str, Value)>) -> Option<Measurement> {
        Some(Measurement::with(case, unit, median(values)?, labels))
    }

    /// The median over the figures of all matches; undecided if its interval is too wide. `None` without any.
    pub(crate) fn compared(case: &str, unit: &str, values: &[f64], labels: Vec<(&str, Value)>) -> Option<Measurement> {
        let found = median(values)?;
        let undecided = is_too_wide(unit, values.len(), &found);
        let value = if undecided { f64::NAN } else { found.value };
        Some(Measurement { undecided, ..Measurement::with(case, unit, Median { value, ..found }, labels) })
    }

    /// Half the width of the interval.
    pub(crate) fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The cells for the median and the interval, also of an undecided figure.
    pub(crate) fn median_and_interval(&self, written: impl Fn(f64) -> String) -> [String; 2] {
        match self.undecided {
            true => ["undecided".to_owned(), format!("half-width {}", written(self.half_width()))],
            false => [written(self.median), format!("{} – {}", written(self.low), written(self.high))],
        }
    }

    /// A measurement with a known median.
    pub(crate) fn with(case: &str, unit: &str, median: Median, labels: Vec<(&str, Value)>) -> Measurement {
        Measurement {
            case: case.to_owned(),
            unit: unit.to_owned(),
            median: median.value,
            low: median.low,
            high: median.high,
            undecided: false,
            reference: None,
            p99: None,
            maximum: None,
            of_reference: None,
            overhead: None,
            histogram: None,
            labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }

    /// The median of the processes' medians, and the distribution of all times; `None` without any.
    pub fn of_times(case: &str, processes: &[&[u64]], labels: Vec<(&str, Value)>) -> Option<Measurement> {
        let floats = |times: &[u64]| times.iter().map(|&time| time as f64).collect::<Vec<f64>>();
        let medians: Vec<f64> = processes.iter().filter_map(|times| Some(median(&floats(times))?.value)).collect();
        let all = processes.concat();
        Some(Measurement {
            p99: quantile(&floats(&all), 0.99),
            maximum: all.iter().max().map(|&time| time as f64),
            histogram: Some(Histogram::of(&all)),
            ..Measurement::of(case, "ns", &medians, labels)?
        })
    }

    fn conditions(&self) -> String {
        let written = self.labels.iter().map(|(name, value)| match value {
            Value::String(text) => format!("{name} {text}"),
            value => format!("{name} {value}"),
        });
        written.collect::<Vec<_>>().join(", ")
    }

    /// A figure with a suitable number of decimals.
    fn written(&self, figure: f64) -> String {
        let decimals = match self.unit.as_str() {
            "ratio" => 3,
            _ if figure >= 1_000.0 => 0,
            _ => 2,
        };
        format!("{figure:.decimals$}")
    }

    /// The cells of a table row without the conditions.
    fn row(&self) -> [String; 6] {
        let [median, interval] = self.median_and_interval(|figure| self.written(figure));
        let written = |figure: Option<f64>| figure.map_or("–".to_owned(), |figure| self.written(figure));
        let overhead = written(self.overhead.map(|overhead| overhead.median));
        [self.case.clone(), median, interval, written(self.reference), overhead, self.unit.clone()]
    }

    /// The distribution of the samples, if it was kept.
    fn spread(&self) -> Option<String> {
        let (p99, maximum, histogram) = (self.p99?, self.maximum?, self.histogram.as_ref()?);
        let (p99, maximum) = (span(p99 as u64), span(maximum as u64));
        let Measurement { case, .. } = self;
        Some(format!("{case} ({}): p99 {p99}, maximum {maximum}\n{}", self.conditions(), histogram.text()))
    }
}

/// What a session of turns reports besides figures.
pub(crate) struct SessionInfo {
    pub(crate) machine: Machine,
    /// The share of the measured time lost to the host and to other programs.
    pub(crate) lost: f64,
    /// Whether the benchmark was interrupted.
    pub(crate) interrupted: bool,
}

/// The outcome of a benchmark.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Benchmark")]
pub struct Report {
    /// Name of the benchmark.
    pub bench: String,
    /// Version of Bellows.
    pub version: String,
    /// The machine.
    pub machine: Machine,
    /// Number of fresh processes per figure.
    ///
    /// The number of fresh processes per figure. Below 6 no interval reaches 95 percent.
    pub processes: usize,
    /// The share of the measured time, from 0 to 1, that the host and other programs took. No figure includes it.
    /// Absent for benchmarks whose processes do not take turns (`appbench`, `apps`, `blit`, `crossing`, `neighbours`,
    /// `notify`, `reload`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<f64>,
    /// True if the benchmark was interrupted: figures are missing, or are from fewer processes. The exit code is 130.
    #[serde(skip_serializing_if = "is_false", default)]
    pub interrupted: bool,
    /// True if a guarantee was violated (`neighbours`), an app panicked or let no packet pass (`apps`), or a verdict is
    /// wrong (`prefetch`): the notes have details. The exit code is 1.
    #[serde(skip_serializing_if = "is_false", default)]
    pub failed: bool,
    /// The figures.
    pub results: Vec<Measurement>,
    /// Conclusions, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

impl Report {
    /// The report of a benchmark of this version.
    pub fn new(bench: &str, machine: Machine, processes: usize, results: Vec<Measurement>) -> Report {
        let (bench, version) = (bench.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Report {
            bench,
            version,
            machine,
            processes,
            lost: None,
            interrupted: false,
            failed: false,
            results,
            notes: Vec::new(),
        }
    }

    /// The report of a benchmark whose processes took turns.
    pub(crate) fn of_turns(bench: &str, info: SessionInfo, processes: usize, results: Vec<Measurement>) -> Report {
        let SessionInfo { machine, lost, interrupted } = info;
        Report { lost: Some(lost), interrupted, ..Report::new(bench, machine, processes, results) }
    }

    /// Whether any figure is undecided.
    pub fn is_undecided(&self) -> bool {
        self.results.iter().any(|result| result.undecided)
    }

    /// Warnings about undecided and missing figures.
    fn warnings(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let undecided: Vec<&Measurement> = self.results.iter().filter(|result| result.undecided).collect();
        if let Some(widest) = undecided.iter().max_by(|one, other| one.half_width().total_cmp(&other.half_width())) {
            let lost =
                self.lost.map_or(String::new(), |lost| format!(", {:.1} percent of the time lost", 100.0 * lost));
            notes.push(format!(
                "undecided: {} of {} figures; the machine was too disturbed (widest: {}, half-width {} {}{lost}); \
                 measure again when it is quiet, or with more --processes",
                undecided.len(),
                self.results.len(),
                widest.case,
                widest.written(widest.half_width()),
                widest.unit,
            ));
        }
        if self.interrupted {
            notes.push("interrupted: figures are missing, or have too few processes".to_owned());
        }
        notes
    }

    /// The sentences below the figures.
    pub(crate) fn sentences(&self) -> String {
        let mut lines = self.notes.clone();
        lines.extend(self.warnings());
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The same after an empty line, if there are any.
    pub(crate) fn sentences_below(&self) -> String {
        let sentences = self.sentences();
        if sentences.is_empty() { sentences } else { format!("\n{sentences}") }
    }

    /// The report as a table, with histograms and sentences below it.
    pub fn text(&self) -> String {
        let mut text = self.heading();
        text += &self.table_head();
        text += &rows(&self.results);
        text + &self.text_after_rows()
    }

    /// The report as a table of figures, their references and the ratios, with these names for both.
    pub(crate) fn text_beside(&self, figure: &str, reference: &str) -> String {
        let (interval, times) = (self.interval(), format!("× {reference}"));
        let mut text = self.heading();
        let _ = writeln!(text, "{:14}  {figure:>9}  {interval:>19}  {:13}{reference:>9}{times:>29}", "case", "unit");
        for result in &self.results {
            let Measurement { case, unit, median, low, high, reference, of_reference, .. } = result;
            let (range, reference) = (format!("{low:.1} – {high:.1}"), reference.unwrap_or(f64::NAN));
            let ratio = of_reference.map_or("–".to_owned(), |ratio| ratio.written());
            let _ = writeln!(text, "{case:14}  {median:>9.1}  {range:>19}  {unit:13}{reference:>9.1}{ratio:>29}");
        }
        text + &self.sentences_below()
    }

    /// The text below the rows of the table: histograms and sentences.
    pub fn text_after_rows(&self) -> String {
        let mut text = String::new();
        for spread in self.results.iter().filter_map(Measurement::spread) {
            let _ = write!(text, "\n{spread}");
        }
        text + &self.sentences_below()
    }

    /// The head of the table.
    pub(crate) fn table_head(&self) -> String {
        row(["case", "median", self.interval(), "reference", "overhead", "unit"], "conditions")
    }

    /// The heading: a line with the benchmark and the machine, and an empty line.
    pub(crate) fn heading(&self) -> String {
        let Machine { cpu, tsc_hz, memory, simd, stride } = &self.machine;
        format!(
            "bench {} · bellows {} · {cpu}, TSC {:.2} GHz · packets on {memory} pages, {stride} bytes apart · {simd} · \
             {} processes per figure\n\n",
            self.bench,
            self.version,
            *tsc_hz as f64 / 1e9,
            self.processes
        )
    }

    /// The name of the range from `low` to `high`.
    pub(crate) fn interval(&self) -> &'static str {
        interval(self.processes)
    }
}

/// The name of the range from `low` to `high`, with `processes` processes.
pub(crate) fn interval(processes: usize) -> &'static str {
    if processes < ENOUGH { "min – max" } else { "95% interval" }
}

/// A table whose rows are shown as they are finished.
#[derive(Debug, Default)]
pub(crate) struct ReportTable {
    has_head: bool,
}

impl ReportTable {
    /// The text of finished rows, with the heading before the first ones.
    pub(crate) fn part(&mut self, bench: &str, machine: Machine, processes: usize, results: &[Measurement]) -> String {
        let mut text = String::new();
        if !std::mem::replace(&mut self.has_head, true) {
            let report = Report::new(bench, machine, processes, Vec::new());
            text = report.heading() + &report.table_head();
        }
        text + &rows(results)
    }
}

/// The rows of a table. Column widths are fixed, because rows appear as they are finished.
pub(crate) fn rows(results: &[Measurement]) -> String {
    let line = |result: &Measurement| row(result.row().each_ref().map(String::as_str), &result.conditions());
    results.iter().map(line).collect()
}

fn row([case, median, interval, reference, overhead, unit]: [&str; 6], conditions: &str) -> String {
    format!("{case:16}  {median:>9}  {interval:>19}  {reference:>9}  {overhead:>8}  {unit:13}  {conditions}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            bench: "engine".into(),
            version: "0.0.0".into(),
            machine: Machine {
                cpu: "a processor".into(),
                tsc_hz: 2_600_000_000,
                memory: "thp".into(),
                simd: "avx2".into(),
                stride: 2240,
            },
            processes: 15,
            lost: None,
            interrupted: false,
            failed: false,
            results: vec![Measurement {
                case: "source-sink".into(),
                unit: "clocks/packet".into(),
                median: 2.4,
                low: 2.3,
                high: 2.6,
                undecided: false,
                reference: Some(1.9),
                p99: None,
                maximum: None,
                of_reference: None,
                overhead: Some(Overhead { median: 0.5, low: 0.4, high: 0.6 }),
                histogram: None,
                labels: [("burst".to_owned(), 128.into()), ("schedule".to_owned(), "flat".into())].into(),
            }],
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_report_survives_json() {
        let json = serde_json::to_string(&report()).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report());
    }

    #[test]
    fn the_table_shows_every_figure_with_its_conditions() {
        let text = report().text();
        let row = text.lines().find(|line| line.starts_with("source-sink")).unwrap();
        for part in ["2.40", "2.30 – 2.60", "1.90", "0.50", "clocks/packet", "burst 128, schedule flat"] {
            assert!(row.contains(part), "{part} is not in {row}");
        }
    }

    #[test]
    fn undecided_figures_are_not_printed() {
        let ratios = |spread: f64| -> Vec<f64> { (0..15).map(|at| 1.0 + spread * (f64::from(at) - 7.0)).collect() };
        let narrow = Measurement::compared("idle-first", "ratio", &ratios(0.001), Vec::new()).unwrap();
        assert_eq!((narrow.undecided, narrow.median), (false, 1.0));
        let wide = Measurement::compared("idle-first", "ratio", &ratios(0.02), Vec::new()).unwrap();
        assert!(wide.undecided && wide.median.is_nan() && wide.low < 0.95 && wide.high > 1.05, "{wide:?}");
        let report = Report { results: vec![narrow, wide], lost: Some(0.125), ..report() };
        assert!(report.is_undecided());
        let json = serde_json::json!(report);
        assert_eq!((&json["results"][1]["median"], &json["results"][1]["undecided"]), (&Value::Null, &true.into()));
        assert!(json["results"][0].get("undecided").is_none());
        let back: Report = serde_json::from_value(json).unwrap();
        assert!(back.results[1].median.is_nan() && back.results[1].undecided);
        let text = report.text();
        let row = text.lines().filter(|line| line.starts_with("idle-first")).nth(1).unwrap();
        assert!(row.contains("undecided") && row.contains("half-width 0.080") && !row.contains("1.0"), "{row}");
        assert!(
            text.contains(
                "undecided: 1 of 2 figures; the machine was too disturbed (widest: idle-first, half-width 0.080"
            ),
            "{text}"
        );
        assert!(text.contains("12.5 percent of the time lost"), "{text}");

        // Too few processes have no interval.
        let few = Measurement::compared("idle-first", "ratio", &[0.5, 2.0], Vec::new()).unwrap();
        assert!(!few.undecided);
        let other = |values: &[f64]| Measurement::compared("idle", "ns/breath", values, Vec::new()).unwrap().undecided;
        assert!(other(&[100.0, 140.0, 100.0, 90.0, 100.0, 150.0]));
        assert!(!other(&[100.0, 110.0, 100.0, 95.0, 100.0, 105.0]));
        assert!(!other(&[0.7, 0.9, 0.7, 0.5, 0.7, 0.8]), "what costs next to nothing");
    }

    #[test]
    fn an_interrupted_report_says_so() {
        let report = Report { interrupted: true, ..report() };
        assert_eq!(serde_json::json!(report)["interrupted"], true);
        assert!(report.text().contains("\ninterrupted: figures are missing"), "{}", report.text());
    }

    #[test]
    fn the_median_is_over_processes_and_the_distribution_over_all_times() {
        let (one, other) = ([1_000, 3_000, 2_000], [4_000; 7]);
        let swap = Measurement::of_times("swap", &[&one, &other], vec![("apps", 200.into())]).unwrap();
        assert_eq!((swap.median, swap.low, swap.high), (3_000.0, 2_000.0, 4_000.0), "of the medians 2,000 and 4,000");
        assert_eq!((swap.p99, swap.maximum), (Some(4_000.0), Some(4_000.0)));
        let histogram = swap.histogram.clone().unwrap();
        assert_eq!(histogram.0.iter().map(|&(_, count)| count).sum::<u64>(), 10);

        let notes = vec!["all is well".to_owned()];
        let report = Report { results: vec![swap], notes, ..report() };
        let text = report.text();
        assert!(text.contains("swap (apps 200): p99 4 µs, maximum 4 µs\n  ≤    1 µs  █"), "{text}");
        assert!(text.ends_with("\n\nall is well\n"), "{text}");
        assert_eq!(serde_json::from_value::<Report>(serde_json::json!(report)).unwrap(), report);
    }
}
