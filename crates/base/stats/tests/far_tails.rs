//! Far tails against quadrature with 32 digits by Python's mpmath, where R has none or few of them.

use std::io::Write;
use std::process::{Command, Stdio};

use bellows_stats::distribution::{ChiSquare, Distribution, FRatio, NoncentralT, Normal, StudentT, StudentizedRange};
use bellows_testkit::skip;

const TEST: &str = "far_tails_are_those_of_quadrature";

/// The largest relative error of a tail.
const TOLERANCE: f64 = 1e-9;

/// The Python that has mpmath: Debian's package is for Debian's own.
fn python() -> Option<&'static str> {
    let has_mpmath = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", "import mpmath"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ["/usr/bin/python3", "python3"].into_iter().find(has_mpmath)
}

/// The answers of the script to these lines.
fn quadrature(python: &str, lines: &str) -> Vec<f64> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/far_tails.py");
    let mut command = Command::new(python);
    command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{python} {script}: {}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.parse().unwrap_or_else(|_| panic!("{script} printed {line:?}"))).collect()
}

#[test]
fn far_tails_are_those_of_quadrature() {
    let Some(python) = python() else { return skip(TEST, "python3-mpmath is not installed") };
    let mut cases: Vec<(String, f64)> = Vec::new();
    for (q, means, df) in [(40.0, 3, 2.0), (1e4, 2, 2.0), (40.0, 10, 20.0), (10.0, 10, 2_090.0), (30.0, 40, 8.0)] {
        cases.push((format!("tukey {q} {means} {df}"), StudentizedRange::new(means, df).upper_tail(q)));
    }
    for (t, df) in [(4.5, 2_090.0), (1e3, 7.0), (1e6, 1.5), (60.0, 50.0), (9.0, 1e6)] {
        cases.push((format!("student {t} {df}"), StudentT { df }.upper_tail(t)));
    }
    for (f, numerator, denominator) in [(900.0, 3.0, 12.0), (40.0, 9.0, 2_090.0), (1e5, 2.0, 1.0), (5.0, 3.0, 1e6)] {
        let tail = FRatio { numerator, denominator }.upper_tail(f);
        cases.push((format!("ratio {f} {numerator} {denominator}"), tail));
    }
    for x in [3.0, 12.0, 30.0] {
        cases.push((format!("normal {x}"), Normal.upper_tail(x)));
    }
    for (x, df) in [(300.0, 4.0), (3_000.0, 2_090.0)] {
        cases.push((format!("chisq {x} {df}"), ChiSquare { df }.upper_tail(x)));
    }
    for (t, df, shift) in [(9.0, 12.0, 2.0), (25.0, 60.0, 3.0), (-3.0, 20.0, 1.5)] {
        cases.push((format!("noncentral {t} {df} {shift}"), NoncentralT { df, shift }.upper_tail(t)));
    }
    let lines: String = cases.iter().map(|(line, _)| format!("{line}\n")).collect();
    let answers = quadrature(python, &lines);
    assert_eq!(answers.len(), cases.len(), "one answer for each line");
    for ((line, ours), theirs) in cases.iter().zip(answers) {
        assert!((ours / theirs - 1.0).abs() < TOLERANCE, "{line}: {ours:e}, by quadrature {theirs:e}");
    }
}
