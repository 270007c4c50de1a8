//! `cargo xtask test --memcheck`: the tests of the crates with unsafe code, run under a memory checker.

use std::process::{Command, Stdio};

use crate::Failure;
use crate::report::Report;
use crate::tools::Tool;
use crate::workspace::{cargo, has_crate, host_triple, target_dir};

/// The crates that may hold unsafe code; one that does not exist yet is passed over.
const UNSAFE_CRATES: &[&str] = &["sys", "codemem", "packet", "engine", "blit", "pmu", "fib", "filter", "virtio"];

/// Property tests run fewer cases here: a checker slows them down by 2 to 50 times.
const PROPTEST_CASES: &str = "32";

/// Runs the tests under AddressSanitizer where a nightly toolchain is installed, else under valgrind. Neither looks for
/// leaks: the packet pool is reserved once and never unmapped, and its own tests count its buffers. A filter leaves out the
/// tests whose name does not contain it.
pub fn run(report: &mut Report, filter: Option<&str>) -> Result<(), Failure> {
    let crates: Vec<&&str> = UNSAFE_CRATES.iter().filter(|name| has_crate(name)).collect();
    if crates.is_empty() {
        return Err(Failure::chore("no crate here holds unsafe code: nothing to check"));
    }
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
    // A checker guards the ends of blocks from the global allocator; those in the arena's mappings it does not know.
    tests.env("BELLOWS_ARENA", "off");
    if std::env::var_os("PROPTEST_CASES").is_none() {
        tests.env("PROPTEST_CASES", PROPTEST_CASES);
    }
    report.run(if sanitizer { "sanitizer" } else { "valgrind" }, tests.args(filter));
    Ok(())
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
        // What other flags and another toolchain built must not push the ordinary build out of its folder.
        .env("CARGO_TARGET_DIR", target_dir().join("memcheck"));
    command
}

fn valgrind(triple: &str) -> Command {
    let mut command = cargo(&["test", "--no-fail-fast", "--target", triple]);
    let runner = format!("CARGO_TARGET_{}_RUNNER", triple.to_uppercase().replace('-', "_"));
    // A thread that met SIGBUS goes on with the registers that it had, so valgrind has to know them all at each access.
    let registers = "--vex-iropt-register-updates=allregs-at-mem-access";
    command.env(runner, format!("valgrind --quiet --error-exitcode=99 --leak-check=no {registers}"));
    command
}
