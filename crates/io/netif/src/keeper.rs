//! The control thread of a port: opens its queues, lends them to the engine, and opens them anew when they are gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bellows_handover::{Borrowed, ControlThread, Lender, Signal, Stopper, exchange, panic_message};
use bellows_packet::return_free_buffers;
use bellows_sys::wake::sleep_until_readable;
use tracing::error;

use crate::Queue;
use crate::status::{PortStatus, State};

/// Opens the queues of a port and watches what they depend on. All is called on the control thread.
pub trait PortSource: Send + 'static {
    /// The type of its queues.
    type Queue: Queue;

    /// Called first: enters another network namespace, opens what watches for changes.
    ///
    /// # Errors
    /// Why the port can never be opened.
    fn prepare(&mut self) -> Result<(), OpenError> {
        Ok(())
    }

    /// Opens the queues, at least one. May take its time. Sets the details of the status. Called again at once when a
    /// [check](PortSource::check) has asked for it, and otherwise after [`idle`](PortSource::idle).
    ///
    /// # Errors
    /// Why it cannot, and whether to wait for that.
    fn open(&mut self, status: &PortStatus) -> Result<Vec<Self::Queue>, OpenError>;

    /// What becomes readable when something may have changed.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Called while the queues are open, when a descriptor is readable and about once a second. Updates the status.
    /// Returns the reason if the queues must be opened anew.
    fn check(&mut self, status: &PortStatus) -> Option<String>;

    /// Called while there are no queues, at the same occasions, before they are opened again.
    fn idle(&mut self, status: &PortStatus) {
        let _ = status;
    }

    /// Called when the engine has given the queues back and they are dropped, and at the end: gives the interface back as
    /// it was.
    fn close(&mut self) {}
}

/// Why queues cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Something is missing that may come: the interface, or the other side.
    #[error("{0}")]
    Missing(String),
    /// Something else has what the port needs, perhaps only for a moment.
    #[error("{0}")]
    Busy(String),
    /// Anything else. The text says what to do about it.
    #[error("{0}")]
    Failed(String),
}

/// How a port is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// It does not matter if the interface or the other side is missing.
    pub may_be_missing: bool,
    /// Nothing is opened before [`Keeper::begin`], because another port may still have the interface.
    pub later: bool,
}

/// The longest time that the first attempt to open the queues may take.
const FIRST_ATTEMPT: Duration = Duration::from_secs(20);

/// How long something that is busy is waited for at the start.
const BUSY: Duration = Duration::from_secs(5);

/// Time between two checks, and two attempts to open.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time between attempts while something is busy.
const BUSY_INTERVAL: Duration = Duration::from_millis(50);

/// Time for the engine to give its queues back before the status says that it does not.
const PATIENCE: Duration = Duration::from_secs(2);

/// A port's control thread.
///
/// Dropping it ends the thread. It may be dropped before or after the engine's end of the port, which has the queues
/// until it is dropped or asked for them.
pub struct Keeper<Q> {
    stopper: Stopper<Vec<Q>>,
    thread: Option<ControlThread>,
    gate: Arc<Gate>,
    status: Arc<PortStatus>,
}

/// Holds the thread back until the run begins.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(open, |open| !*open).unwrap_or_else(PoisonError::into_inner));
    }
}

/// The engine's end of a port: its queues, while they are open.
pub type Queues<Q> = Borrowed<Vec<Q>>;

/// A port that has started: its control thread and the engine's end, or why its queues cannot be opened.
pub type Started<Q> = Result<(Keeper<Q>, Queues<Q>), OpenError>;

impl<Q: Queue> Keeper<Q> {
    /// Starts the thread of a port. Returns when the queues are open, or cannot be opened yet.
    ///
    /// # Errors
    /// Why they cannot be opened. System errors: out of threads or descriptors.
    pub fn start<S: PortSource<Queue = Q>>(name: &str, source: S, start: Start, status: Arc<PortStatus>) -> Started<Q> {
        status.holds_back();
        let system = |error: io::Error| OpenError::Failed(format!("cannot start the thread of a port: {error}"));
        let signal = Arc::new(Signal::new().map_err(system)?);
        let (lender, borrower, stopper) = exchange(1, Arc::clone(&signal)).map_err(system)?;
        let gate = Arc::new(Gate::default());
        if !start.later {
            gate.open();
        }
        let (first, result) = channel();
        let port =
            KeptPort { source, lender, signal, status: Arc::clone(&status), may_be_missing: start.may_be_missing };
        let held_back = Arc::clone(&gate);
        let work = move || {
            held_back.wait();
            port.run(&first);
        };
        let thread = ControlThread::start(name, work).map_err(system)?;
        // Dropped if the start fails: the thread ends then.
        let keeper = Keeper { stopper, thread: Some(thread), gate, status };
        let queues = Borrowed::new(borrower);
        if start.later {
            return Ok((keeper, queues));
        }
        match result.recv_timeout(FIRST_ATTEMPT) {
            Ok(Ok(())) => Ok((keeper, queues)),
            Ok(Err(error)) => Err(error),
            Err(RecvTimeoutError::Timeout) => {
                Err(OpenError::Failed(format!("it could not be opened within {} seconds", FIRST_ATTEMPT.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(OpenError::Failed("the thread that opens it has panicked; this is a bug in bellows".to_owned()))
            }
        }
    }

    /// The network of the port runs. Opens the queues if that was to happen [later](Start::later).
    pub fn begin(&self) {
        self.status.begins();
        self.gate.open();
    }

    /// Its status.
    pub fn status(&self) -> Arc<PortStatus> {
        Arc::clone(&self.status)
    }
}

impl<Q> Drop for Keeper<Q> {
    fn drop(&mut self) {
        self.stopper.end();
        self.gate.open();
        if self.thread.take().is_some_and(|thread| !thread.end()) {
            error!("the thread of a port hangs in a system call and is abandoned; it ends with the process");
        }
    }
}

/// The state of the thread.
struct KeptPort<S: PortSource> {
    source: S,
    lender: Lender<Vec<S::Queue>>,
    signal: Arc<Signal>,
    status: Arc<PortStatus>,
    may_be_missing: bool,
}

impl<S: PortSource> KeptPort<S> {
    fn run(mut self, first: &Sender<Result<(), OpenError>>) {
        if let Err(error) = self.source.prepare() {
            self.status.fails(State::Failed, error.to_string());
            let _ = first.send(Err(error));
            return;
        }
        match self.insist() {
            Ok(queues) => {
                // Before the run begins: the packets of its first breath find them.
                self.offer(queues);
                let _ = first.send(Ok(()));
                self.serve();
            }
            Err(error) => {
                let stays = self.may_be_missing && matches!(error, OpenError::Missing(_));
                self.status.fails(State::Waiting, error.to_string());
                let _ = first.send(if stays { Ok(()) } else { Err(error) });
                // The sender of the start ends the thread if it does not stay.
            }
        }
        while !self.signal.has_ended() {
            self.sleep(INTERVAL);
            self.source.idle(&self.status);
            if self.signal.has_ended() {
                break;
            }
            match self.try_to_open() {
                Ok(queues) => {
                    self.offer(queues);
                    self.serve();
                }
                Err(error) => self.fail(&error),
            }
        }
        // It may have changed the interface before it failed to open the queues.
        self.source.close();
    }

    fn fail(&self, error: &OpenError) {
        let state = match error {
            OpenError::Missing(_) => State::Waiting,
            OpenError::Busy(_) | OpenError::Failed(_) => State::Failed,
        };
        self.status.fails(state, error.to_string());
    }

    /// Opens the queues, and waits a while for something that is busy.
    fn insist(&mut self) -> Result<Vec<S::Queue>, OpenError> {
        let start = std::time::Instant::now();
        loop {
            match self.try_to_open() {
                Err(OpenError::Busy(_)) if start.elapsed() < BUSY && !self.signal.has_ended() => {
                    // What happens to the interface is looked at later.
                    let _ = sleep_until_readable(&[self.signal.as_fd()], Some(BUSY_INTERVAL));
                    self.signal.clear();
                }
                result => return result,
            }
        }
    }

    /// A panic counts as a failure: the port stays, and tries again.
    fn try_to_open(&mut self) -> Result<Vec<S::Queue>, OpenError> {
        let result = catch_unwind(AssertUnwindSafe(|| self.source.open(&self.status)));
        result.unwrap_or_else(|panic| {
            let message = panic_message(&*panic);
            Err(OpenError::Failed(format!("the control thread panicked: {message}; this is a bug in bellows")))
        })
    }

    /// Offers open queues to the engine.
    fn offer(&mut self, queues: Vec<S::Queue>) {
        self.status.opens();
        let _ = self.source.check(&self.status);
        self.lender.offer(0, queues);
    }

    /// Lends the queues that were offered, and those that are opened after a change, until there are none any more.
    fn serve(&mut self) {
        while self.lend() {
            match self.insist() {
                Ok(queues) => self.offer(queues),
                Err(error) => return self.fail(&error),
            }
        }
    }

    /// Lends the queues to the engine until they must be opened anew, or the thread must end. Returns whether to open
    /// them at once, because a check has asked for it.
    fn lend(&mut self) -> bool {
        let mut at_once = false;
        let why = loop {
            self.sleep(INTERVAL);
            if self.signal.has_ended() {
                break None;
            }
            if let Some((_, queues)) = self.lender.given_up() {
                drop(queues);
                let why = self.status.take_given_up();
                break Some(why.unwrap_or_else(|| "the interface or the other side is gone".to_owned()));
            }
            self.status.look_for_losses();
            if let Some(why) = self.source.check(&self.status) {
                at_once = true;
                break Some(why);
            }
        };
        if let Some(why) = why {
            self.status.fails(State::Waiting, why);
        }
        // The queues are closed here, and not by the engine, for which that takes too long.
        let status = Arc::clone(&self.status);
        drop(self.lender.recall(0, PATIENCE, || {
            let why = "the engine has not given the queues back: is it stopped, or busy elsewhere?";
            status.fails(State::Failed, why.to_owned());
        }));
        self.status.update(|snapshot| snapshot.queues.clear());
        self.source.close();
        at_once && !self.signal.has_ended()
    }

    /// Sleeps until the signal, something to check, or the time has passed.
    fn sleep(&self, time: Duration) {
        // Queues of AF_XDP take and free buffers here, which the engine needs.
        return_free_buffers();
        let mut descriptors = vec![self.signal.as_fd()];
        descriptors.extend(self.source.descriptors());
        // The only errors are a lack of memory, and then the next attempt comes at once.
        let _ = sleep_until_readable(&descriptors, Some(time));
        self.signal.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::thread;

    use bellows_sys::access::FileAccess;
    use bellows_testkit::scratch;

    use super::*;
    use crate::unix::{UnixConfig, UnixMode, UnixQueue, UnixSource};

    /// A source whose interface takes its time to answer.
    struct Slow(UnixSource);

    impl PortSource for Slow {
        type Queue = UnixQueue;

        fn open(&mut self, status: &PortStatus) -> Result<Vec<UnixQueue>, OpenError> {
            self.0.open(status)
        }

        fn check(&mut self, status: &PortStatus) -> Option<String> {
            thread::sleep(Duration::from_millis(50));
            self.0.check(status)
        }
    }

    #[test]
    fn a_port_that_has_started_loses_no_first_packet() {
        let folder = scratch();
        let _peer = UnixDatagram::bind(folder.path().join("peer")).unwrap();
        let mode = UnixMode::Dgram(folder.path().join("peer"), FileAccess::default());
        let source = Slow(UnixSource::new(UnixConfig { socket: folder.path().join("own"), mode }, false));
        let status = Arc::new(PortStatus::new("test".to_owned()));
        let (_keeper, mut queues) = Keeper::start("test", source, Start::default(), status).unwrap();
        queues.sync();
        assert!(queues.get().is_some(), "the queues are offered only after the start");
    }
}
