//! Whether the client of a request still waits for its answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellows_inspect::control::Hangup;

/// The client of a request. A trace or tap for it ends when it is gone.
#[derive(Clone, Default)]
pub struct Client(Arc<Mutex<ClientState>>);

#[derive(Default)]
struct ClientState {
    is_gone: bool,
    /// Ends the stream that an engine sends for it.
    hangup: Option<Hangup>,
}

/// A client that waits. Dropping this says that it is gone.
#[must_use]
pub struct Waiting(Client);

impl Client {
    /// Says that the client waits, until the result is dropped.
    pub fn waiting(&self) -> Waiting {
        Waiting(self.clone())
    }

    /// Hangs up when the client is gone, at once if it is gone already.
    pub(crate) fn hang_up_when_gone(&self, hangup: Hangup) {
        let mut state = self.state();
        if state.is_gone {
            hangup.now();
        } else {
            state.hangup = Some(hangup);
        }
    }

    fn state(&self) -> MutexGuard<'_, ClientState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_gone = true;
        if let Some(hangup) = state.hangup.take() {
            hangup.now();
        }
    }
}
