//! Paths in the workspace, and the commands to build it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::TaskError;

/// Makes the workspace root the current directory, so that every path in this program is relative to it.
pub fn enter() -> Result<(), TaskError> {
    // Cargo sets the variable when it runs this program; the compile-time value is for a program started by hand.
    let manifest_dir = env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    let root = Path::new(&manifest_dir).parent().unwrap_or(Path::new("."));
    env::set_current_dir(root)
        .map_err(|error| TaskError::failed(format!("cannot enter the workspace root {}: {error}", root.display())))
}

/// Cargo's target folder.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// The Cargo that runs this program, with some arguments.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// The environment of a build whose reports name the lines of the code, which take a third of the build time.
pub const WITH_LINES: (&str, &str) = ("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");

/// The target triple of this machine, such as `x86_64-unknown-linux-gnu`, as rustc names it.
pub fn host_triple() -> Result<String, TaskError> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .map_err(|error| TaskError::failed(format!("cannot run rustc: {error}; is the Rust toolchain on the PATH?")))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| TaskError::failed("`rustc -vV` printed no line `host: ...`"))
}
