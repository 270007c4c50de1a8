//! All methods against R, over its own examples and over data sets of many shapes.
//!
//! The tolerance is 1e-6 of each number, and 1e-12 of those around 0, with these exceptions.
//!
//! - R ends its search for a quantile of the studentized range within 1e-4. Its tails of this range are off by up to
//!   1e-6 with many means, and by 1e-3 with two degrees of freedom; `far_tails.rs` has the values by quadrature.
//! - Upper tails of noncentral distributions are differences from 1 in R.
//! - R's bandwidth of Sheather and Jones depends on its bins, and densities before R 4.4 are displaced by a part of
//!   their grid. Both are compared at many bins.

mod r;

use bellows_stats::distribution::{
    ChiSquare, Distribution, FRatio, NoncentralF, NoncentralT, Normal, StudentT, StudentizedRange,
};
use bellows_stats::power::{
    SampleGroups, TTest, power, power_of_groups, runs_needed, runs_needed_of_groups, smallest_effect,
};
use bellows_stats::{
    Anova, Bandwidth, Bootstrap, Density, Factor, Model, anova, bonferroni, bootstrap_median, brown_forsythe, drift,
    dunn, holm, kruskal_wallis, nrd0, paired, paired_in_sets, rank_sum, shapiro_wilk, sheather_jones, signed_rank,
    welch,
};

use r::{Comparisons, DataSet, STRICT, Tolerance, data_sets, vector};

/// R's upper tails of the studentized range, for the means and degrees of freedom of the examples.
const RANGE_TAIL: Tolerance = Tolerance { relative: 1e-6, absolute: 1e-8 };

/// The same for many means and tails far out.
const RANGE_FAR: Tolerance = Tolerance { relative: 0.0, absolute: 1e-6 };

/// R's quantiles of the studentized range.
const RANGE_QUANTILE: Tolerance = Tolerance { relative: 2e-4, absolute: 0.0 };

/// Tails that R computes as differences from 1.
const FROM_ONE: Tolerance = Tolerance { relative: 1e-6, absolute: 2e-9 };

/// Samples of many shapes: normal, skewed, heavy-tailed, with ties, of two peaks, and tiny.
fn shapes() -> Vec<(&'static str, Vec<f64>)> {
    let mut random = fastrand::Rng::with_seed(20);
    let mut sample = |count: usize, value: fn(f64) -> f64| -> Vec<f64> {
        // A sum of uniform variables is nearly normal.
        (0..count).map(|_| value((0..12).map(|_| random.f64()).sum::<f64>() - 6.0)).collect()
    };
    vec![
        ("normal", sample(40, |z| 10.0 + z)),
        ("large numbers", sample(35, |z| 1e9 + 1e3 * z)),
        ("small numbers", sample(25, |z| 1e-6 * z)),
        ("skewed", sample(60, f64::exp)),
        ("heavy tails", sample(30, |z| z + z.powi(5))),
        ("ties", sample(48, |z| (2.0 * z).round())),
        ("two peaks", sample(80, |z| if z > 0.3 { 20.0 + z } else { z })),
        ("many", sample(900, |z| z * z + 0.3 * z)),
        ("few", sample(7, |z| z)),
        ("tiny", vec![1.5, 2.5, -4.0]),
    ]
}

#[test]
fn distributions_are_those_of_r() {
    let mut r = Comparisons::new("distributions_are_those_of_r");
    let x = [-30.0, -5.0, -1.3, -1e-3, 0.0, 0.2, 1.0, 2.7, 8.0, 37.0];
    let positive = [1e-6, 0.03, 0.5, 1.0, 2.2, 9.0, 60.0, 700.0];
    let parts = [1e-20, 1e-6, 0.003, 0.05, 0.4, 0.5, 0.8, 0.975, 0.9999];
    let (xs, positives, ps) = (vector(&x), vector(&positive), vector(&parts));
    let mut tails = |distribution: &dyn Distribution, name: &str, arguments: &str, x: &[f64], xs: &str| {
        let of = |value: fn(&dyn Distribution, f64) -> f64, at: &[f64]| -> Vec<f64> {
            at.iter().map(|&x| value(distribution, x)).collect()
        };
        let tiny = Tolerance { absolute: 0.0, ..STRICT };
        r.near(&format!("p{name}({xs}{arguments})"), of(|it, x| it.lower_tail(x), x), tiny);
        r.near(&format!("p{name}({xs}{arguments}, lower.tail = FALSE)"), of(|it, x| it.upper_tail(x), x), tiny);
        let (lower, upper) = (of(|it, part| it.quantile(part), &parts), of(|it, part| it.upper_quantile(part), &parts));
        r.near(&format!("p{name}({}{arguments})", vector(&lower)), parts, tiny);
        r.near(&format!("p{name}({}{arguments}, lower.tail = FALSE)", vector(&upper)), parts, tiny);
        // R's quantiles of the F distribution lose digits where they are close to 0.
        if name != "f" {
            r.same(&format!("q{name}({ps}{arguments})"), lower);
            r.same(&format!("q{name}({ps}{arguments}, lower.tail = FALSE)"), upper);
        }
    };
    tails(&Normal, "norm", "", &x, &xs);
    for df in [1.0, 2.5, 7.0, 29.0, 2_090.0, 1e6] {
        tails(&StudentT { df }, "t", &format!(", {df}"), &x, &xs);
        tails(&ChiSquare { df }, "chisq", &format!(", {df}"), &positive, &positives);
        for numerator in [1.0, 3.0, 40.0] {
            let arguments = format!(", {numerator}, {df}");
            tails(&FRatio { numerator, denominator: df }, "f", &arguments, &positive, &positives);
        }
    }
    for (df, shift) in [(3.0, 0.5), (12.0, 2.8), (12.0, -1.0), (58.0, 3.3), (400.0, 7.0)] {
        let t = NoncentralT { df, shift };
        let ours: Vec<f64> = [-2.0, 0.0, 1.0, 2.0, 3.5, 6.0].map(|x| t.upper_tail(x)).into();
        r.near(&format!("pt(c(-2, 0, 1, 2, 3.5, 6), {df}, {shift}, lower.tail = FALSE)"), ours, FROM_ONE);
        let f = NoncentralF { numerator: 4.0, denominator: df, shift: shift * shift };
        let ours: Vec<f64> = positive.map(|x| f.upper_tail(x)).into();
        r.near(&format!("pf({positives}, 4, {df}, {}, lower.tail = FALSE)", shift * shift), ours, FROM_ONE);
    }
    r.check();
}

#[test]
fn the_studentized_range_is_that_of_r() {
    let mut r = Comparisons::new("the_studentized_range_is_that_of_r");
    let q = [0.5, 1.0, 2.0, 3.3, 4.5, 7.0, 12.0];
    let parts = [0.8, 0.95, 0.99, 0.999];
    let (qs, ps) = (vector(&q), vector(&parts));
    for means in [2, 3, 5, 10, 40] {
        // With 40 means R loses digits at few degrees of freedom.
        for df in [8.0, 11.0, 30.0, 2_090.0, 20_000.0, f64::INFINITY].into_iter().filter(|df| means < 40 || *df > 11.0)
        {
            let range = StudentizedRange::new(means, df);
            let name = if df.is_infinite() { "Inf".to_owned() } else { df.to_string() };
            let of = |value: &dyn Fn(f64) -> f64, at: &[f64]| at.iter().map(|&x| value(x)).collect::<Vec<f64>>();
            r.near(&format!("ptukey({qs}, {means}, {name})"), of(&|q| range.lower_tail(q), &q), RANGE_FAR);
            let upper = of(&|q| range.upper_tail(q), &q);
            r.near(&format!("ptukey({qs}, {means}, {name}, lower.tail = FALSE)"), upper, RANGE_FAR);
            r.near(&format!("qtukey({ps}, {means}, {name})"), of(&|part| range.quantile(part), &parts), RANGE_QUANTILE);
        }
    }
    r.check();
}

/// Compares an analysis of variance, and Tukey's comparisons of some of its terms.
fn compare_anova(r: &mut Comparisons, frame: &str, score: &str, found: &Anova, formula: &str, terms: &[&str]) {
    r.run(&format!("fit <- aov({score} ~ {formula}, {frame}); table <- summary(fit)[[1]]"));
    let column = |value: fn(&bellows_stats::anova::TermRow) -> f64| found.terms.iter().map(value).collect::<Vec<f64>>();
    let with = |mut values: Vec<f64>, last: f64| {
        values.push(last);
        values
    };
    r.same("table[[\"Df\"]]", with(column(|row| row.df), found.residual_df));
    r.same("table[[\"Sum Sq\"]]", with(column(|row| row.squares), found.residual_squares));
    r.same("head(table[[\"F value\"]], -1)", column(|row| row.f));
    r.near("head(table[[\"Pr(>F)\"]], -1)", column(|row| row.p), Tolerance { absolute: 0.0, ..STRICT });
    for term in terms {
        let confidence = if term.contains(':') { 0.99 } else { 0.95 };
        let tukey = found.tukey(term, confidence).unwrap();
        let of =
            |value: fn(&bellows_stats::anova::Contrast) -> f64| tukey.contrasts.iter().map(value).collect::<Vec<f64>>();
        r.run(&format!(
            "tukey <- TukeyHSD(fit, \"{term}\", conf.level = {confidence})[[1]]; q <- {:?}",
            tukey.quantile
        ));
        let scale = tukey.contrasts.iter().map(|contrast| contrast.difference.abs()).fold(0.0, f64::max);
        let near_zero = Tolerance { absolute: 1e-12 * scale, ..STRICT };
        r.near("tukey[, \"diff\"]", of(|contrast| contrast.difference), near_zero);
        r.near("tukey[, \"p adj\"]", of(|contrast| contrast.p), RANGE_TAIL);
        let half = |contrast: &bellows_stats::anova::Contrast| (contrast.high - contrast.low) / 2.0;
        r.near("(tukey[, \"upr\"] - tukey[, \"lwr\"]) / 2", of(half), RANGE_QUANTILE);
        // The same without the error of R's quantile.
        let means = tukey.means.len();
        r.run("df <- fit$df.residual; half <- tukey[, \"upr\"] - tukey[, \"diff\"]");
        r.run(&format!("excess <- function(q) ptukey(q, {means}, df) - {confidence}"));
        r.run(&format!(
            "half <- half / qtukey({confidence}, {means}, df) * uniroot(excess, c(1, 40), tol = 1e-12)$root"
        ));
        r.near("tukey[, \"diff\"] - half", of(|contrast| contrast.low), Tolerance { absolute: 1e-6 * scale, ..STRICT });
        r.near(
            "tukey[, \"diff\"] + half",
            of(|contrast| contrast.high),
            Tolerance { absolute: 1e-6 * scale, ..STRICT },
        );
    }
}

#[test]
fn analyses_of_the_examples_of_r() {
    const TEST: &str = "analyses_of_the_examples_of_r";
    let columns: &[(&str, &str, &[&str])] = &[
        ("warpbreaks", "breaks", &["wool", "tension"]),
        ("ToothGrowth", "len", &["supp", "dose"]),
        ("PlantGrowth", "weight", &["group"]),
        ("InsectSprays", "count", &["spray"]),
        ("airquality", "Ozone", &["Month"]),
        ("npk", "yield", &["block", "N", "P", "K"]),
        ("chickwts", "weight", &["feed"]),
        ("sleep", "extra", &["group", "ID"]),
        ("mtcars", "mpg", &["cyl", "gear", "am"]),
    ];
    let Some(sets) = data_sets(TEST, columns) else { return };
    let mut r = Comparisons::new(TEST);
    let mut compare = |name: &str, formula: &str, terms: &[&str]| {
        let set: &DataSet = sets.iter().find(|set| set.name == name).unwrap();
        let (_, score, factors) = columns.iter().find(|columns| columns.0 == name).unwrap();
        r.run(&format!("d <- {name}; for (f in {}) d[[f]] <- factor(d[[f]])", names(factors)));
        let found = anova(&set.scores, &set.factors, &Model::parse(formula, &set.factors).unwrap()).unwrap();
        compare_anova(&mut r, "d", score, &found, formula, terms);
    };
    compare("warpbreaks", "wool + tension", &["wool", "tension"]);
    compare("warpbreaks", "wool * tension", &["tension", "wool:tension"]);
    compare("ToothGrowth", "supp * dose", &["supp", "dose", "supp:dose"]);
    compare("PlantGrowth", "group", &["group"]);
    compare("InsectSprays", "spray", &["spray"]);
    compare("airquality", "Month", &["Month"]);
    // A term that earlier ones explain, N:P:K beside its blocks, is not in the table of R.
    compare("npk", "block + N * P + K", &["block", "N", "N:P"]);
    compare("chickwts", "feed", &["feed"]);
    compare("sleep", "ID + group", &["group"]);
    // Unequal numbers of runs and empty combinations.
    compare("mtcars", "cyl + gear", &["cyl", "gear"]);
    compare("mtcars", "cyl + am + cyl:am", &["am", "cyl", "cyl:am"]);
    compare("mtcars", "cyl * gear", &["cyl", "gear"]);
    r.check();
}

fn names(factors: &[&str]) -> String {
    format!("c(\"{}\")", factors.join("\", \""))
}

#[test]
fn analyses_of_many_shapes_are_those_of_r() {
    let mut r = Comparisons::new("analyses_of_many_shapes_are_those_of_r");
    let mut random = fastrand::Rng::with_seed(7);
    for (place, (levels, runs, missing, scale)) in
        [([2, 5, 1], 100, 0, 1.0), ([3, 4, 2], 96, 9, 1e9), ([2, 2, 2], 60, 20, 1e-5), ([7, 3, 2], 300, 31, 1.0)]
            .into_iter()
            .enumerate()
    {
        let code = |place: usize, row: usize| row / levels[..place].iter().product::<usize>() % levels[place];
        let level = |place: usize| (0..runs).map(move |row| format!("l{}", code(place, row)));
        let factors = ["a", "b", "c"].iter().enumerate().map(|(place, name)| Factor::new(*name, level(place)));
        let factors: Vec<Factor> = factors.collect();
        let mut score = |row: usize| {
            let effect = 0.8 * code(0, row) as f64 + 0.3 * (code(0, row) * code(1, row)) as f64;
            scale * (5.0 + effect + random.f64().ln() * 0.7)
        };
        let mut scores: Vec<f64> = (0..runs).map(&mut score).collect();
        (0..missing).for_each(|_| scores[random.usize(..runs)] = f64::NAN);
        r.define_frame("d", &scores, &factors);
        let formulas: &[(&str, &[&str])] = match place {
            0 => &[("a * b", &["a", "b", "a:b"]), ("a", &["a"])],
            _ => &[
                ("a * b + c", &["a", "b", "a:b", "c"]),
                ("c + b + a + a:b:c", &["b", "a"]),
                ("a * b * c", &["a:b:c", "c"]),
            ],
        };
        for (formula, terms) in formulas {
            let found = anova(&scores, &factors, &Model::parse(formula, &factors).unwrap()).unwrap();
            compare_anova(&mut r, "d", "y", &found, formula, terms);
        }
    }
    r.check();
}

#[test]
fn comparisons_of_samples_are_those_of_r() {
    let mut r = Comparisons::new("comparisons_of_samples_are_those_of_r");
    let shapes = shapes();
    for (name, values) in &shapes {
        let middle = values.len() / 2 + values.len() % 5 / 2;
        let (ones, others) = values.split_at(middle.max(1));
        let shift = values.iter().map(|value| value.abs()).fold(0.0, f64::max) * 0.05;
        let others: Vec<f64> =
            others.iter().map(|value| value + shift * f64::from(u8::from(*name != "ties"))).collect();
        r.define("x", ones);
        r.define("y", &others);
        let ranks = rank_sum(ones, &others).unwrap();
        r.run("w <- wilcox.test(x, y)");
        r.near("c(w$statistic, w$p.value)", [ranks.statistic, ranks.p], Tolerance { absolute: 0.0, ..STRICT });
        if others.len() > 1 {
            for confidence in [0.9, 0.99] {
                let found = welch(ones, &others, confidence).unwrap();
                r.run(&format!("w <- t.test(x, y, conf.level = {confidence})"));
                let ours = [found.t, found.df, found.p, found.low, found.high];
                r.near(
                    "c(w$statistic, w$parameter, w$p.value, w$conf.int)",
                    ours,
                    Tolerance { absolute: 0.0, ..STRICT },
                );
            }
        }
        if values.len() > 12 {
            compare_several(&mut r, values);
        }
        r.define("x", values);
        let normality = shapiro_wilk(values).unwrap();
        let close = Tolerance { relative: 1e-6, absolute: 1e-16 };
        r.run("w <- shapiro.test(x)");
        r.near("c(w$statistic, w$p.value)", [normality.w, normality.p], close);
        if values.len() > 3 {
            let times: Vec<f64> = (0..values.len()).map(|row| (row * 7 % 10) as f64).collect();
            let found = drift(values, &times).unwrap();
            r.define("times", &times);
            r.run("w <- cor.test(x, times, method = \"spearman\", exact = FALSE)");
            r.same("c(w$estimate, w$p.value)", [found.correlation, found.p]);
        }
    }
    let ps = [0.03, 0.001, 0.2, 0.011, 0.011, 0.9, 1e-12];
    r.same(&format!("p.adjust({}, \"holm\")", vector(&ps)), holm(&ps));
    r.same(&format!("p.adjust({}, \"bonferroni\")", vector(&ps)), bonferroni(&ps));
    r.check();
}

#[test]
fn tests_of_pairs_are_those_of_r() {
    let mut r = Comparisons::new("tests_of_pairs_are_those_of_r");
    let tiny = Tolerance { absolute: 0.0, ..STRICT };
    let mut random = fastrand::Rng::with_seed(8);
    let small = (2..60).map(|count| ("of this size", (0..count).map(|_| random.f64() - 0.4).collect::<Vec<f64>>()));
    let small: Vec<_> = small.collect();
    let zeros = ("zeros", vec![0.0, 1.0, -2.0, 0.0, 3.0, 5.0, 5.0, 0.0, -0.5]);
    for (name, values) in shapes().into_iter().chain(small).chain([zeros]) {
        r.define("x", &values);
        for confidence in [0.95, 0.998] {
            let found = paired(&values, confidence).unwrap();
            r.run(&format!("w <- t.test(x, conf.level = {confidence})"));
            let ours = [found.difference, found.error, found.t, found.df, found.p, found.low, found.high];
            r.near("c(w$estimate, w$stderr, w$statistic, w$parameter, w$p.value, w$conf.int)", ours, tiny);
            // A margin of some standard errors beyond the mean, and one within.
            for margin in [found.difference.abs() + 1.7 * found.error, found.difference.abs() / 2.0] {
                r.run(&format!(
                    "p <- max(t.test(x, mu = {margin:?}, alternative = \"less\")$p.value,
                              t.test(x, mu = -{margin:?}, alternative = \"greater\")$p.value)"
                ));
                r.near("p", [found.p_within(margin)], tiny);
            }
        }
        let found = signed_rank(&values).unwrap();
        r.run("w <- wilcox.test(x)");
        r.near("c(w$statistic, w$p.value)", [found.statistic, found.p], tiny);
        if name != "tiny" && values.len() > 5 {
            let (ones, others) = values.split_at(values.len() / 3);
            let found = paired_in_sets(&[ones, others], 0.95).unwrap();
            // R's test of two samples is that of a difference of means: half of it, with the second sample negated.
            r.run(&format!("k <- {}; w <- t.test(x[1:k], -x[(k + 1):length(x)])", ones.len()));
            let ours = [found.t, found.df, found.p, 2.0 * found.low, 2.0 * found.high];
            r.near("c(w$statistic, w$parameter, w$p.value, w$conf.int)", ours, tiny);
        }
    }
    r.check();
}

/// Compares four samples of unequal size.
fn compare_several(r: &mut Comparisons, values: &[f64]) {
    let quarter = values.len() / 4;
    let cuts = [0, quarter - 1, 2 * quarter, 3 * quarter + 1, values.len()];
    let samples: Vec<&[f64]> = cuts.windows(2).map(|cut| &values[cut[0]..cut[1]]).collect();
    let codes = samples.iter().zip(1..).flat_map(|(sample, code)| vec![f64::from(code); sample.len()]);
    r.define("x", values);
    r.define("g", &codes.collect::<Vec<f64>>());
    let found = kruskal_wallis(&samples).unwrap();
    r.run("w <- kruskal.test(x, factor(g))");
    r.same("c(w$statistic, w$parameter, w$p.value)", [found.h, found.df, found.p]);
    // R itself has no test of Dunn; this is his formula.
    r.run(
        "ranks <- rank(x); m <- tapply(ranks, g, mean); n <- tapply(ranks, g, length)
         of <- function(i, j) (m[j] - m[i]) / sqrt(var(ranks) * (1/n[i] + 1/n[j]))
         z <- c(of(1, 2), of(1, 3), of(1, 4), of(2, 3), of(2, 4), of(3, 4))
         p <- 2 * pnorm(-abs(z))",
    );
    let pairs = dunn(&samples).unwrap();
    r.same("z", pairs.iter().map(|pair| pair.z).collect::<Vec<f64>>());
    r.same("p", pairs.iter().map(|pair| pair.p).collect::<Vec<f64>>());
    r.same("p.adjust(p, \"holm\")", pairs.iter().map(|pair| pair.adjusted_p).collect::<Vec<f64>>());
    let variances = brown_forsythe(&samples).unwrap();
    r.run("w <- summary(aov(abs(x - ave(x, g, FUN = median)) ~ factor(g)))[[1]]");
    r.same("c(w[[\"F value\"]][1], w[[\"Pr(>F)\"]][1])", [variances.f, variances.p]);
}

#[test]
fn normality_and_exact_ranks_over_all_sizes_are_those_of_r() {
    let mut r = Comparisons::new("normality_and_exact_ranks_over_all_sizes_are_those_of_r");
    let mut random = fastrand::Rng::with_seed(3);
    for count in (3..30).chain([49, 50, 51, 500, 4_999, 5_000]) {
        let values: Vec<f64> = (0..count).map(|_| random.f64() + random.f64().powi(3)).collect();
        r.define("x", &values);
        let found = shapiro_wilk(&values).unwrap();
        r.run("w <- shapiro.test(x)");
        r.near("c(w$statistic, w$p.value)", [found.w, found.p], Tolerance { absolute: 1e-16, ..STRICT });
        if count < 100 {
            let others: Vec<f64> = (0..count % 13 + 2).map(|_| random.f64() * 1.3).collect();
            let found = rank_sum(&values, &others).unwrap();
            r.define("y", &others);
            r.run("w <- wilcox.test(x, y)");
            r.near("c(w$statistic, w$p.value)", [found.statistic, found.p], Tolerance { absolute: 0.0, ..STRICT });
        }
    }
    r.check();
}

#[test]
fn power_is_that_of_r() {
    let mut r = Comparisons::new("power_is_that_of_r");
    for (comparison, kind) in [(TTest::TwoSamples, "two.sample"), (TTest::Pairs, "paired")] {
        for (effect, significance, wanted) in [(1.0, 0.05, 0.8), (0.3, 0.01, 0.9), (2.5, 0.05, 0.95), (0.1, 0.1, 0.5)] {
            let common = format!("sig.level = {significance}, type = \"{kind}\", strict = TRUE");
            r.run(&format!("n <- power.t.test(delta = {effect}, power = {wanted}, {common}, tol = 1e-9)$n"));
            let runs = runs_needed(comparison, effect, significance, wanted).unwrap();
            r.same("ceiling(n)", [runs as f64]);
            r.same(
                &format!("power.t.test(n = {runs}, delta = {effect}, {common})$power"),
                [power(comparison, runs, effect, significance).unwrap()],
            );
            r.same(
                &format!("power.t.test(n = {runs}, power = {wanted}, {common}, tol = 1e-10)$delta"),
                [smallest_effect(comparison, runs, significance, wanted).unwrap()],
            );
        }
    }
    for (count, variance_ratio, significance, wanted) in
        [(4, 1.0 / 3.0, 0.05, 0.8), (2, 0.5, 0.01, 0.9), (12, 0.02, 0.05, 0.7)]
    {
        let groups = SampleGroups { count, variance_ratio };
        let common =
            format!("groups = {count}, between.var = {variance_ratio}, within.var = 1, sig.level = {significance}");
        let runs = runs_needed_of_groups(groups, significance, wanted).unwrap();
        r.same(&format!("ceiling(power.anova.test({common}, power = {wanted})$n)"), [runs as f64]);
        r.same(
            &format!("power.anova.test({common}, n = {runs})$power"),
            [power_of_groups(groups, runs, significance).unwrap()],
        );
    }
    r.check();
}

#[test]
fn densities_are_those_of_r() {
    const TEST: &str = "densities_are_those_of_r";
    let Some(sets) = data_sets(TEST, &[("faithful", "eruptions", &[]), ("airquality", "Wind", &[])]) else { return };
    let mut r = Comparisons::new(TEST);
    let own = sets.iter().map(|set| (set.name, set.scores.clone()));
    for (name, values) in shapes().into_iter().chain(own) {
        r.define("x", &values);
        r.same("bw.nrd0(x)", [nrd0(&values).unwrap()]);
        let mut choices = vec![(Bandwidth::Nrd0, "\"nrd0\"")];
        // R has no bandwidth of Sheather and Jones for three values either.
        if name != "tiny" {
            choices.push((Bandwidth::SheatherJones, "\"SJ\""));
            // The numbers of R's bins overflow where values are large and close together.
            let near = Tolerance { relative: 1e-3, absolute: 0.0 };
            let offset = if name == "large numbers" { "x - 1e9" } else { "x" };
            let expression = format!("bw.SJ({offset}, nb = 300000, tol = 1e-6 * bw.nrd0(x))");
            r.near(&expression, [sheather_jones(&values).unwrap()], near);
        }
        for (bandwidth, rule) in choices {
            let found = Density::of(&values, bandwidth).unwrap();
            let peak = found.y.iter().copied().fold(0.0, f64::max);
            let near = Tolerance { relative: 0.0, absolute: 1e-3 * peak };
            let ends = Tolerance { relative: 1e-9, absolute: 1e-9 * found.bandwidth };
            // The same bandwidth, so that only the densities are compared.
            r.run(&format!("bw <- {:?}; f <- density(x, bw = bw); grid <- f$x", found.bandwidth));
            r.near("range(grid)", [found.x[0], found.x[511]], ends);
            r.near("f <- density(x, bw = bw, n = 16384); approx(f$x, f$y, grid, rule = 2)$y", found.y.clone(), near);
            r.near("sapply(grid, function(at) mean(dnorm(at, x, bw)))", found.y, near);
            if name != "large numbers" {
                let bins = Tolerance { relative: 5e-2, absolute: 0.0 };
                r.near(&format!("density(x, bw = {rule})$bw"), [found.bandwidth], bins);
            }
        }
    }
    r.check();
}

#[test]
fn bootstrap_intervals_are_those_of_the_exact_distribution() {
    let mut r = Comparisons::new("bootstrap_intervals_are_those_of_the_exact_distribution");
    for count in [9, 31, 101, 1_001] {
        // The value is its rank, and at most a rank apart with this number of resamples.
        let values: Vec<f64> = (1..=count).map(f64::from).collect();
        let bootstrap = Bootstrap { resamples: 40_000, ..Bootstrap::default() };
        let found = bootstrap_median(&values, &bootstrap).unwrap();
        // The median of a resample is at most the k-th value if more than half of its draws are.
        r.run(&format!("n <- {count}; below <- 1 - pbinom((n - 1) / 2, n, (1:n) / n)"));
        r.near(
            "c(which(below >= 0.025)[1], which(below >= 0.975)[1])",
            [found.low, found.high],
            Tolerance { relative: 0.0, absolute: 1.0 },
        );
    }
    r.check();
}
