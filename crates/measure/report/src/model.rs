//! The contents of a report, as `--json` prints them. Numbers that do not exist are null.

use serde::Serialize;

use bellows_campaign::{Better, Verdict};

use crate::axis::Axis;

/// A report of a campaign's results.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The campaign's name, or that of the file.
    pub title: String,
    /// The file or folder of the results.
    pub source: String,
    /// What was run, on what, and when.
    pub setup: Setup,
    /// Exploration: a section for each score and unit.
    pub sections: Vec<Section>,
    /// Confirmation: what the runs say of the registered hypotheses.
    pub confirmation: Confirmation,
}

/// What was run, on what, and when.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Setup {
    /// The number of runs; of imported tables the number of rows.
    pub runs: usize,
    /// The number of runs without a score.
    pub failed: usize,
    /// The number of runs that the machine disturbed.
    pub disturbed: usize,
    /// The number of blocks, or repetitions.
    pub blocks: usize,
    /// The number of combinations that were run.
    pub combinations: usize,
    /// When the first and the last run started: RFC 3339, UTC.
    pub span: Option<(String, String)>,
    /// The command of a run.
    pub command: Option<String>,
    /// The hash of the campaign.
    pub hash: Option<String>,
    /// The factors.
    pub factors: Vec<FactorSummary>,
    /// Names of machines.
    pub machines: Vec<NameTally>,
    /// Processors.
    pub processors: Vec<NameTally>,
    /// Kernels.
    pub kernels: Vec<NameTally>,
    /// Programs with their versions.
    pub versions: Vec<NameTally>,
    /// What is not known, and why.
    pub notes: Vec<String>,
}

/// A name and how often it occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NameTally {
    /// The name.
    pub name: String,
    /// The number of runs.
    pub runs: usize,
}

/// A factor with its levels.
#[derive(Clone, Debug, Serialize)]
pub struct FactorSummary {
    /// The name.
    pub name: String,
    /// The levels, each with its number of runs and what it stands for in commands.
    pub levels: Vec<LevelSummary>,
}

/// A level of a factor.
#[derive(Clone, Debug, Serialize)]
pub struct LevelSummary {
    /// The label.
    pub label: String,
    /// The number of runs.
    pub runs: usize,
    /// What the placeholders of the factor stand for, if the campaign file says more than the label.
    pub values: Option<String>,
}

/// What the runs say of one score. All of it is exploration.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// A name for links and files: `throughput`, `score-2`.
    pub id: String,
    /// The name of the score.
    pub score: String,
    /// Its unit; empty if it has none.
    pub unit: String,
    /// Which scores are better, if it is known.
    pub better: Option<Better>,
    /// The number of runs.
    pub runs: usize,
    /// The number of runs with a score.
    pub scored: usize,
    /// The factor of interest.
    pub factor: Option<String>,
    /// Why it is that one, or why there is none: a sentence.
    pub factor_reason: String,
    /// The factors that vary besides.
    pub others: Vec<String>,
    /// The factors that have one level in this section, each with that level.
    pub held: Vec<(String, String)>,
    /// The levels of the factor of interest, or all runs.
    pub levels: Vec<LevelScores>,
    /// Why runs have no score.
    pub failures: Vec<Reason>,
    /// What follows from the tests, in plain words.
    pub findings: Vec<String>,
    /// What to beware of: assumptions that do not hold and what to use instead, and what could not be analysed.
    pub warnings: Vec<String>,
    /// The analysis of variance.
    pub analysis: Option<Analysis>,
    /// The differences between the levels of the factor of interest, over all runs.
    pub contrasts: Option<Contrasts>,
    /// The distribution of all scores, by the factor of interest.
    pub overlay: Distributions,
    /// The same, split by each other factor.
    pub splits: Vec<Split>,
    /// The figure of each combination.
    pub matrix: Matrix,
    /// The scores in the order of time.
    pub course: Course,
}

/// The scores of a level.
#[derive(Clone, Debug, Serialize)]
pub struct LevelScores {
    /// The label.
    pub label: String,
    /// The number of runs.
    pub runs: usize,
    /// The number of them with a score.
    pub scored: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// Their median.
    pub median: f64,
    /// The ends of the median's 95 percent interval.
    pub low: f64,
    /// See [`LevelScores::low`].
    pub high: f64,
}

/// Why runs failed.
#[derive(Clone, Debug, Serialize)]
pub struct Reason {
    /// The reason.
    pub reason: String,
    /// The number of runs.
    pub runs: usize,
    /// The number of runs of each level of the factor of interest.
    pub levels: Vec<usize>,
}

/// An analysis of variance.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// The model: terms joined by `+`.
    pub model: String,
    /// The terms.
    pub terms: Vec<Term>,
    /// Degrees of freedom of what the model does not explain.
    pub df: f64,
    /// The standard deviation of what the model does not explain, in the unit of the score.
    pub deviation: f64,
    /// Whether all combinations have the same number of scores.
    pub is_balanced: bool,
    /// The number of machines whose differences were taken out of the scores: an additive term of the model. 1 if one made
    /// all runs, or if they are part of the noise.
    pub machines: usize,
    /// The degrees of freedom of these differences.
    pub machine_df: usize,
}

/// A term of an analysis of variance.
#[derive(Clone, Debug, Serialize)]
pub struct Term {
    /// Its factors, joined by `:`.
    pub label: String,
    /// Degrees of freedom.
    pub df: f64,
    /// The ratio of variances.
    pub f: f64,
    /// Its probability without an effect.
    pub p: f64,
    /// The share of all squares that it explains.
    pub share: f64,
}

/// Differences of means.
#[derive(Clone, Debug, Serialize)]
pub struct Contrasts {
    /// How the intervals are made: a noun.
    pub method: String,
    /// The number of means.
    pub means: usize,
    /// The number of comparisons that the intervals and probabilities are corrected for.
    pub comparisons: usize,
    /// The probability with which all intervals together have the true differences.
    pub confidence: f64,
    /// Half of an interval's width, from the narrowest to the widest, in the unit of the score.
    pub half_width: (f64, f64),
    /// The differences, in the order of levels.
    pub rows: Vec<Contrast>,
}

/// The difference of two means.
#[derive(Clone, Debug, Serialize)]
pub struct Contrast {
    /// The panel that it belongs to.
    pub panel: Option<usize>,
    /// The levels: the first minus the second.
    pub levels: [usize; 2],
    /// `first − second`.
    pub label: String,
    /// The number of combinations of the other factors that both levels have, over which the difference is a mean.
    pub combinations: usize,
    /// Whether the difference may be one of machines, because no combination was run on machines of both sides.
    pub is_confounded: bool,
    /// The difference, in the unit of the score.
    pub difference: f64,
    /// Its standard error.
    pub error: f64,
    /// Lower end of the simultaneous interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The probability, corrected for all comparisons.
    pub p: f64,
    /// The difference as a share of the second mean, if that is not near 0.
    pub relative: Option<f64>,
    /// The probability by Welch's test, corrected by Holm.
    pub welch_p: Option<f64>,
    /// The ends of Welch's interval, corrected by Bonferroni.
    pub welch: Option<(f64, f64)>,
    /// The probability by ranks (Dunn's test), corrected by Holm.
    pub dunn_p: Option<f64>,
    /// The ratio of the medians with its bootstrap interval, corrected by Bonferroni: first over second.
    pub ratio: Option<(f64, f64, f64)>,
}

/// Distributions of scores in panels with shared axes.
#[derive(Clone, Debug, Serialize)]
pub struct Distributions {
    /// How they are drawn.
    pub form: Form,
    /// The axis of scores.
    pub axis: Axis,
    /// The largest density, in the inverse of the score's unit.
    pub top: f64,
    /// The labels of the curves.
    pub levels: Vec<String>,
    /// The panels.
    pub panels: Vec<Panel>,
    /// The most runs that a tick stands for.
    pub most_per_tick: u32,
}

/// How distributions are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Curves over each other.
    Curves,
    /// A strip with median and quartiles for each level: there are too many for curves.
    Strips,
}

/// A panel of distributions.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    /// The label.
    pub label: String,
    /// A distribution for each level.
    pub samples: Vec<Sample>,
}

/// The distribution of some scores.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// The number of scores.
    pub runs: usize,
    /// The number of runs without a score.
    pub failed: usize,
    /// The density at equal distances over the axis. Empty if there are too few different scores.
    pub density: Vec<f64>,
    /// The standard deviation of its kernel, in the unit of the score.
    pub bandwidth: Option<f64>,
    /// The rule that chose it: `Sheather-Jones` or `nrd0`.
    pub rule: Option<&'static str>,
    /// Ticks: the score and the number of runs there.
    pub ticks: Vec<(f64, u32)>,
    /// Median and quartiles: 25, 50, 75 percent.
    pub quartiles: Option<[f64; 3]>,
}

/// Distributions split by a factor, with the differences in each panel.
#[derive(Clone, Debug, Serialize)]
pub struct Split {
    /// The factor.
    pub factor: String,
    /// Its distributions. None if there would be too many to draw.
    pub distributions: Option<Distributions>,
    /// The labels of all its levels.
    pub panels: Vec<String>,
    /// The differences within the panels. None if they cannot be analysed.
    pub contrasts: Option<Contrasts>,
    /// The number of comparisons and their corrected interval: a sentence.
    pub statement: String,
}

/// The figures of all combinations: a row for each combination of the other factors, a column for each level of the
/// factor of interest.
#[derive(Clone, Debug, Serialize)]
pub struct Matrix {
    /// The names of the other factors.
    pub factors: Vec<String>,
    /// The labels of the columns.
    pub columns: Vec<String>,
    /// The rows, in the order of levels.
    pub rows: Vec<MatrixRow>,
    /// The least and the largest median.
    pub range: Option<(f64, f64)>,
    /// Indices of the rows that are drawn: all, or those with the least and the largest medians.
    pub drawn: Vec<usize>,
}

/// A row of a matrix.
#[derive(Clone, Debug, Serialize)]
pub struct MatrixRow {
    /// The level of each of the other factors.
    pub levels: Vec<String>,
    /// The combinations with each level of the factor of interest. None where no run was made.
    pub cells: Vec<Option<ModelCell>>,
    /// What marks it, of all rows with a median in each column: `best`, `worst`, `highest`, `lowest`; and, of all rows,
    /// `most failures`.
    pub marks: Vec<&'static str>,
}

/// A combination.
#[derive(Clone, Debug, Serialize)]
pub struct ModelCell {
    /// The number of runs.
    pub runs: usize,
    /// The number of them without a score.
    pub failed: usize,
    /// The median score. None if all runs failed.
    pub median: Option<f64>,
}

/// Scores in the order of time.
#[derive(Clone, Debug, Serialize)]
pub struct Course {
    /// What the order is: a noun.
    pub order: String,
    /// The number of runs.
    pub runs: usize,
    /// Where blocks begin: the place in the order, and the block.
    pub blocks: Vec<(usize, u32)>,
    /// The scores, and the scores less the median of their combination.
    pub series: Vec<Series>,
    /// The places of disturbed runs, or of columns that have some, each with its number.
    pub disturbed: Vec<(f64, u32)>,
    /// The number of disturbed runs.
    pub disturbed_runs: usize,
    /// The places of failed runs, likewise.
    pub failed: Vec<(f64, u32)>,
    /// Spearman's rank correlation with time of what the model does not explain.
    pub correlation: Option<f64>,
    /// The probability of such a correlation without a drift.
    pub p: Option<f64>,
    /// What that means: a sentence.
    pub finding: String,
}

/// Numbers in the order of time.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// What they are.
    pub label: String,
    /// Their axis.
    pub axis: Axis,
    /// Each run: its place, its number, and whether it was disturbed. Empty if there are too many.
    pub points: Vec<(usize, f64, bool)>,
    /// Columns of many runs: place, minimum, quartiles, maximum. Empty if points are drawn.
    pub bands: Vec<(f64, [f64; 5])>,
    /// The number of runs of a column.
    pub per_band: usize,
}

/// What the runs say of registered hypotheses.
#[derive(Clone, Debug, Serialize)]
pub struct Confirmation {
    /// Why there is nothing, if so: a sentence.
    pub note: Option<String>,
    /// The hypotheses.
    pub hypotheses: Vec<Tested>,
}

/// A hypothesis and what follows.
#[derive(Clone, Debug, Serialize)]
pub struct Tested {
    /// What it states: a sentence.
    pub statement: String,
    /// What follows, in plain words.
    pub findings: Vec<String>,
    /// The unit of its score.
    pub unit: String,
    /// The hypothesis and its estimates.
    pub verdict: Verdict,
}
