//! The statistics of runs: what they measured, whether they differ, and how many are needed.
//!
//! | question | functions |
//! |---|---|
//! | What is the figure? | [`median`] with its interval by order statistics, [`quantile`] |
//! | How much faster is one? | [`ratio_of_medians`] over pairs, [`bootstrap_ratio`] of two samples |
//! | Do two samples differ? | [`welch`] in their means, [`rank_sum`] in their ranks |
//! | Do the two of each pair differ? | [`paired`](fn@paired) in their mean, [`signed_rank`] in their ranks |
//! | Do several samples differ, and which? | [`kruskal_wallis`] and [`dunn`] |
//! | Which factors matter, and which of their levels differ? | [`anova`](fn@anova) and [`Anova::tukey`]; unbalanced, [`Anova::common_contrasts`]; on several machines, [`anova_in_blocks`] |
//! | Do the assumptions hold? | [`check_assumptions`], which says what to use instead |
//! | What if I test several hypotheses? | [`holm`] and [`bonferroni`] |
//! | How many runs are needed? | [`power`] |
//! | How are the values distributed? | [`Density`] |
//!
//! Everything is deterministic: functions that draw random numbers take or fix the seed. Values have whatever unit the
//! caller measures in; differences and intervals have the same. Probabilities lie between 0 and 1, and are precise also
//! where they are tiny. A confidence of 0.95 means 95 percent.

#![forbid(unsafe_code)]

pub mod anova;
mod bootstrap;
mod checks;
mod density;
pub mod distribution;
mod medians;
mod multiplicity;
mod paired;
pub mod power;
mod ranks;
mod welch;

pub use anova::{Anova, AnovaError, Factor, Model, anova, anova_in_blocks, anova_within};
pub use bootstrap::{Bootstrap, bootstrap_median, bootstrap_ratio, bootstrap_ratio_of_pairs, ratio_of_medians};
pub use checks::{Assumption, Drift, ShapiroWilk, Warning, brown_forsythe, check_assumptions, drift, shapiro_wilk};
pub use density::{Bandwidth, Density, DensityError, nrd0, sheather_jones};
pub use medians::{ENOUGH, Median, WIDEST_RATIO, is_ratio_undecided, median, nearest_rank, quantile};
pub use multiplicity::{bonferroni, holm};
pub use paired::{Paired, paired, paired_in_sets};
pub use ranks::{Dunn, KruskalWallis, RankSum, SignedRank, dunn, kruskal_wallis, rank_sum, signed_rank};
pub use welch::{Welch, welch};
