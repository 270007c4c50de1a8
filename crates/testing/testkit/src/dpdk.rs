//! The shared object that joins Bellows to DPDK, built by the system's compiler.

use std::fs;
use std::path::Path;
use std::process::{self, Command};

use crate::programs::missing;

/// The libraries of DPDK that the object needs. Drivers are found by DPDK itself.
const LIBRARIES: &[&str] = &["-lrte_ethdev", "-lrte_mbuf", "-lrte_mempool", "-lrte_eal"];

/// Why the object cannot be built here, if that is so.
pub fn missing_for_build() -> Option<String> {
    missing(&["cc", "pkg-config"])
        .or_else(|| flags().err().map(|_| "DPDK's headers are missing (Debian package libdpdk-dev)".to_owned()))
}

/// The flags to compile with DPDK.
fn flags() -> Result<Vec<String>, String> {
    let output = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output();
    let output = output.map_err(|error| format!("cannot run pkg-config: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// The command that compiles `source` to `object`.
///
/// # Errors
/// A sentence: `pkg-config` does not know DPDK.
pub fn compiler(source: &Path, object: &Path) -> Result<Command, String> {
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]);
    command.args(flags()?).arg(source).arg("-o").arg(object).arg("-Wl,--no-undefined").args(LIBRARIES);
    Ok(command)
}

/// Compiles `source` to `object`, whose folder is made. Other processes that do the same find a whole object.
///
/// # Errors
/// The compiler's words.
pub fn build(source: &Path, object: &Path) -> Result<(), String> {
    let io = |error: std::io::Error| format!("cannot write {}: {error}", object.display());
    if let Some(folder) = object.parent() {
        fs::create_dir_all(folder).map_err(io)?;
    }
    let new = object.with_extension(format!("{}.new", process::id()));
    let output = compiler(source, &new)?.output().map_err(|error| format!("cannot run cc: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    fs::rename(&new, object).map_err(io)
}
