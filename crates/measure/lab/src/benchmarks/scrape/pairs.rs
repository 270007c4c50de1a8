//! The rates of phases, and what they say.

use std::time::Instant;

use bellows_stats::{ENOUGH, Median, paired};
use serde::{Deserialize, Serialize};

use crate::steal::TICKS_PER_SECOND;
use crate::timing::median_or_nan;

/// The maximum share of a phase for which the host may take the engine's processor away.
pub(super) const MAX_STOLEN: f64 = 0.05;

/// Larger ratios count as this one.
const MOST: f64 = 1_000.0;

/// The beginning or the end of a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// The packets sent into the network's first link.
    pub(super) packets: u64,
    pub(super) at: Instant,
    /// The steal time of the engine's processor, in ticks.
    pub(super) stolen: u64,
}

/// A phase with scrapes, or one without.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Phase {
    /// Packets per second of the time that the engine had its processor.
    pub(super) rate: f64,
    /// The share of the time for which the host took the processor away.
    pub(super) stolen: f64,
}

impl Phase {
    pub(super) fn between(before: &Edge, after: &Edge) -> Phase {
        let seconds = after.at.duration_since(before.at).as_secs_f64().max(1e-9);
        let stolen = after.stolen.saturating_sub(before.stolen) as f64 / TICKS_PER_SECOND / seconds;
        // A tick may have been taken away before the phase.
        let own = seconds * (1.0 - stolen.min(0.9));
        Phase { rate: after.packets.saturating_sub(before.packets) as f64 / own, stolen }
    }
}

/// Two neighbouring phases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PhasePair {
    pub(super) without: Phase,
    pub(super) with: Phase,
}

impl PhasePair {
    pub(super) fn ratio(&self) -> f64 {
        self.with.rate / self.without.rate
    }

    /// The larger share of time that the host took from one of the phases.
    pub(super) fn stolen(&self) -> f64 {
        self.with.stolen.max(self.without.stolen)
    }

    fn counts(&self) -> bool {
        self.stolen() <= MAX_STOLEN
    }
}

/// Whether a process has pairs from which the host took little time.
pub(super) fn is_calm(pairs: &[PhasePair]) -> bool {
    pairs.iter().any(PhasePair::counts)
}

/// The pairs that count: those from which the host took little time. If there is none, the one that lost least is
/// better than nothing.
fn counted(pairs: &[PhasePair]) -> Vec<PhasePair> {
    let counted: Vec<PhasePair> = pairs.iter().copied().filter(PhasePair::counts).collect();
    let least = pairs.iter().min_by(|one, other| one.stolen().total_cmp(&other.stolen()));
    if counted.is_empty() { least.into_iter().copied().collect() } else { counted }
}

/// The median of a figure over the pairs that count.
pub(super) fn median_of(pairs: &[PhasePair], figure: impl Fn(&PhasePair) -> f64) -> f64 {
    median_or_nan(&counted(pairs).iter().map(figure).collect::<Vec<f64>>())
}

/// The geometric mean of the processes' ratios, with the 95 percent interval of Student's t for their logarithms. With
/// too few processes the interval spans all ratios. `None` without any.
pub(super) fn mean_ratio(ratios: &[f64]) -> Option<Median> {
    // A rate of 0 is a large difference, and not infinite.
    let known = ratios.iter().filter(|ratio| !ratio.is_nan());
    let logarithms: Vec<f64> = known.map(|ratio| ratio.clamp(1.0 / MOST, MOST).ln()).collect();
    if logarithms.is_empty() {
        return None;
    }
    let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
    let span = || {
        let (low, high) = logarithms.iter().fold((mean, mean), |(low, high), &one| (low.min(one), high.max(one)));
        (low, high)
    };
    let tested = if logarithms.len() < ENOUGH { None } else { paired(&logarithms, 0.95) };
    let (low, high) = tested.map_or_else(span, |tested| (tested.low, tested.high));
    Some(Median { value: mean.exp(), low: low.exp(), high: high.exp() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-4 * expected, "{found} {expected}");
    }

    #[test]
    fn stolen_time_is_not_the_engines() {
        let at = Instant::now();
        let phase = |milliseconds: u64, packets: u64, stolen: u64| {
            let before = Edge { packets: 1_000, at, stolen: 70 };
            let after = Edge { packets: 1_000 + packets, at: at + Duration::from_millis(milliseconds), stolen };
            Phase::between(&before, &after)
        };
        assert_eq!(phase(2_000, 500, 70), Phase { rate: 250.0, stolen: 0.0 });
        let disturbed = phase(2_000, 475, 80);
        near(disturbed.rate, 250.0);
        near(disturbed.stolen, 0.05);
        assert!(phase(5, 1, 71).rate.is_finite(), "a tick is longer than the phase");
    }

    fn pair(without: f64, with: f64, stolen: f64) -> PhasePair {
        PhasePair { without: Phase { rate: without, stolen: 0.0 }, with: Phase { rate: with, stolen } }
    }

    #[test]
    fn pairs_that_lost_much_time_do_not_count() {
        let pairs = [pair(100.0, 99.0, 0.0), pair(200.0, 100.0, 0.06), pair(300.0, 297.0, MAX_STOLEN)];
        assert_eq!(counted(&pairs), [pairs[0], pairs[2]]);
        near(median_of(&pairs, PhasePair::ratio), 0.99);
        near(median_of(&pairs, |pair| pair.without.rate), 200.0);
        let all_disturbed = [pair(1.0, 1.0, 0.5), pair(1.0, 0.5, 0.2), pair(1.0, 2.0, 0.3)];
        assert_eq!(counted(&all_disturbed), [all_disturbed[1]], "the best of them");
        assert!(counted(&[]).is_empty() && median_of(&[], PhasePair::ratio).is_nan());
    }

    #[test]
    fn ratios_have_the_interval_of_their_logarithms() {
        // t.test(log(c(0.98, 1.02, 1.01, 0.99, 1.00, 1.03))): t = 2.5706 for five degrees of freedom.
        let ratios = [0.98, 1.02, 1.01, 0.99, 1.00, 1.03];
        let found = mean_ratio(&ratios).unwrap();
        let logarithms = ratios.map(f64::ln);
        let mean = logarithms.iter().sum::<f64>() / 6.0;
        let error = (logarithms.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / 5.0 / 6.0).sqrt();
        near(found.value, mean.exp());
        near(found.low, (mean - 2.5706 * error).exp());
        near(found.high, (mean + 2.5706 * error).exp());
        // A ratio and its inverse are equally far from 1.
        near(mean_ratio(&[0.5, 2.0]).unwrap().value, 1.0);
    }

    #[test]
    fn few_ratios_have_no_interval() {
        assert_eq!(mean_ratio(&[]), None);
        assert_eq!(mean_ratio(&[f64::NAN]), None, "nothing is known");
        near(mean_ratio(&[f64::NAN, 0.0]).unwrap().value, 1.0 / MOST);
        let one = mean_ratio(&[0.97]).unwrap();
        assert_eq!((one.low, one.high), (one.value, one.value));
        let few = mean_ratio(&[0.9, 1.0, 1.1]).unwrap();
        near(few.low, 0.9);
        near(few.high, 1.1);
        let equal = mean_ratio(&[1.0; 9]).unwrap();
        assert_eq!((equal.low, equal.value, equal.high), (1.0, 1.0, 1.0), "without scatter");
    }
}
