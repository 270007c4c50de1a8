//! The same measurement in many fresh processes, in alternation.
//!
//! What a process measures depends on where its memory happened to be put and on what ran beside it. A figure is
//! therefore taken in several processes, each case once in every round of processes, so that a slow minute of the
//! machine meets all cases alike. Figures that are compared need more: see [`turns`](crate::turns).

use std::process::Command;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::audience::Audience;
use crate::machine::Machine;
use crate::workers::{ProcessError, Worker, this_program};

/// Has a task done by a fresh process of this program, started with some arguments. Returns its answer, and the machine
/// that it found.
///
/// # Errors
/// See [`ProcessError`].
pub fn ask<T: Serialize, A: DeserializeOwned>(
    arguments: &[&str],
    task: &T,
    audience: &mut dyn Audience,
) -> Result<(A, Machine), ProcessError> {
    converse(Command::new(this_program()?).args(arguments), task, audience)
}

/// Has a task done by the process that a command starts.
pub(crate) fn converse<T: Serialize, A: DeserializeOwned>(
    command: &mut Command,
    task: &T,
    audience: &mut dyn Audience,
) -> Result<(A, Machine), ProcessError> {
    let mut worker = Worker::run(command, task)?;
    let reply = worker.reply(audience)?;
    let said = worker.finish()?;
    if !said.is_empty() {
        audience.said(&said);
    }
    match reply.outcome {
        Ok(answer) => Ok((answer, reply.machine.unwrap_or_else(Machine::here))),
        Err(_) => Err(ProcessError::Silent),
    }
}

/// What many processes answered.
#[derive(Debug)]
pub struct Answers<A> {
    /// For each task, what its processes answered.
    pub answers: Vec<Vec<A>>,
    /// The machine that the first of them found.
    pub machine: Machine,
    /// Whether the audience had enough before all were done.
    pub interrupted: bool,
}

/// Has each task done in so many fresh processes: all tasks once, then all once more.
///
/// # Errors
/// See [`ProcessError`].
pub fn take_turns<T: Serialize, A: DeserializeOwned>(
    arguments: &[&str],
    tasks: &[T],
    processes: usize,
    audience: &mut dyn Audience,
) -> Result<Answers<A>, ProcessError> {
    take_turns_with(arguments, tasks.len(), processes, |task, _| &tasks[task], audience)
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
    audience: &mut dyn Audience,
) -> Result<Answers<A>, ProcessError> {
    let mut answers: Vec<Vec<A>> = (0..tasks).map(|_| Vec::new()).collect();
    let mut machine = None;
    let all = tasks * processes;
    for number in 0..all {
        audience.progress(number, all);
        let (round, index) = (number / tasks, number % tasks);
        match ask(arguments, &task(index, round), audience) {
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
    audience.progress(all, all);
    Ok(Answers { answers, machine: machine.unwrap_or_else(Machine::here), interrupted: false })
}
