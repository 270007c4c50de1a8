//! Buffers in which the kernel receives frames, and from which it sends packets, without a copy.
//!
//! Apart from the pool's [`Lent`], because it makes packets of buffers and ends packets, which the pool does not know.

use std::mem;

use bellows_pool::{DATA_ROOM, Lent, area};

use crate::Vector;
use crate::packet::Packet;

/// The buffers that one borrower outside the process has: the kernel, for an AF_XDP socket.
///
/// A buffer is named by the position of its data in the pool's memory, counted from [`pool::area`](crate::pool::area).
/// Dropping this makes all lent buffers free again, so the borrower must have ended.
///
/// ```
/// use bellows_packet::{Loans, Vector};
///
/// let mut loans = Loans::new();
/// let mut positions = Vec::new();
/// loans.lend(2, |position| positions.push(position));
/// // The kernel receives a frame of 60 bytes in the first buffer, and says so.
/// let mut received = Vector::new();
/// assert!(loans.receive(positions[0], 60, &mut received));
/// assert_eq!(received.as_slice()[0].len(), 60);
/// assert!(!loans.receive(positions[0], 60, &mut received), "it has come back already");
/// ```
pub struct Loans {
    lent: Lent,
    /// The address of position 0.
    start: usize,
}

impl Loans {
    /// Without buffers.
    pub fn new() -> Loans {
        Loans { lent: Lent::new(), start: area().start }
    }

    /// Number of buffers that are lent.
    pub fn count(&self) -> usize {
        self.lent.count()
    }

    /// Includes the present number of buffers in [`pool::usage`](crate::pool::usage). Meant to be called after a batch.
    #[inline]
    pub fn note(&mut self) {
        self.lent.note();
    }

    /// Lends up to `count` free buffers with room for [`DATA_ROOM`] bytes each, as many as the pool has, and passes the
    /// position of each one's data to `give`. Returns the number.
    #[inline]
    pub fn lend(&mut self, count: usize, mut give: impl FnMut(u64)) -> usize {
        self.lent.lend_free(count, |data| give((data - self.start) as u64))
    }

    /// A frame of `length` bytes was received at a position: adds a packet of these bytes to the end of a vector with
    /// room. False, and nothing is added, if no lent buffer contains these bytes as data, or if the vector is full. The
    /// buffer is lent no longer in either case.
    #[inline]
    pub fn receive(&mut self, position: u64, length: usize, packets: &mut Vector) -> bool {
        let address = self.start.wrapping_add(position as usize);
        let Some(data) = self.lent.take(address) else { return false };
        let packet = Packet::in_taken_buffer(data);
        match packet.with_data_at(address, length) {
            Some(packet) => packets.push(packet).is_ok(),
            None => false,
        }
    }

    /// A part of a frame was received at a position: appends these bytes to a packet. The buffer is free again. False,
    /// and nothing is appended, if no lent buffer contains these bytes as data, or if the packet has no room for them.
    pub fn receive_part(&mut self, position: u64, length: usize, packet: &mut Packet) -> bool {
        let mut parts = Vector::new();
        let received = self.receive(position, length, &mut parts) && length <= packet.tailroom();
        for part in parts.as_slice().iter().take(usize::from(received)) {
            packet.append(part.bytes());
        }
        received
    }

    /// The position of a packet's bytes.
    #[inline]
    pub fn position(&self, packet: &Packet) -> u64 {
        (packet.address() - self.start) as u64
    }

    /// Lends the buffer of a packet, to be sent from: the packet ends here. A packet of more than [`DATA_ROOM`] bytes
    /// comes back in `pieces`, one or more: [`Loans::end`] is called as often.
    #[inline]
    pub fn send(&mut self, mut packet: Packet, pieces: u8) {
        packet.end_mark();
        // SAFETY: the packet owns its buffer alone, is forgotten below and so never freed.
        unsafe { self.lent.lend(packet.address(), packet.is_large(), pieces.max(1)) };
        mem::forget(packet);
    }

    /// A buffer comes back without a frame, or a piece of one that was sent: it is free again. False if no buffer that
    /// contains this position is lent.
    #[inline]
    pub fn end(&mut self, position: u64) -> bool {
        self.lent.end(self.start.wrapping_add(position as usize))
    }
}

impl Default for Loans {
    fn default() -> Loans {
        Loans::new()
    }
}

const _: () = assert!(DATA_ROOM == 2_048, "the documentation above says so");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HEADROOM, Mark, MarkedEventKind, pool, take_marked_events};

    #[test]
    fn frames_arrive_where_the_kernel_wrote_them() {
        pool::ensure().unwrap();
        let mut loans = Loans::new();
        let mut positions = Vec::new();
        assert_eq!(loans.lend(4, |position| positions.push(position)), 4);
        let mut packets = Vector::new();
        assert!(loans.receive(positions[0], DATA_ROOM, &mut packets));
        assert!(loans.receive(positions[1] + 16, 100, &mut packets), "behind a header of the device");
        assert!(!loans.receive(positions[2], DATA_ROOM + 1, &mut packets), "longer than the buffer");
        assert!(!loans.receive(positions[3] + 1, DATA_ROOM, &mut packets), "beyond the end of the buffer");
        assert!(!loans.receive(u64::MAX, 1, &mut packets));
        assert_eq!(loans.count(), 0);
        let rooms: Vec<_> = packets.as_slice().iter().map(|packet| (packet.headroom(), packet.tailroom())).collect();
        assert_eq!(rooms, [(HEADROOM, 0), (HEADROOM + 16, DATA_ROOM - 116)]);
        assert_eq!(loans.position(&packets.as_slice()[1]), positions[1] + 16);
    }

    #[test]
    fn a_sent_packet_ends_and_its_buffer_comes_back_in_pieces() {
        pool::ensure().unwrap();
        let mut loans = Loans::new();
        let mut packet = Packet::with_room(9_000).unwrap();
        packet.extend(9_000);
        packet.mark(Mark { created: 1, id: 7 });
        let position = loans.position(&packet);
        loans.send(packet, 3);
        let mut log = Vec::new();
        take_marked_events(&mut log);
        assert_eq!(log.iter().map(|event| event.kind).collect::<Vec<_>>(), [MarkedEventKind::Freed]);
        assert!(!loans.receive(position, 60, &mut Vector::new()), "it was not lent to receive");
        for piece in 0..3 {
            assert_eq!(loans.count(), 1);
            assert!(loans.end(position + piece * 3_000));
        }
        assert!(!loans.end(position) && loans.count() == 0);
        let small = Packet::from_bytes(b"small").unwrap();
        let position = loans.position(&small);
        loans.send(small, 9);
        assert!(loans.end(position) && !loans.end(position));
    }
}
