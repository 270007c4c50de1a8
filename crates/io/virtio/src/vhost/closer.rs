//! Closes untrusted descriptors.
//!
//! Closing a file may block for as long as its file system likes: FUSE asks the process behind it and waits for the
//! answer; a TCP socket may wait until its data are sent. So a separate thread closes descriptors, and nobody waits for
//! it. If it hangs, the number of waiting descriptors is bounded: the device accepts no connection until there is room
//! again.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Maximum number of descriptors that wait to be closed before no more are accepted. Those of one message, and its
/// connection, may come in addition.
pub(super) const MAX_UNCLOSED: usize = 64;

/// A handle of the closing thread. The thread ends after the last clone of the handle is dropped, when it has closed
/// everything.
#[derive(Clone)]
pub(super) struct Closer {
    sender: Sender<OwnedFd>,
    /// Number of descriptors that wait, including the one that is being closed.
    unclosed: Arc<AtomicUsize>,
}

impl Closer {
    /// Starts the thread. Must be called by a thread that is not confined.
    ///
    /// # Errors
    /// System errors: out of threads.
    pub(super) fn start() -> io::Result<Closer> {
        let (sender, descriptors) = channel();
        let unclosed = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&unclosed);
        thread::Builder::new().name("vhost-close".into()).spawn(move || close_all(&descriptors, &left))?;
        Ok(Closer { sender, unclosed })
    }

    /// Closes a descriptor on the thread. Never waits.
    pub(super) fn close(&self, descriptor: impl Into<OwnedFd>) {
        self.unclosed.fetch_add(1, Relaxed);
        // The thread ends only when there is no sender left.
        let _ = self.sender.send(descriptor.into());
    }

    /// Number of descriptors that wait to be closed.
    pub(super) fn unclosed(&self) -> usize {
        self.unclosed.load(Relaxed)
    }

    /// A text that says why no more are accepted.
    pub(super) fn explain(&self) -> String {
        let unclosed = self.unclosed();
        format!(
            "{unclosed} descriptors that a peer has sent are not closed yet, because closing one of them blocks; no connection is accepted"
        )
    }

    /// Whether no more descriptors are accepted.
    pub(super) fn is_full(&self) -> bool {
        self.unclosed() >= MAX_UNCLOSED
    }
}

fn close_all(descriptors: &Receiver<OwnedFd>, left: &AtomicUsize) {
    for descriptor in descriptors {
        drop(descriptor);
        left.fetch_sub(1, Relaxed);
    }
}

/// A descriptor from the other side. It can be anything, so the [`Closer`] closes it.
///
/// The same is done with the socket of a connection: closing it also closes the descriptors that wait in it.
pub(super) struct UntrustedFd<T: Into<OwnedFd> = File> {
    /// Present as long as `closer` is.
    descriptor: ManuallyDrop<T>,
    closer: Option<Closer>,
}

impl<T: Into<OwnedFd>> UntrustedFd<T> {
    pub(super) fn new(descriptor: T, closer: &Closer) -> UntrustedFd<T> {
        UntrustedFd { descriptor: ManuallyDrop::new(descriptor), closer: Some(closer.clone()) }
    }

    /// The descriptor itself, once it is known that closing it does not block.
    pub(super) fn into_known(mut self) -> T {
        self.closer = None;
        // SAFETY: it has not been taken, since there was a closer until now; without one nobody takes it again.
        unsafe { ManuallyDrop::take(&mut self.descriptor) }
    }
}

impl<T: Into<OwnedFd>> Deref for UntrustedFd<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.descriptor
    }
}

impl<T: Into<OwnedFd>> Drop for UntrustedFd<T> {
    fn drop(&mut self) {
        if let Some(closer) = self.closer.take() {
            // SAFETY: as above.
            closer.close(unsafe { ManuallyDrop::take(&mut self.descriptor) });
        }
    }
}

impl<T: Into<OwnedFd> + std::fmt::Debug> std::fmt::Debug for UntrustedFd<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::vhost::tests::lingering;

    #[test]
    fn descriptors_are_closed_elsewhere_and_in_turn() {
        let closer = Closer::start().unwrap();
        let (slow, _peer) = lingering(Duration::from_secs(2));
        let start = Instant::now();
        closer.close(slow);
        let (reader, mut writer) = io::pipe().unwrap();
        drop(UntrustedFd::new(File::from(OwnedFd::from(reader)), &closer));
        assert!(start.elapsed() < Duration::from_secs(1), "the one who gives it away waits");
        assert_eq!(closer.unclosed(), 2);
        // The pipe's end is closed in its turn.
        let still_open = || io::Write::write(&mut writer, b"x").is_ok();
        crate::vhost::tests::until("the pipe's end is closed", {
            let mut still_open = still_open;
            move || !still_open()
        });
        assert!(start.elapsed() >= Duration::from_secs(1), "the socket does not linger, so this tests nothing");
        assert_eq!(closer.unclosed(), 0);
    }

    #[test]
    fn known_descriptors_are_not_sent_to_the_thread() {
        let closer = Closer::start().unwrap();
        let file = bellows_ipc::memfd::create(8).unwrap();
        let foreign = UntrustedFd::new(file, &closer);
        assert_eq!(foreign.metadata().unwrap().len(), 8);
        let file = foreign.into_known();
        assert_eq!((file.metadata().unwrap().len(), closer.unclosed()), (8, 0));
    }
}
