//! Runs the steps of a task, and reports on them: time and verdict of each, test counts, skipped tests with reasons.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bellows_testkit::skips::{FOR_SOAK, LEFT_OUT, QUICK, REQUIRE_PEERS, SKIPS};

use crate::programs::Program;
use crate::tally::Tally;
use crate::{TaskError, lanes, tools, workspace};

/// Number of test programs whose time the summary lists.
const SLOWEST: usize = 10;

struct ReportStep {
    name: String,
    time: Duration,
    verdict: Result<(), String>,
}

/// The steps so far, and their results.
pub struct StepsReport {
    steps: Vec<ReportStep>,
    /// Steps that cannot be run here, each with its reason.
    steps_left_out: Vec<String>,
    tally: Tally,
    skips: PathBuf,
    require_peers: bool,
    quick: bool,
}

impl StepsReport {
    /// An empty report, with an empty file for skipped tests.
    pub fn new() -> Result<StepsReport, TaskError> {
        let folder = workspace::target_dir();
        let skips = folder.join(format!("skips-{}.txt", std::process::id()));
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&skips, ""))
            .map_err(|error| TaskError::failed(format!("cannot write {}: {error}", skips.display())))?;
        // Tests run in the folders of their crates and therefore need the full path.
        let skips = skips.canonicalize().unwrap_or(skips);
        let require_peers = std::env::var_os("CI").is_some_and(|ci| ci == "true") && tools::is_root();
        Ok(StepsReport {
            steps: Vec::new(),
            steps_left_out: Vec::new(),
            tally: Tally::default(),
            skips,
            require_peers,
            quick: false,
        })
    }

    /// Installs the missing ones of `wanted` if possible. Tools still missing then fail the report if no test may be
    /// skipped, and are only listed otherwise.
    pub fn provide<'a>(&mut self, wanted: impl IntoIterator<Item = &'a tools::Tool>) {
        let start = Instant::now();
        let missing = tools::provide(wanted);
        for tool in &missing {
            println!("missing: {tool}; skipped without it: {}", tool.purpose);
        }
        let verdict = match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("missing: {}", tools::packages(&missing).join(" "))),
        };
        self.prepared("tools", start, verdict);
    }

    /// Makes tests with guests and other programs' drivers skip themselves.
    pub fn leave_out_peers(&mut self) {
        self.quick = true;
    }

    /// Prepares something that tests need for `purpose`; a failure counts as for missing tools.
    pub fn prepare(&mut self, name: &str, purpose: &str, make: impl FnOnce() -> Result<(), String>) {
        let start = Instant::now();
        let verdict = make();
        if let Err(why) = &verdict {
            println!("missing: {name} ({why}); skipped without it: {purpose}");
        }
        self.prepared(name, start, verdict);
    }

    fn prepared(&mut self, name: &str, start: Instant, verdict: Result<(), String>) {
        let verdict = if self.require_peers { verdict } else { Ok(()) };
        self.steps.push(ReportStep { name: name.into(), time: start.elapsed(), verdict });
    }

    /// Notes that the step `name` cannot run here, which is no failure.
    pub fn leave_out_step(&mut self, name: &str, reason: &str) {
        println!("\n== {name}: left out: {reason}");
        self.steps_left_out.push(format!("{name}: {reason}"));
    }

    /// Runs a command as the step `name`, streams its output, and counts the tests in it.
    pub fn run(&mut self, name: &str, command: &mut Command) {
        println!("\n== {name}: {}", describe(command));
        self.set_environment(command);
        let start = Instant::now();
        let tally = &mut self.tally;
        let verdict = stream(command, &mut std::io::stdout(), |line| tally.read_line(line));
        self.steps.push(ReportStep { name: name.to_owned(), time: start.elapsed(), verdict });
    }

    /// Runs a command as the step `name`, and returns its standard output if it succeeds.
    pub fn read(&mut self, name: &str, command: &mut Command) -> Option<String> {
        println!("\n== {name}: {}", describe(command));
        self.set_environment(command);
        let start = Instant::now();
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cannot run {}: {error}", command.get_program().display()));
        let output = output.and_then(|output| match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(output.status.to_string()),
        });
        let (output, verdict) = match output {
            Ok(output) => (Some(output), Ok(())),
            Err(why) => (None, Err(why)),
        };
        self.steps.push(ReportStep { name: name.to_owned(), time: start.elapsed(), verdict });
        output
    }

    /// Runs test programs as the step `name`, in lanes, and counts the tests in them.
    pub fn run_programs(&mut self, name: &str, mut programs: Vec<Program>) {
        println!("\n== {name}: {} programs", programs.len());
        programs.iter_mut().for_each(|program| self.set_environment(&mut program.command));
        let start = Instant::now();
        let tally = &mut self.tally;
        let verdict = lanes::run(programs, lanes::LIMIT, |text| {
            // As in `stream`.
            let _ = io::stdout().write_all(text.as_bytes());
            text.lines().for_each(|line| tally.read_line(line.trim_end()));
        });
        self.steps.push(ReportStep { name: name.to_owned(), time: start.elapsed(), verdict });
    }

    /// Runs a function as the step `name`, which has no tests.
    pub fn step(&mut self, name: &str, work: impl FnOnce() -> Result<(), TaskError>) {
        println!("\n== {name}");
        let start = Instant::now();
        let verdict = work().map_err(|failure| failure.to_string());
        self.steps.push(ReportStep { name: name.to_owned(), time: start.elapsed(), verdict });
    }

    fn set_environment(&self, command: &mut Command) {
        command.env(SKIPS, &self.skips).env("PATH", tools::search_path());
        // The programs that tests compare with print messages and numbers in the C locale.
        command.env("LC_ALL", "C");
        if std::env::var_os("RUST_BACKTRACE").is_none() {
            command.env("RUST_BACKTRACE", "1");
        }
        if self.require_peers {
            command.env(REQUIRE_PEERS, "1");
        }
        if self.quick {
            command.env(QUICK, "1");
        }
    }

    /// Prints the summary and returns the verdict: a failure if a step failed or no test ran.
    pub fn finish(self) -> Result<(), TaskError> {
        let (left_out, skipped) = split_left_out(self.skipped());
        let Tally { passed, failed, ignored, failures, ignored_why, .. } = &self.tally;
        println!("\n== summary");
        for ReportStep { name, time, verdict } in &self.steps {
            let verdict = verdict.as_ref().map_or_else(|why| format!("FAILED: {why}"), |()| "ok".into());
            println!("{name:<14} {:>7.1} s  {verdict}", time.as_secs_f64());
        }
        let slowest = self.tally.slowest(SLOWEST);
        print_list("slowest test programs", slowest.iter());
        print_list("steps left out, each with its reason", self.steps_left_out.iter());
        print_list("failed tests", failures.iter());
        print_list("tests left out, each with its reason", left_out.iter());
        print_list("skipped tests, each with its reason", skipped.iter().chain(ignored_why));

        let failed_steps: Vec<&str> =
            self.steps.iter().filter(|step| step.verdict.is_err()).map(|step| step.name.as_str()).collect();
        // A test that skips itself counts as passed in the harness.
        let passed = passed.saturating_sub(skipped_tests(&skipped) + skipped_tests(&left_out));
        let skipped = skipped_tests(&skipped) + ignored;
        println!();
        let good = failed_steps.is_empty() && passed + failed > 0;
        if !failed_steps.is_empty() {
            println!("failed: {}", failed_steps.join(", "));
        } else if !good {
            println!("failed: no test ran");
        }
        println!("{}", counts(passed, *failed, skipped, skipped_tests(&left_out)));
        if good { Ok(()) } else { Err(TaskError::Reported) }
    }

    /// The distinct lines of tests that skipped themselves.
    fn skipped(&self) -> BTreeSet<String> {
        let text = fs::read_to_string(&self.skips).unwrap_or_default();
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

impl Drop for StepsReport {
    fn drop(&mut self) {
        // A leftover file is in the target folder and does no harm.
        let _ = fs::remove_file(&self.skips);
    }
}

/// Splits the lines into skipped tests and tests left out on purpose.
fn split_left_out(lines: BTreeSet<String>) -> (BTreeSet<String>, BTreeSet<String>) {
    lines.into_iter().partition(|line| line.ends_with(LEFT_OUT) || line.ends_with(FOR_SOAK))
}

/// The last line of the summary.
fn counts(passed: u64, failed: u64, skipped: u64, left_out: u64) -> String {
    let reasons = if skipped + left_out > 0 { " (reasons above)" } else { "" };
    let left_out = if left_out > 0 { format!(", {left_out} left out") } else { String::new() };
    format!("tests: {passed} passed, {failed} failed, {skipped} skipped{left_out}{reasons}")
}

/// The number of tests that wrote these lines: a test may give several reasons.
fn skipped_tests(lines: &BTreeSet<String>) -> u64 {
    let names: BTreeSet<&str> =
        lines.iter().map(|line| line.split_once(": ").map_or(&**line, |(name, _)| name)).collect();
    names.len() as u64
}

fn print_list<'a>(title: &str, lines: impl Iterator<Item = &'a String>) {
    for (index, line) in lines.enumerate() {
        if index == 0 {
            println!("\n{title}:");
        }
        println!("  {line}");
    }
}

/// The command as typed in a shell, with its variables.
fn describe(command: &Command) -> String {
    let program = command.get_program();
    let name = std::path::Path::new(program).file_name().unwrap_or(program);
    let variables = command
        .get_envs()
        .filter_map(|(key, value)| Some(format!("{}='{}'", key.to_string_lossy(), value?.to_string_lossy())));
    let words =
        std::iter::once(name).chain(command.get_args()).map(OsStr::to_string_lossy).map(|word| word.into_owned());
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// Runs a command and passes its output to `out` and `read_line`, line by line. Standard output and error are one
/// stream here: Cargo names a test program on standard error, and the program prints its results on standard output.
fn stream(command: &mut Command, out: &mut impl Write, mut read_line: impl FnMut(&str)) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failure = |error: io::Error| format!("cannot run {program}: {error}");
    let (output, input) = io::pipe().map_err(failure)?;
    command.stdin(Stdio::null()).stdout(input.try_clone().map_err(failure)?).stderr(input);
    let mut child = command.spawn().map_err(failure)?;
    // The command holds the write ends, and the pipe would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        // If the reader closes our output early, it does not want the rest; the verdict still counts.
        let _ = out.write_all(&line);
        read_line(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    let status = child.wait().map_err(|error| format!("cannot wait for the step: {error}"))?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["doc", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings");
        assert_eq!(describe(&command), "RUSTDOCFLAGS='-Dwarnings' cargo doc --no-deps");
    }

    #[test]
    fn output_is_streamed_by_line_and_the_exit_code_is_the_verdict() {
        let (mut shown, mut lines) = (Vec::new(), Vec::new());
        let mut command = Command::new("sh");
        command.args(["-c", "echo one >&2; printf two; exit 3"]);
        let verdict = stream(&mut command, &mut shown, |line| lines.push(line.to_owned()));
        assert_eq!(shown, b"one\ntwo");
        assert_eq!(lines, ["one", "two"]);
        assert_eq!(verdict, Err("exit status: 3".to_owned()));
    }

    #[test]
    fn tests_left_out_on_purpose_are_not_skipped() {
        let lines = ["pings: not root", "qemu: left out by --quick"].map(str::to_owned).into();
        let (left_out, skipped) = split_left_out(lines);
        assert_eq!((left_out.len(), skipped.len()), (1, 1));
        assert!(skipped.contains("pings: not root"));
        assert_eq!(counts(7, 0, 1, 1), "tests: 7 passed, 0 failed, 1 skipped, 1 left out (reasons above)");
        assert_eq!(counts(7, 0, 0, 0), "tests: 7 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn one_test_with_two_reasons_is_one_skipped_test() {
        let lines = ["reads_zstd: no zstd", "reads_zstd: no gzip", "pings: not root"];
        assert_eq!(skipped_tests(&lines.map(str::to_owned).into()), 2);
    }
}
