//! The receiving end of a trace or a tap on another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Makes the engine check its traces and taps.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

/// Tells the engine, when dropped, that the receiver is gone.
pub(crate) struct Listener {
    over: Arc<AtomicBool>,
    wake: Wake,
}

impl Listener {
    pub(crate) fn new(over: &Arc<AtomicBool>, wake: Wake) -> Listener {
        Listener { over: Arc::clone(over), wake }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        (self.wake)();
    }
}

/// The time left until a deadline.
pub(crate) fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
