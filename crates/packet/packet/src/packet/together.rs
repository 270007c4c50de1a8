//! The handles of many packets, moved together.

use bellows_pool::{DATA_OFFSET, LINE};

use super::{LENGTH_MASK, MOVED, OFFLOAD, Packet};

/// Extends each packet by `count` bytes at the front, as [`Packet::prepend`] does. False, and none has changed, if one
/// has less room than that, or an offload. Hot: to be called in a [loop for the processor](bellows_sys::simd::Loop).
#[inline(always)]
pub fn prepend_all(packets: &mut [Packet], count: usize) -> bool {
    let any = packets.iter().fold(0, |any, packet| any | packet.word);
    if any & OFFLOAD != 0 {
        return false;
    }
    let have_room = match any & MOVED {
        0 => count <= DATA_OFFSET - LINE,
        _ => packets.iter().fold(true, |all, packet| all & (packet.room_in_front() >= count)),
    };
    if !have_room {
        return false;
    }
    for packet in packets {
        // SAFETY: each packet has `count` bytes between its metadata line and its data, as was checked above.
        packet.data = unsafe { packet.data.sub(count) };
        packet.word = (packet.word + count as u64) | MOVED;
    }
    true
}

/// Removes `count` bytes from the front of each packet, as [`Packet::trim_front`] does. False, and none has changed, if one
/// is shorter than that, or has an offload. Hot: to be called in a [loop for the processor](bellows_sys::simd::Loop).
#[inline(always)]
pub fn trim_front_all(packets: &mut [Packet], count: usize) -> bool {
    let look =
        |(any, shortest): (u64, u64), packet: &Packet| (any | packet.word, shortest.min(packet.word & LENGTH_MASK));
    let (any, shortest) = packets.iter().fold((0, LENGTH_MASK), look);
    if any & OFFLOAD != 0 || shortest < count as u64 {
        return false;
    }
    for packet in packets {
        // SAFETY: no packet is shorter than `count`, so the pointer stays in its buffer or points just past its data,
        // where bellows_pool::start_of still finds the buffer.
        packet.data = unsafe { packet.data.add(count) };
        packet.word = (packet.word - count as u64) | MOVED;
    }
    true
}

/// Keeps a part of each packet, as [`Packet::narrow`] does: from `start` to its own of `ends`. False, and none has changed,
/// if one has no such part, or an offload. Hot: to be called in a [loop for the processor](bellows_sys::simd::Loop).
#[inline(always)]
pub fn narrow_all(packets: &mut [Packet], start: usize, ends: &[u32]) -> bool {
    let Ok(first) = u32::try_from(start) else { return false };
    let look = |(any, are_parts): (u64, bool), (packet, &end): (&Packet, &u32)| {
        (any | packet.word, are_parts & (first <= end) & (end <= packet.len() as u32))
    };
    let (any, are_parts) = packets.iter().zip(ends).fold((0, ends.len() >= packets.len()), look);
    if any & OFFLOAD != 0 || !are_parts {
        return false;
    }
    for (packet, &end) in packets.iter_mut().zip(ends) {
        // SAFETY: `start` is at or before the end of each packet's data, so the pointer stays in its buffer or points just
        // past its data, where bellows_pool::start_of still finds the buffer.
        packet.data = unsafe { packet.data.add(start) };
        packet.word = packet.word & !LENGTH_MASK | u64::from(end - first) | MOVED;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Offload;
    use proptest::prelude::*;

    /// A packet, given its length, how far its data begins from the usual place, and whether it has an offload.
    fn packet((length, by, has_offload): (usize, i64, bool)) -> Packet {
        let mut packet = Packet::from_bytes(&vec![7; length + 250]).unwrap();
        packet.trim_front((125 + by) as usize);
        packet.truncate(length);
        if by == 0 {
            packet = Packet::from_bytes(&vec![7; length]).unwrap();
        }
        if has_offload {
            packet.set_offload(Offload { flags: 1, checksum_start: 200, ..Offload::default() });
        }
        packet.set_tag(length as u32);
        packet
    }

    fn seen(packets: &[Packet]) -> Vec<(usize, usize, usize, u32)> {
        packets.iter().map(|packet| (packet.address(), packet.len(), packet.headroom(), packet.tag())).collect()
    }

    proptest! {
        /// All packets change as one does by itself, or none.
        #[test]
        fn packets_change_as_one_does(
            packets in prop::collection::vec(
                (0usize..300, prop::sample::select(vec![-100i64, 0, 0, 0, 60]), prop::bool::weighted(0.02)), 1..40),
            count in 0usize..400,
        ) {
            bellows_pool::ensure().unwrap();
            let mut packets: Vec<Packet> = packets.into_iter().map(packet).collect();
            let before = seen(&packets);
            let is_free = packets.iter().all(|packet| !packet.has_offload());
            let can = is_free && packets.iter().all(|packet| packet.headroom() >= count);
            prop_assert_eq!(prepend_all(&mut packets, count), can);
            if can {
                let prepended =
                    before.iter().map(|&(at, length, room, tag)| (at - count, length + count, room - count, tag));
                prop_assert_eq!(seen(&packets), prepended.collect::<Vec<_>>());
                prop_assert!(trim_front_all(&mut packets, count));
            }
            prop_assert_eq!(seen(&packets), before.clone());
            let can = is_free && packets.iter().all(|packet| packet.len() >= count);
            prop_assert_eq!(trim_front_all(&mut packets, count), can);
            if can {
                let trimmed =
                    before.iter().map(|&(at, length, room, tag)| (at + count, length - count, room + count, tag));
                prop_assert_eq!(seen(&packets), trimmed.collect::<Vec<_>>());
            } else {
                prop_assert_eq!(seen(&packets), before);
            }
        }

        /// All packets lose their first bytes and what is behind their ends, or none.
        #[test]
        fn packets_are_narrowed_as_one_is(
            packets in prop::collection::vec(
                ((0usize..300, prop::sample::select(vec![-100i64, 0, 0, 60]), prop::bool::weighted(0.01)), 0usize..9), 1..40),
            start in 0usize..300,
            beyond in prop::bool::weighted(0.1),
        ) {
            bellows_pool::ensure().unwrap();
            let (packets, behind): (Vec<_>, Vec<usize>) = packets.into_iter().unzip();
            let mut packets: Vec<Packet> = packets.into_iter().map(|(length, by, has)| packet((length + start, by, has))).collect();
            let before = seen(&packets);
            let mut ends: Vec<u32> = packets.iter().zip(behind).map(|(packet, behind)| (packet.len() - behind.min(packet.len())) as u32).collect();
            ends[0] += 9 * u32::from(beyond);
            let mut whole = packets.iter().zip(&ends);
            let can = whole.all(|(packet, &end)| !packet.has_offload() && start <= end as usize && end as usize <= packet.len());
            prop_assert_eq!(narrow_all(&mut packets, start, &ends), can);
            let narrowed = before.iter().zip(&ends).map(|(&(at, _, room, tag), &end)| (at + start, end as usize - start, room + start, tag));
            let expected = if can { narrowed.collect() } else { before.clone() };
            prop_assert_eq!(seen(&packets), expected);
            prop_assert!(!narrow_all(&mut packets, 0, &[]));
        }
    }
}
