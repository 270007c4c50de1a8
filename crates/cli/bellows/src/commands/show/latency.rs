//! `bellows show latency`: the duration of breaths, and the latency of packets from source to end.

use std::process::ExitCode;
use std::time::Duration;

use bellows_inspect::baseline::Since;
use bellows_inspect::histogram::Histogram;
use bellows_inspect::networks::{self, Change, Sample};
use bellows_inspect::reports::{Latency, Subject};
use bellows_inspect::times::{self, PERCENTILES, TIMES};
use bellows_observe::RuntimeDir;
use serde_json::json;

use crate::command_error::CommandError;
use crate::terminal;
use crate::text::{Align, Table, UNKNOWN, count, nanos, span};

pub fn execute(runtime_dir: RuntimeDir, json: bool) -> Result<ExitCode, CommandError> {
    let name = runtime_dir.name();
    let subject = Subject::of(&runtime_dir);
    let mut observer = networks::open(runtime_dir)?;
    let now = Sample::settled(&mut observer);
    let since = Since::read(observer.runtime_dir(), &now);
    let cleared = since.is_clear();
    let change = Change::between(since.sample().clone(), now);
    let text = if json {
        format!("{:#}\n", json!(Latency::of(&subject, cleared, &change)))
    } else {
        let since = if cleared { "since `bellows clear`" } else { "since the run began" };
        let head = format!("{name}: {} {since}\n\n", span(Duration::from_secs_f64(change.seconds())));
        head + &render(&change, terminal::stdout_is_rich())
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn render(change: &Change, rich: bool) -> String {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("SAMPLES", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("P99.9", Align::Right),
        ("MAXIMUM", Align::Right),
    ]);
    let time = |time: Option<u64>| time.map_or_else(|| UNKNOWN.to_owned(), nanos);
    let mut bars = String::new();
    for (name, what) in TIMES {
        let histogram = change.histogram(name);
        let [p50, p99, p99_9] = PERCENTILES.map(|(_, part)| time(histogram.quantile(part)));
        table.row([name.to_owned(), count(histogram.count()), p50, p99, p99_9, time(times::longest(&histogram))]);
        if histogram.count() > 0 {
            bars += &format!("\n{name}: {what}\n{}", Histogram::from(&histogram).text());
        }
    }
    let notes = "Sampled at random from all packets and breaths; percentiles are accurate to 6 percent.";
    format!("{}{bars}\n{notes}\n", table.render(rich))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_observe::Snapshot;

    #[test]
    fn times_are_those_since_the_baseline() {
        let sample = |classes: &[(u64, u64)]| {
            let histogram = bellows_observe::Histogram { classes: classes.to_vec(), maximum: 500_000 };
            let histograms = [("latency".to_owned(), histogram)].into();
            Sample { counters: Snapshot { histograms, ..Snapshot::default() }, at: 0 }
        };
        let change = Change::between(sample(&[(900, 7)]), sample(&[(900, 7), (1_983, 99), (500_223, 1)]));
        let text = render(&change, false);
        for part in
            ["latency      100  1.98 µs  1.98 µs  500 µs   500 µs\n", "breath         0        –", "≤    2 µs  ███"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("≤    1 µs"), "{text}");
    }
}
