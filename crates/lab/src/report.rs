//! Results as data: one shape for every benchmark.

use std::collections::BTreeMap;
use std::fmt::Write;

use bellows_packet::{Packet, pool};
use bellows_sys::{clock, cpu};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::histogram::{Histogram, span};
use crate::processes::ProcessError;
use crate::residence::MeasureError;
use crate::stats::{Median, median, quantile};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A measuring process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The capture to read could not be made.
    #[error("cannot write a capture to read: {0}; set TMPDIR to a folder with 50 MB free")]
    Capture(bellows_capture::Error),
    /// There was no memory to find the levels of the hierarchy in.
    #[error(transparent)]
    Levels(MeasureError),
    /// No case has such a name.
    #[error("no case has `{0}` in its name; there are {1}")]
    NoCase(String, String),
    /// What is asked for excludes every ring.
    #[error("none of these chains fits into a ring with these options")]
    NoRing,
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

/// On what the measurement was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Frequency of the time-stamp counter, in which clocks are counted.
    pub tsc_hz: u64,
    /// Pages under the packet pool: `hugetlb`, `thp` (2 MiB both) or `4k`.
    pub memory: String,
    /// Instruction set that the vector loops use.
    pub simd: String,
    /// Distance between packet buffers in bytes.
    pub stride: usize,
}

impl Machine {
    /// This one, as it is in this process. Takes a packet, so that there is memory to look at.
    pub fn here() -> Machine {
        let packet = Packet::from_bytes(&[0]);
        let memory = pool::pages().to_string();
        drop(packet);
        Machine {
            cpu: cpu::model(),
            tsc_hz: clock::ticks_per_second(),
            memory,
            simd: bellows_packet::instruction_set().to_owned(),
            stride: pool::config().stride,
        }
    }
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What was measured.
    pub case: String,
    /// In what: `clocks/packet` (of the time-stamp counter), `ns/breath`, `Mpps`, `Gb/s`, `ns`, `ratio`.
    pub unit: String,
    /// The median over all processes.
    pub median: f64,
    /// Lower end of the median's 95 percent confidence interval; the least of fewer than six processes.
    pub low: f64,
    /// Upper end of it; the most of fewer than six processes.
    pub high: f64,
    /// The same work without Bellows, measured in the same processes, where that makes sense.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<f64>,
    /// What 99 of 100 samples do not exceed, over all processes, where single samples matter.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<f64>,
    /// The greatest sample of all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub maximum: Option<f64>,
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

    /// A median that is known.
    pub(crate) fn with(case: &str, unit: &str, median: Median, labels: Vec<(&str, Value)>) -> Measurement {
        Measurement {
            case: case.to_owned(),
            unit: unit.to_owned(),
            median: median.value,
            low: median.low,
            high: median.high,
            reference: None,
            p99: None,
            maximum: None,
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
    fn row(&self) -> [String; 5] {
        let interval = format!("{} – {}", self.written(self.low), self.written(self.high));
        let reference = self.reference.map_or("–".to_owned(), |reference| self.written(reference));
        [self.case.clone(), self.written(self.median), interval, reference, self.unit.clone()]
    }

    /// How the samples are spread, where that was kept.
    fn spread(&self) -> Option<String> {
        let (p99, maximum, histogram) = (self.p99?, self.maximum?, self.histogram.as_ref()?);
        let (p99, maximum) = (span(p99 as u64), span(maximum as u64));
        let Measurement { case, .. } = self;
        Some(format!("{case} ({}): p99 {p99}, most {maximum}\n{}", self.conditions(), histogram.text()))
    }
}

/// The fewest samples whose extremes hold the true median with a probability of 95 percent.
pub(crate) const ENOUGH: usize = 6;

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
        Report { bench, version, machine, processes, results, notes: Vec::new() }
    }

    /// The report as a table, with histograms and sentences below it.
    pub fn text(&self) -> String {
        let mut text = self.heading();
        let interval = self.interval();
        let heads = ["case", "median", interval, "reference", "unit"];
        let rows: Vec<[String; 5]> = self.results.iter().map(Measurement::row).collect();
        let width = |column: usize, least: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([heads[column].chars().count(), least]).max().unwrap_or(least)
        };
        let widths = [width(0, 4), width(1, 8), width(2, 17), width(3, 9), width(4, 13)];
        let mut line = |[case, median, interval, reference, unit]: [&str; 5], conditions: &str| {
            let [w0, w1, w2, w3, w4] = widths;
            let _ = writeln!(
                text,
                "{case:w0$}  {median:>w1$}  {interval:>w2$}  {reference:>w3$}  {unit:w4$}  {conditions}"
            );
        };
        line(heads, "conditions");
        for (row, result) in rows.iter().zip(&self.results) {
            line(row.each_ref().map(String::as_str), &result.conditions());
        }
        for spread in self.results.iter().filter_map(Measurement::spread) {
            let _ = write!(text, "\n{spread}");
        }
        if !self.notes.is_empty() {
            let _ = writeln!(text, "\n{}", self.notes.join("\n"));
        }
        text
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
        if self.processes < ENOUGH { "least – most" } else { "95% interval" }
    }
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
            results: vec![Measurement {
                case: "source-sink".into(),
                unit: "clocks/packet".into(),
                median: 2.4,
                low: 2.3,
                high: 2.6,
                reference: Some(1.9),
                p99: None,
                maximum: None,
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
        for part in ["2.40", "2.30 – 2.60", "1.90", "clocks/packet", "burst 128, schedule flat"] {
            assert!(row.contains(part), "{part} is not in {row}");
        }
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
