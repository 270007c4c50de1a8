//! The driver's side of a ring: chains are added, made available, and taken back.
//!
//! The state of chains is private. From the shared memory the driver reads only what the device has to report, and
//! checks it.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use bellows_ipc::notify::Notifier;
use bellows_sys::wake::PeerEvent;

use super::bell::UsedBell;
use super::space::Space;
use super::{ADDRESS, DeviceError};
use crate::features::Features;
use crate::ring::Areas;

/// Flags of descriptors (specification, 2.7.5 and 2.8).
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;
pub(super) const AVAILABLE: u16 = 1 << 7;
pub(super) const USED: u16 = 1 << 15;

/// Packed rings: when a side wants notifications (specification, 2.8.14).
pub(super) const ENABLE: u16 = 0;
pub(super) const DISABLE: u16 = 1;
pub(super) const AT_INDEX: u16 = 2;

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: usize = 16;

/// A part of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Its offset in the driver's memory.
    pub(super) at: usize,
    pub(super) length: u32,
    /// [`WRITE`] or [`INDIRECT`] or none.
    pub(super) flags: u16,
}

/// A chain that the device has given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsedChain {
    pub(super) token: u16,
    /// Bytes that the device has written; `None` if a later chain stands for this one, and all of it was used.
    pub(super) length: Option<u32>,
}

/// A first-in first-out queue of numbers, at most as many as the ring has descriptors.
pub(super) struct Fifo {
    items: Box<[u16]>,
    first: usize,
    count: usize,
}

impl Fifo {
    pub(super) fn empty(capacity: u16) -> Fifo {
        Fifo { items: vec![0; capacity.into()].into(), first: 0, count: 0 }
    }

    /// A queue of all numbers below `capacity`.
    pub(super) fn full(capacity: u16) -> Fifo {
        Fifo { items: (0..capacity).collect(), first: 0, count: capacity.into() }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline(always)]
    pub(super) fn push(&mut self, item: u16) {
        let place = self.first + self.count;
        let place = if place >= self.items.len() { place - self.items.len() } else { place };
        self.items[place] = item;
        self.count += 1;
    }

    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<u16> {
        self.count = self.count.checked_sub(1)?;
        let item = self.items[self.first];
        self.first = if self.first + 1 == self.items.len() { 0 } else { self.first + 1 };
        Some(item)
    }
}

/// The driver's state of a chain that the device has.
#[derive(Clone, Copy, Default)]
struct Flight {
    /// Ring descriptors that it takes; 0 for none.
    descriptors: u16,
    token: u16,
}

/// Offsets of the parts of a ring in the driver's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) descriptors: usize,
    pub(super) driver: usize,
    pub(super) device: usize,
}

impl Places {
    pub(super) fn areas(self) -> Areas {
        let [descriptors, driver, device] = [self.descriptors, self.driver, self.device].map(|at| ADDRESS + at as u64);
        Areas { descriptors, driver, device }
    }
}

/// The parts of a ring.
pub(super) struct RingSetup {
    pub(super) space: Arc<Space>,
    pub(super) features: Features,
    pub(super) size: u16,
    pub(super) places: Places,
    /// Notifies the device.
    pub(super) kick: Option<Notifier>,
    /// Notifications from the device.
    pub(super) call: Option<PeerEvent>,
}

pub(super) struct Ring {
    pub(super) space: Arc<Space>,
    packed: bool,
    in_order: bool,
    event_idx: bool,
    size: u16,
    places: Places,
    kick: Option<Notifier>,
    pub(super) kicks: u64,
    pub(super) bell: Arc<UsedBell>,
    /// By head (split) or buffer id (packed).
    flights: Box<[Flight]>,
    /// Split: free descriptors, and the next descriptor in the chain of each.
    free: Fifo,
    links: Box<[u16]>,
    /// With in-order: heads or ids of the chains that the device has.
    order: Fifo,
    /// The last chain of a batch whose first chains have been given back, and its length.
    batch: Option<(u16, u32)>,
    /// Split: the next index; packed: the next descriptor.
    next: u16,
    wrap: bool,
    /// The position at the last publication.
    published: u16,
    /// Packed: descriptors that the device has, or that are added.
    taken: u16,
    /// Packed: the head that is not yet visible, and the word that makes it visible.
    hidden: Option<(u16, u64)>,
    /// Split: the next used entry; packed: the next used descriptor.
    used: u16,
    used_wrap: bool,
    /// Split: the used index, as last read.
    seen: u16,
    /// Chains that the device has.
    in_flight: u16,
}

impl Ring {
    pub(super) fn new(setup: RingSetup) -> Ring {
        let RingSetup { space, features, size, places, kick, call } = setup;
        let packed = features.has(Features::RING_PACKED);
        let event_idx = features.has(Features::EVENT_IDX);
        let bell = UsedBell::new(Arc::clone(&space), packed, event_idx, size, places, call);
        Ring {
            packed,
            in_order: features.has(Features::IN_ORDER),
            event_idx,
            size,
            places,
            kick,
            kicks: 0,
            bell: Arc::new(bell),
            flights: vec![Flight::default(); size.into()].into(),
            free: Fifo::full(size),
            links: vec![0; size.into()].into(),
            order: Fifo::empty(size),
            batch: None,
            next: 0,
            wrap: true,
            published: 0,
            taken: 0,
            hidden: None,
            used: 0,
            used_wrap: true,
            seen: 0,
            in_flight: 0,
            space,
        }
    }

    /// Number of descriptors that further chains may take.
    #[inline(always)]
    pub(super) fn free(&self) -> usize {
        if self.packed { usize::from(self.size - self.taken) } else { self.free.len() }
    }

    /// Adds a chain without making it available. The ring must have enough free descriptors, and the device no chain
    /// with this token, which is below the ring's size.
    #[inline(always)]
    pub(super) fn add(&mut self, token: u16, segments: &[Segment]) {
        let id = if self.packed { self.add_packed(token, segments) } else { self.add_split(segments) };
        self.flights[usize::from(id)] = Flight { descriptors: segments.len() as u16, token };
        self.in_flight += 1;
        if self.in_order {
            self.order.push(id);
        }
    }

    #[inline(always)]
    fn write_descriptor(&self, index: u16, segment: Segment, word: u64) {
        let at = self.places.descriptors + usize::from(index) * DESCRIPTOR;
        self.space.double(at).store((ADDRESS + segment.at as u64).to_le(), Relaxed);
        self.space.double(at + 8).store(word.to_le(), Relaxed);
    }

    #[inline(always)]
    fn add_split(&mut self, segments: &[Segment]) -> u16 {
        let head = self.free.pop().unwrap_or_default();
        let mut index = head;
        for (number, segment) in segments.iter().enumerate() {
            let mut word = u64::from(segment.length) | u64::from(segment.flags) << 32;
            let this = index;
            if number + 1 < segments.len() {
                index = self.free.pop().unwrap_or_default();
                self.links[usize::from(this)] = index;
                word |= u64::from(NEXT) << 32 | u64::from(index) << 48;
            }
            self.write_descriptor(this, *segment, word);
        }
        let slot = usize::from(self.next & (self.size - 1));
        self.space.half(self.places.driver + 4 + 2 * slot).store(head.to_le(), Relaxed);
        self.next = self.next.wrapping_add(1);
        head
    }

    #[inline(always)]
    fn add_packed(&mut self, token: u16, segments: &[Segment]) -> u16 {
        for (number, segment) in segments.iter().enumerate() {
            let state = if self.wrap { AVAILABLE } else { USED };
            let more = if number + 1 < segments.len() { NEXT } else { 0 };
            let flags = segment.flags | state | more;
            let word = u64::from(segment.length) | u64::from(token) << 32 | u64::from(flags) << 48;
            if self.hidden.is_none() {
                // The descriptors that follow are not visible until the first head is.
                let at = self.places.descriptors + usize::from(self.next) * DESCRIPTOR;
                self.space.double(at).store((ADDRESS + segment.at as u64).to_le(), Relaxed);
                self.hidden = Some((self.next, word));
            } else {
                self.write_descriptor(self.next, *segment, word);
            }
            self.next += 1;
            if self.next == self.size {
                self.next = 0;
                self.wrap = !self.wrap;
            }
        }
        self.taken += segments.len() as u16;
        token
    }

    /// Makes the added chains available, and notifies the device if it wants that.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        if self.packed {
            let Some((head, word)) = self.hidden.take() else { return };
            let at = self.places.descriptors + usize::from(head) * DESCRIPTOR;
            self.space.double(at + 8).store(word.to_le(), Release);
        } else {
            if self.next == self.published {
                return;
            }
            self.space.half(self.places.driver + 2).store(self.next.to_le(), Release);
        }
        let old = std::mem::replace(&mut self.published, self.next);
        if self.kick.is_some() {
            self.tell(old);
        }
    }

    #[inline(never)]
    fn tell(&mut self, old: u16) {
        // The published chains must be visible before this check: the device first asks and then checks again.
        fence(SeqCst);
        let wanted = if self.packed { self.wanted_packed(old) } else { self.wanted_split(old) };
        if wanted && let Some(kick) = &self.kick {
            kick.notify();
            self.kicks += 1;
        }
    }

    fn wanted_split(&self, old: u16) -> bool {
        if self.event_idx {
            let event = self.space.half(self.places.device + 4 + 8 * usize::from(self.size)).load(Relaxed);
            let event = u16::from_le(event);
            return self.next.wrapping_sub(event).wrapping_sub(1) < self.next.wrapping_sub(old);
        }
        u16::from_le(self.space.half(self.places.device).load(Relaxed)) & 1 == 0
    }

    fn wanted_packed(&self, old: u16) -> bool {
        let word = u32::from_le(self.space.word(self.places.device).load(Relaxed));
        let (at, flags) = (word as u16, (word >> 16) as u16);
        if !self.event_idx || flags != AT_INDEX {
            return flags != DISABLE;
        }
        // Positions relative to the last publication; those of the next round come after those of this one.
        let size = u32::from(self.size);
        let (old, new, event) = (u32::from(old), u32::from(self.next), u32::from(at & 0x7fff));
        let wrapped = new <= old;
        let new = if wrapped { new + size } else { new };
        let this_round = (at >> 15 != 0) == (self.wrap ^ wrapped);
        let event = if this_round { event } else { event + size };
        (old..new).contains(&event)
    }

    /// The next chain that the device has used.
    ///
    /// # Errors
    /// The device has written something invalid.
    #[inline(always)]
    pub(super) fn next_used(&mut self) -> Result<Option<UsedChain>, DeviceError> {
        if self.in_flight == 0 {
            return Ok(None);
        }
        let Some((id, length)) = (match self.batch {
            Some(batch) => Some(batch),
            None if self.packed => self.used_packed()?,
            None => self.used_split()?,
        }) else {
            return Ok(None);
        };
        if self.in_order { self.oldest(id, length).map(Some) } else { Ok(Some(self.reclaim(id, Some(length)))) }
    }

    /// The oldest chain; the chain with this id stands for it if it is another one.
    #[inline(always)]
    fn oldest(&mut self, id: u16, length: u32) -> Result<UsedChain, DeviceError> {
        // The split ring's index also counts the chains of a batch.
        if !self.packed && self.used == self.seen {
            return Err(DeviceError::IndexJump);
        }
        let oldest = self.order.pop().ok_or(DeviceError::UnknownBuffer)?;
        let last = oldest == id;
        self.batch = (!last).then_some((id, length));
        Ok(self.reclaim(oldest, last.then_some(length)))
    }

    /// The contents of the next used entry.
    #[inline(always)]
    fn used_split(&mut self) -> Result<Option<(u16, u32)>, DeviceError> {
        if self.used == self.seen {
            self.seen = u16::from_le(self.space.half(self.places.device + 2).load(Acquire));
            let count = self.seen.wrapping_sub(self.used);
            if count == 0 {
                return Ok(None);
            }
            if count > self.in_flight {
                return Err(DeviceError::IndexJump);
            }
        }
        let slot = usize::from(self.used & (self.size - 1));
        // An entry is only aligned to four bytes.
        let entry = self.places.device + 4 + 8 * slot;
        let id = u32::from_le(self.space.word(entry).load(Relaxed));
        let length = u32::from_le(self.space.word(entry + 4).load(Relaxed));
        self.known(id).map(|id| Some((id, length)))
    }

    #[inline(always)]
    fn used_packed(&mut self) -> Result<Option<(u16, u32)>, DeviceError> {
        let at = self.places.descriptors + usize::from(self.used) * DESCRIPTOR + 8;
        let word = u64::from_le(self.space.double(at).load(Acquire));
        let flags = (word >> 48) as u16;
        if (flags & AVAILABLE != 0) != self.used_wrap || (flags & USED != 0) != self.used_wrap {
            return Ok(None);
        }
        let length = if flags & WRITE != 0 { word as u32 } else { 0 };
        self.known(u32::from((word >> 32) as u16)).map(|id| Some((id, length)))
    }

    /// The id, if the device has a chain with it.
    #[inline(always)]
    fn known(&self, id: u32) -> Result<u16, DeviceError> {
        match self.flights.get(id as usize) {
            Some(flight) if flight.descriptors > 0 => Ok(id as u16),
            _ => Err(DeviceError::UnknownBuffer),
        }
    }

    /// Takes back a chain.
    #[inline(always)]
    fn reclaim(&mut self, id: u16, length: Option<u32>) -> UsedChain {
        let Flight { descriptors, token } = std::mem::take(&mut self.flights[usize::from(id)]);
        self.in_flight -= 1;
        if self.packed {
            self.taken -= descriptors;
            let next = u32::from(self.used) + u32::from(descriptors);
            let around = next >= u32::from(self.size);
            self.used = if around { next - u32::from(self.size) } else { next } as u16;
            self.used_wrap ^= around;
        } else {
            let mut index = id;
            for _ in 0..descriptors {
                self.free.push(index);
                index = self.links[usize::from(index)];
            }
            self.used = self.used.wrapping_add(1);
        }
        UsedChain { token, length }
    }

    /// Ends a batch: sets the bell to the position of the next used chain.
    #[inline(always)]
    pub(super) fn update_bell(&self) {
        self.bell.moved(self.used, self.used_wrap);
    }
}
