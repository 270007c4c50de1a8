//! The common part of all loops: a ring's position, the chains that a call has taken, and how they are given back.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use bellows_blit::Blitter;
use bellows_ipc::notify::Notifier;
use bellows_packet::{DATA_ROOM, LargeShare, Offload, Packet};
use bellows_sys::cache::{prefetch, prefetch_to_write};

use super::error::RingError;
use super::guest::{AVAILABLE, Area, DESCRIPTOR, Descriptor, INDIRECT, NEXT, USED, WRITE, Window, write_u64};
use super::notify::{self, Doorbell};
use super::options::{RingKind, RingOptions};
use super::{Counters, Position};
use crate::features::Features;
use crate::inflight::{Inflight, kill};
use crate::log::Log;
use crate::memory::Memory;

/// Maximum number of entries of an indirect table. Linux and QEMU make no longer ones.
const MAX_TABLE: usize = 1_024;

/// Maximum number of buffers of one chain, and of chains for one packet. A GSO packet of 64 KiB in pages of 4 KiB has
/// 18 buffers; receive buffers of 256 bytes hold one in 257.
pub(super) const MAX_PIECES: usize = 256;

/// Maximum steps of a call for each packet of its burst, whatever the driver has put into the ring. A chain,
/// descriptor, table or piece of a buffer is one step; chains that take more steps count as several packets. A header
/// and data in a table that is in another region than they are take six.
pub const STEPS_PER_PACKET: usize = 8;

/// Maximum further steps of a call: those of the longest packet, which may be the last of the call. Each piece of up to
/// two chains of 256 can take a descriptor that is in two regions, and be a part of a buffer.
pub const STEPS_PER_CALL: usize = 2 * MAX_PIECES * 5;

/// Bytes that count as one packet.
const BYTES_PER_PACKET: usize = DATA_ROOM;

/// Maximum capacity for writes recorded for the log that is kept after a call.
const KEPT_NOTES: usize = 1_024;

/// How many descriptors the loops look ahead: as many as fit into a cache line. More of a packed ring would reach lines
/// that the driver is still writing.
pub(super) const AHEAD: u16 = 4;

/// A position in a ring. Split rings: a free-running index; packed ones: a descriptor, and the wrap counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) index: u16,
    pub(super) wrap: bool,
}

impl Cursor {
    /// Advances by one chain of a split ring, or by the descriptors of one of a packed ring.
    #[inline(always)]
    pub(super) fn advance<K: RingKind>(&mut self, descriptors: u16, size: u16) {
        if K::PACKED {
            // Both are at most 32,768, so the sum has 17 bits.
            let next = u32::from(self.index) + u32::from(descriptors);
            let around = next >= u32::from(size);
            self.index = if around { next - u32::from(size) } else { next } as u16;
            self.wrap ^= around;
        } else {
            *self = self.after(1);
        }
    }

    /// The position `chains` chains further on in a split ring.
    #[inline(always)]
    fn after(self, chains: usize) -> Cursor {
        Cursor { index: self.index.wrapping_add(chains as u16), ..self }
    }

    /// The index of this position of a packed ring in two rounds, after which the wrap counter repeats.
    fn place(self, size: u32) -> u32 {
        u32::from(self.index) + if self.wrap { 0 } else { size }
    }

    /// The number of descriptors of a packed ring from `other` to this position, modulo two rounds.
    #[cold]
    fn ahead_of(self, other: Cursor, size: u16) -> u32 {
        let size = u32::from(size);
        (self.place(size) + 2 * size - other.place(size)) % (2 * size)
    }

    /// The position `descriptors` descriptors back in a packed ring, fewer than two rounds.
    #[cold]
    #[inline(never)]
    fn before(self, descriptors: u32, size: u16) -> Cursor {
        let size = u32::from(size);
        let place = (self.place(size) + 2 * size - descriptors) % (2 * size);
        Cursor { index: (place % size) as u16, wrap: place < size }
    }
}

/// A part of a buffer.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) host: *mut u8,
    pub(super) length: u32,
}

/// The result of a walk along a chain; its buffers are among the pieces.
#[derive(Clone, Copy)]
pub(super) struct Chain {
    /// The driver's number for it: its head, or the buffer id of a packed ring.
    pub(super) id: u16,
    /// Number of ring descriptors that it takes.
    pub(super) descriptors: u16,
    /// Bytes in all of its buffers.
    pub(super) length: u64,
}

/// The header and data of a chain in a common layout.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) header: *mut u8,
    pub(super) data: *mut u8,
    /// Bytes of data, or room for them.
    pub(super) room: u32,
    pub(super) chain: Chain,
}

/// The progress of a call.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    /// Position of the next chain. For a split ring, position of the first one: each chain takes one place, so a loop
    /// only needs to keep the count of chains.
    available: Cursor,
    /// How far the used descriptors of a packed ring are behind, in descriptors: 0 if everything taken has been used,
    /// which is the case unless another device left the ring.
    behind: u32,
    /// Chains taken.
    pub(super) chains: usize,
    /// The last of them, if one entry will stand for all.
    last: u16,
    /// The second word of the first used descriptor of a packed ring. It is written last, because a driver that has
    /// seen it goes on to the others, whether they belong to one packet or not.
    first: u64,
}

impl Progress {
    /// Position of the next chain.
    #[inline(always)]
    pub(super) fn available<K: RingKind>(&self) -> Cursor {
        if K::PACKED { self.available } else { self.available.after(self.chains) }
    }
}

/// One ring.
pub(super) struct Core {
    pub(super) memory: Arc<Memory>,
    pub(super) features: Features,
    pub(super) options: RingOptions,
    pub(super) descriptors: NonNull<u8>,
    pub(super) driver: Area,
    pub(super) device: Area,
    pub(super) size: u16,
    /// The size minus one: the mask for an index of a split ring, whose size is a power of two.
    mask: u16,
    pub(super) available: Cursor,
    pub(super) used: Cursor,
    pub(super) window: Window,
    pub(super) blitter: Blitter,
    pub(super) pieces: Vec<Piece>,
    /// The chains for one packet.
    pub(super) chains: Vec<Chain>,
    /// Descriptors, entries and pieces that this call's walks have visited.
    pub(super) visited: usize,
    /// Whether a call has begun, and not returned.
    pub(super) is_in_call: bool,
    /// Packets of its burst that the last call has spent; during a call, the cost of long chains beyond one packet
    /// each.
    pub(super) spent: usize,
    /// Packets of the burst for which no chain waited when the call began: they pay for long chains first.
    pub(super) spare: usize,
    /// All that any call has visited, for tests of its bounds.
    #[cfg(debug_assertions)]
    pub(super) steps: u64,
    /// The offload in the current packet's header, if the packet has one.
    pub(super) offload: Offload,
    /// Used descriptors of a packed ring, by index, to write at the end of the call: those of a receive queue, whose
    /// driver polls the lines, so that each earlier store would have to fetch the line again; and all if the ring is
    /// inflight-tracked, where none may be visible before it is announced.
    later: Vec<(u16, u64)>,
    pub(super) call: Option<Notifier>,
    /// The quota of large buffers; `None` for the shared one.
    pub(super) share: Option<Arc<LargeShare>>,
    /// The used index at the last notification of the driver, or when it would have been notified.
    pub(super) signalled: Option<u16>,
    pub(super) doorbell: Arc<Doorbell>,
    pub(super) counters: Counters,
    pub(super) error: Option<RingError>,
    pub(super) log: Option<WriteLog>,
    pub(super) inflight: Option<Inflight>,
}

/// The record of writes, while somebody wants to know the pages that they hit.
pub(super) struct WriteLog {
    pub(super) log: Arc<Log>,
    /// Where writes into the ring itself are logged: the guest address of the device area, or of a packed ring's
    /// descriptors.
    pub(super) used: Option<u64>,
    /// Writes into buffers in this call: guest addresses and lengths.
    dirty: Vec<(u64, u64)>,
}

impl WriteLog {
    pub(super) fn new(log: Arc<Log>, used: Option<u64>) -> WriteLog {
        WriteLog { log, used, dirty: Vec::new() }
    }
}

// SAFETY: the pointers lead into the memory that the value keeps mapped; it is accessed only through atomics and
// volatile accesses.
unsafe impl Send for Core {}

impl Core {
    pub(super) fn new(setup: super::Setup, options: RingOptions, areas: [NonNull<u8>; 3]) -> Core {
        let [descriptors, driver, device] = areas;
        let (available, used) = match setup.position {
            Position::Split { avail, used } => {
                (Cursor { index: avail, wrap: true }, Cursor { index: used, wrap: true })
            }
            Position::Packed { avail, avail_wrap, used, used_wrap } => {
                (Cursor { index: avail, wrap: avail_wrap }, Cursor { index: used, wrap: used_wrap })
            }
        };
        let doorbell = Doorbell::new(&setup.memory, options, setup.size, areas, setup.kick, available);
        Core {
            features: setup.features,
            options,
            descriptors,
            driver: Area(driver),
            device: Area(device),
            size: setup.size,
            mask: setup.size.wrapping_sub(1),
            available,
            used,
            window: Window::NONE,
            blitter: Blitter::new(),
            pieces: Vec::with_capacity(2 * MAX_PIECES),
            chains: Vec::with_capacity(MAX_PIECES),
            visited: 0,
            is_in_call: false,
            spent: 0,
            spare: 0,
            #[cfg(debug_assertions)]
            steps: 0,
            offload: Offload::default(),
            later: Vec::with_capacity(if options.packed { setup.size.into() } else { 0 }),
            call: setup.call,
            share: None,
            signalled: None,
            doorbell: Arc::new(doorbell),
            counters: Counters::default(),
            error: None,
            log: None,
            inflight: None,
            memory: setup.memory,
        }
    }

    /// Allocates a large packet.
    pub(super) fn large_packet(&self, length: usize) -> Option<Packet> {
        match &self.share {
            Some(share) => Packet::with_room_of(share, length),
            None => Packet::with_room(length),
        }
    }

    pub(super) fn position(&self) -> Position {
        self.position_at(self.available, self.used)
    }

    fn position_at(&self, available: Cursor, used: Cursor) -> Position {
        if self.options.packed {
            Position::Packed {
                avail: available.index,
                avail_wrap: available.wrap,
                used: used.index,
                used_wrap: used.wrap,
            }
        } else {
            Position::Split { avail: available.index, used: used.index }
        }
    }

    /// Stops the ring for good.
    #[cold]
    #[inline(never)]
    pub(super) fn fail(&mut self, error: RingError) {
        self.error = Some(error);
    }

    #[inline(always)]
    pub(super) fn begin<K: RingKind>(&self) -> Progress {
        let is_behind = K::PACKED && self.used != self.available;
        let behind = if is_behind { self.available.ahead_of(self.used, self.size) } else { 0 };
        Progress { available: self.available, behind, chains: 0, last: 0, first: 0 }
    }

    /// Position at which the next chain will be used.
    #[inline(always)]
    fn used<K: RingKind>(&self, progress: &Progress) -> Cursor {
        match (K::PACKED, progress.behind) {
            (false, _) => self.used.after(progress.chains),
            (true, 0) => progress.available,
            (true, behind) => progress.available.before(behind, self.size),
        }
    }

    /// Counts the steps of a walk.
    #[inline(always)]
    fn visit(&mut self, count: usize) {
        self.visited += count;
        self.step(count);
    }

    /// Counts steps in builds for tests.
    #[inline(always)]
    pub(super) fn step(&mut self, _count: usize) {
        #[cfg(debug_assertions)]
        {
            self.steps += _count as u64;
        }
    }

    /// Returns how many packets more than one a packet of a burst costs, for which this many bytes were copied, plus
    /// the steps of walks since the last time; and adds them to the spent ones.
    pub(super) fn charge(&mut self, bytes: usize) -> usize {
        let more = std::mem::take(&mut self.visited).saturating_sub(STEPS_PER_PACKET);
        let cost = more.div_ceil(2) + bytes.saturating_sub(1) / BYTES_PER_PACKET;
        self.spent += cost;
        cost
    }

    /// The number of chains that wait in a split ring.
    ///
    /// # Errors
    /// There are more than the ring can have.
    #[inline(always)]
    pub(super) fn waiting_split(&self) -> Result<u16, RingError> {
        // SAFETY: the driver area of a split ring starts with flags and index, two bytes each (checked at setup).
        let index = u16::from_le(unsafe { self.driver.half(2) }.load(Acquire));
        let count = index.wrapping_sub(self.available.index);
        if count > self.size { Err(RingError::IndexJump) } else { Ok(count) }
    }

    /// The head of the next chain, if there is one: its index and descriptor. For split rings the caller has checked
    /// the available index.
    #[inline(always)]
    pub(super) fn head<K: RingKind>(&self, at: Cursor) -> Result<Option<(u16, Descriptor)>, RingError> {
        if K::PACKED {
            // SAFETY: positions of a packed ring are below its size (checked at setup, kept by advance()).
            let descriptor = unsafe { Descriptor::read(true, self.descriptors, at.index) };
            return Ok(is_available(descriptor, at.wrap).then_some((at.index, descriptor)));
        }
        let slot = usize::from(at.index & self.mask);
        // SAFETY: the ring of heads, two bytes each, follows flags and index; the slot is below the size, a power of
        // two.
        let head = u16::from_le(unsafe { self.driver.half(4 + 2 * slot) }.load(Relaxed));
        if head > self.mask {
            return Err(RingError::NoSuchDescriptor);
        }
        // The index stays in the table even if the processor speculates past the comparison.
        let head = head & self.mask;
        // SAFETY: the head is below the size.
        Ok(Some((head, unsafe { Descriptor::read(false, self.descriptors, head) })))
    }

    /// Prefetches the descriptor that is [`AHEAD`] further on and the start of its buffer. For split rings the caller
    /// has checked that it is available.
    ///
    /// The driver's processor has just written all of it, so each line comes from that cache; a loop that loads a line
    /// only when it needs it waits as long as the work on several packets takes. (Prefetching a packed ring's
    /// descriptors for writing takes them away from a driver that is writing beside them, and costs more than it
    /// gains.)
    #[inline(always)]
    pub(super) fn look_ahead<K: RingKind, const RECEIVE: bool>(&self, window: &Window, mut at: Cursor) {
        let descriptor = if K::PACKED {
            at.advance::<K>(AHEAD, self.size);
            // A smaller ring has no descriptor so far ahead.
            if at.index >= self.size {
                return;
            }
            // SAFETY: the position is below the size.
            let descriptor = unsafe { Descriptor::read(true, self.descriptors, at.index) };
            if !is_available(descriptor, at.wrap) {
                return;
            }
            descriptor
        } else {
            let slot = usize::from(at.index.wrapping_add(AHEAD) & self.mask);
            // SAFETY: as in head(); a head beyond the table is an error there, and is masked here to one below the
            // size, a power of two.
            let head = u16::from_le(unsafe { self.driver.half(4 + 2 * slot) }.load(Relaxed)) & self.mask;
            // SAFETY: the head is below the size.
            unsafe { Descriptor::read(false, self.descriptors, head) }
        };
        let Some(host) = window.find_to_fetch(descriptor.address) else { return };
        // The header of a packet is not read if there can be no offload.
        let is_whole = descriptor.flags & (NEXT | INDIRECT) == 0;
        if RECEIVE || K::OFFLOADS || !is_whole {
            prefetch(host);
        }
        if is_whole {
            let data = host.wrapping_add(K::HEADER);
            if RECEIVE { prefetch_to_write(data) } else { prefetch(data) }
        }
    }

    /// Records that a chain has been used, with the number of bytes written; the driver sees it at the end of the call.
    #[inline(always)]
    pub(super) fn complete<K: RingKind, const RECEIVE: bool>(
        &mut self,
        progress: &mut Progress,
        chain: Chain,
        written: u32,
    ) {
        let used = self.used::<K>(progress);
        if K::IN_ORDER && !RECEIVE {
            // One entry will stand for all of them.
            progress.last = chain.id;
        } else if K::PACKED {
            let word = used_word::<RECEIVE>(used.wrap, chain.id, written);
            if progress.chains == 0 {
                progress.first = word;
            } else if RECEIVE || self.inflight.is_some() {
                self.later.push((used.index, word));
            } else {
                self.show_used(used.index, word);
            }
        } else {
            self.write_used(used.index, chain.id, written);
        }
        progress.chains += 1;
        if K::PACKED {
            progress.available.advance::<K>(chain.descriptors, self.size);
        }
    }

    #[inline(always)]
    fn write_used(&self, index: u16, id: u16, written: u32) {
        let slot = usize::from(index & self.mask);
        let entry = u64::from(id) | u64::from(written) << 32;
        // SAFETY: the used ring, eight bytes an entry, follows flags and index in the device area; the slot is below
        // the size.
        unsafe { write_u64(self.device.0.as_ptr().add(4 + 8 * slot), entry.to_le()) };
    }

    #[inline(always)]
    fn show_used(&self, index: u16, word: u64) {
        // SAFETY: positions of a packed ring are below its size; its descriptors are aligned to 16 bytes (checked at
        // setup).
        let descriptor = unsafe { Area(self.descriptors).double(usize::from(index) * DESCRIPTOR + 8) };
        if self.inflight.is_some() {
            kill::point();
        }
        descriptor.store(word.to_le(), Release);
    }

    /// Ends a call: does the copies, publishes the used chains, and notifies the driver if it wants that.
    #[inline(always)]
    pub(super) fn finish<K: RingKind, const RECEIVE: bool>(&mut self, progress: Progress) {
        self.blitter.barrier();
        if progress.chains == 0 {
            return;
        }
        let (available, used) = (progress.available::<K>(), self.used::<K>(&progress));
        if K::PACKED {
            let first = match K::IN_ORDER && !RECEIVE {
                true => used_word::<RECEIVE>(self.used.wrap, progress.last, 0),
                false => progress.first,
            };
            if let Some(inflight) = &self.inflight {
                let next = self.position_at(available, used);
                let shown = [(self.used.index, first)].into_iter().chain(self.later.iter().copied());
                inflight.announce(self.position(), next, self.size, shown);
            }
            self.later.iter().for_each(|&(index, word)| self.show_used(index, word));
            self.later.clear();
            self.show_used(self.used.index, first);
        } else {
            if K::IN_ORDER && !RECEIVE {
                // One entry stands for all of them.
                self.write_used(self.used.index, progress.last, 0);
            }
            // SAFETY: the device area of a split ring starts with flags and index, two bytes each.
            unsafe { self.device.half(2) }.store(used.index.to_le(), Release);
        }
        let before = self.used;
        self.available = available;
        self.used = used;
        if let Some(inflight) = &self.inflight {
            inflight.publish(self.position());
        }
        if self.log.is_some() {
            self.mark_written(before, progress.chains);
        }
        self.counters.chains += progress.chains as u64;
        self.doorbell.moved(available);
        if let Some(call) = &self.call
            && notify::wanted::<K>(self.driver, self.size, self.used, &mut self.signalled)
        {
            call.notify();
            self.counters.calls += 1;
        }
    }

    /// Records a write into a buffer that is about to happen, for the log.
    #[inline(always)]
    pub(super) fn will_write(&mut self, host: *const u8, length: usize) {
        if self.log.is_some() {
            self.note_write(host, length);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_write(&mut self, host: *const u8, length: usize) {
        if let Some(log) = &mut self.log {
            log.dirty.extend(self.memory.guests_of_host(host).map(|guest| (guest, length as u64)));
        }
    }

    /// Marks the writes of this call in the log: those into buffers, and those into the ring from this position on.
    #[cold]
    #[inline(never)]
    fn mark_written(&mut self, from: Cursor, chains: usize) {
        let Some(written) = &mut self.log else { return };
        for (guest, length) in written.dirty.drain(..) {
            written.log.mark(guest, length);
        }
        written.dirty.shrink_to(KEPT_NOTES);
        let Some(start) = written.used else { return };
        if self.options.packed {
            // The used descriptors are between the two positions; if they wrap around, mark the whole ring.
            let (from, to) = (u64::from(from.index), u64::from(self.used.index));
            let (first, count) = if from < to { (from, to - from) } else { (0, u64::from(self.size)) };
            written.log.mark(start + first * DESCRIPTOR as u64, count * DESCRIPTOR as u64);
        } else {
            written.log.mark(start, 4);
            for chain in 0..chains as u64 {
                let slot = u64::from(from.index).wrapping_add(chain) % u64::from(self.size);
                written.log.mark(start + 4 + 8 * slot, 8);
            }
        }
    }

    /// Finds the header and data of a chain that is one buffer, or a header and one buffer, in the ring or in a table.
    /// `None` for all others, and for errors: [`walk`](Core::walk) handles those.
    #[inline(always)]
    pub(super) fn locate<K: RingKind, const RECEIVE: bool>(
        &self,
        window: &Window,
        head: u16,
        first: Descriptor,
    ) -> Option<Spot> {
        let access = if RECEIVE { WRITE } else { 0 };
        let id = if K::PACKED { first.link } else { head };
        match first.flags & (NEXT | WRITE | INDIRECT) {
            flags if flags == access => one_buffer::<K>(window, first, Chain { id, descriptors: 1, length: 0 }),
            flags if flags == access | NEXT => {
                let position = match K::PACKED {
                    true if head + 1 == self.size => 0,
                    true => head + 1,
                    false => first.link,
                };
                // A ring of one descriptor has no second one.
                if position >= self.size || position == head {
                    return None;
                }
                // SAFETY: the position is below the size.
                let second = unsafe { Descriptor::read(K::PACKED, self.descriptors, position) };
                let chain = Chain { id: if K::PACKED { second.link } else { id }, descriptors: 2, length: 0 };
                if second.flags & (NEXT | WRITE | INDIRECT) != access {
                    return None;
                }
                two_buffers::<K>(window, first, second, chain)
            }
            INDIRECT if K::INDIRECT => {
                let chain = Chain { id, descriptors: 1, length: 0 };
                let table = window.find(first.address, first.length)?.cast_const();
                // SAFETY: the table is mapped, with as many descriptors as its length has room for.
                let entry = |index| unsafe { Descriptor::read_anywhere(K::PACKED, table.add(index * DESCRIPTOR)) };
                // As in a walk.
                let checked = if RECEIVE || !K::PACKED { WRITE | INDIRECT } else { INDIRECT };
                match first.length as usize / DESCRIPTOR {
                    1 if first.length as usize == DESCRIPTOR => {
                        let only = entry(0);
                        let flags = if K::PACKED { only.flags & !NEXT } else { only.flags };
                        if flags & (NEXT | checked) != access {
                            return None;
                        }
                        one_buffer::<K>(window, only, chain)
                    }
                    2 if first.length as usize == 2 * DESCRIPTOR => {
                        let (header, data) = (entry(0), entry(1));
                        if !K::PACKED && (header.flags & NEXT == 0 || header.link != 1 || data.flags & NEXT != 0) {
                            return None;
                        }
                        let flags = (header.flags & checked, data.flags & checked);
                        if flags != (access, access) {
                            return None;
                        }
                        two_buffers::<K>(window, header, data, chain)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Follows a chain from its head, and adds its buffers to the pieces.
    #[inline(never)]
    pub(super) fn walk<const PACKED: bool, const TABLES: bool, const RECEIVE: bool>(
        &mut self,
        window: &mut Window,
        head: u16,
        first: Descriptor,
    ) -> Result<Chain, RingError> {
        let mut chain = Chain { id: if PACKED { first.link } else { head }, descriptors: 1, length: 0 };
        let (mut position, mut descriptor) = (head, first);
        let most = self.pieces.len() + MAX_PIECES;
        loop {
            self.visit(1);
            if descriptor.flags & INDIRECT != 0 {
                if !TABLES {
                    return Err(RingError::IndirectNotNegotiated);
                }
                if descriptor.flags & NEXT != 0 {
                    return Err(RingError::IndirectNested);
                }
                chain.length += self.walk_table::<PACKED, RECEIVE>(window, descriptor, most)?;
                return Ok(chain);
            }
            self.add_buffer::<RECEIVE>(window, descriptor, most)?;
            chain.length += u64::from(descriptor.length);
            if descriptor.flags & NEXT == 0 {
                return Ok(chain);
            }
            if chain.descriptors >= self.size {
                return Err(RingError::ChainTooLong);
            }
            chain.descriptors += 1;
            if PACKED {
                position = if position + 1 == self.size { 0 } else { position + 1 };
            } else {
                position = descriptor.link;
                if position >= self.size {
                    return Err(RingError::NoSuchDescriptor);
                }
            }
            // SAFETY: the position is below the size.
            descriptor = unsafe { Descriptor::read(PACKED, self.descriptors, position) };
            if PACKED {
                // The last descriptor of a chain carries the buffer's id.
                chain.id = descriptor.link;
            }
        }
    }

    /// Follows a table of descriptors; returns the bytes in its buffers.
    fn walk_table<const PACKED: bool, const RECEIVE: bool>(
        &mut self,
        window: &mut Window,
        indirect: Descriptor,
        most: usize,
    ) -> Result<u64, RingError> {
        let (address, bytes) = (indirect.address, indirect.length);
        let count = bytes as usize / DESCRIPTOR;
        if bytes == 0 || !(bytes as usize).is_multiple_of(DESCRIPTOR) || count > MAX_TABLE {
            return Err(RingError::IndirectLength);
        }
        let whole = match window.find(address, bytes) {
            Some(table) => Some(table),
            None => self.find_table(address, bytes)?,
        };
        let (mut index, mut length) = (0, 0);
        for _ in 0..count {
            self.visit(1);
            let mut descriptor = match whole {
                // SAFETY: the index is below the count, and all of the table is mapped.
                Some(table) => unsafe { Descriptor::read_anywhere(PACKED, table.add(index * DESCRIPTOR)) },
                None => self.scattered_entry::<PACKED>(address + (index * DESCRIPTOR) as u64)?,
            };
            if descriptor.flags & INDIRECT != 0 {
                return Err(RingError::IndirectNested);
            }
            if PACKED && !RECEIVE {
                // DPDK's driver (22.11, and others) flags the header in such a table as writable. It is only read.
                descriptor.flags &= !WRITE;
            }
            self.add_buffer::<RECEIVE>(window, descriptor, most)?;
            length += u64::from(descriptor.length);
            index += 1;
            if PACKED {
                // The chain is the whole table, whatever the flags say.
                if index == count {
                    return Ok(length);
                }
            } else if descriptor.flags & NEXT == 0 {
                return Ok(length);
            } else {
                index = usize::from(descriptor.link);
                if index >= count {
                    return Err(RingError::NoSuchDescriptor);
                }
            }
        }
        Err(RingError::ChainTooLong)
    }

    /// Finds a table that is in another region than the last buffer; `None` if it is in several. Then only its ends are
    /// checked here, and the rest when it is read.
    #[cold]
    #[inline(never)]
    fn find_table(&mut self, address: u64, bytes: u32) -> Result<Option<*mut u8>, RingError> {
        self.visit(1);
        let mut window = Window::NONE;
        let outside = |_| RingError::IndirectOutsideMemory;
        window.move_to(&self.memory, address).map_err(outside)?;
        if let Some(table) = window.find(address, bytes) {
            return Ok(Some(table));
        }
        self.visit(1);
        let last = address.checked_add(u64::from(bytes) - 1).ok_or(RingError::IndirectOutsideMemory)?;
        window.move_to(&self.memory, last).map_err(outside)?;
        Ok(None)
    }

    /// Reads an entry of a table that is in several regions. Rare.
    #[cold]
    #[inline(never)]
    fn scattered_entry<const PACKED: bool>(&mut self, address: u64) -> Result<Descriptor, RingError> {
        let mut copy = [0; DESCRIPTOR];
        let (mut window, mut done) = (Window::NONE, 0);
        while done < DESCRIPTOR {
            self.visit(1);
            let part = window.part(&self.memory, address + done as u64, (DESCRIPTOR - done) as u32);
            let (host, length) = part.map_err(|_| RingError::IndirectOutsideMemory)?;
            for (offset, byte) in copy[done..][..length as usize].iter_mut().enumerate() {
                // SAFETY: the part is mapped, and the offset below its length.
                *byte = unsafe { host.add(offset).read_volatile() };
            }
            done += length as usize;
        }
        // SAFETY: the copy has the length of a descriptor.
        Ok(unsafe { Descriptor::read_anywhere(PACKED, copy.as_ptr()) })
    }

    /// Adds a buffer to the pieces, of which there may be at most `most`.
    #[inline(always)]
    fn add_buffer<const RECEIVE: bool>(
        &mut self,
        window: &mut Window,
        buffer: Descriptor,
        most: usize,
    ) -> Result<(), RingError> {
        if (buffer.flags & WRITE != 0) != RECEIVE {
            return Err(wrong_access::<RECEIVE>());
        }
        if buffer.length == 0 {
            return Err(RingError::EmptyBuffer);
        }
        if self.pieces.len() >= most {
            return Err(RingError::TooManyPieces);
        }
        match window.find(buffer.address, buffer.length) {
            Some(host) => self.pieces.push(Piece { host, length: buffer.length }),
            None => self.add_scattered(window, buffer, most)?,
        }
        Ok(())
    }

    /// Adds a buffer that is in another region than the last one, or in several.
    #[cold]
    #[inline(never)]
    fn add_scattered(&mut self, window: &mut Window, buffer: Descriptor, most: usize) -> Result<(), RingError> {
        let (mut address, mut left) = (buffer.address, buffer.length);
        while left > 0 {
            self.visit(1);
            if self.pieces.len() >= most {
                return Err(RingError::TooManyPieces);
            }
            let (host, length) = window.part(&self.memory, address, left)?;
            self.pieces.push(Piece { host, length });
            address += u64::from(length);
            left -= length;
        }
        Ok(())
    }
}

/// Header and data in one buffer.
#[inline(always)]
fn one_buffer<K: RingKind>(window: &Window, buffer: Descriptor, chain: Chain) -> Option<Spot> {
    let room = buffer.length.checked_sub(K::HEADER as u32)?;
    let header = window.find(buffer.address, buffer.length)?;
    Some(Spot { header, data: header.wrapping_add(K::HEADER), room, chain })
}

/// The header in a separate buffer.
#[inline(always)]
fn two_buffers<K: RingKind>(window: &Window, header: Descriptor, data: Descriptor, chain: Chain) -> Option<Spot> {
    if header.length as usize != K::HEADER {
        return None;
    }
    let header = window.find(header.address, header.length)?;
    let room = data.length;
    Some(Spot { header, data: window.find(data.address, room)?, room, chain })
}

/// Whether the driver has made a descriptor of a packed ring available (specification, 2.8.1), in a round with this
/// wrap counter.
#[inline(always)]
fn is_available(descriptor: Descriptor, wrap: bool) -> bool {
    let expected = if wrap { AVAILABLE } else { USED };
    descriptor.flags & (AVAILABLE | USED) == expected
}

/// The second word of a used descriptor (specification, 2.8.8): length, id, flags.
#[inline(always)]
fn used_word<const RECEIVE: bool>(wrap: bool, id: u16, written: u32) -> u64 {
    let state = if wrap { AVAILABLE | USED } else { 0 };
    let flags = state | if RECEIVE { WRITE } else { 0 };
    u64::from(written) | u64::from(id) << 32 | u64::from(flags) << 48
}

/// The error for a buffer whose access does not fit the direction.
#[cold]
fn wrong_access<const RECEIVE: bool>() -> RingError {
    if RECEIVE { RingError::ReadOnlyBuffer } else { RingError::WriteOnlyBuffer }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Advances descriptor by descriptor.
    fn walk(at: Cursor, descriptors: u32, size: u16) -> Cursor {
        (0..descriptors).fold(at, |at, _| match at.index + 1 == size {
            true => Cursor { index: 0, wrap: !at.wrap },
            false => Cursor { index: at.index + 1, ..at },
        })
    }

    proptest! {
        #[test]
        fn a_used_place_stays_as_far_behind_as_it_was(
            size in 1_u16..300,
            start in any::<u16>(),
            wrap in any::<bool>(),
            behind in any::<u32>(),
            taken in 0_u32..700,
        ) {
            let behind = behind % (2 * u32::from(size));
            let used = Cursor { index: start % size, wrap };
            let available = walk(used, behind, size);
            prop_assert_eq!(available.ahead_of(used, size), behind);
            prop_assert_eq!(walk(available, taken, size).before(behind, size), walk(used, taken, size));
        }
    }
}
