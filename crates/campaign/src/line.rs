//! A line of the journal without what only few readers need: its texts are those of the line, so that a million are read
//! within seconds.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::plan::{MAX_COMBINATIONS, RunId};
use crate::row::Failure;

/// A text of the line, or a copy if it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'l>(#[serde(borrow)] pub(crate) Cow<'l, str>);

/// What columns need of a row. The other fields are there, too, or the line is no row.
#[derive(Deserialize)]
pub(crate) struct Line<'l> {
    pub(crate) run: RunId,
    #[serde(borrow)]
    pub(crate) campaign: Text<'l>,
    #[serde(borrow)]
    levels: Levels<'l>,
    #[serde(borrow)]
    pub(crate) scores: Vec<LineScore<'l>>,
    #[serde(default)]
    pub(crate) failure: Option<Failure>,
    #[serde(default)]
    pub(crate) disturbed: Vec<IgnoredAny>,
    #[serde(borrow)]
    pub(crate) start: Text<'l>,
    #[serde(rename = "seconds")]
    _seconds: IgnoredAny,
    #[serde(borrow)]
    pub(crate) machine: LineMachine<'l>,
    #[serde(borrow, default)]
    pub(crate) registered: Option<Text<'l>>,
    #[serde(borrow, default)]
    pub(crate) known: Option<Text<'l>>,
}

/// A score.
#[derive(Deserialize)]
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
#[derive(Deserialize)]
pub(crate) struct LineMachine<'l> {
    #[serde(borrow)]
    pub(crate) host: Text<'l>,
}

/// The level of each factor.
struct Levels<'l>(Vec<(Text<'l>, Text<'l>)>);

impl<'de: 'l, 'l> Deserialize<'de> for Levels<'l> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Levels<'l>, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Levels<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a level for each factor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Levels<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Levels(pairs))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

impl<'l> Line<'l> {
    /// Reads a line.
    pub(crate) fn parse(bytes: &'l [u8]) -> serde_json::Result<Line<'l>> {
        match std::str::from_utf8(bytes) {
            // Its texts need not be checked one by one.
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_slice(bytes),
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
}

impl RunSet {
    /// Adds a run. Returns whether it is new.
    pub(crate) fn insert(&mut self, run: RunId) -> bool {
        if run.combination as usize > MAX_COMBINATIONS {
            return self.others.insert(run);
        }
        if run.block != self.last {
            let bits = self.blocks.remove(&run.block).unwrap_or_default();
            let last = std::mem::replace(&mut self.last, run.block);
            self.blocks.insert(last, std::mem::replace(&mut self.bits, bits));
        }
        let (word, bit) = (run.combination as usize / 64, 1u64 << (run.combination % 64));
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_new
    }
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
            assert_eq!(set.insert(run), known.insert(run), "{run}");
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
               "machine":{{"host":"h","cpu":"c"}},"disturbed":["one","two"]}}"#
        );
        let line: Line<'_> = serde_json::from_str(&text).unwrap();
        assert_eq!((line.level("a"), line.level("b"), line.level("c")), ("x\ny", "z", ""));
        assert!(matches!(line.start.0, Cow::Borrowed("s")) && line.disturbed.len() == 2);
        assert!(serde_json::from_str::<Line<'_>>(&text.replace("seconds", "minutes")).is_err());
    }
}
