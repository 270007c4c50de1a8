//! The pairs of a comparison: their order, and which of them count.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use bellows_campaign::{
    Campaign, CampaignProgress, JOURNAL, Journal, Observer, PairConclusion, Plan, Row, RunId, Stop, parse, read_rows,
};
use bellows_testkit::scratch;
use proptest::prelude::*;
use serde_json::json;

use crate::compare::{NOISY, compare, timed};
use crate::support::{campaign, go_on, watch};

/// Stops after some runs.
struct StopAfter<'s>(usize, &'s Stop);

impl Observer for StopAfter<'_> {
    fn started(&mut self, _: RunId, _: &CampaignProgress) {}

    fn recorded(&mut self, _: &Row, progress: &CampaignProgress) {
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
pub fn record(folder: &Path, campaign: &Campaign, score: impl Fn(RunId, &str) -> (f64, bool)) {
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
fn mistakes_about_pairs_are_told_with_the_remedy() {
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
