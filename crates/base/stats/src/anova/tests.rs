use super::*;
use proptest::prelude::*;

/// A factor of which run `row` has the level `row / each % count`.
fn cyclic(name: &str, count: usize, each: usize, runs: usize) -> Factor {
    Factor::new(name, (0..runs).map(|row| format!("{name}{}", row / each % count)))
}

/// Solves a symmetric system by elimination with pivots on the diagonal. Pivots that vanish are skipped, which picks
/// one of the solutions if there are many.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let count = right.len();
    let mut pivots = vec![false; count];
    for pivot in 0..count {
        if matrix[pivot][pivot].abs() < 1e-9 {
            continue;
        }
        pivots[pivot] = true;
        for row in (0..count).filter(|&row| row != pivot) {
            let factor = matrix[row][pivot] / matrix[pivot][pivot];
            (0..count).for_each(|column| matrix[row][column] -= factor * matrix[pivot][column]);
            right[row] -= factor * right[pivot];
        }
    }
    (0..count).map(|row| if pivots[row] { right[row] / matrix[row][row] } else { 0.0 }).collect()
}

/// The residual sum of squares of the first terms of a model, by the normal equations of all runs' indicators.
fn direct(scores: &[f64], factors: &[Factor], terms: &[Vec<usize>]) -> f64 {
    let mut columns: Vec<Vec<f64>> = vec![vec![1.0; scores.len()]];
    for term in terms {
        let combination = |row: usize| term.iter().map(|&factor| factors[factor].codes()[row]).collect::<Vec<u32>>();
        let mut known: Vec<Vec<u32>> = (0..scores.len()).map(combination).collect();
        known.sort();
        known.dedup();
        let indicator =
            |codes: &Vec<u32>| (0..scores.len()).map(|row| f64::from(u8::from(combination(row) == *codes))).collect();
        columns.extend(known.iter().map(indicator));
    }
    let product = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(one, other)| one * other).sum::<f64>();
    let matrix = columns.iter().map(|one| columns.iter().map(|other| product(one, other)).collect()).collect();
    let effects = solve(matrix, columns.iter().map(|column| product(column, scores)).collect());
    let fitted = |row: usize| columns.iter().zip(&effects).map(|(column, effect)| column[row] * effect).sum::<f64>();
    scores.iter().enumerate().map(|(row, score)| (score - fitted(row)).powi(2)).sum()
}

#[test]
fn errors_say_what_to_change() {
    let factors = [cyclic("a", 2, 1, 4), cyclic("b", 2, 2, 4), cyclic("one", 1, 1, 4), cyclic("short", 2, 1, 3)];
    let of = |scores: &[f64], formula: &str| {
        anova(scores, &factors, &Model::parse(formula, &factors).unwrap()).unwrap_err().to_string()
    };
    let scores = [1.0, 2.0, 4.0, 8.0];
    assert_eq!(
        of(&scores, "short"),
        "factor short has the levels of 3 runs, but there are 4 scores; use NaN for a missing score"
    );
    assert_eq!(of(&[1.0, 2.0, f64::INFINITY, 1.0], "a"), "the score of run 2 is inf; use NaN for a missing score");
    assert_eq!(
        of(&scores, "one"),
        "all runs with a score have the same level of factor one; leave it out of the model"
    );
    assert!(of(&[f64::NAN; 4], "a").contains("same level"));
    assert_eq!(
        of(&scores, "a*b"),
        "4 runs with a score cannot tell 4 effects from noise; repeat runs, or leave out interactions"
    );
    assert_eq!(
        of(&[0.1, 0.3, 0.1, 0.3], "a"),
        "the runs of each combination have the same score, so nothing can be told about noise"
    );
    let model = Model::new([vec![7]], 8).unwrap();
    assert!(matches!(anova(&scores, &factors, &model), Err(AnovaError::NoSuchFactor { index: 7, factors: 4 })));
    let many: Vec<f64> = (0..9_000).map(|row| f64::from(row % 7)).collect();
    let wide = [cyclic("a", 2_500, 1, 9_000), cyclic("b", 3, 2_500, 9_000)];
    let model = Model::parse("a + b", &wide).unwrap();
    assert_eq!(
        anova(&many, &wide, &model).unwrap_err().to_string(),
        "the model has 2503 effects, more than 2000; leave out interactions"
    );
}

#[test]
fn comparisons_say_what_is_wrong_with_a_question() {
    let factors = [cyclic("a", 2, 1, 8), cyclic("b", 2, 2, 8)];
    let scores = [1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0];
    let found = anova(&scores, &factors, &Model::parse("a*b", &factors).unwrap()).unwrap();
    assert_eq!(found.tukey("c", 0.95).unwrap_err().to_string(), "the model has no term \"c\"; its terms are a, b, a:b");
    assert!(matches!(found.tukey("a", 95.0), Err(TukeyError::Confidence { .. })));
    let interaction = found.tukey("b:a", 0.95).unwrap();
    assert_eq!(interaction.term, "a:b");
    assert_eq!(interaction.contrasts[0].label, "a1:b0 - a0:b0", "the first factor varies fastest");
    assert_eq!((interaction.means.len(), interaction.contrasts.len()), (4, 6));
}

#[test]
fn a_missing_score_leaves_its_run_out() {
    let factors = [cyclic("a", 3, 1, 30)];
    let model = Model::parse("a", &factors).unwrap();
    let mut scores: Vec<f64> = (0..30).map(|row| f64::from(row * row % 17)).collect();
    let all = anova(&scores, &factors, &model).unwrap();
    assert!(all.is_balanced && all.missing == 0 && all.runs == 30);
    scores[4] = f64::NAN;
    let rest = anova(&scores, &factors, &model).unwrap();
    assert_eq!((rest.is_balanced, rest.missing, rest.runs, rest.residual_df), (false, 1, 29, 26.0));
    let residuals = rest.residuals(&scores);
    assert!(residuals[4].is_nan() && residuals.iter().filter(|residual| residual.is_nan()).count() == 1);
    assert_eq!(rest.combinations().filter(Option::is_none).count(), 1);
    let sum: f64 = residuals.iter().filter(|residual| !residual.is_nan()).sum();
    assert!(sum.abs() < 1e-10);
}

#[test]
fn a_term_that_adds_nothing_has_no_degrees_of_freedom() {
    let factors = [cyclic("a", 3, 1, 12), cyclic("same", 3, 1, 12)];
    let scores: Vec<f64> = (0..12).map(|row| f64::from(row * row % 7)).collect();
    let found = anova(&scores, &factors, &Model::parse("a + same", &factors).unwrap()).unwrap();
    let row = found.term("same").unwrap();
    assert!(row.df == 0.0 && row.squares < 1e-20 && row.p.is_nan(), "{row:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Sequential sums of squares are the differences of the residual sums of direct least squares, also with unequal
    /// numbers of runs and empty combinations.
    #[test]
    fn sums_of_squares_are_those_of_direct_least_squares(
        runs in proptest::collection::vec((0..3u8, 0..3u8, 0..2u8, -9.0..9f64), 12..40),
        formula in proptest::sample::select(vec!["a", "a+b", "b*a", "a*b*c", "a:b", "c + a:b", "a:b + b:c"]),
    ) {
        let level = |pick: fn(&(u8, u8, u8, f64)) -> u8| runs.iter().map(move |run| pick(run).to_string());
        let (a, b, c) = (level(|run| run.0), level(|run| run.1), level(|run| run.2));
        let factors = [Factor::new("a", a), Factor::new("b", b), Factor::new("c", c)];
        let scores: Vec<f64> = runs.iter().map(|run| run.3).collect();
        let model = Model::parse(formula, &factors).unwrap();
        let Ok(found) = anova(&scores, &factors, &model) else { return Ok(()) };
        let mut before = direct(&scores, &factors, &[]);
        let all = before;
        for (place, row) in found.terms.iter().enumerate() {
            let after = direct(&scores, &factors, &model.terms()[..=place]);
            prop_assert!((before - after - row.squares).abs() < 1e-8 * all, "{row:?}: {before} {after}");
            before = after;
        }
        prop_assert!((before - found.residual_squares).abs() < 1e-8 * all);
        let residuals: f64 = found.residuals(&scores).iter().map(|residual| residual * residual).sum();
        prop_assert!((residuals - found.residual_squares).abs() < 1e-8 * all);
        let total: f64 = found.terms.iter().map(|row| row.df).sum::<f64>() + found.residual_df + 1.0;
        prop_assert_eq!(total, scores.len() as f64);
    }
}
