//! Runs in which a trial of look-ahead must find the node without it, or accuse none.

use super::side::{TRIED, Task, Work};
use super::variants::Variant;
use super::{Arguments, Group};
use crate::report::{BenchError, Measurement};
use crate::turns::{Match, Session};

/// The share of runs in which a node must be found: 18 of 20.
const MIN_FOUND: f64 = 0.9;

/// Runs without which there is no judgement about the verdicts.
const ENOUGH: usize = 10;

/// The outcome of all runs.
pub(super) struct Found {
    pub(super) text: String,
    pub(super) results: Vec<Measurement>,
    pub(super) note: Option<String>,
    pub(super) failed: bool,
}

/// The routers to judge: one in which all nodes look ahead, and one in which the first node that reads packets does not.
/// Behind that node packets are near, so nobody waits for them.
pub(super) const KINDS: [Variant; 2] = [Variant::AsIs, Variant::Without(0)];

/// Runs all trials.
pub(super) fn run(options: &Arguments, group: &Group, session: &mut Session<'_>) -> Result<Found, BenchError> {
    let nodes = group.nodes();
    let (mut text, mut results, mut failed) = (String::new(), Vec::new(), false);
    for kind in KINDS {
        let task = Task {
            traffic: group.traffic,
            first: group.first,
            memory: options.memory,
            what: Work::Try(kind.clone(), options.seconds),
            cpu: options.common.cpu,
        };
        let matches = session.matches(options.runs, &[1], &[], |_| vec![task.clone()])?;
        let runs = matches.len();
        let accused =
            |node: usize| matches.iter().filter(|found| found.figure(0, 0, node * TRIED) == Some(1.0)).count();
        text += &format!("{} packets in flight, {}, {runs} runs:\n", group.traffic.in_flight, kind.name(&nodes));
        for (node, name) in nodes.iter().enumerate() {
            let values = |figure: usize| -> Vec<f64> {
                matches.iter().filter_map(|found: &Match| found.figure(0, 0, node * TRIED + figure)).collect()
            };
            let middle = |figure| bellows_stats::median(&values(figure)).map_or(f64::NAN, |found| found.value);
            text += &format!(
                "{name:16} {:6.1} clocks a packet, prefetches save {:5.1} %, found in {} of {runs} runs\n",
                middle(1),
                100.0 * middle(2),
                accused(node)
            );
            let share = accused(node) as f64 / runs.max(1) as f64;
            let shares: Vec<f64> = vec![share];
            results.extend(Measurement::of("verdict", "share of runs", &shares, group.labels(&kind, name)));
            let is_right = match kind {
                Variant::Without(without) if without == node => share >= MIN_FOUND,
                _ => accused(node) == 0,
            };
            failed |= !is_right && runs >= ENOUGH;
        }
        text.push('\n');
    }
    let note = failed.then(|| "a verdict is wrong: see the runs above".to_owned());
    Ok(Found { text, results, note, failed })
}
