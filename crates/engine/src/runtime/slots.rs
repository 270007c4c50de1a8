//! Slots: words of memory by which the engine sees, without a call, whether an app has something to pull.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::panics::contain;

/// Something outside the engine that tells when there is something to pull: the index that the other side of a ring
/// writes, or a descriptor that becomes readable, or both.
///
/// # Example
/// An app whose packets come from a thread that shares a queue with it. The word counts what was put into the queue, so the
/// app is pulled as long as that is more than what it has taken out.
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
///         // For the app's books: it neither made them nor took them from an input.
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
/// # A descriptor beside a word
/// While the engine is awake the word alone decides. One that sleeps is woken by the descriptor and then pulls the app once,
/// whatever the word says, so that the app can let the descriptor fall silent: a descriptor that stays readable wakes the
/// engine again and again.
pub trait Watched: Send + Sync + 'static {
    /// The word that the other side changes. Without one the app is pulled in every breath of an engine that is awake.
    fn word(&self) -> Option<&AtomicU32> {
        None
    }

    /// What becomes readable when a sleeping engine is to wake up. Without one a sleeping engine looks again every
    /// millisecond.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The engine is about to sleep: from now on the other side is to use the descriptor. The word is looked at once more after
    /// this.
    fn arm(&self) {}

    /// The engine is awake again and looks at the word: the other side need not use the descriptor.
    fn disarm(&self) {}
}

/// What the slots of apps that watch nothing point at.
static NOTHING: AtomicU32 = AtomicU32::new(0);

/// One slot, as the breath tests it: the app is to be pulled if `*pointer & mask != value`.
///
/// Invariant: the pointer leads to [`NOTHING`] or to the word of what `watched` keeps alive.
#[repr(C)]
pub(crate) struct Slot {
    pub(crate) pointer: Cell<*const AtomicU32>,
    pub(crate) mask: Cell<u32>,
    pub(crate) value: Cell<u32>,
    watched: RefCell<Option<Arc<dyn Watched>>>,
}

// SAFETY: the pointer leads to an atomic that may be read on any thread: a static one, or one inside a value that is Sync
// and travels with the slot.
unsafe impl Send for Slot {}

/// What a slot means to an engine that is about to sleep, the most demanding last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Expects {
    /// Nothing, until the app says otherwise.
    Nothing,
    /// Something that its descriptor tells of.
    Descriptor,
    /// Something that no descriptor tells of.
    Polling,
}

impl Default for Slot {
    fn default() -> Slot {
        let slot = Slot {
            pointer: Cell::new(&raw const NOTHING),
            mask: Cell::new(0),
            value: Cell::new(0),
            watched: RefCell::new(None),
        };
        slot.always();
        slot
    }
}

impl Slot {
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

    /// Whether a watched word says that there is something to pull.
    fn is_overdue(&self) -> bool {
        self.pointer.get() != &raw const NOTHING && self.is_ready()
    }

    /// Asks what is watched for its word again.
    fn moved(&self, value: u32) {
        if let Some(word) = self.watched.borrow().as_ref().and_then(|watched| watched.word()) {
            self.pointer.set(ptr::from_ref(word));
            self.value.set(value);
        }
    }

    /// Tells what is watched that the engine is about to sleep, or awake again.
    pub(crate) fn tell(&self, asleep: bool) {
        if let Some(watched) = &*self.watched.borrow() {
            // What panics over it stays as it is.
            let _ = contain(|| if asleep { watched.arm() } else { watched.disarm() });
        }
    }

    /// Moves what another slot says into this one.
    pub(crate) fn take_over(&self, other: &Slot) {
        self.set(other.pointer.get(), other.mask.get(), other.value.get());
        self.watched.replace(other.watched.take());
        other.never();
    }

    pub(crate) fn expects(&self) -> Expects {
        match &*self.watched.borrow() {
            // What the word tells of was not pulled: nothing tells when the app can, and the descriptor may have told already.
            Some(_) if self.is_overdue() => Expects::Polling,
            Some(watched) if has_descriptor(&**watched) => Expects::Descriptor,
            Some(_) => Expects::Polling,
            None if self.is_ready() => Expects::Polling,
            None => Expects::Nothing,
        }
    }

    /// What the slot watches, if that has a descriptor.
    pub(crate) fn listens(&self) -> Option<Listened> {
        let watched = self.watched.borrow().clone()?;
        has_descriptor(&*watched).then_some(Listened(watched))
    }
}

/// What panics over the question has none.
fn has_descriptor(watched: &dyn Watched) -> bool {
    contain(|| watched.descriptor().is_some()).unwrap_or(false)
}

/// Something with a descriptor, kept alive while the engine sleeps on it.
pub(crate) struct Listened(Arc<dyn Watched>);

impl Listened {
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        contain(|| self.0.descriptor()).flatten()
    }
}

/// One of an app's own slots, from [`Io::slot`](crate::Io::slot).
///
/// An app that has slots is pulled only in breaths in which one of them says that there is something to pull; at first
/// each says so. What an app sets holds until it sets something else.
pub struct SlotHandle<'a>(pub(crate) &'a Slot);

impl SlotHandle<'_> {
    /// Pull in every breath.
    #[inline]
    pub fn always(&self) {
        self.0.always();
    }

    /// Do not pull on this slot's account: nothing will come, or not before a [tick](crate::App::tick).
    #[inline]
    pub fn never(&self) {
        self.0.never();
    }

    /// Pull when `word & mask` is not `value`, and wake up for its descriptor.
    pub fn watch<W: Watched>(&self, watched: Arc<W>, mask: u32, value: u32) {
        self.0.watch(watched, mask, value);
    }

    /// What the watched word has been seen to say: pull when it says something else. Hot.
    #[inline]
    pub fn expect(&self, value: u32) {
        self.0.value.set(value);
    }

    /// The same when the word is elsewhere now, as along a ring: asks what is watched for [its word](Watched::word), which must
    /// be there if it was there at first, and lie in what the value keeps alive.
    #[inline]
    pub fn moved(&self, value: u32) {
        self.0.moved(value);
    }
}

/// Only a descriptor: for files and sockets that must be read to see whether they hold anything.
impl Watched for std::fs::File {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
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
        let slot = Slot::default();
        assert!(slot.is_ready(), "at first");
        let ring = Arc::new(Ring(AtomicU32::new(0xabcd_0005)));
        SlotHandle(&slot).watch(Arc::clone(&ring), 0xffff, 5);
        assert!(!slot.is_ready());
        ring.0.store(0x1234_0006, Relaxed);
        assert!(slot.is_ready());
        SlotHandle(&slot).expect(6);
        assert!(!slot.is_ready());
        assert_eq!(slot.expects(), Expects::Polling);
    }

    #[test]
    fn what_is_watched_lives_as_long_as_the_slot_looks_at_it() {
        let slot = Slot::default();
        let ring = Arc::new(Ring(AtomicU32::new(0)));
        let memory = Arc::downgrade(&ring);
        SlotHandle(&slot).watch(ring, 1, 0);
        assert!(memory.upgrade().is_some());
        let other = Slot::default();
        other.take_over(&slot);
        assert!(memory.upgrade().is_some() && slot.expects() == Expects::Nothing);
        other.never();
        assert!(memory.upgrade().is_none() && !other.is_ready());
    }

    #[test]
    fn a_descriptor_is_not_relied_on_while_the_word_says_that_there_is_something_to_pull() {
        struct Device(Ring, std::fs::File);

        impl Watched for Device {
            fn word(&self) -> Option<&AtomicU32> {
                self.0.word()
            }

            fn descriptor(&self) -> Option<BorrowedFd<'_>> {
                self.1.descriptor()
            }
        }

        let device = Arc::new(Device(Ring(AtomicU32::new(7)), std::fs::File::open("/dev/null").unwrap()));
        let slot = Slot::default();
        SlotHandle(&slot).watch(Arc::clone(&device), u32::MAX, 7);
        assert_eq!(slot.expects(), Expects::Descriptor);
        device.0.0.store(8, Relaxed);
        assert_eq!(slot.expects(), Expects::Polling, "the app could not pull it");
        assert!(slot.listens().is_some());
    }

    #[test]
    fn a_descriptor_without_a_word_is_pulled_while_awake_and_listened_to_asleep() {
        let slot = Slot::default();
        SlotHandle(&slot).watch(Arc::new(std::fs::File::open("/dev/null").unwrap()), 0, 0);
        assert!(slot.is_ready() && slot.expects() == Expects::Descriptor);
        assert!(slot.listens().is_some_and(|listened| listened.descriptor().is_some()));
    }
}
