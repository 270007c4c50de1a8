//! `cargo xtask test`: all checks that a commit must pass.

use std::path::Path;
use std::process::Command;

use crate::programs::{self, Program};
use crate::report::StepsReport;
use crate::tools;
use crate::workspace::cargo;
use crate::{TaskError, book, deny, fast, guest_kernel, memcheck, package, races, rust_version};

/// The folder in which the tests expect real captures.
const CAPTURES: &str = "../shared/captures";

/// Campaigns on several machines: tests have them, and the release build has not.
const NATS: &str = "bellows/nats";

/// How all tests are built.
pub const TESTS: [&str; 4] = ["test", "--workspace", "--features", NATS];

/// The options of `test`.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestOptions {
    memcheck: bool,
    races: bool,
    /// Leave out guests and other programs' drivers.
    quick: bool,
    /// Run only what takes at most two minutes once built.
    fast: bool,
    /// Run only the tests whose name contains this.
    filter: Option<String>,
}

impl TestOptions {
    fn parse(words: &[String]) -> Result<TestOptions, TaskError> {
        let mut options = TestOptions::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--memcheck" => options.memcheck = true,
                "--races" => options.races = true,
                "--quick" => options.quick = true,
                "--fast" => options.fast = true,
                "--filter" => {
                    let name =
                        words.next().ok_or_else(|| TaskError::usage("--filter needs a part of a test's name"))?;
                    options.filter = Some(name.clone());
                }
                other => return Err(TaskError::usage(format!("test: '{other}' is not an option"))),
            }
        }
        if (options.memcheck || options.races) && (options.quick || options.fast) {
            return Err(TaskError::usage("neither --quick nor --fast can be combined with --memcheck or --races"));
        }
        if options.quick && options.fast {
            return Err(TaskError::usage("--fast leaves out all that --quick leaves out, and more: give one of them"));
        }
        Ok(options)
    }
}

/// Runs the task.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    let options = TestOptions::parse(words)?;
    let mut report = StepsReport::new()?;
    if options.quick || options.fast {
        report.provide(tools::FOR_TESTS);
        report.leave_out_peers();
    } else {
        report.provide(tools::FOR_TESTS.iter().chain(tools::PEERS));
        report.prepare("guest kernel", "a Linux guest at vhost-user ports", guest_kernel::provide);
    }
    if !tools::is_root() {
        println!("not root: tests that need network namespaces skip themselves");
    }
    if !Path::new(CAPTURES).is_dir() {
        println!("no folder {CAPTURES}: its tests skip themselves; tests on the project's own captures run");
    }
    if options.races && !options.memcheck {
        races::run(&mut report, options.filter.as_deref())?;
    } else if options.memcheck {
        memcheck::run(&mut report, options.filter.as_deref())?;
    } else if options.fast {
        check_format(&mut report);
        fast_tests(&mut report, options.filter.as_deref())?;
    } else {
        if options.filter.is_none() {
            lint(&mut report);
            if !options.quick {
                lint_features(&mut report);
            }
        }
        // Command-line and end-to-end tests run the release build, as users do.
        report.run("release build", &mut cargo(&["build", "--release", "--package", "bellows"]));
        tests(&mut report, options.filter.as_deref());
        if options.filter.is_none() {
            report.run("interleavings", with_models(&mut cargo(&["test"])));
            if !options.quick {
                package::step(&mut report);
                book::step(&mut report);
            }
        }
    }
    report.finish()
}

/// Builds all tests and runs those whose name contains the filter: those of programs, and the examples of the
/// documentation.
fn tests(report: &mut StepsReport, filter: Option<&str>) {
    let Some(mut programs) = built(report, &[]) else { return };
    let mut examples = cargo(&TESTS);
    examples.args(["--doc", "--no-fail-fast"]);
    // First, because it takes long and keeps the processors busy while the other lane waits.
    programs.insert(0, Program::of_cargo("examples", "--doc", examples));
    run_programs(report, programs, filter);
}

/// The same for those of `--fast`.
fn fast_tests(report: &mut StepsReport, filter: Option<&str>) -> Result<(), TaskError> {
    let Some(mut programs) = built(report, &fast::targets()?) else { return Ok(()) };
    programs.retain(|program| fast::why_left_out(&program.name).is_none());
    run_programs(report, programs, filter);
    for (name, why) in fast::LEFT_OUT {
        report.leave_out_step(name, &format!("{why}: not with --fast"));
    }
    Ok(())
}

/// Builds tests, and returns their programs; `None` if it fails.
fn built(report: &mut StepsReport, targets: &[String]) -> Option<Vec<Program>> {
    let messages = report.read("test build", cargo(&TESTS).args(targets).args(programs::BUILD_ONLY))?;
    match programs::read(&messages) {
        Ok(programs) => Some(programs),
        Err(why) => {
            report.step("tests", || Err(TaskError::failed(why)));
            None
        }
    }
}

fn run_programs(report: &mut StepsReport, mut programs: Vec<Program>, filter: Option<&str>) {
    for program in &mut programs {
        program.command.args(filter);
    }
    report.run_programs("tests", programs);
}

fn check_format(report: &mut StepsReport) {
    report.run("formatting", &mut cargo(&["fmt", "--all", "--check"]));
}

fn lint(report: &mut StepsReport) {
    check_format(report);
    report.run(
        "lints",
        &mut cargo(&["clippy", "--workspace", "--features", NATS, "--all-targets", "--", "-D", "warnings"]),
    );
    report.run(
        "documentation",
        cargo(&["doc", "--workspace", "--features", NATS, "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings"),
    );
    deny::run(report);
    rust_version::run(report);
}

/// The models of interleavings, for a command of Cargo's.
fn with_models(command: &mut Command) -> &mut Command {
    let programs = ["barrier", "interleavings", "mailbox", "requests", "stack", "verdicts"];
    let packages = ["--package", "bellows-ring", "--package", "bellows-shared", "--features", "loom"];
    command.args(packages).args(programs.iter().flat_map(|name| ["--test", name]))
}

/// Compiles what the other steps leave out: the program without its features, as the page on own apps uses it, the
/// models of interleavings, and the fuzz targets, a workspace of their own.
fn lint_features(report: &mut StepsReport) {
    let strict = ["--", "-D", "warnings"];
    let program = ["clippy", "--package", "bellows", "--no-default-features"];
    report.run("lints without features", cargo(&program).args(strict));
    report.run("lints of models", with_models(&mut cargo(&["clippy"])).args(strict));
    let fuzz = ["check", "--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target/fuzz"];
    report.run("fuzz targets", &mut cargo(&fuzz));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<TestOptions, TaskError> {
        TestOptions::parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn options_come_in_any_order() {
        let both = TestOptions { memcheck: true, filter: Some("ring".into()), ..TestOptions::default() };
        let quick = TestOptions { quick: true, ..TestOptions::default() };
        assert_eq!(parse(&[]).ok(), Some(TestOptions::default()));
        assert_eq!(parse(&["--memcheck", "--filter", "ring"]).ok().as_ref(), Some(&both));
        assert_eq!(parse(&["--filter", "ring", "--memcheck"]).ok(), Some(both));
        assert_eq!(parse(&["--quick"]).ok(), Some(quick));
        assert_eq!(parse(&["--fast"]).ok(), Some(TestOptions { fast: true, ..TestOptions::default() }));
    }

    #[test]
    fn an_invalid_option_is_named() {
        for words in [
            &["--filter"] as &[&str],
            &["--memchek"],
            &["ring"],
            &["--quick", "--memcheck"],
            &["--fast", "--races"],
            &["--fast", "--quick"],
        ] {
            let Err(TaskError::Usage(message)) = parse(words) else { panic!("{words:?} was accepted") };
            assert!(message.contains(words[0]), "{message}");
        }
    }
}
