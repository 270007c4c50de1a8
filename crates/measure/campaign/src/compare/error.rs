//! Why two versions cannot be compared.

use std::io;
use std::path::{Path, PathBuf};

use bellows_sys::FileError;

use crate::diagnostics::{listed, quoted, visible};
use crate::folder::JournalError;

/// Why there are no two versions to compare.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The end was requested.
    #[error("interrupted")]
    Stopped,
    /// The campaign has no two versions.
    #[error(
        "the campaign has no two versions to compare; add a table [build], or paired = \"factor\" with a factor of two levels"
    )]
    NotPaired,
    /// Versions are given for a campaign whose levels are the versions.
    #[error(
        "the campaign compares the levels of `{factor}`; leave out OLD and NEW, or replace `paired` by a table [build]"
    )]
    NoBuilds {
        /// The paired factor.
        factor: String,
    },
    /// There is no old version.
    #[error("there is nothing to compare with; give OLD, or add base = \"last-tag\" to the table [build]")]
    NoOld,
    /// There is no tag.
    #[error(
        "no tag is an ancestor of the working tree (git: {reason}); give OLD, or add else = \"REVISION\" to the table [build]"
    )]
    NoTag {
        /// What git says.
        reason: String,
    },
    /// A version is neither a revision nor a file.
    #[error(
        "{side} {} is no revision (git: {reason}), and there is no such file; `git log` and `git tag` list revisions",
        quoted(.name)
    )]
    Unknown {
        /// `OLD` or `NEW`.
        side: &'static str,
        /// The version as it was given.
        name: String,
        /// What git says.
        reason: String,
    },
    /// A command of git failed.
    #[error("git cannot {doing} (git: {reason}); {help}")]
    Git {
        /// What was tried.
        doing: String,
        /// What git says.
        reason: String,
        /// The way out.
        help: &'static str,
    },
    /// A file cannot be read or written.
    #[error("{}", FileError::of(doing, path, error, "check the path"))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// A path cannot be passed on, or a file cannot be copied.
    #[error("{} {why}; {help}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
        /// The way out.
        help: &'static str,
    },
    /// Another runner makes builds in this folder.
    #[error("another runner makes builds in {}; wait for it, or give another folder for builds", folder.display())]
    Locked {
        /// The folder of builds.
        folder: PathBuf,
    },
    /// A build failed.
    #[error("the build of {name} failed: {why}{}; its output is in {}", last_lines(.stderr), log.display())]
    Build {
        /// The version.
        name: String,
        /// How it failed.
        why: String,
        /// The end of its standard error.
        stderr: String,
        /// The file with all of its output.
        log: PathBuf,
    },
    /// The command that prints the toolchain failed.
    #[error("what builds are made with is not known: {why}{}; correct `toolchain` of the table [build]", last_lines(.stderr))]
    Toolchain {
        /// How it failed.
        why: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// A version has not what the command of a run needs.
    #[error("{name} has no {what}; {help}")]
    Lacks {
        /// The version.
        name: String,
        /// What is missing.
        what: String,
        /// The way out.
        help: String,
    },
    /// A build was changed after it was made.
    #[error("the build of {name} in {} was changed since it was made; remove that folder to make it again", folder.display())]
    Changed {
        /// The version.
        name: String,
        /// Its folder.
        folder: PathBuf,
    },
    /// The results folder has results of other contents.
    #[error(transparent)]
    OtherVersion(Box<OtherVersion>),
    /// The results folder cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A results folder has results of other contents than those of a version.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} has results of another {side}: of {was}, but now it is {is}{}; give another folder for the results{}",
    folder.display(), changes(.files, *.has_other_toolchain), or_that(.side, .commit)
)]
pub struct OtherVersion {
    /// The results folder.
    pub(super) folder: PathBuf,
    /// `OLD` or `NEW`.
    pub(super) side: &'static str,
    /// The version that the results are of.
    pub(super) was: String,
    /// The version now.
    pub(super) is: String,
    /// The files that differ, if it is known.
    pub(super) files: Vec<String>,
    /// Whether it was built with another toolchain.
    pub(super) has_other_toolchain: bool,
    /// The commit that the results are of, if that is enough to go on.
    pub(super) commit: Option<String>,
}

/// Wraps an error of the file system.
pub(super) fn io_error<'p>(doing: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> CompareError + 'p {
    move |error| CompareError::Io { doing, path: path.to_owned(), error }
}

fn last_lines(stderr: &str) -> String {
    const MAX_LINES: usize = 10;
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(MAX_LINES)..];
    last.iter().map(|line| format!("\n  {}", visible(line))).collect::<String>()
        + if last.is_empty() { "" } else { "\n" }
}

fn changes(files: &[String], has_other_toolchain: bool) -> String {
    let files = (!files.is_empty()).then(|| format!("other files: {}", listed(files)));
    let toolchain = has_other_toolchain.then(|| "built with another toolchain".to_owned());
    let changes: Vec<String> = files.into_iter().chain(toolchain).collect();
    if changes.is_empty() { String::new() } else { format!(" ({})", changes.join("; ")) }
}

fn or_that(side: &str, commit: &Option<String>) -> String {
    match commit {
        Some(commit) => format!(", or go on with {side} {commit}"),
        None => ", or restore it".to_owned(),
    }
}
