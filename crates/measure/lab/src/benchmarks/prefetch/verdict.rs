//! Runs in which a trial of look-ahead must find the node without it, or accuse none: in a router alone, and in a whole
//! network.

use std::fmt::Write;

use super::contender::{PrefetchTask, PrefetchWork, TRIED};
use super::variants::Variant;
use super::{Arguments, Group, PrefetchCase};
use crate::report::{BenchError, Measurement};
use crate::turns::{self, Match, MatchSession};

/// The share of runs in which a node must be found: 18 of 20.
const MIN_FOUND: f64 = 0.9;

/// Runs without which there is no judgement about the verdicts.
const ENOUGH: usize = 10;

/// A node must be found if it costs this many times as much without its look-ahead. Some loops read the headers of many
/// packets at once without any.
const MIN_WORTH: f64 = 1.2;

/// The outcome of all runs.
pub(super) struct TrialOutcome {
    pub(super) text: String,
    pub(super) results: Vec<Measurement>,
    pub(super) note: Option<String>,
    pub(super) failed: bool,
}

/// The routers to judge: one in which all nodes look ahead, and one in which the first node that reads packets does not.
/// Behind that node packets are near, so nobody waits for them.
pub(super) const KINDS: [Variant; 2] = [Variant::AsIs, Variant::Without(0)];

/// The runs of one router.
struct Runs {
    kind: Variant,
    matches: Vec<Match>,
}

impl Runs {
    /// A figure of a node in each run.
    fn values(&self, node: usize, figure: usize) -> Vec<f64> {
        turns::figures(&self.matches, 0, node * TRIED + figure)
    }

    /// The median of a figure of a node.
    fn middle(&self, node: usize, figure: usize) -> f64 {
        bellows_stats::median(&self.values(node, figure)).map_or(f64::NAN, |found| found.value)
    }

    /// The number of runs in which a node was accused.
    fn accused(&self, node: usize) -> usize {
        self.values(node, 0).iter().filter(|&&verdict| verdict == 1.0).count()
    }

    /// Whether a node does not look ahead.
    fn may_be_accused(&self, node: usize) -> bool {
        matches!(self.kind, Variant::Without(without) if without == node)
    }

    /// The runs in which a node was accused, a line each.
    fn accusations(&self, node: usize) -> String {
        let mut text = String::new();
        let figures = [0, 1, 2, 3, 4, 5].map(|figure| self.values(node, figure));
        for run in (0..figures[0].len()).filter(|&run| figures[0][run] == 1.0) {
            let [_, clocks, saved, p, fetch, after] = figures.each_ref().map(|values| values[run]);
            let saved = 100.0 * saved;
            let _ = writeln!(
                text,
                "    in run {}: {clocks:.1} clocks a packet, {fetch:.1} + {after:.1} if fetched first: {saved:.1} % saved, p \
                 {p:.1e}",
                run + 1
            );
        }
        text
    }

    /// Whether the verdicts about a node are right, if its look-ahead is worth so much.
    fn are_right(&self, node: usize, worth: f64) -> bool {
        match self.may_be_accused(node) {
            true => worth < MIN_WORTH || self.accused(node) as f64 >= MIN_FOUND * self.matches.len() as f64,
            false => self.accused(node) == 0,
        }
    }
}

/// Runs all trials.
pub(super) fn run(
    options: &Arguments,
    group: &Group,
    session: &mut MatchSession<'_>,
) -> Result<TrialOutcome, BenchError> {
    let is_live = group.case == PrefetchCase::Live;
    let nodes = group.nodes();
    let mut all = Vec::new();
    for kind in KINDS {
        let task = PrefetchTask {
            traffic: group.traffic,
            first: group.first,
            // Packets that nobody waits for accuse nobody.
            memory: true,
            what: match is_live {
                true => PrefetchWork::TryLive(kind.clone(), options.seconds),
                false => PrefetchWork::Try(kind.clone(), options.seconds),
            },
            cpu: options.common.cpu,
        };
        let matches = session.matches(options.runs, &[1], &[], |_| vec![task.clone()])?;
        all.push(Runs { kind, matches });
    }
    let worth = all[1].middle(0, 1) / all[0].middle(0, 1);
    let (mut text, mut results, mut failed) = (String::new(), Vec::new(), false);
    for runs in &all {
        let count = runs.matches.len();
        let name = runs.kind.name(&nodes);
        let _ = match is_live {
            true => writeln!(text, "a router in a network, with packets from memory, {name}, {count} runs:"),
            false => {
                writeln!(text, "{} packets in flight, from memory, {name}, {count} runs:", group.traffic.in_flight)
            }
        };
        for (node, name) in nodes.iter().enumerate() {
            let [clocks, saved, fetch, after] = [1, 2, 4, 5].map(|figure| runs.middle(node, figure));
            let _ = writeln!(
                text,
                "{name:21} {clocks:5.1} clocks a packet; fetched first {:5.1} ({fetch:.1} + {after:.1}), {:+5.1} %; accused \
                 in {} runs",
                fetch + after,
                -100.0 * saved,
                runs.accused(node)
            );
            if !runs.may_be_accused(node) {
                text += &runs.accusations(node);
            }
            let shares = [runs.accused(node) as f64 / count.max(1) as f64];
            let labels = group.labels(&runs.kind, name);
            results.extend(Measurement::of(group.case.name(), "share of runs", &shares, labels));
            failed |= count >= ENOUGH && !runs.are_right(node, worth);
        }
        text.push('\n');
    }
    let must = if worth >= MIN_WORTH { "so it must be found" } else { "so there is little to find" };
    let first = nodes[0];
    let _ = writeln!(text, "without look-ahead {first} costs {:+.0} %, {must}\n", 100.0 * (worth - 1.0));
    let note = failed.then(|| "a verdict is wrong: see the runs above".to_owned());
    Ok(TrialOutcome { text, results, note, failed })
}
