//! Counts tests from the lines that Rust's test harness prints.

/// The start of the reason of an ignored test that another test runs; the name of that test follows.
const RUN_BY: &str = "run by ";

/// What Cargo says of a test program, or of the examples of a crate, that has failed.
const FAILED: [&str; 2] = ["error: test failed, to rerun pass ", "error: doctest failed, to rerun pass "];

/// The tests seen so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    /// Tests that did not run: ignored, and no part of another test.
    pub ignored: u64,
    /// Ignored tests that another test runs in a separate process, and that count as a part of it.
    parts: u64,
    /// The failed tests by name, and the test programs that failed without naming one: their own harness, or a crash.
    pub failures: Vec<String>,
    /// The failures of earlier test programs.
    failures_before: usize,
    /// Whether the current test program has counted its tests.
    is_counted: bool,
    /// Tests that did not run, each as `NAME: reason`.
    pub ignored_why: Vec<String>,
    /// The current test program, as Cargo names it.
    program: String,
    /// The duration of each test program, in hundredths of a second.
    times: Vec<(u64, String)>,
}

impl Tally {
    /// Reads one line of output; lines of other programs are ignored.
    pub fn read_line(&mut self, line: &str) {
        let line = line.trim_start();
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.read_counts(counts);
            self.read_time(counts);
        } else if let Some(name) = line.strip_prefix("Running ").or_else(|| line.strip_prefix("Doc-tests ")) {
            self.program = program(name);
            self.failures_before = self.failures.len();
            self.is_counted = false;
        } else if let Some(target) = FAILED.iter().find_map(|words| line.strip_prefix(words)) {
            let named = self.failures.len() - self.failures_before;
            // Tests that failed before a crash are not counted by the program.
            if !self.is_counted {
                self.failed += named as u64;
            }
            if !self.is_counted || named == 0 {
                self.failures.push(format!("{} ({target})", self.program));
                self.failed += 1;
            }
        } else if let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            if outcome.starts_with("FAILED") {
                self.failures.push(name.to_owned());
            } else if let Some(why) = outcome.strip_prefix("ignored") {
                let why = why.trim_start_matches(", ");
                if why.contains(RUN_BY) {
                    self.parts += 1;
                } else {
                    let why = if why.is_empty() { "ignored" } else { why };
                    self.ignored_why.push(format!("{name}: {why}"));
                }
            }
        }
    }

    /// The time at the end of a line of counts.
    fn read_time(&mut self, counts: &str) {
        let seconds = counts.rsplit_once("finished in ").and_then(|(_, time)| time.strip_suffix('s'));
        if let Some(seconds) = seconds.and_then(|seconds| seconds.parse::<f64>().ok()) {
            self.times.push(((seconds * 100.0) as u64, self.program.clone()));
        }
    }

    /// The slowest test programs, for the summary.
    pub fn slowest(&self, count: usize) -> Vec<String> {
        let mut times = self.times.clone();
        times.sort_by(|one, other| other.cmp(one));
        let lines = times.iter().take(count).filter(|(time, _)| *time >= 100);
        lines.map(|(time, name)| format!("{:>7.1} s  {name}", *time as f64 / 100.0)).collect()
    }

    /// `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s`
    fn read_counts(&mut self, counts: &str) {
        for part in counts.split(['.', ';']) {
            let Some((count, what)) = part.trim().split_once(' ') else { continue };
            let Ok(count) = count.parse::<u64>() else { continue };
            match what {
                "passed" => {
                    self.passed += count;
                    self.is_counted = true;
                }
                "failed" => self.failed += count,
                // Their lines come before the counts.
                "ignored" => self.ignored += count.saturating_sub(std::mem::take(&mut self.parts)),
                _ => {}
            }
        }
    }
}

/// The short name of a test program: `unittests src/lib.rs (target/debug/deps/bellows_wire-0123)` is `bellows_wire`,
/// and `tests/views.rs (…)` is `tests/views.rs`.
fn program(name: &str) -> String {
    match name.split_once(" (") {
        Some((path, program)) if path.starts_with("unittests ") => {
            let file = program.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
            file.rsplit_once('-').map_or(file, |(name, _)| name).to_owned()
        }
        Some((path, _)) => path.to_owned(),
        None => format!("examples in {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_that_fail_are_those_of_their_crate() {
        let mut tally = Tally::default();
        let lines = [
            "   Doc-tests examples (cargo)",
            "   Doc-tests one",
            "test src/lib.rs - item (line 3) ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s",
            "error: doctest failed, to rerun pass `-p one --doc`",
            "   Doc-tests two",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s",
            "   Doc-tests three",
            "error: doctest failed, to rerun pass `-p three --doc`",
        ];
        lines.iter().for_each(|line| tally.read_line(line));
        assert_eq!((tally.passed, tally.failed), (3, 2));
        assert_eq!(tally.failures, ["src/lib.rs - item (line 3)", "examples in three (`-p three --doc`)"]);
    }

    #[test]
    fn counts_add_up_over_test_programs() {
        let output = "\
     Running unittests src/lib.rs (target/debug/deps/bellows_wire-0123abc)

running 4 tests
test header::parses ... ok
test header::slow ... ignored, takes minutes
test header::dies ... ignored, dies on purpose; run by rejects
test header::rejects ... FAILED

test result: FAILED. 1 passed; 1 failed; 2 ignored; 0 measured; 2 filtered out; finished in 0.07s
error: test failed, to rerun pass `-p bellows-wire --lib`
     Running tests/counts.rs (target/debug/deps/counts-0123abc)
thread 'main' panicked at crates/base/wire/tests/counts.rs:12:5:
error: test failed, to rerun pass `-p bellows-wire --test counts`
     Running tests/views.rs (target/debug/deps/views-0123abc)
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s
   Doc-tests bellows_wire
test crates/base/wire/src/lib.rs - view (line 12) ... ignored
test result: ok. 41 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 12.30s
";
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read_line(line));
        assert_eq!(tally.slowest(5), ["   12.3 s  examples in bellows_wire", "    1.5 s  tests/views.rs"]);
        assert_eq!(tally.slowest(1).len(), 1);
        (tally.program, tally.times) = Default::default();
        assert_eq!(
            tally,
            Tally {
                passed: 43,
                failed: 2,
                ignored: 2,
                parts: 0,
                failures: vec!["header::rejects".into(), "tests/counts.rs (`-p bellows-wire --test counts`)".into()],
                failures_before: 2,
                is_counted: true,
                ignored_why: vec![
                    "header::slow: takes minutes".into(),
                    "crates/base/wire/src/lib.rs - view (line 12): ignored".into()
                ],
                ..Tally::default()
            }
        );
    }

    #[test]
    fn a_crash_counts_beside_the_tests_that_failed_before_it() {
        let output = "\
     Running tests/views.rs (target/debug/deps/views-0123abc)
test one ... ok
test two ... FAILED
error: test failed, to rerun pass `-p bellows-wire --test views`: signal: 11 (SIGSEGV)
";
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read_line(line));
        assert_eq!((tally.passed, tally.failed), (0, 2));
        assert_eq!(tally.failures, ["two", "tests/views.rs (`-p bellows-wire --test views`: signal: 11 (SIGSEGV))"]);
    }

    #[test]
    fn other_output_counts_nothing() {
        let mut tally = Tally::default();
        for line in
            ["", "test", "test result: ", "running 5 tests", "12 passed", "test result: 99999999999999999999 passed"]
        {
            tally.read_line(line);
        }
        assert_eq!(tally, Tally::default());
    }
}
