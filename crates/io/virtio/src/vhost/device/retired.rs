//! Memory that is no longer used, until the engine has dropped its references.
//!
//! An engine may still hold a doorbell of a ring that it has given back, and with it the ring's memory. If it were the
//! last holder, it would unmap a guest's memory between two breaths, which takes longer the larger the guest is.

use std::sync::Arc;
use std::time::Duration;

use crate::Memory;

/// How often to check whether the engine has dropped it.
const PULSE: Duration = Duration::from_millis(10);

/// Memory that waits to be freed. If this is dropped first, the last holder frees the rest.
#[derive(Default)]
pub(super) struct Retired(Vec<Arc<Memory>>);

impl Retired {
    pub(super) fn add(&mut self, memory: Arc<Memory>) {
        if !memory.regions().is_empty() {
            self.0.push(memory);
        }
    }

    /// Frees memory that nobody else holds. Nobody can get a reference meanwhile: there is no other to clone.
    pub(super) fn free(&mut self) {
        self.0.retain(|memory| Arc::strong_count(memory) > 1);
    }

    /// How soon to check again; `None` if there is nothing to wait for.
    pub(super) fn pulse(&self) -> Option<Duration> {
        (!self.0.is_empty()).then_some(PULSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegionSpec;

    #[test]
    fn memory_is_kept_until_its_last_other_holder() {
        let file = bellows_ipc::memfd::create(4096).unwrap();
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
