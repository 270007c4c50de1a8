//! `bellows stop`.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use bellows_inspect::control::{OBSTACLE_TIMEOUT, REPLY_TIMEOUT, Request, ask_within};
use bellows_inspect::networks::{self, Obstacle, obstacle, process_state};
use bellows_observe::RuntimeDir;
use clap::Args;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::command_error::CommandError;
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
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let runtime_dirs = pick(&self.names)?;
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
        return Ok(vec![networks::pick_to_change(None)?]);
    }
    let first = |(index, name): &(usize, &String)| !names[..*index].contains(name);
    let names = names.iter().enumerate().filter(first);
    names.map(|(_, name)| Ok(networks::pick(Some(name))?)).collect()
}

/// Stops a run and waits for its end.
fn stop(runtime_dir: &RuntimeDir, patience: Duration, kill: bool) -> Result<(), CommandError> {
    let deadline = Instant::now().checked_add(patience);
    let Some(pid) = runtime_dir.process() else {
        ask_within(runtime_dir, &Request::Stop, patience)?;
        return Ok(());
    };
    let name = runtime_dir.name();
    let failure = match ask_within(runtime_dir, &Request::Stop, patience.min(REPLY_TIMEOUT)) {
        Ok(_) if has_ended(runtime_dir, deadline, &name) => return Ok(()),
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
                && has_ended(runtime_dir, Some(Instant::now() + EXIT_TIMEOUT), &name) =>
        {
            return Ok(());
        }
        Err(failure) => failure.into(),
    };
    if kill { end(runtime_dir, pid, &name) } else { Err(failure) }
}

/// Kills a run that does not end.
fn end(runtime_dir: &RuntimeDir, pid: u32, name: &str) -> Result<(), CommandError> {
    let reason = obstacle(runtime_dir).map(|obstacle| format!(" ({obstacle})")).unwrap_or_default();
    let kill = |process| {
        let process = pidfd_open(process, PidfdFlags::empty())?;
        // The process is looked up again, because its number may belong to another process by now. The descriptor then
        // pins it.
        if runtime_dir.process() == Some(pid) { pidfd_send_signal(process, Signal::KILL) } else { Ok(()) }
    };
    if let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        && let Err(error) = kill(process)
        && is_alive(runtime_dir)
    {
        return Err(CommandError::Failed(format!("`{name}` (process {pid}) cannot be killed: {error}")));
    }
    if !has_ended(runtime_dir, Some(Instant::now() + 5 * EXIT_TIMEOUT), name) {
        return Err(CommandError::Failed(format!(
            "`{name}` (process {pid}) was killed and has not ended; the kernel holds it"
        )));
    }
    terminal::warn(&format!(
        "`{name}` (process {pid}) did not end and was killed{reason}; `bellows show {name}` shows its last counters\n"
    ));
    Ok(())
}

/// Whether a run's process exists and is not a zombie.
fn is_alive(runtime_dir: &RuntimeDir) -> bool {
    runtime_dir.process().is_some_and(|pid| process_state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X')))
}

/// Waits for a run's end. If something delays it, says so once.
fn has_ended(runtime_dir: &RuntimeDir, deadline: Option<Instant>, name: &str) -> bool {
    let mut next_check = Instant::now() + OBSTACLE_INTERVAL;
    let mut told = false;
    while is_alive(runtime_dir) {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return false;
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
        thread::sleep(CHECK_INTERVAL);
    }
    true
}
