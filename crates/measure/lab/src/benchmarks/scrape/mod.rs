//! `bench scrape`: whether a monitoring system that scrapes an engine's counters slows it.
//!
//! Each figure is from several fresh sets of processes. A set has the commands that are used in production, and the
//! process that measures:
//!
//! ```text
//! the engine's processor   bellows run: a source, a tee and two sinks, or 1,000 apps in a row
//! another processor        bellows metrics, which answers scrapes over HTTP
//!                          the measuring process, which scrapes, and reads how many packets have moved
//! ```
//!
//! Phases in which the measuring process scrapes alternate with phases in which it does not, in blocks of four whose
//! order is random: with, without, without, with, or the other way round. The server runs in all of them; it does
//! nothing while nobody asks. At the edges of phases the measuring process reads one counter, the packets of the
//! network's first link, in the file that the engine publishes, mapped read-only, and a monotonic clock. So it does not
//! read the counters of other apps, as a scrape does.
//!
//! The figure of a set is the median ratio of neighbouring phases, in which the changing speed of the machine cancels
//! out. The interval is that of the mean logarithm over all sets, by Student's t. Time that the host took from the
//! engine's processor (`steal` in `/proc/stat`) does not count; if it is more than a twentieth of a phase, nor does the
//! pair of phases. Time that other programs took from the engine does count, because a scrape could be the cause.
//!
//! | module | what it holds |
//! |---|---|
//! | `pairs` | the rates of phases, their ratios and the interval |
//! | `service` | the network, the server of its metrics, and the client |
//! | `measuring` | the measuring process |

mod measuring;
mod pairs;
mod service;

use std::process::Command;
use std::time::Duration;

use bellows_stats::ENOUGH;
use bellows_sys::cpu;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::{Benchmark, Common, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::named::named;
use crate::networks::{Folder, Text};
use crate::processes::{Answers, take_turns_by};
use crate::report::{BenchError, Measurement, Report, chosen};
use crate::targets::{Target, UNDECIDED, VERDICT, conclusions};
use crate::timing::median_or_nan;
use crate::workers::{self, this_program};
use measuring::{Measurements, ScrapeAnswer, block, measure};
use pairs::{MAX_STOLEN, PhasePair, is_calm, mean_ratio, median_of};
use service::Launch;

/// The ratio of rates that shows no difference.
const TARGET: Target = Target::Unchanged(1.0, 0.01);

/// Measure whether scraped counters slow the engine
///
/// A network runs on one processor, and on another one `bellows metrics`, which a client scrapes over HTTP in phases
/// that alternate with phases without scrapes, in random order. The server runs in all of them; it does nothing while
/// nobody asks. Cases: `small` (a source, a tee and two sinks) and `chain` (1,000 apps in a row). The figure is the
/// ratio of packets per second with scrapes to those without, with its interval over fresh processes. The verdict is
/// `holds` if the interval holds 1 and its half-width is at most 0.01, `fails` if it does not hold 1, and else
/// `undecided`. The default run takes about 17 minutes.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figures: Figures,
    /// Time between two scrapes, such as 1s; phases have whole periods
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = period)]
    period: bellows_config::Duration,
    /// Seconds per process, in whole blocks of four phases
    #[arg(long, value_name = "SECONDS", default_value = "32", value_parser = super::history::seconds)]
    seconds: f64,
}

/// Parses the time between two scrapes.
fn period(text: &str) -> Result<bellows_config::Duration, String> {
    const RANGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(1);
    let period: bellows_config::Duration =
        text.parse().map_err(|error: bellows_config::ValueError| error.to_string())?;
    if RANGE.contains(&period.std()) { Ok(period) } else { Err("give a time from 10ms to 1h".to_owned()) }
}

named! {
    /// The networks.
    enum ScrapeCase {
        Small = "small",
        Chain = "chain",
    }
}

impl ScrapeCase {
    /// The number of apps.
    fn apps(self) -> usize {
        match self {
            ScrapeCase::Small => 4,
            ScrapeCase::Chain => 1_000,
        }
    }

    /// The text of the network file. The first link is that of the source.
    fn network(self) -> String {
        let mut text = Text::default();
        text.app("source", "source", "size = 60");
        let between = if self == ScrapeCase::Small { 1 } else { self.apps() - 2 };
        let mut from = "source.output".to_owned();
        for number in 1..=between {
            text.app(&format!("tee-{number}"), "tee", "");
            text.link(&from, &format!("tee-{number}.input"));
            from = format!("tee-{number}.output");
        }
        text.app("sink", "sink", "");
        text.link(&from, "sink.input");
        if self == ScrapeCase::Small {
            text.app("other", "sink", "");
            text.link("tee-1.other", "other.input");
        }
        text.finish()
    }
}

/// What a fresh process does.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum ScrapeTask {
    Measure(Measurements),
    /// Becomes another command of this program.
    Launch(Launch),
}

/// Runs the benchmark. `arguments` make this program a worker that does a [`ScrapeTask`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cases = chosen(ScrapeCase::ALL, ScrapeCase::name, &options.figures.case)?;
    let all = cpu::allowed();
    let engine = options.common.processor();
    let Some(other) = all.into_iter().find(|&cpu| cpu != engine) else {
        return Err(BenchError::Refused(format!(
            "a scraper must not run on the engine's processor, and only processor {engine} may be used: allow a second \
             one"
        )));
    };
    // A worker that fails exits at once; its network's counters are removed here.
    let folder = Folder::beside_counters("scrape")?;
    let (program, arguments) = (this_program()?, lab.worker(Arguments::NAME));
    let place = |number: usize| folder.0.join(number.to_string());
    // No other network of the machine is scraped, and no other command finds this one.
    let command = |number: usize| {
        let mut command = Command::new(&program);
        command.args(&arguments).env("BELLOWS_RUNTIME_DIR", place(number).join("run"));
        command
    };
    let period = options.period.std();
    let blocks = ((options.seconds / block(period).as_secs_f64()) as usize).max(1);
    let task = |index: usize, round: usize| {
        ScrapeTask::Measure(Measurements {
            case: cases[index],
            engine,
            other,
            period,
            blocks,
            folder: place(round * cases.len() + index),
            worker: arguments.iter().map(|&word| word.to_owned()).collect(),
        })
    };
    let processes = options.figures.processes;
    let Answers { answers, machine, interrupted }: Answers<ScrapeAnswer> =
        take_turns_by(command, cases.len(), processes, task, lab.observer)?;
    let rows = cases.iter().zip(&answers);
    let results: Vec<Measurement> = rows.clone().filter_map(|(&case, answers)| row(case, period, answers)).collect();
    let mut report = Report::new(Arguments::NAME, machine, processes, results);
    report.notes = rows.flat_map(|(&case, answers)| notes(case, answers)).collect();
    report.notes.extend(conclusions(&report.results));
    report.lost = Some(lost(&answers));
    report.interrupted = interrupted;
    Ok(Finished::new(report, text))
}

/// The row of a network.
fn row(case: ScrapeCase, period: Duration, answers: &[ScrapeAnswer]) -> Option<Measurement> {
    // Of a process that the host disturbed all the time, nothing is known.
    let calm: Vec<&ScrapeAnswer> = answers.iter().filter(|answer| is_calm(&answer.pairs)).collect();
    let used = if calm.is_empty() { answers.iter().collect() } else { calm.clone() };
    let each = |figure: fn(&PhasePair) -> f64| -> Vec<f64> {
        used.iter().map(|answer| median_of(&answer.pairs, figure)).collect()
    };
    let ratios = each(PhasePair::ratio);
    // Millions of packets per second, to the packet.
    let rate = |figure: fn(&PhasePair) -> f64| json!(median_or_nan(&each(figure)).round() / 1e6);
    let scrapes: Vec<f64> = answers.iter().flat_map(|answer| answer.scrapes.iter().copied()).collect();
    let labels = vec![
        ("apps", json!(case.apps())),
        ("period_seconds", json!(period.as_secs_f64())),
        ("without", rate(|pair| pair.without.rate)),
        ("with", rate(|pair| pair.with.rate)),
        ("scrapes", json!(scrapes.len())),
        ("scrape_ms", json!((median_or_nan(&scrapes) * 1e6).round() / 1e3)),
        ("of", json!("with scrapes to without")),
    ];
    let found = Measurement::with(case.name(), "ratio", mean_ratio(&ratios)?, labels);
    let judged = TARGET.judge(found, calm.len());
    let undecided = answers.len() >= ENOUGH && verdict(&judged) == UNDECIDED;
    let median = if undecided { f64::NAN } else { judged.median };
    Some(Measurement { undecided, median, ..judged })
}

fn verdict(result: &Measurement) -> &str {
    result.labels.get(VERDICT).and_then(Value::as_str).unwrap_or_default()
}

/// The scrapes of a network, and the phases that the host disturbed.
fn notes(case: ScrapeCase, answers: &[ScrapeAnswer]) -> Vec<String> {
    let name = case.name();
    let scrapes: Vec<f64> = answers.iter().flat_map(|answer| answer.scrapes.iter().copied()).collect();
    let bytes = answers.iter().map(|answer| answer.bytes).max().unwrap_or(0);
    let made = (!scrapes.is_empty()).then(|| {
        let (count, milliseconds, size) = (scrapes.len(), 1e3 * median_or_nan(&scrapes), bytes as f64 / 1e3);
        format!("{name}: {count} scrapes of {size:.0} kB, in {milliseconds:.1} ms each (median)")
    });
    let pairs = || answers.iter().flat_map(|answer| &answer.pairs);
    let left_out = pairs().filter(|pair| pair.stolen() > MAX_STOLEN).count();
    let corrected = pairs().filter(|pair| pair.stolen() > 0.0).count() - left_out;
    let disturbed = (left_out + corrected > 0).then(|| {
        let (all, percent) = (pairs().count(), 100.0 * MAX_STOLEN);
        format!(
            "{name}: of {all} pairs of phases, {left_out} left out, in which the host took the engine's processor for \
             more than {percent:.0} percent of a phase; in {corrected} the time that it took is subtracted"
        )
    });
    let lost = answers.iter().filter(|answer| !is_calm(&answer.pairs)).count();
    let without = (lost > 0).then(|| match lost == answers.len() {
        true => format!("{name}: no process has pairs that count; those shown are the least disturbed ones"),
        false => {
            format!("{name}: {lost} of {} processes do not count, because all their pairs are left out", answers.len())
        }
    });
    made.into_iter().chain(disturbed).chain(without).collect()
}

/// The share of all phases' time that the host took away.
fn lost(answers: &[Vec<ScrapeAnswer>]) -> f64 {
    let pairs = answers.iter().flatten().flat_map(|answer| &answer.pairs);
    let shares: Vec<f64> = pairs.flat_map(|pair| [pair.without.stolen, pair.with.stolen]).collect();
    (shares.iter().sum::<f64>() / shares.len().max(1) as f64).min(1.0)
}

/// The report as text.
fn text(report: &Report) -> String {
    let row = |[network, apps, without, with, ratio, interval, verdict]: [&str; 7]| {
        format!("{network:8}  {apps:>5}  {without:>11}  {with:>11}  {ratio:>7}  {interval:>13}  {verdict}\n")
    };
    let head = row(["network", "apps", "without", "with", "ratio", report.interval(), "verdict"]);
    let line = |result: &Measurement| {
        let number = |label: &str| result.labels.get(label).and_then(Value::as_f64).unwrap_or(f64::NAN);
        let rate = |label: &str| format!("{:.3} Mpps", number(label));
        let ratio = if result.median.is_nan() { "–".to_owned() } else { format!("{:.3}", result.median) };
        row([
            &result.case,
            &number("apps").to_string(),
            &rate("without"),
            &rate("with"),
            &ratio,
            &format!("{:.3} – {:.3}", result.low, result.high),
            verdict(result),
        ])
    };
    let rows: String = report.results.iter().map(line).collect();
    report.heading() + &head + &rows + "\n" + &report.sentences()
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[
        "The figure is the geometric mean over all processes, with its interval by Student's t. The verdict is `holds` if the \
         interval holds 1 and half of its width is at most 0.01, `fails` if it does not hold 1, else `undecided`.",
    ],
    every: &["apps", "period_seconds", "without", "with", "scrapes", "scrape_ms", "of", "target", "verdict"],
    rows: &[CaseRow::of(
        &["small", "chain"],
        "ratio",
        "packets per second with scrapes relative to those without, in this network",
    )],
    labels: &[
        label("apps", LabelKind::Integer, "apps of the network"),
        label("period_seconds", LabelKind::Decimal, "the time between two scrapes"),
        label("without", LabelKind::Decimal, "million packets per second without scrapes"),
        label("with", LabelKind::Decimal, "the same with scrapes"),
        label("scrapes", LabelKind::Integer, "how many scrapes there were"),
        label("scrape_ms", LabelKind::Decimal, "the median time of one, in milliseconds"),
    ],
};

/// Does the work of a worker.
fn work(task: ScrapeTask) -> ScrapeAnswer {
    match task {
        ScrapeTask::Measure(task) => measure(&task),
        ScrapeTask::Launch(launch) => launch.run(),
    }
}

impl Benchmark for Arguments {
    const NAME: &'static str = "scrape";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --seconds 1 --period 100ms --case small";
    const MORE: &'static [&'static str] = &["--processes 1 --seconds 0.3 --period 50ms --case chain"];
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "nonsense"], "no case has `nonsense` in its name; there are small and chain"),
        (&["--period", "1ms"], "give a time from 10ms to 1h"),
        (&["--period", "soon"], "soon"),
        (&["--seconds", "3601"], "give from 0 to 3600 seconds"),
    ];
    const WORK: RunWorker = |_| workers::answer(work);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::networks::loaded;
    use pairs::Phase;

    /// An answer whose pairs have these ratios and shares of stolen time.
    fn answer(ratios: &[(f64, f64)]) -> ScrapeAnswer {
        let phase = |rate, stolen| Phase { rate, stolen };
        let pair =
            |&(ratio, stolen): &(f64, f64)| PhasePair { without: phase(2e6, 0.0), with: phase(2e6 * ratio, stolen) };
        ScrapeAnswer { pairs: ratios.iter().map(pair).collect(), scrapes: vec![0.002, 0.004], bytes: 5_000 }
    }

    fn of_ratios(ratios: &[f64]) -> Measurement {
        let answers: Vec<ScrapeAnswer> = ratios.iter().map(|&ratio| answer(&[(ratio, 0.0)])).collect();
        row(ScrapeCase::Chain, Duration::from_secs(1), &answers).unwrap()
    }

    #[test]
    fn the_networks_have_as_many_apps_as_they_say() {
        for case in ScrapeCase::ALL {
            let network = loaded(&case.network());
            assert_eq!((network.apps.len(), network.links.len()), (case.apps(), case.apps() - 1));
            assert_eq!(network.links[0].from.app, "source", "it is that whose packets are counted");
        }
    }

    #[test]
    fn the_verdict_is_about_the_interval_over_processes() {
        let narrow = of_ratios(&[0.999, 1.001, 1.0, 1.002, 0.998, 1.0]);
        assert_eq!((verdict(&narrow), narrow.undecided), ("holds", false));
        assert!((narrow.median - 1.0).abs() < 1e-3 && narrow.high - narrow.low < 0.01, "{narrow:?}");
        let wide = of_ratios(&[0.9, 1.1, 1.0, 0.95, 1.05, 1.0]);
        assert_eq!((verdict(&wide), wide.undecided, wide.median.is_nan()), ("undecided", true, true));
        let slower = of_ratios(&[0.97, 0.98, 0.975, 0.972, 0.978, 0.976]);
        assert_eq!((verdict(&slower), slower.undecided), ("fails", false));
        let few = of_ratios(&[1.0, 1.0]);
        assert_eq!((verdict(&few), few.undecided, few.median), ("undecided", false, 1.0));
    }

    #[test]
    fn the_figure_of_a_process_is_the_median_of_the_pairs_that_count() {
        let answers = [answer(&[(0.98, 0.0), (1.0, 0.0), (1.5, 0.01), (0.1, 0.2), (0.1, 0.3)])];
        let found = row(ScrapeCase::Small, Duration::from_millis(500), &answers).unwrap();
        assert_eq!((found.median, found.case.as_str()), (1.0, "small"));
        let labels = json!(found.labels);
        assert_eq!((&labels["without"], &labels["with"]), (&json!(2.0), &json!(2.0)));
        assert_eq!(
            (&labels["scrapes"], &labels["scrape_ms"], &labels["period_seconds"]),
            (&json!(2), &json!(3.0), &json!(0.5))
        );
        assert_eq!(
            notes(ScrapeCase::Small, &answers),
            [
                "small: 2 scrapes of 5 kB, in 3.0 ms each (median)",
                "small: of 5 pairs of phases, 2 left out, in which the host took the engine's processor for more than \
                 5 percent of a phase; in 1 the time that it took is subtracted"
            ]
        );
        assert!((lost(&[answers.to_vec()]) - 0.051).abs() < 1e-9);
        assert_eq!(lost(&[]), 0.0);
        assert_eq!(notes(ScrapeCase::Small, &[]), Vec::<String>::new());
    }

    #[test]
    fn the_table_has_a_row_for_each_network() {
        let results = vec![of_ratios(&[1.0, 1.0]), of_ratios(&[0.9, 1.1, 1.0, 0.95, 1.05, 1.0])];
        let mut report = Report::new("scrape", Machine::here(), 6, results);
        report.notes = conclusions(&report.results);
        let text = text(&report);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("chain ")).collect();
        let words = |row: &str| row.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(rows[0]), "chain 1000 2.000 Mpps 2.000 Mpps 1.000 1.000 – 1.000 undecided");
        assert!(words(rows[1]).starts_with("chain 1000 2.000 Mpps 2.000 Mpps – 0.9"), "{text}");
        assert!(
            text.contains("with scrapes to without, 1, half-width at most 0.01: 0 of 2 hold; undecided: chain"),
            "{text}"
        );
    }
}
