//! Panics of apps: what an app had in hand.
//!
//! A panic frees the packets that the call of an app had in its variables. They are known apart from those that the call had
//! freed before, because the process's panic hook notes the thread's use of buffers before anything is unwound.

use std::cell::Cell;
use std::mem;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use bellows_packet::{BufferUse, buffer_use};

thread_local! {
    /// The thread's use of buffers when it last panicked.
    static AT_PANIC: Cell<Option<BufferUse>> = const { Cell::new(None) };
}

/// Calls something of an app's; `None` if it panics over it.
pub(crate) fn contain<T>(work: impl FnOnce() -> T) -> Option<T> {
    // What an app panics with is not dropped: that could panic again.
    catch_unwind(AssertUnwindSafe(work)).map_err(mem::forget).ok()
}

/// Puts a hook in front of the process's panic hook, once. It prints nothing.
pub(crate) fn watch() {
    static WATCHING: Once = Once::new();
    // A thread that is panicking cannot change the hook.
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

/// How many packets this thread has freed since it last panicked; `None` if it has not, or somebody took the hook away. Asked
/// once for each panic.
pub(crate) fn freed_since_the_last() -> Option<u64> {
    let before = AT_PANIC.try_with(Cell::take).ok().flatten()?;
    Some(buffer_use().since(before).freed)
}
