//! Verdicts about hypotheses, over the values of a published comparison.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;

use bellows_campaign::{
    Campaign, Conclusion, Estimate, JOURNAL, Journal, Plan, Register, Row, RunId, Verdict, register, verdicts,
};
use bellows_testkit::scratch;
use serde_json::json;

use crate::support::campaign;

const CONFIGS: [&str; 5] = ["base", "filter", "ipsec", "l2tpv3", "l2tpv3_ipsec"];

/// The author's exploration found the first; the second is what he then tested on fresh runs.
fn published(level: f64, repeats: u32) -> Campaign {
    campaign(&format!(
        "name = 'vring'\ncommand = ['true']\nrepeats = {repeats}\n\
         [factors]\nsnabb = ['next', 'vring-opt']\nconfig = {CONFIGS:?}\n\
         [score]\npattern = '(?<score>.)'\nunit = 'Gb/s'\n\
         [[hypothesis]]\nname = 'filters are slower'\nterm = ['snabb', 'config']\ndirection = 'less'\n\
         compare = [{{ snabb = 'vring-opt', config = 'filter' }}, {{ snabb = 'next', config = 'filter' }}]\n\
         [[hypothesis]]\nname = 'the base is faster'\nfactor = 'snabb'\ncompare = ['vring-opt', 'next']\n\
         where = {{ config = 'base' }}\ndirection = 'greater'\nlevel = {level:?}\n"
    ))
}

/// Records runs that nobody made: of these blocks, at a time, with scores by snabb and config.
fn record(
    folder: &Path,
    campaign: &Campaign,
    blocks: RangeInclusive<u32>,
    start: &str,
    score: impl Fn(&str, &str) -> f64,
    noise: f64,
) {
    drop(Journal::open(folder, campaign, "").unwrap());
    let (plan, head) = (Plan::new(campaign), Register::read(folder).unwrap().head());
    let mut text = String::new();
    for run in blocks.flat_map(|block| (1..=10).map(move |combination| RunId { block, combination })) {
        let places = campaign.factors.iter().zip(plan.levels(run).unwrap());
        let levels: BTreeMap<&str, &str> =
            places.map(|(factor, &level)| (factor.name.as_str(), factor.levels[level].label.as_str())).collect();
        let value = score(levels["snabb"], levels["config"]) + if run.block % 2 == 0 { noise } else { -noise };
        let row: Row = serde_json::from_value(json!({
            "run": run.to_string(), "campaign": plan.hash(), "levels": levels, "start": start, "seconds": 1.0,
            "scores": [{"name": campaign.scores[0].name, "unit": "Gb/s", "value": value}], "registered": head,
            "machine": {"host": "h", "cpu": "c", "cpus": "0", "os": "o", "load": 0.0, "steal": 0.0,
                "yardstick_before": 1.0, "yardstick_after": 1.0},
        }))
        .unwrap();
        writeln!(text, "{}", serde_json::to_string(&row).unwrap()).unwrap();
    }
    let mut journal = OpenOptions::new().append(true).create(true).open(folder.join(JOURNAL)).unwrap();
    journal.write_all(text.as_bytes()).unwrap();
}

/// The deviation of each run for which an interval of Tukey's has this half width, with cells of `each` runs.
fn noise(half_width: f64, quantile: f64, each: f64) -> f64 {
    let mean_square = (half_width / quantile).powi(2) * each;
    (mean_square * (each - 1.0) / each).sqrt()
}

fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() < tolerance, "{found} {expected}");
}

/// Scores of one name with different units are no sample.
#[test]
fn scores_with_different_units_are_never_one_mean() {
    let (folder, campaign) = (scratch(), published(0.01, 5));
    register(folder.path(), &campaign, &campaign.hypotheses[1]).unwrap();
    record(folder.path(), &campaign, 1..=5, "2999-01-01T00:00:00.000Z", |_, _| 10.0, 1.0);
    let verdict = verdicts(folder.path(), &campaign).unwrap().remove(1);
    assert_eq!((verdict.conclusion, verdict.runs.confirming), (Conclusion::NotConfirmed, 10));
    let path = folder.path().join(JOURNAL);
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = |config: &str| -> String {
        let of_line = |line: &str| match line.contains(&format!("\"config\":\"{config}\"")) {
            true => line.replace("Gb/s", "Mpps"),
            false => line.to_owned(),
        };
        text.split_inclusive('\n').map(of_line).collect()
    };
    std::fs::write(&path, changed("base").replacen("Mpps", "Gb/s", 1)).unwrap();
    let verdict = verdicts(folder.path(), &campaign).unwrap().remove(1);
    assert_eq!((verdict.conclusion, verdict.confirmation, verdict.exploration), (Conclusion::Refused, None, None));
    let why = verdict.refused.unwrap();
    assert!(why.contains("in the units `Gb/s`, `Mpps`") && why.contains("a score of its own"), "{why}");
    // Other runs may have another unit.
    std::fs::write(&path, changed("filter")).unwrap();
    let verdict = verdicts(folder.path(), &campaign).unwrap().remove(1);
    assert_eq!((verdict.conclusion, verdict.runs.confirming), (Conclusion::NotConfirmed, 10));
}

#[test]
fn what_was_found_by_looking_is_confirmed_by_fresh_runs_alone() {
    let folder = scratch();
    let campaign = published(0.01, 210);
    let means = |snabb: &str, config: &str| {
        let place = CONFIGS.iter().position(|it| *it == config).unwrap();
        let [next, opt] = [[14.1, 13.2, 9.4, 11.0, 7.7], [14.9, 13.2 - 0.652_857_14, 9.5, 11.3, 7.6]];
        if snabb == "next" { next[place] } else { opt[place] }
    };
    // The quantiles of the studentized range of R: ten means and 2,090 degrees of freedom, two means and 2,098.
    let explored = noise((1.185_719_9 - 0.119_994_41) / 2.0, 4.478_99, 210.0);
    record(folder.path(), &campaign, 1..=210, "2016-05-01T00:00:00.000Z", means, explored);
    let found = verdicts(folder.path(), &campaign).unwrap();
    assert!(found.iter().all(|it| it.conclusion == Conclusion::Refused && it.registered.is_none()), "{found:#?}");
    let error = register(folder.path(), &campaign, &campaign.hypotheses[0]).unwrap_err().to_string();
    assert!(error.contains("after 210 blocks, which are all made"), "{error}");
    let campaign = published(0.01, 1_260);
    for hypothesis in &campaign.hypotheses {
        register(folder.path(), &campaign, hypothesis).unwrap();
    }
    let found = verdicts(folder.path(), &campaign).unwrap();
    let Verdict { conclusion, refused, runs, confirmation, exploration, .. } = &found[0];
    assert_eq!((conclusion, runs.made_before, runs.confirming, confirmation), (&Conclusion::Refused, 2_100, 0, &None));
    assert!(refused.as_ref().unwrap().contains("10500 runs are not made yet"), "{refused:?}");
    let Estimate { difference, low, high, p, df, means: cells, .. } = exploration.unwrap();
    assert_eq!((df, cells), (2_090.0, 10));
    near(difference, -0.652_857_14, 1e-9);
    near(low, -1.185_719_9, 1e-6);
    near(high, -0.119_994_41, 1e-6);
    near(p, 0.004_237_1, 1e-7);

    let fresh = |snabb: &str, _: &str| if snabb == "next" { 13.0 } else { 13.680_571_4 };
    let half_width = (0.947_701_9 - 0.413_440_9) / 2.0;
    let scatter = noise(half_width, 3.646_09, 1_050.0);
    record(folder.path(), &campaign, 211..=1_260, "2099-05-01T00:00:00.000Z", fresh, scatter);
    let found = verdicts(folder.path(), &campaign).unwrap();
    let Verdict { conclusion, runs, confirmation, .. } = &found[1];
    let Estimate { difference, low, high, confidence, df, corrected_p, p, .. } = confirmation.unwrap();
    assert_eq!((*conclusion, runs.confirming, runs.made_before), (Conclusion::Confirmed, 2_100, 420));
    assert_eq!((df, confidence), (2_098.0, 0.99));
    near(difference, 0.680_571_4, 1e-9);
    near(low, 0.413_440_9, 1e-6);
    near(high, 0.947_701_9, 1e-6);
    assert!(p < 1e-9 && corrected_p == Some(2.0 * p), "{p} {corrected_p:?}");
    // Of the first the fresh runs say the contrary.
    assert_eq!((found[0].conclusion, found[0].confirmation.unwrap().means), (Conclusion::NotConfirmed, 10));
    assert!(found[0].confirmation.unwrap().corrected_p.unwrap() > 0.99);

    // Another text is another hypothesis.
    let changed = published(0.2, 1_260);
    let found = verdicts(folder.path(), &changed).unwrap();
    let why = found[1].refused.as_ref().unwrap();
    assert!(found[1].conclusion == Conclusion::Refused && why.contains("differs from the one of this name"), "{why}");
}
