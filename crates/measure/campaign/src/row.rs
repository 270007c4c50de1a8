//! The result of one run.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{Hash, RunId};

/// The result of one run: a line of `results.jsonl`.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Run of a campaign")]
pub struct Row {
    /// Its id: block and combination.
    pub run: RunId,
    /// The hash of the campaign.
    pub campaign: Hash,
    /// The level of each factor.
    pub levels: BTreeMap<String, String>,
    /// The scores.
    pub scores: Vec<Score>,
    /// Why the run failed as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Sentences about what disturbed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<String>,
    /// When it started (RFC 3339, UTC).
    pub start: String,
    /// How long it took.
    pub seconds: f64,
    /// The machine and what it did.
    pub machine: Machine,
    /// Versions of programs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, String>,
    /// The hash of the newest record of the register of hypotheses when the run was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<Hash>,
    /// The same when the run started.
    ///
    /// The newest record of the register that the executor knew when the run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Hash>,
}

/// A number of a run.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Score")]
pub struct Score {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The number; null if the run failed.
    pub value: Option<f64>,
    /// Why there is no such number, if the run as a whole did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// Why a run or a score failed.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Failure")]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// What happened.
    pub why: String,
    /// The end of what the command wrote to standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
}

/// A kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The command ended with an exit code other than 0.
    ExitCode,
    /// The command was ended by a signal.
    Signal,
    /// The command took longer than the time limit.
    TimeLimit,
    /// The command could not be started.
    NotStarted,
    /// A command that prepares the run failed.
    Prepare,
    /// The output has no such number.
    NoScore,
    /// The number is not finite, or a report says that it is undecided.
    NotFinite,
}

impl FailureKind {
    pub(crate) const ALL: [FailureKind; 7] = [
        FailureKind::ExitCode,
        FailureKind::Signal,
        FailureKind::TimeLimit,
        FailureKind::NotStarted,
        FailureKind::Prepare,
        FailureKind::NoScore,
        FailureKind::NotFinite,
    ];

    pub(crate) fn of_name(name: &str) -> Option<FailureKind> {
        FailureKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::ExitCode => "exit-code",
            FailureKind::Signal => "signal",
            FailureKind::TimeLimit => "time-limit",
            FailureKind::NotStarted => "not-started",
            FailureKind::Prepare => "prepare",
            FailureKind::NoScore => "no-score",
            FailureKind::NotFinite => "not-finite",
        }
    }
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, why: impl Into<String>) -> Failure {
        Failure { kind, why: why.into(), stderr: String::new() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.kind.name(), self.why)
    }
}

/// The machine of a run and what it did meanwhile.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Machine of a run")]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// The processor's name.
    pub cpu: String,
    /// The processors that the command could run on.
    pub cpus: String,
    /// The kernel's name and version.
    pub os: String,
    /// The mean number of runnable threads in the minute before the run.
    pub load: f64,
    /// Seconds that the host took during the run; null if unknown.
    ///
    /// The time that the host took from these processors during the run, in seconds. Absent if the system does not
    /// report it.
    pub steal: Option<f64>,
    /// The processor's speed before the run: nanoseconds a step.
    ///
    /// The processor's speed before the run: nanoseconds per step of a chain of multiplications and additions.
    pub yardstick_before: f64,
    /// The same after the run.
    pub yardstick_after: f64,
}

impl Row {
    /// Whether the run has a score that is absent.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some() || self.scores.iter().any(|score| score.value.is_none())
    }

    /// Why there is no score: the failure of the run, or that of the first score without a number.
    pub fn first_failure(&self) -> Option<&Failure> {
        self.failure.as_ref().or_else(|| self.scores.iter().find_map(|score| score.failure.as_ref()))
    }
}
