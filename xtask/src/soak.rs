//! `cargo xtask soak`: the checks that take too long for every commit.
//!
//! The tests in their long forms, the memory check, two builds of the package, the book, its first steps in a clean system,
//! and every fuzz target. It takes hours; run it before a release, and
//! after changes to code that parses untrusted input.

use bellows_testkit::soak::SOAK;

use crate::report::StepsReport;
use crate::workspace::cargo;
use crate::{TaskError, book, fresh, fuzz, guest_kernel, memcheck, package, tools};

/// Minutes for each fuzz target.
const MINUTES: f64 = 30.0;

/// The options of `soak`.
#[derive(Debug, PartialEq)]
struct SoakOptions {
    minutes: f64,
    /// Run only the tests whose name contains this, without memory check and fuzzing.
    filter: Option<String>,
}

impl SoakOptions {
    fn parse(words: &[String]) -> Result<SoakOptions, TaskError> {
        let mut options = SoakOptions { minutes: MINUTES, filter: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--minutes" => options.minutes = fuzz::minutes(words.next())?,
                "--filter" => {
                    let name =
                        words.next().ok_or_else(|| TaskError::usage("--filter needs a part of a test's name"))?;
                    options.filter = Some(name.clone());
                }
                other => return Err(TaskError::usage(format!("soak: '{other}' is not an option"))),
            }
        }
        Ok(options)
    }
}

/// Runs the task.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    let options = SoakOptions::parse(words)?;
    let mut report = StepsReport::new()?;
    report.provide(tools::FOR_TESTS.iter().chain(tools::PEERS));
    report.prepare("guest kernel", "a Linux guest at vhost-user ports", guest_kernel::provide);
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    report.run("long tests", tests.args(&options.filter).env(SOAK, "1"));
    if options.filter.is_none() {
        memcheck::run(&mut report, None)?;
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        report.step("package, built twice", || package::run(&words(&["--check", "--reproduce"])));
        report.step("book", || book::run(&[]));
        match tools::is_root() {
            true => report.step("first steps, in a clean system", || fresh::run(&words(&["--book"]))),
            false => report.leave_out_step("first steps, in a clean system", "it needs root"),
        }
        for target in fuzz::targets()? {
            report.step(&format!("fuzz {target}"), || fuzz::fuzz(&target, options.minutes));
        }
    }
    report.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<SoakOptions, TaskError> {
        SoakOptions::parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn options_come_in_any_order() {
        let both = SoakOptions { minutes: 0.5, filter: Some("ring".into()) };
        assert_eq!(parse(&[]).ok(), Some(SoakOptions { minutes: MINUTES, filter: None }));
        assert_eq!(parse(&["--minutes", "0.5", "--filter", "ring"]).ok().as_ref(), Some(&both));
        assert_eq!(parse(&["--filter", "ring", "--minutes", "0.5"]).ok(), Some(both));
    }

    #[test]
    fn an_invalid_option_is_named() {
        for words in [&["--filter"] as &[&str], &["--minutes", "0"], &["--quick"], &["ring"]] {
            let Err(TaskError::Usage(message)) = parse(words) else { panic!("{words:?} was accepted") };
            assert!(message.contains(words[0]), "{message}");
        }
    }
}
