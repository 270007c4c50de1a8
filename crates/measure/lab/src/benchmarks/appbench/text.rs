//! The text report.

use std::fmt::Write;

use bellows_stats::Median;
use serde_json::{Value, json};

use super::figures::{EventRow, Recorded, Summary};
use super::wiring::Wiring;
use super::{AppbenchOptions, AppbenchPlan, Subject};
use crate::report::Report;

/// A description of the measurement.
#[derive(Clone, Debug)]
pub(super) struct Title {
    /// The path of packets in the baseline, if there is one, and in the network with the app.
    baseline: Option<String>,
    with_app: String,
    /// The labels that all figures have.
    labels: Vec<(&'static str, Value)>,
}

impl Title {
    pub(super) fn of(options: &AppbenchOptions, plan: &AppbenchPlan<'_>) -> Title {
        let usual = [("schedule", json!(plan.settings.schedule)), ("burst", plan.settings.burst.into())];
        match &options.subject {
            Subject::Row(row) => {
                let way = |apps: &str, wiring: &Wiring| {
                    let source = wiring.own_source.is_none().then_some("source");
                    let sink = wiring.own_sink.is_none().then_some("sink");
                    let apps = Some(apps).filter(|apps| !apps.is_empty());
                    [source, apps, sink].into_iter().flatten().collect::<Vec<_>>().join(" -> ")
                };
                let against = Some(("against", json!(row.against))).filter(|_| !row.against.is_empty());
                Title {
                    baseline: Some(way(&row.against, &plan.against)),
                    with_app: way(&row.apps, &plan.wiring),
                    labels: [("app", json!(row.apps))].into_iter().chain(against).chain(usual).collect(),
                }
            }
            Subject::InPlace(place) => {
                let file = place.file.display();
                Title {
                    baseline: plan.has_baseline.then(|| format!("{file} without {}", place.app)),
                    with_app: file.to_string(),
                    labels: [("app", json!(place.app)), ("network", json!(place.file))]
                        .into_iter()
                        .chain(usual)
                        .collect(),
                }
            }
        }
    }

    /// The labels that all figures have.
    pub(super) fn labels(&self) -> Vec<(&'static str, Value)> {
        self.labels.clone()
    }
}

pub(super) fn render(report: &Report, summaries: &[Summary], title: &Title) -> String {
    let mut text = report.heading();
    let interval = report.interval();
    match summaries {
        [summary] => {
            full(&mut text, title, summary, interval);
            accounting(&mut text, summary, interval);
        }
        summaries => sweep(&mut text, title, summaries, interval),
    }
    if let Some(summary) = summaries.first() {
        let _ = writeln!(text, "{}", packet_fates(summary));
    }
    for note in &report.notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// The tables, in the format of the original document.
fn full(text: &mut String, title: &Title, summary: &Summary, interval: &str) {
    type Of = fn(&EventRow) -> Option<Median>;
    let runs: [(String, Of); 3] = [
        (title.baseline.as_ref().map_or(String::new(), |way| format!("baseline ({way}):")), |line| line.baseline),
        (format!("with the app ({}):", title.with_app), |line| Some(line.with_app)),
        ("difference:".to_owned(), |line| line.difference),
    ];
    for (heading, of) in runs {
        let rows: Vec<(&str, Median)> =
            summary.lines.iter().filter_map(|line| Some((line.event.as_str(), of(line)?))).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{heading}");
        // The counts of a single process have no spread.
        let heading = if summary.processes > 1 { format!("   {interval}") } else { String::new() };
        let _ = writeln!(text, "{:<32}{:>23} {:>11}{heading}", "EVENT", "TOTAL", "/packet");
        for (event, found) in rows {
            let total = grouped((found.value * summary.packets as f64).round());
            let bounds = if summary.processes > 1 { format!("   {}", span(&found, 3)) } else { String::new() };
            let _ = writeln!(text, "{event:<32}{total:>23} {:>11.3}{bounds}", found.value);
        }
        let _ = writeln!(text, "{:<32}{:>23} {:>11.3}\n", "packet", grouped(summary.packets as f64), 1.0);
    }
}

/// The table of the live accounting.
fn accounting(text: &mut String, summary: &Summary, interval: &str) {
    let Some(accounted) = summary.accounted else { return };
    let interval = if summary.processes > 1 { interval } else { "" };
    let figure = |found: Option<Median>| found.map_or("–".to_owned(), |found| format!("{:.3}", found.value));
    let _ = writeln!(text, "live accounting, clocks per incoming packet:");
    let _ = writeln!(text, "{:<32}{:>11} {:>11} {:>13}", "APP", "baseline", "with app", "packets/call");
    for Recorded { app, baseline, with_app, vector } in &summary.recorded {
        let vector = vector.map_or("–".to_owned(), |vector| format!("{:.1}", vector.value));
        let _ = writeln!(text, "{app:<32}{:>11} {:>11} {vector:>13}", figure(*baseline), figure(*with_app));
    }
    let _ = writeln!(text, "\n{:<32}{:>11}   {interval}", "the app's clocks per packet", "");
    let difference = summary.clocks().and_then(|line| line.difference);
    for (name, found) in [
        ("by the difference", difference),
        ("by the live accounting", Some(accounted)),
        ("gap between the two", summary.gap),
    ] {
        if let Some(found) = found {
            let bounds = if summary.processes > 1 { format!("   {}", span(&found, 3)) } else { String::new() };
            let _ = writeln!(text, "  {name:<30}{:>11.3}{bounds}", found.value);
        }
    }
    text.push('\n');
}

/// A line for each set of conditions.
fn sweep(text: &mut String, title: &Title, summaries: &[Summary], interval: &str) {
    let against = title.baseline.as_ref().map_or(String::new(), |way| format!(" against {way}"));
    let _ = writeln!(text, "{}{against}, clocks per packet:\n", title.with_app);
    let wide = summaries.iter().map(|summary| summary.conditions().len()).max().unwrap_or(0).max("conditions".len());
    let heads = ["baseline", "with app", "difference", "accounted", "packets/call"];
    let _ = write!(text, "{:<wide$}", "conditions");
    for (index, head) in heads.iter().enumerate() {
        let _ = write!(text, " {head:>11}");
        if index == 2 {
            let _ = write!(text, "   {interval:<17}");
        }
    }
    text.push('\n');
    let figure = |found: Option<Median>| found.map_or("–".to_owned(), |found| format!("{:.2}", found.value));
    for summary in summaries {
        let line = summary.clocks();
        let difference = line.and_then(|line| line.difference);
        let bounds = difference.map_or("–".to_owned(), |found| span(&found, 2));
        let vector = summary.recorded.iter().find(|app| summary.measured.contains(&app.app)).and_then(|app| app.vector);
        let _ = writeln!(
            text,
            "{:<wide$} {:>11} {:>11} {:>11}   {bounds:<17} {:>11} {:>12}",
            summary.conditions(),
            figure(line.and_then(|line| line.baseline)),
            figure(line.map(|line| line.with_app)),
            figure(difference),
            figure(summary.accounted),
            vector.map_or("–".to_owned(), |vector| format!("{:.1}", vector.value)),
        );
    }
    text.push('\n');
}

/// A sentence about where the packets went.
pub(crate) fn packet_fates(summary: &Summary) -> String {
    let dropped: Vec<String> =
        summary.drops.iter().map(|(reason, part)| format!("{} % were dropped as {reason}", percent(*part))).collect();
    let mut sentence = format!("of 100 incoming packets, {} left", percent(summary.left));
    for part in dropped {
        sentence.push_str("; ");
        sentence.push_str(&part);
    }
    sentence
}

fn percent(part: f64) -> String {
    let text = format!("{part:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// An interval.
fn span(found: &Median, decimals: usize) -> String {
    format!("{:.decimals$} – {:.decimals$}", found.low, found.high)
}

/// A whole number with commas between the thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 && digits != "0" { format!("-{text}") } else { text }
}
