//! What threads share without locks.
//!
//! - A ring of values from one thread to another, in this module.
//! - [`stack`]: a stack for any number of threads.
//! - [`mailbox`]: one thread asks the others for something.
//! - [`requests`]: a word of requests to a thread that may sleep.
//! - [`verdicts`]: reports of threads, from which one concludes that all have nothing left to do.
//!
//! The two ends of a ring take turns with its places: the sender exchanges what the receiver left in a place for what it
//! sends, the receiver takes that and leaves something else. So memory that travels with the values returns by the same
//! way, without a second ring.
//!
//! A place has its turn beside its value, on the same cache line: the receiver, which waits for the turn, gets the value
//! with it.
//!
//! Neither end ever waits. An end that is about to sleep [arms](WakeSide::arm) its side; the other end then
//! [rings](Bell::ring) its bell after each change.

mod atomics;
pub mod mailbox;
pub mod requests;
pub mod stack;
pub mod verdicts;

use std::ptr;
use std::sync::Arc;

use bellows_arena::Fixed;
use bellows_sys::cache::prefetch_to_write;

use crate::atomics::{AtomicBool, AtomicU32, Cell, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fences};

/// Wakes the thread of one end.
pub trait Bell {
    /// Wakes the thread, or keeps it from falling asleep. A ring calls this only while its side is armed.
    fn ring(&self);
}

/// How to wake one end, on cache lines that are rarely written: the other end reads them at each turn.
#[repr(align(128))]
pub struct WakeSide<B> {
    /// Whether the thread of this end may be asleep.
    armed: AtomicBool,
    bell: B,
}

impl<B: Bell> WakeSide<B> {
    fn new(bell: B) -> WakeSide<B> {
        WakeSide { armed: AtomicBool::new(false), bell }
    }

    /// The bell of this end.
    pub fn bell(&self) -> &B {
        &self.bell
    }

    /// This end is about to sleep: the other end rings from now on. Check the word that it watches after this call.
    pub fn arm(&self) {
        self.armed.store(true, Relaxed);
        // Either the check of the word comes after the other end's change, or that end's check of `armed` after this
        // store.
        fences::rarely();
    }

    /// This end is awake.
    pub fn disarm(&self) {
        self.armed.store(false, Relaxed);
    }

    /// Wakes this end if it sleeps, after a turn of the other one.
    #[inline(always)]
    fn wake(&self) {
        fences::often();
        if self.armed.load(Relaxed) {
            self.bell.ring();
        }
    }
}

/// A value on cache lines of its own; some processors fetch lines in pairs.
#[repr(align(128))]
struct OwnLines<T>(T);

/// A place, which belongs to one end at a time.
struct Place<T> {
    /// The number of values sent when the sender last filled this place; wraps.
    turn: AtomicU32,
    value: Cell<T>,
}

/// What the two ends share.
///
/// Invariant: with `sent` and `received` as the numbers of values sent and received, `sent - received` is at most the
/// number of places. Places `received..sent` belong to the receiver, the others to the sender. The sender passes a place
/// on by its turn, the receiver by `received`; each after it has finished with the value.
///
/// What changes is in the arena, on the memory node of the thread that makes the ring.
pub struct Ring<T, B> {
    places: Fixed<[OwnLines<Place<T>>]>,
    received: Fixed<OwnLines<AtomicU32>>,
    /// The sender's, and the receiver's.
    sides: Fixed<[WakeSide<B>; 2]>,
}

// SAFETY: by the invariant each value belongs to one end at a time. It passes to the other with a release store of the
// turn or of `received`, which the other end loads with acquire. There is one sender and one receiver,
// which are not `Clone`.
unsafe impl<T: Send, B: Send + Sync> Sync for Ring<T, B> {}

impl<T, B> Ring<T, B> {
    /// The side of the sender.
    pub fn sender(&self) -> &WakeSide<B> {
        &self.sides[0]
    }

    /// The side of the receiver.
    pub fn receiver(&self) -> &WakeSide<B> {
        &self.sides[1]
    }

    /// The number of values received so far, for the sender to watch; wraps.
    pub fn received(&self) -> &AtomicU32 {
        &self.received.0
    }

    /// The word that changes when the next value arrives, for the receiver to watch: another one after each value.
    pub fn next_turn(&self) -> &AtomicU32 {
        &self.place(self.received().load(Relaxed)).turn
    }

    fn place(&self, position: u32) -> &Place<T> {
        &self.places[position as usize & (self.places.len() - 1)].0
    }

    fn size(&self) -> u32 {
        self.places.len() as u32
    }
}

/// The end that sends.
pub struct Sender<T, B> {
    ring: Arc<Ring<T, B>>,
    sent: u32,
    /// [`Ring::received`] when it was last read.
    received: u32,
}

/// The end that receives.
pub struct Receiver<T, B> {
    ring: Arc<Ring<T, B>>,
    received: u32,
}

/// A ring with a power of two of places, at first with default values. The first bell wakes the sender, the second one
/// the receiver. It is on the calling thread's [memory node](bellows_arena::set_node).
///
/// # Panics
/// If the number of places is no power of two.
pub fn ring<T: Default, B: Bell>(places: usize, bells: [B; 2]) -> (Sender<T, B>, Receiver<T, B>) {
    assert!(places.is_power_of_two() && places <= 1 << 31, "{places} places");
    fences::prepare();
    let turn = |position: usize| (position as u32).wrapping_add(1).wrapping_sub(places as u32);
    let place = |turn: u32| Place { turn: AtomicU32::new(turn), value: Cell::new(T::default()) };
    let places = (0..places).map(|position| OwnLines(place(turn(position)))).collect();
    let received = Fixed::new(OwnLines(AtomicU32::new(0)));
    let ring = Arc::new(Ring { places, received, sides: Fixed::new(bells.map(WakeSide::new)) });
    (Sender { ring: Arc::clone(&ring), sent: 0, received: 0 }, Receiver { ring, received: 0 })
}

impl<T, B: Bell> Sender<T, B> {
    /// What both ends share.
    pub fn ring(&self) -> &Arc<Ring<T, B>> {
        &self.ring
    }

    /// Whether there is room for another value.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        if self.sent.wrapping_sub(self.received) < self.ring.size() {
            return true;
        }
        self.received = self.ring.received().load(Acquire);
        self.sent.wrapping_sub(self.received) < self.ring.size()
    }

    /// [`Ring::received`] when this end last found no room: there is room once it differs.
    pub fn seen(&self) -> u32 {
        self.received
    }

    /// Sends a value, if there is room: `exchange` puts it into its place and takes what the receiver left there. Hot.
    #[inline(always)]
    pub fn send<R>(&mut self, exchange: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !self.has_room() {
            return None;
        }
        let place = self.ring.place(self.sent);
        // SAFETY: has_room() has found that this place is not among the receiver's, which it acquired with `received`.
        let result = place.value.with_mut(|value| exchange(unsafe { &mut *value }));
        self.sent = self.sent.wrapping_add(1);
        place.turn.store(self.sent, Release);
        self.ring.receiver().wake();
        if self.sent.wrapping_sub(self.received) < self.ring.size() {
            prefetch_to_write(ptr::from_ref(self.ring.place(self.sent)).cast());
        }
        Some(result)
    }
}

impl<T, B: Bell> Receiver<T, B> {
    /// What both ends share.
    pub fn ring(&self) -> &Arc<Ring<T, B>> {
        &self.ring
    }

    /// Whether no value waits. Hot.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.ring.place(self.received).turn.load(Acquire) != self.received.wrapping_add(1)
    }

    /// The value of the [word](Ring::next_turn) that changes when the next value arrives, until then.
    #[inline]
    pub fn seen(&self) -> u32 {
        self.received.wrapping_add(1).wrapping_sub(self.ring.size())
    }

    /// Looks at the first value that waits.
    #[inline(always)]
    pub fn peek<R>(&mut self, look: impl FnOnce(&T) -> R) -> Option<R> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: is_empty() has found that this place is the receiver's, which it acquired with the turn.
        Some(self.ring.place(self.received).value.with(|value| look(unsafe { &*value })))
    }

    /// Receives a value, if there is one: `exchange` takes it and leaves another in its place. Hot.
    #[inline(always)]
    pub fn receive<R>(&mut self, exchange: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: as for peek().
        let result = self.ring.place(self.received).value.with_mut(|value| exchange(unsafe { &mut *value }));
        self.received = self.received.wrapping_add(1);
        self.ring.received().store(self.received, Release);
        self.ring.sender().wake();
        Some(result)
    }
}
