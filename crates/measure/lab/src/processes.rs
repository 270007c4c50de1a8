//! Runs the same measurement in many fresh processes, in alternation.
//!
//! The figures of a process depend on the placement of its memory and on other programs. Each figure is therefore
//! measured in several processes, with one process per case in every round, so that a slow minute of the machine
//! affects all cases. Comparisons need more: see [`turns`](crate::turns).

use std::process::Command;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::audience::Observer;
use crate::machine::Machine;
use crate::workers::{ProcessError, Worker, this_program};

/// Runs a task in a fresh process of this program with some arguments. Returns the answer and the machine.
///
/// # Errors
/// See [`ProcessError`].
pub fn ask<T: Serialize, A: DeserializeOwned>(
    arguments: &[&str],
    task: &T,
    observer: &mut dyn Observer,
) -> Result<(A, Machine), ProcessError> {
    converse(Command::new(this_program()?).args(arguments), task, observer)
}

/// Runs a task in the process that a command starts.
pub(crate) fn converse<T: Serialize, A: DeserializeOwned>(
    command: &mut Command,
    task: &T,
    observer: &mut dyn Observer,
) -> Result<(A, Machine), ProcessError> {
    let mut worker = Worker::run(command, task)?;
    let reply = worker.reply(observer)?;
    let said = worker.finish()?;
    if !said.is_empty() {
        observer.worker_stderr(&said);
    }
    match reply.outcome {
        Ok(answer) => Ok((answer, reply.machine.unwrap_or_else(Machine::here))),
        Err(_) => Err(ProcessError::Silent),
    }
}

/// The answers of many processes.
#[derive(Debug)]
pub struct Answers<A> {
    /// For each task, the answers of its processes.
    pub answers: Vec<Vec<A>>,
    /// The machine, as the first process reported it.
    pub machine: Machine,
    /// Whether the benchmark was interrupted.
    pub interrupted: bool,
}

/// Runs a number of tasks in `processes` fresh processes each: all tasks once, then all once more, and so on. `task` gets
/// the numbers of the task and of the round.
///
/// # Errors
/// See [`ProcessError`].
pub fn take_turns_with<T: Serialize, A: DeserializeOwned>(
    arguments: &[&str],
    tasks: usize,
    processes: usize,
    task: impl Fn(usize, usize) -> T,
    observer: &mut dyn Observer,
) -> Result<Answers<A>, ProcessError> {
    let program = this_program()?;
    let command = |_| {
        let mut command = Command::new(&program);
        command.args(arguments);
        command
    };
    take_turns_by(command, tasks, processes, task, observer)
}

/// [`take_turns_with`] in processes that `command` starts. It gets the number of the process.
pub(crate) fn take_turns_by<T: Serialize, A: DeserializeOwned>(
    command: impl Fn(usize) -> Command,
    tasks: usize,
    processes: usize,
    task: impl Fn(usize, usize) -> T,
    observer: &mut dyn Observer,
) -> Result<Answers<A>, ProcessError> {
    let mut answers: Vec<Vec<A>> = (0..tasks).map(|_| Vec::new()).collect();
    let mut machine = None;
    let all = tasks * processes;
    for number in 0..all {
        observer.progress(number, all);
        let (round, index) = (number / tasks, number % tasks);
        match converse(&mut command(number), &task(index, round), observer) {
            Ok((answer, found)) => {
                answers[index].push(answer);
                machine.get_or_insert(found);
            }
            Err(ProcessError::Interrupted) if number > 0 => {
                return Ok(Answers { answers, machine: machine.unwrap_or_else(Machine::here), interrupted: true });
            }
            Err(error) => return Err(error),
        }
    }
    observer.progress(all, all);
    Ok(Answers { answers, machine: machine.unwrap_or_else(Machine::here), interrupted: false })
}
