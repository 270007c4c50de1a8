//! Notifications: of the driver about used buffers, of the device about available ones (specification, 2.7.7 to 2.7.10,
//! 2.8.10).

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, fence};

use bellows_sys::wake::PeerEvent;

use super::core::Cursor;
use super::guest::{AVAILABLE, Area, DESCRIPTOR};
use super::options::{RingKind, RingOptions};
use crate::memory::Memory;

/// Split rings: the other side does not want notifications.
const NO_NOTIFICATION: u16 = 1;

/// Packed rings: notify always, never, or at an index.
const ENABLE: u16 = 0;
const DISABLE: u16 = 1;
const AT_INDEX: u16 = 2;

/// Whether `event` was passed on the way from `old` to `new` (specification, 2.7.10.1).
fn passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// Whether the driver wants to be notified of the latest publication.
#[inline(always)]
pub(super) fn wanted<K: RingKind>(driver: Area, size: u16, used: Cursor, signalled: &mut Option<u16>) -> bool {
    // The used chains must be visible before this check: the driver first asks and then checks again.
    fence(SeqCst);
    let old = signalled.replace(used.index);
    if K::PACKED {
        // SAFETY: the driver area of a packed ring is four bytes at a multiple of four.
        let word = u32::from_le(unsafe { driver.word(0) }.load(Relaxed));
        let (at, flags) = (word as u16, (word >> 16) as u16 & 3);
        if K::EVENT_IDX && flags == AT_INDEX {
            return old.is_none_or(|old| passed_packed(at, size, used, old));
        }
        return flags == ENABLE;
    }
    if K::EVENT_IDX {
        // SAFETY: the index follows the ring of heads in the driver area.
        let event = u16::from_le(unsafe { driver.half(4 + 2 * usize::from(size)) }.load(Relaxed));
        old.is_none_or(|old| passed(event, used.index, old))
    } else {
        // SAFETY: the driver area of a split ring starts with its flags.
        u16::from_le(unsafe { driver.half(0) }.load(Relaxed)) & NO_NOTIFICATION == 0
    }
}

/// The same for positions of a packed ring, `at` with the wrap counter in its upper bit.
fn passed_packed(at: u16, size: u16, used: Cursor, old: u16) -> bool {
    let (mut event, new) = (at & 0x7fff, used.index);
    let old = if new <= old { old.wrapping_sub(size) } else { old };
    if (at >> 15 != 0) != used.wrap {
        event = event.wrapping_sub(size);
    }
    passed(event, new, old)
}

/// The doorbell by which an engine sees that a ring has work: a word of memory while it is awake, a descriptor while it
/// sleeps.
pub struct Doorbell {
    _memory: Arc<Memory>,
    options: RingOptions,
    size: u16,
    descriptors: NonNull<u8>,
    driver: Area,
    device: Area,
    kick: Option<PeerEvent>,
    /// Position at which the device continues: index in the lower half, wrap counter in bit 16.
    next: AtomicU32,
}

// SAFETY: the pointers lead into memory that the value keeps mapped, and only to data that is accessed through atomics.
unsafe impl Send for Doorbell {}
// SAFETY: as above.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    pub(super) fn new(
        memory: &Arc<Memory>,
        options: RingOptions,
        size: u16,
        areas: [NonNull<u8>; 3],
        kick: Option<PeerEvent>,
        next: Cursor,
    ) -> Doorbell {
        let [descriptors, driver, device] = areas;
        let doorbell = Doorbell {
            _memory: Arc::clone(memory),
            options,
            size,
            descriptors,
            driver: Area(driver),
            device: Area(device),
            kick,
            next: AtomicU32::new(0),
        };
        doorbell.moved(next);
        doorbell.disarm();
        doorbell
    }

    /// Sets the position at which the device continues.
    #[inline(always)]
    pub(super) fn moved(&self, next: Cursor) {
        self.next.store(u32::from(next.index) | u32::from(next.wrap) << 16, Relaxed);
    }

    fn next(&self) -> Cursor {
        let next = self.next.load(Relaxed);
        Cursor { index: next as u16, wrap: next >> 16 != 0 }
    }

    /// The word that changes when the driver makes a buffer available: `word & mask != quiet`. It moves along a packed
    /// ring.
    pub fn word(&self) -> &AtomicU32 {
        let (area, offset) = if self.options.packed {
            (Area(self.descriptors), usize::from(self.next().index) * DESCRIPTOR + 12)
        } else {
            (self.driver, if self.index_is_low() { 2 } else { 0 })
        };
        // SAFETY: descriptors are aligned to 16 bytes and the position is below the size; a driver area starts with
        // flags, index and at least one head, two bytes each, and is aligned to four bytes or to two and not four.
        unsafe { area.word(offset) }
    }

    /// Whether the index of a split ring is the lower half of its aligned word, which depends on the area's address.
    fn index_is_low(&self) -> bool {
        !self.driver.0.cast::<u32>().is_aligned()
    }

    /// The bits of the word that count.
    pub fn mask(&self) -> u32 {
        match self.options.packed {
            true => u32::from(AVAILABLE) << 16,
            false if self.index_is_low() => 0x0000_ffff,
            false => 0xffff_0000,
        }
    }

    /// The value of these bits while nothing is available.
    pub fn quiet(&self) -> u32 {
        let next = self.next();
        match self.options.packed {
            true if next.wrap => 0,
            true => self.mask(),
            false if self.index_is_low() => next.index.into(),
            false => u32::from(next.index) << 16,
        }
    }

    /// The descriptor that becomes readable when the driver notifies us; `None` if it never does.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.kick.as_ref().map(PeerEvent::as_fd)
    }

    /// Asks the driver for a notification when it makes a buffer available, before an engine sleeps. Check the word
    /// again after this call.
    pub fn arm(&self) {
        let next = self.next();
        if self.options.packed {
            let flags = if self.options.event_idx { AT_INDEX } else { ENABLE };
            let at = next.index | u16::from(next.wrap) << 15;
            // SAFETY: the device area of a packed ring is four bytes at a multiple of four.
            unsafe { self.device.word(0) }.store((u32::from(at) | u32::from(flags) << 16).to_le(), Relaxed);
        } else if self.options.event_idx {
            self.event().store(next.index.to_le(), Relaxed);
        } else {
            // SAFETY: the device area of a split ring starts with its flags.
            unsafe { self.device.half(0) }.store(0, Relaxed);
        }
        fence(SeqCst);
    }

    /// Tells the driver not to notify, and clears the descriptor.
    pub fn disarm(&self) {
        if self.options.packed {
            // SAFETY: as in arm().
            unsafe { self.device.word(0) }.store((u32::from(DISABLE) << 16).to_le(), Relaxed);
        } else if self.options.event_idx {
            // An index that has been passed: it comes again after 65,536 buffers, which is rare enough.
            self.event().store(self.next().index.wrapping_sub(1).to_le(), Relaxed);
        } else {
            // SAFETY: as in arm().
            unsafe { self.device.half(0) }.store(NO_NOTIFICATION.to_le(), Relaxed);
        }
        if let Some(kick) = &self.kick {
            kick.clear();
        }
    }

    fn event(&self) -> &std::sync::atomic::AtomicU16 {
        // SAFETY: the index follows the used ring, eight bytes an entry, in the device area.
        unsafe { self.device.half(4 + 8 * usize::from(self.size)) }
    }
}
