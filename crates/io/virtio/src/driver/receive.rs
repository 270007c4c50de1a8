//! Packets from the device.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bellows_blit::Blitter;
use bellows_packet::{DATA_ROOM, LARGE_DATA_ROOM, LargeShare, Offload, Packet, Vector};
use bellows_ports::offload;

use super::bell::UsedBell;
use super::ring::{UsedChain, WRITE};
use super::{Chains, DeviceError, DriverQueue, QueueCounters};
use crate::features::Features;

/// The driver's side of a receive queue.
pub struct ReceiveQueue {
    queue: DriverQueue,
    blitter: Blitter,
    /// Slots to make available, as soon as the ring has descriptors for them.
    back: Vec<u16>,
    /// The packet of which only some buffers have come.
    partial: Option<Partial>,
    /// The quota of large buffers.
    share: Arc<LargeShare>,
    error: Option<DeviceError>,
}

/// A packet in several buffers.
struct Partial {
    /// `None` if it will be dropped.
    packet: Option<Packet>,
    /// Number of buffers still to come.
    left: u16,
}

/// The header of a received packet.
#[derive(Clone, Copy)]
struct Header {
    offload: Offload,
    buffers: u16,
}

impl ReceiveQueue {
    pub(super) fn new(queue: DriverQueue, share: Arc<LargeShare>) -> ReceiveQueue {
        let back: Vec<u16> = (0..queue.slots.size).collect();
        let mut receive = ReceiveQueue { queue, blitter: Blitter::new(), back, partial: None, share, error: None };
        receive.give_back();
        receive
    }

    /// Receives at most `most` packets from the device, as many as the vector has room for. Returns how many. Hot.
    ///
    /// # Errors
    /// The error that has stopped the queue, in this call or before. Packets before the error are delivered first.
    pub fn receive(&mut self, packets: &mut Vector, most: usize) -> Result<usize, DeviceError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let most = most.min(packets.room());
        let mut fresh = Packet::allocate_burst(most);
        let mut spare = None;
        let mut count = 0;
        while count < most {
            let Some(packet) = spare.take().or_else(|| fresh.next()) else { break };
            match self.take(packet) {
                Ok(Next::Packet(packet)) => {
                    self.queue.counters.bytes += packet.len() as u64;
                    count += 1;
                    // There is room: no more packets are requested than fit.
                    let _ = packets.push(packet);
                }
                Ok(Next::Unfinished(packet)) => spare = packet,
                Ok(Next::Nothing) => break,
                Err(error) => {
                    self.error = Some(error);
                    break;
                }
            }
        }
        drop(fresh);
        self.queue.counters.packets += count as u64;
        self.blitter.barrier();
        self.give_back();
        match self.error {
            Some(error) if count == 0 => Err(error),
            _ => Ok(count),
        }
    }

    /// Makes slots available, as far as the ring has room.
    #[inline(always)]
    fn give_back(&mut self) {
        let descriptors = self.queue.slots.descriptors(1);
        let count = self.back.len().min(self.queue.ring.free() / descriptors);
        for index in 0..count {
            self.make_available(self.back[index]);
        }
        self.back.drain(..count);
        self.queue.ring.publish();
        self.queue.ring.update_bell();
    }

    #[inline(always)]
    fn make_available(&mut self, slot: u16) {
        self.queue.add_single(slot, self.queue.slots.room as u32, WRITE);
    }

    /// The bell by which an engine sees that packets have come.
    pub fn bell(&self) -> Arc<UsedBell> {
        Arc::clone(&self.queue.ring.bell)
    }

    /// Changes the layout of buffers from now on, as far as the negotiated features allow.
    pub fn set_chains(&mut self, chains: Chains) {
        self.queue.set_chains(chains);
    }

    /// Its counters.
    pub fn counters(&self) -> QueueCounters {
        QueueCounters { kicks: self.queue.ring.kicks, ..self.queue.counters }
    }

    /// Takes one buffer from the device. `packet` is empty and has an ordinary buffer.
    #[inline(always)]
    fn take(&mut self, packet: Packet) -> Result<Next, DeviceError> {
        let Some(UsedChain { token, length }) = self.queue.ring.next_used()? else { return Ok(Next::Nothing) };
        self.back.push(token);
        let slots = &self.queue.slots;
        let capacity = slots.header + slots.room;
        let length = length.map_or(capacity, |length| length as usize);
        if length > capacity {
            return Err(DeviceError::TooMuch);
        }
        if self.partial.is_some() {
            return Ok(self.go_on(token, length, packet));
        }
        let data = length.checked_sub(slots.header).ok_or(DeviceError::NoHeader)?;
        let header = self.read_header(token);
        if header.buffers != 1 || data > DATA_ROOM {
            return self.take_long(token, data, header, packet);
        }
        if data == 0 {
            self.queue.counters.empty += 1;
            return Ok(Next::Unfinished(Some(packet)));
        }
        let mut packet = packet;
        self.copy(&mut packet, self.queue.slots.data(token), data);
        if header.offload != Offload::default() && !self.admit(&mut packet, header.offload) {
            packet.truncate(0);
            return Ok(Next::Unfinished(Some(packet)));
        }
        Ok(Next::Packet(packet))
    }

    /// Reads a header once.
    #[inline(always)]
    fn read_header(&self, slot: u16) -> Header {
        let slots = &self.queue.slots;
        let (space, at) = (&self.queue.ring.space, slots.header(slot));
        let mut halves = [0; 6];
        if slots.header == 12 {
            for number in 0..3 {
                let word = u32::from_le(space.word(at + 4 * number).load(Relaxed));
                halves[2 * number] = word as u16;
                halves[2 * number + 1] = (word >> 16) as u16;
            }
        } else {
            for (number, half) in halves[..5].iter_mut().enumerate() {
                *half = u16::from_le(space.half(at + 2 * number).load(Relaxed));
            }
        }
        let [kinds, header_length, segment_size, checksum_start, checksum_offset, buffers] = halves;
        let [flags, gso_type] = kinds.to_le_bytes();
        let offload = Offload { flags, gso_type, header_length, segment_size, checksum_start, checksum_offset };
        let wanted = offload.needs_checksum() || offload.is_gso();
        // A header of a device that has not negotiated offloads is no error; it is ignored.
        let offload = if wanted && slots.features.has(Features::GUEST_CSUM) { offload } else { Offload::default() };
        Header { offload, buffers: if slots.features.has(Features::MRG_RXBUF) { buffers } else { 1 } }
    }

    /// Applies the header's offload to a packet, once its bytes are here, where the device cannot change them. Returns
    /// false and counts the packet if it must be dropped.
    #[inline(never)]
    fn admit(&mut self, packet: &mut Packet, header: Offload) -> bool {
        self.blitter.barrier();
        let sound = offload::admit(packet, header, self.queue.slots.features.accepted_by_driver());
        self.queue.counters.bad_header += u64::from(!sound);
        sound
    }

    /// Appends bytes of the shared memory to a packet, which has room for them.
    #[inline(always)]
    fn copy(&mut self, packet: &mut Packet, at: usize, length: usize) {
        let source = self.queue.ring.space.bytes(at, length);
        let target = packet.extend(length).as_mut_ptr();
        // SAFETY: the source is in the space, which the ring keeps mapped; the target is the packet's buffer, which
        // belongs to the vector or to self.partial until receive() has run the barrier.
        unsafe { self.blitter.copy(target, source, length) };
    }

    /// Handles the first buffer of a packet that needs a large buffer, or has several.
    #[inline(never)]
    fn take_long(&mut self, slot: u16, data: usize, header: Header, packet: Packet) -> Result<Next, DeviceError> {
        if header.buffers == 0 || header.buffers > self.queue.slots.size {
            return Err(DeviceError::BufferCount);
        }
        let most = data + (usize::from(header.buffers) - 1) * (self.queue.slots.header + self.queue.slots.room);
        let most = most.min(LARGE_DATA_ROOM);
        let (mut long, spare) = match most <= DATA_ROOM {
            true => (Some(packet), None),
            false => (Packet::with_room_of(&self.share, most), Some(packet)),
        };
        match &mut long {
            // The header's offload remains a claim until the packet is complete.
            Some(long) if header.offload != Offload::default() => long.set_offload(header.offload),
            Some(_) => {}
            None => self.queue.counters.no_buffer += 1,
        }
        if let Some(long) = &mut long {
            self.copy(long, self.queue.slots.data(slot), data);
        }
        self.partial = Some(Partial { packet: long, left: header.buffers - 1 });
        Ok(self.finish_if_whole(spare))
    }

    /// Handles a further buffer of a packet.
    #[inline(never)]
    fn go_on(&mut self, slot: u16, length: usize, spare: Packet) -> Next {
        let Some(mut partial) = self.partial.take() else { return Next::Unfinished(Some(spare)) };
        partial.left -= 1;
        if let Some(packet) = &mut partial.packet {
            if packet.tailroom() < length {
                self.queue.counters.too_long += 1;
                // Copies into it are queued, so it must not be freed before the barrier.
                self.blitter.barrier();
                partial.packet = None;
            } else {
                self.copy(packet, self.queue.slots.header(slot), length);
            }
        }
        self.partial = Some(partial);
        self.finish_if_whole(Some(spare))
    }

    fn finish_if_whole(&mut self, spare: Option<Packet>) -> Next {
        let whole = self.partial.take_if(|partial| partial.left == 0);
        let Some(mut packet) = whole.and_then(|whole| whole.packet) else { return Next::Unfinished(spare) };
        let length = packet.len();
        let sound = match packet.offload() {
            Some(offload) if length > 0 => self.admit(&mut packet, offload),
            _ => length > 0,
        };
        if sound {
            return Next::Packet(packet);
        }
        self.queue.counters.empty += u64::from(length == 0);
        // As above.
        self.blitter.barrier();
        Next::Unfinished(spare)
    }
}

/// The result of handling a buffer.
enum Next {
    /// It completed a packet.
    Packet(Packet),
    /// It completed none, or not yet; this spare packet was not needed.
    Unfinished(Option<Packet>),
    /// There was no buffer.
    Nothing,
}
