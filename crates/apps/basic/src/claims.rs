//! Claims on files, so that no app overwrites a file that another app reads.
//!
//! Readers in any process hold a shared lock on their file and writers an exclusive one, if the file system has locks.
//! A file that is being written may still be read, so a lock alone does not tell a reader that its file is about to be
//! replaced. Between a writer's start and the beginning of the run, this process remembers such files.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Device and inode.
type Identity = (u64, u64);

/// The files that will be overwritten when the run begins.
static TO_OVERWRITE: Mutex<Vec<Identity>> = Mutex::new(Vec::new());

fn to_overwrite() -> MutexGuard<'static, Vec<Identity>> {
    TO_OVERWRITE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// A file that is read: no `pcap-writer` of any process starts to overwrite it until this is dropped.
pub(crate) struct FileReading(File);

impl FileReading {
    /// Claims an open file. `None` if an app of this process is about to overwrite it.
    pub(crate) fn claim(file: File) -> io::Result<Option<FileReading>> {
        // A failed lock is ignored: a file that another process writes can be read, and so can one without locks.
        let _ = file.try_lock_shared();
        let reading = FileReading(file);
        let identity = identity(&reading.0.metadata()?);
        Ok((!to_overwrite().contains(&identity)).then_some(reading))
    }
}

impl Drop for FileReading {
    fn drop(&mut self) {
        // Closing is not enough: a child process that is being spawned may still have the descriptor, and so the lock.
        let _ = self.0.unlock();
    }
}

/// An existing file that will be overwritten when the run begins: no app of this process starts to read it until this
/// is dropped.
pub(crate) struct Overwriting(Identity);

impl Overwriting {
    pub(crate) fn announce(old: &Metadata) -> Overwriting {
        let identity = identity(old);
        to_overwrite().push(identity);
        Overwriting(identity)
    }
}

impl Drop for Overwriting {
    fn drop(&mut self) {
        let mut to_overwrite = to_overwrite();
        if let Some(index) = to_overwrite.iter().position(|identity| *identity == self.0) {
            to_overwrite.swap_remove(index);
        }
    }
}
