//! What several ports of this process have in common at one interface.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::arp_guard::this_namespace;
use crate::interface::Interface;

/// An interface: the inode of its network namespace, and its number.
type InterfacePlace = (u64, u32);

/// Values of interfaces. Each lasts as long as a port has it.
pub(crate) struct Joint<T>(Mutex<Vec<(InterfacePlace, Weak<T>)>>);

impl<T> Joint<T> {
    /// None yet.
    pub(crate) const fn new() -> Joint<T> {
        Joint(Mutex::new(Vec::new()))
    }

    /// Keeps other ports from opening anything with such a value.
    pub(crate) fn lock(&self) -> Locked<'_, T> {
        Locked(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The values, while no other port can reach them.
pub(crate) struct Locked<'a, T>(MutexGuard<'a, Vec<(InterfacePlace, Weak<T>)>>);

impl<T> Locked<'_, T> {
    /// The value of an interface in the namespace of this thread.
    pub(crate) fn find(&mut self, interface: &Interface) -> Option<Arc<T>> {
        let place = place(interface);
        self.0.retain(|(_, value)| value.strong_count() > 0);
        self.0.iter().find(|(other, _)| *other == place).and_then(|(_, value)| value.upgrade())
    }

    /// Adds the value of an interface that has none.
    pub(crate) fn add(&mut self, interface: &Interface, value: T) -> Arc<T> {
        let value = Arc::new(value);
        self.0.push((place(interface), Arc::downgrade(&value)));
        value
    }
}

fn place(interface: &Interface) -> InterfacePlace {
    (this_namespace(), interface.index)
}
