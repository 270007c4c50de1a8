//! `cargo xtask fmt`: formats the code.
//!
//! `cargo fmt` follows the `mod` lines from each crate's root, but not `mod` lines that a macro generates: subcommands and
//! benchmarks are listed in macros. So this task passes their files by name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::TaskError;
use crate::workspace::cargo;

/// The folders whose files a macro declares: subcommands and benchmarks.
const LISTED: [&str; 2] = ["crates/cli/bellows/src/commands", "crates/measure/lab/src/benchmarks"];

pub fn run(words: &[String]) -> Result<(), TaskError> {
    if let [word, ..] = words {
        return Err(TaskError::usage(format!("fmt: unexpected argument '{word}'; it formats all code")));
    }
    let mut command = command(false);
    println!("$ {command:?}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(TaskError::failed(format!("cargo fmt: {status}"))),
        Err(error) => Err(TaskError::failed(format!("cannot run cargo fmt: {error}; is rustfmt installed?"))),
    }
}

/// The command that formats the code, or only checks the format.
pub fn command(checks: bool) -> Command {
    let mut command = cargo(&["fmt", "--all"]);
    if checks {
        command.arg("--check");
    }
    command.arg("--").args(LISTED.iter().flat_map(|folder| sources(Path::new(folder))));
    command
}

/// The Rust files in a folder and its subfolders, sorted.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_that_a_macro_declares_are_formatted() {
        for (listed, least) in LISTED.into_iter().zip([10, 9]) {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(listed);
            let list = ["mod.rs", "lib.rs"].iter().find_map(|name| fs::read_to_string(folder.join(name)).ok()).unwrap();
            let modules: Vec<&str> = list
                .lines()
                .filter_map(|line| line.trim().strip_suffix("),")?.split_once('('))
                .filter(|(kind, module)| module.replace('_', "").starts_with(&kind.to_ascii_lowercase()))
                .map(|(_, module)| module)
                .collect();
            assert!(modules.len() > least, "{modules:?}");
            let files = sources(&folder);
            for module in modules {
                let places = [folder.join(format!("{module}.rs")), folder.join(module).join("mod.rs")];
                assert!(places.iter().any(|place| files.contains(place)), "{module}");
            }
        }
    }
}
