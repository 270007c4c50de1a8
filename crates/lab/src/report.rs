//! Results as data: one shape for every benchmark.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use bellows_config::Diagnostics;
use bellows_stats::{ENOUGH, Median, is_ratio_undecided, median, quantile};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::beside::BesideError;
use crate::histogram::{Histogram, span};
use crate::machine::Machine;
use crate::residence::MeasureError;
use crate::workers::ProcessError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A measuring process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The capture to read could not be made.
    #[error("cannot write a capture to read: {0}; set TMPDIR to a folder with 50 MB free")]
    Capture(bellows_capture::Error),
    /// There was no folder for sockets.
    #[error("cannot make {0} for sockets: {1}; set TMPDIR to a folder in which files can be made")]
    Folder(PathBuf, std::io::Error),
    /// There was no memory to find the levels of the hierarchy in.
    #[error(transparent)]
    Levels(MeasureError),
    /// No case has such a name.
    #[error("no case has `{0}` in its name; there are {1}")]
    NoCase(String, String),
    /// Nothing can run beside the measurement.
    #[error(transparent)]
    Beside(#[from] BesideError),
    /// What is asked for excludes every ring.
    #[error("none of these chains fits into a ring with these options")]
    NoRing,
    /// The network or the apps to measure cannot be read.
    #[error("{}", .0.render(false))]
    Diagnosed(Diagnostics),
    /// What is asked for cannot be measured.
    #[error("{0}")]
    Refused(String),
    /// Something failed that should not have.
    #[error("{0}")]
    Failed(String),
}

impl BenchError {
    /// Whether whoever asked made a mistake; everything else should not have happened.
    pub fn is_mistake(&self) -> bool {
        match self {
            BenchError::Process(error) => error.is_mistake(),
            BenchError::Failed(_) => false,
            _ => true,
        }
    }

    /// Whether it was interrupted before there was anything to report.
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median over all processes; not a number if it is undecided.
    #[serde(deserialize_with = "number_or_null")]
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
}

impl Ratio {
    /// The median of what each match of processes found; `None` without any.
    pub fn of(values: &[f64]) -> Option<Ratio> {
        let found = median(values)?;
        let median = if is_ratio_undecided(values.len(), &found) { f64::NAN } else { found.value };
        Some(Ratio { median, low: found.low, high: found.high })
    }

    /// It and its interval, in words.
    pub(crate) fn written(&self) -> String {
        let Ratio { median, low, high } = self;
        match median.is_nan() {
            true => format!("undecided (half-width {:.3})", (high - low) / 2.0),
            false => format!("{median:.3} ({low:.3} – {high:.3})"),
        }
    }
}

/// What the engine adds to a bare loop: the figure less that of the loop, of neighbouring turns, with its 95 percent
/// confidence interval, in the figure's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// The median over all processes.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
}

impl Overhead {
    /// The median of what each match of processes found; `None` without any.
    pub(crate) fn of(values: &[f64]) -> Option<Overhead> {
        let Median { value, low, high } = median(values)?;
        Some(Overhead { median: value, low, high })
    }
}

/// JSON has no number that is none: it is written as null.
fn number_or_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference over")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The half-width of an interval beyond which a figure that is no ratio tells nothing, as a share of their median; and how wide an interval may always be, in units. What costs next to
/// nothing has a wide interval in these terms and is known well enough.
const WIDEST: f64 = 0.1;
const ALWAYS_FINE: f64 = 0.5;

/// Whether an interval is too wide for a figure. With too few processes there is none.
fn is_too_wide(unit: &str, processes: usize, found: &Median) -> bool {
    match unit {
        "ratio" => is_ratio_undecided(processes, found),
        _ => processes >= ENOUGH && found.half_width() > (WIDEST * found.value).max(ALWAYS_FINE),
    }
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What was measured.
    pub case: String,
    /// In what: `clocks/packet` (of the time-stamp counter), `ns/breath`, `Mpps`, `Gb/s`, `ns`, `ratio`.
    pub unit: String,
    /// The median over all processes; not a number if it is undecided.
    #[serde(deserialize_with = "number_or_null")]
    pub median: f64,
    /// Lower end of the median's 95 percent confidence interval; the least of fewer than six processes.
    pub low: f64,
    /// Upper end of it; the most of fewer than six processes.
    pub high: f64,
    /// Whether the machine was too disturbed to tell the median: the interval is too wide.
    #[serde(skip_serializing_if = "is_false", default)]
    pub undecided: bool,
    /// The same work without Bellows, measured in the same processes, where that makes sense.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<f64>,
    /// What 99 of 100 samples do not exceed, over all processes, where single samples matter.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<f64>,
    /// The greatest sample of all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub maximum: Option<f64>,
    /// The figure over its reference, turn by turn.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of_reference: Option<Ratio>,
    /// The figure less its reference, turn by turn, where that is a bare loop.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub overhead: Option<Overhead>,
    /// How all samples are spread.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub histogram: Option<Histogram>,
    /// Under which conditions.
    pub labels: BTreeMap<String, Value>,
}

impl Measurement {
    /// The median of what each process measured; `None` without any.
    pub fn of(case: &str, unit: &str, values: &[f64], labels: Vec<(&str, Value)>) -> Option<Measurement> {
        Some(Measurement::with(case, unit, median(values)?, labels))
    }

    /// The median of what each match of processes found; undecided if its interval is too wide. `None` without any.
    pub(crate) fn compared(case: &str, unit: &str, values: &[f64], labels: Vec<(&str, Value)>) -> Option<Measurement> {
        let found = median(values)?;
        let undecided = is_too_wide(unit, values.len(), &found);
        let value = if undecided { f64::NAN } else { found.value };
        Some(Measurement { undecided, ..Measurement::with(case, unit, Median { value, ..found }, labels) })
    }

    /// Half of the interval's width.
    pub(crate) fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// What is in the place of a figure that is undecided, and its interval.
    pub(crate) fn median_and_interval(&self, written: impl Fn(f64) -> String) -> [String; 2] {
        match self.undecided {
            true => ["undecided".to_owned(), format!("half-width {}", written(self.half_width()))],
            false => [written(self.median), format!("{} – {}", written(self.low), written(self.high))],
        }
    }

    /// A median that is known.
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

    /// The median of each process's median, and how the times of all processes are spread; `None` without any.
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

    /// A figure with as many decimals as tell something.
    fn written(&self, figure: f64) -> String {
        let decimals = match self.unit.as_str() {
            "ratio" => 3,
            _ if figure >= 1_000.0 => 0,
            _ => 2,
        };
        format!("{figure:.decimals$}")
    }

    /// The cells of a table, but for the conditions.
    fn row(&self) -> [String; 6] {
        let [median, interval] = self.median_and_interval(|figure| self.written(figure));
        let written = |figure: Option<f64>| figure.map_or("–".to_owned(), |figure| self.written(figure));
        let overhead = written(self.overhead.map(|overhead| overhead.median));
        [self.case.clone(), median, interval, written(self.reference), overhead, self.unit.clone()]
    }

    /// How the samples are spread, where that was kept.
    fn spread(&self) -> Option<String> {
        let (p99, maximum, histogram) = (self.p99?, self.maximum?, self.histogram.as_ref()?);
        let (p99, maximum) = (span(p99 as u64), span(maximum as u64));
        let Measurement { case, .. } = self;
        Some(format!("{case} ({}): p99 {p99}, most {maximum}\n{}", self.conditions(), histogram.text()))
    }
}

/// What a benchmark whose processes took turns found out beside figures.
pub(crate) struct Circumstances {
    pub(crate) machine: Machine,
    /// The share of the measured time that others had.
    pub(crate) lost: f64,
    /// Whether it ended before all was measured.
    pub(crate) interrupted: bool,
}

/// The outcome of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Which benchmark.
    pub bench: String,
    /// Version of Bellows.
    pub version: String,
    /// On what.
    pub machine: Machine,
    /// In how many fresh processes each figure was measured. Below 6 no interval reaches 95 percent.
    pub processes: usize,
    /// Which share of the time that was measured others had: the host, and programs on the same processor. It is in no figure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<f64>,
    /// Whether the benchmark was interrupted, so that figures and processes are missing.
    #[serde(skip_serializing_if = "is_false", default)]
    pub interrupted: bool,
    /// Whether something that is promised does not hold: the notes tell what.
    #[serde(skip_serializing_if = "is_false", default)]
    pub failed: bool,
    /// The figures.
    pub results: Vec<Measurement>,
    /// What the figures say, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

impl Report {
    /// That of a benchmark of this version.
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

    /// That of a benchmark whose processes took turns.
    pub(crate) fn of_turns(
        bench: &str,
        circumstances: Circumstances,
        processes: usize,
        results: Vec<Measurement>,
    ) -> Report {
        let Circumstances { machine, lost, interrupted } = circumstances;
        Report { lost: Some(lost), interrupted, ..Report::new(bench, machine, processes, results) }
    }

    /// Whether the machine was too disturbed for some figure.
    pub fn is_undecided(&self) -> bool {
        self.results.iter().any(|result| result.undecided)
    }

    /// What a reader must know of the circumstances, in sentences.
    fn circumstances(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let undecided: Vec<&Measurement> = self.results.iter().filter(|result| result.undecided).collect();
        if let Some(widest) = undecided.iter().max_by(|one, other| one.half_width().total_cmp(&other.half_width())) {
            let lost =
                self.lost.map_or(String::new(), |lost| format!(", others had {:.1} percent of the time", 100.0 * lost));
            notes.push(format!(
                "undecided: {} of {} figures; the machine was too disturbed (widest: {}, half-width {} {}{lost}); \
                 measure again when it is quiet, or in more --processes",
                undecided.len(),
                self.results.len(),
                widest.case,
                widest.written(widest.half_width()),
                widest.unit,
            ));
        }
        if self.interrupted {
            notes.push("interrupted: figures are missing, or are of fewer processes than they should be".to_owned());
        }
        notes
    }

    /// The sentences below the figures.
    pub(crate) fn sentences(&self) -> String {
        let mut lines = self.notes.clone();
        lines.extend(self.circumstances());
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The report as a table, with histograms and sentences below it.
    pub fn text(&self) -> String {
        let mut text = self.heading();
        text += &self.table_head();
        text += &rows(&self.results);
        text + &self.text_after_rows()
    }

    /// What stands below the rows of the table: histograms and sentences.
    pub fn text_after_rows(&self) -> String {
        let mut text = String::new();
        for spread in self.results.iter().filter_map(Measurement::spread) {
            let _ = write!(text, "\n{spread}");
        }
        let sentences = self.sentences();
        if !sentences.is_empty() {
            let _ = write!(text, "\n{sentences}");
        }
        text
    }

    /// What stands above the rows of the table.
    pub(crate) fn table_head(&self) -> String {
        row(["case", "median", self.interval(), "reference", "overhead", "unit"], "conditions")
    }

    /// What was measured and on what: a line, and an empty one.
    pub(crate) fn heading(&self) -> String {
        let Machine { cpu, tsc_hz, memory, simd, stride } = &self.machine;
        format!(
            "bench {} · bellows {} · {cpu}, TSC {:.2} GHz · packets on {memory} pages, {stride} bytes apart · {simd} · \
             {} processes a figure\n\n",
            self.bench,
            self.version,
            *tsc_hz as f64 / 1e9,
            self.processes
        )
    }

    /// What `low` and `high` bound.
    pub(crate) fn interval(&self) -> &'static str {
        interval(self.processes)
    }
}

/// What `low` and `high` bound if there were so many processes.
pub(crate) fn interval(processes: usize) -> &'static str {
    if processes < ENOUGH { "least – most" } else { "95% interval" }
}

/// A table whose rows are shown as they are finished.
#[derive(Debug, Default)]
pub(crate) struct Table {
    has_head: bool,
}

impl Table {
    /// Rows that are finished; before the first ones, what stands above them.
    pub(crate) fn part(&mut self, bench: &str, machine: Machine, processes: usize, results: &[Measurement]) -> String {
        let mut text = String::new();
        if !std::mem::replace(&mut self.has_head, true) {
            let report = Report::new(bench, machine, processes, Vec::new());
            text = report.heading() + &report.table_head();
        }
        text + &rows(results)
    }
}

/// The rows of a table. Their columns are as wide as any benchmark needs them, because rows appear as they are finished.
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
    fn what_the_machine_did_not_let_be_measured_is_not_printed_as_a_figure() {
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
        assert!(text.contains("others had 12.5 percent of the time"), "{text}");

        // Too few processes have no interval that could be too wide.
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
    fn times_are_summed_up_for_each_process_and_spread_out_for_all() {
        let (one, other) = ([1_000, 3_000, 2_000], [4_000; 7]);
        let swap = Measurement::of_times("swap", &[&one, &other], vec![("apps", 200.into())]).unwrap();
        assert_eq!((swap.median, swap.low, swap.high), (3_000.0, 2_000.0, 4_000.0), "of the medians 2,000 and 4,000");
        assert_eq!((swap.p99, swap.maximum), (Some(4_000.0), Some(4_000.0)));
        let histogram = swap.histogram.clone().unwrap();
        assert_eq!(histogram.0.iter().map(|&(_, count)| count).sum::<u64>(), 10);

        let notes = vec!["all is well".to_owned()];
        let report = Report { results: vec![swap], notes, ..report() };
        let text = report.text();
        assert!(text.contains("swap (apps 200): p99 4 µs, most 4 µs\n  ≤    1 µs  █"), "{text}");
        assert!(text.ends_with("\n\nall is well\n"), "{text}");
        assert_eq!(serde_json::from_value::<Report>(serde_json::json!(report)).unwrap(), report);
    }
}
