//! `cargo xtask test --races`, also a part of `--memcheck`: whole runs under ThreadSanitizer.
//!
//! ThreadSanitizer knows the order that Rust's atomics make, so that it finds each plain access which no order of
//! theirs protects, in what has run. It needs a nightly toolchain with the sources of the standard library, which must
//! be instrumented as well: its locks and channels order most of what threads share.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::TaskError;
use crate::report::StepsReport;
use crate::workspace::{WITH_LINES, host_triple, target_dir};

/// The tests with several threads of one engine, each with its package, and the module if it is not the whole program:
/// whole `bellows run` processes, then engines.
const PROGRAMS: [(&str, &[&str], Option<&str>); 6] = [
    ("bellows", &["networks"], Some("whole_runs::")),
    ("bellows-basic", &["state_table"], None),
    ("bellows-engine", &["starvation", "workers"], None),
    ("bellows-pool", &["sharing"], None),
    ("bellows-ring", &["races"], None),
    ("bellows-switch", &["mac_table"], None),
];

/// Property tests run fewer cases here.
const PROPTEST_CASES: &str = "8";

/// Runs the tests under ThreadSanitizer; left out if there is no nightly toolchain with the sources.
pub fn run(report: &mut StepsReport, filter: Option<&str>) -> Result<(), TaskError> {
    if !has_sources() {
        report.leave_out_step(
            "races",
            "no sources of a nightly standard library (rustup toolchain install nightly --component rust-src)",
        );
        return Ok(());
    }
    let triple = host_triple()?;
    let reports = reports();
    clear(&reports)?;
    for (package, programs, module) in PROGRAMS {
        let mut tests = thread_sanitizer(&triple);
        tests.args(["--package", package]);
        tests.args(programs.iter().flat_map(|program| ["--test", program]));
        report.run(&format!("races {package}"), tests.args(filter.or(module)));
    }
    report.step("race reports", || match found(&reports) {
        found if found.is_empty() => Ok(()),
        found => Err(TaskError::failed(format!("{} reports, the first:\n{}", found.len(), found[0]))),
    });
    Ok(())
}

/// Whether there is a nightly toolchain with the sources of the standard library.
fn has_sources() -> bool {
    let sysroot = Command::new("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"]).output();
    sysroot.is_ok_and(|output| {
        let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        output.status.success() && sysroot.join("lib/rustlib/src/rust/library/Cargo.lock").is_file()
    })
}

fn thread_sanitizer(triple: &str) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "test", "--no-fail-fast", "-Zbuild-std", "--target", triple])
        .env("RUSTFLAGS", "-Zsanitizer=thread")
        // A separate target folder, as for the memory check.
        .env("CARGO_TARGET_DIR", target_dir().join("races"))
        .env("TSAN_OPTIONS", format!("log_path={}/report:exitcode=66", reports().display()))
        .env("PROPTEST_CASES", PROPTEST_CASES)
        .envs([WITH_LINES])
        .stdin(Stdio::null());
    command
}

/// Where the reports are: what a test's process has found, and what the commands have that it started.
fn reports() -> PathBuf {
    let folder = target_dir().join("race-reports");
    std::path::absolute(&folder).unwrap_or(folder)
}

fn clear(folder: &PathBuf) -> Result<(), TaskError> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)
        .map_err(|error| TaskError::failed(format!("cannot create {}: {error}", folder.display())))
}

/// The reports of all processes.
fn found(folder: &PathBuf) -> Vec<String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_to_string(file.path()).ok()).filter(|report| !report.is_empty()).collect()
}
