//! Evaluation of the windows: medians with intervals, ratios between forwarders, and whether targets are met.

use std::fmt::Write;

use bellows_stats::{ENOUGH, Median};
use serde_json::{Value, json};

use super::bench::{Row, Window};
use super::{Case, Forwarder, Options, Port, Steering};

/// Half of an interval's width below which a ratio in it is known well enough.
const NARROW: f64 = 0.02;

/// A limit for a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    /// Whether the ratio meets the target. An interval that contains it decides only if it is narrow.
    fn verdict(self, ratio: &Median, pairs: usize) -> &'static str {
        let (near, far, limit) = match self {
            Target::AtLeast(limit) => (ratio.low, ratio.high, limit),
            Target::AtMost(limit) => (-ratio.high, -ratio.low, -limit),
        };
        if pairs < ENOUGH {
            "too few rounds"
        } else if near >= limit {
            "holds"
        } else if far < limit {
            "does not hold"
        } else if ratio.half_width() <= NARROW {
            "holds"
        } else {
            "undecided"
        }
    }

    fn written(self) -> String {
        match self {
            Target::AtLeast(limit) => format!("≥ {limit}"),
            Target::AtMost(limit) => format!("≤ {limit}"),
        }
    }
}

/// A figure of a window.
#[derive(Clone, Copy)]
struct Figure {
    name: &'static str,
    of: fn(&Window) -> f64,
}

const RATE: Figure = Figure { name: "rate", of: Window::rate };
const USER: Figure = Figure { name: "user time", of: |window| window.user };
const TIME: Figure = Figure { name: "user and system time", of: |window| window.user + window.system };

/// A figure of one forwarder relative to another's.
struct Comparison {
    case: Case,
    subject: Forwarder,
    reference: Forwarder,
    figure: Figure,
    target: Option<Target>,
}

/// All comparisons of Bellows with another forwarder.
fn comparisons(options: &Options) -> Vec<Comparison> {
    let mut all = Vec::new();
    let mut add = |case: Case, subject, reference, figure, target: Option<Target>| {
        // The targets are for DPDK and the kernel.
        let target = target.filter(|_| options.against.is_none());
        let forwarders = options.forwarders(case);
        if options.cases.contains(&case) && forwarders.contains(&subject) && forwarders.contains(&reference) {
            all.push(Comparison { case, subject, reference, figure, target });
        }
    };
    let [bridge, steered] = [Steering::Off, Steering::On].map(Forwarder::Bridge);
    for port in [Port::AfXdp, Port::Packet] {
        let (bellows, reference) = (Forwarder::Bellows(port), Forwarder::Reference(port));
        add(Case::Flood, bellows, reference, RATE, Some(Target::AtLeast(1.0)));
        add(Case::Flood, bellows, reference, USER, Some(Target::AtMost(0.5)));
        add(Case::Flood, bellows, reference, TIME, None);
        add(Case::Flood, bellows, bridge, RATE, None);
        add(Case::Flood, bellows, steered, RATE, None);
        add(Case::Paced, bellows, reference, RATE, Some(Target::AtLeast(1.0)));
        // Both poll all the time, so this says how the kernel divides the time of waiting.
        add(Case::Paced, bellows, reference, USER, None);
        add(Case::Paced, bellows, reference, TIME, None);
        add(Case::Tcp, bellows, reference, RATE, Some(Target::AtLeast(1.0)));
        add(Case::Tcp, bellows, bridge, RATE, None);
        add(Case::Tcp, bellows, steered, RATE, None);
        add(Case::TcpOffloads, bellows, reference, RATE, None);
        add(Case::TcpOffloads, bellows, bridge, RATE, Some(Target::AtLeast(0.5)));
        add(Case::TcpOffloads, bellows, steered, RATE, Some(Target::AtLeast(0.5)));
    }
    all
}

impl Comparison {
    /// The ratios of the rounds in which neither was starved.
    fn ratios(&self, rows: &[Row]) -> Vec<f64> {
        let find = |forwarder| rows.iter().find(|row| row.case == self.case && row.forwarder == forwarder);
        let (Some(subject), Some(reference)) = (find(self.subject), find(self.reference)) else { return Vec::new() };
        let ratio = |one: &Window| {
            let other = valid_windows(reference).find(|other| other.round == one.round)?;
            Some((self.figure.of)(one) / (self.figure.of)(other)).filter(|ratio| ratio.is_finite())
        };
        valid_windows(subject).filter_map(ratio).collect()
    }
}

fn valid_windows(row: &Row) -> impl Iterator<Item = &Window> {
    row.windows.iter().filter(|window| !window.is_starved(row.case))
}

fn figure(row: &Row, of: impl Fn(&Window) -> f64) -> Option<Median> {
    bellows_stats::median(&valid_windows(row).map(of).collect::<Vec<f64>>())
}

/// A table for people.
struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// In aligned columns: names to the left, figures to the right.
    fn text(&self) -> String {
        let heading: Vec<String> = self.heading.iter().map(|word| word.to_string()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&heading).chain(&self.rows).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..heading.len()).map(width).collect();
        let mut text = String::new();
        for line in lines {
            for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                let _ = if column == 0 { write!(text, "{cell:width$}") } else { write!(text, "  {cell:>width$}") };
            }
            text.push('\n');
        }
        text
    }

    fn markdown(&self) -> String {
        let mut text = format!("| {} |\n|{}\n", self.heading.join(" | "), "---|".repeat(self.heading.len()));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text
    }
}

/// A median with its interval.
fn written(median: Option<Median>, digits: usize) -> String {
    median.map_or("–".to_owned(), |Median { value, low, high }| {
        format!("{value:.digits$} ({low:.digits$} – {high:.digits$})")
    })
}

fn percent(shares: [Option<Median>; 2]) -> String {
    shares.map(|share| share.map_or("–".to_owned(), |share| format!("{:.0}", 100.0 * share.value))).join(" / ")
}

/// The figures of all forwarders of one case.
fn figures(options: &Options, rows: &[&Row], case: Case) -> Table {
    let rate = if case.is_tcp() { "Gb/s" } else { "Mpps" };
    let unit = if case.is_tcp() { 1e9 } else { 1e6 };
    let heading = vec![
        "forwarder",
        rate,
        "offered Mpps",
        "user ns",
        "system ns",
        "softirq %",
        "idle %",
        "stolen %",
        "ran / waited %",
        "windows",
    ];
    let line = |row: &&Row| {
        let both = |of: fn(&Window) -> [f64; 2]| percent([0, 1].map(|side| figure(row, |window| of(window)[side])));
        vec![
            options.name(row.forwarder).to_owned(),
            written(figure(row, |window| window.rate() / unit), 3),
            figure(row, |window| window.offered / window.seconds / 1e6)
                .map_or("–".to_owned(), |rate| format!("{:.3}", rate.value)),
            written(figure(row, |window| window.user), 0),
            written(figure(row, |window| window.system), 0),
            both(|window| window.softirq),
            both(|window| window.idle),
            both(|window| window.stolen),
            match row.forwarder {
                Forwarder::Bridge(Steering::Off) => "–".to_owned(),
                _ => percent([figure(row, |window| window.ran), figure(row, |window| window.waited)]),
            },
            format!("{} of {}", valid_windows(row).count(), row.windows.len()),
        ]
    };
    Table { heading, rows: rows.iter().map(line).collect() }
}

/// The ratios, with their targets.
fn ratios(options: &Options, rows: &[Row]) -> Table {
    let line = |comparison: &Comparison| {
        let samples = comparison.ratios(rows);
        let ratio = bellows_stats::median(&samples);
        let verdict = |target: Target| ratio.map_or("no figures", |ratio| target.verdict(&ratio, samples.len()));
        vec![
            format!("{}: {}", comparison.case.name(), comparison.figure.name),
            format!("{} / {}", options.name(comparison.subject), options.name(comparison.reference)),
            written(ratio, 3),
            comparison.target.map_or("–".to_owned(), Target::written),
            comparison.target.map_or("–", verdict).to_owned(),
            samples.len().to_string(),
        ]
    };
    Table {
        heading: vec!["figure", "forwarders", "ratio", "target", "verdict", "pairs"],
        rows: comparisons(options).iter().map(line).collect(),
    }
}

fn title(options: &Options, case: Case) -> String {
    let (seconds, rate) = (options.window.as_secs(), options.rate);
    let stream = options.tcp_window().as_secs();
    match case {
        Case::Flood => format!("flood: frames of 64 bytes, as many as the generator sends, windows of {seconds} s"),
        Case::Paced => format!("paced: {rate} frames of 64 bytes a second, windows of {seconds} s"),
        Case::Tcp => format!("tcp: one stream of iperf3, offloads off, {stream} s"),
        Case::TcpOffloads => format!("tcp-offloads: one stream of iperf3, offloads on, {stream} s"),
    }
}

/// The tables of the cases, and that of the ratios, each with its title.
fn tables(options: &Options, rows: &[Row]) -> Vec<(String, Table)> {
    let of_case = |&case: &Case| {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.case == case).collect();
        (title(options, case), figures(options, &rows, case))
    };
    let mut tables: Vec<(String, Table)> = options.cases.iter().map(of_case).collect();
    let ratios = ratios(options, rows);
    if !ratios.rows.is_empty() {
        tables.push(("ratios of neighbours in time, with the 95 percent interval of their median".to_owned(), ratios));
    }
    tables
}

/// What the columns mean.
fn legend(options: &Options) -> String {
    let Options { generator_cpu, cpu, .. } = options;
    format!(
        "The generator has processor {generator_cpu}, the forwarder processor {cpu}. Rates are counted at the sink; \
         times are of the forwarder, for each packet there.\n\
         System time contains the software interrupts on the forwarder's processor, among them the sink's side of \
         sending. The bridge has no process.\n\
         Softirq, idle and stolen: shares of the two processors, the generator's first. Windows are left out if the host \
         took more than\n\
         5 percent of a processor, or if a forwarder of generated frames waited for its own for more than 8 percent.\n"
    )
}

/// The figures side by side.
pub fn text(options: &Options, rows: &[Row]) -> String {
    let mut text = "interfaces · forwarding between two veth pairs, one forwarder after the other\n".to_owned();
    for (title, table) in tables(options, rows) {
        let _ = write!(text, "\n{title}\n{}", table.text());
    }
    let starved: usize = rows.iter().map(|row| row.windows.len() - valid_windows(row).count()).sum();
    let all: usize = rows.iter().map(|row| row.windows.len()).sum();
    let _ = write!(text, "\n{}left out: {starved} of {all} windows\n", legend(options));
    text
}

/// The same tables for a page.
pub fn markdown(options: &Options, rows: &[Row]) -> String {
    let tables = tables(options, rows).into_iter();
    tables.map(|(title, table)| format!("{title}:\n\n{}\n", table.markdown())).collect()
}

/// The figures in the shape of a benchmark's report, and those of every window.
pub fn json(options: &Options, rows: &[Row]) -> String {
    let mut results = Vec::new();
    let mut result = |case: &str, unit: &str, median: Option<Median>, labels: Value| {
        if let Some(Median { value, low, high }) = median {
            results
                .push(json!({"case": case, "unit": unit, "median": value, "low": low, "high": high, "labels": labels}));
        }
    };
    for row in rows {
        let name = options.name(row.forwarder);
        let labels = || {
            let valid = valid_windows(row).count();
            json!({"traffic": row.case.name(), "forwarder": name, "windows": valid,
                   "starved": row.windows.len() - valid})
        };
        match row.case.is_tcp() {
            true => result("throughput", "Gb/s", figure(row, |window| window.rate() / 1e9), labels()),
            false => result("rate", "Mpps", figure(row, |window| window.rate() / 1e6), labels()),
        }
        result("offered", "Mpps", figure(row, |window| window.offered / window.seconds / 1e6), labels());
        result("user", "ns/packet", figure(row, |window| window.user), labels());
        result("system", "ns/packet", figure(row, |window| window.system), labels());
    }
    for comparison in comparisons(options) {
        let samples = comparison.ratios(rows);
        let ratio = bellows_stats::median(&samples);
        let mut labels = json!({"traffic": comparison.case.name(), "forwarder": options.name(comparison.subject),
                                "reference": options.name(comparison.reference), "pairs": samples.len()});
        if let (Some(target), Some(ratio)) = (comparison.target, &ratio) {
            labels["target"] = target.written().into();
            labels["verdict"] = target.verdict(ratio, samples.len()).into();
        }
        result(comparison.figure.name, "ratio", ratio, labels);
    }
    let report = json!({
        "bench": "peers interfaces",
        "version": env!("CARGO_PKG_VERSION"),
        "machine": {"cpu": bellows_sys::cpu::model()},
        "results": results,
        "windows": rows.iter().flat_map(|row| windows(options, row)).collect::<Vec<Value>>(),
    });
    format!("{report:#}\n")
}

/// All windows of a row, with the number of their round.
fn windows(options: &Options, row: &Row) -> Vec<Value> {
    let window = |window: &Window| {
        json!({
            "traffic": row.case.name(),
            "forwarder": options.name(row.forwarder),
            "round": window.round,
            "starved": window.is_starved(row.case),
            "seconds": window.seconds,
            "offered": window.offered,
            "forwarded": window.forwarded,
            "bits_per_second": window.tcp,
            "user_ns": window.user,
            "system_ns": window.system,
            "softirq": window.softirq,
            "idle": window.idle,
            "stolen": window.stolen,
            "ran": window.ran,
            "waited": window.waited,
        })
    };
    row.windows.iter().map(window).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each round is slower than the one before, for all forwarders alike.
    fn row(case: Case, forwarder: Forwarder, rate: f64, user: f64) -> Row {
        let window = |round: u32| {
            let speed = 1.0 - f64::from(round) / 100.0;
            let forwarded = rate * speed * 30.0;
            let tcp = case.is_tcp().then_some(rate * speed);
            let round = round as usize + 1;
            Window {
                round,
                seconds: 30.0,
                offered: 2.0 * forwarded,
                forwarded,
                tcp,
                user: user / speed,
                ..Window::default()
            }
        };
        Row { case, forwarder, windows: (0..9).map(window).collect() }
    }

    fn rows() -> Vec<Row> {
        let forwarders = [
            (Forwarder::Bellows(Port::AfXdp), 1.2e6, 100.0),
            (Forwarder::Reference(Port::AfXdp), 1e6, 250.0),
            (Forwarder::Bellows(Port::Packet), 0.8e6, 120.0),
            (Forwarder::Reference(Port::Packet), 1e6, 200.0),
            (Forwarder::Bridge(Steering::Off), 0.5e6, f64::NAN),
        ];
        let all = |case| forwarders.map(|(forwarder, rate, user)| row(case, forwarder, rate, user));
        [all(Case::Flood), all(Case::Tcp)].concat()
    }

    fn options() -> Options {
        Options { cases: vec![Case::Flood, Case::Tcp], ..Options::full() }
    }

    #[test]
    fn a_target_holds_by_the_end_of_the_interval_that_is_nearest_to_missing_it() {
        let ratio = |low, high| Median { value: (low + high) / 2.0, low, high };
        for (target, low, high, verdict) in [
            (Target::AtLeast(1.0), 1.0, 1.5, "holds"),
            (Target::AtLeast(1.0), 0.5, 0.99, "does not hold"),
            (Target::AtLeast(1.0), 0.9, 1.1, "undecided"),
            (Target::AtLeast(1.0), 0.985, 1.015, "holds"),
            (Target::AtMost(0.5), 0.3, 0.5, "holds"),
            (Target::AtMost(0.5), 0.51, 0.6, "does not hold"),
            (Target::AtMost(0.5), 0.4, 0.6, "undecided"),
            (Target::AtMost(0.5), 0.49, 0.51, "holds"),
        ] {
            assert_eq!(target.verdict(&ratio(low, high), ENOUGH), verdict, "{target:?} {low} {high}");
        }
        assert_eq!(Target::AtLeast(1.0).verdict(&ratio(2.0, 2.0), ENOUGH - 1), "too few rounds");
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let text = text(&options(), &rows());
        let line = |start: &str, pair: &str| {
            let found = text.lines().find(|line| line.starts_with(start) && line.contains(pair));
            found.unwrap_or_else(|| panic!("no {start} {pair} in {text}")).to_owned()
        };
        let rate = line("flood: rate", "bellows-af-xdp / dpdk-af-xdp");
        assert!(rate.contains("1.200 (1.200 – 1.200)") && rate.contains("≥ 1") && rate.contains("holds"), "{rate}");
        assert!(line("flood: rate", "bellows-raw-socket / dpdk").contains("does not hold"));
        assert!(line("flood: user time", "bellows-af-xdp").contains("0.400 (0.400 – 0.400)"));
        assert!(line("flood: user time", "bellows-raw-socket").contains("does not hold"));
        assert!(line("tcp: rate", "bellows-af-xdp / kernel").contains("2.400"));
    }

    #[test]
    fn a_starved_window_takes_its_partner_with_it() {
        let mut rows = rows();
        rows[0].windows[0].waited = 0.5;
        rows[1].windows[1].stolen = [0.0, 0.5];
        let comparisons = comparisons(&options());
        assert_eq!(comparisons[0].ratios(&rows).len(), 7);
        let text = text(&options(), &rows);
        assert!(text.contains("8 of 9") && text.contains("left out: 2 of 90 windows"), "{text}");
    }

    #[test]
    fn all_shapes_have_the_same_figures() {
        let (options, rows) = (options(), rows());
        let markdown = markdown(&options, &rows);
        assert!(markdown.contains("| bellows-af-xdp | 1.152 (1.116 – 1.188) | 2.304 | 104 ("), "{markdown}");
        assert!(markdown.contains("| tcp: rate | bellows-raw-socket / dpdk-af-packet | 0.800"), "{markdown}");
        let report: Value = serde_json::from_str(&json(&options, &rows)).unwrap();
        let results = report["results"].as_array().unwrap();
        let of = |case: &str, forwarder: &str| {
            results.iter().find(|result| result["case"] == case && result["labels"]["forwarder"] == forwarder).unwrap()
        };
        assert!((of("rate", "bellows-af-xdp")["median"].as_f64().unwrap() - 1.152).abs() < 1e-9);
        let ratio = results.iter().find(|result| result["unit"] == "ratio").unwrap();
        assert_eq!(ratio["labels"]["verdict"], "holds");
        assert_eq!(report["windows"].as_array().unwrap().len(), 90);
    }

    #[test]
    fn another_build_has_no_targets() {
        let options = Options { against: Some("bellows".into()), ..options() };
        let text = text(&options, &rows());
        assert!(text.contains("bellows-af-xdp / other-af-xdp") && !text.contains("holds"), "{text}");
    }
}
