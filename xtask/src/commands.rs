//! What the tasks that make things have in common: commands that must succeed, tools that Cargo builds, files of folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace::{cargo, target_dir};
use crate::{TaskError, tools};

/// A program that `cargo install` builds.
pub struct CargoTool {
    /// The program's name, and that of its crate.
    pub name: &'static str,
    /// The version that is built if there is none.
    pub version: &'static str,
    /// Options of `cargo install`.
    pub options: &'static [&'static str],
}

impl CargoTool {
    /// The path of the program, which is built in the target folder if it is not on the search path.
    pub fn provide(&self) -> Result<PathBuf, TaskError> {
        if tools::is_installed(self.name) {
            return Ok(self.name.into());
        }
        let root = target_dir().join("tools");
        let program = root.join("bin").join(self.name);
        if !program.is_file() {
            // It runs once or twice, so a fast build is worth more than a fast program.
            let mut install = cargo(&["install", "--locked", "--debug", self.name, "--version", self.version]);
            let build = root.join("build");
            install.args(self.options).arg("--root").arg(&root).env("CARGO_TARGET_DIR", &build);
            succeed(install.env("CARGO_PROFILE_DEV_DEBUG", "false"))?;
            let _ = fs::remove_dir_all(build);
        }
        // A relative path is that of the caller's folder.
        program.canonicalize().map_err(|error| TaskError::failed(format!("{}: {error}", program.display())))
    }
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) -> Result<(), TaskError> {
    let name = name_of(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(TaskError::failed(format!("{name}: {status}"))),
        Err(error) => Err(TaskError::failed(format!("cannot run {name}: {error}"))),
    }
}

/// What a command prints that must succeed.
pub fn output(command: &mut Command) -> Result<String, TaskError> {
    let name = name_of(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| TaskError::failed(format!("cannot run {name}: {error}")))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(TaskError::failed(format!("{name}: {}", output.status))),
    }
}

fn name_of(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// All files below a folder, also those of folders in it, in the order of their names.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let failed = |error: io::Error| TaskError::failed(format!("cannot read {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            files.extend(files_below(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// The error for a file or folder that cannot be written.
pub fn cannot_write(path: &Path, error: &io::Error) -> TaskError {
    TaskError::failed(format!("cannot write {}: {error}", path.display()))
}
