//! The common part of the control threads of both sides: confinement, shutdown, and the rate of connections.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bellows_sys::confine::{Denials, control_thread};
use bellows_sys::{mapping, socket};
use tracing::error;

use super::endpoint::FIRST_PAUSE;

/// Time for a thread to end. A thread that takes longer is abandoned.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The same, if another thread was abandoned just before: the waits for many threads that hang do not add up.
const END_WITHIN_NEXT: Duration = Duration::from_millis(100);

/// When a thread was last abandoned.
static LAST_ABANDONED: Mutex<Option<Instant>> = Mutex::new(None);

/// Whether a control thread is limited to the system calls that the protocol needs.
#[derive(Clone, Debug, Default)]
pub enum Confinement {
    /// It has not started yet.
    #[default]
    Starting,
    /// It is confined; the denied calls are counted here.
    Confined(Arc<Denials>),
    /// It is not, for this reason.
    Not(String),
}

impl Confinement {
    /// Confines this thread, if `wanted`.
    pub(super) fn begin(wanted: bool) -> Confinement {
        if !wanted {
            return Confinement::Not("the key `confine` is false".to_owned());
        }
        control_thread().map_or_else(Confinement::Not, Confinement::Confined)
    }

    /// The number of denials of each call, by name.
    pub fn denied(&self) -> BTreeMap<String, u64> {
        if let Confinement::Confined(denials) = self { denials.by_name() } else { BTreeMap::new() }
    }

    /// The log line, if more was denied than `told`; and the number of denials.
    pub(super) fn news(&self, told: u64) -> Option<(String, u64)> {
        let Confinement::Confined(denials) = self else { return None };
        let total = denials.total();
        if total == told {
            return None;
        }
        let calls: Vec<String> = denials.by_name().iter().map(|(call, times)| format!("{call} {times}")).collect();
        Some((
            format!("system calls denied to the control thread, which does not need them: {}", calls.join(", ")),
            total,
        ))
    }
}

/// The owner's handle of a control thread.
pub(super) struct ControlThread {
    thread: JoinHandle<()>,
    /// Closed when the thread has finished.
    done: Receiver<()>,
}

impl ControlThread {
    /// Starts a thread. Prepares what the thread needs and cannot get once it is confined.
    ///
    /// # Errors
    /// System errors: out of threads.
    pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<ControlThread> {
        mapping::prepare()?;
        // Without /proc, the first descriptor of an event is refused with the reason.
        let _ = socket::prepare();
        let (working, done): (Sender<()>, _) = channel();
        let work = move || {
            let _working = working;
            work();
        };
        let thread = thread::Builder::new().name(name.into()).spawn(work)?;
        Ok(ControlThread { thread, done })
    }

    /// Waits for a thread that was told to end; true if it has ended. A thread that hangs because of its peer is
    /// abandoned after some seconds: it keeps its resources.
    pub(super) fn end(self) -> bool {
        let mut left = LAST_ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
        let just_now = left.is_some_and(|left| left.elapsed() < 5 * END_WITHIN);
        let limit = if just_now { END_WITHIN_NEXT } else { END_WITHIN };
        match self.done.recv_timeout(limit) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                // Only the stack remains to be freed. A thread that has panicked has nothing left to end either.
                let _ = self.thread.join();
                true
            }
            Err(RecvTimeoutError::Timeout) => {
                *left = Some(Instant::now());
                false
            }
        }
    }
}

/// Logs that a thread was abandoned.
pub(super) fn abandoned(socket: &Path) {
    error!(
        "{}: the control thread hangs in a system call and is abandoned: something that the peer has sent, a \
         descriptor or memory, blocks it; it ends with the process",
        socket.display()
    );
}

/// The message of a panic.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// The delay before the next connection: connections that end at once come again at once.
#[derive(Debug)]
pub(super) struct Pace {
    pause: Duration,
    longest: Duration,
}

/// A connection that has lasted this long was a session, not an attempt.
const SESSION: Duration = Duration::from_secs(1);

impl Pace {
    pub(super) fn new(longest: Duration) -> Pace {
        Pace { pause: Duration::ZERO, longest }
    }

    /// The delay after a connection that has lasted for `lasted`.
    pub(super) fn after(&mut self, lasted: Duration) -> Duration {
        self.pause = match lasted < SESSION {
            true => (2 * self.pause).max(FIRST_PAUSE).min(self.longest),
            false => Duration::ZERO,
        };
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_connections_are_taken_ever_more_slowly_and_long_ones_at_once() {
        let mut pace = Pace::new(Duration::from_secs(1));
        let mut milliseconds = |lasted: u64| pace.after(Duration::from_millis(lasted)).as_millis();
        let pauses: Vec<u128> = (0..8).map(|_| milliseconds(5)).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!((milliseconds(1000), milliseconds(999)), (0, 20));
    }

    #[test]
    fn threads_that_hang_are_left_and_do_not_add_up() {
        let start = Instant::now();
        let threads =
            (0..20).map(|_| ControlThread::start("hangs", || thread::sleep(Duration::from_secs(30))).unwrap());
        let threads: Vec<_> = threads.collect();
        let good = ControlThread::start("ends", || ()).unwrap();
        assert!(threads.into_iter().all(|thread| !thread.end()));
        assert!(good.end());
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    }

    #[test]
    fn panics_have_words() {
        let caught = |panic: fn()| panic_message(&*std::panic::catch_unwind(panic).unwrap_err());
        assert_eq!(caught(|| std::panic::resume_unwind(Box::new("plain"))), "plain");
        assert_eq!(caught(|| std::panic::resume_unwind(Box::new("made".to_owned()))), "made");
        assert_eq!(caught(|| std::panic::resume_unwind(Box::new(7))), "no message");
    }
}
