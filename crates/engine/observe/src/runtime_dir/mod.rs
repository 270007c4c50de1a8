//! The runtime directory, where other processes find a running engine.
//!
//! Each engine has a folder of its own name in a [runtime directory](search_path) of its user, on tmpfs. It contains
//! the counters, the control socket, and a file with the process's identity. A run removes its folder at the end; a
//! crash leaves it behind.
//!
//! The next run of that name keeps the old folder beside its own as a post-mortem: `NAME@1` is the newest, and there
//! are at most [`POST_MORTEMS`] of a name. If there are more, the oldest of those is removed that started within ten
//! minutes of the run before it, as under a supervisor that restarts a crashing network at once. So the first crash of
//! such a series stays. If there is none, the oldest is removed. The newest always stays.
//!
//! Root also sees the networks of other users, as `USER/NAME`. The contents of their folders are untrusted: they are
//! read into memory and never mapped, links are not followed, sizes are limited, and a process counts only if it
//! belongs to the folder's user.

mod event_files;
mod name;
mod post_mortems;
mod search_path;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bellows_sys::private_folder;
use bellows_sys::shared::SharedCells;
use bellows_sys::untrusted;

use crate::cells::Cells;
pub use event_files::{EventFiles, EventStamp};
pub use post_mortems::POST_MORTEMS;
use post_mortems::{RESTARTED, archive, number, parse};
pub use search_path::SearchPath;
use search_path::{ForeignDir, foreign, user, user_name};

/// The maximum size of another user's file. Counters are smaller even with ten thousand apps.
const MAX_FOREIGN_FILE: u64 = 16 << 20;

/// The maximum number of folders to read in another user's runtime directory.
const MAX_FOREIGN_FOLDERS: usize = 256;

/// The file with the process's identity.
const IDENTITY: &str = "identity";

/// The file with the counters.
pub(crate) const COUNTERS: &str = "counters";

/// The file with the timeline of the first worker, and the beginning of the others' names.
const TIMELINE: &str = "timeline";

/// The control socket.
const CONTROL: &str = "control";

/// The errors of creating an engine's folder.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    /// The name is not valid.
    #[error("`{0}` is not a valid name for a running network; {names}", names = RuntimeDir::NAMES)]
    BadName(String),
    /// A live process has the name.
    #[error("a network named `{name}` is running already (process {pid}); stop it or pick another name with --name")]
    Taken {
        /// The name.
        name: String,
        /// The number of its process.
        pid: u32,
    },
    /// The folder belongs to another user, or is open to others.
    #[error(
        "{0} belongs to another user or is open to others; close it with `chmod 700` if it is yours, or set \
         BELLOWS_RUNTIME_DIR to a folder of yours that nobody else can enter (mode 0700)"
    )]
    Unsafe(PathBuf),
    /// A system call failed.
    #[error(
        "{0}, where running networks are found, cannot be used: {1}; \
         set BELLOWS_RUNTIME_DIR to a folder of yours that nobody else can enter (mode 0700)"
    )]
    System(PathBuf, io::Error),
}

/// The folder of one engine.
#[derive(Debug)]
pub struct RuntimeDir {
    folder: PathBuf,
    /// The name, without the number of a post-mortem.
    name: String,
    /// The number of a post-mortem; 0 for the newest run of the name.
    number: usize,
    /// Whether this value created the folder and removes it.
    owned: bool,
    /// For another user's network, the directory of that user.
    foreign: Option<Arc<ForeignDir>>,
    /// Whether another user's network was named in full, so that it may be changed.
    is_meant: bool,
}

/// The start time of a process, in clock ticks since boot. Together with the pid it is a unique identity.
///
/// `None` for a zombie, which has ended and only waits for its parent to notice.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain any characters. The state follows it and, as the 20th field, the start
    // time.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    // The first thread of a multithreaded process may be a zombie while the others run.
    let has_ended = matches!(state, "Z" | "X") && fs::read_dir(format!("/proc/{pid}/task")).ok()?.count() <= 1;
    if has_ended { None } else { fields.nth(18)?.parse().ok() }
}

/// The user of a process.
fn user_of(pid: u32) -> Option<u32> {
    Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// Keeps all processes of this user from taking a name, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct NameLock(#[expect(dead_code, reason = "it is held")] Locked);

/// The runtime directories of this user, locked, so that only one of two processes that want a name at the same time
/// gets it.
///
/// All of them are locked, because two processes may prefer different ones, and always in the same order, so that there
/// is no deadlock. Missing directories are created; otherwise another process could create one that this process does
/// not know.
#[derive(Debug)]
struct Locked {
    /// The usable directories, in order of preference.
    directories: Vec<PathBuf>,
    /// Their device and inode numbers.
    places: Vec<(u64, u64)>,
    _locks: Vec<fs::File>,
}

/// How often the directories are locked anew because others have appeared meanwhile. Only this user makes them, once.
const MAX_LOCKED: usize = 8;

impl Locked {
    /// Locks the runtime directories of this user, which are returned too, with those that cannot be used.
    ///
    /// A directory that stands in for another user's may appear while the others are locked, or the other way round. So
    /// they are searched again, until all of those that are there are locked: then two processes always have one in
    /// common.
    fn lock_own() -> Result<(Vec<PathBuf>, Locked), RuntimeDirError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let own = SearchPath::for_new_run().own;
            let locked = Locked::lock(&own);
            let is_complete = locked.as_ref().is_ok_and(|locked| {
                let there = SearchPath::for_new_run().own.into_iter().filter(|directory| is_private(directory));
                there.filter_map(|directory| place_of(&directory)).all(|place| locked.places.contains(&place))
            });
            if is_complete || tries == MAX_LOCKED {
                return Ok((own, locked?));
            }
        }
    }

    fn lock(own: &[PathBuf]) -> Result<Locked, RuntimeDirError> {
        let mut first_error = None;
        let mut directories = Vec::new();
        let mut locks: Vec<((u64, u64), fs::File)> = Vec::new();
        let mut places = Vec::new();
        for directory in own {
            match Locked::open(directory) {
                // A directory that is there twice, by two paths, would wait for itself.
                Ok((place, _)) if locks.iter().any(|(known, _)| *known == place) => {}
                Ok((place, lock)) => {
                    places.extend(place_of(directory));
                    directories.push(directory.clone());
                    locks.push((place, lock));
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        if let (true, Some(error)) = (directories.is_empty(), first_error) {
            return Err(error);
        }
        locks.sort_by_key(|(place, _)| *place);
        for (_, lock) in &locks {
            lock.lock().map_err(|error| RuntimeDirError::System(directories[0].clone(), error))?;
        }
        Ok(Locked { directories, places, _locks: locks.into_iter().map(|(_, lock)| lock).collect() })
    }

    /// The lock of a directory, not yet taken, and its path.
    fn open(directory: &Path) -> Result<((u64, u64), fs::File), RuntimeDirError> {
        make_private_folder(directory)?;
        let failed = |error| RuntimeDirError::System(directory.to_owned(), error);
        let lock = fs::File::create(directory.join(".lock")).map_err(failed)?;
        let metadata = lock.metadata().map_err(failed)?;
        Ok(((metadata.dev(), metadata.ino()), lock))
    }
}

impl RuntimeDir {
    /// Creates the folder for an engine of this process. A folder that a process left behind becomes the post-mortem
    /// `NAME@1`.
    ///
    /// # Errors
    /// See [`RuntimeDirError`].
    pub fn claim(name: &str) -> Result<RuntimeDir, RuntimeDirError> {
        RuntimeDir::check_name(name)?;
        let (own, locked) = Locked::lock_own()?;
        RuntimeDir::claim_locked(&own, &locked, name)
    }

    /// Keeps all processes of this user from taking a name: none that waits for it has its folder yet.
    ///
    /// # Errors
    /// See [`RuntimeDirError`].
    pub fn lock_names() -> Result<NameLock, RuntimeDirError> {
        Locked::lock_own().map(|(_, locked)| NameLock(locked))
    }

    fn check_name(name: &str) -> Result<(), RuntimeDirError> {
        if RuntimeDir::is_name(name) { Ok(()) } else { Err(RuntimeDirError::BadName(name.to_owned())) }
    }

    /// Creates the folder in the first usable one of these directories.
    #[cfg(test)]
    fn claim_in(own: &[PathBuf], name: &str) -> Result<RuntimeDir, RuntimeDirError> {
        RuntimeDir::claim_locked(own, &Locked::lock(own)?, name)
    }

    /// Creates the folder in the first of the locked directories.
    fn claim_locked(own: &[PathBuf], locked: &Locked, name: &str) -> Result<RuntimeDir, RuntimeDirError> {
        let directories = &locked.directories;
        // This includes directories that can be read but not written.
        let readable = own.iter().filter(|directory| is_private(directory));
        if let Some(pid) = readable.filter_map(|directory| RuntimeDir::at(directory, name, 0).process()).next() {
            return Err(RuntimeDirError::Taken { name: name.to_owned(), pid });
        }
        let is_restart =
            archive(directories, name).map_err(|(folder, error)| RuntimeDirError::System(folder, error))?;
        let mut runtime_dir = RuntimeDir::at(&directories[0], name, 0);
        make_private_folder(&runtime_dir.folder)?;
        runtime_dir.owned = true;
        if is_restart {
            let mark = runtime_dir.file(RESTARTED);
            fs::write(&mark, "").map_err(|error| RuntimeDirError::System(mark, error))?;
        }
        let pid = std::process::id();
        let identity = format!("{pid} {}\n", start_of(pid).unwrap_or(0));
        let file = runtime_dir.file(IDENTITY);
        fs::write(&file, identity).map_err(|error| RuntimeDirError::System(file, error))?;
        Ok(runtime_dir)
    }

    /// A folder of this user, opened for reading.
    fn at(directory: &Path, name: &str, number: usize) -> RuntimeDir {
        let folder = if number == 0 { name.to_owned() } else { format!("{name}@{number}") };
        RuntimeDir {
            folder: directory.join(folder),
            name: name.to_owned(),
            number,
            owned: false,
            foreign: None,
            is_meant: false,
        }
    }

    /// The same folder, opened for reading.
    pub fn for_reading(&self) -> RuntimeDir {
        let RuntimeDir { folder, name, number, foreign, is_meant, .. } = self;
        let (folder, name, foreign) = (folder.clone(), name.clone(), foreign.clone());
        RuntimeDir { folder, name, number: *number, owned: false, foreign, is_meant: *is_meant }
    }

    /// The folders of the engines that match a name; `NAME@1` is a post-mortem. There are several only if several other
    /// users have a network of this name and this user has none.
    pub fn called(name: &str) -> Vec<RuntimeDir> {
        let runs = RuntimeDir::all().into_iter().chain(RuntimeDir::post_mortems());
        let mut runs: Vec<RuntimeDir> = runs.filter(|runtime_dir| runtime_dir.has_name(name)).collect();
        if let Some(exact) = runs.iter().position(|runtime_dir| runtime_dir.name() == name) {
            runs = vec![runs.swap_remove(exact)];
        }
        runs
    }

    /// The folders of all engines, those of this user by name and then the visible ones of other users. Crashed engines
    /// are included if no newer run has the name.
    ///
    /// A directory that others can enter is skipped: they could have put anything there.
    pub fn all() -> Vec<RuntimeDir> {
        every().into_iter().filter(|runtime_dir| runtime_dir.number == 0).collect()
    }

    /// The post-mortem folders, in the same order, the newest of a name first.
    pub fn post_mortems() -> Vec<RuntimeDir> {
        every().into_iter().filter(|runtime_dir| runtime_dir.number > 0).collect()
    }

    /// The engine's name: `NAME`, or `USER/NAME` if it is another user's. A post-mortem's name ends with `@` and its
    /// number.
    pub fn name(&self) -> String {
        match &self.foreign {
            Some(foreign) => format!("{}/{}", foreign.user, self.bare_name()),
            None => self.bare_name(),
        }
    }

    /// The name without the user.
    pub fn bare_name(&self) -> String {
        let RuntimeDir { name, number, .. } = self;
        if *number == 0 { name.clone() } else { format!("{name}@{number}") }
    }

    /// Whether this name matches, with its user or without.
    pub fn has_name(&self, name: &str) -> bool {
        match name.split_once('/') {
            Some((user, name)) => name == self.bare_name() && self.is_of(user),
            None => name == self.bare_name(),
        }
    }

    /// Whether it belongs to the user of this name or number.
    pub fn is_of(&self, user: &str) -> bool {
        user == self.user() || user.parse() == Ok(self.user_number())
    }

    /// The name of the engine's user, or the number of a user without a name.
    pub fn user(&self) -> String {
        self.foreign.as_ref().map_or_else(|| user_name(user()), |foreign| foreign.user.clone())
    }

    fn user_number(&self) -> u32 {
        self.foreign.as_ref().map_or_else(user, |foreign| foreign.directory.owner())
    }

    /// Whether it is another user's.
    pub fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// The same folder, for changes: whoever asks for them has named another user's network with its user.
    pub fn to_change(mut self) -> RuntimeDir {
        self.is_meant = true;
        self
    }

    /// Whether its network may be changed: it is this user's, or was [named](RuntimeDir::to_change) with its user.
    pub fn may_be_changed(&self) -> bool {
        !self.is_foreign() || self.is_meant
    }

    /// The process that created the folder, alive or not, and its start time.
    fn identity(&self) -> Option<(u32, u64)> {
        let identity = String::from_utf8(self.read(IDENTITY).ok()?).ok()?;
        let (pid, start) = identity.trim().split_once(' ')?;
        Some((pid.parse().ok()?, start.parse().ok()?))
    }

    /// The folder's process, even if it has ended.
    pub fn pid(&self) -> Option<u32> {
        self.identity().map(|(pid, _)| pid)
    }

    /// The folder's live process; `None` if it has ended.
    pub fn process(&self) -> Option<u32> {
        let (pid, start) = self.identity()?;
        // Another user could name a process that is not its own, to have it killed.
        (start_of(pid)? == start && user_of(pid)? == self.user_number()).then_some(pid)
    }

    /// The time at which the engine got its folder.
    pub fn claimed(&self) -> Option<SystemTime> {
        let metadata = match &self.foreign {
            Some(foreign) => foreign.directory.file(&self.below(IDENTITY)).ok()?.metadata(),
            None => fs::metadata(self.file(IDENTITY)),
        };
        metadata.ok()?.modified().ok()
    }

    /// The path of a file of the folder, below its runtime directory.
    fn below(&self, file: &str) -> PathBuf {
        Path::new(self.folder.file_name().unwrap_or_default()).join(file)
    }

    /// The contents of a file of the folder.
    ///
    /// # Errors
    /// Those of reading a file. Another user's file is also rejected if it is very large, or lies elsewhere.
    pub fn read(&self, file: &str) -> io::Result<Vec<u8>> {
        match &self.foreign {
            Some(foreign) => foreign.directory.read(&self.below(file), MAX_FOREIGN_FILE),
            None => fs::read(self.file(file)),
        }
    }

    /// The cells in a file of the folder: a mapping of it, or a copy if it is another user's.
    ///
    /// # Errors
    /// Those of [`read`](RuntimeDir::read).
    pub(crate) fn cells(&self, file: &str) -> io::Result<Cells> {
        match &self.foreign {
            Some(_) => Cells::copied(&self.read(file)?),
            None => Ok(Cells::Shared(SharedCells::open(&self.file(file))?)),
        }
    }

    /// Connects to the control socket.
    ///
    /// # Errors
    /// Those of connecting; `PermissionDenied` if a process of another user than the folder's listens.
    pub fn connect(&self) -> io::Result<UnixStream> {
        match &self.foreign {
            Some(foreign) => foreign.directory.connect(&self.below(CONTROL)),
            None => untrusted::connect_to_own(&self.control()),
        }
    }

    /// The file with the counters.
    pub fn counters(&self) -> PathBuf {
        self.folder.join(COUNTERS)
    }

    /// A file of this name in the folder, for the run's data of other programs.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The file of one generation of counters, before it is published.
    pub fn generation(&self, generation: u64) -> PathBuf {
        self.folder.join(format!("counters.{generation}"))
    }

    /// Publishes a generation of counters.
    pub fn publish(&self, generation: u64) -> io::Result<()> {
        fs::rename(self.generation(generation), self.counters())
    }

    /// Removes a generation that was not published.
    pub fn discard(&self, generation: u64) {
        let _ = fs::remove_file(self.generation(generation));
    }

    /// The file with the timeline of the first worker, or of the worker of this name.
    pub fn timeline(&self, worker: Option<&str>) -> PathBuf {
        self.folder.join(timeline_file(worker))
    }

    /// The cells of a timeline.
    ///
    /// # Errors
    /// Those of [`read`](RuntimeDir::read).
    pub(crate) fn timeline_cells(&self, worker: Option<&str>) -> io::Result<Cells> {
        self.cells(&timeline_file(worker))
    }

    /// Removes the timeline of a worker that is gone.
    pub fn forget_worker(&self, worker: &str) {
        let _ = fs::remove_file(self.timeline(Some(worker)));
    }

    /// The control socket.
    pub fn control(&self) -> PathBuf {
        self.folder.join(CONTROL)
    }

    /// Removes the folder of a process that has ended.
    ///
    /// # Errors
    /// Those of removing a folder. Another user's folder is not removed.
    pub fn remove(&self) -> io::Result<()> {
        if self.is_foreign() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        fs::remove_dir_all(&self.folder)
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        if self.owned && !std::thread::panicking() {
            let _ = self.remove();
        }
    }
}

/// The name of the file with a worker's timeline. A worker's name may have any characters, and stays in the folder.
fn timeline_file(worker: Option<&str>) -> String {
    let Some(worker) = worker else { return TIMELINE.to_owned() };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let encode = |byte: u8| if fits(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") };
    format!("{TIMELINE}.{}", worker.bytes().map(encode).collect::<String>())
}

/// All folders: those of this user, then the visible ones of other users, by user, name and number.
fn every() -> Vec<RuntimeDir> {
    let own = SearchPath::current().own;
    let mut runs = number(own.iter().map(|directory| folders_in(directory)).collect());
    let mut others: BTreeMap<String, Vec<Vec<RuntimeDir>>> = BTreeMap::new();
    for directory in foreign() {
        others.entry(directory.user.clone()).or_default().push(foreign_folders_in(&directory));
    }
    runs.extend(others.into_values().flat_map(number));
    runs
}

/// The folders in a directory of this user, in no particular order.
fn folders_in(directory: &Path) -> Vec<RuntimeDir> {
    if !is_private(directory) {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten();
    let runs = entries.filter_map(|entry| {
        let (name, number) = parse(entry.ok()?.file_name().to_str()?)?;
        Some(RuntimeDir::at(directory, &name, number))
    });
    runs.filter(|runtime_dir| runtime_dir.file(IDENTITY).is_file()).collect()
}

/// The folders in a directory of another user.
fn foreign_folders_in(directory: &Arc<ForeignDir>) -> Vec<RuntimeDir> {
    let names = directory.directory.names(MAX_FOREIGN_FOLDERS).unwrap_or_default().into_iter();
    let runs = names.filter_map(|folder| {
        let (name, number) = parse(&folder)?;
        let foreign = Some(Arc::clone(directory));
        Some(RuntimeDir { folder: directory.path.join(folder), name, number, owned: false, foreign, is_meant: false })
    });
    runs.filter(|runtime_dir| runtime_dir.claimed().is_some()).collect()
}

/// Whether a directory exists and is private to this user.
fn is_private(directory: &Path) -> bool {
    private_folder::is_private(directory, user())
}

/// The device and inode number of a directory.
fn place_of(directory: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(directory).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Creates a folder of mode 0700, or checks that an existing one is private to this user.
fn make_private_folder(folder: &Path) -> Result<(), RuntimeDirError> {
    let failed = |error| RuntimeDirError::System(folder.to_owned(), error);
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if is_private(folder) {
                Ok(())
            } else {
                Err(RuntimeDirError::Unsafe(folder.to_owned()))
            }
        }
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use bellows_sys::untrusted::UntrustedDir;
    use bellows_testkit::scratch;
    use bellows_testkit::scratch::TempDir;

    use super::*;
    use crate::slab::{Directory, Removed, Slab};
    use crate::snapshot::Observer;

    #[test]
    fn names_that_would_leave_the_folder_are_rejected() {
        for name in ["", "..", "a/b", ".hidden", "a b", &"x".repeat(65)] {
            assert!(matches!(RuntimeDir::claim(name), Err(RuntimeDirError::BadName(_))), "{name:?}");
        }
    }

    /// A private directory, removed when dropped.
    pub(super) struct Folder(pub(super) PathBuf, #[expect(dead_code, reason = "it is held")] TempDir);

    impl Folder {
        pub(super) fn new(name: &str) -> Folder {
            let folder = scratch();
            let path = folder.path().join(name);
            make_private_folder(&path).unwrap();
            Folder(path, folder)
        }
    }

    #[test]
    fn engines_in_a_folder_that_is_open_to_others_are_not_seen() {
        let folder = Folder::new("open");
        make_private_folder(&folder.0.join("engine")).unwrap();
        fs::write(folder.0.join("engine/identity"), "1 1\n").unwrap();
        assert_eq!(folders_in(&folder.0).len(), 1);
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(folders_in(&folder.0).len(), 0);
    }

    #[test]
    fn another_users_counters_that_cannot_be_read_delay_no_reader() {
        let folder = Folder::new("theirs");
        let runtime_dir = RuntimeDir::claim_in(std::slice::from_ref(&folder.0), "net").unwrap();
        let directory = Directory::lay_out(&["main".to_owned()], &[], &[], &Removed::default(), Vec::new());
        Slab::create(directory, 0, Some(&runtime_dir)).unwrap();
        runtime_dir.publish(0).unwrap();
        // As if another user's.
        let directory = UntrustedDir::open(folder.0.parent().unwrap(), "theirs").unwrap();
        let foreign = ForeignDir { directory, path: folder.0.clone(), user: "other".to_owned() };
        let theirs = foreign_folders_in(&Arc::new(foreign)).pop().unwrap();
        let mut observer = Observer::open(theirs).unwrap();
        fs::remove_file(runtime_dir.counters()).unwrap();
        let read = |_| {
            let start = Instant::now();
            observer.read();
            start.elapsed()
        };
        let shortest = (0..10).map(read).min().unwrap();
        assert!(shortest < Duration::from_millis(15), "{shortest:?}");
    }

    #[test]
    fn a_link_is_no_runtime_directory() {
        let folder = Folder::new("link");
        make_private_folder(&folder.0.join("target")).unwrap();
        let link = folder.0.join("link");
        std::os::unix::fs::symlink("target", &link).unwrap();
        assert!(
            matches!(RuntimeDir::claim_in(std::slice::from_ref(&link), "a"), Err(RuntimeDirError::Unsafe(path)) if path == link)
        );
        assert_eq!(folders_in(&link).len(), 0);
    }

    #[test]
    fn a_name_is_taken_in_all_directories_of_a_user() {
        let folder = Folder::new("taken");
        let [one, two] = ["one", "two"].map(|name| folder.0.join(name));
        let runtime_dir = RuntimeDir::claim_in(&[one.clone(), two.clone()], "a").unwrap();
        assert!(runtime_dir.folder.starts_with(&one));
        let again = RuntimeDir::claim_in(&[two.clone(), one.clone()], "a");
        assert!(matches!(again, Err(RuntimeDirError::Taken { pid, .. }) if pid == std::process::id()));
        let other = RuntimeDir::claim_in(&[two.clone(), one.clone(), two.clone()], "b").unwrap();
        assert!(other.folder.starts_with(&two));
    }

    #[test]
    fn the_first_directory_that_can_be_used_is_taken() {
        let folder = Folder::new("first");
        let usable = folder.0.join("usable");
        let [missing, nowhere] = ["missing/dir", "nowhere/dir"].map(|name| folder.0.join(name));
        let runtime_dir = RuntimeDir::claim_in(&[missing.clone(), usable.clone()], "a").unwrap();
        assert!(runtime_dir.folder.starts_with(&usable));
        let failed = RuntimeDir::claim_in(&[missing.clone(), nowhere], "a");
        assert!(matches!(failed, Err(RuntimeDirError::System(path, _)) if path == missing));
    }

    #[test]
    fn a_contested_name_is_claimed_once() {
        let folder = Folder::new("many");
        let directories = ["one", "two", "three"].map(|name| folder.0.join(name));
        let claimed: usize = std::thread::scope(|scope| {
            let claims: Vec<_> = (0..16)
                .map(|number| {
                    let mut own = directories.to_vec();
                    own.rotate_left(number % 3);
                    scope.spawn(move || RuntimeDir::claim_in(&own, "a").map(std::mem::forget).is_ok())
                })
                .collect();
            claims.into_iter().map(|claim| usize::from(claim.join().unwrap())).sum()
        });
        assert_eq!(claimed, 1);
    }

    #[test]
    fn a_process_of_another_user_is_not_the_engine() {
        let folder = Folder::new("user");
        let runtime_dir = RuntimeDir::claim_in(&[folder.0.join("own")], "a").unwrap();
        assert_eq!(runtime_dir.process(), Some(std::process::id()));
        // PID 1 is root's; for root, a process of another user.
        let mut other = (user() == 0).then(|| Command::new("sleep").arg("60").uid(65_534).spawn().unwrap());
        let pid = other.as_ref().map_or(1, Child::id);
        assert_ne!(user_of(pid), Some(user()));
        fs::write(runtime_dir.file(IDENTITY), format!("{pid} {}\n", start_of(pid).unwrap())).unwrap();
        assert_eq!(runtime_dir.process(), None);
        if let Some(other) = &mut other {
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }

    #[test]
    fn a_name_is_taken_while_its_process_lives_and_free_after() {
        let name = format!("test-runtime_dir-{}", std::process::id());
        let runtime_dir = RuntimeDir::claim(&name).unwrap();
        assert!(
            matches!(RuntimeDir::claim(&name), Err(RuntimeDirError::Taken { pid, .. }) if pid == std::process::id())
        );
        assert_eq!(RuntimeDir::called(&name)[0].process(), Some(std::process::id()));
        fs::write(runtime_dir.file(IDENTITY), "1 1\n").unwrap();
        assert_eq!(runtime_dir.process(), None, "a pid that was used again is not the process");
        drop(runtime_dir);
        assert!(RuntimeDir::called(&name).is_empty());
    }

    #[test]
    fn a_zombie_is_no_process() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while !state().contains(") Z ") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(start_of(pid), None);
        child.wait().unwrap();
    }
}
