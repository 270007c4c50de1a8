//! Where a running engine can be found by other processes.
//!
//! Each has a folder of its own name under one folder of the user's on tmpfs: `$XDG_RUNTIME_DIR/bellows`, or
//! `/dev/shm/bellows-UID` where there is no runtime directory. In it lie the counters, the control socket, and a
//! file with the process's identity. A run that ends removes its folder; one that crashes leaves it behind.
//!
//! The next run of that name keeps it beside its own as a post-mortem: `NAME@1` is the newest, and there are at most
//! [`POST_MORTEMS`] of a name. What goes when there are more: the oldest that was started within ten minutes of the run before
//! it, which a supervisor does with one that crashes at once; so the first crash of such a series stays. If there is
//! none, the oldest. The newest always stays.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How many post-mortems of a name are kept.
pub const POST_MORTEMS: usize = 5;

/// A run that is started this soon after the one before it belongs to a series of restarts.
const RESTART: Duration = Duration::from_secs(600);

/// The file that marks a run as one of a series of restarts.
const RESTARTED: &str = "restarted";

/// Why an engine cannot have its folder.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// The name is no name for a folder.
    #[error("`{0}` is no name for a running network; use letters, digits, `-`, `_` and `.`, at most 64 of them")]
    BadName(String),
    /// A live process has the name.
    #[error("a network named `{name}` is running already (process {pid}); stop it or pick another name with --name")]
    Taken {
        /// The name.
        name: String,
        /// Its process.
        pid: u32,
    },
    /// The folder is not ours alone.
    #[error(
        "{0} belongs to somebody else or is open to others; remove it, or set XDG_RUNTIME_DIR to a folder of yours"
    )]
    Unsafe(PathBuf),
    /// The system refused.
    #[error(
        "{0}, where running networks are found, cannot be used: {1}; \
         set XDG_RUNTIME_DIR to a folder of yours, or unset it"
    )]
    System(PathBuf, io::Error),
}

/// The folder of one engine.
#[derive(Debug)]
pub struct Home {
    folder: PathBuf,
    owned: bool,
}

/// The folder that holds all engines' folders of this user.
pub fn root() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| Path::new(folder).is_dir()) {
        Some(folder) => Path::new(&folder).join("bellows"),
        None => Path::new(SHARED_MEMORY).join(format!("bellows-{}", owner_of_root())),
    }
}

const SHARED_MEMORY: &str = "/dev/shm";

/// For whom the folder in shared memory is: the user, as the system outside of a user namespace knows it. Inside of one
/// (`unshare -r`) anyone may be called root, and would take root's folder or find that it belongs to somebody else.
fn owner_of_root() -> String {
    let user = user();
    let maps = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let outside = outside(user, &maps);
    // One who is root outside too, or cannot be told, is root if the folder's folder is root's.
    let is_owner = || fs::metadata(SHARED_MEMORY).is_ok_and(|metadata| metadata.uid() == user);
    if outside == 0 && !is_owner() {
        // A namespace within a namespace, whose outside is no more than that.
        let namespace = fs::metadata("/proc/self/ns/user").map_or(0, |metadata| metadata.ino());
        return format!("namespace-{namespace}");
    }
    outside.to_string()
}

/// The user that is called so within a user namespace, by the map of `/proc/PID/uid_map`.
fn outside(user: u32, maps: &str) -> u32 {
    let range = |line: &str| -> Option<u32> {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (inside, outside, length) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        let offset = user.checked_sub(inside).filter(|offset| *offset < length)?;
        outside.checked_add(offset)
    };
    maps.lines().find_map(range).unwrap_or(user)
}

fn user() -> u32 {
    fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}

/// When a process started, in clock ticks since boot: with the pid, an identity that is not used twice.
///
/// `None` for a zombie, which has ended and only waits for its parent to notice.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; behind it are the state and, as the 20th field, the start time.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    // The first thread of a process that has others may be a zombie while these work on.
    let has_ended = matches!(state, "Z" | "X") && fs::read_dir(format!("/proc/{pid}/task")).ok()?.count() <= 1;
    if has_ended { None } else { fields.nth(18)?.parse().ok() }
}

impl Home {
    /// Makes the folder for an engine of this process. One that a process left behind becomes the post-mortem `NAME@1`.
    ///
    /// # Errors
    /// See [`HomeError`].
    pub fn claim(name: &str) -> Result<Home, HomeError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(fine) {
            return Err(HomeError::BadName(name.to_owned()));
        }
        let root = root();
        make_private_folder(&root)?;
        let folder = root.join(name);
        // Held until the folder is made, so that of two processes that want one name at a time one gets it.
        let failed = |error| HomeError::System(root.clone(), error);
        let turn = fs::File::create(root.join(".lock")).map_err(failed)?;
        turn.lock().map_err(failed)?;
        if let Some(pid) = Home::at(&folder).process() {
            return Err(HomeError::Taken { name: name.to_owned(), pid });
        }
        let is_restart = bury(&root, name).map_err(|error| HomeError::System(folder.clone(), error))?;
        make_private_folder(&folder)?;
        let home = Home { folder, owned: true };
        if is_restart {
            let mark = home.file(RESTARTED);
            fs::write(&mark, "").map_err(|error| HomeError::System(mark, error))?;
        }
        let pid = std::process::id();
        let identity = format!("{pid} {}\n", start_of(pid).unwrap_or(0));
        fs::write(home.identity(), identity).map_err(|error| HomeError::System(home.identity(), error))?;
        Ok(home)
    }

    /// The folder of some engine, to look into.
    fn at(folder: &Path) -> Home {
        Home { folder: folder.to_owned(), owned: false }
    }

    /// The same folder, to look into.
    pub fn look(&self) -> Home {
        Home::at(&self.folder)
    }

    /// The folder of the engine of this name, if there is one; `NAME@1` is that of a post-mortem.
    pub fn find(name: &str) -> Option<Home> {
        Home::all().into_iter().chain(Home::post_mortems()).find(|home| home.name() == name)
    }

    /// The folders of all engines of this user, by name; also those that crashed, if nobody has taken the name since.
    ///
    /// None of a folder in which others can write, who may have put anything there.
    pub fn all() -> Vec<Home> {
        Home::all_in(&root()).into_iter().filter(|home| home.burial().is_none()).collect()
    }

    /// The folders of engines that crashed and whose name has been taken since, by name, the newest first.
    pub fn post_mortems() -> Vec<Home> {
        Home::all_in(&root()).into_iter().filter(|home| home.burial().is_some()).collect()
    }

    fn all_in(root: &Path) -> Vec<Home> {
        if !fs::symlink_metadata(root).is_ok_and(|metadata| is_private(&metadata)) {
            return Vec::new();
        }
        let mut homes: Vec<Home> = fs::read_dir(root)
            .map(|entries| {
                let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
                folders.filter(|folder| folder.join("identity").is_file()).map(|folder| Home::at(&folder)).collect()
            })
            .unwrap_or_default();
        homes.sort_by_cached_key(|home| home.burial().unwrap_or_else(|| (home.name(), 0)));
        homes
    }

    /// The engine's name.
    pub fn name(&self) -> String {
        self.folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The name without the number of a post-mortem, and that number.
    fn burial(&self) -> Option<(String, usize)> {
        let name = self.name();
        let (name, number) = name.rsplit_once('@')?;
        Some((name.to_owned(), number.parse().ok()?))
    }

    /// The process that made the folder, alive or not, and when that started.
    fn owner(&self) -> Option<(u32, u64)> {
        let identity = fs::read_to_string(self.identity()).ok()?;
        let (pid, start) = identity.trim().split_once(' ')?;
        Some((pid.parse().ok()?, start.parse().ok()?))
    }

    /// The process that the folder belongs to, also if that has ended.
    pub fn pid(&self) -> Option<u32> {
        self.owner().map(|(pid, _)| pid)
    }

    /// The live process that the folder belongs to; `None` if that has ended.
    pub fn process(&self) -> Option<u32> {
        let (pid, start) = self.owner()?;
        (start_of(pid)? == start).then_some(pid)
    }

    /// When the engine got its folder.
    pub fn claimed(&self) -> Option<SystemTime> {
        fs::metadata(self.identity()).ok()?.modified().ok()
    }

    fn identity(&self) -> PathBuf {
        self.folder.join("identity")
    }

    /// The file with the counters.
    pub fn counters(&self) -> PathBuf {
        self.folder.join("counters")
    }

    /// A file of this name in the folder, for what other programs keep with the run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The file with one generation of counters, before it is published.
    pub(crate) fn generation(&self, generation: u64) -> PathBuf {
        self.folder.join(format!("counters.{generation}"))
    }

    /// Makes a generation of counters the one that readers find.
    pub(crate) fn publish(&self, generation: u64) -> io::Result<()> {
        fs::rename(self.generation(generation), self.counters())
    }

    /// Removes a generation that was not published.
    pub(crate) fn discard(&self, generation: u64) {
        let _ = fs::remove_file(self.generation(generation));
    }

    /// The file with the timeline.
    pub fn timeline(&self) -> PathBuf {
        self.folder.join("timeline")
    }

    /// The control socket.
    pub fn control(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// Removes what a process that has ended left behind.
    ///
    /// # Errors
    /// Those of removing a folder.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.folder)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.owned && !std::thread::panicking() {
            let _ = self.remove();
        }
    }
}

/// Makes a post-mortem of what the last run of a name left, if it has left something to see, and says whether the next run
/// belongs to a series of restarts.
fn bury(root: &Path, name: &str) -> io::Result<bool> {
    let last = Home::at(&root.join(name));
    if !last.folder.exists() {
        return Ok(false);
    }
    let is_restart = last.claimed().and_then(|claimed| claimed.elapsed().ok()).is_some_and(|age| age < RESTART);
    if !last.counters().exists() || last.owner().is_none() {
        // It ended before there was an engine.
        last.remove()?;
        return Ok(false);
    }
    let numbered = |number: usize| root.join(format!("{name}@{number}"));
    let homes = Home::all_in(root).into_iter();
    let mut kept: Vec<(usize, Home)> =
        homes.filter_map(|home| home.burial().filter(|(of, _)| of == name).map(|(_, number)| (number, home))).collect();
    kept.sort_by_key(|(number, _)| *number);
    while kept.len() >= POST_MORTEMS {
        let oldest_restart = kept.iter().rposition(|(_, home)| home.file(RESTARTED).exists());
        let (_, home) = kept.remove(oldest_restart.unwrap_or(kept.len() - 1));
        home.remove()?;
    }
    // First without gaps, then by one to make room: so no name is taken.
    for (index, (number, home)) in kept.iter().enumerate() {
        if *number != index + 1 {
            fs::rename(&home.folder, numbered(index + 1))?;
        }
    }
    for number in (1..=kept.len()).rev() {
        fs::rename(numbered(number), numbered(number + 1))?;
    }
    fs::rename(&last.folder, numbered(1))?;
    Ok(is_restart)
}

/// Whether this is a folder of ours alone.
fn is_private(metadata: &fs::Metadata) -> bool {
    metadata.is_dir() && metadata.uid() == user() && metadata.permissions().mode() & 0o077 == 0
}

/// Makes a folder of mode 0700, or checks that one that is there is ours alone.
fn make_private_folder(folder: &Path) -> Result<(), HomeError> {
    let failed = |error| HomeError::System(folder.to_owned(), error);
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let metadata = fs::symlink_metadata(folder).map_err(failed)?;
            if is_private(&metadata) { Ok(()) } else { Err(HomeError::Unsafe(folder.to_owned())) }
        }
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_the_folder_are_refused() {
        for name in ["", "..", "a/b", ".hidden", "a b", &"x".repeat(65)] {
            assert!(matches!(Home::claim(name), Err(HomeError::BadName(_))), "{name:?}");
        }
    }

    #[test]
    fn engines_in_a_folder_that_is_open_to_others_are_not_seen() {
        let root = std::env::temp_dir().join(format!("bellows-root-{}", std::process::id()));
        make_private_folder(&root).unwrap();
        make_private_folder(&root.join("engine")).unwrap();
        fs::write(root.join("engine/identity"), "1 1\n").unwrap();
        assert_eq!(Home::all_in(&root).len(), 1);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(Home::all_in(&root).len(), 0);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_name_is_taken_while_its_process_lives_and_free_after() {
        let name = format!("test-home-{}", std::process::id());
        let home = Home::claim(&name).unwrap();
        assert!(matches!(Home::claim(&name), Err(HomeError::Taken { pid, .. }) if pid == std::process::id()));
        assert_eq!(Home::find(&name).unwrap().process(), Some(std::process::id()));
        fs::write(home.identity(), "1 1\n").unwrap();
        assert_eq!(home.process(), None, "a pid that was used again is not the process");
        drop(home);
        assert!(Home::find(&name).is_none());
    }

    /// What a run of process 1 (which is not the one that started at 1) leaves.
    fn crash(root: &Path, name: &str, content: &str, is_restart: bool) {
        let folder = root.join(name);
        make_private_folder(&folder).unwrap();
        fs::write(folder.join("identity"), "1 1\n").unwrap();
        fs::write(folder.join("counters"), content).unwrap();
        if is_restart {
            fs::write(folder.join(RESTARTED), "").unwrap();
        }
    }

    #[test]
    fn the_first_crash_of_a_series_of_restarts_is_kept() {
        let root = std::env::temp_dir().join(format!("bellows-buried-{}", std::process::id()));
        make_private_folder(&root).unwrap();
        let kept = |name: &str| -> Vec<String> {
            let homes = Home::all_in(&root).into_iter().filter(|home| home.burial().is_some_and(|(of, _)| of == name));
            homes.map(|home| fs::read_to_string(home.counters()).unwrap()).collect()
        };
        for run in 0..20 {
            // Another one whose name is alike is left alone.
            assert!(bury(&root, "a").unwrap() || run == 0);
            crash(&root, "a", &run.to_string(), run > 1);
        }
        assert_eq!(kept("a"), ["18", "17", "16", "1", "0"]);
        for run in 0..20 {
            bury(&root, "a-1").unwrap();
            crash(&root, "a-1", &run.to_string(), false);
        }
        assert_eq!(kept("a-1"), ["18", "17", "16", "15", "14"]);
        assert_eq!(kept("a"), ["18", "17", "16", "1", "0"]);
        fs::remove_dir_all(root.join("a@2")).unwrap();
        fs::remove_file(root.join("a/identity")).unwrap();
        assert!(!bury(&root, "a").unwrap(), "what never ran is no post-mortem");
        crash(&root, "a", "20", false);
        bury(&root, "a").unwrap();
        assert_eq!(kept("a"), ["20", "18", "16", "1", "0"]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn root_of_a_user_namespace_is_the_user_that_made_it() {
        assert_eq!(outside(1000, "         0          0 4294967295\n"), 1000);
        assert_eq!(outside(0, "         0       1000          1\n"), 1000);
        assert_eq!(outside(7, "0 1000 1\n1 100000 65536\n"), 100_006);
        for wrong in ["", "0", "0 x 1", "5 1 1", "0 4294967295 9"] {
            assert_eq!(outside(3, wrong), 3, "{wrong}");
        }
    }

    #[test]
    fn a_zombie_is_no_process() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while !state().contains(") Z ") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(start_of(pid), None);
        child.wait().unwrap();
    }
}
