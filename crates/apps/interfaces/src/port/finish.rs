//! Work that a packet's sender has left to others, done here for a receiver that does not accept the packet as it is:
//! because the option is not negotiated, or because the offload is no longer true of the packet.

use bellows_common::segmentation::kind_of;
use bellows_engine::{App, DropReason, Io};
use bellows_packet::{Offload, Packet, Vector};
use bellows_ports::Accepted;
use bellows_wire::offload::{Checksums, GsoPacket, Transport};

/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM: u16 = 16;

/// Bytes that a queue may finish in a call, for each packet of its burst.
const BYTES_PER_PACKET: usize = 2_048;

/// The work that an app may still do for one queue in this breath.
///
/// All queues of an app together finish as many packets as the engine's burst, but at least one each, and 2,048 bytes
/// for each of these packets; only a queue's last packet may exceed the bytes. So a sender's large packets take no more
/// of a breath than a burst of small ones. The remaining packets wait in the receiver's queue, where they delay no
/// other receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    packets: usize,
    bytes: usize,
}

impl Budget {
    /// The share of one of `queues` queues.
    pub(crate) fn share(burst: usize, queues: usize) -> Budget {
        let packets = (burst / queues.max(1)).max(1);
        Budget { packets, bytes: packets * BYTES_PER_PACKET }
    }

    #[inline]
    fn is_spent(&self) -> bool {
        self.packets == 0 || self.bytes == 0
    }

    fn spend(&mut self, bytes: usize) {
        self.packets = self.packets.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A packet that is being cut into segments.
struct Cut {
    whole: Packet,
    /// Index of the next segment.
    next: usize,
}

/// The reason to stop cutting a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The packet is completely cut.
    Finished,
    /// The pool has no buffer for a segment.
    NoBuffer,
    /// The budget is spent.
    Spent,
}

/// The packets of one queue that are being finished. They are sent before those that wait for the queue.
pub(crate) struct Finisher {
    /// Packets ready to be sent, before the rest of the packet that is being cut. Has no memory until the first packet.
    ready: Vector,
    cut: Option<Cut>,
    budget: Budget,
}

impl Finisher {
    /// Creates an empty finisher.
    pub(crate) fn new() -> Finisher {
        Finisher { ready: Vector::none(), cut: None, budget: Budget { packets: 0, bytes: 0 } }
    }

    /// Sets the budget for a new breath.
    #[inline]
    pub(crate) fn refill(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Whether the rest must wait for the next breath.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.budget.is_spent()
    }

    /// Number of packets it holds.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.ready.len() + usize::from(self.cut.is_some())
    }

    /// The packets to send next.
    #[inline]
    pub(crate) fn packets(&self) -> &[Packet] {
        self.ready.as_slice()
    }

    /// Takes out the first `count` of them.
    pub(crate) fn take(&mut self, count: usize) -> impl Iterator<Item = Packet> {
        self.ready.drain(count)
    }

    /// Takes out all packets: those that are ready, and the one that was being cut.
    pub(crate) fn empty(&mut self) -> (Vector, Option<Packet>) {
        (std::mem::replace(&mut self.ready, Vector::none()), self.cut.take().map(|cut| cut.whole))
    }

    /// Takes a packet that the receiver does not accept as it is. It comes before all packets that wait here.
    ///
    /// A packet whose offload cannot be done is dropped as `bad_offload`.
    #[cold]
    pub(crate) fn begin<A: App>(&mut self, io: &Io<A>, packet: Packet, bad_offload: DropReason<A>) {
        if let Err(packet) = self.accept(packet) {
            io.drop(packet, bad_offload);
        }
    }

    /// Continues to cut, if no packet is ready to be sent. False if there is more to do than the budget allows.
    #[inline]
    pub(crate) fn go_on<A: App>(&mut self, io: &Io<A>, able: Accepted) -> bool {
        self.cut.is_none() || !self.ready.is_empty() || self.go_on_cutting(io, able)
    }

    #[cold]
    fn go_on_cutting<A: App>(&mut self, io: &Io<A>, able: Accepted) -> bool {
        let end = self.make_segments(able);
        if end == End::NoBuffer {
            // Without the remaining segments the receiver's stream has a hole, as after any packet without a buffer.
            io.count_no_buffer(1);
        }
        end != End::Spent || !self.ready.is_empty()
    }

    /// Finishes a packet, or stores it to be cut. Gives back a packet that cannot be finished.
    fn accept(&mut self, mut packet: Packet) -> Result<(), Packet> {
        let claim = packet.offload().unwrap_or_default();
        if claim.is_gso() {
            if self.cut.is_some() || gso_packet(&packet, claim).is_none() {
                return Err(packet);
            }
            self.cut = Some(Cut { whole: packet, next: 0 });
            return Ok(());
        }
        if claim.needs_checksum() {
            self.budget.spend(packet.len());
            if !finish_checksum(packet.bytes_mut(), claim) {
                return Err(packet);
            }
        }
        packet.clear_offload();
        self.put_first(packet)
    }

    fn put_first(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.ready.is_empty() {
            self.make_room();
            return self.ready.push(packet);
        }
        // These were finished for an earlier driver.
        let mut packets = Vector::new();
        packets.push(packet)?;
        packets.append(&mut self.ready, usize::MAX);
        self.ready = packets;
        Ok(())
    }

    fn make_room(&mut self) {
        if self.ready.is_none() {
            self.ready = Vector::new();
        }
        self.ready.compact();
    }

    /// Cuts segments, as many as the budget allows.
    fn make_segments(&mut self, able: Accepted) -> End {
        self.make_room();
        let Some(cut) = &mut self.cut else { return End::Finished };
        let claim = cut.whole.offload().unwrap_or_default();
        // It was a GSO packet when it was stored, and has not changed.
        let Some(whole) = gso_packet(&cut.whole, claim) else { return End::Finished };
        let checksums = if able.checksums { Checksums::Partial } else { Checksums::Whole };
        let mut end = End::Finished;
        for segment in whole.segments(checksums).skip(cut.next) {
            if self.budget.is_spent() || self.ready.room() == 0 {
                end = End::Spent;
                break;
            }
            let Some(mut made) = Packet::with_room(segment.len()) else {
                end = End::NoBuffer;
                break;
            };
            segment.write(made.extend(segment.len()));
            made.set_tag(cut.whole.tag());
            if let Some(meta) = cut.whole.meta() {
                made.set_meta(meta);
            }
            if able.checksums {
                made.set_offload(Offload {
                    flags: Offload::NEEDS_CHECKSUM,
                    // The headers of a packet that can be cut are short.
                    checksum_start: whole.tcp_start() as u16,
                    checksum_offset: TCP_CHECKSUM,
                    ..Offload::default()
                });
            }
            self.budget.spend(segment.len());
            cut.next += 1;
            // There is room: it was checked above.
            let _ = self.ready.push(made);
        }
        if end != End::Spent {
            self.cut = None;
        }
        end
    }
}

/// The packet as a GSO packet, if it can be cut.
fn gso_packet(packet: &Packet, claim: Offload) -> Option<GsoPacket<'_>> {
    GsoPacket::new(packet.bytes(), kind_of(claim)?, claim.segment_size).ok()
}

/// Finishes the checksum of a frame's TCP or UDP header, if the claim points to it. Writes nothing else in the packet,
/// because apps have seen it.
fn finish_checksum(frame: &mut [u8], claim: Offload) -> bool {
    let meant = (claim.checksum_start.into(), claim.checksum_offset.into());
    let found = Transport::find(frame).ok().filter(|found| (found.start(), found.checksum_offset()) == meant);
    found.is_some_and(|found| found.finish(frame).is_ok())
}

#[cfg(test)]
mod tests {
    use super::super::samples::gso_packet;
    use super::*;
    use bellows_packet::pool;
    use bellows_wire::offload::GsoKind;
    use bellows_wire::verify_checksums;
    use proptest::prelude::*;

    /// A receiver that finishes checksums.
    const PARTIAL: Accepted = Accepted { checksums: true, tcp4: false, tcp6: false };

    /// Enough for everything.
    const ENDLESS: Budget = Budget { packets: usize::MAX, bytes: usize::MAX };

    /// The resulting packets with this budget for each breath, and the number of breaths that made segments; or the
    /// packet, if it cannot be finished.
    fn finish(packet: Packet, able: Accepted, budget: Budget) -> Result<(Vec<Packet>, usize), Packet> {
        let (mut finisher, mut packets, mut breaths) = (Finisher::new(), Vec::new(), 0);
        finisher.refill(budget);
        finisher.accept(packet)?;
        while finisher.held() > 0 {
            finisher.refill(budget);
            packets.extend(finisher.take(usize::MAX));
            let made = finisher.make_segments(able);
            let left = finisher.budget;
            let (count, bytes) = finisher.packets().iter().fold((0, 0), |sum, one| (sum.0 + 1, sum.1 + one.len()));
            assert_eq!((left.packets, left.bytes), (budget.packets - count, budget.bytes.saturating_sub(bytes)));
            breaths += usize::from(count > 0);
            assert!(made != End::Spent || count > 0, "nothing becomes of it in one breath after the other");
        }
        Ok((packets, breaths))
    }

    #[test]
    fn a_gso_packet_becomes_segments_with_checksums_for_a_receiver_without_offloads() {
        let (done, _) = finish(gso_packet(3000, 1448), Accepted::default(), ENDLESS).unwrap();
        let lengths: Vec<usize> = done.iter().map(Packet::len).collect();
        assert_eq!(lengths, [54 + 1448, 54 + 1448, 54 + 104]);
        for packet in &done {
            assert!(!packet.has_offload());
            verify_checksums(packet.bytes()).unwrap();
        }
    }

    #[test]
    fn a_receiver_with_checksum_offload_gets_segments_with_partial_checksums() {
        let (done, _) = finish(gso_packet(3000, 1448), PARTIAL, ENDLESS).unwrap();
        assert_eq!(done.len(), 3);
        for packet in done {
            assert!(verify_checksums(packet.bytes()).is_err());
            let (whole, _) = finish(packet, Accepted::default(), ENDLESS).unwrap();
            assert!(!whole[0].has_offload());
            verify_checksums(whole[0].bytes()).unwrap();
        }
    }

    #[test]
    fn a_breath_keeps_its_budget_and_the_next_one_continues() {
        let all = finish(gso_packet(49_000, 48), Accepted::default(), ENDLESS).unwrap().0;
        assert_eq!(all.len(), 1_021);
        for (burst, queues, breaths) in [(128, 1, 8), (128, 4, 32), (1, 1, 1_021), (1, 32, 1_021), (4_096, 1, 1)] {
            let (some, made) =
                finish(gso_packet(49_000, 48), Accepted::default(), Budget::share(burst, queues)).unwrap();
            assert_eq!(made, breaths, "a burst of {burst}, {queues} queues");
            assert!(some.iter().zip(&all).all(|(one, other)| one.bytes() == other.bytes()) && some.len() == all.len());
        }
        // Long segments count by their bytes: 2,048 for each packet of the burst, plus the segment that exceeds this.
        let (some, breaths) = finish(gso_packet(60_000, 9_000), Accepted::default(), Budget::share(8, 1)).unwrap();
        assert_eq!((some.len(), breaths), (7, 4));
    }

    #[test]
    fn finished_packets_come_before_the_rest_of_a_cut_one() {
        let mut finisher = Finisher::new();
        finisher.refill(Budget::share(2, 1));
        assert!(finisher.accept(gso_packet(3000, 1448)).is_ok());
        assert_eq!(finisher.make_segments(PARTIAL), End::Spent);
        assert_eq!((finisher.held(), finisher.packets().len(), finisher.is_spent()), (3, 2, true));
        // The driver has changed meanwhile, and no longer accepts partial checksums.
        let first = finisher.take(1).next().unwrap();
        assert!(finisher.accept(first).is_ok());
        let checked: Vec<bool> = finisher.packets().iter().map(|one| verify_checksums(one.bytes()).is_ok()).collect();
        assert_eq!(checked, [true, false]);
        let (ready, rest) = finisher.empty();
        assert_eq!((ready.len(), rest.map(|rest| rest.len()), finisher.held()), (2, Some(3054), 0));
    }

    #[test]
    fn packets_that_cannot_be_finished_are_returned_unchanged() {
        let change = |change: fn(&mut Offload)| {
            let mut packet = gso_packet(3000, 1448);
            let mut offload = packet.offload().unwrap();
            change(&mut offload);
            packet.set_offload(offload);
            finish(packet, Accepted::default(), ENDLESS)
                .map(|(packets, _)| packets.len())
                .map_err(|packet| packet.len())
        };
        assert_eq!(change(|_| ()), Ok(3));
        assert_eq!(change(|offload| offload.gso_type |= Offload::GSO_ECN), Ok(3));
        assert_eq!(change(|offload| offload.segment_size = 47), Err(3054), "segments too small");
        assert_eq!(change(|offload| offload.gso_type = Offload::GSO_TCP6), Err(3054));
        assert_eq!(change(|offload| offload.gso_type = 3), Err(3054), "UDP");
        let plain = Offload { gso_type: 0, checksum_start: 34, checksum_offset: 16, flags: 1, ..Offload::default() };
        let with = |offload: Offload| {
            let mut packet = gso_packet(100, 1448);
            let before = packet.bytes().to_vec();
            packet.set_offload(offload);
            match finish(packet, Accepted::default(), ENDLESS) {
                Ok((packets, _)) => (packets[0].bytes() != before, packets.len(), packets[0].has_offload()),
                Err(packet) => (packet.bytes() != before, 0, packet.has_offload()),
            }
        };
        assert_eq!(with(plain), (true, 1, false), "finished");
        assert_eq!(with(Offload { flags: 0, ..plain }), (false, 1, false), "nothing to do");
        assert_eq!(with(Offload { flags: Offload::CHECKSUM_VALID, ..plain }), (false, 1, false));
        assert_eq!(with(Offload { checksum_start: 35, ..plain }), (false, 0, true), "elsewhere");
        assert_eq!(with(Offload { checksum_offset: 14, ..plain }), (false, 0, true), "another field");
        assert_eq!(with(Offload { checksum_start: 65_000, ..plain }), (false, 0, true), "outside");
    }

    fn claim() -> impl Strategy<Value = Offload> {
        let gso_type = prop_oneof![4 => Just(0), 4 => Just(1), 1 => Just(4), 1 => Just(0x81), 1 => any::<u8>()];
        let start = prop_oneof![6 => Just(34), 1 => Just(38), 1 => any::<u16>()];
        let offset = prop_oneof![6 => Just(16), 1 => Just(6), 1 => any::<u16>()];
        let size = prop_oneof![1u16..2_000, any::<u16>()];
        (0u8..4, gso_type, any::<u16>(), size, start, offset).prop_map(
            |(flags, gso_type, header_length, segment_size, checksum_start, checksum_offset)| Offload {
                flags,
                gso_type,
                header_length,
                segment_size,
                checksum_start,
                checksum_offset,
            },
        )
    }

    proptest! {
        /// For any packet and any offload: it comes out with only its TCP or UDP checksum changed, or as the segments
        /// that its headers describe, or not at all; and the receiver accepts all that comes out.
        #[test]
        fn only_checksums_change_and_the_receiver_accepts_the_result(
            payload in 0usize..4_000,
            claim in claim(),
            checksums: bool,
            damage in proptest::collection::vec((0usize..60, any::<u8>()), 0..3),
            length in prop_oneof![Just(usize::MAX), 15usize..4_100],
            more in 0usize..9,
        ) {
            pool::ensure().unwrap();
            let mut packet = gso_packet(payload, 1_448);
            for (at, byte) in damage {
                let at = at.min(packet.len() - 1);
                packet.bytes_mut()[at] = byte;
            }
            packet.truncate(length);
            packet.append(&vec![0xdd; more.min(packet.tailroom())]);
            packet.set_offload(claim);
            let before = packet.bytes().to_vec();
            let found = Transport::find(&before).ok();
            match finish(packet, Accepted { checksums, ..Accepted::default() }, ENDLESS) {
                Err(packet) => prop_assert_eq!(packet.bytes(), &before[..], "what is dropped"),
                Ok((packets, _)) if claim.is_gso() => {
                    let kind = if claim.gso_type & 4 == 0 { GsoKind::Tcp4 } else { GsoKind::Tcp6 };
                    let whole = GsoPacket::new(&before, kind, claim.segment_size).unwrap();
                    let how = if checksums { Checksums::Partial } else { Checksums::Whole };
                    prop_assert_eq!(packets.len(), whole.count());
                    for (packet, segment) in packets.iter().zip(whole.segments(how)) {
                        let mut bytes = vec![0; segment.len()];
                        segment.write(&mut bytes);
                        prop_assert_eq!(packet.bytes(), &bytes[..]);
                        let found = Transport::find(&bytes).unwrap();
                        let place = (found.start(), found.checksum_offset());
                        let wanted = checksums.then_some((Offload::NEEDS_CHECKSUM, 0, place.0, place.1));
                        let said = packet.offload().map(|one| {
                            (one.flags, one.gso_type, one.checksum_start.into(), one.checksum_offset.into())
                        });
                        prop_assert_eq!((said, found.end()), (wanted, bytes.len()));
                        prop_assert_eq!(verify_checksums(&bytes).is_ok(), !checksums || bytes.is_empty());
                    }
                }
                Ok((packets, _)) => {
                    prop_assert_eq!((packets.len(), packets[0].has_offload()), (1, false));
                    let mut bytes = packets[0].bytes().to_vec();
                    if claim.needs_checksum() {
                        let at = found.unwrap().start() + found.unwrap().checksum_offset();
                        bytes[at..at + 2].copy_from_slice(&before[at..at + 2]);
                    }
                    prop_assert_eq!(bytes, before);
                }
            }
        }
    }
}
