//! What tests of all interleavings share.

use bellows_ring::Bell;
use loom::sync::{Condvar, Mutex};

/// Rings until it is silenced, as an `eventfd` is readable until it is read.
#[derive(Default)]
pub struct Event {
    is_raised: Mutex<bool>,
    changed: Condvar,
}

impl Bell for Event {
    fn ring(&self) {
        *self.is_raised.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

impl Event {
    /// Sleeps until the bell rings.
    pub fn wait(&self) {
        let mut is_raised = self.is_raised.lock().unwrap();
        while !*is_raised {
            is_raised = self.changed.wait(is_raised).unwrap();
        }
    }

    /// Silences the bell.
    pub fn clear(&self) {
        *self.is_raised.lock().unwrap() = false;
    }
}
