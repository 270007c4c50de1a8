//! Runs commands in process groups of their own, with a time limit, and keeps a bounded part of their output.
//!
//! Processes that a command leaves in the background live until their group is [ended](Processes::end_from): a command
//! that prepares a run may start a server for it. A group's first process is not reaped before, so that its number stays
//! that of the group. What background processes write is read while another command runs.
//!
//! A runner that is killed leaves its commands running. They have a mark in their environment, by which the next runner
//! finds and ends them.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bellows_sys::wake::{Event, sleep_until_readable};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal,
    test_kill_process_group, waitid,
};

use crate::score::{Captured, Output};

/// Maximum number of bytes of an output that are kept of its start, and again of its end.
pub(crate) const MAX_KEPT: usize = 4 << 20;

/// How long processes may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum number of bytes that are read from a pipe after its command has ended: what the largest pipe holds.
const MAX_LEFT: usize = 1 << 20;

/// A request to end, from another thread. The command that runs is ended with all its processes.
pub struct Stop {
    is_set: AtomicBool,
    event: Event,
}

impl Stop {
    /// No request yet.
    ///
    /// # Errors
    /// If the process or the system has no free descriptor.
    pub fn new() -> io::Result<Stop> {
        Ok(Stop { is_set: AtomicBool::new(false), event: Event::new()? })
    }

    /// Requests the end.
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
        self.event.raise();
    }

    /// Whether the end is requested.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Killed(i32),
    TimeLimit,
    Stopped,
}

/// The start and the end of an output.
#[derive(Default)]
struct Kept {
    start: Vec<u8>,
    end: Vec<u8>,
    left_out: u64,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(MAX_KEPT - self.start.len()));
        self.start.extend_from_slice(first);
        self.end.extend_from_slice(rest);
        // Seldom, so that each byte is moved once on average.
        if self.end.len() >= 2 * MAX_KEPT {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        let excess = self.end.len().saturating_sub(MAX_KEPT);
        self.end.drain(..excess);
        self.left_out += excess as u64;
    }

    fn take(&mut self) -> Captured {
        self.shorten();
        let Kept { start: mut bytes, end, left_out } = std::mem::take(self);
        if left_out > 0 {
            // What is before and after the gap is not one line.
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(&end);
        Captured { bytes, left_out }
    }
}

/// A pipe from a process.
struct Pipe {
    file: fs::File,
    kept: Kept,
}

impl Pipe {
    fn new(descriptor: OwnedFd) -> io::Result<Pipe> {
        let flags = fcntl_getfl(&descriptor)?;
        fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        Ok(Pipe { file: descriptor.into(), kept: Kept::default() })
    }

    /// Reads what there is, up to a number of bytes. Returns whether there may be more later.
    fn read(&mut self, buffer: &mut [u8], mut most: usize) -> bool {
        while most > 0 {
            match self.file.read(buffer) {
                Ok(0) => return false,
                Ok(length) => {
                    self.kept.push(&buffer[..length]);
                    most = most.saturating_sub(length);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// How long the other processes of a group are waited for after SIGKILL.
const MAX_ENDING: Duration = Duration::from_millis(100);

/// A command and the processes that it started.
struct Group {
    child: Child,
    id: Pid,
    pidfd: OwnedFd,
    outputs: [Option<Pipe>; 2],
    kept: [Captured; 2],
}

impl Group {
    fn signal(&self, signal: Signal) {
        // It fails if no process of the group is left, or if all are of another user.
        let _ = kill_process_group(self.id, signal);
        // The first process may have joined another group.
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// How the first process ended, which stays a zombie.
    fn ended(&self) -> Option<Ended> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), options).ok()??;
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(Ended::Exited(code)),
            (None, Some(signal)) => Some(Ended::Killed(signal)),
            (None, None) => None,
        }
    }

    fn close(&mut self, output: usize) {
        if let Some(mut pipe) = self.outputs[output].take() {
            self.kept[output] = pipe.kept.take();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        // The others end a little later, and the next run must not meet them.
        let end = Instant::now() + MAX_ENDING;
        while test_kill_process_group(self.id).is_ok() && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

/// What a command needs besides its words.
pub(crate) struct Surroundings<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) environment: &'a [(String, String)],
    /// Which runner the command belongs to.
    pub(crate) mark: Option<&'a str>,
    pub(crate) time_limit: Duration,
    pub(crate) stop: &'a Stop,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) ended: Ended,
    pub(crate) output: Output,
    pub(crate) seconds: f64,
}

/// The commands whose processes may still run.
pub(crate) struct Processes {
    groups: Vec<Group>,
    buffer: Vec<u8>,
}

impl Processes {
    pub(crate) fn new() -> Processes {
        Processes { groups: Vec::new(), buffer: vec![0; 64 << 10] }
    }

    /// The number of commands so far: a mark for [`Processes::end_from`].
    pub(crate) fn mark(&self) -> usize {
        self.groups.len()
    }

    /// Ends all processes of the commands since a mark.
    pub(crate) fn end_from(&mut self, mark: usize) {
        // The last first: those that it was started for may need it until they end.
        while self.groups.len() > mark {
            self.groups.pop();
        }
    }

    /// Runs a command until its first process ends.
    ///
    /// # Errors
    /// Why it could not be started.
    pub(crate) fn run(&mut self, words: &[String], surroundings: &Surroundings<'_>) -> io::Result<Finished> {
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(OsStr::new(program));
        command.args(arguments).current_dir(surroundings.folder).process_group(0);
        command.envs(surroundings.environment.iter().map(|(name, value)| (name, value)));
        command.envs(surroundings.mark.map(|mark| (MARK, mark)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = Instant::now();
        let child = command.spawn()?;
        self.add(child)?;
        let ended = self.wait(start, surroundings)?;
        let seconds = start.elapsed().as_secs_f64();
        let index = self.groups.len() - 1;
        for output in 0..2 {
            if let Some(pipe) = &mut self.groups[index].outputs[output] {
                pipe.read(&mut self.buffer, MAX_LEFT);
            }
        }
        let group = &mut self.groups[index];
        let mut take = |output: usize| match &mut group.outputs[output] {
            Some(pipe) => pipe.kept.take(),
            None => std::mem::take(&mut group.kept[output]),
        };
        let output = Output { stdout: take(0), stderr: take(1) };
        Ok(Finished { ended, output, seconds })
    }

    fn add(&mut self, mut child: Child) -> io::Result<()> {
        let id = Pid::from_child(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let opened = (|| {
            let pidfd = pidfd_open(id, PidfdFlags::empty())?;
            let stdout = stdout.map(|pipe| Pipe::new(pipe.into())).transpose()?;
            let stderr = stderr.map(|pipe| Pipe::new(pipe.into())).transpose()?;
            Ok((pidfd, [stdout, stderr]))
        })();
        match opened {
            Ok((pidfd, outputs)) => {
                self.groups.push(Group { child, id, pidfd, outputs, kept: [Captured::default(), Captured::default()] });
                Ok(())
            }
            Err(error) => {
                let _ = kill_process_group(id, Signal::KILL);
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Waits until the last command ends, or ends it.
    fn wait(&mut self, start: Instant, surroundings: &Surroundings<'_>) -> io::Result<Ended> {
        let mut deadline = start + surroundings.time_limit;
        // Why the command was told to end.
        let mut why: Option<Ended> = None;
        loop {
            if self.sleep(deadline, why.is_none().then_some(surroundings.stop))? {
                let last = &self.groups[self.groups.len() - 1];
                if let Some(ended) = last.ended() {
                    return Ok(why.unwrap_or(ended));
                }
            }
            let is_stopped = surroundings.stop.is_set();
            let is_late = Instant::now() >= deadline;
            let last = &self.groups[self.groups.len() - 1];
            match why {
                None if is_stopped || is_late => {
                    why = Some(if is_stopped { Ended::Stopped } else { Ended::TimeLimit });
                    last.signal(Signal::TERM);
                    deadline = Instant::now() + GRACE;
                }
                Some(_) if is_late => {
                    last.signal(Signal::KILL);
                    deadline = Instant::now() + GRACE;
                }
                _ => {}
            }
        }
    }

    /// Sleeps until something happens, and reads what processes have written. Returns whether the last command ended.
    fn sleep(&mut self, deadline: Instant, stop: Option<&Stop>) -> io::Result<bool> {
        let mut descriptors: Vec<BorrowedFd<'_>> = Vec::new();
        let mut places = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            for (output, pipe) in group.outputs.iter().enumerate() {
                if let Some(pipe) = pipe {
                    descriptors.push(pipe.file.as_fd());
                    places.push((index, output));
                }
            }
        }
        descriptors.push(self.groups[self.groups.len() - 1].pidfd.as_fd());
        if let Some(stop) = stop {
            descriptors.push(stop.event.as_fd());
        }
        let timeout = deadline.saturating_duration_since(Instant::now());
        let readable = sleep_until_readable(&descriptors, Some(timeout))?;
        let has_ended = readable[places.len()];
        for ((index, output), _) in places.into_iter().zip(readable).filter(|(_, readable)| *readable) {
            let group = &mut self.groups[index];
            let Some(pipe) = &mut group.outputs[output] else { continue };
            if !pipe.read(&mut self.buffer, MAX_LEFT) {
                group.close(output);
            }
        }
        Ok(has_ended)
    }
}

/// The environment variable that marks all processes of a runner.
pub(crate) const MARK: &str = "BELLOWS_CAMPAIGN";

/// Ends processes that have a mark: those of a runner that was killed. Returns their number.
pub(crate) fn end_strays(mark: &str) -> usize {
    let entry = format!("{MARK}={mark}").into_bytes();
    let own = std::process::id();
    let has_mark = |process: u32| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == entry)
    };
    let end = |process: u32| -> Option<()> {
        let id = Pid::from_raw(process.try_into().ok()?)?;
        let pidfd = pidfd_open(id, PidfdFlags::empty()).ok()?;
        // Again: the number may have become that of another process before the descriptor was opened.
        if !has_mark(process) {
            return None;
        }
        pidfd_send_signal(&pidfd, Signal::KILL).ok()?;
        let _ = sleep_until_readable(&[pidfd.as_fd()], Some(GRACE));
        Some(())
    };
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let processes = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // A runner that a command of another campaign starts has the mark of that one.
    processes.filter(|process| *process != own && has_mark(*process)).filter_map(end).count()
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.end_from(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_and_the_end_of_an_output_are_kept() {
        let mut kept = Kept::default();
        let bytes: Vec<u8> = (0..100_000_000u32).map(|index| (index % 251) as u8).collect();
        for chunk in bytes.chunks(65_521) {
            kept.push(chunk);
            assert!(kept.start.len() + kept.end.len() < 4 * MAX_KEPT);
        }
        let Captured { bytes: parts, left_out } = kept.take();
        assert_eq!((parts.len(), left_out), (2 * MAX_KEPT + 1, (bytes.len() - 2 * MAX_KEPT) as u64));
        assert!(parts.starts_with(&bytes[..MAX_KEPT]) && parts[MAX_KEPT] == b'\n');
        assert!(parts.ends_with(&bytes[bytes.len() - MAX_KEPT..]));
    }

    #[test]
    fn an_output_without_a_gap_is_whole() {
        for length in [0, 1, MAX_KEPT, MAX_KEPT + 1, 2 * MAX_KEPT] {
            let mut kept = Kept::default();
            let bytes = vec![7; length];
            kept.push(&bytes);
            assert_eq!(kept.take(), Captured { bytes, left_out: 0 }, "{length}");
        }
    }
}
