//! Buffers in which the kernel receives frames, and from which it sends packets, without a copy.
//!
//! Apart from the pool's [`Lent`], because it makes packets of buffers and ends packets, which the pool does not know.

use std::mem;

use bellows_pool::{DATA_ROOM, Lent, area};

use crate::Vector;
use crate::packet::{OFFLOAD, Packet, SPECIAL, pointer};

/// The buffers that one borrower outside the process has: the kernel, for an AF_XDP socket.
///
/// A buffer is named by the position of its data in the pool's memory, counted from [`pool::area`](crate::pool::area).
/// Dropping this makes all lent buffers free again, so the borrower must have ended.
///
/// ```
/// use bellows_packet::{Loans, Vector};
///
/// let mut loans = Loans::new(0);
/// let mut positions = Vec::new();
/// loans.lend(2, |lent| positions.extend(lent));
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
    /// Without buffers. `capacity`: the number of buffers that will usually be lent to receive frames, and the number of
    /// those to send packets. More can be.
    pub fn new(capacity: usize) -> Loans {
        Loans { lent: Lent::new(capacity), start: area().start }
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
    /// positions of their data to `give`, some at a time. Returns the number.
    #[inline]
    pub fn lend(&mut self, count: usize, mut give: impl FnMut(Positions<'_>)) -> usize {
        let start = self.start;
        self.lent.lend_free(count, |buffers| give(Positions { addresses: buffers.iter(), start }))
    }

    /// Frames of these lengths were received at these positions: adds packets of their bytes to the end of a vector, as
    /// [`Loans::receive`] does, up to the first frame that is not at the start of the buffer that was lent before all others,
    /// that is longer than [`DATA_ROOM`], or for which there is no room. Returns the number. Meant to be called again for
    /// the rest, until it returns 0. Hot.
    #[inline]
    pub fn receive_all(&mut self, positions: &[u64], lengths: &[u32], packets: &mut Vector) -> usize {
        let next = self.lent.next_free();
        let count = positions.len().min(lengths.len()).min(next.len()).min(packets.room());
        let (positions, lengths, next) = (&positions[..count], &lengths[..count], &next[..count]);
        let (mut differences, mut longest, mut bytes) = (0, 0, 0);
        for ((&position, &length), &data) in positions.iter().zip(lengths).zip(next) {
            differences |= position ^ (data - self.start) as u64;
            longest = length.max(longest);
            bytes += u64::from(length);
        }
        if differences != 0 || longest as usize > DATA_ROOM {
            let is_usual = |((&position, &length), &data): ((&u64, &u32), &usize)| {
                position == (data - self.start) as u64 && length as usize <= DATA_ROOM
            };
            let count = positions.iter().zip(lengths).zip(next).take_while(|&frame| is_usual(frame)).count();
            return if count > 0 { self.receive_all(&positions[..count], &lengths[..count], packets) } else { 0 };
        }
        let slots = packets.free_slots();
        for (index, (&length, &data)) in lengths.iter().zip(next).enumerate() {
            // SAFETY: there are no more frames than free slots. The buffer is lent, and so nobody's; the lent ones lose it
            // below.
            unsafe { slots.add(index).write(Packet::from_free_buffer(pointer(data), length.into())) };
        }
        // SAFETY: these slots hold packets of as many bytes, which nothing else owns after the next line.
        unsafe { packets.pushed(count, bytes) };
        self.lent.take_next(count);
        count
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

    /// Lends the buffers of the first `count` packets of a vector, to be sent from, as [`Loans::send`] does, and passes the
    /// packets to `describe` before they end. False, and nothing happens, if there are not as many, or if one is in a large
    /// buffer or has a [mark](Packet::mark) or an offload. Hot.
    #[inline]
    pub fn send_first(&mut self, packets: &mut Vector, count: usize, describe: impl FnOnce(&Loans, &[Packet])) -> bool {
        let Some(first) = packets.as_slice().get(..count) else { return false };
        if first.iter().fold(0, |words, packet| words | packet.word()) & (SPECIAL | OFFLOAD) != 0 {
            return false;
        }
        describe(self, first);
        // SAFETY: the packets own their buffers, which are ordinary ones, alone, and the vector forgets them.
        unsafe { self.lent.lend_all(first.iter().map(Packet::address)) };
        packets.moved_out(count);
        true
    }

    /// Buffers that were sent come back, at these positions: they are free again. Up to the first that is not the one lent
    /// before all others. Returns the number. Meant to be called again for the rest, until it returns 0. The lowest bit of
    /// positions is ignored. Hot.
    #[inline]
    pub fn end_all(&mut self, positions: &[u64]) -> usize {
        let next = self.lent.next_sent();
        let count = positions.len().min(next.len());
        let (positions, next) = (&positions[..count], &next[..count]);
        let mut differences = 0;
        for (&position, &data) in positions.iter().zip(next) {
            differences |= position ^ (data - self.start) as u64;
        }
        let is_next = |(&position, &data): (&u64, &usize)| (position ^ (data - self.start) as u64) <= 1;
        let count = match differences <= 1 {
            true => count,
            false => positions.iter().zip(next).take_while(|&pair| is_next(pair)).count(),
        };
        self.lent.end_next(count);
        count
    }

    /// A buffer comes back without a frame, or a piece of one that was sent: it is free again. False if no buffer that
    /// contains this position is lent.
    #[inline]
    pub fn end(&mut self, position: u64) -> bool {
        self.lent.end(self.start.wrapping_add(position as usize))
    }
}

/// The positions of buffers that are lent; see [`Loans::lend`].
pub struct Positions<'b> {
    addresses: std::slice::Iter<'b, usize>,
    start: usize,
}

impl Iterator for Positions<'_> {
    type Item = u64;

    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        self.addresses.next().map(|data| (data - self.start) as u64)
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.addresses.size_hint()
    }
}

const _: () = assert!(DATA_ROOM == 2_048, "the documentation above says so");

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::{HEADROOM, Mark, MarkedEventKind, pool, take_marked_events};

    /// The kernel without its rings: it has the positions of buffers, and says something about some of them.
    struct Borrower {
        loans: Loans,
        waiting: Vec<u64>,
        packets: Vector,
        sent: Vec<u64>,
        /// The buffers by position, numbered in the order in which they were lent.
        numbers: BTreeMap<u64, usize>,
    }

    /// A frame: that of a waiting buffer, by index, or of none; where it begins, its length, and whether it is said again.
    #[derive(Clone, Copy, Debug)]
    struct Said {
        index: usize,
        at: u64,
        length: u32,
        again: bool,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Lend(usize),
        Receive(Vec<Said>),
        /// Of so many packets; one with this number is marked.
        Send(usize, usize),
        /// The indices of buffers that were sent, and the bits that are changed.
        End(Vec<(usize, u64)>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let usually = |usual: usize| prop_oneof![12 => Just(usual), 1 => 1usize..5, 1 => Just(usize::MAX)];
        let at = prop_oneof![12 => Just(0), 1 => 0u64..=2_048];
        let length = prop_oneof![12 => 14u32..100, 1 => 2_000u32..2_060];
        let said = (usually(0), at, length, prop::bool::weighted(0.03));
        let said = said.prop_map(|(index, at, length, again)| Said { index, at, length, again });
        prop_oneof![
            (0usize..20).prop_map(Step::Lend),
            vec(said, 0..12).prop_map(Step::Receive),
            (0usize..12, 0usize..60).prop_map(|(count, marked)| Step::Send(count, marked)),
            vec((usually(0), prop_oneof![9 => Just(0), 1 => Just(1u64), 1 => Just(1 << 40)]), 0..12)
                .prop_map(Step::End),
        ]
    }

    impl Borrower {
        fn new() -> Borrower {
            let (loans, packets) = (Loans::new(4), Vector::new());
            Borrower { loans, waiting: Vec::new(), packets, sent: Vec::new(), numbers: BTreeMap::new() }
        }

        /// Takes a step, one by one or together, and returns what came of it, without positions.
        fn take(&mut self, step: &Step, first: usize, together: bool) -> Vec<Option<usize>> {
            match step {
                Step::Lend(count) => {
                    let before = self.waiting.len();
                    self.loans.lend(*count, |lent| self.waiting.extend(lent));
                    for (index, position) in self.waiting[before..].iter().enumerate() {
                        self.numbers.insert(*position, first + index);
                    }
                    vec![Some(self.waiting.len() - before)]
                }
                Step::Receive(said) => {
                    let (mut positions, mut lengths) = (Vec::new(), Vec::new());
                    for said in said {
                        let is_lent = said.index < self.waiting.len();
                        let position = if is_lent { self.waiting.remove(said.index) } else { u64::MAX / 2 };
                        for _ in 0..1 + usize::from(said.again) {
                            positions.push(position.wrapping_add(said.at));
                            lengths.push(said.length);
                        }
                    }
                    let before = self.packets.len();
                    let mut done = 0;
                    let mut taken = Vec::new();
                    while done < positions.len() {
                        let together = match together {
                            true => self.loans.receive_all(&positions[done..], &lengths[done..], &mut self.packets),
                            false => 0,
                        };
                        taken.extend(std::iter::repeat_n(Some(1), together));
                        done += together;
                        if together == 0 {
                            let is_frame =
                                self.loans.receive(positions[done], lengths[done] as usize, &mut self.packets);
                            taken.push(Some(usize::from(is_frame)));
                            done += 1;
                        }
                    }
                    let new = &self.packets.as_slice()[before..];
                    let describe = |packet: &Packet| {
                        let (_, &number) = self.numbers.range(..=self.loans.position(packet)).next_back()?;
                        Some(number << 20 | packet.len() << 8 | (packet.headroom() & 0xff))
                    };
                    taken.extend(new.iter().map(describe));
                    taken.push(Some(self.packets.bytes() as usize));
                    taken
                }
                Step::Send(count, marked) => {
                    let count = (*count).min(self.packets.len());
                    if let Some(packet) = self.packets.as_mut_slice()[..count].get_mut(*marked) {
                        packet.mark(Mark { created: 1, id: 7 });
                    }
                    let sent = &mut self.sent;
                    let describe = |loans: &Loans, packets: &[Packet]| {
                        sent.extend(packets.iter().map(|packet| loans.position(packet)));
                    };
                    let done = together && self.loans.send_first(&mut self.packets, count, describe);
                    assert_eq!(done, together && *marked >= count);
                    for packet in self.packets.drain(if done { 0 } else { count }) {
                        self.sent.push(self.loans.position(&packet));
                        self.loans.send(packet, 1);
                    }
                    vec![Some(self.packets.len()), Some(self.packets.bytes() as usize)]
                }
                Step::End(indices) => {
                    let mut positions = Vec::new();
                    for &(index, bits) in indices {
                        let position = if index < self.sent.len() { self.sent.remove(index) } else { u64::MAX / 2 };
                        positions.push(position ^ bits);
                    }
                    let mut rest = &positions[..];
                    let mut ended = Vec::new();
                    while let [first, others @ ..] = rest {
                        let done = if together { self.loans.end_all(rest) } else { 0 };
                        ended.extend(std::iter::repeat_n(Some(1), done));
                        rest = &rest[done..];
                        if done == 0 {
                            ended.push(Some(usize::from(self.loans.end(*first))));
                            rest = others;
                        }
                    }
                    ended
                }
            }
        }
    }

    proptest! {
        /// Whatever the kernel says, the same becomes of many frames together as of each by itself.
        #[test]
        fn many_buffers_come_and_go_as_one_does(steps in vec(step(), 1..60)) {
            pool::ensure().unwrap();
            let mut sides = [Borrower::new(), Borrower::new()];
            let mut lent = 0;
            for step in steps {
                let [one, many] = &mut sides;
                let before = crate::buffer_use();
                let expected = one.take(&step, lent, false);
                let used = crate::buffer_use().since(before);
                let before = crate::buffer_use();
                prop_assert_eq!(many.take(&step, lent, true), expected, "{:?}", step);
                prop_assert_eq!(crate::buffer_use().since(before), used);
                prop_assert_eq!(many.loans.count(), one.loans.count());
                if let Step::Lend(count) = step {
                    lent += count;
                }
            }
            let mut log = Vec::new();
            take_marked_events(&mut log);
        }
    }

    #[test]
    fn frames_arrive_where_the_kernel_wrote_them() {
        pool::ensure().unwrap();
        let mut loans = Loans::new(4);
        let mut positions = Vec::new();
        assert_eq!(loans.lend(4, |lent| positions.extend(lent)), 4);
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
        let mut loans = Loans::new(0);
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
