//! Comparisons of two levels by pairs of runs, with real programs.

use std::collections::BTreeMap;
use std::path::Path;

use bellows_campaign::{Campaign, CompareError, CompareOptions, Compared, Comparison, PairConclusion, Scale, parse};
use bellows_testkit::scratch;
use serde_json::{Value, json};

use crate::pairs::record;
use crate::support::{campaign, go_on};

/// A campaign of two versions, whose runs take a time that depends on the version, the size and the block.
pub fn timed(line: &str, more: &str) -> Campaign {
    campaign(&format!(
        "name = 'timed'\npaired = 'version'\ncommand = {{ shell = '''{line}''' }}\n{more}\n\
         [factors]\n\
         version = [{{ label = 'next', time = 1000, salt = 7 }}, {{ label = 'opt', time = 1100, salt = 11 }}]\n\
         size = [64, 1500]\n\
         [score]\nname = 'time'\npattern = 'took (?<time>\\S+)'\nunit = 'µs'\n"
    ))
}

/// All runs of a block share some noise, and each has its own.
pub const NOISY: &str =
    "echo took $(( {version.time} + {block} * 53 % 211 + ({block} + {size}) * {version.salt} % 17 ))";

pub fn compare(folder: &Path, campaign: &Campaign) -> Comparison {
    Comparison::read(folder, campaign, &CompareOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// What a campaign says that is made from the start.
pub fn compared(campaign: &Campaign, options: &CompareOptions) -> Comparison {
    let folder = scratch();
    go_on(folder.path(), campaign);
    Comparison::read(folder.path(), campaign, options).unwrap_or_else(|error| panic!("{error}"))
}

pub fn conclusions(comparison: &Comparison) -> Vec<PairConclusion> {
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

#[test]
fn all_scores_together_say_why_they_are_silent() {
    let of_scores = |first: &str, second: &str, minus: &str| {
        let campaign = campaign(&format!(
            "name = 'two'\nrepeats = 4\npaired = 'version'\n\
             command = {{ shell = 'echo a={minus}$(( {{version.time}} + {{block}} )) b={{version.time}}{{block}}' }}\n\
             [factors]\nversion = [{{ label = 'next', time = 10 }}, {{ label = 'opt', time = 12 }}]\n\
             [[score]]\nname = 'first'\npattern = 'a=(?<x>\\S+)'\nunit = 'ms'\n{first}\n\
             [[score]]\nname = 'second'\npattern = 'b=(?<x>\\S+)'\nunit = 'MB'\n{second}\n"
        ));
        compared(&campaign, &CompareOptions::default())
    };
    let (lower, higher) = ("better = 'lower'", "better = 'higher'");
    let known = of_scores(lower, higher, "");
    assert!(known.whole.len() == 1 && !known.to_string().contains("no answer"), "{known}");
    let unknown = of_scores(lower, "", "");
    let text = unknown.to_string();
    assert!(unknown.whole.is_empty() && text.contains("which are better of `second`; add `better`"), "{text}");
    let text = of_scores("", "", "").to_string();
    assert!(text.contains("which are better of `first`, `second`; add `better`"), "{text}");
    let text = of_scores(lower, higher, "-").to_string();
    assert!(text.contains("no answer, because some scores of `first` are not above 0"), "{text}");
    let one = compared(&timed(NOISY, "repeats = 3"), &CompareOptions::default());
    assert!(!one.to_string().contains("no answer"), "{one}");
}
