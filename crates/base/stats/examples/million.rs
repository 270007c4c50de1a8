//! The time and memory of the whole analysis of a million runs: `cargo run --release -p bellows-stats --example
//! million`.

use std::time::Instant;

use bellows_stats::{Bandwidth, Bootstrap, Density, Factor, Model, anova, bootstrap_median, check_assumptions, median};

const RUNS: usize = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut random = fastrand::Rng::with_seed(1);
    let names = ["version", "config", "size", "kernel"];
    let levels = [2, 5, 7, 5];
    let choices: Vec<String> = (0..7).map(|level| format!("level {level}")).collect();
    let codes: Vec<[usize; 4]> = (0..RUNS).map(|_| levels.map(|count| random.usize(..count))).collect();
    let score = |code: &[usize; 4]| 10.0 + 0.01 * (code[0] * code[1]) as f64 + random.f64() + random.f64();
    let scores: Vec<f64> = codes.iter().map(score).collect();
    let mut start = Instant::now();
    let mut lap = |what: &str| {
        println!("{what:40} {:7.1} ms", start.elapsed().as_secs_f64() * 1e3);
        start = Instant::now();
    };
    let factor = |(place, name): (usize, &&str)| Factor::new(*name, codes.iter().map(|code| &choices[code[place]]));
    let factors: Vec<Factor> = names.iter().enumerate().map(factor).collect();
    lap("factors from names of levels");
    let model = Model::parse("version * config * size * kernel", &factors)?;
    let found = anova(&scores, &factors, &model)?;
    lap("analysis of variance, 15 terms");
    for term in ["version:config", "version:config:size:kernel"] {
        let tukey = found.tukey(term, 0.95)?;
        lap(&format!("{} comparisons", tukey.contrasts.len()));
    }
    let warnings = check_assumptions(&found, &scores, None, 0.01);
    lap(&format!("assumptions, {} warnings", warnings.len()));
    let mut groups: Vec<Vec<f64>> = vec![Vec::new(); 350];
    found.combinations().zip(&scores).for_each(|(cell, score)| groups[cell.unwrap_or(0)].push(*score));
    for (bandwidth, name) in [(Bandwidth::Nrd0, "nrd0"), (Bandwidth::SheatherJones, "Sheather-Jones")] {
        Density::of(&scores, bandwidth)?;
        lap(&format!("density of all, {name}"));
        groups.iter().try_for_each(|group| Density::of(group, bandwidth).map(drop))?;
        lap(&format!("350 densities, {name}"));
    }
    median(&scores);
    lap("median of all");
    bootstrap_median(&scores, &Bootstrap::default());
    lap("bootstrap of the median of all");
    let medians = groups.iter().filter_map(|group| bootstrap_median(group, &Bootstrap::default()));
    let widest = medians.map(|median| median.half_width()).fold(0.0, f64::max);
    lap(&format!("350 bootstraps, half widths up to {widest:.4}"));
    let status = std::fs::read_to_string("/proc/self/status")?;
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("no peak of memory"));
    Ok(())
}
