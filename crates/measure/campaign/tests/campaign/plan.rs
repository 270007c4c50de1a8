//! The order of runs, and the hash of a campaign.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bellows_campaign::{Campaign, Plan, RunId, parse};
use proptest::prelude::*;

use crate::support::campaign;

const TEXT: &str = r#"
name = "sizes"
seed = 3
repeats = 5
command = ["bench", "{size}", "{config}"]
exclude = [{ size = 64, config = "b" }]
[factors]
size = [64, 1500]
config = ["a", "b", "c"]
[score]
json = "rate"
unit = "Mpps"
"#;

/// The labels of each run.
fn labels(campaign: &Campaign, run: RunId) -> BTreeMap<String, String> {
    let plan = Plan::new(campaign);
    let levels = plan.levels(run).unwrap();
    let pairs = campaign.factors.iter().zip(levels);
    pairs.map(|(factor, level)| (factor.name.clone(), factor.levels[*level].label.clone())).collect()
}

#[test]
fn the_hash_leaves_out_what_results_do_not_depend_on() {
    let hash = |text: &str| Plan::new(&campaign(text)).hash();
    let same = [
        ("repeats = 5", "repeats = 30"),
        ("name = \"sizes\"", "name = \"other\""),
        ("seed = 3", "# a comment\nseed = 0x3"),
        ("repeats = 5", "repeats = 5\ndisturbance = { steal = 0.5 }"),
        ("size = [64, 1500]\nconfig = [\"a\", \"b\", \"c\"]", "config = [\"c\", \"a\", \"b\"]\nsize = [\"1500\", 64]"),
        ("size = 64, config = \"b\"", "config = \"b\", size = 64"),
        ("unit = \"Mpps\"", "unit = \"Mpps\"\nbetter = \"higher\""),
        ("[score]", "[versions]\nbench = [\"bench\"]\n[score]"),
        ("unit = \"Mpps\"", "unit = \"Mpps\"\n[hypothesis]\nname = \"x\"\nfactor = \"size\"\ncompare = [64, 1500]"),
    ];
    for (old, new) in same {
        assert!(TEXT.contains(old));
        assert_eq!(hash(&TEXT.replace(old, new)), hash(TEXT), "{new}");
    }
    let other = [
        ("seed = 3", "seed = 4"),
        ("\"bench\", ", "\"bench\", \"-x\", "),
        ("config = \"b\"", "config = \"c\""),
        ("1500]", "1500, 9000]"),
        ("json = \"rate\"", "json = \"rates\""),
        ("Mpps", "Gb/s"),
        ("repeats = 5", "repeats = 5\nwarmup = 1"),
        ("repeats = 5", "repeats = 5\ncpus = [0]"),
        ("repeats = 5", "repeats = 5\ntime_limit = 5"),
        ("repeats = 5", "repeats = 5\nprepare = [\"x\"]"),
        ("repeats = 5", "repeats = 5\nenvironment = { A = \"1\" }"),
        ("\"a\"", "{ label = \"a\", x = 1 }"),
    ];
    let hashes: BTreeSet<String> = other.iter().map(|(old, new)| hash(&TEXT.replace(old, new)).to_string()).collect();
    assert_eq!(hashes.len(), other.len(), "all differ");
    assert!(!hashes.contains(&hash(TEXT).to_string()));
}

/// Results of earlier versions stay those of their campaign.
#[test]
fn hash_and_order_are_those_of_all_versions() {
    let plan = Plan::new(&campaign(TEXT));
    assert_eq!(plan.hash().short(), "2e14e500e0ec");
    let order: Vec<String> = plan.runs().take(10).map(|run| run.to_string()).collect();
    assert_eq!(order.join(" "), "1.2 1.1 1.5 1.3 1.4 2.5 2.1 2.4 2.3 2.2");
}

#[test]
fn run_ids_are_the_same_in_any_order_of_the_file() {
    let reordered = TEXT.replace(
        "size = [64, 1500]\nconfig = [\"a\", \"b\", \"c\"]",
        "config = [\"c\", \"b\", \"a\"]\nsize = [1500, 64]",
    );
    let (one, other) = (campaign(TEXT), campaign(&reordered));
    assert_ne!(one.factors[0].name, other.factors[0].name);
    for run in Plan::new(&one).runs() {
        assert_eq!(labels(&one, run), labels(&other, run));
    }
    assert_eq!(Plan::new(&one).runs().collect::<Vec<_>>(), Plan::new(&other).runs().collect::<Vec<_>>());
}

#[test]
fn ids_are_written_and_read() {
    let run = RunId { block: 3, combination: 17 };
    assert_eq!(run.to_string(), "3.17");
    assert_eq!("3.17".parse(), Ok(run));
    for wrong in ["", "3", "0.1", "1.0", "1.2.3", "-1.2", "a.b", "4294967296.1"] {
        assert!(wrong.parse::<RunId>().is_err(), "{wrong}");
    }
}

/// Each combination is in each place of a block about as often.
#[test]
fn the_order_is_random() {
    let text = TEXT.replace("exclude = [{ size = 64, config = \"b\" }]", "").replace("repeats = 5", "repeats = 6000");
    let mut places = HashMap::new();
    for (index, run) in Plan::new(&campaign(&text)).runs().enumerate() {
        *places.entry((index % 6, run.combination)).or_insert(0u32) += 1;
    }
    assert_eq!(places.len(), 36);
    // 1,000 with a standard deviation of 29.
    assert!(places.values().all(|count| (870..=1_130).contains(count)), "{places:?}");
}

fn plan(seed: u64, sizes: usize, configs: usize, repeats: u32) -> Plan {
    let list = |count: usize| (0..count).map(|level| level.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!(
        "name = 'x'\nseed = {seed}\nrepeats = {repeats}\ncommand = ['x']\n[factors]\na = [{}]\nb = [{}]\n\
         [score]\nunit = '1'\njson = 'x'\n",
        list(sizes),
        list(configs)
    );
    Plan::new(&parse("x", &text).unwrap())
}

proptest! {
    #[test]
    fn each_block_has_every_combination_once(
        seed in 0..=i64::MAX as u64, sizes in 1..8usize, configs in 1..8usize, repeats in 1..6u32, more in 1..30u32,
    ) {
        let few = plan(seed, sizes, configs, repeats);
        let many = plan(seed, sizes, configs, repeats + more);
        let all = (sizes * configs) as u32;
        for block in 1..=repeats {
            let runs = few.block(block);
            prop_assert_eq!(&runs, &many.block(block), "whatever the number of repeats");
            let combinations: BTreeSet<u32> = runs.iter().map(|run| run.combination).collect();
            prop_assert_eq!(combinations, (1..=all).collect::<BTreeSet<u32>>());
            prop_assert!(runs.len() == all as usize && runs.iter().all(|run| run.block == block));
        }
        prop_assert_eq!(few.runs().count(), few.runs_in_all());
        prop_assert!(many.runs().zip(few.runs()).all(|(one, other)| one == other), "the first are kept");
        prop_assert_eq!(few.hash(), many.hash());
        if all > 6 {
            let seeds = plan(seed / 2 + 1, sizes, configs, 30);
            prop_assert!(seed == seed / 2 + 1 || seeds.runs().ne(plan(seed, sizes, configs, 30).runs()));
            let order = |block| many.block(block).into_iter().map(|run| run.combination).collect::<Vec<_>>();
            let differs = (2..=30).any(|block| order(block) != order(1));
            prop_assert!(differs);
        }
    }
}
