//! Reports of results in which combinations lack.

use std::fmt::Write as _;

use bellows_report::{Report, ReportOptions};

use crate::data::source;

#[test]
fn an_excluded_combination_does_not_shift_the_difference() {
    let mut text = String::from("program,size,id,score\n");
    let cells =
        [("md5", "1small", 2_000), ("md5", "2large", 11_073), ("sha", "1small", 3_000), ("sha", "2large", 29_045)];
    for id in 1..=6u32 {
        for (program, size, mean) in cells.into_iter().chain([("cksum", "1small", 60_000)]) {
            writeln!(text, "{program},{size},{id},{}", mean + [-20, 20][id as usize % 2]).unwrap();
        }
    }
    let options = |by: &str| ReportOptions { by: Some(by.to_owned()), score: None };
    let by_size = Report::of(&source(&text), &options("size")).unwrap();
    let section = &by_size.sections[0];
    let row = &section.contrasts.as_ref().unwrap().rows[0];
    assert_eq!((row.label.as_str(), row.combinations), ("2large \u{2212} 1small", 2));
    assert!((row.difference - f64::midpoint(9_073.0, 26_045.0)).abs() < 1e-6, "{row:?}");
    assert!(row.low < row.difference && row.difference < row.high && row.welch.is_none(), "{row:?}");
    let finding = section.findings.iter().find(|it| it.starts_with("Score is higher with 2large")).unwrap();
    assert!(finding.contains("over 2 common combinations"), "{finding}");
    assert!(section.warnings.iter().any(|it| it.contains("that both levels have")), "{:?}", section.warnings);

    let by_program = Report::of(&source(&text), &options("program")).unwrap();
    let contrasts = by_program.sections[0].contrasts.as_ref().unwrap();
    let shown: Vec<(&str, usize, f64)> =
        contrasts.rows.iter().map(|row| (row.label.as_str(), row.combinations, row.difference.round())).collect();
    let wanted =
        [("md5 \u{2212} cksum", 1, -58_000.0), ("sha \u{2212} cksum", 1, -57_000.0), ("sha \u{2212} md5", 2, 9_486.0)];
    assert_eq!((shown, contrasts.method.as_str(), contrasts.comparisons), (wanted.to_vec(), "Bonferroni", 3));
}

#[test]
fn all_rows_of_one_run_are_one_run() {
    let text = "a,id,measure,score\nx,1,speed,1\nx,1,size,2\ny,1,speed,3\ny,1,size,4\nx,2,speed,1\nx,2,size,NA\n";
    let setup = Report::of(&source(text), &ReportOptions::default()).unwrap().setup;
    assert_eq!((setup.runs, setup.failed, setup.blocks, setup.combinations), (3, 1, 2, 2));
}
