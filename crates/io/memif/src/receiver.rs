//! Packets out of a ring.

use std::ptr::NonNull;
use std::sync::Arc;

use bellows_blit::Blitter;
use bellows_packet::{DATA_ROOM, LARGE_DATA_ROOM, LargeShare, Packet, Vector};
use bellows_sys::wake::PeerEvent;

use crate::Mode;
use crate::ring::{Descriptor, NEXT, Ring, RingBell, RingError};

/// The Ethernet header of a packet of [`Mode::Ip`].
pub(crate) const HEADER: usize = 14;

/// Bytes of a frame that cost as much work as a packet.
const BYTES_OF_A_PACKET: usize = 2_048;

/// What a ring that brings packets has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveCounts {
    /// Packets whose descriptors are invalid: outside the memory, empty, or a chain without an end.
    pub bad_descriptor: u64,
    /// Packets of more than 73,600 bytes.
    pub too_long: u64,
    /// Packets for which the pool had no buffer.
    pub no_buffer: u64,
    /// Packets of [`Mode::Ip`] that are not IP packets.
    pub not_ip: u64,
}

/// The buffers of a ring in our own memory: each descriptor has its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    pub(crate) first: u32,
    pub(crate) length: u32,
}

impl Buffers {
    /// The descriptor of a buffer, which is in region 0.
    #[inline(always)]
    pub(crate) fn descriptor(self, index: u16, mask: u16) -> Descriptor {
        // The client's layout is within 4 GiB.
        let offset = self.first + u32::from(index & mask) * self.length;
        Descriptor { flags: 0, region: 0, length: self.length, offset }
    }
}

/// A ring that brings packets: `C2S` of a server, `S2C` of a client.
pub struct Receiver {
    ring: Ring,
    /// Those of a client.
    buffers: Option<Buffers>,
    mode: Mode,
    /// The position of the next packet.
    next: u16,
    blitter: Blitter,
    share: LargeShare,
    counts: ReceiveCounts,
    bell: Arc<RingBell>,
}

/// Why a packet is not delivered, and an empty packet with an ordinary buffer, if there is one, for the next one.
type Undelivered = (Loss, Option<Packet>);

/// Why a packet is not delivered.
enum Loss {
    BadDescriptor,
    TooLong,
    NoBuffer,
    NotIp,
}

impl Receiver {
    /// A server starts where its tail is, so that it takes nothing twice. A client [begins](Receiver::begin) later.
    pub(crate) fn new(ring: Ring, buffers: Option<Buffers>, mode: Mode, event: Option<PeerEvent>) -> Receiver {
        let next = ring.ours();
        let bell = Arc::new(RingBell::new(&ring, event, next));
        let (blitter, share, counts) = (Blitter::new(), LargeShare::new(), ReceiveCounts::default());
        Receiver { ring, buffers, mode, next, blitter, share, counts, bell }
    }

    /// Lets a client start where the server's tail is, and offer all its buffers. Only when the server has accepted the
    /// connection: that of DPDK sets both indices to 0 before.
    pub(crate) fn begin(&mut self) {
        let Some(buffers) = self.buffers else { return };
        self.next = self.ring.theirs();
        self.bell.moved(self.next);
        let size = self.ring.size();
        for index in 0..size {
            self.ring.write(index, buffers.descriptor(index, size - 1));
        }
        self.ring.publish(self.next.wrapping_add(size));
    }

    /// The bell by which an engine sees that packets have come.
    pub fn bell(&self) -> Arc<RingBell> {
        Arc::clone(&self.bell)
    }

    /// What it has counted.
    pub fn counts(&self) -> ReceiveCounts {
        self.counts
    }

    /// Adds at most `most` packets to the vector, as many as it has room for. Long packets, and those of many pieces,
    /// count as several. Hot.
    ///
    /// # Errors
    /// What the other side has done; no packet was added.
    pub fn receive(&mut self, packets: &mut Vector, most: usize) -> Result<(), RingError> {
        if self.ring.regions().are_broken() {
            return Err(RingError::Truncated);
        }
        let theirs = self.ring.theirs();
        let mut there = theirs.wrapping_sub(self.next);
        // A client has offered all its buffers, so this is the limit on both sides.
        if there > self.ring.size() {
            return Err(RingError::Index { ours: self.next, theirs });
        }
        if there == 0 {
            return Ok(());
        }
        let first = self.next;
        let mut budget = most.min(packets.room());
        let mut fresh = Packet::allocate_burst(budget.min(there.into()));
        let mut spare = None;
        while there > 0 && budget > 0 {
            let empty = spare.take().or_else(|| fresh.next());
            let (pieces, cost, result) = self.take(there, empty);
            match result {
                // There is room: no more packets are taken than fit.
                Ok(packet) => drop(packets.push(packet)),
                Err((loss, packet)) => {
                    self.count(loss);
                    spare = packet;
                }
            }
            budget = budget.saturating_sub(cost);
            there -= pieces;
            self.next = self.next.wrapping_add(pieces);
        }
        self.blitter.barrier();
        if let Some(buffers) = self.buffers {
            self.offer_again(buffers, first);
        } else {
            self.ring.publish(self.next);
        }
        self.bell.moved(self.next);
        Ok(())
    }

    /// Offers the buffers of the packets that were taken. The other side may have written their descriptors, and has
    /// written the lengths.
    #[inline(always)]
    fn offer_again(&self, buffers: Buffers, first: u16) {
        let size = self.ring.size();
        for step in 0..self.next.wrapping_sub(first) {
            let index = first.wrapping_add(step);
            self.ring.write(index, buffers.descriptor(index, size - 1));
        }
        self.ring.publish(self.next.wrapping_add(size));
    }

    #[cold]
    fn count(&mut self, loss: Loss) {
        match loss {
            Loss::BadDescriptor => self.counts.bad_descriptor += 1,
            Loss::TooLong => self.counts.too_long += 1,
            Loss::NoBuffer => self.counts.no_buffer += 1,
            Loss::NotIp => self.counts.not_ip += 1,
        }
    }

    /// Takes the next packet, which has at most `there` pieces, into an empty packet with an ordinary buffer. Returns the
    /// number of its pieces, what they cost of the budget, and the packet or why there is none.
    #[inline(always)]
    fn take(&mut self, there: u16, empty: Option<Packet>) -> (u16, usize, Result<Packet, Undelivered>) {
        let descriptor = self.ring.read(self.next);
        let length = descriptor.length as usize;
        if descriptor.flags & NEXT != 0 || length > DATA_ROOM || self.mode == Mode::Ip {
            return self.take_otherwise(there, descriptor, empty);
        }
        let Some(source) = self.source(self.next, descriptor).filter(|_| length > 0) else {
            return (1, 1, Err((Loss::BadDescriptor, empty)));
        };
        let Some(mut packet) = empty else { return (1, 1, Err((Loss::NoBuffer, None))) };
        self.copy(&mut packet, source, length);
        (1, 1, Ok(packet))
    }

    /// Takes a packet of several pieces, a long one, or one without an Ethernet header.
    #[inline(never)]
    fn take_otherwise(
        &mut self,
        there: u16,
        mut descriptor: Descriptor,
        empty: Option<Packet>,
    ) -> (u16, usize, Result<Packet, Undelivered>) {
        let (mut pieces, mut length) = (0, 0);
        let skipped = if self.mode == Mode::Ip { HEADER } else { 0 };
        let mut result = empty.ok_or((Loss::NoBuffer, None)).map(|mut packet| {
            packet.extend(skipped);
            packet
        });
        loop {
            // After a loss the rest of the chain is only skipped.
            result = result.and_then(|packet| self.add(packet, self.next.wrapping_add(pieces), descriptor));
            length += if result.is_ok() { descriptor.length as usize } else { 0 };
            pieces += 1;
            if descriptor.flags & NEXT == 0 {
                break;
            }
            if pieces == there {
                // Packets are published whole.
                result = result.and_then(|packet| Err((Loss::BadDescriptor, self.emptied(packet))));
                break;
            }
            descriptor = self.ring.read(self.next.wrapping_add(pieces));
        }
        let result = result.and_then(|packet| self.finish(packet, length));
        (pieces, usize::from(pieces) + length / BYTES_OF_A_PACKET, result)
    }

    /// Adds a piece to a packet.
    fn add(&mut self, mut packet: Packet, index: u16, descriptor: Descriptor) -> Result<Packet, Undelivered> {
        let length = descriptor.length as usize;
        let Some(source) = self.source(index, descriptor) else {
            return Err((Loss::BadDescriptor, self.emptied(packet)));
        };
        // In this order the sum cannot wrap around.
        if length > LARGE_DATA_ROOM - packet.len() {
            return Err((Loss::TooLong, self.emptied(packet)));
        }
        if length > packet.tailroom() {
            self.blitter.barrier();
            let Some(mut large) = Packet::with_room_of(&self.share, LARGE_DATA_ROOM) else {
                return Err((Loss::NoBuffer, self.emptied(packet)));
            };
            large.append(packet.bytes());
            packet = large;
        }
        self.copy(&mut packet, source, length);
        Ok(packet)
    }

    /// Checks a packet that is complete, of `length` bytes from the ring.
    fn finish(&mut self, mut packet: Packet, length: usize) -> Result<Packet, Undelivered> {
        if length == 0 {
            return Err((Loss::BadDescriptor, self.emptied(packet)));
        }
        if self.mode == Mode::Ip {
            self.blitter.barrier();
            let kind: [u8; 2] = match packet.bytes()[HEADER] >> 4 {
                4 => [0x08, 0x00],
                6 => [0x86, 0xdd],
                _ => return Err((Loss::NotIp, self.emptied(packet))),
            };
            let header = &mut packet.bytes_mut()[..HEADER];
            header.fill(0);
            header[12..].copy_from_slice(&kind);
        }
        Ok(packet)
    }

    /// A packet that is not delivered, empty, to be used for the next one if it has an ordinary buffer.
    #[cold]
    fn emptied(&mut self, mut packet: Packet) -> Option<Packet> {
        // Copies into it may be queued, so it must not be freed before the barrier.
        self.blitter.barrier();
        packet.truncate(0);
        (packet.tailroom() <= DATA_ROOM).then_some(packet)
    }

    /// The bytes of a piece; `None` if they are not in the memory.
    #[inline(always)]
    fn source(&self, index: u16, descriptor: Descriptor) -> Option<NonNull<u8>> {
        let Descriptor { region, offset, length, .. } = descriptor;
        match self.buffers {
            None => self.ring.regions().bytes(region, offset, length),
            // Where our buffer is we know ourselves.
            Some(buffers) if length <= buffers.length => {
                let own = buffers.descriptor(index, self.ring.size() - 1);
                self.ring.regions().bytes(own.region, own.offset, length)
            }
            Some(_) => None,
        }
    }

    /// Appends bytes of the shared memory to a packet, which has room for them.
    #[inline(always)]
    #[expect(unsafe_code, reason = "copies out of shared memory")]
    fn copy(&mut self, packet: &mut Packet, source: NonNull<u8>, length: usize) {
        let target = packet.extend(length).as_mut_ptr();
        // SAFETY: source() has checked that all bytes are in a region, which the ring keeps mapped; the target is the
        // packet's buffer, which is neither freed nor read before a barrier: receive() ends with one, and emptied(), add()
        // and finish() have one before they use the packet.
        unsafe { self.blitter.copy(target, source.as_ptr(), length) };
    }
}
