//! Densities, ticks and quartiles of scores, in panels with shared axes.

use bellows_stats::{Bandwidth, Density, nearest_rank};

use crate::axis::Axis;
use crate::model::{Distributions, Form, Panel, Sample};
use crate::table::ScoreGroups;

/// Maximum number of curves over each other.
pub(crate) const MAX_CURVES: usize = 6;

/// Maximum number of distributions in the panels of a factor.
const MAX_SAMPLES: usize = 480;

/// Maximum number of panels.
const MAX_PANELS: usize = 120;

/// Number of places of ticks, if there are more runs than are drawn one by one.
const PLACES: usize = 150;

/// Up to this number of scores have a tick each.
const MAX_TICKS: usize = 250;

/// One in this many points of a density is drawn.
const STRIDE: usize = 3;

/// A curve needs at least this number of scores.
const MIN_SCORES: usize = 4;

/// A kernel is not narrower than this share of the axis: about a pixel.
const NARROWEST: f64 = 1.0 / 300.0;

impl Distributions {
    /// Those of more levels than can be drawn.
    pub(crate) fn none(axis: &Axis) -> Distributions {
        let (levels, panels) = (Vec::new(), Vec::new());
        Distributions { form: Form::Strips, axis: axis.clone(), top: 0.0, levels, panels, most_per_tick: 0 }
    }
}

/// The distributions of groups of scores: for each panel one for each level. None if there are too many to draw.
pub(crate) fn distributions(
    groups: &ScoreGroups,
    panels: &[String],
    levels: &[String],
    axis: &Axis,
) -> Option<Distributions> {
    if groups.len() > MAX_SAMPLES || panels.len() > MAX_PANELS {
        return None;
    }
    let form = if levels.len() <= MAX_CURVES { Form::Curves } else { Form::Strips };
    let panel = |(place, label): (usize, &String)| Panel {
        label: label.clone(),
        samples: (0..levels.len()).map(|level| sample(groups, place * levels.len() + level, form, axis)).collect(),
    };
    let panels: Vec<Panel> = panels.iter().enumerate().map(panel).collect();
    let samples = || panels.iter().flat_map(|panel| &panel.samples);
    let top = samples().flat_map(|sample| &sample.density).copied().fold(0.0, f64::max);
    let most_per_tick = samples().flat_map(|sample| &sample.ticks).map(|(_, runs)| *runs).max().unwrap_or(0);
    Some(Distributions { form, axis: axis.clone(), top, levels: levels.to_vec(), panels, most_per_tick })
}

fn sample(groups: &ScoreGroups, group: usize, form: Form, axis: &Axis) -> Sample {
    let sorted = groups.sample(group);
    let density = match form {
        Form::Curves => density(sorted, axis),
        Form::Strips => None,
    };
    let (density, bandwidth, rule) = match density {
        Some((found, rule)) => {
            (found.y.into_iter().step_by(STRIDE).map(short).collect(), Some(found.bandwidth), Some(rule))
        }
        None => (Vec::new(), None, None),
    };
    Sample {
        runs: sorted.len(),
        failed: groups.failed(group),
        density,
        bandwidth,
        rule,
        ticks: ticks(sorted, axis),
        quartiles: quartiles(sorted),
    }
}

/// The density of sorted scores by the bandwidth of Sheather and Jones, or by nrd0 where that has none.
fn density(sorted: &[f64], axis: &Axis) -> Option<(Density, &'static str)> {
    let (least, most) = (sorted.first()?, sorted.last()?);
    if sorted.len() < MIN_SCORES || least == most {
        return None;
    }
    let over = |bandwidth| Density::over(sorted, bandwidth, axis.low, axis.high).ok();
    let narrowest = NARROWEST * (axis.high - axis.low);
    let (found, rule) = match over(Bandwidth::SheatherJones) {
        Some(found) => (found, "Sheather\u{2013}Jones"),
        None => (over(Bandwidth::Nrd0)?, "nrd0"),
    };
    let found = if found.bandwidth < narrowest { over(Bandwidth::Fixed(narrowest))? } else { found };
    found.y.iter().all(|y| y.is_finite()).then_some((found, rule))
}

/// A tick for each score; of many scores one for each place, with its number.
fn ticks(sorted: &[f64], axis: &Axis) -> Vec<(f64, u32)> {
    let place = |score: &f64| ((axis.place(*score) * PLACES as f64) as usize).min(PLACES - 1);
    let tick = |ticks: &[f64]| match sorted.len() <= MAX_TICKS {
        true => (ticks[0], ticks.len() as u32),
        false => {
            let share = (place(&ticks[0]) as f64 + 0.5) / PLACES as f64;
            (short(axis.low + share * (axis.high - axis.low)), ticks.len() as u32)
        }
    };
    match sorted.len() <= MAX_TICKS {
        true => sorted.chunk_by(|one, other| one == other).map(tick).collect(),
        false => sorted.chunk_by(|one, other| place(one) == place(other)).map(tick).collect(),
    }
}

/// The quartiles of sorted scores by nearest rank, and their median.
pub(crate) fn quartiles(sorted: &[f64]) -> Option<[f64; 3]> {
    let at = |part: f64| sorted.get(nearest_rank(sorted.len() as u64, part) as usize - 1).copied();
    let middle = bellows_stats::median(sorted)?.value;
    Some([at(0.25)?, middle, at(0.75)?])
}

/// A number with six digits, which keep files small.
pub(crate) fn short(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scores: &[f64], levels: usize) -> Distributions {
        let groups = ScoreGroups::of(scores, levels, |row| row % levels);
        let names: Vec<String> = (0..levels).map(|level| level.to_string()).collect();
        distributions(&groups, &["all".to_owned()], &names, &Axis::around(scores.iter().copied(), 0.1)).unwrap()
    }

    #[test]
    fn each_run_has_a_tick_until_there_are_many() {
        let few = of(&[1.0, 2.0, 2.0, 5.0, 3.0, 4.0], 1);
        assert_eq!(few.panels[0].samples[0].ticks, [(1.0, 1), (2.0, 2), (3.0, 1), (4.0, 1), (5.0, 1)]);
        let scores: Vec<f64> = (0..100_000).map(|n| f64::from(n * 7919 % 1009)).collect();
        let many = &of(&scores, 2).panels[0].samples;
        for sample in many {
            assert!(sample.ticks.len() <= PLACES, "{}", sample.ticks.len());
            assert_eq!(sample.ticks.iter().map(|(_, runs)| *runs).sum::<u32>(), 50_000, "none is left out");
        }
    }

    #[test]
    fn a_density_has_an_area_of_one() {
        let scores: Vec<f64> = (0..400).map(|n| f64::from(n % 40) + f64::from(n / 200 * 100)).collect();
        let found = of(&scores, 1);
        let sample = &found.panels[0].samples[0];
        let step = (found.axis.high - found.axis.low) / (sample.density.len() - 1) as f64;
        let area: f64 = sample.density.iter().sum::<f64>() * step;
        assert!((area - 1.0).abs() < 0.05, "{area}");
        assert!(sample.bandwidth.unwrap() < 20.0 && sample.rule == Some("Sheather\u{2013}Jones"));
    }

    #[test]
    fn few_or_equal_scores_have_no_curve() {
        for scores in [&[][..], &[1.0], &[1.0, 2.0, 3.0], &[5.0; 40], &[f64::NAN; 9]] {
            let found = of(scores, 1);
            assert!(found.panels[0].samples[0].density.is_empty(), "{scores:?}");
        }
        let nearly = [vec![5.0; 40], vec![6.0]].concat();
        assert!(!of(&nearly, 1).panels[0].samples[0].density.is_empty());
    }

    #[test]
    fn many_levels_are_strips() {
        let scores: Vec<f64> = (0..600).map(f64::from).collect();
        let found = of(&scores, 60);
        assert_eq!((found.form, found.panels[0].samples.len()), (Form::Strips, 60));
        assert_eq!(found.panels[0].samples[0].quartiles, Some([120.0, 270.0, 420.0]));
        let groups = ScoreGroups::of(&scores, 600, |row| row);
        let names: Vec<String> = (0..60).map(|level| level.to_string()).collect();
        assert!(distributions(&groups, &names[..10], &names, &Axis::of(0.0, 1.0)).is_none(), "600 are too many");
    }
}
