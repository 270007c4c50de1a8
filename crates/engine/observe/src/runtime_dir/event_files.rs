//! The files with the events of networks.
//!
//! They are in the folder `.events` of a [runtime directory](super::search_path), two for each name of a network:
//! `NAME` and the older `NAME@1`. They outlive the network, so that what happened to it is known when it has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bellows_events::{Content, ContentFile};
use bellows_sys::untrusted::UntrustedDir;

use super::post_mortems::parse;
use super::search_path::{SearchPath, foreign, user, user_name};
use super::{MAX_FOREIGN_FOLDERS, RuntimeDir, RuntimeDirError, is_private, make_private_folder};

/// The folder of the files.
const FOLDER: &str = ".events";

/// The number of names of networks that have ended whose events are kept.
const MAX_ENDED: usize = 64;

/// The files with the events of a network, which may have ended.
#[derive(Clone, Debug)]
pub struct EventFiles {
    /// The folder of the files.
    folder: PathBuf,
    /// The network's name.
    bare_name: String,
    /// For another user's network, the folder and the name of the user.
    foreign: Option<(Arc<UntrustedDir>, String)>,
}

/// What changes when an event is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventStamp([Option<(u64, u64, Option<SystemTime>)>; 2]);

impl EventFiles {
    /// The files of all networks: those of this user by name, then the visible ones of other users.
    pub fn all() -> Vec<EventFiles> {
        let mut files = Vec::new();
        for directory in SearchPath::current().own {
            let folder = directory.join(FOLDER);
            if is_private(&directory) && is_private(&folder) {
                let entries = fs::read_dir(&folder).into_iter().flatten();
                let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
                files.extend(names_of(names).into_iter().map(|bare_name| EventFiles {
                    folder: folder.clone(),
                    bare_name,
                    foreign: None,
                }));
            }
        }
        files.sort_by(|one, other| one.bare_name.cmp(&other.bare_name));
        for directory in foreign() {
            let opened = UntrustedDir::open(&directory.path, FOLDER);
            let Ok(folder) = opened else { continue };
            // The owner of the directory may have replaced it meanwhile.
            if folder.owner() != directory.directory.owner() {
                continue;
            }
            let names = names_of(folder.names(2 * MAX_FOREIGN_FOLDERS).unwrap_or_default().into_iter());
            let folder = Arc::new(folder);
            files.extend(names.into_iter().map(|bare_name| EventFiles {
                folder: directory.path.join(FOLDER),
                bare_name,
                foreign: Some((Arc::clone(&folder), directory.user.clone())),
            }));
        }
        files
    }

    /// The network's name: `NAME`, or `USER/NAME` if it is another user's.
    pub fn name(&self) -> String {
        match &self.foreign {
            Some((_, user)) => format!("{user}/{}", self.bare_name),
            None => self.bare_name.clone(),
        }
    }

    /// The name of the network's user.
    pub fn user(&self) -> String {
        self.foreign.as_ref().map_or_else(|| user_name(user()), |(_, user)| user.clone())
    }

    /// Whether this name matches, with its user or without.
    pub fn has_name(&self, name: &str) -> bool {
        match name.split_once('/') {
            Some((of, name)) => {
                let number = self.foreign.as_ref().map_or_else(user, |(folder, _)| folder.owner());
                name == self.bare_name && (of == self.user() || of.parse() == Ok(number))
            }
            None => name == self.bare_name,
        }
    }

    /// What distinguishes these files from all others.
    pub fn place(&self) -> PathBuf {
        self.path(ContentFile::Current)
    }

    /// The path of a file, for its writer.
    pub fn path(&self, part: ContentFile) -> PathBuf {
        self.folder.join(self.file(part))
    }

    fn file(&self, part: ContentFile) -> String {
        match part {
            ContentFile::Current => self.bare_name.clone(),
            ContentFile::Older => format!("{}@1", self.bare_name),
        }
    }

    fn open(&self, part: ContentFile) -> io::Result<File> {
        match &self.foreign {
            Some((folder, _)) => folder.file(Path::new(&self.file(part))),
            None => File::open(self.path(part)),
        }
    }

    /// The present stamp.
    pub fn stamp(&self) -> EventStamp {
        use std::os::unix::fs::MetadataExt;
        let stamp = |part| {
            let metadata = match &self.foreign {
                Some(_) => self.open(part).ok()?.metadata().ok()?,
                None => fs::metadata(self.path(part)).ok()?,
            };
            Some((metadata.ino(), metadata.len(), metadata.modified().ok()))
        };
        EventStamp([ContentFile::Older, ContentFile::Current].map(stamp))
    }

    /// The content of both files.
    ///
    /// # Errors
    /// Those of reading files.
    pub fn read(&self) -> io::Result<Content> {
        Content::read(|part| self.open(part))
    }
}

/// The networks that have these files.
fn names_of(files: impl Iterator<Item = String>) -> BTreeSet<String> {
    files.filter_map(|file| parse(&file).map(|(name, _)| name)).collect()
}

impl RuntimeDir {
    /// The files for the events of this run, in a folder that exists when this returns. Removes the oldest files of
    /// networks that have ended if there are many.
    ///
    /// # Errors
    /// See [`RuntimeDirError`]. There are none for another user's network.
    pub fn event_files(&self) -> Result<EventFiles, RuntimeDirError> {
        let directory = self.folder.parent().unwrap_or(Path::new("."));
        if self.is_foreign() {
            return Err(RuntimeDirError::Unsafe(directory.to_owned()));
        }
        let folder = directory.join(FOLDER);
        make_private_folder(&folder)?;
        forget(directory, &folder, &self.name);
        Ok(EventFiles { folder, bare_name: self.name.clone(), foreign: None })
    }
}

/// Removes the oldest files of networks that have ended, except those of one name.
fn forget(directory: &Path, folder: &Path, except: &str) {
    let mut ended: BTreeMap<String, SystemTime> = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Some((name, _)) = entry.file_name().to_str().and_then(parse) else { continue };
        let modified = entry.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        if name != except && !directory.join(&name).exists() {
            let last = ended.entry(name).or_insert(modified);
            *last = modified.max(*last);
        }
    }
    let mut ended: Vec<(SystemTime, String)> = ended.into_iter().map(|(name, modified)| (modified, name)).collect();
    ended.sort();
    let surplus = ended.len().saturating_sub(MAX_ENDED);
    for (_, name) in ended.into_iter().take(surplus) {
        for file in [name.clone(), format!("{name}@1")] {
            let _ = fs::remove_file(folder.join(file));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::Folder;
    use super::*;

    #[test]
    fn the_oldest_files_of_networks_that_have_ended_are_removed() {
        let folder = Folder::new("events");
        let events = folder.0.join(FOLDER);
        make_private_folder(&events).unwrap();
        let now = SystemTime::now();
        for number in 0..MAX_ENDED as u64 + 6 {
            let path = events.join(format!("n{number}"));
            fs::write(&path, "").unwrap();
            File::open(&path).unwrap().set_modified(now - Duration::from_secs(10_000 - number)).unwrap();
        }
        // Of these, one runs, one is about to, and one has older events as well.
        make_private_folder(&folder.0.join("n0")).unwrap();
        fs::write(events.join("n2@1"), "").unwrap();
        File::open(events.join("n2@1")).unwrap().set_modified(now - Duration::from_secs(20_000)).unwrap();
        forget(&folder.0, &events, "n1");
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap();
            names_of(entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()))
        };
        let left = names(&events);
        let gone: Vec<u64> = (0..MAX_ENDED as u64 + 6).filter(|number| !left.contains(&format!("n{number}"))).collect();
        assert_eq!(gone, [2, 3, 4, 5]);
        assert_eq!(left.len(), MAX_ENDED + 2);
    }

    #[test]
    fn files_of_both_parts_are_one_network() {
        let files = ["edge", "edge@1", "a.b", ".lock", "x y", "old@2"].map(str::to_owned);
        assert_eq!(names_of(files.into_iter()).into_iter().collect::<Vec<_>>(), ["a.b", "edge", "old"]);
    }
}
