//! Memory that is not used any more, until the engine has let go of it.
//!
//! An engine may still hold a doorbell of a ring that it has given back, and with it the ring's memory. Were it the last to
//! let go, it would unmap a guest's memory between two breaths, which takes as long as the guest is large.

use std::sync::Arc;
use std::time::Duration;

use crate::Memory;

/// How often to look whether the engine has let go.
const PULSE: Duration = Duration::from_millis(10);

/// Memory that waits for its end. What is left when this is dropped is freed by the last who holds it.
#[derive(Default)]
pub(super) struct Retired(Vec<Arc<Memory>>);

impl Retired {
    pub(super) fn add(&mut self, memory: Arc<Memory>) {
        if !memory.regions().is_empty() {
            self.0.push(memory);
        }
    }

    /// Frees what nobody else holds. Nobody can come to hold it meanwhile: there is no other to clone it from.
    pub(super) fn free(&mut self) {
        self.0.retain(|memory| Arc::strong_count(memory) > 1);
    }

    /// How soon to look again; `None` if there is nothing to wait for.
    pub(super) fn pulse(&self) -> Option<Duration> {
        (!self.0.is_empty()).then_some(PULSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegionSpec;

    #[test]
    fn memory_is_kept_until_nobody_else_holds_it() {
        let file = bellows_sys::memfd::create(4096).unwrap();
        let spec = RegionSpec { guest: 0, length: 4096, user: 0, offset: 0, file };
        let memory = Arc::new(Memory::map(vec![spec]).unwrap());
        let engine = Arc::clone(&memory);
        let gone = Arc::downgrade(&memory);
        let mut retired = Retired::default();
        retired.add(Arc::default());
        assert_eq!(retired.pulse(), None, "there is nothing to unmap");
        retired.add(memory);
        retired.free();
        assert_eq!(retired.pulse(), Some(PULSE));
        drop(engine);
        assert_eq!(gone.strong_count(), 1, "the engine was not the last");
        retired.free();
        assert_eq!((retired.pulse(), gone.strong_count()), (None, 0));
    }
}
