//! The data model of a campaign, as a [file](crate::load) states it. It is written as JSON, but not read: only files are
//! checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::template::{PlaceholderValue, Template};

/// A campaign: what is measured, under which conditions, and how often.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Campaign {
    /// A name for people.
    pub name: String,
    /// The seed of the order of runs.
    pub seed: u64,
    /// How often each combination is run: the number of blocks.
    pub repeats: u32,
    /// The factors in the order of the file.
    pub factors: Vec<Factor>,
    /// Combinations that are not run.
    pub exclusions: Vec<Exclusion>,
    /// The command of a run.
    pub command: Command,
    /// The numbers that a run gives.
    pub scores: Vec<ScoreSpec>,
    /// Commands before the first run, each time that the campaign goes on.
    pub setup: Vec<Command>,
    /// Commands after the last run, each time that the campaign ends or is interrupted.
    pub teardown: Vec<Command>,
    /// Commands before each run.
    pub prepare: Vec<Command>,
    /// Commands after each run, also after a failed one.
    pub tidy: Vec<Command>,
    /// Runs that are made and not recorded, each time that the campaign goes on.
    pub warmup: u32,
    /// The maximum time of each command.
    pub time_limit: Duration,
    /// The processors of the commands; all if empty.
    pub cpus: Vec<usize>,
    /// Environment variables of the commands.
    pub environment: BTreeMap<String, Template>,
    /// The working folder of the commands, relative to that of the file.
    pub folder: PathBuf,
    /// Commands that print the versions of programs.
    pub versions: BTreeMap<String, Command>,
    /// When a run counts as disturbed.
    pub disturbance: Disturbance,
    /// The hypotheses that the file states.
    pub hypotheses: Vec<Hypothesis>,
    /// The factor of two levels whose runs are made in pairs: the first level is the old one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paired: Option<String>,
    /// How the two versions are made that the paired factor's levels are, if they are builds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
}

/// The [`Build::base`] that is the last tag before the working tree.
pub(crate) const LAST_TAG: &str = "last-tag";

/// How two versions of a thing are made from revisions of git. Finished programs need no command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Build {
    /// The command that builds a version.
    pub command: Option<Command>,
    /// The program within the folder that the command fills.
    pub program: Option<PathBuf>,
    /// The command whose output says what the build command builds with: if it says something else, versions are built
    /// again.
    pub toolchain: Option<Command>,
    /// The maximum time of the command.
    pub time_limit: Duration,
    /// The old version, if none is given: `last-tag` or a revision.
    pub base: Option<String>,
    /// The revision that replaces the last tag if there is none.
    #[serde(rename = "else")]
    pub otherwise: Option<String>,
    /// The old and the new version, once they are made.
    pub versions: Option<[Version; 2]>,
}

/// One of the two versions that are compared.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Compared version")]
pub struct Version {
    /// What it was called: a revision, `working tree`, or a path.
    pub name: String,
    /// Its commit, if it is from git; that of a working tree was made for its contents, and is on no branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The hash of its contents.
    ///
    /// The hash of its contents: git's hash of all files, with that of what the toolchain said, or the SHA-256 of a
    /// program or a folder.
    pub content: String,
}

/// A factor and its levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Factor {
    /// The name, as in `{name}`.
    pub name: String,
    /// The levels in the order of the file.
    pub levels: Vec<Level>,
}

/// A level of a factor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Level {
    /// The name of the level in results and reports.
    pub label: String,
    /// What `{factor.key}` is replaced with.
    pub values: BTreeMap<String, PlaceholderValue>,
}

/// Combinations that are not run: those that have one of the levels of each of these factors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exclusion {
    /// Numbers of factors, each with numbers of its levels.
    pub levels: Vec<(usize, Vec<usize>)>,
}

impl Exclusion {
    /// Whether a combination, one level for each factor, is excluded.
    pub fn has(&self, combination: &[usize]) -> bool {
        self.levels.iter().all(|(factor, levels)| levels.contains(&combination[*factor]))
    }
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Command {
    /// A program and its arguments.
    Arguments(Vec<Template>),
    /// A line for `sh -c`.
    Shell {
        /// The line.
        shell: Template,
    },
}

/// A number that a run gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScoreSpec {
    /// The name.
    pub name: String,
    /// The unit, or nothing if a report of Bellows states it.
    pub unit: String,
    /// Whether more or less is better.
    pub better: Option<Better>,
    /// How the number is read.
    pub read: Read,
    /// From which output it is read.
    pub from: Stream,
}

/// Which scores are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// An output of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a score is read from a command's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Read {
    /// The number at a path of a JSON value.
    Json(String),
    /// The named group of a regular expression, in its last match.
    Pattern(String),
    /// A figure of a report of `bellows bench … --json`; without a case all figures, or their mean.
    Bench {
        /// The figure's case.
        case: Option<String>,
        /// Its labels, as far as they matter.
        labels: BTreeMap<String, String>,
        /// Whether the geometric mean of all figures is the score.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        mean: bool,
    },
}

/// When a run counts as disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Disturbance {
    /// The maximum share of the run's time that the host took from any one of its processors.
    pub steal: f64,
    /// The maximum change of the processor's speed from before the run to after it, as a share.
    pub speed: f64,
}

impl Default for Disturbance {
    fn default() -> Disturbance {
        Disturbance { steal: 0.02, speed: 0.1 }
    }
}

/// A statement about a difference of two means, to be tested on runs that are made after it was registered.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Hypothesis")]
pub struct Hypothesis {
    /// Its name.
    pub name: String,
    /// The score that it is about.
    pub score: String,
    /// The factors whose means are compared; several for the cells of an interaction.
    pub term: Vec<String>,
    /// The means that are compared, the first minus the second: a level of each factor of `term`.
    pub compare: [Vec<String>; 2],
    /// The only runs that count: factors, each with the levels that are taken.
    #[serde(rename = "where")]
    pub subset: BTreeMap<String, Vec<String>>,
    /// How the first mean differs.
    pub direction: ScoreDirection,
    /// By how much the difference exceeds 0, in the score's unit.
    pub margin: f64,
    /// The probability of confirming it by chance, for all hypotheses of the campaign together.
    pub level: f64,
    /// The number of first blocks that were looked at to find it.
    pub explored: u32,
    /// The number of blocks after which it is tested, if the file says so.
    ///
    /// The number of blocks after which it is tested, if the file says so; else that of the campaign when the hypothesis
    /// is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
}

/// The direction of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScoreDirection {
    /// The first mean is greater.
    Greater,
    /// The first mean is less.
    Less,
    /// The means differ.
    Different,
    /// The means differ by less than the margin.
    Equal,
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const DIGITS: usize = 12;
        // The hash is the longest word.
        let id = self.commit.as_deref().or_else(|| self.content.split(' ').nth(1)).unwrap_or_default();
        let short = id.get(..DIGITS).unwrap_or(id);
        if self.name == short || self.name == id {
            formatter.write_str(short)
        } else {
            write!(formatter, "{} ({short})", self.name)
        }
    }
}

impl Campaign {
    /// The number of a factor.
    pub fn factor(&self, name: &str) -> Option<usize> {
        self.factors.iter().position(|factor| factor.name == name)
    }
}

impl Factor {
    /// The number of a level.
    pub fn level(&self, label: &str) -> Option<usize> {
        self.levels.iter().position(|level| level.label == label)
    }
}
