//! The share of samples at the first use of packet data. The ends of the network are left out.

use super::side::{Task, Work};
use super::variants::Variant;
use super::{Arguments, Group};
use crate::report::{BenchError, Measurement};
use crate::turns::Session;

/// The routers to sample: as it is, and one in which the first node does not look ahead.
pub(super) const KINDS: [Variant; 2] = [Variant::AsIs, Variant::Without(0)];

/// Samples the routers. Returns the text and the figures.
pub(super) fn run(
    options: &Arguments,
    group: &Group,
    session: &mut Session<'_>,
) -> Result<(String, Vec<Measurement>), BenchError> {
    let nodes = group.nodes();
    let first = nodes[0];
    let mut text = format!("{} packets in flight, samples of a timer:\n", group.traffic.in_flight);
    let mut results = Vec::new();
    for kind in KINDS {
        let task = Task {
            traffic: group.traffic,
            first: group.first,
            memory: options.memory,
            what: Work::Sample(kind.clone(), options.seconds),
            cpu: options.common.cpu,
        };
        let matches = session.matches(options.processes, &[1], &[], |_| vec![task.clone()])?;
        let values =
            |figure: usize| -> Vec<f64> { matches.iter().filter_map(|found| found.figure(0, 0, figure)).collect() };
        let percent = |figure| bellows_stats::median(&values(figure)).map_or(f64::NAN, |found| 100.0 * found.value);
        text += &format!(
            "{:24} {first} has {:.1} % of the nodes' samples, {:.1} % of them at its hottest instruction\n",
            kind.name(&nodes),
            percent(0),
            percent(1)
        );
        for (figure, unit) in [(0, "share of samples"), (1, "share at one instruction")] {
            results.extend(Measurement::of("hot", unit, &values(figure), group.labels(&kind, first)));
        }
    }
    text.push('\n');
    Ok((text, results))
}
