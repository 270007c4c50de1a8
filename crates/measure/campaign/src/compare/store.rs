//! The folder of builds: an entry for each content and build command, which is made once.
//!
//! | file of an entry | contents |
//! |---|---|
//! | `source` | the revision, checked out |
//! | `build` | what the command made, or the copy of a finished program or folder |
//! | `build.log` | the command's output |
//! | `built.json` | written when the entry is complete |

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::contents;
use super::error::{CompareError, io_error};
use super::git::{Repository, Revision};
use crate::campaign::{Build, Command};
use crate::folder::write_whole;
use crate::plan::Hash;
use crate::processes::{Ended, Finished, Processes, Stop, Surroundings};
use crate::score::Output;
use crate::strays::{end_strays, mark_of};
use crate::template::{Placeholder, PlaceholderValue};

/// The time limit of a command that prints the toolchain.
const TOOLCHAIN_LIMIT: Duration = Duration::from_secs(60);

const LOG: &str = "build.log";
const BUILT: &str = "built.json";

/// The folder of builds, locked.
pub(super) struct Store {
    folder: PathBuf,
    /// The mark of its commands.
    mark: String,
    lock: File,
}

/// What `built.json` holds.
#[derive(PartialEq, Serialize, Deserialize)]
struct Built {
    name: String,
    content: String,
    /// The hash of the program, or of all that was copied.
    program: Option<String>,
}

/// The paths of a version.
pub(super) struct Made {
    pub(super) source: Option<PathBuf>,
    pub(super) build: PathBuf,
    pub(super) program: Option<PathBuf>,
}

impl Store {
    /// Opens a folder of builds, or makes it.
    pub(super) fn open(folder: &Path) -> Result<Store, CompareError> {
        fs::create_dir_all(folder).map_err(io_error("create", folder))?;
        // Commands run in folders of their own, which need the whole path.
        let folder = folder.canonicalize().map_err(io_error("read", folder))?;
        if folder.to_str().is_none() {
            let (why, help) = ("is not UTF-8 text, so that no command can have it", "give another folder for builds");
            return Err(CompareError::Path { path: folder, why, help });
        }
        let path = folder.join("lock");
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let lock = opened.map_err(io_error("open", &path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(CompareError::Locked { folder }),
            Err(error) => return Err(io_error("lock", &path)(error.into())),
        }
        // Builds are no part of the working tree that they may be in.
        let ignore = folder.join(".gitignore");
        fs::write(&ignore, "*\n").map_err(io_error("write", &ignore))?;
        // Of a runner that was killed.
        let mark = mark_of(&folder).map_err(io_error("read", &folder))?;
        end_strays(&mark);
        Ok(Store { folder, mark, lock })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn entry(&self, content: &str, build: Option<&Build>) -> PathBuf {
        let made = build.map(|build| (&build.command, &build.program));
        self.folder.join(Hash::of_json(&json!([content, made])).short())
    }

    /// A finished program or folder, as a copy that nothing changes while runs are made.
    pub(super) fn copied(
        &self,
        name: &str,
        path: &Path,
        content: &str,
        program: Option<&Path>,
    ) -> Result<Made, CompareError> {
        let entry = self.entry(content, None);
        let build = entry.join("build");
        let is_folder = path.is_dir();
        let copy = if is_folder { build.clone() } else { build.join(path.file_name().unwrap_or_default()) };
        let whole = |of: &Path| contents::hash(of).map(Some);
        if !is_complete(&entry, name, content, || whole(&copy))? {
            clear(&entry)?;
            if !is_folder {
                fs::create_dir_all(&build).map_err(io_error("create", &build))?;
            }
            contents::copy(path, &copy)?;
            let program = whole(&copy)?;
            if !program.as_ref().is_some_and(|hash| content.contains(hash)) {
                let (why, help) = ("changed while it was copied", "wait until it is finished, then try again");
                return Err(CompareError::Path { path: path.to_owned(), why, help });
            }
            complete(&entry, &Built { name: name.to_owned(), content: content.to_owned(), program })?;
        }
        let program = match (is_folder, program) {
            (false, _) => Some(copy),
            (true, Some(program)) => Some(within(name, &build, program, None)?),
            (true, None) => None,
        };
        Ok(Made { source: None, build, program })
    }

    /// A revision, checked out and built, unless it was before.
    pub(super) fn built(
        &self,
        name: &str,
        (repository, revision): (&Repository, &Revision),
        build: &Build,
        content: &str,
        stop: &Stop,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Made, CompareError> {
        let entry = self.entry(content, Some(build));
        let made = Made { source: Some(entry.join("source")), build: entry.join("build"), program: None };
        let (source, log) = (entry.join("source"), entry.join(LOG));
        // Without a command the program is a file of the revision.
        let place = if build.command.is_some() { &made.build } else { &source };
        let program = || match &build.program {
            Some(program) => within(name, place, program, build.command.as_ref().map(|_| log.as_path())).map(Some),
            None => Ok(None),
        };
        let program_hash = || program()?.map(|path| contents::hash(&path)).transpose();
        if !is_complete(&entry, name, content, program_hash)? {
            repository.remove(&source);
            clear(&entry)?;
            fs::create_dir_all(&made.build).map_err(io_error("create", &made.build))?;
            tell(&format!("checks out {name}"));
            repository.check_out(&revision.commit, &source)?;
            if let Some(command) = &build.command {
                tell(&format!("builds {name}"));
                self.make(name, command, build, &entry, &revision.commit, stop)?;
            }
            let program = program_hash()?;
            complete(&entry, &Built { name: name.to_owned(), content: content.to_owned(), program })?;
        }
        Ok(Made { program: program()?, ..made })
    }

    /// The hash of the output of the command that prints the toolchain, run in this folder.
    pub(super) fn toolchain(&self, command: &Command, folder: &Path, stop: &Stop) -> Result<String, CompareError> {
        let words = words(command, |_| PlaceholderValue::Text(String::new()));
        let time_limit = TOOLCHAIN_LIMIT;
        let surroundings = Surroundings { folder, environment: &[], mark: Some(&self.mark), time_limit, stop };
        let mut processes = Processes::new();
        let finished = processes.run(&words, &surroundings);
        processes.end_from(0);
        let (why, output) = outcome(finished, &words, time_limit)?;
        match why {
            None => Ok(Hash::of(&output.stdout.bytes).short()),
            Some(why) => {
                let stderr = String::from_utf8_lossy(&output.stderr.bytes).into_owned();
                Err(CompareError::Toolchain { why, stderr })
            }
        }
    }

    /// Runs the build command.
    fn make(
        &self,
        name: &str,
        command: &Command,
        build: &Build,
        entry: &Path,
        commit: &str,
        stop: &Stop,
    ) -> Result<(), CompareError> {
        let (source, log) = (entry.join("source"), entry.join(LOG));
        let value = |placeholder: &Placeholder| {
            let path = |path: PathBuf| path.to_string_lossy().into_owned();
            PlaceholderValue::Text(match placeholder {
                Placeholder::Label(label) if label == "source" => path(source.clone()),
                Placeholder::Label(label) if label == "build" => path(entry.join("build")),
                Placeholder::Label(label) if label == "commit" => commit.to_owned(),
                _ => String::new(),
            })
        };
        let words = words(command, value);
        let surroundings = Surroundings {
            folder: &source,
            environment: &[],
            mark: Some(&self.mark),
            time_limit: build.time_limit,
            stop,
        };
        let mut processes = Processes::new();
        let finished = processes.run(&words, &surroundings);
        processes.end_from(0);
        let (why, output) = outcome(finished, &words, build.time_limit)?;
        let text = [b"standard output:\n", &output.stdout.bytes[..], b"\nstandard error:\n", &output.stderr.bytes];
        fs::write(&log, text.concat()).map_err(io_error("write", &log))?;
        let stderr = String::from_utf8_lossy(&output.stderr.bytes).into_owned();
        why.map_or(Ok(()), |why| Err(CompareError::Build { name: name.to_owned(), why, stderr, log }))
    }
}

/// The words of a command.
fn words(command: &Command, value: impl Fn(&Placeholder) -> PlaceholderValue + Copy) -> Vec<String> {
    match command {
        Command::Arguments(arguments) => arguments.iter().flat_map(|argument| argument.words(value)).collect(),
        Command::Shell { shell } => vec!["sh".to_owned(), "-c".to_owned(), shell.shell(value)],
    }
}

/// Why a command failed, if it did, and its output.
fn outcome(
    finished: io::Result<Finished>,
    words: &[String],
    time_limit: Duration,
) -> Result<(Option<String>, Output), CompareError> {
    let finished = match finished {
        Ok(finished) => finished,
        Err(error) => {
            let program = words.first().map_or("", String::as_str);
            return Ok((Some(format!("its command `{program}` cannot be started: {error}")), Output::default()));
        }
    };
    let why = match finished.ended {
        Ended::Exited(0) => None,
        Ended::Exited(code) => Some(format!("its command ended with exit code {code}")),
        Ended::Killed(signal) => Some(format!("its command was ended by signal {signal}")),
        Ended::TimeLimit => {
            Some(format!("its command took longer than {} s, the time limit of builds", time_limit.as_secs_f64()))
        }
        Ended::Stopped => return Err(CompareError::Stopped),
    };
    Ok((why, finished.output))
}

impl Drop for Store {
    fn drop(&mut self) {
        // A process that another thread is starting has a copy of the descriptor for a moment.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

/// Whether an entry was made completely; an error if it was changed since.
fn is_complete(
    entry: &Path,
    name: &str,
    content: &str,
    program: impl FnOnce() -> Result<Option<String>, CompareError>,
) -> Result<bool, CompareError> {
    let known = fs::read(entry.join(BUILT)).ok().and_then(|bytes| serde_json::from_slice::<Built>(&bytes).ok());
    let Some(known) = known.filter(|known| known.content == content && entry.join("build").is_dir()) else {
        return Ok(false);
    };
    match known.program {
        None => Ok(true),
        hash if program().is_ok_and(|program| program == hash) => Ok(true),
        _ => Err(CompareError::Changed { name: name.to_owned(), folder: entry.to_owned() }),
    }
}

fn complete(entry: &Path, built: &Built) -> Result<(), CompareError> {
    Ok(write_whole(&entry.join(BUILT), &serde_json::to_vec_pretty(built).unwrap_or_default())?)
}

/// Removes what there is of an entry.
fn clear(entry: &Path) -> Result<(), CompareError> {
    if entry.exists() {
        fs::remove_dir_all(entry).map_err(io_error("remove", entry))?;
    }
    fs::create_dir_all(entry).map_err(io_error("create", entry))
}

/// The program in a folder.
fn within(name: &str, folder: &Path, program: &Path, log: Option<&Path>) -> Result<PathBuf, CompareError> {
    let path = folder.join(program);
    if path.is_file() {
        return Ok(path);
    }
    let log = log.map_or(String::new(), |log| format!(", or the build's command; its output is in {}", log.display()));
    let help = format!("correct `program` of the table [build]{log}");
    Err(CompareError::Lacks { name: name.to_owned(), what: format!("program {}", path.display()), help })
}
