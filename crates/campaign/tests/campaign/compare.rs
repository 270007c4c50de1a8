//! Comparisons of two levels by pairs of runs, with real programs.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use bellows_campaign::{
    Campaign, CompareError, CompareOptions, Compared, Comparison, JOURNAL, Journal, Observer, PairConclusion, Plan,
    Progress, Row, RunId, Scale, Stop, parse, read_rows,
};
use bellows_testkit::scratch;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{campaign, go_on, watch};

/// A campaign of two versions, whose runs take a time that depends on the version, the size and the block.
fn timed(line: &str, more: &str) -> Campaign {
    campaign(&format!(
        "name = 'timed'\npaired = 'version'\ncommand = {{ shell = '''{line}''' }}\n{more}\n\
         [factors]\n\
         version = [{{ label = 'next', time = 1000, salt = 7 }}, {{ label = 'opt', time = 1100, salt = 11 }}]\n\
         size = [64, 1500]\n\
         [score]\nname = 'time'\npattern = 'took (?<time>\\S+)'\nunit = 'µs'\n"
    ))
}

/// All runs of a block share some noise, and each has its own.
const NOISY: &str = "echo took $(( {version.time} + {block} * 53 % 211 + ({block} + {size}) * {version.salt} % 17 ))";

fn compare(folder: &Path, campaign: &Campaign) -> Comparison {
    Comparison::read(folder, campaign, &CompareOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// What a campaign says that is made from the start.
fn compared(campaign: &Campaign, options: &CompareOptions) -> Comparison {
    let folder = scratch();
    go_on(folder.path(), campaign);
    Comparison::read(folder.path(), campaign, options).unwrap_or_else(|error| panic!("{error}"))
}

fn conclusions(comparison: &Comparison) -> Vec<PairConclusion> {
    comparison.results.iter().map(|it| it.conclusion).collect()
}

#[test]
fn a_planted_effect_is_found_with_its_direction() {
    for (better, conclusion, is_slower, word) in [
        ("better = 'lower'", PairConclusion::Slower, true, "slower"),
        ("better = 'higher'", PairConclusion::Faster, false, "faster"),
        ("", PairConclusion::Higher, false, "higher"),
    ] {
        let mut campaign = timed(NOISY, "repeats = 12");
        campaign.scores[0].better = match better {
            "" => None,
            line => {
                parse(
                    "x",
                    &format!("name='x'\ncommand=['x']\n[factors]\na=[1]\n[score]\npattern='(?<a>.)'\nunit='s'\n{line}"),
                )
                .unwrap()
                .scores[0]
                    .better
            }
        };
        let found = compared(&campaign, &CompareOptions::default());
        assert_eq!(conclusions(&found), [conclusion; 2]);
        assert_eq!((found.is_slower(), found.knows_better()), (is_slower, !better.is_empty()));
        for it in found.results.iter().chain(&found.whole) {
            let effect = it.effect.unwrap();
            // 100 of 1000 to 1210.
            assert!((0.08..0.1).contains(&effect.difference), "{it:#?}");
            assert!(effect.low > 0.07 && effect.high < 0.11 && effect.scale == Scale::Share, "{it:#?}");
            assert!(it.combinations == 2 || effect.medians.unwrap()[0] > 0.07, "{it:#?}");
        }
        assert_eq!((found.results[0].pairs, found.whole[0].pairs, found.single_runs), (12, 24, 0));
        let text = found.to_string();
        let line = text.lines().find(|line| line.starts_with("size 64: ")).unwrap();
        assert!(line.contains("opt is 9.") || line.contains("opt is 8."), "{text}");
        assert!(line.contains(&format!(" % {word} (95 percent interval ")) && line.contains("; 12 pairs)"), "{text}");
        assert!(text.contains("all 2 together: opt is"), "{text}");
    }
}

#[test]
fn without_a_difference_the_smallest_one_is_stated_that_would_have_been_found() {
    let mut campaign = timed(NOISY, "repeats = 10");
    let time = campaign.factors[0].levels[0].values["time"].clone();
    campaign.factors[0].levels[1].values.insert("time".to_owned(), time);
    let found = compared(&campaign, &CompareOptions::default());
    assert_eq!(conclusions(&found), [PairConclusion::NoDifference; 2]);
    let detectable = found.results[0].effect.unwrap().detectable.unwrap();
    assert!((0.001..0.02).contains(&detectable), "{detectable}");
    let text = found.to_string();
    assert!(text.contains("no difference that 10 pairs can show (95 percent interval -"), "{text}");
    assert!(text.contains(" % would have been found with a probability of 0.8"), "{text}");

    let options = CompareOptions { margin: Some(0.001), ..CompareOptions::default() };
    let found = compared(&campaign, &options);
    assert_eq!(conclusions(&found), [PairConclusion::NoDifference; 2]);
    assert!(found.to_string().contains("); nor are they shown to be equal within 0.1 %; a difference of "), "{found}");

    let options = CompareOptions { margin: Some(0.03), ..CompareOptions::default() };
    let found = compared(&campaign, &options);
    assert_eq!(conclusions(&found), [PairConclusion::Equal; 2]);
    assert!(found.to_string().contains("equal within 3.0 % (95 percent interval -"), "{found}");
}

#[test]
fn a_slower_version_within_the_margin_is_not_too_slow() {
    let mut campaign = timed(NOISY, "repeats = 20");
    campaign.scores[0].better = Some(bellows_campaign::Better::Lower);
    let found = compared(&campaign, &CompareOptions { margin: Some(0.2), ..CompareOptions::default() });
    assert_eq!(conclusions(&found), [PairConclusion::Slower; 2]);
    assert!(!found.is_slower() && found.to_string().contains("), which is within 20.0 %"), "{found}");
    // It is shown to be slower, and not to be slower by more than the margin.
    let folder = scratch();
    record(folder.path(), &campaign, |run, version| {
        let noise = f64::from(run.block * if version == "opt" { 370 } else { 310 } % 110);
        (1_000.0 + noise + if version == "opt" { 100.0 } else { 0.0 }, false)
    });
    let of = |margin: f64| {
        let options = CompareOptions { margin: Some(margin), ..CompareOptions::default() };
        Comparison::read(folder.path(), &campaign, &options).unwrap()
    };
    let found = of(0.09);
    assert_eq!(conclusions(&found), [PairConclusion::Slower; 2]);
    assert!(!found.is_slower() && found.to_string().contains("), which may be more or less than 9.0 %"), "{found}");
    let found = of(0.01);
    assert!(found.is_slower() && found.to_string().contains("), which is more than 1.0 %"), "{found}");
}

#[test]
fn a_pair_without_a_score_is_counted_and_named() {
    let campaign = timed(&format!("test {{version}}{{block}} = opt3 && exit 4; {NOISY}"), "repeats = 8");
    let found = compared(&campaign, &CompareOptions::default());
    let it = &found.results[0];
    assert_eq!((it.pairs, it.lost.len(), it.conclusion), (7, 1, PairConclusion::Higher));
    assert_eq!((it.lost[0].block, it.lost[0].has_old, it.lost[0].has_new), (3, true, false));
    let (run, why) = it.lost[0].runs.iter().next().unwrap();
    assert!(run.starts_with("3.") && why.contains("exit code 4"), "{it:?}");
    let text = found.to_string();
    assert!(text.contains("1 pair does not count (1 without a score of NEW): 3."), "{text}");
}

#[test]
fn a_version_that_fails_more_often_is_slower_than_any() {
    let line = format!("test {{version}} = opt -a {{block}} -gt 2 && exit 4; {NOISY}");
    let found = compared(&timed(&line, "repeats = 12"), &CompareOptions::default());
    assert_eq!(conclusions(&found), [PairConclusion::NewFails; 2]);
    let failures = found.results[0].failures;
    assert_eq!((failures.new_alone, failures.old_alone, failures.both), (10, 0, 2));
    assert!(failures.corrected_p < 0.05 && found.is_slower(), "{found:#?}");
    let text = found.to_string();
    assert!(
        text.contains("size 64: opt has no score in 10 of the 12 pairs in which next has one, and the reverse in 0 "),
        "{text}"
    );
    // A run that fails now and then shows nothing.
    let line = format!("test {{block}} = 3 && exit 4; test {{version}}{{block}} = opt5 && exit 4; {NOISY}");
    let found = compared(&timed(&line, "repeats = 8"), &CompareOptions::default());
    assert!(!found.is_slower() && found.results[0].failures.new_alone == 1, "{found:#?}");
}

#[test]
fn a_version_that_always_fails_is_slower_than_any() {
    let campaign = timed(&format!("test {{version}} = opt && exit 4; {NOISY}"), "repeats = 3");
    let found = compared(&campaign, &CompareOptions::default());
    assert_eq!(conclusions(&found), [PairConclusion::NewFails; 2]);
    assert!(found.is_slower() && found.whole.is_empty() && found.results[0].lost.len() == 3, "{found:#?}");
    assert!(found.to_string().contains("size 64: opt has no score, and next has some"), "{found}");
    let campaign = timed("exit 3", "repeats = 2");
    let found = compared(&campaign, &CompareOptions::default());
    assert_eq!(conclusions(&found), [PairConclusion::TooFewPairs; 2]);
    assert!(!found.is_slower() && found.to_string().contains("0 pairs with both scores"), "{found}");
}

#[test]
fn scores_that_are_not_above_zero_are_compared_in_their_unit() {
    let campaign = timed("echo took $(( {version.time} - 1050 + {block} * {version.salt} % 5 ))", "repeats = 9");
    let found = compared(&campaign, &CompareOptions { margin: Some(0.5), ..CompareOptions::default() });
    let effect = found.results[0].effect.unwrap();
    assert_eq!((effect.scale, effect.medians, effect.equal_p), (Scale::Unit, None, None));
    assert!((95.0..105.0).contains(&effect.difference) && found.whole[0].conclusion == PairConclusion::Higher);
    let text = found.to_string();
    assert!(text.contains(" µs higher (95 percent interval ") && text.contains("the margin is a share"), "{text}");
}

/// Equal differences without any scatter are judged by their number.
#[test]
fn scores_without_scatter_are_judged_by_their_number() {
    let line = "echo took {version.time}";
    for (repeats, conclusion) in [(4, PairConclusion::NoDifference), (9, PairConclusion::Higher)] {
        let found = compared(&timed(line, &format!("repeats = {repeats}")), &CompareOptions::default());
        assert_eq!(conclusions(&found), [conclusion; 2], "{repeats}");
        let effect = found.results[0].effect.unwrap();
        assert!((effect.low - 0.1).abs() < 1e-9 && (effect.high - 0.1).abs() < 1e-9 && effect.detectable.is_none());
        let together = &found.whole[0];
        assert_eq!((together.conclusion, together.pairs), (PairConclusion::Higher, 2 * repeats), "{together:#?}");
        let text = found.to_string();
        let same = format!("all {repeats} pairs differ by the same 10.0 %");
        assert!(text.contains(&same) && text.contains("all 2 together: opt is 10.0 % higher"), "{text}");
        assert_eq!(
            text.contains("no difference that 4 pairs can show (") && text.contains("at least 7 are needed"),
            repeats == 4
        );
    }
    let found = compared(&timed("echo took 5", "repeats = 3"), &CompareOptions::default());
    assert_eq!((conclusions(&found)[0], found.results[0].effect.unwrap().p), (PairConclusion::NoDifference, 1.0));
}

/// Each figure of a report is a score, and is there in some combinations only.
#[test]
fn the_figures_of_several_benches_are_compared_each_and_together() {
    let campaign = campaign(
        r#"
name = "benches"
paired = "build"
repeats = 8
command = { shell = '''
    salt=$(( {block} * {build.salt} % 7 ))
    case {bench} in
        ring) printf '{{"results":[{{"case":"push","unit":"clocks","median":%s}},' $(( {build.push} + salt ))
              printf '{{"case":"pop","unit":"clocks","median":%s}}]}}\n' $(( 300 + salt )) ;;
        chain) printf '{{"results":[{{"case":"chain","unit":"clocks","median":%s}}]}}\n' $(( 700 + salt )) ;;
    esac
''' }
[factors]
build = [{ label = "last", push = 200, salt = 3 }, { label = "now", push = 260, salt = 5 }]
bench = ["ring", "chain"]
[score]
reads = "bellows-bench"
better = "lower"
"#,
    );
    let found = compared(&campaign, &CompareOptions::default());
    let by_name: BTreeMap<&str, &Compared> = found.results.iter().map(|it| (it.score.as_str(), it)).collect();
    assert_eq!(by_name.keys().copied().collect::<Vec<_>>(), ["chain", "pop", "push"]);
    assert_eq!(by_name["push"].conclusion, PairConclusion::Slower);
    assert_eq!(by_name["pop"].conclusion, PairConclusion::NoDifference);
    assert_eq!((by_name["chain"].levels["bench"].as_str(), by_name["push"].unit.as_str()), ("chain", "clocks"));
    // The mean over benches: half of the mean of the two figures of one, of which one is 1.3 times as large.
    assert_eq!(found.whole[0].pairs, 16, "pairs of runs");
    let [all] = found.whole.as_slice() else { panic!("{found:#?}") };
    let effect = all.effect.unwrap();
    assert!(all.conclusion == PairConclusion::Slower && (-0.08..-0.05).contains(&effect.difference), "{all:#?}");
    assert!(found.is_slower());
    let text = found.to_string();
    assert!(
        text.contains("bench ring, push: now is ") && text.contains("all scores, all 3 together: now is "),
        "{text}"
    );
}

/// Stops after some runs.
struct StopAfter<'s>(usize, &'s Stop);

impl Observer for StopAfter<'_> {
    fn started(&mut self, _: RunId, _: &Progress) {}

    fn recorded(&mut self, _: &Row, progress: &Progress) {
        if progress.done == self.0 {
            self.1.set();
        }
    }
}

#[test]
fn an_interrupted_comparison_goes_on_with_the_other_run_of_the_pair() {
    let folder = scratch();
    let campaign = timed(NOISY, "repeats = 3");
    let stop = Stop::new().unwrap();
    let summary = watch(folder.path(), &campaign, &stop, &mut StopAfter(5, &stop));
    assert!(summary.interrupted && summary.done == 5);
    let found = compare(folder.path(), &campaign);
    assert_eq!((found.runs, found.single_runs, found.results[0].pairs), (5, 1, 1));
    assert!(found.to_string().contains("1 pair with both scores, and at least 2 are needed"), "{found}");
    go_on(folder.path(), &campaign);
    let rows = read_rows(folder.path()).unwrap();
    let of = |row: &Row| (row.run.block, row.levels["size"].clone());
    assert!(rows.chunks(2).all(|pair| of(&pair[0]) == of(&pair[1])), "the runs of a pair follow one another");
    let found = compare(folder.path(), &campaign);
    assert_eq!((found.runs, found.single_runs, found.results[0].pairs), (12, 0, 3));
}

/// Records runs that nobody made, all on one machine.
fn record(folder: &Path, campaign: &Campaign, score: impl Fn(RunId, &str) -> (f64, bool)) {
    record_on(folder, campaign, score, |_, _| ("h", "c"));
}

/// The same on machines of these names and processors.
fn record_on(
    folder: &Path,
    campaign: &Campaign,
    score: impl Fn(RunId, &str) -> (f64, bool),
    machine: impl Fn(RunId, &str) -> (&'static str, &'static str),
) {
    drop(Journal::open(folder, campaign, "").unwrap());
    let plan = Plan::new(campaign);
    let mut journal = OpenOptions::new().append(true).open(folder.join(JOURNAL)).unwrap();
    for run in plan.runs() {
        let places = campaign.factors.iter().zip(plan.levels(run).unwrap());
        let levels: BTreeMap<&str, &str> =
            places.map(|(factor, &level)| (factor.name.as_str(), factor.levels[level].label.as_str())).collect();
        let (value, is_disturbed) = score(run, levels["version"]);
        let (host, cpu) = machine(run, levels["version"]);
        let disturbed: Vec<&str> = is_disturbed.then_some("the host took 30 % of the time").into_iter().collect();
        let row = json!({
            "run": run.to_string(), "campaign": plan.hash(), "levels": levels, "start": "2030-01-01T00:00:00.000Z",
            "seconds": 1.0, "scores": [{"name": "time", "unit": "µs", "value": value}], "disturbed": disturbed,
            "machine": {"host": host, "cpu": cpu, "cpus": "0", "os": "o", "load": 0.0, "steal": 0.0,
                "yardstick_before": 1.0, "yardstick_after": 1.0},
        });
        writeln!(journal, "{row}").unwrap();
    }
}

#[test]
fn pairs_on_two_machines_do_not_count() {
    let folder = scratch();
    let campaign = timed(NOISY, "repeats = 12");
    // The other machine is slower, and so is the other processor.
    let machine = |run: RunId, version: &str| match (version, run.block) {
        ("opt", 1..=4) => ("other", "c"),
        ("opt", 5..=8) => ("h", "slow"),
        _ => ("h", "c"),
    };
    let score = |run: RunId, version: &str| {
        let noise = f64::from(run.block * if version == "opt" { 37 } else { 31 } % 11);
        (if machine(run, version) == ("h", "c") { 1_000.0 } else { 2_000.0 } + noise, false)
    };
    record_on(folder.path(), &campaign, score, machine);
    let found = compare(folder.path(), &campaign);
    let it = &found.results[0];
    assert_eq!((it.conclusion, it.pairs, it.lost.len()), (PairConclusion::NoDifference, 4, 8), "{it:#?}");
    assert!(it.lost.iter().all(|lost| lost.is_of_two_machines && lost.has_old && lost.has_new && lost.runs.len() == 2));
    let text = found.to_string();
    assert!(text.contains("8 pairs do not count (8 on two machines): 1."), "{text}");
    assert!(text.contains("the two runs were made on different machines, this one on `other`, c"), "{text}");
}

#[test]
fn undisturbed_pairs_have_a_say_of_their_own_if_it_differs() {
    let folder = scratch();
    let campaign = timed(NOISY, "repeats = 16");
    record(folder.path(), &campaign, |run, version| {
        let noise = f64::from(run.block * if version == "opt" { 37 } else { 31 } % 11);
        // The effect is that of disturbed runs alone.
        let is_disturbed = run.block % 2 == 0 && version == "opt";
        (1_000.0 + noise + if is_disturbed { 60.0 } else { 0.0 }, is_disturbed)
    });
    let found = compare(folder.path(), &campaign);
    let it = &found.results[0];
    assert_eq!((it.conclusion, it.pairs, it.disturbed, found.disturbed_runs), (PairConclusion::Higher, 16, 8, 16));
    let calm = it.undisturbed.unwrap();
    assert_eq!((calm.conclusion, calm.pairs), (PairConclusion::NoDifference, 8), "{it:#?}");
    let text = found.to_string();
    assert!(text.contains("without the 8 pairs of a disturbed run: no difference that 8 pairs can show"), "{text}");
}

#[test]
fn undisturbed_pairs_are_silent_if_they_agree() {
    let folder = scratch();
    let campaign = timed(NOISY, "repeats = 16");
    let noise = |run: RunId, version: &str| f64::from(run.block * if version == "opt" { 37 } else { 31 } % 11);
    record(folder.path(), &campaign, |run, version| (1_000.0 + noise(run, version), run.block == 2));
    let found = compare(folder.path(), &campaign);
    assert!(found.results[0].undisturbed.is_none() && found.results[0].disturbed == 1, "{found:#?}");
    assert!(found.to_string().contains("disturbed runs: 4 of 64"), "{found}");
}

/// One pair is far out, which hides from the mean what the ranks show.
#[test]
fn means_and_ranks_that_disagree_are_told() {
    let folder = scratch();
    let campaign = timed(NOISY, "repeats = 16");
    record(folder.path(), &campaign, |run, version| match (version, run.block) {
        ("opt", 7) => (400.0, false),
        ("opt", block) => (1_020.0 + f64::from(block), false),
        (_, block) => (1_000.0 + f64::from(block * 5 % 7), false),
    });
    let found = compare(folder.path(), &campaign);
    let it = &found.results[0];
    assert_eq!(it.conclusion, PairConclusion::NoDifference);
    assert!(
        it.effect.unwrap().ranks_p.unwrap() < 0.05 && found.to_string().contains("some pairs are far out"),
        "{found}"
    );
}

#[test]
fn a_campaign_without_pairs_is_not_compared() {
    let folder = scratch();
    let plain = crate::support::shell("echo score=1", "");
    go_on(folder.path(), &plain);
    let error = Comparison::read(folder.path(), &plain, &CompareOptions::default()).unwrap_err();
    assert!(matches!(error, CompareError::NotPaired) && error.to_string().contains("paired ="), "{error}");
    let other = timed(NOISY, "");
    let error = Comparison::read(folder.path(), &other, &CompareOptions::default()).unwrap_err();
    assert!(error.to_string().contains("another campaign"), "{error}");
}

#[test]
fn the_result_has_names_for_its_parts() {
    let found =
        compared(&timed(NOISY, "repeats = 3"), &CompareOptions { margin: Some(0.5), ..CompareOptions::default() });
    let json: Value = serde_json::to_value(&found).unwrap();
    assert_eq!((&json["old"], &json["new"], &json["is_same"]), (&json!("next"), &json!("opt"), &json!(false)));
    assert_eq!(json["results"][0]["levels"]["size"], "64");
    assert_eq!(json["results"][0]["effect"]["scale"], "share");
    assert!(json["results"][0]["effect"]["equal_p"].is_f64() && json["results"][0]["lost"] == json!([]), "{json:#}");
}

/// A campaign with pairs among these numbers of levels.
fn of_levels(seed: u64, sizes: usize, exclude: &str) -> Campaign {
    let sizes: Vec<usize> = (0..sizes).collect();
    campaign(&format!(
        "name = 'x'\npaired = 'version'\nseed = {seed}\ncommand = ['true']\n{exclude}\n\
         [factors]\nsize = {sizes:?}\nversion = ['b', 'a']\nway = ['in', 'out']\n[score]\njson = 'a'\nunit = '1'\n"
    ))
}

proptest! {
    /// The runs of a pair follow one another, and of each two blocks one has the old one first.
    #[test]
    fn the_order_of_pairs_is_random_and_balanced(seed in 0..u64::MAX / 2, sizes in 1..6usize, block in 0..500u32) {
        let exclude = if sizes > 1 { "exclude = [{ size = 0, way = 'in' }]" } else { "" };
        let campaign = of_levels(seed, sizes, exclude);
        let plan = Plan::new(&campaign);
        let of = |run: &RunId| {
            let levels = plan.levels(*run).unwrap();
            (levels[1], (levels[0], levels[2]))
        };
        let firsts = [1, 2].map(|half| {
            let runs = plan.block(2 * block + half);
            let mut firsts = BTreeMap::new();
            for pair in runs.chunks(2) {
                let [(first, one), (second, other)] = [of(&pair[0]), of(&pair[1])];
                assert!(one == other && first != second, "{runs:?}");
                firsts.insert(one, first);
            }
            assert_eq!(firsts.len(), plan.combinations() / 2);
            firsts
        });
        prop_assert!(firsts[0].iter().all(|(others, first)| firsts[1][others] == 1 - first));
    }
}

#[test]
fn which_run_of_a_pair_is_first_does_not_depend_on_the_others() {
    let plan = Plan::new(&of_levels(9, 4, ""));
    let mut first_old = [0usize; 8];
    let mut order = BTreeMap::<Vec<usize>, usize>::new();
    const BLOCKS: u32 = 2_000;
    for block in (1..=BLOCKS).step_by(2) {
        let runs = plan.block(block);
        let levels = |run: &RunId| plan.levels(*run).unwrap().to_vec();
        let cell = |levels: &[usize]| levels[0] * 2 + levels[2];
        for pair in runs.chunks(2) {
            let first = levels(&pair[0]);
            first_old[cell(&first)] += 1 - first[1];
        }
        *order.entry(runs.chunks(2).map(|pair| cell(&levels(&pair[0]))).take(2).collect()).or_default() += 1;
    }
    // Five standard deviations.
    assert!(first_old.iter().all(|count| count.abs_diff(500) < 80), "{first_old:?}");
    assert!(order.len() == 56 && order.values().all(|count| (2..60).contains(count)), "{order:?}");
}

#[test]
fn pairs_are_part_of_the_campaign() {
    let (paired, mut plain) = (of_levels(1, 2, ""), of_levels(1, 2, ""));
    plain.paired = None;
    assert_ne!(Plan::new(&paired).hash(), Plan::new(&plain).hash());
    assert_eq!(serde_json::to_value(&paired).unwrap()["paired"], "version");
}

#[test]
fn mistakes_about_pairs_are_told_with_the_way_out() {
    let text = |more: &str| {
        format!(
            "name = 'x'\ncommand = ['true']\n{more}\n[score]\njson = 'a'\nunit = '1'\n\
             [factors]\nsize = [1, 2, 3]\nkind = ['a', 'b']\n"
        )
    };
    let cases = [
        ("paired = 'kinds'", "no factor `kinds`", "did you mean `kind`"),
        ("paired = 'size'", "`size` has 3 levels, and a pair is of two", "the old one first"),
        ("paired = 'kind'\nexclude = [{ kind = 'a', size = 1 }]", "have no partner", "by other factors"),
        ("paired = 'kind'\n[build]", "the versions of `build` are paired", "remove it"),
        ("[build]\nfactor = 'size'", "the factor of the two builds, too", "another `factor`"),
        ("[build]\nfactor = 'id'", "cannot be called `id`", "version"),
        ("[build]\ncommand = ['make', '{soure}']", "a build has `source`, `build`, `commit`", "in braces"),
        ("[build]\ncommand = ['make', '{source.x}']", "a build has `source`, `build`, `commit`", "in braces"),
        ("[build]\ncommand = { shell = 'make \"{source}\"' }", "within quotes", "remove the quotes"),
        ("[build]\nprogram = '../tool'", "`program` cannot be `../tool`", "below the folder"),
        ("[build]\nprogram = '/bin/tool'", "`program` cannot be `/bin/tool`", "below the folder"),
        ("[build]\nelse = 'v1'", "`else` is the revision for the case that there is no tag", "add that `base`"),
        ("[build]\nbas = 'v1'", "no key `bas`", "did you mean `base`"),
        ("[build]\ntime_limit = 'long'", "`time_limit` is not a duration", "90 s"),
        (
            "hypothesis = { name = 'x', factor = 'kind', compare = ['a', 'b'] }\n[build]",
            "compares its two versions, and states no `hypothesis`",
            "remove it",
        ),
        ("tidy = ['rm', '{version.sauce}']\n[build]", "has no `sauce`", "label = \"old\""),
    ];
    for (more, what, help) in cases {
        let error = parse("test.toml", &text(more)).expect_err(more).to_string();
        assert!(error.contains(what) && error.contains(help), "{more}:\n{error}");
    }
}
