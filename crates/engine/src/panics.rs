//! Panics of apps: what an app had in hand, and which one it was.
//!
//! A panic frees the packets that the call of an app had in its variables. They are known apart from those that the call had
//! freed before, because the process's panic hook notes the thread's use of buffers before anything is unwound.

use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::{Arc, Once, Weak};

use bellows_packet::{BufferUse, buffer_use};

use crate::control::Shared;

thread_local! {
    /// The thread's use of buffers when it last panicked.
    static AT_PANIC: Cell<Option<BufferUse>> = const { Cell::new(None) };
    /// The engine that this thread runs.
    static ENGINE: RefCell<Weak<Shared>> = const { RefCell::new(Weak::new()) };
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

/// From now on this thread runs an engine.
pub(crate) fn runs(engine: &Arc<Shared>) {
    ENGINE.with_borrow_mut(|current| *current = Arc::downgrade(engine));
}

/// The app that the engine of this thread is calling, if it is calling one: for panic hooks, which want to name it.
pub fn app_at_work() -> Option<String> {
    let engine = ENGINE.try_with(|engine| engine.try_borrow().ok()?.upgrade()).ok()??;
    engine.app_at_work()
}
