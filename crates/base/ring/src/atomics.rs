//! The atomics of the standard library, or those of `loom`.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// The fences of an end that publishes and of one that is about to sleep. `loom` knows only full ones.
#[cfg(not(feature = "loom"))]
pub(crate) use bellows_sys::fences;

#[cfg(feature = "loom")]
pub(crate) mod fences {
    use loom::sync::atomic::{Ordering::SeqCst, fence};

    pub(crate) fn prepare() {}

    pub(crate) fn often() {
        fence(SeqCst);
    }

    pub(crate) fn rarely() {
        fence(SeqCst);
    }
}

#[cfg(feature = "loom")]
pub(crate) type Cell<T> = loom::cell::UnsafeCell<T>;

/// A place of the ring, with the interface of `loom`'s cells.
#[cfg(not(feature = "loom"))]
pub(crate) struct Cell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(feature = "loom"))]
impl<T> Cell<T> {
    pub(crate) fn new(value: T) -> Cell<T> {
        Cell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
        look(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}
