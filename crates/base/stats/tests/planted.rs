//! Simulated campaigns: without an effect the tests report one as rarely as they say, and with an effect they find it
//! as often as the power calculation says, whatever the shape of the noise.

use std::f64::consts::PI;

use bellows_stats::distribution::{Distribution, StudentizedRange};
use bellows_stats::power::{TTest, runs_needed};
use bellows_stats::{Factor, Model, anova, anova_in_blocks, paired, paired_in_sets, rank_sum, signed_rank, welch};
use fastrand::Rng;

const CAMPAIGNS: usize = 10_000;
const SIGNIFICANCE: f64 = 0.05;
const POWER: f64 = 0.8;

/// Shapes of noise with a standard deviation of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Noise {
    Normal,
    Uniform,
    /// Lognormal.
    Skewed,
    /// Student's t with 5 degrees of freedom.
    HeavyTailed,
    /// Normal, with a trend of three standard deviations over the campaign.
    Drifting,
}

const SHAPES: [Noise; 5] = [Noise::Normal, Noise::Uniform, Noise::Skewed, Noise::HeavyTailed, Noise::Drifting];

impl Noise {
    /// The noise of a run at this part of the campaign's time.
    fn draw(self, random: &mut Rng, time: f64) -> f64 {
        match self {
            Noise::Normal => normal(random),
            Noise::Uniform => (random.f64() - 0.5) * 12f64.sqrt(),
            Noise::Skewed => {
                let square = 0.6f64.powi(2);
                ((0.6 * normal(random)).exp() - (square / 2.0).exp()) / ((square.exp() - 1.0) * square.exp()).sqrt()
            }
            Noise::HeavyTailed => {
                let squares: f64 = (0..5).map(|_| normal(random).powi(2)).sum();
                normal(random) / (squares / 5.0).sqrt() * 0.6f64.sqrt()
            }
            Noise::Drifting => normal(random) + 3.0 * time,
        }
    }

    /// The least percentage of reports without an effect: tests are cautious where the noise is skewed or drifts.
    fn least(self) -> f64 {
        if matches!(self, Noise::Skewed | Noise::Drifting) { 0.0 } else { 4.0 }
    }
}

/// By Box and Muller.
fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (2.0 * PI * random.f64()).cos()
}

/// A campaign of several versions, each of which runs once in every block, in random order.
struct Campaign {
    factors: Vec<Factor>,
    versions: usize,
    blocks: usize,
}

impl Campaign {
    fn new(versions: usize, blocks: usize) -> Campaign {
        let version = (0..versions * blocks).map(|run| (run % versions).to_string());
        let block = (0..versions * blocks).map(|run| (run / versions).to_string());
        Campaign { factors: vec![Factor::new("version", version), Factor::new("block", block)], versions, blocks }
    }

    fn model(&self, formula: &str) -> Model {
        Model::parse(formula, &self.factors).unwrap()
    }

    /// The scores, by block and version; the effect is that of the last version.
    fn scores(&self, noise: Noise, effect: f64, random: &mut Rng) -> Vec<f64> {
        let mut scores = Vec::with_capacity(self.versions * self.blocks);
        let mut order: Vec<usize> = (0..self.versions).collect();
        for block in 0..self.blocks {
            random.shuffle(&mut order);
            let time =
                |version: usize| (block * self.versions + order[version]) as f64 / (self.versions * self.blocks) as f64;
            for version in 0..self.versions {
                let own = if version + 1 == self.versions { effect } else { 0.0 };
                scores.push(50.0 + own + noise.draw(random, time(version)));
            }
        }
        scores
    }

    /// The percentage of campaigns in which `finds` an effect.
    fn found(&self, noise: Noise, effect: f64, mut finds: impl FnMut(&[f64]) -> bool) -> f64 {
        let mut random = Rng::with_seed(20 + noise as u64);
        let found = (0..CAMPAIGNS).filter(|_| finds(&self.scores(noise, effect, &mut random))).count();
        found as f64 * 100.0 / CAMPAIGNS as f64
    }

    fn p_of_version(&self, scores: &[f64], model: &Model) -> f64 {
        anova(scores, &self.factors, model).unwrap().term("version").unwrap().p
    }
}

/// The scores of the two versions.
fn samples(scores: &[f64]) -> (Vec<f64>, Vec<f64>) {
    (scores.iter().copied().step_by(2).collect(), scores.iter().copied().skip(1).step_by(2).collect())
}

#[test]
fn an_effect_that_does_not_exist_is_rarely_reported() {
    let campaign = Campaign::new(2, 20);
    let plain = campaign.model("version");
    for noise in SHAPES {
        let mut reports = [("analysis of variance", 0), ("Welch", 0), ("rank sum", 0)];
        campaign.found(noise, 0.0, |scores| {
            let (ones, others) = samples(scores);
            let ps = [
                campaign.p_of_version(scores, &plain),
                welch(&ones, &others, 0.95).unwrap().p,
                rank_sum(&ones, &others).unwrap().p,
            ];
            reports.iter_mut().zip(ps).for_each(|(report, p)| report.1 += usize::from(p < SIGNIFICANCE));
            false
        });
        for (method, count) in reports {
            let percent = count as f64 * 100.0 / CAMPAIGNS as f64;
            assert!((noise.least()..=6.0).contains(&percent), "{noise:?}, {method}: {percent} percent");
        }
    }
}

/// The differences of the two versions in each block.
fn of_blocks(scores: &[f64]) -> Vec<f64> {
    scores.chunks(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Pairs take skewness and drift away: the tests are not even cautious.
#[test]
fn pairs_without_a_difference_rarely_seem_to_differ() {
    let campaign = Campaign::new(2, 20);
    for noise in SHAPES {
        let mut reports = [("Student", 0), ("signed ranks", 0), ("several sets", 0)];
        campaign.found(noise, 0.0, |scores| {
            let differences = of_blocks(scores);
            let (some, others) = differences.split_at(6);
            let ps = [
                paired(&differences, 0.95).unwrap().p,
                signed_rank(&differences).unwrap().p,
                paired_in_sets(&[some, others], 0.95).unwrap().p,
            ];
            reports.iter_mut().zip(ps).for_each(|(report, p)| report.1 += usize::from(p < SIGNIFICANCE));
            false
        });
        for (method, count) in reports {
            let percent = count as f64 * 100.0 / CAMPAIGNS as f64;
            assert!((4.0..=6.0).contains(&percent), "{noise:?}, {method}: {percent} percent");
        }
    }
}

#[test]
fn pairs_show_the_effect_for_which_they_are_enough() {
    // The deviation of a difference is that of two runs.
    let pairs = runs_needed(TTest::Pairs, 0.5f64.sqrt(), SIGNIFICANCE, POWER).unwrap();
    let campaign = Campaign::new(2, pairs as usize);
    for noise in SHAPES {
        let percent = campaign.found(noise, 1.0, |scores| paired(&of_blocks(scores), 0.95).unwrap().p < SIGNIFICANCE);
        assert!((78.0..=90.0).contains(&percent), "{noise:?}: {percent} percent with {pairs} pairs");
    }
}

/// Blocks take the drift away: the test within them is not even cautious.
#[test]
fn blocks_take_drift_away() {
    let campaign = Campaign::new(2, 20);
    let blocked = campaign.model("block + version");
    let percent = campaign.found(Noise::Drifting, 0.0, |scores| campaign.p_of_version(scores, &blocked) < SIGNIFICANCE);
    assert!((4.0..=6.0).contains(&percent), "{percent} percent");
}

/// A campaign on machines that differ by three standard deviations of the noise. Each has made some blocks, and some of
/// their runs have failed.
struct OnMachines {
    campaign: Campaign,
    machines: Factor,
    model: Model,
}

impl OnMachines {
    fn new(blocks: usize) -> OnMachines {
        let campaign = Campaign::new(2, blocks);
        // The first machine has made most blocks, the last one a few.
        let machine = |run: usize| (run / 2 % 7).saturating_sub(3).div_ceil(2);
        let machines = Factor::new("machine", (0..2 * blocks).map(|run| machine(run).to_string()));
        let model = campaign.model("version");
        OnMachines { campaign, machines, model }
    }

    /// What campaigns report: the percentage of those with an effect with the machines in the model, and without.
    fn found(&self, noise: Noise, effect: f64, failed: f64) -> [f64; 2] {
        let mut failures = Rng::with_seed(7);
        let mut without = 0;
        let with = self.campaign.found(noise, effect, |scores| {
            let on_machine = |(score, machine): (&f64, &u32)| match failures.f64() < failed {
                true => f64::NAN,
                false => score + 3.0 * f64::from(*machine),
            };
            let scores: Vec<f64> = scores.iter().zip(self.machines.codes()).map(on_machine).collect();
            let found = anova_in_blocks(&scores, &self.campaign.factors, &self.model, &self.machines).unwrap();
            without += u32::from(self.campaign.p_of_version(&scores, &self.model) < SIGNIFICANCE);
            let contrast = &found.common_contrasts("version", &[(1, 0)], 1.0 - SIGNIFICANCE).unwrap().contrasts[0];
            assert_eq!(contrast.p < SIGNIFICANCE, contrast.low > 0.0 || contrast.high < 0.0);
            contrast.p < SIGNIFICANCE
        });
        [with, f64::from(without) * 100.0 / CAMPAIGNS as f64]
    }
}

#[test]
fn machines_do_not_feign_an_effect() {
    let campaign = OnMachines::new(21);
    for noise in SHAPES {
        let [percent, _] = campaign.found(noise, 0.0, 0.1);
        assert!((noise.least()..=6.0).contains(&percent), "{noise:?}: {percent} percent");
    }
}

#[test]
fn machines_do_not_hide_an_effect() {
    let runs = runs_needed(TTest::TwoSamples, 1.0, SIGNIFICANCE, POWER).unwrap();
    let campaign = OnMachines::new(runs as usize);
    for noise in SHAPES.into_iter().filter(|noise| *noise != Noise::Drifting) {
        let [percent, without] = campaign.found(noise, 1.0, 0.0);
        assert!((78.0..=90.0).contains(&percent), "{noise:?}: {percent} percent with {runs} runs");
        assert!(without < 40.0, "{noise:?}: {without} percent find it without the machines in the model");
    }
}

/// Any report among all comparisons of four versions counts.
#[test]
fn many_comparisons_report_no_more_than_one() {
    let campaign = Campaign::new(4, 12);
    let model = campaign.model("version");
    let limit = StudentizedRange::new(4, 44.0).upper_quantile(SIGNIFICANCE);
    let mut checked = 0;
    for noise in SHAPES {
        let percent = campaign.found(noise, 0.0, |scores| {
            let found = anova(scores, &campaign.factors, &model).unwrap();
            let means = found.means("version").unwrap();
            let [low, high] = [f64::min, f64::max].map(|pick| means.iter().map(|mean| mean.mean).reduce(pick).unwrap());
            let is_found = (high - low) / (found.residual_mean_square() / 12.0).sqrt() > limit;
            // The public comparisons say the same; they are too slow for all campaigns.
            if checked < 40 {
                let tukey = found.tukey("version", 1.0 - SIGNIFICANCE).unwrap();
                let reports = tukey.contrasts.iter().any(|contrast| contrast.p < SIGNIFICANCE);
                let excludes = tukey.contrasts.iter().any(|contrast| contrast.low > 0.0 || contrast.high < 0.0);
                assert_eq!((reports, excludes), (is_found, is_found));
                checked += 1;
            }
            is_found
        });
        assert!((noise.least()..=6.0).contains(&percent), "{noise:?}: {percent} percent");
    }
}

#[test]
fn an_effect_of_one_standard_deviation_is_found_with_the_runs_that_are_asked_for() {
    let runs = runs_needed(TTest::TwoSamples, 1.0, SIGNIFICANCE, POWER).unwrap();
    // Within blocks the differences count, of which the deviation is that of two runs.
    let pairs = runs_needed(TTest::Pairs, 0.5f64.sqrt(), SIGNIFICANCE, POWER).unwrap();
    for noise in SHAPES {
        let (blocks, formula) = if noise == Noise::Drifting { (pairs, "block + version") } else { (runs, "version") };
        let campaign = Campaign::new(2, blocks as usize);
        let model = campaign.model(formula);
        let percent = campaign.found(noise, 1.0, |scores| campaign.p_of_version(scores, &model) < SIGNIFICANCE);
        assert!((78.0..=90.0).contains(&percent), "{noise:?}: {percent} percent with {blocks} runs");
    }
}
