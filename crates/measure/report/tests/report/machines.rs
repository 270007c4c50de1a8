//! Reports of runs of several machines.

use std::fmt::Write as _;

use bellows_report::{Contrast, Report, ReportOptions, Section};

use crate::data::source;

/// Runs of two programs and three sizes on machines that differ by 100, with a difference of 2 and noise of 1.
fn table(runs_of: impl Fn(usize, usize) -> usize) -> String {
    let mut text = String::from("host,program,size,id,score,unit\n");
    for (machine, program, size) in (0..3).flat_map(|it| (0..6).map(move |cell| (it, cell % 2, cell / 2))) {
        for run in 0..runs_of(machine, program) {
            let noise = (run * 7 + size * 3 + program * 5 + machine) % 11;
            let score = 100 * machine + 1_000 * size + 2 * program;
            let score = score as f64 + noise as f64 / 3.0;
            writeln!(text, "host{machine},p{program},{size},{},{score},MB/s", 1 + 3 * run + machine).unwrap();
        }
    }
    text
}

fn section(text: &str) -> Section {
    let options = ReportOptions { by: Some("program".to_owned()), score: None };
    Report::of(&source(text), &options).unwrap().sections.remove(0)
}

fn only(section: &Section) -> &Contrast {
    &section.contrasts.as_ref().unwrap().rows[0]
}

#[test]
fn what_differs_between_machines_is_taken_out() {
    let text = table(|_, _| 8);
    let (with, without) = (section(&text), section(&text.replace("host,", "os,")));
    let analysis = with.analysis.as_ref().unwrap();
    assert_eq!((analysis.machines, analysis.machine_df, analysis.df), (3, 2, 136.0));
    assert!((0.5..1.5).contains(&analysis.deviation), "{}", analysis.deviation);
    assert_eq!((without.analysis.as_ref().unwrap().machines, without.analysis.as_ref().unwrap().df), (1, 138.0));
    // All combinations were run equally often on each: only the interval changes.
    let (one, other) = (only(&with), only(&without));
    assert!((one.difference - other.difference).abs() < 1e-9 && one.error < other.error / 30.0, "{one:?} {other:?}");
    assert!(one.low > 0.0 && other.low < 0.0 && !one.is_confounded);
    let said = |section: &Section| section.findings.iter().any(|it| it.contains("of 3 machines. What a machine adds"));
    assert!(said(&with) && !said(&without), "{:?}", with.findings);
    let lines = |section: &Section| section.warnings.join("\n");
    assert!(!lines(&with).contains("machines"), "{}", lines(&with));
    // Runs are missing: each machine has more runs of another program.
    let uneven = section(&table(|machine, program| if machine % 2 == program { 8 } else { 3 }));
    let row = only(&uneven);
    assert!((row.difference - one.difference).abs() < 4.0 * row.error && row.error < 0.5, "{row:?} {one:?}");
}

#[test]
fn programs_on_machines_of_their_own_are_compared_with_a_warning() {
    let section = section(&table(|machine, program| if machine == program { 8 } else { 0 }));
    let row = only(&section);
    assert!(row.is_confounded && row.difference > 90.0, "{row:?}");
    let findings = section.findings.join("\n");
    assert!(findings.contains("of 2 machines. What differs between them is part of the noise"), "{findings}");
    let warnings = section.warnings.join("\n");
    assert!(warnings.contains("may be one of machines"), "{warnings}");
}

#[test]
fn the_difference_that_would_have_shown_is_that_of_the_runs_that_are_compared() {
    // Many runs of one program alone in a size that the other lacks.
    let rows = |more: usize| {
        let mut text = String::from("program,size,score,unit\n");
        for (program, size, runs) in [("a", 1, 6), ("b", 1, 6), ("a", 2, 2), ("b", 2, 2), ("a", 3, more)] {
            (0..runs).for_each(|run| writeln!(text, "{program},{size},{},s", 100 * size + run * 7 % 5).unwrap());
        }
        text
    };
    let shown = |text: &str| {
        let section = section(text);
        let sentence = section.findings.iter().find(|it| it.starts_with("A true difference of")).cloned().unwrap();
        let number: f64 = sentence.split(' ').nth(4).unwrap().parse().unwrap();
        (number, section.analysis.unwrap().deviation, sentence)
    };
    // Six and two runs of each program are compared, with 13 and 111 degrees of freedom: the error is
    // √(1/4 · (2/6 + 2/2)) deviations, and the sum of quantiles of t is 3.03 and 2.81 of it.
    for (more, errors) in [(2, 3.03), (100, 2.81)] {
        let (found, deviation, sentence) = shown(&rows(more));
        let wanted = errors * (4.0f64 / 3.0 / 4.0).sqrt();
        assert!((found / deviation / wanted - 1.0).abs() < 0.02, "{} {wanted}: {sentence}", found / deviation);
    }
}

#[test]
fn the_tests_beside_the_tables_are_those_that_they_have() {
    // Noise of some combinations is much larger.
    let mut text = String::from("program,size,score,unit\n");
    for (program, size) in (0..2).flat_map(|program| (0..40).map(move |size| (program, size))) {
        (0..8).for_each(|run| {
            let noise = (run * 5 + size) % 8;
            let scale = if size % 2 == 0 { 1 } else { 50 };
            writeln!(text, "p{program},{size},{},s", 1_000 + noise * scale).unwrap();
        });
    }
    let section = section(&text);
    let methods: Vec<&str> =
        section.splits.iter().filter_map(|it| Some(it.contrasts.as_ref()?.method.as_str())).collect();
    assert_eq!(methods, ["Bonferroni"]);
    let warnings = section.warnings.join("\n");
    let wanted = "p by Welch\u{2019}s test and ranks (Dunn) beside Bonferroni\u{2019}s or Tukey\u{2013}Kramer\u{2019}s";
    assert!(warnings.contains(wanted), "{warnings}");
}
