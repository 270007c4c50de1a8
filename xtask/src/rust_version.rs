//! The oldest supported Rust, `rust-version` in Cargo.toml: a step of `cargo xtask test` checks the workspace with
//! it.

use std::fs;
use std::process::{Command, Stdio};

use crate::report::StepsReport;
use crate::workspace::target_dir;

/// Checks the workspace with the oldest toolchain, unless it is the current one; or notes why it cannot run.
pub fn run(report: &mut StepsReport) {
    const STEP: &str = "oldest Rust";
    let Some(oldest) = fs::read_to_string("Cargo.toml").ok().as_deref().and_then(manifest_version).map(full_version)
    else {
        return report.leave_out_step(STEP, "Cargo.toml has no line `rust-version = \"...\"`");
    };
    if rustc_version().is_some_and(|version| version == oldest) {
        println!("the current Rust is the oldest supported one, {oldest}: all other steps test it");
        return;
    }
    if !has_toolchain(&oldest) {
        let reason = format!("it is not installed (rustup toolchain install {oldest} --profile minimal)");
        return report.leave_out_step(STEP, &reason);
    }
    let mut check = Command::new("rustup");
    check.args(["run", &oldest, "cargo", "check", "--locked", "--workspace"]);
    // A separate target folder: builds of another compiler must not replace the ordinary build.
    report.run(STEP, check.env("CARGO_TARGET_DIR", target_dir().join("oldest-rust")));
}

/// The `rust-version` of a workspace's manifest.
fn manifest_version(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
}

/// The toolchain's name for a version: `1.95` is 1.95.0.
fn full_version(version: &str) -> String {
    let dots = version.matches('.').count();
    format!("{version}{}", ".0".repeat(2_usize.saturating_sub(dots)))
}

/// The version of the current compiler.
fn rustc_version() -> Option<String> {
    let output = Command::new("rustc").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).split(' ').nth(1)?.to_owned())
}

fn has_toolchain(name: &str) -> bool {
    let mut command = Command::new("rustup");
    command.args(["run", name, "cargo", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_testkit::tree;

    fn read(path: &str) -> String {
        fs::read_to_string(format!("../{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn a_version_is_read_and_completed() {
        assert_eq!(manifest_version("[workspace.package]\nrust-version = \"1.95\"\n"), Some("1.95"));
        assert_eq!(manifest_version("rust-version.workspace = true\n"), None);
        assert_eq!((full_version("1.95"), full_version("1.95.1")), ("1.95.0".into(), "1.95.1".into()));
    }

    #[test]
    fn the_manifest_decides_and_the_pages_agree() {
        let manifest = read("Cargo.toml");
        let version = manifest_version(&manifest).expect("the workspace says which Rust it needs");
        // `fuzz` is a separate workspace.
        assert_eq!(manifest_version(&read("fuzz/Cargo.toml")), Some(version), "fuzz/Cargo.toml");
        for page in ["README.md", "CONTRIBUTING.md"] {
            let text = read(page);
            let named: Vec<_> = text.split("Rust 1.").skip(1).map(|rest| rest.split([' ', ',', ';']).next()).collect();
            let minor = version.strip_prefix("1.");
            assert!(!named.is_empty() && named.iter().all(|named| *named == minor), "{page}: {named:?}, not {version}");
        }
        for folder in tree::crates() {
            let path = folder.join("Cargo.toml");
            let text = fs::read_to_string(&path).expect("a manifest");
            assert!(text.contains("\nrust-version.workspace = true\n"), "{} states a Rust of its own", path.display());
        }
    }

    #[test]
    fn the_current_compiler_is_new_enough() {
        let manifest = read("Cargo.toml");
        let number =
            |version: &str| -> Vec<u32> { version.split(['.', '-']).map_while(|part| part.parse().ok()).collect() };
        let (ours, oldest) =
            (rustc_version().expect("rustc runs"), full_version(manifest_version(&manifest).expect("a version")));
        assert!(number(&ours) >= number(&oldest), "{ours} is older than {oldest}");
    }
}
