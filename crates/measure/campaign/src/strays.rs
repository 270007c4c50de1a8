//! Processes that a runner has left because it was killed: they have a mark in their environment.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use bellows_sys::wake::sleep_until_readable;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long processes may take to end after SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

/// The environment variable that marks all processes of a runner.
pub(crate) const MARK: &str = "BELLOWS_CAMPAIGN";

/// The mark of the runner that uses a results folder: it stays if the folder is moved, and is not that of another folder
/// that has its path later.
pub(crate) fn mark_of(folder: &Path) -> io::Result<String> {
    let (whole, file) = (folder.canonicalize()?, fs::metadata(folder)?);
    Ok(format!("{:x}:{:x}:{}", file.dev(), file.ino(), whole.display()))
}

/// Ends processes that have the mark of a folder: those of a runner that was killed. Returns their number.
pub(crate) fn end_strays(mark: &str) -> usize {
    // The path is for people.
    let folder = mark.splitn(3, ':').take(2).map(|number| format!("{number}:")).collect::<String>();
    let entry = format!("{MARK}={folder}").into_bytes();
    let own = std::process::id();
    let has_mark = |process: u32| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(&entry))
    };
    let end = |process: u32| -> Option<OwnedFd> {
        let id = Pid::from_raw(process.try_into().ok()?)?;
        let pidfd = pidfd_open(id, PidfdFlags::empty()).ok()?;
        // Again: the number may have become that of another process before the descriptor was opened.
        if !has_mark(process) {
            return None;
        }
        pidfd_send_signal(&pidfd, Signal::KILL).ok()?;
        Some(pidfd)
    };
    // A runner that a command of another campaign starts has the mark of that one.
    let strays = processes().filter(|process| *process != own && has_mark(*process));
    let killed: Vec<OwnedFd> = strays.filter_map(end).collect();
    let deadline = Instant::now() + GRACE;
    for stray in &killed {
        let left = deadline.saturating_duration_since(Instant::now());
        let _ = sleep_until_readable(&[stray.as_fd()], Some(left));
    }
    killed.len()
}

/// The numbers of all processes.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
