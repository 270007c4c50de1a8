//! Control threads: what they do may hang, and nobody waits for that for long.

use std::any::Any;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time for a thread to end. A thread that takes longer is abandoned.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The same, if another thread was abandoned just before: the waits for many threads that hang do not add up.
const END_WITHIN_NEXT: Duration = Duration::from_millis(100);

/// When a thread was last abandoned.
static LAST_ABANDONED: Mutex<Option<Instant>> = Mutex::new(None);

/// The owner's handle of a control thread.
pub struct ControlThread {
    thread: JoinHandle<()>,
    /// Closed when the thread has finished. The mutex lets several owners share the handle; only the last one uses it.
    done: Mutex<Receiver<()>>,
}

impl ControlThread {
    /// Starts a thread.
    ///
    /// # Errors
    /// System errors: out of threads.
    pub fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<ControlThread> {
        let (working, done): (Sender<()>, _) = channel();
        let work = move || {
            let _working = working;
            work();
        };
        let thread = thread::Builder::new().name(name.into()).spawn(work)?;
        Ok(ControlThread { thread, done: Mutex::new(done) })
    }

    /// Waits for a thread that was told to end; true if it has ended. A thread that hangs because of its peer is
    /// abandoned after some seconds: it keeps its resources.
    pub fn end(self) -> bool {
        let mut left = LAST_ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
        let just_now = left.is_some_and(|left| left.elapsed() < 5 * END_WITHIN);
        let limit = if just_now { END_WITHIN_NEXT } else { END_WITHIN };
        match self.done.into_inner().unwrap_or_else(PoisonError::into_inner).recv_timeout(limit) {
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

/// The message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
