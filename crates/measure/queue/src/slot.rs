//! Workers of one machine: each has a lock, by which the commands of one that was killed are found.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use bellows_sys::private_folder;
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
        Slot::take_in(&std::env::temp_dir(), user, name)
    }

    fn take_in(parent: &Path, user: u32, name: &QueueName) -> Result<Slot, QueueError> {
        let fail = |doing, path: &Path, error| QueueError::Io { doing, path: path.to_owned(), error };
        let folder = private_folder::open(parent, &format!("bellows-workers-{user}"), user)
            .map_err(|error| fail("use a folder of this user in", parent, error))?;
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
        Err(fail("lock a file in", &folder, error))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_worker_has_a_place_of_its_own() {
        let folder = bellows_testkit::scratch();
        let (name, user) = ("q".parse().unwrap(), rustix::process::getuid().as_raw());
        let take = || Slot::take_in(folder.path(), user, &name).unwrap();
        let (first, second) = (take(), take());
        assert_ne!(first.path, second.path);
        let path = first.path.clone();
        drop(first);
        assert_eq!(take().path, path);
    }

    #[test]
    fn a_folder_that_another_user_made_first_is_gone_around() {
        let folder = bellows_testkit::scratch();
        let (name, user) = ("q".parse().unwrap(), rustix::process::getuid().as_raw());
        let plain = folder.path().join(format!("bellows-workers-{user}"));
        fs::create_dir(&plain).unwrap();
        if std::os::unix::fs::chown(&plain, Some(65_534), None).is_err() {
            let test = "a_folder_that_another_user_made_first_is_gone_around";
            return bellows_testkit::skip(test, "only root can give files away");
        }
        let take = || Slot::take_in(folder.path(), user, &name).unwrap();
        let path = take().path;
        assert_eq!(take().path, path, "the next worker finds the place of the one before");
        assert_eq!(fs::read_dir(&plain).unwrap().count(), 0);
    }
}
