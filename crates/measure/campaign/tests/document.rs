//! The statistics of a published comparison of two versions of a virtual network device, by the rules of registered
//! hypotheses: what its author found in his first runs is refused, and what fresh runs say is confirmed.
//!
//! The runs have his means and his noise, as in the tests of the statistics.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bellows_campaign::{
    Campaign, Conclusion, Estimate, ExecuteError, Executor, Journal, JournalError, Machine, Plan, Row, RunId, Score,
    Stop, Verdict, now, parse, register, run, verdicts,
};
use bellows_testkit::scratch;

/// The first runs: 210 blocks of ten combinations.
const EXPLORATION: &str = r#"
name = "exploration"
repeats = 210
command = ["iperf"]
factors.snabb = ["next", "vring-opt"]
factors.config = ["base", "filter", "ipsec", "l2tpv3", "l2tpv3_ipsec"]
score = { name = "rate", unit = "Gb/s", better = "higher", pattern = '(?<rate>.*)' }
[[hypothesis]]
name = "the new version is slower with a filter"
term = ["snabb", "config"]
compare = [{ snabb = "vring-opt", config = "filter" }, { snabb = "next", config = "filter" }]
"#;

/// The fresh runs: 1,050 blocks of two versions.
const CONFIRMATION: &str = r#"
name = "confirmation"
repeats = 1050
command = ["iperf"]
factors.snabb = ["next", "vring-opt"]
score = { name = "rate", unit = "Gb/s", better = "higher", pattern = '(?<rate>.*)' }
[[hypothesis]]
name = "the new version has another rate with a filter"
factor = "snabb"
compare = ["vring-opt", "next"]
level = 0.01
"#;

/// Gives each run the mean of its combination, with noise that has exactly one mean square.
struct Published<'c> {
    campaign: &'c Campaign,
    plan: Plan,
    means: fn(&[usize]) -> f64,
    noise: f64,
}

impl<'c> Published<'c> {
    /// Runs whose intervals have this half width, by the quantile of the studentized range.
    fn new(campaign: &'c Campaign, means: fn(&[usize]) -> f64, half_width: f64, quantile: f64) -> Published<'c> {
        let plan = Plan::new(campaign);
        let (blocks, runs) = (f64::from(campaign.repeats), plan.runs_in_all() as f64);
        let mean_square = (half_width / quantile).powi(2) * blocks;
        // Half of a combination's runs are above its mean and half are below, by the same distance.
        let noise = (mean_square * (runs - plan.combinations() as f64) / runs).sqrt();
        Published { campaign, plan, means, noise }
    }
}

impl Executor for Published<'_> {
    fn begin(&mut self, _: RunId, _: &Stop) -> Result<(), ExecuteError> {
        Ok(())
    }

    fn execute(&mut self, run: RunId, _: &Stop) -> Result<Row, ExecuteError> {
        let levels = self.plan.levels(run).ok_or(ExecuteError::NoRun(run))?;
        let named = |(factor, level): (&bellows_campaign::Factor, &usize)| {
            (factor.name.clone(), factor.levels[*level].label.clone())
        };
        let value = (self.means)(levels) + self.noise * [1.0, -1.0][run.block as usize % 2];
        let machine = Machine {
            host: "murren".to_owned(),
            cpu: "unknown".to_owned(),
            cpus: "0".to_owned(),
            os: "Linux".to_owned(),
            load: 0.0,
            steal: None,
            yardstick_before: 1.0,
            yardstick_after: 1.0,
        };
        Ok(Row {
            run,
            campaign: self.plan.hash(),
            levels: self.campaign.factors.iter().zip(levels).map(named).collect(),
            scores: vec![Score { name: "rate".to_owned(), unit: "Gb/s".to_owned(), value: Some(value), failure: None }],
            failure: None,
            disturbed: Vec::new(),
            start: now(),
            seconds: 1.0,
            machine,
            versions: BTreeMap::new(),
            registered: None,
            known: None,
        })
    }

    fn end(&mut self) -> Result<(), ExecuteError> {
        Ok(())
    }
}

fn make_all(folder: &Path, text: &str, campaign: &Campaign, mut published: Published<'_>) {
    let mut journal = Journal::open(folder, campaign, text).unwrap();
    let summary = run(&mut journal, &mut published, &Stop::new().unwrap(), &mut ()).unwrap();
    assert_eq!((summary.done, summary.failed), (2_100, 0));
}

fn verdict(folder: &Path, campaign: &Campaign) -> Verdict {
    verdicts(folder, campaign).unwrap().remove(0)
}

fn near(ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() < 1e-6, "{ours} {theirs}");
}

#[test]
fn what_was_found_in_the_first_runs_is_refused() {
    let (folder, campaign) = (scratch(), parse("document.toml", EXPLORATION).unwrap());
    // By version, then by configuration.
    let means = |levels: &[usize]| {
        let next = [14.1, 13.2, 9.4, 11.0, 7.7][levels[1]];
        next + if levels[0] == 0 { 0.0 } else { [0.8, -0.652_857_14, 0.1, 0.3, -0.1][levels[1]] }
    };
    // The quantile of ten means and 2,090 degrees of freedom.
    let published = Published::new(&campaign, means, (1.185_719_9 - 0.119_994_41) / 2.0, 4.478_99);
    make_all(folder.path(), EXPLORATION, &campaign, published);
    let error = register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap_err();
    assert!(matches!(error, JournalError::NoRunsLeft { repeats: 210, .. }), "{error}");
    let Verdict { conclusion, confirmation, exploration, refused, .. } = verdict(folder.path(), &campaign);
    assert_eq!((conclusion, confirmation), (Conclusion::Refused, None));
    assert!(refused.unwrap().contains("registered"));
    let Estimate { difference, low, high, p, means, df, .. } = exploration.unwrap();
    near(difference, -0.652_857_14);
    near(low, -1.185_719_9);
    // In the author's text this end is -0.199, which is a slip: the line that he quotes has this value.
    near(high, -0.119_994_41);
    near(p, 0.004_237_1);
    assert_eq!((means, df), (10, 2_090.0));
}

#[test]
fn what_fresh_runs_say_is_confirmed() {
    let (folder, campaign) = (scratch(), parse("document.toml", CONFIRMATION).unwrap());
    register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap();
    // Times have milliseconds.
    std::thread::sleep(Duration::from_millis(2));
    // The quantile of two means and 2,098 degrees of freedom.
    let means = |levels: &[usize]| [13.0, 13.680_571_4][levels[0]];
    let published = Published::new(&campaign, means, (0.947_701_9 - 0.413_440_9) / 2.0, 3.646_09);
    make_all(folder.path(), CONFIRMATION, &campaign, published);
    let Verdict { conclusion, confirmation, .. } = verdict(folder.path(), &campaign);
    assert_eq!(conclusion, Conclusion::Confirmed);
    let Estimate { difference, low, high, p, confidence, means, df, .. } = confirmation.unwrap();
    near(difference, 0.680_571_4);
    near(low, 0.413_440_9);
    near(high, 0.947_701_9);
    assert!(p < 1e-9 && confidence == 0.99, "{p} {confidence}");
    assert_eq!((means, df), (2, 2_098.0));
}
