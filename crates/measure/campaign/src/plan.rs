//! The order of runs, and the hash that distinguishes campaigns.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::campaign::{Campaign, Factor, Level};

/// Maximum number of combinations, before exclusions.
pub(crate) const MAX_COMBINATIONS: usize = 100_000;

/// Maximum number of runs of a campaign.
pub(crate) const MAX_RUNS: usize = 10_000_000;

/// A run's id: its block and its combination, both counted from 1. Written `block.combination`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema, Serialize)]
#[serde(into = "String")]
pub struct RunId {
    /// The block: the repetition of each combination.
    pub block: u32,
    /// The combination.
    pub combination: u32,
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.block, self.combination)
    }
}

impl FromStr for RunId {
    type Err = String;

    fn from_str(text: &str) -> Result<RunId, String> {
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
        let parsed = text.split_once('.').map(|(block, combination)| (number(block), number(combination)));
        match parsed {
            Some((Some(block), Some(combination))) => Ok(RunId { block, combination }),
            _ => Err(format!("`{text}` is no run; a run is `block.combination`, as in `3.17`")),
        }
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RunId, D::Error> {
        deserializer.deserialize_str(Parsed::new("a run, `block.combination`"))
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> String {
        run.to_string()
    }
}

/// A SHA-256, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, JsonSchema, Serialize)]
#[serde(into = "String")]
pub struct Hash([u8; 32]);

impl Hash {
    pub(crate) fn of(bytes: &[u8]) -> Hash {
        Hash(Sha256::digest(bytes).into())
    }

    /// The hash of what a digest has read.
    pub(crate) fn of_digest(digest: Sha256) -> Hash {
        Hash(digest.finalize().into())
    }

    /// The hash of a value: of its JSON text with sorted keys.
    pub(crate) fn of_json(value: &Value) -> Hash {
        let mut text = String::new();
        write_sorted(value, &mut text);
        Hash::of(text.as_bytes())
    }

    /// The first digits, for people.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

/// JSON text without spaces, with sorted keys.
fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_sorted(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, value) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_sorted(value, text);
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Hash, String> {
        let wrong = || format!("`{text}` is no hash of 64 hexadecimal digits");
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() {
            return Err(wrong());
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let (high, low) = digit(digits[0]).zip(digit(digits[1])).ok_or_else(wrong)?;
            *byte = high << 4 | low;
        }
        Ok(Hash(bytes))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        deserializer.deserialize_str(Parsed::new("a hash of 64 hexadecimal digits"))
    }
}

/// Reads a value from its text without copying that.
struct Parsed<T> {
    expected: &'static str,
    value: PhantomData<T>,
}

impl<T> Parsed<T> {
    fn new(expected: &'static str) -> Parsed<T> {
        Parsed { expected, value: PhantomData }
    }
}

impl<T: FromStr<Err = String>> Visitor<'_> for Parsed<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> String {
        hash.to_string()
    }
}

/// The runs of a campaign and their order.
#[derive(Clone, Debug)]
pub struct Plan {
    /// For each combination, the level of each factor, as numbers in the order of the file.
    combinations: Vec<Vec<usize>>,
    /// For each combination the first of its pair, as an index, if runs are made in pairs.
    pairs: Option<Vec<usize>>,
    seed: u64,
    repeats: u32,
    hash: Hash,
}

impl Plan {
    /// The plan of a campaign.
    pub fn new(campaign: &Campaign) -> Plan {
        let mut combinations = Vec::new();
        each_combination(&campaign.factors, |levels| {
            if !campaign.exclusions.iter().any(|exclusion| exclusion.has(levels)) {
                combinations.push(levels.to_vec());
            }
        });
        let hash = Hash::of_json(&canonical(campaign, &combinations));
        let paired = campaign.paired.as_ref().and_then(|paired| campaign.factor(paired));
        let pairs = paired.map(|paired| firsts_of_pairs(&combinations, paired));
        Plan { combinations, pairs, seed: campaign.seed, repeats: campaign.repeats, hash }
    }

    /// The hash of all that the results depend on. The number of repeats, names for people, versions and hypotheses are
    /// not part of it, nor is the order of factors and levels.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// The number of combinations.
    pub fn combinations(&self) -> usize {
        self.combinations.len()
    }

    /// All combinations: the number of each, from 1, and its levels.
    pub(crate) fn all_combinations(&self) -> impl Iterator<Item = (u32, &[usize])> {
        (1..).zip(self.combinations.iter().map(Vec::as_slice))
    }

    /// The number of blocks.
    pub fn repeats(&self) -> u32 {
        self.repeats
    }

    /// The plan with another number of blocks; nothing if that has more than 10,000,000 runs.
    pub fn with_repeats(self, repeats: u32) -> Option<Plan> {
        let is_possible = repeats as usize <= MAX_RUNS / self.combinations.len().max(1);
        is_possible.then_some(Plan { repeats, ..self })
    }

    /// The number of runs.
    pub fn runs_in_all(&self) -> usize {
        self.combinations.len() * self.repeats as usize
    }

    /// The levels of a run, as numbers in the order of the file. Nothing for a run that is not part of the plan.
    pub fn levels(&self, run: RunId) -> Option<&[usize]> {
        let index = (run.combination as usize).checked_sub(1)?;
        self.combinations.get(index).map(Vec::as_slice)
    }

    /// The runs of a block in their order, which depends on the seed and the block alone. The two runs of a pair follow
    /// one another; of each two blocks from the first on, one has them in one order, and the other in the other.
    pub fn block(&self, block: u32) -> Vec<RunId> {
        // Hashes of distinct inputs order the runs at random, and the same in every version.
        let random = |block: u32, combination: u32| -> [u8; 32] {
            let mut hash = Sha256::new();
            hash.update(self.seed.to_le_bytes());
            hash.update(block.to_le_bytes());
            hash.update(combination.to_le_bytes());
            hash.finalize().into()
        };
        let place = |combination: u32| {
            let Some(pairs) = &self.pairs else { return (random(block, combination), false) };
            let own = combination as usize - 1;
            let first = pairs[own];
            let odd_block = block.saturating_sub(1) / 2 * 2 + 1;
            let is_turned = random(odd_block, first as u32 + 1)[31] % 2 == 1;
            (random(block, first as u32 + 1), (own == first) == (is_turned == (block == odd_block)))
        };
        let mut runs: Vec<(([u8; 32], bool), RunId)> = (1..=self.combinations.len() as u32)
            .map(|combination| (place(combination), RunId { block, combination }))
            .collect();
        runs.sort_unstable();
        runs.into_iter().map(|(_, run)| run).collect()
    }

    /// All runs in their order.
    pub fn runs(&self) -> impl Iterator<Item = RunId> + '_ {
        (1..=self.repeats).flat_map(|block| self.block(block))
    }
}

/// For each combination the first one that differs from it at most in a factor, as an index.
fn firsts_of_pairs(combinations: &[Vec<usize>], paired: usize) -> Vec<usize> {
    let mut firsts: HashMap<Vec<usize>, usize> = HashMap::new();
    let first = |(index, levels): (usize, &Vec<usize>)| {
        let mut others = levels.clone();
        others.remove(paired);
        *firsts.entry(others).or_insert(index)
    };
    combinations.iter().enumerate().map(first).collect()
}

/// Calls a function with each combination of levels, in an order that does not depend on that of the file: factors by
/// name, the first the slowest, and levels by label.
pub(crate) fn each_combination(factors: &[Factor], mut each: impl FnMut(&[usize])) {
    let mut by_name: Vec<usize> = (0..factors.len()).collect();
    by_name.sort_by_key(|factor| &factors[*factor].name);
    let by_label: Vec<Vec<usize>> = factors
        .iter()
        .map(|factor| {
            let mut levels: Vec<usize> = (0..factor.levels.len()).collect();
            levels.sort_by_key(|level| &factor.levels[*level].label);
            levels
        })
        .collect();
    if by_label.iter().any(Vec::is_empty) {
        return;
    }
    // Places within the sorted levels, counted like the digits of a number.
    let mut places = vec![0; factors.len()];
    let mut combination = vec![0; factors.len()];
    loop {
        for (factor, place) in places.iter().enumerate() {
            combination[factor] = by_label[factor][*place];
        }
        each(&combination);
        let next = by_name.iter().rev().find(|factor| places[**factor] + 1 < by_label[**factor].len());
        let Some(next) = next else { return };
        places[*next] += 1;
        let faster = by_name.iter().skip_while(|factor| *factor != next).skip(1);
        faster.for_each(|factor| places[*factor] = 0);
    }
}

/// What the results of a campaign depend on, without order where order does not matter.
pub(crate) fn canonical(campaign: &Campaign, combinations: &[Vec<usize>]) -> Value {
    let build = campaign.build.as_ref();
    let is_built = |factor: &Factor| build.is_some() && campaign.paired.as_ref() == Some(&factor.name);
    let factors = campaign.factors.iter().map(|factor| {
        // The values of a version are its paths.
        let values = |level: &Level| if is_built(factor) { json!({}) } else { json!(level.values) };
        let levels = factor.levels.iter().map(|level| (level.label.clone(), values(level)));
        (factor.name.clone(), Value::Object(levels.collect()))
    });
    let mut by_name: Vec<usize> = (0..campaign.factors.len()).collect();
    by_name.sort_by_key(|factor| &campaign.factors[*factor].name);
    let labels = |levels: &[usize]| -> Value {
        by_name.iter().map(|factor| json!(campaign.factors[*factor].levels[levels[*factor]].label)).collect()
    };
    let combinations: Value = combinations.iter().map(|levels| labels(levels)).collect();
    let scores = campaign
        .scores
        .iter()
        .map(|score| (score.name.clone(), json!({ "unit": score.unit, "read": score.read, "from": score.from })));
    let mut canonical = json!({
        "version": 1,
        "seed": campaign.seed,
        "factors": Value::Object(factors.collect()),
        // A campaign can have many; which they are is compared, not shown.
        "combinations": Hash::of_json(&combinations).to_string(),
        "command": campaign.command,
        "score": Value::Object(scores.collect()),
        "setup": campaign.setup,
        "teardown": campaign.teardown,
        "prepare": campaign.prepare,
        "tidy": campaign.tidy,
        "warmup": campaign.warmup,
        "time_limit": campaign.time_limit.as_secs_f64(),
        "cpus": campaign.cpus,
        "environment": campaign.environment,
        "folder": campaign.folder,
    });
    if let Some(paired) = &campaign.paired {
        canonical["paired"] = json!(paired);
    }
    if let Some(build) = build {
        let contents = build.versions.as_ref().map(|versions| versions.each_ref().map(|version| &version.content));
        canonical["build"] = json!({ "command": build.command, "program": build.program });
        canonical["compared"] = json!(contents);
    }
    canonical
}

impl Campaign {
    /// What the results of the campaign depend on, as JSON: the text of its [hash](Plan::hash).
    pub fn canonical(&self) -> Value {
        canonical(self, &Plan::new(self).combinations)
    }
}
