//! The share of samples at the first use of packet data, with look-ahead and without, side by side. The ends of the
//! network are left out.

use std::fmt::Write;

use super::contender::{PrefetchTask, PrefetchWork, SAMPLED};
use super::variants::Variant;
use super::{Arguments, Group};
use crate::report::{BenchError, Measurement};
use crate::turns::{self, MatchSession};

/// The routers to sample: as it is, and one in which the first node does not look ahead.
pub(super) const KINDS: [Variant; 2] = [Variant::AsIs, Variant::Without(0)];

/// The figures, with their units.
const FIGURES: [(&str, &str); SAMPLED] = [
    ("of the samples in all nodes", "share of samples"),
    ("of its samples at the first use of packet data", "share at the first use"),
    ("of its samples at the hottest instruction", "share at one instruction"),
];

/// Samples the routers. Returns the text and the figures.
pub(super) fn run(
    options: &Arguments,
    group: &Group,
    session: &mut MatchSession<'_>,
) -> Result<(String, Vec<Measurement>), BenchError> {
    let nodes = group.nodes();
    let first = nodes[0];
    let (mut shares, mut results) = (Vec::new(), Vec::new());
    for kind in KINDS {
        let task = PrefetchTask {
            traffic: group.traffic,
            first: group.first,
            memory: options.memory,
            what: PrefetchWork::Sample(kind.clone(), options.seconds),
            cpu: options.common.cpu,
        };
        let matches = session.matches(options.processes, &[1], &[], |_| vec![task.clone()])?;
        let values = |figure: usize| turns::figures(&matches, 0, figure);
        let percent = |figure| bellows_stats::median(&values(figure)).map_or(f64::NAN, |found| 100.0 * found.value);
        shares.push([0, 1, 2].map(percent));
        for (figure, (_, unit)) in FIGURES.iter().enumerate() {
            results.extend(Measurement::of("hot", unit, &values(figure), group.labels(&kind, first)));
        }
    }
    let mut text = format!("{} packets in flight, samples of a timer in {first}:\n", group.traffic.in_flight);
    let width = FIGURES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let names = KINDS.map(|kind| kind.name(&nodes));
    let _ = writeln!(text, "{:width$}  {:>24}  {:>24}", "", names[0], names[1]);
    for (figure, (name, _)) in FIGURES.iter().enumerate() {
        let [with, without] = [0, 1].map(|kind| format!("{:.1} %", shares[kind][figure]));
        let _ = writeln!(text, "{name:width$}  {with:>24}  {without:>24}");
    }
    text.push('\n');
    Ok((text, results))
}
