//! A value that workers read and one writer at a time replaces.

use std::sync::{Arc, PoisonError};

use crate::Breath;
use crate::atomics::{AtomicPtr, Mutex, MutexGuard, Ordering};
use crate::readers::{GracePeriod, Readers};

/// A value that all workers read, without waiting, and that is replaced whole.
///
/// A replaced value is freed when all workers have passed the end of a breath since, and somebody
/// [reclaims](Writer::reclaim).
pub struct Published<T> {
    current: AtomicPtr<T>,
    /// Locked while the value is replaced.
    retired: Mutex<Vec<Retired<T>>>,
    readers: Arc<Readers>,
}

/// A replaced value, and the readers that may have references to it.
struct Retired<T> {
    value: AtomicPtr<T>,
    grace_period: GracePeriod,
}

impl<T: Send + Sync + 'static> Published<T> {
    /// A value that the workers of this process read.
    pub fn new(value: T) -> Published<T> {
        Published::with_readers(value, Arc::clone(Readers::of_process()))
    }

    /// A value with readers of its own.
    pub fn with_readers(value: T, readers: Arc<Readers>) -> Published<T> {
        Published { current: AtomicPtr::new(allocate(value)), retired: Mutex::new(Vec::new()), readers }
    }

    /// The value, for this breath. One load. Hot.
    #[inline(always)]
    pub fn read<'b>(&'b self, _: &'b impl Breath) -> &'b T {
        // SAFETY: the pointer is that of an allocated value, which is freed only after this thread has passed between
        // two breaths since the value was replaced. The reference does not outlive the proof of the breath.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// The right to replace the value, which waits for the present writer. For threads outside a breath it is the way
    /// to read the value, too.
    pub fn lock(&self) -> Writer<'_, T> {
        Writer { published: self, retired: self.retired.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// The right to replace the value, unless somebody has it.
    pub fn try_lock(&self) -> Option<Writer<'_, T>> {
        self.retired.try_lock().ok().map(|retired| Writer { published: self, retired })
    }
}

/// The right to replace a value.
pub struct Writer<'p, T> {
    published: &'p Published<T>,
    retired: MutexGuard<'p, Vec<Retired<T>>>,
}

impl<T: Send + Sync + 'static> Writer<'_, T> {
    /// The present value.
    pub fn get(&self) -> &T {
        // SAFETY: only the owner of this right replaces the value, which it must borrow mutably for that.
        unsafe { &*self.published.current.load(Ordering::Acquire) }
    }

    /// Replaces the value. Breaths that begin from here on read the new one.
    pub fn replace(&mut self, value: T) {
        let old = self.published.current.swap(allocate(value), Ordering::AcqRel);
        let grace_period = self.published.readers.start_grace_period();
        self.retired.push(Retired { value: AtomicPtr::new(old), grace_period });
    }

    /// Frees the replaced values that nobody can have a reference to any more. Returns the number of the others.
    pub fn reclaim(&mut self) -> usize {
        self.retired.retain_mut(|retired| {
            let is_over = retired.grace_period.is_over();
            if is_over {
                free(&retired.value);
            }
            !is_over
        });
        self.retired.len()
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        free(&self.current);
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.drain(..).for_each(|retired| free(&retired.value));
    }
}

fn allocate<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Frees a value that nobody refers to, and that is not freed again.
fn free<T>(value: &AtomicPtr<T>) {
    let value = value.load(Ordering::Acquire);
    // SAFETY: it was made by `allocate`. It is either a replaced value that all readers have passed since, which leaves
    // the list at once, or its owner is being dropped, so that no reference to it exists.
    drop(unsafe { Box::from_raw(value) });
}
