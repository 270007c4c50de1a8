//! Packets to the device.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bellows_blit::Blitter;
use bellows_packet::{Offload, Packet};
use bellows_ports::{Rejection, offload};

use super::bell::UsedBell;
use super::ring::{Fifo, Segment};
use super::{Chains, DeviceError, DriverQueue, QueueCounters, TABLE};
use crate::ring::Taken;

/// The driver's side of a transmit queue.
pub struct TransmitQueue {
    queue: DriverQueue,
    blitter: Blitter,
    /// Free slots.
    free: Fifo,
    /// The number of slots of a packet, by its first one, and the next slot of each.
    counts: Box<[u16]>,
    links: Box<[u16]>,
    segments: Vec<Segment>,
    error: Option<DeviceError>,
}

impl TransmitQueue {
    pub(super) fn new(queue: DriverQueue) -> TransmitQueue {
        let size = queue.slots.size;
        TransmitQueue {
            blitter: Blitter::new(),
            free: Fifo::full(size),
            counts: vec![0; size.into()].into(),
            links: vec![0; size.into()].into(),
            segments: Vec::with_capacity(TABLE),
            error: None,
            queue,
        }
    }

    /// Sends packets to the device, in order; the caller then frees those that were taken. Returns the reason why the
    /// next one was not taken, if there is a next one. Hot.
    ///
    /// # Errors
    /// The error that has stopped the queue, in this call or before.
    pub fn transmit(&mut self, packets: &[Packet]) -> Result<Taken<Option<Rejection>>, DeviceError> {
        self.reclaim()?;
        let mut taken = Taken { count: 0, stop: None };
        let mut bytes = 0;
        for packet in packets {
            if let Err(rejection) = self.put(packet) {
                taken.stop = Some(rejection);
                break;
            }
            taken.count += 1;
            bytes += packet.len() as u64;
        }
        self.blitter.barrier();
        self.queue.ring.publish();
        self.queue.counters.packets += taken.count as u64;
        self.queue.counters.bytes += bytes;
        Ok(taken)
    }

    /// Takes back the slots of packets that the device has taken. [`TransmitQueue::transmit`] begins with this.
    ///
    /// # Errors
    /// The error that has stopped the queue, in this call or before.
    pub fn reclaim(&mut self) -> Result<(), DeviceError> {
        match self.error {
            None => self.take_back().inspect_err(|error| self.error = Some(*error)),
            Some(error) => Err(error),
        }
    }

    fn take_back(&mut self) -> Result<(), DeviceError> {
        while let Some(back) = self.queue.ring.next_used()? {
            let mut slot = back.token;
            for _ in 0..self.counts[usize::from(slot)] {
                self.free.push(slot);
                slot = self.links[usize::from(slot)];
            }
        }
        self.queue.ring.update_bell();
        Ok(())
    }

    /// Changes the layout of packets from now on, as far as the negotiated features allow.
    pub fn set_chains(&mut self, chains: Chains) {
        self.queue.set_chains(chains);
    }

    /// The bell by which an engine sees that the device has taken packets, so that there is room again.
    pub fn bell(&self) -> Arc<UsedBell> {
        Arc::clone(&self.queue.ring.bell)
    }

    /// Its counters.
    pub fn counters(&self) -> QueueCounters {
        QueueCounters { kicks: self.queue.ring.kicks, ..self.queue.counters }
    }

    /// Copies one packet into slots.
    #[inline(always)]
    fn put(&mut self, packet: &Packet) -> Result<(), Rejection> {
        let offload = match packet.has_offload() {
            true => {
                let features = self.queue.slots.features;
                offload::header_for(packet, features.accepted_by_device()).ok_or(Rejection::Offload)?
            }
            false => Offload::default(),
        };
        let slots = &self.queue.slots;
        let count = packet.len().div_ceil(slots.room).max(1);
        let descriptors = slots.descriptors(count);
        if self.free.len() < count || self.queue.ring.free() < descriptors {
            let ever = descriptors <= usize::from(slots.size) && count <= usize::from(slots.size);
            return Err(if ever { Rejection::Full } else { Rejection::TooLong });
        }
        let first = self.free.pop().unwrap_or_default();
        self.counts[usize::from(first)] = count as u16;
        self.write_header(first, offload);
        if count == 1 {
            self.copy(first, packet.bytes());
            self.queue.add_single(first, packet.len() as u32, 0);
        } else {
            self.put_long(first, packet);
        }
        Ok(())
    }

    #[inline(always)]
    fn write_header(&self, slot: u16, offload: Offload) {
        let Offload { flags, gso_type, header_length, segment_size, checksum_start, checksum_offset } = offload;
        let halves = [u16::from(flags) | u16::from(gso_type) << 8, header_length, segment_size, checksum_start];
        let slots = &self.queue.slots;
        let (space, at) = (&self.queue.ring.space, slots.header(slot));
        if slots.header == 12 {
            // The last half is the number of buffers, which is 0 in this direction.
            let words = [
                u32::from(halves[0]) | u32::from(halves[1]) << 16,
                u32::from(halves[2]) | u32::from(halves[3]) << 16,
                u32::from(checksum_offset),
            ];
            for (number, word) in words.into_iter().enumerate() {
                space.word(at + 4 * number).store(word.to_le(), Relaxed);
            }
        } else {
            for (number, half) in halves.into_iter().chain([checksum_offset]).enumerate() {
                space.half(at + 2 * number).store(half.to_le(), Relaxed);
            }
        }
    }

    #[inline(always)]
    fn copy(&mut self, slot: u16, bytes: &[u8]) {
        let target = self.queue.ring.space.bytes(self.queue.slots.data(slot), bytes.len());
        // SAFETY: the target is in the space, which the ring keeps mapped; the packet is borrowed until transmit() has
        // run the barrier.
        unsafe { self.blitter.copy(target, bytes.as_ptr(), bytes.len()) };
    }

    /// Copies a packet that takes several slots; there are enough.
    #[cold]
    fn put_long(&mut self, first: u16, packet: &Packet) {
        let room = self.queue.slots.room;
        let (header, together) = (self.queue.slots.header, self.queue.slots.chains == Chains::Single);
        let mut segments = std::mem::take(&mut self.segments);
        segments.clear();
        let mut slot = first;
        if !together {
            segments.push(Segment { at: self.queue.slots.header(first), length: header as u32, flags: 0 });
        }
        for (number, part) in packet.bytes().chunks(room).enumerate() {
            if number > 0 {
                let next = self.free.pop().unwrap_or_default();
                self.links[usize::from(slot)] = next;
                slot = next;
            }
            self.copy(slot, part);
            let before = if number == 0 && together { header } else { 0 };
            let at = self.queue.slots.data(slot) - before;
            segments.push(Segment { at, length: (part.len() + before) as u32, flags: 0 });
        }
        if self.queue.slots.chains == Chains::Indirect {
            self.queue.add_table(first, &segments);
        } else {
            self.queue.ring.add(first, &segments);
        }
        self.segments = segments;
    }
}
