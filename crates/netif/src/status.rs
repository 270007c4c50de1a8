//! The status of a port, for any thread.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bellows_handover::{LogLimit, with_suppressed};
use bellows_wire::MacAddr;
use tracing::{info, warn};

use crate::QueueCounts;

/// The state of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It has not been opened yet.
    #[default]
    Starting,
    /// It works.
    Up,
    /// It is open, but the interface is down or has no carrier.
    Down,
    /// The interface does not exist, or nobody is on the other side: it is opened as soon as that changes.
    Waiting,
    /// It cannot be opened; this is tried again.
    Failed,
}

impl State {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Up => "up",
            State::Down => "down",
            State::Waiting => "waiting",
            State::Failed => "failed",
        }
    }
}

/// What is known about the kernel's interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its present name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: Option<MacAddr>,
    /// Its MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Its speed in Mbit/s, if the driver knows it.
    pub speed: Option<u32>,
    /// Its driver, or kind of device.
    pub driver: Option<String>,
    /// Packets that the kernel has dropped in receiving, since the interface was created.
    pub rx_dropped: u64,
    /// The same in sending.
    pub tx_dropped: u64,
    /// Errors in receiving.
    pub rx_errors: u64,
    /// Errors in sending.
    pub tx_errors: u64,
}

/// The status at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Its state.
    pub state: State,
    /// The interface, if there is one.
    pub link: Option<Link>,
    /// What was negotiated with the kernel or the other side, by name: modes, numbers of queues and the like.
    pub details: BTreeMap<&'static str, String>,
    /// Number of times that it was opened.
    pub opened: u64,
    /// What it waits for, or why it cannot be opened.
    pub waits: Option<String>,
    /// The last error, as text.
    pub last_error: Option<String>,
    /// What the present queues have counted, in order.
    pub queues: Vec<QueueCounts>,
}

/// The status of a port. The control thread and the engine write it, any thread can read it.
pub struct PortStatus {
    /// The name in log lines.
    name: String,
    state: Mutex<Contents>,
}

struct Contents {
    snapshot: Snapshot,
    lines: LogLimit,
    /// Why the engine has given the queues up.
    given_up: Option<String>,
}

impl PortStatus {
    /// The status of a port that logs under this name.
    pub fn new(name: String) -> PortStatus {
        let contents = Contents { snapshot: Snapshot::default(), lines: LogLimit::new(Instant::now()), given_up: None };
        PortStatus { name, state: Mutex::new(contents) }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present status.
    pub fn snapshot(&self) -> Snapshot {
        self.lock().snapshot.clone()
    }

    /// Changes the status.
    pub fn update(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.lock().snapshot);
    }

    /// Records the counts of the queues. Called by the engine, which does not wait: a reader at this moment gets the
    /// counts of the last time.
    pub fn note(&self, counts: impl Iterator<Item = QueueCounts>) {
        if let Ok(mut contents) = self.state.try_lock() {
            contents.snapshot.queues.clear();
            contents.snapshot.queues.extend(counts);
        }
    }

    /// Notes why the engine gives the queues up. Called by the engine before it does.
    pub fn gives_up(&self, why: String) {
        self.lock().given_up = Some(why);
    }

    /// Why the engine has given the queues up, if it has said so.
    pub(crate) fn take_given_up(&self) -> Option<String> {
        self.lock().given_up.take()
    }

    /// Logs a line, unless there were too many.
    pub fn say(&self, line: &str) {
        let mut contents = self.lock();
        if let Some(suppressed) = contents.lines.take(Instant::now()) {
            info!("{}: {}", self.name, with_suppressed(line, suppressed));
        }
    }

    /// Sets why the port does not work, and logs it if that has changed.
    pub(crate) fn fails(&self, state: State, why: String) {
        let mut contents = self.lock();
        let Contents { snapshot, lines, .. } = &mut *contents;
        snapshot.state = state;
        if snapshot.waits.as_ref() != Some(&why) {
            if let Some(suppressed) = lines.take(Instant::now()) {
                warn!("{}: {}", self.name, with_suppressed(&why, suppressed));
            }
            snapshot.waits = Some(why.clone());
        }
        snapshot.last_error = Some(why);
    }
}
