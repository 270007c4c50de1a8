//! The same measurement in many fresh processes, in alternation.
//!
//! What a process measures depends on where its memory happened to be put and on what ran beside it. A figure is
//! therefore taken in several processes, each case once in every round of processes, so that a slow minute of the
//! machine meets all cases alike.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use bellows_sys::{clock, cpu};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a process of a benchmark could not do.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started.
    #[error("cannot start {0} again for a measurement: {1}")]
    Start(PathBuf, std::io::Error),
    /// It failed.
    #[error("a measuring process failed: {1} ({0})")]
    Failed(std::process::ExitStatus, String),
    /// It answered something else.
    #[error("a measuring process answered what cannot be read: {0}")]
    Answer(serde_json::Error),
}

/// Runs this program once more with some arguments, hands it `task` as JSON on its standard input, and reads its answer,
/// JSON on its standard output.
///
/// # Errors
/// See [`ProcessError`].
pub fn ask<T: Serialize, A: DeserializeOwned>(arguments: &[&str], task: &T) -> Result<A, ProcessError> {
    converse(Command::new(this_program()?).args(arguments), task)
}

/// The file that this program runs from.
pub(crate) fn this_program() -> Result<PathBuf, ProcessError> {
    std::env::current_exe().map_err(|error| ProcessError::Start(PathBuf::from("this program"), error))
}

/// Starts a process, hands it `task` on its standard input, and reads its answer from its standard output.
pub(crate) fn converse<T: Serialize, A: DeserializeOwned>(command: &mut Command, task: &T) -> Result<A, ProcessError> {
    let program = PathBuf::from(command.get_program());
    let start = |error| ProcessError::Start(program.clone(), error);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(start)?;
    if let Some(stdin) = child.stdin.take() {
        // A child that ends before it has read its task is reported by its status.
        let _ = serde_json::to_writer(stdin, task);
    }
    let output = child.wait_with_output().map_err(start)?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ProcessError::Failed(output.status, message));
    }
    serde_json::from_slice(&output.stdout).map_err(ProcessError::Answer)
}

/// Has each task done in so many fresh processes: all tasks once, then all once more. `progress` is told how many of how
/// many processes are done. Returns for each task what its processes answered.
///
/// # Errors
/// See [`ProcessError`].
pub fn take_turns<T: Serialize, A: DeserializeOwned>(
    arguments: &[&str],
    tasks: &[T],
    processes: usize,
    progress: impl FnMut(usize, usize),
) -> Result<Vec<Vec<A>>, ProcessError> {
    take_turns_with(arguments, tasks.len(), processes, |task, _| &tasks[task], progress)
}

/// As [`take_turns`], with tasks that may differ from process to process: `task` gets the task's number and the round's.
///
/// # Errors
/// See [`ProcessError`].
pub fn take_turns_with<T: Serialize, A: DeserializeOwned>(
    arguments: &[&str],
    tasks: usize,
    processes: usize,
    task: impl Fn(usize, usize) -> T,
    mut progress: impl FnMut(usize, usize),
) -> Result<Vec<Vec<A>>, ProcessError> {
    let mut answers: Vec<Vec<A>> = (0..tasks).map(|_| Vec::new()).collect();
    let all = tasks * processes;
    for round in 0..processes {
        for (index, answers) in answers.iter_mut().enumerate() {
            progress(round * tasks + index, all);
            answers.push(ask(arguments, &task(index, round))?);
        }
    }
    progress(all, all);
    Ok(answers)
}

/// Prepares a measuring process: binds its thread to a processor, the last that it may use if none is given, and
/// measures the clock.
pub(crate) fn settle(processor: Option<usize>) {
    if let Some(processor) = processor.or_else(|| cpu::allowed().last().copied())
        && let Err(error) = cpu::pin_to(processor)
    {
        fail(&format!("processor {processor}: {error}"));
    }
    clock::calibrate();
}

/// Ends a measuring process with a message for the one that asked.
pub(crate) fn fail(message: &dyn std::fmt::Display) -> ! {
    eprintln!("{message}");
    std::process::exit(1)
}

/// The other side of [`ask`]: reads the task, does it, and writes the answer.
///
/// # Errors
/// When the task cannot be read or the answer not written.
pub fn answer<T: DeserializeOwned, A: Serialize>(work: impl FnOnce(T) -> A) -> Result<(), std::io::Error> {
    let task = serde_json::from_reader(std::io::stdin().lock())?;
    serde_json::to_writer(std::io::stdout().lock(), &work(task))?;
    Ok(())
}
