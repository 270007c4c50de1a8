//! `bellows stop`.

use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use bellows_inspect::control::{OBSTACLE_TIMEOUT, REPLY_TIMEOUT, Request, ask_within};
use bellows_inspect::networks::{Access, Obstacle, obstacle};
use bellows_observe::RuntimeDir;
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::arguments::NameOptions;
use crate::command_error::CommandError;
use crate::operating::network;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::span;

/// Stop running networks: each flushes its files, reports and exits
///
/// The command waits until they have ended. After a time it gives up and prints the reason: the process is stopped, or
/// the app in which the engine hangs.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Names of the networks; needed if several run
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    option: NameOptions,
    /// Give up after this time, such as `5s` [default: 30s, or 5s with --kill]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    timeout: Option<bellows_config::Duration>,
    /// Kill networks that have not ended by then. They flush and report nothing; `show` still shows their last counters
    #[arg(long)]
    kill: bool,
}

/// The time that a run has to flush and end.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The time that a run has if it is killed otherwise.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The time in which a process that closes its connection or is killed must be gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval between checks that a run has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The interval between checks for the reason that it has not.
const OBSTACLE_INTERVAL: Duration = Duration::from_millis(500);

impl Execute for Arguments {
    const CHANGES: &'static [&'static str] = &["stop NAME", "stop --kill NAME"];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let runtime_dirs = pick(&self.option.and(&self.names))?;
        let default = if self.kill { KILL_TIMEOUT } else { TIMEOUT };
        let patience = self.timeout.map_or(default, bellows_config::Duration::std);
        // All at the same time: a network that hangs does not delay the others.
        let failures: Vec<CommandError> = thread::scope(|scope| {
            let stopping: Vec<_> = runtime_dirs
                .iter()
                .map(|runtime_dir| scope.spawn(move || stop(runtime_dir, patience, self.kill)))
                .collect();
            let join = |stopping: thread::ScopedJoinHandle<'_, Result<(), CommandError>>| match stopping.join() {
                Ok(result) => result.err(),
                Err(panic) => std::panic::resume_unwind(panic),
            };
            stopping.into_iter().filter_map(join).collect()
        });
        let mut failures = failures.into_iter();
        let Some(first) = failures.next() else { return Ok(ExitCode::SUCCESS) };
        failures.for_each(|failure| terminal::fail(&format!("{failure}\n")));
        Err(first)
    }
}

/// The networks of these names, each once. If one of them does not exist, nothing is stopped.
fn pick(names: &[String]) -> Result<Vec<RuntimeDir>, CommandError> {
    if names.is_empty() {
        return Ok(vec![network(None, Access::Change)?]);
    }
    let first = |(index, name): &(usize, &String)| !names[..*index].contains(name);
    let names = names.iter().enumerate().filter(first);
    let runtime_dirs: Result<Vec<RuntimeDir>, CommandError> =
        names.map(|(_, name)| network(Some(name), Access::Change)).collect();
    // Two names may mean the same network.
    let mut runtime_dirs = runtime_dirs?;
    runtime_dirs.sort_by_cached_key(RuntimeDir::name);
    runtime_dirs.dedup_by_key(|runtime_dir| runtime_dir.name());
    Ok(runtime_dirs)
}

/// Stops a run and waits for its end.
fn stop(runtime_dir: &RuntimeDir, patience: Duration, kill: bool) -> Result<(), CommandError> {
    let deadline = Instant::now().checked_add(patience);
    let Some(pid) = runtime_dir.process() else {
        ask_within(runtime_dir, &Request::Stop, patience)?;
        return Ok(());
    };
    let process = Process::of(runtime_dir, pid)?;
    let name = runtime_dir.name();
    let said = || {
        terminal::notice(&format!("stopped `{name}` (process {pid})\n"));
        Ok(())
    };
    let failure = match ask_within(runtime_dir, &Request::Stop, patience.min(REPLY_TIMEOUT)) {
        Ok(_) if has_ended(runtime_dir, &process, deadline, &name) => return said(),
        Ok(_) => {
            let why = match obstacle(runtime_dir) {
                Some(obstacle) => obstacle.advice(&name, pid),
                None => format!("it flushes its files or its apps still stop; `bellows stop --kill {name}` ends it"),
            };
            let waited = span(patience);
            CommandError::Failed(format!(
                "`{name}` (process {pid}) was told to stop {waited} ago and has not ended: {why}"
            ))
        }
        // It ended before it could answer, because of the request or by itself: either way it has stopped.
        Err(_)
            if obstacle(runtime_dir).is_none()
                && has_ended(runtime_dir, &process, Some(Instant::now() + EXIT_TIMEOUT), &name) =>
        {
            return said();
        }
        Err(failure) => failure.into(),
    };
    if kill { end(runtime_dir, &process, &name) } else { Err(failure) }
}

/// Kills a run that does not end.
fn end(runtime_dir: &RuntimeDir, process: &Process, name: &str) -> Result<(), CommandError> {
    let pid = process.pid;
    let reason = obstacle(runtime_dir).map(|obstacle| format!(" ({obstacle})")).unwrap_or_default();
    if let Err(error) = process.kill()
        && !process.ends_within(Duration::ZERO)
    {
        return Err(CommandError::Failed(format!("`{name}` (process {pid}) cannot be killed: {error}")));
    }
    if !has_ended(runtime_dir, process, Some(Instant::now() + 5 * EXIT_TIMEOUT), name) {
        return Err(CommandError::Failed(format!(
            "`{name}` (process {pid}) was killed and has not ended; the kernel holds it"
        )));
    }
    terminal::warn(&format!(
        "`{name}` (process {pid}) did not end and was killed{reason}; `bellows show {name}` shows its last counters\n"
    ));
    Ok(())
}

/// A run's process, pinned: its end is seen even if its folder is gone before, and its number may not be used again.
struct Process {
    pid: u32,
    /// `None` if it has ended.
    descriptor: Option<OwnedFd>,
}

impl Process {
    fn of(runtime_dir: &RuntimeDir, pid: u32) -> Result<Self, CommandError> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let descriptor = match number.map(|number| pidfd_open(number, PidfdFlags::empty())) {
            None | Some(Err(Errno::SRCH)) => None,
            Some(Ok(descriptor)) => Some(descriptor),
            Some(Err(error)) => {
                let name = runtime_dir.name();
                return Err(CommandError::Failed(format!("`{name}` (process {pid}) cannot be watched: {error}")));
            }
        };
        // It may have ended in between, and another process may have its number.
        let is_of_run = runtime_dir.process() == Some(pid);
        Ok(Self { pid, descriptor: descriptor.filter(|_| is_of_run) })
    }

    /// Waits for the end of all its threads, no longer than a time.
    fn ends_within(&self, time: Duration) -> bool {
        let Some(descriptor) = &self.descriptor else { return true };
        let timeout = Timespec::try_from(time).ok();
        // Interrupted waits are repeated by the caller.
        poll(&mut [PollFd::new(descriptor, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    fn kill(&self) -> Result<(), Errno> {
        self.descriptor.as_ref().map_or(Ok(()), |descriptor| pidfd_send_signal(descriptor, Signal::KILL))
    }
}

/// Waits for a run's end. If something delays it, says so once.
fn has_ended(runtime_dir: &RuntimeDir, process: &Process, deadline: Option<Instant>, name: &str) -> bool {
    let mut next_check = Instant::now() + OBSTACLE_INTERVAL;
    let mut told = false;
    let mut gone = None;
    while !process.ends_within(CHECK_INTERVAL) {
        let now = Instant::now();
        // A program may go on when its network has ended.
        let is_gone = runtime_dir.process().is_none();
        if is_gone && now - *gone.get_or_insert(now) >= EXIT_TIMEOUT {
            return true;
        }
        if deadline.is_some_and(|deadline| now >= deadline) {
            return is_gone;
        }
        if !told && now >= next_check {
            next_check = now + OBSTACLE_INTERVAL;
            let obstacle = obstacle(runtime_dir);
            let left = deadline.map_or(Duration::MAX, |deadline| deadline - now);
            if let Some(obstacle) = obstacle.filter(|_| left > OBSTACLE_TIMEOUT) {
                told = true;
                let until = deadline.map(|_| format!(" for {} more", span(left))).unwrap_or_default();
                let kind = if obstacle == Obstacle::Stopped { "it cannot end" } else { "it has not ended" };
                terminal::warn(&format!("`{name}` was told to stop; {kind}: {obstacle}; waiting{until}\n"));
            }
        }
    }
    true
}
