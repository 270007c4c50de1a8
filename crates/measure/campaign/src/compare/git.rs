//! Revisions of git, and the contents of a working tree as a commit.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::{CompareError, io_error};

/// Variables by which a hook of git, from which a campaign may be started, names another repository or index.
const OF_HOOKS: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_NAMESPACE",
];

/// The author of the commits of working trees.
const AUTHOR: [&str; 2] = ["bellows campaign", "campaign@bellows.invalid"];

/// A commit and the hash of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Revision {
    pub(super) commit: String,
    pub(super) tree: String,
}

/// A repository with a working tree.
#[derive(Clone, Debug)]
pub(super) struct Repository {
    top: PathBuf,
}

/// What git says if it fails.
pub(super) struct Reason(pub(super) String);

impl Reason {
    fn when(self, doing: impl Into<String>, help: &'static str) -> CompareError {
        CompareError::Git { doing: doing.into(), reason: self.0, help }
    }
}

/// A command of git in a folder.
fn git<S: AsRef<OsStr>>(folder: &Path, words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("git");
    // Hooks belong to the user's own work.
    command.args(["-c", "core.hooksPath=/dev/null", "-c", "advice.addEmbeddedRepo=false"]).args(words);
    // A group of its own: an interrupt at the terminal does not end git between two steps.
    command.current_dir(folder).process_group(0).stdin(Stdio::null());
    command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0");
    for name in OF_HOOKS {
        command.env_remove(name);
    }
    command
}

/// What a command prints, without the last line feed.
fn output(command: &mut Command) -> Result<String, Reason> {
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Reason("there is no program `git`; install it".to_owned()),
        _ => Reason(error.to_string()),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().find(|line| line.starts_with("fatal: ")).or_else(|| lines().next_back());
    let line = line.map_or_else(|| output.status.to_string(), |line| line.trim_start_matches("fatal: ").to_owned());
    Err(Reason(crate::diagnostics::visible(&line)))
}

/// Copies an index: what git knows of the files in it saves reading them all.
fn copy_index(known: &Path, index: &Path) -> Result<(), CompareError> {
    let failed = |error| io_error("copy", known)(error);
    let time = match fs::metadata(known).and_then(|known| known.modified()) {
        Ok(time) => time,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let _ = fs::remove_file(index);
            return Ok(());
        }
        Err(error) => return Err(failed(error)),
    };
    fs::copy(known, index).map_err(failed)?;
    // Git reads the files again that changed since the index was written, which it tells by seconds.
    let file = fs::OpenOptions::new().write(true).open(index);
    file.and_then(|file| file.set_modified(time)).map_err(failed)
}

impl Repository {
    /// The repository that has a folder.
    pub(super) fn of(folder: &Path) -> Result<Repository, Reason> {
        if !folder.is_dir() {
            return Err(Reason(format!("there is no folder {}", folder.display())));
        }
        let top = output(&mut git(folder, ["rev-parse", "--show-toplevel"]))?;
        Ok(Repository { top: PathBuf::from(top) })
    }

    fn git<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        git(&self.top, words)
    }

    /// The commit of a revision.
    pub(super) fn revision(&self, name: &str) -> Result<Revision, Reason> {
        let id = |suffix: &str| {
            let name = format!("{name}{suffix}");
            output(&mut self.git(["rev-parse", "--verify", "--end-of-options", &name]))
        };
        Ok(Revision { commit: id("^{commit}")?, tree: id("^{tree}")? })
    }

    /// The last tag before the present commit.
    pub(super) fn last_tag(&self) -> Result<String, Reason> {
        output(&mut self.git(["describe", "--tags", "--abbrev=0"]))
    }

    /// The files of the working tree, except those that git ignores, as a commit that is on no branch. Below some paths
    /// it has the files of the present commit. `index` is the path of a file that may be overwritten.
    pub(super) fn working_tree(&self, except: &[PathBuf], index: &Path) -> Result<Revision, CompareError> {
        const HELP: &str = "solve that, or give a revision";
        let failed = |reason: Reason| reason.when("record the contents of the working tree", HELP);
        let head = self.revision("HEAD").map_err(|reason| reason.when("find the present commit", "make a commit"))?;
        let known = output(&mut self.git(["rev-parse", "--git-path", "index"])).map_err(failed)?;
        let known = self.top.join(known);
        copy_index(&known, index)?;
        let git = |words: Vec<String>| output(self.git(words).env("GIT_INDEX_FILE", index)).map_err(failed);
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
        let top = self.top.canonicalize().unwrap_or_else(|_| self.top.clone());
        let within = except.iter().filter_map(|path| path.strip_prefix(&top).ok()).filter_map(Path::to_str);
        let within: Vec<&str> = within.filter(|path| !path.is_empty()).collect();
        let mut add = words(&["add", "--all", "--", ":/"]);
        add.extend(within.iter().map(|path| format!(":(top,literal,exclude){path}")));
        git(add)?;
        for path in within {
            git(words(&["reset", "--quiet", "HEAD", "--", &format!(":(top,literal){path}")]))?;
        }
        let tree = git(words(&["write-tree"]))?;
        let _ = fs::remove_file(index);
        if tree == head.tree {
            return Ok(head);
        }
        // The same contents after the same commit are the same commit again.
        let date = output(&mut self.git(["log", "-1", "--format=%ct", &head.commit])).map_err(failed)?;
        let mut command = self.git(["commit-tree", &tree, "-p", &head.commit, "-m", "working tree"]);
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), AUTHOR[0]).env(format!("GIT_{role}_EMAIL"), AUTHOR[1]);
            command.env(format!("GIT_{role}_DATE"), format!("@{date} +0000"));
        }
        let commit = output(&mut command).map_err(failed)?;
        Ok(Revision { commit, tree })
    }

    /// The files in which two trees differ; none if one of them no longer exists.
    pub(super) fn changes(&self, [from, to]: [&str; 2]) -> Vec<String> {
        let words = ["diff-tree", "-r", "--name-only", "--end-of-options", from, to];
        output(&mut self.git(words)).map_or(Vec::new(), |files| files.lines().map(str::to_owned).collect())
    }

    /// Checks a commit out into a new folder.
    pub(super) fn check_out(&self, commit: &str, folder: &Path) -> Result<(), CompareError> {
        let words = ["worktree", "add", "--quiet", "--force", "--detach"].map(OsStr::new);
        let mut command = self.git(words.into_iter().chain([folder.as_os_str(), OsStr::new(commit)]));
        let failed = |reason: Reason| reason.when(format!("check out {commit}"), "solve that, then try again");
        output(&mut command).map(drop).map_err(failed)
    }

    /// Removes what `check_out` has made, as far as it is there.
    pub(super) fn remove(&self, folder: &Path) {
        let words = ["worktree", "remove", "--force", "--force"].map(OsStr::new);
        let _ = output(&mut self.git(words.into_iter().chain([folder.as_os_str()])));
    }
}
