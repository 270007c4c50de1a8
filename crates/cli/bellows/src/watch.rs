//! The shared part of the commands that watch packets.

use std::io::{self, IsTerminal, stderr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use bellows_inspect::control::Hangup;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::command_error::CommandError;
use crate::terminal;

/// A flag that something has happened.
#[derive(Clone, Default)]
pub struct EventFlag(Arc<AtomicBool>);

impl EventFlag {
    /// Whether it has happened.
    pub fn get(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Starts to queue SIGINT and SIGTERM.
///
/// # Errors
/// Those of installing a signal handler.
pub fn catch_signals() -> Result<Signals, CommandError> {
    Signals::new([SIGINT, SIGTERM]).map_err(|error| CommandError::Failed(format!("signals cannot be handled: {error}")))
}

/// Makes a signal end a stream, and a second one the process.
pub fn on_signal(mut signals: Signals, hangup: Hangup) -> EventFlag {
    let interrupted = EventFlag::default();
    let flag = interrupted.clone();
    thread::spawn(move || {
        for signal in signals.forever() {
            if flag.0.swap(true, Relaxed) {
                std::process::exit(128 + signal);
            }
            hangup.now();
        }
    });
    interrupted
}

/// Makes a stream end when the reader of its pipe is gone.
pub fn on_broken_pipe(pipe: OwnedFd, hangup: Hangup) -> EventFlag {
    let broken = EventFlag::default();
    let flag = broken.clone();
    thread::spawn(move || {
        wait_until_unread(&pipe);
        flag.0.store(true, Relaxed);
        hangup.now();
    });
    broken
}

/// Makes the process end when the reader of its output pipe is gone, as with `| head`. For commands that only report.
pub fn exit_when_unread() {
    if terminal::shows_stdout() {
        return;
    }
    let Ok(stdout) = io::stdout().as_fd().try_clone_to_owned() else { return };
    thread::spawn(move || {
        wait_until_unread(&stdout);
        std::process::exit(0);
    });
}

/// Waits until the other end of a pipe or socket is closed. A file has none.
fn wait_until_unread(pipe: &OwnedFd) {
    // No event is requested: POLLERR and POLLHUP are always reported.
    let none = PollFlags::empty();
    while poll(&mut [PollFd::new(pipe, none)], None).is_err_and(|error| error == Errno::INTR) {}
}

/// A line at the bottom of the terminal that shows progress, removed when dropped.
pub struct Status {
    shown: bool,
    next: Instant,
}

/// The time between two updates.
const UPDATE_INTERVAL: Duration = Duration::from_millis(100);

impl Status {
    /// A line that is shown only if a person is looking.
    pub fn on_terminal() -> Status {
        Status { shown: stderr().is_terminal(), next: Instant::now() }
    }

    /// A line that is not shown.
    pub fn hidden() -> Status {
        Status { shown: false, next: Instant::now() }
    }

    /// Updates the line if enough time has passed.
    pub fn update(&mut self, line: impl FnOnce() -> String) {
        if self.shown && Instant::now() >= self.next {
            terminal::show_status(&line());
            self.next = Instant::now() + UPDATE_INTERVAL;
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        if self.shown {
            terminal::clear_status();
        }
    }
}
