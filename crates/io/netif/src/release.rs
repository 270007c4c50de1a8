//! Dropping what is shared with the engine.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest time to wait. The engine drops its share in the call in which it gives a queue back.
const LIMIT: Duration = Duration::from_millis(100);

/// Waits until the caller is the only owner, so that what the value keeps open is closed here, on the control thread,
/// and not by the engine: the kernel may take milliseconds to close a socket or to delete a device.
pub(crate) fn wait_for_other_owners<T>(value: &Arc<T>) {
    const INTERVAL: Duration = Duration::from_micros(100);
    let start = Instant::now();
    while Arc::strong_count(value) > 1 && start.elapsed() < LIMIT {
        sleep(INTERVAL);
    }
}
