//! Offloads: work on a packet that is left to the device or driver that sends it on.

/// The offload of a packet: the first 10 bytes of the virtio-net header (virtio 1.2, 5.1.6), in their layout.
///
/// A guest that negotiated offloads sends partial checksums and GSO packets of up to 64 KiB. The receiver completes the
/// work, or passes the packet to a receiver that negotiated the same offloads. The packet carries the fields along, see
/// [`Packet::offload`](crate::Packet::offload).
///
/// This module does not read the packet. The fields are checked against the bytes of the packet where it comes in. Apps
/// change packets, so code that acts on the fields or passes them on must check again.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// [`Offload::NEEDS_CHECKSUM`] and [`Offload::CHECKSUM_VALID`]; other bits are ignored.
    pub flags: u8,
    /// The kind of GSO packet: one of the `GSO_` numbers, optionally with [`Offload::GSO_ECN`].
    pub gso_type: u8,
    /// Length of all headers of a GSO packet. A hint, which may be wrong.
    pub header_length: u16,
    /// Bytes of payload in each segment of a GSO packet except the last.
    pub segment_size: u16,
    /// Start of the bytes that a partial checksum covers; they reach to the end of the packet.
    pub checksum_start: u16,
    /// Position of the checksum field, relative to `checksum_start`.
    pub checksum_offset: u16,
}

const _: () = assert!(size_of::<Offload>() == 10);

impl Offload {
    /// Flag: the checksum is partial. Its field holds the sum of the pseudo-header; the sum over the rest is still to
    /// be added.
    pub const NEEDS_CHECKSUM: u8 = 1;
    /// Flag: the checksum was verified, or was never needed because the packet never left a machine.
    pub const CHECKSUM_VALID: u8 = 2;
    /// Not a GSO packet.
    pub const GSO_NONE: u8 = 0;
    /// A GSO packet of TCP over IPv4.
    pub const GSO_TCP4: u8 = 1;
    /// A GSO packet of TCP over IPv6.
    pub const GSO_TCP6: u8 = 4;
    /// Flag beside one of these: the frame carries the CWR flag of explicit congestion notification.
    pub const GSO_ECN: u8 = 0x80;

    /// Whether the checksum is partial.
    #[inline(always)]
    pub fn needs_checksum(&self) -> bool {
        self.flags & Offload::NEEDS_CHECKSUM != 0
    }

    /// Whether the packet is a GSO packet.
    #[inline(always)]
    pub fn is_gso(&self) -> bool {
        self.gso_type != Offload::GSO_NONE
    }

    /// The offload after the packet gained `by` bytes at its front, or lost some if `by` is negative. `None` if
    /// `checksum_start` can no longer be represented.
    pub(crate) fn shifted(mut self, by: i64) -> Option<Offload> {
        let shift = |position: u16| u16::try_from(i64::from(position) + by).ok();
        if self.needs_checksum() {
            self.checksum_start = shift(self.checksum_start)?;
        }
        self.header_length = shift(self.header_length).unwrap_or(0);
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Packet, Vector, pool, push_copies};
    use proptest::prelude::*;

    fn offload() -> impl Strategy<Value = Offload> {
        let gso_type = prop_oneof![Just(0), Just(1), Just(4), Just(0x81), Just(0x84), Just(3), any::<u8>()];
        let offset = prop_oneof![Just(16), any::<u16>()];
        (any::<u8>(), gso_type, any::<u16>(), 0u16..3, 0u16..200, offset).prop_map(
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
        /// The checksum stays at the same bytes while headers are added and removed; it is dropped together with the
        /// bytes that it covers.
        #[test]
        fn moving_the_front_moves_the_checksum(
            offload in offload(),
            steps in proptest::collection::vec(-40isize..40, 0..12),
        ) {
            pool::ensure().unwrap();
            let mut packet = Packet::from_bytes(&[0; 300]).unwrap();
            packet.set_offload(offload);
            // Start of the checksum, relative to the data of the buffer.
            let fixed = isize::try_from(offload.checksum_start).unwrap();
            let (mut front, mut furthest) = (0, 0);
            for step in steps {
                if step < 0 {
                    packet.trim_front(step.unsigned_abs());
                } else if packet.headroom() >= step.unsigned_abs() {
                    packet.prepend(step.unsigned_abs());
                } else {
                    continue;
                }
                front -= step;
                furthest = furthest.max(front);
            }
            let expected = match offload.needs_checksum() {
                true => (furthest <= fixed).then(|| u16::try_from(fixed - front).unwrap()),
                false => Some(offload.checksum_start),
            };
            prop_assert_eq!(packet.offload().map(|offload| offload.checksum_start), expected);
            prop_assert_eq!(packet.has_offload(), expected.is_some());
        }
    }

    #[test]
    fn copies_have_the_offload_of_their_original_and_new_packets_have_none() {
        pool::ensure().unwrap();
        let offload = Offload { flags: 1, checksum_start: 34, checksum_offset: 16, ..Offload::default() };
        let mut packet = Packet::from_bytes(&[7; 60]).unwrap();
        packet.set_offload(offload);
        let mut reused = Packet::from_bytes(b"another").unwrap();
        reused.set_offload(Offload::default());
        reused.truncate(0);
        let mut bulk = Vector::new();
        let plain = Packet::from_bytes(b"plain").unwrap();
        assert_eq!(push_copies(&mut bulk, &[plain, packet]), 2);
        let carried: Vec<_> = bulk.as_slice().iter().map(Packet::offload).collect();
        assert_eq!(carried, [None, Some(offload)]);
        bulk.as_slice()[1].copy_into(&mut reused);
        assert_eq!((reused.offload(), reused.meta()), (Some(offload), None));
        reused.truncate(0);
        bulk.as_slice()[0].copy_into(&mut reused);
        assert_eq!(reused.offload(), None);

        let mut packet = bulk.as_slice()[1].copy().unwrap();
        packet.clear_offload();
        assert_eq!((packet.has_offload(), packet.offload()), (false, None));
        packet.set_offload(offload);
        packet.trim_front(35);
        drop(packet);
        assert!(Packet::allocate_burst(2).all(|burst| !burst.has_offload()));
    }
}
