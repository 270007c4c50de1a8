//! Packets into a ring.

use std::ptr::NonNull;

use bellows_blit::Blitter;
use bellows_ipc::notify::Notifier;
use bellows_packet::{LARGE_DATA_ROOM, Offload, Packet};
use bellows_ports::{Accepted, Rejection, Taken, offload};

use crate::receiver::{Buffers, HEADER};
use crate::ring::{Descriptor, NEXT, Ring, RingError};
use crate::{MIN_BUFFER, Mode, Side};

/// A ring that takes packets: `S2C` of a server, `C2S` of a client.
pub struct Transmitter {
    ring: Ring,
    /// Those of a client.
    buffers: Option<Buffers>,
    mode: Mode,
    /// The position of the next packet.
    next: u16,
    /// The position of the next packet as the other side knows it.
    published: u16,
    blitter: Blitter,
    notifier: Option<Notifier>,
    /// The pieces of a packet that needs several.
    pieces: Vec<(NonNull<u8>, Descriptor)>,
    /// What has stopped it.
    error: Option<RingError>,
    not_ip: u64,
}

// SAFETY: the addresses are in regions that the ring keeps mapped, and only valid during a call.
#[expect(unsafe_code, reason = "a list of addresses that is empty between calls")]
unsafe impl Send for Transmitter {}

/// Why a packet is not put into the ring.
enum Refusal {
    Rejected(Rejection),
    Stopped(RingError),
}

impl Transmitter {
    /// Starts where our index is, so that it fills nothing twice.
    pub(crate) fn new(ring: Ring, buffers: Option<Buffers>, mode: Mode, notifier: Option<Notifier>) -> Transmitter {
        let next = ring.ours();
        Transmitter {
            ring,
            buffers,
            mode,
            next,
            published: next,
            blitter: Blitter::new(),
            notifier,
            pieces: Vec::with_capacity(LARGE_DATA_ROOM.div_ceil(MIN_BUFFER as usize)),
            error: None,
            not_ip: 0,
        }
    }

    /// Number of packets of [`Mode::Ip`] that were dropped because they were not IP packets.
    pub fn not_ip(&self) -> u64 {
        self.not_ip
    }

    /// Copies packets into the ring, in order, as many as it has room for. Hot.
    ///
    /// # Errors
    /// What the other side has done, in this call or before; no packet was taken.
    pub fn send(&mut self, packets: &[Packet]) -> Result<Taken, RingError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.ring.regions().are_broken() {
            return Err(RingError::Truncated);
        }
        let (size, theirs) = (self.ring.size(), self.ring.theirs());
        // A server fills buffers that the client offers between its tail and the head; a client has buffers that the
        // server has not taken yet between the tail and its head.
        let (distance, offered) = match self.ring.side() {
            Side::Server => (theirs.wrapping_sub(self.next), true),
            Side::Client => (self.next.wrapping_sub(theirs), false),
        };
        if distance > size {
            return Err(RingError::Index { ours: self.next, theirs });
        }
        let mut free = if offered { distance } else { size - distance };
        let mut taken = Taken { count: 0, stop: None };
        for packet in packets {
            match self.put(packet, free) {
                Ok(pieces) => {
                    free -= pieces;
                    self.next = self.next.wrapping_add(pieces);
                }
                Err(Refusal::Rejected(why)) => {
                    taken.stop = Some(why);
                    break;
                }
                Err(Refusal::Stopped(error)) if taken.count == 0 => {
                    self.error = Some(error);
                    return Err(error);
                }
                Err(Refusal::Stopped(error)) => {
                    // Those before it are sent; the next call reports the error.
                    self.error = Some(error);
                    taken.stop = Some(Rejection::Full);
                    break;
                }
            }
            taken.count += 1;
        }
        self.blitter.barrier();
        if self.next != self.published {
            self.publish();
        }
        Ok(taken)
    }

    #[inline(always)]
    fn publish(&mut self) {
        self.published = self.next;
        self.ring.publish(self.next);
        if let Some(notifier) = &self.notifier
            && self.ring.wants_interrupt()
        {
            notifier.notify();
        }
    }

    /// Copies a packet into at most `free` buffers. Returns how many it took.
    #[inline(always)]
    fn put(&mut self, packet: &Packet, free: u16) -> Result<u16, Refusal> {
        if packet.has_offload() && offload::header_for(packet, Accepted::default()) != Some(Offload::default()) {
            return Err(Refusal::Rejected(Rejection::Offload));
        }
        let bytes = match self.mode {
            Mode::Ethernet => packet.bytes(),
            Mode::Ip => match ip_part(packet.bytes()) {
                Some(bytes) => bytes,
                None => {
                    self.not_ip += 1;
                    return Ok(0);
                }
            },
        };
        if free == 0 {
            return Err(Refusal::Rejected(Rejection::Full));
        }
        let (target, buffer) = self.buffer(self.next)?;
        if bytes.len() > buffer.length as usize {
            return self.put_long(bytes, free);
        }
        self.copy(target, bytes);
        self.ring.write(self.next, Descriptor { flags: 0, length: bytes.len() as u32, ..buffer });
        Ok(1)
    }

    /// Copies a packet that does not fit into one buffer.
    #[inline(never)]
    fn put_long(&mut self, bytes: &[u8], free: u16) -> Result<u16, Refusal> {
        self.pieces.clear();
        let mut room = 0;
        while room < bytes.len() {
            let count = self.pieces.len() as u16;
            if count == free {
                // A ring whose buffers are all free has no more room later.
                let ever = free < self.ring.size();
                return Err(Refusal::Rejected(if ever { Rejection::Full } else { Rejection::TooLong }));
            }
            let (target, buffer) = self.buffer(self.next.wrapping_add(count))?;
            self.pieces.push((target, buffer));
            room += buffer.length as usize;
        }
        let pieces = std::mem::take(&mut self.pieces);
        let mut rest = bytes;
        for (number, (target, buffer)) in pieces.iter().enumerate() {
            let (part, others) = rest.split_at(rest.len().min(buffer.length as usize));
            self.copy(*target, part);
            let flags = if others.is_empty() { 0 } else { NEXT };
            let index = self.next.wrapping_add(number as u16);
            self.ring.write(index, Descriptor { flags, length: part.len() as u32, ..*buffer });
            rest = others;
        }
        let count = pieces.len() as u16;
        self.pieces = pieces;
        self.pieces.clear();
        Ok(count)
    }

    /// A free buffer: its address and its descriptor.
    #[inline(always)]
    fn buffer(&self, index: u16) -> Result<(NonNull<u8>, Descriptor), Refusal> {
        let buffer = match self.buffers {
            Some(buffers) => buffers.descriptor(index, self.ring.size() - 1),
            None => self.ring.read(index),
        };
        let Descriptor { region, offset, length, .. } = buffer;
        let target = self.ring.regions().bytes(region, offset, length).filter(|_| length >= MIN_BUFFER);
        let target = target.ok_or(Refusal::Stopped(RingError::Buffer { region, offset, length }))?;
        Ok((target, buffer))
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "copies into shared memory")]
    fn copy(&mut self, target: NonNull<u8>, bytes: &[u8]) {
        // SAFETY: buffer() has checked that the target has room in a region, which the ring keeps mapped: the callers
        // compare the number of bytes with the buffer's length. The packet is borrowed until send() has run the barrier.
        unsafe { self.blitter.copy(target.as_ptr(), bytes.as_ptr(), bytes.len()) };
    }
}

/// An Ethernet frame without its header, if it is an IP packet.
fn ip_part(frame: &[u8]) -> Option<&[u8]> {
    let (header, rest) = frame.split_at_checked(HEADER)?;
    let version = rest.first()? >> 4;
    matches!((&header[12..], version), ([0x08, 0x00], 4) | ([0x86, 0xdd], 6)).then_some(rest)
}
