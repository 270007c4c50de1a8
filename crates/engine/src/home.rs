//! Where a running engine can be found by other processes.
//!
//! Each has a folder of its own name under one folder of the user's on tmpfs: `$XDG_RUNTIME_DIR/bellows`, or
//! `/dev/shm/bellows-UID` where there is no runtime directory. In it lie the counters, the control socket, and a
//! file with the process's identity. A run that ends removes its folder; one that crashes leaves it behind.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

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
        None => PathBuf::from(format!("/dev/shm/bellows-{}", user())),
    }
}

fn user() -> u32 {
    fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}

/// When a process started, in clock ticks since boot: with the pid, an identity that is not used twice.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the start time is the 20th field after it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

impl Home {
    /// Makes the folder for an engine of this process, in place of one that a process left behind.
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
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| HomeError::System(folder.clone(), error))?;
        }
        make_private_folder(&folder)?;
        let home = Home { folder, owned: true };
        let pid = std::process::id();
        let identity = format!("{pid} {}\n", start_of(pid).unwrap_or(0));
        fs::write(home.identity(), identity).map_err(|error| HomeError::System(home.identity(), error))?;
        Ok(home)
    }

    /// The folder of some engine, to look into.
    fn at(folder: &Path) -> Home {
        Home { folder: folder.to_owned(), owned: false }
    }

    /// The folder of the engine of this name, if there is one.
    pub fn find(name: &str) -> Option<Home> {
        Home::all().into_iter().find(|home| home.name() == name)
    }

    /// The folders of all engines of this user, those that crashed included, by name.
    ///
    /// None of a folder in which others can write, who may have put anything there.
    pub fn all() -> Vec<Home> {
        Home::all_in(&root())
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
        homes.sort_by(|one, other| one.folder.cmp(&other.folder));
        homes
    }

    /// The engine's name.
    pub fn name(&self) -> String {
        self.folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The live process that the folder belongs to; `None` if that has ended.
    pub fn process(&self) -> Option<u32> {
        let identity = fs::read_to_string(self.identity()).ok()?;
        let (pid, start) = identity.trim().split_once(' ')?;
        let pid = pid.parse().ok()?;
        (start_of(pid)? == start.parse::<u64>().ok()?).then_some(pid)
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
}
