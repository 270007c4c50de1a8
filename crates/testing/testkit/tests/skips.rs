//! The traces of a skipped test, seen from outside: this program runs itself with the variables set.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bellows_testkit::scratch;
use bellows_testkit::skips::{self, FOR_SOAK, LEFT_OUT, QUICK, REQUIRE_PEERS, SKIPS};
use bellows_testkit::soak::{self, SOAK};
use bellows_testkit::tree::root;

/// The variable that selects the way in which the child process skips.
const WAY: &str = "BELLOWS_TESTKIT_WAY";

/// Runs `test` again in a process of its own that skips in the given way.
fn run(test: &str, way: &str, skips: &Path, variables: &[&str]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env(WAY, way).env(SKIPS, skips);
    command.env_remove(REQUIRE_PEERS).env_remove(QUICK).env_remove(SOAK).env_remove("PROPTEST_CASES");
    command.envs(variables.iter().map(|name| (name, "1")));
    command.output().unwrap()
}

/// In the process that [`run`] started: skips, and reports the result.
fn skips_itself() -> bool {
    match std::env::var(WAY).as_deref() {
        Ok("missing") => skips::skip("pings", "ping is not installed"),
        Ok("machine") => skips::skip_here("pings", "the machine has one processor"),
        Ok("lines") => skips::skip("pings", "no ping:\n\n  not found\n"),
        Ok("quick") => assert!(skips::is_left_out("pings"), "it is not left out"),
        Ok("soak") => assert!(soak::is_for_soak("pings") && soak::cases(10) == 10, "it is not left out"),
        Ok("soaking") => assert!(!soak::is_for_soak("pings") && soak::cases(10) == 160, "it is left out"),
        Ok(way) => panic!("no way `{way}`"),
        Err(_) => return false,
    }
    true
}

#[test]
fn a_skipped_test_is_printed_and_collected() {
    if skips_itself() {
        return;
    }
    let folder = scratch();
    let file = folder.path().join("skips");
    for (way, variables, line) in [
        ("missing", &[] as &[&str], "pings: ping is not installed\n"),
        ("machine", &[], "pings: the machine has one processor\n"),
        ("lines", &[], "pings: no ping:; not found\n"),
        ("quick", &[QUICK], &format!("pings: {LEFT_OUT}\n")),
        ("soak", &[], &format!("pings: {FOR_SOAK}\n")),
    ] {
        std::fs::write(&file, "earlier: a reason\n").unwrap();
        let output = run("a_skipped_test_is_printed_and_collected", way, &file, variables);
        assert!(output.status.success(), "{way}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("SKIPPED {line}"), "{way}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("earlier: a reason\n{line}"), "{way}");
    }
}

#[test]
fn required_tests_must_not_be_skipped() {
    const TEST: &str = "required_tests_must_not_be_skipped";
    if skips_itself() {
        return;
    }
    let folder = scratch();
    let file = folder.path().join("skips");
    let output = run(TEST, "missing", &file, &[REQUIRE_PEERS]);
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("pings: ping is not installed, but BELLOWS_REQUIRE_PEERS=1 asks for it"), "{said}");
    assert!(!file.exists(), "it failed, so that it was not skipped");
    // A reason that cannot be removed does not fail the test.
    assert!(run(TEST, "machine", &file, &[REQUIRE_PEERS]).status.success());
    assert!(run(TEST, "quick", &file, &[REQUIRE_PEERS, QUICK]).status.success());
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 2);
}

#[test]
fn a_test_is_only_left_out_on_request() {
    const TEST: &str = "a_test_is_only_left_out_on_request";
    if skips_itself() {
        return;
    }
    let folder = scratch();
    let file = folder.path().join("skips");
    let output = run(TEST, "quick", &file, &[]);
    assert!(!output.status.success() && !file.exists(), "{output:?}");
    let output = run(TEST, "soaking", &file, &[SOAK]);
    assert!(output.status.success() && !file.exists(), "{output:?}");
}

#[test]
fn a_list_that_cannot_be_written_fails_the_test() {
    const TEST: &str = "a_list_that_cannot_be_written_fails_the_test";
    if skips_itself() {
        return;
    }
    let folder = scratch();
    let output = run(TEST, "missing", &folder.path().join("absent/skips"), &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("pings cannot be noted in BELLOWS_SKIPS="), "{output:?}");
}

/// The source files below a folder, without those of this crate.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() && !entry.ends_with("testkit") {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

/// A test that skips in its own way would be missing from the list, or skip although it is required.
#[test]
fn every_other_test_skips_through_this_crate() {
    let root = root();
    let mut found = Vec::new();
    ["crates", "examples", "xtask"].iter().for_each(|folder| sources(&root.join(folder), &mut found));
    assert!(found.len() > 200, "{} files", found.len());
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        for own_way in [SKIPS, REQUIRE_PEERS, QUICK, "SKIPPED {", "println!(\"skipped"] {
            assert!(!text.contains(own_way), "{} has `{own_way}`; use bellows_testkit::skips", path.display());
        }
    }
}
