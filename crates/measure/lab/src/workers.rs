//! Workers: fresh processes that measure, and their protocol.
//!
//! Every benchmark measures in fresh processes. All workers speak one protocol in lines of JSON: requests on the
//! worker's standard input, answers on its standard output.
//!
//! | request | answer |
//! |---|---|
//! | the task, in the benchmark's own format | `{"machine": …, "outcome": {"Ok": …}}` with the result, or `null` if turns follow; `{"Err": "why"}` if the worker cannot take part and ends |
//! | `"turn"`, any number of times | a [`Turn`] |
//! | `"advance"`, between two stages | `null` |
//! | end of standard input | `{"Ok": null}`, or `{"Err": "why"}` if the whole measurement is invalid; then the worker ends |
//!
//! A worker that does its task at once ([`answer`]) puts all results into its first answer. A worker that takes turns
//! ([`take_part`]) lays out what it measures, and then waits for requests. The worker's standard error is shown; if it
//! ends with a code other than 0, that text is the reason for the failure.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::JoinHandle;

use bellows_sys::{clock, cpu};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::audience::Observer;
use crate::machine::Machine;
use crate::slices::Turn;

/// Why a worker failed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The worker could not be started.
    #[error("cannot start {0} for a measurement: {1}")]
    Start(PathBuf, std::io::Error),
    /// The worker failed.
    #[error("a measuring process failed: {1} ({0})")]
    Failed(ExitStatus, String),
    /// The worker's answer is invalid.
    #[error("a measuring process sent an invalid answer: {0}; is it another version of this program?")]
    Answer(serde_json::Error),
    /// The worker ended successfully without an answer.
    #[error("a measuring process ended without an answer; is it another version of this program?")]
    Silent,
    /// The benchmark was interrupted before there was anything to report.
    #[error("interrupted before anything was measured")]
    Interrupted,
}

impl ProcessError {
    /// Whether the error is the caller's mistake, which the worker has explained, not an internal failure.
    pub fn is_mistake(&self) -> bool {
        matches!(self, ProcessError::Failed(status, _) if status.code() == Some(EXIT_MISTAKE))
    }
}

/// The exit code of a worker that has explained why it cannot measure.
const EXIT_MISTAKE: i32 = 2;

/// A request after the task.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WorkerRequest {
    Turn,
    Advance,
}

/// The answer to a task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply<A> {
    /// The machine. A program other than Bellows does not report it.
    pub(crate) machine: Option<Machine>,
    /// The result, or why the worker cannot take part.
    pub(crate) outcome: Result<A, String>,
}

/// The benchmark's side of a worker. Dropping it kills the worker.
pub(crate) struct Worker {
    child: Child,
    /// Closed to end the worker.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Collects the worker's standard error.
    stderr: Option<JoinHandle<String>>,
}

/// How often to check for an interrupt.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

impl Worker {
    /// Starts this program with some arguments, and sends the task.
    pub(crate) fn start(arguments: &[&str], task: &impl Serialize) -> Result<Worker, ProcessError> {
        Worker::run(Command::new(this_program()?).args(arguments), task)
    }

    /// Starts a command that speaks the protocol, and sends the task.
    ///
    /// The worker has its own process group, so that an interrupt at the terminal reaches only the benchmark.
    pub(crate) fn run(command: &mut Command, task: &impl Serialize) -> Result<Worker, ProcessError> {
        let program = PathBuf::from(command.get_program());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = piped.process_group(0).spawn();
        let mut child = spawned.map_err(|error| ProcessError::Start(program, error))?;
        let (requests, answers, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(answers), Some(errors)) = (answers, errors) else { unreachable!("both are pipes") };
        let mut worker =
            Worker { child, requests, answers: BufReader::new(answers), stderr: Some(read_in_thread(errors)) };
        worker.send(task);
        Ok(worker)
    }

    /// Waits for the answer to the task, or an interrupt.
    pub(crate) fn reply<A: DeserializeOwned>(&mut self, observer: &dyn Observer) -> Result<Reply<A>, ProcessError> {
        loop {
            let answers = self.answers.get_ref();
            let came = poll(&mut [PollFd::new(answers, PollFlags::IN)], Some(&POLL_INTERVAL)).unwrap_or(0);
            if came > 0 {
                return self.answer();
            }
            if observer.should_stop() {
                return Err(ProcessError::Interrupted);
            }
        }
    }

    /// Requests a turn, and waits for its end.
    pub(crate) fn turn(&mut self) -> Result<Turn, ProcessError> {
        self.begin_turn();
        self.end_turn()
    }

    /// Requests a turn. Several workers may take one at the same time.
    pub(crate) fn begin_turn(&mut self) {
        self.send(&WorkerRequest::Turn);
    }

    /// Waits for the end of the turn.
    pub(crate) fn end_turn(&mut self) -> Result<Turn, ProcessError> {
        self.answer()
    }

    /// Requests the work between two stages.
    pub(crate) fn advance(&mut self) -> Result<(), ProcessError> {
        self.send(&WorkerRequest::Advance);
        self.answer()
    }

    /// Ends the worker. Returns its standard error.
    pub(crate) fn finish(mut self) -> Result<String, ProcessError> {
        self.requests = None;
        let ended: Result<(), String> = self.answer()?;
        match (self.child.wait(), ended) {
            (Ok(status), Ok(())) if status.success() => Ok(self.stderr_text()),
            (Ok(status), ended) => {
                let said = self.stderr_text();
                Err(ProcessError::Failed(status, ended.err().unwrap_or(said)))
            }
            (Err(error), _) => Err(ProcessError::Start("a measuring process".into(), error)),
        }
    }

    /// Sends a line. If the worker has ended, the missing answer shows it.
    fn send(&mut self, request: &impl Serialize) {
        if let Some(requests) = &mut self.requests {
            let _ = write_line(requests, request);
        }
    }

    fn answer<A: DeserializeOwned>(&mut self) -> Result<A, ProcessError> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(length) if length > 0 => serde_json::from_str(&line).map_err(ProcessError::Answer),
            _ => Err(self.failure()),
        }
    }

    /// Why there is no answer.
    fn failure(&mut self) -> ProcessError {
        self.requests = None;
        match self.child.wait() {
            Ok(status) if status.success() => ProcessError::Silent,
            Ok(status) => ProcessError::Failed(status, self.stderr_text()),
            Err(error) => ProcessError::Start("a measuring process".into(), error),
        }
    }

    fn stderr_text(&mut self) -> String {
        self.stderr.take().and_then(|stderr| stderr.join().ok()).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of this program's executable.
pub(crate) fn this_program() -> Result<PathBuf, ProcessError> {
    std::env::current_exe().map_err(|error| ProcessError::Start(PathBuf::from("this program"), error))
}

/// Reads to the end on a new thread.
fn read_in_thread(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn write_line(to: &mut impl Write, what: &impl Serialize) -> Result<(), std::io::Error> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// One side of a comparison, which a worker measures in turns.
pub trait Contender {
    /// Takes a turn.
    fn turn(&mut self) -> Turn;

    /// Does the work between two stages.
    fn advance(&mut self) {}

    /// Ends the measurement.
    ///
    /// # Errors
    /// Why the whole measurement is invalid.
    fn finish(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

/// Runs a worker that does its task at once: reads the task, does it, and writes the answer.
///
/// # Errors
/// When the task cannot be read or the answer cannot be written.
pub fn answer<T: DeserializeOwned, A: Serialize>(work: impl FnOnce(T) -> A) -> Result<(), std::io::Error> {
    struct Done;
    impl Contender for Done {
        fn turn(&mut self) -> Turn {
            Turn::default()
        }
    }
    serve(|task| (Ok(work(task)), Box::new(Done) as Box<dyn Contender>))
}

/// Runs a worker that takes turns: reads the task, lays out the measurement, and takes a turn on each request, until
/// standard input ends.
///
/// # Errors
/// When the task cannot be read or an answer cannot be written.
pub fn take_part<T: DeserializeOwned>(
    lay_out: impl FnOnce(T) -> Result<Box<dyn Contender>, String>,
) -> Result<(), std::io::Error> {
    struct RefusedTask;
    impl Contender for RefusedTask {
        fn turn(&mut self) -> Turn {
            Turn::default()
        }
    }
    serve(|task| match lay_out(task) {
        Ok(side) => (Ok(()), side),
        Err(why) => (Err(why), Box::new(RefusedTask)),
    })
}

/// The worker's side of the protocol.
fn serve<T: DeserializeOwned, A: Serialize>(
    begin: impl FnOnce(T) -> (Result<A, String>, Box<dyn Contender>),
) -> Result<(), std::io::Error> {
    let mut lines = std::io::stdin().lock().lines();
    let Some(task) = lines.next() else { return Ok(()) };
    let mut answers = std::io::stdout().lock();
    let (outcome, mut side) = begin(serde_json::from_str(&task?)?);
    write_line(&mut answers, &Reply { machine: Some(Machine::here()), outcome })?;
    for line in lines {
        match serde_json::from_str(&line?)? {
            WorkerRequest::Turn => write_line(&mut answers, &side.turn())?,
            WorkerRequest::Advance => {
                side.advance();
                write_line(&mut answers, &())?;
            }
        }
    }
    write_line(&mut answers, &side.finish())
}

/// Prepares a worker: pins its thread to a processor (by default the last one that it may use), calibrates the clock,
/// and records panics for [`panicked`].
pub(crate) fn settle(processor: Option<usize>) {
    remember_panics();
    if let Some(processor) = processor.or_else(|| cpu::allowed().last().copied())
        && let Err(error) = cpu::pin_to(processor)
    {
        fail(&format!("processor {processor}: {error}"));
    }
    clock::calibrate();
}

/// Prepares a worker as [`settle`] does. Returns the other processors that the process may use.
pub(crate) fn settle_beside_others(processor: Option<usize>) -> Vec<usize> {
    let all = cpu::allowed();
    settle(processor);
    let own = cpu::allowed();
    all.into_iter().filter(|cpu| !own.contains(cpu)).collect()
}

/// The message and place of the last panic.
static PANICKED: Mutex<Option<String>> = Mutex::new(None);

/// Does work in which an app may panic, such as creating the app.
///
/// # Errors
/// The message and place of the panic.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    remember_panics();
    let result = std::panic::catch_unwind(AssertUnwindSafe(work));
    result.map_err(|_| format!("an app panicked: {}", panicked().unwrap_or_default()))
}

/// Records each panic. An engine continues when an app panics, so the worker reports the panic later.
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

/// The message and place of this process's last panic.
pub(crate) fn panicked() -> Option<String> {
    PANICKED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Ends a worker with an error message for the user.
pub(crate) fn fail(message: &dyn std::fmt::Display) -> ! {
    eprintln!("{message}");
    std::process::exit(EXIT_MISTAKE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell script as a worker, with the task 7.
    fn worker(script: &str) -> Worker {
        Worker::run(Command::new("sh").args(["-c", script]), &7).unwrap()
    }

    #[test]
    fn a_task_turns_and_the_end_are_each_answered_by_a_line() {
        let mut worker = worker(
            r#"read task; echo '{"machine":null,"outcome":{"Ok":'"$task"'}}'
            while read order; do
                case "$order" in
                    '"turn"') echo '{"figures":[2.5],"took":10,"lost":0}';;
                    '"advance"') echo null;;
                esac
            done
            echo "that was all" >&2; echo '{"Ok":null}'"#,
        );
        let Reply { machine, outcome } = worker.reply::<u32>(&()).unwrap();
        assert_eq!((machine, outcome), (None, Ok(7)));
        for _ in 0..2 {
            assert_eq!(worker.turn().unwrap(), Turn { figures: vec![2.5], took: 10.0, lost: 0.0 });
            worker.advance().unwrap();
        }
        assert_eq!(worker.finish().unwrap(), "that was all");
    }

    #[test]
    fn invalid_answers_are_reported() {
        let reply = |script: &str| worker(script).reply::<u32>(&()).map(|_| ()).unwrap_err();
        let failed = reply("read task; echo 'no such processor' >&2; exit 2");
        assert!(failed.is_mistake() && failed.to_string().contains("no such processor"), "{failed}");
        let failed = reply("read task; echo 'out of order' >&2; exit 3");
        assert!(!failed.is_mistake() && failed.to_string().contains("out of order"), "{failed}");
        assert!(matches!(reply("read task"), ProcessError::Silent));
        let other = reply("read task; echo '{\"machine\":null,\"refused\":null}'");
        assert!(other.to_string().ends_with("is it another version of this program?"), "{other}");
    }

    #[test]
    fn a_worker_with_invalid_figures_has_failed() {
        let mut worker = worker(
            r#"read task; echo '{"machine":null,"outcome":{"Ok":1}}'; cat > /dev/null; echo '{"Err":"packets are missing"}'"#,
        );
        worker.reply::<u32>(&()).unwrap();
        let failed = worker.finish().unwrap_err();
        assert!(matches!(&failed, ProcessError::Failed(_, why) if why == "packets are missing"), "{failed:?}");
    }

    #[test]
    fn an_interrupt_ends_the_wait() {
        struct Stopped;
        impl Observer for Stopped {
            fn progress(&mut self, _: usize, _: usize) {}
            fn show(&mut self, _: &str) {}
            fn worker_stderr(&mut self, _: &str) {}
            fn should_stop(&self) -> bool {
                true
            }
        }
        let mut slow = worker("exec sleep 60");
        assert!(matches!(slow.reply::<u32>(&Stopped), Err(ProcessError::Interrupted)));
    }
}
