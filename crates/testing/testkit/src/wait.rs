//! Waiting with a deadline, and work in the background that ends with its test.

use std::io;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::soak::is_soaking;

/// Longer than any condition of a test takes on a slow and busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than any program of a test runs on a slow and busy machine, and of a [soak](crate::soak).
const LIFE: Duration = Duration::from_secs(900);
const LIFE_IN_SOAK: Duration = Duration::from_secs(7_200);

/// Waits until a condition holds, checking a hundred times a second.
///
/// # Panics
///
/// With `what`, if it does not hold within [`PATIENCE`].
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    within(PATIENCE, what, is_so);
}

/// Like [`eventually`], with a given patience.
pub fn within(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {patience:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a check finds no fault any more.
///
/// # Panics
///
/// With `what` and the faults that remain, if there are any after [`PATIENCE`].
#[track_caller]
pub fn eventually_without_faults(what: &str, mut faults: impl FnMut() -> String) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let faults = faults();
        if faults.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: after {PATIENCE:?} there remain:\n{faults}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A limit for a loop that must end by itself, or that waits without the sleep of [`eventually`]. Check it in each
/// round.
pub struct Deadline {
    what: &'static str,
    at: Instant,
}

impl Deadline {
    /// Starts the time of [`PATIENCE`].
    pub fn new(what: &'static str) -> Deadline {
        Deadline { what, at: Instant::now() + PATIENCE }
    }

    /// Lets a loop go on.
    ///
    /// # Panics
    ///
    /// If the time is over.
    #[track_caller]
    pub fn check(&self) {
        assert!(Instant::now() < self.at, "{}: not within {PATIENCE:?}", self.what);
    }
}

/// Repeats `work` on a separate thread while `during` runs, and always ends it: a test that panics must fail, and not
/// wait for a thread that nobody stops.
///
/// # Panics
///
/// If one of the two does.
pub fn meanwhile<T>(mut work: impl FnMut() + Send, during: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Defer(|| is_over.store(true, Relaxed));
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                work();
            }
        });
        during()
    })
}

/// Runs a function when it is dropped, even by a panic: for example, to release a waiting thread before its scope joins
/// it.
pub struct Defer<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for Defer<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Kills a program that takes too long, so that a test that waits for its end or its output fails instead of waiting
/// for ever. Dropping it leaves the program alone.
pub struct Watchdog(#[expect(dead_code, reason = "dropping it ends the thread")] Sender<()>);

impl Watchdog {
    /// Watches a program for at most a quarter of an hour, or two hours in a [soak](crate::soak).
    pub fn new(child: &Child) -> Watchdog {
        Watchdog::after(if is_soaking() { LIFE_IN_SOAK } else { LIFE }, child)
    }

    /// The same for another time.
    pub fn after(life: Duration, child: &Child) -> Watchdog {
        // Its number may be another program's by then; this identifies the program itself.
        let program = pidfd_open(Pid::from_child(child), PidfdFlags::empty());
        let program = program.unwrap_or_else(|error| panic!("process {} cannot be watched: {error}", child.id()));
        let (watchdog, dropped) = mpsc::channel();
        let id = child.id();
        thread::spawn(move || {
            if dropped.recv_timeout(life) == Err(RecvTimeoutError::Timeout) {
                eprintln!("process {id} has run for {life:?} and is killed");
                let _ = pidfd_send_signal(&program, Signal::KILL);
            }
        });
        Watchdog(watchdog)
    }
}

/// Runs a command to its end as [`Command::output`] does, under a [`Watchdog`].
///
/// # Errors
///
/// Those of [`Command::output`].
pub fn output(command: &mut Command) -> io::Result<Output> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let _watchdog = Watchdog::new(&child);
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// The message of a panic.
    fn panic_of(work: impl FnOnce()) -> String {
        let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("it panics");
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap()
    }

    #[test]
    fn waiting_ends_with_the_condition_or_a_message() {
        let mut looks = 0;
        within(PATIENCE, "three looks", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
        let start = Instant::now();
        let said = panic_of(|| within(Duration::from_millis(30), "the moon", || false));
        assert_eq!(said, "the moon: not within 30ms");
        assert!(start.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn faults_are_checked_until_there_are_none() {
        let mut faults = vec!["one", "two"];
        eventually_without_faults("a check", || faults.pop().unwrap_or_default().to_owned());
        assert!(faults.is_empty());
    }

    #[test]
    fn a_loop_whose_time_is_over_fails() {
        Deadline::new("a moment").check();
        let over = Deadline { what: "the end", at: Instant::now() };
        assert_eq!(panic_of(|| over.check()), "the end: not within 60s");
    }

    #[test]
    fn background_work_ends_with_its_main_task() {
        let rounds = AtomicUsize::new(0);
        let work = || {
            rounds.fetch_add(1, Relaxed);
        };
        let result = meanwhile(work, || {
            eventually("rounds", || rounds.load(Relaxed) > 100);
            7
        });
        assert_eq!(result, 7);
        // Without a guard this would wait for ever.
        assert_eq!(panic_of(|| meanwhile(work, || panic!("the test fails"))), "the test fails");
        let ended = rounds.load(Relaxed);
        thread::sleep(Duration::from_millis(5));
        assert_eq!(rounds.load(Relaxed), ended);
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_one_that_ends_is_not() {
        let start = Instant::now();
        let mut hung = Command::new("sleep").arg("1000").spawn().unwrap();
        let watchdog = Watchdog::after(Duration::from_millis(50), &hung);
        assert_eq!(hung.wait().unwrap().code(), None, "a signal ended it");
        assert!(start.elapsed() < PATIENCE);
        drop(watchdog);
        let mut child = Command::new("sleep").arg("0.3").spawn().unwrap();
        drop(Watchdog::after(Duration::from_millis(100), &child));
        assert!(child.wait().unwrap().success(), "nobody watched any more");
        let output = output(Command::new("sh").args(["-c", "echo one; echo two >&2"])).unwrap();
        assert_eq!((output.stdout, output.stderr), (b"one\n".to_vec(), b"two\n".to_vec()));
    }

    #[test]
    fn work_that_panics_fails_the_test() {
        let has_begun = AtomicBool::new(false);
        let work = || {
            has_begun.store(true, Relaxed);
            panic!("the work fails");
        };
        let during = || eventually("a round", || has_begun.load(Relaxed));
        assert!(catch_unwind(AssertUnwindSafe(|| meanwhile(work, during))).is_err());
    }
}
