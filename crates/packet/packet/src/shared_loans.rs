//! Buffers in which drivers inside the process receive, and from which they send packets, without a copy.
//!
//! Apart from the pool's [`SharedLent`], because it makes packets of buffers and ends packets, which the pool does not
//! know.

use std::mem;

use bellows_pool::{HEADROOM, SharedLent};

use crate::Vector;
use crate::packet::{OFFLOAD, Packet, SPECIAL};

/// The buffers that drivers inside the process have: they take free buffers and give them back on any thread.
///
/// Only ordinary buffers, each named by its number from 0. Dropping this makes all lent buffers free again, so the
/// drivers must have ended.
#[derive(Default)]
pub struct SharedLoans {
    lent: SharedLent,
}

/// A frame that a driver has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// The number of its buffer.
    pub buffer: usize,
    /// Where it begins, in bytes from the start of the headroom.
    pub offset: usize,
    /// Its length in bytes.
    pub length: usize,
}

impl SharedLoans {
    /// Without buffers.
    pub fn new() -> SharedLoans {
        SharedLoans::default()
    }

    /// Number of buffers, lent or not.
    pub fn buffers(&self) -> usize {
        self.lent.buffers()
    }

    /// Number of buffers that are lent. Takes its time.
    pub fn count(&self) -> usize {
        self.lent.count()
    }

    /// The address of the headroom of the buffer with this number.
    #[inline(always)]
    pub fn headroom(&self, buffer: usize) -> usize {
        self.lent.data(buffer) - HEADROOM
    }

    /// Lends up to `count` free buffers, as many as the pool has, and passes their numbers to `give`. Returns how many.
    #[inline]
    pub fn lend(&self, count: usize, give: impl FnMut(usize)) -> usize {
        self.lent.lend_free(count, give)
    }

    /// Adds packets of received frames to the end of a vector. Returns the number of frames that are none: their buffer was
    /// not lent, they do not lie in it, or the vector is full. Their buffers are lent no longer. Hot.
    ///
    /// # Safety
    /// The driver has given up these buffers: it says so on this thread alone, and once.
    #[inline]
    pub unsafe fn receive(&self, frames: impl Iterator<Item = ReceivedFrame>, packets: &mut Vector) -> usize {
        let mut outside = 0;
        let frames = frames.map(|frame| (frame.buffer, frame));
        // SAFETY: the caller says so.
        let (_, foreign) = unsafe {
            self.lent.take_all(frames, |data, frame| {
                let packet = Packet::in_taken_buffer(data).with_data_at(data - HEADROOM + frame.offset, frame.length);
                if !packet.is_some_and(|packet| packets.push(packet).is_ok()) {
                    outside += 1;
                }
            })
        };
        foreign + outside
    }

    /// Lends the buffers of the first `count` packets of a vector, to be sent from: passes the number of each, the offset
    /// from the start of the headroom, and the packet to `describe`, and the packets end. False, and nothing happens, if
    /// there are not as many, or if one is in a large buffer or has a [mark](Packet::mark) or an offload. Hot.
    #[inline]
    pub fn send_first(
        &self,
        packets: &mut Vector,
        count: usize,
        mut describe: impl FnMut(usize, usize, &Packet),
    ) -> bool {
        let Some(first) = packets.as_slice().get(..count) else { return false };
        if first.iter().fold(0, |words, packet| words | packet.word()) & (SPECIAL | OFFLOAD) != 0 {
            return false;
        }
        let numbers = first.iter().map(|packet| {
            let number = self.lent.number(packet.address());
            describe(number, packet.address() - self.headroom(number), packet);
            number
        });
        // SAFETY: the packets own their buffers, which are ordinary ones, alone, and the vector forgets them.
        unsafe { self.lent.lend_all(numbers) };
        packets.moved_out(count);
        true
    }

    /// Lends the buffer of one packet, as [`send_first`](SharedLoans::send_first) does, also of one with a mark.
    ///
    /// # Errors
    /// The packet, if it is in a large buffer.
    #[inline]
    pub fn send(&self, mut packet: Packet, describe: impl FnOnce(usize, usize, &Packet)) -> Result<(), Packet> {
        if packet.is_large() {
            return Err(packet);
        }
        packet.end_mark();
        let number = self.lent.number(packet.address());
        describe(number, packet.address() - self.headroom(number), &packet);
        // SAFETY: the packet owns its buffer alone, is forgotten below and so never freed.
        unsafe { self.lent.lend_all([number].into_iter()) };
        mem::forget(packet);
        Ok(())
    }

    /// Buffers come back without a frame: they are free again. Returns the number of those that were not lent.
    ///
    /// # Safety
    /// As for [`receive`](SharedLoans::receive).
    #[inline]
    pub unsafe fn end(&self, buffers: impl Iterator<Item = usize>) -> usize {
        // SAFETY: the caller says so.
        unsafe { self.lent.end_all(buffers) }
    }

    /// All buffers are free again. Returns the number of those that were lent.
    ///
    /// # Safety
    /// No driver uses a buffer any more, nor will without lending it again.
    pub unsafe fn end_everything(&self) -> usize {
        // SAFETY: the caller says so.
        unsafe { self.lent.end_everything() }
    }
}

#[cfg(test)]
mod tests {
    use bellows_pool::{DATA_ROOM, HEADROOM};

    use super::*;
    use crate::{Mark, MarkedEventKind, pool, take_marked_events};

    fn frame(buffer: usize, offset: usize, length: usize) -> ReceivedFrame {
        ReceivedFrame { buffer, offset, length }
    }

    #[test]
    fn frames_arrive_where_the_driver_wrote_them() {
        pool::ensure().unwrap();
        let loans = SharedLoans::new();
        let mut lent = Vec::new();
        assert_eq!(loans.lend(5, |buffer| lent.push(buffer)), 5);
        let mut packets = Vector::new();
        let frames = [
            frame(lent[0], HEADROOM, DATA_ROOM),
            frame(lent[1], 0, 60),
            frame(lent[2], HEADROOM + 16, 100),
            frame(lent[3], HEADROOM, DATA_ROOM + 1),
            frame(lent[3], HEADROOM, 60),
            frame(usize::MAX, HEADROOM, 60),
        ];
        // SAFETY: this test is the driver.
        let foreign = unsafe { loans.receive(frames.into_iter(), &mut packets) };
        assert_eq!((foreign, loans.count()), (3, 1));
        let places: Vec<_> = packets.as_slice().iter().map(|packet| (packet.headroom(), packet.len())).collect();
        assert_eq!(places, [(HEADROOM, DATA_ROOM), (0, 60), (HEADROOM + 16, 100)]);
        // SAFETY: as above.
        assert_eq!(unsafe { loans.end([lent[4], lent[4]].into_iter()) }, 1);
    }

    #[test]
    fn sent_packets_end_and_come_back_as_they_are() {
        pool::ensure().unwrap();
        let loans = SharedLoans::new();
        let mut packets = Vector::new();
        for number in 0..10u8 {
            let mut packet = Packet::from_bytes(&[number; 100]).unwrap();
            packet.trim_front(usize::from(number));
            packets.push(packet).unwrap();
        }
        let before = crate::buffer_use();
        let mut sent = Vec::new();
        let described = |buffer, offset, packet: &Packet| sent.push(frame(buffer, offset, packet.len()));
        assert!(loans.send_first(&mut packets, 9, described));
        assert_eq!((packets.len(), packets.bytes(), loans.count()), (1, 91, 9));
        let mut last = packets.drain(1).next().unwrap();
        last.mark(Mark { created: 1, id: 7 });
        packets.push(last).unwrap();
        assert!(!loans.send_first(&mut packets, 1, |_, _, _| panic!("it has a mark")));
        let last = packets.drain(1).next().unwrap();
        let described = |buffer, offset, packet: &Packet| sent.push(frame(buffer, offset, packet.len()));
        assert!(loans.send(last, described).is_ok());
        let mut log = Vec::new();
        take_marked_events(&mut log);
        assert_eq!(log.iter().map(|event| event.kind).collect::<Vec<_>>(), [MarkedEventKind::Freed]);
        let mut back = Vector::new();
        // SAFETY: this test is the driver, and sends them to itself.
        assert_eq!(unsafe { loans.receive(sent.into_iter(), &mut back) }, 0);
        for (number, packet) in back.as_slice().iter().enumerate() {
            assert_eq!(packet.bytes(), vec![number as u8; 100 - number]);
        }
        assert_eq!((back.len(), loans.count()), (10, 0));
        drop(back);
        let used = crate::buffer_use().since(before);
        assert_eq!((used.taken, used.freed), (10, 20));
        let large = Packet::with_room(9_000).unwrap();
        assert!(loans.send(large, |_, _, _| panic!("it is in a large buffer")).is_err());
    }
}
