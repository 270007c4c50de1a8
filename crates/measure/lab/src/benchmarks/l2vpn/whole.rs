//! The cost of the whole beside the sum of its apps'.

use bellows_engine::Schedule;
use serde_json::json;

use super::contender::L2vpnWork;
use super::part::{self, PartTask};
use super::phases::{self, PhaseDirection};
use super::{Arguments, L2vpnCase, labels, name};
use crate::bench::Lab;
use crate::report::{BenchError, Measurement};
use crate::targets::Target;
use crate::timing::median_or_nan;
use crate::turns::Match;

/// What the whole may cost, relative to the sum of its apps.
const TARGET: Target = Target::AtMost(1.15);

/// The most matches, each of which has a process for each app.
const MAX_MATCHES: usize = 8;

/// What was measured.
pub(super) struct MeasuredWhole {
    pub(super) results: Vec<Measurement>,
    pub(super) notes: Vec<String>,
    pub(super) interrupted: bool,
}

/// Measures the whole and its apps in each of these phases.
///
/// # Errors
/// See [`BenchError`].
pub(super) fn measure(options: &Arguments, phases: &[usize], lab: &mut Lab<'_>) -> Result<MeasuredWhole, BenchError> {
    let (sealed, phases): (Vec<usize>, Vec<usize>) = phases.iter().partition(|&&phase| is_sealed(phase));
    let notes = (!sealed.is_empty()).then(|| {
        let names = sealed.iter().map(|&phase| name(phase)).collect::<Vec<_>>().join(", ");
        format!("apps: no packet of ESP can come twice, so there is no sum for {names}")
    });
    let schedule = options.conditions.schedule.unwrap_or_default();
    let groups = phases.iter().map(|&phase| Ok((phase, tasks(options, schedule, phase)?)));
    let groups: Vec<(usize, Vec<L2vpnWork>)> = groups.collect::<Result<_, String>>().map_err(BenchError::Failed)?;
    let matches = options.orders.min(MAX_MATCHES);
    let all = groups.iter().map(|(_, tasks)| tasks.len() * matches).sum();
    let mut session = lab.session(options, all);
    let mut results = Vec::new();
    for (phase, tasks) in groups {
        let found = session.matches(matches, &[options.rounds], &[], |_| tasks.clone())?;
        results.extend(compared(schedule, phase, tasks.len() - 1, &found));
    }
    Ok(MeasuredWhole { results, notes: notes.into_iter().collect(), interrupted: session.info().interrupted })
}

/// Whether packets of a phase can come only once.
fn is_sealed(phase: usize) -> bool {
    phases::at(phase).is_ok_and(|phase| phase.wire.is_encrypted() && phase.direction == PhaseDirection::Decap)
}

/// The whole, and its apps.
fn tasks(options: &Arguments, schedule: Schedule, phase: usize) -> Result<Vec<L2vpnWork>, String> {
    let task = |flow| L2vpnWork::Part(PartTask { phase, flow, schedule, cpu: options.common.cpu });
    let flows = part::flows(phases::at(phase)?)?;
    Ok([None].into_iter().chain(flows.into_iter().map(Some)).map(task).collect())
}

/// The whole over the sum of `apps` apps.
fn compared(schedule: Schedule, phase: usize, apps: usize, matches: &[Match]) -> Option<Measurement> {
    let figures = |found: &Match| {
        let sum: f64 = (1..=apps).map(|app| found.figure(app, 0, 0)).sum::<Option<f64>>()?;
        Some((found.figure(0, 0, 0)?, sum))
    };
    let (wholes, sums): (Vec<f64>, Vec<f64>) = matches.iter().filter_map(figures).unzip();
    let ratios: Vec<f64> = wholes.iter().zip(&sums).map(|(whole, sum)| whole / sum).collect();
    let mut labels = labels(schedule, &wholes);
    let sum = (median_or_nan(&sums) * 10.0).round() / 10.0;
    labels.extend([("sum", json!(sum)), ("apps", apps.into()), ("phase", json!(name(phase)))]);
    Some(TARGET.judge(Measurement::of(L2vpnCase::Apps.name(), "ratio", &ratios, labels)?, ratios.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::Turn;
    use crate::turns::Record;

    #[test]
    fn the_whole_is_compared_with_the_sum() {
        let side = |clocks: f64| Record::of(vec![vec![Turn { figures: vec![clocks], took: 1.0, lost: 0.0 }; 2]]);
        let found: Vec<Match> = (0..6).map(|_| Match::of(vec![side(110.0), side(60.0), side(40.0)], 1)).collect();
        let result = compared(Schedule::Flat, 0, 2, &found).unwrap();
        assert!((result.median - 1.1).abs() < 1e-9, "{result:?}");
        assert_eq!((&result.labels["clocks"], &result.labels["sum"]), (&json!(110.0), &json!(100.0)));
        assert_eq!((&result.labels["verdict"], &result.labels["apps"]), (&json!("holds"), &json!(2)));
        let dear: Vec<Match> = (0..6).map(|_| Match::of(vec![side(120.0), side(100.0)], 1)).collect();
        assert_eq!(compared(Schedule::Flat, 0, 1, &dear).unwrap().labels["verdict"], json!("fails"));
    }
}
