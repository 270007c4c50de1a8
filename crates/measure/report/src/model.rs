//! The contents of a report, as `--json` prints them. Numbers that do not exist are null.

use schemars::JsonSchema;
use serde::Serialize;

use bellows_campaign::{Better, Verdict};

use crate::axis::Axis;

/// A report of a campaign's results.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Report of a campaign")]
pub struct Report {
    /// The name of the campaign, or of the file.
    pub title: String,
    /// The file or folder of the results.
    pub source: String,
    /// What was run, on what, and when.
    pub setup: Setup,
    /// Exploration: the analysis of each score and unit.
    pub sections: Vec<Section>,
    /// What the runs say of the registered hypotheses.
    pub confirmation: Confirmation,
}

/// What was run, on what, and when.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
#[schemars(title = "Setup of a campaign")]
pub struct Setup {
    /// Runs; rows of an imported table.
    pub runs: usize,
    /// Runs without a score.
    pub failed: usize,
    /// Disturbed runs.
    pub disturbed: usize,
    /// Blocks, or repetitions.
    pub blocks: usize,
    /// Combinations that were run.
    pub combinations: usize,
    /// The first and the last start (RFC 3339, UTC); null if not known.
    pub span: Option<(String, String)>,
    /// The command of a run; null if not known.
    pub command: Option<String>,
    /// The hash of the campaign; null if not known.
    pub hash: Option<String>,
    /// The factors.
    pub factors: Vec<FactorSummary>,
    /// The names of machines.
    pub machines: Vec<NameTally>,
    /// Processors.
    pub processors: Vec<NameTally>,
    /// Kernels.
    pub kernels: Vec<NameTally>,
    /// Programs with their versions.
    pub versions: Vec<NameTally>,
    /// Sentences: what is not known, and why.
    pub notes: Vec<String>,
}

/// A name and how often it occurs.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Tally")]
pub struct NameTally {
    /// The name.
    pub name: String,
    /// The runs with it.
    pub runs: usize,
}

/// A factor with its levels.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Factor of a campaign")]
pub struct FactorSummary {
    /// Its name.
    pub name: String,
    /// Its levels.
    ///
    /// The levels, each with its number of runs and what it stands for in commands.
    pub levels: Vec<LevelSummary>,
}

/// A level of a factor.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Level of a factor")]
pub struct LevelSummary {
    /// Its label.
    pub label: String,
    /// Its runs.
    pub runs: usize,
    /// What it stands for in commands: `key = value, …`; null if that is its label.
    pub values: Option<String>,
}

/// What the runs say of one score. All of it is exploration.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Section of a report")]
pub struct Section {
    /// A name for links and files: `score-1`.
    pub id: String,
    /// The score.
    pub score: String,
    /// Its unit; empty if it has none.
    pub unit: String,
    /// Which scores are better; null if not known.
    pub better: Option<Better>,
    /// Runs.
    pub runs: usize,
    /// Runs with a score.
    pub scored: usize,
    /// The factor of interest; null if no factor varies.
    pub factor: Option<String>,
    /// A sentence: why it is that one, or why there is none.
    pub factor_reason: String,
    /// The other factors that vary.
    pub others: Vec<String>,
    /// The factors that do not vary, each with its level.
    pub held: Vec<(String, String)>,
    /// The levels of the factor of interest, or all runs.
    pub levels: Vec<LevelScores>,
    /// Why runs have no score.
    pub failures: Vec<Reason>,
    /// Sentences: what follows from the tests.
    pub findings: Vec<String>,
    /// Sentences: assumptions that do not hold, and what could not be analysed.
    pub warnings: Vec<String>,
    /// The analysis of variance; null if there is none.
    pub analysis: Option<Analysis>,
    /// The differences between the levels of the factor of interest; null if they cannot be compared.
    pub contrasts: Option<Contrasts>,
    /// The distribution of all scores, by the factor of interest.
    pub overlay: Distributions,
    /// The same, split by each other factor.
    pub splits: Vec<Split>,
    /// The median of each combination.
    pub matrix: Matrix,
    /// The scores in the order of time.
    pub course: Course,
}

/// The scores of a level.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Scores of a level")]
pub struct LevelScores {
    /// Its label.
    pub label: String,
    /// Runs.
    pub runs: usize,
    /// Runs with a score.
    pub scored: usize,
    /// The mean; null without a score.
    #[schemars(with = "Option<f64>")]
    pub mean: f64,
    /// The standard deviation; null with fewer than two scores.
    #[schemars(with = "Option<f64>")]
    pub deviation: f64,
    /// The median; null without a score.
    #[schemars(with = "Option<f64>")]
    pub median: f64,
    /// The lower end of the median's 95 percent interval; null without a score.
    #[schemars(with = "Option<f64>")]
    pub low: f64,
    /// The upper end; null without a score.
    #[schemars(with = "Option<f64>")]
    pub high: f64,
}

/// Why runs failed.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Reason of failures")]
pub struct Reason {
    /// The reason.
    pub reason: String,
    /// The runs that failed for it.
    pub runs: usize,
    /// Those of each level of the factor of interest.
    pub levels: Vec<usize>,
}

/// An analysis of variance.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Analysis of variance")]
pub struct Analysis {
    /// The terms, joined by `+`.
    pub model: String,
    /// The terms.
    pub terms: Vec<Term>,
    /// Degrees of freedom of what the model does not explain.
    pub df: f64,
    /// The standard deviation of what the model does not explain.
    pub deviation: f64,
    /// Whether all combinations have the same number of scores.
    pub is_balanced: bool,
    /// The number of machines whose differences were taken out; 1 if one made all runs, or if they are part of the
    /// scatter.
    ///
    /// The number of machines whose differences were taken out of the scores: an additive term of the model. 1 if one made
    /// all runs, or if they are part of the noise.
    pub machines: usize,
    /// Degrees of freedom of these differences.
    pub machine_df: usize,
}

/// A term of an analysis of variance.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Term of a model")]
pub struct Term {
    /// Its factors, joined by `:`.
    pub label: String,
    /// Degrees of freedom.
    pub df: f64,
    /// The ratio of variances.
    pub f: f64,
    /// The probability of such a ratio without an effect.
    pub p: f64,
    /// The share of all squares that it explains.
    pub share: f64,
}

/// Differences of means.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Differences of means")]
pub struct Contrasts {
    /// How intervals and probabilities are corrected: `Tukey–Kramer` or `Bonferroni`.
    pub method: String,
    /// The number of means.
    pub means: usize,
    /// The number of comparisons for which they are corrected.
    pub comparisons: usize,
    /// The probability with which all intervals hold together.
    pub confidence: f64,
    /// Half of the narrowest interval's width, and of the widest's.
    pub half_width: (f64, f64),
    /// The differences, in the order of levels.
    pub rows: Vec<Contrast>,
}

/// The difference of two means.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Difference of two means")]
pub struct Contrast {
    /// The index of its panel; null if it is not split.
    pub panel: Option<usize>,
    /// The indices of the levels: the first minus the second.
    pub levels: [usize; 2],
    /// The levels in words: `first − second`.
    pub label: String,
    /// The combinations of the other factors that both have, of which it is the mean.
    pub combinations: usize,
    /// Whether it may be one of machines, because no combination was run on machines of both sides.
    pub is_confounded: bool,
    /// The difference.
    pub difference: f64,
    /// Its standard error.
    pub error: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The corrected probability of such a difference if there is none.
    pub p: f64,
    /// The difference as a share of the second mean; null if that is near 0.
    pub relative: Option<f64>,
    /// The probability by Welch's test, corrected by Holm's method; null if not tested.
    pub welch_p: Option<f64>,
    /// The interval of Welch's test, corrected by Bonferroni's method; null if not tested.
    pub welch: Option<(f64, f64)>,
    /// The probability by ranks (Dunn's test), corrected by Holm's method; null if not tested.
    pub dunn_p: Option<f64>,
    /// The ratio of the medians, first over second, and the ends of its interval; null unless two levels with medians
    /// above 0 are compared.
    #[schemars(with = "Option<(f64, Option<f64>, Option<f64>)>")]
    pub ratio: Option<(f64, f64, f64)>,
}

/// Distributions of scores in panels with shared axes.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Distributions")]
pub struct Distributions {
    /// How they are drawn.
    pub form: Form,
    /// The axis of scores, which all panels share.
    pub axis: Axis,
    /// The largest density.
    ///
    /// The largest density, in the inverse of the score's unit.
    pub top: f64,
    /// The labels of the levels.
    pub levels: Vec<String>,
    /// The panels; none if there are too many levels to draw.
    pub panels: Vec<Panel>,
    /// The most runs that a tick stands for.
    pub most_per_tick: u32,
}

/// How distributions are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Curves over each other.
    Curves,
    /// A strip with median and quartiles for each level: there are too many for curves.
    Strips,
}

/// A panel of distributions.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Panel of distributions")]
pub struct Panel {
    /// Its label.
    pub label: String,
    /// The distribution of each level.
    pub samples: Vec<Sample>,
}

/// The distribution of some scores.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
#[schemars(title = "Distribution of scores")]
pub struct Sample {
    /// The number of scores.
    pub runs: usize,
    /// Runs without a score.
    pub failed: usize,
    /// The density at equal distances over the axis; empty if too few scores differ, and for strips.
    pub density: Vec<f64>,
    /// The standard deviation of its kernel; null without a density.
    pub bandwidth: Option<f64>,
    /// The rule of the bandwidth: `Sheather–Jones` or `nrd0`; null without a density.
    #[schemars(extend("enum" = ["Sheather–Jones", "nrd0", null]))]
    pub rule: Option<&'static str>,
    /// Scores, each with the number of runs there.
    pub ticks: Vec<(f64, u32)>,
    /// The lower quartile, the median and the upper quartile; null without a score.
    pub quartiles: Option<[f64; 3]>,
}

/// Distributions split by a factor, with the differences in each panel.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Split by a factor")]
pub struct Split {
    /// The factor.
    pub factor: String,
    /// A panel for each of its levels; null if there are too many.
    pub distributions: Option<Distributions>,
    /// The labels of its levels.
    pub panels: Vec<String>,
    /// The differences within the panels; null if they cannot be compared.
    pub contrasts: Option<Contrasts>,
    /// A sentence: the number of comparisons, and their intervals.
    pub statement: String,
}

/// The figures of all combinations: a row for each combination of the other factors, a column for each level of the
/// factor of interest.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Matrix of a report")]
pub struct Matrix {
    /// The other factors, of whose levels a row is a combination.
    pub factors: Vec<String>,
    /// The levels of the factor of interest.
    pub columns: Vec<String>,
    /// The rows, in the order of levels.
    pub rows: Vec<MatrixRow>,
    /// The least and the largest median; null without a score.
    pub range: Option<(f64, f64)>,
    /// The indices of the rows that are drawn.
    ///
    /// Indices of the rows that are drawn: all, or those with the least and the largest medians.
    pub drawn: Vec<usize>,
}

/// A row of a matrix.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Row of a matrix")]
pub struct MatrixRow {
    /// The level of each of the other factors.
    pub levels: Vec<String>,
    /// The combination with each level of the factor of interest; null where no run was made.
    pub cells: Vec<Option<ModelCell>>,
    /// `best` and `worst` of all rows, or `highest` and `lowest` if it is not known which scores are better; `most
    /// failures`.
    #[schemars(extend("items" = {"type": "string", "enum": ["best", "worst", "highest", "lowest", "most failures"]}))]
    pub marks: Vec<&'static str>,
}

/// A combination.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Cell of a matrix")]
pub struct ModelCell {
    /// Runs.
    pub runs: usize,
    /// Runs without a score.
    pub failed: usize,
    /// The median; null if all failed.
    pub median: Option<f64>,
}

/// Scores in the order of time.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Course of time")]
pub struct Course {
    /// What the order is: `order of start`, or that of rows in the table.
    pub order: String,
    /// Runs.
    pub runs: usize,
    /// The place in the order at which each block begins, and the block; empty if there are too many.
    pub blocks: Vec<(usize, u32)>,
    /// The scores, and the scores less the median of their combination.
    pub series: Vec<Series>,
    /// The places of disturbed runs, or of columns of runs with some, each with its number.
    pub disturbed: Vec<(f64, u32)>,
    /// Disturbed runs.
    pub disturbed_runs: usize,
    /// The places of failed runs, likewise.
    pub failed: Vec<(f64, u32)>,
    /// The rank correlation (Spearman's) with time of what the model does not explain; null if too few scores differ.
    pub correlation: Option<f64>,
    /// The probability of such a correlation without a drift; null if too few scores differ.
    pub p: Option<f64>,
    /// A sentence: whether the scores drift.
    pub finding: String,
}

/// Numbers in the order of time.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Series")]
pub struct Series {
    /// Its label.
    pub label: String,
    /// The axis of its numbers.
    pub axis: Axis,
    /// The place, the number and whether it was disturbed, of each run; empty if there are too many runs.
    pub points: Vec<(usize, f64, bool)>,
    /// For many runs, columns of them: the place, and the minimum, the quartiles and the maximum; else empty.
    pub bands: Vec<(f64, [f64; 5])>,
    /// The runs of a column.
    pub per_band: usize,
}

/// What the runs say of registered hypotheses.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Confirmation")]
pub struct Confirmation {
    /// A sentence: why there are no hypotheses; null if there are.
    pub note: Option<String>,
    /// The hypotheses.
    pub hypotheses: Vec<Tested>,
}

/// A hypothesis and what follows.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Tested hypothesis")]
pub struct Tested {
    /// A sentence: what it states.
    pub statement: String,
    /// Sentences: what follows.
    pub findings: Vec<String>,
    /// The unit of its score.
    pub unit: String,
    /// What `test` says of it.
    pub verdict: Verdict,
}
