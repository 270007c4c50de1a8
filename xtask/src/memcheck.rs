//! `cargo xtask test --memcheck`: the tests of the crates with unsafe code, run under a memory checker, and tests with
//! several threads under a race detector.

use bellows_testkit::tree;
use std::fs;
use std::io;
use std::process::{Command, Stdio};

use crate::report::StepsReport;
use crate::tools::Tool;
use crate::workspace::{WITH_LINES, cargo, host_triple, target_dir};
use crate::{TaskError, races};

/// Property tests run fewer cases here: a checker slows them down by 2 to 50 times.
const PROPTEST_CASES: &str = "32";

/// Runs the tests under AddressSanitizer if a nightly toolchain is installed, else under valgrind. Neither checks for
/// leaks: the packet pool is reserved once and never unmapped, and its own tests count its buffers. A filter selects
/// tests by a part of their names.
pub fn run(report: &mut StepsReport, filter: Option<&str>) -> Result<(), TaskError> {
    let crates = checked_crates().map_err(|error| TaskError::failed(format!("cannot read the crates: {error}")))?;
    let triple = host_triple()?;
    let sanitizer = has_nightly();
    let mut tests = if sanitizer {
        println!("memory checker: AddressSanitizer, of the nightly toolchain");
        address_sanitizer(&triple)
    } else {
        println!(
            "memory checker: valgrind, because no nightly toolchain is installed (rustup toolchain install nightly)"
        );
        report.provide(&[Tool { programs: &["valgrind"], package: "valgrind", purpose: "every memory check" }]);
        valgrind(&triple)
    };
    for name in crates {
        tests.args(["--package", &format!("bellows-{name}")]);
    }
    // A checker guards the ends of blocks from the global allocator, but not those in the arena's mappings.
    tests.env("BELLOWS_ARENA", "off");
    if std::env::var_os("PROPTEST_CASES").is_none() {
        tests.env("PROPTEST_CASES", PROPTEST_CASES);
    }
    report.run(if sanitizer { "sanitizer" } else { "valgrind" }, tests.args(filter));
    races::run(report, filter)
}

/// Crates without unsafe code of their own that create machine code or map memory through others.
const ALSO_CHECKED: [&str; 2] = ["codemem", "pmu"];

/// The checked crates: those that do not forbid unsafe code, and [`ALSO_CHECKED`].
fn checked_crates() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for folder in tree::crates() {
        let root = fs::read_to_string(folder.join("src/lib.rs"))?;
        if !root.contains("#![forbid(unsafe_code)]") {
            names.extend(folder.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.extend(ALSO_CHECKED.map(str::to_owned));
    names.sort();
    Ok(names)
}

fn has_nightly() -> bool {
    Command::new("rustup")
        .args(["run", "nightly", "cargo", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn address_sanitizer(triple: &str) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "test", "--no-fail-fast", "--target", triple])
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env("RUSTDOCFLAGS", "-Zsanitizer=address")
        .env("ASAN_OPTIONS", "detect_leaks=0")
        // A separate target folder: builds with other flags and toolchains must not replace the ordinary build.
        .env("CARGO_TARGET_DIR", target_dir().join("memcheck"))
        .envs([WITH_LINES]);
    command
}

fn valgrind(triple: &str) -> Command {
    let mut command = cargo(&["test", "--no-fail-fast", "--target", triple]);
    let runner = format!("CARGO_TARGET_{}_RUNNER", triple.to_uppercase().replace('-', "_"));
    // A thread continues after SIGBUS with its registers, so valgrind has to know all of them at each access.
    let registers = "--vex-iropt-register-updates=allregs-at-mem-access";
    command.envs([WITH_LINES]).env(runner, format!("valgrind --quiet --error-exitcode=99 --leak-check=no {registers}"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_with_unsafe_code_are_checked_and_others_are_not() {
        let crates = checked_crates().unwrap();
        for name in ["arena", "codemem", "engine", "packet", "pool", "sys", "virtio"] {
            assert!(crates.iter().any(|checked| checked == name), "{name} is not among {crates:?}");
        }
        assert!(!crates.iter().any(|checked| ["wire", "config", "bellows"].contains(&checked.as_str())), "{crates:?}");
    }
}
