//! The ports of a device: which pairs of queues they have, and what each pair needs.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io, iter};

use bellows_ipc::notify::{Notifier, Notifiers};

/// The ports of a device, for its control thread.
pub(super) struct Ports {
    /// Number of ports that have each pair: during a reload it may be two.
    users: Mutex<Vec<u32>>,
    /// One for the log, then four for each pair: for the calls of its two rings, and for their errors.
    notifiers: Notifiers,
    /// Whether all ports have begun that were there at the start, so that a driver may connect.
    begun: AtomicBool,
}

impl Ports {
    /// A device without ports.
    ///
    /// # Errors
    /// Those of [`Notifiers::new`].
    pub(super) fn new() -> io::Result<Ports> {
        let notifiers = Notifiers::new(0, 1)?;
        Ok(Ports { users: Mutex::new(Vec::new()), notifiers, begun: AtomicBool::new(false) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a port with these pairs. Not for the control thread, which may not create what this creates.
    pub(super) fn add(&self, pairs: &[u16]) {
        let mut users = self.lock();
        let count = pairs.iter().map(|pair| usize::from(*pair) + 1).max().unwrap_or(0);
        let more = count.saturating_sub(users.len());
        iter::repeat_n((), more).for_each(|()| self.notifiers.grow(2, 2));
        users.extend(iter::repeat_n(0, more));
        pairs.iter().for_each(|pair| users[usize::from(*pair)] += 1);
    }

    /// Removes a port with these pairs.
    pub(super) fn remove(&self, pairs: &[u16]) {
        let mut users = self.lock();
        pairs.iter().for_each(|pair| users[usize::from(*pair)] -= 1);
    }

    /// Number of pairs of the device: up to the last one that a port has.
    pub(super) fn pairs(&self) -> usize {
        self.lock().iter().rposition(|users| *users > 0).map_or(0, |last| last + 1)
    }

    /// Lets drivers connect. The control thread must be woken.
    pub(super) fn begin(&self) {
        self.begun.store(true, SeqCst);
    }

    /// Whether drivers may connect.
    pub(super) fn have_begun(&self) -> bool {
        self.begun.load(SeqCst)
    }

    /// All notifiers.
    pub(super) fn notifiers(&self) -> Notifiers {
        self.notifiers.clone()
    }

    /// Notifies the driver of used buffers.
    pub(super) fn call(&self, queue: usize) -> Notifier {
        self.notifiers.get(1 + queue / 2 * 4 + queue % 2)
    }

    /// Notifies the driver's process that a ring was stopped.
    pub(super) fn error_call(&self, queue: usize) -> Notifier {
        self.notifiers.get(1 + queue / 2 * 4 + 2 + queue % 2)
    }

    /// Notifies the driver's process of changes in the log.
    pub(super) fn log_call(&self) -> Notifier {
        self.notifiers.get(0)
    }
}
