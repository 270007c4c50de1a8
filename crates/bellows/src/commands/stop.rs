//! `bellows stop`.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use bellows_inspect::control::{OBSTACLE_PATIENCE, REPLY_PATIENCE, Request, ask_within};
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
/// The command waits until they have ended, and gives up after a time with the reason: the process is stopped, or the app in
/// which the engine hangs.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Names of the networks; needed if several run
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Give up after this time, such as `5s` [default: 30s, or 5s with --kill]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    timeout: Option<bellows_config::Duration>,
    /// Kill what has not ended by then. It flushes and reports nothing; `show` still shows its last counters
    #[arg(long)]
    kill: bool,
}

/// How long a run may take to flush and end.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long it may take if it is killed otherwise.
const PATIENCE_BEFORE_KILL: Duration = Duration::from_secs(5);

/// How long a process that hangs up or is killed may take to be gone.
const MOMENT: Duration = Duration::from_secs(1);

/// How often to look whether a run has ended.
const LOOK: Duration = Duration::from_millis(10);

/// How often to look why it has not.
const LOOK_FOR_OBSTACLES: Duration = Duration::from_millis(500);

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let runtime_dirs = pick(&self.names)?;
        let default = if self.kill { PATIENCE_BEFORE_KILL } else { PATIENCE };
        let patience = self.timeout.map_or(default, bellows_config::Duration::std);
        // All at the same time: one that hangs does not hold up the others.
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

/// The networks of these names, each once. Nothing is stopped if one of them is not there.
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
    let failure = match ask_within(runtime_dir, &Request::Stop, patience.min(REPLY_PATIENCE)) {
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
        // It ended before it could answer, by the request or by itself: what was asked for is so.
        Err(_) if obstacle(runtime_dir).is_none() && has_ended(runtime_dir, Some(Instant::now() + MOMENT), &name) => {
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
        // Looked up again: a number that was free for a while may be another process's. From here on it stays this one's.
        if runtime_dir.process() == Some(pid) { pidfd_send_signal(process, Signal::KILL) } else { Ok(()) }
    };
    if let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        && let Err(error) = kill(process)
        && is_alive(runtime_dir)
    {
        return Err(CommandError::Failed(format!("`{name}` (process {pid}) cannot be killed: {error}")));
    }
    if !has_ended(runtime_dir, Some(Instant::now() + 5 * MOMENT), name) {
        return Err(CommandError::Failed(format!(
            "`{name}` (process {pid}) was killed and has not ended; the kernel holds it"
        )));
    }
    terminal::warn(&format!(
        "`{name}` (process {pid}) did not end and was killed{reason}; `bellows show {name}` shows its last counters\n"
    ));
    Ok(())
}

/// Whether a run's process is there and not a zombie.
fn is_alive(runtime_dir: &RuntimeDir) -> bool {
    runtime_dir.process().is_some_and(|pid| process_state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X')))
}

/// Waits for a run's end. Says once why that takes long, if something is in its way.
fn has_ended(runtime_dir: &RuntimeDir, deadline: Option<Instant>, name: &str) -> bool {
    let mut look_at = Instant::now() + LOOK_FOR_OBSTACLES;
    let mut told = false;
    while is_alive(runtime_dir) {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return false;
        }
        if !told && now >= look_at {
            look_at = now + LOOK_FOR_OBSTACLES;
            let obstacle = obstacle(runtime_dir);
            let left = deadline.map_or(Duration::MAX, |deadline| deadline - now);
            if let Some(obstacle) = obstacle.filter(|_| left > OBSTACLE_PATIENCE) {
                told = true;
                let until = deadline.map(|_| format!(" for {} more", span(left))).unwrap_or_default();
                let kind = if obstacle == Obstacle::Stopped { "it cannot end" } else { "it has not ended" };
                terminal::warn(&format!("`{name}` was told to stop; {kind}: {obstacle}; waiting{until}\n"));
            }
        }
        thread::sleep(LOOK);
    }
    true
}
