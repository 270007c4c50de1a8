//! The bells of a driver's queues: how an engine sees that the device has used a buffer.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, fence};

use bellows_sys::wake::PeerEvent;

use super::ring::{AT_INDEX, DESCRIPTOR, DISABLE, ENABLE, Places, USED};
use super::space::Space;

/// A word of memory that changes when the device has used a buffer, and a descriptor that becomes readable then on
/// request.
pub struct UsedBell {
    space: Arc<Space>,
    packed: bool,
    event_idx: bool,
    size: u16,
    places: Places,
    call: Option<PeerEvent>,
    /// Position of the next used buffer: index in the lower half, wrap counter in bit 16.
    next: AtomicU32,
}

impl UsedBell {
    pub(super) fn new(
        space: Arc<Space>,
        packed: bool,
        event_idx: bool,
        size: u16,
        places: Places,
        call: Option<PeerEvent>,
    ) -> UsedBell {
        let bell = UsedBell { space, packed, event_idx, size, places, call, next: AtomicU32::new(0) };
        bell.moved(0, true);
        bell.disarm();
        bell
    }

    #[inline(always)]
    pub(super) fn moved(&self, index: u16, wrap: bool) {
        self.next.store(u32::from(index) | u32::from(wrap) << 16, Relaxed);
    }

    fn next(&self) -> (u16, bool) {
        let next = self.next.load(Relaxed);
        (next as u16, next >> 16 != 0)
    }

    /// The word: `word & mask != quiet` when a buffer was used. It moves along a packed ring.
    pub fn word(&self) -> &AtomicU32 {
        if self.packed {
            self.space.word(self.places.descriptors + usize::from(self.next().0) * DESCRIPTOR + 12)
        } else {
            self.space.word(self.places.device)
        }
    }

    /// The bits of the word that count.
    pub fn mask(&self) -> u32 {
        if self.packed { u32::from(USED) << 16 } else { 0xffff_0000 }
    }

    /// The value of these bits while nothing has been used.
    pub fn quiet(&self) -> u32 {
        let (index, wrap) = self.next();
        match self.packed {
            true if wrap => 0,
            true => self.mask(),
            false => u32::from(index) << 16,
        }
    }

    /// The descriptor that becomes readable.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.call.as_ref().map(PeerEvent::as_fd)
    }

    /// Asks the device for notifications, before an engine sleeps. Check the word again after this call.
    pub fn arm(&self) {
        let (index, wrap) = self.next();
        if self.packed {
            let flags = if self.event_idx { AT_INDEX } else { ENABLE };
            let at = index | u16::from(wrap) << 15;
            self.say_packed(at, flags);
        } else if self.event_idx {
            self.used_event(index);
        } else {
            self.space.half(self.places.driver).store(0, Relaxed);
        }
        fence(SeqCst);
    }

    /// Tells the device not to notify, and clears the descriptor.
    pub fn disarm(&self) {
        if self.packed {
            self.say_packed(0, DISABLE);
        } else if self.event_idx {
            // An index that has been passed only comes again after 65,536 buffers.
            self.used_event(self.next().0.wrapping_sub(1));
        } else {
            self.space.half(self.places.driver).store(1_u16.to_le(), Relaxed);
        }
        if let Some(call) = &self.call {
            call.clear();
        }
    }

    fn say_packed(&self, at: u16, flags: u16) {
        self.space.word(self.places.driver).store((u32::from(at) | u32::from(flags) << 16).to_le(), Relaxed);
    }

    fn used_event(&self, index: u16) {
        self.space.half(self.places.driver + 4 + 2 * usize::from(self.size)).store(index.to_le(), Relaxed);
    }
}
