//! The exchange of values between a control thread and an engine that never waits.
//!
//! There is a fixed number of slots. The control thread *offers* a value for a slot and *recalls* it later. In
//! [`Borrower::sync`] the engine takes offered values and returns those that are wanted. The engine may also give up a
//! value on its own. A value is in exactly one place at any time: with the control thread, in the slot, or with the
//! engine.
//!
//! The slots may belong to several engine's ends, each with a bell of its own: a device whose rings different apps use.
//! What an end has when it is dropped is offered to the next one that [claims](Borrower::claim) the slot, and the
//! control thread need not know.
//!
//! All this happens under one mutex that is only held for as long as it takes to move some values. The control thread
//! locks it; the engine only tries to, and only when the bell's word shows that there is a reason.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use std::{io, mem};

use bellows_sys::wake::WakeEvent;

use crate::Signal;

/// Tells the engine that the control thread wants something: a word that changes, and a descriptor that becomes
/// readable for an engine that sleeps.
pub struct Bell {
    /// Changes under the exchange's mutex, or by the engine itself.
    word: AtomicU32,
    /// Raised exactly while the word is not the one that the engine has seen.
    event: WakeEvent,
}

impl Bell {
    /// The word. The port knows its value while nothing is wanted (`expected`).
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// The descriptor that becomes readable.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn ring(&self) {
        self.word.fetch_add(1, Relaxed);
        self.event.raise();
    }
}

/// One slot.
struct ExchangePlace<T> {
    slot: Slot<T>,
    /// The bell of the end that gets values of the slot; `None` if there is no such end.
    owner: Option<Arc<Bell>>,
}

impl<T> ExchangePlace<T> {
    fn is_of(&self, bell: &Arc<Bell>) -> bool {
        self.owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, bell))
    }

    /// Offers a value to the owner, now or when there is one.
    fn offer(&mut self, thing: T) {
        self.slot = Slot::Offered(thing);
        if let Some(owner) = &self.owner {
            owner.ring();
        }
    }

    /// Asks for the value, if an end has it.
    fn want(&mut self) {
        if let Slot::Lent(holder) = &self.slot {
            holder.ring();
            self.slot = Slot::Wanted;
        }
    }
}

/// The place of a slot's value.
enum Slot<T> {
    /// Empty, or its value is with the control thread.
    Empty,
    /// For the engine to take.
    Offered(T),
    /// With the engine that has this bell.
    Lent(Arc<Bell>),
    /// With the engine, and wanted back.
    Wanted,
    /// Returned because it was wanted, or because the engine has ended.
    Returned(T),
    /// Given up by the engine.
    GivenUp(T),
}

impl<T> Slot<T> {
    /// Takes the value out of the slot, if it is not with the engine.
    fn take(&mut self) -> Option<T> {
        match mem::replace(self, Slot::Empty) {
            Slot::Offered(thing) | Slot::Returned(thing) | Slot::GivenUp(thing) => Some(thing),
            Slot::Empty => None,
            lent @ (Slot::Lent(_) | Slot::Wanted) => {
                *self = lent;
                None
            }
        }
    }

    /// Takes a value back from the engine.
    fn put(&mut self, thing: T, given_up: bool) {
        let wanted = matches!(self, Slot::Wanted);
        *self = if given_up && !wanted { Slot::GivenUp(thing) } else { Slot::Returned(thing) };
    }
}

struct Exchange<T> {
    slots: Mutex<Vec<ExchangePlace<T>>>,
    /// Signalled when something was returned.
    back: Condvar,
    /// Raised when something was given up: the control thread sleeps on it. After its end nobody waits any more.
    control: Arc<Signal>,
}

impl<T> Exchange<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<ExchangePlace<T>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The control thread's end.
pub struct Lender<T>(Arc<Exchange<T>>);

/// The engine's end.
pub struct Borrower<T> {
    exchange: Arc<Exchange<T>>,
    bell: Arc<Bell>,
    /// Its slots. It counts them itself, from 0.
    slots: Vec<usize>,
    /// The value of the bell's word at the last exchange.
    seen: u32,
    /// Values that the engine gave up but could not hand over yet.
    given_up: Vec<(usize, T)>,
}

/// Ends the control thread's waits, and makes further engine's ends, from any thread.
pub struct Stopper<T>(Arc<Exchange<T>>);

/// Creates an exchange whose slots all belong to one engine's end. `control` is raised when the engine gives something
/// up.
///
/// # Errors
/// Those of `eventfd(2)`.
pub fn exchange<T>(slots: usize, control: Arc<Signal>) -> io::Result<(Lender<T>, Borrower<T>, Stopper<T>)> {
    let (lender, stopper) = shared_exchange(control);
    let borrower = stopper.borrower((0..slots).collect())?;
    borrower.claim();
    Ok((lender, borrower, stopper))
}

/// Creates an exchange for several engine's ends: see [`Stopper::borrower`]. Values that are offered wait until an end
/// claims their slots.
pub fn shared_exchange<T>(control: Arc<Signal>) -> (Lender<T>, Stopper<T>) {
    let exchange = Arc::new(Exchange { slots: Mutex::new(Vec::new()), back: Condvar::new(), control });
    (Lender(Arc::clone(&exchange)), Stopper(exchange))
}

/// The result of a recall.
#[derive(Debug, PartialEq, Eq)]
pub enum Recalled<T> {
    /// The value.
    Back(T),
    /// There was nothing in the slot.
    Nothing,
    /// The exchange has ended; the engine keeps its values until its own end.
    Ended,
}

impl<T> Lender<T> {
    /// Offers a value to the engine. The slot must be empty: its last value has been recalled. After the end nothing is
    /// offered.
    pub fn offer(&self, slot: usize, thing: T) {
        let mut slots = self.0.lock();
        if self.0.control.has_ended() {
            return;
        }
        debug_assert!(matches!(slots[slot].slot, Slot::Empty), "slot {slot} is not empty");
        slots[slot].offer(thing);
    }

    /// Asks for a value without waiting for it.
    pub fn want(&self, slot: usize) {
        self.0.lock()[slot].want();
    }

    /// Takes a value back, and waits until it is there. If that takes longer than `patience`, calls `late`, once.
    pub fn recall(&self, slot: usize, patience: Duration, late: impl FnOnce()) -> Recalled<T> {
        let deadline = Instant::now() + patience;
        let mut late = Some(late);
        let mut slots = self.0.lock();
        slots[slot].want();
        while matches!(slots[slot].slot, Slot::Wanted) {
            if self.0.control.has_ended() {
                return Recalled::Ended;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero()
                && let Some(late) = late.take()
            {
                late();
            }
            let left = if late.is_some() { left } else { Duration::from_secs(1) };
            slots = self.0.back.wait_timeout(slots, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        slots[slot].slot.take().map_or(Recalled::Nothing, Recalled::Back)
    }

    /// A value that the engine gave up on its own, and its slot.
    pub fn given_up(&self) -> Option<(usize, T)> {
        let mut slots = self.0.lock();
        let slot = slots.iter().position(|place| matches!(place.slot, Slot::GivenUp(_)))?;
        slots[slot].slot.take().map(|thing| (slot, thing))
    }
}

impl<T> Stopper<T> {
    /// Ends all waits, now and later, and asks for everything.
    pub fn end(&self) {
        self.0.control.end();
        let mut slots = self.0.lock();
        let mut offered = Vec::new();
        for place in slots.iter_mut() {
            match place.slot {
                Slot::Offered(_) => offered.extend(place.slot.take()),
                _ => place.want(),
            }
        }
        drop(slots);
        self.0.back.notify_all();
    }

    /// A further engine's end, for these slots. It takes part once it [claims](Borrower::claim) them.
    ///
    /// # Errors
    /// Those of `eventfd(2)`.
    pub fn borrower(&self, slots: Vec<usize>) -> io::Result<Borrower<T>> {
        let bell = Arc::new(Bell { word: AtomicU32::new(0), event: WakeEvent::new()? });
        let mut places = self.0.lock();
        let count = slots.iter().max().map_or(0, |last| last + 1).max(places.len());
        places.resize_with(count, || ExchangePlace { slot: Slot::Empty, owner: None });
        drop(places);
        let given_up = Vec::with_capacity(slots.len());
        Ok(Borrower { exchange: Arc::clone(&self.0), bell, slots, seen: 0, given_up })
    }
}

impl<T> Borrower<T> {
    /// The bell that asks the engine to call [`sync`](Borrower::sync).
    pub fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Values of its slots come here from now on, and not to another end that had claimed them. That one keeps the
    /// values that it has, until it ends or the control thread wants them. Waits for the mutex, which is never held for
    /// long.
    pub fn claim(&self) {
        let mut places = self.exchange.lock();
        let mut has_value = false;
        for &slot in &self.slots {
            places[slot].owner = Some(Arc::clone(&self.bell));
            has_value |= matches!(places[slot].slot, Slot::Offered(_));
        }
        if has_value {
            self.bell.ring();
        }
    }

    /// The value of the bell's word while there is nothing to exchange.
    #[inline]
    pub fn expected(&self) -> u32 {
        self.seen
    }

    /// Exchanges values, if there is a reason and the mutex is free: calls `give` for each slot whose value is wanted
    /// back and `take` for each offered value. True if anything was exchanged.
    ///
    /// Hot: one load and a comparison while nothing is wanted. Never waits.
    #[inline]
    pub fn sync(&mut self, held: &mut impl Held<T>) -> bool {
        let word = self.bell.word.load(Relaxed);
        if word == self.seen && self.given_up.is_empty() {
            return false;
        }
        self.exchange(held)
    }

    /// Hands over a value that was not asked for: now, or, if the control thread is changing something, at the next
    /// [`sync`](Borrower::sync), for which the bell then rings. Other values may be exchanged, too.
    pub fn give_up(&mut self, slot: usize, thing: T, held: &mut impl Held<T>) {
        self.given_up.push((slot, thing));
        self.exchange(held);
        if !self.given_up.is_empty() {
            // Only the engine clears the event, so the ring cannot be lost.
            self.bell.ring();
        }
    }

    #[cold]
    fn exchange(&mut self, held: &mut impl Held<T>) -> bool {
        let exchange = &*self.exchange;
        let mut slots = match exchange.slots.try_lock() {
            Ok(slots) => slots,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        // The word and the event only change under the mutex, so they stay consistent.
        self.seen = self.bell.word.load(Relaxed);
        self.bell.event.clear();
        let gave_up = !self.given_up.is_empty();
        let mut back = gave_up;
        for (index, thing) in self.given_up.drain(..) {
            slots[self.slots[index]].slot.put(thing, true);
        }
        let mut taken = false;
        for (index, &slot) in self.slots.iter().enumerate() {
            let place = &mut slots[slot];
            match place.slot {
                Slot::Wanted => {
                    if let Some(thing) = held.give(index) {
                        place.slot.put(thing, false);
                        back = true;
                    }
                }
                Slot::Offered(_) if place.is_of(&self.bell) => {
                    if let Some(thing) = place.slot.take() {
                        held.take(index, thing);
                        place.slot = Slot::Lent(Arc::clone(&self.bell));
                        taken = true;
                    }
                }
                _ => {}
            }
        }
        drop(slots);
        if back {
            exchange.back.notify_all();
        }
        if gave_up {
            exchange.control.raise();
        }
        back || taken
    }

    /// Returns everything, for good. What nobody wants is offered to the next end that has its slot. Waits for the mutex,
    /// which is never held for long.
    pub fn end(&mut self, held: &mut impl Held<T>) {
        let mut slots = self.exchange.lock();
        for (index, thing) in self.given_up.drain(..) {
            slots[self.slots[index]].slot.put(thing, true);
        }
        for (index, &slot) in self.slots.iter().enumerate() {
            let place = &mut slots[slot];
            if place.is_of(&self.bell) {
                place.owner = None;
            }
            let Some(thing) = held.give(index) else { continue };
            match place.slot {
                Slot::Wanted => place.slot.put(thing, false),
                _ => place.offer(thing),
            }
        }
        drop(slots);
        self.exchange.back.notify_all();
        self.exchange.control.raise();
    }
}

/// The engine's store of borrowed values, by the numbers of its own slots.
pub trait Held<T> {
    /// Takes a value for a slot, which is empty.
    fn take(&mut self, slot: usize, thing: T);

    /// Gives back the value of a slot.
    fn give(&mut self, slot: usize) -> Option<T>;
}

impl<T> Held<T> for Vec<Option<T>> {
    fn take(&mut self, slot: usize, thing: T) {
        self[slot] = Some(thing);
    }

    fn give(&mut self, slot: usize) -> Option<T> {
        self[slot].take()
    }
}

impl<T> Held<T> for Option<T> {
    fn take(&mut self, _slot: usize, thing: T) {
        *self = Some(thing);
    }

    fn give(&mut self, _slot: usize) -> Option<T> {
        self.take()
    }
}

/// The engine's end of an exchange with one slot: the value that it has borrowed, if there is one.
///
/// When the control thread wants the value back it is taken away; later there may be a new one. Never blocks, and makes
/// no system call while nothing changes.
pub struct Borrowed<T> {
    borrower: Borrower<T>,
    value: Option<T>,
}

impl<T> Borrowed<T> {
    /// Nothing is borrowed yet.
    pub fn new(borrower: Borrower<T>) -> Borrowed<T> {
        Borrowed { borrower, value: None }
    }

    /// The bell that asks the engine to [`sync`](Borrowed::sync).
    pub fn doorbell(&self) -> Arc<Bell> {
        self.borrower.bell()
    }

    /// The value of the bell's word while there is nothing to exchange.
    #[inline]
    pub fn expected(&self) -> u32 {
        self.borrower.expected()
    }

    /// Exchanges values with the control thread: takes a new one, gives back one that is wanted. True if something
    /// changed. Costs a few instructions if there is nothing to exchange.
    #[inline]
    pub fn sync(&mut self) -> bool {
        self.borrower.sync(&mut self.value)
    }

    /// The value, if there is one.
    #[inline]
    pub fn get(&mut self) -> Option<&mut T> {
        self.value.as_mut()
    }

    /// Gives the value up because of an error.
    pub fn give_up(&mut self) {
        if let Some(value) = self.value.take() {
            self.borrower.give_up(0, value, &mut self.value);
        }
    }
}

impl<T> Drop for Borrowed<T> {
    fn drop(&mut self) {
        self.borrower.end(&mut self.value);
    }
}

#[cfg(test)]
mod tests;
