//! The destination of a capture: a file that is created beside the old one and replaces it when the run begins, a
//! device, or standard output.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use bellows_sys::access::FileAccess;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::output::{OpenError, options_for};
use crate::claims::Overwriting;

/// The part between the file name and the process number in the name of a replacement file.
const MARK: &str = ".bellows-new-";

/// Maximum bytes of a file name.
const MAX_NAME: usize = 255;

/// Maximum number of symbolic links that are followed.
const MAX_SYMLINKS: usize = 40;

/// Maximum number of attempts to lock a file that another process replaces at the same time.
const ATTEMPTS: usize = 10;

/// Bytes that a pipe accepts when it is ready to be written.
const PIPE: usize = 4096;

/// The destination of writes.
pub(super) struct Sink {
    pub(super) file: File,
    /// Whether it is a regular file, which can be truncated to whole packets.
    pub(super) is_regular: bool,
    /// Whether it is standard output, where writes do not block.
    is_pipe: bool,
    /// Whether writes block all the same, as at the end of the run.
    pub(super) patient: bool,
}

impl Sink {
    /// Standard output.
    pub(super) fn stdout() -> io::Result<Sink> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let is_regular = false;
        Ok(Sink { file, is_regular, is_pipe: true, patient: false })
    }

    /// An open file.
    pub(super) fn of(file: File) -> io::Result<Sink> {
        let is_regular = file.metadata()?.is_file();
        Ok(Sink { file, is_regular, is_pipe: false, patient: false })
    }

    pub(super) fn is_pipe(&self) -> bool {
        self.is_pipe
    }

    /// Truncates the file to `offset`.
    pub(super) fn cut(&mut self, offset: u64) -> io::Result<()> {
        self.file.set_len(offset)?;
        self.file.seek(SeekFrom::Start(offset)).map(drop)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_pipe || self.patient {
            return self.file.write(bytes);
        }
        let mut polled = [PollFd::new(&self.file, PollFlags::OUT)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        if polled[0].revents().is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.file.write(&bytes[..bytes.len().min(PIPE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // Closing is not enough: a child process that is being spawned may still have the descriptor, and so the lock.
        if self.is_regular {
            let _ = self.file.unlock();
        }
    }
}

/// What to do when the run begins.
pub(super) struct Staged {
    /// The file to write, after symbolic links.
    pub(super) target: PathBuf,
    how: How,
    /// The existing file, locked so that nobody else touches it meanwhile.
    old: Option<File>,
    /// Keeps apps of this process from reading the file that is about to be overwritten.
    announced: Option<Overwriting>,
}

enum How {
    /// Nothing: it is a device.
    Device,
    /// Empty the existing file: it has several names, or its folder or owner does not allow another one.
    InPlace,
    /// Put this file in place of the old one.
    Replace(PathBuf),
    /// Nothing more: it is done.
    Done,
}

impl Staged {
    /// Replaces the old file. Nothing is touched before this call.
    ///
    /// # Errors
    /// The reason why the old file is still there, and the name of the new one.
    pub(super) fn begin(&mut self, sink: &mut Sink) -> Result<(), (PathBuf, io::Error)> {
        let result = match &self.how {
            How::Device | How::Done => Ok(()),
            How::InPlace => sink.cut(0).map_err(|error| (self.target.clone(), error)),
            How::Replace(new) => fs::rename(new, &self.target).map_err(|error| (new.clone(), error)),
        };
        self.how = How::Done;
        self.release();
        result
    }

    fn release(&mut self) {
        if let Some(old) = self.old.take() {
            let _ = old.unlock();
        }
        self.announced = None;
    }
}

impl Drop for Staged {
    /// The run has not begun: everything stays as it was.
    fn drop(&mut self) {
        if let How::Replace(new) = &self.how {
            let _ = fs::remove_file(new);
        }
        self.release();
    }
}

/// Prepares to write a file, without touching any existing file.
pub(super) fn stage(path: &Path, access: FileAccess) -> Result<(Sink, Staged), OpenError> {
    let failed = |source| OpenError::Create { path: path.to_owned(), source };
    let target = follow(path).map_err(failed)?;
    for _ in 0..ATTEMPTS {
        let old = match File::options().write(true).open(&target) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let before = old.as_ref().map(File::metadata).transpose().map_err(failed)?;
        if let (Some(device), Some(_)) = (&old, before.as_ref().filter(|before| !before.is_file())) {
            let sink = Sink::of(device.try_clone().map_err(failed)?).map_err(failed)?;
            return Ok((sink, Staged { target, how: How::Device, old: None, announced: None }));
        }
        let announced = before.as_ref().map(Overwriting::announce);
        let old = old.map(|old| Held::lock(old, path)).transpose()?;
        let new = beside(&target, path, before.as_ref(), access).map_err(failed)?;
        if is_claimed(&target, new.as_ref().map(|(_, name)| name.as_path())) {
            drop_new(new);
            return Err(OpenError::InUse { path: path.to_owned() });
        }
        // Another process may have replaced it before it was locked.
        if identity(fs::metadata(&target).ok().as_ref()) != identity(before.as_ref()) {
            drop_new(new);
            continue;
        }
        let old = old.map(Held::keep);
        return match (new, old) {
            (Some((file, name)), old) => {
                if let Err(source) = access.apply(&file) {
                    drop_new(Some((file, name)));
                    return Err(OpenError::Access { path: path.to_owned(), source });
                }
                let sink = Sink::of(file).map_err(failed)?;
                Ok((sink, Staged { target, how: How::Replace(name), old, announced }))
            }
            (None, Some(_)) if !keeps(before.as_ref(), access) => {
                let (nlink, mode, group) =
                    before.map_or((0, 0, 0), |old| (old.nlink(), old.mode() & 0o7777, old.gid()));
                let why = if nlink > 1 {
                    "it has several names"
                } else {
                    "its folder or its owner does not allow another file"
                };
                Err(OpenError::InPlace { path: path.to_owned(), why, mode, group })
            }
            (None, Some(old)) => {
                let sink = Sink::of(old).map_err(failed)?;
                Ok((sink, Staged { target, how: How::InPlace, old: None, announced }))
            }
            (None, None) => Err(failed(io::ErrorKind::PermissionDenied.into())),
        };
    }
    Err(OpenError::InUse { path: path.to_owned() })
}

/// Whether a file that is not replaced has these permissions and this group already.
fn keeps(old: Option<&Metadata>, access: FileAccess) -> bool {
    let FileAccess { mode, group } = access;
    old.is_some_and(|old| {
        mode.is_none_or(|mode| mode == old.mode() & 0o7777) && group.is_none_or(|group| group == old.gid())
    })
}

/// A file that is locked until this is dropped.
struct Held(Option<File>);

impl Held {
    fn lock(file: File, path: &Path) -> Result<Held, OpenError> {
        // A file system without locks has no such protection.
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
            _ => Ok(Held(Some(file))),
        }
    }

    fn keep(mut self) -> File {
        let Some(file) = self.0.take() else { unreachable!("it is there until it is kept") };
        file
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            let _ = file.unlock();
        }
    }
}

fn drop_new(new: Option<(File, PathBuf)>) {
    if let Some((file, name)) = new {
        let _ = fs::remove_file(name);
        let _ = file.unlock();
    }
}

fn identity(metadata: Option<&Metadata>) -> Option<(u64, u64)> {
    metadata.map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The file after symbolic links, whether it exists or not.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        match fs::read_link(&path) {
            Ok(link) => path = path.parent().unwrap_or(Path::new("")).join(link),
            Err(_) => return Ok(path),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// The start of the names of replacement files.
fn prefix(target: &Path) -> OsString {
    let mut name = target.file_name().unwrap_or_default().as_bytes().to_vec();
    // Leaves room for the numbers.
    name.truncate(MAX_NAME - MARK.len() - 24);
    name.extend(MARK.as_bytes());
    OsString::from_vec(name)
}

/// Creates a replacement in the same folder; `None` if that is impossible but the old file is writable.
fn beside(
    target: &Path,
    path: &Path,
    old: Option<&Metadata>,
    access: FileAccess,
) -> io::Result<Option<(File, PathBuf)>> {
    if old.is_some_and(|old| old.nlink() > 1) {
        return Ok(None);
    }
    let mut number = 0;
    let (file, name) = loop {
        let mut name = prefix(target);
        name.push(format!("{}-{number}", std::process::id()));
        let name = target.with_file_name(name);
        match options_for(access).create_new(true).open(&name) {
            Ok(file) => {
                let _ = file.try_lock();
                // Another process may have removed it as a leftover.
                if file.metadata()?.nlink() > 0 {
                    break (file, name);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let is_refused = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
                return if old.is_some() && is_refused.contains(&error.kind()) { Ok(None) } else { Err(error) };
            }
        }
        number += 1;
        if number > 10_000 {
            return Err(io::Error::other(format!("there are too many replacement files beside {}", path.display())));
        }
    };
    if let Some(old) = old {
        let mine = file.metadata()?;
        let is_mine = (mine.uid(), mine.gid()) == (old.uid(), old.gid());
        let like_old = if is_mine { Ok(()) } else { fchown(&file, Some(old.uid()), Some(old.gid())) };
        let like_old = like_old.and_then(|()| match access.mode {
            // It has its own permissions; those of the old file might let others open it.
            Some(_) => Ok(()),
            None => file.set_permissions(old.permissions()),
        });
        if like_old.is_err() {
            drop_new(Some((file, name)));
            return Ok(None);
        }
    }
    Ok(Some((file, name)))
}

/// Whether another process is about to replace this file. Removes the leftovers of processes that have died.
fn is_claimed(target: &Path, mine: Option<&Path>) -> bool {
    let prefix = prefix(target);
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mine = mine.and_then(Path::file_name);
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let others: Vec<OsString> =
        names.filter(|name| is_other(name, &prefix) && Some(name.as_os_str()) != mine).collect();
    others.into_iter().any(|name| {
        let path = folder.join(&name);
        let Ok(file) = File::open(&path) else { return false };
        match file.try_lock() {
            Ok(()) => {
                let _ = fs::remove_file(&path);
                let _ = file.unlock();
                false
            }
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(_)) => false,
        }
    })
}

/// Whether a name is that of a replacement file: the prefix, a process, a number.
fn is_other(name: &OsStr, prefix: &OsStr) -> bool {
    let Some(rest) = name.as_bytes().strip_prefix(prefix.as_bytes()) else { return false };
    rest.split(|byte| *byte == b'-').count() == 2 && rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-')
}
