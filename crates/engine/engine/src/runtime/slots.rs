//! Slots: memory words by which the engine sees, without a call, whether an app has something to pull.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::panics::catch_panic;

/// Something outside the engine that signals packets to pull: a ring index that the other side writes, descriptors
/// that become readable, or both.
///
/// # Example
/// An app that gets its packets from a thread through a shared queue. The word counts packets put into the queue; the
/// app is pulled while this exceeds the number that it took out.
///
/// ```
/// use std::collections::VecDeque;
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// use std::sync::{Arc, Mutex};
///
/// use bellows_rig::Rig;
/// use bellows_engine::{App, Io, Port, Ports, Watched};
/// use bellows_packet::Packet;
///
/// #[derive(Default)]
/// struct Queue {
///     packets: Mutex<VecDeque<Packet>>,
///     added: AtomicU32,
/// }
///
/// impl Queue {
///     fn add(&self, packet: Packet) {
///         let mut packets = self.packets.lock().unwrap();
///         packets.push_back(packet);
///         self.added.fetch_add(1, Relaxed);
///     }
/// }
///
/// impl Watched for Queue {
///     fn word(&self) -> Option<&AtomicU32> {
///         Some(&self.added)
///     }
/// }
///
/// struct FromQueue {
///     queue: Arc<Queue>,
///     taken: u32,
/// }
///
/// impl App for FromQueue {
///     const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the packets of the queue")]);
///
///     fn slots(&self) -> usize {
///         1
///     }
///
///     fn tick(&mut self, io: &Io<Self>) {
///         io.slot(0).watch(Arc::clone(&self.queue), u32::MAX, self.taken);
///     }
///
///     fn pull(&mut self, io: &Io<Self>) {
///         let mut output = io.output(0);
///         let mut packets = self.queue.packets.lock().unwrap();
///         let count = packets.len().min(io.burst()).min(output.room());
///         packets.drain(..count).for_each(|packet| output.push(packet));
///         // For the books: the app neither made these packets nor took them from an input.
///         io.brought_in(count);
///         self.taken = self.taken.wrapping_add(count as u32);
///         io.slot(0).expect(self.taken);
///     }
/// }
///
/// let queue = Arc::new(Queue::default());
/// let mut rig = Rig::new(FromQueue { queue: Arc::clone(&queue), taken: 0 }, &[], &["output"]);
/// assert!(!rig.breathe());
/// queue.add(Packet::from_bytes(b"hello").unwrap());
/// assert!(rig.breathe());
/// assert_eq!(rig.received("output"), [b"hello"]);
/// ```
///
/// # Descriptors beside a word
/// While the engine is awake only the word decides. A sleeping engine is woken by a descriptor and then pulls the app
/// once, whatever the word holds, so that the app can clear the descriptor: one that stays readable wakes the engine
/// again and again.
pub trait Watched: Send + Sync + 'static {
    /// The word that the other side changes. Without one the app is pulled in every breath while the engine is awake.
    fn word(&self) -> Option<&AtomicU32> {
        None
    }

    /// The descriptors whose readability wakes a sleeping engine, of which one is usual. Without any, a sleeping engine
    /// polls every millisecond. The engine waits for them only while it sleeps: a socket whose events somebody always
    /// waits for, as an `epoll` does, is slower.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// The engine is about to sleep: the other side must signal a descriptor from now on. The engine checks the word
    /// once more after this call.
    fn arm(&self) {}

    /// The engine is awake and checks the word: the other side need not signal a descriptor.
    fn disarm(&self) {}
}

/// Word for slots that watch nothing.
static NOTHING: AtomicU32 = AtomicU32::new(0);

/// One slot, as a breath tests it: the app is pulled if `*pointer & mask != value`.
///
/// Invariant: the pointer points at [`NOTHING`] or at the word of the value that `watched` keeps alive.
#[repr(C)]
pub(crate) struct BreathSlot {
    pub(crate) pointer: Cell<*const AtomicU32>,
    pub(crate) mask: Cell<u32>,
    pub(crate) value: Cell<u32>,
    watched: RefCell<Option<Arc<dyn Watched>>>,
}

// SAFETY: the pointer points at an atomic that any thread may read: a static one, or one inside a value that is Sync
// and moves with the slot.
unsafe impl Send for BreathSlot {}

/// How a slot wakes a sleeping engine. The variant that demands most is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WakeSource {
    /// Not at all, until the app changes the slot.
    Nothing,
    /// Through its descriptors.
    Descriptor,
    /// Not by itself: the engine must poll.
    Polling,
}

impl Default for BreathSlot {
    fn default() -> BreathSlot {
        let slot = BreathSlot {
            pointer: Cell::new(&raw const NOTHING),
            mask: Cell::new(0),
            value: Cell::new(0),
            watched: RefCell::new(None),
        };
        slot.always();
        slot
    }
}

impl BreathSlot {
    fn set(&self, pointer: *const AtomicU32, mask: u32, value: u32) {
        self.pointer.set(pointer);
        self.mask.set(mask);
        self.value.set(value);
    }

    pub(crate) fn always(&self) {
        self.set(&raw const NOTHING, 0, 1);
        self.watched.take();
    }

    pub(crate) fn never(&self) {
        self.set(&raw const NOTHING, 0, 0);
        self.watched.take();
    }

    fn watch(&self, watched: Arc<dyn Watched>, mask: u32, value: u32) {
        match watched.word() {
            Some(word) => self.set(ptr::from_ref(word), mask, value),
            None => self.set(&raw const NOTHING, 0, 1),
        }
        self.watched.replace(Some(watched));
    }

    /// Whether there is something to pull.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        // SAFETY: the type's invariant.
        let word = unsafe { &*self.pointer.get() };
        word.load(Relaxed) & self.mask.get() != self.value.get()
    }

    /// Whether a watched word is ready.
    fn is_word_ready(&self) -> bool {
        self.pointer.get() != &raw const NOTHING && self.is_ready()
    }

    /// Reads the address of the watched word again.
    fn moved(&self, value: u32) {
        if let Some(word) = self.watched.borrow().as_ref().and_then(|watched| watched.word()) {
            self.pointer.set(ptr::from_ref(word));
            self.value.set(value);
        }
    }

    /// Calls [`Watched::arm`] before the engine sleeps, or [`Watched::disarm`] after it woke.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        if let Some(watched) = &*self.watched.borrow() {
            // A panic leaves the watched value as it is.
            let _ = catch_panic(|| if asleep { watched.arm() } else { watched.disarm() });
        }
    }

    /// Moves the state of another slot into this one.
    pub(crate) fn take_over(&self, other: &BreathSlot) {
        self.set(other.pointer.get(), other.mask.get(), other.value.get());
        self.watched.replace(other.watched.take());
        other.never();
    }

    pub(crate) fn wake_source(&self) -> WakeSource {
        match &*self.watched.borrow() {
            // The word is ready but the app did not pull: nothing signals when the app can, and the descriptor may
            // already have signalled.
            Some(_) if self.is_word_ready() => WakeSource::Polling,
            Some(watched) if has_descriptors(&**watched) => WakeSource::Descriptor,
            Some(_) => WakeSource::Polling,
            None if self.is_ready() => WakeSource::Polling,
            None => WakeSource::Nothing,
        }
    }

    /// The watched value, if it has descriptors.
    pub(crate) fn watched_descriptors(&self) -> Option<WatchedDescriptors> {
        let watched = self.watched.borrow().clone()?;
        has_descriptors(&*watched).then_some(WatchedDescriptors(watched))
    }
}

fn has_descriptors(watched: &dyn Watched) -> bool {
    !descriptors(watched).is_empty()
}

/// A panic counts as no descriptors.
fn descriptors(watched: &dyn Watched) -> Vec<BorrowedFd<'_>> {
    catch_panic(|| watched.descriptors()).unwrap_or_default()
}

/// A watched value with descriptors, kept alive while the engine sleeps on it.
pub(crate) struct WatchedDescriptors(Arc<dyn Watched>);

impl WatchedDescriptors {
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        descriptors(&*self.0)
    }
}

/// A slot of an app, from [`Io::slot`](crate::Io::slot).
///
/// An app with slots is pulled only in breaths in which one of them is ready. A new slot is always ready. A setting
/// holds until the app changes it.
pub struct SlotHandle<'a>(pub(crate) &'a BreathSlot);

impl SlotHandle<'_> {
    /// Pulls in every breath.
    #[inline]
    pub fn always(&self) {
        self.0.always();
    }

    /// Never pulls for this slot: nothing will come, or not before a [tick](crate::App::tick).
    #[inline]
    pub fn never(&self) {
        self.0.never();
    }

    /// Pulls while `word & mask != value`, and wakes up for the descriptor.
    pub fn watch<W: Watched>(&self, watched: Arc<W>, mask: u32, value: u32) {
        self.0.watch(watched, mask, value);
    }

    /// Sets the value that the app has seen in the watched word: pulls when the word differs. Hot.
    #[inline]
    pub fn expect(&self, value: u32) {
        self.0.value.set(value);
    }

    /// As [`expect`](SlotHandle::expect), after the word moved, for example along a ring: calls [`Watched::word`]
    /// again. If there was a word at first there must be one now, inside what the watched value keeps alive.
    #[inline]
    pub fn moved(&self, value: u32) {
        self.0.moved(value);
    }
}

/// A descriptor without a word: for files and sockets that must be read to find out whether they hold anything.
impl Watched for std::fs::File {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.as_fd()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ring(AtomicU32);

    impl Watched for Ring {
        fn word(&self) -> Option<&AtomicU32> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_slot_is_ready_while_the_masked_word_differs_from_what_was_seen() {
        let slot = BreathSlot::default();
        assert!(slot.is_ready(), "at first");
        let ring = Arc::new(Ring(AtomicU32::new(0xabcd_0005)));
        SlotHandle(&slot).watch(Arc::clone(&ring), 0xffff, 5);
        assert!(!slot.is_ready());
        ring.0.store(0x1234_0006, Relaxed);
        assert!(slot.is_ready());
        SlotHandle(&slot).expect(6);
        assert!(!slot.is_ready());
        assert_eq!(slot.wake_source(), WakeSource::Polling);
    }

    #[test]
    fn a_watched_value_lives_as_long_as_its_slot_watches_it() {
        let slot = BreathSlot::default();
        let ring = Arc::new(Ring(AtomicU32::new(0)));
        let memory = Arc::downgrade(&ring);
        SlotHandle(&slot).watch(ring, 1, 0);
        assert!(memory.upgrade().is_some());
        let other = BreathSlot::default();
        other.take_over(&slot);
        assert!(memory.upgrade().is_some() && slot.wake_source() == WakeSource::Nothing);
        other.never();
        assert!(memory.upgrade().is_none() && !other.is_ready());
    }

    #[test]
    fn a_sleeping_engine_polls_beside_a_descriptor_while_the_word_is_ready() {
        struct Device(Ring, std::fs::File);

        impl Watched for Device {
            fn word(&self) -> Option<&AtomicU32> {
                self.0.word()
            }

            fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
                self.1.descriptors()
            }
        }

        let device = Arc::new(Device(Ring(AtomicU32::new(7)), std::fs::File::open("/dev/null").unwrap()));
        let slot = BreathSlot::default();
        SlotHandle(&slot).watch(Arc::clone(&device), u32::MAX, 7);
        assert_eq!(slot.wake_source(), WakeSource::Descriptor);
        device.0.0.store(8, Relaxed);
        assert_eq!(slot.wake_source(), WakeSource::Polling, "the app could not pull it");
        assert!(slot.watched_descriptors().is_some());
    }

    #[test]
    fn a_descriptor_without_a_word_is_pulled_while_awake_and_watched_while_asleep() {
        let slot = BreathSlot::default();
        SlotHandle(&slot).watch(Arc::new(std::fs::File::open("/dev/null").unwrap()), 0, 0);
        assert!(slot.is_ready() && slot.wake_source() == WakeSource::Descriptor);
        assert!(slot.watched_descriptors().is_some_and(|watched| watched.descriptors().len() == 1));
    }
}
