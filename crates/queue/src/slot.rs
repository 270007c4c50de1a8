//! Workers of one machine: each has a lock, by which the commands of one that was killed are found.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::QueueError;
use crate::names::QueueName;

/// The name of this machine.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Maximum number of workers of a queue on a machine.
const MAX_SLOTS: usize = 1_024;

/// A place that a worker has as long as it lives.
pub(crate) struct Slot {
    /// The file that it has locked.
    pub(crate) path: PathBuf,
    _lock: File,
}

impl Slot {
    /// The first place that no worker of the queue has.
    pub(crate) fn take(name: &QueueName) -> Result<Slot, QueueError> {
        let user = rustix::process::getuid().as_raw();
        Slot::take_in(&std::env::temp_dir().join(format!("bellows-workers-{user}")), user, name)
    }

    fn take_in(folder: &Path, user: u32, name: &QueueName) -> Result<Slot, QueueError> {
        let fail = |doing, path: &Path, error| QueueError::Io { doing, path: path.to_owned(), error };
        match fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(fail("create", folder, error));
            }
            _ => {}
        }
        // Another user could have made it first, to choose which files are opened.
        let info = fs::symlink_metadata(folder).map_err(|error| fail("open", folder, error))?;
        if !info.is_dir() || info.uid() != user {
            let error = std::io::Error::other("it is not a folder of this user; remove it, or set TMPDIR");
            return Err(fail("use", folder, error));
        }
        for number in 0..MAX_SLOTS {
            let path: PathBuf = folder.join(format!("{name}-{number}"));
            let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            let file = opened.map_err(|error| fail("open", &path, error))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Slot { path, _lock: file }),
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(fail("lock", &path, error.into())),
            }
        }
        let error = std::io::Error::other(format!("{MAX_SLOTS} workers of this queue run on this machine"));
        Err(fail("lock a file in", folder, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_a_place_of_its_own() {
        let folder = bellows_testkit::scratch();
        let (name, user) = ("q".parse().unwrap(), rustix::process::getuid().as_raw());
        let take = || Slot::take_in(&folder.path().join("slots"), user, &name).unwrap();
        let (first, second) = (take(), take());
        assert_ne!(first.path, second.path);
        let path = first.path.clone();
        drop(first);
        assert_eq!(take().path, path);
        let foreign = Slot::take_in(&folder.path().join("slots"), user + 1, &name);
        assert!(foreign.err().unwrap().to_string().contains("not a folder of this user"));
    }
}
