//! What threads share without locks: a ring of values from one thread to another, a [stack] for any number of threads,
//! a [mailbox] in which one thread asks the others for something, and a word of [requests] to a thread that may sleep.
//!
//! The two ends *swap* values with the ring's places: the sender puts a value into a place and takes what the receiver
//! left there, the receiver takes the value and leaves another. So memory that travels with the values returns by the
//! same way, without a second ring.
//!
//! Neither end ever waits. An end that is about to sleep [arms](Side::arm) its side; the other end then
//! [rings](Bell::ring) its bell after each change.

mod atomics;
pub mod mailbox;
pub mod requests;
pub mod stack;

use std::sync::Arc;

use crate::atomics::{AtomicBool, AtomicU32, Cell, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

/// Wakes the thread of one end.
pub trait Bell {
    /// Wakes the thread, or keeps it from falling asleep. A ring calls this only while its side is armed.
    fn ring(&self);
}

/// One end's part of a ring, on cache lines of its own.
#[repr(align(128))]
pub struct Side<B> {
    /// The number of values that this end has swapped so far; wraps.
    position: AtomicU32,
    /// Whether the thread of this end may be asleep.
    armed: AtomicBool,
    bell: B,
}

impl<B: Bell> Side<B> {
    fn new(bell: B) -> Side<B> {
        Side { position: AtomicU32::new(0), armed: AtomicBool::new(false), bell }
    }

    /// The number of values that this end has swapped so far, which the other end watches; wraps.
    pub fn position(&self) -> &AtomicU32 {
        &self.position
    }

    /// The bell of this end.
    pub fn bell(&self) -> &B {
        &self.bell
    }

    /// This end is about to sleep: the other end rings from now on. Check the other side's position after this call.
    pub fn arm(&self) {
        self.armed.store(true, Relaxed);
        // Either the check of the position comes after the other end's change, or that end's check of `armed` after
        // this store.
        fence();
    }

    /// This end is awake.
    pub fn disarm(&self) {
        self.armed.store(false, Relaxed);
    }

    /// Publishes a position, and wakes the other end if it sleeps.
    #[inline]
    fn publish(&self, position: u32, other: &Side<B>) {
        self.position.store(position, Release);
        fence();
        if other.armed.load(Relaxed) {
            other.bell.ring();
        }
    }
}

/// What the two ends share.
///
/// Invariant: with `sent` and `received` as the positions of the two sides, `sent - received` is at most the number of
/// places. Places `received..sent` belong to the receiver, the others to the sender. Each end writes its own position
/// alone, after it has finished with the place.
pub struct Ring<T, B> {
    places: Box<[Cell<T>]>,
    sender: Side<B>,
    receiver: Side<B>,
}

// SAFETY: by the invariant each place belongs to one end at a time. It passes to the other with a release store of a
// position, which the other end loads with acquire. There is one sender and one receiver, which are not `Clone`.
unsafe impl<T: Send, B: Send + Sync> Sync for Ring<T, B> {}

impl<T, B> Ring<T, B> {
    /// The side of the sender.
    pub fn sender(&self) -> &Side<B> {
        &self.sender
    }

    /// The side of the receiver.
    pub fn receiver(&self) -> &Side<B> {
        &self.receiver
    }

    fn place(&self, position: u32) -> &Cell<T> {
        &self.places[position as usize & (self.places.len() - 1)]
    }
}

/// The end that sends.
pub struct Sender<T, B> {
    ring: Arc<Ring<T, B>>,
    sent: u32,
    /// The receiver's position when it was last read.
    received: u32,
}

/// The end that receives.
pub struct Receiver<T, B> {
    ring: Arc<Ring<T, B>>,
    received: u32,
    /// The sender's position when it was last read.
    sent: u32,
}

/// A ring with a power of two of places, at first with default values. The first bell wakes the sender, the second one
/// the receiver.
///
/// # Panics
/// If the number of places is no power of two.
pub fn ring<T: Default, B: Bell>(places: usize, bells: [B; 2]) -> (Sender<T, B>, Receiver<T, B>) {
    assert!(places.is_power_of_two() && places <= 1 << 31, "{places} places");
    let [sender, receiver] = bells.map(Side::new);
    let ring = Arc::new(Ring { places: (0..places).map(|_| Cell::new(T::default())).collect(), sender, receiver });
    (Sender { ring: Arc::clone(&ring), sent: 0, received: 0 }, Receiver { ring, received: 0, sent: 0 })
}

impl<T, B: Bell> Sender<T, B> {
    /// What both ends share.
    pub fn ring(&self) -> &Arc<Ring<T, B>> {
        &self.ring
    }

    /// Whether there is room for another value.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        let places = self.ring.places.len() as u32;
        if self.sent.wrapping_sub(self.received) < places {
            return true;
        }
        self.received = self.ring.receiver.position.load(Acquire);
        self.sent.wrapping_sub(self.received) < places
    }

    /// The receiver's position when this end last found no room: there is room once it differs.
    pub fn seen(&self) -> u32 {
        self.received
    }

    /// Sends a value, if there is room, and takes in exchange what the receiver left in its place. Returns whether there
    /// was room. Hot.
    #[inline]
    pub fn send(&mut self, value: &mut T) -> bool {
        if !self.has_room() {
            return false;
        }
        self.ring.place(self.sent).with_mut(|place| {
            // SAFETY: has_room() has found that this place is not among the receiver's, which it acquired with the
            // receiver's position.
            std::mem::swap(unsafe { &mut *place }, value);
        });
        self.sent = self.sent.wrapping_add(1);
        self.ring.sender.publish(self.sent, &self.ring.receiver);
        true
    }
}

impl<T, B: Bell> Receiver<T, B> {
    /// What both ends share.
    pub fn ring(&self) -> &Arc<Ring<T, B>> {
        &self.ring
    }

    /// The number of values that wait. Hot.
    #[inline]
    pub fn len(&mut self) -> usize {
        if self.sent == self.received {
            self.sent = self.ring.sender.position.load(Acquire);
        }
        self.sent.wrapping_sub(self.received) as usize
    }

    /// Whether no value waits.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// The sender's position that this end has received everything up to.
    pub fn seen(&self) -> u32 {
        self.received
    }

    /// Looks at the first value that waits.
    #[inline]
    pub fn peek<R>(&mut self, look: impl FnOnce(&T) -> R) -> Option<R> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: len() has found that this place is the receiver's, which it acquired with the sender's position.
        Some(self.ring.place(self.received).with(|place| look(unsafe { &*place })))
    }

    /// Receives a value, if there is one, and leaves the given value in its place. Returns whether there was one. Hot.
    #[inline]
    pub fn receive(&mut self, value: &mut T) -> bool {
        if self.is_empty() {
            return false;
        }
        self.ring.place(self.received).with_mut(|place| {
            // SAFETY: as for peek().
            std::mem::swap(unsafe { &mut *place }, value);
        });
        self.received = self.received.wrapping_add(1);
        self.ring.receiver.publish(self.received, &self.ring.sender);
        true
    }
}
