//! Panics of apps: catching them, and counting the packets that they freed.
//!
//! A panic frees the packets in local variables of an app's call. To tell them from packets that the call freed before,
//! the process's panic hook stores the thread's buffer use before unwinding.

use std::cell::Cell;
use std::mem;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use bellows_packet::{BufferUse, buffer_use};

thread_local! {
    /// The thread's buffer use at its last panic.
    static AT_PANIC: Cell<Option<BufferUse>> = const { Cell::new(None) };
}

/// Runs code of an app; `None` if it panics.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    // The panic payload is not dropped: that could panic again.
    catch_unwind(AssertUnwindSafe(work)).map_err(mem::forget).ok()
}

/// Installs a hook before the process's panic hook, once. It prints nothing.
pub(crate) fn install_hook() {
    static WATCHING: Once = Once::new();
    // A panicking thread cannot change the hook.
    if std::thread::panicking() {
        return;
    }
    WATCHING.call_once(|| {
        let next = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let _ = AT_PANIC.try_with(|at| at.set(Some(buffer_use())));
            next(info);
        }));
    });
}

/// The number of packets that this thread has freed since its last panic; `None` if it did not panic, or if the hook
/// was removed. Call it once per panic.
pub(crate) fn freed_since_panic() -> Option<u64> {
    let before = AT_PANIC.try_with(Cell::take).ok().flatten()?;
    Some(buffer_use().since(before).freed)
}
