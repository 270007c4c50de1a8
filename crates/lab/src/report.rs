//! Results as data: one shape for every benchmark.

use std::collections::BTreeMap;
use std::fmt::Write;

use bellows_packet::{Packet, pool};
use bellows_sys::{clock, cpu};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// Under which conditions.
    pub labels: BTreeMap<String, Value>,
}

/// The fewest samples whose extremes hold the true median with a probability of 95 percent.
const ENOUGH: usize = 6;

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
}

impl Report {
    /// The report as a table.
    pub fn text(&self) -> String {
        let mut text = self.heading();
        let case_width = self.results.iter().map(|result| result.case.len()).max().unwrap_or(0).max(4);
        let interval = self.interval();
        let _ = writeln!(
            text,
            "{:case_width$}  {:>8}  {interval:>17}  {:>9}  {:13}  conditions",
            "case", "median", "reference", "unit"
        );
        for result in &self.results {
            let reference = result.reference.map_or("–".to_owned(), |reference| format!("{reference:.2}"));
            let labels: Vec<String> = result
                .labels
                .iter()
                .map(|(name, value)| match value {
                    Value::String(text) => format!("{name} {text}"),
                    value => format!("{name} {value}"),
                })
                .collect();
            let interval = format!("{:.2} – {:.2}", result.low, result.high);
            let _ = writeln!(
                text,
                "{:case_width$}  {:>8.2}  {interval:>17}  {reference:>9}  {:13}  {}",
                result.case,
                result.median,
                result.unit,
                labels.join(", ")
            );
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
                labels: [("burst".to_owned(), 128.into()), ("schedule".to_owned(), "flat".into())].into(),
            }],
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
}
