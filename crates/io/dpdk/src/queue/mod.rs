//! One queue of a device: bursts of packets to and from its driver.

use std::os::fd::BorrowedFd;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_netif::{Queue, QueueCounts, QueueError};
use bellows_packet::{DATA_ROOM, LARGE_DATA_ROOM, LargeShare, Packet, ReceivedFrame, Vector};
use bellows_ports::offload::header_for;
use bellows_ports::{Accepted, QueueBell, Rejection, SendQueue, Taken};
use bellows_wire::EtherType;

use crate::device::Device;
use crate::memory::Memory;
use crate::table::Mbuf;

/// Frames that are received with one call of the driver.
const BURST: usize = 64;

/// Bytes of an Ethernet header, and of a VLAN tag.
const HEADER: usize = 14;
const VLAN_TAG: usize = 4;

/// The most segments of a packet: of the largest packet, and what all drivers can count.
const MAX_SEGMENTS: usize = LARGE_DATA_ROOM.div_ceil(DATA_ROOM);

/// The bell of a queue that must be asked.
pub struct DpdkBell(());

impl QueueBell for DpdkBell {
    fn word(&self) -> Option<&AtomicU32> {
        None
    }

    fn mask(&self) -> u32 {
        0
    }

    fn quiet(&self) -> u32 {
        0
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// One queue of a device, in both directions.
pub struct DpdkQueue {
    device: Arc<Device>,
    number: u16,
    bell: Arc<DpdkBell>,
    share: LargeShare,
    /// Mbufs to send, from `first` on; their buffers are on loan.
    staged: Vec<*mut Mbuf>,
    first: usize,
    /// The number of mbufs that may wait.
    most: usize,
    /// The longest frame to send, without a VLAN tag.
    longest: usize,
    /// Packets that were taken and not kept yet.
    reserved: usize,
    counts: QueueCounts,
}

// SAFETY: the pointers are those of mbufs whose buffers this queue alone has, in a table that lasts.
unsafe impl Send for DpdkQueue {}

impl DpdkQueue {
    /// `None` if the queue is in use.
    pub(crate) fn new(device: &Arc<Device>, number: u16, descriptors: u16) -> Option<DpdkQueue> {
        if !device.take_queue(number) {
            return None;
        }
        let most = usize::from(descriptors.max(1));
        let mtu = match device.properties.mtu {
            0 => LARGE_DATA_ROOM - HEADER,
            mtu => usize::from(mtu),
        };
        Some(DpdkQueue {
            device: Arc::clone(device),
            number,
            bell: Arc::new(DpdkBell(())),
            share: LargeShare::new(),
            staged: Vec::with_capacity(most),
            first: 0,
            most,
            longest: (HEADER + mtu).min(LARGE_DATA_ROOM),
            reserved: 0,
            counts: QueueCounts::default(),
        })
    }

    /// Makes packets of received mbufs, in order.
    #[inline]
    fn take_all(&mut self, mbufs: &[*mut Mbuf], packets: &mut Vector) {
        let memory = self.device.memory;
        // Read before anything is changed: most bursts are frames of one buffer of the pool each.
        if mbufs.iter().all(|&mbuf| is_usual(memory, mbuf)) {
            // SAFETY: the driver has given up these mbufs, and so their buffers, to this thread.
            let lost = unsafe { memory.loans.receive(mbufs.iter().map(|&mbuf| frame(memory, mbuf)), packets) };
            if lost > 0 {
                self.lose(lost);
            }
            return;
        }
        for &mbuf in mbufs {
            self.take_one(mbuf, packets);
        }
    }

    /// Frames that lie outside of their buffers, or in buffers that the driver does not have.
    #[cold]
    fn lose(&mut self, count: usize) {
        self.device.memory.note_foreign(count);
        self.counts.rx_bad_header += count as u64;
    }

    #[cold]
    fn take_one(&mut self, mbuf: *mut Mbuf, packets: &mut Vector) {
        let memory = self.device.memory;
        if is_usual(memory, mbuf) {
            // SAFETY: as in `take_all`.
            let lost = unsafe { memory.loans.receive([frame(memory, mbuf)].into_iter(), packets) };
            if lost > 0 {
                self.lose(lost);
            }
            return;
        }
        match self.copy(mbuf) {
            // There is room: the caller has asked for as many.
            Some(packet) => drop(packets.push(packet)),
            None => {}
        }
        // SAFETY: the driver has given up the mbuf and those behind it, and nobody has taken a buffer of them.
        unsafe { (self.device.table.end)(mbuf) };
    }

    /// Copies a frame in several buffers, or in one that is not of the pool.
    fn copy(&mut self, mbuf: *mut Mbuf) -> Option<Packet> {
        // SAFETY: the driver has given up the mbuf to this thread.
        let length = unsafe { (*mbuf).packet_length } as usize;
        if length > LARGE_DATA_ROOM {
            self.counts.rx_too_long += 1;
            return None;
        }
        let Some(mut packet) = Packet::with_room_of(&self.share, length) else {
            self.counts.rx_no_buffer += 1;
            return None;
        };
        let mut next = mbuf;
        while !next.is_null() {
            let (mut bytes, mut count) = (ptr::null(), 0);
            // SAFETY: the mbuf, or the next of its frame, and places for the answer.
            next = unsafe { (self.device.table.part)(next, &raw mut bytes, &raw mut count) };
            let count = count as usize;
            if count > length - packet.len() {
                self.counts.rx_bad_header += 1;
                return None;
            }
            if count > 0 {
                // SAFETY: the bytes of a segment of a received frame, which nobody writes any more.
                packet.append(unsafe { slice::from_raw_parts(bytes, count) });
            }
        }
        self.counts.copied += 1;
        Some(packet)
    }

    /// Puts the bytes of a packet into new buffers.
    #[cold]
    fn stage_copy(&mut self, packet: &Packet) {
        let memory = self.device.memory;
        let mut segments = [ptr::null_mut::<Mbuf>(); MAX_SEGMENTS];
        let count = packet.len().div_ceil(DATA_ROOM);
        let mut slots = segments.iter_mut();
        let lent = memory.loans.lend(count, |buffer| {
            if let Some(slot) = slots.next() {
                *slot = memory.mbuf(buffer);
            }
        });
        let segments = &segments[..lent];
        if lent < count {
            // SAFETY: they were lent to nobody but this queue.
            unsafe { memory.loans.end(segments.iter().map(|&mbuf| memory.buffer(mbuf))) };
            self.counts.not_sent += 1;
            return;
        }
        for (index, bytes) in packet.bytes().chunks(DATA_ROOM).enumerate() {
            let start = memory.loans.headroom(memory.buffer(segments[index])) + bellows_packet::HEADROOM;
            // SAFETY: the buffer is on loan to this queue, which tells no driver before the call that sends it; it has room
            // for these bytes.
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), ptr::with_exposed_provenance_mut(start), bytes.len());
                describe(segments[index], bellows_packet::HEADROOM, bytes.len());
                (*segments[index]).next = segments.get(index + 1).copied().unwrap_or(ptr::null_mut());
            }
        }
        // SAFETY: as above.
        unsafe {
            (*segments[0]).segments = count as u16;
            (*segments[0]).packet_length = packet.len() as u32;
        }
        self.staged.push(segments[0]);
        self.counts.copied += 1;
    }
}

/// Whether an mbuf is that of a buffer of the pool which holds a whole frame, and which nobody else has.
#[inline(always)]
fn is_usual(memory: &Memory, mbuf: *const Mbuf) -> bool {
    // SAFETY: the driver has given up the mbuf to this thread.
    let mbuf_at = unsafe { &*mbuf };
    mbuf_at.pool == memory.pool()
        && mbuf_at.references == 1
        && mbuf_at.segments == 1
        && mbuf_at.buffer == memory.loans.headroom(memory.buffer(mbuf))
}

/// The frame of such an mbuf.
#[inline(always)]
fn frame(memory: &Memory, mbuf: *const Mbuf) -> ReceivedFrame {
    // SAFETY: as above.
    let (offset, length) = unsafe { ((*mbuf).data_offset.into(), (*mbuf).data_length.into()) };
    ReceivedFrame { buffer: memory.buffer(mbuf), offset, length }
}

/// Describes a frame of one segment to a driver. All else in an mbuf is as drivers expect it of one that is sent.
///
/// # Safety
/// The mbuf is in the table, and the caller has its buffer.
#[inline(always)]
unsafe fn describe(mbuf: *mut Mbuf, offset: usize, length: usize) {
    // SAFETY: the caller says so.
    unsafe {
        (*mbuf).data_offset = offset as u16;
        (*mbuf).offload_flags = 0;
        (*mbuf).packet_length = length as u32;
        (*mbuf).data_length = length as u16;
    }
}

/// Whether a frame is too long only by its VLAN tag, which devices allow beyond the MTU.
#[cold]
fn fits_with_tag(frame: &[u8], longest: usize) -> bool {
    frame.len() <= longest + VLAN_TAG && frame[HEADER - 2..HEADER] == EtherType::VLAN.0.to_be_bytes()
}

impl SendQueue for DpdkQueue {
    type Error = QueueError;

    const KEEPS: bool = true;

    #[inline]
    fn send(&mut self, packets: &[Packet]) -> Result<Taken, QueueError> {
        let free = self.most.saturating_sub(self.staged.len() - self.first + self.reserved);
        let longest = if self.device.properties.gathers { self.longest } else { self.longest.min(DATA_ROOM) };
        let mut taken = Taken { count: 0, stop: None };
        for packet in packets {
            if taken.count == free {
                taken.stop = Some(Rejection::Full);
                break;
            }
            if packet.has_offload() && header_for(packet, Accepted::default()).is_none() {
                taken.stop = Some(Rejection::Offload);
                break;
            }
            if packet.len() > longest && !(packet.len() <= DATA_ROOM && fits_with_tag(packet.bytes(), longest)) {
                taken.stop = Some(Rejection::TooLong);
                break;
            }
            taken.count += 1;
        }
        self.reserved += taken.count;
        Ok(taken)
    }

    fn keep(&mut self, packet: Packet) {
        self.reserved = self.reserved.saturating_sub(1);
        if packet.len() < HEADER {
            self.counts.not_sent += 1;
            return;
        }
        let (memory, staged) = (self.device.memory, &mut self.staged);
        let sent = memory.loans.send(packet, |buffer, offset, packet| {
            let mbuf = memory.mbuf(buffer);
            // SAFETY: the packet has the buffer, and goes on loan with this.
            unsafe { describe(mbuf, offset, packet.len()) };
            staged.push(mbuf);
        });
        if let Err(packet) = sent {
            self.stage_copy(&packet);
        }
    }

    #[inline]
    fn keep_first(&mut self, packets: &mut Vector, count: usize) {
        let count = count.min(packets.len());
        let (memory, staged) = (self.device.memory, &mut self.staged);
        if packets.as_slice()[..count].iter().all(|packet| packet.len() >= HEADER) {
            let sent = memory.loans.send_first(packets, count, |buffer, offset, packet| {
                let mbuf = memory.mbuf(buffer);
                // SAFETY: the packet has the buffer, and goes on loan with this.
                unsafe { describe(mbuf, offset, packet.len()) };
                staged.push(mbuf);
            });
            if sent {
                self.reserved = self.reserved.saturating_sub(count);
                return;
            }
        }
        packets.drain(count).for_each(|packet| self.keep(packet));
    }
}

impl Queue for DpdkQueue {
    type Bell = DpdkBell;

    fn bell(&self) -> Arc<DpdkBell> {
        Arc::clone(&self.bell)
    }

    /// A driver must be asked.
    fn is_polled(&self) -> bool {
        true
    }

    #[inline]
    fn receive(&mut self, packets: &mut Vector, most: usize) -> Result<(), QueueError> {
        let most = most.min(packets.room());
        // Frames that are lost leave room that is used in the next breath.
        let mut left = most;
        while left > 0 {
            let mut mbufs = [ptr::null_mut(); BURST];
            let wanted = left.min(BURST);
            // SAFETY: the queue's only user; the driver writes at most as many pointers as there is room for.
            let count = unsafe {
                (self.device.table.receive)(self.device.port, self.number, mbufs.as_mut_ptr(), wanted as u16)
            };
            let count = usize::from(count).min(wanted);
            self.take_all(&mbufs[..count], packets);
            left -= count;
            if count < wanted {
                break;
            }
        }
        packets.as_slice().iter().for_each(Packet::prefetch);
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> Result<(), QueueError> {
        while self.first < self.staged.len() {
            let waiting = &mut self.staged[self.first..];
            let count = waiting.len().min(u16::MAX.into()) as u16;
            // SAFETY: the queue's only user; these mbufs describe whole frames in buffers that are on loan.
            let sent =
                unsafe { (self.device.table.transmit)(self.device.port, self.number, waiting.as_mut_ptr(), count) };
            self.first += usize::from(sent.min(count));
            if sent == 0 {
                // The room of those that were sent is needed for others.
                self.staged.drain(..self.first);
                self.first = 0;
                return Ok(());
            }
        }
        self.staged.clear();
        self.first = 0;
        Ok(())
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        self.first < self.staged.len()
    }

    fn accepted(&self) -> Accepted {
        Accepted::default()
    }

    fn counts(&mut self) -> QueueCounts {
        if self.number != 0 {
            return self.counts;
        }
        // Those of the whole device, by one of its queues.
        let [missed, no_mbuf, errors, send_errors] = self.device.stats();
        QueueCounts { missed, no_mbuf, errors, send_errors, ..self.counts }
    }
}

impl Drop for DpdkQueue {
    fn drop(&mut self) {
        for &mbuf in &self.staged[self.first..] {
            // SAFETY: the queue has their buffers, and no driver does.
            unsafe { (self.device.table.end)(mbuf) };
        }
        self.device.leave_queue(self.number);
    }
}

#[cfg(test)]
mod tests;
