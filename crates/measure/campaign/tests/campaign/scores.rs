//! Scores from outputs.

use bellows_campaign::{Captured, FailureKind, Output, Score, ScoreReader};
use proptest::prelude::*;

use crate::support::campaign;

fn reader(score: &str) -> ScoreReader {
    ScoreReader::new(&campaign(&format!("name = 'x'\ncommand = ['x']\n[factors]\na = [1]\n[score]\n{score}\n")))
}

fn output(stdout: impl Into<Vec<u8>>) -> Output {
    Output { stdout: Captured { bytes: stdout.into(), left_out: 0 }, stderr: Captured::default() }
}

/// The only score: its number, or the kind of failure.
fn only(reader: &ScoreReader, stdout: impl Into<Vec<u8>>) -> Result<f64, FailureKind> {
    let scores = reader.read(&output(stdout)).map_err(|failure| failure.kind)?;
    let [Score { value, failure, .. }] = scores.as_slice() else { panic!("{scores:?}") };
    value.ok_or_else(|| failure.as_ref().unwrap().kind)
}

#[test]
fn the_last_match_of_a_pattern_counts() {
    let reader = reader("pattern = '(?<x>\\S+) Mpps'\nunit = 'Mpps'");
    assert_eq!(only(&reader, "1.5 Mpps\n2.25e1 Mpps\n"), Ok(22.5));
    assert_eq!(only(&reader, b"\xff\x00\xfe 7 Mpps \xff".as_slice()), Ok(7.0));
    assert_eq!(only(&reader, "no"), Err(FailureKind::NoScore));
    assert_eq!(only(&reader, "x Mpps"), Err(FailureKind::NoScore));
    for text in ["inf", "NaN", "-infinity", "1e999"] {
        assert_eq!(only(&reader, format!("{text} Mpps")), Err(FailureKind::NotFinite), "{text}");
    }
}

#[test]
fn paths_lead_to_numbers_in_json() {
    let json = r#"{"a": {"b": [1, {"c": "2.5"}]}, "list": [{"case": "x", "v": 3}, {"case": 7, "v": 4}], "n": null}"#;
    for (path, found) in [
        ("a.b[0]", Ok(1.0)),
        ("a.b.0", Ok(1.0)),
        ("a.b[1].c", Ok(2.5)),
        ("list[case=x].v", Ok(3.0)),
        ("list[case=7].v", Ok(4.0)),
        ("list[case=y].v", Err(FailureKind::NoScore)),
        ("a.b", Err(FailureKind::NoScore)),
        ("z", Err(FailureKind::NoScore)),
        ("n", Err(FailureKind::NotFinite)),
    ] {
        let reader = reader(&format!("json = '{path}'\nunit = '1'"));
        assert_eq!(only(&reader, json), found, "{path}");
        assert_eq!(only(&reader, format!("log\n{json}\n\n")), found, "{path} in the last line");
    }
    assert_eq!(only(&reader("json = 'a'\nunit = '1'"), ""), Err(FailureKind::NoScore));
}

const REPORT: &str = r#"{"bench": "vring", "version": "1", "machine": {}, "processes": 6, "results": [
    {"case": "rx", "unit": "clocks/packet", "median": 90.5, "low": 90, "high": 91,
        "labels": {"packed": true, "size": 64}},
    {"case": "rx", "unit": "clocks/packet", "median": 95.5, "low": 90, "high": 99,
        "labels": {"packed": false, "size": 64}},
    {"case": "tx", "unit": "ratio", "median": null, "undecided": true, "low": 1, "high": 2, "labels": {}}]}"#;

#[test]
fn reports_of_bellows_are_understood() {
    let packed = reader("reads = 'bellows-bench'\ncase = 'rx'\nlabels = { packed = true }");
    assert_eq!(only(&packed, REPORT), Ok(90.5));
    let scores = packed.read(&output(REPORT)).unwrap();
    assert_eq!((scores[0].name.as_str(), scores[0].unit.as_str()), ("rx", "clocks/packet"));
    assert_eq!(only(&reader("reads = 'bellows-bench'\ncase = 'rx'"), REPORT), Err(FailureKind::NoScore), "two of them");
    assert_eq!(only(&reader("reads = 'bellows-bench'\ncase = 'tx'"), REPORT), Err(FailureKind::NotFinite));
    assert_eq!(only(&reader("reads = 'bellows-bench'\ncase = 'no'"), REPORT), Err(FailureKind::NoScore));
    let all = reader("reads = 'bellows-bench'").read(&output(REPORT)).unwrap();
    let names: Vec<&str> = all.iter().map(|score| score.name.as_str()).collect();
    assert_eq!(names, ["rx (packed true, size 64)", "rx (packed false, size 64)", "tx"]);
    assert_eq!(all[2].failure.as_ref().unwrap().kind, FailureKind::NotFinite);
    for other in ["{}", "3", "", r#"{"results": []}"#, &REPORT.replace("\"bench\"", "\"interrupted\": true, \"bench\"")]
    {
        assert!(reader("reads = 'bellows-bench'").read(&output(other)).is_err(), "{other}");
    }
}

#[test]
fn the_figures_of_a_unit_have_a_geometric_mean() {
    let mean = |unit: &str| reader(&format!("reads = 'bellows-bench'\nunit = '{unit}'\nmean = 'geometric'"));
    let clocks = mean("clocks/packet").read(&output(REPORT)).unwrap();
    let [score] = clocks.as_slice() else { panic!("{clocks:?}") };
    assert!(score.name.starts_with("clocks/packet (mean of 2 figures, "), "{score:?}");
    assert_eq!(score.unit, "clocks/packet");
    // The mean of another set of figures is another score, also of as many.
    let name = |report: &str| mean("clocks/packet").read(&output(report)).unwrap()[0].name.clone();
    assert_eq!(name(&REPORT.replace("90.5", "70.5")), score.name);
    assert_ne!(name(&REPORT.replace("\"packed\": true", "\"packed\": 2")), score.name);
    assert!((score.value.unwrap() - (90.5f64 * 95.5).sqrt()).abs() < 1e-9, "{score:?}");
    // A mean of some of the figures would be another quantity.
    for (report, unit) in [(REPORT.to_owned(), "ratio"), (REPORT.replace("95.5", "0"), "clocks/packet")] {
        let scores = mean(unit).read(&output(report)).unwrap();
        let why = &scores[0].failure.as_ref().unwrap().why;
        assert!(scores[0].value.is_none() && why.starts_with("the mean lacks the figure `"), "{why}");
    }
    // Another benchmark of the campaign may have figures of this unit.
    assert!(mean("Mpps").read(&output(REPORT)).is_err(), "no score at all");
}

#[test]
fn what_is_left_out_is_told() {
    let reader = reader("pattern = '(?<x>\\d+)'\nunit = '1'");
    let output = Output { stdout: Captured { bytes: b"a\nb".to_vec(), left_out: 77 }, stderr: Captured::default() };
    let scores = reader.read(&output).unwrap();
    assert!(scores[0].failure.as_ref().unwrap().why.contains("77 bytes are not kept"));
}

proptest! {
    #[test]
    fn any_output_is_a_score_or_a_failure(bytes in proptest::collection::vec(any::<u8>(), 0..200), json in ".{0,30}") {
        for score in ["pattern = '(?<x>.*)'\nunit = '1'", "json = 'a[0]'\nunit = '1'", "reads = 'bellows-bench'"] {
            for bytes in [bytes.clone(), format!("{{\"a\": [{json}]}}").into_bytes()] {
                if let Ok(scores) = reader(score).read(&output(bytes)) {
                    for score in scores {
                        prop_assert!(score.value.is_none_or(f64::is_finite));
                        prop_assert_eq!(score.value.is_none(), score.failure.is_some());
                    }
                }
            }
        }
    }
}
