//! The same measurement in many fresh processes, in alternation.
//!
//! What a process measures depends on where its memory happened to be put and on what ran beside it. A figure is
//! therefore taken in several processes, each case once in every round of processes, so that a slow minute of the
//! machine meets all cases alike. Figures that are compared need more: see [`turns`](crate::turns).

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

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
    Failed(ExitStatus, String),
    /// It answered something else.
    #[error("a measuring process answered what cannot be read: {0}")]
    Answer(serde_json::Error),
    /// The audience had enough before there was anything to report.
    #[error("interrupted before anything was measured")]
    Interrupted,
}

impl ProcessError {
    /// Whether whoever asked for the measurement made a mistake, which the process has explained. Everything else should
    /// not have happened.
    pub fn is_mistake(&self) -> bool {
        matches!(self, ProcessError::Failed(status, _) if status.code() == Some(MISTAKEN))
    }
}

/// The code with which a measuring process ends that explains why it cannot measure.
const MISTAKEN: i32 = 2;

/// Who waits for a benchmark.
pub trait Audience {
    /// So many of so many processes are done.
    fn progress(&mut self, done: usize, all: usize);

    /// A part of the report for people is finished.
    fn show(&mut self, text: &str);

    /// What a measuring process wrote to its standard error although it did its work.
    fn said(&mut self, text: &str);

    /// Whether the benchmark is to end with what it has so far.
    fn is_enough(&self) -> bool;
}

/// Nobody: for tests, and for programs that want the report alone.
impl Audience for () {
    fn progress(&mut self, _: usize, _: usize) {}

    fn show(&mut self, _: &str) {}

    fn said(&mut self, _: &str) {}

    fn is_enough(&self) -> bool {
        false
    }
}

/// Runs this program once more with some arguments, hands it `task` as JSON on its standard input, and reads its answer,
/// JSON on its standard output.
///
/// # Errors
/// See [`ProcessError`].
pub fn ask<T: Serialize, A: DeserializeOwned>(
    arguments: &[&str],
    task: &T,
    audience: &mut dyn Audience,
) -> Result<A, ProcessError> {
    converse(Command::new(this_program()?).args(arguments), task, audience)
}

/// The file that this program runs from.
pub(crate) fn this_program() -> Result<PathBuf, ProcessError> {
    std::env::current_exe().map_err(|error| ProcessError::Start(PathBuf::from("this program"), error))
}

/// Starts a measuring process, with pipes to all its ends.
///
/// It is in a process group of its own: an interrupt at the terminal is for the process that waits for it.
pub(crate) fn measuring(command: &mut Command) -> Result<Child, ProcessError> {
    let program = PathBuf::from(command.get_program());
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.process_group(0).spawn().map_err(|error| ProcessError::Start(program, error))
}

/// Reads all that comes, on a thread.
pub(crate) fn collected(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// How long an audience that has had enough waits, about.
const IMPATIENCE: Duration = Duration::from_millis(20);

/// Starts a process, hands it `task` on its standard input, and reads its answer from its standard output.
pub(crate) fn converse<T: Serialize, A: DeserializeOwned>(
    command: &mut Command,
    task: &T,
    audience: &mut dyn Audience,
) -> Result<A, ProcessError> {
    let program = PathBuf::from(command.get_program());
    let mut child = measuring(command)?;
    if let Some(stdin) = child.stdin.take() {
        // A child that ends before it has read its task is reported by its status.
        let _ = serde_json::to_writer(stdin, task);
    }
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        unreachable!("both are pipes")
    };
    let (answer, said) = (collected(stdout), collected(stderr));
    while !answer.is_finished() {
        std::thread::park_timeout(IMPATIENCE);
        if audience.is_enough() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(ProcessError::Interrupted);
        }
    }
    let status = child.wait().map_err(|error| ProcessError::Start(program, error))?;
    let [answer, said] = [answer, said].map(|text| text.join().unwrap_or_default());
    if !status.success() {
        return Err(ProcessError::Failed(status, said.trim().to_owned()));
    }
    let answer = serde_json::from_str(&answer).map_err(ProcessError::Answer)?;
    if !said.trim().is_empty() {
        audience.said(said.trim());
    }
    Ok(answer)
}

/// What many processes answered.
#[derive(Debug)]
pub struct Answers<A> {
    /// For each task, what its processes answered.
    pub answers: Vec<Vec<A>>,
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
    let all = tasks * processes;
    for number in 0..all {
        audience.progress(number, all);
        let (round, index) = (number / tasks, number % tasks);
        match ask(arguments, &task(index, round), audience) {
            Ok(answer) => answers[index].push(answer),
            Err(ProcessError::Interrupted) if number > 0 => return Ok(Answers { answers, interrupted: true }),
            Err(error) => return Err(error),
        }
    }
    audience.progress(all, all);
    Ok(Answers { answers, interrupted: false })
}

/// Prepares a measuring process: binds its thread to a processor, the last that it may use if none is given, and
/// measures the clock. Panics are remembered for [`panicked`]. Panics are remembered: see [`panicked`].
pub(crate) fn settle(processor: Option<usize>) {
    remember_panics();
    if let Some(processor) = processor.or_else(|| cpu::allowed().last().copied())
        && let Err(error) = cpu::pin_to(processor)
    {
        fail(&format!("processor {processor}: {error}"));
    }
    clock::calibrate();
}

/// The last panic: what it said, and where it was.
static PANICKED: Mutex<Option<String>> = Mutex::new(None);

/// Does something that may panic because an app does, when it is made for instance.
///
/// # Errors
/// What the panic said, and where it was.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    remember_panics();
    let result = std::panic::catch_unwind(AssertUnwindSafe(work));
    result.map_err(|_| format!("an app panicked: {}", panicked().unwrap_or_default()))
}

/// Remembers each panic. An engine goes on when an app panics, and only then is it known what the process answers.
fn remember_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let place = panic.location().map(|location| format!(" at {}:{}", location.file(), location.line()));
            let message = panic.payload_as_str().unwrap_or("no message");
            let told = format!("{message}{}", place.unwrap_or_default());
            *PANICKED.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
            usual(panic);
        }));
    });
}

/// What the last panic of this process said, and where it was.
pub(crate) fn panicked() -> Option<String> {
    PANICKED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Ends a measuring process with a message for the one that asked.
pub(crate) fn fail(message: &dyn std::fmt::Display) -> ! {
    eprintln!("{message}");
    std::process::exit(MISTAKEN)
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
