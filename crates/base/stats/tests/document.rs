//! The statistics of a published comparison of two versions of a virtual network device: its values come from data with
//! its means and its noise.
//!
//! Exploration: `TukeyHSD(aov(score ~ snabb*config))` over 2,100 runs of ten combinations, from which the author took
//! one line, then his conclusion from 2,100 fresh runs of one configuration. In his text the lower end of the first
//! interval is -0.199; this is a slip, for the line that he quotes, and the method, have -0.11999441 at that place, and
//! it is the end nearer to 0.

use bellows_stats::anova::Contrast;
use bellows_stats::distribution::StudentT;
use bellows_stats::{Anova, Factor, Model, anova};

/// Runs of `groups` with these means, `each` runs a group, of which the noise has exactly this mean square.
fn scores(means: &[f64], each: usize, mean_square: f64) -> Vec<f64> {
    // Half of a group's runs are above the mean and half are below by the same distance.
    let runs = means.len() * each;
    let distance = (mean_square * (runs - means.len()) as f64 / runs as f64).sqrt();
    let run = |run: usize| means[run / each] + distance * [1.0, -1.0][run % 2];
    (0..runs).map(run).collect()
}

/// The mean square of noise with which an interval of this half width comes out.
fn mean_square(half_width: f64, quantile: f64, each: usize) -> f64 {
    (half_width / quantile).powi(2) * each as f64
}

fn exploration() -> Anova {
    let configs = ["base", "filter", "ipsec", "l2tpv3", "l2tpv3_ipsec"];
    let combination = |run: usize| (run / 210 % 2, run / 420);
    let factors = [
        Factor::new("snabb", (0..2_100).map(|run| ["next", "vring-opt"][combination(run).0])),
        Factor::new("config", (0..2_100).map(|run| configs[combination(run).1])),
    ];
    let means = [14.1, 14.9, 13.2, 13.2 - 0.652_857_14, 9.4, 9.5, 11.0, 11.3, 7.7, 7.6];
    // The quantile of the studentized range of ten means and 2,090 degrees of freedom, from R.
    let scores = scores(&means, 210, mean_square((1.185_719_9 - 0.119_994_41) / 2.0, 4.478_99, 210));
    anova(&scores, &factors, &Model::parse("snabb * config", &factors).unwrap()).unwrap()
}

fn contrast(found: &Anova, term: &str, confidence: f64, label: &str) -> Contrast {
    let tukey = found.tukey(term, confidence).unwrap();
    tukey.contrasts.into_iter().find(|contrast| contrast.label == label).unwrap()
}

#[test]
fn the_exploration_is_that_of_the_document() {
    let found = exploration();
    assert_eq!((found.residual_df, found.is_balanced), (2_090.0, true));
    let label = "vring-opt:filter - next:filter";
    let at_95 = contrast(&found, "snabb:config", 0.95, label);
    let near = |ours: f64, theirs: f64, tolerance: f64| assert!((ours - theirs).abs() < tolerance, "{ours} {theirs}");
    near(at_95.difference, -0.652_857_14, 1e-9);
    near(at_95.low, -1.185_719_9, 1e-6);
    near(at_95.high, -0.119_994_41, 1e-6);
    near(at_95.p, 0.004_237_1, 1e-7);
    // What he found with 99 percent, from the same noise.
    let at_99 = contrast(&found, "snabb:config", 0.99, label);
    near(at_99.low, -1.267_297_2, 2e-6);
    near(at_99.high, -0.038_417_072, 2e-6);
    assert_eq!((at_99.difference, at_99.p), (at_95.difference, at_95.p));
    near((at_99.high - at_99.low) / (at_95.high - at_95.low), 1.153_09, 5e-6);
    assert_eq!(found.tukey("snabb:config", 0.95).unwrap().contrasts.len(), 45);
}

#[test]
fn the_conclusion_is_that_of_the_document() {
    let factors = [Factor::new("snabb", (0..2_100).map(|run| ["next", "vring-opt"][run / 1_050]))];
    let half_width = (0.947_701_9 - 0.413_440_9) / 2.0;
    let noise = mean_square(half_width, 3.646_09, 1_050);
    let scores = scores(&[13.0, 13.680_571_4], 1_050, noise);
    let found = anova(&scores, &factors, &Model::parse("snabb", &factors).unwrap()).unwrap();
    assert_eq!(found.residual_df, 2_098.0);
    let contrast = contrast(&found, "snabb", 0.99, "vring-opt - next");
    let near = |ours: f64, theirs: f64, tolerance: f64| assert!((ours - theirs).abs() < tolerance, "{ours} {theirs}");
    near(contrast.difference, 0.680_571_4, 1e-9);
    near(contrast.low, 0.413_440_9, 1e-6);
    near(contrast.high, 0.947_701_9, 1e-6);
    // "0" there: R prints no more digits. Two means are compared as by Student's t.
    let t = contrast.difference / (noise * 2.0 / 1_050.0).sqrt();
    let p = StudentT { df: 2_098.0 }.two_sided(t);
    assert!((contrast.p / p - 1.0).abs() < 1e-8 && contrast.p < 1e-9, "{} {p}", contrast.p);
}
