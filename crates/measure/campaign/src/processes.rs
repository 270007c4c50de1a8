//! Runs commands in process groups of their own, with a time limit, and keeps a bounded part of their output.
//!
//! Processes that a command leaves in the background live until their group is [ended](Processes::end_from): a command
//! that prepares a run may start a server for it. A group's first process is not reaped before, so that its number stays
//! that of the group. What background processes write is read while another command runs.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bellows_sys::wake::{WakeEvent, sleep_until_readable};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal,
    test_kill_process_group, waitid,
};

use crate::diagnostics::visible;
use crate::pipe::Pipe;
use crate::score::{Captured, Output};
use crate::strays::{MARK, processes};

/// How long processes may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum number of bytes that are read from a pipe after its command has ended: what the largest pipe holds.
const MAX_LEFT: usize = 1 << 20;

/// How long a program may be busy: see [`spawn`].
const BUSY: Duration = Duration::from_secs(1);

/// A request to end, from another thread. The command that runs is ended with all its processes.
pub struct Stop {
    is_set: AtomicBool,
    event: WakeEvent,
}

impl Stop {
    /// No request yet.
    ///
    /// # Errors
    /// If the process or the system has no free descriptor.
    pub fn new() -> io::Result<Stop> {
        Ok(Stop { is_set: AtomicBool::new(false), event: WakeEvent::new()? })
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

/// How long the other processes of a group are waited for after SIGKILL.
const MAX_ENDING: Duration = Duration::from_millis(100);

/// A command and the processes that it started.
struct ProcessGroup {
    child: Child,
    id: Pid,
    pidfd: OwnedFd,
    outputs: [Option<Pipe>; 2],
    kept: [Captured; 2],
}

impl ProcessGroup {
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

impl ProcessGroup {
    /// Ends all its processes. Returns what remains, as a sentence without a full stop: a process of another user, or
    /// one that the kernel does not let go, is not waited for.
    fn end(&mut self) -> Option<String> {
        self.signal(Signal::KILL);
        let has_ended = self.ended().is_some()
            || sleep_until_readable(&[self.pidfd.as_fd()], Some(GRACE)).is_ok_and(|readable| readable[0]);
        if !has_ended {
            let name = name_of(self.id);
            return Some(format!("process {} ({name}) cannot be ended; end it by hand", self.id.as_raw_nonzero()));
        }
        let _ = self.child.wait();
        // The others end a little later, and the next run must not meet them.
        let end = Instant::now() + MAX_ENDING;
        loop {
            match test_kill_process_group(self.id) {
                Err(Errno::PERM) => {
                    let group = self.id.as_raw_nonzero();
                    return Some(format!("processes of group {group} are of another user; end them by hand"));
                }
                Ok(()) if Instant::now() < end => std::thread::sleep(Duration::from_micros(500)),
                _ => return None,
            }
        }
    }

    /// Whether a process of the group runs besides the first one, which is a zombie.
    fn has_others(&self) -> bool {
        let group = self.id.as_raw_nonzero().to_string();
        processes().any(|process| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            // The name of the program, in parentheses, can have any characters.
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
            !matches!(fields.next(), None | Some("Z" | "X")) && fields.nth(1) == Some(&group)
        })
    }
}

/// The name of a process, as far as it is known.
fn name_of(process: Pid) -> String {
    let name = fs::read_to_string(format!("/proc/{}/comm", process.as_raw_nonzero())).unwrap_or_default();
    visible(name.trim())
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

/// Starts a command, and returns when.
///
/// The kernel does not start a program that anyone has open for writing. If this process has written the program, as a
/// copy of a build, then the children of other threads may have inherited that descriptor: each has it until it executes
/// its own program. That is soon.
fn spawn(command: &mut Command) -> io::Result<(Instant, Child)> {
    let first = Instant::now();
    loop {
        let start = Instant::now();
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && first.elapsed() < BUSY => {
                thread::sleep(Duration::from_millis(5));
            }
            spawned => return Ok((start, spawned?)),
        }
    }
}

/// The commands whose processes may still run.
pub(crate) struct Processes {
    groups: Vec<ProcessGroup>,
    buffer: Vec<u8>,
    /// What could not be ended.
    remains: Vec<String>,
}

impl Processes {
    pub(crate) fn new() -> Processes {
        Processes { groups: Vec::new(), buffer: vec![0; 64 << 10], remains: Vec::new() }
    }

    /// The number of commands so far: a mark for [`Processes::end_from`].
    pub(crate) fn mark(&self) -> usize {
        self.groups.len()
    }

    /// Ends all processes of the commands since a mark.
    pub(crate) fn end_from(&mut self, mark: usize) {
        // The last first: those that it was started for may need it until they end.
        while self.groups.len() > mark {
            let ended = self.groups.pop().and_then(|mut group| group.end());
            self.remains.extend(ended);
        }
    }

    /// Takes the sentences about what could not be ended since the last time.
    pub(crate) fn remains(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remains)
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
        let (start, child) = spawn(&mut command)?;
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
                self.groups.push(ProcessGroup {
                    child,
                    id,
                    pidfd,
                    outputs,
                    kept: [Captured::default(), Captured::default()],
                });
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
        let mut is_killed = false;
        loop {
            if self.sleep(deadline, why.is_none().then_some(surroundings.stop))? {
                let last = &self.groups[self.groups.len() - 1];
                if let Some(ended) = last.ended() {
                    if why.is_some() {
                        self.wait_for_others(deadline);
                    }
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
                Some(why) if is_late && is_killed => return Ok(why),
                Some(_) if is_late => {
                    last.signal(Signal::KILL);
                    is_killed = true;
                    deadline = Instant::now() + GRACE;
                }
                _ => {}
            }
        }
    }

    /// Waits until the other processes of the last command, which were told to end, have done so.
    fn wait_for_others(&mut self, deadline: Instant) {
        const STEP: Duration = Duration::from_millis(10);
        while Instant::now() < deadline && self.groups[self.groups.len() - 1].has_others() {
            std::thread::sleep(STEP);
            // Who writes into a full pipe does not end.
            for group in &mut self.groups {
                for pipe in group.outputs.iter_mut().flatten() {
                    pipe.read(&mut self.buffer, MAX_LEFT);
                }
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

impl Drop for Processes {
    fn drop(&mut self) {
        self.end_from(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        ["sh", "-c", line].map(str::to_owned).into()
    }

    /// A command that this thread may not end, since it has another user by then.
    #[test]
    fn a_command_of_another_user_is_not_waited_for() {
        if !rustix::process::geteuid().is_root() {
            let name = "a_command_of_another_user_is_not_waited_for";
            return bellows_testkit::skip(name, "only root can start programs as another user");
        }
        let thread = std::thread::spawn(|| {
            let mut processes = Processes::new();
            let stop = Stop::new().unwrap();
            let surroundings = Surroundings {
                folder: Path::new("."),
                environment: &[],
                mark: None,
                time_limit: Duration::from_millis(300),
                stop: &stop,
            };
            let nobody = rustix::process::Uid::from_raw(65_534);
            let start = Instant::now();
            let command = Command::new("sleep").arg("20").process_group(0).stdout(Stdio::piped()).spawn().unwrap();
            let id = Pid::from_child(&command);
            processes.add(command).unwrap();
            // Of this thread alone.
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let ended = processes.wait(start, &surroundings).unwrap();
            processes.end_from(0);
            (id, ended, processes.remains(), start.elapsed())
        });
        let (id, ended, remains, elapsed) = thread.join().unwrap();
        pidfd_send_signal(pidfd_open(id, PidfdFlags::empty()).unwrap(), Signal::KILL).unwrap();
        assert_eq!(ended, Ended::TimeLimit);
        assert!(remains[0].contains("(sleep) cannot be ended; end it by hand"), "{remains:?}");
        assert!(elapsed < Duration::from_secs(8), "{elapsed:?}");
    }

    #[test]
    fn a_program_that_is_still_open_for_writing_is_started_when_it_is_closed() {
        let folder = bellows_testkit::scratch();
        let program = bellows_testkit::programs::script(folder.path().join("program"), "#!/bin/sh\nexit 3\n");
        let writer = fs::OpenOptions::new().append(true).open(&program).unwrap();
        let closing = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(writer);
        });
        let (_, mut child) = spawn(&mut Command::new(&program)).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3));
        closing.join().unwrap();
        assert_eq!(spawn(&mut Command::new(folder.path())).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    /// Its parent ends at once.
    #[test]
    fn each_process_of_a_command_has_its_second_to_tidy() {
        let folder = bellows_testkit::scratch();
        let stop = Stop::new().unwrap();
        let surroundings = Surroundings {
            folder: folder.path(),
            environment: &[],
            mark: None,
            time_limit: Duration::from_millis(300),
            stop: &stop,
        };
        let child = "trap 'sleep 0.3; echo tidied > tidied; exit' TERM; echo ready; while :; do sleep 0.01; done";
        let line = format!("sh -c \"{child}\" & trap 'exit 1' TERM; while :; do sleep 0.01; done");
        let mut processes = Processes::new();
        let finished = processes.run(&words(&line), &surroundings).unwrap();
        processes.end_from(0);
        assert_eq!(finished.ended, Ended::TimeLimit, "{finished:?}");
        assert!(folder.path().join("tidied").exists(), "{finished:?}");
        // One that does not end is not waited for without end.
        let start = Instant::now();
        let line = line.replace("sleep 0.3;", "sleep 20;");
        processes.run(&words(&line), &surroundings).unwrap();
        processes.end_from(0);
        assert!((1.0..8.0).contains(&start.elapsed().as_secs_f64()), "{:?}", start.elapsed());
    }
}
