//! Finds out what the two versions of a campaign are, and makes them.

use std::path::{Path, PathBuf};

use super::contents;
use super::error::{CompareError, OtherVersion};
use super::git::{Reason, Repository, Revision};
use super::store::{Made, Store};
use crate::campaign::{Build, Campaign, Command, LAST_TAG, Version};
use crate::file::Loaded;
use crate::folder::{Info, JournalError, is_unused};
use crate::processes::Stop;
use crate::runner::Observer;
use crate::template::{Placeholder, PlaceholderValue, Template};

/// The name of the working tree, besides `.`.
const WORKING_TREE: &str = "working tree";

/// What the content of a revision begins with, before its tree.
const TREE: &str = "tree ";

/// What stands before the toolchain in the content of a revision.
const TOOLCHAIN: &str = " toolchain ";

/// The folders of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Folders<'f> {
    /// The campaign file.
    pub file: &'f Path,
    /// The results folder.
    pub results: &'f Path,
    /// Where versions are checked out and built. Each is kept there and used again.
    pub builds: &'f Path,
}

/// Makes the two versions that a campaign compares, and fills in their paths, so that its runs can be made.
///
/// A version is a revision of git, `.` for the working tree as it is, or the path of a finished program or folder; a
/// path that could be a revision begins with `./`. Without the old one, the base that the file names is the old one, and
/// without the new one the working tree. A campaign whose levels are the versions needs neither: nothing is made for it.
///
/// # Errors
/// Why a version cannot be made, or that the results folder has results of other versions.
pub fn build_versions(
    loaded: &mut Loaded,
    [old, new]: [Option<&str>; 2],
    folders: &Folders<'_>,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<(), CompareError> {
    let factor = loaded.campaign.paired.clone().ok_or(CompareError::NotPaired)?;
    let Some(spec) = loaded.campaign.build.clone() else {
        return if old.or(new).is_none() { Ok(()) } else { Err(CompareError::NoBuilds { factor }) };
    };
    let store = Store::open(folders.builds)?;
    let toolchain = || match &spec.toolchain {
        Some(command) => store.toolchain(command, &loaded.folder, stop).map(Some),
        None => Ok(None),
    };
    let finder = Finder { repository: Repository::of(&loaded.folder), folders, store: &store, toolchain: &toolchain };
    let old = old.map_or_else(|| finder.base(&spec), |name| Ok(name.to_owned()))?;
    let names = [old.as_str(), new.unwrap_or(".")];
    let found = [finder.find("OLD", names[0])?, finder.find("NEW", names[1])?];
    let versions = found.each_ref().map(|found| found.version.clone());
    finder.check_results(&versions)?;
    let mut values = Vec::new();
    for found in &found {
        if stop.is_set() {
            return Err(CompareError::Stopped);
        }
        let Found { version: Version { name, content, .. }, kind } = found;
        let made = match kind {
            VersionKind::Revision(repository, revision) => {
                let tell = &mut |text: &str| observer.preparing(text);
                store.built(name, (repository, revision), &spec, content, stop, tell)?
            }
            VersionKind::Path(path) => store.copied(name, path, content, spec.program.as_deref())?,
        };
        values.push(made);
    }
    fill(&mut loaded.campaign, &factor, &versions, &values)?;
    if let Some(build) = &mut loaded.campaign.build {
        build.versions = Some(versions);
    }
    Ok(())
}

/// A version and where it comes from.
struct Found {
    version: Version,
    kind: VersionKind,
}

enum VersionKind {
    Revision(Repository, Revision),
    Path(PathBuf),
}

struct Finder<'f> {
    repository: Result<Repository, Reason>,
    folders: &'f Folders<'f>,
    store: &'f Store,
    /// The hash of what the toolchain says, which finished programs do not need.
    toolchain: &'f dyn Fn() -> Result<Option<String>, CompareError>,
}

impl Finder<'_> {
    /// The old version that the file names.
    fn base(&self, spec: &Build) -> Result<String, CompareError> {
        let base = spec.base.as_deref().ok_or(CompareError::NoOld)?;
        if base != LAST_TAG {
            return Ok(base.to_owned());
        }
        let tag = match &self.repository {
            Ok(repository) => repository.last_tag(),
            Err(Reason(reason)) => Err(Reason(reason.clone())),
        };
        match (tag, &spec.otherwise) {
            (Ok(tag), _) => Ok(tag),
            (Err(_), Some(otherwise)) => Ok(otherwise.clone()),
            (Err(Reason(reason)), None) => Err(CompareError::NoTag { reason }),
        }
    }

    fn find(&self, side: &'static str, name: &str) -> Result<Found, CompareError> {
        if name == "." || name == WORKING_TREE {
            let unknown = |reason: &Reason| CompareError::Git {
                doing: "find the working tree of the campaign file".to_owned(),
                reason: reason.0.clone(),
                help: "put the file into a repository, or give the paths of two finished programs",
            };
            let except = [self.folders.file, self.folders.results, self.store.folder()].map(whole_path);
            let repository = self.repository.as_ref().map_err(unknown)?;
            let revision = repository.working_tree(&except, &self.store.folder().join("index"))?;
            return self.revision(WORKING_TREE, repository.clone(), revision);
        }
        let is_path = ["/", "./", "../"].iter().any(|start| name.starts_with(start));
        let found = match &self.repository {
            _ if is_path => None,
            Ok(repository) => Some(repository.revision(name).map(|revision| (repository.clone(), revision))),
            Err(Reason(reason)) => Some(Err(Reason(reason.clone()))),
        };
        let path = Path::new(name);
        match found {
            Some(Ok((repository, revision))) => self.revision(name, repository, revision),
            Some(Err(Reason(reason))) if !path.exists() => {
                Err(CompareError::Unknown { side, name: name.to_owned(), reason })
            }
            _ => {
                self.check_folder(path)?;
                let hash = contents::hash(path)?;
                // Some programs are several, by the name under which they are called.
                let called = if path.is_dir() { None } else { path.file_name() };
                let called = called.map_or(String::new(), |called| format!(" {}", called.to_string_lossy()));
                let content = format!("sha256 {hash}{called}");
                let version = Version { name: name.to_owned(), commit: None, content };
                Ok(Found { version, kind: VersionKind::Path(path.to_owned()) })
            }
        }
    }

    fn revision(&self, name: &str, repository: Repository, revision: Revision) -> Result<Found, CompareError> {
        let toolchain = (self.toolchain)()?.map_or(String::new(), |toolchain| format!("{TOOLCHAIN}{toolchain}"));
        let content = format!("{TREE}{}{toolchain}", revision.tree);
        let version = Version { name: name.to_owned(), commit: Some(revision.commit.clone()), content };
        Ok(Found { version, kind: VersionKind::Revision(repository, revision) })
    }

    /// A folder that is hashed and copied has neither its own copy nor results in it.
    fn check_folder(&self, path: &Path) -> Result<(), CompareError> {
        let whole = whole_path(path);
        let has = |folder: &Path| whole_path(folder).starts_with(&whole);
        let (why, help) = match () {
            () if has(self.store.folder()) => ("has the folder of builds in it", "give another folder for builds"),
            () if has(self.folders.results) => ("has the results in it", "give another folder for the results"),
            () => return Ok(()),
        };
        Err(CompareError::Path { path: path.to_owned(), why, help })
    }

    /// A results folder has results of one old and one new version.
    fn check_results(&self, versions: &[Version; 2]) -> Result<(), CompareError> {
        let folder = self.folders.results;
        let known = match Info::read(folder) {
            Ok(Info { versions: Some(known), .. }) if !is_unused(folder) => known,
            Ok(_) | Err(JournalError::NoCampaign { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for (side, (was, is)) in ["OLD", "NEW"].into_iter().zip(known.iter().zip(versions)) {
            if was.content == is.content {
                continue;
            }
            let repository = self.repository.as_ref().ok();
            let (files, has_other_toolchain) = match (parts(&was.content), parts(&is.content), repository) {
                (Some((was, one)), Some((is, other)), Some(repository)) => {
                    let files = if was == is { Vec::new() } else { repository.changes([was, is]) };
                    (files, one != other)
                }
                _ => (Vec::new(), false),
            };
            let exists = |commit: &&String| repository.is_some_and(|repository| repository.revision(commit).is_ok());
            return Err(CompareError::OtherVersion(Box::new(OtherVersion {
                folder: folder.to_owned(),
                side,
                was: was.to_string(),
                is: is.to_string(),
                files,
                has_other_toolchain,
                commit: was.commit.as_ref().filter(|commit| !has_other_toolchain && exists(commit)).cloned(),
            })));
        }
        Ok(())
    }
}

/// The tree of a revision's content, and its toolchain.
fn parts(content: &str) -> Option<(&str, Option<&str>)> {
    let tree = content.strip_prefix(TREE)?;
    Some(tree.split_once(TOOLCHAIN).map_or((tree, None), |(tree, toolchain)| (tree, Some(toolchain))))
}

/// The whole path of a file, which need not exist.
fn whole_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let known = absolute.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    known.map_or(absolute.clone(), |(above, whole)| match absolute.strip_prefix(above) {
        Ok(rest) if !rest.as_os_str().is_empty() => whole.join(rest),
        _ => whole,
    })
}

/// Fills in what the levels of the factor stand for.
fn fill(campaign: &mut Campaign, factor: &str, versions: &[Version; 2], made: &[Made]) -> Result<(), CompareError> {
    let key_of = |placeholder: &Placeholder| match placeholder {
        Placeholder::Value(name, key) if name == factor => Some(key.clone()),
        _ => None,
    };
    let used: Vec<String> = templates(campaign).flat_map(Template::placeholders).filter_map(key_of).collect();
    let Some(index) = campaign.factor(factor) else { return Err(CompareError::NotPaired) };
    for ((level, version), made) in campaign.factors[index].levels.iter_mut().zip(versions).zip(made) {
        let path = |path: &PathBuf| path.to_str().map(str::to_owned);
        let values = [
            ("name", Some(version.name.clone())),
            ("commit", version.commit.clone()),
            ("build", path(&made.build)),
            ("source", made.source.as_ref().and_then(path)),
            ("program", made.program.as_ref().and_then(path)),
        ];
        for (key, value) in values {
            let Some(value) = value else {
                if used.iter().any(|used| used == key) {
                    return Err(lacks(version, factor, key));
                }
                continue;
            };
            level.values.insert(key.to_owned(), PlaceholderValue::Text(value));
        }
    }
    Ok(())
}

fn lacks(version: &Version, factor: &str, key: &str) -> CompareError {
    let help = match key {
        "program" => "add program = \"…\" to the table [build], the program's path below the folder of the build",
        _ => "give a revision, or change the commands of the campaign",
    };
    let what = format!("`{{{factor}.{key}}}`, which the campaign's commands use");
    CompareError::Lacks { name: version.name.clone(), what, help: help.to_owned() }
}

/// All texts of the commands of runs.
fn templates(campaign: &Campaign) -> impl Iterator<Item = &Template> {
    let commands = std::iter::once(&campaign.command).chain(&campaign.prepare).chain(&campaign.tidy);
    let of_commands = commands.flat_map(|command| match command {
        Command::Arguments(arguments) => arguments.as_slice(),
        Command::Shell { shell } => std::slice::from_ref(shell),
    });
    of_commands.chain(campaign.environment.values())
}
