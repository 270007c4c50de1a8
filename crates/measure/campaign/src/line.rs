//! A line of the journal: its texts are those of the line, so that a million are read within seconds.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::plan::{Hash, MAX_COMBINATIONS, RunId};
use crate::row::{Failure, Row, Score};

/// A text of the line, or a copy if it has escapes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'l>(#[serde(borrow)] pub(crate) Cow<'l, str>);

/// A row whose texts are those of its line.
#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct Line<'l> {
    pub(crate) run: RunId,
    #[serde(borrow, deserialize_with = "hash")]
    pub(crate) campaign: Text<'l>,
    #[serde(borrow)]
    pub(crate) levels: Pairs<'l>,
    #[serde(borrow)]
    pub(crate) scores: Vec<LineScore<'l>>,
    #[serde(default)]
    pub(crate) failure: Option<Failure>,
    #[serde(borrow, default)]
    pub(crate) disturbed: Vec<Text<'l>>,
    #[serde(borrow)]
    pub(crate) start: Text<'l>,
    pub(crate) seconds: f64,
    #[serde(borrow)]
    pub(crate) machine: LineMachine<'l>,
    #[serde(borrow, default)]
    pub(crate) versions: Pairs<'l>,
    #[serde(borrow, default, deserialize_with = "optional_hash")]
    pub(crate) registered: Option<Text<'l>>,
    #[serde(borrow, default, deserialize_with = "optional_hash")]
    pub(crate) known: Option<Text<'l>>,
}

/// A score.
#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct LineScore<'l> {
    #[serde(borrow)]
    pub(crate) name: Text<'l>,
    #[serde(borrow)]
    pub(crate) unit: Text<'l>,
    pub(crate) value: Option<f64>,
    #[serde(default)]
    pub(crate) failure: Option<Failure>,
}

impl LineScore<'_> {
    /// That of a run without any.
    pub(crate) fn none() -> LineScore<'static> {
        let empty = || Text(Cow::Borrowed(""));
        LineScore { name: empty(), unit: empty(), value: None, failure: None }
    }
}

/// The machine.
#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct LineMachine<'l> {
    #[serde(borrow)]
    pub(crate) host: Text<'l>,
    #[serde(borrow)]
    pub(crate) cpu: Text<'l>,
    #[serde(borrow)]
    pub(crate) cpus: Text<'l>,
    #[serde(borrow)]
    pub(crate) os: Text<'l>,
    pub(crate) load: f64,
    pub(crate) steal: Option<f64>,
    pub(crate) yardstick_before: f64,
    pub(crate) yardstick_after: f64,
}

/// Texts by name, such as the level of each factor. Of several with one name the last counts.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Pairs<'l>(pub(crate) Vec<(Text<'l>, Text<'l>)>);

fn hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text<'de>, D::Error> {
    let text = Text::deserialize(deserializer)?;
    text.0.parse::<Hash>().map(|_| text).map_err(serde::de::Error::custom)
}

fn optional_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text<'de>>, D::Error> {
    let text = Option::<Text<'de>>::deserialize(deserializer)?;
    match text.as_ref().map(|text| text.0.parse::<Hash>()) {
        Some(Err(why)) => Err(serde::de::Error::custom(why)),
        _ => Ok(text),
    }
}

impl<'de: 'l, 'l> Deserialize<'de> for Pairs<'l> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs<'l>, D::Error> {
        struct Texts;

        impl<'de> Visitor<'de> for Texts {
            type Value = Pairs<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text for each name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Texts)
    }
}

impl<'l> Line<'l> {
    /// What the line of a row has.
    pub(crate) fn of(row: &'l Row) -> Line<'l> {
        let text = |text: &'l str| Text(Cow::Borrowed(text));
        let pairs = |map: &'l BTreeMap<String, String>| {
            Pairs(map.iter().map(|(name, value)| (text(name), text(value))).collect())
        };
        let hash = |hash: Hash| Text(Cow::Owned(hash.to_string()));
        let score = |score: &'l Score| LineScore {
            name: text(&score.name),
            unit: text(&score.unit),
            value: score.value,
            failure: score.failure.clone(),
        };
        let machine = &row.machine;
        Line {
            run: row.run,
            campaign: hash(row.campaign),
            levels: pairs(&row.levels),
            scores: row.scores.iter().map(score).collect(),
            failure: row.failure.clone(),
            disturbed: row.disturbed.iter().map(|why| text(why)).collect(),
            start: text(&row.start),
            seconds: row.seconds,
            machine: LineMachine {
                host: text(&machine.host),
                cpu: text(&machine.cpu),
                cpus: text(&machine.cpus),
                os: text(&machine.os),
                load: machine.load,
                steal: machine.steal,
                yardstick_before: machine.yardstick_before,
                yardstick_after: machine.yardstick_after,
            },
            versions: pairs(&row.versions),
            registered: row.registered.map(hash),
            known: row.known.map(hash),
        }
    }

    /// The level of a factor, or nothing.
    pub(crate) fn level(&self, factor: &str) -> &str {
        self.levels.0.iter().rfind(|(name, _)| name.0 == factor).map_or("", |(_, level)| &level.0)
    }

    /// Whether the run has a score that is absent.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some() || self.scores.iter().any(|score| score.value.is_none())
    }

    /// The failure of the run, or that of the first score without a number.
    pub(crate) fn first_failure(&self) -> Option<&Failure> {
        self.failure.as_ref().or_else(|| self.scores.iter().find_map(|score| score.failure.as_ref()))
    }
}

/// Runs, of which each counts once.
#[derive(Default)]
pub(crate) struct RunSet {
    /// A bit for each combination of a block.
    blocks: HashMap<u32, Vec<u64>>,
    /// The block that rows are of now.
    last: u32,
    bits: Vec<u64>,
    /// Those that no campaign has.
    others: HashSet<RunId>,
    len: usize,
}

impl RunSet {
    /// Adds a run. Returns whether it is new.
    pub(crate) fn insert(&mut self, run: RunId) -> bool {
        let is_new = self.set(run);
        self.len += usize::from(is_new);
        is_new
    }

    fn set(&mut self, run: RunId) -> bool {
        if run.combination as usize > MAX_COMBINATIONS {
            return self.others.insert(run);
        }
        if run.block != self.last {
            let bits = self.blocks.remove(&run.block).unwrap_or_default();
            let last = std::mem::replace(&mut self.last, run.block);
            self.blocks.insert(last, std::mem::replace(&mut self.bits, bits));
        }
        let (word, bit) = place_of(run);
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_new
    }

    /// Whether a run was added.
    pub(crate) fn contains(&self, run: RunId) -> bool {
        if run.combination as usize > MAX_COMBINATIONS {
            return self.others.contains(&run);
        }
        let bits = if run.block == self.last { Some(&self.bits) } else { self.blocks.get(&run.block) };
        let (word, bit) = place_of(run);
        bits.and_then(|bits| bits.get(word)).is_some_and(|bits| bits & bit != 0)
    }

    /// The number of runs.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// The word of a block's bits that has the run's, and that bit.
fn place_of(run: RunId) -> (usize, u64) {
    (run.combination as usize / 64, 1 << (run.combination % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_is_new_once() {
        let (mut set, mut known) = (RunSet::default(), HashSet::new());
        let mut random = numbers(7);
        for _ in 0..20_000 {
            let combination = [1, 63, 64, 100_000, 100_001, u32::MAX][random() % 6];
            let run = RunId { block: 1 + (random() % 50) as u32, combination };
            assert_eq!(set.contains(run), known.contains(&run), "{run}");
            assert_eq!(set.insert(run), known.insert(run), "{run}");
            assert!(set.contains(run) && set.len() == known.len());
        }
    }

    /// Numbers that look random.
    fn numbers(mut state: u64) -> impl FnMut() -> usize {
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        }
    }

    #[test]
    fn texts_with_escapes_are_read() {
        let hash = "0".repeat(64);
        let text = format!(
            r#"{{"run":"3.2","campaign":"{hash}","levels":{{"a":"x\ny","b":"z"}},"scores":[],"start":"s","seconds":1,
               "machine":{{"host":"h","cpu":"c","cpus":"","os":"","load":1,"steal":null,"yardstick_before":1,
               "yardstick_after":1}},"disturbed":["one","two"]}}"#
        );
        let line: Line<'_> = serde_json::from_str(&text).unwrap();
        assert_eq!((line.level("a"), line.level("b"), line.level("c")), ("x\ny", "z", ""));
        assert!(matches!(line.start.0, Cow::Borrowed("s")) && line.disturbed.len() == 2);
        let is_wrong = |text: &str| Line::parse(text.as_bytes()).is_err();
        assert!(
            is_wrong(&text.replace("seconds", "minutes")) && is_wrong(&text.replace("\"load\":1", "\"load\":\"\""))
        );
        assert!(is_wrong(&text.replace("00\"", "0\"")), "no hash");
        let known = |hash: &str| text.replace("\"start\"", &format!("\"known\":{hash},\"start\""));
        assert!(is_wrong(&known("\"12\"")) && !is_wrong(&known("null")) && !is_wrong(&known(&format!("{hash:?}"))));
    }
}
